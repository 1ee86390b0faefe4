"""Slots for functions: a task of the engine holds a slot, and functions use it one after another.

A function has a thread, in the process where it began. While it waits for other calls it has no slot: the scheduler
passes the slot on to the next function that can run, without a task of the engine in between. A call that a function
waits for may run on the thread of that function. The task ends when no function can run.

::

    task        holds the slot ....................................................... ends
    function 1  runs ... waits for 2 |                    continues ... ends |
    function 2                       | runs ......... ends |
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from weft.frontends.tensors.arrays.executables import here
from weft.frontends.tensors.arrays.runners import using
from weft.model.errors import CapacityError, TaskError, WeftError
from weft.model.failures import error_of
from weft.model.raised import Origin, as_raised, origin_of
from weft.remote import calls
from weft.remote.calls import substitute_values
from weft.remote.requested import CallOutcome, FunctionScheduler, ScheduledCall, SlotTask
from weft.store.api import SMALL, sizeof
from weft.worker.run import ErrorText, described

if TYPE_CHECKING:
    import queue

OWN_FILES = frozenset({__file__, calls.__file__})
"""The files whose frames come before the user's in a traceback."""


def failed(name: str, text: ErrorText, origin: Origin | None = None) -> CallOutcome:
    """Return the end of a function that raised; `origin` is what it raised, if known."""
    kind = error_of(text.kind)
    message = f"{name} failed: {text.message}"
    if issubclass(kind, TaskError):
        return CallOutcome(
            error=as_raised(
                kind(
                    message,
                    task=name,
                    traceback_text=text.traceback,
                    raised=text.raised,
                    status=text.status,
                    origin=origin,
                )
            )
        )
    return CallOutcome(error=kind(message))


def thread_limit(name: str) -> CapacityError:
    """Return the error of a function that gets no thread."""
    return CapacityError(
        f"{name} gets no thread: the system allows no more than the {threading.active_count():,} that exist",
        hint="Each function that waits for another one has a thread: spawn less deeply, or raise the limit.",
    )


class LocalFunctions:
    """Functions in the process of the session."""

    def __init__(self, scheduler: FunctionScheduler) -> None:
        self._scheduler = scheduler
        self._wait = _Wait(scheduler)

    def hold(self, slot: SlotTask, ctx: Any, inputs: Any) -> None:
        """Task body: hold a slot."""
        if slot.first is not None:
            slot.first.values = [one.all()[0] for one in inputs.values()]
        self._scheduler.arrived(slot, self)
        slot.over.wait()

    def start(self, call_state: ScheduledCall) -> None:
        """See `FunctionHost.start`."""
        if call_state.inside is not None:
            _inbox(call_state.inside).put(call_state)
            return
        try:
            threading.Thread(target=self._work, args=(call_state,), name="weft-function", daemon=True).start()
        except RuntimeError:
            raise thread_limit(call_state.call.name) from None

    def resume(self, call_state: ScheduledCall) -> None:
        """See `FunctionHost.resume`."""
        _inbox(call_state).put(None)

    def free(self, slot: SlotTask) -> None:
        """See `FunctionHost.free`."""
        slot.over.set()

    def wait(self, call_state: ScheduledCall) -> None:
        """Run functions that a waiting function waits for on its thread, until it can continue."""
        inbox = _inbox(call_state)
        while (nested := inbox.get()) is not None:
            self._scheduler.ended(nested, self._outcome(nested))
            here.call_state = call_state
        call_state.waits = False

    def _work(self, call_state: ScheduledCall | None) -> None:
        """Run functions on this thread, as long as the scheduler has one for it."""
        here.waits = self._wait
        with using(self._scheduler.session):
            while call_state is not None:
                call_state = self._scheduler.ended(call_state, self._outcome(call_state), own_thread=True)

    def _outcome(self, call_state: ScheduledCall) -> CallOutcome:
        here.call_state = call_state
        call = call_state.call
        values, call_state.values = call_state.values, ()
        try:
            args, kwargs = call.bound(call_state.large)
            if call_state.large:
                args, kwargs = substitute_values((args, kwargs), values)
        except WeftError as error:
            return CallOutcome(error=error)
        try:
            value = call.checked(call.function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            return failed(call.name, described(error, OWN_FILES), origin_of(error))
        if sizeof(value) < SMALL:
            return CallOutcome(value)
        try:
            return CallOutcome(kept=self._scheduler.keep(value))
        except WeftError as error:
            return CallOutcome(error=error)


def _inbox(call_state: ScheduledCall) -> queue.SimpleQueue[ScheduledCall | None]:
    assert call_state.inbox is not None
    return call_state.inbox


class _Wait(AbstractContextManager[None]):
    """The wait of the function of this thread for something else than a call: it has no slot meanwhile."""

    def __init__(self, scheduler: FunctionScheduler) -> None:
        self._scheduler = scheduler

    def __enter__(self) -> None:
        self._scheduler.suspend(here.call_state)

    def __exit__(self, *failure: object) -> None:
        self._scheduler.proceed(here.call_state)
