"""The search for worker processes that were stopped, such as by SIGSTOP.

While a worker has a lease, its watch thread counts in the shared page, 20 times a second. The driver compares the
counters at intervals. A counter that stands still is no proof: a computation in C may hold the GIL for minutes, and
then no other thread of the worker runs. So the system is asked for the state of a silent process, and only a stopped
one counts as frozen, because it does not continue by itself. A sleeping one may wait for something, and a traced one
belongs to a debugger: the time limit of a task is `timeout_s`. The state alone is no proof either, since some programs
stop and continue a process many times a second to limit its share of a core.

The search counts checks and not seconds, so that a driver that was stopped itself does not blame its workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHECKS: Final = 5
"""Checks in `frozen_s`."""
_PF_EXITING: Final = 0x4
"""The flag in `/proc/PID/stat` of a process that ends (`include/linux/sched.h`)."""
_SILENT: Final = 3
"""Checks without a new count after which a process is silent; the first one needs a count to compare with."""


class Heartbeats:
    """The latest counts of workers, which are compared so often that a silent one is noticed within `frozen_s`."""

    def __init__(self, frozen_s: float) -> None:
        self._pause_s = frozen_s / _CHECKS
        self._next = 0.0
        self._seen: dict[int, tuple[int, int]] = {}

    def is_due(self, now: float) -> bool:
        """Whether it is time for the next check."""
        if now < self._next:
            return False
        self._next = now + self._pause_s
        return True

    def silent(self, counts: Mapping[int, int]) -> list[int]:
        """Return the workers whose counts stand still; `counts` are those of the workers that should count now."""
        before = self._seen
        self._seen = {
            worker: (count, before[worker][1] + 1 if worker in before and before[worker][0] == count else 0)
            for worker, count in counts.items()
        }
        return [worker for worker, (_, missed) in self._seen.items() if missed >= _SILENT]


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped and not traced, and so needs a signal to continue."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] == b"T"
    except OSError:
        return False


def is_ending(pid: int) -> bool:
    """Whether a process has begun to end or is gone: the kernel sets PF_EXITING before it closes the sockets."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except OSError:
        return True
    return fields[0] in b"ZX" or bool(int(fields[6]) & _PF_EXITING)
