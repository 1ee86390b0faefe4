"""Covariances and correlations between variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.arrays import creation, joining, shapes, statistics
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.diagonals import diagonal
from weft.frontends.tensors.arrays.dtypes import FLOAT
from weft.frontends.tensors.arrays.elementwise import clip, imag, real
from weft.frontends.tensors.arrays.products import matmul
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.arrays.shapes import atleast_2d

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, DTypeLike


@public()
def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, *, dtype: DTypeLike = None) -> Tensor:
    """Return the matrix of correlations between variables, which are rows (or columns)."""
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return apply(np.true_divide, c, c)
    scale = apply(np.sqrt, real(diagonal(c)))
    made = apply(np.true_divide, apply(np.true_divide, c, scale[:, None]), scale[None, :])
    if made.dtype.kind != "c":
        return clip(made, -1, 1)
    return apply(np.add, clip(real(made), -1, 1), apply(np.multiply, clip(imag(made), -1, 1), 1j)).astype(made.dtype)


@public("m")
def cov(
    x: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: float | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    *,
    dtype: DTypeLike = None,
) -> Tensor:
    """Return the matrix of covariances between variables, which are rows (or columns).

    `fweights` are the numbers of times that the observations count, `aweights` their weights. ValueError: an array has
    more than two axes, or weights are negative. TypeError: `fweights` are not whole numbers.
    """
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    given = [as_tensor(one) for one in (x, y) if one is not None]
    for name, one in zip(("m", "y"), given, strict=False):
        if one.ndim > 2:
            raise ValueError(f"{name} has more than 2 dimensions")
    rows = [atleast_2d(one) for one in given]
    if not rowvar:  # of one dimension are observations of one variable; so is a row `y`, as in NumPy
        rows = [one.T if (one.shape[0] != 1 if at else given[0].ndim == 2) else one for at, one in enumerate(rows)]
    if not rows[0].shape[0]:
        return creation.zeros((0, 0))
    made = rows[0] if len(rows) == 1 else joining.concat(rows, axis=0)
    made = made.astype(np.result_type(*[one.dtype for one in given], FLOAT) if dtype is None else dtype)
    less = (0 if bias else 1) if ddof is None else ddof
    weights = _weights(fweights, aweights, made.shape[1])
    if weights is None:
        middle = statistics.mean(made, axis=1, keepdims=True)
        count: Any = float(made.shape[1] - less)
    else:
        whole = weights.sum()
        middle = statistics.average(made, axis=1, weights=weights)[:, None]
        squares = weights if aweights is None else weights * np.asarray(aweights, FLOAT)
        count = float(whole - less * squares.sum() / whole) if less else float(whole)
    away = apply(np.subtract, made, middle)
    other = apply(np.conjugate, away if weights is None else apply(np.multiply, away, weights))
    result = apply(np.true_divide, matmul(away, other.T), max(count, 0.0))
    return shapes.squeeze(result, tuple([a for a in (0, 1) if result.shape[a] == 1]))


def _weights(fweights: Any, aweights: Any, n: int) -> Any:
    """Return the products of both weights of n observations, computed, since the number of observations is their sum;
    None without weights.
    """
    made = None
    for name, one in (("fweights", fweights), ("aweights", aweights)):
        if one is None:
            continue
        values = np.asarray(one, FLOAT)
        if name == "fweights" and not np.all(values == np.around(values)):
            raise TypeError("fweights must be integer")
        if values.ndim > 1:
            raise RuntimeError(f"cannot handle multidimensional {name}")
        if values.shape[0] != n:
            raise RuntimeError(f"incompatible numbers of samples and {name}")
        if np.any(values < 0):
            raise ValueError(f"{name} cannot be negative")
        made = values if made is None else made * values
    return made
