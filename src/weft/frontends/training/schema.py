"""The records of job files: a job with its replica types, and what a pod needs to run.

Field names follow the API of kubeflow.org/v1 (training operator 1.9) and of Kubernetes core/v1, in snake case with
units. None stands for a field that the file does not give; `defaulting` fills what the operator fills. Quantities of
resources are plain numbers: cores, bytes, counts.

Annotations are evaluated with their classes here: msgspec takes four times as long to evaluate their texts.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

# ------------------------------------------------------------------------------------------------------------- pods


class KeyRef(Struct, frozen=True):
    """A key of a config map or a secret."""

    name: str
    key: str
    optional: bool = False


class EnvVar(Struct, frozen=True):
    """A variable of a container: a text that may hold `$(NAME)`, or a source.

    `field` is the path of a `fieldRef` such as "status.podIP"; `resource` is the name of a `resourceFieldRef` such as
    "limits.cpu", in units of `divisor`.
    """

    name: str
    value: str = ""
    config_map: KeyRef | None = None
    secret: KeyRef | None = None
    field: str = ""
    resource: str = ""
    divisor: float = 0


class EnvSource(Struct, frozen=True):
    """All keys of a config map or a secret as variables whose names begin with `prefix`."""

    name: str
    secret: bool = False
    prefix: str = ""
    optional: bool = False


class Port(Struct, frozen=True):
    """A port of a container."""

    number: int
    name: str = ""
    protocol: str = "TCP"


class VolumeMount(Struct, frozen=True):
    """The place of a volume in a container."""

    volume: str
    path: str
    read_only: bool = False
    sub_path: str = ""


class ContainerProbe(Struct, frozen=True):
    """A check of a running container: a command, or a connection to a port.

    `http` has the path of a GET, `grpc` the service of a health check of gRPC ("": the whole server). `host` is "" for
    the address of the pod; `headers` are those of the GET. `grace_s` replaces the grace period of the
    pod if the check ends the container.
    """

    command: tuple[str, ...] = ()
    port: int | str = 0
    http: str = ""
    grpc: str | None = None
    scheme: str = "HTTP"
    host: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    delay_s: float = 0
    period_s: float = 10
    timeout_s: float = 1
    successes: int = 1
    failures: int = 3
    grace_s: float | None = None


class Container(Struct, frozen=True, kw_only=True):
    """One container of a pod. Without `command` the entry point of the image runs, with `args` instead of its own."""

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvSource, ...] = ()
    ports: tuple[Port, ...] = ()
    requests: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    mounts: tuple[VolumeMount, ...] = ()
    readiness: ContainerProbe | None = None
    liveness: ContainerProbe | None = None
    startup: ContainerProbe | None = None
    pre_stop: tuple[str, ...] = ()
    post_start: tuple[str, ...] = ()
    pull_policy: str = ""
    """`imagePullPolicy`, "" if the file does not give it."""
    restart_policy: str = ""
    """"Always": an init container of the file that runs beside the others; "" for all others."""
    user: str = ""
    """`runAsUser` and `runAsGroup` of the security context as USER:GROUP, "" for the user of the image."""

    @property
    def has_probes(self) -> bool:
        """Whether its health is checked."""
        return any(probe is not None for probe in (self.readiness, self.liveness, self.startup))


class FileItem(Struct, frozen=True):
    """A file of a volume: a key of a config map or a secret, a field of the pod, or a resource of a container.

    `mode` has its permission bits, -1: as the volume. With `container` the key is a resource of that container, in
    units of `divisor`.
    """

    key: str
    path: str
    mode: int = -1
    container: str = ""
    divisor: float = 0


class Volume(Struct, frozen=True, kw_only=True):
    """A volume of a pod. `kind` is "empty", "memory", "host", "claim", "config_map", "secret", "downward" or
    "projected"; `source` is the path on the host, or the name of the claim, config map or secret.
    """

    name: str
    kind: str
    source: str = ""
    size_limit: float = 0
    host_type: str = ""
    items: tuple[FileItem, ...] = ()
    mode: int = 0o644
    optional: bool = False
    read_only: bool = False
    parts: "tuple[Volume, ...]" = ()
    """The sources of a projected volume."""


class PodTemplate(Struct, frozen=True, kw_only=True):
    """What a replica runs."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    restart_policy: str = ""
    grace_s: float = 30
    """`terminationGracePeriodSeconds`."""
    deadline_s: float | None = None
    """`activeDeadlineSeconds` of the pod."""
    host_network: bool = False
    host_aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Host names by IP address."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    priority_class: str = ""
    ignored: tuple[str, ...] = ()
    """Paths of given fields that have no effect here; each is named in a warning."""


# ------------------------------------------------------------------------------------------------------------- jobs


class SchedulingPolicy(Struct, frozen=True, kw_only=True):
    """`runPolicy.schedulingPolicy`."""

    min_available: int | None = None
    queue: str = ""
    min_resources: Mapping[str, float] | None = None
    priority_class: str = ""
    timeout_s: int | None = None


class RunPolicy(Struct, frozen=True, kw_only=True):
    """`spec.runPolicy`."""

    clean_pod_policy: str | None = None
    ttl_s: int | None = None
    """`ttlSecondsAfterFinished`."""
    deadline_s: int | None = None
    """`activeDeadlineSeconds`, from the start of the job."""
    backoff_limit: int | None = None
    scheduling: SchedulingPolicy | None = None
    suspend: bool = False
    managed_by: str | None = None


class ElasticPolicy(Struct, frozen=True, kw_only=True):
    """`spec.elasticPolicy` of a PyTorchJob."""

    min_replicas: int | None = None
    max_replicas: int | None = None
    backend: str | None = None
    port: int | None = None
    host: str | None = None
    id: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    standalone: bool = False
    nproc_per_node: int | None = None
    max_restarts: int | None = None


class ReplicaSpec(Struct, frozen=True, kw_only=True):
    """One replica type of a job."""

    template: PodTemplate
    replicas: int | None = None
    restart_policy: str | None = None
    after: tuple[tuple[str, str], ...] = ()
    """Of a TrainJob: (replica type, "Ready" or "Complete") that come first."""


class Candidate(Struct, frozen=True, kw_only=True):
    """One way to run a job: numbers of replicas, and what each replica requests, by replica type."""

    replicas: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class JobTuning(Struct, frozen=True, kw_only=True):
    """What a job leaves to its control vertex; see `weft.frontends.training.tuning`.

    A trial of a candidate ends after `seconds`, or when each replica that reports has come `steps` further. `measure`
    is the metric to compare, else steps per second.
    """

    history: bool = False
    candidates: tuple[Candidate, ...] = ()
    seconds: float = 20
    steps: int | None = None
    measure: str = ""


class TrainingJob(Struct, frozen=True, kw_only=True):
    """One training job. `replicas` is by replica type, in the order of the file.

    A TrainJob of Trainer v2 is one too: its runtime gives the replica types.
    """

    kind: str
    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    replicas: Mapping[str, ReplicaSpec]
    policy: RunPolicy = RunPolicy()
    success_policy: str = ""
    dynamic_workers: bool = False
    """`enableDynamicWorker` of a TFJob."""
    elastic: ElasticPolicy | None = None
    nproc_per_node: str | None = None
    slots_per_worker: int | None = None
    launcher_is_node: bool = False
    """`runLauncherAsNode` of an MPI runtime."""
    main_container: str = ""
    runtime: str = ""
    """Of a TrainJob: "torch", "plain", "jax", "mpi", "xgboost"."""
    tuning: JobTuning | None = None


class PlainPod(Struct, frozen=True, kw_only=True):
    """A pod that stands beside the jobs of a file; it runs as long as they do."""

    name: str
    namespace: str = "default"
    template: PodTemplate


class ServiceSpec(Struct, frozen=True, kw_only=True):
    """A service beside the jobs: a name for the pods that have all labels of `selector`.

    `ports` are (port of the service, port or port name of the pod).
    """

    name: str
    namespace: str = "default"
    selector: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[tuple[int, int | str], ...] = ()
    headless: bool = False


class KeyValues(Struct, frozen=True, kw_only=True):
    """A config map or a secret: bytes by key."""

    name: str
    namespace: str = "default"
    data: Mapping[str, bytes] = field(default_factory=dict)

    def __repr__(self) -> str:  # a secret must not reach a message
        return f"KeyValues({self.name!r}, keys={sorted(self.data)!r})"


class JobFile(Struct, frozen=True, kw_only=True):
    """All that one file or folder holds. `claims` are the names of persistent volume claims."""

    jobs: tuple[TrainingJob, ...]
    pods: tuple[PlainPod, ...] = ()
    services: tuple[ServiceSpec, ...] = ()
    config_maps: Mapping[str, KeyValues] = field(default_factory=dict)
    secrets: Mapping[str, KeyValues] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


ALWAYS: Final = "Always"
ON_FAILURE: Final = "OnFailure"
NEVER: Final = "Never"
EXIT_CODE: Final = "ExitCode"
RESTART_POLICIES: Final = (ALWAYS, ON_FAILURE, NEVER, EXIT_CODE)
CLEAN_POD_POLICIES: Final = ("All", "Running", "None")
