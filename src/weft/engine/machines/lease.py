"""The lifecycle of a lease: tasks of one worker, and the reason why it was told to stop.

Two leases may be for the same tasks, of which one holds their rows; the other one is a speculative attempt.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.engine.machines.table import Table


class LeaseState(Enum):
    """Where a lease is; each reason to stop is a state of its own."""

    __hash__ = object.__hash__  # members are single objects; the default goes through Python code

    SENT = "sent"  # launched; the worker has not said that it began
    RUNNING = "running"  # the worker said that it began, or what it does counts again
    TIMED_OUT = "timed out"  # told to stop: took longer than its timeout, which is a failure of the task
    RESTARTING = "restarting"  # told to stop: its restart region starts again
    REVOKED = "revoked"  # told to stop: what it reads is made again, and its tasks run after that
    SATISFIED = "satisfied"  # told to stop: the consumers have all that they can use
    NARROWED = "narrowed"  # speculative, told to stop: part of the work was given back by the other attempt
    OUTRUN = "outrun"  # speculative, told to stop: the other attempt has committed
    CUT_OFF = "cut off"  # told to stop for good: the stream that it reads has failed
    CANCELLED = "cancelled"  # told to stop for good: the job is cancelled, or is failing
    ENDED = "ended"  # its worker has reported the end, or is lost


_S = LeaseState
_GIVEN_UP = {"cancel": _S.CANCELLED, "cut_off": _S.CUT_OFF}
_NOT_WANTED = {**_GIVEN_UP, "satisfied": _S.SATISFIED}
_STOP = {
    "timeout": _S.TIMED_OUT,
    "region_restart": _S.RESTARTING,
    "inputs_lost": _S.REVOKED,
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
    _S.SATISFIED: {**_GIVEN_UP, "ended": _S.ENDED},
    _S.OUTRUN: {"ended": _S.ENDED},
    _S.CUT_OFF: {"cancel": _S.CANCELLED, "ended": _S.ENDED},
    _S.CANCELLED: {"ended": _S.ENDED},
    _S.ENDED: {},
}

ACTIVE = frozenset({_S.SENT, _S.RUNNING})
"""Nobody has told it to stop."""
GIVEN_UP = frozenset({_S.CANCELLED, _S.CUT_OFF, _S.SATISFIED, _S.REVOKED})
"""Nothing is wanted of its tasks any more, nor of those of the other attempt."""
