"""The next read of an output, in the order in which dispatch leases tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from weft.engine.machines.task import TaskState
from weft.engine.machines.vertex import ENDED

if TYPE_CHECKING:
    from weft.engine.physical import PhysicalEdge, Stage

NEVER: Final = float("inf")
"""No known task will read the output: it is only kept."""

LATER: Final = 1e7
"""The surcharge for a reader that also waits for other inputs: more than any depth, so that runnable tasks come
first.
"""

_DONE: Final = frozenset(
    int(state)
    for state in (TaskState.FINISHED, TaskState.FREED, TaskState.FATAL, TaskState.CANCELLED, TaskState.SKIPPED)
)


Passed = Callable[[str], Sequence[tuple[int, int]]]
"""The tasks `lo:hi` of a vertex that running leases have finished and not reported."""


def next_use(stage: Stage, passed: Passed, index: int) -> float:
    """Return the priority of the next task that will read an output, lower is sooner; NEVER without a reader.

    The number is the order of dispatch, deeper vertices first, then tasks of smaller relative position, and LATER more
    where the task also waits for unmade outputs. Safe to call while the master runs; the result may then be slightly
    outdated.
    """
    return min((_next_reader(link, passed, index) for link in stage.outputs if link.data), default=NEVER)


def _next_reader(link: PhysicalEdge, passed: Passed, index: int) -> float:
    dst, router = link.dst, link.router
    if dst.status in ENDED:
        return NEVER
    if router is None or dst.n < 1:
        return float(-dst.depth - dst.lead)
    done = passed(dst.id) if dst.executing else ()
    if router.wide:  # every task reads it: the next task of the stage counts
        next_one = (dst.over + sum(hi - lo for lo, hi in done)) / dst.n - dst.depth - dst.lead
        return next_one + (LATER if _shut(link) else 0.0)
    for first, last in router.consumers(index):
        for reader in range(first, last):
            if dst.state[reader] not in _DONE and not any(lo <= reader < hi for lo, hi in done):
                late = LATER if _shut(link) or _lacks(link, reader) else 0.0
                return reader / dst.n - dst.depth - dst.lead + late
    return NEVER


def _shut(known: PhysicalEdge) -> bool:
    """Return whether stages other than the given one prevent all tasks of a stage from starting."""
    return any(link.gate and not link.opened for link in known.dst.inputs if link is not known)


def _lacks(known: PhysicalEdge, reader: int) -> bool:
    """Return whether a task reads an unmade output of a stage other than the given one."""
    return any(
        link.src.state[source] not in _DONE
        for link in known.dst.inputs
        if link is not known and not link.gate and link.router is not None
        for piece in link.router.inputs(reader)
        for source in range(piece[0], piece[1])
    )
