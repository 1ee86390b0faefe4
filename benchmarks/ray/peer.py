"""The cases with Ray's tasks, as its documentation writes them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import bodies
from benchmarks.bodies import CHUNK_VALUES, PIECES
from benchmarks.harness import expect, timed
from benchmarks.ray import sorting
from benchmarks.ray.cluster import address
from benchmarks.ray.sizes import BLOCKS, SIZES

CHUNKS = 64


def _connected() -> Any:
    import ray

    if not ray.is_initialized():
        ray.init(address=address(), logging_level=logging.ERROR)
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


def sort() -> dict[str, float]:
    """Rows are sorted by Ray Data."""
    _connected()
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = SIZES.shuffled // BLOCKS // sorting.ROW_BYTES

    def made(batch: dict[str, Any]) -> Any:
        return sorting.block(int(batch["id"][0]), rows)

    def summed(table: Any) -> dict[str, list[int]]:
        found = sorting.summary(table)
        return {name: [value] for name, value in found._asdict().items()}

    def run() -> list[Any]:
        blocks = ray.data.range(BLOCKS, override_num_blocks=BLOCKS).map_batches(made, batch_size=None)
        found = blocks.sort("key").map_batches(summed, batch_size=None, batch_format="pyarrow").take_all()
        return [tuple(row.values()) for row in found]

    return timed(run, lambda found: sorting.check(found, rows))


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
    "sort": sort,
    "start": start,
}
