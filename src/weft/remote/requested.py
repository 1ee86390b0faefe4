"""Requested calls: what the call scheduler knows of a call until its end, the calls that one caller waits for, and the
tasks that hold slots for them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from weft.remote.calls import RemoteCall

if TYPE_CHECKING:
    import queue

    from weft.model.errors import WeftError
    from weft.runtime.kept import KeptValues
    from weft.runtime.run import Run
    from weft.tensor.sessions import TensorSession


_NO_LARGE: Final[Mapping[int, int]] = {}


class ScheduledCall:
    """A requested call until its end: the calls that it waits for, its readers, and where its function runs.

    `needs` are the calls among its arguments. `large` gives the position of each large argument, by the number of its
    call, among `values`, the inputs of the task. `batch` are the calls that its function waits for. `nested` is one of
    them that runs on its thread meanwhile, which is then `inside` this one; `level` counts the functions below it on
    that thread. It is `due` from when it is ready, to begin or to go on, until it has a slot. A function in the process
    of the session gets calls to run meanwhile from its `inbox`, made at its first wait, and None to continue.
    """

    __slots__ = (
        "batch",
        "batches",
        "begun",
        "call",
        "children",
        "due",
        "ended",
        "host",
        "inbox",
        "inside",
        "large",
        "level",
        "lost",
        "missing",
        "needs",
        "nested",
        "readers",
        "slot",
        "stopped",
        "tries",
        "values",
        "waits",
    )

    def __init__(self, call: RemoteCall, needs: tuple[RemoteCall, ...]) -> None:
        self.call = call
        self.needs = needs
        self.missing = 0
        self.readers: list[ScheduledCall] = []
        self.batches: list[CallBatch] = []
        self.children: frozenset[CallBatch] = frozenset()
        self.batch: CallBatch | None = None
        self.large: Mapping[int, int] = _NO_LARGE
        self.values: Sequence[Any] = ()
        self.inbox: queue.SimpleQueue[ScheduledCall | None] | None = None
        self.nested: ScheduledCall | None = None
        self.inside: ScheduledCall | None = None
        self.level = 0
        self.stopped = False
        self.ended = False
        self.tries = 0
        self.lost = 0
        self.reset()

    def reset(self) -> None:
        """Forget that the function began."""
        self.begun = self.waits = self.due = False
        self.host: FunctionHost | None = None
        self.slot: SlotTask | None = None


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

    calls: list[tuple[RemoteCall, tuple[RemoteCall, ...]]]
    arrays: list[Any]


def planned(calls: Sequence[RemoteCall]) -> CallPlan:
    """Return what has to run for these calls."""
    plan = CallPlan([], [])
    arrays: dict[int, Any] = {}
    seen: set[int] = set()
    stack = list(reversed(calls))
    while stack:
        call = stack.pop()
        if call.number in seen or call.done:
            continue
        seen.add(call.number)
        found = call.needs()
        needs = tuple([one for one in found if isinstance(one, RemoteCall)])
        if len(needs) < len(found):
            arrays.update((id(one), one) for one in found if not isinstance(one, RemoteCall))
        plan.calls.append((call, needs))
        stack.extend(reversed(needs))
    plan.arrays.extend(arrays.values())
    return plan
