"""The cases as raw graphs of dask: dictionaries of tuples, run with two warm threads or processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

import dask.multiprocessing
import dask.threaded

from benchmarks.bodies import PIECES, add, increment, noop, pieces, total_of_pieces
from benchmarks.harness import expect, started, timed

WORKERS = 2


def _threads(graph: dict[Any, Any], keys: Any) -> Any:
    return dask.threaded.get(graph, keys, num_workers=WORKERS)


@cache
def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(WORKERS, multiprocessing.get_context("forkserver"))


def _processes(graph: dict[Any, Any], keys: Any) -> Any:
    return dask.multiprocessing.get(graph, keys, num_workers=WORKERS, pool=_pool())


def _independent(get: Callable[[dict[Any, Any], Any], Any]) -> dict[str, float]:
    def run() -> Any:
        graph = {("noop", i): (noop, i) for i in range(10_000)}
        return get(graph, list(graph))

    return timed(run, lambda found: expect(list(found), list(range(10_000))))


def threads_10k() -> dict[str, float]:
    """10,000 independent tasks."""
    return _independent(_threads)


def processes_10k() -> dict[str, float]:
    """The same in processes."""
    return _independent(_processes)


def threads_stage() -> dict[str, float]:
    """Every one of 300 tasks reads a piece of every one of 300 others."""

    def run() -> Any:
        graph: dict[Any, Any] = {("pieces", i): (pieces, i) for i in range(300)}
        rows = list(graph)
        readers = {("total", p): (total_of_pieces, p, rows) for p in range(PIECES)}
        graph.update(readers)
        return _threads(graph, list(readers))

    wanted = [sum(i * PIECES + p for i in range(300)) for p in range(PIECES)]
    return timed(run, lambda found: expect(list(found), wanted))


def threads_chain() -> dict[str, float]:
    """1,000 tasks in a row."""

    def run() -> Any:
        graph: dict[Any, Any] = {("increment", 0): (increment, 0)}
        for i in range(1, 1000):
            graph["increment", i] = (increment, ("increment", i - 1))
        return _threads(graph, ("increment", 999))

    return timed(run, lambda found: expect(found, 1000))


def _tree(graph: dict[Any, Any], level: list[Any]) -> Any:
    depth = 0
    while len(level) > 1:
        depth += 1
        above = {("add", depth, i): (add, level[2 * i], level[2 * i + 1]) for i in range(len(level) // 2)}
        graph.update(above)
        level = list(above)
    return _threads(graph, level[0])


def threads_tree() -> dict[str, float]:
    """A binary tree over 8,192 leaves."""

    def run() -> Any:
        graph: dict[Any, Any] = {("leaf", i): (noop, i) for i in range(8192)}
        return _tree(graph, list(graph))

    return timed(run, lambda found: expect(found, sum(range(8192))))


def threads_tree_two_source() -> dict[str, float]:
    """A binary tree over 8,192 sums of two leaves each."""

    def run() -> Any:
        graph: dict[Any, Any] = {(name, i): (noop, i) for name in ("left", "right") for i in range(8192)}
        sums = {("sum", i): (add, ("left", i), ("right", i)) for i in range(8192)}
        graph.update(sums)
        return _tree(graph, list(sums))

    return timed(run, lambda found: expect(found, 2 * sum(range(8192))))


FIRST = """
import dask
print(dask.delayed(int)("42").compute(scheduler="threads"), flush=True)
"""


def first_result() -> dict[str, float]:
    """Start an interpreter, import dask, run one task and print its value."""
    return started(FIRST, b"42\n")


CASES: Mapping[str, Callable[[], dict[str, float]]] = {
    "threads_10k": threads_10k,
    "threads_stage": threads_stage,
    "threads_chain": threads_chain,
    "threads_tree": threads_tree,
    "threads_tree_two_source": threads_tree_two_source,
    "processes_10k": processes_10k,
    "first_result": first_result,
}
