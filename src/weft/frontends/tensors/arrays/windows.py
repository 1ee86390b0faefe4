"""Windows that move along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.frontends.tensors import reductions
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.blocks import rechunk
from weft.frontends.tensors.chunks import Cut, counts
from weft.frontends.tensors.halos import Halo, widened
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call
from weft.graph.axes import broadcast, copy
from weft.model.wording import counted

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Chunk


@public(space="lib.stride_tricks")
@needs_lengths
def sliding_window_view(
    x: ArrayLike,
    window_shape: int | Sequence[int],
    axis: int | Sequence[int] | None = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Tensor:
    """Return all windows of an array: the last axes are the elements of a window, the others its start.

    Each chunk is read with the elements of the next one that its windows have, and is a view of these. Without
    `writeable` nothing can be assigned to it; what is assigned with it does not reach the array. ValueError: a window
    does not fit.
    """
    made = as_tensor(x)
    lengths = tuple(window_shape) if isinstance(window_shape, Sequence) else (window_shape,)
    axes = range(made.ndim) if axis is None else axis if isinstance(axis, Sequence) else (axis,)
    if len(lengths) != len(axes):
        lacks = f"{counted(len(lengths), 'length')} for {counted(len(axes), 'axis', 'axes')}"
        raise ValueError(f"window_shape has {lacks}: give one for each")
    along = [reductions.axis_of(one, made.ndim) for one in axes]
    node = made.node
    for length, at in zip(lengths, along, strict=True):
        last = node.shape[at] - length + 1
        if length < 1 or last < 1:
            raise ValueError(f"a window of {length} does not fit an axis of {node.shape[at]} elements")
        node = _windows(node, at, length, last)
    found = Tensor(node)
    found._read_only = not writeable
    return found


def _windows(node: ArrayNode, at: int, length: int, last: int) -> ArrayNode:
    """Return the windows along an axis, whose elements are a new last axis."""
    cut = node.grid[at]
    if cut.n > 1 and min(cut.lengths()[:-1]) < length - 1:
        cut = Cut.even(cut.size, max(length - 1, cut.longest))
        node = rechunk(node, tuple([cut if a == at else one for a, one in enumerate(node.grid)]))
    starts = [min(n, max(0, last - lo)) for n, (lo, _) in zip(cut.lengths(), map(cut.span, range(cut.n)), strict=True)]
    there = [n for n in starts if n]
    around = [Halo(0, length - 1) if a == at else Halo(0, 0) for a in range(len(node.grid))]
    wide = widened(node, around)
    grid = (*[Cut.of(there) if a == at else one for a, one in enumerate(node.grid)], Cut.whole(length))
    if grid[at].n != len(there):
        grid = (*grid[:at], Cut(sum(there), len(there), 0, tuple(np.cumsum(there).tolist())), *grid[at + 1 :])
    rules = [copy(a) for a in range(len(node.grid))]
    one = NodeInput(wide, Read.GRID, src=counts(wide.grid), dst=counts(grid), axes=(*rules, broadcast()))
    return call(_moved, [NodeInput(wide) if len(there) == cut.n else one], grid, node.dtype, name="windows",
                axis=at, length=length)  # fmt: skip


def _moved(x: Chunk, *, axis: int, length: int) -> Chunk:
    return np.lib.stride_tricks.sliding_window_view(x, length, axis)
