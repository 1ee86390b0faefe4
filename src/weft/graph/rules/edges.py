"""The rules of one edge: its ends, its name, and which movement, scheduling and storage go together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from weft.graph.grid import check_grid
from weft.graph.logical import (
    ONE_TO_ONE,
    SEQUENTIAL,
    Edge,
    LogicalGraph,
    MovementKind,
    Outcome,
    Parallelism,
    SameAs,
    Storage,
    Trigger,
    Vertex,
    VertexKind,
)
from weft.graph.routing import CUSTOM, bind
from weft.graph.rules.vertices import number
from weft.model.errors import GraphError
from weft.model.suggestions import did_you_mean


def check_edges(graph: LogicalGraph, edges: Sequence[Edge]) -> set[str]:
    """Check each edge and its end points; return the ids of the services that have a consumer."""
    vertices = graph.vertices
    seen: set[str | tuple[str, str]] = set()
    served: set[str] = set()
    bubble_of: dict[str, str] | None = None
    local, nothing, service = Storage.LOCAL, MovementKind.NONE, VertexKind.SERVICE
    for edge in edges:
        src, dst = vertices.get(edge.src), vertices.get(edge.dst)
        if src is None or dst is None:
            raise _unknown_end(graph, edge)
        if src is dst:
            raise GraphError(f"vertex {edge.src!r} feeds itself", subject=edge.src, rule="self-loop")
        key = edge.name or (edge.src, edge.dst)
        if key in seen:
            raise _duplicate(edge)
        seen.add(key)
        if edge.name:
            _check_edge_name(edge)
        movement, scheduling = edge.movement, edge.scheduling
        if movement is ONE_TO_ONE:
            n = src.parallelism
            if n != dst.parallelism or type(n) is not int:
                _check_one_to_one(graph, edge, src, dst)
        else:
            _check_movement(graph, edge, src, dst)
        if scheduling is not SEQUENTIAL:
            _check_scheduling(edge)
        if edge.storage is not local or movement.move is nothing:
            if bubble_of is None:
                bubble_of = {id: bubble.id for bubble in graph.bubbles for id in bubble.vertices}
            _check_storage(edge, src, bubble_of)
        if src.kind is service:
            _check_from_service(edge)
            served.add(edge.src)
    named = {key for key in seen if type(key) is str and "->" in key}
    if named:
        _check_shadowed(edges, named)
    return served


def _unknown_end(graph: LogicalGraph, edge: Edge) -> GraphError:
    end = edge.dst if edge.src in graph.vertices else edge.src
    return GraphError(
        f"edge {edge.id} names the unknown vertex {end!r}",
        subject=edge.id,
        rule="unknown-vertex",
        hint=did_you_mean(end, graph.vertices),
    )


def _duplicate(edge: Edge) -> GraphError:
    message = f"two edges have the name {edge.name!r}" if edge.name else f"two edges join {edge.src!r} to {edge.dst!r}"
    return GraphError(message, subject=edge.id, rule="duplicate-edge", hint="Give each a name of its own with name=.")


def _check_shadowed(edges: Iterable[Edge], named: set[str]) -> None:
    """Raise GraphError if the name of one edge equals the default id of another."""
    for edge in edges:
        if not edge.name and edge.id in named:
            raise _duplicate(Edge(edge.src, edge.dst, name=edge.id))


def _check_edge_name(edge: Edge) -> None:
    name = edge.name
    if len(name) > 450 or not name.isascii() or not name.isprintable() or " " in name:
        raise GraphError(
            f"edge name {name!r} is not allowed",
            subject=name,
            rule="name",
            hint="Use up to 450 printable ASCII characters.",
        )


def fixed(graph: LogicalGraph, n: Parallelism) -> int | None:
    """Return the number of tasks if it is known before the job runs, else None. SameAs is followed."""
    seen = 0
    while isinstance(n, SameAs) and n.vertex in graph.vertices and seen <= len(graph.vertices):
        n = graph.vertices[n.vertex].parallelism
        seen += 1
    return n if isinstance(n, int) else None


def _check_one_to_one(graph: LogicalGraph, edge: Edge, src: Vertex, dst: Vertex) -> None:
    n_src, n_dst = fixed(graph, src.parallelism), fixed(graph, dst.parallelism)
    if n_src is not None and n_dst is not None and n_src != n_dst:
        raise GraphError(
            f"edge {edge.id}: one_to_one joins {n_src} tasks of {edge.src!r} to {n_dst} of {edge.dst!r}",
            subject=edge.id,
            rule="one-to-one-parallelism",
            hint="Give both vertices the same parallelism, or use broadcast, scatter_gather or a grid.",
        )


def _check_movement(graph: LogicalGraph, edge: Edge, src: Vertex, dst: Vertex) -> None:
    movement = edge.movement
    move = movement.move
    if move is MovementKind.ONE_TO_ONE:
        _check_one_to_one(graph, edge, src, dst)
    elif move is MovementKind.GRID:
        check_grid(edge, fixed(graph, src.parallelism), fixed(graph, dst.parallelism))
    elif move is MovementKind.SCATTER_GATHER and movement.partitions < 0:
        raise GraphError(f"edge {edge.id} has {movement.partitions} partitions", subject=edge.id, rule="partitions")
    elif move is MovementKind.CUSTOM and movement.name not in CUSTOM:
        raise GraphError(
            f"edge {edge.id}: no router is registered as {movement.name!r}",
            subject=edge.id,
            rule="custom-router",
            hint=did_you_mean(movement.name, CUSTOM) or f"Registered: {', '.join(sorted(CUSTOM)) or 'none'}.",
        )
    elif move is MovementKind.CUSTOM:
        n_src, n_dst = fixed(graph, src.parallelism), fixed(graph, dst.parallelism)
        if n_src is not None and n_dst is not None:
            bind(edge, n_src, n_dst)


_WHEN = {
    False: (Trigger.ALL_DONE, Trigger.FRACTION, Trigger.EVENT),
    True: (Trigger.SOURCE_CONFIGURED, Trigger.SOURCE_RUNNING, Trigger.EVENT),
}


def _check_scheduling(edge: Edge) -> None:
    scheduling = edge.scheduling
    when, concurrent = scheduling.when, scheduling.concurrent
    if when not in _WHEN[concurrent]:
        raise GraphError(
            f"edge {edge.id} is {'concurrent' if concurrent else 'sequential'} and cannot wait for {when.value}",
            subject=edge.id,
            rule="trigger",
            hint=f"Such an edge waits for {', '.join(each.value for each in _WHEN[concurrent])}.",
        )
    if not (number(scheduling.fraction) and 0 < scheduling.fraction <= 1):
        raise GraphError(
            f"edge {edge.id} waits for the fraction {scheduling.fraction!r} of its source",
            subject=edge.id,
            rule="fraction",
            hint="Give a number above 0 and at most 1.",
        )
    if (when is Trigger.EVENT) != bool(scheduling.event):
        raise GraphError(
            f"edge {edge.id} waits for an event without a name"
            if when is Trigger.EVENT
            else f"edge {edge.id} names the event {scheduling.event!r} and waits for {when.value}",
            subject=edge.id,
            rule="event",
        )
    if scheduling.outcome is not Outcome.SUCCESS and (concurrent or when is not Trigger.ALL_DONE):
        raise GraphError(
            f"edge {edge.id} waits for the outcome {scheduling.outcome.value}, but not for the end of its source",
            subject=edge.id,
            rule="outcome",
            hint="Make the edge sequential and let it wait for all_done.",
        )


def _check_storage(edge: Edge, src: Vertex, bubble_of: Mapping[str, str]) -> None:
    storage = edge.storage
    if edge.movement.move is MovementKind.NONE:
        if storage in (Storage.EPHEMERAL, Storage.DURABLE):
            raise GraphError(
                f"edge {edge.id} moves no data, but has {storage.value} storage",
                subject=edge.id,
                rule="storage-of-nothing",
            )
        edge.storage = Storage.NONE
    elif storage is Storage.NONE:
        raise GraphError(
            f"edge {edge.id} moves data, but has no storage",
            subject=edge.id,
            rule="storage-missing",
            hint="Choose ephemeral, local or durable storage.",
        )
    elif storage is Storage.EPHEMERAL:
        if not edge.scheduling.concurrent:
            raise GraphError(
                f"edge {edge.id} is sequential and ephemeral: its data would be lost before they are read",
                subject=edge.id,
                rule="sequential-ephemeral",
                hint="Make the edge concurrent, or its storage local.",
            )
        bubble = bubble_of.get(edge.src)
        if src.kind is not VertexKind.SERVICE and (bubble is None or bubble != bubble_of.get(edge.dst)):
            raise GraphError(
                f"edge {edge.id} is ephemeral, but {edge.src!r} and {edge.dst!r} are not in one bubble",
                subject=edge.id,
                rule="ephemeral-bubble",
                hint="Put both into one bubble, or make the storage local.",
            )


def _check_from_service(edge: Edge) -> None:
    if not edge.scheduling.concurrent:
        raise GraphError(
            f"edge {edge.id} waits for the end of SERVICE {edge.src!r}, which ends after its consumers",
            subject=edge.id,
            rule="service-concurrent",
            hint="Make the edge concurrent.",
        )


def check_served(services: Iterable[str], served: set[str]) -> None:
    """Raise GraphError for a service without a consumer."""
    for id in services:
        if id not in served:
            raise GraphError(
                f"SERVICE {id!r} has no consumer, so it would never end",
                subject=id,
                rule="service-consumer",
                hint="Join it by a concurrent edge to a vertex that needs it.",
            )
