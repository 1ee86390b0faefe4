"""Sets: the different values of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.frontends.tensors import ordering, reductions
from weft.frontends.tensors.arrays import joining, shapes
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node, promoted
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.dtypes import INT
from weft.frontends.tensors.arrays.executables import ExecutableTuple, together
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.arrays.sorting import sort
from weft.frontends.tensors.blocks import in_one
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.distinct_values import Wanted
from weft.frontends.tensors.nodes import call

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
    """Return the values of an array, ascending, first positions in the flattened array, inverse and counts."""
    return UniqueAll(*_determined(x, Wanted(one_nan=False, firsts=True, counts=True, numbers=True)))


@public()
@needs_lengths
def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """Return the values of an array, ascending, and how often each is there; NaNs are all different."""
    return UniqueCounts(*_determined(x, Wanted(one_nan=False, counts=True)))


@public()
@needs_lengths
def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """Return the values of an array, ascending, and for each element which of them it is."""
    return UniqueInverse(*_determined(x, Wanted(one_nan=False, numbers=True)))


@public()
@needs_lengths
def unique_values(x: ArrayLike, /) -> Tensor:
    """Return the values of an array, ascending; NaNs are all different."""
    (values,) = _determined(x, Wanted(one_nan=False))
    return values


def _determined(x: Any, wanted: Wanted) -> list[Tensor]:
    """Return the values of an array, and of first positions, numbers and counts what is wanted."""
    found = ordering.unique(as_node(x), wanted)
    return [Tensor(one) for one in (found.values, found.firsts, found.numbers, found.counts) if one is not None]


@public("element", "test_elements", ignored="assume_unique")
@needs_lengths
def isin(x1: ArrayLike, x2: ArrayLike, /, invert: bool = False) -> Tensor:
    """Return for each element of `x1` whether it is one of `x2`; with `invert`, whether it is none."""
    left = as_node(x1, as_node(x2).dtype)
    return Tensor(ordering.isin(left, as_node(x2, left.dtype), invert=invert))


def _unique_of(x: Chunk, *, axis: int, at: int, equal_nan: bool) -> Chunk:
    return np.unique(x, True, True, True, axis=axis, equal_nan=equal_nan)[at]


@public("ar", ignored="aggregate_size")
def unique(
    x: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """Return the values of an array, ascending; with `axis`, the different slices along it.

    NaN is one value, or with `equal_nan` false as many as there are. On request: the first positions of the values,
    the value number of each element, and counts. Values ascend even if `sorted` does not ask for it. With `axis` the
    array is read as one chunk.
    """
    if axis is None:
        chosen = _determined(x, Wanted(bool(equal_nan), bool(return_index), bool(return_counts), bool(return_inverse)))
    else:
        wanted = [True, return_index, return_inverse, return_counts]
        chosen = [one for one, want in zip(_slices(x, axis, equal_nan), wanted, strict=True) if want]
    return chosen[0] if len(chosen) == 1 else ExecutableTuple(chosen)


def _slices(x: Any, axis: int, equal_nan: bool) -> list[Tensor]:
    given = as_tensor(x)
    along = reductions.axis_of(axis, given.ndim)
    node = in_one(given.node)
    cut = Cut.unknown(1)
    grid = tuple([cut if a == along else one for a, one in enumerate(node.grid)])
    flat = (Cut.whole(node.shape[along]),)
    kinds = [(grid, node.dtype), ((cut,), INT), (flat, INT), ((cut,), INT)]
    return [
        Tensor(call(_unique_of, node, cuts, dtype, name="unique", axis=along, at=at, equal_nan=equal_nan))
        for at, (cuts, dtype) in enumerate(kinds)
    ]


@public("ar1", "ar2")
def in1d(x1: ArrayLike, x2: ArrayLike, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Return for each element of the flat `x1` whether it is one of `x2`."""
    return isin(shapes.ravel(x1), x2, invert=invert)


@public("ar1", "ar2", ignored="aggregate_size")
def union1d(x1: ArrayLike, x2: ArrayLike) -> Tensor:
    """Return the values that are in one of two arrays, ascending."""
    parts, _ = promoted([x1, x2])
    both: Tensor = unique(joining.concat([shapes.ravel(Tensor(part)) for part in parts]))
    return both


@public("ar1", "ar2")
def setdiff1d(x1: ArrayLike, x2: ArrayLike, assume_unique: bool = False) -> Tensor:
    """Return the values of one array that are not in another one, ascending; in their order if they are unique."""
    values = shapes.ravel(x1) if assume_unique else unique(x1)
    return values[isin(values, x2, invert=True)]


def _both(x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    parts, dtype = promoted([x1, x2])
    one, other = [shapes.ravel(Tensor(part)).astype(dtype) for part in parts]
    return one, other


@public("ar1", "ar2")
def intersect1d(x1: ArrayLike, x2: ArrayLike, assume_unique: bool = False, return_indices: bool = False) -> Any:
    """Return the values that are in both of two arrays, ascending; on request with their first positions in both."""
    one, other = _both(x1, x2)
    if not return_indices:
        values = unique(one)
        return values[isin(values, other)]
    (values, firsts), (others, seconds) = unique(one, return_index=True), unique(other, return_index=True)
    mine, theirs = isin(values, other), isin(others, one)
    return ExecutableTuple([values[mine], firsts[mine], seconds[theirs]])


@public("ar1", "ar2")
def setxor1d(x1: ArrayLike, x2: ArrayLike, assume_unique: bool = False) -> Tensor:
    """Return the values that are in exactly one of two arrays, ascending."""
    values, others = (unique(one) for one in _both(x1, x2))
    alone = [values[isin(values, others, invert=True)], others[isin(others, values, invert=True)]]
    made: Tensor = sort(joining.concat(alone))
    return made
