"""Factorisations of tall matrices in blocks of rows: each block alone, then the remainders of all in one.

The QR factorisation of the blocks' R factors, put below one another, gives R and the factor for each block's Q (Benson,
Gleich, Demmel: Direct QR factorizations for tall-and-skinny matrices, 2013). Singular values are those of R.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.blocks import mapped, pick
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk, DType
    from weft.operators.regions import ChunkPlace


def is_tall(node: ArrayNode) -> bool:
    """Return whether a matrix is tall: several blocks of rows, and on average no block wider than high."""
    return len(node.grid) == 2 and node.grid[0].n > 1 and node.shape[0] // node.grid[0].n >= node.shape[1] > 0


def _block(x: Chunk) -> Chunk:
    return tuple(np.linalg.qr(x))


def _joined(factors: list[Any]) -> Any:
    return tuple(np.linalg.qr(np.concatenate(factors)))


def _joined_svd(factors: list[Any]) -> Any:
    q, r = np.linalg.qr(np.concatenate(factors))
    u, s, vh = np.linalg.svd(r, full_matrices=False)
    return q @ u, s, vh


def _turned(place: ChunkPlace, block: Any, joined: Any, *, begins: tuple[int, ...]) -> Any:
    at = place.at[0]
    return block[0] @ joined[0][begins[at] : begins[at + 1]]


def factored(node: ArrayNode, out: tuple[DType, ...], *, singular: bool) -> tuple[ArrayNode, ...]:
    """Return Q and R of a tall matrix; U, the singular values and V's conjugate transpose if `singular`.

    `out` are the dtypes of the results. The columns are one chunk.
    """
    rows, columns = node.grid
    n = columns.size
    blocks = call(_block, node, (rows, Cut.whole(n)), out[0], name="qr")
    heights = [min(length, n) for length in rows.lengths()]
    upper = call(_upper, blocks, (Cut.of(heights), Cut.whole(n)), out[0], name="r")
    one = (Cut.whole(n), Cut.whole(n))
    joined = call(_joined_svd if singular else _joined, [NodeInput(upper, Read.ALL)], one, out[0], name="join")
    inputs = [NodeInput(blocks), mapped(joined, blocks.grid, [None, None])]
    begins = (0, *accumulate(heights))
    first = call(_turned, inputs, blocks.grid, out[0], placed=True, name="q", begins=begins)
    if not singular:
        return first, pick(joined, 1, one, out[1], "r")
    return first, pick(joined, 1, (Cut.whole(n),), out[1], "s"), pick(joined, 2, one, out[2], "vh")


def _upper(block: Any) -> Any:
    return block[1]
