"""Choosing, sorting, finding, and sets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.frontends.tensors import indexing, searching, shaping
from weft.frontends.tensors.arrays.array import Tensor, aligned, as_node, taking_out
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.executables import ExecutableTuple, together
from weft.frontends.tensors.nodes import Node
from weft.frontends.tensors.reductions import axes_of


@together
class UniqueAll(NamedTuple):
    """The values of an array, where each is first, which value each element is, and how often each is there."""

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


_NONE = object()


@needs_lengths
def where(condition: Any, x1: Any = _NONE, x2: Any = _NONE, /) -> Any:
    """Return elements of `x1` where a condition holds, else of `x2`; without both, `nonzero` of the condition."""
    if x1 is _NONE and x2 is _NONE:
        return nonzero(condition)
    if x1 is _NONE or x2 is _NONE:
        raise ValueError("either both or neither of x and y should be given")
    chosen: Any
    chosen, left, right = aligned(condition if isinstance(condition, Tensor) else Tensor(as_node(condition)), x1, x2)
    if chosen.dtype.kind != "b":
        chosen = shaping.cast(chosen, np.dtype(bool))
    dtype = np.result_type(*[one.dtype if isinstance(one, Node) else one for one in (left, right)])
    return Tensor(searching.where(chosen, _held(left, dtype), _held(right, dtype), dtype))


def _held(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a node as it is, a number as one of that type: OverflowError if it cannot be."""
    return value if isinstance(value, Node) else np.asarray(value, dtype)[()].item()


@needs_lengths
def nonzero(x: Any, /) -> tuple[Tensor, ...]:
    """Return the coordinates of the elements that are not zero, one array for each axis; ValueError for a 0-d array."""
    node = as_node(x)
    if not node.grid:
        raise ValueError("nonzero of a 0-d array is not defined; make it one of one axis first")
    return ExecutableTuple([Tensor(one) for one in searching.nonzero(node)])


_KINDS = (None, "quicksort", "mergesort", "heapsort", "stable")


def fields_of(x: Tensor, order: Any) -> tuple[str, ...] | None:
    """Return the fields that `order` names, a str or several. ValueError: the array has no such field."""
    if order is None:
        return None
    wanted = (order,) if isinstance(order, str) else tuple(order)
    for one in wanted:
        if one not in (x.dtype.names or ()):
            raise ValueError(f"unknown field name: {one!r}; the array is of {x.dtype}")
    return wanted


def _to_sort(x: Any, axis: int | None, kind: str | None, order: Any) -> tuple[Node, int, tuple[str, ...] | None]:
    if kind not in _KINDS:
        raise ValueError(f"sort kind is {kind!r}; give one of {', '.join(map(repr, _KINDS[1:]))}")
    node = as_node(x)
    if axis is None:
        node, axis = shaping.reshape(node, (node.size,)), 0
    return node, axes_of(axis, len(node.grid))[0], fields_of(Tensor(node), order)


@needs_lengths
def sort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: Any = None,
    *,
    descending: bool = False,
    stable: bool = True,
    return_index: bool = False,
) -> Any:
    """Sort along an axis, without one the flat array; with `return_index`, and tell the places that elements had.

    `order` are fields of a structured array, the first to compare first. Equal elements keep their order unless
    `stable` is false, whatever `kind` of NumPy's algorithms is given.
    """
    node, along, fields = _to_sort(x, axis, kind, order)
    made = Tensor(searching.sort(node, along, descending=descending, stable=stable, order=fields))
    if not return_index:
        return made
    places = searching.argsort(node, along, descending=descending, stable=stable, order=fields)
    return ExecutableTuple([made, Tensor(places)])


@needs_lengths
def argsort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: Any = None,
    *,
    descending: bool = False,
    stable: bool = True,
) -> Tensor:
    """Return the places of the elements in sorted order along an axis, as `sort` has them."""
    node, along, fields = _to_sort(x, axis, kind, order)
    return Tensor(searching.argsort(node, along, descending=descending, stable=stable, order=fields))


@needs_lengths
def searchsorted(x1: Any, x2: Any, /, side: str = "left", sorter: Any = None) -> Tensor:
    """Return where each element of `x2` would go into `x1`, which is sorted, or is so in the order of `sorter`."""
    if side not in ("left", "right"):
        raise ValueError(f"side is {side!r}; give 'left' or 'right'")
    sorted_ = as_node(x1)
    if len(sorted_.grid) != 1:
        raise ValueError("object of too small depth for desired array" if not sorted_.grid else "x1 has one axis")
    order = None if sorter is None else as_node(sorter)
    if order is not None and order.shape != sorted_.shape:
        raise ValueError("sorter.size must equal len(x1)")
    return Tensor(searching.searchsorted(sorted_, as_node(x2, sorted_.dtype), side, order))


@needs_lengths
def unique_all(x: Any, /) -> UniqueAll:
    """Return the values of an array, ascending, their first places in the flat array, inverse and counts."""
    values, indices, inverse, counts = searching.unique(as_node(x))
    return UniqueAll(Tensor(values), Tensor(indices), Tensor(inverse), Tensor(counts))


@needs_lengths
def unique_counts(x: Any, /) -> UniqueCounts:
    """Return the values of an array, ascending, and how often each is there; NaNs are all different."""
    values, _, _, counts = searching.unique(as_node(x), firsts=False)
    return UniqueCounts(Tensor(values), Tensor(counts))


@needs_lengths
def unique_inverse(x: Any, /) -> UniqueInverse:
    """Return the values of an array, ascending, and for each element which of them it is."""
    values, _, inverse, _ = searching.unique(as_node(x))
    return UniqueInverse(Tensor(values), Tensor(inverse))


@needs_lengths
def unique_values(x: Any, /) -> Tensor:
    """Return the values of an array, ascending; NaNs are all different."""
    return Tensor(searching.unique_values(as_node(x)))


@needs_lengths
def isin(x1: Any, x2: Any, /, invert: bool = False) -> Tensor:
    """Return for each element of `x1` whether it is one of `x2`; with `invert`, whether it is none."""
    left = as_node(x1, as_node(x2).dtype)
    return Tensor(searching.isin(left, as_node(x2, left.dtype), invert=invert))


@taking_out(3)
@needs_lengths
def take(x: Any, indices: Any, /, axis: int | None = None) -> Tensor:
    """Return elements along an axis by their numbers; without an axis, of the flat array."""
    node, numbers = as_node(x), as_node(indices)
    if numbers.dtype.kind not in "iu":
        raise TypeError(f"indices are whole numbers, not {numbers.dtype}")
    if axis is None:
        if len(node.grid) != 1:
            node = shaping.reshape(node, (node.size,))
        axis = 0
    return Tensor(indexing.take(node, numbers, axes_of(axis, len(node.grid))[0]))


@needs_lengths
def take_along_axis(x: Any, indices: Any, /, axis: int = -1) -> Tensor:
    """Return elements along an axis, by an index for each place of the other axes, which are broadcast."""
    node, numbers = as_node(x), as_node(indices)
    if numbers.dtype.kind not in "iu":
        raise IndexError(f"`indices` must be an integer array, not {numbers.dtype}")
    if len(node.grid) != len(numbers.grid):
        raise ValueError("`indices` and `x` must have the same number of dimensions")
    return Tensor(searching.take_along(node, numbers, axes_of(axis, len(node.grid))[0]))
