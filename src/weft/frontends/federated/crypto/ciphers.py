"""Encryption under which others can add: the protocol of keys and of encrypted arrays, and the plain one for tests.

A part makes a key pair with `make_keys`, sends `public.to_wire()`, and others rebuild it with `read_key`. Encrypted
arrays hold real numbers in fixed point; integers are exact. Whoever has the public key can add encrypted numbers,
multiply them by plain ones, and sum them, and learns nothing about them; the owner of the private key decrypts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, Self

import numpy as np

Array = np.ndarray[Any, Any]

PLAIN: Final = "plain"
"""The method that encrypts nothing: for tests, and never chosen by a file alone."""
PAILLIER: Final = "paillier"


class Encrypted(Protocol):
    """An array of encrypted numbers. Results of operations are new arrays of the same key."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of its dimensions: one or two."""
        ...

    def __add__(self, other: Encrypted | Array | float) -> Self:
        """Add another encrypted array of the same key, or plain numbers; shapes broadcast as in NumPy."""
        ...

    def __sub__(self, other: Encrypted | Array | float) -> Self:
        """Subtract."""
        ...

    def __mul__(self, other: Array | float) -> Self:
        """Multiply by plain numbers, element by element."""
        ...

    def __getitem__(self, rows: Any) -> Self:
        """Return elements of the first dimension, by positions, a slice or a mask."""
        ...

    def sum(self, axis: int | None = None) -> Self:
        """Return sums along an axis, or of all elements (shape (1,))."""
        ...

    def dot(self, matrix: Array) -> Self:
        """Return `matrix.T @ self`: of shape (n,) with a matrix (n, k), the result has shape (k,)."""
        ...

    def group_sums(self, groups: Array, count: int) -> Self:
        """Return the sums of the elements of each group, shape (count,) or (count, columns); empty ones are zero.

        `groups` has the group of each element of the first dimension, from 0 to `count - 1`.
        """
        ...

    def masked(self) -> Self:
        """Return the same numbers in fresh randomness, so that nobody recognises what was added; before sending."""
        ...

    def blinded(self) -> tuple[Self, Callable[[Sequence[int]], Array]]:
        """Return the numbers plus secret random ones, and the function that undoes it for decrypted integers.

        Whoever decrypts them learns nothing.
        """
        ...

    def to_wire(self) -> Any:
        """Return it as a value that travels."""
        ...


class PublicKey(Protocol):
    """The key with which all can encrypt."""

    def encrypt(self, values: Array) -> Encrypted:
        """Encrypt real numbers (float64) or integers, an array of one or two dimensions."""
        ...

    def prepare(self, count: int) -> None:
        """Begin to draw the randomness of `count` later encryptions, while the calling thread waits for messages."""
        ...

    def encrypted(self, wire: Any) -> Encrypted:
        """Rebuild an array of `Encrypted.to_wire`. PartyMessageError: it is none, or not of this key."""
        ...

    def to_wire(self) -> Any:
        """Return it as a value that travels."""
        ...


class PrivateKey(Protocol):
    """The key that decrypts."""

    @property
    def public(self) -> PublicKey:
        """The key for the others."""
        ...

    def decrypt(self, values: Encrypted) -> Array:
        """Return the numbers as float64, with the shape of the array."""
        ...

    def decrypt_integers(self, values: Encrypted) -> list[int]:
        """Return the integers of a one-dimensional array of integers, exactly."""
        ...
