"""Rows of an exchange whose keys filter the scan that they are joined with."""

import json

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weft.frontends.sql.expressions import column, joined
from weft.frontends.sql.relations import Join, JoinCondition, JoinKind, Received, Scan, children
from weft.frontends.sql.stages import cut
from weft.frontends.sql.text import FILTERING_ROWS, received, rows_in, sql_of

ROWS = 50_000
KEY = column(0, "BIGINT")
SENT = Received(0, ("BIGINT",), filtering=True)


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
    relation = _joined(kind, *((table, SENT) if at_right else (SENT, table)))
    told, found = _filters(relation, [70, None, 40_000, 300, 300], rows)
    assert "IN BF(" in told
    assert found == ([70, 300, 300, 40_000] if kind is JoinKind.INNER else [70, 300, 40_000])


def test_many_keys_do_not(table):
    relation = _joined(JoinKind.INNER, table, SENT)
    told, found = _filters(relation, [70, None, 40_000, 300], FILTERING_ROWS + 1)
    assert "IN BF(" not in told
    assert found == [70, 300, 40_000]


@pytest.mark.parametrize("kind", [JoinKind.LEFT, JoinKind.ANTI, JoinKind.RIGHT, JoinKind.FULL, JoinKind.SEMI])
def test_rows_without_a_match_stay(table, kind):
    relation = _joined(kind, SENT, table)
    assert "IS NOT NULL" not in sql_of(relation, lambda scan: scan.table)


def test_several_keys_do_not_filter(table):
    by = JoinCondition(KEY, KEY, "=")
    for conditions in ((), (by, by), (JoinCondition(KEY, KEY, "<"),)):
        relation = Join(JoinKind.INNER, table, SENT, conditions)
        assert "IS NOT NULL" not in sql_of(relation, lambda scan: scan.table)


@pytest.mark.parametrize(
    ("condition", "filtering"),
    [
        (None, False),
        (joined("({} > 5)", column(0, "BIGINT"), type="BOOLEAN"), False),  # a bound of the key, as of the other side
        (joined("({} > 5)", column(1, "INTEGER"), type="BOOLEAN"), True),
        (joined("({} % 2 = 0)", column(0, "BIGINT"), type="BOOLEAN"), True),
    ],
)
def test_copies_filter_a_scan_if_conditions_leave_out_rows(condition, filtering):
    columns = (("a", "BIGINT"), ("b", "INTEGER"))
    few = Scan("few", columns, () if condition is None else (condition,), (0, 1))
    plan = cut(_joined(JoinKind.INNER, Scan("big", columns, (), (0, 1)), few), lambda _: 1, small=1)
    assert _copies(plan.stages[-1].relation) == [Received(0, few.types, filtering=filtering)]
    apart = cut(_joined(JoinKind.INNER, Scan("big", columns, (), (0, 1)), few), lambda _: 1, small=0)
    assert not any(one.filtering for stage in apart.stages for one in _copies(stage.relation) if not stage.table)


def _copies(relation):
    """Return the received sides of joins in a relation."""
    own = [relation] if isinstance(relation, Received) else []
    return own + [found for child in children(relation) for found in _copies(child)]
