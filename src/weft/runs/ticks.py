"""The records of one run, made from the ticks of its loop: what changed becomes lines for people and for the index.

Nothing here reads a clock or writes a file. A vertex that only helps a step makes a record only when it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.engine.commands import Complete, Launch
from weft.engine.events import Done, Failed, Hit, TaskCancelRequested, UserEvent
from weft.engine.machines.job import JobState
from weft.engine.machines.vertex import ENDED, VertexState
from weft.graph.logical import RestartPolicy, Role
from weft.graph.task_wire import is_utf8
from weft.model.errors import RunCancelledError
from weft.model.failures import Failure, error_of
from weft.model.ids import loop_item, parse_task
from weft.runs.records import BY_USER, RUNS_ALWAYS, Record

if TYPE_CHECKING:
    from weft.engine.commands import Command
    from weft.engine.events import Event
    from weft.engine.inspector import Inspector, VertexRow
    from weft.engine.unrun import Unrun
    from weft.graph.logical import Vertex
    from weft.graph.projection import Projection

_MESSAGE_LIMIT: Final = 64 << 10
_MOST_NAMES: Final = 10
_FROM_CACHE: Final = "taken from the cache"


class MovedVertex(Struct, frozen=True):
    """A vertex with a new state; `why` is the reason if it ended without a success of its tasks."""

    vertex: Vertex
    status: VertexState
    n: int
    why: Unrun | None


class KnownMessage(Struct, frozen=True):
    """The message of a step that is already in the records."""

    step: str
    message: str


class RecordedTick:
    """The data of one tick of the loop."""

    __slots__ = ("commands", "events", "job", "stages", "time")

    def __init__(
        self,
        time: float,
        events: Sequence[Event],
        commands: Sequence[Command],
        stages: Sequence[MovedVertex],
        job: JobState,
    ) -> None:
        self.time, self.events, self.commands, self.stages, self.job = time, events, commands, stages, job


class RecordMaker:
    """Makes the records of one run.

    `over` names steps without further records. With `items`, each task of a step with several tasks has records.
    `outputs` returns the paths of the outputs of a task by name, except those in the description of the run.
    `attempts` has, by step and item, the number of attempts that earlier owners of the run have begun.
    """

    def __init__(
        self,
        projection: Projection,
        *,
        over: Iterable[str],
        items: bool,
        outputs: Callable[[Vertex, int], dict[str, str]],
        attempts: Mapping[tuple[str, int | None], int],
    ) -> None:
        self.run_ended = False
        self._words = projection
        self._over = set(over)
        self._per_item = items
        self._outputs = outputs
        self._attempts = dict(attempts)
        self._run = ""
        self._state: dict[str, str] = {}
        self._started: set[str] = set()
        self._ended: set[str] = set()
        self._attempt: dict[str, int] = {}
        self._ended_well: set[tuple[str, int]] = set()
        self._messages: dict[str, str] = {}
        self._warned: dict[tuple[str, int], str] = {}  # the warnings of tasks of steps with several tasks
        self._warning: dict[str, str] = {}  # the last warning of each step, its message unless another one follows
        self._exit: dict[str, int] = {}
        self._subjects: dict[str, tuple[str, bool]] = {}
        self._wide: dict[str, Vertex] = {}
        self._parts: dict[str, set[str]] = {}  # the vertices that have not ended of steps with several
        self._expanded: dict[str, MovedVertex] = {}  # by step: its own vertex, which has added what the step waits for
        self._leases: dict[int, Launch] = {}
        self._skipped: dict[tuple[str, int], str] = {}  # the reasons of tasks that skipped themselves
        self._decided: dict[str, str] = {}  # the reasons of the deciders of choices
        self._follows: dict[str, str] = {}  # by vertex: the vertex whose failure it follows
        self._hits: set[str] = set()
        self._failures: dict[str, str] = {}  # the last failure of each step
        self._failed: list[str] = []
        self._broken: set[tuple[str, int]] = set()  # the tasks of which an attempt failed by itself
        self._cancels: list[TaskCancelRequested] = []

    def take(self, item: RecordedTick | KnownMessage | Record) -> list[Record]:
        """Return the records that a tick, a message of a step or a record by hand makes."""
        if isinstance(item, RecordedTick):
            return self._tick(item)
        if isinstance(item, KnownMessage):
            self._messages[item.step] = item.message
            return []
        return self._by_hand(item)

    def notes(self, time: float, messages: Iterable[str]) -> list[Record]:
        """Return the records of messages about the run; none after its end."""
        return [] if self.run_ended else [Record(time=time, message=shortened(message)) for message in messages]

    def _by_hand(self, record: Record) -> list[Record]:
        if record.step:
            self._messages[record.step] = shortened(record.message)
            if record.exit is not None:
                self._exit[record.step] = record.exit
            state = self._state.get(record.step, "pending")
            attempt = self._attempt.get(record.step, 0)
            return [replace(record, state=state, message=shortened(record.message), attempt=attempt)]
        if not record.state:
            return [replace(record, state=self._run or "pending", message=shortened(record.message))]
        return self._run_is(record.state, record.time, shortened(record.message), record.error, record.ended)

    def _run_is(self, state: str, time: float, message: str, error: str, ended: bool) -> list[Record]:
        if self.run_ended or (state == self._run and not ended):
            return []
        self._run, self.run_ended = state, ended
        return [Record(time=time, state=state, message=message, error=error, ended=ended)]

    def _tick(self, tick: RecordedTick) -> list[Record]:
        records: list[Record] = []
        outcome = next((command for command in tick.commands if type(command) is Complete), None)
        if outcome is None and not (
            self._run and tick.job is JobState.ENDING
        ):  # the run is still running, or terminating
            records += self._run_is(self._words.run(tick.job), tick.time, "", "", ended=False)
        for moved in tick.stages:
            self._meet(moved.vertex, moved.n)
            if moved.why is not None and moved.why.failed:
                self._follows[moved.vertex.id] = moved.why.failed
        failures, items = self._events(tick)
        records += items
        launches, begun = self._launches(tick)
        changed = set()
        for moved in tick.stages:
            name, own = self._subjects[moved.vertex.id]
            record = self._step_is(tick.time, moved, name, own=own)
            if record is not None:
                changed.add(name)
                records.append(record)
        records += begun
        for name, failure in failures.items():
            if name not in changed and name not in self._over and name not in self._ended:
                what = shortened(f"failed, and is tried again: {failure.message}")
                about = self._about(tick.time, name, self._state.get(name, "running"), what)
                records.append(replace(about, exit=failure.status))
        for name, launch in launches.items():
            if launch.attempt and name not in changed and name not in self._over and launch.vertex not in self._wide:
                records.append(self._about(tick.time, name, "running", "begins again"))
        if outcome is not None:
            records += self._end(tick.time, outcome)
        return records

    def _launches(self, tick: RecordedTick) -> tuple[dict[str, Launch], list[Record]]:
        """Store what was started; return the launches by step, and the records of tasks of steps with several tasks."""
        launches: dict[str, Launch] = {}
        begun: list[Record] = []
        for command in tick.commands:
            if type(command) is not Launch:
                continue
            name, own = self._subjects.get(command.vertex, ("", False))
            if not own:
                continue
            launches[name] = command
            self._started.add(name)
            if command.vertex not in self._wide:
                self._attempt[name] = self._begin(name, None, command.attempt)
                continue
            self._leases[command.lease] = command
            for i in range(command.lo, command.hi):
                attempt = self._begin(name, i, command.attempt)
                message = RUNS_ALWAYS if (command.vertex, i) in self._ended_well else ""
                self._ended_well.discard((command.vertex, i))
                begun.append(
                    Record(time=tick.time, step=name, index=i, state="running", attempt=attempt, message=message)
                )
        return launches, begun

    def _begin(self, name: str, index: int | None, attempt: int) -> int:
        """Return the number of an attempt that begins, after those under earlier owners of the run."""
        before = self._attempts.get((name, index))
        if before is None:
            return attempt
        attempt = max(attempt, before)
        self._attempts[name, index] = attempt + 1
        return attempt

    def _meet(self, vertex: Vertex, n: int) -> None:
        """Store the step of a vertex, and whether it has one task for each item."""
        if vertex.id not in self._subjects:
            self._subjects[vertex.id] = vertex.step, vertex.role is Role.OWN
            if vertex.expands or vertex.role is not Role.OWN:
                self._parts.setdefault(vertex.step, set()).add(vertex.id)
        if (n > 1 or vertex.controlled) and self._per_item:
            self._wide[vertex.id] = vertex

    def _step_is(self, time: float, moved: MovedVertex, name: str, *, own: bool) -> Record | None:
        """Return the record of a new state of a vertex, if it needs one."""
        status = moved.status
        if not name or name in self._over:
            return None
        parts = self._parts.get(name)
        if parts is not None and status in ENDED:
            parts.discard(moved.vertex.id)
        if own and parts and moved.vertex.expands and status in _MADE:
            self._expanded[name], status = moved, VertexState.RUNNING
        elif not own and status in ENDED and not parts and name in self._expanded:
            first, own = self._expanded.pop(name), True
            moved = first if status in _MADE else replace(moved, vertex=first.vertex, n=first.n)
            status = moved.status
        if not own and status is not VertexState.FAILED:
            return None
        vertex, n = moved.vertex, moved.n
        if vertex.controlled and self._per_item:  # its tasks have records of their own
            return None
        if status in (VertexState.RUNNING, VertexState.DRAINING):
            self._started.add(name)
        reason = self._reason(moved)
        if status is VertexState.DONE and all((vertex.id, index) in self._skipped for index in range(n)):
            status = VertexState.SKIPPED
            reasons = {self._skipped[vertex.id, index] for index in range(n)} or {self._words.empty}
            reason = reasons.pop() if len(reasons) == 1 else f"all {n} items are skipped"
        helper_ran = not own and not (moved.why is not None and moved.why.failed)
        state = self._words.step(status, started=helper_ran or name in self._started)
        if state == self._state.get(name, self._words.step(VertexState.CONFIGURED, started=False)):
            return None
        self._state[name] = state
        ended = status in ENDED
        (self._ended.add if ended else self._ended.discard)(name)
        if status is VertexState.FAILED and (name in self._failures or not reason):
            reason = self._failures.get(name, "")
            if self._ended_by_user(name):
                state = CANCELLED
            else:
                self._failed.append(name)
        if ended and not own:
            self._over.add(name)
        message = (reason or self._messages.get(name, "")) if ended else ""
        return Record(
            time=time,
            step=name,
            state=state,
            message=message,
            warned=bool(message) and message == self._warning.get(name),
            attempt=self._attempt.get(name, 0),
            exit=self._exit_of(vertex, status) if ended else None,
            ended=ended,
            items=n if vertex.id in self._wide else None,
            outputs=self._outputs(vertex, 0) if status in _MADE and vertex.id not in self._wide else {},
        )

    def _reason(self, moved: MovedVertex) -> str:
        """Return the reason of a vertex that ended without a success of its tasks; "" if there is none, or its own."""
        why = moved.why
        if why is None or not (why.decider or why.failed or why.cancel):
            return ""
        if why.cancel:
            return "the run was cancelled"
        if why.failed:
            root = why.failed
            while root in self._follows:
                root = self._follows[root]
            self._follows[moved.vertex.id] = root
            name = self._name(root)
            return f"{name} was cancelled" if self._ended_by_user(name) else f"{name} failed"
        reason, decider = self._decided.get(why.decider, ""), self._name(why.decider)
        other = decider not in ("", moved.vertex.step)
        return f"{decider}: {reason}" if other and reason else reason

    def _exit_of(self, vertex: Vertex, status: VertexState) -> int | None:
        """Return the exit code of the last command of a step, None if it ran none, or one for each item."""
        if vertex.id in self._wide:
            return None
        return self._exit.get(vertex.step) if status not in _MADE else _succeeded(vertex, vertex.id in self._hits)

    def _events(self, tick: RecordedTick) -> tuple[dict[str, Failed], list[Record]]:
        """Store messages of steps; return failures of steps, and the records of tasks of steps with several tasks."""
        failures: dict[str, Failed] = {}
        items: list[Record] = []
        for event in tick.events:
            if isinstance(event, UserEvent):
                self._said(event)
                if event.name == self._words.news:
                    items += self._news(tick.time, event)
            elif isinstance(event, TaskCancelRequested):
                self._cancel_asked(event)
            elif isinstance(event, Done):
                items += self._done(tick.time, event.lease, event.hi)
                self._leases.pop(event.lease, None)
            elif isinstance(event, Failed):
                items += self._done(tick.time, event.lease, event.hi)
                failure = self._failure(tick.time, event, items)
                if failure is not None:
                    failures[self._name(event.vertex)] = failure
            elif isinstance(event, Hit) and not event.before:
                if event.vertex in self._wide:
                    items += self._task(tick.time, event.vertex, event.index, "succeeded", 0, _FROM_CACHE)
                else:
                    self._hits.add(event.vertex)
                    self._messages[self._name(event.vertex)] = _FROM_CACHE
        return failures, items

    def _said(self, event: UserEvent) -> None:
        if event.name == self._words.not_run:
            reason = shortened(str(event.payload or ""))
            self._skipped[event.vertex, event.index] = self._decided[event.vertex] = reason
        elif event.name == self._words.warning:
            said = str(event.payload)
            if event.vertex in self._wide:
                self._warned[event.vertex, event.index] = shortened(f"warning: {said}")
                said = f"{self._item(event.vertex, event.index)}: {said}"
            name = self._name(event.vertex)
            self._messages[name] = self._warning[name] = shortened(f"warning: {said}")

    def _news(self, time: float, event: UserEvent) -> list[Record]:
        """Return the record of what a running task tells of itself."""
        name, own = self._subjects.get(event.vertex, ("", False))
        if not own or name in self._over:
            return []
        record = self._about(time, name, "running", shortened(str(event.payload or "")))
        if event.vertex not in self._wide:
            return [record]
        leases = (lease for lease in self._leases.values() if lease.vertex == event.vertex)
        attempt = next((lease.attempt for lease in leases if lease.lo <= event.index < lease.hi), 0)
        attempt = self._attempts.get((name, event.index), attempt + 1) - 1
        return [replace(record, index=event.index, attempt=attempt)]

    def _cancel_asked(self, event: TaskCancelRequested) -> None:
        """Store why tasks are cancelled by their user; it is told only if they fail, and not if they ended before.

        An earlier attempt of a task that has not ended does not count any more.
        """
        self._cancels.append(event)
        name = self._name(event.vertex)
        what = f"{self._item(event.vertex, event.lo)} " if event.vertex in self._wide else ""
        self._failures[name] = shortened(f"{what}{BY_USER}{event.reason}")
        if name not in self._ended and event.hi - event.lo == 1:  # of several, some may have failed for good
            self._broken.discard((event.vertex, event.lo))

    def _cancelled(self, vertex: str, index: int) -> str:
        """Return the message of a task that its user has cancelled; "" for others."""
        asked = (cancel for cancel in self._cancels if cancel.vertex == vertex and cancel.lo <= index < cancel.hi)
        return next((shortened(f"{BY_USER}{cancel.reason}") for cancel in asked), "")

    def _ended_by_user(self, name: str) -> bool:
        """Return whether a failed step failed by nothing but a cancel of its user."""
        broken = any(self._name(vertex) == name for vertex, _ in self._broken)
        return not broken and any(self._name(cancel.vertex) == name for cancel in self._cancels)

    def _failure(self, time: float, event: Failed, items: list[Record]) -> Failed | None:
        """Store the failure of a task and add its record to `items`; return it if the step has one task only."""
        launch = self._leases.pop(event.lease, None)
        stopped = event.kind is Failure.STOPPED
        name = self._name(event.vertex)
        item = self._item(event.vertex, event.index)
        message = "" if stopped else shortened(_without_name(event.message, item))
        if stopped:
            message = self._cancelled(event.vertex, event.index)
        elif message:
            wide = event.vertex in self._wide
            self._failures[name] = shortened(event.message.removeprefix("step ")) if wide else message
            self._broken.add((event.vertex, event.index))
        if event.status is not None:
            self._exit[name] = event.status
        if launch is None:
            return None if stopped else replace(event, message=message)
        state = "failed" if not stopped else CANCELLED if message else "terminated"
        items += self._task(time, event.vertex, event.index, state, launch.attempt, message, event.status)
        return None

    def _done(self, time: float, lease: int, hi: int) -> list[Record]:
        """Return the records of the tasks of a lease before `hi`, if each task has records."""
        launch = self._leases.get(lease)
        records: list[Record] = []
        if launch is not None:
            vertex, code = launch.vertex, _succeeded(self._wide[launch.vertex])
            for index in range(launch.lo, hi):
                reason = self._skipped.get((vertex, index))
                if reason is not None:
                    records += self._task(time, vertex, index, "skipped", launch.attempt, reason)
                else:
                    warned = self._warned.pop((vertex, index), "")
                    records += self._task(
                        time, vertex, index, "succeeded", launch.attempt, warned, code, warned=bool(warned)
                    )
                    if self._wide[vertex].restart is RestartPolicy.ALWAYS:
                        self._ended_well.add((vertex, index))
        return records

    def _task(
        self,
        time: float,
        vertex: str,
        index: int,
        state: str,
        attempt: int,
        message: str = "",
        exit: int | None = None,
        *,
        warned: bool = False,
    ) -> list[Record]:
        """Return the record of a task that has ended; none where its step has no records of its own."""
        name, own = self._subjects.get(vertex, ("", False))
        if not own or name in self._over:
            return []
        attempt = self._attempts.get((name, index), attempt + 1) - 1
        outputs = self._outputs(self._wide[vertex], index) if state == "succeeded" else {}
        return [
            Record(
                time=time,
                step=name,
                index=index,
                state=state,
                attempt=attempt,
                message=message,
                warned=warned,
                exit=exit,
                ended=True,
                outputs=outputs,
            )
        ]

    def _item(self, vertex: str, index: int) -> str:
        """Return the name of a task: that of its step, or of the item of its loop."""
        name = self._name(vertex)
        return loop_item(name, index) if vertex in self._wide else name

    def _name(self, vertex: str) -> str:
        return self._subjects.get(vertex, ("", False))[0]

    def _about(self, time: float, step: str, state: str, message: str) -> Record:
        return Record(time=time, step=step, state=state, message=message, attempt=self._attempt.get(step, 0))

    def _end(self, time: float, outcome: Complete) -> list[Record]:
        state = self._words.run(JobState(outcome.state))
        cancelled = outcome.state == "failed" and outcome.kind == Failure.CANCELLED.value
        message = self.counted(f"{BY_USER}{outcome.message}" if cancelled else outcome.message, outcome.task)
        code = ""
        if outcome.state == "failed":
            code = error_of(outcome.kind).code
        elif outcome.state == "cancelled":
            code = RunCancelledError.code
        return self._run_is(state, time, shortened(message), code, ended=True)

    def counted(self, message: str, task: str) -> str:
        """Return the message of the failed `task` for the whole run: with the names of all failed steps if they are
        several.
        """
        if task:
            vertex, index, _ = parse_task(task)
            name = self._item(vertex, index or 0) if self._per_item else task
            if message.startswith(BY_USER):
                message = f"{name} {message}"
            elif not message.startswith((f"step {name} ", f"{name} ")):
                message = f"{name}: {message}"
        count = len(self._failed)
        if count < 2:
            return message
        more = f" and {count - _MOST_NAMES} more" if count > _MOST_NAMES else ""
        first = self._name(parse_task(task)[0]) if task else ""
        names = sorted(self._failed, key=lambda name: name != first)
        return f"{count} steps failed: {', '.join(names[:_MOST_NAMES])}{more}; the first: {message}"


def _without_name(message: str, name: str) -> str:
    """Return the message of a step without the step's name in front."""
    return message.removeprefix(f"step {name} ")


def _succeeded(vertex: Vertex, hit: bool = False) -> int | None:
    """Return the exit code of a task that has succeeded, None if it ran no command."""
    return 0 if ("command" in vertex.program.params or vertex.controlled) and not hit else None


CANCELLED: Final = "cancelled"
_MADE: Final = frozenset({VertexState.DONE, VertexState.DONE_EARLY})
_RECORDED: Final = frozenset({Done, Failed, Hit, TaskCancelRequested, UserEvent})
_WITH_REASON: Final = frozenset({VertexState.SKIPPED, VertexState.FAILED, VertexState.CANCELLED})


def moved_vertex(inspector: Inspector, row: VertexRow) -> MovedVertex:
    """Return the state of a vertex as a tick carries it."""
    why = inspector.unrun(row.id) if row.status in _WITH_REASON else None
    return MovedVertex(row.vertex, row.status, row.n, why)


def is_recorded(events: Sequence[Event], commands: Sequence[Command]) -> bool:
    """Whether events or commands of a tick may make records, apart from moved vertices."""
    return any(type(event) in _RECORDED for event in events) or any(type(command) is Launch for command in commands)


def shortened(message: str) -> str:
    """Return a message as it is recorded: text of a limited length."""
    if not is_utf8(message):  # it names a file
        message = message.encode(errors="backslashreplace").decode()
    return message if len(message) <= _MESSAGE_LIMIT else message[:_MESSAGE_LIMIT] + " ..."
