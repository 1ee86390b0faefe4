"""The cases on Weft, with its `ray` backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import weft
from benchmarks.bodies import CHUNK_VALUES, PIECES, add_both, chunk, noop, pieces, total_of_chunk
from benchmarks.harness import expect, timed
from benchmarks.ray.cluster import address
from benchmarks.tasks.ours import chain_graph, tree_graph

CHUNKS = 64


def _open() -> weft.Session:
    os.environ["RAY_ADDRESS"] = address()
    return weft.Session("ray")


@cache
def _session() -> weft.Session:
    return _open()


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


def start() -> dict[str, float]:
    """Open a session and run a task."""
    address()
    if _session.cache_info().currsize:  # it holds the cores
        _session().close()
        _session.cache_clear()

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


CASES: Mapping[str, Callable[[], dict[str, float]]] = {
    "independent": independent,
    "stage": stage,
    "tree": tree,
    "chain": chain,
    "chunks": chunks,
    "start": start,
}
