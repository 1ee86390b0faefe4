"""The intersection of sets of ids that their owners do not show to each other.

ECDH and DH (Meadows 1986; Huberman, Franklin and Hogg 1999): both raise the hashes of their ids to secret powers, in
either order. The guest sees which of its ids the host has too, and the size of the other set, and nothing else of it.
RSA (De Cristofaro and Tsudik 2010): the host signs blinded hashes of the guest's ids, and sends digests of its own
signatures. All are safe against parties that follow the protocol.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from hashlib import sha256, sha512
from typing import TYPE_CHECKING, Any, Final

import gmpy2
import numpy as np
from gmpy2 import mpz

from weft.frontends.federated.crypto.curve_powers import WIDTH, multiplied
from weft.frontends.federated.crypto.orders import shuffled
from weft.frontends.federated.crypto.paillier import random_prime
from weft.frontends.federated.wire import Integers, integers
from weft.model.errors import PartyMessageError

if TYPE_CHECKING:
    from weft.frontends.federated.crypto.ciphers import Array

ECDH, DH, RSA = "ecdh", "dh", "rsa"
METHODS: Final = (ECDH, DH, RSA)
_RESIDUE: Final = 256
_TAG: Final = 16
"""The bytes of a doubly encrypted id that are compared: two of 10^6 ids collide with a probability below 2^-88."""
_EXPONENT_BITS: Final = 256
_RSA_BITS: Final = 2048
_E: Final = 65_537
# RFC 3526, group 14: a safe prime of 2,048 bits.
PRIME: Final = mpz(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B"
    "302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7EDEE386BFB5A899FA5AE9F24117C4B1FE6"
    "49286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB9ED529077096966D"
    "670C354E4ABC9804F1746C08CA18217C32905E462E36CE3BE39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718"
    "3995497CEA956AE515D2261898FA051015728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)


class EllipticPower:
    """Secret powers on Curve25519 (RFC 7748), by the u-coordinate alone.

    The hash of an id is taken as a u-coordinate. It lies on the curve or on its twist, both of which have a large prime
    order times a small cofactor; the multiplier is a multiple of 8, so the small parts vanish, and powers commute.
    """

    def __init__(self) -> None:
        self._number = secrets.token_bytes(WIDTH)  # X25519 clears its lowest three bits, and sets the highest one

    def hashed(self, ids: Sequence[str]) -> list[bytes]:
        """Return the hashes of ids, raised to the secret power."""
        return self._raised([sha256(b"weft psi x25519 " + one.encode()).digest() for one in ids])

    def again(self, wire: Any, party: str) -> list[bytes]:
        """Return what another party has raised, raised again. PartyMessageError: it is none."""
        return self._raised(split(wire, WIDTH, party), party)

    def pack(self, points: Sequence[bytes]) -> Any:
        """Return points as a value that travels."""
        return b"".join(points)

    def read(self, wire: Any, party: str) -> list[bytes]:
        """Return the points of such a value. PartyMessageError: it is none."""
        return split(wire, WIDTH, party)

    def _raised(self, points: Sequence[bytes], party: str = "") -> list[bytes]:
        try:
            return multiplied(self._number, points)
        except ValueError:  # a point of small order, which no hash is
            raise PartyMessageError(f"party {party} has sent a point that is no hash of an id", party=party) from None


class ModularPower:
    """Secret powers modulo a safe prime of 2,048 bits (RFC 3526), of squares."""

    def __init__(self) -> None:
        self._exponent = mpz(secrets.randbits(_EXPONENT_BITS) | 1)

    def hashed(self, ids: Sequence[str]) -> list[bytes]:
        """See `EllipticPower.hashed`."""
        return self._raised([gmpy2.square(_wide_hash(one, 256)) % PRIME for one in ids])

    def again(self, wire: Any, party: str) -> list[bytes]:
        """See `EllipticPower.again`."""
        return self._raised(_residues(wire, party))

    def pack(self, points: Sequence[bytes]) -> Any:
        """See `EllipticPower.pack`."""
        return integers(int.from_bytes(one, "big") for one in points)

    def read(self, wire: Any, party: str) -> list[bytes]:
        """See `EllipticPower.read`."""
        return [int(one).to_bytes(_RESIDUE, "big") for one in _residues(wire, party)]

    def _raised(self, residues: Sequence[mpz]) -> list[bytes]:
        found = gmpy2.powmod_base_list(residues, self._exponent, PRIME) if residues else []
        return [int(one).to_bytes(_RESIDUE, "big") for one in found]


def _residues(wire: Any, party: str) -> list[mpz]:
    if not isinstance(wire, Integers) or not all(1 < one < PRIME - 1 for one in wire):
        raise PartyMessageError(f"party {party} has sent numbers that are no hashes of ids", party=party)
    return [mpz(one) for one in wire]


def power(method: str) -> EllipticPower | ModularPower:
    """Return a fresh secret power of a method."""
    return EllipticPower() if method == ECDH else ModularPower()


def tags(points: Sequence[bytes]) -> bytes:
    """Return the bytes of doubly raised points that are compared."""
    return b"".join(sha512(one).digest()[:_TAG] for one in points)


def split(wire: Any, width: int, party: str) -> list[bytes]:
    """Divide bytes into equal pieces. PartyMessageError: they are none."""
    if not isinstance(wire, bytes) or len(wire) % width:
        raise PartyMessageError(f"party {party} has sent ids of another form", party=party)
    return [wire[at : at + width] for at in range(0, len(wire), width)]


def shared_positions(mine: Any, theirs: Any, party: str) -> tuple[Array, Array]:
    """Return the positions of equal tags in both lists, in the order of the first one.

    PartyMessageError: a list is none, or has a tag twice.
    """
    own, other = split(mine, _TAG, party), split(theirs, _TAG, party)
    places = {tag: at for at, tag in enumerate(other)}
    if len(places) != len(other):
        raise PartyMessageError(f"party {party} has sent an id twice", party=party)
    pairs = [(at, places[tag]) for at, tag in enumerate(own) if tag in places]
    return np.array([at for at, _ in pairs], dtype=np.int64), np.array([at for _, at in pairs], dtype=np.int64)


def in_random_order(points: Sequence[bytes]) -> list[bytes]:
    """Return points in a secret order, so that nobody knows whose they are."""
    return [points[at] for at in shuffled(len(points)).tolist()]


class RsaSigner:
    """The host of the RSA method: a key, and signatures of hashes."""

    def __init__(self) -> None:
        while True:
            self._p, self._q = random_prime(_RSA_BITS // 2), random_prime(_RSA_BITS // 2)
            order = (self._p - 1) * (self._q - 1)
            if self._p != self._q and gmpy2.gcd(order, _E) == 1:
                break
        self.n = self._p * self._q
        d = gmpy2.invert(_E, order)
        self._dp, self._dq = d % (self._p - 1), d % (self._q - 1)
        self._inverse = gmpy2.invert(self._q, self._p)

    def sign(self, values: Sequence[mpz]) -> list[mpz]:
        """Return the signatures of numbers."""
        if not values:
            return []
        low = gmpy2.powmod_base_list([one % self._p for one in values], self._dp, self._p)
        high = gmpy2.powmod_base_list([one % self._q for one in values], self._dq, self._q)
        joined = zip(low, high, strict=True)
        return [b + self._q * ((a - b) * self._inverse % self._p) for a, b in joined]

    def signed_ids(self, ids: Sequence[str]) -> bytes:
        """Return the tags of the signatures of ids."""
        return tags([_bytes(one) for one in self.sign([_wide_hash(id, 256) % self.n for id in ids])])

    def signed_blind(self, wire: Any, party: str) -> Any:
        """Sign blinded hashes. PartyMessageError: they are none."""
        if not isinstance(wire, Integers) or not all(0 < one < self.n for one in wire):
            raise PartyMessageError(f"party {party} has sent numbers that are no blinded hashes", party=party)
        return integers(self.sign([mpz(one) for one in wire]))


class RsaBlinder:
    """The guest of the RSA method. PartyMessageError: the modulus of the host is none."""

    def __init__(self, n: Any, party: str) -> None:
        if not isinstance(n, int) or n.bit_length() < _RSA_BITS - 1 or n.bit_length() > 4 * _RSA_BITS or not n & 1:
            raise PartyMessageError(f"party {party} has sent a modulus that is none", party=party)
        self._n, self._party = mpz(n), party
        self._factors: list[mpz] = []

    def blinded(self, ids: Sequence[str]) -> Any:
        """Return the blinded hashes of ids."""
        self._factors = [mpz(secrets.randbelow(int(self._n) - 2) + 2) for _ in ids]
        pairs = zip(ids, self._factors, strict=True)
        return integers([_wide_hash(id, 256) * gmpy2.powmod(r, _E, self._n) % self._n for id, r in pairs])

    def tags(self, wire: Any) -> bytes:
        """Return the tags of the signatures of the ids."""
        if not isinstance(wire, Integers) or len(wire) != len(self._factors):
            raise PartyMessageError(f"party {self._party} has sent signatures of another number", party=self._party)
        pairs = zip(wire, self._factors, strict=True)
        try:
            return tags([_bytes(mpz(one) * gmpy2.invert(r, self._n) % self._n) for one, r in pairs])
        except ZeroDivisionError:  # the modulus has a small factor
            raise PartyMessageError(f"party {self._party} has sent a modulus that is none", party=self._party) from None


def _wide_hash(id: str, size: int) -> mpz:
    """Return a hash of an id of `size` bytes."""
    seed, found = sha512(b"weft psi " + id.encode()).digest(), b""
    while len(found) < size:
        found += sha512(seed + len(found).to_bytes(4, "big")).digest()
    return mpz(int.from_bytes(found[:size], "big"))


def _bytes(value: mpz) -> bytes:
    return int(value).to_bytes(int(value).bit_length() // 8 + 1, "big")
