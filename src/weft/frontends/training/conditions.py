"""The conditions of a job: how one more changes those that are there.

Source: `pkg/util/status.go` of the training operator 1.9. The last condition is the state that users see.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from weft.frontends.training.observed import (
    CANCELLED,
    FAILED,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    Condition,
    JobStatus,
)

COMPLETE: Final = "Complete"
"""The word of a TrainJob for success."""
TRUE: Final = "True"
FALSE: Final = "False"
_ENDS: Final = (SUCCEEDED, COMPLETE, FAILED, CANCELLED)


def is_true(conditions: tuple[Condition, ...], type: str) -> bool:
    """Whether a condition of this type is there and holds."""
    return any(one.type == type and one.status == TRUE for one in conditions)


def has_succeeded(conditions: tuple[Condition, ...]) -> bool:
    """Whether the job has ended well."""
    return is_true(conditions, SUCCEEDED) or is_true(conditions, COMPLETE)


def has_finished(conditions: tuple[Condition, ...]) -> bool:
    """Whether the job has ended, also by a cancel."""
    return any(one.type in _ENDS and one.status == TRUE for one in conditions)


def with_condition(conditions: tuple[Condition, ...], new: Condition) -> tuple[Condition, ...]:
    """Return the conditions with one more; the same tuple if it changes nothing.

    A failed job never changes. A condition with the status and the reason that it has keeps its message too. Running
    and Restarting replace each other; the end of a job turns Running to "False".
    """
    if is_true(conditions, FAILED):
        return conditions
    old = next((one for one in conditions if one.type == new.type), None)
    if old is not None and old.status == new.status:
        if old.reason == new.reason:
            return conditions
        new = replace(new, changed_at=old.changed_at)
    replaced = {RUNNING: (RUNNING, RESTARTING), RESTARTING: (RUNNING, RESTARTING)}.get(new.type, (new.type,))
    kept = [one for one in conditions if one.type not in replaced]
    if new.type in _ENDS:
        kept = [replace(one, status=FALSE) if one.type == RUNNING else one for one in kept]
    return (*kept, new)


def with_end(status: JobStatus, type: str, reason: str, message: str, now: float) -> JobStatus:
    """Return the status of a job that has ended by something else than its replicas: none of them is active.

    A status with an end stays as it is.
    """
    if has_finished(status.conditions):
        return status
    new = Condition(type=type, status=TRUE, reason=reason, message=message, updated_at=now, changed_at=now)
    return replace(
        status,
        conditions=with_condition(status.conditions, new),
        completed_at=now,
        replicas={type: replace(one, active=0) for type, one in status.replicas.items()},
    )
