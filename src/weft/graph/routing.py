"""Routers of edges, made when both parallelisms are known, and the register of custom routers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft.graph.grid import bind_grid
from weft.graph.logical import Movement, MovementKind
from weft.graph.rectangles import Rectangles
from weft.graph.routers import Broadcast, Group, OneToOne, Piece, Router, ScatterGather
from weft.model.errors import GraphError

if TYPE_CHECKING:
    from weft.graph.logical import Edge

__all__ = ["CUSTOM", "Broadcast", "Group", "OneToOne", "Piece", "Router", "ScatterGather", "bind"]

CUSTOM: dict[str, Callable[[int, int, Mapping[str, Any]], Router]] = {}
"""Routers of the movement CUSTOM by name: `factory(n_src, n_dst, params)`. Register at import time."""


def bind(edge: Edge, n_src: int, n_dst: int) -> Router | None:
    """Return the router of an edge between `n_src` and `n_dst` tasks; None for an order-only edge.

    GraphError: the movement does not allow these numbers.
    """
    movement = edge.movement
    move = movement.move
    if move is MovementKind.ONE_TO_ONE and n_src == n_dst and not movement.partitions:
        return OneToOne(n_src, n_dst)  # the most frequent case in a graph of many vertices
    if move is MovementKind.NONE:
        return None
    if movement.partitions and move in (MovementKind.ONE_TO_ONE, MovementKind.BROADCAST):
        # The edge was a shuffle before `SetEdge` changed it.
        whole = bind(replace(edge, movement=Movement(move)), n_src, n_dst)
        assert whole is not None
        parts = movement.partitions
        return Rectangles(n_src, parts, [[(a, b, 0, parts) for a, b, _, _ in whole.inputs(d)] for d in range(n_dst)])
    if move is MovementKind.ONE_TO_ONE:
        raise GraphError(
            f"edge {edge.id}: one_to_one joins {n_src} tasks of {edge.src!r} to {n_dst} of {edge.dst!r}",
            subject=edge.id,
            rule="one-to-one-parallelism",
            hint="Give both vertices the same parallelism, or use broadcast, scatter_gather or a grid.",
        )
    if move is MovementKind.BROADCAST:
        return Broadcast(n_src, n_dst)
    if move is MovementKind.SCATTER_GATHER:
        if movement.partitions and movement.partitions != n_dst:
            return Rectangles.even(n_src, movement.partitions, n_dst)
        return ScatterGather(n_src, n_dst)
    if move is MovementKind.GRID:
        return bind_grid(edge, n_src, n_dst)
    factory = CUSTOM.get(movement.name)
    if factory is None:
        raise GraphError(
            f"edge {edge.id}: no router is registered as {movement.name!r}",
            subject=edge.id,
            rule="custom-router",
            hint=f"Registered: {', '.join(sorted(CUSTOM)) or 'none'}.",
        )
    return factory(n_src, n_dst, dict(movement.params))
