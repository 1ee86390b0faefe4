"""LIMIT: 4,000 scans are planned, a few start, and five rows are enough.

The first wave is one task; each next one is sized by the rows that tasks have given so far, and at least four times the
last. When there are enough rows the limit starts, and the scan ends: its other tasks are never made.
"""

from __future__ import annotations

import show

import weft
from weft import Trigger, gather
from weft.graph.logical import Manager

ROWS = 5


def scan(number: int) -> list[int]:
    """Find the rows of a file that match: two in every second file."""
    return [number, number] if number % 2 == 0 else []


def limit(parts: list[list[int] | None]) -> list[int]:
    """Take the first rows; a file that was not read is None."""
    return [row for part in parts if part for row in part][:ROWS]


def build() -> tuple[weft.Graph, weft.VertexHandle]:
    """Return the graph and its answer, five rows."""
    graph = weft.Graph("limit")
    files = graph.map(scan, range(4000), manager=Manager("waves", {"rows": ROWS}), name="scan")
    return graph, graph.add(limit, gather(files, when=Trigger.EVENT, event="enough"), name="limit")


if __name__ == "__main__":
    graph, rows = build()
    show.run(graph, "4,000 files are planned to be read for five rows.", rows)
