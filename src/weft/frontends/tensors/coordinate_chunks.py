"""Arrays whose chunks are sparse arrays of the package `sparse`, in its COO format: nodes and kernels.

They have any number of axes, and one value (`fill`) for all elements that are not stored. Selections and products are
computed by NumPy and SciPy, since those of the package are compiled anew in each process, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import sources
from weft.frontends.tensors.blocks import Cuts, broadcast_shapes, common_grid, mapped, stretched
from weft.frontends.tensors.blocks import fitted as fitted_dense
from weft.frontends.tensors.chunks import Cut, Grid, counts, overlaps
from weft.frontends.tensors.indexing import along, take_slices
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call
from weft.frontends.tensors.reductions import combine_ufunc, parts_grid, tree
from weft.frontends.tensors.shaping import side_by_side
from weft.frontends.tensors.sparse_chunks import UNKNOWN_BYTES
from weft.operators.region_steps import KernelKind, OperandSlot

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk, DType, NumpyArray
    from weft.operators.region_steps import ChunkPlace


def coo(coords: Any, data: Any, shape: Sequence[int], fill: Any, *, ordered: bool = False) -> Any:
    """Return an array of the package `sparse` from positions, of which none occurs twice."""
    from sparse import COO

    data = np.asarray(data)
    placed = np.asarray(coords, np.int64).reshape(len(shape), len(data))
    fill = np.asarray(fill).astype(data.dtype)[()]
    return COO(placed, data, shape=tuple(shape), has_duplicates=False, sorted=ordered, fill_value=fill)


def bytes_of(value: Any) -> int:
    """Return the bytes of the stored elements and their positions."""
    return int(value.data.nbytes + value.coords.nbytes)


def _made(
    fn: Callable[..., Any],
    inputs: Sequence[ArrayNode | NodeInput],
    grid: Grid,
    dtype: DType,
    name: str,
    /,
    *,
    held: int | None = UNKNOWN_BYTES,
    placed: bool = False,
    **words: Any,
) -> ArrayNode:
    made = call(fn, inputs, grid, dtype, placed=placed, name=name, **words)
    made.held = UNKNOWN_BYTES if held is None else held
    return made


def is_coordinate(node: ArrayNode) -> bool:
    """Return whether the chunks of a node are sparse."""
    return node.held is not None


# ---------------------------------------------------------------------------------------------------------- sources


def from_coo(value: Any, grid: Grid) -> ArrayNode:
    """Return an array over one of the package `sparse`; each chunk has a copy of its elements."""
    shape = counts(grid)
    ends = [np.array([cut.span(i)[1] for i in range(cut.n)]) for cut in grid]
    at = np.zeros(value.coords.shape[1], np.int64)
    for axis, last in enumerate(ends):
        at = at * shape[axis] + np.searchsorted(last, value.coords[axis], side="right")
    order = np.argsort(at, kind="stable")
    borders = np.searchsorted(at[order], np.arange(prod(shape) + 1))
    chunks = []
    for index, where in enumerate(np.ndindex(*shape)):
        mine = order[borders[index] : borders[index + 1]]
        spans = [cut.span(i) for cut, i in zip(grid, where, strict=True)]
        begin = np.array([lo for lo, _ in spans], np.int64).reshape(-1, 1)
        lengths = [hi - lo for lo, hi in spans]
        chunks.append(coo(value.coords[:, mine] - begin, value.data[mine], lengths, value.fill_value, ordered=True))
    made = sources.stored(chunks, grid, value.data.dtype)
    made.held = max(map(bytes_of, chunks))
    return made


def assembled(values: Sequence[Any], grid: Grid, dtype: DType, fill: Any) -> Any:
    """Return the array of all chunks, which come in row-major order."""
    shape = counts(grid)
    coords, data = [], []
    for value, where in zip(values, np.ndindex(*shape), strict=True):
        begin = np.array([cut.span(i)[0] for cut, i in zip(grid, where, strict=True)], np.int64)
        coords.append(value.coords + begin.reshape(-1, 1))
        data.append(value.data)
    return coo(np.hstack(coords), np.hstack(data).astype(dtype), [cut.size for cut in grid], fill)


def _drawn(place: ChunkPlace, *, method: str, seed: tuple[int, ...], dtype: DType, density: float) -> Chunk:
    rng = np.random.default_rng(np.random.SeedSequence(seed[:-1], spawn_key=(seed[-1], *place.begin)))
    size = prod(place.shape)
    at = rng.choice(size, round(size * density), replace=False, shuffle=False)
    return coo(np.unravel_index(np.sort(at), place.shape), getattr(rng, method)(len(at)).astype(dtype), place.shape, 0)


def drawn(method: str, grid: Grid, seed: tuple[int, ...], dtype: DType, density: float) -> ArrayNode:
    """Return random numbers in a share `density` of the elements of each chunk, at random places.

    `method` is one of `numpy.random.Generator`, `seed` its words and the number of the call.
    """
    stored = int(prod(cut.longest for cut in grid) * density) + 1
    kwargs = {"method": method, "seed": seed, "dtype": dtype, "density": density}
    made = ArrayNode(KernelKind.PLACED, _drawn, [], grid, dtype, kwargs=kwargs, unique=True, name=method)
    made.held = stored * (dtype.itemsize + 8 * len(grid))
    return made


# ------------------------------------------------------------------------------------------------------- conversion


def _dense(x: Chunk) -> Chunk:
    return np.asarray(x.todense())


def todense(node: ArrayNode) -> ArrayNode:
    """Return the same array with dense chunks."""
    return call(_dense, node, node.grid, node.dtype, name="todense")


def _sparse(x: Chunk) -> Chunk:
    found = np.asarray(x)
    at = np.nonzero(found)
    return coo(at, found[at], found.shape, 0, ordered=True)


def tosparse(node: ArrayNode) -> ArrayNode:
    """Return the same array with sparse chunks, of its elements that are not 0."""
    most = prod(cut.longest for cut in node.grid) * (node.dtype.itemsize + 8 * len(node.grid))
    return _made(_sparse, [node], node.grid, node.dtype, "tosparse", held=most)


def _from_csr(x: Chunk) -> Chunk:
    found = x.tocoo()
    return coo((found.row, found.col), found.data, found.shape, 0)


def from_csr(node: ArrayNode) -> ArrayNode:
    """Return a matrix whose chunks are arrays of SciPy with those of the package `sparse`."""
    return _made(_from_csr, [node], node.grid, node.dtype, "tocoo")


def _cast(x: Chunk, *, dtype: DType) -> Chunk:
    return x.astype(dtype)


def cast(node: ArrayNode, dtype: DType) -> ArrayNode:
    """Return the array with another dtype."""
    return node if node.dtype == dtype else _made(_cast, [node], node.grid, dtype, "astype", dtype=dtype)


# ------------------------------------------------------------------------------------------------- shape and chunks


def _joined(place: ChunkPlace, parts: Any, *, src: Cuts) -> Chunk:
    """Join a chunk from those of another grid that it overlaps."""
    listed = parts if isinstance(parts, list) else [parts]
    begin, end = np.array(place.begin), np.array(place.begin) + np.array(place.shape)
    touched = [
        range(*cut.touched(lo, hi)) if cut.n > 1 else range(1)
        for cut, lo, hi in zip(src.grid, begin.tolist(), end.tolist(), strict=True)
    ]
    coords, data = [], []
    for part, where in zip(listed, np.ndindex(*map(len, touched)), strict=True):
        first = [cut.span(some[i])[0] for cut, some, i in zip(src.grid, touched, where, strict=True)]
        at = part.coords + np.array(first, np.int64).reshape(-1, 1)
        inside = np.all((at >= begin.reshape(-1, 1)) & (at < end.reshape(-1, 1)), axis=0)
        coords.append(at[:, inside] - begin.reshape(-1, 1))
        data.append(part.data[inside])
    return coo(np.hstack(coords), np.hstack(data), place.shape, listed[0].fill_value)


def rechunk(node: ArrayNode, grid: Grid) -> ArrayNode:
    """Return the same array in other chunks."""
    if node.grid == grid:
        return node
    rules = tuple([overlaps(axis, src, dst) for axis, (src, dst) in enumerate(zip(node.grid, grid, strict=True))])
    one = NodeInput(node, Read.GRID, src=counts(node.grid), dst=counts(grid), axes=rules)
    return _made(_joined, [one], grid, node.dtype, "rechunk", placed=True, src=Cuts(node.grid))


def whole(node: ArrayNode, axes: Sequence[int]) -> ArrayNode:
    """Return the same array with one chunk along some axes."""
    return rechunk(node, tuple([Cut.whole(cut.size) if a in axes else cut for a, cut in enumerate(node.grid)]))


def _turned(x: Chunk, *, order: tuple[int, ...]) -> Chunk:
    return coo(x.coords[list(order)], x.data, [x.shape[axis] for axis in order], x.fill_value)


def transpose(node: ArrayNode, order: tuple[int, ...]) -> ArrayNode:
    """Return the array with its axes in another order."""
    grid = tuple([node.grid[axis] for axis in order])
    one = mapped(node, grid, list(order))
    return _made(_turned, [one], grid, node.dtype, "transpose", held=node.held, order=order)


def _shaped(place: ChunkPlace, x: Chunk) -> Chunk:
    return x.reshape(place.shape)


def regrid(node: ArrayNode, grid: Grid) -> ArrayNode:
    """Return the array with axes of length 1 inserted or removed: `grid` has the same chunks in the same order."""
    return _made(_shaped, [node], grid, node.dtype, "reshape", placed=True)


def reshape(node: ArrayNode, shape: tuple[int, ...]) -> ArrayNode:
    """Return the array in another shape of as many elements.

    Chunks of rows stay apart if the chunks of the new rows can end where theirs do; else there is one chunk.
    """
    old = node.shape
    if not old or not shape or 0 in old:
        return regrid(whole(node, range(len(old))), tuple(map(Cut.whole, shape)))
    width, wanted = prod(old[1:]), prod(shape[1:])
    unit = wanted // gcd(width, wanted)  # rows that end where a new row ends
    rows = ceil(node.grid[0].longest / unit) * unit
    cut = Cut.even(old[0], rows) if rows < old[0] else Cut.whole(old[0])
    node = rechunk(node, (cut, *map(Cut.whole, old[1:])))
    first = Cut.even(shape[0], rows * width // wanted) if cut.n > 1 else Cut.whole(shape[0])
    return regrid(node, (first, *map(Cut.whole, shape[1:])))


def _one_of(*parts: list[Any], dtype: DType) -> Chunk:
    (found,) = [one for part in parts for one in part]
    return found.astype(dtype)


def concat(nodes: Sequence[ArrayNode], axis: int, dtype: DType) -> ArrayNode:
    """Concatenate arrays along an axis, chunk by chunk; they agree along all others, and none is empty along it."""
    if len(nodes) == 1:
        return cast(nodes[0], dtype)
    first = nodes[0].grid
    fitted = [
        rechunk(node, tuple([(node.grid if a == axis else first)[a] for a in range(len(first))])) for node in nodes
    ]
    inputs, grid = side_by_side(fitted, axis)
    return _made(_one_of, inputs, grid, dtype, "concat", dtype=dtype)


# -------------------------------------------------------------------------------------------------------- selections


def _cut_out(place: ChunkPlace, x: Any, *, taken: Any) -> Chunk:
    """Return the part of a chunk that slices select."""
    if isinstance(x, list):
        (x,) = x
    inside = np.ones(x.coords.shape[1], bool)
    coords = []
    for at, one, lo, n in zip(x.coords, taken, place.begin, place.shape, strict=True):
        begin = one.start + one.step * lo if n else 0
        begin -= one.cut.span(one.cut.at(begin))[0] if n else 0
        number, rest = np.divmod(at - begin, one.step)
        inside &= (rest == 0) & (number >= 0) & (number < n)
        coords.append(number)
    stacked = np.array(coords, np.int64).reshape(len(place.shape), -1)
    return coo(stacked[:, inside], x.data[inside], place.shape, x.fill_value)


def sliced(node: ArrayNode, index: Sequence[slice]) -> ArrayNode:
    """Return the selection of one slice for each axis."""
    made = take_slices(node, index)
    if made is node:
        return node
    taken = tuple([along(cut, one) for cut, one in zip(node.grid, index, strict=True)])
    return _made(_cut_out, made.inputs, made.grid, node.dtype, "slice", held=node.held, placed=True, taken=taken)


def _picked(place: ChunkPlace, x: Chunk, *, axis: int, numbers: NumpyArray) -> Chunk:
    """Return lines of a chunk by their numbers, which may repeat."""
    lo, n = place.begin[axis], place.shape[axis]
    wanted = numbers[lo : lo + n]
    order = np.argsort(wanted, kind="stable")
    ranked = wanted[order]
    first = np.searchsorted(ranked, x.coords[axis], side="left")
    times = np.searchsorted(ranked, x.coords[axis], side="right") - first
    from_, ends = np.repeat(np.arange(len(times)), times), np.cumsum(times)
    nth = np.arange(len(from_)) - np.repeat(ends - times, times)
    coords = x.coords[:, from_]
    coords[axis] = order[first[from_] + nth]
    return coo(coords, x.data[from_], place.shape, x.fill_value)


def picked(node: ArrayNode, axis: int, numbers: NumpyArray) -> ArrayNode:
    """Return lines along an axis by their numbers, in chunks as long as those of the array."""
    cut = Cut.even(len(numbers), max(1, node.grid[axis].longest))
    node = whole(node, [axis])
    grid = tuple([cut if a == axis else one for a, one in enumerate(node.grid)])
    one = mapped(node, grid, [None if a == axis else a for a in range(len(grid))])
    return _made(_picked, [one], grid, node.dtype, "take", placed=True, axis=axis, numbers=numbers)


# --------------------------------------------------------------------------------------------- element by element


def _called(*operands: Any, fn: Any, dtype: DType, fill: Any) -> Chunk:
    """Call an element-wise function of sparse chunks and numbers."""
    from sparse import elemwise

    shape = np.broadcast_shapes(*[one.shape for one in operands if hasattr(one, "coords")])
    # The package would compile its own broadcasting, which takes seconds.
    given = [one.broadcast_to(shape) if hasattr(one, "coords") and one.shape != shape else one for one in operands]
    made = elemwise(fn, *given)
    return coo(made.coords, made.data.astype(dtype, copy=False), shape, fill)


def elements(fn: Any, operands: Sequence[Any], dtype: DType, fill: Any, name: str) -> ArrayNode:
    """Return an element-wise function of sparse arrays and numbers, which are broadcast."""
    nodes = [one for one in operands if isinstance(one, ArrayNode)]
    grid = common_grid(nodes, broadcast_shapes(*[node.grid for node in nodes]))
    inputs, args = _read(operands, grid)
    words = {"fn": fn, "dtype": dtype, "fill": fill}
    made = ArrayNode(KernelKind.CALL, _called, inputs, grid, dtype, args=args, kwargs=words, name=name)
    made.held = UNKNOWN_BYTES
    return made


def _read(operands: Sequence[Any], grid: Grid) -> tuple[list[NodeInput], list[Any]]:
    """Return how operands are read that are broadcast to a grid, and the arguments of the call."""
    inputs: list[NodeInput] = []
    args: list[Any] = []
    for one in operands:
        if not isinstance(one, ArrayNode):
            args.append(one)
            continue
        missing = len(grid) - len(one.grid)
        cuts = tuple([cut if cut.size == 1 else grid[axis + missing] for axis, cut in enumerate(one.grid)])
        args.append(OperandSlot(len(inputs)))
        inputs.append(stretched(rechunk(one, cuts) if is_coordinate(one) else fitted_dense(one, grid), grid))
    return inputs, args


def _gathered(x: Chunk, y: Chunk, *, fn: Any, dtype: DType) -> Chunk:
    """Call a function of the stored elements and the elements of a dense chunk at their places."""
    shape = np.broadcast_shapes(x.shape, np.shape(y))
    wide = x.broadcast_to(shape) if x.shape != shape else x
    there = np.broadcast_to(np.asarray(y), shape)[tuple(wide.coords)]
    return coo(wide.coords, fn(wide.data, there).astype(dtype, copy=False), shape, 0)


def gathered(fn: Any, x: ArrayNode, y: ArrayNode, dtype: DType, name: str) -> ArrayNode:
    """Return a function of a sparse and a dense array that is 0 where the sparse one stores nothing."""
    grid = common_grid([x, y], broadcast_shapes(x.grid, y.grid))
    inputs, _ = _read([x, y], grid)
    return _made(_gathered, inputs, grid, dtype, name, fn=fn, dtype=dtype)


def squared_distance(value: Any, middle: Any) -> Any:
    """Return squares of distances."""
    return np.square(np.abs(value - middle))


# -------------------------------------------------------------------------------------------------------- reductions


def _reduced(x: Chunk, *, fn: np.ufunc, axes: tuple[int, ...], dtype: DType) -> Chunk:
    made = (
        x.reduce(fn, axis=axes, keepdims=True, dtype=dtype) if fn in _TYPED else x.reduce(fn, axis=axes, keepdims=True)
    )
    return made.astype(dtype)


_TYPED = frozenset({np.add, np.multiply})
"""Ufuncs whose reductions take the type of their sums."""


def _finished(place: ChunkPlace, x: Chunk, *, fill: Any) -> Chunk:
    """Return a reduced chunk without its axes of length 1; rounding may have made its fill value another one."""
    made = x.reshape(place.shape)
    return coo(made.coords, made.data, place.shape, fill, ordered=True)


def reduce(
    fn: np.ufunc, node: ArrayNode, axes: tuple[int, ...], dtype: DType, fill: Any, *, keepdims: bool, name: str
) -> ArrayNode:
    """Reduce by a ufunc along axes; `fill` is the result of elements that are not stored.

    ValueError, as NumPy words it: there is nothing to reduce and the ufunc has no identity.
    """
    if fn.identity is None and any(node.grid[axis].size == 0 for axis in axes):
        raise ValueError(f"zero-size array to reduction operation {fn.__name__} which has no identity")
    grid = parts_grid(node.grid, axes)
    part = _made(_reduced, [node], grid, dtype, name, fn=fn, axes=axes, dtype=dtype)
    made = step = tree(part, axes, combine_ufunc, {"fn": fn, "axes": axes})
    while step is not part:
        step.held = UNKNOWN_BYTES
        step = step.inputs[0].node
    left = made.grid if keepdims else tuple([cut for axis, cut in enumerate(made.grid) if axis not in axes])
    return _made(_finished, [made], left, dtype, name, placed=True, fill=fill)


def _stored_along(x: Chunk) -> Chunk:
    return coo(x.coords, np.ones(len(x.data), np.int64), x.shape, 0, ordered=True)


def stored(node: ArrayNode) -> ArrayNode:
    """Return an array with a 1 for each stored element."""
    return _made(_stored_along, [node], node.grid, np.dtype(np.int64), "stored")


# ---------------------------------------------------------------------------------------------------------- products


def _matrix(x: Chunk, rows: int, columns: int) -> Any:
    """Return a chunk as a matrix: in the CSR format of SciPy if it is sparse."""
    flat = x.reshape((rows, columns))
    return flat.to_scipy_sparse().tocsr() if hasattr(x, "coords") else np.asarray(flat)


def _as_chunk(made: Any, shape: Sequence[int], dtype: DType) -> Chunk:
    """Return a product of matrices in the shape of a chunk."""
    if not hasattr(made, "tocoo"):
        return np.asarray(made, dtype).reshape(shape)
    found = made.tocoo()
    found.sum_duplicates()
    flat = coo((found.row, found.col), found.data.astype(dtype, copy=False), found.shape, 0)
    return flat.reshape(tuple(shape))


def _product(place: ChunkPlace, x: Chunk, y: Chunk, *, n: int, dtype: DType) -> Chunk:
    """Multiply over the last `n` axes of `x` and the first `n` axes of `y`."""
    inner = prod(y.shape[:n])
    left = _matrix(x, prod(x.shape[: x.ndim - n]), inner)
    return _as_chunk(left @ _matrix(y, inner, prod(y.shape[n:])), place.shape, dtype)


def product(x: ArrayNode, y: ArrayNode, n: int, dtype: DType) -> ArrayNode:
    """Return the sums of products over the last `n` axes of `x` and the first `n` of `y`; one at least is sparse.

    Each task reads these axes whole. The result is sparse if both are.
    """
    first = len(x.grid) - n
    grid = (*x.grid[:first], *y.grid[n:])
    x, y = _whole(x, range(first, len(x.grid))), _whole(y, range(n))
    inputs = [
        mapped(x, grid, [*range(first), *[None] * (len(y.grid) - n)]),
        mapped(y, grid, [*[None] * first, *range(n, len(y.grid))]),
    ]
    both = is_coordinate(x) and is_coordinate(y)
    return _made_product(_product, inputs, grid, dtype, sparse=both, n=n)


def _whole(node: ArrayNode, axes: Sequence[int]) -> ArrayNode:
    grid = tuple([Cut.whole(cut.size) if axis in axes else cut for axis, cut in enumerate(node.grid)])
    return rechunk(node, grid) if is_coordinate(node) else fitted_dense(node, grid)


def _made_product(fn: Any, inputs: Any, grid: Grid, dtype: DType, *, sparse: bool, **words: Any) -> ArrayNode:
    made = call(fn, inputs, grid, dtype, placed=True, name="matmul", dtype=dtype, **words)
    made.held = UNKNOWN_BYTES if sparse else None
    return made


def _blocks(x: Chunk, stack: tuple[int, ...]) -> Any:
    """Return a stack of matrices as one matrix with the matrices on its diagonal; dense ones below one another."""
    rows, columns = x.shape[-2:]
    shape = (*stack, rows, columns)
    if not hasattr(x, "coords"):
        return np.broadcast_to(x, shape).reshape(-1, columns)
    wide = (x.broadcast_to(shape) if x.shape != shape else x).reshape((prod(stack), rows, columns))
    at, i, j = wide.coords
    size = (prod(stack) * rows, prod(stack) * columns)
    return coo((at * rows + i, at * columns + j), wide.data, size, 0).to_scipy_sparse().tocsr()


def _below(x: Chunk, stack: tuple[int, ...]) -> Any:
    """Return a stack of matrices as one matrix, below one another."""
    shape = (*stack, *x.shape[-2:])
    if not hasattr(x, "coords"):
        return np.broadcast_to(x, shape).reshape(-1, shape[-1])
    wide = x.broadcast_to(shape) if x.shape != shape else x
    return _matrix(wide, prod(shape[:-1]), shape[-1])


def _stacked(place: ChunkPlace, x: Chunk, y: Chunk, *, dtype: DType) -> Chunk:
    stack = place.shape[:-2]
    if hasattr(x, "coords"):
        return _as_chunk(_blocks(x, stack) @ _below(y, stack), place.shape, dtype)
    turned = (*range(y.ndim - 2), y.ndim - 1, y.ndim - 2)
    made = _blocks(_turned(y, order=turned), stack) @ _below(np.swapaxes(x, -1, -2), stack)
    return np.swapaxes(np.asarray(made, dtype).reshape(*stack, place.shape[-1], place.shape[-2]), -1, -2)


def stacked_product(x: ArrayNode, y: ArrayNode, dtype: DType) -> ArrayNode:
    """Return the products of two stacks of matrices, of which one at least is sparse; the stacks are broadcast."""
    one, other = tuple(x.grid[:-2]), tuple(y.grid[:-2])
    shape = broadcast_shapes(one, other)
    held = [call(_dense, [], grid, dtype) for grid in (one, other) if grid]  # nodes that only have a grid
    stack = common_grid(held, shape)
    x, y = _whole(x, [len(x.grid) - 1]), _whole(y, [len(y.grid) - 2])
    grid = (*stack, x.grid[-2], y.grid[-1])
    return _made_product(
        _stacked,
        [_fitted_stack(x, grid, -2), _fitted_stack(y, grid, -1)],
        grid,
        dtype,
        sparse=is_coordinate(x) and is_coordinate(y),
    )


def _fitted_stack(node: ArrayNode, grid: Grid, kept: int) -> NodeInput:
    """Return how a stack of matrices is read for a product, of which it gives axis `kept`."""
    ndim, missing = len(node.grid), len(grid) - len(node.grid)
    cuts = [cut if cut.size == 1 or axis >= ndim - 2 else grid[axis + missing] for axis, cut in enumerate(node.grid)]
    fitted = rechunk(node, tuple(cuts)) if is_coordinate(node) else fitted_dense(node, tuple(cuts))
    axes: list[int | None] = [None if d < missing else d - missing for d in range(len(grid))]
    axes[-3 - kept] = None
    return mapped(fitted, grid, axes)
