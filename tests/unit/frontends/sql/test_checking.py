"""Plans whose SQL has other types than they say are found before anything runs."""

import duckdb
import pytest

from weft.frontends.sql.checking import check_plan
from weft.frontends.sql.expressions import Expression, NotCoveredError, column
from weft.frontends.sql.relations import Project, Scan, Sort
from weft.frontends.sql.stages import cut


def checked(expression, types):
    rows = Project(Scan("t", (('Strange "name', "INTEGER"),), (), (0,)), (expression, column(0, "INTEGER")))
    with duckdb.connect() as connection:
        check_plan(cut(Sort(rows, ()), lambda _: 0.0, small=0), types, connection)


def test_types_as_planned():
    checked(Expression((0, " + 1::BIGINT"), "BIGINT"), ["BIGINT", "INTEGER"])


def test_a_stage_with_another_type():
    with pytest.raises(NotCoveredError, match="BIGINT and not INTEGER"):
        checked(Expression((0, " + 1::BIGINT"), "INTEGER"), ["INTEGER", "INTEGER"])


def test_a_result_with_another_type():
    with pytest.raises(NotCoveredError, match="BIGINT and not HUGEINT"):
        checked(Expression((0, " + 1::BIGINT"), "BIGINT"), ["HUGEINT", "INTEGER"])


def test_sql_that_does_not_bind():
    with pytest.raises(NotCoveredError, match="no_such_function"):
        checked(Expression(("no_such_function(", 0, ")"), "BIGINT"), ["BIGINT", "INTEGER"])
