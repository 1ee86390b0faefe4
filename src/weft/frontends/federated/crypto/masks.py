"""Sums of arrays that nobody sees alone: each pair of parties agrees on a mask that one adds and the other subtracts.

Source: Bonawitz and others 2017 (practical secure aggregation), without their recovery of parties that drop out: a
component needs all its parts in any case, so a missing array is an error, and no mask is ever shown.

Who learns what: the receiver of the arrays sees their sum, and each array as random numbers, as long as it does not
work together with all parties but one. With two parties, who knows the sum and its own array knows the other one. Keys
go straight between the parties, which know each other; a receiver that hands out the keys could replace them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from weft.frontends.federated.crypto.shares import RING_SCALE, from_ring, join_shares, to_ring
from weft.model.errors import PartyMessageError, UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.crypto.ciphers import Array
    from weft.frontends.federated.schema import Party

_KEY: Final = 32


class MaskSecret:
    """The secret of one party for one sum: it sends `public` to the other parties, and agrees with them on masks."""

    def __init__(self) -> None:
        self._key = X25519PrivateKey.generate()
        self.public = self._key.public_key().public_bytes_raw()

    def agree(self, here: Party, others: Mapping[Party, Any], context: str) -> PairwiseMasks:
        """Return the masks with the parties whose public keys are given; `context` is that of the job and component.

        UsageError: there is no other party. PartyMessageError: one has sent a key that is none.
        """
        if not others:
            raise UsageError("the sum of one party alone would show its numbers", hint="Use two parties or more.")
        pairs = []
        for other, theirs in others.items():
            shared = _agreed(self._key, theirs, other)
            ends = sorted([(str(here), self.public.hex()), (str(other), theirs.hex())])
            key = _derived(shared, b"weft masks pair " + repr((context, ends)).encode())
            pairs.append((key, str(here) < str(other)))
        return PairwiseMasks(pairs)


class PairwiseMasks:
    """The masks of one party with each other: a key, and whether it adds the mask or subtracts it."""

    def __init__(self, pairs: Sequence[tuple[bytes, bool]]) -> None:
        self._pairs, self._count, self._round = pairs, len(pairs) + 1, 0

    def cover(self, values: Array, *, scale: int = RING_SCALE) -> dict[str, Any]:
        """Return an array under fresh masks, as a value that travels. All parties cover the same arrays in one order.

        UsageError: a number is not finite, or too large for the sum.
        """
        array = np.asarray(values)
        scale = 0 if array.dtype.kind in "iu" else scale
        words = to_ring(array, scale=scale, summands=self._count).copy()
        label = b"weft masks round %d" % self._round
        for key, adds in self._pairs:
            mask = _stream(_derived(key, label), words.size).reshape(words.shape)
            words = words + mask if adds else words - mask
        covered = {"round": self._round, "scale": scale, "words": words}
        self._round += 1
        return covered


def sum_of_covered(covered: Mapping[Party, Any], parties: Sequence[Party]) -> Array:
    """Return the sum of the arrays of `parties`, whose masks cancel: float64, or int64 for integers, exactly.

    PartyMessageError: an array is missing, none, or of another round, scale or shape than the first.
    """
    forms, arrays = [], []
    for party in parties:
        form, words = _checked(covered.get(party), party)
        forms.append(form)
        arrays.append(words)
        if form != forms[0]:
            raise PartyMessageError(f"{party} has sent an array of another form than others", party=party.id)
    if len(arrays) < 2:
        raise UsageError("a sum needs the arrays of two parties or more")
    return from_ring(join_shares(arrays), scale=forms[0][1])


def _checked(wire: Any, party: Party) -> tuple[tuple[int, int, tuple[int, ...]], Array]:
    known = wire if isinstance(wire, Mapping) else {}
    number, scale, words = known.get("round"), known.get("scale"), known.get("words")
    if type(number) is not int or type(scale) is not int or not 0 <= scale < 64:
        raise PartyMessageError(f"{party} has sent an array without its round and scale", party=party.id)
    if not isinstance(words, np.ndarray) or words.dtype != np.uint64:
        raise PartyMessageError(f"{party} has sent no array of words", party=party.id)
    return (number, scale, words.shape), words


def _agreed(own: X25519PrivateKey, theirs: Any, party: Party) -> bytes:
    if not isinstance(theirs, bytes) or len(theirs) != _KEY:
        raise PartyMessageError(f"{party} has sent a key that is none", party=party.id)
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError:  # a point of small order: the secret would be known to all
        raise PartyMessageError(f"{party} has sent a key that is none", party=party.id) from None


def _derived(secret: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), _KEY, None, info).derive(secret)


def _stream(key: bytes, count: int) -> Array:
    """Return `count` random words of a key, which is used once; so the nonce may be zero."""
    encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * count)), dtype="<u8").astype(np.uint64)
