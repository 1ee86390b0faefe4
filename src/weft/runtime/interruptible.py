"""Waits of any length that Ctrl-C ends.

A signal that comes just before the main thread blocks is noticed only when the thread wakes, and one that the system
hands to another thread does not wake it. So the main thread waits in rounds.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from weft.runtime.clock import RealClock

T = TypeVar("T")

_ROUND_S: Final = 0.2


def interruptible_wait(wait: Callable[[float | None], bool], limit_s: float | None = None) -> bool:
    """Call `wait`, which takes a limit in seconds and returns whether that was enough; return its last answer.

    KeyboardInterrupt: Ctrl-C, at most a round late.
    """
    if threading.current_thread() is not threading.main_thread():
        return wait(limit_s)
    clock = RealClock()
    end = None if limit_s is None else clock.now() + limit_s
    while True:
        left = _ROUND_S if end is None else max(end - clock.now(), 0.0)
        if wait(min(left, _ROUND_S)):
            return True
        if left <= _ROUND_S and end is not None:
            return False


def interruptible_get(news: queue.SimpleQueue[T], limit_s: float | None = None) -> T:
    """Return the next item of a queue. KeyboardInterrupt: as of `interruptible_wait`; queue.Empty: none in time."""
    found: list[T] = []

    def get(timeout_s: float | None) -> bool:
        try:
            found.append(news.get(timeout=timeout_s))
        except queue.Empty:
            return False
        return True

    if not interruptible_wait(get, limit_s):
        raise queue.Empty
    return found[0]
