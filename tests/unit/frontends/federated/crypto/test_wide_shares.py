import numpy as np
import pytest

from weft.frontends.federated.crypto.keys import make_keys
from weft.frontends.federated.crypto.wide_shares import (
    BITS,
    MODULUS,
    from_wide,
    hidden_product,
    hidden_total,
    lowered,
    random_wide,
    read_wide,
    scaled,
    to_wide,
    whole,
    wide_wire,
)
from weft.frontends.federated.wire import decode, encode
from weft.model.errors import PartyMessageError, UsageError

NUMBERS = np.array([0.0, 1.0, -1.0, 0.3, -123456.75, 1e-7, -1e-9, 9e9])


def shares_of(values, scale=32):
    first = random_wide(len(values))
    return first, (to_wide(values, scale) - first) % MODULUS


def joined(first, second, scale=32):
    return from_wide((first + second) % MODULUS, scale)


def test_numbers_come_back():
    assert from_wide(to_wide(NUMBERS)) == pytest.approx(NUMBERS, abs=2.0**-32)
    assert joined(*shares_of(NUMBERS)) == pytest.approx(NUMBERS, abs=2.0**-32)


def test_shares_are_divided_alone():
    for _ in range(200):
        first, second = shares_of(NUMBERS, 52)
        found = joined(lowered(first, 20, first=True), lowered(second, 20, first=False))
        assert found == pytest.approx(NUMBERS, abs=2.0**-31)


@pytest.mark.parametrize("factor", [0.0, 0.15, 1e-6, 12.5])
def test_shares_are_multiplied_by_a_number(factor):
    first, second = shares_of(NUMBERS)
    found = joined(scaled(first, factor, first=True), scaled(second, factor, first=False))
    assert found == pytest.approx(NUMBERS * factor, rel=1e-6, abs=1e-9 * np.abs(NUMBERS).max() * 1e-3 + 2.0**-31)


@pytest.mark.parametrize("method", ["plain", "paillier"])
def test_a_product_of_a_matrix_here_with_shares_there(method):
    keys = make_keys(method, 2048)
    matrix = whole(np.array([[1.5, -2.0, 0.25], [0.0, -1e6, 3.0]]))
    shares = random_wide(3)
    hidden, mine = hidden_product(keys.public.encrypt(shares), matrix)
    seen = keys.decrypt_integers(hidden)
    wanted = matrix.dot(shares)
    assert ((np.array(seen, dtype=object) + mine) % MODULUS == wanted % MODULUS).all()
    largest = max(abs(one) for one in wanted)
    assert all(abs(one).bit_length() > largest.bit_length() + 60 for one in seen)
    own = random_wide(2)
    total = keys.decrypt_integers(hidden_total(keys.public.encrypt(shares), matrix, own))
    assert [one % MODULUS for one in total] == [(one + more) % MODULUS for one, more in zip(wanted, own, strict=True)]
    assert all(one.bit_length() > BITS + 60 for one in total)


def test_shares_travel():
    shares = random_wide(4)
    assert (read_wide(decode(encode(wide_wire(shares))), 4, "host 2") == shares).all()
    for wire, count in ((wide_wire(shares), 3), (np.array([MODULUS], dtype=object), 1), ([1, 2], 2), (None, 0)):
        value = wide_wire(wire) if isinstance(wire, np.ndarray) else wire
        with pytest.raises(PartyMessageError, match="host 2"):
            read_wide(decode(encode(value)), count, "host 2")


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0**40])
def test_numbers_that_cannot_be_shared(value):
    with pytest.raises(UsageError, match="too large to be shared"):
        to_wide(np.array([value]))
