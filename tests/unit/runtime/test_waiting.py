"""Waiting for a run: the first signal cancels, a second one leaves, and time that is up is told."""

import os
import signal
import sys
import threading
from collections.abc import Callable

import pytest

from weft.runtime.waiting import Signals, output_to_stderr, recorded_signals, signals_at_once, wait_for_end


class Waits:
    """A run that ends after so many looks; `before` is called with the number of each look."""

    def __init__(self, looks: int, before: Callable[[int], None] = lambda _: None) -> None:
        self.left, self.before = looks, before
        self.asked: list[float | None] = []

    def wait(self, timeout_s: float | None = None) -> bool:
        self.before(len(self.asked))
        self.asked.append(timeout_s)
        self.left -= 1
        return self.left < 0


def test_a_run_that_ends_is_waited_for_without_a_signal():
    reasons: list[str] = []
    looks: list[int] = []
    assert wait_for_end(Waits(3), Signals(), reasons.append, look=lambda: looks.append(1))
    assert (reasons, len(looks)) == ([], 3)


def test_the_first_signal_interrupts_once():
    signals = Signals()
    reasons: list[str] = []
    run = Waits(5, lambda look: signals(signal.SIGTERM, None) if look == 1 else None)
    assert wait_for_end(run, signals, reasons.append)
    assert reasons == ["interrupted by SIGTERM"]


def test_a_second_signal_goes_to_the_handler_before():
    called: list[int] = []
    signals = Signals()
    signals.before = {signal.SIGINT: lambda number, _: called.append(number)}
    signals(signal.SIGINT, None)
    assert called == []
    with pytest.raises(KeyboardInterrupt):
        signals(signal.SIGINT, None)
    assert called == [signal.SIGINT]


def test_a_signal_without_a_handler_before_raises_all_the_same():
    signals = Signals()
    signals.pass_on()
    signals(signal.SIGTERM, None)
    with pytest.raises(KeyboardInterrupt):
        signals.pass_on()


def test_time_that_is_up_is_told_unless_the_run_was_interrupted():
    reasons: list[str] = []
    run = Waits(9)
    assert not wait_for_end(run, Signals(), reasons.append, timeout_s=0.0)
    assert run.asked == [0, 0], "the run may have ended meanwhile"
    signals = Signals()
    signals(signal.SIGINT, None)
    assert wait_for_end(Waits(4), signals, reasons.append, timeout_s=0.0)
    assert reasons == ["interrupted by SIGINT"]


def test_handlers_are_put_back():
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with recorded_signals(signal.SIGINT, signal.SIGTERM) as signals:
        assert signal.getsignal(signal.SIGTERM) is signals
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.numbers == [signal.SIGTERM]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_the_first_signal_raises_where_no_run_goes_on_yet():
    called: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: called.append(number))
    try:
        with recorded_signals(signal.SIGTERM) as signals:
            with pytest.raises(KeyboardInterrupt), signals_at_once():
                signal.raise_signal(signal.SIGTERM)
            assert called == [signal.SIGTERM]
            signals.numbers.clear()
            signal.raise_signal(signal.SIGTERM)
            assert (signals.numbers, len(called)) == ([signal.SIGTERM], 1), "it is recorded again"
            entered = False
            with pytest.raises(KeyboardInterrupt), signals_at_once():
                entered = True
            assert not entered, "one from before raises, too"
    finally:
        signal.signal(signal.SIGTERM, before)
    with signals_at_once():
        pass


def test_other_threads_record_no_signals():
    before = signal.getsignal(signal.SIGINT)
    found: list[object] = []

    def use() -> None:
        with recorded_signals(signal.SIGINT) as signals:
            found.extend([signals.before, signal.getsignal(signal.SIGINT)])

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert found == [{}, before]


def test_output_of_tasks_goes_to_stderr(capfd):
    with output_to_stderr():
        print("a task")
        os.write(1, b"its process\n")
        sys.stdout.flush()
    print("the answer")
    out, err = capfd.readouterr()
    assert (out, err.split("\n")) == ("the answer\n", ["a task", "its process", ""])
