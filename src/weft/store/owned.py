"""The files and objects of a store, each with its number of chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.model.chunks import ChunkRef
    from weft.store.accounting import Garbage
    from weft.store.memory import MemoryManager
    from weft.store.tiers import TierStore


class FileUsage:
    """A file or object of the store's own tiers, with `live` chunks, and `pending` freed bytes not returned yet."""

    __slots__ = ("live", "pending", "tier")

    def __init__(self, tier: TierStore) -> None:
        self.tier = tier
        self.live = 0
        self.pending = 0


class OwnedFiles:
    """The files and objects in a store's own tiers, each with the chunks that lie in it.

    The lock of `memory` guards it, except for `discard`.
    """

    def __init__(self, tiers: Iterable[TierStore], memory: MemoryManager) -> None:
        self._tiers = {tier.root: tier for tier in tiers}
        self._memory = memory
        self._files: dict[str, FileUsage] = {}
        self.roots = tuple(self._tiers)
        """The path prefixes of all owned locations."""

    def add(self, tier: TierStore) -> None:
        """Own the locations of a further tier."""
        self._tiers[tier.root] = tier
        self.roots = tuple(self._tiers)

    def owner(self, location: str) -> TierStore | None:
        """Return the tier of a location, None if it is not of this store."""
        if not location.startswith(self.roots):
            return None
        return next(tier for root, tier in self._tiers.items() if location.startswith(root))

    def tier_of(self, location: str) -> TierStore | None:
        """Return the tier of a location with chunks, None if there are none or it is not of this store."""
        file = self._files.get(location)
        return None if file is None else file.tier

    def hold(self, ref: ChunkRef) -> bool:
        """Count a chunk of a location. Return False if the location is not of this store."""
        file = self._files.get(ref.location)
        if file is None:
            owner = self.owner(ref.location)
            if owner is None:
                return False
            file = self._files[ref.location] = FileUsage(owner)
        file.live += 1
        return True

    def register(self, refs: Iterable[ChunkRef]) -> None:
        """Count newly written chunks and their bytes, all of a batch before any is released."""
        for ref in refs:
            self.hold(ref)
            self._memory.count_file(ref.tier, ref.nbytes)

    def release(self, ref: ChunkRef, nbytes: int, garbage: Garbage) -> None:
        """Uncount `nbytes` of a chunk; its location is removed with its last chunk."""
        file = self._files.get(ref.location)
        if file is None:  # not owned
            return
        file.live -= 1
        if file.live == 0:
            del self._files[ref.location]
            garbage.locations.append((file.tier, ref.location))
            self._memory.count_file(ref.tier, -nbytes - file.pending)
            return
        start, size = file.tier.freeable(ref.offset, ref.nbytes)
        size = min(size, nbytes)
        if size:
            garbage.ranges.append((file.tier, ref.location, start, size))
        file.pending += nbytes - size
        self._memory.count_file(ref.tier, -size)

    def discard(self, location: str) -> None:
        """Delete a location of this store without counted chunks; call it without the lock."""
        owner = self.owner(location)
        if owner is not None and location not in self._files:
            owner.delete([location])

    def locations(self) -> set[str]:
        """Return all locations with chunks."""
        return set(self._files)

    def clear(self) -> None:
        """Forget all locations."""
        self._files.clear()
