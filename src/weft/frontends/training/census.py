"""The replicas of a job, counted: one pass over its pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from weft.frontends.training.compat import Compat
from weft.frontends.training.observed import FAILED, RUNNING, SUCCEEDED, Pod
from weft.frontends.training.schema import ALWAYS, EXIT_CODE, NEVER, ON_FAILURE, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Sequence

EVICTED: Final = "Evicted"
RETRYING: Final = (ALWAYS, ON_FAILURE, EXIT_CODE)
"""The restart policies that start a failed replica again."""
RETRYABLE_EXIT_CODE: Final = 128
"""From this exit code on, restart policy ExitCode starts a replica again."""
WHOLE_JOB: Final = "weft.dev/restart"
"""The annotation whose value "job" starts all replicas again when one fails."""


class Census(Struct, kw_only=True):
    """The replicas of one type.

    `slots` has a pod or None for each index, `strays` pods beyond the replicas. `failed` counts as the status shows
    it; of the failed pods, the restart policy covers `retried`, and `lost` are the others. `present` counts the slots
    with a pod that runs or has ended well.
    """

    type: str
    replicas: int
    slots: list[Pod | None]
    strays: list[Pod] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    retried: list[Pod] = field(default_factory=list)
    lost: list[Pod] = field(default_factory=list)
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    restarts: int = 0
    deleting: bool = False

    @property
    def present(self) -> int:
        """How many replicas run or have ended well."""
        return self.active + self.succeeded


def restarts_whole(job: TrainingJob) -> bool:
    """Whether one failed replica starts all replicas of a job again."""
    return job.annotations.get(WHOLE_JOB) == "job"


def restarts_unlimited(job: TrainingJob) -> frozenset[str]:
    """Return the replica types that start again after failures as long as they fail: neither a number nor a time limits
    them.
    """
    if job.policy.backoff_limit is not None or job.policy.deadline_s is not None:
        return frozenset()
    whole = restarts_whole(job)
    return frozenset(type for type, spec in job.replicas.items() if whole or spec.restart_policy in RETRYING)


def retried(policy: str | None, pod: Pod, compat: Compat) -> bool:
    """Whether a restart policy starts a failed pod again. A pod without an exit code was not ended by its program."""
    if policy == EXIT_CODE:
        evicted = pod.reason == EVICTED and Compat.UNCOUNTED_RECREATION not in compat
        return pod.exit_code is None or pod.exit_code >= RETRYABLE_EXIT_CODE or evicted
    return policy in (ALWAYS, ON_FAILURE)


def take_census(job: TrainingJob, pods: Sequence[Pod], compat: Compat) -> dict[str, Census]:
    """Count the replicas by type, in the order of the file. Of several pods of one replica, the newest counts."""
    found = {}
    rows: dict[str, list[Pod | None]] = {}
    for type, spec in job.replicas.items():
        replicas = 1 if spec.replicas is None else max(spec.replicas, 0)
        rows[type] = [None] * replicas
        found[type] = Census(type=type, replicas=replicas, slots=rows[type])
    for pod in pods:
        row = rows.get(pod.type)
        if row is None:
            continue
        index = pod.index
        if 0 <= index < len(row):
            other = row[index]
            if other is None or other.created <= pod.created:
                row[index] = pod
        else:
            found[pod.type].strays.append(pod)
    whole = restarts_whole(job)
    for census in found.values():
        _count(census, ON_FAILURE if whole else job.replicas[census.type].restart_policy or NEVER, compat)
    return found


def _count(census: Census, policy: str, compat: Compat) -> None:
    active = succeeded = restarts = 0
    deletion_fails = Compat.DELETION_IS_FAILURE in compat
    for index, pod in enumerate(census.slots):
        if pod is None:
            census.missing.append(index)
        elif pod.deleting:
            census.deleting = True
            census.failed += deletion_fails and pod.phase in (RUNNING, FAILED)
            succeeded += pod.phase == SUCCEEDED
        else:
            phase = pod.phase
            restarts += pod.restarts
            if phase == RUNNING:
                active += 1
            elif phase == SUCCEEDED:
                succeeded += 1
            elif phase == FAILED:
                census.failed += 1
                (census.retried if retried(policy, pod, compat) else census.lost).append(pod)
    if Compat.DELETION_IS_FAILURE in compat:
        for pod in census.strays:
            active += pod.phase == RUNNING and not pod.deleting
            succeeded += pod.phase == SUCCEEDED
            census.failed += pod.phase == FAILED or (pod.phase == RUNNING and pod.deleting)
    census.deleting = census.deleting or any(pod.deleting for pod in census.strays)
    census.active, census.succeeded, census.restarts = active, succeeded, restarts
