"""The lifecycle of a vertex."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.engine.machines.table import Table


class VertexState(Enum):
    """The state of a vertex."""

    __hash__ = object.__hash__  # members are single objects; the default goes through Python code

    CONFIGURING = "configuring"  # its parallelism is unknown
    CONFIGURED = "configured"  # it has task rows; none has started
    RUNNING = "running"  # at least one task has started
    DRAINING = "draining"  # SERVICE: the last consumer has ended, its tasks are being stopped
    DONE = "done"  # every task finished
    DONE_EARLY = "done_early"  # its consumers need no more outputs: the rest was skipped
    SKIPPED = "skipped"  # on a branch that was not chosen, or disabled
    FAILED = "failed"  # a task is fatal, or a dependency is
    CANCELLED = "cancelled"  # cancelled before its end


_GIVE_UP = {"fatal": VertexState.FAILED, "cancelled": VertexState.CANCELLED}

VERTEX: Table[VertexState] = {
    VertexState.CONFIGURING: {
        "configured": VertexState.CONFIGURED,
        "skip": VertexState.SKIPPED,
        **_GIVE_UP,
    },
    VertexState.CONFIGURED: {
        "task_started": VertexState.RUNNING,
        "all_finished": VertexState.DONE,
        "satisfied": VertexState.DONE_EARLY,
        "skip": VertexState.SKIPPED,
        "reconfigured": VertexState.CONFIGURED,
        **_GIVE_UP,
    },
    VertexState.RUNNING: {
        "all_finished": VertexState.DONE,
        "satisfied": VertexState.DONE_EARLY,
        "consumers_ended": VertexState.DRAINING,
        **_GIVE_UP,
    },
    VertexState.DRAINING: {"drained": VertexState.DONE, "fatal": VertexState.FAILED},
    VertexState.DONE: {"output_lost": VertexState.RUNNING},
    VertexState.DONE_EARLY: {"output_lost": VertexState.RUNNING},
    VertexState.SKIPPED: {},
    VertexState.FAILED: {"output_lost": VertexState.RUNNING},
    VertexState.CANCELLED: {},
}

ENDED = frozenset(
    {
        VertexState.DONE,
        VertexState.DONE_EARLY,
        VertexState.SKIPPED,
        VertexState.FAILED,
        VertexState.CANCELLED,
    }
)
SUCCESS = frozenset({VertexState.DONE, VertexState.DONE_EARLY, VertexState.SKIPPED})
