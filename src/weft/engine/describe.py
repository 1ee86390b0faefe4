"""The description of a stage as `TaskSpec`, made once and remade after changes of the vertex.

A launch refers to the records of all members of its lease. The edges of a vertex may change until the first of its
tasks is launched; a restart of its region or a patch of a neighbour invalidates the record later.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from weft.engine.machines.vertex import ENDED, VertexState
from weft.engine.rows import FATAL
from weft.engine.unrun import unrun
from weft.graph.logical import WHILE_RUNNING, MovementKind, Outcome, Storage, VertexKind
from weft.graph.task_spec import MOST_FAILED, UNSETTLED, EdgeSpec, JobVerdict, TaskSpec
from weft.model.failures import Failure
from weft.model.ids import loop_item, parse_task
from weft.model.program import Style

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.engine.core import Core
    from weft.engine.physical import PhysicalEdge, Stage
    from weft.graph.lease import Cone

Specs = tuple[TaskSpec, ...]

_FUNCTION, _SERVICE, _SHUFFLE = Style.FUNCTION, VertexKind.SERVICE, MovementKind.SCATTER_GATHER
_LEFT_OUT = (VertexState.SKIPPED, VertexState.DONE_EARLY)
_WHOLE = (MovementKind.ONE_TO_ONE, MovementKind.BROADCAST)


def specs_of(core: Core, stage: Stage, cone: Cone | None) -> Specs:
    """Return the records of the members of a lease, the root `stage` last."""
    if cone is None:
        return core.specs.get(stage.index) or describe(core, stage)
    key = (stage.index, cone.members[0])
    found = core.cone_specs.get(key)
    if found is None or found[0] is not cone:
        first = describe(core, core.by_id[cone.members[0]])
        inner = tuple([_inner(core, core.by_id[name]) for name in cone.members[1:-1]])
        found = core.cone_specs[key] = cone, (*first, *inner, *describe(core, stage))
    return found[1]


def describe(core: Core, stage: Stage) -> Specs:
    """Return a tuple with the record of a vertex, which is made if there is none."""
    found = core.specs.get(stage.index)
    if found is None:
        found = core.specs[stage.index] = (spec_of(core, stage),)
    return found


def forget_specs(core: Core, stages: Iterable[Stage]) -> None:
    """Drop the records of these changed stages; their next launch makes new ones."""
    for stage in stages:
        core.specs.pop(stage.index, None)
        core.inner_specs.pop(stage.index, None)
    core.cone_specs.clear()


def _inner(core: Core, stage: Stage) -> TaskSpec:
    """Return the record of a vertex inside a cone, which has no edges if it reads only the preceding value.

    Cones take ordinary vertices only, so the record of one that calls its function with that value has defaults in most
    of its fields: it is made without a look at them, as a long chain has thousands of such vertices.
    """
    spec = core.inner_specs.get(stage.index)
    if spec is not None:
        return spec
    vertex, links = stage.vertex, stage.inputs
    program = vertex.program
    alone = len(links) == 1 and program.items is None and not program.params and not vertex.final
    link = links[0] if alone else None
    if link is not None and link.group and not link.gate and link.router is not None:
        only = -1 if link.router.single else link.group
        spec = TaskSpec(stage.id, stage.n, program, stage.resources[0], (), (), 0, only)
    else:
        spec = spec_of(core, stage, inner=True)
    core.inner_specs[stage.index] = spec
    return spec


def spec_of(core: Core, stage: Stage, *, inner: bool = False) -> TaskSpec:
    """Return the present record of a stage. Changes nothing."""
    vertex = stage.vertex
    program = vertex.program
    links = stage.inputs
    only = 0
    if len(links) == 1 and program.style is _FUNCTION and program.items is None and not program.params:
        link = links[0]
        if link.group and not link.gate and link.router is not None:
            only = -1 if link.router.single else link.group
    manager = stage.manager
    counted = vertex.counted or (manager is not None and manager.counts)
    measured: tuple[str, ...] = ()
    parts = 0
    outputs = stage.outputs
    for link in outputs:
        manager = link.dst.manager
        if manager is not None and manager.counts:
            counted = True
            if link.edge.movement.move is _SHUFFLE:
                measured += (link.edge.id,)
        if not link.group:  # a regular narrow edge has no partitions
            parts = max(parts, partitions_of(link))
    bare = inner and only != 0
    return TaskSpec(
        stage.id,
        stage.n,
        program,
        stage.resources[0],
        () if bare else tuple([_edge(core, link) for link in links if link.data and link.router is not None]),
        () if bare else tuple([_edge(core, link) for link in outputs if link.data]),
        parts,
        only,
        measured,
        counted,
        vertex.expands,
        bool(vertex.keep),
        vertex.kind is _SERVICE,
        vertex.timeout_s,
        _verdict(core) if vertex.final and core.verdict is not None else None,
    )


def _verdict(core: Core) -> JobVerdict:
    """Return how the vertices that are not final have ended."""
    assert core.verdict is not None
    cause = core.cause
    message = core.cancel_reason if cause is None else cause.message
    if cause is not None and cause.kind == Failure.CANCELLED.value:
        vertex, index, _ = parse_task(cause.task)
        message = f"step {_shown(core.by_id[vertex], index or 0)} was cancelled: {message}"
    failed = (
        _shown(stage, index)
        for stage in core.stages
        if not stage.vertex.final and FATAL in stage.state and not unrun(core, stage).failed
        for index in range(stage.n)
        if stage.state[index] == FATAL
    )
    return JobVerdict(core.verdict.value, message, tuple(islice(dict.fromkeys(failed), MOST_FAILED)))


def _shown(stage: Stage, index: int) -> str:
    step = stage.vertex.step or stage.id
    return loop_item(step, index) if stage.n > 1 else step


def parts_of(stage: Stage) -> int:
    """Return how many partitions the output of a stage has."""
    return max([partitions_of(link) for link in stage.outputs], default=0)


def _edge(core: Core, link: PhysicalEdge) -> EdgeSpec:
    src, dst, edge = link.src, link.dst, link.edge
    scheduling = edge.scheduling
    running = scheduling.when in WHILE_RUNNING
    streamed = edge.storage is Storage.EPHEMERAL
    router = link.router
    parts = partitions_of(link)
    settled = parts or edge.movement.move in _WHOLE or (router is not None and router.n_dst)
    return EdgeSpec(
        edge.id,
        src.id,
        src.n,
        parts_of(src),
        dst.id,
        dst.n,
        dst.depth,
        router,
        parts if settled else UNSETTLED,
        streamed,
        streamed and any(may_wait(link) for may_wait in core.hooks.writer_may_wait),
        scheduling.outcome is not Outcome.SUCCESS or running or src.status in _LEFT_OUT,
        scheduling.concurrent or (running and src.status not in ENDED),
        len(src.outputs) == 1 and link.group > 0 and not src.keep,
        link.durable,
    )


def partitions_of(link: PhysicalEdge) -> int:
    """Return how many partitions an edge has; 0 for none, or while that is not known."""
    if link.router is not None:
        return link.router.partitions
    movement = link.edge.movement
    return movement.partitions if movement.move is _SHUFFLE else 0
