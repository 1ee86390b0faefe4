"""Functions that are chosen by conditions, or called along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import blocks, reductions
from weft.frontends.tensors.arrays import searching, shapes
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.chunkwise import read_only
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.blocks import mapped, whole_along
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import call, computed

if TYPE_CHECKING:
    from weft.frontends.tensors.types import ArrayLike, Chunk


@public()
@needs_lengths
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Tensor:
    """Return for each element that of the first choice whose condition holds, else `default`."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not len(condlist):
        raise ValueError("select with an empty condition list is not possible")
    choices = [one if type(one) in (int, float, complex) else as_tensor(one) for one in (*choicelist, default)]
    dtype = np.result_type(*[one.dtype if isinstance(one, Tensor) else one for one in choices])
    conditions = [as_tensor(one) for one in condlist]
    for at, one in enumerate(conditions):
        if one.dtype.kind != "b":
            raise TypeError(f"invalid entry {at} in condlist: should be boolean ndarray")
    whole = np.broadcast_shapes(*[one.shape for one in conditions], *[np.shape(one) for one in choices[:-1]])
    # In their common type: the type of two of them may hold less. OverflowError: a number does not fit.
    held = [one.astype(dtype, copy=False) if isinstance(one, Tensor) else np.asarray(one, dtype) for one in choices]
    made: Any = held[-1]
    for condition, choice in zip(reversed(conditions), reversed(held[:-1]), strict=True):
        made = searching.where(condition, choice, made)
    return shapes.spread(as_tensor(made), whole)


class _Piecewise:
    """The functions of a piecewise function, with their further arguments."""

    __name__ = "piecewise"

    def __init__(self, functions: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.functions = list(functions)
        self.args = args
        self.kwargs = kwargs

    def __call__(self, x: Chunk, *conditions: Chunk) -> Chunk:
        held = [np.asarray(one) for one in conditions]
        return np.piecewise(np.asarray(x), held, self.functions, *self.args, **self.kwargs)


@public()
@needs_lengths
def piecewise(x: ArrayLike, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Tensor:
    """Return the results of functions, or values, for the elements where their conditions hold; 0 elsewhere.

    One more function than conditions is that of all other elements. Functions get the elements of one chunk at a time.
    """
    node = as_node(x)
    first = condlist[0] if isinstance(condlist, list | tuple) else None
    if not isinstance(condlist, list | tuple) or (node.grid and not isinstance(first, list | np.ndarray | Tensor)):
        several = isinstance(condlist, np.ndarray | Tensor) and condlist.ndim == len(node.grid) + 1
        condlist = list(condlist) if several else [condlist]
    conditions = [as_tensor(one).astype(bool) for one in condlist]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ValueError(
            f"with {len(conditions)} condition(s), either {len(conditions)} or {len(conditions) + 1} functions are "
            "expected"
        )
    if len({one.shape for one in conditions}) > 1:
        raise ValueError(f"conditions have shapes {', '.join([str(one.shape) for one in conditions])}: give one shape")
    for one in conditions:
        if one.shape != node.shape:
            raise IndexError(f"boolean index did not match: a condition has shape {one.shape}, and x {node.shape}")
    given = [one.fetch()[()] if isinstance(one, Tensor) else one for one in funclist]
    body = _Piecewise(given, computed(args), computed(kw))
    nodes = [node, *[one.node for one in conditions]]
    return Tensor(blocks.elementwise(body, nodes, node.dtype, "piecewise"))


class _Along:
    """A user's function of lines, with its arguments."""

    __name__ = "apply_along_axis"

    def __init__(self, fn: Callable[..., Any], axis: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.fn = fn
        self.axis = axis
        self.args = args
        self.kwargs = kwargs

    def __call__(self, x: Chunk, *, dtype: Any) -> Chunk:
        made = np.apply_along_axis(self.fn, self.axis, read_only(x), *self.args, **self.kwargs)
        return np.asarray(made).astype(dtype, copy=False)


@public()
@needs_lengths
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any) -> Tensor:
    """Return the results of a function for all lines along an axis, which take the place of the axis.

    Each line is whole, and lines of different chunks are computed in parallel. The function is tried at once on a line
    of ones, for the shape and the dtype of its result. ValueError: there are no lines.
    """
    node = as_node(arr)
    at = reductions.axis_of(axis, len(node.grid))
    if any(size == 0 for a, size in enumerate(node.shape) if a != at):
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    body = _Along(func1d, at, computed(args), computed(kwargs))
    tried = np.asarray(func1d(np.ones(node.shape[at], node.dtype), *body.args, **body.kwargs))
    node = whole_along(node, (at,))
    own = [Cut.whole(size) for size in tried.shape]
    grid = (*node.grid[:at], *own, *node.grid[at + 1 :])
    axes: list[int | None] = [*range(at), *[None] * len(own), *range(at + 1, len(node.grid))]
    return Tensor(
        call(
            body, [mapped(node, grid, axes)], grid, tried.dtype, unique=True, name="apply_along_axis", dtype=tried.dtype
        )
    )


@public()
def apply_over_axes(func: Callable[..., Any], a: ArrayLike, axes: int | Sequence[int]) -> Tensor:
    """Return the result of a function that is called for one axis after another: `func(a, axis)`, axes kept."""
    made = as_tensor(a)
    ndim = made.ndim
    for axis in [axes] if isinstance(axes, int | np.integer) else axes:
        at = axis + ndim if axis < 0 else axis
        found = as_tensor(func(made, at))
        if found.ndim != made.ndim:
            found = shapes.expand_dims(found, at)
            if found.ndim != made.ndim:
                raise ValueError("function is not returning an array of the correct shape")
        made = found
    return made
