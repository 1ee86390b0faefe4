"""TPC-H and TPC-DS at scale factor 1: the published answers of TPC-H, and DuckDB's of all queries; minutes."""

from __future__ import annotations

import csv
import math
from typing import Any

import pytest

from tests.fixtures.tpc import Tpc, published

MODES: dict[str, dict[str, Any]] = {
    "whole": {"mode": "whole"},
    "batch": {"backend": "processes", "bubbles": "batch"},
    "gang": {"backend": "processes", "workers": 8, "bubbles": "gang"},
    "bubbles": {"backend": "processes", "workers": 4, "bubbles": "efficient"},
    "threads": {"backend": "threads"},
}


@pytest.fixture(scope="module")
def tpch(tmp_path_factory):
    return Tpc(tmp_path_factory.mktemp("tpch"), "tpch", 1)


@pytest.fixture(scope="module")
def tpcds(tmp_path_factory):
    return Tpc(tmp_path_factory.mktemp("tpcds"), "tpcds", 1)


def is_equal(found, text):
    """Whether a value is what stands in a published answer: a number to 1e-12 of its size, or a text."""
    if found is None:
        return text == ""
    if isinstance(found, str):
        return found.strip() == text.strip()
    try:
        return math.isclose(float(found), float(text), rel_tol=1e-12)
    except (TypeError, ValueError):
        return str(found) == text


@pytest.mark.parametrize("mode", MODES)
def test_tpch_gives_the_published_answers(tpch, mode):
    with tpch.database(**MODES[mode]) as database:
        for number, answer in published(1).items():
            _, *wanted = csv.reader(answer.splitlines(), delimiter="|", quoting=csv.QUOTE_NONE)
            found = database.sql(tpch.queries[number]).rows()
            assert len(found) == len(wanted), number
            pairs = zip(found, wanted, strict=True)
            wrong = [(mine, theirs) for mine, theirs in pairs if not all(map(is_equal, mine, theirs))]
            assert not wrong, (number, wrong[:3])


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize("part", range(5))
def test_tpcds_gives_what_duckdb_gives(tpcds, part, backend):
    with tpcds.database(backend=backend) as database:
        for number in list(tpcds.queries)[part::5]:
            tpcds.check(database, number)


def test_query_17_of_tpcds_gives_rows_at_a_fifth_of_the_scale(tmp_path):
    tables = Tpc(tmp_path, "tpcds", 0.2)
    with tables.database() as database:
        assert database.sql(tables.queries[17]).rows()
        tables.check(database, 17)
