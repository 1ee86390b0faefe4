"""Windows that move along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.frontends.tensors import reductions
from weft.frontends.tensors.arrays import joining
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.registry import public
from weft.model.wording import counted

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike


@public(space="lib.stride_tricks")
def sliding_window_view(
    x: ArrayLike,
    window_shape: int | Sequence[int],
    axis: int | Sequence[int] | None = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Tensor:
    """Return all windows of an array: the last axes are the elements of a window, the others its start.

    It is a copy that is made chunk by chunk, and `writeable` changes nothing. ValueError: a window does not fit.
    """
    made = as_tensor(x)
    lengths = tuple(window_shape) if isinstance(window_shape, Sequence) else (window_shape,)
    axes = range(made.ndim) if axis is None else axis if isinstance(axis, Sequence) else (axis,)
    if len(lengths) != len(axes):
        lacks = f"{counted(len(lengths), 'length')} for {counted(len(axes), 'axis', 'axes')}"
        raise ValueError(f"window_shape has {lacks}: give one for each")
    along = [reductions.axis_of(one, made.ndim) for one in axes]
    for length, at in zip(lengths, along, strict=True):
        last = made.shape[at] - length + 1
        if length < 1 or last < 1:
            raise ValueError(f"a window of {length} does not fit an axis of {made.shape[at]} elements")
        before = (slice(None),) * at
        made = joining.stack([made[(*before, slice(lo, lo + last))] for lo in range(length)], axis=-1)
    return made
