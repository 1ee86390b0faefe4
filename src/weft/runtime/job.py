"""One job of a session, as the loop sees it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from weft.engine.commands import LaunchEach
from weft.engine.lease_table import LeaseTable
from weft.graph.logical import SameAs, VertexKind
from weft.model.resources import ONE_SLOT_ONLY

if TYPE_CHECKING:
    from weft.engine.commands import Command, Complete, Launch
    from weft.engine.events import Event
    from weft.engine.inspector import Inspector
    from weft.engine.master import Master
    from weft.engine.ports import Cache, Journal
    from weft.engine.provider import SharedSlots
    from weft.graph.logical import LogicalGraph, Vertex
    from weft.graph.spec import RunHost
    from weft.graph.task import CommitBarrier as TaskGate
    from weft.graph.task import VertexHistory
    from weft.store.api import Column


_ADDING = threading.Lock()
"""Held for a moment while a part is added that few jobs need, and while what it waits for happens."""


class Latch(Struct, gc=False):
    """An event that happens once: as `threading.Event`, but no load for the garbage collector before somebody waits."""

    _happened: bool = False
    _shut: threading.Lock | None = None

    def is_set(self) -> bool:
        """Return whether it has happened."""
        return self._happened

    def set(self) -> None:
        """End all waits. A second call does nothing; only one thread may call."""
        if not self._happened:
            with _ADDING:
                self._happened = True
            if self._shut is not None:
                self._shut.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has happened. Return False after `timeout` seconds."""
        if self._happened:
            return True
        with _ADDING:
            if self._happened:
                return True
            if self._shut is None:
                self._shut = threading.Lock()
                self._shut.acquire()
        if timeout is None:
            self._shut.acquire()
        elif not self._shut.acquire(timeout=min(max(0.0, timeout), threading.TIMEOUT_MAX)):
            return self._happened
        self._shut.release()
        return True


class Afterwards:
    """Actions to take once something has `happened`: each is called once, on any thread, and must return at once.

    Whoever makes it happen calls `call` after that.
    """

    __slots__ = ("_actions", "_happened")

    def __init__(self, happened: Callable[[], bool]) -> None:
        self._happened = happened
        self._actions: deque[Callable[[], None]] = deque()

    def add(self, action: Callable[[], None]) -> None:
        """Register an action; it is called at once if it is late."""
        self._actions.append(action)
        if self._happened():
            self.call()

    def call(self) -> None:
        """Call the actions that nobody has called."""
        while True:
            try:
                action = self._actions.popleft()
            except IndexError:
                return
            action()


class OnDisk(Protocol):
    """The end of a job that is kept on disk; see `Durable`."""

    settled: threading.Event

    def wait(self, timeout_s: float | None = None) -> bool:
        """See `Durable.wait`."""
        ...


JobListener = Callable[["JobRun", "Sequence[Event]", "Sequence[Command]"], None]
MakeMaster = Callable[["LogicalGraph", str], "Master"]
"""Makes the master of a job from its graph and its id."""

_FINITE = VertexKind.FINITE
_BUILDING = threading.Lock()
NOTHING: Any = MappingProxyType({})
"""What jobs share in place of empty dictionaries."""
_NONE_RESTORED: frozenset[tuple[str, int]] = frozenset()


class Held:
    """Commands of a job that wait for its journal: their number of ticks, leases to launch, and vertices to free
    outputs of.

    `blocked` delays all later commands too; `ended` starts leases of a strict job behind a commit barrier.
    """

    def __init__(self) -> None:
        self.ticks = 0
        self.leases: set[int] = set()
        self.freeing: set[str] = set()
        self.blocked = False
        self.ended = False


class JobRun:
    """One job of a session, as seen by the loop. `master` is its master, or makes it for the graph.

    A job that only waits for a worker has no master until its first turn or the first question about it, so that the
    garbage collector has little to walk over while many jobs wait.
    """

    __slots__ = (
        "__weakref__",
        "_first_error",
        "_first_tick",
        "_make",
        "_master",
        "afterwards",
        "answers",
        "backend",
        "cache",
        "crash",
        "draining",
        "dropped",
        "durable",
        "finished",
        "first",
        "gates",
        "given",
        "given_up",
        "graph",
        "held",
        "history",
        "host",
        "id",
        "journal",
        "kept",
        "leases",
        "listeners",
        "logs",
        "number",
        "on_end",
        "origins",
        "outcome",
        "outputs",
        "priority",
        "recorded",
        "requests",
        "restored",
        "shared",
        "strict",
        "submitted_at",
        "unread",
    )

    def __init__(
        self,
        id: str,
        graph: LogicalGraph,
        master: Master | MakeMaster,
        journal: Journal | None = None,
    ) -> None:
        self.id = id
        self.graph = graph
        self._make: MakeMaster | None = master if callable(master) else None
        self._master: Master | None = None if callable(master) else master
        self.first: Callable[[JobRun], list[Event]] | None = None  # its first events, while it waits for its first turn
        self.submitted_at = 0.0
        self._first_tick: tuple[Sequence[Event], Sequence[Command]] = ((), ())
        self._first_error: Exception | None = None
        self.journal = journal
        self.strict = False  # the effects of a task's end wait for its record; a failed journal fails the job
        self.leases: LeaseTable[Launch, LaunchEach] = LeaseTable(LaunchEach)
        self.gates: dict[int, TaskGate] = NOTHING  # or a dictionary of its own, as `origins`
        self.outcome: Complete | None = None
        self.outputs: Any = None
        self.history: Sequence[VertexHistory] = ()
        self.recorded = False
        self.requests: Sequence[tuple[str, Any]] = ()  # to its controller, before its first decision
        self.restored = _NONE_RESTORED
        self.given: Mapping[str, Column] = NOTHING
        self.kept: Sequence[object] = ()  # the owners of the `given` columns, which live as long as the job
        self.cache: Cache | None = None
        self.host: RunHost | None = None  # answers questions of its tasks
        self.answers: Mapping[str, Sequence[Any]] = NOTHING
        self.held: Held | None = None
        self.finished = Latch()
        self.listeners: Sequence[JobListener] = ()
        self.backend: Any = None
        self.crash: BaseException | None = None
        self.given_up = False  # it failed outside of its master
        self.draining = False  # nothing of it starts any more: it ends with its last lease
        self.dropped: Sequence[Command] = ()  # the starts that its master has ordered since then
        self.logs = ""  # the folder for the output of its tasks, if that is kept
        self.origins: dict[str, Any] = NOTHING  # see `Job`
        self.priority = 0  # higher ones get workers first
        self.number = 0  # the place in the order of submission
        self.on_end: Callable[[JobRun], None] | None = None
        self.afterwards: Afterwards | None = None
        self.shared: SharedSlots | None = None  # stands in for the pool
        self.durable: OnDisk | None = None  # what keeps it on disk
        self.unread = False  # nobody has read how it ended, and a failure has to be told

    @property
    def master(self) -> Master:
        """The master, made on first use; that of a waiting job has taken the first events already."""
        if self._master is None:
            self._build()
        assert self._master is not None
        return self._master

    @property
    def inspector(self) -> Inspector:
        """The read-only view of the job."""
        return self.master.inspector

    @property
    def built(self) -> bool:
        """Whether the job has a master."""
        return self._master is not None

    def _build(self) -> None:
        """Make the master, on any thread."""
        with _BUILDING:
            if self._make is None:
                return
            master = self._make(self.graph, self.id)
            try:
                if self.first is not None:
                    events = self.first(self)
                    self._first_tick = events, master.handle(events)
            except Exception as error:  # noqa: BLE001 - it fails the job at its first turn
                self._first_error = error
            self._master, self._make = master, None

    def begin(self) -> tuple[Sequence[Event], Sequence[Command]]:
        """Begin the first turn of a waiting job; return its first events and the commands that follow from them."""
        self._build()
        self.first = None
        tick, self._first_tick = self._first_tick, ((), ())
        if self._first_error is not None:
            raise self._first_error
        return tick

    def end(self) -> None:
        """Wake all who wait for the end."""
        if self._master is not None and not self.finished.is_set():
            self._master.retire()
        self.finished.set()
        if self.afterwards is not None:
            self.afterwards.call()
        if self.on_end is not None:
            self.on_end(self)

    @property
    def over(self) -> bool:
        """Whether it has ended, and its end is on disk if it is kept there."""
        return self.finished.is_set() and (self.durable is None or self.durable.settled.is_set())

    def dissolve(self) -> None:
        """Let go of an ended job to which no run refers any more."""
        if self._master is not None:
            self._master.dissolve()

    def listen(self, listener: JobListener) -> None:
        """Call `listener(job, events, commands)` after every tick, in the order of registration."""
        self.listeners = (*self.listeners, listener)

    def unlisten(self, listener: JobListener) -> None:
        """Call a listener no more."""
        self.listeners = tuple(one for one in self.listeners if one is not listener)

    def when_ended(self, action: Callable[[], None]) -> None:
        """Call an action at the end of the job, under the lock of the loop: it must return at once."""
        if self.afterwards is None:
            with _ADDING:
                self.afterwards = self.afterwards or Afterwards(self.finished.is_set)
        self.afterwards.add(action)


def waits_for_workers(job: JobRun) -> bool:
    """Return whether all that a new job can do is to wait for a plain slot of a worker."""
    graph = job.graph
    if graph.controller is not None or graph.bubbles or graph.limits or job.journal is not None:
        return False
    if job.given or job.restored or job.answers or job.shared is not None:
        return False
    return all(_is_plain(vertex) for vertex in graph.vertices.values()) and bool(graph.vertices)


def _is_plain(vertex: Vertex) -> bool:
    return (
        (vertex.parallelism > 0 if isinstance(vertex.parallelism, int) else isinstance(vertex.parallelism, SameAs))
        and not vertex.lazy
        and vertex.kind is _FINITE
        and vertex.resources is ONE_SLOT_ONLY
        and vertex.placement is None
        and vertex.cache_key is None
        and vertex.manager is None
    )
