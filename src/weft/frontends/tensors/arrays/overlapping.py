"""Functions over chunks with some elements of their neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import halos, reductions
from weft.frontends.tensors.arrays import chunking
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.blockwise import common, map_blocks
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.registry import method, public
from weft.frontends.tensors.blocks import rechunk
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.halos import Halo

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import ArrayNode

WHOLE = 4
"""The number of chunks of the size for a worker that a task may read as neighbours."""
_BOUNDARIES = ("reflect", "nearest", "periodic", "none")


@public()
@needs_lengths
def map_overlap(
    fn: Callable[..., Any],
    *args: Any,
    depth: Any = None,
    boundary: Any = None,
    trim: bool = True,
    align_arrays: bool = True,
    allow_rechunk: bool = True,
    **kwargs: Any,
) -> Tensor:
    """Return the results of a function for chunks that have `depth` elements of their neighbours at both ends.

    `depth` is one number, one for each axis (a tuple, or a mapping of axes), or a list of these with one for each
    array; a pair for an axis stands for different numbers before and after. `boundary`, one or by axis in the same
    forms, determines the elements outside of the array: "reflect" (the array reversed, its last element twice),
    "nearest" (its last element), "periodic" (the other end), a number, or "none": there are no such elements. With
    `trim` the `depth` elements at both ends of each result are removed, so that the result has the chunks of the
    arrays. All other arguments are those of `map_blocks`.

    Chunks shorter than the depth become longer, or are refused if `allow_rechunk` is false. ValueError: a depth is
    longer than its axis, or negative.
    """
    arrays = [one for one in args if isinstance(one, Tensor | np.ndarray) and np.ndim(one)]
    if not arrays:
        raise ValueError("map_overlap: no argument is an array: give one at least")
    tensors = [as_tensor(one) for one in arrays]
    depths = depth if isinstance(depth, list) else [depth] * len(tensors)
    bounds = boundary if isinstance(boundary, list) else [boundary] * len(tensors)
    if len(depths) != len(tensors) or len(bounds) != len(tensors):
        raise ValueError(f"depth= and boundary= as lists have one entry for each of the {len(tensors)} arrays")
    around = [_halos(one, deep, bound) for one, deep, bound in zip(tensors, depths, bounds, strict=True)]
    sources = [one.node for one in tensors]
    deepest = _deepest(around)
    if align_arrays:
        _, sources = common(sources)
    sources = [_long_enough(node, deepest[len(deepest) - len(node.grid) :], allow_rechunk) for node in sources]
    most = WHOLE * chunking.chunking().chunk_bytes
    nodes = [halos.widened(node, given, most) for node, given in zip(sources, around, strict=True)]
    cuts = [node.grid for node in sources]
    wide = iter(nodes)
    is_array = [isinstance(one, Tensor | np.ndarray) and bool(np.ndim(one)) for one in args]
    given_args = [Tensor(next(wide)) if array else one for one, array in zip(args, is_array, strict=True)]
    made: Tensor = map_blocks(fn, *given_args, **kwargs)
    if not trim:
        return made
    first = max(range(len(nodes)), key=lambda i: (len(nodes[i].grid), -i))
    dropped = kwargs.get("drop_axis")
    gone = {reductions.axis_of(a, len(cuts[first])) for a in _listed(dropped)} if dropped is not None else set()
    inner = [(cut, halo) for a, (cut, halo) in enumerate(zip(cuts[first], around[first], strict=True)) if a not in gone]
    new = kwargs.get("new_axis")
    for axis in sorted(a % made.ndim for a in _listed(new)) if new is not None else ():
        inner.insert(axis, (made.node.grid[axis], Halo(0, 0)))
    node = made.node
    grid = tuple([_less(cut, own, halo) for cut, (own, halo) in zip(node.grid, inner, strict=True)])
    return Tensor(halos.trimmed(node, grid, [halo for _, halo in inner], tuple([own for own, _ in inner])))


def _less(made: Cut, own: Cut, halo: Halo) -> Cut:
    """Return the cut of a result without its halos: that of the array, unless the function changes lengths."""
    if not halo.before and not halo.after:
        return made
    trims = halo.trims(own)
    lengths = [length - first - last for length, (first, last) in zip(made.lengths(), trims, strict=True)]
    if min(lengths) < 0:
        raise ValueError(f"map_overlap: the function makes chunks shorter than the depth {halo[:2]}: give trim=False")
    return own if tuple(lengths) == own.lengths() else Cut(sum(lengths), len(lengths), 0, _ends(lengths))


def _ends(lengths: Sequence[int]) -> tuple[int, ...]:
    return tuple(np.cumsum(lengths).tolist())


def _listed(axis: Any) -> Sequence[int]:
    return axis if isinstance(axis, tuple | list) else (axis,)


def _by_axis(given: Any, ndim: int, default: Any) -> list[Any]:
    """Return one value for each axis from one for all, a tuple, or a mapping."""
    if isinstance(given, Mapping):
        found = {reductions.axis_of(axis, ndim): one for axis, one in given.items()}
        return [found.get(axis, default) for axis in range(ndim)]
    if isinstance(given, tuple):
        if len(given) != ndim:
            raise ValueError(f"{given!r} has {len(given)} entries for an array of {ndim} axes: give one for each")
        return list(given)
    return [given] * ndim


def _halos(x: Tensor, depth: Any, boundary: Any) -> list[Halo]:
    found = []
    pairs = zip(_by_axis(depth, x.ndim, 0), _by_axis(boundary, x.ndim, "none"), strict=True)
    for axis, (deep, bound) in enumerate(pairs):
        before, after = (deep if isinstance(deep, tuple) else (deep, deep)) if deep is not None else (0, 0)
        if int(before) != before or int(after) != after or before < 0 or after < 0:
            raise ValueError(f"the depth along axis {axis} is {deep!r}: give a whole number from 0 on, or two of them")
        bound = "none" if bound is None else bound
        if isinstance(bound, str) and bound not in _BOUNDARIES:
            raise ValueError(
                f"the boundary of axis {axis} is {bound!r}: give 'reflect', 'nearest', 'periodic', 'none' or a number"
            )
        held = np.empty((), x.dtype)
        if not isinstance(bound, str):
            held[()] = np.asarray(bound).item()  # ValueError, OverflowError: a number does not fit, as in NumPy
        value = bound if isinstance(bound, str) else held[()]
        found.append(Halo(int(before), int(after), value))
    return found


def _deepest(around: Sequence[Sequence[Halo]]) -> list[int]:
    """Return the largest depth along each axis of the arrays together, which are broadcast."""
    found = [0] * max(map(len, around))
    for own in around:
        for axis, halo in enumerate(own):
            at = axis - len(own)
            found[at] = max(found[at], halo.before, halo.after)
    return found


def _long_enough(node: ArrayNode, depths: Sequence[int], allow: bool) -> ArrayNode:
    """Return an array whose chunks are no shorter than the halos of their neighbours, the last ones aside."""
    grid = []
    for axis, (cut, deep) in enumerate(zip(node.grid, depths, strict=True)):
        if cut.n > 1 and deep > min(cut.lengths()[:-1]):
            if not allow:
                raise ValueError(
                    f"the depth along axis {axis} is {deep}, and a chunk has {min(cut.lengths()[:-1])} elements: give "
                    "allow_rechunk=True, or longer chunks"
                )
            cut = Cut.even(cut.size, max(deep, cut.longest))
        grid.append(cut)
    return rechunk(node, tuple(grid))


@method("map_overlap")
def _map_overlap(
    self: Tensor, fn: Callable[..., Any], depth: Any = None, boundary: Any = None, **kwargs: Any
) -> Tensor:
    """Return the results of a function for chunks with elements of their neighbours; see `weft.tensor.map_overlap`."""
    made: Tensor = map_overlap(fn, self, depth=depth, boundary=boundary, **kwargs)
    return made


@method("map_blocks")
def _map_blocks(self: Tensor, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
    """Return the results of a function for the chunks of this array; see `weft.tensor.map_blocks`."""
    made: Tensor = map_blocks(fn, self, *args, **kwargs)
    return made
