"""Gradients: differences of neighbours over the distances between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import reductions
from weft.frontends.tensors.arrays import joining
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.dtypes import FLOAT
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.insertion import part_along
from weft.frontends.tensors.arrays.registry import public

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Axis, NumpyArray


@public("f")
@needs_lengths
def gradient(x: ArrayLike, /, *varargs: Any, axis: Axis = None, edge_order: int = 1) -> Any:
    """Return the gradient along each axis, in second order inside and in `edge_order`, 1 or 2, at the ends.

    `varargs` is the distance of neighbours, a distance for each axis, or the coordinates along each axis. One axis
    gives an array, several give a tuple. Dates have durations as gradients. ValueError: an axis has too few elements.
    TypeError: `varargs` do not fit.
    """
    given = as_tensor(x)
    axes = range(given.ndim) if axis is None else [reductions.axis_of(a, given.ndim) for a in _listed(axis)]
    if len(set(axes)) < len(axes):
        raise ValueError("repeated axis")
    if given.dtype.kind == "M":  # the same numbers as durations
        unit, count = np.datetime_data(given.dtype)
        given = given.astype(np.int64).astype(f"m8[{count}{unit}]")
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    if varargs and len(varargs) not in (1, len(axes)):
        raise TypeError("invalid number of arguments")
    if given.dtype.kind in "iu":
        given = given.astype(FLOAT)
    steps = list(varargs or [1.0])
    if len(steps) != len(axes):
        if np.ndim(steps[0]):
            raise TypeError("invalid number of arguments")
        steps = steps[:1] * len(axes)
    pairs = zip(axes, steps, strict=True)
    made = [_along(given, at, _distances(step, given.shape[at]), edge_order) for at, step in pairs]
    return made[0] if len(made) == 1 else ExecutableTuple(made)


def _listed(axis: Any) -> Sequence[int]:
    return axis if isinstance(axis, tuple | list) else (axis,)


def _distances(step: Any, n: int) -> NumpyArray:
    """Return the distances between n neighbours; one number, if all are equal."""
    found = np.asarray(step)
    if not found.ndim:
        return found
    if found.ndim != 1:
        raise ValueError("distances must be either scalars or 1d")
    if len(found) != n:
        raise ValueError("when 1d, distances must match the length of the corresponding dimension")
    found = np.diff(found.astype(FLOAT) if found.dtype.kind in "iu" else found)
    return found[0] if len(found) and np.all(found == found[0]) else found


def _along(x: Tensor, axis: int, step: NumpyArray, edge_order: int) -> Tensor:
    n = x.shape[axis]
    if n < edge_order + 1:
        raise ValueError(f"a gradient needs at least edge_order + 1 = {edge_order + 1} elements; axis {axis} has {n}")
    h = np.broadcast_to(step, n - 1)

    def at(lo: int, hi: int) -> Tensor:
        return part_along(x, axis, lo, hi)

    def weights(values: Any) -> Any:
        return np.asarray(values).reshape([-1 if a == axis else 1 for a in range(x.ndim)])

    left, right = h[:-1], h[1:]
    if not step.ndim:
        inner = (at(2, n) - at(0, n - 2)) / (2.0 * step)
    else:
        inner = (
            weights(-right / (left * (left + right))) * at(0, n - 2)
            + weights((right - left) / (left * right)) * at(1, n - 1)
            + weights(left / (right * (left + right))) * at(2, n)
        )
    ends = [(at(1, 2) - at(0, 1)) / h[0], (at(n - 1, n) - at(n - 2, n - 1)) / h[-1]]
    if edge_order == 2:
        a, b = h[0], h[1]
        ends[0] = at(0, 1) * (-(2.0 * a + b) / (a * (a + b))) + at(1, 2) * ((a + b) / (a * b))
        ends[0] = ends[0] + at(2, 3) * (-a / (b * (a + b)))
        a, b = h[-2], h[-1]
        ends[1] = at(n - 3, n - 2) * (b / (a * (a + b))) + at(n - 2, n - 1) * (-(b + a) / (a * b))
        ends[1] = ends[1] + at(n - 1, n) * ((2.0 * b + a) / (b * (a + b)))
    return joining.concat([ends[0], inner, ends[1]], axis=axis).astype(x.dtype)
