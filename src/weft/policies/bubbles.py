"""Cuts of a graph into bubbles, and the expected cost of a cut.

Vertices of one bubble start together, hold their slots together and stream to each other. Data between bubbles is
stored, and a bubble starts when its stored inputs are complete. `batch` makes each vertex a bubble: no slot idles, all
data is stored. `gang` makes one bubble of all: nothing is stored, all slots are held to the end. `greedy` grows bubbles
while they fit. `efficient` also never crosses a blocking input, across which nothing streams. `cost` takes the fastest
of these cuts whose slot-seconds stay near those of `batch`.

Each cut is legal by construction: bubbles have levels, and an edge leads to a higher level or stays inside its bubble.
No path therefore leaves a bubble and returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from weft.graph.logical import (
    CONCURRENT,
    SEQUENTIAL,
    Bubble,
    LogicalGraph,
    MovementKind,
    Outcome,
    Range,
    SameAs,
    Storage,
    Trigger,
    VertexKind,
)
from weft.graph.order import topological
from weft.model.errors import GraphError

if TYPE_CHECKING:
    from weft.graph.logical import Edge, Parallelism

Cut = tuple[tuple[str, ...], ...]
"""The bubbles of a cut, each in topological order; each vertex is in exactly one bubble."""

UNBOUNDED = 1 << 60


class VertexEstimate(NamedTuple):
    """Known or assumed figures of a vertex: `seconds` of one task, `nbytes` written by all tasks together."""

    tasks: int
    seconds: float = 1.0
    nbytes: float = 0.0


class CostModel(NamedTuple):
    """Costs beside the work: seconds to start a task on a cold and on a warm worker, seconds from the end of a bubble
    to the start of the next, bytes per second and task through disk and network.
    """

    cold_s: float = 1.0
    warm_s: float = 0.1
    notice_s: float = 0.1
    disk: float = 100e6
    network: float = 500e6


class CutCost(NamedTuple):
    """The expected cost of a cut: seconds from the first start to the last end, and slot-seconds held."""

    seconds: float
    slot_seconds: float


# --------------------------------------------------------------------------------------------------------- the graph


def estimates_of(graph: LogicalGraph, seconds: float = 1.0) -> dict[str, VertexEstimate]:
    """Return estimates from the graph alone: the largest parallelism, and declared output bytes."""
    found = {}
    for id, vertex in graph.vertices.items():
        tasks = _tasks(graph, vertex.parallelism)
        found[id] = VertexEstimate(tasks, seconds, float((vertex.output_bytes or 0) * tasks))
    return found


def _tasks(graph: LogicalGraph, n: Parallelism) -> int:
    for _ in range(len(graph.vertices)):
        if isinstance(n, int):
            return n
        if isinstance(n, Range):
            return n.hi
        if not isinstance(n, SameAs):
            return 1
        n = graph.vertices[n.vertex].parallelism
    return 1


def alone(graph: LogicalGraph) -> frozenset[str]:
    """Return the vertices that no cut joins to others.

    A bubble requests all its slots before any of its tasks runs. Vertices with a manager, an expander, a choice or an
    unknown parallelism would wait for an answer from their own bubble, and final vertices for the end of all others.
    Services form bubbles with their consumers anyway.
    """
    found = {
        id
        for id, vertex in graph.vertices.items()
        if vertex.kind is VertexKind.SERVICE
        or vertex.manager is not None
        or vertex.expands
        or vertex.final
        or not _is_settled(graph, vertex.parallelism)
    }
    found.update(edge.dst for edge in graph.edges if graph.vertices[edge.src].kind is VertexKind.SERVICE)
    for choice in graph.choices:
        found.add(choice.decider)
        for branch in choice.branches.values():
            found.update(branch)
    return frozenset(found)


def _is_settled(graph: LogicalGraph, n: Parallelism) -> bool:
    for _ in range(len(graph.vertices)):
        if isinstance(n, int):
            return True
        if not isinstance(n, SameAs):
            return isinstance(n, Range) and n.lo == n.hi
        owner = graph.vertices.get(n.vertex)
        if owner is None or owner.manager is not None:
            return False
        n = owner.parallelism
    return False


def may_stream(graph: LogicalGraph, edge: Edge) -> bool:
    """Whether an edge may stream inside a bubble: each piece has exactly one reader.

    Edges with kept or durable data, or with their own scheduling, stay as declared.
    """
    scheduling = edge.scheduling
    src = graph.vertices[edge.src]
    plain = scheduling.outcome is Outcome.SUCCESS and (
        scheduling.when is Trigger.SOURCE_RUNNING if scheduling.concurrent else scheduling.when is Trigger.ALL_DONE
    )
    move = edge.movement.move
    return (
        plain
        and src.kind is VertexKind.FINITE
        and not src.keep
        and edge.storage in (Storage.LOCAL, Storage.EPHEMERAL)
        and (
            move in (MovementKind.ONE_TO_ONE, MovementKind.SCATTER_GATHER)
            or (move is MovementKind.BROADCAST and _tasks(graph, graph.vertices[edge.dst].parallelism) == 1)
        )
    )


# -------------------------------------------------------------------------------------------------------------- cuts


def batch(graph: LogicalGraph) -> Cut:
    """Return the cut in which each vertex is a bubble."""
    return tuple((id,) for id in topological(graph))


def gang(graph: LogicalGraph) -> Cut:
    """Return one bubble of all vertices that may be joined, whatever its size; others stay alone."""
    cut = _Cutting(graph, estimates_of(graph), UNBOUNDED, across=True)
    cut.grow()
    cut.join_levels()
    return cut.groups()


def greedy(graph: LogicalGraph, size: int, estimates: Mapping[str, VertexEstimate] | None = None) -> Cut:
    """Grow bubbles along streams in topological order while they have at most `size` tasks.

    No bubble waits for an input that only one of its later members reads.
    """
    cut = _Cutting(graph, estimates or estimates_of(graph), _checked(size), across=True, prompt=True)
    cut.grow()
    return cut.groups()


def efficient(graph: LogicalGraph, size: int, estimates: Mapping[str, VertexEstimate] | None = None) -> Cut:
    """Grow bubbles as `greedy` does, but never across a blocking input."""
    cut = _Cutting(graph, estimates or estimates_of(graph), _checked(size), across=False)
    cut.grow()
    return cut.groups()


def cost(
    graph: LogicalGraph,
    slots: int,
    estimates: Mapping[str, VertexEstimate] | None = None,
    costs: CostModel | None = None,
    *,
    more: float = 0.2,
) -> Cut:
    """Return the fastest expected cut among those with at most `1 + more` times the slot-seconds of `batch`.

    Candidates are batch, gang if it fits, and greedy and efficient with the number of slots halved up to five times.
    """
    known = estimates or estimates_of(graph)
    price = costs or CostModel()
    plain = batch(graph)
    found = {plain: predict(graph, plain, slots, known, price)}
    limit = found[plain].slot_seconds * (1 + more)
    tried = [gang(graph)]
    for halved in range(6):
        size = max(1, slots >> halved)
        tried += [greedy(graph, size, known), efficient(graph, size, known)]
    for cut in tried:
        if cut not in found and all(_held(group, known) <= slots for group in cut if len(group) > 1):
            found[cut] = predict(graph, cut, slots, known, price)
    return min(
        (cut for cut, seen in found.items() if seen.slot_seconds <= limit), key=lambda cut: (found[cut], len(cut))
    )


def _checked(size: int) -> int:
    if size < 1:
        raise GraphError(f"a bubble of {size} tasks holds nothing", rule="bubble-size", hint="Give 1 or more.")
    return size


def _held(group: Iterable[str], estimates: Mapping[str, VertexEstimate]) -> int:
    return sum(estimates[id].tasks for id in group)


class _Group(Struct, eq=False):
    members: list[str]
    level: int
    size: int
    closed: bool = False


class _Cutting:
    """Groups under construction. Invariant: an edge stays in its group or leads to a group of a higher level."""

    def __init__(
        self,
        graph: LogicalGraph,
        estimates: Mapping[str, VertexEstimate],
        most: int,
        *,
        across: bool,
        prompt: bool = False,
    ) -> None:
        self.graph = graph
        self.estimates = estimates
        self.most = most
        self.across = across
        self.prompt = prompt
        self.alone = alone(graph)
        self.of: dict[str, _Group] = {}
        self.inputs: dict[str, list[Edge]] = {id: [] for id in graph.vertices}
        self.outputs: dict[str, list[Edge]] = {id: [] for id in graph.vertices}
        for edge in graph.edges:
            self.inputs[edge.dst].append(edge)
            self.outputs[edge.src].append(edge)

    def grow(self) -> None:
        """Place each vertex: with all groups that stream to it, else with one of them, else alone."""
        for id in topological(self.graph):
            for wanted in self._candidates(id):
                if self._join(id, wanted):
                    break
            else:
                level = 1 + max((self.of[edge.src].level for edge in self.inputs[id]), default=-1)
                self.of[id] = _Group([id], level, self.estimates[id].tasks, id in self.alone)

    def _candidates(self, id: str) -> list[list[_Group]]:
        if id in self.alone:
            return []
        found = dict.fromkeys(
            self.of[edge.src]
            for edge in self.inputs[id]
            if may_stream(self.graph, edge) and (self.across or not edge.blocking) and not self.of[edge.src].closed
        )
        each = sorted(found, key=lambda group: (-group.size, -group.level))
        return [each, *([group] for group in each if len(each) > 1)] if each else []

    def _join(self, id: str, wanted: list[_Group]) -> bool:
        """Join a vertex and the groups `wanted` if the result is legal and fits."""
        if self.estimates[id].tasks + sum(group.size for group in wanted) > self.most:
            return False
        level = max(group.level for group in wanted)
        for edge in self.inputs[id]:
            group = self.of[edge.src]
            if group not in wanted:
                level = max(level, group.level + 1)
            elif edge.blocking and not self.across:
                return False
        if self.prompt and any(group.level < level for group in wanted):
            return False
        if not self._may_lift(wanted, level):
            return False
        into = wanted[0]
        into.level = level
        for group in wanted[1:]:
            self._merge(into, group)
        into.members.append(id)
        into.size += self.estimates[id].tasks
        self.of[id] = into
        return True

    def _may_lift(self, groups: list[_Group], level: int) -> bool:
        """Whether `groups` may become one group at `level`: all their other readers are above it."""
        for group in groups:
            for member in group.members:
                for edge in self.outputs[member]:
                    reader = self.of.get(edge.dst)
                    if reader is None or reader is group:
                        continue
                    if reader in groups:
                        if edge.blocking and not self.across:
                            return False
                    elif reader.level <= level:
                        return False
        return True

    def _merge(self, into: _Group, group: _Group) -> None:
        into.members += group.members
        into.size += group.size
        for member in group.members:
            self.of[member] = into

    def join_levels(self) -> None:
        """Merge open groups of the same level: no edge joins them, so no path can return."""
        levels: dict[int, _Group] = {}
        for group in self._groups():
            if group.closed:
                continue
            into = levels.setdefault(group.level, group)
            if into is not group:
                self._merge(into, group)

    def _groups(self) -> list[_Group]:
        return list(dict.fromkeys(self.of.values()))

    def groups(self) -> Cut:
        """Return the cut, members and bubbles in topological order."""
        at = {id: number for number, id in enumerate(topological(self.graph))}
        cut = [tuple(sorted(group.members, key=at.__getitem__)) for group in self._groups()]
        return tuple(sorted(cut, key=lambda group: at[group[0]]))


# --------------------------------------------------------------------------------------------------- what a cut costs


def predict(
    graph: LogicalGraph, cut: Cut, slots: int, estimates: Mapping[str, VertexEstimate], costs: CostModel | None = None
) -> CutCost:
    """Estimate the cost of a cut on `slots` slots.

    A single vertex runs in waves of at most `slots` tasks on cold workers, and its data goes through disks. A vertex in
    a bubble starts warm, and data inside the bubble goes through the network. A bubble waits for all its slots and
    holds the slots of a vertex until the vertex ends. GraphError: a bubble wider than `slots`.
    """
    price = costs or CostModel()
    of = {id: number for number, group in enumerate(cut) for id in group}
    sources: list[set[int]] = [set() for _ in cut]
    readers: list[set[int]] = [set() for _ in cut]
    for edge in graph.edges:
        src, dst = of[edge.src], of[edge.dst]
        if src != dst:
            sources[dst].add(src)
            readers[src].add(dst)
    lasts = [_ends(graph, group, of, estimates, price, slots) for group in cut]
    waiting = [len(found) for found in sources]
    ready = [number for number, count in enumerate(waiting) if not count]
    running: list[tuple[float, int, int]] = []  # end of a vertex or group, its group (-1 unless the last), slots
    now, free, held = 0.0, slots, 0.0
    while ready or running:
        kept = []
        for number in sorted(ready):
            group = cut[number]
            if len(group) > 1 and _held(group, estimates) > slots:
                raise GraphError(
                    f"the bubble of {group[0]!r} has {_held(group, estimates)} tasks, and there are {slots} slots",
                    subject=group[0],
                    rule="bubble-size",
                )
            wanted = min(_held(group, estimates), slots)
            if wanted > free:
                kept.append(number)
                continue
            free -= wanted
            total = max((end for _, end in lasts[number]), default=0.0)
            for id, end in lasts[number]:
                width = min(estimates[id].tasks, slots)
                held += width * end
                heappush(running, (now + end, -1, width))
            heappush(running, (now + total + price.notice_s, number, 0))
        ready = kept
        if not running:
            break
        now, number, width = heappop(running)
        free += width
        if number >= 0:
            for reader in readers[number]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready.append(reader)
    return CutCost(now, held)


def _ends(
    graph: LogicalGraph,
    group: Sequence[str],
    of: Mapping[str, int],
    estimates: Mapping[str, VertexEstimate],
    costs: CostModel,
    slots: int,
) -> list[tuple[str, float]]:
    """Return the end of each member in seconds after the allocation of the group."""
    here = of[group[0]]
    inputs: dict[str, list[Edge]] = {id: [] for id in group}
    stored: dict[str, float] = {}
    streamed: dict[str, float] = {}
    leaves: set[str] = set()
    members = set(group)
    for edge in graph.edges:
        if edge.dst in members and edge.carries_data:
            if of[edge.src] == here:
                inputs[edge.dst].append(edge)
                streamed[edge.dst] = streamed.get(edge.dst, 0.0) + estimates[edge.src].nbytes
            else:
                stored[edge.dst] = stored.get(edge.dst, 0.0) + estimates[edge.src].nbytes
        if edge.src in members and edge.carries_data and of[edge.dst] != here:
            leaves.add(edge.src)
    start = costs.warm_s if len(group) > 1 else costs.cold_s
    begins: dict[str, float] = {}
    ends: dict[str, float] = {}
    for id in group:
        known = estimates[id]
        tasks = max(known.tasks, 1)
        waves = ceil(tasks / min(tasks, slots))
        through_disk = stored.get(id, 0.0) + (known.nbytes if id in leaves else 0.0)
        each = known.seconds + (through_disk / costs.disk + streamed.get(id, 0.0) / costs.network) / tasks
        took = waves * (each + start)
        begin, least = 0.0, 0.0
        for edge in inputs[id]:
            if edge.blocking or not may_stream(graph, edge):
                begin = max(begin, ends[edge.src])
            else:
                begin = max(begin, begins[edge.src])
                least = max(least, ends[edge.src])
        begins[id] = begin
        ends[id] = max(begin + took, least)
    return list(ends.items())


# --------------------------------------------------------------------------------------------------- applying a cut


def apply_cut(graph: LogicalGraph, cut: Cut, *, prewarmed: int = 0, timeout_s: float = 30.0) -> LogicalGraph:
    """Return a copy of the graph with the bubbles of a cut.

    Edges that may stream become CONCURRENT and EPHEMERAL inside a bubble, SEQUENTIAL and LOCAL between bubbles; other
    edges stay as declared. Declared bubbles of vertices in `alone` are kept. `prewarmed` is the number of idle warm
    workers: a group of at most that many tasks, even of a single vertex, runs on them.
    """
    apart = alone(graph)
    of = {id: number for number, group in enumerate(cut) for id in group}
    bubbles = [bubble for bubble in graph.bubbles if apart.issuperset(bubble.vertices)]
    taken = {bubble.id for bubble in bubbles}
    number = 0
    for group in cut:
        width = sum(_tasks(graph, graph.vertices[id].parallelism) for id in group)
        warm = width <= prewarmed and not apart.issuperset(group)
        if len(group) < 2 and not warm:
            continue
        number += 1
        while f"bubble-{number}" in taken:
            number += 1
        bubbles.append(Bubble(f"bubble-{number}", group, warm, timeout_s))
    edges = []
    for edge in graph.edges:
        if not may_stream(graph, edge):
            edges.append(replace(edge))
        elif of[edge.src] == of[edge.dst]:
            edges.append(replace(edge, scheduling=CONCURRENT, storage=Storage.EPHEMERAL))
        else:
            edges.append(replace(edge, scheduling=SEQUENTIAL, storage=Storage.LOCAL))
    found = graph.copy()
    found.vertices = {id: replace(vertex) for id, vertex in graph.vertices.items()}
    found.edges, found.bubbles = edges, bubbles
    return found
