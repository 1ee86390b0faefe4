"""The values of a durable run: outputs of its tasks, in files of the run's folder, for later processes.

A file is a row of frames, each with the values of some neighbouring tasks of one vertex as one lease made them::

    magic "WFO1" | meta bytes u32 | CRC-32 of the meta u32 | body bytes u64 | meta | body

`meta` (MessagePack) holds vertex, lease and first task, and the positions of the values in the body: the small ones in
one chunk together, each large one in a chunk of its own. Small frames share a file, the *pack*, and a large frame has
its own. A frame cut off by a crash, and all bytes behind it, count as never written: a resumed process begins new
files.

The files do not record which frames count: a lease with an ignored report leaves frames too. The journal records it,
and the opener of the folder passes the `taken` leases; of several frames for a task the last lease's counts.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import ForbiddenError, NotFoundError
from weft.store import codec, disk, tiers
from weft.store.api import ABSENT, SMALL, sizeof

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.codec import Encoded

FOLDER: Final = "values"
"""The name of the folder in a run's folder."""
OWN_FILE: Final = 1 << 20
"""A frame of this many bytes has a file of its own, which is removed when it is freed."""
PACK_BYTES: Final = 64 << 20
"""A pack of this size is followed by another one."""

_MAGIC: Final = b"WFO1"
_HEAD: Final = struct.Struct("<4sIIQ")
_IOV_MAX: Final = 512
_NOWHERE: Final = -1


class _Meta(msgspec.Struct, array_like=True):
    """`large` has (place, offset, bytes, parts) of each value with a chunk of its own; all others share the first one.

    `indexes` are the indexes of sparse rows, by place.
    """

    vertex: str
    lease: int
    lo: int
    count: int
    small_bytes: int
    large: list[tuple[int, int, int, int]]
    indexes: dict[int, bytes] = {}


_decode_meta = msgspec.msgpack.Decoder(_Meta).decode


class _Frame(NamedTuple):
    """A found frame: its meta, and the start of its body."""

    meta: _Meta
    file: int
    path: str
    body: int


class _File:
    """A file and the number of tasks with values in it; `fd` is open until it is synced and full."""

    __slots__ = ("busy", "dirty", "fd", "live", "path", "size")

    def __init__(self, path: str, fd: int = -1) -> None:
        self.path = path
        self.fd = fd
        self.size = 0
        self.live = 0
        self.dirty = False
        self.busy = False

    def close(self) -> None:
        """Close it, unless a sync is running, which closes it."""
        if self.fd >= 0 and not self.busy:
            os.close(self.fd)
            self.fd = -1


class Outputs:
    """The values of a run in a folder that this process owns alone. Safe for any thread.

    `sync` makes a file durable (default: `os.fdatasync`). ForbiddenError, DiskFullError: the folder cannot be made.
    """

    def __init__(self, folder: Path, *, sync: Callable[[int], None] = os.fdatasync) -> None:
        self.folder = str(folder)
        self._sync = sync
        self._lock = threading.Lock()
        self._files: dict[int, _File] = {}
        self._where: dict[str, array[int]] = {}
        self._found: dict[str, dict[int, _Frame]] = {}
        self._trash: list[_File] = []
        self._pack = _NOWHERE
        self._new_names = False
        self._held = False
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            numbers = [int(name.partition(".")[0]) for name in os.listdir(folder) if name.partition(".")[0].isdigit()]
        except OSError as error:
            raise disk.failed(error, self.folder, 0) from None
        self._next = max(numbers, default=-1) + 1

    # ------------------------------------------------------------------------------------------------------- writing

    def put(self, vertex: str, n: int, lease: int, lo: int, cells: Sequence[Any], parts: int = 0) -> list[Any]:
        """Write the values of tasks from `lo` on of a vertex of `n`; return a ref for each large one, None for others.

        `cells` are values, or refs to chunks that can be read now. With `parts`, each piece of a list can be read
        alone. The values are in the file, but not yet synced. ProgramError: a value cannot be pickled. DiskFullError:
        no room; no bytes are left behind.
        """
        small: list[Any] = []
        chunks: list[tuple[int, Encoded]] = []
        for place, cell in enumerate(cells):
            if type(cell) is ChunkRef and cell.tier is not Tier.INLINE:
                chunks.append((place, codec.raw(tiers.open_chunk(cell), cell)))
            elif type(cell) is not ChunkRef and sizeof(cell) < SMALL:
                small.append(cell)
            else:
                value = codec.decode(cell.data) if type(cell) is ChunkRef else cell
                chunks.append((place, codec.encode_row(value) if parts else codec.encode(value)))
        head = codec.encode(small) if small else None
        at = 0 if head is None else head.nbytes
        body: list[bytes | memoryview] = [] if head is None else list(codec.spans(head))
        large: list[tuple[int, int, int, int]] = []
        for place, chunk in chunks:
            start = codec.align(at, chunk.nbytes)
            if start > at:
                body.append(bytes(start - at))
            large.append((place, start, chunk.nbytes, chunk.parts))
            body.extend(codec.spans(chunk))
            at = start + chunk.nbytes
        indexes = {place: chunk.pieces for place, chunk in chunks if chunk.pieces}
        small_bytes = 0 if head is None else head.nbytes
        meta = msgspec.msgpack.encode(_Meta(vertex, lease, lo, len(cells), small_bytes, large, indexes))
        pieces = [_HEAD.pack(_MAGIC, len(meta), zlib.crc32(meta), at), meta, *body]
        path, start = self._write(vertex, n, lo, lo + len(cells), pieces, _HEAD.size + len(meta) + at)
        start += _HEAD.size + len(meta)
        refs: list[Any] = [None] * len(cells)
        for place, offset, nbytes, pieces_of in large:
            index = indexes.get(place, b"")
            refs[place] = ChunkRef(Tier.DISK, path, start + offset, nbytes, pieces_of, pieces=index)
        return refs

    def _write(
        self, vertex: str, n: int, lo: int, hi: int, pieces: list[bytes | memoryview], nbytes: int
    ) -> tuple[str, int]:
        """Append a frame to the pack, or to a file of its own; return its position."""
        try:
            with self._lock:
                if nbytes < OWN_FILE:
                    pack = self._files.get(self._pack)
                    if pack is None or pack.size >= PACK_BYTES:
                        old, self._pack = self._pack, self._begin()
                        self._maybe_remove(old)
                    number = self._pack
                    file = self._files[number]
                    start = self._append(file, pieces, nbytes)
                else:
                    number = self._begin()
                    file = self._files[number]
            if nbytes >= OWN_FILE:  # slow: other puts go on meanwhile
                start = self._append(file, pieces, nbytes)
        except OSError as error:
            raise disk.failed(error, self.folder, nbytes) from error
        with self._lock:
            file.dirty = True
            where = self._where.get(vertex)
            if where is None or len(where) != n:
                known = array("q", () if where is None else where[:n])
                where = self._where[vertex] = known + array("q", [_NOWHERE]) * (n - len(known))
            for index in range(lo, hi):
                self._leave(where, index)
                where[index] = number
            file.live += hi - lo
        self._empty()
        return file.path, start

    def _begin(self) -> int:
        number = self._next
        path = f"{self.folder}/{number:08d}.values"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._next += 1
        self._files[number] = _File(path, fd)
        self._new_names = True
        return number

    @staticmethod
    def _append(file: _File, pieces: list[bytes | memoryview], nbytes: int) -> int:
        """Write at the end of a file, all or nothing; return the offset."""
        at, offset = 0, file.size
        left = list(pieces)
        try:
            while at < len(left):
                written = os.pwritev(file.fd, left[at : at + _IOV_MAX], offset)
                offset += written
                while at < len(left) and written >= len(left[at]):
                    written -= len(left[at])
                    at += 1
                if written:
                    left[at] = memoryview(left[at])[written:]
        except OSError:
            with suppress(OSError):
                os.ftruncate(file.fd, file.size)
            raise
        file.size += nbytes
        return offset - nbytes

    def sync(self) -> None:
        """Make all earlier puts durable. OSError: not possible."""
        with self._lock:
            dirty = [(number, file) for number, file in self._files.items() if file.dirty]
            for _, file in dirty:
                file.dirty, file.busy = False, True
            new, self._new_names = self._new_names, False
        try:
            for _, file in dirty:
                self._sync(file.fd)
            if new:
                disk.sync_folder(self.folder)
        finally:
            with self._lock:
                for number, file in dirty:
                    file.busy = False
                    if number != self._pack and not file.dirty:
                        file.close()

    # ------------------------------------------------------------------------------------------------------- freeing

    def free(
        self, vertex: str, lo: int, hi: int, defer: Callable[[Callable[[], None]], None] = lambda empty: empty()
    ) -> None:
        """Free the values of tasks `lo:hi`; a file is removed with its last value.

        Removing files is slow: that part is handed to `defer`, to be called soon.
        """
        with self._lock:
            where = self._where.get(vertex)
            if where is None or self._held:
                return
            for index in range(lo, min(hi, len(where))):
                self._leave(where, index)
            if not self._trash:
                return
        defer(self._empty)

    def _leave(self, where: array[int], index: int) -> None:
        number = where[index]
        if number < 0:
            return
        where[index] = _NOWHERE
        file = self._files.get(number)
        if file is not None:
            file.live -= 1
            if not file.live:
                self._maybe_remove(number)

    def _maybe_remove(self, number: int) -> None:
        file = self._files.get(number)
        if file is None or file.live > 0 or number == self._pack:
            return
        del self._files[number]
        self._trash.append(file)

    def _empty(self) -> None:
        """Remove the files without values."""
        with self._lock:
            trash, self._trash = self._trash, []
            for file in trash:
                file.close()
        disk.remove(file.path for file in trash)

    def hold(self) -> None:
        """Free nothing from now on: the journal no longer records frees."""
        with self._lock:
            self._held = True

    def close(self) -> None:
        """Close the files, which stay. A second call does nothing."""
        with self._lock:
            files, self._files = list(self._files.values()), {}
            empty = [file.path for file in files if not file.live and not self._held]
            self._held = True
            for file in files:
                file.close()
        disk.remove(empty)

    # ------------------------------------------------------------------------------------------------------- reading

    def find(self, taken: Collection[int] | None = None) -> None:
        """Read the folder of an earlier process; frames of leases that are not in `taken` do not count (None: all do).

        Damaged frames, and those behind them, are skipped. ForbiddenError: a file cannot be read.
        """
        for name in sorted(os.listdir(self.folder)):
            stem, _, kind = name.partition(".")
            if not stem.isdigit() or kind != "values":
                continue
            number = int(stem)
            for frame in _frames(f"{self.folder}/{name}", number):
                meta = frame.meta
                if taken is not None and meta.lease not in taken:
                    continue
                found = self._found.setdefault(meta.vertex, {})
                for index in range(meta.lo, meta.lo + meta.count):
                    before = found.get(index)
                    if before is None or before.meta.lease <= meta.lease:
                        found[index] = frame

    def has(self, vertex: str) -> Collection[int]:
        """Return the tasks of a vertex with found values."""
        return self._found.get(vertex, {}).keys()

    def vertices(self) -> list[str]:
        """Return the vertices with found values."""
        return list(self._found)

    def leases(self) -> set[int]:
        """Return the leases with found frames."""
        return {frame.meta.lease for found in self._found.values() for frame in found.values()}

    def cells(self, vertex: str, indices: Collection[int]) -> list[tuple[int, list[Any]]]:
        """Return the found values of some tasks, as rows of neighbours: (first task, values and refs to large ones).

        Tasks with missing or unreadable values are left out. ProgramError: a class of a value cannot be imported here.
        """
        found = self._found.get(vertex, {})
        rows: list[tuple[int, list[Any]]] = []
        cells: dict[int, list[Any] | None] = {}
        for index in sorted(indices):
            frame = found.get(index)
            if frame is None:
                continue
            key = id(frame)
            if key not in cells:
                cells[key] = _cells_of(frame)
            values = cells[key]
            if values is None:
                continue
            if not rows or rows[-1][0] + len(rows[-1][1]) != index:
                rows.append((index, []))
            rows[-1][1].append(values[index - frame.meta.lo])
        return rows

    def settle(self, wanted: Mapping[str, tuple[int, Collection[int]]]) -> None:
        """Keep the found values of some tasks (by vertex: its size, and the tasks); remove files without any."""
        with self._lock:
            for vertex, (n, indices) in wanted.items():
                found = self._found.get(vertex, {})
                where = self._where[vertex] = array("q", [_NOWHERE]) * n
                for index in indices:
                    frame = found.get(index)
                    if frame is not None:
                        where[index] = frame.file
                        self._files.setdefault(frame.file, _File(frame.path)).live += 1
            known = {file.path for file in self._files.values()}
            left = [f"{self.folder}/{name}" for name in os.listdir(self.folder) if name.endswith(".values")]
            disk.remove(path for path in left if path not in known)


def _frames(path: str, number: int) -> list[_Frame]:
    """Return the complete frames of a file."""
    found: list[_Frame] = []
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return found
    except OSError as error:
        raise ForbiddenError(f"{path} cannot be read: {error.strerror}") from None
    try:
        size, at = os.fstat(fd).st_size, 0
        while at + _HEAD.size <= size:
            magic, meta_bytes, check, body_bytes = _HEAD.unpack(os.pread(fd, _HEAD.size, at))
            body = at + _HEAD.size + meta_bytes
            if magic != _MAGIC or body + body_bytes > size:
                break
            meta = os.pread(fd, meta_bytes, at + _HEAD.size)
            if zlib.crc32(meta) != check:
                break
            try:
                found.append(_Frame(_decode_meta(meta), number, path, body))
            except msgspec.DecodeError:
                break
            at = body + body_bytes
    finally:
        os.close(fd)
    return found


def _cells_of(frame: _Frame) -> list[Any] | None:
    """Return the cells of a frame, None if they cannot be read."""
    meta = frame.meta
    cells: list[Any] = [ABSENT] * meta.count
    for place, offset, nbytes, parts in meta.large:
        index = meta.indexes.get(place, b"")
        cells[place] = ChunkRef(Tier.DISK, frame.path, frame.body + offset, nbytes, parts, pieces=index)
    if meta.small_bytes:
        try:
            small = iter(codec.decode(disk.read_range(frame.path, frame.body, meta.small_bytes)))
        except NotFoundError:
            return None
        cells = [next(small) if cell is ABSENT else cell for cell in cells]
    return cells
