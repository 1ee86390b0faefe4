"""What is spilled first: chunks written to disk and read back, for graphs of several shapes that need too much.

`python -m tests.integration.test_eviction` prints the table of docs/architecture.md. One worker and one task at a
time, so that the counts are the same each time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace

import weft
from weft.graph.builder import Graph, gather, grid, one_to_one, shuffle
from weft.graph.grid import broadcast, copy

if TYPE_CHECKING:
    from weft.store.api import ChunkInfo

CHUNK = 100_000
BUDGET = 10 * CHUNK
TIMEOUT_S = 180.0


def chunk(at: int) -> Any:
    return np.full(CHUNK // 8, float(at))


def more(array: Any) -> Any:
    return array + 1


def total(arrays: list[Any]) -> float:
    return float(sum(array[0] for array in arrays))


def pieces(at: int) -> list[Any]:
    return [np.full(CHUNK // 80, float(at)) for _ in range(10)]


def every_task_reads_all() -> Graph:
    """20 chunks, each read by 10 tasks."""
    graph = Graph("all")
    source = graph.map(chunk, range(20), name="source")
    graph.add(total, gather(source), n=10, name="reads").keep()
    return graph


def results_are_kept() -> Graph:
    """Three steps of 10 chunks; what the first and the second make is kept for the user."""
    graph = Graph("kept")
    first = graph.map(chunk, range(10), name="first").keep()
    second = graph.add(more, one_to_one(first), name="second").keep()
    third = graph.add(more, one_to_one(second), name="third")
    graph.add(total, gather(third), name="end")
    return graph


def a_product() -> Graph:
    """Blocks of a product: block (i, k) reads block i of one side and block k of the other."""
    graph = Graph("product")
    left = graph.map(chunk, range(8), name="left")
    right = graph.map(chunk, range(8), name="right")
    graph.add(
        lambda a, b: float(a[0] * b[0]),
        grid(left, copy(0), broadcast(), src=(8,), dst=(8, 8)),
        grid(right, broadcast(), copy(0), src=(8,), dst=(8, 8)),
        n=64,
        name="blocks",
    )
    return graph


def a_shuffle() -> Graph:
    """20 rows of 10 pieces."""
    graph = Graph("shuffle")
    source = graph.map(pieces, range(20), name="source")
    graph.add(total, shuffle(source, 10), n=10, name="reads")
    return graph


def a_detour() -> Graph:
    """20 chunks, each of which waits until a sum over all of another 20 is known."""
    graph = Graph("detour")
    early = graph.map(chunk, range(20), name="early")
    others = graph.map(chunk, range(20), name="others")
    summed = graph.add(total, gather(others), name="summed")
    graph.add(lambda a, b: float(a[0]) + b[0], one_to_one(early), gather(summed), name="late")
    return graph


def two_passes() -> Graph:
    """20 chunks, each read by two tasks at once, and again when a sum over what those made is known."""
    graph = Graph("passes")
    source = graph.map(chunk, range(20), name="source")
    halves = [graph.add(lambda a: a[:1], one_to_one(source), name=name) for name in ("left", "right")]
    summed = graph.add(lambda a, b: total([*a, *b]), *[gather(half) for half in halves], name="summed")
    graph.add(lambda a, b: float(a[0]) + b[0], one_to_one(source), gather(summed), name="late")
    return graph


SHAPES: tuple[Callable[[], Graph], ...] = (
    every_task_reads_all,
    results_are_kept,
    a_product,
    a_shuffle,
    a_detour,
    two_passes,
)


def chunks_moved(make: Callable[[], Graph], eviction: str | Callable[[ChunkInfo], Any], spill_dir: str) -> int:
    """Return how many chunks were written to disk or read back."""
    with weft.Session(workers=1, memory=BUDGET, eviction=eviction, spill=spill_dir) as session:
        session.executor.tuning = replace(session.executor.tuning, target_s=0.0, cones=False)  # one task at a time
        session.run(make(), timeout_s=TIMEOUT_S)
        stats = session.store.stats()
    return round((stats.spilled + stats.restored) / CHUNK)


@pytest.mark.parametrize("make", SHAPES, ids=lambda make: make.__name__)
def test_the_default_moves_no_more_than_the_least_recently_used(make: Callable[[], Graph], tmp_path: Any) -> None:
    assert chunks_moved(make, "furthest", str(tmp_path)) <= chunks_moved(make, "lru", str(tmp_path))


def main() -> None:
    """Print the table."""
    print("| graph | furthest | lru | largest |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for make in SHAPES:
            counts = [chunks_moved(make, policy, folder) for policy in ("furthest", "lru", "largest")]
            print(f"| {make.__name__.replace('_', ' ')} | {' | '.join(map(str, counts))} |")


if __name__ == "__main__":
    main()
