"""Progress of a run on a terminal: a bar for each running vertex, and one for the whole run. Nothing off a terminal.

The thread that waits for the run draws ten times a second; the run itself pays nothing. A run that ends within
`PATIENCE_S` shows nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from types import TracebackType

    from weft.engine.view import JobView, VertexView

PATIENCE_S = 0.5
"""The seconds before a run shows bars."""
ROWS = 8
"""The maximum number of vertices shown, running ones first."""


class Bars:
    """The bars of one run, made by `bars`. Call `update` with views, and `close` at the end of the run."""

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
        for vertex in sorted(known, key=_interest)[:ROWS]:
            if _interest(vertex)[0] > 0:
                break
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

    def __enter__(self) -> Bars:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _interest(vertex: VertexView) -> tuple[int, int]:
    """Order vertices for display: running ones first, by number of running tasks."""
    return (0 if vertex.executing and vertex.state == "running" else 1, -vertex.executing)


def bars(name: str, stream: TextIO | None = None) -> Bars | None:
    """Return the bars of a run; None if the stream (standard error) is no terminal."""
    stream = stream or sys.stderr
    return Bars(name, stream) if stream.isatty() else None
