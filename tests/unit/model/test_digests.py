"""Digests that need no OpenSSL."""

from hashlib import sha256

import pytest

from weft.model import digests
from weft.model.digests import hex_digest


@pytest.mark.parametrize("size", [0, 1, 1000, digests._LARGE - 1, digests._LARGE, digests._LARGE + 1])
def test_they_are_those_of_hashlib(size):
    data = bytes(number % 251 for number in range(size))
    assert hex_digest(data) == sha256(data).hexdigest()
