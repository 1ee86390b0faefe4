"""Random graphs on real backends give what one task after another gives, whatever has to be spilled on the way."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from weft.backends.threads import Threads
from weft.graph.logical import Movement, MovementKind, OnFailure
from weft.model.errors import CapacityError, RunFailedError
from weft.runtime.session import EngineSession
from weft.store.blocks import BlockManager
from weft.testing.graphs import random_graph
from weft.testing.oracle import sequential

CASES = 60


class Body:
    """A task whose value depends on all that it is given: a number, an array, or a piece for each partition."""

    def __init__(self, name: str, parts: int, large: bool) -> None:
        self.name = name
        self.parts = parts
        self.large = large

    def __call__(self, *inputs: Any) -> Any:
        known = zlib.crc32(repr((self.name, [digest(value) for value in inputs])).encode())
        if self.parts:
            return [self.value(known + part) for part in range(self.parts)]
        return self.value(known)

    def value(self, known: int) -> Any:
        return np.full(200, known) if self.large else known


def digest(value: Any) -> Any:
    """Return what tells a value from others."""
    if isinstance(value, np.ndarray):
        return [int(value[0]), int(value[-1])]
    if isinstance(value, list | tuple):
        return [digest(item) for item in value]
    return value


def with_bodies(rng: random.Random) -> Any:
    graph: Any = random_graph(rng, most_tasks=40, most_vertices=14)
    graph.on_failure = OnFailure.FAIL_FAST
    large = rng.random() < 0.5
    shuffled: dict[str, Any] = {}
    for edge in graph.edges:  # a list has pieces for one number of partitions: other readers of it take all
        if edge.movement.move is MovementKind.SCATTER_GATHER:
            wanted = graph.vertices[edge.dst].parallelism
            if shuffled.setdefault(edge.src, wanted) != wanted:
                graph.edges[graph.edges.index(edge)] = replace(edge, movement=Movement(MovementKind.BROADCAST))
    for vertex in graph.vertices.values():
        shuffles = [e for e in graph.edges if e.src == vertex.id and e.movement.move is MovementKind.SCATTER_GATHER]
        widths = [graph.vertices[edge.dst].parallelism for edge in shuffles]
        assert isinstance(vertex.parallelism, int)
        vertex.program.target = Body(vertex.id, max(widths, default=0), large)
        vertex.program.items = list(range(vertex.parallelism)) if rng.random() < 0.3 else None
        vertex.timeout_s = None
    return graph


@pytest.mark.parametrize("case", range(CASES))
def test_threads_give_the_sequential_answer(case: int, seed: int, tmp_path: Any) -> None:
    rng = random.Random(seed * 1000 + case)
    graph = with_bodies(rng)
    expected = sequential(graph)
    store = BlockManager(rng.choice([20_000, 2**30]), spill=tmp_path)
    with EngineSession(Threads(rng.choice([2, 3, 4]), store), store) as session:
        try:
            results = session.run(graph, timeout_s=180)
        except (CapacityError, RunFailedError) as error:
            if "cpu 2" not in str(error):  # the only thing in these graphs that two workers cannot give
                raise
            return
        for name in results:
            assert digest(results[name]) == digest(expected[name]), f"{name} differs"
    assert not any(tmp_path.iterdir())
