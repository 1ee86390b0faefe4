"""Insertion and deletion of elements along an axis."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import reductions, shaping
from weft.frontends.tensors.arrays import creation, joining, selection, shapes
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.registry import public

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, NumpyArray


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer)


@public("arr")
def insert(x: ArrayLike, obj: Any, values: ArrayLike, axis: int | None = None) -> Tensor:
    """Insert values before positions along an axis; by default of the flattened array."""
    given = shapes.ravel(x) if axis is None else as_tensor(x)
    along = reductions.axis_of(0 if axis is None else axis, given.ndim)
    n = given.shape[along]
    at = _places(obj, n, n + 1)
    values = np.array(values.fetch() if isinstance(values, Tensor) else values, given.dtype)
    one = _is_whole(obj)
    if one and values.ndim and given.ndim > 1:
        values = np.moveaxis(values, 0, along) if values.ndim == given.ndim else np.expand_dims(values, along)
    rest = [size for a, size in enumerate(given.shape) if a != along]
    count = len(at) if not one else (values.shape[along] if values.ndim == given.ndim else 1)
    wanted = (*rest[:along], count, *rest[along:])
    block = shapes.spread(creation.asarray(values), wanted)
    if one:
        return joined([part_along(given, along, 0, int(at[0])), block, part_along(given, along, int(at[0]), n)], along)
    parts, last = [], 0
    for number in np.argsort(at, kind="stable"):
        place = int(at[number])
        parts += [part_along(given, along, last, place), part_along(block, along, int(number), int(number) + 1)]
        last = place
    return joined([*parts, part_along(given, along, last, n)], along)


@public("arr")
def delete(x: ArrayLike, obj: Any, axis: int | None = None) -> Tensor:
    """Delete positions along an axis; by default of the flattened array."""
    given = shapes.ravel(x) if axis is None else as_tensor(x)
    along = reductions.axis_of(0 if axis is None else axis, given.ndim)
    n = given.shape[along]
    gone = np.unique(_places(obj, n, n)).tolist()
    if len(gone) < shaping.TOGETHER:
        spans = itertools.pairwise([-1, *gone, n])
        return joined([part_along(given, along, lo + 1, hi) for lo, hi in spans], along)
    kept = np.ones(n, bool)
    kept[gone] = False
    return selection.take(given, creation.asarray(np.flatnonzero(kept)), axis=along)


def _places(obj: Any, n: int, end: int) -> NumpyArray:
    """Return positions along an axis of length n. IndexError: a position is not below `end`."""
    if isinstance(obj, slice):
        return np.arange(n)[obj]
    found = np.atleast_1d(np.asarray(obj.fetch() if isinstance(obj, Tensor) else obj))
    if found.dtype.kind == "b":
        return np.flatnonzero(found)
    found = found.astype(np.int64) if found.size == 0 else found
    if np.any((found < -n) | (found >= end)):
        raise IndexError(f"index {found.tolist()} is out of bounds for an axis of length {n}")
    return np.where(found < 0, found + n, found)


def part_along(x: Tensor, axis: int, lo: int, hi: int) -> Tensor:
    """Return the elements from `lo` up to `hi` along an axis."""
    return x[(*[slice(None)] * axis, slice(lo, hi))]


def joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Join arrays along an axis, without those that have no elements there."""
    return joining.concat([one for one in parts if one.shape[axis]] or parts[:1], axis=axis)
