"""Additive secret shares of real numbers between two parties, modulo 2^192, and products with matrices under Paillier.

A number is an integer times `2^-scale` modulo 2^192; one share of it is uniformly random, so it tells nothing. The
modulus leaves so much room that each party may divide its share by a power of two alone: the result is right but for
the last digit, except with a probability below 2^-40 (Mohassel and Zhang 2017, section 4.1). That holds for random
shares alone, not for a number and zero. A product of a matrix of
one party with shares of the other: the other encrypts its shares under its key, and gets the product back plus random
numbers that are 2^80 times as large as anything in it; what is subtracted again is the share of the first.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.wire import Integers, integers
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.crypto.ciphers import Array, Encrypted

BITS: Final = 192
MODULUS: Final = 1 << BITS
SHARE_SCALE: Final = 32
"""The binary digits behind the point of shared numbers."""
COLUMN_SCALE: Final = 20
"""The same of the values of columns."""
HIDING_BITS: Final = 80
_FACTOR_BITS: Final = 40
_MOST: Final = float(1 << 40)


def to_wide(values: Array, scale: int = SHARE_SCALE) -> Array:
    """Return real numbers as integers modulo 2^192. UsageError: one is not finite, or too large."""
    return whole(values, scale) % MODULUS


def whole(values: Array, scale: int = COLUMN_SCALE) -> Array:
    """Return real numbers times `2^scale` as an array of integers of any size.

    UsageError: one is not finite, or not below 2^40.
    """
    array = np.asarray(values, dtype=float)
    if not (np.abs(array) < _MOST).all():
        raise UsageError(
            "a number is not finite, or too large to be shared", hint="Scale the columns, or lower learning_rate."
        )
    found = np.empty(array.shape, dtype=object)
    found.ravel()[:] = [round(one * 2.0**scale) for one in array.ravel().tolist()]
    return found


def from_wide(values: Array, scale: int = SHARE_SCALE) -> Array:
    """Return the real numbers of integers modulo 2^192."""
    signed = [(one + MODULUS // 2) % MODULUS - MODULUS // 2 for one in values.tolist()]
    return np.array([one / (1 << scale) for one in signed], dtype=float)


def random_wide(count: int) -> Array:
    """Return random integers modulo 2^192: the shares of numbers that the other party gets."""
    return _objects([secrets.randbits(BITS) for _ in range(count)])


def lowered(share: Array, bits: int, *, first: bool) -> Array:
    """Return a share of numbers divided by `2^bits`; one of the two parties is the `first`. Shares are random."""
    found: Array = (share >> bits) if first else (MODULUS - ((MODULUS - share) >> bits)) % MODULUS
    return found


def scaled(share: Array, factor: float, *, first: bool) -> Array:
    """Return a share of numbers times a factor that both parties know."""
    whole_factor = round(factor * 2.0**_FACTOR_BITS)
    if not whole_factor:
        return share * 0
    return lowered(share * whole_factor % MODULUS, _FACTOR_BITS, first=first)


def hidden_product(encrypted: Encrypted, matrix: Array) -> tuple[Encrypted, Array]:
    """Return `matrix @ v` of encrypted v plus random numbers, and the own share of the product.

    `matrix` has integers of any size, shape (results, len(v)).
    """
    most = max((abs(one) for one in matrix.ravel().tolist()), default=0)
    bits = BITS + int(most).bit_length() + matrix.shape[1].bit_length() + HIDING_BITS
    masks = _objects([secrets.randbits(bits) for _ in range(len(matrix))])
    return (encrypted.dot(matrix.T) + masks).masked(), -masks % MODULUS


def hidden_total(encrypted: Encrypted, matrix: Array, added: Array) -> Encrypted:
    """Return `matrix @ v + added` of encrypted v, plus random multiples of 2^192: its owner sees the sum modulo it."""
    most = max((abs(one) for one in matrix.ravel().tolist()), default=0)
    bits = int(most).bit_length() + matrix.shape[1].bit_length() + HIDING_BITS
    multiples = _objects([secrets.randbits(bits) << BITS for _ in range(len(matrix))])
    return (encrypted.dot(matrix.T) + (added + multiples)).masked()


def wide_wire(values: Array) -> Any:
    """Return integers modulo 2^192 as a value that travels."""
    return integers(values.tolist())


def read_wide(wire: Any, count: int, source: str) -> Array:
    """Return the integers of `wide_wire`. PartyMessageError: they are none, or not so many."""
    found = list(wire) if isinstance(wire, Integers) else None
    if found is None or len(found) != count or not all(0 <= one < MODULUS for one in found):
        raise PartyMessageError(f"{source} has sent shares that are malformed")
    return _objects(found)


def _objects(values: list[int]) -> Array:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found
