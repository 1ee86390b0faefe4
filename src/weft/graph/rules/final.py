"""The rules of final vertices, which run after all others have ended, whatever their outcome.

No other vertex may depend on a final vertex, and no final vertex on the success of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.graph.logical import Outcome, SameAs, Source, Trigger, VertexKind
from weft.model.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.graph.logical import Edge, LogicalGraph, Vertex


def check_final(graph: LogicalGraph, vertices: Sequence[Vertex]) -> None:
    """Raise GraphError for the first rule that the final `vertices` of `graph` break."""
    if not vertices:
        return
    final = {vertex.id for vertex in vertices}
    for vertex in vertices:
        if vertex.kind is not VertexKind.FINITE:
            raise _broken(vertex.id, f"vertex {vertex.id!r} is final and a service", "A service ends with its readers.")
        _check_width(graph, vertex)
    for edge in graph.edges:
        if (edge.src in final) != (edge.dst in final):
            _check_edge(edge, edge.dst in final)
    groups = [(f"bubble {bubble.id!r}", bubble.vertices) for bubble in graph.bubbles]
    groups += [
        (f"choice {choice.id!r}", (choice.decider, *(id for ids in choice.branches.values() for id in ids)))
        for choice in graph.choices
    ]
    for name, members in groups:
        inside = final.intersection(members)
        if inside and not final.issuperset(members):
            raise _broken(
                min(inside), f"{name} has final vertices and others", "Make all of its vertices final, or none."
            )


def _check_width(graph: LogicalGraph, vertex: Vertex) -> None:
    """Raise GraphError if the number of tasks of a final vertex depends on the outcome of other vertices."""
    width = vertex.parallelism
    other = width.expander if isinstance(width, Source) else width.vertex if isinstance(width, SameAs) else ""
    if other and other in graph.vertices and not graph.vertices[other].final:
        raise _broken(
            vertex.id,
            f"vertex {vertex.id!r} is final, and {other!r}, which is not, says how many tasks it has",
            "Give it a number of tasks: it runs even if the other one fails.",
        )


def _check_edge(edge: Edge, inward: bool) -> None:
    scheduling = edge.scheduling
    if not inward:
        raise _broken(
            edge.id, f"edge {edge.id} leads out of a final vertex to one that is not", "Make its destination final too."
        )
    if scheduling.concurrent or scheduling.when is not Trigger.ALL_DONE or scheduling.outcome is not Outcome.ANY:
        raise _broken(
            edge.id,
            f"edge {edge.id} makes a final vertex wait for more than the end of another",
            "Give the edge outcome=Outcome.ANY: a final vertex runs whatever happened.",
        )


def _broken(subject: str, message: str, hint: str) -> GraphError:
    return GraphError(message, subject=subject, rule="final", hint=hint)
