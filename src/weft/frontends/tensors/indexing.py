"""Reading and writing parts of arrays: slices, integers, arrays of integers, masks.

A slice reads only the chunks that contain its elements. Errors of an index are NumPy's, raised when the index is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.frontends.tensors import sources
from weft.frontends.tensors.blocks import in_one, mapped, rechunk, whole_along
from weft.frontends.tensors.chunks import Cut, Grid, counts, known
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call
from weft.frontends.tensors.sources import full
from weft.graph.axes import Axis, broadcast, copy, ranges, whole

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk, DType
    from weft.operators.region_steps import ChunkPlace


class Along(NamedTuple):
    """The selection of an index on one axis: `n` elements from `start` on, `step` apart; `drop` removes the axis."""

    start: int
    step: int
    n: int
    drop: bool
    cut: Cut


def along(cut: Cut, index: slice | int) -> Along:
    """Return the selection of a slice or an integer on an axis; IndexError as NumPy words it."""
    if isinstance(index, slice):
        start, stop, step = index.indices(cut.size)
        count = len(range(start, stop, step))
        return Along(start, step, count, False, cut)
    return Along(index + cut.size if index < 0 else index, 1, 1, True, cut)


def _kept(one: Along) -> tuple[Cut, Axis, bool]:
    """Return the cut of a selection, the source chunk of each of its chunks, and whether all source chunks are read."""
    cut = one.cut
    if one.step == 1 and one.n == cut.size and not one.drop:
        return cut, copy(0), True
    if one.n == 0:
        return Cut.even(0, 1), ranges(0, [(0, 1)]), False
    first, last = one.start, one.start + one.step * (one.n - 1)
    lengths, sources = [], []
    at, direction = cut.at(first), 1 if one.step > 0 else -1
    position = first
    while True:
        lo, hi = cut.span(at)
        room = (hi - position - 1) // one.step + 1 if one.step > 0 else (position - lo) // -one.step + 1
        room = min(room, (last - position) // one.step + 1)
        lengths.append(room)
        sources.append(at)
        position += room * one.step
        if (position > last) if direction > 0 else (position < last):
            break
        at = cut.at(position)
    whole = Cut.of(lengths)
    if whole.n != len(lengths):  # `of` would make an equal cut in another form
        whole = Cut(sum(lengths), len(lengths), 0, tuple(np.cumsum(lengths).tolist()))
    if all(b - a == direction for a, b in pairwise(sources)):
        return whole, copy(0, offset=sources[0], step=direction), False
    return whole, ranges(0, [(j, j + 1) for j in sources]), False


def take_slices(node: ArrayNode, index: Sequence[slice | int]) -> ArrayNode:
    """Return the selection of slices and integers, one per axis. Other chunks of an array in a file are not read."""
    taken = [along(cut, one) for cut, one in zip(node.grid, index, strict=True)]
    node, begin = sources.narrowed(node, [_touched(one) for one in taken])
    taken = [one._replace(start=one.start - lo, cut=cut) for one, lo, cut in zip(taken, begin, node.grid, strict=True)]
    kept = [_kept(one) for one in taken]
    if all(everything for _, _, everything in kept):
        return node
    grid = tuple([cut for (cut, _, _), one in zip(kept, taken, strict=True) if not one.drop])
    rules = tuple([_on(rule, axis) for axis, (_, rule, _) in enumerate(kept)])
    dst = tuple([cut.n for cut, _, _ in kept])
    one = NodeInput(node, Read.GRID, src=counts(node.grid), dst=dst, axes=rules)
    return call(_sliced, [one], grid, node.dtype, placed=True, name="slice", taken=tuple(taken))


def _touched(one: Along) -> tuple[int, int]:
    """Return the first chunk that is read, and the one after the last; all chunks if none is read."""
    if one.n == 0 or one.cut.n == 1:
        return 0, one.cut.n
    ends = one.start, one.start + one.step * (one.n - 1)
    return one.cut.at(min(ends)), one.cut.at(max(ends)) + 1


def _on(rule: Axis, axis: int) -> Axis:
    if rule.spans:
        return ranges(axis, rule.spans)
    return copy(axis, offset=rule.offset, step=rule.step)


def _sliced(place: ChunkPlace, x: Chunk, *, taken: tuple[Along, ...]) -> Chunk:
    if isinstance(x, list):
        (x,) = x
    index: list[Any] = []
    axis = 0
    for one in taken:
        if one.drop:
            index.append(one.start - one.cut.span(one.cut.at(one.start))[0])
            continue
        lo, n = place.begin[axis], place.shape[axis]
        axis += 1
        if n == 0:
            index.append(slice(0, 0))
            continue
        begin = one.start + one.step * lo
        begin -= one.cut.span(one.cut.at(begin))[0]
        end = begin + one.step * n
        index.append(slice(begin, end if end >= 0 else None, one.step))
    return np.asarray(x[(*index, ...)])  # an array without axes, where `x[0]` would be an element of another type


def _new_axes(x: Chunk, *, at: tuple[int, ...]) -> Chunk:
    return np.expand_dims(x, at)


def expand(node: ArrayNode, at: Sequence[int]) -> ArrayNode:
    """Insert axes of length 1 at the positions `at`, counted in the result."""
    if not at:
        return node
    rest = iter(node.grid)
    ndim = len(node.grid) + len(at)
    grid = tuple([Cut.whole(1) if axis in at else next(rest) for axis in range(ndim)])
    return call(_new_axes, node, grid, node.dtype, cheap=node.cheap, name="expand_dims", at=tuple(at))


# ------------------------------------------------------------------------------------------------------- any index


class Parsed(NamedTuple):
    """An index for each axis of the array; `new` are the positions of new axes of length 1, counted in the index."""

    per_axis: list[Any]
    new: list[int]


def parse(index: Any, shape: Sequence[int]) -> Parsed:
    """Distribute an index over the axes; IndexError, as NumPy words it, for an invalid index."""
    listed = list(index) if isinstance(index, tuple) else [index]
    uses = [_uses(one) for one in listed]
    dots = sum(one is Ellipsis for one in listed)
    if dots > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    missing = len(shape) - sum(uses)
    if missing < 0:
        raise IndexError(f"too many indices for array: array is {len(shape)}-dimensional, but {sum(uses)} were indexed")
    if dots:
        at = next(i for i, one in enumerate(listed) if one is Ellipsis)
        listed[at : at + 1] = [slice(None)] * missing
    else:
        listed += [slice(None)] * missing
    per_axis: list[Any] = []
    new: list[int] = []
    for at, one in enumerate(listed):
        if one is None:
            new.append(at)
            continue
        axis = sum(_uses(other) for other in per_axis)
        if isinstance(one, int) and not -shape[axis] <= one < shape[axis]:
            raise IndexError(f"index {one} is out of bounds for axis {axis} with size {shape[axis]}")
        if isinstance(one, ArrayNode) and one.dtype.kind == "b":
            here = tuple(shape[axis : axis + len(one.grid)])
            for offset, (wanted, given) in enumerate(zip(here, one.shape, strict=False)):
                if given not in (wanted, -1, 0):  # a mask without elements selects none, from any array
                    raise IndexError(
                        f"boolean index did not match indexed array along axis {axis + offset}; size of axis is "
                        f"{wanted} but size of corresponding boolean axis is {given}"
                    )
        per_axis.append(one)
    return Parsed(per_axis, new)


def _uses(one: Any) -> int:
    """Return the number of axes that one entry of an index uses."""
    if one is None or one is Ellipsis:
        return 0
    if isinstance(one, ArrayNode) and one.dtype.kind == "b":
        return len(one.grid)
    return 1


def get(node: ArrayNode, index: Any) -> ArrayNode:
    """Return the elements of an index of integers, slices, None, Ellipsis, and nodes of integers or booleans."""
    parsed = parse(index, node.shape)
    arrays = [one for one in parsed.per_axis if isinstance(one, ArrayNode)]
    if not arrays:
        return expand(take_slices(node, parsed.per_axis), _new_positions(index, len(node.grid)))
    first, *rest = parsed.per_axis
    if first is arrays[0] and first.dtype.kind == "b" and not parsed.new and all(one == slice(None) for one in rest):
        return _masked(node, first)
    if len(arrays) == 1 and not parsed.new and arrays[0].dtype.kind in "iu":
        axis = next(i for i, one in enumerate(parsed.per_axis) if isinstance(one, ArrayNode))
        if all(isinstance(one, slice) for i, one in enumerate(parsed.per_axis) if i != axis):
            rest = [slice(None) if i == axis else one for i, one in enumerate(parsed.per_axis)]
            return take(take_slices(node, rest), arrays[0], axis, body=_indexed)
    return _any(node, index, arrays)


def _new_positions(index: Any, ndim: int) -> list[int]:
    """Return the positions of new axes of length 1, counted in the result."""
    found, axis = [], 0
    for one in _spread(index, ndim):
        if one is None:
            found.append(axis)
        axis += not isinstance(one, int)
    return found


def _listed(index: Any) -> list[Any]:
    return list(index) if isinstance(index, tuple) else [index]


def _spread(index: Any, ndim: int) -> list[Any]:
    listed = _listed(index)
    missing = ndim - sum(_uses(one) for one in listed)
    if any(one is Ellipsis for one in listed):
        at = next(i for i, one in enumerate(listed) if one is Ellipsis)
        listed[at : at + 1] = [slice(None)] * missing
    return listed


# ------------------------------------------------------------------------------------------------ arrays as indices


def _taken(x: Chunk, indices: Chunk, *, axis: int) -> Chunk:
    return np.take(x, indices, axis=axis)


def _indexed(x: Chunk, indices: Chunk, *, axis: int) -> Chunk:
    if x.size:
        return np.take(x, indices, axis=axis)  # much faster
    return x[(*[slice(None)] * axis, indices)]  # `np.take` ignores wrong indices where another axis is empty


EXCHANGED_FROM = 2**22
"""The least bytes of an array that is indexed chunk by chunk; of smaller arrays the axis is read as one chunk."""


def take(node: ArrayNode, indices: ArrayNode, axis: int, *, body: Callable[..., Chunk] = _taken) -> ArrayNode:
    """Return elements along an axis by an array of numbers.

    Each chunk of a large array sends its selected elements to every chunk of the result; else the axis is read whole.
    """
    if len(indices.grid) == 1 and node.grid[axis].n > 1 and known(node.grid) and node.nbytes >= EXCHANGED_FROM:
        return _exchanged(node, indices, axis)
    node = whole_along(node, (axis,))
    grid = (*node.grid[:axis], *indices.grid, *node.grid[axis + 1 :])
    k = len(indices.grid)
    reads_x = [a if a < axis else None if a < axis + k else a - k + 1 for a in range(len(grid))]
    reads_i = [a - axis if axis <= a < axis + k else None for a in range(len(grid))]
    inputs = [mapped(node, grid, reads_x), mapped(indices, grid, reads_i)]
    return call(body, inputs, grid, node.dtype, name="take", axis=axis)


class Route(NamedTuple):
    """The selection of a chunk of indices: its positions and the numbers along the axis, sorted by source chunk.

    Those of chunk s are `begins[s]` to `begins[s + 1]`.
    """

    places: Any
    numbers: Any
    begins: Any


def _routed(indices: Any, *, cut: Cut, axis: int) -> Route:
    n = cut.size
    numbers = indices.astype(np.int64)
    wrong = (numbers < -n) | (numbers >= n)
    if wrong.any():
        raise IndexError(f"index {numbers[wrong][0]} is out of bounds for axis {axis} with size {n}")
    numbers[numbers < 0] += n
    chunk = np.searchsorted([cut.span(s)[1] for s in range(cut.n)], numbers, "right")
    places = np.argsort(chunk, kind="stable")
    return Route(places, numbers[places], np.searchsorted(chunk[places], np.arange(cut.n + 1)))


def _given(place: ChunkPlace, x: Any, routes: list[Route], *, axis: int) -> dict[int, tuple[Any, Any]]:
    """Return the shares of this chunk by chunk of the result: positions in the result, and their elements."""
    begin, s = place.begin[axis], place.at[axis]
    pieces = {}
    for to, route in enumerate(routes):
        lo, hi = route.begins[s : s + 2]
        if lo < hi:
            pieces[to] = route.places[lo:hi], np.take(x, route.numbers[lo:hi] - begin, axis=axis)
    return pieces


def _collected(place: ChunkPlace, pieces: list[tuple[Any, Any]], *, axis: int, dtype: DType) -> Any:
    made = np.empty(place.shape, dtype)
    for places, elements in pieces:
        made[(*[slice(None)] * axis, places)] = elements
    return made


def _exchanged(node: ArrayNode, indices: ArrayNode, axis: int) -> ArrayNode:
    cut = node.grid[axis]
    if indices.grid[0].longest > cut.longest:
        indices = rechunk(indices, (Cut.even(indices.size, cut.longest),))
    grid = (*node.grid[:axis], indices.grid[0], *node.grid[axis + 1 :])
    routes = call(_routed, indices, indices.grid, indices.dtype, name="route", cut=cut, axis=axis)
    src, dst = counts(node.grid), counts(grid)
    every = tuple([whole(0) if a == axis else broadcast() for a in range(len(src))])
    inputs = [NodeInput(node), NodeInput(routes, Read.GRID, src=counts(indices.grid), dst=src, axes=every)]
    given = call(_given, inputs, node.grid, node.dtype, placed=True, name="take", axis=axis)
    rules = tuple([whole(a) if a == axis else copy(a) for a in range(len(src))])
    exchange = NodeInput(given, Read.GRID, src=src, dst=dst, axes=rules, pieces=True)
    return call(_collected, [exchange], grid, node.dtype, placed=True, name="collect", axis=axis, dtype=node.dtype)


def _mask(x: Chunk, mask: Any) -> Chunk:
    return x[mask]


def _masked(node: ArrayNode, mask: ArrayNode) -> ArrayNode:
    """Return the elements where a mask is true; the lengths of the chunks are known after the run."""
    k = len(mask.grid)
    if k == 0:
        node = in_one(node)
        return call(_mask, [node, in_one(mask)], (Cut.unknown(1), *node.grid), node.dtype, name="mask")
    if mask.shape != node.shape[:k]:  # it has no elements
        return full((Cut.even(0, 1), *node.grid[k:]), np.zeros((), node.dtype)[()], node.dtype)
    node = whole_along(node, range(1, len(node.grid)))
    mask = rechunk(mask, node.grid[:k])
    grid = (Cut.unknown(node.chunks), *node.grid[k:])
    return call(_mask, [node, mask], grid, node.dtype, name="mask")


class Hole(NamedTuple):
    """The place of an array in an index."""

    number: int


def _fill_holes(template: Any, arrays: Sequence[Any]) -> Any:
    if isinstance(template, tuple):
        return tuple([arrays[one.number] if type(one) is Hole else one for one in template])
    return arrays[template.number] if type(template) is Hole else template


def _any_index(x: Chunk, *arrays: Chunk, template: Any) -> Chunk:
    return np.asarray(x[_fill_holes(template, arrays)])


def _template(index: Any, arrays: Sequence[ArrayNode]) -> Any:
    listed = _listed(index)
    numbers = iter(range(len(arrays)))
    return tuple([Hole(next(numbers)) if isinstance(one, ArrayNode) else one for one in listed])


def _any(node: ArrayNode, index: Any, arrays: Sequence[ArrayNode]) -> ArrayNode:
    """Return the elements of any index of an array read as one chunk."""
    whole = [in_one(node), *[in_one(one) for one in arrays]]
    template = _template(index, arrays)
    shape = _shape_of_selection(node, index)
    grid = _unknown_like(index, node) if shape is None else tuple([Cut.whole(n) for n in shape])
    return call(_any_index, whole, grid, node.dtype, template=template)


_SLICED, _FANCY = 2, 3
"""The lengths, in a small pattern of an array, of the axes that slices keep, and of those that index arrays make."""


def _shape_of_selection(node: ArrayNode, index: Any) -> tuple[int, ...] | None:
    """Return the shape of what an index selects, None if it is not known. IndexError: its lines do not fit."""
    listed = _listed(index)
    missing = len(node.grid) - sum(map(_uses, listed))
    rest = list(node.shape)
    sliced: list[int] = []
    lines: list[tuple[int, ...]] = []
    pattern: list[int] = []
    entries: list[Any] = []
    for one in listed if any(each is Ellipsis for each in listed) else [*listed, Ellipsis]:
        used = missing if one is Ellipsis else _uses(one)
        here, rest = rest[:used], rest[used:]
        if isinstance(one, ArrayNode):
            found = _selected_by(one)
            if found is None:
                return None
            lines.append(found)
            axes = max(used, 1)  # a truth value without axes makes one
            pattern += [1] * axes
            entries += [np.zeros((_FANCY,) * len(found), np.intp)] * axes
        elif isinstance(one, int):
            pattern.append(1)
            entries.append(0)
        else:
            sliced += [len(range(*one.indices(n))) for n in here] if isinstance(one, slice) else here
            pattern += [_SLICED] * used
            entries.append(slice(None) if isinstance(one, slice) else one)
    try:
        across = np.broadcast_shapes(*lines)
    except ValueError:
        shapes = " ".join(map(str, lines))
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        ) from None
    lengths = {_SLICED: iter(sliced), _FANCY: iter(across)}
    made = np.broadcast_to(np.empty((), np.bool), pattern)[tuple(entries)].shape
    return tuple([1 if n == 1 else next(lengths[n]) for n in made])


def _selected_by(index: ArrayNode) -> tuple[int, ...] | None:
    """Return the shape of what an index array selects from its own axes; None if it is not known."""
    if index.dtype.kind != "b":
        return index.shape if known(index.grid) else None
    mask = sources.held(index)
    return None if mask is None else (int(np.count_nonzero(mask)),)


def _unknown_like(index: Any, node: ArrayNode) -> Grid:
    """Return a grid with the axes of the result: that of the index, with an entry for each axis that it selects."""
    entries: list[Any] = []
    for one in _listed(index):
        if isinstance(one, ArrayNode) and one.dtype.kind == "b":
            entries += [np.zeros(1, np.intp)] * len(one.grid) if one.grid else [np.True_]
        elif isinstance(one, ArrayNode):
            entries.append(np.zeros((1,) * len(one.grid), np.intp))
        else:
            entries.append(0 if isinstance(one, int) else one)
    ndim = np.empty((1,) * len(node.grid), np.bool)[tuple(entries)].ndim
    return tuple([Cut.unknown(1) for _ in range(ndim)])


# ------------------------------------------------------------------------------------------------------- assignment


def _selected(one: Along, lo: int, hi: int) -> tuple[int, int]:
    """Return the numbers of the first selected elements from `lo` and from `hi` on; the step is positive."""
    first, past = [-(-(end - one.start) // one.step) for end in (lo, hi)]
    return max(0, first), min(one.n, past)


def _assigned(place: ChunkPlace, x: Chunk, value: Any, *, taken: tuple[Along, ...]) -> Chunk:
    """Return a copy of a chunk with its part of the values of an assignment."""
    if isinstance(value, list):
        (value,) = value
    where: list[Any] = []
    for one, lo, n in zip(taken, place.begin, place.shape, strict=True):
        first, past = _selected(one, lo, lo + n)
        if past <= first:
            return x
        begin = one.start + one.step * first - lo
        where.append(slice(begin, begin + one.step * (past - first), one.step))
    made = np.array(x)
    dropped = tuple([axis for axis, one in enumerate(taken) if one.drop])
    np.squeeze(made[(*where, ...)], dropped)[...] = value  # the ellipsis makes a view of an array without axes
    return made


def _put_slices(node: ArrayNode, taken: Sequence[Along], value: ArrayNode, *, dotted: bool = False) -> ArrayNode:
    """Return the array with other values at slices and integers; each chunk reads only its own part of the values.

    With `dotted` the index has an ellipsis, so that a place without axes takes an array of one element.
    """
    kept = [axis for axis, one in enumerate(taken) if not one.drop]
    wanted = tuple([taken[axis].n for axis in kept])
    np.broadcast_shapes(wanted, value.shape)
    missing = len(wanted) - len(value.shape)
    leading = value.shape[: max(0, -missing)]
    if leading and (wanted or not node.grid or dotted) and set(leading) == {1}:  # NumPy leaves such axes out, too
        value, missing = take_slices(value, [*[0] * -missing, *[slice(None)] * len(wanted)]), 0
    if missing < 0 or any(size not in (1, n) for size, n in zip(value.shape, wanted[missing:], strict=True)):
        raise ValueError(f"could not broadcast input array from shape {value.shape} into shape {wanted}")
    if not all(one.n for one in taken):
        return node
    along_value = {
        axis: at - missing for at, axis in enumerate(kept) if at >= missing and value.shape[at - missing] > 1
    }
    back = [slice(None)] * len(value.grid)
    for axis, at in along_value.items():
        if taken[axis].step < 0:
            back[at] = slice(None, None, -1)
    value = take_slices(value, back)
    upward = tuple([_upward(one) for one in taken])
    cuts, rules = list(value.grid), [broadcast() for _ in taken]
    for axis, at in along_value.items():
        own = [_selected(upward[axis], *node.grid[axis].span(i)) for i in range(node.grid[axis].n)]
        lengths = [past - first for first, past in own if past > first]
        cuts[at] = Cut.of(lengths)
        before = np.cumsum([0, *[past > first for first, past in own[:-1]]]).tolist()
        rules[axis] = ranges(at, [(min(j, len(lengths) - 1), min(j, len(lengths) - 1) + 1) for j in before])
    value = rechunk(value, tuple(cuts))
    read = mapped(value, node.grid, [None] * len(node.grid))
    if value.chunks > 1:
        read = NodeInput(value, Read.GRID, src=counts(value.grid), dst=counts(node.grid), axes=tuple(rules))
    return call(_assigned, [NodeInput(node), read], node.grid, node.dtype, placed=True, name="put", taken=upward)


def _upward(one: Along) -> Along:
    """Return the same selection in the order of the elements."""
    return one if one.step > 0 else one._replace(start=one.start + one.step * (one.n - 1), step=-one.step)


def _assigned_where(x: Chunk, mask: Any, value: Any, *, axis: int) -> Chunk:
    made = np.array(x)
    made[(*[slice(None)] * axis, mask)] = value
    return made


def _assigned_at(place: ChunkPlace, x: Chunk, numbers: Any, value: Any, *, axis: int, n: int) -> Chunk:
    numbers = numbers.astype(np.int64)
    wrong = (numbers < -n) | (numbers >= n)
    if wrong.any():
        raise IndexError(f"index {numbers[wrong][0]} is out of bounds for axis {axis} with size {n}")
    numbers[numbers < 0] += n
    numbers -= place.begin[axis]
    own = np.flatnonzero((numbers >= 0) & (numbers < place.shape[axis]))
    if not own.size:
        return x
    across = value.ndim - (x.ndim - axis)
    if across >= 0 and value.shape[across] > 1:
        value = np.take(value, own, axis=across)
    made = np.array(x)
    made[(*[slice(None)] * axis, numbers[own])] = value
    return made


def _counted(mask: Any) -> Any:
    return np.array([np.count_nonzero(mask)])


def _wrong_count(given: int, selected: int) -> str:
    """Return NumPy's words for another number of values than a mask has elements."""
    return (
        f"NumPy boolean array indexing assignment cannot assign {given} input values to the {selected} output values "
        "where the mask is true"
    )


def _dealt(place: ChunkPlace, x: Any, found: list[Any], *, axis: int, n: int) -> dict[int, Any]:
    """Return the parts of a chunk of values by the chunk that has the elements of the mask; `found` counts these."""
    ends = np.cumsum([int(one[0]) for one in found]).tolist()
    if ends[-1] != n:
        raise ValueError(_wrong_count(n, ends[-1]))
    begin, end = place.begin[axis], place.begin[axis] + place.shape[axis]
    pieces = {}
    for to, (first, past) in enumerate(pairwise([0, *ends])):
        lo, hi = max(first, begin), min(past, end)
        if lo < hi:
            pieces[to] = x[(*[slice(None)] * axis, slice(lo - begin, hi - begin))]
    return pieces


def _assigned_pieces(x: Chunk, mask: Any, parts: list[Any], *, axis: int) -> Chunk:
    if not parts:
        return x
    made = np.array(x)
    made[(*[slice(None)] * axis, mask)] = np.concatenate(parts, axis=axis)
    return made


def _put_dealt(node: ArrayNode, at: int, mask: ArrayNode, value: ArrayNode) -> ArrayNode | None:
    """Return the array with a value for each element of a mask from axis `at` on; None for values that are repeated."""
    own, k = node.grid, len(mask.grid)
    node = whole_along(node, range(at + 1, at + k))
    axes = [*range(at), *range(at + k, len(own))]
    n = value.shape[at] if len(value.grid) == len(axes) + 1 else -1
    if n < 0 or value.shape != (*node.shape[:at], n, *node.shape[at + k :]):
        return None
    value = rechunk(value, (*node.grid[:at], value.grid[at], *node.grid[at + k :]))
    fitted = rechunk(mask, node.grid[at : at + k])
    found = call(_counted, fitted, (Cut.even(fitted.chunks, 1),), np.dtype(np.int64), name="count")
    inputs = [NodeInput(value), NodeInput(found, Read.ALL)]
    dealt = call(_dealt, inputs, value.grid, node.dtype, placed=True, name="deal", axis=at, n=n)
    rules = [copy(a) for a in range(at)] + [whole(at)] + [broadcast() for _ in range(k - 1)]
    rules += [copy(a - k + 1) for a in range(at + k, len(own))]
    src, dst = counts(value.grid), counts(node.grid)
    exchange = NodeInput(dealt, Read.GRID, src=src, dst=dst, axes=tuple(rules), pieces=True)
    chosen = _spread_mask(fitted, node.grid, at)
    return rechunk(
        call(_assigned_pieces, [NodeInput(node), chosen, exchange], node.grid, node.dtype, name="put", axis=at), own
    )


def _spread_mask(mask: ArrayNode, grid: Grid, at: int) -> NodeInput:
    return mapped(mask, grid, [a - at if at <= a < at + len(mask.grid) else None for a in range(len(grid))])


def _put_repeated(node: ArrayNode, at: int, index: ArrayNode, value: ArrayNode) -> ArrayNode | None:
    """Return the array with values at a mask or a line of numbers from axis `at` on.

    None: there is a value for each element of the mask, or the values do not fit.
    """
    mask, k = index.dtype.kind == "b", len(index.grid)
    # The axes of the selection: those before the index, one for the index, those after it.
    wanted = (*node.shape[:at], 1 if mask else index.size, *node.shape[at + k :])
    own: list[int | None] = [*range(at), None, *range(at + k, len(node.grid))]
    missing = len(wanted) - len(value.grid)
    sizes = zip(value.shape, wanted[max(missing, 0) :], strict=False)
    if missing < 0 or any(size not in (1, n) for size, n in sizes):
        return None
    cuts = list(value.grid)
    reads: list[int | None] = [None] * len(node.grid)
    for v, axis in enumerate(own[missing:]):
        if axis is not None and value.shape[v] > 1:
            cuts[v], reads[axis] = node.grid[axis], v
        elif value.grid[v].n > 1:
            cuts[v] = Cut.whole(value.shape[v])
    given = mapped(rechunk(value, tuple(cuts)), node.grid, reads)
    if mask:
        chosen = _spread_mask(rechunk(index, node.grid[at : at + k]), node.grid, at)
        return call(_assigned_where, [NodeInput(node), chosen, given], node.grid, node.dtype, name="put", axis=at)
    numbers = mapped(in_one(index), node.grid, [None] * len(node.grid))
    n = node.shape[at]
    return call(
        _assigned_at, [NodeInput(node), numbers, given], node.grid, node.dtype, placed=True, name="put", axis=at, n=n
    )


def _put_array(node: ArrayNode, per_axis: Sequence[Any], value: ArrayNode) -> ArrayNode | None:
    """Return the array with other values at one mask or one line of numbers, chunk by chunk; None for other indices."""
    at = next(i for i, one in enumerate(per_axis) if isinstance(one, ArrayNode))
    index, k = per_axis[at], len(per_axis[at].grid)
    before, after = list(per_axis[:at]), list(per_axis[at + 1 :])
    integers = sum(isinstance(one, int) for one in before)
    if (any(isinstance(one, int) for one in (*before, *after)) and value.size != 1) or not known(index.grid):
        return None
    if index.dtype.kind != "b" and k != 1:
        return None
    if any(one != slice(None) for one in (*before, *after)):
        outer = [*before, *[slice(None)] * k, *after]
        part = take_slices(node, outer)
        lead = at - integers
        inner = [*[slice(None)] * lead, index, *[slice(None)] * (len(part.grid) - lead - k)]
        made = _put_array(part, inner, value) if part.size else None
        taken = [along(cut, one) for cut, one in zip(node.grid, outer, strict=True)]
        return None if made is None else _put_slices(node, taken, made)
    if index.dtype.kind == "b" and (k == 0 or index.shape != node.shape[at : at + k]):
        return None
    made = _put_repeated(node, at, index, value)
    return _put_dealt(node, at, index, value) if made is None and index.dtype.kind == "b" else made


def _any_assigned(x: Chunk, value: Any, *arrays: Chunk, template: Any) -> Chunk:
    made = np.array(x)
    made[_fill_holes(template, arrays)] = value
    return made


def _check_numbers(per_axis: Sequence[Any], shape: Sequence[int]) -> None:
    """Raise IndexError if a number of an index array that is known is outside of its axis."""
    axis = 0
    for one in per_axis:
        numbers = sources.held(one) if isinstance(one, ArrayNode) and one.dtype.kind in "iu" else None
        if numbers is not None and numbers.size and not -shape[axis] <= numbers.min() <= numbers.max() < shape[axis]:
            wrong = next(k for k in (numbers.min(), numbers.max()) if not -shape[axis] <= k < shape[axis])
            raise IndexError(f"index {wrong} is out of bounds for axis {axis} with size {shape[axis]}")
        axis += _uses(one)


def _check_value(node: ArrayNode, index: Any, value: ArrayNode) -> None:
    """Raise ValueError or TypeError, as NumPy, if values certainly do not fit into what an index selects."""
    if not known(value.grid):
        return
    selected = _shape_of_selection(node, index)
    first, *others = _listed(index)
    if (
        not others
        and isinstance(first, ArrayNode)
        and first.dtype.kind == "b"
        and len(first.grid) == len(node.grid) > 0
    ):
        if len(value.grid) > 1:
            raise TypeError(
                "NumPy boolean array indexing assignment requires a 0 or 1-dimensional input, input has "
                f"{len(value.grid)} dimensions"
            )
        if selected is not None and value.size not in (1, *selected):
            raise ValueError(_wrong_count(value.size, selected[0]))
    if selected is None:
        return
    extra = max(len(value.shape) - len(selected), 0)
    sizes = zip(reversed(value.shape), reversed(selected), strict=False)
    if any(n != 1 for n in value.shape[:extra]) or any(n not in (1, size) for n, size in sizes):
        raise ValueError(
            f"shape mismatch: value array of shape {value.shape} could not be broadcast to indexing result of shape "
            f"{selected}"
        )


def put(node: ArrayNode, index: Any, value: ArrayNode) -> ArrayNode:
    """Return the array with `value`, of its dtype, at an index."""
    parsed = parse(index, node.shape)
    arrays = [one for one in parsed.per_axis if isinstance(one, ArrayNode)]
    if not arrays and not parsed.new:
        dotted = index is ... or (isinstance(index, tuple) and any(one is ... for one in index))
        taken = [along(cut, one) for cut, one in zip(node.grid, parsed.per_axis, strict=True)]
        return _put_slices(node, taken, value, dotted=dotted)
    if value.grid or len(arrays) > 1:  # a number fits everywhere, and one line of numbers fits itself
        _check_value(node, index, value)
    _check_numbers(parsed.per_axis, node.shape)
    if len(arrays) == 1 and not parsed.new and node.chunks > 1:
        chunkwise = _put_array(node, parsed.per_axis, value)
        if chunkwise is not None:
            return chunkwise
    whole = [in_one(node), in_one(value), *[in_one(one) for one in arrays]]
    template = _template(index, arrays)
    made = call(_any_assigned, whole, whole[0].grid, node.dtype, name="put", template=template)
    return rechunk(made, node.grid)
