"""Dynamic parallelism: 500 readers were planned, the 10 MB that were written ask for one.

200 maps write 500 pieces of 100 bytes each. When the last has ended, the bytes of every partition are known, and the
shuffle's manager groups partitions to 64 MiB.
"""

from __future__ import annotations

import show

import weft
from weft import Range, shuffle


def pieces(number: int) -> list[bytes]:
    """Write 100 bytes for each of 500 readers."""
    return [b"%0100d" % number] * 500


def count_bytes(parts: list[bytes]) -> int:
    """Read all that was written for a reader."""
    return sum(map(len, parts))


def build() -> tuple[weft.Graph, weft.VertexHandle]:
    """Return the graph and the vertex whose parallelism is open."""
    graph = weft.Graph("dynamic_parallelism")
    maps = graph.map(pieces, range(200), name="maps")
    return graph, graph.add(count_bytes, shuffle(maps, 500), n=Range(1, 500), manager="shuffle", name="readers")


if __name__ == "__main__":
    graph, readers = build()
    show.run(graph, "500 readers are planned for a shuffle whose size nobody knows yet.", readers)
