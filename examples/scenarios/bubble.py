"""Bubble: what streams is allocated together, what must wait for all of its input is not.

Numbers are filtered as they are made, then sorted. Filter and source can stream, so `efficient` puts them into one
bubble; the sort reads everything before it yields, so its edge is a border, where data is stored. Where workers share
no memory to stream through, the bubble's data is kept on the node and the graph says so.
"""

from __future__ import annotations

from typing import Any

import show

import weft
from weft import shuffle
from weft.policies.bubbles import apply_cut, efficient

BATCHES = 20


def numbers(ctx: Any, inputs: Any) -> None:
    """Write 20 batches of 1,000 numbers as they are made, in turns to the readers."""
    for batch in range(BATCHES):
        made = [(1000 * batch + at) * 7919 % 20_011 for at in range(1000)]
        ctx.out("numbers->even").write(batch % 2, made)


def even(ctx: Any, inputs: Any) -> None:
    """Keep the even ones of each batch as it comes."""
    for batch in inputs["numbers->even"]:
        ctx.out("even->smallest").write(0, [number for number in batch if number % 2 == 0])


def smallest(ctx: Any, inputs: Any) -> list[int]:
    """Sort everything; return the first five."""
    found: list[int] = []
    for batch in inputs["even->smallest"]:
        found += batch
    return sorted(set(found))[:5]


def build() -> tuple[weft.Graph, weft.VertexHandle]:
    """Return the graph as `efficient` cuts it, and its answer."""
    graph = weft.Graph("bubble")
    made = graph.task(numbers, n=2, name="numbers")
    kept = graph.task(even, shuffle(made, 2), name="even")
    answer = graph.task(smallest, shuffle(kept, 1, blocking=True), name="smallest")
    cut = apply_cut(graph, efficient(graph, size=4))
    graph.edges[:], graph.bubbles[:] = cut.edges, cut.bubbles
    return graph, answer


if __name__ == "__main__":
    graph, answer = build()
    show.run(graph, "Two of three vertices stream to each other in one bubble.", answer)
