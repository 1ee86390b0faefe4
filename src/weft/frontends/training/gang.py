"""What a job asks of a scheduler of gangs.

Source: `pkg/controller.v1/common/scheduling.go` and `CalcPGMinResources` of the training operator 1.9.
"""

from __future__ import annotations

from weft.frontends.training.kinds import replica_counts
from weft.frontends.training.observed import CreateGang
from weft.frontends.training.schema import SchedulingPolicy, TrainingJob


def gang_of(job: TrainingJob, asked: CreateGang | None) -> CreateGang:
    """Return the gang of a job; the queue of one that was asked for stays."""
    policy = job.policy.scheduling or SchedulingPolicy()
    least = sum(replica_counts(job).values()) if policy.min_available is None else policy.min_available
    return CreateGang(
        min_available=least,
        queue=asked.queue if asked is not None else policy.queue or "default",
        priority_class=policy.priority_class,
        min_resources=least_resources(job, least) if policy.min_resources is None else policy.min_resources,
        timeout_s=policy.timeout_s,
    )


def least_resources(job: TrainingJob, number: int) -> dict[str, float]:
    """Return what the first `number` pods request, in the order of the file; limits stand for missing requests."""
    total: dict[str, float] = {}
    for type, replicas in replica_counts(job).items():
        taken = min(max(replicas, 0), number)
        number -= taken
        for container in job.replicas[type].template.containers:
            for name, amount in {**container.limits, **container.requests}.items():
                total[name] = total.get(name, 0) + amount * taken
    return total
