"""Medians, quantiles and percentiles."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.tensors import order_statistics, reductions, shaping
from weft.frontends.tensors.arrays.array import Tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.arrays.shapes import spread
from weft.frontends.tensors.blocks import fitted, mapped, whole_along
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import call

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.frontends.tensors.types import ArrayLike, Axis, Chunk, DType


_WITHOUT_NAN: Final = (np.nanquantile, np.nanpercentile)


def _order_statistic(x: Chunk, *, fn: Any, q: Any, how: tuple[tuple[str, Any], ...], dtype: DType) -> Chunk:
    words = dict(how)
    if (
        not x.size and isinstance(q, tuple) and dtype.kind in "fc"
    ):  # NumPy's functions fail, or return a result of another shape
        shape = np.empty(x.shape, bool).any(words["axis"], keepdims=words["keepdims"]).shape
        return np.full((*np.shape(q[0]), *shape), np.nan, dtype)
    return np.asarray(fn(x, **_wanted(q), **words), dtype)  # NumPy's NaNs may be of the array's dtype


def _wanted(q: Any) -> dict[str, Any]:
    """Return the quantiles of a call: None, a number, or several as a tuple and their dtype."""
    if q is None:
        return {}
    return {"q": np.asarray(*q) if isinstance(q, tuple) else q}


def _weighted(x: Chunk, weights: Chunk, *, how: tuple[tuple[str, Any], ...], **rest: Any) -> Chunk:
    return _order_statistic(x, how=(*how, ("weights", weights)), **rest)


def _weights(weights: Any, node: ArrayNode, axes: tuple[int, ...], method: str) -> ArrayNode:
    """Return weights for each element of an array: they have its shape, or are those along one axis."""
    if method != "inverted_cdf":
        raise ValueError(f"Only method 'inverted_cdf' supports weights. Got: {method}.")
    given = as_node(weights)
    if given.shape != node.shape:
        if len(axes) == len(node.grid) != 1 or len(axes) > 1:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        if given.shape != tuple([node.shape[axis] for axis in axes]):
            raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
        shape = [n if axis in axes else 1 for axis, n in enumerate(node.shape)]
        given = spread(Tensor(shaping.reshape(given, shape)), node.shape).node
    return given


@needs_lengths
def _order(fn: Any, x: ArrayLike, axis: Axis, keepdims: bool, q: Any = None, weights: Any = None, **how: Any) -> Tensor:
    """Return medians or quantiles by a function of NumPy's; `q` goes to it as it is, since its dtype counts."""
    node = as_node(x)
    axes = reductions.axes_of(axis, len(node.grid))
    front: list[Cut] = []
    if not (q is None or isinstance(q, int | float)):
        several = np.asarray(q.fetch() if isinstance(q, Tensor) else q)
        front = [Cut.whole(n) for n in several.shape]
        q = (tuple(several.tolist()), several.dtype) if several.ndim else several[()]
    by = [] if weights is None else [_weights(weights, node, axes, how["method"])]
    sample = {"weights": np.ones(1)} if by else {}
    empty = fn in _WITHOUT_NAN and not all(node.grid[axis].size for axis in axes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of no elements: the result has another dtype
        dtype = np.asarray(fn(np.ones(0 if empty else 1, node.dtype), **_wanted(q), **how, **sample)).dtype
    if node.dtype.kind in "SUO":
        dtype = node.dtype  # a single text has only its own length, a single object the type of its value
    long = not by and order_statistics.is_long(node, axes) and all(cut.size for cut in front)
    node = node if long else whole_along(node, axes)
    left = [a for a in range(len(node.grid)) if keepdims or a not in axes]
    grid = (*front, *[Cut.whole(1) if a in axes else node.grid[a] for a in left])
    if long:
        return Tensor(order_statistics.select(node, order_statistics.wanted_by(fn, q, **how), grid, dtype, fn.__name__))
    read = [mapped(one, grid, [*[None] * len(front), *left]) for one in (node, *[fitted(one, node.grid) for one in by])]
    options = tuple({**how, "axis": axes, "keepdims": keepdims}.items())
    body = _weighted if by else _order_statistic
    return Tensor(call(body, read, grid, dtype, name=fn.__name__, fn=fn, q=q, how=options, dtype=dtype))


def _quantiles(fn: Any, name: str, text: str) -> Callable[..., Tensor]:
    def function(
        x: Any,
        q: Any,
        axis: Axis = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: bool = False,
        *,
        weights: ArrayLike | None = None,
        interpolation: str | None = None,
    ) -> Tensor:
        return _order(fn, x, axis, keepdims, q, weights, method=interpolation or method)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{text}; of a long array by looking for them in its chunks, else of axes read as one chunk.

    `weights` are one for each element, or for each along the axis, which is read as one chunk then; the method
    "inverted_cdf" takes them. `interpolation` is an older name of `method`. The array that is given is never changed,
    `overwrite_input` or not.
    ValueError: a `q` is out of bounds.
    """
    return public("a", out=3)(function)


quantile = _quantiles(np.quantile, "quantile", "Return quantiles, `q` from 0 to 1")

nanquantile = _quantiles(np.nanquantile, "nanquantile", "Return quantiles of what is not NaN, `q` from 0 to 1")

percentile = _quantiles(np.percentile, "percentile", "Return percentiles, `q` from 0 to 100")

nanpercentile = _quantiles(
    np.nanpercentile, "nanpercentile", "Return percentiles of what is not NaN, `q` from 0 to 100"
)


@public("a", out=2)
def median(x: ArrayLike, axis: Axis = None, overwrite_input: bool = False, keepdims: bool = False) -> Tensor:
    """Return the median: of a long array by selection from its chunks, else of axes read as one chunk."""
    return _order(np.median, x, axis, keepdims)


@public("a", out=2)
def nanmedian(x: ArrayLike, axis: Axis = None, overwrite_input: bool = False, keepdims: bool = False) -> Tensor:
    """Return the median of the elements other than NaN, as `median`."""
    return _order(np.nanmedian, x, axis, keepdims)
