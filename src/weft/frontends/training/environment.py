"""The environment variables that an operator adds to the containers of a job: how replicas find each other.

Source: the controllers of the training operator 1.9 (`pkg/controller.v1`), and the runtimes of Trainer v2
(`pkg/runtime/framework/plugins`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from weft.frontends.training.endpoints import Endpoints
from weft.frontends.training.environments import jax, mpi, paddle, pytorch, tensorflow, trainer, xgboost
from weft.frontends.training.schema import Container, EnvVar, TrainingJob

Additions = Callable[[TrainingJob, str, int, Container, Endpoints], Iterator[EnvVar]]

_ADDITIONS: Final[Mapping[str, Additions]] = {
    "TFJob": tensorflow.variables,
    "PyTorchJob": pytorch.variables,
    "MPIJob": mpi.variables,
    "XGBoostJob": xgboost.variables,
    "PaddleJob": paddle.variables,
    "JAXJob": jax.variables,
    "TrainJob": trainer.variables,
}


def environment_of(
    job: TrainingJob, type: str, index: int, container: Container, endpoints: Endpoints
) -> tuple[EnvVar, ...]:
    """Return the variables that the operator adds to one container of a replica, in order.

    They follow the container's own variables, and so win over them. Init containers receive none.
    """
    if all(one.name != container.name for one in job.replicas[type].template.containers):
        return ()
    return tuple(_ADDITIONS[job.kind](job, type, index, container, endpoints))
