"""The memory of one node: its budget, the reservations of tasks, and the chunks that may leave it.

`used` are the bytes of chunks in memory and shared memory, `reserved` those granted to tasks and not stored yet; the
manager holds `used + reserved <= budget` as long as something is evictable. The caller makes its own room: the thread
that puts, restores or reserves also spills. One lock, shared with the `BlockManager`, guards all state and is never
held while a byte is read or written.

Only `reserve` waits. Growth beyond a reservation never waits: it spills, its own chunks too.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.model.chunks import Tier
from weft.model.errors import CapacityError, RunCancelledError
from weft.store.accounting import ChunkEntry, Garbage, in_order, resident_bytes
from weft.store.api import StoreStats

if TYPE_CHECKING:
    from weft.store.api import EvictionKey, MemoryGrant
    from weft.store.recycling import FreeFiles

_CANCEL_POLL_S: Final = 0.1
_SPILL_SHARE: Final = 64
"""A spill frees at least this part of the budget where possible, so that files are not tiny."""

_MEMORY: Final = Tier.MEMORY
_SHM: Final = Tier.SHM


class Evictor(Protocol):
    """Moves chunks out of memory."""

    def evict(self, chosen: list[ChunkEntry]) -> Callable[[], None]:
        """Take chunks out of memory (lock held); return the action that reads and writes, to be called without the
        lock.

        Chunks in that write count as `leaving` until the action ends. DiskFullError, CapacityError: raised by the
        action; the chunks are then evictable again.
        """
        ...


class Reservation:
    """Memory granted to one task for its inputs and outputs; return it with `release` or a `with` block."""

    __slots__ = ("_memory", "nbytes", "owner")

    def __init__(self, memory: MemoryManager, owner: str, nbytes: int) -> None:
        self._memory = memory
        self.owner = owner
        self.nbytes = nbytes

    def shrink(self, actual: int) -> None:
        """Return all but `actual` bytes; no effect if no more than that is held."""
        self._memory.resize_reservation(self, min(actual, self.nbytes))

    def grow(self, extra: int) -> None:
        """Take `extra` bytes more without waiting; other chunks are spilled. DiskFullError: the spill disk is full."""
        self._memory.resize_reservation(self, self.nbytes + extra)

    def release(self) -> None:
        """Return everything. A second call does nothing."""
        self._memory.resize_reservation(self, 0)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class MemoryManager:
    """The accounting of a node's memory, which admits tasks to it. Safe for any thread.

    `budget` bytes are for memory and shared memory together. `ceiling` is the limit in bytes of the whole process:
    above it, freed memory is returned to the system. `eviction` orders the chunks that may leave (default: least
    recently used first); without `evictor`, no chunk is evicted. `recycled` are files of freed shared memory in the
    unused part of the budget.
    """

    def __init__(
        self,
        budget: int,
        *,
        ceiling: int | None = None,
        eviction: EvictionKey | None = None,
        evictor: Evictor | None = None,
        recycled: FreeFiles | None = None,
    ) -> None:
        self.budget = budget
        self.ceiling = budget if ceiling is None else ceiling
        self.recycled = recycled
        self._tight = ceiling is not None
        self._mapping = False
        self._eviction = eviction
        self._evictor = evictor
        self.lock = threading.Lock()
        """Guards every field below, and the cells and entries of the block manager."""
        self.changed = threading.Condition(self.lock)
        self.used = self.reserved = self.evictable = self.leaving = self.pinned = 0
        self.shm_used = self.disk_used = self.spilled = self.restored = 0
        self.lru: OrderedDict[ChunkEntry, None] = OrderedDict()
        """The evictable chunks, the oldest use first."""
        self.viewed = 0
        """Bytes of freed files in shared memory that arrays still view."""
        self._unmapped: deque[int] = deque()
        self._queue: list[tuple[float, int]] = []
        self._tickets = itertools.count()
        self._tick = 0
        self._closed = False

    # --------------------------------------------------------------------------------------------------------- chunks

    def offer(self, entry: ChunkEntry) -> None:
        """Make a chunk evictable if it is not in use (lock held)."""
        tier = entry.tier
        if (tier is _MEMORY or tier is _SHM) and not (entry.pins or entry.busy or entry.dead or entry.unpicklable):
            self._tick += 1
            entry.used = self._tick
            self.lru[entry] = None
            self.evictable += entry.nbytes
            if self._queue:
                self.changed.notify_all()

    def offer_first(self, entry: ChunkEntry) -> None:
        """Make a chunk the next to be evicted (lock held)."""
        self.offer(entry)
        if entry in self.lru:
            self.lru.move_to_end(entry, last=False)

    def withdraw(self, entry: ChunkEntry) -> None:
        """Make a chunk not evictable (lock held)."""
        if entry in self.lru:
            del self.lru[entry]
            self.evictable -= entry.nbytes

    def touch(self, entry: ChunkEntry | None) -> None:
        """Record a use of a chunk (lock held)."""
        if entry is not None and entry in self.lru:
            self._tick += 1
            entry.used = self._tick
            self.lru.move_to_end(entry)

    def resize(self, entry: ChunkEntry, nbytes: int) -> None:
        """Change the counted bytes of a chunk in memory or shared memory (lock held)."""
        delta = nbytes - entry.nbytes
        entry.nbytes = nbytes
        self.used += delta
        if entry in self.lru:
            self.evictable += delta

    def garbage(self) -> Garbage:
        """Return an empty `Garbage`."""
        return Garbage(self._dropped)

    def leave_with(self, garbage: Garbage, nbytes: int) -> None:
        """Count the bytes of a value as used until it is dropped with `garbage` (lock held)."""
        garbage.held += nbytes
        self.leaving += nbytes

    def _dropped(self, nbytes: int) -> None:
        with self.lock:
            self.used -= nbytes
            self.leaving -= nbytes
            self.changed.notify_all()

    def count_file(self, tier: Tier, nbytes: int) -> None:
        """Count bytes of chunks in files, objects or shared memory; negative ones are freed (lock held)."""
        if tier is _SHM:
            self.shm_used += nbytes
            self.used += nbytes
        else:
            self.disk_used += nbytes

    def count_viewed(self, pages: Any) -> None:
        """Count the mapped bytes of a freed file until the last array that views them is gone."""
        nbytes = len(pages)
        with self.lock:
            self.viewed += nbytes
            self.count_file(_SHM, nbytes)
        # An array may die in a thread that holds the lock.
        weakref.finalize(pages, self._unmapped.append, nbytes).atexit = False

    def _uncount_viewed(self) -> None:
        """Uncount the pages that no array views any more (lock held)."""
        while self._unmapped:
            nbytes = self._unmapped.popleft()
            self.viewed -= nbytes
            self.count_file(_SHM, -nbytes)

    def pin(self, entries: Iterable[ChunkEntry]) -> None:
        """Pin chunks in place (lock held)."""
        for entry in entries:
            if not entry.pins:
                self.pinned += 1
                self.withdraw(entry)
            entry.pins += 1

    def unpin(self, entries: Iterable[ChunkEntry]) -> list[ChunkEntry]:
        """Undo one `pin` of each chunk (lock held); return those that were freed meanwhile and have no pins left."""
        freed = []
        for entry in entries:
            entry.pins -= 1
            if entry.pins:
                continue
            self.pinned -= 1
            if entry.dead:
                freed.append(entry)
            else:
                self.offer(entry)
        self.changed.notify_all()
        return freed

    # ------------------------------------------------------------------------------------------------------- eviction

    @property
    def outside(self) -> int:
        """Bytes of chunks that lie on disk or in objects."""
        return self.disk_used

    @property
    def over(self) -> bool:
        """Whether more is used and reserved than the budget."""
        return self.used + self.reserved > self.budget

    @property
    def half_full(self) -> bool:
        """Whether more than half of the budget is used and reserved, an estimate without the lock."""
        return 2 * (self.used + self.reserved) > self.budget

    def make_room(self, need: int) -> bool:
        """Evict until `need` more bytes fit, now or at the end of current spills. Return False if no more chunk can
        leave.

        Errors of the spill tier, unless the bytes fit by then: DiskFullError, CapacityError.
        """
        while True:
            with self.lock:
                self._uncount_viewed()
                excess = self.used + self.reserved + need - self.budget
                if excess <= self.leaving or excess <= 0:
                    return True
                if self._evictor is None or not self.lru:
                    return False
                spill = self._evictor.evict(self._choose(max(excess - self.leaving, self.budget // _SPILL_SHARE)))
            try:
                spill()
            except CapacityError:
                if self.room() < need:  # else others have freed enough meanwhile, and the chunks stay
                    raise

    def _choose(self, nbytes: int) -> list[ChunkEntry]:
        """Take chunks of `nbytes` from the evictable ones, and return them (lock held)."""
        order: Iterable[ChunkEntry] = self.lru if self._eviction is None else in_order(list(self.lru), self._eviction)
        chosen: list[ChunkEntry] = []
        for entry in order:
            if nbytes <= 0:
                break
            nbytes -= entry.nbytes
            chosen.append(entry)
        for entry in chosen:
            self.withdraw(entry)
        return chosen

    # ---------------------------------------------------------------------------------------------------------- quota

    def reserve(
        self, owner: str, nbytes: int, cancelled: Callable[[], bool] | None = None, *, priority: float = 0
    ) -> Reservation:
        """Wait until `nbytes` are free for the task `owner`, in one batch, and take them.

        First come, first served among equal priorities (lower goes first); a request behind a large one waits until
        that is served. A waiting task must have no pins: chunks are evicted to make room. If no held bytes can ever be
        returned, the request is granted, over the budget if necessary, since the wait would never end.

        CapacityError: more than the whole budget. RunCancelledError: `cancelled()` became true (checked every 0.1 s and
        at every `wake`). DiskFullError: the spill disk is full.
        """
        if nbytes > self.budget:
            raise CapacityError(
                f"{owner} needs {nbytes:,} bytes of memory at once, more than the {self.budget:,} that Weft may use",
                hint="Make the chunks smaller, or raise the memory budget.",
            )
        with self.lock:
            ticket = (priority, next(self._tickets))
            insort(self._queue, ticket)
        try:
            while True:
                stop = cancelled is not None and cancelled()
                with self.lock:
                    if stop or self._closed:
                        raise RunCancelledError(f"{owner} was cancelled while it waited for {nbytes:,} bytes of memory")
                    self._uncount_viewed()
                    first = self._queue[0] is ticket
                    excess = self.used + self.reserved + nbytes - self.budget
                    helpless = not (self.reserved or self.pinned or self.leaving)
                    can_evict = self._evictor is not None and bool(self.lru)
                    if first and (excess <= 0 or (helpless and not can_evict)):
                        self.reserved += nbytes
                        break
                    enough = helpless or excess <= self.evictable + self.leaving
                    evict = first and can_evict and enough and excess > self.leaving
                    if not evict:
                        polls = cancelled is not None or self.viewed  # nobody tells of an array that dies
                        self.changed.wait(_CANCEL_POLL_S if polls else None)
                if evict:
                    self.make_room(nbytes)
        finally:
            with self.lock:
                self._queue.remove(ticket)
                self.changed.notify_all()
        self.shrink_recycled()
        self._stay_under()
        return Reservation(self, owner, nbytes)

    def try_reserve(self, owner: str, nbytes: int) -> Reservation | None:
        """Take `nbytes` if they are free now and no task waits; never waits nor spills."""
        with self.lock:
            self._uncount_viewed()
            if self._queue or self.used + self.reserved + nbytes > self.budget:
                return None
            self.reserved += nbytes
        self.shrink_recycled()
        self._stay_under()
        return Reservation(self, owner, nbytes)

    def claim(self, owner: str, nbytes: int) -> Reservation:
        """Take `nbytes` without waiting, for a task that other tasks wait for; other chunks are spilled.

        If they cannot be spilled, the bytes are granted over the budget.
        """
        reservation = Reservation(self, owner, 0)
        with suppress(CapacityError):
            reservation.grow(nbytes)
        return reservation

    def wake(self) -> None:
        """Make every waiting `reserve` check its `cancelled` now."""
        with self.lock:
            self.changed.notify_all()

    def resize_reservation(self, reservation: Reservation, nbytes: int) -> None:
        """Change the bytes of a reservation; growth spills other chunks. DiskFullError: the spill disk is full."""
        with self.lock:
            grown = nbytes > reservation.nbytes
            self.reserved += nbytes - reservation.nbytes
            reservation.nbytes = nbytes
            self.changed.notify_all()
        if grown:
            self.make_room(0)
            self._stay_under()

    def take_from(self, reservation: MemoryGrant, nbytes: int) -> None:
        """Count up to `nbytes` of a reservation as used instead (lock held)."""
        moved = min(reservation.nbytes, nbytes)
        reservation.nbytes -= moved
        self.reserved -= moved

    # ------------------------------------------------------------------------------------------------------- the rest

    def room(self) -> int:
        """Return the free bytes of the budget, an estimate without the lock."""
        return self.budget - self.used - self.reserved

    def shrink_recycled(self) -> None:
        """Remove recycled files whose room is needed now."""
        if self.recycled is not None and self.recycled.kept:
            self.recycled.shrink(self.room())

    def _stay_under(self) -> None:
        """Return freed memory to the system, if the process would exceed its limit with all tasks at their
        reservations.

        An allocator keeps freed memory for later requests, which it may not fit. From half the limit on, it keeps no
        large blocks.
        """
        if not self._tight:
            return
        from weft.store import libc

        expected = resident_bytes() + self.reserved
        if not self._mapping and 2 * expected > self.ceiling:
            self._mapping = True
            libc.map_large_blocks()
        if expected > self.ceiling:
            libc.give_back()

    def stats(self) -> StoreStats:
        """Return the bytes that are held now."""
        with self.lock:
            self._uncount_viewed()
            return StoreStats(
                self.budget,
                self.used,
                self.reserved,
                self.used - self.shm_used,
                self.shm_used,
                self.disk_used,
                self.evictable,
                self.pinned,
                len(self._queue),
                self.spilled,
                self.restored,
            )

    def close(self) -> None:
        """Refuse further reservations; tasks that wait for memory get RunCancelledError."""
        with self.lock:
            self._closed = True
            self.changed.notify_all()
