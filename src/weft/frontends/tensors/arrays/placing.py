"""Assignments by functions: NumPy's `put`, `place` and their like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import reductions
from weft.frontends.tensors.arrays import searching, shapes
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.conversion import is_plain
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.arrays.repeating import resize

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike


def _changed(x: Any, name: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} changes a Weft array, not {type(x).__name__}: call numpy.{name}")
    return x


def _castable(values: Any, x: Tensor) -> Tensor:
    if is_plain(values):
        return as_tensor(np.asarray(values, x.dtype))  # OverflowError, ValueError: a number does not fit
    made = as_tensor(values)
    if not isinstance(values, list | tuple) and not np.can_cast(made.dtype, x.dtype, "same_kind"):
        raise TypeError(f"Cannot cast array data from {made.dtype!r} to {x.dtype!r} according to the rule 'same_kind'")
    return made


def _set_flat(x: Tensor, at: Tensor, values: Tensor) -> None:
    """Set elements of the flat array, which keeps its chunks."""
    chunks = x.chunks
    x.flat[at] = values.astype(x.dtype)
    x._set(x.rechunk(chunks)._node)


@public("a")
def putmask(x: Any, /, mask: ArrayLike, values: ArrayLike) -> None:
    """Set the elements where a mask holds to those of `values` at the same places, repeated if they are fewer."""
    given, chosen = _changed(x, "putmask"), as_tensor(mask).astype(bool)
    if chosen.shape != given.shape:
        raise ValueError("putmask: mask and data must be the same size")
    new = _castable(values, given)
    if not new.size:
        return
    if new.shape != given.shape:
        new = resize(new, given.shape) if new.size > 1 else shapes.reshape(new, ())
    given[...] = searching.where(chosen, new.astype(given.dtype), given)


@public("a")
def put(x: Any, /, ind: ArrayLike, v: ArrayLike, mode: str = "raise") -> None:
    """Set the elements at positions of the flat array to values, repeated if they are fewer."""
    given, at = _changed(x, "put"), shapes.ravel(as_tensor(ind))
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    new = shapes.ravel(_castable(v, given))
    if not at.size or not new.size:
        return
    if mode == "wrap":
        at = apply(np.remainder, at, given.size)
    elif mode == "clip":
        at = apply(np.minimum, apply(np.maximum, at, 0), given.size - 1)
    _set_flat(given, at.astype(np.int64), resize(new, at.shape))


@public()
def place(arr: Any, mask: ArrayLike, vals: ArrayLike) -> None:
    """Set the elements where a mask holds to values one after another, repeated if they are fewer."""
    given, chosen = _changed(arr, "place"), shapes.ravel(as_tensor(mask).astype(bool))
    if chosen.size != given.size:
        raise ValueError("place: mask and data must be the same size")
    new = shapes.ravel(_castable(vals, given))
    at = searching.flatnonzero(chosen)
    if not at.size:
        return
    if not new.size:
        raise ValueError("Cannot insert from an empty array!")
    _set_flat(given, at, resize(new, at.shape))


@public()
def put_along_axis(arr: Any, indices: ArrayLike, values: ArrayLike, axis: int | None = -1) -> None:
    """Set the elements along an axis that an index for each position on the other axes selects.

    The array is read as one chunk. IndexError: an index is no whole number.
    """
    given, at = _changed(arr, "put_along_axis"), as_tensor(indices)
    new = as_tensor(np.asarray(values, given.dtype) if is_plain(values) else values)
    if axis is None:
        if at.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        _set_flat(given, at, new)
        return
    along = reductions.axis_of(axis, given.ndim)
    if at.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    if at.ndim != given.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    index: list[Any] = []
    for a, n in enumerate(given.shape):
        size = [-1 if other == a else 1 for other in range(given.ndim)]
        index.append(at if a == along else np.arange(n).reshape(size))
    given[tuple(index)] = new.astype(given.dtype)
