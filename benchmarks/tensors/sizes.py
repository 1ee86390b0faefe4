"""How much data the rows take that go to disk."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.sizes import FULL

GB = 10**9


class Sizes(NamedTuple):
    """Bytes: of the data that is reduced, of that whose chunks are changed, and of what the session may hold."""

    reduced: int
    rechunked: int
    memory: int

    @property
    def chunk(self) -> int:
        """The bytes of a chunk."""
        return self.memory // 40


ROWS = 20_000
"""Rows of the matrix whose chunks are changed."""
LONGEST_S = 900.0
"""How long a peer may take for the rows that go to disk."""
SIZES = Sizes(40 * GB, 20 * GB, 2 * GB) if FULL else Sizes(4 * GB, 4 * GB, GB)
