"""Cancels of one task, early ends as successes, and priorities of vertices, through the session."""

import re
import threading
from collections.abc import Iterator

import pytest

import weft
from weft.model.errors import GraphError, NotFoundError, RunCancelledError, UsageError

PATIENCE_S = 180.0


def wait_until_told(ctx, inputs):
    """Run until it is cancelled."""
    told = threading.Event()
    ctx.on_cancel(told.set)
    ctx.emit("runs")
    assert told.wait(PATIENCE_S)
    return "told"


@pytest.fixture(params=["threads", "processes"])
def session(request) -> Iterator[weft.Session]:
    with weft.Session(request.param, workers=2, grace_s=0.5) as opened:
        yield opened


def begun(run: weft.Run, vertex: str) -> None:
    """Wait until a task of a vertex has emitted its event."""
    seen = threading.Event()
    run.listen(lambda job, *_: seen.set() if any(p.vertex == vertex for p in job.inspector.published) else None)
    if any(published.vertex == vertex for published in run.job.inspector.published):
        seen.set()
    assert seen.wait(PATIENCE_S)


def test_a_running_task_is_cancelled_and_the_others_end(session):
    g = weft.Graph("searched")
    slow = g.task(wait_until_told, name="slow")
    fast = g.map(abs, range(-3, 0), name="fast")
    after = g.add(abs, slow, name="after")
    run = session.submit(g)
    begun(run, "slow")
    run.cancel_task(slow, 0, "it takes too long")
    assert run.wait(PATIENCE_S)
    assert run.status == "failed"
    error = run.error()
    assert isinstance(error, RunCancelledError)
    assert error.message == "slow[0] was cancelled: it takes too long"
    assert run.results()[fast] == [3, 2, 1]
    assert any("CANCELLED: it takes too long" in line for line in run.story("slow[0]"))
    assert {vertex.id: vertex.state for vertex in run.view().vertices}[after.id] == "cancelled"


def test_an_item_of_a_map_is_cancelled_and_the_results_of_the_others_come():
    gate = threading.Event()
    started = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            started.set()
            assert gate.wait(PATIENCE_S)
        return -item

    with weft.Session(workers=1) as session, session.map(work, range(4)) as mapped:
        assert started.wait(PATIENCE_S)
        mapped.cancel_item(2, "not wanted")
        gate.set()
        first, second, third, last = mapped.results()
    assert [first, second, last] == [0, -1, -3]
    assert isinstance(third, RunCancelledError)
    assert "map[2]" in str(third) or "work[2]" in str(third)
    assert "was cancelled for the item 2: not wanted" in str(third)


def test_cancels_of_what_is_not_there_are_refused():
    g = weft.Graph("g")
    node = g.map(abs, range(3), name="a")
    with weft.Session(workers=1) as session:
        run = session.submit(g)
        with pytest.raises(NotFoundError, match="no vertex 'b'"):
            run.cancel_task("b", 0)
        with pytest.raises(NotFoundError, match="a has 3 tasks, and no task 3"):
            run.cancel_task(node, 3)
        with pytest.raises(UsageError, match="index"):
            run.cancel_task(node, -1)
        with pytest.raises(NotFoundError, match="a has 3 tasks, and no task 1234567"):
            run.cancel_task(node, 1_234_567)
        with pytest.raises(NotFoundError, match="no vertex 'b'"):
            run.cancel_tasks("b")
        assert run.result(PATIENCE_S)[node] == [0, 1, 2]
        run.cancel_task(node, 0)  # too late, and without effect
        assert run.status == "succeeded"
        with session.map(abs, [1]) as mapped, pytest.raises(NotFoundError, match="item 7"):
            mapped.cancel_item(7)


def test_all_tasks_of_a_vertex_are_cancelled_that_have_not_ended(session):
    g = weft.Graph("searched")
    slow = g.task(wait_until_told, name="slow", n=3)
    run = session.submit(g)
    begun(run, "slow")
    run.cancel_tasks(slow, "no more")
    assert run.wait(PATIENCE_S)
    assert re.match(r"slow\[[012]\] was cancelled: no more", str(run.error()))
    assert run.results().finished(slow) == {}


def test_a_task_beyond_a_million_is_cancelled():
    g = weft.Graph("wide")
    wide = g.map(abs, range(1_000_002), name="wide")
    with weft.Session(workers=1) as session:
        run = session.submit(g)
        run.cancel_task(wide, 1_000_001)
        run.stop()
        assert run.wait(PATIENCE_S)


def test_a_map_stops_when_a_result_suffices_and_its_run_succeeds():
    with weft.Session(workers=2) as session:
        mapped = session.map(abs, range(10_000), stop_when=lambda value: value == 5)
        runs = mapped.runs
        assert mapped.results() == [0, 1, 2, 3, 4, 5]
        for run in runs:
            assert run.wait(PATIENCE_S)
            assert run.status == "succeeded"
        endless = session.map(abs, iter(range(10**9)), stop_when=lambda value: value == 100)
        assert endless.results() == list(range(101))
        with pytest.raises(UsageError, match="stop_when"):
            session.map(abs, [1], stop_when=3)  # type: ignore[arg-type]


def test_a_search_ends_within_its_run_and_the_best_is_chosen_of_what_there_is():
    g = weft.Graph("search")
    trials = g.task(_trial, n=40, name="trial").keep()
    best = g.add(min, weft.gather(trials), name="best")
    with weft.Session(workers=2, grace_s=0.5) as session:
        run = session.submit(g)
        for _, loss in run.as_completed(trials, PATIENCE_S):
            if loss <= 3:
                run.stop(trials, "good enough")
                break
        results = run.result(PATIENCE_S)
        assert results.value(best) == min(results.finished(trials).values()) <= 3
        with pytest.raises(NotFoundError, match=r"Values that there are: results\.finished\(node\)"):
            list(results[trials])
        assert run.status == "succeeded"
        assert any("good enough" in line for line in run.story("trial"))


def _trial(ctx, inputs):
    if ctx.index > 10:
        return wait_until_told(ctx, inputs)
    return 10 - ctx.index


def test_a_run_that_is_stopped_succeeds_with_what_it_has(session):
    g = weft.Graph("g")
    slow = g.task(wait_until_told, name="slow").keep()
    fast = g.map(abs, [-1, -2], name="fast").keep()
    g.add(print, weft.gather(slow), name="never")
    run = session.submit(g)
    begun(run, "slow")
    list(run.as_completed(fast, PATIENCE_S))
    run.stop()
    results = run.result(PATIENCE_S)
    assert (results[fast], results.finished(slow)) == ([1, 2], {})
    with pytest.raises(NotFoundError):
        run.stop("other")


def test_a_service_is_not_stopped_by_hand():
    g = weft.Graph("g")
    server = g.service(wait_until_told, name="server")
    g.task(wait_until_told, server, name="worker")
    with weft.Session(workers=2, grace_s=0.5) as session:
        run = session.submit(g)
        with pytest.raises(UsageError, match="server is ended by the end of its last consumer"):
            run.stop(server)
        begun(run, "worker")
        run.stop()
        assert run.wait(PATIENCE_S)
        assert run.status == "succeeded"


def test_tasks_of_a_higher_priority_start_first():
    order: list[str] = []
    g = weft.Graph("g")
    first = g.map(lambda _: order.append("low"), range(3), name="low", priority=-1)
    g.map(lambda _: order.append("usual"), range(3), name="usual")
    g.map(lambda _: order.append("high"), range(3), name="high", priority=5)
    g.add(lambda _: order.append("deep"), weft.gather(first), name="deep", priority=-2)
    with weft.Session(workers=1) as session:
        session.run(g, timeout_s=PATIENCE_S, progress=False)
    assert order == ["high"] * 3 + ["usual"] * 3 + ["low"] * 3 + ["deep"]


def test_requests_and_tasks_without_a_core_start_by_priority_too():
    order: list[str] = []
    memory = weft.Resources(memory=1 << 20)
    light = weft.Resources(cpu=0, tokens=(("one", 1),))
    g = weft.Graph("g", limits={"one": 1})
    for name, priority in (("low", 0), ("high", 1)):
        g.map(lambda _, n=name: order.append(f"m {n}"), range(2), name=name, resources=memory, priority=priority)
        g.map(
            lambda _, n=name: order.append(f"t {n}"), range(2), name=f"light-{name}", resources=light, priority=priority
        )
    with weft.Session(workers=1, memory=1 << 20) as session:
        session.run(g, timeout_s=PATIENCE_S, progress=False)
    assert [word for word in order if word[0] == "m"] == ["m high"] * 2 + ["m low"] * 2
    assert [word for word in order if word[0] == "t"] == ["t high"] * 2 + ["t low"] * 2


@pytest.mark.parametrize("priority", [1001, -1001])
def test_a_priority_out_of_its_range_is_refused(priority):
    g = weft.Graph("g")
    g.map(abs, [1], name="a", priority=priority)
    with pytest.raises(GraphError, match=f"vertex 'a' has the priority {priority}"):
        g.finish()
    with pytest.raises(GraphError, match="priority of vertex 'b' is"):
        g.map(abs, [1], name="b", priority="high")  # type: ignore[arg-type]
