"""More names that code for Mars and for older versions of NumPy uses.

What NumPy 2 does not have any more (`product`, `in1d`, `round_`, `trapz`, `Inf`) is here, so that such code runs with
its import changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.frontends.tensors import reductions, shaping
from weft.frontends.tensors import searching as nodes
from weft.frontends.tensors.arrays import creation, elementwise, linalg, numpy_names, searching, shapes, statistics
from weft.frontends.tensors.arrays.array import Tensor, all_the_same, apply, as_node, taking_out
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.searching import fields_of
from weft.frontends.tensors.blocks import in_one
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import Input, Node
from weft.operators.regions import Kind

FLOAT = np.dtype(np.float64)
INT = np.dtype(np.int64)

Inf = np.inf
NINF = -np.inf
NaN = NAN = np.nan

absolute = elementwise.abs
around = round_ = elementwise.round
bitwise_not = elementwise.bitwise_invert
conjugate = elementwise.conj
innerproduct = linalg.inner
product = statistics.prod
tensor = scalar = creation.asarray
from_numpy = creation.asarray


def _tensor(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else Tensor(as_node(x))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer)


# --------------------------------------------------------------------------------------------------- element-wise


@taking_out(1)
def fix(x: Any) -> Tensor:
    """Round towards zero."""
    return apply(np.trunc, _tensor(x).astype(np.result_type(_tensor(x).dtype, np.float16)))


def isreal(x: Any) -> Tensor:
    """Tell of each element whether its imaginary part is zero; of what is no number, that it is not."""
    return apply(np.equal, elementwise.imag(x), 0) if _numbers(x) else all_the_same(False, x)


def iscomplex(x: Any) -> Tensor:
    """Tell of each element whether its imaginary part is not zero; of what is no number, that it is not."""
    return apply(np.not_equal, elementwise.imag(x), 0) if _numbers(x) else all_the_same(False, x)


def _numbers(x: Any) -> bool:
    return (x.dtype if isinstance(x, Tensor) else as_node(x).dtype).kind in "biufcO"


def sinc(x: Any) -> Tensor:
    """Return sin(pi x) / (pi x), and 1 at 0."""
    return _called(np.sinc, x)


def i0(x: Any) -> Tensor:
    """Return the modified Bessel function of the first kind, order 0."""
    return _called(np.i0, x)


def _called(fn: Any, x: Any) -> Tensor:
    """Return a function of NumPy's that goes element by element without being a ufunc."""
    node = as_node(x)
    return Tensor(nodes.elementwise(fn, [node], fn(np.ones(1, node.dtype)).dtype, fn.__name__))


def tree_add(*arrays: Any) -> Tensor:
    """Add up arrays, pair by pair, so that no more than two of them are held at a time."""
    return _paired(np.add, arrays)


def tree_multiply(*arrays: Any) -> Tensor:
    """Multiply arrays, pair by pair."""
    return _paired(np.multiply, arrays)


def _paired(fn: np.ufunc, arrays: Sequence[Any]) -> Tensor:
    left = list(arrays[0]) if len(arrays) == 1 and isinstance(arrays[0], list | tuple) else list(arrays)
    if not left:
        raise ValueError("need at least one array")
    while len(left) > 1:
        pairs = itertools.zip_longest(left[::2], left[1::2])
        left = [a if b is None else apply(fn, a, b) for a, b in pairs]
    return _tensor(left[0])


# ------------------------------------------------------------------------------------------------------- creation


def identity(n: int, dtype: Any = FLOAT, *, chunk_size: Any = None) -> Tensor:
    """Return the identity matrix."""
    return creation.eye(n, dtype=dtype, chunk_size=chunk_size)


def indices(dimensions: Sequence[int], dtype: Any = INT, *, chunk_size: Any = None) -> Tensor:
    """Return the coordinates of a grid: an array of one more axis, with the number along axis i at place i of it."""
    sizes = tuple(dimensions)
    made = []
    for axis, size in enumerate(sizes):
        each = chunk_size[axis] if isinstance(chunk_size, tuple | list) else chunk_size
        along = creation.arange(size, dtype=dtype, chunk_size=each)
        shape = tuple([size if a == axis else 1 for a in range(len(sizes))])
        made.append(shapes.broadcast_to(shapes.reshape(along, shape), sizes))
    return shapes.stack(made, axis=0) if made else creation.zeros((0,), dtype)


def diagflat(v: Any, k: int = 0, *, chunk_size: Any = None) -> Tensor:
    """Return a matrix with the elements of an array, however many axes it has, on its k-th diagonal."""
    return numpy_names.diag(numpy_names.ravel(v), k, chunk_size=chunk_size)


def ascontiguousarray(x: Any, dtype: Any = None, *, chunk_size: Any = None) -> Tensor:
    """Return an array whose values lie by rows when they are fetched."""
    made = creation.asarray(x, dtype=dtype, order="C", chunk_size=chunk_size)
    return shapes.reshape(made, (1,)) if not made.ndim else made


def asfortranarray(x: Any, dtype: Any = None, *, chunk_size: Any = None) -> Tensor:
    """Return an array whose values lie by columns when they are fetched."""
    return ascontiguousarray(x, dtype, chunk_size=chunk_size).ordered("F")


def copy(x: Any, order: str = "K") -> Tensor:
    """Return an array of its own: what is assigned to one does not change the other."""
    return creation.asarray(x, copy=True, order=order)


def copyto(dst: Tensor, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """Put the elements of `src`, broadcast, into `dst`: those for which `where` holds. TypeError: they do not fit."""
    given = _tensor(src)
    if not np.can_cast(given.dtype, dst.dtype, casting):
        raise TypeError(f"Cannot cast from {given.dtype!r} to {dst.dtype!r} according to the rule {casting!r}")
    values = shapes.broadcast_to(given.astype(dst.dtype), dst.shape)
    chosen = values if where is True else searching.where(shapes.broadcast_to(where, dst.shape), values, dst)
    dst._set(chosen._node)


# --------------------------------------------------------------------------------------------------------- shapes


def ndim(x: Any) -> int:
    """Return the number of axes."""
    return _tensor(x).ndim


def shape(x: Any) -> tuple[int, ...]:
    """Return the length of each axis."""
    return _tensor(x).shape


def insert(x: Any, obj: Any, values: Any, axis: int | None = None) -> Tensor:
    """Put values in front of the given places along an axis; without one, of the flat array."""
    given = numpy_names.ravel(x) if axis is None else _tensor(x)
    along = reductions.axes_of(axis or 0, given.ndim)[0]
    n = given.shape[along]
    values = np.asarray(values.fetch() if isinstance(values, Tensor) else values)
    at = _places(obj, n, n + 1)
    one = _is_whole(obj)
    if one and values.ndim and given.ndim > 1:
        values = np.moveaxis(values, 0, along) if values.ndim == given.ndim else np.expand_dims(values, along)
    rest = [size for a, size in enumerate(given.shape) if a != along]
    count = len(at) if not one else (values.shape[along] if values.ndim == given.ndim else 1)
    wanted = (*rest[:along], count, *rest[along:])
    block = shapes.broadcast_to(creation.asarray(values.astype(given.dtype)), wanted)
    if one:
        return _joined([_part(given, along, 0, int(at[0])), block, _part(given, along, int(at[0]), n)], along)
    parts, last = [], 0
    for number in np.argsort(at, kind="stable"):
        place = int(at[number])
        parts += [_part(given, along, last, place), _part(block, along, int(number), int(number) + 1)]
        last = place
    return _joined([*parts, _part(given, along, last, n)], along)


def delete(x: Any, obj: Any, axis: int | None = None) -> Tensor:
    """Leave out the given places along an axis; without one, of the flat array."""
    given = numpy_names.ravel(x) if axis is None else _tensor(x)
    along = reductions.axes_of(axis or 0, given.ndim)[0]
    n = given.shape[along]
    gone = np.unique(_places(obj, n, n)).tolist()
    if len(gone) < shaping.TOGETHER:
        spans = itertools.pairwise([-1, *gone, n])
        return _joined([_part(given, along, lo + 1, hi) for lo, hi in spans], along)
    kept = np.ones(n, bool)
    kept[gone] = False
    return searching.take(given, creation.asarray(np.flatnonzero(kept)), axis=along)


def _places(obj: Any, n: int, end: int) -> np.ndarray[Any, Any]:
    """Return places along an axis of length n, which are below `end`; IndexError where they are not."""
    if isinstance(obj, slice):
        return np.arange(n)[obj]
    found = np.atleast_1d(np.asarray(obj.fetch() if isinstance(obj, Tensor) else obj))
    if found.dtype.kind == "b":
        return np.flatnonzero(found)
    found = found.astype(np.int64) if found.size == 0 else found
    if np.any((found < -n) | (found >= end)):
        raise IndexError(f"index {found.tolist()} is out of bounds for an axis of length {n}")
    return np.where(found < 0, found + n, found)


def _part(x: Tensor, axis: int, lo: int, hi: int) -> Tensor:
    return x[(*[slice(None)] * axis, slice(lo, hi))]


def _joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    return shapes.concat([one for one in parts if one.shape[axis]] or parts[:1], axis=axis)


_SUMMARIES = {
    "maximum": statistics.max,
    "mean": statistics.mean,
    "median": numpy_names.median,
    "minimum": statistics.min,
}
"""Modes of `pad` that put a value of the whole line, or of what is near its end, at both ends."""


def pad(
    x: Any,
    pad_width: Any,
    mode: str = "constant",
    *,
    constant_values: Any = 0,
    reflect_type: str = "even",
    end_values: Any = 0,
    stat_length: Any = None,
) -> Tensor:
    """Return an array with more at both ends of its axes: `constant_values`, or elements of its own.

    The modes are those of `numpy.pad` that have names, without "empty". NotImplementedError: another one.
    """
    made = _tensor(x)
    repeated = mode in ("edge", "wrap", "reflect", "symmetric")
    if not (repeated or mode in ("constant", "linear_ramp", *_SUMMARIES)) or reflect_type != "even":
        raise NotImplementedError(
            f"mode is {mode!r}; give 'constant', 'edge', 'wrap', 'reflect', 'symmetric', 'linear_ramp', 'maximum', "
            "'mean', 'median' or 'minimum'"
        )
    if isinstance(pad_width, dict):
        given = {axis % made.ndim: width for axis, width in pad_width.items()}
        pad_width = [given.get(axis, (0, 0)) for axis in range(made.ndim)]
        pad_width = [width if isinstance(width, tuple | list) else (width, width) for width in pad_width]
    widths = np.broadcast_to(np.asarray(pad_width, INT), (made.ndim, 2)).tolist()
    if min((n for both in widths for n in both), default=0) < 0:
        raise ValueError("index can't contain negative values")
    values = np.broadcast_to(np.asarray(end_values if mode == "linear_ramp" else constant_values), (made.ndim, 2))
    near = np.broadcast_to(np.asarray(stat_length, object), (made.ndim, 2))
    for axis, (before, after) in enumerate(widths):
        if not before and not after:
            continue
        n = made.shape[axis]
        if repeated:
            at = np.pad(np.arange(n), (before, after), mode=mode)  # type: ignore[call-overload]
            made = searching.take(made, creation.asarray(at), axis=axis)
            continue
        ends = []
        for side, width in enumerate((before, after)):
            size = (*made.shape[:axis], width, *made.shape[axis + 1 :])
            if mode == "constant":
                ends.append(creation.full(size, values[axis, side].item(), made.dtype))
            elif mode == "linear_ramp":
                ends.append(_ramp(made, axis, side, width, values[axis, side]))
            else:
                length = n if near[axis, side] is None else min(int(near[axis, side]), n)
                part = _part(made, axis, 0, length) if side == 0 else _part(made, axis, n - length, n)
                value = _SUMMARIES[mode](part, axis=axis, keepdims=True)
                value = elementwise.round(value) if made.dtype.kind in "iu" else value
                ends.append(shapes.broadcast_to(value.astype(made.dtype), size))
        made = _joined([ends[0], made, ends[1]], axis)
    return made


def _ramp(x: Tensor, axis: int, side: int, width: int, end: Any) -> Tensor:
    """Return `width` values from `end` to the first (or last) of an axis, which is not among them."""
    n = x.shape[axis]
    edge = _part(x, axis, 0, 1) if side == 0 else _part(x, axis, n - 1, n)
    shape = tuple([width if a == axis else 1 for a in range(x.ndim)])
    at = creation.asarray(np.arange(width, dtype=float).reshape(shape))
    step = apply(np.true_divide, apply(np.subtract, edge, end), float(max(width, 1)))
    made = apply(np.add, apply(np.multiply, at, step), end)
    made = elementwise.floor(made) if x.dtype.kind in "iu" else made
    made = made.astype(x.dtype)
    return made if side == 0 else shapes.flip(made, axis=axis)


def block(arrays: Any) -> Tensor:
    """Put an array together from nested lists of blocks: the innermost along the last axis, and so on outwards."""
    depth = _depth(arrays)

    def most(one: Any) -> int:
        return max([most(inner) for inner in one]) if isinstance(one, list) else _tensor(one).ndim

    axes = max(depth, most(arrays))

    def build(one: Any, level: int) -> Tensor:
        if not isinstance(one, list):
            made = _tensor(one)
            return shapes.reshape(made, (1,) * (axes - made.ndim) + made.shape)
        return shapes.concat([build(inner, level + 1) for inner in one], axis=axes - depth + level)

    return build(arrays, 0)


def _depth(arrays: Any) -> int:
    if isinstance(arrays, tuple):
        raise TypeError("arrays is a tuple: only lists can be used to arrange blocks")
    if not isinstance(arrays, list):
        return 0
    if not arrays:
        raise ValueError("List at arrays cannot be empty")
    depths = {_depth(one) for one in arrays}
    if len(depths) > 1:
        raise ValueError("List depths are mismatched: every list holds lists of the same depth")
    return depths.pop() + 1


def ediff1d(x: Any, to_end: Any = None, to_begin: Any = None) -> Tensor:
    """Return the differences between neighbours in the flat array, between what is put at its ends."""
    flat = numpy_names.ravel(x)
    parts = [statistics.diff(flat)]
    if to_begin is not None:
        parts.insert(0, numpy_names.ravel(to_begin).astype(flat.dtype))
    if to_end is not None:
        parts.append(numpy_names.ravel(to_end).astype(flat.dtype))
    return shapes.concat(parts)


def trapz(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    """Integrate along an axis by the rule of trapezoids; `x` are the places of the values, else `dx` apart."""
    given = _tensor(y)
    along = reductions.axes_of(axis, given.ndim)[0]
    if x is None:
        widths: Any = dx
    else:
        at = _tensor(x)
        widths = statistics.diff(at) if at.ndim == 1 else statistics.diff(at, axis=axis)
        if at.ndim == 1:
            size = tuple([-1 if a == along else 1 for a in range(given.ndim)])
            widths = shapes.reshape(widths, size)
    n = given.shape[along]
    middle = (_part(given, along, 1, n) + _part(given, along, 0, n - 1)) * 0.5
    return statistics.sum(middle * widths, axis=along)


# ------------------------------------------------------------------------------------------- choosing and ordering


def extract(condition: Any, x: Any) -> Tensor:
    """Return the elements of the flat array for which a condition holds."""
    return numpy_names.compress(numpy_names.ravel(condition), numpy_names.ravel(x), axis=0)


@taking_out(2)
def choose(a: Any, choices: Sequence[Any], mode: str = "raise") -> Tensor:
    """Return for each element of `a` that of the array of this number. ValueError: there is no such array."""
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"mode is {mode!r}; give 'raise', 'wrap' or 'clip'")
    made = [_tensor(one) for one in ([choices[i] for i in range(len(choices))])]
    given = _tensor(a)
    shape = np.broadcast_shapes(given.shape, *[one.shape for one in made])
    dtype = np.result_type(*[one.dtype for one in made])
    at = shapes.broadcast_to(given, shape).node
    inputs = [shapes.broadcast_to(one.astype(dtype), shape).node for one in made]
    return Tensor(nodes.elementwise(_chosen, [at, *inputs], dtype, "choose", mode=mode))


def _chosen(a: Any, *choices: Any, mode: str) -> Any:
    return np.choose(a, choices, mode=mode)  # type: ignore[call-overload]


def unravel_index(indices: Any, shape: Sequence[int], order: str = "C") -> tuple[Tensor, ...]:
    """Return the coordinates that numbers in the flat array stand for. ValueError: a number is out of bounds."""
    given = _tensor(indices)
    if order not in ("C", "F"):
        raise ValueError("only 'C' or 'F' order is permitted")
    made = [
        Tensor(nodes.elementwise(_coordinate, [given.loose], INT, "unravel", shape=tuple(shape), order=order, at=at))
        for at in range(len(shape))
    ]
    return ExecutableTuple(made)


def _coordinate(x: Any, *, shape: tuple[int, ...], order: Any, at: int) -> Any:
    return np.asarray(np.unravel_index(x, shape, order)[at])


def fill_diagonal(a: Tensor, val: Any, wrap: bool = False) -> None:
    """Put a value, or the elements of an array one after the other, on the diagonal of an array, in place."""
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and len(set(a.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    places = np.zeros(a.shape, bool)
    np.fill_diagonal(places, True, wrap=wrap)
    rows = np.nonzero(places)
    values = np.asarray(val.fetch() if isinstance(val, Tensor) else val)
    a[tuple([creation.asarray(one) for one in rows])] = creation.asarray(
        np.resize(values, len(rows[0])).astype(a.dtype)
    )


def partition(x: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Tensor:
    """Return an array whose elements at places `kth` along an axis are those of the sorted one.

    What is not larger comes before them, what is not smaller behind. `order` are fields of a structured array, the
    first to compare first; `kind` has one value.
    """
    given, along, places = _split_at(x, kth, axis, kind)
    if not given.shape[along]:
        return Tensor(given.node)
    return Tensor(nodes.partition(given.node, along, places, order=fields_of(given, order)))


def argpartition(x: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Tensor:
    """Return the places of the elements in the order of `partition`."""
    given, along, places = _split_at(x, kth, axis, kind)
    if not given.shape[along]:
        return given.astype(INT)
    return Tensor(nodes.argpartition(given.node, along, places, order=fields_of(given, order)))


def _split_at(x: Any, kth: Any, axis: int | None, kind: str) -> tuple[Tensor, int, tuple[int, ...]]:
    if kind != "introselect":
        raise ValueError(f"{kind!r} is an unrecognized kind of select; give 'introselect'")
    given = numpy_names.ravel(x) if axis is None else _tensor(x)
    along = reductions.axes_of(-1 if axis is None else axis, given.ndim)[0]
    n = given.shape[along]
    numbers = np.atleast_1d(np.asarray(kth.fetch() if isinstance(kth, Tensor) else kth))
    if numbers.dtype.kind not in "iu":
        raise TypeError("Partition index must be integer")
    if n and np.any((numbers < -n) | (numbers >= n)):
        raise ValueError(f"kth(={kth}) out of bounds ({n})")
    return given, along, tuple(sorted({int(one) % max(n, 1) for one in numbers.tolist()}))


@taking_out(2)
def nanargmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the place of the largest element that is not NaN. ValueError, when computed: all are."""
    return _nan_place(statistics.argmax, -np.inf, x, axis, keepdims)


@taking_out(2)
def nanargmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the place of the smallest element that is not NaN. ValueError, when computed: all are."""
    return _nan_place(statistics.argmin, np.inf, x, axis, keepdims)


def _nan_place(place: Any, instead: float, x: Any, axis: int | None, keepdims: bool) -> Tensor:
    given = _tensor(x)
    if given.dtype.kind not in "fc":
        return place(given, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]
    nan = apply(np.isnan, given)
    found = place(searching.where(nan, instead, given), axis=axis, keepdims=keepdims)
    none = statistics.all(nan, axis=axis, keepdims=keepdims)
    return Tensor(nodes.elementwise(_some, [found.node, none.node], found.dtype, "nanarg"))


def _some(found: Any, none: Any) -> Any:
    if np.any(none):
        raise ValueError("All-NaN slice encountered")
    return found


# ----------------------------------------------------------------------------------------------------------- sets


def _unique_of(x: Any, *, axis: int, at: int) -> Any:
    return np.unique(x, True, True, True, axis=axis)[at]


def unique(
    x: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """Return the values of an array, ascending; with `axis`, the different slices along it. NaN is one value.

    If it is asked for: their first places, which of them each element is, and how often each is there. With `axis` the
    array is read as one chunk.
    """
    wanted = [True, return_index, return_inverse, return_counts]
    if axis is None and not any(wanted[1:]):
        return Tensor(nodes.unique_values(as_node(x), one_nan=True))
    if axis is None:
        made = [Tensor(one) for one in nodes.unique(as_node(x), one_nan=True, firsts=return_index)]
    else:
        made = _slices(x, axis)
    chosen = [one for one, want in zip(made, wanted, strict=True) if want]
    return chosen[0] if len(chosen) == 1 else ExecutableTuple(chosen)


def _slices(x: Any, axis: int) -> list[Tensor]:
    given = _tensor(x)
    along = reductions.axes_of(axis, given.ndim)[0]
    node = in_one(given.node)
    kwargs = {"axis": along}
    cut = Cut.unknown(1)
    grid = tuple([cut if a == along else one for a, one in enumerate(node.grid)])
    flat = (Cut.even(node.shape[along], max(node.shape[along], 1)),)
    kinds = [(grid, node.dtype), ((cut,), INT), (flat, INT), ((cut,), INT)]
    return [
        Tensor(Node(Kind.CALL, _unique_of, [Input(node)], cuts, dtype, kwargs={**kwargs, "at": at}, name="unique"))
        for at, (cuts, dtype) in enumerate(kinds)
    ]


def in1d(x1: Any, x2: Any, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Return for each element of the flat `x1` whether it is one of `x2`."""
    return searching.isin(numpy_names.ravel(x1), x2, invert=invert)


def union1d(x1: Any, x2: Any) -> Tensor:
    """Return the values that are in one of two arrays, ascending."""
    both: Tensor = unique(shapes.concat([numpy_names.ravel(x1), numpy_names.ravel(x2)]))
    return both


def setdiff1d(x1: Any, x2: Any, assume_unique: bool = False) -> Tensor:
    """Return the values of one array that are not in another one, ascending; in their order if they are unique."""
    values = numpy_names.ravel(x1) if assume_unique else unique(x1)
    return values[searching.isin(values, x2, invert=True)]


def histogram_bin_edges(
    x: Any, bins: Any = 10, range: tuple[float, float] | None = None, weights: Any = None
) -> Tensor:
    """Return the edges between which `histogram` counts; a rule by its name reads the array as a whole."""
    return _tensor(numpy_names.edges_of(numpy_names.ravel(x), bins, range))


# ---------------------------------------------------------------------------------------------------- index tricks


class _Grids:
    """Grids of coordinates by slices: `mgrid[0:3, 0:1:5j]`."""

    def __init__(self, sparse: bool) -> None:
        self._sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        several = isinstance(key, tuple)
        lines = [_line(one) for one in (key if several else (key,))]
        dtype = np.result_type(*[one.dtype for one in lines])
        lines = [one.astype(dtype) for one in lines]
        if not several:
            return lines[0]
        shaped = [
            shapes.reshape(one, tuple([-1 if a == axis else 1 for a in range(len(lines))]))
            for axis, one in enumerate(lines)
        ]
        if self._sparse:
            return tuple(shaped)
        sizes = tuple([one.shape[0] for one in lines])
        return shapes.stack([shapes.broadcast_to(one, sizes) for one in shaped], axis=0)


def _line(one: slice) -> Tensor:
    """Return the numbers that a slice stands for; an imaginary step is how many there are, both ends included."""
    start, step = 0 if one.start is None else one.start, 1 if one.step is None else one.step
    if isinstance(step, complex):
        return _tensor(creation.linspace(start, one.stop, int(abs(step))))
    return creation.arange(start, one.stop, step)


mgrid = _Grids(sparse=False)
ogrid = _Grids(sparse=True)


class _Joins:
    """Joins arrays, numbers and ranges by an index: `r_[1:4, 0, x]`, `c_[x, y]`."""

    def __init__(self, axis: int, ndmin: int, one_d: int) -> None:
        self._axis = axis
        self._ndmin = ndmin
        self._one_d = one_d

    def __getitem__(self, key: Any) -> Tensor:
        given = list(key) if isinstance(key, tuple) else [key]
        axis, ndmin, one_d = self._axis, self._ndmin, self._one_d
        if given and isinstance(given[0], str):
            told = [int(part) for part in given.pop(0).split(",")]
            axis, ndmin, one_d = (*told, *(axis, ndmin, one_d)[len(told) :])
        parts = []
        for one in given:
            made = _line(one) if isinstance(one, slice) else _tensor(one)
            if not made.ndim:
                made = shapes.reshape(made, (1,))
            missing = ndmin - made.ndim
            if missing > 0:
                front = missing if one_d < 0 else min(one_d, missing)
                made = shapes.reshape(made, (1,) * front + made.shape + (1,) * (missing - front))
            parts.append(made)
        return shapes.concat(parts, axis=axis)


r_ = _Joins(0, 1, -1)
c_ = _Joins(-1, 2, 0)
ndindex = np.ndindex
