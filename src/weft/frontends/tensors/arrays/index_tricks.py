"""Arrays made by indexing: grids of coordinates, and joins."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.frontends.tensors.arrays import creation, joining, shapes
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.registry import expose


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
        return joining.stack([shapes.broadcast_to(one, sizes) for one in shaped], axis=0)


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
