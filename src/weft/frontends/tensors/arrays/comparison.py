"""Comparison of whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import blocks
from weft.frontends.tensors.arrays import statistics
from weft.frontends.tensors.arrays.array import Tensor, apply
from weft.frontends.tensors.arrays.conversion import Scalar, as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.registry import public

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike


@public()
@needs_lengths
def isclose(a: ArrayLike, b: ArrayLike, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Tensor:
    """Return whether elements are nearly equal: |a - b| <= atol + rtol * |b|."""
    limits = [one if isinstance(one, Scalar) else as_node(one) for one in (rtol, atol)]
    operands = [as_node(a), as_node(b), *limits]
    return Tensor(blocks.elementwise(np.isclose, operands, np.dtype(bool), "isclose", equal_nan=equal_nan))


@public()
def allclose(a: ArrayLike, b: ArrayLike, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Tensor:
    """Return whether all elements of two arrays are nearly equal."""
    return statistics.all(isclose(a, b, rtol, atol, equal_nan))


@public("a1", "a2")
def array_equal(a: ArrayLike, b: ArrayLike, equal_nan: bool = False) -> Tensor:
    """Return whether two arrays have the same shape and elements; with `equal_nan`, NaN equals NaN."""
    x, y = Tensor(as_node(a)), Tensor(as_node(b))
    if x.shape != y.shape:
        return Tensor(as_node(np.asarray(False)))
    same: Any = x == y
    if equal_nan and all(one.dtype.kind in "fcmM" for one in (x, y)):
        same = apply(np.logical_or, same, apply(np.logical_and, apply(np.isnan, x), apply(np.isnan, y)))
    return statistics.all(same)
