"""Runs in the order in which they end, results of a vertex as they come, and callbacks."""

import gc
import threading
import time
import weakref
from concurrent.futures import Future
from typing import Any

import pytest

import weft
from tests.unit.runtime.tasks import DEADLINE_S, begin, double, three_fails, waits_for
from weft.model.errors import NotFoundError, RunCancelledError, TaskError, UsageError


def wait_until(condition):
    limit = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < limit, "the condition has not come true"
        threading.Event().wait(0.002)


@pytest.fixture(scope="module")
def threads():
    with weft.Session("threads", workers=4) as session:
        yield session


# ------------------------------------------------------------------------------------------------------- runs


def test_runs_come_in_the_order_in_which_they_end(session, tmp_path):
    order = [2, 0, 1]
    runs = [begin(session, waits_for, [tmp_path / str(number)]) for number in order[:2]]
    found = weft.as_completed(runs)
    (tmp_path / "0").touch()
    assert next(found) is runs[1]
    (tmp_path / "2").touch()
    assert next(found) is runs[0]
    with pytest.raises(StopIteration):
        next(found)


def test_runs_of_several_sessions_come_together(session, threads):
    runs = [begin(session, double, range(20)), begin(threads, double, range(20)), begin(session, three_fails, [3])]
    assert set(weft.as_completed(runs, timeout_s=DEADLINE_S)) == set(runs)
    assert all(run.done for run in runs)
    assert [run.status for run in runs] == ["succeeded", "succeeded", "failed"]
    assert list(weft.as_completed([*runs, runs[0]])) == runs


def test_no_runs_are_no_runs():
    assert list(weft.as_completed([])) == []


def test_many_runs_at_once(threads):
    runs = [begin(threads, double, [number]) for number in range(500)]
    assert sorted(run.result()["tasks"][0] for run in weft.as_completed(runs, DEADLINE_S)) == list(range(0, 1000, 2))


def test_a_run_that_goes_on_is_a_timeout(threads, tmp_path):
    runs = [begin(threads, waits_for, [tmp_path / "go"]), begin(threads, double, [1])]
    assert runs[1].wait(DEADLINE_S)
    found = weft.as_completed(runs, timeout_s=0.05)
    assert next(found) is runs[1]
    with pytest.raises(TimeoutError, match="1 run of 2"):
        next(found)
    (tmp_path / "go").touch()
    assert list(weft.as_completed(runs[:1])) == runs[:1]


def test_what_is_no_run_is_refused(threads):
    run = begin(threads, double, [1])
    wrongs: list[Any] = [run, [run, 3], 7]
    for wrong in wrongs:
        with pytest.raises(UsageError, match="runs is"):
            weft.as_completed(wrong)
    with pytest.raises(UsageError, match=r"Futures belong to concurrent\.futures\.as_completed"):
        weft.as_completed([Future()])  # type: ignore[list-item]


def test_durable_runs_come_once_they_are_on_disk(tmp_path):
    with weft.Session("threads", workers=2, durable=tmp_path) as session:
        runs = [begin(session, double, [number]) for number in range(3)]
        for run in weft.as_completed(runs, timeout_s=DEADLINE_S):
            assert run.done


def test_a_task_without_another_worker_may_not_wait_for_runs():
    with weft.Session("threads", workers=1) as session:

        def inner():
            return list(weft.as_completed([begin(session, double, [1])]))

        graph = weft.Graph("outer")
        graph.add(inner)
        with pytest.raises(TaskError, match="waits for a run of its own session"):
            session.run(graph)


# -------------------------------------------------------------------------------------------------- callbacks


@pytest.mark.parametrize("fn", [double, three_fails])
def test_a_done_callback_is_called_once_with_the_run(session, fn):
    called: list[weft.Run] = []
    run = begin(session, fn, [3])
    run.add_done_callback(called.append)
    run.wait()
    wait_until(lambda: called)
    run.add_done_callback(called.append)
    wait_until(lambda: called[1:])
    assert called == [run, run]


def test_a_callback_after_the_close_is_called_at_once():
    called: list[weft.Run] = []
    with weft.Session("threads", workers=1) as session:
        run = begin(session, double, [1])
        run.wait()
    run.add_done_callback(called.append)
    assert called == [run]


def test_callbacks_come_in_order_on_one_thread_that_may_wait(threads):
    called: list[Any] = []

    def note(run):
        called.append((run, threading.current_thread().name, run.result()["tasks"]))

    run = begin(threads, double, range(3))
    run.add_result_callback("tasks", lambda index, value: called.append((index, value)))
    run.add_done_callback(note)
    wait_until(lambda: len(called) == 4)
    assert sorted(called[:3]) == [(0, 0), (1, 2), (2, 4)]
    assert called[3] == (run, "weft-callbacks", [0, 2, 4])


def test_a_callback_that_raises_is_a_warning(threads):
    def broken(run):
        raise RuntimeError("a fault")

    called = threading.Event()
    run = begin(threads, double, [1])

    def add():
        run.add_done_callback(broken)
        run.add_done_callback(lambda _: called.set())
        assert called.wait(DEADLINE_S)

    with pytest.warns(RuntimeWarning, match="broken raised RuntimeError: a fault"):
        add()


def test_the_close_of_a_session_makes_the_calls_of_its_runs(tmp_path):
    called: list[str] = []
    with weft.Session("threads", workers=1, grace_s=0.1) as session:
        begin(session, waits_for, [tmp_path / "never"]).add_done_callback(lambda run: called.append(run.status))
        (tmp_path / "never").touch()
    assert called in (["cancelled"], ["succeeded"])


def test_a_callback_does_not_keep_its_run_after_the_end(threads):
    run = begin(threads, double, range(10))
    called = threading.Event()
    run.add_result_callback("tasks", lambda index, value: None)
    run.add_done_callback(lambda run: called.set())
    dead = weakref.ref(run)
    del run
    assert called.wait(DEADLINE_S)

    def gone():
        gc.collect()
        return dead() is None

    wait_until(gone)


# ---------------------------------------------------------------------------------------------------- results


def test_results_of_a_vertex_come_before_the_run_ends(session, tmp_path):
    graph = weft.Graph("early")
    early = graph.map(double, range(100)).keep()
    graph.add(waits_for, weft.after(early), items=[tmp_path / "go"], name="late")
    run = session.submit(graph)
    assert sorted(run.as_completed(early)) == [(index, 2 * index) for index in range(100)]
    assert not run.done
    (tmp_path / "go").touch()
    assert list(run.as_completed("late", timeout_s=DEADLINE_S)) == [(0, "go")]
    run.wait()
    assert sorted(run.as_completed(early)) == [(index, 2 * index) for index in range(100)]


def test_each_result_comes_as_soon_as_it_is_there(session, tmp_path):
    graph = weft.Graph("two")
    alone = weft.Resources(memory=1024)  # a request for each task: else one lease may have both
    graph.map(waits_for, [tmp_path / "0", tmp_path / "1"], name="tasks", resources=alone)
    run = session.submit(graph)
    found = run.as_completed("tasks")
    (tmp_path / "1").touch()
    assert next(found) == (1, "1")
    (tmp_path / "0").touch()
    assert next(found) == (0, "0")
    assert list(found) == []


def test_results_of_a_vertex_of_unknown_width(session):
    graph = weft.Graph("wide")
    plan = graph.add(lambda: 5, expands=True, name="plan")
    graph.add(double, weft.gather(plan), n=weft.Source("plan"), name="wide")
    run = session.submit(graph)
    assert sorted(index for index, _ in run.as_completed("wide", DEADLINE_S)) == list(range(5))


def test_the_error_of_the_run_follows_its_results(session):
    run = begin(session, three_fails, range(6), on_failure=weft.OnFailure.CONTINUE)
    found = []
    with pytest.raises(ValueError, match="three") as failed:
        found.extend(run.as_completed("tasks"))
    assert isinstance(failed.value, TaskError)
    assert sorted(found) == [(index, index) for index in range(6) if index != 3]


def test_a_cancel_ends_the_results(threads, tmp_path):
    run = begin(threads, waits_for, [tmp_path / "go"])
    found = run.as_completed("tasks")
    run.cancel("enough")
    (tmp_path / "go").touch()
    with pytest.raises(RunCancelledError, match="enough"):
        list(found)


def test_a_task_that_goes_on_is_a_timeout(threads, tmp_path):
    run = begin(threads, waits_for, [tmp_path / "go"])
    with pytest.raises(TimeoutError, match="tasks"):
        list(run.as_completed("tasks", timeout_s=0.05))
    (tmp_path / "go").touch()
    assert list(run.as_completed("tasks")) == [(0, "go")]


@pytest.mark.parametrize("vertex", ["nothing", "tasks"])
def test_values_that_are_not_kept_are_refused(threads, vertex):
    graph = weft.Graph("job")
    graph.add(sum, weft.gather(graph.map(double, range(3), name="tasks")))
    run = threads.submit(graph)
    run.wait()
    with pytest.raises(NotFoundError):
        run.as_completed(vertex)
    with pytest.raises(NotFoundError):
        run.add_result_callback(vertex, print)


def test_a_lost_value_is_read_when_it_is_there_again(monkeypatch):
    with weft.Session("threads", workers=1) as session:
        lost = {3, 4, 90}
        load = session.load

        def fails_at_first(job, vertex, column, index):
            if index in lost and job.outcome is None:
                lost.remove(index)
                raise NotFoundError("its node is gone")
            return load(job, vertex, column, index)

        release = threading.Event()
        monkeypatch.setattr(session, "load", fails_at_first)
        graph = weft.Graph("early")
        early = graph.map(double, range(100)).keep()
        graph.add(lambda: release.wait(DEADLINE_S), weft.after(early), name="late")
        run = session.submit(graph)
        assert sorted(run.as_completed(early)) == [(index, 2 * index) for index in range(100)]
        assert not lost
        release.set()


def test_results_of_a_waiting_job(tmp_path):
    with weft.Session("threads", workers=1) as session:
        begin(session, waits_for, [tmp_path / "go"])
        waiting = begin(session, double, range(10))
        found = waiting.as_completed("tasks")
        (tmp_path / "go").touch()
        assert sorted(found) == [(index, 2 * index) for index in range(10)]
