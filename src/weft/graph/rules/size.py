"""The limits on the size of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.model.errors import InputLimitError

if TYPE_CHECKING:
    from weft.graph.logical import LogicalGraph

MAX_VERTICES = 100_000
MAX_EDGES = 1_000_000
MAX_TASKS = 100_000_000
"""The most tasks of one vertex; the master keeps some bytes for each."""


def check_size(graph: LogicalGraph) -> None:
    """Raise InputLimitError if a graph has too many vertices or edges."""
    for parts, count, limit in (
        ("vertices", len(graph.vertices), MAX_VERTICES),
        ("edges", len(graph.edges), MAX_EDGES),
    ):
        if count > limit:
            raise InputLimitError(
                f"graph {graph.name!r} has {count:,} {parts}; the limit is {limit:,}",
                hint="Give a vertex more tasks instead of adding vertices: one vertex may have millions.",
            )


def check_count(id: str, n: int) -> None:
    """Raise InputLimitError if `n` tasks of one vertex are more than the master can hold."""
    if n > MAX_TASKS:
        raise InputLimitError(
            f"vertex {id!r} has {n:,} tasks; the limit is {MAX_TASKS:,}", hint="Give each task more work."
        )
