"""Speculative execution: late tasks run again on another worker, and the first attempt to commit wins.

The job's policy (`policies.stragglers`) selects the leases to back up; it is called at intervals while the job runs.
Both attempts of a lease, and their ends, are in `leases`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.engine.agenda import Phase
from weft.engine.commands import Launch, Shrink, Weigh
from weft.engine.core import LeaseRow
from weft.engine.decisions import BackUp, WeighTasks
from weft.engine.describe import specs_of
from weft.engine.dispatch import expected_bytes, unserved
from weft.engine.events import JobSubmitted, Weighed
from weft.engine.extensions.registry import Extension
from weft.engine.failures import has_crashed
from weft.engine.machines.job import GOING
from weft.engine.machines.lease import ACTIVE
from weft.engine.notes import NoteKind
from weft.engine.policy import STRAGGLERS, AttemptView, WatchView
from weft.engine.rows import FINISHED, FREED, SKIPPED
from weft.graph.logical import Outcome, Trigger, VertexKind

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.physical import PhysicalEdge, Stage

_SAMPLE = 16


# ------------------------------------------------------------------------------------------------------- looking


def watch(core: Core, _: JobSubmitted) -> None:
    """Set the first timer of the speculation policy, if the job has one and it is on."""
    if core.tuning.backups and STRAGGLERS in core.policies and core.status in GOING:
        core.set_timer(core.now + core.tuning.looks_s[0], "look")


def look_again(core: Core) -> None:
    """Call the policy, and set its next timer: four calls in the expected time of a lease.

    A job without a lease waits for its turn. It waits twice as long at each call, since thousands of such jobs must
    cost nothing.
    """
    if not core.tuning.backups:
        return  # the job was resumed without backups
    age = core.now - core.started_at
    pause = age
    if core.leases:
        usual = [attempt.seconds for attempt in look(core).attempts if attempt.seconds >= 0]
        pause = min(usual) / 4 if usual else age / 8
    shortest, longest = core.tuning.looks_s
    core.set_timer(core.now + min(max(pause, shortest), longest), "look")


def look(core: Core) -> WatchView:
    """Call the policy and apply its decisions; return its view."""
    live = [lease for lease in core.leases.values() if may_back_up(core, lease)]
    if core.weights:
        core.weights = {id: weight for id, weight in core.weights.items() if id in core.leases}
    backups = len(core.speculative) // 2
    view = WatchView(core.now, len(core.workers), backups, tuple(_attempt(core, lease) for lease in live))
    policy = core.policies[STRAGGLERS]
    decisions, core.memos[STRAGGLERS] = policy.decide(view, core.memos.get(STRAGGLERS))
    core.backups_wanted = []
    for decision in decisions:
        lease = core.leases.get(decision.lease) if isinstance(decision, BackUp | WeighTasks) else None
        if lease is None:
            continue
        if isinstance(decision, WeighTasks):
            if lease.id in core.weights:
                continue  # the command was sent before
            core.weights[lease.id] = 0.0
            core.out.append(Weigh(lease.id, tuple((s.id, lo, hi) for s, lo, hi in _starts(lease))))
        elif isinstance(decision, BackUp) and not _revoke_tail(core, lease):
            core.backups_wanted.append((lease.id, decision.reason))
    return view


def may_back_up(core: Core, lease: LeaseRow) -> bool:
    """Return whether the tasks of a lease may run twice at a time: all idempotent, on a plain slot, in no bubble.

    Events of a task take effect at once: vertices that have emitted an event get no backup. Neither does a task that
    has crashed a worker: it could crash two more at once.
    """
    loud = {vertex for vertex, _ in core.emitted}
    return (
        lease.worker >= 0
        and not lease.request
        and lease.state in ACTIVE
        and all(
            stage.vertex.idempotent
            and stage.vertex.kind is VertexKind.FINITE
            and stage.bubble < 0
            and stage.region < 0
            and stage.id not in loud
            for stage, _ in lease.members
        )
        and not any(has_crashed(stage, lo, hi) for stage, lo, hi in lease.spans())
    )


def _attempt(core: Core, lease: LeaseRow) -> AttemptView:
    root = lease.stage
    stage, lo, hi = _starts(lease)[0]
    weight = core.weights.get(lease.id, 0.0)
    if not weight and not _usual_bytes(lease):
        weight = 1.0
    return AttemptView(
        lease.id,
        root.id,
        lease.lo,
        lease.hi,
        lease.worker,
        root.finished,
        root.n,
        stage.seconds * (hi - lo) if stage.seconds >= 0 else -1.0,
        weight,
        lease.id in core.speculative,
        core.backups.get((root.index, lease.lo), 0),
    )


def _starts(lease: LeaseRow) -> list[tuple[Stage, int, int]]:
    """Return the first tasks of a lease."""
    if lease.cone is None:
        return [(lease.stage, lease.lo, lease.hi)]
    return [(s, lease.lo * mult, lease.hi * mult) for s, mult in lease.members if s.index in lease.leaves]


def _usual_bytes(lease: LeaseRow) -> float:
    """Return the average input bytes of as many tasks of these vertices, 0 if unknown."""
    return sum((hi - lo) * _mean(link) for stage, lo, hi in _starts(lease) for link in stage.inputs)


def _mean(link: PhysicalEdge) -> float:
    router, src, n = link.router, link.src, link.dst.n
    if router is None or src.nbytes <= 0 or link.edge.scheduling.concurrent:
        return 0.0
    if link.wide:
        return src.nbytes * src.n / (n if router.partitions else 1)
    step = max(1, n // _SAMPLE)
    some = range(0, n, step)
    return src.nbytes * sum(map(router.fan_in, some)) / len(some)


def weighed(core: Core, event: Weighed) -> None:
    """Record the ratio of the input bytes of a lease to the usual number, and call the policy again."""
    lease = core.leases.get(event.lease)
    usual = _usual_bytes(lease) if lease is not None else 0.0
    if not usual or STRAGGLERS not in core.policies:
        return
    core.weights[event.lease] = max(event.nbytes / usual, 1e-9)
    look(core)


def _revoke_tail(core: Core, lease: LeaseRow) -> bool:
    """Revoke the tail of a late lease first; False if it has none, so that the rest needs a backup."""
    if any(type(command) is Shrink and command.lease == lease.id for command in core.out):
        return True
    if lease.hi - lease.lo < 2 or core.shrunk.get(lease.id) == lease.hi:
        return False
    core.shrunk = {id: hi for id, hi in core.shrunk.items() if id in core.leases}
    core.shrunk[lease.id] = lease.hi
    core.out.append(Shrink(lease.id))
    return True


# ------------------------------------------------------------------------------------------------------ starting


def launch(core: Core) -> None:
    """Lease backups to idle workers, on another node where possible."""
    if core.status not in GOING:
        core.backups_wanted = []
        return
    free = unserved(core, core.offered)[::-1]
    if core.avoided:
        free = [w for w in free if w not in core.avoided]
    left: list[tuple[int, str]] = []
    for id, reason in core.backups_wanted:
        lease = core.leases.get(id)
        if lease is None or id in core.speculative or not may_back_up(core, lease) or not _can_start(lease):
            continue
        if not free:
            left.append((id, reason))
            continue
        slow = core.workers[lease.worker].node
        worker = next((w for w in free if core.workers[w].node != slow), free[0])
        free.remove(worker)
        _start(core, lease, worker, reason)
    core.backups_wanted = left


def _can_start(lease: LeaseRow) -> bool:
    """Return whether a lease has unfinished units whose inputs all still exist."""
    inside = {stage.index for stage, _ in lease.members}
    return lease.lo < lease.hi and all(
        _is_there(link, lease.lo * mult, lease.hi * mult)
        for stage, mult in lease.members
        for link in stage.inputs
        if link.data and link.src.index not in inside and not link.edge.scheduling.concurrent
    )


def _is_there(link: PhysicalEdge, lo: int, hi: int) -> bool:
    router, state, scheduling = link.router, link.src.state, link.edge.scheduling
    if router is None or (link.freed_parts and not link.freed_parts.isdisjoint(range(lo, hi))):
        return False
    spans = [(0, link.src.n)] if link.wide else [(a, b) for d in range(lo, hi) for a, b, _, _ in router.inputs(d)]
    if scheduling.when is not Trigger.ALL_DONE or scheduling.outcome is not Outcome.SUCCESS:
        return not any(state.count(FREED, a, b) for a, b in spans)
    return all(state.count(FINISHED, a, b) + state.count(SKIPPED, a, b) == b - a for a, b in spans)


def _start(core: Core, lease: LeaseRow, worker: int, reason: str) -> None:
    stage = lease.stage
    backup = LeaseRow(core.fresh(), stage, lease.lo, lease.hi, lease.cone, lease.members, lease.leaves, worker)
    core.speculative[lease.id], core.speculative[backup.id] = backup, lease
    task = (stage.index, lease.lo)
    core.backups[task] = core.backups.get(task, 0) + 1
    timeout = stage.vertex.timeout_s
    if timeout is not None:
        backup.timer = core.set_timer(core.now + timeout, "timeout", backup.id)
    core.note(lease.name, NoteKind.BACKUP_STARTED, worker, lease.worker, reason)
    attempt = stage.attempt(lease.lo) + 1
    nbytes = expected_bytes(core, stage, lease.hi - lease.lo)
    core.out.append(
        Launch(
            worker,
            backup.id,
            stage.id,
            lease.lo,
            lease.hi,
            lease.cone,
            attempt,
            stage.resources[0],
            nbytes,
            lease.id,
            specs_of(core, stage, lease.cone),
        )
    )


EXTENSION: Final = Extension(
    "speculation",
    after={JobSubmitted: watch, Weighed: weighed},
    timers={"look": look_again},
    phases={Phase.BACKUPS: launch},
)
