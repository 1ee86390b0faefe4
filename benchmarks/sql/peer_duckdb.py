"""Queries in DuckDB alone."""

from __future__ import annotations

import functools

import duckdb

from benchmarks.sql.data import geometric_mean, tpch


@functools.cache
def _connection() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    for name, path in tpch(1)[1].items():
        made.execute(f"CREATE VIEW {name} AS FROM '{path}'")
    return made


def queries() -> dict[str, float]:
    """All queries of TPC-H, rows as Arrow tables."""
    texts, connection = tpch(1)[0], _connection()
    return {
        "seconds": geometric_mean(
            lambda text=text: connection.execute(text).to_arrow_table() for text in texts.values()
        )
    }


CASES = {"tpch": queries}
