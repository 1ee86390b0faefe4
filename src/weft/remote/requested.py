"""Requested calls: what the call scheduler knows of a call until its end, the calls that one caller waits for, and the
tasks that hold slots for them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from msgspec import Struct

from weft.remote.calls import RemoteCall

if TYPE_CHECKING:
    import queue

    from weft.model.errors import WeftError
    from weft.runtime.kept import KeptValues
    from weft.runtime.run import Run
    from weft.tensor.sessions import TensorSession


_NO_LARGE: Final[Mapping[int, int]] = MappingProxyType({})
_NO_BATCHES: Final[frozenset[CallBatch]] = frozenset()


class ScheduledCall(Struct, eq=False):
    """A requested call until its end: the calls that it waits for, its readers, and where its function runs.

    `needs` are the calls among its arguments. `large` gives the position of each large argument, by the number of its
    call, among `values`, the inputs of the task. `batch` are the calls that its function waits for. `nested` is one of
    them that runs on its thread meanwhile, which is then `inside` this one; `level` counts the functions below it on
    that thread. It is `due` from when it is ready, to begin or to go on, until it has a slot. A function in the process
    of the session gets calls to run meanwhile from its `inbox`, made at its first wait, and None to continue.
    """

    call: RemoteCall
    needs: tuple[RemoteCall, ...]
    missing: int = 0
    readers: Sequence[ScheduledCall] = ()
    batches: tuple[CallBatch, ...] = ()
    children: frozenset[CallBatch] = _NO_BATCHES
    batch: CallBatch | None = None
    large: Mapping[int, int] = _NO_LARGE
    values: Sequence[Any] = ()
    inbox: queue.SimpleQueue[ScheduledCall | None] | None = None
    nested: ScheduledCall | None = None
    inside: ScheduledCall | None = None
    level: int = 0
    stopped: bool = False
    ended: bool = False
    tries: int = 0
    lost: int = 0
    begun: bool = False
    waits: bool = False
    due: bool = False
    host: FunctionHost | None = None
    slot: SlotTask | None = None

    def reset(self) -> None:
        """Forget that the function began."""
        self.begun = self.waits = self.due = False
        self.host = self.slot = None

    def read_by(self, alone: tuple[ScheduledCall]) -> None:
        """Add a reader, given as a tuple: with many calls that have one reader, no list for each."""
        if not self.readers:
            self.readers = alone
        elif isinstance(self.readers, list):
            self.readers += alone
        else:
            self.readers = [*self.readers, *alone]


class CallBatch:
    """Calls that one caller waits for, with all their dependencies; `parent` is the caller if it is a function."""

    def __init__(self, calls: Sequence[RemoteCall], parent: ScheduledCall | None = None) -> None:
        self.calls = calls
        self.parent = parent
        self.left: set[ScheduledCall] = set()
        self.n = 0
        self.error: BaseException | None = None
        self.over = threading.Event()

    def share(self) -> float:
        """Return the fraction of ended calls, 0 to 1."""
        return 1.0 - len(self.left) / self.n if self.n else 0.0


class CallOutcome(NamedTuple):
    """The end of a function: a small value, a large one that the session keeps, or an error."""

    value: Any = None
    kept: KeptValues | None = None
    error: WeftError | None = None


class SlotTask:
    """A task that holds a slot. `first` is a call whose large arguments are the inputs of the task, or for whose
    resources it is, if there is one.

    `user` is the call whose function uses the slot, `last` the latest one.
    """

    def __init__(self, number: int, first: ScheduledCall | None) -> None:
        self.number = number
        self.first = first
        self.closing = first is not None  # the inputs and resources are held as long as the task
        self.claims = first is not None and bool(first.call.resources)
        self.run: Run | None = None
        self.vertex = ""
        self.host: FunctionHost | None = None
        self.began = 0.0
        self.user: ScheduledCall | None = None
        self.last: ScheduledCall | None = None
        self.returns: ScheduledCall | None = None
        self.ended = False
        self.over = threading.Event()


class FunctionHost(Protocol):
    """A process that runs functions and tasks with slots."""

    def start(self, call_state: ScheduledCall) -> None:
        """Start the function of a call. WeftError: its arguments cannot be had or sent."""
        ...

    def resume(self, call_state: ScheduledCall) -> None:
        """Let a function that waits continue."""
        ...

    def free(self, slot: SlotTask) -> None:
        """End a task that holds a slot."""
        ...


class FunctionScheduler(Protocol):
    """The part of the call scheduler that processes of functions use."""

    session: TensorSession

    def slot(self, number: int) -> SlotTask | None:
        """Return the slot with this number, None once its task has ended."""
        ...

    def arrived(self, slot: SlotTask, host: FunctionHost) -> None:
        """Use the slot of a task that has begun in `host`, or begun again."""
        ...

    def ended(
        self, call_state: ScheduledCall, outcome: CallOutcome, *, own_thread: bool = False
    ) -> ScheduledCall | None:
        """Record the end of a function, and pass its slot on.

        With `own_thread`, a function that starts next is returned for the calling thread.
        """
        ...

    def suspend(self, call_state: ScheduledCall) -> bool:
        """Pass on the slot of a function that waits."""
        ...

    def proceed(self, call_state: ScheduledCall) -> None:
        """Wait for a slot for a function in this process that has waited."""
        ...

    def spawned(self, call_state: ScheduledCall, calls: Sequence[RemoteCall]) -> None:
        """Run calls of a function in a worker process, which waits for them."""
        ...

    def returns(self, call_state: ScheduledCall, host: FunctionHost) -> SlotTask | None:
        """End the slot of a function in `host` with its large value as the value of the task; None: it has none
        there.
        """
        ...

    def lost(self, host: FunctionHost, call_states: Sequence[ScheduledCall]) -> None:
        """Run calls again whose process has ended."""
        ...

    def keep(self, value: Any) -> KeptValues:
        """Put a large value into the store of the session. DiskFullError: there is no room."""
        ...


class CallPlan(NamedTuple):
    """Calls without a value, dependencies included, each with the calls that it needs; and all arrays they need."""

    calls: dict[RemoteCall, tuple[RemoteCall, ...]]
    arrays: list[Any]


def planned(calls: Sequence[RemoteCall]) -> CallPlan:
    """Return what has to run for these calls."""
    plan = CallPlan({}, [])
    arrays: dict[int, Any] = {}
    stack = list(reversed(calls))
    while stack:
        call = stack.pop()
        if call in plan.calls or call.done:
            continue
        found = call.needs()
        needs = tuple([one for one in found if isinstance(one, RemoteCall)]) if found else ()
        if len(needs) < len(found):
            arrays.update((id(one), one) for one in found if not isinstance(one, RemoteCall))
        plan.calls[call] = needs
        stack.extend(reversed(needs))
    plan.arrays.extend(arrays.values())
    return plan
