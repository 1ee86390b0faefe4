"""The progress of a run: a live board on a terminal, one line for each change elsewhere, or no output.

All three displays take the same records, from any thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

from msgspec import Struct

from weft.cli.tables import PlainPage, clean, look, moment, one_line, unicode_ok
from weft.model.ids import loop_item
from weft.model.wording import MOST_TOLD, duration, how_failed
from weft.runs.records import RUNS_ALWAYS, RunTimes
from weft.store.state import STATUS, read_status

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from rich.console import Console, Group

    from weft.runs.records import Record

_OVER: Final = frozenset({"succeeded", "failed", "terminated", "cancelled", "skipped", "interrupted", "suspended"})
_ORDER: Final = ("running", "succeeded", "failed", "terminated", "interrupted")
_REST: Final = 4
"""The lines of the screen that are not for steps."""


class ProgressDisplay(Protocol):
    """A context manager that shows records while it is entered."""

    def expect(self, steps: Sequence[str], *, jobs: Path | None = None) -> None:
        """Take the names of the steps of the run, in order; `jobs` is the folder of a run of training jobs."""
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
    steps: Sequence[str],
    stream: TextIO,
    console: Callable[[], Console | PlainPage],
    clock: Callable[[], float],
    *,
    quiet: bool,
    jobs: Path | None = None,
) -> ProgressDisplay:
    """Return the display: silent if `quiet`, a board on a terminal, else lines.

    `clock` returns seconds since 1970. `jobs` is the folder of a run of training jobs.
    """
    if quiet:
        return SilentDisplay()
    page = console() if stream.isatty() else None
    if page is None or isinstance(page, PlainPage):
        found: ProgressDisplay = LineDisplay(stream)
    else:
        found = LiveDisplay(StepTable(()), page, clock)
    found.expect(steps, jobs=jobs)
    return found


class SilentDisplay:
    """A display without output."""

    def expect(self, steps: Sequence[str], *, jobs: Path | None = None) -> None:
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

    def expect(self, steps: Sequence[str], *, jobs: Path | None = None) -> None:
        """Take the kind of the steps: lines are only for those that have begun."""
        if jobs is not None:
            self._board = ReplicaTable(())

    def add(self, record: Record) -> None:
        """Write the line of a record; of replicas only news."""
        with self._lock:
            self._board.add(record)
            about = self._board.news(record) if isinstance(self._board, ReplicaTable) else self._what(record)
            if about:
                self._stream.write(f"{moment(record.time, self._zone, '%H:%M:%S')} {about}\n")
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
        if record.index is not None:
            who = loop_item(who, record.index)
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
    paused_s: float = 0.0
    message: str = ""
    width: int = 1

    def seconds(self, now: float) -> float | None:
        """The duration so far without pauses, in seconds; None before the start."""
        if self.started is None:
            return None
        return (now if self.ended is None else self.ended) - self.started - self.paused_s


class StepTable:
    """The current state of all steps of a run."""

    def __init__(self, steps: Sequence[str]) -> None:
        self.run = StepRow("")
        self._times = RunTimes()
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
        self._times.add(record)
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
        if not record.step:
            row.paused_s = self._times.paused_s
        elif record.state in ("pending", "skipped"):  # another owner has resumed the run
            row.started = row.ended = None
        if record.state == "running":
            again = row.started is None or (row is not self.run and row.started < self._times.since)
            row.started, row.ended = (record.time if again else row.started), None
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

    def details(self, row: StepRow) -> Sequence[str]:
        """Return further lines of a row: none."""
        return ()

    def total(self, now: float) -> str:
        """Return one line about all steps: `3 of 7 done, 1 running, 1 failed, 12 s`."""
        states = [row.state for row in self.rows.values()]
        parts = [f"{sum(row.ended is not None for row in self.rows.values())} of {len(states)} done"]
        parts += [f"{count} {state}" for state in ("running", "failed") if (count := states.count(state))]
        seconds = self.run.seconds(now)
        return ", ".join(parts if seconds is None else [*parts, duration(seconds)])


class ReplicaTable(StepTable):
    """The current state of all replica groups of a run: numbers of replicas, and the last condition of a job.

    `folder` is that of the run, for the reports of replicas.
    """

    def __init__(self, steps: Sequence[str], folder: Path | None = None) -> None:
        super().__init__(steps)
        self._folder = folder
        self._written = 0
        self._reports: dict[str, list[str]] = {}
        self._states: dict[tuple[str, int], str] = {}
        self._again: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._condition = ""

    def add(self, record: Record) -> None:
        """Apply a record."""
        if record.index is None:
            super().add(record)
            self._condition = self._condition if record.step or record.ended else record.message or self._condition
            return
        self._times.add(record)
        row, key = self.row(record.step), (record.step, record.index)
        before, self._states[key] = self._states.get(key), record.state
        self._again[record.step] += record.state == "running" and before is not None
        counts = Counter(state for (step, _), state in self._states.items() if step == record.step)
        row.state = next((word for word in ("running", "failed") if counts[word]), record.state)
        row.started = record.time if row.started is None else row.started
        row.ended = None if counts["running"] else record.time
        parts = [f"{count} {state}" for state in _ORDER if (count := counts[state])]
        if count := self._again[record.step]:
            parts.append(f"{count} restart{'s' if count > 1 else ''}")
        if record.state == "failed":
            parts.append(f"{loop_item(record.step, record.index)}: {one_line(how_failed(record.message))}")
        row.message = ", ".join(parts)

    def details(self, row: StepRow) -> Sequence[str]:
        """Return the last reports of the replicas of a row, one line each."""
        if self._folder is not None:
            with suppress(OSError):
                written = (self._folder / STATUS).stat().st_mtime_ns
                if written != self._written:
                    self._written, self._reports = written, _reports(read_status(self._folder), self.rows)
        return self._reports.get(row.name, ())

    def news(self, record: Record) -> str:
        """Return the line of a record: of a condition, a failure, a restart or the end of the run; else ""."""
        if record.index is None:
            if not record.step and record.ended:
                taken = "" if self.run.started is None else f" in {duration(self.run.seconds(record.time))}"
                return f"run {clean(record.state)}{taken}"
            return one_line(record.message)
        again = record.state == "running" and record.attempt > 0
        if not again and record.state != "failed":
            return ""
        name = loop_item(clean(record.step), record.index)
        self._told[record.step] += 1
        if self._told[record.step] > MOST_TOLD:
            more = f"{clean(record.step)}: more replicas fail or restart; see weft show"
            return more if self._told[record.step] == MOST_TOLD + 1 else ""
        if again:
            return f"{name} succeeded; {RUNS_ALWAYS}" if record.message == RUNS_ALWAYS else f"{name} starts again"
        return f"{name} failed: {one_line(how_failed(record.message))}"

    def total(self, now: float) -> str:
        """Return one line about the run: its last condition and its time."""
        seconds = self.run.seconds(now)
        return ", ".join(part for part in (self._condition, "" if seconds is None else duration(seconds)) if part)


def _reports(jobs: Sequence[Mapping[str, Any]], rows: Collection[str]) -> dict[str, list[str]]:
    """Return the lines of the last reports, by the names of the groups of replicas."""
    from weft.cli.replicas import report_text  # few jobs report

    found: dict[str, list[str]] = {}
    for job in jobs:
        for name, report in job.get("reports", {}).items():
            group = name.rpartition("-")[0]
            if group in rows:
                found.setdefault(group, []).append(f"{name}: {report_text(report)}")
    return found


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

    def expect(self, steps: Sequence[str], *, jobs: Path | None = None) -> None:
        """Give each step a row."""
        with self._lock:
            if jobs is not None and not isinstance(self._board, ReplicaTable):
                self._board = ReplicaTable((), jobs)
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
            free = self._console.size.height - _REST - len(rows)
            for row in rows:
                found = look(row.state)
                line = Text(no_wrap=True, overflow="ellipsis")
                line.append(f"{found.symbol if pretty else found.plain} ", style=found.style)
                line.append(clean(row.name).ljust(min(width, 40)))
                line.append(f"  {duration(row.seconds(now)):>12}", style="dim")
                line.append(f"  {one_line(row.message)}" if row.message else "")
                lines.append(line)
                details = self._board.details(row)[: max(free, 0)]
                free -= len(details)
                lines += [Text(f"    {clean(each)}", no_wrap=True, overflow="ellipsis") for each in details]
            if hidden:
                lines.append(Text(f"  and {hidden} more", style="dim"))
            lines.append(Text(self._board.total(now), style="bold", no_wrap=True, overflow="ellipsis"))
        return Group(*lines)

    def __enter__(self) -> LiveDisplay:
        self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()
