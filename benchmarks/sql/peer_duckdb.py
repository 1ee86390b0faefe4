"""Queries in DuckDB alone."""

from __future__ import annotations

import time
from functools import cache, partial
from typing import TYPE_CHECKING

import duckdb

from benchmarks.harness import expect
from benchmarks.sql.data import LIMITED, geometric_mean, many_files, tpch
from benchmarks.sql.sizes import SCALE

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def _connection(scale: float = 1) -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    for name, path in tpch(scale)[1].items():
        made.execute(f"CREATE VIEW {name} AS FROM '{path}'")
    made.execute(f"CREATE VIEW files AS FROM '{many_files()}'")
    return made


def queries(scale: float = 1) -> dict[str, float]:
    """All queries of TPC-H, rows as Arrow tables."""
    texts, connection = tpch(scale)[0], _connection(scale)
    return {"seconds": geometric_mean([partial(_rows, connection, text) for text in texts.values()])}


def _rows(connection: duckdb.DuckDBPyConnection, text: str) -> pa.Table:
    return connection.execute(text).to_arrow_table()


def limit() -> dict[str, float]:
    """Five rows that meet a condition, of 1,000 files."""
    connection = _connection()
    begin = time.perf_counter()
    rows = connection.execute(LIMITED).to_arrow_table().num_rows
    seconds = time.perf_counter() - begin
    expect(rows, 5)
    return {"seconds": seconds}


CASES = {"tpch": queries, "tpch_large": lambda: queries(SCALE), "limit": limit}
