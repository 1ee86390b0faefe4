"""The physical graph: stages, links and rows of task state. Data only; the functions are in other modules.

A `Stage` is the physical side of a vertex, a `PhysicalEdge` that of an edge. Task states are one byte each in
`Stage.state`; ready tasks are intervals of indices; a wide input is one counter for the whole stage (a *gate*); only
stages with several narrow inputs, or a grouping one, have a counter for each task. No object exists for a task or a
physical edge.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct, field

from weft.engine.machines.task import TaskState
from weft.engine.machines.vertex import VertexState
from weft.graph.logical import (
    ONE_TO_ONE,
    SEQUENTIAL,
    Edge,
    MovementKind,
    Outcome,
    Range,
    Storage,
    Trigger,
    Vertex,
    VertexKind,
)
from weft.graph.routers import OneToOne
from weft.model.resources import ONE_SLOT_ONLY, Resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.engine.events import Failed
    from weft.engine.policy import VertexManager
    from weft.graph.lease import Cone
    from weft.graph.routing import Router

UNSCHEDULED = int(TaskState.UNSCHEDULED)
READY = int(TaskState.READY)
INFINITE = float("inf")
LEAD = 1e6
"""The depth that one step of priority stands for, more than any graph has."""
# An enum gives its members in 20 times the time of a global; what is done for each vertex, edge or lease uses globals.
_CONFIGURING = VertexState.CONFIGURING
_NOTHING_MOVES, _ONE_TO_ONE = MovementKind.NONE, MovementKind.ONE_TO_ONE
_BROADCAST, _SCATTER_GATHER = MovementKind.BROADCAST, MovementKind.SCATTER_GATHER
_DURABLE, _FINITE = Storage.DURABLE, VertexKind.FINITE


class Intervals:
    """A set of task indices as disjoint ascending intervals `[lo, hi)`, kept in descending order so that taking
    from the front is cheap.
    """

    __slots__ = ("count", "spans")

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return reversed(self.spans)

    @property
    def first(self) -> int:
        """The smallest index; the set must not be empty."""
        return self.spans[-1][0]

    def add(self, lo: int, hi: int) -> None:
        """Add indices that are not in the set yet, joining neighbours."""
        spans = self.spans
        self.count += hi - lo
        if not spans:
            spans.append((lo, hi))
            return
        top_lo, top_hi = spans[0]  # the largest interval: appending in order is the common case
        if lo >= top_hi:
            if lo == top_hi:
                spans[0] = (top_lo, hi)
            else:
                spans.insert(0, (lo, hi))
            return
        at = bisect_left(spans, -lo, key=lambda span: -span[0])  # first interval that begins at or below lo
        if at < len(spans) and spans[at][1] == lo:
            lo = spans[at][0]
            del spans[at]
        if at > 0 and spans[at - 1][0] == hi:
            spans[at - 1] = (lo, spans[at - 1][1])
        else:
            spans.insert(at, (lo, hi))

    def take(self, most: int) -> tuple[int, int]:
        """Remove and return the first interval, at most `most` long."""
        lo, hi = self.spans[-1]
        if hi - lo > most:
            self.spans[-1] = (lo + most, hi)
            hi = lo + most
        else:
            self.spans.pop()
        self.count -= hi - lo
        return lo, hi

    def discard(self, lo: int, hi: int) -> None:
        """Remove all indices of `lo:hi` from the set."""
        kept = []
        for a, b in self.spans:
            if b <= lo or a >= hi:
                kept.append((a, b))
                continue
            self.count -= min(b, hi) - max(a, lo)
            if b > hi:
                kept.append((hi, b))
            if a < lo:
                kept.append((a, lo))
        self.spans = kept

    def clear(self) -> None:
        """Remove everything."""
        self.spans = []
        self.count = 0


_NO_ROWS = bytearray()
NOTHING = Intervals()
"""The ready set of a stage that never had a ready task: shared, never added to."""


def _by_task(edge: Edge) -> bool:
    """Return whether a destination task waits for the source tasks that it reads, not for the source vertex."""
    scheduling = edge.scheduling
    return not scheduling.concurrent and scheduling.when is Trigger.ALL_DONE and scheduling.outcome is Outcome.SUCCESS


class PhysicalEdge(Struct, eq=False):
    """The physical side of an edge, made by `link_of`.

    `gate`: the input holds the whole destination stage (wide, order-only, concurrent, triggered); `opened`: the gate
    lets tasks through. `left` counts destination tasks that may still read it.
    """

    edge: Edge
    src: Stage
    dst: Stage
    data: bool
    wide: bool
    group: int
    gate: bool
    router: Router | None = None
    opened: bool = False
    left: int = 0
    freed_parts: set[int] | None = None
    read_parts: list[int] | None = None

    def bound(self, router: Router | None) -> None:
        """Set the router, once both ends have task rows."""
        self.router = router
        self.left = self.dst.n
        if type(router) is OneToOne and self.group == 1:
            return  # by far the most frequent
        if router is not None and (router.group != self.group or router.wide != self.wide):
            self.wide = router.wide
            self.group = router.group
            self.set_edge(self.edge)

    def set_edge(self, edge: Edge) -> None:
        """Replace the properties of the edge."""
        self.edge = edge
        self.gate = self.wide or not self.data or not _by_task(edge)

    @property
    def durable(self) -> bool:
        """Whether the engine never frees the data of this edge."""
        return self.edge.storage is _DURABLE


def link_of(edge: Edge, src: Stage, dst: Stage, router: Router | None = None) -> PhysicalEdge:
    """Return the physical side of an edge between two stages, with its router if both have rows."""
    if edge.movement is ONE_TO_ONE:
        gate = edge.scheduling is not SEQUENTIAL and not _by_task(edge)
        return PhysicalEdge(edge, src, dst, True, False, 1, gate, router, False, dst.n if router is not None else 0)
    move = edge.movement.move
    data = move is not _NOTHING_MOVES
    wide = move is _BROADCAST or move is _SCATTER_GATHER
    gate = wide or not data or not (edge.scheduling is SEQUENTIAL or _by_task(edge))
    link = PhysicalEdge(edge, src, dst, data, wide, 1 if move is _ONE_TO_ONE else 0, gate)
    if router is not None:
        link.bound(router)
    return link


class ControlColumns(Struct):
    """The tasks of a controlled vertex as its controller knows them: one entry for each task in each list.

    `held`: 1 for a task that may not start. `starts` counts its attempts, `restarts` those by its restart rule since
    the controller let it start; `failures`, `codes` and `messages` tell its last end. Times are seconds since 1970,
    -1.0 before the first. `seen` are the states of which the controller was told, `news` other tasks with news. `slots`
    are kept for tasks that restart: worker, alternative, and the request that obtained it.
    """

    held: bytearray
    starts: list[int]
    restarts: list[int]
    failures: list[str]
    codes: list[int | None]
    messages: list[str]
    started: list[float]
    ended: list[float]
    seen: bytes
    news: set[int] = field(default_factory=set)
    slots: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, n: int) -> ControlColumns:
        """Return the columns of `n` held tasks."""
        times = [-1.0] * n
        return cls(bytearray(b"\1" * n), [0] * n, [0] * n, [""] * n, [None] * n, [""] * n, times, list(times), bytes(n))

    def free_runs(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Yield the tasks of `lo:hi` that may start, as ranges."""
        while (lo := self.held.find(0, lo, hi)) >= 0:
            end = self.held.find(1, lo, hi)
            end = hi if end < 0 else end
            yield lo, end
            lo = end


class Stage:
    """The physical side of a vertex: its rows, counters and links.

    `n` is -1 until the parallelism is known. `finished` counts tasks with an output (FINISHED, FREED), `over` tasks
    that ended in any way. `closed` counts shut gates. `missing[i]` counts unavailable narrow inputs of task i, None for
    a single one-to-one input. `refs[i]` counts consumers that have not read output i, None where the only consumer is
    narrow and reads it once. `began`: a task of it was started, or answered by the cache, at least once. `again`: the
    vertex had ended before, and recomputes lost outputs. `lead` is the depth by which its priority lets its tasks start
    before others. `control` are the columns of a controlled vertex. An `ordinary` vertex has no rule by which the
    master decides between one of its tasks and the next.
    """

    __slots__ = (
        "again",
        "attempts",
        "avoid",
        "began",
        "bubble",
        "busy_s",
        "chain_next",
        "closed",
        "cone_depth",
        "cone_into",
        "cone_ok",
        "cone_size",
        "cones",
        "control",
        "counted",
        "depth",
        "early",
        "executing",
        "finished",
        "home",
        "id",
        "index",
        "inputs",
        "key",
        "last_width",
        "lead",
        "light",
        "listeners",
        "local",
        "manager",
        "memo",
        "memory",
        "memory_failures",
        "missing",
        "n",
        "narrow",
        "nbytes",
        "node_of",
        "ordinary",
        "outputs",
        "over",
        "plain",
        "probed",
        "queued",
        "ready",
        "refs",
        "region",
        "released",
        "request",
        "resources",
        "restarting",
        "retry_at",
        "rows",
        "seconds",
        "simple",
        "size_of",
        "state",
        "status",
        "vertex",
        "written",
    )
    MADE_ANEW: ClassVar = ("manager", "lead", "ordinary")
    """The fields that are rebuilt when a snapshot is read."""
    KEPT: ClassVar = tuple(name for name in __slots__ if name not in ("manager", "lead", "ordinary"))
    """The fields that a snapshot holds."""

    def __init__(self, vertex: Vertex, index: int) -> None:
        self.vertex = vertex
        self.id = vertex.id
        self.index = index
        self.inputs: list[PhysicalEdge] = []
        self.outputs: list[PhysicalEdge] = []
        self.ready = NOTHING
        self.resources = vertex.resources
        self.n = -1
        self.depth = 0
        self.lead = vertex.priority * LEAD
        self.status = _CONFIGURING
        self.state = _NO_ROWS
        self.narrow = 0
        self.simple = False
        self.closed = 0
        self.missing: bytearray | list[int] | None = None
        self.refs: list[int] | None = None
        self.local: dict[int, Intervals] | None = None
        self.queued: dict[int, float] | None = None
        self.key = INFINITE
        self.region = -1
        self.again = False
        self.restarting = False
        self.finished = 0
        self.over = 0
        self.executing = 0
        self.seconds = -1.0
        self.nbytes = -1.0
        self.last_width = 0
        self.bubble = -1
        self.request = 0
        self.attempts: dict[int, list[int]] | None = None
        self.avoid: dict[int, set[int]] | None = None
        self.memory: dict[int, int] | None = None
        self.memory_failures: dict[int, Failed] | None = None
        self.retry_at: dict[int, float] | None = None
        self.probed: set[int] | None = None
        self.home: list[int] | None = None
        self.node_of: list[int] | None = None
        self.size_of: list[int] | None = None
        self.began = False
        self.early = False
        self.cones: dict[int, Cone] | None = None
        self.cone_ok = False
        self.cone_depth = 1
        self.cone_size = 1
        self.cone_into: PhysicalEdge | None = None
        self.chain_next: PhysicalEdge | None = None
        self.plain = True
        self.manager: VertexManager | None = None
        self.memo: Any = None
        self.released = -1
        self.listeners: tuple[int, ...] = ()
        self.rows = 0
        self.written = 0
        self.busy_s = 0.0
        self.counted: bytearray | None = None
        self.light = False
        self.control: ControlColumns | None = None
        self.ordinary = (
            vertex.cache_key is None
            and vertex.timeout_s is None
            and vertex.kind is _FINITE
            and vertex.manager is None
            and not vertex.expands
            and not vertex.counted
            and not vertex.retry.delay_s
            and vertex.restart is None
        )
        if vertex.controlled:
            n = vertex.parallelism
            self.control = ControlColumns.of(n.hi if isinstance(n, Range) else n if isinstance(n, int) else 0)
            self.released = 0
        if vertex.resources is not ONE_SLOT_ONLY or vertex.placement is not None or vertex.controlled:
            self.ask(vertex.resources)

    def ask(self, resources: tuple[Resources, ...]) -> None:
        """Set the resources of the tasks."""
        self.resources = resources
        first = resources[0]
        self.plain = first.plain and self.vertex.placement is None and not first.tokens and self.control is None
        self.light = first.light

    @property
    def keep(self) -> bool:
        """Whether outputs stay after their last consumer."""
        return bool(self.vertex.keep)

    def attempt(self, index: int) -> int:
        """Return how many attempts of task `index` have failed."""
        return sum(self.attempts[index]) if self.attempts and index in self.attempts else 0
