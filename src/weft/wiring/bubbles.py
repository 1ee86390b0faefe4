"""Bubbles by the names of their settings, for front ends whose graphs have none of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from weft.policies.bubbles import (
    CostModel,
    alone,
    apply_cut,
    batch,
    cost,
    efficient,
    estimates_of,
    gang,
    greedy,
    may_stream,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.graph.logical import Edge, LogicalGraph
    from weft.policies.bubbles import Cut

BUBBLES: Final = ("batch", "gang", "greedy", "efficient", "cost")
"""The settings: `weft.policies.bubbles` has a cut of each name."""

WARM: Final = CostModel(cold_s=CostModel().warm_s)
"""The costs in a session: its workers wait for tasks, so a task outside of a bubble does not wait for its worker."""


class FittingBubbles(NamedTuple):
    """The bubbles of a graph that fit into the slots, and why the other vertices stay alone, by their ids."""

    groups: tuple[tuple[str, ...], ...]
    stored: dict[str, str]


def fitting(graph: LogicalGraph, setting: str, slots: int) -> FittingBubbles:
    """Return the bubbles of a graph by a setting of `BUBBLES`.

    A group with more tasks than `slots`, or inside of which nothing streams, is no bubble.
    """
    found = _cut(graph, setting, slots)
    tasks = estimates_of(graph)
    apart = alone(graph)
    groups = []
    stored: dict[str, str] = {}
    for group in found:
        wanted = sum(tasks[id].tasks for id in group)
        streams = bool(streams_in(graph, group))
        if streams and wanted <= slots:
            groups.append(group)
            continue
        if streams:
            why = f"no bubble: {wanted} tasks would run at once, and there are {slots} slots"
        elif apart.issuperset(group):
            why = "no bubble: it waits for a decision that is made from measured data"
        else:
            why = "no bubble: no neighbour that fits beside it streams to it or from it"
        stored.update(dict.fromkeys(group, why))
    return FittingBubbles(tuple(groups), stored)


def streams_in(graph: LogicalGraph, group: Sequence[str]) -> list[Edge]:
    """Return the edges that stream inside of a bubble."""
    return [edge for edge in graph.edges if edge.src in group and edge.dst in group and may_stream(graph, edge)]


def _cut(graph: LogicalGraph, setting: str, slots: int) -> Cut:
    if setting == "batch":
        return batch(graph)
    if setting == "gang":
        return gang(graph)
    if setting == "greedy":
        return greedy(graph, slots)
    if setting == "efficient":
        return efficient(graph, slots)
    return cost(graph, slots, costs=WARM)


def with_bubbles(graph: LogicalGraph, groups: Cut) -> LogicalGraph:
    """Return a copy of a graph whose edges inside of `groups` stream, where they may."""
    taken = {id for group in groups for id in group}
    return apply_cut(graph, (*groups, *((id,) for id in graph.vertices if id not in taken)))
