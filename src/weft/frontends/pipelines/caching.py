"""What the result of a step depends on, as the cache wants to know it.

A key names no run, no path that only one run has, and not the step: only what the step is given and what it reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from weft.frontends.pipelines.templates import USER_NAME
from weft.store.results import Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from weft.frontends.pipelines.language import Pipeline
    from weft.frontends.pipelines.resolve import ResolvedStep

RECIPE = "cache"
"""The parameter of a step's program that holds its recipe."""
STORE = ".pipeline/.cas"
"""Where the content of results is kept, below the folder of the main file system that steps work in."""
_PLACEMENT = frozenset(
    {"PF_JOB_QUEUE_NAME", "PF_JOB_FLAVOUR", "PF_JOB_LIMIT_FLAVOUR", "PF_JOB_PRIORITY", "PF_JOB_NAMESPACE"}
)
"""Variables that say where a step runs and not what it does: a move to another queue changes no result."""


@dataclass(frozen=True, slots=True)
class CachePlace:
    """The cache of one run: the file of the index, and the run's id.

    `images` maps images to the digests of their content, as far as they are known.
    """

    index: Path
    run: str
    images: Mapping[str, str] = field(default_factory=dict)


def describe(pipeline: Pipeline, step: ResolvedStep, place: CachePlace | None) -> Recipe | None:
    """Return the recipe of a step; None if it is neither looked up nor kept."""
    if place is None or not step.cache.enable or step.disabled:
        return None
    static = {
        "command": step.portable_command,
        "image": place.images.get(step.docker_env, step.docker_env),
        "user": step.env.get(USER_NAME, ""),
        **{f"parameter {name}": json.dumps(value) for name, value in step.parameters.items()},
        **{f"environment {name}": value for name, value in step.declared_env.items() if name not in _PLACEMENT},
        **{f"input name {name}": "" for name in step.inputs},
        **{f"output name {name}": "" for name in step.outputs},
    }
    if pipeline.main_fs is not None:
        mount = pipeline.main_fs
        static[f"mount {mount.name}"] = json.dumps([mount.sub_path, mount.mount_path, mount.read_only])
    return Recipe(
        pipeline=pipeline.name,
        step=step.name,
        run=place.run,
        index=str(place.index),
        store=f"{step.cwd}/{STORE}",
        root=step.cwd,
        static=static,
        inputs={name: path.split(",") for name, path in step.inputs.items()},
        scopes=[
            [f"{scope.name}:{path}", str(PurePosixPath(step.cwd, path.strip("/")))]
            for scope in step.cache.fs_scope
            for path in scope.paths
        ],
        outputs=dict(step.outputs),
        expires_s=float(step.cache.max_expired_time),
        mode=step.cache.mode,
    )


def recipe_of(params: Mapping[str, Any], index: int) -> Recipe | None:
    """Return the recipe of a task, from the parameters of its program."""
    said = params.get(RECIPE)
    return None if said is None else replace(Recipe.from_params(said), task=index)
