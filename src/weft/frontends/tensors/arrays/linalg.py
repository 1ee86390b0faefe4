"""Linear algebra, as the array standard has it.

Products are made chunk by chunk, and so are norms, traces and diagonals. Factorisations take each matrix of a stack as
one chunk, and the stack chunk by chunk; a single large matrix is factored, inverted and solved by panels of columns.
What is wrong with shapes and types is said when a function is called; what only the values can tell (a matrix that is
singular) when they are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from weft.frontends.tensors import blocked_factorizations, diagonals, indexing, reductions, shaping, sources, tsqr
from weft.frontends.tensors.arrays import arguments
from weft.frontends.tensors.arrays.array import Tensor, apply, as_node, matmul, taking_out
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.executables import together
from weft.frontends.tensors.arrays.extras import needed
from weft.frontends.tensors.arrays.searching import take_along_axis
from weft.frontends.tensors.arrays.shapes import broadcast_to, concat, permute_dims, reshape
from weft.frontends.tensors.arrays.statistics import argmax
from weft.frontends.tensors.arrays.statistics import max as largest
from weft.frontends.tensors.arrays.statistics import min as smallest
from weft.frontends.tensors.arrays.statistics import sum as total
from weft.frontends.tensors.blocked_products import stacks
from weft.frontends.tensors.blocks import whole_along
from weft.frontends.tensors.reductions import axes_of
from weft.frontends.tensors.searching import elementwise, pick

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import Node

__all__ = [
    "EigResult", "EighResult", "LinAlgError", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "cross", "det",
    "diagonal", "dot", "eig", "eigh", "eigvals", "eigvalsh", "inner", "innerproduct", "inv", "lu", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "norm", "outer", "pinv", "qr",
    "randomized_svd", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensordot", "trace", "vdot",
    "vecdot", "vector_norm",
]  # fmt: skip


@together
class EighResult(NamedTuple):
    """Eigenvalues, ascending, and a unitary matrix whose columns are the eigenvectors."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@together
class EigResult(NamedTuple):
    """Eigenvalues, in no order, and a matrix whose columns are the eigenvectors."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@together
class QRResult(NamedTuple):
    """A matrix with orthonormal columns, and an upper triangular one."""

    Q: Tensor
    R: Tensor


@together
class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


@together
class SVDResult(NamedTuple):
    """Left singular vectors, singular values, descending, and right singular vectors, conjugated and transposed."""

    U: Tensor
    S: Tensor
    Vh: Tensor


# ------------------------------------------------------------------------------------------------ what goes in


def _matrices(x: Any, *, square: bool = False) -> tuple[Node, np.dtype[Any]]:
    """Return a stack of matrices, and the type that it is computed in; LinAlgError, TypeError as NumPy words them."""
    node = as_node(x)
    if len(node.grid) < 2:
        raise LinAlgError(f"{len(node.grid)}-dimensional array given. Array must be at least two-dimensional")
    if square and node.shape[-1] != node.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return node, _computed_in(node.dtype)


def _computed_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind in "biu":
        return np.dtype(np.float64)
    if dtype.kind not in "fc" or dtype.itemsize < 4 or dtype.itemsize > 8 * (1 + (dtype.kind == "c")):
        raise TypeError(f"array type {dtype} is unsupported in linalg")
    return dtype


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.empty(0, dtype).real.dtype


def _complex(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.result_type(dtype, np.complex64)


def _adjoint(x: Tensor) -> Tensor:
    return apply(np.conjugate, x).mT if x.dtype.kind == "c" else x.mT


def _factored(
    fn: Callable[..., Any], node: Node, out: Sequence[tuple[Sequence[int], np.dtype[Any]]], name: str, **kwargs: Any
) -> tuple[Tensor, ...]:
    return tuple([Tensor(one) for one in stacks(fn, [node], [2], out, name, **kwargs)])


# ------------------------------------------------------------------------------------------------------- kernels


def _cholesky(x: Any, *, upper: bool) -> Any:
    return np.linalg.cholesky(x, upper=upper)


def _tuple_of(x: Any, *, of: Callable[..., Any]) -> tuple[Any, ...]:
    return tuple(of(x))


def _eig(x: Any, *, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    return tuple([one.astype(dtype, copy=False) for one in np.linalg.eig(x)])


def _eigvals(x: Any, *, dtype: np.dtype[Any]) -> Any:
    return np.linalg.eigvals(x).astype(dtype, copy=False)


def _qr(x: Any, *, mode: Any) -> tuple[Any, ...]:
    return tuple(np.linalg.qr(x, mode=mode))


def _svd(x: Any, *, full_matrices: bool) -> tuple[Any, ...]:
    return tuple(np.linalg.svd(x, full_matrices=full_matrices))


def _solve(a: Any, b: Any) -> Any:
    return np.linalg.solve(a, b)


def _pinv(x: Any, rtol: Any = None) -> Any:
    return np.linalg.pinv(x, rtol=rtol)


def _rank(x: Any, rtol: Any = None) -> Any:
    return np.asarray(np.linalg.matrix_rank(x, rtol=rtol), np.int64)


def _power(x: Any, *, n: int) -> Any:
    return np.linalg.matrix_power(x, n)


def _matrix_norm(x: Any, *, ord: Any) -> Any:
    return np.linalg.matrix_norm(x, ord=ord, keepdims=True)


def _cross(a: Any, b: Any, *, axis: int) -> Any:
    return np.cross(a, b, axis=axis)


# ------------------------------------------------------------------------------------------------ factorisations


@needs_lengths
def cholesky(x: Any, /, lower: bool | None = None, *, upper: bool = False) -> Tensor:
    """Return the lower (or upper) triangular factor of positive definite matrices; `lower=False` is `upper=True`."""
    upper = upper if lower is None else not lower
    node, dtype = _matrices(x, square=True)
    if blocked_factorizations.is_large(node):
        given = Tensor(shaping.cast(node, dtype))
        made = Tensor(blocked_factorizations.cholesky((_adjoint(given) if upper else given)._node))
        return _adjoint(made) if upper else made
    (made,) = _factored(_cholesky, node, [(node.shape[-2:], dtype)], "cholesky", upper=upper)
    return made


@needs_lengths
def det(x: Any, /) -> Tensor:
    """Return the determinants of square matrices."""
    node, dtype = _matrices(x, square=True)
    if blocked_factorizations.is_large(node):
        return Tensor(blocked_factorizations.determinant(shaping.cast(node, dtype), logarithm=False))
    (made,) = _factored(np.linalg.det, node, [((), dtype)], "det")
    return made


@needs_lengths
def slogdet(x: Any, /) -> SlogdetResult:
    """Return the signs of the determinants of square matrices, and the logarithms of their absolute values."""
    node, dtype = _matrices(x, square=True)
    out = [((), dtype), ((), _real(dtype))]
    if blocked_factorizations.is_large(node):
        both = blocked_factorizations.determinant(shaping.cast(node, dtype), logarithm=True)
        return SlogdetResult(*[Tensor(pick(both, at, (), kind, "slogdet")) for at, (_, kind) in enumerate(out)])
    return SlogdetResult(*_factored(_tuple_of, node, out, "slogdet", of=np.linalg.slogdet))


@needs_lengths
def eigh(x: Any, /) -> EighResult:
    """Return eigenvalues and eigenvectors of symmetric (or Hermitian) matrices."""
    node, dtype = _matrices(x, square=True)
    out = [(node.shape[-1:], _real(dtype)), (node.shape[-2:], dtype)]
    return EighResult(*_factored(_tuple_of, node, out, "eigh", of=np.linalg.eigh))


@needs_lengths
def eigvalsh(x: Any, /) -> Tensor:
    """Return the eigenvalues of symmetric (or Hermitian) matrices, ascending."""
    node, dtype = _matrices(x, square=True)
    (made,) = _factored(np.linalg.eigvalsh, node, [(node.shape[-1:], _real(dtype))], "eigvalsh")
    return made


@needs_lengths
def eig(x: Any, /) -> EigResult:
    """Return eigenvalues and eigenvectors of square matrices, as complex numbers."""
    node, own = _matrices(x, square=True)
    dtype = _complex(own)
    out = [(node.shape[-1:], dtype), (node.shape[-2:], dtype)]
    return EigResult(*_factored(_eig, node, out, "eig", dtype=dtype))


@needs_lengths
def eigvals(x: Any, /) -> Tensor:
    """Return the eigenvalues of square matrices, as complex numbers."""
    node, own = _matrices(x, square=True)
    dtype = _complex(own)
    (made,) = _factored(_eigvals, node, [(node.shape[-1:], dtype)], "eigvals", dtype=dtype)
    return made


@needs_lengths
def inv(x: Any, /) -> Tensor:
    """Return the inverses of square matrices; LinAlgError, when it is computed, for a singular one."""
    node, dtype = _matrices(x, square=True)
    if blocked_factorizations.is_large(node):
        right = sources.eye(node.grid, 0, dtype)
        return Tensor(blocked_factorizations.solve(shaping.cast(node, dtype), right))
    (made,) = _factored(np.linalg.inv, node, [(node.shape[-2:], dtype)], "inv")
    return made


@needs_lengths
def qr(x: Any, /, mode: str = "reduced") -> QRResult:
    """Return orthonormal and upper triangular factors; `mode` "complete" makes the first one square."""
    if mode not in ("reduced", "complete"):
        raise ValueError(f"mode is {mode!r}; give 'reduced' or 'complete'")
    node, dtype = _matrices(x)
    m, n = node.shape[-2:]
    k = m if mode == "complete" else min(m, n)
    if mode == "reduced":
        rows = whole_along(node, (1,)) if len(node.grid) == 2 else node
        if tsqr.is_tall(rows):
            q, r = tsqr.factored(shaping.cast(rows, dtype), (dtype, dtype), singular=False)
            return QRResult(Tensor(q), Tensor(r))
        if _lies(node):  # the first columns have all of the rank there is; the others are turned by them
            given = Tensor(shaping.cast(node, dtype))
            first = qr(given[:, :m])
            rest = matmul(_adjoint(first.Q), given[:, m:])
            return QRResult(first.Q, concat([first.R, rest], axis=1))
    return QRResult(*_factored(_qr, node, [((m, k), dtype), ((k, n), dtype)], "qr", mode=mode))


def _lies(node: Node) -> bool:
    """Whether a matrix is a tall one transposed: in several blocks of columns, which are no higher than wide."""
    return len(node.grid) == 2 and tsqr.is_tall(shaping.permute(whole_along(node, (0,)), (1, 0)))


@needs_lengths
def svd(x: Any, /, full_matrices: bool = True, *, method: str | None = None) -> SVDResult:
    """Return the singular value decomposition of matrices; Mars's `method="tsqr"` is `full_matrices=False`."""
    if method not in (None, "tsqr"):
        raise NotImplementedError(f"method is {method!r}; give 'tsqr', or none")
    full_matrices = full_matrices and method is None
    node, dtype = _matrices(x)
    m, n = node.shape[-2:]
    k = min(m, n)
    if not full_matrices:
        rows = whole_along(node, (1,)) if len(node.grid) == 2 else node
        if tsqr.is_tall(rows):
            parts = tsqr.factored(shaping.cast(rows, dtype), (dtype, _real(dtype), dtype), singular=True)
            return SVDResult(*[Tensor(part) for part in parts])
        if _lies(node):
            u, s, vh = svd(_adjoint(Tensor(node)), full_matrices=False)
            return SVDResult(_adjoint(vh), s, _adjoint(u))
    out = [
        ((m, m if full_matrices else k), dtype),
        ((k,), _real(dtype)),
        ((n if full_matrices else k, n), dtype),
    ]
    return SVDResult(*_factored(_svd, node, out, "svd", full_matrices=full_matrices))


@needs_lengths
def svdvals(x: Any, /) -> Tensor:
    """Return the singular values of matrices, descending."""
    node, dtype = _matrices(x)
    if len(node.grid) == 2 and (tsqr.is_tall(whole_along(node, (1,))) or _lies(node)):
        return svd(Tensor(node), full_matrices=False).S
    (made,) = _factored(np.linalg.svdvals, node, [((min(node.shape[-2:]),), _real(dtype))], "svdvals")
    return made


@needs_lengths
def solve(x1: Any, x2: Any, /) -> Tensor:
    """Return x of `x1 @ x = x2` for square matrices `x1`; `x2` is one vector or a stack of matrices."""
    left, own = _matrices(x1, square=True)
    right = as_node(x2)
    dtype = np.result_type(own, _computed_in(right.dtype))
    n = left.shape[-1]
    vector = len(right.grid) == 1
    if not right.grid or right.shape[-1 if vector else -2] != n:
        raise ValueError(f"solve: x2 has shape {right.shape}, but the matrices of x1 have {n} rows")
    np.broadcast_shapes(left.shape[:-2], () if vector else right.shape[:-2])
    if blocked_factorizations.is_large(left) and len(right.grid) <= 2:
        columns = indexing.expand(right, [1]) if vector else right
        answer = blocked_factorizations.solve(shaping.cast(left, dtype), shaping.cast(columns, dtype))
        return Tensor(shaping.squeeze(answer, (1,)) if vector else answer)
    size = (n,) if vector else (n, right.shape[-1])
    (made,) = stacks(_solve, [left, right], [2, 1 if vector else 2], [(size, dtype)], "solve")
    return Tensor(made)


def _with_tolerance(
    fn: Callable[..., Any], node: Node, rtol: Any, size: Sequence[int], dtype: np.dtype[Any], name: str
) -> Tensor:
    nodes, core = [node], [2]
    if rtol is not None:
        limit = as_node(rtol)
        np.broadcast_shapes(limit.shape, node.shape[:-2])
        nodes.append(broadcast_to(Tensor(limit), node.shape[:-2]).node)
        core.append(0)
    (made,) = stacks(fn, nodes, core, [(size, dtype)], name)
    return Tensor(made)


@needs_lengths
def pinv(x: Any, /, rtol: Any = None) -> Tensor:
    """Return the pseudo-inverses; singular values below `rtol` times the largest count as 0."""
    node, dtype = _matrices(x)
    return _with_tolerance(_pinv, shaping.cast(node, dtype), rtol, node.shape[-2:][::-1], dtype, "pinv")


@needs_lengths
def matrix_rank(x: Any, /, rtol: Any = None) -> Tensor:
    """Return how many singular values are above `rtol` times the largest."""
    node, _ = _matrices(x)
    return _with_tolerance(_rank, node, rtol, (), np.dtype(np.int64), "matrix_rank")


@needs_lengths
def matrix_power(x: Any, n: int, /) -> Tensor:
    """Return the n-th power of square matrices; of their inverses where n is negative."""
    node, dtype = _matrices(x, square=True)
    made = Tensor(node)
    if node.grid[-1].n == node.grid[-2].n == 1 or n == 0:
        kind = node.dtype if n >= 0 else dtype
        (made,) = _factored(_power, node, [(node.shape[-2:], kind)], "matrix_power", n=int(n))
        return made
    base, result = inv(made) if n < 0 else made, None
    left = -n if n < 0 else n
    while left:
        if left & 1:
            result = base if result is None else matmul(result, base)
        left >>= 1
        if left:
            base = matmul(base, base)
    assert result is not None
    return result


# ------------------------------------------------------------------------------------------------------ products


def matrix_transpose(x: Any, /) -> Tensor:
    """Return the transposes of matrices; ValueError for fewer than two axes."""
    return Tensor(as_node(x)).mT


@needs_lengths
def outer(x1: Any, x2: Any, /) -> Tensor:
    """Return the products of all elements of one vector with all of another."""
    left, right = as_node(x1), as_node(x2)
    if len(left.grid) != 1 or len(right.grid) != 1:
        raise ValueError(f"outer takes arrays of one axis, not of {len(left.grid)} and {len(right.grid)}")
    return apply(np.multiply, Tensor(indexing.expand(left, [1])), Tensor(right))


def _paired(x1: Any, x2: Any, axis: int, name: str) -> tuple[Node, Node, int]:
    """Return two arrays, and an axis, counted from the end, along which both are equally long."""
    left, right = as_node(x1), as_node(x2)
    from_end = {axes_of(axis, len(node.grid))[0] - len(node.grid) for node in (left, right)}
    if len(from_end) > 1:
        raise ValueError(f"axis {axis} of {name} is not the same of both arrays; count it from the end")
    (at,) = from_end
    if left.shape[at] != right.shape[at]:
        raise ValueError(
            f"{name}: axis {axis} has {left.shape[at]} elements in one array, {right.shape[at]} in the other"
        )
    np.broadcast_shapes(left.shape, right.shape)
    return left, right, at


@needs_lengths
def vecdot(x1: Any, x2: Any, /, axis: int = -1) -> Tensor:
    """Return the products of vectors that lie along an axis, the first one conjugated."""
    left, right, at = _paired(x1, x2, axis, "vecdot")
    first = apply(np.conjugate, Tensor(left)) if left.dtype.kind == "c" else Tensor(left)
    product = apply(np.multiply, first, Tensor(right))
    return total(product, axis=at, dtype=product.dtype)


@needs_lengths
def cross(x1: Any, x2: Any, /, axis: int = -1) -> Tensor:
    """Return the cross products of vectors of three elements that lie along an axis."""
    left, right, at = _paired(x1, x2, axis, "cross")
    if left.shape[at] != 3:
        raise ValueError(f"cross takes vectors of 3 elements, not of {left.shape[at]}")
    dtype = apply(np.subtract, Tensor(left), Tensor(right)).dtype
    nodes = [whole_along(node, (at + len(node.grid),)) for node in (left, right)]
    return Tensor(elementwise(_cross, nodes, dtype, "cross", axis=at))


@needs_lengths
def tensordot(x1: Any, x2: Any, /, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return sums of products along pairs of axes: the last ones of `x1` and first of `x2`, or those that are named."""
    left, right = as_node(x1), as_node(x2)
    one, two = len(left.grid), len(right.grid)
    if isinstance(axes, int):
        if not 0 <= axes <= min(one, two):
            raise ValueError(f"axes is {axes}; the arrays have {one} and {two} axes")
        first, second = list(range(one - axes, one)), list(range(axes))
    else:
        given = [list(part) if isinstance(part, Sequence) else [part] for part in axes]
        first, second = [[axes_of(a, n)[0] for a in part] for part, n in zip(given, (one, two), strict=True)]
    if len(first) != len(second) or [left.shape[a] for a in first] != [right.shape[a] for a in second]:
        raise ValueError(f"shape-mismatch for sum: {left.shape} along {first}, {right.shape} along {second}")
    free, kept = [a for a in range(one) if a not in first], [a for a in range(two) if a not in second]
    inner = prod([left.shape[a] for a in first])
    rows, columns = [left.shape[a] for a in free], [right.shape[a] for a in kept]
    a = reshape(permute_dims(Tensor(left), tuple(free + first)), (prod(rows), inner))
    b = reshape(permute_dims(Tensor(right), tuple(second + kept)), (inner, prod(columns)))
    return reshape(matmul(a, b), (*rows, *columns))


# ------------------------------------------------------------------------------------------- diagonals and norms


@needs_lengths
def diagonal(x: Any, /, offset: int = 0) -> Tensor:
    """Return the diagonals of matrices, `offset` above the main one."""
    node = as_node(x)
    if len(node.grid) < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    return Tensor(diagonals.diagonal(node, int(offset)))


def trace(x: Any, /, offset: int = 0, dtype: Any = None) -> Tensor:
    """Return the sums of the diagonals of matrices, `offset` above the main one; integers are summed in 64 bits."""
    return total(diagonal(x, offset=offset), axis=-1, dtype=dtype)


_ORDERS = (None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc")


@needs_lengths
def matrix_norm(x: Any, /, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Return a norm of matrices: "fro", "nuc", 1, 2, inf, or -1, -2, -inf."""
    node, dtype = _matrices(x)
    if ord not in _ORDERS:
        raise ValueError(f"Invalid norm order for matrices: {ord!r}")
    if ord in (None, "fro"):
        return vector_norm(Tensor(node), axis=(-2, -1), keepdims=keepdims)
    (made,) = _factored(_matrix_norm, node, [((1, 1), _real(dtype))], "matrix_norm", ord=ord)
    ndim = made.ndim
    return made if keepdims else Tensor(shaping.squeeze(made.node, (ndim - 2, ndim - 1)))


@needs_lengths
def vector_norm(
    x: Any,
    /,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: float = 2,
) -> Tensor:
    """Return the norm of all elements, or of those along axes."""
    node = as_node(x)
    given = Tensor(shaping.cast(node, np.dtype(np.float64)) if node.dtype.kind in "biu" else node)
    _computed_in(given.dtype)
    size = apply(np.absolute, given)
    if ord == np.inf:
        return largest(size, axis=axis, keepdims=keepdims)
    if ord == -np.inf:
        return smallest(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        there = apply(np.not_equal, given, 0).node
        return Tensor(reductions.reduce(np.add, there, axis, keepdims=keepdims, dtype=size.dtype, name="count"))
    if ord == 1:
        return total(size, axis=axis, keepdims=keepdims)
    if ord == 2:
        return apply(np.sqrt, total(apply(np.square, size), axis=axis, keepdims=keepdims))
    powers = total(apply(np.power, size, float(ord)), axis=axis, keepdims=keepdims)
    return apply(np.power, powers, 1.0 / float(ord))


# ------------------------------------------------------------------------------------- names of NumPy, SciPy and Mars


@taking_out(2)
def dot(a: Any, b: Any) -> Tensor:
    """Return the product as `numpy.dot`: of vectors the inner one, of matrices the matrix product."""
    x, y = _array(a), _array(b)
    if not x.ndim or not y.ndim:
        return apply(np.multiply, x, y)
    if y.ndim <= 2:
        return matmul(x, y)
    return tensordot(x, y, axes=([x.ndim - 1], [y.ndim - 2]))


def inner(a: Any, b: Any) -> Tensor:
    """Return sums of products over the last axes."""
    x, y = _array(a), _array(b)
    if not x.ndim or not y.ndim:
        return apply(np.multiply, x, y)
    return tensordot(x, y, axes=([x.ndim - 1], [y.ndim - 1]))


innerproduct = inner


def vdot(a: Any, b: Any) -> Tensor:
    """Return the inner product of two arrays taken flat, the first conjugated."""
    flat = reshape(a, (-1,))
    return matmul(apply(np.conjugate, flat) if flat.dtype.kind == "c" else flat, reshape(b, (-1,)))


def _array(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else Tensor(as_node(x))


def norm(x: Any, ord: Any = None, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Return a norm of vectors along one axis, of matrices along two, or of all elements, as `numpy.linalg.norm`."""
    given = _array(x)
    axes = None if axis is None else tuple([axes_of(a, given.ndim)[0] for a in np.atleast_1d(axis).tolist()])
    if axes is None:
        if ord is None or given.ndim == 1:
            return vector_norm(given, keepdims=keepdims, ord=2 if ord is None else ord)
        axes = tuple(range(given.ndim))
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"Invalid norm order {ord!r} for vectors")
        return vector_norm(given, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    rest = [a for a in range(given.ndim) if a not in axes]
    made = matrix_norm(Tensor(shaping.permute(given.node, (*rest, *axes))), ord="fro" if ord is None else ord)
    if keepdims:
        made = Tensor(indexing.expand(made.node, sorted(axes)))
    return made


def _triangular(a: Any, b: Any, *, lower: bool) -> Any:
    from scipy.linalg import solve_triangular

    return solve_triangular(a, b, lower=lower)


@needs_lengths
def solve_triangular(a: Any, b: Any, lower: bool = False) -> Tensor:
    """Return x of `a @ x = b`, of whose `a` only the upper (or lower) triangle is read; SciPy does it."""
    needed("scipy")
    left, own = _matrices(a, square=True)
    right = as_node(b)
    if not right.grid or right.shape[0] != left.shape[0] or len(left.grid) != 2:
        raise ValueError(f"solve_triangular: a has shape {left.shape} and b {right.shape}")
    dtype = np.result_type(own, _computed_in(right.dtype))
    (made,) = stacks(_triangular, [left, right], [2, len(right.grid)], [(right.shape, dtype)], "solve", lower=lower)
    return Tensor(made)


def _lu(x: Any) -> tuple[Any, ...]:
    from scipy.linalg import lu

    return tuple(lu(x))


@needs_lengths
def lu(x: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return a permutation, a lower and an upper triangular matrix whose product is the matrix.

    SciPy does it, but for a large matrix, which is factored by panels.
    """
    node, dtype = _matrices(x)
    m, n = node.shape[-2:]
    k = min(m, n)
    if blocked_factorizations.is_large(node) and k:
        p, lower, upper = (Tensor(one) for one in blocked_factorizations.lu(shaping.cast(node, dtype), _real(dtype)))
        return p, lower, upper
    needed("scipy")
    p, lower, upper = _factored(_lu, node, [((m, m), _real(dtype)), ((m, k), dtype), ((k, n), dtype)], "lu")
    return p, lower, upper


def randomized_svd(
    x: Any,
    n_components: int,
    n_oversamples: int = 10,
    n_iter: int | str = "auto",
    *,
    flip_sign: bool = False,
    random_state: Any = None,
) -> SVDResult:
    """Return the largest singular values of a matrix and their vectors, nearly: by projection on random directions.

    `n_oversamples` more directions than components are tried, `n_iter` times sharpened (4 times; 7 for few components).
    `random_state` is a seed. `flip_sign` makes the element of each left vector that is farthest from 0 positive.
    Halko, Martinsson and Tropp, "Finding structure with randomness", 2009.
    """
    given = _array(x)
    if given.ndim != 2:
        raise LinAlgError(f"{given.ndim}-dimensional array given. Array must be two-dimensional")
    m, n = given.shape
    size = min(n_components + n_oversamples, m, n)
    rounds = (7 if n_components < 0.1 * min(m, n) else 4) if n_iter == "auto" else int(n_iter)
    start = np.random.default_rng(random_state).standard_normal((n, size)).astype(given.dtype)
    basis = qr(matmul(given, start)).Q
    for _ in range(rounds):
        basis = qr(matmul(given.T, basis)).Q
        basis = qr(matmul(given, basis)).Q
    u, s, vh = svd(matmul(basis.T, given), full_matrices=False)
    u, s, vh = matmul(basis, u)[:, :n_components], s[:n_components], vh[:n_components]
    if flip_sign:
        farthest = argmax(apply(np.absolute, u), axis=0, keepdims=True)
        signs = apply(np.sign, take_along_axis(u, farthest, axis=0))
        u, vh = apply(np.multiply, u, signs), apply(np.multiply, vh, signs.T)
    return SVDResult(u, s, vh)


arguments.install(globals(), __all__)
