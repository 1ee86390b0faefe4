"""Chunks in files: written under a temporary name and renamed when complete, read into private memory.

A batch of small chunks shares a file, a large chunk has its own. A file that meets a full disk is removed, and the
caller gets a DiskFullError that names the folder and the needed bytes.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import CapacityError, DiskFullError, NotFoundError, UnreadableError
from weft.store import codec, recycling
from weft.store.pages import private_pages

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.codec import Encoded

OWN_FILE: Final = 1 << 20
"""A chunk of this many bytes or more has a file of its own, which is freed as a whole."""

LARGE_FILE: Final = 2 << 20
"""A file of this many bytes or more has a page of this size."""

WriteV = Callable[[int, Sequence[bytes | memoryview]], int]
"""`os.writev`, or a stand-in that fails like a bad disk."""

_PARTIAL: Final = ".part"
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_IOV_MAX: Final = 512
_BATCH: Final = 4 << 20
_GONE: Final = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE}
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class ChunkFiles:
    """Chunks in files of one folder, a `TierStore`; safe for any thread, and for processes with folders in common.

    `tier` is the tier of the refs. `prefix` starts every file name and identifies the writer. `large` is a
    folder with large pages, which has the large files while it is there. `recycle` writes to kept files
    (`weft.store.recycling`). `durable` syncs file and folder before a ref is returned.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        tier: Tier = Tier.DISK,
        prefix: str = "",
        large: str = "",
        recycle: bool = False,
        durable: bool = False,
        writev: WriteV = os.writev,
    ) -> None:
        self.folder = str(folder)
        self.tier = tier
        self.prefix = prefix
        self._large = large
        self._recycle = recycle
        self._durable = durable
        self._writev = writev
        self._count = itertools.count()
        self._token = os.urandom(4).hex()

    local = False

    @property
    def root(self) -> str:
        """See `TierStore.root`."""
        return f"{self.folder}/"

    def write(self, chunks: Sequence[Encoded]) -> list[ChunkRef]:
        """Write chunks, all or none; refs come in the same order.

        DiskFullError: no room. CapacityError: the folder cannot be written for another reason.
        """
        refs: list[ChunkRef | None] = [None] * len(chunks)
        done: list[str] = []
        try:
            for group in grouped(chunks):
                path, offsets = self._write_file([chunks[i] for i in group])
                done.append(path)
                for i, offset in zip(group, offsets, strict=True):
                    refs[i] = chunks[i].ref(self.tier, path, offset)
            if self._durable and done:
                sync_folder(self.folder)
        except BaseException as error:
            remove(done)
            if isinstance(error, OSError):
                raise failed(error, self.folder, sum(chunk.nbytes for chunk in chunks)) from error
            raise
        return [ref for ref in refs if ref is not None]

    def _write_file(self, chunks: list[Encoded]) -> tuple[str, list[int]]:
        at = 0
        offsets: list[int] = []
        for chunk in chunks:
            offsets.append(codec.align(at, chunk.nbytes))
            at = offsets[-1] + chunk.nbytes
        path, fd = self._open(at)
        partial = path + _PARTIAL
        try:
            try:
                self._write_all(fd, _laid_out(chunks, offsets))
                if self._durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(partial, path)
        except BaseException:
            remove([partial])
            raise
        return path, offsets

    def _open(self, nbytes: int) -> tuple[str, int]:
        """Return the path of a file that is to have so many bytes, and its descriptor under the partial name."""
        name = f"{self.prefix}{os.getpid()}-{self._token}-{next(self._count)}.chunks"
        if self._large and nbytes >= LARGE_FILE:
            path = f"{self._large}/{name}"
            with suppress(OSError):  # this session has no such folder
                fd = self._new(nbytes, path)
                os.ftruncate(fd, nbytes)  # kernels before 6.14 give large pages only below the end of the file
                return path, fd
        path = f"{self.folder}/{name}"
        return path, self._new(nbytes, path)

    def _new(self, nbytes: int, path: str) -> int:
        fd = recycling.take(nbytes, path + _PARTIAL) if self._recycle else -1
        return os.open(path + _PARTIAL, _NEW, 0o600) if fd < 0 else fd

    def _write_all(self, fd: int, pieces: Iterator[bytes | memoryview]) -> None:
        for batch in _batches(pieces):
            at = 0
            while at < len(batch):
                written = self._writev(fd, batch[at:])
                while at < len(batch) and written >= len(batch[at]):
                    written -= len(batch[at])
                    at += 1
                if written:
                    batch[at] = memoryview(batch[at])[written:]

    def delete(self, locations: Iterable[str]) -> None:
        """See `TierStore.delete`."""
        remove(locations)

    def freeable(self, offset: int, nbytes: int) -> tuple[int, int]:
        """See `TierStore.freeable`: whole pages."""
        return freeable(offset, nbytes)

    def free(self, location: str, start: int, nbytes: int) -> bool:
        """See `TierStore.free`."""
        return punch(location, start, nbytes)

    def sweep(self, prefix: str, known: Container[str]) -> int:
        """See `TierStore.sweep`."""
        return sweep(self.root + prefix, known)

    def close(self) -> None:
        """See `TierStore.close`."""
        self.sweep("", ())


def grouped(chunks: Sequence[Encoded]) -> list[list[int]]:
    """Return the numbers of chunks by file: large ones have a file each, all small ones share one."""
    groups = [[i] for i, chunk in enumerate(chunks) if chunk.nbytes >= OWN_FILE]
    small = [i for i, chunk in enumerate(chunks) if chunk.nbytes < OWN_FILE]
    return [*groups, small] if small else groups


def _laid_out(chunks: Sequence[Encoded], offsets: Sequence[int]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of chunks that begin at these offsets, gaps filled."""
    at = 0
    for chunk, start in zip(chunks, offsets, strict=True):
        if start > at:
            yield bytes(start - at)
        yield from codec.spans(chunk)
        at = start + chunk.nbytes


def _batches(pieces: Iterator[bytes | memoryview]) -> Iterator[list[bytes | memoryview]]:
    """Group pieces for one call each, so that temporary copies are not held for longer."""
    batch: list[bytes | memoryview] = []
    nbytes = 0
    for piece in pieces:
        batch.append(piece)
        nbytes += len(piece)
        if len(batch) == _IOV_MAX or nbytes >= _BATCH:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the names in a folder durable. OSError: not possible."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_paths(paths: Iterable[str], *, most: int = 64) -> bool:
    """Make files, folders with their content, and their names durable. Return False if there are too many.

    A missing path is skipped. Of the parent folders only the next one is synced: a file system with a journal (ext4,
    XFS, Btrfs) records a new folder before its content. OSError: not possible.
    """
    found: list[str] = []
    above: set[str] = set()
    for path in paths:
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                above.add(os.path.dirname(path))
                path = os.path.realpath(path)
                mode = os.lstat(path).st_mode
        except FileNotFoundError:
            continue
        above.add(os.path.dirname(path))
        if stat.S_ISDIR(mode):
            for folder, _, names in os.walk(path):
                files = (os.path.join(folder, name) for name in names)
                found += [folder, *(file for file in files if stat.S_ISREG(os.lstat(file).st_mode))]
                if len(found) > most:
                    return False
        elif stat.S_ISREG(mode):
            found.append(path)
    if len(found) + len(above) > most:
        return False
    for path in (*found, *above):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            sync_file(fd)
        finally:
            os.close(fd)
    return True


def sync_file(fd: int) -> None:
    """Make an open file or folder durable. OSError: not possible."""
    os.fsync(fd)


class FileSystems:
    """The file systems of some folders, each made durable as a whole.

    One call covers all files written by other commands, and their names. The next `sync` raises failures of the disk
    since the creation of this object. `flush` makes the file system of an open folder durable. OSError: a folder cannot
    be opened.
    """

    def __init__(
        self, folders: Iterable[str | os.PathLike[str]], *, flush: Callable[[int], None] | None = None
    ) -> None:
        if flush is None:
            from weft.store import libc

            flush = libc.flush_file_system
        self._flush = flush
        self._folders: dict[int, int] = {}
        try:
            for folder in folders:
                fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                if self._folders.setdefault(os.fstat(fd).st_dev, fd) != fd:
                    os.close(fd)
        except OSError:
            self.close()
            raise

    def sync(self) -> None:
        """Make all earlier writes durable. OSError: not possible."""
        for fd in self._folders.values():
            self._flush(fd)

    def close(self) -> None:
        """Close the folders. A second call does nothing."""
        folders, self._folders = self._folders, {}
        for fd in folders.values():
            os.close(fd)


def failed(error: OSError, folder: str, nbytes: int) -> CapacityError:
    """Return the message for a failed write of `nbytes` to `folder`."""
    if error.errno in _FULL:
        return DiskFullError(
            f"no room for {nbytes:,} bytes in {folder}: {error.strerror}",
            hint="Free some space there, set `spill` to a folder on a larger disk, or give the run more memory.",
        )
    return CapacityError(
        f"cannot write {nbytes:,} bytes to {folder}: {error.strerror or error}",
        hint="Check that the folder exists, is yours, and that its disk is healthy.",
    )


def reserve(fd: int, nbytes: int) -> None:
    """Allocate a file of `nbytes` that is to be mapped. OSError ENOSPC: no room.

    A process that maps a file without pages is killed (SIGBUS) at the first missing one; an allocation fails with an
    error.
    """
    fallocate = getattr(os, "posix_fallocate", None)  # macOS has none
    if fallocate is None:
        os.ftruncate(fd, nbytes)
        return
    try:
        fallocate(fd, 0, nbytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        os.ftruncate(fd, nbytes)


def sweep(prefix: str, known: Container[str]) -> int:
    """Remove the chunk files whose path begins with `prefix`, except the `known` ones; return their number."""
    folder, name = os.path.split(prefix)
    entries = os.scandir(folder) if os.path.isdir(folder) else ()
    found = [e.path for e in entries if e.name.startswith(name) and e.name.endswith((".chunks", _PARTIAL))]
    left = [path for path in found if path not in known]
    remove(left)
    return len(left)


def remove(paths: Iterable[str]) -> None:
    """Remove files; missing ones are skipped."""
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


# ----------------------------------------------------------------------------------------------------------- reading


def lost(path: str, why: str) -> NotFoundError:
    """Return the error of a chunk whose file cannot be read."""
    return NotFoundError(
        f"the stored chunk in {path} is lost: {why}",
        hint="Another program removed or changed the file of a run; run again to compute it anew.",
    )


def unread(path: str, error: OSError) -> NotFoundError:
    """Return the error of a file that cannot be opened, mapped or read; the errno distinguishes missing files."""
    why = error.strerror or str(error)
    if error.errno in _GONE:
        return lost(path, why)
    return UnreadableError(
        f"the stored chunk in {path} cannot be read here: {why}",
        hint="The file exists. Check the system log about this disk, and the limits of this process.",
    )


def open_range(path: str, offset: int, nbytes: int) -> int:
    """Open a file that has a range of bytes and return its descriptor; errors as `read_range`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise unread(path, error) from error
    if offset + nbytes > os.fstat(fd).st_size:
        os.close(fd)
        raise lost(path, f"it ends before byte {offset + nbytes:,}")
    return fd


def read_range(path: str, offset: int, nbytes: int) -> memoryview:
    """Read part of a file into private, writable memory.

    NotFoundError: it is missing or too short. UnreadableError: it exists.
    """
    fd = open_range(path, offset, nbytes)
    try:
        view = private_pages(nbytes)
        at = 0
        while at < nbytes:
            count = os.preadv(fd, [view[at:]], offset + at)
            if not count:
                raise lost(path, f"it ends before byte {offset + nbytes:,}")
            at += count
    except OSError as error:
        raise unread(path, error) from error
    finally:
        os.close(fd)
    return view


# ------------------------------------------------------------------------------------------------------------- holes


def interior(offset: int, nbytes: int) -> tuple[int, int]:
    """Return start and size of the whole pages inside a range; size 0 if there are none."""
    start = -(-offset // codec.PAGE) * codec.PAGE
    return start, max(0, (offset + nbytes) // codec.PAGE * codec.PAGE - start)


def freeable(offset: int, nbytes: int) -> tuple[int, int]:
    """Return start and size of the pages of a range that this system can free; size 0 if there are none."""
    from weft.store.libc import CAN_PUNCH

    return interior(offset, nbytes) if CAN_PUNCH else (0, 0)


def punch(path: str, offset: int, nbytes: int) -> bool:
    """Free the pages of a range of a file, which then reads as zeros. Return False if not possible."""
    from weft.store.libc import punch_hole

    if nbytes <= 0:
        return False
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return punch_hole(fd, offset, nbytes)
    finally:
        os.close(fd)
