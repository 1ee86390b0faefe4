"""Comparison of whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.frontends.tensors import blocks
from weft.frontends.tensors.arrays import statistics
from weft.frontends.tensors.arrays.array import Tensor, apply
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.registry import public

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike


@public()
@needs_lengths
def isclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Return whether elements are nearly equal: |a - b| <= atol + rtol * |b|."""
    nodes = [as_node(a), as_node(b)]
    kwargs = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    return Tensor(blocks.elementwise(np.isclose, nodes, np.dtype(bool), "isclose", **kwargs))


@public()
def allclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Return whether two arrays are as good as equal everywhere."""
    return statistics.all(isclose(a, b, rtol, atol, equal_nan))


@public("a1", "a2")
def array_equal(a: ArrayLike, b: ArrayLike) -> Tensor:
    """Return whether two arrays have the same shape and elements."""
    x, y = Tensor(as_node(a)), Tensor(as_node(b))
    if x.shape != y.shape:
        return Tensor(as_node(np.asarray(False)))
    return statistics.all(apply(np.equal, x, y))
