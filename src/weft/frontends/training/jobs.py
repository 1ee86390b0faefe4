"""The jobs of kubeflow.org/v1, read from the fields of a file into records. What a file leaves out stays out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.documents.problems import show
from weft.frontends.training import shapes
from weft.frontends.training.fields import INT64, MOST_REPLICAS, PORT_MAX
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.pods import read_pod_template
from weft.frontends.training.schema import (
    CLEAN_POD_POLICIES,
    RESTART_POLICIES,
    ElasticPolicy,
    PodTemplate,
    ReplicaSpec,
    RunPolicy,
    SchedulingPolicy,
    TrainingJob,
)
from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.frontends.training.fields import Fields

SUCCESS_POLICIES: Final = ("", "AllWorkers")
RDZV_BACKENDS: Final = ("c10d", "etcd", "etcd-v2", "static")
_NPROC_WORDS: Final = ("auto", "cpu", "gpu")
DEFAULT_NAMESPACE: Final = "default"
_NAMESPACE: Final = late_pattern("[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAMESPACE_MAX: Final = 63


class ObjectMeta(Struct, frozen=True, kw_only=True):
    """What the metadata of an object say."""

    name: str
    namespace: str
    uid: str
    generation: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def read_metadata(fields: Fields) -> ObjectMeta:
    """Return the metadata of an object; of a generated name the given beginning, and `x` for its random end."""
    metadata = fields.one("metadata", shapes.METADATA)
    if metadata is None:
        return ObjectMeta(name="", namespace=DEFAULT_NAMESPACE, uid="", generation=1, labels={}, annotations={})
    begin = metadata.text("generateName")
    return ObjectMeta(
        name=metadata.text("name") or (f"{begin}x" if begin else ""),
        namespace=_namespace(metadata),
        uid=metadata.text("uid"),
        generation=metadata.number("generation", 0, INT64) or 1,
        labels=metadata.texts("labels"),
        annotations=metadata.texts("annotations"),
    )


def _namespace(metadata: Fields) -> str:
    name = metadata.text("namespace") or DEFAULT_NAMESPACE
    if not _NAMESPACE.fullmatch(name) or len(name) > _NAMESPACE_MAX:
        message = f"Invalid value: {show(name)}: must be a lower case RFC 1123 label"
        hint = f"lower case letters, digits and - between them, at most {_NAMESPACE_MAX}"
        metadata.wrong_at("namespace", message, hint)
    return name


def read_job(fields: Fields, kind_name: str) -> TrainingJob:
    """Return the record of a job of kubeflow.org/v1."""
    kind, metadata = KINDS[kind_name], read_metadata(fields)
    spec = fields.one("spec", shapes.SPECS[kind_name])
    job = TrainingJob(
        kind=kind.name,
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        generation=metadata.generation,
        labels=metadata.labels,
        annotations=metadata.annotations,
        replicas={},
    )
    if spec is None:
        return job
    replicas = spec.named(kind.spec_key, shapes.REPLICA_SPEC)
    values: dict[str, object] = {
        "replicas": {name: _replica_spec(one) for name, one in replicas.items()},
        "policy": read_run_policy(spec, own_clean_up=kind_name == "MPIJob"),
    }
    if kind_name == "TFJob":
        values["success_policy"] = spec.text("successPolicy", among=SUCCESS_POLICIES)
        values["dynamic_workers"] = spec.truth("enableDynamicWorker")
    elif kind_name == "PyTorchJob":
        values["elastic"] = _elastic_policy(spec)
        values["nproc_per_node"] = _nproc_per_node(spec)
    elif kind_name == "PaddleJob":
        values["elastic"] = _paddle_elastic_policy(spec)
    elif kind_name == "MPIJob":
        values["slots_per_worker"] = spec.number("slotsPerWorker", 1)
        values["main_container"] = spec.text("mainContainer")
    return replace(job, **values)


def _replica_spec(spec: Fields) -> ReplicaSpec:
    template = spec.one("template", shapes.POD_TEMPLATE)
    return ReplicaSpec(
        template=read_pod_template(template) if template else PodTemplate(),
        replicas=spec.number("replicas", 0, MOST_REPLICAS),
        restart_policy=spec.text("restartPolicy", among=RESTART_POLICIES) or None,
    )


def read_run_policy(spec: Fields, *, own_clean_up: bool = False) -> RunPolicy:
    """Return the run policy of a job; `own_clean_up`: the spec itself may have the `cleanPodPolicy`."""
    beside = spec.text("cleanPodPolicy", among=CLEAN_POD_POLICIES) if own_clean_up else ""
    policy = spec.one("runPolicy", shapes.RUN_POLICY)
    if policy is None:
        return RunPolicy(clean_pod_policy=beside or None)
    return RunPolicy(
        clean_pod_policy=policy.text("cleanPodPolicy", among=CLEAN_POD_POLICIES) or beside or None,
        ttl_s=policy.number("ttlSecondsAfterFinished", 0),
        deadline_s=policy.number("activeDeadlineSeconds", 0, INT64),
        backoff_limit=policy.number("backoffLimit", 0),
        scheduling=_scheduling_policy(policy),
        suspend=policy.truth("suspend"),
        managed_by=policy.text("managedBy") if "managedBy" in policy else None,
    )


def _scheduling_policy(policy: Fields) -> SchedulingPolicy | None:
    scheduling = policy.one("schedulingPolicy", shapes.SCHEDULING_POLICY)
    if scheduling is None:
        return None
    return SchedulingPolicy(
        min_available=scheduling.number("minAvailable", 0),
        queue=scheduling.text("queue"),
        min_resources=scheduling.quantities("minResources") if "minResources" in scheduling else None,
        priority_class=scheduling.text("priorityClass"),
        timeout_s=scheduling.number("scheduleTimeoutSeconds", 0),
    )


def _elastic_policy(spec: Fields) -> ElasticPolicy | None:
    elastic = spec.one("elasticPolicy", shapes.ELASTIC_POLICY)
    if elastic is None:
        return None
    conf = elastic.many("rdzvConf", shapes.RDZV_CONF)
    _check_bounds(elastic)
    return ElasticPolicy(
        min_replicas=elastic.number("minReplicas", 1),
        max_replicas=elastic.number("maxReplicas", 1, MOST_REPLICAS),
        backend=elastic.text("rdzvBackend", among=RDZV_BACKENDS) or None,
        port=elastic.number("rdzvPort", 1, PORT_MAX),
        host=elastic.text("rdzvHost") or None,
        id=elastic.text("rdzvId") or None,
        conf=tuple((one.text("key", required=True), one.text("value")) for one in conf),
        standalone=elastic.truth("standalone"),
        nproc_per_node=elastic.number("nProcPerNode", 1),
        max_restarts=elastic.number("maxRestarts", 0),
    )


def _paddle_elastic_policy(spec: Fields) -> ElasticPolicy | None:
    elastic = spec.one("elasticPolicy", shapes.PADDLE_ELASTIC_POLICY)
    if elastic is None:
        return None
    _check_bounds(elastic)
    return ElasticPolicy(
        min_replicas=elastic.number("minReplicas", 1),
        max_replicas=elastic.number("maxReplicas", 1, MOST_REPLICAS),
        max_restarts=elastic.number("maxRestarts", 0),
    )


def _check_bounds(elastic: Fields) -> None:
    low, high = elastic.number("minReplicas", 1), elastic.number("maxReplicas", 1, MOST_REPLICAS)
    if low is not None and high is not None and low > high:
        elastic.wrong_at("maxReplicas", f"Invalid value: {high}: must be at least minReplicas, which is {low}")


def _nproc_per_node(spec: Fields) -> str | None:
    words = spec.text("nprocPerNode")
    if words and words not in _NPROC_WORDS and not (words.isdecimal() and words.isascii() and int(words)):
        spec.wrong_at(
            "nprocPerNode", f"Invalid value: {show(words)}", f"{', '.join(_NPROC_WORDS)}, or a number in quotes"
        )
    return words or None
