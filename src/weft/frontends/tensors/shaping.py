"""The same elements in another shape or order: transposes, reshapes, concatenations, repeats."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.blocks import mapped, rechunk, whole_along
from weft.frontends.tensors.chunks import Cut, Grid, chunks_in, counts, known, one_chunk
from weft.frontends.tensors.eager import plain
from weft.frontends.tensors.indexing import take_slices
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call
from weft.graph.axes import copy, ranges
from weft.operators.regions import TILE

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk, DType
    from weft.operators.region_steps import ChunkPlace

TOGETHER = 16
"""The most arrays that one task concatenates."""
_FEW = 64
"""The most elements behind a chunk that the task of its concatenation makes itself."""


def _transposed(x: Chunk, *, axes: tuple[int, ...]) -> Chunk:
    return np.transpose(x, axes)


def permute(node: ArrayNode, axes: Sequence[int]) -> ArrayNode:
    """Permute the axes."""
    axes = tuple(axes)
    if axes == tuple(range(len(axes))):
        return node
    grid = tuple([node.grid[axis] for axis in axes])
    one = mapped(node, grid, axes)
    return call(_transposed, [one], grid, node.dtype, cheap=node.cheap, name="transpose", axes=axes)


def _reshaped(place: ChunkPlace, x: Chunk) -> Chunk:
    return np.reshape(x, place.shape)


def reshape(node: ArrayNode, shape: Sequence[int]) -> ArrayNode:
    """Give the array another shape, in row-major order; the number of elements must be the same.

    Unchanged axes keep their chunks. Changed axes are read in chunks of whole rows whose borders lie in both shapes, so
    that elements move between chunks only in one change of chunks before.
    """
    shape = tuple(shape)
    if shape == node.shape:
        return node
    before: list[Cut] = []
    after: list[Cut] = []
    for given, wanted in _groups(node.shape, shape):
        cuts = node.grid[given]
        sizes = shape[wanted]
        if len(cuts) == len(sizes) == 1:
            before += cuts
            after += cuts
            continue
        old, new = _rows(cuts, sizes)
        before += old
        after += new
    made = rechunk(node, tuple(before))
    return call(_reshaped, made, tuple(after), node.dtype, placed=True, cheap=made.cheap, name="reshape")


def _groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[slice, slice]]:
    """Pair runs of axes with the same number of elements; all axes in one pair if the array is empty."""
    if 0 in old or 0 in new:
        return [(slice(0, len(old)), slice(0, len(new)))]
    pairs = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = i, j
        left = old[i] if i < len(old) else 1
        right = new[j] if j < len(new) else 1
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while left != right:
            if left < right:
                left *= old[i]
                i += 1
            else:
                right *= new[j]
                j += 1
        pairs.append((slice(a, i), slice(b, j)))
    return pairs


def _rows(cuts: Sequence[Cut], sizes: Sequence[int]) -> tuple[Sequence[Cut], Sequence[Cut]]:
    """Return chunks of whole rows, in both shapes, with the same borders."""
    old_sizes = [cut.size for cut in cuts]
    total = prod(sizes)
    if not cuts or not sizes or total == 0:
        return one_chunk(old_sizes), one_chunk(sizes)
    row_old, row_new = total // cuts[0].size, total // sizes[0]
    step = lcm(row_old, row_new)
    wanted = total // max(1, chunks_in(tuple(cuts)))
    chunk = max(1, wanted // step) * step
    if chunk >= total or total % step:
        return one_chunk(old_sizes), one_chunk(sizes)
    old = [Cut.even(cuts[0].size, chunk // row_old), *one_chunk(old_sizes[1:])]
    new = [Cut.even(sizes[0], chunk // row_new), *one_chunk(sizes[1:])]
    return old, new


def _dropped(x: Chunk, *, axes: tuple[int, ...]) -> Chunk:
    return np.squeeze(x, axes)


def squeeze(node: ArrayNode, axes: tuple[int, ...]) -> ArrayNode:
    """Drop axes of length 1."""
    grid = tuple([cut for axis, cut in enumerate(node.grid) if axis not in axes])
    return call(_dropped, node, grid, node.dtype, cheap=node.cheap, name="squeeze", axes=axes)


def _spread(place: ChunkPlace, x: Chunk) -> Chunk:
    return np.broadcast_to(x, place.shape)


def broadcast_to(node: ArrayNode, grid: Grid) -> ArrayNode:
    """Repeat along axes of length 1, or missing axes, without copying."""
    missing = len(grid) - len(node.grid)
    axes = [None if d < missing else d - missing for d in range(len(grid))]
    fitted = rechunk(node, tuple([cut if cut.size == 1 else grid[a + missing] for a, cut in enumerate(node.grid)]))
    return call(_spread, [mapped(fitted, grid, axes)], grid, node.dtype, placed=True, name="broadcast_to")


def flip(node: ArrayNode, axes: Sequence[int]) -> ArrayNode:
    """Reverse the order along axes."""
    return take_slices(node, [slice(None, None, -1) if a in axes else slice(None) for a in range(len(node.grid))])


# ---------------------------------------------------------------------------------------------------- put together


def _first(*parts: list[Any], dtype: DType) -> Any:
    (found,) = [one for part in parts for one in part]
    return np.asarray(found, dtype)


def concat(nodes: Sequence[ArrayNode], axis: int, dtype: DType) -> ArrayNode:
    """Concatenate arrays along an axis; all other axes must agree.

    Chunks stay as they are. The cost grows with the number of arrays, since each chunk of a concatenation refers to all
    of them, so of more than `TOGETHER` arrays neighbours of one chunk each are joined up to a tile, and the rest by a
    tree.
    """
    if len(nodes) > 1:
        nodes = [node for node in nodes if node.grid[axis].size != 0] or nodes[:1]
    if len(nodes) > TOGETHER:
        nodes = [_joined(run, axis, dtype) for run in _runs(nodes)]
    while len(nodes) > TOGETHER:
        nodes = [_beside(nodes[at : at + TOGETHER], axis, dtype) for at in range(0, len(nodes), TOGETHER)]
    return _beside(nodes, axis, dtype)


def _runs(nodes: Sequence[ArrayNode]) -> list[list[ArrayNode]]:
    """Group neighbours of one chunk each while they have no more elements than a tile; larger arrays stay alone."""
    found: list[list[ArrayNode]] = []
    room = 0
    for node in nodes:
        fits = node.chunks == 1 and 0 <= node.size <= TILE
        if found and fits and node.size <= room:
            found[-1].append(node)
            room -= node.size
        else:
            found.append([node])
            room = TILE - node.size if fits else 0
    return found


def _joined(nodes: Sequence[ArrayNode], axis: int, dtype: DType) -> ArrayNode:
    """Join arrays of one chunk each to one chunk, by one task."""
    if len(nodes) == 1:
        return nodes[0]
    size = sum([node.shape[axis] for node in nodes])
    grid = tuple([Cut.whole(size) if a == axis else cut for a, cut in enumerate(nodes[0].grid)])
    inputs = [NodeInput(node, Read.SAME if _light(node, TILE // len(nodes)) else Read.ALL) for node in nodes]
    return call(_in_one, inputs, grid, dtype, name="concat", axis=axis, dtype=dtype)


def _in_one(*parts: Chunk, axis: int, dtype: DType) -> Chunk:
    listed = [part[0] if isinstance(part, list) else part for part in parts]
    return np.concatenate(listed, axis=axis, dtype=dtype)


def _light(node: ArrayNode, room: int) -> bool:
    """Return whether NumPy makes a chunk from so few elements that the task of its reader should make it.

    Other chunks have tasks of their own, so that workers share them. Nodes count as one element at least, and `room` is
    the most elements.
    """
    stack = [node]
    room = max(room, _FEW)
    while stack:
        one = stack.pop()
        if not plain(one):
            return False
        room -= max(1, one.size)
        for read in one.inputs:
            if read.read is Read.SAME:
                stack.append(read.node)
            else:
                room -= read.node.size
        if room < 0 or not all(known(read.node.grid) for read in one.inputs):
            return False
    return True


def _beside(nodes: Sequence[ArrayNode], axis: int, dtype: DType) -> ArrayNode:
    """Concatenate arrays chunk by chunk."""
    if len(nodes) == 1:
        return cast(nodes[0], dtype)
    first = nodes[0]
    fitted = []
    for node in nodes:
        grid = tuple([node.grid[a] if a == axis else first.grid[a] for a in range(len(first.grid))])
        fitted.append(rechunk(node, grid))
    inputs, grid = side_by_side(fitted, axis)
    return call(_first, inputs, grid, dtype, name="concat", dtype=dtype)


def side_by_side(fitted: Sequence[ArrayNode], axis: int) -> tuple[list[NodeInput], Grid]:
    """Return how a concatenation reads its arrays, and its chunks; the arrays have one grid but for `axis`.

    A chunk reads one chunk of one array, and none of the others.
    """
    first = fitted[0]
    lengths = [length for node in fitted for length in node.grid[axis].lengths()]
    total = sum(lengths)
    cut = Cut.of(lengths)
    if cut.n != len(lengths):
        cut = Cut(total, len(lengths), 0, tuple(np.cumsum(lengths).tolist()))
    grid = tuple([cut if a == axis else first.grid[a] for a in range(len(first.grid))])
    inputs, begin = [], 0
    for node in fitted:
        n = node.grid[axis].n
        spans = [(min(max(d - begin, 0), n), min(max(d - begin + 1, 0), n)) for d in range(cut.n)]
        rules = tuple([ranges(a, spans) if a == axis else copy(a) for a in range(len(grid))])
        inputs.append(NodeInput(node, Read.GRID, src=counts(node.grid), dst=counts(grid), axes=rules, partial=True))
        begin += n
    return inputs, grid


def _cast(x: Chunk, *, dtype: DType) -> Chunk:
    return np.asarray(x).astype(dtype)


def is_open(dtype: DType) -> bool:
    """Return whether a dtype lacks a part that NumPy takes from the values: the length of text, the unit of dates."""
    if dtype.names:
        return any(is_open(dtype[name]) for name in dtype.names)
    if dtype.subdtype is not None:
        return is_open(dtype.base)
    if dtype.kind in "mM":
        return np.datetime_data(dtype)[0] == "generic"
    return dtype.kind in "USV" and not dtype.itemsize and dtype.fields is None


def completed(dtype: DType, source: DType) -> DType:
    """Return the dtype of a cast: "U" of int64 is "U21", as in NumPy. TypeError: it depends on the values."""
    if source == dtype or not is_open(dtype):
        return dtype
    if source.names and not dtype.names and dtype.kind == "V":
        return source
    by_values = source.kind in "USVO" if dtype.kind in "mM" else source.hasobject or source.names
    if dtype.names or by_values:
        part, example = ("unit", f"{dtype.kind}8[D]") if dtype.kind in "mM" else ("length", f"{dtype.kind}10")
        raise TypeError(
            f"the {part} of {dtype.type.__name__} depends on the values if {source} is converted: give it, "
            f"as in {example!r}"
        )
    return np.empty(0, source).astype(dtype).dtype


def cast(node: ArrayNode, dtype: DType) -> ArrayNode:
    """Return the array with another dtype.

    TypeError: there is no such cast, or the dtype is incomplete, and depends on the values.
    """
    dtype = completed(dtype, node.dtype)
    if node.dtype == dtype:
        return node
    if "V" in (node.dtype.kind, dtype.kind):
        np.zeros(0, node.dtype).astype(dtype)  # only fields decide whether there is a cast
    return call(_cast, node, node.grid, dtype, name="astype", dtype=dtype)


def _repeated(x: Chunk, *, repeats: int, axis: int) -> Chunk:
    return np.repeat(x, repeats, axis)


def repeat(node: ArrayNode, repeats: int, axis: int) -> ArrayNode:
    """Repeat each element along an axis."""
    if node.grid[axis].size == 0 or repeats == 0:
        cut = Cut.even(0, 1)
        node = take_slices(node, [slice(0, 0) if a == axis else slice(None) for a in range(len(node.grid))])
    else:
        cut = Cut.of([length * repeats for length in node.grid[axis].lengths()])
        if cut.n != node.grid[axis].n:
            node = whole_along(node, (axis,))
            cut = Cut.even(node.grid[axis].size * repeats, node.grid[axis].size * repeats)
    grid = tuple([cut if a == axis else one for a, one in enumerate(node.grid)])
    return call(_repeated, node, grid, node.dtype, name="repeat", repeats=repeats, axis=axis)


def _triangle(place: ChunkPlace, x: Chunk, *, k: int, upper: bool) -> Chunk:
    shift = k + place.begin[-2] - place.begin[-1]
    return np.triu(x, shift) if upper else np.tril(x, shift)


def triangle(node: ArrayNode, k: int, *, upper: bool) -> ArrayNode:
    """Set all elements above (or below, with `upper`) the k-th diagonal of the last two axes to zero."""
    name = "triu" if upper else "tril"
    dtype = np.tril(np.empty((0, 0), node.dtype)).dtype  # in the machine's order of bytes
    return call(_triangle, node, node.grid, dtype, placed=True, name=name, k=k, upper=upper)
