"""Queries in Polars (its streaming engine), DataFusion and Daft, each with the two threads of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import daft
import datafusion
import polars

from benchmarks.ray import queries


@cache
def _polars() -> Any:
    return polars.SQLContext({name: polars.scan_parquet(path) for name, path in queries.tables(1).items()})


@cache
def _datafusion() -> Any:
    made = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(2))
    for name, path in queries.tables(1).items():
        made.register_parquet(name, path)
    return made


@cache
def _daft() -> dict[str, Any]:
    return {name: daft.read_parquet(path) for name, path in queries.tables(1).items()}


CASES: Mapping[str, Callable[[], dict[str, float]]] = {
    "polars": lambda: queries.measured(
        lambda text: _polars().execute(text).collect(engine="streaming").to_arrow().num_rows, 1, queries.ALL
    ),
    "datafusion": lambda: queries.measured(
        lambda text: _datafusion().sql(text).to_arrow_table().num_rows, 1, queries.ALL
    ),
    "daft": lambda: queries.measured(lambda text: len(daft.sql(text, **_daft()).to_arrow()), 1, queries.OF_DAFT),
}
