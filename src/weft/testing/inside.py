"""The state of a master, reserved to the engine and tests: for checks of facts that an `Inspector` hides."""

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
    """Check the invariants of the engine for a job. AssertionError: one does not hold."""
    check(core_of(job))
