"""Large matrices, factored by panels of columns: no task has more than three panels.

Right-looking: the first panel is factored, all others are updated by it in parallel, and so on with the rest. An LU
factorisation exchanges rows, which a panel contains whole; the Cholesky factorisation needs no exchange. Systems are
solved by updating the right sides like panels, then from the last panel back to the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.blocks import mapped, rechunk
from weft.frontends.tensors.chunks import Cut, Grid, counts
from weft.frontends.tensors.indexing import take_slices
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call
from weft.frontends.tensors.shaping import concat
from weft.graph.axes import copy

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk, DType
    from weft.operators.region_steps import ChunkPlace

BLOCKED_FROM = 2**25
"""The least bytes of a matrix in several chunks that is factored by panels; one task factors a smaller matrix."""
PANELS = 16
"""The most panels of a matrix."""
NARROWEST = 128
"""The least columns of a panel."""
_COLUMN_BY_COLUMN = 16


def is_large(node: ArrayNode) -> bool:
    """Return whether a square matrix is large enough for panels."""
    return len(node.grid) == 2 and node.chunks > 1 and node.nbytes >= BLOCKED_FROM


def _panels(node: ArrayNode) -> ArrayNode:
    m, n = node.shape
    return rechunk(node, (Cut.whole(m), Cut.even(n, max(NARROWEST, ceil(n / PANELS)))))


def _apart(node: ArrayNode) -> NodeInput:
    """Read a panel in a task of its own: fused with others it would hold the panels that all of them read."""
    return NodeInput(node, Read.GRID, src=counts(node.grid), dst=counts(node.grid), axes=(copy(0), copy(1)))


def _first(node: ArrayNode, fn: Any, dtype: DType, **kwargs: Any) -> ArrayNode:
    """Return the first panel, factored."""
    cut = node.grid[1]
    one = NodeInput(node, Read.GRID, src=counts(node.grid), dst=(1, 1), axes=(copy(0), copy(1)))
    width = cut.length(0)
    return call(fn, [one], (node.grid[0], Cut.whole(width)), dtype, name=fn.__name__.strip("_"), **kwargs)


def _rest(node: ArrayNode, head: ArrayNode, fn: Any, **kwargs: Any) -> ArrayNode:
    """Return the panels after the first, updated by it."""
    cut = node.grid[1]
    grid: Grid = (node.grid[0], Cut.of(cut.lengths()[1:]))
    moved = NodeInput(node, Read.GRID, src=counts(node.grid), dst=counts(grid), axes=(copy(0), copy(1, offset=1)))
    inputs = [moved, mapped(head, grid, [None, None])]
    return call(fn, inputs, grid, node.dtype, placed=True, name=fn.__name__.strip("_"), **kwargs)


# ---------------------------------------------------------------------------------------------------- Cholesky


def _cholesky(panel: Chunk, *, begin: int) -> Chunk:
    made = np.zeros_like(panel)
    end = begin + panel.shape[1]
    corner = made[begin:end] = np.linalg.cholesky(panel[begin:end])
    made[end:] = np.linalg.solve(corner, panel[end:].conj().T).conj().T
    return made


def _less_cholesky(place: ChunkPlace, panel: Chunk, head: Any, *, end: int) -> Chunk:
    first = end + place.begin[1]
    made = panel.copy()
    made[first:] -= head[first:] @ head[first : first + panel.shape[1]].conj().T
    return made


def cholesky(node: ArrayNode) -> ArrayNode:
    """Return the lower factor of a large matrix. LinAlgError, in the run: it is not positive definite."""
    rest, heads, begin = _panels(node), [], 0
    while True:
        heads.append(_first(rest, _cholesky, node.dtype, begin=begin))
        begin += rest.grid[1].length(0)
        if rest.grid[1].n == 1:
            return concat(heads, 1, node.dtype)
        rest = _rest(rest, heads[-1], _less_cholesky, end=begin)


# ---------------------------------------------------------------------------------------------------------- LU


def _factor(a: Chunk) -> Chunk:
    """Factor a panel in place, and return its row order. A pivot of 0 stays as it is."""
    rows, columns = a.shape
    order = np.arange(rows)
    if columns > _COLUMN_BY_COLUMN:
        half = columns // 2
        first = _factor(a[:, :half])
        a[:, half:] = a[first, half:]
        a[:half, half:] = np.linalg.solve(_unit(a[:half, :half]), a[:half, half:])
        a[half:, half:] -= a[half:, :half] @ a[:half, half:]
        second = _factor(a[half:, half:])
        a[half:, :half] = a[half:, :half][second]
        order[:half], order[half:] = first[:half], first[half:][second]
        return order
    for k in range(columns):
        pivot = k + int(np.argmax(np.abs(a[k:, k])))
        if pivot != k:
            a[[k, pivot]] = a[[pivot, k]]
            order[[k, pivot]] = order[[pivot, k]]
        if a[k, k] != 0:
            a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return order


def _unit(a: Chunk) -> Chunk:
    return np.tril(a, -1) + np.eye(len(a), dtype=a.dtype)


def _lu(panel: Any, *, begin: int) -> tuple[Any, Any]:
    made = panel.copy()
    return made, _factor(made[begin:])


def _less_lu(place: ChunkPlace, panel: Chunk, head: tuple[Any, Any], *, begin: int) -> Chunk:
    factors, order = head
    end = begin + factors.shape[1]
    made = panel.copy()
    made[begin:] = panel[begin:][order]
    made[begin:end] = np.linalg.solve(_unit(factors[begin:end]), made[begin:end])
    made[end:] -= factors[end:] @ made[begin:end]
    return made


def _solved(right: Any, head: tuple[Any, Any], *, begin: int) -> Any:
    factors = head[0]
    end = begin + factors.shape[1]
    upper = np.triu(factors[begin:end])
    if not np.all(np.diagonal(upper)):
        raise np.linalg.LinAlgError("Singular matrix")
    made = right.copy()
    made[begin:end] = np.linalg.solve(upper, right[begin:end])
    made[:begin] -= factors[:begin] @ made[begin:end]
    return made


def _lu_panels(node: ArrayNode) -> list[tuple[ArrayNode, int]]:
    """Return the factored panels of a large matrix, and the start of each."""
    rest, heads, begin = _panels(node), [], 0
    while True:
        heads.append((_first(rest, _lu, node.dtype, begin=begin), begin))
        if rest.grid[1].n == 1:
            return heads
        rest, begin = _rest(rest, heads[-1][0], _less_lu, begin=begin), begin + rest.grid[1].length(0)


def _later(rows: Any, orders: Sequence[Any]) -> Any:
    """Apply the row orders of the panels, the last ones of all."""
    made = rows.copy()
    for order in orders:
        made[len(made) - len(order) :] = made[len(made) - len(order) :][order]
    return made


def _lower_of(head: tuple[Any, Any], *later: tuple[Any, Any], begin: int) -> Any:
    made = _later(head[0], [order for _, order in later])
    made[:begin] = 0
    made[begin:] = np.tril(made[begin:], -1)
    made[begin + np.arange(made.shape[1]), np.arange(made.shape[1])] = 1
    return made


def _upper_of(head: tuple[Any, Any], *, begin: int, rows: int) -> Any:
    made = head[0][:rows].copy()
    made[begin:] = np.triu(made[begin:])
    return made


def _order_of(*heads: tuple[Any, Any], rows: int) -> Any:
    return _later(np.arange(rows), [order for _, order in heads])


def _as_matrix(place: ChunkPlace, order: Any, *, dtype: DType) -> Any:
    made = np.zeros(place.shape, dtype)
    lo, n = place.begin[1], place.shape[1]
    made[order[lo : lo + n], np.arange(n)] = 1
    return made


def lu(node: ArrayNode, real: DType) -> tuple[ArrayNode, ArrayNode, ArrayNode]:
    """Return the permutation, of dtype `real`, the lower and the upper factor of a large matrix of any shape."""
    m, n = node.shape
    k = min(m, n)
    left = take_slices(node, [slice(None), slice(0, k)])
    heads = _lu_panels(left)
    lowers, uppers = [], []
    for at, (head, begin) in enumerate(heads):
        width = head.grid[1]
        own_and_later = [one for one, _ in heads[at:]]
        lowers.append(call(_lower_of, own_and_later, (head.grid[0], width), node.dtype, name="l", begin=begin))
        uppers.append(call(_upper_of, head, (Cut.whole(k), width), node.dtype, name="u", begin=begin, rows=k))
    if n > m:
        uppers.append(_forward(take_slices(node, [slice(None), slice(m, n)]), heads))
    order = call(_order_of, [head for head, _ in heads], (Cut.whole(m),), np.dtype(np.int64), name="order", rows=m)
    square = (Cut.whole(m), Cut.even(m, max(NARROWEST, ceil(m / PANELS))))
    inputs = [mapped(order, square, [0, None])]
    turned = call(_as_matrix, inputs, square, real, placed=True, name="p", dtype=real)
    return turned, concat(lowers, 1, node.dtype), concat(uppers, 1, node.dtype)


def _forward(right: ArrayNode, heads: list[tuple[ArrayNode, int]]) -> ArrayNode:
    """Return the right sides of a system, in panels, after the forward substitution."""
    made = _panels(right)
    for head, begin in heads:
        inputs = [_apart(made), mapped(head, made.grid, [None, None])]
        made = call(_less_lu, inputs, made.grid, right.dtype, placed=True, name="forward", begin=begin)
    return made


def solve(node: ArrayNode, right: ArrayNode) -> ArrayNode:
    """Return x of `node @ x = right`, two matrices of one dtype. LinAlgError, in the run: the matrix is singular."""
    heads = _lu_panels(node)
    made = _forward(right, heads)
    for head, begin in reversed(heads):
        inputs = [_apart(made), mapped(head, made.grid, [None, None])]
        made = call(_solved, inputs, made.grid, node.dtype, name="backward", begin=begin)
    return made


def _sign_and_log(head: tuple[Any, Any], *, begin: int) -> tuple[Any, Any]:
    factors, order = head
    pivots = np.diagonal(factors[begin:])
    with np.errstate(divide="ignore"):
        size = np.abs(pivots)
        log = np.log(size).sum()
    seen = np.zeros(len(order), bool)
    odd = 0
    for start in np.flatnonzero(order != np.arange(len(order))).tolist():
        length = 0
        while not seen[start]:
            seen[start] = True
            start = int(order[start])
            length += 1
        odd ^= length > 0 and length % 2 == 0
    sign = np.prod(pivots / size) if size.all() else pivots.dtype.type(0)
    return -sign if odd else sign, log


def _slogdet(*parts: tuple[Any, Any]) -> tuple[Any, Any]:
    sign = parts[0][0]
    for part in parts[1:]:
        sign = sign * part[0]
    return np.asarray(sign), np.asarray(sum(part[1] for part in parts), np.abs(sign).dtype)


def _det(*parts: tuple[Any, Any]) -> Any:
    sign, log = _slogdet(*parts)
    return np.asarray(sign * np.exp(log), sign.dtype)


def determinant(node: ArrayNode, *, logarithm: bool) -> ArrayNode:
    """Return the determinant of a large matrix, or a node of its sign and the logarithm of its absolute value."""
    one = (Cut.whole(1),)
    parts = [call(_sign_and_log, head, one, node.dtype, begin=begin) for head, begin in _lu_panels(node)]
    return call(_slogdet if logarithm else _det, parts, (), node.dtype, name="slogdet" if logarithm else "det")
