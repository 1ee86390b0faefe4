"""The Application Master of one job: `handle(events) -> commands`, the only entry to the engine.

Pure: the same events give the same commands. Times are in the events, numbers come from a counter. `handle` takes a
batch: it drains the events through the lifecycles, then serves special requests, then leases tasks to the offered
workers, deepest first, and at last checks for the end of the job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.engine import building, cones, patching
from weft.engine.agenda import Phase
from weft.engine.bulk import end_each, end_usual
from weft.engine.commands import Command, Publish, Shrink
from weft.engine.consulting import make, make_controller
from weft.engine.core import PUBLISHED, Core, Handler, WorkerRow
from weft.engine.dispatch import has_ready
from weft.engine.endings import on_done, on_failed, on_gave_back, on_progress, on_started
from weft.engine.events import (
    ANYWHERE,
    CancelRequested,
    Deferred,
    Done,
    DoneEach,
    Event,
    Failed,
    GaveBack,
    Granted,
    IdleTick,
    JobSubmitted,
    NodeDraining,
    NodeJoined,
    NodeLost,
    Noted,
    Offered,
    OutputLost,
    OutputMoved,
    Progress,
    Refused,
    Started,
    TimerFired,
    UserEvent,
    WorkerJoined,
    WorkerLost,
)
from weft.engine.failures import cancel, count_crash
from weft.engine.inspector import Inspector
from weft.engine.job import begin_ending, conclude, move_job
from weft.engine.leases import attempts_on, lost_task
from weft.engine.lineage import lose
from weft.engine.machines.job import GOING, OVER, JobState
from weft.engine.machines.lease import ACTIVE
from weft.engine.notes import NOTE_KINDS, NoteKind
from weft.engine.phases import HEARD, HOOKS, TIMERS, hearing, walk
from weft.engine.placement import assign_sources
from weft.engine.policy import JOB_POLICY, ManagerFactory
from weft.engine.recovery import Epoch, begin
from weft.engine.requests import deferred, granted, refused
from weft.engine.tuning import Tuning
from weft.graph.task import RESERVED
from weft.model.failures import Failure
from weft.model.ids import task_name

if TYPE_CHECKING:
    from weft.graph.logical import LogicalGraph

_DEFAULT = Tuning()
_OFFERS = 1 << Phase.OFFERS
_CAN_END = (JobState.RUNNING, JobState.FAILING, JobState.CANCELLING, JobState.CONCLUDING, JobState.ENDING)


class Master:
    """Decides for one job. The pool, not the master, assigns workers to jobs."""

    def __init__(
        self,
        graph: LogicalGraph,
        job: str = "job",
        tuning: Tuning = _DEFAULT,
        managers: Mapping[str, ManagerFactory] | None = None,
        incarnation: int = 0,
    ) -> None:
        self.core = Core(graph, job, tuning)
        begin(self.core, Epoch(incarnation))
        self.core.managers = managers or {}
        self.core.hooks = HOOKS
        for vertex in graph.vertices.values():
            if vertex.manager is not None:
                make(self.core.managers, vertex)  # a bad policy is reported at the submission of the job
        if graph.controller is not None:
            self.core.controller = make_controller(self.core.managers, graph.controller)
        self.core.policies = {
            name: factory() for name, factory in self.core.managers.items() if name.startswith(JOB_POLICY)
        }

    def handle(self, events: Iterable[Event]) -> list[Command]:
        """Take events, return commands. Late and repeated reports are ignored; an illegal step raises
        InvalidTransition.
        """
        core = self.core
        core.out = []
        core.moved = []
        if core.controller is not None:
            core.later(Phase.CONTROLLER)
        if core.doomed:
            core.later(Phase.CANCELS)
        batch = events if isinstance(events, list) else list(events)
        at = 0
        while at < len(batch):
            event = batch[at]
            kind = type(event)
            if type(event) is DoneEach:
                if end_each(core, event):
                    at += 1
                else:
                    batch, at = [*event.each(), *batch[at + 1 :]], 0
                continue
            if kind is Done:
                after = end_usual(core, batch, at)
                if after > at:
                    at = after
                    continue
            core.now = event.now
            HANDLERS[kind](core, event)
            at += 1
        if core.due:
            walk(core)
        if core.unended == core.held and core.status in _CAN_END:
            self._see_end()
        core.offered = ()
        return core.out

    # ------------------------------------------------------------------------------------------ for the shell

    def retire(self) -> None:
        """Take no more events; what the inspector tells stays."""
        self.core.retire()

    def dissolve(self) -> None:
        """Drop the connections of the vertices, once nothing asks the inspector any more."""
        self.core.dissolve()

    @property
    def inspector(self) -> Inspector:
        """The read-only view of the job; a new one each time, since ended jobs are kept by the thousand."""
        return Inspector(self.core)

    @property
    def wants_workers(self) -> bool:
        """Whether the job could use another worker now."""
        return has_ready(self.core) or bool(self.core.backups_wanted)

    def choice(self, idle: Sequence[int]) -> Sequence[int]:
        """Return the idle workers to offer, one after another until the job takes one; the last one is offered
        first.
        """
        core = self.core
        if core.restricted:
            for choose in core.hooks.choose:
                return choose(core, idle)
        return idle[-1:]

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.core.status in OVER

    def _see_end(self) -> None:
        """Start the final vertices once all others have ended, or end the job."""
        core = self.core
        if core.leases:
            return
        if core.held:
            begin_ending(core)
            walk(core)
        if core.unended == 0:
            conclude(core)


# --------------------------------------------------------------------------------------------------------- the events


def _on_job_submitted(core: Core, event: JobSubmitted) -> None:
    if core.status is not JobState.NEW:
        return  # the job was cancelled before its start
    core.started_at = event.now
    core.known.update(event.known)
    move_job(core, "started")
    graph = core.graph
    building.grow(core, list(graph.vertices.values()), graph.edges, graph.choices, graph.bubbles)
    if not core.tuning.shared_memory:
        assign_sources(core)
    building.start(core, frozenset(event.given))
    cones.plan_all(core)


def _on_cancel_requested(core: Core, event: CancelRequested) -> None:
    cancel(core, event.reason, force=event.force)


def _on_worker_joined(core: Core, event: WorkerJoined) -> None:
    core.workers[event.worker] = WorkerRow(event.node, event.node_name, event.party)


def _on_node_joined(core: Core, event: NodeJoined) -> None:
    has = event.resources
    core.note(f"node {event.node}", NoteKind.NODE_JOINED, event.node_name, len(event.workers), has.memory, has.gpu)
    for worker in event.workers:
        _on_worker_joined(core, WorkerJoined(event.now, worker, event.node, event.node_name, event.party))


def _on_node_draining(core: Core, event: NodeDraining) -> None:
    core.note(f"node {event.node}", NoteKind.NODE_DRAINING, event.reason)


def _on_node_lost(core: Core, event: NodeLost) -> None:
    core.note(f"node {event.node}", NoteKind.NODE_LOST, event.reason)
    if not event.emptied:
        _lose_outputs_of(core, event.node, event.reason)
        return
    for stage in core.stages:
        if stage.node_of is not None and event.node in stage.node_of:
            stage.node_of = [ANYWHERE if held == event.node else held for held in stage.node_of]


def _on_output_moved(core: Core, event: OutputMoved) -> None:
    stage = core.by_id[event.vertex]
    if stage.node_of is not None:
        stage.node_of[event.lo : event.hi] = [event.node] * (event.hi - event.lo)


def _lose_outputs_of(core: Core, node: int, reason: str) -> None:
    """Count the outputs at a node as lost. Those of durable edges outlive it; where they do not, a reader finds out."""
    for stage in core.stages:
        if stage.node_of is not None and not any(link.durable for link in stage.outputs):
            lose(core, stage, [i for i, held in enumerate(stage.node_of) if held == node], reason)


def _on_worker_lost(core: Core, event: WorkerLost) -> None:
    row = core.workers.pop(event.worker, None)
    if row is None:
        return
    core.note(f"worker {event.worker}", NoteKind.WORKER_LOST, event.reason)
    kind = Failure.CRASH if event.crashed else Failure.INFRASTRUCTURE
    reason = f"worker {event.worker} was lost: {event.reason}"
    for lease in [lease for lease in core.leases.values() if lease.worker == event.worker]:
        vertex, index = lost_task(lease, event)
        if event.crashed:
            count_crash(core, lease, (vertex, index))
        on_failed(core, Failed(event.now, lease.id, lease.lo, vertex, index, kind, reason, event.traceback))
    for lease in attempts_on(core, event.worker):
        at = lease.lo
        on_failed(core, Failed(event.now, lease.id, at, lease.stage.id, at, kind, reason, event.traceback))
    if event.node_lost:
        _lose_outputs_of(core, row.node, event.reason)


def _on_offered(core: Core, event: Offered) -> None:
    core.offered, core.served = event.workers, False
    core.due |= _OFFERS


def _on_output_lost(core: Core, event: OutputLost) -> None:
    stage = core.by_id.get(event.vertex)
    if stage is not None:
        lose(core, stage, list(range(event.lo, min(event.hi, stage.n))), event.reason)


def _on_noted(core: Core, event: Noted) -> None:
    kind = NOTE_KINDS[event.kind]
    core.note(event.subject, kind, *event.values)


def _on_user_event(core: Core, event: UserEvent) -> None:
    if event.name.startswith(RESERVED):
        return
    core.note(task_name(event.vertex, event.index), NoteKind.EMITTED, event.name)
    command = Publish(event.vertex, event.index, event.name, event.payload)
    core.out.append(command)
    if core.published is None:
        core.published = deque(maxlen=PUBLISHED)
    core.published.append(command)
    source = core.by_id.get(event.vertex)
    if source is not None:
        patching.emitted(core, source, event.name, event.payload)


def _on_timer_fired(core: Core, event: TimerFired) -> None:
    what = core.timers.pop(event.timer, None)
    if what is not None and core.status in GOING:
        TIMERS[what[0]](core, *what[1:])


def _on_idle_tick(core: Core, event: IdleTick) -> None:
    """Revoke half of the longest lease, by count, while workers are idle and no task is ready.

    Estimates do not help here: a late lease is one with a wrong estimate.
    """
    if has_ready(core):
        return
    longest = max(
        (
            lease
            for lease in core.leases.values()
            if lease.state in ACTIVE and lease.hi - lease.lo > 1 and lease.id not in core.speculative
        ),
        key=lambda lease: (lease.hi - lease.lo, -lease.id),
        default=None,
    )
    if longest is not None:
        core.out.append(Shrink(longest.id))


OWN_HANDLERS: Final[dict[type[Any], Handler]] = {
    Done: on_done,
    JobSubmitted: _on_job_submitted,
    WorkerJoined: _on_worker_joined,
    Failed: on_failed,
    Started: on_started,
    Progress: on_progress,
    GaveBack: on_gave_back,
    Granted: granted,
    Refused: refused,
    WorkerLost: _on_worker_lost,
    NodeJoined: _on_node_joined,
    NodeDraining: _on_node_draining,
    NodeLost: _on_node_lost,
    Deferred: deferred,
    OutputLost: _on_output_lost,
    OutputMoved: _on_output_moved,
    Noted: _on_noted,
    Offered: _on_offered,
    UserEvent: _on_user_event,
    TimerFired: _on_timer_fired,
    IdleTick: _on_idle_tick,
    CancelRequested: _on_cancel_requested,
}
"""The core's handler of each kind of events."""
HANDLERS: Final = OWN_HANDLERS | {kind: hearing(kind, OWN_HANDLERS) for kind in HEARD}
"""The handler of each kind of events, with those of the extensions."""
