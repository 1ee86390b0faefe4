"""Shapes and orders of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import blocks, indexing, shaping
from weft.frontends.tensors.arrays import views
from weft.frontends.tensors.arrays.array import Tensor, as_tensor, viewed
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.registry import method, public
from weft.frontends.tensors.arrays.sparse_calls import takes_sparse
from weft.frontends.tensors.reductions import axes_of, axis_of
from weft.frontends.tensors.unknown_lengths import stand_in

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike


def _axis(axis: int, ndim: int) -> int:
    return axis_of(axis, ndim)


def _order(axes: Any, ndim: int) -> tuple[int, ...]:
    return tuple([_axis(axis, ndim) for axis in axes])


@public()
@takes_sparse
@needs_lengths
def permute_dims(x: ArrayLike, /, axes: tuple[int, ...]) -> Tensor:
    """Permute the axes."""
    node = as_node(x)
    order = _order(axes, len(node.grid))
    if sorted(order) != list(range(len(node.grid))):
        raise ValueError("axes don't match array")
    return viewed(x, shaping.permute(node, order), views.Permuted(order))


@public("a")
@takes_sparse
@needs_lengths
def moveaxis(x: ArrayLike, source: Any, destination: Any, /) -> Tensor:
    """Move axes to other positions; the remaining axes keep their order."""
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


@public("a", "newshape")
@takes_sparse
@needs_lengths(sample=_reshaped_sample)
def reshape(x: ArrayLike, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Tensor:
    """Return the array in another shape; one length may be -1.

    Elements are read and placed in row-major order, with order "F" in column-major order; "A" is the order of the
    array in memory.
    """
    if order not in ("A", "C", "F"):
        raise ValueError(f"order must be one of 'C', 'F' or 'A' (got {order!r})")
    if order == "F" or (order == "A" and isinstance(x, Tensor) and x.strided().flags.fnc):
        sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
        return reshape(as_tensor(x).T, sizes[::-1]).T.ordered("F")
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


@public("a")
@takes_sparse
@needs_lengths
def expand_dims(x: ArrayLike, /, axis: int | Sequence[int] = 0) -> Tensor:
    """Insert axes of length 1."""
    node = as_node(x)
    listed = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    at = axes_of(listed, len(node.grid) + len(listed))
    made = indexing.expand(node, at)
    return viewed(x, made, views.Indexed(tuple([None if a in at else slice(None) for a in range(len(made.grid))])))


@public("a", method=True)
@takes_sparse
def squeeze(x: ArrayLike, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """Drop axes of length 1: those that are named, or all; ValueError for one that is longer."""
    if axis is None:
        axis = tuple([a for a, n in enumerate(as_node(x).shape) if n == 1])
    return _squeezed(x, axis)


@needs_lengths
def _squeezed(x: ArrayLike, axis: int | Sequence[int]) -> Tensor:
    node = as_node(x)
    axes = axes_of(axis, len(node.grid))
    if any(node.shape[a] != 1 for a in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    one = tuple([0 if a in axes else slice(None) for a in range(len(node.grid))])
    return viewed(x, shaping.squeeze(node, axes), views.Indexed(one))


@public("m")
@needs_lengths
def flip(x: ArrayLike, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """Reverse the order of elements along axes."""
    node = as_node(x)
    axes = axes_of(axis, len(node.grid))
    if not node.grid:
        return Tensor(node)  # an array without axes is a number, as in NumPy: no view
    turned = tuple([slice(None, None, -1 if a in axes else None) for a in range(len(node.grid))])
    return viewed(x, shaping.flip(node, axes), views.Indexed(turned))


@public("tensor")
@needs_lengths
def broadcast_to(x: ArrayLike, /, shape: int | tuple[int, ...]) -> Tensor:
    """Repeat along axes of length 1 until the array has a shape, as a view that can only be read.

    ValueError: the array cannot have it.
    """
    shape = np.broadcast_to(np.broadcast_to(np.False_, as_node(x).shape), shape).shape  # or NumPy's error
    step = views.BroadcastTo(shape)
    return viewed(x, step.get(as_node(x)), step)


def spread(x: ArrayLike, shape: tuple[int, ...]) -> Tensor:
    """Return an array of its own that repeats another one along axes of length 1."""
    return Tensor(broadcast_to(Tensor(as_node(x)), shape).node)


@public()
@needs_lengths
def broadcast_arrays(*arrays: Any) -> tuple[Tensor, ...]:
    """Return arrays broadcast to their common shape; those that have it already are returned as they are.

    The others can only be read, as NumPy announces for its own.
    """
    nodes = [as_node(one) for one in arrays]
    shape = blocks.broadcast_shapes(*[node.grid for node in nodes])
    return tuple(  # the standard asks for no other type
        as_tensor(one) if node.shape == shape else broadcast_to(one, shape)
        for one, node in zip(arrays, nodes, strict=True)
    )


@public()
def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that arrays of these shapes are broadcast to."""
    return np.broadcast_shapes(*shapes)


@public("a")
@takes_sparse
@needs_lengths
def transpose(x: ArrayLike, axes: Sequence[int] | None = None) -> Tensor:
    """Permute the axes; by default reverse them."""
    made = as_tensor(x)
    return made.T if axes is None else permute_dims(made, tuple(axes))


@public("a", method=True)
@takes_sparse
@needs_lengths
def swapaxes(x: ArrayLike, axis1: int, axis2: int) -> Tensor:
    """Exchange two axes."""
    made = as_tensor(x)
    order = list(range(made.ndim))
    a, b = axis_of(axis1, made.ndim), axis_of(axis2, made.ndim)
    order[a], order[b] = order[b], order[a]
    return permute_dims(made, tuple(order))


@public("tensor")
@needs_lengths
def rollaxis(x: ArrayLike, axis: int, start: int = 0) -> Tensor:
    """Move an axis to the position before another."""
    ndim = len(as_node(x).grid)
    axis = axis_of(axis, ndim)
    start = axis_of(start, ndim + 1) if start >= 0 else axis_of(start, ndim)
    return moveaxis(x, axis, start - 1 if axis < start else start)


@public("a", method=True)
@needs_lengths
def ravel(x: ArrayLike, order: str = "C") -> Tensor:
    """Return the elements along one axis in row-major order; with order "F" in column-major order.

    The result is a view if the elements are contiguous in this order.
    """
    made = as_tensor(x)
    if order not in ("A", "C", "F", "K"):
        raise ValueError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})")
    lies = made.strided()
    if order == "K":
        made = permute_dims(made, tuple(np.argsort([-abs(n) for n in lies.strides], kind="stable").tolist()))
    elif order == "F" or (order == "A" and lies.flags.fnc):
        made = made.T
    flat = reshape(made, (-1,))
    return flat if made.strided().flags.c_contiguous else Tensor(flat._node)


@public(method=True)
def flatten(x: ArrayLike, order: str = "C") -> Tensor:
    """Return the elements along one axis as `ravel`, as an array of its own."""
    return Tensor(ravel(x, order)._node)


@public()
def atleast_1d(*arrays: Any) -> Any:
    """Return arrays with one axis at least."""
    return _all([reshape(x, (1,)) if not x.ndim else x for x in map(as_tensor, arrays)])


@public()
def atleast_2d(*arrays: Any) -> Any:
    """Return arrays with two axes at least; new ones come first."""
    return _all(
        [reshape(x, (1, 1)) if not x.ndim else x[None, :] if x.ndim == 1 else x for x in map(as_tensor, arrays)]
    )


@public()
def atleast_3d(*arrays: Any) -> Any:
    """Return arrays with three axes at least."""
    made = []
    for x in map(as_tensor, arrays):
        if not x.ndim:
            made.append(reshape(x, (1, 1, 1)))
        else:
            made.append(x[None, :, None] if x.ndim == 1 else x[:, :, None] if x.ndim == 2 else x)
    return _all(made)


def _all(made: list[Tensor]) -> Any:
    return made[0] if len(made) == 1 else made


@public("m")
def flipud(x: ArrayLike) -> Tensor:
    """Reverse the order of rows."""
    return flip(x, axis=0)


@public("m")
def fliplr(x: ArrayLike) -> Tensor:
    """Reverse the order of columns."""
    return flip(x, axis=1)


@public()
@needs_lengths
def rot90(m: ArrayLike, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """Rotate the array by k times 90 degrees in the plane of two axes. ValueError: they are not two axes."""
    made = as_tensor(m)
    a, b = _order(axes, made.ndim) if len(axes) == 2 else (0, 0)
    if a == b:
        raise ValueError("Axes must be different.")
    if k % 4 == 2:
        return flip(made, (a, b))
    if k % 4 == 1:
        return swapaxes(flip(made, b), a, b)
    return flip(swapaxes(made, a, b), b) if k % 4 == 3 else made[...]


@public("a")
def ndim(x: ArrayLike) -> int:
    """Return the number of axes."""
    return as_tensor(x).ndim


@public("a")
def shape(x: ArrayLike) -> tuple[int, ...]:
    """Return the length of each axis."""
    return as_tensor(x).shape


@method("reshape", "a", "newshape")
def _reshape_method(self: Tensor, *shape: Any, order: str = "C", copy: bool | None = None) -> Tensor:
    """Return the array in another shape, in row-major order unless `order` is "F"; one length may be -1."""
    wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int | np.integer) else shape
    return reshape(self, wanted, order, copy=copy)


@method("transpose", "a")
def _transpose_method(self: Tensor, *axes: Any) -> Tensor:
    """Permute the axes; by default reverse them."""
    order = axes[0] if len(axes) == 1 and (axes[0] is None or not isinstance(axes[0], int | np.integer)) else axes
    return transpose(self, order or None)
