"""The arguments of `weft.training.job` as a job of Kubernetes: plain maps and lists, as in a file."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from weft.documents import yaml
from weft.documents.emitting import to_yaml
from weft.documents.problems import FilePosition
from weft.frontends.training.fields import GPU_HINT
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.reading import KUBEFLOW, TRAINER
from weft.frontends.training.tuning import TUNE
from weft.model.errors import JobFileError, UsageError
from weft.model.suggestions import did_you_mean
from weft.model.wording import with_article

SOURCE: Final = "weft.training.job"
"""The name in messages in place of that of a file."""
RESTART_JOB: Final = "weft.dev/restart"
_GPU: Final = "nvidia.com/gpu"
_TRAINER: Final = "node"
_ROLE_FIELDS: Final = ("replicas", "restart", "env", "resources", "image", "command")
_ARGUMENTS: Final = (
    ("backoffLimit", "backoff_limit"),
    ("activeDeadlineSeconds", "deadline_s"),
    ("cleanPodPolicy", "clean"),
    ("elasticPolicy", "elastic"),
    ("restartPolicy", "restart"),
    ("successPolicy", "success"),
    ("terminationGracePeriodSeconds", "grace_s"),
    ("resources", "resources"),
    ("image", "image"),
    ("env", "env"),
    ("command", "command"),
    ("namespace", "namespace"),
    ("runtimeRef", "runtime"),
    ("metadata.name", "name"),
)
"""The last of these words in the path of a field tells the argument that gave it."""
_PLACE: Final = re.compile(rf"^(?:{re.escape(SOURCE)}:\d+:\d+: )(?:([A-Za-z][^ :]*): )?(.*)$")
_ROLE: Final = re.compile(r"\[(\w+)\]|\.(\w+Initializer|trainer)\b|ReplicaSpecs\.(\w+)")


class Pods:
    """What the replicas of a job have in common, unless a role says otherwise."""

    def __init__(self, **common: Any) -> None:
        self.common = common

    def container(self, name: str, role: str, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the container of a role. UsageError: a wrong argument."""
        given = {**self.common, **{key: value for key, value in own.items() if value is not None}}
        env = {**_mapping("env", self.common.get("env")), **_mapping(f"{role}.env", own.get("env"))}
        made: dict[str, Any] = {"name": name, "image": given.get("image") or _image()}
        if given.get("command") is not None:
            made["command"] = words_of(given["command"])
        if env:
            made["env"] = [_variable(str(key), value) for key, value in env.items()]
        if resources := _mapping("resources", given.get("resources")):
            amounts = {_GPU if key == "gpu" else str(key): str(value) for key, value in resources.items()}
            made["resources"] = {"requests": amounts, "limits": dict(amounts)}
        return made


def _variable(name: str, value: object) -> dict[str, Any]:
    """Return a variable with a value, or with a field of the pod. UsageError: the field is no text."""
    if not isinstance(value, Mapping):
        return {"name": name, "value": str(value)}
    field = value.get("field")
    if len(value) != 1 or not isinstance(field, str):
        raise UsageError(
            f"env.{name} is {value!r}", hint='Give a text, or a field of the pod: {"field": "metadata.name"}'
        )
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def add_files(document: dict[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """Mount texts at absolute paths into all containers of a job; return the config map that has them.

    UsageError: a path is not absolute, the text of a file is none, or the job is a TrainJob.
    """
    name = f"{document['metadata']['name']}-files"
    keys: dict[str, str] = {}
    for path, text in files.items():
        if not path.startswith("/") or path.endswith("/") or not isinstance(text, str):
            raise UsageError(f"files has {path!r}: {text!r:.60}", hint="It maps absolute paths to texts.")
        keys[f"file-{len(keys)}"] = path
    specs = document["spec"].get(KINDS[document["kind"]].spec_key)
    if specs is None:
        raise UsageError(f"a {document['kind']} takes no files")
    for spec in specs.values():
        pod = spec["template"]["spec"]
        pod["volumes"] = [{"name": name, "configMap": {"name": name}}]
        for container in pod["containers"]:
            container["volumeMounts"] = [
                {"name": name, "mountPath": path, "subPath": key} for key, path in keys.items()
            ]
    metadata = {"name": name, "namespace": document["metadata"]["namespace"]}
    data = {key: files[path] for key, path in keys.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def manifest(
    kind: str,
    name: str,
    namespace: str,
    roles: Mapping[str, Any],
    pods: Pods,
    *,
    restart: str | None,
    grace_s: float | None,
    policy: Mapping[str, Any],
    elastic: tuple[int, int] | None,
    runtime: str | None,
    success: str | None,
    tune: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Return the job. UsageError names the wrong argument."""
    if kind not in KINDS:
        raise UsageError(f"kind is {kind!r}", hint=did_you_mean(str(kind), KINDS, f"There are: {', '.join(KINDS)}"))
    found = dict(_roles(kind, roles))
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if restart == "job":
        metadata["annotations"] = {RESTART_JOB: "job"}
        restart = None
    if tune is not None:
        metadata.setdefault("annotations", {})[TUNE] = json.dumps(_mapping("tune", tune))
    if kind == "TrainJob":
        if elastic is not None or policy or restart or success or grace_s is not None:
            known = "elastic, restart, success, grace_s, backoff_limit, deadline_s and clean"
            raise UsageError(f"a TrainJob takes no {known}")
        own = found.get(_TRAINER, {})
        container = pods.container(_TRAINER, _TRAINER, own)
        trainer = {"numNodes": own.get("replicas", 1), **{key: container[key] for key in container if key != "name"}}
        if "resources" in trainer:
            trainer["resourcesPerNode"] = trainer.pop("resources")
        spec = {"runtimeRef": {"name": runtime or "torch-distributed"}, "trainer": trainer}
        return {"apiVersion": TRAINER, "kind": kind, "metadata": metadata, "spec": spec}
    if runtime is not None:
        raise UsageError(f"{with_article(kind)} has no runtime", hint='It belongs to kind="TrainJob".')
    specs = {}
    for role, own in found.items():
        type = _type_of(kind, role)
        pod: dict[str, Any] = {"containers": [pods.container(KINDS[kind].container, role, own)]}
        if grace_s is not None:
            pod["terminationGracePeriodSeconds"] = grace_s
        role_spec: dict[str, Any] = {"replicas": own.get("replicas", 1), "template": {"spec": pod}}
        if policy_of := own.get("restart") or restart:
            role_spec["restartPolicy"] = policy_of
        specs[type] = role_spec
    made: dict[str, Any] = {KINDS[kind].spec_key: specs}
    if policy:
        made["runPolicy"] = dict(policy)
    if success is not None:
        if kind != "TFJob":
            raise UsageError(f"{with_article(kind)} has no success policy", hint='success belongs to kind="TFJob".')
        made["successPolicy"] = success
    if elastic is not None:
        if kind != "PyTorchJob":
            raise UsageError(f"{with_article(kind)} is not elastic", hint='elastic belongs to kind="PyTorchJob".')
        made["elasticPolicy"] = {"minReplicas": elastic[0], "maxReplicas": elastic[1]}
    return {"apiVersion": KUBEFLOW, "kind": kind, "metadata": metadata, "spec": made}


def _roles(kind: str, roles: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the roles that were given, in the order of the kind, as maps of their fields."""
    given = {name: value for name, value in roles.items() if value is not None}
    known = [type.lower() for type in KINDS[kind].types]
    for role in given:
        if role not in known:
            raise UsageError(
                f"{with_article(kind)} has no {role}", hint=did_you_mean(role, known, f"It has: {', '.join(known)}")
            )
    for role in known:
        if role not in given:
            continue
        own = given[role] if isinstance(given[role], Mapping) else {"replicas": given[role]}
        for field in own:
            if field not in _ROLE_FIELDS:
                known_fields = did_you_mean(str(field), _ROLE_FIELDS, f"There are: {', '.join(_ROLE_FIELDS)}")
                raise UsageError(f"{role} has no field {field!r}", hint=known_fields)
        if own.get("replicas") != 0:
            yield role, own
    if not any(value != 0 for value in given.values()):
        raise UsageError(f"{with_article(kind)} needs replicas", hint=f"Such as: {known[-1]}=2")


def _type_of(kind: str, role: str) -> str:
    return next(type for type in KINDS[kind].types if type.lower() == role)


def words_of(command: object) -> list[str]:
    """Return the words of a command: a text is one for sh. UsageError: it is neither text nor a list of texts."""
    if isinstance(command, str):
        return ["/bin/sh", "-c", command]
    if isinstance(command, Sequence) and command and all(isinstance(word, str) for word in command):
        return list(command)
    raise UsageError(f"the command is {command!r}", hint="Give a text for sh, or a list of words.")


def _mapping(name: str, value: object) -> Mapping[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} is {value!r}; it must be a mapping")
    return value


def _image() -> str:
    return f"python:{sys.version_info.major}.{sys.version_info.minor}"


def as_text(document: Mapping[str, Any]) -> str:
    """Return a job as the text of a file."""
    return to_yaml(_node(document))


def _node(value: Any) -> yaml.Node:
    mark = FilePosition(1, 1, SOURCE)
    if isinstance(value, Mapping):
        entries = {str(key): _node(inner) for key, inner in value.items()}
        return yaml.Mapping(entries, dict.fromkeys(entries, mark), mark)
    if isinstance(value, list | tuple):
        return yaml.Sequence(tuple(_node(inner) for inner in value), mark)
    plain = value if value is None or isinstance(value, bool | int | float | str) else repr(value)
    return yaml.Scalar(plain, str(plain), mark)


def of_arguments(error: JobFileError) -> JobFileError:
    """Return the error of a job's text with arguments in place of lines and fields.

    An argument stands in several fields, as requests and limits: its mistakes are told once.
    """
    found: dict[str, str] = {}
    message = ""
    for line in error.message.replace(GPU_HINT, "Did you mean gpu?").splitlines():
        place = _PLACE.match(line)
        if place is not None or not found:
            argument, text = (_argument_of(place[1] or ""), place[2]) if place is not None else ("", line)
            message = f"{argument}: {text}" if argument else text
            found.setdefault(message, "")
        elif line not in found[message]:
            found[message] += f"\n{line}"
    hint = "" if f" mistakes in {SOURCE}" in error.hint else error.hint
    return JobFileError("\n".join(f"{text}{more}" for text, more in found.items()), file=SOURCE, hint=hint)


def _argument_of(path: str) -> str:
    """Return the argument that gave a field, such as `worker.restart`; "" if none is known."""
    if TUNE in path:
        return "tune" + path.partition(f"[{TUNE}]")[2]
    roles = [next(filter(None, found.groups())).lower() for found in _ROLE.finditer(path)]
    role = roles[0].replace("trainer", _TRAINER) if roles else ""
    argument = next((name for word, name in _ARGUMENTS if word in path), "")
    return ".".join(part for part in (role, argument) if part)
