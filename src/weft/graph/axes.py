"""Axis operations of maps between chunk grids: the coordinates of a source axis that a destination axis reads.

==================  =================================================================================================
`copy(a)`           coordinate i reads i; with `offset` and `step`: `offset + step*i` (slices, flips, shifted parts)
`group(a, k)`       i reads the k neighbours from `k*i` on, fewer at the end; a smaller `step` makes windows overlap
`ungroup(a, k)`     i reads `i // k`: one source chunk feeds k destinations
`broadcast()`       i reads no source axis: all coordinates read the same chunks
`whole(a)`          i reads all of the axis
`ranges(a, ...)`    i reads the i-th of the given ranges, which rise or fall: any change of chunk sizes
==================  =================================================================================================

A map permutes axes by naming the source axes in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from operator import index

from msgspec import Struct

from weft.model.errors import GraphError
from weft.model.wording import type_of

Shape = tuple[int, ...]
Span = tuple[int, int]


class AxisOperation(Enum):
    """The relation of a destination axis to its source axis."""

    COPY = "copy"
    GROUP = "group"
    UNGROUP = "ungroup"
    BROADCAST = "broadcast"
    WHOLE = "whole"
    RANGES = "ranges"


GATHERS = frozenset((AxisOperation.GROUP, AxisOperation.WHOLE, AxisOperation.RANGES))
"""Operations whose input is a list of values, even of length 1."""


class Axis(Struct, frozen=True):
    """One destination axis. Made by `copy`, `group`, `ungroup`, `broadcast`, `whole` and `ranges`."""

    op: AxisOperation
    source: int = -1
    k: int = 1
    offset: int = 0
    step: int = 1
    spans: tuple[Span, ...] = ()

    def most(self, n: int) -> int:
        """Return the maximum number of coordinates, of the `n` of its source axis, that one coordinate reads."""
        if self.op is AxisOperation.WHOLE:
            return n
        if self.op is AxisOperation.RANGES:
            return max([hi - lo for lo, hi in self.spans], default=0)
        return min(self.k, n) if self.op is AxisOperation.GROUP else 1


def whole_number(value: object, what: str) -> int:
    """Return `value` as an int, also from a number of another library. GraphError: it is no whole number."""
    try:
        if not isinstance(value, bool):
            return index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise GraphError(f"{what} is {type_of(value)}, not a whole number", rule="type")


def _axis(op: AxisOperation, source: int, k: int = 1, offset: int = 0, step: int = 1) -> Axis:
    return Axis(
        op,
        whole_number(source, f"source of {op.value}"),
        whole_number(k, f"k of {op.value}"),
        whole_number(offset, f"offset of {op.value}"),
        whole_number(step, f"step of {op.value}"),
    )


def copy(source: int, *, offset: int = 0, step: int = 1) -> Axis:
    """Coordinate i reads coordinate `offset + step*i` of the source axis."""
    return _axis(AxisOperation.COPY, source, 1, offset, step)


def group(source: int, k: int, *, offset: int = 0, step: int | None = None) -> Axis:
    """Coordinate i reads k coordinates from `offset + step*i` on, cut at the grid's ends; `step` is k if left out."""
    return _axis(AxisOperation.GROUP, source, k, offset, k if step is None else step)


def ungroup(source: int, k: int, *, offset: int = 0, step: int = 1) -> Axis:
    """Coordinate i reads coordinate `offset + step*(i // k)`."""
    return _axis(AxisOperation.UNGROUP, source, k, offset, step)


def broadcast() -> Axis:
    """Every coordinate reads the same."""
    return Axis(AxisOperation.BROADCAST)


def whole(source: int) -> Axis:
    """Every coordinate reads all of the source axis."""
    return _axis(AxisOperation.WHOLE, source)


def ranges(source: int, spans: Sequence[Span]) -> Axis:
    """Coordinate i reads `spans[i][0]:spans[i][1]`; both ends never fall from one to the next, or never rise."""
    try:
        pairs = [(lo, hi) for lo, hi in spans]
    except (TypeError, ValueError):
        raise GraphError("ranges takes pairs of whole numbers, (first, one past the last)", rule="type") from None
    ends = tuple((whole_number(lo, "an end of ranges"), whole_number(hi, "an end of ranges")) for lo, hi in pairs)
    return Axis(AxisOperation.RANGES, whole_number(source, "source of ranges"), spans=ends)


class GridMap(Struct, frozen=True):
    """A map from the source's chunk grid to the destination's: both shapes, and one `Axis` for each destination axis.

    One size of a shape may be -1: it follows from the parallelism of the vertex. An input is a single value if no axis
    gathers and every source axis is named, else a list in row-major order of the source. `partial` allows destinations
    that read nothing (one part of a concatenation); their input is an empty list. With `pieces` a value of the source
    is a list with one piece for each destination that reads it, in their order, padded with None to the length of the
    longest list. A destination reads its own pieces.
    """

    src: Shape
    dst: Shape
    axes: tuple[Axis, ...]
    partial: bool = False
    pieces: bool = False

    @property
    def single(self) -> bool:
        """Whether an input is one value, not a list."""
        return (
            not self.partial
            and not self.pieces
            and sum(axis.source >= 0 for axis in self.axes) == len(self.src)
            and not any(axis.op in GATHERS for axis in self.axes)
        )


TO_ALL = GridMap((), (-1,), (broadcast(),))
"""The map from the only source task to every destination task."""
