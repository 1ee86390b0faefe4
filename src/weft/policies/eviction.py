"""Eviction: which chunk leaves memory first when there is no room. What is in use never does.

A policy is a key function: the chunk with the lowest key goes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.store.api import ChunkInfo


def furthest(info: ChunkInfo) -> tuple[float, int]:
    """What will be read last goes first, results that nobody reads before all.

    Of those that every task of a vertex reads, the one that was just read goes: it will be a full round until it is
    needed again, which is what makes the least recently used the worst choice there.
    """
    return -info.next_use, -info.used


def largest(info: ChunkInfo) -> tuple[int, int]:
    """The largest goes first: few files; of equal ones, the least recently used."""
    return -info.nbytes, info.used
