"""Expressions of a plan as SQL: constants of each type, and what stages do not cover."""

import random

import duckdb
import pytest

from weft.frontends.sql.expressions import NotCoveredError, column, joined, listed, literal_list
from weft.frontends.sql.planner import Planner
from weft.frontends.sql.relations import Project
from weft.frontends.sql.text import sql_of

CONSTANTS = [
    "42::TINYINT",
    "(-170141183460469231731687303715884105728)::HUGEINT",
    "340282366920938463463374607431768211455::UHUGEINT",
    "1.5::DECIMAL(4,2)",
    "-0.07::DECIMAL(3,2)",
    "12345678901234567890.5::DECIMAL(38,1)",
    "0.1::DOUBLE",
    "'nan'::DOUBLE",
    "'-inf'::FLOAT",
    "'it''s'",
    "DATE '2020-02-29'",
    "TIMESTAMP '1999-12-31 23:59:59.999999'",
    "TIME '01:02:03.5'",
    "INTERVAL '1 year 2 days 3.5 seconds'",
    "NULL::INTEGER",
    "[1, NULL, 3]",
    "TRUE",
]


@pytest.mark.parametrize("text", CONSTANTS)
def test_a_constant_of_a_plan_is_written_as_what_it_was(text):
    planner = Planner()
    relation = planner.plan(f"SELECT {text}", {})
    assert isinstance(relation, Project)
    wanted = duckdb.execute(f"SELECT {text}, typeof({text})").fetchall()
    found = duckdb.execute(f"SELECT c0, typeof(c0) FROM ({sql_of(relation, str)})").fetchall()
    assert str(found) == str(wanted)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("SELECT random()", "the function random"),
        ("SELECT i FROM range(3) t(i)", "a scan by range"),
        (
            "WITH RECURSIVE r AS (SELECT 1 i UNION ALL SELECT i + 1 FROM r WHERE i < 3) FROM r",
            "the operator recursive cte",
        ),
    ],
)
def test_what_stages_do_not_cover_is_named(text, what):
    with pytest.raises(NotCoveredError, match=what):
        Planner().plan(text, {})


def test_expressions_are_joined_and_moved():
    both = joined("({} + {})", column(0, "BIGINT"), column(2, "BIGINT"), type="BIGINT")
    assert both.text(lambda at: f"x{at}") == "(x0 + x2)"
    assert both.columns == {0, 2}
    assert both.column is None
    assert both.over(lambda at: at + 1).parts == ("(", 1, " + ", 3, ")")
    assert listed([column(1, "DATE"), column(0, "DATE")]).parts == (1, ", ", 0)


def test_a_list_of_texts_has_each_text_as_it_is():
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    parts = [*"ab ,'\"\\[]{}()=:/*é\n\t", "NULL", "null", "''", '""', "\\n", "],["]
    texts = ["".join(draw.choices(parts, k=draw.randrange(9))) for _ in range(2_000)]
    told = f"seed {seed}"
    for size in (0, 1, 2_000):
        assert duckdb.execute(f"SELECT {literal_list(texts[:size])}").fetchall() == [(texts[:size],)], told
