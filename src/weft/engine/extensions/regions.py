"""Restart regions: vertices joined by streams, which restart together.

What was streamed is not stored. So after a failure of one task, all leases of its region stop, and the region starts
from its beginning, inside its bubble, once the last lease has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.engine.agenda import Phase
from weft.engine.commands import Restart
from weft.engine.core import Growth, Hooks
from weft.engine.describe import forget_specs
from weft.engine.endings import lose_unread
from weft.engine.extensions.bubbles import form_again, give_back
from weft.engine.extensions.registry import Extension
from weft.engine.leases import stop
from weft.engine.lineage import drop
from weft.engine.machines.bubble import BubbleState
from weft.engine.machines.job import GOING
from weft.engine.machines.lease import ACTIVE
from weft.engine.machines.vertex import ENDED
from weft.engine.notes import NoteKind
from weft.engine.readiness import count_refs, recount, runs_again, shut_gates
from weft.engine.rows import CANCELLED, FATAL, FINISHED, READY, SKIPPED, UNSCHEDULED, write_mixed
from weft.engine.settle import mark
from weft.graph.logical import Storage, VertexKind
from weft.model.ids import task_name

if TYPE_CHECKING:
    from weft.engine.core import BubbleRow, Core, LeaseRow
    from weft.engine.events import Failed
    from weft.engine.physical import PhysicalEdge, Stage


def _graph_changed(core: Core, growth: Growth) -> None:
    if any(_joins(link) for links in (growth.links, growth.dropped) for link in links):
        derive(core)


def _joins(link: PhysicalEdge) -> bool:
    """Return whether the ends of a link restart together."""
    return link.edge.storage is Storage.EPHEMERAL and link.src.vertex.kind is VertexKind.FINITE


def derive(core: Core) -> None:
    """Join the stages connected by EPHEMERAL edges from FINITE sources: they restart together."""
    group: dict[int, list[Stage]] = {}
    for stage in core.stages:
        stage.region = -1
    for link in core.links.values():
        if not _joins(link):
            continue
        a = group.get(link.src.index, [link.src])
        b = group.get(link.dst.index, [link.dst])
        if a is not b:
            a.extend(b)
        for stage in a:
            group[stage.index] = a
    core.regions = []
    for stage in core.stages:
        members = group.get(stage.index)
        if members is not None and stage.region < 0:
            for member in members:
                member.region = len(core.regions)
            core.regions.append(members)


def _failed(core: Core, lease: LeaseRow, event: Failed) -> None:
    """Restart the region of a failed task."""
    stage, name = core.by_id[event.vertex], task_name(event.vertex, event.index)
    put_back(core, lease)
    if event.lost is not None and core.by_id[event.lost[0]].region != stage.region:
        lose_unread(core, event, name)
    restart(core, stage, f"{name} failed")


def _stopped(core: Core, lease: LeaseRow) -> None:
    put_back(core, lease)
    region_quiet(core, lease.stage.region)


def put_back(core: Core, lease: LeaseRow) -> None:
    """Reset the tasks of a lease; the restart of the region makes them ready."""
    for stage, lo, hi in lease.spans():
        write_mixed(core, stage, lo, hi, UNSCHEDULED)
        stage.executing -= hi - lo
        if stage.restarting:
            recount(core, stage)  # its inputs may have been lost meanwhile
        if stage.early:
            shut_gates(core, stage)
        mark(core, stage, lo, hi, UNSCHEDULED)  # a source may have failed meanwhile


def restart(core: Core, stage: Stage, why: str) -> bool:
    """Stop all leases in the region of `stage` for a common restart; False if it has no region."""
    if stage.region < 0 or core.status not in GOING:
        return False
    members = core.regions[stage.region]
    core.note(stage.id, NoteKind.REGION_RESTARTS, why)
    for lease in core.leases.values():
        if lease.stage in members and lease.state in ACTIVE:
            stop(core, lease, "region_restart", "region restart")
    for member in members:
        if not member.restarting and member.n >= 0:
            member.restarting = True
            recount(core, member)
    region_quiet(core, stage.region)
    return True


def _goes_on(core: Core, stage: Stage) -> None:
    """Restart the region of `stage` if it waits for the end of this lease, which was not stopped for the region."""
    if core.status in GOING and any(member.restarting for member in core.regions[stage.region]):
        region_quiet(core, stage.region)


def _restart_needed(core: Core) -> None:
    """Restart the regions with outputs to recompute: their streamed inputs are not stored."""
    for stage in core.taken(Phase.RESTARTS):
        if not stage.restarting:
            restart(core, stage, "what was streamed to make its outputs is gone")


def region_quiet(core: Core, region: int) -> None:
    """Put a restarting region back to the start if none of its leases runs any more."""
    members = core.regions[region]
    if any(lease.stage in members for lease in core.leases.values()):
        return
    core.out.append(Restart(tuple(stage.id for stage in members)))
    forget_specs(core, members)
    held = [stage for stage in members if stage.restarting]
    for stage in held:
        stage.restarting = False
    bubbles: list[BubbleRow] = []
    again: list[Stage] = []
    for stage in members:
        if not _back_to_start(core, stage):
            continue
        again.append(stage)
        if stage.bubble >= 0 and core.bubbles[stage.bubble] not in bubbles:
            bubbles.append(core.bubbles[stage.bubble])
    for row in bubbles:
        if row.state is BubbleState.HELD:
            for slots in row.slots.values():
                give_back(core, slots)
            row.slots.clear()
            form_again(core, row, "region_restart")
        elif row.state is BubbleState.DONE:
            form_again(core, row, "output_lost")
    for stage in sorted({*again, *held}, key=lambda s: s.index):
        recount(core, stage)
        for link in stage.inputs:
            if link.src.refs is not None:
                link.src.refs = count_refs(link.src)
        if stage.bubble >= 0:
            core.later(Phase.REQUESTS, stage)
    core.later(Phase.WANTED, *again)


def _back_to_start(core: Core, stage: Stage) -> bool:
    """Reset a stage of a restarting region; False if it has no task to run."""
    anew = 0
    there = [i for i in range(stage.n) if stage.state[i] == FINISHED]
    for i in range(stage.n):
        if stage.state[i] in (FATAL, CANCELLED, SKIPPED, UNSCHEDULED, READY):
            anew += stage.state[i] in (UNSCHEDULED, READY)
            continue
        write_mixed(core, stage, i, i + 1, UNSCHEDULED)
        anew += 1
    stage.executing = 0
    if there:
        drop(core, stage, there)
    if not anew:
        return False
    if stage.status in ENDED:
        runs_again(core, stage)
    return True


EXTENSION: Final = Extension(
    "regions",
    phases={Phase.RESTARTS: _restart_needed},
    hooks=Hooks(
        graph_changed=(_graph_changed,),
        edge_changed=(derive,),
        region_failed=(_failed,),
        region_stopped=(_stopped,),
        region_goes_on=(_goes_on,),
    ),
)
