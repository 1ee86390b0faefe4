"""Random queries in stages give the rows and types that DuckDB gives: over the first five of ten sets of tables."""

from contextlib import closing

import pytest

from tests.properties.random_queries import PARTS, check_queries, open_pair


@pytest.fixture(scope="module", params=range(5))
def pair(request, tmp_path_factory):
    with closing(open_pair(tmp_path_factory.mktemp("tables"), request.param)) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_random_queries_in_stages_give_what_duckdb_gives(part, pair, monkeypatch):
    check_queries(pair, part, monkeypatch)
