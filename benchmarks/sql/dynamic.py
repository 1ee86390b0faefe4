"""Queries in stages that change with what they measure, against the same queries with the plan that they start with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import duckdb

import weft
from benchmarks.harness import expect
from benchmarks.sql.data import FOLDER, tpch
from weft.frontends.sql import compiler, stages

FACTS = 1_000
"""Files of the fact table, each with the rows of one range of keys."""
Figures = dict[str, float]


def _facts() -> str:
    """Return the pattern of 1,000 files of 20,000 rows, each with keys of its own."""
    folder = FOLDER / "facts"
    folder.mkdir(parents=True, exist_ok=True)
    if len(list(folder.glob("*.parquet"))) < FACTS:
        for number in range(FACTS):
            rows = f"SELECT {number} * 20000 + i AS k, i % 7 AS v, hash(i)::VARCHAR AS s FROM range(20000) t(i)"
            duckdb.execute(f"COPY ({rows}) TO '{folder / f'{number:04}.parquet'}' (FORMAT parquet)")
    return str(folder / "*.parquet")


def _one_file(name: str, rows: str) -> str:
    """Return the path of a Parquet file with the rows of a query, made once."""
    path = Path(FOLDER, f"{name}.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        duckdb.execute(f"COPY ({rows}) TO '{path}.part' (FORMAT parquet, ROW_GROUP_SIZE 122880)")
        Path(f"{path}.part").rename(path)
    return str(path)


@contextmanager
def _replaced(owner: Any, name: str, other: Any) -> Iterator[None]:
    """Have another function in a module while the block runs."""
    own = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, own)


def _seconds(text: str, tables: dict[str, str], *, bubbles: str = "batch", workers: int = 2) -> tuple[float, Any]:
    """Return the seconds of a query in stages on warm worker processes, the second time, and its rows."""
    with weft.SqlContext(backend="processes", workers=workers, mode="stages", bubbles=bubbles) as context:
        for name, path in tables.items():
            context.register(name, path)
        for _ in range(2):
            query = context.sql(text)
            begin = time.perf_counter()
            rows = query.rows()
            seconds = time.perf_counter() - begin
        expect(query.whole_because, "")
        return seconds, rows


def _speedup(text: str, tables: dict[str, str], *static: tuple[Any, str, Callable[..., Any]]) -> Figures:
    """Compare a query with the same query while functions are replaced by those that decide nothing."""
    seconds, rows = _seconds(text, tables)
    with ExitStack() as undo:
        for owner, name, other in static:
            undo.enter_context(_replaced(owner, name, other))
        slower, same = _seconds(text, tables)
    expect(sorted(rows), sorted(same))
    return {"times": slower / seconds, "seconds": seconds}


def skewed() -> Figures:
    """Join on a key of which one value has half of the rows; the static plan gives a partition to one task."""
    tables = {
        "facts": _one_file(
            "skewed", "SELECT CASE WHEN i % 2 = 0 THEN 7 ELSE i END AS k, i % 7 AS v FROM range(4000000) t(i)"
        ),
        "names": _one_file("names", "SELECT i AS k, hash(i) % 1000 AS w FROM range(2000000) t(i)"),
    }
    text = "SELECT v, sum(w), count(*) FROM facts JOIN names USING (k) GROUP BY v"
    return _speedup(text, tables, (compiler, "_joins", lambda stage: ""))


def conditional() -> Figures:
    """Join with a side that a filter leaves small; the static plan exchanges both sides."""
    _, tables = tpch(1)
    text = (
        "SELECT sum(l_quantity), max(l_comment), count(*) FROM lineitem JOIN "
        "(SELECT o_orderkey FROM orders WHERE o_comment LIKE '%special%requests%a%b%c%') ON l_orderkey = o_orderkey"
    )
    wanted = {name: tables[name] for name in ("lineitem", "orders")}
    return _speedup(text, wanted, (stages, "_may_shrink", lambda relation: False))


def pruned() -> Figures:
    """Join 1,000 files with three keys; the static plan reads all of them."""
    tables = {
        "facts": _facts(),
        "few": _one_file("few", "SELECT k, 'x' AS n FROM (VALUES (17), (160023), (19999999)) t(k)"),
    }
    text = "SELECT count(*), sum(v), max(s) FROM facts JOIN few USING (k) WHERE n = 'x'"
    return _speedup(
        text,
        tables,
        (stages, "_pruned", lambda parts, match, small: parts),
        (compiler, "_filters_keep_matches", lambda relation: False),  # nor does DuckDB skip parts of files then
    )


CASES: dict[str, Callable[[], Figures]] = {"conditional": conditional, "pruned": pruned, "skewed": skewed}
