"""Recomputation of lost outputs: the minimal set of tasks, found backwards from the remaining consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.engine.agenda import Phase
from weft.engine.commands import Free
from weft.engine.leases import stop, stop_both
from weft.engine.machines.job import GOING, JobState
from weft.engine.machines.lease import ACTIVE
from weft.engine.machines.vertex import ENDED
from weft.engine.notes import NoteKind
from weft.engine.readiness import advance, count_refs, recount
from weft.engine.rows import FINISHED, FREED, LOST, NOT_STARTED, UNSCHEDULED, write
from weft.graph.logical import VertexKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.engine.core import Core, LeaseRow
    from weft.engine.physical import PhysicalEdge, Stage

AGAIN = "what it reads is made again"


def lose(core: Core, stage: Stage, indices: Iterable[int], reason: str) -> None:
    """Mark the lost outputs of these tasks as LOST, recompute the needed ones, drop the rest."""
    gone = [i for i in indices if stage.state[i] == FINISHED]
    if core.status not in GOING or _settled(core, stage):  # the job is ending: no recomputation
        for i in gone:
            write(core, stage, i, i + 1, FINISHED, FREED)
        return
    for i in gone:
        write(core, stage, i, i + 1, FINISHED, LOST)
    if core.faults:  # an unreadable input is being recomputed
        was = {(stage.id, i) for i in gone}
        kept = [fault for fault in core.faults if fault.unread not in was]
        core.faults.clear()
        core.faults.extend(kept)
    if gone:
        core.note(stage.id, NoteKind.OUTPUTS_LOST, len(gone), gone[0], reason)
        remake(core)


def _settled(core: Core, stage: Stage) -> bool:
    """Return whether a stage has ended with a failed or cancelled job, of which only final vertices run."""
    return core.verdict is not None and core.verdict is not JobState.SUCCEEDED and not stage.vertex.final


def missing_inputs(stage: Stage, lo: int, hi: int) -> bool:
    """Return whether an output that tasks `lo:hi` read is lost, so that they cannot simply run again."""
    for link in stage.inputs:
        router = link.router
        if router is None or link.src.n <= 0:
            continue
        if link.freed_parts and any(d in link.freed_parts for d in range(lo, hi)):
            return True
        state = link.src.state
        if link.wide:
            if state.count(FREED):
                return True
            continue
        for d in range(lo, hi):
            if any(state.count(FREED, a, b) for a, b, _, _ in router.inputs(d)):
                return True
    return False


def remake(core: Core, again: Stage | None = None) -> None:
    """Walk the graph against the edges and put back to UNSCHEDULED every task whose lost output is still needed.

    `again` is a stage some of whose tasks went back to UNSCHEDULED and may need outputs that were dropped meanwhile. A
    task in a restart region cannot be recomputed alone, since its input streams have ended: the region restarts.
    """
    touched: set[int] = set() if again is None else {again.index}
    for stage in reversed(core.order):
        if stage.n <= 0 or stage is again or _settled(core, stage):
            continue
        state = stage.state
        lost = state.count(LOST)
        if not lost and not state.count(FREED) and not any(link.freed_parts for link in stage.outputs):
            continue
        if not lost and not any(link.dst.index in touched for link in stage.outputs):
            continue
        anew = 0
        for i in range(stage.n):
            if state[i] == LOST:
                if wanted(stage, i):
                    write(core, stage, i, i + 1, LOST, UNSCHEDULED)
                    anew += 1
                else:
                    write(core, stage, i, i + 1, LOST, FREED)
            elif state[i] == FREED and wanted(stage, i):
                write(core, stage, i, i + 1, FREED, UNSCHEDULED)
                anew += 1
        partial = [link for link in stage.outputs if link.freed_parts]
        if any(link.dst.state[p] in NOT_STARTED for link in partial for p in link.freed_parts or ()):
            # A freed piece is needed again: outputs are written whole, so all pieces are recomputed.
            there = [i for i in range(stage.n) if state[i] == FINISHED]
            for i in there:
                write(core, stage, i, i + 1, FINISHED, UNSCHEDULED)
            anew += len(there)
            drop(core, stage, there)
            for link in partial:
                link.freed_parts = None
        if anew:
            core.note(stage.id, NoteKind.RUN_AGAIN, anew)
            touched.add(stage.index)
            if stage.status in ENDED:
                stage.again = True
                advance(core, stage, "output_lost")
                core.unended += 1
    if not touched:
        return
    near = set(touched)
    for index in touched:
        near.update(link.dst.index for link in core.stages[index].outputs)
        near.update(link.src.index for link in core.stages[index].inputs)
    for stage in core.order:
        if stage.index in near:
            recount(core, stage)
    for stage in core.order:
        if stage.index in near and stage.refs is not None:
            stage.refs = count_refs(stage)
    for stage in core.order:
        if stage.index in near:
            core.later(Phase.DEPENDENTS, (stage, 0, stage.n, UNSCHEDULED))
    for stage in core.order:
        if stage.index in touched and stage is not again and stage.region >= 0 and not stage.restarting:
            core.later(Phase.RESTARTS, stage)


def drop(core: Core, stage: Stage, indices: Sequence[int]) -> None:
    """Free outputs that exist and are to be recomputed, and restart the tasks that read them now.

    Readers of a concurrent edge wait for the unread rest; services are unaffected.
    """
    for lease in list(core.leases.values()):
        if (
            lease.state in ACTIVE
            and lease.stage.vertex.kind is not VertexKind.SERVICE
            and _reads_now(lease, stage, indices)
        ):
            _start_again(core, lease)
    core.out.extend(Free(stage.id, i, i + 1) for i in indices)


def _reads_now(lease: LeaseRow, stage: Stage, indices: Sequence[int]) -> bool:
    for member, mult in lease.members:
        for link in member.inputs:
            router = link.router
            if link.src is not stage or not link.data or router is None or link.edge.scheduling.concurrent:
                continue
            lo, hi = lease.lo * mult, lease.hi * mult
            if link.wide or any(a < hi and b > lo for i in indices for a, b in router.consumers(i)):
                return True
    return False


def _start_again(core: Core, lease: LeaseRow) -> None:
    """Stop a lease whose inputs are recomputed; its tasks run again afterwards, with their region, if they have one."""
    if lease.stage.region >= 0:
        stop(core, lease, "region_restart", "region restart")  # before the rest of its region: its inputs are freed
        core.later(Phase.RESTARTS, lease.stage)
    else:
        stop_both(core, lease, "inputs_lost", AGAIN)


def wanted(stage: Stage, index: int) -> bool:
    """Return whether output `index` is a result, or is read by a consumer that has not started."""
    if stage.vertex.keep:
        return True
    return any(_reads(link, index) for link in stage.outputs if link.data)


def _reads(link: PhysicalEdge, index: int) -> bool:
    router = link.router
    if router is None:
        return True  # a consumer of unknown parallelism
    state = link.dst.state
    for a, b in router.consumers(index):
        for wanted in NOT_STARTED:
            if state.count(wanted, a, b):
                return True
    return False
