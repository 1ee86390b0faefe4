"""Tables of strings as a client uploaded them, in Arrow IPC files: what `DataIO` and `DataTransform` read.

The first column is the id. Rows are written and read in batches, so a table may be larger than the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weft.frontends.federated.components.frame import PartyFrame
from weft.model.errors import UnreadableError

if TYPE_CHECKING:
    from pathlib import Path

Batch = Sequence[Sequence[str]]
"""Equally long columns of strings, the ids first."""


def write_rows(file: IO[bytes], id_name: str, header: Sequence[str], batches: Iterable[Batch]) -> int:
    """Write a table with the columns `id_name` and `header`; return the number of rows."""
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in (id_name, *header)])
    count = 0
    with pa.ipc.new_file(file, schema) as writer:
        for columns in batches:
            arrays = [pa.array(column, pa.string()) for column in columns]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
            count += len(arrays[0])
    return count


def read_columns(path: Path | str) -> tuple[str, ...]:
    """Return the names of the columns, the id first. UnreadableError: not such a file."""
    with _opened(path) as reader:
        return tuple(reader.schema.names)


def read_rows(path: Path | str, *, skip: int = 0) -> Iterator[Batch]:
    """Return the rows from `skip` on, batch by batch, in their order. UnreadableError: not such a file."""
    with _opened(path) as reader:
        for at in range(reader.num_record_batches):
            batch = reader.get_batch(at)
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            yield [column.to_pylist() for column in batch.slice(skip).columns]
            skip = 0


def read_raw_frame(path: Path | str) -> PartyFrame:
    """Return the whole table, all columns as strings. UnreadableError: not such a file."""
    with _opened(path) as reader:
        table = reader.read_all()
    ids, *columns = (np.asarray(column.to_numpy(zero_copy_only=False)) for column in table.columns)
    return PartyFrame(ids, dict(zip(table.schema.names[1:], columns, strict=True)))


def _opened(path: Path | str) -> pa.ipc.RecordBatchFileReader:
    try:
        return pa.ipc.open_file(pa.memory_map(str(path)))
    except (pa.ArrowInvalid, OSError) as error:
        raise UnreadableError(
            f"the table in {path} cannot be read: {error}", hint="Upload it again, with drop=1."
        ) from None
