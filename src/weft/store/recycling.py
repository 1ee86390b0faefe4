"""Files of freed segments, kept to be written again.

Half of what a chunk costs on its way into shared memory is taking its pages from the kernel, page by page, and giving
them back. So a large file that holds nothing any more moves into one folder instead of being removed, and whoever
writes a chunk of about that size next takes it from there; a rename does both, hence two writers never get the same.

An array may outlive the cell that it was read from, and must not change then. The kernel knows whether one does: a
write lease on a file is refused while any other open file description is there, and every mapping keeps one
(fcntl(2), F_SETLEASE). Where leases do not exist or are not to be trusted, nothing is kept.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import threading
from contextlib import suppress
from functools import cache
from typing import Final

SMALLEST: Final = 1 << 20
"""Files of fewer bytes are not worth keeping."""


class FreeFiles:
    """What is kept in `folder`, at most `limit` bytes; for the process that frees chunks. Safe for any thread."""

    def __init__(self, folder: str, limit: int) -> None:
        self.folder = folder
        self.beside = f"{os.path.dirname(folder)}/"
        self.limit = limit
        self._names = itertools.count()
        self._lock = threading.Lock()
        self.kept = 0
        """Bytes that were kept when last looked at; since then, some may have been taken."""

    def keep(self, path: str, room: int) -> bool:
        """Keep a file that nobody needs, if there are `room` bytes for it; else it stays where it is."""
        room = min(room, self.limit)
        with suppress(OSError), self._lock:
            nbytes = os.stat(path).st_size
            if not SMALLEST <= nbytes <= room or not trusted(os.path.dirname(path)):
                return False
            if self.kept + nbytes > room:
                self.kept = sum(size for size, _ in _listed(self.folder))
                if self.kept + nbytes > room:
                    return False
            if not self.kept:
                os.makedirs(self.folder, mode=0o700, exist_ok=True)
            os.rename(path, f"{self.folder}/{nbytes}-{next(self._names)}")
            self.kept += nbytes
            return True
        return False

    def shrink(self, room: int) -> None:
        """Remove files until what is kept takes at most `room` bytes."""
        if self.kept <= room:
            return
        with self._lock:
            found = sorted(_listed(self.folder))
            self.kept = sum(size for size, _ in found)
            while found and self.kept > max(0, room):
                size, path = found.pop()
                with suppress(FileNotFoundError):
                    os.unlink(path)
                self.kept -= size

    def close(self) -> None:
        """Remove all that is kept, and the folder."""
        self.shrink(0)
        with suppress(OSError):
            os.rmdir(self.folder)


def _listed(folder: str) -> list[tuple[int, str]]:
    """Return size and path of every file that is kept."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [(int(name.partition("-")[0]), f"{folder}/{name}") for name in names]


def take(folder: str, nbytes: int, path: str) -> int:
    """Move a kept file of about `nbytes` to `path` and return it open for writing; -1 if there is none."""
    if nbytes < SMALLEST:
        return -1
    near = [(abs(size - nbytes), size, kept) for size, kept in _listed(folder) if nbytes <= 2 * size <= 4 * nbytes]
    for _, size, kept in sorted(near):
        try:
            os.rename(kept, path)
        except FileNotFoundError:
            continue
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        if not _alone(fd):  # its pages go when the last array that looks into them dies
            os.close(fd)
            os.unlink(path)
            continue
        if size > nbytes:
            os.ftruncate(fd, nbytes)
        return fd
    return -1


def clear(folder: str) -> bool:
    """Give all pages back to the kernel; whether there were any."""
    found = _listed(folder)
    for _, path in found:
        with suppress(FileNotFoundError):
            os.unlink(path)
    return bool(found)


def _alone(fd: int) -> bool:
    """Whether nobody else has the file open or mapped."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True


@cache
def trusted(folder: str) -> bool:
    """Whether leases on files in `folder` tell if somebody looks into them: tried once, on a file of one page."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    path = f"{folder}/lease-{os.getpid()}"
    try:
        with open(path, "w+b") as file:
            file.truncate(mmap.PAGESIZE)
        with open(path, "rb") as file:
            view = mmap.mmap(file.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ)
        with open(path, "r+b") as file:
            with view:
                seen = not _alone(file.fileno())
            return seen and _alone(file.fileno())
    except OSError:
        return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)
