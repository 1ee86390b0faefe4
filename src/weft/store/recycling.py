"""Files of freed segments, kept to be written again.

Half of the cost of a chunk on its way into shared memory is the allocation of its pages by the kernel, page by page,
and their release. So a large file without chunks moves into a folder beside it instead of being removed, and the next
writer of a chunk of about that size takes it from there; a rename does both, hence two writers never get the same.

An array may outlive the cell that it was read from, and must not change then. The kernel detects such arrays: a write
lease on a file is refused while any other open file description exists, and every mapping keeps one (fcntl(2),
F_SETLEASE). Where leases are missing or unreliable, no file is kept.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

RECYCLED: Final = "recycled"
"""The folder beside the files with those that are kept."""
SMALLEST: Final = 1 << 20
"""Files of fewer bytes are not worth keeping."""
LOOKS: Final = 32
"""A kept file that this many writers have found in use is removed by the next writer that finds it so."""
TRIES: Final = 8
"""A writer takes a new file after it has found this many files in use."""


class FreeFiles:
    """The kept files of some folders, at most `limit` bytes; for the process that frees chunks. Safe for any thread."""

    def __init__(self, folders: Sequence[str], limit: int) -> None:
        self.folders = folders
        self.limit = limit
        self._names = itertools.count()
        self._lock = threading.Lock()
        self.kept = 0
        """Bytes of kept files at the last listing; since then, some may have been taken."""

    def keep(self, path: str, room: int) -> bool:
        """Keep an unused file, if there are `room` bytes for it; else it stays in place."""
        room = min(room, self.limit)
        with suppress(OSError), self._lock:
            nbytes = os.stat(path).st_size
            parent = os.path.dirname(path)
            if parent not in self.folders or not SMALLEST <= nbytes <= room or not trusted(parent):
                return False
            if self.kept + nbytes > room:
                self.kept = sum(size for size, _, _ in _listed(self.folders))
                if self.kept + nbytes > room:
                    return False
            with suppress(FileExistsError):
                os.mkdir(f"{parent}/{RECYCLED}", mode=0o700)
            os.rename(path, f"{parent}/{RECYCLED}/{nbytes}-{next(self._names)}-0")
            self.kept += nbytes
            return True
        return False

    def shrink(self, room: int) -> None:
        """Remove files until the kept ones take at most `room` bytes."""
        if self.kept <= room:
            return
        with self._lock:
            found = sorted(_listed(self.folders))
            self.kept = sum(size for size, _, _ in found)
            while found and self.kept > max(0, room):
                size, _, path = found.pop()
                with suppress(FileNotFoundError):
                    os.unlink(path)
                self.kept -= size

    def close(self) -> None:
        """Remove all kept files."""
        self.shrink(0)
        for folder in self.folders:
            with suppress(OSError):
                os.rmdir(f"{folder}/{RECYCLED}")


def _listed(folders: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return size, number and path of every file that is kept; the numbers are in the order of time."""
    rows = []
    for folder in folders:
        with suppress(FileNotFoundError):
            for name in os.listdir(f"{folder}/{RECYCLED}"):
                size, number, _ = name.split("-")
                rows.append((int(size), int(number), f"{folder}/{RECYCLED}/{name}"))
    return rows


def take(nbytes: int, path: str) -> int:
    """Move a kept file of about `nbytes` of its folder to `path` and return it open for writing; -1 if there is none.

    A file in use goes back, since its last reader may be about to unmap it. After `LOOKS` times it is removed, so that
    its pages are freed with the last array that views them.
    """
    if nbytes < SMALLEST:
        return -1
    in_use = 0
    near = [
        (abs(row[0] - nbytes), *row) for row in _listed((os.path.dirname(path),)) if nbytes <= 2 * row[0] <= 4 * nbytes
    ]
    for _, size, _, kept in sorted(near):  # files kept for long first: their readers have left
        try:
            os.rename(kept, path)
        except FileNotFoundError:
            continue
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        if not _alone(fd):
            os.close(fd)
            name, _, seen = kept.rpartition("-")
            if int(seen) == LOOKS:
                os.unlink(path)
                continue
            os.rename(path, f"{name}-{int(seen) + 1}")
            in_use += 1
            if in_use == TRIES:
                return -1
            continue
        if size > nbytes:
            os.ftruncate(fd, nbytes)
        return fd
    return -1


def clear(folders: Sequence[str]) -> bool:
    """Return all pages of kept files to the kernel. Return whether there were any."""
    found = _listed(folders)
    for _, _, path in found:
        with suppress(FileNotFoundError):
            os.unlink(path)
    return bool(found)


def _alone(fd: int) -> bool:
    """Whether no other process or mapping uses the file."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True


_known: dict[str, bool] = {}
"""What was found about leases, by folder."""


def trusted(folder: str) -> bool:
    """Whether leases on files in `folder` detect mappings: tried on a file of one page, until that tells it."""
    if folder not in _known:
        found = _detects_mappings(folder)
        if found is None:
            return False
        _known[folder] = found
    return _known[folder]


def _detects_mappings(folder: str) -> bool | None:
    """Try whether leases detect a mapping. None: there was no lease without one either, which a process that is being
    started at this moment causes, too: it has a copy of the descriptors.
    """
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
                if _alone(file.fileno()):
                    return False
            return True if _alone(file.fileno()) else None
    except OSError:
        return None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)
