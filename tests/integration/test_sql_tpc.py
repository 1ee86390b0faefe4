"""The queries of TPC-H and TPC-DS in stages give what DuckDB gives, on threads and processes."""

from __future__ import annotations

import math

import duckdb
import pytest

import weft
from tests.fixtures import tpc
from weft.queries import query
from weft.wiring.bubbles import BUBBLES


def different(found, wanted):
    """Return the first difference between two lists of rows; floats may differ by 1e-9 of their size."""
    if len(found) != len(wanted):
        return f"{len(found)} rows and not {len(wanted)}"
    for number, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        for left, right in zip(mine, theirs, strict=True):
            if isinstance(left, float) and isinstance(right, float):
                if not (math.isclose(left, right, rel_tol=1e-9) or (left != left and right != right)):
                    return f"row {number}: {left} and not {right}"
            elif left != right or type(left) is not type(right):
                return f"row {number}: {left!r} and not {right!r}"
    return ""


def in_any_order(rows):
    return sorted(rows, key=lambda row: [(value is None, str(value)) for value in row])


class Tpc:
    """The tables of one benchmark, in a database of Weft and in DuckDB."""

    def __init__(self, folder, benchmark, scale):
        self.queries = tpc.made(folder, benchmark, scale)
        self.paths = tpc.tables(folder)
        self.duckdb = duckdb.connect()
        for name, path in self.paths.items():
            self.duckdb.execute(f"CREATE VIEW {name} AS FROM '{path}'")

    def database(self, **options):
        made = weft.SqlContext(workers=options.pop("workers", 2), mode="stages", **options)
        for name, path in self.paths.items():
            made.register(name, path)
        return made

    def check(self, database, number):
        asked = database.sql(self.queries[number])
        found, wanted = asked.rows(), self.duckdb.execute(self.queries[number]).fetchall()
        assert asked.whole_because == ""
        # Rows that are equal by the order that is asked for may come in any order.
        assert not different(found, wanted) or not different(in_any_order(found), in_any_order(wanted)), (
            different(found, wanted),
            asked.explain(),
        )


@pytest.fixture(scope="module")
def tpch(tmp_path_factory):
    return Tpc(tmp_path_factory.mktemp("tpch"), "tpch", 0.01)


@pytest.fixture(scope="module")
def tpcds(tmp_path_factory):
    return Tpc(tmp_path_factory.mktemp("tpcds"), "tpcds", 0.01)


@pytest.mark.parametrize("small", [0, 1 << 20], ids=["shuffled", "copied"])
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_all_queries_of_tpch(tpch, backend, small, monkeypatch):
    monkeypatch.setattr(query, "SMALL_BYTES", small)
    with tpch.database(backend=backend) as database:
        for number in tpch.queries:
            tpch.check(database, number)


@pytest.mark.parametrize(
    ("backend", "workers", "bubbles"),
    [("threads", 48, setting) for setting in BUBBLES] + [("processes", 6, "gang"), ("processes", 6, "greedy")],
)
def test_all_queries_of_tpch_in_bubbles(tpch, backend, workers, bubbles, monkeypatch):
    if backend == "threads":
        monkeypatch.setattr(query, "SMALL_BYTES", 0)
        monkeypatch.setattr(query, "TARGET_BYTES", 1 << 20)
    with tpch.database(backend=backend, workers=workers, bubbles=bubbles) as database:
        streamed = 0
        for number in tpch.queries:
            tpch.check(database, number)
            streamed += "bubble 1: " in database.sql(tpch.queries[number]).explain()
    assert streamed >= {"batch": 0, "efficient": 1}.get(bubbles, 10)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_all_queries_of_tpcds(tpcds, part, monkeypatch):
    monkeypatch.setattr(query, "PARTITIONS", 4)
    monkeypatch.setattr(query, "SMALL_BYTES", 20_000)
    with tpcds.database() as database:
        for number in list(tpcds.queries)[part::3]:
            tpcds.check(database, number)
