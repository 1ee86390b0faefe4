"""The state of a master, which nothing but the engine and tests may hold: for checks of what an `Inspector` hides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.engine.invariants import check

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.ports import Job


def core_of(job: Job) -> Core:
    """Return the state of a job's master. Do not change it."""
    return job.inspector._core


def check_job(job: Job) -> None:
    """AssertionError: an invariant of the engine does not hold for a job."""
    check(core_of(job))
