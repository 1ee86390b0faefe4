"""Decisions about the graph: late parallelism, choices, patches and changes of edges and resources.

Expanders answer with a small value: an int or a list (parallelism of the vertices that name it as their `Source`), a
string (the branch of the choices it decides), a `Patch`, or decisions. Validation precedes every change.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, Set, ValuesView
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.engine.agenda import Phase
from weft.engine.building import configure, grow
from weft.engine.consulting import check_managers
from weft.engine.decisions import (
    ApplyPatch,
    Choose,
    Emit,
    Fail,
    Finish,
    Schedule,
    SetEdge,
    SetParallelism,
    SetResources,
    check_form,
)
from weft.engine.failures import fatal
from weft.engine.machines.vertex import ENDED, VertexState
from weft.engine.notes import NoteKind
from weft.engine.physical import INFINITE, NOTHING, PhysicalEdge, Stage
from weft.engine.policy import Moment
from weft.engine.readiness import (
    check_gates,
    count_refs,
    recount,
)
from weft.engine.rows import FATAL, FREED, PROBING, READY, SKIPPED, UNSCHEDULED
from weft.engine.settle import end_rest, finish_early, mark
from weft.graph.logical import (
    Edge,
    LogicalGraph,
    Movement,
    MovementKind,
    Patch,
    Range,
    Source,
    Storage,
    VertexKind,
)
from weft.graph.routing import bind
from weft.graph.task import RESERVED
from weft.model.errors import GraphError, WeftError
from weft.model.failures import Failure
from weft.model.wording import type_of, with_article

if TYPE_CHECKING:
    from weft.engine.core import ChoiceRow, Core

_ORDERED = (list, tuple, range, deque, KeysView, ValuesView, ItemsView)
"""What is plainly a list with one item for each task."""
_NEARLY_LISTS: Final = (
    (Set, "A set has no order: return sorted(...) of it."),
    (Mapping, "Return the list of its items, keys or values."),
    (Iterator, "It can be read once: return list(...) of it."),
)
"""The hints for answers that lack something to be a list."""
_STOPPED = frozenset({*ENDED, VertexState.DRAINING})
_NOT_STARTED = (VertexState.CONFIGURING, VertexState.CONFIGURED)


def expanded(core: Core, stage: Stage, index: int, value: Any) -> str:
    """Apply the answer of task `index` of an expander; return the reason of a rejection, "" if accepted.

    An answer counts once: the answer of a recomputed task is ignored.
    """
    if (stage.index, index) in core.answered:
        return ""
    try:
        for decision in _decisions(core, stage, value):
            apply(core, decision)
    except WeftError as error:
        return f"the answer of {stage.id} was rejected: {error}"
    core.answered.add((stage.index, index))
    return ""


def _decisions(core: Core, stage: Stage, value: Any) -> list[Any]:
    waiting = [s for s in core.sized.get(stage.id, ()) if isinstance(s.vertex.parallelism, Source)]
    deciding = [row for row in core.decided.get(stage.id, ()) if not row.taken]
    if deciding and not isinstance(value, str) and not _settles(value, deciding):
        raise _refused(stage, f"returned {type_of(value)}; {_wanted([], deciding)}")
    if isinstance(value, Patch):
        return [ApplyPatch(stage.id, value)]
    if isinstance(value, dict) and "weft" in value:
        from weft.graph.wire import patch_from_json

        return [ApplyPatch(stage.id, patch_from_json(value))]
    if isinstance(value, str):
        if not deciding:
            raise _refused(stage, f"returned {value!r}, but decides no choice; {_wanted(waiting, [])}")
        return [Choose(row.choice.id, value) for row in deciding]
    if isinstance(value, bool) or value is None:
        if waiting or deciding:
            raise _refused(stage, f"returned {value}; {_wanted(waiting, deciding)}")
        return []
    if type(value) in _DECISIONS:
        return [value]
    return _list_or_number(stage, waiting, value)


def _list_or_number(stage: Stage, waiting: list[Stage], value: Any) -> list[Any]:
    """Return the decisions of an answer that is a list of decisions, of items for tasks, or a number of tasks."""
    n, items = _whole(value), _items(value)
    decisions = [item for item in items or () if type(item) in _DECISIONS]
    if items is not None and decisions:
        if len(decisions) < len(items):
            what = with_article(type(decisions[0]).__name__)
            raise _refused(
                stage,
                f"returned a list in which {what} stands beside what is no decision",
                "Return decisions only, or values only.",
            )
        return decisions
    if n is None and items is None:
        hint = next((hint for kind, hint in _NEARLY_LISTS if isinstance(value, kind)), "")
        raise _refused(stage, f"returned {type_of(value)}; {_wanted(waiting, [])}", hint)
    none = items is not None and not items  # a list without decisions
    if not waiting and not none and not stage.keep and not any(link.data for link in stage.outputs):
        raise _refused(
            stage,
            f"returned {type_of(value)}, but no vertex takes its number of tasks from it",
            f"Give a vertex n=Source({stage.id!r}), or return None.",
        )
    if items is not None:
        for s in waiting:
            s.vertex = replace(s.vertex, program=replace(s.vertex.program, items=items))
        n = len(items)
    return [SetParallelism(s.id, n or 0) for s in waiting if items is not None or s.status not in ENDED]


def _whole(value: Any) -> int | None:
    """Return a whole number of any library as an int; None for anything else."""
    try:
        return operator.index(value)
    except TypeError:
        return None


def _items(value: Any) -> Sequence[Any] | None:
    """Return an answer that is plainly a list, in order, as one; None for anything else.

    A named tuple is one record, and no list of its fields.
    """
    if type(value) in (list, tuple):
        return value  # type: ignore[no-any-return]
    ordered = isinstance(value, _ORDERED) and not hasattr(value, "_fields")
    return list(value) if ordered or (hasattr(value, "__array__") and getattr(value, "ndim", 0) > 0) else None


def _refused(stage: Stage, what: str, hint: str = "") -> GraphError:
    return GraphError(f"expander {stage.id!r} {what}", subject=stage.id, rule="expander-answer", hint=hint)


def _settles(value: Any, deciding: list[ChoiceRow]) -> bool:
    """Return whether an answer consists of decisions that settle every waiting choice."""
    if type(value) is Choose:
        value = [value]
    if not isinstance(value, (list, tuple)):
        return False
    settled = {decision.choice for decision in value if isinstance(decision, Choose)}
    return all(row.choice.id in settled for row in deciding)


def _wanted(waiting: list[Stage], deciding: list[ChoiceRow]) -> str:
    if deciding:
        return f"choice {deciding[0].choice.id!r} takes the name of a branch: {', '.join(deciding[0].choice.branches)}"
    if waiting:
        return f"vertex {waiting[0].id!r} takes a number of tasks, or a list with one item for each"
    return "an expander answers an int, a list, the name of a branch, a Patch or decisions"


def apply(core: Core, decision: Any) -> None:
    """Validate one decision and apply it. GraphError: it is not allowed now, or does not concern the graph."""
    check_form(decision)
    carry_out = _DECISIONS.get(type(decision))
    if carry_out is None:
        raise GraphError(
            f"{type_of(decision)} is not a decision",
            rule="decision",
            hint=f"The decisions are: {', '.join(kind.__name__ for kind in _DECISIONS)}.",
        )
    carry_out(core, decision)


def _schedule(core: Core, decision: Schedule) -> None:
    stage = _uncontrolled(core, decision.vertex)
    if 0 <= stage.released < decision.n:
        stage.released = decision.n
        if stage.n > 0:
            recount(core, stage)


def _finish(core: Core, decision: Finish) -> None:
    finish_early(core, _uncontrolled(core, decision.vertex), decision.reason)


def _emit(core: Core, decision: Emit) -> None:
    stage = _stage(core, decision.vertex)
    if not isinstance(decision.name, str) or not decision.name or decision.name.startswith(RESERVED):
        raise GraphError(
            f"{decision.vertex!r} cannot emit an event called {decision.name!r}",
            subject=decision.vertex,
            rule="event",
            hint=f"Give its name as text that does not begin with {RESERVED!r}.",
        )
    emitted(core, stage, decision.name, decision.payload)


def _fail(core: Core, decision: Fail) -> None:
    stage = _uncontrolled(core, decision.vertex)
    core.note(stage.id, NoteKind.DECIDED_TO_FAIL, decision.reason)
    if stage.n < 0:
        end_rest(core, stage, FATAL)
    for index in range(max(stage.n, 0)):
        if stage.state[index] in (UNSCHEDULED, READY):
            fatal(core, stage, index, Failure.USER, decision.reason)


def _stage(core: Core, vertex: str) -> Stage:
    stage = core.by_id.get(vertex)
    if stage is None:
        raise GraphError(f"decision about {vertex!r}: there is no such vertex", subject=vertex, rule="decision-vertex")
    return stage


def _uncontrolled(core: Core, vertex: str) -> Stage:
    """Return the stage of a vertex. GraphError: there is none, or its controller alone decides about its tasks."""
    stage = _stage(core, vertex)
    if stage.control is not None:
        raise GraphError(
            f"decision about {vertex!r}: the controller of the job alone starts, stops and ends its tasks",
            subject=vertex,
            rule="controlled",
        )
    return stage


def _set_parallelism(core: Core, decision: SetParallelism) -> None:
    stage = _uncontrolled(core, decision.vertex)
    if stage.status not in (VertexState.CONFIGURING, VertexState.CONFIGURED):
        raise GraphError(
            f"vertex {stage.id!r} has started: its parallelism is settled at {stage.n}",
            subject=stage.id,
            rule="not-started",
        )
    if stage.n > 0 and stage.state.count(PROBING):
        raise GraphError(
            f"vertex {stage.id!r} has asked the cache: its parallelism is settled at {stage.n}",
            subject=stage.id,
            rule="not-started",
        )
    if stage.over:
        raise GraphError(
            f"some of its tasks have been given up: the parallelism of {stage.id!r} is settled at {stage.n}",
            subject=stage.id,
            rule="not-started",
        )
    width = stage.vertex.parallelism
    if isinstance(width, Range) and not width.lo <= decision.n <= width.hi:
        raise GraphError(
            f"vertex {stage.id!r} has between {width.lo} and {width.hi} tasks, and cannot have {decision.n}",
            subject=stage.id,
            rule="parallelism",
        )
    if decision.n < 0:
        raise GraphError(
            f"vertex {stage.id!r}: parallelism {decision.n} is negative", subject=stage.id, rule="parallelism"
        )
    from weft.graph.rules.size import check_count

    check_count(stage.id, decision.n)
    if decision.items is not None:
        if len(decision.items) != decision.n:
            raise GraphError(
                f"vertex {stage.id!r}: {len(decision.items)} items for {decision.n} tasks",
                subject=stage.id,
                rule="items",
            )
    elif stage.vertex.program.items is not None and len(stage.vertex.program.items) != decision.n:
        raise GraphError(
            f"vertex {stage.id!r} has {len(stage.vertex.program.items)} items, one for each task, and cannot have "
            f"{decision.n} tasks",
            subject=stage.id,
            rule="items",
        )
    vertex, ready, key, missing, refs = stage.vertex, stage.ready, stage.key, stage.missing, stage.refs
    stage.ready, stage.key, stage.missing, stage.refs = NOTHING, INFINITE, None, None
    if decision.items is not None:
        stage.vertex = replace(vertex, program=replace(vertex.program, items=decision.items))
    try:
        configure(core, stage, decision.n, routers=dict(decision.routers))
    except GraphError:
        stage.vertex, stage.ready, stage.key, stage.missing, stage.refs = vertex, ready, key, missing, refs
        raise


def _set_resources(core: Core, decision: SetResources) -> None:
    stage, resources = _stage(core, decision.vertex), decision.resources
    for check in core.hooks.resources_change:
        check(core, stage)
    from weft.graph.rules.vertices import check_resources

    check_resources(stage.id, resources, core.graph.limits)
    before, plain, light = stage.resources, stage.plain, stage.light
    busy = stage.executing or any(row.stage is stage for row in core.requests.values())
    stage.ask(resources)
    if busy and (stage.light != light or stage.resources[0].tokens != before[0].tokens):
        stage.resources, stage.plain, stage.light = before, plain, light
        raise GraphError(
            f"tasks of {stage.id!r} run or wait for a worker: what they take of tokens, and whether they take a core, "
            "is settled",
            subject=stage.id,
            rule="not-started",
        )
    core.later(Phase.CONES, stage)
    if stage.n > 0:
        recount(core, stage)


def _set_edge(core: Core, decision: SetEdge) -> None:
    link = core.links.get(decision.edge)
    if link is None:
        raise GraphError(
            f"decision about edge {decision.edge!r}: there is none", subject=decision.edge, rule="decision-edge"
        )
    if link.dst.status not in (VertexState.CONFIGURING, VertexState.CONFIGURED):
        raise GraphError(
            f"edge {decision.edge}: a task of {link.dst.id!r} has started", subject=decision.edge, rule="not-started"
        )
    if link.src.restarting or link.dst.restarting:
        raise GraphError(f"edge {decision.edge}: its region is starting again", subject=decision.edge, rule="region")
    edge = replace(
        link.edge,
        scheduling=decision.scheduling or link.edge.scheduling,
        storage=decision.storage or link.edge.storage,
    )
    if decision.movement is None:
        link.set_edge(edge)
    else:
        _set_movement(link, replace(edge, movement=_movement_after(link, edge, decision.movement)))
    link.src.early = True
    for changed in core.hooks.edge_changed:
        changed(core)
    core.later(Phase.CONES, link.src, link.dst)
    recount(core, link.dst)


def _movement_after(link: PhysicalEdge, edge: Edge, wanted: Movement) -> Movement:
    """Return the movement of an edge after a decision. GraphError: the movement is not possible any more."""
    src, dst, move, was = link.src, link.dst, wanted.move, link.edge.movement
    why = ""
    if MovementKind.NONE in (move, was.move):
        why = "whether it brings something is settled: the program of its destination counts its inputs"
    elif edge.scheduling.concurrent or edge.storage is Storage.EPHEMERAL:
        why = "it streams"
    elif dst.n > 0 and (dst.over or dst.state.count(PROBING)):
        why = f"tasks of {dst.id!r} have asked the cache or were given up"
    elif move is MovementKind.SCATTER_GATHER and was.move is not move and src.status not in _NOT_STARTED:
        why = f"{src.id!r} has started, and writes no pieces"
    elif was.move is MovementKind.SCATTER_GATHER or was.partitions:
        parts = was.partitions if link.router is None else link.router.partitions
        if move is MovementKind.SCATTER_GATHER:
            if src.status in _NOT_STARTED or wanted.partitions == parts:
                return wanted
            why = f"{src.id!r} has started, and writes {parts} pieces"
        elif move not in (MovementKind.BROADCAST, MovementKind.ONE_TO_ONE):
            why = "pieces are read one to one or by all"
        elif not parts:
            why = f"it is not known yet how many pieces {src.id!r} writes"
        else:
            return replace(wanted, partitions=parts)
    if why:
        raise GraphError(f"edge {edge.id} cannot be {move.value}: {why}", subject=edge.id, rule="movement")
    return wanted


def _set_movement(link: PhysicalEdge, edge: Edge) -> None:
    """Bind a link anew to its movement. GraphError: the movement does not allow the numbers of tasks."""
    src, dst = link.src, link.dst
    router = bind(edge, src.n, dst.n) if src.n >= 0 and dst.n >= 0 else None
    move = edge.movement.move
    link.wide = move in (MovementKind.BROADCAST, MovementKind.SCATTER_GATHER)
    link.group = 1 if move is MovementKind.ONE_TO_ONE else 0
    link.set_edge(edge)
    link.router = None
    if router is not None:
        link.bound(router)
    if src.n > 0:
        src.refs = count_refs(src)


def choose(core: Core, decision: Choose) -> None:
    """Take one branch; the vertices of the others are skipped."""
    row = core.choices.get(decision.choice)
    if row is None or decision.branch not in row.choice.branches:
        known = ", ".join(row.choice.branches) if row else ", ".join(core.choices) or "none"
        raise GraphError(
            f"choice {decision.choice!r} has no branch {decision.branch!r} (there is: {known})",
            subject=decision.choice,
            rule="choice-branch",
        )
    row.taken = decision.branch
    core.note(row.choice.decider, NoteKind.BRANCH_TAKEN, decision.choice, decision.branch)
    chosen = set(row.choice.branches[decision.branch])
    for name, branch in row.choice.branches.items():
        if name == decision.branch:
            continue
        for vertex in branch:
            if vertex not in chosen:
                core.note(vertex, NoteKind.BRANCH_SKIPPED, decision.choice, decision.branch)
                end_rest(core, core.by_id[vertex], SKIPPED)
                core.later(Phase.CONES, *(link.dst for link in core.by_id[vertex].outputs))
    for vertex in row.choice.branches[decision.branch]:
        recount(core, core.by_id[vertex])


def patch(core: Core, decision: ApplyPatch) -> None:
    """Edit the part of the graph that has not started."""
    from weft.graph.rules.patches import check_patch

    change = decision.patch
    check_patch(core.graph, change, decision.vertex)
    check_managers(core.managers, change.vertices, partial(_patched, core.graph, change))
    for name in change.drop_edges:
        link = core.links[name]
        if link.dst.status not in (VertexState.CONFIGURING, VertexState.CONFIGURED):
            raise GraphError(f"patch drops edge {name}: {link.dst.id!r} has started", subject=name, rule="not-started")
    for edge in change.edges:
        service = core.by_id.get(edge.src)
        if service is not None and service.vertex.kind is VertexKind.SERVICE and service.status in _STOPPED:
            raise GraphError(
                f"patch adds edge {edge.id}: the service {edge.src!r} has ended", subject=edge.id, rule="not-ended"
            )
        dst = core.by_id.get(edge.dst)
        if dst is not None and dst.status not in (VertexState.CONFIGURING, VertexState.CONFIGURED):
            raise GraphError(
                f"patch adds edge {edge.id}: {edge.dst!r} has started", subject=edge.id, rule="not-started"
            )
    core.note(decision.vertex, NoteKind.PATCHED, len(change.vertices), len(change.edges))
    core.own_graph()
    if change.drop_edges:
        core.graph.edges = [edge for edge in core.graph.edges if edge.id not in change.drop_edges]
    for vertex in change.vertices:
        core.graph.add_vertex(vertex)
    core.graph.edges.extend(change.edges)
    core.graph.bubbles.extend(change.bubbles)
    dropped = [core.links[name] for name in change.drop_edges]
    links = grow(core, change.vertices, change.edges, change.choices, change.bubbles, dropped)
    core.patched = True
    for link in links:
        mark(core, link.dst, 0, max(link.dst.n, 0), UNSCHEDULED)  # its new source may have failed
        if link.data and link.dst.n > 0 and link.src.n > 0 and link.src.state.count(FREED):
            core.later(Phase.WANTED, link.dst)


def _patched(graph: LogicalGraph, change: Patch) -> LogicalGraph:
    after = graph.copy()
    after.edges = [edge for edge in after.edges if edge.id not in change.drop_edges] + list(change.edges)
    after.vertices |= {vertex.id: vertex for vertex in change.vertices}
    after.choices += change.choices
    return after


def emitted(core: Core, stage: Stage, name: str, payload: Any) -> None:
    """Tell the managers after a vertex of its user event, and open the gates that wait for it."""
    if stage.listeners:
        core.payloads.setdefault((stage.id, name), []).append(payload)
        core.tell(stage, Moment.EVENT)
    if (stage.id, name) not in core.emitted:
        core.emitted.add((stage.id, name))
        check_gates(core, stage)


_DECISIONS: Final[dict[type, Callable[[Core, Any], None]]] = {
    SetParallelism: _set_parallelism,
    SetEdge: _set_edge,
    SetResources: _set_resources,
    Schedule: _schedule,
    Finish: _finish,
    Choose: choose,
    ApplyPatch: patch,
    Emit: _emit,
    Fail: _fail,
}
"""The functions that validate and apply each decision about the graph; other named tuples are plain values."""
