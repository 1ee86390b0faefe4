"""Ranges of sorted rows: what bounds them, and where they end."""

import random
from bisect import bisect_left

import pytest

from weft.frontends.sql.ranges import bounds_of, ends_of


def keys(*numbers):
    return [number.to_bytes(4, "big") for number in numbers]


def test_bounds_divide_equally_weighed_keys_equally():
    assert bounds_of(keys(*range(100)), [100] * 100, 4, 100) == keys(24, 49, 74)


def test_a_key_stands_for_its_share_of_the_rows_of_its_task():
    found = bounds_of(keys(*range(100), *range(1000, 1100)), [300] * 100 + [100] * 100, 2, 100)
    assert found == keys(66)  # two thirds of the first 300 rows are half of all


def test_there_are_no_more_bounds_than_keys():
    assert bounds_of([], [], 8, 100) == []
    assert len(bounds_of(keys(7), [1000], 8, 100)) <= 1
    assert len(bounds_of(keys(1, 2), [1, 1], 8, 100)) <= 2


def test_a_key_of_many_rows_bounds_several_ranges():
    assert bounds_of(keys(*[1] * 10, *[5] * 80, *[9] * 10), [100] * 100, 5, 100) == keys(5, 5, 5, 5)


class Rows:
    """Sorted rows, and the positions whose keys were read."""

    def __init__(self, numbers):
        self.keys, self.read = keys(*sorted(numbers)), set()

    def at(self, positions):
        self.read.update(positions)
        return [self.keys[position] for position in positions]


@pytest.mark.parametrize("count", [0, 1, 2, 50, 5000])
@pytest.mark.parametrize("values", [3, 100, 100_000])
def test_ranges_end_before_the_first_row_of_a_bound(count, values):
    rng = random.Random(count * values)
    rows = Rows(rng.randrange(values) for _ in range(count))
    bounds = keys(*sorted(rng.sample(range(values + 1), 3) if values < 5 else rng.sample(range(values), 9)))
    assert ends_of(bounds, count, rows.at) == [bisect_left(rows.keys, bound) for bound in bounds]
    assert len(rows.read) <= max(1500, count // 3)


def test_equal_bounds_divide_the_rows_of_their_key():
    rows = Rows([1] * 100 + [5] * 600 + [9] * 100)
    assert ends_of(keys(5, 5, 5, 9), 800, rows.at) == [100, 300, 500, 700]
