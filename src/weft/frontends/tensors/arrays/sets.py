"""Sets: the different values of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.frontends.tensors import ordering, reductions
from weft.frontends.tensors.arrays import joining, shapes
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.dtypes import INT
from weft.frontends.tensors.arrays.executables import ExecutableTuple, together
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.blocks import in_one
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import ArrayNode, NodeInput
from weft.operators.regions import KernelKind

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Chunk


@together
class UniqueAll(NamedTuple):
    """The distinct values of an array, first positions, the value number of each element, and counts."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


@together
class UniqueCounts(NamedTuple):
    """The values of an array, and how often each is there."""

    values: Tensor
    counts: Tensor


@together
class UniqueInverse(NamedTuple):
    """The values of an array, and which value each element is."""

    values: Tensor
    inverse_indices: Tensor


@public()
@needs_lengths
def unique_all(x: ArrayLike, /) -> UniqueAll:
    """Return the values of an array, ascending, their first places in the flat array, inverse and counts."""
    values, indices, inverse, counts = ordering.unique(as_node(x))
    return UniqueAll(Tensor(values), Tensor(indices), Tensor(inverse), Tensor(counts))


@public()
@needs_lengths
def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """Return the values of an array, ascending, and how often each is there; NaNs are all different."""
    values, _, _, counts = ordering.unique(as_node(x), firsts=False)
    return UniqueCounts(Tensor(values), Tensor(counts))


@public()
@needs_lengths
def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """Return the values of an array, ascending, and for each element which of them it is."""
    values, _, inverse, _ = ordering.unique(as_node(x))
    return UniqueInverse(Tensor(values), Tensor(inverse))


@public()
@needs_lengths
def unique_values(x: ArrayLike, /) -> Tensor:
    """Return the values of an array, ascending; NaNs are all different."""
    return Tensor(ordering.unique_values(as_node(x)))


@public("element", "test_elements", ignored="assume_unique")
@needs_lengths
def isin(x1: ArrayLike, x2: ArrayLike, /, invert: bool = False) -> Tensor:
    """Return for each element of `x1` whether it is one of `x2`; with `invert`, whether it is none."""
    left = as_node(x1, as_node(x2).dtype)
    return Tensor(ordering.isin(left, as_node(x2, left.dtype), invert=invert))


def _unique_of(x: Chunk, *, axis: int, at: int) -> Chunk:
    return np.unique(x, True, True, True, axis=axis)[at]


@public("ar", ignored="aggregate_size")
def unique(
    x: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """Return the values of an array, ascending; with `axis`, the different slices along it. NaN is one value.

    On request: their first positions, the value number of each element, and counts. With `axis` the
    array is read as one chunk.
    """
    wanted = [True, return_index, return_inverse, return_counts]
    if axis is None and not any(wanted[1:]):
        return Tensor(ordering.unique_values(as_node(x), one_nan=True))
    if axis is None:
        made = [Tensor(one) for one in ordering.unique(as_node(x), one_nan=True, firsts=return_index)]
    else:
        made = _slices(x, axis)
    chosen = [one for one, want in zip(made, wanted, strict=True) if want]
    return chosen[0] if len(chosen) == 1 else ExecutableTuple(chosen)


def _slices(x: Any, axis: int) -> list[Tensor]:
    given = as_tensor(x)
    along = reductions.axes_of(axis, given.ndim)[0]
    node = in_one(given.node)
    kwargs = {"axis": along}
    cut = Cut.unknown(1)
    grid = tuple([cut if a == along else one for a, one in enumerate(node.grid)])
    flat = (Cut.even(node.shape[along], max(node.shape[along], 1)),)
    kinds = [(grid, node.dtype), ((cut,), INT), (flat, INT), ((cut,), INT)]
    return [
        Tensor(
            ArrayNode(
                KernelKind.CALL, _unique_of, [NodeInput(node)], cuts, dtype, kwargs={**kwargs, "at": at}, name="unique"
            )
        )
        for at, (cuts, dtype) in enumerate(kinds)
    ]


@public("ar1", "ar2")
def in1d(x1: ArrayLike, x2: ArrayLike, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Return for each element of the flat `x1` whether it is one of `x2`."""
    return isin(shapes.ravel(x1), x2, invert=invert)


@public("ar1", "ar2", ignored="aggregate_size")
def union1d(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """Return the values that are in one of two arrays, ascending."""
    both: Tensor = unique(joining.concat([shapes.ravel(x1), shapes.ravel(x2)]))
    return both


@public("ar1", "ar2")
def setdiff1d(x1: ArrayLike, x2: ArrayLike, assume_unique: bool = False) -> Tensor:
    """Return the values of one array that are not in another one, ascending; in their order if they are unique."""
    values = shapes.ravel(x1) if assume_unique else unique(x1)
    return values[isin(values, x2, invert=True)]
