"""The variables of an XGBoostJob: the tracker of XGBoost, and the machines of LightGBM."""

from __future__ import annotations

from collections.abc import Iterator

from weft.frontends.training.endpoints import Endpoints, declared_port
from weft.frontends.training.kinds import replica_counts, total_replicas
from weft.frontends.training.schema import Container, EnvVar, TrainingJob


def variables(job: TrainingJob, type: str, index: int, container: Container, endpoints: Endpoints) -> Iterator[EnvVar]:
    """Yield the variables of each container.

    The operator has one WORKER_PORT for all workers. Where replicas share an address, each worker has its own, and the
    master that of the first worker.
    """
    counts = replica_counts(job)
    total = total_replicas(counts)
    yield EnvVar("MASTER_PORT", str(endpoints.port("Master", 0, declared_port(job, "Master"))))
    yield EnvVar("MASTER_ADDR", endpoints.name("Master", 0))
    yield EnvVar("WORLD_SIZE", str(total))
    yield EnvVar("RANK", str(index + counts.get("Master", 0) if type == "Worker" else index))
    yield EnvVar("PYTHONUNBUFFERED", "1")
    if total > 1:
        own = index if type == "Worker" else 0
        yield EnvVar("WORKER_PORT", str(endpoints.port("Worker", own, declared_port(job, "Worker"))))
        yield EnvVar("WORKER_ADDRS", ",".join(endpoints.name("Worker", i) for i in range(total - 1)))
