"""Numbers that are not encrypted, with the operations of encrypted ones: for tests of components alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import numpy as np

from weft.frontends.federated.crypto.ciphers import PLAIN, Array
from weft.model.errors import PartyMessageError

_SCALE: Final = 1 << 80


class PlainArray:
    """Numbers in the open."""

    def __init__(self, values: Array) -> None:
        self.values = np.asarray(values)

    @property
    def shape(self) -> tuple[int, ...]:
        """See `Encrypted.shape`."""
        return self.values.shape

    def __add__(self, other: PlainArray | Array | float) -> Self:
        return type(self)(self.values + _of(other))

    def __sub__(self, other: PlainArray | Array | float) -> Self:
        return type(self)(self.values - _of(other))

    def __mul__(self, other: Array | float) -> Self:
        return type(self)(self.values * np.asarray(other))

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(np.atleast_1d(self.values[rows]))

    def sum(self, axis: int | None = None) -> Self:
        """See `Encrypted.sum`."""
        return type(self)(np.atleast_1d(self.values.sum(axis=axis)))

    def dot(self, matrix: Array) -> Self:
        """See `Encrypted.dot`."""
        return type(self)(np.asarray(matrix).T @ self.values)

    def group_sums(self, groups: Array, count: int) -> Self:
        """See `Encrypted.group_sums`."""
        found = np.zeros((count, *self.values.shape[1:]), dtype=self.values.dtype)
        np.add.at(found, np.asarray(groups), self.values)
        return type(self)(found)

    def masked(self) -> Self:
        """See `Encrypted.masked`."""
        return self

    def blinded(self) -> tuple[Self, Callable[[Sequence[int]], Array]]:
        """See `Encrypted.blinded`: nothing is hidden."""
        shape = self.values.shape
        scaled = np.array([round(float(one) * _SCALE) for one in self.values.ravel()], dtype=object)
        return type(self)(scaled), lambda values: np.array([one / _SCALE for one in values]).reshape(shape)

    def to_wire(self) -> Any:
        """See `Encrypted.to_wire`."""
        return {"plain": [int(one) for one in self.values] if self.values.dtype == object else self.values}


class PlainKey:
    """The key of no encryption: public and private in one."""

    @property
    def public(self) -> PlainKey:
        """See `PrivateKey.public`."""
        return self

    def encrypt(self, values: Array) -> PlainArray:
        """See `PublicKey.encrypt`."""
        return PlainArray(values)

    def prepare(self, count: int) -> None:
        """See `PublicKey.prepare`: nothing is random."""

    def encrypted(self, wire: Any) -> PlainArray:
        """See `PublicKey.encrypted`."""
        values = wire.get("plain") if isinstance(wire, dict) else None
        if isinstance(values, list):
            values = np.array(values, dtype=object)
        if not isinstance(values, np.ndarray):
            raise PartyMessageError("an array that is not encrypted is malformed")
        return PlainArray(values)

    def decrypt(self, values: PlainArray) -> Array:
        """See `PrivateKey.decrypt`."""
        return values.values.astype(float)

    def decrypt_integers(self, values: PlainArray) -> list[int]:
        """See `PrivateKey.decrypt_integers`."""
        return [int(one) for one in values.values]

    def to_wire(self) -> Any:
        """See `PublicKey.to_wire`."""
        return {"method": PLAIN}


def _of(other: PlainArray | Array | float) -> Any:
    return other.values if isinstance(other, PlainArray) else np.asarray(other)
