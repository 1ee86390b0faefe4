"""The final environment of a container: references to variables, the pod, its resources, config maps and secrets.

Source: Kubernetes 1.33, `third_party/forked/golang/expansion` and `makeEnvironmentVariables` of the kubelet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from msgspec import Struct, field
from msgspec.structs import replace

from weft.model.errors import DefinitionError
from weft.model.patterns import late_pattern
from weft.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from weft.frontends.training.schema import EnvSource, EnvVar, JobFile, KeyRef, KeyValues, PodTemplate

_REFERENCE: Final = late_pattern(r"\$(?:\$|\(([^)]*)\))")
_KEYED: Final = late_pattern(r"metadata\.(labels|annotations)\['([^']*)'\]", re.DOTALL)
_NAME: Final = late_pattern(r"[ -<>-~]+")
"""Names of variables that Kubernetes takes from config maps and secrets: printable ASCII without `=`."""
_LONG_LINE: Final = 8
"""The least letters of a line of a secret that is masked for itself: shorter ones, such as braces, tell nothing."""


class PodFacts(Struct, frozen=True, kw_only=True):
    """What a pod knows of itself. `allocatable` are the resources of its node, the limits of a container without any.

    Resources are numbers: cores, bytes, counts.
    """

    name: str
    namespace: str = "default"
    uid: str = ""
    ip: str = ""
    node: str = ""
    node_ip: str = ""
    service_account: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    allocatable: Mapping[str, float] = field(default_factory=dict)


class Environment(Struct, frozen=True):
    """The variables of a container. Logs mask `secrets`, the values that come from secrets, longest first."""

    values: Mapping[str, str]
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:  # a secret must not reach a message
        return f"Environment({sorted(self.values)!r})"


def expanded(variables: Sequence[EnvVar], sources: Sequence[EnvSource], facts: PodFacts, files: JobFile) -> Environment:
    """Return the environment of a container.

    All keys of `sources` come first, then `variables` in order; a later one wins. `$(NAME)` in a value refers to what
    stands before it. Keys that are no names of variables are left out, as in Kubernetes. Values that are no UTF-8 have
    surrogates (`os.fsencode` restores the bytes). DefinitionError: a config map or secret, a key, or a field is
    missing.
    """
    values: dict[str, str] = {}
    secrets: set[str] = set()
    for source in sources:
        entries = dict(_all_keys(source, files))
        values |= entries
        if source.secret:
            secrets.update(entries.values())
    for variable in variables:
        value = _value(variable, values, facts, files)
        if value is None:
            continue
        values[variable.name] = value
        if variable.secret is not None:
            secrets.add(value)
    for name, value in values.items():
        if "\0" in value:
            raise DefinitionError(
                f"the value of the variable {name} contains a NUL byte",
                hint="Mount the config map or secret as a file instead.",
            )
    return Environment(values, tuple(sorted(secrets - {""}, key=lambda secret: (-len(secret), secret))))


def secrets_of(template: PodTemplate, files: JobFile) -> set[str]:
    """Return the texts of all secrets that a pod has in variables or volumes, as programs print them.

    Shells drop line breaks at the end of a file, and many programs print it line by line, so long lines of a secret
    are texts of their own.
    """
    found: set[str] = set()
    for container in (*template.init_containers, *template.containers):
        for source in container.env_from:
            if source.secret:
                found.update(text for _, text in _all_keys(replace(source, optional=True), files))
        for variable in container.env:
            if variable.secret is not None:
                found.add(_key(replace(variable.secret, optional=True), files, secret=True) or "")
    volumes = [one for volume in template.volumes for one in (volume, *volume.parts) if one.kind == "secret"]
    for volume in volumes:
        entries = _entries(volume.source, files, secret=True)
        wanted = {item.key for item in volume.items}
        for key, data in ({} if entries is None else entries.data).items():
            if not wanted or key in wanted:
                text = _text(data)
                found |= {text, text.rstrip("\r\n")}
                found |= {line for line in map(str.strip, text.splitlines()) if len(line) >= _LONG_LINE}
    return found - {""}


def expanded_words(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the words of a command with their references replaced by the values of variables."""
    return [expanded_text(word, environment) for word in words]


def expanded_text(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with `$(NAME)` replaced by the variable of that name, and `$$` by `$`.

    A reference to an unknown variable stays as it is.
    """

    if "$" not in text:
        return text

    def replacement(found: re.Match[str]) -> str:
        name = found[1]
        return "$" if name is None else environment.get(name, found[0])

    return _REFERENCE.sub(replacement, text)


def is_field(path: str) -> bool:
    """Whether a variable can refer to a field of a pod."""
    return path in _FIELDS or _KEYED.fullmatch(path) is not None


def is_resource(path: str) -> bool:
    """Whether a path is `limits.NAME` or `requests.NAME`."""
    kind, _, name = path.partition(".")
    return kind in ("limits", "requests") and bool(name)


def file_value(path: str, facts: PodFacts) -> str:
    """Return a field of a pod as a file of a volume, which may have all labels and annotations.

    DefinitionError: no file may have that field.
    """
    every = {"metadata.labels": facts.labels, "metadata.annotations": facts.annotations}.get(path)
    if every is None:
        return field_value(path, facts)
    return "\n".join(f"{key}={json.dumps(every[key], ensure_ascii=False)}" for key in sorted(every))


def field_value(path: str, facts: PodFacts) -> str:
    """Return a field of a pod by its path, as in `fieldRef`. DefinitionError: no variable may refer to that field."""
    keyed = _KEYED.fullmatch(path)
    if keyed is not None:
        return (facts.labels if keyed[1] == "labels" else facts.annotations).get(keyed[2], "")
    reader = _FIELDS.get(path)
    if reader is None:
        raise DefinitionError(
            f"fieldRef: {path!r} is no field that a variable can refer to",
            hint=did_you_mean(path, FIELDS, f"The fields are {', '.join(FIELDS)}."),
        )
    return reader(facts)


_FIELDS: Final[Mapping[str, Callable[[PodFacts], str]]] = {
    "metadata.name": lambda facts: facts.name,
    "metadata.namespace": lambda facts: facts.namespace,
    "metadata.uid": lambda facts: facts.uid,
    "spec.nodeName": lambda facts: facts.node,
    "spec.serviceAccountName": lambda facts: facts.service_account,
    "status.hostIP": lambda facts: facts.node_ip,
    "status.hostIPs": lambda facts: facts.node_ip,
    "status.podIP": lambda facts: facts.ip,
    "status.podIPs": lambda facts: facts.ip,
}
FIELDS: Final = (*_FIELDS, "metadata.labels['KEY']", "metadata.annotations['KEY']")
"""The fields of a pod that variables can refer to."""


def resource_value(path: str, divisor: float, facts: PodFacts) -> str:
    """Return a resource of a container in units of `divisor` (0: 1), rounded up, as in `resourceFieldRef`.

    Without a limit of its own, a container may use what its node has; a request is then its limit. DefinitionError:
    the path is none of `limits.NAME` and `requests.NAME`.
    """
    kind, _, name = path.partition(".")
    if not is_resource(path):
        raise DefinitionError(
            f"resourceFieldRef: {path!r} is no resource of a container",
            hint="Write limits.cpu, limits.memory, requests.cpu or requests.memory.",
        )
    if kind == "limits":
        amount = facts.limits.get(name, facts.allocatable.get(name, 0))
    else:
        amount = facts.requests.get(name, facts.limits.get(name, 0))
    units = _thousandths(divisor) or 1000
    return str(-(-_thousandths(amount) // units))


def _thousandths(amount: float) -> int:
    """Return an amount in thousandths, the finest unit of a quantity, without the error of floating point."""
    return round(amount * 1000)


def _value(variable: EnvVar, before: Mapping[str, str], facts: PodFacts, files: JobFile) -> str | None:
    """Return the value of a variable; None: an optional key is not there."""
    if variable.value:
        return expanded_text(variable.value, before)
    if variable.field:
        return field_value(variable.field, facts)
    if variable.resource:
        return resource_value(variable.resource, variable.divisor, facts)
    if variable.config_map is not None:
        return _key(variable.config_map, files, secret=False)
    if variable.secret is not None:
        return _key(variable.secret, files, secret=True)
    return ""


def _all_keys(source: EnvSource, files: JobFile) -> Iterator[tuple[str, str]]:
    entries = _entries(source.name, files, secret=source.secret)
    if entries is None:
        if not source.optional:
            _raise_missing(source.name, "KEY", secret=source.secret)
        return
    for key, data in entries.data.items():
        name = source.prefix + key
        if _NAME.fullmatch(name):
            yield name, _text(data)


def _key(ref: KeyRef, files: JobFile, *, secret: bool) -> str | None:
    entries = _entries(ref.name, files, secret=secret)
    if entries is not None and ref.key in entries.data:
        return _text(entries.data[ref.key])
    if ref.optional:
        return None
    if entries is None:
        _raise_missing(ref.name, ref.key, secret=secret)
    noun = "secret" if secret else "config map"
    raise DefinitionError(
        f"the {noun} {ref.name!r} has no key {ref.key!r}",
        hint=did_you_mean(ref.key, entries.data, f"Its keys are {', '.join(sorted(entries.data)) or 'none'}."),
    )


def _entries(name: str, files: JobFile, *, secret: bool) -> KeyValues | None:
    return (files.secrets if secret else files.config_maps).get(name)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _raise_missing(name: str, key: str, *, secret: bool) -> NoReturn:
    noun, kind, data = ("secret", "Secret", "stringData") if secret else ("config map", "ConfigMap", "data")
    raise DefinitionError(
        f"the {noun} {name!r} does not stand in the file",
        hint=f"Add a document to the file, or say optional: true where it is used:\n"
        f"---\napiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\n{data}: {{{key}: ...}}",
    )
