"""Statistics that leave NaN out."""

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


@public("a", ignored="combine_size", out=3)
def nansum(
    x: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> Tensor:
    """Return the sum, NaN taken as 0."""
    return statistics.sum(_without_nan(x, 0), axis, dtype, keepdims=keepdims, initial=initial, where=where)


@public("a", ignored="combine_size", out=3)
def nanprod(
    x: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike = True,
) -> Tensor:
    """Return the product, NaN taken as 1."""
    return statistics.prod(_without_nan(x, 1), axis, dtype, keepdims=keepdims, initial=initial, where=where)


@public("a", out=3)
def nancumsum(x: ArrayLike, axis: int | None = None, dtype: DTypeLike = None) -> Tensor:
    """Return running sums, NaN taken as 0."""
    return cumsum(_without_nan(x, 0), axis, dtype)


@public("a", out=3)
def nancumprod(x: ArrayLike, axis: int | None = None, dtype: DTypeLike = None) -> Tensor:
    """Return running products, NaN taken as 1."""
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


def _there(x: Tensor, where: Any) -> Any:
    """Return which elements with `where` true are numbers; True: all."""
    if x.dtype.kind not in "fc":
        return where
    there = apply(np.logical_not, apply(np.isnan, x))
    return there if where is True else apply(np.logical_and, there, where)


@public("a", ignored="combine_size", out=3)
@needs_lengths
def nanmean(
    x: ArrayLike, axis: Axis = None, dtype: DTypeLike = None, *, keepdims: bool = False, where: ArrayLike = True
) -> Tensor:
    """Return the mean of the elements other than NaN."""
    given = as_tensor(x)
    return statistics.mean(given, axis, dtype, keepdims=keepdims, where=_there(given, where))


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
) -> Tensor:
    """Return the variance of the elements other than NaN; NaN for at most `ddof` elements."""
    given = as_tensor(x)
    there = _there(given, where)
    made = statistics.var(given, axis, dtype, correction=ddof, keepdims=keepdims, where=there)
    if given.dtype.kind not in "fc":
        return made
    few = apply(np.less_equal, statistics.sum(there, axis, keepdims=keepdims), ddof)
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
) -> Tensor:
    """Return the standard deviation of the elements other than NaN."""
    return apply(np.sqrt, nanvar(x, axis, dtype, ddof=ddof, keepdims=keepdims, where=where))


@public("a", ignored="combine_size", out=2)
def nanargmax(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the place of the largest element that is not NaN. ValueError, when computed: all are."""
    return _nan_place(statistics.argmax, -np.inf, x, axis, keepdims)


@public("a", ignored="combine_size", out=2)
def nanargmin(x: ArrayLike, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the place of the smallest element that is not NaN. ValueError, when computed: all are."""
    return _nan_place(statistics.argmin, np.inf, x, axis, keepdims)


def _nan_place(place: Any, instead: float, x: Any, axis: int | None, keepdims: bool) -> Tensor:
    given = as_tensor(x)
    if given.dtype.kind not in "fc":
        return place(given, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]
    nan = apply(np.isnan, given)
    found = place(searching.where(nan, instead, given), axis=axis, keepdims=keepdims)
    none = statistics.all(nan, axis=axis, keepdims=keepdims)
    return Tensor(blocks.elementwise(_some, [found.node, none.node], found.dtype, "nanarg"))


def _some(found: Any, none: Any) -> Any:
    if np.any(none):
        raise ValueError("All-NaN slice encountered")
    return found
