"""The readers of Weft's own words: `x-weft` of a step, and the environment variables of a step."""

from __future__ import annotations

from typing import Final

from weft.documents import yaml
from weft.documents.problems import join
from weft.frontends.pipelines.language import PACKAGE_KINDS, Packages, SourceText
from weft.frontends.pipelines.maps import SECRET_NAME, FileMap, check_name, named, read_text
from weft.frontends.pipelines.templates import env_number
from weft.graph.logical import DEFAULT_RETRY, Retry, exit_codes
from weft.model.failures import RetryClass
from weft.model.resources import Resources
from weft.model.sizes import parse_size, unit_missing

_MOST_CORES: Final = 1_000_000
_MOST_RETRIES: Final = 1000
_LONGEST_DELAY_S: Final = 86_400
_MOST_FACTOR: Final = 100
_OF_PADDLEFLOW: Final = ("PF_", "RAY_JOB_")
_FILES: Final = {"venv": "requirements.txt", "conda": "environment.yaml", "pixi": "pixi.toml"}
APART: Final = "apart"
STDERR: Final = ("together", APART)
"""The values of `x-weft: stderr`."""
RESOURCES: Final = ("cpu", "memory", "gpu", "gpu_type", "custom")
"""The names of `x-weft: resources`."""
STEP_EXTRAS: Final = ("timeout_s", "retry", "resources", "environment", "stderr", "kind", "with")
"""The keys of `x-weft` of a step."""


def variables_of(entries: FileMap) -> tuple[dict[str, SourceText], dict[str, SourceText]]:
    """Return the variables with their texts, and those with the names of their secrets."""
    variables: dict[str, SourceText] = {}
    secrets: dict[str, SourceText] = {}
    for name, path, node in named(entries, "a variable"):
        if isinstance(node, yaml.Mapping):
            secrets[name] = _secret(name, FileMap(node, path, entries.problems, ("secret",)))
        elif isinstance(node, yaml.Scalar) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            variables[name] = SourceText(env_number(node.value), node.mark, path)
        else:
            variables[name] = read_text(node, path, entries.problems, "text, a number or {secret: NAME}")
    return variables, secrets


def _secret(variable: str, options: FileMap) -> SourceText:
    known_as = options.text("secret")
    if "secret" not in options.nodes:
        options.problems.add(options.mark, join(options.path, "secret"), "is missing", "name a secret")
    elif options.is_text("secret"):
        check_name(SECRET_NAME, known_as.value, known_as.mark, known_as.path, "a secret", options.problems)
    if variable == "PATH" or variable.startswith(_OF_PADDLEFLOW):
        options.problems.add(options.mark, options.path, "cannot be a secret", "Weft itself reads this variable")
    return known_as


def timeout_of(extra: FileMap) -> float | None:
    """Return `timeout_s`, the seconds that an attempt may take; None without a limit."""
    if "timeout_s" not in extra.nodes:
        return None
    seconds = extra.number("timeout_s", 1.0)
    if seconds <= 0:
        extra.wrong("timeout_s", "must be more than 0 seconds")
    return seconds


def retry_of(extra: FileMap) -> Retry | None:
    """Return `retry`; None if it is not given."""
    if "retry" not in extra.nodes:
        return None
    options = extra.map("retry", Retry.__struct_fields__)
    retry = Retry(
        **{each.field: options.integer(each.field, DEFAULT_RETRY[each]) for each in RetryClass},
        delay_s=options.number("delay_s", DEFAULT_RETRY.delay_s),
        memory_factor=options.number("memory_factor", DEFAULT_RETRY.memory_factor),
        factor=options.number("factor", DEFAULT_RETRY.factor),
        max_delay_s=options.number("max_delay_s", 0.0) if "max_delay_s" in options.nodes else None,
        jitter=options.number("jitter", DEFAULT_RETRY.jitter),
        on=_exit_codes(options),
    )
    for each in RetryClass:
        if not 0 <= retry[each] <= _MOST_RETRIES:
            options.wrong(each.field, f"must be a number of retries from 0 to {_MOST_RETRIES}")
    if not 0 <= retry.delay_s <= _LONGEST_DELAY_S:
        options.wrong("delay_s", f"must be from 0 to {_LONGEST_DELAY_S} seconds")
    if retry.max_delay_s is not None and not retry.delay_s <= retry.max_delay_s <= _LONGEST_DELAY_S:
        options.wrong("max_delay_s", f"must be from {retry.delay_s:g}, the `delay_s`, to {_LONGEST_DELAY_S} seconds")
    for key in ("memory_factor", "factor"):
        if not 1 <= getattr(retry, key) <= _MOST_FACTOR:
            options.wrong(key, f"must be from 1 to {_MOST_FACTOR}")
    if not 0 <= retry.jitter <= 1:
        options.wrong("jitter", "must be from 0 to 1, the part of a pause that chance may take away")
    return retry


def _exit_codes(options: FileMap) -> tuple[int | str, ...]:
    """Return the exit codes of `on`: whole numbers, and texts for ranges."""
    found: list[int | str] = []
    hint = "write on: [75, 137], or a range in quotes: on: ['64-78']"
    if isinstance(given := options.nodes.get("on"), yaml.Scalar) and given.value is not None:
        options.wrong("on", f"must be a list, is {yaml.describe(given)}", hint)
        return ()
    for path, node in options.items("on"):
        value = node.value if isinstance(node, yaml.Scalar) else None
        try:
            exit_codes(value if isinstance(value, int | str) else "")
        except ValueError as error:
            options.problems.add(node.mark, path, f"{error}, is {yaml.describe(node)}", hint)
            continue
        if isinstance(value, int | str):
            found.append(value)
    return tuple(found)


def resources_of(extra: FileMap) -> Resources | None:
    """Return `resources`; None if they are not given."""
    if "resources" not in extra.nodes:
        return None
    options = extra.map("resources", RESOURCES)
    found = Resources(
        cpu=options.number("cpu", 1.0),
        memory=_bytes(options),
        gpu=options.integer("gpu", 0),
        gpu_type=options.text("gpu_type").value,
        custom=_custom(options),
    )
    if not 0 <= found.cpu <= _MOST_CORES:
        options.wrong("cpu", f"must be a number of cores from 0 to {_MOST_CORES:,}")
    if not 0 <= found.gpu <= _MOST_CORES:
        options.wrong("gpu", f"must be a number of GPUs from 0 to {_MOST_CORES:,}")
    return found


def _custom(options: FileMap) -> tuple[tuple[str, float], ...]:
    """Return the amounts of resources under names of the user's."""
    given = options.map("custom", None)
    found = tuple((name, given.number(name, 0.0)) for name in given.nodes)
    for name, amount in found:
        if not 0 < amount <= _MOST_CORES:
            given.wrong(name, f"must be a number above 0, at most {_MOST_CORES:,}")
    return found


def packages_of(extra: FileMap) -> Packages | None:
    """Return `environment`: what provides the packages of a step; None without it."""
    if "environment" not in extra.nodes:
        return None
    options = extra.map("environment", PACKAGE_KINDS)
    if len(options.nodes) != 1:
        if not options.broken:
            hint = "write one: environment: {venv: requirements.txt}; an image is named by `docker_env`"
            extra.wrong("environment", f"must name one of {', '.join(PACKAGE_KINDS)}", hint)
        return None
    ((kind, _),) = options.nodes.items()
    file = options.text(kind)
    if options.is_text(kind) and (not file.value.strip() or "{{" in file.value or "\0" in file.value):
        options.wrong(kind, "must be the path of a file, without templates", f"such as {_FILES[kind]}")
    return Packages(kind, file.value, file.mark, file.path)


def stderr_of(extra: FileMap) -> SourceText:
    """Return `stderr`, one of `STDERR`; "" without it."""
    given = extra.text("stderr")
    if extra.is_text("stderr") and given.value not in STDERR:
        extra.wrong("stderr", f"must be {' or '.join(STDERR)}", "with apart, logs tell errors from output")
    return given


def _bytes(options: FileMap) -> int:
    node = options.nodes.get("memory")
    value = node.value if isinstance(node, yaml.Scalar) else 0 if node is None else None
    try:
        size = parse_size(value) if isinstance(value, str) else value
    except (ValueError, OverflowError):
        size = None
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 1 << 63:
        options.wrong("memory", "must be a number of bytes, such as 512MiB or 4GiB")
        return 0
    if hint := unit_missing(value):
        options.wrong("memory", "must have a unit", hint)
    return size


def check_defaults(options: FileMap) -> None:
    """Add every mistake of the defaults of a file; `options` is their map."""
    timeout_of(options)
    retry_of(options)
    resources_of(options)
    packages_of(options)
    stderr_of(options)
    variables_of(options.map("env", None))
