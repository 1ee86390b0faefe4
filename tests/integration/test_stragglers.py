"""Workers that hang: what they were at is run again elsewhere, and the job does not wait for them."""

import os
import signal
import threading
from collections import Counter
from functools import partial

import pytest
from msgspec.structs import replace

import weft
from tests.integration.test_processes import eventually
from weft.backends.processes import Processes
from weft.backends.threads import Threads
from weft.engine.policy import STRAGGLERS
from weft.graph.builder import Graph, gather
from weft.model.errors import UsageError
from weft.policies.stragglers import Stragglers
from weft.runtime.session import EngineSession
from weft.store.blocks import BlockManager

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="stops processes")
TIMEOUT_S = 180.0
HURRIED = {STRAGGLERS: partial(Stragglers, floor_s=0.05)}


def square(number):
    return number * number


def squares(n: int) -> tuple[Graph, object]:
    g = Graph("squares")
    return g, g.add(sum, gather(g.map(square, range(n), name="square")), name="total", keep=True)


def test_a_session_takes_parameters_of_the_policy():
    with weft.Session(workers=1, backups={"times": 3.0, "looks_s": (0.5, 5)}) as session:
        policy = session.managers[STRAGGLERS]()
        assert isinstance(policy, Stragglers)
        assert policy.times == 3.0
        assert session.executor.tuning.looks_s == (0.5, 5.0)
        assert session.executor.tuning.backups
    with pytest.raises(UsageError, match="backups has no parameter 'time'"):
        weft.Session(workers=1, backups={"time": 3.0})
    with pytest.raises(UsageError, match="looks_s of backups is 3"):
        weft.Session(workers=1, backups={"looks_s": 3})


@pytest.mark.parametrize("lost", ["killed", "freed"])
def test_a_process_that_hangs_holds_nobody_up(lost, tmp_path):
    with weft.Session("processes", workers=3, grace_s=0.2 if lost == "killed" else TIMEOUT_S) as session:
        session.run(squares(30)[0], progress=False)
        processes = session.executor
        assert isinstance(processes, Processes)
        eventually(lambda: session.loop.pool.idle == 3 == len(processes.pids), "three idle workers")
        stopped = min(processes.pids.values())
        os.kill(stopped, signal.SIGSTOP)
        try:
            graph, total = squares(300)
            run = session.submit(graph)
            assert run.result(TIMEOUT_S).value(total) == sum(map(square, range(300)))
            assert "backup on worker" in "\n".join(run.explain())
            if lost == "killed":  # it did not stop in time: another takes its place
                eventually(lambda: stopped not in processes.pids.values(), "the end of the worker")
        finally:
            if lost == "freed":
                os.kill(stopped, signal.SIGCONT)
        eventually(lambda: session.loop.pool.idle == 3, "three idle workers")
        graph, total = squares(300)
        assert session.run(graph, progress=False).value(total) == sum(map(square, range(300)))


def hung(tries: Counter[int], wait, ctx, inputs):
    """Square a number; task 39 hangs the first time."""
    with threading.Lock():
        tries[ctx.index] += 1
    if ctx.index == 39 and tries[39] == 1:
        wait(ctx)
        return -1
    return ctx.index**2


@pytest.mark.parametrize("cooperative", [True, False])
def test_a_thread_that_hangs_holds_nobody_up(cooperative):
    tries: Counter[int] = Counter()
    ended, let_go = threading.Event(), threading.Event()

    def wait(ctx):
        while not (ctx.cancelled() if cooperative else let_go.is_set()):
            let_go.wait(0.01)
        ended.set()

    g = Graph("g")
    tasks = g.task(partial(hung, tries, wait), n=40, name="tasks", keep=True)
    store = BlockManager(1 << 24)
    threads = Threads(3, store, grace_s=0.1)
    threads.tuning = replace(threads.tuning, backups=True)
    with EngineSession(threads, store, managers=HURRIED) as session:
        run = session.submit(g)
        assert run.result(TIMEOUT_S)[tasks] == [i**2 for i in range(40)]
        if not cooperative:  # the thread is left to itself, another takes its place
            eventually(lambda: session.loop.pool.idle == 3, "three idle workers")
            let_go.set()
        assert ended.wait(TIMEOUT_S)
        eventually(lambda: session.loop.pool.idle == 3, "three idle workers")
        assert run.results()[tasks] == [i**2 for i in range(40)], "the late value is thrown away"
        assert tries[39] == 2
        g = Graph("again")
        again = g.add(sum, gather(g.map(square, range(100))), keep=True)
        assert session.run(g).value(again) == sum(map(square, range(100)))


@pytest.mark.parametrize(
    ("backend", "asked", "on"),
    [("threads", None, False), ("threads", True, True), ("processes", None, True), ("processes", False, False)],
)
def test_only_processes_run_anything_twice_unless_asked(backend, asked, on):
    with weft.Session(backend, workers=1, backups=asked) as session:
        assert session.executor.tuning.backups is on
