"""Packed and cumulative sums of encrypted integers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.frontends.federated.crypto.histograms import capacity, cells_of, cumulated, half, packed, unpacked
from weft.frontends.federated.crypto.paillier import generate
from weft.frontends.federated.crypto.plain import PlainArray, PlainKey
from weft.model.errors import PartyMessageError, UsageError

SHORT: Any = generate(512)


def signed(width: int) -> Any:
    return st.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1)


def encrypted(key: Any, values: Any) -> Any:
    return key.public.encrypt(np.array(values, dtype=object))


@pytest.mark.parametrize("key", [PlainKey(), SHORT], ids=["plain", "paillier"])
@settings(max_examples=30, deadline=None)
@given(width=st.integers(1, 90), data=st.data())
def test_packed_sums_return(key, width, data):
    values = data.draw(st.lists(signed(width), max_size=40))
    array = encrypted(key, values)
    source = cells_of(array)
    found = packed(source, source.cells, width)
    assert unpacked(key, found, len(values), width) == values
    assert found.shape[0] == -(-len(values) // (source.capacity // width))


@pytest.mark.parametrize("key", [PlainKey(), SHORT], ids=["plain", "paillier"])
@settings(max_examples=30, deadline=None)
@given(width=st.integers(1, 90), data=st.data())
def test_sums_that_are_shifted_already_are_packed_beside_others(key, width, data):
    cells = st.lists(signed(width), max_size=20)
    values, others = data.draw(cells), data.draw(cells)
    up = half(capacity(key.public))
    source = cells_of(encrypted(key, values + [one << up for one in others]))
    found = packed(source, source.cells[: len(values)], width, source.cells[len(values) :])
    assert unpacked(key, found, len(values), width, len(others)) == values + others
    room = (up if others else source.capacity) // width
    assert found.shape[0] == max(-(-len(one) // room) for one in (values, others))


@pytest.mark.parametrize("key", [PlainKey(), SHORT], ids=["plain", "paillier"])
@settings(max_examples=30, deadline=None)
@given(rows=st.integers(0, 30), sizes=st.lists(st.integers(1, 6), max_size=4), seed=st.integers(0, 2**32 - 1))
def test_cumulative_sums_are_those_of_one_side_of_each_candidate(key, rows, sizes, seed):
    random = np.random.default_rng(seed)
    values = random.integers(0, 1000, 40)
    places = random.choice(40, rows, replace=False)
    codes = np.column_stack([random.integers(0, size, rows) for size in sizes] or [np.empty((rows, 0), dtype=int)])
    source = cells_of(encrypted(key, values.tolist()))
    found = cumulated(source, places, codes, sizes)
    sums = unpacked(key, packed(source, found.sums, 20), len(found.sums), 20)
    assert set(found.right_sums.tolist()) == set(found.places[found.right].tolist()) - {-1}
    at = 0
    for feature, size in enumerate(sizes):
        for edge in range(size - 1):
            left = codes[:, feature] <= edge
            side = ~left if found.right[at] else left
            assert (sums[found.places[at]] if found.places[at] >= 0 else 0) == values[places][side].sum()
            assert (found.places[at] < 0) == (not side.any())
            assert side.sum() <= rows / 2
            assert found.lefts[at] == left.sum()
            at += 1
    assert at == len(found.places) == len(found.right) == len(found.lefts)


def test_sums_of_right_sides_take_other_cells():
    source = cells_of(encrypted(SHORT, [1, 2, 3, 10, 20, 30]))
    found = cumulated(source, np.arange(3), np.array([[0], [1], [2]]), [3], 3)
    assert SHORT.decrypt_integers(source.array(found.sums)) == [1, 30]
    assert found.right.tolist() == [False, True]


def test_sums_leave_in_fresh_randomness():
    source = cells_of(encrypted(SHORT, [1, 2, 3]))
    first, second = (packed(source, source.cells, 20).to_wire()["cells"] for _ in range(2))
    assert first != second


def test_what_is_not_possible_is_refused():
    array = encrypted(SHORT, [1, 2])
    with pytest.raises(UsageError, match="do not fit"):
        packed(cells_of(array), array.cells, 600)
    with pytest.raises(PartyMessageError, match="another number"):
        unpacked(SHORT, array, 2, 20)
    strange: Any = [1, 2]
    with pytest.raises(UsageError, match="not possible"):
        cells_of(strange)
    plain: Any = PlainArray(np.array([1, 2]))
    assert cells_of(plain).cells == [1, 2]
