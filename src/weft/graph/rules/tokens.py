"""The rule of tokens that services hold: nothing gives them back before their consumers have ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

from weft.graph.logical import Edge, LogicalGraph, Range, Trigger, Vertex, VertexKind
from weft.model.errors import GraphError


def check_held_tokens(graph: LogicalGraph, edges: Iterable[Edge]) -> None:
    """Raise GraphError for a vertex that waits for tokens which its services hold until it has ended.

    A controlled service does not count: its controller may end it before.
    """
    if not graph.limits:
        return
    held: dict[str, dict[str, list[tuple[str, int]]]] = {}
    for edge in edges:
        src = graph.vertices[edge.src]
        if src.kind is VertexKind.SERVICE and not src.controlled and edge.dst in graph.vertices:
            for token, count in _tokens(src, _running(edge, src)):
                held.setdefault(edge.dst, {}).setdefault(token, []).append((edge.src, count))
    for id, by_token in held.items():
        for token, holders in by_token.items():
            own = dict(_tokens(graph.vertices[id], 1)).get(token, 0)
            limit = graph.limits.get(token, 0)
            if own + sum(count for _, count in holders) <= limit:
                continue
            names = " and ".join(f"{count} by {name!r}" for name, count in holders)
            raise GraphError(
                f"vertex {id!r} could never run: of the {limit} tokens {token!r}, {names} are held until it has ended"
                + (f", and it takes {own}" if own else ""),
                subject=id,
                rule="tokens",
                hint=f"Raise the limit {token!r}, or let fewer of these vertices take it.",
            )


def _running(edge: Edge, service: Vertex) -> int:
    """Return the least number of tasks of a service that run when the reader of an edge starts."""
    n = service.parallelism
    tasks = n if isinstance(n, int) else n.lo if isinstance(n, Range) else 1
    if edge.scheduling.when is Trigger.SOURCE_RUNNING:
        return ceil(edge.scheduling.fraction * tasks)
    return 1 if edge.scheduling.when is Trigger.EVENT else 0


def _tokens(vertex: Vertex, tasks: int) -> Iterator[tuple[str, int]]:
    """Yield the tokens that so many tasks take at least, whichever resources they get."""
    offers = [dict(needs.tokens) for needs in vertex.resources]
    for token in offers[0]:
        if least := tasks * min(offer.get(token, 0) for offer in offers):
            yield token, least
