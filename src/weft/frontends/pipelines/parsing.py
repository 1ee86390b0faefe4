"""The reader of pipeline files: makes the records of `language` from a tree of YAML.

The reader settles the *shape*: the keys of each level (closed sets), the type of each value, and the form of names.
`references` resolves references to components; `check` has the rules between records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.documents import yaml
from weft.documents.problems import FilePosition, Problem, Problems, choices, join, show
from weft.frontends.pipelines.extras import (
    STEP_EXTRAS,
    packages_of,
    resources_of,
    retry_of,
    stderr_of,
    timeout_of,
    variables_of,
)
from weft.frontends.pipelines.kinds import STEP_KINDS
from weft.frontends.pipelines.language import (
    CACHE_MODES,
    NEVER_EXPIRES,
    PARALLELISM_DEFAULT,
    PARALLELISM_MAX,
    PIPELINE_FILE,
    START,
    CacheDefinition,
    Component,
    Dag,
    FailureOptions,
    FsScope,
    LoopArgument,
    Mount,
    ParameterDefinition,
    Pipeline,
    Reference,
    SourceText,
    Step,
    Strategy,
    UnreadableComponent,
)
from weft.frontends.pipelines.maps import (
    PIPELINE_NAME,
    STEP_NAME,
    VARIABLE_NAME,
    FileMap,
    check_name,
    is_empty,
    is_null,
    named,
    read_text,
)
from weft.frontends.pipelines.parameters import KINDS, convert, list_from_text, mismatch, read_value
from weft.frontends.pipelines.profiles import CACHE, FILE_EXTRAS, with_defaults
from weft.frontends.pipelines.templates import find, whole
from weft.model.errors import DefinitionError
from weft.model.suggestions import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.frontends.pipelines.profiles import Profile

STRATEGIES: tuple[Strategy, ...] = ("fail_fast", "continue")
PIPELINE_KEYS = (
    "name", "docker_env", "entry_points", "parallelism", "disabled", "failure_options", "cache", "fs_options",
    "components", "post_process", "x-weft",
)  # fmt: skip
AS_PADDLEFLOW = ("numbers", "empty_loop", "step_name")
"""The names of `x-weft: as_paddleflow`, which restore results of PaddleFlow.

They write numbers among items with an exponent from 1e+06 on, let a loop over nothing fail, and let PF_STEP_NAME in a
parameter name the dag around it.
"""
STEP_KEYS = (
    "command", "docker_env", "env", "parameters", "deps", "artifacts", "cache", "type", "name", "x-weft",
    "condition", "loop_argument", "extra_fs", "reference", "entry_points",
)  # fmt: skip
DAG_KEYS = ("entry_points", "parameters", "deps", "artifacts", "condition", "loop_argument", "type", "name")
REFERENCE_KEYS = ("reference", "parameters", "deps", "artifacts", "type", "name")
POST_PROCESS_NOT = ("deps", "cache")
MOUNT_KEYS = ("name", "mount_path", "sub_path", "read_only")


def read(
    tree: yaml.Node,
    file: str,
    problems: Problems,
    kinds: Mapping[str, str] = STEP_KINDS,
    profile: Profile | None = None,
) -> Pipeline:
    """Return the pipeline of a tree and add every mistake of shape to `problems`; `kinds` are the kinds of steps.

    Values of the `profile` of the run win over those of the file. An unreadable component becomes an
    `UnreadableComponent`. The pipeline is valid only if `problems` stays empty.
    """
    tree = with_defaults(tree, problems, profile)
    top = FileMap(tree, "", problems, PIPELINE_KEYS)
    name = top.text("name")
    if "name" not in top.nodes and not top.broken:
        problems.add(top.mark, "name", "is missing", "give the pipeline a name")
    elif top.is_text("name"):
        check_name(PIPELINE_NAME, name.value, name.mark, "name", "a pipeline", problems)
    entries = top.map("entry_points", None)
    if not entries.nodes and not (entries.broken or top.broken):
        problems.add(entries.mark, "entry_points", "has no step", "write at least one step under entry_points")
    fs_options = top.map("fs_options", ("main_fs", "extra_fs"))
    parallelism = _parallelism(top)
    return Pipeline(
        name=name.value,
        entry_points=_components(entries),
        file=file,
        docker_env=_image(top),
        parallelism=parallelism or PARALLELISM_DEFAULT,
        parallelism_given=bool(parallelism),
        disabled=_comma_list(top.text("disabled")),
        failure_options=_failure_options(top),
        cache=_cache(top),
        main_fs=_main_fs(fs_options.map("main_fs", MOUNT_KEYS)) if "main_fs" in fs_options.nodes else None,
        extra_fs=_extra_fs(fs_options),
        components=_components(top.map("components", None)),
        post_process=_post_process(top.map("post_process", None)),
        as_paddleflow=_as_paddleflow(top.map("x-weft", FILE_EXTRAS)),
        kinds=kinds,
    )


def _comma_list(text: SourceText) -> tuple[SourceText, ...]:
    if not text.value:
        return ()
    return tuple(SourceText(part.strip(), text.mark, text.path) for part in text.value.split(",") if part.strip())


def _image(fields_of: FileMap) -> str:
    if "docker_env" not in fields_of.nodes:
        return ""
    image = fields_of.text("docker_env").value
    if image.endswith(".tar"):
        fields_of.wrong("docker_env", "an image archive (.tar) is not accepted", "name an image, such as python:3.12")
    return image


def _parallelism(top: FileMap) -> int:
    """Return the bound that the file gives; 0: none."""
    return max(0, min(top.integer("parallelism", 0), PARALLELISM_MAX))


def _as_paddleflow(options: FileMap) -> frozenset[str]:
    found = set()
    for path, node in options.items("as_paddleflow"):
        word = read_text(node, path, options.problems)
        if word.value and word.value not in AS_PADDLEFLOW:
            options.problems.add(word.mark, path, f"{show(word.value)} is unknown", f"use {choices(AS_PADDLEFLOW)}")
        found.add(word.value)
    return frozenset(found)


def _failure_options(top: FileMap) -> FailureOptions:
    options = top.map("failure_options", ("strategy",))
    strategy = options.text("strategy")
    if not strategy.value:
        return FailureOptions(mark=options.mark)
    if strategy.value not in STRATEGIES:
        options.wrong("strategy", f"{show(strategy.value)} is not a strategy", f"use {' or '.join(STRATEGIES)}")
        return FailureOptions(mark=strategy.mark)
    return FailureOptions(strategy.value, strategy.mark)


def _cache(parent: FileMap) -> CacheDefinition:
    if "cache" not in parent.nodes:
        return _NO_CACHE
    options = parent.map("cache", CACHE)
    mode = options.text("mode").value or CACHE_MODES[0]
    if mode not in CACHE_MODES:
        options.wrong("mode", f"{show(mode)} is not a way to compare files", f"use {' or '.join(CACHE_MODES)}")
    return CacheDefinition(
        mode=mode,
        enable=options.flag("enable", False),
        max_expired_time=_expiry(options),
        fs_scope=tuple(scope for path, node in options.items("fs_scope") if (scope := _scope(node, path, options))),
        given=frozenset(options.nodes),
        mark=options.mark,
    )


def _expiry(options: FileMap) -> int:
    node = options.nodes.get("max_expired_time")
    if isinstance(node, yaml.Scalar):
        value = node.value
        if value == "":  # PaddleFlow takes it for -1, and so overrides the value of the whole pipeline
            return NEVER_EXPIRES
        if isinstance(value, str):
            try:
                value = yaml.plain_value(value.strip())
            except (ValueError, OverflowError):
                value = None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    if node is not None:
        options.wrong("max_expired_time", f"must be whole seconds, is {yaml.describe(node)}", "-1 means for ever")
    return NEVER_EXPIRES


def _scope(node: yaml.Node, path: str, options: FileMap) -> FsScope | None:
    scope = FileMap(node, path, options.problems, ("name", "path"))
    name = scope.text("name").value
    if not name and not scope.broken:
        options.problems.add(scope.mark, join(path, "name"), "is missing", "name the file system that the paths are on")
    given = _comma_list(scope.text("path"))
    paths = given or (SourceText("/"),)
    for entry in paths:
        if ".." in entry.value.split("/"):
            scope.wrong("path", f"{show(entry.value)} leaves the file system", "leave out the ..")
    return FsScope(name, tuple(entry.value for entry in paths), scope.mark, bool(given)) if name else None


def _mount(options: FileMap) -> Mount:
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
    elif _is_too_long(mount.sub_path):
        options.wrong("sub_path", *_TOO_LONG)
    if mount.mount_path and not mount.mount_path.startswith("/"):
        options.wrong("mount_path", "must be an absolute path", "begin it with /")
    elif ".." in mount.mount_path.split("/"):
        options.wrong("mount_path", "must not hold ..", "write the path that is meant")
    elif mount.mount_path and _is_the_systems(mount.mount_path):
        options.wrong("mount_path", f"{show(mount.mount_path)} is the system's own", "choose a folder such as /data")
    elif _is_too_long(mount.mount_path):
        options.wrong("mount_path", *_TOO_LONG)
    return mount


_LONGEST_NAME, _LONGEST_PATH = 255, 4095
_TOO_LONG = (
    f"is too long: a path has at most {_LONGEST_PATH} bytes, and each name in it {_LONGEST_NAME}",
    "choose a shorter one",
)


def _is_too_long(path: str) -> bool:
    """Return whether a path is longer than systems allow."""
    data = path.encode("utf-8", "surrogatepass")
    return len(data) > _LONGEST_PATH or any(len(name) > _LONGEST_NAME for name in data.split(b"/"))


def _is_the_systems(path: str) -> bool:
    """Return whether a path belongs to the system, so that no folder can be mounted there."""
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    return parts in ((), ("dev",)) or parts[0] in ("proc", "sys")


def _main_fs(options: FileMap) -> Mount:
    mount = _mount(options)
    if mount.read_only:
        options.wrong("read_only", "the main file system cannot be read-only", "steps write their outputs to it")
    return mount


def _extra_fs(parent: FileMap) -> tuple[Mount, ...]:
    mounts = []
    for path, node in parent.items("extra_fs"):
        options = FileMap(node, path, parent.problems, MOUNT_KEYS)
        if options.broken:
            continue
        if not options.text("name").value:
            parent.problems.add(options.mark, join(path, "name"), "is missing", "name the file system to mount")
        mounts.append(_mount(options))
    return tuple(mounts)


def _components(entries: FileMap) -> dict[str, Component]:
    return {name: _component(name, entries.keys[name], node, entries) for name, node in entries.nodes.items()}


def _post_process(entries: FileMap) -> dict[str, Component]:
    if len(entries.nodes) > 1:
        second = list(entries.nodes)[1]
        entries.problems.add(
            entries.keys[second],
            join(entries.path, second),
            "only one step may run at the end",
            "put the work into one",
        )
    for name, node in entries.nodes.items():
        if not isinstance(node, yaml.Mapping):
            continue
        path = join(entries.path, name)
        for key in POST_PROCESS_NOT:
            if key in node.entries and not is_empty(node.entries[key]):
                entries.problems.add(node.keys[key], join(path, key), "a step of post_process has none", "remove it")
    return _components(entries)


_NOTHING = yaml.Scalar(None, "", START)
_NO_CACHE = CacheDefinition()


def _component(name: str, mark: FilePosition, node: yaml.Node, entries: FileMap) -> Component:
    path, problems = join(entries.path, name), entries.problems
    if name.startswith("PF_"):
        problems.add(mark, path, f"{show(name)} cannot name a step", "names that begin with PF_ are the system's own")
    else:
        check_name(STEP_NAME, name, mark, path, "a step", problems)
    written = node.entries if isinstance(node, yaml.Mapping) else {}
    if "reference" in written and not is_empty(written["reference"]):
        return _reference(name, mark, node, path, problems)
    if "entry_points" in written and not is_null(written["entry_points"]):
        return _dag(name, mark, node, path, problems)
    options = FileMap(node, path, problems, STEP_KEYS)
    if options.broken:
        return UnreadableComponent(name, mark=mark, path=path)
    _type(options, "step")
    artifacts = options.map("artifacts", ("input", "output")) if "artifacts" in options.nodes else None
    env, secrets = variables_of(options.map("env", None)) if "env" in options.nodes else ({}, {})
    return Step(
        name=name,
        parameters=_parameters(options.map("parameters", None)) if "parameters" in options.nodes else {},
        deps=_comma_list(options.text("deps")),
        inputs={} if artifacts is None else _inputs(artifacts.map("input", None)),
        condition=options.text("condition"),
        loop=_loop(options),
        mark=mark,
        path=path,
        command=options.text("command"),
        docker_env=_image(options),
        env=env,
        secrets=secrets,
        outputs=() if artifacts is None else _outputs(artifacts),
        cache=_cache(options),
        extra_fs=_extra_fs(options) if "extra_fs" in options.nodes else (),
        **(_extras(options) if "x-weft" in options.nodes else {}),
    )


def _extras(options: FileMap) -> dict[str, Any]:
    """Return the fields of a step below `x-weft`."""
    extra = options.map("x-weft", STEP_EXTRAS)
    given = extra.map("with", None)
    texts: list[SourceText] = []
    return {
        "timeout_s": timeout_of(extra),
        "retry": retry_of(extra),
        "resources": resources_of(extra),
        "packages": packages_of(extra),
        "stderr": stderr_of(extra),
        "kind": extra.text("kind"),
        "options": {key: _option(node, join(given.path, key), texts) for key, node in given.nodes.items()},
        "option_texts": tuple(texts),
    }


def _option(node: yaml.Node, path: str, texts: list[SourceText]) -> Any:
    """Return an option of a step's kind as plain values, and collect its texts."""
    if isinstance(node, yaml.Mapping):
        return {key: _option(value, join(path, key), texts) for key, value in node.entries.items()}
    if isinstance(node, yaml.Sequence):
        return [_option(value, f"{path}[{at}]", texts) for at, value in enumerate(node.items)]
    if isinstance(node.value, str):
        texts.append(SourceText(node.value, node.mark, path))
    return node.value


def _dag(name: str, mark: FilePosition, node: yaml.Node, path: str, problems: Problems) -> Component:
    options = FileMap(node, path, problems, DAG_KEYS)
    _type(options, "dag")
    entries = options.map("entry_points", None)
    if not entries.nodes and not entries.broken:
        problems.add(entries.mark, entries.path, "has no step", "write at least one step under entry_points")
    artifacts = options.map("artifacts", ("input", "output"))
    if isinstance(artifacts.nodes.get("output"), yaml.Sequence):
        artifacts.wrong("output", "must be a map of names to templates, is a list", "write name: '{{child.output}}'")
        outputs = {}
    else:
        outputs = {
            key: read_text(value, where, problems)
            for key, where, value in named(artifacts.map("output", None), "an artifact")
        }
    return Dag(
        name=name,
        parameters=_parameters(options.map("parameters", None)),
        deps=_comma_list(options.text("deps")),
        inputs=_inputs(artifacts.map("input", None)),
        condition=options.text("condition"),
        loop=_loop(options),
        mark=mark,
        path=path,
        children=_components(entries),
        outputs=outputs,
    )


def _reference(name: str, mark: FilePosition, node: yaml.Node, path: str, problems: Problems) -> Component:
    options = FileMap(node, path, problems, STEP_KEYS)
    for key in options.nodes:
        if key not in REFERENCE_KEYS and not is_empty(options.nodes[key]):
            hint = f"write it in the component; here may stand: {choices(REFERENCE_KEYS[:4])}"
            problems.add(options.keys[key], join(path, key), "cannot stand beside `reference`", hint)
    artifacts = options.map("artifacts", ("input", "output"))
    if not is_empty(artifacts.nodes.get("output", _NOTHING)):
        artifacts.wrong("output", "cannot stand beside `reference`", "the outputs are those of the component")
    reference = options.map("reference", ("component",))
    target = reference.text("component")
    if not target.value and not reference.broken and "component" not in reference.nodes:
        problems.add(reference.mark, join(reference.path, "component"), "is missing", "name a component")
    return Reference(
        name=name,
        parameters=_parameters(options.map("parameters", None)),
        deps=_comma_list(options.text("deps")),
        inputs=_inputs(artifacts.map("input", None)),
        mark=mark,
        path=path,
        target=target,
    )


def _type(options: FileMap, kind: str) -> None:
    if "type" not in options.nodes:
        return
    said = options.text("type").value
    if said not in ("", kind):
        options.wrong("type", f"says {show(said)} but this is a {kind}", f"write {kind}, or leave type out")


def _loop(options: FileMap) -> LoopArgument | None:
    node = options.nodes.get("loop_argument")
    if node is None:
        return None
    path = join(options.path, "loop_argument")
    if isinstance(node, yaml.Sequence):
        value = read_value(node, path, options.problems)
        return LoopArgument(value if isinstance(value, tuple) else (), node.mark, path)
    if isinstance(node, yaml.Scalar) and isinstance(node.value, str):
        text = node.value.strip()
        if not text:
            return None
        if any(find(text)):
            if whole(text) is None:
                hint = "write a list, JSON for one, or a single template"
                options.wrong("loop_argument", f"{show(text)} has other text beside the template", hint)
            return LoopArgument(text, node.mark, path)
        found = list_from_text(text)
        if isinstance(found, tuple):
            return LoopArgument(found, node.mark, path)
        if wrong := _wrong_items(text):
            for one in wrong:
                options.problems.add(node.mark, path + one.path, one.message, one.hint)
            return LoopArgument((), node.mark, path)
    options.wrong(
        "loop_argument", f"must be a list, is {yaml.describe(node)}", "write a list, JSON for one, or a template"
    )
    return LoopArgument((), node.mark, path)


def _wrong_items(text: str) -> list[Problem]:
    """Return the faults of the items of a list written as JSON; none for any other text."""
    problems = Problems("list", PIPELINE_FILE)
    try:
        node = yaml.load(text, problems)
        read_value(node, "", problems)
    except DefinitionError:
        return []
    return problems.found if isinstance(node, yaml.Sequence) else []


def _inputs(entries: FileMap) -> dict[str, SourceText]:
    return {name: read_text(node, path, entries.problems) for name, path, node in named(entries, "an artifact")}


def _outputs(artifacts: FileMap) -> tuple[SourceText, ...]:
    if isinstance(artifacts.nodes.get("output"), yaml.Mapping):
        named = artifacts.map("output", None)
        for name, node in named.nodes.items():
            if not is_empty(node):
                named.wrong(name, "an output of a step has no value", "only its name is given; the path is made for it")
        names = [SourceText(name, mark, join(named.path, name)) for name, mark in named.keys.items()]
    else:
        items = artifacts.items("output")
        named_nodes = [(read_text(node, path, artifacts.problems), node) for path, node in items]
        names = [text for text, node in named_nodes if text.value or is_empty(node)]  # the others are problems already
    for text in names:
        where = join(join(artifacts.path, "output"), text.value)
        check_name(VARIABLE_NAME, text.value, text.mark, where, "an artifact", artifacts.problems)
    return tuple(names)


def _parameters(entries: FileMap) -> dict[str, ParameterDefinition]:
    parameters: dict[str, ParameterDefinition] = {}
    for name, path, node in named(entries, "a parameter"):
        parameter = _parameter(name, node, path, entries.problems)
        # An invalid component keeps its place, so that references to it are not reported too.
        parameters[name] = parameter or ParameterDefinition(name, "", None, node.mark, path)
    return parameters


def _parameter(name: str, node: yaml.Node, path: str, problems: Problems) -> ParameterDefinition | None:
    if not isinstance(node, yaml.Mapping):
        value = read_value(node, path, problems)
        return None if value is None else ParameterDefinition(name, value, None, node.mark, path)
    typed = FileMap(node, path, problems, ("type", "default"))
    if "default" not in typed.nodes:
        problems.add(node.mark, join(path, "default"), "is missing", "a typed parameter needs a default")
        return None
    value = read_value(typed.nodes["default"], join(path, "default"), problems)
    kind = typed.text("type").value
    if value is None:
        return None
    if value == "":
        typed.wrong("default", "must not be empty")
    if not kind:
        # Generated files omit the type; the type of the default counts then.
        return ParameterDefinition(name, value, None, typed.at("default"), path)
    if kind not in KINDS:
        near = nearest(kind, KINDS)
        typed.wrong("type", f"{show(kind)} is not a type", f"did you mean {near}?" if near else f"use {choices(KINDS)}")
        return None
    declared = kind
    # A default with a template is converted when its value is known.
    if not (isinstance(value, str) and any(find(value))):
        if problem := mismatch(declared, value):
            typed.wrong("default", f"{problem} (type {kind}), is {yaml.describe(typed.nodes['default'])}")
            return None
        value = convert(declared, value)
    return ParameterDefinition(name, value, declared, typed.at("default"), path)
