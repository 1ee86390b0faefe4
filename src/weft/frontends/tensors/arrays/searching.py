"""Choosing, sorting, finding, and sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import blocks, indexing, ordering, shaping
from weft.frontends.tensors.arrays import joining
from weft.frontends.tensors.arrays.array import Tensor
from weft.frontends.tensors.arrays.conversion import aligned, as_node, common_dtype
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.arrays.shapes import ravel
from weft.frontends.tensors.arrays.sparse_calls import takes_sparse
from weft.frontends.tensors.nodes import ArrayNode

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, DType

_NONE = object()


@public("condition", "x", "y")
@takes_sparse
@needs_lengths
def where(condition: ArrayLike, x1: Any = _NONE, x2: Any = _NONE, /) -> Any:
    """Return elements of `x1` if a condition holds, else of `x2`; without both, `nonzero` of the condition."""
    if x1 is _NONE and x2 is _NONE:
        return nonzero(condition)
    if x1 is _NONE or x2 is _NONE:
        raise ValueError("either both or neither of x and y should be given")
    chosen: Any
    chosen, left, right = aligned(condition if isinstance(condition, Tensor) else Tensor(as_node(condition)), x1, x2)
    if chosen.dtype.kind != "b":
        chosen = shaping.cast(chosen, np.dtype(bool))
    dtype = common_dtype((left, right))
    return Tensor(blocks.where(chosen, _held(left, dtype), _held(right, dtype), dtype))


def _held(value: Any, dtype: DType) -> Any:
    """Return a node as it is, a number as one of that type: OverflowError if it cannot be."""
    return value if isinstance(value, ArrayNode) or dtype.kind == "O" else np.asarray(value, dtype)[()].item()


@public("a", method=True)
@needs_lengths
def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """Return the coordinates of the elements that are not zero, one array for each axis; ValueError for a 0-d array."""
    node = as_node(x)
    if not node.grid:
        raise ValueError("nonzero of a 0-d array is not defined; make it one of one axis first")
    return ExecutableTuple([Tensor(one) for one in ordering.nonzero(node)])


@public("a", "v", ignored="combine_size", method=True)
@needs_lengths
def searchsorted(x1: ArrayLike, x2: ArrayLike, /, side: str = "left", sorter: Any = None) -> Tensor:
    """Return the insertion positions of `x2` in `x1`, which is sorted, or sorted by the order `sorter`."""
    if side not in ("left", "right"):
        raise ValueError(f"side is {side!r}; give 'left' or 'right'")
    sorted_ = as_node(x1)
    if len(sorted_.grid) != 1:
        raise ValueError("object of too small depth for desired array" if not sorted_.grid else "x1 has one axis")
    order = None if sorter is None else as_node(sorter)
    if order is not None and order.shape != sorted_.shape:
        raise ValueError("sorter.size must equal len(x1)")
    return Tensor(ordering.searchsorted(sorted_, as_node(x2, sorted_.dtype), side, order))


@public("a")
@needs_lengths
def flatnonzero(x: ArrayLike) -> Tensor:
    """Return the positions of the non-zero elements in the flattened array."""
    return Tensor(ordering.nonzero(ravel(x).node)[0])


@public("a")
@needs_lengths
def argwhere(x: ArrayLike) -> Tensor:
    """Return the coordinates of the non-zero elements, one row for each element."""
    node = as_node(x)
    if not node.grid:  # as in NumPy: no coordinates, and a row if the element is not zero
        return argwhere(Tensor(indexing.expand(node, [0])))[:, :0]
    found = ordering.nonzero(node)
    return joining.stack([Tensor(one) for one in found], axis=-1)
