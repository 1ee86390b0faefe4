"""Skew: one key holds half of all rows, and no reader gets much more than the others.

64 maps write rows by key into 64 partitions. Small neighbours share a reader up to the target; the partition of the
heavy key is split by its sources among several readers, which partial sums allow (`split`).
"""

from __future__ import annotations

import show

import weft
from weft import Range, shuffle
from weft.graph.logical import Manager

PARTITIONS = 64
HEAVY = 7


def by_key(number: int) -> dict[int, bytes]:
    """Write 100 bytes for each key, and as many as for all others together for the heavy one."""
    return {key: b"x" * (100 * (PARTITIONS - 1) if key == HEAVY else 100) for key in range(PARTITIONS)}


def count_bytes(parts: list[bytes]) -> int:
    """Read all that was written for a reader."""
    return sum(map(len, parts))


def build() -> tuple[weft.Graph, weft.VertexHandle]:
    """Return the graph and the readers, which give the bytes that each has read."""
    graph = weft.Graph("skew")
    maps = graph.map(by_key, range(64), name="maps")
    manager = Manager("shuffle", {"target": 64_000, "split": True})
    return graph, graph.add(count_bytes, shuffle(maps, PARTITIONS), n=Range(1, 64), manager=manager, name="readers")


if __name__ == "__main__":
    graph, readers = build()
    show.run(graph, "Half of all bytes have one key.", readers)
