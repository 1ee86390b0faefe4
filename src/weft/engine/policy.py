"""Policies as the master knows them: pure functions from a view to decisions.

A `VertexManager` decides for one vertex. It is asked when one of its `moments` has come, sees a `View`, and answers
with decisions and a memo, which it is given back the next time. It reads no clock, waits for nothing and changes
nothing: the master validates what it answers, journals it and applies it. A decision that is not allowed is rejected,
noted in the story of the vertex, and the job goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from weft.engine.machines.vertex import ENDED
from weft.model.errors import GraphError, WeftError

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.decisions import Decision
    from weft.engine.physical import Stage


class Moment(Enum):
    """When a manager is asked."""

    STARTED = "started"  # once, when the job begins or the vertex is added
    SOURCE_ENDED = "source_ended"  # a vertex that it reads, or waits for, has ended
    FINISHED = "finished"  # tasks of its own have finished
    EVENT = "event"  # a vertex that it reads, or waits for, has emitted a user event


class InputView(NamedTuple):
    """One input edge: its source, how far that is, what it wrote for each partition (bytes; None if not counted)."""

    edge: str
    source: str
    n: int
    finished: int
    ended: bool
    partitions: int
    sizes: Sequence[int] | None
    rows: int


class View(NamedTuple):
    """All that a manager may see. `events` are the payloads of user events, by (vertex, name), in order of arrival."""

    now: float
    vertex: str
    state: str
    n: int
    finished: int
    executing: int
    released: int
    rows: int
    workers: int
    inputs: tuple[InputView, ...]
    events: Mapping[tuple[str, str], Sequence[Any]]


class VertexManager(Protocol):
    """Decides for one vertex. `holds`: none of its tasks starts before `Schedule` lets it; `counts`: it looks at
    sizes or rows, which are counted only for those who do.
    """

    moments: frozenset[Moment]
    holds: bool
    counts: bool

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Return decisions (none: nothing to say now) and the memo for next time."""
        ...


class ManagerFactory(Protocol):
    """Makes a manager from the parameters in the graph; raises GraphError for wrong ones."""

    def __call__(self, **params: Any) -> VertexManager:
        """Make one."""
        ...


def install(core: Core, stages: Sequence[Stage]) -> None:
    """Make the managers of new stages and tell their sources who listens."""
    for stage in stages:
        wanted = stage.vertex.manager
        if wanted is None:
            continue
        factory = core.managers.get(wanted.name)
        if factory is None:
            raise GraphError(
                f"vertex {stage.id!r} has the manager {wanted.name!r}, and there is none of that name",
                subject=stage.id,
                rule="manager",
                hint=f"There are: {', '.join(sorted(core.managers)) or 'none'}.",
            )
        try:
            stage.manager = factory(**wanted.params)
        except TypeError as error:
            raise GraphError(
                f"the manager {wanted.name!r} of vertex {stage.id!r} does not take these parameters: {error}",
                subject=stage.id,
                rule="manager",
            ) from None
        if stage.manager.holds:
            stage.released = 0
        stage.listeners += (stage.index,)
        for link in stage.inputs:
            link.src.listeners += (stage.index,)
        tell(core, stage, Moment.STARTED)


def tell(core: Core, stage: Stage, moment: Moment) -> None:
    """Something happened to a stage: remember which managers want to be asked."""
    for index in stage.listeners:
        listener = core.stages[index]
        own = listener is stage
        manager = listener.manager
        if manager is not None and moment in manager.moments and own == (moment in (Moment.STARTED, Moment.FINISHED)):
            core.dirty.add(index)


def consult(core: Core) -> None:
    """Ask each manager that something happened to, in the order of the graph, and apply what it answers."""
    from weft.engine.patching import apply

    while core.dirty:
        index = min(core.dirty)
        core.dirty.discard(index)
        stage = core.stages[index]
        manager = stage.manager
        if manager is None or stage.status in ENDED:
            continue
        decisions, stage.memo = manager.decide(view_of(core, stage), stage.memo)
        for decision in decisions:
            core.note(stage.id, f"its manager decides: {decision}")
            try:
                apply(core, decision)
            except WeftError as error:
                core.note(stage.id, f"rejected: {error.message}")


def view_of(core: Core, stage: Stage) -> View:
    """Take the picture that a manager sees."""
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
    )
