"""Records of the store's accounting: chunks, files, garbage; and the size of the memory."""

from __future__ import annotations

import heapq
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.model.chunks import ChunkRef, Tier
from weft.store.api import ABSENT, FIXED, ONCE, SMALL, ChunkInfo, once_only, sizeof

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from weft.store.api import Column, EvictionKey
    from weft.store.tiers import TierStore

_CANDIDATES: Final = 4096
"""The number of chunks that an eviction policy compares at a time."""


class ChunkEntry(Struct, eq=False, gc=False):
    """One chunk that is large or lies in a file; the fields are guarded by the lock of the `MemoryManager`.

    `nbytes` is its size in memory or shared memory. `ref` is its location outside; for tier MEMORY, that of a valid
    copy. `on_disk` is the size of that copy. `used` is the tick of its last use.

    The garbage collector does not visit these records: whoever drops a column frees its cells, and thereby them.
    """

    column: Column
    index: int
    nbytes: int
    tier: Tier
    ref: ChunkRef | None
    on_disk: int = 0
    pins: int = 0
    busy: bool = False
    dead: bool = False
    unpicklable: bool = False
    used: int = 0
    freed_parts: bytearray | None = None


def memory_bytes() -> int:
    """Return the bytes of memory this process may use: the machine's, or its container's where that is less."""
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(path) as file:
            limit = min(limit, int(file.read()))
    return limit


def resident_bytes() -> int:
    """Return the bytes of memory that this process holds now; 0 where the system does not report them."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def default_budget(shm: Path | str | None = None) -> int:
    """Return half of the memory, but at most the free bytes of the folder for shared memory."""
    budget = memory_bytes() // 2
    if shm is not None:
        with suppress(OSError):
            found = os.statvfs(shm)
            budget = min(budget, found.f_bavail * found.f_frsize)
    return budget


class Garbage:
    """Work for the time after the lock: locations to delete, ranges of them to free, values to drop.

    `held` are the bytes of the values. They count as used until these are dropped, which may be much later on a busy
    machine; `dropped` is called with them then.
    """

    __slots__ = ("_dropped", "held", "locations", "ranges", "values")

    def __init__(self, dropped: Callable[[int], None]) -> None:
        self.locations: list[tuple[TierStore, str]] = []
        self.ranges: list[tuple[TierStore, str, int, int]] = []
        self.values: list[Any] = []
        self.held = 0
        self._dropped = dropped

    def collect(self) -> None:
        """Do the work."""
        try:
            gone: dict[TierStore, list[str]] = {}
            for tier, location in self.locations:
                gone.setdefault(tier, []).append(location)
            for tier, locations in gone.items():
                tier.delete(locations)
            for tier, location, start, nbytes in self.ranges:
                tier.free(location, start, nbytes)
        finally:
            self.values.clear()
            held, self.held = self.held, 0
            if held:
                self._dropped(held)


class Pin:
    """A hold on some chunks, which stay in place until `release` or the end of a `with` block."""

    __slots__ = ("_entries", "_unpin")

    def __init__(self, unpin: Callable[[list[ChunkEntry]], None], entries: list[ChunkEntry]) -> None:
        self._unpin = unpin
        self._entries = entries

    def release(self) -> None:
        """Release the chunks. A second call does nothing."""
        entries, self._entries = self._entries, []
        self._unpin(entries)

    def __enter__(self) -> Pin:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def in_order(entries: Sequence[ChunkEntry], key: EvictionKey) -> Iterator[ChunkEntry]:
    """Yield chunks in the order of their keys, of very many only a part; the first few come without sorting."""
    entries = entries[:: 1 + len(entries) // _CANDIDATES]
    heap = [
        (key(ChunkInfo(entry.column, entry.index, entry.nbytes, entry.tier, entry.used)), at, entry)
        for at, entry in enumerate(entries)
    ]
    heapq.heapify(heap)
    while heap:
        yield heapq.heappop(heap)[2]


def sorted_out(column: Column, lo: int, values: Sequence[Any]) -> tuple[int, int, list[ChunkEntry]]:
    """Return the number and bytes of the small values, and an entry for each of the others."""
    count = small = 0
    large: list[ChunkEntry] = []
    for index, value in enumerate(values, lo):
        kind = type(value)
        if value is ABSENT:
            continue
        if kind is ChunkRef and value.tier is not Tier.INLINE:
            large.append(ChunkEntry(column, index, value.nbytes, value.tier, value))
            continue
        nbytes = FIXED.get(kind)
        if nbytes is None:
            nbytes = sizeof(value)
            if nbytes == ONCE:
                raise once_only(value)
            if nbytes >= SMALL and kind is not ChunkRef:
                large.append(ChunkEntry(column, index, nbytes, Tier.MEMORY, None))
                continue
        count += 1
        small += nbytes
    return count, small, large
