"""Where Weft does what the documents of the operator promise and the operator does not: one point for each fault."""

from __future__ import annotations

from enum import Flag, auto
from typing import Final

from msgspec import Struct


class Compat(Flag):
    """The faults of the training operator that are repeated: none (FIXED), all (STRICT), or any set of them."""

    FIXED = 0
    UNTIMED_DEADLINE = auto()
    UNCOUNTED_RECREATION = auto()
    SUCCEEDED_AND_FAILED = auto()
    DELETION_IS_FAILURE = auto()
    LEFT_RUNNING = auto()
    STRAY_PODS = auto()
    LEFT_SERVICES = auto()
    STRICT = (
        UNTIMED_DEADLINE
        | UNCOUNTED_RECREATION
        | SUCCEEDED_AND_FAILED
        | DELETION_IS_FAILURE
        | LEFT_RUNNING
        | STRAY_PODS
        | LEFT_SERVICES
    )


class CompatPoint(Struct, frozen=True):
    """What happens with a fault, what without it, and where the fault is upstream."""

    strict: str
    fixed: str
    source: str


POINTS: Final[dict[Compat, CompatPoint]] = {
    Compat.UNTIMED_DEADLINE: CompatPoint(
        "activeDeadlineSeconds is looked at only when something else changes",
        "the job fails when the time is over",
        "pkg/common/util/fake_workqueue.go",
    ),
    Compat.UNCOUNTED_RECREATION: CompatPoint(
        "backoffLimit counts restarts in place of running pods, and ends the last retry that it allows; ExitCode looks "
        "at the exit code of an evicted pod",
        "pods that are created again count too; the job fails when it needs one retry more than the limit; ExitCode "
        "starts an evicted pod again",
        "pkg/core/job.go",
    ),
    Compat.SUCCEEDED_AND_FAILED: CompatPoint(
        "a job is Succeeded and Failed at once, Restarting hides a failure, the end has no time after a permanent exit "
        "code, parameter servers alone never run, a retried replica of an XGBoostJob or MPIJob fails it",
        "the job has one end: success of the deciding replicas, else a failure that no restart policy covers",
        "pkg/controller.v1/*/*_controller.go, UpdateJobStatus",
    ),
    Compat.DELETION_IS_FAILURE: CompatPoint(
        "a running pod that is being deleted counts as failed: scaling down fails the job",
        "it does not count; its replacement is created when it is gone",
        "pkg/core/status.go",
    ),
    Compat.LEFT_RUNNING: CompatPoint(
        "without cleanPodPolicy, pods that run when the job has ended are left; a failed job keeps its active count",
        "without cleanPodPolicy, pods that run are deleted (Running); those that None names are left",
        "pkg/apis/kubeflow.org/v1/*_defaults.go",
    ),
    Compat.STRAY_PODS: CompatPoint(
        "a type of 0 replicas gets a pod, as do the gaps below a pod beyond the replicas; each is deleted again",
        "no pod beyond the replicas is created",
        "pkg/core/pod.go, CalculatePodSliceSize",
    ),
    Compat.LEFT_SERVICES: CompatPoint(
        "a service whose pod is gone is left when the job ends or is suspended",
        "it is deleted with the others",
        "pkg/controller.v1/common/job.go, DeletePodsAndServices",
    ),
}
