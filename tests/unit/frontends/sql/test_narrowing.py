"""Stages send the columns that are read, and no others."""

import duckdb
import pytest

from weft.frontends.sql.explaining import describe_stages
from weft.frontends.sql.expressions import column, joined
from weft.frontends.sql.narrowing import narrowed
from weft.frontends.sql.planner import Planner
from weft.frontends.sql.relations import (
    Filter,
    Join,
    JoinCondition,
    JoinKind,
    Project,
    Received,
    Scan,
    children,
)
from weft.frontends.sql.stages import ExchangeKind, cut
from weft.frontends.sql.tables import FileTable
from weft.frontends.sql.text import sql_of

COLUMNS = {"a": "BIGINT", "b": "INTEGER", "s": "VARCHAR", "d": "DOUBLE"}


@pytest.fixture(scope="module")
def planner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    made = Planner(folders=[f"{folder}/"])
    for name, rows in (("big", 1000), ("other", 900), ("third", 800)):
        path = folder / f"{name}.parquet"
        values = "i AS a, (i % 7)::INTEGER AS b, (i % 5)::VARCHAR AS s, i / 3 AS d"
        duckdb.execute(f"COPY (SELECT {values} FROM range({rows}) t(i)) TO '{path}' (FORMAT parquet)")
        made.add(FileTable(name, "read_parquet", (str(path),)))
    return made


def planned(planner, text, *, small=0):
    return narrowed(cut(planner.plan(text, {}), lambda relation: 1, small=small))


def sent(plan):
    """Return the kind and the types of each exchange."""
    return [(str(exchange.kind), exchange.types) for stage in plan.stages for exchange in stage.exchanges]


def received(relation):
    own = [relation] if isinstance(relation, Received) else []
    return own + [found for child in children(relation) for found in received(child)]


def _table(name):
    """Return the scan of columns a, b and c of a table."""
    columns = (("a", "BIGINT"), ("b", "INTEGER"), ("c", "DOUBLE"))
    return Scan(name, columns, (), (0, 1, 2))


def _joined(left, right, left_key, right_key):
    return Join(JoinKind.INNER, left, right, (JoinCondition(left_key, right_key, "="),))


def _ends(relation, *columns):
    """Return the stages of these columns of a relation, each (position, type)."""
    rows = Project(relation, tuple(column(*one) for one in columns))
    return narrowed(cut(rows, lambda _: 1, small=0))


def test_keys_of_a_join_are_not_sent_after_it():
    below = _joined(_table("big"), _table("other"), column(0, "BIGINT"), column(0, "BIGINT"))
    plan = _ends(_joined(below, _table("third"), column(4, "INTEGER"), column(1, "INTEGER")), (2, "DOUBLE"))
    (join,) = (stage for stage in plan.stages if stage.join is not None and stage.number not in plan.results)
    assert join.relation.types == ("DOUBLE", "INTEGER")
    (last,) = plan.results
    first, second = plan.stages[last].exchanges
    assert (first.types, first.keys) == (("DOUBLE", "INTEGER"), (column(1, "INTEGER"),))
    assert (second.types, second.keys) == (("INTEGER",), (column(0, "INTEGER"),))


def test_a_reader_has_its_columns_at_their_places():
    smaller = joined("({} < {})", column(2, "DOUBLE"), column(1, "INTEGER"), type="BOOLEAN")
    few = Filter(_table("other"), (smaller,))
    by = column(0, "BIGINT")
    plan = _ends(_joined(_table("big"), few, by, by), (1, "INTEGER"))
    assert sent(plan) == [("hash", ("BIGINT", "INTEGER")), ("hash", ("BIGINT",))]
    (last,) = plan.results
    left, right = received(plan.stages[last].relation)
    assert (left.sent, right.sent) == ((0, 1), (0,))
    assert sql_of(right, str) == (
        f"SELECT c0 AS c0, CAST(NULL AS INTEGER) AS c1, CAST(NULL AS DOUBLE) AS c2 FROM received_{right.exchange}"
    )


def test_columns_that_only_leave_out_rows_are_named_no_more():
    smaller = joined("({} < {})", column(2, "DOUBLE"), column(1, "INTEGER"), type="BOOLEAN")
    by = column(0, "BIGINT")
    plan = _ends(_joined(_table("big"), Filter(_table("other"), (smaller,)), by, by), (1, "INTEGER"))
    *_, last = describe_stages(plan, lambda relation: 1)
    assert last.steps == ("inner join of stage 0 and stage 1 on a = a",)


def test_rows_that_are_only_counted_keep_one_column(planner):
    plan = planned(planner, "SELECT count(*) FROM big JOIN other ON big.d <> other.d OR big.s < other.s")
    assert all(types for _, types in sent(plan))
    plan = planned(planner, "SELECT count(*) FROM (SELECT a, s FROM big LIMIT 5)")
    assert all(len(types) == 1 for _, types in sent(plan))


def test_distinct_rows_keep_all_their_columns(planner):
    plan = planned(planner, "SELECT count(*) FROM (SELECT DISTINCT b, s FROM big)")
    assert [types for kind, types in sent(plan) if kind == "hash"] == [("INTEGER", "VARCHAR")]


def test_the_column_whose_keys_prune_scans_is_sent(planner):
    text = "SELECT big.s FROM big JOIN other ON big.a = other.a WHERE other.d < other.b"
    plan = planned(planner, text, small=1)
    (told,) = (stage for stage in plan.stages if stage.keys is not None)
    assert told.relation.types[told.keys] == "BIGINT"


def test_stages_that_one_exchange_reads_send_the_same_columns(planner):
    both = "(SELECT a, b, s, d FROM big WHERE s > '1' UNION ALL SELECT a, b, s, d FROM other WHERE d > 3)"
    plan = planned(planner, f"SELECT t.b FROM {both} t JOIN third ON t.a = third.a")
    (exchange,) = (one for stage in plan.stages for one in stage.exchanges if len(one.sources) == 2)
    assert {plan.stages[source].relation.types for source in exchange.sources} == {exchange.types}
    assert sorted(exchange.types) == ["BIGINT", "INTEGER"]


def test_rows_that_are_sorted_by_ranges_are_handed_on_whole(planner):
    plan = planned(planner, "SELECT a, s FROM big ORDER BY s, a")
    handed = [one for stage in plan.stages for one in stage.exchanges if one.kind is ExchangeKind.RANGE]
    assert [one.types for one in handed] == [("BIGINT", "VARCHAR")]


def test_results_keep_all_columns(planner):
    text = "SELECT a, b, s, d FROM big"
    assert [stage.relation.types for stage in planned(planner, text).stages] == [tuple(COLUMNS.values())]
