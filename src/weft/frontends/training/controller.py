"""Reconciles the jobs of a run with the tasks of the engine: tasks are pods, and `desired` decides.

`reconcile` is a pure function of the tasks of the controlled vertices and its memo, which has the status of each job.
It calls `desired` for each job, and answers with starts, stops and the end of the run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from weft.frontends.training.census import restarts_unlimited
from weft.frontends.training.compat import Compat
from weft.frontends.training.compiler import as_json, gang_name, is_service
from weft.frontends.training.conditions import has_finished, is_true, with_end
from weft.frontends.training.desired import desired, is_ours, leaves_running, lingers
from weft.frontends.training.job_news import PREEMPTED, preempted_text, restart_text
from weft.frontends.training.kinds import pod_name, replica_counts
from weft.frontends.training.observed import (
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
    Count,
    CreatePod,
    CreateService,
    DeletePod,
    DeleteService,
    JobEvent,
    JobStatus,
    Observed,
    Pod,
    Wake,
)
from weft.frontends.training.pod_table import PodTable
from weft.frontends.training.schema import TrainingJob
from weft.graph.control import AnswerKind, ControlAnswer
from weft.model.failures import BACKOFF_LIMIT
from weft.model.ids import loop_item, task_name
from weft.model.records import converter

SUSPEND: Final = "suspend"
RESUME: Final = "resume"
SCALE: Final = "scale"
PREEMPT: Final = "preempt"
READMIT: Final = "readmit"
TUNE: Final = "tune"
SUCCEEDED_BEFORE: Final = "succeeded_before"
SCALED_BEFORE: Final = "scaled_before"
"""The requests of users, of the machine and of control vertices. The payload of `SCALE` maps vertices to numbers of
replicas, that of `PREEMPT` has the run (`by`) that needs the room, that of `TUNE` the `job` that may start now, its
`replicas` by vertex, and the reason (`because`), and that of `SUCCEEDED_BEFORE` maps jobs that need not run again to
their status. That of `SCALED_BEFORE` has the numbers of an earlier process: those that the controller knows go before.
"""
TUNED_EVENT: Final = "Tuned"
"""The reason of the event with the choice of a control vertex."""
SCALE_REFUSED: Final = "ScaleRefused"
"""The reason of the event about a scale that was undone."""
BACK_OFF: Final = "BackOff"
"""The reason of events about replicas that start again and again, as the kubelet of a cluster writes it."""
UNSCHEDULED: Final = "FailedScheduling"
TIMED_OUT: Final = "ScheduleTimeout"
"""The reasons of events about pods without a place, as schedulers of clusters write the first, and of the failure of a
job whose gang has waited for longer than its `scheduleTimeoutSeconds`.
"""
_GROUP_CREATED: Final = "created_pod_groups_total"
_GROUP_DELETED: Final = "deleted_pod_groups_total"
_CREATIONS: Final = ("SuccessfulCreatePod", "SuccessfulCreateService")
"""The reasons of events that are told only when the pod of the message may start."""
_LAST_EVENTS: Final = 200
_UNLIMITED: Final = 1 << 30
_ALIVE: Final = frozenset({"starting", "running"})
_RUNS: Final = _ALIVE | {"stopping"}
_PLACED: Final = _RUNS | {"waiting"}
_TO_RESTART: Final = frozenset({"waiting", "failed"})
"""The states of tasks whose last end counts among their restarts already."""
_MOST_PASSES: Final = 6
_INDEX: Final = attrgetter("index")
FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 60.0
"""The pause before the third start of a failed replica is the first delay; each further one doubles it up to this."""
_TOLD_RESTART: Final = 3
"""The restart of a replica without a limit that is told first; then each time that their number has doubled."""
_EVICTED: Final = frozenset({"infrastructure", "crash", "disk", "moved"})
"""The failures of tasks for which the machine is the cause, as a cluster evicts pods."""
_PHASES: Final[Mapping[str, str]] = {
    "waiting": PENDING,
    "starting": PENDING,
    "running": RUNNING,
    "stopping": RUNNING,
    "succeeded": SUCCEEDED,
    "failed": FAILED,
}
"""The phases of pods by the states of tasks; a held task is no pod."""


class PodTask(Protocol):
    """A task of a controlled vertex; see `weft.engine.policy.ControlledTask`."""

    state: str
    starts: int
    restarts: int
    code: int | None
    failure: str
    message: str
    started_at: float | None
    ended_at: float | None


class TasksView(Protocol):
    """What is seen of a run; see `weft.engine.policy.ControllerView`."""

    now: float
    vertices: Mapping[str, Sequence[PodTask]]
    changed: Sequence[Any]
    requests: Sequence[Any]
    bubbles: Mapping[str, Any]


class Reconciled(Struct, frozen=True, kw_only=True):
    """The memo: the status of each job, what users asked for, and events for them.

    `preempted` names the run for which this one makes room. `unplaced` has the times since which gangs with a limit
    wait, `queued` the reasons of all gangs that wait. `lingering` names the jobs that have succeeded while replicas
    still run, which may end by themselves.
    `scale` has the numbers of replicas that users set, by vertex, and `placed` those that had their places before the
    last change of these (none: the number of the file). `gone` has the ended tasks whose pods are deleted, by
    vertex and index, with their number of starts; `failures` counts their failures in a row. `delayed` has the times at
    which pods are created again after several failures. `tuned` names the jobs whose control vertices have decided.
    `restarts` has, by vertex and index, how often replicas whose restarts nothing limits have started again in a row.
    `events` are (time, job, kind, reason, message), the last ones.
    `counters` are those of each job. `lost` has the failed tasks whose pods are counted, as `gone` has its tasks;
    `served` has the number of replicas of each vertex that have a service.
    """

    statuses: dict[str, JobStatus] = field(default_factory=dict)
    suspended: bool | None = None
    preempted: str = ""
    scale: dict[str, int] = field(default_factory=dict)
    placed: dict[str, int] = field(default_factory=dict)
    unplaced: dict[str, float] = field(default_factory=dict)
    queued: dict[str, str] = field(default_factory=dict)
    lingering: tuple[str, ...] = ()
    gone: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: dict[str, dict[str, int]] = field(default_factory=dict)
    delayed: dict[str, dict[str, float]] = field(default_factory=dict)
    tuned: tuple[str, ...] = ()
    restarts: dict[str, dict[str, int]] = field(default_factory=dict)
    events: tuple[tuple[float, str, str, str, str], ...] = ()
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    lost: dict[str, dict[str, int]] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)


_memo_of: Final = converter(Reconciled)
_statuses_of: Final = converter(dict[str, JobStatus])
_jobs_of: Final = converter(list[TrainingJob])


class Jobs(Struct, frozen=True):
    """The jobs of a run, decoded once: by name, their vertices by replica type, and the vertices of plain pods.

    Jobs that another controller manages are left out. `unlimited` has the job of each vertex whose replicas start again
    without a limit.
    """

    jobs: Mapping[str, TrainingJob]
    vertices: Mapping[str, Mapping[str, str]]
    unlimited: Mapping[str, str]
    pods: Sequence[str]
    compat: Compat
    table: PodTable[Reconciled]


def prepare(jobs: Sequence[Any], groups: Mapping[str, Sequence[str]], pods: Sequence[str], compat: str) -> Jobs:
    """Decode the parameters of the controller in the graph."""
    decoded = {job.name: job for job in _jobs_of(jobs)}
    vertices: dict[str, dict[str, str]] = {name: {} for name in decoded}
    beside = []
    for vertex, (job, type) in groups.items():
        if job in decoded and type in decoded[job].replicas:
            vertices[job][type] = vertex
        else:
            beside.append(vertex)
    ours = {name: job for name, job in decoded.items() if is_ours(job)}
    unlimited = {vertices[name][type]: name for name, job in ours.items() for type in restarts_unlimited(job)}
    return Jobs(ours, vertices, unlimited, beside, Compat[compat.upper()], PodTable())


def reconcile(view: TasksView, memo: Any, jobs: Jobs) -> tuple[list[ControlAnswer], Any]:
    """Return what to do now, and the memo for the next call."""
    table = jobs.table
    before = table.take(memo, view.changed, lambda: Reconciled() if memo is None else _memo_of(memo))
    state = _asked(before, view, jobs)
    answers: list[ControlAnswer] = []
    wakes: list[float] = []
    state = replace(state, unplaced={}, queued={})
    for name, job in jobs.jobs.items():
        first = len(answers)
        state = _refuse(view, state, job, jobs.vertices[name], answers)
        state = _late(view, state, job, jobs.vertices[name], answers, before.unplaced)
        if (limit := _patience(job)) is not None and name in state.unplaced:
            wakes.append(state.unplaced[name] + limit)
        state = _one(view, state, jobs, _as_wanted(job, state, jobs.vertices[name]), answers, wakes)
        state = _with_done(view, state, name, answers[first:])
    state = _with_restarts(view, state, jobs)
    finished = all(has_finished(state.statuses[name].conditions) for name in jobs.jobs)
    lingering = tuple(name for name in jobs.jobs if _lingers(view, state, jobs, name))
    ends = [state.statuses[name].conditions for name in jobs.jobs]
    paused = all(has_finished(one) or is_true(one, SUSPENDED) for one in ends)
    waiting = {name: why for name, why in state.queued.items() if not has_finished(state.statuses[name].conditions)}
    state = replace(state, queued=waiting, lingering=lingering)  # a job may have ended after its gang was looked at
    for vertex in jobs.pods:
        task = view.vertices[vertex][0]
        if task.state == "held" and not finished and not paused:
            answers.append(ControlAnswer(AnswerKind.START, vertex, 0, 1))
        elif paused and task.state not in ("held", "stopping"):
            answers.append(ControlAnswer(AnswerKind.STOP, vertex, 0, 1, "the run is suspended"))
    if finished and any(gang.never for gang in view.bubbles.values()):
        answers = []  # the engine ends the run for lack of capacity
    elif finished and not lingering:
        answers.append(_end(view, state, jobs))
    elif wakes:
        answers.append(ControlAnswer(AnswerKind.WAKE, at=min(wakes)))
    after = memo if state == before and memo is not None else as_json(state)
    for one in answers:
        if one.vertex:
            for index in range(one.lo, one.hi):
                table.touch(one.vertex, index)
    table.keep(after, state)
    return joined(answers), after


def joined(answers: Sequence[ControlAnswer]) -> list[ControlAnswer]:
    """Return answers with the starts of neighbouring tasks as one, and so the stops for one reason."""
    found: list[ControlAnswer] = []
    for one in answers:
        last = found[-1] if found else None
        if last is not None and one.lo == last.hi and last.vertex and one[:2] + one[4:] == last[:2] + last[4:]:
            found[-1] = last._replace(hi=one.hi)
        else:
            found.append(one)
    return found


def _lingers(view: TasksView, state: Reconciled, jobs: Jobs, name: str) -> bool:
    """Whether replicas of a job that has succeeded still end by themselves; services have no end of their own."""
    job, status = jobs.jobs[name], state.statuses[name]
    until = lingers(job, status.conditions, status.completed_at, jobs.compat)
    left = leaves_running(job, status.conditions)
    if until <= view.now and not left:
        return False
    return any(
        task.state in _ALIVE or (left and task.state == "waiting" and task.restarts)
        for type, vertex in jobs.vertices[name].items()
        if not (left and is_service(job, type))
        for task in view.vertices[vertex]
    )


def _asked(state: Reconciled, view: TasksView, jobs: Jobs) -> Reconciled:
    """Take the requests."""
    known = {vertex for vertices in jobs.vertices.values() for vertex in vertices.values()}
    for one in view.requests:
        if one.name == SUSPEND:
            state = replace(state, suspended=True)
        elif one.name == RESUME:
            statuses = {name: _begun_anew(status) for name, status in state.statuses.items()}
            state = replace(state, suspended=False, preempted="", restarts={}, statuses=statuses)
        elif one.name == PREEMPT:
            state = replace(state, preempted=one.payload["by"])
        elif one.name == READMIT:
            state = replace(state, preempted="")
        elif one.name == SUCCEEDED_BEFORE:
            ended = {name: status for name, status in _statuses_of(one.payload).items() if name in jobs.jobs}
            state = replace(state, statuses={**state.statuses, **ended})
        elif one.name == SCALE:
            wanted = {vertex: count for vertex, count in one.payload.items() if vertex in known}
            state = _with_placed(view, state, jobs, wanted)
            state = replace(state, scale={**state.scale, **wanted})
        elif one.name == SCALED_BEFORE:
            wanted = {vertex: count for vertex, count in one.payload.items() if vertex in known}
            state = replace(state, scale={**wanted, **state.scale})
        elif one.name == TUNE and one.payload["job"] not in state.tuned:
            name, wanted = one.payload["job"], one.payload["replicas"]
            state = replace(state, scale={**wanted, **state.scale}, tuned=(*state.tuned, name))
            event = JobEvent(kind="Normal", reason=TUNED_EVENT, message=one.payload["because"])
            state = _with_event(view, state, name, event)
    return state


def _with_placed(view: TasksView, state: Reconciled, jobs: Jobs, wanted: Collection[str]) -> Reconciled:
    """Note the numbers of replicas of vertices that users change, if the gangs of their jobs have their places."""
    for name, vertices in jobs.vertices.items():
        gang, own = view.bubbles.get(gang_name(name)), [one for one in vertices.values() if one in wanted]
        if own and gang is not None and gang.granted and not gang.asks:
            others = {vertex: count for vertex, count in state.placed.items() if vertex not in own}
            now = {vertex: state.scale[vertex] for vertex in own if vertex in state.scale}
            state = replace(state, placed={**others, **now})
    return state


def _begun_anew(status: JobStatus) -> JobStatus:
    """Return the status of a job that goes on: nothing of it ran since its end, so that its deadline counts anew."""
    return status if has_finished(status.conditions) else replace(status, started_at=None)


def _as_wanted(job: TrainingJob, state: Reconciled, vertices: Mapping[str, str]) -> TrainingJob:
    """Return a job as its users want it now."""
    suspend = bool(state.preempted) or (job.policy.suspend if state.suspended is None else state.suspended)
    if suspend != job.policy.suspend:
        job = replace(job, policy=replace(job.policy, suspend=suspend))
    scaled = {type: state.scale[vertex] for type, vertex in vertices.items() if vertex in state.scale}
    if scaled:
        specs = {
            type: replace(spec, replicas=scaled[type]) if type in scaled else spec
            for type, spec in job.replicas.items()
        }
        job = replace(job, replicas=specs)
    return job


def _refuse(
    view: TasksView, state: Reconciled, job: TrainingJob, vertices: Mapping[str, str], answers: list[ControlAnswer]
) -> Reconciled:
    """Undo what users set if the gang of a job can never have its place so: the numbers are again those that had their
    places, or those of the file. Without that, the job has failed.
    """
    gang, status = view.bubbles.get(gang_name(job.name)), _status(state, job.name)
    if gang is None or not gang.never or has_finished(status.conditions):
        return state
    own = set(vertices.values())
    scaled = {vertex: count for vertex, count in state.scale.items() if vertex in own}
    if scaled:
        placed = {vertex: state.placed[vertex] for vertex in scaled if vertex in state.placed}
        back = placed if placed != scaled else {}
        undone = [f"{vertex}={count}" for vertex, count in scaled.items() if back.get(vertex) != count]
        text = f"{', '.join(undone)} is undone: {gang.reason}"
        state = _with_event(view, state, job.name, JobEvent(kind="Warning", reason=SCALE_REFUSED, message=text))
        others = {vertex: count for vertex, count in state.scale.items() if vertex not in own}
        return replace(state, scale={**others, **back})
    _stop_waiting(view, vertices, gang.reason, answers)
    reason = f"{job.kind}Failed"
    state = _with_event(view, state, job.name, JobEvent(kind="Warning", reason=reason, message=gang.reason))
    return _failed(view, state, job, reason, gang.reason)


def _failed(view: TasksView, state: Reconciled, job: TrainingJob, reason: str, message: str) -> Reconciled:
    """Let a job have failed for want of its places."""
    before = _status(state, job.name)
    status = with_end(before, FAILED, reason, message, view.now)
    if not has_finished(before.conditions):
        state = _counted(state, job.name, Count("jobs_failed_total"))
    return replace(state, statuses={**state.statuses, job.name: status})


def _stop_waiting(view: TasksView, vertices: Mapping[str, str], reason: str, answers: list[ControlAnswer]) -> None:
    """Stop the tasks of a job that wait for their places."""
    for vertex in vertices.values():
        waiting = [index for index, task in enumerate(view.vertices[vertex]) if task.state == "waiting"]
        answers += [ControlAnswer(AnswerKind.STOP, vertex, index, index + 1, reason) for index in waiting]


def _one(
    view: TasksView, state: Reconciled, jobs: Jobs, job: TrainingJob, answers: list[ControlAnswer], wakes: list[float]
) -> Reconciled:
    """Reconcile one job until nothing more follows from what it has decided itself."""
    vertices = jobs.vertices[job.name]
    pods = _pods(view, vertices, state, jobs.table)
    state = _with_failures(view, state, job.name, vertices, pods)
    state = _start_delayed(view, state, vertices, answers)
    quota = _quota(view, job, vertices)
    gang = False if job.tuning is not None and job.name not in state.tuned else None  # it waits for its control vertex
    fixed = jobs.compat is Compat.FIXED  # its rules look at no numbers of the status
    for _ in range(_MOST_PASSES):
        status = _status(state, job.name)
        over = has_finished(status.conditions) or job.policy.suspend
        observed = _observed(state, job, pods, gang=gang, over=over)
        answer = desired(job, observed, view.now, jobs.compat)
        told = _with_cause(answer.status, "" if state.suspended else state.preempted)
        state = replace(state, statuses={**state.statuses, job.name: told})
        moved = False
        late: set[str] = set()
        for action in answer.actions:
            if isinstance(action, CreatePod | DeletePod):
                jobs.table.touch(vertices[action.type], action.index)
            if isinstance(action, CreatePod):
                if quota == 0:
                    late.add(pod_name(job, action.type, action.index))
                    continue
                quota -= 1
                pods[action.type][action.index] = Pod(type=action.type, index=action.index, phase=PENDING)
                state = _create(view, state, vertices[action.type], action.index, answers)
                moved = True
            elif isinstance(action, DeletePod):
                before = state
                state = _delete(view, state, job.name, vertices[action.type], pods[action.type], action, answers)
                moved = moved or state is not before
            elif isinstance(action, CreateService | DeleteService):
                if pod_name(job, action.type, action.index) not in late:
                    state = _with_service(state, job.name, vertices[action.type], action)
            elif isinstance(action, JobEvent):
                if action.reason in _CREATIONS and action.message.rpartition(": ")[2] in late:
                    continue
                state = _with_event(view, state, job.name, action)
            elif isinstance(action, Count) and action.name.startswith("jobs_"):  # the others when things are done
                state = _counted(state, job.name, action)
            elif isinstance(action, Wake):
                wakes.append(action.at)
        if over:
            state = replace(state, served={v: n for v, n in state.served.items() if v not in vertices.values()})
        if not moved and (told.conditions == status.conditions if fixed else told == status):
            break
    wakes += [at for vertex in vertices.values() for at in state.delayed.get(vertex, {}).values()]
    return state


def _observed(
    state: Reconciled, job: TrainingJob, pods: Mapping[str, Mapping[int, Pod]], *, gang: bool | None, over: bool
) -> Observed:
    """Return what the rules of a job see of it."""
    wanted = {} if over else replica_counts(job)  # what is deleted for good has lost its service already
    services = {
        type: frozenset(index for index, pod in own.items() if index < wanted.get(type, 0) or not pod.deleting)
        for type, own in pods.items()
    }
    every = tuple(pod for own in pods.values() for pod in own.values())
    counts = state.counters.get(job.name, {})
    expired = counts.get("jobs_deleted_total", 0) >= max(1, counts.get("jobs_created_total", 0))
    status = _status(state, job.name)
    return Observed(status=status, pods=every, services=services, gang=gang, expired=expired)


def _counted(state: Reconciled, job: str, count: Count) -> Reconciled:
    """Let a counter of a job go up."""
    if not count.by:
        return state
    own = state.counters.get(job, {})
    return replace(state, counters={**state.counters, job: {**own, count.name: own.get(count.name, 0) + count.by}})


def _with_done(view: TasksView, state: Reconciled, job: str, answers: Sequence[ControlAnswer]) -> Reconciled:
    """Count the pods of a job that these answers create and delete, and the pod group that comes or goes with them.

    `desired` may ask for a pod in several passes before it may start, so its own numbers would be too large.
    """
    for kind, name in ((AnswerKind.START, "created_pods_total"), (AnswerKind.STOP, "deleted_pods_total")):
        state = _counted(state, job, Count(name, sum(one.hi - one.lo for one in answers if one.kind is kind)))
    gang, own = view.bubbles.get(gang_name(job)), state.counters.get(job, {})
    there = own.get(_GROUP_CREATED, 0) > own.get(_GROUP_DELETED, 0)
    conditions = _status(state, job).conditions
    over = has_finished(conditions) or is_true(conditions, SUSPENDED)
    if there:
        return _counted(state, job, Count(_GROUP_DELETED, int(over)))
    asked = gang is not None and (gang.granted or gang.asks > 0)
    return _counted(state, job, Count(_GROUP_CREATED, int(asked and not over)))


def _with_failures(
    view: TasksView,
    state: Reconciled,
    job: str,
    vertices: Mapping[str, str],
    pods: Mapping[str, Mapping[int, Pod]],
) -> Reconciled:
    """Count the failed pods of a job, each once."""
    for type, own in pods.items():
        vertex = vertices[type]
        failed = [index for index, pod in own.items() if pod.phase == FAILED]
        if not failed:
            continue
        known, tasks = state.lost.get(vertex, {}), view.vertices[vertex]
        lost = {**known, **{str(index): tasks[index].starts for index in failed}}
        new = sum(lost[str(index)] != known.get(str(index)) for index in failed)
        if new:
            state = _counted(state, job, Count("failed_pods_total", new))
            state = replace(state, lost={**state.lost, vertex: lost})
    return state


def _with_service(state: Reconciled, job: str, vertex: str, action: CreateService | DeleteService) -> Reconciled:
    """Note that a replica has got its service, or has it no more; those with one are the first of their type.

    The service of a replica stays while a pod follows another, however often it is asked for.
    """
    there = state.served.get(vertex, 0)
    if isinstance(action, DeleteService):
        return replace(state, served={**state.served, vertex: min(there, action.index)}) if there else state
    if action.index < there:
        return state
    state = _counted(state, job, Count("succeeded_service_creation_total"))
    return replace(state, served={**state.served, vertex: action.index + 1})


def _with_event(view: TasksView, state: Reconciled, job: str, event: JobEvent) -> Reconciled:
    """Add an event about a job; the oldest ones go."""
    line = (view.now, job, event.kind, event.reason, event.message)
    return replace(state, events=(*state.events, line)[-_LAST_EVENTS:])


def _with_restarts(view: TasksView, state: Reconciled, jobs: Jobs) -> Reconciled:
    """Count how often replicas without a limit have started again in a row, and tell of those that do so often."""
    for changed in view.changed:
        job = jobs.unlimited.get(changed.vertex)
        if job is None:
            continue
        vertex, index = changed.vertex, str(changed.index)
        known, failures = state.restarts.get(vertex, {}), state.failures.get(vertex, {})
        task, before = view.vertices[vertex][changed.index], known.get(index, 0)
        count = max(task.restarts + failures.get(index, 0) - (task.state in _TO_RESTART), 0)
        if count == before:
            continue
        state = replace(state, restarts={**state.restarts, vertex: {**known, index: count}})
        if is_told(count, before):
            text = restart_text(loop_item(vertex, changed.index), count)
            state = _with_event(view, state, job, JobEvent(kind="Warning", reason=BACK_OFF, message=text))
    return state


def is_told(restarts: int, before: int) -> bool:
    """Whether users are told that a replica has started again so often, and so often before: at each doubling."""
    return (restarts // _TOLD_RESTART).bit_length() > (before // _TOLD_RESTART).bit_length()


def _quota(view: TasksView, job: TrainingJob, vertices: Mapping[str, str]) -> int:
    """Return how many pods may be created now: those of the gang at once, each further one after the last has its
    place.
    """
    policy, gang = job.policy.scheduling, view.bubbles.get(gang_name(job.name))
    least = policy.min_available if policy is not None else None
    if gang is None or least is None or least >= sum(replica_counts(job).values()):
        return _UNLIMITED
    tasks = [task for vertex in vertices.values() for task in view.vertices[vertex]]
    there = sum(task.state in _PLACED for task in tasks)
    free = gang.granted and not gang.asks and not any(task.state == "waiting" and not task.restarts for task in tasks)
    return max(least - there, int(free))


def _with_cause(status: JobStatus, by: str) -> JobStatus:
    """Add to the condition of a suspended job for which run it makes room; "": users have suspended it."""
    if not is_true(status.conditions, SUSPENDED):
        return status
    cause = preempted_text(by) if by else ""
    conditions = tuple(
        replace(one, message=one.message.partition(PREEMPTED)[0] + cause) if one.type == SUSPENDED else one
        for one in status.conditions
    )
    return replace(status, conditions=conditions)


def _late(
    view: TasksView,
    state: Reconciled,
    job: TrainingJob,
    vertices: Mapping[str, str],
    answers: list[ControlAnswer],
    before: Mapping[str, float],
) -> Reconciled:
    """Tell of a gang that waits for its places, and note since when; let its job fail if it has waited for too long."""
    limit, gang = _patience(job), view.bubbles.get(gang_name(job.name))
    if gang is None or gang.granted or not gang.asks or has_finished(_status(state, job.name).conditions):
        return state
    if gang.reason:
        state = replace(state, queued={**state.queued, job.name: gang.reason})
    state = _with_wait(view, state, job.name, gang.reason)
    if limit is None:
        return state
    if any(task.state in _RUNS for vertex in vertices.values() for task in view.vertices[vertex]):
        return state
    since = before.get(job.name, view.now)
    if view.now < since + limit:
        return replace(state, unplaced={**state.unplaced, job.name: since})
    text = f"{job.kind} {job.name} found no place within {limit} s (scheduleTimeoutSeconds): {gang.reason}"
    _stop_waiting(view, vertices, text, answers)
    state = _with_event(view, state, job.name, JobEvent(kind="Warning", reason=TIMED_OUT, message=text))
    return _failed(view, state, job, TIMED_OUT, text)


def _patience(job: TrainingJob) -> int | None:
    """Return how many seconds a job waits for the places of its gang; None: without a limit."""
    return job.policy.scheduling.timeout_s if job.policy.scheduling is not None else None


def _status(state: Reconciled, job: str) -> JobStatus:
    return state.statuses.get(job, JobStatus())


def _with_wait(view: TasksView, state: Reconciled, job: str, reason: str) -> Reconciled:
    """Add an event about the wait of a gang, unless the last one says the same."""
    known = next((event[4] for event in reversed(state.events) if event[1] == job and event[3] == UNSCHEDULED), "")
    if not reason or known == reason:
        return state
    return _with_event(view, state, job, JobEvent(kind="Warning", reason=UNSCHEDULED, message=reason))


def _start_delayed(
    view: TasksView, state: Reconciled, vertices: Mapping[str, str], answers: list[ControlAnswer]
) -> Reconciled:
    """Start the pods whose delay is over."""
    for vertex in vertices.values():
        for index, at in state.delayed.get(vertex, {}).items():
            if at <= view.now:
                answers.append(ControlAnswer(AnswerKind.START, vertex, int(index), int(index) + 1))
                state = _without_delay(state, vertex, int(index))
    return state


def _create(view: TasksView, state: Reconciled, vertex: str, index: int, answers: list[ControlAnswer]) -> Reconciled:
    """Start the task of a pod; after several failures in a row a while after its last end."""
    task = view.vertices[vertex][index]
    failures = state.failures.get(vertex, {}).get(str(index), 0)
    if failures > 1 and task.ended_at is not None:
        at = task.ended_at + min(FIRST_DELAY_S * 2 ** min(failures - 2, 32), LONGEST_DELAY_S)
        if at > view.now:
            inside = {**state.delayed.get(vertex, {}), str(index): at}
            return replace(state, delayed={**state.delayed, vertex: inside})
    answers.append(ControlAnswer(AnswerKind.START, vertex, index, index + 1))
    return state


def _delete(
    view: TasksView,
    state: Reconciled,
    job: str,
    vertex: str,
    pods: dict[int, Pod],
    action: DeletePod,
    answers: list[ControlAnswer],
) -> Reconciled:
    """Delete a pod: forget an ended one, or one that waits for its creation, and stop another; another state tells that
    it is gone already.
    """
    index = action.index
    pod, delayed = pods[index], _delay_of(state, vertex, index) is not None
    if pod.phase in (SUCCEEDED, FAILED) or delayed:
        del pods[index]
        state = _counted(state, job, Count("deleted_pods_total", int(not delayed)))
        return _forget(view, state, vertex, index)
    if not pod.deleting:
        pods[index] = replace(pod, deleting=True)
        what = action.reason or "its job needs it no more"
        answers.append(ControlAnswer(AnswerKind.STOP, vertex, index, index + 1, what))
    return state


def _delay_of(state: Reconciled, vertex: str, index: int) -> float | None:
    return state.delayed.get(vertex, {}).get(str(index))


def _without_delay(state: Reconciled, vertex: str, index: int) -> Reconciled:
    inside = {name: at for name, at in state.delayed.get(vertex, {}).items() if name != str(index)}
    return replace(state, delayed={**state.delayed, vertex: inside})


def _forget(view: TasksView, state: Reconciled, vertex: str, index: int) -> Reconciled:
    """Regard the pod of an ended task as deleted, until the task starts again; count its failures in a row."""
    task, name = view.vertices[vertex][index], str(index)
    if _delay_of(state, vertex, index) is not None:
        return _without_delay(state, vertex, index)
    failures = state.failures.get(vertex, {}).get(name, 0) + 1 if task.state == "failed" else 0
    return replace(
        state,
        gone={**state.gone, vertex: {**state.gone.get(vertex, {}), name: task.starts}},
        failures={**state.failures, vertex: {**state.failures.get(vertex, {}), name: failures}},
    )


def _pods(
    view: TasksView, vertices: Mapping[str, str], state: Reconciled, table: PodTable[Reconciled]
) -> dict[str, dict[int, Pod]]:
    """Return the pods of a job by type and index: its tasks that were let start, and whose end was not taken for
    deleted.
    """
    found = {}
    for type, vertex in vertices.items():
        tasks = view.vertices[vertex]
        deleted, delayed = state.gone.get(vertex, {}), state.delayed.get(vertex, {})
        pods = table.pods_of(vertex, len(tasks), partial(_pod, type, tasks, deleted, delayed))
        found[type] = dict(zip(map(_INDEX, pods), pods, strict=True))
    return found


def _pod(
    type: str, tasks: Sequence[PodTask], deleted: Mapping[str, int], delayed: Mapping[str, float], index: int
) -> Pod | None:
    """Return the pod of a task, None if it has none."""
    task, name = tasks[index], str(index)
    phase = PENDING if name in delayed else _PHASES.get(task.state)
    if phase is None or (phase in (SUCCEEDED, FAILED) and deleted.get(name) == task.starts):
        return None
    restarting = phase == PENDING and task.restarts > 0
    return Pod(
        type=type,
        index=index,
        phase=RUNNING if restarting else phase,
        exit_code=task.code if phase in (SUCCEEDED, FAILED) else None,
        restarts=task.restarts,
        deleting=task.state == "stopping",
        reason="Evicted" if task.failure in _EVICTED and phase == FAILED else "",
        message=task.message,
        created=task.starts - task.restarts,
        started_at=task.started_at,
    )


def _end(view: TasksView, state: Reconciled, jobs: Jobs) -> ControlAnswer:
    """Return the end of the run: failed if a job has failed, by its replica that failed first.

    That of a job that was retried too often is by its last failure.
    """
    failed = [name for name in jobs.jobs if is_true(state.statuses[name].conditions, FAILED)]
    if not failed:
        return ControlAnswer(AnswerKind.CONCLUDE, text="every job has succeeded", outcome="succeeded")
    last = next(one for one in state.statuses[failed[0]].conditions if one.type == FAILED)
    too_often = last.message.endswith(BACKOFF_LIMIT)  # the replica may be on its way again
    blamed = (max if too_often else min)(
        (
            (task.ended_at or 0.0, vertex, index, task.message)
            for vertex in jobs.vertices[failed[0]].values()
            for index, task in enumerate(view.vertices[vertex])
            if task.state == "failed" or (too_often and task.code and task.message)
        ),
        default=None,
    )
    if blamed is None:
        return ControlAnswer(AnswerKind.CONCLUDE, text=last.message, outcome="failed")
    _, vertex, index, message = blamed
    return ControlAnswer(AnswerKind.CONCLUDE, text=message, outcome="failed", task=task_name(vertex, index))
