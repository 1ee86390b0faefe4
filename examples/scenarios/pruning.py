"""Pruning: the small side says which three of a thousand splits of the big side are read at all.

An order-only edge makes the scan wait for the small side; nothing moves along it. The keys arrive as a user event, and
the manager of the scan keeps the splits that hold them.
"""

from __future__ import annotations

from typing import Any

import show

import weft
from weft import after, gather
from weft.graph.logical import Manager


def customers(ctx: Any, inputs: Any) -> list[int]:
    """Filter the small side, and say which keys are left."""
    keys = [3, 141, 592]
    ctx.emit("keys", keys)
    return keys


def scan(split: dict[str, int]) -> list[tuple[int, int]]:
    """Read the split of one key: 1,000 rows."""
    return [(split["key"], row) for row in range(1000)]


def join(keys: list[int], splits: list[list[tuple[int, int]]]) -> int:
    """Count the rows that match."""
    wanted = set(keys)
    return sum(key in wanted for split in splits for key, _ in split)


def build() -> tuple[weft.Graph, weft.VertexHandle]:
    """Return the graph and its answer, the number of rows that match."""
    graph = weft.Graph("pruning")
    small = graph.task(customers, name="customers")
    splits = [{"key": key} for key in range(1000)]
    big = graph.map(scan, splits, after(small), manager=Manager("pruning", {"key": "key"}), name="orders")
    return graph, graph.add(join, small, gather(big), name="matches")


if __name__ == "__main__":
    graph, matches = build()
    show.run(graph, "1,000 splits are planned to be scanned.", matches)
