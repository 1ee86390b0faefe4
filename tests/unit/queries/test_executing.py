"""Statements that Ctrl-C can interrupt."""

import _thread
import threading

import pytest

from weft.queries.executing import interruptible_call

LONG_S = 120


class Statement:
    """A statement that runs until it is interrupted."""

    def __init__(self) -> None:
        self.began, self.interrupted, self.has_ended = threading.Event(), threading.Event(), threading.Event()

    def run(self) -> None:
        self.began.set()
        assert self.interrupted.wait(LONG_S)
        self.has_ended.set()

    def interrupt(self) -> None:
        self.interrupted.set()


@pytest.mark.parametrize("is_begun", [True, False], ids=["begun", "not begun"])
def test_ctrl_c_while_the_thread_starts_leaves_no_statement_behind(monkeypatch, is_begun):
    statement = Statement()
    start = threading.Thread.start
    threads = []

    def interrupted_start(thread):
        threads.append(thread)
        if is_begun:
            start(thread)
            assert statement.began.wait(LONG_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    with pytest.raises(KeyboardInterrupt):
        interruptible_call(statement, statement.run)
    monkeypatch.undo()
    if is_begun:
        assert statement.has_ended.is_set()
    else:  # the system may start it yet
        start(threads[0])
        threads[0].join(LONG_S)
        assert not statement.began.is_set()


def test_a_second_ctrl_c_does_not_leave_before_the_statement_has_ended():
    statement = Statement()

    class Twice:
        def __init__(self) -> None:
            self.times = 0

        def interrupt(self) -> None:
            self.times += 1
            if self.times == 1:
                raise KeyboardInterrupt
            statement.interrupt()

    def run() -> None:
        _thread.interrupt_main()
        statement.run()

    with pytest.raises(KeyboardInterrupt):
        interruptible_call(Twice(), run)
    assert statement.has_ended.is_set()


def test_an_error_of_the_statement_is_the_callers():
    with pytest.raises(ZeroDivisionError):
        interruptible_call(Statement(), lambda: 1 // 0)
