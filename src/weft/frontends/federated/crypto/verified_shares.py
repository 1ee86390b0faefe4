"""Shares of whole numbers that each holder checks: polynomials, and commitments to their coefficients.

A number times the factorial of the number of holders is the value of a random polynomial at 0, and holder `j` has its
value at `j`; without the factorial that value would tell the number modulo `j`. All holders together find the number,
and sums of shares are shares of sums. Coefficients are whole numbers so large that the shares of all holders but one
tell nothing (to 2^-128). Sources: Feldman 1987 for commitments to coefficients; Pedersen 1991 for a second base, since
a commitment to a small number with one base can be guessed. Groups are the squares modulo a prime (`psi`).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from fractions import Fraction
from hashlib import shake_256
from typing import Any, Final, NamedTuple

import gmpy2
from gmpy2 import mpz

from weft.frontends.federated.crypto.psi import PRIME
from weft.frontends.federated.wire import Integers, integers
from weft.model.errors import PartyMessageError

VALUE_BITS: Final = 96
"""The bits that a number may have, without its sign."""
_RANDOM_BITS: Final = 256
_BASE: Final = mpz(4)
_SECOND: Final = gmpy2.square(mpz(int.from_bytes(shake_256(b"weft second base").digest(256), "big"))) % PRIME
"""A base whose logarithm to the other one nobody knows."""


class Share(NamedTuple):
    """The values of polynomials at one holder: those of the numbers, and those of the second base."""

    numbers: list[int]
    blinds: list[int]

    def plus(self, other: Share) -> Share:
        """Return a share of the sums."""
        numbers = [one + two for one, two in zip(self.numbers, other.numbers, strict=True)]
        return Share(numbers, [one + two for one, two in zip(self.blinds, other.blinds, strict=True)])


def divided(values: Sequence[int], holders: int) -> tuple[list[Share], list[list[mpz]]]:
    """Return the shares of `holders` holders, from 1 on, and the commitments to the coefficients of each number."""
    factor = math.factorial(holders)
    table = [[value * factor, *(secrets.randbits(_RANDOM_BITS) for _ in range(holders - 1))] for value in values]
    blinds = [[secrets.randbits(_RANDOM_BITS) for _ in range(holders)] for _ in values]
    flat = [one for row in table for one in row], [one for row in blinds for one in row]
    committed = _committed(*flat)
    shares = [
        Share([_value_at(row, at) for row in table], [_value_at(row, at) for row in blinds])
        for at in range(1, holders + 1)
    ]
    return shares, [committed[at : at + holders] for at in range(0, len(committed), holders)]


def to_wire(commitments: Sequence[Sequence[mpz]]) -> Any:
    """Return commitments as a value that travels."""
    return integers(one for row in commitments for one in row)


def commitments_of(wire: Any, count: int, holders: int, party: str) -> list[list[mpz]]:
    """Return commitments to the coefficients of `count` polynomials. PartyMessageError: they are none."""
    if not isinstance(wire, Integers) or len(wire) != count * holders or not all(0 < one < PRIME for one in wire):
        raise PartyMessageError(f"party {party} has sent commitments of another form", party=party)
    return [[mpz(one) for one in wire[at * holders : (at + 1) * holders]] for at in range(count)]


def share_of(wire: Any, count: int, party: str) -> Share:
    """Return a share that has travelled as two lists. PartyMessageError: it is none."""
    good = isinstance(wire, (list, tuple)) and len(wire) == 2 and all(isinstance(one, list) for one in wire)
    if not good or any(len(one) != count or any(type(value) is not int for value in one) for one in wire):
        raise PartyMessageError(f"party {party} has sent shares of another form", party=party)
    return Share(*wire)


def check(share: Share, commitments: Sequence[Sequence[mpz]], at: int, party: str) -> None:
    """PartyMessageError: the share of holder `at` is none of the numbers that the party has committed to."""
    for found, known in zip(_committed(share.numbers, share.blinds), commitments, strict=True):
        wanted = mpz(1)
        for one in reversed(known):
            wanted = gmpy2.powmod(wanted, at, PRIME) * one % PRIME
        if found != wanted:
            raise PartyMessageError(f"party {party} has sent a share that does not fit its commitments", party=party)


def product(one: Sequence[Sequence[mpz]], other: Sequence[Sequence[mpz]]) -> list[list[mpz]]:
    """Return commitments to sums of polynomials."""
    return [[a * b % PRIME for a, b in zip(row, more, strict=True)] for row, more in zip(one, other, strict=True)]


def joined(shares: Mapping[int, Share]) -> list[int]:
    """Return the numbers, given the shares of all holders."""
    factors = {at: _product_of(Fraction(other, other - at) for other in shares if other != at) for at in shares}
    count = len(next(iter(shares.values())).numbers)
    whole = math.factorial(len(shares))
    return [int(sum(factors[at] * share.numbers[row] for at, share in shares.items())) // whole for row in range(count)]


def _product_of(factors: Any) -> Fraction:
    found = Fraction(1)
    for one in factors:
        found *= one
    return found


def _committed(numbers: Sequence[int], blinds: Sequence[int]) -> list[mpz]:
    first = [gmpy2.powmod(_BASE, one, PRIME) for one in numbers]
    second = [gmpy2.powmod(_SECOND, one, PRIME) for one in blinds]
    return [a * b % PRIME for a, b in zip(first, second, strict=True)]


def _value_at(coefficients: Sequence[int], at: int) -> int:
    found = 0
    for one in reversed(coefficients):
        found = found * at + one
    return found
