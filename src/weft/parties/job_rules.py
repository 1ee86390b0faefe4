"""What follows from the files of a job alone: its first state, its digest, and what runs again in the next epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from weft.frontends.federated.components.registry import protocol_of
from weft.frontends.federated.coordination.coordinator import SUCCESS, Coordination
from weft.frontends.federated.schema import Party
from weft.frontends.federated.selection import component_limits, first_steps, jobs_before, whole_number
from weft.model.errors import NotFoundError
from weft.parties.inputs import plan_of

if TYPE_CHECKING:
    from weft.frontends.federated.schema import FederatedJob


def coordination_of(id: str, digest: str, job: FederatedJob) -> Coordination:
    """Return the first state of a job at its initiator. UsageError: a field of `job_parameters` is wrong."""
    parts = [Party(one.role, one.id) for one in job.parts]
    runs_at = {
        name: [Party(one.role, one.id) for one in job.parts if one.components[name].runs] for name in job.dsl.order
    }
    taking_part = [part for part in parts if any(part in at for at in runs_at.values())]
    parameters = job.conf.parameters
    return Coordination(
        job=id,
        initiator=job.conf.initiator,
        digest=digest,
        runs_at=runs_at,
        parts=taking_part,
        cores={str(part): cores_of(job, part) for part in taking_part},
        protocols=protocols_by_part(job, taking_part),
        timeout=float(whole_number(parameters.get("timeout"))),
        fail_after=float(whole_number(parameters.get("fail_after"))),
        time_limits={name: one.timeout_s for name, one in component_limits(job).items() if one.timeout_s},
        waits_for=jobs_before(job),
        steps=first_steps(job),
    )


def cores_of(job: FederatedJob, part: Party) -> int:
    """Return the cores that a part holds: `task_cores` times `task_parallelism`, of an arbiter without cores one."""
    parameters = plan_of(job, part).job_parameters
    if part.role == "arbiter":
        return 1
    cores = whole_number(parameters.get("task_cores")) or whole_number(parameters.get("processors_per_node")) or 1
    return cores * (whole_number(parameters.get("task_parallelism")) or 1)


def protocols_by_part(job: FederatedJob, parts: Sequence[Party]) -> dict[str, dict[str, int]]:
    """Return `protocols_of` for parts, by their names."""
    return {str(part): protocols_of(job, part) for part in parts}


def protocols_of(job: FederatedJob, part: Party) -> dict[str, int]:
    """Return the versions of messages that this party has of the modules that a part runs."""
    runs = plan_of(job, part).components
    modules = {one.module for name, one in job.dsl.components.items() if runs[name].runs}
    return {module: protocol_of(module) for module in sorted(modules)}


def cores_at(job: FederatedJob, party: str) -> int:
    """Return the cores that the parts of a party hold together while the job runs."""
    parts = [one for one in job.parts if one.id == party and any(part.runs for part in one.components.values())]
    return sum(cores_of(job, Party(one.role, one.id)) for one in parts)


def changed_components(old: FederatedJob, new: FederatedJob) -> list[str]:
    """Return the components whose parameters differ at some party, in their order."""
    return [
        name
        for name in old.dsl.order
        if any(one.components[name] != two.components[name] for one, two in zip(old.parts, new.parts, strict=True))
    ]


def kept_components(
    job: FederatedJob,
    statuses: Mapping[str, str],
    named: Sequence[str],
    *,
    force: bool,
    changed: Collection[str] = (),
) -> dict[str, str]:
    """Return the components that a rerun keeps. NotFoundError: a named one does not exist.

    Those below a component that runs again run again, too. Successes run again with `force`, if their parameters have
    `changed`, or if they lie below.
    """
    for name in named:
        if name not in job.dsl.components:
            raise NotFoundError(f"the job has no component {name!r}", hint=f"It has {', '.join(job.dsl.order)}.")
    again = {name for name in job.dsl.order if statuses.get(name) != SUCCESS and (not named or name in named)}
    again |= {name for name in named if force} | set(changed)
    if force and not named:
        again |= set(job.dsl.order)
    for name in job.dsl.order:
        if any(above in again for above in job.dsl.upstream[name]):
            again.add(name)
    return {name: SUCCESS for name in job.dsl.order if name not in again and statuses.get(name) == SUCCESS}


def digest_of(dsl: str, conf: str) -> str:
    """Return the digest of the files of a job."""
    return sha256(f"{len(dsl)}:{dsl}{conf}".encode()).hexdigest()
