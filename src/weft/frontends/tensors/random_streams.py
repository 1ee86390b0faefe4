"""Random numbers: each chunk or block has its own stream, independent of order, workers and backend.

If the user names the chunks, each has a stream, seeded from the generator's seed, the number of the call and the
chunk's start (`numpy.random.SeedSequence` keeps such streams apart): other chunks give other numbers. If Weft chooses
the chunks, they depend on workers and memory; so streams belong to blocks, which depend on the shape alone
(`chunks.blocks`), and chunks hold whole blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from weft.frontends.tensors.blocks import stretched
from weft.frontends.tensors.nodes import ArrayNode, NodeInput
from weft.operators.region_steps import ChunkPlace, KernelKind, OperandSlot

if TYPE_CHECKING:
    from weft.frontends.tensors.chunks import Grid
    from weft.frontends.tensors.types import DType

Seed = tuple[int, ...]
"""The words of the generator's seed, and the number of the call."""


Block = tuple[int, ...] | None
"""The lengths of the blocks with a stream each, None for a stream per chunk."""


class _Words(ISeedSequence):
    """The seed of a generator. SFC64 mixes it well; a `SeedSequence` for each block would take longer."""

    def __init__(self, words: Any) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> Any:
        """Return the words."""
        return self._words


def _streams(
    begin: Sequence[int], shape: Sequence[int], seed: Seed, block: Block
) -> Iterator[tuple[np.random.Generator, int]]:
    """Return, for each block of a chunk in row-major order, its stream and its number of elements."""
    *entropy, call = seed
    if not block or not prod(shape):  # a block without axes is a single element
        sequence = np.random.SeedSequence(entropy, spawn_key=(call, *begin))
        yield np.random.Generator(np.random.SFC64(sequence)), prod(shape)
        return
    axis = next((a for a, n in enumerate(block) if n > 1), len(block) - 1)
    each, inner = block[axis], prod(shape[axis + 1 :])
    last = begin[axis] + shape[axis]
    for lead in product(*[range(lo, lo + n) for lo, n in zip(begin[:axis], shape[:axis], strict=True)]):
        words = np.random.SeedSequence(entropy, spawn_key=(call, *lead)).generate_state(3, np.uint64)
        for lo in range(begin[axis], last, each):
            own: Any = _Words(words + np.array([lo // each, 0, 0], np.uint64))
            yield np.random.Generator(np.random.SFC64(own)), (min(lo + each, last) - lo) * inner


def _stream(place: ChunkPlace, *, method: str, seed: Seed, dtype: DType, block: Block) -> Callable[[Any], None]:
    streams = _streams(place.begin, place.shape, seed, block)
    draw: Any = None
    left = 0

    def fill(out: Any) -> None:
        nonlocal draw, left
        flat = out.reshape(-1) if out.flags.c_contiguous else np.empty(out.size, dtype)
        at = 0
        while at < flat.size:
            if not left:
                generator, left = next(streams)
                draw = getattr(generator, method)
            n = min(left, flat.size - at)
            draw(out=flat[at : at + n], dtype=dtype)
            at, left = at + n, left - n
        if not out.flags.c_contiguous:
            out[...] = flat.reshape(out.shape)

    return fill


def _drawn(
    place: ChunkPlace,
    *args: Any,
    method: str,
    seed: Seed,
    more: tuple[tuple[str, Any], ...],
    block: Block,
    extra: int = 0,
) -> Any:
    """Draw numbers, or vectors: the last `extra` axes belong to one draw."""
    shape = place.shape[: len(place.shape) - extra]
    named = {key: np.asarray(one) if isinstance(one, tuple) else one for key, one in more}
    made, at = None, 0
    each: list[Any] = []
    for generator, n in _streams(place.begin[: len(shape)], shape, seed, block):
        draw = getattr(generator, method)
        if n == prod(shape):
            return draw(*args, size=shape, **named)
        if made is None:
            each = [np.broadcast_to(one, shape).reshape(-1) if isinstance(one, np.ndarray) else one for one in args]
        part = draw(*[one[at : at + n] if isinstance(one, np.ndarray) else one for one in each], size=n, **named)
        if made is None:
            made = np.empty((prod(shape), *part.shape[1:]), part.dtype)
        made[at : at + n] = part
        at += n
    assert made is not None
    return made.reshape(place.shape)


def streamed(method: str, grid: Grid, seed: Seed, dtype: DType, block: Block) -> ArrayNode:
    """Return numbers of a distribution without parameters."""
    kwargs = {"method": method, "seed": seed, "dtype": dtype, "block": block}
    return ArrayNode(KernelKind.FILL, _stream, [], grid, dtype, kwargs=kwargs, unique=True, name=method)


def drawn(
    method: str,
    args: Sequence[Any],
    grid: Grid,
    seed: Seed,
    dtype: DType,
    more: Mapping[str, Any],
    block: Block,
) -> ArrayNode:
    """Return numbers of a distribution whose parameters are numbers, or nodes that broadcast to the grid."""
    inputs: list[NodeInput] = []
    given: list[Any] = []
    for one in args:
        if isinstance(one, ArrayNode):
            given.append(OperandSlot(len(inputs)))
            inputs.append(stretched(one, grid))
        else:
            given.append(one)
    kwargs = {"method": method, "seed": seed, "more": tuple(sorted(more.items())), "block": block}
    return ArrayNode(
        KernelKind.PLACED, _drawn, inputs, grid, dtype, args=given, kwargs=kwargs, unique=True, name=method
    )


def vectors(method: str, args: Sequence[Any], grid: Grid, seed: Seed, dtype: DType, block: Block) -> ArrayNode:
    """Return draws that are vectors along the last axis, which is one chunk."""
    kwargs = {"method": method, "seed": seed, "more": (), "extra": 1, "block": block}
    return ArrayNode(KernelKind.PLACED, _drawn, [], grid, dtype, args=args, kwargs=kwargs, unique=True, name=method)
