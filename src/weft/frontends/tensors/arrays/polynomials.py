"""Polynomials by their coefficients, from the highest power down.

Coefficients are few: functions of them alone are computed at once, by NumPy. Values, Vandermonde matrices and fits are
chunked along the points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.arrays import shapes, statistics
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.linear_systems import lstsq
from weft.frontends.tensors.arrays.products import matmul
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import call, computed

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Chunk


def _at_once(fn: Any, *args: Any) -> Any:
    made = fn(*computed(args))
    return ExecutableTuple([as_tensor(one) for one in made]) if isinstance(made, tuple) else as_tensor(made)


@public("seq_of_zeros")
def poly(x: ArrayLike, /) -> Any:
    """Return the coefficients of the polynomial with these roots, or the characteristic polynomial of a matrix."""
    return _at_once(np.poly, x)


@public("p")
def roots(x: ArrayLike, /) -> Any:
    """Return the roots of a polynomial."""
    return _at_once(np.roots, x)


@public()
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Any:
    """Return the sum of two polynomials."""
    return _at_once(np.polyadd, a1, a2)


@public()
def polysub(a1: ArrayLike, a2: ArrayLike) -> Any:
    """Return the difference of two polynomials."""
    return _at_once(np.polysub, a1, a2)


@public()
def polymul(a1: ArrayLike, a2: ArrayLike) -> Any:
    """Return the product of two polynomials."""
    return _at_once(np.polymul, a1, a2)


@public()
def polydiv(u: ArrayLike, v: ArrayLike) -> Any:
    """Return the quotient and the remainder of two polynomials."""
    return _at_once(np.polydiv, u, v)


@public("p")
def polyder(x: ArrayLike, /, m: int = 1) -> Any:
    """Return the m-th derivative of a polynomial."""
    return _at_once(np.polyder, x, m)


@public("p")
def polyint(x: ArrayLike, /, m: int = 1, k: Any = None) -> Any:
    """Return the m-th integral of a polynomial, with the constants `k`."""
    return _at_once(np.polyint, x, m, k)


@public()
@needs_lengths
def polyval(p: ArrayLike, x: ArrayLike) -> Tensor:
    """Return the values of a polynomial at points, by Horner's rule, chunk by chunk of the points."""
    numbers, at = np.asarray(computed(p)), as_node(x)
    dtype = np.polyval(np.ones_like(numbers), np.zeros(0, at.dtype)).dtype
    return Tensor(call(_valued, at, at.grid, dtype, name="polyval", numbers=tuple(numbers.tolist()), own=numbers.dtype))


def _valued(x: Chunk, *, numbers: tuple[Any, ...], own: Any) -> Chunk:
    return np.asarray(np.polyval(np.asarray(numbers, own), x))


def _vander(x: Chunk, *, n: int, increasing: bool) -> Chunk:
    return np.vander(x, n, increasing)


@public()
@needs_lengths
def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803 - as NumPy calls it
    """Return a matrix of the powers of points: one column for each power, the highest one first."""
    at = as_node(x)
    if len(at.grid) != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    n = at.size if N is None else N
    if n < 0:
        raise ValueError("negative dimensions are not allowed")
    dtype = np.promote_types(at.dtype, int)
    grid = (at.grid[0], Cut.whole(n))
    return Tensor(call(_vander, at, grid, dtype, name="vander", n=n, increasing=bool(increasing)))


@public()
def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: Any = None,
    cov: Any = False,
) -> Any:
    """Return the coefficients of the polynomial of a degree with the least squared errors at points.

    With `full` also residuals, rank, singular values and `rcond`; with `cov` the covariances of the coefficients.
    TypeError, ValueError: the arguments do not fit, as NumPy words it.
    """
    order = int(deg) + 1
    at, values = as_tensor(x), as_tensor(y)
    at = apply(np.add, at, 0.0)
    values = apply(np.add, values, 0.0)
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if at.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if not at.size:
        raise TypeError("expected non-empty vector for x")
    if values.ndim not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    if at.shape[0] != values.shape[0]:
        raise TypeError("expected x and y to have same length")
    rcond = at.shape[0] * np.finfo(at.dtype).eps if rcond is None else rcond
    left, right = vander(at, order), values
    if w is not None:
        weights = apply(np.add, as_tensor(w), 0.0)
        if weights.ndim != 1:
            raise TypeError("expected a 1-d array for weights")
        if weights.shape[0] != values.shape[0]:
            raise TypeError("expected w and y to have the same length")
        left = apply(np.multiply, left, weights[:, None])
        right = apply(np.multiply, right, weights[:, None] if right.ndim == 2 else weights)
    scale = apply(np.sqrt, statistics.sum(apply(np.multiply, left, left), axis=0))
    left = apply(np.divide, left, scale)
    solution, residuals, rank, singular = lstsq(left, right, rcond)
    made = apply(np.divide, solution.T, scale).T
    if full:
        return ExecutableTuple([made, residuals, rank, singular, as_tensor(rcond)])
    if not cov:
        return made
    from weft.frontends.tensors.arrays.linalg import inv

    base = apply(np.divide, inv(matmul(left.T, left)), apply(np.multiply, scale[:, None], scale[None, :]))
    factor: Any = 1.0
    if cov != "unscaled":
        if at.shape[0] <= order:
            raise ValueError("the number of data points must exceed order to scale the covariance matrix")
        factor = apply(np.divide, residuals, at.shape[0] - order)
    if values.ndim == 1:
        return ExecutableTuple([made, apply(np.multiply, base, factor)])
    return ExecutableTuple([made, apply(np.multiply, shapes.expand_dims(base, -1), factor)])
