"""The steps of a fused region: calls of NumPy over one chunk, and where that chunk lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class KernelKind(Enum):
    """The ways to call a step."""

    UFUNC = "ufunc"
    """A `numpy.ufunc`: element by element, with `out=`."""
    FILL = "fill"
    """`fn(place, **kwargs)` returns a function that fills one tile after another: `fill(out)`."""
    REDUCE = "reduce"
    """`fn.reduce(x, axis=, dtype=, keepdims=True)` of a ufunc over some or all axes."""
    CALL = "call"
    """`fn(*args, **kwargs)` over the whole chunk."""
    PLACED = "placed"
    """`fn(place, *args, **kwargs)` over the whole chunk."""


class OperandSlot(NamedTuple):
    """An argument that is the value of an input or of an earlier step."""

    at: int


class ChunkPlace(NamedTuple):
    """The chunk that a task makes: its number, its coordinates in the grid, its offsets and its shape."""

    number: int
    at: tuple[int, ...]
    begin: tuple[int, ...]
    shape: tuple[int, ...]


class RegionStep(NamedTuple):
    """One call. Kinds with `place` get the position of the chunk; `dtype` is the dtype of the result."""

    kind: KernelKind
    fn: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    dtype: np.dtype[Any]
    place: Callable[[int], ChunkPlace] | None = None
