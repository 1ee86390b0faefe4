"""Reductions: sums, means, extremes, running sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import blocks, reductions, shaping
from weft.frontends.tensors.arrays import shapes
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node, loose_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.arrays.sparse_calls import takes_sparse
from weft.frontends.tensors.blocks import elementwise
from weft.frontends.tensors.blocks import where as choose
from weft.frontends.tensors.nodes import ArrayNode

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Axis, Chunk, DType, DTypeLike


def _sum_dtype(node: ArrayNode, dtype: Any) -> DType:
    if node.dtype.kind == "m":  # durations stay durations, whatever type is given
        of_durations: DType = np.add.reduce(np.zeros(1, node.dtype), dtype=dtype).dtype
        return of_durations
    found: DType = node.dtype if dtype is None else np.dtype(dtype)
    if dtype is None and found.kind in "bi":
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if dtype is None and found.kind == "u" else found


def _masked(x: Any, where: Any, fill: Any) -> ArrayNode:
    """Return the expression of an array, with `fill` for the elements that `where` excludes."""
    if where is True:
        return loose_node(x)
    node, mask = as_node(x), as_node(where)
    if np.broadcast_shapes(node.shape, mask.shape) != node.shape:
        raise ValueError(f"where has shape {mask.shape}, which is not broadcast to that of the array, {node.shape}")
    return choose(shaping.cast(mask, np.dtype(bool)), node, fill, node.dtype)


def _reduced(fn: np.ufunc, node: ArrayNode, axis: Axis, dtype: Any, keepdims: bool, name: str, initial: Any) -> Tensor:
    """Reduce an array, and combine the result with `initial`, unless that is None."""
    if initial is None or initial is np._NoValue:
        return Tensor(reductions.reduce(fn, node, axis, keepdims=keepdims, dtype=dtype, name=name))
    first = np.asarray(initial, dtype)
    axes = reductions.axes_of(axis, len(node.grid))
    if 0 in [node.grid[a].size for a in axes]:
        left = [1 if a in axes else n for a, n in enumerate(node.shape) if keepdims or a not in axes]
        return Tensor(as_node(np.full(left, first)))
    made = reductions.reduce(fn, node, axes, keepdims=keepdims, dtype=dtype, name=name)
    return apply(fn, Tensor(made), first)


def _total(fn: np.ufunc, x: Any, axis: Axis, dtype: Any, keepdims: bool, name: str, initial: Any, where: Any) -> Tensor:
    node = _masked(x, where, fn.identity)
    return _reduced(fn, node, axis, _sum_dtype(node, dtype), keepdims, name, initial)


def extreme(fn: np.ufunc, x: Any, axis: Axis, keepdims: bool, name: str, initial: Any, where: Any) -> Tensor:
    """Reduce an array to its extremes by a ufunc. ValueError: `where` without `initial`."""
    if where is not True and initial is None:
        raise ValueError(f"{name} of some elements has no value where there are none: give initial= beside where=")
    node = _masked(x, where, initial)
    return _reduced(fn, node, axis, node.dtype, keepdims, name, initial)


@public("a", ignored="combine_size", method=True, out=3, summed=True)
@takes_sparse
@needs_lengths
def sum(
    x: ArrayLike,
    /,
    axis: Axis = None,
    dtype: DTypeLike = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> Tensor:
    """Return the sum of `initial` and the elements with `where` true; integers are summed in 64 bits."""
    return _total(np.add, x, axis, dtype, keepdims, "sum", initial, where)


@public("a", also="product", ignored="combine_size", method=True, out=3, summed=True)
@takes_sparse
@needs_lengths
def prod(
    x: ArrayLike,
    /,
    axis: Axis = None,
    dtype: DTypeLike = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> Tensor:
    """Return the product; integers are multiplied in 64 bits. `initial` and `where` as of `sum`."""
    return _total(np.multiply, x, axis, dtype, keepdims, "prod", initial, where)


@public("a", also="amax", ignored="combine_size", method=True, out=2)
@takes_sparse
@needs_lengths
def max(
    x: ArrayLike, axis: Axis = None, keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike = True
) -> Tensor:
    """Return the largest element, `initial` at least; NaN if there is one. ValueError: `where` without `initial`."""
    return extreme(np.maximum, x, axis, keepdims, "max", initial, where)


@public("a", also="amin", ignored="combine_size", method=True, out=2)
@takes_sparse
@needs_lengths
def min(
    x: ArrayLike, axis: Axis = None, keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike = True
) -> Tensor:
    """Return the smallest element, `initial` at most; NaN if there is one. ValueError: `where` without `initial`."""
    return extreme(np.minimum, x, axis, keepdims, "min", initial, where)


def _truth(x: Any, where: Any, otherwise: bool) -> ArrayNode:
    """Return the elements with `where` true; objects as the truth of each, since `and` and `or` give one of them.

    Texts and bytes also, since none of them is as false as False.
    """
    node = loose_node(x)
    if where is not True and node.dtype.kind in "SU":
        x = Tensor(elementwise(_as_bool, [node], np.dtype(bool)))
    node = _masked(x, where, otherwise)
    return shaping.cast(node, np.dtype(bool)) if node.dtype.kind == "O" else node


@public("a", ignored="combine_size", method=True, out=2)
@takes_sparse
@needs_lengths
def all(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False, *, where: ArrayLike = True) -> Tensor:
    """Return whether all elements with `where` true are true."""
    return _reduced(np.logical_and, _truth(x, where, True), axis, np.dtype(bool), keepdims, "all", None)


@public("a", ignored="combine_size", method=True, out=2)
@takes_sparse
@needs_lengths
def any(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False, *, where: ArrayLike = True) -> Tensor:
    """Return whether any element with `where` true is true."""
    return _reduced(np.logical_or, _truth(x, where, False), axis, np.dtype(bool), keepdims, "any", None)


@public("a", ignored="combine_size", method=True, out=9)
@takes_sparse
@needs_lengths
def count_nonzero(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the number of non-zero elements."""
    node = loose_node(x)
    if node.dtype.kind in "biufc":
        true = node if node.dtype.kind == "b" else apply(np.not_equal, Tensor(node), 0)._node
    else:
        true = elementwise(_as_bool, [node], np.dtype(bool))
    kind = np.dtype(np.int64)
    return Tensor(reductions.reduce(np.add, true, axis, keepdims=keepdims, dtype=kind, name="count_nonzero"))


def _as_bool(x: Chunk) -> Chunk:
    if x.dtype.kind != "V":
        return x.astype(bool)
    flat = np.ravel(x)  # records are non-zero by their fields, and are no truth values
    made = np.zeros(flat.shape, bool)
    made[np.nonzero(flat)] = True
    return made.reshape(x.shape)


@public("a", ignored="combine_size", method=True, out=3)
@takes_sparse
@needs_lengths
def mean(
    x: ArrayLike, /, axis: Axis = None, dtype: DTypeLike = None, keepdims: bool = False, *, where: ArrayLike = True
) -> Tensor:
    """Return the mean of the elements with `where` true; of integers, in float64, and of durations, in their unit."""
    node = _masked(x, where, 0)
    kind = np.dtype(np.float64) if node.dtype.kind in "biu" else node.dtype
    kind = (kind if dtype is None else _sum_dtype(node, dtype)).newbyteorder("=")
    wide = reductions.accumulator(kind)
    total = reductions.reduce(np.add, node, axis, keepdims=keepdims, dtype=wide, name="sum")
    count = _count_along(node, axis, keepdims, where)
    return Tensor(shaping.cast(blocks.apply(np.true_divide, total, count), kind))


def _count_along(node: ArrayNode, axis: Axis, keepdims: bool, where: Any) -> ArrayNode | float:
    """Return the number of elements with `where` true, along axes."""
    if where is True:
        return reductions.count_along(node, reductions.axes_of(axis, len(node.grid)), keepdims=keepdims)
    mask = shaping.broadcast_to(shaping.cast(as_node(where), np.dtype(bool)), node.grid)
    return reductions.reduce(np.add, mask, axis, keepdims=keepdims, dtype=reductions.counter(node.dtype), name="count")


@public("a", ignored="combine_size", method=True, out=3)
@takes_sparse
@needs_lengths
def var(
    x: ArrayLike,
    /,
    axis: Axis = None,
    dtype: DTypeLike = None,
    *,
    correction: float = 0.0,
    ddof: float | None = None,
    keepdims: bool = False,
    where: ArrayLike = True,
) -> Tensor:
    """Return the variance: squared distances from the mean over the number of elements less `correction`.

    `ddof` is NumPy's older name of it. Only elements with `where` true count. The result has `dtype` where that is
    given, and is computed in it: among whole numbers, the mean is rounded towards zero, as by NumPy.
    """
    if ddof and correction:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    less = ddof or correction
    wanted = None if dtype is None else np.dtype(dtype)
    node = loose_node(x)
    narrower = wanted is not None and (wanted.kind in "iu" or (wanted.kind == "f" and node.dtype.kind == "c"))
    if where is not True or narrower:
        return _two_pass_variance(x, axis, wanted, less, keepdims, where)
    if wanted is not None:
        node = shaping.cast(node, wanted)
    kind = np.dtype(np.float64) if node.dtype.kind in "biu" else np.empty(0, node.dtype).real.dtype
    made = reductions.variance(node, axis, correction=less, keepdims=keepdims, dtype=kind)
    return Tensor(made if wanted is None else shaping.cast(made, wanted))


def _two_pass_variance(x: Any, axis: Axis, dtype: Any, less: float, keepdims: bool, where: Any) -> Tensor:
    """Return the variance by a mean and then the distances from it."""
    node = as_node(x)
    wide = shaping.cast(node, reductions.accumulator(node.dtype))
    away = apply(np.subtract, Tensor(wide), mean(Tensor(wide), axis, dtype, keepdims=True, where=where))
    squares = apply(np.square, apply(np.absolute, away))
    kind = dtype or (node.dtype if node.dtype == np.float16 else squares.dtype)
    total = sum(squares, axis, reductions.accumulator(kind), keepdims=keepdims, where=where)
    count = _count_along(squares.node, axis, keepdims, where)
    fewer = apply(np.maximum, apply(np.subtract, Tensor(count) if isinstance(count, ArrayNode) else count, less), 0.0)
    return apply(np.true_divide, total, fewer).astype(kind)


@public("a", ignored="combine_size", method=True, out=3)
@takes_sparse
@needs_lengths
def std(
    x: ArrayLike,
    /,
    axis: Axis = None,
    dtype: DTypeLike = None,
    *,
    correction: float = 0.0,
    ddof: float | None = None,
    keepdims: bool = False,
    where: ArrayLike = True,
) -> Tensor:
    """Return the standard deviation: the root of `var`."""
    squared = var(x, axis, dtype, correction=correction, ddof=ddof, keepdims=keepdims, where=where)
    if squared.dtype.kind == "O" and not squared.ndim:
        squared = squared.astype(np.float64)  # as NumPy: only arrays of objects ask these for their roots
    made = apply(np.sqrt, squared)
    return made if dtype is None else made.astype(dtype)


def _flat(node: ArrayNode, axis: int | None) -> tuple[ArrayNode, int]:
    if axis is None:
        return shaping.reshape(node, (node.size,)), 0
    return node, reductions.axis_of(axis, len(node.grid))


@public("a", ignored="combine_size", method=True, out=2)
@needs_lengths
def argmax(x: ArrayLike, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the first position of the largest element along an axis, or in the flat array."""
    return _arg(np.argmax, x, axis, keepdims)


@public("a", ignored="combine_size", method=True, out=2)
@needs_lengths
def argmin(x: ArrayLike, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the first position of the smallest element along an axis, or in the flat array."""
    return _arg(np.argmin, x, axis, keepdims)


def _arg(fn: Any, x: Any, axis: int | None, keepdims: bool) -> Tensor:
    given = as_node(x)
    node, along = _flat(given, axis)
    made = reductions.arg_reduce(fn, node, along, keepdims=keepdims and axis is not None)
    if axis is None and keepdims:
        made = shaping.reshape(made, (1,) * len(given.grid))
    return Tensor(made)


@needs_lengths
def _weighted(total: Tensor, whole: Tensor) -> Tensor:
    dtype = apply(np.true_divide, total, whole).dtype
    return Tensor(elementwise(_divided, [total.loose, whole.loose], dtype, "average"))


def _divided(total: Chunk, whole: Chunk) -> Chunk:
    if not np.all(whole):
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    return np.true_divide(total, whole)


@public("a", method=True, out=2)
def ptp(x: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the largest element less the smallest."""
    return apply(np.subtract, max(x, axis, keepdims=keepdims), min(x, axis, keepdims=keepdims))


@public("a")
@needs_lengths
def average(
    x: ArrayLike,
    axis: Axis = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> Any:
    """Return the mean, weighted by optional weights; with `returned`, also the sums of the weights."""
    if weights is None:
        made = mean(x, axis=axis, keepdims=keepdims)
        count = apply(np.true_divide, float(as_tensor(x).size), float(made.size or 1)).astype(made.dtype)
        return ExecutableTuple([made, shapes.spread(count, made.shape)]) if returned else made
    given, by = as_tensor(x), as_tensor(weights)
    if by.shape != given.shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        axes = [reductions.axis_of(a, given.ndim) for a in (axis if isinstance(axis, tuple) else (axis,))]
        if by.shape != tuple([given.shape[a] for a in axes]):
            raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
        by = shapes.permute_dims(by, tuple(np.argsort(axes).tolist()))
        by = shapes.reshape(by, [n if a in axes else 1 for a, n in enumerate(given.shape)])
    dtype = np.result_type(given.dtype, by.dtype, *([np.float64] if given.dtype.kind in "biu" else []))
    wide = reductions.accumulator(dtype)
    given, by = given.astype(wide), by.astype(wide)  # small integers must not overflow
    total, whole = (sum(one, axis=axis, keepdims=keepdims) for one in (apply(np.multiply, given, by), by))
    made = _weighted(total, whole).astype(dtype)
    return ExecutableTuple([made, shapes.spread(whole.astype(made.dtype), made.shape)]) if returned else made
