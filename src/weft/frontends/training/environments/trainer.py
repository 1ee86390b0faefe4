"""The variables of the nodes of a TrainJob, by its runtime."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from weft.frontends.training.environments.mpi import CONFIG_FOLDER, HOSTFILE
from weft.frontends.training.kinds import KINDS, replica_counts
from weft.frontends.training.schema import Container, EnvVar, TrainingJob

if TYPE_CHECKING:
    from weft.frontends.training.endpoints import Endpoints

PORT: Final = KINDS["TrainJob"].port
NODE: Final = KINDS["TrainJob"].container
"""The name of the replica type that trains, and of its container."""
LAUNCHER: Final = "launcher"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""The annotation with the index of a pod among those of its indexed job."""
_OWN_INDEX: Final = f"metadata.annotations['{COMPLETION_INDEX}']"


def variables(job: TrainingJob, type: str, index: int, container: Container, endpoints: Endpoints) -> Iterator[EnvVar]:
    """Yield the variables of the container that trains; other containers and runtimes receive none."""
    if container.name != NODE or type not in (NODE, LAUNCHER):
        return
    if job.runtime == "mpi":
        if type == LAUNCHER:
            yield from _mpi(job)
    elif type == NODE:
        host, port = endpoints.host(NODE, 0), str(endpoints.port(NODE, 0, PORT))
        nodes = replica_counts(job)[NODE]
        if job.runtime == "torch":
            yield EnvVar("PET_NNODES", str(nodes))
            yield EnvVar("PET_NPROC_PER_NODE", _processes(job, container))
            yield EnvVar("PET_NODE_RANK", field=_OWN_INDEX)
            yield EnvVar("PET_MASTER_ADDR", host)
            yield EnvVar("PET_MASTER_PORT", port)
        elif job.runtime == "jax":
            yield EnvVar("JAX_NUM_PROCESSES", str(nodes))
            yield EnvVar("JAX_PROCESS_ID", field=_OWN_INDEX)
            yield EnvVar("JAX_COORDINATOR_ADDRESS", f"{host}:{port}")
        elif job.runtime == "xgboost":
            yield EnvVar("DMLC_TRACKER_URI", host)
            yield EnvVar("DMLC_TRACKER_PORT", port)
            yield EnvVar("DMLC_TASK_ID", field=_OWN_INDEX)
            yield EnvVar("DMLC_NUM_WORKER", str(nodes * max(1, _gpus(container))))


def slots(job: TrainingJob) -> int:
    """Return the number of MPI processes of a node."""
    if job.slots_per_worker is not None:
        return job.slots_per_worker
    given = job.nproc_per_node or ""
    return int(given) if given.isdecimal() else 1


def _mpi(job: TrainingJob) -> Iterator[EnvVar]:
    yield EnvVar("OMPI_MCA_orte_default_hostfile", f"{CONFIG_FOLDER}/{HOSTFILE}")
    yield EnvVar("OMPI_MCA_orte_keep_fqdn_hostnames", "true")
    yield EnvVar("OMPI_MCA_orte_set_default_slots", str(slots(job)))
    yield EnvVar("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10")


def _processes(job: TrainingJob, container: Container) -> str:
    """Return the processes of a node: as given; one for each core for "cpu", and for "auto" without GPUs."""
    given = job.nproc_per_node or "auto"
    if given not in ("auto", "cpu") or (given == "auto" and _gpus(container)):
        return given
    cores = container.requests.get("cpu") or container.limits.get("cpu", 0)
    return str(max(1, math.ceil(cores)))


def _gpus(container: Container) -> int:
    """Return the number of GPUs of a container, of any vendor."""
    for resources in (container.requests, container.limits):
        found = next((n for name, n in resources.items() if "gpu" in name.lower()), 0)
        if found:
            return math.ceil(found)
    return 0
