"""Rows of an exchange whose keys filter the scan that they are joined with."""

import json

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weft.frontends.sql.expressions import column
from weft.frontends.sql.relations import Filter, Join, JoinCondition, JoinKind, Received, Scan
from weft.frontends.sql.text import FILTERING_ROWS, received, rows_in, sql_of

ROWS = 50_000
KEY = column(0, "BIGINT")


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"k": range(ROWS)}), path)
    return Scan(f"'{path}'", (("k", "BIGINT"),), (), (0,))


def _joined(kind, left, right):
    return Join(kind, left, right, (JoinCondition(KEY, KEY, "="),))


def _filters(relation, keys, rows):
    """Return the filters of the scan that come from the other side, and the rows of the join."""
    with duckdb.connect(config={"threads": 1}) as connection:
        if rows is not None:
            connection.execute(f"SET VARIABLE {rows_in(received(0))} = {rows}")
        text = sql_of(relation, lambda scan: scan.table)
        sent = pa.table({"c0": pa.array(keys, pa.int64())})
        connection.register(received(0), sent.__arrow_c_stream__())
        (_, told), *_ = connection.execute(f"EXPLAIN (ANALYZE, FORMAT json) {text}").fetchall()
        connection.unregister(received(0))
        connection.register(received(0), sent.__arrow_c_stream__())
        found = connection.execute(f"SELECT c0 FROM ({text}) ORDER BY c0").fetchall()
    return json.dumps(told), [row[0] for row in found]


@pytest.mark.parametrize("rows", [3, FILTERING_ROWS, None])
@pytest.mark.parametrize(("kind", "at_right"), [(JoinKind.INNER, True), (JoinKind.INNER, False), (JoinKind.SEMI, True)])
def test_few_keys_filter_the_scan_of_the_other_side(table, kind, at_right, rows):
    other = Received(0, ("BIGINT",))
    relation = _joined(kind, *((table, other) if at_right else (other, table)))
    told, found = _filters(relation, [70, None, 40_000, 300, 300], rows)
    assert "IN BF(" in told
    assert found == ([70, 300, 300, 40_000] if kind is JoinKind.INNER else [70, 300, 40_000])


def test_many_keys_do_not(table):
    relation = _joined(JoinKind.INNER, table, Received(0, ("BIGINT",)))
    told, found = _filters(relation, [70, None, 40_000, 300], FILTERING_ROWS + 1)
    assert "IN BF(" not in told
    assert found == [70, 300, 40_000]


@pytest.mark.parametrize("kind", [JoinKind.LEFT, JoinKind.ANTI, JoinKind.RIGHT, JoinKind.FULL, JoinKind.SEMI])
def test_rows_without_a_match_stay(table, kind):
    relation = _joined(kind, Received(0, ("BIGINT",)), table)
    assert "IS NOT NULL" not in sql_of(relation, lambda scan: scan.table)


def test_keys_of_rows_that_meet_no_scan_are_not_looked_at(table):
    sides = [Received(at, ("BIGINT",)) for at in range(2)]
    whole = Scan(table.table, table.columns, (), (0,), whole=True)
    for other in (sides[1], Filter(whole, ())):
        assert "IS NOT NULL" not in sql_of(_joined(JoinKind.INNER, sides[0], other), lambda scan: scan.table)
