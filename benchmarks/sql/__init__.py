"""Queries beside DuckDB on the same Parquet files."""

from __future__ import annotations

from benchmarks.harness import Side, Spec
from benchmarks.sizes import FULL
from benchmarks.sql.sizes import SCALE

OURS = "benchmarks.sql.ours"
DUCKDB = "benchmarks.sql.peer_duckdb"
DYNAMIC = "benchmarks.sql.dynamic"
SPARK = "benchmarks.sql.peer_spark"
LOCAL = "benchmarks.sql.peer_local"
DAFT_ON_RAY = "benchmarks.sql.peer_daft_ray"


def _spark(case: str) -> Side:
    return Side("spark", SPARK, case, peer=True, longest_s=3600)


NAMES = {"skewed": "skew_join", "conditional": "conditional_join", "pruned": "pruned_join"}
STATIC = "The same query with the plan that it starts with, over that with the plan that follows what is measured"
SKEW = (
    "The tasks of the same join with sizes of partitions at an eighth, by their seconds of CPU, on 32 cores: with the "
    "plan that it starts with, over that with the heavy key divided: the median of five runs of each. Two cores are "
    "busy to the end with either."
)


def _speedup(case: str, about: str, speedup: str = f"{STATIC}.") -> tuple[Spec, Spec]:
    """Return the rows of a join: its time beside Spark's, and the speedup over its static plan."""
    ours = Side("weft", DYNAMIC, case)
    name = NAMES[case]
    return (
        Spec(f"{name}_s", "s", ours, 1.0, f"{about}: beside Spark with two threads, which adapts too.", _spark(case)),
        Spec(f"{name}_speedup", "times", ours, 3.0, speedup, figure="times", at_least=True),
    )


BUBBLES = Side("weft", DYNAMIC, "bubbles", longest_s=3600)
LARGE = (
    Spec(
        "tpch_sf10_whole",
        "s",
        Side("weft", OURS, "whole_large", longest_s=3600),
        1.1,
        "The 22 queries of TPC-H at scale 10, each in one task: the geometric mean of their times.",
        peer=Side("duckdb", DUCKDB, "tpch_large", longest_s=3600),
    ),
    Spec(
        "tpch_sf10_stages",
        "s",
        Side("weft", OURS, "stages_large", longest_s=3600),
        2.0,
        "The same queries cut into stages, on two worker processes.",
        peer=Side("duckdb", DUCKDB, "tpch_large", longest_s=3600),
    ),
    Spec(
        "tpch_sf10_stages_spark",
        "s",
        Side("weft", OURS, "stages_large", longest_s=3600),
        0.33,
        "The same beside Spark with two threads.",
        peer=_spark("tpch_large"),
    ),
    Spec(
        "tpch_sf10_stages_daft",
        "s",
        Side("weft", OURS, "stages_large_of_daft", longest_s=3600),
        0.33,
        "The 16 of them that Daft plans, beside Daft on Ray with two cores.",
        peer=Side("daft on ray", DAFT_ON_RAY, "tpch_large", peer=True, longest_s=3600),
    ),
)
"""Rows that take tens of minutes."""

SPECS = (
    Spec(
        "tpch_sf1_whole",
        "s",
        Side("weft", OURS, "whole"),
        1.1,
        "The 22 queries of TPC-H at scale 1, each in one task: the geometric mean of their times.",
        peer=Side("duckdb", DUCKDB, "tpch"),
    ),
    Spec(
        "tpch_sf1_whole_polars",
        "s",
        Side("weft", OURS, "whole"),
        1.1,
        "The same beside the streaming engine of Polars.",
        peer=Side("polars", LOCAL, "polars", peer=True),
    ),
    Spec(
        "tpch_sf1_whole_datafusion",
        "s",
        Side("weft", OURS, "whole"),
        1.0,
        "The same beside DataFusion.",
        peer=Side("datafusion", LOCAL, "datafusion", peer=True),
    ),
    Spec(
        "tpch_sf1_whole_daft",
        "s",
        Side("weft", OURS, "whole_of_daft"),
        1.0,
        "The 16 of them that Daft plans, beside Daft.",
        peer=Side("daft", LOCAL, "daft", peer=True),
    ),
    Spec(
        "tpch_sf1_stages_geomean_s",
        "s",
        Side("weft", OURS, "stages"),
        4.9,
        "The same queries cut into stages, on two worker processes; the target is 0.35 s where DuckDB takes 0.071 s.",
        peer=Side("duckdb", DUCKDB, "tpch"),
    ),
    Spec(
        "limit_1000_files_whole_s",
        "s",
        Side("weft", OURS, "limit_whole"),
        2.5,
        "Five rows that meet a condition, of 1,000 files: in one task; the target is 0.02 s where DuckDB takes "
        "0.008 s.",
        peer=Side("duckdb", DUCKDB, "limit"),
    ),
    Spec(
        "limit_1000_files_stages_s",
        "s",
        Side("weft", OURS, "limit_stages"),
        12.5,
        "The same five rows in stages, on two worker processes; the target is 0.1 s where DuckDB takes 0.008 s.",
        peer=Side("duckdb", DUCKDB, "limit"),
    ),
    Spec(
        "one_task_overhead_ms",
        "ms",
        Side("weft", OURS, "overhead"),
        5.0,
        "What a query of a table with 1,000 rows takes beyond its time in DuckDB, median of 50.",
        scale=1e3,
        scaled_by="python",
    ),
    Spec(
        "wrong_sql_ms",
        "ms",
        Side("weft", OURS, "wrong"),
        50.0,
        "The slowest of five texts that cannot run, over tables of TPC-H: until line, column and suggestion are told.",
        scale=1e3,
        scaled_by="python",
    ),
    Spec(
        "tpch_sf1_stages_spark",
        "s",
        Side("weft", OURS, "stages"),
        0.18,
        "The queries in stages on two worker processes, beside Spark with two threads.",
        peer=_spark("tpch"),
    ),
    Spec(
        "tpch_sf1_stages_daft",
        "s",
        Side("weft", OURS, "stages_of_daft"),
        0.18,
        "The 16 queries that Daft plans, in stages on two worker processes, beside Daft on Ray with two cores.",
        peer=Side("daft on ray", DAFT_ON_RAY, "tpch", peer=True),
    ),
    *_speedup(
        "skewed",
        "A join in stages where one key has half of the 8,000,000 rows, on two worker processes",
        SKEW,
    ),
    *_speedup("conditional", "A join with a side that a filter leaves small, in stages"),
    *_speedup("pruned", "A join of 1,000 files of 20,000 rows with three keys, in stages"),
    Spec(
        "bubble_vs_batch",
        "times",
        BUBBLES,
        1.5,
        f"The 22 queries of TPC-H at scale {SCALE:g} on 12 worker processes: the geometric mean of their times with "
        "stored rows, over that in bubbles that grow while they fit, in turn for each query. Workers are warm in "
        "both, and two cores are busy with either; stages stream where no measured data decide about them.",
        figure="over_batch",
        at_least=True,
    ),
    Spec(
        "bubble_vs_gang",
        "ratio",
        BUBBLES,
        1.0,
        "Their seconds of CPU times their time, in bubbles over gangs on the same processes.",
        figure="of_gang",
    ),
    *(LARGE if FULL else ()),
)
