"""Sums of many encrypted integers for a few ciphertexts: cumulative sums by bins, packed side by side, decrypted.

A product of ciphertexts is an encryption of a sum, and a ciphertext to the power `2^w` is a shift by `w` bits; so sums
of `w` bits share one plaintext, and one decryption returns all of them. Powers run in threads, without the lock of the
interpreter. Numbers that are not encrypted take the same way, with sums and shifts of integers.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import gmpy2
import numpy as np

from weft.frontends.federated.crypto.paillier import PaillierArray, PaillierKey
from weft.frontends.federated.crypto.plain import PlainArray
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.crypto.ciphers import Array, Encrypted, PrivateKey, PublicKey

_PLAIN_BITS: Final = 2000
_MOST_THREADS: Final = 8
_MOST_PER_SLICE: Final = 4


class EncryptedCells(NamedTuple):
    """Encrypted integers one by one, and what is done with them: `add` two, `shift` many by some bits, `pack` as one.

    `capacity` is the number of bits of a plaintext that is certainly not too large.
    """

    cells: Sequence[Any]
    add: Callable[[Any, Any], Any]
    shift: Callable[[Sequence[Any], int], list[Any]]
    array: Callable[[Sequence[Any]], Encrypted]
    capacity: int


def cells_of(values: Encrypted) -> EncryptedCells:
    """Return the cells of an encrypted one-dimensional array of integers."""
    if isinstance(values, PaillierArray):
        key, n2 = values.key, values.key.n2
        return EncryptedCells(
            values.cells,
            lambda one, other: one * other % n2,
            lambda cells, bits: _powers(cells, bits, n2),
            lambda cells: PaillierArray(key, cells, (len(cells),), 0),
            capacity(key),
        )
    if isinstance(values, PlainArray):
        return EncryptedCells(
            [int(one) for one in values.values],
            lambda one, other: one + other,
            lambda cells, bits: [one << bits for one in cells],
            lambda cells: PlainArray(np.array(cells, dtype=object)),
            _PLAIN_BITS,
        )
    raise UsageError(f"sums of a {type(values).__name__} are not possible")


def capacity(key: PublicKey) -> int:
    """Return how many bits a non-negative integer may have that is encrypted."""
    return key.n.bit_length() - 3 if isinstance(key, PaillierKey) else _PLAIN_BITS


def packed(source: EncryptedCells, sums: Sequence[Any], width: int) -> Encrypted:
    """Return sums of at most `width` bits packed in few ciphertexts, in fresh randomness.

    The i-th of `k` ciphertexts has the sums i, i + k, i + 2 k, ..., the first one in the highest bits.
    """
    if not sums:
        return source.array([])
    count = _ciphertexts(len(sums), width, source.capacity)
    found = list(sums[:count])
    for start in range(count, len(sums), count):
        row = sums[start : start + count]
        shifted = source.shift(found[: len(row)], width)
        found[: len(row)] = [source.add(one, other) for one, other in zip(shifted, row, strict=True)]
    return source.array(found).masked()


def unpacked(keys: PrivateKey, values: Encrypted, count: int, width: int) -> list[int]:
    """Return the `count` sums of `packed`. PartyMessageError: there are not as many ciphertexts as they need."""
    if not count:
        return []
    ciphertexts = _ciphertexts(count, width, capacity(keys.public))
    if values.shape != (ciphertexts,):
        raise PartyMessageError("a part has sent another number of packed sums")
    mask, found = (1 << width) - 1, [0] * count
    for at, value in enumerate(_decrypted(keys, values)):
        for place in range((count - at - 1) // ciphertexts * ciphertexts + at, -1, -ciphertexts):
            found[place] = value & mask
            value >>= width
    return found


def _ciphertexts(count: int, width: int, bits: int) -> int:
    each = bits // width
    if not each:
        raise UsageError(f"sums of {width} bits do not fit this key", hint="Use a larger key_length.")
    return -(-count // each)


def _powers(cells: Sequence[Any], bits: int, modulus: Any) -> list[Any]:
    """Return the cells to the power `2^bits`."""
    exponent = gmpy2.mpz(1) << bits
    return _in_slices(cells, lambda some: gmpy2.powmod_base_list(list(some), exponent, modulus))


def _decrypted(keys: PrivateKey, values: Encrypted) -> list[int]:
    return _in_slices(range(values.shape[0]), lambda some: keys.decrypt_integers(values[np.array(some)]))


def _in_slices(items: Sequence[Any], work: Callable[[Sequence[Any]], list[Any]]) -> list[Any]:
    threads = min(os.cpu_count() or 1, _MOST_THREADS, -(-len(items) // _MOST_PER_SLICE))
    if threads < 2:
        return work(items)
    size = -(-len(items) // threads)
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(work, [items[at : at + size] for at in range(0, len(items), size)])
        return [one for part in parts for one in part]


class Cumulated(NamedTuple):
    """Sums of the rows on one side of each candidate of a split, without those that are equal or empty.

    `places` has the place of each candidate's sum in `sums`, -1 if it is zero; `right` whether it is that of the rows
    on the right side; `lefts` has the number of rows on the left.
    """

    sums: list[Any]
    places: Array
    right: Array
    lefts: Array


def cumulated(source: EncryptedCells, places: Array, codes: Array, sizes: Sequence[int]) -> Cumulated:
    """Return cumulative sums over the bins of each feature.

    `places` has the cells that are summed, `codes` their bins, shape (cells, features), from 0 to `sizes[feature] - 1`.
    A feature with `s` bins has `s - 1` candidates: bins 0..b are left. No cell of the largest bin is touched: sums grow
    from both ends towards it.
    """
    sums: list[Any] = []
    index, right, counts = [], [], []
    cells = [source.cells[at] for at in places.tolist()]
    for feature, size in enumerate(sizes):
        column = codes[:, feature]
        have = np.bincount(column, minlength=size)
        order = np.argsort(column, kind="stable").tolist()
        ends = have.cumsum()
        top, ends_list = int(have.argmax()), ends.tolist()
        left = [*_grown(source, cells, order, [0, *ends_list[:top]], sums)]
        steps = [len(order) - end for end in reversed(ends_list[top:])]
        other = [*_grown(source, cells, order[::-1], steps, sums)]
        index += left + other[::-1]
        right += [False] * len(left) + [True] * len(other)
        counts += ends_list[:-1]
    return Cumulated(sums, np.array(index, dtype=np.int32), np.array(right, dtype=bool), np.array(counts, np.int64))


def _grown(source: EncryptedCells, cells: Sequence[Any], order: Sequence[int], ends: list[int], sums: list[Any]) -> Any:
    """Yield the place of the sum of the first rows of `order` up to each end after the first one."""
    total: Any = None
    known, add = -1, source.add
    for start, end in itertools.pairwise(ends):
        if end > start:
            for at in order[start:end]:
                total = cells[at] if total is None else add(total, cells[at])
            known = len(sums)
            sums.append(total)
        yield known
