"""The index of a column's rows by partition, so that readers of a shuffle visit only rows with values for them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any, Final

ALL: Final = ""
"""The key of the values that go to every edge: the pieces that a function returned."""
MISSING, DENSE, SPARSE, LISTED = range(4)
"""The kinds of rows: none; one that every reader visits; a sparse row; a sparse row whose other pieces are None."""

_NONE: Final[Mapping[int, Any]] = {}


class RowIndex:
    """The rows of a column by the partitions that they have values of.

    `kinds[i]` is the kind of row i. An entry stays when its row goes: the row itself tells whether it has values.
    `kind` is that of rows that were never put: the column of a worker process lacks rows that none of its tasks reads.
    """

    __slots__ = ("_by_edge", "_known", "kinds")

    def __init__(self, n: int, kind: int = MISSING) -> None:
        self.kinds = bytearray([kind]) * n
        self._known = bytearray(n)
        self._by_edge: dict[str, dict[int, list[int]]] = {}

    def add(self, at: int, listed: int, by_edge: Iterable[tuple[str, Iterable[int]]]) -> None:
        """Record a sparse row: its length if it was a list, and its partitions by edge."""
        again = self._known[at]
        self._known[at] = 1
        self.kinds[at] = LISTED if listed else SPARSE
        for edge, parts in by_edge:
            of_edge = self._by_edge.setdefault(edge, {})
            for part in parts:
                sources = of_edge.setdefault(part, [])
                if not again or at not in sources:
                    sources.append(at)

    def clear(self, lo: int, hi: int) -> None:
        """Record that the cells `lo:hi` are absent."""
        self.kinds[lo:hi] = bytes(hi - lo)

    def kind(self, lo: int, hi: int) -> int:
        """Return the kind of the rows `lo:hi` if all are sparse in the same way, else DENSE: all must be visited."""
        kind = self.kinds[lo] if lo < hi else DENSE
        return kind if kind >= SPARSE and self.kinds.count(kind, lo, hi) == hi - lo else DENSE

    def sources(self, edge: str, part: int) -> list[int]:
        """Return the rows that may have values of a partition of an edge, in ascending order."""
        returned = self._by_edge.get(ALL, _NONE).get(part, ())
        written = self._by_edge.get(edge, _NONE).get(part, ())
        if returned and written:  # a row may have changed from one to the other
            return sorted({*returned, *written})
        return sorted(returned or written)

    def pieces(self, edge: str, piece: tuple[int, int, int, int]) -> list[tuple[int, int]]:
        """Return (row, partition) of all values in rows `lo:hi` and partitions `part_lo:part_hi`, in that order."""
        lo, hi, part_lo, part_hi = piece
        found: list[tuple[int, int]] = []
        for part in self._present(edge, part_lo, part_hi):
            sources = self.sources(edge, part)
            if sources and (sources[0] < lo or sources[-1] >= hi):
                sources = sources[bisect_left(sources, lo) : bisect_left(sources, hi)]
            found += zip(sources, repeat(part))
        if part_hi - part_lo > 1:
            found.sort()
        return found

    def _present(self, edge: str, lo: int, hi: int) -> Iterable[int]:
        if hi - lo == 1:
            return (lo,)
        keys = [self._by_edge.get(key, _NONE) for key in (edge, ALL)]
        if hi - lo <= sum(map(len, keys)):
            return range(lo, hi)
        return {part for known in keys for part in known if lo <= part < hi}

    def rows(self, lo: int, hi: int) -> list[int]:
        """Return the rows that may have values of partitions `lo:hi` of any edge, in ascending order."""
        found: set[int] = set()
        for of_edge in self._by_edge.values():
            for part in range(lo, hi) if hi - lo <= len(of_edge) else [part for part in of_edge if lo <= part < hi]:
                found.update(of_edge.get(part, ()))
        return sorted(found)
