"""Ctrl-C, SIGTERM and SIGHUP: the first signal requests a clean end, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, TextIO

SHOW_CURSOR = "\x1b[?25h"


class Interrupts:
    """A counter of signals. The first raises KeyboardInterrupt, the second ends the process."""

    def __init__(self, err: TextIO) -> None:
        self.signal = 0
        self._err = err

    @property
    def exit_code(self) -> int:
        """128 plus the number of the first signal: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
        return 128 + (self.signal or signal.SIGINT)

    def __call__(self, number: int, _: FrameType | None) -> None:
        """Handle one signal."""
        if self.signal:
            self.leave()
        self.signal = number
        if number == signal.SIGHUP:
            from weft.runtime.waiting import leave_terminal

            leave_terminal()
        raise KeyboardInterrupt

    def leave(self) -> NoReturn:
        """End the process at once. Guardians end its child processes."""
        with suppress(OSError, ValueError, RuntimeError):
            if self._err.isatty():
                self._err.write(SHOW_CURSOR)  # a live display may have hidden the cursor
            self._err.flush()
            sys.stdout.flush()
        os._exit(self.exit_code)


@contextmanager
def interruptible(err: TextIO) -> Iterator[Interrupts]:
    """Handle SIGINT, SIGTERM and, unless it is ignored as by `nohup`, SIGHUP while the block runs.

    Do nothing outside the main thread.
    """
    interrupts = Interrupts(err)
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, interrupts) for number in numbers}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class LeavingError(KeyboardInterrupt):
    """A second signal was received."""


@contextmanager
def end_signal() -> Iterator[threading.Event]:
    """Yield the event that the first SIGINT, SIGTERM or SIGHUP sets; a second signal raises `LeavingError`."""
    from weft.runtime.waiting import leave_terminal

    end = threading.Event()
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_terminal()
        if end.is_set():
            raise LeavingError
        end.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, note)
    try:
        yield end
    finally:
        for known, handler in before.items():
            signal.signal(known, handler)
