"""Chunks with some elements of their neighbours: halos, for functions of windows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.frontends.tensors.blocks import WHOLE_CHUNKS, WHOLE_CHUNKS_BYTES
from weft.frontends.tensors.chunks import Cut, counts, largest
from weft.frontends.tensors.indexing import take_slices
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call
from weft.frontends.tensors.shaping import concat
from weft.graph.axes import copy, ranges

if TYPE_CHECKING:
    from weft.frontends.tensors.chunks import Grid
    from weft.frontends.tensors.types import Chunk, DType
    from weft.operators.region_steps import ChunkPlace

FOLDED = ("reflect", "nearest", "periodic", "none")
"""The boundaries that have names; any other one is the value of the elements outside."""


class Halo(NamedTuple):
    """The elements that chunks have beyond their own along an axis: `before` and `after` them.

    `boundary` names the elements outside of the array, or is their value.
    """

    before: int
    after: int
    boundary: Any = "none"

    def spans(self, cut: Cut) -> list[tuple[int, int]]:
        """Return the wanted positions of each chunk, which may lie outside of the array."""
        return [(lo - self.before, hi + self.after) for lo, hi in (cut.span(i) for i in range(cut.n))]

    def trims(self, cut: Cut) -> list[tuple[int, int]]:
        """Return the number of elements before and after those of each chunk itself."""
        if self.boundary != "none":
            return [(self.before, self.after)] * cut.n
        spans = [cut.span(i) for i in range(cut.n)]
        return [(min(self.before, lo), min(self.after, cut.size - hi)) for lo, hi in spans]

    def length(self, lo: int, hi: int, size: int) -> int:
        """Return the number of elements of wanted positions."""
        return min(hi, size) - max(lo, 0) if self.boundary == "none" else hi - lo

    def positions(self, lo: int, hi: int, size: int) -> Any:
        """Return for wanted positions those inside of the array that have their values."""
        at = np.arange(lo, hi)
        if self.boundary == "reflect":
            at = at % (2 * size)
            return np.where(at < size, at, 2 * size - 1 - at)
        return at.clip(0, size - 1)

    def read(self, lo: int, hi: int, size: int) -> tuple[int, int]:
        """Return the range of positions inside of the array that a chunk reads."""
        if (lo >= 0 and hi <= size) or self.boundary == "none":
            return max(lo, 0), min(hi, size)
        at = self.positions(lo, hi, size)
        return int(at.min()), int(at.max()) + 1


def widened(node: ArrayNode, halos: Sequence[Halo], most: int = WHOLE_CHUNKS_BYTES) -> ArrayNode:
    """Return an array whose chunks are those of another one with their halos; one `Halo` for each axis.

    A chunk is joined from the chunks that it overlaps, by the task that uses it. If these have more than `most` bytes,
    they are cut into pieces first. ValueError: a halo is longer than its
    axis.
    """
    for axis, (halo, size) in enumerate(zip(halos, node.shape, strict=True)):
        if max(halo.before, halo.after) > size:
            raise ValueError(f"the depth along axis {axis} is {max(halo[:2])}, and the axis has {size} elements")
    wanted = [[*halo.spans(cut)] for halo, cut in zip(halos, node.grid, strict=True)]
    halos = list(halos)
    for axis, halo in enumerate(halos):
        if halo.boundary == "periodic" and (halo.before or halo.after):
            node = _around(node, axis, halo.before, halo.after)
            wanted[axis] = [(lo + halo.before, hi + halo.before) for lo, hi in wanted[axis]]
            halos[axis] = Halo(halo.before, halo.after, "none")
    lengths = [
        [halo.length(lo, hi, node.shape[axis]) for lo, hi in spans]
        for axis, (halo, spans) in enumerate(zip(halos, wanted, strict=True))
    ]
    grid = tuple([_exactly(one) for one in lengths])
    if all(
        spans == [(lo, hi) for lo, hi in map(cut.span, range(cut.n))]
        for spans, cut in zip(wanted, node.grid, strict=True)
    ):
        return node
    reads = [
        _rising([halo.read(lo, hi, size) for lo, hi in spans])
        for halo, spans, size in zip(halos, wanted, node.shape, strict=True)
    ]
    touched = [[cut.touched(*span) for span in spans] for cut, spans in zip(node.grid, reads, strict=True)]
    axes = [
        copy(axis) if cut.n == 1 == len(spans) else ranges(axis, spans)
        for axis, (cut, spans) in enumerate(zip(node.grid, touched, strict=True))
    ]
    pieces = _in_pieces(node, grid, touched, most)
    how = Reading(node.grid, tuple(map(tuple, reads)), tuple(map(tuple, touched)))
    source = node
    if pieces:
        several = prod([_most_readers(spans, cut.n) for spans, cut in zip(touched, node.grid, strict=True)])
        source = call(_split, node, node.grid, node.dtype, placed=True, name="split", how=how, most=several)
    one = NodeInput(source, Read.GRID, src=counts(node.grid), dst=counts(grid), axes=tuple(axes), pieces=pieces)
    return call(
        _joined,
        [one],
        grid,
        node.dtype,
        placed=True,
        name="overlap",
        how=how,
        halos=tuple(halos),
        wanted=tuple(map(tuple, wanted)),
        sizes=node.shape,
        dtype=node.dtype,
        pieces=pieces,
    )


def _rising(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges that contain the given ones, both ends of which never fall."""
    past = [*accumulate((hi for _, hi in spans), max)]
    first = [*accumulate((lo for lo, _ in reversed(spans)), min)][::-1]
    return list(zip(first, past, strict=True))


def _exactly(lengths: Sequence[int]) -> Cut:
    """Return a cut into just these chunks, empty ones too."""
    cut = Cut.of(lengths)
    return cut if cut.n == len(lengths) else Cut(sum(lengths), len(lengths), 0, tuple(np.cumsum(lengths).tolist()))


def _around(node: ArrayNode, axis: int, before: int, after: int) -> ArrayNode:
    """Put the last elements of an axis before it, and the first ones after it."""
    size = node.shape[axis]

    def part(lo: int, hi: int) -> ArrayNode:
        return take_slices(node, [slice(lo, hi) if a == axis else slice(None) for a in range(len(node.grid))])

    parts = [part(size - before, size)] * bool(before) + [node] + [part(0, after)] * bool(after)
    return concat(parts, axis, node.dtype)


class Reading(NamedTuple):
    """What chunks read along each axis of a grid: the positions, and the chunks that have them."""

    grid: Grid
    reads: tuple[tuple[tuple[int, int], ...], ...]
    touched: tuple[tuple[tuple[int, int], ...], ...]


def _in_pieces(node: ArrayNode, grid: Grid, touched: Sequence[Sequence[tuple[int, int]]], most: int) -> bool:
    """Return whether chunks are cut into pieces first: a task would have too many whole neighbours in memory."""
    width = prod([max(past - first for first, past in spans) for spans in touched])
    nbytes = width * largest(node.grid) * node.dtype.itemsize
    return nbytes > most and nbytes > WHOLE_CHUNKS * largest(grid) * node.dtype.itemsize


def _readers(spans: Sequence[tuple[int, int]], at: int) -> range:
    """Return the chunks with halos that read chunk `at`."""
    return range(bisect_right(spans, at, key=lambda span: span[1]), bisect_right(spans, at, key=lambda span: span[0]))


def _most_readers(spans: Sequence[tuple[int, int]], n: int) -> int:
    return max([len(_readers(spans, at)) for at in range(n)])


def _split(place: ChunkPlace, x: Chunk, *, how: Reading, most: int) -> list[Any]:
    """Cut a chunk into the pieces that the chunks with halos read, padded with None to the most pieces."""
    slices = []
    for axis, (begin, n) in enumerate(zip(place.begin, place.shape, strict=True)):
        readers = [how.reads[axis][d] for d in _readers(how.touched[axis], place.at[axis])]
        slices.append([slice(max(lo, begin) - begin, max(min(hi, begin + n), begin) - begin) for lo, hi in readers])
    pieces: list[Any] = [x[where] for where in product(*slices)]
    return pieces + [None] * (most - len(pieces))


def _joined(
    place: ChunkPlace,
    parts: Any,
    *,
    how: Reading,
    halos: tuple[Halo, ...],
    wanted: tuple[tuple[tuple[int, int], ...], ...],
    sizes: tuple[int, ...],
    dtype: DType,
    pieces: bool,
) -> Chunk:
    """Join a chunk with its halo from chunks or their pieces, and make the elements outside of the array."""
    at = place.at
    begin = [reads[i][0] for reads, i in zip(how.reads, at, strict=True)]
    ends = [reads[i][1] for reads, i in zip(how.reads, at, strict=True)]
    spans = [spans[i] for spans, i in zip(wanted, at, strict=True)]
    ranges_ = [range(*touched[i]) for touched, i in zip(how.touched, at, strict=True)]
    listed = parts if isinstance(parts, list) else [parts]
    inside = [(max(lo, 0), min(hi, size)) for (lo, hi), size in zip(spans, sizes, strict=True)]
    direct = list(zip(begin, ends, strict=True)) == inside  # else elements are read for the boundary alone
    outside = [
        halo.boundary != "none" and span != within for halo, span, within in zip(halos, spans, inside, strict=True)
    ]
    if direct and any(outside):
        box = [span if beyond else within for span, within, beyond in zip(spans, inside, outside, strict=True)]
    else:
        box = list(zip(begin, ends, strict=True))
    whole: Any = None
    if len(listed) > 1 or box != list(zip(begin, ends, strict=True)):
        whole = np.empty([hi - lo for lo, hi in box], dtype)
    for part, numbers in zip(listed, product(*ranges_), strict=True):
        where, inner = [], []
        for cut, number, lo, hi, (first_of_box, _) in zip(how.grid, numbers, begin, ends, box, strict=True):
            a, b = cut.span(number)
            first, last = max(a, lo), max(min(b, hi), max(a, lo))
            where.append(slice(first - first_of_box, last - first_of_box))
            inner.append(slice(first - a, last - a))
        found = part if pieces else part[tuple(inner)]
        if whole is None:
            whole = found
        else:
            whole[tuple(where)] = found
    for axis, (halo, span, size) in enumerate(zip(halos, spans, sizes, strict=True)):
        if not direct:
            whole = _taken(whole, axis, halo, span, size, begin[axis])
        elif outside[axis]:
            _fill(whole, axis, halo, span, size)
    return whole


def _fill(x: Chunk, axis: int, halo: Halo, span: tuple[int, int], size: int) -> None:
    """Set the elements of a chunk that are outside of the array along an axis; `span` are the positions of all."""
    lo, hi = span
    before = (slice(None),) * axis
    for first, past in ((lo, min(0, hi)), (max(size, lo), hi)):
        if past <= first:
            continue
        strip = (*before, slice(first - lo, past - lo))
        if halo.boundary in FOLDED:
            x[strip] = np.take(x, halo.positions(first, past, size) - lo, axis)
        else:
            x[strip] = halo.boundary


def _taken(x: Chunk, axis: int, halo: Halo, span: tuple[int, int], size: int, begin: int) -> Chunk:
    """Return the wanted positions along an axis from the elements that were read, which begin at `begin`."""
    lo, hi = span
    if (lo >= 0 and hi <= size) or halo.boundary == "none":
        lo, hi = max(lo, 0) - begin, min(hi, size) - begin
        return x if lo == 0 and hi == x.shape[axis] else x[(*(slice(None),) * axis, slice(lo, hi))]
    made = np.take(x, halo.positions(lo, hi, size) - begin, axis)
    if halo.boundary not in FOLDED:
        before = (slice(None),) * axis
        made[(*before, slice(0, max(0, -lo)))] = halo.boundary
        made[(*before, slice(made.shape[axis] - max(0, hi - size), None))] = halo.boundary
    return made


def trimmed(node: ArrayNode, grid: Grid, halos: Sequence[Halo], cuts: Grid) -> ArrayNode:
    """Return an array in chunks of `grid` from one whose chunks have halos around those of `cuts` too."""
    if not any(halo.before or halo.after for halo in halos):
        return node
    firsts = tuple([tuple([first for first, _ in halo.trims(cut)]) for halo, cut in zip(halos, cuts, strict=True)])
    return call(_trimmed, node, grid, node.dtype, placed=True, name="trim", firsts=firsts)


def _trimmed(place: ChunkPlace, x: Chunk, *, firsts: tuple[tuple[int, ...], ...]) -> Chunk:
    begins = [first[i] for first, i in zip(firsts, place.at, strict=True)]
    return x[tuple([slice(lo, lo + n) for lo, n in zip(begins, place.shape, strict=True)])]
