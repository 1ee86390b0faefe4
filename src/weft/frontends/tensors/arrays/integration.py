"""Numerical integration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.frontends.tensors import reductions
from weft.frontends.tensors.arrays import cumulative, shapes, statistics
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.dtypes import FLOAT
from weft.frontends.tensors.arrays.insertion import part_along
from weft.frontends.tensors.arrays.registry import public

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike


@public(also="trapz")
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    """Integrate along an axis by the trapezoidal rule, over values at the coordinates `x` or `dx` apart.

    Integers and masks are added as float64.
    """
    given = as_tensor(y)
    if given.dtype.kind in "biu":  # the sum of two neighbours may not fit into their type
        given = given.astype(FLOAT)
    along = reductions.axis_of(axis, given.ndim)
    if x is None:
        widths: Any = dx
    else:
        at = as_tensor(x)
        widths = cumulative.diff(at) if at.ndim == 1 else cumulative.diff(at, axis=axis)
        if at.ndim == 1:
            size = tuple([-1 if a == along else 1 for a in range(given.ndim)])
            widths = shapes.reshape(widths, size)
    n = given.shape[along]
    middle = (part_along(given, along, 1, n) + part_along(given, along, 0, n - 1)) * 0.5
    return statistics.sum(middle * widths, axis=axis)  # the product may have more axes than `y`
