"""The alignment of chunks: broadcasting, changes of chunks, and reading along axis maps.

These functions take and make nodes; the modules of the function families use them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from math import ceil, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.chunks import FEWEST_BYTES, Cut, Grid, counts, known, largest, one_chunk, overlaps
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call
from weft.graph.axes import Axis, broadcast, copy
from weft.model.errors import UsageError
from weft.operators.region_steps import ChunkPlace, KernelKind, OperandSlot

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk, DType

WHOLE_CHUNKS = 4
"""A change of chunks reads whole chunks if it reads at most so many times its output; else the chunks are cut first."""
WHOLE_CHUNKS_BYTES = 2**23
"""The bytes of whole chunks that a task of a change of chunks may read in any case."""
BROADCAST_BYTES = 2**22
"""The most bytes of a chunk that broadcasting makes, if no operand has larger chunks."""

Scalar = bool | int | float | complex
"""A Python number: it has no dtype of its own, and takes that of the arrays in the same call."""


# ----------------------------------------------------------------------------------------------------- reading


def mapped(node: ArrayNode, dst: Grid, axes: Sequence[int | None]) -> NodeInput:
    """Return an input whose chunk along axis `d` of the reader is that of source axis `axes[d]`; None reads one chunk.

    Axes with one chunk do not count in the numbers of chunks, so they are left out; an identical map is `SAME`.
    """
    src_counts, dst_counts = counts(node.grid), counts(dst)
    src_axes = [axis for axis, n in enumerate(src_counts) if n > 1]
    dst_axes = [d for d, n in enumerate(dst_counts) if n > 1]
    wanted = [src_axes.index(s) if (s := axes[d]) is not None and src_counts[s] > 1 else None for d in dst_axes]
    if wanted == list(range(len(src_axes))):
        return NodeInput(node)
    rules = tuple([broadcast() if at is None else copy(at) for at in wanted])
    return NodeInput(
        node,
        Read.GRID,
        src=tuple([src_counts[axis] for axis in src_axes]),
        dst=tuple([dst_counts[d] for d in dst_axes]),
        axes=rules,
    )


def stretched(node: ArrayNode, dst: Grid) -> NodeInput:
    """Return an input that is broadcast to a grid with the same cuts on all axes that are not of length 1."""
    missing = len(dst) - len(node.grid)
    return mapped(node, dst, [None if d < missing else d - missing for d in range(len(dst))])


# ----------------------------------------------------------------------------------------------------- one grid


def common_grid(operands: Sequence[ArrayNode], shape: Sequence[int]) -> Grid:
    """Return the chunks of the result of an element-wise operation: along each axis those of the largest operand."""
    cuts: list[Cut] = []
    for axis, size in enumerate(shape):
        best: tuple[int, Cut] | None = None
        for node in operands:
            at = axis - (len(shape) - len(node.grid))
            if at < 0 or (node.grid[at].size == 1 and size != 1):
                continue
            weight = len(node.grid) * 10**18 + (node.size if node.grid[at].known else 10**17)
            if best is None or weight > best[0]:
                best = (weight, node.grid[at])
        cuts.append(best[1] if best is not None else Cut.whole(size))
    return _bounded(tuple(cuts), operands)


def _bounded(grid: Grid, operands: Sequence[ArrayNode]) -> Grid:
    """Return the chunks of a result that are cut further where broadcasting has made them larger than its operands."""
    if not known(grid) or not all(known(node.grid) for node in operands):
        return grid
    most = max([largest(node.grid) for node in operands], default=0)
    if largest(grid) <= most:
        return grid
    most = max(most, BROADCAST_BYTES // max(1, *[node.dtype.itemsize for node in operands]))
    cuts = list(grid)
    while largest(tuple(cuts)) > most:
        at = max(range(len(cuts)), key=lambda axis: cuts[axis].longest)
        halves = [part for n in cuts[at].lengths() for part in ((n + 1) // 2, n // 2) if part]
        cuts[at] = Cut.of(halves)
    return tuple(cuts)


def fitted(node: ArrayNode, dst: Grid) -> ArrayNode:
    """Return a node with the cuts of `dst` along all axes that are not broadcast."""
    missing = len(dst) - len(node.grid)
    return rechunk(node, tuple([cut if cut.size == 1 else dst[axis + missing] for axis, cut in enumerate(node.grid)]))


# ----------------------------------------------------------------------------------------------- changing chunks


def rechunk(node: ArrayNode, grid: Grid) -> ArrayNode:
    """Return the same array in other chunks, each joined from parts of the chunks that it overlaps."""
    if node.grid == grid:
        return node
    for axis, (src, dst) in enumerate(zip(node.grid, grid, strict=True)):
        if src is not dst and not (src.known and dst.known):
            raise UsageError(
                f"axis {axis} has chunks of lengths that nobody knows yet, and cannot be cut otherwise",
                hint="Read .shape first: that computes them.",
            )
    if node.fn is join or node.fn is paste:
        node = node.inputs[0].node  # only the last of two changes counts
        node = node.inputs[0].node if node.fn is split else node
        if node.grid == grid:
            return node
    axes = tuple([overlaps(axis, src, dst) for axis, (src, dst) in enumerate(zip(node.grid, grid, strict=True))])
    before, pieces = Cuts(node.grid), _in_pieces(node, grid)
    if pieces:
        most = prod([_most_touched(src, dst) for src, dst in zip(node.grid, grid, strict=True)])
        node = call(split, node, node.grid, node.dtype, placed=True, dst=Cuts(grid), most=most)
    one = NodeInput(node, Read.GRID, src=counts(node.grid), dst=counts(grid), axes=axes, pieces=pieces)
    fn = paste if pieces else join
    return call(fn, [one], grid, node.dtype, placed=True, name="rechunk", src=before, axes=axes, dtype=node.dtype)


def _in_pieces(node: ArrayNode, grid: Grid) -> bool:
    """Return whether chunks are cut into pieces for a change of chunks.

    A task that reads whole chunks of the old grid for small parts of them has all of them in memory at once, and many
    tasks read each. Below some size that costs less than cutting.
    """
    if not known(node.grid) or not known(grid):
        return False
    touched = itemsize = node.dtype.itemsize
    for src, dst in zip(node.grid, grid, strict=True):
        touched *= src.size if dst.n == 1 else min(src.size, src.longest * (-(-dst.longest // src.longest) + 1))
    wanted = prod([cut.longest for cut in grid]) * itemsize
    return touched > WHOLE_CHUNKS_BYTES and touched > WHOLE_CHUNKS * wanted


def _most_touched(src: Cut, dst: Cut) -> int:
    """Return the largest number of chunks of another cut that one chunk overlaps."""
    return max([past - first for first, past in (dst.touched(*src.span(i)) for i in range(src.n))])


def split(place: ChunkPlace, x: Any, *, dst: Cuts, most: int) -> list[Any]:
    """Cut a chunk into the pieces of another grid, in row-major order, padded with None to the most pieces."""
    slices = []
    for cut, begin, n in zip(dst.grid, place.begin, place.shape, strict=True):
        first, past = cut.touched(begin, begin + n)
        spans = [cut.span(i) for i in range(first, past)]
        slices.append([slice(max(lo, begin) - begin, min(hi, begin + n) - begin) for lo, hi in spans])
    pieces: list[Any] = [x[where] for where in product(*slices)]
    return pieces + [None] * (most - len(pieces))


def paste(place: ChunkPlace, parts: list[Any], *, src: Cuts, axes: tuple[Axis, ...], dtype: DType) -> Any:
    """Join a chunk from its pieces, which come in row-major order of the chunks that they were cut from."""
    spans = []
    for cut, begin, n in zip(src.grid, place.begin, place.shape, strict=True):
        ends = [cut.span(i) for i in range(*cut.touched(begin, begin + n))]
        spans.append([slice(max(lo, begin) - begin, min(hi, begin + n) - begin) for lo, hi in ends])
    whole = np.empty(place.shape, dtype)
    for part, where in zip(parts, product(*spans), strict=True):
        whole[where] = part
    return whole


class Cuts:
    """The cuts of a grid as a parameter of a program."""

    __slots__ = ("grid",)

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cuts) and self.grid == other.grid

    def __hash__(self) -> int:
        return hash(self.grid)

    def __reduce__(self) -> tuple[Any, ...]:
        return Cuts, (self.grid,)


def join(place: ChunkPlace, parts: Any, *, src: Cuts, axes: tuple[Axis, ...], dtype: DType) -> Any:
    """Join a chunk from the chunks of another grid that it overlaps."""
    begin, shape = place.begin, place.shape
    touched = [
        cut.touched(lo, lo + n) if cut.n > 1 else (0, 1) for cut, lo, n in zip(src.grid, begin, shape, strict=True)
    ]
    listed = parts if isinstance(parts, list) else [parts]
    if len(listed) == 1:
        return listed[0][_inside(src.grid, [lo for lo, _ in touched], begin, shape)]
    whole = np.empty(shape, dtype)
    at = [lo for lo, _ in touched]
    for part in listed:
        where, inner = [], []
        for cut, i, lo, n in zip(src.grid, at, begin, shape, strict=True):
            a, b = cut.span(i)
            first, last = max(a, lo), min(b, lo + n)
            where.append(slice(first - lo, last - lo))
            inner.append(slice(first - a, last - a))
        whole[tuple(where)] = part[tuple(inner)]
        for axis in reversed(range(len(at))):  # the next one in row-major order
            at[axis] += 1
            if at[axis] < touched[axis][1]:
                break
            at[axis] = touched[axis][0]
    return whole


def _inside(grid: Grid, at: Sequence[int], begin: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    inner = []
    for cut, i, lo, n in zip(grid, at, begin, shape, strict=True):
        first = lo - cut.span(i)[0]
        inner.append(slice(first, first + n))
    return tuple(inner)


def whole_along(node: ArrayNode, axes: Sequence[int]) -> ArrayNode:
    """Return the same array with one chunk along some axes; large chunks are cut along other axes instead."""
    grid = list(node.grid)
    for axis in axes:
        grid[axis] = Cut.whole(grid[axis].size) if grid[axis].n > 1 else grid[axis]
    made = tuple(grid)
    if known(made) and made != node.grid:
        most = max(largest(node.grid) * node.dtype.itemsize, FEWEST_BYTES)
        for axis, cut in enumerate(made):
            times = ceil(largest(tuple(grid)) * node.dtype.itemsize / most)
            if times > 1 and axis not in axes:
                grid[axis] = Cut.even(cut.size, max(1, cut.longest // times))
    return rechunk(node, tuple(grid))


def in_one(node: ArrayNode) -> ArrayNode:
    """Return the same array in one chunk."""
    return rechunk(node, one_chunk(node.shape)) if node.chunks > 1 else node


# -------------------------------------------------------------------------------------------------- element-wise


@lru_cache(maxsize=4096)
def _resolve(fn: np.ufunc, kinds: tuple[Any, ...]) -> tuple[DType, ...]:
    found: tuple[DType, ...] = fn.resolve_dtypes((*kinds, *[None] * fn.nout))
    return found


_COMPARISONS = frozenset({np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal})
"""Comparisons of integers, which are exact for any Python number."""


def together(operands: Sequence[Any]) -> tuple[Grid, list[NodeInput], list[Any]]:
    """Return the chunks of an element-wise call over nodes and Python numbers, its inputs, and its arguments."""
    nodes = [one for one in operands if isinstance(one, ArrayNode)]
    grid = common_grid(nodes, broadcast_shapes(*[node.grid for node in nodes]))
    inputs: list[NodeInput] = []
    args: list[Any] = []
    for one in operands:
        if isinstance(one, ArrayNode):
            args.append(OperandSlot(len(inputs)))
            inputs.append(stretched(fitted(one, grid), grid))
        else:
            args.append(one)
    return grid, inputs, args


def apply(fn: np.ufunc, *operands: ArrayNode | Scalar, out: int = 0) -> ArrayNode:
    """Return a ufunc of nodes and Python numbers, at least one of them a node; of several results number `out`.

    Dtypes and errors are those of NumPy: TypeError for dtypes that do not fit together, ValueError for shapes that do
    not broadcast, OverflowError for a number that the dtype cannot hold.
    """
    kinds = tuple([one.dtype if isinstance(one, ArrayNode) else _kind(one) for one in operands])
    found = _resolve(fn, kinds)
    for one, into in zip(operands, found, strict=False):
        if isinstance(one, int) and not isinstance(one, bool) and into.kind in "iu" and fn not in _COMPARISONS:
            np.asarray(one, dtype=into)  # OverflowError now, not in the run
    grid, inputs, args = together(operands)
    dtype = found[fn.nin + out]
    if fn.nout == 1:
        return ArrayNode(KernelKind.UFUNC, fn, inputs, grid, dtype, args=args)
    several = ArrayNode(KernelKind.CALL, fn, inputs, grid, found[fn.nin], args=args)
    return call(_output, several, grid, dtype, name=fn.__name__, at=out)


def _output(values: Chunk, *, at: int) -> Chunk:
    return values[at]


def _kind(value: Scalar) -> Any:
    if isinstance(value, bool | np.bool):
        return np.dtype(bool)
    if isinstance(value, int):
        return int
    if isinstance(value, float):
        return float
    return complex


def broadcast_shapes(*grids: Grid) -> tuple[int, ...]:
    """Return the broadcast shape of arrays, UNKNOWN for unknown lengths; ValueError as NumPy words it.

    An unknown length fits 1 and the very same cut.
    """
    shapes = [tuple([cut.size for cut in grid]) for grid in grids]
    if all(size >= 0 for shape in shapes for size in shape):
        return np.broadcast_shapes(*shapes)
    ndim = max(len(shape) for shape in shapes)
    result = []
    for axis in range(ndim):
        cuts = [grid[axis - ndim + len(grid)] for grid in grids if axis - ndim + len(grid) >= 0]
        long = [cut for cut in cuts if cut.size != 1]
        if any(cut is not long[0] and cut != long[0] for cut in long):
            raise UsageError(
                "arrays with lengths that nobody knows yet do not go together",
                hint="Read .shape of both first: that computes them.",
            )
        result.append(long[0].size if long else 1)
    return tuple(result)


def elementwise(
    fn: Callable[..., Any], operands: Sequence[Any], dtype: DType, name: str = "", **kwargs: Any
) -> ArrayNode:
    """Return an element-wise call, not of a ufunc, of nodes and Python numbers."""
    grid, inputs, args = together(operands)
    return ArrayNode(KernelKind.CALL, fn, inputs, grid, dtype, args=args, kwargs=kwargs, name=name)


def where(condition: ArrayNode, x: Any, y: Any, dtype: DType) -> ArrayNode:
    """Return elements of x where a condition holds, else of y."""
    return elementwise(_where, (condition, x, y), dtype, "where", kind=dtype)


def _where(condition: Any, x: Chunk, y: Chunk, *, kind: DType) -> Chunk:
    return np.asarray(np.where(condition, np.asarray(x, kind), np.asarray(y, kind)), kind)  # `where` swaps bytes


def _picked(values: Chunk, *, at: int) -> Chunk:
    return np.asarray(values[at])


def pick(node: ArrayNode, at: int, grid: Grid, dtype: DType, name: str) -> ArrayNode:
    """Return one of the arrays of a node that makes several."""
    return call(_picked, node, grid, dtype, name=name, at=at)
