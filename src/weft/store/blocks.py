"""The block manager of one node: columns of chunks over tiers, within the memory granted by the memory manager.

Theory of operation. Cells are plain list slots (see `api`). Small values are only summed; a large value, or one outside
this process's memory, has a `ChunkEntry`, which is in exactly one condition:

===========  ===================================================  ==========================
evictable    in memory or shared memory, not in use               in `memory.lru`, oldest first
pinned       `pins` > 0: it stays in place                        not in `memory.lru`
leaving      one caller writes it to the spill tier               not in `memory.lru`, `busy`
outside      its cell is a ref of tier DISK or OBJECT             not in `memory.lru`
unpicklable  in memory, so that it cannot leave                   not in `memory.lru`
===========  ===================================================  ==========================

The lock of the memory manager guards columns and entries too, and is never held while a byte is read or written; at its
end a spill checks whether its chunk was freed or pinned meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, Any, Final

from weft.model.chunks import OUTSIDE, ChunkRef, Tier
from weft.model.errors import CapacityError, InternalError, NotFoundError, ProgramError
from weft.store import codec, segments, tiers
from weft.store.accounting import ChunkEntry, Garbage, Pin, default_budget, sorted_out
from weft.store.api import ABSENT, FIXED, SMALL, Column, EvictionKey, MemoryGrant, StoreStats, fixed_size, sizeof
from weft.store.disk import ChunkFiles
from weft.store.freeing import PieceFreer, apart
from weft.store.memory import MemoryManager
from weft.store.owned import OwnedFiles
from weft.store.recycling import FreeFiles
from weft.store.row_index import RowIndex
from weft.store.rows import positions, record_rows
from weft.store.segments import INLINE_MAX
from weft.store.spilling import SpillWriter
from weft.store.tiers import SharedMemoryTier, TierStore

if TYPE_CHECKING:
    from pathlib import Path

_RECYCLED_SHARE: Final = 4
"""At most this part of the budget lies in files of freed chunks that wait to be written again."""

_MEMORY: Final = Tier.MEMORY
_SHM: Final = Tier.SHM
_INLINE: Final = Tier.INLINE


class BlockManager:
    """The `ChunkStore` of a node, with a budget.

    `budget` bytes are for memory and shared memory together (default: `default_budget`). `shm` is the run's folder
    under /dev/shm; `spill` is the folder or tier for chunks without room. `overflow` is a folder for chunks that find
    shared memory full or the spill tier out of order (default: the spill folder). Locations in these places belong to
    the store alone; others are read but neither counted nor removed. Without `spill`, no chunk is evicted. `eviction`
    orders the chunks that may leave (default: least recently used first). `ceiling`: see `MemoryManager`. Safe for any
    thread.
    """

    def __init__(
        self,
        budget: int | None = None,
        *,
        shm: Path | str | None = None,
        spill: Path | str | TierStore | None = None,
        overflow: Path | str | None = None,
        eviction: EvictionKey | None = None,
        ceiling: int | None = None,
    ) -> None:
        budget = default_budget(shm) if budget is None else budget
        recycled = FreeFiles(segments.folders(shm), budget // _RECYCLED_SHARE) if shm else None
        self._spill = None if spill is None else tiers.as_tier(spill)
        disk = self._spill if overflow is None else tiers.as_tier(overflow)
        if disk is not None and self._spill is not None and disk.root == self._spill.root:
            disk = self._spill  # a tier is no fallback for itself
        self._writer = None if self._spill is None else SpillWriter(self._spill, disk)
        self.memory = MemoryManager(
            budget,
            ceiling=ceiling,
            eviction=eviction,
            evictor=None if self._spill is None else self,
            recycled=recycled,
        )
        fallback = disk.folder if isinstance(disk, ChunkFiles) else None
        self._shm = None
        if shm is not None and recycled is not None:
            self._shm = SharedMemoryTier(shm, recycled, self.memory.room, self.memory.count_viewed, fallback=fallback)
        self._tiers = [tier for tier in (self._shm, self._spill) if tier is not None]
        if disk is not None and disk is not self._spill:
            self._tiers.append(disk)
        self._files = OwnedFiles(self._tiers, self.memory)
        self._pieces = PieceFreer(self.memory, self._files, self.free_range, self.put_range)
        self._columns: dict[tuple[str, str], Column] = {}
        self._lock = self.memory.lock

    @property
    def roots(self) -> tuple[str, ...]:
        """The path prefixes of all locations that belong to this store."""
        return self._files.roots

    def add_tier(self, tier: TierStore) -> None:
        """Own the locations of a further tier: they are deleted there when no cell refers to them."""
        with self._lock:
            self._tiers.append(tier)
            self._files.add(tier)

    # ------------------------------------------------------------------------------------------------------- columns

    def column(self, key: tuple[str, str], n: int, parts: int = 0) -> Column:
        """Return the column of `key` (job id, vertex id) with `n` cells; see `ChunkStore.column`."""
        with self._lock:
            column = self._columns.get(key)
            if column is None:
                column = self._columns[key] = Column(key, n, parts)
            elif len(column) != n:
                if column.small_count or column.tracked:
                    raise InternalError(f"{column} holds values and cannot become {n} cells")
                column.values[:] = [ABSENT] * n
                column.index = None
            column.parts = parts or column.parts
            if parts and column.index is None:
                column.index = RowIndex(n)
                record_rows(column.index, 0, column.values)
            return column

    def drop(self, key: tuple[str, str]) -> None:
        """Free all cells of a column and remove it; no effect if there is none."""
        with self._lock:
            column = self._columns.pop(key, None)
        if column is not None:
            self.free_range(column, 0, len(column))

    def take_cells(self, key: tuple[str, str], at: Sequence[int], new: tuple[str, str]) -> Column:
        """Return a new column with the cells `at` of column `key`; the old column is dropped with all other cells.

        Chunks stay in place. The old column must not be in use. NotFoundError: there is none.
        """
        with self._lock:
            old = self._columns.get(key)
            if old is None:
                raise NotFoundError(f"there is no column {'/'.join(key)}")
            column = self._columns[new] = Column(new, len(at), old.parts)
            column.plain = old.plain
            each = old.small_bytes // old.small_count if old.small_count else 0
            for to, index in enumerate(at):
                entry = old.tracked.pop(index, None)
                column.values[to], old.values[index] = old.values[index], ABSENT
                if entry is not None:
                    entry.column, entry.index = column, to
                    column.tracked[to] = entry
                elif column.values[to] is not ABSENT:
                    old.small_count -= 1
                    old.small_bytes -= each
                    column.small_count += 1
                    column.small_bytes += each
            if column.parts:
                column.index = RowIndex(len(at))
                record_rows(column.index, 0, column.values)
        self.drop(key)
        return column

    # ----------------------------------------------------------------------------------------------------------- put

    def put_range(
        self,
        column: Column,
        lo: int,
        values: Sequence[Any],
        total_bytes: int | None = None,
        *,
        within: MemoryGrant | None = None,
    ) -> int:
        """Put `values` into the cells from `lo` on and return their bytes; see `ChunkStore.put_range`.

        With `within`, the bytes come out of that reservation, so that they are not counted twice.
        """
        if column.parts and self.memory.half_full:  # pieces that were read may outlive their row, if it is spilled
            values = [apart(row) for row in values]
        hi = lo + len(values)
        if lo < 0 or hi > len(column):
            raise InternalError(f"{column} has no cells {lo}:{hi}")
        count = len(values)
        large: list[ChunkEntry] = []
        small = fixed_size(values)
        if small is None:
            column.plain = False
            count, small, large = sorted_out(column, lo, values)
        elif total_bytes is not None:
            small = total_bytes
        garbage = self.memory.garbage()
        memory = self.memory
        with self._lock:
            if column.small_count or column.tracked:
                self._clear(column, lo, hi, garbage)
            column.values[lo:hi] = values
            if column.index is not None:
                record_rows(column.index, lo, values)
            column.small_count += count
            column.small_bytes += small
            before = memory.used
            memory.used += small
            for entry in large:
                self._adopt(entry)
            if within is not None:
                memory.take_from(within, memory.used - before)
            over = memory.used + memory.reserved > memory.budget
        garbage.collect()
        memory.shrink_recycled()
        if over:
            try:
                memory.make_room(0)
            except CapacityError:
                self.free_range(column, lo, hi)
                raise
        return small + sum(entry.nbytes for entry in large)

    def _adopt(self, entry: ChunkEntry) -> None:
        """Count a new chunk (lock held)."""
        entry.column.tracked[entry.index] = entry
        memory = self.memory
        ref = entry.ref
        if ref is not None:
            owned = self._files.hold(ref)
            if ref.tier in OUTSIDE:
                entry.nbytes = 0
                entry.on_disk = ref.nbytes if owned else 0
                memory.disk_used += entry.on_disk
                return
            if not owned:
                entry.tier, entry.nbytes = Tier.FOREIGN, 0
                return
            memory.shm_used += entry.nbytes
        memory.used += entry.nbytes
        memory.offer(entry)

    @contextmanager
    def holding(self, refs: Iterable[ChunkRef]) -> Iterator[None]:
        """Keep files alive while their chunks are put one by one.

        The chunks of one file belong into one `put_range`. If they go into several columns, put them inside this block;
        otherwise the file is removed with the first freed chunks. Chunks not put by the end of the block are removed.
        """
        held = list({ref.location: ref for ref in refs}.values())
        self.retain(held)
        try:
            yield
        finally:
            self.release(held)

    def retain(self, refs: Iterable[ChunkRef]) -> None:
        """Keep the files of chunks outside of cells until `release`; their bytes are not counted."""
        with self._lock:
            for ref in refs:
                self._files.hold(ref)

    def release(self, refs: Iterable[ChunkRef]) -> None:
        """Undo `retain`: a file without other references is removed."""
        garbage = self.memory.garbage()
        with self._lock:
            for ref in refs:
                self._files.release(ref, 0, garbage)
        garbage.collect()

    def discard(self, refs: Iterable[ChunkRef]) -> None:
        """Remove the files of chunks that were never put and that no cell refers to."""
        for ref in refs:
            self._files.discard(ref.location)

    def add_copy(self, column: Column, index: int, ref: ChunkRef) -> None:
        """Record a file (a durable output, say) with the value of a cell: the value can leave memory without I/O."""
        with self._lock:
            entry = column.tracked.get(index)
            if entry is not None and entry.tier is _MEMORY and entry.ref is None and not entry.busy:
                entry.ref = ref
                if self._files.hold(ref):
                    entry.on_disk = ref.nbytes
                    self.memory.disk_used += ref.nbytes

    # ---------------------------------------------------------------------------------------------------------- read

    def load(self, column: Column, index: int, *, last: bool = False) -> Any:
        """Return the value of a cell; see `ChunkStore.load`."""
        while True:
            cell = column.values[index]
            if type(cell) is not ChunkRef:
                if cell is ABSENT:
                    raise self._absent(column, index)
                if column.tracked:
                    self._touch(column, index)
                return cell
            try:
                return self._load_ref(column, index, cell, last)
            except NotFoundError:
                if column.values[index] is cell:  # else it was spilled meanwhile: read it at its new place
                    raise

    def load_part(self, column: Column, index: int, part: int, *, last: bool = False) -> Any:
        """Return one piece of a partitioned value; see `ChunkStore.load_part`. Pieces read from a file are not kept."""
        while True:
            cell = column.values[index]
            try:
                if type(cell) is ChunkRef:
                    entry = column.tracked.get(index)
                    if entry is not None and entry.freed_parts is not None and entry.freed_parts[part]:
                        raise self._freed(column, index, part)
                    whole = not cell.parts
                    value = self.load(column, index, last=last)[part] if whole else tiers.read_chunk_part(cell, part)
                elif cell is ABSENT:
                    raise self._absent(column, index)
                else:
                    value = cell[part]
            except NotFoundError:
                if column.values[index] is cell:
                    raise
                continue
            if value is ABSENT:
                raise self._freed(column, index, part)
            if column.tracked:
                self._touch(column, index)
            return value

    def load_values(self, column: Column, index: int, edge: str, lo: int, hi: int, *, last: bool = False) -> list[Any]:
        """Return the values of a sparse row; see `ChunkStore.load_values`. Pieces read from a file are not kept."""
        while True:
            cell = column.values[index]
            try:
                if type(cell) is ChunkRef and cell.pieces and cell.parts:
                    entry = column.tracked.get(index)
                    known = entry.freed_parts if entry is not None else None
                    at = positions(cell.pieces, edge, lo, hi)[1] if known is not None else range(0)
                    if known is not None and known.count(1, at.start, at.stop):
                        raise self._freed(column, index, lo)
                    found = tiers.read_values(cell, edge, lo, hi)
                else:
                    found = self.load(column, index, last=last).part(edge, lo, hi)
            except NotFoundError:
                if column.values[index] is cell:
                    raise
                continue
            if column.tracked:
                self._touch(column, index)
            return found

    def _load_ref(self, column: Column, index: int, ref: ChunkRef, last: bool) -> Any:
        if ref.tier is _SHM:
            value = codec.decode(tiers.open_chunk(ref))
            self._touch(column, index)
            return value
        if last or ref.tier is _INLINE:
            value = codec.decode(tiers.read(ref))
            if ref.tier is not _INLINE:
                with self._lock:
                    self.memory.restored += ref.nbytes
            return value
        with self._lock:
            entry = column.tracked.get(index)
            keep = entry is not None and entry.tier is ref.tier and ref.nbytes <= self.memory.budget
            keep = keep and ref.tier is not Tier.PEER  # its node keeps it, and other nodes read it there
        if keep:
            try:
                keep = self.memory.make_room(ref.nbytes)
            except CapacityError:
                keep = False  # it is needed all the same, so it is read, only not kept
        value = codec.decode(tiers.read(ref).toreadonly())
        return self._install(column, index, ref, value) if keep else value

    def _install(self, column: Column, index: int, ref: ChunkRef, value: Any) -> Any:
        """Keep a value just read from disk in its cell, unless the cell changed or the room is taken meanwhile."""
        nbytes = max(sizeof(value), SMALL)
        with self._lock:
            current = column.values[index]
            if current is not ref:
                same = current is not ABSENT and type(current) is not ChunkRef
                return current if same else value
            entry: ChunkEntry = column.tracked[index]
            memory = self.memory
            memory.restored += ref.nbytes
            if memory.used + memory.reserved - memory.leaving + nbytes > memory.budget:
                return value
            entry.tier, entry.nbytes = _MEMORY, nbytes
            column.values[index] = value
            memory.used += nbytes
            memory.offer(entry)
            return value

    @staticmethod
    def _freed(column: Column, index: int, part: int) -> NotFoundError:
        return NotFoundError(f"piece {part} of {'/'.join(column.key)}[{index}] has been freed")

    @staticmethod
    def _absent(column: Column, index: int) -> NotFoundError:
        job, vertex = column.key
        return NotFoundError(f"there is no value of {vertex}[{index}] of job {job}: not made yet, lost or freed")

    def _touch(self, column: Column, index: int) -> None:
        with self._lock:
            self.memory.touch(column.tracked.get(index))

    # ---------------------------------------------------------------------------------------------------------- free

    def free_range(
        self, column: Column, lo: int, hi: int, defer: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        """Make the cells `lo:hi` absent and free their content; absent cells are skipped.

        Removing large values and files is slow: with `defer` that part is handed over, to be called soon.
        """
        garbage = self.memory.garbage()
        large = bool(column.tracked)
        with self._lock:
            self._clear(column, lo, hi, garbage)
            self.memory.changed.notify_all()
        if defer is not None and large:
            defer(garbage.collect)
        else:
            garbage.collect()

    def _clear(self, column: Column, lo: int, hi: int, garbage: Garbage) -> None:
        """Empty cells and uncount their content (lock held)."""
        old = column.values[lo:hi]
        nothing = [ABSENT] * len(old)
        if nothing == old:
            return
        garbage.values.append(old)  # dropped after the lock is released: a destructor may run anything
        tracked = 0
        if column.tracked:
            indexes = range(lo, hi) if hi - lo <= len(column.tracked) else [i for i in column.tracked if lo <= i < hi]
            for index in indexes:
                entry = column.tracked.pop(index, None)
                if entry is not None:
                    tracked += 1
                    self._discard(entry, garbage)
        if column.small_count:
            whole = len(old) == len(column)
            small = column.small_count if whole else len(old) - tracked - sum(map(is_, old, repeat(ABSENT)))
            nbytes = column.small_bytes * small // column.small_count
            column.small_count -= small
            column.small_bytes -= nbytes
            self.memory.used -= nbytes
        column.values[lo:hi] = nothing
        if column.index is not None:
            column.index.clear(lo, hi)

    def _discard(self, entry: ChunkEntry, garbage: Garbage) -> None:
        """Uncount a chunk that left its cell, or let its last user do so (lock held)."""
        entry.dead = True
        self.memory.withdraw(entry)
        if entry.pins or entry.busy:
            return
        if entry.tier is _MEMORY:
            self.memory.leave_with(garbage, entry.nbytes)
        if entry.ref is not None:
            nbytes = entry.nbytes if entry.tier is _SHM else entry.on_disk
            self._files.release(entry.ref, nbytes, garbage)

    def free_parts(self, column: Column, part_lo: int, part_hi: int, lo: int, hi: int) -> None:
        """Free the pieces `part_lo:part_hi` of the cells `lo:hi`; see `ChunkStore.free_parts`."""
        self._pieces.free(column, (part_lo, part_hi), lo, hi)

    # ---------------------------------------------------------------------------------------------------------- pins

    def pin(self, column: Column, indexes: Iterable[int]) -> Pin:
        """Pin the chunks of some cells: they are not evicted, and if freed, their files stay until the release.

        Small and absent cells need no pin and are skipped.
        """
        with self._lock:
            entries = [column.tracked[index] for index in indexes if index in column.tracked]
            self.memory.pin(entries)
        return Pin(self._unpin, entries)

    def _unpin(self, entries: list[ChunkEntry]) -> None:
        garbage = self.memory.garbage()
        with self._lock:
            for entry in self.memory.unpin(entries):
                self._discard(entry, garbage)
        garbage.collect()

    # ------------------------------------------------------------------------------------------------------ eviction

    def evict(self, chosen: list[ChunkEntry]) -> Callable[[], None]:
        """See `Evictor.evict`: chunks with a copy outside are dropped, the others written to the spill tier."""
        memory = self.memory
        garbage = self.memory.garbage()
        victims = []
        for entry in chosen:
            values = entry.column.values
            cell = values[entry.index]
            if entry.tier is _MEMORY and entry.ref is not None:
                values[entry.index] = entry.ref
                garbage.values.append(cell)
                memory.leave_with(garbage, entry.nbytes)
                entry.tier, entry.nbytes = entry.ref.tier, 0
            else:
                entry.busy = True
                memory.leaving += entry.nbytes
                victims.append((entry, cell))

        def spill() -> None:
            garbage.collect()
            if victims:
                self._spill_out(victims)

        return spill

    def _spill_out(self, victims: list[tuple[ChunkEntry, Any]]) -> None:
        """Write chunks to the spill tier and put refs into their cells, unless they were pinned or freed meanwhile."""
        assert self._writer is not None
        memory = self.memory
        written: list[tuple[ChunkEntry, ChunkRef]] = []
        unpicklable: list[ChunkEntry] = []
        garbage = self.memory.garbage()
        chunks: list[codec.Encoded] = []
        try:
            entries = []
            for entry, cell in victims:
                try:
                    chunks.append(self._encoded(entry, cell))
                    entries.append(entry)
                except (ProgramError, NotFoundError):
                    unpicklable.append(entry)  # it has to stay
            cell = None
            written = list(zip(entries, self._writer.write(chunks) if chunks else (), strict=True))
        finally:
            with self._lock:
                for entry, _ in victims:
                    entry.busy = False
                    memory.leaving -= entry.nbytes
                for entry in unpicklable:
                    entry.unpicklable = True
                self._files.register(ref for _, ref in written)
                for entry, ref in written:
                    self._settle(entry, ref, garbage)
                for entry, _ in reversed(victims):
                    if entry.dead:
                        self._discard(entry, garbage)
                    elif entry.tier not in OUTSIDE:
                        memory.offer_first(entry)
                memory.changed.notify_all()
            chunks.clear()  # they view the values
            victims.clear()
            garbage.collect()

    @staticmethod
    def _encoded(entry: ChunkEntry, cell: Any) -> codec.Encoded:
        if type(cell) is ChunkRef:
            return codec.raw(tiers.open_chunk(cell), cell)
        return codec.encode_row(cell) if entry.column.parts else codec.encode(cell)

    def _settle(self, entry: ChunkEntry, ref: ChunkRef, garbage: Garbage) -> None:
        """Record a chunk's copy outside, and drop the one in memory if it is not in use (lock held)."""
        self.memory.spilled += ref.nbytes
        if entry.dead or entry.tier in OUTSIDE or (entry.pins and entry.tier is _SHM):
            self._files.release(ref, ref.nbytes, garbage)
            return
        entry.on_disk = ref.nbytes
        if entry.tier is _MEMORY:
            entry.ref = ref
            if entry.pins:
                return
            self.memory.leave_with(garbage, entry.nbytes)
        elif entry.ref is not None:
            self._files.release(entry.ref, entry.nbytes, garbage)
            entry.ref = ref
        garbage.values.append(entry.column.values[entry.index])
        entry.column.values[entry.index] = ref
        entry.tier, entry.nbytes = ref.tier, 0

    # ------------------------------------------------------------------------------------------------ other processes

    def referring(self, root: str) -> list[tuple[Column, list[int]]]:
        """Return the cells that refer to locations with a prefix, by column."""
        with self._lock:
            found = []
            for column in self._columns.values():
                cells = ((at, column.values[at]) for at in column.tracked)
                at = sorted(at for at, cell in cells if type(cell) is ChunkRef and cell.location.startswith(root))
                if at:
                    found.append((column, at))
            return found

    def replace(self, column: Column, index: int, old: ChunkRef, new: Any) -> bool:
        """Replace a reference in its cell by one to a copy, or by the value. Return False if the cell has changed
        meanwhile.
        """
        garbage = self.memory.garbage()
        with self._lock:
            if index >= len(column) or column.values[index] is not old:
                return False
            self._clear(column, index, index + 1, garbage)
            column.values[index] = new
            if column.index is not None:
                record_rows(column.index, index, [new])
            count, small, large = sorted_out(column, index, [new])
            column.small_count += count
            column.small_bytes += small
            self.memory.used += small
            for entry in large:
                self._adopt(entry)
            over = self.memory.over
        garbage.collect()
        if over:
            with suppress(CapacityError):  # over the budget is better than lost
                self.memory.make_room(0)
        return True

    def share(self, column: Column, indexes: Iterable[int]) -> list[Any]:
        """Return, for each cell, a form that another process can read: a plain small value or a ChunkRef.

        Large values in memory move to shared memory; pin the cells first, as the references hold only while they are
        pinned. NotFoundError: a cell is absent. ProgramError: a value cannot be pickled. DiskFullError: no room.
        """
        wanted = list(indexes)
        cells = [column.values[index] for index in wanted]
        moving: list[int] = []
        chunks: list[codec.Encoded] = []
        for at, (index, cell) in enumerate(zip(wanted, cells, strict=True)):
            if cell is ABSENT:
                raise self._absent(column, index)
            if type(cell) in FIXED:
                continue
            if type(cell) is ChunkRef:
                tier = self._files.tier_of(cell.location)
                if tier is not None and tier.local:
                    moving.append(at)
                    chunks.append(codec.raw(tiers.read(cell), cell))
                continue
            chunk = codec.encode_row(cell) if column.parts else codec.encode(cell)
            if chunk.nbytes <= INLINE_MAX or index not in column.tracked:
                cells[at] = chunk.inline()
            else:
                moving.append(at)
                chunks.append(chunk)
        if moving:
            places = [(wanted[at], cells[at]) for at in moving]
            for at, ref in zip(moving, self._to_shared_memory(column, places, chunks), strict=True):
                cells[at] = ref
        return cells

    def keep_copy(self, column: Column, index: int, ref: ChunkRef, data: memoryview) -> None:
        """Put the bytes of a chunk of another node into shared memory, in the place of its ref in a cell.

        No effect if the cell has changed meanwhile. DiskFullError: no room.
        """
        with suppress(NotFoundError):
            self._to_shared_memory(column, [(index, ref)], [codec.raw(data, ref)])

    def _to_shared_memory(
        self, column: Column, places: Sequence[tuple[int, Any]], chunks: list[codec.Encoded]
    ) -> list[ChunkRef]:
        """Write chunks to shared memory, each in the place of the value of a cell; `chunks` is empty then."""
        if self._shm is None:
            raise InternalError("a store without shared memory cannot share large values with another process")
        refs = self._shm.write(chunks)
        garbage = self.memory.garbage()
        with self._lock:
            self._files.register(refs)
            moved = [
                self._move_to_file(column, index, cell, ref, garbage)
                for (index, cell), ref in zip(places, refs, strict=True)
            ]
            over = self.memory.over
        chunks.clear()  # they view the values
        garbage.collect()
        if over:
            with suppress(CapacityError):  # the shared chunks are in place; over the budget is better than not at all
                self.memory.make_room(0)
        return moved

    def _move_to_file(self, column: Column, index: int, value: Any, ref: ChunkRef, garbage: Garbage) -> ChunkRef:
        """Replace a value in its cell by its ref, unless the cell changed meanwhile (lock held)."""
        entry: ChunkEntry | None = column.tracked.get(index)
        current = column.values[index]
        if entry is None or current is not value:
            self._files.release(ref, ref.nbytes, garbage)
            if type(current) is ChunkRef:
                return current
            raise self._absent(column, index)
        memory = self.memory
        memory.withdraw(entry)
        memory.leave_with(garbage, entry.nbytes)
        if entry.ref is not None:
            self._files.release(entry.ref, entry.on_disk, garbage)
        before = entry.nbytes
        entry.tier, entry.ref = ref.tier, ref
        entry.nbytes, entry.on_disk = (ref.nbytes, 0) if ref.tier is _SHM else (0, ref.nbytes)
        if entry.busy:
            memory.leaving += entry.nbytes - before
        column.values[index] = ref
        garbage.values.append(value)
        memory.offer(entry)
        return ref

    def reclaim(self, prefix: str) -> int:
        """Remove the files of a dead writer (by the prefix of its SegmentWriter) that no cell refers to; return their
        number.

        Call it after all chunks reported by the writer are put.
        """
        with self._lock:
            known = self._files.locations()
        return sum(tier.sweep(prefix, known) for tier in self._tiers)

    # ------------------------------------------------------------------------------------------------------- the rest

    def stats(self) -> StoreStats:
        """Return sums over the current content, in bytes."""
        return self.memory.stats()

    def close(self) -> None:
        """Forget all chunks and remove all files; tasks that wait for memory get RunCancelledError.

        A second time does nothing.
        """
        self.memory.close()
        with self._lock:
            columns, self._columns = list(self._columns.values()), {}
        for column in columns:
            self.free_range(column, 0, len(column))
        with self._lock:
            self._files.clear()  # those that someone has pinned, too
        for tier in self._tiers:
            tier.close()

    def __enter__(self) -> BlockManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
