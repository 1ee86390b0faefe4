"""The default chunks of new arrays."""

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
"""The number of chunks of the chosen size that fit into the memory of a session for each worker."""


class Chunking(NamedTuple):
    """The parameters of the chunks of new arrays besides shape and dtype.

    `chunk_size` is the default size in elements, as `Session` takes it, `workers` the number of parallel tasks,
    `chunk_bytes` the most bytes of a chosen chunk.
    """

    chunk_size: Any
    workers: int
    chunk_bytes: int


class _Here(threading.local):
    """The parameters of the arrays that a thread makes; None: those of the current session."""

    chunking: Chunking | None = None


_here = _Here()


def chunking() -> Chunking:
    """Return the parameters for arrays of this thread: those of the current session, without opening one."""
    if _here.chunking is not None:
        return _here.chunking
    found = runners.found()
    if found is not None:
        workers = found.workers
        room = found.budget // (CHUNKS_HELD * workers)  # each worker holds several chunks at a time
        size = options.chunk_size if found.chunk_size is None else found.chunk_size
        return Chunking(size, workers, max(FEWEST_BYTES, min(CHUNK_BYTES, room)))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Chunking(options.chunk_size, cores, CHUNK_BYTES)


@contextmanager
def chunking_as(parameters: Chunking) -> Iterator[None]:
    """Cut new arrays of this thread with the given parameters."""
    before, _here.chunking = _here.chunking, parameters
    try:
        yield
    finally:
        _here.chunking = before


def cut(shape: Sequence[int], itemsize: int, wanted: Any = None) -> Grid:
    """Return the chunks of a new array: the requested ones, else those of the current session."""
    how = chunking()
    return normalize(how.chunk_size if wanted is None else wanted, shape, itemsize, how.workers, how.chunk_bytes)
