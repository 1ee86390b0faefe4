"""Waiting for a run: the signals received meanwhile, the display of progress, and the output of its tasks."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.runtime.clock import RealClock
from weft.runtime.progress import PATIENCE_S, bars

if TYPE_CHECKING:
    from weft.engine.view import JobView
    from weft.runtime.progress import Bars


_POLL_S: Final = 0.1


class Signals:
    """Received signals. The first is for the waiting thread; a second goes to the previous handler.

    With `at_once` the first goes there, too.
    """

    def __init__(self) -> None:
        self.at_once = False
        self.numbers: list[int] = []
        self.before: dict[int, Any] = {}

    def __call__(self, number: int, frame: Any) -> None:
        """Record a signal; the second one is passed on at once, and with `at_once` the first."""
        self.numbers.append(number)
        if number == signal.SIGHUP:
            leave_terminal()
        if self.at_once or len(self.numbers) > 1:
            self.pass_on()

    def pass_on(self) -> None:
        """Call the previous handler of the last signal, which raises KeyboardInterrupt. Without one, return."""
        if self.numbers:
            before = self.before.get(self.numbers[-1])
            if callable(before):
                before(self.numbers[-1], None)
            raise KeyboardInterrupt


def leave_terminal() -> None:
    """Send later output to a terminal that was closed to nowhere, so that no write to it fails."""
    for fd in (1, 2):
        try:
            os.write(fd, b"")
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, fd)
            os.close(null)


@contextmanager
def recorded_signals(*numbers: signal.Signals) -> Iterator[Signals]:
    """Record signals, so that none raises in the middle of a tick. Other threads than the main one receive none."""
    signals = Signals()
    if threading.current_thread() is threading.main_thread():
        wanted = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        signals.before = {number: signal.signal(number, signals) for number in wanted}
    try:
        yield signals
    finally:
        for number, before in signals.before.items():
            signal.signal(number, before)


@contextmanager
def signals_at_once() -> Iterator[None]:
    """Let the first signal raise while the block runs, also one that was recorded before: no run goes on yet.

    Do nothing where no signals are recorded, and outside the main thread.
    """
    found: set[Signals] = set()
    if threading.current_thread() is threading.main_thread():
        handlers = map(signal.getsignal, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        found = {handler for handler in handlers if isinstance(handler, Signals)}
    try:
        for signals in found:
            signals.at_once = True
            signals.pass_on()
        yield
    finally:
        for signals in found:
            signals.at_once = False


class Waited(Protocol):
    """A run that can be waited for."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; False if `timeout_s` seconds were not enough."""
        ...


class Viewed(Protocol):
    """A run that can be looked at."""

    def view(self) -> JobView:
        """Return a snapshot of the job."""
        ...


def wait_for_end(
    run: Waited,
    signals: Signals,
    interrupt: Callable[[str], None],
    timeout_s: float | None = None,
    look: Callable[[], None] = lambda: None,
) -> bool:
    """Wait for the end of a run and call `look` meanwhile; the first signal calls `interrupt` with a reason.

    A signal from the start of the run counts too. False: `timeout_s` seconds were not enough.
    """
    clock = RealClock()
    end = None if timeout_s is None else clock.now() + timeout_s
    requested = False
    while not run.wait(_POLL_S if end is None else min(_POLL_S, max(end - clock.now(), 0))):
        if signals.numbers and not requested:
            requested = True
            interrupt(f"interrupted by {signal.Signals(signals.numbers[0]).name}")
        if end is not None and clock.now() >= end and not requested:
            return run.wait(0)
        look()
    return True


def picture(run: Viewed, name: str, undo: ExitStack) -> Callable[[], None]:
    """Return the progress display of a long run; on a terminal only."""
    clock = RealClock()
    begin = clock.now() + PATIENCE_S
    shown: list[Bars | None] = []

    def look() -> None:
        if not shown and clock.now() >= begin:
            shown.append(bars(name))
            if shown[0] is not None:
                undo.enter_context(shown[0])
        if shown and shown[0] is not None:
            shown[0].update(run.view())

    return look


@contextmanager
def output_to_stderr() -> Iterator[None]:
    """Redirect the output of tasks and their processes to stderr: stdout has only the answer of the command."""
    try:
        sys.stdout.flush()
        out = os.dup(1)
    except (OSError, ValueError):  # stdout is closed
        yield
        return
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(out, 1)
        os.close(out)
