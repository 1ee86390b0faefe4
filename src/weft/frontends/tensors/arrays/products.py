"""Products of vectors, matrices and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import indexing, shaping
from weft.frontends.tensors.arrays import chunking
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.joining import stack
from weft.frontends.tensors.arrays.registry import named, public
from weft.frontends.tensors.arrays.shapes import moveaxis, permute_dims, ravel, reshape
from weft.frontends.tensors.arrays.sparse_calls import takes_sparse
from weft.frontends.tensors.arrays.statistics import sum as total
from weft.frontends.tensors.blocked_products import matmul as matmul_nodes
from weft.frontends.tensors.blocks import elementwise, whole_along
from weft.frontends.tensors.nodes import ArrayNode
from weft.frontends.tensors.reductions import axis_of

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.frontends.tensors.types import ArrayLike, Chunk


@public("a", "b", also="linalg.matmul", refused="sparse", out=2)
@takes_sparse
@needs_lengths
def matmul(x1: ArrayLike, x2: ArrayLike, /, *, order: str = "K") -> Tensor:
    """Return the matrix product; axes before the last two are broadcast. ValueError: the shapes do not fit.

    `order` is that of the fetched array in memory.
    """
    if order not in ("K", "A", "C", "F"):
        raise ValueError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})")
    left, right = as_node(x1), as_node(x2)
    if not left.grid or not right.grid:
        raise ValueError("matmul: Input operand does not have enough dimensions (has 0, requires at least 1)")
    dtype = np.result_type(left.dtype, right.dtype)
    first, last = len(left.grid) == 1, len(right.grid) == 1
    if first:
        left = indexing.expand(left, [0])
    if last:
        right = indexing.expand(right, [1])
    made = matmul_nodes(left, right, dtype, chunking.chunking().chunk_bytes)
    ndim = len(made.grid)
    dropped = tuple([axis for axis, drop in ((ndim - 2, first), (ndim - 1, last)) if drop])
    return Tensor(shaping.squeeze(made, dropped) if dropped else made, "F" if order == "F" else "C")


@named("outer", space="linalg")
@needs_lengths
def vector_outer(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the products of all elements of one vector with all of another."""
    left, right = as_node(x1), as_node(x2)
    if len(left.grid) != 1 or len(right.grid) != 1:
        raise ValueError(f"outer takes arrays of one axis, not of {len(left.grid)} and {len(right.grid)}")
    return apply(np.multiply, Tensor(indexing.expand(left, [1])), Tensor(right))


@public()
def outer(a: ArrayLike, b: ArrayLike) -> Tensor:
    """Return all products of elements of one array with those of another, both taken flat."""
    return vector_outer(ravel(a), ravel(b))


@public()
@needs_lengths
def kron(a: ArrayLike, b: ArrayLike) -> Tensor:
    """Return the Kronecker product: blocks of one array, each multiplied by an element of the other."""
    x, y = as_tensor(a), as_tensor(b)
    n = max(x.ndim, y.ndim)
    left, right = ((1,) * (n - one.ndim) + one.shape for one in (x, y))
    x = reshape(x, tuple([k for size in left for k in (size, 1)]))
    y = reshape(y, tuple([k for size in right for k in (1, size)]))
    return reshape(apply(np.multiply, x, y), tuple([p * q for p, q in zip(left, right, strict=True)]))


def _cross(a: Chunk, b: Chunk, *, axis: int) -> Chunk:
    return np.cross(a, b, axis=axis)


@public(also="linalg.matrix_transpose")
@takes_sparse
def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """Return the transposes of matrices; ValueError for fewer than two axes."""
    made = as_tensor(x)
    if made.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {made.ndim}")
    return made.mT


def _paired(x1: Any, x2: Any, axis: int, name: str) -> tuple[ArrayNode, ArrayNode, int]:
    """Return two arrays, and an axis, counted from the end, along which both are equally long."""
    left, right = as_node(x1), as_node(x2)
    from_end = {axis_of(axis, len(node.grid)) - len(node.grid) for node in (left, right)}
    if len(from_end) > 1:
        raise ValueError(f"axis {axis} of {name} is not the same of both arrays; count it from the end")
    (at,) = from_end
    if left.shape[at] != right.shape[at]:
        raise ValueError(
            f"{name}: axis {axis} has {left.shape[at]} elements in one array, {right.shape[at]} in the other"
        )
    np.broadcast_shapes(left.shape, right.shape)
    return left, right, at


@public(also="linalg.vecdot")
@needs_lengths
def vecdot(x1: ArrayLike, x2: ArrayLike, /, axis: int = -1) -> Tensor:
    """Return the products of vectors that lie along an axis, the first one conjugated."""
    left, right, at = _paired(x1, x2, axis, "vecdot")
    first = apply(np.conjugate, Tensor(left)) if left.dtype.kind in "cO" else Tensor(left)
    product = apply(np.multiply, first, Tensor(right))
    return total(product, axis=at, dtype=product.dtype)


@public(space="linalg")
@needs_lengths
def cross(x1: ArrayLike, x2: ArrayLike, /, axis: int = -1) -> Tensor:
    """Return the cross products of vectors of three elements that lie along an axis."""
    left, right, at = _paired(x1, x2, axis, "cross")
    if left.shape[at] != 3:
        raise ValueError(f"cross takes vectors of 3 elements, not of {left.shape[at]}")
    dtype = apply(np.subtract, Tensor(left), Tensor(right)).dtype
    nodes = [whole_along(node, (at + len(node.grid),)) for node in (left, right)]
    return Tensor(elementwise(_cross, nodes, dtype, "cross", axis=at))


@named("cross")
@needs_lengths
def cross_along(
    a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """Return the cross products of vectors of three (or two) elements along an axis of each array.

    Of vectors of two elements the products are numbers. ValueError: vectors have other lengths.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = as_tensor(a), as_tensor(b)
    if not x.ndim or not y.ndim:
        raise ValueError("At least one array has zero dimension")
    x, y = (moveaxis(one, axis_of(at, one.ndim), -1) for one, at in ((x, axisa), (y, axisb)))
    if x.shape[-1] not in (2, 3) or y.shape[-1] not in (2, 3):
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, but they are "
            f"{x.shape[-1]} and {y.shape[-1]} dimensional instead."
        )
    flat = x.shape[-1] == y.shape[-1] == 2
    one, other = ([item[..., i] if i < item.shape[-1] else None for i in range(3)] for item in (x, y))

    def less(i: int, j: int) -> Tensor:
        first, second = (
            None if p is None or q is None else apply(np.multiply, p, q)
            for p, q in ((one[i], other[j]), (one[j], other[i]))
        )
        if first is None or second is None:
            made = apply(np.negative, second) if first is None else first
            return made if made is not None else apply(np.multiply, one[0], 0)
        return apply(np.subtract, first, second)

    if flat:
        return less(0, 1)
    made = stack([less(1, 2), less(2, 0), less(0, 1)], axis=-1)
    return moveaxis(made, -1, axis_of(axisc, made.ndim))


def _multiplied(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product as the older functions of NumPy have it, which also take lengths of time.

    They multiply their counts, so that the unit is lost. TypeError: the others are not whole numbers of 64 bits.
    """
    kinds = [one.dtype for one in (a, b)]
    if not any(kind.kind == "m" for kind in kinds) or not all(
        kind.kind == "m" or np.can_cast(kind, np.int64) for kind in kinds
    ):
        return matmul(a, b)
    made = matmul(*[Tensor(shaping.cast(one.node, np.dtype(np.int64))) for one in (a, b)])
    return Tensor(shaping.cast(made.node, np.dtype("m8")))


@public("a", "b", also="linalg.tensordot", refused="sparse")
@takes_sparse
@needs_lengths
def tensordot(x1: ArrayLike, x2: ArrayLike, /, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return sums of products along pairs of axes: the last ones of `x1` and first of `x2`, or those that are named."""
    left, right = as_node(x1), as_node(x2)
    one, two = len(left.grid), len(right.grid)
    if isinstance(axes, int):
        if not 0 <= axes <= min(one, two):
            raise np.exceptions.AxisError(f"axes is {axes}; the arrays have {one} and {two} axes")
        first, second = list(range(one - axes, one)), list(range(axes))
    else:
        given = [list(part) if isinstance(part, Sequence) else [part] for part in axes]
        first, second = [[axis_of(a, n) for a in part] for part, n in zip(given, (one, two), strict=True)]
    if len(first) != len(second) or [left.shape[a] for a in first] != [right.shape[a] for a in second]:
        raise ValueError(f"shape-mismatch for sum: {left.shape} along {first}, {right.shape} along {second}")
    free, kept = [a for a in range(one) if a not in first], [a for a in range(two) if a not in second]
    inner = prod([left.shape[a] for a in first])
    rows, columns = [left.shape[a] for a in free], [right.shape[a] for a in kept]
    a = reshape(permute_dims(Tensor(left), tuple(free + first)), (prod(rows), inner))
    b = reshape(permute_dims(Tensor(right), tuple(second + kept)), (inner, prod(columns)))
    return reshape(_multiplied(a, b), (*rows, *columns))


@public(also="linalg.dot", refused="sparse", method=True, out=2)
@takes_sparse
def dot(a: ArrayLike, b: ArrayLike) -> Tensor:
    """Return the product as `numpy.dot`: of vectors the inner one, of matrices the matrix product."""
    x, y = as_tensor(a), as_tensor(b)
    if not x.ndim or not y.ndim:
        return apply(np.multiply, x, y)
    if y.ndim <= 2:
        return _multiplied(x, y)
    return tensordot(x, y, axes=([x.ndim - 1], [y.ndim - 2]))


@public(also="innerproduct linalg.inner linalg.innerproduct", refused="sparse")
def inner(a: ArrayLike, b: ArrayLike) -> Tensor:
    """Return sums of products over the last axes."""
    x, y = as_tensor(a), as_tensor(b)
    if not x.ndim or not y.ndim:
        return apply(np.multiply, x, y)
    return tensordot(x, y, axes=([x.ndim - 1], [y.ndim - 1]))


@public(also="linalg.vdot")
def vdot(a: ArrayLike, b: ArrayLike) -> Tensor:
    """Return the inner product of two arrays taken flat, the first conjugated."""
    flat = reshape(a, (-1,))
    return _multiplied(apply(np.conjugate, flat) if flat.dtype.kind in "cO" else flat, reshape(b, (-1,)))
