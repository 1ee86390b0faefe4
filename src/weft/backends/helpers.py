"""The threads of a backend beside its workers: the helper pool, the timers and the ticks."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from weft.engine.events import TimerFired
from weft.model.errors import CapacityError
from weft.store.limits import limits_named

if TYPE_CHECKING:
    from weft.engine.ports import Shell

LAST_ACTION_S = 1.0
"""The seconds that the end of a backend waits for the last actions of its helper threads."""


class TimerThread:
    """A thread that posts `TimerFired` in time."""

    def __init__(self, loop: Shell) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="weft-timers", daemon=True)
        self._closed = False
        self._order = 0

    def start(self) -> None:
        """Start the thread: before the first timer, since the end of a task that was stopped may not depend on whether
        the system has another thread. RuntimeError: it has none.
        """
        self._thread.start()

    def set(self, job: str, at: float, timer: int) -> None:
        """Post `TimerFired(timer)` to `job` at time `at` of the loop's clock."""
        self.call(at, lambda: self._loop.post(job, TimerFired(self._loop.clock.now(), timer)))

    def call(self, at: float, action: Callable[[], None]) -> None:
        """Call `action` on the timer thread at time `at`."""
        with self._changed:
            self._order += 1
            heappush(self._heap, (at, self._order, action))
            self._changed.notify()

    def _run(self) -> None:
        clock = self._loop.clock
        while True:
            with self._changed:
                if self._closed:
                    return
                wait = self._heap[0][0] - clock.now() if self._heap else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                    continue
                _, _, action = heappop(self._heap)
            action()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)


class HelperPool:
    """Threads that run actions, as many as there are actions at a time; idle threads are used again.

    They run all work that takes no core: unslotted tasks, which wait for something else, and calls that may block.
    After each action `after` runs on its thread. A put from within `after` runs next on the same thread, which saves
    waking another one, unless `after` has more to do: then it calls its argument, and another thread takes over.
    """

    def __init__(self, name: str, after: Callable[[Callable[[], None]], None]) -> None:
        self._name = name
        self._after = after
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._idle: list[queue.SimpleQueue[Callable[[], None] | None]] = []
        self._closed = False
        self._own = threading.local()

    def put(self, action: Callable[[], None]) -> None:
        """Call `action`, which raises nothing, on one of the threads; returns at once.

        CapacityError: no thread is idle, and the system has none left. The action may not wait for one that is busy,
        which may wait for what this action does.
        """
        kept: list[Callable[[], None]] | None = getattr(self._own, "kept", None)
        if kept is None or kept:
            self._give(action)
        else:
            kept.append(action)

    def _give(self, action: Callable[[], None]) -> None:
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            thread = threading.Thread(target=self._run, args=(inbox,), name=self._name, daemon=True)
            with self._lock, limits_named():
                thread.start()
                self._threads.add(thread)
        inbox.put(action)

    def _run(self, inbox: queue.SimpleQueue[Callable[[], None] | None]) -> None:
        while (action := inbox.get()) is not None:
            while action is not None:
                action()
                del action  # drops everything it refers to
                action = self._next()
            with self._lock:
                if self._closed:
                    return
                self._idle.append(inbox)

    def _next(self) -> Callable[[], None] | None:
        """Run `after`, and return the next action of this thread."""
        kept = self._own.kept = []
        self._after(self._hand_on)
        self._own.kept = None
        return kept[0] if kept else None

    def _hand_on(self) -> None:
        kept = self._own.kept
        if kept:
            action = kept.pop()
            try:
                self._give(action)
            except CapacityError:  # no thread is left: this one runs it, when it has no more to do
                kept.append(action)

    def close(self, patience_s: float = LAST_ACTION_S) -> None:
        """End idle threads now, busy ones at the end of their action. Wait `patience_s` seconds for all of them.

        A thread with an abandoned task may never end.
        """
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            threads, self._threads = self._threads - {threading.current_thread()}, set()
        for inbox in idle:
            inbox.put(None)
        end = time.monotonic() + patience_s
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))


class BackendThreads:
    """What runs beside the workers of a backend: threads of this process. A simulation has its own."""

    def helpers(self, name: str, after: Callable[[Callable[[], None]], None]) -> HelperPool:
        """Return a helper pool, see there."""
        return HelperPool(name, after)

    def timers(self, loop: Shell) -> TimerThread:
        """Return the timers of a loop, which run."""
        timers = TimerThread(loop)
        timers.start()
        return timers

    def ticks(self, tick: Callable[[], None]) -> None:
        """Run `tick`, which reports quiet moments to the loop until the backend is closed."""
        threading.Thread(target=tick, name="weft-ticks", daemon=True).start()
