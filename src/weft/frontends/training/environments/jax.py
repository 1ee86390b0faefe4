"""The variables of a JAXJob: the coordinator, and the number of each process."""

from __future__ import annotations

from collections.abc import Iterator

from weft.frontends.training.endpoints import Endpoints, declared_port
from weft.frontends.training.kinds import replica_counts, total_replicas
from weft.frontends.training.schema import Container, EnvVar, TrainingJob


def variables(job: TrainingJob, type: str, index: int, container: Container, endpoints: Endpoints) -> Iterator[EnvVar]:
    """Yield the variables of each container."""
    yield EnvVar("PYTHONUNBUFFERED", "1")
    yield EnvVar("COORDINATOR_PORT", str(endpoints.port("Worker", 0, declared_port(job, "Worker"))))
    yield EnvVar("COORDINATOR_ADDRESS", endpoints.name("Worker", 0))
    yield EnvVar("NUM_PROCESSES", str(total_replicas(replica_counts(job))))
    yield EnvVar("PROCESS_ID", str(index))
