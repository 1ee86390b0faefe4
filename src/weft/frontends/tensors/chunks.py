"""The chunks of arrays: one `Cut` for each axis, as arithmetic.

A grid of chunks is the product of its cuts, its chunks are numbered in row-major order, and no object stands for a
chunk. An even cut (all chunks as long as the first, except the last) costs three numbers for any number of chunks; a
cut with individual lengths costs a number for each chunk of its axis, never for each chunk of the grid. Lengths may be
unknown until the graph has run (boolean indexing, `unique`): then only the number of chunks is known, and after a
change of chunks not even that.

An axis of length 0 has one chunk of length 0, so that every grid has at least one chunk.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil, prod
from numbers import Integral
from typing import Any

from weft.graph.axes import Axis, Span, copy, group, ranges, ungroup, whole
from weft.model.errors import UsageError
from weft.model.wording import counted

_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_BYTES = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_UNITS)})", re.IGNORECASE)
UNKNOWN = -1
"""The length of an axis that becomes known when the graph runs."""
CHUNK_BYTES = 64 * 2**20
"""The most bytes of a chunk without a size from the user."""
FEWEST_BYTES = 2**20
"""The least bytes of chunks that are made smaller for parallelism alone."""
BLOCK = 64 * 1024
"""The most elements of a block: chosen chunks hold whole blocks, which depend on the shape alone."""
PER_WORKER = 4
"""The least number of chunks for each worker, if they stay large enough: the last ones balance the load."""


class Cut:
    """One axis: `size` elements in `n` chunks. `chunk` is the length of all but the last, 0 if they differ."""

    __slots__ = ("chunk", "ends", "n", "size")

    def __init__(self, size: int, n: int, chunk: int = 0, ends: tuple[int, ...] = ()) -> None:
        self.size = size
        self.n = n
        self.chunk = chunk
        self.ends = ends

    def __reduce__(self) -> tuple[Any, ...]:
        return Cut, (self.size, self.n, self.chunk, self.ends)

    @classmethod
    def even(cls, size: int, chunk: int) -> Cut:
        """Cut `size` elements into chunks of `chunk`; the last one may be shorter."""
        chunk = max(1, min(chunk, size))
        return cls(size, max(1, ceil(size / chunk)), chunk)

    @classmethod
    def whole(cls, size: int) -> Cut:
        """Return the cut into one chunk."""
        return cls.even(size, size)

    @classmethod
    def of(cls, lengths: Iterable[int]) -> Cut:
        """Cut into chunks of these lengths; an even cut if possible."""
        listed = tuple(lengths)
        if not listed:
            return cls.even(0, 1)
        first, size = listed[0], sum(listed)
        if len(listed) == 1 or (first and all(length == first for length in listed[:-1]) and 0 < listed[-1] <= first):
            return cls.even(size, first)
        return cls(size, len(listed), 0, tuple(accumulate(listed)))

    def holding(self, block: int) -> Cut:
        """Return an even cut whose chunks hold whole blocks of a length: this one, or one with longer chunks."""
        return self if self.n == 1 or self.chunk % block == 0 else Cut.even(self.size, ceil(self.chunk / block) * block)

    @classmethod
    def unknown(cls, n: int) -> Cut:
        """Return a cut into `n` chunks of unknown lengths."""
        return cls(UNKNOWN, n)

    @classmethod
    def uncounted(cls) -> Cut:
        """Return a cut with an unknown number of chunks."""
        return cls(UNKNOWN, 0)

    @property
    def known(self) -> bool:
        """Whether the lengths are known."""
        return self.size >= 0

    def span(self, index: int) -> Span:
        """Return the start and the end of chunk `index`."""
        if self.ends:
            return (self.ends[index - 1] if index else 0), self.ends[index]
        lo = index * self.chunk
        return lo, min(lo + self.chunk, self.size)

    def length(self, index: int) -> int:
        """Return the length of chunk `index`."""
        lo, hi = self.span(index)
        return hi - lo

    @property
    def longest(self) -> int:
        """The length of the longest chunk."""
        if not self.ends:
            return min(self.chunk, self.size)
        return max(self.lengths())

    def lengths(self) -> tuple[int, ...]:
        """Return the lengths of all chunks."""
        return tuple([self.length(i) for i in range(self.n)])

    def at(self, position: int) -> int:
        """Return the chunk of an element; `size` itself lies in the one after the last."""
        if self.ends:
            return bisect_right(self.ends, position)
        return position // self.chunk if position < self.size else self.n

    def touched(self, lo: int, hi: int) -> Span:
        """Return the range of chunks with elements in `lo:hi`; one chunk if there are none."""
        if hi <= lo:
            first = min(self.at(lo), self.n - 1)
            return first, first + 1
        return self.at(lo), self.at(hi - 1) + 1

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Cut)
            and self.size == other.size
            and self.n == other.n
            and (self.chunk == other.chunk or self.n == 1)
            and self.ends == other.ends
            and self.known
        )

    def __hash__(self) -> int:
        return hash((self.size, self.n, self.ends))

    def __repr__(self) -> str:
        if not self.known:
            return f"Cut({self.n or 'no one knows how many'} chunks of unknown lengths)"
        return f"Cut({self.size} by {self.chunk or self.lengths()})"


Grid = tuple[Cut, ...]
"""The cuts of all axes of an array."""


def shape_of(grid: Grid) -> tuple[int, ...]:
    """Return the length of each axis, UNKNOWN for unknown lengths."""
    return tuple([cut.size for cut in grid])


def counts(grid: Grid) -> tuple[int, ...]:
    """Return the number of chunks along each axis."""
    return tuple([cut.n for cut in grid])


def chunks_in(grid: Grid) -> int:
    """Return the number of chunks."""
    return prod([cut.n for cut in grid])


def known(grid: Grid) -> bool:
    """Whether all lengths are known."""
    return all(cut.size >= 0 for cut in grid)


def one_chunk(shape: Sequence[int]) -> Grid:
    """Return the grid of an array in one chunk."""
    return tuple([Cut.whole(size) for size in shape])


def coordinates(index: int, counts: Sequence[int]) -> tuple[int, ...]:
    """Return the coordinates of a chunk in its grid."""
    at = []
    for n in reversed(counts):
        index, i = divmod(index, n)
        at.append(i)
    return tuple(at[::-1])


# ------------------------------------------------------------------------------------------------- choosing sizes


def choose(
    shape: Sequence[int], itemsize: int, workers: int, *, keep: Iterable[int] = (), most: int = CHUNK_BYTES
) -> Grid:
    """Choose the chunks of an array without a size from the user: at most `most` bytes each, several for each worker.

    Axes are cut from the first on, so that chunks stay contiguous in memory, at the ends of `blocks` as far as the
    limits allow; axes in `keep` are not cut.
    """
    whole_axes = set(keep)
    total = prod(shape) * itemsize
    wanted = max(ceil(total / most), min(PER_WORKER * workers, total // FEWEST_BYTES), 1)
    cuts = []
    for axis, size in enumerate(shape):
        n = 1 if axis in whole_axes or size == 0 else min(size, wanted)
        chunk = ceil(size / n) if size else 1
        if n > 1:
            block = blocks(shape)[axis]
            whole = ceil(chunk / block) * block
            if whole * prod(shape[axis + 1 :]) * itemsize <= most:
                chunk = whole
            elif chunk > block:
                chunk = chunk // block * block
        cuts.append(Cut.even(size, chunk))
        wanted = ceil(wanted / n)
    return tuple(cuts)


def blocks(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths of the blocks of a shape, which are contiguous in row-major order.

    They are 1 along the first axes, then a power of two, and the whole axis along the last ones.
    """
    rest, lengths = 1, []
    for size in reversed(shape):
        fit = BLOCK // rest
        lengths.append(max(1, min(size, 1 << fit.bit_length() - 1 if fit else 1)))
        rest *= max(size, 1)
    return tuple(lengths[::-1])


def normalize(wanted: Any, shape: Sequence[int], itemsize: int, workers: int, most: int = CHUNK_BYTES) -> Grid:
    """Return the grid for a user's `chunk_size` or `chunks`.

    None or "auto": `choose`, at most `most` bytes each; a text such as "64MiB": at most so many; a number: the most
    elements along each axis; a sequence: for each axis a number, the lengths of its chunks, or None (-1, "auto") for
    the whole axis; a mapping of axes to these. UsageError names the axis.
    """
    if wanted is None or (isinstance(wanted, str) and wanted == "auto"):
        return choose(shape, itemsize, workers, most=most)
    if isinstance(wanted, str) and (size := _BYTES.fullmatch(wanted.strip())):
        return choose(shape, itemsize, workers, most=max(1, int(float(size[1]) * _UNITS[size[2].lower()])))
    if isinstance(wanted, Integral):
        wanted = (wanted,) * len(shape)
    if isinstance(wanted, dict):
        for axis in wanted:
            if not isinstance(axis, Integral) or not -len(shape) <= int(axis) < len(shape):
                raise UsageError(
                    f"chunk_size names axis {axis!r} of an array of {counted(len(shape), 'axis', 'axes')}",
                    hint=f"Number axes from 0 to {len(shape) - 1}.",
                )
        wanted = [wanted.get(axis, wanted.get(axis - len(shape))) for axis in range(len(shape))]
    if not isinstance(wanted, Sequence) or isinstance(wanted, str):
        raise UsageError(
            f"chunk_size is {wanted!r}",
            hint="Give a number of elements, one for each axis, or the lengths of the chunks of each axis.",
        )
    if len(shape) == 1 and len(wanted) != 1 and all(isinstance(length, Integral) for length in wanted):
        wanted = (wanted,)
    if len(wanted) != len(shape):
        raise UsageError(
            f"chunk_size has {counted(len(wanted), 'entry', 'entries')} for an array of {len(shape)} axes",
            hint="Give one for each axis.",
        )
    return tuple([_axis(axis, size, given) for axis, (size, given) in enumerate(zip(shape, wanted, strict=True))])


def _axis(axis: int, size: int, given: Any) -> Cut:
    if given is None or given == -1 or (isinstance(given, str) and given == "auto"):
        return Cut.whole(size)
    if isinstance(given, Cut):
        given = given.lengths()
    if isinstance(given, Integral):
        chunk = int(given)
        if chunk < 1:
            raise UsageError(f"chunk_size of axis {axis} is {chunk}", hint="Give at least 1, or -1 for the whole axis.")
        return Cut.even(size, chunk)
    lengths = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else None
    if lengths is None or not all(isinstance(length, Integral) and int(length) >= 0 for length in lengths):
        raise UsageError(f"chunk_size of axis {axis} is {given!r}", hint="Give a number or the lengths of its chunks.")
    if sum(lengths) != size:
        raise UsageError(
            f"the chunks of axis {axis} are {sum(lengths)} long in all; the axis has {size} elements",
            hint="Make the lengths add up.",
        )
    return Cut.of([int(length) for length in lengths if length] or [0])


def largest(grid: Grid) -> int:
    """Return the largest number of elements of a chunk; the lengths must be known."""
    return prod([cut.longest for cut in grid])


# ------------------------------------------------------------------------------------------------------ exchanges


def overlaps(axis: int, src: Cut, dst: Cut) -> Axis:
    """Return for each chunk of `dst` the range of chunks of `src`, on source axis `axis`, that it overlaps."""
    if src == dst:
        return copy(axis)
    if dst.n == 1:
        return whole(axis)
    if src.chunk and dst.chunk:
        if dst.chunk % src.chunk == 0:
            return group(axis, dst.chunk // src.chunk)
        if src.chunk % dst.chunk == 0:
            return ungroup(axis, src.chunk // dst.chunk)
    return ranges(axis, [src.touched(*dst.span(i)) for i in range(dst.n)])
