"""Orders of elements: sorting, searching in sorted arrays, and sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import sample_sort
from weft.frontends.tensors.blocks import apply, in_one, mapped, pick, rechunk, whole_along
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.distinct_values import DistinctNodes, Wanted, contained, distinct
from weft.frontends.tensors.indexing import take_slices
from weft.frontends.tensors.nodes import ArrayNode, ChunkLocator, NodeInput, call

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk
    from weft.operators.region_steps import ChunkPlace

INDEX = np.dtype(np.int64)


# --------------------------------------------------------------------------------------------------------- sorting


Fields = tuple[str, ...] | None
"""The fields of a structured array to compare, most significant first."""


def _sorted(x: Chunk, *, axis: int, descending: bool, stable: bool, order: Fields) -> Chunk:
    if stable and order is None:
        made = sample_sort.ascending(x, axis)
    else:
        made = np.sort(x, axis=axis, kind="stable" if stable else None, order=order)
    return np.flip(made, axis) if descending else made


def _ordered(x: Chunk, *, axis: int, descending: bool, stable: bool, order: Fields) -> Chunk:
    kind: Any = "stable" if stable else None
    if not descending:
        return np.argsort(x, axis=axis, kind=kind, order=order)
    # two reversals keep equal elements in their order
    turned = np.argsort(np.flip(x, axis), axis=axis, kind=kind, order=order)
    return x.shape[axis] - 1 - np.flip(turned, axis)


def sort(node: ArrayNode, axis: int, *, descending: bool, stable: bool, order: Fields = None) -> ArrayNode:
    """Sort along an axis, which is read as one chunk unless it is the only one and long."""
    if sample_sort.is_long(node):
        made = sample_sort.in_order(node, places=False)
        return take_slices(made, [slice(None, None, -1)]) if descending else made
    node = whole_along(node, (axis,))
    return call(
        _sorted, node, node.grid, node.dtype, name="sort", axis=axis, descending=descending, stable=stable, order=order
    )


def argsort(node: ArrayNode, axis: int, *, descending: bool, stable: bool, order: Fields = None) -> ArrayNode:
    """Return the positions of the elements in sorted order along an axis, which is read as in `sort`."""
    if sample_sort.is_long(node):
        if not descending:
            return sample_sort.in_order(node, places=True)
        turn = [slice(None, None, -1)]  # two reversals keep equal elements in their order
        turned = sample_sort.in_order(take_slices(node, turn), places=True)
        return apply(np.subtract, node.size - 1, take_slices(turned, turn))
    node = whole_along(node, (axis,))
    return call(
        _ordered, node, node.grid, INDEX, name="argsort", axis=axis, descending=descending, stable=stable, order=order
    )


def _divided(x: Chunk, *, kth: Sequence[int], axis: int, order: Fields, places: bool) -> Chunk:
    return (np.argpartition if places else np.partition)(x, kth, axis=axis, order=order)


def partition(node: ArrayNode, axis: int, kth: Sequence[int], *, order: Fields, places: bool) -> ArrayNode:
    """Move the elements with numbers `kth` to their positions in sorted order; a long array is sorted instead.

    With `places` return the positions of the elements in that order.
    """
    if sample_sort.is_long(node) or not kth:
        return (argsort if places else sort)(node, axis, descending=False, stable=False, order=order)
    node = whole_along(node, (axis,))
    name, dtype = ("argpartition", INDEX) if places else ("partition", node.dtype)
    return call(_divided, node, node.grid, dtype, name=name, kth=tuple(kth), axis=axis, order=order, places=places)


def _largest(x: Chunk, places: Any = None, *, k: int, axis: int, largest: bool, order: Fields, inner: bool) -> Chunk:
    """Return values and positions of the k largest (or smallest) along an axis, in order except for `inner` ones."""
    n = x.shape[axis]
    k = min(k, n)
    at = np.argpartition(x, n - k if largest else k - 1, axis=axis, order=order)
    at = np.take(at, range(n - k, n) if largest else range(k), axis=axis)
    values = np.take_along_axis(x, at, axis)
    if not inner:
        by = np.argsort(values, axis=axis, kind="stable", order=order)
        by = np.flip(by, axis) if largest else by
        values, at = np.take_along_axis(values, by, axis), np.take_along_axis(at, by, axis)
    return values, at if places is None else np.take_along_axis(places, at, axis)


def _largest_here(place: ChunkPlace, x: Chunk, *, where: ChunkLocator, axis: int, **how: Any) -> Chunk:
    values, places = _largest(x, axis=axis, **how)
    return values, places + where(place.number).begin[axis]


def largest(
    node: ArrayNode, axis: int, k: int, *, most: bool, order: Fields, sorted_: bool
) -> tuple[ArrayNode, ArrayNode]:
    """Return the k largest (or smallest) elements along an axis, and their positions.

    If chunks have more than k of them each, those of every chunk are selected first, and only they are combined.
    """
    how: dict[str, Any] = {"k": k, "axis": axis, "largest": most, "order": order}
    cut = node.grid[axis]
    inputs = [node]
    if cut.n > 1 and k * cut.n < cut.size:
        few = Cut.of([min(k, n) for n in cut.lengths()])
        grid = tuple([few if a == axis else one for a, one in enumerate(node.grid)])
        where = ChunkLocator(node.grid)
        found = call(_largest_here, node, grid, node.dtype, placed=True, name="topk", where=where, inner=True, **how)
        inputs = [pick(found, at, grid, dtype, "topk") for at, dtype in enumerate((node.dtype, INDEX))]
    inputs = [whole_along(one, (axis,)) for one in inputs]
    grid = tuple([Cut.whole(k) if a == axis else one for a, one in enumerate(inputs[0].grid)])
    made = call(_largest, inputs, grid, node.dtype, name="topk", inner=not sorted_, **how)
    return pick(made, 0, grid, node.dtype, "topk"), pick(made, 1, grid, INDEX, "argtopk")


def _found(x2: Chunk, x1: Chunk, sorter: Any = None, *, side: str) -> Chunk:
    return np.searchsorted(x1, x2, side=side, sorter=sorter)  # type: ignore[call-overload]


def searchsorted(x1: ArrayNode, x2: ArrayNode, side: str, sorter: ArrayNode | None) -> ArrayNode:
    """Return the insertion positions of the elements of x2 in x1, which is read as one chunk."""
    inputs = [NodeInput(x2), mapped(in_one(x1), x2.grid, [None] * len(x2.grid))]
    if sorter is not None:
        inputs.append(mapped(in_one(sorter), x2.grid, [None] * len(x2.grid)))
    return call(_found, inputs, x2.grid, INDEX, name="searchsorted", side=side)


def _along(x: Chunk, indices: Chunk, *, axis: int) -> Chunk:
    return np.take_along_axis(x, indices, axis)


def take_along(node: ArrayNode, indices: ArrayNode, axis: int) -> ArrayNode:
    """Return elements along an axis, by an index for each position; the axis is read as one chunk."""
    if _without(node.shape, axis) == _without(indices.shape, axis):
        node = whole_along(node, (axis,))
        own = Cut.whole(indices.shape[axis])
        indices = rechunk(indices, tuple([own if a == axis else cut for a, cut in enumerate(node.grid)]))
        return call(_along, [node, indices], indices.grid, node.dtype, name="take_along_axis", axis=axis)
    node, indices = in_one(node), in_one(indices)
    shape = list(np.broadcast_shapes(node.shape[:axis] + node.shape[axis + 1 :], _without(indices.shape, axis)))
    shape.insert(axis, indices.shape[axis])
    grid = tuple([Cut.whole(n) for n in shape])
    return call(_along, [node, indices], grid, node.dtype, name="take_along_axis", axis=axis)


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple([n for a, n in enumerate(shape) if a != axis])


# --------------------------------------------------------------------------------------------------------- finding


def nonzero(node: ArrayNode) -> tuple[ArrayNode, ...]:
    """Return the coordinates of the non-zero elements."""
    found = sample_sort.not_zero(node)
    (cut,) = found.grid
    return tuple([pick(found, axis, (cut,), INDEX, "nonzero") for axis in range(len(node.grid))])


def _unique(x: Chunk, *, one_nan: bool) -> Chunk:
    values, indices, inverse, counts = np.unique(
        x, return_counts=True, return_index=True, return_inverse=True, equal_nan=one_nan
    )
    return values, indices, inverse.reshape(np.shape(x)), counts


def is_large(node: ArrayNode) -> bool:
    """Return whether the distinct values of an array are determined chunk by chunk."""
    return node.chunks > 1 and node.nbytes >= sample_sort.SORTED_FROM and node.dtype.kind in "biuf"


def unique(node: ArrayNode, wanted: Wanted) -> DistinctNodes:
    """Return the distinct values of an array, ascending, and what is wanted beside them."""
    if is_large(node):
        return distinct(node, wanted)
    cut = Cut.unknown(1)
    node = in_one(node)
    found = call(_unique, node, (cut,), node.dtype, name="unique", one_nan=wanted.one_nan)
    return DistinctNodes(
        pick(found, 0, (cut,), node.dtype, "values"),
        pick(found, 1, (cut,), INDEX, "indices") if wanted.firsts else None,
        pick(found, 3, (cut,), INDEX, "counts") if wanted.counts else None,
        pick(found, 2, node.grid, INDEX, "inverse") if wanted.numbers else None,
    )


def _isin(x: Chunk, values: Chunk, *, invert: bool) -> Chunk:
    return np.isin(x, values, invert=invert)


def isin(x: ArrayNode, values: ArrayNode, *, invert: bool) -> ArrayNode:
    """Return whether each element of x is one of the values, which are read as one chunk unless there are many."""
    if is_large(values) and x.dtype == values.dtype and x.chunks > 1:
        return contained(x, values, invert=invert)
    inputs = [NodeInput(x), mapped(in_one(values), x.grid, [None] * len(x.grid))]
    return call(_isin, inputs, x.grid, np.dtype(bool), name="isin", invert=invert)
