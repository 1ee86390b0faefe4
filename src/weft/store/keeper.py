"""The keeper of one node: memory budget, pins, eviction, spill and the quota of tasks.

Theory of operation. Cells are plain list slots (see `api`). Small values are only summed; a large value, or one in a
file, has an `Entry`, which is in exactly one condition:

==========  ====================================================  ==========================
evictable   in memory or shared memory, nobody uses it            in `_lru`, oldest first
pinned      `pins` > 0: it stays where it is                      not in `_lru`
leaving     one caller writes it to disk                          not in `_lru`, `busy`
on disk     its cell is a ref of tier "disk"                      not in `_lru`
stuck       in memory and cannot be pickled, so cannot leave      not in `_lru`
==========  ====================================================  ==========================

`_used` are the bytes of chunks in memory and shared memory, `_reserved` those granted to tasks and not stored yet;
the keeper holds `_used + _reserved <= budget` as long as something is evictable. Whoever needs room makes it: the
thread that puts, restores or reserves also spills. One lock guards all of this and is never held while a byte is read
or written; a spill that ends finds out whether its chunk was freed or pinned meanwhile.

Waiting happens in one place, `reserve`. Growth beyond a reservation never waits: it spills, its own chunks too.
"""

from __future__ import annotations

import glob
import itertools
import threading
from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, Any, Final

from weft.model.chunks import ChunkRef
from weft.model.errors import (
    CapacityError,
    InternalError,
    NotFoundError,
    ProgramError,
    RunCancelledError,
)
from weft.store import codec, disk, segments
from weft.store.api import ABSENT, FIXED, SMALL, Column, EvictionKey, fixed_size, sizeof
from weft.store.disk import ChunkFiles
from weft.store.holdings import (
    Entry,
    HeldFile,
    Stats,
    Trash,
    default_budget,
    give_back,
    in_order,
    no_trash,
    resident_bytes,
)
from weft.store.recycling import FreeFiles
from weft.store.segments import INLINE_MAX, SegmentWriter

if TYPE_CHECKING:
    from pathlib import Path

_CANCEL_POLL_S: Final = 0.1
_SPILL_SHARE: Final = 64
"""A spill frees at least this part of the budget where it can, so that files are not tiny."""
_RECYCLED_SHARE: Final = 4
"""At most this part of the budget lies in files of freed chunks that wait to be written again."""


class Reservation:
    """Memory granted to one task for its inputs and outputs; give it back with `release` or a `with` block."""

    __slots__ = ("_keeper", "nbytes", "owner")

    def __init__(self, keeper: Keeper, owner: str, nbytes: int) -> None:
        self._keeper = keeper
        self.owner = owner
        self.nbytes = nbytes

    def shrink(self, actual: int) -> None:
        """Give back all but `actual` bytes; nothing happens if no more than that is held."""
        self._keeper._resize(self, min(actual, self.nbytes))

    def grow(self, extra: int) -> None:
        """Take `extra` bytes more without waiting: others are spilled. DiskFullError: the spill disk is full."""
        self._keeper._resize(self, self.nbytes + extra)

    def release(self) -> None:
        """Give everything back; a second time does nothing."""
        self._keeper._resize(self, 0)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Pin:
    """Keeps some chunks where they are until `release`, or the end of a `with` block."""

    __slots__ = ("_entries", "_keeper")

    def __init__(self, keeper: Keeper, entries: list[Entry]) -> None:
        self._keeper = keeper
        self._entries = entries

    def release(self) -> None:
        """Let go of the chunks; a second time does nothing."""
        entries, self._entries = self._entries, []
        self._keeper._unpin(entries)

    def __enter__(self) -> Pin:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Keeper:
    """The ChunkStore of a node, with a budget.

    `budget` bytes are for memory and shared memory together (default: `default_budget`). `shm` is the run's folder
    under /dev/shm, `spill` its folder on disk (or the writer to use for it). Files in these folders are the keeper's
    alone; files elsewhere are read but neither counted nor removed. Without `spill`, nothing is evicted. `eviction`
    orders the chunks that may leave (default: least recently used first). `ceiling` are the bytes that the whole
    process is to stay under: where it would hold more, what was freed is given back to the system. Safe for any thread.
    """

    def __init__(
        self,
        budget: int | None = None,
        *,
        shm: Path | str | None = None,
        spill: Path | str | ChunkFiles | None = None,
        eviction: EvictionKey | None = None,
        ceiling: int | None = None,
    ) -> None:
        self.budget = default_budget(shm) if budget is None else budget
        self.ceiling = self.budget if ceiling is None else ceiling
        self._tight = ceiling is not None
        self._spill = spill if spill is None or isinstance(spill, ChunkFiles) else ChunkFiles(spill)
        spill_folder = None if self._spill is None else self._spill.folder
        self._writer = None if shm is None else SegmentWriter(shm, prefix="keeper-", fallback=spill_folder)
        self._recycled = FreeFiles(f"{shm}/{segments.RECYCLED}", self.budget // _RECYCLED_SHARE) if shm else None
        self._owned = tuple(f"{folder}/" for folder in (shm, spill_folder) if folder is not None)
        self._eviction = eviction
        self._columns: dict[tuple[str, str], Column] = {}
        self._files: dict[str, HeldFile] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._lru: OrderedDict[Entry, None] = OrderedDict()
        self._queue: list[tuple[float, int]] = []
        self._tickets = itertools.count()
        self._tick = 0
        self._used = self._reserved = self._evictable = self._leaving = self._pinned = 0
        self._shm_used = self._disk_used = self._spilled = self._restored = 0
        self._closed = False

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
            column.parts = parts or column.parts
            return column

    def drop(self, key: tuple[str, str]) -> None:
        """Free all cells of a column and forget it; nothing happens if there is none."""
        with self._lock:
            column = self._columns.pop(key, None)
        if column is not None:
            self.free_range(column, 0, len(column))

    def take(self, key: tuple[str, str], at: Sequence[int], new: tuple[str, str]) -> Column:
        """Return a new column that has the cells `at` of column `key`, which is dropped with what is left in it.

        Chunks stay where they are. Nobody may be at work on the old column. NotFoundError: there is none.
        """
        with self._lock:
            old = self._columns.get(key)
            if old is None:
                raise NotFoundError(f"there is no column {'/'.join(key)}")
            column = self._columns[new] = Column(new, len(at), old.parts)
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
        within: Reservation | None = None,
    ) -> int:
        """Put `values` into the cells from `lo` on and return their bytes; see `ChunkStore.put_range`.

        With `within`, the bytes come out of that reservation, so that they are not counted twice.
        """
        hi = lo + len(values)
        if lo < 0 or hi > len(column):
            raise InternalError(f"{column} has no cells {lo}:{hi}")
        count = len(values)
        large: list[Entry] = []
        small = fixed_size(set(map(type, values)), values)
        if small is None:
            count, small, large = _sorted_out(column, lo, values)
        elif total_bytes is not None:
            small = total_bytes
        trash = no_trash()
        with self._lock:
            if column.small_count or column.tracked:
                self._clear(column, lo, hi, trash)
            column.values[lo:hi] = values
            column.small_count += count
            column.small_bytes += small
            before = self._used
            self._used += small
            for entry in large:
                self._adopt(entry)
            if within is not None:
                moved = min(within.nbytes, self._used - before)
                within.nbytes -= moved
                self._reserved -= moved
            over = self._used + self._reserved > self.budget
        self._empty(trash)
        self._shrink_recycled()
        if over:
            try:
                self._make_room(0)
            except CapacityError:
                self.free_range(column, lo, hi)
                raise
        return small + sum(entry.nbytes for entry in large)

    def _adopt(self, entry: Entry) -> None:
        """Count a new chunk (lock held)."""
        entry.column.tracked[entry.index] = entry
        ref = entry.ref
        if ref is not None:
            owned = ref.path.startswith(self._owned)
            if owned:
                self._files.setdefault(ref.path, HeldFile()).live += 1
            if ref.tier == "disk":
                entry.nbytes = 0
                entry.on_disk = ref.nbytes if owned else 0
                self._disk_used += entry.on_disk
                return
            if not owned:
                entry.tier, entry.nbytes = "foreign", 0
                return
            self._shm_used += entry.nbytes
        self._used += entry.nbytes
        self._offer(entry)

    @contextmanager
    def holding(self, refs: Iterable[ChunkRef]) -> Iterator[None]:
        """Keep files alive while their chunks are put one by one.

        The chunks of one file belong into one `put_range`; where they go into several columns, put them inside this
        block, or the file goes when the first of them are freed. What is not put by the end of the block is removed.
        """
        held = list({ref.path: ref for ref in refs}.values())
        self.keep(held)
        try:
            yield
        finally:
            self.let_go(held)

    def keep(self, refs: Iterable[ChunkRef]) -> None:
        """Keep the files of chunks that lie in no cell until `let_go`; their bytes are not counted."""
        with self._lock:
            for ref in refs:
                if ref.path.startswith(self._owned):
                    self._files.setdefault(ref.path, HeldFile()).live += 1

    def let_go(self, refs: Iterable[ChunkRef]) -> None:
        """Undo `keep`: a file that nothing else refers to is removed."""
        trash = no_trash()
        with self._lock:
            for ref in refs:
                self._release_ref(ChunkRef(ref.tier, ref.path, 0, 0), 0, trash)
        self._empty(trash)

    def back(self, column: Column, index: int, ref: ChunkRef) -> None:
        """Note that the value in a cell is also in a file, a durable output say: it can leave memory without I/O."""
        with self._lock:
            entry = column.tracked.get(index)
            if entry is not None and entry.tier == "memory" and entry.ref is None and not entry.busy:
                entry.ref = ref
                if ref.path.startswith(self._owned):
                    self._files.setdefault(ref.path, HeldFile()).live += 1
                    entry.on_disk = ref.nbytes
                    self._disk_used += ref.nbytes

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
                if column.values[index] is cell:  # else it was spilled under our eyes: read it where it is now
                    raise

    def load_part(self, column: Column, index: int, part: int, *, last: bool = False) -> Any:
        """Return one piece of a partitioned value; see `ChunkStore.load_part`. Pieces read from a file are not kept."""
        while True:
            cell = column.values[index]
            try:
                if type(cell) is ChunkRef:
                    whole = not cell.parts
                    value = self.load(column, index, last=last)[part] if whole else segments.read_chunk_part(cell, part)
                elif cell is ABSENT:
                    raise self._absent(column, index)
                else:
                    value = cell[part]
            except NotFoundError:
                if column.values[index] is cell:
                    raise
                continue
            if value is ABSENT:
                raise NotFoundError(f"piece {part} of {'/'.join(column.key)}[{index}] has been freed")
            if column.tracked:
                self._touch(column, index)
            return value

    def _load_ref(self, column: Column, index: int, ref: ChunkRef, last: bool) -> Any:
        if ref.tier == "shm":
            value = codec.decode(segments.open_chunk(ref))
            self._touch(column, index)
            return value
        if last or ref.tier == "inline":
            value = codec.decode(disk.read(ref))
            if ref.tier == "disk":
                with self._lock:
                    self._restored += ref.nbytes
            return value
        with self._lock:
            entry = column.tracked.get(index)
            keep = entry is not None and entry.tier == "disk" and ref.nbytes <= self.budget
        if keep:
            try:
                keep = self._make_room(ref.nbytes)
            except CapacityError:
                keep = False  # it is needed all the same, so it is read, only not kept
        value = codec.decode(disk.read(ref).toreadonly())
        return self._install(column, index, ref, value) if keep else value

    def _install(self, column: Column, index: int, ref: ChunkRef, value: Any) -> Any:
        """Keep a value just read from disk in its cell, unless that has changed or others took the room meanwhile."""
        nbytes = max(sizeof(value), SMALL)
        with self._lock:
            current = column.values[index]
            if current is not ref:
                same = current is not ABSENT and type(current) is not ChunkRef
                return current if same else value
            entry: Entry = column.tracked[index]
            self._restored += ref.nbytes
            if self._used + self._reserved - self._leaving + nbytes > self.budget:
                return value
            entry.tier, entry.nbytes = "memory", nbytes
            column.values[index] = value
            self._used += nbytes
            self._offer(entry)
            return value

    @staticmethod
    def _absent(column: Column, index: int) -> NotFoundError:
        job, vertex = column.key
        return NotFoundError(f"there is no value of {vertex}[{index}] of job {job}: not made yet, lost or freed")

    def _touch(self, column: Column, index: int) -> None:
        with self._lock:
            entry = column.tracked.get(index)
            if entry is not None and entry in self._lru:
                self._tick += 1
                entry.used = self._tick
                self._lru.move_to_end(entry)

    # ---------------------------------------------------------------------------------------------------------- free

    def free_range(
        self, column: Column, lo: int, hi: int, defer: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        """Make the cells `lo:hi` absent and give back what they held; absent cells are passed over.

        Removing large values and files takes a while: with `defer` that part is handed over, to be called soon.
        """
        trash = no_trash()
        large = bool(column.tracked)
        with self._lock:
            self._clear(column, lo, hi, trash)
            self._changed.notify_all()
        if defer is not None and large:
            defer(lambda: self._empty(trash))
        else:
            self._empty(trash)

    def _clear(self, column: Column, lo: int, hi: int, trash: Trash) -> None:
        """Empty cells and uncount what they held (lock held)."""
        old = column.values[lo:hi]
        trash.values.append(old)  # to die after the lock is given back: a destructor may run anything
        tracked = 0
        if column.tracked:
            indexes = range(lo, hi) if hi - lo <= len(column.tracked) else [i for i in column.tracked if lo <= i < hi]
            for index in indexes:
                entry = column.tracked.pop(index, None)
                if entry is not None:
                    tracked += 1
                    self._discard(entry, trash)
        if column.small_count:
            small = len(old) - tracked - sum(map(is_, old, repeat(ABSENT)))
            nbytes = column.small_bytes * small // column.small_count
            column.small_count -= small
            column.small_bytes -= nbytes
            self._used -= nbytes
        column.values[lo:hi] = [ABSENT] * len(old)

    def _discard(self, entry: Entry, trash: Trash) -> None:
        """Uncount a chunk that left its cell, or have whoever uses it do so at the end (lock held)."""
        entry.dead = True
        self._withdraw(entry)
        if entry.pins or entry.busy:
            return
        if entry.tier == "memory":
            self._used -= entry.nbytes
        if entry.ref is not None:
            nbytes = entry.nbytes if entry.tier == "shm" else entry.on_disk
            self._release_ref(entry.ref, nbytes, trash)

    def _release_ref(self, ref: ChunkRef, nbytes: int, trash: Trash) -> None:
        """Uncount `nbytes` of a chunk in a file; the file goes with its last chunk (lock held)."""
        file = self._files.get(ref.path)
        if file is None:  # not ours
            return
        file.live -= 1
        if file.live == 0:
            del self._files[ref.path]
            trash.files.append(ref.path)
            self._uncount(ref.tier, nbytes + file.pending)
            return
        start, size = disk.interior(ref.offset, ref.nbytes) if disk.CAN_PUNCH else (0, 0)
        size = min(size, nbytes)
        if size:
            trash.holes.append((ref.path, start, size))
        file.pending += nbytes - size
        self._uncount(ref.tier, size)

    def _empty(self, trash: Trash) -> None:
        for path in trash.files:
            segments.forget(path)
            if (
                self._recycled is None
                or not path.startswith(self._recycled.beside)
                or not self._recycled.keep(path, self._room())
            ):
                disk.remove([path])
        for hole in trash.holes:
            disk.punch(*hole)
        trash.values.clear()

    def _shrink_recycled(self) -> None:
        """What is kept for later makes room for what is needed now."""
        if self._recycled is not None and self._recycled.kept:
            self._recycled.shrink(self._room())

    def _room(self) -> int:
        """Return how many bytes of the budget nobody uses, as far as can be said without the lock."""
        return self.budget - self._used - self._reserved

    def _uncount(self, tier: str, nbytes: int) -> None:
        if tier == "disk":
            self._disk_used -= nbytes
        else:
            self._shm_used -= nbytes
            self._used -= nbytes

    def free_parts(self, column: Column, part_lo: int, part_hi: int, lo: int, hi: int) -> None:
        """Give back the pieces `part_lo:part_hi` of the cells `lo:hi`; see `ChunkStore.free_parts`.

        A cell whose pieces have all been freed becomes absent.
        """
        for index in range(lo, hi):
            cell = column.values[index]
            if cell is ABSENT:
                continue
            if type(cell) is ChunkRef:
                self._free_parts_in_file(column, index, cell, part_lo, part_hi)
            else:
                self._free_parts_in_memory(column, index, part_lo, part_hi)

    def _free_parts_in_memory(self, column: Column, index: int, part_lo: int, part_hi: int) -> None:
        with self._lock:
            cell = column.values[index]
            if cell is ABSENT or type(cell) is ChunkRef:
                return
            if not isinstance(cell, list):
                cell = column.values[index] = list(cell)
            old = cell[part_lo:part_hi]
            cell[part_lo:part_hi] = [ABSENT] * len(old)
            entry = column.tracked.get(index)
            if entry is not None and not entry.busy:
                given = min(entry.nbytes, sum([sizeof(piece) for piece in old if not _shares(piece)]))
                self._resize_entry(entry, entry.nbytes - given)
                self._changed.notify_all()
            # The ends first: whoever frees in order would make this a long search otherwise.
            done = cell[0] is ABSENT and cell[-1] is ABSENT and all(map(is_, cell, repeat(ABSENT)))
        if done:
            self.free_range(column, index, index + 1)

    def _free_parts_in_file(self, column: Column, index: int, ref: ChunkRef, part_lo: int, part_hi: int) -> None:
        if not ref.parts:
            return
        with self._lock:
            entry: Entry | None = column.tracked.get(index)
            if column.values[index] is not ref or entry is None or entry.tier == "foreign":
                return
            if entry.freed_parts is None:
                entry.freed_parts = bytearray(ref.parts)
            entry.freed_parts[part_lo:part_hi] = b"\1" * (min(part_hi, ref.parts) - part_lo)
            done = 0 not in entry.freed_parts
        if done:
            self.free_range(column, index, index + 1)
            return
        if not disk.CAN_PUNCH or ref.nbytes * (part_hi - part_lo) < 2 * codec.PAGE * ref.parts:
            return  # hardly a page to win
        try:
            head = disk.read_range(ref.path, ref.offset, codec.directory_nbytes(ref.parts))
        except NotFoundError:
            return  # moved or freed meanwhile
        pieces = [piece for piece in codec.directory(head, ref.parts, ref.nbytes)[part_lo:part_hi] if piece[1]]
        if not pieces:
            return
        first, (last_at, last_nbytes) = pieces[0][0], pieces[-1]
        start, size = disk.interior(ref.offset + first, last_at + last_nbytes - first)
        if not disk.punch(ref.path, start, size):
            return
        with self._lock:
            if entry.dead or entry.busy or entry.ref is not ref:
                return
            if ref.tier == "disk":
                given = min(size, entry.on_disk)
                entry.on_disk -= given
                self._disk_used -= given
            else:
                given = min(size, entry.nbytes)
                self._shm_used -= given
                self._resize_entry(entry, entry.nbytes - given)
            self._changed.notify_all()

    def _resize_entry(self, entry: Entry, nbytes: int) -> None:
        """Change what a chunk in memory or shared memory counts (lock held)."""
        delta = nbytes - entry.nbytes
        entry.nbytes = nbytes
        self._used += delta
        if entry in self._lru:
            self._evictable += delta

    # ---------------------------------------------------------------------------------------------------------- pins

    def pin(self, column: Column, indexes: Iterable[int]) -> Pin:
        """Keep the chunks of some cells where they are: not evicted, and if freed, their files stay until the end.

        Cells that are small or absent need no pin and are passed over.
        """
        with self._lock:
            entries = [column.tracked[index] for index in indexes if index in column.tracked]
            for entry in entries:
                if not entry.pins:
                    self._pinned += 1
                    self._withdraw(entry)
                entry.pins += 1
        return Pin(self, entries)

    def _unpin(self, entries: list[Entry]) -> None:
        trash = no_trash()
        with self._lock:
            for entry in entries:
                entry.pins -= 1
                if entry.pins:
                    continue
                self._pinned -= 1
                if entry.dead:
                    self._discard(entry, trash)
                else:
                    self._offer(entry)
            self._changed.notify_all()
        self._empty(trash)

    def _offer(self, entry: Entry) -> None:
        """Let a chunk be evicted if nothing speaks against it (lock held)."""
        if entry.tier in ("memory", "shm") and not (entry.pins or entry.busy or entry.dead or entry.stuck):
            self._tick += 1
            entry.used = self._tick
            self._lru[entry] = None
            self._evictable += entry.nbytes
            if self._queue:
                self._changed.notify_all()

    def _withdraw(self, entry: Entry) -> None:
        """Take a chunk out of those that may be evicted (lock held)."""
        if entry in self._lru:
            del self._lru[entry]
            self._evictable -= entry.nbytes

    # ------------------------------------------------------------------------------------------------------ eviction

    def _make_room(self, need: int) -> bool:
        """Evict until `need` more bytes fit, now or when the spills under way end; False if what is left cannot leave.

        Errors of the spill disk: DiskFullError, CapacityError.
        """
        while True:
            trash = no_trash()
            with self._lock:
                excess = self._used + self._reserved + need - self.budget
                if excess <= self._leaving or excess <= 0:
                    return True
                if self._spill is None or not self._lru:
                    return False
                victims = self._choose(max(excess - self._leaving, self.budget // _SPILL_SHARE), trash)
            self._empty(trash)
            if victims:
                self._spill_out(victims, self._spill)

    def _choose(self, nbytes: int, trash: Trash) -> list[tuple[Entry, Any]]:
        """Take chunks of `nbytes` out of memory: drop those with a copy on disk, return the others (lock held)."""
        order: Iterable[Entry] = self._lru
        if self._eviction is not None:
            key = self._eviction
            order = in_order(list(self._lru), key)
        chosen: list[Entry] = []
        for entry in order:
            if nbytes <= 0:
                break
            nbytes -= entry.nbytes
            chosen.append(entry)
        victims = []
        for entry in chosen:
            self._withdraw(entry)
            values = entry.column.values
            cell = values[entry.index]
            if entry.tier == "memory" and entry.ref is not None:
                values[entry.index] = entry.ref
                trash.values.append(cell)
                self._used -= entry.nbytes
                entry.tier, entry.nbytes = "disk", 0
            else:
                entry.busy = True
                self._leaving += entry.nbytes
                victims.append((entry, cell))
        return victims

    def _spill_out(self, victims: list[tuple[Entry, Any]], spill: ChunkFiles) -> None:
        """Write chunks to disk and put refs into their cells, unless they were pinned or freed meanwhile."""
        written: list[tuple[Entry, ChunkRef]] = []
        stuck: list[Entry] = []
        trash = no_trash()
        try:
            chunks, entries = [], []
            for entry, cell in victims:
                try:
                    chunks.append(self._encoded(entry, cell))
                    entries.append(entry)
                except (ProgramError, NotFoundError):
                    stuck.append(entry)  # it cannot be pickled: it has to stay
            written = list(zip(entries, spill.write(chunks) if chunks else (), strict=True))
        finally:
            with self._lock:
                for entry, _ in victims:
                    entry.busy = False
                    self._leaving -= entry.nbytes
                for entry in stuck:
                    entry.stuck = True
                self._register(ref for _, ref in written)
                for entry, ref in written:
                    self._settle(entry, ref, trash)
                for entry, _ in reversed(victims):
                    if entry.dead:
                        self._discard(entry, trash)
                    elif entry.tier != "disk":
                        self._offer(entry)
                        if entry in self._lru:
                            self._lru.move_to_end(entry, last=False)
                self._changed.notify_all()
            victims.clear()
            self._empty(trash)

    @staticmethod
    def _encoded(entry: Entry, cell: Any) -> codec.Encoded:
        if type(cell) is ChunkRef:
            return codec.raw(segments.open_chunk(cell), cell.parts)
        return codec.encode_row(cell) if entry.column.parts else codec.encode(cell)

    def _register(self, refs: Iterable[ChunkRef]) -> None:
        """Count chunks in files of this keeper, all of a batch before any is released (lock held)."""
        for ref in refs:
            self._files.setdefault(ref.path, HeldFile()).live += 1
            self._uncount(ref.tier, -ref.nbytes)

    def _settle(self, entry: Entry, ref: ChunkRef, trash: Trash) -> None:
        """Take note of a chunk's copy on disk, and let go of the one in memory if nobody wants it (lock held)."""
        self._spilled += ref.nbytes
        if entry.dead or entry.tier == "disk" or (entry.pins and entry.tier == "shm"):
            self._release_ref(ref, ref.nbytes, trash)
            return
        entry.on_disk = ref.nbytes
        if entry.tier == "memory":
            entry.ref = ref
            if entry.pins:
                return
            self._used -= entry.nbytes
        elif entry.ref is not None:
            self._release_ref(entry.ref, entry.nbytes, trash)
            entry.ref = ref
        trash.values.append(entry.column.values[entry.index])
        entry.column.values[entry.index] = ref
        entry.tier, entry.nbytes = "disk", 0

    # --------------------------------------------------------------------------------------------------------- quota

    def reserve(
        self, owner: str, nbytes: int, cancelled: Callable[[], bool] | None = None, *, priority: float = 0
    ) -> Reservation:
        """Wait until `nbytes` are free for the task `owner`, in one batch, and take them.

        First come, first served among equal priorities (lower goes first); who waits behind a large request waits
        until that is served. Whoever waits must have nothing pinned: chunks are evicted to make room. Where nothing
        that anyone could still give back stands in the way, the request is granted, over the budget if need be:
        waiting would be for ever.

        CapacityError: more than the whole budget. RunCancelledError: `cancelled()` became true (asked every 0.1 s and
        at every `wake`). DiskFullError: room could only be made on a disk that is full.
        """
        if nbytes > self.budget:
            raise CapacityError(
                f"{owner} needs {nbytes:,} bytes of memory at once, more than the {self.budget:,} that Weft may use",
                hint="Make the chunks smaller, or raise the memory budget.",
            )
        with self._lock:
            ticket = (priority, next(self._tickets))
            insort(self._queue, ticket)
        try:
            while True:
                stop = cancelled is not None and cancelled()
                with self._lock:
                    if stop or self._closed:
                        raise RunCancelledError(f"{owner} was cancelled while it waited for {nbytes:,} bytes of memory")
                    first = self._queue[0] is ticket
                    excess = self._used + self._reserved + nbytes - self.budget
                    helpless = not (self._reserved or self._pinned or self._leaving)
                    can_evict = self._spill is not None and bool(self._lru)
                    if first and (excess <= 0 or (helpless and not can_evict)):
                        self._reserved += nbytes
                        break
                    enough = helpless or excess <= self._evictable + self._leaving
                    evict = first and can_evict and enough and excess > self._leaving
                    if not evict:
                        self._changed.wait(None if cancelled is None else _CANCEL_POLL_S)
                if evict:
                    self._make_room(nbytes)
        finally:
            with self._lock:
                self._queue.remove(ticket)
                self._changed.notify_all()
        self._shrink_recycled()
        self._stay_under()
        return Reservation(self, owner, nbytes)

    def try_reserve(self, owner: str, nbytes: int) -> Reservation | None:
        """Take `nbytes` if they are free this moment and nobody waits; never waits nor spills."""
        with self._lock:
            if self._queue or self._used + self._reserved + nbytes > self.budget:
                return None
            self._reserved += nbytes
        self._shrink_recycled()
        self._stay_under()
        return Reservation(self, owner, nbytes)

    def claim(self, owner: str, nbytes: int) -> Reservation:
        """Take `nbytes` for something that others wait for, so that it must not wait itself: others are spilled.

        Where they cannot be, it is granted all the same, over the budget.
        """
        reservation = Reservation(self, owner, 0)
        with suppress(CapacityError):
            reservation.grow(nbytes)
        return reservation

    @property
    def on_disk(self) -> int:
        """How many bytes of chunks lie in files on disk."""
        return self._disk_used

    def wake(self) -> None:
        """Have every waiting `reserve` ask its `cancelled` now."""
        with self._lock:
            self._changed.notify_all()

    def _resize(self, reservation: Reservation, nbytes: int) -> None:
        with self._lock:
            grown = nbytes > reservation.nbytes
            self._reserved += nbytes - reservation.nbytes
            reservation.nbytes = nbytes
            self._changed.notify_all()
        if grown:
            self._make_room(0)
            self._stay_under()

    def _stay_under(self) -> None:
        """Give back what was freed, where the process would hold more than it may when all tasks have what they take.

        An allocator keeps freed memory for the next who asks, and that need not be one whom it fits.
        """
        if self._tight and resident_bytes() + self._reserved > self.ceiling:
            give_back()

    # ------------------------------------------------------------------------------------------------ other processes

    def share(self, column: Column, indexes: Iterable[int]) -> list[Any]:
        """Return, for each cell, something another process can read: a plain small value or a ChunkRef.

        Large values in memory move to shared memory; pin the cells first, as the refs hold only while they are pinned.
        NotFoundError: a cell is absent. ProgramError: a value cannot be pickled. DiskFullError: no room.
        """
        wanted = list(indexes)
        cells = [column.values[index] for index in wanted]
        moving: list[int] = []
        chunks: list[codec.Encoded] = []
        for at, (index, cell) in enumerate(zip(wanted, cells, strict=True)):
            if cell is ABSENT:
                raise self._absent(column, index)
            if type(cell) is ChunkRef or type(cell) in FIXED:
                continue
            chunk = codec.encode_row(cell) if column.parts else codec.encode(cell)
            if chunk.nbytes <= INLINE_MAX or index not in column.tracked:
                cells[at] = ChunkRef("inline", "", 0, chunk.nbytes, chunk.parts, codec.to_bytes(chunk))
            else:
                moving.append(at)
                chunks.append(chunk)
        if not moving:
            return cells
        if self._writer is None:
            raise InternalError("a store without shared memory cannot share large values with another process")
        refs = self._writer.write(chunks)
        trash = no_trash()
        with self._lock:
            self._register(refs)
            for at, ref in zip(moving, refs, strict=True):
                cells[at] = self._move_to_file(column, wanted[at], cells[at], ref, trash)
            over = self._used + self._reserved > self.budget
        self._empty(trash)
        if over:
            with suppress(CapacityError):  # what is shared is in place; over the budget is better than not at all
                self._make_room(0)
        return cells

    def _move_to_file(self, column: Column, index: int, value: Any, ref: ChunkRef, trash: Trash) -> ChunkRef:
        """Replace a value in its cell by its ref, unless the cell changed meanwhile (lock held)."""
        entry: Entry | None = column.tracked.get(index)
        current = column.values[index]
        if entry is None or current is not value:
            self._release_ref(ref, ref.nbytes, trash)
            if type(current) is ChunkRef:
                return current
            raise self._absent(column, index)
        self._withdraw(entry)
        self._used -= entry.nbytes
        if entry.ref is not None:
            self._release_ref(entry.ref, entry.on_disk, trash)
        before = entry.nbytes
        entry.tier, entry.ref = ref.tier, ref
        entry.nbytes, entry.on_disk = (ref.nbytes, 0) if ref.tier == "shm" else (0, ref.nbytes)
        if entry.busy:
            self._leaving += entry.nbytes - before
        column.values[index] = ref
        trash.values.append(value)
        self._offer(entry)
        return ref

    def reclaim(self, prefix: str) -> int:
        """Remove the files of a dead writer (by the prefix of its SegmentWriter) that no cell refers to; count them.

        To be called when all that the writer reported has been put.
        """
        with self._lock:
            known = set(self._files)
        left = [path for folder in self._owned for path in glob.iglob(glob.escape(folder + prefix) + "*")]
        left = [path for path in left if path not in known and path.endswith((".chunks", ".part"))]
        disk.remove(left)
        return len(left)

    # ------------------------------------------------------------------------------------------------------- the rest

    @staticmethod
    def sizeof(value: Any) -> int:
        """Return about how many bytes a value holds; see `weft.store.api.sizeof`."""
        return sizeof(value)

    def stats(self) -> Stats:
        """Return what is held now."""
        with self._lock:
            return Stats(
                self.budget,
                self._used,
                self._reserved,
                self._used - self._shm_used,
                self._shm_used,
                self._disk_used,
                self._evictable,
                self._pinned,
                len(self._queue),
                self._spilled,
                self._restored,
            )

    def close(self) -> None:
        """Forget all chunks and remove all files; who waits for memory gets RunCancelledError. Twice does nothing."""
        with self._lock:
            self._closed = True
            columns, self._columns = list(self._columns.values()), {}
            self._changed.notify_all()
        for column in columns:
            self.free_range(column, 0, len(column))
        with self._lock:
            self._files.clear()  # those that someone has pinned, too
        segments.forget_all()
        if self._recycled is not None:
            self._recycled.close()
        self.reclaim("")

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shares(piece: Any) -> bool:
    """Whether a piece is a view of memory that others may look at: freeing it alone gives nothing back."""
    return getattr(piece, "base", None) is not None


def _sorted_out(column: Column, lo: int, values: Sequence[Any]) -> tuple[int, int, list[Entry]]:
    """Return how many of the values are small, their bytes, and an entry for each of the others."""
    count = small = 0
    large: list[Entry] = []
    for index, value in enumerate(values, lo):
        kind = type(value)
        if value is ABSENT:
            continue
        if kind is ChunkRef and value.tier != "inline":
            large.append(Entry(column, index, value.nbytes, value.tier, value))
            continue
        nbytes = FIXED.get(kind)
        if nbytes is None:
            nbytes = sizeof(value)
            if nbytes >= SMALL and kind is not ChunkRef:
                large.append(Entry(column, index, nbytes, "memory", None))
                continue
        count += 1
        small += nbytes
    return count, small, large
