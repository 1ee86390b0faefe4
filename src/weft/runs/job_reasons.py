"""The reasons why training jobs and their replicas are in their states: what `weft why` tells of runs of jobs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from weft.engine.waiting import HELD
from weft.model.failures import BACKOFF_LIMIT
from weft.model.ids import loop_item
from weft.model.wording import how_failed, sentences
from weft.runs.explaining import waits_within
from weft.runs.reasons import Reasons, state_of
from weft.runs.records import INTERRUPTED, SUSPENDED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.engine.waiting import Wait
    from weft.runs.reading import RunRecord
    from weft.runs.sources import SourceHost

_MOST_FAILED: Final = 3
"""The number of failed replicas of a run that succeeded that are named."""


def reasons_of_jobs(run: RunRecord, target: str, host: SourceHost) -> Reasons:
    """Return why the jobs of a run, or (with `target`) its replicas of a type or one of them, are as they are.

    NotFoundError: there is no such type or replica.
    """
    if not target:
        return _of_run(run, _waits(run, "", host) if run.ended is None else ())
    step, index = run.task(target)
    name = step.name if index is None else loop_item(step.name, index)
    if index is not None:
        waits = _waits(run, f"{step.name}[{index}]", host) if run.ended is None else ()
        state = state_of(run, name) or step.items[index].state if index in step.items else "has not begun"
        if state == "terminated":  # no error of its own
            state += f": {run.why_stopped}"
        return Reasons(name, "none", state, waits=waits, remark=_remark(run, name))
    waits = _waits(run, step.name, host) if run.ended is None else ()
    counts = Counter(item.state for item in step.items.values())
    told = ", ".join(f"{count} {state}" for state, count in counts.items())
    if not told:
        job = next((one for one in run.jobs if step.name.startswith(f"{one['name']}.")), None)
        told = "no replica has begun; " + _text(run, job or run.jobs[0]) if run.jobs else "no replica has begun"
    return Reasons(name, "none", told, waits=waits, remark=_remark(run, name))


def _waits(run: RunRecord, subject: str, host: SourceHost) -> tuple[Wait, ...]:
    """Return why replicas wait; those that no one has asked for do not."""
    return tuple(wait for wait in waits_within(run, subject, host) if wait.kind != HELD)


def _of_run(run: RunRecord, waits: tuple[Wait, ...]) -> Reasons:
    items = tuple(Reasons(run.id, "none", _text(run, job), remark=unlimited_text(job)) for job in run.jobs)
    if waits or not items:
        return Reasons(run.id, "none", "nothing of it waits", waits=waits, remark=_remark(run))
    return items[0] if len(items) == 1 else Reasons(run.id, "none", "its jobs differ", items=items)


def _remark(run: RunRecord, replica: str = "") -> str:
    return " ".join(filter(None, (unlimited_text(job, replica) for job in run.jobs)))


def failed_beside(run: RunRecord) -> str:
    """Return which replicas had failed when their run succeeded, with their last errors; "" if none had."""
    if run.state != "succeeded" or not run.of_jobs:
        return ""
    failed = [
        f"{loop_item(step.name, number)} failed: {how_failed(item.message)}".partition("\n")[0]
        for step in run.steps
        for number, item in sorted(step.items.items())
        if item.state == "failed"
    ]
    more = [f"{len(failed) - _MOST_FAILED} more failed"] if len(failed) > _MOST_FAILED else []
    told = "; ".join([*failed[:_MOST_FAILED], *more])
    return f"the run succeeded, but {told}" if failed else ""


def which_failure(jobs: Sequence[Mapping[str, Any]]) -> str:
    """Return which failure is that of a run whose jobs have failed: the last one where a job was retried too often."""
    ends = [one for job in jobs for one in job["status"].get("conditions", ()) if one["type"] == "Failed"]
    return "last" if ends and ends[0]["message"].endswith(BACKOFF_LIMIT) else "first"


def unlimited_text(job: Mapping[str, Any], replica: str = "") -> str:
    """Return how often the replicas of a job, or one or those of a type, have started again if nothing limits it."""
    counts: Mapping[str, int] = job.get("unlimited_restarts", {})
    own = [count for name, count in counts.items() if replica in ("", name, name.rpartition("-")[0])]
    return f"Restarts: {sum(own)}, no limit: set runPolicy.backoffLimit." if own else ""


def _text(run: RunRecord, job: Mapping[str, Any]) -> str:
    """Return the condition of a job with its reason, and what continues it."""
    condition = job["condition"]
    conditions = job["status"].get("conditions", ())
    reason = job.get("queued") or (conditions[-1]["message"] if conditions else "")
    if lingering := job.get("lingering"):
        reason = sentences(reason, f"Its {lingering}.")
    if "managed_by" in job:
        reason = f"it is left to {job['managed_by']} (managedBy)"
    elif run.state in (SUSPENDED, INTERRUPTED) and condition in ("Suspended", "Interrupted"):
        reason = sentences(reason, f"It goes on with: weft resume {run.id}")
    return f"{job['kind']} {job['name']} is {condition}" + (f": {reason}" if reason else "")
