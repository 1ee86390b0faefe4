"""The cases in Daft, with its runner on Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

import daft
import ray
from daft import DataType, Series, col

from benchmarks.harness import timed
from benchmarks.ray import queries, sorting
from benchmarks.ray.cluster import address
from benchmarks.ray.sizes import BLOCKS, SIZES

_ROWS = SIZES.shuffled // BLOCKS // sorting.ROW_BYTES


@cache
def _connect() -> None:
    os.environ["DAFT_PROGRESS_BAR"] = "0"
    daft.set_runner_ray(address())


@daft.func.batch(return_dtype=DataType.int64())
def _keys(numbers: Series) -> Any:
    return _part(_keys_of, numbers)


@daft.func.batch(return_dtype=DataType.binary())
def _values(numbers: Series) -> Any:
    return _part(_values_of, numbers)


# Daft cuts large blocks into several batches.
_keys_of = lru_cache(maxsize=2)(sorting.keys_of)
_values_of = lru_cache(maxsize=2)(sorting.values_of)


def _part(of: Callable[[int, int], Any], numbers: Series) -> Any:
    """Return what `of` makes of the rows of one block with these numbers."""
    index, first = divmod(numbers.to_pylist()[0], _ROWS)
    return of(index, _ROWS)[first : first + len(numbers)]


def sort() -> dict[str, float]:
    """Rows that are made on the way are sorted."""
    _connect()

    def run() -> Any:
        made = daft.range(BLOCKS * _ROWS, partitions=BLOCKS)
        made = made.select(_keys(col("id")).alias("key"), _values(col("id")).alias("value")).sort("key")
        return made.collect()

    def check(found: Any) -> None:
        parts = [ray.get(part).to_arrow() for part in found.iter_partitions()]
        sorting.check([sorting.summary(part) for part in parts if part.num_rows], _ROWS)

    return timed(run, check)


def tables() -> dict[str, float]:
    """Queries of TPC-H."""
    _connect()
    found = {name: daft.read_parquet(path) for name, path in queries.tables(SIZES.scale).items()}
    return queries.measured(lambda text: len(daft.sql(text, **found).to_arrow()), SIZES.scale, queries.OF_DAFT)


CASES: Mapping[str, Callable[[], dict[str, float]]] = {"sort": sort, "tables": tables}
