"""What a controller sees of a job, what it does, and the status that it writes: plain records.

Times are seconds since 1970 (UTC). Source: `pkg/apis/kubeflow.org/v1/common_types.go` of the training operator 1.9.

Annotations are evaluated with their classes here: msgspec takes four times as long to evaluate their texts.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
UNKNOWN: Final = "Unknown"
PHASES: Final = (PENDING, RUNNING, SUCCEEDED, FAILED, UNKNOWN)

CREATED: Final = "Created"
RESTARTING: Final = "Restarting"
SUSPENDED: Final = "Suspended"
CANCELLED: Final = "Cancelled"
"""The condition of a job whose run was cancelled; upstream has none, for a deleted job has no status."""


class Pod(Struct, frozen=True, kw_only=True):
    """A pod of a replica. `exit_code` is that of the main container, None while it runs or if it never ended.

    `restarts` counts restarts in place of all its containers, `created` tells incarnations of one name apart.
    `reason` is a word such as "Evicted"; `ready` whether its readiness probe holds.
    """

    type: str
    index: int
    phase: str
    exit_code: int | None = None
    restarts: int = 0
    deleting: bool = False
    ready: bool = True
    reason: str = ""
    message: str = ""
    created: int = 1
    started_at: float | None = None


class Condition(Struct, frozen=True, kw_only=True):
    """A condition of a job; `status` is "True" or "False"."""

    type: str
    status: str
    reason: str
    message: str
    updated_at: float
    changed_at: float


class ReplicaStatus(Struct, frozen=True, kw_only=True):
    """The numbers of replicas of one type."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    selector: str = ""


class JobStatus(Struct, frozen=True, kw_only=True):
    """The status of a job; `conditions[-1]` is its state.

    `recreated` counts the retries that no pod shows any more, for the backoff limit of the fixed rules: pods that were
    created again after a failure, with their restarts in place.
    """

    conditions: tuple[Condition, ...] = ()
    replicas: Mapping[str, ReplicaStatus] = field(default_factory=dict)
    started_at: float | None = None
    completed_at: float | None = None
    reconciled_at: float | None = None
    recreated: int = 0


class Observed(Struct, frozen=True, kw_only=True):
    """The world as a controller finds it: the status that it wrote last, its pods, and the headless services of
    replicas as indices by type.

    `gang` tells whether the gang of the job has its place (None: no gang scheduler), `asked` what was
    asked for it. `deleted`: someone wants the job gone; `expired`: it was deleted after its time
    to live. Actions that were taken show here at the next call.
    """

    status: JobStatus = JobStatus()
    pods: tuple[Pod, ...] = ()
    services: Mapping[str, frozenset[int]] = field(default_factory=dict)
    gang: bool | None = None
    asked: "CreateGang | None" = None
    deleted: bool = False
    expired: bool = False


# ---------------------------------------------------------------------------------------------------------- actions


class CreatePod(Struct, frozen=True):
    """Create the pod of a replica."""

    type: str
    index: int


class DeletePod(Struct, frozen=True):
    """Delete the pod of a replica; `reason` is for the user."""

    type: str
    index: int
    reason: str = ""


class CreateService(Struct, frozen=True):
    """Create the headless service of a replica."""

    type: str
    index: int


class DeleteService(Struct, frozen=True):
    """Delete the service of a replica."""

    type: str
    index: int


class CreateGang(Struct, frozen=True, kw_only=True):
    """Ask for the places of `min_available` replicas, all or nothing."""

    min_available: int
    queue: str = "default"
    priority_class: str = ""
    min_resources: Mapping[str, float] | None = None
    timeout_s: int | None = None


class DeleteGang(Struct, frozen=True):
    """Give the places back."""


class DeleteJob(Struct, frozen=True):
    """Remove the finished job: its time to live is over."""


class JobEvent(Struct, frozen=True, kw_only=True):
    """An event for the user. `kind` is "Normal" or "Warning"."""

    kind: str
    reason: str
    message: str


class Count(Struct, frozen=True):
    """A counter of the operator goes up, such as `jobs_restarted_total`."""

    name: str
    by: int = 1


class Wake(Struct, frozen=True):
    """Decide again at `at`, even if nothing changes."""

    at: float


Action = (
    CreatePod
    | DeletePod
    | CreateService
    | DeleteService
    | CreateGang
    | DeleteGang
    | DeleteJob
    | JobEvent
    | Count
    | Wake
)


class Desired(Struct, frozen=True):
    """The answer of a controller: what to do now, and the status to write."""

    actions: tuple[Action, ...]
    status: JobStatus
