"""Shuffles whose sources have pieces for few partitions: on threads and processes, spilled, resumed, kept, split."""

import os
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import Range, gather, shuffle
from weft.graph.logical import Manager, Storage
from weft.model.errors import TaskError

BACKENDS = pytest.mark.parametrize("backend", ["threads", "processes"])
DEADLINE_S = 180.0
N = 48
CALLS: Counter[Any] = Counter()
BROKEN: set[str] = set()


def pieces(number: int, size: int = 0) -> dict[int, Any]:
    """Return pieces for two or three of `N` partitions: a number, or an array of `size` such."""
    CALLS[number] += 1
    keys = {number, (5 * number + 1) % N, 7}
    return {key: np.full(size, 100.0 * number + key) if size else 100 * number + key for key in keys}


def first(piece: Any) -> int:
    return int(piece[0]) if isinstance(piece, np.ndarray) else int(piece)


def read(found: list[Any]) -> list[int]:
    if "read" in BROKEN:
        raise ValueError("broken")
    return [first(piece) for piece in found]


def wanted(lo: int, hi: int) -> list[int]:
    return [first(piece) for number in range(N) for key, piece in sorted(pieces(number).items()) if lo <= key < hi]


def graph_of(size: int = 0, readers: Any = N, **fields: Any) -> tuple[weft.Graph, Any, Any]:
    graph = weft.Graph("shuffled")
    source = graph.map(pieces, range(N), params={"size": size}, name="source")
    return graph, source, graph.add(read, shuffle(source, N), n=readers, name="read", **fields)


@BACKENDS
@pytest.mark.parametrize("readers", [N, 5])
@pytest.mark.parametrize("size", [0, 1_000, 30_000])
def test_readers_get_the_pieces_that_are_there_though_memory_is_small(backend, readers, size):
    graph, _, node = graph_of(size, readers)
    with weft.Session(backend=backend, workers=2, memory="8MiB") as session:
        found = session.run(graph, timeout_s=DEADLINE_S)[node]
    bounds = [N * at // readers for at in range(readers + 1)]
    assert found == [wanted(lo, hi) for lo, hi in pairwise(bounds)]


@BACKENDS
@pytest.mark.parametrize("size", [0, 10_000])
def test_a_mapping_is_read_whole_and_kept_as_it_was(backend, size):
    graph, source, _ = graph_of(size)
    source.keep()
    whole = graph.add(lambda rows: [sorted(row) for row in rows], gather(source), name="whole")
    again = weft.Graph("again")
    given = again.map(pieces, range(N), name="given")
    reads = again.add(read, shuffle(given, N), n=N, name="reads")
    keys = [sorted(pieces(number)) for number in range(N)]
    with weft.Session(backend=backend, workers=2) as session:
        results = session.run(graph, timeout_s=DEADLINE_S)
        assert results.value(whole) == keys
        assert [sorted(row) for row in results[source]] == keys
        kept = results.keep(source)
        assert [sorted(row) for row in kept] == keys
        run = session.submit(again, given={"given": kept})
        assert run.result(DEADLINE_S)[reads] == [wanted(part, part + 1) for part in range(N)]


@BACKENDS
def test_a_heavy_partition_is_split_by_its_sources(backend):
    graph, _, node = graph_of(2_000, Range(1, N), manager=Manager("shuffle", {"target": 100_000, "split": True}))
    with weft.Session(backend=backend, workers=8) as session:
        run = session.submit(graph)
        found = run.result(DEADLINE_S)[node]
    assert [number for task in found for number in task if number % 100 == 7] == wanted(7, 8)
    assert sum(any(number % 100 == 7 for number in task) for task in found) > 2, "several tasks read the heavy one"
    assert sorted(number for task in found for number in task) == sorted(wanted(0, N))


@pytest.mark.parametrize("size", [0, 10_000])
def test_a_resumed_run_reads_the_rows_of_before(tmp_path, size):
    CALLS.clear()
    BROKEN.add("read")
    graph, _, _ = graph_of(size)
    with weft.Session(workers=2, durable=tmp_path) as session, pytest.raises(ValueError, match="broken"):
        session.run(graph, timeout_s=DEADLINE_S)
    BROKEN.clear()
    with weft.Session(workers=2, durable=tmp_path) as session:
        found = session.resume("run-000001").result(DEADLINE_S)["read"]
    assert Counter(range(N)) == CALLS, "no source ran again"
    assert found == [wanted(part, part + 1) for part in range(N)]


def dies_once(found: list[Any], marker: str) -> list[int]:
    """Kill the process of the first reader that has pieces of source 20."""
    values = [first(piece) for piece in found]
    if any(2_000 <= value < 2_100 for value in values) and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return values


def test_a_new_worker_gets_the_rows_of_a_killed_one(tmp_path):
    graph = weft.Graph("killed")
    source = graph.map(pieces, range(N), params={"size": 10_000}, name="source")
    node = graph.add(dies_once, shuffle(source, N), n=N, params={"marker": str(tmp_path / "died")}, name="read")
    with weft.Session(backend="processes", workers=2) as session:
        assert session.run(graph, timeout_s=DEADLINE_S)[node] == [wanted(part, part + 1) for part in range(N)]
    assert (tmp_path / "died").exists()


@BACKENDS
def test_a_key_that_is_no_partition_fails_its_task(backend):
    graph = weft.Graph("keys")
    source = graph.map(lambda number: {number + 1: "piece"}, range(3), name="source")
    graph.add(list, shuffle(source), n=3, name="read")
    with weft.Session(backend=backend, workers=1) as session, pytest.raises(TaskError, match="partition 3 of 3"):
        session.run(graph, timeout_s=DEADLINE_S)


@BACKENDS
def test_a_mapping_is_streamed_by_its_pieces(backend):
    graph = weft.Graph("streamed")
    source = graph.map(lambda number: {number: number, 2: 10 * number}, range(3), name="source")
    options: Any = {"concurrent": True, "storage": Storage.EPHEMERAL}
    reads = graph.add(list, shuffle(source, 3, **options), n=3, name="read")
    graph.bubble(source, reads)
    with weft.Session(backend=backend, workers=6) as session:
        found = session.run(graph, timeout_s=DEADLINE_S)[reads]
    assert found == [[0], [1], [0, 10, 20]]


@BACKENDS
def test_a_task_returns_a_mapping_to_edges_that_it_does_not_write(backend):
    def both(ctx: Any, inputs: Any) -> dict[int, int]:
        ctx.out("written").write(1, "written")
        return {0: ctx.index}

    graph = weft.Graph("both")
    source = graph.task(both, n=2, name="source")
    written = graph.add(list, shuffle(source, 3, name="written"), name="reads_written")
    returned = graph.add(list, shuffle(source, 3, name="returned"), name="reads_returned")
    whole = graph.add(list, gather(source, name="whole"), name="reads_whole")
    with weft.Session(backend=backend, workers=2) as session:
        results = session.run(graph, timeout_s=DEADLINE_S)
        assert results[written] == [[], ["written", "written"], []]
        assert results[returned] == [[0, 1], [], []]
        assert results.value(whole) == [{0: 0}, {0: 1}]
