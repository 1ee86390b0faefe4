"""Keys by the parameters of a file: `encrypt_param` with `method` and `key_length`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import gmpy2
from gmpy2 import mpz

from weft.frontends.federated.crypto.ciphers import PAILLIER, PLAIN, PrivateKey, PublicKey
from weft.frontends.federated.crypto.paillier import MOST_BITS, PaillierKey, generate
from weft.frontends.federated.crypto.plain import PlainKey
from weft.model.errors import PartyMessageError, UsageError

FLOOR_BITS: Final = 2048
"""The shortest key; a file that asks for a shorter one gets this."""
_AFFINE: Final = ("iterativeaffine", "randomiterativeaffine")


def cipher_of(parameters: Mapping[str, Any]) -> tuple[str, int, list[str]]:
    """Return the method, the length of keys in bits, and notes about what is done otherwise than the file says.

    UsageError: there is no such method.
    """
    given = parameters.get("encrypt_param")
    given = given if isinstance(given, Mapping) else {}
    method, notes = str(given.get("method") or PAILLIER), []
    if method.lower() in _AFFINE:
        notes.append(f"{method} is not secure: Paillier is used")
    elif method.lower() not in (PAILLIER, PLAIN):
        raise UsageError(f"encrypt_param.method is {method!r}", hint="Use Paillier.")
    try:
        bits = int(given.get("key_length") or FLOOR_BITS)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            f"encrypt_param.key_length is {given.get('key_length')!r}", hint="Use a number of bits."
        ) from None
    if bits > MOST_BITS:
        raise UsageError(f"encrypt_param.key_length is {bits}", hint=f"Use at most {MOST_BITS}.")
    if bits < FLOOR_BITS:
        notes.append(f"keys of {bits} bits are too short: {FLOOR_BITS} bits are used")
        bits = FLOOR_BITS
    return (PLAIN if method.lower() == PLAIN else PAILLIER), bits, notes


def asks_for_plain(parameters: Mapping[str, Any]) -> bool:
    """Whether the parameters of a component ask for no encryption."""
    given = parameters.get("encrypt_param")
    return isinstance(given, Mapping) and str(given.get("method")).lower() == PLAIN


def make_keys(method: str, bits: int) -> PrivateKey:
    """Return a new key pair; UsageError: there is no such method, or no such length."""
    if method == PLAIN:
        return PlainKey()  # type: ignore[return-value]
    if method == PAILLIER:
        return generate(bits)  # type: ignore[return-value]
    raise UsageError(f"there is no encryption {method!r}", hint="Use Paillier.")


def read_key(wire: Any, *, plain: bool = False, least_bits: int = FLOOR_BITS) -> PublicKey:
    """Return the public key that a part has sent. `plain` allows the key of no encryption.

    PartyMessageError: it is none, one that encrypts nothing, or one of less than `least_bits` bits.
    """
    if isinstance(wire, Mapping) and wire.get("method") == PLAIN and plain:
        return PlainKey()  # type: ignore[return-value]
    n = wire.get("n") if isinstance(wire, Mapping) and wire.get("method") == PAILLIER else None
    h = wire.get("h") if n is not None else None
    if type(n) is not int or type(h) is not int or not 1 < h < n - 1 or not n & 1:
        raise PartyMessageError("a part has sent a key that is none")
    if not least_bits <= n.bit_length() <= MOST_BITS:
        raise PartyMessageError(
            f"a part has sent a key of {n.bit_length()} bits; {least_bits} to {MOST_BITS} are allowed"
        )
    # a square times -1 modulo two primes that are 3 modulo 4 has the symbol 1
    if gmpy2.jacobi(h, n) != 1 or gmpy2.is_prime(n):
        raise PartyMessageError("a part has sent a key whose numbers do not fit each other")
    return PaillierKey(mpz(n), mpz(h))  # type: ignore[return-value]
