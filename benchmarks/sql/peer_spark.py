"""Queries in Spark, with two threads on this machine; adaptive execution is on, as it is by default."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from benchmarks.ray import queries
from benchmarks.ray.peer_spark import session
from benchmarks.sql import joins


def _tpch(scale: float) -> dict[str, float]:
    spark = session()
    for name, path in queries.tables(scale).items():
        spark.read.parquet(path).createOrReplaceTempView(name)
    return queries.measured(lambda text: spark.sql(text).toArrow().num_rows, scale, queries.ALL)


def _join(text: str) -> dict[str, float]:
    spark = session()
    for name, path in joins.TABLES[text].items():
        spark.read.parquet(path).createOrReplaceTempView(name)
    begin = time.perf_counter()
    spark.sql(text).toArrow()
    return {"seconds": time.perf_counter() - begin}


CASES: Mapping[str, Callable[[], dict[str, float]]] = {
    "tpch": lambda: _tpch(1),
    "tpch_large": lambda: _tpch(10),
    "skewed": lambda: _join(joins.SKEWED),
    "conditional": lambda: _join(joins.CONDITIONAL),
    "pruned": lambda: _join(joins.PRUNED),
}
