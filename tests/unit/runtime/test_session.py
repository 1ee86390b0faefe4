"""Sessions: how long runs and their results live."""

import gc
import threading
import time
import weakref

import pytest

import weft
from weft.model.errors import NotFoundError

DEADLINE_S = 30.0


def wait_until(condition) -> None:
    limit = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < limit, "the condition has not come true"
        threading.Event().wait(0.002)


@pytest.fixture
def session():
    with weft.Session(backend="threads", workers=2) as session:
        yield session


def large(size: int) -> bytes:
    return bytes(size)


def large_run(session, size: int = 10_000_000):
    graph = weft.Graph()
    node = graph.map(large, [size])
    return session.submit(graph), node


def used(session) -> int:
    return int(session.store.stats().memory)


def test_a_run_goes_with_the_last_reference_to_it_and_its_results(session):
    run, _ = large_run(session)
    results = run.result()
    del run
    gc.collect()
    assert used(session) >= 10_000_000
    del results
    wait_until(lambda: used(session) == 0)


def test_a_run_without_references_goes_at_its_end(session):
    gate, ended = threading.Event(), threading.Event()
    graph = weft.Graph()

    def last(values):
        ended.set()
        return bytes(len(values) * 1_000_000)

    graph.add(last, graph.map(lambda _: gate.wait(), [0]))
    session.submit(graph)
    gc.collect()
    gate.set()
    assert ended.wait(DEADLINE_S)
    wait_until(lambda: not session.loop.jobs)
    wait_until(lambda: used(session) == 0)


def test_the_memory_of_an_ended_run_is_free_before_the_next_one_starts(session):
    for _ in range(5):
        run, _ = large_run(session)
        run.result()
        del run
        assert used(session) <= 20_000_000, "at most the values of the last two runs"


def test_an_ended_run_needs_no_garbage_collector(session):
    large_run(session)[0].result()
    gc.collect()
    gc.disable()
    try:
        run, _ = large_run(session, 100)
        run.result()
        job = weakref.ref(run.job)
        del run
        wait_until(lambda: job() is None)
    finally:
        gc.enable()


def test_what_was_forgotten_is_not_there(session):
    run, node = large_run(session)
    results = run.result()
    run.forget()
    with pytest.raises(NotFoundError, match="were dropped"):
        results[node]
    run.forget()
