"""Random numbers: each chunk has a stream of its own, so that order, workers and backend do not matter.

The stream of a chunk is seeded from the generator's seed, the number of the call and where the chunk begins
(`numpy.random.SeedSequence` keeps such streams apart). The same seed, calls and chunks give the same numbers; other
chunks give others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.blocks import stretched
from weft.frontends.tensors.nodes import Input, Node
from weft.operators.regions import Kind, Place, Slot

if TYPE_CHECKING:
    from weft.frontends.tensors.chunks import Grid

Seed = tuple[int, ...]
"""The words that a generator was seeded with, and the number of the call."""


def _generator(place: Place, seed: Seed) -> np.random.Generator:
    *entropy, call = seed
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(entropy, spawn_key=(call, *place.begin))))


def _stream(place: Place, *, method: str, seed: Seed, dtype: np.dtype[Any]) -> Callable[[Any], None]:
    draw = getattr(_generator(place, seed), method)

    def fill(out: Any) -> None:
        if out.flags.c_contiguous:
            draw(out=out, dtype=dtype)
        else:
            out[...] = draw(size=out.shape, dtype=dtype)

    return fill


def _drawn(place: Place, *args: Any, method: str, seed: Seed, more: tuple[tuple[str, Any], ...]) -> Any:
    generator = _generator(place, seed)
    return getattr(generator, method)(*args, size=place.shape, **dict(more))


def _rows(place: Place, *args: Any, method: str, seed: Seed, extra: int) -> Any:
    """Draw vectors: the last `extra` axes belong to one draw."""
    size = place.shape[: len(place.shape) - extra]
    return getattr(_generator(place, seed), method)(*args, size=size)


def streamed(method: str, grid: Grid, seed: Seed, dtype: np.dtype[Any]) -> Node:
    """Return numbers of a distribution without parameters."""
    kwargs = {"method": method, "seed": seed, "dtype": dtype}
    return Node(Kind.FILL, _stream, [], grid, dtype, kwargs=kwargs, unique=True, name=method)


def drawn(
    method: str, args: Sequence[Any], grid: Grid, seed: Seed, dtype: np.dtype[Any], more: Mapping[str, Any]
) -> Node:
    """Return numbers of a distribution whose parameters are numbers, or nodes that are broadcast to the grid."""
    inputs: list[Input] = []
    given: list[Any] = []
    for one in args:
        if isinstance(one, Node):
            given.append(Slot(len(inputs)))
            inputs.append(stretched(one, grid))
        else:
            given.append(one)
    kwargs = {"method": method, "seed": seed, "more": tuple(sorted(more.items()))}
    return Node(Kind.PLACED, _drawn, inputs, grid, dtype, args=given, kwargs=kwargs, unique=True, name=method)


def vectors(method: str, args: Sequence[Any], grid: Grid, seed: Seed, dtype: np.dtype[Any], extra: int = 1) -> Node:
    """Return draws that are vectors along the last axis, which is one chunk."""
    kwargs = {"method": method, "seed": seed, "extra": extra}
    return Node(Kind.PLACED, _rows, [], grid, dtype, args=args, kwargs=kwargs, unique=True, name=method)
