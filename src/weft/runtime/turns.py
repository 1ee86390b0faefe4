"""The order in which the jobs of a session get idle workers."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

_SLACK = 64
"""The number of former places that are kept whatever the number of jobs."""


class Turns:
    """Jobs with ready tasks: first those of the highest priority, then those that hold the fewest workers, then those
    that were submitted first.

    Each call takes time for the logarithm of the number of jobs, so that jobs that wait cost the others nothing.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, str]] = []
        self._rank: dict[str, tuple[int, int, int, str]] = {}

    def put(self, job: str, number: int, held: int, priority: int = 0) -> None:
        """Add a job, the `number`th of the session, that holds `held` workers; or move it to its new place."""
        rank = -priority, held, number, job
        if self._rank.get(job) != rank:
            self._rank[job] = rank
            heappush(self._heap, rank)
            if len(self._heap) > 2 * len(self._rank) + _SLACK:  # former places of jobs
                self._heap = sorted(self._rank.values())

    def discard(self, job: str) -> None:
        """Remove a job, if it is there."""
        self._rank.pop(job, None)

    def first(self) -> str | None:
        """Return the first job; None if there is none."""
        heap = self._heap
        while heap:
            rank = heap[0]
            if self._rank.get(rank[3]) == rank:
                return rank[3]
            heappop(heap)
        return None

    def clear(self) -> None:
        """Remove all jobs."""
        self._heap.clear()
        self._rank.clear()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._rank))
