"""Arrays of another size: repeated, or without zeros at their ends."""

from __future__ import annotations

import operator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import reductions, shaping
from weft.frontends.tensors.arrays import creation, executables, joining, searching, selection, shapes, statistics
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.registry import public

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike


@public("a")
@needs_lengths
def resize(x: ArrayLike, /, new_shape: Any) -> Tensor:
    """Return the elements, again and again, in another shape; zeros if there are none."""
    size = tuple(new_shape) if isinstance(new_shape, tuple | list) else (operator.index(new_shape),)
    if any(n < 0 for n in size):
        raise ValueError("all elements of `new_shape` must be non-negative")
    flat, total = shapes.ravel(x), prod(size)
    if not flat.size or not total:
        return creation.zeros(size, flat.dtype)
    times = -(-total // flat.size)
    if times > shaping.TOGETHER:
        at = apply(np.remainder, creation.arange(total), flat.size)
        return shapes.reshape(selection.take(flat, at, axis=0), size)
    made = joining.concat([flat] * times, axis=0) if times > 1 else flat
    return shapes.reshape(made[:total], size, copy=True)


@public("filt")
def trim_zeros(x: ArrayLike, /, trim: str = "fb", axis: Any = None) -> Tensor:
    """Return the part of an array without zeros at the front ("f") and back ("b") of axes; it is computed for that."""
    given, sides = as_tensor(x), trim.lower()
    if sides not in ("fb", "bf", "f", "b"):
        raise ValueError(f"unexpected character(s) in `trim`: {trim!r}")
    axes = reductions.axes_of(axis, given.ndim)
    places = searching.nonzero(given) if given.ndim else ()
    if not places:
        return given
    there = bool(places[0].size)
    ends = executables.fetch([f(places[a]) for a in axes for f in (statistics.min, statistics.max)]) if there else ()
    index: list[Any] = [slice(None)] * given.ndim
    for at, a in enumerate(axes):
        lo, hi = (int(ends[2 * at]), int(ends[2 * at + 1]) + 1) if there else (0, 0)
        index[a] = slice(lo if "f" in sides else None, hi if "b" in sides or not there else None)
    return given[tuple(index)]
