"""Chunk grids: routers from the chunks of an n-dimensional source to the chunks of an n-dimensional destination.

The tasks of both vertices are cells of a grid, numbered in row-major order. A `GridMap` gives for each destination axis
the coordinates that it reads of one source axis; a source axis without a destination axis is read whole. Each axis is
closed-form arithmetic (or two sorted lists), so that the inputs of a task and the consumers of a chunk are products of
ranges; nothing is stored for a cell. `weft.graph.axes` defines the axis operations; this module exports them too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from weft.graph.axes import (
    TO_ALL,
    Axis,
    AxisOperation,
    GridMap,
    Shape,
    Span,
    broadcast,
    copy,
    group,
    ranges,
    ungroup,
    whole,
)
from weft.graph.routers import Broadcast, Group, OneToOne, Piece, Router, ScatterGather
from weft.model.errors import GraphError
from weft.model.wording import counted

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    from weft.graph.logical import Edge

    Indices = NDArray[int64]

__all__ = [
    "TO_ALL",
    "Axis",
    "AxisOperation",
    "Grid",
    "GridMap",
    "GridPieces",
    "OneToAll",
    "bind_grid",
    "broadcast",
    "check_grid",
    "copy",
    "group",
    "ranges",
    "ungroup",
    "whole",
]


# ---------------------------------------------------------------------------------------------------------- one axis


class _Linear:
    """Coordinate d reads the `width` coordinates from `offset + step*(d // repeat)` on."""

    def __init__(self, offset: int, step: int, width: int, repeat: int, n_src: int, n_dst: int) -> None:
        self.offset, self.step, self.width, self.repeat = offset, step, width, repeat
        self.n_src, self.n_dst = n_src, n_dst

    def forward(self, d: int) -> Span:
        lo = self.offset + self.step * (d // self.repeat)
        return _cut(lo, lo + self.width, self.n_src)

    def backward(self, s: int) -> Span:
        first, past, step = s - self.offset, s - self.offset - self.width, self.step
        if step > 0:
            lo, hi = past // step + 1, first // step + 1
        elif step < 0:
            lo, hi = -(first // -step), -(past // -step)
        else:
            return (0, self.n_dst) if past < 0 <= first else (0, 0)
        return _cut(lo * self.repeat, hi * self.repeat, self.n_dst)

    def forward_many(self, d: Indices) -> tuple[Indices, Indices]:
        lo = self.offset + self.step * (d // self.repeat)
        return lo.clip(0, self.n_src), (lo + self.width).clip(0, self.n_src)

    def backward_many(self, s: Indices) -> tuple[Indices, Indices]:
        first, past, step = s - self.offset, s - self.offset - self.width, self.step
        if step > 0:
            lo, hi = past // step + 1, first // step + 1
        elif step < 0:
            lo, hi = -(first // -step), -(past // -step)
        else:
            lo, hi = first * 0, self.n_dst * ((past < 0) & (first >= 0))
        return (lo * self.repeat).clip(0, self.n_dst), (hi * self.repeat).clip(0, self.n_dst)


class _Table:
    """Coordinate d reads the d-th of given ranges, both ends of which rise (or both fall) with d."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.n_dst = len(spans)
        self.falls = bool(spans) and spans[0] > spans[-1]
        ordered = spans[::-1] if self.falls else spans
        self.los = [lo for lo, _ in ordered]
        self.his = [hi for _, hi in ordered]

    def forward(self, d: int) -> Span:
        at = self.n_dst - 1 - d if self.falls else d
        return self.los[at], self.his[at]

    def backward(self, s: int) -> Span:
        lo, hi = bisect_right(self.his, s), bisect_right(self.los, s)
        return (self.n_dst - hi, self.n_dst - lo) if self.falls else (lo, hi)

    def forward_many(self, d: Indices) -> tuple[Indices, Indices]:
        import numpy as np

        at = self.n_dst - 1 - d if self.falls else d
        return np.array(self.los, np.int64)[at], np.array(self.his, np.int64)[at]

    def backward_many(self, s: Indices) -> tuple[Indices, Indices]:
        import numpy as np

        lo = np.searchsorted(np.array(self.his, np.int64), s, "right").astype(np.int64)
        hi = np.searchsorted(np.array(self.los, np.int64), s, "right").astype(np.int64)
        return (self.n_dst - hi, self.n_dst - lo) if self.falls else (lo, hi)


def _cut(lo: int, hi: int, size: int) -> Span:
    return min(max(lo, 0), size), min(max(hi, 0), size)


def _compile(axis: Axis, n_src: int, n_dst: int) -> _Linear | _Table:
    if axis.op is AxisOperation.RANGES:
        return _Table(axis.spans)
    if axis.op is AxisOperation.WHOLE:
        return _Linear(0, 0, n_src, 1, n_src, n_dst)
    width, repeat = (axis.k, 1) if axis.op is AxisOperation.GROUP else (1, axis.k)
    return _Linear(axis.offset, axis.step, width, repeat, n_src, n_dst)


# ------------------------------------------------------------------------------------------------------- the router


class OneToAll(Broadcast):
    """Every task reads the value of the one source task."""

    single = True


class Grid(Router):
    """The router of a `GridMap` with known shapes: computes inputs and consumers, for one task or for many."""

    def __init__(self, grid: GridMap, n_src: int, n_dst: int) -> None:
        super().__init__(n_src, n_dst)
        self.map = grid
        self.src = _resolve(grid.src, n_src)
        self.dst = _resolve(grid.dst, n_dst)
        self.single = grid.single
        # For each source axis its destination axis and arithmetic; then the same for each destination axis.
        self._of_src: list[tuple[int, _Linear | _Table] | None] = [None] * len(self.src)
        self._of_dst: list[tuple[int, _Linear | _Table] | None] = [None] * len(self.dst)
        for at, axis in enumerate(grid.axes):
            if axis.source >= 0:
                rule = _compile(axis, self.src[axis.source], self.dst[at])
                self._of_src[axis.source] = (at, rule)
                self._of_dst[at] = (axis.source, rule)
        self.wide = all(_reads_all(rule, n) for rule, n in zip(self._of_src, self.src, strict=True))

    def _read(self, dst: int) -> list[Span]:
        at = _unravel(dst, self.dst)
        return [
            (0, n) if rule is None else rule[1].forward(at[rule[0]])
            for rule, n in zip(self._of_src, self.src, strict=True)
        ]

    def _read_by(self, src: int) -> list[Span]:
        at = _unravel(src, self.src)
        return [
            (0, n) if rule is None else rule[1].backward(at[rule[0]])
            for rule, n in zip(self._of_dst, self.dst, strict=True)
        ]

    def inputs(self, dst: int) -> tuple[Piece, ...]:
        """See `Router.inputs`; runs ascend in row-major order of the source grid."""
        return tuple([(lo, hi, 0, 1) for lo, hi in _runs(self.src, self._read(dst))])

    def consumers(self, src: int) -> tuple[tuple[int, int], ...]:
        """See `Router.consumers`."""
        return tuple(_runs(self.dst, self._read_by(src)))

    def fan_in(self, dst: int) -> int:
        """See `Router.fan_in`."""
        return prod([max(0, hi - lo) for lo, hi in self._read(dst)])

    def sources(self, dst: Indices) -> tuple[Indices, Indices]:
        """Return the inputs of many destinations: flat source indices, and offsets into them (one more than `dst` has).

        `dst` is an int64 array; the sources of `dst[i]` are `flat[offsets[i]:offsets[i + 1]]`, ascending.
        """
        import numpy as np

        at = np.unravel_index(dst, self.dst) if self.dst else ()
        bounds = [
            None if rule is None else rule[1].forward_many(np.asarray(at[rule[0]], np.int64)) for rule in self._of_src
        ]
        return _runs_many(self.src, bounds, len(dst))

    def destinations(self, src: Indices) -> tuple[Indices, Indices]:
        """Return the consumers of many sources: flat destination indices and offsets, in the form of `sources`."""
        import numpy as np

        at = np.unravel_index(src, self.src) if self.src else ()
        bounds = [
            None if rule is None else rule[1].backward_many(np.asarray(at[rule[0]], np.int64)) for rule in self._of_dst
        ]
        return _runs_many(self.dst, bounds, len(src))


class GridPieces(Grid):
    """A grid map of pieces: a destination reads its own piece of each of its sources."""

    def __init__(self, grid: GridMap, n_src: int, n_dst: int) -> None:
        super().__init__(grid, n_src, n_dst)
        self.wide = False
        self.partitions = prod(
            [
                n if rule is None else max([_width(rule[1].backward(s)) for s in range(self.src[rule[0]])], default=0)
                for rule, n in zip(self._of_dst, self.dst, strict=True)
            ]
        )

    def inputs(self, dst: int) -> tuple[Piece, ...]:
        """See `Router.inputs`; sources ascend."""
        at = _unravel(dst, self.dst)
        found = []
        for lo, hi in _runs(self.src, self._read(dst)):
            for source in range(lo, hi):
                part = 0
                for coordinate, (first, past) in zip(at, self._read_by(source), strict=True):
                    part = part * (past - first) + coordinate - first
                found.append((source, source + 1, part, part + 1))
        return tuple(found)


def _width(span: Span) -> int:
    return span[1] - span[0]


def _reads_all(rule: tuple[int, _Linear | _Table] | None, size: int) -> bool:
    """Whether every coordinate reads all of a source axis; ranges are monotone, so both ends are enough to check."""
    if rule is None:
        return True
    last = rule[1].n_dst - 1
    return last < 0 or rule[1].forward(0) == rule[1].forward(last) == (0, size)


def _unravel(index: int, shape: Shape) -> list[int]:
    at = [0] * len(shape)
    for axis in range(len(shape) - 1, -1, -1):
        index, at[axis] = divmod(index, shape[axis])
    return at


def _runs(shape: Shape, spans: list[Span]) -> list[Span]:
    """Return the flat ranges of a box in a grid, ascending, merged where they touch."""
    if any(lo >= hi for lo, hi in spans):
        return []
    axis, block = len(shape) - 1, 1
    while axis >= 0 and spans[axis] == (0, shape[axis]):
        block *= shape[axis]
        axis -= 1
    if axis < 0:
        return [(0, block)]
    bases = [0]
    for outer in range(axis):
        lo, hi = spans[outer]
        bases = [base * shape[outer] + at for base in bases for at in range(lo, hi)]
    size, (lo, hi) = shape[axis], spans[axis]
    return [((base * size + lo) * block, (base * size + hi) * block) for base in bases]


def _runs_many(shape: Shape, bounds: Sequence[tuple[Indices, Indices] | None], count: int) -> tuple[Indices, Indices]:
    """Return the flat indices of `count` boxes and the start of each box; None stands for a whole axis."""
    import numpy as np

    widths: list[Indices] = []
    total = np.ones(count, np.int64)
    for size, pair in zip(shape, bounds, strict=True):
        width = np.full(count, size, np.int64) if pair is None else np.maximum(pair[1] - pair[0], 0)
        widths.append(width)
        total *= width
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(total, out=offsets[1:])
    owner = np.repeat(np.arange(count), total)
    rest = np.arange(offsets[-1]) - offsets[owner]
    flat = np.zeros(len(owner), np.int64)
    stride = 1
    for axis in range(len(shape) - 1, -1, -1):
        rest, at = np.divmod(rest, widths[axis][owner])
        pair = bounds[axis]
        flat += stride * (at if pair is None else at + pair[0][owner])
        stride *= shape[axis]
    return flat, offsets


# -------------------------------------------------------------------------------------------------------- binding


def _resolve(shape: Shape, n: int) -> Shape:
    if -1 not in shape:
        return shape
    known = -prod(shape)
    return tuple((n // known if known else 0) if size == -1 else size for size in shape)


def check_grid(edge: Edge, n_src: int | None = None, n_dst: int | None = None) -> None:
    """Raise GraphError if the map of a GRID edge is malformed or does not fit the known parallelisms."""
    grid = edge.movement.grid
    if grid is None:
        raise _wrong(edge, "has movement grid but no grid map", "grid-map")
    named = [axis.source for axis in grid.axes if axis.op is not AxisOperation.BROADCAST]
    if len(grid.axes) != len(grid.dst):
        raise _wrong(edge, f"maps {len(grid.axes)} axes to a destination grid of {len(grid.dst)}", "grid-axes")
    if any(not 0 <= source < len(grid.src) for source in named):
        raise _wrong(edge, f"reads an axis that the source grid {grid.src} does not have", "grid-axes")
    if len(set(named)) != len(named):
        raise _wrong(edge, "reads one source axis from two destination axes", "grid-axes")
    for shape, n, end in ((grid.src, n_src, edge.src), (grid.dst, n_dst, edge.dst)):
        if any(size < -1 for size in shape) or shape.count(-1) > 1:
            raise _wrong(edge, f"has an impossible grid {shape}", "grid-shape")
        if n is not None and prod(_resolve(shape, n)) != n:
            raise _wrong(edge, f"has a grid {shape} for the {counted(n, 'task')} of {end!r}", "grid-shape")
    src = grid.src if n_src is None else _resolve(grid.src, n_src)
    dst = grid.dst if n_dst is None else _resolve(grid.dst, n_dst)
    for at, axis in enumerate(grid.axes):
        _check_axis(edge, axis, src[axis.source] if axis.source >= 0 else 0, dst[at], grid.partial)


def _check_axis(edge: Edge, axis: Axis, n_src: int, n_dst: int, partial: bool) -> None:
    if axis.k < 1:
        raise _wrong(edge, f"groups by {axis.k}, which is not at least 1", "grid-axes")
    if axis.op is AxisOperation.RANGES:
        spans = axis.spans
        pairs = list(pairwise(spans))
        rises = all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairs)
        if not rises and not all(a[0] >= b[0] and a[1] >= b[1] for a, b in pairs):
            raise _wrong(edge, "has ranges that are not in order", "grid-ranges")
        if n_dst not in (-1, len(spans)):
            raise _wrong(edge, f"has {len(spans)} ranges for {n_dst} chunks", "grid-ranges")
        if any(not 0 <= lo <= hi or (n_src >= 0 and hi > n_src) for lo, hi in spans):
            raise _wrong(edge, f"has a range outside the {n_src} chunks of its source axis", "grid-ranges")
    if partial or n_src < 0 or n_dst < 1 or axis.op is AxisOperation.BROADCAST:
        return
    rule = _compile(axis, n_src, n_dst)
    # Both ends are monotone, so only the first or last coordinate, or a listed range, can be empty.
    for d in range(n_dst) if isinstance(rule, _Table) else (0, n_dst - 1):
        lo, hi = rule.forward(d)
        if lo >= hi:
            raise _wrong(
                edge,
                f"lets coordinate {d} of {n_dst} read nothing from a source axis of {n_src} chunks",
                "grid-reads-nothing",
                "Check the shapes, or set partial=True if this is intended, as in a concatenation.",
            )


def _wrong(edge: Edge, what: str, rule: str, hint: str = "") -> GraphError:
    return GraphError(f"edge {edge.id} {what}", subject=edge.id, rule=rule, hint=hint)


def bind_grid(edge: Edge, n_src: int, n_dst: int) -> Router:
    """Return the router of a GRID edge: a regular closed form, on which cones are built, if the map has one, else Grid.

    GraphError: the shapes do not multiply to the parallelisms.
    """
    check_grid(edge, n_src, n_dst)
    grid = edge.movement.grid
    assert grid is not None  # checked above
    src, dst = _resolve(grid.src, n_src), _resolve(grid.dst, n_dst)
    if grid.pieces:
        one = Grid(grid, n_src, n_dst)
        return ScatterGather(n_src, n_dst) if one.wide else GridPieces(grid, n_src, n_dst)
    k = _group_size(grid, src, dst)
    if grid.single:
        if k == 1:
            return OneToOne(n_src, n_dst)
        if n_src == 1:
            return OneToAll(n_src, n_dst)
    elif k:
        return Group(n_src, n_dst, k)
    router = Grid(grid, n_src, n_dst)
    return Broadcast(n_src, n_dst) if router.wide and not grid.single and not grid.partial else router


def _group_size(grid: GridMap, src: Shape, dst: Shape) -> int:
    """Return k if destination d reads exactly the flat sources `k*d : k*(d+1)`, cut at the end, else 0.

    This holds if leading axes are copied, at most one axis is grouped, and all later axes are read whole.
    """
    if 0 in src or 0 in dst or grid.partial:
        return 0
    k, wanted, grouped = 1, 0, False  # `wanted`: the source axis that must come next
    for size, axis in zip(dst, grid.axes, strict=True):
        if axis.op is AxisOperation.BROADCAST and size == 1:
            continue
        if (
            axis.source != wanted
            or axis.offset
            or axis.op not in (AxisOperation.COPY, AxisOperation.GROUP, AxisOperation.WHOLE)
        ):
            return 0
        n = src[wanted]
        width = n if axis.op is AxisOperation.WHOLE else min(axis.k, n)
        if size != -(-n // width) or (size > 1 and axis.step != axis.k):
            return 0
        if grouped and size > 1:
            return 0
        if not grouped and width > 1 and n % width and prod(src[:wanted]) > 1:
            return 0  # a short last group in each row is no longer regular when flat
        grouped = grouped or width > 1
        k *= width
        wanted += 1
    return k * prod(src[wanted:])
