"""References to chunks: where the bytes of a task's output lie.

A chunk in memory is the Python value itself. Anything else (a shared-memory segment, a file on disk) is a `ChunkRef`,
small enough to travel in a message; the bytes are read through the store's codec.
"""

from __future__ import annotations

from typing import NamedTuple


class ChunkRef(NamedTuple):
    """An encoded chunk inside a file: `path`, byte `offset` and `nbytes`, and how to read it.

    `tier` is "shm" (a mapped file in the run's shared-memory folder), "disk" (a spill or output file) or "inline" (the
    bytes are in `data`). `parts` is the number of partitions that can be read one by one, 0 if the chunk is one value.
    """

    tier: str
    path: str
    offset: int
    nbytes: int
    parts: int = 0
    data: bytes = b""
