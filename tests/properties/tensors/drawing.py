"""What `weft.tensor` is held against NumPy with: for each public function, how to draw arguments and what NumPy says.

A case is drawn from a `random.Random`: NumPy arrays, what the function is called with, and the same for NumPy. What
NumPy refuses has to be refused too, when the function is called or when its values are asked for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

import weft.tensor as wt

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]
COMPLEX = ["complex64", "complex128"]
REAL = [*INTS, *FLOATS]
NUMBERS = [*REAL, *COMPLEX]
TYPES = ["bool", *NUMBERS]
Shape = tuple[int, ...]


@dataclass
class Case:
    """A call: `ours` and `theirs` get the same arrays, as tensors and as they are."""

    name: str
    arrays: list[Any]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    exact: bool = False


Draw = Callable[[random.Random], Case]


# ------------------------------------------------------------------------------------------------------- arguments


def shape(rng: random.Random, least: int = 0, most: int = 3, longest: int = 6, *, empty: bool = True) -> Any:
    """Draw a shape; now and then an axis has no elements, or many."""
    ndim = rng.randint(least, most)
    sizes = [rng.choice([1, 2, 3, 4, 5, longest]) for _ in range(ndim)]
    if ndim and empty and rng.random() < 0.1:
        sizes[rng.randrange(ndim)] = 0
    if ndim == 1 and rng.random() < 0.2:
        sizes = [rng.randint(1, 40)]
    return tuple(sizes)


def array(rng: random.Random, size: Shape, types: list[str] = TYPES, *, special: bool = True) -> Any:
    """Draw an array; with `special`, some floating-point numbers are NaN, infinite or a negative zero."""
    dtype = np.dtype(rng.choice(types))
    made = np.random.default_rng(rng.getrandbits(32))
    if dtype.kind == "b":
        return np.asarray(made.random(size) < rng.choice([0.1, 0.5, 0.9]))
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        lo, hi = (info.min, info.max) if rng.random() < 0.2 else (max(info.min, -5), 6)
        return np.asarray(made.integers(lo, hi, size=size, dtype=dtype, endpoint=True), dtype)
    parts = [_floats(rng, made, size, special) for _ in range(1 + (dtype.kind == "c"))]
    return np.asarray(parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]).astype(dtype)


def _floats(rng: random.Random, made: np.random.Generator, size: Shape, special: bool) -> Any:
    values = made.normal(size=size) * rng.choice([1, 3, 100])
    if rng.random() < 0.3:
        values = np.round(values)
    if special and rng.random() < 0.4:
        odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0])
        values = np.where(made.random(size) < 0.2, made.choice(odd, size), values)
    return np.asarray(values)


def broadcastable(rng: random.Random, count: int, most: int = 3) -> list[Shape]:
    """Draw shapes that go together; seldom ones that do not."""
    whole = shape(rng, 0, most)
    made = []
    for _ in range(count):
        own = list(whole[rng.randint(0, len(whole)) :]) if rng.random() < 0.4 else list(whole)
        made.append(tuple([1 if rng.random() < 0.2 else size for size in own]))
    if rng.random() < 0.04:
        made[0] = (*made[0], 7)
    return made


def axis_of(rng: random.Random, ndim: int) -> int:
    """Draw an axis, counted from either end; seldom one that is not there."""
    if ndim == 0 or rng.random() < 0.03:
        return rng.choice([-ndim - 2, ndim + 1])  # of a 0-d array NumPy takes 0 and -1, which are not there either
    return rng.randrange(-ndim, ndim)


def axes_of(rng: random.Random, ndim: int) -> Any:
    """Draw one axis, several, or None for all."""
    choice = rng.random()
    if choice < 0.3:
        return None
    if choice < 0.6:
        return axis_of(rng, ndim)
    axes = rng.sample(range(ndim), rng.randint(0, ndim))
    return tuple([axis - ndim if rng.random() < 0.3 else axis for axis in axes])


def chunks(rng: random.Random, size: Shape) -> Any:
    """Draw how an array is cut: in one, by 3, by itself, into chunks of any lengths."""
    kind = rng.random()
    if kind < 0.15:
        return -1 if not size else tuple([-1] * len(size))
    if kind < 0.25:
        return None
    if kind < 0.6:
        return rng.choice([1, 2, 3])
    return tuple([_lengths(rng, n) for n in size])


def _lengths(rng: random.Random, size: int) -> tuple[int, ...]:
    """Cut an axis anywhere; now and then a chunk is empty."""
    borders = sorted(rng.randint(0, size) for _ in range(rng.randint(0, 4)))
    if rng.random() < 0.8:
        borders = sorted(set(borders) - {0, size})
    ends = [0, *borders, size]
    return tuple([b - a for a, b in pairwise(ends)])


# -------------------------------------------------------------------------------------------------------- families


def simple(name: str, of: Callable[[random.Random], Any], exact: bool = False, theirs: Any = None) -> Draw:
    """Return how to draw a call that takes arrays alone."""

    def draw(rng: random.Random) -> Case:
        return Case(name, of(rng), getattr(wt, name), theirs or getattr(np, name), exact)

    return draw


def keyed(
    name: str,
    of: Callable[[random.Random], Any],
    *,
    exact: bool = False,
    theirs: Any = None,
    ours: Any = None,
) -> Draw:
    """Return how to draw a call with keywords as well."""

    def draw(rng: random.Random) -> Case:
        arrays, kwargs = of(rng)
        own = ours or getattr(wt, name)
        return Case(
            f"{name} {kwargs}", arrays, partial(own, **kwargs), partial(theirs or getattr(np, name), **kwargs), exact
        )

    return draw


def call(name: str, of: Callable[[random.Random], Any], theirs: Any = None) -> Draw:
    """Return how to draw a call whose arrays come first, then other arguments; what it returns is exact."""

    def draw(rng: random.Random) -> Case:
        arrays, args, kwargs = of(rng)
        own, other = getattr(wt, name), theirs or getattr(np, name)
        return Case(
            f"{name} {args} {kwargs}",
            arrays,
            lambda *given: own(*given, *args, **kwargs),
            lambda *given: other(*given, *args, **kwargs),
            True,
        )

    return draw


def of_x(args: Callable[[random.Random, Any], Any], least: int = 0, most: int = 4) -> Any:
    """Return what draws one array, and arguments for it."""

    def of(rng: random.Random) -> Any:
        x = array(rng, shape(rng, least, most))
        return [x], *args(rng, x)

    return of


def matrices(rng: random.Random) -> tuple[Shape, Shape]:
    """Draw the shapes of two factors of a matrix product."""
    rows, inner, columns = (rng.randint(0 if rng.random() < 0.1 else 1, 7) for _ in range(3))
    first, second = broadcastable(rng, 2, 2)
    if rng.random() < 0.04:
        return (*first, rows, inner), (*second, inner + 1, columns)
    left = (inner,) if rng.random() < 0.2 else (*first, rows, inner)
    return left, (inner,) if rng.random() < 0.2 else (*second, inner, columns)
