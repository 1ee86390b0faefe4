"""How arrays are cut."""

import pickle
from math import prod

import pytest

from weft.frontends.tensors.chunks import (
    BLOCK,
    Cut,
    blocks,
    choose,
    coordinates,
    counts,
    largest,
    normalize,
    overlaps,
    shape_of,
)
from weft.graph.axes import AxisOperation
from weft.model.errors import UsageError


def test_an_even_cut_is_three_numbers_however_many_chunks_it_has():
    cut = Cut.even(10**9 + 1, 1000)
    assert (cut.n, cut.longest) == (10**6 + 1, 1000)
    assert cut.span(10**6) == (10**9, 10**9 + 1)
    assert cut.at(10**9) == 10**6
    assert not cut.ends


def test_an_empty_axis_has_one_empty_chunk():
    cut = Cut.even(0, 5)
    assert (cut.n, cut.lengths(), cut.longest) == (1, (0,), 0)
    assert cut.touched(0, 0) == (0, 1)


@pytest.mark.parametrize("lengths", [(3, 3, 2), (2, 3, 3), (4,), (1, 2, 1), (0, 3), (3, 0, 2)])
def test_lengths_come_back(lengths):
    cut = Cut.of(lengths)
    assert cut.lengths() == lengths
    assert cut.size == sum(lengths)
    for position in range(cut.size):
        lo, hi = cut.span(cut.at(position))
        assert lo <= position < hi
    assert pickle.loads(pickle.dumps(cut)) == cut


def test_cuts_of_unknown_lengths_equal_only_themselves():
    one, other = Cut.unknown(3), Cut.unknown(3)
    assert one == one
    assert one != other


def test_a_chunk_size_says_what_the_grid_is():
    assert counts(normalize(4, (10, 6), 8, 2)) == (3, 2)
    assert counts(normalize((5, -1), (10, 6), 8, 2)) == (2, 1)
    assert [cut.lengths() for cut in normalize(((2, 8), 3), (10, 6), 8, 2)] == [(2, 8), (3, 3)]
    assert [cut.lengths() for cut in normalize({1: 2}, (10, 6), 8, 2)] == [(10,), (2, 2, 2)]
    assert normalize((3, 3, 4), (10,), 8, 2)[0].lengths() == (3, 3, 4)
    assert shape_of(normalize(None, (), 8, 2)) == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((1, 2, 3), "3 entries for an array of 2 axes"),
        (((4, 4), 6), "8 long in all; the axis has 10"),
        (0, "axis 0 is 0"),
        ((5, "x"), "axis 1 is 'x'"),
        ("big", "chunk_size is 'big'"),
        (2.5, "chunk_size is 2.5"),
    ],
)
def test_a_chunk_size_that_makes_no_sense_is_told(given, words):
    with pytest.raises(UsageError, match=words):
        normalize(given, (10, 6), 8, 2)


def test_chosen_chunks_balance_workers_and_stay_below_the_limit():
    (cut,) = choose((40_000_000,), 8, 2)
    assert cut.n % 2 == 0
    assert cut.longest * 8 <= 64 * 2**20
    assert counts(choose((100,), 8, 2)) == (1,)
    assert counts(choose((0, 5), 8, 2)) == (1, 1)
    assert choose((20_000, 5_000), 8, 2)[1].n == 1


@pytest.mark.parametrize("shape", [(1_000_003,), (4_000, 4_000), (3, 2, 400_000), (100, 3_000), (3, 1_000_000)])
def test_chunks_that_are_chosen_hold_whole_blocks(shape):
    block = blocks(shape)
    assert prod(block) <= BLOCK
    for workers, most in ((1, 2**26), (7, 2**26), (2, 2**20)):
        grid = choose(shape, 8, workers, most=most)
        assert all(cut.n == 1 or cut.chunk % n == 0 for cut, n in zip(grid, block, strict=True))
        assert largest(grid) * 8 <= most


@pytest.mark.parametrize(
    ("src", "dst", "op"),
    [
        (Cut.even(12, 3), Cut.even(12, 3), AxisOperation.COPY),
        (Cut.even(12, 3), Cut.even(12, 6), AxisOperation.GROUP),
        (Cut.even(12, 6), Cut.even(12, 3), AxisOperation.UNGROUP),
        (Cut.even(12, 4), Cut.even(12, 3), AxisOperation.RANGES),
        (Cut.even(12, 4), Cut.even(12, 12), AxisOperation.WHOLE),
        (Cut.of((1, 5, 6)), Cut.even(12, 4), AxisOperation.RANGES),
    ],
)
def test_an_exchange_is_closed_arithmetic_where_it_can_be(src, dst, op):
    assert overlaps(0, src, dst).op is op


def test_coordinates_are_row_major():
    assert [coordinates(i, (2, 3)) for i in range(6)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
