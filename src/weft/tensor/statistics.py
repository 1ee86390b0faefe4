"""Reductions: sums, means, extremes, running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import blocks, reductions, shaping
from weft.tensor.array import Tensor, apply, as_node, taking_out
from weft.tensor.later import needs_lengths

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


def _total(fn: np.ufunc, x: Any, axis: Axis, dtype: Any, keepdims: bool, name: str) -> Tensor:
    node = _lazy(x)
    kind = _sum_dtype(node, dtype)
    return Tensor(reductions.reduce(fn, node, axis, keepdims=keepdims, dtype=kind, name=name))


@taking_out(3)
@needs_lengths
def sum(x: Any, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the sum; integers are summed in 64 bits."""
    return _total(np.add, x, axis, dtype, keepdims, "sum")


@taking_out(3)
@needs_lengths
def prod(x: Any, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the product; integers are multiplied in 64 bits."""
    return _total(np.multiply, x, axis, dtype, keepdims, "prod")


@taking_out(2)
@needs_lengths
def max(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the largest element; NaN if there is one."""
    node = _lazy(x)
    return Tensor(reductions.reduce(np.maximum, node, axis, keepdims=keepdims, dtype=node.dtype, name="max"))


@taking_out(2)
@needs_lengths
def min(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element; NaN if there is one."""
    node = _lazy(x)
    return Tensor(reductions.reduce(np.minimum, node, axis, keepdims=keepdims, dtype=node.dtype, name="min"))


@taking_out(2)
@needs_lengths
def all(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements are true."""
    kind = np.dtype(bool)
    return Tensor(reductions.reduce(np.logical_and, _lazy(x), axis, keepdims=keepdims, dtype=kind, name="all"))


@taking_out(2)
@needs_lengths
def any(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether some element is true."""
    kind = np.dtype(bool)
    return Tensor(reductions.reduce(np.logical_or, _lazy(x), axis, keepdims=keepdims, dtype=kind, name="any"))


@taking_out(9)
@needs_lengths
def count_nonzero(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return how many elements are not zero."""
    node = _lazy(x)
    true = node if node.dtype.kind == "b" else apply(np.not_equal, Tensor(node), 0)._node
    kind = np.dtype(np.int64)
    return Tensor(reductions.reduce(np.add, true, axis, keepdims=keepdims, dtype=kind, name="count_nonzero"))


@taking_out(3)
@needs_lengths
def mean(x: Any, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the mean; of integers, in float64."""
    node = _lazy(x)
    kind = np.dtype(np.float64) if node.dtype.kind in "biu" else node.dtype
    kind = (kind if dtype is None else np.dtype(dtype)).newbyteorder("=")
    total = reductions.reduce(np.add, node, axis, keepdims=keepdims, dtype=kind, name="sum")
    count = reductions.count_along(node, reductions.axes_of(axis, len(node.grid)), keepdims=keepdims)
    return Tensor(shaping.cast(blocks.apply(np.true_divide, total, count), kind))


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
) -> Tensor:
    """Return the variance: squared distances from the mean over the number of elements less `correction`.

    `ddof` is NumPy's older name of that.
    """
    node = _lazy(x)
    if dtype is not None:
        node = shaping.cast(node, np.dtype(dtype))
    kind = np.dtype(np.float64) if node.dtype.kind in "biu" else np.empty(0, node.dtype).real.dtype
    less = correction if ddof is None else ddof
    return Tensor(reductions.variance(node, axis, correction=less, keepdims=keepdims, dtype=kind))


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
) -> Tensor:
    """Return the standard deviation: the root of `var`."""
    return apply(np.sqrt, var(x, axis, dtype, correction=correction, ddof=ddof, keepdims=keepdims))


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
        from weft.frontends.tensors import creation
        from weft.frontends.tensors.chunks import Cut

        grid = tuple([Cut.even(1, 1) if a == axis else cut for a, cut in enumerate(made.grid)])
        first = creation.full(grid, np.asarray(fn.identity, kind)[()], kind)
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
