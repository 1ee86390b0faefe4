"""Diagonals of matrices: read, written, summed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.frontends.tensors.arrays import creation, linalg, shapes, statistics
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.arrays.sparse_calls import takes_sparse
from weft.frontends.tensors.blocks import in_one
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import call
from weft.frontends.tensors.reductions import axis_of

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Chunk, ChunkSize


@public(method=True)
@takes_sparse
@needs_lengths
def diagonal(x: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Return the diagonals of two axes; they come last."""
    made = as_tensor(x)
    if made.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    a, b = axis_of(axis1, made.ndim), axis_of(axis2, made.ndim)
    if a == b:
        raise ValueError("axis1 and axis2 cannot be the same")
    order = [axis for axis in range(made.ndim) if axis not in (a, b)]
    return linalg.diagonal(shapes.permute_dims(made, (*order, a, b)), offset=offset)


def _put_diagonal(x: Chunk, *, k: int) -> Chunk:
    return np.diag(x, k)


@public(refused="gpu sparse")
@needs_lengths
def diag(v: ArrayLike, k: int = 0, *, chunk_size: ChunkSize = None) -> Tensor:
    """Return the k-th diagonal of a matrix, or a matrix with a vector on it."""
    made = as_tensor(v)
    if made.ndim == 2:
        made = diagonal(made, k)
        return made if chunk_size is None else made.rechunk(chunk_size)
    if made.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    node = in_one(made.node)
    n = node.size + abs(k)
    grid = (Cut.whole(n),) * 2
    placed = Tensor(call(_put_diagonal, node, grid, node.dtype, name="diag", k=k))
    return placed if chunk_size is None else placed.rechunk(chunk_size)


@public(method=True)
@takes_sparse
def trace(x: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Return sums along diagonals."""
    return statistics.sum(diagonal(x, offset, axis1, axis2), axis=-1)


@public(refused="gpu sparse")
def diagflat(v: ArrayLike, k: int = 0, *, chunk_size: ChunkSize = None) -> Tensor:
    """Return a matrix with the elements of an array, however many axes it has, on its k-th diagonal."""
    return diag(shapes.ravel(v), k, chunk_size=chunk_size)


@public()
def fill_diagonal(a: Tensor, val: ArrayLike, wrap: bool = False) -> None:
    """Set the diagonal of an array, in place, to a value or to the elements of another array in turn."""
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and len(set(a.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    places = np.zeros(a.shape, bool)
    np.fill_diagonal(places, True, wrap=wrap)
    rows = np.nonzero(places)
    given = val.fetch() if isinstance(val, Tensor) else val
    values = np.asarray(given, None if isinstance(given, np.ndarray | np.generic) else a.dtype)
    a[tuple([creation.asarray(one) for one in rows])] = creation.asarray(
        np.resize(values, len(rows[0])).astype(a.dtype)
    )
