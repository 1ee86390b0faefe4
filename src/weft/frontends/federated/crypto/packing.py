"""Several small non-negative integers in one large one, before encryption or after it.

A tree builder puts a gradient and a hessian in one number (`pack`), so it encrypts and adds half as often. Who lets
others decrypt many small sums first puts many of them in one encrypted number (`compress`): shifting by `width` bits
costs a fraction of a decryption.

A slot that overflows changes the next one, and nobody can notice it: the width must hold the largest sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.crypto.ciphers import Array, Encrypted


def pack(columns: Sequence[Array], widths: Sequence[int]) -> Array:
    """Return one integer for each row, the first column in the lowest bits; an array of objects for `encrypt`.

    UsageError: a number is negative, or has more bits than the width of its column.
    """
    if len(columns) != len(widths) or not columns:
        raise UsageError(f"{len(columns)} columns have {len(widths)} widths")
    total = np.zeros(len(columns[0]), dtype=object)
    shift = 0
    for column, width in zip(columns, widths, strict=True):
        values = [int(one) for one in column]
        if any(one < 0 or one >> width for one in values):
            raise UsageError(f"a number does not fit {width} bits without a sign", hint="Use a larger width.")
        total += np.array([one << shift for one in values], dtype=object)
        shift += width
    return total


def unpack(values: Sequence[int], widths: Sequence[int]) -> list[list[int]]:
    """Return the columns of sums of packed numbers. PartyMessageError: one has other bits than the widths."""
    rest, found = list(values), []
    if any(one < 0 or one >> sum(widths) for one in rest):
        raise PartyMessageError("a sum of packed numbers has other bits than they")
    for width in widths:
        found.append([one & ((1 << width) - 1) for one in rest])
        rest = [one >> width for one in rest]
    return found


class Slots(Struct, frozen=True):
    """How `count` numbers of `width` bits stand in `groups` integers: number `at` in slot `at // groups`."""

    count: int
    width: int
    groups: int

    def unpack(self, values: Sequence[int]) -> list[int]:
        """Return the numbers of decrypted integers, in their order. PartyMessageError: they are others."""
        slots = -(-self.count // self.groups) if self.groups else 0
        if len(values) != self.groups:
            raise PartyMessageError(f"{len(values)} packed numbers came, and {self.groups} were sent")
        columns = unpack(values, [self.width] * slots)
        return [one for column in columns for one in column][: self.count]


def slots_of(count: int, width: int, bits: int) -> Slots:
    """Return how numbers stand in integers of a key of `bits` bits. UsageError: not even one fits."""
    most = (bits - 2) // width if width > 0 else 0
    if most < 1:
        raise UsageError(f"numbers of {width} bits do not fit a key of {bits} bits")
    return Slots(count, width, -(-count // most))


def compress(values: Encrypted, width: int, bits: int) -> tuple[Encrypted, Slots]:
    """Put encrypted non-negative integers of at most `width` bits into as few as possible for a key of `bits` bits.

    `values` has one dimension and comes from integers; `Slots.unpack` takes what `decrypt_integers` returns.
    """
    (count,) = values.shape
    slots = slots_of(count, width, bits)
    if slots.groups == count:
        return values, slots
    starts = list(range(0, count, slots.groups))
    places = starts[-1] + np.arange(slots.groups)
    # a last slot that is not full is filled with zeros
    total = values[np.where(places < count, places, 0)] * (places < count).astype(np.int64)
    shift = np.array([1 << width] * slots.groups, dtype=object)
    for start in reversed(starts[:-1]):
        total = total * shift + values[start : start + slots.groups]
    return total, slots
