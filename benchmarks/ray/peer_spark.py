"""The cases in Spark, with two threads on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from benchmarks.ray import queries
from benchmarks.ray.sizes import SIZES


@cache
def session() -> Any:
    """Return the session of this process."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "8g")  # tasks run there, and with its own 1g queries at scale 10 fail
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.ui.enabled", False)
        .config("spark.log.level", "ERROR")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )


def tables() -> dict[str, float]:
    """Queries of TPC-H."""
    spark = session()
    for name, path in queries.tables(SIZES.scale).items():
        spark.read.parquet(path).createOrReplaceTempView(name)
    return queries.measured(lambda text: spark.sql(text).toArrow().num_rows, SIZES.scale, queries.chosen(queries.ALL))


CASES: Mapping[str, Callable[[], dict[str, float]]] = {"tables": tables}
