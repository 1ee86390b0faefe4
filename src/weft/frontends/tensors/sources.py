"""Arrays without inputs: constants, ranges, and arrays held by other libraries."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import ArrayNode, call
from weft.model.errors import NotFoundError, UnreadableError
from weft.operators.region_steps import ChunkPlace, KernelKind

if TYPE_CHECKING:
    from weft.frontends.tensors.chunks import Grid
    from weft.frontends.tensors.types import DType, NumpyArray

# ------------------------------------------------------------------------------------------------------- kernels


def _filled(place: ChunkPlace, value: Any) -> Callable[[Any], None]:
    def fill(out: Any) -> None:
        out[...] = value

    return fill


def _counted(place: ChunkPlace, start: Any, step: Any, second: Any, dtype: DType) -> Any:
    at = np.arange(place.begin[0], place.begin[0] + place.shape[0])
    if dtype.kind == "O":
        return (start + at * step).astype(dtype)
    wide = counted_in(dtype)
    with np.errstate(over="ignore", invalid="ignore"):  # infinities are no news in a range
        made = (wide.type(start) + at.astype(np.empty(0, wide).real.dtype) * wide.type(step)).astype(dtype)
    made[at == 1] = second  # which the difference, rounded itself, may miss
    return made


def _spaced(place: ChunkPlace, start: Any, stop: Any, num: int, endpoint: bool, dtype: DType) -> Any:
    lo, n = place.begin[0], place.shape[0]
    div = num - 1 if endpoint else num
    wide = np.result_type(dtype, np.float64)
    delta = np.asarray(stop, wide) - np.asarray(start, wide)
    at = np.arange(lo, lo + n, dtype=np.float64)
    step = delta / div if div > 0 else np.asarray(np.nan, wide)
    made = at * step + start if div > 0 and step != 0 else (at / max(div, 1)) * delta + start
    if endpoint and num > 1 and lo + n == num and n:
        made[-1] = stop
    return (np.floor(made) if dtype.kind in "iu" else made).astype(dtype)


def _diagonal(place: ChunkPlace, k: int, dtype: DType) -> Any:
    rows, columns = place.shape
    return np.eye(rows, columns, k + place.begin[0] - place.begin[1], dtype=dtype)


def part_of(array: Any, place: ChunkPlace) -> Any:
    """Return the part of an array that is a chunk. ValueError: it is of another shape, or has masked elements."""
    drop_pages(array)
    part = array[tuple([slice(lo, lo + n) for lo, n in zip(place.begin, place.shape, strict=True)])]
    if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
        raise ValueError(
            f"elements from {place.begin} on are masked, and masks are not supported: have the array give values there"
        )
    if np.shape(part) != place.shape:
        raise ValueError(
            f"the {type(array).__name__} that is read gave shape {np.shape(part)} for a part of shape {place.shape}: "
            "load it again if it has changed since, or correct its shape"
        )
    return np.asanyarray(part, array.dtype)  # parts of other libraries' arrays may be lazy


def _slice_of(place: ChunkPlace, source: ArraySource) -> Any:
    return part_of(source.array, place)


def _chunk_of(place: ChunkPlace, source: Stored) -> Any:
    return source.values[place.number]


def gone(index: int) -> Any:
    """Raise NotFoundError for a chunk that was computed before and is lost; the program of its task."""
    raise NotFoundError(
        f"chunk {index} of a computed array is lost: its file was removed or damaged",
        hint="Compute the array again from its inputs.",
    )


# --------------------------------------------------------------------------------------------------------- nodes


class ArraySource:
    """An array held by another library: NumPy, a memory map, Zarr, HDF5, or any object that takes slices."""

    __slots__ = ("__weakref__", "array")

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def in_memory(self) -> bool:
        """Whether it is a NumPy array that lies in no file."""
        return isinstance(self.array, np.ndarray) and _mapping(self.array) is None

    def __reduce__(self) -> tuple[Any, ...]:
        mapped = _mapping(self.array)
        return (ArraySource, (self.array,)) if mapped is None else (_opened, mapped)


def _map_of(array: Any) -> Any:
    """Return the memory map that an array is or views; None for others, and for maps with private changes."""
    root = array
    while isinstance(root, np.ndarray) and isinstance(root.base, np.ndarray):
        root = root.base
    return root if isinstance(root, np.memmap) and root.mode != "c" else None


def drop_pages(array: Any) -> None:
    """Remove the pages of a memory map from the memory of this process; no effect for other arrays.

    The next access reads them from the file, or from the cache of the system. Otherwise every page that was ever read
    stays, in addition to the memory of the session.
    """
    root = _map_of(array)
    if root is not None and isinstance(root.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        root.base.madvise(mmap.MADV_DONTNEED)


def _mapping(array: Any) -> tuple[Any, ...] | None:
    """Return the file and the position of a memory map or its view; None for others, and for private changes."""
    root = _map_of(array)
    if root is None or root.filename is None or array.size == 0:
        return None
    begin, _ = np.lib.array_utils.byte_bounds(root)
    _, past = np.lib.array_utils.byte_bounds(array)
    shift = array.__array_interface__["data"][0] - begin
    return str(root.filename), root.offset, past - begin, shift, array.shape, array.dtype, array.strides


def mapped(path: str, dtype: DType, offset: int, shape: tuple[int, ...], order: Any = "C") -> Any:
    """Return a memory map of a file that was mapped elsewhere. UnreadableError: it is gone, or was cut."""
    try:
        return np.memmap(path, dtype, "r", offset, shape, order)
    except FileNotFoundError:
        what = f"there is no file {path}, which"
    except (OSError, ValueError) as error:
        what = f"{path} cannot be mapped ({error}), and"
    raise UnreadableError(
        f"{what} the memory map of an array needs", hint="Keep the file as it was until the array is computed."
    )


def _opened(
    path: str, offset: int, length: int, shift: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...]
) -> ArraySource:
    whole = mapped(path, np.dtype(np.uint8), offset, (length,))
    return ArraySource(np.ndarray(shape, dtype, whole, shift, strides))


class Part:
    """Whole chunks in the middle of an array of another library; chunks outside of them are never read."""

    __slots__ = ("array", "begin", "dtype", "shape")

    def __init__(self, array: Any, begin: tuple[int, ...], shape: tuple[int, ...], dtype: DType) -> None:
        self.array = array
        self.begin = begin
        self.shape = shape
        self.dtype = dtype

    def __getitem__(self, index: Any) -> Any:
        moved = [slice(lo + one.start, lo + one.stop) for lo, one in zip(self.begin, index, strict=True)]
        return self.array[tuple(moved)]


class Chunks(Protocol):
    """The chunks of an array, in row-major order of its grid."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


class Stored:
    """Chunks that were computed before: in memory, or kept by a session, which reads them on request.

    It travels with all of them.
    """

    __slots__ = ("__weakref__", "values")

    def __init__(self, values: Chunks) -> None:
        self.values = values

    def __reduce__(self) -> tuple[Any, ...]:
        return Stored, ([*self.values],)


def full(grid: Grid, value: Any, dtype: DType) -> ArrayNode:
    """Return an array of one value."""
    return ArrayNode(KernelKind.FILL, _filled, [], grid, dtype, kwargs={"value": value}, cheap=True, name="full")


def arange(grid: Grid, start: Any, step: Any, second: Any, dtype: DType) -> ArrayNode:
    """Return `start + i * step`, but `second` for i = 1, of numbers of `counted_in(dtype)`; whole ones wrap around."""
    return call(
        _counted,
        [],
        grid,
        dtype,
        placed=True,
        cheap=True,
        name="arange",
        start=start,
        step=step,
        second=second,
        dtype=dtype,
    )


def counted_in(dtype: DType) -> DType:
    """Return the type in which the numbers of a range are computed."""
    if dtype.kind == "b":
        return np.dtype(np.int8)
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def arange_length(start: float, stop: float, step: float) -> int:
    """Return the length of a range from `start` to `stop`; ZeroDivisionError for a step of 0."""
    if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
        return max(0, -(-(stop - start) // step))
    return max(0, ceil((stop - start) / step))


def linspace(grid: Grid, start: Any, stop: Any, num: int, dtype: DType, *, endpoint: bool) -> ArrayNode:
    """Return `num` numbers from `start` to `stop`, evenly spaced."""
    return call(
        _spaced,
        [],
        grid,
        dtype,
        placed=True,
        cheap=True,
        name="linspace",
        start=start,
        stop=stop,
        num=num,
        endpoint=endpoint,
        dtype=dtype,
    )


def eye(grid: Grid, k: int, dtype: DType) -> ArrayNode:
    """Return ones on the k-th diagonal of a matrix of zeros."""
    return call(_diagonal, [], grid, dtype, placed=True, cheap=True, name="eye", k=k, dtype=dtype)


def from_array(array: Any, grid: Grid, dtype: DType) -> ArrayNode:
    """Return an array that is read from another one, slice by slice, on demand."""
    return call(_slice_of, [], grid, dtype, placed=True, cheap=True, name="array", source=ArraySource(array))


def narrowed(node: ArrayNode, touched: Sequence[tuple[int, int]]) -> tuple[ArrayNode, tuple[int, ...]]:
    """Return an array with only the chunks of a source in the given ranges, and the position of its first element.

    `touched` has, for each axis, the first chunk and the one after the last. Any other array is returned unchanged.
    """
    whole = all(lo == 0 and hi == cut.n for (lo, hi), cut in zip(touched, node.grid, strict=True))
    if node.fn is not _slice_of or whole:
        return node, (0,) * len(node.grid)
    begin = tuple([cut.span(lo)[0] for (lo, _), cut in zip(touched, node.grid, strict=True)])
    grid = tuple(
        [Cut.of([cut.length(i) for i in range(lo, hi)]) for (lo, hi), cut in zip(touched, node.grid, strict=True)]
    )
    array: Any = node.kwargs["source"].array
    part: Any
    if type(array) is np.ndarray:
        part = array[tuple([slice(lo, lo + cut.size) for lo, cut in zip(begin, grid, strict=True)])]
    else:
        part = Part(array, begin, tuple([cut.size for cut in grid]), node.dtype)
    return from_array(part, grid, node.dtype), begin


def held(node: ArrayNode) -> NumpyArray | None:
    """Return the values of an array that a caller has given as a number or an array of NumPy in memory; else None."""
    if node.fn is _filled:
        return np.full(node.shape, node.kwargs["value"], node.dtype) if not node.grid else None
    source = node.kwargs["source"] if node.fn is _slice_of else None
    return source.array if source is not None and source.in_memory else None


def is_source(node: ArrayNode) -> bool:
    """Return whether a node reads an array of another library, or chunks that exist already."""
    return node.fn is _chunk_of or node.fn is _slice_of


def is_stored(node: ArrayNode) -> bool:
    """Return whether the chunks of a node exist already."""
    return node.fn is _chunk_of


def stored(values: Chunks, grid: Grid, dtype: DType) -> ArrayNode:
    """Return an array whose chunks exist already."""
    return call(_chunk_of, [], grid, dtype, placed=True, cheap=True, name="stored", source=Stored(values))
