"""Stops of a part of a job by its users: tasks that are cancelled, and vertices that end early as a success.

A cancelled task ends as a failed one does, without a retry and without effect on tasks that do not need it. It is
*doomed* until it has ended: `Core.doomed` has it, and each tick looks at the doomed tasks before anything else. One
without a worker ends at once. The lease of a running one is recalled: what it has finished counts, its other tasks are
put back, and the doomed one ends in that tick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.engine.agenda import Phase
from weft.engine.commands import Free
from weft.engine.core import Hooks
from weft.engine.endings import commit, put_back
from weft.engine.events import Done, FinishRequested, TaskCancelRequested
from weft.engine.extensions.registry import Extension
from weft.engine.failures import fatal
from weft.engine.leases import stop, stop_both
from weft.engine.machines.job import GOING
from weft.engine.machines.lease import ACTIVE, LeaseState
from weft.engine.notes import NoteKind
from weft.engine.readiness import check_gates
from weft.engine.requests import withdraw_surplus
from weft.engine.rows import NOT_STARTED, OVER
from weft.engine.settle import finish_early
from weft.graph.logical import VertexKind
from weft.model.failures import Failure
from weft.model.ids import task_name

if TYPE_CHECKING:
    from weft.engine.core import Core, LeaseRow
    from weft.engine.events import Failed
    from weft.engine.physical import Stage

_REVOCABLE: Final = frozenset({*ACTIVE, LeaseState.NARROWED, LeaseState.TIMED_OUT})
"""The states in which the other attempt at the tasks of an active lease can be revoked."""


def requested(core: Core, event: TaskCancelRequested) -> None:
    """Doom tasks that have not ended; those of a controller are its own."""
    stage = core.by_id.get(event.vertex)
    if stage is None or stage.control is not None or core.status not in GOING:
        return
    for index in range(max(event.lo, 0), min(event.hi, stage.n)):
        if stage.state[index] not in OVER:
            core.doomed.setdefault((stage.index, index), event.reason)
    if core.doomed:
        core.later(Phase.CANCELS)


def finish_requested(core: Core, event: FinishRequested) -> None:
    """End a vertex early, or all but the final ones. Services follow their consumers, controlled vertices their
    controller.
    """
    if core.status not in GOING:
        return
    for stage in list(core.order):
        wanted = stage.id == event.vertex if event.vertex else not stage.vertex.final
        if wanted and stage.control is None and stage.vertex.kind is not VertexKind.SERVICE:
            finish_early(core, stage, event.reason)
            _ask_for_fewer(core, stage)


def end_doomed(core: Core) -> None:
    """End the doomed tasks that have no worker, and stop the leases of the others."""
    if core.status not in GOING:
        core.doomed.clear()
        return
    for (at, index), reason in list(core.doomed.items()):
        stage = core.stages[at]
        state = stage.state[index]
        if state in OVER:
            del core.doomed[at, index]
        elif state in NOT_STARTED:
            del core.doomed[at, index]
            _end(core, stage, index, reason)
    if core.doomed:
        for lease in list(core.leases.values()):
            if lease.state in ACTIVE and (found := _doomed(core, lease)):
                _recall(core, lease, *found[0])


def _end(core: Core, stage: Stage, index: int, reason: str) -> None:
    fatal(core, stage, index, Failure.CANCELLED, reason)
    _ask_for_fewer(core, stage)
    if stage.early:
        check_gates(core, stage)
    if stage.region >= 0:
        for goes_on in core.hooks.region_goes_on:
            goes_on(core, stage)


def _ask_for_fewer(core: Core, stage: Stage) -> None:
    """Withdraw the requests for slots of tasks that do not start."""
    if stage.bubble >= 0:
        core.later(Phase.REQUESTS, stage)  # its bubble may be complete without them
    elif stage.request:
        withdraw_surplus(core, stage)


def _doomed(core: Core, lease: LeaseRow) -> list[tuple[int, Stage, int]]:
    """Return (unit, stage, index) of the doomed tasks of a lease, in the order of units."""
    found = []
    for stage, mult in lease.members:
        lo, hi = lease.lo * mult, lease.hi * mult
        found += [(index // mult, stage, index) for at, index in core.doomed if at == stage.index and lo <= index < hi]
    return sorted(found, key=lambda each: each[0])


def _recall(core: Core, lease: LeaseRow, unit: int, stage: Stage, index: int) -> None:
    """Stop a lease with a doomed task, and the other attempt at it."""
    reason = core.doomed[stage.index, index]
    other = core.speculative.get(lease.id)
    if other is None:
        stop(core, lease, "recalled", reason)
    elif other.state in _REVOCABLE:
        stop_both(core, lease, "inputs_lost", reason)  # both start over, but for the doomed task
    else:
        return  # it ends first
    core.note(task_name(stage.id, index), NoteKind.CANCELLING, reason)


def recalled(core: Core, lease: LeaseRow, event: Done | Failed) -> None:
    """Commit what a recalled lease has finished, and put back the rest with the doomed tasks, which end then."""
    hi = max(min(event.hi, lease.hi), lease.lo)
    if isinstance(event, Done) and lease.cone is not None and 0 <= event.reached < len(lease.cone.members) - 1:
        hi = lease.lo  # a chain that stopped on its way has not finished its unit
    begin, at = lease.lo, lease.lo
    for unit in (*dict.fromkeys(unit for unit, _, _ in _doomed(core, lease)), hi):
        if unit > hi:
            continue
        if unit > at:
            commit(core, lease, at, unit, _part(event, begin, at, unit))
        if unit < hi:
            if lease.stage.vertex.kind is not VertexKind.SERVICE:
                core.out.append(Free(lease.stage.id, unit, unit + 1))
            put_back(core, lease, unit, unit + 1)
        at = max(at, unit + 1)
    put_back(core, lease, hi, lease.hi)
    core.later(Phase.CANCELS)


def _part(event: Done | Failed, begin: int, lo: int, hi: int) -> Done:
    """Return the report of units `lo:hi` alone, of a lease from `begin` on."""
    whole = event.hi - begin
    sizes, values = getattr(event, "sizes", None), getattr(event, "values", None)
    return Done(
        event.now,
        event.lease,
        hi,
        event.seconds * (hi - lo) / whole,
        event.nbytes * (hi - lo) // whole,
        sizes=None if sizes is None else sizes[lo - begin : hi - begin],
        values=None if values is None else values[lo - begin : hi - begin],
    )


EXTENSION: Final = Extension(
    "cancels",
    before={TaskCancelRequested: requested, FinishRequested: finish_requested},
    phases={Phase.CANCELS: end_doomed},
    hooks=Hooks(lease_recalled=(recalled,)),
)
