"""The cores of a party: which parts of jobs hold how many, and which wait for some, in what order.

Parts wait in the order in which they asked. A part that fits may overtake one that does not, but only as long as the
one in front has been overtaken fewer than `MOST_OVERTAKEN` times, so that nobody waits for ever.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

MOST_OVERTAKEN: Final = 20


class CoreLease(NamedTuple):
    """A part that holds cores, or waits for them."""

    job: str
    part: str
    cores: int


class PartyCoreLeases:
    """The accounts of all cores of a party."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._held: dict[tuple[str, str], int] = {}
        self._waiting: dict[tuple[str, str], int] = {}
        self._overtaken: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def take(self, job: str, part: str, cores: int) -> str:
        """Ask for cores. Return "" if the part holds them now, or why they can never be had."""
        if cores > self.total:
            return f"the job needs {cores} cores, and the party has {self.total}"
        with self._lock:
            if (job, part) not in self._held:
                self._waiting.setdefault((job, part), cores)
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
        with self._lock:
            free = self.total - sum(self._held.values())
            passed: list[tuple[str, str]] = []
            for key, cores in list(self._waiting.items()):
                if cores > free:
                    passed.append(key)
                    if self._overtaken.get(key, 0) >= MOST_OVERTAKEN:
                        break
                    continue
                del self._waiting[key]
                self._held[key] = cores
                free -= cores
                for one in passed:
                    self._overtaken[one] = self._overtaken.get(one, 0) + 1
                self._overtaken.pop(key, None)
                granted.append(CoreLease(*key, cores))
        return granted

    def why(self, job: str, part: str) -> str:
        """Return what a part waits for; "" if it does not wait."""
        with self._lock:
            cores = self._waiting.get((job, part))
            if cores is None:
                return ""
            held = sum(self._held.values())
            ahead = list(self._waiting).index((job, part))
            holders = ", ".join(sorted({one for one, _ in self._held}))
            before = f"; {ahead} before it in the queue" if ahead else ""
            free = f"{self.total - held} of {self.total} are free"
            return f"needs {cores} cores, {free}; held by {holders or 'none'}{before}"

    def holders(self) -> list[CoreLease]:
        """Return the parts that hold cores."""
        with self._lock:
            return [CoreLease(*key, cores) for key, cores in self._held.items()]

    def queue(self) -> list[CoreLease]:
        """Return the parts that wait, in order."""
        with self._lock:
            return [CoreLease(*key, cores) for key, cores in self._waiting.items()]
