"""One key of many for the receiver: an oblivious transfer, in which the sender does not learn which key it was.

Source: Chou and Orlandi 2015, in the squares modulo a safe prime of 2,048 bits. The sender has a key for each of many
messages; the receiver can compute the one of its choice. Safe against parties that follow the protocol.
"""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import Any, Final

import gmpy2
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from gmpy2 import mpz

from weft.frontends.federated.crypto.psi import PRIME
from weft.model.errors import PartyMessageError

_EXPONENT_BITS: Final = 256
_BASE: Final = mpz(4)
_WIDTH: Final = 256
_NONCE: Final = bytes(12)
"""Each key encrypts one message."""


class KeySender:
    """The party with the messages. `offer` goes to the receiver."""

    def __init__(self) -> None:
        self._exponent = mpz(secrets.randbits(_EXPONENT_BITS) | 1)
        self._offer = gmpy2.powmod(_BASE, self._exponent, PRIME)

    @property
    def offer(self) -> int:
        """What the receiver needs for its choice."""
        return int(self._offer)

    def keys(self, choice: Any, count: int, party: str) -> list[bytes]:
        """Return `count` keys, given the choice of the receiver. PartyMessageError: it is none."""
        found = _square(choice, party)
        own = gmpy2.powmod(found, self._exponent, PRIME)
        step = gmpy2.invert(gmpy2.powmod(self._offer, self._exponent, PRIME), PRIME)
        keys = []
        for at in range(count):
            keys.append(_key(self._offer, found, at, own))
            own = own * step % PRIME
        return keys


class KeyReceiver:
    """The party that chooses a message. PartyMessageError: the offer of the sender is none."""

    def __init__(self, offer: Any, at: int, party: str) -> None:
        self._offer, self._at = _square(offer, party), at
        self._exponent = mpz(secrets.randbits(_EXPONENT_BITS) | 1)
        blind = gmpy2.powmod(_BASE, self._exponent, PRIME)
        self._choice = gmpy2.powmod(self._offer, at, PRIME) * blind % PRIME

    @property
    def choice(self) -> int:
        """What the sender needs: a random square, whichever message is chosen."""
        return int(self._choice)

    def key(self) -> bytes:
        """Return the key of the chosen message."""
        return _key(self._offer, self._choice, self._at, gmpy2.powmod(self._offer, self._exponent, PRIME))


def sealed(key: bytes, data: bytes) -> bytes:
    """Return a message encrypted with a key that encrypts nothing else (AES-GCM)."""
    return AESGCM(key).encrypt(_NONCE, data, None)


def opened(key: bytes, data: Any, party: str) -> bytes:
    """Return the message of `sealed`. PartyMessageError: it is none of this key."""
    if isinstance(data, bytes):
        try:
            return AESGCM(key).decrypt(_NONCE, data, None)
        except InvalidTag:
            pass
    raise PartyMessageError(f"party {party} has sent a message that the key does not open", party=party)


def _square(value: Any, party: str) -> mpz:
    if type(value) is not int or not 1 < value < PRIME - 1 or gmpy2.jacobi(value, PRIME) != 1:
        raise PartyMessageError(f"party {party} has sent a number that is no choice of a key", party=party)
    return mpz(value)


def _key(offer: mpz, choice: mpz, at: int, shared: mpz) -> bytes:
    parts = b"".join(int(one).to_bytes(_WIDTH, "big") for one in (offer, choice, shared))
    return sha256(b"weft oblivious transfer " + at.to_bytes(8, "big") + parts).digest()
