"""Second attempts: what takes too long is run again elsewhere, and the first to commit wins.

A *backup* is a lease of the same tasks as another one. The rows of the tasks are live once, whoever works on them: the
lease in `core.leases` holds them, the other is its *rival* (`core.rivals` knows both, each by the other's id). A good
end of either is the end of the race: it then holds the rows, if it did not before, and the other is told to stop. A
bad end of either changes nothing while the other goes on. Who has lost is in `core.losers` until its worker says that
it has stopped; no job waits for that.

Backends see to it that at most one of two rivals commits its end (`ports.Executor`), so that one report of a good end
is all there can be. Who gets a backup is for the job's policy to say (`policies.stragglers`), which is asked now and
then while the job runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.engine.commands import Free, Launch, Shrink, Stop, Weigh
from weft.engine.core import LeaseRow
from weft.engine.decisions import BackUp, WeighTasks
from weft.engine.dispatch import expected_bytes, unserved
from weft.engine.machines.job import JobState
from weft.engine.notes import NoteKind
from weft.engine.policy import STRAGGLERS, AttemptView, WatchView
from weft.engine.rows import FINISHED, FREED, SKIPPED
from weft.graph.logical import Kind, Outcome, Trigger
from weft.model.ids import task_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.engine.core import Core
    from weft.engine.events import Done, Failed, Weighed
    from weft.engine.physical import Link, Stage

GIVEN_UP = frozenset({"cancel", "cut off", "satisfied", "again"})
"""Why a lease was told to stop from whose tasks, and those of its rival, nothing is wanted any more."""
FIRST_LOOK_S = 0.1
LAST_LOOK_S = 10.0
"""The shortest and the longest time between two looks at what runs, in seconds."""
_SAMPLE = 16


# ------------------------------------------------------------------------------------------------------- looking


def watch(core: Core) -> None:
    """Begin to look at what runs, if the job has a policy for that and it is on."""
    if core.tuning.backups and STRAGGLERS in core.policies:
        core.set_timer(core.now + FIRST_LOOK_S, "look")


def look_again(core: Core) -> None:
    """Look at what runs, and say when to do so again: four times while a lease takes as long as it should."""
    if not core.tuning.backups:
        return  # the job was resumed without
    usual = [attempt.seconds for attempt in look(core).attempts if attempt.seconds >= 0]
    pause = min(usual) / 4 if usual else (core.now - core.started_at) / 8
    core.set_timer(core.now + min(max(pause, FIRST_LOOK_S), LAST_LOOK_S), "look")


def look(core: Core) -> WatchView:
    """Ask the policy which leases are to be run a second time; return what it saw."""
    live = [lease for lease in core.leases.values() if may_back_up(core, lease)]
    if core.weights:
        core.weights = {id: weight for id, weight in core.weights.items() if id in core.leases}
    backups = len(core.rivals) // 2
    view = WatchView(core.now, len(core.workers), backups, tuple(_attempt(core, lease) for lease in live))
    policy = core.policies[STRAGGLERS]
    decisions, core.memos[STRAGGLERS] = policy.decide(view, core.memos.get(STRAGGLERS))
    core.wanted = []
    for decision in decisions:
        lease = core.leases.get(decision.lease) if isinstance(decision, BackUp | WeighTasks) else None
        if lease is None:
            continue
        if isinstance(decision, WeighTasks):
            if lease.id in core.weights:
                continue  # the answer is on its way
            core.weights[lease.id] = 0.0
            core.out.append(Weigh(lease.id, tuple((s.id, lo, hi) for s, lo, hi in _starts(lease))))
        elif isinstance(decision, BackUp) and not _taken_back(core, lease):
            core.wanted.append((lease.id, decision.reason))
    return view


def may_back_up(core: Core, lease: LeaseRow) -> bool:
    """Whether the tasks of a lease may be run twice at a time: all idempotent, on a plain slot, in no bubble.

    What a task emits is heard at once: vertices that have emitted something are left alone.
    """
    loud = {vertex for vertex, _ in core.emitted}
    return (
        lease.worker >= 0
        and not lease.request
        and not lease.stopping
        and all(
            stage.vertex.idempotent
            and stage.vertex.kind is Kind.FINITE
            and stage.bubble < 0
            and stage.region < 0
            and stage.id not in loud
            for stage, _ in lease.members
        )
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
        lease.id in core.rivals,
        core.backed.get((root.index, lease.lo), 0),
    )


def _starts(lease: LeaseRow) -> list[tuple[Stage, int, int]]:
    """Return the tasks that a lease starts from."""
    if lease.cone is None:
        return [(lease.stage, lease.lo, lease.hi)]
    return [(s, lease.lo * mult, lease.hi * mult) for s, mult in lease.members if s.index in lease.leaves]


def _usual_bytes(lease: LeaseRow) -> float:
    """Return how many bytes as many tasks of these vertices read on average, 0 if that is not known."""
    return sum((hi - lo) * _mean(link) for stage, lo, hi in _starts(lease) for link in stage.inputs)


def _mean(link: Link) -> float:
    router, src, n = link.router, link.src, link.dst.n
    if router is None or src.nbytes <= 0 or link.edge.scheduling.concurrent:
        return 0.0
    if link.wide:
        return src.nbytes * src.n / (n if router.partitions else 1)
    step = max(1, n // _SAMPLE)
    some = range(0, n, step)
    return src.nbytes * sum(map(router.fan_in, some)) / len(some)


def weighed(core: Core, event: Weighed) -> None:
    """The tasks of a lease read so much: remember how many times the usual that is, and look again."""
    lease = core.leases.get(event.lease)
    usual = _usual_bytes(lease) if lease is not None else 0.0
    if not usual or STRAGGLERS not in core.policies:
        return
    core.weights[event.lease] = max(event.nbytes / usual, 1e-9)
    look(core)


def _taken_back(core: Core, lease: LeaseRow) -> bool:
    """Take back the tail of a late lease first; False if there is none, so that the rest is for a backup."""
    if any(type(command) is Shrink and command.lease == lease.id for command in core.out):
        return True
    if lease.hi - lease.lo < 2 or core.shrunk.get(lease.id) == lease.hi:
        return False
    core.shrunk = {id: hi for id, hi in core.shrunk.items() if id in core.leases}
    core.shrunk[lease.id] = lease.hi
    core.out.append(Shrink(lease.id))
    return True


# ------------------------------------------------------------------------------------------------------ starting


def launch(core: Core, workers: Sequence[int]) -> None:
    """Give idle workers the leases that are to be run a second time, on another node where there is one."""
    if core.status is not JobState.RUNNING:
        core.wanted = []
        return
    free = unserved(core, workers)[::-1]
    if core.avoided:
        free = [w for w in free if w not in core.avoided]
    left: list[tuple[int, str]] = []
    for id, reason in core.wanted:
        lease = core.leases.get(id)
        if lease is None or id in core.rivals or not may_back_up(core, lease) or not _can_start(lease):
            continue
        if not free:
            left.append((id, reason))
            continue
        slow = core.workers[lease.worker].node
        worker = next((w for w in free if core.workers[w].node != slow), free[0])
        free.remove(worker)
        _start(core, lease, worker, reason)
    core.wanted = left


def _can_start(lease: LeaseRow) -> bool:
    """Whether a lease has something left to do, and all that it reads is still there."""
    inside = {stage.index for stage, _ in lease.members}
    return lease.lo < lease.hi and all(
        _is_there(link, lease.lo * mult, lease.hi * mult)
        for stage, mult in lease.members
        for link in stage.inputs
        if link.data and link.src.index not in inside and not link.edge.scheduling.concurrent
    )


def _is_there(link: Link, lo: int, hi: int) -> bool:
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
    core.rivals[lease.id], core.rivals[backup.id] = backup, lease
    task = (stage.index, lease.lo)
    core.backed[task] = core.backed.get(task, 0) + 1
    timeout = stage.vertex.timeout_s
    if timeout is not None:
        backup.timer = core.set_timer(core.now + timeout, "timeout", backup.id)
    core.note(_name(lease), NoteKind.BACKUP_STARTED, worker, lease.worker, reason)
    attempt = stage.attempt(lease.lo) + 1
    nbytes = expected_bytes(stage, lease.hi - lease.lo)
    core.out.append(
        Launch(
            worker, backup.id, stage.id, lease.lo, lease.hi, lease.cone, attempt, stage.resources[0], nbytes, lease.id
        )
    )


def _name(lease: LeaseRow) -> str:
    one = lease.hi - lease.lo == 1
    return task_name(lease.stage.id, lease.lo) if one else lease.stage.id


# -------------------------------------------------------------------------------------------------------- ending


def row_of(core: Core, id: int) -> LeaseRow | None:
    """Return a lease that works on live tasks, be it the one that holds their rows or its rival."""
    lease = core.leases.get(id)
    if lease is None and id in core.rivals:
        lease = core.rivals[core.rivals[id].id]
    return lease


def hold(core: Core, lease: LeaseRow) -> None:
    """Have `lease` hold the rows of the tasks that it and its rival work on."""
    other = core.rivals[lease.id]
    if core.leases.pop(other.id, None) is None:
        return  # it does already
    lease.started, lease.lo, lease.hi = other.started, other.lo, other.hi
    core.leases[lease.id] = lease


def part(core: Core, lease: LeaseRow) -> LeaseRow:
    """The race of a lease is over; return the other."""
    other = core.rivals.pop(lease.id)
    del core.rivals[other.id]
    return other


def forget(core: Core, lease: LeaseRow) -> None:
    """A lease that holds no rows has ended."""
    if lease.timer:
        core.timers.pop(lease.timer, None)


def ended_otherwise(core: Core, event: Done | Failed) -> LeaseRow | None:
    """A lease that holds no rows has ended: return it if it still counts, now with the rows."""
    loser = core.losers.pop(event.lease, None)
    if loser is None:
        holder = core.rivals.get(event.lease)
        if holder is None:
            return None
        lease = core.rivals[holder.id]
        if holder.stopping not in GIVEN_UP:
            hold(core, lease)
            return lease
        part(core, lease)
        loser = lease
    forget(core, loser)
    if loser.stopping in GIVEN_UP and event.hi > loser.lo:
        core.out.append(Free(loser.stage.id, loser.lo, event.hi))
    return None


def won(core: Core, lease: LeaseRow) -> None:
    """A lease with a rival has ended well, or both were given up: the rival does not count any more."""
    other = part(core, lease)
    if lease.stopping in GIVEN_UP:
        core.losers[other.id] = other
        return
    lease.stopping = ""
    core.note(_name(lease), NoteKind.BACKUP_ENDED, lease.worker, other.worker)
    _stop_loser(core, other)


def needless(core: Core, lease: LeaseRow) -> None:
    """All that a lease would do has been done: stop it."""
    del core.leases[lease.id]
    _stop_loser(core, lease)


def _stop_loser(core: Core, lease: LeaseRow) -> None:
    core.losers[lease.id] = lease
    if not lease.stopping:
        lease.stopping = "lost"
        core.out.append(Stop(lease.id, "another attempt was first"))


def stop_rival(core: Core, lease: LeaseRow, why: str, reason: str) -> None:
    """The tasks of a lease are not wanted any more: have its rival stop too."""
    other = core.rivals.get(lease.id)
    if other is not None:
        if not other.stopping:
            core.out.append(Stop(other.id, reason))
        other.stopping = why


def narrowed(core: Core, lease: LeaseRow) -> None:
    """Part of a lease was taken back, which its rival cannot be asked for: stop it."""
    other = core.rivals[lease.id]
    other.hi = lease.hi
    if not other.stopping:
        other.stopping = "narrowed"
        core.out.append(Stop(other.id, "part of its work was given back"))


def on_worker(core: Core, worker: int) -> list[LeaseRow]:
    """Return what runs on a worker and holds no rows."""
    rivals = [lease for lease in core.rivals.values() if lease.id not in core.leases]
    return [lease for lease in (*rivals, *core.losers.values()) if lease.worker == worker]
