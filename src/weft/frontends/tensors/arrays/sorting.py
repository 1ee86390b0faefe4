"""Sorting, partial sorting, and the largest elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import ordering, shaping
from weft.frontends.tensors.arrays import shapes
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.dtypes import INT
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.registry import method, public
from weft.frontends.tensors.arrays.selection import take_along_axis
from weft.frontends.tensors.arrays.shapes import ravel
from weft.frontends.tensors.reductions import axis_of

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.frontends.tensors.types import ArrayLike


def _top(x: Any, k: int, axis: int | None, largest: bool, order: bool, fields: Any) -> tuple[Tensor, Tensor]:
    given = as_tensor(x) if axis is not None else ravel(x)
    axis = axis_of(-1 if axis is None else axis, given.ndim)
    k = min(k, given.shape[axis])
    if k < 1:
        least = f"; largest=False gives the {-k} smallest" if k < 0 else ""
        raise ValueError(f"k is {k}: ask for one element at least, of an axis that has some{least}")
    made = ordering.largest(given.node, axis, k, most=largest, order=fields_of(given, fields), sorted_=order)
    return Tensor(made[0]), Tensor(made[1])


@public("a", ignored="parallel_kind psrs_kinds", method=True)
@needs_lengths
def topk(
    x: ArrayLike,
    k: int,
    axis: int | None = -1,
    largest: bool = True,
    sorted: bool = True,
    order: Any = None,
    return_index: bool = False,
) -> Any:
    """Return the k largest (or smallest) elements along an axis, with None of the flattened array.

    With `return_index` also their positions. `order` are fields of a structured array, the first to compare first.
    """
    made = _top(x, k, axis, largest, sorted, order)
    return ExecutableTuple(made) if return_index else made[0]


@public("a", ignored="parallel_kind psrs_kinds")
@needs_lengths
def argtopk(
    x: ArrayLike, k: int, axis: int | None = -1, largest: bool = True, sorted: bool = True, order: Any = None
) -> Tensor:
    """Return the positions of the k largest (or smallest) elements along an axis, in the order of `topk`."""
    return _top(x, k, axis, largest, sorted, order)[1]


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


def _to_sort(x: Any, axis: int | None, kind: str | None, order: Any) -> tuple[ArrayNode, int, tuple[str, ...] | None]:
    if kind not in _KINDS:
        raise ValueError(f"sort kind is {kind!r}; give one of {', '.join(map(repr, _KINDS[1:]))}")
    node = as_node(x)
    if axis is None:
        node, axis = shaping.reshape(node, (node.size,)), 0
    return node, axis_of(axis, len(node.grid)), fields_of(Tensor(node), order)


def _on_an_axis(x: Any, axis: int | None) -> tuple[Tensor, int | None]:
    """Return an array and an axis; positions in an array without axes are those in an array of one element."""
    given = as_tensor(x)
    return (shapes.ravel(given), 0) if given.ndim == 0 and axis in (-1, 0) else (given, axis)


@public("a", ignored="parallel_kind psrs_kinds")
@needs_lengths
def sort(
    x: ArrayLike,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: Any = None,
    *,
    descending: bool = False,
    stable: bool = True,
    return_index: bool = False,
) -> Any:
    """Sort along an axis, by default the flattened array; with `return_index` also return the former positions.

    `order` are fields of a structured array, the first to compare first. Equal elements keep their order unless
    `stable` is false, whatever `kind` of NumPy's algorithms is given.
    """
    node, along, fields = _to_sort(x, axis, kind, order)
    made = Tensor(ordering.sort(node, along, descending=descending, stable=stable, order=fields))
    if not return_index:
        return made
    places = ordering.argsort(node, along, descending=descending, stable=stable, order=fields)
    return ExecutableTuple([made, Tensor(places)])


@public("a", ignored="parallel_kind psrs_kinds", method=True)
@needs_lengths
def argsort(
    x: ArrayLike,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    order: Any = None,
    *,
    descending: bool = False,
    stable: bool = True,
) -> Tensor:
    """Return the positions of the elements in sorted order along an axis; see `sort`."""
    node, along, fields = _to_sort(*_on_an_axis(x, axis), kind, order)
    return Tensor(ordering.argsort(node, along, descending=descending, stable=stable, order=fields))


@public("a", ignored="need_align")
def partition(
    x: ArrayLike,
    kth: Any,
    axis: int | None = -1,
    kind: str = "introselect",
    order: Any = None,
    return_index: bool = False,
) -> Any:
    """Return an array whose elements at positions `kth` along an axis are those of the sorted array.

    Elements that are not larger come before them, elements that are not smaller after them. `order` are fields of a
    structured array, the first to compare first; `kind` has one value. With `return_index` also their positions.
    """
    given, along, at = _split_at(x, axis, kth, kind)
    if return_index:
        indices = argpartition(given, at, along, kind, order)
        return ExecutableTuple([take_along_axis(given, indices, axis=along), indices])
    if not given.shape[along]:
        return Tensor(given.node)
    return Tensor(ordering.partition(given.node, along, at, order=fields_of(given, order), places=False))


@public("a", ignored="need_align", method=True)
def argpartition(x: ArrayLike, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Tensor:
    """Return the positions of the elements in the order of `partition`."""
    given, along, at = _split_at(*_on_an_axis(x, axis), kth, kind)
    if not given.shape[along]:
        return given.astype(INT)
    return Tensor(ordering.partition(given.node, along, at, order=fields_of(given, order), places=True))


def _split_at(x: Any, axis: int | None, kth: Any, kind: str) -> tuple[Tensor, int, tuple[int, ...]]:
    if kind != "introselect":
        raise ValueError(f"{kind!r} is an unrecognized kind of select; give 'introselect'")
    given = shapes.ravel(x) if axis is None else as_tensor(x)
    along = axis_of(-1 if axis is None else axis, given.ndim)
    n = given.shape[along]
    numbers = np.atleast_1d(np.asarray(kth.fetch() if isinstance(kth, Tensor) else kth))
    if numbers.dtype.kind not in "iu":
        raise TypeError("Partition index must be integer")
    if n and np.any((numbers < -n) | (numbers >= n)):
        raise ValueError(f"kth(={kth}) out of bounds ({n})")
    return given, along, tuple(sorted({int(one) % max(n, 1) for one in numbers.tolist()}))


@method("sort")
def _sort_in_place(self: Tensor, *args: Any, **kwargs: Any) -> None:
    """Sort along an axis, in place, with the arguments of `weft.tensor.sort`."""
    self._set(sort(self, *args, **kwargs)._node)


@method("partition")
def _partition_in_place(self: Tensor, *args: Any, **kwargs: Any) -> None:
    """Move elements to their positions in sorted order, in place, with the arguments of `weft.tensor.partition`."""
    self._set(partition(self, *args, **kwargs)._node)
