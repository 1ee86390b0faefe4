"""Bubbles that stream, services and their endpoints, on threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from weft.backends.threads import Threads
from weft.graph.builder import Graph, one_to_one
from weft.graph.logical import Retry, Storage
from weft.runtime.session import Session
from weft.store.keeper import Keeper

TIMEOUT_S = 60


@pytest.fixture
def session() -> Iterator[Session]:
    store = Keeper(2**28)
    with Session(Threads(4, store), store) as opened:
        yield opened


def count_up(ctx: Any, inputs: Any) -> None:
    for number in range(100):
        ctx.out("count_up->add_up").write(0, number)


def add_up(ctx: Any, inputs: Any) -> int:
    return sum(inputs["count_up->add_up"])


def test_a_bubble_streams(session: Session) -> None:
    graph = Graph("stream")
    source = graph.task(count_up)
    sink = graph.task(add_up, one_to_one(source, concurrent=True, storage=Storage.EPHEMERAL))
    graph.bubble(source, sink)
    assert session.run(graph, timeout_s=TIMEOUT_S).value(sink) == 4950


def test_a_region_starts_again_from_an_empty_stream(session: Session) -> None:
    attempts: list[int] = []

    def fail_once(ctx: Any, inputs: Any) -> int:
        attempts.append(ctx.attempt)
        total = 0
        for number in inputs["count_up->add_up"]:
            total += number
            if len(attempts) == 1 and number == 50:
                raise ValueError("half way")
        return total

    graph = Graph("stream")
    source = graph.task(count_up)
    sink = graph.task(
        fail_once,
        one_to_one(source, concurrent=True, storage=Storage.EPHEMERAL),
        name="add_up",
        retry=Retry(user=1),
    )
    graph.bubble(source, sink)
    assert session.run(graph, timeout_s=TIMEOUT_S).value(sink) == 4950
    assert len(attempts) == 2


def test_consumers_find_every_endpoint_of_a_service_which_ends_with_them(session: Session) -> None:
    stopped = threading.Semaphore(0)

    def serve(ctx: Any, inputs: Any) -> None:
        ctx.emit("endpoint", f"address-{ctx.index}")
        told = threading.Event()
        ctx.on_cancel(told.set)
        told.wait()
        stopped.release()

    def ask(ctx: Any, inputs: Any) -> list[str]:
        found: list[str] = ctx.endpoints("serve")
        return found

    graph = Graph("service")
    service = graph.service(serve, n=2)
    users = graph.task(ask, service, n=2)
    results = session.run(graph, timeout_s=TIMEOUT_S)
    assert results[users] == [["address-0", "address-1"]] * 2
    assert stopped.acquire(timeout=TIMEOUT_S)
    assert stopped.acquire(timeout=TIMEOUT_S)
