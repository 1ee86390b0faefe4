"""A limit on the memory of a worker process while it runs tasks, so that too large a task raises `MemoryError`.

The kernel counts private writable memory (RLIMIT_DATA): heap, arrays and stacks of threads, not values in shared memory
nor files that are mapped read-only. Only the soft limit is moved, and only around tasks: what the process does for the
session is never refused memory.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from weft.model.wording import size_text

_STATUS: Final = "/proc/self/status"


class MemoryLimit:
    """At most `nbytes` more than the process had when the limit was made; a task that declares more may have that."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._base = data_bytes()
        self._before = resource.getrlimit(resource.RLIMIT_DATA)

    @contextmanager
    def hold(self, declared: int) -> Iterator[None]:
        """Hold the limit while a task runs that declares so many bytes."""
        soft, hard = self._before
        wanted = self._base + max(self.nbytes, declared)
        resource.setrlimit(
            resource.RLIMIT_DATA, (wanted if soft == resource.RLIM_INFINITY else min(wanted, soft), hard)
        )
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, self._before)

    def text(self, declared: int) -> str:
        """Return the limit as a sentence, for the message of a failure."""
        return f"A task of this session may take {size_text(max(self.nbytes, declared))} of memory (worker_memory)."


def data_bytes() -> int:
    """Return the private writable memory of this process, in bytes; 0 if the system does not report it."""
    try:
        with open(_STATUS, encoding="ascii") as file:
            found = next((line.split()[1] for line in file if line.startswith("VmData:")), "0")
    except OSError:
        return 0
    return int(found) * 1024
