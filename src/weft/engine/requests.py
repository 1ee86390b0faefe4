"""Requests to the pool: tasks that need more than a plain slot ask for it, one by one.

Plain tasks start on offers. A task with several cores, memory, GPUs, a placement or tokens beside its core sends an
`Acquire`, takes its tokens with it, and starts when the request is `Granted`. The requests of whole bubbles go through
the same events; the extension `bubbles` makes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.engine.agenda import Phase
from weft.engine.commands import Acquire, Release, Withdraw
from weft.engine.core import LeaseRow, RequestRow
from weft.engine.dispatch import give
from weft.engine.failures import fatal
from weft.engine.leases import ALONE, alone
from weft.engine.machines.job import GOING, JobState
from weft.engine.machines.vertex import ENDED
from weft.engine.notes import NoteKind
from weft.engine.readiness import unqueue
from weft.engine.rows import LEASED, READY, UNSCHEDULED, write
from weft.engine.settle import settle
from weft.engine.tokens import return_tokens, take_tokens
from weft.model.failures import Failure
from weft.model.ids import task_name

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.events import Deferred, Granted, Refused
    from weft.engine.physical import Stage

MOST_REQUESTS = 64
"""The largest number of open single-task requests of one stage."""


def serve(core: Core) -> None:
    """Request slots for the tasks of stages that need more than a plain slot."""
    asking = {stage.index: stage for stage in core.taken(Phase.REQUESTS)}
    going = core.status in GOING
    for stage in asking.values():
        if not going and stage.status not in ENDED:
            continue
        if stage.control is not None and stage.control.slots:
            _reuse_kept(core, stage)
        if stage.bubble >= 0:
            for due in core.hooks.bubble_due:
                due(core, stage)
        elif going and not (stage.plain or stage.light):  # otherwise it has just left its bubble
            ask(core, stage)


def _reuse_kept(core: Core, stage: Stage) -> None:
    """Start the tasks that restart on the slots that were kept for them; release those that are not needed any more."""
    control = stage.control
    assert control is not None
    for index, (worker, alternative, request) in list(control.slots.items()):
        state = stage.state[index]
        if control.held[index] or state not in (UNSCHEDULED, READY):
            release_kept(core, stage, index)
        elif state == READY:
            if not take_tokens(core, stage.resources[0]):
                core.token_waiters[stage.index] = stage
                return
            del control.slots[index]
            unqueue(stage, index, index + 1)
            write(core, stage, index, index + 1, READY, LEASED)
            lease = LeaseRow(core.fresh(), stage, index, index + 1, None, alone(stage), ALONE, worker, request)
            give(core, lease, core.requests[request].alternatives[alternative])


def release_kept(core: Core, stage: Stage, index: int) -> None:
    """Release the slot that is kept for a task."""
    assert stage.control is not None
    worker, _, request = stage.control.slots.pop(index)
    core.requests.pop(request, None)
    if worker in core.workers:
        core.out.append(Release(request, worker))


def _keeps_slot(core: Core, lease: LeaseRow) -> bool:
    """Return whether the task of an ended lease restarts on its slot: not after a fault of the worker, nor with more
    memory.
    """
    stage, index = lease.stage, lease.lo
    return (
        stage.control is not None
        and core.status is JobState.RUNNING
        and lease.worker in core.workers
        and stage.state[index] in (UNSCHEDULED, READY)
        and not stage.control.held[index]
        and index not in (stage.memory or ())
        and index not in (stage.avoid or ())
    )


def ask(core: Core, stage: Stage) -> None:
    """Request a slot for each ready task of a stage, as far as its tokens go."""
    special: list[int] = []
    if stage.memory:
        requested = {row.index for row in core.requests.values() if row.stage is stage}
        special = [i for i in sorted(stage.memory) if stage.state[i] == READY and i not in requested]
    while stage.ready.count > stage.request and stage.request < MOST_REQUESTS:
        if not take_tokens(core, stage.resources[0]):
            core.token_waiters[stage.index] = stage
            return
        index = special.pop(0) if special else -1
        alternatives = stage.resources
        if index >= 0:
            assert stage.memory is not None
            more = stage.memory[index]
            alternatives = tuple(replace(r, memory=max(r.memory, more)) for r in alternatives)
        request = core.fresh()
        stage.request += 1
        core.requests[request] = RequestRow(request, stage, index=index, alternatives=alternatives)
        avoid = avoided(core)
        if stage.avoid:
            failed = set(avoid).union(*stage.avoid.values()) & core.workers.keys()
            if len(failed) < len(core.workers):
                avoid = tuple(sorted(failed))
        wants = ((stage.id, 1, alternatives, stage.vertex.placement),)
        core.out.append(Acquire(request, wants, False, avoid, bound(core, [stage]), stage.vertex.priority))


def withdraw_surplus(core: Core, stage: Stage) -> None:
    """Withdraw requests of a stage for more tasks than are ready, the youngest first."""
    for row in [row for row in reversed(core.requests.values()) if row.stage is stage and not row.granted]:
        if stage.request <= stage.ready.count:
            return
        core.out.append(Withdraw(row.id))
        del core.requests[row.id]
        stage.request -= 1
        return_tokens(core, stage.resources[0])


def bound(core: Core, stages: list[Stage]) -> tuple[int, ...]:
    """Return the workers held by services that run until `stages` have ended."""
    if not core.services:
        return ()
    below = {stage.index for stage in stages}
    reached = list(stages)
    while reached:
        for link in reached.pop().outputs:
            if link.dst.index not in below:
                below.add(link.dst.index)
                reached.append(link.dst)
    needed = {
        service.index
        for service in core.services
        for link in service.outputs
        if link.edge.scheduling.concurrent and link.dst.index in below and link.dst.status not in ENDED
    }
    return tuple(sorted(row.worker for row in core.leases.values() if row.worker >= 0 and row.stage.index in needed))


def avoided(core: Core) -> tuple[int, ...]:
    """Return the excluded workers, in order."""
    return tuple(sorted(core.avoided.keys() & core.workers.keys())) if core.avoided else ()


def granted(core: Core, event: Granted) -> None:
    """Start the tasks of a granted request, or release slots that are not needed any more."""
    row = core.requests.get(event.request)
    if row is None or core.status not in GOING:
        if core.requests.pop(event.request, None) is not None and row is not None and row.stage is not None:
            return_tokens(core, row.stage.resources[0])
        core.out.extend(Release(event.request, worker) for _, worker, _ in event.slots)
        return
    row.granted = True
    settle(core)  # what a started task reads must be there
    if row.stage is not None:
        _granted_stage(core, row, event)
        return
    for started in core.hooks.bubble_granted:
        started(core, row, event)


def _granted_stage(core: Core, row: RequestRow, event: Granted) -> None:
    stage = row.stage
    assert stage is not None
    stage.request -= 1
    _, worker, alternative = event.slots[0]
    row.alternative = alternative
    wants = row.alternatives[alternative]
    index = row.index if row.index >= 0 else ordinary_task(stage)
    startable = index >= 0 and stage.state[index] == READY
    if not startable or worker not in core.workers:
        core.requests.pop(row.id)
        return_tokens(core, stage.resources[0])
        core.out.append(Release(row.id, worker))
        if stage.ready.count:
            core.later(Phase.REQUESTS, stage)
        return
    unqueue(stage, index, index + 1)
    write(core, stage, index, index + 1, READY, LEASED)
    lease = LeaseRow(core.fresh(), stage, index, index + 1, None, alone(stage), ALONE, worker, row.id)
    give(core, lease, wants)


def ordinary_task(stage: Stage) -> int:
    """Return the first ready task with the resources of its vertex, -1 if there is none."""
    special = stage.memory or ()
    return next((i for lo, hi in stage.ready for i in range(lo, hi) if i not in special), -1)


def slot_over(core: Core, lease: LeaseRow, *, worker_alive: bool) -> None:
    """Release the slot of an ended lease, or leave it to its bubble."""
    row = core.requests.get(lease.request)
    if row is None:
        return
    stage = lease.stage
    if row.stage is not None:
        if _keeps_slot(core, lease):
            assert stage.control is not None
            stage.control.slots[lease.lo] = (lease.worker, row.alternative, row.id)
            core.later(Phase.REQUESTS, stage)
            return
        core.requests.pop(row.id)
        if worker_alive:
            core.out.append(Release(row.id, lease.worker))
        if stage.ready.count:
            core.later(Phase.REQUESTS, stage)
        return
    for over in core.hooks.bubble_slot_over:
        over(core, lease, worker_alive)


def deferred(core: Core, event: Deferred) -> None:
    """Record in the history of the bubble or task that its request waits for nodes to join."""
    row = core.requests.get(event.request)
    if row is None:
        return
    subject = core.bubbles[row.bubble].bubble.id if row.stage is None else row.stage.id
    if row.stage is None:
        core.bubbles[row.bubble].reason = event.reason
    if row.stage is not None and row.index >= 0:
        subject = task_name(row.stage.id, row.index)
    core.note(subject, NoteKind.NODES_AWAITED, event.reason)


def refused(core: Core, event: Refused) -> None:
    """Fail the task of a request that can never be met; a bubble shrinks."""
    row = core.requests.pop(event.request, None)
    if row is None:
        return
    stage = row.stage
    if stage is None:
        for shrink in core.hooks.bubble_refused:
            shrink(core, row, event)
        return
    stage.request -= 1
    return_tokens(core, stage.resources[0])
    if not event.reason or core.status not in GOING:
        return
    index = row.index if row.index >= 0 else ordinary_task(stage)
    if index >= 0 and stage.state[index] == READY:
        unqueue(stage, index, index + 1)
        first = (stage.memory_failures or {}).get(index)
        if first is None:
            fatal(core, stage, index, Failure.CAPACITY, event.reason)
        else:
            message = f"{first.message}\nIt does not run again with more memory: {event.reason}"
            fatal(core, stage, index, Failure.MEMORY, message, first.traceback, first.raised)
    if stage.ready.count:
        core.later(Phase.REQUESTS, stage)  # its tokens are free for the next lease
