"""A dag that loops over the content of an artifact: one vertex reads the list and returns a patch."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from weft.frontends.pipelines.body import fail_if_asked, read_list
from weft.frontends.pipelines.compiler import compile_items
from weft.frontends.pipelines.language import Dag
from weft.frontends.pipelines.overrides import make_pipeline
from weft.frontends.pipelines.parts import delivered_paths, tuple_of
from weft.frontends.pipelines.profiles import Profile
from weft.frontends.pipelines.resolve import as_items
from weft.frontends.pipelines.resolved import ComponentScope
from weft.frontends.pipelines.states import IS_EMPTY, NOT_RUN
from weft.model.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.frontends.pipelines.language import Pipeline
    from weft.graph.logical import Patch
    from weft.graph.task import TaskContext, TaskInput


def repeat(ctx: TaskContext, inputs: Mapping[str, TaskInput]) -> Patch:
    """Return the patch that adds a dag's steps for every item (style TASK).

    Parameters: `dag` (its dotted name), `name` (its name for users), `parameters` and `inputs` (of the dag), `input`
    (the artifact with the list), and `repeating`, as `compile_run` writes it. TaskError: the artifact holds no list.
    """
    params = ctx.params
    where = {
        name: tuple(delivered_paths(places, lambda source: inputs[f"{source}->{ctx.vertex}"].all()[0]))
        for name, places in params["inputs"].items()
    }
    items = read_list(list(where[params["input"]]), params["name"], params["input"])
    origin = params["repeating"]["origin"]
    overrides = json.dumps(origin["overrides"], sort_keys=True)
    kinds = json.dumps(origin["kinds"], sort_keys=True)
    profile = json.dumps(origin.get("profile"), sort_keys=True)
    pipeline = _made_again(
        origin["text"], origin["file"], overrides, origin["renamed"], kinds, origin["main_fs"], profile
    )
    if not items:
        fail_if_asked(params["name"], pipeline.as_paddleflow)
        ctx.emit(NOT_RUN, IS_EMPTY)
    dag = find_dag(pipeline, params["dag"])
    scope = ComponentScope(
        id=ctx.vertex,
        name=params["name"],
        dotted=params["dag"],
        parameters={name: tuple_of(value) for name, value in params["parameters"].items()},
        inputs=where,
        entry=(ctx.vertex,),
    )
    found = as_items([tuple_of(item) for item in items], pipeline.as_paddleflow)
    return compile_items(pipeline, dag, scope, found, params["repeating"])


@lru_cache(maxsize=8)
def _made_again(
    text: str, file: str, overrides: str, renamed: str | None, kinds: str, main_fs: str, profile: str
) -> Pipeline:
    said = json.loads(profile)
    return make_pipeline(
        text,
        file,
        json.loads(overrides),
        renamed,
        json.loads(kinds),
        main_fs,
        None if said is None else Profile(**said),
    )


def find_dag(pipeline: Pipeline, dotted: str) -> Dag:
    """Return the dag of a dotted name. InternalError: there is none."""
    components = pipeline.entry_points
    found: Any = None
    for name in dotted.split("."):
        found = components.get(name)
        components = found.children if isinstance(found, Dag) else {}
    if not isinstance(found, Dag):
        raise InternalError(f"the pipeline has no dag {dotted!r} any more")
    return found
