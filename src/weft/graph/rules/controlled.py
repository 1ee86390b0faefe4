"""The rules of controlled vertices: their tasks start and stop by decisions of the controller of the graph alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.graph.logical import Manager, MovementKind, OnFailure, Range, Trigger
from weft.model.errors import GraphError

if TYPE_CHECKING:
    from weft.graph.logical import Bubble, Edge, LogicalGraph, Vertex


def check_controlled(graph: LogicalGraph) -> None:
    """Raise GraphError for the first rule that the controller, or a controlled vertex of `graph`, breaks."""
    controlled = {id for id, vertex in graph.vertices.items() if vertex.controlled}
    if graph.controller is None:
        if controlled:
            id = min(controlled)
            raise _broken(
                id, f"vertex {id!r} is controlled, and the graph has no controller", "Set the controller of the graph."
            )
        return
    if not isinstance(graph.controller, Manager):
        raise _broken(graph.name, "the controller of the graph is no Manager", "Give Manager(name, params).")
    if not controlled:
        raise _broken(
            graph.name, "the graph has a controller and no controlled vertex", "Set controlled=True on a vertex."
        )
    if graph.on_failure is not OnFailure.FAIL_FAST:
        raise _broken(
            graph.name,
            "the graph has a controller, and is to go on after failures",
            "Leave out on_failure: the controller decides about failures of its tasks, and others fail the job.",
        )
    for id in controlled:
        _check_vertex(graph.vertices[id])
    for edge in graph.edges:
        if edge.src in controlled or edge.dst in controlled:
            _check_edge(graph, edge, controlled)
    for choice in graph.choices:
        for inside in controlled.intersection(id for branch in choice.branches.values() for id in branch):
            raise _broken(
                inside,
                f"vertex {inside!r} is controlled, and on a branch of choice {choice.id!r}",
                "Leave it out of the choice: its controller decides whether it starts.",
            )
    for bubble in graph.bubbles:
        _check_bubble(bubble, controlled)


def _check_vertex(vertex: Vertex) -> None:
    n = vertex.parallelism
    if not isinstance(n, (int, Range)) or n == 0:
        raise _broken(
            vertex.id,
            f"vertex {vertex.id!r} is controlled, and its number of tasks is not given",
            "Give a number of at least 1, or Range(lo, hi) for up to hi tasks.",
        )
    refused = {
        "final": vertex.final,
        "a cache key": vertex.cache_key is not None,
        "a manager": vertex.manager is not None,
        "expands=True": vertex.expands,
        "lazy=True": vertex.lazy,
        "keep=True": bool(vertex.keep),
    }
    for what, is_set in refused.items():
        if is_set:
            raise _broken(
                vertex.id,
                f"vertex {vertex.id!r} is controlled and {'is' if what == 'final' else 'has'} {what}",
                "Its tasks have no values, and may start again at any time.",
            )


def _check_edge(graph: LogicalGraph, edge: Edge, controlled: set[str]) -> None:
    if edge.movement.move is not MovementKind.NONE:
        raise _broken(
            edge.id,
            f"edge {edge.id} carries data, and joins a controlled vertex",
            "Make it order-only: after(...), or the movement NONE.",
        )
    final = graph.vertices[edge.dst].final
    if edge.src in controlled and not final and edge.scheduling.when is Trigger.ALL_DONE:
        raise _broken(
            edge.id,
            f"edge {edge.id} waits for the end of a controlled vertex, which ends with the job",
            "Make the edge concurrent, or let it wait for an event.",
        )


def _check_bubble(bubble: Bubble, controlled: set[str]) -> None:
    inside = controlled.intersection(bubble.vertices)
    if inside and not controlled.issuperset(bubble.vertices):
        raise _broken(
            bubble.id, f"bubble {bubble.id!r} has controlled vertices and others", "Make all controlled, or none."
        )
    if inside and not bubble.whole:
        raise _broken(
            bubble.id,
            f"bubble {bubble.id!r} of controlled vertices is not whole",
            "Set whole=True: the controller decides about a bubble without slots.",
        )


def _broken(subject: str, message: str, hint: str) -> GraphError:
    return GraphError(message, subject=subject, rule="controlled", hint=hint)
