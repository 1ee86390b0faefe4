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

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike


@public("tensors", out=2)
def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Put arrays one behind the other along an axis."""
    return concat(arrays, axis=axis)


@public("tup")
def vstack(arrays: Sequence[Any]) -> Tensor:
    """Put arrays below one another."""
    return concat([atleast_2d(x) for x in arrays], axis=0)


@public("tup")
def hstack(arrays: Sequence[Any]) -> Tensor:
    """Put arrays beside one another."""
    made = [atleast_1d(x) for x in arrays]
    return concat(made, axis=0 if made[0].ndim == 1 else 1)


@public("tup")
def dstack(arrays: Sequence[Any]) -> Tensor:
    """Put arrays behind one another along the third axis."""
    return concat([atleast_3d(x) for x in arrays], axis=2)


@public("tup")
def column_stack(arrays: Sequence[Any]) -> Tensor:
    """Make one-dimensional arrays the columns of a matrix."""
    made = [x if x.ndim > 1 else x[:, None] for x in map(as_tensor, arrays)]
    return concat(made, axis=1)


@public("ary", "indices_or_sections")
@needs_lengths
def array_split(x: ArrayLike, parts: int | Sequence[int], axis: int = 0) -> ExecutableTuple:
    """Cut an array into parts along an axis, which may differ by one in length, or at the given places."""
    made = as_tensor(x)
    size = made.shape[axis]
    if isinstance(parts, int):
        each, more = size // parts, size % parts
        ends = np.cumsum([0] + [each + (i < more) for i in range(parts)]).tolist()
    else:
        ends = [0, *parts, size]
    before = (slice(None),) * (axis % made.ndim)
    return ExecutableTuple([made[(*before, slice(lo, hi))] for lo, hi in itertools.pairwise(ends)])


@public("ary", "indices_or_sections")
@needs_lengths(sample=array_split)
def split(x: ArrayLike, parts: int | Sequence[int], axis: int = 0) -> ExecutableTuple:
    """Cut an array into equal parts along an axis, or at the given places. ValueError: it cannot be cut evenly."""
    if isinstance(parts, int) and as_tensor(x).shape[axis] % parts:
        raise ValueError("array split does not result in an equal division")
    return array_split(x, parts, axis)


@public("ary", "indices_or_sections")
def vsplit(x: ArrayLike, parts: int | Sequence[int]) -> ExecutableTuple:
    """Cut along the first axis."""
    return split(x, parts, 0)


@public("ary", "indices_or_sections")
def hsplit(x: ArrayLike, parts: int | Sequence[int]) -> ExecutableTuple:
    """Cut along the second axis, or the only one."""
    return split(x, parts, 0 if as_tensor(x).ndim == 1 else 1)


@public("ary", "indices_or_sections")
def dsplit(x: ArrayLike, parts: int | Sequence[int]) -> ExecutableTuple:
    """Cut along the third axis."""
    return split(x, parts, 2)


@public("arr")
def append(x: ArrayLike, values: ArrayLike, axis: int | None = None) -> Tensor:
    """Put values behind an array; with no axis, both flat."""
    return concat([x, values], axis=axis)


@public("a")
@needs_lengths
def roll(x: ArrayLike, /, shift: Any, *, axis: Any = None) -> Tensor:
    """Move elements along axes; those that leave at one end come in at the other."""
    if axis is None:
        flat = reshape(x, (-1,)) if as_node(x).size else Tensor(as_node(x))
        return reshape(_rolled(flat, int(shift), 0), as_node(x).shape) if flat.size else flat
    made = Tensor(as_node(x))
    shifts = shift if isinstance(shift, tuple | list) else (shift,)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    if len(shifts) == 1:
        shifts = tuple(shifts) * len(axes)
    elif len(axes) == 1:
        axes = tuple(axes) * len(shifts)
    for by, along in zip(shifts, axes, strict=True):
        made = _rolled(made, int(by), _axis(along, made.ndim))
    return made


def _rolled(x: Tensor, by: int, axis: int) -> Tensor:
    size = x.shape[axis]
    by = by % size if size else 0
    if by == 0:
        return x
    head: list[Any] = [slice(None)] * x.ndim
    tail = list(head)
    head[axis], tail[axis] = slice(0, size - by), slice(size - by, None)
    return concat([x[tuple(tail)], x[tuple(head)]], axis=axis)


@public()
@needs_lengths
def concat(arrays: Sequence[Any], /, axis: int | None = 0) -> Tensor:
    """Put arrays one behind the other along an axis; with None, all flat."""
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
@needs_lengths
def stack(arrays: Sequence[Any], /, axis: int = 0) -> Tensor:
    """Put arrays of one shape beside one another, along a new axis."""
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
    made = x if isinstance(x, Tensor) else Tensor(as_node(x))
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
    """Repeat elements along an axis: each as often as `repeats` says."""
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
    """Put an array together from nested lists of blocks: the innermost along the last axis, and so on outwards."""
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
