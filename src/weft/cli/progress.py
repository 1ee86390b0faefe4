"""The progress of a run: a live board on a terminal, one line for each change elsewhere, or no output.

All three displays take the same records, from any thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from msgspec import Struct

from weft.cli.tables import clean, duration, look, moment, one_line, unicode_ok

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console, Group

    from weft.runs.records import Record

_OVER: Final = frozenset({"succeeded", "failed", "terminated", "cancelled", "skipped", "interrupted", "suspended"})
_REST: Final = 4
"""The lines of the screen that are not for steps."""


class ProgressDisplay(Protocol):
    """A context manager that shows records while it is entered."""

    def expect(self, steps: Sequence[str]) -> None:
        """Take the names of the steps of the run, in order."""
        ...

    def add(self, record: Record) -> None:
        """Take the next record."""
        ...

    def say(self, text: str) -> None:
        """Show one line, between the lines of records."""
        ...

    def __enter__(self) -> ProgressDisplay: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def make_progress(
    steps: Sequence[str], stream: TextIO, console: Callable[[], Console], clock: Callable[[], float], *, quiet: bool
) -> ProgressDisplay:
    """Return the display: silent if `quiet`, a board on a terminal, else lines. `clock` returns seconds since 1970."""
    if quiet:
        return SilentDisplay()
    if not stream.isatty():
        return LineDisplay(stream)
    return LiveDisplay(StepTable(steps), console(), clock)


class SilentDisplay:
    """A display without output."""

    def expect(self, steps: Sequence[str]) -> None:
        """Ignore the names."""

    def add(self, record: Record) -> None:
        """Ignore the record."""

    def say(self, text: str) -> None:
        """Ignore the line."""

    def __enter__(self) -> SilentDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        pass


# --------------------------------------------------------------------------------------------------------------- lines


class LineDisplay:
    """One line for each record: `12:01:03 train succeeded in 2.5 s`. Times are local, or in `zone`."""

    def __init__(self, stream: TextIO, zone: tzinfo | None = None) -> None:
        self._stream, self._zone = stream, zone
        self._board = StepTable(())
        self._lock = threading.Lock()

    def expect(self, steps: Sequence[str]) -> None:
        """Do nothing: lines are only for steps that have begun."""

    def add(self, record: Record) -> None:
        """Write the line of a record."""
        with self._lock:
            self._board.add(record)
            self._stream.write(f"{moment(record.time, self._zone, '%H:%M:%S')} {self._what(record)}\n")
            self._stream.flush()

    def say(self, text: str) -> None:
        """Write the line."""
        with self._lock:
            self._stream.write(text + "\n")
            self._stream.flush()

    def __enter__(self) -> LineDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _what(self, record: Record) -> str:
        row = self._board.row(record.step) if record.index is None else self._board.item(record)
        who = clean(record.step).replace("\n", " ") or "run"
        if record.index:
            who += f"-{record.index}"
        message = one_line(record.message) or (f"{record.items} items" if record.items is not None else "")
        if record.state == "running" and not record.message:
            return f"{who} started" + (f": {message}" if message else "")
        took = f" in {duration(row.seconds(record.time))}" if record.ended and row.started is not None else ""
        line = f"{who} {clean(record.state)}{took}"
        return f"{line}: {message}" if message else line


# --------------------------------------------------------------------------------------------------------------- board


class StepRow(Struct):
    """The current state of one step."""

    name: str
    state: str = "pending"
    started: float | None = None
    ended: float | None = None
    message: str = ""
    width: int = 1

    def seconds(self, now: float) -> float | None:
        """The duration so far, in seconds; None before the start."""
        return None if self.started is None else (now if self.ended is None else self.ended) - self.started


class StepTable:
    """The current state of all steps of a run."""

    def __init__(self, steps: Sequence[str]) -> None:
        self.run = StepRow("")
        self._items: dict[tuple[str, int], StepRow] = {}
        self._done: Counter[str] = Counter()
        self.rows = {name: StepRow(name) for name in steps}

    def expect(self, steps: Sequence[str]) -> None:
        """Give each step a row, in this order."""
        self.rows = {name: self.rows.get(name) or StepRow(name) for name in (*steps, *self.rows)}

    def row(self, step: str) -> StepRow:
        """Return the row of a step, or of the run if `step` is empty; a missing row is made."""
        return self.rows.setdefault(step, StepRow(step)) if step else self.run

    def item(self, record: Record) -> StepRow:
        """Return the row of an item of a loop; the row of its step counts it."""
        return self._items.setdefault((record.step, record.index or 0), StepRow(record.step))

    def add(self, record: Record) -> None:
        """Apply a record."""
        row = self.row(record.step)
        if record.index is not None:
            item = self.item(record)
            self._done[record.step] += record.ended
            if record.state == "running":
                item.started, item.ended = record.time, None
            elif record.ended:
                item.ended = record.time
            row.message = f"{self._done[record.step]} of {row.width} items"
            return
        if record.items is not None:
            row.width = record.items
        row.state = record.state or row.state
        row.message = record.message
        if record.state == "running":
            row.started, row.ended = (record.time if row.started is None else row.started), None
        if record.ended or record.state in _OVER:
            row.ended = record.time

    def shown(self, limit: int) -> tuple[list[StepRow], int]:
        """Return at most `limit` rows, in order, and the number of hidden rows: pending and finished rows are hidden
        first.
        """
        rows = list(self.rows.values())
        if len(rows) <= limit:
            return rows, 0
        dull = {"running": 0, "terminating": 0, "failed": 1, "interrupted": 1}
        newest = sorted(rows, key=lambda row: (dull.get(row.state, 2 if row.ended else 3), -(row.ended or 0.0)))
        kept = {row.name for row in newest[: max(limit, 1)]}
        return [row for row in rows if row.name in kept], len(rows) - len(kept)

    def total(self, now: float) -> str:
        """Return one line about all steps: `3 of 7 done, 1 running, 1 failed, 12 s`."""
        states = [row.state for row in self.rows.values()]
        parts = [f"{sum(row.ended is not None for row in self.rows.values())} of {len(states)} done"]
        parts += [f"{count} {state}" for state in ("running", "failed") if (count := states.count(state))]
        seconds = self.run.seconds(now)
        return ", ".join(parts if seconds is None else [*parts, duration(seconds)])


class LiveDisplay:
    """A board on a terminal, redrawn several times a second and removed at the end."""

    def __init__(self, board: StepTable, console: Console, clock: Callable[[], float]) -> None:
        from rich.live import Live as Display

        self._board, self._console, self._clock = board, console, clock
        self._lock = threading.Lock()
        self._display = Display(
            console=console,
            get_renderable=self.draw,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def expect(self, steps: Sequence[str]) -> None:
        """Give each step a row."""
        with self._lock:
            self._board.expect(steps)

    def add(self, record: Record) -> None:
        """Take the next record; the next redraw shows it."""
        with self._lock:
            self._board.add(record)

    def say(self, text: str) -> None:
        """Print a line above the board; it stays."""
        self._console.print(text)

    def draw(self) -> Group:
        """Return the current board: one line for each step that fits, and the total."""
        from rich.console import Group
        from rich.text import Text

        now = self._clock()
        with self._lock:
            rows, hidden = self._board.shown(self._console.size.height - _REST)
            pretty = unicode_ok(self._console.file)
            width = max((len(clean(row.name)) for row in rows), default=0)
            lines = []
            for row in rows:
                found = look(row.state)
                line = Text(no_wrap=True, overflow="ellipsis")
                line.append(f"{found.symbol if pretty else found.plain} ", style=found.style)
                line.append(clean(row.name).ljust(min(width, 40)))
                line.append(f"  {duration(row.seconds(now)):>12}", style="dim")
                line.append(f"  {one_line(row.message)}" if row.message else "")
                lines.append(line)
            if hidden:
                lines.append(Text(f"  and {hidden} more", style="dim"))
            lines.append(Text(self._board.total(now), style="bold", no_wrap=True, overflow="ellipsis"))
        return Group(*lines)

    def __enter__(self) -> LiveDisplay:
        self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()
