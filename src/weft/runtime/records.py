"""What happened to a run: written while it runs, read whenever somebody asks.

`RunRecorder` listens to the loop. On the hot path it only notes which vertices have another state than before; a thread
of its own turns that into lines of `events.jsonl` (one `Record` each, many in one write), into the few updates of the
index, and into calls of `on_record`. `read_run` makes a `RunRecord` of a run's folder, be the run live or ended.

Users see words of PaddleFlow: they are a projection of the engine's states (`Projection`), never states of their own.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.engine.commands import Complete, Launch
from weft.engine.events import Failed, Failure, Hit, UserEvent
from weft.engine.machines.job import JobState
from weft.engine.machines.vertex import ENDED, VertexState
from weft.model.errors import NotFoundError, WeftError
from weft.runtime.state import DESCRIPTION, EVENTS, LogFile, StateRoot, list_logs, os_error, owned, read_description

if TYPE_CHECKING:
    from weft.engine.commands import Command
    from weft.engine.events import Event
    from weft.runtime.loop import JobRun
    from weft.runtime.state import RunFolder
    from weft.store.catalog import Catalog, RunRow

INTERRUPTED: Final = "interrupted"
"""What a run (or step) is called whose owner died before it ended."""
ACTIVE: Final = frozenset({"initiating", "pending", "running", "terminating"})
"""Words for runs that have not ended."""
RUN_STATES: Final = ("pending", "running", "terminating", "succeeded", "failed", "terminated", INTERRUPTED)
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


class WallClock(Protocol):
    """Seconds since 1970-01-01 UTC."""

    def wall(self) -> float:
        """Return the time in seconds."""
        ...


# ---------------------------------------------------------------------------------------------------------- projection


class Projection(Protocol):
    """The words that users see for the engine's states."""

    def run(self, state: JobState) -> str:
        """Return the word for the state of a job."""
        ...

    def step(self, state: VertexState, *, started: bool) -> str:
        """Return the word for the state of a vertex; `started` says whether a task of it was ever given to a worker."""
        ...


# ------------------------------------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One thing that happened: the run (`step` empty) or a step is in `state` since `time`.

    `time` is in seconds since 1970-01-01 UTC, `attempt` counts from 0, `exit` is the exit code of a command where it is
    known, `ended` says that the state is final, `error` is the code of an error.
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

    def to_line(self) -> bytes:
        """Return the record as one line of JSON, without what is as usual."""
        usual = _USUAL
        told = {name: value for name, value in asdict(self).items() if name == "time" or value != usual[name]}
        return json.dumps(told, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


_USUAL: Final = {field.name: field.default for field in fields(Record)}
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


# ------------------------------------------------------------------------------------------------------------ recorder


class _Tick:
    """What the recorder takes from one tick of the loop."""

    __slots__ = ("commands", "events", "job", "stages", "time")

    def __init__(
        self,
        time: float,
        events: Sequence[Event],
        commands: Sequence[Command],
        stages: Sequence[tuple[str, VertexState]] | None,
        job: JobState,
    ) -> None:
        self.time, self.events, self.commands, self.stages, self.job = time, events, commands, stages, job


class RunRecorder:
    """Writes down what happens to one run; add it to `JobRun.listeners` before the job is submitted.

    `steps` limits what is told to these vertices (default: all), of those in `without` nothing is told. `on_record` is
    called on the recorder's thread, with every record, in order. `warning` names the user event whose payload becomes
    the message of its step, if that succeeds. Nothing here raises into the run: what goes wrong is kept in `problems`,
    and what could not be written is tried again with what comes next. The index is never told what the folder does not
    know.
    """

    def __init__(
        self,
        folder: RunFolder,
        clock: WallClock,
        *,
        projection: Projection,
        catalog: Catalog | None = None,
        steps: Iterable[str] | None = None,
        without: Iterable[str] = (),
        on_record: Callable[[Record], None] | None = None,
        warning: str | None = None,
    ) -> None:
        self.folder = folder
        self.problems: list[Exception] = []
        self._clock = clock
        self._catalog = catalog
        self._words = projection
        self._only = None if steps is None else frozenset(steps)
        self._without = frozenset(without)
        self._on_record = on_record
        self._warning = warning
        self._queue: queue.SimpleQueue[_Tick | Record | threading.Event | None] = queue.SimpleQueue()
        self._last: list[VertexState] = []
        self._job: JobState | None = None
        self._saw_end = threading.Event()
        self._fd = _open_events(folder.events)
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
        self._thread = threading.Thread(target=self._write, name=f"recorder of {folder.run_id}", daemon=True)
        self._thread.start()

    # ----------------------------------------------------------------------------------------------- hot path

    def __call__(self, job: JobRun, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """Note what a tick has changed; the loop calls this under its lock."""
        core = job.master.core
        states = [stage.status for stage in core.order]
        changed = states != self._last
        moved = core.status is not self._job
        self._last, self._job = states, core.status
        ended = any(type(command) is Complete for command in commands)
        if changed or moved or ended or any(type(event) in _TOLD for event in events) or any(map(_again, commands)):
            stages = [(stage.id, stage.status) for stage in core.order] if changed else None
            self._queue.put(_Tick(self._clock.wall(), events, commands, stages, core.status))
        if ended:
            self._saw_end.set()

    # -------------------------------------------------------------------------------------------------- said by hand

    def say(self, step: str, message: str, *, exit: int | None = None) -> None:
        """Note something about a step (`step` empty: the run), from any thread; its state stays as it is."""
        self._queue.put(Record(time=self._clock.wall(), step=step, message=message, exit=exit))

    def run_state(self, state: str, *, error: WeftError | None = None, ended: bool = False) -> None:
        """Say what state the run is in where the loop cannot know: `pending` before it, a failure outside of it."""
        message, code = ("", "") if error is None else (str(error), error.code)
        self._queue.put(Record(time=self._clock.wall(), state=state, message=message, ended=ended, error=code))

    def finish(self, job: JobRun) -> None:
        """See that the end of a job is told, once it has ended.

        The loop tells its listeners just after it lets go of those who wait, and not at all when the master broke
        down; then what is known of the steps is told here.
        """
        if job.crash is None and self._saw_end.wait(_LAST_TICK_S):
            return
        ending = job.outcome or Complete("failed", message="its end was not seen", kind="internal")
        stages = [(stage.id, stage.status) for stage in job.master.core.order]
        self._queue.put(_Tick(self._clock.wall(), (), (ending,), stages, JobState.FAILED))

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until all that was said so far is written; False if that took longer than `timeout` seconds."""
        done = threading.Event()
        self._queue.put(done)
        return done.wait(timeout)

    @property
    def complete(self) -> bool:
        """Whether the folder knows all that was said and written so far (ask after a `flush`)."""
        return not self._unwritten

    def close(self) -> None:
        """Write what is left, and end the thread; a second time does nothing."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    # ---------------------------------------------------------------------------------------------------- the thread

    def _write(self) -> None:
        going = True
        while going:
            items = [self._queue.get()]
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
                        records += self._tick(item) if isinstance(item, _Tick) else self._by_hand(item)
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
            self._unwritten = []
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
        try:
            data = memoryview(b"".join(record.to_line() for record in records))
            while data:
                data = data[os.write(self._fd, data) :]
            if any(record.ended and not record.step for record in records):
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
        if record.state == "running":
            changes["started_at"] = record.time
        if record.ended:
            changes |= {"ended_at": record.time, "error_code": record.error, "error_message": record.message}
        try:
            catalog.update_run(self.folder.run_id, **changes)
        except WeftError as error:
            self.problems.append(error)

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
        if outcome is None:
            records += self._run_is(self._words.run(tick.job), tick.time, "", "", ended=False)
        failures = {}
        for event in tick.events:
            if type(event) is Failed and event.kind is not Failure.STOPPED:
                self._said[event.vertex] = _cut(event.message)
                failures[event.vertex] = event
            elif type(event) is Hit:
                self._said[event.vertex] = "taken from the cache"
            elif type(event) is UserEvent and event.name == self._warning:
                self._said[event.vertex] = _cut(f"warning: {event.payload}")
        launches = {}
        for command in tick.commands:
            if type(command) is Launch:
                launches[command.vertex] = command
                self._started.add(command.vertex)
                self._attempt[command.vertex] = max(self._attempt.get(command.vertex, 0), command.attempt)
        changed = set()
        for step, status in tick.stages or ():
            if not self._told_of(step):
                continue
            if status in (VertexState.RUNNING, VertexState.DRAINING):
                self._started.add(step)
            state = self._words.step(status, started=step in self._started)
            if state == self._state.get(step, self._words.step(VertexState.CONFIGURED, started=False)):
                continue
            changed.add(step)
            self._state[step] = state
            ended = status in ENDED
            records.append(
                Record(
                    time=tick.time,
                    step=step,
                    state=state,
                    message=self._said.get(step, "") if ended else "",
                    attempt=self._attempt.get(step, 0),
                    exit=self._exit.get(step) if ended else None,
                    ended=ended,
                )
            )
        for step, failure in failures.items():
            if self._told_of(step) and step not in changed:
                what = _cut(f"failed, and is tried again: {failure.message}")
                records.append(self._about(tick.time, step, self._state.get(step, "running"), what, failure.index))
        for step, launch in launches.items():
            if launch.attempt and step not in changed and self._told_of(step):
                records.append(self._about(tick.time, step, "running", "begins again", launch.lo))
        if outcome is not None:
            records += self._end(tick, outcome)
        return records

    def _about(self, time: float, step: str, state: str, message: str, index: int) -> Record:
        return Record(
            time=time, step=step, state=state, message=message, index=index or None, attempt=self._attempt.get(step, 0)
        )

    def _end(self, tick: _Tick, outcome: Complete) -> list[Record]:
        state = self._words.run(JobState(outcome.state))
        message = f"{outcome.task}: {outcome.message}" if outcome.task else outcome.message
        code = ""
        if outcome.state == "failed":
            code = {"user": "WEFT501", "internal": "WEFT900", "memory": "WEFT400"}.get(outcome.kind, "WEFT500")
        elif outcome.state == "cancelled":
            code = "WEFT502"
        return self._run_is(state, tick.time, _cut(message), code, ended=True)

    def _told_of(self, step: str) -> bool:
        return (self._only is None or step in self._only) and step not in self._without


_TOLD: Final = frozenset({Failed, Hit, UserEvent})


def _again(command: Command) -> bool:
    return type(command) is Launch and command.attempt > 0


def _cut(message: str) -> str:
    return message if len(message) <= _MESSAGE_LIMIT else message[:_MESSAGE_LIMIT] + " ..."


def _open_events(path: Path) -> int:
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


@dataclass(slots=True, kw_only=True)
class StepRecord:
    """One step of a run as it stands. Times in seconds since 1970; `attempts` counts those that began."""

    name: str
    state: str = "pending"
    started: float | None = None
    ended: float | None = None
    attempts: int = 0
    exit: int | None = None
    message: str = ""
    logs: list[LogFile] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """One run as it stands, read from its folder. Times in seconds since 1970."""

    id: str
    folder: Path
    name: str = ""
    state: str = "pending"
    number: int = 0
    frontend: str = ""
    file: str = ""
    user: str = ""
    host: str = ""
    pid: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    error_code: str = ""
    message: str = ""
    steps: list[StepRecord] = field(default_factory=list)

    def step(self, name: str) -> StepRecord:
        """Return one step; NotFoundError: the run has none of that name."""
        for step in self.steps:
            if step.name == name:
                return step
        raise NotFoundError(
            f"{self.id} has no step {name!r}",
            hint=f"It has: {', '.join(step.name for step in self.steps[:20]) or 'none yet'}",
        )


def read_run(folder: Path) -> RunRecord:
    """Return a run as its folder tells it, be it live, ended or interrupted.

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
        parameters=_of(said, "parameters", dict, {}),
        outputs=_of(said, "outputs", dict, {}),
        **{name: _of(said, name, str, "") for name in ("name", "frontend", "file", "user", "host")},
    )
    alive = owned(folder)  # asked first: what ends in between has then told so
    steps = {name: StepRecord(name=name) for name in _of(said, "steps", list, []) if isinstance(name, str)}
    over = False
    for record in read_records(folder):
        if record.step:
            _apply(steps.setdefault(record.step, StepRecord(name=record.step)), record)
            continue
        run.state = record.state or run.state
        if record.state == "running" and run.started is None:
            run.started = record.time
        if record.ended:
            over, run.ended, run.error_code, run.message = True, record.time, record.error, record.message
        else:  # of a later owner, who goes on with it
            over, run.ended, run.error_code, run.message = False, None, "", ""
    if not over and not alive:
        run.state = INTERRUPTED
        for step in steps.values():
            if step.started is not None and step.ended is None:
                step.state = INTERRUPTED
    for log in list_logs(folder):
        if log.step in steps:
            steps[log.step].logs.append(log)
    run.steps = list(steps.values())
    return run


def _apply(step: StepRecord, record: Record) -> None:
    step.state = record.state or step.state
    step.message = record.message or step.message
    step.exit = record.exit if record.exit is not None else step.exit
    if record.state == "running":
        step.started = record.time if step.started is None else step.started
        step.ended = None
        step.attempts = max(step.attempts, record.attempt + 1)
    if record.ended:
        step.ended = record.time


def _of(said: Mapping[str, Any], key: str, kind: type | tuple[type, ...], default: Any) -> Any:
    value = said.get(key, default)
    return value if isinstance(value, kind) else default


# ------------------------------------------------------------------------------------------------------------ the index


def describe(folder: Path) -> RunRow | None:
    """Return what the index should say of the run in a folder; None if nothing can be read there."""
    from weft.store.catalog import RunRow

    try:
        run = read_run(folder)
    except (WeftError, OSError):
        return None
    digits = run.id.rpartition("-")[2]
    return RunRow(
        id=run.id,
        number=run.number or (int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0),
        name=run.name,
        frontend=run.frontend,
        file=run.file,
        folder=str(folder),
        state=run.state,
        created_at=run.created,
        started_at=run.started,
        ended_at=run.ended,
        user=run.user,
        host=run.host,
        pid=run.pid,
        parameters=run.parameters,
        error_code=run.error_code,
        error_message=run.message,
    )


def open_catalog(root: StateRoot) -> Catalog:
    """Return the index of a state folder, made again from the folders of the runs where it is missing."""
    catalog = root.catalog()
    if not catalog.exists() and root.runs.is_dir() and any(root.runs.iterdir()):
        catalog.rebuild(root.runs, describe)
    return catalog


def list_runs(
    root: StateRoot, *, limit: int | None = 20, state: str | None = None, name: str | None = None
) -> tuple[Sequence[RunRow], int]:
    """Return the newest runs of a state folder, newest first, and how many there are in all.

    The folders are the truth: what the index believes to be going on or interrupted is read there, and so are runs that
    the index could not be told of.
    """
    catalog = open_catalog(root)
    unsure = [as_it_is(row) for row in catalog.list(limit=None, state=ACTIVE | {INTERRUPTED}, name=name)]
    listed = len(unsure)
    unsure += [row for row in _unlisted(root, catalog) if name is None or row.name == name]
    right = [row for row in unsure if state is None or row.state == state]
    total = len(right)
    if state not in ACTIVE | {INTERRUPTED}:
        seen = {row.id for row in unsure}
        most = None if limit is None else limit + len(seen)
        right += [row for row in catalog.list(limit=most, state=state, name=name) if row.id not in seen]
        total += catalog.count(state=state, name=name) - (listed if state is None else 0)
    return sorted(right, key=lambda row: (-row.number, row.id))[:limit], total


def find_run(root: StateRoot, name: str) -> Path:
    """Return the folder of the run that a name means: an id, its unique beginning, a number, @last or @failed.

    NotFoundError: there is none.
    """
    direct = root.runs / name
    if name.isascii() and name.replace("-", "").isalnum() and direct.is_dir():
        return direct  # the usual case needs no database
    rows: Sequence[RunRow] = ()
    if name in ("@last", "@failed"):  # as the folders of the runs tell it
        rows, _ = list_runs(root, limit=1, state="failed" if name == "@failed" else None)
    try:
        row = rows[0] if rows else open_catalog(root).find(name)
    except NotFoundError as error:
        hint = "List the runs: weft ls. Those of another folder: -C FOLDER"
        raise NotFoundError(error.message.removesuffix("/weft.db"), hint=hint) from None
    return Path(row.folder or root.folder(row.id))


def as_it_is(row: RunRow) -> RunRow:
    """Return a row that says it goes on, or was interrupted, as its folder tells it."""
    if not row.folder or row.state not in ACTIVE | {INTERRUPTED}:
        return row
    found = describe(Path(row.folder))
    if found is None:
        return row if owned(Path(row.folder)) else replace(row, state=INTERRUPTED)
    return replace(row, state=found.state, **{name: getattr(found, name) for name in _TOLD_BY_RECORDS})


_TOLD_BY_RECORDS: Final = ("started_at", "ended_at", "error_code", "error_message")


def _unlisted(root: StateRoot, catalog: Catalog) -> list[RunRow]:
    """Return the runs whose folders the index does not know."""
    try:
        names = {entry.name for entry in os.scandir(root.runs) if (Path(entry.path) / DESCRIPTION).exists()}
    except OSError:
        return []
    if len(names) == catalog.count():
        return []
    names -= {row.id for row in catalog.list(limit=None)}
    return [row for name in sorted(names) if (row := describe(root.runs / name)) is not None]


def mark_interrupted(root: StateRoot) -> list[str]:
    """Write into the index which runs were interrupted; return their ids. A start calls this.

    Runs whose end the index could not be told of are mended too.
    """
    catalog = open_catalog(root)
    rows = [row for row in map(as_it_is, catalog.list(limit=None, state=ACTIVE)) if row.state not in ACTIVE]
    for row in rows:
        with suppress(NotFoundError):
            catalog.update_run(row.id, state=row.state, **{name: getattr(row, name) for name in _TOLD_BY_RECORDS})
    return [row.id for row in rows if row.state == INTERRUPTED]
