"""Elements chosen by numbers, conditions and coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import blocks, indexing, ordering, shaping
from weft.frontends.tensors.arrays import searching, shapes
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node, converted, promoted
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.dtypes import INT
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.registry import method, public
from weft.frontends.tensors.arrays.searching import flatnonzero
from weft.frontends.tensors.arrays.shapes import ravel
from weft.frontends.tensors.reductions import axis_of

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Chunk


@public("condition", "a", out=3)
def compress(condition: ArrayLike, x: ArrayLike, axis: int | None = None) -> Tensor:
    """Return the elements along an axis for which a condition holds."""
    given = ravel(x) if axis is None else as_tensor(x)
    along = axis_of(0 if axis is None else axis, given.ndim)
    if np.ndim(condition) != 1:
        raise ValueError("condition must be a 1-d array")
    places = flatnonzero(condition) if isinstance(condition, Tensor) else np.flatnonzero(condition)
    return take(given, places, axis=along)


@public("a", method=True, out=3)
@needs_lengths
def take(x: ArrayLike, indices: ArrayLike, /, axis: int | None = None, mode: str = "raise") -> Tensor:
    """Return elements along an axis by their positions; by default of the flattened array.

    Positions out of bounds are an IndexError, or with `mode` "wrap" counted on from the start, or with "clip" the
    nearest there are.
    """
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    node, numbers = as_node(x), as_node(indices)
    if numbers.dtype.kind not in "iu":
        raise TypeError(f"indices are whole numbers, not {numbers.dtype}")
    if axis is None:
        if len(node.grid) != 1:
            node = shaping.reshape(node, (node.size,))
        axis = 0
    along = axis_of(axis, len(node.grid))
    if mode == "wrap":
        numbers = apply(np.remainder, Tensor(numbers), node.shape[along]).node
    elif mode == "clip":
        numbers = apply(np.minimum, apply(np.maximum, Tensor(numbers), 0), node.shape[along] - 1).node
    return Tensor(indexing.take(node, numbers, along))


@public()
@needs_lengths
def take_along_axis(x: ArrayLike, indices: ArrayLike, /, axis: int = -1) -> Tensor:
    """Return elements along an axis, by an index for each position on the other axes, which are broadcast."""
    node, numbers = as_node(x), as_node(indices)
    if numbers.dtype.kind not in "iu":
        raise IndexError(f"`indices` must be an integer array, not {numbers.dtype}")
    if len(node.grid) != len(numbers.grid):
        raise ValueError("`indices` and `x` must have the same number of dimensions")
    along = axis_of(axis, len(node.grid))
    pairs = zip(node.shape, numbers.shape, strict=True)
    if any(n != m and 1 not in (n, m) for a, (n, m) in enumerate(pairs) if a != along):
        raise IndexError(f"shape mismatch: indices of shape {numbers.shape} for an array of shape {node.shape}")
    return Tensor(ordering.take_along(node, numbers, along))


@public()
def copyto(dst: Tensor, src: Any, casting: Any = "same_kind", where: ArrayLike = True) -> None:
    """Copy the elements of `src`, broadcast, with `where` true into `dst`. TypeError: they do not fit."""
    given = as_tensor(np.asarray(src, dst.dtype) if type(src) is int else src)  # OverflowError: it does not fit
    if not np.can_cast(given.dtype, dst.dtype, casting):
        raise TypeError(f"Cannot cast from {given.dtype!r} to {dst.dtype!r} according to the rule {casting!r}")
    extra = given.shape[: max(given.ndim - dst.ndim, 0)]
    if set(extra) == {1}:  # NumPy leaves such axes out
        given = shapes.squeeze(given, tuple(range(len(extra))))
    values = shapes.spread(Tensor(converted(given, dst.dtype)), dst.shape)
    chosen = values if where is True else searching.where(shapes.spread(where, dst.shape), values, dst)
    dst._set(chosen._node)


@public("condition", "a")
def extract(condition: ArrayLike, x: ArrayLike) -> Tensor:
    """Return the elements of the flat array for which a condition holds."""
    return compress(shapes.ravel(condition), shapes.ravel(x), axis=0)


@public(method=True, out=2)
def choose(a: ArrayLike, choices: Sequence[Any], mode: str = "raise") -> Tensor:
    """Return for each element of `a` that of the array of this number. ValueError: there is no such array."""
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"mode is {mode!r}; give 'raise', 'wrap' or 'clip'")
    nodes, dtype = promoted(choices[i] for i in range(len(choices)))
    made = [Tensor(one) for one in nodes]
    given = as_tensor(a)
    shape = np.broadcast_shapes(given.shape, *[one.shape for one in made])
    at = shapes.spread(given, shape).node
    inputs = [shapes.spread(one.astype(dtype), shape).node for one in made]
    return Tensor(blocks.elementwise(_chosen, [at, *inputs], dtype, "choose", mode=mode))


def _chosen(a: Chunk, *choices: Chunk, mode: str) -> Chunk:
    return np.choose(a, choices, mode=mode)  # type: ignore[call-overload]


@public("indices", "dims")
def unravel_index(indices: ArrayLike, shape: int | Sequence[int], order: str = "C") -> tuple[Tensor, ...]:
    """Return the coordinates that numbers in the flat array stand for. ValueError: a number is out of bounds."""
    given = as_tensor(indices)
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    if order not in ("C", "F"):
        raise ValueError("only 'C' or 'F' order is permitted")
    made = [
        Tensor(blocks.elementwise(_coordinate, [given.loose], INT, "unravel", shape=shape, order=order, at=at))
        for at in range(len(shape))
    ]
    return ExecutableTuple(made)


def _coordinate(x: Chunk, *, shape: tuple[int, ...], order: Any, at: int) -> Chunk:
    return np.asarray(np.unravel_index(x, shape, order)[at])


@method("compress", "condition", "a")
def _compress_method(self: Tensor, condition: ArrayLike, axis: int | None = None, out: Any = None) -> Tensor:
    """Return the elements along an axis for which a condition holds; without an axis, of the flat array."""
    return compress(condition, self, axis, out)


@method("fill")
def _fill(self: Tensor, value: Any) -> None:
    """Give all elements one value."""
    self[...] = value
