"""Tables for libraries of data frames: these have lengths of time alone, and count with integers of 64 bits."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np
import pyarrow as pa

from weft.queries.texts import any_within

_LAYOUT: Final = np.dtype([("months", "<i4"), ("days", "<i4"), ("ns", "<i8")])
"""One value of Arrow's `month_day_nano_interval`."""
_DAY_US: Final = 86_400_000_000
_MONTH_DAYS: Final = 30
"""The days of a month where DuckDB makes a `timedelta` of an interval."""


_WITH_NULL: Final = {
    "bool": "Boolean",
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "uint8": "UInt8",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
}
"""The types of pandas with NA, by types of Arrow that pandas has without."""
_WIDE: Final = frozenset({"HUGEINT", "UHUGEINT"})
"""Types of integers that Arrow has as decimals alone."""


def for_frames(table: pa.Table, types: Sequence[str]) -> pa.Table:
    """Return a table as libraries of data frames count with it; `types` are those of its columns in DuckDB.

    A HUGEINT or UHUGEINT column whose values all fit is of integers of 64 bits, else of decimals as before. Intervals
    are as `as_durations` has them.
    """
    for at, of in enumerate(types):
        if of in _WIDE:
            try:
                made = table.column(at).cast(pa.int64())
            except pa.ArrowInvalid:  # a value is too large
                continue
            table = table.set_column(at, table.field(at).with_type(pa.int64()), made)
    return as_durations(table)


def for_arrays(table: pa.Table, types: Sequence[str]) -> pa.Table:
    """Return a table as arrays count with it: as `for_frames`, and decimals beside doubles are doubles, as in SQL."""
    table = for_frames(table, types)
    if any(pa.types.is_floating(of) for of in table.schema.types):
        for at, field in enumerate(table.schema):
            if pa.types.is_decimal(field.type):
                table = table.set_column(at, field.with_type(pa.float64()), table.column(at).cast(pa.float64()))
    return table


def to_pandas(table: pa.Table) -> Any:
    """Return a table as a data frame of pandas: columns of integers and booleans with NULL have its types with NA.

    Its own types of these have no NULL: numbers would be doubles, without the digits above 2^53, and booleans objects.
    Integers with NULL in lists, structs and maps are objects.
    """
    pandas = import_module("pandas")
    of_type = {pa.type_for_alias(name): getattr(pandas, f"{dtype}Dtype")() for name, dtype in _WITH_NULL.items()}
    needed = {column.type for column in table.columns if column.null_count and column.type in of_type}
    frame = table.to_pandas(types_mapper=lambda of: of_type[of] if of in needed else None, integer_object_nulls=True)
    for at, column in enumerate(table.columns):
        if column.type in needed and not column.null_count:
            frame.isetitem(at, frame.iloc[:, at].to_numpy(column.type.to_pandas_dtype()))
        elif any_within(column.type, _keyed) and any_within(column.type, _of_nanoseconds):
            frame.isetitem(at, pandas.Series(column.to_pylist(), frame.index, object))  # Arrow gives their numbers
    return frame


def _keyed(of: pa.DataType) -> bool:
    return bool(pa.types.is_struct(of) or pa.types.is_map(of))


def _of_nanoseconds(of: pa.DataType) -> bool:
    return bool((pa.types.is_timestamp(of) or pa.types.is_duration(of)) and of.unit == "ns")


def with_own_names(table: pa.Table) -> pa.Table:
    """Return a table whose columns have different names: a repeated one gets a number, as DuckDB gives it."""
    names: list[str] = []
    for name in table.column_names:
        number, own = 0, name
        while own in names or (number and own in table.column_names):
            number += 1
            own = f"{name}_{number}"
        names.append(own)
    return table.rename_columns(names)


def as_durations(table: pa.Table) -> pa.Table:
    """Return a table with columns of intervals as durations in microseconds; a month has 30 days."""
    for at, field in enumerate(table.schema):
        if field.type == pa.month_day_nano_interval():
            chunks = [_durations(chunk) for chunk in table.column(at).chunks]
            made = pa.chunked_array(chunks, pa.duration("us"))
            table = table.set_column(at, pa.field(field.name, made.type), made)
    return table


def _durations(intervals: pa.Array) -> pa.Array:
    data = intervals.buffers()[1]
    if data is None:
        return pa.nulls(len(intervals), pa.duration("us"))
    parts = np.frombuffer(data, _LAYOUT, len(intervals), intervals.offset * _LAYOUT.itemsize)
    days = parts["months"].astype(np.int64) * _MONTH_DAYS + parts["days"]
    return pa.array(
        (days * _DAY_US + parts["ns"] // 1000).view("m8[us]"), mask=intervals.is_null().to_numpy(zero_copy_only=False)
    )
