"""The variables of a PaddleJob: collective training, or parameter servers if the job has a master."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from weft.frontends.training.endpoints import Endpoints, declared_port
from weft.frontends.training.kinds import replica_counts, total_replicas
from weft.frontends.training.schema import Container, EnvVar, TrainingJob

_OWN_IP: Final = "POD_IP_DUMMY"


def variables(job: TrainingJob, type: str, index: int, container: Container, endpoints: Endpoints) -> Iterator[EnvVar]:
    """Yield the variables of each container. The rendezvous names itself by its address, which others cannot know."""
    counts = replica_counts(job)
    first = "Master" if "Master" in counts else "Worker"
    port = endpoints.port(first, 0, declared_port(job, first))
    yield EnvVar("PYTHONUNBUFFERED", "1")
    yield EnvVar("PADDLE_JOB_ID", job.name)
    yield EnvVar("PADDLE_NNODES", str(total_replicas(counts)))
    if (type, index) == (first, 0):
        yield EnvVar(_OWN_IP, field="status.podIP")
        yield EnvVar("PADDLE_MASTER", f"$({_OWN_IP}):{port}")
    else:
        yield EnvVar("PADDLE_MASTER", f"{endpoints.name(first, 0)}:{port}")
    if first == "Master":
        yield EnvVar("PADDLE_SERVER_NUM" if type == "Master" else "PADDLE_TRAINER_NUM", "1")
