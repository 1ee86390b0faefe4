"""Arrays of callers that tasks fill on threads of this process, each task its own chunk.

A task whose value is a chunk of a result that its caller owns writes it where the caller reads it, so that nobody
joins chunks afterwards. Attempts of a task may overlap, and one may outlive the run. So one attempt at a time has the
place of a chunk, and only until it is written for the first time; every other attempt makes a chunk of its own, which
the store holds as any other value. Nobody writes into the array that the caller has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np


class ChunkSpans(Protocol):
    """The position of a chunk: its offsets and its shape."""

    @property
    def begin(self) -> tuple[int, ...]:
        """The offset along each axis."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of elements along each axis."""
        ...


def placing(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a kernel with a parameter `out` for the array that it fills and returns.

    It may return another array, which is then copied.
    """
    kernel.takes_out = True  # type: ignore[attr-defined]
    return kernel


class ChunkDestination:
    """An array in memory, row by row, that tasks fill; `locate` gives the position of chunk `i`.

    The memory is allocated when the first task begins.
    """

    def __init__(self, shape: Sequence[int], dtype: np.dtype[Any], locate: Callable[[int], ChunkSpans]) -> None:
        self.bound = False
        """Whether tasks of a graph fill it."""
        self._shape = tuple(shape)
        self._dtype = dtype
        self._locate = locate
        self._array: Any = None
        self._lock = threading.Lock()
        self._writing: set[int] = set()
        self._written: set[int] = set()
        self._taken = False

    def fill(self, index: int, make: Callable[[Any], Any]) -> Any:
        """Call `make(out)` with the place of a chunk, and copy what it returns if that is another array.

        Return None once the chunk is in its place. If it is not this attempt's to fill, return `make(None)`.
        """
        out = self._claim(index)
        if out is None:
            return make(None)
        written = False
        try:
            made = make(out)
            if made is not out:
                out[...] = made
            written = True
        finally:
            with self._lock:
                self._writing.discard(index)
                if written:
                    self._written.add(index)
        return None

    def _claim(self, index: int) -> Any:
        """Return the place of a chunk for the attempt that may write it, or None."""
        with self._lock:
            if self._taken or index in self._writing or index in self._written:
                return None
            self._writing.add(index)
            if self._array is None:
                self._array = np.empty(self._shape, self._dtype)
        return self._at(self._array, index)

    def _at(self, array: Any, index: int) -> Any:
        place = self._locate(index)
        spans = zip(place.begin, place.shape, strict=True)
        return array[(*[slice(lo, lo + n) for lo, n in spans], ...)]  # a view without axes, too

    def take(self, values: Sequence[Any]) -> Any:
        """Return the array, which no task writes from here on.

        `values` are those of the tasks: None, or the chunk where an attempt had to make its own. If another attempt
        still writes, the array is a copy.
        """
        with self._lock:
            self._taken = True
            left = bool(self._writing)
            array = np.empty(self._shape, self._dtype) if self._array is None else self._array
        if left:
            array = array.copy()
        for index, value in enumerate(values):
            if value is not None:
                self._at(array, index)[...] = value
        self._array = None
        return array
