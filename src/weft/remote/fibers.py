"""Functions that can be put aside: each runs on a thread of its own, and a task of the engine holds a slot for it.

When the function has to wait for something, its task ends, and the slot is free for others. When it can go on, another
task is submitted for it, which holds a slot from then on, wherever that is. So a slot is held exactly while the
function computes. `Turns` is the lock between the two: the function goes on only while somebody holds a slot for it.

::

    function   starts ....... parks | waits, without a slot | asks for a slot ... goes on ..... ends
    task       holds a slot ....... |                       |                 holds a slot ....
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from weft.model.errors import RunCancelledError
from weft.tensor.running import here


class Parked(NamedTuple):
    """What a task returns instead of a value: the function waits, and somebody will hold a slot for it again."""

    name: str


class Ended(NamedTuple):
    """How a function ended."""

    value: Any
    error: BaseException | None


class State(Enum):
    """Of a function."""

    WAITING = "waiting"
    """It has no slot."""
    GOES_ON = "goes on"
    """Somebody holds a slot for it."""
    OVER = "over"
    """It has ended, or nobody will hear of it again."""


class Turns:
    """Who goes on: a function, or the task that holds a slot for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lost = False
        self._state = State.WAITING
        self._changed = threading.Condition()
        self._ended: Ended | None = None

    def hold(self) -> Any:
        """Let the function go on until it waits or ends: return its value or a `Parked`, or raise what it raised."""
        with self._changed:
            if self._state is State.WAITING:
                self._become(State.GOES_ON)
            self._changed.wait_for(lambda: self._state is not State.GOES_ON)
            ended = self._ended
        if ended is None:
            return Parked(self.name)
        if ended.error is not None:
            raise ended.error
        return ended.value

    def park(self) -> None:
        """Say that the function waits."""
        with self._changed:
            if self._state is State.GOES_ON:
                self._become(State.WAITING)

    def wait(self) -> None:
        """Wait until somebody holds a slot, or it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._state is not State.WAITING)

    def let_go(self) -> None:
        """Have the function go on without a slot: it was cancelled, and has nothing to do but to end."""
        with self._changed:
            if self._state is State.WAITING:
                self._become(State.GOES_ON)

    def end(self, ended: Ended) -> None:
        """Say how the function ended."""
        with self._changed:
            self._ended = ended
            self._become(State.OVER)

    def lose(self) -> None:
        """Say that the process of the function is gone."""
        with self._changed:
            if self._state is not State.OVER:
                self.lost = True
                self._ended = Ended(None, RunCancelledError("the process that the function waited in has ended"))
                self._become(State.OVER)

    def _become(self, state: State) -> None:
        self._state = state
        self._changed.notify_all()


class Fiber:
    """A function on a thread of its own, in the process of the session.

    `again(turns)` has a slot held for it again; it raises where none will be.
    """

    def __init__(self, work: Callable[[], Any], again: Callable[[Turns], None]) -> None:
        self.turns = Turns("here")
        self._work = work
        self._again = again

    def start(self) -> Any:
        """Begin, holding a slot; return and raise as `Turns.hold`."""
        threading.Thread(target=self._run, name="weft-function", daemon=True).start()
        return self.turns.hold()

    def _run(self) -> None:
        self.turns.wait()
        here.waits = self
        try:
            ended = Ended(self._work(), None)
        except BaseException as error:  # noqa: BLE001 - the task that holds the slot raises it
            ended = Ended(None, error)
        self.turns.end(ended)

    def __enter__(self) -> None:
        self.turns.park()

    def __exit__(self, *failure: object) -> None:
        self._again(self.turns)
        self.turns.wait()
