"""References to chunks: where the bytes of a task's output lie.

A chunk in memory is the Python value itself. Anything else (a shared-memory segment, a file on disk, an object in a
bucket) is a `ChunkRef`, small enough to travel in a message; the bytes are read through `weft.store.tiers`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Tier(Enum):
    """The kind of place where a chunk lies."""

    MEMORY = "memory"
    """The value itself, in the memory of this process."""
    SHM = "shm"
    """A mapped file in the run's shared-memory folder."""
    DISK = "disk"
    """A spill or output file."""
    OBJECT = "object"
    """An object that fsspec reads, in a bucket say."""
    INLINE = "inline"
    """The bytes travel inside the ref."""
    FOREIGN = "foreign"
    """Shared memory of another owner: read, but neither counted, moved nor removed."""


OUTSIDE: Final = frozenset({Tier.DISK, Tier.OBJECT})
"""Tiers whose chunks count in no memory until they are read."""


class ChunkRef(NamedTuple):
    """An encoded chunk at a `location`: byte `offset` and `nbytes` in it, and how to read it.

    Only the tier knows how to read its locations (a path, a URL); others compare them at most. `parts` is the number of
    partitions that can be read one by one, 0 if the chunk is one value. `data` are the bytes of tier INLINE.
    """

    tier: Tier
    location: str
    offset: int
    nbytes: int
    parts: int = 0
    data: bytes = b""
