"""Routers of edges, made when both parallelisms are known, and the register of custom routers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.graph.grid import bind_grid
from weft.graph.logical import Movement, MovementKind
from weft.graph.rectangles import Rectangles
from weft.graph.routers import Broadcast, Group, OneToOne, Piece, Router, ScatterGather
from weft.model.errors import GraphError
from weft.model.wording import type_of

if TYPE_CHECKING:
    from weft.graph.logical import Edge

__all__ = ["CUSTOM", "Broadcast", "Group", "OneToOne", "Piece", "Router", "ScatterGather", "bind"]

_ONE_TO_ONE: Final = MovementKind.ONE_TO_ONE
_LOOKED_AT: Final = 100
"""The tasks of each end for which a custom router is checked."""
CUSTOM: dict[str, Callable[[int, int, Mapping[str, Any]], Router]] = {}
"""Routers of the movement CUSTOM by name: `factory(n_src, n_dst, params)`. Register at import time."""


@lru_cache(maxsize=256)
def _one_to_one(n: int) -> OneToOne:
    return OneToOne(n, n)


def bind(edge: Edge, n_src: int, n_dst: int) -> Router | None:
    """Return the router of an edge between `n_src` and `n_dst` tasks; None for an order-only edge.

    GraphError: the movement does not allow these numbers.
    """
    movement = edge.movement
    move = movement.move
    if move is _ONE_TO_ONE and n_src == n_dst and not movement.partitions:
        return _one_to_one(n_src)  # the most frequent case in a graph of many vertices
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
    try:
        router = factory(n_src, n_dst, dict(movement.params))
        wrong = _wrong(router, n_src, n_dst)
    except Exception as error:  # noqa: BLE001 - the code of a user
        wrong = f"raised {type(error).__name__}: {error}"
    if wrong:
        raise GraphError(
            f"edge {edge.id}: the router {movement.name!r} for {n_src} to {n_dst} tasks {wrong}",
            subject=edge.id,
            rule="custom-router",
            hint="`weft.graph.routers.Router` says what the methods of a router return.",
        )
    return router


def _wrong(router: Any, n_src: int, n_dst: int) -> str:
    """Return what is wrong with a custom router, as far as its first tasks tell, or "".

    A task whose `inputs` and `consumers` disagree would wait for ever, or not wait.
    """
    if not isinstance(router, Router):
        return f"is {type_of(router)}, not a Router"
    if (router.n_src, router.n_dst) != (n_src, n_dst):
        return f"is one for {router.n_src} to {router.n_dst} tasks"
    for dst in range(min(n_dst, _LOOKED_AT)):
        for lo, hi, first, last in router.inputs(dst):
            if not (0 <= lo <= hi <= n_src and 0 <= first <= last <= max(1, router.partitions)):
                return f"has the piece {(lo, hi, first, last)} in inputs({dst}), which is not there"
            for src in {lo, hi - 1} if lo < hi else ():
                if not any(a <= dst < b for a, b in router.consumers(src)):
                    return f"has task {src} in inputs({dst}), and not {dst} in consumers({src})"
    for src in range(min(n_src, _LOOKED_AT)):
        for lo, hi in router.consumers(src):
            if not 0 <= lo <= hi <= n_dst:
                return f"has the range {(lo, hi)} in consumers({src}), which is not there"
            for dst in {lo, hi - 1} if lo < hi else ():
                if not any(a <= src < b for a, b, _, _ in router.inputs(dst)):
                    return f"has task {dst} in consumers({src}), and not {src} in inputs({dst})"
    return ""
