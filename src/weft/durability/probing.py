"""The graph and the answers of a restarted run, whose finished tasks are probed before they run.

A run is restarted, instead of replayed, when it failed or was cancelled, or when its journal cannot be read. Then only
complete outputs and the answers of expanders count (`engine.restorable`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.engine.decisions import ApplyPatch
from weft.graph.logical import Patch
from weft.graph.wire import patch_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.graph.logical import LogicalGraph

RESTORED: Final = "restored"
"""The cache key of tasks that had finished before: the loop answers their probes."""


def probed(graph: LogicalGraph, vertices: Iterable[str]) -> LogicalGraph:
    """Return a copy of the graph in which tasks of `vertices` are probed before they run; unknown ids are ignored."""
    changed = {id: replace(graph.vertices[id], cache_key=RESTORED) for id in vertices if id in graph.vertices}
    found = graph.copy()
    found.vertices |= changed
    return found


def probed_answers(values: Sequence[Any], vertices: Collection[str]) -> list[Any]:
    """Return the answers of an expander, with the named vertices of its patches probed."""
    return [_probed_answer(value, vertices) for value in values]


def _probed_answer(value: Any, vertices: Collection[str]) -> Any:
    if isinstance(value, dict) and "weft" in value:
        value = patch_from_json(value)
    if isinstance(value, Patch):
        mine = tuple(replace(v, cache_key=RESTORED) if v.id in vertices else v for v in value.vertices)
        return replace(value, vertices=mine)
    if isinstance(value, ApplyPatch):
        return replace(value, patch=_probed_answer(value.patch, vertices))
    if type(value) in (list, tuple) and any(isinstance(one, ApplyPatch) for one in value):
        return [_probed_answer(one, vertices) for one in value]
    return value
