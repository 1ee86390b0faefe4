"""Reports of leases: finished units are committed, the rest is put back, failed tasks are retried or fail for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.engine import patching
from weft.engine.agenda import Phase
from weft.engine.commands import Free
from weft.engine.core import FEW
from weft.engine.describe import partitions_of
from weft.engine.events import ANYWHERE, Done, Failed, GaveBack, Progress, Started
from weft.engine.failures import count_failure, delay_of, fatal, may_retry, not_among
from weft.engine.leases import attempt_ended, close, hold, lost_one, move, narrow, revoked, won, write_rows
from weft.engine.lineage import lose, missing_inputs
from weft.engine.machines.job import GOING
from weft.engine.machines.lease import ACTIVE, GIVEN_UP, LeaseState
from weft.engine.machines.vertex import ENDED, VERTEX, VertexState
from weft.engine.notes import NoteKind
from weft.engine.placement import locations
from weft.engine.policy import BLAME
from weft.engine.readiness import advance, end, ended, finish, make_ready, recount, release_inputs, shut_gates
from weft.engine.requests import slot_over
from weft.engine.rows import (
    CANCELLED,
    FATAL,
    FINISHED,
    FREED,
    LEASED,
    RUNNING,
    SKIPPED,
    UNSCHEDULED,
    runs_of,
    write,
)
from weft.engine.settle import drain_unread, end_unstarted, lease_stopped, mark
from weft.graph.logical import RestartPolicy, VertexKind
from weft.model.failures import FAILURES, OF_TIMEOUTS, TIMED_OUT, Failure, RetryClass
from weft.model.ids import task_name

if TYPE_CHECKING:
    from weft.engine.core import Core, LeaseRow
    from weft.engine.physical import Stage

_FINISHED = VERTEX[VertexState.RUNNING]["all_finished"]


def on_started(core: Core, event: Started) -> None:
    """Record that a worker has begun with a lease, or with the other attempt at its tasks."""
    lease = core.leases.get(event.lease) or core.speculative.get(event.lease)
    if lease is None or lease.state is not LeaseState.SENT:
        return
    move(core, lease, "started")
    if lease.live == LEASED:
        write_rows(core, lease, RUNNING)


def on_done(core: Core, event: Done) -> None:
    """End a lease that has ended well up to `event.hi`."""
    lease = core.leases.get(event.lease) or attempt_ended(core, event)
    if lease is None:
        return
    if core.speculative and lease.id in core.speculative:
        if lease.state is LeaseState.REVOKED:
            revoked(core, lease, min(event.hi, lease.hi))
            return
        won(core, lease)
        event = replace(event, hi=min(event.hi, lease.hi))
    if lease.state is LeaseState.TIMED_OUT:
        # It ended before the stop arrived. In a restarting region the readers of its stream are stopped already.
        move(core, lease, "region_restart" if lease.stage.restarting else "counts")
    if lease.state not in ACTIVE:
        _stopped(core, lease, event)
        return
    if lease.stage.vertex.restart is RestartPolicy.ALWAYS:
        drain_unread(core)
        if lease.stage.status is not VertexState.DRAINING:
            _restart_ended(core, lease, event)
            return
    close(core, lease)
    hi = max(event.hi, lease.lo)  # the other attempt may have finished more before its loss
    cone = lease.cone
    if cone is not None and 0 <= event.reached < len(cone.members) - 1:
        _chain_stopped(core, lease, event)
    else:
        _learn(core, lease, hi - lease.lo, event.seconds, event.nbytes)
        _count_stats(core, lease, hi, event)
        commit(core, lease, lease.lo, hi, event)
        if hi < lease.hi:
            put_back(core, lease, hi, lease.hi)
    _give_slot_back(core, lease)


def _restart_ended(core: Core, lease: LeaseRow, event: Done) -> None:
    """Count the end of a service with an ALWAYS restart rule as a failure of its code, though the end was good."""
    stage, at = lease.stage, lease.lo
    if event.hi > at:
        core.out.append(Free(stage.id, at, event.hi))
    message = "it has ended by itself, and is to run always"
    on_failed(core, Failed(event.now, lease.id, at, stage.id, at, Failure.USER, message, status=0))


def _learn(core: Core, lease: LeaseRow, units: int, seconds: float, nbytes: int) -> None:
    """Update estimates: seconds for each task that starts a lease, bytes for each output of the root."""
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
            root.seconds = seconds / (units * lease.cone.size)
            root.last_width = units
    size = nbytes / units
    root.nbytes = size if root.nbytes < 0 else 0.5 * (root.nbytes + size)


def _not_counted(core: Core, lease: LeaseRow, hi: int) -> bool:
    """Mark the tasks of a lease up to `hi` as counted; False if one of them was counted before, and has run again."""
    stage = lease.stage
    if stage.counted is None:
        stage.counted = bytearray(stage.n)
    if stage.counted.count(1, lease.lo, hi):
        return False
    stage.counted[lease.lo : hi] = b"\1" * (hi - lease.lo)
    return True


def _count_stats(core: Core, lease: LeaseRow, hi: int, event: Done | Failed | Progress) -> None:
    """Count the rows and bytes of the units of a lease up to `hi`, once for each task, however often it runs again."""
    stage = lease.stage
    if not (stage.listeners or event.stats or stage.vertex.counted) or not _not_counted(core, lease, hi):
        return
    stage.rows += event.rows
    stage.written += event.nbytes
    stage.busy_s += event.seconds
    known = core.stats
    for edge, sums in event.stats:
        before = known.get(edge)
        if isinstance(sums, dict):
            if before is None:
                parts = max([partitions_of(link) for link in stage.outputs if link.edge.id == edge], default=0)
                before = known[edge] = [0] * parts
            if sums and max(sums) >= len(before):
                before += [0] * (max(sums) + 1 - len(before))
            for part, nbytes in sums.items():
                before[part] += nbytes
        elif before is None:
            known[edge] = sums.copy() if hasattr(sums, "dtype") else list(sums)
        elif hasattr(before, "dtype"):
            before += sums
        else:
            known[edge] = [a + b for a, b in zip(before, sums, strict=True)]


def commit(core: Core, lease: LeaseRow, lo: int, hi: int, event: Done | Progress) -> None:
    """Commit the units `lo:hi` of a lease."""
    if hi <= lo:
        return
    if lease.stage.vertex.expands:
        _commit_answers(core, lease, lo, hi, event)
    else:
        _commit_units(core, lease, lo, hi, event)


def _commit_units(core: Core, lease: LeaseRow, lo: int, hi: int, event: Done | Progress) -> None:
    """Write one slice for each member, then apply the consequences."""
    root = lease.stage
    if lease.cone is None:
        root.executing -= hi - lo
        _commit_root(core, lease, lo, hi, event)
        return
    wanted_since: list[Stage] = []  # a patch added another consumer inside the cone meanwhile
    patched, live, leaves = core.patched, lease.live, lease.leaves
    inside = {stage.index for stage, _ in lease.members} if patched else ()
    for stage, mult in lease.members:
        a, b = lo * mult, hi * mult
        stage.executing -= b - a
        if stage is root:
            break
        write(core, stage, a, b, live, FREED)
        stage.finished += b - a
        stage.over += b - a
        if patched and len(stage.outputs) > 1:
            wanted_since.extend(link.dst for link in stage.outputs if link.dst.index not in inside)
        if stage.index not in leaves and stage.narrow == len(stage.inputs):
            if stage.over == stage.n and stage.finished == stage.n:
                stage.status = _FINISHED  # only the next member of the cone waits for it
                core.moved.append(stage)
                core.unended -= 1
                continue
        elif stage.inputs:
            release_inputs(core, stage, ((a, b),))
        if stage.over == stage.n:
            end(core, stage)
    _commit_root(core, lease, lo, hi, event)
    if wanted_since:
        core.later(Phase.WANTED, *wanted_since)


def _commit_root(core: Core, lease: LeaseRow, lo: int, hi: int, event: Done | Progress) -> None:
    """Commit the outputs of the root."""
    root = lease.stage
    if not core.tuning.shared_memory:
        _locate(core, root, lo, hi, lease.worker, event)
    write(core, root, lo, hi, lease.live, FINISHED)
    if root.attempts:
        for index in [i for i in root.attempts if lo <= i < hi]:
            core.note(task_name(root.id, index), NoteKind.FINISHED_AGAIN, root.attempt(index))
    elif root.n <= FEW:
        core.note(task_name(root.id, lo) if hi - lo == 1 else root.id, NoteKind.FINISHED, lo, hi)
    finish(core, root, ((lo, hi),))


def _commit_answers(core: Core, lease: LeaseRow, lo: int, hi: int, event: Done | Progress) -> None:
    """Apply each answer of the units `lo:hi` of an expander before its task counts as finished."""
    stage = lease.stage
    values = getattr(event, "values", None)
    for index in range(lo, hi):
        rejected = patching.expanded(core, stage, index, values[index - lo] if values else None)
        if not rejected:
            _commit_units(core, lease, index, index + 1, event)
        else:
            stage.executing -= 1
            core.out.append(Free(stage.id, index, index + 1))
            fatal(core, stage, index, Failure.USER, rejected)


def _locate(core: Core, stage: Stage, lo: int, hi: int, worker: int, event: Done | Progress) -> None:
    """Record the node and the size in bytes of outputs."""
    row = core.workers.get(worker)
    node_of, size_of = locations(stage)
    node_of[lo:hi] = [row.node if row is not None else ANYWHERE] * (hi - lo)
    sizes = getattr(event, "sizes", None)
    if sizes is not None:
        size_of[lo:hi] = list(sizes)
    else:
        size_of[lo:hi] = [event.nbytes // (hi - lo)] * (hi - lo)


def _chain_stopped(core: Core, lease: LeaseRow, event: Done) -> None:
    """Commit a linear cone of one unit that stopped after member `reached`: that member is the root, the rest starts
    again.
    """
    unit = lease.lo
    reached, live = event.reached, lease.live
    for at, (stage, _) in enumerate(lease.members):
        stage.executing -= 1
        if at < reached:
            write(core, stage, unit, unit + 1, live, FREED)
            stage.finished += 1
            stage.over += 1
            release_inputs(core, stage, ((unit, unit + 1),))
            if stage.over == stage.n:
                end(core, stage)
        elif at > reached:
            write(core, stage, unit, unit + 1, live, UNSCHEDULED)
    stage = lease.members[reached][0]
    stage.nbytes = event.nbytes
    write(core, stage, unit, unit + 1, live, FINISHED)
    if not core.tuning.shared_memory:
        _locate(core, stage, unit, unit + 1, lease.worker, event)
    finish(core, stage, ((unit, unit + 1),))
    for later, _ in lease.members[reached + 1 :]:
        if missing_inputs(later, unit, unit + 1):
            core.later(Phase.WANTED, later)
        mark(core, later, unit, unit + 1, UNSCHEDULED)


def on_progress(core: Core, event: Progress) -> None:
    """Commit the finished units of a lease up to `event.hi`; the lease goes on with the rest."""
    lease = core.leases.get(event.lease)
    if lease is None and event.lease in core.speculative and core.speculative[event.lease].state in ACTIVE:
        lease = core.speculative[core.speculative[event.lease].id]
        hold(core, lease)
    if lease is None or lease.state not in ACTIVE or event.hi <= lease.lo:
        return
    hi = min(event.hi, lease.hi)
    _count_stats(core, lease, hi, event)
    commit(core, lease, lease.lo, hi, event)
    lease.lo = hi
    if core.speculative and lease.id in core.speculative:
        core.speculative[lease.id].lo = hi


def on_gave_back(core: Core, event: GaveBack) -> None:
    """Put back the units from `event.hi` on, which a worker has not begun, for other workers."""
    lease = core.leases.get(event.lease)
    if lease is None or lease.state not in ACTIVE or event.hi >= lease.hi:
        return
    hi = lease.hi
    lease.hi = event.hi
    narrow(core, lease)
    put_back(core, lease, event.hi, hi)


def put_back(core: Core, lease: LeaseRow, lo: int, hi: int, *, delayed: int = -1) -> None:
    """Put back units `lo:hi`, which did not run: the first tasks are ready again, the rest of the cone waits for them.

    `delayed` is a task of the root that must wait for its retry timer.
    """
    if hi <= lo:
        return
    for stage, mult in lease.members:
        a, b = lo * mult, hi * mult
        stage.executing -= b - a
        write(core, stage, a, b, lease.live, UNSCHEDULED)
        if lease.cone is not None and stage.index not in lease.leaves:
            continue
        if stage.status is VertexState.DRAINING:  # no reader needs it any more
            end_unstarted(core, stage, [(a, b)], SKIPPED)
            if stage.over == stage.n:
                end(core, stage)
            continue
        if not stage.inputs and delayed < 0 and stage.status not in ENDED:
            make_ready(core, stage, a, b)
        elif stage.inputs and core.status in GOING and missing_inputs(stage, a, b):
            core.later(Phase.WANTED, stage)
        else:
            recount(core, stage)
    for stage, mult in lease.members:
        mark(core, stage, lo * mult, hi * mult, UNSCHEDULED)
        if stage.early:
            shut_gates(core, stage)


def _stopped(core: Core, lease: LeaseRow, event: Done | Failed) -> None:
    """End a lease that was stopped, whatever end it reports; its later outputs are freed."""
    state, stage, hi = lease.state, lease.stage, event.hi
    if hi > lease.lo and stage.vertex.kind is not VertexKind.SERVICE and state is not LeaseState.RECALLED:
        core.out.append(Free(stage.id, lease.lo, hi))
    close(core, lease)
    if state in (LeaseState.CANCELLED, LeaseState.CUT_OFF):
        lease_stopped(core, lease, FATAL if state is LeaseState.CUT_OFF else CANCELLED)
    elif state is LeaseState.RESTARTING:
        for stopped in core.hooks.region_stopped:
            stopped(core, lease)
    elif state is LeaseState.REVOKED:
        put_back(core, lease, lease.lo, lease.hi)
    elif state is LeaseState.RECALLED:
        for recalled in core.hooks.lease_recalled:
            recalled(core, lease, event)
    else:
        _skip_rest(core, lease)
    if state is not LeaseState.RESTARTING:
        _region_goes_on(core, stage)
    _give_slot_back(core, lease)


def _skip_rest(core: Core, lease: LeaseRow) -> None:
    """End a vertex early, whose consumers need no more: finished tasks count, the rest is skipped."""
    for stage, lo, hi in lease.spans():
        stage.executing -= hi - lo
        for a, b in list(runs_of(stage.state, lease.live, lo, hi)):
            write(core, stage, a, b, lease.live, SKIPPED)
            mark(core, stage, a, b, SKIPPED)
        stage.over += hi - lo
        release_inputs(core, stage, ((lo, hi),))
        if stage.over == stage.n and stage.status not in ENDED:
            advance(core, stage, "satisfied")
            ended(core, stage)


def _give_slot_back(core: Core, lease: LeaseRow) -> None:
    """Return the slot of an ended lease that ran on a granted slot."""
    if lease.request:
        slot_over(core, lease, worker_alive=lease.worker in core.workers)


def _region_goes_on(core: Core, stage: Stage) -> None:
    """Let the restart region of a stage start again, if it waited for the end of this lease."""
    if stage.region >= 0:
        for goes_on in core.hooks.region_goes_on:
            goes_on(core, stage)


def _attempt_has_failed(core: Core, lease: LeaseRow, kind: Failure, event: Failed) -> None:
    for failed in core.hooks.attempt_failed:
        failed(core, lease, kind, event)
    if lease.stage.control is not None:
        for failed in core.hooks.task_failed:
            failed(core, lease, kind, event)


def on_failed(core: Core, event: Failed) -> None:
    """Handle the failure of a lease at one task of unit `event.hi`; the units before are finished."""
    lease = core.leases.get(event.lease) or attempt_ended(core, event)
    if lease is None:
        return
    if core.speculative and lease.id in core.speculative:
        if lease.state not in GIVEN_UP:
            _attempt_failed(core, lease, event)
            return
        if lease.state is LeaseState.REVOKED:
            revoked(core, lease, event.hi)
            return
        won(core, lease)
    kind = event.kind
    root = lease.stage
    if root.vertex.kind is VertexKind.SERVICE:
        drain_unread(core)  # its last reader may have ended just before
    if root.status is VertexState.DRAINING:  # ignored whatever its end: its tasks are not needed any more
        on_done(core, Done(event.now, lease.id, lease.hi))
        return
    if lease.state is LeaseState.TIMED_OUT:
        kind = Failure.USER
        message = f"{TIMED_OUT} {root.vertex.timeout_s:g} s"
        event = replace(event, kind=kind, message=message, traceback="", raised=OF_TIMEOUTS)
    elif lease.state not in ACTIVE:
        _stopped(core, lease, event)
        return
    elif kind is Failure.STOPPED:
        kind = Failure.INFRASTRUCTURE
    close(core, lease)
    if lease.lo >= lease.hi:  # all of its units were reported as finished before
        _give_slot_back(core, lease)
        return
    if event.hi < lease.lo:  # it failed at a unit that the other attempt had finished before its loss
        put_back(core, lease, lease.lo, lease.hi)
        return
    _commit_part(core, lease, event.hi, event)
    _failed_unit(core, lease, event, kind)
    _give_slot_back(core, lease)


def _commit_part(core: Core, lease: LeaseRow, hi: int, event: Failed) -> None:
    """Commit the units that a lease finished before its failure."""
    if hi > lease.lo:
        _learn(core, lease, hi - lease.lo, event.seconds, event.nbytes)
        _count_stats(core, lease, hi, event)
        commit(core, lease, lease.lo, hi, Done(event.now, lease.id, hi, event.seconds, event.nbytes))


def _attempt_failed(core: Core, lease: LeaseRow, event: Failed) -> None:
    """Handle the failure of one of two attempts: its finished units count, the other attempt goes on with the rest."""
    hi = min(event.hi, lease.hi)
    _commit_part(core, lease, hi, event)
    lease.lo = max(lease.lo, hi)
    other = lost_one(core, lease)
    name = task_name(event.vertex, event.index)
    _attempt_has_failed(core, lease, event.kind, event)
    if event.kind is Failure.CRASH:
        count_failure(core, core.by_id[event.vertex], event.index, RetryClass.CRASH)
    core.note(name, NoteKind.ATTEMPT_FAILED, lease.worker, event.kind.value, event.message, other.worker)
    if _is_gone(core, event.kind):
        lose_unread(core, event, name)


def lose_unread(core: Core, event: Failed, name: str) -> None:
    """Mark the input that a task could not read, the cause of its failure, as lost."""
    if event.lost is not None:
        source, index = event.lost
        lose(core, core.by_id[source], [index], f"{name} could not read it: {event.message}")


def _is_gone(core: Core, kind: Failure) -> bool:
    """Return whether an unread input is lost; without a node exclusion policy it always counts as lost."""
    return kind is not Failure.READ or BLAME not in core.policies


def _failed_unit(core: Core, lease: LeaseRow, event: Failed, kind: Failure) -> None:
    """Handle a failed unit: retry it, or fail its task; the units after it are put back."""
    stage = core.by_id[event.vertex]
    index = event.index
    name = task_name(stage.id, index)
    core.note(name, NoteKind.ATTEMPT_FAILED, lease.worker, kind.value, event.message, None)
    _attempt_has_failed(core, lease, kind, event)
    if not _is_gone(core, kind):
        event = replace(event, lost=None)
    if not may_retry(core, stage, index, kind, lease.worker, event.status):
        _fail_unit(core, lease, replace(event, message=event.message + not_among(stage, kind, event.status)), kind)
    elif stage.region >= 0:
        _keep_cause(stage, index, event, kind)
        for restart in core.hooks.region_failed:
            restart(core, lease, event)
    else:
        _keep_cause(stage, index, event, kind)
        pause = delay_of(core, stage, index, kind)
        delayed = pause > 0 and lease.cone is None
        if delayed:
            if stage.retry_at is None:
                stage.retry_at = {}
            stage.retry_at[index] = event.now + pause
            core.set_timer(event.now + pause, "retry", stage.id, index)
        put_back(core, lease, event.hi, lease.hi, delayed=index if delayed else -1)
        if FAILURES[kind].excludes and lease.worker in core.workers:
            for retried in core.hooks.task_retried:
                retried(core, stage, index, lease.worker)
        lose_unread(core, event, name)


def _keep_cause(stage: Stage, index: int, event: Failed, kind: Failure) -> None:
    """Keep a failure for lack of memory: the error of the task if no node has the memory for the retry."""
    if kind is Failure.MEMORY:
        stage.memory_failures = {**(stage.memory_failures or {}), index: event}


def _fail_unit(core: Core, lease: LeaseRow, event: Failed, kind: Failure) -> None:
    """Fail a task of a unit for good: tasks before it in the cone count, the rest of the unit is put back."""
    stage, index = core.by_id[event.vertex], event.index
    unit = index // next(mult for member, mult in lease.members if member is stage)
    put_back(core, lease, event.hi, unit)
    put_back(core, lease, unit + 1, lease.hi)
    executed: set[tuple[str, int]] = set()
    for task in lease.cone.tasks(unit) if lease.cone is not None else ():
        if task == (stage.id, index):
            break
        executed.add(task)
    redo: dict[int, Stage] = {}
    for member, mult in lease.members:
        for i in range(unit * mult, (unit + 1) * mult):
            member.executing -= 1
            if member.state[i] != lease.live:
                continue
            if (member.id, i) in executed:
                write(core, member, i, i + 1, lease.live, FREED)
                member.finished += 1
                member.over += 1
                release_inputs(core, member, ((i, i + 1),))
            else:
                write(core, member, i, i + 1, lease.live, UNSCHEDULED)
                if member is not stage or i != index:
                    redo[member.index] = member
    for member, _ in lease.members:
        if member.over == member.n:
            end(core, member)
    fatal(core, stage, index, kind, event.message, event.traceback, event.raised)
    if core.status in GOING:
        _region_goes_on(core, lease.stage)
        for member in redo.values():
            recount(core, member)
            mark(core, member, unit, unit + 1, UNSCHEDULED)
