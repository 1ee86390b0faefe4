"""The Application Master of one job: `handle(events) -> commands`, the one way in.

Pure: the same events give the same commands. Time arrives inside events, numbers come from a counter. `handle` takes a
batch: it drains the events through the lifecycles, then serves special requests, then gives the offered workers leases,
deepest work first, and at last sees whether the job is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.engine import attempts, blame, cones, gangs, patching
from weft.engine.bulk import end_usual
from weft.engine.commands import Command, Complete, Free, Publish, Shrink, Stop
from weft.engine.consulting import consult, make
from weft.engine.control import heard
from weft.engine.core import ANYWHERE, FEW, Core, LeaseRow, Tuning, WorkerRow
from weft.engine.dispatch import dispatch, has_ready, lights, return_tokens, unserved
from weft.engine.events import (
    CancelRequested,
    Done,
    Event,
    Failed,
    GaveBack,
    Granted,
    Hit,
    IdleTick,
    JobSubmitted,
    Miss,
    Offered,
    OutputLost,
    Progress,
    Refused,
    Started,
    TimerFired,
    Unanswered,
    UserEvent,
    Waiting,
    Weighed,
    WorkerJoined,
    WorkerLost,
)
from weft.engine.failures import (
    cancel,
    delay_of,
    fatal,
    free_everything,
    free_leftovers,
    lease_stopped,
    may_retry,
    move_job,
    spread_again,
    starve,
)
from weft.engine.lineage import lose, missing_inputs, remake
from weft.engine.machines.job import JobState
from weft.engine.machines.vertex import ENDED, VERTEX, VertexState
from weft.engine.notes import NoteKind
from weft.engine.placement import assign_sources
from weft.engine.policy import BLAME, STRAGGLERS, ManagerFactory, Moment
from weft.engine.readiness import (
    advance,
    end,
    ended,
    enqueue,
    finish,
    let_go,
    make_ready,
    recount,
    recount_readers,
    unqueue,
)
from weft.engine.rows import (
    FINISHED,
    FREED,
    LEASED,
    PROBING,
    READY,
    RUNNING,
    SKIPPED,
    UNSCHEDULED,
    runs_of,
    write,
    write_mixed,
)
from weft.engine.story import story
from weft.engine.view import JobView, view
from weft.graph.logical import Kind, LogicalGraph
from weft.graph.task import RESERVED
from weft.model.failures import FAILURES, Failure
from weft.model.ids import task_name

if TYPE_CHECKING:
    from weft.engine.physical import Stage

_DEFAULT = Tuning()
_FINISHED = VERTEX[VertexState.RUNNING]["all_finished"]
_CAN_END = (JobState.RUNNING, JobState.FAILING, JobState.CANCELLING)


class Master:
    """Decides for one job. Not a scheduler of machines: the pool says which workers are this job's."""

    def __init__(
        self,
        graph: LogicalGraph,
        job: str = "job",
        tuning: Tuning = _DEFAULT,
        managers: Mapping[str, ManagerFactory] | None = None,
    ) -> None:
        self.core = Core(graph, job, tuning)
        self.core.managers = managers or {}
        for vertex in graph.vertices.values():
            if vertex.manager is not None:
                make(self.core.managers, vertex)  # a wrong one is told when the job is submitted
        jobs = (STRAGGLERS, BLAME)
        self.core.policies = {name: self.core.managers[name]() for name in jobs if name in self.core.managers}
        self._on: dict[type[Any], Callable[[Any], None]] = {
            Done: self._on_done,
            JobSubmitted: self._on_job_submitted,
            WorkerJoined: self._on_worker_joined,
            Failed: self._on_failed,
            Started: self._on_started,
            Progress: self._on_progress,
            GaveBack: self._on_gave_back,
            Weighed: self._on_weighed,
            Granted: self._on_granted,
            Refused: self._on_refused,
            WorkerLost: self._on_worker_lost,
            OutputLost: self._on_output_lost,
            UserEvent: self._on_user_event,
            Hit: self._on_hit,
            Miss: self._on_miss,
            Waiting: self._on_waiting,
            Unanswered: self._on_unanswered,
            TimerFired: self._on_timer_fired,
            IdleTick: self._on_idle_tick,
            CancelRequested: self._on_cancel_requested,
        }

    def handle(self, events: Iterable[Event]) -> list[Command]:
        """Take what happened, return what to do. Late and repeated reports are ignored; an illegal step raises."""
        core = self.core
        core.out = []
        core.moved = []
        offered: Sequence[int] = ()
        on = self._on
        told = events if isinstance(events, list) else list(events)
        bulk = core.tuning.shared_memory  # else it is kept for each task where its output lies
        at = 0
        while at < len(told):
            event = told[at]
            kind = type(event)
            if bulk and kind is Done:
                after = end_usual(core, told, at)
                if after > at:
                    at = after
                    continue
            core.now = event.now
            if type(event) is Offered:
                offered = event.workers
            else:
                on[kind](event)
            at += 1
        if core.dirty and core.status is JobState.RUNNING:
            consult(core, patching.apply)
        if core.suspicious:
            blame.judge(core)
        while core.torn:
            gangs.mend(core)
        while core.stuck:
            starve(core)
        if core.replan:
            core.replan = False
            cones.plan(core)
        light = core.lights
        if core.needy or light.heaps:
            self._serve()
        lit = light.added
        if offered:
            (blame.dispatch_with_care if core.avoided or core.shy else dispatch)(core, offered)
        if core.needy or light.added != lit:
            self._serve_opened(offered)
        if core.wanted and offered:
            attempts.launch(core, offered)
        if core.unended == 0 and core.status in _CAN_END:
            self._see_end()
        return core.out

    def _serve(self) -> None:
        """Serve special requests, and those that this makes ready."""
        core = self.core
        while core.needy or core.lights:
            before = len(core.out)
            if core.needy:
                gangs.serve(core)
            if core.lights:
                lights(core)
            if len(core.out) == before:
                break

    def _serve_opened(self, offered: Sequence[int]) -> None:
        """What was just started has opened gates. Whoever has special needs behind them may get no other occasion."""
        core = self.core
        while True:
            told = len(core.out)
            self._serve()
            if len(core.out) == told:
                return
            free = unserved(core, offered)
            (blame.dispatch_with_care if core.avoided or core.shy else dispatch)(core, free)

    # ------------------------------------------------------------------------------------------ for the shell

    @property
    def hungry(self) -> bool:
        """Whether the job could use another worker now."""
        return has_ready(self.core) or bool(self.core.wanted)

    def choice(self, idle: Sequence[int]) -> Sequence[int]:
        """Return which of the idle workers, the first one last, to offer one after another until the job takes one."""
        return blame.choice(self.core, idle)

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.core.status in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)

    def view(self) -> JobView:
        """Take a picture of the job."""
        return view(self.core)

    def story(self, subject: str = "") -> tuple[str, ...]:
        """Tell everything that happened to a vertex, a task or (with "") the job, and why."""
        return story(self.core, subject)

    # --------------------------------------------------------------------------------------------- the session

    def _on_job_submitted(self, event: JobSubmitted) -> None:
        core = self.core
        if core.status is not JobState.NEW:
            return  # it was cancelled before it began
        core.started_at = event.now
        move_job(core, "started")
        graph = core.graph
        patching.add(core, list(graph.vertices.values()), graph.edges, graph.choices)
        patching.configure_known(core, core.order, fresh=True)
        if graph.bubbles or any(vertex.kind is Kind.SERVICE for vertex in graph.vertices.values()):
            gangs.form(core, graph.bubbles)
            patching.configure_known(core, core.order, fresh=True)
        if not core.tuning.shared_memory:
            assign_sources(core)
        patching.start(core, frozenset(event.given))
        cones.plan(core)
        attempts.watch(core)

    def _on_cancel_requested(self, event: CancelRequested) -> None:
        cancel(self.core, event.reason)

    def _see_end(self) -> None:
        core = self.core
        if core.leases:
            return
        cause = core.cause
        if core.status is JobState.RUNNING:
            failed = any(stage.status in (VertexState.FAILED, VertexState.CANCELLED) for stage in core.stages)
            move_job(core, "ended_with_failures" if failed else "all_ended")
        else:
            move_job(core, "quiet")
        if core.status is JobState.CANCELLED:
            free_everything(core)
            core.out.append(Complete("cancelled", message=core.cancel_reason))
            return
        free_leftovers(core)
        if cause is None or core.status is JobState.SUCCEEDED:  # what failed was not needed in the end
            core.out.append(Complete(core.status.value))
        else:
            told = (cause.task, cause.message, cause.traceback, cause.kind, cause.raised)
            core.out.append(Complete(core.status.value, *told))

    # ------------------------------------------------------------------------------------------------ the pool

    def _on_worker_joined(self, event: WorkerJoined) -> None:
        core = self.core
        core.workers[event.worker] = WorkerRow(event.node, event.node_name, event.party)
        if core.faults:
            core.suspicious = True  # it may be on a bad node

    def _on_worker_lost(self, event: WorkerLost) -> None:
        core = self.core
        row = core.workers.pop(event.worker, None)
        if row is None:
            return
        core.note(f"worker {event.worker}", NoteKind.WORKER_LOST, event.reason)
        if core.avoided:
            core.suspicious = True  # too many of those that are left may be avoided
        gangs.slot_lost(core, event.worker)
        for lease in [lease for lease in core.leases.values() if lease.worker == event.worker]:
            stage, mult = lease.members[0]
            unit = event.unit if lease.lo <= event.unit < lease.hi else lease.lo
            if not lease.stopping:
                blame.fault(core, event.worker, row.node, (stage.id, unit * mult))
            self._on_failed(
                Failed(
                    event.now,
                    lease.id,
                    lease.lo,
                    stage.id,
                    unit * mult,
                    Failure.INFRASTRUCTURE,
                    f"worker {event.worker} was lost: {event.reason}",
                )
            )
        for lease in attempts.on_worker(core, event.worker) if core.rivals or core.losers else ():
            at, reason = lease.lo, f"worker {event.worker} was lost: {event.reason}"
            self._on_failed(Failed(event.now, lease.id, at, lease.stage.id, at, Failure.INFRASTRUCTURE, reason))
        if event.node_lost:
            for stage in core.stages:
                if stage.node_of is not None:
                    self._lose(stage, [i for i, node in enumerate(stage.node_of) if node == row.node], event.reason)

    def _on_granted(self, event: Granted) -> None:
        gangs.granted(self.core, event)

    def _on_refused(self, event: Refused) -> None:
        core = self.core
        row = core.requests.get(event.request)
        stage = row.stage if row is not None else None
        reason = gangs.refused(core, event.request, event.reason)
        if not reason or row is None or stage is None or core.status is not JobState.RUNNING:
            return
        index = row.index if row.index >= 0 else gangs.ordinary_task(stage)
        if index >= 0 and stage.state[index] == READY:
            unqueue(stage, index, index + 1)
            fatal(core, stage, index, Failure.CAPACITY, reason)
        if stage.ready.count:
            core.needy.append(stage)  # the tokens of this one are free for the next

    # --------------------------------------------------------------------------------------------- the workers

    def _on_started(self, event: Started) -> None:
        lease = self.core.leases.get(event.lease) or self.core.rivals.get(event.lease)
        if lease is None or lease.started or lease.stopping:
            return
        lease.started = True
        for stage, mult in lease.members:
            write(self.core, stage, lease.lo * mult, lease.hi * mult, LEASED, RUNNING)

    def _take(self, lease: LeaseRow) -> None:
        """A lease is over: forget it, and give back its tokens and its timer."""
        core = self.core
        core.leases.pop(lease.id, None)
        if lease.timer:
            core.timers.pop(lease.timer, None)
        if lease.stage.plain:  # takes no tokens
            return
        resources = lease.stage.resources[0]
        if resources.tokens:
            return_tokens(core, resources)

    def _on_done(self, event: Done) -> None:
        core = self.core
        lease = core.leases.get(event.lease)
        if lease is None:
            lease = attempts.ended_otherwise(core, event)
            if lease is None:
                return
        if core.rivals and lease.id in core.rivals:
            attempts.won(core, lease)
            event = event._replace(hi=min(event.hi, lease.hi))
        if lease.stopping == "timeout":  # it had ended when it was told: who reads as it is made may have read it
            lease.stopping = "region" if lease.stage.restarting else ""
        if lease.stopping:
            self._stopped(lease, event.hi)
            return
        self._take(lease)
        hi = max(event.hi, lease.lo)  # a rival may have done more before it was lost
        cone = lease.cone
        if cone is not None and 0 <= event.reached < len(cone.members) - 1:
            self._chain_stopped(lease, event)
        else:
            self._learn(lease, hi - lease.lo, event.seconds, event.nbytes)
            if (lease.stage.listeners or event.stats) and self._not_counted(lease, hi):
                self._count_stats(lease, event)
            self._commit(lease, lease.lo, hi, event)
            if hi < lease.hi:
                self._give_back(lease, hi, lease.hi)
        if lease.request:
            gangs.slot_over(core, lease, worker_alive=lease.worker in core.workers)

    def _learn(self, lease: LeaseRow, units: int, seconds: float, nbytes: int) -> None:
        """Update estimates: seconds for each task that a lease starts from, bytes for each output of the root."""
        if units <= 0:
            return
        root = lease.stage
        if lease.cone is None:
            each = seconds / units
            root.seconds = each if root.seconds < 0 else 0.5 * (root.seconds + each)
        else:
            for stage, mult in lease.members:
                if stage.index in lease.leaves:
                    each = seconds / (units * mult)
                    stage.seconds = each if stage.seconds < 0 else 0.5 * (stage.seconds + each)
                    if stage.last_width < units * mult:
                        stage.last_width = units * mult
            if root.seconds < 0:
                root.seconds = seconds / (units * len(lease.cone.steps))
                root.last_width = units
        size = nbytes / units
        root.nbytes = size if root.nbytes < 0 else 0.5 * (root.nbytes + size)

    def _not_counted(self, lease: LeaseRow, hi: int) -> bool:
        """Mark the tasks of a lease up to `hi` as counted; False if one was before, and is run again."""
        stage = lease.stage
        if stage.counted is None:
            stage.counted = bytearray(stage.n)
        if stage.counted.count(1, lease.lo, hi):
            return False
        stage.counted[lease.lo : hi] = b"\1" * (hi - lease.lo)
        return True

    def _count_stats(self, lease: LeaseRow, event: Done) -> None:
        """Add what a lease wrote, once for each task, however often it is run again."""
        stage = lease.stage
        stage.rows += event.rows
        stage.written += event.nbytes
        known = self.core.stats
        for edge, sums in event.stats:
            before = known.get(edge)
            if before is None:
                known[edge] = sums.copy() if hasattr(sums, "dtype") else list(sums)
            elif hasattr(before, "dtype"):
                before += sums
            else:
                known[edge] = [a + b for a, b in zip(before, sums, strict=True)]

    def _commit(self, lease: LeaseRow, lo: int, hi: int, event: Done | Progress) -> None:
        """Units `lo:hi` of a lease are done."""
        if hi <= lo:
            return
        if lease.stage.vertex.expands:
            self._commit_answers(lease, lo, hi, event)
        else:
            self._commit_units(lease, lo, hi, event)

    def _commit_units(self, lease: LeaseRow, lo: int, hi: int, event: Done | Progress) -> None:
        """One slice write for each member, then the consequences."""
        core = self.core
        root = lease.stage
        live = RUNNING if lease.started else LEASED
        if lease.cone is None:
            root.executing -= hi - lo
            self._commit_root(lease, lo, hi, live, event)
            return
        wanted_since: list[Stage] = []  # a patch gave something inside the cone another consumer meanwhile
        inside = {stage.index for stage, _ in lease.members} if core.patched else ()
        for stage, mult in lease.members:
            a, b = lo * mult, hi * mult
            stage.executing -= b - a
            if stage is root:
                break
            write(core, stage, a, b, live, FREED)
            stage.finished += b - a
            stage.over += b - a
            if core.patched and len(stage.outputs) > 1:
                wanted_since.extend(link.dst for link in stage.outputs if link.dst.index not in inside)
            if stage.index not in lease.leaves and stage.narrow == len(stage.inputs):
                if stage.over == stage.n and stage.finished == stage.n:
                    stage.status = _FINISHED  # nobody but the next in the cone waits for it
                    core.moved.append(stage)
                    core.unended -= 1
                    continue
            elif stage.inputs:
                let_go(core, stage, ((a, b),))
            if stage.over == stage.n:
                end(core, stage)
        self._commit_root(lease, lo, hi, live, event)
        for consumer in wanted_since:
            remake(core, consumer)

    def _commit_root(self, lease: LeaseRow, lo: int, hi: int, live: int, event: Done | Progress) -> None:
        """The outputs of the root are made."""
        core = self.core
        root = lease.stage
        if not core.tuning.shared_memory:
            self._locate(root, lo, hi, lease.worker, event)
        write(core, root, lo, hi, live, FINISHED)
        if root.attempts:
            for index in [i for i in root.attempts if lo <= i < hi]:
                core.note(task_name(root.id, index), NoteKind.FINISHED_AGAIN, root.attempt(index))
        elif root.n <= FEW:
            core.note(task_name(root.id, lo) if hi - lo == 1 else root.id, NoteKind.FINISHED, lo, hi)
        finish(core, root, ((lo, hi),))

    def _commit_answers(self, lease: LeaseRow, lo: int, hi: int, event: Done | Progress) -> None:
        """Units `lo:hi` of an expander are done: carry out each answer before its task counts as finished."""
        core = self.core
        stage = lease.stage
        values = getattr(event, "values", None)
        for index in range(lo, hi):
            rejected = patching.expanded(core, stage, index, values[index - lo] if values else None)
            if not rejected:
                self._commit_units(lease, index, index + 1, event)
            else:
                stage.executing -= 1
                core.out.append(Free(stage.id, index, index + 1))
                fatal(core, stage, index, Failure.USER, rejected)

    def _locate(self, stage: Stage, lo: int, hi: int, worker: int, event: Done | Progress) -> None:
        row = self.core.workers.get(worker)
        if stage.node_of is None:
            stage.node_of = [ANYWHERE] * stage.n
            stage.size_of = [0] * stage.n
        assert stage.size_of is not None
        stage.node_of[lo:hi] = [row.node if row is not None else ANYWHERE] * (hi - lo)
        sizes = getattr(event, "sizes", None)
        if sizes is not None:
            stage.size_of[lo:hi] = list(sizes)
        else:
            stage.size_of[lo:hi] = [event.nbytes // (hi - lo)] * (hi - lo)

    def _chain_stopped(self, lease: LeaseRow, event: Done) -> None:
        """A linear cone of one unit stopped after member `reached`: that one is the root, the rest starts again."""
        core = self.core
        unit = lease.lo
        reached = event.reached
        live = RUNNING if lease.started else LEASED
        for at, (stage, _) in enumerate(lease.members):
            stage.executing -= 1
            if at < reached:
                write(core, stage, unit, unit + 1, live, FREED)
                stage.finished += 1
                stage.over += 1
                let_go(core, stage, ((unit, unit + 1),))
                if stage.over == stage.n:
                    end(core, stage)
            elif at > reached:
                write(core, stage, unit, unit + 1, live, UNSCHEDULED)
        stage = lease.members[reached][0]
        stage.nbytes = event.nbytes
        write(core, stage, unit, unit + 1, live, FINISHED)
        if not core.tuning.shared_memory:
            self._locate(stage, unit, unit + 1, lease.worker, event)
        finish(core, stage, ((unit, unit + 1),))
        for later, _ in lease.members[reached + 1 :]:
            if missing_inputs(later, unit, unit + 1):
                remake(core, later)
                recount(core, later)
            spread_again(core, later)

    def _on_progress(self, event: Progress) -> None:
        core = self.core
        lease = core.leases.get(event.lease)
        if lease is None and event.lease in core.rivals and not core.rivals[event.lease].stopping:
            lease = attempts.row_of(core, event.lease)
            assert lease is not None
            attempts.hold(core, lease)
        if lease is None or lease.stopping or event.hi <= lease.lo:
            return
        hi = min(event.hi, lease.hi)
        if lease.stage.listeners and self._not_counted(lease, hi):
            lease.stage.written += event.nbytes
        self._commit(lease, lease.lo, hi, event)
        lease.lo = hi
        if core.rivals and lease.id in core.rivals:
            core.rivals[lease.id].lo = hi

    def _on_gave_back(self, event: GaveBack) -> None:
        lease = self.core.leases.get(event.lease)
        if lease is None or lease.stopping or event.hi >= lease.hi:
            return
        hi = lease.hi
        lease.hi = event.hi
        if lease.id in self.core.rivals:
            attempts.narrowed(self.core, lease)
        self._give_back(lease, event.hi, hi)

    def _on_weighed(self, event: Weighed) -> None:
        attempts.weighed(self.core, event)

    def _give_back(self, lease: LeaseRow, lo: int, hi: int, *, delayed: int = -1) -> None:
        """Units `lo:hi` did not run: what they start from is ready again, the rest of the cone waits for it.

        `delayed` is a task of the root that must wait for its retry timer.
        """
        if hi <= lo:
            return
        core = self.core
        live = RUNNING if lease.started else LEASED
        for stage, mult in lease.members:
            a, b = lo * mult, hi * mult
            stage.executing -= b - a
            write(core, stage, a, b, live, UNSCHEDULED)
            if lease.cone is not None and stage.index not in lease.leaves:
                continue
            if not stage.inputs and delayed < 0 and stage.status not in ENDED:
                make_ready(core, stage, a, b)
            else:
                recount(core, stage)
            if stage.inputs and core.status is JobState.RUNNING and missing_inputs(stage, a, b):
                remake(core, stage)
                recount(core, stage)
        for stage, _ in lease.members:
            spread_again(core, stage)

    def _stopped(self, lease: LeaseRow, hi: int) -> None:
        """A lease that was told to stop is over, one way or the other; what it still brought is not wanted."""
        core = self.core
        if hi > lease.lo and lease.stage.vertex.kind is not Kind.SERVICE:
            core.out.append(Free(lease.stage.id, lease.lo, hi))
        why = lease.stopping
        stage = lease.stage
        self._take(lease)
        if why in ("cancel", "cut off"):
            lease_stopped(core, lease)
        elif why == "region":
            self._put_back_quietly(lease)
            gangs.region_quiet(core, stage.region)
        elif why == "again":
            self._give_back(lease, lease.lo, lease.hi)
        else:  # satisfied: what is done counts, the rest is never made
            live = RUNNING if lease.started else LEASED
            for member, mult in lease.members:
                member.executing -= (lease.hi - lease.lo) * mult
                for lo, hi in list(runs_of(member.state, live, lease.lo * mult, lease.hi * mult)):
                    write(core, member, lo, hi, live, SKIPPED)
                member.over += (lease.hi - lease.lo) * mult
                let_go(core, member, ((lease.lo * mult, lease.hi * mult),))
                if member.over == member.n and member.status not in ENDED:
                    advance(core, member, "satisfied")
                    ended(core, member)
                recount_readers(core, member)
        if why != "region":
            gangs.goes_on(core, stage)
        if lease.request:
            gangs.slot_over(core, lease, worker_alive=lease.worker in core.workers)

    def _put_back_quietly(self, lease: LeaseRow) -> None:
        for stage, mult in lease.members:
            write_mixed(self.core, stage, lease.lo * mult, lease.hi * mult, UNSCHEDULED)
            stage.executing -= (lease.hi - lease.lo) * mult
            if stage.restarting:
                recount(self.core, stage)  # what it reads may have been lost meanwhile

    def _on_failed(self, event: Failed) -> None:
        core = self.core
        lease = core.leases.get(event.lease)
        if lease is None:
            lease = attempts.ended_otherwise(core, event)
        if lease is None:
            return
        if core.rivals and lease.id in core.rivals:
            if lease.stopping not in attempts.GIVEN_UP:
                self._attempt_failed(lease, event)
                return
            attempts.won(core, lease)
        kind = event.kind
        root = lease.stage
        if root.status is VertexState.DRAINING:  # however it ends: nobody needs it any more
            self._on_done(Done(event.now, lease.id, lease.hi))
            return
        if lease.stopping == "timeout":
            lease.stopping = ""
            timeout = root.vertex.timeout_s
            event = event._replace(
                kind=Failure.USER, message=f"took longer than its timeout of {timeout:g} s", traceback="", raised=""
            )
            kind = Failure.USER
        elif lease.stopping:
            self._stopped(lease, event.hi)
            return
        elif kind is Failure.STOPPED:
            kind = Failure.INFRASTRUCTURE
        self._take(lease)
        if lease.lo >= lease.hi:  # all of it was reported as done before
            if lease.request:
                gangs.slot_over(core, lease, worker_alive=lease.worker in core.workers)
            return
        if event.hi < lease.lo:  # it failed at what its rival had done before it was lost
            self._give_back(lease, lease.lo, lease.hi)
            return
        if event.hi > lease.lo:
            self._learn(lease, event.hi - lease.lo, event.seconds, event.nbytes)
            self._commit(lease, lease.lo, event.hi, Done(event.now, lease.id, event.hi, event.seconds, event.nbytes))
        self._failed_unit(lease, event, kind)
        if lease.request:
            gangs.slot_over(core, lease, worker_alive=lease.worker in core.workers)

    def _attempt_failed(self, lease: LeaseRow, event: Failed) -> None:
        """One of two attempts has failed: what it has done counts, the other one goes on with the rest."""
        core = self.core
        hi = min(event.hi, lease.hi)
        if hi > lease.lo:
            self._learn(lease, hi - lease.lo, event.seconds, event.nbytes)
            self._commit(lease, lease.lo, hi, Done(event.now, lease.id, hi, event.seconds, event.nbytes))
            lease.lo = hi
        other = core.rivals[lease.id]
        attempts.hold(core, other)
        other.lo = lease.lo
        attempts.part(core, lease)
        attempts.forget(core, lease)
        if other.stopping == "narrowed":
            other.stopping = ""  # it may still end well
        if other.lo >= other.hi:
            attempts.needless(core, other)
        name = task_name(event.vertex, event.index)
        blame.failed(core, lease, event.kind, (event.vertex, event.index), event.lost)
        core.note(name, NoteKind.ATTEMPT_FAILED, lease.worker, event.kind.value, event.message, other.worker)
        if event.lost is not None and self._is_gone(event.kind):
            source, lost = event.lost
            self._lose(core.by_id[source], [lost], f"{name} could not read it: {event.message}")

    def _is_gone(self, kind: Failure) -> bool:
        """Whether an input that was not read is gone; where nobody asks whose fault it was, it is taken for gone."""
        return kind is not Failure.READ or BLAME not in self.core.policies

    def _failed_unit(self, lease: LeaseRow, event: Failed, kind: Failure) -> None:
        core = self.core
        stage = core.by_id[event.vertex]
        index = event.index
        name = task_name(stage.id, index)
        core.note(name, NoteKind.ATTEMPT_FAILED, lease.worker, kind.value, event.message, None)
        blame.failed(core, lease, kind, (stage.id, index), event.lost)
        if not self._is_gone(kind):
            event = event._replace(lost=None)
        if may_retry(core, stage, index, kind, lease.worker):
            if stage.region >= 0:
                self._put_back_quietly(lease)
                if event.lost is not None:
                    source, lost = event.lost
                    if core.by_id[source].region != stage.region:
                        lose(core, core.by_id[source], [lost], f"{name} could not read it: {event.message}")
                gangs.restart_region(core, stage, f"{name} failed")
                return
            pause = delay_of(stage, index, kind)
            if pause and lease.cone is None:
                if stage.retry_at is None:
                    stage.retry_at = {}
                stage.retry_at[index] = event.now + pause
                core.set_timer(event.now + pause, "retry", stage.id, index)
                self._give_back(lease, event.hi, lease.hi, delayed=index)
            else:
                self._give_back(lease, event.hi, lease.hi)
            if FAILURES[kind].excludes and lease.worker in core.workers:
                blame.elsewhere(core, stage, index, lease.worker)
            if event.lost is not None:
                source, lost = event.lost
                lose(core, core.by_id[source], [lost], f"{name} could not read it: {event.message}")
            return
        unit = index // next(mult for member, mult in lease.members if member is stage)
        self._give_back(lease, event.hi, unit)
        self._give_back(lease, unit + 1, lease.hi)
        live = RUNNING if lease.started else LEASED
        executed: set[tuple[int, int]] = set()
        if lease.cone is not None:
            for step in lease.cone.steps:
                member = lease.members[step.member][0]
                task = unit * step.mult + step.offset
                if member is stage and task == index:
                    break
                executed.add((member.index, task))
        redo: list[Stage] = []
        for member, mult in lease.members:
            for i in range(unit * mult, (unit + 1) * mult):
                member.executing -= 1
                if member.state[i] != live:
                    continue
                if (member.index, i) in executed:
                    write(core, member, i, i + 1, live, FREED)
                    member.finished += 1
                    member.over += 1
                    let_go(core, member, ((i, i + 1),))
                else:
                    write(core, member, i, i + 1, live, UNSCHEDULED)
                    if member is not stage or i != index:
                        redo.append(member)
        for member, _ in lease.members:
            if member.over == member.n:
                end(core, member)
        fatal(core, stage, index, kind, event.message, event.traceback, event.raised)
        if core.status is JobState.RUNNING:
            gangs.goes_on(core, lease.stage)
            for member_stage in {s.index: s for s in redo}.values():
                recount(core, member_stage)
                spread_again(core, member_stage)
                if member_stage.over == member_stage.n:
                    end(core, member_stage)

    # -------------------------------------------------------------------------------- store, cache, clock, user

    def _on_output_lost(self, event: OutputLost) -> None:
        stage = self.core.by_id.get(event.vertex)
        if stage is not None:
            self._lose(stage, list(range(event.lo, min(event.hi, stage.n))), event.reason)

    def _lose(self, stage: Stage, indices: list[int], reason: str) -> None:
        """Outputs are gone: make them again, unless the job is ending anyway."""
        if self.core.status is JobState.RUNNING:
            lose(self.core, stage, indices, reason)
            return
        for index in indices:
            if stage.state[index] == FINISHED:
                write(self.core, stage, index, index + 1, FINISHED, FREED)

    def _on_user_event(self, event: UserEvent) -> None:
        core = self.core
        if event.name.startswith(RESERVED):
            heard(core, event)
            return
        core.note(task_name(event.vertex, event.index), NoteKind.EMITTED, event.name)
        core.out.append(Publish(event.vertex, event.index, event.name, event.payload))
        source = core.by_id.get(event.vertex)
        if source is not None and source.listeners:
            core.payloads.setdefault((event.vertex, event.name), []).append(event.payload)
            core.tell(source, Moment.EVENT)
        patching.emitted(core, event.vertex, event.name)

    def _on_hit(self, event: Hit) -> None:
        core = self.core
        stage = core.by_id[event.vertex]
        if event.index >= stage.n or stage.state[event.index] != PROBING:
            return
        core.note(task_name(stage.id, event.index), NoteKind.CACHE_HIT, event.before)
        if stage.status is VertexState.CONFIGURED:
            advance(core, stage, "task_started")
        if stage.bubble >= 0:
            core.needy.append(stage)
        write(core, stage, event.index, event.index + 1, PROBING, FINISHED)
        finish(core, stage, ((event.index, event.index + 1),))

    def _on_miss(self, event: Miss) -> None:
        core = self.core
        stage = core.by_id[event.vertex]
        if event.index >= stage.n or stage.state[event.index] != PROBING:
            return
        core.note(task_name(stage.id, event.index), NoteKind.CACHE_MISS, event.reason or "never ran")
        if stage.probed is None:
            stage.probed = set()
        stage.probed.add(event.index)
        write(core, stage, event.index, event.index + 1, PROBING, READY)
        enqueue(core, stage, event.index, event.index + 1)

    def _on_waiting(self, event: Waiting) -> None:
        self.core.note(task_name(event.vertex, event.index), NoteKind.CACHE_WAITS, event.owner)

    def _on_unanswered(self, event: Unanswered) -> None:
        core = self.core
        for stage in core.stages:
            asked, stage.probed = stage.probed, None
            for index in sorted(asked or ()):
                if index < stage.n and stage.state[index] == READY:
                    unqueue(stage, index, index + 1)
                    enqueue(core, stage, index, index + 1)

    def _on_timer_fired(self, event: TimerFired) -> None:
        core = self.core
        what = core.timers.pop(event.timer, None)
        if what is None or core.status is not JobState.RUNNING:
            return
        if what[0] == "timeout":
            lease = attempts.row_of(core, what[1])
            if lease is not None and not lease.stopping:
                lease.stopping = "timeout"
                core.out.append(Stop(lease.id, "timeout"))
        elif what[0] == "retry":
            stage = core.by_id[what[1]]
            if stage.retry_at is not None:
                stage.retry_at.pop(what[2], None)
            if stage.status not in ENDED:
                recount(core, stage)
        elif what[0] == "bubble":
            gangs.timed_out(core, what[1])
        elif what[0] == "look":
            attempts.look_again(core)
        elif what[0] == "forgive":
            blame.forgive(core, what[1], "its time is over")

    def _on_idle_tick(self, event: IdleTick) -> None:
        """Workers are idle and nothing is ready: take back half of the longest lease, by count.

        Estimates are no help here: a lease that is late is one whose estimate was wrong.
        """
        core = self.core
        if has_ready(core):
            return
        longest = max(
            (
                lease
                for lease in core.leases.values()
                if not lease.stopping and lease.hi - lease.lo > 1 and lease.id not in core.rivals
            ),
            key=lambda lease: (lease.hi - lease.lo, -lease.id),
            default=None,
        )
        if longest is not None:
            core.out.append(Shrink(longest.id))
