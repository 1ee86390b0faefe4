"""The data of a worker process: received cells, and the packing of results.

The backend puts into a lease's message every cell that the lease reads. Small values are sent as they are, large ones
as `ChunkRef`s into files that the backend pins until the lease ends; a worker maps them and copies nothing. Results
return the same way: one pickle for all small values of a report, a segment of shared memory for each large one.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.model.chunks import ChunkRef
from weft.model.errors import CapacityError, NotFoundError, ProgramError
from weft.store import codec, tiers
from weft.store.api import ABSENT, Column, sizeof
from weft.store.disk import grouped
from weft.store.row_index import RowIndex
from weft.store.rows import record_rows
from weft.worker.channel import dumps

if TYPE_CHECKING:
    from weft.store.codec import Encoded
    from weft.store.segments import SegmentWriter

LARGE: Final = 64 * 1024
"""Values of this many bytes have a chunk of their own; smaller ones share a message."""
_MESSAGE: Final = 1 << 20
_ROWS: Final = 8 << 20
"""Rows of shuffles share a message up to this estimate: written alone, each of their pieces is encoded by itself."""
_PLAIN: Final = frozenset({type(None), bool, int, float, complex})


class RemoteStore:
    """A `ChunkReader` over the cells sent to this worker."""

    def __init__(self) -> None:
        self.opened: list[Any] = []
        """Mappings that end after the report of the lease, when nothing waits for the release."""

    def column(self, key: tuple[str, str], n: int, parts: int = 0) -> Column:
        """Return a new column: cells come with leases."""
        return Column(key, n, parts)

    def load(self, column: Column, index: int, *, last: bool = False) -> Any:
        """Return the value of a cell. NotFoundError: it is absent or its file is missing."""
        cell = column.values[index]
        if cell is ABSENT:
            raise NotFoundError(f"{'/'.join(column.key)}[{index}] was not sent")
        if type(cell) is not ChunkRef:
            return cell
        value = tiers.read_chunk(cell, self.opened)
        if not cell.parts and (cell.pieces or (column.parts and type(value) in (list, tuple))):
            column.values[index] = value  # a row of small pieces, which every task reads
            column.tracked.pop(index, None)
        return value

    def load_part(self, column: Column, index: int, part: int, *, last: bool = False) -> Any:
        """Return one piece of a partitioned value; errors as `load`."""
        cell = column.values[index]
        if cell is ABSENT:
            raise NotFoundError(f"{'/'.join(column.key)}[{index}] was not sent")
        if type(cell) is ChunkRef:
            value = tiers.read_chunk_part(cell, part) if cell.parts else self.load(column, index)[part]
        else:
            value = cell[part]
        if value is ABSENT:
            raise NotFoundError(f"piece {part} of {'/'.join(column.key)}[{index}] has been freed")
        return value

    def load_values(self, column: Column, index: int, edge: str, lo: int, hi: int, *, last: bool = False) -> list[Any]:
        """Return the values of a sparse row; see `ChunkReader.load_values`."""
        cell = column.values[index]
        if type(cell) is ChunkRef and cell.pieces and cell.parts:
            return tiers.read_values(cell, edge, lo, hi)
        values: list[Any] = self.load(column, index).part(edge, lo, hi)
        return values

    def put_range(self, column: Column, lo: int, values: Sequence[Any], total_bytes: int | None = None) -> int:
        """Store cells of a message; those in files are recorded in `tracked`. Nothing is counted here."""
        column.values[lo : lo + len(values)] = values
        if column.index is not None:
            record_rows(column.index, lo, values)
        for at, cell in enumerate(values, lo):
            if type(cell) is ChunkRef:
                column.tracked[at] = True
            elif column.tracked:
                column.tracked.pop(at, None)
        return 0

    def index(self, column: Column, kind: int) -> None:
        """Index the rows of a column, also those that were sent for other readers. `kind` is that of rows not sent."""
        if column.index is None:
            column.index = RowIndex(len(column), kind)
            for at, cell in enumerate(column.values):
                if cell is not ABSENT:
                    record_rows(column.index, at, [cell])

    def free_range(self, column: Column, lo: int, hi: int) -> None:
        """Drop cells."""
        column.values[lo:hi] = [ABSENT] * (hi - lo)
        for at in [at for at in column.tracked if lo <= at < hi]:
            del column.tracked[at]


class PackedValues(NamedTuple):
    """Values in a message: `n` of them, all None if there is nothing else.

    `small` are plain values, or the pickle of a list of those that are not in `large`, which has the positions of the
    others.
    """

    n: int
    small: list[Any] | bytes | None = None
    large: tuple[tuple[int, ChunkRef], ...] = ()


class PackingError(Exception):
    """Value `at` cannot be packed; `error` is the reason."""

    def __init__(self, at: int, error: Exception) -> None:
        super().__init__(str(error))
        self.at = at
        self.error = error


def pack(values: list[Any], writer: SegmentWriter | None, parts: int = 0) -> PackedValues:
    """Pack values for a message. With `parts`, each piece of a list can be read alone.

    A value that lies in a segment leaves the list, so that few values exist twice at a time.

    PackingError: a value cannot be pickled (ProgramError), or there is no room for it (DiskFullError).
    """
    kinds = set(map(type, values))
    if kinds <= _PLAIN:
        return PackedValues(len(values), None if kinds <= {type(None)} else list(values))
    sizes = list(map(sizeof, values))
    small = sum(size for size in sizes if size < LARGE)
    limit = LARGE if small < (_ROWS if parts else _MESSAGE) else 1024
    alone = [at for at, size in enumerate(sizes) if size >= limit] if writer is not None else []
    while True:
        chosen = set(alone)
        blob = _blob([value for at, value in enumerate(values) if at not in chosen], values, chosen)
        # The size of an object is unknown before its pickle: a large message is split afterwards.
        if writer is None or len(blob) < 2 * _MESSAGE or len(alone) == len(values):
            break
        alone = list(range(len(values)))
    if not alone:
        return PackedValues(len(values), blob)
    assert writer is not None
    chunks = {}
    for at in alone:
        try:
            chunks[at] = codec.encode_row(values[at]) if parts else codec.encode(values[at])
        except ProgramError as error:
            raise PackingError(at, error) from error
    try:
        return PackedValues(len(values), blob, _written(values, chunks, writer))
    except CapacityError as error:
        raise PackingError(alone[0], error) from error


def _written(values: list[Any], chunks: dict[int, Encoded], writer: SegmentWriter) -> tuple[tuple[int, ChunkRef], ...]:
    """Write chunks, file by file, and drop each value, by its place, once its file is complete."""
    places = [*chunks]
    large: dict[int, ChunkRef] = {}
    try:
        for group in grouped([*chunks.values()]):
            written = writer.write([chunks[places[at]] for at in group])
            for at, ref in zip(group, written, strict=True):
                place = places[at]
                large[place] = ref
                values[place] = None
                del chunks[place]
    except BaseException:
        writer.delete(large.values())
        raise
    return tuple(sorted(large.items()))


def _blob(small: list[Any], values: Sequence[Any], chosen: set[int]) -> bytes:
    try:
        return dumps(small)
    except Exception as whole:
        for at, value in enumerate(values):
            if at not in chosen:
                try:
                    dumps(value)
                except Exception as error:
                    raise PackingError(at, unsendable(value, error)) from error
        raise PackingError(0, unsendable(small, whole)) from whole


def unsendable(value: Any, error: Exception) -> ProgramError:
    """Return the error of a value that cannot leave its process."""
    kind = type(value)
    return ProgramError(
        f"a value of type {kind.__module__}.{kind.__qualname__} cannot leave the process that made it: "
        f"{type(error).__name__}: {error}",
        hint="Return plain data (numbers, text, arrays, tables, containers of them), not open files, locks, "
        "connections or generators; or run with the threads backend, where values stay in one process.",
    )


def unpack(packed: PackedValues) -> list[Any]:
    """Return the cells of packed values: plain values and ChunkRefs.

    ProgramError: a value whose class cannot be imported or made here.
    """
    n, small, large = packed
    if small is None:
        return [None] * n
    if isinstance(small, list):
        return small
    try:
        found = pickle.loads(small)
    except Exception as error:
        raise ProgramError(
            f"a value cannot be read back: {type(error).__name__}: {error}",
            hint="The module that defines its class must be importable, in the same version, where it is read.",
        ) from error
    if not large:
        return list(found)
    cells = iter(found)
    places = dict(large)
    return [places[at] if at in places else next(cells) for at in range(n)]
