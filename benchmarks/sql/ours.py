"""Queries in Weft."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import cache, partial
from statistics import median

import duckdb
import pyarrow as pa

import weft
from benchmarks.harness import expect
from benchmarks.ray import queries
from benchmarks.sql.data import LIMITED, geometric_mean, many_files, tpch
from benchmarks.sql.sizes import SCALE
from weft.model.errors import SqlError


@cache
def _context(mode: str, scale: float = 1) -> weft.SqlContext:
    backend = "processes" if mode == "stages" else "threads"
    made = weft.SqlContext(backend=backend, workers=2, mode=mode)
    for name, path in tpch(scale)[1].items():
        made.register(name, path)
    made.register("files", many_files())
    return made


def _tpch(mode: str, scale: float = 1, numbers: Collection[int] = queries.ALL) -> dict[str, float]:
    context = _context(mode, scale)
    texts = tpch(scale)[0]
    return {"seconds": geometric_mean([partial(_rows, context, texts[number]) for number in numbers])}


def _rows(context: weft.SqlContext, text: str) -> pa.Table:
    return context.sql(text).arrow()


def _limit(mode: str) -> dict[str, float]:
    context = _context(mode)
    begin = time.perf_counter()
    rows = context.sql(LIMITED).arrow().num_rows
    seconds = time.perf_counter() - begin
    expect(rows, 5)
    return {"seconds": seconds}


def overhead() -> dict[str, float]:
    """A small query in a warm context, and in DuckDB alone."""
    table = pa.table({"k": [n % 7 for n in range(1000)], "v": list(range(1000))})
    text = "SELECT k, sum(v) FROM t GROUP BY k ORDER BY k"
    with weft.SqlContext(workers=2) as context:
        context.register("t", table)
        connection = duckdb.connect()
        connection.register("t", table)
        ours, theirs = [], []
        for _ in range(50):
            begin = time.perf_counter()
            context.sql(text).arrow()
            middle = time.perf_counter()
            connection.execute(text).to_arrow_table()
            ours.append(middle - begin)
            theirs.append(time.perf_counter() - middle)
    return {"seconds": median(ours) - median(theirs)}


MISTAKES = (
    "SELECT l_orderky FROM lineitem",
    "SELECT sum(l_comment) FROM lineitem",
    "SELECT l_orderkey FORM lineitem",
    "SELECT l_orderkey, l_suppkey FROM lineitem GROUP BY l_orderkey",
    "SELECT o_orderkey FROM lineitem JOIN oders ON l_orderkey = o_orderkey",
)


def wrong() -> dict[str, float]:
    """Texts that cannot run, in a context that has planned queries before; the seconds of the slowest."""
    context = _context("stages")
    context.sql("SELECT count(*) FROM lineitem").explain()
    slowest = 0.0
    for text in MISTAKES:
        begin = time.perf_counter()
        try:
            context.sql(text)
        except SqlError as error:
            slowest = max(slowest, time.perf_counter() - begin)
            expect((error.line, error.column > 0, error.hint != ""), (1, True, True))
        else:
            raise AssertionError(f"it was no mistake: {text}")
    return {"seconds": slowest}


CASES = {
    "whole": lambda: _tpch("whole"),
    "whole_of_daft": lambda: _tpch("whole", 1, queries.OF_DAFT),
    "stages": lambda: _tpch("stages"),
    "stages_of_daft": lambda: _tpch("stages", 1, queries.OF_DAFT),
    "whole_large": lambda: _tpch("whole", SCALE),
    "stages_large": lambda: _tpch("stages", SCALE),
    "stages_large_of_daft": lambda: _tpch("stages", SCALE, queries.OF_DAFT),
    "limit_whole": lambda: _limit("whole"),
    "limit_stages": lambda: _limit("stages"),
    "overhead": overhead,
    "wrong": wrong,
}
