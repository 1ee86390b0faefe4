"""The only place that reads a clock."""

from __future__ import annotations

import time


class RealClock:
    """Monotonic seconds of this machine."""

    def now(self) -> float:
        """Return seconds since an arbitrary moment; never goes back."""
        return time.monotonic()

    def wall(self) -> float:
        """Return seconds since 1970-01-01 UTC, for what people read."""
        return time.time()


class ManualClock:
    """A clock that stands still until it is told to go on: for tests and the simulator."""

    def __init__(self, start: float = 0.0) -> None:
        self.time = start

    def now(self) -> float:
        """Return the time it was set to."""
        return self.time

    def wall(self) -> float:
        """Return the same: there is no other time here."""
        return self.time

    def advance(self, seconds: float) -> None:
        """Go on by `seconds`."""
        self.time += seconds
