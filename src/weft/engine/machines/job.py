"""The lifecycle of a job."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.engine.machines.table import Table


class JobState(Enum):
    """The state of a job."""

    __hash__ = object.__hash__  # members are single objects; the default goes through Python code

    NEW = "new"  # accepted, not set up
    RUNNING = "running"  # tasks may start
    FAILING = "failing"  # a task is fatal and the graph says fail_fast: no task starts, running ones are being stopped
    CANCELLING = "cancelling"  # cancelled by the user: no task starts, running ones are being cancelled
    CONCLUDING = "concluding"  # its controller has decided the outcome: no task starts, running ones are being stopped
    ENDING = "ending"  # all but the final vertices have ended, in any way; the final ones run
    SUCCEEDED = "succeeded"  # every vertex done or skipped
    FAILED = "failed"  # some task was fatal, no task runs any more
    CANCELLED = "cancelled"  # cancelled by the user, no task runs any more


JOB: Table[JobState] = {
    JobState.NEW: {"started": JobState.RUNNING, "cancel": JobState.CANCELLED},
    JobState.RUNNING: {
        "all_ended": JobState.SUCCEEDED,
        "ended_with_failures": JobState.FAILED,
        "task_fatal": JobState.FAILING,
        "cancel": JobState.CANCELLING,
        "concluded": JobState.CONCLUDING,
        "finally": JobState.ENDING,
    },
    JobState.FAILING: {"quiet": JobState.FAILED, "cancel": JobState.CANCELLING, "finally": JobState.ENDING},
    JobState.CANCELLING: {
        "quiet": JobState.CANCELLED,
        "ended_with_failures": JobState.FAILED,
        "finally": JobState.ENDING,
    },
    JobState.CONCLUDING: {
        "all_ended": JobState.SUCCEEDED,
        "ended_with_failures": JobState.FAILED,
        "quiet": JobState.CANCELLED,
        "finally": JobState.ENDING,
    },
    JobState.ENDING: {
        "all_ended": JobState.SUCCEEDED,
        "ended_with_failures": JobState.FAILED,
        "quiet": JobState.CANCELLED,
        "cancel": JobState.CANCELLING,
    },
    JobState.SUCCEEDED: {},
    JobState.FAILED: {},
    JobState.CANCELLED: {},
}

GOING = frozenset({JobState.RUNNING, JobState.ENDING})
"""States in which tasks may start."""
OVER = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
