"""Sparse matrices: lazy, cut into chunks that are sparse arrays of SciPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import blocks, coordinate_chunks, reductions, sources, sparse_chunks
from weft.frontends.tensors.arrays import chunking, coordinates, runners
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.conversion import Scalar, as_node
from weft.frontends.tensors.arrays.deferred import Expressed
from weft.frontends.tensors.arrays.executables import Executable
from weft.frontends.tensors.arrays.extras import needed
from weft.frontends.tensors.arrays.registry import method, public
from weft.frontends.tensors.arrays.sparse_base import SparseArray
from weft.frontends.tensors.blocks import stretched, whole_along
from weft.frontends.tensors.chunks import Cut, normalize, one_chunk
from weft.model.wording import counted

if TYPE_CHECKING:
    from weft.frontends.tensors.chunks import Grid
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.frontends.tensors.types import Axis, ChunkSize, DType, DTypeLike, NumpyArray

KEEPING_ZERO = frozenset(
    {
        np.absolute, np.arcsin, np.arcsinh, np.arctan, np.arctanh, np.cbrt, np.ceil, np.conjugate, np.deg2rad,
        np.degrees, np.expm1, np.fabs, np.floor, np.isinf, np.isnan, np.log1p, np.negative, np.positive, np.rad2deg,
        np.radians, np.rint, np.sign, np.signbit, np.sin, np.sinh, np.sqrt, np.square, np.tan, np.tanh, np.trunc,
    }
)  # fmt: skip
"""Ufuncs that are 0 of 0."""


_WRONG_INDEX = "a sparse array takes integers, slices, and vectors of integers or booleans"


def is_sparse(value: Any) -> bool:
    """Return whether a value is a sparse array: of SciPy, of the package `sparse`, or of Weft with such chunks."""
    if isinstance(value, Expressed):
        return False
    return hasattr(type(value), "nnz") and hasattr(value, "shape")


def as_sparse(value: Any, dtype: DTypeLike = None, chunk_size: ChunkSize = None) -> Any:
    """Return a sparse array of SciPy, of the package `sparse`, or of Weft as one of Weft.

    A matrix of SciPy is a `SparseTensor`, any other array a `CooTensor`. TypeError: its elements are no numbers.
    MissingExtraError: SciPy or the package `sparse` is not installed.
    """
    if coordinates.is_coordinate(value) or len(value.shape) != 2:
        return coordinates.as_coordinate(value, dtype, chunk_size)
    if isinstance(value, SparseTensor):
        made = value if dtype is None else value.astype(dtype)
        return made if chunk_size is None else made.rechunk(chunk_size)
    needed("scipy")
    found = sparse_chunks.csr(value.tocsr())
    if dtype is not None:
        found = found.astype(dtype)
    if found.dtype.kind not in "biufc":
        raise TypeError(f"sparse arrays of {found.dtype} are not supported")
    how = chunking.chunking()
    wanted = how.chunk_size if chunk_size is None else chunk_size
    if wanted is None:
        grid: Grid = (sparse_chunks.row_cut(found, how.workers, how.chunk_bytes), Cut.whole(found.shape[1]))
    else:
        grid = normalize(wanted, found.shape, found.dtype.itemsize, how.workers, how.chunk_bytes)
    return SparseTensor(sparse_chunks.from_csr(found, grid))


@method("tosparse")
def sparse_of(self: Tensor) -> Any:
    """Return the array with sparse chunks: a matrix with those of SciPy. TypeError: it has no numbers."""
    if self.ndim != 2:
        return coordinates.sparse_of(self)
    needed("scipy")
    if self.dtype.kind not in "biufc" or self.dtype == np.float16:
        raise TypeError(f"matrices are sparse if they have numbers that SciPy supports; this one is of {self.dtype}")
    return SparseTensor(sparse_chunks.tosparse(self.node))


def zeros(shape: tuple[int, ...], dtype: DTypeLike, chunk_size: ChunkSize = None) -> Any:
    """Return a sparse array that stores nothing: a matrix with chunks of SciPy."""
    if len(shape) != 2:
        return coordinates.zeros(shape, dtype, chunk_size)
    return diagonal_matrix(shape, 0, dtype, chunk_size, stored=False)


def diagonal_matrix(
    shape: tuple[int, ...], k: int, dtype: DTypeLike, chunk_size: ChunkSize = None, *, stored: bool = True
) -> SparseTensor:
    """Return a sparse matrix with ones on its k-th diagonal."""
    needed("scipy")
    from scipy.sparse import coo_array

    rows, columns = shape
    first = max(0, -k)
    at = np.arange(first, max(first, min(rows, columns - k)) if stored else first)
    made = coo_array((np.ones(len(at), np.dtype(dtype)), (at, at + k)), shape=shape)
    return as_sparse(made, chunk_size=chunk_size)  # type: ignore[no-any-return]


def drawn(
    method: str, shape: tuple[int, ...], seed: tuple[int, ...], dtype: DTypeLike, density: float, chunk_size: ChunkSize
) -> Any:
    """Return a sparse array with random numbers in a share of its elements: a matrix with chunks of SciPy.

    ValueError: the share is not between 0 and 1.
    """
    if not 0 <= density <= 1:
        raise ValueError(f"density is {density}; it is the share of stored elements, from 0 to 1")
    if len(shape) != 2:
        return coordinates.drawn(method, shape, seed, dtype, density, chunk_size)
    needed("scipy")
    kind, how = np.dtype(dtype), chunking.chunking()
    wanted = how.chunk_size if chunk_size is None else chunk_size
    if wanted is None:
        each = shape[1] * density * (kind.itemsize + sparse_chunks.INDEX_BYTES) + sparse_chunks.INDEX_BYTES
        rows = sparse_chunks.even_rows(shape[0], int(shape[0] * each), how.workers, how.chunk_bytes)
        grid: Grid = (rows, Cut.whole(shape[1]))
    else:
        grid = normalize(wanted, shape, kind.itemsize, how.workers, how.chunk_bytes)
    return SparseTensor(sparse_chunks.drawn(method, grid, seed, kind, density))


def call_numpy(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of NumPy, by its name in `numpy` or `numpy.linalg`, for arguments of which some are sparse.

    TypeError: it is not supported for sparse arrays.
    """
    function = getattr(np, name, None) or getattr(np.linalg, name)
    flat = [each for one in args for each in (one if isinstance(one, list | tuple) else [one])]
    if any(map(coordinates.is_coordinate, flat)):
        return coordinates.call_numpy(function, args, kwargs)
    given = [
        [_ours(each) for each in one] if isinstance(one, list | tuple) and any(map(is_sparse, one)) else _ours(one)
        for one in args
    ]
    known: Any = SparseTensor
    if isinstance(function, np.ufunc):
        return known.__array_ufunc__(_first_of(given), function, "__call__", *given, **kwargs)
    return known.__array_function__(_first_of(given), function, (), given, kwargs)


def _ours(value: Any) -> Any:
    return as_sparse(value) if is_sparse(value) else value


def _first_of(given: Sequence[Any]) -> SparseTensor:
    flat = [each for one in given for each in (one if isinstance(one, list) else [one])]
    found: SparseTensor = next(one for one in flat if isinstance(one, SparseTensor))
    return found


@public()
class SparseTensor(SparseArray):
    """A sparse matrix that is computed on request; its chunks are sparse arrays of SciPy.

    Made by `asarray` of a sparse array, and by `x.tosparse()`. Elements that are not stored are zeros, and stay zeros:
    a product with infinity or NaN changes stored elements alone, as in SciPy. `fetch` returns a `csr_array` of SciPy.
    """

    __slots__ = ()
    __array_priority__ = 1001

    # ------------------------------------------------------------------------------------------------- attributes

    @property
    def nnz(self) -> int:
        """The number of stored elements. Computes the array."""
        return int(Tensor(sparse_chunks.stored_elements(self._node)).fetch())

    @property
    def T(self) -> SparseTensor:  # noqa: N802
        """The transpose."""
        return SparseTensor(sparse_chunks.transpose(self._node))

    def transpose(self, axes: Sequence[int] | None = None) -> SparseTensor:
        """Return the transpose; with `axes=(0, 1)` the array itself."""
        order = (1, 0) if axes is None else tuple(axis % 2 for axis in axes)
        if sorted(order) != [0, 1]:
            raise ValueError(f"axes are {axes}; they are the two axes of the matrix in another order")
        return self.T if order == (1, 0) else self

    @property
    def real(self) -> SparseTensor:
        """The real part."""
        return self._elements(np.real, "real")

    @property
    def imag(self) -> SparseTensor:
        """The imaginary part."""
        return self._elements(np.imag, "imag")

    # ----------------------------------------------------------------------------------------------------- values

    def _value_of(self) -> Any:
        from scipy.sparse import block_array

        rows, columns = self._node.grid
        values = iter(self._node.kwargs["source"].values)
        found = [[next(values) for _ in range(columns.n)] for _ in range(rows.n)]
        made = found[0][0].copy() if rows.n == columns.n == 1 else block_array(found, format="csr")
        return made.astype(self.dtype, copy=False)

    def to_numpy(self, session: runners.Runner | None = None) -> NumpyArray:
        """Return all elements as a dense array of NumPy."""
        return self.fetch(session).toarray()  # type: ignore[no-any-return]

    toarray = to_numpy

    def todense(self) -> Tensor:
        """Return the same array with dense chunks."""
        return Tensor(sparse_chunks.todense(self._node))

    def tocoo(self) -> coordinates.CooTensor:
        """Return the matrix with chunks of the package `sparse`. MissingExtraError: it is not installed."""
        needed("sparse")
        return coordinates.CooTensor(coordinate_chunks.from_csr(self._node), 0)

    def __reduce__(self) -> tuple[Any, ...]:
        return as_sparse, (self.fetch(),)

    # ---------------------------------------------------------------------------------------------- shape and chunks

    def astype(self, dtype: DTypeLike) -> SparseTensor:
        """Return the array with another dtype."""
        return SparseTensor(sparse_chunks.cast(self._node, np.dtype(dtype)))

    def rechunk(self, chunk_size: ChunkSize = None, *, chunks: ChunkSize = None) -> SparseTensor:
        """Return the same array in other chunks; `chunks` is dask's name of the argument."""
        how = chunking.chunking()
        wanted = chunks if chunk_size is None else chunk_size
        grid = normalize(wanted, self.shape, self.dtype.itemsize, how.workers, how.chunk_bytes)
        return SparseTensor(sparse_chunks.rechunk(self._node, grid))

    def __getitem__(self, index: Any) -> Any:
        """Return rows and columns: sparse ones by slices, index arrays and masks; a number gives a dense vector."""
        given = list(index) if isinstance(index, tuple) else [index]
        if Ellipsis in [one for one in given if one is Ellipsis]:
            at = next(i for i, one in enumerate(given) if one is Ellipsis)
            given[at : at + 1] = [slice(None)] * (3 - len(given))
        given += [slice(None)] * (2 - len(given))
        if len(given) != 2:
            raise IndexError(f"{counted(len(given), 'index', 'indices')} for an array of 2 axes")
        if not any(isinstance(one, slice | int | np.integer) and not isinstance(one, bool) for one in given):
            return self._picked(*given)
        made, dropped = self, []
        for axis, one in enumerate(given):
            n = self.shape[axis]
            if isinstance(one, slice):
                made = made._sliced(axis, one)
            elif isinstance(one, int | np.integer) and not isinstance(one, bool):
                if not -n <= one < n:
                    raise IndexError(f"index {one} is out of bounds for axis {axis} with size {n}")
                at = int(one) % n
                made = made._sliced(axis, slice(at, at + 1))
                dropped.append(axis)
            else:
                made = made._taken(axis, one)
        return made.todense()[tuple([0 if a in dropped else slice(None) for a in range(2)])] if dropped else made

    def _sliced(self, axis: int, one: slice) -> SparseTensor:
        index = [one if a == axis else slice(None) for a in range(2)]
        return SparseTensor(sparse_chunks.sliced(self._node, index))

    def _taken(self, axis: int, index: Any) -> SparseTensor:
        """Return lines by their numbers or by a mask: a product with a matrix that has a 1 for each of them."""
        at = self._numbers(axis, index)
        if at.ndim != 1:
            raise IndexError(_WRONG_INDEX)
        chosen = self._ones_at(at, self.shape[axis])
        made: SparseTensor = chosen @ self if axis == 0 else self @ chosen.T
        return made

    def _picked(self, rows: Any, columns: Any) -> Any:
        """Return elements by the numbers of their rows and columns, as NumPy does: those of `numpy.ix_` are sparse."""
        i, j = self._numbers(0, rows), self._numbers(1, columns)
        if i.ndim == j.ndim == 2 and i.shape[1] == j.shape[0] == 1:
            return self._taken(0, i[:, 0])._taken(1, j[0])
        i, j = np.broadcast_arrays(i, j)
        if i.ndim != 1:
            raise IndexError(_WRONG_INDEX)
        picked = self._taken(0, i) * self._ones_at(j, self.shape[1])
        return picked.sum(axis=1, dtype=self.dtype)

    def _numbers(self, axis: int, index: Any) -> NumpyArray:
        at = np.asarray(index.fetch() if isinstance(index, Executable) else index)
        n = self.shape[axis]
        if at.dtype.kind == "b":
            if at.shape != (n,):
                raise IndexError(f"boolean index did not match: axis {axis} has {n} elements, and the mask {at.shape}")
            at = np.flatnonzero(at)
        if at.ndim < 1 or (at.dtype.kind not in "iu" and at.size):
            raise IndexError(_WRONG_INDEX)
        at = at.astype(np.int64)
        if np.any((at < -n) | (at >= n)):
            raise IndexError(f"an index is out of bounds for axis {axis} with size {n}")
        return at % max(n, 1)

    def _ones_at(self, at: NumpyArray, n: int) -> SparseTensor:
        """Return the matrix with a 1 in each row, in the columns `at`, of `n`."""
        from scipy.sparse import csr_array

        ones = np.ones(len(at), self.dtype)
        made: SparseTensor = as_sparse(csr_array((ones, at, np.arange(len(at) + 1)), shape=(len(at), n)))
        return made

    # --------------------------------------------------------------------------------------------- element by element

    def _elements(self, fn: Callable[..., Any], name: str) -> SparseTensor:
        dtype = fn(np.zeros(1, self.dtype)).dtype
        if dtype == np.float16:
            raise TypeError(
                f"{name} of {self.dtype} is float16, which sparse arrays have not: give x.astype('float32')"
            )
        return SparseTensor(sparse_chunks.elements(fn, self._node, dtype, name))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **given: Any) -> Any:
        """Call a ufunc for NumPy. TypeError: its result would not be sparse."""
        if method != "__call__" or given or ufunc.nout != 1:
            raise TypeError(f"numpy.{ufunc.__name__} is called for sparse arrays without further arguments alone")
        if ufunc is np.matmul:
            return _times(*inputs)
        if ufunc in KEEPING_ZERO:
            return self._elements(ufunc, ufunc.__name__)
        if len(inputs) == 1:
            raise TypeError(f"{ufunc.__name__} of a sparse array is dense, since it is not 0 of 0: give x.todense()")
        return _binary(ufunc, *inputs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Call the method of a function's name for NumPy. TypeError: there is none."""
        name = func.__name__
        if name in _OF_SEVERAL:
            return _OF_SEVERAL[name](*args, **kwargs)
        if name not in _FUNCTIONS or not args or args[0] is not self:
            raise TypeError(f"numpy.{name} of a sparse array is not supported: give x.todense()")
        return getattr(self, name)(*args[1:], **kwargs)

    # ---------------------------------------------------------------------------------------------------- reductions

    def sum(self, axis: Axis = None, dtype: DTypeLike = None, keepdims: bool = False) -> Tensor:
        """Return sums along axes, as a dense array."""
        kind = np.dtype(dtype) if dtype is not None else np.sum(np.zeros(1, self.dtype)).dtype
        axes = reductions.axes_of(axis, 2)
        return Tensor(sparse_chunks.total(self._node, axes, kind, keepdims=keepdims))

    def mean(self, axis: Axis = None, dtype: DTypeLike = None, keepdims: bool = False) -> Tensor:
        """Return means along axes, as a dense array; elements that are not stored count."""
        kind = np.mean(np.zeros(1, self.dtype)).dtype if dtype is None else np.dtype(dtype)
        n = self._along(axis)
        wide = np.float32 if kind == np.float16 else kind
        sums = self.sum(axis, wide, keepdims)
        return (apply(np.true_divide, sums, n) if n else apply(np.multiply, sums, np.nan)).astype(kind)

    def _squares(self, axis: Axis, n: int) -> tuple[Tensor, DType | None]:
        middle = self.mean(axis, keepdims=True)
        square = apply(np.square, apply(np.absolute, middle))
        ones = self._elements(np.ones_like, "ones").astype(middle.dtype)
        away = self - ones * middle
        there = (abs(away) * abs(away)).sum(axis, keepdims=True)
        missing = apply(np.subtract, float(n), ones.real.sum(axis, keepdims=True))
        return apply(np.add, there, apply(np.multiply, missing, square)), None

    def max(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Return the largest elements along axes, as a dense array. ValueError: there are none."""
        axes = reductions.axes_of(axis, 2)
        return Tensor(sparse_chunks.extreme(np.maximum, self._node, axes, keepdims=keepdims))

    def min(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Return the smallest elements along axes, as a dense array. ValueError: there are none."""
        axes = reductions.axes_of(axis, 2)
        return Tensor(sparse_chunks.extreme(np.minimum, self._node, axes, keepdims=keepdims))

    def count_nonzero(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Return the number of elements along axes that are not 0, as a dense array."""
        return Tensor(sparse_chunks.nonzeros(self._node, reductions.axes_of(axis, 2), keepdims=keepdims))

    def any(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Return whether some element along axes is not 0."""
        return apply(np.not_equal, self.count_nonzero(axis, keepdims), 0)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        """Return a diagonal, as a dense vector: the k-th one above the main one, below it if `offset` is negative."""
        if (axis1 % 2, axis2 % 2) == (1, 0):
            return self.T.diagonal(offset)
        if axis1 % 2 == axis2 % 2:
            raise ValueError("axis1 and axis2 cannot be the same")
        rows, columns = self.shape
        first = max(0, -offset)
        past = max(first, min(rows, columns - offset))
        there = self * diagonal_matrix(self.shape, offset, self.dtype)
        made: Tensor = there.sum(axis=1, dtype=self.dtype)[first:past]
        return made

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        """Return the sum of a diagonal."""
        made: Tensor = self.diagonal(offset, axis1, axis2).sum()
        return made

    def norm(self, ord: Any = None, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Return a norm as `numpy.linalg.norm`: of the matrix None or "fro", 1, inf; of its lines 2, 1, inf.

        TypeError: it is another one, which needs the whole matrix.
        """
        size: SparseTensor = abs(self)
        if (ord in (None, "fro") and axis is None) or (ord in (None, 2) and axis is not None):
            return apply(np.sqrt, (size * size).sum(axis, keepdims=keepdims))
        if ord in (1, np.inf):
            if axis is None:
                made: Tensor = size.sum(axis=0 if ord == 1 else 1, keepdims=keepdims).max(keepdims=keepdims)
                return made
            return size.sum(axis, keepdims=keepdims) if ord == 1 else size.max(axis, keepdims)
        raise TypeError(f"the norm {ord!r} of a sparse array is not supported: give x.todense()")

    # ----------------------------------------------------------------------------------------------------- operators

    def __neg__(self) -> Any:
        return np.negative(self)

    def __abs__(self) -> Any:
        return np.absolute(self)

    def __add__(self, other: Any) -> Any:
        return _binary(np.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return _binary(np.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return _binary(np.subtract, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _binary(np.subtract, other, self)

    def __mul__(self, other: Any) -> Any:
        return _binary(np.multiply, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _binary(np.multiply, other, self)

    def __truediv__(self, other: Any) -> Any:
        return _binary(np.true_divide, self, other)

    def __pow__(self, other: Any) -> Any:
        return _binary(np.power, self, other)

    def __eq__(self, other: object) -> Any:
        return _binary(np.equal, self, other)

    def __ne__(self, other: object) -> Any:
        return _binary(np.not_equal, self, other)

    def __le__(self, other: Any) -> Any:
        return _binary(np.less_equal, self, other)

    def __ge__(self, other: Any) -> Any:
        return _binary(np.greater_equal, self, other)

    def __lt__(self, other: Any) -> Any:
        return _binary(np.less, self, other)

    def __gt__(self, other: Any) -> Any:
        return _binary(np.greater, self, other)

    def __matmul__(self, other: Any) -> Any:
        return _times(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _times(other, self)

    def dot(self, other: Any) -> Any:
        """Return the matrix product."""
        return _times(self, other)


_FUNCTIONS = frozenset(
    {
        "any", "count_nonzero", "diagonal", "max", "mean", "min", "norm", "std", "sum", "trace", "transpose", "var",
    }
)  # fmt: skip
"""Functions of NumPy that are methods of sparse arrays."""


def _concatenated(arrays: Sequence[Any], axis: int | None = 0) -> SparseTensor:
    """Concatenate sparse arrays along an axis. TypeError: one is dense, or they would become a vector."""
    if any(map(coordinates.is_coordinate, arrays)):
        return coordinates.call_numpy(np.concatenate, (arrays, axis), {})  # type: ignore[no-any-return]
    dense = [one for one in arrays if not is_sparse(one)]
    if dense or axis is None:
        raise TypeError("sparse arrays are concatenated with sparse ones, along an axis: give x.tosparse()")
    given, along = [as_sparse(one) for one in arrays], reductions.axes_of(axis, 2)[0]
    if len({one.shape[1 - along] for one in given}) > 1:
        raise ValueError(f"arrays of shapes {[one.shape for one in given]} are not concatenated along axis {along}")
    nodes = [one._node for one in given]
    nodes = [node for node in nodes if node.shape[along]] or nodes[:1]
    return SparseTensor(sparse_chunks.concat(nodes, along, np.result_type(*[one.dtype for one in given])))


_OF_SEVERAL: dict[str, Callable[..., Any]] = {
    "concatenate": _concatenated,
    "vstack": _concatenated,
    "hstack": lambda arrays: _concatenated(arrays, 1),
    "dot": lambda x, y: _times(x, y),
    "matrix_transpose": lambda x: x.T,
    "real": lambda val: val.real,
    "imag": lambda val: val.imag,
}
"""Functions of NumPy whose arguments may all be sparse."""


def _binary(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    """Return a ufunc of two operands, at least one of them sparse. TypeError: the result would not be sparse."""
    if coordinates.is_coordinate(x) or coordinates.is_coordinate(y):
        return coordinates.call_numpy(ufunc, (x, y), {})
    if is_sparse(x) and is_sparse(y):
        one, other = as_sparse(x), as_sparse(y)
        if one.shape != other.shape:
            raise ValueError(f"sparse arrays of shapes {one.shape} and {other.shape} do not go together")
        if not sparse_chunks.has_pair(ufunc):
            raise TypeError(
                f"{ufunc.__name__} of two sparse arrays is dense, since it is not 0 of zeros: give x.todense()"
            )
        dtype = ufunc(np.zeros(1, one.dtype), np.zeros(1, other.dtype)).dtype
        return SparseTensor(sparse_chunks.pairs(ufunc, one._node, other._node, dtype))
    first = is_sparse(x)
    given, other = (as_sparse(x), y) if first else (as_sparse(y), x)
    if isinstance(other, Scalar | np.generic):
        return _with_number(ufunc, given, other, first=first)
    if ufunc in (np.add, np.subtract):
        return apply(ufunc, *((given.todense(), other) if first else (other, given.todense())))
    if ufunc is not np.multiply:
        raise TypeError(f"{ufunc.__name__} of a sparse and a dense array is not supported: give x.todense()")
    node = as_tensor(other).node
    if np.broadcast_shapes(given.shape, node.shape) != given.shape:
        raise ValueError(f"an array of shape {node.shape} is not broadcast to a sparse one of shape {given.shape}")
    dtype = np.result_type(given.dtype, node.dtype)
    read = stretched(blocks.fitted(node, given._node.grid), given._node.grid)
    return SparseTensor(sparse_chunks.scaled(given._node, read, dtype))


def _with_number(ufunc: np.ufunc, x: SparseTensor, number: Any, *, first: bool) -> SparseTensor:
    fn = sparse_chunks.WithNumber(ufunc, number, first=not first)
    with np.errstate(all="ignore"):
        of_zero = fn(np.zeros(1, x.dtype))
    always = ufunc is np.multiply or (ufunc is np.true_divide and first)
    if not always and (of_zero != 0).any():
        raise TypeError(f"{ufunc.__name__} with {number!r} is dense, since it is not 0 of 0: give x.todense()")
    return SparseTensor(sparse_chunks.elements(fn, x._node, of_zero.dtype, ufunc.__name__))


def _times(x: Any, y: Any) -> Any:
    """Return a matrix product with one sparse operand, or two. ValueError: the shapes do not fit."""
    if coordinates.is_coordinate(x) or coordinates.is_coordinate(y):
        return coordinates.call_numpy(np.matmul, (x, y), {})
    sizes = [np.shape(one) if not is_sparse(one) else one.shape for one in (x, y)]
    if not sizes[0] or not sizes[1]:
        raise ValueError("matmul: Input operand does not have enough dimensions (has 0, requires at least 1)")
    if max(map(len, sizes)) > 2:
        raise ValueError("a sparse array is multiplied by a vector or a matrix, not by a stack of them")
    if sizes[0][-1] != sizes[1][0]:
        raise ValueError(f"matmul: arrays of shapes {sizes[0]} and {sizes[1]} do not fit")
    if is_sparse(x) and is_sparse(y):
        one, other = as_sparse(x), as_sparse(y)
        right = sparse_chunks.rechunk(other._node, (one._node.grid[1], other._node.grid[1]))
        dtype = np.result_type(one.dtype, other.dtype)
        return SparseTensor(sparse_chunks.product(one._node, right, dtype, sparse=True))
    if is_sparse(x):
        left = as_sparse(x)._node
        right = _dense(y, 0, left.grid[1])
    else:
        right = as_sparse(y)._node
        left = _dense(x, len(sizes[0]) - 1, right.grid[0])
    dtype = np.result_type(left.dtype, right.dtype)
    return Tensor(sparse_chunks.product(left, right, dtype, sparse=False))


def _dense(x: Any, axis: int, cut: Cut) -> ArrayNode:
    """Return a dense operand, whose inner axis has the chunks of the sparse one."""
    if isinstance(x, np.ndarray) and x.ndim == 1:
        return sources.from_array(x, (cut,), x.dtype) if x.size else as_node(x)
    node = as_tensor(x).node
    if len(node.grid) == 1 and cut.n == 1:
        return blocks.rechunk(node, one_chunk(node.shape))
    if cut.n == 1:
        return whole_along(node, (axis,))
    return blocks.rechunk(node, tuple([cut if a == axis else one for a, one in enumerate(node.grid)]))
