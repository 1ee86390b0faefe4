"""What a keeper keeps account of: chunks, files, what is to be cleared away; and how much there may be."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from weft.model.chunks import ChunkRef
    from weft.store.api import Column


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
