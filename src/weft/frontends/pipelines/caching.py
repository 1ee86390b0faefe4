"""What the result of a step depends on, as the cache wants to know it.

A key names no run, no path that only one run has, and not the step: only what the step is given and what it reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from weft.frontends.pipelines.parts import Delivered, Folder, text_to_json, told
from weft.frontends.pipelines.templates import USER_NAME
from weft.store.results import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from weft.frontends.pipelines.language import Pipeline
    from weft.frontends.pipelines.parts import Filled
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
    """Return the recipe of a step; None if it is neither looked up nor kept.

    Of a step that loops it is that of no item yet: `recipe_of` puts in what differs. Nothing is kept of steps with
    inputs that are told by a dag which loops over an artifact, nor of those whose items ask a condition.
    """
    if place is None or not step.cache.enable or step.skipped or step.condition:
        return None
    if any(isinstance(p, Delivered) and p.folder is None for places in step.delivered.values() for p in places):
        return None
    static = {
        "command": step.portable_command,
        "image": place.images.get(step.docker_env, step.docker_env),
        "user": _written(step.env.get(USER_NAME, "")),
        **{f"parameter {name}": json.dumps(value) for name, value in step.parameters.items()},
        **{
            f"environment {name}": _written(value)
            for name, value in step.declared_env.items()
            if name not in _PLACEMENT
        },
        **{f"input name {name}": "" for name in step.places},
        **{f"output name {name}": "" for name in step.outputs},
    }
    if pipeline.main_fs is not None:
        mount = pipeline.main_fs
        static[f"mount {mount.name}"] = json.dumps([mount.sub_path, mount.mount_path, mount.read_only])
    for number, point in enumerate(step.mounts[0 if pipeline.main_fs is None else 1 :]):
        static[f"mount {number} {point.name}"] = json.dumps([point.sub_path, point.mount_path, point.read_only])
    folders = {point.name: point.source for point in reversed(step.mounts) if point.source is not None}
    return Recipe(
        pipeline=pipeline.name,
        step=step.name,
        run=place.run,
        index=str(place.index),
        store=f"{step.cwd}/{STORE}",
        root=step.cwd,
        static=static,
        inputs={name: [p for p in places if isinstance(p, str)] for name, places in step.places.items()},
        scopes=[
            [f"{scope.name}:{path}", str(PurePosixPath(folders.get(scope.name, step.cwd), path.strip("/")))]
            for scope in step.cache.fs_scope
            for path in scope.paths
        ],
        outputs=dict(step.outputs),
        expires_s=float(step.cache.max_expired_time),
        mode=step.cache.mode,
    )


def recipe_of(
    params: Mapping[str, Any],
    index: int,
    item: Any = None,
    inputs: Mapping[str, list[str]] | None = None,
    width_of: Callable[[str], int] = lambda _: 0,
) -> Recipe | None:
    """Return the recipe of a task, from the parameters of its program and its item.

    `inputs` says where the inputs lie of which that was not known before; without it `width_of` says how many tasks a
    vertex has, which tells as much.
    """
    said = params.get(RECIPE)
    if said is None:
        return None
    recipe = replace(Recipe.from_json(said), task=index)
    if "inputs" in params:
        found = inputs or {
            name: told(places, lambda source: range(width_of(source.rpartition("/")[0])))
            for name, places in params["inputs"].items()
        }
        recipe = replace(recipe, inputs=dict(found))
    if "folder" in params:
        folder = Folder(**params["folder"])
        outputs = {name: folder.path(name, index) for name in params["outputs"]}
        static = {**recipe.static, "loop argument": json.dumps(item)}
        recipe = replace(recipe, outputs=outputs, static=static)
    return recipe


def _written(text: Filled) -> str:
    return text if isinstance(text, str) else json.dumps(text_to_json(text))
