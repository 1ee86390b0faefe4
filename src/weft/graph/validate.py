"""The rules of a legal graph: one function for each rule, and one fast pass that calls those whose field is set.

Every submission goes through `validate`, so the common vertex (all defaults) and the common edge (one to one,
sequential, local) are recognised by identity and cost a few comparisons. A broken rule raises a GraphError that names
the vertex or edge (`subject`) and the rule (`rule`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from heapq import heapify, heappop, heappush
from math import inf

from weft.graph.final import check_final
from weft.graph.grid import check_grid
from weft.graph.logical import (
    DEFAULT_BACKOFF,
    DEFAULT_RETRY,
    ONE_TO_ONE,
    SEQUENTIAL,
    Backoff,
    Bubble,
    Choice,
    Edge,
    LogicalGraph,
    MovementKind,
    Outcome,
    Parallelism,
    Patch,
    Range,
    RestartPolicy,
    Retry,
    SameAs,
    Source,
    Storage,
    Trigger,
    Vertex,
    VertexKind,
)
from weft.graph.routing import CUSTOM
from weft.model.errors import CapacityError, GraphError, InputLimitError
from weft.model.failures import RetryClass
from weft.model.ids import is_name
from weft.model.program import Program
from weft.model.resources import ONE_SLOT, ONE_SLOT_ONLY, Resources

MAX_VERTICES = 100_000
MAX_EDGES = 1_000_000
MAX_TASKS = 100_000_000
"""The most tasks of one vertex: the master keeps some bytes for each."""
_MOST_SHOWN = 10_000


def validate(graph: LogicalGraph, capacity: Sequence[Resources] | None = None) -> None:
    """Raise GraphError for the first rule that `graph` breaks; InputLimitError if the graph is too large.

    `capacity` lists the resources of each worker: CapacityError for a vertex that fits no worker. An order-only edge
    with the default storage gets the storage none.
    """
    _check_size(graph)
    if not is_name(graph.name):
        raise _bad_name("graph", graph.name)
    if not is_name(graph.frontend):
        raise _bad_name("front end", graph.frontend)
    for token, count in graph.limits.items():
        _check_limit(token, count)
    if graph.backoff != DEFAULT_BACKOFF:
        _check_backoff(graph.backoff)
    services = _check_vertices(graph, graph.vertices.values(), capacity)
    _check_served(services, _check_edges(graph, graph.edges))
    topological(graph)
    _check_references(graph, graph.vertices.values())
    if graph.bubbles:
        _check_bubbles(graph)
    if graph.choices:
        _check_choices(graph, graph.choices)
    check_final(graph, [vertex for vertex in graph.vertices.values() if vertex.final])


def mark_results(graph: LogicalGraph) -> None:
    """Set `keep` on every finite vertex with undecided `keep` whose values no edge reads.

    The master reads a vertex that `expands`, so such a vertex is no result.
    """
    read = {edge.src for edge in graph.edges if edge.movement.move is not MovementKind.NONE}
    for id, vertex in graph.vertices.items():
        if vertex.keep is None and id not in read and not vertex.expands and vertex.kind is VertexKind.FINITE:
            vertex.keep = True


# ------------------------------------------------------------------------------------------------------- vertices


def _check_vertices(graph: LogicalGraph, vertices: Iterable[Vertex], capacity: Sequence[Resources] | None) -> list[str]:
    """Check each vertex by itself; return the ids of the services."""
    services: list[str] = []
    slot_fits = capacity is None or any(ONE_SLOT.fits(worker) for worker in capacity)
    table, limits = graph.vertices, graph.limits
    for vertex in vertices:
        id = vertex.id
        if not is_name(id):
            raise _bad_name("vertex", id)
        if table.get(id) is not vertex:
            raise GraphError(
                f"vertex {id!r} stands under another id in graph.vertices", subject=id, rule="unique-vertex"
            )
        n, items = vertex.parallelism, vertex.program.items
        if type(n) is not int or not 0 <= n <= MAX_TASKS:
            _check_parallelism(vertex)
        if items is not None and type(n) is int and len(items) != n:
            raise GraphError(f"vertex {id!r} has {n} tasks and {len(items)} items", subject=id, rule="items")
        if vertex.resources != ONE_SLOT_ONLY:
            check_resources(id, vertex.resources, limits)
            if capacity is not None and not any(w.fits(worker) for w in vertex.resources for worker in capacity):
                raise _never_fits(vertex, capacity)
        elif not slot_fits:
            raise _never_fits(vertex, capacity)
        if vertex.retry != DEFAULT_RETRY:
            _check_retry(vertex, vertex.retry)
        if vertex.restart is not None:
            _check_restart(vertex)
        if vertex.expands and vertex.cache_key is not None:
            raise GraphError(
                f"vertex {id!r} expands the graph and has a cache key; decisions cannot be cached",
                subject=id,
                rule="expander-cache",
                hint="Remove the cache key, or set expands=False.",
            )
        if vertex.timeout_s is not None:
            _check_timeout(f"vertex {id!r}", id, vertex.timeout_s)
        if vertex.output_bytes is not None and not (_whole(vertex.output_bytes) and vertex.output_bytes >= 0):
            raise GraphError(f"vertex {id!r} has an output of {vertex.output_bytes!r} bytes", subject=id, rule="output")
        scratch = vertex.scratch_bytes
        if (type(scratch) is not int or scratch < 0) and not (_whole(scratch) and scratch >= 0):
            raise GraphError(f"vertex {id!r} needs scratch space of {scratch!r} bytes", subject=id, rule="scratch")
        if vertex.kind is VertexKind.SERVICE:
            _check_service(vertex)
            services.append(id)
        if vertex.label or vertex.outputs is not None:
            _check_shown(vertex)
    return services


def _check_shown(vertex: Vertex) -> None:
    """Check the texts for users: the label and the names of the output files."""
    for field, name in (("label", vertex.label), *(("output", name) for name in vertex.outputs or ())):
        if not isinstance(name, str) or len(name) > _MOST_SHOWN or not name.isprintable():
            raise GraphError(
                f"{field} {str(name)[:60]!r} of vertex {vertex.id!r} is not a printable text of at most "
                f"{_MOST_SHOWN} characters",
                subject=vertex.id,
                rule=field,
            )


def _check_size(graph: LogicalGraph) -> None:
    for parts, count, limit in (
        ("vertices", len(graph.vertices), MAX_VERTICES),
        ("edges", len(graph.edges), MAX_EDGES),
    ):
        if count > limit:
            raise InputLimitError(
                f"graph {graph.name!r} has {count:,} {parts}; the limit is {limit:,}",
                hint="Give a vertex more tasks instead of adding vertices: one vertex may have millions.",
            )


def _bad_name(what: str, name: object) -> GraphError:
    return GraphError(
        f"{what} name {name!r} is not allowed",
        subject=str(name),
        rule="name",
        hint="Use up to 200 letters, digits, '_', '.', '-' and '/'; no '..', '//' or '/.'; a letter or digit first.",
    )


def _check_parallelism(vertex: Vertex) -> None:
    n, id = vertex.parallelism, vertex.id
    if isinstance(n, Range):
        if not (_whole(n.lo) and _whole(n.hi) and 0 <= n.lo <= n.hi and n.hi >= 1):
            raise GraphError(
                f"vertex {id!r} has between {n.lo} and {n.hi} tasks",
                subject=id,
                rule="parallelism",
                hint="Range(lo, hi) needs 0 <= lo <= hi and hi >= 1.",
            )
    elif not isinstance(n, (Source, SameAs)) and not (_whole(n) and n >= 0):
        raise GraphError(
            f"vertex {id!r} has {n!r} tasks",
            subject=id,
            rule="parallelism",
            hint="Give a whole number of at least 0, Range(lo, hi), Source(vertex) or SameAs(vertex).",
        )
    largest = n.hi if isinstance(n, Range) else n
    if isinstance(largest, int):
        check_count(id, largest)


def check_count(id: str, n: int) -> None:
    """Raise InputLimitError if `n` tasks of one vertex are more than the master can hold."""
    if n > MAX_TASKS:
        raise InputLimitError(
            f"vertex {id!r} has {n:,} tasks; the limit is {MAX_TASKS:,}", hint="Give each task more work."
        )


def _whole(n: object) -> bool:
    return isinstance(n, int) and not isinstance(n, bool)


def _number(n: object) -> bool:
    return isinstance(n, (int, float)) and not isinstance(n, bool)


def check_resources(id: str, resources: Sequence[Resources], limits: Mapping[str, int]) -> None:
    """Raise GraphError unless `resources` are sound alternatives whose tokens `limits` counts."""
    if not resources or not isinstance(resources, (tuple, list)):
        raise GraphError(
            f"vertex {id!r} has no resources",
            subject=id,
            rule="resources",
            hint="Give a tuple of at least one Resources(...).",
        )
    for needs in resources:
        if not _sane(needs):
            raise GraphError(
                f"vertex {id!r} asks for {needs!r}",
                subject=id,
                rule="resources",
                hint="Give Resources(...) whose cpu is a number and whose memory and gpu are whole, none below 0, and "
                "whose tokens are pairs of a name and a count.",
            )
        for token, count in needs.tokens:
            _check_token(id, token, count, limits)


def _sane(needs: Resources) -> bool:
    return (
        isinstance(needs, Resources)
        and _number(needs.cpu)
        and 0 <= needs.cpu < inf
        and all(_whole(count) and count >= 0 for count in (needs.memory, needs.gpu))
        and isinstance(needs.gpu_type, str)
        and isinstance(needs.tokens, tuple)
        and all(isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) for each in needs.tokens)
    )


def _check_token(id: str, token: str, count: int, limits: Mapping[str, int]) -> None:
    limit = limits.get(token)
    if limit is None:
        raise GraphError(
            f"vertex {id!r} takes tokens {token!r}, but the graph has no limit of that name",
            subject=id,
            rule="tokens",
            hint=_nearest(token, limits) or f"Set the number of tokens: limits={{{token!r}: ...}}.",
        )
    if not (_whole(count) and 1 <= count <= limit):
        raise GraphError(f"vertex {id!r} takes {count!r} of the {limit} tokens {token!r}", subject=id, rule="tokens")


def _check_limit(token: str, count: int) -> None:
    if not _whole(count) or count < 1:
        raise GraphError(
            f"limit {token!r} is {count!r}; it must be a whole number of at least 1", subject=token, rule="tokens"
        )


def _never_fits(vertex: Vertex, capacity: Sequence[Resources] | None) -> CapacityError:
    wants = " or ".join(f"({needs})" for needs in vertex.resources)
    has = "; ".join(dict.fromkeys(f"({worker})" for worker in capacity or ())) or "none"
    return CapacityError(
        f"vertex {vertex.id!r} asks for {wants}, more than any worker has: {has}",
        hint="Ask for less, or start the session with larger workers.",
    )


def _check_restart(vertex: Vertex) -> None:
    if vertex.restart is RestartPolicy.ALWAYS and vertex.kind is not VertexKind.SERVICE:
        raise GraphError(
            f"vertex {vertex.id!r} has restart=always, so its tasks would never end",
            subject=vertex.id,
            rule="restart",
            hint="Use restart=on_failure, or make it a SERVICE, which ends with its last consumer.",
        )


def _check_backoff(backoff: Backoff) -> None:
    numbers = all(map(_number, (backoff.delay_s, backoff.factor, backoff.max_s)))
    counted = backoff.limit is None or (_whole(backoff.limit) and backoff.limit >= 0)
    if not (counted and numbers and 0 <= backoff.delay_s <= backoff.max_s < inf and 1 <= backoff.factor < inf):
        raise GraphError(
            f"the graph has an impossible backoff: {backoff}",
            rule="backoff",
            hint="The limit is None or at least 0, the factor at least 1, and delay_s from 0 to max_s.",
        )


def _check_retry(vertex: Vertex, retry: Retry) -> None:
    counts = [retry[each] for each in RetryClass]
    numbers = all(map(_whole, counts)) and _number(retry.delay_s) and _number(retry.memory_factor)
    if not (numbers and min(counts) >= 0 and 0 <= retry.delay_s < inf and 1 <= retry.memory_factor < inf):
        raise GraphError(
            f"vertex {vertex.id!r} has an impossible retry: {retry}",
            subject=vertex.id,
            rule="retry",
            hint="Counts and the delay are at least 0, the memory factor at least 1.",
        )


def _check_timeout(what: str, subject: str, seconds: float) -> None:
    if not (_number(seconds) and 0 < seconds < inf):
        raise GraphError(
            f"{what} has a timeout of {seconds!r} seconds; it must be a number above 0", subject=subject, rule="timeout"
        )


def _check_service(vertex: Vertex) -> None:
    if vertex.expands:
        raise GraphError(
            f"vertex {vertex.id!r} expands the graph and is a SERVICE, which has no value to expand it with",
            subject=vertex.id,
            rule="expander-finite",
            hint="Make it finite, or set expands=False.",
        )


# ---------------------------------------------------------------------------------------------------------- edges


def _check_edges(graph: LogicalGraph, edges: Sequence[Edge]) -> set[str]:
    """Check each edge and its end points; return the ids of the services that have a consumer."""
    vertices = graph.vertices
    seen: set[str | tuple[str, str]] = set()
    served: set[str] = set()
    bubble_of: dict[str, str] | None = None
    for edge in edges:
        src, dst = vertices.get(edge.src), vertices.get(edge.dst)
        if src is None or dst is None:
            raise _unknown_end(graph, edge)
        if src is dst:
            raise GraphError(f"vertex {edge.src!r} feeds itself", subject=edge.src, rule="self-loop")
        key = edge.name or (edge.src, edge.dst)
        if key in seen:
            raise _duplicate(edge)
        seen.add(key)
        if edge.name:
            _check_edge_name(edge)
        movement, scheduling = edge.movement, edge.scheduling
        if movement == ONE_TO_ONE:
            n = src.parallelism
            if n != dst.parallelism or type(n) is not int:
                _check_one_to_one(graph, edge, src, dst)
        else:
            _check_movement(graph, edge, src, dst)
        if scheduling != SEQUENTIAL:
            _check_scheduling(edge)
        if edge.storage is not Storage.LOCAL or movement.move is MovementKind.NONE:
            if bubble_of is None:
                bubble_of = {id: bubble.id for bubble in graph.bubbles for id in bubble.vertices}
            _check_storage(edge, src, bubble_of)
        if src.kind is VertexKind.SERVICE:
            _check_from_service(edge)
            served.add(edge.src)
    named = {key for key in seen if type(key) is str and "->" in key}
    if named:
        _check_shadowed(edges, named)
    return served


def _unknown_end(graph: LogicalGraph, edge: Edge) -> GraphError:
    end = edge.dst if edge.src in graph.vertices else edge.src
    return GraphError(
        f"edge {edge.id} names the unknown vertex {end!r}",
        subject=edge.id,
        rule="unknown-vertex",
        hint=_nearest(end, graph.vertices),
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known)[:10_000], 1)
    return f"Did you mean {close[0]!r}?" if close else ""


def _duplicate(edge: Edge) -> GraphError:
    message = f"two edges have the name {edge.name!r}" if edge.name else f"two edges join {edge.src!r} to {edge.dst!r}"
    return GraphError(message, subject=edge.id, rule="duplicate-edge", hint="Give each a name of its own with name=.")


def _check_shadowed(edges: Iterable[Edge], named: set[str]) -> None:
    """Raise GraphError if the name of one edge equals the default id of another."""
    for edge in edges:
        if not edge.name and edge.id in named:
            raise _duplicate(Edge(edge.src, edge.dst, name=edge.id))


def _check_edge_name(edge: Edge) -> None:
    name = edge.name
    if len(name) > 450 or not name.isascii() or not name.isprintable() or " " in name:
        raise GraphError(
            f"edge name {name!r} is not allowed",
            subject=name,
            rule="name",
            hint="Use up to 450 printable ASCII characters.",
        )


def fixed(graph: LogicalGraph, n: Parallelism) -> int | None:
    """Return the number of tasks if it is known before the job runs, else None. SameAs is followed."""
    seen = 0
    while isinstance(n, SameAs) and n.vertex in graph.vertices and seen <= len(graph.vertices):
        n = graph.vertices[n.vertex].parallelism
        seen += 1
    return n if isinstance(n, int) else None


def _check_one_to_one(graph: LogicalGraph, edge: Edge, src: Vertex, dst: Vertex) -> None:
    n_src, n_dst = fixed(graph, src.parallelism), fixed(graph, dst.parallelism)
    if n_src is not None and n_dst is not None and n_src != n_dst:
        raise GraphError(
            f"edge {edge.id}: one_to_one joins {n_src} tasks of {edge.src!r} to {n_dst} of {edge.dst!r}",
            subject=edge.id,
            rule="one-to-one-parallelism",
            hint="Give both vertices the same parallelism, or use broadcast, scatter_gather or a grid.",
        )


def _check_movement(graph: LogicalGraph, edge: Edge, src: Vertex, dst: Vertex) -> None:
    movement = edge.movement
    move = movement.move
    if move is MovementKind.ONE_TO_ONE:
        _check_one_to_one(graph, edge, src, dst)
    elif move is MovementKind.GRID:
        check_grid(edge, fixed(graph, src.parallelism), fixed(graph, dst.parallelism))
    elif move is MovementKind.SCATTER_GATHER and movement.partitions < 0:
        raise GraphError(f"edge {edge.id} has {movement.partitions} partitions", subject=edge.id, rule="partitions")
    elif move is MovementKind.CUSTOM and movement.name not in CUSTOM:
        raise GraphError(
            f"edge {edge.id}: no router is registered as {movement.name!r}",
            subject=edge.id,
            rule="custom-router",
            hint=_nearest(movement.name, CUSTOM) or f"Registered: {', '.join(sorted(CUSTOM)) or 'none'}.",
        )


_WHEN = {
    False: (Trigger.ALL_DONE, Trigger.FRACTION, Trigger.EVENT),
    True: (Trigger.SOURCE_CONFIGURED, Trigger.SOURCE_RUNNING, Trigger.EVENT),
}


def _check_scheduling(edge: Edge) -> None:
    scheduling = edge.scheduling
    when, concurrent = scheduling.when, scheduling.concurrent
    if when not in _WHEN[concurrent]:
        raise GraphError(
            f"edge {edge.id} is {'concurrent' if concurrent else 'sequential'} and cannot wait for {when.value}",
            subject=edge.id,
            rule="trigger",
            hint=f"Such an edge waits for {', '.join(each.value for each in _WHEN[concurrent])}.",
        )
    if not (_number(scheduling.fraction) and 0 < scheduling.fraction <= 1):
        raise GraphError(
            f"edge {edge.id} waits for the fraction {scheduling.fraction!r} of its source",
            subject=edge.id,
            rule="fraction",
            hint="Give a number above 0 and at most 1.",
        )
    if (when is Trigger.EVENT) != bool(scheduling.event):
        raise GraphError(
            f"edge {edge.id} waits for an event without a name"
            if when is Trigger.EVENT
            else f"edge {edge.id} names the event {scheduling.event!r} and waits for {when.value}",
            subject=edge.id,
            rule="event",
        )
    if scheduling.outcome is not Outcome.SUCCESS and (concurrent or when is not Trigger.ALL_DONE):
        raise GraphError(
            f"edge {edge.id} waits for the outcome {scheduling.outcome.value}, but not for the end of its source",
            subject=edge.id,
            rule="outcome",
            hint="Make the edge sequential and let it wait for all_done.",
        )


def _check_storage(edge: Edge, src: Vertex, bubble_of: Mapping[str, str]) -> None:
    storage = edge.storage
    if edge.movement.move is MovementKind.NONE:
        if storage in (Storage.EPHEMERAL, Storage.DURABLE):
            raise GraphError(
                f"edge {edge.id} moves no data, but has {storage.value} storage",
                subject=edge.id,
                rule="storage-of-nothing",
            )
        edge.storage = Storage.NONE
    elif storage is Storage.NONE:
        raise GraphError(
            f"edge {edge.id} moves data, but has no storage",
            subject=edge.id,
            rule="storage-missing",
            hint="Choose ephemeral, local or durable storage.",
        )
    elif storage is Storage.EPHEMERAL:
        if not edge.scheduling.concurrent:
            raise GraphError(
                f"edge {edge.id} is sequential and ephemeral: its data would be lost before they are read",
                subject=edge.id,
                rule="sequential-ephemeral",
                hint="Make the edge concurrent, or its storage local.",
            )
        bubble = bubble_of.get(edge.src)
        if src.kind is not VertexKind.SERVICE and (bubble is None or bubble != bubble_of.get(edge.dst)):
            raise GraphError(
                f"edge {edge.id} is ephemeral, but {edge.src!r} and {edge.dst!r} are not in one bubble",
                subject=edge.id,
                rule="ephemeral-bubble",
                hint="Put both into one bubble, or make the storage local.",
            )


def _check_from_service(edge: Edge) -> None:
    if not edge.scheduling.concurrent:
        raise GraphError(
            f"edge {edge.id} waits for the end of SERVICE {edge.src!r}, which ends after its consumers",
            subject=edge.id,
            rule="service-concurrent",
            hint="Make the edge concurrent.",
        )


def _check_served(services: Iterable[str], served: set[str]) -> None:
    for id in services:
        if id not in served:
            raise GraphError(
                f"SERVICE {id!r} has no consumer, so it would never end",
                subject=id,
                rule="service-consumer",
                hint="Join it by a concurrent edge to a vertex that needs it.",
            )


# ---------------------------------------------------------------------------------------------------------- order


def _forward(graph: LogicalGraph) -> list[str] | None:
    """Return the order of addition if every edge goes forward in it, which proves that there is no cycle; else None."""
    order = list(graph.vertices)
    position = dict(zip(order, range(len(order)), strict=True))
    for edge in graph.edges:
        if position[edge.src] >= position[edge.dst]:
            return None
    return order


def topological(graph: LogicalGraph) -> list[str]:
    """Return the vertex ids in an order in which every edge goes forward; ties keep the order of addition.

    Every edge must join known vertices. GraphError: the edges, sequential and concurrent, form a cycle, which the error
    names.
    """
    order = _forward(graph)
    if order is not None:
        return order
    ids = list(graph.vertices)
    position = {id: at for at, id in enumerate(ids)}
    after: list[list[int]] = [[] for _ in ids]
    waits = [0] * len(ids)
    for edge in graph.edges:
        src, dst = position[edge.src], position[edge.dst]
        after[src].append(dst)
        waits[dst] += 1
    ready = [at for at, count in enumerate(waits) if not count]
    heapify(ready)
    done: list[str] = []
    while ready:
        at = heappop(ready)
        done.append(ids[at])
        for dst in after[at]:
            waits[dst] -= 1
            if not waits[dst]:
                heappush(ready, dst)
    if len(done) < len(ids):
        raise _cycle(graph, {ids[at] for at, count in enumerate(waits) if count})
    return done


def _cycle(graph: LogicalGraph, left: set[str]) -> GraphError:
    """Return the error that names a cycle among `left`, the vertices that never became ready.

    Each of them has a predecessor in `left`, so a walk backwards must meet a vertex twice.
    """
    before = {edge.dst: edge.src for edge in graph.edges if edge.src in left and edge.dst in left}
    at = next(id for id in graph.vertices if id in left)
    trail: dict[str, int] = {}
    while at not in trail:
        trail[at] = len(trail)
        at = before[at]
    cycle = [*list(trail)[trail[at] :], at][::-1]
    shown = cycle if len(cycle) <= 12 else [*cycle[:6], "...", *cycle[-5:]]
    return GraphError(
        f"vertices form a cycle: {' -> '.join(shown)}",
        subject=at,
        rule="cycle",
        hint="Remove one of these edges; a service answers its consumers without an edge back.",
    )


def depths(graph: LogicalGraph) -> dict[str, int]:
    """Return for each vertex the length in edges of the longest path to it; 0 for sources."""
    before: dict[str, list[str]] = {}
    for edge in graph.edges:
        before.setdefault(edge.dst, []).append(edge.src)
    depth: dict[str, int] = {}
    for id in topological(graph):
        depth[id] = 1 + max([depth[src] for src in before[id]]) if id in before else 0
    return depth


def _after(edges: Iterable[Edge]) -> dict[str, list[str]]:
    """Return for each vertex its direct successors."""
    after: dict[str, list[str]] = {}
    for edge in edges:
        after.setdefault(edge.src, []).append(edge.dst)
    return after


def _reached(after: Mapping[str, list[str]], start: str, wanted: Collection[str] = ()) -> set[str]:
    """Return the descendants of `start`; if `wanted` is given, stop as soon as all of `wanted` are found."""
    found: set[str] = set()
    missing = len(wanted) or -1
    queue = deque([start])
    while queue and missing:
        for dst in after.get(queue.popleft(), ()):
            if dst not in found:
                found.add(dst)
                queue.append(dst)
                missing -= dst in wanted
    return found


# ----------------------------------------------------------------------------------- references to other vertices


def _check_references(graph: LogicalGraph, vertices: Iterable[Vertex]) -> None:
    after: dict[str, list[str]] = {}
    reach: dict[str, set[str]] = {}

    def leads(src: str, dst: str) -> bool:
        if not after:
            after.update(_after(graph.edges))
        if dst in after.get(src, ()):
            return True
        if src not in reach:
            reach[src] = _reached(after, src)
        return dst in reach[src]

    for vertex in vertices:
        n = vertex.parallelism
        if isinstance(n, Source):
            _check_source(graph, vertex, n.expander, leads)
        elif isinstance(n, SameAs):
            _check_same_as(graph, vertex, n.vertex, leads)


def _check_source(graph: LogicalGraph, vertex: Vertex, expander: str, leads: Callable[[str, str], bool]) -> None:
    other = graph.vertices.get(expander) if isinstance(expander, str) else None
    if other is None:
        raise _unknown_reference(graph, vertex, expander)
    if not other.expands:
        raise GraphError(
            f"vertex {vertex.id!r} takes its parallelism from {expander!r}, which does not expand",
            subject=vertex.id,
            rule="expander",
            hint=f"Set expands=True on {expander!r}, so that the master reads its value.",
        )
    if not leads(expander, vertex.id):
        raise GraphError(
            f"vertex {vertex.id!r} takes its parallelism from {expander!r}, but no path of edges leads from there",
            subject=vertex.id,
            rule="expander-path",
            hint=f"Add an order-only edge from {expander!r}.",
        )


def _check_same_as(graph: LogicalGraph, vertex: Vertex, other: str, leads: Callable[[str, str], bool]) -> None:
    seen = {vertex.id}
    at = other
    while True:
        if isinstance(at, str) and at in seen:
            raise GraphError(
                f"vertex {vertex.id!r} takes its parallelism from itself, by way of {other!r}",
                subject=vertex.id,
                rule="same-as",
                hint="Give one of these vertices a parallelism of its own.",
            )
        target = graph.vertices.get(at) if isinstance(at, str) else None
        if target is None:
            raise _unknown_reference(graph, vertex, at)
        seen.add(at)
        if not isinstance(target.parallelism, SameAs):
            break
        at = target.parallelism.vertex
    if not isinstance(target.parallelism, int) and leads(vertex.id, at):
        raise GraphError(
            f"vertex {vertex.id!r} takes its parallelism from {at!r}, which is known only after {vertex.id!r} has run",
            subject=vertex.id,
            rule="same-as",
            hint=f"Fix the parallelism of {at!r}, or let it have as many tasks as {vertex.id!r}.",
        )


def _unknown_reference(graph: LogicalGraph, vertex: Vertex, name: object) -> GraphError:
    if not isinstance(name, str):
        id = getattr(name, "id", None)
        return GraphError(
            f"vertex {vertex.id!r} takes its parallelism from {name!r}, which is not the id of a vertex",
            subject=vertex.id,
            rule="unknown-vertex",
            hint=f"Give the id of the node: {id!r}." if isinstance(id, str) else "Give the id of a vertex, a string.",
        )
    return GraphError(
        f"vertex {vertex.id!r} takes its parallelism from the unknown vertex {name!r}",
        subject=vertex.id,
        rule="unknown-vertex",
        hint=_nearest(name, graph.vertices),
    )


# ------------------------------------------------------------------------------------------------ bubbles, choices


def _check_bubbles(graph: LogicalGraph) -> None:
    bubble_of: dict[str, str] = {}
    ids: set[str] = set()
    for bubble in graph.bubbles:
        _check_group("bubble", bubble, ids)
        if not bubble.vertices:
            raise GraphError(f"bubble {bubble.id!r} has no vertices", subject=bubble.id, rule="bubble")
        _check_timeout(f"bubble {bubble.id!r}", bubble.id, bubble.timeout_s)
        for id in bubble.vertices:
            if id not in graph.vertices:
                raise GraphError(
                    f"bubble {bubble.id!r} names the unknown vertex {id!r}",
                    subject=bubble.id,
                    rule="unknown-vertex",
                    hint=_nearest(id, graph.vertices),
                )
            if id in bubble_of:
                raise GraphError(
                    f"vertex {id!r} is in two bubbles, {bubble_of[id]!r} and {bubble.id!r}",
                    subject=id,
                    rule="two-bubbles",
                    hint="Remove it from one of them.",
                )
            bubble_of[id] = bubble.id
    if bubble_of:
        _check_bubble_answers(graph, bubble_of)
        _check_bubble_order(graph, bubble_of)


def _check_bubble_answers(graph: LogicalGraph, bubble_of: Mapping[str, str]) -> None:
    """Raise GraphError if a member of a bubble waits for the decision of another member.

    A bubble acquires all its slots before any member runs, so such a bubble would never start.
    """
    answers: dict[str, set[str]] = {}
    for choice in graph.choices:
        for branch in choice.branches.values():
            for id in branch:
                answers.setdefault(id, set()).add(choice.decider)
    for id, bubble in bubble_of.items():
        n = graph.vertices[id].parallelism
        seen: set[str] = set()
        while isinstance(n, SameAs) and n.vertex in graph.vertices and n.vertex not in seen:
            seen.add(n.vertex)
            n = graph.vertices[n.vertex].parallelism
        expanders = answers.get(id, set()) | ({n.expander} if isinstance(n, Source) else set())
        for expander in sorted(expanders):
            if bubble_of.get(expander) == bubble:
                raise GraphError(
                    f"bubble {bubble!r} has {id!r} and {expander!r}, but {id!r} waits for {expander!r} to decide",
                    subject=bubble,
                    rule="bubble-answer",
                    hint=f"Remove {expander!r} from the bubble.",
                )


def _check_bubble_order(graph: LogicalGraph, bubble_of: Mapping[str, str]) -> None:
    """Raise GraphError if a path leaves a bubble and comes back.

    A bubble starts as a whole: the graph with each bubble as one node must have no cycle.
    """
    below: dict[str, set[str]] = {}
    waiting: dict[str, int] = {}
    node = {id: f"bubble {bubble_of[id]}" if id in bubble_of else id for id in graph.vertices}
    for edge in graph.edges:
        src, dst = node[edge.src], node[edge.dst]
        if src != dst and dst not in below.setdefault(src, set()):
            below[src].add(dst)
            waiting[dst] = waiting.get(dst, 0) + 1
    free = [name for name in dict.fromkeys(node.values()) if not waiting.get(name)]
    seen = 0
    while free:
        seen += 1
        for dst in below.get(free.pop(), ()):
            waiting[dst] -= 1
            if not waiting[dst]:
                free.append(dst)
    if seen != len(set(node.values())):
        blocked = sorted(name for name, left in waiting.items() if left and name.startswith("bubble "))
        bubble = blocked[0].removeprefix("bubble ")
        raise GraphError(
            f"bubble {bubble!r} would wait for itself: a path leaves it and comes back",
            subject=bubble,
            rule="bubble-order",
            hint="Put the vertices on that path into the bubble too, or split it.",
        )


def _check_group(what: str, group: Bubble | Choice, ids: set[str]) -> None:
    if not is_name(group.id):
        raise _bad_name(what, group.id)
    if group.id in ids:
        raise GraphError(f"two {what}s have the id {group.id!r}", subject=group.id, rule=f"unique-{what}")
    ids.add(group.id)


def _check_choices(graph: LogicalGraph, choices: Iterable[Choice]) -> None:
    ids: set[str] = set()
    after = _after(graph.edges)
    for choice in choices:
        _check_group("choice", choice, ids)
        _check_choice(graph, choice, after)


def _check_choice(graph: LogicalGraph, choice: Choice, after: Mapping[str, list[str]]) -> None:
    def wrong(what: str, hint: str = "", rule: str = "choice") -> GraphError:
        return GraphError(f"choice {choice.id!r} {what}", subject=choice.id, rule=rule, hint=hint)

    decider = graph.vertices.get(choice.decider)
    if decider is None:
        raise wrong(
            f"has the unknown decider {choice.decider!r}",
            _nearest(choice.decider, graph.vertices),
            "unknown-vertex",
        )
    if not decider.expands:
        raise wrong(
            f"has the decider {choice.decider!r}, which does not expand", "Set expands=True on the decider.", "expander"
        )
    if not choice.branches:
        raise wrong("has no branches")
    reached = _reached(after, choice.decider, {id for branch in choice.branches.values() for id in branch})
    branch_of: dict[str, str] = {}
    for branch, vertices in choice.branches.items():
        for id in vertices:
            if id not in graph.vertices:
                raise wrong(
                    f"names the unknown vertex {id!r} in branch {branch!r}",
                    _nearest(id, graph.vertices),
                    "unknown-vertex",
                )
            if id in branch_of:
                raise wrong(f"has vertex {id!r} in two branches, {branch_of[id]!r} and {branch!r}", rule="branches")
            branch_of[id] = branch
            if id not in reached:
                raise wrong(
                    f"has vertex {id!r} in branch {branch!r}, but no path leads from {choice.decider!r} to it",
                    "Add an order-only edge from the decider.",
                    "branch-path",
                )


# ---------------------------------------------------------------------------------------------------------- patch


def check_patch(graph: LogicalGraph, patch: Patch, expander_id: str) -> None:
    """Raise GraphError if `patch`, returned by the vertex `expander_id`, would make the live `graph` illegal.

    The engine checks which vertices have started; this function refuses changes to ancestors of the expander. The cost
    of a patch with nameless edges that all lead to its own vertices does not depend on the size of the graph.
    """
    expander = graph.vertices.get(expander_id)
    if expander is None or not (expander.expands or expander.kind is VertexKind.SERVICE):
        raise GraphError(
            f"vertex {expander_id!r} returned a patch, but does not expand", subject=expander_id, rule="expander"
        )
    _check_patch_parts(patch, expander_id)
    new = {vertex.id: vertex for vertex in patch.vertices}
    _check_patch_names(graph, patch, expander_id, new)
    edits = bool(patch.drop_edges) or any(edge.dst not in new for edge in patch.edges)
    kept = _kept_edges(graph, patch, expander_id) if edits or any(edge.name for edge in patch.edges) else []
    merged = LogicalGraph(
        graph.name,
        {**graph.vertices, **new},
        [*kept, *patch.edges],
        [*graph.bubbles, *patch.bubbles],
        [*graph.choices, *patch.choices],
        graph.on_failure,
        graph.limits,
    )
    if len(merged.vertices) > MAX_VERTICES or len(graph.edges) + len(patch.edges) > MAX_EDGES:
        _check_size(LogicalGraph(graph.name, merged.vertices, [*graph.edges, *patch.edges]))
    services = _check_vertices(merged, new.values(), None)
    served = _check_edges(merged, merged.edges)
    if edits:
        _check_untouched(graph, patch, expander_id)
        services += [id for id, vertex in graph.vertices.items() if vertex.kind is VertexKind.SERVICE]
        topological(merged)
    else:
        # No old vertex can be reached from a new one, so only the new vertices could form a cycle.
        topological(LogicalGraph(graph.name, new, [edge for edge in patch.edges if edge.src in new]))
    _check_served(services, served)
    if expander.final and not all(vertex.final for vertex in patch.vertices):
        raise GraphError(
            f"patch of the final vertex {expander_id!r} has a vertex that is not final",
            subject=expander_id,
            rule="final",
        )
    check_final(merged, [vertex for vertex in merged.vertices.values() if vertex.final])
    whole = merged if kept else LogicalGraph(merged.name, merged.vertices, graph.edges)
    if not kept and (patch.choices or any(isinstance(vertex.parallelism, (Source, SameAs)) for vertex in new.values())):
        whole.edges = [*graph.edges, *patch.edges]
    _check_references(whole, new.values())
    if merged.bubbles:
        _check_bubbles(merged)
    if patch.choices:
        whole.choices = merged.choices
        _check_choices(whole, merged.choices)


def _check_patch_parts(patch: Patch, expander_id: str) -> None:
    kinds = {"vertices": Vertex, "edges": Edge, "drop_edges": str, "bubbles": Bubble, "choices": Choice}
    for name, kind in kinds.items():
        parts = getattr(patch, name)
        whole = isinstance(parts, (tuple, list))
        for part in parts if whole else (parts,):
            if not whole or not isinstance(part, kind):
                raise GraphError(
                    f"patch of {expander_id!r} has a {type(part).__name__} in {name}, not a {kind.__name__}",
                    subject=expander_id,
                    rule="patch",
                    hint="Give a tuple for each field of a Patch.",
                )
    for vertex in patch.vertices:
        if not isinstance(vertex.program, Program):
            raise GraphError(
                f"patch of {expander_id!r} has a {type(vertex.program).__name__}, not a Program, for {vertex.id!r}",
                subject=expander_id,
                rule="patch",
            )


def _check_patch_names(graph: LogicalGraph, patch: Patch, expander_id: str, new: Mapping[str, Vertex]) -> None:
    prefix = f"{expander_id}/"
    for id in new:
        if not id.startswith(prefix):
            raise GraphError(
                f"patch of {expander_id!r} adds vertex {id!r}, whose id must begin with {prefix!r}",
                subject=id,
                rule="patch-name",
            )
        if id in graph.vertices:
            raise GraphError(
                f"patch of {expander_id!r} adds vertex {id!r}, which exists", subject=id, rule="unique-vertex"
            )
    if len(new) != len(patch.vertices):
        raise GraphError(
            f"patch of {expander_id!r} has two vertices with one id", subject=expander_id, rule="unique-vertex"
        )


def _kept_edges(graph: LogicalGraph, patch: Patch, expander_id: str) -> list[Edge]:
    known = {edge.id for edge in graph.edges}
    for name in patch.drop_edges:
        if name not in known:
            raise GraphError(
                f"patch of {expander_id!r} drops the unknown edge {name!r}",
                subject=name,
                rule="unknown-edge",
                hint=_nearest(name, known),
            )
    dropped = set(patch.drop_edges)
    return [edge for edge in graph.edges if edge.id not in dropped]


def _check_untouched(graph: LogicalGraph, patch: Patch, expander_id: str) -> None:
    """Raise GraphError if `patch` changes the inputs of an ancestor of the expander: all of these have started."""
    before: dict[str, list[str]] = {}
    by_id: dict[str, Edge] = {}
    for edge in graph.edges:
        before.setdefault(edge.dst, []).append(edge.src)
        by_id[edge.id] = edge
    started = {expander_id}
    stack = [expander_id]
    while stack:
        for src in before.get(stack.pop(), ()):
            if src not in started:
                started.add(src)
                stack.append(src)
    for edge in (*patch.edges, *(by_id[name] for name in patch.drop_edges)):
        if edge.dst in started:
            raise GraphError(
                f"patch of {expander_id!r} changes the inputs of {edge.dst!r}, which has already started",
                subject=edge.id,
                rule="patch-started",
            )
