"""Straggler: one of 40 tasks takes far too long where it is, so it is run a second time elsewhere.

The first attempt at task 37 waits for something that is slow to come, as a read from a failing disk does. When an idle
worker is there and the task has taken far longer than the others, it is run again; the first attempt that ends counts,
the other is told to stop, and nobody waits for it. On the simulator a body takes no time, and nothing is run twice.
"""

from __future__ import annotations

import time
from typing import Any

import show

import weft
from weft import gather

TASKS = 40
STUCK = 37
STUCK_S = 5.0


def read(ctx: Any, inputs: Any) -> int:
    """Return the number of the task; the first attempt at one of them takes 5 s, or until it is told to stop."""
    until = time.monotonic() + STUCK_S
    while ctx.index == STUCK and ctx.attempt == 0 and not ctx.cancelled() and time.monotonic() < until:
        time.sleep(0.01)
    return int(ctx.index)


def build() -> tuple[weft.Graph, weft.VertexHandle]:
    """Return the graph and its answer."""
    graph = weft.Graph("straggler")
    tasks = graph.task(read, n=TASKS, name="read")
    return graph, graph.add(sum, gather(tasks), name="total")


if __name__ == "__main__":
    graph, answer = build()
    show.run(graph, "One task of 40 takes far too long; it is run a second time.", answer, backups=True)
