"""The tasks of a pipeline as the cache would be asked for them, before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.frontends.pipelines.caching import recipe_of
from weft.frontends.pipelines.compiler import outputs_of
from weft.frontends.pipelines.layout import check_run, compile_loaded, in_containers, place_of
from weft.frontends.pipelines.options import refreshed_vertices
from weft.frontends.pipelines.resolved import ResolvedStep
from weft.model.ids import item_name
from weft.store.planning import PlannedTask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from weft.frontends.pipelines.work import PipelineWork
    from weft.graph.logical import Vertex


def planned_tasks(loaded: PipelineWork, folder: Path) -> list[PlannedTask]:
    """Return the tasks of the steps that a run in `folder` would have, in an order of dependency. Nothing is made.

    UsageError, DefinitionError: the run is impossible on this machine.
    """
    loaded = in_containers(loaded, lambda _: None, pull=False)
    compiled = compile_loaded(loaded, folder.name, place_of(loaded, folder))
    check_run(loaded, compiled, mounted=False)
    refreshed = refreshed_vertices(compiled.graph, loaded.caching)
    chosen = [
        (node, compiled.graph.vertices[node.id])
        for node in compiled.nodes
        if isinstance(node, ResolvedStep) and node.id in compiled.graph.vertices
    ]
    return [
        task
        for node, vertex in sorted(chosen, key=lambda one: one[1].final)
        for task in _tasks(node, vertex, refresh=node.id in refreshed, cache_off=loaded.caching.off)
    ]


def _tasks(node: ResolvedStep, vertex: Vertex, *, refresh: bool, cache_off: bool) -> Iterator[PlannedTask]:
    """Yield the tasks of one step: one, or one for each item of its loop."""
    depends = "on the list that it loops over" if node.lister else "on a loop above" if node.delivered else ""
    uncached = "its cache is not enabled"
    if vertex.final:
        uncached = "it runs at the end of every run"
    elif cache_off and node.cache.enable:
        uncached = "no result is used or kept (--no-cache)"
    items = vertex.program.items or (None,)
    for number, item in enumerate(items):
        yield PlannedTask(
            step=item_name(node.name, number),
            recipe=None if depends or vertex.final else recipe_of(vertex.program.params, number, item),
            makes=() if node.lister else tuple(outputs_of(vertex, number).values()),
            skipped="it is disabled" if node.disabled else "it loops over nothing" if node.skipped else "",
            refresh=refresh,
            depends=depends,
            uncached=uncached,
        )
