"""The case for a pool of two warm processes, `concurrent.futures`."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache

from benchmarks.bodies import CHUNK_VALUES, chunk, total_of_chunk
from benchmarks.harness import expect, timed

CHUNKS = 64


@cache
def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, multiprocessing.get_context("forkserver"))


def processes_chunks() -> dict[str, float]:
    """Chunks are made in the pool and added up here: each is pickled once, which is the least a pool can do."""

    def run() -> float:
        return sum(total_of_chunk(made) for made in _pool().map(chunk, range(CHUNKS)))

    wanted = float(sum(range(CHUNKS)) * (CHUNK_VALUES - 1))
    return timed(run, lambda found: expect(found, wanted), rehearse=True)


CASES: Mapping[str, Callable[[], dict[str, float]]] = {"processes_chunks": processes_chunks}
