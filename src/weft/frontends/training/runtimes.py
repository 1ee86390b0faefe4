"""The runtimes of Trainer v2: those of a file, and those that are there without one.

Source: `pkg/apis/trainer/v1alpha1/trainingruntime_types.go` and `manifests/base/runtimes` of the trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from weft.documents import yaml
from weft.documents.problems import show
from weft.frontends.training import shapes
from weft.frontends.training.fields import MOST_REPLICAS
from weft.frontends.training.jobs import read_metadata
from weft.frontends.training.kinds import CLUSTER_RUNTIME
from weft.frontends.training.pods import read_pod_template
from weft.frontends.training.schema import Container, PodTemplate
from weft.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from weft.frontends.training.fields import Fields

ANCESTOR: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
"""The label of a replicated job that says which step of the training it is."""
TRAINER: Final = "trainer"
DATASET: Final = "dataset-initializer"
MODEL: Final = "model-initializer"
NODE: Final = "node"
LAUNCHER: Final = "launcher"
_CONTAINERS: Final = {TRAINER: NODE, DATASET: DATASET, MODEL: MODEL}
_STATUSES: Final = ("Ready", "Complete")
_POLICIES: Final = ("torch", "mpi", "jax", "xgboost")
PROCESS_WORDS: Final = ("auto", "cpu", "gpu")
"""What may stand in place of the number of processes of a node."""
_TIMEOUT_S: Final = 60
BACKOFF_LIMIT: Final = 6
"""The limit of restarts of a Job of Kubernetes that names none."""


class ReplicatedJob(Struct, frozen=True, kw_only=True):
    """A job of a runtime with `count` pods. `after` are (name of another, "Ready" or "Complete") that come first."""

    name: str
    template: PodTemplate
    ancestor: str = ""
    count: int = 1
    after: tuple[tuple[str, str], ...] = ()
    backoff_limit: int = BACKOFF_LIMIT


class Runtime(Struct, frozen=True, kw_only=True):
    """What a TrainJob runs in. `policy` is "torch", "plain", "jax", "mpi" or "xgboost"."""

    name: str
    kind: str = CLUSTER_RUNTIME
    policy: str = "plain"
    nodes: int = 1
    processes: str | None = None
    """Of each node: a number or one of `PROCESS_WORDS`."""
    launcher_is_node: bool = False
    gang_timeout_s: int | None = None
    """None: the pods start without a gang."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    jobs: tuple[ReplicatedJob, ...] = ()


def read_runtime(fields: Fields) -> Runtime:
    """Return the record of a runtime."""
    name, kind = read_metadata(fields).name, fields.text("kind")
    spec = fields.one("spec", shapes.RUNTIME_SPEC)
    if spec is None:
        fields.wrong_at("spec", "Required value")
        return Runtime(name=name, kind=kind)
    policy = spec.one("mlPolicy", shapes.ML_POLICY)
    template = spec.one("template", shapes.JOB_SET_TEMPLATE)
    metadata = template.one("metadata", shapes.METADATA) if template else None
    job_set = template.one("spec", shapes.JOB_SET_SPEC) if template else None
    jobs = job_set.many("replicatedJobs", shapes.REPLICATED_JOB) if job_set else []
    if not jobs:
        spec.wrong_at("template", "Required value: a runtime needs spec.replicatedJobs in its template")
    mpi = policy.one("mpi", shapes.MPI_POLICY) if policy else None
    nodes = policy.number("numNodes", 0, MOST_REPLICAS) if policy else None
    torch = policy.one("torch", shapes.TORCH_POLICY) if policy else None
    if mpi is not None:
        mpi.text("mpiImplementation", among=("OpenMPI", ""))
    return Runtime(
        name=name,
        kind=kind,
        policy=_policy(policy),
        nodes=1 if nodes is None else nodes,
        processes=read_processes(torch) if torch else read_processes(mpi, ()) if mpi else None,
        launcher_is_node=mpi.truth("runLauncherAsNode") if mpi else False,
        gang_timeout_s=_gang_timeout(spec),
        labels=metadata.texts("labels") if metadata else {},
        annotations=metadata.texts("annotations") if metadata else {},
        jobs=tuple(_replicated_job(one) for one in jobs),
    )


def read_processes(fields: Fields, words: tuple[str, ...] = PROCESS_WORDS) -> str | None:
    """Return `numProcPerNode`: a number as text, or one of the words; None if it is missing."""
    node = fields.node("numProcPerNode")
    word = node.value if isinstance(node, yaml.Scalar) else None
    if not isinstance(word, str) or word.isdecimal() or not words:
        number = fields.number("numProcPerNode", 1)
        return None if number is None else str(number)
    if word in words:
        return word
    message = f"Invalid value: {show(word)}: must have an int value or [{' '.join(words)}]"
    fields.wrong_at("numProcPerNode", message, did_you_mean(word, words))
    return None


def _policy(policy: Fields | None) -> str:
    if policy is None:
        return "plain"
    found = [name for name in _POLICIES if name in policy]
    if len(found) > 1:
        policy.wrong(policy.mark, policy.path, "Invalid value: Only one of the policy can be configured")
    for name in ("jax", "xgboost"):
        policy.one(name, shapes.BARE_POLICY)
    return found[0] if found else "plain"


def _gang_timeout(spec: Fields) -> int | None:
    group = spec.one("podGroupPolicy", shapes.POD_GROUP_POLICY)
    if group is None:
        return None
    group.one("volcano", shapes.VOLCANO)
    coscheduling = group.one("coscheduling", shapes.COSCHEDULING)
    timeout = coscheduling.number("scheduleTimeoutSeconds", 0) if coscheduling else None
    return timeout or _TIMEOUT_S


def _replicated_job(job: Fields) -> ReplicatedJob:
    name = job.text("name", required=True)
    replicas = job.number("replicas", 0, MOST_REPLICAS)
    after = tuple(
        (one.text("name", required=True), one.text("status", "Ready", among=_STATUSES))
        for one in job.many("dependsOn", shapes.DEPENDS_ON)
    )
    template = job.one("template", shapes.JOB_TEMPLATE)
    metadata = template.one("metadata", shapes.METADATA) if template else None
    ancestor = metadata.texts("labels").get(ANCESTOR, "") if metadata else ""
    spec = template.one("spec", shapes.JOB_SPEC) if template else None
    pods = spec.one("template", shapes.POD_TEMPLATE) if spec else None
    if pods is None or spec is None:
        job.wrong_at("template", "Required value: a replicated job needs spec.template")
        return ReplicatedJob(name=name, template=PodTemplate())
    record = read_pod_template(pods)
    if ancestor in _CONTAINERS:
        if replicas not in (None, 1):
            job.wrong_at("replicas", f"Invalid value: {replicas}: always must be 1")
        if _CONTAINERS[ancestor] not in [one.name for one in record.containers]:
            message = f"Invalid value: must have container {_CONTAINERS[ancestor]} in the {ancestor} job"
            pods.wrong(pods.mark, pods.path, message)
    limit, count = spec.number("backoffLimit", 0), spec.number("parallelism", 0, MOST_REPLICAS)
    spec.number("completions", 0)
    return ReplicatedJob(
        name=name,
        template=record,
        ancestor=ancestor,
        count=(1 if count is None else count) * (1 if replicas is None else replicas),
        after=after,
        backoff_limit=BACKOFF_LIMIT if limit is None else limit,
    )


# ------------------------------------------------------------------------------------------- runtimes without a file


def _node(image: str, ancestor: str = TRAINER, command: tuple[str, ...] = ()) -> ReplicatedJob:
    container = Container(name=NODE, image=image, command=command)
    return ReplicatedJob(name=NODE, ancestor=ancestor, template=PodTemplate(containers=(container,)))


def _mpi(name: str, image: str, *, launcher_is_node: bool) -> Runtime:
    # The nodes wait for the processes that the launcher starts in them.
    nodes = _node(image, "", ("sleep", "365d"))
    launcher = PodTemplate(containers=(Container(name=NODE, image=image),))
    return Runtime(
        name=name,
        policy="mpi",
        processes="1",
        launcher_is_node=launcher_is_node,
        jobs=(
            nodes,
            ReplicatedJob(name=LAUNCHER, ancestor=TRAINER, template=launcher, after=((NODE, "Ready"),)),
        ),
    )


BUILT_IN: Final[Mapping[str, Runtime]] = {
    runtime.name: runtime
    for runtime in (
        Runtime(
            name="torch-distributed", policy="torch", jobs=(_node("pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"),)
        ),
        Runtime(name="jax-distributed", policy="jax", jobs=(_node("nvcr.io/nvidia/jax:25.10-py3"),)),
        Runtime(
            name="xgboost-distributed", policy="xgboost", jobs=(_node("ghcr.io/kubeflow/trainer/xgboost-runtime"),)
        ),
        Runtime(name="plain", jobs=(_node(""),)),
        _mpi("mpi-distributed", "", launcher_is_node=False),
        _mpi("deepspeed-distributed", "ghcr.io/kubeflow/trainer/deepspeed-runtime", launcher_is_node=True),
    )
}
"""The runtimes that a TrainJob may name without a file of theirs."""
