"""Diagonals of matrices, by blocks of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.frontends.tensors.blocks import mapped, whole_along
from weft.frontends.tensors.indexing import take_slices
from weft.frontends.tensors.nodes import ArrayNode, call

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk
    from weft.operators.region_steps import ChunkPlace


def _diagonal(place: ChunkPlace, x: Chunk) -> Chunk:
    return np.diagonal(x, place.begin[-1], -2, -1)


def diagonal(node: ArrayNode, offset: int) -> ArrayNode:
    """Return the diagonals of the last two axes, `offset` above the main one; empty if that lies outside.

    A chunk reads the rows of its elements only, so that a large matrix is never in one place.
    """
    rows, columns = node.shape[-2:]
    top, left = max(0, -offset), max(0, offset)
    n = max(0, min(rows - top, columns - left))
    top, left = min(top, rows), min(left, columns)
    before = [slice(None)] * (len(node.grid) - 2)
    square = take_slices(node, [*before, slice(top, top + n), slice(left, left + n)])
    square = whole_along(square, (len(node.grid) - 1,))
    grid = square.grid[:-1]
    axes = list(range(len(grid)))
    return call(_diagonal, [mapped(square, grid, axes)], grid, node.dtype, placed=True, name="diagonal")
