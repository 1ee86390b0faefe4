"""Copies of chunks of other nodes in this node's shared memory: each is fetched once for all its readers here.

A copy takes the place of the reference in its cell. It counts as any chunk of the store, may be spilled, and goes when
the cell is freed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from weft.model.chunks import ChunkRef, Tier
from weft.model.errors import CapacityError
from weft.store import peers

if TYPE_CHECKING:
    from weft.store.api import Column
    from weft.store.blocks import BlockManager

_SHARE: Final = 2
"""At most one part in so many of the budget is fetched at a time; the rest is read where it lies."""


class PeerCopies:
    """The copies in a store. Every method may be called from any thread."""

    def __init__(self, store: BlockManager) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._under_way: set[tuple[int, int]] = set()
        """The cells whose chunks are being fetched: the identity of the column, and the index."""

    def fetch(self, column: Column, indexes: Sequence[int]) -> None:
        """Fetch the chunks of cells, and wait for those that other threads fetch at the time.

        A cell whose chunk cannot be read, or finds no room in the budget, stays as it is: its readers read it from its
        node, and know whose input is lost.
        """
        own = id(column)  # the caller holds the column
        with self._changed:
            mine = [at for at in indexes if (own, at) not in self._under_way]
            self._under_way.update((own, at) for at in mine)
        try:
            self._fetch(column, mine)
        finally:
            with self._changed:
                self._under_way.difference_update((own, at) for at in mine)
                self._changed.notify_all()
        with self._changed:
            self._changed.wait_for(lambda: not any((own, at) in self._under_way for at in indexes))

    def _fetch(self, column: Column, indexes: Sequence[int]) -> None:
        wanted: dict[str, tuple[int, ChunkRef]] = {}
        left = self._store.memory.budget // _SHARE
        for at in indexes:
            cell = column.values[at]
            if type(cell) is ChunkRef and cell.tier is Tier.PEER and cell.nbytes <= left:
                wanted[cell.location] = at, cell
                left -= cell.nbytes
        with suppress(CapacityError):
            self._store.memory.make_room(sum(ref.nbytes for _, ref in wanted.values()))
            for location, data in peers.fetch_chunks({name: ref.nbytes for name, (_, ref) in wanted.items()}):
                at, ref = wanted[location]
                if self._store.memory.room() < ref.nbytes:
                    return
                self._store.keep_copy(column, at, ref, data)
