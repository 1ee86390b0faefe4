"""Callbacks of users, called one after another by a thread of the session, which holds no lock."""

from __future__ import annotations

import queue
import threading
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from weft.runtime.interruptible import interruptible_wait
from weft.store.limits import limits_named

if TYPE_CHECKING:
    from collections.abc import Callable

_CLOSE_S: Final = 30.0
"""The seconds that `close` waits for callbacks."""


class CallbackThread:
    """Calls in the order of `put`, which any thread may call at any time. The thread starts with the first one."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self) -> bool:
        """Start the thread, unless it runs; False after `close`. CapacityError: the system has no thread left."""
        with self._lock:
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, name="weft-callbacks", daemon=True)
                with limits_named():
                    thread.start()
                self._thread = thread
            return not self._closed

    def put(self, call: Callable[[], None]) -> None:
        """Queue a call; `start` was called before. After `close` nothing is called."""
        self._calls.put(call)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call

    def settle(self) -> None:
        """Wait until the calls that are queued were made, as long as `close` would."""
        thread = self._thread
        made = thread is not None and thread is not threading.current_thread()
        while made:
            done = threading.Event()
            self._calls.put(done.set)
            made = interruptible_wait(done.wait, _CLOSE_S) and not self._calls.empty()

    def close(self) -> None:
        """Make the calls that are queued, and no more."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._calls.put(None)
            if thread is not threading.current_thread():
                thread.join(_CLOSE_S)


def call_back(function: Callable[..., object], *arguments: Any) -> None:
    """Call a function of the user; an exception of it is a RuntimeWarning."""
    try:
        function(*arguments)
    except Exception as error:  # noqa: BLE001 - the code of the user
        name = getattr(function, "__qualname__", type(function).__name__)
        with suppress(RuntimeWarning):  # a filter may make it an error
            warnings.warn(f"the callback {name} raised {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)
