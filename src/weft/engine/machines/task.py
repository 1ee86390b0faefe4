"""The lifecycle of a task, compiled for rows in arrays.

Task states are bytes in one table for the whole job; a vertex is a range of its rows. A transition of a range is a
slice write after one count, so that a lease of a thousand tasks costs as much as a lease of one. The table below is the
source of the diagrams; `COMPOSITES` are paths through it that the hot path takes in one write, checked against the
table when this module is imported.
"""

from __future__ import annotations

import itertools
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.engine.machines.table import Table


class TaskState(IntEnum):
    """The state of a task; the byte in the table."""

    UNSCHEDULED = 0  # a dependency is missing
    READY = 1  # may be leased
    PROBING = 2  # a cache is being probed; holds no slot and no quota
    LEASED = 3  # leased to a worker
    RUNNING = 4  # the worker has reported the start
    COMMITTING = 5  # its output is being made final
    FINISHED = 6  # its output can be read
    FREED = 7  # finished, and the output was dropped because no consumer needs it
    FATAL = 8  # failed for good, or cannot run because a dependency failed
    CANCELLING = 9  # ordered to stop
    CANCELLED = 10  # stopped, or never started
    SKIPPED = 11  # not chosen; counts as success
    LOST = 12  # finished, but the output is lost


_S = TaskState
TASK: Table[TaskState] = {
    _S.UNSCHEDULED: {
        "inputs_ready": _S.READY,
        "given": _S.FINISHED,
        "upstream_fatal": _S.FATAL,
        "cancel": _S.CANCELLED,
        "skip": _S.SKIPPED,
    },
    _S.READY: {
        "leased": _S.LEASED,
        "probe": _S.PROBING,
        "inputs_lost": _S.UNSCHEDULED,
        "held": _S.UNSCHEDULED,  # the controller takes back its start
        "upstream_fatal": _S.FATAL,
        "cancel": _S.CANCELLED,
        "skip": _S.SKIPPED,
    },
    _S.PROBING: {
        "hit": _S.FINISHED,
        "miss": _S.READY,
        "inputs_lost": _S.UNSCHEDULED,
        "upstream_fatal": _S.FATAL,
        "cancel": _S.CANCELLED,
        "skip": _S.SKIPPED,
    },
    _S.LEASED: {
        "started": _S.RUNNING,
        "put_back": _S.UNSCHEDULED,  # given back, or lost with its worker or its inputs; ready at once if possible
        "cancel": _S.CANCELLING,
        "satisfied": _S.SKIPPED,
    },
    _S.RUNNING: {
        "output_written": _S.COMMITTING,
        "put_back": _S.UNSCHEDULED,
        "fatal": _S.FATAL,
        "cancel": _S.CANCELLING,
        "satisfied": _S.SKIPPED,
    },
    _S.COMMITTING: {"committed": _S.FINISHED},
    _S.FINISHED: {"free": _S.FREED, "output_lost": _S.LOST, "start_again": _S.UNSCHEDULED},  # by the controller
    _S.FREED: {"needed_again": _S.LOST},
    _S.LOST: {"remake": _S.UNSCHEDULED, "not_wanted": _S.FREED},
    _S.CANCELLING: {"stopped": _S.CANCELLED, "cut_off": _S.FATAL},
    _S.FATAL: {"start_again": _S.UNSCHEDULED},
    _S.CANCELLED: {"start_again": _S.UNSCHEDULED},
    _S.SKIPPED: {},
}

COMPOSITES: dict[str, tuple[TaskState, ...]] = {
    "ready": (_S.UNSCHEDULED, _S.READY),
    "lease": (_S.READY, _S.LEASED),
    "lease_inner": (_S.UNSCHEDULED, _S.READY, _S.LEASED),
    "start": (_S.LEASED, _S.RUNNING),
    "finish": (_S.LEASED, _S.RUNNING, _S.COMMITTING, _S.FINISHED),
    "finish_inner": (_S.LEASED, _S.RUNNING, _S.COMMITTING, _S.FINISHED, _S.FREED),
    "finish_started": (_S.RUNNING, _S.COMMITTING, _S.FINISHED),
    "finish_started_inner": (_S.RUNNING, _S.COMMITTING, _S.FINISHED, _S.FREED),
    "free": (_S.FINISHED, _S.FREED),
    "put_back": (_S.LEASED, _S.UNSCHEDULED, _S.READY),
    "put_back_started": (_S.RUNNING, _S.UNSCHEDULED, _S.READY),
    "fatal": (_S.LEASED, _S.RUNNING, _S.FATAL),
    "fatal_started": (_S.RUNNING, _S.FATAL),
    "lose": (_S.FINISHED, _S.LOST, _S.UNSCHEDULED),
    "lose_unwanted": (_S.FINISHED, _S.LOST, _S.FREED),
    "lose_freed": (_S.FREED, _S.LOST, _S.UNSCHEDULED),
}
"""Paths taken in one write: name to the states from first to last."""


def check_composites() -> None:
    """Check that composite paths use only arcs of the table. AssertionError: a path has another arc."""
    for name, path in COMPOSITES.items():
        for here, there in itertools.pairwise(path):
            if there not in TASK[here].values():
                raise AssertionError(f"composite {name!r}: the table has no arc {here.name} -> {there.name}")


check_composites()

LIVE = frozenset({_S.LEASED, _S.RUNNING, _S.COMMITTING, _S.CANCELLING})
"""States in which the task occupies a worker."""
ENDED = frozenset({_S.FINISHED, _S.FREED, _S.FATAL, _S.CANCELLED, _S.SKIPPED})
