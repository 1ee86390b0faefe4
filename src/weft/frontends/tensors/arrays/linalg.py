"""Linear algebra, as the array standard has it.

Products are made chunk by chunk, and so are norms, traces and diagonals. Factorisations take each matrix of a stack as
one chunk, and the stack chunk by chunk; a single large matrix is factored, inverted and solved by panels of columns.
Errors of shapes and types are raised by the call of a function; errors of values (a matrix that is
singular) when they are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np
from numpy.linalg import LinAlgError

from weft.frontends.tensors import blocked_factorizations, diagonals, indexing, reductions, shaping, sources, tsqr
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor, viewed
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.executables import together
from weft.frontends.tensors.arrays.extras import needed
from weft.frontends.tensors.arrays.joining import concat
from weft.frontends.tensors.arrays.products import matmul
from weft.frontends.tensors.arrays.registry import expose, public
from weft.frontends.tensors.arrays.selection import take_along_axis
from weft.frontends.tensors.arrays.shapes import spread
from weft.frontends.tensors.arrays.sparse_calls import takes_sparse
from weft.frontends.tensors.arrays.statistics import argmax
from weft.frontends.tensors.arrays.statistics import max as largest
from weft.frontends.tensors.arrays.statistics import min as smallest
from weft.frontends.tensors.arrays.statistics import sum as total
from weft.frontends.tensors.arrays.views import Diagonal
from weft.frontends.tensors.blocked_products import stacks
from weft.frontends.tensors.blocks import pick, whole_along
from weft.frontends.tensors.reductions import axis_of

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.frontends.tensors.types import ArrayLike, Chunk, DType, DTypeLike

expose("numpy.linalg", "LinAlgError", space="linalg")


@public(space="linalg")
@together
class EighResult(NamedTuple):
    """Eigenvalues, ascending, and a unitary matrix whose columns are the eigenvectors."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@public(space="linalg")
@together
class EigResult(NamedTuple):
    """Eigenvalues, in no order, and a matrix whose columns are the eigenvectors."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@public(space="linalg")
@together
class QRResult(NamedTuple):
    """A matrix with orthonormal columns, and an upper triangular one."""

    Q: Tensor
    R: Tensor


@public(space="linalg")
@together
class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


@public(space="linalg")
@together
class SVDResult(NamedTuple):
    """Left singular vectors, singular values, descending, and right singular vectors, conjugated and transposed."""

    U: Tensor
    S: Tensor
    Vh: Tensor


# ------------------------------------------------------------------------------------------------ what goes in


def _matrices(x: Any, *, square: bool = False, factored: bool = True) -> tuple[ArrayNode, DType]:
    """Return a stack of matrices, and the type that it is factored in; LinAlgError, TypeError as NumPy words them."""
    node = as_node(x)
    if len(node.grid) < 2:
        raise LinAlgError(f"{len(node.grid)}-dimensional array given. Array must be at least two-dimensional")
    if square and node.shape[-1] != node.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return node, _computed_in(node.dtype) if factored else node.dtype


def _computed_in(dtype: DType) -> DType:
    if dtype.kind in "biu":
        return np.dtype(np.float64)
    if dtype.kind not in "fc" or dtype.itemsize < 4 or dtype.itemsize > 8 * (1 + (dtype.kind == "c")):
        raise TypeError(f"array type {dtype} is unsupported in linalg")
    return dtype


def _real(dtype: DType) -> DType:
    return np.empty(0, dtype).real.dtype


def _complex(dtype: DType) -> DType:
    return np.result_type(dtype, np.complex64)


def _adjoint(x: Tensor) -> Tensor:
    return apply(np.conjugate, x).mT if x.dtype.kind == "c" else x.mT


def _results(
    fn: Callable[..., Any], node: ArrayNode, out: Sequence[tuple[Sequence[int], DType]], **options: Any
) -> tuple[Tensor, ...]:
    """Return the results of a function of a stack of matrices; `out` has the lengths and the dtype of each."""
    return tuple([Tensor(one) for one in stacks(_kernel, [node], [2], out, _name(fn), of=fn, **options)])


def _result(fn: Callable[..., Any], node: ArrayNode, sizes: Sequence[int], dtype: DType, **options: Any) -> Tensor:
    """Return the only result of a function of a stack of matrices.

    Without options the function is the kernel itself, and another array namespace may have it.
    """
    if options:
        return _results(fn, node, [(sizes, dtype)], **options)[0]
    return Tensor(stacks(fn, [node], [2], [(sizes, dtype)], _name(fn))[0])


def _name(fn: Callable[..., Any]) -> str:
    return fn.__name__.strip("_")


# ------------------------------------------------------------------------------------------------------- kernels


def _kernel(x: Chunk, *, of: Callable[..., Any], dtype: DType | None = None, **options: Any) -> Any:
    """Return the result of a function of NumPy, or its results as a tuple, converted to `dtype` if that is given."""
    made = of(x, **options)
    if isinstance(made, tuple):
        return tuple([one if dtype is None else one.astype(dtype, copy=False) for one in made])
    return made if dtype is None else np.asarray(made, dtype)


def _solve(a: Chunk, b: Chunk) -> Chunk:
    return np.linalg.solve(a, b)


def _with_rtol(x: Chunk, rtol: Any = None, **options: Any) -> Chunk:
    return _kernel(x, rtol=rtol, **options)


# ------------------------------------------------------------------------------------------------ factorisations


@public("a", space="linalg")
@needs_lengths
def cholesky(x: ArrayLike, /, lower: bool | None = None, *, upper: bool = False) -> Tensor:
    """Return the lower (or upper) triangular factor of positive definite matrices; `lower=False` is `upper=True`."""
    upper = upper if lower is None else not lower
    node, dtype = _matrices(x, square=True)
    if blocked_factorizations.is_large(node):
        given = Tensor(shaping.cast(node, dtype))
        made = Tensor(blocked_factorizations.cholesky((_adjoint(given) if upper else given)._node))
        return _adjoint(made) if upper else made
    return _result(np.linalg.cholesky, node, node.shape[-2:], dtype, upper=upper)


@public(space="linalg")
@needs_lengths
def det(x: ArrayLike, /) -> Tensor:
    """Return the determinants of square matrices."""
    node, dtype = _matrices(x, square=True)
    if blocked_factorizations.is_large(node):
        return Tensor(blocked_factorizations.determinant(shaping.cast(node, dtype), logarithm=False))
    return _result(np.linalg.det, node, (), dtype)


@public(space="linalg")
@needs_lengths
def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """Return the signs of the determinants of square matrices, and the logarithms of their absolute values."""
    node, dtype = _matrices(x, square=True)
    out = [((), dtype), ((), _real(dtype))]
    if blocked_factorizations.is_large(node):
        both = blocked_factorizations.determinant(shaping.cast(node, dtype), logarithm=True)
        return SlogdetResult(*[Tensor(pick(both, at, (), kind, "slogdet")) for at, (_, kind) in enumerate(out)])
    return SlogdetResult(*_results(np.linalg.slogdet, node, out))


@public(space="linalg")
@needs_lengths
def eigh(x: ArrayLike, /, UPLO: str = "L") -> EighResult:  # noqa: N803 - as NumPy calls it
    """Return eigenvalues and eigenvectors of symmetric (or Hermitian) matrices, of which one triangle is read."""
    node, dtype = _matrices(_triangle(x, UPLO), square=True)
    out = [(node.shape[-1:], _real(dtype)), (node.shape[-2:], dtype)]
    return EighResult(*_results(np.linalg.eigh, node, out))


def _triangle(x: Any, side: str) -> Any:
    """Return matrices whose lower triangle is that of `side`: "L" the lower, "U" the upper one."""
    if side.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return x if side.upper() == "L" or as_tensor(x).ndim < 2 else _adjoint(as_tensor(x))


@public(space="linalg")
@needs_lengths
def eigvalsh(x: ArrayLike, /, UPLO: str = "L") -> Tensor:  # noqa: N803 - as NumPy calls it
    """Return the eigenvalues of symmetric (or Hermitian) matrices, of which one triangle is read, ascending."""
    node, dtype = _matrices(_triangle(x, UPLO), square=True)
    return _result(np.linalg.eigvalsh, node, node.shape[-1:], _real(dtype))


@public(space="linalg")
@needs_lengths
def eig(x: ArrayLike, /) -> EigResult:
    """Return eigenvalues and eigenvectors of square matrices, as complex numbers."""
    node, own = _matrices(x, square=True)
    dtype = _complex(own)
    out = [(node.shape[-1:], dtype), (node.shape[-2:], dtype)]
    return EigResult(*_results(np.linalg.eig, node, out, dtype=dtype))


@public(space="linalg")
@needs_lengths
def eigvals(x: ArrayLike, /) -> Tensor:
    """Return the eigenvalues of square matrices, as complex numbers."""
    node, own = _matrices(x, square=True)
    dtype = _complex(own)
    return _results(np.linalg.eigvals, node, [(node.shape[-1:], dtype)], dtype=dtype)[0]


@public("a", space="linalg", refused="sparse")
@needs_lengths
def inv(x: ArrayLike, /) -> Tensor:
    """Return the inverses of square matrices; LinAlgError, when it is computed, for a singular one."""
    node, dtype = _matrices(x, square=True)
    if blocked_factorizations.is_large(node):
        right = sources.eye(node.grid, 0, dtype)
        return Tensor(blocked_factorizations.solve(shaping.cast(node, dtype), right))
    return _result(np.linalg.inv, node, node.shape[-2:], dtype)


@overload
def qr(x: ArrayLike, /, mode: Literal["reduced", "complete"] = "reduced") -> QRResult: ...
@overload
def qr(x: ArrayLike, /, mode: Literal["r"]) -> Tensor: ...
@public("a", space="linalg", ignored="method")
@needs_lengths
def qr(x: ArrayLike, /, mode: str = "reduced") -> QRResult | Tensor:
    """Return orthonormal and upper triangular factors; "complete" makes the first one square, "r" leaves it out."""
    if mode == "r":
        return qr(x).R
    if mode not in ("reduced", "complete"):
        raise ValueError(f"mode is {mode!r}; give 'reduced', 'complete' or 'r'")
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
    return QRResult(*_results(np.linalg.qr, node, [((m, k), dtype), ((k, n), dtype)], mode=mode))


def _lies(node: ArrayNode) -> bool:
    """Whether a matrix is a tall one transposed: in several blocks of columns, which are no higher than wide."""
    return len(node.grid) == 2 and tsqr.is_tall(shaping.permute(whole_along(node, (0,)), (1, 0)))


@overload
def svd(x: ArrayLike, /, full_matrices: bool = True, *, method: str | None = None) -> SVDResult: ...
@overload
def svd(
    x: ArrayLike, /, full_matrices: bool = True, compute_uv: bool = True, *, method: str | None = None
) -> SVDResult | Tensor: ...
@public("a", space="linalg", ignored="hermitian")
@needs_lengths
def svd(
    x: ArrayLike, /, full_matrices: bool = True, compute_uv: bool = True, *, method: str | None = None
) -> SVDResult | Tensor:
    """Return the singular value decomposition of matrices; without `compute_uv` the singular values alone.

    Mars's `method="tsqr"` is `full_matrices=False`.
    """
    if not compute_uv:
        return svdvals(x)
    if method not in (None, "tsqr"):
        raise NotImplementedError(f"method is {method!r}; give 'tsqr', or none")
    full_matrices = full_matrices and method is None
    node, dtype = _matrices(x)
    m, n = node.shape[-2:]
    k = min(m, n)
    if not full_matrices:
        tall = whole_along(node, (1,)) if len(node.grid) == 2 else node
        if tsqr.is_tall(tall):
            parts = tsqr.factored(shaping.cast(tall, dtype), (dtype, _real(dtype), dtype), singular=True)
            return SVDResult(*[Tensor(part) for part in parts])
        if _lies(node):
            u, s, vh = svd(_adjoint(Tensor(node)), full_matrices=False)
            return SVDResult(_adjoint(vh), s, _adjoint(u))
    rows, columns = (m, n) if full_matrices else (k, k)
    out = [((m, rows), dtype), ((k,), _real(dtype)), ((columns, n), dtype)]
    return SVDResult(*_results(np.linalg.svd, node, out, full_matrices=full_matrices))


@public(space="linalg")
@needs_lengths
def svdvals(x: ArrayLike, /) -> Tensor:
    """Return the singular values of matrices, descending."""
    node, dtype = _matrices(x)
    if len(node.grid) == 2 and (tsqr.is_tall(whole_along(node, (1,))) or _lies(node)):
        return svd(Tensor(node), full_matrices=False).S
    return _result(np.linalg.svdvals, node, (min(node.shape[-2:]),), _real(dtype))


@public("a", "b", space="linalg", ignored="sym_pos", refused="sparse")
@needs_lengths
def solve(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
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
    return Tensor(stacks(_solve, [left, right], [2, 1 if vector else 2], [(size, dtype)], "solve")[0])


def _with_tolerance(fn: Callable[..., Any], node: ArrayNode, rtol: Any, size: Sequence[int], dtype: DType) -> Tensor:
    nodes, core = [node], [2]
    if rtol is not None:
        limit = as_node(rtol)
        np.broadcast_shapes(limit.shape, node.shape[:-2])
        nodes.append(spread(Tensor(limit), node.shape[:-2]).node)
        core.append(0)
    return Tensor(stacks(_with_rtol, nodes, core, [(size, dtype)], _name(fn), of=fn, dtype=dtype)[0])


@public("a", "rcond", space="linalg", ignored="hermitian")
@needs_lengths
def pinv(x: ArrayLike, /, rtol: ArrayLike | None = None) -> Tensor:
    """Return the pseudo-inverses; singular values below `rtol` times the largest count as 0."""
    node, dtype = _matrices(x)
    if 0 in node.shape[-2:]:
        return Tensor(as_tensor(x).mT.node)  # NumPy keeps the dtype
    return _with_tolerance(np.linalg.pinv, shaping.cast(node, dtype), rtol, node.shape[-2:][::-1], dtype)


@public("A", space="linalg", ignored="hermitian")
@needs_lengths
def matrix_rank(x: ArrayLike, /, rtol: ArrayLike | None = None) -> Tensor:
    """Return the number of singular values above `rtol` times the largest; of a vector 1, unless all of it is 0."""
    if len(as_node(x).grid) < 2:
        return total(apply(np.not_equal, x, 0)).astype(bool).astype(np.int64)
    node, _ = _matrices(x)
    return _with_tolerance(np.linalg.matrix_rank, node, rtol, (), np.dtype(np.int64))


@public(space="linalg")
@needs_lengths
def matrix_power(x: ArrayLike, n: int, /) -> Tensor:
    """Return the n-th power of square matrices; of their inverses for negative n."""
    if not hasattr(n, "__index__"):
        raise TypeError("exponent must be an integer")
    node, dtype = _matrices(x, square=True, factored=n < 0)
    if n == 1:
        return as_tensor(x)
    made = Tensor(node)
    if node.grid[-1].n == node.grid[-2].n == 1 or n == 0:
        kind = node.dtype if n >= 0 else dtype
        return _result(np.linalg.matrix_power, node, node.shape[-2:], kind, n=int(n))
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


# ------------------------------------------------------------------------------------------- diagonals and norms


@public(space="linalg")
@needs_lengths
def diagonal(x: ArrayLike, /, offset: int = 0) -> Tensor:
    """Return the diagonals of matrices, `offset` above the main one."""
    node = as_node(x)
    if len(node.grid) < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    return viewed(x, diagonals.diagonal(node, int(offset)), Diagonal(int(offset)))


@public(space="linalg")
def trace(x: ArrayLike, /, offset: int = 0, dtype: DTypeLike = None) -> Tensor:
    """Return the sums of the diagonals of matrices, `offset` above the main one; integers are summed in 64 bits."""
    return total(diagonal(x, offset=offset), axis=-1, dtype=dtype)


_ORDERS = (None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc")


@public(space="linalg")
@needs_lengths
def matrix_norm(x: ArrayLike, /, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Return a norm of matrices: "fro", "nuc", 1, 2, inf, or -1, -2, -inf."""
    node = _measured(x)
    if ord in (None, "fro") and len(node.grid) > 1:
        return vector_norm(Tensor(node), axis=(-2, -1), keepdims=keepdims)
    node, dtype = _matrices(Tensor(node), factored=ord in (2, -2, "nuc"))
    if ord not in _ORDERS:
        raise ValueError(f"Invalid norm order for matrices: {ord!r}")
    kind = _real(np.dtype(np.float64) if dtype.kind in "biu" else dtype)
    made = _result(np.linalg.matrix_norm, node, (1, 1), kind, ord=ord, keepdims=True)
    ndim = made.ndim
    return made if keepdims else Tensor(shaping.squeeze(made.node, (ndim - 2, ndim - 1)))


def _measured(x: Any) -> ArrayNode:
    """Return an array as its norms are computed: lengths of time are numbers of their unit."""
    node = as_node(x)
    return shaping.cast(node, np.dtype(np.float64)) if node.dtype.kind == "m" else node


@public(space="linalg")
@needs_lengths
def vector_norm(
    x: ArrayLike, /, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """Return the norm of all elements, or of those along axes."""
    node = _measured(x)
    given = Tensor(shaping.cast(node, np.dtype(np.float64)) if node.dtype.kind in "biu" else node)
    if given.dtype != np.float16:
        _computed_in(given.dtype)
    size = apply(np.absolute, given)
    if ord == np.inf:
        return largest(size, axis=axis, keepdims=keepdims, initial=0)
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


@public(space="linalg")
@takes_sparse
def norm(x: ArrayLike, ord: Any = None, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Return a norm of vectors along one axis, of matrices along two, or of all elements, as `numpy.linalg.norm`."""
    given = as_tensor(x)
    axes = None if axis is None else tuple([axis_of(a, given.ndim) for a in np.atleast_1d(axis).tolist()])
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
    if axes[0] == axes[1]:
        raise ValueError("Duplicate axes given.")
    rest = [a for a in range(given.ndim) if a not in axes]
    made = matrix_norm(Tensor(shaping.permute(given.node, (*rest, *axes))), ord="fro" if ord is None else ord)
    if keepdims:
        made = Tensor(indexing.expand(made.node, sorted(axes)))
    return made


def _solve_triangular(a: Chunk, b: Chunk, *, lower: bool) -> Chunk:
    from scipy.linalg import solve_triangular

    return solve_triangular(a, b, lower=lower)


@public(space="linalg", refused="sparse")
@needs_lengths
def solve_triangular(a: ArrayLike, b: ArrayLike, lower: bool = False) -> Tensor:
    """Return x of `a @ x = b`, of whose `a` only the upper (or lower) triangle is read; SciPy does it."""
    needed("scipy")
    left, own = _matrices(a, square=True)
    right = as_node(b)
    if not right.grid or right.shape[0] != left.shape[0] or len(left.grid) != 2:
        raise ValueError(f"solve_triangular: a has shape {left.shape} and b {right.shape}")
    dtype = np.result_type(own, _computed_in(right.dtype))
    core, out = [2, len(right.grid)], [(right.shape, dtype)]
    return Tensor(stacks(_solve_triangular, [left, right], core, out, "solve", lower=lower)[0])


def _lu(x: Chunk) -> tuple[Any, ...]:
    from scipy.linalg import lu

    return tuple(lu(x))


@public("a", space="linalg")
@needs_lengths
def lu(x: ArrayLike) -> tuple[Tensor, Tensor, Tensor]:
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
    p, lower, upper = _results(_lu, node, [((m, m), _real(dtype)), ((m, k), dtype), ((k, n), dtype)])
    return p, lower, upper


@public("M", space="linalg", ignored="power_iteration_normalizer transpose")
def randomized_svd(
    x: ArrayLike,
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
    given = as_tensor(x)
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
