"""Vertex managers in real sessions: the same graphs on threads and on processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from weft.graph.builder import Graph, after, gather, shuffle
from weft.graph.logical import Manager, Range, Trigger
from weft.model.errors import GraphError
from weft.wiring import Session

TIMEOUT_S = 60


@pytest.fixture(scope="module", params=["threads", "processes"])
def session(request: Any) -> Iterator[Session]:
    with Session(backend=request.param, workers=2) as opened:
        yield opened


def pieces(number: int) -> list[bytes]:
    return [b"x" * (1 + number % 3) for _ in range(50)]


def total(parts: list[bytes]) -> int:
    return sum(map(len, parts))


def two_rows(number: int) -> list[int]:
    return [number] * 2


def first_five(parts: list[list[int]]) -> list[int]:
    return [row for part in parts for row in part][:5]


def say_keys(ctx: Any, inputs: Any) -> None:
    ctx.emit("keys", [1, 5, 7])


def key_of(split: dict[str, int]) -> int:
    return split["key"]


def test_a_small_shuffle_is_read_by_one_task(session: Session) -> None:
    graph = Graph("parallelism")
    maps = graph.map(pieces, range(100))
    reader = graph.add(total, shuffle(maps, 50), n=Range(1, 50), manager="shuffle")
    results = session.run(graph, timeout_s=TIMEOUT_S)
    assert results[reader] == [50 * sum(1 + number % 3 for number in range(100))]


def test_a_larger_one_by_as_many_as_its_bytes_ask_for(session: Session) -> None:
    graph = Graph("parallelism")
    maps = graph.map(pieces, range(100))
    manager = Manager("shuffle", {"target": 30_000})
    reader = graph.add(total, shuffle(maps, 50), n=Range(1, 50), manager=manager)
    results = session.run(graph, timeout_s=TIMEOUT_S)
    assert 1 < len(results[reader]) < 50
    assert sum(results[reader]) == 50 * sum(1 + number % 3 for number in range(100))


def test_a_limit_starts_a_few_of_four_thousand(session: Session) -> None:
    graph = Graph("limit")
    scan = graph.map(two_rows, range(4000), manager=Manager("waves", {"rows": 5}))
    limit = graph.add(first_five, gather(scan, when=Trigger.EVENT, event="enough"))
    run = session.submit(graph)
    assert len(run.result(TIMEOUT_S).value(limit)) == 5
    assert run.view().vertices[0].finished <= 11
    assert run.view().vertices[0].state == "done_early"


def test_a_limit_that_is_not_met_reads_everything(session: Session) -> None:
    graph = Graph("limit")
    scan = graph.map(two_rows, range(40), manager=Manager("waves", {"rows": 1000}))
    limit = graph.add(len, gather(scan, when=Trigger.EVENT, event="enough"))
    assert session.run(graph, timeout_s=TIMEOUT_S).value(limit) == 40


def test_keys_of_the_small_side_prune_the_big_one(session: Session) -> None:
    graph = Graph("pruning")
    small = graph.task(say_keys)
    big = graph.map(
        key_of, [{"key": key} for key in range(1000)], after(small), manager=Manager("pruning", {"key": "key"})
    )
    answer = graph.add(sum, gather(big))
    run = session.submit(graph)
    assert run.result(TIMEOUT_S).value(answer) == 13
    assert run.view().vertices[1].n == 3


def test_an_unknown_manager_is_told_when_the_graph_is_submitted(session: Session) -> None:
    graph = Graph("wrong")
    graph.map(two_rows, range(4), manager="wavs")
    with pytest.raises(GraphError, match="manager 'wavs'"):
        session.submit(graph)
