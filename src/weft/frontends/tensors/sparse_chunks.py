"""Matrices whose chunks are sparse arrays of SciPy, in the CSR format: nodes and kernels.

Only the elements that a chunk stores take memory: `held` of a node has the most bytes of a chunk, as far as they can be
known. All other elements are zeros, and stay zeros in every function here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import sources
from weft.frontends.tensors.blocked_products import AT_ONCE
from weft.frontends.tensors.blocks import Cuts, mapped
from weft.frontends.tensors.chunks import FEWEST_BYTES, PER_WORKER, Cut, Grid, counts, overlaps
from weft.frontends.tensors.indexing import along, take_slices
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call
from weft.frontends.tensors.reductions import combine_ufunc, finished, parts_grid, tree
from weft.frontends.tensors.shaping import side_by_side
from weft.graph.axes import broadcast, copy, group
from weft.operators.region_steps import KernelKind

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk, DType
    from weft.operators.region_steps import ChunkPlace

UNKNOWN_BYTES = -1
"""The `held` of a node whose stored elements are known when it has run."""
INDEX_BYTES = 8
"""The most bytes of the index of a stored element."""


def csr(value: Any) -> Any:
    """Return a sparse array in the CSR format, without duplicates."""
    from scipy.sparse import csr_array

    made = csr_array(value)
    if not made.has_canonical_format:
        made = made.copy()
        made.sum_duplicates()
    return made


def bytes_of(value: Any) -> int:
    """Return the bytes of a sparse array in the CSR format."""
    return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)


# ---------------------------------------------------------------------------------------------------------- sources


def row_cut(value: Any, workers: int, most: int) -> Cut:
    """Return the chunks of rows of a sparse array: at most `most` bytes each, several for each worker."""
    return even_rows(value.shape[0], bytes_of(value), workers, most)


def even_rows(rows: int, nbytes: int, workers: int, most: int) -> Cut:
    """Return the chunks of rows of an array of `nbytes` bytes: at most `most` bytes each, several for each worker."""
    n = max(ceil(nbytes / most), min(PER_WORKER * workers, nbytes // FEWEST_BYTES), 1)
    return Cut.even(rows, ceil(rows / n) if rows else 1)


def from_csr(value: Any, grid: Grid) -> ArrayNode:
    """Return an array over a sparse array in the CSR format; chunks of whole rows share its memory."""
    from scipy.sparse import csr_array

    rows, columns = grid
    chunks = []
    for i in range(rows.n):
        lo, hi = rows.span(i)
        first, past = int(value.indptr[lo]), int(value.indptr[hi])
        parts = (value.data[first:past], value.indices[first:past], value.indptr[lo : hi + 1] - value.indptr[lo])
        part = csr_array(parts, shape=(hi - lo, value.shape[1]))
        chunks += [part] if columns.n == 1 else [part[:, slice(*columns.span(j))] for j in range(columns.n)]
    return _holding(sources.stored(chunks, grid, value.dtype), max(map(bytes_of, chunks)))


def _holding(node: ArrayNode, held: int) -> ArrayNode:
    node.held = held
    return node


def _made(
    fn: Callable[..., Any],
    inputs: Sequence[ArrayNode | NodeInput],
    grid: Grid,
    dtype: DType,
    held: int,
    name: str,
    /,
    *,
    placed: bool = False,
    **words: Any,
) -> ArrayNode:
    return _holding(call(fn, inputs, grid, dtype, placed=placed, name=name, **words), held)


def _sum(*held: int | None) -> int:
    known = [one if one is not None else 0 for one in held]
    return UNKNOWN_BYTES if UNKNOWN_BYTES in known else sum(known)


# ------------------------------------------------------------------------------------------------------- conversion


def _dense(x: Chunk) -> Chunk:
    return x.toarray()


def todense(node: ArrayNode) -> ArrayNode:
    """Return the same array with dense chunks."""
    return call(_dense, node, node.grid, node.dtype, name="todense")


def _sparse(x: Chunk) -> Chunk:
    return csr(np.asarray(x))


def tosparse(node: ArrayNode) -> ArrayNode:
    """Return the same matrix with sparse chunks."""
    size = node.grid[0].longest * node.grid[1].longest
    return _made(_sparse, [node], node.grid, node.dtype, size * (node.dtype.itemsize + INDEX_BYTES), "tosparse")


def _cast(x: Chunk, *, dtype: DType) -> Chunk:
    return x.astype(dtype)


def cast(node: ArrayNode, dtype: DType) -> ArrayNode:
    """Return the array with another dtype."""
    if node.dtype == dtype:
        return node
    return _made(_cast, [node], node.grid, dtype, _held_as(node, dtype), "astype", dtype=dtype)


def _held_as(node: ArrayNode, dtype: DType) -> int:
    """Return the most bytes of a chunk with as many stored elements of another dtype."""
    if node.held is None or node.held < 0:
        return UNKNOWN_BYTES
    return node.held * max(1, ceil(dtype.itemsize / node.dtype.itemsize))


# ------------------------------------------------------------------------------------------------- shape and chunks


def _turned(x: Chunk) -> Chunk:
    return csr(x.T)


def transpose(node: ArrayNode) -> ArrayNode:
    """Return the transpose."""
    rows, columns = node.grid
    grid = (columns, rows)
    held = node.held if node.held is not None else UNKNOWN_BYTES
    return _made(_turned, [mapped(node, grid, [1, 0])], grid, node.dtype, held, "transpose")


def _joined(place: ChunkPlace, parts: Any, *, src: Cuts) -> Chunk:
    """Join a chunk from those of another grid that it overlaps."""
    from scipy.sparse import block_array

    listed = parts if isinstance(parts, list) else [parts]
    spans = []
    for cut, lo, n in zip(src.grid, place.begin, place.shape, strict=True):
        touched = range(*cut.touched(lo, lo + n)) if cut.n > 1 else range(1)
        found = [cut.span(i) for i in touched]
        spans.append([(max(a, lo) - a, min(b, lo + n) - a) for a, b in found])
    left = iter(listed)
    rows = [[next(left)[slice(*row), slice(*column)] for column in spans[1]] for row in spans[0]]
    made = rows[0][0] if len(rows) == len(rows[0]) == 1 else block_array(rows, format="csr")
    return csr(made)


def rechunk(node: ArrayNode, grid: Grid) -> ArrayNode:
    """Return the same array in other chunks."""
    if node.grid == grid:
        return node
    rules = tuple([overlaps(axis, src, dst) for axis, (src, dst) in enumerate(zip(node.grid, grid, strict=True))])
    one = NodeInput(node, Read.GRID, src=counts(node.grid), dst=counts(grid), axes=rules)
    touched = 1
    for cut, rule in zip(node.grid, rules, strict=True):
        touched *= rule.most(cut.n)
    held = UNKNOWN_BYTES if node.held is None or node.held < 0 else node.held * touched
    return _made(_joined, [one], grid, node.dtype, held, "rechunk", placed=True, src=Cuts(node.grid))


def _one_of(*parts: list[Any], dtype: DType) -> Chunk:
    (found,) = [one for part in parts for one in part]
    return found.astype(dtype, copy=False)


def concat(nodes: Sequence[ArrayNode], axis: int, dtype: DType) -> ArrayNode:
    """Concatenate arrays along an axis, chunk by chunk; they agree along the other one, and none is empty."""
    if len(nodes) == 1:
        return cast(nodes[0], dtype)
    first = nodes[0]
    fitted = [rechunk(node, tuple([(node if a == axis else first).grid[a] for a in range(2)])) for node in nodes]
    held = [_held_as(node, dtype) for node in fitted]
    inputs, grid = side_by_side(fitted, axis)
    most = UNKNOWN_BYTES if UNKNOWN_BYTES in held else max(held)
    return _made(_one_of, inputs, grid, dtype, most, "concat", dtype=dtype)


def _drawn(place: ChunkPlace, *, method: str, seed: tuple[int, ...], dtype: DType, density: float) -> Chunk:
    from scipy.sparse import random_array

    rng = np.random.default_rng(np.random.SeedSequence(seed[:-1], spawn_key=(seed[-1], *place.begin)))
    draw = getattr(rng, method)
    return csr(random_array(place.shape, density=density, rng=rng, data_sampler=lambda size: draw(size))).astype(dtype)


def drawn(method: str, grid: Grid, seed: tuple[int, ...], dtype: DType, density: float) -> ArrayNode:
    """Return random numbers in a share `density` of the elements of each chunk, at random places.

    `method` is one of `numpy.random.Generator`, `seed` its words and the number of the call.
    """
    stored = int(grid[0].longest * grid[1].longest * density) + 1
    held = stored * (dtype.itemsize + INDEX_BYTES) + (grid[0].longest + 1) * INDEX_BYTES
    kwargs = {"method": method, "seed": seed, "dtype": dtype, "density": density}
    made = ArrayNode(KernelKind.PLACED, _drawn, [], grid, dtype, kwargs=kwargs, unique=True, name=method)
    return _holding(made, held)


def _cut_out(place: ChunkPlace, x: Chunk, *, taken: Any) -> Chunk:
    """Return the part of a chunk that slices select."""
    if isinstance(x, list):
        (x,) = x
    index = []
    for one, lo, n in zip(taken, place.begin, place.shape, strict=True):
        begin = one.start + one.step * lo if n else 0
        begin -= one.cut.span(one.cut.at(begin))[0] if n else 0
        end = begin + one.step * n
        index.append(slice(begin, end if end >= 0 else None, one.step) if n else slice(0, 0))
    return csr(x[tuple(index)])


def sliced(node: ArrayNode, index: Sequence[slice]) -> ArrayNode:
    """Return the rows and columns of two slices."""
    made = take_slices(node, index)
    if made is node:
        return node
    taken = tuple([along(cut, one) for cut, one in zip(node.grid, index, strict=True)])
    held = node.held if node.held is not None else UNKNOWN_BYTES
    return _made(_cut_out, made.inputs, made.grid, node.dtype, held, "slice", placed=True, taken=taken)


# --------------------------------------------------------------------------------------------- element by element


def _called(x: Chunk, *, fn: Any, dtype: DType) -> Chunk:
    from scipy.sparse import csr_array

    return csr_array((fn(x.data).astype(dtype, copy=False), x.indices, x.indptr), shape=x.shape)


def elements(fn: Any, node: ArrayNode, dtype: DType, name: str) -> ArrayNode:
    """Return a function of each stored element; it must be 0 of 0."""
    return _made(_called, [node], node.grid, dtype, _held_as(node, dtype), name, fn=fn, dtype=dtype)


class WithNumber:
    """A ufunc of the stored elements and a number, at either side."""

    def __init__(self, fn: np.ufunc, number: Any, *, first: bool) -> None:
        self.fn = fn
        self.number = number
        self.first = first

    def __call__(self, data: Any) -> Any:
        """Return the results."""
        return self.fn(self.number, data) if self.first else self.fn(data, self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WithNumber) and repr(self.key) == repr(other.key)

    def __hash__(self) -> int:
        return hash(repr(self.key))

    @property
    def key(self) -> tuple[Any, ...]:
        """The identity of the function."""
        return self.fn.__name__, type(self.number), self.number, self.first


_PAIRS: dict[np.ufunc, Callable[[Any, Any], Any]] = {
    np.add: lambda x, y: x + y,
    np.subtract: lambda x, y: x - y,
    np.multiply: lambda x, y: x.multiply(y),
    np.maximum: lambda x, y: x.maximum(y),
    np.minimum: lambda x, y: x.minimum(y),
    np.not_equal: lambda x, y: x != y,
    np.less: lambda x, y: x < y,
    np.greater: lambda x, y: x > y,
}
"""The functions of two sparse arrays whose results are sparse."""


def has_pair(fn: np.ufunc) -> bool:
    """Return whether a ufunc of two sparse arrays is sparse."""
    return fn in _PAIRS


def _paired(x: Chunk, y: Chunk, *, fn: np.ufunc, dtype: DType) -> Chunk:
    return csr(_PAIRS[fn](x, y)).astype(dtype, copy=False)


def pairs(fn: np.ufunc, x: ArrayNode, y: ArrayNode, dtype: DType) -> ArrayNode:
    """Return a ufunc of two sparse arrays of one shape, in the chunks of the first one."""
    y = rechunk(y, x.grid)
    return _made(_paired, [x, y], x.grid, dtype, _sum(x.held, y.held), fn.__name__, fn=fn, dtype=dtype)


def _scaled(x: Chunk, y: Chunk, *, dtype: DType) -> Chunk:
    return csr(x.multiply(y)).astype(dtype, copy=False)


def scaled(x: ArrayNode, y: NodeInput, dtype: DType) -> ArrayNode:
    """Return the products of a sparse array's elements and those of a dense one, broadcast to its chunks."""
    return _made(_scaled, [x, y], x.grid, dtype, _held_as(x, dtype), "multiply", dtype=dtype)


# -------------------------------------------------------------------------------------------------------- reductions


def _summed(x: Chunk, *, axes: tuple[int, ...], dtype: DType) -> Chunk:
    axis = None if len(axes) == 2 else axes[0]
    shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
    return np.asarray(x.sum(axis=axis, dtype=dtype), dtype).reshape(shape)


def _extreme(x: Chunk, *, fn: np.ufunc, axes: tuple[int, ...]) -> Chunk:
    axis = None if len(axes) == 2 else axes[0]
    shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
    found = x.max(axis=axis) if fn is np.maximum else x.min(axis=axis)
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found).reshape(shape)


def _counted(x: Chunk, *, axes: tuple[int, ...]) -> Chunk:
    axis = None if len(axes) == 2 else axes[0]
    shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
    return np.asarray(x.count_nonzero(axis=axis), np.int64).reshape(shape)


def _tree(part: ArrayNode, fn: np.ufunc, axes: tuple[int, ...], *, keepdims: bool) -> ArrayNode:
    return finished(tree(part, axes, combine_ufunc, {"fn": fn, "axes": axes}), axes, keepdims=keepdims)


def total(node: ArrayNode, axes: tuple[int, ...], dtype: DType, *, keepdims: bool) -> ArrayNode:
    """Return sums along axes."""
    part = call(_summed, node, parts_grid(node.grid, axes), dtype, name="sum", axes=axes, dtype=dtype)
    return _tree(part, np.add, axes, keepdims=keepdims)


def extreme(fn: np.ufunc, node: ArrayNode, axes: tuple[int, ...], *, keepdims: bool) -> ArrayNode:
    """Return the largest (`numpy.maximum`) or smallest elements along axes. ValueError: there are none."""
    if any(node.grid[axis].size == 0 for axis in axes):
        raise ValueError(f"zero-size array to reduction operation {fn.__name__} which has no identity")
    part = call(_extreme, node, parts_grid(node.grid, axes), node.dtype, name=fn.__name__, fn=fn, axes=axes)
    return _tree(part, fn, axes, keepdims=keepdims)


def nonzeros(node: ArrayNode, axes: tuple[int, ...], *, keepdims: bool) -> ArrayNode:
    """Return the number of elements along axes that are not 0."""
    part = call(_counted, node, parts_grid(node.grid, axes), np.dtype(np.int64), name="count_nonzero", axes=axes)
    return _tree(part, np.add, axes, keepdims=keepdims)


def _stored_in(x: Chunk) -> Chunk:
    return np.full((1, 1), x.nnz, np.int64)


def stored_elements(node: ArrayNode) -> ArrayNode:
    """Return the number of stored elements."""
    ones = tuple([Cut.even(cut.n, 1) for cut in node.grid])
    part = call(_stored_in, node, ones, np.dtype(np.int64), name="nnz")
    return _tree(part, np.add, (0, 1), keepdims=False)


# ---------------------------------------------------------------------------------------------------------- products


def _product(left: Any, right: Any, *, dtype: DType, sparse: bool, part: bool = False) -> Chunk:
    """Multiply a row of chunks by a column of chunks."""
    if not isinstance(left, list):
        left, right = [left], [right]
    made = left[0] @ right[0]
    for a, b in zip(left[1:], right[1:], strict=True):
        made = made + a @ b
    if sparse:
        return csr(made).astype(dtype, copy=False)
    found = np.asarray(made, dtype)
    return found[..., None] if part else found


def product(left: ArrayNode, right: ArrayNode, dtype: DType, *, sparse: bool) -> ArrayNode:
    """Return a matrix product; one operand is sparse, and the other a vector or matrix in fitting chunks.

    With `sparse` both are, and the result is. A task reads at most `AT_ONCE` chunks of a row and of a column, and dense
    parts are added by a tree; a sparse result reads all of them.
    """
    first, last = len(left.grid) == 2, len(right.grid) == 2
    inner = right.grid[0]
    rows, columns = left.grid[:1] if first else (), right.grid[1:]
    grid = (*rows, *columns)
    held = UNKNOWN_BYTES if sparse else 0
    if inner.n <= AT_ONCE or sparse:
        here = [*[0] * first, *[None] * len(columns)]
        there = [*[None] * len(rows), *[1] * last]
        inputs = [mapped(left, grid, here), mapped(right, grid, there)]
        made = call(_product, inputs, grid, dtype, name="matmul", dtype=dtype, sparse=sparse)
        return _holding(made, held) if sparse else made
    parts = (*grid, Cut.even(ceil(inner.n / AT_ONCE), 1))
    dst = counts(parts)
    one = (*[copy(0)] * first, *[broadcast()] * len(columns), group(1 if first else 0, AT_ONCE))
    other = (*[broadcast()] * len(rows), *[copy(1)] * last, group(0, AT_ONCE))
    inputs = [
        NodeInput(node, Read.GRID, src=counts(node.grid), dst=dst, axes=tuple(axes))
        for node, axes in ((left, one), (right, other))
    ]
    made = call(_product, inputs, parts, dtype, name="matmul", dtype=dtype, sparse=False, part=True)
    axes = (len(grid),)
    return finished(tree(made, axes, combine_ufunc, {"fn": np.add, "axes": axes}), axes, keepdims=False)
