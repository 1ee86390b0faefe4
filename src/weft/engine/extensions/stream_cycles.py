"""Detection of streams where back-pressure could deadlock a bubble, so that the stream has to spill instead.

A writer waits for its reader to take a value; a reader waits for the next writer in its order. Tasks wait for one
another in a circle only along an undirected cycle of *tasks*. Vertices with several tasks have more such cycles than
the graph of vertices shows: two successive shuffles join all tasks with all. The rule is conservative: a writer may
wait only if no circle can close through its edge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.engine.core import Hooks
from weft.engine.extensions.registry import Extension
from weft.graph.logical import Storage

if TYPE_CHECKING:
    from weft.engine.physical import PhysicalEdge, Stage


def may_wait(link: PhysicalEdge) -> bool:
    """Return whether the writers of a stream may wait for its readers; False: values without room are spilled.

    Removing the edge leaves two sides, unless the edge lies on a cycle of vertices. A circle of waiting tasks through
    the edge has to turn round on both sides: at a task with several neighbours along one edge. Turns at the two ends of
    the same edge are harmless, since every reader takes its sources in the same order.
    """
    here, links_here = _side(link, link.src)
    if link.dst.index in here:
        return False
    _, links_there = _side(link, link.dst)
    ours, theirs = _turns(link)
    behind = any(any(_turns(other)) for other in links_here)
    ahead = any(any(_turns(other)) for other in links_there)
    return not ((behind and (ahead or theirs)) or (ours and ahead))


def _side(link: PhysicalEdge, start: Stage) -> tuple[set[int], set[PhysicalEdge]]:
    """Return the vertices that are joined to `start` without `link`, and the links that join them."""
    seen = {start.index}
    links: set[PhysicalEdge] = set()
    waiting = [start]
    while waiting:
        stage = waiting.pop()
        for other in (*stage.inputs, *stage.outputs):
            if other is link or not _together(other):
                continue
            links.add(other)
            for end in (other.src, other.dst):
                if end.index not in seen:
                    seen.add(end.index)
                    waiting.append(end)
    return seen, links


def _together(link: PhysicalEdge) -> bool:
    """Return whether both ends of a link may run, or wait for one another, at the same time."""
    return link.edge.storage is Storage.EPHEMERAL or 0 <= link.src.bubble == link.dst.bubble


def _turns(link: PhysicalEdge) -> tuple[bool, bool]:
    """Return whether a source task has several readers, and whether a destination task has several sources."""
    router = link.router
    if router is not None and router.group:
        return False, router.group > 1
    return link.dst.n > 1, link.src.n > 1


EXTENSION: Final = Extension("stream_cycles", hooks=Hooks(writer_may_wait=(may_wait,)))
