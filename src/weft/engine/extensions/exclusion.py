"""Node exclusion: workers with many failures are excluded for a while, and unreadable outputs are recomputed.

A *fault* is a failure that the program did not cause: of the infrastructure, or of reading an existing input. The
latest faults are kept, and the job's policy (`policies.blame`) decides after each; its decisions hold for plain leases,
offers, gangs and second attempts. An excluded worker gets no task while another worker will become idle. The exclusion
ends when it expires, or when no other worker is left.

A task that has failed on a worker is retried *elsewhere*: on another worker, if one becomes idle soon. The first worker
takes other ready tasks meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from weft.engine.agenda import Phase
from weft.engine.core import Hooks
from weft.engine.decisions import Avoid, Readmit, Remake
from weft.engine.dispatch import dispatch, launch
from weft.engine.events import WorkerJoined, WorkerLost
from weft.engine.extensions.registry import Extension
from weft.engine.leases import lost_task
from weft.engine.lineage import drop, lose, wanted
from weft.engine.machines.job import GOING
from weft.engine.machines.lease import ACTIVE
from weft.engine.notes import NoteKind
from weft.engine.physical import Intervals
from weft.engine.policy import BLAME, BlameView, Fault, WorkerView
from weft.engine.readiness import enqueue, unqueue
from weft.engine.rows import FINISHED, PROBING, READY, UNSCHEDULED
from weft.graph.logical import VertexKind
from weft.model.failures import FAILURES, Failure

if TYPE_CHECKING:
    from collections.abc import Collection

    from weft.engine.core import Core, LeaseRow
    from weft.engine.events import Failed
    from weft.engine.physical import Stage

ELSEWHERE_S = (1.0, 10.0)
"""The shortest and the longest wait of a failed task for another worker (seconds)."""


def fault(core: Core, worker: int, node: int, task: tuple[str, int], unread: tuple[str, int] | None = None) -> None:
    """Record a failure of a task on a worker, or with the worker; the policy decides at the end of the events."""
    if BLAME in core.policies:
        core.faults.append(Fault(core.now, worker, node, task, unread))
        core.later(Phase.EXCLUSION)


def _attempt_failed(core: Core, lease: LeaseRow, kind: Failure, event: Failed) -> None:
    """Record a failed attempt as a fault if the worker may have caused it."""
    row = core.workers.get(lease.worker)
    if row is not None and FAILURES[kind].excludes:
        unread = event.lost if kind is Failure.READ else None
        fault(core, lease.worker, row.node, (event.vertex, event.index), unread)


def _elsewhere(core: Core, stage: Stage, index: int, worker: int) -> None:
    """Reserve a failed task for another worker, if any worker may run it."""
    if BLAME in core.policies and stage.plain and stage.bubble < 0 and not core.workers.keys() <= {worker}:
        shortest, longest = ELSEWHERE_S
        core.elsewhere[(stage.index, index)] = core.now + min(max(2 * stage.seconds, shortest), longest)


# ------------------------------------------------------------------------------------------------------- judging


def judge(core: Core) -> None:
    """Call the policy, and apply its decisions."""
    if core.status not in GOING:
        return
    policy = core.policies[BLAME]
    workers = tuple(
        WorkerView(worker, row.node, worker in core.avoided, *core.readmitted.get(worker, (0, -1.0)))
        for worker, row in core.workers.items()
    )
    view = BlameView(core.now, workers, tuple(core.faults))
    decisions, core.memos[BLAME] = policy.decide(view, core.memos.get(BLAME))
    for decision in decisions:
        if isinstance(decision, Avoid):
            _avoid(core, decision)
        elif isinstance(decision, Readmit):
            readmit(core, decision.worker, decision.reason)
        elif isinstance(decision, Remake):
            _remake(core, decision)
    if core.workers and core.workers.keys() <= core.avoided.keys():
        for worker in list(core.workers):
            readmit(core, worker, "nobody else is left")


def _avoid(core: Core, decision: Avoid) -> None:
    worker = decision.worker
    if worker not in core.workers or core.workers.keys() <= {*core.avoided, worker}:
        core.note(f"worker {worker}", NoteKind.LAST_WORKER)
    elif worker not in core.avoided:
        core.avoided[worker] = core.set_timer(core.now + decision.seconds, "expire", worker)
        core.note(f"worker {worker}", NoteKind.WORKER_EXCLUDED, decision.seconds, decision.reason, decision.seen)


def readmit(core: Core, worker: int, reason: str) -> None:
    """End the exclusion of a worker, if it is excluded."""
    timer = core.avoided.pop(worker, None)
    if timer is not None:
        core.timers.pop(timer, None)
        core.readmitted[worker] = (core.readmitted.get(worker, (0, 0.0))[0] + 1, core.now)
        core.note(f"worker {worker}", NoteKind.WORKER_READMITTED, reason)


def _remake(core: Core, decision: Remake) -> None:
    stage, index = core.by_id.get(decision.vertex), decision.index
    if stage is None or not 0 <= index < stage.n or stage.state[index] != FINISHED:
        return  # it was recomputed or dropped meanwhile
    if stage.vertex.kind is VertexKind.FINITE and wanted(stage)(index):
        drop(core, stage, [index])
        lose(core, stage, [index], decision.reason)


# ------------------------------------------------------------------------------------------------------- choosing


def _choose(core: Core, idle: Sequence[int]) -> Sequence[int]:
    """Return the idle workers to offer, one after another until one is taken; excluded ones only if all are."""
    return [w for w in reversed(idle) if w not in core.avoided] or idle[::-1]


def _offer(core: Core, workers: Sequence[int]) -> None:
    """Lease tasks to offered workers as `dispatch` does: tasks to retry elsewhere first, to other workers.

    An excluded worker gets tasks only if no other worker will come.
    """
    good = [w for w in workers if w not in core.avoided and w in core.workers]
    hidden = _serve_elsewhere(core, good) if core.elsewhere and core.status in GOING else []
    if not good and not _will_come(core, core.avoided):
        good = [w for w in workers if w in core.avoided]
    dispatch(core, good)
    for stage, index in hidden:
        if stage.state[index] == READY:
            enqueue(core, stage, index, index + 1)


def _serve_elsewhere(core: Core, good: list[int]) -> list[tuple[Stage, int]]:
    """Lease each task of `core.elsewhere` to one of the workers `good` on which it has not failed.

    A task without such a worker leaves the queue of its stage as long as another worker may come. Return these tasks:
    the caller puts them back after the dispatch.
    """
    hidden: list[tuple[Stage, int]] = []
    for (number, index), until in list(core.elsewhere.items()):
        stage = core.stages[number]
        state = stage.state[index]
        if state in (UNSCHEDULED, PROBING):
            continue
        failed_on = (stage.avoid or {}).get(index, set())
        if state == READY and stage.plain and stage.bubble < 0:
            worker = next((w for w in reversed(good) if w not in failed_on), None)
            if worker is not None:
                good.remove(worker)
                unqueue(stage, index, index + 1)
                alone = Intervals()
                alone.add(index, index + 1)
                launch(core, stage, alone, worker)
            elif until > core.now and _will_come(core, {*failed_on, *core.avoided}):
                unqueue(stage, index, index + 1)
                hidden.append((stage, index))
                continue
        del core.elsewhere[(number, index)]
    return hidden


def _will_come(core: Core, but: Collection[int]) -> bool:
    """Return whether another worker runs a plain task of this job that waits for no other task, so that it will end."""
    return any(
        lease.worker >= 0
        and lease.worker not in but
        and not lease.request
        and lease.stage.vertex.kind is VertexKind.FINITE
        and not any(link.edge.scheduling.concurrent for link in lease.stage.inputs)
        for leases in (core.leases, core.speculative, core.cancelled)
        for lease in leases.values()
    )


# -------------------------------------------------------------------------------------------------------- registered


def _worker_joined(core: Core, _: WorkerJoined) -> None:
    if core.faults:
        core.later(Phase.EXCLUSION)  # it may be on a failing node


def _worker_lost(core: Core, event: WorkerLost) -> None:
    row = core.workers.get(event.worker)
    if row is None:
        return
    if core.avoided:
        core.later(Phase.EXCLUSION)  # the share of excluded workers may be too large now
    for lease in core.leases.values():
        if lease.worker == event.worker and lease.state in ACTIVE:
            fault(core, event.worker, row.node, lost_task(lease, event))


def _time_is_over(core: Core, worker: int) -> None:
    readmit(core, worker, "its time is over")


EXTENSION: Final = Extension(
    "exclusion",
    before={WorkerLost: _worker_lost},
    after={WorkerJoined: _worker_joined},
    timers={"expire": _time_is_over},
    phases={Phase.EXCLUSION: judge},
    hooks=Hooks(attempt_failed=(_attempt_failed,), task_retried=(_elsewhere,), choose=(_choose,), offer=(_offer,)),
)
