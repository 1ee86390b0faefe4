"""Cumulative sums and products, and differences of neighbours."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import reductions, shaping
from weft.frontends.tensors.arrays import joining, shapes
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.arrays.shapes import ravel
from weft.frontends.tensors.arrays.statistics import _sum_dtype

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, DTypeLike


@public(out=9)
@needs_lengths
def cumulative_sum(
    x: ArrayLike, /, axis: int | tuple[int] | None = None, dtype: DTypeLike = None, include_initial: bool = False
) -> Tensor:
    """Return cumulative sums along an axis, which only an array of one axis may omit."""
    return _scan(np.add, x, axis, dtype, include_initial)


@public(out=9)
@needs_lengths
def cumulative_prod(
    x: ArrayLike, /, axis: int | tuple[int] | None = None, dtype: DTypeLike = None, include_initial: bool = False
) -> Tensor:
    """Return cumulative products along an axis, which only an array of one axis may omit."""
    return _scan(np.multiply, x, axis, dtype, include_initial)


def _scan(fn: np.ufunc, x: Any, axis: int | tuple[int] | None, dtype: Any, include_initial: bool) -> Tensor:
    node = as_node(x)
    if axis is None:
        if len(node.grid) > 1:
            raise ValueError("axis must be given for an array of more axes than one")
        node, axis = shaping.reshape(node, (node.size,)) if not node.grid else node, 0
    if isinstance(axis, tuple):
        if len(axis) != 1:
            raise ValueError("accumulate does not allow multiple axes")
        (axis,) = axis
    axis = reductions.axis_of(axis, len(node.grid))
    kind = _sum_dtype(node, dtype)
    made = reductions.scan(fn, node, axis, kind)
    if include_initial:
        from weft.frontends.tensors import sources
        from weft.frontends.tensors.chunks import Cut

        grid = tuple([Cut.whole(1) if a == axis else cut for a, cut in enumerate(made.grid)])
        first = sources.full(grid, np.asarray(fn.identity, kind)[()], kind)
        made = shaping.concat([first, made], axis, kind)
    return Tensor(made)


@public("a")
@needs_lengths
def diff(x: ArrayLike, /, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Return differences of neighbours along an axis, `n` times over; with `n` 0 the array itself.

    `prepend` and `append`, arrays or numbers, are put before and behind the array along the axis first.
    """
    node = as_node(x)
    axis = reductions.axis_of(axis, len(node.grid))
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if n == 0:
        return as_tensor(x)
    edge = tuple([1 if a == axis else length for a, length in enumerate(node.shape)])
    given = [as_tensor(one) for one in (prepend, x, append) if one is not None]
    parts = [one.node if one.ndim else shapes.spread(one, edge).node for one in given]
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


@public("a", method=True, out=3, summed=True)
def cumsum(x: ArrayLike, axis: int | None = None, dtype: DTypeLike = None) -> Tensor:
    """Return cumulative sums along an axis; by default of the flattened array."""
    given = ravel(x) if axis is None else x
    return cumulative_sum(given, axis=0 if axis is None else operator.index(axis), dtype=dtype)


@public("a", method=True, out=3, summed=True)
def cumprod(x: ArrayLike, axis: int | None = None, dtype: DTypeLike = None) -> Tensor:
    """Return cumulative products along an axis; by default of the flattened array."""
    given = ravel(x) if axis is None else x
    return cumulative_prod(given, axis=0 if axis is None else operator.index(axis), dtype=dtype)


@public("a")
def ediff1d(x: ArrayLike, to_end: Any = None, to_begin: Any = None) -> Tensor:
    """Return the differences between neighbours in the flat array, between `to_begin` and `to_end`."""
    flat = shapes.ravel(x)
    parts = [apply(np.subtract, flat[1:], flat[:-1])]
    for name, one in (("to_begin", to_begin), ("to_end", to_end)):
        if one is not None and not np.can_cast(as_tensor(one).dtype, flat.dtype, "same_kind"):
            raise TypeError(f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` rule.")
    if to_begin is not None:
        parts.insert(0, shapes.ravel(to_begin).astype(flat.dtype))
    if to_end is not None:
        parts.append(shapes.ravel(to_end).astype(flat.dtype))
    return joining.concat(parts)
