"""Bodies that only their receiver can read, for messages over relays.

The key comes from a new key pair of the sender and the public key in the certificate of the receiver (ECDH on P-256,
HKDF with SHA-256), and encrypts one message with AES-256-GCM. Sender, receiver, path and id of the message are part of
the key: a relay that signs a message again in its own name gets no answer from which it could learn what is inside.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec.structs import replace

from weft.model.errors import PartyIdentityError, UnreadableError

if TYPE_CHECKING:
    from weft.parties.envelopes import Envelope

_TAG: Final = "weft.sealed/1"
_NONCE: Final = bytes(12)  # each key encrypts one message


def seal(envelope: Envelope, certificate: bytes) -> Envelope:
    """Return an unsigned envelope whose body only the owner of a certificate (PEM) can read."""
    receiver = _public_key(certificate)
    own = ec.generate_private_key(ec.SECP256R1())
    sealed = replace(envelope, sealed=_point(own.public_key()))
    key = _key(own.exchange(ec.ECDH(), receiver), sealed, _point(receiver))
    return replace(sealed, body=AESGCM(key).encrypt(_NONCE, envelope.body, None))


class Opener:
    """Opens what was sealed for the owner of a TLS key (PEM). UnreadableError: it is none."""

    def __init__(self, tls_key: bytes) -> None:
        try:
            key = serialization.load_pem_private_key(tls_key, None)
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise UnreadableError("the TLS key of this party is damaged", hint="Restore it from a backup.")
        self._key, self._point = key, _point(key.public_key())

    def opened(self, envelope: Envelope) -> bytes:
        """Return the body of an envelope, sealed or not. PartyIdentityError: it was sealed with another key."""
        if not envelope.sealed:
            return envelope.body
        try:
            theirs = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), envelope.sealed)
            key = _key(self._key.exchange(ec.ECDH(), theirs), envelope, self._point)
            return AESGCM(key).decrypt(_NONCE, envelope.body, None)
        except (InvalidTag, ValueError):
            raise PartyIdentityError(
                f"a message of party {envelope.sender} is not encrypted for the certificate of party {envelope.to}",
                party=envelope.sender,
                hint=f"If party {envelope.to} has a new certificate, party {envelope.sender} must join it again.",
            ) from None


def _key(shared: bytes, envelope: Envelope, receiver: bytes) -> bytes:
    bound = (
        _TAG,
        envelope.id,
        envelope.sender,
        envelope.to,
        envelope.path,
        envelope.answers,
        envelope.sealed,
        receiver,
    )
    return HKDF(hashes.SHA256(), 32, None, msgspec.msgpack.encode(bound)).derive(shared)


def _point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


@lru_cache(maxsize=256)
def _public_key(certificate: bytes) -> ec.EllipticCurvePublicKey:
    key = x509.load_pem_x509_certificate(certificate).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise PartyIdentityError("the certificate of a party has no key of P-256")
    return key
