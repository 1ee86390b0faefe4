"""Numbers modulo 2^64: fixed point, and additive secret shares of them.

A share alone is uniformly random, so it tells nothing. Sums of shares are shares of the sums.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.crypto.ciphers import Array

RING_SCALE: Final = 24
"""The binary digits behind the point of real numbers modulo 2^64."""


def to_ring(values: Array, *, scale: int = RING_SCALE, summands: int = 1) -> Array:
    """Return numbers as uint64: integers as they are, real ones times `2^scale`, negative ones as complements.

    UsageError: a number is not finite, or so large that a sum of `summands` such numbers may not fit.
    """
    array = np.asarray(values)
    most = 2**63 // max(1, summands)
    if array.dtype.kind in "iu":
        if array.size and (int(array.max()) >= most or int(array.min()) <= -most):
            raise UsageError("an integer is too large to be shared", hint=f"Use numbers below {most}.")
        return array.astype(np.int64).astype(np.uint64)
    scaled = np.rint(np.asarray(array, dtype=float) * 2.0**scale)
    # 2^63 has no smaller neighbour in float64 that an int64 could not hold
    if not (np.abs(scaled) < float(most) * (1 - 2.0**-50)).all():
        raise UsageError(
            "a number is not finite, or too large to be shared", hint=f"Use numbers below {most / 2.0**scale:g}."
        )
    return scaled.astype(np.int64).astype(np.uint64)


def from_ring(values: Array, *, scale: int = RING_SCALE) -> Array:
    """Return the numbers of uint64: real ones, or int64 with a scale of 0."""
    signed = np.asarray(values, dtype=np.uint64).astype(np.int64)
    return signed if scale == 0 else signed / 2.0**scale


def split_shares(values: Array, count: int) -> list[Array]:
    """Return `count` arrays of uint64 whose sum is `values`: each of them alone, and all but one, are random."""
    if count < 2:
        raise UsageError(f"{count} shares would show the numbers", hint="Use two or more.")
    last, found = np.asarray(values, dtype=np.uint64).copy(), []
    for _ in range(count - 1):
        share = np.frombuffer(secrets.token_bytes(8 * last.size), dtype=np.uint64).reshape(last.shape)
        last -= share
        found.append(share)
    return [*found, last]


def join_shares(shares: Sequence[Array]) -> Array:
    """Return the sum of shares modulo 2^64."""
    total = np.zeros_like(shares[0])
    for one in shares:
        total = total + one
    return total
