"""The sweeps that derive from a few facts which tasks can no longer succeed, and which outputs are needed again.

A handler of an event writes facts only: a task has failed, was skipped or went back, an output is lost, a vertex has
ended. It marks the stage in the agenda, and the sweeps of the tick derive the rest:

- `settle_down` walks from sources to readers: tasks that need a failed one fail with it, readers of skipped tasks
  count their inputs anew.
- `restore_wanted` walks from readers to sources: outputs that are gone and still wanted are made again.
- `drain_unread` stops services without readers.
- `fail_blocked` follows after the managers, which may still answer: a vertex ends whose event, answer or success can no
  longer come.

A sweep visits a stage once with all its marks, and writes its rows by ranges. So a failure at the root of a wide graph
costs one pass over its rows.
"""

from __future__ import annotations

import re
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from weft.engine.agenda import Phase
from weft.engine.commands import DRAINED, Stop, Withdraw
from weft.engine.core import FEW, NO_BRANCH, Cause
from weft.engine.job import move_job
from weft.engine.leases import stop_both, write_rows
from weft.engine.lineage import drop, has_unstarted, is_concluded, wanted
from weft.engine.machines.job import JobState
from weft.engine.machines.lease import ACTIVE, LeaseState
from weft.engine.machines.vertex import ENDED, SUCCESS, VertexState
from weft.engine.notes import NoteKind
from weft.engine.policy import Moment
from weft.engine.readiness import (
    advance,
    check_gates,
    count_refs,
    end,
    ended,
    gate_opens,
    one_success_group,
    recount,
    release_inputs,
    runs_again,
    shut_gates,
    unqueue,
)
from weft.engine.rows import (
    CANCELLED,
    CANCELLING,
    FATAL,
    FINISHED,
    FREED,
    LOST,
    NOT_STARTED,
    READY,
    SKIPPED,
    UNSCHEDULED,
    runs_of,
    write,
    write_mixed,
)
from weft.engine.tokens import return_tokens
from weft.graph.logical import OnFailure, Outcome, SameAs, Source, Storage, VertexKind
from weft.model.failures import Failure
from weft.model.ids import task_name
from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.engine.core import Core, LeaseRow
    from weft.engine.physical import PhysicalEdge, Stage

Span = tuple[int, int]
"""A range `lo:hi` of tasks."""

_ALL_FAILED: Final = (VertexState.FAILED, VertexState.CANCELLED)
_MAY_END_EARLY: Final = frozenset({*ACTIVE, LeaseState.REVOKED, LeaseState.RECALLED})
_UNREAD: Final = frozenset({*ENDED, VertexState.DRAINING})
_GONE: Final = late_pattern(b"[" + re.escape(bytes((FREED, LOST))) + b"]+")
_UNSTARTED: Final = late_pattern(b"[" + re.escape(bytes(NOT_STARTED)) + b"]+")


# ----------------------------------------------------------------------------------------- ends without an execution


def mark(core: Core, stage: Stage, lo: int, hi: int, state: int) -> None:
    """Mark tasks `lo:hi` for the downward sweep of this tick.

    `state` is FATAL or SKIPPED for tasks that have ended so, UNSCHEDULED for tasks that went back.
    """
    core.later(Phase.DEPENDENTS, (stage, lo, hi, state))


def unstarted(stage: Stage, lo: int, hi: int) -> list[Span]:
    """Return the tasks of `lo:hi` that have not started, as ranges."""
    return [match.span() for match in _UNSTARTED.finditer(stage.state, lo, hi)]


def end_unstarted(core: Core, stage: Stage, spans: Sequence[Span], state: int) -> None:
    """End tasks that have not started as FATAL, CANCELLED or SKIPPED; the caller ends the vertex."""
    if not spans:
        return
    for lo, hi in spans:
        if stage.state.count(READY, lo, hi):
            unqueue(stage, lo, hi)
        write_mixed(core, stage, lo, hi, state)
        stage.over += hi - lo
        if state != CANCELLED:
            mark(core, stage, lo, hi, state)
    if stage.bubble >= 0:
        core.later(Phase.REQUESTS, stage)  # its bubble may be complete without these tasks
    if stage.listeners:
        core.tell(stage, Moment.FINISHED)
    if stage.early:
        check_gates(core, stage)
    release_inputs(core, stage, spans)


def end_rest(core: Core, stage: Stage, state: int) -> None:
    """End every task of a stage that has not started, and the stage if none is left."""
    if stage.status in ENDED:
        return
    if stage.n < 0:
        advance(core, stage, {SKIPPED: "skip", FATAL: "fatal"}.get(state, "cancelled"))
        if state != CANCELLED:
            mark(core, stage, 0, 0, state)
        ended(core, stage)
        return
    end_unstarted(core, stage, unstarted(stage, 0, stage.n), state)
    if stage.over < stage.n:
        return
    if state == SKIPPED and stage.status is VertexState.CONFIGURED and stage.state.count(SKIPPED) == stage.n:
        advance(core, stage, "skip")
        ended(core, stage)
    else:
        end(core, stage)


def finish_early(core: Core, stage: Stage, reason: str) -> None:
    """End a vertex early, whose consumers need no more: running tasks are stopped, the others are skipped."""
    if stage.status in ENDED:
        return
    core.note(stage.id, NoteKind.ENDED_EARLY, reason)
    if stage.n >= 0:
        end_unstarted(core, stage, unstarted(stage, 0, stage.n), SKIPPED)
    for lease in list(core.leases.values()):
        if any(member is stage for member, _ in lease.members) and lease.state in _MAY_END_EARLY:
            stop_both(core, lease, "satisfied", reason)
    if stage.over == stage.n:
        advance(core, stage, "satisfied")
        ended(core, stage)


# -------------------------------------------------------------------------------------------------- the sweep down


class _Sweep:
    """The stages to visit, sources first, and the marks behind each visit."""

    def __init__(self) -> None:
        self.failed: dict[int, list[Span]] = {}
        """The failed tasks by stage."""
        self.skipped: set[int] = set()
        """The stages with skipped tasks."""
        self.returned: set[int] = set()
        """The stages with tasks that went back."""
        self._waiting: set[int] = set()
        self._heap: list[tuple[int, int, Stage]] = []

    def take(self, marks: Iterable[tuple[Stage, int, int, int]]) -> None:
        """Add marks, and the stages that they concern."""
        for stage, lo, hi, state in marks:
            if state == UNSCHEDULED:
                self.returned.add(stage.index)
                self._visit(stage)
                continue
            if state == FATAL:
                self.failed.setdefault(stage.index, []).append((lo, hi))
            else:
                self.skipped.add(stage.index)
            for link in stage.outputs:
                self._visit(link.dst)

    def _visit(self, stage: Stage) -> None:
        if stage.index not in self._waiting:
            self._waiting.add(stage.index)
            heappush(self._heap, (stage.depth, stage.index, stage))

    def next(self) -> Stage | None:
        """Return the next stage, None at the end of the sweep."""
        if not self._heap:
            return None
        stage = heappop(self._heap)[2]
        self._waiting.discard(stage.index)
        return stage

    def failed_inputs(self, link: PhysicalEdge) -> Sequence[Span]:
        """Return the source tasks of a link that have failed: those with a mark, all if the reader went back."""
        src = link.src
        if link.dst.index not in self.returned:
            return self.failed.get(src.index, ())
        if src.n < 0:
            return ((0, 0),) if src.status in _ALL_FAILED else ()
        return [*runs_of(src.state, FATAL, 0, src.n), *self.failed.get(src.index, ())]


def settle_down(core: Core) -> None:
    """Derive the consequences of failed, skipped and returned tasks, from sources to readers."""
    sweep = _Sweep()
    while True:
        sweep.take(core.taken(Phase.DEPENDENTS))
        stage = sweep.next()
        if stage is None:
            return
        if stage.status not in ENDED:
            _settle_stage(core, stage, sweep)


def _settle_stage(core: Core, stage: Stage, sweep: _Sweep) -> None:
    """Fail the tasks of a stage that need a failed one, and count inputs anew after a skip."""
    returned, changed = stage.index in sweep.returned, False
    for link in stage.inputs:
        src = link.src
        if src.index in sweep.skipped and not link.gate:
            changed = True
        if returned and link.gate and not link.opened and src.status in ENDED:
            core.later(Phase.BLOCKED, src)
        if link.edge.scheduling.outcome is not Outcome.SUCCESS or src.control is not None:
            continue
        failed = sweep.failed_inputs(link)
        if not failed:
            continue
        if stage.n < 0:
            core.note(stage.id, NoteKind.CANNOT_RUN, src.id, "")
            end_rest(core, stage, FATAL)
            return
        readers = _readers(link, failed)
        for lo, hi in readers:
            lost = unstarted(stage, lo, hi)
            _note_failed(core, stage, lost, src)
            end_unstarted(core, stage, lost, FATAL)
        if link.edge.storage is Storage.EPHEMERAL and stage.executing:
            sweep.take(_cut_off(core, link, readers))
    if stage.over == stage.n:
        end(core, stage)
    elif changed and stage.n >= 0:  # skipped tasks count as successes
        recount(core, stage)


def _readers(link: PhysicalEdge, tasks: Sequence[Span]) -> list[Span]:
    """Return the tasks that read one of `tasks` through a link, as ranges."""
    router = link.router
    if router is None or link.wide:
        return [(0, link.dst.n)]
    if link.group:
        return [(lo // link.group, min((hi - 1) // link.group + 1, link.dst.n)) for lo, hi in tasks]
    return [span for lo, hi in tasks for i in range(lo, hi) for span in router.consumers(i)]


def _note_failed(core: Core, stage: Stage, spans: Sequence[Span], src: Stage) -> None:
    """Add history entries of tasks that cannot run: one for each task, or one for the vertex if these are many."""
    if sum(hi - lo for lo, hi in spans) > FEW:
        core.note(stage.id, NoteKind.CANNOT_RUN, src.id, "")
        return
    for lo, hi in spans:
        for index in range(lo, hi):
            core.note(task_name(stage.id, index), NoteKind.CANNOT_RUN, src.id, "")


def _cut_off(core: Core, link: PhysicalEdge, spans: Sequence[Span]) -> list[tuple[Stage, int, int, int]]:
    """Stop the readers of a stream that will never be complete; return marks of the tasks that fail with the stream."""
    lost = [
        lease
        for lease in core.leases.values()
        for member, mult in lease.members
        if member is link.dst and any(a < lease.hi * mult and lease.lo * mult < b for a, b in spans)
    ]
    for lease in lost:
        if lease.live != CANCELLING:
            core.note(task_name(link.dst.id, lease.lo), NoteKind.CANNOT_GO_ON, link.src.id)
            stop_for_good(core, lease, f"{link.src.id} failed", "cut_off")
    return [(member, lo, hi, FATAL) for lease in lost for member, lo, hi in lease.spans()]


# ---------------------------------------------------------------------------------------------------- the sweep up


def restore_wanted(core: Core) -> None:
    """Make outputs again that are gone and that a result or a task without a start needs, from readers to sources.

    Marked are stages with lost outputs, and stages whose tasks run again. No task runs again without a reader. A task
    in a restart region cannot run alone, since its input streams have ended: the region restarts.
    """
    touched = {stage.index for stage in core.taken(Phase.WANTED)}
    if not touched:
        return
    restored: list[Stage] = []
    for stage in reversed(core.order):
        if stage.n <= 0:
            continue
        count = _serve_again(core, stage, touched)
        if not count and _may_lack(stage, touched):
            count = _restore_rows(core, stage)
        if not count:
            continue
        core.note(stage.id, NoteKind.RUN_AGAIN, count)
        touched.add(stage.index)
        restored.append(stage)
        if stage.status in ENDED:
            runs_again(core, stage)
    near = set(touched)
    for index in touched:
        near.update(link.dst.index for link in core.stages[index].outputs)
        near.update(link.src.index for link in core.stages[index].inputs)
    around = [stage for stage in core.order if stage.index in near]
    for stage in around:
        recount(core, stage)
    for stage in restored:
        if stage.vertex.kind is VertexKind.SERVICE:
            shut_gates(core, stage)
    for stage in around:
        if stage.refs is not None:
            stage.refs = count_refs(stage)
    for stage in around:
        mark(core, stage, 0, max(stage.n, 0), UNSCHEDULED)
    core.later(Phase.RESTARTS, *(s for s in reversed(restored) if s.region >= 0 and not s.restarting))


def settle(core: Core) -> None:
    """Run the sweeps that are due, before a handler of an event starts tasks."""
    while Phase.DEPENDENTS in core.queues or Phase.WANTED in core.queues:
        settle_down(core)
        restore_wanted(core)


def drain_unread(core: Core) -> None:
    """Stop the marked services whose last live consumer has ended."""
    for service in core.taken(Phase.SERVICES):
        _drain(core, service)


def _drain(core: Core, service: Stage) -> None:
    """Stop a service whose last live consumer has ended."""
    if service.status in _UNREAD or service.control is not None:
        return
    if any(link.dst.status not in ENDED for link in service.outputs if link.edge.scheduling.concurrent):
        return
    if any(stage.vertex.expands and stage.status not in ENDED for stage in core.stages):
        return  # a patch may still add a consumer
    if service.status is VertexState.RUNNING:
        advance(core, service, "consumers_ended")
    core.note(service.id, NoteKind.SERVICE_UNUSED)
    for lease in core.leases.values():
        if lease.stage is service:
            core.out.append(Stop(lease.id, DRAINED))
    if service.n < 0:
        end_rest(core, service, SKIPPED)
        return
    end_unstarted(core, service, unstarted(service, 0, service.n), SKIPPED)
    if service.over == service.n:
        end(core, service)


def _serve_again(core: Core, stage: Stage, touched: set[int]) -> int:
    """Put back the tasks of an ended service whose readers run again; return their number."""
    if stage.vertex.kind is not VertexKind.SERVICE or stage.status is not VertexState.DONE or stage.control is not None:
        return 0
    readers = [link.dst for link in stage.outputs if link.edge.scheduling.concurrent and link.dst.index in touched]
    if is_concluded(core, stage) or not any(has_unstarted(reader, 0, reader.n) for reader in readers):
        return 0
    for state in (FINISHED, FREED, LOST):
        for lo, hi in list(runs_of(stage.state, state, 0, stage.n)):
            write(core, stage, lo, hi, state, UNSCHEDULED)
    return stage.state.count(UNSCHEDULED)


def _may_lack(stage: Stage, touched: set[int]) -> bool:
    """Return whether an output of a stage is gone, and is lost or may be read again by a touched stage."""
    state = stage.state
    if state.count(LOST):
        return True
    gone = state.count(FREED) or any(link.freed_parts for link in stage.outputs)
    return bool(gone) and any(link.dst.index in touched for link in stage.outputs)


def _restore_rows(core: Core, stage: Stage) -> int:
    """Put back the tasks of a stage whose outputs are gone and wanted, drop other lost ones; return their number."""
    state = stage.state
    if is_concluded(core, stage):
        for lo, hi in list(runs_of(state, LOST, 0, stage.n)):
            write(core, stage, lo, hi, LOST, FREED)
        return 0
    is_wanted, count = wanted(stage), 0
    for match in _GONE.finditer(bytes(state)):
        for index in range(*match.span()):
            if is_wanted(index):
                write(core, stage, index, index + 1, state[index], UNSCHEDULED)
                count += 1
            elif state[index] == LOST:
                write(core, stage, index, index + 1, LOST, FREED)
    partial = [link for link in stage.outputs if link.freed_parts]
    if any(link.dst.state[part] in NOT_STARTED for link in partial for part in link.freed_parts or ()):
        # A freed piece is needed again: outputs are written whole, so all pieces are recomputed.
        there = [index for lo, hi in runs_of(state, FINISHED, 0, stage.n) for index in range(lo, hi)]
        for index in there:
            write(core, stage, index, index + 1, FINISHED, UNSCHEDULED)
        count += len(there)
        drop(core, stage, there)
        for link in partial:
            link.freed_parts = None
    return count


# ------------------------------------------------------------------------------------------------ what cannot come


def fail_blocked(core: Core) -> None:
    """End the dependents of ended vertices whose event, answer or success can no longer come."""
    waiting: dict[int, Stage] = {}
    for src in core.taken(Phase.BLOCKED):
        for stage in _dependents(core, src):
            waiting[stage.index] = stage
    for stage in sorted(waiting.values(), key=lambda stage: (stage.depth, stage.index)):
        if stage.status not in ENDED:
            _end_if_blocked(core, stage)


def _dependents(core: Core, src: Stage) -> list[Stage]:
    """Return the vertices that may wait for an ended vertex: for its success, its event or its answer."""
    found = [link.dst for link in src.outputs if link.gate and not link.opened]
    found += [stage for stage in core.sized.get(src.id, ()) if stage.n < 0]
    for row in core.decided.get(src.id, ()):
        if not row.taken and src.status in ENDED:
            row.taken = NO_BRANCH
            found += [core.by_id[name] for branch in row.choice.branches.values() for name in branch]
    return found


def _end_if_blocked(core: Core, stage: Stage) -> None:
    """End a vertex that can never start, with the first reason that holds."""
    for row in core.branched.get(stage.id, ()):
        if row.taken == NO_BRANCH:
            decider = core.by_id[row.choice.decider]
            if decider.status is VertexState.SKIPPED:
                end_rest(core, stage, SKIPPED)
            elif decider.status in SUCCESS:
                _fail_vertex(core, stage, f"{decider.id} has ended without a branch of choice {row.choice.id!r}")
            else:
                _cannot_run(core, stage, decider, "branch")
            return
    source = _sized_by(core, stage)
    if source is not None and source.status in SUCCESS:
        core.note(stage.id, NoteKind.UNANSWERED, source.id)
        end_rest(core, stage, SKIPPED)
        return
    if source is not None:
        _cannot_run(core, stage, source, "width")
        return
    group = one_success_group(stage)
    for link in stage.inputs:
        src = link.src
        if not link.gate or link.opened or src.status not in ENDED or gate_opens(core, link):
            continue
        if link in group and any(other.src.status not in ENDED for other in group):
            continue  # another source may still succeed
        if src.status in SUCCESS:
            event = link.edge.scheduling.event
            _fail_vertex(core, stage, f"{src.id} has ended without the event {event!r} that {stage.id} waits for")
        else:
            _cannot_run(core, stage, src, "")
        return


def _sized_by(core: Core, stage: Stage) -> Stage | None:
    """Return the first ended one of the vertices that decide the parallelism of a vertex, None if no one has ended."""
    while stage.n < 0 and isinstance(width := stage.vertex.parallelism, (SameAs, Source)):
        stage = core.by_id[width.vertex if isinstance(width, SameAs) else width.expander]
        if stage.status in ENDED:
            return stage
    return None


def _cannot_run(core: Core, stage: Stage, src: Stage, lacks: str) -> None:
    core.note(stage.id, NoteKind.CANNOT_RUN, src.id, lacks)
    end_rest(core, stage, FATAL)


def _fail_vertex(core: Core, stage: Stage, message: str) -> None:
    """Fail a vertex that can never start, as the first failure of the job."""
    if core.cause is None:
        core.cause = Cause(stage.id, message, kind=Failure.USER.value)
    core.note(stage.id, NoteKind.VERTEX_FAILED, message)
    end_rest(core, stage, FATAL)
    if core.graph.on_failure is OnFailure.FAIL_FAST and core.status is JobState.RUNNING:
        move_job(core, "task_fatal")
        stop_everything(core, message)


# ------------------------------------------------------------------------------------------------------- stops


def stop_everything(core: Core, reason: str) -> None:
    """Start nothing more and stop all running tasks. The job ends after the report of the last worker.

    Final vertices that wait for the others to end run afterwards.
    """
    for request in [row for row in core.requests.values() if not row.granted]:
        core.out.append(Withdraw(request.id))
        if request.stage is not None:
            return_tokens(core, request.stage.resources[0])
        del core.requests[request.id]
    settle_down(core)  # dependents of a failed task fail with it, all others are cancelled
    drain_unread(core)
    for stage in core.order:
        if not (core.held and stage.vertex.final):
            end_rest(core, stage, CANCELLED)
    for lease in core.leases.values():
        if lease.state is not LeaseState.CANCELLED:
            stop_for_good(core, lease, reason)
    core.timers.clear()


def stop_for_good(core: Core, lease: LeaseRow, reason: str, cause: str = "cancel") -> None:
    """Stop a lease for good; its tasks are CANCELLING until the worker reports the stop.

    With cause "cut_off" the tasks fail with the source of their stream, otherwise they are cancelled.
    """
    if lease.live != CANCELLING:
        write_rows(core, lease, CANCELLING)
    stop_both(core, lease, cause, reason)


def lease_stopped(core: Core, lease: LeaseRow, state: int) -> None:
    """End a lease that was stopped for good: its tasks are CANCELLED, or FATAL where their stream failed."""
    write_rows(core, lease, state)
    for stage, lo, hi in lease.spans():
        stage.executing -= hi - lo
        stage.over += hi - lo
        release_inputs(core, stage, ((lo, hi),))
        if state == FATAL:
            mark(core, stage, lo, hi, FATAL)
        if stage.over == stage.n:
            end(core, stage)
    if lease.stage.control is not None:
        for stopped in core.hooks.task_stopped:
            stopped(core, lease)
