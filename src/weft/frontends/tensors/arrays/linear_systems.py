"""Least squares, conditions, and equations of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from weft.frontends.tensors import blocked_factorizations, shaping, tsqr
from weft.frontends.tensors.arrays import products, searching, shapes, statistics
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.executables import together
from weft.frontends.tensors.arrays.linalg import _adjoint, _computed_in, _real, inv, matrix_norm, qr, solve, svdvals
from weft.frontends.tensors.arrays.products import matmul
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.blocked_products import stacks
from weft.frontends.tensors.blocks import in_one, pick, whole_along
from weft.frontends.tensors.chunks import Cut, one_chunk
from weft.frontends.tensors.nodes import NodeInput, call

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Chunk


@public(space="linalg")
@together
class LstsqResult(NamedTuple):
    """The solution, the sums of squared residuals (none if the rank is too low), the rank, and singular values."""

    x: Tensor
    residuals: Tensor
    rank: Tensor
    s: Tensor


def _lstsq(a: Chunk, b: Chunk, *, rcond: float) -> tuple[Any, ...]:
    return tuple(np.linalg.lstsq(a, b, rcond))


def _kept(residuals: Chunk, rank: Chunk, *, n: int) -> Chunk:
    """Return residuals if the rank is full."""
    return np.atleast_1d(residuals) if rank == n else np.empty(0, residuals.dtype)


@public("a", "b", space="linalg")
@needs_lengths
def lstsq(x1: ArrayLike, x2: ArrayLike, /, rcond: float | None = None) -> LstsqResult:
    """Return the x with the least squares of `x1 @ x - x2`.

    A tall matrix is factored block by block, and only its triangular factor is solved by one task; other matrices are
    one chunk. Singular values below `rcond` times the largest count as 0; by default the rounding error times the
    longer side, and of -1 the rounding error. LinAlgError: the shapes do not fit.
    """
    a, b = as_node(x1), as_node(x2)
    vector = len(b.grid) == 1
    if len(a.grid) != 2:
        raise LinAlgError(f"{len(a.grid)}-dimensional array given. Array must be two-dimensional")
    if len(b.grid) not in (1, 2):
        raise LinAlgError(f"{len(b.grid)}-dimensional array given. Array must be two-dimensional")
    m, n = a.shape
    if b.shape[0] != m:
        raise LinAlgError("Incompatible dimensions")
    dtype = np.result_type(_computed_in(a.dtype), _computed_in(b.dtype))
    eps = float(np.finfo(dtype).eps)
    limit = eps * max(m, n) if rcond is None else eps if rcond == -1 else float(rcond)
    left, right = Tensor(shaping.cast(a, dtype)), Tensor(shaping.cast(b, dtype))
    tall = whole_along(left.node, (1,))
    if tsqr.is_tall(tall):
        factors = qr(Tensor(tall))
        top, side = factors.R, matmul(_adjoint(factors.Q), right)
    else:
        top, side = left, right
    nodes = [in_one(one.node) for one in (top, side)]
    columns = () if vector else (b.shape[1],)
    unknown = (Cut.unknown(1),)
    grids = [one_chunk((n, *columns)), unknown, (), one_chunk((min(m, n),))]
    kinds = [dtype, _real(dtype), np.dtype(np.int32), _real(dtype)]
    made = call(_lstsq, nodes, grids[0], dtype, name="lstsq", rcond=limit)
    x, residuals, rank, s = [
        Tensor(pick(made, at, grid, kind, "lstsq")) for at, (grid, kind) in enumerate(zip(grids, kinds, strict=True))
    ]
    if tsqr.is_tall(tall):
        away = apply(np.absolute, apply(np.subtract, right, matmul(left, x)))
        sums = in_one(statistics.sum(apply(np.square, away), axis=0).node)
        inputs = [NodeInput(sums), NodeInput(rank.node)]
        residuals = Tensor(call(_kept, inputs, unknown, _real(dtype), name="residuals", n=n))
    return LstsqResult(x, residuals, rank, s)


def _cond(x: Chunk, *, p: Any) -> Chunk:
    return np.asarray(np.linalg.cond(x, p))


@public(space="linalg")
@needs_lengths
def cond(x: ArrayLike, /, p: Any = None) -> Tensor:
    """Return the condition numbers of matrices, by a norm of `matrix_norm`; infinite for singular ones.

    Of a large matrix the norms are those of the inverse, which is made by panels; a singular one is then an error.
    """
    node = as_node(x)
    if len(node.grid) < 2:
        raise LinAlgError(f"{len(node.grid)}-dimensional array given. Array must be at least two-dimensional")
    if 0 in node.shape[-2:]:
        raise LinAlgError("cond is not defined on empty arrays")
    if p in (None, 2, -2):
        values = svdvals(Tensor(node))
        ends = [values[..., 0], values[..., -1]]
        made = apply(np.divide, *(ends if p != -2 else ends[::-1]))
        lost = apply(np.logical_and, apply(np.isnan, made), apply(np.logical_not, _with_nan(Tensor(node))))
        found: Tensor = searching.where(lost, np.inf, made)
        return found
    if node.shape[-1] != node.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    if blocked_factorizations.is_large(node):
        given = Tensor(shaping.cast(node, _computed_in(node.dtype)))
        return apply(np.multiply, matrix_norm(given, ord=p), matrix_norm(inv(given), ord=p))
    kind = _real(_computed_in(node.dtype))
    matrix_norm(Tensor(node), ord=p)  # ValueError: there is no such norm
    return Tensor(stacks(_cond, [node], [2], [((), kind)], "cond", p=p)[0])


def _with_nan(x: Tensor) -> Tensor:
    return statistics.any(apply(np.isnan, x), axis=(-2, -1)) if x.dtype.kind in "fc" else as_tensor(False)


@public("a", space="linalg")
def tensorinv(x: ArrayLike, /, ind: int = 2) -> Tensor:
    """Return the inverse with respect to `tensordot` over the first `ind` axes."""
    given = as_tensor(x)
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    size = given.shape
    made = inv(shapes.reshape(given, (prod(size[ind:]), -1)))
    return shapes.reshape(made, (*size[ind:], *size[:ind]))


@public("a", "b", space="linalg")
def tensorsolve(x1: ArrayLike, x2: ArrayLike, /, axes: Sequence[int] | None = None) -> Tensor:
    """Return x of `tensordot(x1, x, x.ndim) = x2`; `axes` of `x1` are moved to its end first."""
    a, b = as_tensor(x1), as_tensor(x2)
    if axes is not None:
        order = [axis for axis in range(a.ndim) if axis not in axes]
        a = shapes.permute_dims(a, (*order, *axes))
    size = a.shape[-(a.ndim - b.ndim) :]
    if a.size != prod(size) ** 2:
        raise LinAlgError(
            "Input arrays must satisfy the requirement             prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim])"
        )
    made = solve(shapes.reshape(a, (-1, prod(size))), shapes.ravel(b))
    return shapes.reshape(made, size)


@public(space="linalg", out=1)
def multi_dot(arrays: Sequence[Any]) -> Tensor:
    """Return the product of several matrices in the order with the fewest multiplications; the ends may be vectors."""
    given = [as_tensor(one) for one in arrays]
    if len(given) < 2:
        raise ValueError("Expecting at least two arrays.")
    first, last = given[0].ndim == 1, given[-1].ndim == 1
    given[0] = shapes.atleast_2d(given[0])
    given[-1] = shapes.atleast_2d(given[-1]).T if last else given[-1]
    for one in given:
        if one.ndim != 2:
            raise LinAlgError(f"{one.ndim}-dimensional array given. Array must be two-dimensional")
    made = _chained(given)
    if first and last:
        return made[0, 0]
    return shapes.ravel(made) if first or last else made


def _chained(given: Sequence[Tensor]) -> Tensor:
    """Multiply matrices by dynamic programming over the place of the last product."""
    n = len(given)
    sizes = [one.shape[0] for one in given] + [given[-1].shape[1]]
    cost = {(i, i): 0 for i in range(n)}
    split: dict[tuple[int, int], int] = {}
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            found = {k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)}
            split[i, j] = min(found, key=found.__getitem__)
            cost[i, j] = found[split[i, j]]

    def product(i: int, j: int) -> Tensor:
        if i == j:
            return given[i]
        return products.dot(product(i, split[i, j]), product(split[i, j] + 1, j))

    return product(0, n - 1)
