"""Ctrl-C and SIGTERM: the first asks for a clean end, the second leaves at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

SHOW_CURSOR = "\x1b[?25h"


class Interrupts:
    """Counts signals. The first raises KeyboardInterrupt where the program is, the second ends the process."""

    def __init__(self, err: TextIO) -> None:
        self.signal = 0
        self._err = err

    @property
    def exit_code(self) -> int:
        """128 and the number of the first signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)

    def __call__(self, number: int, _: FrameType | None) -> None:
        """Take one signal."""
        if self.signal:
            with suppress(OSError, ValueError, RuntimeError):
                if self._err.isatty():
                    self._err.write(SHOW_CURSOR)  # a live display may have hidden it
                self._err.write("\n")
                self._err.flush()
            os._exit(self.exit_code)  # what runs has a guardian that ends it
        self.signal = number
        raise KeyboardInterrupt


@contextmanager
def interruptible(err: TextIO) -> Iterator[Interrupts]:
    """Handle SIGINT and SIGTERM while the block runs. Does nothing on other threads than the main one."""
    interrupts = Interrupts(err)
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    before = {number: signal.signal(number, interrupts) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
