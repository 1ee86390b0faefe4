"""Freeing of read pieces: rows in memory lose them, files get holes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import NotFoundError
from weft.store import tiers
from weft.store.api import ABSENT, fixed_size, sizeof
from weft.store.row_index import DENSE
from weft.store.rows import EdgeValues, positions, read_index

if TYPE_CHECKING:
    from weft.store.accounting import ChunkEntry
    from weft.store.api import Column
    from weft.store.memory import MemoryManager
    from weft.store.owned import OwnedFiles

_AT_A_TIME: Final = 256
"""Rows whose pieces are freed under one hold of the lock."""


class PieceFreer:
    """The part of a block manager that frees pieces; a cell whose pieces have all been freed is freed too.

    A sparse row stays, with the names of its freed pieces: a reader that comes again misses them, and others see a row
    that has nothing for them.
    """

    def __init__(
        self,
        memory: MemoryManager,
        files: OwnedFiles,
        free_range: Callable[[Column, int, int], None],
        put_range: Callable[[Column, int, list[Any]], int],
    ) -> None:
        self._memory = memory
        self._files = files
        self._free_range = free_range
        self._put_range = put_range

    def free(self, column: Column, parts: tuple[int, int], lo: int, hi: int) -> None:
        """See `ChunkStore.free_parts`."""
        memory = self._memory
        done: list[int] = []
        in_files: list[tuple[int, ChunkRef]] = []
        rows: Sequence[int] = range(lo, hi)
        if column.index is not None and column.index.kind(lo, hi) != DENSE:
            with memory.lock:
                rows = [row for row in column.index.rows(*parts) if lo <= row < hi]
        for first in range(0, len(rows), _AT_A_TIME):
            with memory.lock:
                for index in rows[first : first + _AT_A_TIME]:
                    cell = column.values[index]
                    if type(cell) is ChunkRef:
                        in_files.append((index, cell))
                    elif cell is not ABSENT and _free_in_memory(memory, column, index, *parts):
                        done.append(index)
                memory.changed.notify_all()
        for index, ref in in_files:
            self._free_in_file(column, index, ref, *parts)
        for index in done:
            self._free_range(column, index, index + 1)

    def _free_in_file(self, column: Column, index: int, ref: ChunkRef, lo: int, hi: int) -> None:
        if ref.pieces:
            at = positions(ref.pieces, None, lo, hi)[1]
            lo, hi = at.start, at.stop
        hi = min(hi, ref.parts)
        if lo >= hi:
            return
        with self._memory.lock:
            entry: ChunkEntry | None = column.tracked.get(index)
            if column.values[index] is not ref or entry is None or entry.tier is Tier.FOREIGN:
                return
            if entry.freed_parts is None:
                entry.freed_parts = bytearray(ref.parts)
            entry.freed_parts[lo:hi] = b"\1" * (hi - lo)
            done = 0 not in entry.freed_parts
        if done:
            self._free_range(column, index, index + 1)
            if ref.pieces:
                listed, edges = read_index(ref.pieces)
                names = {edge: dict.fromkeys(parts, ABSENT) for edge, parts in edges}
                self._put_range(column, index, [EdgeValues(names, listed)])
        else:
            self._punch(entry, ref, lo, hi)

    def _punch(self, entry: ChunkEntry, ref: ChunkRef, lo: int, hi: int) -> None:
        """Free the bytes of pieces `lo:hi` in the file of a chunk."""
        # Files of others keep their bytes, as do ranges with hardly a page to free.
        with self._memory.lock:
            tier = self._files.tier_of(ref.location)
        if tier is None or not tier.freeable(0, ref.nbytes * (hi - lo) // (2 * ref.parts))[1]:
            return
        try:
            pieces = [piece for piece in tiers.directory(ref, lo, hi) if piece[1]]
        except NotFoundError:
            return  # moved or freed meanwhile
        if not pieces:
            return
        first, (last_at, last_nbytes) = pieces[0][0], pieces[-1]
        start, size = tier.freeable(ref.offset + first, last_at + last_nbytes - first)
        if not tier.free(ref.location, start, size):
            return
        memory = self._memory
        with memory.lock:
            if entry.dead or entry.busy or entry.ref is not ref:
                return
            if ref.tier is Tier.SHM:
                given = min(size, entry.nbytes)
                memory.shm_used -= given
                memory.resize(entry, entry.nbytes - given)
            else:
                given = min(size, entry.on_disk)
                entry.on_disk -= given
                memory.disk_used -= given
            memory.changed.notify_all()


def _free_in_memory(memory: MemoryManager, column: Column, index: int, lo: int, hi: int) -> bool:
    """Free the pieces `lo:hi` of a row in memory (lock of `memory` held). Return whether the cell can be freed too."""
    row = column.values[index]
    old: list[Any] = []
    done = False
    if type(row) is EdgeValues:
        for found in row.by_edge.values():
            for part in range(lo, hi) if hi - lo <= len(found) else [part for part in found if lo <= part < hi]:
                values = found.get(part)
                if values is not None and values is not ABSENT:
                    old += values
                    found[part] = ABSENT
    else:
        if not isinstance(row, list):
            row = column.values[index] = list(row)
        old = row[lo:hi]
        row[lo:hi] = [ABSENT] * len(old)
        # The ends first: freeing in order would make this a long search otherwise.
        done = row[0] is ABSENT and row[-1] is ABSENT and all(map(operator.is_, row, repeat(ABSENT)))
    entry = column.tracked.get(index)
    if entry is not None and not entry.busy:
        given = fixed_size(old)
        if given is None:
            given = sum([sizeof(piece) for piece in old if not _shares(piece)])
        memory.resize(entry, entry.nbytes - min(entry.nbytes, given))
    return done


def apart(row: Any) -> Any:
    """Return a row whose pieces hold memory of their own: a view holds the whole of what it was cut from."""
    if type(row) is not list or len(row) < 2:
        return row
    return [piece.copy() if _shares(piece) and hasattr(piece, "copy") else piece for piece in row]


def _shares(piece: Any) -> bool:
    """Whether a piece is a view of memory that others may look at: freeing it alone gives nothing back."""
    return getattr(piece, "base", None) is not None
