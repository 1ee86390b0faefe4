import contextlib
import math
import secrets

import gmpy2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.frontends.federated.crypto.keys import cipher_of, make_keys, read_key
from weft.frontends.federated.crypto.paillier import generate
from weft.frontends.federated.wire import decode, encode, integers
from weft.model.errors import PartyMessageError, UsageError

BITS = 512
KEYS = generate(BITS)
KEY = KEYS.public
RNG = np.random.default_rng(7)
FIELDS = ("method", "n", "h", "shape", "scale", "cells")
KEY_WIRE = KEY.to_wire() | decode(encode(KEY.encrypt(np.ones(1)).to_wire()))


def shown(values):
    return KEYS.decrypt(values)


def test_numbers_come_back_as_they_were():
    values = np.array([0.0, 1.5, -2.25, 1e-9, -1e9, 3.0])
    assert np.allclose(shown(KEY.encrypt(values)), values, rtol=0, atol=1e-11)
    table = RNG.normal(size=(4, 3))
    assert np.allclose(shown(KEY.encrypt(table)), table, atol=1e-11)


def test_integers_of_any_size_are_exact():
    values = [0, 1, -1, 2**150, -(2**150), 12345678901234567890]
    assert KEYS.decrypt_integers(KEY.encrypt(np.array(values, dtype=object))) == values


def test_sums_and_products_are_those_of_the_numbers():
    x, y = RNG.normal(size=20), RNG.normal(size=20)
    a, b = KEY.encrypt(x), KEY.encrypt(y)
    assert np.allclose(shown(a + b), x + y)
    assert np.allclose(shown(a - b), x - y)
    assert np.allclose(shown(a + y), x + y)
    assert np.allclose(shown(a - y), x - y)
    assert np.allclose(shown(a + 2.5), x + 2.5)
    assert np.allclose(shown(a * y), x * y, atol=1e-6)
    assert np.allclose(shown(a * -3), x * -3)
    assert np.allclose(shown(a * y + b), x * y + y, atol=1e-6)
    assert np.allclose(shown(a.sum()), [x.sum()])
    assert np.allclose(shown(a.masked()), x)


def test_columns_are_multiplied_and_groups_are_summed():
    x, matrix = RNG.normal(size=50), RNG.normal(size=(50, 4)) * [1e-3, 1.0, 100.0, 0.0]
    a = KEY.encrypt(x)
    found = shown(a.dot(matrix))
    assert np.allclose(found, matrix.T @ x, rtol=1e-3, atol=1e-5)
    whole = RNG.integers(-9, 9, size=(50, 2))
    assert np.allclose(shown(a.dot(whole)), whole.T @ x)
    few = np.stack([RNG.integers(0, 2, size=50), RNG.integers(-3, 4, size=50) / 3, np.full(50, -0.25)], axis=1)
    assert np.allclose(shown(a.dot(few)), few.T @ x, rtol=1e-3, atol=1e-5)
    groups = RNG.integers(0, 6, size=50)
    assert np.allclose(shown(a.group_sums(groups, 7)), [x[groups == at].sum() for at in range(7)])
    table = RNG.normal(size=(10, 2))
    sums = KEY.encrypt(table).group_sums(np.arange(10) % 3, 3)
    assert np.allclose(shown(sums), [table[at::3].sum(axis=0) for at in range(3)])
    assert np.allclose(shown(KEY.encrypt(table).sum(axis=0)), table.sum(axis=0))


def test_rows_are_taken():
    x = RNG.normal(size=6)
    a = KEY.encrypt(x)
    assert np.allclose(shown(a[np.array([4, 1])]), x[[4, 1]])
    assert np.allclose(shown(a[x > 0]), x[x > 0])
    assert np.allclose(shown(a[2:4]), x[2:4])


def test_equal_numbers_have_different_ciphertexts():
    cells = KEY.encrypt(np.zeros(50)).cells
    assert len(set(map(int, cells))) == 50
    again = KEY.encrypt(np.zeros(1))
    assert again.masked().cells != again.cells


def test_randomness_is_drawn_ahead_and_used_once():
    keys = generate(BITS)
    values = np.arange(40)
    assert keys.public.encrypt(values).shape == (40,)
    keys.public.prepare(30)
    keys.public.prepare(10)
    keys.public._draws.join(180)
    drawn = list(keys.public._drawn)
    assert len(set(drawn)) == len(drawn) >= 10
    sent = keys.public.encrypt(values)
    assert not keys.public._drawn
    assert len({int(one) for one in sent.cells}) == 40
    assert keys.decrypt_integers(sent) == values.tolist()


@pytest.mark.parametrize("bits", [BITS, 2048])
def test_randomness_has_an_order_of_two_secret_primes(bits):
    keys = generate(bits)
    n, noise = keys.public.n, keys.public.noise()
    primes = [(one.prime, one._order // 2) for one in (keys._p, keys._q)]
    assert math.prod(prime for prime, _ in primes) == n
    for prime, factor in primes:
        assert factor.bit_length() == min(256, bits // 4)
        assert gmpy2.is_prime(factor)
        assert (prime - 1) % factor == 0
        assert gmpy2.powmod(keys.public.h, 2 * factor, prime) == 1
        assert gmpy2.powmod(keys.public.h, 2, prime) != 1
        assert gmpy2.powmod(noise, 2 * factor, prime**2) == 1
    assert gmpy2.gcd(*(prime - 1 for prime, _ in primes)) == 2


def test_who_decrypts_blinded_numbers_sees_others():
    x = RNG.normal(size=8)
    blinded, undo = KEY.encrypt(x).blinded()
    seen = KEYS.decrypt_integers(blinded)
    assert min(abs(one) for one in seen) > 2**100
    assert np.allclose(undo(seen), x)


def test_a_number_that_does_not_fit_is_refused():
    with pytest.raises(UsageError, match="too large"):
        KEY.encrypt(np.array([2**BITS], dtype=object))
    with pytest.raises(UsageError, match="not finite"):
        KEY.encrypt(np.array([np.nan]))
    most = KEY.encrypt(np.array([int(KEY.most) - 1], dtype=object))
    with pytest.raises(UsageError, match="overflowed"):
        KEYS.decrypt_integers(most + most)


def test_keys_and_arrays_travel():
    key = read_key(decode(encode(KEY.to_wire())), least_bits=BITS)
    array = key.encrypted(decode(encode(KEY.encrypt(np.array([[1.5, -2.0]])).to_wire())))
    assert np.allclose(shown(array), [[1.5, -2.0]])


@pytest.mark.parametrize(
    "wire",
    [
        None,
        [],
        {},
        {"shape": [1], "scale": 0, "cells": [1]},
        {"shape": [2], "scale": 0, "cells": integers([1])},
        {"shape": [1], "scale": -1, "cells": integers([1])},
        {"shape": [1, 1, 1], "scale": 0, "cells": integers([1])},
        {"shape": [1], "scale": 0, "cells": integers([0])},
        {"shape": [1], "scale": 0, "cells": integers([int(KEY.n2)])},
        {"shape": [-1], "scale": 0, "cells": integers([1])},
        {"shape": [2**40, 2**40], "scale": 0, "cells": integers([])},
        {"shape": [0, 2**62], "scale": 0, "cells": integers([])},
        {"shape": [float("inf")], "scale": 0, "cells": integers([1])},
        {"shape": "1", "scale": 0, "cells": integers([1])},
        {"shape": [1], "scale": float("inf"), "cells": integers([1])},
        {"shape": [1], "scale": BITS, "cells": integers([1])},
        {"shape": [1], "scale": 0, "cells": integers([int(KEY.n)])},
        {"shape": [2], "scale": 0, "cells": integers([1, int(KEYS._p.prime)])},
        np.zeros(3),
        "shape",
    ],
)
def test_arrays_of_others_that_are_none_are_refused(wire):
    with pytest.raises(PartyMessageError):
        KEY.encrypted(decode(encode(wire)))


@pytest.mark.parametrize(
    "wire",
    [
        None,
        5,
        {},
        {"method": "plain"},
        {"method": "paillier", "n": 8, "h": 3},
        {"method": "paillier", "n": "9"},
        {"method": "paillier", "n": 2**2048 - 1, "h": True},
        {"method": "paillier", "n": 2**2048 - 1, "h": 2**2048 - 2},
        {"method": "paillier", "n": 2**9000 - 1, "h": 5},
    ],
)
def test_keys_of_others_that_are_none_are_refused(wire):
    with pytest.raises(PartyMessageError):
        read_key(wire)


def test_the_method_of_a_file_is_never_weaker_than_allowed():
    assert cipher_of({}) == ("paillier", 2048, [])
    method, bits, notes = cipher_of({"encrypt_param": {"method": "iterativeAffine", "key_length": 1024}})
    assert (method, bits) == ("paillier", 2048)
    assert len(notes) == 2
    assert cipher_of({"encrypt_param": {"key_length": 3072}})[1] == 3072
    with pytest.raises(UsageError, match="encrypt_param"):
        cipher_of({"encrypt_param": {"method": "rot13"}})
    with pytest.raises(UsageError):
        make_keys("rot13", 2048)


def test_keys_that_are_short_or_do_not_fit_are_refused():
    with pytest.raises(PartyMessageError, match="512 bits"):
        read_key(KEY.to_wire())
    residue = next(one for one in range(2, 100) if gmpy2.jacobi(one, KEY.n) != 1)
    for wrong in ({"h": residue}, {"h": int(KEYS._p.prime)}, {"n": int(gmpy2.next_prime(KEY.n))}):
        with pytest.raises(PartyMessageError, match="do not fit each other"):
            read_key(KEY.to_wire() | wrong, least_bits=BITS)


def test_integers_and_real_numbers_may_be_added():
    whole = KEY.encrypt(np.array([1, -2]))
    assert shown(whole + 0.5).tolist() == [1.5, -1.5]
    assert shown(whole - np.array([0.25, 1])).tolist() == [0.75, -3.0]
    large = np.array([2**100, 2**70 + 1], dtype=object)
    assert KEYS.decrypt_integers(whole + large) == [2**100 + 1, 2**70 - 1]
    assert KEYS.decrypt_integers(whole - large) == [1 - 2**100, -3 - 2**70]
    assert KEYS.decrypt_integers(whole * large) == [2**100, -2 * (2**70 + 1)]
    assert shown(KEY.encrypt(np.array([0.5, 1.5])) + np.array([1, 2])).tolist() == [1.5, 3.5]


def test_small_factors_keep_their_digits():
    assert np.allclose(shown(KEY.encrypt(np.array([3e6])) * (1 / 3e6)), 1, rtol=1e-5)


def test_digits_beyond_the_key_are_refused():
    product = KEY.encrypt(np.ones(1))
    for _ in range(10):
        product = product * 0.5
    with pytest.raises(UsageError, match="more digits"):
        product * 0.5
    with pytest.raises(UsageError, match="factor is too large"):
        KEY.encrypt(np.ones(1)) * np.array([2**BITS], dtype=object)
    with pytest.raises(UsageError, match="too short to hide"):
        generate(256).public.encrypt(np.ones(1)).dot(np.full((1, 1), 0.5)).__mul__(1.5).blinded()


def test_cells_are_those_of_the_formula_of_paillier():
    """Decrypt by the definition alone: L(c^lambda mod n^2) / L((1 + n)^lambda mod n^2) mod n."""
    n, p, q = int(KEY.n), int(KEYS._p.prime), int(KEYS._q.prime)
    order = math.lcm(p - 1, q - 1)

    def by_definition(cell):
        found = (pow(int(cell), order, n * n) - 1) // n * pow((pow(1 + n, order, n * n) - 1) // n, -1, n) % n
        return found if found < n // 2 else found - n

    values = [0, 1, -1, 2**90, -(2**90)]
    array = KEY.encrypt(np.array(values, dtype=object))
    assert [by_definition(one) for one in array.cells] == values
    textbook = [(1 + one * n) * pow(secrets.randbelow(n), n, n * n) % (n * n) for one in values]
    wire = {"shape": [5], "scale": 0, "cells": integers(textbook)}
    assert KEYS.decrypt_integers(KEY.encrypted(decode(encode(wire)))) == values


@given(
    st.recursive(st.none() | st.integers() | st.floats() | st.text() | st.binary(), st.lists), st.sampled_from(FIELDS)
)
def test_any_value_in_any_field_is_refused_or_read(value, field):
    wire = KEY_WIRE | {field: value}
    with contextlib.suppress(PartyMessageError):
        found = KEY.encrypted(wire)
        assert len(found.cells) == math.prod(found.shape) == 1
        assert 0 <= found.scale <= KEY.most_scale
    if field in ("method", "n", "h"):
        with pytest.raises(PartyMessageError):
            read_key(wire)
