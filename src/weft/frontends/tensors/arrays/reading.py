"""Arrays from functions, iterators, buffers and text, and into text and archives."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.arrays import chunking, creation
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.nodes import call, computed

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk, ChunkSize, DType, DTypeLike
    from weft.operators.region_steps import ChunkPlace


class _Function:
    """A user's function of coordinates."""

    __name__ = "fromfunction"

    def __init__(self, fn: Callable[..., Any], kwargs: dict[str, Any]) -> None:
        self.fn = fn
        self.kwargs = kwargs

    def __call__(self, place: ChunkPlace, *, dtype: DType, own: DType) -> Chunk:
        at = np.indices(place.shape, dtype) + np.reshape(place.begin, (-1, *[1] * len(place.shape))).astype(dtype)
        return np.broadcast_to(np.asarray(self.fn(*at, **self.kwargs)), place.shape).astype(own, copy=False)


@public()
def fromfunction(
    function: Callable[..., Any], shape: Any, *, dtype: DTypeLike = float, chunk_size: ChunkSize = None, **kwargs: Any
) -> Tensor:
    """Return the values of a function of coordinates, which is called for those of one chunk at a time.

    The function is tried at once on the coordinates of the first element, for the dtype of its result.
    """
    size = tuple(shape)
    kind, words = np.dtype(dtype), computed(kwargs)
    own = np.asarray(function(*np.zeros((len(size), *[1] * len(size)), kind), **words)).dtype
    grid = chunking.cut(size, own.itemsize, chunk_size)
    body = _Function(function, words)
    return Tensor(call(body, [], grid, own, placed=True, unique=True, name="fromfunction", dtype=kind, own=own))


@public("iter")
def fromiter(iterable: Any, /, dtype: DTypeLike, count: int = -1, *, chunk_size: ChunkSize = None) -> Tensor:
    """Return an array of the values of an iterator, which is read at once."""
    return creation.asarray(np.fromiter(iterable, np.dtype(dtype), count), chunk_size=chunk_size)


@public()
def frombuffer(
    buffer: Any, dtype: DTypeLike = float, count: int = -1, offset: int = 0, *, chunk_size: ChunkSize = None
) -> Tensor:
    """Return an array over the memory of a buffer, which must not be changed."""
    return creation.asarray(np.frombuffer(buffer, np.dtype(dtype), count, offset), chunk_size=chunk_size)


@public()
def fromstring(string: Any, dtype: DTypeLike = float, count: int = -1, *, sep: str) -> Tensor:
    """Return an array of the numbers in a text."""
    return creation.asarray(np.fromstring(string, np.dtype(dtype), count, sep=sep))


@public()
def fromfile(
    file: Any,
    dtype: DTypeLike = float,
    count: int = -1,
    sep: str = "",
    offset: int = 0,
    *,
    chunk_size: ChunkSize = None,
) -> Tensor:
    """Return an array of the bytes in a file, which tasks read chunk by chunk; numbers in text are read at once."""
    kind = np.dtype(dtype)
    if sep or not isinstance(file, str | os.PathLike):
        return creation.asarray(np.fromfile(file, kind, count, sep, offset), chunk_size=chunk_size)
    there = max(0, os.path.getsize(file) - offset) // kind.itemsize
    n = there if count < 0 else min(count, there)
    if not n:
        return creation.zeros((0,), kind)
    return creation.from_array(np.memmap(file, kind, "r", offset, (n,)), chunk_size)


def _text(fn: Callable[..., Any]) -> Callable[..., Tensor]:
    def read(*args: Any, **kwargs: Any) -> Any:
        made = fn(*args, **kwargs)
        return [as_tensor(one) for one in made] if isinstance(made, list | tuple) else as_tensor(made)

    read.__name__ = read.__qualname__ = fn.__name__
    read.__doc__ = f"Return what `numpy.{fn.__name__}` reads from a text; it is read at once."
    return public()(read)


loadtxt, genfromtxt, fromregex = _text(np.loadtxt), _text(np.genfromtxt), _text(np.fromregex)


@public()
def savetxt(
    fname: Any,
    X: Any,  # noqa: N803 - as NumPy calls it
    fmt: Any = "%.18e",
    delimiter: str = " ",
    newline: str = "\n",
    header: str = "",
    footer: str = "",
    comments: str = "# ",
    encoding: str | None = None,
) -> None:
    """Write an array of one or two axes as text, of which the chunks of some rows are in memory at a time."""
    given = as_tensor(X)
    if given.ndim not in (1, 2):
        raise ValueError(f"Expected 1D or 2D array, got {given.ndim}D array instead")
    words = {"fmt": fmt, "delimiter": delimiter, "newline": newline, "comments": comments}
    if not isinstance(fname, str | os.PathLike):
        _lines(fname, given, words, header, footer)
        return
    if str(fname).endswith((".gz", ".bz2", ".xz")):
        np.savetxt(fname, given.fetch(), **words, header=header, footer=footer, encoding=encoding)
        return
    with open(fname, "w", encoding=encoding or "latin1", newline="") as file:
        _lines(file, given, words, header, footer)


def _lines(file: Any, x: Tensor, words: dict[str, Any], header: str, footer: str) -> None:
    spans = [x.node.grid[0].span(i) for i in range(x.node.grid[0].n)]
    for lo, hi in spans:
        first, last = header if lo == 0 else "", footer if hi == x.shape[0] else ""
        np.savetxt(file, x[lo:hi].fetch(), **words, header=first, footer=last)


@public()
def savez(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """Write arrays into an archive of NumPy; they are in memory as a whole, one after another's computation."""
    np.savez(file, *computed(args), allow_pickle=allow_pickle, **computed(kwds))


@public()
def savez_compressed(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """Write arrays into a compressed archive of NumPy; see `savez`."""
    np.savez_compressed(file, *computed(args), allow_pickle=allow_pickle, **computed(kwds))
