"""The construction of stages and links, at the start of a job and by patches alike.

`grow` adds vertices and edges to the physical graph and settles what is known of them. A patch touches its own stages
and links and the ends of these links, so that its cost does not depend on the size of the graph, unless it changes the
inputs of older vertices. Stages that run keep their state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.engine.agenda import Phase
from weft.engine.consulting import install
from weft.engine.core import ChoiceRow, Growth
from weft.engine.describe import forget_specs
from weft.engine.machines.job import JobState
from weft.engine.machines.vertex import ENDED, VERTEX, VertexState
from weft.engine.notes import NoteKind
from weft.engine.physical import INFINITE, PhysicalEdge, Stage, link_of
from weft.engine.policy import Moment
from weft.engine.readiness import (
    EARLY,
    advance,
    check_gates,
    count_missing,
    count_reader,
    count_refs,
    end,
    enqueue,
    finish,
    make_ready,
    recount,
    settle_links,
)
from weft.engine.rows import FINISHED, SKIPPED, UNSCHEDULED, runs_of, write
from weft.graph.logical import SEQUENTIAL, Bubble, Choice, Edge, Range, SameAs, Source, Vertex, VertexKind
from weft.graph.routing import Router, bind
from weft.model.errors import GraphError

if TYPE_CHECKING:
    from weft.engine.core import Core

_CONFIGURED = VERTEX[VertexState.CONFIGURING]["configured"]
_SERVICE, _ENDING = VertexKind.SERVICE, JobState.ENDING


def grow(
    core: Core,
    vertices: Sequence[Vertex],
    edges: Sequence[Edge],
    choices: Sequence[Choice],
    bubbles: Sequence[Bubble],
    dropped: Sequence[PhysicalEdge] = (),
) -> list[PhysicalEdge]:
    """Add stages, links, choices and bubbles, remove the `dropped` links, and settle the known numbers of tasks.

    Return the new links. The first call leaves readiness to `start`.
    """
    fresh = not core.stages
    first = len(core.stages)
    for link in dropped:
        _drop(core, link)
    for vertex in vertices:
        _add_stage(core, vertex, fresh=fresh)
    links = [_add_link(core, edge, fresh=fresh) for edge in edges]
    named = [stage for choice in choices for stage in _add_choice(core, choice)]
    named += [core.by_id[id] for bubble in bubbles for id in bubble.vertices]
    new = _put_in_order(core, first, links, dropped)
    core.unended += len(new)
    install(core, core.stages[first:])
    configure_known(core, new, fresh=fresh)
    if bubbles or core.bubbles or core.services:
        growth = Growth(new, links, dropped, bubbles)
        for changed in core.hooks.graph_changed:
            changed(core, growth)
        configure_known(core, [*new, *named], fresh=fresh)
    if not fresh:
        _join(core, first, links, dropped, named)
    return links


def _add_stage(core: Core, vertex: Vertex, *, fresh: bool) -> None:
    stage = Stage(vertex, len(core.stages))
    if vertex.starts_processes and core.tuning.many_machines:
        stage.ask(tuple(replace(one, cpu=max(1, one.cpu)) for one in vertex.resources))
    core.stages.append(stage)
    core.by_id[vertex.id] = stage
    if vertex.priority:
        core.prioritised = True
    n = vertex.parallelism
    if fresh and type(n) is int:
        stage.n = n
        stage.state = bytearray(n)
        stage.status = _CONFIGURED
    elif type(n) is Source:
        core.sized.setdefault(n.expander, []).append(stage)
    elif type(n) is SameAs:
        core.sized.setdefault(n.vertex, []).append(stage)
    if vertex.kind is _SERVICE:
        core.services.append(stage)
    if vertex.final and core.status is not _ENDING:
        core.held += 1


def _add_link(core: Core, edge: Edge, *, fresh: bool) -> PhysicalEdge:
    src, dst = core.by_id[edge.src], core.by_id[edge.dst]
    router = bind(edge, src.n, dst.n) if fresh and src.n >= 0 <= dst.n else None
    link = link_of(edge, src, dst, router)
    src.outputs.append(link)
    dst.inputs.append(link)
    if edge.scheduling is not SEQUENTIAL and edge.scheduling.when in EARLY:
        src.early = True
    if not fresh:
        core.links[edge.id] = link
        if src.refs is not None:
            count_reader(src.refs, link)
        elif src.n > 0 and (link.data or dst.vertex.expands):
            src.refs = count_refs(src)
    return link


def _add_choice(core: Core, choice: Choice) -> list[Stage]:
    """Add a choice; return the stages on its branches."""
    row = core.choices[choice.id] = ChoiceRow(choice)
    core.decided.setdefault(choice.decider, []).append(row)
    ids = dict.fromkeys(id for branch in choice.branches.values() for id in branch)
    for id in ids:
        core.branched.setdefault(id, []).append(row)
    return [core.by_id[id] for id in ids]


def _drop(core: Core, link: PhysicalEdge) -> None:
    link.src.outputs.remove(link)
    link.dst.inputs.remove(link)
    del core.links[link.edge.id]
    if link.src.refs is not None:
        link.src.refs = count_refs(link.src)


def _put_in_order(
    core: Core, first: int, links: Sequence[PhysicalEdge], dropped: Sequence[PhysicalEdge]
) -> Sequence[Stage]:
    """Determine the order and the depth of stages after a change; return the new stages, from `first` on, in order."""
    new = core.stages[first:]
    if dropped or (first and any(link.dst.index < first for link in links)):
        core.order = _topological(core.stages)
        for stage in _deepen(core.order):
            if stage.ready.count and stage.plain and stage.bubble < 0:  # its place in the queue depends on its depth
                lo, hi = stage.ready.spans[-1]
                stage.ready.discard(lo, hi)
                stage.key = INFINITE
                enqueue(core, stage, lo, hi)
        return [stage for stage in core.order if stage.index >= first]
    if any(link.src.index >= link.dst.index for link in links):
        new = _topological(new)
    core.order.extend(new)
    _deepen(new)
    return new


def _topological(stages: Sequence[Stage]) -> list[Stage]:
    """Return these stages in an order in which all links between them go forward."""
    first = stages[0].index if stages else 0
    waiting = {stage.index: sum(link.src.index >= first for link in stage.inputs) for stage in stages}
    order = [stage for stage in stages if not waiting[stage.index]]
    for stage in order:
        for link in stage.outputs:
            waiting[link.dst.index] -= 1
            if waiting[link.dst.index] == 0:
                order.append(link.dst)
    if len(order) != len(stages):
        raise GraphError("the graph has a cycle", rule="acyclic")
    return order


def _deepen(stages: Iterable[Stage]) -> list[Stage]:
    """Compute the depths of stages in topological order; return those whose depth has changed."""
    changed: list[Stage] = []
    for stage in stages:
        depth = 0
        for link in stage.inputs:
            if link.src.depth >= depth:
                depth = link.src.depth + 1
        if depth != stage.depth:
            stage.depth = depth
            changed.append(stage)
    return changed


def _join(
    core: Core,
    first: int,
    links: Sequence[PhysicalEdge],
    dropped: Sequence[PhysicalEdge],
    named: Sequence[Stage],
) -> None:
    """Settle the effects of new and dropped links on the stages before `first`, and on those `named` by new choices and
    bubbles.
    """
    touched = {stage.index: stage for stage in named}
    for link in (*links, *dropped):
        touched[link.dst.index] = link.dst
    for link in links:
        if link.router is None and link.data and link.src.n >= 0 and link.dst.n >= 0:
            _rebind(link, bind(link.edge, link.src.n, link.dst.n))
    # A reader of one of these sources may be the only one no more, which its record says.
    forget_specs(core, [link.src.outputs[0].dst for link in links if link.data])
    old = [stage for stage in touched.values() if stage.index < first]
    for stage in sorted(old, key=lambda stage: (stage.depth, stage.index)):
        if stage.n >= 0 and stage.status in (VertexState.CONFIGURED, VertexState.CONFIGURING):
            recount(core, stage)
    if old:
        core.later(Phase.CONES, *core.stages)  # cones may go through a link that is gone
    else:
        core.later(Phase.CONES, *core.stages[first:], *(link.src for link in links))


def _rebind(link: PhysicalEdge, router: Router | None) -> None:
    """Set the router of a link, and the number of future reads of its source with it."""
    refs = link.src.refs
    if refs is not None:
        count_reader(refs, link, -1)
    link.bound(router)
    if refs is not None:
        count_reader(refs, link)


def configure_known(core: Core, stages: Sequence[Stage], *, fresh: bool) -> None:
    """Give task rows to every stage whose parallelism is settled; `fresh` while nothing of the job has started."""
    waiting = [stage for stage in stages if stage.n < 0 and stage.status is VertexState.CONFIGURING]
    settled = True
    while waiting and settled:  # a vertex may come before the one whose parallelism it shares
        settled = False
        for stage in waiting:
            parallelism = stage.vertex.parallelism
            if isinstance(parallelism, SameAs):
                parallelism = core.by_id[parallelism.vertex].n
            elif isinstance(parallelism, Range) and (stage.manager is None or _starts_with_a_source(stage)):
                parallelism = parallelism.hi
            if stage.n < 0 and isinstance(parallelism, int) and parallelism >= 0:
                configure(core, stage, parallelism, fresh=fresh)
                settled = True


def _starts_with_a_source(stage: Stage) -> bool:
    """Return whether a source of a stage is in its bubble: a manager that waits for that source would wait for ever."""
    return stage.bubble >= 0 and any(link.src.bubble == stage.bubble for link in stage.inputs)


def configure(
    core: Core, stage: Stage, n: int, *, fresh: bool = False, routers: Mapping[str, Router] | None = None
) -> None:
    """Give a stage `n` task rows and bind its links; `fresh` leaves readiness to `start`.

    GraphError if an edge does not allow this number: nothing is changed then.
    """
    chosen = routers or {}
    inward = [(k, chosen.get(k.edge.id) or bind(k.edge, k.src.n, n)) for k in stage.inputs if k.src.n >= 0]
    outward = [(k, bind(k.edge, n, k.dst.n)) for k in stage.outputs if k.dst.n >= 0]
    counted = [] if fresh else [(link.src.refs, link) for link in stage.inputs if link.src.refs is not None]
    for refs, link in counted:
        count_reader(refs, link, -1)
    stage.n = n
    stage.state = bytearray(n)
    if fresh:
        stage.status = _CONFIGURED
        core.moved.append(stage)
    elif stage.status is VertexState.CONFIGURING:
        advance(core, stage, "configured")
        if stage.manager is not None:
            core.tell(stage, Moment.CONFIGURED)
    else:
        advance(core, stage, "reconfigured")
    for link, router in inward:
        link.bound(router)
    for link, router in outward:
        link.bound(router)
        if not fresh:
            recount(core, link.dst)
    if fresh:
        return
    core.later(Phase.CONES, stage, *(link.dst for link in stage.outputs))
    core.note(stage.id, NoteKind.CONFIGURED, n)
    recount(core, stage)
    for refs, link in counted:
        count_reader(refs, link)
    if n == 0:
        end(core, stage)
    check_gates(core, stage)
    for other in core.sized.get(stage.id, ()):
        if isinstance(other.vertex.parallelism, SameAs) and other.n < 0 and other.status not in ENDED:
            configure(core, other, n)


def start(core: Core, given: Collection[str] = ()) -> None:
    """Make stages without dependencies ready, all at once at the start; the outputs of `given` vertices exist
    already.
    """
    for stage in reversed(core.order):
        if stage.vertex.lazy:
            _leave_out_unread(core, stage)
    blocked: set[str] = set()
    for row in core.choices.values():
        for branch in row.choice.branches.values():
            blocked.update(branch)
    for stage in core.order:
        if stage.n < 0:
            continue
        if stage.inputs or stage.id in blocked or (core.held and stage.vertex.final):
            settle_links(core, stage)
            if stage.closed:
                continue
            if stage.narrow:
                for link in stage.inputs:
                    if link.group == 0 and not link.gate:
                        _start_without_inputs(core, stage)
                        break
                continue
        if stage.n and stage.id not in given:
            for lo, hi in list(runs_of(stage.state, UNSCHEDULED, 0, stage.n)):
                make_ready(core, stage, lo, hi)
    for stage in core.order:
        if stage.n == stage.over and stage.status not in ENDED:
            end(core, stage)
        elif given and stage.id in given:
            write(core, stage, 0, stage.n, UNSCHEDULED, FINISHED)
            finish(core, stage, [(0, stage.n)])


def _leave_out_unread(core: Core, stage: Stage) -> None:
    """Skip the tasks whose output no later task reads; readers are handled before their sources."""
    links = [link for link in stage.outputs if link.data]
    if stage.keep or stage.n < 1 or not links:
        return
    if any((link.wide or link.group) and not link.dst.over for link in links):
        return  # all of its outputs are read
    unread = [index for index, refs in enumerate(count_refs(stage)) if not refs]
    for index in unread:
        write(core, stage, index, index + 1, UNSCHEDULED, SKIPPED)
    if unread:
        stage.over += len(unread)
        for link in stage.inputs:
            link.left -= len(unread)
        core.note(stage.id, NoteKind.UNREAD, len(unread), stage.n)


def _start_without_inputs(core: Core, stage: Stage) -> None:
    """Make tasks ready for which the map of an input selects no source task."""
    missing = stage.missing = count_missing(stage, fresh=True)
    for index in range(stage.n):
        if missing[index] == 0 and stage.state[index] == UNSCHEDULED:
            make_ready(core, stage, index, index + 1)
