"""A program with a durable session, to be killed: every kind of decision, each drawn anew by the process that takes it.

Called with the backend, the state folder, and a folder for marks: each task leaves one at its end. The answer is always
the same; how many tasks there are, which branch is taken and what a patch adds is not.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import Range, Source, after, gather, shuffle
from weft.graph.logical import Edge, Patch

LOADS = 12
ANSWER = sum(LOADS * 100 * i for i in range(LOADS)) * 3


def mark(marks: str, name: str) -> None:
    """Say that a task has ended."""
    Path(marks, f"{name}.{os.getpid()}.{time.monotonic_ns()}").touch()


def drawn(most: int) -> int:
    """Return a number from 1 on that another process draws otherwise."""
    return 1 + int.from_bytes(os.urandom(2), "big") % most


def load(number: int, marks: str) -> np.ndarray:
    """Return an array, larger for later tasks."""
    total = sum(range(20_000))  # some work
    mark(marks, f"load-{number}")
    return np.full(LOADS * 100, number) + 0 * total


def split(values: np.ndarray) -> list[np.ndarray]:
    """Cut it into four pieces."""
    return [values[part::4] for part in range(4)]


def merge(parts: list[np.ndarray], marks: str) -> int:
    """Add up what a task reads; a manager says how many there are."""
    mark(marks, "merge")
    return int(sum(part.sum() for part in parts))


def add(sums: list[int], marks: str) -> int:
    """Add the parts, but not while there is a file `hold` beside the marks."""
    while Path(marks).with_name("hold").exists():
        time.sleep(0.005)
    mark(marks, "add")
    return sum(sums)


def decide(total: int) -> str:
    """Take a branch by chance."""
    return "left" if drawn(2) == 1 else "right"


def branch(total: int, marks: str, name: str) -> int:
    """Pass the total on."""
    mark(marks, name)
    return total


def width(total: int) -> int:
    """Say by chance how many tasks there are."""
    return drawn(4)


def wide(totals: list[int], marks: str) -> int:
    """Pass the total on, in each task."""
    mark(marks, "wide")
    return totals[0]


def plan(total: int, marks: str) -> Patch:
    """Add some rounds, by chance how many, of a function without a name."""
    graph = weft.Graph("rounds")
    rounds = drawn(3)
    node = graph.add(lambda value: value, name="plan/round-1")
    for number in range(2, rounds + 1):
        node = graph.add(branch, node, name=f"plan/round-{number}", params={"marks": marks, "name": "round"})
    edges = [Edge("add", "plan/round-1"), Edge(node.id, "end", name="rounds")]
    return Patch.of(graph, edges)


def end(left: int | None, right: int | None, widths: list[int], rounds: int) -> int:
    """Add the three ways that the total came."""
    assert len(set(widths)) == 1
    return (left if left is not None else right or 0) + widths[0] + rounds


def build(marks: str) -> weft.Graph:
    """Return the graph."""
    graph = weft.Graph("durable")
    own: dict[str, Any] = {"marks": marks}
    pieces = graph.add(split, graph.map(load, range(LOADS), params=own, name="load"), name="split")
    merged = graph.add(merge, shuffle(pieces, 4), n=Range(1, 4), manager="shuffle", params=own, name="merge")
    total = graph.add(add, gather(merged), params=own, name="add")
    which = graph.add(decide, total, name="which", expands=True)
    sides = [
        graph.add(branch, total, after(which), params=own | {"name": name}, name=name) for name in ("left", "right")
    ]
    graph.choice(which, name="side", left=sides[0], right=sides[1])
    many = graph.add(width, total, name="width", expands=True)
    wides = graph.add(wide, gather(total), after(many), n=Source(many.id), params=own, name="wide")
    planner = graph.add(plan, total, params=own, name="plan", expands=True)
    graph.add(end, *sides, gather(wides), after(planner), n=1, name="end")
    return graph


if __name__ == "__main__":
    with weft.Session(backend=sys.argv[1], workers=2, durable=sys.argv[2]) as session:
        print(session.run(build(sys.argv[3]), progress=False).value("end"))
