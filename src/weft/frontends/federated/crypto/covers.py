"""Sums that the owner of a key decrypts and cannot see: whole numbers under masks, several in a ciphertext.

Who has encrypted sums adds masks to them, the owner of the key decrypts and returns what it sees, and the masks are
taken away again. A mask has 60 bits more than the largest sum, so all but a part of 2^-60 is hidden.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.frontends.federated.crypto.histograms import EncryptedCells, packed, unpacked

if TYPE_CHECKING:
    from weft.frontends.federated.crypto.ciphers import Array, Encrypted, PrivateKey

_HIDING_BITS: Final = 60


def covered(source: EncryptedCells, sums: Sequence[Any], bits: int) -> tuple[Encrypted, list[int]]:
    """Return sums of at most `bits` bits, negative or not, plus masks, packed in fresh randomness; and the masks."""
    least, width = 1 << (bits + _HIDING_BITS), bits + _HIDING_BITS + 2
    masks = [least + secrets.randbelow(least) for _ in sums]
    return packed(source, sums, width) + packed_plain(source, masks, width), masks


def decrypted(keys: PrivateKey, wire: Any, count: int, bits: int) -> list[int]:
    """Return the `count` numbers of `covered`, with their masks. PartyMessageError: they are none."""
    return unpacked(keys, keys.public.encrypted(wire), count, bits + _HIDING_BITS + 2)


def packed_plain(source: EncryptedCells, values: Sequence[int], width: int) -> Array:
    """Return whole numbers side by side, as `packed` puts encrypted ones."""
    count = -(-len(values) // (source.capacity // width))
    found = list(values[:count])
    for start in range(count, len(values), count):
        row = values[start : start + count]
        found[: len(row)] = [(one << width) + other for one, other in zip(found, row, strict=False)]
    return np.array(found, dtype=object)
