"""Functions of NumPy and of Mars that the array standard does not have, under the names that users know.

Those that NumPy does element by element, or that can be written with functions of the standard, work chunk by chunk. A
few must see an array as a whole: they say so.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.frontends.tensors import order_statistics, reductions, sample_sort, searching, shaping
from weft.frontends.tensors.arrays import executables, linalg, shapes, statistics
from weft.frontends.tensors.arrays.array import Tensor, apply, as_node, called, matmul, put_into, taking_out
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.searching import fields_of, take
from weft.frontends.tensors.blocks import call, in_one, mapped, whole_along
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import Input, Node, Where
from weft.operators.regions import Kind

Axis = int | Sequence[int] | None
FLOAT = np.dtype(np.float64)
INT = np.dtype(np.int64)


range_ = range
"""The built-in one: `histogram` has a parameter of its name."""


# --------------------------------------------------------------------------------------------------- element-wise


def _elementwise(name: str) -> Callable[..., Tensor]:
    ufunc: np.ufunc = getattr(np, name)

    def function(*operands: Any, out: Any = None, where: Any = True, **how: Any) -> Tensor:
        if len(operands) == ufunc.nin + 1 and out is None:
            *operands, out = operands  # type: ignore[assignment]
        if len(operands) != ufunc.nin:
            raise TypeError(f"{name} takes {ufunc.nin} arrays, not {len(operands)}")
        return called(ufunc, operands, out, where, **how)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Element by element as `numpy.{name}`."
    return function


arccos = _elementwise("arccos")
arccosh = _elementwise("arccosh")
arcsin = _elementwise("arcsin")
arcsinh = _elementwise("arcsinh")
arctan = _elementwise("arctan")
arctan2 = _elementwise("arctan2")
arctanh = _elementwise("arctanh")
cbrt = _elementwise("cbrt")
deg2rad = _elementwise("deg2rad")
degrees = _elementwise("degrees")
exp2 = _elementwise("exp2")
fabs = _elementwise("fabs")
float_power = _elementwise("float_power")
fmax = _elementwise("fmax")
fmin = _elementwise("fmin")
fmod = _elementwise("fmod")
heaviside = _elementwise("heaviside")
invert = _elementwise("invert")
ldexp = _elementwise("ldexp")
left_shift = _elementwise("left_shift")
logaddexp2 = _elementwise("logaddexp2")
mod = _elementwise("mod")
power = _elementwise("power")
rad2deg = _elementwise("rad2deg")
radians = _elementwise("radians")
right_shift = _elementwise("right_shift")
rint = _elementwise("rint")
spacing = _elementwise("spacing")
true_divide = _elementwise("true_divide")


def modf(x: Any, *into: Any, out: Any = (None, None), where: Any = True, **how: Any) -> ExecutableTuple:
    """Return the fractional and the whole part of each element."""
    return _both(np.modf, x, into or out, where, how)


def frexp(x: Any, *into: Any, out: Any = (None, None), where: Any = True, **how: Any) -> ExecutableTuple:
    """Return mantissa and exponent of each element."""
    return _both(np.frexp, x, into or out, where, how)


def _both(ufunc: np.ufunc, x: Any, out: Any, where: Any, how: Any) -> ExecutableTuple:
    into = [*(out or ()), None, None]
    return ExecutableTuple([called(ufunc, [x], into[at], where, at=at, **how) for at in range(2)])


def divmod(x1: Any, x2: Any) -> ExecutableTuple:
    """Return quotients rounded down, and what is left."""
    return ExecutableTuple([apply(np.floor_divide, x1, x2), apply(np.remainder, x1, x2)])


@needs_lengths
def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Return where two arrays are as good as equal: |a - b| <= atol + rtol * |b|."""
    nodes = [as_node(a), as_node(b)]
    kwargs = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    return Tensor(searching.elementwise(np.isclose, nodes, np.dtype(bool), "isclose", **kwargs))


def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Return whether two arrays are as good as equal everywhere."""
    return statistics.all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a: Any, b: Any) -> Tensor:
    """Return whether two arrays have the same shape and elements."""
    x, y = Tensor(as_node(a)), Tensor(as_node(b))
    if x.shape != y.shape:
        return Tensor(as_node(np.asarray(False)))
    return statistics.all(apply(np.equal, x, y))


def nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Put numbers in the place of NaN and of the infinities; without `copy`, in the array that was given."""
    made = _nan_to_num(x, {"nan": nan, "posinf": posinf, "neginf": neginf})
    return made if copy or not isinstance(x, Tensor) else put_into(x, made)


@needs_lengths
def _nan_to_num(x: Any, instead: dict[str, Any]) -> Tensor:
    node = _loose(x)
    return Tensor(searching.elementwise(np.nan_to_num, [node], node.dtype, "nan_to_num", **instead))


@needs_lengths
def angle(z: Any, deg: bool = False) -> Tensor:
    """Return the angle of each complex number."""
    node = as_node(z)
    dtype = np.angle(np.empty(0, node.dtype)).dtype
    return Tensor(searching.elementwise(np.angle, [node], dtype, "angle", deg=deg))


# --------------------------------------------------------------------------------------------------------- shapes


@needs_lengths
def transpose(x: Any, axes: Sequence[int] | None = None) -> Tensor:
    """Put the axes into another order, the opposite one if none is given."""
    made = _tensor(x)
    return made.T if axes is None else shapes.permute_dims(made, tuple(axes))


@needs_lengths
def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Exchange two axes."""
    made = _tensor(x)
    order = list(range(made.ndim))
    a, b = reductions.axes_of(axis1, made.ndim)[0], reductions.axes_of(axis2, made.ndim)[0]
    order[a], order[b] = order[b], order[a]
    return shapes.permute_dims(made, tuple(order))


@needs_lengths
def rollaxis(x: Any, axis: int, start: int = 0) -> Tensor:
    """Move an axis to before another."""
    ndim = as_node(x).grid.__len__()
    axis %= ndim
    start = start + ndim if start < 0 else start
    return shapes.moveaxis(x, axis, start - 1 if axis < start else start)


@needs_lengths
def ravel(x: Any, order: str = "C") -> Tensor:
    """Return the elements along one axis: row after row, or, with order "F", column after column.

    It is a view, if they lie so.
    """
    made = _tensor(x)
    flat = shapes.reshape(made, (-1,), order=order)
    return flat if made.in_order() else Tensor(flat._node)


def flatten(x: Any, order: str = "C") -> Tensor:
    """Return the elements along one axis as `ravel`, as an array of its own."""
    return Tensor(ravel(x, order)._node)


@taking_out(2)
def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Put arrays one behind the other along an axis."""
    return shapes.concat(arrays, axis=axis)


def atleast_1d(*arrays: Any) -> Any:
    """Return arrays with one axis at least."""
    return _all([shapes.reshape(x, (1,)) if not x.ndim else x for x in map(_tensor, arrays)])


def atleast_2d(*arrays: Any) -> Any:
    """Return arrays with two axes at least; new ones come first."""
    return _all(
        [shapes.reshape(x, (1, 1)) if not x.ndim else x[None, :] if x.ndim == 1 else x for x in map(_tensor, arrays)]
    )


def atleast_3d(*arrays: Any) -> Any:
    """Return arrays with three axes at least."""
    made = []
    for x in map(_tensor, arrays):
        if not x.ndim:
            made.append(shapes.reshape(x, (1, 1, 1)))
        else:
            made.append(x[None, :, None] if x.ndim == 1 else x[:, :, None] if x.ndim == 2 else x)
    return _all(made)


def _tensor(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else Tensor(as_node(x))


def _all(made: list[Tensor]) -> Any:
    return made[0] if len(made) == 1 else made


def vstack(arrays: Sequence[Any]) -> Tensor:
    """Put arrays below one another."""
    return shapes.concat([atleast_2d(x) for x in arrays], axis=0)


def hstack(arrays: Sequence[Any]) -> Tensor:
    """Put arrays beside one another."""
    made = [atleast_1d(x) for x in arrays]
    return shapes.concat(made, axis=0 if made[0].ndim == 1 else 1)


def dstack(arrays: Sequence[Any]) -> Tensor:
    """Put arrays behind one another along the third axis."""
    return shapes.concat([atleast_3d(x) for x in arrays], axis=2)


def column_stack(arrays: Sequence[Any]) -> Tensor:
    """Make one-dimensional arrays the columns of a matrix."""
    made = [x if x.ndim > 1 else x[:, None] for x in map(_tensor, arrays)]
    return shapes.concat(made, axis=1)


@needs_lengths
def array_split(x: Any, parts: int | Sequence[int], axis: int = 0) -> ExecutableTuple:
    """Cut an array into parts along an axis, which may differ by one in length, or at the given places."""
    made = _tensor(x)
    size = made.shape[axis]
    if isinstance(parts, int):
        each, more = size // parts, size % parts
        ends = np.cumsum([0] + [each + (i < more) for i in range(parts)]).tolist()
    else:
        ends = [0, *parts, size]
    before = (slice(None),) * (axis % made.ndim)
    return ExecutableTuple([made[(*before, slice(lo, hi))] for lo, hi in itertools.pairwise(ends)])


@needs_lengths(sample=array_split)
def split(x: Any, parts: int | Sequence[int], axis: int = 0) -> ExecutableTuple:
    """Cut an array into equal parts along an axis, or at the given places. ValueError: it cannot be cut evenly."""
    if isinstance(parts, int) and _tensor(x).shape[axis] % parts:
        raise ValueError("array split does not result in an equal division")
    return array_split(x, parts, axis)


def vsplit(x: Any, parts: int | Sequence[int]) -> ExecutableTuple:
    """Cut along the first axis."""
    return split(x, parts, 0)


def hsplit(x: Any, parts: int | Sequence[int]) -> ExecutableTuple:
    """Cut along the second axis, or the only one."""
    return split(x, parts, 0 if _tensor(x).ndim == 1 else 1)


def dsplit(x: Any, parts: int | Sequence[int]) -> ExecutableTuple:
    """Cut along the third axis."""
    return split(x, parts, 2)


def flipud(x: Any) -> Tensor:
    """Turn the order of rows round."""
    return shapes.flip(x, axis=0)


def fliplr(x: Any) -> Tensor:
    """Turn the order of columns round."""
    return shapes.flip(x, axis=1)


def append(x: Any, values: Any, axis: int | None = None) -> Tensor:
    """Put values behind an array; with no axis, both flat."""
    return shapes.concat([x, values], axis=axis)


# ----------------------------------------------------------------------------------------------------- reductions


@taking_out(2)
def amax(x: Any, axis: Axis = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Tensor:
    """Return the largest element, as `max`."""
    return statistics.max(x, axis=axis, keepdims=keepdims, initial=initial, where=where)


@taking_out(2)
def amin(x: Any, axis: Axis = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Tensor:
    """Return the smallest element, as `min`."""
    return statistics.min(x, axis=axis, keepdims=keepdims, initial=initial, where=where)


@taking_out(2)
def ptp(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the largest element less the smallest."""
    return apply(np.subtract, amax(x, axis, keepdims=keepdims), amin(x, axis, keepdims=keepdims))


@taking_out(3)
def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Return running sums along an axis; with none, of the flat array."""
    given = ravel(x) if axis is None else x
    return statistics.cumulative_sum(given, axis=0 if axis is None else axis, dtype=dtype)


@taking_out(3)
def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Return running products along an axis; with none, of the flat array."""
    given = ravel(x) if axis is None else x
    return statistics.cumulative_prod(given, axis=0 if axis is None else axis, dtype=dtype)


@needs_lengths
def _without_nan(x: Any, value: Any) -> Tensor:
    node = as_node(x)
    if node.dtype.kind not in "fc":
        return Tensor(node)
    return Tensor(searching.where(apply(np.isnan, Tensor(node)).node, value, node, node.dtype))


@taking_out(3)
def nansum(
    x: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Tensor:
    """Return the sum, NaN taken as 0."""
    return statistics.sum(_without_nan(x, 0), axis, dtype, keepdims=keepdims, initial=initial, where=where)


@taking_out(3)
def nanprod(
    x: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False, initial: Any = None, where: Any = True
) -> Tensor:
    """Return the product, NaN taken as 1."""
    return statistics.prod(_without_nan(x, 1), axis, dtype, keepdims=keepdims, initial=initial, where=where)


@taking_out(3)
def nancumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Return running sums, NaN taken as 0."""
    return cumsum(_without_nan(x, 0), axis, dtype)


@taking_out(3)
def nancumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Return running products, NaN taken as 1."""
    return cumprod(_without_nan(x, 1), axis, dtype)


@taking_out(2)
@needs_lengths
def nanmax(x: Any, axis: Axis = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Tensor:
    """Return the largest element that is not NaN."""
    return statistics.extreme(np.fmax, x, axis, keepdims, "nanmax", initial, where)


@taking_out(2)
@needs_lengths
def nanmin(x: Any, axis: Axis = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Tensor:
    """Return the smallest element that is not NaN."""
    return statistics.extreme(np.fmin, x, axis, keepdims, "nanmin", initial, where)


def _there(x: Tensor, where: Any) -> Any:
    """Return for which elements, of those that `where` is true for, an array has a number; True: for all."""
    if x.dtype.kind not in "fc":
        return where
    there = apply(np.logical_not, apply(np.isnan, x))
    return there if where is True else apply(np.logical_and, there, where)


@taking_out(3)
@needs_lengths
def nanmean(x: Any, axis: Axis = None, dtype: Any = None, *, keepdims: bool = False, where: Any = True) -> Tensor:
    """Return the mean of what is not NaN."""
    given = _tensor(x)
    return statistics.mean(given, axis, dtype, keepdims=keepdims, where=_there(given, where))


@taking_out(3)
@needs_lengths
def nanvar(
    x: Any, axis: Axis = None, dtype: Any = None, *, ddof: float = 0, keepdims: bool = False, where: Any = True
) -> Tensor:
    """Return the variance of what is not NaN, which is NaN where there are no more than `ddof` elements."""
    given = _tensor(x)
    there = _there(given, where)
    made = statistics.var(given, axis, dtype, correction=ddof, keepdims=keepdims, where=there)
    if given.dtype.kind not in "fc":
        return made
    few = apply(np.less_equal, statistics.sum(there, axis, keepdims=keepdims), ddof)
    return Tensor(searching.where(few.node, np.nan, made.node, made.dtype))


@taking_out(3)
def nanstd(
    x: Any, axis: Axis = None, dtype: Any = None, *, ddof: float = 0, keepdims: bool = False, where: Any = True
) -> Tensor:
    """Return the standard deviation of what is not NaN."""
    return apply(np.sqrt, nanvar(x, axis, dtype, ddof=ddof, keepdims=keepdims, where=where))


@needs_lengths
def average(x: Any, axis: Axis = None, weights: Any = None, returned: bool = False) -> Any:
    """Return the mean, weighted where weights are given; with `returned`, and the sums of the weights."""
    if weights is None:
        made = statistics.mean(x, axis=axis)
        count = apply(np.true_divide, float(_tensor(x).size), float(max(made.size, 1))).astype(made.dtype)
        return ExecutableTuple([made, shapes.broadcast_to(count, made.shape)]) if returned else made
    given, by = _tensor(x), _tensor(weights)
    if by.shape != given.shape:
        if not isinstance(axis, int) or by.ndim != 1:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        by = shapes.reshape(by, [-1 if a == axis % given.ndim else 1 for a in range(given.ndim)])
        by = shapes.broadcast_to(by, given.shape)
    total, whole = statistics.sum(apply(np.multiply, given, by), axis=axis), statistics.sum(by, axis=axis)
    made = apply(np.true_divide, total, whole)
    return ExecutableTuple([made, whole.astype(made.dtype)]) if returned else made


def _order_statistic(x: Any, *, fn: Any, q: Any, how: tuple[tuple[str, Any], ...], dtype: np.dtype[Any]) -> Any:
    return np.asarray(fn(x, **_wanted(q), **dict(how)), dtype)  # NumPy's NaNs may be of the array's dtype


def _wanted(q: Any) -> dict[str, Any]:
    """Return the quantiles of a call: None, a number, or several as a tuple and their dtype."""
    if q is None:
        return {}
    return {"q": np.asarray(*q) if isinstance(q, tuple) else q}


@needs_lengths
def _order(fn: Any, x: Any, axis: Axis, keepdims: bool, q: Any = None, **how: Any) -> Tensor:
    """Return medians or quantiles by a function of NumPy's; `q` goes to it as it is, since its dtype counts."""
    node = as_node(x)
    axes = reductions.axes_of(axis, len(node.grid))
    front: list[Cut] = []
    if not (q is None or isinstance(q, int | float)):
        several = np.asarray(q.fetch() if isinstance(q, Tensor) else q)
        front = [Cut.even(n, max(n, 1)) for n in several.shape]
        q = (tuple(several.tolist()), several.dtype) if several.ndim else several[()]
    dtype = np.asarray(fn(np.ones(1, node.dtype), **_wanted(q), **how)).dtype
    long = order_statistics.is_long(node, axes) and all(cut.size for cut in front)
    node = node if long else whole_along(node, axes)
    left = [a for a in range_(len(node.grid)) if keepdims or a not in axes]
    grid = (*front, *[Cut.even(1, 1) if a in axes else node.grid[a] for a in left])
    if long:
        return Tensor(order_statistics.select(node, order_statistics.wanted_by(fn, q, **how), grid, dtype, fn.__name__))
    one = mapped(node, grid, [*[None] * len(front), *left])
    kwargs = {"fn": fn, "q": q, "how": tuple({**how, "axis": axes, "keepdims": keepdims}.items()), "dtype": dtype}
    return Tensor(Node(Kind.CALL, _order_statistic, [one], grid, dtype, kwargs=kwargs, name=fn.__name__))


def _quantiles(fn: Any, name: str, text: str) -> Callable[..., Tensor]:
    def function(
        x: Any,
        q: Any,
        axis: Axis = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: bool = False,
        *,
        interpolation: str | None = None,
    ) -> Tensor:
        return _order(fn, x, axis, keepdims, q, method=interpolation or method)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{text}; of a long array by looking for them in its chunks, else of axes read as one chunk.

    `interpolation` is an older name of `method`. The array that is given is never changed, `overwrite_input` or not.
    ValueError: a `q` is out of bounds.
    """
    return taking_out(3)(function)


quantile = _quantiles(np.quantile, "quantile", "Return quantiles, `q` from 0 to 1")
nanquantile = _quantiles(np.nanquantile, "nanquantile", "Return quantiles of what is not NaN, `q` from 0 to 1")
percentile = _quantiles(np.percentile, "percentile", "Return percentiles, `q` from 0 to 100")
nanpercentile = _quantiles(
    np.nanpercentile, "nanpercentile", "Return percentiles of what is not NaN, `q` from 0 to 100"
)


@taking_out(2)
def median(x: Any, axis: Axis = None, overwrite_input: bool = False, keepdims: bool = False) -> Tensor:
    """Return the median; of a long array by looking for it in its chunks, else of axes read as one chunk."""
    return _order(np.median, x, axis, keepdims)


@taking_out(2)
def nanmedian(x: Any, axis: Axis = None, overwrite_input: bool = False, keepdims: bool = False) -> Tensor:
    """Return the median of what is not NaN, as `median`."""
    return _order(np.nanmedian, x, axis, keepdims)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Tensor:
    """Return the matrix of correlations between variables, which are rows (or columns)."""
    c = cov(x, y, rowvar)
    if not c.ndim:
        return apply(np.true_divide, c, c)
    scale = apply(np.sqrt, diagonal(c))
    return apply(np.true_divide, apply(np.true_divide, c, scale[:, None]), scale[None, :])


def cov(x: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None) -> Tensor:
    """Return the matrix of covariances between variables, which are rows (or columns)."""
    made = atleast_2d(x)
    if not rowvar and made.shape[0] != 1:
        made = made.T
    if y is not None:
        other = atleast_2d(y)
        made = shapes.concat([made, other.T if not rowvar and other.shape[0] != 1 else other], axis=0)
    made = made.astype(np.result_type(made.dtype, FLOAT))
    less = (0 if bias else 1) if ddof is None else ddof
    away = apply(np.subtract, made, statistics.mean(made, axis=1, keepdims=True))
    product = matmul(away, apply(np.conjugate, away).T)
    result = apply(np.true_divide, product, float(max(made.shape[1] - less, 0)))
    return shapes.reshape(result, ()) if result.shape == (1, 1) else result


# ------------------------------------------------------------------------------------------------------ histograms


def _histogram(x: Any, weights: Any = None, *, edges: tuple[float, ...]) -> Any:
    counts, _ = np.histogram(x, np.asarray(edges), weights=weights)
    return counts


def edges_of(x: Tensor, bins: Any, range: tuple[float, float] | None) -> np.ndarray[Any, Any]:
    """Return the edges of a histogram, as `numpy.histogram_bin_edges`, of which a number needs the extremes alone."""
    dtype = np.dtype(np.uint8) if x.dtype.kind == "b" else x.dtype
    if isinstance(bins, str):
        values = x.fetch()
    elif isinstance(bins, int | np.integer) and range is None and x.size:
        values = np.array(executables.fetch([statistics.min(x), statistics.max(x)]))
    else:
        values = np.empty(0, dtype)
    bins = bins.fetch() if isinstance(bins, Tensor) else bins
    return np.histogram_bin_edges(values.astype(dtype), bins, range)


def histogram(
    x: Any,
    bins: int | str | Sequence[float] = 10,
    range: tuple[float, float] | None = None,
    weights: Any = None,
    density: bool = False,
) -> ExecutableTuple:
    """Return how many elements (or what weight) lie between edges, and the edges.

    A number of bins without a range computes the smallest and the largest element first, a rule by its name all.
    """
    flat = ravel(x)
    edges = edges_of(flat, bins, range)
    node = flat.node
    inputs = [Input(node)]
    dtype = INT
    if weights is not None:
        by = ravel(weights)
        if by.shape != flat.shape:
            raise ValueError("weights should have the same shape as a.")
        dtype = np.result_type(by.dtype, FLOAT)
        inputs.append(Input(by.rechunk((node.grid[0].lengths(),)).node))
    n = len(edges) - 1
    grid = (Cut.even(node.grid[0].n * n, n),)
    part = Node(Kind.CALL, _histogram, inputs, grid, dtype, kwargs={"edges": tuple(edges.tolist())}, name="histogram")
    stacked = shaping.reshape(Tensor(part).node, (node.grid[0].n, n)) if node.grid[0].n > 1 else None
    counts = Tensor(part) if stacked is None else statistics.sum(Tensor(stacked), axis=0)
    if density:
        widths = np.diff(edges)
        counts = apply(np.true_divide, apply(np.true_divide, counts, widths), statistics.sum(counts))
    return ExecutableTuple([counts, Tensor(as_node(edges))])


@needs_lengths
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Tensor:
    """Return how often each whole number occurs, or the sum of the weights there; chunks are added up by a tree."""
    node = as_node(x)
    if len(node.grid) != 1:
        raise ValueError(f"bincount: x has {len(node.grid)} axes; give an array of 1 dimension")
    if minlength < 0:
        raise ValueError("'minlength' must not be negative")
    if weights is not None and as_node(weights).shape != node.shape:
        raise ValueError("The weights and list don't have the same length.")
    if not np.can_cast(node.dtype, INT, "safe"):
        raise TypeError(f"Cannot cast array data from {node.dtype} to {INT} according to the rule 'safe'")
    inputs = [Input(node)] + ([Input(_tensor(weights).rechunk(node.grid).node)] if weights is not None else [])
    dtype = INT if weights is None else FLOAT
    whole = (Cut.unknown(1),)
    grid = whole if node.chunks == 1 else (Cut.even(node.chunks, 1),)
    made = Node(Kind.CALL, np.bincount, inputs, grid, dtype, kwargs={"minlength": minlength}, name="bincount")
    return Tensor(sample_sort.united(made, _added, whole))


def _added(parts: list[Any]) -> Any:
    total = np.zeros(max(map(len, parts)), parts[0].dtype)
    for part in parts:
        total[: len(part)] += part
    return total


def digitize(x: Any, bins: Any, right: bool = False) -> Tensor:
    """Return between which edges each element lies."""
    node, edges = as_node(x), np.asarray(_tensor(bins).fetch())
    kwargs = {"bins": tuple(edges.tolist()), "right": right}
    return Tensor(searching.elementwise(np.digitize, [node], INT, "digitize", **kwargs))


# --------------------------------------------------------------------------------------------------- linear algebra


def outer(a: Any, b: Any) -> Tensor:
    """Return all products of elements of one array with those of another, both taken flat."""
    return linalg.outer(ravel(a), ravel(b))


def einsum(subscripts: Any, *operands: Any, dtype: Any = None, casting: Any = "safe", order: str = "K") -> Tensor:
    """Return sums of products in Einstein's notation, two operands at a time, in the order that is cheapest.

    They are computed in `dtype`. Subscripts may be numbers too: `einsum(x, [0, 1], y, [1, 2], [0, 2])`. ValueError: the
    subscripts do not fit. TypeError: `casting` does not allow the type.
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _lettered((subscripts, *operands))
    arrays = [_tensor(one) for one in operands]
    if dtype is not None:
        arrays = [one.astype(dtype, casting=casting) for one in arrays]
    return _summed(subscripts, arrays).ordered(order)


def _lettered(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return subscripts as a text for operands that are each followed by a list of numbers, and perhaps one at the end.

    Letters are in the order of the numbers, since that is the order of the result's axes where none is given.
    """
    letters = string.ascii_uppercase + string.ascii_lowercase

    def term(numbers: Sequence[Any]) -> str:
        named = [n if n is Ellipsis else int(n) for n in numbers]
        if any(n is not Ellipsis and not 0 <= n < len(letters) for n in named):
            raise ValueError(f"einsum: subscripts are {list(numbers)}: give numbers from 0 to {len(letters) - 1}")
        return "".join("..." if n is Ellipsis else letters[n] for n in named)

    operands = given[: len(given) // 2 * 2 : 2]
    inputs = ",".join(term(one) for one in given[1::2])
    return inputs + ("->" + term(given[-1]) if len(given) % 2 else ""), operands


def _summed(subscripts: str, arrays: list[Tensor]) -> Tensor:
    text = subscripts.replace(" ", "")
    inputs, _, output = text.partition("->")
    if "..." in text:
        arrays, text = _named(arrays, inputs.split(","), output if "->" in text else None)
        inputs, _, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(arrays) or any(len(term) != x.ndim for term, x in zip(terms, arrays, strict=False)):
        raise ValueError("einsum: the subscripts do not fit the operands")
    if "->" not in text:
        letters = "".join(terms)
        output = "".join(sorted({c for c in letters if letters.count(c) == 1}))
    terms, arrays = _squeezed(terms, arrays)
    text = f"{','.join(terms)}->{output}"
    dummies = [np.broadcast_to(np.empty(()), x.shape) for x in arrays]
    path = np.einsum_path(text, *dummies, optimize="greedy")[0][1:]
    parts = [_one_term(term, x) for term, x in zip(terms, arrays, strict=True)]
    for pair in path:
        chosen = [parts.pop(at) for at in sorted(pair, reverse=True)]
        kept = set(output).union(*[set(term) for term, _ in parts])
        made = chosen[0]
        for other in chosen[1:]:
            made = _two_terms(other, made, kept)
        parts.append(made)
    ((term, x),) = parts
    drop = tuple([at for at, c in enumerate(term) if c not in output])
    if drop:
        x = statistics.sum(x, axis=drop, dtype=x.dtype)
        term = "".join(c for c in term if c in output)
    return shapes.permute_dims(x, tuple([term.index(c) for c in output])) if output else x


def _named(arrays: list[Tensor], terms: list[str], output: str | None) -> tuple[list[Tensor], str]:
    """Return operands that are broadcast along the axes of an ellipsis, and subscripts that name these."""
    if len(terms) != len(arrays):
        raise ValueError("einsum: the subscripts do not fit the operands")
    counts = [
        x.ndim - len(term.replace("...", "")) if "..." in term else 0 for term, x in zip(terms, arrays, strict=True)
    ]
    if min(counts) < 0:
        raise ValueError("einsum: the subscripts do not fit the operands")
    free = [c for c in string.ascii_letters if not any(c in term for term in terms)][: max(counts)]
    starts = [term.find("...") for term in terms]
    lengths = [x.shape[at : at + n] for x, at, n in zip(arrays, starts, counts, strict=True) if n]
    common = np.broadcast_shapes(*lengths)
    made, names = [], []
    for x, term, at, n in zip(arrays, terms, starts, counts, strict=True):
        wanted = (*x.shape[:at], *common[len(common) - n :], *x.shape[at + n :]) if n else x.shape
        made.append(x if wanted == x.shape else shapes.broadcast_to(x, wanted))
        names.append(term.replace("...", "".join(free[len(free) - n :]) if n else ""))
    if output is None:
        letters = "".join(term.replace("...", "") for term in terms)
        output = "..." + "".join(sorted({c for c in letters if letters.count(c) == 1}))
    return made, ",".join(names) + "->" + output.replace("...", "".join(free))


def _squeezed(terms: list[str], arrays: list[Tensor]) -> tuple[list[str], list[Tensor]]:
    """Leave out the axes of length 1 that are stretched to the length which their letter has elsewhere."""
    longest: dict[str, int] = {}
    for term, x in zip(terms, arrays, strict=True):
        for c, n in zip(term, x.shape, strict=True):
            longest[c] = n if longest.get(c, 1) == 1 else longest[c]
    made = []
    for term, x in zip(terms, arrays, strict=True):
        for c, n in zip(term, x.shape, strict=True):
            if n not in (1, longest[c]):
                raise ValueError(
                    f"einsum: {c} has lengths {longest[c]} and {n}: operands could not be broadcast together"
                )
        drop = tuple([at for at, c in enumerate(term) if x.shape[at] != longest[c]])
        made.append(shapes.squeeze(x, drop) if drop else x)
    kept = [
        "".join(c for c, n in zip(t, x.shape, strict=True) if n == longest[c])
        for t, x in zip(terms, arrays, strict=True)
    ]
    return kept, made


def _one_term(term: str, x: Tensor) -> tuple[str, Tensor]:
    """Take the diagonal where a letter stands twice."""
    while len(set(term)) < len(term):
        letter = next(c for c in term if term.count(c) > 1)
        a = term.index(letter)
        b = term.index(letter, a + 1)
        x = diagonal(x, 0, a, b)
        term = term[:a] + term[a + 1 : b] + term[b + 1 :] + letter
    return term, x


def _two_terms(first: tuple[str, Tensor], second: tuple[str, Tensor], kept: set[str]) -> tuple[str, Tensor]:
    """Multiply two operands and sum over what neither the result nor a later operand needs, by one matrix product."""
    (left, x), (right, y) = first, second
    for only, (term, z) in enumerate(((left, x), (right, y))):
        other = right if only == 0 else left
        drop = tuple([at for at, c in enumerate(term) if c not in kept and c not in other])
        if drop:
            z = statistics.sum(z, axis=drop, dtype=z.dtype)
            term = "".join(c for c in term if c in kept or c in other)
        if only == 0:
            left, x = term, z
        else:
            right, y = term, z
    both = [c for c in left if c in right]
    batch = [c for c in both if c in kept]
    summed = [c for c in both if c not in kept]
    own, others = [c for c in left if c not in both], [c for c in right if c not in both]
    sizes = dict(zip(left, x.shape, strict=True)) | dict(zip(right, y.shape, strict=True))

    def flat(term: str, z: Tensor, groups: list[list[str]]) -> Tensor:
        order = [term.index(c) for group in groups for c in group]
        moved = shapes.permute_dims(z, tuple(order))
        shape = [sizes[c] for c in groups[0]]
        return shapes.reshape(moved, (*shape, *[_product(sizes, group) for group in groups[1:]]))

    product = matmul(flat(left, x, [batch, own, summed]), flat(right, y, [batch, summed, others]))
    term = "".join([*batch, *own, *others])
    return term, shapes.reshape(product, tuple([sizes[c] for c in term]))


def _product(sizes: dict[str, int], letters: Sequence[str]) -> int:
    made = 1
    for letter in letters:
        made *= sizes[letter]
    return made


@needs_lengths
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Return the diagonals of two axes; they come last."""
    made = _tensor(x)
    a, b = axis1 % made.ndim, axis2 % made.ndim
    order = [axis for axis in range_(made.ndim) if axis not in (a, b)]
    return linalg.diagonal(shapes.permute_dims(made, (*order, a, b)), offset=offset)


def _put_diagonal(x: Any, *, k: int) -> Any:
    return np.diag(x, k)


@needs_lengths
def diag(v: Any, k: int = 0, *, chunk_size: Any = None) -> Tensor:
    """Return the k-th diagonal of a matrix, or a matrix with a vector on it."""
    made = _tensor(v)
    if made.ndim == 2:
        made = diagonal(made, k)
        return made if chunk_size is None else made.rechunk(chunk_size)
    if made.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    node = in_one(made.node)
    n = node.size + abs(k)
    grid = (Cut.even(n, max(n, 1)),) * 2
    placed = Tensor(call(_put_diagonal, node, grid, node.dtype, kwargs={"k": k}, name="diag"))
    return placed if chunk_size is None else placed.rechunk(chunk_size)


def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Return sums along diagonals."""
    return statistics.sum(diagonal(x, offset, axis1, axis2), axis=-1)


# --------------------------------------------------------------------------------------------------------- choosing


def _top(x: Any, k: int, axis: int | None, largest: bool, order: bool, fields: Any) -> tuple[Tensor, Tensor]:
    given = _tensor(x) if axis is not None else ravel(x)
    (axis,) = reductions.axes_of(-1 if axis is None else axis, given.ndim)
    k = min(k, given.shape[axis])
    if k < 1:
        raise ValueError(f"k is {k}: ask for one element at least, of an axis that has some")
    made = searching.largest(given.node, axis, k, most=largest, order=fields_of(given, fields), sorted_=order)
    return Tensor(made[0]), Tensor(made[1])


@needs_lengths
def topk(
    x: Any,
    k: int,
    axis: int | None = -1,
    largest: bool = True,
    sorted: bool = True,
    order: Any = None,
    return_index: bool = False,
) -> Any:
    """Return the k largest (or smallest) elements along an axis, of the flat array without one.

    With `return_index`, and their places. `order` are fields of a structured array, the first to compare first.
    """
    made = _top(x, k, axis, largest, sorted, order)
    return ExecutableTuple(made) if return_index else made[0]


@needs_lengths
def argtopk(
    x: Any, k: int, axis: int | None = -1, largest: bool = True, sorted: bool = True, order: Any = None
) -> Tensor:
    """Return the places of the k largest (or smallest) elements along an axis, as `topk` has them."""
    return _top(x, k, axis, largest, sorted, order)[1]


@taking_out(3)
def compress(condition: Any, x: Any, axis: int | None = None) -> Tensor:
    """Return the elements along an axis where a condition holds."""
    given = ravel(x) if axis is None else _tensor(x)
    (along,) = reductions.axes_of(axis or 0, given.ndim)
    places = flatnonzero(condition) if isinstance(condition, Tensor) else np.flatnonzero(condition)
    return take(given, places, axis=along)


@needs_lengths
def flatnonzero(x: Any) -> Tensor:
    """Return the places of the elements that are not zero, in the flat array."""
    return Tensor(searching.nonzero(ravel(x).node)[0])


@needs_lengths
def argwhere(x: Any) -> Tensor:
    """Return the coordinates of the elements that are not zero, a row for each."""
    found = searching.nonzero(as_node(x))
    return shapes.stack([Tensor(one) for one in found], axis=-1)


# ------------------------------------------------------------------------------------------------------ own functions


def _loose(x: Any) -> Node:
    """Return the expression of an array, whose chunks may be of unknown lengths."""
    return x.loose if isinstance(x, Tensor) else as_node(x)


@needs_lengths
def map_chunk(x: Any, fn: Callable[..., Any], args: Sequence[Any] = (), **kwargs: Any) -> Tensor:
    """Return what a function makes of each chunk, which keeps its shape unless it is told.

    `dtype` is found by calling it on a chunk of a single 1; where that fails, give `dtype=`. `elementwise=False` says
    that lengths may change: they are known when it has run. `with_chunk_index=True` gives the function `chunk_index=`
    too: the numbers of the chunk along each axis. All other arguments are the function's. ValueError, when computed: a
    result has another shape than its chunk, or with `elementwise=False` another number of axes.
    """
    dtype, same = kwargs.pop("dtype", None), kwargs.pop("elementwise", True)
    numbered = kwargs.pop("with_chunk_index", False)
    node = as_node(x) if numbered else _loose(x)
    if dtype is None:
        first = {"chunk_index": (0,) * len(node.grid)} if numbered else {}
        dtype = np.asarray(fn(np.ones((1,) * len(node.grid), node.dtype), *args, **kwargs, **first)).dtype
    grid = node.grid if same else tuple([Cut.unknown(cut.n) for cut in node.grid])
    where = Where(node.grid) if numbered else None
    call_it = (_Numbered if numbered else _Mapped)(fn, tuple(args), kwargs, same, where)
    kind = Kind.PLACED if numbered else Kind.CALL
    made = Node(kind, call_it, [Input(node)], grid, np.dtype(dtype), unique=True, name="map_chunk")
    return Tensor(made)


class _Mapped:
    """A user's function with its arguments."""

    __name__ = "map_chunk"

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], same: bool, where: Where | None
    ) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.same = same
        self.where = where

    def __call__(self, chunk: Any) -> Any:
        return self._checked(chunk, self.fn(chunk, *self.args, **self.kwargs))

    def _checked(self, chunk: Any, result: Any) -> Any:
        made = np.asarray(result)
        if self.same and made.shape != chunk.shape:
            raise ValueError(
                f"map_chunk: the function made an array of shape {made.shape} of a chunk of shape {chunk.shape}: give "
                "elementwise=False if it changes lengths"
            )
        if made.ndim != chunk.ndim:
            raise ValueError(
                f"map_chunk: the function made an array of {made.ndim} axes of a chunk of {chunk.ndim}: have it keep "
                "them, with length 1 where it reduces"
            )
        return made


class _Numbered(_Mapped):
    """The same, for one that is told which chunk it has."""

    def __call__(self, place: Any, chunk: Any) -> Any:  # type: ignore[override]
        assert self.where is not None
        at = self.where(place.number).at
        return self._checked(chunk, self.fn(chunk, *self.args, chunk_index=at, **self.kwargs))


def rechunk(x: Any, chunk_size: Any) -> Tensor:
    """Return the same array in other chunks."""
    return _tensor(x).rechunk(chunk_size)
