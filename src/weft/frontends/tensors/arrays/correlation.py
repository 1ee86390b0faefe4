"""Covariances and correlations between variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.frontends.tensors.arrays import joining, shapes, statistics
from weft.frontends.tensors.arrays.array import Tensor, apply
from weft.frontends.tensors.arrays.diagonals import diagonal
from weft.frontends.tensors.arrays.dtypes import FLOAT
from weft.frontends.tensors.arrays.products import matmul
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.arrays.shapes import atleast_2d

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike


@public()
def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True) -> Tensor:
    """Return the matrix of correlations between variables, which are rows (or columns)."""
    c = cov(x, y, rowvar)
    if not c.ndim:
        return apply(np.true_divide, c, c)
    scale = apply(np.sqrt, diagonal(c))
    return apply(np.true_divide, apply(np.true_divide, c, scale[:, None]), scale[None, :])


@public("m")
def cov(
    x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None
) -> Tensor:
    """Return the matrix of covariances between variables, which are rows (or columns)."""
    made = atleast_2d(x)
    if not rowvar and made.shape[0] != 1:
        made = made.T
    if y is not None:
        other = atleast_2d(y)
        made = joining.concat([made, other.T if not rowvar and other.shape[0] != 1 else other], axis=0)
    made = made.astype(np.result_type(made.dtype, FLOAT))
    less = (0 if bias else 1) if ddof is None else ddof
    away = apply(np.subtract, made, statistics.mean(made, axis=1, keepdims=True))
    product = matmul(away, apply(np.conjugate, away).T)
    result = apply(np.true_divide, product, float(max(made.shape[1] - less, 0)))
    return shapes.reshape(result, ()) if result.shape == (1, 1) else result
