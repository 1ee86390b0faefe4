"""Eviction: the order in which chunks leave memory when it is full. Chunks in use never leave.

A policy is a key function: the chunk with the lowest key goes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.store.api import ChunkInfo


def furthest(info: ChunkInfo) -> tuple[float, int]:
    """The chunk whose next read is furthest goes first, results without readers before all others.

    Among chunks that every task of a vertex reads, the one just read goes: its next read is a full round away. The
    least recently used chunk would be the worst choice there.
    """
    return -info.next_use, -info.used


def largest(info: ChunkInfo) -> tuple[int, int]:
    """The largest chunk goes first, which makes few files; the least recently used of equal ones."""
    return -info.nbytes, info.used
