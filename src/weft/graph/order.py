"""The order of the vertices along the edges, and the cycle where there is none."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from weft.model.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from weft.graph.logical import Edge, LogicalGraph


def _forward(graph: LogicalGraph) -> list[str] | None:
    """Return the order of addition if every edge goes forward in it, which proves that there is no cycle; else None."""
    order = list(graph.vertices)
    position = dict(zip(order, range(len(order)), strict=True))
    for edge in graph.edges:
        if position[edge.src] >= position[edge.dst]:
            return None
    return order


def topological(graph: LogicalGraph) -> list[str]:
    """Return the vertex ids in an order in which every edge goes forward; ties keep the order of addition.

    Every edge must join known vertices. GraphError: the edges, sequential and concurrent, form a cycle, which the error
    names.
    """
    order = _forward(graph)
    if order is not None:
        return order
    ids = list(graph.vertices)
    position = {id: at for at, id in enumerate(ids)}
    after: list[list[int]] = [[] for _ in ids]
    waits = [0] * len(ids)
    for edge in graph.edges:
        src, dst = position[edge.src], position[edge.dst]
        after[src].append(dst)
        waits[dst] += 1
    ready = [at for at, count in enumerate(waits) if not count]
    heapify(ready)
    done: list[str] = []
    while ready:
        at = heappop(ready)
        done.append(ids[at])
        for dst in after[at]:
            waits[dst] -= 1
            if not waits[dst]:
                heappush(ready, dst)
    if len(done) < len(ids):
        raise _cycle(graph, {ids[at] for at, count in enumerate(waits) if count})
    return done


def reachable(graph: LogicalGraph, begin: Iterable[str], *, down: bool) -> set[str]:
    """Return some vertices and all their descendants or ancestors."""
    near: dict[str, list[str]] = {}
    for edge in graph.edges:
        near.setdefault(edge.src if down else edge.dst, []).append(edge.dst if down else edge.src)
    found = set(begin)
    todo = list(found)
    while todo:
        for other in near.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def _cycle(graph: LogicalGraph, left: set[str]) -> GraphError:
    """Return the error that names a cycle among `left`, the vertices that never became ready.

    Each of them has a predecessor in `left`, so a walk backwards must meet a vertex twice.
    """
    before = {edge.dst: edge.src for edge in graph.edges if edge.src in left and edge.dst in left}
    at = next(id for id in graph.vertices if id in left)
    trail: dict[str, int] = {}
    while at not in trail:
        trail[at] = len(trail)
        at = before[at]
    cycle = [*list(trail)[trail[at] :], at][::-1]
    shown = cycle if len(cycle) <= 12 else [*cycle[:6], "...", *cycle[-5:]]
    return GraphError(
        f"vertices form a cycle: {' -> '.join(shown)}",
        subject=at,
        rule="cycle",
        hint="Remove one of these edges; a service answers its consumers without an edge back.",
    )


def followers(edges: Iterable[Edge]) -> dict[str, list[str]]:
    """Return for each vertex its direct successors."""
    after: dict[str, list[str]] = {}
    for edge in edges:
        after.setdefault(edge.src, []).append(edge.dst)
    return after


def reached_from(after: Mapping[str, list[str]], start: str, wanted: Collection[str] = ()) -> set[str]:
    """Return the descendants of `start`; if `wanted` is given, stop as soon as all of `wanted` are found."""
    found: set[str] = set()
    missing = len(wanted) or -1
    queue = deque([start])
    while queue and missing:
        for dst in after.get(queue.popleft(), ()):
            if dst not in found:
                found.add(dst)
                queue.append(dst)
                missing -= dst in wanted
    return found
