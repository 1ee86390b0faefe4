"""The queries of TPC-H and TPC-DS in stages give what DuckDB gives, on threads and processes."""

from __future__ import annotations

import pytest

from tests.fixtures.tpc import Tpc
from weft.queries import query
from weft.wiring.bubbles import BUBBLES


@pytest.fixture(scope="module")
def tpch(tmp_path_factory):
    return Tpc(tmp_path_factory.mktemp("tpch"), "tpch", 0.01)


@pytest.fixture(scope="module")
def tpcds(tmp_path_factory):
    """The tables of TPC-DS, and a database of them, which is slow to make."""
    made = Tpc(tmp_path_factory.mktemp("tpcds"), "tpcds", 0.01)
    with made.database() as database:
        yield made, database


@pytest.mark.parametrize(
    ("backend", "small"),
    [
        pytest.param("threads", 0, id="threads-shuffled"),
        pytest.param("threads", 1 << 20, id="threads-copied"),
        pytest.param("processes", 0, id="processes-shuffled"),
        pytest.param("processes", 1 << 20, id="processes-copied", marks=pytest.mark.soak),
    ],
)
def test_all_queries_of_tpch(tpch, backend, small, monkeypatch):
    monkeypatch.setattr(query, "SMALL_BYTES", small)
    with tpch.database(backend=backend) as database:
        for number in tpch.queries:
            tpch.check(database, number)


@pytest.mark.parametrize(
    ("backend", "workers", "bubbles", "each"),
    [
        *(pytest.param("threads", 48, setting, 1, marks=pytest.mark.soak) for setting in BUBBLES if setting != "gang"),
        *(("threads", 48, setting, 1 if setting == "gang" else 4) for setting in BUBBLES),
        ("processes", 6, "gang", 1),
        pytest.param("processes", 6, "greedy", 1, marks=pytest.mark.soak),
    ],
)
def test_queries_of_tpch_in_bubbles(tpch, backend, workers, bubbles, each, monkeypatch):
    """All or `each` so many queries."""
    if backend == "threads":
        monkeypatch.setattr(query, "SMALL_BYTES", 0)
        monkeypatch.setattr(query, "TARGET_BYTES", 1 << 20)
    with tpch.database(backend=backend, workers=workers, bubbles=bubbles) as database:
        streamed = ["bubble 1: " in tpch.check(database, one).explain() for one in list(tpch.queries)[::each]]
    assert sum(streamed) >= len(streamed) * {"batch": 0.0, "efficient": 0.05}.get(bubbles, 0.4)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_all_queries_of_tpcds(tpcds, part, monkeypatch):
    monkeypatch.setattr(query, "PARTITIONS", 4)
    monkeypatch.setattr(query, "SMALL_BYTES", 20_000)
    tables, database = tpcds
    for number in list(tables.queries)[part::3]:
        tables.check(database, number)
