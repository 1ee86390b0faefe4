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
