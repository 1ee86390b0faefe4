"""The joins that change with what they measure, for all sides; this file is also read where there is no Weft."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "build" / "benchmarks"

SKEWED = "SELECT v % 7, sum(w), count(*), max(v * w % 1000003) FROM facts JOIN names USING (k) GROUP BY v % 7"
CONDITIONAL = (
    "SELECT sum(l_quantity), max(l_comment), count(*) FROM lineitem JOIN "
    "(SELECT o_orderkey FROM orders WHERE o_custkey % 1999 = 7) ON l_orderkey = o_orderkey"
)
PRUNED = "SELECT count(*), sum(v), max(s) FROM facts JOIN few USING (k) WHERE n = 'x'"

_TPCH = FOLDER / "tpch_1"
TABLES: dict[str, dict[str, str]] = {
    SKEWED: {"facts": str(FOLDER / "heavy.parquet"), "names": str(FOLDER / "keys.parquet")},
    CONDITIONAL: {name: str(_TPCH / f"{name}.parquet") for name in ("lineitem", "orders")},
    PRUNED: {"facts": str(FOLDER / "facts" / "*.parquet"), "few": str(FOLDER / "few.parquet")},
}
"""The files of the tables of each, by name."""
