"""Progress of a run on a terminal or in a notebook: a bar for each running vertex, and one for the whole run.

The thread that waits for the run draws ten times a second; the run itself pays nothing. A run that ends within
`PATIENCE_S` shows nothing.
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

from msgspec import Struct

if TYPE_CHECKING:
    from types import TracebackType

    from weft.engine.view import JobView, VertexView

PATIENCE_S = 0.5
"""The seconds before a run shows bars."""
ROWS = 8
"""The maximum number of vertices shown, running ones first."""


class Bars(Protocol):
    """The bars of one run, made by `bars`: a context manager. Call `update` with views, and `close` at the end."""

    def update(self, view: JobView) -> None:
        """Show the progress of every vertex."""
        ...

    def show(self) -> None:
        """Draw the bars again after `hide`."""
        ...

    def hide(self) -> None:
        """Remove the bars until `show`."""
        ...

    def close(self) -> None:
        """Remove the bars."""
        ...

    def __enter__(self) -> Bars: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class TerminalBars:
    """Bars on a terminal."""

    def __init__(self, name: str, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(file=stream, markup=False, highlight=False),
            transient=True,
        )
        self._total = self._progress.add_task(name, total=None)
        self._rows: dict[str, Any] = {}
        self._progress.start()

    def update(self, view: JobView) -> None:
        """Show the progress of every vertex."""
        known = [vertex for vertex in view.vertices if vertex.n >= 0]
        done = sum(vertex.finished for vertex in known)
        total = sum(vertex.n for vertex in known) if known else None
        self._progress.update(self._total, completed=done, total=total)
        shown = set()
        for vertex in _running(known):
            shown.add(vertex.id)
            if vertex.id not in self._rows:
                self._rows[vertex.id] = self._progress.add_task(f"  {vertex.id}", total=vertex.n)
            self._progress.update(self._rows[vertex.id], completed=vertex.finished)
        for gone in self._rows.keys() - shown:
            self._progress.remove_task(self._rows.pop(gone))

    def show(self) -> None:
        """Draw the bars again after `hide`."""
        self._progress.start()

    def hide(self) -> None:
        """Remove the bars from the terminal until `show`."""
        self._progress.stop()

    def close(self) -> None:
        """Remove the bars from the terminal."""
        self._progress.stop()

    def __enter__(self) -> TerminalBars:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _interest(vertex: VertexView) -> tuple[int, int]:
    """Order vertices for display: running ones first, by number of running tasks."""
    return (0 if vertex.executing and vertex.state == "running" else 1, -vertex.executing)


class BarRow(Struct, frozen=True):
    """A bar in a notebook: how many of the tasks of a vertex have finished, and of how many (-1: unknown)."""

    name: str
    done: int
    n: int


class ProgressPicture:
    """The bars of a moment, as a notebook shows them; elsewhere as text."""

    def __init__(self, rows: list[BarRow]) -> None:
        self._rows = rows

    def __repr__(self) -> str:
        return "\n".join(f"{row.name} {row.done}/{row.n if row.n >= 0 else '?'}" for row in self._rows)

    def _repr_html_(self) -> str:
        from html import escape  # its table of characters takes 3 ms, and only notebooks need it

        lines = [
            f"<tr><td>{escape(row.name)}</td><td><progress max='{max(row.n, 1)}'"
            + (f" value='{row.done}'" if row.n >= 0 else "")
            + f"></progress></td><td>{row.done}/{row.n if row.n >= 0 else '?'}</td></tr>"
            for row in self._rows
        ]
        return f"<table>{''.join(lines)}</table>"


class NotebookBars:
    """Bars in the output of a notebook cell, drawn in place."""

    _numbers: Final = itertools.count(1)

    def __init__(self, name: str, notebook: Any) -> None:
        self._name = name
        self._notebook = notebook
        self._id = f"weft-{os.getpid()}-{next(self._numbers)}"
        notebook.display(ProgressPicture([BarRow(name, 0, -1)]), display_id=self._id)

    def update(self, view: JobView) -> None:
        """Show the progress of every vertex."""
        known = [vertex for vertex in view.vertices if vertex.n >= 0]
        rows = [
            BarRow(self._name, sum(vertex.finished for vertex in known), sum(v.n for v in known) if known else -1),
            *(BarRow(vertex.id, vertex.finished, vertex.n) for vertex in _running(known)),
        ]
        self._draw(ProgressPicture(rows))

    def show(self) -> None:
        """Draw the bars again; the next update does."""

    def hide(self) -> None:
        """Leave the bars where they are: they are in nobody's way."""

    def close(self) -> None:
        """Remove the bars, whose place stays empty."""
        self._draw(ProgressPicture([]))

    def _draw(self, picture: ProgressPicture) -> None:
        self._notebook.update_display(picture, display_id=self._id)

    def __enter__(self) -> NotebookBars:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _running(known: list[VertexView]) -> list[VertexView]:
    """Return the running vertices that are shown."""
    return [vertex for vertex in sorted(known, key=_interest)[:ROWS] if _interest(vertex)[0] == 0]


def _notebook() -> Any:
    """Return the module that displays in the notebook of this process; None if it is none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):  # a terminal of IPython has none
        return None
    from importlib import import_module

    return import_module("IPython.display")


def can_show(stream: TextIO | None = None) -> bool:
    """Return whether bars would be seen: on a terminal (standard error), or in a notebook."""
    stream = stream or sys.stderr
    return (stream is not None and stream.isatty()) or _notebook() is not None


def bars(name: str, stream: TextIO | None = None) -> Bars | None:
    """Return the bars of a run; None if the stream (standard error) is no terminal, and this is no notebook."""
    notebook = _notebook()
    if notebook is not None:
        return NotebookBars(name, notebook)
    stream = stream or sys.stderr
    return TerminalBars(name, stream) if stream is not None and stream.isatty() else None
