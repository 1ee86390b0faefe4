"""Paillier encryption of arrays of numbers, on gmpy2.

Sources: Paillier 1999; Damgard, Jurik and Nielsen 2010, section 4.2 (randomness `h^x` with a short exponent, whose
powers come from a table of a fixed base); decryption modulo both primes by the Chinese remainder theorem. Ma, Han and
Lei 2021: `h` generates a group whose order has one secret prime of `ORDER_BITS` bits for each prime of the modulus, so
decryption takes powers with these in place of the primes. Numbers that are encrypted otherwise are decrypted too.

A number modulo n^2 is `a (1 + n s)` with `a` below n, and the `s` of a product add up. So products of many numbers take
factors of half the length (`halves`), which are multiplied and reduced in half the time.

Real numbers are integers times `2^-scale`. A negative number is its complement modulo `n`; a third of the range is kept
free between positive and negative ones, so that an overflow is noticed.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Self

import gmpy2
import numpy as np
from gmpy2 import mpz

from weft.frontends.federated.crypto.ciphers import PAILLIER, Array
from weft.frontends.federated.wire import Integers, integers
from weft.model.errors import PartyMessageError, UsageError

SCALE: Final = 40
"""The binary digits behind the point of encrypted real numbers."""
PLAIN_SCALE: Final = 40
"""The same of plain factors: `1 / rows` of a million rows keeps 20 digits."""
FACTOR_BITS: Final = 20
"""The binary digits of the factors of a product with a matrix."""
_DOT_SCALE: Final = 60
_VALUE_BITS: Final = 64
_HIDING_BITS: Final = 80
_WINDOW: Final = 10
_DIGITS: Final = 26
"""The digits of random exponents, which have 260 bits. Short ones are as good as long ones if discrete logarithms with
short exponents are hard (Koshiba and Kurosawa 2004); the best known ways to find one of 256 bits take 2^128 steps.
"""
ORDER_BITS: Final = 256
"""The bits of the secret primes in the order of the randomness. The best known way to find the factors of the modulus
from numbers of such a group takes the root of one of them, 2^128 steps (Coron and others 2011).
"""
MOST_BITS: Final = 8192
"""The longest key."""
_WHOLE: Final = "iuO"
"""The kinds of arrays of integers; those of objects have integers of any size."""
_MOST_DRAWN: Final = 50_000
"""The encryptions whose randomness is kept: 25 MB with a key of 2,048 bits."""


class PaillierKey:
    """The key with which all can encrypt: the modulus, and a random power of an n-th residue."""

    def __init__(self, n: mpz, h: mpz) -> None:
        self.n, self.h = n, h
        self.n2 = n * n
        self.most = n // 3
        self.most_scale = n.bit_length() - _VALUE_BITS - 8
        self._drawn: deque[tuple[mpz, mpz]] = deque()
        self._wanted = 0
        self._draws: threading.Thread | None = None

    @cached_property
    def _table(self) -> list[list[tuple[mpz, mpz]]]:
        """The halves of `h^(n * d * 2^(window * i))` for each digit d: an encryption multiplies one of each."""
        rows, n = [], self.n
        base = gmpy2.powmod(self.h, n, self.n2)
        for _ in range(_DIGITS):
            ((first, added),) = halves([base], n)
            inverse = gmpy2.invert(first, n)
            row = [(mpz(1), mpz(0))]
            low, total, inverted = mpz(1), mpz(0), mpz(1)
            for _ in range((1 << _WINDOW) - 1):
                carried, low = gmpy2.f_divmod(low * first, n)
                inverted = inverted * inverse % n
                total = (total + added + carried * inverted) % n
                row.append((low, total))
            rows.append(row)
            base = joined(low, total, n) * base % self.n2
        return rows

    def prepare(self, count: int) -> None:
        """See `PublicKey.prepare`."""
        self._wanted = min(count, _MOST_DRAWN)
        if self._draws is None or not self._draws.is_alive():
            self._draws = threading.Thread(target=self._draw, name="weft-randomness", daemon=True)
            self._draws.start()

    def _draw(self) -> None:
        while len(self._drawn) < self._wanted:
            self._drawn.append(self._fresh())
            time.sleep(0)  # a message that has come is handled first

    def noise(self) -> mpz:
        """Return a random n-th residue: an encryption of zero. None is returned twice."""
        return joined(*self._next(), self.n)

    def _next(self) -> tuple[mpz, mpz]:
        try:
            return self._drawn.popleft()
        except IndexError:
            return self._fresh()

    def _fresh(self) -> tuple[mpz, mpz]:
        """Draw a random n-th residue `a (1 + n s)`, with `a` below n^2."""
        table, n2 = self._table, self.n2
        mask = len(table[0]) - 1
        digits = memoryview(secrets.token_bytes(2 * len(table))).cast("H")
        low, total = mpz(1), mpz(0)
        for row, digit in zip(table, digits, strict=True):
            factor, added = row[digit & mask]
            low = low * factor % n2
            total += added
        return low, total

    def raw(self, value: int, *, noise: bool = True) -> Any:
        """Encrypt an integer. UsageError: it is too large for the key."""
        if not -self.most < value < self.most:
            raise UsageError("a number is too large to be encrypted with this key", hint="Use a larger key_length.")
        if not noise:
            return mpz((1 + value * self.n) % self.n2)
        low, total = self._next()
        return joined(low, total + value, self.n)

    def encrypt(self, values: Array) -> PaillierArray:
        """See `PublicKey.encrypt`."""
        array = np.asarray(values)
        if array.ndim not in (1, 2):
            raise UsageError(f"an array of {array.ndim} dimensions is not encrypted")
        scale = 0 if array.dtype.kind in _WHOLE else SCALE
        return PaillierArray(self, [self.raw(one) for one in _fixed(array, scale)], array.shape, scale)

    def encrypted(self, wire: Any) -> PaillierArray:
        """See `PublicKey.encrypted`."""
        known = wire if isinstance(wire, Mapping) else {}
        shape, scale, cells = known.get("shape"), known.get("scale"), known.get("cells")
        if not isinstance(cells, Integers) or not isinstance(shape, list) or len(shape) not in (1, 2):
            raise PartyMessageError("an encrypted array is malformed")
        if not all(type(one) is int and 0 <= one <= len(cells) for one in shape) or math.prod(shape) != len(cells):
            raise PartyMessageError("an encrypted array has another shape than numbers")
        if type(scale) is not int or not 0 <= scale <= self.most_scale:
            raise PartyMessageError("an encrypted array has a scale that is not possible")
        found = [mpz(one) for one in cells]
        # a number that is no unit modulo n has no inverse, and tells a factor of n
        if not all(0 < one < self.n2 for one in found) or gmpy2.gcd(_product(found, self.n), self.n) != 1:
            raise PartyMessageError("an encrypted array has numbers that are none of its key")
        return PaillierArray(self, found, tuple(shape), scale)

    def to_wire(self) -> Any:
        """See `PublicKey.to_wire`."""
        return {"method": PAILLIER, "n": int(self.n), "h": int(self.h)}


class _Modulus:
    """Decryption modulo one prime `2 a r + 1`, where `a` is the prime in the order of the key's randomness."""

    def __init__(self, prime: mpz, a: mpz, n: mpz) -> None:
        self.prime, self._square, self._order, self._rest = prime, prime * prime, 2 * a, (prime - 1) // (2 * a)
        power = gmpy2.powmod(1 + n, self._order, self._square)
        self._factor = gmpy2.invert((power - 1) // prime, prime)

    def decrypted(self, cells: Sequence[mpz]) -> list[mpz]:
        """Return the numbers modulo the prime."""
        if not cells:
            return []
        bases = [one % self._square for one in cells]
        return [self._number(one) for one in gmpy2.powmod_base_list(bases, self._order, self._square)]

    def _number(self, power: mpz) -> mpz:
        number, rest = gmpy2.f_divmod(power - 1, self.prime)
        if rest:  # encrypted with any random number, as in the paper of Paillier
            number = (gmpy2.powmod(power, self._rest, self._square) - 1) // self.prime
            number *= gmpy2.invert(self._rest, self.prime)
        return number * self._factor % self.prime


class PaillierSecret:
    """The key that decrypts: the primes of the modulus, and the primes `a` and `b` that divide these less one."""

    def __init__(self, p: mpz, q: mpz, a: mpz, b: mpz) -> None:
        n = p * q
        self.public = PaillierKey(n, _randomness(p, q, a, b))
        self._p, self._q = _Modulus(p, a, n), _Modulus(q, b, n)
        self._q_inverse = gmpy2.invert(q, p)

    def decrypt(self, values: PaillierArray) -> Array:
        """See `PrivateKey.decrypt`. UsageError: a number has overflowed."""
        found = [float(_scaled(one, values.scale)) for one in self.decrypt_integers(values)]
        return np.array(found).reshape(values.shape)

    def decrypt_integers(self, values: PaillierArray) -> list[int]:
        """See `PrivateKey.decrypt_integers`: without regard to the scale."""
        parts = zip(self._p.decrypted(values.cells), self._q.decrypted(values.cells), strict=True)
        return [self._joined(one, other) for one, other in parts]

    def _joined(self, m_p: mpz, m_q: mpz) -> int:
        p, q, n = self._p.prime, self._q.prime, self.public.n
        value = m_q + q * ((m_p - m_q) * self._q_inverse % p)
        if value < self.public.most:
            return int(value)
        if value > n - self.public.most:
            return int(value - n)
        raise UsageError("an encrypted number has overflowed", hint="Use a larger key_length.")


class PaillierArray:
    """Encrypted numbers of one key: integers times `2^-scale`."""

    def __init__(self, key: PaillierKey, cells: Sequence[mpz], shape: tuple[int, ...], scale: int) -> None:
        self.key, self.cells, self.scale = key, list(cells), scale
        self._shape = tuple(shape)

    @cached_property
    def _halves(self) -> list[tuple[mpz, mpz]]:
        return halves(self.cells, self.key.n)

    @property
    def shape(self) -> tuple[int, ...]:
        """See `Encrypted.shape`."""
        return self._shape

    def __add__(self, other: PaillierArray | Array | float) -> Self:
        n2 = self.key.n2
        if not isinstance(other, PaillierArray):
            return self._plus(np.asarray(other))
        scale = max(self.scale, other.scale)
        mine, theirs = self._at_scale(scale), other._at_scale(scale)
        shape = np.broadcast_shapes(self._shape, other._shape)
        left, right = _grid(mine, shape), _grid(theirs, shape)
        return self._with([a * b % n2 for a, b in zip(left, right, strict=True)], shape, scale)

    def _plus(self, other: Array) -> Self:
        """Add plain numbers. Real ones and integers become real."""
        if other.dtype.kind in _WHOLE:
            added, mine = [one << self.scale for one in _fixed(np.broadcast_to(other, self._shape), 0)], self
        else:
            mine = self._at_scale(max(self.scale, SCALE))
            added = _fixed(np.broadcast_to(other, self._shape), mine.scale)
        n2, raw = self.key.n2, self.key.raw
        cells = [one * raw(value, noise=False) % n2 for one, value in zip(mine.cells, added, strict=True)]
        return self._with(cells, scale=mine.scale)

    def __sub__(self, other: PaillierArray | Array | float) -> Self:
        if isinstance(other, PaillierArray):
            return self + other * -1
        array = np.asarray(other)
        return self + -(array if array.dtype.kind in "iO" else array.astype(float))

    def __mul__(self, other: Array | float) -> Self:
        array = np.broadcast_to(np.asarray(other), self._shape)
        plain = 0 if array.dtype.kind in _WHOLE else PLAIN_SCALE
        factors, n2 = _fixed(array, plain), self.key.n2
        if any(abs(one) >= self.key.most for one in factors):
            raise UsageError("a factor is too large for this key", hint="Use a larger key_length.")
        cells = [_power(one, value, n2) for one, value in zip(self.cells, factors, strict=True)]
        return self._with(cells, scale=self.scale + plain)

    def __getitem__(self, rows: Any) -> Self:
        places = np.arange(len(self.cells)).reshape(self._shape)[rows]
        return self._with([self.cells[at] for at in places.ravel()], np.atleast_1d(places).shape)

    def sum(self, axis: int | None = None) -> Self:
        """See `Encrypted.sum`."""
        if axis is None:
            return self._with([_product(self.cells, self.key.n2)], (1,))
        places = np.moveaxis(np.arange(len(self.cells)).reshape(self._shape), axis, 0)
        rest = places.reshape(len(places), -1)
        cells = [_product([self.cells[at] for at in rest[:, column]], self.key.n2) for column in range(rest.shape[1])]
        return self._with(cells, places.shape[1:] or (1,))

    def dot(self, matrix: Array) -> Self:
        """See `Encrypted.dot`. A real factor has `FACTOR_BITS` bits, counted from the largest one of its column."""
        array, n2 = np.asarray(matrix), self.key.n2
        product = _product(self.cells, n2)
        if array.dtype.kind in _WHOLE:
            cells = [_multi_power(self.cells, array[:, at].tolist(), n2, product) for at in range(array.shape[1])]
            return self._with(cells, (len(cells),))
        cells = []
        for column in array.T:
            most = float(np.abs(column).max(initial=0.0))
            bits = FACTOR_BITS - (math.frexp(most)[1] if most and math.isfinite(most) else FACTOR_BITS)
            bits = min(max(bits, 0), _DOT_SCALE)
            cell = _multi_power(self.cells, _fixed(column, bits), n2, product)
            cells.append(gmpy2.powmod(cell, 1 << (_DOT_SCALE - bits), n2))
        return self._with(cells, (len(cells),), self.scale + _DOT_SCALE)

    def group_sums(self, groups: Array, count: int) -> Self:
        """See `Encrypted.group_sums`."""
        n2, width = self.key.n2, 1 if len(self._shape) == 1 else self._shape[1]
        found = [mpz(1)] * (count * width)
        for row, group in enumerate(np.asarray(groups).tolist()):
            for column in range(width):
                at = group * width + column
                found[at] = found[at] * self.cells[row * width + column] % n2
        return self._with(found, (count,) if len(self._shape) == 1 else (count, width))

    def prefix_sums(self, order: Sequence[int], ends: Sequence[int]) -> list[mpz]:
        """Return the sums of the first numbers of `order` up to each end; `order` has positions, `ends` ascends."""
        known, n, n2 = self._halves, self.key.n, self.key.n2
        low, total, found, begin = mpz(1), mpz(0), [], 0
        for end in ends:
            for at in order[begin:end]:
                factor, added = known[at]
                low = low * factor % n2
                total += added
            found.append(joined(low, total, n))
            begin = end
        return found

    def masked(self) -> Self:
        """See `Encrypted.masked`."""
        return self._with([one * self.key.noise() % self.key.n2 for one in self.cells])

    def blinded(self) -> tuple[Self, Callable[[Sequence[int]], Array]]:
        """See `Encrypted.blinded`: the random numbers have 80 bits more than any value that fits float64 and scale."""
        most = self.scale + _VALUE_BITS + _HIDING_BITS
        if most > self.key.n.bit_length() - 8:
            raise UsageError("a key is too short to hide numbers of this scale", hint="Use a larger key_length.")
        masks = [secrets.randbits(most) for _ in self.cells]
        n2 = self.key.n2
        cells = [one * self.key.raw(mask) % n2 for one, mask in zip(self.cells, masks, strict=True)]
        scale, shape = self.scale, self._shape

        def shown(values: Sequence[int]) -> Array:
            found = [float(_scaled(mpz(one - mask), scale)) for one, mask in zip(values, masks, strict=True)]
            return np.array(found).reshape(shape)

        return self._with(cells), shown

    def to_wire(self) -> Any:
        """See `Encrypted.to_wire`."""
        return {"shape": list(self._shape), "scale": self.scale, "cells": integers(self.cells)}

    def _at_scale(self, scale: int) -> Self:
        if scale == self.scale:
            return self
        factor, n2 = 1 << (scale - self.scale), self.key.n2
        return self._with([gmpy2.powmod(one, factor, n2) for one in self.cells], scale=scale)

    def _with(self, cells: Sequence[mpz], shape: tuple[int, ...] | None = None, scale: int | None = None) -> Self:
        scale = self.scale if scale is None else scale
        if scale > self.key.most_scale:
            raise UsageError("a product has more digits than the key has room for", hint="Use a larger key_length.")
        return type(self)(self.key, cells, self._shape if shape is None else shape, scale)


def generate(bits: int) -> PaillierSecret:
    """Return a new key pair with a modulus of `bits` bits."""
    if not 256 <= bits <= MOST_BITS:
        raise UsageError(f"a key of {bits} bits is not possible", hint=f"Use 2048 to {MOST_BITS}.")
    half = bits // 2
    while True:
        (p, a), (q, b) = _prime_with_factor(half), _prime_with_factor(bits - half)
        # squares modulo n are one cyclic group only if p - 1 and q - 1 share no factor but 2
        if p == q or (p * q).bit_length() != bits or gmpy2.gcd(p - 1, q - 1) != 2:
            continue
        if gmpy2.gcd(p * q, (p - 1) * (q - 1)) == 1:
            return PaillierSecret(p, q, a, b)


def _prime_with_factor(bits: int) -> tuple[mpz, mpz]:
    """Return a random prime that is 3 modulo 4, as the short randomness needs, and a prime factor of half of it."""
    factor = random_prime(min(ORDER_BITS, bits // 2))
    least = ((mpz(3) << (bits - 2)) // (2 * factor)) | 1
    while True:
        candidate = 2 * factor * (least + 2 * secrets.randbelow(int((mpz(1) << (bits - 2)) // (4 * factor)))) + 1
        if candidate.bit_length() == bits and gmpy2.is_prime(candidate, 40):
            return candidate, factor


def _randomness(p: mpz, q: mpz, a: mpz, b: mpz) -> mpz:
    """Return a random number whose order is twice the product of `a` and `b`, with the Jacobi symbol 1."""
    n, rest = p * q, (p - 1) * (q - 1) // (2 * a * b)
    while True:
        found = gmpy2.powmod(mpz(secrets.randbelow(int(n) - 2) + 2), rest, n)
        if gmpy2.gcd(found - 1, n) == 1:  # of order `a` modulo p, and `b` modulo q
            return -found % n


def random_prime(bits: int) -> mpz:
    """Return a random prime that is 3 modulo 4, as the short randomness needs."""
    while True:
        candidate = mpz(secrets.randbits(bits)) | (mpz(3) << (bits - 2)) | 3
        if gmpy2.is_prime(candidate, 40):
            return candidate


def halves(cells: Sequence[mpz], n: mpz) -> list[tuple[mpz, mpz]]:
    """Return each number, which has an inverse modulo n, as `a` and `s`: it is `a (1 + n s)` modulo n^2."""
    parts = [gmpy2.f_divmod(one, n) for one in cells]
    before, product = [], mpz(1)
    for _, low in parts:
        before.append(product)
        product = product * low % n
    inverse, found = gmpy2.invert(product, n), []  # one for all (Montgomery 1987)
    for (high, low), earlier in zip(reversed(parts), reversed(before), strict=True):
        found.append((low, high * (inverse * earlier % n) % n))
        inverse = inverse * low % n
    return found[::-1]


def joined(low: mpz, total: mpz, n: mpz) -> mpz:
    """Return `low (1 + n total)` modulo n^2; `low` is below n^2."""
    found, n2 = low + n * (low % n * total % n), n * n
    return found - n2 if found >= n2 else found


def _fixed(array: Array, scale: int) -> list[int]:
    """Return the numbers of an array times `2^scale`, rounded. UsageError: one is not finite."""
    if scale == 0:
        return [int(one) for one in np.asarray(array).ravel()]
    values = np.asarray(array, dtype=float).ravel()
    if not np.isfinite(values).all():
        raise UsageError(
            "a number is not finite, and cannot be encrypted",
            hint="The training diverges, which a lower learning_rate prevents; or a value is missing: fill it in.",
        )
    large = np.abs(values) >= 2.0 ** (62 - scale)
    if not large.any():
        found: list[int] = np.rint(values * 2.0**scale).astype(np.int64).tolist()
        return found
    return [round(math.ldexp(one, scale)) for one in values.tolist()]


def _scaled(value: int, scale: int) -> Any:
    return gmpy2.mpq(value, mpz(1) << scale) if scale else value


def _power(base: mpz, exponent: int, modulus: mpz) -> mpz:
    if exponent >= 0:
        return gmpy2.powmod(base, exponent, modulus)
    return gmpy2.powmod(gmpy2.invert(base, modulus), -exponent, modulus)


def _product(cells: Sequence[mpz], modulus: mpz) -> mpz:
    found = mpz(1)
    for one in cells:
        found = found * one % modulus
    return found


def _multi_power(bases: Sequence[mpz], exponents: Sequence[int], modulus: mpz, product: mpz) -> mpz:
    """Return the product of all powers: by digits, with one bucket for each value of a digit (Pippenger 1976).

    `product` is that of all bases. Exponents are made non-negative by a summand, whose power of it is divided out.
    """
    least = min(exponents, default=0)
    powers = [one - least for one in exponents] if least < 0 else exponents
    if 2 * len(set(powers)) < len(powers):  # a column of few values
        bases, powers = _joined_by_power(bases, powers, modulus)
    top = max(powers, default=0).bit_length()
    width = min(range(1, 13), key=lambda one: -(-top // one) * (len(bases) + (2 << one)))
    mask, found = (1 << width) - 1, mpz(1)
    for shift in range((top - 1) // width * width, -1, -width) if top else ():
        if found != 1:
            found = gmpy2.powmod(found, 1 << width, modulus)
        buckets: dict[int, mpz] = {}
        for base, power in zip(bases, powers, strict=True):
            digit = (power >> shift) & mask
            if digit:
                known = buckets.get(digit)
                buckets[digit] = base if known is None else known * base % modulus
        running, total = mpz(1), mpz(1)
        for digit in range(max(buckets, default=0), 0, -1):
            if digit in buckets:
                running = running * buckets[digit] % modulus
            total = total * running % modulus
        found = found * total % modulus
    return found * _power(product, least, modulus) % modulus if least < 0 else found


def _joined_by_power(bases: Sequence[mpz], powers: Sequence[int], modulus: mpz) -> tuple[Sequence[mpz], Sequence[int]]:
    """Return the product of the bases of each exponent, and the exponents, without 0."""
    found: dict[int, mpz] = {}
    for base, power in zip(bases, powers, strict=True):
        if power:
            known = found.get(power)
            found[power] = base if known is None else known * base % modulus
    return list(found.values()), list(found)


def _grid(array: PaillierArray, shape: tuple[int, ...]) -> list[mpz]:
    places = np.broadcast_to(np.arange(len(array.cells)).reshape(array.shape), shape)
    return [array.cells[at] for at in places.ravel()]
