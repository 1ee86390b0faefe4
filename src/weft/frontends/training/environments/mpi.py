"""The variables of the launcher of an MPIJob: by what Open MPI and Intel MPI start processes in workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from weft.frontends.training.schema import Container, EnvVar, TrainingJob

if TYPE_CHECKING:
    from weft.frontends.training.endpoints import Endpoints

CONFIG_FOLDER: Final = "/etc/mpi"
"""The folder of the files of `weft.frontends.training.mpi` in a container."""
HOSTFILE: Final = "hostfile"
AGENT: Final = "kubexec.sh"


def variables(job: TrainingJob, type: str, index: int, container: Container, endpoints: Endpoints) -> Iterator[EnvVar]:
    """Yield the variables of the first container of the launcher."""
    containers = job.replicas[type].template.containers
    if type != "Launcher" or container.name != containers[0].name:
        return
    yield EnvVar("OMPI_MCA_plm_rsh_agent", f"{CONFIG_FOLDER}/{AGENT}")
    yield EnvVar("OMPI_MCA_orte_default_hostfile", f"{CONFIG_FOLDER}/{HOSTFILE}")
    if not any(has_gpu(one.limits) for one in containers):
        yield EnvVar("NVIDIA_VISIBLE_DEVICES", "")
        yield EnvVar("NVIDIA_DRIVER_CAPABILITIES", "")
    given = {variable.name for variable in container.env}
    if "I_MPI_HYDRA_BOOTSTRAP" not in given:
        yield EnvVar("I_MPI_HYDRA_BOOTSTRAP", "rsh")
    if "I_MPI_HYDRA_BOOTSTRAP_EXEC" not in given:
        yield EnvVar("I_MPI_HYDRA_BOOTSTRAP_EXEC", f"{CONFIG_FOLDER}/{AGENT}")


def has_gpu(resources: Mapping[str, float]) -> bool:
    """Whether resources include GPUs of any vendor."""
    return any("gpu" in name for name in resources)
