"""A TrainJob of Trainer v2 and its runtime as one job: the replicated jobs of the runtime are its replica types.

Source: `pkg/apis/trainer/v1alpha1/trainjob_types.go`, `pkg/runtime/core/trainingruntime.go` and
`pkg/runtime/framework/plugins` of the trainer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from weft.documents.problems import show
from weft.frontends.training import shapes
from weft.frontends.training.fields import INT64, MOST_REPLICAS
from weft.frontends.training.jobs import ObjectMeta, read_metadata
from weft.frontends.training.kinds import CLUSTER_RUNTIME, KINDS, RUNTIME_KINDS
from weft.frontends.training.pods import read_env, read_mounts, read_volumes
from weft.frontends.training.runtimes import (
    BUILT_IN,
    DATASET,
    LAUNCHER,
    MODEL,
    NODE,
    PROCESS_WORDS,
    TRAINER,
    read_processes,
)
from weft.frontends.training.schema import (
    ON_FAILURE,
    Container,
    EnvSource,
    EnvVar,
    PodTemplate,
    Port,
    ReplicaSpec,
    RunPolicy,
    SchedulingPolicy,
    TrainingJob,
)
from weft.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from weft.documents.problems import FilePosition
    from weft.frontends.training.fields import Fields
    from weft.frontends.training.runtimes import ReplicatedJob, Runtime
    from weft.frontends.training.schema import Volume, VolumeMount

CONTROLLERS: Final = ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")
STORAGE_URI: Final = "STORAGE_URI"
_GROUP: Final = "trainer.kubeflow.org"
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+")
_NAME: Final = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_NAME_MAX: Final = 63
_RESERVED: Final[Mapping[str, frozenset[str]]] = {
    "torch": frozenset({"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}),
    "xgboost": frozenset({"DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"}),
    "mpi": frozenset(
        {
            "OMPI_MCA_orte_default_hostfile",
            "OMPI_MCA_plm_rsh_args",
            "OMPI_MCA_orte_keep_fqdn_hostnames",
            "OMPI_MCA_orte_set_default_slots",
        }
    ),
}
_Named = TypeVar("_Named", EnvVar, "Volume")


class InitializerSpec(Struct, frozen=True):
    """Where a data set or a model comes from."""

    uri: str
    env: tuple[EnvVar, ...]
    secret: str


class ContainerPatch(Struct, frozen=True):
    """What a patch adds to one container."""

    name: str
    env: tuple[EnvVar, ...]
    mounts: tuple[VolumeMount, ...]


class PodPatch(Struct, frozen=True, kw_only=True):
    """What a TrainJob adds to the pods of one replicated job. `field` is the one of its spec that says so."""

    field: str
    job: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    volumes: tuple[Volume, ...]
    containers: tuple[ContainerPatch, ...]
    node_selector: Mapping[str, str]
    grace_s: int | None


class TrainJobSpec(Struct, frozen=True, kw_only=True):
    """What the file says of a TrainJob."""

    metadata: ObjectMeta
    runtime: str = ""
    runtime_kind: str = CLUSTER_RUNTIME
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    nodes: int | None = None
    processes: str | None = None
    requests: Mapping[str, float] = {}
    limits: Mapping[str, float] = {}
    initializers: Mapping[str, InitializerSpec] = {}
    """By ancestor: "dataset-initializer" and "model-initializer"."""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    patches: tuple[PodPatch, ...] = ()
    suspend: bool = False
    deadline_s: int | None = None
    managed_by: str | None = None


# -------------------------------------------------------------------------------------------------------------- reading


def read_train_job(fields: Fields) -> TrainJobSpec:
    """Return the record of a TrainJob."""
    metadata, spec = read_metadata(fields), fields.one("spec", shapes.TRAIN_JOB_SPEC)
    if not _NAME.fullmatch(metadata.name):
        message = "Invalid value: metadata.name must match RFC 1035 DNS label format"
        fields.wrong(fields.place("metadata"), "metadata.name", message, "lower case letters, digits and -")
    if len(metadata.name) > _NAME_MAX:
        fields.wrong(fields.place("metadata"), "metadata.name", "metadata.name must be no more than 63 characters")
    if spec is None:
        fields.wrong_at("spec", "Required value")
        return TrainJobSpec(metadata=metadata)
    ref = spec.one("runtimeRef", shapes.RUNTIME_REF)
    if ref is None:
        spec.wrong_at("runtimeRef", "Required value", f"name a runtime: {', '.join(BUILT_IN)}")
    else:
        ref.text("apiGroup", among=(_GROUP,))
    trainer = spec.one("trainer", shapes.TRAINER)
    resources = trainer.one("resourcesPerNode", shapes.RESOURCES) if trainer else None
    labels, annotations, patches = _patches(spec)
    return TrainJobSpec(
        metadata=metadata,
        runtime=ref.text("name", required=True) if ref else "",
        runtime_kind=ref.text("kind", CLUSTER_RUNTIME, among=RUNTIME_KINDS) if ref else CLUSTER_RUNTIME,
        image=trainer.text("image") if trainer else "",
        command=trainer.words("command") if trainer else (),
        args=trainer.words("args") if trainer else (),
        env=read_env(trainer, "env", NODE) if trainer else (),
        nodes=trainer.number("numNodes", 0, MOST_REPLICAS) if trainer else None,
        processes=read_processes(trainer) if trainer else None,
        requests=resources.resources("requests") if resources else {},
        limits=resources.resources("limits") if resources else {},
        initializers=_initializers(spec),
        labels=labels,
        annotations=annotations,
        patches=patches,
        suspend=spec.truth("suspend"),
        deadline_s=spec.number("activeDeadlineSeconds", 1, INT64),
        managed_by=spec.text("managedBy", among=CONTROLLERS) or None,
    )


def _initializers(spec: Fields) -> dict[str, InitializerSpec]:
    both = spec.one("initializer", shapes.INITIALIZER)
    found = {}
    for key, ancestor in (("dataset", DATASET), ("model", MODEL)):
        one = both.one(key, shapes.INITIALIZER_SOURCE) if both else None
        if one is None:
            continue
        uri = one.text("storageUri")
        if uri and not _URI.fullmatch(uri):
            one.wrong_at("storageUri", "storageUri may be empty, or it must be a valid URI (scheme://...)")
        secret = one.one("secretRef", shapes.NAME_REF)
        found[ancestor] = InitializerSpec(uri, read_env(one, "env", ancestor), secret.text("name") if secret else "")
    return found


def _patches(spec: Fields) -> tuple[dict[str, str], dict[str, str], tuple[PodPatch, ...]]:
    """Return labels and annotations for all pods, and the patches of replicated jobs."""
    labels, annotations = spec.texts("labels"), spec.texts("annotations")
    patches: list[PodPatch] = []
    for patch in spec.many("runtimePatches", shapes.RUNTIME_PATCH):
        patch.text("manager", required=True)
        runtime = patch.one("trainingRuntimeSpec", shapes.RUNTIME_SPEC_PATCH)
        template = runtime.one("template", shapes.JOB_SET_TEMPLATE) if runtime else None
        if template is None:
            continue
        if metadata := template.one("metadata", shapes.METADATA):
            labels |= metadata.texts("labels")
            annotations |= metadata.texts("annotations")
        job_set = template.one("spec", shapes.JOB_SET_SPEC_PATCH)
        if job_set is not None:
            patches += [_pod_patch(one) for one in job_set.many("replicatedJobs", shapes.REPLICATED_JOB_PATCH)]
    return labels, annotations, (*patches, *_overrides(spec))


def _overrides(spec: Fields) -> Iterator[PodPatch]:
    """Yield the patches of Trainer 2.0 (`podSpecOverrides`) and 2.1 (`podTemplateOverrides`)."""
    for one in spec.many("podTemplateOverrides", shapes.POD_TEMPLATE_OVERRIDE):
        metadata, pods = one.one("metadata", shapes.METADATA), one.one("spec", shapes.POD_SPEC_PATCH)
        for job in _targets(one):
            yield _patch_of("podTemplateOverrides", job, metadata, pods)
    for one in spec.many("podSpecOverrides", shapes.POD_SPEC_OVERRIDE):
        for job in _targets(one):
            yield _patch_of("podSpecOverrides", job, None, one)


def _targets(override: Fields) -> list[str]:
    targets = override.many("targetJobs", shapes.TARGET_JOB)
    if not targets:
        override.wrong_at("targetJobs", "Required value", "name replicated jobs of the runtime: [{name: node}]")
    return [one.text("name", required=True) for one in targets]


def _pod_patch(patch: Fields) -> PodPatch:
    job = patch.one("template", shapes.JOB_TEMPLATE)
    job_spec = job.one("spec", shapes.JOB_SPEC_PATCH) if job else None
    pods = job_spec.one("template", shapes.POD_TEMPLATE) if job_spec else None
    metadata = pods.one("metadata", shapes.METADATA) if pods else None
    spec = pods.one("spec", shapes.POD_SPEC_PATCH) if pods else None
    return _patch_of("runtimePatches", patch.text("name", required=True), metadata, spec)


def _patch_of(field: str, job: str, metadata: Fields | None, spec: Fields | None) -> PodPatch:
    volumes = read_volumes(spec) if spec else ()
    containers = [
        one
        for key in ("initContainers", "containers")
        for one in (spec.many(key, shapes.CONTAINER_PATCH) if spec else ())
    ]
    return PodPatch(
        field=field,
        job=job,
        labels=metadata.texts("labels") if metadata else {},
        annotations=metadata.texts("annotations") if metadata else {},
        volumes=volumes,
        containers=tuple(
            ContainerPatch(name, read_env(one, "env", name), read_mounts(one))
            for one in containers
            for name in (one.text("name", required=True),)
        ),
        node_selector=spec.texts("nodeSelector") if spec else {},
        grace_s=spec.number("terminationGracePeriodSeconds", 0, INT64) if spec else None,
    )


# ---------------------------------------------------------------------------------------------------------- the runtime


def runtime_of(train: TrainJobSpec, runtimes: Mapping[tuple[str, str], Runtime], fields: Fields) -> Runtime | None:
    """Return the runtime of a TrainJob: of the files by (kind, name), else built in; None after adding a mistake."""
    own = runtimes.get((train.runtime_kind, train.runtime))
    if own is not None:
        return own
    if train.runtime_kind == CLUSTER_RUNTIME and train.runtime in BUILT_IN:
        return BUILT_IN[train.runtime]
    if not train.runtime:
        return None  # its absence is a mistake already
    known = [*(name for kind, name in runtimes if kind == train.runtime_kind), *BUILT_IN]
    hint = did_you_mean(train.runtime, known, f"runtimes: {', '.join(known)}; or give it in the same file")
    message = f"there is no {train.runtime_kind} {show(train.runtime)}"
    fields.wrong(_place(fields, "runtimeRef"), "spec.runtimeRef.name", message, hint)
    return None


def _place(fields: Fields, key: str) -> FilePosition:
    spec = fields.one("spec", shapes.TRAIN_JOB_SPEC)
    return spec.place(key) if spec else fields.mark


def check_train_job(train: TrainJobSpec, runtime: Runtime, fields: Fields) -> None:
    """Add the mistakes of a TrainJob in its runtime, in the words of the trainer's webhooks."""
    at = {key: _place(fields, key) for key in ("runtimeRef", "trainer", *(one.field for one in train.patches))}
    containers = {
        job.name: {one.name for one in (*job.template.containers, *job.template.init_containers)}
        for job in runtime.jobs
    }
    reserved = sorted({one.name for one in train.env} & _RESERVED.get(runtime.policy, frozenset()))
    if reserved:
        message = f"Invalid value: must not have reserved envs, invalid envs configured: [{' '.join(reserved)}]"
        fields.wrong(at["trainer"], "spec.trainer.env", message, "the runtime sets them")
    for ancestor, config in ((DATASET, "datasetConfig"), (MODEL, "modelConfig")):
        if ancestor in train.initializers and ancestor not in containers:
            message = f"must have {ancestor} job when trainJob is configured with input {config}"
            fields.wrong(at["runtimeRef"], "spec.runtimeRef", f"Invalid value: {message}")
    for patch in train.patches:
        known, place = containers.get(patch.job), f"spec.{patch.field}"
        if known is None:
            what = "replicated job" if patch.field == "runtimePatches" else "targetJob"
            message = f"must not have {what} that doesn't exist in the runtime job template"
            hint = did_you_mean(patch.job, containers, f"the runtime has: {', '.join(containers)}")
            fields.wrong(at[patch.field], place, f"Invalid value: {message}", hint)
            continue
        for one in patch.containers:
            if one.name not in known:
                message = f"must not have container that doesn't exist in the runtime job {patch.job}"
                fields.wrong(at[patch.field], place, f"Invalid value: {message}")
            elif one.env and one.name in (DATASET, MODEL, NODE):
                message = f"must not have envs for the {DATASET}, {MODEL}, {NODE} containers"
                fields.wrong(at[patch.field], place, f"Invalid value: {message}", "use spec.trainer.env")
    if runtime.policy == "mpi" and train.processes in PROCESS_WORDS:
        message = f"Invalid value: {show(train.processes)}: must have an int value for MPI TrainJob"
        fields.wrong(at["trainer"], "spec.trainer.numProcPerNode", message)
    if runtime.policy == "mpi" and runtime.launcher_is_node and (train.nodes or 1) > 1 and NODE not in containers:
        policy = "MPI trainingRuntime with enabled runLauncherAsNode"
        message = f"must have 1 when {policy} does not have either launcher and node"
        fields.wrong(at["trainer"], "spec.trainer.numNodes", f"Invalid value: {train.nodes}: {message}")


# -------------------------------------------------------------------------------------------------------------- one job


def job_of(train: TrainJobSpec, runtime: Runtime) -> TrainingJob:
    """Return the job of a TrainJob in its runtime."""
    meta = train.metadata
    trainers = [one for one in runtime.jobs if one.ancestor == TRAINER] or list(runtime.jobs)
    scheduling = None if runtime.gang_timeout_s is None else SchedulingPolicy(timeout_s=runtime.gang_timeout_s)
    return TrainingJob(
        kind="TrainJob",
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        generation=meta.generation,
        labels=meta.labels,
        annotations=meta.annotations,
        replicas={job.name: _replica_spec(job, train, runtime) for job in runtime.jobs},
        policy=RunPolicy(
            clean_pod_policy="Running",  # a JobSet ends what still runs
            deadline_s=train.deadline_s,
            backoff_limit=trainers[0].backoff_limit if trainers else None,
            scheduling=scheduling,
            suspend=train.suspend,
            managed_by=train.managed_by,
        ),
        nproc_per_node=None if runtime.policy == "mpi" else train.processes or runtime.processes,
        slots_per_worker=_slots(train, runtime),
        launcher_is_node=runtime.launcher_is_node,
        main_container=NODE,
        runtime=runtime.policy,
    )


def _slots(train: TrainJobSpec, runtime: Runtime) -> int | None:
    """Return the MPI processes of a node: as given, else one for each GPU."""
    if runtime.policy != "mpi":
        return None
    text = train.processes or runtime.processes or "1"
    given = int(text) if text.isdecimal() else 1  # a word is a mistake already
    gpus = max((int(n) for name, n in {**train.requests, **train.limits}.items() if "gpu" in name.lower()), default=0)
    return max(given, gpus) if train.processes is None and given == 1 else given


def _replica_spec(job: ReplicatedJob, train: TrainJobSpec, runtime: Runtime) -> ReplicaSpec:
    is_trainer = job.ancestor == TRAINER
    is_node = is_trainer or (runtime.launcher_is_node and job.name == NODE)
    template = job.template
    template = replace(
        template,
        labels={**runtime.labels, **train.labels, **template.labels},
        annotations={**runtime.annotations, **train.annotations, **template.annotations},
        containers=tuple(
            _trainer(one, train, runtime, is_trainer=is_trainer)
            if is_node and one.name == NODE
            else _initializer(one, train.initializers.get(job.ancestor), job.ancestor)
            for one in template.containers
        ),
    )
    for patch in train.patches:
        if patch.job == job.name:
            template = _patched(template, patch)
    return ReplicaSpec(
        template=template,
        replicas=_count(job, train, runtime),
        restart_policy=template.restart_policy or ON_FAILURE,
        after=job.after,
    )


def _count(job: ReplicatedJob, train: TrainJobSpec, runtime: Runtime) -> int:
    """Return the number of pods of a replicated job."""
    if runtime.policy == "mpi" and job.name in (NODE, LAUNCHER):
        if job.name == LAUNCHER or train.nodes is None:
            return job.count
        return max(train.nodes - 1, 1) if runtime.launcher_is_node else train.nodes
    if job.ancestor != TRAINER:
        return job.count
    return runtime.nodes if train.nodes is None else train.nodes


def _trainer(container: Container, train: TrainJobSpec, runtime: Runtime, *, is_trainer: bool) -> Container:
    container = replace(
        container,
        env=_upsert(container.env, train.env),
        requests={**container.requests, **train.requests},
        limits={**container.limits, **train.limits},
    )
    if not is_trainer:
        return container
    port = Port(KINDS["TrainJob"].port)
    numbers = [one.number for one in container.ports]
    needed = runtime.policy in ("torch", "jax", "xgboost") and port.number not in numbers
    return replace(
        container,
        image=train.image or container.image,
        command=train.command or container.command,
        args=train.args or container.args,
        ports=(*container.ports, port) if needed else container.ports,
    )


def _initializer(container: Container, given: InitializerSpec | None, ancestor: str) -> Container:
    if given is None or container.name != ancestor:
        return container
    uri = (EnvVar(STORAGE_URI, given.uri),) if given.uri else ()
    secret = (EnvSource(given.secret, secret=True),) if given.secret else ()
    env = _upsert(_upsert(container.env, uri), given.env)
    return replace(container, env=env, env_from=(*container.env_from, *secret))


def _upsert(own: Iterable[_Named], given: Iterable[_Named]) -> tuple[_Named, ...]:
    """Return all, where a given one takes the place of an own one of its name."""
    merged = {one.name: one for one in own}
    merged |= {one.name: one for one in given}
    return tuple(merged.values())


def _patched(template: PodTemplate, patch: PodPatch) -> PodTemplate:
    patches = {one.name: one for one in patch.containers}
    return replace(
        template,
        labels={**template.labels, **patch.labels},
        annotations={**template.annotations, **patch.annotations},
        containers=tuple(_patched_container(one, patches) for one in template.containers),
        init_containers=tuple(_patched_container(one, patches) for one in template.init_containers),
        volumes=_upsert(template.volumes, patch.volumes),
        node_selector={**template.node_selector, **patch.node_selector},
        grace_s=template.grace_s if patch.grace_s is None else patch.grace_s,
    )


def _patched_container(container: Container, patches: Mapping[str, ContainerPatch]) -> Container:
    patch = patches.get(container.name)
    if patch is None:
        return container
    mounts = {one.path: one for one in (*container.mounts, *patch.mounts)}
    return replace(container, env=_upsert(container.env, patch.env), mounts=tuple(mounts.values()))
