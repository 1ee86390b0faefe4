"""The files that queries read, made once: `build/benchmarks`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.sql.joins import FOLDER
from tests.fixtures import tpc

FILES = 1_000


def tpch(scale: float) -> tuple[dict[int, str], dict[str, str]]:
    """Return the queries of TPC-H by number, and the paths of its tables at a scale."""
    folder = FOLDER / f"tpch_{scale:g}"
    folder.mkdir(parents=True, exist_ok=True)
    queries = tpc.made(folder, "tpch", scale)
    return queries, tpc.tables(folder)


def many_files() -> str:
    """Return the pattern of 1,000 Parquet files with 1,000 rows each."""
    folder = FOLDER / "files"
    folder.mkdir(parents=True, exist_ok=True)
    if len(list(folder.glob("*.parquet"))) < FILES:
        for number in range(FILES):
            rows = f"SELECT i + {number * 1000} AS i, i % 7 AS k, repeat('x', 20) AS s FROM range(1000) t(i)"
            duckdb.execute(f"COPY ({rows}) TO '{folder / f'{number:04}.parquet'}' (FORMAT parquet)")
    return str(Path(folder) / "*.parquet")


LIMITED = "SELECT i, s FROM files WHERE k = 3 LIMIT 5"


def geometric_mean(runs: Iterable[Callable[[], Any]]) -> float:
    """Run each once; return the geometric mean of their seconds."""
    logs = []
    for run in runs:
        begin = time.perf_counter()
        run()
        logs.append(math.log(time.perf_counter() - begin))
    return math.exp(sum(logs) / len(logs))
