"""Sparse arrays with any number of axes: lazy, cut into chunks that are sparse arrays of the package `sparse`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import coordinate_chunks as kernels
from weft.frontends.tensors import reductions
from weft.frontends.tensors.arrays import chunking, runners
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.conversion import Scalar
from weft.frontends.tensors.arrays.deferred import Expressed
from weft.frontends.tensors.arrays.executables import Executable
from weft.frontends.tensors.arrays.extras import needed
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.arrays.sparse_base import SparseArray
from weft.frontends.tensors.chunks import FEWEST_BYTES, PER_WORKER, Cut, normalize
from weft.model.wording import counted

if TYPE_CHECKING:
    from weft.frontends.tensors.chunks import Grid
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.frontends.tensors.types import Axis, ChunkSize, DType, DTypeLike, NumpyArray, Shape


def is_coordinate(value: Any) -> bool:
    """Return whether a value is a sparse array of the package `sparse`, or of Weft with such chunks."""
    if isinstance(value, Expressed):
        return False
    return hasattr(type(value), "nnz") and hasattr(value, "fill_value")


def as_coordinate(value: Any, dtype: DTypeLike = None, chunk_size: ChunkSize = None) -> CooTensor:
    """Return a sparse array of the package `sparse`, of SciPy, or of Weft as one with chunks of the package `sparse`.

    TypeError: its elements are no numbers. MissingExtraError: the package is not installed.
    """
    needed("sparse")
    if isinstance(value, Executable):
        made: CooTensor = value if isinstance(value, CooTensor) else value.tocoo()  # type: ignore[attr-defined]
        made = made if dtype is None else made.astype(dtype)
        return made if chunk_size is None else made.rechunk(chunk_size)
    found = _in_coordinates(value)
    if dtype is not None:
        found = found.astype(dtype)
    if found.dtype.kind not in "biufc":
        raise TypeError(f"sparse arrays of {found.dtype} are not supported")
    grid = _grid(found.shape, found.dtype, kernels.bytes_of(found), chunk_size)
    return CooTensor(kernels.from_coo(found, grid), found.fill_value)


def _in_coordinates(value: Any) -> Any:
    """Return a sparse array of any library in the COO format of the package `sparse`."""
    if not hasattr(value, "fill_value"):
        found = value.tocoo()
        found.sum_duplicates()
        places = found.coords if hasattr(found, "coords") else (found.row, found.col)
        return kernels.coo(np.stack(places), found.data, found.shape, 0)
    return value if hasattr(value, "coords") else value.asformat("coo")


def _grid(shape: tuple[int, ...], dtype: DType, nbytes: int, chunk_size: ChunkSize) -> Grid:
    """Return the chunks of an array: as wanted, or along its longest axis, each of a bounded number of bytes."""
    how = chunking.chunking()
    wanted = how.chunk_size if chunk_size is None else chunk_size
    if wanted is not None:
        return normalize(wanted, shape, dtype.itemsize, how.workers, how.chunk_bytes)
    n = max(ceil(nbytes / how.chunk_bytes), min(PER_WORKER * how.workers, nbytes // FEWEST_BYTES), 1)
    cuts = [Cut.whole(size) for size in shape]
    longest = max(shape, default=0)
    if longest:
        axis = shape.index(longest)
        cuts[axis] = Cut.even(shape[axis], ceil(shape[axis] / n))
    return tuple(cuts)


def sparse_of(x: Tensor) -> CooTensor:
    """Return a dense array with sparse chunks. TypeError: its elements are no numbers."""
    needed("sparse")
    if x.dtype.kind not in "biufc":
        raise TypeError(f"arrays are sparse if they have numbers; this one is of {x.dtype}")
    return CooTensor(kernels.tosparse(x.node), x.dtype.type(0))


def zeros(shape: tuple[int, ...], dtype: DTypeLike, chunk_size: ChunkSize = None) -> CooTensor:
    """Return a sparse array that stores nothing."""
    needed("sparse")
    nothing = kernels.coo(np.zeros((len(shape), 0)), np.zeros(0, dtype), shape, 0)
    return as_coordinate(nothing, chunk_size=chunk_size)


def drawn(
    method: str, shape: tuple[int, ...], seed: tuple[int, ...], dtype: DTypeLike, density: float, chunk_size: ChunkSize
) -> CooTensor:
    """Return a sparse array with random numbers in a share of its elements."""
    needed("sparse")
    kind = np.dtype(dtype)
    grid = _grid(shape, kind, int(prod(shape) * density * (kind.itemsize + 8 * len(shape))), chunk_size)
    return CooTensor(kernels.drawn(method, grid, seed, kind, density), kind.type(0))


def call_numpy(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function of NumPy for arguments of which some are sparse arrays of the package `sparse`."""
    flat = [each for one in args for each in (one if isinstance(one, list | tuple) else [one])]
    first: Any = as_coordinate(next(one for one in flat if is_coordinate(one)))
    if isinstance(function, np.ufunc):
        return first.__array_ufunc__(function, "__call__", *args, **kwargs)
    return first.__array_function__(function, (), args, kwargs)


def _operators(ufunc: np.ufunc) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """Return the methods of an operator, for this operand at the left and at the right."""
    name = ufunc.__name__
    return (
        lambda self, other: _elementwise(ufunc, [self, other], name),
        lambda self, other: _elementwise(ufunc, [other, self], name),
    )


@public()
class CooTensor(SparseArray):
    """A sparse array with any number of axes, computed on request; its chunks are arrays of the package `sparse`.

    Made by `asarray` of such an array. Elements that are not stored have one value, `fill_value`. `fetch` returns a
    `sparse.COO`. Element-wise functions, selections, and reductions along some axes are sparse, reductions of all
    elements dense.
    """

    __slots__ = ("fill_value",)
    __array_priority__ = 1002

    def __init__(self, node: ArrayNode, fill: Any) -> None:
        super().__init__(node)
        self.fill_value = np.asarray(fill, node.dtype)[()]

    # ------------------------------------------------------------------------------------------------- attributes

    @property
    def nnz(self) -> int:
        """The number of stored elements. Computes the array."""
        return int(self._stored().sum().fetch())

    @property
    def density(self) -> float:
        """The share of stored elements. Computes the array."""
        return self.nnz / self.size if self.size else 0.0

    @property
    def T(self) -> CooTensor:  # noqa: N802
        """The array with its axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> CooTensor:  # noqa: N802
        """The array with its last two axes exchanged."""
        return self.swapaxes(-1, -2)

    @property
    def real(self) -> CooTensor:
        """The real part."""
        made: CooTensor = _elementwise(np.real, [self], "real")
        return made

    @property
    def imag(self) -> CooTensor:
        """The imaginary part."""
        made: CooTensor = _elementwise(np.imag, [self], "imag")
        return made

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    # ----------------------------------------------------------------------------------------------------- values

    def _value_of(self) -> Any:
        values = list(self._node.kwargs["source"].values)
        return kernels.assembled(values, self._node.grid, self.dtype, self.fill_value)

    def to_numpy(self, session: runners.Runner | None = None) -> NumpyArray:
        """Return all elements as a dense array of NumPy."""
        return np.asarray(self.fetch(session).todense())

    def todense(self) -> Tensor:
        """Return the same array with dense chunks."""
        return Tensor(kernels.todense(self._node))

    def __reduce__(self) -> tuple[Any, ...]:
        return as_coordinate, (self.fetch(),)

    # ---------------------------------------------------------------------------------------------- shape and chunks

    def _with(self, node: ArrayNode) -> CooTensor:
        return CooTensor(node, self.fill_value)

    def astype(self, dtype: DTypeLike) -> CooTensor:
        """Return the array with another dtype."""
        return self._with(kernels.cast(self._node, np.dtype(dtype)))

    def rechunk(self, chunk_size: ChunkSize = None, *, chunks: ChunkSize = None) -> CooTensor:
        """Return the same array in other chunks; `chunks` is dask's name of the argument."""
        how = chunking.chunking()
        wanted = chunks if chunk_size is None else chunk_size
        grid = normalize(wanted, self.shape, self.dtype.itemsize, how.workers, how.chunk_bytes)
        return self._with(kernels.rechunk(self._node, grid))

    def transpose(self, *axes: Any) -> CooTensor:
        """Return the array with its axes in another order, in reverse order without arguments."""
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        order = tuple(reversed(range(self.ndim))) if given is None else tuple([axis % self.ndim for axis in given])
        if sorted(order) != list(range(self.ndim)):
            raise ValueError("axes don't match array")
        return self._with(kernels.transpose(self._node, order)) if self.ndim > 1 else self

    def swapaxes(self, axis1: int, axis2: int) -> CooTensor:
        """Return the array with two axes exchanged."""
        order = list(range(self.ndim))
        one, other = reductions.axis_of(axis1, self.ndim), reductions.axis_of(axis2, self.ndim)
        order[one], order[other] = order[other], order[one]
        return self.transpose(order)

    def reshape(self, *shape: Any) -> CooTensor:
        """Return the array in another shape, of which one length may be -1. ValueError: the sizes differ."""
        given: Shape = shape[0] if len(shape) == 1 else shape
        lengths = [given] if isinstance(given, int) else list(given)
        if lengths.count(-1) == 1:
            others = -prod(lengths)
            lengths[lengths.index(-1)] = self.size // others if others else 0
        if prod(lengths) != self.size or min(lengths, default=0) < 0:
            raise ValueError(f"cannot reshape array of size {self.size} into shape {given}")
        return self._with(kernels.reshape(self._node, tuple(lengths)))

    def squeeze(self, axis: Axis = None) -> CooTensor:
        """Return the array without axes of length 1: without all of them, or those in `axis`."""
        axes = (
            [a for a in range(self.ndim) if self.shape[a] == 1] if axis is None else reductions.axes_of(axis, self.ndim)
        )
        if any(self.shape[a] != 1 for a in axes):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
        grid = tuple([cut for a, cut in enumerate(self._node.grid) if a not in axes])
        return self._with(kernels.regrid(self._node, grid))

    def expand_dims(self, axis: Axis) -> CooTensor:
        """Return the array with axes of length 1 inserted."""
        more = 1 if isinstance(axis, int) else len(axis or ())
        at, rest = reductions.axes_of(axis, self.ndim + more), iter(self._node.grid)
        grid = tuple([Cut.whole(1) if a in at else next(rest) for a in range(self.ndim + more)])
        return self._with(kernels.regrid(self._node, grid))

    def __getitem__(self, index: Any) -> Any:
        """Return a selection by slices, numbers, None, and one vector of numbers or booleans; an element is dense."""
        given = list(index) if isinstance(index, tuple) else [index]
        for one in given:
            if not (one is None or one is Ellipsis or isinstance(one, slice | int | np.integer)):
                given = [_vector(each) if each is one else each for each in given]
        axes = sum(one is not None and one is not Ellipsis for one in given)
        if axes > self.ndim:
            raise IndexError(
                f"{counted(axes, 'index', 'indices')} for an array of {counted(self.ndim, 'axis', 'axes')}"
            )
        at = next((i for i, one in enumerate(given) if one is Ellipsis), len(given))
        given[at : at + 1] = [slice(None)] * (self.ndim - axes)
        if sum(isinstance(one, np.ndarray) for one in given) > 1:
            raise IndexError("a sparse array takes one vector of integers or booleans: select axis by axis")
        return self._selected(given)

    def _selected(self, given: Sequence[Any]) -> Any:
        slices: list[slice] = []
        vectors: list[tuple[int, NumpyArray]] = []
        kept: list[int | None] = []
        for one in given:
            axis = len(slices)
            if one is None:
                kept.append(None)
                continue
            if isinstance(one, int | np.integer):
                slices.append(_slice_of(int(one), axis, self.shape[axis]))
                continue
            kept.append(axis)
            slices.append(one if isinstance(one, slice) else slice(None))
            if not isinstance(one, slice):
                vectors.append((axis, _numbers(one, axis, self.shape[axis])))
        node = kernels.sliced(self._node, slices) if slices else self._node
        for axis, numbers in vectors:
            node = kernels.picked(node, axis, numbers)
        if kept != list(range(self.ndim)):
            node = kernels.regrid(node, tuple([Cut.whole(1) if a is None else node.grid[a] for a in kept]))
        made = self._with(node)
        return made if kept else made.todense()

    # --------------------------------------------------------------------------------------------- NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **given: Any) -> Any:
        """Call a ufunc for NumPy."""
        if method != "__call__" or given or ufunc.nout != 1:
            raise TypeError(f"numpy.{ufunc.__name__} is called for sparse arrays without further arguments alone")
        return _times(*inputs) if ufunc is np.matmul else _elementwise(ufunc, inputs, ufunc.__name__)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Call the method of a function's name for NumPy. TypeError: there is none."""
        name = func.__name__
        if name in _OF_SEVERAL:
            return _OF_SEVERAL[name](*args, **kwargs)
        if name not in _FUNCTIONS or not args or not is_coordinate(args[0]):
            raise TypeError(f"numpy.{name} of a sparse array is not supported: give x.todense()")
        return getattr(as_coordinate(args[0]), name)(*args[1:], **kwargs)

    # ---------------------------------------------------------------------------------------------------- reductions

    def _reduced(self, fn: np.ufunc, axis: Axis, dtype: DType, fill: Any, keepdims: bool) -> Any:
        axes = reductions.axes_of(axis, self.ndim)
        node = kernels.reduce(fn, self._node, axes, dtype, fill, keepdims=keepdims, name=fn.__name__)
        made = CooTensor(node, fill)
        return made.todense() if len(axes) == self.ndim else made

    def sum(self, axis: Axis = None, dtype: DTypeLike = None, keepdims: bool = False) -> Any:
        """Return sums along axes."""
        kind = np.dtype(dtype) if dtype is not None else np.sum(np.zeros(1, self.dtype)).dtype
        fill = np.multiply(np.asarray(self.fill_value, kind)[()], self._along(axis), dtype=kind)
        return self._reduced(np.add, axis, kind, fill, keepdims)

    def prod(self, axis: Axis = None, dtype: DTypeLike = None, keepdims: bool = False) -> Any:
        """Return products along axes."""
        kind = np.dtype(dtype) if dtype is not None else np.prod(np.zeros(1, self.dtype)).dtype
        fill = np.asarray(self.fill_value, kind)[()] ** self._along(axis)
        return self._reduced(np.multiply, axis, kind, fill, keepdims)

    def mean(self, axis: Axis = None, dtype: DTypeLike = None, keepdims: bool = False) -> Any:
        """Return means along axes; elements that are not stored count."""
        kind = np.mean(np.zeros(1, self.dtype)).dtype if dtype is None else np.dtype(dtype)
        wide = np.dtype(np.float32) if kind == np.float16 else kind
        sums, n = self.sum(axis, wide, keepdims), self._along(axis)
        made = (
            _elementwise(np.true_divide, [sums, n], "mean") if is_coordinate(sums) else apply(np.true_divide, sums, n)
        )
        return made.astype(kind)

    def _squares(self, axis: Axis, n: int) -> tuple[Tensor, DType | None]:
        middle = self.mean(axis, keepdims=True)
        middle = middle.todense() if is_coordinate(middle) else middle
        kind = np.real(np.zeros(1, middle.dtype)).dtype
        away = kernels.gathered(kernels.squared_distance, self._node, middle.node, kind, "var")
        there = _dense(CooTensor(away, 0).sum(axis, keepdims=True))
        missing = apply(np.subtract, n, _dense(self._stored().sum(axis, keepdims=True)))
        square = apply(np.square, apply(np.absolute, apply(np.subtract, middle, self.fill_value)))
        return apply(np.add, there, apply(np.multiply, missing, square)), kind

    def max(self, axis: Axis = None, keepdims: bool = False) -> Any:
        """Return the largest elements along axes. ValueError: there are none."""
        return self._reduced(np.maximum, axis, self.dtype, self.fill_value, keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> Any:
        """Return the smallest elements along axes. ValueError: there are none."""
        return self._reduced(np.minimum, axis, self.dtype, self.fill_value, keepdims)

    def any(self, axis: Axis = None, keepdims: bool = False) -> Any:
        """Return whether some element along axes is not 0."""
        some = self._along(axis) > 0 and bool(self.fill_value)
        return self._reduced(np.logical_or, axis, np.dtype(bool), some, keepdims)

    def all(self, axis: Axis = None, keepdims: bool = False) -> Any:
        """Return whether no element along axes is 0."""
        every = self._along(axis) == 0 or bool(self.fill_value)
        return self._reduced(np.logical_and, axis, np.dtype(bool), every, keepdims)

    def count_nonzero(self, axis: Axis = None, keepdims: bool = False) -> Any:
        """Return the number of elements along axes that are not 0."""
        there: Any = self != 0
        return there.sum(axis, np.int64, keepdims)

    def _stored(self) -> CooTensor:
        return CooTensor(kernels.stored(self._node), 0)

    # ----------------------------------------------------------------------------------------------------- operators

    def dot(self, other: Any) -> Any:
        """Return the product over the last axis and the last but one of another array, or its only one."""
        return _dot(self, other)

    def __matmul__(self, other: Any) -> Any:
        return _times(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _times(other, self)

    def __neg__(self) -> Any:
        return np.negative(self)

    def __abs__(self) -> Any:
        return np.absolute(self)

    def __invert__(self) -> Any:
        return np.invert(self)

    __add__, __radd__ = _operators(np.add)
    __sub__, __rsub__ = _operators(np.subtract)
    __mul__, __rmul__ = _operators(np.multiply)
    __truediv__, __rtruediv__ = _operators(np.true_divide)
    __floordiv__, __rfloordiv__ = _operators(np.floor_divide)
    __mod__, __rmod__ = _operators(np.remainder)
    __pow__, __rpow__ = _operators(np.power)
    __and__, __rand__ = _operators(np.bitwise_and)
    __or__, __ror__ = _operators(np.bitwise_or)
    __xor__, __rxor__ = _operators(np.bitwise_xor)
    __lt__, __gt__ = _operators(np.less)[0], _operators(np.greater)[0]
    __le__, __ge__ = _operators(np.less_equal)[0], _operators(np.greater_equal)[0]
    __eq__, __ne__ = _operators(np.equal)[0], _operators(np.not_equal)[0]


def _dense(value: Any) -> Tensor:
    made: Tensor = value.todense() if is_coordinate(value) else value
    return made


def _slice_of(number: int, axis: int, n: int) -> slice:
    if not -n <= number < n:
        raise IndexError(f"index {number} is out of bounds for axis {axis} with size {n}")
    return slice(number % n, number % n + 1)


def _vector(index: Any) -> NumpyArray:
    if is_coordinate(index):
        if index.ndim != 1:
            raise IndexError(
                "a sparse array takes no mask of several axes: np.where(mask, x, 0) keeps the other elements out and "
                "the shape, x.todense()[mask.todense()] is a vector"
            )
        index = _dense(index)
    at = np.asarray(index.fetch() if isinstance(index, Executable) else index)
    if at.ndim != 1 or (at.dtype.kind not in "iub" and at.size):
        raise IndexError("a sparse array takes integers, slices, None, and one vector of integers or booleans")
    return at


def _numbers(at: NumpyArray, axis: int, n: int) -> NumpyArray:
    """Return the numbers of the selected lines of an axis, from 0 on."""
    if at.dtype.kind == "b":
        if len(at) != n:
            raise IndexError(f"boolean index did not match: axis {axis} has {n} elements, and the mask {len(at)}")
        return np.flatnonzero(at)
    if np.any((at < -n) | (at >= n)):
        raise IndexError(f"an index is out of bounds for axis {axis} with size {n}")
    return at.astype(np.int64) % max(n, 1)


# ------------------------------------------------------------------------------------------------- several operands

_KEEPING_ZEROS = frozenset({np.multiply, np.bitwise_and, np.logical_and})
"""Functions of two operands that are 0 where one of them is, and so are sparse if one of them is."""


def _elementwise(fn: Any, operands: Sequence[Any], name: str) -> Any:
    """Return an element-wise function: sparse unless an operand is dense and the function is not 0 of 0."""
    if not all(is_coordinate(one) or isinstance(one, Scalar | np.generic) for one in operands):
        mixed = [as_coordinate(one) if hasattr(type(one), "nnz") else one for one in operands]
        return _with_dense(fn, mixed, name)
    given = [as_coordinate(one) if is_coordinate(one) else one for one in operands]
    # One element of each operand: its fill value, or the number, which has no dtype of its own.
    tried = [np.full(1, one.fill_value, one.dtype) if isinstance(one, CooTensor) else one for one in given]
    with np.errstate(all="ignore"):
        of_fill = fn(*tried)
    nodes = [one._node if isinstance(one, CooTensor) else one for one in given]
    return CooTensor(kernels.elements(fn, nodes, of_fill.dtype, of_fill[0], name), of_fill[0])


def _with_dense(fn: Any, operands: Sequence[Any], name: str) -> Any:
    dense = [one for one in operands if not is_coordinate(one) and not isinstance(one, Scalar | np.generic)]
    if not dense:
        return _elementwise(fn, operands, name)
    if not isinstance(fn, np.ufunc):
        raise TypeError(f"{name} of sparse and dense arrays is not supported: give x.todense()")
    sparse = [one for one in operands if is_coordinate(one)]
    first = fn is np.true_divide and is_coordinate(operands[0])
    if len(operands) != 2 or not (fn in _KEEPING_ZEROS or first) or sparse[0].fill_value != 0:
        return apply(fn, *[one.todense() if isinstance(one, CooTensor) else one for one in operands])
    one, other = as_coordinate(sparse[0]), as_tensor(dense[0])
    dtype = fn(np.ones(1, one.dtype), np.ones(1, other.dtype)).dtype
    return CooTensor(kernels.gathered(fn, one._node, other.node, dtype, name), 0)


def _concatenated(arrays: Sequence[Any], axis: int | None = 0) -> CooTensor:
    """Concatenate sparse arrays along an axis. TypeError: one is dense. ValueError: their fill values differ."""
    if axis is None or not all(hasattr(type(one), "nnz") for one in arrays):
        raise TypeError("sparse arrays are concatenated with sparse ones, along an axis: give x.tosparse()")
    given = [as_coordinate(one) for one in arrays]
    along, first = reductions.axis_of(axis, given[0].ndim), given[0]
    rest = [tuple([n for a, n in enumerate(one.shape) if a != along]) for one in given]
    if len({(one.ndim, *others) for one, others in zip(given, rest, strict=True)}) > 1:
        raise ValueError(f"arrays of shapes {[one.shape for one in given]} are not concatenated along axis {along}")
    if any(not np.array_equal(one.fill_value, first.fill_value, equal_nan=True) for one in given):
        raise ValueError(f"sparse arrays have different fill values: {[one.fill_value.item() for one in given]}")
    nodes = [one._node for one in given if one.shape[along]] or [first._node]
    return first._with(kernels.concat(nodes, along, np.result_type(*[one.dtype for one in given])))


def _stacked(arrays: Sequence[Any], axis: int = 0) -> CooTensor:
    return _concatenated([as_coordinate(one).expand_dims(axis) for one in arrays], axis)


def _at_least(arrays: Sequence[Any], ndim: int) -> list[CooTensor]:
    given = [as_coordinate(one) for one in arrays]
    return [one.expand_dims(tuple(range(ndim - one.ndim))) if one.ndim < ndim else one for one in given]


def _moved(x: CooTensor, source: Axis, destination: Axis) -> CooTensor:
    froms = np.lib.array_utils.normalize_axis_tuple(source, x.ndim)  # type: ignore[arg-type]
    to = np.lib.array_utils.normalize_axis_tuple(destination, x.ndim)  # type: ignore[arg-type]
    axes = [axis for axis in range(x.ndim) if axis not in froms]
    for at, axis in sorted(zip(to, froms, strict=True)):
        axes.insert(at, axis)
    return x.transpose(axes)


# ---------------------------------------------------------------------------------------------------------- products


def _tensordot(x: Any, y: Any, axes: Any = 2) -> Any:
    """Return sums of products over axes of two arrays; one at least is sparse. ValueError: they do not fit."""
    one, other = _operand(x), _operand(y)
    if isinstance(axes, int):
        axes = (list(range(one.ndim - axes, one.ndim)), list(range(axes)))
    froms, to = [[part] if isinstance(part, int) else list(part) for part in axes]
    froms, to = [axis % one.ndim for axis in froms], [axis % other.ndim for axis in to]
    if [one.shape[axis] for axis in froms] != [other.shape[axis] for axis in to]:
        raise ValueError("shape-mismatch for sum")
    left = one.transpose([*[a for a in range(one.ndim) if a not in froms], *froms]) if one.ndim > 1 else one
    right = other.transpose([*to, *[a for a in range(other.ndim) if a not in to]]) if other.ndim > 1 else other
    made = kernels.product(_node(left), _node(right), len(froms), np.result_type(one.dtype, other.dtype))
    return _product(made)


def _operand(value: Any) -> Any:
    """Return an operand of a product. ValueError: elements that are not stored are not 0."""
    if not hasattr(type(value), "nnz"):
        return as_tensor(value)
    made = as_coordinate(value)
    if made.fill_value != 0:
        raise ValueError(
            f"products need a fill value of 0, and this sparse array has {made.fill_value}: give x.todense()"
        )
    return made


def _node(value: Any) -> ArrayNode:
    found: ArrayNode = value._node if isinstance(value, CooTensor) else value.node
    return found


def _product(node: ArrayNode) -> Any:
    if not kernels.is_coordinate(node):
        return Tensor(node)
    made = CooTensor(node, 0)
    return made if made.ndim else made.todense()


def _dot(x: Any, y: Any) -> Any:
    one, other = _operand(x), _operand(y)
    if not one.ndim or not other.ndim:
        return np.multiply(one, other)
    return _tensordot(one, other, ([-1], [max(other.ndim - 2, 0)]))


def _times(x: Any, y: Any) -> Any:
    """Return a matrix product with one sparse operand, or two. ValueError: the shapes do not fit."""
    one, other = _operand(x), _operand(y)
    if not one.ndim or not other.ndim:
        raise ValueError("matmul: Input operand does not have enough dimensions (has 0, requires at least 1)")
    if one.shape[-1] != other.shape[max(other.ndim - 2, 0)]:
        raise ValueError(f"matmul: arrays of shapes {one.shape} and {other.shape} do not fit")
    if one.ndim <= 2 and other.ndim <= 2:
        return _dot(one, other)
    left = one[None] if one.ndim == 1 else one
    right = other[:, None] if other.ndim == 1 else other
    dtype = np.result_type(one.dtype, other.dtype)
    made = _product(kernels.stacked_product(_node(left), _node(right), dtype))
    if one.ndim == 1:
        made = made[..., 0, :]
    return made[..., 0] if other.ndim == 1 else made


_FUNCTIONS = frozenset(
    {
        "all", "any", "count_nonzero", "expand_dims", "max", "mean", "min", "prod", "reshape", "squeeze", "std", "sum",
        "swapaxes", "transpose", "var",
    }
)  # fmt: skip
"""Functions of NumPy that are methods of these arrays."""

_OF_SEVERAL: dict[str, Callable[..., Any]] = {
    "concatenate": _concatenated,
    "stack": _stacked,
    "vstack": lambda arrays: _concatenated(_at_least(arrays, 2)),
    "hstack": lambda arrays: _concatenated(_at_least(arrays, 1), 0 if as_coordinate(arrays[0]).ndim < 2 else 1),
    "where": lambda condition, x, y: _elementwise(np.where, [condition, x, y], "where"),
    "tensordot": lambda a, b, axes=2: _tensordot(a, b, axes),
    "dot": lambda a, b: _dot(a, b),
    "moveaxis": lambda a, source, destination: _moved(as_coordinate(a), source, destination),
    "matrix_transpose": lambda x: as_coordinate(x).mT,
    "real": lambda val: as_coordinate(val).real,
    "imag": lambda val: as_coordinate(val).imag,
}
"""Functions of NumPy whose arguments may all be sparse."""
