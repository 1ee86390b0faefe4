"""Shapes and orders of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.frontends.tensors import blocks, indexing, shaping
from weft.frontends.tensors.arrays import chunking, views
from weft.frontends.tensors.arrays.array import Tensor, as_node, taking_out, viewed
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.executables import ExecutableTuple
from weft.frontends.tensors.reductions import axes_of
from weft.frontends.tensors.unknown_lengths import stand_in


def _axis(axis: int, ndim: int) -> int:
    return axes_of(axis, ndim)[0]


def _order(axes: Any, ndim: int) -> tuple[int, ...]:
    return tuple([_axis(axis, ndim) for axis in axes])


@needs_lengths
def permute_dims(x: Any, /, axes: tuple[int, ...]) -> Tensor:
    """Put the axes into another order."""
    node = as_node(x)
    order = _order(axes, len(node.grid))
    if sorted(order) != list(range(len(node.grid))):
        raise ValueError("axes don't match array")
    return viewed(x, shaping.permute(node, order), views.Permuted(order))


@needs_lengths
def moveaxis(x: Any, source: Any, destination: Any, /) -> Tensor:
    """Move axes to other places; the others keep their order."""
    node = as_node(x)
    ndim = len(node.grid)
    src = _order(source if isinstance(source, tuple | list) else (source,), ndim)
    dst = _order(destination if isinstance(destination, tuple | list) else (destination,), ndim)
    if len(src) != len(dst):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [axis for axis in range(ndim) if axis not in src]
    for to, axis in sorted(zip(dst, src, strict=True)):
        order.insert(to, axis)
    return viewed(x, shaping.permute(node, order), views.Permuted(tuple(order)))


def _reshaped_sample(x: Tensor, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Tensor:
    wanted = shape if isinstance(shape, tuple | list) else (shape,)
    columns = order == "F" or (order == "A" and x.order == "F")
    made = stand_in([max(1, int(size)) for size in wanted], x.dtype)
    return Tensor(made, "F" if columns else "C") if copy or columns else viewed(x, made, _reshaping(shape))


def _reshaping(shape: Any) -> views.Reshaped:
    return views.Reshaped(tuple([int(size) for size in (shape if isinstance(shape, tuple | list) else (shape,))]))


@needs_lengths(sample=_reshaped_sample)
def reshape(x: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Tensor:
    """Give another shape; one length may be -1.

    Elements are taken and put in row-major order, or with order "F" column after column; "A" is "F" for an array that
    lies so in memory.
    """
    if order not in ("A", "C", "F"):
        raise ValueError(f"order must be one of 'C', 'F' or 'A' (got {order!r})")
    if order == "F" or (order == "A" and isinstance(x, Tensor) and x.order == "F"):
        sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
        return reshape((x if isinstance(x, Tensor) else Tensor(as_node(x))).T, sizes[::-1]).T.ordered("F")
    node = as_node(x)
    wanted = [int(size) for size in (shape if isinstance(shape, tuple | list) else (shape,))]
    if wanted.count(-1) > 1:
        raise ValueError("can only specify one unknown dimension")
    rest = 1
    for size in wanted:
        rest *= 1 if size == -1 else size
    if -1 in wanted and rest and node.size % rest == 0:
        wanted[wanted.index(-1)] = node.size // rest
        rest = node.size
    if rest != node.size or -1 in wanted:
        raise ValueError(f"cannot reshape array of size {node.size} into shape {tuple(wanted)}")
    made = shaping.reshape(node, wanted)
    return Tensor(made) if copy else viewed(x, made, _reshaping(shape))


@needs_lengths
def expand_dims(x: Any, /, axis: int | Sequence[int] = 0) -> Tensor:
    """Put in axes of length 1."""
    node = as_node(x)
    listed = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    at = axes_of(listed, len(node.grid) + len(listed))
    made = indexing.expand(node, at)
    return viewed(x, made, views.Indexed(tuple([None if a in at else slice(None) for a in range(len(made.grid))])))


def squeeze(x: Any, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """Drop axes of length 1: those that are named, or all; ValueError for one that is longer."""
    if axis is None:
        axis = tuple([a for a, n in enumerate(as_node(x).shape) if n == 1])
    return _squeezed(x, axis)


@needs_lengths
def _squeezed(x: Any, axis: int | Sequence[int]) -> Tensor:
    node = as_node(x)
    axes = axes_of(axis, len(node.grid))
    if any(node.shape[a] != 1 for a in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    one = tuple([0 if a in axes else slice(None) for a in range(len(node.grid))])
    return viewed(x, shaping.squeeze(node, axes), views.Indexed(one))


@needs_lengths
def flip(x: Any, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """Turn the order of elements along axes round."""
    node = as_node(x)
    axes = axes_of(axis, len(node.grid))
    turned = tuple([slice(None, None, -1 if a in axes else None) for a in range(len(node.grid))])
    return viewed(x, shaping.flip(node, axes), views.Indexed(turned))


@needs_lengths
def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Tensor:
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


@taking_out(2)
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


def unstack(x: Any, /, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the parts of an array along an axis."""
    made = x if isinstance(x, Tensor) else Tensor(as_node(x))
    at = _axis(axis, made.ndim)
    before = (slice(None),) * at
    cut = made._node.grid[at]
    return ExecutableTuple([made[(*before, i)] for i in range(cut.size if cut.known else made.shape[at])])


@needs_lengths
def tile(x: Any, repetitions: int | tuple[int, ...], /) -> Tensor:
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


@needs_lengths
def repeat(x: Any, repeats: Any, /, axis: int | None = None) -> Tensor:
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


@needs_lengths
def broadcast_to(x: Any, /, shape: tuple[int, ...]) -> Tensor:
    """Repeat along axes of length 1 until the array has a shape; ValueError if it cannot have it."""
    node = as_node(x)
    shape = tuple(shape)
    if np.broadcast_shapes(node.shape, shape) != shape:
        raise ValueError(
            f"operands could not be broadcast together with remapped shapes [original->remapped]: {node.shape} {shape}"
        )
    own = node.grid
    grid = list(chunking.cut(shape, node.dtype.itemsize))
    for axis, cut in enumerate(own):
        if cut.size != 1 or shape[axis + len(shape) - len(own)] == 1:
            grid[axis + len(shape) - len(own)] = cut
    return Tensor(shaping.broadcast_to(node, tuple(grid)))


@needs_lengths
def broadcast_arrays(*arrays: Any) -> tuple[Tensor, ...]:
    """Return arrays repeated to the shape that all go together in."""
    nodes = [as_node(one) for one in arrays]
    shape = blocks.broadcast_shapes(*[node.grid for node in nodes])
    return tuple([broadcast_to(Tensor(node), shape) for node in nodes])  # the standard asks for no other type


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that arrays of these shapes are broadcast to."""
    return np.broadcast_shapes(*shapes)
