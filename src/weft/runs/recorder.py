"""The recorder of one run: a listener of the loop that writes the records of the run.

The hot path only collects the vertices whose state has changed. A thread of the recorder makes records of them, appends
them to `events.jsonl` (many in one write), updates the index and calls `on_record`. A vertex that only helps a step
makes a record only when it fails.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from weft.engine.commands import Complete, Launch
from weft.engine.events import Done, Failed, Hit, UserEvent, ends_tasks
from weft.engine.machines.job import JobState
from weft.engine.machines.vertex import ENDED, VertexState
from weft.graph.logical import Role
from weft.model.errors import RunCancelledError, WeftError
from weft.model.failures import Failure, error_of
from weft.runs.records import Record, RunTimes, open_events, read_records
from weft.store.state import os_error

if TYPE_CHECKING:
    from weft.durability.journal import FileJournal
    from weft.engine.commands import Command
    from weft.engine.events import Event
    from weft.graph.logical import Vertex
    from weft.graph.projection import Projection
    from weft.runtime.clock import WallClock
    from weft.runtime.loop import JobRun
    from weft.store.catalog import Catalog
    from weft.store.state import RunFolder

_MESSAGE_LIMIT: Final = 64 << 10
_LAST_TICK_S: Final = 5.0
_GATHER_S: Final = 0.01
"""Ticks within this time are written together, or earlier if a caller waits for the write."""


class _Known(NamedTuple):
    """The message of a step that is already in the records."""

    step: str
    message: str


class _Tick:
    """The data of one tick of the loop."""

    __slots__ = ("commands", "events", "job", "stages", "time")

    def __init__(
        self,
        time: float,
        events: Sequence[Event],
        commands: Sequence[Command],
        stages: Sequence[tuple[Vertex, VertexState, int]],
        job: JobState,
    ) -> None:
        self.time, self.events, self.commands, self.stages, self.job = time, events, commands, stages, job


class RunRecorder:
    """The writer of the records of one run; add it to `JobRun.listeners` before the job is submitted.

    `over` names steps without further records. With `items`, each task of a step with several tasks has records.
    `on_record` is called with every record, in order, on the recorder's thread. `outputs` returns the paths of the
    outputs of a task by name, except those in the description of the run. Errors never reach the run: they are kept in
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
    ) -> None:
        self.folder = folder
        self.problems: list[Exception] = []
        self._clock = clock
        self._catalog = catalog
        self._words = projection
        self._over = set(over)
        self._per_item = items
        self._on_record = on_record
        self._outputs = outputs
        self._queue: queue.SimpleQueue[_Tick | _Known | Record | threading.Event | None] = queue.SimpleQueue()
        self._known = 0  # number of recorded stages
        self._job: JobState | None = None
        self._saw_end = threading.Event()
        self._awaited = threading.Event()
        self._journal: FileJournal | None = None
        self._held = self._released = 0  # ticks that wait for the journal; later ticks queue behind them
        self._fd = open_events(folder.events)
        self._before = RunTimes.of(read_records(folder.path))
        self._began = self._before.started is not None
        self._resumed = self._began
        # Owned by the thread from here on.
        self._unwritten: list[Record] = []
        self._full = False
        self._run = ""
        self._run_ended = False
        self._state: dict[str, str] = {}
        self._started: set[str] = set()
        self._attempt: dict[str, int] = {}
        self._messages: dict[str, str] = {}
        self._exit: dict[str, int] = {}
        self._subjects: dict[str, tuple[str, bool]] = {}
        self._wide: dict[str, Vertex] = {}
        self._leases: dict[int, Launch] = {}
        self._skipped: set[tuple[str, int]] = set()
        self._thread = threading.Thread(target=self._write, name=f"recorder of {folder.run_id}", daemon=True)
        self._thread.start()

    # ----------------------------------------------------------------------------------------------- hot path

    def __call__(self, job: JobRun, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """Collect the changes of a tick; the loop calls this under its lock."""
        inspector = job.inspector
        rows, status = inspector.vertices, inspector.status
        known = {row.index: row for row in inspector.moved if row.index < self._known}
        stages = [(known[at].vertex, known[at].status, known[at].n) for at in sorted(known)]
        stages += [(row.vertex, row.status, row.n) for row in rows[self._known :]]
        moved = status is not self._job
        self._known, self._job = len(rows), status
        ended = any(type(command) is Complete for command in commands)
        if stages or moved or ended or any(type(event) in _RECORDED for event in events) or any(map(_launch, commands)):
            tick = _Tick(self._clock.wall(), events, commands, stages, status)
            journal = self._journal

            def pass_on() -> None:
                if journal is None or journal.error is None:
                    self._queue.put(tick)
                    if ended:
                        self._saw_end.set()

            def pass_on_later() -> None:
                tick.time = self._clock.wall()  # its time is that of its durability
                pass_on()
                self._released += 1

            if journal is None or not (ended or self._held != self._released or ends_tasks(events)):
                pass_on()
            else:
                self._held += 1
                journal.when_durable(pass_on_later)

    # -------------------------------------------------------------------------------------------------- said by hand

    def wait_for(self, journal: FileJournal) -> None:
        """Record no end that the journal has not made durable, and report nothing that could not be written.

        Call this before the job is submitted.
        """
        self._journal = journal

    def say(self, step: str, message: str, *, exit: int | None = None) -> None:
        """Add a message about a step (`step` empty: the run), from any thread; the state is unchanged."""
        self._queue.put(Record(time=self._clock.wall(), step=step, message=message, exit=exit))

    def default_message(self, step: str, message: str) -> None:
        """Set the message with which a step ends if no other message follows."""
        self._queue.put(_Known(step, message))

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
        stages = [] if lost else [(row.vertex, row.status, row.n) for row in job.inspector.vertices]
        self._queue.put(_Tick(self._clock.wall(), (), (ending,), stages, JobState.FAILED))

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
            if isinstance(items[0], _Tick):
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
                        records += self._take(item)
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
            data = memoryview(b"".join(record.to_line() for record in records))
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
            changes["paused_s"] = sum(end - begin for begin, end in self._before.pauses)
        if record.ended:
            changes |= {"ended_at": record.time, "error_code": record.error, "error_message": record.message}
        try:
            catalog.update_run(self.folder.run_id, **changes)
        except WeftError as error:
            self.problems.append(error)

    def _take(self, item: _Tick | _Known | Record) -> list[Record]:
        if isinstance(item, _Tick):
            return self._tick(item)
        if isinstance(item, _Known):
            self._messages[item.step] = item.message
            return []
        return self._by_hand(item)

    def _by_hand(self, record: Record) -> list[Record]:
        if record.step:
            self._messages[record.step] = _cut(record.message)
            if record.exit is not None:
                self._exit[record.step] = record.exit
            state = self._state.get(record.step, "pending")
            attempt = self._attempt.get(record.step, 0)
            return [replace(record, state=state, message=_cut(record.message), attempt=attempt)]
        if not record.state:
            return [replace(record, state=self._run or "pending", message=_cut(record.message))]
        return self._run_is(record.state, record.time, _cut(record.message), record.error, record.ended)

    def _run_is(self, state: str, time: float, message: str, error: str, ended: bool) -> list[Record]:
        if self._run_ended or (state == self._run and not ended):
            return []
        self._run, self._run_ended = state, ended
        return [Record(time=time, state=state, message=message, error=error, ended=ended)]

    def _tick(self, tick: _Tick) -> list[Record]:
        records: list[Record] = []
        outcome = next((command for command in tick.commands if type(command) is Complete), None)
        if outcome is None and not (
            self._run and tick.job is JobState.ENDING
        ):  # the run is still running, or terminating
            records += self._run_is(self._words.run(tick.job), tick.time, "", "", ended=False)
        for vertex, _, n in tick.stages:
            self._meet(vertex, n)
        failures, items = self._events(tick)
        records += items
        begun: list[Record] = []
        launches = {}
        for command in tick.commands:
            if type(command) is Launch:
                name, own = self._subjects.get(command.vertex, ("", False))
                if own:
                    launches[name] = command
                    self._started.add(name)
                    self._attempt[name] = max(self._attempt.get(name, 0), command.attempt)
                    if command.vertex in self._wide:
                        self._leases[command.lease] = command
                        begun += [
                            Record(time=tick.time, step=name, index=i, state="running", attempt=command.attempt)
                            for i in range(command.lo, command.hi)
                        ]
        changed = set()
        for vertex, status, n in tick.stages:
            name, own = self._subjects[vertex.id]
            record = self._step_is(tick.time, vertex, name, status, n, own=own)
            if record is not None:
                changed.add(name)
                records.append(record)
        records += begun
        for name, failure in failures.items():
            if name not in changed and name not in self._over:
                what = _cut(f"failed, and is tried again: {failure.message}")
                records.append(self._about(tick.time, name, self._state.get(name, "running"), what))
        for name, launch in launches.items():
            if launch.attempt and name not in changed and name not in self._over and launch.vertex not in self._wide:
                records.append(self._about(tick.time, name, "running", "begins again"))
        if outcome is not None:
            records += self._end(tick.time, outcome)
        return records

    def _meet(self, vertex: Vertex, n: int) -> None:
        """Store the step of a vertex, and whether it has one task for each item."""
        if vertex.id not in self._subjects:
            self._subjects[vertex.id] = vertex.step, vertex.role is Role.OWN
        if n > 1 and self._per_item:
            self._wide[vertex.id] = vertex

    def _step_is(
        self, time: float, vertex: Vertex, name: str, status: VertexState, n: int, *, own: bool
    ) -> Record | None:
        """Return the record of a new state of a vertex, if it needs one."""
        if not name or name in self._over or (not own and status is not VertexState.FAILED):
            return None
        if status in (VertexState.RUNNING, VertexState.DRAINING):
            self._started.add(name)
        if status is VertexState.DONE and (n == 0 or (n == 1 and (vertex.id, 0) in self._skipped)):
            status = VertexState.SKIPPED
        state = self._words.step(status, started=not own or name in self._started)
        if state == self._state.get(name, self._words.step(VertexState.CONFIGURED, started=False)):
            return None
        self._state[name] = state
        ended = status in ENDED
        ran = status is not VertexState.SKIPPED and (status is not VertexState.CANCELLED or name in self._started)
        if ended and not own:
            self._over.add(name)
        return Record(
            time=time,
            step=name,
            state=state,
            message=self._messages.get(name, "") if ended and ran else "",
            attempt=self._attempt.get(name, 0),
            exit=self._exit.get(name) if ended else None,
            ended=ended,
            items=n if vertex.id in self._wide else None,
            outputs=self._outputs(vertex, 0) if status in _MADE and vertex.id not in self._wide else {},
        )

    def _events(self, tick: _Tick) -> tuple[dict[str, Failed], list[Record]]:
        """Store messages of steps; return failures of steps, and the records of tasks of steps with several tasks."""
        failures: dict[str, Failed] = {}
        items: list[Record] = []

        def item(vertex: str, index: int, state: str, attempt: int = 0, message: str = "") -> None:
            name, own = self._subjects.get(vertex, ("", False))
            if own and name not in self._over:
                items.append(
                    Record(
                        time=tick.time,
                        step=name,
                        index=index,
                        state=state,
                        attempt=attempt,
                        message=message,
                        ended=True,
                        outputs=self._outputs(self._wide[vertex], index) if state == "succeeded" else {},
                    )
                )

        def done(lease: int, hi: int) -> None:
            launch = self._leases.get(lease)
            if launch is not None:
                for index in range(launch.lo, hi):
                    state = "skipped" if (launch.vertex, index) in self._skipped else "succeeded"
                    item(launch.vertex, index, state, launch.attempt)

        for event in tick.events:
            if isinstance(event, UserEvent):
                if event.name == self._words.not_run:
                    self._skipped.add((event.vertex, event.index))
                elif event.name == self._words.warning:
                    self._messages[self._name(event.vertex)] = _cut(f"warning: {event.payload}")
            elif isinstance(event, Done):
                done(event.lease, event.hi)
                self._leases.pop(event.lease, None)
            elif isinstance(event, Failed):
                done(event.lease, event.hi)
                launch = self._leases.pop(event.lease, None)
                stopped = event.kind is Failure.STOPPED
                message = "" if stopped else _cut(event.message)
                if message:
                    self._messages[self._name(event.vertex)] = message
                if launch is not None:
                    item(event.vertex, event.index, "terminated" if stopped else "failed", launch.attempt, message)
                elif not stopped:
                    failures[self._name(event.vertex)] = event
            elif isinstance(event, Hit) and not event.before:
                if event.vertex in self._wide:
                    item(event.vertex, event.index, "succeeded", 0, "taken from the cache")
                else:
                    self._messages[self._name(event.vertex)] = "taken from the cache"
        return failures, items

    def _name(self, vertex: str) -> str:
        return self._subjects.get(vertex, ("", False))[0]

    def _about(self, time: float, step: str, state: str, message: str) -> Record:
        return Record(time=time, step=step, state=state, message=message, attempt=self._attempt.get(step, 0))

    def _end(self, time: float, outcome: Complete) -> list[Record]:
        state = self._words.run(JobState(outcome.state))
        message = f"{outcome.task}: {outcome.message}" if outcome.task else outcome.message
        code = ""
        if outcome.state == "failed":
            code = error_of(outcome.kind).code
        elif outcome.state == "cancelled":
            code = RunCancelledError.code
        return self._run_is(state, time, _cut(message), code, ended=True)


_MADE: Final = frozenset({VertexState.DONE, VertexState.DONE_EARLY})
_RECORDED: Final = frozenset({Done, Failed, Hit, UserEvent})


def _launch(command: Command) -> bool:
    return type(command) is Launch


def _cut(message: str) -> str:
    return message if len(message) <= _MESSAGE_LIMIT else message[:_MESSAGE_LIMIT] + " ..."
