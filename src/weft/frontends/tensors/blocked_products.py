"""Linear algebra: products chunk by chunk, factorisations of stacks of matrices, tall matrices by trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.blocks import mapped, pick, rechunk, whole_along
from weft.frontends.tensors.chunks import CHUNK_BYTES, Cut, Grid, counts, largest
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call
from weft.frontends.tensors.reductions import combine_ufunc, finished, tree
from weft.frontends.tensors.sources import from_array, held
from weft.graph.axes import broadcast, copy, group
from weft.operators.destinations import placing
from weft.operators.namespaces import asking

if TYPE_CHECKING:
    from weft.frontends.tensors.types import DType


@placing
@asking
def _product(left: Any, right: Any, *, dtype: DType, xp: Any = np, out: Any = None) -> Any:
    """Multiply a row of chunks by a column of chunks; in one call where each side lies in one array of NumPy."""
    into = {} if out is None else {"out": out}
    if not isinstance(left, list):
        return xp.matmul(left, right, **into)
    row = _adjoining(left, -1)
    column = None if row is None else _adjoining(right, -2)
    if column is not None:
        return xp.matmul(row, column, **into)
    made = xp.matmul(left[0], right[0], **into)
    room = {"out": np.empty(made.shape, made.dtype)} if xp is np else {}
    for a, b in zip(left[1:], right[1:], strict=True):
        made += xp.matmul(a, b, **room)
    return made


def _adjoining(chunks: Sequence[Any], axis: int) -> Any:
    """Return the view that chunks make up along an axis; None if they are not adjacent views of one array of NumPy.

    One call of BLAS for a long row is faster than calls for its chunks, whose products are added.
    """
    first = chunks[0]
    owner = first.base if type(first) is np.ndarray else None
    if not isinstance(owner, np.ndarray):
        return None
    step, end = first.strides[axis], first.__array_interface__["data"][0]
    for one in chunks:
        if type(one) is not np.ndarray or one.base is not owner or one.dtype != first.dtype:
            return None
        if one.strides != first.strides or one.__array_interface__["data"][0] != end:
            return None
        end += one.shape[axis] * step
    shape = list(first.shape)
    shape[axis] = sum(one.shape[axis] for one in chunks)
    return np.lib.stride_tricks.as_strided(first, shape, first.strides)


def matmul(x1: ArrayNode, x2: ArrayNode, dtype: DType, most: int = CHUNK_BYTES) -> ArrayNode:
    """Return the matrix product of two stacks of matrices (at least two axes each, of the same dtype kind).

    Chunk (i, j) of the result reads row i of the left and column j of the right side; long rows and columns are read in
    parts, whose products are added. Rows of the right side are cut as columns of the left; if that makes chunks of more
    than `most` bytes, its columns are cut, too. ValueError: the shapes do not fit.
    """
    n = x1.shape[-1]
    if n != x2.shape[-2]:
        raise ValueError(
            f"matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
            f"(n?,k),(k,m?)->(n?,m?) (size {x2.shape[-2]} is different from {n})"
        )
    batch = np.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    cuts = [_batch_cut(axis, size, x1, x2, len(batch)) for axis, size in enumerate(batch)]
    inner = x1.grid[-1]
    left = rechunk(x1, (*_fit_batch(x1, cuts), x1.grid[-2], inner))
    right = rechunk(x2, (*_fit_batch(x2, cuts), inner, _narrowed(x2, inner, most)))
    grid = (*cuts, left.grid[-2], right.grid[-1])
    if not cuts and inner.n > left.grid[-2].n * right.grid[-1].n:
        own = left.grid[-2].longest * right.grid[-1].longest
        read = max(1, min(largest(left.grid), largest(right.grid)))
        return _in_parts(left, right, dtype, min(AT_ONCE, max(1, -(-own // read))))
    if not cuts and inner.n > AT_ONCE:
        return _in_parts(left, right, dtype, AT_ONCE)
    inputs = [_side(left, grid, -2), _side(right, grid, -1)]
    if inner.n == 1:
        inputs = [_alone(one) for one in inputs]
    return call(_product, inputs, grid, dtype, name="matmul", dtype=dtype)


def is_product(node: ArrayNode) -> bool:
    """Return whether an array is the product of two matrices, each chunk made by one task."""
    return node.fn is _product and len(node.grid) == 2


def in_larger_blocks(node: ArrayNode, tasks: int, most: int) -> ArrayNode:
    """Return a product of two matrices in memory in no more than `tasks` blocks of up to `most` bytes.

    Any other array is returned unchanged. BLAS copies parts of both factors for each block; matrices in memory are cut
    otherwise at no cost.
    """
    factors = [held(one.node) for one in node.inputs] if is_product(node) else []
    if not factors or any(x is None or x.ndim != 2 for x in factors):
        return node
    cuts = [*node.grid]
    while cuts[0].n * cuts[1].n > tasks:
        at = min((axis for axis in (0, 1) if cuts[axis].n > 1), key=lambda axis: cuts[axis].longest)
        wider = Cut.even(cuts[at].size, 2 * cuts[at].longest)
        if wider.longest * cuts[1 - at].longest * node.dtype.itemsize > most:
            break
        cuts[at] = wider
    left, right = factors
    rows, columns = cuts
    inner = Cut.whole(node.inputs[0].node.shape[1])
    return matmul(
        from_array(left, (rows, inner), node.inputs[0].node.dtype),
        from_array(right, (inner, columns), node.inputs[1].node.dtype),
        node.dtype,
        most,
    )


AT_ONCE = 8
"""The most chunks of a row, and of a column, that a task of a product reads."""


@asking
def _part(left: Any, right: Any, *, dtype: DType, xp: Any = np) -> Any:
    return _product(left, right, dtype=dtype, xp=xp)[:, :, None]


def _in_parts(left: ArrayNode, right: ArrayNode, dtype: DType, k: int) -> ArrayNode:
    """Multiply `k` chunks of the inner axis at a time, and add the products by a tree.

    Products that are larger than the factors are kept few: they would take more memory than all chunks together.
    """
    inner = left.grid[-1]
    grid = (left.grid[-2], right.grid[-1], Cut.even(-(-inner.n // k), 1))
    if k == 1:
        inputs = [mapped(left, grid, [0, None, 1]), mapped(right, grid, [None, 1, 0])]
    else:
        dst = counts(grid)
        rows, columns = (copy(0), broadcast(), group(1, k)), (broadcast(), copy(1), group(0, k))
        inputs = [
            NodeInput(node, Read.GRID, src=counts(node.grid), dst=dst, axes=axes)
            for node, axes in ((left, rows), (right, columns))
        ]
    parts = call(_part, inputs, grid, dtype, name="matmul", dtype=dtype)
    return finished(tree(parts, (2,), combine_ufunc, {"fn": np.add, "axes": (2,)}), (2,), keepdims=False)


def _narrowed(node: ArrayNode, inner: Cut, most: int) -> Cut:
    """Return the cut of columns for rows cut as `inner`, so that no chunk has more than `most` bytes."""
    cut = node.grid[-1]
    before = largest(node.grid)
    times = before // max(1, node.grid[-2].longest) * inner.longest / max(1, before, most // node.dtype.itemsize)
    return cut if times <= 1 else Cut.even(cut.size, max(1, int(cut.longest / times)))


def _batch_cut(axis: int, size: int, x1: ArrayNode, x2: ArrayNode, ndim: int) -> Cut:
    for node in (x1, x2):
        at = axis - ndim + len(node.grid) - 2
        if at >= 0 and node.grid[at].size == size:
            return node.grid[at]
    return Cut.whole(size)


def _fit_batch(node: ArrayNode, cuts: Sequence[Cut]) -> Grid:
    own = node.grid[:-2]
    return tuple([cut if cut.size == 1 else cuts[len(cuts) - len(own) + axis] for axis, cut in enumerate(own)])


def _side(node: ArrayNode, grid: Grid, own: int) -> NodeInput:
    """Return the map of a factor: its own axis of the result, the batch axes, and all of the inner axis."""
    ndim, shift = len(grid), len(grid) - len(node.grid)
    rules = []
    for d in range(ndim):
        source = d - shift
        if d == ndim + own:
            rules.append(copy(len(node.grid) + own))
        elif d >= ndim - 2 or source < 0 or node.grid[source].n == 1:
            rules.append(broadcast())
        else:
            rules.append(copy(source))
    return NodeInput(node, Read.GRID, src=counts(node.grid), dst=counts(grid), axes=tuple(rules))


def _alone(one: NodeInput) -> NodeInput:
    """Leave out the axes with one chunk, so that an input is a chunk and not a list of one."""
    kept = [axis for axis, n in enumerate(one.src) if n > 1]
    rules = tuple([copy(kept.index(rule.source)) if rule.source in kept else broadcast() for rule in one.axes])
    return NodeInput(one.node, Read.GRID, src=tuple([one.src[axis] for axis in kept]), dst=one.dst, axes=rules)


# ------------------------------------------------------------------------------------------- stacks of matrices


def stacks(
    fn: Callable[..., Any],
    nodes: Sequence[ArrayNode],
    core: Sequence[int],
    out: Sequence[tuple[Sequence[int], DType]],
    name: str,
    **kwargs: Any,
) -> tuple[ArrayNode, ...]:
    """Call `fn` on stacks: the last `core[i]` axes of input i are read as one chunk, the others chunk by chunk.

    `out` has, for each result, the lengths of its last axes and its dtype; `fn` returns several results as a tuple.
    """
    inputs = [whole_along(node, range(len(node.grid) - k, len(node.grid))) for node, k in zip(nodes, core, strict=True)]
    first, k = inputs[0], core[0]
    batch = first.grid[: len(first.grid) - k]
    if any(node.grid[: len(node.grid) - c] != batch for node, c in zip(inputs, core, strict=True)):
        inputs = [rechunk(node, tuple([Cut.whole(cut.size) for cut in node.grid])) for node in inputs]
        shape = np.broadcast_shapes(*[n.shape[: len(n.shape) - c] for n, c in zip(inputs, core, strict=True)])
        batch = tuple([Cut.whole(size) for size in shape])
    grids = [(*batch, *[Cut.whole(size) for size in sizes]) for sizes, _ in out]
    made = call(fn, inputs, grids[0], out[0][1], name=name, **kwargs)
    if len(out) == 1:
        return (made,)
    return tuple(
        [pick(made, at, grid, dtype, name) for at, (grid, (_, dtype)) in enumerate(zip(grids, out, strict=True))]
    )
