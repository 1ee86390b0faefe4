"""Integers of 128 bits as decimals, which Arrow has."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_DECIMAL: Final = pa.decimal128(38, 0)


def as_decimals(table: pa.Table) -> pa.Table:
    """Return a table with columns of HUGEINT as decimals of 38 digits, without a copy: both have the same bytes."""
    for at, field in enumerate(table.schema):
        if isinstance(field.type, pa.OpaqueType) and field.type.type_name == "hugeint":
            made = pa.chunked_array([_decimals(chunk.storage) for chunk in table.column(at).chunks], _DECIMAL)
            table = table.set_column(at, pa.field(field.name, _DECIMAL), made)
    return table


def _decimals(stored: pa.FixedSizeBinaryArray) -> pa.Array:
    return pa.Array.from_buffers(_DECIMAL, len(stored), stored.buffers(), offset=stored.offset)
