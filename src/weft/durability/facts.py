"""Which tasks of a run that begins again need not run again: pure functions of a core and of what lies in files.

A run begins again, instead of being replayed, when it has failed or was cancelled, or when its journal cannot be read.
What counts then are facts: outputs that are complete, and what expanders have answered. Whatever a vertex manager had
decided, it decides again; so the tasks of such a vertex run again, since their number may be another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.engine.decisions import ApplyPatch
from weft.engine.rows import FINISHED, FREED
from weft.graph.logical import Kind, Patch, SameAs, Source
from weft.graph.wire import patch_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.engine.core import Core
    from weft.engine.physical import Link, Stage
    from weft.graph.logical import LogicalGraph

RESTORED: Final = "restored"
"""The cache key of tasks that had finished before: the loop answers for them."""
_SKIPPED: Final = "skipped"

Tasks = dict[str, set[int]]
"""Tasks by vertex."""


def asking(graph: LogicalGraph, vertices: Iterable[str]) -> LogicalGraph:
    """Return a graph of its own in which the tasks of these vertices ask before they run; others are passed over."""
    changed = {id: replace(graph.vertices[id], cache_key=RESTORED) for id in vertices if id in graph.vertices}
    found = graph.copy()
    found.vertices |= changed
    return found


def restorable(
    core: Core, has: Callable[[str], Collection[int]], answered: Collection[str], *, known: bool = True
) -> tuple[Tasks, Tasks]:
    """Return the tasks that need not run again, and those that must though they had finished: their outputs are gone.

    `core` is as an earlier process left it, `has` says of which tasks of a vertex the outputs are there, `answered`
    are expanders whose answers are known. A task without an output need not run again if it had finished and no task
    that will run reads what it has made. Where the core is a new one (not `known`), a task that others read counts as
    finished if all of these have.
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
        if stage.id in answered or stage.status.value == _SKIPPED:
            continue
        if stage.id not in fixed or stage.index in whole or stage.vertex.kind is Kind.SERVICE:
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
    """Return which of these tasks are read by some that will run."""
    wanted: set[int] = set()
    for link in stage.outputs:
        if link.data and link.dst.id in runs:
            wanted |= _read_through(link, tasks, runs[link.dst.id])
    return wanted


def _read_through(link: Link, tasks: set[int], readers: set[int]) -> set[int]:
    router = link.router
    if router is None or link.wide or link.dst.manager is not None:
        return tasks
    return {i for i in tasks if any(d in readers for a, b in router.consumers(i) for d in range(a, b))}


def _fixed(core: Core, answered: Collection[str]) -> set[str]:
    """Return the vertices that will have the same number of tasks, reading the same, when the job begins again."""
    fixed: set[str] = set()
    planned = {vertex.id for vertex in core.planned.vertices}
    for stage in core.order:
        width = stage.vertex.parallelism
        same = stage.manager is None and (
            isinstance(width, int)
            or (isinstance(width, Source) and width.expander in answered)
            or (isinstance(width, SameAs) and width.vertex in fixed)
        )
        if same and (stage.id in planned or any(stage.id.startswith(f"{expander}/") for expander in answered)):
            fixed.add(stage.id)
    return fixed


def answers_asking(values: Sequence[Any], vertices: Collection[str]) -> list[Any]:
    """Return the answers of an expander with those vertices of its patches asking that are named."""
    return [_asking(value, vertices) for value in values]


def _asking(value: Any, vertices: Collection[str]) -> Any:
    if isinstance(value, dict) and "weft" in value:
        value = patch_from_json(value)
    if isinstance(value, Patch):
        mine = tuple(replace(v, cache_key=RESTORED) if v.id in vertices else v for v in value.vertices)
        return replace(value, vertices=mine)
    if isinstance(value, ApplyPatch):
        return value._replace(patch=_asking(value.patch, vertices))
    if type(value) in (list, tuple) and any(isinstance(one, ApplyPatch) for one in value):
        return [_asking(one, vertices) for one in value]
    return value
