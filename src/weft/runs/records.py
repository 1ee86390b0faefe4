"""What happened to a run: written while it runs, read whenever somebody asks.

`RunRecorder` listens to the loop. On the hot path it only notes which vertices have another state than before; a thread
of its own turns that into lines of `events.jsonl` (one `Record` each, many in one write), into the few updates of the
index, and into calls of `on_record`. `read_run` makes a `RunRecord` of a run's folder, be the run live or ended; all
runs of a state folder are listed by `weft.runs.listing`.

Users see the words of the front end: they are a projection of the engine's states (`weft.graph.projection`), never
states of their own. Of a vertex that only helps a step, nothing is told but that it failed.
"""

from __future__ import annotations

import json
import os
import queue
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from weft.engine.commands import Complete, Launch
from weft.engine.events import Done, Failed, Hit, UserEvent, ends_tasks
from weft.engine.machines.job import JobState
from weft.engine.machines.vertex import ENDED, VertexState
from weft.graph.logical import Role
from weft.model.errors import NotFoundError, RunCancelledError, WeftError
from weft.model.failures import Failure, error_of
from weft.store.state import EVENTS, GRAPH_DIGEST, LogFile, last_sign, list_logs, os_error, owned, read_description

if TYPE_CHECKING:
    from pathlib import Path

    from weft.durability.journal import FileJournal
    from weft.engine.commands import Command
    from weft.engine.events import Event
    from weft.graph.logical import Vertex
    from weft.graph.projection import Projection
    from weft.runtime.clock import WallClock
    from weft.runtime.loop import JobRun
    from weft.store.catalog import Catalog
    from weft.store.state import RunFolder

INTERRUPTED: Final = "interrupted"
"""What a run (or step) is called whose owner died before it ended."""
SUSPENDED: Final = "suspended"
"""The state of a run whose owner has left it in order, so that it can be resumed."""
ACTIVE: Final = frozenset({"initiating", "pending", "running", "terminating"})
"""Words for runs that have not ended."""
RUN_STATES: Final = ("pending", "running", "terminating", "succeeded", "failed", "terminated", INTERRUPTED, SUSPENDED)
STEP_STATES: Final = (
    "pending",
    "running",
    "terminating",
    "succeeded",
    "failed",
    "terminated",
    "cancelled",
    "skipped",
    INTERRUPTED,
)
_MESSAGE_LIMIT: Final = 64 << 10
_LINE_LIMIT: Final = 1 << 20
_LAST_TICK_S: Final = 5.0
_GATHER_S: Final = 0.01
"""What the loop tells within this time is written at once, or sooner where somebody waits for it."""


# ------------------------------------------------------------------------------------------------------------- records


class Record(Struct, frozen=True, kw_only=True):
    """One thing that happened: the run (`step` empty), a step, or task `index` of one is in `state` since `time`.

    `time` is in seconds since 1970-01-01 UTC, `attempt` counts from 0, `exit` is the exit code of a command where it is
    known, `ended` says that the state is final, `error` is the code of an error, `items` how many tasks a step has
    that has not exactly one. `outputs` are the paths of outputs that nobody could name before the run, by name.
    """

    time: float
    step: str = ""
    state: str = ""
    message: str = ""
    index: int | None = None
    attempt: int = 0
    exit: int | None = None
    ended: bool = False
    error: str = ""
    items: int | None = None
    outputs: dict[str, str] = field(default_factory=dict)

    def to_line(self) -> bytes:
        """Return the record as one line of JSON, without what is as usual."""
        told = {"time": self.time}
        for name, usual in _USUAL:
            if (value := getattr(self, name)) != usual:
                told[name] = value
        return _ENCODE(told).encode() + b"\n"


_USUAL: Final = [(name, getattr(Record(time=0.0), name)) for name in Record.__struct_fields__[1:]]
_ENCODE: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "time": (float, int),
    "step": (str,),
    "state": (str,),
    "message": (str,),
    "index": (int,),
    "attempt": (int,),
    "exit": (int,),
    "ended": (bool,),
    "error": (str,),
    "items": (int,),
    "outputs": (dict,),
}


def parse_record(line: bytes) -> Record | None:
    """Read one line; None if it is not a whole record (a torn one, or of something newer)."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or "time" not in found:
        return None
    known = {name: value for name, value in found.items() if name in _KINDS}
    if any(not isinstance(value, _KINDS[name]) for name, value in known.items()):
        return None
    return Record(**known)


def read_records(folder: Path) -> Iterator[Record]:
    """Yield what happened to the run in `folder`, oldest first; a last line without its end is left out."""
    try:
        with (folder / EVENTS).open("rb") as file:
            while line := file.readline(_LINE_LIMIT):
                if line.endswith(b"\n") and (record := parse_record(line)) is not None:
                    yield record
    except FileNotFoundError:
        return


class Going(Struct):
    """When a run began, from when to when nobody ran it, and when it was last heard of: seconds since 1970.

    `since` is when its present owner took it on.
    """

    started: float | None = None
    pauses: list[tuple[float, float]] = field(default_factory=list)
    since: float = 0.0
    last: float = 0.0

    @classmethod
    def of(cls, records: Iterable[Record]) -> Going:
        """Return what records tell, oldest first."""
        found = cls()
        for record in records:
            found.add(record)
        return found

    def add(self, record: Record) -> None:
        """Take the next record. A run is pending again only where another owner goes on with it."""
        if not record.step and self.started is None and record.state == "running":
            self.started = record.time
        elif not record.step and self.started is not None and record.state == "pending":
            self.pauses.append((self.last, record.time))
            self.since = record.time
        self.last = record.time


# ------------------------------------------------------------------------------------------------------------ recorder


class _Known(NamedTuple):
    """Something about a step that the records tell already."""

    step: str
    message: str


class _Tick:
    """What the recorder takes from one tick of the loop."""

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
    """Writes down what happens to one run; add it to `JobRun.listeners` before the job is submitted.

    `over` names steps of which nothing is to be told any more. With `items` each task of a step that has several is
    told of. `on_record` is called on the recorder's thread, with every record, in order. `outputs` returns where those
    of a task lie, by name, as far as the description of the run does not tell.
    Nothing here raises into the run: what goes wrong is kept in `problems`, and what could not be written is tried
    again with what comes next. The index is never told what the folder does not know.
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
        self._known = 0  # stages that were told of
        self._job: JobState | None = None
        self._saw_end = threading.Event()
        self._awaited = threading.Event()
        self._journal: FileJournal | None = None
        self._held = self._let_go = 0  # ticks for the journal: while some are held, so is what comes after them
        self._fd = open_events(folder.events)
        self._before = Going.of(read_records(folder.path))
        self._began = self._before.started is not None
        self._goes_on_again = self._began
        # Owned by the thread from here on.
        self._unwritten: list[Record] = []
        self._full = False
        self._run = ""
        self._run_ended = False
        self._state: dict[str, str] = {}
        self._started: set[str] = set()
        self._attempt: dict[str, int] = {}
        self._said: dict[str, str] = {}
        self._exit: dict[str, int] = {}
        self._subjects: dict[str, tuple[str, bool]] = {}
        self._wide: dict[str, Vertex] = {}
        self._leases: dict[int, Launch] = {}
        self._skipped: set[tuple[str, int]] = set()
        self._thread = threading.Thread(target=self._write, name=f"recorder of {folder.run_id}", daemon=True)
        self._thread.start()

    # ----------------------------------------------------------------------------------------------- hot path

    def __call__(self, job: JobRun, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """Note what a tick has changed; the loop calls this under its lock."""
        inspector = job.inspector
        rows, status = inspector.vertices, inspector.status
        told = {row.index: row for row in inspector.moved if row.index < self._known}
        stages = [(told[at].vertex, told[at].status, told[at].n) for at in sorted(told)]
        stages += [(row.vertex, row.status, row.n) for row in rows[self._known :]]
        moved = status is not self._job
        self._known, self._job = len(rows), status
        ended = any(type(command) is Complete for command in commands)
        if stages or moved or ended or any(type(event) in _TOLD for event in events) or any(map(_launch, commands)):
            tick = _Tick(self._clock.wall(), events, commands, stages, status)
            journal = self._journal

            def pass_on() -> None:
                if journal is None or journal.error is None:
                    self._queue.put(tick)
                    if ended:
                        self._saw_end.set()

            def pass_on_later() -> None:
                tick.time = self._clock.wall()  # it counts from when it is durable
                pass_on()
                self._let_go += 1

            if journal is None or not (ended or self._held != self._let_go or ends_tasks(events)):
                pass_on()
            else:
                self._held += 1
                journal.when_durable(pass_on_later)

    # -------------------------------------------------------------------------------------------------- said by hand

    def wait_for(self, journal: FileJournal) -> None:
        """Tell of no end that the journal has not made durable, and of nothing that could not be written down.

        Call it before the job is submitted.
        """
        self._journal = journal

    def say(self, step: str, message: str, *, exit: int | None = None) -> None:
        """Note something about a step (`step` empty: the run), from any thread; its state stays as it is."""
        self._queue.put(Record(time=self._clock.wall(), step=step, message=message, exit=exit))

    def keep_saying(self, step: str, message: str) -> None:
        """Have a step end with what the records tell of it already, if nothing else is said."""
        self._queue.put(_Known(step, message))

    def run_state(self, state: str, *, error: WeftError | None = None, ended: bool = False) -> None:
        """Say what state the run is in where the loop cannot know: `pending` before it, a failure outside of it."""
        message, code = ("", "") if error is None else (str(error), error.code)
        self._queue.put(Record(time=self._clock.wall(), state=state, message=message, ended=ended, error=code))

    def finish(self, job: JobRun) -> None:
        """See that the end of a job is told, once it has ended.

        The loop tells its listeners just after it lets go of those who wait, and not at all when the master broke
        down; then what is known of the steps is told here.
        """
        lost = self._journal is not None and self._journal.error is not None
        if job.crash is None and not lost and self._saw_end.wait(_LAST_TICK_S):
            return
        ending = job.outcome or Complete("failed", message="its end was not seen", kind=Failure.INTERNAL.value)
        stages = [] if lost else [(row.vertex, row.status, row.n) for row in job.inspector.vertices]
        self._queue.put(_Tick(self._clock.wall(), (), (ending,), stages, JobState.FAILED))

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until all that was said so far is written; False if that took longer than `timeout` seconds."""
        done = threading.Event()
        self._queue.put(done)
        self._awaited.set()
        return done.wait(timeout)

    @property
    def complete(self) -> bool:
        """Whether the folder knows all that was said and written so far (ask after a `flush`)."""
        return not self._unwritten

    def close(self) -> None:
        """Write what is left, and end the thread; a second time does nothing."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._awaited.set()
            self._thread.join()

    # ---------------------------------------------------------------------------------------------------- the thread

    def _write(self) -> None:
        going = True
        while going:
            items = [self._queue.get()]
            if isinstance(items[0], _Tick):
                # Whoever starts the next step has the interpreter to itself meanwhile.
                self._awaited.wait(_GATHER_S)
            self._awaited.clear()
            with suppress(queue.Empty):
                while True:
                    items.append(self._queue.get_nowait())
            records: list[Record] = []
            waiting: list[threading.Event] = []
            for item in items:
                if item is None:
                    going = False
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
        """Write records, tell the index, and tell whoever watches."""
        self._unwritten += records
        if self._unwritten and self._append(self._unwritten):
            for record in self._unwritten:
                if self._catalog is not None and not record.step and record.state:
                    self._index(self._catalog, record)
            if self._journal is not None:
                records = self._unwritten
            self._unwritten = []
        elif self._journal is not None:  # nothing is told that is not written
            records = []
        for record in records:
            if self._on_record is not None:
                try:
                    self._on_record(record)
                except Exception as error:  # noqa: BLE001
                    self.problems.append(error)
                    self._on_record = None

    def _append(self, records: Sequence[Record]) -> bool:
        """Write records as they are, all or none of them."""
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
        if self._goes_on_again:
            self._goes_on_again = False
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
            self._said[item.step] = item.message
            return []
        return self._by_hand(item)

    def _by_hand(self, record: Record) -> list[Record]:
        if record.step:
            self._said[record.step] = _cut(record.message)
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
        if outcome is None and not (self._run and tick.job is JobState.ENDING):  # it is still running, or terminating
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
        """Learn whose a vertex is, and whether it has a task for each item of something."""
        if vertex.id not in self._subjects:
            self._subjects[vertex.id] = vertex.step, vertex.role is Role.OWN
        if n > 1 and self._per_item:
            self._wide[vertex.id] = vertex

    def _step_is(
        self, time: float, vertex: Vertex, name: str, status: VertexState, n: int, *, own: bool
    ) -> Record | None:
        """Return the record of a new state of a vertex, if it is to be told."""
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
            message=self._said.get(name, "") if ended and ran else "",
            attempt=self._attempt.get(name, 0),
            exit=self._exit.get(name) if ended else None,
            ended=ended,
            items=n if vertex.id in self._wide else None,
            outputs=self._outputs(vertex, 0) if status in _MADE and vertex.id not in self._wide else {},
        )

    def _events(self, tick: _Tick) -> tuple[dict[str, Failed], list[Record]]:
        """Note what steps said; return failures of steps, and the records of tasks of those that have many."""
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
                    self._said[self._name(event.vertex)] = _cut(f"warning: {event.payload}")
            elif isinstance(event, Done):
                done(event.lease, event.hi)
                self._leases.pop(event.lease, None)
            elif isinstance(event, Failed):
                done(event.lease, event.hi)
                launch = self._leases.pop(event.lease, None)
                stopped = event.kind is Failure.STOPPED
                message = "" if stopped else _cut(event.message)
                if message:
                    self._said[self._name(event.vertex)] = message
                if launch is not None:
                    item(event.vertex, event.index, "terminated" if stopped else "failed", launch.attempt, message)
                elif not stopped:
                    failures[self._name(event.vertex)] = event
            elif isinstance(event, Hit) and not event.before:
                if event.vertex in self._wide:
                    item(event.vertex, event.index, "succeeded", 0, "taken from the cache")
                else:
                    self._said[self._name(event.vertex)] = "taken from the cache"
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
_TOLD: Final = frozenset({Done, Failed, Hit, UserEvent})


def _launch(command: Command) -> bool:
    return type(command) is Launch


def _cut(message: str) -> str:
    return message if len(message) <= _MESSAGE_LIMIT else message[:_MESSAGE_LIMIT] + " ..."


def open_events(path: Path) -> int:
    """Open the file for appending; a torn last line, left by an owner that was killed, is cut off."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o600)
        size = os.fstat(fd).st_size
        at = size
        while at > 0:
            start = max(0, at - 65_536)
            newline = os.pread(fd, at - start, start).rfind(b"\n")
            at = start if newline < 0 else start + newline + 1
            if newline >= 0:
                break
        if at != size:
            os.ftruncate(fd, at)
    except OSError as error:
        raise os_error(f"{path} cannot be opened", error) from None
    return fd


# ------------------------------------------------------------------------------------------------------------- reading


class ItemRecord(Struct, kw_only=True):
    """One item of a step that loops, as it stands; see `StepRecord`."""

    name: str = ""
    state: str = "pending"
    started: float | None = None
    ended: float | None = None
    attempts: int = 0
    exit: int | None = None
    message: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)


class StepRecord(Struct, kw_only=True):
    """One step of a run as it stands. Times in seconds since 1970; `attempts` counts those that began.

    Where several owners of the run have run it, `started` is when it began under the last of them. `paused_s` is for
    how long nobody ran the run between its start and its end, which only a dag can tell of.

    `items` are those of a step that loops which have begun, by number; `width` is how many there are in all. `outputs`
    are those that the description of the run could not name.
    """

    name: str
    width: int | None = None
    items: dict[int, ItemRecord] = field(default_factory=dict)
    state: str = "pending"
    started: float | None = None
    ended: float | None = None
    attempts: int = 0
    exit: int | None = None
    message: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)
    paused_s: float = 0.0
    logs: list[LogFile] = field(default_factory=list)


class RunRecord(Struct, kw_only=True):
    """One run as it stands, read from its folder. Times in seconds since 1970; in its `pauses` nobody ran it.

    `of_session`: a session of a program began it, and its folder has the graph itself.
    """

    id: str
    folder: Path
    name: str = ""
    state: str = "pending"
    number: int = 0
    frontend: str = ""
    of_session: bool = False
    file: str = ""
    user: str = ""
    host: str = ""
    pid: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    pauses: Sequence[tuple[float, float]] = ()
    error_code: str = ""
    message: str = ""
    steps: list[StepRecord] = field(default_factory=list)

    @property
    def paused_s(self) -> float:
        """For how long nobody ran it since it began, in seconds."""
        return sum(end - begin for begin, end in self.pauses)

    def step(self, name: str) -> StepRecord:
        """Return one step; NotFoundError: the run has none of that name."""
        for step in self.steps:
            if step.name == name:
                return step
        raise NotFoundError(
            f"{self.id} has no step {name!r}",
            hint=f"It has: {', '.join(step.name for step in self.steps[:20]) or 'none yet'}",
        )

    def task(self, name: str) -> tuple[StepRecord, int | None]:
        """Return a step and which item of its loop is meant: `step-2` or `step[2]`; None: all of it.

        NotFoundError: the run has no such step, or that no such item.
        """
        if any(step.name == name for step in self.steps):
            return self.step(name), None
        match = _ITEM.fullmatch(name)
        step = next((step for step in self.steps if match is not None and step.name == match["step"]), None)
        if match is None or step is None:
            return self.step(name), None
        number = int(match["dash"] or match["bracket"])
        width = step.width or 1
        if number >= width and (step.width or not self.of_session):  # a session tells widths at the end only
            last = f" to {item_name(step.name, width - 1)}" if width > 1 else ""
            hint = f"It has {width}: {step.name}{last}"
            raise NotFoundError(f"{step.name} of {self.id} has no item {number}", hint=hint)
        return step, number


_ITEM: Final = re.compile(r"(?P<step>.+?)(?:-(?P<dash>[0-9]{1,9})|\[(?P<bracket>[0-9]{1,9})\])")


def item_name(step: str, number: int) -> str:
    """Return what an item of a step is called: the first as the step, each later one with its number."""
    return f"{step}-{number}" if number else step


def read_run(folder: Path, *, alive: bool | None = None) -> RunRecord:
    """Return a run as its folder tells it, be it live, ended or interrupted.

    `alive` says whether an owner of the run lives that goes on with it (default: ask). One that was interrupted ended
    when there was a last sign of life of it: it may have gone on for longer.
    NotFoundError: no run there. ConflictError: its description is damaged, or of a newer version.
    """
    try:
        said = read_description(folder)
    except (NotFoundError, FileNotFoundError):
        if not folder.is_dir():
            raise NotFoundError(f"there is no run in {folder}", hint="List the runs: weft ls") from None
        said = {}  # it died before it was described, or is about to be
    except NotADirectoryError:
        raise NotFoundError(f"{folder} is not the folder of a run") from None
    except PermissionError as error:
        raise os_error(f"the run in {folder} cannot be read", error) from None
    run = RunRecord(
        id=folder.name,
        folder=folder,
        number=_of(said, "number", int, 0),
        created=float(_of(said, "created_at", (int, float), 0.0)),
        pid=_of(said, "pid", int, 0),
        of_session=bool(_of(said, GRAPH_DIGEST, str, "")),
        parameters=_of(said, "parameters", dict, {}),
        outputs=_of(said, "outputs", dict, {}),
        **{name: _of(said, name, str, "") for name in ("name", "frontend", "file", "user", "host")},
    )
    if alive is None:
        alive = owned(folder)  # asked first: what ends in between has then told so
    steps = {name: StepRecord(name=name) for name in _of(said, "steps", list, []) if isinstance(name, str)}
    over = False
    going = Going()
    for record in read_records(folder):
        going.add(record)
        if record.step:
            _apply(steps.setdefault(record.step, StepRecord(name=record.step)), record, going.since)
            continue
        run.state = record.state or run.state
        if record.ended:
            over, run.ended, run.error_code, run.message = True, record.time, record.error, record.message
        else:  # of a later owner, who goes on with it
            over, run.ended, run.error_code, run.message = False, None, "", ""
    run.started, run.pauses = going.started, going.pauses
    if not over and not alive:
        run.ended = going.last if run.state == INTERRUPTED else max(going.last, last_sign(folder))
        run.state = INTERRUPTED
    if not alive and run.state in (INTERRUPTED, SUSPENDED):
        for step in steps.values():
            parts: list[StepRecord | ItemRecord] = [step, *step.items.values()]
            for part in parts:
                if part.started is not None and part.ended is None:
                    part.state, part.ended = INTERRUPTED, run.ended
    for log in list_logs(folder):
        if log.step in steps:
            steps[log.step].logs.append(log)
    run.steps = list(steps.values())
    run.outputs = {**run.outputs, **dict(_outputs(run.steps))}
    return run


def tell_interruption(folder: RunFolder) -> None:
    """Write down, as the new owner of a run, when there was a last sign of life of one that was killed."""
    found = read_run(folder.path, alive=False)
    if found.state == INTERRUPTED and found.ended is not None:
        append_records(folder, [Record(time=found.ended, state=INTERRUPTED)])


def append_records(folder: RunFolder, records: Iterable[Record]) -> None:
    """Write records into the folder of a run that this process owns, all of them or none."""
    fd = open_events(folder.events)
    before = os.fstat(fd).st_size
    try:
        data = memoryview(b"".join(record.to_line() for record in records))
        while data:
            data = data[os.write(fd, data) :]
        os.fdatasync(fd)
    except OSError as error:
        with suppress(OSError):
            os.ftruncate(fd, before)
        raise os_error(f"{folder.events} cannot be written", error) from None
    finally:
        os.close(fd)


def _outputs(steps: Iterable[StepRecord]) -> Iterator[tuple[str, str]]:
    """Yield the outputs that records tell of, by `step.artifact`."""
    for step in steps:
        parts: list[tuple[int, StepRecord | ItemRecord]] = [(0, step), *sorted(step.items.items())]
        for number, part in parts:
            for name, path in part.outputs.items():
                yield f"{item_name(step.name, number)}.{name}", path


def _apply(step: StepRecord, record: Record, since: float) -> None:
    part: StepRecord | ItemRecord = step
    if record.index is not None:
        part = step.items.get(record.index) or step.items.setdefault(record.index, ItemRecord())
    elif record.items is not None:
        step.width = record.items if record.items != 1 else None
        if step.width is None:  # an edit has made another step of it
            step.items.clear()
    part.state = record.state or part.state
    if record.message or record.ended:
        part.message = record.message
    part.exit = record.exit if record.exit is not None else part.exit
    part.outputs = record.outputs if record.ended else part.outputs
    if record.state == "running":
        part.started = record.time if part.started is None or part.started < since else part.started
        part.ended = None
        part.attempts = max(part.attempts, record.attempt + 1)
    elif record.state in ("pending", "skipped"):  # an owner that goes on with the run begins it again, or leaves it out
        part.started = part.ended = part.exit = None
    if record.ended:
        part.ended = record.time


def _of(said: Mapping[str, Any], key: str, kind: type | tuple[type, ...], default: Any) -> Any:
    value = said.get(key, default)
    return value if isinstance(value, kind) else default
