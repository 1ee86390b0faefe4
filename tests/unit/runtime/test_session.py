"""Sessions: how long runs and their results live."""

import copy
import errno
import gc
import os
import pickle
import threading
import time
import warnings
import weakref

import pytest

import weft
from weft.engine.physical import Stage
from weft.model.errors import NotFoundError, ProgramError, TaskError, UsageError
from weft.runtime.loop import Loop

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_objects")]

DEADLINE_S = 180.0


def wait_until(condition) -> None:
    limit = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < limit, "the condition has not come true"
        threading.Event().wait(0.002)


@pytest.fixture
def session():
    with weft.Session(backend="threads", workers=2) as session:
        yield session


def double(value: int) -> int:
    return 2 * value


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


def test_a_run_goes_without_the_garbage_collector(session):
    def vertices() -> int:
        return sum(type(one) is Stage and one.id.startswith("of-a-chain") for one in gc.get_objects())

    graph = weft.Graph()
    node = graph.map(large, [1], name="of-a-chain")
    for at in range(20):
        node = graph.add(bytes, node, name=f"of-a-chain-{at}")
    gc.collect()
    gc.disable()
    try:
        results = session.run(graph)
        assert len(results[node][0]) == 1
        assert vertices() == 21
        del results
        wait_until(lambda: vertices() == 0)
    finally:
        gc.enable()


def test_copies_of_a_run_are_the_run_and_do_not_end_it(session):
    run, node = large_run(session)
    run.wait()
    assert copy.copy(run) is run
    with pytest.raises(TypeError, match="cannot pickle"):
        copy.deepcopy(run)
    gc.collect()
    assert len(run.result()[node][0]) == 10_000_000


@pytest.mark.parametrize("before", [0, 2], ids=["a job that begins", "a job that waits"])
def test_a_change_of_the_graph_after_the_submission_does_not_reach_the_job(session, before):
    gate = threading.Event()
    first = weft.Graph()
    first.map(lambda _: gate.wait(DEADLINE_S), range(before))
    blocked = session.submit(first)
    graph = weft.Graph()
    node = graph.map(lambda value: gate.wait(DEADLINE_S) and double(value), [1, 2])
    run = session.submit(graph)
    graph.vertices.clear()
    graph.map(double, [3])
    gate.set()
    assert run.result(timeout_s=DEADLINE_S)[node] == [2, 4]
    assert [row.id for row in run.job.inspector.vertices] == [node.id]
    blocked.result(timeout_s=DEADLINE_S)


def test_a_run_without_references_goes_at_its_end(session):
    gate, ended = threading.Event(), threading.Event()
    graph = weft.Graph()

    def last(_):
        ended.set()
        return bytes(1_000_000)

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


def test_waiting_and_ended_jobs_have_few_objects_for_the_garbage_collector(session):
    gate, jobs = threading.Event(), 100
    graph = weft.Graph()
    graph.map(lambda _: gate.wait(), range(2))
    blocked = session.submit(graph)
    assert blocked.status == "running"
    graphs = [(graph, graph.map(double, range(10))) for graph in (weft.Graph() for _ in range(jobs))]
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        runs = [session.submit(graph) for graph, _ in graphs]
        gc.collect()
        waiting = len(gc.get_objects()) - before
        gate.set()
        for run in runs:
            run.wait()
        gc.collect()
        ended = len(gc.get_objects()) - before
    finally:
        gc.enable()
        gate.set()
    assert [run.result()[node] for run, (_, node) in zip(runs, graphs, strict=True)] == [
        [double(i) for i in range(10)]
    ] * jobs
    assert waiting <= 8 * jobs
    assert ended <= 16 * jobs


def test_what_was_forgotten_is_not_there(session):
    run, node = large_run(session)
    results = run.result()
    run.forget()
    with pytest.raises(NotFoundError, match="were dropped") as told:
        results[node]
    assert "before run.forget()" in told.value.hint
    run.forget()


class OddError(LookupError):
    pass


def odd_fails(_):
    raise OddError("nothing there")


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_an_error_of_a_task_is_caught_by_its_own_class(backend):
    graph = weft.Graph()
    graph.map(odd_fails, [1])
    with weft.Session(backend=backend, workers=1) as session, pytest.raises(OddError, match="nothing there") as told:
        session.run(graph)
    assert isinstance(told.value, TaskError)
    assert 'raise OddError("nothing there")' in str(told.value.__cause__)


class CodedError(Exception):
    __slots__ = ("slot",)

    def __init__(self, code, *, why):
        super().__init__(f"{code} {why[0]}")
        self.code = code
        self.why = why
        self.slot = 3


def fails_as(kind):
    if kind is CodedError:
        raise CodedError(7, why=("m",))
    if kind is OSError:
        os.stat("/no/such/file")
    raise kind("q", 5)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_an_error_of_a_task_has_the_attributes_of_its_exception(backend):
    with weft.Session(backend=backend, workers=1) as session:
        for kind, names, wanted in (
            (CodedError, ("code", "why", "slot", "args"), (7, ("m",), 3, ("7 m",))),
            (OSError, ("errno", "filename"), (errno.ENOENT, "/no/such/file")),
            (KeyError, ("args",), (("q", 5),)),
        ):
            graph = weft.Graph()
            graph.map(fails_as, [kind])
            with pytest.raises(kind) as told:
                session.run(graph)
            assert tuple(getattr(told.value, name) for name in names) == wanted
            with pytest.raises(kind, match="for the item") as mapped:
                list(session.map(fails_as, [kind]))
            assert tuple(getattr(mapped.value, name) for name in names) == wanted
            assert isinstance(mapped.value, TaskError)


def fails_unsendably(_):
    error = OddError("with a lock")
    error.__dict__.update(lock=threading.Lock(), large=bytes(1 << 20))
    raise error


def test_attributes_that_cannot_be_sent_are_left_out():
    graph = weft.Graph()
    graph.map(fails_unsendably, [1])
    with weft.Session("processes", workers=1) as session, pytest.raises(OddError, match="with a lock") as told:
        session.run(graph)
    assert not hasattr(told.value, "large")


@pytest.mark.parametrize("at", ["begin", "end"])
def test_a_listener_that_raises_fails_its_run_and_no_other(session, at):
    def breaks(job, events, commands):
        if at == "begin" or job.outcome is not None:
            raise ValueError("no room for it")

    graph = weft.Graph()
    node = graph.map(abs, [-1, 2])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = session.submit(graph, listeners=[breaks])
        assert run.wait(DEADLINE_S)
    message = "breaks raised ValueError: no room for it"
    if at == "begin":
        error = run.error()
        assert isinstance(error, UsageError)
        assert message in error.message
    else:
        assert run.results()[node] == [1, 2]
        assert any(message in str(each.message) for each in told)
    assert session.run(graph)[node] == [1, 2]


def test_a_report_that_comes_while_a_job_is_put_behind_others_is_not_lost(monkeypatch):
    gate, loops = threading.Event(), []
    wait_for_turn = Loop._wait_for_turn

    def slow(loop, job, now):
        """Hold the lock of the loop until the worker has reported."""
        wait_for_turn(loop, job, now)
        gate.set()
        loops.append(loop)
        wait_until(lambda: loop._queue)

    monkeypatch.setattr(Loop, "_wait_for_turn", slow)
    with weft.Session(backend="threads", workers=1) as session:
        first = weft.Graph()
        first.map(lambda _: gate.wait(DEADLINE_S), [1])
        running = session.submit(first)
        wait_until(lambda: running.status == "running")
        second = weft.Graph()
        node = second.map(double, [1])
        assert session.submit(second).result(DEADLINE_S)[node] == [2]
    assert loops, "the second job waited for no turn"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_reduction_gives_its_function_lists_whatever_it_combines(count):
    with weft.Session(workers=1) as session:
        graph = weft.Graph("reduced")
        total = graph.reduce(sum, graph.map(double, range(count)))
        assert session.run(graph).value(total) == count * (count - 1)


def test_the_error_of_pickling_a_session_names_it():
    named = r"the Session 'mine'.*as params"
    with weft.Session(workers=1, name="mine") as session, pytest.raises(TypeError, match=named):
        pickle.dumps(session)


def test_a_function_with_a_session_in_its_closure_is_refused_by_the_session_s_name():
    with weft.Session("processes", workers=1, name="mine") as session:

        def nested(item):
            return list(session.map(abs, [item]))

        with pytest.raises(ProgramError, match=r"cannot pickle the Session 'mine'.*as params"):
            list(session.map(nested, [1], progress=False))
