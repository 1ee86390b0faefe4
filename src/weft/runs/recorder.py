"""The recorder of one run: a listener of the loop that writes the records of the run.

The hot path only collects the vertices whose state has changed. A thread of the recorder makes records of them
(`weft.runs.ticks`), appends them to `events.jsonl` (many in one write), updates the index and calls `on_record`.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from weft.engine.commands import Complete
from weft.engine.events import ends_tasks
from weft.engine.machines.job import JobState
from weft.engine.machines.vertex import VertexState
from weft.model.errors import WeftError
from weft.model.failures import Failure
from weft.runs.records import Record, RunTimes, open_events, read_records
from weft.runs.ticks import KnownMessage, RecordedTick, RecordMaker, is_recorded, moved_vertex
from weft.store.database import BUSY, obstacle
from weft.store.state import list_logs, os_error

if TYPE_CHECKING:
    from weft.durability.journal import FileJournal
    from weft.engine.commands import Command
    from weft.engine.events import Event
    from weft.graph.logical import Vertex
    from weft.graph.projection import Projection
    from weft.runtime.clock import WallClock
    from weft.runtime.job import JobRun
    from weft.store.catalog import Catalog
    from weft.store.state import RunFolder

_LAST_TICK_S: Final = 5.0
_GATHER_S: Final = 0.01
"""Ticks within this time are written together, or earlier if a caller waits for the write."""


class RunRecorder:
    """The writer of the records of one run; add it to `JobRun.listeners` before the job is submitted.

    `over` names steps without further records. With `items`, each task of a step with several tasks has records.
    `on_record` is called with every record, in order, on the recorder's thread. `outputs` returns the paths of the
    outputs of a task by name, except those in the description of the run. `mirror` is called when records are written,
    before they are reported. Errors never reach the run: they are kept in
    `problems`, and records that could not be written are written with the next ones. The index never has a record that
    the folder lacks.
    """

    def __init__(
        self,
        folder: RunFolder,
        clock: WallClock,
        *,
        projection: Projection,
        catalog: Catalog | None = None,
        over: Iterable[str] = (),
        items: bool = False,
        on_record: Callable[[Record], None] | None = None,
        outputs: Callable[[Vertex, int], dict[str, str]] = lambda _vertex, _index: {},
        mirror: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.problems: list[Exception] = []
        self._clock = clock
        self._catalog = catalog
        self._on_record = on_record
        self._mirror = mirror
        self._queue: queue.SimpleQueue[
            RecordedTick | KnownMessage | Record | threading.Event | Callable[[], list[Record]] | None
        ] = queue.SimpleQueue()
        self._known = 0  # number of recorded stages
        self._job: JobState | None = None
        self._saw_end = threading.Event()
        self._awaited = threading.Event()
        self._after: Callable[[Callable[[], None]], None] | None = None
        self._journal: FileJournal | None = None  # whose failure ends the records
        self._held = self._released = 0  # ticks that wait for the journal; later ticks queue behind them
        self._fd = open_events(folder.events)
        self._before = RunTimes()
        attempts = self._earlier()
        self._began = self._before.started is not None
        self._resumed = self._began
        # Owned by the thread from here on.
        self._unwritten: list[Record] = []
        self._full = False
        self._maker = RecordMaker(projection, over=over, items=items, outputs=outputs, attempts=attempts)
        self._thread = threading.Thread(target=self._write, name=f"recorder of {folder.run_id}", daemon=True)
        self._thread.start()

    def _earlier(self) -> dict[tuple[str, int | None], int]:
        """Read the records of earlier owners of the run; return how many attempts they have begun, by step and item."""
        attempts: dict[tuple[str, int | None], int] = {}
        for record in read_records(self.folder.path):
            self._before.add(record)
            if record.state == "running" and record.step:
                key = record.step, record.index
                attempts[key] = max(attempts.get(key, 0), record.attempt + 1)
        for log in list_logs(self.folder.path):  # the record of a killed owner's last attempt may be lost
            key = log.step, log.index
            attempts[key] = max(attempts.get(key, 0), log.attempt + 1)
        return attempts

    # ----------------------------------------------------------------------------------------------- hot path

    def __call__(self, job: JobRun, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """Collect the changes of a tick; the loop calls this under its lock."""
        inspector = job.inspector
        rows, status = inspector.vertices, inspector.status
        known = {row.index: row for row in inspector.moved if row.index < self._known}
        changed = [*(known[at] for at in sorted(known)), *rows[self._known :]]
        if job.draining:  # nothing starts any more, whatever the master has leased
            changed = [row for row in changed if row.status is not VertexState.RUNNING]
        stages = [moved_vertex(inspector, row) for row in changed]
        moved = status is not self._job
        self._known, self._job = len(rows), status
        ended = any(type(command) is Complete for command in commands)
        if stages or moved or ended or is_recorded(events, commands):
            tick = RecordedTick(self._clock.wall(), events, commands, stages, status)
            if self._after is None or not (ended or self._held != self._released or ends_tasks(events)):
                self._pass_on(tick, ended)
            else:
                self._held += 1
                self._after(partial(self._pass_on_later, tick, ended))

    def _pass_on(self, tick: RecordedTick, ended: bool) -> None:
        if self._journal is None or self._journal.error is None:
            self._queue.put(tick)
            if ended:
                self._saw_end.set()

    def _pass_on_later(self, tick: RecordedTick, ended: bool) -> None:
        if self._journal is not None:
            tick.time = self._clock.wall()  # its time is that of its durability
        self._pass_on(tick, ended)
        self._released += 1

    # -------------------------------------------------------------------------------------------------- said by hand

    def wait_for(self, journal: FileJournal, *, durable: bool) -> None:
        """Record no end that the journal has not written, so that a resume after a kill knows all recorded ends.

        With `durable`, record no end that a loss of power could undo, and report nothing that could not be written.
        Call this before the job is submitted.
        """
        self._after = journal.when_durable if durable else journal.when_written
        self._journal = journal if durable else None

    def say(self, step: str, message: str, *, exit: int | None = None) -> None:
        """Add a message about a step (`step` empty: the run), from any thread; the state is unchanged."""
        self._queue.put(Record(time=self._clock.wall(), step=step, message=message, exit=exit))

    def call(self, action: Callable[[], Iterable[str]]) -> None:
        """Call a function on the recorder's thread, after all records so far, and record the messages about the run
        that it returns; its errors are kept in `problems`.
        """
        time = self._clock.wall()

        def told() -> list[Record]:
            return self._maker.notes(time, action())

        self._queue.put(told)

    def default_message(self, step: str, message: str) -> None:
        """Set the message with which a step ends if no other message follows."""
        self._queue.put(KnownMessage(step, message))

    def run_state(self, state: str, *, error: WeftError | None = None, ended: bool = False) -> None:
        """Record a state of the run that the loop cannot see: `pending` before it, a failure outside of it."""
        message, code = ("", "") if error is None else (str(error), error.code)
        self._queue.put(Record(time=self._clock.wall(), state=state, message=message, ended=ended, error=code))

    def finish(self, job: JobRun) -> None:
        """Ensure that the end of an ended job is recorded.

        The loop calls its listeners just after it releases waiting threads, and never after a crash of the master; the
        known states of the steps are then recorded here.
        """
        lost = self._journal is not None and self._journal.error is not None
        if job.crash is None and not lost and self._saw_end.wait(_LAST_TICK_S):
            return
        ending = job.outcome or Complete("failed", message="its end was not seen", kind=Failure.INTERNAL.value)
        stages = [] if lost else [moved_vertex(job.inspector, row) for row in job.inspector.vertices]
        self._queue.put(RecordedTick(self._clock.wall(), (), (ending,), stages, JobState.FAILED))

    def counted(self, message: str, task: str) -> str:
        """Return the message of the failed `task` for the whole run: with the names of all failed steps if they are
        several (read after a `flush`).
        """
        return self._maker.counted(message, task)

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until all records so far are written; False if that took longer than `timeout` seconds."""
        done = threading.Event()
        self._queue.put(done)
        self._awaited.set()
        return done.wait(timeout)

    @property
    def complete(self) -> bool:
        """Whether the folder has all records so far (read after a `flush`)."""
        return not self._unwritten

    def close(self) -> None:
        """Write the remaining records, and end the thread; a second call does nothing."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._awaited.set()
            self._thread.join()

    # ---------------------------------------------------------------------------------------------------- the thread

    def _write(self) -> None:
        active = True
        while active:
            items = [self._queue.get()]
            if isinstance(items[0], RecordedTick):
                # Starting the next step must not wait for the interpreter lock.
                self._awaited.wait(_GATHER_S)
            self._awaited.clear()
            with suppress(queue.Empty):
                while True:
                    items.append(self._queue.get_nowait())
            records: list[Record] = []
            waiting: list[threading.Event] = []
            for item in items:
                if item is None:
                    active = False
                elif isinstance(item, threading.Event):
                    waiting.append(item)
                else:
                    try:
                        records += item() if callable(item) else self._maker.take(item)
                    except Exception as error:  # noqa: BLE001
                        self.problems.append(error)
            self._keep(records)
            for event in waiting:
                event.set()
        if self._fd >= 0:
            os.close(self._fd)

    def _keep(self, records: list[Record]) -> None:
        """Write records, update the index, and call `on_record`."""
        self._unwritten += records
        if self._unwritten and self._append(self._unwritten):
            self._mirror()
            for record in self._unwritten:
                if self._catalog is not None and not record.step and record.state:
                    self._index(self._catalog, record)
            if self._journal is not None:
                records = self._unwritten
            self._unwritten = []
        elif self._journal is not None:  # records that are not written are not reported
            records = []
        for record in records:
            if self._on_record is not None:
                try:
                    self._on_record(record)
                except Exception as error:  # noqa: BLE001
                    self.problems.append(error)
                    self._on_record = None

    def _append(self, records: Sequence[Record]) -> bool:
        """Write records, all or none of them."""
        before = os.fstat(self._fd).st_size
        last = any(record.ended and not record.step for record in records)
        try:
            data = memoryview(b"".join(record.to_line(self.folder.path) for record in records))
            while data:
                data = data[os.write(self._fd, data) :]
            if last:
                os.fdatasync(self._fd)
        except OSError as error:
            if not self._full:
                self.problems.append(os_error(f"{self.folder.events} cannot be written", error))
            self._full = True
            with suppress(OSError):
                os.ftruncate(self._fd, before)
            return False
        self._full = False
        return True

    def _index(self, catalog: Catalog, record: Record) -> None:
        changes: dict[str, Any] = {"state": record.state}
        if record.state == "running" and not self._began:
            self._began = True
            changes["started_at"] = record.time
        if self._resumed:
            self._resumed = False
            self._before.add(record)
            changes["paused_s"] = self._before.paused_s
        if record.ended:
            changes |= {"ended_at": record.time, "error_code": record.error, "error_message": record.message}
        try:
            catalog.update_run(self.folder.run_id, **changes)
        except WeftError as error:
            self.problems.append(error)
            if obstacle(error) == BUSY:  # a start corrects the index
                self._catalog = None
