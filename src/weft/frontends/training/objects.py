"""The objects that stand beside jobs in a file: pods, services, config maps, secrets, claims, priority classes."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Final

from weft.documents import yaml
from weft.documents.problems import join
from weft.frontends.training import shapes
from weft.frontends.training.fields import INT32, PORT_MAX, is_null
from weft.frontends.training.jobs import read_metadata
from weft.frontends.training.pods import read_pod_template
from weft.frontends.training.schema import KeyValues, PlainPod, ServiceSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.frontends.training.fields import Fields
    from weft.frontends.training.schema import PodTemplate

_KEPT: Final = {"config_map": "ConfigMap", "secret": "Secret"}
_HEADLESS: Final = "None"
_PRIORITY_MAX: Final = 1_000_000_000


def read_pod(fields: Fields) -> PlainPod:
    """Return the record of a pod."""
    metadata = read_metadata(fields)
    if "spec" not in fields:
        fields.wrong_at("spec", "Required value")
    return PlainPod(name=metadata.name, namespace=metadata.namespace, template=read_pod_template(fields))


def read_service(fields: Fields) -> ServiceSpec:
    """Return the record of a service."""
    metadata, spec = read_metadata(fields), fields.one("spec", shapes.SERVICE_SPEC)
    if spec is None:
        return ServiceSpec(name=metadata.name, namespace=metadata.namespace)
    ports = []
    for one in spec.many("ports", shapes.SERVICE_PORT):
        number = one.number("port", 1, PORT_MAX, required=True) or 0
        ports.append((number, one.port("targetPort") or number))
    return ServiceSpec(
        name=metadata.name,
        namespace=metadata.namespace,
        selector=spec.texts("selector"),
        ports=tuple(ports),
        headless=spec.text("clusterIP") == _HEADLESS,
    )


def read_config_map(fields: Fields) -> KeyValues:
    """Return the record of a config map."""
    metadata = read_metadata(fields)
    data = {key: value.encode() for key, value in fields.texts("data").items()}
    data |= dict(_decoded(fields, "binaryData"))
    return KeyValues(name=metadata.name, namespace=metadata.namespace, data=data)


def read_secret(fields: Fields) -> KeyValues:
    """Return the record of a secret; `stringData` win over `data`. No message shows a value."""
    metadata = read_metadata(fields)
    data = dict(_decoded(fields, "data"))
    for key, node, path in _hidden(fields, "stringData"):
        if isinstance(node, yaml.Scalar) and isinstance(node.value, str):
            data[key] = node.value.encode()
        else:
            fields.wrong(node.mark, path, "must be text", "put the value in quotes")
    return KeyValues(name=metadata.name, namespace=metadata.namespace, data=data)


def _decoded(fields: Fields, key: str) -> Iterator[tuple[str, bytes]]:
    import base64  # few files have secrets

    for name, node, path in _hidden(fields, key):
        try:
            text = node.text if isinstance(node, yaml.Scalar) else "?"
            yield name, base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            hint = "give plain text under stringData" if key == "data" else ""
            fields.wrong(node.mark, path, "must be base64", hint)


def _hidden(fields: Fields, key: str) -> Iterator[tuple[str, yaml.Node, str]]:
    """Yield key, value and path of each entry of a map whose values are no one's business."""
    node = fields.node(key)
    if node is None:
        return
    if not isinstance(node, yaml.Mapping):
        fields.wrong_at(key, "must be a map")
        return
    for name, value in node.entries.items():
        if not is_null(value):
            yield name, value, join(join(fields.path, key), name)


def read_claim(fields: Fields) -> str:
    """Return the name of a persistent volume claim."""
    if spec := fields.one("spec", shapes.CLAIM_SPEC):
        spec.words("accessModes")
        if resources := spec.one("resources", shapes.RESOURCES):
            resources.quantities("requests")
    return read_metadata(fields).name


def read_priority_class(fields: Fields) -> tuple[str, int]:
    """Return name and value of a priority class."""
    value = fields.number("value", -INT32 - 1, _PRIORITY_MAX, required=True)
    return read_metadata(fields).name, value or 0


def needed_by(template: PodTemplate) -> Iterator[tuple[str, str]]:
    """Yield ("ConfigMap" or "Secret", name) of each that the pods cannot start without."""
    for container in (*template.containers, *template.init_containers):
        for variable in container.env:
            for kind, ref in (("ConfigMap", variable.config_map), ("Secret", variable.secret)):
                if ref is not None and not ref.optional:
                    yield kind, ref.name
        for source in container.env_from:
            if not source.optional:
                yield ("Secret" if source.secret else "ConfigMap"), source.name
    for volume in template.volumes:
        for part in (volume, *volume.parts):
            if part.kind in _KEPT and not part.optional:
                yield _KEPT[part.kind], part.source
