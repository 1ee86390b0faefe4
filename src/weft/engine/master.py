"""The Application Master of one job: `handle(events) -> commands`, the only entry to the engine.

Pure: the same events give the same commands. Times are in the events, numbers come from a counter. `handle` takes a
batch: it drains the events through the lifecycles, then serves special requests, then leases tasks to the offered
workers, deepest first, and at last checks for the end of the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.engine import building, cones, patching
from weft.engine.agenda import Phase
from weft.engine.bulk import end_usual
from weft.engine.commands import Command, Publish, Shrink
from weft.engine.consulting import make
from weft.engine.core import Core, WorkerRow
from weft.engine.dispatch import has_ready
from weft.engine.endings import on_done, on_failed, on_gave_back, on_progress, on_started
from weft.engine.events import (
    CancelRequested,
    Deferred,
    Done,
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
    Progress,
    Refused,
    Started,
    TimerFired,
    UserEvent,
    WorkerJoined,
    WorkerLost,
)
from weft.engine.failures import cancel
from weft.engine.inspector import Inspector
from weft.engine.job import begin_ending, conclude, move_job
from weft.engine.leases import attempts_on, lost_task
from weft.engine.lineage import lose
from weft.engine.machines.job import GOING, OVER, JobState
from weft.engine.machines.lease import ACTIVE
from weft.engine.notes import NOTE_KINDS, NoteKind
from weft.engine.phases import HEARD, HOOKS, TIMERS, hearing, walk
from weft.engine.placement import assign_sources
from weft.engine.policy import JOB_POLICY, ManagerFactory, Moment
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
_CAN_END = (JobState.RUNNING, JobState.FAILING, JobState.CANCELLING, JobState.ENDING)


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
        self.inspector = Inspector(self.core)
        self.core.managers = managers or {}
        self.core.hooks = HOOKS
        for vertex in graph.vertices.values():
            if vertex.manager is not None:
                make(self.core.managers, vertex)  # a bad policy is reported at the submission of the job
        self.core.policies = {
            name: factory() for name, factory in self.core.managers.items() if name.startswith(JOB_POLICY)
        }
        on: dict[type[Any], Callable[[Any], None]] = {
            Done: partial(on_done, self.core),
            JobSubmitted: self._on_job_submitted,
            WorkerJoined: self._on_worker_joined,
            Failed: partial(on_failed, self.core),
            Started: partial(on_started, self.core),
            Progress: partial(on_progress, self.core),
            GaveBack: partial(on_gave_back, self.core),
            Granted: partial(granted, self.core),
            Refused: partial(refused, self.core),
            WorkerLost: self._on_worker_lost,
            NodeJoined: self._on_node_joined,
            NodeDraining: self._on_node_draining,
            NodeLost: self._on_node_lost,
            Deferred: partial(deferred, self.core),
            OutputLost: self._on_output_lost,
            Noted: self._on_noted,
            Offered: self._on_offered,
            UserEvent: self._on_user_event,
            TimerFired: self._on_timer_fired,
            IdleTick: self._on_idle_tick,
            CancelRequested: self._on_cancel_requested,
        }
        for kind in HEARD:
            on[kind] = hearing(self.core, kind, on.get(kind))
        self._on = on

    def handle(self, events: Iterable[Event]) -> list[Command]:
        """Take events, return commands. Late and repeated reports are ignored; an illegal step raises
        InvalidTransition.
        """
        core = self.core
        core.out = []
        core.moved = []
        on = self._on
        batch = events if isinstance(events, list) else list(events)
        bulk = core.tuning.shared_memory  # otherwise each task has the location of its output
        at = 0
        while at < len(batch):
            event = batch[at]
            kind = type(event)
            if bulk and kind is Done:
                after = end_usual(core, batch, at)
                if after > at:
                    at = after
                    continue
            core.now = event.now
            on[kind](event)
            at += 1
        if core.due:
            walk(core)
        if core.unended == core.held and core.status in _CAN_END:
            self._see_end()
        core.offered = ()
        return core.out

    # ------------------------------------------------------------------------------------------ for the shell

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

    # --------------------------------------------------------------------------------------------- the session

    def _on_job_submitted(self, event: JobSubmitted) -> None:
        core = self.core
        if core.status is not JobState.NEW:
            return  # the job was cancelled before its start
        core.started_at = event.now
        move_job(core, "started")
        graph = core.graph
        building.grow(core, list(graph.vertices.values()), graph.edges, graph.choices, graph.bubbles)
        if not core.tuning.shared_memory:
            assign_sources(core)
        building.start(core, frozenset(event.given))
        cones.plan_all(core)

    def _on_cancel_requested(self, event: CancelRequested) -> None:
        cancel(self.core, event.reason, force=event.force)

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

    # ------------------------------------------------------------------------------------------------ the pool

    def _on_worker_joined(self, event: WorkerJoined) -> None:
        core = self.core
        core.workers[event.worker] = WorkerRow(event.node, event.node_name, event.party)

    def _on_node_joined(self, event: NodeJoined) -> None:
        core, has = self.core, event.resources
        core.note(f"node {event.node}", NoteKind.NODE_JOINED, event.node_name, len(event.workers), has.memory, has.gpu)
        for worker in event.workers:
            self._on_worker_joined(WorkerJoined(event.now, worker, event.node, event.node_name, event.party))

    def _on_node_draining(self, event: NodeDraining) -> None:
        self.core.note(f"node {event.node}", NoteKind.NODE_DRAINING, event.reason)

    def _on_node_lost(self, event: NodeLost) -> None:
        self.core.note(f"node {event.node}", NoteKind.NODE_LOST, event.reason)
        self._lose_outputs_of(event.node, event.reason)

    def _lose_outputs_of(self, node: int, reason: str) -> None:
        for stage in self.core.stages:
            if stage.node_of is not None:
                lose(self.core, stage, [i for i, held in enumerate(stage.node_of) if held == node], reason)

    def _on_worker_lost(self, event: WorkerLost) -> None:
        core = self.core
        row = core.workers.pop(event.worker, None)
        if row is None:
            return
        core.note(f"worker {event.worker}", NoteKind.WORKER_LOST, event.reason)
        for lease in [lease for lease in core.leases.values() if lease.worker == event.worker]:
            vertex, index = lost_task(lease, event)
            reason = f"worker {event.worker} was lost: {event.reason}"
            on_failed(core, Failed(event.now, lease.id, lease.lo, vertex, index, Failure.INFRASTRUCTURE, reason))
        for lease in attempts_on(core, event.worker):
            at, reason = lease.lo, f"worker {event.worker} was lost: {event.reason}"
            on_failed(core, Failed(event.now, lease.id, at, lease.stage.id, at, Failure.INFRASTRUCTURE, reason))
        if event.node_lost:
            self._lose_outputs_of(row.node, event.reason)

    def _on_offered(self, event: Offered) -> None:
        core = self.core
        core.offered, core.served = event.workers, False
        core.due |= _OFFERS

    def _on_output_lost(self, event: OutputLost) -> None:
        core = self.core
        stage = core.by_id.get(event.vertex)
        if stage is not None:
            lose(core, stage, list(range(event.lo, min(event.hi, stage.n))), event.reason)

    def _on_noted(self, event: Noted) -> None:
        kind = NOTE_KINDS[event.kind]
        self.core.note(event.subject, kind, *event.values)

    def _on_user_event(self, event: UserEvent) -> None:
        core = self.core
        if event.name.startswith(RESERVED):
            return
        core.note(task_name(event.vertex, event.index), NoteKind.EMITTED, event.name)
        core.out.append(Publish(event.vertex, event.index, event.name, event.payload))
        source = core.by_id.get(event.vertex)
        if source is not None and source.listeners:
            core.payloads.setdefault((event.vertex, event.name), []).append(event.payload)
            core.tell(source, Moment.EVENT)
        patching.emitted(core, event.vertex, event.name)

    def _on_timer_fired(self, event: TimerFired) -> None:
        core = self.core
        what = core.timers.pop(event.timer, None)
        if what is not None and core.status in GOING:
            TIMERS[what[0]](core, *what[1:])

    def _on_idle_tick(self, event: IdleTick) -> None:
        """Revoke half of the longest lease, by count, while workers are idle and no task is ready.

        Estimates do not help here: a late lease is one with a wrong estimate.
        """
        core = self.core
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
