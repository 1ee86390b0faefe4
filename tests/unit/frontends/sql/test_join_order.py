"""Joins that are moved to one side of a join below them."""

from itertools import product

import duckdb
import pytest

from weft.frontends.sql.expressions import Expression, column, joined
from weft.frontends.sql.join_order import joined_in_side, over_one_side, reads_right
from weft.frontends.sql.relations import Join, JoinCondition, JoinKind, Values
from weft.frontends.sql.text import sql_of

INTEGER = "INTEGER"


def _rows(width, *values):
    """Return rows of `width` numbers."""
    rows = [values[at : at + width] for at in range(0, len(values), width)]
    cells = tuple(tuple(Expression((str(value),), INTEGER) for value in row) for row in rows)
    return Values(cells, (INTEGER,) * width)


def _condition(left, right):
    return JoinCondition(column(left, INTEGER), column(right, INTEGER), "=")


def _answer(relation):
    return sorted(duckdb.execute(sql_of(relation, str)).fetchall())


LEFT = _rows(2, 1, 10, 2, 20, 3, 30, 3, 31)
RIGHT = _rows(3, 1, 100, 7, 3, 300, 8, 3, 301, 9)
FEW = _rows(2, 10, 5, 31, 6, 30, 4, 8, 3, 9, 2)
BELOW = Join(
    JoinKind.INNER,
    LEFT,
    RIGHT,
    (_condition(0, 0),),
    joined("{} + {} <> 39", column(1, INTEGER), column(4, INTEGER), type="BOOLEAN"),
)


CASES = [*product([False, True], [False, True], [False]), (False, True, True), (True, True, True)]


@pytest.mark.parametrize(("to_right", "at_right", "semi"), CASES)
def test_a_moved_join_gives_the_same_rows(to_right, at_right, semi):
    key = 4 if to_right else 1
    kind = JoinKind.SEMI if semi else JoinKind.INNER
    above = Join(kind, BELOW, FEW, (_condition(key, 0),)) if at_right else Join(kind, FEW, BELOW, (_condition(0, key),))
    assert [reads_right(above, BELOW, at_right=at_right)] == [to_right]
    inner = over_one_side(above, BELOW, to_right=to_right, at_right=at_right)
    moved = joined_in_side(BELOW, inner, to_right=to_right, at_right=at_right)
    assert _answer(moved) == _answer(above) != []
    assert moved.types == above.types


def test_keys_of_both_sides_or_of_none_are_those_of_neither():
    both = Join(JoinKind.INNER, BELOW, FEW, (_condition(1, 0), _condition(4, 1)))
    assert reads_right(both, BELOW, at_right=True) is None
    assert reads_right(Join(JoinKind.INNER, BELOW, FEW, ()), BELOW, at_right=True) is None
    sum_of_two = joined("{} + {}", column(0, INTEGER), column(1, INTEGER), type=INTEGER)
    computed = JoinCondition(sum_of_two, column(0, INTEGER), "=")
    assert reads_right(Join(JoinKind.INNER, BELOW, FEW, (computed,)), BELOW, at_right=True) is None
