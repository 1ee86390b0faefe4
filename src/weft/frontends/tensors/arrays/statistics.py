"""Reductions: sums, means, extremes, running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import blocks, reductions, shaping
from weft.frontends.tensors.arrays.array import Tensor, apply, as_node, taking_out
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.searching import elementwise
from weft.frontends.tensors.searching import where as choose

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import Node

Axis = int | Sequence[int] | None


def _sum_dtype(node: Node, dtype: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = node.dtype if dtype is None else np.dtype(dtype)
    if dtype is None and found.kind in "bi":
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if dtype is None and found.kind == "u" else found


def _lazy(x: Any) -> Node:
    """Return the expression of an array, whose lengths may depend on data that nobody has computed."""
    return x.loose if isinstance(x, Tensor) else as_node(x)


def _chosen(x: Any, where: Any, instead: Any) -> Node:
    """Return the expression of an array, with another value for the elements that `where` leaves out."""
    if where is True:
        return _lazy(x)
    node = as_node(x)
    return choose(shaping.cast(as_node(where), np.dtype(bool)), node, instead, node.dtype)


def _reduced(fn: np.ufunc, node: Node, axis: Axis, dtype: Any, keepdims: bool, name: str, initial: Any) -> Tensor:
    """Reduce an array, and put what is made together with `initial`, unless that is None."""
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
    node = _chosen(x, where, fn.identity)
    return _reduced(fn, node, axis, _sum_dtype(node, dtype), keepdims, name, initial)


def extreme(fn: np.ufunc, x: Any, axis: Axis, keepdims: bool, name: str, initial: Any, where: Any) -> Tensor:
    """Reduce an array to its extremes by a ufunc. ValueError: `where` without `initial`."""
    if where is not True and initial is None:
        raise ValueError(f"{name} of some elements has no value where there are none: give initial= beside where=")
    node = _chosen(x, where, initial)
    return _reduced(fn, node, axis, node.dtype, keepdims, name, initial)


@taking_out(3)
@needs_lengths
def sum(
    x: Any, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Tensor:
    """Return the sum; integers are summed in 64 bits. It begins with `initial`, and has what `where` is true for."""
    return _total(np.add, x, axis, dtype, keepdims, "sum", initial, where)


@taking_out(3)
@needs_lengths
def prod(
    x: Any, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Tensor:
    """Return the product; integers are multiplied in 64 bits. `initial` and `where` as of `sum`."""
    return _total(np.multiply, x, axis, dtype, keepdims, "prod", initial, where)


@taking_out(2)
@needs_lengths
def max(x: Any, /, axis: Axis = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Tensor:
    """Return the largest element, `initial` at least; NaN if there is one. ValueError: `where` without `initial`."""
    return extreme(np.maximum, x, axis, keepdims, "max", initial, where)


@taking_out(2)
@needs_lengths
def min(x: Any, /, axis: Axis = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Tensor:
    """Return the smallest element, `initial` at most; NaN if there is one. ValueError: `where` without `initial`."""
    return extreme(np.minimum, x, axis, keepdims, "min", initial, where)


@taking_out(2)
@needs_lengths
def all(x: Any, /, axis: Axis = None, keepdims: bool = False, *, where: Any = True) -> Tensor:
    """Return whether all elements are true, of those for which `where` is."""
    return _reduced(np.logical_and, _chosen(x, where, True), axis, np.dtype(bool), keepdims, "all", None)


@taking_out(2)
@needs_lengths
def any(x: Any, /, axis: Axis = None, keepdims: bool = False, *, where: Any = True) -> Tensor:
    """Return whether some element is true, of those for which `where` is."""
    return _reduced(np.logical_or, _chosen(x, where, False), axis, np.dtype(bool), keepdims, "any", None)


@taking_out(9)
@needs_lengths
def count_nonzero(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return how many elements are not zero."""
    node = _lazy(x)
    if node.dtype.kind in "biufcO":
        true = node if node.dtype.kind == "b" else apply(np.not_equal, Tensor(node), 0)._node
    else:
        true = elementwise(_true, [node], np.dtype(bool))
    kind = np.dtype(np.int64)
    return Tensor(reductions.reduce(np.add, true, axis, keepdims=keepdims, dtype=kind, name="count_nonzero"))


def _true(x: Any) -> Any:
    return x.astype(bool)


@taking_out(3)
@needs_lengths
def mean(x: Any, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False, *, where: Any = True) -> Tensor:
    """Return the mean, of what `where` is true for; of integers, in float64."""
    node = _chosen(x, where, 0)
    kind = np.dtype(np.float64) if node.dtype.kind in "biu" else node.dtype
    kind = (kind if dtype is None else np.dtype(dtype)).newbyteorder("=")
    total = reductions.reduce(np.add, node, axis, keepdims=keepdims, dtype=kind, name="sum")
    count = _many(node, axis, keepdims, where)
    return Tensor(shaping.cast(blocks.apply(np.true_divide, total, count), kind))


def _many(node: Node, axis: Axis, keepdims: bool, where: Any) -> Node | float:
    """Return how many elements of an array `where` is true for, along axes."""
    if where is True:
        return reductions.count_along(node, reductions.axes_of(axis, len(node.grid)), keepdims=keepdims)
    there = shaping.broadcast_to(shaping.cast(as_node(where), np.dtype(bool)), node.grid)
    return reductions.reduce(np.add, there, axis, keepdims=keepdims, dtype=np.dtype(float), name="count")


@taking_out(3)
@needs_lengths
def var(
    x: Any,
    /,
    axis: Axis = None,
    dtype: Any = None,
    *,
    correction: float = 0.0,
    ddof: float | None = None,
    keepdims: bool = False,
    where: Any = True,
) -> Tensor:
    """Return the variance: squared distances from the mean over the number of elements less `correction`.

    `ddof` is NumPy's older name of that. Elements count for which `where` is true. The result has `dtype` where that is
    given, and is computed in it: among whole numbers, the mean is rounded towards zero, as by NumPy.
    """
    less = correction if ddof is None else ddof
    wanted = None if dtype is None else np.dtype(dtype)
    if where is not True or (wanted is not None and wanted.kind in "iu"):
        return _two_passes(x, axis, wanted, less, keepdims, where)
    node = _lazy(x)
    if wanted is not None:
        node = shaping.cast(node, wanted)
    kind = np.dtype(np.float64) if node.dtype.kind in "biu" else np.empty(0, node.dtype).real.dtype
    made = reductions.variance(node, axis, correction=less, keepdims=keepdims, dtype=kind)
    return Tensor(made if wanted is None else shaping.cast(made, wanted))


def _two_passes(x: Any, axis: Axis, dtype: Any, less: float, keepdims: bool, where: Any) -> Tensor:
    """Return the variance by a mean and then the distances from it."""
    node = as_node(x)
    away = apply(np.subtract, Tensor(node), mean(x, axis, dtype, keepdims=True, where=where))
    squares = apply(np.square, apply(np.absolute, away))
    kind = squares.dtype if dtype is None else dtype
    total = sum(squares, axis, kind, keepdims=keepdims, where=where)
    count = _many(squares.node, axis, keepdims, where)
    fewer = apply(np.maximum, apply(np.subtract, Tensor(count) if not isinstance(count, float) else count, less), 0.0)
    return apply(np.true_divide, total, fewer).astype(kind)


@taking_out(3)
@needs_lengths
def std(
    x: Any,
    /,
    axis: Axis = None,
    dtype: Any = None,
    *,
    correction: float = 0.0,
    ddof: float | None = None,
    keepdims: bool = False,
    where: Any = True,
) -> Tensor:
    """Return the standard deviation: the root of `var`."""
    made = apply(np.sqrt, var(x, axis, dtype, correction=correction, ddof=ddof, keepdims=keepdims, where=where))
    return made if dtype is None else made.astype(dtype)


def _flat(node: Node, axis: int | None) -> tuple[Node, int]:
    if axis is None:
        return shaping.reshape(node, (node.size,)), 0
    return node, reductions.axes_of(axis, len(node.grid))[0]


@taking_out(2)
@needs_lengths
def argmax(x: Any, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the first position of the largest element along an axis, or in the flat array."""
    return _arg(np.argmax, x, axis, keepdims)


@taking_out(2)
@needs_lengths
def argmin(x: Any, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the first position of the smallest element along an axis, or in the flat array."""
    return _arg(np.argmin, x, axis, keepdims)


def _arg(fn: Any, x: Any, axis: int | None, keepdims: bool) -> Tensor:
    given = as_node(x)
    node, along = _flat(given, axis)
    made = reductions.arg_reduce(fn, node, along, keepdims=keepdims and axis is not None)
    if axis is None and keepdims:
        made = shaping.reshape(made, (1,) * len(given.grid))
    return Tensor(made)


@taking_out(9)
@needs_lengths
def cumulative_sum(x: Any, /, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """Return running sums along an axis, which may be left out with one axis only."""
    return _scan(np.add, x, axis, dtype, include_initial)


@taking_out(9)
@needs_lengths
def cumulative_prod(x: Any, /, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """Return running products along an axis, which may be left out with one axis only."""
    return _scan(np.multiply, x, axis, dtype, include_initial)


def _scan(fn: np.ufunc, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Tensor:
    node = as_node(x)
    if axis is None:
        if len(node.grid) != 1:
            raise ValueError("axis must be given for an array of more, or fewer, axes than one")
        axis = 0
    (axis,) = reductions.axes_of(axis, len(node.grid))
    kind = _sum_dtype(node, dtype)
    made = reductions.scan(fn, node, axis, kind)
    if include_initial:
        from weft.frontends.tensors import sources
        from weft.frontends.tensors.chunks import Cut

        grid = tuple([Cut.even(1, 1) if a == axis else cut for a, cut in enumerate(made.grid)])
        first = sources.full(grid, np.asarray(fn.identity, kind)[()], kind)
        made = shaping.concat([first, made], axis, kind)
    return Tensor(made)


@needs_lengths
def diff(x: Any, /, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Return differences of neighbours along an axis, `n` times over; with `n` 0 the array itself."""
    node = as_node(x)
    (axis,) = reductions.axes_of(axis, len(node.grid))
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if n == 0:
        return Tensor(node)
    parts = [as_node(one) for one in (prepend, x, append) if one is not None]
    if len(parts) > 1:
        node = shaping.concat(parts, axis, np.result_type(*[part.dtype for part in parts]))
    made = Tensor(node)
    for _ in range(n):
        later: list[Any] = [slice(None)] * made.ndim
        earlier = list(later)
        later[axis], earlier[axis] = slice(1, None), slice(0, -1)
        fn = np.not_equal if made.dtype.kind == "b" else np.subtract
        made = apply(fn, made[tuple(later)], made[tuple(earlier)])
    return made
