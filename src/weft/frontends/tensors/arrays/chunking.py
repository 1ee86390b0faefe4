"""How new arrays are cut into chunks, where nobody says so."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from weft.frontends.tensors.arrays import runners
from weft.frontends.tensors.arrays.options import options
from weft.frontends.tensors.chunks import CHUNK_BYTES, FEWEST_BYTES, Grid, normalize

CHUNKS_HELD = 8
"""So many chunks of the chosen size fit into the memory of a session for each worker."""


class Chunking(NamedTuple):
    """What the chunks of new arrays depend on beside shape and dtype.

    `chunk_size` is that of arrays for which none is given, as `Session` takes it, `workers` how many tasks run at a
    time, `chunk_bytes` how large a chunk may be where nobody says so.
    """

    chunk_size: Any
    workers: int
    chunk_bytes: int


class _Here(threading.local):
    """What holds for the arrays that a thread makes; None: what the current session has."""

    chunking: Chunking | None = None


_here = _Here()


def chunking() -> Chunking:
    """Return what holds for the arrays that this thread makes: as the current session has it, without making one."""
    if _here.chunking is not None:
        return _here.chunking
    found = runners.found()
    if found is not None:
        workers = found.workers
        room = found.budget // (CHUNKS_HELD * workers)  # each worker holds several at a time
        size = options.chunk_size if found.chunk_size is None else found.chunk_size
        return Chunking(size, workers, max(FEWEST_BYTES, min(CHUNK_BYTES, room)))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Chunking(options.chunk_size, cores, CHUNK_BYTES)


@contextmanager
def chunking_as(told: Chunking) -> Iterator[None]:
    """Have this thread cut new arrays as was told."""
    before, _here.chunking = _here.chunking, told
    try:
        yield
    finally:
        _here.chunking = before


def cut(shape: Sequence[int], itemsize: int, wanted: Any = None) -> Grid:
    """Return the chunks of a new array: those that are asked for, else what the current session has for all."""
    how = chunking()
    return normalize(how.chunk_size if wanted is None else wanted, shape, itemsize, how.workers, how.chunk_bytes)
