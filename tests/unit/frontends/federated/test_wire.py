import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.frontends.federated.wire import decode, encode, integers
from weft.model.errors import PartyMessageError, UsageError

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_values_travel_unchanged(value):
    assert decode(encode(value)) == value


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u4", "?", "S5"])
def test_arrays_travel_with_their_type(dtype):
    array = np.arange(12).reshape(3, 4).astype(dtype)
    found = decode(encode({"a": [array, array.T]}))["a"]
    assert found[0].dtype == array.dtype
    assert np.array_equal(found[0], array)
    assert np.array_equal(found[1], array.T)


@given(st.lists(st.integers(min_value=0, max_value=2**4096)))
def test_blocks_of_integers_travel(values):
    assert list(decode(encode([integers(values)]))[0]) == values


def test_scalars_of_numpy_are_plain():
    assert decode(encode([np.float64(1.5), np.int64(3), np.bool_(True)])) == [1.5, 3, True]


@pytest.mark.parametrize("value", [object(), {1}, np.array([object()]), np.array(["text"])])
def test_what_is_no_plain_data_does_not_travel(value):
    with pytest.raises(UsageError):
        encode(value)


@given(st.binary())
def test_foreign_bytes_become_plain_data_or_an_error(data):
    with contextlib.suppress(PartyMessageError):
        decode(data)


def test_damaged_arrays_are_refused():
    data = bytearray(encode(np.arange(100.0)))
    for at in range(min(40, len(data))):
        for bit in range(8):
            changed = data.copy()
            changed[at] ^= 1 << bit
            with contextlib.suppress(PartyMessageError):
                decode(bytes(changed))
