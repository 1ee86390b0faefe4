"""The events of a process that takes over a job, and its queries of the restored state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from weft.engine.events import Done, Event, Failed, GaveBack, Unanswered, WorkerLost
from weft.engine.machines.job import GOING, JobState
from weft.engine.machines.lease import ACTIVE
from weft.engine.machines.vertex import VertexState
from weft.model.digests import hex_digest
from weft.model.failures import Failure

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.tuning import Tuning

_IDS = 40
"""The bits for the numbers of one incarnation: leases of two incarnations never share a number."""


class Epoch(Struct, frozen=True):
    """The start of another process that continues the job, with another tuning if one is given.

    The first process is incarnation 0.
    """

    incarnation: int
    tuning: Tuning | None = None


def begin(core: Core, epoch: Epoch) -> None:
    """Begin a new incarnation: its leases, requests and timers have new numbers."""
    core.counter = max(core.counter, epoch.incarnation << _IDS)
    if epoch.tuning is not None:
        core.tuning = epoch.tuning


def losses(core: Core, now: float, reason: str = "the process that ran it is gone") -> list[Event]:
    """Return the events that report, at `now`, the loss of all workers and of their work.

    Running tasks are put back without a counted failure; streaming tasks restart with their whole region. Other jobs
    may have computed the claimed cache entries meanwhile, so these are probed again.
    """
    events: list[Event] = [Unanswered(now)] if any(stage.probed for stage in core.stages) else []
    events += [
        Failed(now, lease.id, lease.lo, lease.stage.id, lease.lo, Failure.STOPPED, reason)
        for lease in core.speculative.values()
        if lease.id not in core.leases
    ]
    for lease in core.leases.values():
        stage, mult = lease.members[0]
        if lease.state not in ACTIVE or stage.status is VertexState.DRAINING:  # no task waits for it any more
            events.append(Failed(now, lease.id, lease.lo, stage.id, lease.lo * mult, Failure.STOPPED, reason))
        elif any(member.region >= 0 for member, _ in lease.members):
            events.append(Failed(now, lease.id, lease.lo, stage.id, lease.lo * mult, Failure.INFRASTRUCTURE, reason))
        else:
            events += (GaveBack(now, lease.id, lease.lo), Done(now, lease.id, lease.lo))
    events.extend(WorkerLost(now, worker, reason) for worker in core.workers)
    return events


def may_go_on(core: Core) -> bool:
    """Return whether a job runs without any failure, so that a resume continues it."""
    if core.control is not None and core.verdict is JobState.SUCCEEDED and core.cause is None:
        return core.status in (JobState.CONCLUDING, JobState.ENDING)
    bad = (VertexState.FAILED, VertexState.CANCELLED)
    return core.status in GOING and core.cause is None and all(stage.status not in bad for stage in core.stages)


def digest(core: Core) -> str:
    """Return a digest of the state of a job: equal for two masters that would decide alike."""
    known: list[Any] = [
        core.status.value,
        core.now,
        core.counter,
        core.unended,
        core.held,
        None if core.verdict is None else core.verdict.value,
        core.cause,
        core.cancel_reason,
        sorted(core.tokens.items()),
        sorted(core.emitted),
        sorted(core.answered),
        sorted((name, row.taken) for name, row in core.choices.items()),
        sorted((edge, [int(size) for size in sums]) for edge, sums in core.stats.items()),
        sorted((number, row.node) for number, row in core.workers.items()),
        sorted((node, heap) for node, heap in core.heaps.items()),
        sorted((number, row.bubble, row.index, row.granted) for number, row in core.requests.items()),
        sorted(core.timers.items()),
        [(row.index, row.state.value, row.request, sorted(row.slots.items())) for row in core.bubbles],
        [(lease.id, lease.lo, lease.hi, lease.worker, lease.live, lease.state.value) for lease in core.leases.values()],
        sorted((id, other.id, other.worker, other.state.value) for id, other in core.speculative.items()),
        sorted((id, lease.worker, lease.state.value) for id, lease in core.cancelled.items()),
        sorted(core.doomed.items()),
        (
            list(core.faults),
            sorted(core.avoided.items()),
            sorted(core.readmitted.items()),
            list(core.elsewhere.items()),
        ),
        None
        if core.control is None
        else (core.control.memo, core.control.requests, core.control.offset, core.control.timer, core.control.due),
        (core.backups_wanted, sorted(core.weights.items()), sorted(core.shrunk.items()), sorted(core.memos.items())),
    ]
    known.extend(
        (
            stage.id,
            stage.n,
            stage.status.value,
            bytes(stage.state),
            (stage.finished, stage.over, stage.executing, stage.closed, stage.released, int(stage.rows)),
            stage.ready.spans,
            None if stage.missing is None else list(stage.missing),
            None if stage.refs is None else list(stage.refs),
            sorted((stage.attempts or {}).items()),
            (float(stage.seconds), float(stage.nbytes), stage.last_width, stage.memo),
            stage.control,
        )
        for stage in core.stages
    )
    return hex_digest(repr(known).encode())
