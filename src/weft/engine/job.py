"""The lifecycle of the job: its moves, the start of the final vertices, and the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.engine.agenda import Phase
from weft.engine.commands import Complete
from weft.engine.machines.job import JOB, JobState
from weft.engine.machines.table import step
from weft.engine.machines.vertex import VertexState
from weft.engine.notes import NoteKind
from weft.engine.readiness import free, recount
from weft.engine.rows import FINISHED
from weft.engine.story import story

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.engine.core import Core
    from weft.engine.physical import Stage


_FAILED, _CANCELLED = VertexState.FAILED, VertexState.CANCELLED
_SUCCEEDED: Final = Complete(JobState.SUCCEEDED.value)
"""The outcome of all jobs that succeed."""


def move_job(core: Core, cause: str) -> None:
    """Move the job along its table."""
    core.status = step(JOB, core.status, cause, core.job, lambda subject: story(core, subject))
    core.note("", NoteKind.JOB_STATE, core.status.value)


def begin_ending(core: Core) -> None:
    """Start the final vertices after all others have ended."""
    if core.status is JobState.RUNNING:
        core.verdict = JobState.FAILED if _any_failed(core.stages) else JobState.SUCCEEDED
    elif core.status is not JobState.CONCLUDING:  # its controller has given the verdict
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


_CONCLUSIONS: Final = {
    JobState.SUCCEEDED: "all_ended",
    JobState.FAILED: "ended_with_failures",
    JobState.CANCELLED: "quiet",
}


def conclude(core: Core) -> None:
    """End a job without running tasks: determine its outcome."""
    if core.status is JobState.RUNNING:
        move_job(core, "ended_with_failures" if _any_failed(core.stages) else "all_ended")
    elif core.status is JobState.CONCLUDING:
        assert core.verdict is not None
        move_job(core, _CONCLUSIONS[core.verdict])
    elif core.status is JobState.ENDING:
        if core.verdict is JobState.FAILED or _any_failed(stage for stage in core.stages if stage.vertex.final):
            move_job(core, "ended_with_failures")
        else:
            move_job(core, "quiet" if core.verdict is JobState.CANCELLED else "all_ended")
    else:
        move_job(core, "ended_with_failures" if core.verdict is JobState.FAILED else "quiet")
    cause = core.cause
    core.specs, core.inner_specs, core.cone_specs = {}, {}, {}  # nothing is launched any more
    if core.status is JobState.CANCELLED:
        free_everything(core)
        by_controller = core.control.cancelled if core.control is not None else ""
        core.out.append(Complete("cancelled", message=by_controller or core.cancel_reason))
        return
    free_leftovers(core)
    if core.status is JobState.SUCCEEDED:  # whatever has failed was not needed in the end
        core.out.append(_SUCCEEDED)
    elif cause is None:
        core.out.append(Complete(core.status.value))
    else:
        details = (cause.task, cause.message, cause.traceback, cause.kind, cause.raised)
        core.out.append(Complete(core.status.value, *details))


def _any_failed(stages: Iterable[Stage]) -> bool:
    return any(stage.status is _FAILED or stage.status is _CANCELLED for stage in stages)


def free_everything(core: Core) -> None:
    """Drop every output that still exists."""
    for stage in core.stages:
        if stage.n > 0:
            free(core, stage, 0, stage.n)


def free_leftovers(core: Core) -> None:
    """At the end of a job, drop the outputs that are no results."""
    for stage in core.stages:
        if FINISHED in stage.state and not stage.vertex.keep and not any(link.durable for link in stage.outputs):
            free(core, stage, 0, stage.n)
