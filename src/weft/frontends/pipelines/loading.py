"""Loads a pipeline from a file, a text or the folder of an earlier run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from weft.frontends.pipelines.compiler import ContainerImages, PipelineSource, main_name, main_root
from weft.frontends.pipelines.distributed import trains
from weft.frontends.pipelines.kinds import STEP_KINDS
from weft.frontends.pipelines.options import Caching, Surroundings
from weft.frontends.pipelines.profiles import Profile
from weft.frontends.pipelines.reading import layered, origin_of, pipeline_name, profile_of
from weft.frontends.pipelines.source import Loaded
from weft.model.errors import ConflictError, NotFoundError, UsageError
from weft.store.filesystems import file_systems
from weft.store.places import STAGE
from weft.store.state import PROFILE_OF_RUN, STORAGE, WORKERS, StateRoot, current_user, read_description


def load_pipeline(
    path: str,
    *,
    overrides: Mapping[str, str] | None = None,
    user: str = "",
    name: str | None = None,
    caching: Caching | None = None,
    around: Surroundings | None = None,
    profile: str = "",
) -> Loaded:
    """Read and check a pipeline file (YAML, JSON, or `file.py:name`); nothing is started or written.

    `overrides` maps `parameter` or `step.parameter` to a value; `name` replaces the name of the pipeline; `caching` has
    the run options of the cache, `around` those of the surroundings; `profile` names one of the file or of `weft.toml`,
    whose parameters `overrides` overrides. NotFoundError, ForbiddenError: the file cannot be read. PipelineError lists
    every mistake. UsageError: a wrong override, name or profile.
    """
    found = profile_of(path, profile) if profile else None
    given = {} if found is None else found.parameters
    origin = origin_of(path, layered(path, given, overrides or {}), name)
    return _load(replace(origin, profile=found), user, caching, around)


def load_text(
    text: str,
    path: str,
    *,
    overrides: Mapping[str, object] | None = None,
    user: str = "",
    name: str | None = None,
    caching: Caching | None = None,
    around: Surroundings | None = None,
    profile: Profile | None = None,
) -> Loaded:
    """Check the text of a pipeline that a program has built; otherwise as `load_pipeline`.

    `overrides` has the parameters of the `profile` too.
    """
    renamed = None if name is None else pipeline_name(name)
    origin = PipelineSource(text, path, dict(overrides or {}), renamed, STEP_KINDS, profile=profile)
    return _load(origin, user, caching, around)


def _load(origin: PipelineSource, user: str, caching: Caching | None, around: Surroundings | None) -> Loaded:
    around = around or Surroundings()
    base = Path(os.path.abspath(origin.file)).parent  # without `..`
    stage = around.stage or StateRoot.find(base).path / STAGE
    bound = file_systems(base, around.file_systems, stage)
    pipeline = origin.pipeline()
    main = main_name(pipeline, around.file_systems, bound)
    if main:
        origin = replace(origin, main_fs=main)
        pipeline = origin.pipeline()
    if around.settings.get("tensorboard", "off") != "off" and not any(map(trains, pipeline.steps.values())):
        raise UsageError(
            f"--tensorboard cannot be used here: no step of {origin.file} is a training job",
            hint="Leave it out. Event files of commands are shown by: tensorboard --logdir FOLDER",
        )
    return Loaded(
        pipeline,
        origin,
        main_root(pipeline, Path(origin.file), {name: one.folder for name, one in bound.items()}),
        user or current_user(),
        {name: str(one.folder) for name, one in bound.items()},
        {name: one.url for name, one in bound.items() if one.url},
        caching or Caching(),
        around,
    )


def loaded_again(folder: Path, file: str) -> Loaded:
    """Load the pipeline of a run from its folder, since the file may have changed or be gone."""
    try:
        description = read_description(folder)
    except FileNotFoundError:
        description = {}
    text, root, user = description.get("text"), description.get("root"), description.get("user")
    overrides, renamed = description.get("overrides"), description.get("renamed")
    if not (isinstance(text, str) and isinstance(root, str) and isinstance(user, str) and isinstance(overrides, dict)):
        raise ConflictError(
            f"{folder.name} lacks the records for a resume: it ended too early, or an older version wrote it",
            hint="Start a new run.",
        )
    if not Path(root).is_dir():
        raise NotFoundError(f"the folder {root} of {folder.name} is missing", hint="Start a new run.")
    built_with = description.get("built_with")
    built_with = built_with if isinstance(built_with, dict) else {}
    main_fs = str(description.get("main_fs") or "")
    said = description.get(PROFILE_OF_RUN)
    profile = Profile(**said) if isinstance(said, dict) else None
    origin = PipelineSource(text, file, overrides, renamed, STEP_KINDS, built_with, main_fs, profile)
    pipeline = origin.pipeline()
    bound = description.get("file_systems")
    names = bound if isinstance(bound, dict) else {}
    targets = tuple(map(str, description.get("targets") or ()))
    caching = Caching(
        off=bool(description.get("cache_off")),
        refresh=frozenset(map(str, description.get("refresh") or ())),
        start=str(description.get("from") or ""),
        only=str(description.get("only") or ""),
        targets=targets,
    )
    workers = description.get(WORKERS)
    stored = description.get(STORAGE)
    stored = stored if isinstance(stored, dict) else {}
    around = Surroundings(
        mounts=description.get("mounts") is not False,
        docker_env=str(description.get("docker_env") or "ignore"),
        trace=description.get("trace") is not False,
        workers=workers if isinstance(workers, int) else 0,
        settings=description.get("settings") or {},
        storage=str(stored.get("url") or ""),
        storage_key=str(stored.get("key") or ""),
        storage_keep=bool(stored.get("keep")),
    )
    urls = description.get("urls")
    urls = urls if isinstance(urls, dict) else {}
    by = description.get("containers")
    containers = ContainerImages(**by) if isinstance(by, dict) else None
    return Loaded(pipeline, origin, Path(root), user, names, urls, caching, around, containers)
