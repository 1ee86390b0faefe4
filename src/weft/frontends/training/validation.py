"""What the operator's webhooks check when a job is created or changed, in their words, and checks that they lack.

The checks of creation work on the document as it stands in the file, before defaults, so each mistake has its place.
Source: `pkg/webhooks`, `pkg/common/util/webhooks.go` and `mpi_validation.go` of the training operator 1.9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from weft.documents import yaml
from weft.documents.problems import choices, join, show
from weft.frontends.training.fields import is_null, keyed
from weft.frontends.training.kinds import KINDS, replica_name
from weft.model.patterns import late_pattern
from weft.model.suggestions import did_you_mean
from weft.model.wording import counted

if TYPE_CHECKING:
    from weft.documents.problems import FilePosition, Problems
    from weft.frontends.training.kinds import Kind
    from weft.frontends.training.schema import TrainingJob

OWN_CONTROLLER: Final = "kubeflow.org/training-operator"
MULTI_KUEUE: Final = "kueue.x-k8s.io/multikueue"
IMMUTABLE: Final = "field is immutable"
_TF_SINGLE: Final = ("chief", "master", "evaluator")
_LABEL: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = late_pattern(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_MAX: Final = 63
_LABEL_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    f" and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '{_LABEL}')"
)


class _Place(Struct, frozen=True):
    """A field that may be missing: its value, its path, and the position of the value or of the nearest map above."""

    node: yaml.Node | None
    path: str
    mark: FilePosition

    def at(self, key: str, path: str = "") -> _Place:
        """Return the place of a field below."""
        node = self.node.entries.get(key) if isinstance(self.node, yaml.Mapping) else None
        found = None if node is None or is_null(node) else node
        return _Place(found, path or join(self.path, key), self.mark if node is None else node.mark)

    @property
    def text(self) -> str:
        """Return the text of the field, "" if it has none."""
        return self.node.text if isinstance(self.node, yaml.Scalar) else ""

    @property
    def items(self) -> Sequence[_Place]:
        """Return the places of the items of a list."""
        nodes = self.node.items if isinstance(self.node, yaml.Sequence) else ()
        return [_Place(None if is_null(one) else one, f"{self.path}[{at}]", one.mark) for at, one in enumerate(nodes)]

    def types(self) -> dict[str, _Place]:
        """Return the places of the entries of a map with free keys; a type without a value stands at its key."""
        if not isinstance(self.node, yaml.Mapping):
            return {}
        return {
            key: _Place(None if is_null(one) else one, keyed(self.path, key), self.node.keys[key])
            for key, one in self.node.entries.items()
        }


Note: TypeAlias = tuple["FilePosition", str]
"""A warning and its place."""


def check_job(document: yaml.Node, kind: Kind, problems: Problems) -> list[Note]:
    """Add what the webhook of a kind refuses to `problems`; return its warnings."""
    top = _Place(document, "", document.mark)
    if kind.name == "MPIJob":
        _check_mpi(top, kind, problems)
        _check_manager(top.at("spec"), problems)
        return []
    _check_name(top, problems)
    spec = top.at("spec")
    _check_manager(spec, problems)
    warnings = _check_elastic(spec, kind, problems) if kind.name == "PyTorchJob" else []
    _check_types(spec.at(kind.spec_key), kind, problems)
    return warnings


def _check_name(top: _Place, problems: Problems) -> None:
    place = top.at("metadata").at("name")
    name = place.text
    begin = top.at("metadata").at("generateName").text
    rules = label_errors(f"{begin}x" if begin and not name else name)
    if rules:
        hint = "" if name else "a job needs a name"
        meant = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-0123456789")
        hint = hint or (f"Did you mean {meant[:_LABEL_MAX]}?" if meant else "")
        value = show(name)[1:-1]
        problems.add(place.mark, place.path, f'Invalid value: "{value}": should match: {",".join(rules)}', hint)


def label_errors(name: str) -> list[str]:
    """Return the rules of a DNS-1035 label that a name breaks."""
    long = [f"must be no more than {_LABEL_MAX} characters"] if len(name) > _LABEL_MAX else []
    return long if re.fullmatch(_LABEL, name) else [*long, _LABEL_RULE]


def _check_manager(spec: _Place, problems: Problems) -> None:
    place, known = spec.at("runPolicy").at("managedBy"), (MULTI_KUEUE, OWN_CONTROLLER)
    if place.node is not None and place.text not in known:
        listed = choices(f'"{one}"' for one in known)
        message = f'Unsupported value: "{show(place.text)[1:-1]}": supported values: {listed}'
        problems.add(place.mark, place.path, message, did_you_mean(place.text, known))


def _check_elastic(spec: _Place, kind: Kind, problems: Problems) -> list[Note]:
    elastic = spec.at("elasticPolicy")
    if elastic.node is None:
        return []
    types = spec.at(kind.spec_key)
    if "Worker" not in types.types():
        path = keyed(types.path, "Worker")
        problems.add(types.mark, path, "Required value: must be configured if elastic policy is used")
    old, new = elastic.at("nProcPerNode"), spec.at("nprocPerNode")
    if old.node is None:
        return []
    if new.node is not None:
        problems.add(old.mark, old.path, f"Forbidden: must not be used with {new.path}", f"leave out {old.path}")
    return [(old.mark, f"{old.path} is deprecated, use {new.path} instead")]


def _check_types(types: _Place, kind: Kind, problems: Problems) -> None:
    if types.node is None:
        problems.add(
            types.mark,
            types.path,
            "Required value: must be required",
            f"give the replica types: {', '.join(kind.types)}",
        )
    found = types.types()
    for name, place in found.items():
        if not kind.open_types and name not in kind.types:
            listed = choices(f'"{one}"' for one in kind.types)
            message = f'Unsupported value: "{show(name)[1:-1]}": supported values: {listed}'
            problems.add(place.mark, place.path, message, did_you_mean(name, kind.types))
        _check_containers(place, kind, problems)
        _check_replicas(name, place.at("replicas"), kind, problems)
    if kind.name == "XGBoostJob" and "Master" not in found:
        problems.add(types.mark, keyed(types.path, "Master"), "Required value: must be present")
    if kind.name == "TFJob" and {"Chief", "Master"} <= found.keys():
        message = "Forbidden: must not have more than 1 Chief or Master role"
        problems.add(found["Master"].mark, types.path, message, "Chief and Master mean the same: keep Chief")


def _check_containers(replica: _Place, kind: Kind, problems: Problems) -> None:
    containers = replica.at("template").at("spec").at("containers")
    if not containers.items:
        hint = f"give a container with the name {kind.container} and an image"
        problems.add(containers.mark, containers.path, "Required value: must be specified", hint)
    for one in containers.items:
        if not one.at("image").text:
            problems.add(one.at("image").mark, one.at("image").path, "Required value: must be required")
    names = [one.at("name").text for one in containers.items]
    if kind.container not in names:
        quoted = f'"{kind.container}"' if kind.name == "PaddleJob" else kind.container
        given = ", ".join(show(name) for name in names if name)
        hint = f"rename the container that runs the training: {given}" if given else ""
        message = f"Required value: must have at least one container with name {quoted}"
        problems.add(containers.mark, containers.path, message, hint)


def _check_replicas(name: str, replicas: _Place, kind: Kind, problems: Problems) -> None:
    number = replicas.node.value if isinstance(replicas.node, yaml.Scalar) else None
    if name in kind.single:
        if number != 1 or isinstance(number, bool):
            problems.add(replicas.mark, replicas.path, "Forbidden: must be 1", "write replicas: 1")
    elif kind.name == "PyTorchJob" and isinstance(number, int) and number < 1:
        problems.add(replicas.mark, replicas.path, "Forbidden: must be at least 1")


def _check_mpi(top: _Place, kind: Kind, problems: Problems) -> None:
    types = top.at("spec").at(kind.spec_key)
    name = top.at("metadata").at("name")
    begin = top.at("metadata").at("generateName")
    if not _SUBDOMAIN.fullmatch(name.text or f"{begin.text}x"):
        problems.add(name.mark, name.path, f"Invalid value: {show(name.text)}: must be a DNS-1123 subdomain")
    if not name.text and not begin.text:
        problems.add(name.mark, name.path, "Required value: name or generateName is required")
    if types.node is None:
        problems.add(types.mark, types.path, "MPIReplicaSpecs is not valid", "give the replica types: Launcher, Worker")
        return
    found = types.types()
    for type, place in found.items():
        containers = place.at("template").at("spec").at("containers")
        if not containers.items:
            message = f"MPIReplicaSpecs is not valid: containers definition expected in {type}"
            problems.add(containers.mark, containers.path, message)
        if type not in kind.types:
            message = f"MPIReplicaType is {show(type)[1:-1]} but must be one of [{' '.join(kind.types)}]"
            problems.add(place.mark, place.path, message, did_you_mean(type, kind.types))
        for one in containers.items:
            for key, what in (("image", "Image"), ("name", "ImageName")):
                if not one.at(key).text:
                    message = f"MPIReplicaSpec is not valid: {what} is undefined in the container of {type}"
                    problems.add(one.at(key).mark, one.at(key).path, message)
        replicas = place.at("replicas")
        if type == "Launcher" and replicas.node is not None and replicas.text != "1":
            message = "MPIReplicaSpec is not valid: There must be only 1 launcher replica"
            problems.add(replicas.mark, replicas.path, message)
    if "Launcher" not in found:
        message = "MPIReplicaSpec is not valid: Master ReplicaSpec must be present"
        problems.add(types.mark, types.path, message, "a Launcher runs mpirun: add it")


# ------------------------------------------------------------------------------------------ what the webhooks lack


def check_further(document: yaml.Node, job: TrainingJob, problems: Problems) -> list[Note]:
    """Add mistakes that the webhooks let pass to `problems`; return warnings. `job` is the record of the document."""
    kind = KINDS[job.kind]
    spec = _Place(document, "", document.mark).at("spec")
    types = spec.at(kind.spec_key)
    found = types.types()
    if types.node is not None and not found:
        problems.add(types.mark, types.path, "a job needs a replica type", f"one of {', '.join(kind.types)}")
    known = {name.lower(): name for name in kind.types}
    names: dict[str, str] = {}
    warnings: list[Note] = []
    for name, place in found.items():
        if name.lower() in names:
            problems.add(place.mark, place.path, f"{names[name.lower()]} gives the same replica type")
        names[name.lower()] = name
        if kind.open_types and name.lower() not in known:
            near = did_you_mean(name, kind.types, f"{kind.name} has: {', '.join(kind.types)}.")
            message = f"{place.path}: {show(name)} is no replica type; its pods do not count for the job. {near}"
            warnings.append((place.mark, message))
        if kind.name == "TFJob" and name.lower() in _TF_SINGLE and (job.replicas[name].replicas or 1) > 1:
            warnings.append((place.mark, f"{place.path}: TensorFlow accepts one {name} only"))
        _check_name_of_last(job, name, place, problems)
    if kind.name == "TFJob" and "ps" in names and not names.keys() & {"worker", "chief", "master"}:
        message = "parameter servers alone never end a job"
        problems.add(found[names["ps"]].mark, found[names["ps"]].path, message, "add a Chief or a Worker")
    _check_gang(job, spec, problems)
    return warnings


def _check_name_of_last(job: TrainingJob, type: str, place: _Place, problems: Problems) -> None:
    replicas = job.replicas[type].replicas if type in job.replicas else None
    last = replica_name(job.name, type, max((replicas or 1) - 1, 0))
    if len(last) > _LABEL_MAX >= len(job.name):
        message = f"the pod {last} has a name of {len(last)} characters, at most {_LABEL_MAX} are allowed"
        problems.add(place.mark, place.path, message, "give the job a shorter name")


def _check_gang(job: TrainingJob, spec: _Place, problems: Problems) -> None:
    least = job.policy.scheduling.min_available if job.policy.scheduling else None
    default = 0 if job.kind == "MPIJob" else 1
    total = sum(default if one.replicas is None else one.replicas for one in job.replicas.values())
    total += sum(1 for name, one in job.replicas.items() if name == "Launcher" and one.replicas is None)
    most = max(total, (job.elastic.max_replicas or 0) if job.elastic else 0)
    if least is not None and least > most:
        place = spec.at("runPolicy").at("schedulingPolicy").at("minAvailable")
        message = f"Invalid value: {least}: the job has {counted(total, 'replica')}, so it could never start"
        problems.add(place.mark, place.path, message)


def _trained(job: TrainingJob) -> object:
    """Return what `spec.trainer` sets: numbers, and all but the mounts of the containers of the nodes."""
    container = KINDS[job.kind].container
    return {
        (name, one.name): (spec.replicas, replace(one, mounts=()))
        for name, spec in job.replicas.items()
        for one in spec.template.containers
        if one.name == container
    }


_FIXED_V1: Final[Mapping[str, Callable[[TrainingJob], object]]] = {
    "spec.runPolicy.managedBy": lambda job: job.policy.managed_by,
}
_FIXED: Final[Mapping[str, Mapping[str, Callable[[TrainingJob], object]]]] = {
    "TrainJob": {
        "spec.managedBy": lambda job: job.policy.managed_by,
        "spec.activeDeadlineSeconds": lambda job: job.policy.deadline_s,
        "spec.runtimeRef": lambda job: job.runtime,
        "spec.trainer": _trained,
    }
}
"""The fields of each kind that no change may touch, as the records have them."""


def _quoted(value: object) -> str:
    return f'"{show(value)[1:-1]}"' if isinstance(value, str) else '""' if value is None else "changed"


def update_errors(old: TrainingJob, new: TrainingJob) -> list[str]:
    """Return what the webhooks refuse in a change of a job, each with its path."""
    changed: dict[str, tuple[object, object]] = {
        "kind": (old.kind, new.kind),
        "metadata.name": (old.name, new.name),
        "metadata.namespace": (old.namespace, new.namespace),
        **{path: (part(old), part(new)) for path, part in _FIXED.get(new.kind, _FIXED_V1).items()},
    }
    found = [
        f"{path}: Invalid value: {_quoted(after)}: {IMMUTABLE}"
        for path, (before, after) in changed.items()
        if before != after
    ]
    queue = "spec.runPolicy.schedulingPolicy.queue"
    before, after = (one.policy.scheduling.queue if one.policy.scheduling else "" for one in (old, new))
    if before != after and old.policy.scheduling and new.policy.scheduling:
        found.append(f'{queue}: Invalid value: "{show(after)[1:-1]}": {queue} is immutable')
    return found
