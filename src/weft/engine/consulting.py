"""Calls of vertex managers: which managers listen to which stages, their views, and the handling of their decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from weft.engine.decisions import Fail, SetParallelism
from weft.engine.machines.vertex import ENDED, VertexState
from weft.engine.notes import NoteKind, data_of, figures_of
from weft.engine.policy import InputView, Moment, View
from weft.engine.rows import FINISHED, FREED
from weft.graph.logical import Range, VertexKind
from weft.model.errors import GraphError, WeftError

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.decisions import Decision
    from weft.engine.physical import Stage
    from weft.engine.policy import ManagerFactory, VertexManager
    from weft.graph.logical import Vertex


def make(managers: Mapping[str, ManagerFactory], vertex: Vertex) -> VertexManager:
    """Make the manager of a vertex. GraphError: no manager has that name, or its parameters are wrong."""
    wanted = vertex.manager
    assert wanted is not None
    factory = managers.get(wanted.name)
    if factory is None:
        raise GraphError(
            f"vertex {vertex.id!r} has the unknown manager {wanted.name!r}",
            subject=vertex.id,
            rule="manager",
            hint=f"Registered managers: {', '.join(sorted(managers)) or 'none'}.",
        )
    try:
        return factory(**wanted.params)
    except TypeError:
        from inspect import signature

        raise GraphError(
            f"the manager {wanted.name!r} of vertex {vertex.id!r} does not take these parameters: {wanted.params!r} "
            f"were given, of {signature(factory)}",
            subject=vertex.id,
            rule="manager",
        ) from None


def install(core: Core, stages: Sequence[Stage]) -> None:
    """Make the managers of new stages and register them with their sources."""
    for stage in stages:
        if stage.vertex.manager is None:
            continue
        stage.manager = make(core.managers, stage.vertex)
        if stage.manager.holds:
            stage.released = 0
        stage.listeners += (stage.index,)
        for link in stage.inputs:
            link.src.listeners += (stage.index,)
        core.tell(stage, Moment.STARTED)


def consult(core: Core, apply: Callable[[Core, Decision], None]) -> None:
    """Call the manager of each dirty vertex in graph order, and `apply` its decisions."""
    while core.dirty:
        index = min(core.dirty)
        core.dirty.discard(index)
        stage = core.stages[index]
        manager = stage.manager
        if manager is None:
            continue
        view = view_of(core, stage)
        try:
            decisions, stage.memo = manager.decide(view, stage.memo)
        except WeftError as error:
            core.note(stage.id, NoteKind.MANAGER_FAILED, error.message)
            decisions = (Fail(stage.id, error.message),)
        seen = figures_of(view) if decisions else {}
        for decision in decisions:
            core.note(stage.id, NoteKind.MANAGER_DECIDED, data_of(decision, stage.id), seen)
            try:
                core.claim(f"the manager of {stage.id}", decision)
                apply(core, decision)
            except WeftError as error:
                core.note(stage.id, NoteKind.DECISION_REJECTED, error.message)
        finite = [link.src for link in stage.inputs if link.src.vertex.kind is VertexKind.FINITE]
        if stage.status is VertexState.CONFIGURING and all(src.status in ENDED for src in finite):
            width = stage.vertex.parallelism
            if isinstance(width, Range):
                core.note(stage.id, NoteKind.MANAGER_SILENT, width.hi)
                apply(core, SetParallelism(stage.id, width.hi))


def _bytes_of(stage: Stage) -> int:
    """Return the bytes that a stage wrote, -1 unless each of its tasks was counted."""
    counted = stage.counted.count(1) if stage.counted is not None else 0
    return stage.written if counted == stage.n else -1


def view_of(core: Core, stage: Stage) -> View:
    """Return the view of a manager."""
    inputs = tuple(
        InputView(
            link.edge.id,
            link.src.id,
            link.src.n,
            link.src.finished,
            link.src.status in ENDED,
            link.edge.movement.partitions or (link.router.partitions if link.router is not None else 0),
            core.stats.get(link.edge.id),
            link.src.rows,
            _bytes_of(link.src),
        )
        for link in stage.inputs
    )
    return View(
        core.now,
        stage.id,
        stage.status.value,
        stage.n,
        stage.finished,
        stage.executing,
        stage.released if stage.released >= 0 else stage.n,
        stage.rows,
        len(core.workers),
        inputs,
        core.payloads,
        stage.vertex.program.items,
        stage.over,
        _lost(stage),
    )


_THERE = bytes(state in (FINISHED, FREED) for state in range(256))


def _lost(stage: Stage) -> int:
    if stage.counted is None:
        return 0
    there = int.from_bytes(stage.state.translate(_THERE))
    return (int.from_bytes(stage.counted) & ~there).bit_count()
