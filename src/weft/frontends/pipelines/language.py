"""The words of a pipeline file as frozen records, and the reader that makes them from a tree.

Reading settles the *shape*: which keys exist at which level (the sets are closed), which type each value has, how a
name may look. Rules between records (dependencies, templates, clashes) are `check.py`. Keys of the language that Weft
does not run yet are refused by name, so that a file never runs as something else than it says.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from weft.frontends.pipelines import yaml
from weft.frontends.pipelines.problems import Mark, Problems, choices, join, nearest, show
from weft.frontends.pipelines.templates import ParameterValue, as_text, env_number, find
from weft.model.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

START = Mark(1, 1)

PARALLELISM_DEFAULT, PARALLELISM_MAX = 10, 20
NEVER_EXPIRES = -1

ParameterKind: TypeAlias = Literal["string", "int", "float", "path", "list"]
Strategy: TypeAlias = Literal["fail_fast", "continue"]

KINDS: tuple[ParameterKind, ...] = ("string", "int", "float", "path", "list")
CACHE_MODES = ("content", "paddleflow")
"""How files are compared: by what is in them, or by the time of their last change as PaddleFlow does."""
STRATEGIES: tuple[Strategy, ...] = ("fail_fast", "continue")

_PIPELINE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}")
_STEP_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,29}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")
_NAME_RULES = {
    _PIPELINE_NAME: "1 to 128 letters, digits, _ and -, beginning with a letter or _",
    _STEP_NAME: "1 to 30 letters, digits and -, beginning with a letter",
    _VARIABLE_NAME: "1 to 50 letters, digits and _, beginning with a letter or _",
}
_PATH_VALUE = re.compile(r"[.a-zA-Z0-9/_-]+")

PIPELINE_KEYS = (
    "name", "docker_env", "entry_points", "parallelism", "disabled", "failure_options", "cache", "fs_options",
    "components", "post_process",
)  # fmt: skip
PIPELINE_LATER = ("components", "post_process")
STEP_KEYS = (
    "command", "docker_env", "env", "parameters", "deps", "artifacts", "cache", "type", "name", "x-weft",
    "condition", "loop_argument", "extra_fs", "reference", "entry_points",
)  # fmt: skip
STEP_LATER = ("condition", "loop_argument", "extra_fs", "reference")


@dataclass(frozen=True, slots=True)
class Text:
    """A text of the file and where it stands."""

    value: str = ""
    mark: Mark = START


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a step. `kind` is None when the file gives a bare value: any type is legal then."""

    name: str
    value: ParameterValue
    kind: ParameterKind | None = None
    mark: Mark = START


@dataclass(frozen=True, slots=True)
class FsScope:
    """Paths of one file system whose content belongs to a step's cache key; relative to that file system's root."""

    name: str
    paths: tuple[str, ...] = ("/",)
    mark: Mark = START


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Whether a step may reuse an earlier result. `given` names the fields that the file sets at this level.

    `max_expired_time` is in seconds, -1 means for ever.
    """

    enable: bool = False
    max_expired_time: int = NEVER_EXPIRES
    fs_scope: tuple[FsScope, ...] = ()
    mode: str = CACHE_MODES[0]
    given: frozenset[str] = frozenset()
    mark: Mark = START

    def over(self, general: CacheOptions) -> CacheOptions:
        """Return these options completed by those of the whole pipeline: fields override, scopes are appended."""
        return replace(
            self,
            enable=self.enable if "enable" in self.given else general.enable,
            max_expired_time=self.max_expired_time if "max_expired_time" in self.given else general.max_expired_time,
            fs_scope=self.fs_scope + general.fs_scope,
            mode=self.mode if "mode" in self.given else general.mode,
            given=self.given | general.given,
        )


@dataclass(frozen=True, slots=True)
class Mount:
    """A file system and the part of it that steps see. An empty `sub_path` is all of it."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    read_only: bool = False
    mark: Mark = START


@dataclass(frozen=True, slots=True)
class FailureOptions:
    """What a failed step does to the others: `fail_fast` ends the run, `continue` only cancels what needs it."""

    strategy: Strategy = "fail_fast"
    mark: Mark = START


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """How often a step is tried again, by kind of failure; fields and defaults are those of `weft.graph.Retry`."""

    user: int = 0
    memory: int = 2
    infrastructure: int = 8
    delay_s: float = 0.0
    memory_factor: float = 2.0


@dataclass(frozen=True, slots=True)
class Step:
    """One step as written. Maps keep the order of the file and are not to be changed."""

    name: str
    command: Text = Text()
    docker_env: str = ""
    env: Mapping[str, Text] = field(default_factory=dict)
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    deps: tuple[Text, ...] = ()
    inputs: Mapping[str, Text] = field(default_factory=dict)
    outputs: tuple[Text, ...] = ()
    cache: CacheOptions = CacheOptions()
    timeout_s: float | None = None
    retry: RetryOptions | None = None
    mark: Mark = START


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole file: read, and checked once it comes out of `parse_pipeline`."""

    name: str
    steps: Mapping[str, Step]
    file: str
    docker_env: str = ""
    parallelism: int = PARALLELISM_DEFAULT
    disabled: tuple[Text, ...] = ()
    failure_options: FailureOptions = FailureOptions()
    cache: CacheOptions = CacheOptions()
    main_fs: Mount | None = None

    @property
    def disabled_names(self) -> frozenset[str]:
        """The names of the steps that are not to run."""
        return frozenset(entry.value for entry in self.disabled)


# ------------------------------------------------------------------------------------------------- parameters


def mismatch(kind: ParameterKind, value: ParameterValue) -> str:
    """Say what is wrong with `value` as a parameter of `kind`; an empty string when nothing is."""
    match kind:
        case "string":
            return "" if isinstance(value, str) else "must be text"
        case "int":
            return "" if isinstance(value, int) else "must be an integer"
        case "float":
            return "" if isinstance(value, int | float) else "must be a number"
        case "list":
            return "" if isinstance(value, tuple) else "must be a list"
        case "path":
            good = isinstance(value, str) and _PATH_VALUE.fullmatch(value)
            return "" if good else "must be a path of letters, digits and . _ - /"


def convert(kind: ParameterKind, value: ParameterValue) -> ParameterValue:
    """Make a parameter of `kind` from a value that came from elsewhere, as text or as another type.

    Raise ValueError, saying what it must be, when the value does not fit.
    """
    if kind in {"string", "path"}:
        value = as_text(value)
    elif isinstance(value, str):
        value = list_from_text(value) if kind == "list" else number_from_text(value)
    if problem := mismatch(kind, value):
        raise ValueError(problem)
    return float(value) if kind == "float" and isinstance(value, int) else value


def number_from_text(text: str) -> ParameterValue:
    """Read a number; text that is none is returned as it is."""
    try:
        number = yaml.plain_value(text)
    except (ValueError, OverflowError):
        return text
    return number if isinstance(number, int | float) and not isinstance(number, bool) else text


def list_from_text(text: str) -> ParameterValue:
    """Read a list written as JSON; text that is none is returned as it is."""
    problems = Problems("list")
    try:
        value = _parameter_value(yaml.load(text, "list"), "", problems)
        problems.raise_if_any()
    except DefinitionError:
        return text
    return text if value is None else value


# -------------------------------------------------------------------------------------------------- the reader


def read(tree: yaml.Node, file: str, problems: Problems) -> tuple[Pipeline, frozenset[str]]:
    """Make a pipeline from a tree and note every mistake of shape in `problems`.

    The second value names the entry points that could not be read at all: others may name them without a second
    complaint. Both values mean something only if `problems` stays empty.
    """
    top = _Map(tree, "", problems, PIPELINE_KEYS, PIPELINE_LATER)
    name = top.text("name")
    if "name" not in top.nodes and not top.broken:
        problems.add(top.mark, "name", "is missing", "give the pipeline a name")
    elif top.is_text("name"):
        _check_name(_PIPELINE_NAME, name.value, name.mark, "name", "a pipeline", problems)
    entries = top.map("entry_points", None)
    if not entries.nodes and not (entries.broken or top.broken):
        problems.add(entries.mark, "entry_points", "has no step", "write at least one step under entry_points")
    steps: dict[str, Step] = {}
    for step_name, node in entries.nodes.items():
        step = _step(step_name, entries.keys[step_name], node, problems)
        if step is not None:
            steps[step_name] = step
    fs_options = top.map("fs_options", ("main_fs", "extra_fs"), ("extra_fs",))
    pipeline = Pipeline(
        name=name.value,
        steps=steps,
        file=file,
        docker_env=_image(top),
        parallelism=_parallelism(top),
        disabled=_comma_list(top.text("disabled")),
        failure_options=_failure_options(top),
        cache=_cache(top),
        main_fs=_mount(fs_options.map("main_fs", _MOUNT_KEYS)) if "main_fs" in fs_options.nodes else None,
    )
    return pipeline, frozenset(entries.nodes.keys() - steps.keys())


_MOUNT_KEYS = ("name", "mount_path", "sub_path", "read_only")


class _Map:
    """A map of the file being read: hands out typed values and notes what has the wrong type.

    Without `known` every key is legal (names chosen by the user); a key of the language whose value is null counts as
    absent.
    """

    def __init__(
        self,
        node: yaml.Node | None,
        path: str,
        problems: Problems,
        known: tuple[str, ...] | None = None,
        later: tuple[str, ...] = (),
        mark: Mark = START,
    ) -> None:
        self.path, self.problems = path, problems
        self.nodes: dict[str, yaml.Node] = {}
        self.keys: Mapping[str, Mark] = {}
        self.broken = False
        self.mark = mark if node is None else node.mark
        if node is None:
            return
        if not isinstance(node, yaml.Mapping):
            self.broken = True
            problems.add(node.mark, path, f"must be a map of names to values, is {describe(node)}")
            return
        self.keys = node.keys
        for key, value in node.entries.items():
            if known is not None and key not in known:
                near = nearest(key, known)
                hint = f"did you mean `{near}`?" if near else f"known here: {choices(known)}"
                problems.add(node.keys[key], join(path, key), "unknown key", hint)
            elif key in later and not _is_empty(value):
                problems.add(node.keys[key], join(path, key), f"`{key}` is not supported yet", "remove this key")
            elif known is None or not _is_null(value):
                self.nodes[key] = value

    def text(self, key: str) -> Text:
        """Return a text; empty when absent."""
        node = self.nodes.get(key)
        if node is None:
            return Text(mark=self.mark)
        return read_text(node, join(self.path, key), self.problems)

    def is_text(self, key: str) -> bool:
        """Tell whether the value of `key` is a text."""
        node = self.nodes.get(key)
        return isinstance(node, yaml.Scalar) and isinstance(node.value, str)

    def integer(self, key: str, default: int) -> int:
        """Return an integer."""
        node = self.nodes.get(key)
        if node is None:
            return default
        if isinstance(node, yaml.Scalar) and isinstance(node.value, int) and not isinstance(node.value, bool):
            return node.value
        self._wrong(key, node, "an integer")
        return default

    def number(self, key: str, default: float) -> float:
        """Return a number; integers become floats."""
        node = self.nodes.get(key)
        if node is None:
            return default
        if isinstance(node, yaml.Scalar) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return float(node.value)
        self._wrong(key, node, "a number")
        return default

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        node = self.nodes.get(key)
        if node is None:
            return default
        if isinstance(node, yaml.Scalar) and isinstance(node.value, bool):
            return node.value
        self._wrong(key, node, "true or false")
        return default

    def map(self, key: str, known: tuple[str, ...] | None, later: tuple[str, ...] = ()) -> _Map:
        """Return a map inside this one; empty when absent."""
        return _Map(self.nodes.get(key), join(self.path, key), self.problems, known, later, self.mark)

    def items(self, key: str) -> Iterator[tuple[str, yaml.Node]]:
        """Yield path and node of every item of a list; nothing when absent."""
        node = self.nodes.get(key)
        if isinstance(node, yaml.Sequence):
            for index, item in enumerate(node.items):
                yield f"{join(self.path, key)}[{index}]", item
        elif node is not None:
            self._wrong(key, node, "a list")

    def at(self, key: str) -> Mark:
        """Return where the value of `key` stands; the map's own place when absent."""
        return self.nodes[key].mark if key in self.nodes else self.mark

    def wrong(self, key: str, message: str, hint: str = "") -> None:
        """Note that the value of `key` is wrong."""
        self.problems.add(self.at(key), join(self.path, key), message, hint)

    def _wrong(self, key: str, node: yaml.Node, expected: str) -> None:
        self.wrong(key, f"must be {expected}, is {describe(node)}")


def read_text(node: yaml.Node, path: str, problems: Problems) -> Text:
    """Return the text of a node; note a problem and return an empty text for anything else."""
    if isinstance(node, yaml.Scalar) and isinstance(node.value, str):
        return Text(node.value, node.mark)
    hint = "put it in quotes" if isinstance(node, yaml.Scalar) and node.value is not None else ""
    problems.add(node.mark, path, f"must be text, is {describe(node)}", hint)
    return Text(mark=node.mark)


def describe(node: yaml.Node) -> str:
    """Say what a node is, for a message."""
    if isinstance(node, yaml.Mapping):
        return "a map"
    if isinstance(node, yaml.Sequence):
        return "a list"
    if node.value is None:
        return "empty"
    if isinstance(node.value, bool):
        return f"the truth value {node.text}"
    return f"the text {show(node.text)}" if isinstance(node.value, str) else f"the number {node.text[:40]}"


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.Scalar) and node.value is None


def _is_empty(node: yaml.Node) -> bool:
    """Tell whether a value says nothing: generated files write out absent keys as empty ones."""
    if isinstance(node, yaml.Scalar):
        return node.value is None or node.value == ""
    return all(_is_empty(child) for child in (node.items if isinstance(node, yaml.Sequence) else node.entries.values()))


def _check_name(pattern: re.Pattern[str], name: str, mark: Mark, path: str, what: str, problems: Problems) -> None:
    if pattern.fullmatch(name):
        return
    problems.add(mark, path, f"{show(name)} cannot name {what}", f"use {_NAME_RULES[pattern]}")


def _comma_list(text: Text) -> tuple[Text, ...]:
    return tuple(Text(part.strip(), text.mark) for part in text.value.split(",") if part.strip())


def _image(fields_of: _Map) -> str:
    image = fields_of.text("docker_env").value
    if image.endswith(".tar"):
        fields_of.wrong("docker_env", "an image archive (.tar) is not accepted", "name an image, such as python:3.12")
    return image


def _parallelism(top: _Map) -> int:
    wanted = top.integer("parallelism", PARALLELISM_DEFAULT)
    return PARALLELISM_DEFAULT if wanted <= 0 else min(wanted, PARALLELISM_MAX)


def _failure_options(top: _Map) -> FailureOptions:
    options = top.map("failure_options", ("strategy",))
    strategy = options.text("strategy")
    if not strategy.value:
        return FailureOptions(mark=options.mark)
    if strategy.value not in STRATEGIES:
        options.wrong("strategy", f"{show(strategy.value)} is no strategy", f"use {' or '.join(STRATEGIES)}")
        return FailureOptions(mark=strategy.mark)
    return FailureOptions(strategy.value, strategy.mark)


def _cache(parent: _Map) -> CacheOptions:
    options = parent.map("cache", ("enable", "max_expired_time", "fs_scope", "mode"))
    mode = options.text("mode").value or CACHE_MODES[0]
    if mode not in CACHE_MODES:
        options.wrong("mode", f"{show(mode)} is no way to compare files", f"use {' or '.join(CACHE_MODES)}")
    return CacheOptions(
        mode=mode,
        enable=options.flag("enable", False),
        max_expired_time=_expiry(options),
        fs_scope=tuple(scope for path, node in options.items("fs_scope") if (scope := _scope(node, path, options))),
        given=frozenset(options.nodes),
        mark=options.mark,
    )


def _expiry(options: _Map) -> int:
    node = options.nodes.get("max_expired_time")
    if isinstance(node, yaml.Scalar):
        value = node.value
        if isinstance(value, str):
            try:
                value = yaml.plain_value(value.strip())
            except (ValueError, OverflowError):
                value = None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    if node is not None:
        options.wrong("max_expired_time", f"must be whole seconds, is {describe(node)}", "-1 means for ever")
    return NEVER_EXPIRES


def _scope(node: yaml.Node, path: str, options: _Map) -> FsScope | None:
    scope = _Map(node, path, options.problems, ("name", "path"))
    name = scope.text("name").value
    if not name and not scope.broken:
        options.problems.add(scope.mark, join(path, "name"), "is missing", "name the file system that the paths are on")
    paths = _comma_list(scope.text("path")) or (Text("/"),)
    for entry in paths:
        if ".." in entry.value.split("/"):
            scope.wrong("path", f"{show(entry.value)} leaves the file system", "leave out the ..")
    return FsScope(name, tuple(entry.value for entry in paths), scope.mark) if name else None


def _mount(options: _Map) -> Mount:
    mount = Mount(
        name=options.text("name").value,
        mount_path=options.text("mount_path").value,
        sub_path=options.text("sub_path").value,
        read_only=options.flag("read_only", False),
        mark=options.mark,
    )
    if mount.sub_path.startswith("/"):
        options.wrong("sub_path", "must not start with /", "it is relative to the root of the file system")
    elif ".." in mount.sub_path.split("/"):
        options.wrong("sub_path", "leaves the file system", "leave out the ..")
    if mount.read_only:
        options.wrong("read_only", "the main file system cannot be read-only", "steps write their outputs to it")
    return mount


# ------------------------------------------------------------------------------------------------------- steps


def _step(name: str, mark: Mark, node: yaml.Node, problems: Problems) -> Step | None:
    path = join("entry_points", name)
    if name.startswith("PF_"):
        problems.add(mark, path, f"{show(name)} cannot name a step", "names that begin with PF_ are the system's own")
    else:
        _check_name(_STEP_NAME, name, mark, path, "a step", problems)
    if isinstance(node, yaml.Mapping) and "entry_points" in node.entries:
        where = node.keys["entry_points"]
        hint = "write its steps directly under the pipeline's entry_points"
        problems.add(where, join(path, "entry_points"), "a nested dag (`entry_points`) is not supported yet", hint)
        return None
    options = _Map(node, path, problems, STEP_KEYS, STEP_LATER)
    if options.broken:
        return None
    kind = options.text("type").value
    if kind not in ("", "step"):
        options.wrong("type", f"says {show(kind)} but this is a step", "write step, or leave type out")
    artifacts = options.map("artifacts", ("input", "output"))
    extra = options.map("x-weft", ("timeout_s", "retry"))
    return Step(
        name=name,
        command=options.text("command"),
        docker_env=_image(options),
        env=_env(options.map("env", None)),
        parameters=_parameters(options.map("parameters", None)),
        deps=_comma_list(options.text("deps")),
        inputs=_inputs(artifacts.map("input", None)),
        outputs=_outputs(artifacts),
        cache=_cache(options),
        timeout_s=_timeout(extra),
        retry=_retry(extra.map("retry", tuple(f.name for f in fields(RetryOptions))))
        if "retry" in extra.nodes
        else None,
        mark=mark,
    )


def _named(entries: _Map, what: str) -> Iterator[tuple[str, str, yaml.Node]]:
    """Yield name, path and node of the entries whose name is legal; note the others."""
    for name, node in entries.nodes.items():
        path = join(entries.path, name)
        _check_name(_VARIABLE_NAME, name, entries.keys[name], path, what, entries.problems)
        yield name, path, node


def _env(entries: _Map) -> dict[str, Text]:
    variables: dict[str, Text] = {}
    for name, path, node in _named(entries, "a variable"):
        if isinstance(node, yaml.Scalar) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            variables[name] = Text(env_number(node.value), node.mark)
        else:
            variables[name] = read_text(node, path, entries.problems)
    return variables


def _inputs(entries: _Map) -> dict[str, Text]:
    return {name: read_text(node, path, entries.problems) for name, path, node in _named(entries, "an artifact")}


def _outputs(artifacts: _Map) -> tuple[Text, ...]:
    if isinstance(artifacts.nodes.get("output"), yaml.Mapping):
        named = artifacts.map("output", None)
        for name, node in named.nodes.items():
            if not _is_empty(node):
                named.wrong(name, "an output of a step has no value", "only its name is given; the path is made for it")
        names = [Text(name, mark) for name, mark in named.keys.items()]
    else:
        items = artifacts.items("output")
        names = [text for path, node in items if (text := read_text(node, path, artifacts.problems)).value]
    for text in names:
        where = join(join(artifacts.path, "output"), text.value)
        _check_name(_VARIABLE_NAME, text.value, text.mark, where, "an artifact", artifacts.problems)
    return tuple(names)


def _timeout(extra: _Map) -> float | None:
    if "timeout_s" not in extra.nodes:
        return None
    seconds = extra.number("timeout_s", 1.0)
    if seconds <= 0:
        extra.wrong("timeout_s", "must be more than 0 seconds")
    return seconds


def _retry(options: _Map) -> RetryOptions:
    default = RetryOptions()
    retry = RetryOptions(
        user=options.integer("user", default.user),
        memory=options.integer("memory", default.memory),
        infrastructure=options.integer("infrastructure", default.infrastructure),
        delay_s=options.number("delay_s", default.delay_s),
        memory_factor=options.number("memory_factor", default.memory_factor),
    )
    for name, count in (("user", retry.user), ("memory", retry.memory), ("infrastructure", retry.infrastructure)):
        if not 0 <= count <= 1000:
            options.wrong(name, "must be a number of retries from 0 to 1000")
    if not 0 <= retry.delay_s <= 86_400:
        options.wrong("delay_s", "must be from 0 to 86400 seconds")
    if not 1 <= retry.memory_factor <= 100:
        options.wrong("memory_factor", "must be from 1 to 100")
    return retry


def _parameters(entries: _Map) -> dict[str, Parameter]:
    parameters: dict[str, Parameter] = {}
    for name, path, node in _named(entries, "a parameter"):
        parameter = _parameter(name, node, path, entries.problems)
        # A bad one keeps its place, so that whoever names it is not reported as well.
        parameters[name] = parameter or Parameter(name, "", None, node.mark)
    return parameters


def _parameter(name: str, node: yaml.Node, path: str, problems: Problems) -> Parameter | None:
    if not isinstance(node, yaml.Mapping):
        value = _parameter_value(node, path, problems)
        return None if value is None else Parameter(name, value, None, node.mark)
    typed = _Map(node, path, problems, ("type", "default"))
    if "default" not in typed.nodes:
        problems.add(node.mark, join(path, "default"), "is missing", "a typed parameter needs a default")
        return None
    value = _parameter_value(typed.nodes["default"], join(path, "default"), problems)
    kind = typed.text("type").value
    if value is None:
        return None
    if value == "":
        typed.wrong("default", "must not be empty")
    if not kind:
        # Generated files leave the type out: then the default tells it.
        return Parameter(name, value, None, typed.at("default"))
    if kind not in KINDS:
        near = nearest(kind, KINDS)
        typed.wrong("type", f"{show(kind)} is no type", f"did you mean {near}?" if near else f"use {choices(KINDS)}")
        return None
    declared = kind
    # A default that comes from a template is converted when its value is known.
    if not (isinstance(value, str) and any(find(value))):
        if problem := mismatch(declared, value):
            typed.wrong("default", f"{problem} (type {kind}), is {describe(typed.nodes['default'])}")
            return None
        value = convert(declared, value)
    return Parameter(name, value, declared, typed.at("default"))


def _parameter_value(node: yaml.Node, path: str, problems: Problems, *, inside: bool = False) -> ParameterValue | None:
    if isinstance(node, yaml.Sequence):
        items = [_parameter_value(n, f"{path}[{i}]", problems, inside=True) for i, n in enumerate(node.items)]
        return tuple(item for item in items if item is not None)
    if isinstance(node, yaml.Scalar) and node.value is not None and not isinstance(node.value, bool):
        if inside and isinstance(node.value, str) and any(find(node.value)):
            problems.add(node.mark, path, "a template cannot stand inside a list", "make it a parameter of its own")
        return node.value
    problems.add(node.mark, path, f"must be text, a number or a list, is {describe(node)}", "quotes make it text")
    return None


def check_value(value: object, *, depth: int = 0) -> ParameterValue:
    """Return a parameter's value that a program gives, lists as tuples.

    Raise ValueError when a file could not hold it: another type, a number beyond 64 bits, a text over 64 KiB.
    """
    match value:
        case bool():
            pass
        case str():
            try:
                yaml.check_text(value)
            except OverflowError as error:
                raise ValueError(str(error)) from None
            return value
        case int() if yaml.INT_MIN <= value <= yaml.INT_MAX:
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple() if depth < yaml.MAX_DEPTH:
            return tuple(check_value(item, depth=depth + 1) for item in value)
    raise ValueError("must be text, a finite number or a list of these")
