"""Pod templates, read from the fields of a file into records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from weft.documents.problems import join, show
from weft.frontends.training import shapes
from weft.frontends.training.expansion import FIELDS, is_field, is_resource
from weft.frontends.training.fields import INT64, PORT_MAX
from weft.frontends.training.schema import (
    ALWAYS,
    NEVER,
    ON_FAILURE,
    Container,
    ContainerProbe,
    EnvSource,
    EnvVar,
    FileItem,
    KeyRef,
    PodTemplate,
    Port,
    Volume,
    VolumeMount,
)
from weft.model.patterns import late_pattern
from weft.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weft.frontends.training.fields import Fields
    from weft.frontends.training.shapes import Shape

_VARIABLE: Final = late_pattern(r"[ -<>-~]+")
_CLAIM: Final = late_pattern(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_MODE: Final = 0o644
_MODE_MAX: Final = 0o777
_POD_POLICIES: Final = (ALWAYS, ON_FAILURE, NEVER)
_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_SCHEMES: Final = ("HTTP", "HTTPS")
_MEDIA: Final = ("", "Memory", "HugePages")
_HOST_TYPES: Final = (
    "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice",
)  # fmt: skip


def read_pod_template(template: Fields) -> PodTemplate:
    """Return the record of the `metadata` and `spec` of a pod or a pod template."""
    before = len(template.context.ignored)
    metadata = template.one("metadata", shapes.METADATA)
    spec = template.one("spec", shapes.POD_SPEC)
    labels = metadata.texts("labels") if metadata else {}
    annotations = metadata.texts("annotations") if metadata else {}
    if spec is None:
        return PodTemplate(labels=labels, annotations=annotations)
    volumes = read_volumes(spec)
    containers = spec.many("containers", shapes.CONTAINER)
    init_containers = spec.many("initContainers", shapes.INIT_CONTAINER)
    _no_name_twice(containers + init_containers)
    for one in init_containers:
        for key in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
            if key in one and "restartPolicy" not in one:
                one.wrong_at(key, "Forbidden: may not be set for init containers without restartPolicy=Always")
    grace = spec.number("terminationGracePeriodSeconds", 0, INT64)
    user = _user(spec)
    if "nodeSelector" in spec:
        spec.context.ignored.append(join(spec.path, "nodeSelector"))
    if spec.truth("hostNetwork"):
        spec.context.ignored.append(join(spec.path, "hostNetwork"))
    sidecars = [one for one in init_containers if one.text("restartPolicy", among=(ALWAYS,)) == ALWAYS]
    return PodTemplate(
        labels=labels,
        annotations=annotations,
        containers=(
            *(_container(one, volumes, user) for one in containers),
            *(replace(_container(one, volumes, user), restart_policy=ALWAYS) for one in sidecars),
        ),
        init_containers=tuple(_container(one, volumes, user) for one in init_containers if one not in sidecars),
        volumes=volumes,
        restart_policy=spec.text("restartPolicy", among=_POD_POLICIES),
        grace_s=30 if grace is None else grace,
        deadline_s=spec.number("activeDeadlineSeconds", 1, INT64),
        host_network=spec.truth("hostNetwork"),
        host_aliases=_host_aliases(spec),
        node_selector=spec.texts("nodeSelector"),
        priority_class=spec.text("priorityClassName"),
        ignored=tuple(dict.fromkeys(template.context.ignored[before:])),
    )


def _no_name_twice(named: Iterable[Fields]) -> None:
    seen: set[str] = set()
    for one in named:
        name = one.text("name")
        if name and name in seen:
            one.wrong_at("name", f'Duplicate value: "{show(name)[1:-1]}"')
        seen.add(name)


def _host_aliases(spec: Fields) -> dict[str, tuple[str, ...]]:
    aliases = spec.many("hostAliases", shapes.HOST_ALIAS)
    return {alias.text("ip", required=True): alias.words("hostnames") for alias in aliases}


# ----------------------------------------------------------------------------------------------------------- containers


def _user(fields: Fields, usual: tuple[int | None, int | None] = (None, None)) -> tuple[int | None, int | None]:
    """Return the user and the group of a security context, else those of the pod."""
    context = fields.one("securityContext", shapes.SECURITY_CONTEXT)
    user, group = (context.number(key, 0) for key in ("runAsUser", "runAsGroup")) if context else (None, None)
    return usual[0] if user is None else user, usual[1] if group is None else group


def _container(
    container: Fields, volumes: Sequence[Volume], of_pod: tuple[int | None, int | None] = (None, None)
) -> Container:
    name = container.text("name", required=True)
    user, group = _user(container, of_pod)
    resources = container.one("resources", shapes.RESOURCES)
    lifecycle = container.one("lifecycle", shapes.LIFECYCLE)
    limits = resources.resources("limits") if resources else {}
    requests = resources.resources("requests") if resources else {}
    for key in requests.keys() & limits.keys():
        if resources and requests[key] > limits[key]:
            resources.wrong_at("requests", f"Invalid value: the request of {show(key)} is more than its limit")
    return Container(
        name=name,
        image=container.text("image"),
        command=container.words("command"),
        args=container.words("args"),
        working_dir=container.text("workingDir"),
        env=read_env(container, "env", name),
        env_from=tuple(_env_source(one) for one in container.many("envFrom", shapes.ENV_FROM)),
        ports=tuple(_port(one) for one in container.many("ports", shapes.PORT)),
        requests=requests,
        limits=limits,
        mounts=read_mounts(container, [volume.name for volume in volumes]),
        readiness=_probe(container, "readinessProbe"),
        liveness=_probe(container, "livenessProbe"),
        startup=_probe(container, "startupProbe"),
        pre_stop=_handler(lifecycle, "preStop"),
        post_start=_handler(lifecycle, "postStart"),
        pull_policy=container.text("imagePullPolicy", among=PULL_POLICIES),
        user="" if user is None else f"{user}" if group is None else f"{user}:{group}",
    )


def read_env(fields: Fields, key: str, container: str) -> tuple[EnvVar, ...]:
    """Return a list of variables of a container with that name."""
    return tuple(_variable(one, container) for one in fields.many(key, shapes.ENV))


def read_mounts(container: Fields, volumes: Sequence[str] | None = None) -> tuple[VolumeMount, ...]:
    """Return the mounts of a container; the volume of each is one of `volumes` if they are known."""
    mounts = []
    for one in container.many("volumeMounts", shapes.MOUNT):
        name = one.text("name", required=True)
        if name and volumes is not None and name not in volumes:
            one.wrong_at("name", f'Not found: "{show(name)[1:-1]}"', did_you_mean(name, volumes, _no_volume(volumes)))
        path = one.text("mountPath", required=True)
        mounts.append(VolumeMount(name, path, one.truth("readOnly"), one.text("subPath")))
    return tuple(mounts)


def _no_volume(volumes: Sequence[str]) -> str:
    return f"the pod has these volumes: {', '.join(volumes)}" if volumes else "the pod has no volumes"


def _variable(variable: Fields, container: str) -> EnvVar:
    name = variable.text("name", required=True)
    value = variable.text("value")
    if name and not _VARIABLE.fullmatch(name):
        variable.wrong_at("name", f"Invalid value: {show(name)}: a name has printable ASCII characters other than =")
    source = variable.one("valueFrom", shapes.VALUE_FROM)
    if source is None:
        return EnvVar(name, value)
    if value:
        variable.wrong_at("valueFrom", "Invalid value: may not be specified when `value` is not empty")
    field = source.one("fieldRef", shapes.FIELD_REF)
    resource = source.one("resourceFieldRef", shapes.RESOURCE_REF)
    config_map, secret = _key_ref(source, "configMapKeyRef"), _key_ref(source, "secretKeyRef")
    if sum(one is not None for one in (field, resource, config_map, secret)) > 1:
        source.wrong(source.mark, source.path, "Invalid value: may not have more than one field specified at a time")
    # A container's own resources are meant; those of another one have no place in the record.
    if resource and resource.text("containerName") not in ("", container):
        resource.context.ignored.append(join(resource.path, "containerName"))
    return EnvVar(
        name,
        config_map=config_map,
        secret=secret,
        field=_field(field) if field else "",
        resource=_resource(resource) if resource else "",
        divisor=(resource.quantity("divisor") or 0) if resource else 0,
    )


def _field(field: Fields, *also: str) -> str:
    path = field.text("fieldPath", required=True)
    if path and path not in also and not is_field(path):
        known = (*also, *FIELDS)
        message = f"Unsupported value: {show(path)}"
        field.wrong_at("fieldPath", message, did_you_mean(path, known, f"the fields are {', '.join(known)}"))
    return path


def _resource(resource: Fields) -> str:
    path = resource.text("resource", required=True)
    if path and not is_resource(path):
        hint = "write limits.cpu, limits.memory, requests.cpu or requests.memory"
        resource.wrong_at("resource", f"Unsupported value: {show(path)}", hint)
    return path


def _key_ref(source: Fields, key: str) -> KeyRef | None:
    ref = source.one(key, shapes.KEY_REF)
    if ref is None:
        return None
    return KeyRef(ref.text("name", required=True), ref.text("key", required=True), ref.truth("optional"))


def _env_source(source: Fields) -> EnvSource:
    config_map, secret = source.one("configMapRef", shapes.NAME_REF), source.one("secretRef", shapes.NAME_REF)
    ref = config_map or secret
    if ref is None or (config_map and secret):
        source.wrong(source.mark, source.path, "Invalid value: must specify one of: `configMapRef` or `secretRef`")
        return EnvSource("", optional=True)
    name = ref.text("name", required=True)
    return EnvSource(name, secret is not None, source.text("prefix"), ref.truth("optional"))


def _port(port: Fields) -> Port:
    number = port.number("containerPort", 1, PORT_MAX, required=True) or 0
    return Port(number, port.text("name"), port.text("protocol", "TCP", among=_PROTOCOLS))


def _probe(container: Fields, key: str) -> ContainerProbe | None:
    probe = container.one(key, shapes.PROBE)
    if probe is None:
        return None
    command, tcp = probe.one("exec", shapes.EXEC), probe.one("tcpSocket", shapes.TCP_SOCKET)
    http, grpc = probe.one("httpGet", shapes.HTTP_GET), probe.one("grpc", shapes.GRPC)
    ways = [one for one in (command, http, tcp, grpc) if one is not None]
    if len(ways) != 1:
        problem = "must specify a handler type" if not ways else "may not specify more than 1 handler type"
        probe.wrong(probe.mark, probe.path, f"Required value: {problem}", "exec, httpGet, tcpSocket or grpc")
    port: int | str = 0
    for one in (http, tcp):
        port = one.port("port", required=True) if one else port
    if grpc is not None:
        port = grpc.number("port", 1, PORT_MAX, required=True) or 0
    grace = probe.number("terminationGracePeriodSeconds", 1, INT64)
    if grace is not None and key == "readinessProbe":
        probe.wrong_at("terminationGracePeriodSeconds", "Invalid value: must not be set for readinessProbes")
    successes = probe.number("successThreshold", 1) or 1
    if successes != 1 and key != "readinessProbe":
        probe.wrong_at("successThreshold", f"Invalid value: {successes}: must be 1")
    usual = ContainerProbe()
    return ContainerProbe(
        command=command.words("command") if command else (),
        port=port,
        http=_path(http),
        grpc=grpc.text("service") if grpc else None,
        scheme=http.text("scheme", usual.scheme, among=_SCHEMES) if http else usual.scheme,
        host=next((one.text("host") for one in (http, tcp) if one), ""),
        headers=_headers(http),
        delay_s=probe.number("initialDelaySeconds", 0) or 0,
        period_s=probe.number("periodSeconds", 1) or usual.period_s,
        timeout_s=probe.number("timeoutSeconds", 1) or usual.timeout_s,
        successes=successes,
        failures=probe.number("failureThreshold", 1) or usual.failures,
        grace_s=grace,
    )


def _path(http: Fields | None) -> str:
    path = (http.text("path") or "/") if http else ""
    return path if not path or path.startswith("/") else f"/{path}"


def _headers(http: Fields | None) -> tuple[tuple[str, str], ...]:
    headers = http.many("httpHeaders", shapes.HTTP_HEADER) if http else []
    for one in headers:
        if any(mark in one.text("name") + one.text("value") for mark in "\r\n"):
            one.wrong(one.mark, one.path, "Invalid value: a header is one line")
    return tuple((one.text("name", required=True), one.text("value")) for one in headers)


def _handler(lifecycle: Fields | None, key: str) -> tuple[str, ...]:
    handler = lifecycle.one(key, shapes.HANDLER) if lifecycle else None
    if handler is None:
        return ()
    if sleep := handler.one("sleep", shapes.SLEEP):
        return "sleep", str(sleep.number("seconds", 0, INT64, required=True) or 0)
    command = handler.one("exec", shapes.EXEC)
    return command.words("command") if command else ()


# -------------------------------------------------------------------------------------------------------------- volumes


def read_volumes(fields: Fields) -> tuple[Volume, ...]:
    """Return the volumes of a pod."""
    volumes = fields.many("volumes", shapes.VOLUME)
    _no_name_twice(volumes)
    return tuple(_volume(one) for one in volumes)


def _volume(volume: Fields) -> Volume:
    name = volume.text("name", required=True)
    if empty := volume.one("emptyDir", shapes.EMPTY_DIR):
        kind = "memory" if empty.text("medium", among=_MEDIA) == "Memory" else "empty"
        return Volume(name=name, kind=kind, size_limit=empty.quantity("sizeLimit") or 0)
    if host := volume.one("hostPath", shapes.HOST_PATH):
        path = host.text("path", required=True)
        return Volume(name=name, kind="host", source=path, host_type=host.text("type", among=_HOST_TYPES))
    if claim := volume.one("persistentVolumeClaim", shapes.CLAIM_SOURCE):
        source = claim.text("claimName", required=True)
        if source and not _CLAIM.fullmatch(source):
            message = f"Invalid value: {show(source)}: must be a lower case RFC 1123 subdomain"
            claim.wrong_at("claimName", message, "no claim has such a name: lower case letters, digits, - and . in it")
        return Volume(name=name, kind="claim", source=source, read_only=claim.truth("readOnly"))
    if projected := volume.one("projected", shapes.PROJECTED):
        parts = tuple(
            part
            for one in projected.many("sources", shapes.PROJECTED_SOURCE)
            for part in _sources(one, name, _PROJECTED_SOURCES)
        )
        return Volume(name=name, kind="projected", parts=parts, mode=_mode(projected, "defaultMode", _MODE))
    # Without an understood source an empty folder takes its place, as for a volume without a source in Kubernetes.
    return next(_sources(volume, name, _VOLUME_SOURCES), Volume(name=name, kind="empty"))


_VOLUME_SOURCES: Final = (
    ("configMap", shapes.CONFIG_MAP_SOURCE, "config_map", "name"),
    ("secret", shapes.SECRET_SOURCE, "secret", "secretName"),
    ("downwardAPI", shapes.DOWNWARD, "downward", ""),
)
_PROJECTED_SOURCES: Final = (
    ("configMap", shapes.PROJECTED_KEYS, "config_map", "name"),
    ("secret", shapes.PROJECTED_KEYS, "secret", "name"),
    ("downwardAPI", shapes.PROJECTED_DOWNWARD, "downward", ""),
)


def _sources(fields: Fields, name: str, kinds: Iterable[tuple[str, Shape, str, str]]) -> Iterator[Volume]:
    for key, form, kind, named in kinds:
        source = fields.one(key, form)
        if source is None:
            continue
        whole = "defaultMode" in form.understood
        yield Volume(
            name=name,
            kind=kind,
            source=source.text(named, required=True) if named else "",
            items=_field_items(source) if kind == "downward" else _key_items(source),
            mode=_mode(source, "defaultMode", _MODE) if whole else _MODE,
            optional=bool(named) and source.truth("optional"),
        )


def _key_items(source: Fields) -> tuple[FileItem, ...]:
    items = source.many("items", shapes.KEY_ITEM)
    return tuple(
        FileItem(one.text("key", required=True), one.text("path", required=True), _mode(one, "mode", -1))
        for one in items
    )


def _field_items(source: Fields) -> tuple[FileItem, ...]:
    found = []
    for one in source.many("items", shapes.FIELD_ITEM):
        field, resource = one.one("fieldRef", shapes.FIELD_REF), one.one("resourceFieldRef", shapes.RESOURCE_REF)
        key = _field(field, "metadata.labels", "metadata.annotations") if field else ""
        container, divisor = "", 0.0
        if resource:
            key, container = _resource(resource), resource.text("containerName", required=True)
            divisor = resource.quantity("divisor") or 0
        elif not field:
            one.wrong(one.mark, one.path, "Required value: fieldRef or resourceFieldRef")
        found.append(FileItem(key, one.text("path", required=True), _mode(one, "mode", -1), container, divisor))
    return tuple(found)


def _mode(fields: Fields, key: str, default: int) -> int:
    mode = fields.number(key, 0, _MODE_MAX)
    return default if mode is None else mode
