"""The tasks of a restarted job that need not run again: a pure function of its state and of the stored outputs.

Vertex managers decide anew after a restart; so all tasks of their vertices run again, since their number may change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from weft.engine.machines.vertex import VertexState
from weft.engine.rows import FINISHED, FREED
from weft.graph.logical import SameAs, Source, VertexKind

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.physical import PhysicalEdge, Stage

Tasks = dict[str, set[int]]
"""Tasks by vertex."""


def restorable(
    core: Core, has: Callable[[str], Collection[int]], answered: Collection[str], *, known: bool = True
) -> tuple[Tasks, Tasks]:
    """Return the tasks that need not run again, and finished tasks that must run again because their outputs are lost.

    `core` is the state left by an earlier process, `has` returns which outputs of a vertex exist, `answered` are
    expanders with known answers. A task without an output need not run again if it had finished and no task that will
    run reads its output. For a new core (not `known`), a task with consumers counts as finished if all of these have.
    """
    fixed = _fixed(core, answered)
    whole = {stage.index for region in core.regions for stage in region if not all(map(_over, region))}
    runs: Tasks = {}
    gone: Tasks = {}
    back: Tasks = {}
    for stage in reversed(core.order):
        n = max(stage.n, 0)
        if known:
            done = {i for i in range(n) if stage.state[i] in (FINISHED, FREED)}
        else:
            done = set(range(n)) if any(link.data for link in stage.outputs) else set(has(stage.id))
        if stage.id in answered or stage.status is VertexState.SKIPPED:
            continue
        anew = stage.vertex.kind is VertexKind.SERVICE or stage.vertex.final
        if stage.id not in fixed or stage.index in whole or anew:
            runs[stage.id] = set(range(n)) or {0}
            continue
        there = set(has(stage.id)) & done
        lost = done - there
        if lost:
            wanted = lost if stage.keep else _read(stage, lost, runs)
            if wanted and known:
                gone[stage.id] = wanted
            there |= lost - wanted
        back[stage.id] = there
        again = set(range(n)) - there
        if again or stage.n < 0:
            runs[stage.id] = again or {0}
    return {vertex: tasks for vertex, tasks in back.items() if tasks}, gone


def _over(stage: Stage) -> bool:
    return stage.n >= 0 and all(state in (FINISHED, FREED) for state in stage.state)


def _read(stage: Stage, tasks: set[int], runs: Tasks) -> set[int]:
    """Return which of these tasks are read by tasks that will run."""
    wanted: set[int] = set()
    for link in stage.outputs:
        if link.data and link.dst.id in runs:
            wanted |= _read_through(link, tasks, runs[link.dst.id])
    return wanted


def _read_through(link: PhysicalEdge, tasks: set[int], readers: set[int]) -> set[int]:
    router = link.router
    if router is None or link.wide or link.dst.manager is not None:
        return tasks
    return {i for i in tasks if any(d in readers for a, b in router.consumers(i) for d in range(a, b))}


def _fixed(core: Core, answered: Collection[str]) -> set[str]:
    """Return the vertices that keep their number of tasks and their inputs after a restart of the job."""
    fixed: set[str] = set()
    planned = {vertex.id for vertex in core.submitted.vertices}
    for stage in core.order:
        width = stage.vertex.parallelism
        same = (
            stage.manager is None
            and stage.control is None
            and (
                isinstance(width, int)
                or (isinstance(width, Source) and width.expander in answered)
                or (isinstance(width, SameAs) and width.vertex in fixed)
            )
        )
        if same and (stage.id in planned or any(stage.id.startswith(f"{expander}/") for expander in answered)):
            fixed.add(stage.id)
    return fixed
