"""The cases on Weft, with its `ray` backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, cast

import weft
import weft.tensor as wt
from benchmarks.bodies import CHUNK_VALUES, PIECES, add_both, chunk, noop, pieces, total_of_chunk
from benchmarks.harness import expect, timed
from benchmarks.ray import queries, sorting
from benchmarks.ray.cluster import address
from benchmarks.ray.sizes import BLOCKS, SIZES
from benchmarks.sql.data import tpch
from benchmarks.tasks.ours import chain_graph, run_simulated, tree_graph
from benchmarks.tensors import ours as tensors
from benchmarks.tensors.ways import Check, Run, Way
from weft.engine.tuning import Tuning

CHUNKS = 64
ARRAYS = ("ewise", "rechunk", "qr")
SIMULATED_NODES = 1_000


_held: dict[str, Any] = {}
"""The session that holds the cores of the cluster, by its kind."""


def _release() -> None:
    """Close the session that holds the cores."""
    while _held:
        _held.popitem()[1].close()


def _holding(kind: str, start: Callable[[], Any]) -> Any:
    """Return the session of a kind, started now if another one held the cores."""
    if kind not in _held:
        _release()
        os.environ["RAY_ADDRESS"] = address()
        _held[kind] = start()
    return _held[kind]


def _open() -> weft.Session:
    os.environ["RAY_ADDRESS"] = address()
    return weft.Session("ray")


def _session() -> weft.Session:
    return cast("weft.Session", _holding("tasks", _open))


def _run(
    build: Callable[[], tuple[weft.Graph, weft.VertexHandle]], wanted: list[Any], *, rehearse: bool = False
) -> dict[str, float]:
    session = _session()

    def run() -> list[Any]:
        graph, node = build()
        return session.run(graph)[node]

    return timed(run, lambda found: expect(found, wanted), rehearse=rehearse)


def independent() -> dict[str, float]:
    """10,000 independent tasks."""

    def build() -> tuple[weft.Graph, weft.VertexHandle]:
        graph = weft.Graph()
        return graph, graph.map(noop, range(10_000))

    return _run(build, list(range(10_000)))


def stage() -> dict[str, float]:
    """Every one of 300 tasks reads a piece of every one of 300 others."""

    def build() -> tuple[weft.Graph, weft.VertexHandle]:
        graph = weft.Graph()
        return graph, graph.add(add_both, weft.shuffle(graph.map(pieces, range(300)), PIECES))

    return _run(build, [sum(i * PIECES + p for i in range(300)) for p in range(PIECES)])


def tree() -> dict[str, float]:
    """A binary tree over 8,192 leaves."""
    return _run(tree_graph, [sum(range(8192))])


def chain() -> dict[str, float]:
    """1,000 vertices of one task in a row."""
    return _run(chain_graph, [1000])


def chunks() -> dict[str, float]:
    """Chunks are made at one node and added up at the other."""
    first, second = [node.name for node in _session().executor.provider.nodes()]

    def build() -> tuple[weft.Graph, weft.VertexHandle]:
        graph = weft.Graph()
        made = graph.map(chunk, range(CHUNKS), placement=weft.Placement(node=first))
        return graph, graph.add(total_of_chunk, made, placement=weft.Placement(node=second))

    return _run(build, [float(i * (CHUNK_VALUES - 1)) for i in range(CHUNKS)], rehearse=True)


def sort() -> dict[str, float]:
    """Rows are sorted as by Ray Data: samples give the limits of parts, each block is divided, each part is merged."""
    rows = SIZES.shuffled // BLOCKS // sorting.ROW_BYTES
    session = _session()

    def run() -> list[Any]:
        graph = weft.Graph()
        blocks = graph.map(sorting.block, range(BLOCKS), params={"rows": rows})
        bounds = graph.add(sorting.boundaries, weft.gather(graph.add(sorting.sampled, blocks)))
        parts = graph.add(sorting.divided, blocks, weft.gather(bounds))
        made = graph.add(sorting.summary, graph.add(sorting.merged, weft.shuffle(parts, BLOCKS)))
        return session.run(graph)[made]

    return timed(run, lambda found: sorting.check(found, rows))


def _array(case: Callable[[Way], dict[str, float]]) -> dict[str, float]:
    session = _holding("arrays", lambda: wt.Session(backend="ray"))

    def measure(run: Run, check: Check) -> dict[str, float]:
        session.as_default()
        return timed(run, check, rehearse=True)

    return case(Way(measure, wt.execute))


def _context() -> weft.SqlContext:
    context = weft.SqlContext(backend="ray", mode="stages")
    for name, path in tpch(SIZES.scale)[1].items():
        context.register(name, path)
    return context


def _tables(numbers: Collection[int]) -> dict[str, float]:
    tpch(SIZES.scale)  # makes the files
    context = _holding("tables", _context)
    return queries.measured(lambda text: context.sql(text).arrow().num_rows, SIZES.scale, numbers)


def start() -> dict[str, float]:
    """Open a session and run a task."""
    address()
    _release()

    opened: list[weft.Session] = []

    def run() -> list[Any]:
        opened.append(_open())
        graph = weft.Graph()
        node = graph.map(noop, [7])
        return opened[-1].run(graph)[node]

    try:
        return timed(run, lambda found: expect(found, [7]))
    finally:
        for session in opened:
            session.close()


def simulated() -> dict[str, float]:
    """Run 10 stages of 100,000 tasks, each a shuffle of the one before, on 1,000 simulated nodes of 10 workers."""
    return run_simulated(
        10 * SIMULATED_NODES,
        nodes=SIMULATED_NODES,
        nbytes=1 << 20,
        tuning=Tuning(target_s=0.5, shared_memory=False),
        tick_s=0.1,
        track=False,
        latency_s=0.001,
    )


CASES: Mapping[str, Callable[[], dict[str, float]]] = {
    "independent": independent,
    "stage": stage,
    "tree": tree,
    "chain": chain,
    "chunks": chunks,
    "sort": sort,
    **{name: partial(_array, tensors.DRAWN[name]) for name in ARRAYS},
    "tables_of_daft": partial(_tables, queries.chosen(queries.OF_DAFT)),
    "tables": partial(_tables, queries.chosen(queries.ALL)),
    "start": start,
    "simulated": simulated,
}
