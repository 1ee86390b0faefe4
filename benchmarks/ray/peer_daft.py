"""The cases in Daft, with its runner on Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import daft
import ray
from daft import DataType, Series, col

from benchmarks.harness import expect, timed
from benchmarks.ray import queries, sorting
from benchmarks.ray.cluster import address
from benchmarks.ray.sizes import BLOCKS, SIZES

ROWS = SIZES.shuffled // BLOCKS // sorting.ROW_BYTES
"""The rows of a block. Daft gives functions batches of 131,072 rows by itself."""


@cache
def _connect() -> None:
    os.environ["DAFT_PROGRESS_BAR"] = "0"
    daft.set_runner_ray(address())


def _block(numbers: Series) -> int:
    """Return the number of the block whose rows these are."""
    first: int = numbers.slice(0, 1).to_pylist()[0]
    expect((first % ROWS, len(numbers)), (0, ROWS))
    return first // ROWS


@daft.func.batch(return_dtype=DataType.int64(), batch_size=ROWS)
def _keys(numbers: Series) -> Any:
    return sorting.keys_of(_block(numbers), ROWS)


@daft.func.batch(return_dtype=DataType.binary(), batch_size=ROWS)
def _values(numbers: Series) -> Any:
    return sorting.values_of(_block(numbers), ROWS)


def sort() -> dict[str, float]:
    """Rows that are made on the way are sorted."""
    _connect()

    def run() -> Any:
        made = daft.range(BLOCKS * ROWS, partitions=BLOCKS)
        made = made.select(_keys(col("id")).alias("key"), _values(col("id")).alias("value")).sort("key")
        return made.collect()

    def check(found: Any) -> None:
        parts = [ray.get(part).to_arrow() for part in found.iter_partitions()]
        sorting.check([sorting.summary(part) for part in parts if part.num_rows], ROWS)

    return timed(run, check)


def tables() -> dict[str, float]:
    """Queries of TPC-H."""
    _connect()
    found = {name: daft.read_parquet(path) for name, path in queries.tables(SIZES.scale).items()}
    return queries.measured(
        lambda text: len(daft.sql(text, **found).to_arrow()), SIZES.scale, queries.chosen(queries.OF_DAFT)
    )


CASES: Mapping[str, Callable[[], dict[str, float]]] = {"sort": sort, "tables": tables}
