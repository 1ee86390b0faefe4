"""Controllers of jobs: policies that start and stop the tasks of controlled vertices, and conclude the job.

All tasks of a controlled vertex are held at first. A task that the controller lets start goes the way of any task; its
end has no consequence for others. The phase of the controller comes before requests and offers, so that a decision
starts or withdraws tasks in the tick of the change that caused it.
"""

from __future__ import annotations

from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from weft.engine import patching
from weft.engine.agenda import Phase
from weft.engine.commands import Free
from weft.engine.consulting import answer_of
from weft.engine.core import Cause, Hooks
from weft.engine.decisions import Conclude, Emit, StartTasks, StopTasks, WakeAt
from weft.engine.endings import on_started
from weft.engine.events import ClockSet, Requested, Started, UserEvent, WorkerLost
from weft.engine.extensions.registry import Extension
from weft.engine.extensions.whole import seen
from weft.engine.job import move_job
from weft.engine.machines.job import JobState
from weft.engine.machines.vertex import ENDED
from weft.engine.notes import NoteKind, data_of
from weft.engine.policy import (
    FAILED,
    HELD,
    RUNS,
    STARTING,
    STOPPING,
    SUCCEEDED,
    WAITING,
    ControlledBubble,
    ControlledTask,
    ControllerView,
)
from weft.engine.readiness import check_gates, recount, shut_gates, unqueue
from weft.engine.requests import withdraw_surplus
from weft.engine.rows import (
    CANCELLED,
    CANCELLING,
    FATAL,
    FINISHED,
    FREED,
    LEASED,
    READY,
    STATES,
    UNSCHEDULED,
    write,
)
from weft.engine.settle import stop_everything, stop_for_good
from weft.engine.waiting import waits
from weft.graph.logical import VertexKind
from weft.graph.task import STARTED
from weft.model.errors import GraphError, InternalError, InvalidTransition, WeftError
from weft.model.failures import FAILURES, Failure
from weft.model.ids import task_name
from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.engine.core import ControlRow, Core, LeaseRow
    from weft.engine.events import Failed
    from weft.engine.physical import ControlColumns, Stage

MOST_ASKS: Final = 1000
"""The most calls of a controller in one tick: one that answers its own decisions without end fails the job."""
OUTCOMES: Final = {
    "succeeded": JobState.SUCCEEDED,
    "failed": JobState.FAILED,
    "cancelled": JobState.CANCELLED,
}
"""The verdicts by the word of `Conclude`."""
_WORDS: Final = [RUNS] * STATES
for _state, _meaning in {
    UNSCHEDULED: WAITING,
    READY: WAITING,
    LEASED: STARTING,
    CANCELLING: STOPPING,
    FINISHED: SUCCEEDED,
    FREED: SUCCEEDED,
    FATAL: FAILED,
    CANCELLED: HELD,
}.items():
    _WORDS[_state] = _meaning
_ENDED: Final = frozenset({FINISHED, FREED, FATAL, CANCELLED})
_OTHER: Final = late_pattern(rb"[^\0]")
_WAITS: Final = frozenset({UNSCHEDULED, READY})


# ---------------------------------------------------------------------------------------------------------- the view


class _Tasks:
    """The `ControlledVertex` of a stage."""

    def __init__(self, core: Core, stage: Stage, columns: ControlColumns) -> None:
        self._core = core
        self._stage = stage
        self._columns = columns
        self.id = stage.id

    @cached_property
    def states(self) -> Sequence[str]:
        """See `ControlledVertex.states`."""
        return [
            HELD if held and state in _WAITS else _WORDS[state]
            for state, held in zip(self._stage.state, self._columns.held, strict=True)
        ]

    def count(self, *states: str) -> int:
        """See `ControlledVertex.count`."""
        return sum(map(self.states.count, states))

    def why(self, index: int) -> str:
        """See `ControlledVertex.why`."""
        if _word(self._stage, self._columns, index) != WAITING:
            return ""
        return "; ".join(wait.text for wait in waits(self._core, task_name(self.id, index)))

    def __len__(self) -> int:
        return len(self._columns.held)

    def __getitem__(self, index: int) -> ControlledTask:
        columns = self._columns
        started, ended = columns.started[index], columns.ended[index]
        return ControlledTask(
            self.id,
            index,
            _word(self._stage, columns, index),
            columns.starts[index],
            columns.restarts[index],
            columns.codes[index],
            columns.failures[index],
            columns.messages[index],
            None if started < 0 else started,
            None if ended < 0 else ended,
        )

    def __iter__(self) -> Iterator[ControlledTask]:
        return map(self.__getitem__, range(len(self)))


def _word(stage: Stage, columns: ControlColumns, index: int) -> str:
    state = stage.state[index]
    return HELD if columns.held[index] and state in _WAITS else _WORDS[state]


def _controlled(core: Core) -> Iterator[tuple[Stage, ControlColumns]]:
    for stage in core.stages:
        if stage.control is not None:
            yield stage, stage.control


def _differences(a: bytes | bytearray, b: bytes) -> list[int]:
    """Return the indices at which two rows of equal length differ."""
    differ = int.from_bytes(a) ^ int.from_bytes(b)
    return [match.start() for match in _OTHER.finditer(differ.to_bytes(len(a)))]


def _news(core: Core, row: ControlRow) -> list[tuple[Stage, list[int]]]:
    """Return the tasks with news, by stage, and count these as told."""
    found: list[tuple[Stage, list[int]]] = []
    for stage, columns in _controlled(core):
        state, seen = stage.state, columns.seen
        changed = _differences(state, seen) if state != seen else ()
        if not changed and not columns.news:
            continue
        for index in changed:
            if state[index] in _ENDED:
                _has_ended(columns, index, state[index], core.now + row.offset)
        found.append((stage, sorted(columns.news.union(changed))))
        columns.seen, columns.news = bytes(state), set()
    return found


def _whole_bubbles(core: Core) -> dict[str, tuple[Any, ...]]:
    """Return the fields of the `ControlledBubble` of each whole bubble of controlled vertices."""
    return {row.bubble.id: seen(core, row) for row in core.bubbles if row.controlled}


def _has_ended(columns: ControlColumns, index: int, state: int, now: float) -> None:
    """Record the end of a task; that of a failed attempt is recorded with the failure."""
    columns.ended[index] = now
    if state in (FINISHED, FREED):
        columns.codes[index], columns.failures[index], columns.messages[index] = 0, "", ""


# ------------------------------------------------------------------------------------------------------- the decisions


def ask(core: Core) -> None:
    """Call the controller as long as there is anything new for it."""
    row, asks = core.control, 0
    assert row is not None
    while core.status is JobState.RUNNING and core.stages:
        news, bubbles = _news(core, row), _whole_bubbles(core)
        if not (news or row.requests or row.due or bubbles != row.bubbles):
            return
        row.bubbles = bubbles
        asks += 1
        try:
            if asks > MOST_ASKS:
                raise GraphError("the controller of the job answers its own decisions without end", rule="controller")
            _ask_once(core, row, news)
        except (InternalError, InvalidTransition):
            raise
        except WeftError as error:
            _fail(core, error.message)


def _ask_once(core: Core, row: ControlRow, news: list[tuple[Stage, list[int]]]) -> None:
    tasks = {stage.id: _Tasks(core, stage, columns) for stage, columns in _controlled(core)}
    requests, row.requests = tuple(row.requests), []
    woken, row.due = row.due, False
    view = ControllerView(
        core.now + row.offset,
        tasks,
        tuple(tasks[stage.id][index] for stage, changed in news for index in changed),
        requests,
        {id: ControlledBubble(id, *known) for id, known in row.bubbles.items()},
        woken,
    )
    assert core.controller is not None
    decisions, row.memo = answer_of(core.controller, view, row.memo)
    for decision in decisions:
        if core.status is not JobState.RUNNING:
            return  # it has concluded the job
        _apply(core, decision)


def _note(core: Core, subject: str, decision: Any) -> None:
    """Record a decision that has an effect."""
    core.note(subject, NoteKind.CONTROLLER_DECIDED, data_of(decision, subject))


def _apply(core: Core, decision: Any) -> None:
    """Carry out a decision of the controller. GraphError: it is not allowed."""
    if isinstance(decision, Emit):
        _note(core, decision.vertex, decision)
        patching.apply(core, decision)
        return
    carry_out = _DECISIONS.get(type(decision))
    if carry_out is None:
        raise GraphError(
            f"the controller of the job answered {decision!r:.200}, which is no decision of a controller",
            rule="controller",
            hint=f"Its decisions are {', '.join(kind.__name__ for kind in (*_DECISIONS, Emit))}.",
        )
    carry_out(core, decision)


def _start(core: Core, decision: StartTasks) -> None:
    stage, columns = _subject(core, decision)
    held, state, anew = columns.held, stage.state, False
    for index in range(decision.lo, decision.hi):
        if state[index] in _ENDED:
            if state[index] == FINISHED and stage.vertex.kind is VertexKind.FINITE:
                core.out.append(Free(stage.id, index, index + 1))
            write(core, stage, index, index + 1, state[index], UNSCHEDULED)
        elif not held[index]:
            continue
        anew = True
        held[index] = 0
        columns.restarts[index] = 0
        if stage.attempts is not None:
            stage.attempts.pop(index, None)
    if anew:
        _note(core, stage.id, decision)
        _recount(core, stage)


def _stop(core: Core, decision: StopTasks) -> None:
    stage, columns = _subject(core, decision)
    held, state, changed = columns.held, stage.state, False
    lo, hi = decision.lo, decision.hi
    for index in range(lo, hi):
        if held[index] or state[index] in _ENDED:
            continue
        held[index], changed = 1, True
        if state[index] in _WAITS:
            if not columns.failures[index]:  # what a task has failed with says more than why it starts no more
                columns.messages[index] = decision.reason
            if stage.retry_at is not None:
                stage.retry_at.pop(index, None)
            if state[index] == READY:
                unqueue(stage, index, index + 1)
                write(core, stage, index, index + 1, READY, UNSCHEDULED)
    if not changed:
        return
    _note(core, stage.id, decision)
    for lease in list(core.leases.values()):
        if lease.stage is stage and lo <= lease.lo < hi and lease.live != CANCELLING:
            columns.failures[lease.lo], columns.messages[lease.lo] = Failure.STOPPED.value, decision.reason
            columns.codes[lease.lo] = None
            stop_for_good(core, lease, decision.reason)
    _recount(core, stage)
    withdraw_surplus(core, stage)
    core.later(Phase.REQUESTS, stage)  # its slots may be free


def _recount(core: Core, stage: Stage) -> None:
    """Count a stage anew after its tasks were held or let start, and see to the gates behind it."""
    recount(core, stage)
    if stage.early:
        shut_gates(core, stage)
        check_gates(core, stage)


def _subject(core: Core, decision: StartTasks | StopTasks) -> tuple[Stage, ControlColumns]:
    """Return the stage of a decision. GraphError: there is none, it is not controlled, or the tasks do not exist."""
    stage = core.by_id.get(decision.vertex)
    if stage is None or stage.control is None or stage.status in ENDED:
        what = (
            "there is no such vertex" if stage is None else "it has ended" if stage.control else "it is not controlled"
        )
        raise GraphError(f"the controller decides about {decision.vertex!r}: {what}", subject=decision.vertex)
    lo, hi = decision.lo, decision.hi
    if type(lo) is not int or type(hi) is not int or not 0 <= lo <= hi <= stage.n:
        raise GraphError(
            f"the controller decides about tasks {lo!r}:{hi!r} of {stage.id!r}, which has {stage.n}", subject=stage.id
        )
    return stage, stage.control


def _conclude(core: Core, decision: Conclude) -> None:
    verdict = OUTCOMES.get(decision.outcome)
    if verdict is None:
        raise GraphError(
            f"the controller concludes the job as {decision.outcome!r}", hint=f"One of {', '.join(OUTCOMES)}."
        )
    _note(core, "", decision)
    core.verdict = verdict
    if verdict is JobState.FAILED:
        kind = Failure.USER.value if decision.task else ""
        core.cause = Cause(decision.task, decision.reason, kind=kind)
    elif verdict is JobState.CANCELLED:
        assert core.control is not None
        core.control.cancelled = decision.reason
    move_job(core, "concluded")
    stop_everything(core, decision.reason)


def _wake_at(core: Core, decision: WakeAt) -> None:
    row = core.control
    assert row is not None
    if not isinstance(decision.at, (int, float)) or not isfinite(decision.at):
        raise GraphError(f"the controller is to be asked again at {decision.at!r}, which is no time")
    core.timers.pop(row.timer, None)
    row.timer = core.set_timer(max(core.now, decision.at - row.offset), "controller")


_DECISIONS: Final[dict[type, Callable[[Core, Any], None]]] = {
    StartTasks: _start,
    StopTasks: _stop,
    Conclude: _conclude,
    WakeAt: _wake_at,
}


def _fail(core: Core, message: str) -> None:
    """Fail the job: its controller has raised, or has decided what is not allowed."""
    core.note("", NoteKind.CONTROLLER_FAILED, message)
    if core.cause is None:
        core.cause = Cause("", message)
    move_job(core, "task_fatal")
    stop_everything(core, message)


# ------------------------------------------------------------------------------------------------ what it is told of


def _slot_lost(core: Core, event: WorkerLost) -> None:
    """Forget the kept slots of a lost worker."""
    if core.control is None:
        return
    for stage, columns in _controlled(core):
        for index in [index for index, slot in columns.slots.items() if slot[0] == event.worker]:
            core.requests.pop(columns.slots.pop(index)[2], None)
            core.later(Phase.REQUESTS, stage)


def _asked(core: Core, event: Requested) -> None:
    if core.control is not None and core.status in (JobState.NEW, JobState.RUNNING):
        core.note("", NoteKind.REQUESTED, event.name)
        core.control.requests.append(event)


def _clock_set(core: Core, event: ClockSet) -> None:
    if core.control is not None:
        core.control.offset = event.wall - event.now
        core.control.due = True


def _heard(core: Core, event: UserEvent) -> None:
    """Take the report of a task that its own work runs."""
    if core.control is not None and event.name == STARTED:
        on_started(core, Started(event.now, event.payload))
        core.later(Phase.CONTROLLER)


def _woken(core: Core) -> None:
    if core.control is not None:
        core.control.due = True


def _launched(core: Core, lease: LeaseRow) -> None:
    columns, row, index = lease.stage.control, core.control, lease.lo
    assert columns is not None
    assert row is not None
    columns.starts[index] += 1
    columns.started[index] = core.now + row.offset
    columns.news.add(index)
    core.later(Phase.CONTROLLER)


def _attempt_failed(core: Core, lease: LeaseRow, kind: Failure, event: Failed) -> None:
    """Record the end of an attempt, before its task is retried or fails."""
    columns, row = lease.stage.control, core.control
    assert columns is not None
    assert row is not None
    index = event.index
    code = FAILURES[kind].exit_code if event.status is None else event.status
    columns.codes[index] = code
    columns.failures[index], columns.messages[index] = ("", "") if code == 0 else (kind.value, event.message)
    columns.ended[index] = core.now + row.offset
    columns.news.add(index)


def _stopped(core: Core, lease: LeaseRow) -> None:
    """Let a task start again whose start was decided while it stopped."""
    stage, index = lease.stage, lease.lo
    columns = stage.control
    assert columns is not None
    if not columns.held[index] and stage.state[index] == CANCELLED and core.status is JobState.RUNNING:
        write(core, stage, index, index + 1, CANCELLED, UNSCHEDULED)
        columns.news.add(index)
    if core.status is JobState.RUNNING:
        _recount(core, stage)


EXTENSION: Final = Extension(
    "controllers",
    before={Requested: _asked, ClockSet: _clock_set, UserEvent: _heard, WorkerLost: _slot_lost},
    timers={"controller": _woken},
    phases={Phase.CONTROLLER: ask},
    hooks=Hooks(task_failed=(_attempt_failed,), task_launched=(_launched,), task_stopped=(_stopped,)),
)
