"""The environment variables that an operator adds to the containers of a job: how replicas find each other.

Source: the controllers of the training operator 1.9 (`pkg/controller.v1`), and the runtimes of Trainer v2
(`pkg/runtime/framework/plugins`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

from weft.frontends.training import environments

if TYPE_CHECKING:
    from weft.frontends.training.endpoints import Endpoints
    from weft.frontends.training.schema import Container, EnvVar, TrainingJob

_MODULES: Final[Mapping[str, str]] = {
    "TFJob": "tensorflow",
    "PyTorchJob": "pytorch",
    "MPIJob": "mpi",
    "XGBoostJob": "xgboost",
    "PaddleJob": "paddle",
    "JAXJob": "jax",
    "TrainJob": "trainer",
}
"""The modules of `environments` by the kinds of jobs; a job loads that of its kind alone."""


def environment_of(
    job: TrainingJob, type: str, index: int, container: Container, endpoints: Endpoints
) -> tuple[EnvVar, ...]:
    """Return the variables that the operator adds to one container of a replica, in order.

    They follow the container's own variables, and so win over them. Init containers receive none.
    """
    if all(one.name != container.name for one in job.replicas[type].template.containers):
        return ()
    module = import_module(f"{environments.__name__}.{_MODULES[job.kind]}")
    return tuple(module.variables(job, type, index, container, endpoints))
