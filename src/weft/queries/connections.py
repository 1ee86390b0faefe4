"""Connections that read no files, and the name that rows of a query have in a connection."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from weft.frontends.sql.databases import open_database
from weft.frontends.sql.expressions import identifier

if TYPE_CHECKING:
    import duckdb

ROWS: Final = "weft_rows"
"""The name of the rows that a statement reads."""
_lock = threading.Lock()
_plain: list[duckdb.DuckDBPyConnection] = []


def plain() -> duckdb.DuckDBPyConnection:
    """Return a connection that reads no files, and converts types that Arrow has not to types that it has."""
    with _lock:
        if not _plain:
            _plain.append(open_database(lossless=False))
        return _plain[0].cursor()


def rows_named(columns: Sequence[str]) -> str:
    """Return the table `ROWS` with other names of its columns, for a FROM."""
    return f"{ROWS} AS {ROWS}({', '.join(map(identifier, columns))})"
