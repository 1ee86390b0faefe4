"""The cores of a party: which parts of jobs hold how many, and which wait for some, in what order.

The order is that of the queue of the party.

- `backfill`: in which they asked, but a part that fits may overtake one that does not.
- `fifo`: in which they asked, and nobody overtakes.
- `priority`: higher ones first, else as backfill.
- `fair`: first those of the initiator whose jobs hold the fewest cores, else as backfill.

A part is overtaken at most `MOST_OVERTAKEN` times, so that nobody waits for ever.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_OVERTAKEN: Final = 20


QUEUES: Final = ("backfill", "fifo", "priority", "fair")


class CoreLease(NamedTuple):
    """A part that holds cores, or waits for them. `initiator` is the party whose job it is."""

    job: str
    part: str
    cores: int
    initiator: str = ""
    priority: int = 0


class PartyCoreLeases:
    """The accounts of all cores of a party. `queue` tells the present order, one of QUEUES."""

    def __init__(self, total: int, queue: Callable[[], str] = lambda: QUEUES[0]) -> None:
        self.total, self._queue = total, queue
        self._held: dict[tuple[str, str], CoreLease] = {}
        self._waiting: dict[tuple[str, str], CoreLease] = {}
        self._overtaken: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def take(self, lease: CoreLease) -> str:
        """Ask for cores. Return "" if the part holds or awaits them now, or why they can never be had."""
        if lease.cores > self.total:
            return f"the job needs {lease.cores} cores, and the party has {self.total}"
        with self._lock:
            if lease[:2] not in self._held:
                self._waiting.setdefault(lease[:2], lease)
        return ""

    def give_back(self, job: str, part: str) -> None:
        """Give back what a part holds, or its place in the queue."""
        with self._lock:
            self._held.pop((job, part), None)
            self._waiting.pop((job, part), None)
            self._overtaken.pop((job, part), None)

    def grant(self) -> list[CoreLease]:
        """Let waiting parts have the cores that are free; return those that have got some."""
        granted: list[CoreLease] = []
        queue = self._queue()
        with self._lock:
            while (found := self._next(queue)) is not None:
                del self._waiting[found[:2]]
                self._overtaken.pop(found[:2], None)
                self._held[found[:2]] = found
                granted.append(found)
        return granted

    def why(self, job: str, part: str) -> str:
        """Return what a part waits for; "" if it does not wait."""
        with self._lock:
            lease = self._waiting.get((job, part))
            if lease is None:
                return ""
            held = self._used()
            ahead = self._ordered(self._queue()).index(lease)
            holders = ", ".join(sorted({one for one, _ in self._held}))
            before = f"; {ahead} before it in the queue" if ahead else ""
            free = f"{self.total - held} of {self.total} are free"
            return f"needs {lease.cores} cores, {free}; held by {holders or 'none'}{before}"

    def holders(self) -> list[CoreLease]:
        """Return the parts that hold cores."""
        with self._lock:
            return list(self._held.values())

    def queue(self) -> list[CoreLease]:
        """Return the parts that wait, in order."""
        with self._lock:
            return self._ordered(self._queue())

    # ------------------------------------------------------------------------------------------------------ inside

    def _used(self) -> int:
        return sum(one.cores for one in self._held.values())

    def _ordered(self, queue: str) -> list[CoreLease]:
        waiting = list(self._waiting.values())
        if queue == "priority":
            return sorted(waiting, key=lambda one: -one.priority)
        if queue == "fair":
            used: dict[str, int] = {}
            for one in self._held.values():
                used[one.initiator] = used.get(one.initiator, 0) + one.cores
            return sorted(waiting, key=lambda one: used.get(one.initiator, 0))
        return waiting

    def _next(self, queue: str) -> CoreLease | None:
        """Return the part that gets cores now, and count for those in front that it has overtaken them."""
        free = self.total - self._used()
        passed: list[tuple[str, str]] = []
        for one in self._ordered(queue):
            if one.cores <= free:
                for other in passed:
                    self._overtaken[other] = self._overtaken.get(other, 0) + 1
                return one
            passed.append(one[:2])
            if queue == "fifo" or self._overtaken.get(one[:2], 0) >= MOST_OVERTAKEN:
                break
        return None
