"""The metadata of the pods and services of a job: labels, annotations, owner.

Source: `pkg/controller.v1/common` of the training operator 1.9, and the JobSets of Trainer v2.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from weft.frontends.training.environments.trainer import COMPLETION_INDEX, LAUNCHER, NODE
from weft.frontends.training.kinds import KINDS, replica_counts
from weft.frontends.training.schema import EXIT_CODE, NEVER, TrainingJob

OPERATOR_NAME: Final = "training.kubeflow.org/operator-name"
JOB_NAME: Final = "training.kubeflow.org/job-name"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
JOB_ROLE: Final = "training.kubeflow.org/job-role"
MASTER: Final = "master"
_JOB_SET: Final = "jobset.sigs.k8s.io"
_ANCESTOR: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_API_VERSIONS: Final = {"TrainJob": "trainer.kubeflow.org/v1alpha1"}
_API_VERSION: Final = "kubeflow.org/v1"


class Owner(Struct, frozen=True, kw_only=True):
    """The owner of a pod or service: its controller, which the owner's deletion removes first."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = True
    block_owner_deletion: bool = True


def owner_of(job: TrainingJob) -> Owner:
    """Return a job as the owner of its pods and services."""
    version = _API_VERSIONS.get(job.kind, _API_VERSION)
    return Owner(api_version=version, kind=job.kind, name=job.name, uid=job.uid)


def selector_of(job: TrainingJob, type: str, index: int) -> dict[str, str]:
    """Return the labels by which the service of a replica finds its pod."""
    if job.kind == "TrainJob":
        return {
            f"{_JOB_SET}/jobset-name": job.name,
            f"{_JOB_SET}/replicatedjob-name": type,
            COMPLETION_INDEX: str(index),
        }
    return {
        OPERATOR_NAME: f"{job.kind.lower()}-controller",
        JOB_NAME: job.name.replace("/", "-"),
        REPLICA_TYPE: type.lower(),
        REPLICA_INDEX: str(index),
    }


def labels_of(job: TrainingJob, type: str, index: int) -> dict[str, str]:
    """Return all labels of the pod of a replica: those of its template, and over them those of the operator."""
    labels = {**job.replicas[type].template.labels, **selector_of(job, type, index)}
    if job.kind == "TrainJob":
        if type in (NODE, LAUNCHER):
            labels.setdefault(_ANCESTOR, "trainer")
    elif is_master(job, type, index):
        labels[JOB_ROLE] = MASTER
    return labels


def annotations_of(job: TrainingJob, type: str, index: int) -> dict[str, str]:
    """Return all annotations of the pod of a replica."""
    own = {COMPLETION_INDEX: str(index)} if job.kind == "TrainJob" else {}
    return {**job.replicas[type].template.annotations, **own}


def is_master(job: TrainingJob, type: str, index: int) -> bool:
    """Whether a replica has the role "master".

    Those of the master types of the kind have it. In a TFJob or PyTorchJob without one, the first worker has it; in a
    JAXJob, the first replica.
    """
    masters = KINDS[job.kind].masters
    if job.kind == "JAXJob":
        return index == 0
    if job.kind in ("TFJob", "PyTorchJob") and not any(name in replica_counts(job) for name in masters):
        return (type, index) == ("Worker", 0)
    return type in masters


def pod_restart_policy(job: TrainingJob, type: str) -> str:
    """Return the restart policy of the pods of a replica type; the controller itself carries out "ExitCode"."""
    policy = job.replicas[type].restart_policy or KINDS[job.kind].restart_policy
    return NEVER if policy == EXIT_CODE else policy
