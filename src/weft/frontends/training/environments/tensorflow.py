"""TF_CONFIG, the cluster of a TFJob as JSON, byte for byte as the operator writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from weft.frontends.training.endpoints import Endpoints, declared_port
from weft.frontends.training.kinds import KINDS, replica_counts
from weft.frontends.training.schema import Container, EnvVar, TrainingJob

TF_CONFIG: Final = "TF_CONFIG"
_ESCAPED: Final = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})
"""Characters that the JSON encoder of Go escapes beside those of Python."""


def variables(job: TrainingJob, type: str, index: int, container: Container, endpoints: Endpoints) -> Iterator[EnvVar]:
    """Yield TF_CONFIG for the main container of a job with more than one replica."""
    if container.name == KINDS[job.kind].container and is_distributed(job):
        config = _sparse(job, type, index, endpoints) if job.dynamic_workers else _full(job, type, index, endpoints)
        text = json.dumps(config, separators=(",", ":"), ensure_ascii=False)
        yield EnvVar(TF_CONFIG, text.translate(_ESCAPED))


def is_distributed(job: TrainingJob) -> bool:
    """Whether a job has another number than one of replicas of the known types."""
    known = KINDS[job.kind].types
    return sum(n for type, n in replica_counts(job).items() if type in known) != 1


def _full(job: TrainingJob, type: str, index: int, endpoints: Endpoints) -> dict[str, Any]:
    counts = sorted((name.lower(), name, n) for name, n in replica_counts(job).items())
    cluster = {key: [_address(job, name, i, endpoints) for i in range(n)] for key, name, n in counts}
    return {"cluster": cluster, "task": {"type": type.lower(), "index": index}, "environment": "cloud"}


def _sparse(job: TrainingJob, type: str, index: int, endpoints: Endpoints) -> dict[str, Any]:
    """Return the cluster as one replica needs it while the number of workers changes.

    The operator writes null for a job without parameter servers, which TensorFlow refuses; here the list is empty.
    """
    workers, servers = {}, []
    if type == "PS":
        servers = [_address(job, type, index, endpoints)]
    elif type == "Worker":
        servers = [_address(job, "PS", i, endpoints) for i in range(replica_counts(job).get("PS", 0))]
        workers = {str(index): _address(job, type, index, endpoints)}
    return {"cluster": {"worker": workers, "ps": servers}, "task": {"type": type.lower(), "index": index}}


def _address(job: TrainingJob, type: str, index: int, endpoints: Endpoints) -> str:
    return f"{endpoints.host(type, index)}:{endpoints.port(type, index, declared_port(job, type))}"
