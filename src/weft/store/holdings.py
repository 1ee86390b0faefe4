"""What a keeper keeps account of: chunks, files, what is to be cleared away; and how much there may be."""

from __future__ import annotations

import ctypes
import heapq
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.store.api import ChunkInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from weft.model.chunks import ChunkRef
    from weft.store.api import Column, EvictionKey

_LOOK_AT: Final = 4096
"""How many chunks an eviction policy compares at a time."""


class Entry:
    """One chunk that is large or lies in a file; the fields are guarded by the keeper's lock.

    `nbytes` is what it counts in memory or shared memory; `ref` its place in a file, for tier "memory" a copy on disk
    that is still good; `on_disk` what that counts on disk. `used` is the tick of its last use.
    """

    __slots__ = (
        "busy",
        "column",
        "dead",
        "freed_parts",
        "index",
        "nbytes",
        "on_disk",
        "pins",
        "ref",
        "stuck",
        "tier",
        "used",
    )

    def __init__(self, column: Column, index: int, nbytes: int, tier: str, ref: ChunkRef | None) -> None:
        self.column = column
        self.index = index
        self.nbytes = nbytes
        self.tier = tier
        self.ref = ref
        self.on_disk = 0
        self.pins = 0
        self.busy = False
        self.dead = False
        self.stuck = False
        self.used = 0
        self.freed_parts: bytearray | None = None


class HeldFile:
    """A file of the keeper's own folders: how many chunks still lie in it, and freed bytes it could not give back."""

    __slots__ = ("live", "pending")

    def __init__(self) -> None:
        self.live = 0
        self.pending = 0


class Stats(NamedTuple):
    """What a keeper holds, in bytes unless named otherwise."""

    budget: int
    used: int
    reserved: int
    memory: int
    shm: int
    disk: int
    evictable: int
    pinned_chunks: int
    waiting_tasks: int
    spilled: int
    """All bytes ever written out."""
    restored: int
    """All bytes ever read back from disk."""


def memory_bytes() -> int:
    """Return the memory this process may have: the machine's, or its container's where that is less."""
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(path) as file:
            limit = min(limit, int(file.read()))
    return limit


def resident_bytes() -> int:
    """Return the bytes of memory that this process holds now; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


_libc = ctypes.CDLL(None)


def give_back() -> None:
    """Have the allocator return to the system what was freed, where it can be asked to."""
    if hasattr(_libc, "malloc_trim"):  # not glibc
        _libc.malloc_trim(0)


def default_budget(shm: Path | str | None = None) -> int:
    """Return half of the memory, but no more than what is free in the folder for shared memory."""
    budget = memory_bytes() // 2
    if shm is not None:
        with suppress(OSError):
            found = os.statvfs(shm)
            budget = min(budget, found.f_bavail * found.f_frsize)
    return budget


class Trash(NamedTuple):
    """What to do once the lock is given back: files to remove, holes to punch, values to let die."""

    files: list[str]
    holes: list[tuple[str, int, int]]
    values: list[Any]


def no_trash() -> Trash:
    """Return an empty one."""
    return Trash([], [], [])


def in_order(entries: Sequence[Entry], key: EvictionKey) -> Iterator[Entry]:
    """Yield chunks in the order of their keys, of very many only a part; the first few are had without sorting."""
    entries = entries[:: 1 + len(entries) // _LOOK_AT]
    heap = [
        (key(ChunkInfo(entry.column, entry.index, entry.nbytes, entry.tier, entry.used)), at, entry)
        for at, entry in enumerate(entries)
    ]
    heapq.heapify(heap)
    while heap:
        yield heapq.heappop(heap)[2]
