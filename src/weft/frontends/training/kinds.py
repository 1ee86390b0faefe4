"""The table of kinds of jobs: what differs between them as plain data.

Source: the API types of the training operator 1.9 (`pkg/apis/kubeflow.org/v1/*_types.go`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from weft.frontends.training.schema import NEVER, ON_FAILURE, TrainingJob

CLUSTER_RUNTIME: Final = "ClusterTrainingRuntime"
RUNTIME_KINDS: Final = (CLUSTER_RUNTIME, "TrainingRuntime")
"""The kinds of the runtimes of a TrainJob."""


class Kind(Struct, frozen=True, kw_only=True):
    """One kind of jobs.

    `types` are the replica types in the order in which the status looks at them. `spec_key` is the field of the spec
    with the replica types, `container` the name of the container that runs the training, `port_name` and `port` its
    default port. `single` are types with exactly one replica, `required` types that a job must have, `masters` those
    whose end ends the job. `open_types`: other types are accepted, get pods, and are ignored by the status. After a
    success the other replicas may end by themselves for `linger_s` seconds, to leave a barrier or to save a model.
    """

    name: str
    framework: str
    plural: str
    spec_key: str
    container: str
    port_name: str
    port: int
    restart_policy: str
    types: tuple[str, ...]
    masters: tuple[str, ...] = ()
    single: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    open_types: bool = False
    linger_s: float = 0.0


KINDS: Final[dict[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind(
            name="TFJob",
            framework="tensorflow",
            plural="tfjobs",
            spec_key="tfReplicaSpecs",
            container="tensorflow",
            port_name="tfjob-port",
            port=2222,
            restart_policy=NEVER,
            types=("Chief", "Evaluator", "Master", "PS", "Worker"),
            masters=("Chief", "Master"),
            open_types=True,
        ),
        Kind(
            name="PyTorchJob",
            framework="pytorch",
            plural="pytorchjobs",
            spec_key="pytorchReplicaSpecs",
            container="pytorch",
            port_name="pytorchjob-port",
            port=23456,
            restart_policy=ON_FAILURE,
            types=("Master", "Worker"),
            masters=("Master",),
            single=("Master",),
            linger_s=30.0,
        ),
        Kind(
            name="MPIJob",
            framework="mpi",
            plural="mpijobs",
            spec_key="mpiReplicaSpecs",
            container="mpi",
            port_name="mpi-port",
            port=9999,
            restart_policy=NEVER,
            types=("Launcher", "Worker"),
            masters=("Launcher",),
            single=("Launcher",),
            required=("Launcher",),
        ),
        Kind(
            name="XGBoostJob",
            framework="xgboost",
            plural="xgboostjobs",
            spec_key="xgbReplicaSpecs",
            container="xgboost",
            port_name="xgboostjob-port",
            port=9999,
            restart_policy=NEVER,
            types=("Master", "Worker"),
            masters=("Master",),
            single=("Master",),
            required=("Master",),
            linger_s=30.0,
        ),
        Kind(
            name="PaddleJob",
            framework="paddle",
            plural="paddlejobs",
            spec_key="paddleReplicaSpecs",
            container="paddle",
            port_name="master",
            port=36543,
            restart_policy=ON_FAILURE,
            types=("Master", "Worker"),
            masters=("Master",),
            linger_s=30.0,
        ),
        Kind(
            name="JAXJob",
            framework="jax",
            plural="jaxjobs",
            spec_key="jaxReplicaSpecs",
            container="jax",
            port_name="jaxjob-port",
            port=6666,
            restart_policy=NEVER,
            types=("Worker",),
            required=("Worker",),
        ),
        Kind(
            name="TrainJob",
            framework="trainer",
            plural="trainjobs",
            spec_key="runtimeRef",
            container="node",
            port_name="trainer-port",
            port=29500,
            restart_policy=NEVER,
            types=("dataset-initializer", "model-initializer", "launcher", "node"),
            masters=("launcher",),
            open_types=True,
        ),
    )
}


def replica_name(job: str, type: str, index: int) -> str:
    """Return the name of the pod and the service of a replica."""
    return f"{job}-{type.lower()}-{index}".replace("/", "-")


def pod_name(job: TrainingJob, type: str, index: int) -> str:
    """Return the name by which the replicas of a job reach one of them.

    The launcher of an MPIJob has no index. The replicas of a TrainJob are pods of indexed jobs of a JobSet.
    """
    if job.kind == "MPIJob" and type == "Launcher":
        return f"{job.name}-launcher"
    if job.kind == "TrainJob":
        return f"{job.name}-{type}-0-{index}"
    return replica_name(job.name, type, index)


def replica_counts(job: TrainingJob) -> dict[str, int]:
    """Return the number of replicas by type, 1 where the file gives none."""
    return {type: 1 if spec.replicas is None else spec.replicas for type, spec in job.replicas.items()}


def total_replicas(replicas: Mapping[str, int]) -> int:
    """Return the number of replicas of all types."""
    return sum(replicas.values())
