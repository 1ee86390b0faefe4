"""Failures of tasks and the cancel of a job: retry or end; `settle` derives the consequences for other tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from weft.engine.agenda import Phase
from weft.engine.commands import Complete
from weft.engine.core import Cause
from weft.engine.job import move_job
from weft.engine.machines.job import OVER, JobState
from weft.engine.notes import NoteKind
from weft.engine.physical import NOTHING, Intervals
from weft.engine.policy import Moment
from weft.engine.readiness import end, release_inputs, unqueue
from weft.engine.rows import CANCELLED, FATAL, READY, write_mixed
from weft.engine.settle import end_rest, mark, stop_everything
from weft.graph.logical import OnFailure, RestartPolicy
from weft.model.failures import FAILURES, SIGNALLED, Failure, RetryClass
from weft.model.ids import task_name

if TYPE_CHECKING:
    from weft.engine.core import Core, LeaseRow
    from weft.engine.physical import Stage


CANCELLED_BY_USER: Final = Failure.CANCELLED.value
"""The kind of a failure that is none: any other failure of a job is rather its cause."""


def may_retry(core: Core, stage: Stage, index: int, kind: Failure, worker: int, status: int | None = None) -> bool:
    """Count a failure of one kind against the vertex and the job, and return whether the task may run again.

    `status` is the exit code of the attempt's process, if any.
    """
    column = FAILURES[kind].retry
    counts = count_failure(core, stage, index, column)
    if column is None:
        return False
    retry, rule = stage.vertex.retry, stage.vertex.restart
    if not column.of_code:
        rule = None
    if not (counts[column] <= retry[column] if rule is None else restarts(rule, kind, status)):
        return False
    if rule is None and column is RetryClass.USER and not retry.takes(_exit_code(kind, status)):
        return False
    if column.of_code:
        core.restarts += 1
        if is_spent(core):
            return False
        if stage.control is not None:
            stage.control.restarts[index] += 1
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


def count_failure(core: Core, stage: Stage, index: int, column: RetryClass | None) -> list[int]:
    """Count a failure of a task, and return its counts by retry class."""
    if stage.attempts is None:
        stage.attempts = {}
        core.later(Phase.CONES, stage)  # a retried task must not be inside a cone
    counts = stage.attempts.setdefault(index, [])
    counts += [0] * (len(RetryClass) - len(counts))  # a snapshot of an earlier version may have fewer classes
    if column is not None:
        counts[column] += 1
    return counts


def count_crash(core: Core, lease: LeaseRow, blamed: tuple[str, int]) -> None:
    """Count the crash of a worker against all tasks of a unit except the blamed one, which `on_failed` counts.

    Which task of a cone ran is not known. A counted task leaves its cone, so the next crash has one suspect.
    """
    if lease.cone is not None:
        unit = blamed[1] // lease.cone.mult[0]
        for vertex, index in lease.cone.tasks(unit):
            if (vertex, index) != blamed:
                count_failure(core, core.by_id[vertex], index, RetryClass.CRASH)


def has_crashed(stage: Stage, lo: int, hi: int) -> bool:
    """Return whether one of tasks `lo:hi` ran in a worker that crashed."""
    attempts = (stage.attempts or {}).items()
    return any(any(counts[RetryClass.CRASH :]) for index, counts in attempts if lo <= index < hi)


def restarts(rule: RestartPolicy, kind: Failure, status: int | None) -> bool:
    """Return whether a failure of the code of a task restarts the task."""
    if rule is RestartPolicy.EXIT_CODE:
        return _exit_code(kind, status) >= SIGNALLED
    return rule is not RestartPolicy.NEVER


def not_among(stage: Stage, kind: Failure, status: int | None) -> str:
    """Return a line that says that the exit code of a failure is none that its vertex retries; "" in other cases."""
    retry = stage.vertex.retry
    code = _exit_code(kind, status)
    if not (retry.on and retry.user) or FAILURES[kind].retry is not RetryClass.USER or retry.takes(code):
        return ""
    return f"\nIt is not retried: exit code {code} is not one of {', '.join(map(str, retry.on))}."


def _exit_code(kind: Failure, status: int | None) -> int:
    return FAILURES[kind].exit_code if status is None else status


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
    """Return the pause in seconds before the next attempt: that of the vertex's `Retry` for retries of that kind.

    With a restart rule it is the pause of the job's backoff. Tasks of a lost worker are retried at once. The jitter
    follows from the task and the time of its failure, so a replay has the same pauses.
    """
    retry, column = stage.vertex.retry, FAILURES[kind].retry
    if column is None or not column.of_code or stage.attempts is None:
        return 0.0
    if stage.vertex.restart is not None:
        counts = stage.attempts[index]
        return core.graph.backoff.pause(counts[RetryClass.USER] + counts[RetryClass.MEMORY])
    if not retry.delay_s:
        return 0.0
    count = stage.attempts[index][column]
    chance = crc32(f"{stage.id}[{index}] {count} {core.now!r}".encode()) / 0xFFFFFFFF if retry.jitter else 0.0
    return retry.pause(count, chance)


def fatal(
    core: Core, stage: Stage, index: int, kind: Failure, message: str, traceback: str = "", raised: str = ""
) -> None:
    """End a task as FATAL, with the consequences; its row must already be out of every live state."""
    name = task_name(stage.id, index)
    counts = (stage.attempts or {}).get(index)
    if counts is not None and kind is Failure.INFRASTRUCTURE and counts[RetryClass.INFRASTRUCTURE] > 1:
        tries = counts[RetryClass.INFRASTRUCTURE]
        message += f"\nThat was attempt {tries}: its retries after lost workers are used up."
    if counts is not None and kind is Failure.CRASH:
        tries = counts[RetryClass.CRASH]
        workers = "1 worker" if tries == 1 else f"{tries} different workers"
        message += f"\nIt has ended {workers}, so the task is at fault and does not run again."
    spent = is_spent(core)
    if spent:
        message += f"\nThe job may restart tasks {core.graph.backoff.limit} times in all, which is used up."
    trace = f"\n{traceback.rstrip()}" if kind is Failure.CRASH and traceback else ""
    core.note(name, NoteKind.FAILED, kind.value, message + trace)
    if stage.control is not None:
        stage.control.failures[index], stage.control.messages[index] = kind.value, message
    elif core.cause is None or (core.cause.kind == CANCELLED_BY_USER and kind is not Failure.CANCELLED):
        core.cause = Cause(name, message, traceback, kind.value, raised)
    if stage.state[index] == READY:
        unqueue(stage, index, index + 1)
    write_mixed(core, stage, index, index + 1, FATAL)
    stage.over += 1
    if stage.listeners:
        core.tell(stage, Moment.FINISHED)
    release_inputs(core, stage, ((index, index + 1),))
    if stage.control is not None:  # its controller decides what follows
        core.later(Phase.CONTROLLER)
        return
    mark(core, stage, index, index + 1, FATAL)
    if stage.over == stage.n:
        end(core, stage)
    stops = spent or (core.graph.on_failure is OnFailure.FAIL_FAST and kind is not Failure.CANCELLED)
    if stops and core.status is JobState.RUNNING:
        move_job(core, "task_fatal")
        stop_everything(core, f"{name} failed")


def cancel(core: Core, reason: str, *, force: bool = False) -> None:
    """Cancel the job by request of the user; final vertices run all the same, unless by `force` or a second cancel."""
    if core.status in OVER:
        return
    was, again = core.status, bool(core.cancel_reason)
    if was in (JobState.ENDING, JobState.CONCLUDING) and not (force or again):
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
                end_rest(core, stage, CANCELLED)
    if was in (JobState.RUNNING, JobState.ENDING) and core.status is JobState.CANCELLING:
        stop_everything(core, reason)
