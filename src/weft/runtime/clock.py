"""The only place that reads a clock."""

from __future__ import annotations

import time
from typing import Protocol


class WallClock(Protocol):
    """Seconds since 1970-01-01 UTC."""

    def wall(self) -> float:
        """Return the time in seconds."""
        ...


class RealClock:
    """Monotonic seconds of this machine."""

    def now(self) -> float:
        """Return seconds since an arbitrary moment; never goes back."""
        return time.monotonic()

    def wall(self) -> float:
        """Return seconds since 1970-01-01 UTC, for display."""
        return time.time()


class ResumedClock(RealClock):
    """A clock that continues from `at` (seconds on the clock of an earlier process); time never goes back for a job."""

    def __init__(self, at: float = 0.0) -> None:
        self._ahead = 0.0
        self.reach(at)

    def reach(self, at: float) -> None:
        """Continue from `at`, unless the clock is later already."""
        self._ahead += max(0.0, at - self.now())

    def now(self) -> float:
        """Return seconds since an arbitrary moment; never goes back."""
        return time.monotonic() + self._ahead
