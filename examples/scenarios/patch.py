"""Patch: an expander looks at what was read and adds the part of the graph that nobody could write before.

The plan depends on the data: as many rounds of halving as the largest number needs. The expander returns a `Patch`; its
vertices get the expander's name in front, are checked and journaled as any decision, and run with the rest.
"""

from __future__ import annotations

import show

import weft
from weft import gather
from weft.graph.logical import Edge, Patch


def read(number: int) -> int:
    """Read a number."""
    return number * number


def halve(values: list[int] | int) -> int:
    """Halve the largest, or what was halved before."""
    return (values if isinstance(values, int) else max(values)) // 2


def plan(values: list[int]) -> Patch:
    """Add as many rounds as it takes to come to 1."""
    graph = weft.Graph("rounds")
    rounds = max(values).bit_length() - 1
    node = graph.add(halve, name="plan/round-1")
    for number in range(2, rounds + 1):
        node = graph.add(halve, node, name=f"plan/round-{number}", keep=number == rounds)
    return Patch.of(graph, [Edge("read", "plan/round-1", gather(node).movement)])


def build() -> tuple[weft.Graph, weft.VertexHandle]:
    """Return the graph and what is read; its rounds are added while it runs."""
    graph = weft.Graph("patch")
    numbers = graph.map(read, range(1, 6), name="read")
    graph.add(plan, gather(numbers), name="plan", expands=True)
    return graph, numbers.keep()


if __name__ == "__main__":
    graph, numbers = build()
    show.run(graph, "One expander, and rounds that only the data can tell.", numbers)
