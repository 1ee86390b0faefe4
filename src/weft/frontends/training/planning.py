"""What a run of a job file would start here: the plan of each job. Nothing is started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from weft.frontends.training import mpi
from weft.frontends.training.census import restarts_unlimited
from weft.frontends.training.compiler import groups_of, requests_of
from weft.frontends.training.desired import is_ours
from weft.frontends.training.endpoints import (
    ClusterEndpoints,
    LoopbackEndpoints,
    listening_ports,
    main_container,
)
from weft.frontends.training.environment import environment_of
from weft.frontends.training.expansion import expanded_words
from weft.frontends.training.kinds import pod_name, replica_counts
from weft.frontends.training.schema import NEVER
from weft.graph.job_plan import GangPlan, JobPlan, ReplicaPlan, VariablePlan
from weft.model.errors import DefinitionError, NotFoundError
from weft.model.ids import loop_item
from weft.operators.network import Isolation

if TYPE_CHECKING:
    from weft.frontends.training.compiler import ReplicaGroup
    from weft.frontends.training.endpoints import Endpoints
    from weft.frontends.training.running import LocalJobs
    from weft.frontends.training.schema import Container, TrainingJob
    from weft.graph.spec import SharingSpec

_MOST_LOOKED_AT: Final = 64
"""The number of replicas of a type whose variables are compared."""


def plan_jobs(host: LocalJobs, sharing: SharingSpec | None, why_held: dict[str, str]) -> list[JobPlan]:
    """Return the plan of each job of a host; `why_held` tells why jobs would not start, by name."""
    isolation, why = host.isolation()
    loopback = isolation is Isolation.PORTS
    return [
        JobPlan(
            kind=job.kind,
            name=job.name,
            namespace=job.namespace,
            held=why_held.get(job.name, ""),
            isolation=isolation.value,
            isolation_why=why,
            policy=dict(_policy(job)),
            replicas=tuple(
                _replicas(host, group, None if loopback else ClusterEndpoints(job))
                for group in groups_of(host.files)
                if group.job is job
            ),
            environment=tuple(_environment(job, LoopbackEndpoints({}) if loopback else ClusterEndpoints(job))),
            gang=_gang(host, job, sharing),
            warnings=tuple(host.warnings([job.name])),
        )
        for job in host.files.jobs
    ]


def _policy(job: TrainingJob) -> Iterator[tuple[str, str | int]]:
    policy = job.policy
    given = {
        "cleanPodPolicy": policy.clean_pod_policy,
        "activeDeadlineSeconds": policy.deadline_s,
        "backoffLimit": policy.backoff_limit,
        "ttlSecondsAfterFinished": policy.ttl_s,
        "scheduleTimeoutSeconds": policy.scheduling.timeout_s if policy.scheduling is not None else None,
    }
    return ((name, value) for name, value in given.items() if value is not None)


def _replicas(host: LocalJobs, group: ReplicaGroup, endpoints: Endpoints | None) -> ReplicaPlan:
    job, template = group.job, group.spec.template
    replica = host.replica(job.name, group.type, 0)
    main = replica.main_container
    words: tuple[str, ...] = ()
    problem = stands_for = ""
    count = 1 if group.spec.replicas is None else group.spec.replicas
    try:
        for one in (*template.init_containers, *template.containers):
            recipe = host.recipe(replica, one)
            if one is main:
                words, stands_for = recipe.words(main), recipe.origin
                known = {**recipe.env, **_known(host, group, main, count, endpoints)}
                words = tuple(expanded_words(words, known))
    except NotFoundError as error:
        problem = str(error) if is_ours(job) else ""
    ends = dict.fromkeys((0, count - 1)) if count else ()
    ports = {port for type, index, port in listening_ports(job) if (type, index) == (group.type, 0)}
    beside = [one.name for one in (*template.init_containers, *template.containers) if one is not main]
    return ReplicaPlan(
        type=group.type,
        step=group.vertex,
        replicas=count,
        most=group.most,
        restart_policy=group.spec.restart_policy or NEVER,
        unlimited=group.type in restarts_unlimited(job),
        command=words,
        problem=problem,
        image=main.image,
        stands_for=stands_for,
        beside=tuple(beside),
        requests=requests_of(template).amounts,
        names=tuple(pod_name(job, group.type, index) for index in ends),
        ports=tuple(sorted(ports)),
    )


def _known(
    host: LocalJobs, group: ReplicaGroup, container: Container, count: int, endpoints: Endpoints | None
) -> dict[str, str]:
    """Return the variables of a container that are known before the run, and the same for all replicas of a group."""
    try:
        first, last = (
            host.planned_environment(host.replica(group.job.name, group.type, index), container, endpoints)
            for index in (0, max(count - 1, 0))
        )
    except DefinitionError:  # a config map or a secret is missing: the replica says so
        return {}
    return {name: value for name, value in first.items() if last.get(name) == value}


def _environment(job: TrainingJob, endpoints: Endpoints) -> Iterator[VariablePlan]:
    """Yield the variables that the operator adds: once for all replicas with one value, else for each replica."""
    values: dict[str, dict[str, str]] = {}
    names: list[str] = []
    for type, count in replica_counts(job).items():
        container = main_container(job, type)
        for index in range(min(count, _MOST_LOOKED_AT)) if container is not None else ():
            name = loop_item(type.lower(), index)
            names.append(name)
            assert container is not None
            added = [*environment_of(job, type, index, container, endpoints)]
            added += mpi.local_variables(job, type, "/etc/mpi", loopback=isinstance(endpoints, LoopbackEndpoints))
            for variable in added:
                values.setdefault(variable.name, {})[name] = variable.value
    for added_name, own in values.items():
        if len(own) == len(names) and len(set(own.values())) == 1:
            yield VariablePlan(added_name, "", next(iter(own.values())))
        else:
            yield from (VariablePlan(added_name, replica, value) for replica, value in own.items())


def _gang(host: LocalJobs, job: TrainingJob, sharing: SharingSpec | None) -> GangPlan | None:
    if sharing is None or not is_ours(job):
        return None
    policy = job.policy.scheduling
    total = sum(replica_counts(job).values())
    least = total if policy is None or policy.min_available is None else min(policy.min_available, total)
    left, needs, parts = least, (0.0, 0.0, 0.0), []
    for group in groups_of(host.files):
        if group.job is not job:
            continue
        taken = min(1 if group.spec.replicas is None else group.spec.replicas, left)
        each = requests_of(group.spec.template)
        left -= taken
        if taken and not each.light:
            needs = needs[0] + each.cpu * taken, needs[1] + each.memory * taken, needs[2] + each.gpu * taken
            parts.append(f"{taken} of {group.vertex}, each {each}")
    if not parts:
        return None
    return GangPlan(
        replicas=least,
        needs=needs,
        parts=" and ".join(parts),
        has=sharing.room,
        queue=sharing.queue,
        limit=sharing.limit,
        priority=sharing.priority,
    )
