"""References to chunks: where the bytes of a task's output lie.

A chunk in memory is the Python value itself. Anything else (a shared-memory segment, a file on disk, an object in a
bucket) is a `ChunkRef`, small enough to travel in a message; the bytes are read through `weft.store.tiers`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Tier(Enum):
    """The tiers: kinds of places where a chunk lies."""

    MEMORY = "memory"
    """The value itself, in the memory of this process."""
    SHM = "shm"
    """A mapped file in the run's shared-memory folder."""
    DISK = "disk"
    """A spill or output file."""
    OBJECT = "object"
    """An object that fsspec reads, in a bucket for example."""
    INLINE = "inline"
    """The bytes travel inside the reference."""
    PEER = "peer"
    """A chunk in the store of another node, read over the network."""
    FOREIGN = "foreign"
    """Shared memory of another owner: this process reads it, but neither counts, moves nor removes it."""


OUTSIDE: Final = frozenset({Tier.DISK, Tier.OBJECT, Tier.PEER})
"""Tiers whose chunks take no memory until they are read."""


class ChunkRef(NamedTuple):
    """An encoded chunk at a `location`: the byte range from `offset`, of length `nbytes`, and the way to decode it.

    Only the tier interprets its locations (a path, a URL); all others only compare them. `parts` is the number of
    partitions that can be read one by one, 0 if the chunk is one value. `data` are the bytes of tier INLINE. `pieces`
    names the pieces of a sparse row (`weft.store.rows`), also if its chunk is one value.
    """

    tier: Tier
    location: str
    offset: int
    nbytes: int
    parts: int = 0
    data: bytes = b""
    pieces: bytes = b""
