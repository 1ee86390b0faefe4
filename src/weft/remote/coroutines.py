"""Coroutine threads: functions that give their worker slot back while they wait for other calls.

Each function runs on a thread of its own, and a task of the engine holds a slot for it. The task ends when the function
waits, so the slot is free for other tasks. A second task holds a slot again when the function can continue. A slot is
therefore held exactly while the function computes. `SlotHandover` is the lock between thread and task.

::

    function   starts ....... suspends | waits, without a slot | asks for a slot ... continues ... ends
    task       holds a slot .......... |                       |                  holds a slot ...
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from weft.frontends.tensors.arrays.executables import here
from weft.model.errors import RunCancelledError


class Suspended(NamedTuple):
    """The value of a task whose function waits; a later task holds a slot for the function again."""

    name: str


class Completion(NamedTuple):
    """The value or the exception that ended a function."""

    value: Any
    error: BaseException | None


class CoroutineState(Enum):
    """States of a function."""

    WAITING = "waiting"
    """The function has no slot."""
    RUNNING = "running"
    """A task holds a slot for the function."""
    ENDED = "ended"
    """The function has ended, or its process is gone."""


class SlotHandover:
    """The lock between a function and the tasks that hold its slot: the function runs only while a task waits here."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lost = False
        self._state = CoroutineState.WAITING
        self._changed = threading.Condition()
        self._ended: Completion | None = None

    def hold(self) -> Any:
        """Let the function run until it waits or ends; return its value or a `Suspended`, or raise its exception."""
        with self._changed:
            if self._state is CoroutineState.WAITING:
                self._set_state(CoroutineState.RUNNING)
            self._changed.wait_for(lambda: self._state is not CoroutineState.RUNNING)
            ended = self._ended
        if ended is None:
            return Suspended(self.name)
        if ended.error is not None:
            raise ended.error
        return ended.value

    def park(self) -> None:
        """Mark the function as waiting, which ends the task that holds its slot."""
        with self._changed:
            if self._state is CoroutineState.RUNNING:
                self._set_state(CoroutineState.WAITING)

    def wait(self) -> None:
        """Block until a task holds a slot, or the function has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._state is not CoroutineState.WAITING)

    def run_without_slot(self) -> None:
        """Let a cancelled function run to its end without a slot."""
        with self._changed:
            if self._state is CoroutineState.WAITING:
                self._set_state(CoroutineState.RUNNING)

    def end(self, ended: Completion) -> None:
        """Record the end of the function."""
        with self._changed:
            self._ended = ended
            self._set_state(CoroutineState.ENDED)

    def lose(self) -> None:
        """Record that the process of the function is gone."""
        with self._changed:
            if self._state is not CoroutineState.ENDED:
                self.lost = True
                self._ended = Completion(
                    None, RunCancelledError("the worker process of the function ended while the function waited")
                )
                self._set_state(CoroutineState.ENDED)

    def _set_state(self, state: CoroutineState) -> None:
        self._state = state
        self._changed.notify_all()


class CoroutineThread:
    """A function on a thread of its own, in the process of the session.

    `request_slot(handover)` submits the next task that holds a slot; it raises in a closed session.
    """

    def __init__(self, work: Callable[[], Any], request_slot: Callable[[SlotHandover], None]) -> None:
        self.handover = SlotHandover("here")
        self._work = work
        self._request_slot = request_slot

    def start(self) -> Any:
        """Start the function with a slot; return and raise as `SlotHandover.hold`."""
        threading.Thread(target=self._run, name="weft-function", daemon=True).start()
        return self.handover.hold()

    def _run(self) -> None:
        self.handover.wait()
        here.waits = self
        try:
            ended = Completion(self._work(), None)
        except BaseException as error:  # noqa: BLE001 - the task that holds the slot raises it
            ended = Completion(None, error)
        self.handover.end(ended)

    def __enter__(self) -> None:
        self.handover.park()

    def __exit__(self, *failure: object) -> None:
        self._request_slot(self.handover)
        self.handover.wait()
