"""Queries beside DuckDB on the same Parquet files."""

from __future__ import annotations

from benchmarks.harness import Side, Spec

OURS = "benchmarks.sql.ours"
DUCKDB = "benchmarks.sql.peer_duckdb"
DYNAMIC = "benchmarks.sql.dynamic"


def _speedup(name: str, case: str, about: str) -> Spec:
    return Spec(name, "times", Side("weft", DYNAMIC, case), 3.0, about, figure="times", at_least=True)


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
    _speedup(
        "skew_join_speedup",
        "skewed",
        "A join in stages where one key has half of the 4,000,000 rows, on two worker processes: the time of the plan "
        "that gives each partition to one task, over that of the plan that follows the measured bytes.",
    ),
    _speedup(
        "conditional_join_speedup",
        "conditional",
        "A join with a side that a filter leaves small: the time of the plan that exchanges both sides, over that of "
        "the plan that measures first.",
    ),
    _speedup(
        "pruned_join_speedup",
        "pruned",
        "A join of 1,000 files of 20,000 rows with three keys: the time of the plan that reads all of them, over that "
        "of the plan that leaves files out by the measured keys.",
    ),
)
