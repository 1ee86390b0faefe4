"""Shared memory between the processes of a node: files in a run's folder under /dev/shm, mapped to be read.

Files instead of anonymous memory, because the next start can sweep the files of a killed process. A chunk goes into its
segment by one copy in the kernel and is read without any.

A mapping lives exactly as long as the last array or table that views it, even after its file is removed. Mappings hold
no file descriptor, so thousands of chunks can be open at once.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import DiskFullError
from weft.store import codec, disk, recycling
from weft.store.disk import ChunkFiles, WriteV

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.codec import Encoded

LARGE: Final = "large"
"""The link beside the segments to a file system with large pages, where the system allows one."""

INLINE_MAX: Final = 512
"""Chunks up to this many bytes travel inside their refs."""


class SegmentWriter:
    """Makes segments in one folder. `fallback` is a folder on disk for chunks that find shared memory full."""

    def __init__(
        self,
        folder: Path | str,
        *,
        prefix: str = "",
        fallback: Path | str | None = None,
        writev: WriteV = os.writev,
    ) -> None:
        self._folders = folders(folder)
        self._files = ChunkFiles(
            folder, tier=Tier.SHM, prefix=prefix, large=self._folders[1], recycle=True, writev=writev
        )
        self._fallback = None if fallback is None else ChunkFiles(fallback, prefix=prefix)

    def write(self, chunks: Sequence[Encoded]) -> list[ChunkRef]:
        """Write a batch of encoded chunks, small ones packed into one file; refs come in the same order.

        DiskFullError: no room in shared memory, nor in the fallback folder; no bytes are left behind.
        """
        try:
            return self._files.write(chunks)
        except DiskFullError:
            if recycling.clear(self._folders):
                with suppress(DiskFullError):
                    return self._files.write(chunks)
            if self._fallback is None:
                raise
            return self._fallback.write(chunks)

    def delete(self, refs: Iterable[ChunkRef]) -> None:
        """Remove the files of chunks written by this writer, or by another writer in the same folders."""
        disk.remove(ref.location for ref in refs)


def folders(folder: Path | str) -> tuple[str, str]:
    """Return the folders of the segments in a run's folder: it itself, and the one with large pages."""
    return str(folder), f"{folder}/{LARGE}"


class LargePages:
    """The file system with large pages beside the segments in `folder`: there from the call of `use` to `close`.

    Its memory is free again when the last file and the last mapping of it are gone, even if this process is killed.
    """

    def __init__(self, folder: str) -> None:
        self._link = folders(folder)[1]
        self._fd = -1

    def use(self, process: int, descriptor: int) -> None:
        """Use the one that a process of this user has open. One that it may not share is left alone."""
        own = f"/proc/{os.getpid()}/fd"
        with suppress(OSError):
            if self._fd < 0 and os.stat(own).st_uid == os.geteuid():  # else the kernel hides this process from others
                self._fd = os.open(f"/proc/{process}/fd/{descriptor}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                os.symlink(f"{own}/{self._fd}", self._link)

    def close(self) -> None:
        """Let it go. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            disk.remove([self._link])
            os.close(fd)


# ---------------------------------------------------------------------------------------------------------- mappings

_KEEP_FILES: Final = 32
_KEEP_BYTES_MAX: Final = 1 << 20

_open_maps: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_kept: OrderedDict[str, Any] = OrderedDict()  # files of many small chunks, which are read one by one
_kept_lock = threading.Lock()


def mapping(path: str) -> Any:
    """Return the mapping of a whole file, the open one if there is one. OSError: it cannot be mapped."""
    pages = _open_maps.get(path)
    if pages is not None:
        return pages
    from weft.store import libc

    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        nbytes = os.fstat(fd).st_size
        pages = libc.pages(fd, nbytes) if nbytes else b""
    finally:
        os.close(fd)
    if not nbytes:
        return pages
    _open_maps[path] = pages
    if nbytes <= _KEEP_BYTES_MAX:
        with _kept_lock:
            _kept[path] = pages
            if len(_kept) > _KEEP_FILES:
                _kept.popitem(last=False)
    return pages


def forget(path: str) -> Any:
    """Drop the mapping of a file that is to be removed. Return it if arrays view it: it lives as long as they do."""
    with _kept_lock:
        _kept.pop(path, None)
    return _open_maps.get(path)


def forget_all() -> None:
    """Drop all mappings."""
    with _kept_lock:
        _kept.clear()


def pack(values: Sequence[Any], writer: SegmentWriter, parts: int = 0) -> list[Any]:
    """Turn a worker's results into cells that another process can read.

    Plain numbers, None and the like stay as they are, small values become inline refs, the rest goes into segments;
    with `parts`, lists are written piece by piece. ProgramError: a value cannot be pickled. DiskFullError: no room.
    """
    cells: list[Any] = list(values)
    chunks: list[Encoded] = []
    places: list[int] = []
    for i, value in enumerate(cells):
        if type(value) in _PLAIN and not (type(value) is str and len(value) > INLINE_MAX):
            continue
        chunk = codec.encode_row(value) if parts else codec.encode(value)
        if chunk.nbytes <= INLINE_MAX:
            cells[i] = chunk.inline()
        else:
            chunks.append(chunk)
            places.append(i)
    for i, ref in zip(places, writer.write(chunks) if chunks else (), strict=True):
        cells[i] = ref
    return cells


_PLAIN: Final[frozenset[type]] = frozenset({type(None), bool, int, float, complex, str})
