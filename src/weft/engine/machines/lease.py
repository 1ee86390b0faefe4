"""The lifecycle of a lease: tasks of one worker, and the cause of a stop.

Two leases may have the same tasks. One of them holds the rows; the other one is a speculative attempt.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.engine.machines.table import Table


class LeaseState(Enum):
    """The state of a lease; each cause of a stop is a state of its own."""

    __hash__ = object.__hash__  # members are single objects; the default goes through Python code

    SENT = "sent"  # launched; the worker has not reported the start
    RUNNING = "running"  # the worker has reported the start, or its end counts again
    TIMED_OUT = "timed out"  # stopping: took longer than its timeout, which is a failure of the task
    RESTARTING = "restarting"  # stopping: its restart region starts again
    REVOKED = "revoked"  # stopping: its inputs are recomputed, and its tasks run after that
    RECALLED = "recalled"  # stopping: a user has cancelled one of its tasks; finished tasks count, others are put back
    SATISFIED = "satisfied"  # stopping: the consumers need no more outputs
    NARROWED = "narrowed"  # speculative, stopping: part of the work was given back by the other attempt
    OUTRUN = "outrun"  # speculative, stopping: the other attempt has committed
    CUT_OFF = "cut off"  # stopping for good: its input stream has failed
    CANCELLED = "cancelled"  # stopping for good: the job is cancelled, or is failing
    ENDED = "ended"  # its worker has reported the end, or is lost


_S = LeaseState
_GIVEN_UP = {"cancel": _S.CANCELLED, "cut_off": _S.CUT_OFF}
_NOT_WANTED = {**_GIVEN_UP, "satisfied": _S.SATISFIED}
_STOP = {
    "timeout": _S.TIMED_OUT,
    "region_restart": _S.RESTARTING,
    "inputs_lost": _S.REVOKED,
    "recalled": _S.RECALLED,
    "narrowed": _S.NARROWED,
    "outrun": _S.OUTRUN,
    **_NOT_WANTED,
}

LEASE: Table[LeaseState] = {
    _S.SENT: {"started": _S.RUNNING, **_STOP, "ended": _S.ENDED},
    _S.RUNNING: {**_STOP, "ended": _S.ENDED},
    _S.TIMED_OUT: {
        "counts": _S.RUNNING,
        "region_restart": _S.RESTARTING,
        "inputs_lost": _S.REVOKED,
        "outrun": _S.OUTRUN,
        **_NOT_WANTED,
        "ended": _S.ENDED,
    },
    _S.NARROWED: {
        "counts": _S.RUNNING,
        "inputs_lost": _S.REVOKED,
        "outrun": _S.OUTRUN,
        **_NOT_WANTED,
        "ended": _S.ENDED,
    },
    _S.RESTARTING: {**_GIVEN_UP, "ended": _S.ENDED},
    _S.REVOKED: {**_NOT_WANTED, "ended": _S.ENDED},
    _S.RECALLED: {**_NOT_WANTED, "ended": _S.ENDED},
    _S.SATISFIED: {**_GIVEN_UP, "ended": _S.ENDED},
    _S.OUTRUN: {"ended": _S.ENDED},
    _S.CUT_OFF: {"cancel": _S.CANCELLED, "ended": _S.ENDED},
    _S.CANCELLED: {"ended": _S.ENDED},
    _S.ENDED: {},
}

ACTIVE = frozenset({_S.SENT, _S.RUNNING})
"""States without an order to stop."""
GIVEN_UP = frozenset({_S.CANCELLED, _S.CUT_OFF, _S.SATISFIED, _S.REVOKED})
"""States in which neither its tasks nor those of the other attempt are needed any more."""
