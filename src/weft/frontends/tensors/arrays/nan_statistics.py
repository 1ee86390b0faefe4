"""Statistics that ignore NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import blocks
from weft.frontends.tensors.arrays import searching, statistics
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.cumulative import cumprod, cumsum
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.registry import public

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Axis, DTypeLike


@needs_lengths
def _without_nan(x: ArrayLike, value: Any) -> Tensor:
    node = as_node(x)
    if node.dtype.kind not in "fc":
        return Tensor(node)
    return Tensor(blocks.where(apply(np.isnan, Tensor(node)).node, value, node, node.dtype))


@public("a", ignored="combine_size", out=3, summed=True)
def nansum(
    x: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> Tensor:
    """Return the sum, with 0 for NaN."""
    return statistics.sum(_without_nan(x, 0), axis, dtype, keepdims=keepdims, initial=initial, where=where)


@public("a", ignored="combine_size", out=3, summed=True)
def nanprod(
    x: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> Tensor:
    """Return the product, with 1 for NaN."""
    return statistics.prod(_without_nan(x, 1), axis, dtype, keepdims=keepdims, initial=initial, where=where)


@public("a", out=3, summed=True)
def nancumsum(x: ArrayLike, axis: int | None = None, dtype: DTypeLike = None) -> Tensor:
    """Return cumulative sums, with 0 for NaN."""
    return cumsum(_without_nan(x, 0), axis, dtype)


@public("a", out=3, summed=True)
def nancumprod(x: ArrayLike, axis: int | None = None, dtype: DTypeLike = None) -> Tensor:
    """Return cumulative products, with 1 for NaN."""
    return cumprod(_without_nan(x, 1), axis, dtype)


@public("a", ignored="combine_size", out=2)
@needs_lengths
def nanmax(
    x: ArrayLike, axis: Axis = None, keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike = True
) -> Tensor:
    """Return the largest element that is not NaN."""
    return statistics.extreme(np.fmax, x, axis, keepdims, "nanmax", initial, where)


@public("a", ignored="combine_size", out=2)
@needs_lengths
def nanmin(
    x: ArrayLike, axis: Axis = None, keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike = True
) -> Tensor:
    """Return the smallest element that is not NaN."""
    return statistics.extreme(np.fmin, x, axis, keepdims, "nanmin", initial, where)


def _not_nan(x: Tensor, where: Any, dtype: DTypeLike) -> Any:
    """Return the mask of the elements with `where` true that are not NaN; True for all elements.

    TypeError: the result of an inexact array has a dtype that is not.
    """
    if x.dtype.kind not in "fc":
        return where
    if dtype is not None and np.dtype(dtype).kind not in "fc":
        raise TypeError("If a is inexact, then dtype must be inexact")
    mask = apply(np.logical_not, apply(np.isnan, x))
    return mask if where is True else apply(np.logical_and, mask, where)


@public("a", ignored="combine_size", out=3)
@needs_lengths
def nanmean(
    x: ArrayLike, axis: Axis = None, dtype: DTypeLike = None, *, keepdims: bool = False, where: ArrayLike = True
) -> Tensor:
    """Return the mean of the elements other than NaN."""
    given = as_tensor(x)
    return statistics.mean(given, axis, dtype, keepdims=keepdims, where=_not_nan(given, where, dtype))


@public("a", ignored="combine_size", out=3)
@needs_lengths
def nanvar(
    x: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike = True,
    correction: float | None = None,
) -> Tensor:
    """Return the variance of the elements other than NaN; NaN for at most `ddof` (or `correction`) elements."""
    if ddof and correction is not None:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    ddof = ddof if correction is None else correction
    given = as_tensor(x)
    mask = _not_nan(given, where, dtype)
    made = statistics.var(given, axis, dtype, correction=ddof, keepdims=keepdims, where=mask)
    if given.dtype.kind not in "fc":
        return made
    few = apply(np.less_equal, statistics.sum(mask, axis, keepdims=keepdims), ddof)
    return Tensor(blocks.where(few.node, np.nan, made.node, made.dtype))


@public("a", ignored="combine_size", out=3)
def nanstd(
    x: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: ArrayLike = True,
    correction: float | None = None,
) -> Tensor:
    """Return the standard deviation of the elements other than NaN."""
    squares = nanvar(x, axis, dtype, ddof=ddof, keepdims=keepdims, where=where, correction=correction)
    return apply(np.sqrt, squares).astype(squares.dtype)


@public("a", ignored="combine_size", out=2)
def nanargmax(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the position of the largest element that is not NaN. ValueError, in the run: all are NaN."""
    return _position(statistics.argmax, -np.inf, x, axis, keepdims)


@public("a", ignored="combine_size", out=2)
def nanargmin(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the position of the smallest element that is not NaN. ValueError, in the run: all are NaN."""
    return _position(statistics.argmin, np.inf, x, axis, keepdims)


def _position(place: Any, instead: float, x: Any, axis: int | None, keepdims: bool) -> Tensor:
    given = as_tensor(x)
    if given.dtype.kind not in "fc":
        return place(given, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]
    nan = apply(np.isnan, given)
    found = place(searching.where(nan, instead, given), axis=axis, keepdims=keepdims)
    none = statistics.all(nan, axis=axis, keepdims=keepdims)
    return Tensor(blocks.elementwise(_not_all_nan, [found.node, none.node], found.dtype, "nanarg"))


def _not_all_nan(found: Any, none: Any) -> Any:
    if np.any(none):
        raise ValueError("All-NaN slice encountered")
    return found
