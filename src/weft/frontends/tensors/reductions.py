"""Reductions: each chunk is reduced alone, then the parts are combined by trees.

The intermediate result is an array with one element for each chunk along the reduced axes, or a tuple of such arrays
(mean and variance use counts, means and sums of squares: the rule of Chan, Golub and LeVeque, 1979, which is stable
where a sum of squares is not).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.blocks import mapped
from weft.frontends.tensors.chunks import Cut, Grid, counts
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call
from weft.graph.axes import Axis, copy, group, whole
from weft.operators.region_steps import ChunkPlace, KernelKind
from weft.operators.regions import sums_in

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk, DType

FAN_IN = 8
"""The number of parts that one task combines, at most."""
TOGETHER = 64 << 20
"""The bytes of the parts that one task combines, at most, where that are two or more."""


def axis_of(axis: int, ndim: int) -> int:
    """Return one axis, normalised; numpy.exceptions.AxisError for one that does not exist, TypeError for no number."""
    return int(np.lib.array_utils.normalize_axis_index(axis, ndim))


def axes_of(axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return the normalised axes, ascending; numpy.exceptions.AxisError for an axis that does not exist."""
    if axis is None:
        return tuple(range(ndim))
    listed = axis if isinstance(axis, tuple | list) else (axis,)
    return tuple(sorted(np.lib.array_utils.normalize_axis_tuple(listed, ndim)))


# ------------------------------------------------------------------------------------------------------- kernels


def combine_ufunc(parts: list[Any], *, fn: np.ufunc, axes: tuple[int, ...]) -> Any:
    """Combine parts in order by a binary ufunc."""
    made = parts[0]
    for part in parts[1:]:
        made = fn(made, part)
    return made


def _drop(x: Chunk, *, axes: tuple[int, ...]) -> Chunk:
    return np.asarray(x).reshape([n for axis, n in enumerate(np.shape(x)) if axis not in axes])


# --------------------------------------------------------------------------------------------------------- trees


def parts_grid(grid: Grid, axes: Sequence[int]) -> Grid:
    """Return the grid of the reduced chunks: one element along the reduced axes."""
    return tuple([Cut.even(cut.n, 1) if axis in axes else cut for axis, cut in enumerate(grid)])


def tree(node: ArrayNode, axes: tuple[int, ...], combine: Callable[..., Any], kwargs: dict[str, Any]) -> ArrayNode:
    """Combine the parts along `axes`, up to `FAN_IN` neighbours at a time, until one is left along them.

    `combine` takes a list of parts in row-major order.
    """
    most = _fan_in(node)
    while any(node.grid[axis].n > 1 for axis in axes):
        busy = [axis for axis in axes if node.grid[axis].n > 1]
        others = all(cut.n == 1 for axis, cut in enumerate(node.grid) if axis not in axes)
        if others:  # neighbours by number: the simplest tree
            n = -(-node.chunks // most)
            flat = [Cut.whole(1) if axis in axes else cut for axis, cut in enumerate(node.grid)]
            flat[busy[0]] = Cut.even(n, 1)
            one = NodeInput(node, Read.TREE, k=most)
            node = call(combine, [one], tuple(flat), node.dtype, name="combine", **kwargs)
            continue
        each = max(2, round(most ** (1 / len(busy))))
        grid = tuple([Cut.even(-(-cut.n // each), 1) if axis in busy else cut for axis, cut in enumerate(node.grid)])
        rules: list[Axis] = [group(a, each) if a in busy else copy(a) for a in range(len(grid))]
        one = NodeInput(node, Read.GRID, src=counts(node.grid), dst=counts(grid), axes=tuple(rules))
        node = call(combine, [one], grid, node.dtype, name="combine", **kwargs)
    return node


def _fan_in(node: ArrayNode) -> int:
    """Return how many parts one task combines: few if they are large, since it holds all of them."""
    nbytes = node.chunk_bytes
    return FAN_IN if not nbytes else max(2, min(FAN_IN, TOGETHER // nbytes))


def finished(node: ArrayNode, axes: tuple[int, ...], *, keepdims: bool) -> ArrayNode:
    """Drop the reduced axes, unless they are kept."""
    if keepdims or not axes:
        return node
    grid = tuple([cut for axis, cut in enumerate(node.grid) if axis not in axes])
    return call(_drop, node, grid, node.dtype, name="squeeze", axes=axes)


# ---------------------------------------------------------------------------------------------------- reductions


def _parts(fn: np.ufunc, node: ArrayNode, axes: tuple[int, ...], dtype: DType, name: str) -> ArrayNode:
    """Return the reduction of each chunk."""
    grid = parts_grid(node.grid, axes)
    return ArrayNode(KernelKind.REDUCE, fn, [NodeInput(node)], grid, dtype, kwargs={"axis": axes}, name=name)


def accumulator(dtype: DType) -> DType:
    """Return the dtype that sums are kept in: float32 for float16, as in NumPy, and else that of the result."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype.newbyteorder("=")


def reduce(
    fn: np.ufunc, node: ArrayNode, axis: int | Sequence[int] | None, *, keepdims: bool, dtype: DType, name: str
) -> ArrayNode:
    """Reduce by a ufunc (add, multiply, minimum, maximum, logical_and, logical_or).

    The result has the byte order of the machine, as with NumPy. Sums in float16 are rounded once, at the end.
    ValueError, as NumPy words it: there is nothing to reduce and the ufunc has no identity.
    """
    axes = axes_of(axis, len(node.grid))
    dtype = dtype.newbyteorder("=")
    if fn.identity is None and any(node.grid[a].size == 0 for a in axes):
        raise ValueError(f"zero-size array to reduction operation {fn.__name__} which has no identity")
    if fn.identity is None and any(not node.grid[a].known for a in axes):
        return _reduce_unknown(fn, node, axes, keepdims=keepdims, dtype=dtype, name=name)
    part = _parts(fn, node, axes, accumulator(dtype) if fn is np.add else dtype, name)
    made = finished(tree(part, axes, combine_ufunc, {"fn": fn, "axes": axes}), axes, keepdims=keepdims)
    return made if made.dtype == dtype else call(_rounded, made, made.grid, dtype, name="astype", dtype=dtype)


def _rounded(x: Chunk, *, dtype: DType) -> Chunk:
    return np.asarray(x, dtype)


def _part(x: Chunk, *, fn: np.ufunc, axes: tuple[int, ...]) -> Chunk:
    if any(x.shape[axis] == 0 for axis in axes):
        return np.empty([0 if axis in axes else n for axis, n in enumerate(x.shape)], x.dtype)
    return fn.reduce(x, axis=axes, keepdims=True)


def _combine_some(parts: list[Any], *, fn: np.ufunc, axes: tuple[int, ...]) -> Any:
    there = [part for part in parts if part.shape[axes[0]]]
    return combine_ufunc(there or parts[:1], fn=fn, axes=axes)


def _there(x: Chunk, *, fn: np.ufunc, axes: tuple[int, ...]) -> Chunk:
    if x.shape[axes[0]] == 0:
        raise ValueError(f"zero-size array to reduction operation {fn.__name__} which has no identity")
    return x


def _reduce_unknown(
    fn: np.ufunc, node: ArrayNode, axes: tuple[int, ...], *, keepdims: bool, dtype: DType, name: str
) -> ArrayNode:
    """Reduce chunks that may be empty, by a ufunc without identity."""
    kwargs: dict[str, Any] = {"fn": fn, "axes": axes}
    part = call(_part, node, parts_grid(node.grid, axes), dtype, name=name, **kwargs)
    made = tree(part, axes, _combine_some, kwargs)
    return finished(call(_there, made, made.grid, dtype, name=name, **kwargs), axes, keepdims=keepdims)


def counter(dtype: DType) -> DType:
    """Return the dtype of numbers of elements: integers for objects, as decimals and fractions divide by no float."""
    return np.dtype(np.int64 if dtype.kind == "O" else np.float64)


def count_along(node: ArrayNode, axes: Sequence[int], *, keepdims: bool) -> ArrayNode | float:
    """Return the number of elements behind each element of a reduction: a node if it depends on values."""
    dtype = counter(node.dtype)
    if all(node.grid[axis].known for axis in axes):
        count = prod([node.grid[axis].size for axis in axes])
        return count if dtype.kind == "i" else float(count)
    part = call(_many, node, parts_grid(node.grid, axes), dtype, name="count", axes=tuple(axes), dtype=dtype)
    made = tree(part, tuple(axes), combine_ufunc, {"fn": np.add, "axes": tuple(axes)})
    return finished(made, tuple(axes), keepdims=keepdims)


def _many(x: Chunk, *, axes: tuple[int, ...], dtype: DType) -> Chunk:
    shape = [1 if axis in axes else n for axis, n in enumerate(x.shape)]
    return np.full(shape, prod([x.shape[axis] for axis in axes]), dtype)


# Moments: (count, mean, sum of squared distances from the mean), one element for each chunk.


def _moments(x: Chunk, *, axes: tuple[int, ...], dtype: DType) -> Chunk:
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    if count == 0:
        empty = np.add.reduce(x, axis=axes, dtype=dtype, keepdims=True)
        return 0, empty, np.zeros_like(empty)
    mean = np.add.reduce(x, axis=axes, dtype=dtype, keepdims=True) / count
    away = x - mean
    return count, mean, np.add.reduce(_square(away), axis=axes, dtype=None, keepdims=True)


def _square(x: Chunk) -> Chunk:
    if isinstance(x, np.ndarray) and x.dtype.kind == "O":
        return x * np.conjugate(x)
    return (x * np.conj(x)).real if np.iscomplexobj(x) else np.square(x, out=x) if isinstance(x, np.ndarray) else x * x


def _combine_moments(parts: list[Any], *, axes: tuple[int, ...]) -> Any:
    count, mean, squares = parts[0]
    for n, other, more in parts[1:]:
        if n == 0:
            continue
        if count == 0:
            count, mean, squares = n, other, more
            continue
        total = count + n
        delta = other - mean
        if mean.dtype.kind == "O":  # decimals and fractions take no float
            squares, mean = squares + more + _square(delta) * (count * n) / total, mean + delta * n / total
        else:
            squares = squares + more + _square(delta * 1) * (count * n / total)
            mean = mean + delta * (n / total)
        count = total
    return count, mean, squares


def _variance(parts: Chunk, *, correction: float, dtype: DType) -> Chunk:
    count, _, squares = parts
    left = max(count - correction, 0)
    return np.asarray(np.true_divide(squares, int(left) if dtype.kind == "O" and left == int(left) else left), dtype)


def variance(
    node: ArrayNode, axis: int | Sequence[int] | None, *, correction: float, keepdims: bool, dtype: DType
) -> ArrayNode:
    """Return the variance; `dtype` is that of the result, real."""
    axes = axes_of(axis, len(node.grid))
    wide = np.result_type(node.dtype, np.float64) if node.dtype.kind in "biu" else accumulator(node.dtype)
    dtype = dtype.newbyteorder("=")
    part = call(_moments, node, parts_grid(node.grid, axes), dtype, name="moments", axes=axes, dtype=wide)
    made = tree(part, axes, _combine_moments, {"axes": axes})
    made = call(_variance, made, made.grid, dtype, name="variance", correction=correction, dtype=dtype)
    return finished(made, axes, keepdims=keepdims)


# Positions of the largest or smallest.


def _arg_parts(place: ChunkPlace, x: Chunk, *, fn: Callable[..., Any], axis: int, cut: Cut) -> Chunk:
    begin = cut.span(place.at[axis])[0]
    at = fn(x, axis=axis, keepdims=True)
    return np.take_along_axis(x, at, axis), at + begin


def _combine_args(parts: list[Any], *, fn: Callable[..., Any], axis: int) -> Any:
    values = np.concatenate([value for value, _ in parts], axis=axis)
    places = np.concatenate([at for _, at in parts], axis=axis)
    best = fn(values, axis=axis, keepdims=True)
    return np.take_along_axis(values, best, axis), np.take_along_axis(places, best, axis)


def _second(parts: Chunk) -> Chunk:
    return np.asarray(parts[1], np.int64)


def arg_reduce(fn: Callable[..., Any], node: ArrayNode, axis: int, *, keepdims: bool) -> ArrayNode:
    """Return the first position of the largest (`numpy.argmax`) or smallest element along an axis."""
    if node.grid[axis].size == 0:
        raise ValueError(f"attempt to get {fn.__name__} of an empty sequence")
    axes = (axis,)
    kwargs: dict[str, Any] = {"fn": fn, "axis": axis}
    grid = parts_grid(node.grid, axes)
    part = call(_arg_parts, node, grid, np.dtype(np.int64), placed=True, **kwargs, cut=node.grid[axis])
    made = tree(part, axes, _combine_args, kwargs)
    made = call(_second, made, made.grid, np.dtype(np.int64), name=fn.__name__)
    return finished(made, axes, keepdims=keepdims)


# ----------------------------------------------------------------------------------------------------- running sums


def _running(x: Chunk, *, fn: np.ufunc, axis: int, dtype: DType) -> Chunk:
    return fn.accumulate(x, axis=axis, dtype=sums_in(dtype))


def _before(totals: list[Any], *, fn: np.ufunc, axis: int) -> Any:
    """Return for each chunk the result of all chunks before it; the first has none, and its place is never read."""
    joined = np.concatenate(totals[:-1], axis=axis)
    return np.concatenate([totals[0], fn.accumulate(joined, axis=axis, dtype=sums_in(joined.dtype))], axis=axis)


def scan(fn: np.ufunc, node: ArrayNode, axis: int, dtype: DType) -> ArrayNode:
    """Return running sums (`numpy.add`) or products along an axis.

    Each chunk is scanned alone and then combined with the total of all chunks before it; these totals are few numbers,
    which one task combines. So a chunk is read twice, and written once.
    """
    dtype = dtype.newbyteorder("=")
    kwargs: dict[str, Any] = {"fn": fn, "axis": axis, "dtype": dtype}
    if node.grid[axis].n == 1:
        return call(_running, node, node.grid, dtype, name=fn.__name__, **kwargs)
    totals = _parts(fn, node, (axis,), dtype, "totals")
    gathered = list(totals.grid)
    gathered[axis] = Cut.even(totals.grid[axis].size, totals.grid[axis].size)
    rules = tuple([whole(a) if a == axis else copy(a) for a in range(len(gathered))])
    one = NodeInput(totals, Read.GRID, src=counts(totals.grid), dst=counts(tuple(gathered)), axes=rules)
    before = call(_before, [one], tuple(gathered), dtype, name="before", fn=fn, axis=axis)
    carry_in = mapped(before, node.grid, [None if a == axis else a for a in range(len(gathered))])
    inputs = [NodeInput(node), carry_in]
    return call(_carried, inputs, node.grid, dtype, placed=True, name="carry", **kwargs)


def _carried(place: ChunkPlace, x: Chunk, before: Any, *, fn: np.ufunc, axis: int, dtype: DType) -> Chunk:
    at = place.at[axis]
    carry = before[tuple([slice(at, at + 1) if a == axis else slice(None) for a in range(before.ndim)])]
    made = _running(x, fn=fn, axis=axis, dtype=dtype)
    return fn(carry, made, out=made) if at else made  # texts are joined in this order
