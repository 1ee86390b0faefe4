"""Fixtures of all tests of components."""

from collections import defaultdict
from itertools import count
from typing import Any

import pytest

from weft.frontends.federated.crypto import paillier

FOUND: dict[tuple[int, int], Any] = {}
"""Primes by their bits and their place in a test."""


@pytest.fixture(autouse=True)
def without_providers(monkeypatch):
    """Let components run their own code unless a test asks for a provider."""
    for name in ("WEFT_SPU", "WEFT_TORCH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def quick_keys(monkeypatch):
    """Make keys of primes that earlier tests have found, never twice in a test, and with small tables of powers.

    They encrypt hundreds of numbers here, and not hundreds of thousands. Exponents have the same bits as in the
    product, whose tables and primes are those of the tests of ciphers.
    """
    find = paillier._prime_with_factor
    numbers: defaultdict[int, count[int]] = defaultdict(count)

    def known(bits):
        place = bits, next(numbers[bits])
        if place not in FOUND:
            FOUND[place] = find(bits)
        return FOUND[place]

    monkeypatch.setattr(paillier, "_prime_with_factor", known)
    monkeypatch.setattr(paillier, "_WINDOW", 5)
    monkeypatch.setattr(paillier, "_DIGITS", 52)
