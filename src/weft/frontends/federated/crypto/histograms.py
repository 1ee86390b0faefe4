"""Sums of many encrypted integers for a few ciphertexts: cumulative sums by bins, packed side by side, decrypted.

A product of ciphertexts is an encryption of a sum, and a ciphertext to the power `2^w` is a shift by `w` bits; so sums
of `w` bits, one of which is the sign, share one plaintext, and one decryption returns all of them. Powers run in
threads, without the lock of the interpreter. Numbers that are not encrypted take the same way, with sums and shifts of
integers.
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


class EncryptedCells(NamedTuple):
    """Encrypted integers one by one, and what is done with them: `add` two, `stack` columns of them, make an `array`.

    `stack` takes columns and a width, and returns of each one the sum of its integers, each shifted by so many bits
    more than the next one. `prefixes` takes positions in an order, and ends, and returns the sums of the first ones up
    to each end. `capacity` is the number of bits of a plaintext that is certainly not too large.
    """

    cells: Sequence[Any]
    add: Callable[[Any, Any], Any]
    stack: Callable[[Sequence[Sequence[Sequence[Any]]], int], list[Any]]
    array: Callable[[Sequence[Any]], Encrypted]
    prefixes: Callable[[Sequence[int], Sequence[int]], list[Any]]
    capacity: int


def cells_of(values: Encrypted) -> EncryptedCells:
    """Return the cells of an encrypted one-dimensional array of integers."""
    if isinstance(values, PaillierArray):
        key, n2 = values.key, values.key.n2
        return EncryptedCells(
            values.cells,
            lambda one, other: one * other % n2,
            lambda columns, bits: _in_slices(columns, lambda some: _stacked(some, bits, n2)),
            lambda cells: PaillierArray(key, cells, (len(cells),), 0),
            values.prefix_sums,
            capacity(key),
        )
    if isinstance(values, PlainArray):
        plain = [int(one) for one in values.values]
        return EncryptedCells(
            plain,
            lambda one, other: one + other,
            lambda columns, bits: [sum(_plain_stack(part, bits) for part in parts) for parts in columns],
            lambda cells: PlainArray(np.array(cells, dtype=object)),
            lambda order, ends: _plain_sums([plain[at] for at in order], ends),
            _PLAIN_BITS,
        )
    raise UsageError(f"sums of a {type(values).__name__} are not possible")


def capacity(key: PublicKey) -> int:
    """Return how many bits a non-negative integer may have that is encrypted."""
    return key.n.bit_length() - 3 if isinstance(key, PaillierKey) else _PLAIN_BITS


def half(bits: int) -> int:
    """Return the place of the upper half of a plaintext of `bits` bits, where `packed` puts sums beside others."""
    return bits // 2


def packed(source: EncryptedCells, sums: Sequence[Any], width: int, beside: Sequence[Any] = ()) -> Encrypted:
    """Return sums of `width` bits, from `-2^(width - 1)` on, packed in few ciphertexts, in fresh randomness.

    The i-th of `k` ciphertexts has the sums i, i + k, i + 2 k, ..., the first one in the highest bits. `beside` has
    sums that are shifted to the upper half already, and are packed there in the same way, with no more powers.
    """
    count = _count(len(sums), len(beside), width, source.capacity)
    columns = [(sums[at::count], beside[at::count]) for at in range(count)]
    return source.array(source.stack(columns, width)).masked()


def unpacked(keys: PrivateKey, values: Encrypted, count: int, width: int, beside: int = 0) -> list[int]:
    """Return the `count` sums of `packed`, and then those `beside`.

    PartyMessageError: there are not as many ciphertexts as they need.
    """
    bits = capacity(keys.public)
    ciphertexts = _count(count, beside, width, bits)
    if not ciphertexts:
        return []
    if values.shape != (ciphertexts,):
        raise PartyMessageError("a part has sent another number of packed sums")
    mask, sign, found = (1 << width) - 1, 1 << (width - 1), [0] * (count + beside)
    for at, value in enumerate(_decrypted(keys, values)):
        for first, length, shift in ((0, count, 0), (count, beside, half(bits))):
            places = range((length - at - 1) // ciphertexts * ciphertexts + at, -1, -ciphertexts)
            value += _ones(len(places), width) * sign << shift  # no sum is negative then, and takes from the next one
            part = value >> shift
            for place in places:
                found[first + place] = (part & mask) - sign
                part >>= width
    return found


def _ones(count: int, width: int) -> int:
    """Return a number with a one in each of `count` places of `width` bits."""
    return ((1 << count * width) - 1) // ((1 << width) - 1)


def _count(sums: int, beside: int, width: int, bits: int) -> int:
    return max(_ciphertexts(one, width, half(bits) if beside else bits) for one in (sums, beside))


def _ciphertexts(count: int, width: int, bits: int) -> int:
    if not count:
        return 0
    each = bits // width
    if not each:
        raise UsageError(f"sums of {width} bits do not fit this key", hint="Use a larger key_length.")
    return -(-count // each)


def _stacked(columns: Sequence[Sequence[Sequence[Any]]], bits: int, modulus: Any) -> list[Any]:
    """Return of each column, which has lists of cells, the product of the cells to the powers `2^(bits place)`.

    The last cell of a list has the place 0.
    """
    exponent, found = gmpy2.mpz(1) << bits, [gmpy2.mpz(1)] * len(columns)
    longest = max((len(part) for parts in columns for part in parts), default=0)
    for place in range(longest, 0, -1):
        if place < longest:
            found = gmpy2.powmod_base_list(found, exponent, modulus)
        for at, parts in enumerate(columns):
            for part in parts:
                if len(part) >= place:
                    found[at] = found[at] * part[-place] % modulus
    return found


def _decrypted(keys: PrivateKey, values: Encrypted) -> list[int]:
    return _in_slices(range(values.shape[0]), lambda some: keys.decrypt_integers(values[np.array(some)]))


def _in_slices(items: Sequence[Any], work: Callable[[Sequence[Any]], list[Any]]) -> list[Any]:
    threads = min(os.cpu_count() or 1, _MOST_THREADS, len(items))
    if threads < 2:
        return work(items)
    size = -(-len(items) // threads)
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(work, [items[at : at + size] for at in range(0, len(items), size)])
        return [one for part in parts for one in part]


class Cumulated(NamedTuple):
    """Sums of the rows on one side of each candidate of a split, without those that are equal or empty.

    `places` has the place of each candidate's sum in `sums`, -1 if it is zero; `right` whether it is that of the rows
    on the right side; `lefts` has the number of rows on the left. `right_sums` are the places of the sums of right
    sides.
    """

    sums: list[Any]
    right_sums: Array
    places: Array
    right: Array
    lefts: Array


def cumulated(source: EncryptedCells, places: Array, codes: Array, sizes: Sequence[int], shift: int = 0) -> Cumulated:
    """Return cumulative sums over the bins of each feature.

    `places` has the cells that are summed, `codes` their bins, shape (cells, features), from 0 to `sizes[feature] - 1`.
    A feature with `s` bins has `s - 1` candidates: bins 0..b are left. Sums grow from both ends towards the bin of the
    median, whose cells are not touched, so none has more than half of the cells. Those of right sides take the cells
    `shift` places later.
    """
    sums: list[Any] = []
    index, right, counts = list[int](), list[bool](), list[int]()
    sides = list[bool]()
    for feature, size in enumerate(sizes):
        column = codes[:, feature]
        order = places[np.argsort(column, kind="stable")]
        ends = np.bincount(column, minlength=size).cumsum().tolist()
        top = int(np.searchsorted(ends, len(column) / 2))
        other_ends = [len(column) - end for end in reversed(ends[top:-1])]
        for cells, own in ((order, ends[:top]), (order[::-1] + shift, other_ends)):
            distinct = [end for end in dict.fromkeys(own) if end]
            at = {end: len(sums) + place for place, end in enumerate(distinct)}
            found = [at.get(end, -1) for end in own]
            on_right = own is other_ends
            index += found[::-1] if on_right else found
            right += [on_right] * len(own)
            sides += [on_right] * len(distinct)
            sums += source.prefixes(cells.tolist(), distinct)
        counts += ends[:-1]
    marks = np.flatnonzero(np.array(sides, dtype=bool))
    return Cumulated(sums, marks, np.array(index, np.int32), np.array(right, bool), np.array(counts, np.int64))


def _plain_sums(values: Sequence[int], ends: Sequence[int]) -> list[int]:
    totals = [0, *itertools.accumulate(values)]
    return [totals[end] for end in ends]


def _plain_stack(cells: Sequence[int], bits: int) -> int:
    return sum(one << bits * place for place, one in enumerate(reversed(cells)))
