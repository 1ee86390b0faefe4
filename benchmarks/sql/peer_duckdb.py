"""Queries in DuckDB alone."""

from __future__ import annotations

import functools
import time

import duckdb

from benchmarks.harness import expect
from benchmarks.sql.data import LIMITED, geometric_mean, many_files, tpch


@functools.cache
def _connection() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    for name, path in tpch(1)[1].items():
        made.execute(f"CREATE VIEW {name} AS FROM '{path}'")
    made.execute(f"CREATE VIEW files AS FROM '{many_files()}'")
    return made


def queries() -> dict[str, float]:
    """All queries of TPC-H, rows as Arrow tables."""
    texts, connection = tpch(1)[0], _connection()
    return {
        "seconds": geometric_mean(
            lambda text=text: connection.execute(text).to_arrow_table() for text in texts.values()
        )
    }


def limit() -> dict[str, float]:
    """Five rows that meet a condition, of 1,000 files."""
    connection = _connection()
    begin = time.perf_counter()
    rows = connection.execute(LIMITED).to_arrow_table().num_rows
    seconds = time.perf_counter() - begin
    expect(rows, 5)
    return {"seconds": seconds}


CASES = {"tpch": queries, "limit": limit}
