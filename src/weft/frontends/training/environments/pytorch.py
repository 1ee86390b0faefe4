"""The variables of a PyTorchJob: MASTER_* and RANK for `torch.distributed`, PET_* for torchrun."""

from __future__ import annotations

from collections.abc import Iterator

from weft.frontends.training.endpoints import Endpoints, declared_port
from weft.frontends.training.kinds import pod_name, replica_counts, total_replicas
from weft.frontends.training.schema import Container, ElasticPolicy, EnvVar, TrainingJob


def variables(job: TrainingJob, type: str, index: int, container: Container, endpoints: Endpoints) -> Iterator[EnvVar]:
    """Yield the variables of each container."""
    counts = replica_counts(job)
    yield EnvVar("PYTHONUNBUFFERED", "1")
    if "Master" in counts:
        yield from _master(job, type, index, endpoints)
    if job.nproc_per_node is not None:
        yield EnvVar("PET_NPROC_PER_NODE", job.nproc_per_node)
    if job.elastic is not None:
        yield from _elastic(job, job.elastic, endpoints)
    else:
        yield EnvVar("PET_NNODES", str(total_replicas(counts)))


def _master(job: TrainingJob, type: str, index: int, endpoints: Endpoints) -> Iterator[EnvVar]:
    port = str(endpoints.port("Master", 0, declared_port(job, "Master")))
    host = endpoints.name("Master", 0)
    rank = str(index + 1 if type == "Worker" else index)
    yield EnvVar("MASTER_PORT", port)
    yield EnvVar("PET_MASTER_PORT", port)
    yield EnvVar("MASTER_ADDR", host)
    yield EnvVar("PET_MASTER_ADDR", host)
    yield EnvVar("WORLD_SIZE", str(total_replicas(replica_counts(job)) * _processes(job)))
    yield EnvVar("RANK", rank)
    yield EnvVar("PET_NODE_RANK", rank)


def _processes(job: TrainingJob) -> int:
    """Return the number of processes of a replica, 1 where only the replica can tell ("auto", "gpu")."""
    try:
        return int(job.nproc_per_node or "1")
    except ValueError:
        return 1


def _elastic(job: TrainingJob, policy: ElasticPolicy, endpoints: Endpoints) -> Iterator[EnvVar]:
    yield EnvVar("PET_RDZV_ENDPOINT", _rendezvous(job, policy, endpoints))
    yield EnvVar("PET_RDZV_BACKEND", policy.backend if policy.backend is not None else "c10d")
    if policy.min_replicas is None or policy.max_replicas is None:
        yield EnvVar("PET_NNODES", str(replica_counts(job).get("Worker", 0)))
    else:
        yield EnvVar("PET_NNODES", f"{policy.min_replicas}:{policy.max_replicas}")
    if policy.max_restarts is not None:
        yield EnvVar("PET_MAX_RESTARTS", str(policy.max_restarts))
    if policy.nproc_per_node is not None:
        yield EnvVar("PET_NPROC_PER_NODE", str(policy.nproc_per_node))
    if policy.id is not None:
        yield EnvVar("PET_RDZV_ID", policy.id)
    if policy.conf:
        yield EnvVar("PET_RDZV_CONF", ",".join(f"{key}={value}" for key, value in policy.conf))
    if policy.standalone:
        yield EnvVar("PET_STANDALONE", "")


def _rendezvous(job: TrainingJob, policy: ElasticPolicy, endpoints: Endpoints) -> str:
    """Return the address of the rendezvous; a host that names a replica of the job is that replica."""
    port = policy.port if policy.port is not None else declared_port(job, "Worker")
    named = policy.host.partition(".")[0] if policy.host is not None else pod_name(job, "Worker", 0)
    for type, replicas in replica_counts(job).items():
        for index in range(replicas):
            if named == pod_name(job, type, index):
                host = policy.host if endpoints.name(type, index) == named else endpoints.name(type, index)
                return f"{host or named}:{endpoints.port(type, index, port)}"
    return f"{policy.host or named}:{port}"
