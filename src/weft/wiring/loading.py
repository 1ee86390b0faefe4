"""From a file, a text or the folder of an earlier run to a pipeline that could run."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.admin.filesystems import STAGE, file_systems
from weft.admin.settings import Settings
from weft.frontends.pipelines.caching import CachePlace
from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.compiler import (
    Containers,
    Origin,
    RunPlace,
    compile_run,
    hopeless_mounts,
    main_name,
    main_root,
    named_images,
    notes,
    unbound,
)
from weft.frontends.pipelines.kinds import PYTHON
from weft.frontends.pipelines.paths import ENTRY_POINTS, POST_PROCESS
from weft.frontends.pipelines.resolve import ResolvedStep, make_pipeline
from weft.frontends.pipelines.resolve import Run as RunOf
from weft.model.errors import ConflictError, DefinitionError, ForbiddenError, InputLimitError, NotFoundError, UsageError
from weft.store.state import RunFolder, read_description
from weft.wiring.asked import Caching, Surroundings, part_asked_for, refreshed_vertices
from weft.wiring.concrete import STEP_KINDS

if TYPE_CHECKING:
    from weft.frontends.pipelines.language import Pipeline
    from weft.frontends.pipelines.resolve import Node
    from weft.graph.logical import LogicalGraph


FIRST_RUN: Final = "run-000000"
"""Stands for the id in a pipeline that is looked at and not run."""
_MAX_FILE: Final = 1 << 20
_STDIN: Final = "-"
_STREAM: Final = re.compile(r"/dev/[^/]+$|/dev/fd/|/proc/")


class Loaded(Struct, frozen=True):
    """A pipeline that could run: read, checked, with its parameters.

    `graph` is what would run, under the id of no run; `steps` are in order; `warnings` are lines for people. `urls`
    maps names of file systems that lie elsewhere to where; what `file_systems` has of them are copies, fetched when it
    runs. `unbound` are names of file systems that steps mount and nothing is given for. `hopeless` tells of mounts that
    no step can have on this machine, with the image that the step names. `containers` is known once it runs.
    """

    pipeline_name: str
    graph: LogicalGraph
    steps: list[str]
    warnings: list[str]
    file: Path
    root: Path
    user: str
    pipeline: Pipeline
    origin: Origin
    file_systems: Mapping[str, str]
    caching: Caching
    around: Surroundings
    urls: Mapping[str, str]
    unbound: list[str]
    hopeless: list[tuple[str, DefinitionError]]
    containers: Containers | None = None


def load_pipeline(
    path: str,
    *,
    overrides: Mapping[str, str] | None = None,
    user: str | None = None,
    name: str | None = None,
    caching: Caching | None = None,
    around: Surroundings | None = None,
) -> Loaded:
    """Read and check a pipeline file (YAML, JSON, or `file.py:name`); nothing is started or written.

    `overrides` maps `parameter` or `step.parameter` to a value; `name` replaces the name of the pipeline; `caching`
    says what to do about the cache, `around` what steps are to find round them.
    NotFoundError, ForbiddenError: the file cannot be read. PipelineError lists every mistake. UsageError: a wrong
    override or name.
    """
    return _load(origin_of(path, overrides or {}, name), user, caching, around)


def origin_of(path: str, given: Mapping[str, object], name: str | None) -> Origin:
    """Return what stands in a file, or is built by one."""
    renamed = None if name is None else _pipeline_name(name)
    if not PYTHON.search(path):
        return Origin(_read_text(Path(path)), path, dict(given), renamed, STEP_KINDS)
    from weft.frontends.pipelines.files import build_file

    built, file, rest = build_file(path, given, STEP_KINDS)
    return Origin(built.text(), file, rest, renamed, STEP_KINDS, dict(given))


def load_text(
    text: str,
    path: str,
    *,
    overrides: Mapping[str, object] | None = None,
    user: str | None = None,
    name: str | None = None,
    caching: Caching | None = None,
    around: Surroundings | None = None,
) -> Loaded:
    """Check the text of a pipeline that a program has built; otherwise as `load_pipeline`."""
    renamed = None if name is None else _pipeline_name(name)
    return _load(Origin(text, path, dict(overrides or {}), renamed, STEP_KINDS), user, caching, around)


def _load(origin: Origin, user: str | None, caching: Caching | None, around: Surroundings | None) -> Loaded:
    file = Path(origin.file)
    around = around or Surroundings()
    base = file.absolute().parent
    stage = around.stage or Settings().state_root(base).path / STAGE
    bound = file_systems(base, around.file_systems, stage)
    pipeline = make_pipeline(origin.text, origin.file, origin.overrides, origin.renamed, origin.kinds)
    main = main_name(pipeline, around.file_systems, bound)
    if main:
        origin = replace(origin, main_fs=main)
        pipeline = make_pipeline(origin.text, origin.file, origin.overrides, origin.renamed, origin.kinds, main)
    root = main_root(pipeline, file, {name: one.folder for name, one in bound.items()})
    names = {name: str(one.folder) for name, one in bound.items()}
    place = RunPlace(Path("logs"), Path("processes"))
    return make_loaded(
        pipeline,
        origin,
        FIRST_RUN,
        place,
        root,
        Settings(user=user or "").user_name,
        names,
        caching or Caching(),
        around,
        {name: one.url for name, one in bound.items() if one.url},
    )


def make_loaded(
    pipeline: Pipeline,
    origin: Origin,
    run_id: str,
    place: RunPlace,
    root: Path,
    user: str,
    file_systems: Mapping[str, str],
    caching: Caching,
    around: Surroundings,
    urls: Mapping[str, str],
) -> Loaded:
    """Return a pipeline with the graph of one run of it."""
    run = RunOf(run_id, user, str(root), file_systems, str(Path(origin.file).absolute().parent))
    nodes, graph = compile_run(pipeline, run, place, origin)
    if not caching.only:
        nodes = [*nodes, *compile_run(pipeline, run, place, origin, POST_PROCESS)[0]]
    refreshed_vertices(graph, caching)  # a wrong name is said at once
    graph = part_asked_for(graph, caching)
    last = pipeline.post_process
    names = [
        node.name
        for node in nodes
        if isinstance(node, ResolvedStep) and (node.id in graph.vertices or node.name in last)
    ]
    return Loaded(
        pipeline.name,
        graph,
        names,
        notes(nodes, contained=around.docker_env != "ignore"),
        Path(origin.file),
        root,
        user,
        pipeline,
        origin,
        file_systems,
        caching,
        around,
        urls,
        unbound(nodes),
        hopeless_mounts(node for node in nodes if node.name in names) if around.mounts else [],
    )


def loaded_again(folder: Path, file: str) -> Loaded:
    """Return what a run was made of, as its folder tells it: the file may have changed meanwhile, or be gone."""
    try:
        said = read_description(folder)
    except FileNotFoundError:
        said = {}
    text, root, user = said.get("text"), said.get("root"), said.get("user")
    overrides, renamed = said.get("overrides"), said.get("renamed")
    if not (isinstance(text, str) and isinstance(root, str) and isinstance(user, str) and isinstance(overrides, dict)):
        raise ConflictError(
            f"{folder.name} did not keep what a resume needs: it died too early, or an older version made it",
            hint="Start a new run.",
        )
    if not Path(root).is_dir():
        raise NotFoundError(f"the folder {root} that {folder.name} works in is gone", hint="Start a new run.")
    built_with = said.get("built_with")
    built_with = built_with if isinstance(built_with, dict) else {}
    main_fs = str(said.get("main_fs") or "")
    origin = Origin(text, file, overrides, renamed, STEP_KINDS, built_with, main_fs)
    pipeline = make_pipeline(text, file, overrides, renamed, STEP_KINDS, main_fs)
    bound = said.get("file_systems")
    names = bound if isinstance(bound, dict) else {}
    caching = Caching(off=bool(said.get("cache_off")), only=str(said.get("only") or ""))
    around = Surroundings(mounts=said.get("mounts") is not False, docker_env=str(said.get("docker_env") or "ignore"))
    urls = said.get("urls")
    urls = urls if isinstance(urls, dict) else {}
    by = said.get("containers")
    containers = Containers(**by) if isinstance(by, dict) else None
    place = place_of(folder, caching, around, main_elsewhere(pipeline, Path(root), urls), containers)
    made = make_loaded(pipeline, origin, folder.name, place, Path(root), user, names, caching, around, urls)
    return replace(made, containers=containers)


def nodes_at_the_end(loaded: Loaded, folder: RunFolder) -> list[Node]:
    """Return the nodes of post_process, none if a part of the pipeline was asked for."""
    return made_for(loaded, folder, POST_PROCESS)[0] if loaded.pipeline.post_process and not loaded.caching.only else []


def place_of(
    folder: Path,
    caching: Caching,
    around: Surroundings,
    publish: tuple[str, str] | None,
    containers: Containers | None,
) -> RunPlace:
    """Return where a run with a folder keeps what its steps leave."""
    images = {} if containers is None else containers.images
    cache = None if caching.off else CachePlace(folder.name, images)
    return RunPlace(folder / "logs", folder / "processes", cache, around.mounts, publish, containers)


def in_containers(loaded: Loaded, note: Callable[[str], None], *, pull: bool = True) -> Loaded:
    """Return a pipeline with what runs its images, as far as that was asked for, and is there.

    NotFoundError: images are required and nothing runs them, or one cannot be fetched. UsageError: one is required of
    a step that names none.
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
    return replace(loaded, containers=Containers(engine.kind, engine.program, found))


def made_ready(loaded: Loaded, note: Callable[[str], None]) -> Loaded:
    """Return a pipeline with what its steps need around them; errors as `in_containers` and `check_mounts`.

    UsageError: nothing is given for a file system that steps mount.
    """
    if loaded.around.mounts and loaded.unbound:
        hint = f"Give it one: -f {loaded.unbound[0]}=FOLDER, or under [fs] in weft.toml"
        raise UsageError(f"no folder is given for the file system {loaded.unbound[0]}, which steps mount", hint=hint)
    loaded = in_containers(loaded, note)
    check_mounts(loaded)
    return loaded


def check_mounts(loaded: Loaded) -> None:
    """Refuse a pipeline whose steps can never have their mounts. DefinitionError: the first of them, and why."""
    images = {} if loaded.containers is None else loaded.containers.images
    for image, error in loaded.hopeless:
        if image not in images:
            raise error


def main_elsewhere(pipeline: Pipeline, root: Path, urls: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the URL of the main file system and the folder that has the copy of it; None if it lies here."""
    url = urls.get(pipeline.main_fs.name) if pipeline.main_fs else None
    return None if url is None else (url, str(root.parent))


def run_of(loaded: Loaded, run_id: str) -> RunOf:
    """Return what templates are told of a run."""
    folder = str(loaded.file.absolute().parent)
    return RunOf(run_id, loaded.user, str(loaded.root), loaded.file_systems, folder)


def made_for(loaded: Loaded, folder: RunFolder, part: str = ENTRY_POINTS) -> tuple[list[Node], LogicalGraph]:
    """Return the nodes and the graph of one part of a run that has a folder."""
    run = run_of(loaded, folder.run_id)
    elsewhere = main_elsewhere(loaded.pipeline, loaded.root, loaded.urls)
    place = place_of(folder.path, loaded.caching, loaded.around, elsewhere, loaded.containers)
    nodes, graph = compile_run(loaded.pipeline, run, place, loaded.origin, part)
    return nodes, part_asked_for(graph, loaded.caching) if part == ENTRY_POINTS else graph


def _read_text(file: Path) -> str:
    if _STREAM.match(str(file.absolute())):
        hint = f"Write {_STDIN} in its place: that reads standard input, and the pipeline works in the current folder."
        raise UsageError(f"{file} lies in no folder that a pipeline could work in", hint=hint)
    try:
        with nullcontext(sys.stdin.buffer) if str(file) == _STDIN else file.open("rb") as source:
            data = source.read(_MAX_FILE + 1)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {file}", hint="Name the YAML file of a pipeline.") from None
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
        raise ForbiddenError(message, hint="Name the YAML file of a pipeline.") from None
    if len(data) > _MAX_FILE:
        raise InputLimitError(f"{file} is larger than {_MAX_FILE >> 20} MiB", hint="Pass large data as files.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DefinitionError(f"{file} is not UTF-8 text (byte {error.start})", hint="Save it as UTF-8.") from None


def _pipeline_name(name: str) -> str:
    """Check a name that was given beside the file, by the rules of the file."""
    try:
        return parse_pipeline(json.dumps({"name": name, "entry_points": {"step": {}}}), "name").name
    except DefinitionError as error:
        raise UsageError(f"{name[:60]!r} cannot name a pipeline", hint=error.hint) from None
