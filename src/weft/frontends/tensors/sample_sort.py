"""Sorting of arrays that are too large for one task.

A long array is sorted by regular sampling (Shi and Schaeffer, 1992), with exact borders, so that the chunks of the
result are as long as those of the array. Each chunk is sorted; samples of all chunks bracket each border; the elements
inside the brackets determine it exactly; the chunks are cut there, and each chunk of the result is merged from its
pieces. Equal elements keep their order. NaNs come last, as in NumPy.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from weft.frontends.tensors.blocks import mapped, whole_along
from weft.frontends.tensors.chunks import Cut, Grid, counts
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call
from weft.graph.axes import whole

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk
    from weft.operators.region_steps import ChunkPlace

SORTED_FROM = 2**22
"""The least bytes of an array that is sorted chunk by chunk; one task sorts a smaller array."""
FAN_IN = 8
"""The number of sets of values that one task combines."""
INDEX = np.dtype(np.int64)


def is_long(node: ArrayNode) -> bool:
    """Return whether an array of one axis is sorted chunk by chunk; structured arrays are not."""
    return len(node.grid) == 1 and node.grid[0].n > 1 and node.nbytes >= SORTED_FROM and node.dtype.kind != "V"


# ------------------------------------------------------------------------------------------------------- sorting


def ascending(x: Any, axis: int = -1) -> Any:
    """Sort, with equal elements in their order.

    For numbers the order is visible only in signs of zeros and in NaNs. Without these NumPy's fastest sort gives the
    same result, in a tenth of the time.
    """
    return np.sort(x, axis=axis, kind=_kind(x))


def _kind(x: Any) -> Literal["stable"] | None:
    alike = x.dtype.kind in "biu" or (x.dtype.kind == "f" and not np.any(np.signbit(x) & ~(x < 0)))
    return None if alike else "stable"


class SortedRun:
    """Sorted elements, and the original positions of all; the latter are None if not needed."""

    __slots__ = ("places", "values")

    def __init__(self, values: Any, places: Any) -> None:
        self.values = values
        self.places = places

    @property
    def nbytes(self) -> int:
        """The bytes of the run, for the store."""
        return int(self.values.nbytes + (0 if self.places is None else self.places.nbytes))

    def __reduce__(self) -> tuple[Any, ...]:
        return SortedRun, (self.values, self.places)


def _run(place: ChunkPlace, x: Any, *, places: bool) -> SortedRun:
    if not places:
        return SortedRun(ascending(x), None)
    order = np.argsort(x, kind="stable")
    values = x[order]
    order += place.begin[0]
    return SortedRun(values, order)


def samples_of(run: SortedRun, *, step: int) -> tuple[int, Any, Any]:
    """Return the length of a run, and its samples: every `step`-th element and the last, with their ranks."""
    values = run.values
    at = np.append(np.arange(0, len(values) - 1, step), len(values) - 1)
    return len(values), values[at], at + 1


def brackets_of(samples: list[tuple[int, Any, Any]], *, ends: tuple[int, ...]) -> list[tuple[Any, Any]]:
    """Return for each end of a chunk of the result two values, or None for the first.

    At most as many elements as lie before the end are no larger than the first value, and at least as many are no
    larger than the second.
    """
    candidates = np.sort(np.concatenate([values for _, values, _ in samples]))
    least = np.zeros(len(candidates), np.int64)
    most = np.zeros(len(candidates), np.int64)
    for length, values, ranks in samples:
        at = np.searchsorted(values, candidates, "right")
        least += np.concatenate([[0], ranks])[at]
        most += np.concatenate([ranks - 1, [length]])[at]
    found = []
    for end in ends:
        low = int(np.searchsorted(most, end, "right")) - 1
        high = int(np.searchsorted(least, end, "left"))
        found.append((candidates[low] if low >= 0 else None, candidates[high]))
    return found


def counts_within(run: SortedRun, brackets: list[tuple[Any, Any]]) -> list[tuple[int, Any, Any]]:
    """Return for each bracket the count of elements of a run before it, and the values in it with their counts."""
    values = run.values
    found = []
    for low, high in brackets:
        lo = 0 if low is None else int(np.searchsorted(values, low, "right"))
        part = values[lo : max(lo, int(np.searchsorted(values, high, "right")))]
        first = np.flatnonzero(np.concatenate([[True], differs(part[1:], part[:-1])])) if len(part) else np.arange(0)
        found.append((lo, part[first], np.diff(np.append(first, len(part)))))
    return found


def differs(a: Chunk, b: Chunk) -> Chunk:
    """Return where elements differ; NaNs are equal."""
    differs = a != b
    return differs & ~(np.isnan(a) & np.isnan(b)) if a.dtype.kind in "fc" else differs


def nth(parts: list[tuple[int, Any, Any]], number: int) -> Any:
    """Return the element with this number, counted from 1, among the elements of all runs within one bracket."""
    values = np.concatenate([values for _, values, _ in parts])
    many = np.concatenate([many for _, _, many in parts])
    order = np.argsort(values, kind="stable")
    return values[order[int(np.searchsorted(np.cumsum(many[order]), number, "left"))]]


def _borders(within: list[list[tuple[int, Any, Any]]], *, ends: tuple[int, ...]) -> Any:
    """Return the cuts of each run; elements equal to the last before a border go before it in the first runs."""
    cuts = np.empty((len(within), len(ends)), np.int64)
    for at, end in enumerate(ends):
        parts = [run[at] for run in within]
        before = np.array([lo for lo, _, _ in parts])
        wanted = end - int(before.sum())
        if wanted > 0:
            border = nth(parts, wanted)
            for run, (_, own, count) in enumerate(parts):
                before[run] += int(count[: int(np.searchsorted(own, border, "left"))].sum())
            wanted = end - int(before.sum())
            for run, (_, own, count) in enumerate(parts):
                equal = int(count[np.searchsorted(own, border, "left") : np.searchsorted(own, border, "right")].sum())
                taken = min(equal, wanted)
                before[run] += taken
                wanted -= taken
        cuts[:, at] = before
    return cuts


def _cut(place: ChunkPlace, run: SortedRun, borders: Any) -> list[SortedRun]:
    values, places = run.values, run.places
    ends = [0, *borders[place.number].tolist(), len(values)]
    # Copies, since a view keeps the whole chunk in memory after the other pieces are freed.
    return [
        SortedRun(values[lo:hi].copy(), None if places is None else places[lo:hi].copy()) for lo, hi in pairwise(ends)
    ]


def _merged(pieces: list[SortedRun], *, places: bool) -> Any:
    values = np.concatenate([run.values for run in pieces])
    if not places:
        values.sort(kind=_kind(values))
        return values
    order = np.argsort(values, kind="stable")
    del values
    return np.concatenate([run.places for run in pieces])[order]


def in_order(node: ArrayNode, *, places: bool) -> ArrayNode:
    """Return the elements of a long array in order, or their original positions; in chunks as long as before."""
    (cut,) = node.grid
    ends = tuple([cut.span(i)[1] for i in range(cut.n - 1)])
    step = max(1, ceil(cut.longest / sqrt(3 * cut.n * cut.longest)))
    one = (Cut.whole(1),)
    each = (Cut.even(cut.n, 1),)
    dtype = INDEX if places else node.dtype
    # Elements and positions are counted together.
    held = np.dtype([("value", node.dtype), ("place", INDEX)]) if places else node.dtype
    runs = call(_run, node, node.grid, held, placed=True, name="sort", places=places)
    samples = call(samples_of, runs, each, node.dtype, step=step)
    gathered = [NodeInput(samples, Read.ALL)]
    brackets = call(brackets_of, gathered, one, node.dtype, name="brackets", ends=ends)
    inputs = [NodeInput(runs), mapped(brackets, node.grid, [None])]
    within = call(counts_within, inputs, each, node.dtype, name="within")
    borders = call(_borders, [NodeInput(within, Read.ALL)], one, INDEX, name="borders", ends=ends)
    inputs = [NodeInput(runs), mapped(borders, node.grid, [None])]
    pieces = call(_cut, inputs, node.grid, held, placed=True, name="cut")
    exchange = NodeInput(pieces, Read.GRID, src=counts(node.grid), dst=counts(node.grid), axes=(whole(0),), pieces=True)
    return call(_merged, [exchange], node.grid, dtype, name="merge", places=places)


# -------------------------------------------------------------------------------------------------------- trees


def united(node: ArrayNode, unite: Any, last: Grid) -> ArrayNode:
    """Combine the values of all chunks by a tree; `last` is the grid of the whole."""
    while node.chunks > 1:
        n = ceil(node.chunks / FAN_IN)
        grid = last if n == 1 else (Cut.even(n, 1),)
        inputs = [NodeInput(node, Read.TREE, k=FAN_IN)]
        node = call(unite, inputs, grid, node.dtype, name="unite")
    return node


# ------------------------------------------------------------------------------------------------- not zero


def _not_zero(place: ChunkPlace, x: Chunk, *, rows: Cut) -> tuple[Any, ...]:
    found = np.nonzero(x)
    return (found[0] + rows.span(place.number)[0], *found[1:])


def not_zero(node: ArrayNode) -> ArrayNode:
    """Return a node of the coordinates of the non-zero elements, in row-major order: a chunk for each chunk of rows."""
    node = whole_along(node, range(1, len(node.grid)))
    grid = (Cut.unknown(node.chunks),)
    return call(_not_zero, node, grid, INDEX, placed=True, name="nonzero", rows=node.grid[0])
