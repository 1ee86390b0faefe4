"""Tasks that end their worker processes: given up after three, with the line that did it, and without harm."""

import ctypes
import inspect
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.backends.heartbeats import is_stopped
from weft.graph.logical import OnFailure
from weft.model.errors import TaskError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
DEADLINE_S = 180.0


def eventually(condition, what):
    """Wait until `condition()` is true; it may take long, but not for ever."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true in {DEADLINE_S} s"
        time.sleep(0.01)
    return found


def segfaults(x):
    if x == 3:
        ctypes.string_at(0)  # the end
    return x


def exits(x):
    if x == 3:
        os._exit(7)  # the end
    return x


def grows(x):
    if x == 3:
        threading.Event().wait(DEADLINE_S)  # the end
    return x


@pytest.fixture(scope="module")
def session():
    with weft.Session("processes", workers=2, backups=False) as session:  # attempts are counted
        yield session


def submitted(session, body):
    graph = weft.Graph("crashes", on_failure=OnFailure.CONTINUE)
    graph.map(body, range(20), name="numbers")
    return session.submit(graph)


def check_given_up(run, body, how, where):
    with pytest.raises(TaskError, match=r"numbers\[3\] failed: worker \d+ was lost") as failed:
        run.result(DEADLINE_S)
    assert "It has ended 3 different workers" in str(failed.value)
    attempts = [line for line in run.story() if "attempt failed" in line and how in line]
    assert len(attempts) == len({line.split("worker ")[1].split()[0] for line in attempts}) == 3
    assert run.view().vertices[0].finished == 19, "the other tasks end well"
    if not where:
        assert re.search(f"{re.escape(how)}$", str(failed.value), re.MULTILINE)
        return
    lines, first = inspect.getsourcelines(body)
    at = first + next(at for at, line in enumerate(lines) if "# the end" in line)
    assert f"{how}{where} {body.__name__} ({__file__}, line {at})\n" in str(failed.value)
    trace = failed.value.traceback_text.rstrip()
    assert f'File "{__file__}", line {at}, in {body.__name__}\n' in trace
    assert trace in "\n".join(run.story())
    assert trace in str(failed.value.__cause__)


@pytest.mark.parametrize(
    ("body", "how", "where"),
    [(segfaults, "its process was killed by SIGSEGV", " in"), (exits, "its process ended with status 7", "")],
)
def test_a_task_that_ends_its_worker_is_given_up_after_three(session, body, how, where):
    check_given_up(submitted(session, body), body, how, where)


def test_a_task_that_is_killed_three_times_names_the_line_it_was_last_seen_at(session):
    run = submitted(session, grows)
    for _ in range(3):
        found = eventually(
            lambda: [number for number, conn in session.executor._conns.items() if " grows (" in conn.trace().where],
            "a worker with the task",
        )
        pid = session.executor.pids[found[0]]
        os.kill(pid, signal.SIGKILL)  # as the system does for lack of memory
        eventually(lambda pid=pid: pid not in session.executor.pids.values(), "the end of the worker")
    check_given_up(run, grows, "its process was killed by SIGKILL (out of memory?)", "; last seen in")


def stops(path):
    if Path(path).exists():
        return 5
    Path(path).touch()
    os.kill(os.getpid(), signal.SIGSTOP)
    return 7


def computes_in_c(seconds):
    """Hold the GIL in C, so that no other thread of the process runs."""
    ctypes.PyDLL(None).usleep(int(1e6 * seconds))
    return seconds


def test_a_stopped_worker_is_replaced_without_a_timeout(tmp_path):
    with weft.Session("processes", workers=2, backups=False) as session:
        executor: Any = session.executor
        graph = weft.Graph("stopped")
        found = graph.map(stops, [str(tmp_path / "once")], name="stopped")
        run = session.submit(graph)
        frozen = eventually(lambda: [pid for pid in executor.pids.values() if is_stopped(pid)], "a stopped process")
        assert run.result(DEADLINE_S)[found] == [5]
        assert "its process was stopped and did not continue" in "\n".join(run.story())
        eventually(lambda: len(executor.pids) == 2, "another worker")
        assert frozen[0] not in executor.pids.values()
        assert not is_stopped(frozen[0])


def closes_all(_item):
    """Close the descriptors of the process, as programs do that mean to become a daemon."""
    os.closerange(3, 1024)
    time.sleep(DEADLINE_S)


def test_a_task_that_closes_the_socket_of_its_worker_is_told_so():
    with weft.Session("processes", workers=2, backups=False) as session:
        graph = weft.Graph("closes")
        graph.map(closes_all, [1], name="closes")
        run = session.submit(graph)
        with pytest.raises(weft.TaskError, match="closed the socket of its worker"):
            run.result(DEADLINE_S)
    assert "out of memory" not in "\n".join(run.story())


def test_a_worker_whose_task_holds_the_gil_is_not_frozen():
    with weft.Session("processes", workers=1, frozen_s=0.1) as session:
        graph = weft.Graph("busy")
        found = graph.map(computes_in_c, [1.5], name="busy")
        run = session.submit(graph)
        assert run.result(DEADLINE_S)[found] == [1.5]
        assert "lost" not in "\n".join(run.story())


def stops_always(x):
    os.kill(os.getpid(), signal.SIGSTOP)


def test_a_task_that_stops_three_workers_is_given_up():
    with weft.Session("processes", workers=1, frozen_s=0.2) as session:
        graph = weft.Graph("stops")
        graph.map(stops_always, [1], name="stops")
        with pytest.raises(TaskError, match="It has ended 3 different workers"):
            session.run(graph)


@pytest.mark.parametrize("seen", [False, True])
def test_a_stopped_nursery_is_replaced_when_it_owes_a_worker(seen):
    with weft.Session("processes", workers=2, frozen_s=0.5) as session:
        executor: Any = session.executor
        eventually(lambda: len(executor.pids) == 2, "two workers")
        nursery = executor._nursery.process
        os.kill(nursery.pid, signal.SIGSTOP)
        eventually(lambda: is_stopped(nursery.pid), "a stopped nursery")
        conns = list(executor._conns.values())
        for pid in executor.pids.values():
            os.kill(pid, signal.SIGKILL)
        if seen:
            eventually(lambda: all(conn.dead for conn in conns), "the end of the workers' sockets")
        graph = weft.Graph("numbers")
        found = graph.map(abs, range(-4, 0), name="numbers")
        assert session.run(graph, timeout_s=DEADLINE_S)[found] == [4, 3, 2, 1]
        assert executor._nursery.process is not nursery


def crashes_in_a_child(x):
    pid = os.fork()
    if not pid:
        ctypes.string_at(0)
    os.waitpid(pid, 0)
    os._exit(7)


def test_the_crash_of_a_forked_child_is_not_that_of_the_worker(session):
    graph = weft.Graph("forks")
    graph.map(crashes_in_a_child, [1], name="parent")
    with pytest.raises(TaskError, match=r"its process ended with status 7") as failed:
        session.run(graph)
    assert "Segmentation" not in failed.value.traceback_text
