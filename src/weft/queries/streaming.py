"""Stages in bubbles: which stages of a query run together and stream their rows to one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from weft.frontends.sql.compiler import may_settle
from weft.graph.logical import Storage
from weft.wiring.bubbles import fitting, streams_in, with_bubbles

if TYPE_CHECKING:
    from weft.frontends.sql.stages import QueryPlan, Weigh
    from weft.graph.builder import Graph, VertexHandle
    from weft.graph.logical import LogicalGraph

Compile = Callable[[Mapping[int, int]], "tuple[Graph, list[VertexHandle]]"]
"""Compiles a plan with numbers of tasks that are settled, by the numbers of the stages."""


class StreamedGraph(NamedTuple):
    """A graph with bubbles, the nodes that deliver the rows, and for each vertex its bubble in words."""

    graph: LogicalGraph
    nodes: list[VertexHandle]
    told: Mapping[str, str]


def widths(plan: QueryPlan, weigh: Weigh, target: int, most: int) -> dict[int, int]:
    """Return numbers of tasks of stages that stream: one for each `target` bytes of the files below, at most `most`.

    A bubble starts before any of its rows are measured.
    """
    weights: list[float] = []
    found = {}
    for stage in plan.stages:
        sources = {source for exchange in stage.exchanges for source in exchange.sources}
        weights.append(weigh(stage.relation) + sum(weights[source] for source in sources))
        if may_settle(stage):
            found[stage.number] = max(1, min(most, ceil(weights[-1] / target)))
    return found


def in_bubbles(compile: Compile, settled: Mapping[int, int], setting: str, slots: int) -> StreamedGraph:
    """Return the graph of a query whose stages are in the bubbles of a setting.

    The number of tasks of a stage is settled only where rows stream to it; others go by measured bytes.
    """
    told: dict[str, str] = {}
    while True:
        graph, nodes = compile(settled)
        bubbles = fitting(graph, setting, slots)
        told = {**bubbles.stored, **told}  # the first reason is that of its own number of tasks
        reached = {edge.dst for group in bubbles.groups for edge in streams_in(graph, group)}
        inside = {id for group in bubbles.groups for id in group}
        kept = {number: n for number, n in settled.items() if f"stage_{number}" in reached}
        told.update(
            (id, "no bubble: the number of its tasks follows from measured rows")
            for id in (f"stage_{number}" for number in settled.keys() - kept.keys())
            if id in inside
        )
        if len(kept) == len(settled):
            break
        settled = kept
    for number, group in enumerate(bubbles.groups, 1):
        told.update(dict.fromkeys(group, f"bubble {number}: {_listed(group)} run at once and stream"))
    return StreamedGraph(_streaming(with_bubbles(graph, bubbles.groups)), nodes, told)


def _listed(group: tuple[str, ...]) -> str:
    return "stages " + ", ".join(id.removeprefix("stage_") for id in group)


def _streaming(graph: LogicalGraph) -> LogicalGraph:
    """Tell the tasks of a graph which of their edges are streams."""
    arriving: dict[str, list[str]] = {}
    sending: dict[str, list[str]] = {}
    streams = {edge.id for edge in graph.edges if edge.storage is Storage.EPHEMERAL}
    senders = {edge.src for edge in graph.edges if edge.id in streams}
    for edge in graph.edges:
        if edge.id in streams:
            arriving.setdefault(edge.dst, []).append(edge.id)
        if edge.src in senders and edge.carries_data:
            sending.setdefault(edge.src, []).append(edge.id)
    for id, vertex in graph.vertices.items():
        more: dict[str, Any] = {}
        if id in arriving:
            more["arriving"] = arriving[id]
        if id in sending:
            more["sending"] = sending[id]
        if more:
            program = replace(vertex.program, params={**vertex.program.params, **more})
            # Rows are counted in what a task returns, and such a task returns nothing.
            graph.vertices[id] = replace(vertex, program=program, counted=vertex.counted and id not in sending)
    return graph
