"""Arrays made longer at both ends of their axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.arrays import creation, elementwise, quantiles, selection, shapes, statistics
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.dtypes import INT
from weft.frontends.tensors.arrays.insertion import joined, part_along
from weft.frontends.tensors.arrays.registry import public

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike

_SUMMARIES = {"maximum": statistics.max, "mean": statistics.mean, "median": quantiles.median, "minimum": statistics.min}
"""Modes of `pad` with a value computed from the whole line, or from its ends, at both ends."""


@public()
def pad(
    x: ArrayLike,
    pad_width: Any,
    mode: str = "constant",
    *,
    constant_values: Any = 0,
    reflect_type: str = "even",
    end_values: Any = 0,
    stat_length: Any = None,
) -> Tensor:
    """Return an array with more elements at both ends of its axes: `constant_values`, or its own elements.

    The modes are those of `numpy.pad` that have names, without "empty". NotImplementedError: another one.
    """
    whole = as_tensor(x)
    made = Tensor(whole._node, whole.order)  # not a view, even with no element more
    repeated = mode in ("edge", "wrap", "reflect", "symmetric")
    if not (repeated or mode in ("constant", "linear_ramp", *_SUMMARIES)) or reflect_type != "even":
        raise NotImplementedError(
            f"mode is {mode!r}; give 'constant', 'edge', 'wrap', 'reflect', 'symmetric', 'linear_ramp', 'maximum', "
            "'mean', 'median' or 'minimum'"
        )
    if isinstance(pad_width, dict):
        given = {axis % made.ndim: width for axis, width in pad_width.items()}
        pad_width = [given.get(axis, (0, 0)) for axis in range(made.ndim)]
        pad_width = [width if isinstance(width, tuple | list) else (width, width) for width in pad_width]
    numbers = np.asarray(pad_width)
    if numbers.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    if np.any(numbers < 0):
        raise ValueError("index can't contain negative values")
    widths = np.broadcast_to(numbers.astype(INT), (made.ndim, 2)).tolist()
    values = np.broadcast_to(np.asarray(end_values if mode == "linear_ramp" else constant_values), (made.ndim, 2))
    near = np.broadcast_to(np.asarray(stat_length, object), (made.ndim, 2))
    for axis, (before, after) in enumerate(widths):
        if not before and not after:
            continue
        n = made.shape[axis]
        if not n and mode != "constant":
            raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
        if repeated:
            at = np.pad(np.arange(n), (before, after), mode=mode)  # type: ignore[call-overload]
            made = selection.take(made, creation.asarray(at), axis=axis)
            continue
        ends = []
        for side, width in enumerate((before, after)):
            size = (*made.shape[:axis], width, *made.shape[axis + 1 :])
            if mode == "constant":
                ends.append(creation.full(size, values[axis : axis + 1, side].tolist()[0], made.dtype))
            elif mode == "linear_ramp":
                ends.append(_ramp(made, axis, side, width, values[axis, side]))
            else:
                length = n if near[axis, side] is None else min(int(near[axis, side]), n)
                part = part_along(made, axis, 0, length) if side == 0 else part_along(made, axis, n - length, n)
                value = _SUMMARIES[mode](part, axis=axis, keepdims=True)
                value = elementwise.round(value) if made.dtype.kind in "iu" else value
                ends.append(shapes.spread(value.astype(made.dtype), size))
        made = joined([ends[0], made, ends[1]], axis)
    return made


def _ramp(x: Tensor, axis: int, side: int, width: int, end: Any) -> Tensor:
    """Return `width` values from `end` to the first (or last) of an axis, which is not among them."""
    n = x.shape[axis]
    edge = part_along(x, axis, 0, 1) if side == 0 else part_along(x, axis, n - 1, n)
    shape = tuple([width if a == axis else 1 for a in range(x.ndim)])
    at = creation.asarray(np.arange(width, dtype=float).reshape(shape))
    step = apply(np.true_divide, apply(np.subtract, edge, end), float(max(width, 1)))
    made = apply(np.add, apply(np.multiply, at, step), end)
    made = elementwise.floor(made) if x.dtype.kind in "iu" else made
    made = made.astype(x.dtype)
    return made if side == 0 else shapes.flip(made, axis=axis)
