"""Bounds of ranges of sort keys."""

import random

import duckdb
import pyarrow as pa
import pytest

from weft.frontends.sql.expressions import Order, column
from weft.frontends.sql.ranges import bounds_of, set_bounds
from weft.frontends.sql.relations import Received, SortSample
from weft.frontends.sql.text import range_of, sql_of, with_sort_key


def keys(*numbers):
    return [number.to_bytes(4, "big") for number in numbers]


def test_bounds_divide_equally_weighed_keys_equally():
    assert bounds_of(keys(*range(100)), [1] * 100, 4) == keys(24, 49, 74)


def test_a_key_stands_for_the_rows_of_its_task():
    found = bounds_of(keys(*range(100), *range(1000, 1100)), [300] * 100 + [100] * 100, 2)
    assert found == keys(66)  # two thirds of the first 300 rows are half of all


def test_there_are_no_more_bounds_than_keys():
    assert bounds_of([], [], 8) == []
    assert len(bounds_of(keys(7), [1000], 8)) <= 1
    assert len(bounds_of(keys(1, 2), [1, 1], 8)) <= 2


ORDERS = (Order(column(0, "INTEGER"), True, True), Order(column(1, "VARCHAR"), False, False))


def in_ranges(rows, ranges):
    """Return the rows in order, each with the number of its range."""
    names = ["c0", "c1", "c2"]
    types = [pa.int32(), pa.string(), pa.int64()]
    columns = [pa.array([row[at] for row in rows], of) for at, of in enumerate(types)]
    with duckdb.connect() as connection:
        sampled = sql_of(SortSample(Received(0, ("INTEGER", "VARCHAR", "BIGINT")), ORDERS), {})
        connection.register("received_0", pa.table(columns, names))
        set_bounds(connection, connection.execute(sampled).to_arrow_table(), ranges)
        keyed = with_sort_key("FROM received_0", ORDERS)
        divided = f"SELECT c0, c1, {range_of('sort_key', ranges)} AS number FROM ({keyed})"
        return connection.execute(f"FROM ({divided}) ORDER BY c0 DESC NULLS FIRST, c1 NULLS LAST, number").fetchall()


@pytest.mark.parametrize("ranges", [1, 2, 7, 32])
def test_ranges_follow_one_another_in_the_order_of_the_rows(ranges):
    rng = random.Random(ranges)
    rows = [(rng.choice([None, 1, 2, 3]), rng.choice([None, "", "a", "b", "é"]), at) for at in range(3000)]
    numbers = [number for _, _, number in in_ranges(rows, ranges)]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(ranges))
    assert max(map(numbers.count, set(numbers))) <= 2.5 * len(rows) / ranges  # equal rows are divided too


@pytest.mark.parametrize("rows", [[], [(1, "a", 0)]])
def test_few_rows_lie_in_the_first_range(rows):
    assert in_ranges(rows, 5) == [(1, "a", 0)] * len(rows)
