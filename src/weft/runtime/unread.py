"""Failures of runs that nobody has read, told once, as asyncio tells those of its tasks.

A run that was submitted is told when the last reference to its `Run` goes, or at the end of the process. The thread
that drops runs may be any: where a filter makes the warning an error there, whoever ends the session gets it.
"""

from __future__ import annotations

import atexit
import os
import warnings
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from weft.runtime.job import JobRun


def is_unread(job: JobRun) -> bool:
    """Return whether a run has failed and nobody has read its error."""
    return job.unread and job.outcome is not None and job.outcome.state == "failed"


def tell_unread(job: JobRun) -> None:
    """Issue a RuntimeWarning if a run has failed and nobody has read its error; only once."""
    outcome = job.outcome
    if outcome is None or not is_unread(job):
        return
    job.unread = False
    at = f" at {outcome.task}" if outcome.task else ""
    line = outcome.message.partition("\n")[0]
    warnings.warn(f"the run {job.id} failed{at}, and nobody has read its error: {line}", RuntimeWarning, stacklevel=2)


_held: Final[WeakSet[JobRun]] = WeakSet()
"""Jobs of closed sessions whose runs the program still holds, and may read."""


def tell_at_exit(job: JobRun) -> None:
    """Have a job be told at the end of the process, unless its error is read before."""
    _held.add(job)


@atexit.register
def _tell_held() -> None:
    for job in list(_held):
        tell_unread(job)


os.register_at_fork(after_in_child=_held.clear)  # the parent tells them
