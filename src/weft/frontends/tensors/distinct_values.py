"""The distinct values of arrays that are too large for one task.

The values of each chunk are determined first. Samples of them give the borders of ranges, of which there are as many as
chunks. The values are cut there, and one task for each range unites those of all chunks. Equal values lie in one range,
so that the ranges one after another are the result. The number of the value of each element goes the way back: from
the ranges to the chunks. Whether a value is one of many others is found in such ranges too.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.frontends.tensors.blocks import mapped
from weft.frontends.tensors.chunks import Cut, Grid, largest
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call
from weft.frontends.tensors.sample_sort import INDEX, differs
from weft.graph.axes import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.frontends.tensors.types import Chunk, DType
    from weft.operators.region_steps import ChunkPlace

_SHORT = np.dtype(np.int32)
"""Positions, counts and numbers take half of the memory until they are results, if the array is short enough."""


class Wanted(NamedTuple):
    """The facts about each value that are determined beside it; NaNs are all different unless `one_nan`."""

    one_nan: bool
    firsts: bool = False
    counts: bool = False
    numbers: bool = False


class DistinctNodes(NamedTuple):
    """Nodes of the distinct values, of their first positions in the flat array and counts, and of their numbers."""

    values: ArrayNode
    firsts: ArrayNode | None
    counts: ArrayNode | None
    numbers: ArrayNode | None


class DistinctRun:
    """Distinct values, ascending. If wanted, the first position and the count of each.

    If wanted, `numbers` are those of the value of each element: an array for each chunk of elements.
    """

    __slots__ = ("counts", "firsts", "numbers", "values")

    def __init__(self, values: Any, firsts: Any = None, counts: Any = None, numbers: Sequence[Any] = ()) -> None:
        self.values = values
        self.firsts = firsts
        self.counts = counts
        self.numbers = numbers

    @property
    def nbytes(self) -> int:
        """The bytes of the run, for the store."""
        found = (self.values, self.firsts, self.counts, *self.numbers)
        return sum([int(one.nbytes) for one in found if one is not None])

    def part(self, lo: int, hi: int) -> DistinctRun | None:
        """Return a copy of some values without numbers; None if there are none."""
        if lo == hi:
            return None
        firsts, counts = (None if one is None else one[lo:hi].copy() for one in (self.firsts, self.counts))
        return DistinctRun(self.values[lo:hi].copy(), firsts, counts)

    def __reduce__(self) -> tuple[Any, ...]:
        return DistinctRun, (self.values, self.firsts, self.counts, self.numbers)


def _run(x: Chunk, *, wanted: Wanted, index: DType) -> DistinctRun:
    """Return the distinct values of a chunk, and the number of each element's value among them."""
    if not (wanted.firsts or wanted.numbers):
        # NumPy counts integers in a table, which takes many times as long if most of them are different.
        return _once(np.sort(x, axis=None), wanted, index)
    order, values = _ordered(np.ravel(x))
    new = _new(values, one_nan=wanted.one_nan)
    numbers = (_numbered(order, new, index).reshape(np.shape(x)),) if wanted.numbers else ()
    at = np.flatnonzero(new)
    firsts = _least(order, at).astype(index) if wanted.firsts else None
    return DistinctRun(_chosen(values, new), firsts, _lengths(at, len(new), index) if wanted.counts else None, numbers)


def _ordered(given: Any, places: Any = None) -> tuple[Any, Any]:
    """Return the positions of values in ascending order, and the values in it.

    Only signs of zeros and NaNs differ among equal values: those with the first `places` come first.
    """
    order = np.argsort(given)  # several times as fast as a stable sort
    values = given[order]
    for at in (0.0, np.nan) if values.dtype.kind == "f" else ():
        lo, hi = (int(np.searchsorted(values, at, side)) for side in ("left", "right"))
        if hi - lo > 1:
            among = np.sort(order[lo:hi])
            order[lo:hi] = among if places is None else among[np.argsort(places[among])]
            values[lo:hi] = given[order[lo:hi]]
    return order, values


def _numbered(order: Any, new: Any, index: DType) -> Any:
    """Return for each value the number of distinct ones before it."""
    ranks = np.cumsum(new, dtype=index)
    ranks -= 1
    numbers = np.empty_like(ranks)
    numbers[order] = ranks
    return numbers


def _chosen(values: Any, new: Any) -> Any:
    return values if new.all() else values[new]


def _least(values: Any, at: Any) -> Any:
    """Return the least of the values from each position on to the next one."""
    return values if len(at) == len(values) else np.minimum.reduceat(values, at)


def _lengths(at: Any, n: int, index: DType) -> Any:
    return np.diff(at, append=n).astype(index)


def _once(values: Any, wanted: Wanted, index: DType) -> DistinctRun:
    """Return the distinct ones of values that are in order."""
    new = _new(values, one_nan=wanted.one_nan)
    counts = _lengths(np.flatnonzero(new), len(new), index) if wanted.counts else None
    return DistinctRun(_chosen(values, new), None, counts)


def _new(values: Any, *, one_nan: bool) -> Any:
    """Return for each of some values in order whether it differs from the one before."""
    new = np.ones(len(values), bool)
    new[1:] = differs(values[1:], values[:-1]) if one_nan else values[1:] != values[:-1]
    return new


def _samples(run: DistinctRun, *, step: int) -> Any:
    return run.values[step // 2 :: step].copy()


def _borders(*samples: list[Any], n: int) -> Any:
    """Return the last values of all ranges but the last one."""
    found = np.sort(np.concatenate([one for several in samples for one in several]))
    return found[np.arange(1, n) * len(found) // n] if len(found) else found


def _cut(run: DistinctRun, borders: Any, *, n: int) -> list[DistinctRun | None]:
    ends = [0, *np.searchsorted(run.values, borders, "right").tolist(), len(run.values)]
    pieces = [run.part(lo, hi) for lo, hi in pairwise(ends)]
    return pieces + [None] * (n - len(pieces))


def _placed(place: ChunkPlace, run: DistinctRun, *, shape: tuple[int, ...]) -> DistinctRun:
    """Return a run whose first positions are those in the whole array."""
    firsts, inside = run.firsts, place.shape
    if firsts.size:
        at = [index + begin for index, begin in zip(np.unravel_index(firsts, inside), place.begin, strict=True)]
        firsts = np.ravel_multi_index(at, shape).astype(firsts.dtype)
    return DistinctRun(run.values, firsts, run.counts, run.numbers)


def _united(pieces: list[DistinctRun | None], *, dtype: DType, wanted: Wanted, index: DType) -> DistinctRun:
    """Return the values of a range; its elements are the values of the pieces."""
    runs = [piece for piece in pieces if piece is not None]
    empty = np.empty(0, index)
    if not runs:
        return DistinctRun(np.empty(0, dtype), empty, empty, [empty] * len(pieces))
    values = np.concatenate([run.values for run in runs])
    counts = np.concatenate([run.counts for run in runs]) if wanted.counts else None
    if not wanted.firsts and not wanted.numbers and (counts is None or counts.max() == 1):
        values.sort(kind="stable")  # merges, since the pieces are in order
        return _once(values, wanted, index)
    firsts = np.concatenate([run.firsts for run in runs]) if wanted.firsts else None
    order, values = _ordered(values, firsts)
    new = _new(values, one_nan=wanted.one_nan)
    numbers: Sequence[Any] = ()
    if wanted.numbers:
        of_all = _numbered(order, new, index)
        ends = accumulate([0 if piece is None else len(piece.values) for piece in pieces], initial=0)
        numbers = [of_all[lo:hi] for lo, hi in pairwise(ends)]
    at = np.flatnonzero(new)
    return DistinctRun(
        _chosen(values, new),
        None if firsts is None else _least(firsts[order], at),
        None if counts is None else np.add.reduceat(counts[order], at, dtype=index),
        numbers,
    )


def _size(run: DistinctRun) -> int:
    return len(run.values)


def _back(place: ChunkPlace, run: DistinctRun, sizes: list[int]) -> list[Any]:
    """Return for each chunk the numbers of those of its values that lie in a range."""
    before = sum(sizes[: place.number])
    return [one + one.dtype.type(before) if len(one) else None for one in run.numbers]


def _gathered(pieces: list[Any], *, dtype: DType) -> Chunk:
    return np.concatenate([np.empty(0, dtype), *[piece for piece in pieces if piece is not None]])


def _numbers(run: DistinctRun, numbers: Chunk) -> Chunk:
    (own,) = run.numbers
    return numbers[own].astype(INDEX)


def _fact(run: DistinctRun, *, fact: str, dtype: DType) -> Chunk:
    found: Chunk = getattr(run, fact).astype(dtype, copy=False)
    return found


def _sampled(runs: ArrayNode, node: ArrayNode) -> NodeInput:
    """Return samples of all runs of the values of an array as an input."""
    n, longest = node.chunks, largest(node.grid)
    step = max(1, ceil(longest / sqrt(3 * n * longest))) if longest else 1
    return NodeInput(call(_samples, runs, (Cut.even(n, 1),), node.dtype, name="samples", step=step), Read.ALL)


def _exchanged(runs: ArrayNode, borders: ArrayNode, grid: Grid, n: int) -> NodeInput:
    """Return the runs, whose chunks are numbered as those of `grid`, cut into n ranges, as an input for each range."""
    pieces = call(_cut, [NodeInput(runs), mapped(borders, grid, [None])], grid, runs.dtype, name="cut", n=n)
    return NodeInput(pieces, Read.GRID, src=(grid[0].n,), dst=(n,), axes=(whole(0),), pieces=True)


def distinct(node: ArrayNode, wanted: Wanted) -> DistinctNodes:
    """Return the distinct values of an array in chunks, ascending, and what is wanted beside them."""
    asked = wanted.firsts
    if wanted.numbers and not wanted.one_nan and node.dtype.kind == "f" and len(node.grid) > 1:
        wanted = wanted._replace(firsts=True)  # the order of NaNs; along one axis it is that of the chunks
    n, longest = node.chunks, largest(node.grid)
    index = _SHORT if n * longest <= np.iinfo(_SHORT).max else INDEX
    grid, each, one = (Cut.even(n * longest, longest),), (Cut.even(n, 1),), (Cut.whole(1),)
    facts = [name for name in ("firsts", "counts", "numbers") if getattr(wanted, name)]
    held = np.dtype([("values", node.dtype), *[(name, index) for name in facts]]) if facts else node.dtype
    runs = call(_run, node, node.grid, held, name="values", wanted=wanted, index=index)
    if wanted.firsts:
        runs = call(_placed, runs, node.grid, held, placed=True, name="positions", shape=node.shape)
    borders = call(_borders, [_sampled(runs, node)], one, node.dtype, name="borders", n=n)
    united = call(
        _united,
        [_exchanged(runs, borders, grid, n)],
        grid,
        held,
        name="unite",
        dtype=node.dtype,
        wanted=wanted,
        index=index,
    )
    cut = (Cut.unknown(n),)

    def fact(name: str, dtype: DType) -> ArrayNode:
        return call(_fact, united, cut, dtype, name=name, fact=name, dtype=dtype)

    values = fact("values", node.dtype)
    counts = fact("counts", INDEX) if wanted.counts else None
    firsts = fact("firsts", INDEX) if asked else None
    if not wanted.numbers:
        return DistinctNodes(values, firsts, counts, None)
    sizes = call(_size, united, each, INDEX, name="sizes")
    back = call(_back, [united, NodeInput(sizes, Read.ALL)], grid, index, placed=True, name="back")
    exchange = NodeInput(back, Read.GRID, src=(n,), dst=(n,), axes=(whole(0),), pieces=True)
    given = call(_gathered, [exchange], grid, index, name="numbers", dtype=index)
    return DistinctNodes(values, firsts, counts, call(_numbers, [runs, given], node.grid, INDEX, name="inverse"))


def _members(pieces: list[DistinctRun | None], others: list[DistinctRun | None], *, invert: bool) -> list[Any]:
    """Return for each piece whether its values are among those of the others."""
    found = [run.values for run in others if run is not None]
    among = np.sort(np.concatenate(found), kind="stable") if found else None  # merges, since the runs are in order
    return [None if run is None else _lie_among(run.values, among) ^ invert for run in pieces]


def _lie_among(values: Any, among: Any) -> Any:
    if among is None:
        return np.zeros(len(values), bool)
    at = np.searchsorted(among, values)
    at[at == len(among)] = 0
    return among[at] == values


def _members_of(run: DistinctRun, flags: Chunk) -> Chunk:
    (own,) = run.numbers
    return flags[own]


def contained(node: ArrayNode, values: ArrayNode, *, invert: bool) -> ArrayNode:
    """Return for each element whether it is one of some values, in as many ranges as there are chunks of these."""
    n, m, flag, one = node.chunks, values.chunks, np.dtype(bool), (Cut.whole(1),)
    many = max(n, m)
    longest, most = largest(node.grid), largest(values.grid)
    mine, theirs = (Cut.even(n * longest, longest),), (Cut.even(m * most, most),)
    ranges = (Cut.even(many * max(longest, most), max(longest, most)),)
    index = _SHORT if longest <= np.iinfo(_SHORT).max else INDEX
    held = np.dtype([("values", node.dtype), ("numbers", index)])
    runs = call(_run, node, node.grid, held, name="values", wanted=Wanted(one_nan=True, numbers=True), index=index)
    others = call(_run, values, values.grid, values.dtype, name="values", wanted=Wanted(one_nan=True), index=index)
    samples = [_sampled(runs, node), _sampled(others, values)]
    borders = call(_borders, samples, one, node.dtype, name="borders", n=many)
    inputs = [_exchanged(runs, borders, mine, many), _exchanged(others, borders, theirs, many)]
    members = call(_members, inputs, ranges, flag, name="isin", invert=invert)
    back = NodeInput(members, Read.GRID, src=(many,), dst=(n,), axes=(whole(0),), pieces=True)
    given = call(_gathered, [back], mine, flag, name="members", dtype=flag)
    return call(_members_of, [runs, given], node.grid, flag, name="isin")
