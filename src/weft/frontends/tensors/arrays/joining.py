"""Arrays concatenated, split, repeated and rolled."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import indexing, shaping
from weft.frontends.tensors.arrays import shapes
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.arrays.shapes import _axis, atleast_1d, atleast_2d, atleast_3d, expand_dims, reshape
from weft.frontends.tensors.arrays.sparse_calls import takes_sparse

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, DTypeLike


@public("tensors", out=2)
def concatenate(
    arrays: Sequence[Any], axis: int | None = 0, *, dtype: DTypeLike = None, casting: Any = "same_kind"
) -> Tensor:
    """Concatenate arrays along an axis, in `dtype` where it is given. TypeError: `casting` does not allow it."""
    if dtype is None and casting == "same_kind":
        return concat(arrays, axis=axis)
    given = [as_tensor(one) for one in arrays]
    kind = np.result_type(*[one.dtype for one in given]) if dtype is None else np.dtype(dtype)
    for one in given:
        if not np.can_cast(one.dtype, kind, casting):
            raise TypeError(f"Cannot cast array data from {one.dtype!r} to {kind!r} according to the rule {casting!r}")
    return concat([one.astype(kind) for one in given], axis=axis)


@public("tup", also="row_stack")
@takes_sparse
def vstack(arrays: Sequence[Any]) -> Tensor:
    """Concatenate arrays along the first axis."""
    return concat([atleast_2d(x) for x in arrays], axis=0)


@public("tup")
@takes_sparse
def hstack(arrays: Sequence[Any]) -> Tensor:
    """Concatenate arrays along the second axis, vectors along their only one."""
    made = [atleast_1d(x) for x in arrays]
    return concat(made, axis=0 if made[0].ndim == 1 else 1)


@public("tup")
def dstack(arrays: Sequence[Any]) -> Tensor:
    """Concatenate arrays along the third axis."""
    return concat([atleast_3d(x) for x in arrays], axis=2)


@public("tup")
def column_stack(arrays: Sequence[Any]) -> Tensor:
    """Make one-dimensional arrays the columns of a matrix."""
    made = [x if x.ndim > 1 else reshape(x, (-1, 1)) for x in map(as_tensor, arrays)]
    return concat(made, axis=1)


@public("ary", "indices_or_sections")
@needs_lengths
def array_split(x: ArrayLike, parts: int | Sequence[int], axis: int = 0) -> ExecutableTuple:
    """Split an array along an axis at positions, or into parts whose lengths differ by one at most."""
    made = as_tensor(x)
    axis = _axis(axis, made.ndim)
    size = made.shape[axis]
    if isinstance(parts, int | np.integer):
        if parts < 1:
            raise ValueError("number sections must be larger than 0.")
        each, more = size // parts, size % parts
        ends = np.cumsum([0] + [each + (i < more) for i in range(parts)]).tolist()
    else:
        ends = [0, *parts, size]
    before = (slice(None),) * axis
    return ExecutableTuple([made[(*before, slice(lo, hi))] for lo, hi in itertools.pairwise(ends)])


@public("ary", "indices_or_sections")
@needs_lengths(sample=array_split)
def split(x: ArrayLike, parts: int | Sequence[int], axis: int = 0) -> ExecutableTuple:
    """Split an array along an axis at positions, or into equal parts. ValueError: no equal parts exist."""
    if isinstance(parts, int | np.integer) and as_tensor(x).shape[_axis(axis, as_tensor(x).ndim)] % parts:
        raise ValueError("array split does not result in an equal division")
    return array_split(x, parts, axis)


@public("ary", "indices_or_sections")
def vsplit(x: ArrayLike, parts: int | Sequence[int]) -> ExecutableTuple:
    """Split along the first axis. ValueError: the array has no second axis."""
    return split(_with_axes(x, 2, "vsplit"), parts, 0)


@public("ary", "indices_or_sections")
def hsplit(x: ArrayLike, parts: int | Sequence[int]) -> ExecutableTuple:
    """Split along the second axis, or the only one. ValueError: the array has no axis."""
    made = _with_axes(x, 1, "hsplit")
    return split(made, parts, 0 if made.ndim == 1 else 1)


@public("ary", "indices_or_sections")
def dsplit(x: ArrayLike, parts: int | Sequence[int]) -> ExecutableTuple:
    """Split along the third axis. ValueError: the array has no third axis."""
    return split(_with_axes(x, 3, "dsplit"), parts, 2)


def _with_axes(x: Any, least: int, name: str) -> Tensor:
    made = as_tensor(x)
    if made.ndim < least:
        raise ValueError(f"{name} only works on arrays of {least} or more dimensions")
    return made


@public("arr")
def append(x: ArrayLike, values: ArrayLike, axis: int | None = None) -> Tensor:
    """Append values to an array along an axis; by default to the flattened array."""
    return concat([x, values], axis=axis)


@public("a")
@needs_lengths
def roll(x: ArrayLike, /, shift: Any, axis: Any = None) -> Tensor:
    """Shift elements along axes; elements beyond one end reappear at the other."""
    made = Tensor(as_node(x))
    if axis is None:
        return reshape(roll(reshape(made, (-1,)), shift, axis=0), made.shape) if made.size else made
    shifts = shift if isinstance(shift, tuple | list) else (shift,)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    if len(shifts) == 1:
        shifts = tuple(shifts) * len(axes)
    elif len(axes) == 1:
        axes = tuple(axes) * len(shifts)
    for by, along in zip(shifts, axes, strict=True):
        made = _rolled(made, int(by), _axis(along, made.ndim))
    return Tensor(made.node, "F") if as_tensor(x).strided().flags.fnc else made


def _rolled(x: Tensor, by: int, axis: int) -> Tensor:
    size = x.shape[axis]
    by = by % size if size else 0
    if by == 0:
        return x
    head: list[Any] = [slice(None)] * x.ndim
    tail = list(head)
    head[axis], tail[axis] = slice(0, size - by), slice(size - by, None)
    return concat([x[tuple(tail)], x[tuple(head)]], axis=axis)


@public(out=2)
@takes_sparse
@needs_lengths
def concat(arrays: Sequence[Any], /, axis: int | None = 0) -> Tensor:
    """Concatenate arrays along an axis; with None, the flattened arrays."""
    nodes = [as_node(one) for one in arrays]
    if not nodes:
        raise ValueError("need at least one array to concatenate")
    if axis is None:
        nodes = [shaping.reshape(node, (node.size,)) for node in nodes]
        axis = 0
    ndim = len(nodes[0].grid)
    if not ndim:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    along = _axis(axis, ndim)
    for at, node in enumerate(nodes):
        if len(node.grid) != ndim:
            raise ValueError(
                "all the input array dimensions except for the concatenation axis must match exactly, but along "
                f"dimension 0, the array at index 0 has {ndim} dimension(s) and the array at index {at} has "
                f"{len(node.grid)} dimension(s)"
            )
        for a in range(ndim):
            if a != along and node.shape[a] != nodes[0].shape[a]:
                raise ValueError(
                    "all the input array dimensions except for the concatenation axis must match exactly, but along "
                    f"dimension {a}, the array at index 0 has size {nodes[0].shape[a]} and the array at index {at} has "
                    f"size {node.shape[a]}"
                )
    return Tensor(shaping.concat(nodes, along, np.result_type(*[node.dtype for node in nodes])))


@public("tensors", out=2)
@takes_sparse
@needs_lengths
def stack(arrays: Sequence[Any], /, axis: int = 0) -> Tensor:
    """Join arrays of one shape along a new axis."""
    given = [Tensor(as_node(one)) for one in arrays]
    if not given:
        raise ValueError("need at least one array to stack")
    if len({one.shape for one in given}) > 1:
        raise ValueError("all input arrays must have the same shape")
    at = _axis(axis, given[0].ndim + 1)
    return concat([expand_dims(one, at) for one in given], axis=at)


@public()
def unstack(x: ArrayLike, /, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the parts of an array along an axis."""
    made = as_tensor(x)
    at = _axis(axis, made.ndim)
    before = (slice(None),) * at
    cut = made._node.grid[at]
    return ExecutableTuple([made[(*before, i)] for i in range(cut.size if cut.known else made.shape[at])])


@public("A", "reps")
@needs_lengths
def tile(x: ArrayLike, repetitions: int | tuple[int, ...], /) -> Tensor:
    """Repeat the whole array along its axes."""
    made = Tensor(as_node(x))
    times = tuple(repetitions) if isinstance(repetitions, tuple | list) else (repetitions,)
    if any(count < 0 for count in times):
        raise ValueError(f"repetitions are {repetitions}: an array cannot be repeated less than no times")
    missing = len(times) - made.ndim
    if missing > 0:
        made = expand_dims(made, tuple(range(missing)))
    times = (1,) * (made.ndim - len(times)) + times
    for axis, count in enumerate(times):
        if count == 0:
            made = made[(*(slice(None),) * axis, slice(0, 0))]
        elif count > 1:
            made = concat([made] * count, axis=axis)
    return made


@public("a", method=True)
@needs_lengths
def repeat(x: ArrayLike, repeats: Any, /, axis: int | None = None) -> Tensor:
    """Repeat each element along an axis, `repeats` times."""
    node = as_node(x)
    if axis is None:
        node = shaping.reshape(node, (node.size,))
        axis = 0
    along = _axis(axis, len(node.grid))
    if not isinstance(repeats, int):
        counts = np.asarray(repeats.fetch() if isinstance(repeats, Tensor) else repeats)
        if counts.ndim == 0:
            repeats = int(counts)
        else:
            at = np.repeat(np.arange(node.shape[along]), counts)
            return Tensor(indexing.take(node, as_node(at), along))
    return Tensor(shaping.repeat(node, repeats, along))


@public()
def block(arrays: Any) -> Tensor:
    """Join nested lists of blocks: the innermost lists along the last axis, the next ones along the axis before."""
    depth = _depth(arrays)

    def most(one: Any) -> int:
        return max([most(inner) for inner in one]) if isinstance(one, list) else as_tensor(one).ndim

    axes = max(depth, most(arrays))

    def build(one: Any, level: int) -> Tensor:
        if not isinstance(one, list):
            made = as_tensor(one)
            return shapes.reshape(made, (1,) * (axes - made.ndim) + made.shape)
        return concat([build(inner, level + 1) for inner in one], axis=axes - depth + level)

    return build(arrays, 0)


def _depth(arrays: Any) -> int:
    if isinstance(arrays, tuple):
        raise TypeError("arrays is a tuple: only lists can be used to arrange blocks")
    if not isinstance(arrays, list):
        return 0
    if not arrays:
        raise ValueError("List at arrays cannot be empty")
    depths = {_depth(one) for one in arrays}
    if len(depths) > 1:
        raise ValueError("List depths are mismatched: every list holds lists of the same depth")
    return depths.pop() + 1
