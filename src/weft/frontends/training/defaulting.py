"""The defaults that the operator fills in, for each kind as upstream.

Source: `pkg/apis/kubeflow.org/v1/*_defaults.go` and `defaulting_utils.go` of the training operator 1.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from weft.frontends.training.kinds import KINDS
from weft.frontends.training.schema import Port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.frontends.training.kinds import Kind
    from weft.frontends.training.schema import ElasticPolicy, PodTemplate, ReplicaSpec, TrainingJob

_NPROC_PER_NODE: Final = "auto"


def defaulted(job: TrainingJob) -> TrainingJob:
    """Return a job with the defaults of its kind. A TrainJob has those of its runtime already.

    `cleanPodPolicy` stays as given: the rules of the job say what stands for none.
    """
    kind = KINDS[job.kind]
    if job.kind == "TrainJob":
        return job
    if job.kind == "MPIJob":
        return replace(job, replicas=_mpi_replicas(job.replicas, kind))
    replicas = {_type_name(name, kind): _replica_spec(spec, kind) for name, spec in job.replicas.items()}
    job = replace(job, replicas=replicas)
    if job.elastic is not None:
        job = replace(job, elastic=_elastic(job.elastic, replicas))
    if job.kind == "PyTorchJob" and job.nproc_per_node is None:
        own = job.elastic is not None and job.elastic.nproc_per_node is not None
        job = replace(job, nproc_per_node=None if own else _NPROC_PER_NODE)
    return job


def _type_name(name: str, kind: Kind) -> str:
    return next((known for known in kind.types if known.lower() == name.lower()), name)


def _replica_spec(spec: ReplicaSpec, kind: Kind) -> ReplicaSpec:
    return replace(
        spec,
        replicas=1 if spec.replicas is None else spec.replicas,
        restart_policy=spec.restart_policy or kind.restart_policy,
        template=_with_port(spec.template, kind),
    )


def _with_port(template: PodTemplate, kind: Kind) -> PodTemplate:
    """Append the port of the kind to the container of the training (else the first), unless a port has its name."""
    names = [one.name for one in template.containers]
    at = names.index(kind.container) if kind.container in names else 0
    if not names or any(port.name == kind.port_name for port in template.containers[at].ports):
        return template
    containers = list(template.containers)
    ports = (*containers[at].ports, Port(kind.port, kind.port_name))
    containers[at] = replace(containers[at], ports=ports)
    return replace(template, containers=tuple(containers))


def _mpi_replicas(replicas: Mapping[str, ReplicaSpec], kind: Kind) -> dict[str, ReplicaSpec]:
    """Return the replica types of an MPIJob: no worker unless the file says so, and no port."""
    number = {"Launcher": 1, "Worker": 0}
    return {
        name: replace(
            spec,
            replicas=number.get(name, 1) if spec.replicas is None else spec.replicas,
            restart_policy=spec.restart_policy or kind.restart_policy,
        )
        for name, spec in replicas.items()
    }


def _elastic(elastic: ElasticPolicy, replicas: Mapping[str, ReplicaSpec]) -> ElasticPolicy:
    """Fill in the bounds: each from the other, both from the number of workers."""
    workers = replicas["Worker"].replicas if "Worker" in replicas else None
    low = elastic.min_replicas if elastic.min_replicas is not None else elastic.max_replicas
    high = elastic.max_replicas if elastic.max_replicas is not None else elastic.min_replicas
    return replace(
        elastic,
        min_replicas=workers if low is None else low,
        max_replicas=workers if high is None else high,
    )
