"""Rows: the outputs of tasks that are read through a shuffle, in pieces.

A *dense* row is a list with one piece for each partition. A *sparse* row, `EdgeValues`, has only the partitions that
were written; the others take no place in any process, in no file and no message. A `RowIndex` tells readers which rows
have values of a partition, so that a shuffle costs as much as it has tasks and pieces, not as many as it has pairs.
"""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from weft.model.chunks import ChunkRef
from weft.model.errors import NotFoundError, TaskError
from weft.model.wording import type_of
from weft.store.api import ABSENT, sizeof
from weft.store.row_index import ALL, DENSE, MISSING, RowIndex

_LISTED_FROM: Final = 64
"""The partitions from which on a list whose pieces are mostly None is kept as a sparse row."""
_SAMPLE: Final = 16
_NONE: Final[Mapping[int, Any]] = {}
ANSWER: Final = "weft.answer"
"""In place of an edge id: the return value of an expander that also writes to edges."""


class EdgeValues:
    """The values of a task by edge and partition: `{edge id: {partition: [values]}}`.

    With the key `ALL` they are the pieces that a function returned. `listed` is the length of the list that it
    returned, whose other pieces were None; 0 for all else. A freed partition has ABSENT instead of its list.
    """

    __slots__ = ("by_edge", "listed")

    def __init__(self, by_edge: dict[str, dict[int, Any]], listed: int = 0) -> None:
        self.by_edge = by_edge
        self.listed = listed

    def part(self, edge: str, lo: int, hi: int = -1) -> list[Any]:
        """Return the values of partition `lo`, or of `lo:hi`, of an edge. NotFoundError: they have been freed."""
        found = self.of(edge)
        if hi - lo <= 1 and not self.listed:
            values = found.get(lo, ())
        else:
            hi = max(hi, lo + 1)
            keys = range(lo, hi) if hi - lo < len(found) else sorted(part for part in found if lo <= part < hi)
            values = joined([(part, found[part]) for part in keys if part in found], lo, hi, self.listed)
        if values is ABSENT:
            raise freed(lo)
        return list(values)

    def of(self, edge: str) -> Mapping[int, Any]:
        """Return the values for an edge: `{partition: [values]}`."""
        found: Mapping[int, Any] | None = self.by_edge.get(edge) or self.by_edge.get(ALL)
        return _NONE if found is None else found

    def single(self, edge: str) -> Any:
        """Return a plain function's argument from an edge without partitions; see `one_of`."""
        return self.returned() if ALL in self.by_edge else one_of(self.part(edge, 0))

    def returned(self) -> Any:
        """Return the output as its task gave it: its list or mapping of pieces, `by_edge`, or None without values.

        NotFoundError: a piece has been freed.
        """
        pieces = self.by_edge.get(ALL)
        if pieces is None:
            return {edge: parts for edge, parts in self.by_edge.items() if edge != ANSWER} or None
        if ABSENT in pieces.values():
            raise freed(next(part for part, values in pieces.items() if values is ABSENT))
        if self.listed:
            row: list[Any] = [None] * self.listed
            for part, (piece,) in pieces.items():
                row[part] = piece
            return row
        return {part: piece for part, (piece,) in pieces.items()}

    def entries(self) -> Iterator[tuple[str, int, Any]]:
        """Yield (edge, partition, values), sorted."""
        for edge in sorted(self.by_edge):
            for part in sorted(self.by_edge[edge]):
                yield edge, part, self.by_edge[edge][part]

    @property
    def nbytes(self) -> int:
        """The approximate bytes of the values."""
        return sum(
            sizeof(value) for parts in self.by_edge.values() for found in parts.values() for value in found or ()
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return EdgeValues, (self.by_edge, self.listed)


def answer_of(value: Any) -> Any:
    """Return the answer in the output of an expander: what its task returned, whatever it wrote to edges."""
    return one_of(value.part(ANSWER, 0)) if type(value) is EdgeValues and ALL not in value.by_edge else value


def one_of(batches: list[Any]) -> Any:
    """Return a plain function's argument from one source task: its batch, None if there is none, the list of
    several.
    """
    return batches[0] if len(batches) == 1 else batches or None


def freed(part: int) -> NotFoundError:
    """Return the error for a piece that has been freed."""
    return NotFoundError(f"piece {part} has been freed")


def joined(found: Sequence[tuple[int, Any]], lo: int, hi: int, listed: int) -> list[Any]:
    """Return the values of partitions `lo:hi` in order, from (partition, values); errors as `EdgeValues.part`."""
    for part, values in found:
        if values is ABSENT:
            raise freed(part)
    if listed:
        row: list[Any] = [None] * (hi - lo)
        for part, (piece,) in found:
            row[part - lo] = piece
        return row
    return [value for _, values in found for value in values]


def as_row(value: Any, parts: int, task: str) -> Any:
    """Return what a task returned for `parts` partitions in the form of a row.

    A mapping `{partition: piece}`, and a list whose pieces are mostly None, become a sparse row; all else stays. A
    mapping in a column without partitions stays too. TaskError: a key of a mapping is no partition, or it is a text,
    whose pieces would be single characters.
    """
    kind = type(value)
    if kind is list:
        if parts < _LISTED_FROM or len(value) != parts or not (value[0] is None or value[parts // 2] is None):
            return value
        sample = value[:: parts // _SAMPLE]
        if sum([piece is None for piece in sample]) < 0.75 * len(sample):
            return value
        found = {part: [piece] for part, piece in enumerate(value) if piece is not None}
        return EdgeValues({ALL: found}, parts) if 2 * len(found) <= parts else value
    if kind is str or kind is bytes:
        raise TaskError(
            f"{task} returned {type_of(value)} for {parts:,} partitions",
            task=task,
            hint="Return a list with one piece for each partition, or a mapping {partition: piece}.",
        )
    if kind is EdgeValues or not isinstance(value, Mapping):
        return value
    return EdgeValues({ALL: {_partition(key, parts, task): [piece] for key, piece in value.items()}})


def _partition(key: Any, parts: int, task: str) -> int:
    try:
        part = operator.index(key)
    except TypeError:
        part = -1
    if not 0 <= part < parts:
        raise TaskError(
            f"{task} returned a piece for partition {key!r} of {parts:,}",
            task=task,
            hint=f"The keys of the mapping must be whole numbers from 0 to {parts - 1:,}.",
        )
    return part


# ------------------------------------------------------------------------------------------------- rows in files


def index_of(row: EdgeValues) -> bytes:
    """Return the index of a sparse row in a file: its edges and partitions, in the order of its pieces."""
    edges = [(edge, array("Q", sorted(row.by_edge[edge])).tobytes()) for edge in sorted(row.by_edge)]
    return msgspec.msgpack.encode((row.listed, edges))


def read_index(index: bytes) -> tuple[int, list[tuple[str, array[int]]]]:
    """Return what `index_of` wrote: `listed`, and the sorted partitions of each edge."""
    listed, edges = msgspec.msgpack.decode(index)
    return listed, [(edge, array("Q", parts)) for edge, parts in edges]


def positions(index: bytes, edge: str | None, lo: int, hi: int) -> tuple[int, range, Sequence[int]]:
    """Return `listed`, the positions of the pieces `lo:hi` of an edge (None: the first) and their partitions."""
    listed, edges = read_index(index)
    at = 0
    for name, parts in edges:
        if edge is None or name in (edge, ALL):
            first, end = bisect_left(parts, lo), bisect_left(parts, hi)
            return listed, range(at + first, at + end), parts[first:end]
        at += len(parts)
    return listed, range(0), ()


def record_rows(index: RowIndex, lo: int, cells: Iterable[Any]) -> None:
    """Record the cells from `lo` on in the index of their column."""
    for at, cell in enumerate(cells, lo):
        kind = type(cell)
        if kind is EdgeValues:
            index.add(at, cell.listed, cell.by_edge.items())
        elif kind is ChunkRef and cell.pieces:
            index.add(at, *read_index(cell.pieces))
        else:
            index.kinds[at] = MISSING if cell is ABSENT else DENSE
