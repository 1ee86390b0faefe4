"""Arrays made by indexing: grids of coordinates, and joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.arrays import creation, joining, searching, selection, shapes, sorting
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.dtypes import INT
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.registry import expose, public
from weft.frontends.tensors.blocks import elementwise
from weft.frontends.tensors.reductions import axis_of

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk


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
        return joining.stack([shapes.spread(one, sizes) for one in shaped], axis=0)


def _line(one: slice) -> Tensor:
    """Return the numbers of a slice; an imaginary step is their count, with both ends included."""
    start, step = 0 if one.start is None else one.start, 1 if one.step is None else one.step
    if isinstance(step, complex):
        return as_tensor(creation.linspace(start, one.stop, int(abs(step))))
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
            numbers = [int(part) for part in given.pop(0).split(",")]
            axis, ndmin, one_d = (*numbers, *(axis, ndmin, one_d)[len(numbers) :])
        parts = []
        for one in given:
            made = _line(one) if isinstance(one, slice) else as_tensor(one)
            if not made.ndim:
                made = shapes.reshape(made, (1,))
            missing = ndmin - made.ndim
            if missing > 0:
                front = missing if one_d < 0 else min(one_d, missing)
                made = shapes.reshape(made, (1,) * front + made.shape + (1,) * (missing - front))
            parts.append(made)
        return joining.concat(parts, axis=axis)


r_ = _Joins(0, 1, -1)

c_ = _Joins(-1, 2, 0)

ndindex = np.ndindex
expose(__name__, "c_ mgrid ndindex ogrid r_")
expose(__name__, "c_ mgrid ndindex ogrid r_", space="lib.index_tricks")


@public()
def ix_(*args: Any) -> Any:
    """Return index arrays that select all combinations of positions (or of True elements) of vectors."""
    made = []
    for at, one in enumerate(args):
        given = as_tensor(one)
        if given.ndim != 1:
            raise ValueError("Cross index must be 1 dimensional")
        if not isinstance(one, Tensor | np.ndarray) and not given.size:
            given = given.astype(np.intp)
        if given.dtype.kind == "b":
            given = searching.flatnonzero(given)
        made.append(shapes.reshape(given, tuple([-1 if a == at else 1 for a in range(len(args))])))
    return ExecutableTuple(made)


@public()
def diag_indices(n: int, ndim: int = 2) -> Any:
    """Return the index of the main diagonal of an array of n elements along each axis."""
    return ExecutableTuple([creation.arange(n)] * ndim)


@public()
def diag_indices_from(arr: Any) -> Any:
    """Return the index of the main diagonal of an array. ValueError: its axes differ, or are fewer than two."""
    given = as_tensor(arr)
    if given.ndim < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(given.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    return diag_indices(given.shape[0], given.ndim)


@public()
def tril_indices(n: int, k: int = 0, m: int | None = None) -> Any:
    """Return the index of the lower triangle of a matrix, up to the k-th diagonal."""
    return searching.nonzero(creation.tri(n, m, k, bool))


@public()
def triu_indices(n: int, k: int = 0, m: int | None = None) -> Any:
    """Return the index of the upper triangle of a matrix, from the k-th diagonal on."""
    return searching.nonzero(apply(np.logical_not, creation.tri(n, m, k - 1, bool)))


def _matrix(arr: Any) -> Tensor:
    given = as_tensor(arr)
    if given.ndim != 2:
        raise ValueError("input array must be 2-d")
    return given


@public()
def tril_indices_from(arr: Any, k: int = 0) -> Any:
    """Return the index of the lower triangle of a matrix."""
    given = _matrix(arr)
    return tril_indices(given.shape[0], k, given.shape[1])


@public()
def triu_indices_from(arr: Any, k: int = 0) -> Any:
    """Return the index of the upper triangle of a matrix."""
    given = _matrix(arr)
    return triu_indices(given.shape[0], k, given.shape[1])


@public()
def mask_indices(n: int, mask_func: Any, k: Any = 0) -> Any:
    """Return the index of the elements that a function such as `triu` keeps of an n by n matrix."""
    return searching.nonzero(apply(np.not_equal, mask_func(creation.ones((n, n), int), k), 0))


@public("multi_index")
@needs_lengths
def ravel_multi_index(multi_index: Any, /, dims: Any, mode: Any = "raise", order: str = "C") -> Tensor:
    """Return the positions in the flat array of coordinates. ValueError, when computed: one is out of bounds."""
    sizes = tuple(dims) if isinstance(dims, tuple | list) else (dims,)
    given = [as_tensor(one) for one in multi_index]
    if len(given) != len(sizes):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(sizes)}")
    for one in given:
        if one.dtype.kind not in "iub":
            raise TypeError("only int indices permitted")
    how = tuple(mode) if isinstance(mode, tuple | list) else mode
    return Tensor(elementwise(_flat_places, [one.node for one in given], INT, dims=sizes, mode=how, order=order))


def _flat_places(*at: Chunk, dims: tuple[int, ...], mode: Any, order: Any) -> Chunk:
    return np.asarray(np.ravel_multi_index(at, dims, mode, order))


@public()
@needs_lengths
def lexsort(keys: Any, axis: int = -1) -> Tensor:
    """Return the order of elements along an axis by several keys, of which the last one counts first.

    Long keys of one axis are sorted and exchanged chunk by chunk; with more axes, the axis is read as one chunk.
    """
    given = [as_tensor(one) for one in keys]
    if not given:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    if len({one.shape for one in given}) > 1:
        raise ValueError("all keys need to be the same shape")
    if not given[0].ndim:
        axis_of(axis, 1)
        return creation.zeros((), INT)
    chosen = selection.take if given[0].ndim == 1 else selection.take_along_axis
    made = sorting.argsort(given[0], axis=axis)
    for key in given[1:]:
        moved = chosen(key, made, axis=axis)
        made = chosen(made, sorting.argsort(moved, axis=axis), axis=axis)
    return made
