"""Factorisations of tall matrices in blocks of rows: each block alone, then the remainders of all in one.

The QR factorisation of the blocks' R factors, put below one another, gives R and the factor for each block's Q (Benson,
Gleich, Demmel: Direct QR factorizations for tall-and-skinny matrices, 2013). Singular values are those of R.

A block with well-conditioned columns is factored by the Cholesky factor of its Gram matrix, twice (Yamamoto,
Nakatsukasa, Yanagisawa, Fukaya: Roundoff error analysis of the CholeskyQR2 algorithm, 2015): all of it are matrix
products, which take a third of LAPACK's time. Any other block is factored by LAPACK.
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
    from weft.operators.region_steps import ChunkPlace


def is_tall(node: ArrayNode) -> bool:
    """Return whether a matrix is tall: several blocks of rows, and on average no block wider than high."""
    return len(node.grid) == 2 and node.grid[0].n > 1 and node.shape[0] // node.grid[0].n >= node.shape[1] > 0


WELL_CONDITIONED = 1_000.0
"""The greatest condition number, of columns of length 1, for which the inverse of R loses no digits that matter."""
_NARROW = 256
"""The columns of a block up to which products are faster than LAPACK."""
_TILE = 2**16
"""The elements of a block that are factored while the cache of a core holds them."""


def _block(x: Chunk) -> Chunk:
    found = factored_by_products(x) if isinstance(x, np.ndarray) and x.dtype.kind in "fc" else None
    return tuple(np.linalg.qr(x)) if found is None else found


def factored_by_products(x: Chunk) -> tuple[Chunk, Chunk] | None:
    """Return Q (m x n) and R (n x n) of a block, the diagonal of R positive; None if it is ill-conditioned."""
    rows, columns = x.shape
    if rows < 2 * columns or columns > _NARROW or x.dtype == np.float16:
        return None
    height = max(1, _TILE // columns)
    tiles = [slice(at, at + height) for at in range(0, rows, height)]
    with np.errstate(all="ignore"):  # infinite and undefined numbers go to LAPACK
        first = _gram_factor(sum(_gram(x[tile]) for tile in tiles))
        if first is None:
            return None
        q = np.empty_like(x, order="C")
        again = np.zeros((columns, columns), x.dtype)
        for tile in tiles:
            again += _gram(np.matmul(x[tile], first[1], out=q[tile]))
        second = _gram_factor(again)
        if second is None:
            return None
        for tile in tiles:
            q[tile] = q[tile] @ second[1]
    return q, second[0] @ first[0]


def _gram(x: Chunk) -> Chunk:
    return x.conj().T @ x


def _gram_factor(gram: Chunk) -> tuple[Chunk, Chunk] | None:
    """Return the upper triangular R with R* R = `gram`, and its inverse; None if its columns are ill-conditioned."""
    lengths = np.sqrt(gram.diagonal().real)
    if not (np.isfinite(lengths).all() and lengths.all()):
        return None
    try:
        upper = np.linalg.cholesky(gram / lengths / lengths[:, None]).conj().T
        inverse = np.linalg.inv(upper)
    except np.linalg.LinAlgError:
        return None
    condition = np.linalg.norm(upper, 1) * np.linalg.norm(inverse, 1)
    limit = min(WELL_CONDITIONED, 0.03 / float(np.sqrt(np.finfo(gram.dtype).eps)))
    if not condition <= limit:
        return None
    return upper * lengths, inverse / lengths[:, None]


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
