"""Compiles the steps and controls of one run to the graph of the engine.

A step is a vertex with one task, or one task per item of its loop. Its tasks are unslotted, because they wait for a
child process; `parallelism` limits their number by a token. Data flows through files, so edges between steps carry no
values and only order. Controls are small vertices: a condition decides a choice, a loop over the content of an artifact
decides a parallelism or, for a dag, answers with a patch. Edges of controls carry their answers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from weft.documents.problems import show
from weft.frontends.pipelines import paths
from weft.frontends.pipelines.body import IMAGE, MOUNTS, PUBLISH, RUN, SECRETS, SKIPPED
from weft.frontends.pipelines.caching import (
    PACKAGES,
    RECIPE,
    CachePlace,
    FoundScripts,
    describe,
    named_files,
)
from weft.frontends.pipelines.distributed import job_of
from weft.frontends.pipelines.kinds import STEP_KINDS, load_kind
from weft.frontends.pipelines.overrides import make_pipeline
from weft.frontends.pipelines.parts import OutputFolder, places_to_json, plain, sources, text_to_json
from weft.frontends.pipelines.profiles import Profile  # noqa: TC001 - fields of records are read at run time
from weft.frontends.pipelines.resolve import resolve_items, resolve_nodes
from weft.frontends.pipelines.resolved import DECIDE, JOIN, LIST, REPEAT, SKIP, ControlStep, ResolvedStep, RunIdentity
from weft.frontends.pipelines.states import FRONTEND, IS_DISABLED, IS_EMPTY
from weft.frontends.pipelines.step_files import SUFFIXES
from weft.graph.logical import (
    BROADCAST,
    DEFAULT_RETRY,
    NONE,
    Choice,
    Edge,
    LogicalGraph,
    OnFailure,
    Patch,
    Role,
    Source,
    Storage,
    Vertex,
)
from weft.model.errors import UsageError
from weft.model.patterns import late_pattern
from weft.model.program import Program, Style
from weft.model.records import as_dict
from weft.model.resources import Resources
from weft.model.suggestions import nearest
from weft.store.places import ENVIRONMENTS, folders_above

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.frontends.pipelines.language import Dag, Pipeline
    from weft.frontends.pipelines.resolved import ComponentScope, Node
    from weft.frontends.pipelines.templates import ParameterValue

BODY = "weft.frontends.pipelines.body"
PARALLELISM = "parallelism"
"""The token that each running step holds."""
ASKING = "restored"
"""The cache key of steps in a patch: the probe asks whether they had finished before."""
DISABLED = "_disabled"
"""The vertex that skips disabled steps; no step can have this name."""

_STEP = f"{BODY}:run_step"
_STEP_AWAY = "weft.frontends.pipelines.away:run_step_away"
_NO_CORE = (Resources(cpu=0),)
_ONE_TOKEN = (PARALLELISM, 1)
_ONE_AT_A_TIME = (Resources(cpu=0, tokens=(_ONE_TOKEN,)),)
_STRATEGIES = {"fail_fast": OnFailure.FAIL_FAST, "continue": OnFailure.CONTINUE}
_PROGRAMS = {
    DECIDE: f"{BODY}:decide",
    LIST: f"{BODY}:list_items",
    REPEAT: "weft.frontends.pipelines.repeating:repeat",
    JOIN: f"{BODY}:hand_on",
    SKIP: f"{BODY}:nothing",
}
_PATH = late_pattern(r"(?<![\w./:$-])\w[\w.-]*(?:/\w[\w.-]*)*")
_MOST_PATHS = 200
_FS_NAME = late_pattern(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class ContainerImages(Struct, frozen=True):
    """The container images of steps: the kind of engine, its program, and the ids of images by name."""

    kind: str
    program: str
    images: Mapping[str, str]


class RunDirectories(Struct, frozen=True):
    """Folders of one run: for logs, and for records of processes that its steps start.

    `cache` is None if no result is used or kept; `mounts` makes mounts at the mount paths of steps. `publish` has the
    URL of a remote main file system and the folder with its copy. Without `containers` all steps run on this machine.
    `settings` are those of the command line that kinds of steps read. `away`: steps may run at machines without the
    folder of the run (see `storing.StepStorage`).
    """

    logs: Path
    processes: Path
    cache: CachePlace | None = None
    mounts: bool = True
    publish: tuple[str, str] | None = None
    containers: ContainerImages | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    away: bool = False


class PipelineSource(Struct, frozen=True):
    """The source of a pipeline: its text and the values given beside it, so that another process can make it again.

    `built_with` are the arguments of the Python file that built the text; `profile` is that of the run.
    """

    text: str = ""
    file: str = ""
    overrides: Mapping[str, object] = field(default_factory=dict)
    renamed: str | None = None
    kinds: Mapping[str, str] = field(default_factory=lambda: STEP_KINDS)
    built_with: Mapping[str, object] = field(default_factory=dict)
    main_fs: str = ""
    profile: Profile | None = None

    def pipeline(self) -> Pipeline:
        """Read and check the text. Errors are those of `overrides.make_pipeline`."""
        return make_pipeline(
            self.text, self.file, self.overrides, self.renamed, self.kinds, self.main_fs, profile=self.profile
        )


def compile_run(
    pipeline: Pipeline,
    run: RunIdentity,
    place: RunDirectories,
    origin: PipelineSource,
    *,
    post_process: bool = True,
    scripts: FoundScripts | None = None,
) -> tuple[list[Node], LogicalGraph]:
    """Return the nodes of a run and their graph; the vertices of `post_process` are final.

    `scripts` gets the scripts of cached steps, for `notes`.

    Vertices have the ids of nodes. A disabled step is skipped and counts as a success; its dependents also wait for its
    dependencies.
    """
    nodes = resolve_nodes(pipeline, run)
    graph = LogicalGraph(
        pipeline.name,
        on_failure=_STRATEGIES[pipeline.failure_options.strategy],
        limits={PARALLELISM: pipeline.parallelism},
        frontend=FRONTEND,
    )
    again = {
        **as_dict(origin),
        "file": Path(origin.file).name,
    }  # independent of the path given: a resume makes the same graph
    if origin.profile is None:
        del again["profile"]  # so that the graph of a run without one is that of earlier versions
    cache = None if place.cache is None else as_dict(place.cache)
    where = {**_folders(place), "cache": cache, "mounts": place.mounts, "publish": place.publish}
    where |= {"containers": None if place.containers is None else as_dict(place.containers)}
    where |= {"settings": dict(place.settings)}
    where |= {"away": True} if place.away else {}  # the graph of other runs is that of earlier versions
    repeating = {"run": as_dict(run), "place": where, "origin": again}
    _add(graph, nodes, pipeline, place, repeating, DISABLED, (), scripts)
    if not post_process:
        return nodes, graph
    last = resolve_nodes(pipeline, run, paths.POST_PROCESS)
    earlier = set(graph.vertices)
    _add(graph, last, pipeline, replace(place, cache=None), repeating, f"{DISABLED}/{paths.POST_PROCESS}", ())
    for id in graph.vertices.keys() - earlier:
        graph.vertices[id].final = True
    return [*nodes, *last], graph


def compile_items(
    pipeline: Pipeline,
    dag: Dag,
    scope: ComponentScope,
    items: Sequence[ParameterValue],
    repeating: Mapping[str, Any],
) -> Patch:
    """Return the patch of vertex `scope.id` with the vertices of its dag for all items.

    `repeating` is the value that `compile_run` gave to each vertex that repeats a dag.
    """
    run, place = RunIdentity(**repeating["run"]), _place(repeating["place"])
    nodes, ends, outputs = resolve_items(pipeline, run, dag, scope, items)
    places_id = f"{scope.id}/outputs"
    where = {"outputs": {name: places_to_json(found) for name, found in outputs.items()}}
    reads = dict.fromkeys(source for found in outputs.values() for source in sources(found))
    nodes.append(ControlStep(places_id, scope.name, JOIN, (scope.id, *ends), tuple(reads), where))
    graph = LogicalGraph(pipeline.name)
    _add(graph, nodes, pipeline, place, repeating, f"{scope.id}/disabled", (scope.id,))
    return Patch.of(graph, [Edge(places_id, f"{scope.id}/end", BROADCAST)])


def _add(
    graph: LogicalGraph,
    nodes: Sequence[Node],
    pipeline: Pipeline,
    place: RunDirectories,
    repeating: Mapping[str, Any],
    disabled: str,
    entry: tuple[str, ...],
    scripts: FoundScripts | None = None,
) -> None:
    """Add vertices, edges and choices; `disabled` is the id of the decider of disabled steps, `entry` its inputs.

    `scripts` as for `compile_run`.
    """
    scripts = {} if scripts is None else scripts
    deciders = {IS_DISABLED: disabled, IS_EMPTY: f"{disabled}/empty"}
    idle = [node for node in nodes if node.not_run]
    for reason, decider in deciders.items():
        members = tuple(node.id for node in idle if node.not_run == reason)
        if members:
            program = Program(f"{BODY}:answer_skipped", {"reason": reason}, style=Style.TASK)
            graph.add_vertex(Vertex(decider, program, resources=_NO_CORE, expands=True, role=Role.HELPER))
            for dep in entry:
                graph.add_edge(Edge(dep, decider, NONE, storage=Storage.NONE))
            graph.choices.append(Choice(decider, decider, {RUN: members, SKIPPED: ()}))
    secrets, folder, folders = pipeline.secret_names, str(repeating["run"]["folder"]), _folders(place)
    for node in nodes:
        deps = dict.fromkeys(node.deps)
        if node.not_run:
            deps[deciders[node.not_run]] = None
        if isinstance(node, ControlStep):
            graph.add_vertex(_control(node, repeating))
            reads = node.reads
            if node.kind == DECIDE:
                graph.choices.append(Choice(node.id, node.id, {RUN: node.members, SKIPPED: ()}))
        else:
            graph.add_vertex(_step(pipeline, node, place, folder, folders, secrets, scripts, patched=bool(entry)))
            delivered = node.delivered
            reads = tuple(sources(p for found in delivered.values() for p in found)) if delivered else ()
        for dep in deps:
            if dep not in reads:
                graph.add_edge(Edge(dep, node.id, NONE, storage=Storage.NONE))
        for source in reads:
            graph.add_edge(Edge(source, node.id, BROADCAST))


def _control(node: ControlStep, repeating: Mapping[str, Any]) -> Vertex:
    params = {"name": node.name, **node.params}
    if node.kind == REPEAT:
        params["repeating"] = repeating
    program = Program(_PROGRAMS[node.kind], params, style=Style.TASK)
    own = node.kind in (REPEAT, SKIP)  # the dag itself, or its placeholder
    return Vertex(
        node.id,
        program,
        resources=_NO_CORE,
        expands=node.kind in (DECIDE, LIST, REPEAT),
        label=node.name,
        role=Role.OWN if own else Role.HELPER,
    )


def _step(
    pipeline: Pipeline,
    step: ResolvedStep,
    place: RunDirectories,
    folder: str,
    folders: Mapping[str, str],
    secrets: Sequence[str],
    scripts: FoundScripts,
    *,
    patched: bool,
) -> Vertex:
    items = None if step.items is None else plain(step.items)
    params = _params(step, place, folder, folders)
    program = Program(
        _STEP_AWAY if place.away else _STEP,
        {**params, SECRETS: secrets} if secrets else params,
        items,
        style=Style.TASK,
    )
    if step.not_run:
        program.items = None
    retry = DEFAULT_RETRY if step.retry is None else step.retry
    width = Source(step.lister) if step.lister else len(items) if items else 1
    vertex = Vertex(step.id, program, width, resources=_ONE_AT_A_TIME, retry=retry, starts_processes=True)
    vertex.label, vertex.outputs = step.name, tuple(step.outputs)
    if step.resources is not None:
        vertex.resources = (replace(step.resources, tokens=(_ONE_TOKEN,)),)
    if step.body is not None:
        kind = load_kind(step.body.kind)
        if step.resources is None:
            vertex.resources = tuple(replace(one, tokens=(*one.tokens, _ONE_TOKEN)) for one in kind.resources)
        vertex.timeout_s = None if kind.timed else step.timeout_s
        vertex.starts_processes = not kind.spreads(step.body.portable, folder)
    recipe = describe(pipeline, step, place.cache, folder, scripts)
    if recipe is not None:
        vertex.program = replace(
            program, params={**program.params, RECIPE: recipe.to_json(), **named_files(step, folder, scripts)}
        )
        vertex.cache_key = recipe.static_key
    elif patched:
        vertex.cache_key = ASKING
    return vertex


def _place(said: Mapping[str, Any]) -> RunDirectories:
    """Return the folders of a run from their form in program parameters."""
    cache = said["cache"]
    found = None if cache is None else CachePlace(**cache)
    publish = None if said["publish"] is None else tuple(said["publish"])
    containers = None if said["containers"] is None else ContainerImages(**said["containers"])
    return RunDirectories(
        Path(said["logs"]),
        Path(said["processes"]),
        found,
        said["mounts"],
        publish,
        containers,
        said["settings"],
        said.get("away", False),
    )


def _folders(place: RunDirectories) -> dict[str, str]:
    return {"logs": str(place.logs), "processes": str(place.processes)}


def _params(step: ResolvedStep, place: RunDirectories, folder: str, folders: Mapping[str, str]) -> dict[str, Any]:
    params: dict[str, Any] = {
        "command": text_to_json(step.command),
        "cwd": step.cwd,
        "env": {name: text if isinstance(text, str) else text_to_json(text) for name, text in step.env.items()},
        **folders,
        "name": step.name,
        "outputs": list(step.outputs.values()),
        "timeout_s": step.timeout_s,
    }
    if step.loops:
        params |= {"outputs": list(step.outputs), "folder": as_dict(step.folder)}
    if step.apart:
        params["apart"] = True
    if step.packages is not None:
        params[PACKAGES] = [step.packages.kind, step.packages.file, str(place.logs.parent.parent.parent / ENVIRONMENTS)]
    if step.delivered or step.condition or place.away:
        params["inputs"] = {name: places_to_json(places) for name, places in step.places.items()}
    if step.condition:
        params["condition"] = text_to_json(step.condition)
    if place.mounts and (bound := [mount for mount in step.mounts if mount.source is not None]):
        params[MOUNTS] = [[m.source, m.mount_path, m.read_only, m.main, m.sub_path] for m in bound]
    if step.body is not None:
        del params["command"]
        params |= {
            "kind": step.body.kind,
            "with": step.body.options,
            "portable": step.body.portable,
            "run": str(place.logs.parent),
            "settings": dict(place.settings),
            "pipeline_folder": folder,
            "parameters": {name: plain(value) for name, value in step.parameters.items()},
            "inputs": {name: places_to_json(places) for name, places in step.places.items()},
        }
    elif place.containers is not None and step.docker_env in place.containers.images:
        by = place.containers
        image = by.images[step.docker_env]
        params[IMAGE] = {"kind": by.kind, "program": by.program, "image": image, "run": str(place.logs.parent)}
    if place.publish is not None and step.outputs:
        params[PUBLISH] = list(place.publish)
    return params


def planned_outputs(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the planned places of outputs by `step.artifact`, as far as they are known before the run."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ResolvedStep) and not node.not_run and not node.lister:
            for seq in range(1 if node.items is None else len(node.items)):
                name = f"{node.name}-{seq}" if seq else node.name
                found |= {f"{name}.{output}": node.folder.path(output, seq) for output in node.outputs}
    return found


def outputs_of(vertex: Vertex, index: int) -> dict[str, str]:
    """Return the places of a task's outputs by name; empty for vertices that are no steps."""
    if vertex.outputs is None:
        return {}
    params = vertex.program.params
    if "folder" in params:
        folder = OutputFolder(**params["folder"])
        return {name: folder.path(name, index) for name in params["outputs"]}
    return {path.rpartition("/")[2]: path for path in params["outputs"]}


def named_images(pipeline: Pipeline) -> dict[str, str]:
    """Return the image of each enabled step by step name; "" for none.

    Only commands run in images: steps of other kinds are left out.
    """
    off = pipeline.disabled_names
    steps = [
        (name, step)
        for name, step in pipeline.steps.items()
        if name not in off and not step.kind.value and job_of(step) is None
    ]
    return {name: "" if step.packages else step.docker_env or pipeline.docker_env for name, step in steps}


# ---------------------------------------------------------------------------------------------- the main file system


def main_name(pipeline: Pipeline, given: Iterable[str], bound: Iterable[str]) -> str:
    """Return the name of the main file system for a file that names none: the first given name without another use.

    `bound` are all given names. "" for a file that names its own, or if no name is given. UsageError: a given name has
    no use in the file, resembles another name in it, or is no valid name.
    """
    own = pipeline.main_fs.name if pipeline.main_fs else ""
    extra = {mount.name for mount in chain(pipeline.extra_fs, *(s.extra_fs for s in pipeline.steps.values()))}
    names = list(given)
    main = next((name for name in names if name not in extra), "") if not own else ""
    known = sorted({own or main, *extra} - {""})
    for name in names:
        if name not in (own, main, *extra):
            raise UsageError(f"the pipeline names no file system {show(name)}", hint=f"It names: {', '.join(known)}")
    lacking = extra - set(bound)
    near = nearest(main, sorted(lacking)) if main else ""
    if near:
        hint = f"It names: {', '.join(sorted(extra))}. Did you mean {near}?"
        raise UsageError(f"the pipeline names no file system {show(main)}", hint=hint)
    if main and not _FS_NAME.fullmatch(main):
        hint = "Use letters, digits, _, - and ." + (f" The file names: {', '.join(sorted(extra))}" if extra else "")
        raise UsageError(f"{show(main)} cannot name a file system", hint=hint)
    return main


def main_root(pipeline: Pipeline, file: Path, configured: Mapping[str, Path]) -> Path:
    """Return the folder of the main file system on this machine.

    The settings (`configured`) come first. Otherwise it is the folder of the file, or the nearest folder above, that
    has most of the mounted parts (each `sub_path`) and, among equals, most of the scripts and paths named by the steps;
    the folder of the file if none is better. Folders above a project (with `weft.toml` or `.git`), the home folder and
    the root are excluded.
    """
    name = pipeline.main_fs.name if pipeline.main_fs else ""
    if name in configured:
        return configured[name]
    folder = Path(os.path.abspath(file)).parent
    named = tuple(_named_paths(pipeline))
    scopes = tuple(path for path in scoped_parts(pipeline, name) if path)
    mounted = tuple(part for part in mounted_parts(pipeline, name) if part.strip("/"))
    base = pipeline.main_fs.sub_path if pipeline.main_fs else ""

    def has(candidate: Path) -> tuple[int, int]:
        return _existing(candidate, mounted), _existing(candidate / base, named) + _existing(candidate, scopes)

    best, most = folder, has(folder)
    for candidate in folders_above(folder):
        found = has(candidate)
        if found > most:
            best, most = candidate, found
    return best


def _named_paths(pipeline: Pipeline) -> Iterable[str]:
    """Return the relative paths that steps name: words of commands in the form of a path."""
    found: dict[str, None] = {}
    for step in pipeline.steps.values():
        text = step.shell_text.value
        for word in _PATH.findall(text) if "/" in text or "." in text else ():
            if "/" in word or ("." in word and os.path.splitext(word)[1].lower() in SUFFIXES):
                found[word] = None
        if len(found) >= _MOST_PATHS:
            break
    return found


def scoped_parts(pipeline: Pipeline, name: str) -> list[str]:
    """Return the paths in a file system that cache keys include; "" for all."""
    caches = (step.cache.over(pipeline.cache) for step in pipeline.steps.values())
    scopes = (scope for cache in caches if cache.enable for scope in cache.fs_scope if scope.name == name)
    return list(dict.fromkeys(path.strip("/") for scope in scopes for path in scope.paths))


def mounted_parts(pipeline: Pipeline, name: str) -> dict[str, bool]:
    """Return the mounted parts of a file system (folders and files; "" for all), and whether steps may write them."""
    steps = (step.extra_fs for step in pipeline.steps.values())
    main = () if pipeline.main_fs is None else (pipeline.main_fs,)
    found: dict[str, bool] = {}
    for mount in chain(main, pipeline.extra_fs, *steps):
        if mount.name == name:
            found[mount.sub_path] = found.get(mount.sub_path, False) or not mount.read_only
    return found


def _existing(folder: Path, named: tuple[str, ...]) -> int:
    return sum((folder / path).exists() for path in named[:_MOST_PATHS])
