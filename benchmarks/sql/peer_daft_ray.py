"""Queries in Daft on Ray, with two cores of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache

import daft
import ray

from benchmarks.ray import queries


@cache
def _connect() -> None:
    os.environ["DAFT_PROGRESS_BAR"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
    daft.set_runner_ray()


def _tpch(scale: float) -> dict[str, float]:
    _connect()
    found = {name: daft.read_parquet(path) for name, path in queries.tables(scale).items()}
    return queries.measured(lambda text: len(daft.sql(text, **found).to_arrow()), scale, queries.OF_DAFT)


CASES: Mapping[str, Callable[[], dict[str, float]]] = {"tpch": lambda: _tpch(1), "tpch_large": lambda: _tpch(10)}
