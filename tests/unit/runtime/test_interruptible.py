"""A Ctrl-C ends each wait of the main thread, although nothing wakes the thread."""

import queue
import signal
import sys
import threading
import time
from contextlib import contextmanager

import pytest

import weft
import weft.remote as wr
import weft.tensor as wt
from weft.runtime.interruptible import interruptible_get, interruptible_wait


def _rests(thread: int) -> bool:
    """Say whether a thread stays at one instruction."""
    before = sys._current_frames()[thread]
    at = before.f_lasti
    time.sleep(0.02)
    now = sys._current_frames()[thread]
    return now is before and now.f_lasti == at


@pytest.fixture
def unheard():
    """Interrupt the test by a signal that does not wake the main thread: another thread receives it."""
    main, over = threading.main_thread().ident or 0, threading.Event()

    def interrupt(running: threading.Event) -> None:
        assert running.wait(180)
        while not _rests(main):
            assert not over.is_set()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threads = []

    def begin(running: threading.Event) -> None:
        threads.append(threading.Thread(target=interrupt, args=[running]))
        threads[0].start()

    yield begin
    over.set()
    threads[0].join()


@contextmanager
def _set_at_end(event):
    try:
        yield
    finally:
        event.set()


def _spawn(task):
    with wt.Session(backend="threads", workers=2) as session:
        wr.spawn(task).execute(session=session)


@pytest.mark.parametrize(
    "wait",
    [
        lambda session, graph, task: session.submit(graph).wait(),
        lambda session, graph, task: session.submit(graph).result(3_600),
        lambda session, graph, task: list(session.submit(graph).as_completed("task")),
        lambda session, graph, task: list(weft.as_completed([session.submit(graph)])),
        lambda session, graph, task: list(weft.as_completed([session.submit(graph)], timeout_s=3_600)),
        lambda session, graph, task: list(session.map(task, range(4), progress=False)),
        lambda session, graph, task: _spawn(task),
    ],
    ids=["wait", "result", "tasks", "runs", "runs-limited", "map", "functions"],
)
def test_a_ctrl_c_that_wakes_no_thread_ends_the_wait(wait, unheard):
    running, freed = threading.Event(), threading.Event()

    def task(item=None):
        running.set()
        freed.wait(180)

    graph = weft.Graph("waits")
    graph.add(task, name="task", keep=True)
    with weft.Session("threads", workers=2, grace_s=0) as session:
        unheard(running)
        with pytest.raises(KeyboardInterrupt), _set_at_end(freed):
            wait(session, graph, task)


def test_a_limit_of_a_wait_is_kept():
    event = threading.Event()
    news: queue.SimpleQueue[int] = queue.SimpleQueue()
    began = time.monotonic()
    assert not interruptible_wait(event.wait, 0.5)
    assert time.monotonic() - began >= 0.5
    assert not interruptible_wait(event.wait, 0)
    with pytest.raises(queue.Empty):
        interruptible_get(news, 0)
    news.put(1)
    event.set()
    assert interruptible_get(news) == 1
    assert interruptible_wait(event.wait)


def test_another_thread_waits_at_once():
    limits, answers = [], []

    def wait(limit_s):
        limits.append(limit_s)
        return True

    thread = threading.Thread(target=lambda: answers.append(interruptible_wait(wait)))
    thread.start()
    thread.join()
    assert (limits, answers) == ([None], [True])
