"""Routing by data: each destination task reads rectangles of source tasks by partitions.

Vertex managers use this one form for decisions about a running job:

- *merge* small partitions: one rectangle over all sources and several partitions (`even`, `from_groups`);
- *split* a partition that is too large: several tasks, each over some of its sources (`from_splits`);
- *replicate* the other side of a skewed join: the same rectangles for several tasks (`select` with repeated indices);
- *prune*: leave out partitions that cannot match (`select`, `from_groups` with gaps);
- *local read*: one source, all partitions (`local`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from weft.graph.routers import Piece, Router
from weft.model.errors import GraphError

Span = tuple[int, int]


class Rectangles(Router):
    """Destination d reads `pieces[d]`: rectangles (src_lo, src_hi, part_lo, part_hi), in the order of its input.

    Sources write `partitions` pieces each. `inputs` is a look-up. `consumers` costs a bisection plus the size of its
    result: destinations that read every source are kept as ranges, the others in an interval tree over their sources.
    """

    def __init__(self, n_src: int, partitions: int, pieces: Iterable[Sequence[Piece]]) -> None:
        """Raise GraphError for a rectangle that is reversed or outside; empty ones are dropped."""
        kept: list[tuple[Piece, ...]] = []
        for dst, own in enumerate(pieces):
            for src_lo, src_hi, part_lo, part_hi in own:
                if not (0 <= src_lo <= src_hi <= n_src and 0 <= part_lo <= part_hi <= partitions):
                    raise GraphError(
                        f"task {dst} reads sources {src_lo}:{src_hi} and partitions {part_lo}:{part_hi} "
                        f"of {n_src} sources with {partitions} partitions",
                        rule="rectangle",
                    )
            kept.append(tuple((a, b, c, d) for a, b, c, d in own if a < b and c < d))
        self._set(n_src, partitions, kept)

    def _set(self, n_src: int, partitions: int, pieces: list[tuple[Piece, ...]]) -> None:
        super().__init__(n_src, len(pieces))
        self.partitions = partitions
        self._pieces = pieces
        self._full, self._partial = _by_source(n_src, pieces)
        self.wide = self._full == [(0, self.n_dst)] or not (n_src and self.n_dst)
        self._tree: _Intervals | None = None
        self._last: tuple[int, int, tuple[Span, ...]] = (0, 0, ())

    @classmethod
    def _of(cls, n_src: int, partitions: int, pieces: list[tuple[Piece, ...]]) -> Rectangles:
        """Return a router of valid pieces, without checks."""
        router = cls.__new__(cls)
        router._set(n_src, partitions, pieces)
        return router

    @classmethod
    def even(cls, n_src: int, partitions: int, n_dst: int) -> Rectangles:
        """Distribute `partitions` over `n_dst` tasks, evenly and in order; tasks may read none."""
        if n_dst < 0 or partitions < 0:
            raise GraphError(f"cannot distribute {partitions} partitions over {n_dst} tasks", rule="rectangle")
        return cls.from_groups(n_src, [partitions * dst // n_dst for dst in range(n_dst + 1)] if n_dst else [0])

    @classmethod
    def from_groups(cls, n_src: int, bounds: Sequence[int], partitions: int | None = None) -> Rectangles:
        """Let task d read the partitions `bounds[d]:bounds[d + 1]` of every source; bounds never fall.

        Sources write `partitions` pieces, by default the last bound; partitions outside of the bounds are pruned.
        """
        total = bounds[-1] if partitions is None else partitions
        if bounds[0] < 0 or bounds[-1] > total or any(hi < lo for lo, hi in pairwise(bounds)):
            raise GraphError(f"bounds of groups must rise from 0 to the {total} partitions at most", rule="rectangle")
        pieces: list[tuple[Piece, ...]] = [
            ((0, n_src, lo, hi),) if lo < hi and n_src else () for lo, hi in pairwise(bounds)
        ]
        return cls._of(n_src, total, pieces)

    @classmethod
    def from_splits(cls, n_src: int, partitions: int, groups: Iterable[tuple[int, int, Sequence[int]]]) -> Rectangles:
        """Return the router with one task for each range between adjacent `cuts` of a group `(part_lo, part_hi, cuts)`.

        `cuts` are source indices that rise from 0 to `n_src`; without cuts one task reads all sources.
        """
        pieces = [
            [(lo, hi, part_lo, part_hi)] for part_lo, part_hi, cuts in groups for lo, hi in pairwise(cuts or (0, n_src))
        ]
        return cls(n_src, partitions, pieces)

    @classmethod
    def local(cls, n_src: int, partitions: int) -> Rectangles:
        """Let task i read all partitions of source i, which may lie on the same node."""
        return cls._of(n_src, partitions, [((at, at + 1, 0, partitions),) if partitions else () for at in range(n_src)])

    def select(self, destinations: Iterable[int]) -> Rectangles:
        """Return a router whose task i reads the input of task `destinations[i]` of this one.

        Omit a destination to prune it, repeat it to copy it.
        """
        return self._of(self.n_src, self.partitions, [self._pieces[dst] for dst in destinations])

    def rows(self) -> list[list[int]]:
        """Return all rectangles as rows `[dst, src_lo, src_hi, part_lo, part_hi]`, for a journal."""
        return [[dst, *piece] for dst, own in enumerate(self._pieces) for piece in own]

    @classmethod
    def from_rows(cls, n_src: int, n_dst: int, partitions: int, rows: Iterable[Sequence[int]]) -> Rectangles:
        """Return the router that `rows` describes."""
        pieces: list[list[Piece]] = [[] for _ in range(n_dst)]
        for row in rows:
            if len(row) != 5 or not 0 <= row[0] < n_dst:
                raise GraphError(f"rectangle {list(row)} does not belong to one of the {n_dst} tasks", rule="rectangle")
            pieces[row[0]].append((row[1], row[2], row[3], row[4]))
        return cls(n_src, partitions, pieces)

    def inputs(self, dst: int) -> tuple[Piece, ...]:
        """See `Router.inputs`."""
        return self._pieces[dst]

    def fan_in(self, dst: int) -> int:
        """See `Router.fan_in`; a source counts once even if two rectangles read it."""
        own = self._pieces[dst]
        if len(own) == 1:
            return own[0][1] - own[0][0]
        return sum(hi - lo for lo, hi in _union([(lo, hi) for lo, hi, _, _ in own]))

    def consumers(self, src: int) -> tuple[Span, ...]:
        """See `Router.consumers`."""
        if not self._partial:
            return tuple(self._full)
        lo, hi, found = self._last
        if lo <= src < hi:
            return found
        if self._tree is None:
            self._tree = _Intervals(self._partial)
        lo, hi = self._tree.segment(src)
        found = tuple(_union([*self._full, *((dst, dst + 1) for dst in self._tree.stab(src))]))
        self._last = (lo, hi, found)
        return found


def _by_source(n_src: int, pieces: Sequence[Sequence[Piece]]) -> tuple[list[Span], list[tuple[int, int, int]]]:
    """Return the ranges of destinations that read every source, and (src_lo, src_hi, dst) for all others."""
    full: list[Span] = []
    partial: list[tuple[int, int, int]] = []
    begin = -1  # of the current range of full destinations
    for dst, own in enumerate(pieces):
        if len(own) == 1 or not own:
            spans = [(own[0][0], own[0][1])] if own else []
        else:
            spans = _union([(lo, hi) for lo, hi, _, _ in own])
        if spans == [(0, n_src)]:
            if begin < 0:
                begin = dst
            continue
        if begin >= 0:
            full.append((begin, dst))
            begin = -1
        partial.extend((lo, hi, dst) for lo, hi in spans)
    if begin >= 0:
        full.append((begin, len(pieces)))
    return full, partial


def _union(spans: list[Span]) -> list[Span]:
    """Return disjoint ascending ranges of the same numbers; adjacent ranges are merged."""
    merged: list[Span] = []
    for lo, hi in sorted(spans):
        if merged and lo <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(hi, merged[-1][1]))
        else:
            merged.append((lo, hi))
    return merged


class _Intervals:
    """A static interval tree, sorted by lower end; the middle of each half has the highest upper end of that half."""

    def __init__(self, intervals: Iterable[tuple[int, int, int]]) -> None:
        ordered = sorted(intervals)
        self.los = [lo for lo, _, _ in ordered]
        self.his = [hi for _, hi, _ in ordered]
        self.names = [name for _, _, name in ordered]
        self.tops = list(self.his)
        self.cuts = sorted({*self.los, *self.his})
        # post-order, so that both halves are known before their middle element
        stack = [(0, len(ordered), False)]
        while stack:
            left, right, ready = stack.pop()
            if left >= right:
                continue
            middle = (left + right) // 2
            if not ready:
                stack += [(left, right, True), (left, middle, False), (middle + 1, right, False)]
                continue
            for lo, hi in ((left, middle), (middle + 1, right)):
                if lo < hi:
                    self.tops[middle] = max(self.tops[middle], self.tops[(lo + hi) // 2])

    def segment(self, at: int) -> Span:
        """Return the range around `at` in which every number lies in the same intervals."""
        after = bisect_right(self.cuts, at)
        lo = self.cuts[after - 1] if after else -1
        return lo, self.cuts[after] if after < len(self.cuts) else at + 1

    def stab(self, at: int) -> list[int]:
        """Return the names of all intervals that contain `at`."""
        found: list[int] = []
        stack = [(0, len(self.los))]
        while stack:
            left, right = stack.pop()
            middle = (left + right) // 2
            if left >= right or self.tops[middle] <= at:
                continue
            stack.append((left, middle))
            if self.los[middle] <= at:
                if self.his[middle] > at:
                    found.append(self.names[middle])
                stack.append((middle + 1, right))
        return found
