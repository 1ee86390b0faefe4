import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from weft.frontends.federated.crypto.masks import MaskSecret, sum_of_covered
from weft.frontends.federated.crypto.shares import from_ring, join_shares, split_shares, to_ring
from weft.frontends.federated.schema import Party
from weft.frontends.federated.wire import decode, encode
from weft.model.errors import PartyMessageError, UsageError

PARTIES = [Party("guest", "1"), Party("host", "2"), Party("host", "3")]


def agreed(parties):
    secrets = {one: MaskSecret() for one in parties}
    return {
        one: secrets[one].agree(one, {other: secrets[other].public for other in parties if other != one}, "job")
        for one in parties
    }


@pytest.mark.parametrize("count", [2, 3])
def test_the_sum_is_exact_and_each_array_looks_random(count):
    parties, rng = PARTIES[:count], np.random.default_rng(count)
    masks = agreed(parties)
    for _ in range(2):
        values = {one: rng.normal(size=(50, 20)) * 100 for one in parties}
        covered = {one: decode(encode(masks[one].cover(values[one]))) for one in parties}
        expected = sum(np.rint(one * 2.0**24) for one in values.values()) / 2.0**24
        assert np.array_equal(sum_of_covered(covered, parties), expected)
        assert np.array_equal(sum_of_covered(covered, parties[::-1]), expected)
        for one in parties:
            words = covered[one]["words"]
            assert len(np.unique(words)) == words.size
            # 64,000 fair bits: beyond seven standard deviations
            assert abs(int(np.unpackbits(words.view(np.uint8)).sum()) - 32_000) < 900


def test_equal_arrays_of_two_rounds_have_different_masks():
    masks = agreed(PARTIES)[PARTIES[0]]
    first, second = (masks.cover(np.zeros(100))["words"] for _ in range(2))
    assert not np.any(first == second)


def test_integers_are_summed_exactly():
    masks = agreed(PARTIES)
    values = np.array([2**60, -(2**60), 0, 7])
    found = sum_of_covered({one: masks[one].cover(values) for one in PARTIES}, PARTIES)
    assert found.dtype == np.int64
    assert found.tolist() == [3 * int(one) for one in values]
    with pytest.raises(UsageError, match="too large"):
        masks[PARTIES[0]].cover(np.array([2**62]))


def test_a_party_that_is_missing_or_alone_is_an_error():
    masks = agreed(PARTIES)
    covered = {one: masks[one].cover(np.ones(3)) for one in PARTIES}
    with pytest.raises(PartyMessageError, match="host 3"):
        sum_of_covered({one: covered[one] for one in PARTIES[:2]}, PARTIES)
    with pytest.raises(UsageError, match="two parties"):
        sum_of_covered(covered, PARTIES[:1])
    with pytest.raises(UsageError, match="one party alone"):
        MaskSecret().agree(PARTIES[0], {}, "")


@pytest.mark.parametrize(
    "change",
    [
        {"round": 1},
        {"scale": 3},
        {"scale": 64},
        {"scale": "24"},
        {"words": np.zeros(4, dtype=np.uint64)},
        {"words": np.zeros(3)},
        {"words": [0, 0, 0]},
    ],
)
def test_arrays_of_another_form_are_refused(change):
    masks = agreed(PARTIES)
    covered = {one: masks[one].cover(np.ones(3)) for one in PARTIES}
    covered[PARTIES[1]] |= change
    with pytest.raises(PartyMessageError):
        sum_of_covered(covered, PARTIES)


@pytest.mark.parametrize("key", [None, "text", b"short", bytes(32), [1]])
def test_keys_of_masks_that_are_none_are_refused(key):
    with pytest.raises(PartyMessageError, match="key"):
        MaskSecret().agree(PARTIES[0], {PARTIES[1]: key}, "")


def test_masks_of_another_job_do_not_cancel():
    first, second = MaskSecret(), MaskSecret()
    covered = {
        PARTIES[0]: first.agree(PARTIES[0], {PARTIES[1]: second.public}, "one").cover(np.zeros(9)),
        PARTIES[1]: second.agree(PARTIES[1], {PARTIES[0]: first.public}, "other").cover(np.zeros(9)),
    }
    assert np.all(sum_of_covered(covered, PARTIES[:2]) != 0)


@given(arrays(np.float64, st.integers(0, 20), elements=st.floats(-1e9, 1e9)), st.integers(2, 5))
def test_shares_join_to_the_numbers(values, count):
    shares = split_shares(to_ring(values), count)
    assert len(shares) == count
    assert np.array_equal(from_ring(join_shares(shares)), np.rint(values * 2.0**24) / 2.0**24)


@given(arrays(np.int64, 5), arrays(np.int64, 5))
def test_sums_of_shares_are_shares_of_sums(x, y):
    halves = [a // 4 for a in (x, y)]
    left, right = (split_shares(to_ring(one), 2) for one in halves)
    total = join_shares([a + b for a, b in zip(left, right, strict=True)])
    assert np.array_equal(from_ring(total, scale=0), halves[0] + halves[1])


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0**39, -(2.0**39), 2**63, np.uint64(2**63), -(2**63)])
def test_numbers_that_do_not_fit_are_not_shared(value):
    with pytest.raises(UsageError):
        to_ring(np.array([value]))


def test_one_share_is_refused():
    with pytest.raises(UsageError, match="two or more"):
        split_shares(np.zeros(3, dtype=np.uint64), 1)
