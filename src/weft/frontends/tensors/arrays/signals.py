"""Series: convolutions, interpolation, unwrapped phases, and window functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import halos, reductions
from weft.frontends.tensors.arrays import creation, cumulative, elementwise, joining, searching, shapes
from weft.frontends.tensors.arrays.array import Tensor, apply, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.dtypes import FLOAT
from weft.frontends.tensors.arrays.insertion import part_along
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.blocks import in_one, mapped, rechunk
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import NodeInput, call

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.frontends.tensors.types import ArrayLike, Chunk
    from weft.operators.region_steps import ChunkPlace

_MODES = ("full", "same", "valid")


# ---------------------------------------------------------------------------------------------------- convolutions


@public("a", "v")
@needs_lengths
def convolve(x1: ArrayLike, x2: ArrayLike, /, mode: str = "full") -> Tensor:
    """Return the convolution of two vectors; a task reads a chunk of the longer one, and all of the shorter one.

    `mode` is "full", "same" (the middle part, as long as the longer one) or "valid" (where they overlap completely).
    """
    a, v = _series(x1, "a"), _series(x2, "v")
    if v.shape[0] > a.shape[0]:
        a, v = v, a
    return _convolved(a, v, mode, np.convolve)


@public("a", "v")
@needs_lengths
def correlate(x1: ArrayLike, x2: ArrayLike, /, mode: str = "valid") -> Tensor:
    """Return the cross-correlation of two vectors, of which the second one is conjugated; see `convolve`."""
    for one in (x1, x2):
        if not np.ndim(one):
            raise ValueError("object of too small depth for desired array")
    a, v = _series(x1, "a"), _series(x2, "v")
    if v.shape[0] > a.shape[0]:
        made = shapes.flip(correlate(Tensor(v), Tensor(a), mode))
        return apply(np.conjugate, made) if made.dtype.kind == "c" else made
    return _convolved(a, v, mode, np.correlate)


def _series(x: Any, name: str) -> ArrayNode:
    node = as_node(x)
    if not node.grid:
        node = shapes.reshape(Tensor(node), (1,)).node
    if len(node.grid) != 1:
        raise ValueError(f"object too deep for desired array: {name} has {len(node.grid)} axes; give one of one axis")
    if not node.size:
        raise ValueError(f"{name} cannot be empty")
    return node


def _convolved(a: ArrayNode, v: ArrayNode, mode: str, fn: Any) -> Tensor:
    if mode not in _MODES:
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    n, m = a.shape[0], v.shape[0]
    dtype = fn(np.ones(1, a.dtype), np.ones(1, v.dtype)).dtype
    if a.grid[0].n > 1 and a.grid[0].longest < m:
        a = rechunk(a, (Cut.even(n, m),))
    cut = a.grid[0]
    lengths = list(cut.lengths())
    lengths[-1] += m - 1
    grid = (Cut(sum(lengths), len(lengths), 0, tuple(np.cumsum(lengths).tolist())),)
    wide = halos.widened(a, [halos.Halo(m - 1, 0)])
    inputs = [NodeInput(wide), mapped(in_one(v), grid, [None])]
    made = Tensor(call(_part_convolved, inputs, grid, dtype, placed=True, name=fn.__name__, of=fn))
    lo, hi = {"full": (0, n + m - 1), "same": ((m - 1) // 2, (m - 1) // 2 + n), "valid": (m - 1, n)}[mode]
    return made if mode == "full" else made[lo:hi]


def _part_convolved(place: ChunkPlace, x: Chunk, v: Chunk, *, of: Any) -> Chunk:
    """Return the elements of a full convolution that end in the elements of a chunk, which follow its halo."""
    first = min(len(v) - 1, place.begin[0])
    if first == len(v) - 1 and place.shape[0] == len(x) - first:
        return of(x, v, "valid")
    return of(x, v, "full")[first : first + place.shape[0]]


@public()
@needs_lengths
def interp(
    x: ArrayLike, xp: ArrayLike, fp: ArrayLike, left: Any = None, right: Any = None, period: float | None = None
) -> Tensor:
    """Return values between the points `xp`, which ascend, with the values `fp`; every task reads all points.

    `left` and `right` are the values beyond the first and the last point. With `period` points repeat.
    """
    points, values, at = as_node(xp), as_node(fp), as_node(x)
    if len(points.grid) != 1 or len(values.grid) != 1:
        raise ValueError("Data points must be 1-D sequences")
    if points.shape != values.shape:
        raise ValueError("fp and xp are not of the same length.")
    if not points.size:
        raise ValueError("array of sample points is empty")
    if period == 0:
        raise ValueError("period must be a non-zero value")
    for one in (points, at):
        if one.dtype.kind == "c":
            raise TypeError("Cannot cast array data from complex128 to float64 according to the rule 'safe'")
    dtype = np.dtype(np.complex128) if values.dtype.kind == "c" else FLOAT
    axes: list[int | None] = [None] * len(at.grid)
    inputs = [NodeInput(at), *[mapped(in_one(one), at.grid, axes) for one in (points, values)]]
    return Tensor(call(_interp, inputs, at.grid, dtype, name="interp", left=left, right=right, period=period))


def _interp(x: Chunk, xp: Chunk, fp: Chunk, *, left: Any, right: Any, period: Any) -> Chunk:
    return np.asarray(np.interp(x, xp, fp, left, right, period))


@public("p")
@needs_lengths
def unwrap(x: ArrayLike, discont: float | None = None, axis: int = -1, *, period: Any = 2 * np.pi) -> Tensor:
    """Return phases without jumps larger than `discont`, half of a `period` by default: whole periods are added."""
    given = as_tensor(x)
    at = reductions.axis_of(axis, given.ndim)
    n = given.shape[at]
    less = np.not_equal if given.dtype.kind == "b" else np.subtract
    steps = apply(less, part_along(given, at, 1, n), part_along(given, at, 0, max(n - 1, 0)))
    dtype = np.result_type(steps.dtype, period)
    limit = period / 2 if discont is None else discont
    if dtype.kind in "iu":
        high, rest = divmod(period, 2)
        ambiguous = rest == 0
    else:
        high, ambiguous = period / 2, True
    low = -high
    inside = apply(np.add, apply(np.remainder, apply(np.subtract, steps, low), period), low)
    if ambiguous:
        both = apply(np.logical_and, apply(np.equal, inside, low), apply(np.greater, steps, 0))
        inside = searching.where(both, high, inside)
    correct = searching.where(apply(np.less, apply(np.absolute, steps), limit), 0, apply(np.subtract, inside, steps))
    moved = apply(np.add, part_along(given, at, 1, n), cumulative.cumsum(correct, axis=at))
    return joining.concat([part_along(given, at, 0, 1), moved], axis=at).astype(dtype)


# --------------------------------------------------------------------------------------------------------- windows


def _window_positions(m: int) -> tuple[Tensor, int] | Tensor:
    """Return the odd or even numbers from `1 - m` to `m - 1`, or the whole window if it has one element or none."""
    if m < 1:
        return creation.zeros((0,), np.result_type(m, 0.0))
    if m == 1:
        return creation.ones((1,), np.result_type(m, 0.0))
    return creation.arange(1 - m, m, 2), m - 1


def _of_cosines(m: Any, *weights: float) -> Tensor:
    found = _window_positions(m)
    if isinstance(found, Tensor):
        return found
    at, width = found
    made: Any = weights[0]
    for order, weight in enumerate(weights[1:], 1):
        made = apply(
            np.add, made, apply(np.multiply, apply(np.cos, apply(np.divide, at * (np.pi * order), width)), weight)
        )
    return made  # type: ignore[no-any-return]


@public("M")
def hanning(m: int) -> Tensor:
    """Return the Hann window of m elements: a raised cosine."""
    return _of_cosines(m, 0.5, 0.5)


@public("M")
def hamming(m: int) -> Tensor:
    """Return the Hamming window of m elements: a weighted cosine."""
    return _of_cosines(m, 0.54, 0.46)


@public("M")
def blackman(m: int) -> Tensor:
    """Return the Blackman window of m elements: three cosines."""
    return _of_cosines(m, 0.42, 0.5, 0.08)


@public("M")
def bartlett(m: int) -> Tensor:
    """Return the Bartlett window of m elements: a triangle."""
    found = _window_positions(m)
    if isinstance(found, Tensor):
        return found
    at, width = found
    return apply(np.subtract, 1.0, apply(np.divide, apply(np.absolute, at), width))


@public("M")
def kaiser(m: int, beta: float) -> Tensor:
    """Return the Kaiser window of m elements: a Bessel function with the shape `beta`."""
    found = _window_positions(m)
    if isinstance(found, Tensor):
        return found
    at, width = found
    root = apply(np.sqrt, apply(np.subtract, 1.0, apply(np.square, apply(np.divide, at, width))))
    return apply(np.divide, elementwise.i0(apply(np.multiply, root, float(beta))), float(np.i0(float(beta))[()]))
