"""Bits of bytes as elements of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import reductions
from weft.frontends.tensors.arrays import creation, joining, shapes
from weft.frontends.tensors.arrays.array import Tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.insertion import part_along
from weft.frontends.tensors.arrays.registry import method, public
from weft.frontends.tensors.blocks import elementwise, rechunk
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import ArrayNode, call

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Chunk

_BYTE = np.dtype(np.uint8)


def _given(x: Any, axis: int | None, order: str) -> tuple[ArrayNode, int]:
    if order not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")
    node = as_node(x)
    if axis is None or not node.grid:
        if axis is not None:
            reductions.axis_of(axis, 1)
        return shapes.ravel(Tensor(node)).node, 0
    return node, reductions.axis_of(axis, len(node.grid))


def _packed(x: Chunk, *, axis: int, bitorder: Any) -> Chunk:
    return np.packbits(x, axis, bitorder)


@public("a")
@needs_lengths
def packbits(x: ArrayLike, /, axis: int | None = None, bitorder: str = "big") -> Tensor:
    """Return bytes of eight elements each along an axis, by default of the flat array; 0 fills the last one."""
    node, at = _given(x, axis, bitorder)
    if node.dtype.kind not in "biu":
        raise TypeError("Expected an input array of integer or boolean data type")
    cut = node.grid[at]
    bytes_ = cut.holding(8) if cut.chunk else Cut.even(cut.size, -(-cut.longest // 8) * 8)
    node = rechunk(node, tuple([bytes_ if a == at else one for a, one in enumerate(node.grid)]))
    packed = Cut.of([-(-n // 8) for n in node.grid[at].lengths()])
    grid = tuple([packed if a == at else one for a, one in enumerate(node.grid)])
    return Tensor(call(_packed, node, grid, _BYTE, name="packbits", axis=at, bitorder=bitorder))


def _unpacked(x: Chunk, *, axis: int, bitorder: Any) -> Chunk:
    return np.unpackbits(x, axis, None, bitorder)


@public("a")
@needs_lengths
def unpackbits(x: ArrayLike, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Tensor:
    """Return the bits of bytes along an axis, by default of the flat array: `count` of them."""
    node, at = _given(x, axis, bitorder)
    if node.dtype != _BYTE:
        raise TypeError("Expected an input array of unsigned byte data type")
    cut = node.grid[at]
    lengths = Cut.of([8 * n for n in cut.lengths()])
    grid = tuple([lengths if a == at else one for a, one in enumerate(node.grid)])
    made = Tensor(call(_unpacked, node, grid, _BYTE, name="unpackbits", axis=at, bitorder=bitorder))
    if count is None:
        return made
    n = made.shape[at]
    wanted = n + count if count < 0 else count
    if wanted < 0:
        raise ValueError(f"-count larger than number of elements: {count}")
    if wanted <= n:
        return part_along(made, at, 0, wanted)
    rest = creation.zeros([wanted - n if a == at else size for a, size in enumerate(made.shape)], _BYTE)
    return joining.concat([made, rest], axis=at)


@method("byteswap")
def _byteswap(self: Tensor, inplace: bool = False) -> Tensor:
    """Return the elements with their bytes in reverse order, of the same dtype; with `inplace` the array itself."""
    made = _swapped(self)
    if not inplace:
        return made
    self._set(made.node)
    return self


@needs_lengths
def _swapped(x: Tensor) -> Tensor:
    node = x.node
    return Tensor(elementwise(np.ndarray.byteswap, [node], node.dtype, "byteswap"))
