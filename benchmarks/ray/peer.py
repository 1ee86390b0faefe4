"""The cases with Ray's tasks, as its documentation writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import bodies
from benchmarks.bodies import CHUNK_VALUES, PIECES
from benchmarks.harness import expect, timed
from benchmarks.ray.cluster import address

CHUNKS = 64


def _connected() -> Any:
    import ray

    if not ray.is_initialized():
        ray.init(address=address(), logging_level="ERROR")
    return ray


def _timed(run: Callable[[Any], Any], wanted: Any, *, rehearse: bool = False) -> dict[str, float]:
    ray = _connected()
    first = ray.remote(bodies.noop)
    ray.get([first.remote(i) for i in range(4)])  # its worker processes run
    return timed(lambda: run(ray), lambda found: expect(found, wanted), rehearse=rehearse)


def independent() -> dict[str, float]:
    """10,000 independent tasks."""

    def run(ray: Any) -> list[int]:
        noop = ray.remote(bodies.noop)
        found: list[int] = ray.get([noop.remote(i) for i in range(10_000)])
        return found

    return _timed(run, list(range(10_000)))


def _add_all(*values: int) -> int:
    return sum(values)


def stage() -> dict[str, float]:
    """Every one of 300 tasks reads a piece of every one of 300 others."""

    def run(ray: Any) -> list[int]:
        pieces = ray.remote(bodies.pieces).options(num_returns=PIECES)
        add = ray.remote(_add_all)
        rows = [pieces.remote(i) for i in range(300)]
        found: list[int] = ray.get([add.remote(*[row[part] for row in rows]) for part in range(PIECES)])
        return found

    return _timed(run, [sum(i * PIECES + p for i in range(300)) for p in range(PIECES)])


def tree() -> dict[str, float]:
    """A binary tree over 8,192 leaves."""

    def run(ray: Any) -> int:
        noop, add = ray.remote(bodies.noop), ray.remote(bodies.add)
        level = [noop.remote(i) for i in range(8192)]
        while len(level) > 1:
            level = [add.remote(left, right) for left, right in zip(level[::2], level[1::2], strict=True)]
        found: int = ray.get(level[0])
        return found

    return _timed(run, sum(range(8192)))


def chain() -> dict[str, float]:
    """1,000 tasks in a row."""

    def run(ray: Any) -> int:
        increment = ray.remote(bodies.increment)
        value: Any = 0
        for _ in range(1000):
            value = increment.remote(value)
        found: int = ray.get(value)
        return found

    return _timed(run, 1000)


def chunks() -> dict[str, float]:
    """Chunks are made at one node and added up at the other."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray = _connected()
    first, second = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in ray.nodes()]

    def run(ray: Any) -> list[float]:
        make = ray.remote(bodies.chunk).options(scheduling_strategy=first)
        add = ray.remote(bodies.total_of_chunk).options(scheduling_strategy=second)
        found: list[float] = ray.get([add.remote(make.remote(i)) for i in range(CHUNKS)])
        return found

    return _timed(run, [float(i * (CHUNK_VALUES - 1)) for i in range(CHUNKS)], rehearse=True)


def start() -> dict[str, float]:
    """Connect and run a task."""
    import ray

    if ray.is_initialized():
        ray.shutdown()

    def run() -> int:
        ray = _connected()
        found: int = ray.get(ray.remote(bodies.noop).remote(7))
        return found

    address()
    return timed(run, lambda found: expect(found, 7))


CASES: Mapping[str, Callable[[], dict[str, float]]] = {
    "independent": independent,
    "stage": stage,
    "tree": tree,
    "chain": chain,
    "chunks": chunks,
    "start": start,
}
