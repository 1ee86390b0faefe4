"""The graph and the answers of a run that begins again, whose finished tasks ask before they run.

A run begins again, instead of being replayed, when it has failed or was cancelled, or when its journal cannot be read.
What counts then are facts: outputs that are complete, and what expanders have answered (`engine.restorable`).
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
"""The cache key of tasks that had finished before: the loop answers for them."""


def asking(graph: LogicalGraph, vertices: Iterable[str]) -> LogicalGraph:
    """Return a graph of its own in which the tasks of these vertices ask before they run; others are passed over."""
    changed = {id: replace(graph.vertices[id], cache_key=RESTORED) for id in vertices if id in graph.vertices}
    found = graph.copy()
    found.vertices |= changed
    return found


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
