"""The check of a whole graph, by the rules of its parts (`weft.graph.rules`).

Every submission goes through `validate`, so the common vertex (all defaults) and the common edge (one to one,
sequential, local) are recognised by identity and cost a few comparisons. A broken rule raises a GraphError that names
the vertex or edge (`subject`) and the rule (`rule`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.graph.logical import (
    DEFAULT_BACKOFF,
    LogicalGraph,
    MovementKind,
    VertexKind,
)
from weft.graph.order import topological
from weft.graph.rules.controlled import check_controlled
from weft.graph.rules.edges import check_edges, check_served
from weft.graph.rules.final import check_final
from weft.graph.rules.groups import check_bubbles, check_choices, check_references
from weft.graph.rules.size import check_size
from weft.graph.rules.tokens import check_held_tokens
from weft.graph.rules.vertices import bad_name, check_backoff, check_limit, check_vertices
from weft.model.ids import is_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.model.resources import Resources


def validate(graph: LogicalGraph, capacity: Sequence[Resources] | None = None, *, many_machines: bool = False) -> None:
    """Raise GraphError for the first rule that `graph` breaks; InputLimitError if the graph is too large.

    `capacity` lists the resources of each worker, or of `many_machines`: CapacityError for a vertex that fits none. An
    order-only edge with the default storage gets the storage none.
    """
    check_size(graph)
    if not is_name(graph.name):
        raise bad_name("graph", graph.name)
    if not is_name(graph.frontend):
        raise bad_name("front end", graph.frontend)
    for token, count in graph.limits.items():
        check_limit(token, count)
    if graph.backoff != DEFAULT_BACKOFF:
        check_backoff(graph.backoff)
    services = check_vertices(graph, graph.vertices.values(), capacity, many_machines=many_machines)
    check_served(services, check_edges(graph, graph.edges))
    check_held_tokens(graph, graph.edges)
    topological(graph)
    check_references(graph, graph.vertices.values())
    if graph.bubbles:
        check_bubbles(graph)
    if graph.choices:
        check_choices(graph, graph.choices)
    check_controlled(graph)
    check_final(graph, [vertex for vertex in graph.vertices.values() if vertex.final])


def mark_results(graph: LogicalGraph) -> None:
    """Set `keep` on every finite vertex with undecided `keep` whose values no edge reads.

    The master reads a vertex that `expands`, so such a vertex is no result; nor is a controlled one.
    """
    nothing = MovementKind.NONE
    read = {edge.src for edge in graph.edges if edge.movement.move is not nothing}
    for id, vertex in graph.vertices.items():
        if vertex.keep is None and id not in read and not vertex.expands and vertex.kind is VertexKind.FINITE:
            vertex.keep = not vertex.controlled
