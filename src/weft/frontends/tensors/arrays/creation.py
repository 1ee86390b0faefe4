"""Making arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import shaping, sources
from weft.frontends.tensors.arrays import chunking, joining, searching, shapes
from weft.frontends.tensors.arrays.array import DEVICE, Tensor, apply, as_tensor, order_of
from weft.frontends.tensors.arrays.conversion import Scalar, as_node, dense
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.dtypes import FLOAT, INT
from weft.frontends.tensors.arrays.executables import Executable, ExecutableTuple
from weft.frontends.tensors.arrays.files import readable
from weft.frontends.tensors.arrays.pending import pending
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.blocks import broadcast_shapes
from weft.frontends.tensors.chunks import Cut

if TYPE_CHECKING:
    from weft.frontends.tensors.chunks import Grid
    from weft.frontends.tensors.types import ArrayLike, ChunkSize, DType, DTypeLike


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    if not all(hasattr(size, "__index__") for size in sizes):
        raise TypeError(f"shape is {shape!r}: give whole numbers")
    given = tuple([int(size.__index__()) for size in sizes])
    if any(size < 0 for size in given):
        raise ValueError("negative dimensions are not allowed")
    return given


def _grid(shape: Sequence[int], dtype: DType, chunk_size: ChunkSize) -> Grid:
    return chunking.cut(shape, dtype.itemsize, chunk_size)


def _here(device: str | None) -> None:
    if device not in (None, DEVICE):
        raise ValueError(f"there is no device {device!r}; there is {DEVICE!r}")


@public("x data", also="asanyarray scalar tensor", refused="gpu")
def asarray(
    obj: Any,
    /,
    dtype: DTypeLike = None,
    *,
    device: str | None = None,
    copy: bool | None = None,
    order: str | None = None,
    ndmin: int = 0,
    sparse: bool = False,
    chunk_size: ChunkSize = None,
) -> Tensor:
    """Return an array of any value that NumPy makes an array of; `copy=True` copies the values now.

    A sparse matrix of SciPy becomes a `SparseTensor`, and with `sparse` any matrix. An array of the package `sparse`,
    and any sparse array that is no matrix, becomes a `CooTensor`.
    It has `ndmin` axes at least; new ones come first. `order` is how its values lie in memory when they are fetched.
    """
    _here(device)
    if not isinstance(obj, Tensor | np.ndarray) and hasattr(type(obj), "nnz"):
        from weft.frontends.tensors.arrays.sparse import as_sparse

        return as_sparse(obj, dtype, chunk_size)  # type: ignore[no-any-return]
    made = _array_of(obj, dtype, copy, chunk_size)
    if made.ndim < ndmin:
        made = made[(None,) * (ndmin - made.ndim)]
    return made.tosparse() if sparse else made.ordered(order)


@public("x data", refused="gpu")
def array(
    obj: Any,
    /,
    dtype: DTypeLike = None,
    *,
    copy: bool | None = True,
    order: str | None = None,
    ndmin: int = 0,
    sparse: bool = False,
    chunk_size: ChunkSize = None,
) -> Tensor:
    """Return an array of its own as `asarray`, which shares the elements of an array of this type; `copy=None`, too."""
    return asarray(obj, dtype, copy=copy, order=order, ndmin=ndmin, sparse=sparse, chunk_size=chunk_size)


def _array_of(obj: Any, dtype: Any, copy: bool | None, chunk_size: ChunkSize) -> Tensor:
    if isinstance(obj, Tensor):
        if dtype is not None and np.dtype(dtype) != obj.dtype:
            if copy is False:
                raise ValueError("a copy is needed to change the dtype")
            return obj.astype(dtype)
        made = Tensor(obj._node, obj.order) if copy else obj
        return made if chunk_size is None else made.rechunk(chunk_size)
    if isinstance(obj, list | tuple) and _holds_tensors(obj):
        obj = _unwrapped(obj)
    if isinstance(obj, bool | int | float | complex) and dtype is None and not isinstance(obj, np.generic):
        dtype = {bool: np.bool, int: INT, float: FLOAT, complex: np.complex128}[type(obj)]
    found = np.array(dense(obj), dtype=dtype) if copy else np.asarray(dense(obj), dtype=dtype, copy=copy)
    if found.ndim == 0:
        return Tensor(as_node(found))
    columns = found.flags.f_contiguous and not found.flags.c_contiguous
    node = sources.from_array(found, _grid(found.shape, found.dtype, chunk_size), found.dtype)
    return Tensor(node, "F" if columns else "C")


def _holds_tensors(obj: Any) -> bool:
    return any(isinstance(one, Tensor) or (isinstance(one, list | tuple) and _holds_tensors(one)) for one in obj)


def _unwrapped(obj: Any) -> Any:
    if isinstance(obj, Tensor):
        return obj.fetch()[()]
    return [_unwrapped(one) for one in obj] if isinstance(obj, list | tuple) else obj


@public()
def from_array(array: Any, chunk_size: ChunkSize = None) -> Tensor:
    """Return an array over an object that takes slices: NumPy, a memory map, Zarr, HDF5. It is read on demand.

    Sparse arrays are taken as by `asarray`, and arrays of dask in their own chunks, each computed by the task that
    reads it. TypeError: it takes none, or has masked elements. ValueError: its lengths are unknown.
    """
    if not isinstance(array, Tensor | np.ndarray) and hasattr(type(array), "nnz"):
        return asarray(array, chunk_size=chunk_size)
    if not all(hasattr(dense(array), name) for name in ("shape", "dtype", "__getitem__")):
        raise TypeError(f"array is {type(array).__name__}, without a shape and a dtype: give what takes slices")
    if hasattr(type(array), "__dask_graph__"):
        if any(size != size for size in array.shape):
            raise ValueError(
                f"array is {type(array).__name__} of shape {array.shape}, and dask does not know its lengths yet: give "
                "array.compute_chunk_sizes()"
            )
        chunk_size = array.chunks if chunk_size is None else chunk_size  # others would compute them several times
    dtype = np.dtype(array.dtype)
    array = readable(array)
    return Tensor(sources.from_array(array, _grid(array.shape, dtype, chunk_size), dtype))


@public()
def from_delayed(value: Any, shape: Any, dtype: DTypeLike = None, *, meta: Any = None, name: Any = None) -> Tensor:
    """Return an array in one chunk that is the value of an executable: of a call that `weft.remote.spawn` returned.

    The call is computed before tasks that read the array. Lengths that are unknown are NaN. TypeError: the value is no
    executable, or no dtype is given. ValueError, TypeError, when it is computed: it has another shape, or a dtype that
    cannot be cast.
    """
    if not isinstance(value, Executable):
        raise TypeError(f"value is {type(value).__name__}: give what weft.remote.spawn returned; arrays to from_array")
    kind = getattr(meta, "dtype", None) if dtype is None else dtype
    if kind is None:
        raise TypeError("from_delayed needs the dtype of the array: give dtype=")
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    known = _shape([0 if size != size else size for size in sizes])
    grid = tuple([Cut.unknown(1) if one != one else Cut.whole(n) for one, n in zip(sizes, known, strict=True)])
    return Tensor(pending(value, grid, np.dtype(kind)))


@public()
def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Return an array over the data of another library."""
    _here(device)
    return asarray(np.from_dlpack(x), copy=copy)


@public(refused="gpu")
def full(
    shape: Any,
    fill_value: Any,
    dtype: DTypeLike = None,
    chunk_size: ChunkSize = None,
    *,
    order: str = "C",
    device: str | None = None,
) -> Tensor:
    """Return an array of one value."""
    _here(device)
    value = fill_value.fetch()[()] if isinstance(fill_value, Tensor) else fill_value
    whole = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    given = np.asarray(value, dtype=INT if dtype is None and whole else dtype)
    size = _shape(shape)
    if given.ndim:
        return Tensor(shaping.broadcast_to(as_node(given), _grid(size, given.dtype, chunk_size))).ordered(order)
    return Tensor(sources.full(_grid(size, given.dtype, chunk_size), given[()], given.dtype)).ordered(order)


@public(also="empty", refused="gpu")
def zeros(
    shape: Any,
    dtype: DTypeLike = FLOAT,
    chunk_size: ChunkSize = None,
    *,
    order: str = "C",
    device: str | None = None,
    sparse: bool = False,
) -> Tensor:
    """Return an array of zeros; with `sparse`, a sparse one that stores none."""
    kind = FLOAT if dtype is None else dtype
    if sparse:
        from weft.frontends.tensors.arrays.sparse import zeros as sparse_zeros

        return sparse_zeros(_shape(shape), kind, chunk_size)  # type: ignore[no-any-return]
    return full(shape, np.zeros((), kind)[()], kind, chunk_size, order=order, device=device)


@public(refused="gpu")
def ones(
    shape: Any, dtype: DTypeLike = FLOAT, chunk_size: ChunkSize = None, *, order: str = "C", device: str | None = None
) -> Tensor:
    """Return an array of ones."""
    return full(shape, 1, FLOAT if dtype is None else dtype, chunk_size, order=order, device=device)


def _like(
    x: Any, value: Any, dtype: Any, order: str, device: str | None, shape: Any = None, chunk_size: ChunkSize = None
) -> Tensor:
    _here(device)
    node = as_node(x)
    given = np.asarray(value, dtype=node.dtype if dtype is None else dtype)
    if shape is not None or chunk_size is not None:
        size = node.shape if shape is None else shape
        return full(size, given[()], given.dtype, chunk_size, order="F" if order == "F" else "C")
    return Tensor(sources.full(node.grid, given[()], given.dtype), order_of(x)).ordered(order)


@public("a", refused="gpu")
def full_like(
    x: ArrayLike,
    /,
    fill_value: Any,
    dtype: DTypeLike = None,
    *,
    order: str = "K",
    device: str | None = None,
    shape: Any = None,
    chunk_size: ChunkSize = None,
) -> Tensor:
    """Return an array of one value, in shape and chunks like `x` unless others are given."""
    value = fill_value.fetch()[()] if isinstance(fill_value, Tensor) else fill_value
    return _like(x, value, dtype, order, device, shape, chunk_size)


@public("a", also="empty_like", refused="gpu")
def zeros_like(
    x: ArrayLike,
    /,
    dtype: DTypeLike = None,
    *,
    order: str = "K",
    device: str | None = None,
    shape: Any = None,
    chunk_size: ChunkSize = None,
) -> Tensor:
    """Return zeros, in shape and chunks like `x` unless others are given."""
    kind = as_node(x).dtype if dtype is None else dtype
    return _like(x, np.zeros((), kind)[()], kind, order, device, shape, chunk_size)


@public("a", refused="gpu")
def ones_like(
    x: ArrayLike,
    /,
    dtype: DTypeLike = None,
    *,
    order: str = "K",
    device: str | None = None,
    shape: Any = None,
    chunk_size: ChunkSize = None,
) -> Tensor:
    """Return ones, in shape and chunks like `x` unless others are given."""
    return _like(x, 1, dtype, order, device, shape, chunk_size)


@public(refused="gpu")
def arange(
    start: Any,
    /,
    stop: Any = None,
    step: Any = 1,
    dtype: DTypeLike = None,
    *,
    device: str | None = None,
    chunk_size: ChunkSize = None,
) -> Tensor:
    """Return numbers, or dates, from `start` up to `stop`, `step` apart.

    As with NumPy, the first two numbers are rounded to the dtype, and the others follow by their difference.
    """
    _here(device)
    start, stop, step = [one.fetch() if isinstance(one, Tensor) else one for one in (start, stop, step)]
    if stop is None:
        start, stop = 0, start
    if isinstance(start, str | np.datetime64 | np.timedelta64) or (dtype is not None and np.dtype(dtype).kind in "mM"):
        every: Any = np.arange(start, stop, None if step == 1 else step, dtype)  # type: ignore[call-overload]
        return asarray(every, chunk_size=chunk_size)
    n = sources.arange_length(start, stop, step)
    if dtype is None:
        dtype = np.result_type(np.arange(start, start, step), np.arange(stop, stop, step))
    kind = np.dtype(dtype)
    if kind.kind not in "biufcO":
        raise TypeError(f"arange makes numbers and dates, not {kind}: give another dtype, and .astype of the result")
    if kind.kind == "b" and n > 2:
        raise TypeError("arange() is only supported for booleans when the result has at most length 2.")
    second = None
    if kind.kind != "O":
        pair = np.zeros(2, kind)
        for at, one in enumerate((start, start + step)[:n]):
            pair[at] = one  # OverflowError: it does not fit
        wide = pair.astype(sources.counted_in(kind))
        start, second = pair
        step = np.diff(wide)[0]
    return Tensor(sources.arange(_grid((n,), kind, chunk_size), start, step, second, kind))


@public(refused="gpu")
def linspace(
    start: Any,
    stop: Any,
    /,
    num: int = 50,
    endpoint: bool = True,
    *,
    dtype: DTypeLike = None,
    retstep: bool = False,
    axis: int = 0,
    device: str | None = None,
    chunk_size: ChunkSize = None,
) -> Any:
    """Return `num` numbers from `start` to `stop`, evenly spaced; with `retstep` also the distance between them.

    If `start` or `stop` is an array, the numbers for its elements lie along `axis`.
    """
    _here(device)
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    if any(np.ndim(one) for one in (start, stop)):
        made, step = _between(start, stop, num, endpoint, dtype, axis)
        made = made if chunk_size is None else made.rechunk(chunk_size)
        return (made, step) if retstep else made
    own = np.result_type(*[getattr(one, "dtype", one) for one in (start, stop)], 1.0)
    wanted = np.dtype(own if dtype is None else dtype)
    kind = wanted if wanted.kind in "biufc" else np.dtype(own)
    made = Tensor(sources.linspace(_grid((num,), kind, chunk_size), start, stop, num, kind, endpoint=endpoint))
    made = made.astype(wanted)
    parts = num - 1 if endpoint else num
    return (made, (stop - start) / parts if parts > 0 else np.nan) if retstep else made


@public(refused="gpu")
def logspace(
    start: Any,
    stop: Any,
    /,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    *,
    dtype: DTypeLike = None,
    axis: int = 0,
    chunk_size: ChunkSize = None,
) -> Tensor:
    """Return `num` powers of `base` with exponents from `start` to `stop`, evenly spaced as by `linspace`."""
    powers: Tensor = apply(np.power, base, linspace(start, stop, num, endpoint, axis=axis, chunk_size=chunk_size))
    return powers if dtype is None else powers.astype(np.dtype(dtype))


@public(refused="gpu")
def geomspace(
    start: Any,
    stop: Any,
    /,
    num: int = 50,
    endpoint: bool = True,
    *,
    dtype: DTypeLike = None,
    chunk_size: ChunkSize = None,
) -> Tensor:
    """Return `num` numbers from `start` to `stop` with equal ratios. Both are single real numbers of one sign."""
    if np.ndim(start) or np.ndim(stop) or np.iscomplexobj(start) or np.iscomplexobj(stop):
        raise TypeError("geomspace takes single real numbers; see logspace for arrays and complex numbers")
    if start == 0 or stop == 0:
        raise ValueError("Geometric sequence cannot include zero")
    if (start < 0) != (stop < 0):
        raise ValueError(f"geomspace takes two numbers of one sign, not {start} and {stop}")
    sign = -1.0 if start < 0 else 1.0
    ends = np.log10(sign * start), np.log10(sign * stop)
    made: Tensor = apply(np.multiply, logspace(*ends, num, endpoint, chunk_size=chunk_size), sign)
    at = arange(num, chunk_size=chunk_size)  # the ends are exact
    made = searching.where(apply(np.equal, at, 0), float(start), made)
    if endpoint and num > 1:
        made = searching.where(apply(np.equal, at, num - 1), float(stop), made)
    return made if dtype is None else made.astype(np.dtype(dtype))


def _between(start: Any, stop: Any, num: int, endpoint: bool, dtype: Any, axis: int) -> tuple[Tensor, Any]:
    """Return evenly spaced numbers between the elements of arrays, and the distances between them."""
    first, last = as_tensor(start), as_tensor(stop)
    kinds = [one if isinstance(one, Scalar) else x.dtype for one, x in ((start, first), (stop, last))]
    wide = np.result_type(*kinds, 1.0)
    first, last = first.astype(wide), last.astype(wide)
    parts = num - 1 if endpoint else num
    away = apply(np.subtract, last, first)
    at = shapes.reshape(arange(num), (num, *(1,) * away.ndim))
    made = apply(np.add, apply(np.divide, apply(np.multiply, at, away), max(parts, 1)), first)
    if endpoint and num > 1:
        made = searching.where(apply(np.equal, at, num - 1), last, made)
    kind = wide if dtype is None else np.dtype(dtype)
    if kind.kind in "iu":
        made = apply(np.floor, made)
    return shapes.moveaxis(made.astype(kind), 0, axis), apply(np.divide, away, parts) if parts > 0 else np.nan


@public("N", refused="gpu")
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    k: int = 0,
    dtype: DTypeLike = FLOAT,
    *,
    M: int | None = None,  # noqa: N803 - as NumPy calls it
    order: str = "C",
    device: str | None = None,
    sparse: bool = False,
    chunk_size: ChunkSize = None,
) -> Tensor:
    """Return a matrix of zeros with ones on its k-th diagonal; with `sparse`, a `SparseTensor`."""
    _here(device)
    n_cols = M if n_cols is None else n_cols
    kind = np.zeros((), FLOAT if dtype is None else dtype).dtype  # text without a length has length 1, as in NumPy
    shape = _shape((n_rows, n_rows if n_cols is None else n_cols))
    if sparse:
        from weft.frontends.tensors.arrays.sparse import diagonal_matrix

        return diagonal_matrix(shape, k, kind, chunk_size)  # type: ignore[return-value]
    return Tensor(sources.eye(_grid(shape, kind, chunk_size), k, kind)).ordered(order)


@public(refused="gpu")
def tri(
    N: int,  # noqa: N803 - as NumPy calls it
    M: int | None = None,  # noqa: N803
    k: int = 0,
    dtype: DTypeLike = FLOAT,
    *,
    chunk_size: ChunkSize = None,
) -> Tensor:
    """Return a matrix with ones on and below the k-th diagonal, and zeros above it."""
    columns = N if M is None else M
    kind = FLOAT if dtype is None else dtype
    return tril(ones((N, columns), kind, chunk_size), k)


@public("m", refused="gpu")
def tril(x: ArrayLike, /, k: int = 0) -> Tensor:
    """Set the elements above the k-th diagonal to zero."""
    return _triangle(x, k, upper=False)


@public("m", refused="gpu")
def triu(x: ArrayLike, /, k: int = 0) -> Tensor:
    """Set the elements below the k-th diagonal to zero."""
    return _triangle(x, k, upper=True)


@needs_lengths
def _triangle(x: ArrayLike, k: int, *, upper: bool) -> Tensor:
    node = as_node(x)
    if not node.grid:
        raise ValueError("the array has no axes")
    if len(node.grid) == 1:
        from weft.frontends.tensors.arrays.shapes import spread

        node = spread(Tensor(node), node.shape * 2).node  # as in NumPy: a row for each element
    return Tensor(shaping.triangle(node, k, upper=upper))


@public()
def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> tuple[Tensor, ...]:
    """Return coordinate arrays of a grid from its axes; `sparse` ones have length 1 along all other axes."""
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    from weft.frontends.tensors.arrays.shapes import broadcast_to, reshape, spread

    nodes = [as_node(one) for one in arrays]
    order = list(range(len(nodes)))
    if indexing == "xy" and len(nodes) > 1:
        order[0], order[1] = 1, 0
    sizes = [0] * len(nodes)
    for at, node in zip(order, nodes, strict=True):
        sizes[at] = node.size
    made = []
    for at, node, one in zip(order, nodes, arrays, strict=True):
        shape = [1] * len(nodes)
        shape[at] = node.size
        along = reshape(Tensor(node) if copy else one, tuple(shape))
        made.append(along if sparse else (spread if copy else broadcast_to)(along, tuple(sizes)))
    return tuple(made)  # the standard asks for no other type


def shape_of_all(*arrays: Any) -> tuple[int, ...]:
    """Return the shape that arrays are broadcast to."""
    return broadcast_shapes(*[as_node(one).grid for one in arrays])


@public(refused="gpu")
def identity(n: int, dtype: DTypeLike = FLOAT, *, sparse: bool = False, chunk_size: ChunkSize = None) -> Tensor:
    """Return the identity matrix; with `sparse`, a `SparseTensor`."""
    return eye(n, dtype=dtype, sparse=sparse, chunk_size=chunk_size)


@public()
def indices(
    dimensions: Sequence[int], dtype: DTypeLike = INT, sparse: bool = False, *, chunk_size: ChunkSize = None
) -> Any:
    """Return the coordinates of a grid: the coordinates along axis i are element i of the first axis.

    With `sparse` they are a tuple, and have length 1 along all other axes.
    """
    sizes = tuple(dimensions)
    made = []
    for axis, size in enumerate(sizes):
        each = chunk_size[axis] if isinstance(chunk_size, tuple | list) else chunk_size
        along = arange(size, dtype=dtype, chunk_size=each)
        shape = tuple([size if a == axis else 1 for a in range(len(sizes))])
        own = shapes.reshape(along, shape)
        made.append(own if sparse else shapes.spread(own, sizes))
    if sparse:
        return ExecutableTuple(made)
    return joining.stack(made, axis=0) if made else zeros((0,), dtype)


@public("a")
def ascontiguousarray(x: ArrayLike, dtype: DTypeLike = None, *, chunk_size: ChunkSize = None) -> Tensor:
    """Return an array whose fetched values are in row-major order."""
    made = asarray(x, dtype=dtype, order="C", chunk_size=chunk_size)
    return shapes.reshape(made, (1,)) if not made.ndim else made


@public("a")
def asfortranarray(x: ArrayLike, dtype: DTypeLike = None, *, chunk_size: ChunkSize = None) -> Tensor:
    """Return an array whose fetched values are in column-major order."""
    made = asarray(x, dtype=dtype, order="F", chunk_size=chunk_size)
    return shapes.reshape(made, (1,)) if not made.ndim else made


@public("a", method=True)
def copy(x: ArrayLike, order: str = "K") -> Tensor:
    """Return an independent copy."""
    return asarray(x, copy=True, order=order)
