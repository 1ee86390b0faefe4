"""Tiers: the kinds of places of chunks, with their writers, and readers for any process.

A chunk in memory is the value in its cell and needs no tier. Every other tier is a `TierStore` of the process that owns
it (shared memory, a folder on disk, objects by fsspec). Any process reads its `ChunkRef`s by the functions below, which
find the reader by the ref's tier; no other code opens a location.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.model.chunks import OUTSIDE, ChunkRef, Tier
from weft.store import codec, disk, segments
from weft.store.api import ABSENT
from weft.store.disk import ChunkFiles
from weft.store.folders import is_url
from weft.store.rows import joined, positions
from weft.store.segments import SegmentWriter

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.codec import Encoded
    from weft.store.folders import RunFolders
    from weft.store.recycling import FreeFiles


class TierStore(Protocol):
    """Chunks of one tier that this process owns. Every method may be called from any thread."""

    @property
    def root(self) -> str:
        """The path prefix of all its locations, and of no others."""
        ...

    @property
    def local(self) -> bool:
        """Whether only this process can read the chunks."""
        ...

    def write(self, chunks: Sequence[Encoded]) -> list[ChunkRef]:
        """Write chunks, all or none; refs come in the same order.

        DiskFullError: no room. CapacityError: it cannot be written to for another reason.
        """
        ...

    def delete(self, locations: Iterable[str]) -> None:
        """Remove whole locations; missing ones are skipped."""
        ...

    def freeable(self, offset: int, nbytes: int) -> tuple[int, int]:
        """Return start and size of the part of a range that `free` can free; size 0 if there is none."""
        ...

    def free(self, location: str, start: int, nbytes: int) -> bool:
        """Free a part of a location, which then reads as zeros. Return whether that was done."""
        ...

    def sweep(self, prefix: str, known: Container[str]) -> int:
        """Remove locations of the writer with this prefix that are not `known`; return their number."""
        ...

    def close(self) -> None:
        """Remove all remaining locations."""
        ...


class SharedMemoryTier:
    """Shared memory of a node: files below `folder`; `fallback` is a folder on disk for chunks that find it full.

    Freed files are kept in `recycled` while there is `room()` in the memory budget. `count_viewed` counts the mapping
    of a freed file that arrays still view.
    """

    local = False

    def __init__(
        self,
        folder: Path | str,
        recycled: FreeFiles,
        room: Callable[[], int],
        count_viewed: Callable[[Any], None],
        *,
        fallback: Path | str | None = None,
    ) -> None:
        self.root = f"{folder}/"
        self._folders = segments.folders(folder)
        self._writer = SegmentWriter(folder, prefix="store-", fallback=fallback)
        self._recycled = recycled
        self._room = room
        self._count_viewed = count_viewed

    def write(self, chunks: Sequence[Encoded]) -> list[ChunkRef]:
        """See `TierStore.write`; chunks that find shared memory full lie in the fallback folder."""
        return self._writer.write(chunks)

    def delete(self, locations: Iterable[str]) -> None:
        """See `TierStore.delete`; arrays that view a file keep its memory, which counts as long as they live."""
        for path in locations:
            viewed = segments.forget(path)
            if viewed is not None:
                self._count_viewed(viewed)
            if viewed is not None or not self._recycled.keep(path, self._room()):
                disk.remove([path])

    def freeable(self, offset: int, nbytes: int) -> tuple[int, int]:
        """See `TierStore.freeable`: whole pages."""
        return disk.freeable(offset, nbytes)

    def free(self, location: str, start: int, nbytes: int) -> bool:
        """See `TierStore.free`."""
        return disk.punch(location, start, nbytes)

    def sweep(self, prefix: str, known: Container[str]) -> int:
        """See `TierStore.sweep`."""
        return sum(disk.sweep(f"{folder}/{prefix}", known) for folder in self._folders)

    def close(self) -> None:
        """See `TierStore.close`."""
        segments.forget_all()
        self._recycled.close()
        self.sweep("", ())


def spill_tier(spill: object, folders: RunFolders) -> Path | TierStore:
    """Return the spill tier of a store: the folder of a run, or objects below the URL `spill`, if it is one.

    Errors: see `weft.store.objects.ObjectTier`.
    """
    if not is_url(spill):
        return folders.spill
    from weft.store.objects import ObjectTier, remember  # fsspec is slow to import

    remember(folders.state, f"{spill.rstrip('/')}/{folders.run_id}/")
    return ObjectTier(spill, folders.run_id)


def as_tier(spill: Path | str | TierStore) -> TierStore:
    """Return the tier of a folder; a tier is returned as it is."""
    return ChunkFiles(spill) if isinstance(spill, (str, os.PathLike)) else spill


# ----------------------------------------------------------------------------------------------------------- reading

RangeReader = Callable[[str, int, int], memoryview]
"""Reads `nbytes` from byte `offset` of a location into private, writable memory.

NotFoundError: they are not there; UnreadableError: they are there and cannot be read.
"""


def _read_object(location: str, offset: int, nbytes: int) -> memoryview:
    from weft.store import objects  # fsspec is slow to import

    return objects.read_range(location, offset, nbytes)


def _read_peer(location: str, offset: int, nbytes: int) -> memoryview:
    from weft.store import peers  # one machine alone has none

    return peers.read_range(location, offset, nbytes)


_READERS: Final[dict[Tier, RangeReader]] = {
    Tier.PEER: _read_peer,
    Tier.SHM: disk.read_range,
    Tier.DISK: disk.read_range,
    Tier.OBJECT: _read_object,
}


def read(ref: ChunkRef) -> memoryview:
    """Read a chunk into private, writable memory.

    NotFoundError: it is missing or too short. UnreadableError: it exists and cannot be read.
    """
    if ref.tier is Tier.INLINE:
        return memoryview(bytearray(ref.data))
    return _READERS[ref.tier](ref.location, ref.offset, ref.nbytes)


def read_slice(ref: ChunkRef, offset: int, nbytes: int) -> memoryview:
    """Read `nbytes` from byte `offset` of a chunk into private memory; errors as `read`."""
    if ref.tier is Tier.INLINE:
        return memoryview(bytearray(ref.data[offset : offset + nbytes]))
    return _READERS[ref.tier](ref.location, ref.offset + offset, nbytes)


def read_part(ref: ChunkRef, part: int) -> memoryview | None:
    """Read one piece of a partitioned chunk into private memory, None if it was freed; errors as `read`."""
    offset, nbytes = directory(ref, part, part + 1)[0]
    return _READERS[ref.tier](ref.location, ref.offset + offset, nbytes) if nbytes else None


def part_nbytes(ref: ChunkRef, lo: int, hi: int) -> int:
    """Return the bytes of pieces `lo:hi` of a partitioned chunk, 0 for freed ones; errors as `read`."""
    return sum(nbytes for _, nbytes in directory(ref, lo, hi))


def directory(ref: ChunkRef, lo: int, hi: int) -> Sequence[tuple[int, int]]:
    """Return offset in the chunk and bytes of the pieces `lo:hi` of a partitioned chunk; errors as `read`."""
    start, size = codec.directory_range(lo, min(hi, ref.parts))
    if ref.tier is Tier.INLINE:
        part: bytes | memoryview = ref.data[start : start + size]
    else:
        part = _READERS[ref.tier](ref.location, ref.offset + start, size)
    return codec.directory(part, ref.nbytes)


def open_chunk(ref: ChunkRef, opened: list[Any] | None = None) -> memoryview:
    """Return a chunk's bytes, read-only: shared memory is mapped, all else is read.

    The mapping is added to `opened`, so that the caller can choose the time of its slow release. Errors as `read`.
    """
    if ref.tier is Tier.INLINE:
        return memoryview(ref.data)
    if ref.tier is not Tier.SHM:
        return read(ref).toreadonly()
    try:
        pages = segments.mapping(ref.location)
    except OSError as error:
        if error.errno in (errno.ENOMEM, errno.EMFILE, errno.ENFILE):  # too many mappings: a copy works too
            return read(ref).toreadonly()
        raise disk.unread(ref.location, error) from error
    if opened is not None:
        opened.append(pages)
    view = memoryview(pages).cast("B")
    if ref.offset + ref.nbytes > view.nbytes:
        raise disk.lost(ref.location, f"it ends before byte {ref.offset + ref.nbytes:,}")
    return view[ref.offset : ref.offset + ref.nbytes].toreadonly()


def read_chunk(ref: ChunkRef, opened: list[Any] | None = None) -> Any:
    """Return the value of a chunk in this process; arrays and tables are views. Errors of `open_chunk` and `decode`."""
    return codec.decode(open_chunk(ref, opened))


def read_values(ref: ChunkRef, edge: str, lo: int, hi: int) -> list[Any]:
    """Return the values of partitions `lo:hi` of an edge from the chunk of a sparse row, without others if it can be.

    Errors as `read_chunk`; NotFoundError too: they have been freed.
    """
    if not ref.parts:
        values: list[Any] = read_chunk(ref).part(edge, lo, hi)
        return values
    listed, at, parts = positions(ref.pieces, edge, lo, hi)
    return joined([(part, read_chunk_part(ref, where)) for where, part in zip(at, parts, strict=True)], lo, hi, listed)


def fetch_parts(wanted: Sequence[tuple[ChunkRef, int, int]]) -> None:
    """Fetch pieces of partitioned chunks, with their first and end, before they are read one by one.

    Pieces at other nodes come in one request for each node; elsewhere nothing is gained.
    """
    far = [(ref.location, lo, hi) for ref, lo, hi in wanted if ref.tier is Tier.PEER and ref.parts and lo < hi]
    if len(far) > 1:
        from weft.store import peers  # one machine alone has none

        peers.fetch_pieces(far)


def read_chunk_part(ref: ChunkRef, part: int) -> Any:
    """Return one piece of a partitioned chunk; from outside memory, only that piece is read. Errors as `read_chunk`."""
    if ref.parts and ref.tier in OUTSIDE:
        if ref.tier is Tier.PEER:
            from weft.store import peers  # one machine alone has none

            if peers.is_fetched(ref.location, part):
                fetched = peers.take_fetched(ref.location, part)
                return ABSENT if fetched is None else codec.decode(fetched.toreadonly())
        piece = read_part(ref, part)
        return ABSENT if piece is None else codec.decode(piece.toreadonly())
    return codec.decode_part(open_chunk(ref), part)
