"""The queries of TPC-H for all sides; this file is also read where there is no Weft."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from benchmarks.harness import expect
from benchmarks.ray.sizes import QUERIES

FOLDER = Path(__file__).resolve().parents[2] / "build" / "benchmarks"
ALL = range(1, 23)
OF_DAFT: Final = (2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20)
"""Those that Daft 0.7 plans as they are written."""
ROWS = {
    0.1: (4, 44, 10, 5, 5, 1, 4, 2, 175, 20, 2541, 2, 37, 1, 1, 2762, 1, 5, 1, 9, 47, 7),
    1.0: (4, 100, 10, 5, 5, 1, 4, 2, 175, 20, 1048, 2, 42, 1, 1, 18314, 1, 57, 1, 186, 100, 7),
    10.0: (4, 100, 10, 5, 5, 1, 4, 2, 175, 20, 0, 2, 45, 1, 1, 27840, 1, 100, 1, 1804, 100, 7),
}
"""The number of rows of each query's result, by the scales for which they are known."""


def chosen(numbers: Collection[int]) -> Collection[int]:
    """Return those of the queries that the rows on clusters run."""
    return [number for number in numbers if not QUERIES or number in QUERIES]


def folder(scale: float) -> Path:
    """Return the folder of the tables, Parquet files, which `benchmarks.sql.data.tpch` makes."""
    return FOLDER / f"tpch_{scale:g}"


def tables(scale: float) -> dict[str, str]:
    """Return the path of each table by name."""
    return {path.stem: str(path) for path in sorted(folder(scale).glob("*.parquet"))}


def measured(rows_of: Callable[[str], int], scale: float, numbers: Collection[int]) -> dict[str, float]:
    """Run each query once by `rows_of`, which returns the number of its rows; return the geometric mean of seconds."""
    texts = {
        int(number): text.strip().rstrip(";")
        for number, text in json.loads((folder(scale) / "queries.json").read_text())
    }
    logs = []
    for number in numbers:
        begin = time.perf_counter()
        rows = rows_of(texts[number])
        logs.append(math.log(time.perf_counter() - begin))
        if scale in ROWS:
            expect((number, rows), (number, ROWS[scale][number - 1]))
    return {"seconds": math.exp(sum(logs) / len(logs))}
