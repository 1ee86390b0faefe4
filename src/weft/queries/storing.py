"""Rows in Parquet files that keep every value.

DuckDB writes a column with few different values as a dictionary, in which 0.0 and -0.0 are one value. Each column of
floating-point numbers is therefore written with a column that tells of its negative zeros. Where there are any, the
file is written again without dictionaries, which take less room and less time to group by otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from weft.frontends.sql.expressions import identifier, literal
from weft.queries.executing import executed

if TYPE_CHECKING:
    import duckdb

    from weft.queries.executing import Interruptible

_FOREIGN: Final = re.compile(r"HUGEINT|ENUM|\bBIT\b|BIGNUM|UNION|INTERVAL|WITH TIME ZONE|TIMESTAMP_|VARIANT|GEOMETRY")
"""Types that Parquet has not; their values are kept as texts."""
_FLOAT: Final = re.compile(r"\b(?:FLOAT|DOUBLE)\b")


def store_rows(
    connection: duckdb.DuckDBPyConnection,
    rows: str,
    types: Mapping[str, str],
    place: Callable[[], str],
    read: Interruptible | None,
) -> tuple[str, str, int]:
    """Write a table of a connection to a Parquet file; return its path, the columns to select from it, and its rows.

    `types` are those of the columns by name, `place` returns the path of another new file each time, and `read` is the
    query whose rows the table gives.
    """
    columns, select = [], []
    negative: dict[str, str] = {}
    is_nested = False
    for column, of in types.items():
        shown, foreign = identifier(column), _FOREIGN.search(of) is not None
        columns.append(f"CAST({shown} AS VARCHAR) AS {shown}" if foreign else shown)
        select.append(f"CAST({shown} AS {of}) AS {shown}" if foreign else shown)
        if _FLOAT.fullmatch(of):
            negative[column] = identifier(_unused(f"negative zeros {len(negative)}", types))
        elif _FLOAT.search(of) is not None:
            is_nested = True
    columns += [
        f"coalesce({one} = 0 AND signbit({one}), false) AS {told}"
        for one, told in zip(map(identifier, negative), negative.values(), strict=True)
    ]
    path, count = _written(connection, f"SELECT {', '.join(columns)} FROM {rows}", place(), read, plain=is_nested)
    if negative and not is_nested and _any(connection, path, negative.values()):
        mended = ", ".join(
            f"CASE WHEN {told} THEN '-0.0'::{types[column]} ELSE {identifier(column)} END AS {identifier(column)}"
            for column, told in negative.items()
        )
        lossy = path
        text = f"SELECT * REPLACE ({mended}) FROM read_parquet({literal(lossy)})"
        path, count = _written(connection, text, place(), None, plain=True)
        os.unlink(lossy)
    return path, ", ".join(select), count


def _written(
    connection: duckdb.DuckDBPyConnection, query: str, path: str, read: Interruptible | None, *, plain: bool
) -> tuple[str, int]:
    """Write the rows of a query to a file; return its path and the number of rows."""
    copy = f"COPY ({query}) TO {literal(path)} (FORMAT parquet{', DICTIONARY_SIZE_LIMIT 0' if plain else ''})"
    row = executed(connection, copy, read=read).fetchone()
    return path, int(row[0]) if row else 0


def _any(connection: duckdb.DuckDBPyConnection, path: str, columns: Iterable[str]) -> bool:
    asked = ", ".join(f"bool_or({column})" for column in columns)
    return any(connection.execute(f"SELECT {asked} FROM read_parquet({literal(path)})").fetchone() or ())


def _unused(name: str, columns: Iterable[str]) -> str:
    known = {column.lower() for column in columns}
    while name in known:
        name += "_"
    return name
