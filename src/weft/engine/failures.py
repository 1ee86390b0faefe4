"""Consequences of failures: retry, skip, propagate, cancel."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from weft.engine.agenda import Phase
from weft.engine.commands import Complete, Withdraw
from weft.engine.core import NO_BRANCH, Cause, ChoiceRow
from weft.engine.leases import stop_both, write_rows
from weft.engine.machines.job import JOB, OVER, JobState
from weft.engine.machines.lease import ACTIVE, LeaseState
from weft.engine.machines.table import step
from weft.engine.machines.vertex import ENDED, SUCCESS, VertexState
from weft.engine.notes import NoteKind
from weft.engine.physical import NOTHING, Intervals, Stage
from weft.engine.policy import Moment
from weft.engine.readiness import (
    advance,
    end,
    ended,
    free,
    gate_opens,
    one_success_group,
    recount,
    recount_readers,
    release_inputs,
    unqueue,
)
from weft.engine.rows import (
    CANCELLED,
    CANCELLING,
    FATAL,
    FINISHED,
    NOT_STARTED,
    READY,
    SKIPPED,
    write_mixed,
)
from weft.engine.story import story
from weft.engine.tokens import return_tokens
from weft.graph.logical import OnFailure, Outcome, RestartPolicy, Storage
from weft.model.failures import FAILURES, SIGNALLED, Failure, RetryClass
from weft.model.ids import task_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.engine.core import Core, LeaseRow
    from weft.engine.physical import PhysicalEdge

_MAY_END_EARLY = frozenset({*ACTIVE, LeaseState.REVOKED})


def move_job(core: Core, cause: str) -> None:
    """Move the job along its table."""
    core.status = step(JOB, core.status, cause, core.job, lambda subject: story(core, subject))
    core.note("", NoteKind.JOB_STATE, core.status.value)


def may_retry(core: Core, stage: Stage, index: int, kind: Failure, worker: int, status: int | None = None) -> bool:
    """Count a failure of one kind against the vertex and the job, and return whether the task may run again.

    `status` is the exit code of the attempt's process, if any.
    """
    if stage.attempts is None:
        stage.attempts = {}
        core.later(Phase.CONES)  # a retried task must not be inside a cone
    counts = stage.attempts.setdefault(index, [0] * len(RetryClass))
    column = FAILURES[kind].retry
    if column is None:
        return False
    counts[column] += 1
    retry, rule = stage.vertex.retry, stage.vertex.restart
    if column is RetryClass.INFRASTRUCTURE:
        rule = None
    if not (counts[column] <= retry[column] if rule is None else restarts(rule, kind, status)):
        return False
    if column is not RetryClass.INFRASTRUCTURE:
        core.restarts += 1
        if is_spent(core):
            return False
    if column is RetryClass.INFRASTRUCTURE and worker >= 0:
        if stage.avoid is None:
            stage.avoid = {}
        stage.avoid.setdefault(index, set()).add(worker)
    if column is RetryClass.MEMORY:
        if stage.memory is None:
            stage.memory = {}
        base = stage.memory.get(index) or stage.resources[0].memory or int(max(stage.nbytes, 0)) or 64 * 2**20
        stage.memory[index] = int(base * retry.memory_factor)
        if stage.plain:
            _ask_from_now_on(core, stage)
    return True


def restarts(rule: RestartPolicy, kind: Failure, status: int | None) -> bool:
    """Return whether a failure of the code of a task restarts the task."""
    if rule is RestartPolicy.EXIT_CODE:
        return (FAILURES[kind].exit_code if status is None else status) >= SIGNALLED
    return rule is not RestartPolicy.NEVER


def is_spent(core: Core) -> bool:
    """Return whether the job has restarted more often than its backoff allows, so that it must fail."""
    limit = core.graph.backoff.limit
    return limit is not None and core.restarts > limit


def _ask_from_now_on(core: Core, stage: Stage) -> None:
    """Send all tasks of a stage to the pool with requests instead of offers, because a task needs a memory grant."""
    stage.plain = False
    for held in (stage.local or {}).values():
        for lo, hi in list(held):
            held.discard(lo, hi)
            if stage.ready is NOTHING:
                stage.ready = Intervals()
            stage.ready.add(lo, hi)
    core.later(Phase.REQUESTS, stage)


def delay_of(core: Core, stage: Stage, index: int, kind: Failure) -> float:
    """Return the pause in seconds before the next attempt: doubled at each retry of that kind, up to 64 times.

    With a restart rule it is the pause of the job's backoff. Tasks of a lost worker are retried at once.
    """
    pause, column = stage.vertex.retry.delay_s, FAILURES[kind].retry
    if stage.vertex.restart is not None and column is not RetryClass.INFRASTRUCTURE and stage.attempts is not None:
        counts = stage.attempts[index]
        return core.graph.backoff.pause(counts[RetryClass.USER] + counts[RetryClass.MEMORY])
    if not pause or column is None or column is RetryClass.INFRASTRUCTURE or stage.attempts is None:
        return 0.0
    return float(pause * 2 ** min(stage.attempts[index][column] - 1, 6))


def fatal(
    core: Core, stage: Stage, index: int, kind: Failure, message: str, traceback: str = "", raised: str = ""
) -> None:
    """End a task as FATAL, with the consequences; its row must already be out of every live state."""
    name = task_name(stage.id, index)
    counts = (stage.attempts or {}).get(index)
    tries = counts[RetryClass.INFRASTRUCTURE] if counts is not None and kind is Failure.INFRASTRUCTURE else 0
    if tries > 1:
        message += f"\nThat was attempt {tries}: its retries after lost workers are used up."
    spent = is_spent(core)
    if spent:
        message += f"\nThe job may restart tasks {core.graph.backoff.limit} times in all, which is used up."
    core.note(name, NoteKind.FAILED, kind.value, message)
    if core.cause is None:
        core.cause = Cause(name, message, traceback, kind.value, raised)
    if stage.state[index] == READY:
        unqueue(stage, index, index + 1)
    write_mixed(core, stage, index, index + 1, FATAL)
    stage.over += 1
    if stage.listeners:
        core.tell(stage, Moment.FINISHED)
    release_inputs(core, stage, ((index, index + 1),))
    propagate_failure(core, stage, index, index + 1)
    if stage.over == stage.n:
        end(core, stage)
    if (spent or core.graph.on_failure is OnFailure.FAIL_FAST) and core.status is JobState.RUNNING:
        move_job(core, "task_fatal")
        stop_everything(core, f"{name} failed")


def propagate_failure(core: Core, stage: Stage, lo: int, hi: int) -> None:
    """Skip all tasks that need tasks `lo:hi` of `stage` to succeed, and their dependents in turn."""
    work = [(stage, lo, hi)]
    while work:
        stage, lo, hi = work.pop()
        for link in stage.outputs:
            if link.edge.scheduling.outcome is not Outcome.SUCCESS:
                continue
            dst = link.dst
            if dst.status in ENDED:
                continue
            if dst.n < 0:
                core.note(dst.id, NoteKind.CANNOT_RUN, stage.id, "")
                advance(core, dst, "fatal")
                ended(core, dst)
                work.append((dst, 0, 0))
                continue
            router = link.router
            if router is None or link.wide:
                spans = [(0, dst.n)]
            else:
                spans = [span for i in range(lo, hi) for span in router.consumers(i)]
            for a, b in spans:
                for d in range(a, b):
                    if dst.state[d] in NOT_STARTED:
                        skip_task(core, dst, d, FATAL)
                        core.note(task_name(dst.id, d), NoteKind.CANNOT_RUN, stage.id, "")
                        work.append((dst, d, d + 1))
            if link.edge.storage is Storage.EPHEMERAL and dst.executing:
                work += _cut_off(core, link, spans)
            if dst.over == dst.n and dst.status not in ENDED:
                end(core, dst)


def _cut_off(core: Core, link: PhysicalEdge, spans: Iterable[tuple[int, int]]) -> list[tuple[Stage, int, int]]:
    """Stop the readers of a stream that will never be complete; return the tasks that have failed with the stream."""
    lost = [
        lease
        for lease in core.leases.values()
        for member, mult in lease.members
        if member is link.dst and any(a < lease.hi * mult and lease.lo * mult < b for a, b in spans)
    ]
    for lease in lost:
        if lease.live != CANCELLING:
            core.note(task_name(link.dst.id, lease.lo), NoteKind.CANNOT_GO_ON, link.src.id)
            stop_lease(core, lease, f"{link.src.id} failed", "cut_off")
    return [(member, lease.lo * mult, lease.hi * mult) for lease in lost for member, mult in lease.members]


def fail_blocked(core: Core) -> None:
    """Fail the dependents of an event, an answer or a success that can no longer come."""
    for what in core.taken(Phase.BLOCKED):
        if isinstance(what, ChoiceRow):
            _fail_blocked_choice(core, what)
            continue
        if isinstance(what, Stage):
            _fail_blocked_by_expander(core, what)
            continue
        dst, src = what.dst, what.src
        if what.opened or dst.status in ENDED or gate_opens(core, what):
            continue
        group = one_success_group(dst)
        if what in group and any(other.src.status not in ENDED for other in group):
            continue  # another source may still succeed
        if src.status in SUCCESS:
            event = what.edge.scheduling.event
            _fail_blocked(core, dst, f"{src.id} has ended without the event {event!r} that {dst.id} waits for")
        else:
            _give_up_all(core, dst, NoteKind.CANNOT_RUN, src.id, "")


def _fail_blocked_by_expander(core: Core, expander: Stage) -> None:
    """Fail the vertices that still wait for a parallelism from an expander that has ended."""
    waiting = deque(core.sized.get(expander.id, ()))
    while waiting:
        stage = waiting.popleft()
        if stage.n >= 0 or stage.status in ENDED:
            continue
        waiting.extend(core.sized.get(stage.id, ()))
        if expander.status in SUCCESS:
            core.note(stage.id, NoteKind.UNANSWERED, expander.id)
            skip_remaining_tasks(core, stage, SKIPPED)
            recount_readers(core, stage)
        else:
            _give_up_all(core, stage, NoteKind.CANNOT_RUN, expander.id, "width")


def _fail_blocked_choice(core: Core, row: ChoiceRow) -> None:
    """Take no branch of a choice whose decider has ended without an answer."""
    decider = core.by_id[row.choice.decider]
    skipped = decider.status is VertexState.SKIPPED
    row.taken = NO_BRANCH
    for branch in row.choice.branches.values():
        for vertex in branch:
            if skipped:
                skip_remaining_tasks(core, core.by_id[vertex], SKIPPED)
                recount_readers(core, core.by_id[vertex])
            else:
                _give_up_all(core, core.by_id[vertex], NoteKind.CANNOT_RUN, decider.id, "branch")


def _give_up_all(core: Core, stage: Stage, why: NoteKind, *data: str) -> None:
    core.note(stage.id, why, *data)
    skip_remaining_tasks(core, stage, FATAL)
    propagate_failure(core, stage, 0, max(stage.n, 0))


def _fail_blocked(core: Core, stage: Stage, message: str) -> None:
    """Fail a vertex that can never start, as the first failure of the job."""
    if core.cause is None:
        core.cause = Cause(stage.id, message, kind=Failure.USER.value)
    _give_up_all(core, stage, NoteKind.VERTEX_FAILED, message)
    if core.graph.on_failure is OnFailure.FAIL_FAST and core.status is JobState.RUNNING:
        move_job(core, "task_fatal")
        stop_everything(core, message)


def propagate_again(core: Core, stage: Stage) -> None:
    """Skip tasks of `stage` that are to run again, if one of their dependencies has failed meanwhile."""
    for link in stage.inputs:
        src = link.src
        if link.gate and not link.opened and src.status in ENDED:
            core.later(Phase.BLOCKED, link)
        if src.n > 0 and src.state.count(FATAL):
            for index in [i for i in range(src.n) if src.state[i] == FATAL]:
                propagate_failure(core, src, index, index + 1)


def skip_task(core: Core, stage: Stage, index: int, state: int) -> None:
    """End a task that has not started, as FATAL, CANCELLED or SKIPPED."""
    if stage.state[index] == READY:
        unqueue(stage, index, index + 1)
    if stage.bubble >= 0:
        core.later(Phase.REQUESTS, stage)  # its bubble may be complete without this task
    write_mixed(core, stage, index, index + 1, state)
    stage.over += 1
    if stage.listeners:
        core.tell(stage, Moment.FINISHED)
    release_inputs(core, stage, ((index, index + 1),))


def skip_remaining_tasks(core: Core, stage: Stage, state: int) -> None:
    """End every task of a stage that has not started, and the stage if none is left."""
    if stage.status in ENDED:
        return
    if stage.n < 0:
        advance(core, stage, {SKIPPED: "skip", FATAL: "fatal"}.get(state, "cancelled"))
        ended(core, stage)
        return
    for old in NOT_STARTED:
        if stage.state.count(old):
            for i in range(stage.n):
                if stage.state[i] == old:
                    skip_task(core, stage, i, state)
    if stage.over == stage.n:
        if state == SKIPPED and stage.state.count(SKIPPED) == stage.n and stage.status is VertexState.CONFIGURED:
            advance(core, stage, "skip")
            ended(core, stage)
        else:
            end(core, stage)


def stop_lease(core: Core, lease: LeaseRow, reason: str, cause: str = "cancel") -> None:
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
        if stage.over == stage.n:
            end(core, stage)


def stop_everything(core: Core, reason: str) -> None:
    """Start nothing more and stop all running tasks. The job ends after the report of the last worker.

    Final vertices that wait for the others to end run afterwards.
    """
    for request in [row for row in core.requests.values() if not row.granted]:
        core.out.append(Withdraw(request.id))
        if request.stage is not None:
            return_tokens(core, request.stage.resources[0])
        del core.requests[request.id]
    for stage in core.order:
        if not (core.held and stage.vertex.final):
            skip_remaining_tasks(core, stage, CANCELLED)
    for lease in core.leases.values():
        stop_lease(core, lease, reason)
    core.timers.clear()


def cancel(core: Core, reason: str, *, force: bool = False) -> None:
    """Cancel the job by request of the user; final vertices run all the same, unless by `force` or a second cancel."""
    if core.status in OVER:
        return
    was, again = core.status, bool(core.cancel_reason)
    if was is JobState.ENDING and not (force or again):
        core.note("", NoteKind.ONLY_FINAL, reason)
    core.cancel_reason = core.cancel_reason or reason
    if was is JobState.NEW:
        move_job(core, "cancel")
        core.out.append(Complete("cancelled", message=reason))
        return
    if was in (JobState.RUNNING, JobState.FAILING) or (was is JobState.ENDING and (force or again)):
        move_job(core, "cancel")
    if core.held and (force or again):
        core.held = 0
        for stage in core.order:
            if stage.vertex.final:
                skip_remaining_tasks(core, stage, CANCELLED)
    if was in (JobState.RUNNING, JobState.ENDING) and core.status is JobState.CANCELLING:
        stop_everything(core, reason)


def begin_ending(core: Core) -> None:
    """Start the final vertices after all others have ended."""
    if core.status is JobState.RUNNING:
        core.verdict = JobState.FAILED if _any_failed(core.stages) else JobState.SUCCEEDED
    else:
        core.verdict = JobState.FAILED if core.status is JobState.FAILING else JobState.CANCELLED
    if core.verdict is not JobState.FAILED:
        core.cause = None  # the failed outputs were not needed in the end; failures from here on count
    move_job(core, "finally")
    core.held = 0
    for stage in core.order:
        if stage.vertex.final:
            recount(core, stage)
    if core.offered:
        core.later(Phase.OFFERS)


def conclude(core: Core) -> None:
    """End a job without running tasks: determine its outcome."""
    if core.status is JobState.RUNNING:
        move_job(core, "ended_with_failures" if _any_failed(core.stages) else "all_ended")
    elif core.status is JobState.ENDING:
        if core.verdict is JobState.FAILED or _any_failed(stage for stage in core.stages if stage.vertex.final):
            move_job(core, "ended_with_failures")
        else:
            move_job(core, "quiet" if core.verdict is JobState.CANCELLED else "all_ended")
    else:
        move_job(core, "ended_with_failures" if core.verdict is JobState.FAILED else "quiet")
    cause = core.cause
    if core.status is JobState.CANCELLED:
        free_everything(core)
        core.out.append(Complete("cancelled", message=core.cancel_reason))
        return
    free_leftovers(core)
    if cause is None or core.status is JobState.SUCCEEDED:  # the failed outputs were not needed in the end
        core.out.append(Complete(core.status.value))
    else:
        told = (cause.task, cause.message, cause.traceback, cause.kind, cause.raised)
        core.out.append(Complete(core.status.value, *told))


def _any_failed(stages: Iterable[Stage]) -> bool:
    return any(stage.status in (VertexState.FAILED, VertexState.CANCELLED) for stage in stages)


def free_everything(core: Core) -> None:
    """Drop every output that still exists."""
    for stage in core.stages:
        if stage.n > 0:
            free(core, stage, 0, stage.n)


def free_leftovers(core: Core) -> None:
    """At the end of a job, drop the outputs that are no results."""
    for stage in core.stages:
        if stage.state.count(FINISHED) and not stage.vertex.keep and not any(link.durable for link in stage.outputs):
            free(core, stage, 0, stage.n)


def finish_early(core: Core, stage: Stage, reason: str) -> None:
    """End a vertex early, whose consumers need no more: running tasks are stopped, the others are skipped."""
    if stage.status in ENDED:
        return
    core.note(stage.id, NoteKind.ENDED_EARLY, reason)
    if stage.n >= 0:
        for i in range(stage.n):
            if stage.state[i] in NOT_STARTED:
                skip_task(core, stage, i, SKIPPED)
    for lease in list(core.leases.values()):
        if any(member is stage for member, _ in lease.members) and lease.state in _MAY_END_EARLY:
            stop_both(core, lease, "satisfied", reason)
    if stage.over == stage.n and stage.status not in ENDED:
        advance(core, stage, "satisfied")
        ended(core, stage)
    recount_readers(core, stage)
