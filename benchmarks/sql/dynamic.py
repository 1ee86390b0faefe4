"""Queries in stages that change with what they measure, against the same queries with the plan that they start with."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from heapq import heapreplace
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import psutil

import weft
from benchmarks.harness import expect
from benchmarks.sql.data import tpch
from benchmarks.sql.joins import CONDITIONAL, FOLDER, PRUNED, SKEWED, TABLES
from benchmarks.sql.sizes import SCALE
from weft.frontends.sql import compiler, fragment, stages
from weft.queries import planned, query

FACTS = 1_000
"""Files of the fact table, each with the rows of one range of keys."""
Figures = dict[str, float]


def _facts() -> None:
    """Make 1,000 files of 20,000 rows, each with keys of its own."""
    folder = FOLDER / "facts"
    folder.mkdir(parents=True, exist_ok=True)
    if len(list(folder.glob("*.parquet"))) < FACTS:
        for number in range(FACTS):
            rows = f"SELECT {number} * 20000 + i AS k, i % 7 AS v, hash(i)::VARCHAR AS s FROM range(20000) t(i)"
            duckdb.execute(f"COPY ({rows}) TO '{folder / f'{number:04}.parquet'}' (FORMAT parquet)")


def _one_file(name: str, rows: str) -> None:
    """Make a Parquet file with the rows of a query, once."""
    path = Path(FOLDER, f"{name}.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        duckdb.execute(f"COPY ({rows}) TO '{path}.part' (FORMAT parquet, ROW_GROUP_SIZE 122880)")
        Path(f"{path}.part").rename(path)


@contextmanager
def _replaced(owner: Any, name: str, other: Any) -> Iterator[None]:
    """Have another function in a module while the block runs."""
    own = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, own)


def _seconds(text: str, tables: dict[str, str]) -> tuple[float, Any]:
    """Return the seconds of a query in stages on warm worker processes, the second time, and its rows."""
    with weft.SqlContext(backend="processes", workers=2, mode="stages") as made:
        for name, path in tables.items():
            made.register(name, path)
        for _ in range(2):
            asked = made.sql(text)
            begin = time.perf_counter()
            rows = asked.rows()
            seconds = time.perf_counter() - begin
        expect(asked.whole_because, "")
        return seconds, rows


def _speedup(text: str, *static: tuple[Any, str, Callable[..., Any]]) -> Figures:
    """Compare a query with the same query while functions are replaced by those that decide nothing."""
    tables = TABLES[text]
    seconds, rows = _seconds(text, tables)
    with ExitStack() as undo:
        for owner, name, other in static:
            undo.enter_context(_replaced(owner, name, other))
        slower, same = _seconds(text, tables)
    expect(sorted(rows), sorted(same))
    return {"times": slower / seconds, "seconds": seconds}


WORKERS = 32
RUNS = 5
"""The runs of a join, after a first one, whose median counts: a single one is up to a sixth beside it."""
EIGHTH = ((query, "TARGET_BYTES", 4 << 20), (query, "SMALL_BYTES", 1 << 20), (planned, "SPLIT_BYTES", 4 << 20))
"""An eighth of the sizes that plans are made by: a table stands for one of eight times as many rows."""


def skewed() -> Figures:
    """Join on a key of which one value has half of the rows; the static plan gives a partition to one task.

    Two cores are busy with either plan to the end, so `times` follows from the seconds of CPU of each task.
    """
    _one_file("heavy", "SELECT CASE WHEN i % 2 = 0 THEN 7 ELSE i % 1000000 END AS k, i AS v FROM range(8000000) t(i)")
    _one_file("keys", "SELECT i AS k, CAST(hash(i) % 1000 AS BIGINT) AS w FROM range(1000000) t(i)")
    seconds, rows = _seconds(SKEWED, TABLES[SKEWED])
    with ExitStack() as undo:
        for owner, name, other in EIGHTH:
            undo.enter_context(_replaced(owner, name, other))
        divided, same = _join_seconds(SKEWED)
        expect(same, sorted(rows))
        undo.enter_context(_replaced(compiler, "_joins", lambda stage: ""))
        static, same = _join_seconds(SKEWED)
        expect(same, sorted(rows))
    return {"times": static / divided, "seconds": seconds}


def _join_seconds(text: str) -> tuple[float, Any]:
    """Return what the tasks of the join would take on `WORKERS` cores, the longest first, and the rows of the query."""
    run, spent = fragment.run_fragment, defaultdict[str, list[float]](list)

    def timed(ctx: Any, inputs: Any) -> Any:
        begin = time.thread_time()
        try:
            return run(ctx, inputs)
        finally:
            spent[ctx.vertex].append(time.thread_time() - begin)

    longest = []
    with (
        _replaced(fragment, "run_fragment", timed),
        weft.SqlContext(workers=WORKERS, mode="stages") as made,
    ):
        for name, path in TABLES[text].items():
            made.register(name, path)
        for _ in range(1 + RUNS):
            spent.clear()
            asked = made.sql(text)
            rows = sorted(asked.rows())
            plan = asked._plan()
            assert plan is not None
            (join,) = (
                stage.number for stage in plan.stages if stage.join is not None and f"stage_{stage.number}" in spent
            )
            cores = [0.0] * WORKERS
            for seconds in sorted(spent[f"stage_{join}"], reverse=True):
                heapreplace(cores, cores[0] + seconds)
            longest.append(max(cores))
    return median(longest[1:]), rows


def conditional() -> Figures:
    """Join with a side that a filter leaves small; the static plan exchanges both sides."""
    tpch(1)
    return _speedup(CONDITIONAL, (stages, "_may_shrink", lambda relation: False))


def pruned() -> Figures:
    """Join 1,000 files with three keys; the static plan reads all of them."""
    _facts()
    _one_file("few", "SELECT k, 'x' AS n FROM (VALUES (17), (160023), (19999999)) t(k)")
    return _speedup(
        PRUNED,
        (stages, "_pruned", lambda parts, match, small: parts),
        (compiler, "_filters_keep_matches", lambda relation: False),  # nor does DuckDB skip parts of files then
    )


SLOTS = 12
"""The worker processes of each way: plans follow from their number, so all have the same."""
WAYS = {"batch": "batch", "bubbles": "greedy", "gang": "gang"}
"""The settings of the bubbles; in `efficient` ones, nearly no stage of these queries streams to another."""


WARM = "SELECT sum(hash(l_comment)) FROM lineitem"
"""Reads all rows: DuckDB answers min, max and count from the bounds in the files, in one task."""


def bubbles() -> Figures:
    """Run all queries of TPC-H with stored rows, in bubbles that grow while they fit, and in gangs, query by query."""
    texts, tables = tpch(SCALE)
    logs: dict[str, list[float]] = {way: [] for way in WAYS}
    held: dict[str, float] = dict.fromkeys(WAYS, 0.0)
    with ExitStack() as undo:
        contexts = {way: undo.enter_context(_warm(setting, tables)) for way, setting in WAYS.items()}
        for number, text in enumerate(texts.values()):
            first = number % len(WAYS)  # each way is as often the one that reads the files first
            for way in (*WAYS, *WAYS)[first : first + len(WAYS)]:
                begin, cpu = time.perf_counter(), _cpu_seconds()
                contexts[way].sql(text).arrow()
                seconds = time.perf_counter() - begin
                logs[way].append(math.log(seconds))
                held[way] += seconds * (_cpu_seconds() - cpu)
    mean = {way: math.exp(sum(found) / len(found)) for way, found in logs.items()}
    return {
        "over_batch": mean["batch"] / mean["bubbles"],
        "of_gang": held["bubbles"] / held["gang"],
        "speed_of_gang": mean["gang"] / mean["bubbles"],
        "seconds": mean["bubbles"],
    }


@contextmanager
def _warm(setting: str, tables: dict[str, str]) -> Iterator[weft.SqlContext]:
    """Open a context each of whose processes has loaded DuckDB."""
    with weft.SqlContext(backend="processes", workers=SLOTS, mode="stages", bubbles=setting) as made:
        for name, path in tables.items():
            made.register(name, path)
        with _replaced(planned, "SPLIT_BYTES", 1 << 20):
            made.sql(WARM).arrow()
        yield made


def _cpu_seconds() -> float:
    """Return the seconds of CPU of this process and of all that it has started."""
    own = psutil.Process()
    used = [own.cpu_times()]
    for process in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            used.append(process.cpu_times())
    return float(sum(one.user + one.system for one in used))


CASES: dict[str, Callable[[], Figures]] = {
    "bubbles": bubbles,
    "conditional": conditional,
    "pruned": pruned,
    "skewed": skewed,
}
