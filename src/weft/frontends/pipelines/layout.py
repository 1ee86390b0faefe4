"""The layout of a pipeline run: its graph, its outputs, copies of remote file systems, and its description."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from weft.frontends.pipelines.caching import CachePlace, FoundScripts, code_of, recipe_of
from weft.frontends.pipelines.compiler import (
    PARALLELISM,
    ContainerImages,
    RunDirectories,
    compile_run,
    mounted_parts,
    named_images,
    outputs_of,
    planned_outputs,
    scoped_parts,
)
from weft.frontends.pipelines.kinds import load_kind
from weft.frontends.pipelines.language import Step, walk
from weft.frontends.pipelines.notices import hopeless_mounts, notes, unbound
from weft.frontends.pipelines.options import part_asked_for, refreshed_vertices
from weft.frontends.pipelines.resolved import REPEAT, ResolvedStep
from weft.frontends.pipelines.resolved import RunIdentity as RunOf
from weft.frontends.pipelines.secrets import hold_secrets
from weft.frontends.pipelines.states import PROJECTION
from weft.frontends.pipelines.templates import LOOP_ARGUMENT, PARENT, SYSTEM_VARIABLES, find
from weft.graph.spec import CacheSpec, CommandFiles, RunSpec
from weft.model.errors import ConflictError, ForbiddenError, NotFoundError, UsageError
from weft.model.patterns import late_pattern
from weft.model.records import as_dict
from weft.store.folders import make_folders
from weft.store.places import OUTPUTS, why_no_outputs
from weft.store.state import PLACE, PROFILE_OF_RUN, ROOT, STORAGE, WORKERS, os_error

if TYPE_CHECKING:
    from weft.frontends.pipelines.kinds import StepBody
    from weft.frontends.pipelines.language import Component, Pipeline
    from weft.frontends.pipelines.resolved import Node
    from weft.frontends.pipelines.storing import StepStorage
    from weft.frontends.pipelines.work import PipelineWork
    from weft.graph.logical import LogicalGraph
    from weft.model.errors import DefinitionError
    from weft.store.filesystems import Copy
    from weft.store.state import RunFolder


NOWHERE: Final = RunDirectories(Path("logs"), Path("processes"))
"""The folders of a run that is only planned."""
_ITEM_VARIABLE = late_pattern(rf"\$(?:{LOOP_ARGUMENT}\b|\{{{LOOP_ARGUMENT}\b[^}}]*\}})")
Work = TypeVar("Work", bound="PipelineWork")
"""The key of `run.json` with the URL and the key of a run whose machines share no folder."""
CODE: Final = "code"
"""The key of `run.json` with the code digests of steps at their start; see `code_of`."""


class CompiledPipeline(Struct, frozen=True):
    """A pipeline compiled for one run: its nodes, its graph, the names of its steps.

    `unbound` are mounted file systems without a folder. `hopeless` are mounts that can never work on this machine, each
    with the image of its step. `scripts` are those of steps with a cache.
    """

    nodes: list[Node]
    graph: LogicalGraph
    steps: list[str]
    warnings: list[str]
    unbound: list[str]
    hopeless: list[tuple[str, DefinitionError]]
    scripts: FoundScripts


def compile_loaded(loaded: PipelineWork, run_id: str, place: RunDirectories) -> CompiledPipeline:
    """Compile a pipeline for a run. UsageError: the run options name an unknown step."""
    folder = str(loaded.base)
    run = RunOf(run_id, loaded.user, str(loaded.root), loaded.file_systems, folder)
    scripts: FoundScripts = {}
    nodes, graph = compile_run(
        loaded.pipeline, run, place, loaded.origin, post_process=not loaded.caching.part, scripts=scripts
    )
    graph.limits[PARALLELISM] = loaded.around.steps_at_a_time(loaded.pipeline)
    refreshed_vertices(loaded.pipeline, graph, loaded.caching)
    graph = part_asked_for(graph, loaded.caching, loaded.pipeline, nodes)
    chosen = [node for node in nodes if isinstance(node, ResolvedStep) and node.id in graph.vertices]
    around = loaded.around
    return CompiledPipeline(
        nodes,
        graph,
        [node.name for node in chosen],
        [
            *notes(
                nodes,
                folder,
                contained=around.docker_env != "ignore",
                trace=around.trace,
                scripts=scripts,
                settings=_settings_of_kinds(loaded),
            ),
            *_shadowed(loaded.pipeline),
            *_without_item(loaded.pipeline),
        ],
        unbound(nodes),
        hopeless_mounts(chosen) if around.mounts else [],
        scripts,
    )


def _shadowed(pipeline: Pipeline) -> list[str]:
    """Return which parameters of steps have no effect, because the system has a value by their name."""
    return [
        f"step {name}: its parameter {parameter} has no effect: the value by this name is the system's"
        for name, step in pipeline.steps.items()
        for parameter in step.parameters
        if parameter in SYSTEM_VARIABLES
    ]


def _without_item(pipeline: Pipeline) -> list[str]:
    """Return which components name the item of a loop, but an enclosing dag loops in their place: they have none."""
    found = []
    known: dict[str, Component] = {}
    for name, component in walk({**pipeline.entry_points, **pipeline.post_process}):
        known[name] = component
        above = [name[:at] for at, char in enumerate(name) if char == "."]
        looping = next((dag for dag in reversed(above) if known[dag].loop is not None), "")
        if component.loop is not None or not looping or pipeline.disabled_names & {*above, name}:
            continue
        if said := _names_item(component):
            first = ".".join(name.split(".")[: looping.count(".") + 2])
            down = "" if first == name else f", and hand it down to {name} by {{{{{PARENT}.item}}}}"
            item = f"{{{{{PARENT}.{LOOP_ARGUMENT}}}}}"
            found.append(
                f"{name}: {said} is empty there, since not it but the dag {looping} loops; to have the item, write "
                f"in {first}  parameters: {{item: '{item}'}}{down}, and in its place {{{{item}}}}"
            )
    return found


def _names_item(component: Component) -> str:
    """Return how a component names the item of its loop, "" if it does not. Its parameters may."""
    texts = [component.condition.value]
    if isinstance(component, Step):
        texts += [component.shell_text.value, *(text.value for text in component.env.values())]
        texts += [text.value for text in component.option_texts]
        own = _ITEM_VARIABLE.search(component.shell_text.value)
        if own is not None and LOOP_ARGUMENT not in component.env:
            return own.group()
    return next((one.text for text in texts for one in find(text) if not one.step and one.name == LOOP_ARGUMENT), "")


def place_of(loaded: PipelineWork, folder: Path) -> RunDirectories:
    """Return the place of the outputs of a run with a folder."""
    images = {} if loaded.containers is None else loaded.containers.images
    cache = None if loaded.caching.off else CachePlace(folder.name, images, loaded.around.trace)
    publish = main_elsewhere(loaded.pipeline, loaded.root, loaded.urls)
    return RunDirectories(
        folder / "logs",
        folder / "processes",
        cache,
        loaded.around.mounts,
        publish,
        loaded.containers,
        loaded.around.settings,
        bool(loaded.around.storage),
    )


def check_run(loaded: PipelineWork, compiled: CompiledPipeline, *, begins: bool = True) -> None:
    """Refuse a run that is impossible on this machine; if it `begins`, mounted folders and secrets must be there.

    UsageError: a mounted file system has no folder, or a secret is missing. DefinitionError: a mount of a step can
    never work. ForbiddenError: the folder for outputs is a link or a file. NotFoundError, MissingExtraError: the file
    of an environment or the program that makes it is not there.
    """
    if why := why_no_outputs(loaded.root, place_of_outputs(loaded) or ()):
        raise ForbiddenError(why, hint=f"To use a folder elsewhere, {_another_root(loaded)}")
    missing = compiled.unbound
    if begins:
        hold_secrets(_secrets(loaded.pipeline, compiled))
    if begins and loaded.around.mounts and missing:
        hint = f"Give it one: -f {missing[0]}=FOLDER, or under [fs] in weft.toml"
        raise UsageError(f"no folder is given for the file system {missing[0]}, which steps mount", hint=hint)
    _check_packages(compiled)
    if loaded.spread and loaded.around.storage:
        _check_away(loaded, compiled)
    images = {} if loaded.containers is None else loaded.containers.images
    for image, error in compiled.hopeless:
        if image not in images:
            raise error


def _check_away(loaded: PipelineWork, compiled: CompiledPipeline) -> None:
    """Refuse a run that cannot do with the files that machines get by the storage. UsageError."""
    if main_elsewhere(loaded.pipeline, loaded.root, loaded.urls) is not None:
        message = "the main file system is at a URL, of which only this machine has a copy"
        raise UsageError(message, hint="Name a folder with -f, or run it without storage at machines that share one.")
    for node in compiled.nodes:
        if not isinstance(node, ResolvedStep) or node.not_run or node.id not in compiled.graph.vertices:
            continue
        if extra := next((mount.name for mount in node.mounts if not mount.main), ""):
            message = f"step {node.name} mounts the file system {extra}, which machines do not get by the storage"
            raise UsageError(message, hint="Put the files into the project, or have the step read them from a URL.")
        if node.body is not None and load_kind(node.body.kind).spreads(node.body.portable, str(loaded.base)):
            message = f"the replicas of step {node.name} need a folder that all machines share"
            raise UsageError(message, hint="Run it without storage, from such a folder.")


def _check_packages(compiled: CompiledPipeline) -> None:
    """Raise the errors of `environments.check` for the steps that may run."""
    for node in compiled.nodes:
        if isinstance(node, ResolvedStep) and node.packages and not node.not_run and node.id in compiled.graph.vertices:
            from weft.operators import environments  # few pipelines have any

            environments.check(node.packages.kind, node.packages.file, node.name)


def warnings_here(loaded: PipelineWork, compiled: CompiledPipeline) -> list[str]:
    """Return warnings about the files that steps of kinds name, and about steps that can never run on this machine.

    Errors are those of the kinds.
    """
    folder, settings = str(loaded.base), _settings_of_kinds(loaded)
    kinds = [(step, body, load_kind(body.kind)) for step, body in _of_kinds(compiled)]
    examined = [
        f"step {step.name}: {note}"
        for step, body, kind in kinds
        for note in kind.examine(body.portable, folder, step.frame)
    ]
    misfits = [
        f"step {step.name}: {why}"
        for step, body, kind in kinds
        if (why := kind.misfit(body.portable, folder, settings))
    ]
    return examined + misfits


def _of_kinds(compiled: CompiledPipeline) -> Iterator[tuple[ResolvedStep, StepBody]]:
    """Yield the steps of kinds that may run."""
    for step in compiled.nodes:
        if not isinstance(step, ResolvedStep) or step.not_run or step.id not in compiled.graph.vertices:
            continue
        if step.body is not None:
            yield step, step.body


def _settings_of_kinds(loaded: PipelineWork) -> Mapping[str, Any]:
    """Return the settings of the run for kinds of steps."""
    return {**loaded.around.settings, **({"backend": "ray"} if loaded.spread else {})}


def _secrets(pipeline: Pipeline, compiled: CompiledPipeline, done: Collection[str] = frozenset()) -> dict[str, str]:
    """Return the secrets of the steps that may run, each with a step that needs it; `done` are finished steps."""
    found: dict[str, str] = {}
    for node in compiled.nodes:
        if node.id not in compiled.graph.vertices or node.not_run or node.name in done:
            continue
        if isinstance(node, ResolvedStep):
            found = {**dict.fromkeys(node.secrets.values(), node.name), **found}
        elif dag := node.params.get("dag"):
            inside = [(name, step) for name, step in pipeline.steps.items() if name.startswith(f"{dag}.")]
            found = {**{text.value: name for name, step in inside for text in step.secrets.values()}, **found}
    return found


def spec_of(
    loaded: PipelineWork, compiled: CompiledPipeline, folder: Path, about: Mapping[str, Any] | None = None
) -> RunSpec:
    """Return the specification of a compiled run with a folder. `about` is the description of a resumed run."""
    description = about_run(loaded, compiled) if about is None else about
    own = {  # also needed by a resume
        "renamed": loaded.origin.renamed,
        ROOT: str(loaded.root),
        "cache_off": loaded.caching.off,
        "refresh": sorted(loaded.caching.refresh),
        "from": loaded.caching.start,
        "only": loaded.caching.only,
        "targets": list(loaded.caching.targets),
        "mounts": loaded.around.mounts,
        "docker_env": loaded.around.docker_env,
        "trace": loaded.around.trace,
        WORKERS: loaded.around.workers,
        "main_fs": loaded.origin.main_fs,
        "settings": dict(loaded.around.settings),
    }
    host: StepStorage | None = None
    if url := loaded.around.storage:
        key = loaded.around.storage_key or f"{folder.name}-{os.urandom(6).hex()}"
        own[STORAGE] = {"url": url, "key": key}
        host = _storage_of(loaded, folder, url, key)
    outputs = loaded.root.joinpath(*(place_of_outputs(loaded) or ()))
    return RunSpec(
        compiled.graph,
        PROJECTION,
        loaded.user,
        file=str(description["file"]),
        parameters=description["parameters"],
        steps=compiled.steps,
        about={**description, **own},
        warnings=compiled.warnings,
        paths=outputs_of,
        roots=(outputs,),
        cache=_cache_of(loaded, compiled.graph, host),
        host=host,
        named_files=dict if about is None else partial(_named_files, str(loaded.base), compiled),
    )


def _named_files(folder: str, compiled: CompiledPipeline) -> dict[str, CommandFiles]:
    """Return the files that the commands of each step name, as the cache finds them; `folder` is that of the file."""
    from weft.frontends.pipelines.scripts import scripts_of  # few runs go on
    from weft.frontends.pipelines.templates import as_text

    found = {}
    for step in compiled.nodes:
        if isinstance(step, ResolvedStep) and not step.not_run:
            scripts = compiled.scripts.get(step.id) or scripts_of(step, folder)
            paths = dict.fromkeys(scripts.files)
            if scripts.named is not None:
                for item in step.items or ("",):
                    paths.update(dict.fromkeys(scripts.named.of(as_text(item))))
            found[step.name] = CommandFiles(step.cwd, tuple(paths), scripts.written)
    return found


def _storage_of(loaded: PipelineWork, folder: Path, url: str, key: str) -> StepStorage:
    """Return the host of a run whose machines share no folder."""
    from weft.frontends.pipelines.storing import StepStorage  # few runs have one

    root, base = str(loaded.root), str(loaded.base)
    keep = loaded.around.storage_keep
    trees = [root] if f"{base}/".startswith(f"{root}/") else [root, base]
    return StepStorage(url, key, folder, trees, spread=loaded.spread, keep=keep, secrets=loaded.pipeline.secret_names)


def uses_cache(loaded: PipelineWork) -> bool:
    """Return whether some step uses the cache."""
    general = loaded.pipeline.cache
    return not loaded.caching.off and any(step.cache.over(general).enable for step in loaded.pipeline.steps.values())


def _cache_of(loaded: PipelineWork, graph: LogicalGraph, host: StepStorage | None) -> CacheSpec | None:
    """Return the use of the cache by a run, None if no step uses it."""
    if not uses_cache(loaded):
        return None
    placed = _publisher(loaded) if host is None else host.keep
    return CacheSpec(recipe_of, refreshed_vertices(loaded.pipeline, graph, loaded.caching), placed)


def _publisher(loaded: PipelineWork) -> Callable[[Iterable[str]], None]:
    """Return the function that sends outputs placed by the cache to the remote file system."""
    elsewhere = main_elsewhere(loaded.pipeline, loaded.root, loaded.urls)
    if elsewhere is None:
        return lambda _: None
    from weft.store.remote import Remote

    remote = Remote(elsewhere[0], Path(elsewhere[1]))

    def publish(paths: Iterable[str]) -> None:
        remote.publish(paths)

    return publish


def resumed_spec(
    loaded: PipelineWork, folder: RunFolder, described: Mapping[str, Any], done: frozenset[str]
) -> RunSpec:
    """Return the specification of a resumed run. Steps that are `done` keep the code digests of their start.

    UsageError: a secret of another step is missing.
    """
    compiled = compile_loaded(loaded, folder.run_id, place_of(loaded, folder.path))
    hold_secrets(_secrets(loaded.pipeline, compiled, done))
    now = code_of(loaded.pipeline, compiled.nodes, str(loaded.base), str(loaded.root))
    was = described.get(CODE, {})
    kept = {
        name: leaves
        for name, leaves in was.items()
        if name in done or any(re.match(rf"{re.escape(name)}(-\d+)?\.", step) for step in done)
    }
    if {**now, **kept} != was:
        folder.describe_again(**{CODE: {**now, **kept}})
    return spec_of(loaded, compiled, folder.path, described)


def main_elsewhere(pipeline: Pipeline, root: Path, urls: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the URL of the main file system and the folder of its copy; None for a local one."""
    url = urls.get(pipeline.main_fs.name) if pipeline.main_fs else None
    return None if url is None else (url, str(root.parent))


# ------------------------------------------------------------------------------------------------ before it begins


def hold_copies(
    loaded: PipelineWork, undo: ExitStack, note: Callable[[str], None], *, fetch: bool = True
) -> list[Copy]:
    """Update and lock the copies of remote file systems until `undo` releases them.

    MissingExtraError: fsspec is not installed. NotFoundError, ForbiddenError, DiskFullError: a file cannot be fetched.
    ConflictError: a file has changed that another run uses.
    """
    if not loaded.urls:
        return []
    from weft.store.filesystems import Copy

    copies = []
    for name, url in loaded.urls.items():
        parts = mounted_parts(loaded.pipeline, name)
        if parts:
            parts = {**dict.fromkeys(scoped_parts(loaded.pipeline, name), False), **parts}
            copy = Copy(name, url, Path(loaded.file_systems[name]), parts)
            copies.append(copy)
            undo.callback(copy.hold(note, fetch=fetch))
    return copies


def claim(loaded: PipelineWork, run_id: str, folder: Path, copies: Sequence[Copy]) -> RunSpec | None:
    """Return a run with an id and a place for its outputs; None if the place is taken. Errors are those of `check_run`.

    The main file system may have runs of another index.
    """
    place = place_of_outputs(loaded)
    if place is not None:
        held = (copy for copy in copies if copy.folder == loaded.root)
        if any(run_id in copy.remote.names("/".join(place)) for copy in held):
            return None
    compiled = compile_loaded(loaded, run_id, place_of(loaded, folder))
    check_run(loaded, compiled)
    compiled.warnings.extend(warnings_here(loaded, compiled))
    if place is not None:
        try:
            make_place(loaded, place, run_id)
        except ConflictError:
            return None
    elif sub_path := loaded.pipeline.main_fs.sub_path if loaded.pipeline.main_fs else "":
        os.close(make_folders(loaded.root, Path(sub_path).parts))
    return spec_of(loaded, compiled, folder)


def _another_root(loaded: PipelineWork) -> str:
    name = loaded.pipeline.main_fs.name if loaded.pipeline.main_fs else "main"
    return f"give the main file system, in which steps work, another folder: -f {name}=FOLDER"


def make_place(loaded: PipelineWork, place: list[str], run_id: str) -> None:
    """Create the output folder of a run. ConflictError: another run has a folder of that name."""
    where = loaded.root.joinpath(*place)
    try:
        parent = make_folders(loaded.root, place)
        try:
            with suppress(FileExistsError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(".gitignore", flags, 0o644, dir_fd=parent), "w") as file:
                    file.write("*\n")
            os.mkdir(run_id, dir_fd=parent)
        finally:
            os.close(parent)
    except FileExistsError:
        raise ConflictError(f"{where / run_id} exists already", hint="Start a new run.") from None
    except OSError as error:
        raise os_error(f"the folder for outputs, {where}, cannot be made", error, _another_root(loaded)) from None


def place_of_outputs(loaded: PipelineWork) -> list[str] | None:
    """Return the names of the folders from the root to the outputs of a run; None if it makes none."""
    if not any(step.outputs for step in loaded.pipeline.steps.values()):
        return None
    sub_path = loaded.pipeline.main_fs.sub_path if loaded.pipeline.main_fs else ""
    return [*Path(sub_path).parts, OUTPUTS]


def about_run(loaded: PipelineWork, compiled: CompiledPipeline) -> dict[str, Any]:
    """Return the part of a run's description that an edit changes."""
    profile = loaded.origin.profile
    return {
        **({} if profile is None else {PROFILE_OF_RUN: as_dict(profile)}),
        "file": os.path.abspath(loaded.file),
        "parameters": parameters_of(loaded.pipeline, compiled.nodes),
        "steps": compiled.steps,
        "outputs": planned_outputs(compiled.nodes),
        "text": loaded.origin.text,
        "overrides": dict(loaded.origin.overrides),
        "built_with": dict(loaded.origin.built_with),
        "file_systems": dict(loaded.file_systems),
        "urls": dict(loaded.urls),
        "containers": None if loaded.containers is None else as_dict(loaded.containers),
        CODE: code_of(loaded.pipeline, compiled.nodes, str(loaded.base), str(loaded.root)),
        PLACE: place_of_outputs(loaded),
    }


def parameters_of(pipeline: Pipeline, nodes: Sequence[Node]) -> dict[str, Any]:
    """Return the parameters of steps, and those of a dag with dynamic items and of what is in it, as far as they are
    known before its steps are.
    """
    found: dict[str, Any] = {}
    for node in nodes:
        if isinstance(node, ResolvedStep):
            found |= {f"{node.name}.{name}": value for name, value in node.parameters.items()}
        elif node.kind == REPEAT:
            found |= {f"{node.name}.{name}": value for name, value in node.params["parameters"].items()}
            dag = node.params["dag"]
            for dotted, component in walk(pipeline.entry_points):
                if dotted.startswith(f"{dag}."):
                    name = f"{node.name}{dotted.removeprefix(dag)}"
                    found |= {f"{name}.{key}": value for key, value in _constants(component).items()}
    return found


def _constants(component: Component) -> dict[str, Any]:
    """Return the parameters of a component whose values have no templates."""
    values = {name: parameter.value for name, parameter in component.parameters.items()}
    return {name: value for name, value in values.items() if not (isinstance(value, str) and any(find(value)))}


def in_containers(loaded: Work, note: Callable[[str], None], *, pull: bool = True) -> Work:
    """Return a pipeline with its container images, as far as they are requested and available.

    NotFoundError: images are required without an engine, or one cannot be pulled. UsageError: images are required and a
    step names none.
    """
    policy = loaded.around.docker_env
    named = named_images(loaded.pipeline)
    images = sorted(set(named.values()) - {""})
    if policy == "ignore" or not named:
        return loaded
    from weft.operators.containers import REQUIRE, find_engine, known_images

    lacking = [name for name, image in named.items() if not image]
    if policy == REQUIRE and lacking:
        raise UsageError(f"docker_env is required, and step {lacking[0]} has none", hint="Name an image for it.")
    if not images:
        return loaded
    try:
        engine = find_engine(policy)
    except NotFoundError as error:
        if policy == REQUIRE:
            raise
        note(f"{error.message}: steps run on this machine, not in {', '.join(images)}")
        return loaded
    if engine is None:
        return loaded
    found = known_images(engine, images, note, pull=pull)
    return replace(loaded, containers=ContainerImages(engine.kind, engine.program, found))
