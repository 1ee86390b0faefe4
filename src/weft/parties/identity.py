"""Keys and certificates of a party.

The certificate is signed by itself: there is no authority that all parties trust, and each party pins the certificates
of the others. It names the party in the URI `urn:party:ID`. TLS uses the key of the certificate (EC P-256); messages
are signed with a second key (Ed25519), which the certificate names too, so that what a party said can be proven also
where a relay forwards it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from weft.model.errors import PartyIdentityError, UnreadableError

URN: Final = "urn:party:"
KEY_URN: Final = "urn:party-signing-key:"
"""Before the public signing key in hex: so the fingerprint of the certificate stands for both keys."""
TLS_NAME: Final = "weft-party"
"""A name in each certificate, which clients ask for: they pin certificates, and the names of hosts may change."""
_YEARS: Final = 5
_SKEW: Final = timedelta(days=1)
"""A new certificate is valid since yesterday, for partners whose clocks are behind."""


class NewIdentity(NamedTuple):
    """The keys and the certificate of a new party, as PEM."""

    tls_key: bytes
    certificate: bytes
    signing_key: bytes


class CertificateFacts(NamedTuple):
    """What a certificate says: its name, its parties and their public signing keys by URI (in hex), its fingerprint
    (SHA-256, in hex), and its validity in seconds.
    """

    subject: str
    parties: tuple[str, ...]
    signing_keys: tuple[str, ...]
    fingerprint: str
    starts: float
    ends: float


def make_identity(id: str, host: str, now: float) -> NewIdentity:
    """Return new keys and a certificate for a party."""
    signing = ed25519.Ed25519PrivateKey.generate()
    tls_key, certificate = make_certificate(id, host, now, signing.public_key().public_bytes_raw())
    return NewIdentity(tls_key, certificate, _private_pem(signing))


def make_certificate(
    id: str,
    host: str,
    now: float,
    signing_key: bytes,
    *,
    uri: str = "",
    common_name: str = "",
    days: float = 365 * _YEARS,
) -> tuple[bytes, bytes]:
    """Return a new private key and a certificate that it signs, as PEM.

    `signing_key` is the public one of the party; b"" for none. `uri` is by default that of the party, and
    `common_name` a new unique one.
    """
    uris = [uri or URN + id, *([KEY_URN + signing_key.hex()] if signing_key else [])]
    key = ec.generate_private_key(ec.SECP256R1())
    # TLS looks for a root by this name alone, and takes the first one of several: so no two may have the same.
    common_name = common_name or f"party {id[:16]} {secrets.token_hex(16)}"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    start = datetime.fromtimestamp(now, UTC)
    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _SKEW)
        .not_valid_after(start + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName(_names(uris, host)), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _private_pem(key), certificate.public_bytes(serialization.Encoding.PEM)


def _names(uris: Sequence[str], host: str) -> Sequence[x509.GeneralName]:
    names: dict[str, x509.GeneralName] = {uri: x509.UniformResourceIdentifier(uri) for uri in uris}
    for one in (TLS_NAME, "localhost", "127.0.0.1", host):
        try:
            names[one] = x509.IPAddress(ipaddress.ip_address(one.strip("[]")))
        except ValueError:
            if one and one.isascii():
                names[one] = x509.DNSName(one)
    return list(names.values())


def _private_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@lru_cache(maxsize=256)
def read_certificate(pem: bytes) -> CertificateFacts:
    """Return what a certificate says. PartyIdentityError: it is none."""
    try:
        return _facts(pem)
    except Exception as error:  # noqa: BLE001 - the library has many kinds for bytes of strangers
        raise PartyIdentityError(f"a certificate of a party cannot be read: {error}") from None


def _facts(pem: bytes) -> CertificateFacts:
    found = x509.load_pem_x509_certificates(pem)
    if len(found) != 1:
        raise ValueError(f"there are {len(found)} certificates")
    (certificate,) = found
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return CertificateFacts(
        certificate.subject.public_bytes().hex(),
        tuple(uri.removeprefix(URN) for uri in uris if uri.startswith(URN)),
        tuple(uri.removeprefix(KEY_URN) for uri in uris if uri.startswith(KEY_URN)),
        certificate.fingerprint(hashes.SHA256()).hex(),
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
    )


def check_profile(pem: bytes, id: str) -> None:
    """Require that a certificate is made as `make_certificate` does it. PartyIdentityError: it is not.

    TLS takes all certificates of peers together as roots; one that it could not read would keep out all parties.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        key = certificate.public_key()
        certificate.verify_directly_issued_by(certificate)
        own = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
        own = own and certificate.public_bytes(serialization.Encoding.PEM) == pem
    except Exception:  # noqa: BLE001 - as in read_certificate
        own = False
    if not own:
        raise PartyIdentityError(
            f"the certificate of party {id} is not a self-signed one of a P-256 key",
            party=id,
            hint=f"Party {id} must use the certificate that `weft party init` makes.",
        )


def check_certificate(pem: bytes, id: str, now: float) -> CertificateFacts:
    """Require that a certificate is one of this party and valid now. PartyIdentityError: it is not."""
    facts = read_certificate(pem)
    if facts.parties != (id,):
        said = ", ".join(facts.parties)[:200] or "no party"
        raise PartyIdentityError(
            f"the certificate of party {id} names {said}",
            party=id,
            hint=f"Ask party {id} for a new invitation, and compare fingerprints.",
        )
    if not facts.starts <= now < facts.ends:
        when = datetime.fromtimestamp(facts.ends if now >= facts.ends else facts.starts, UTC).strftime("%Y-%m-%d")
        raise PartyIdentityError(
            f"the certificate of party {id} {'expired on' if now >= facts.ends else 'is not valid before'} {when}",
            party=id,
            hint=f"Check the clock of this machine; party {id} can renew its certificate and invite again.",
        )
    return facts


class Signer:
    """Signs with the private key of a party. UnreadableError: the PEM holds no such key."""

    def __init__(self, pem: bytes) -> None:
        try:
            key = serialization.load_pem_private_key(pem, None)
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise UnreadableError(
                "the signing key of this party, keys/signing.pem, is damaged",
                hint="Restore it from a backup, or make a new party and exchange invitations again.",
            )
        self._key = key
        self.public = key.public_key().public_bytes_raw()
        """The public key, 32 bytes."""

    def sign(self, data: bytes) -> bytes:
        """Return the signature of data, 64 bytes."""
        return self._key.sign(data)


def check_keys(tls_key: bytes, certificate: bytes, signing_key: bytes) -> None:
    """Require that the keys and the certificate of this party belong together. UnreadableError: one is damaged."""
    hint = "Restore it from a backup. Or make it anew, which the others must join again: weft party renew"
    public = Signer(signing_key).public
    try:
        facts = _facts(certificate)
        certified = x509.load_pem_x509_certificate(certificate).public_key()
    except Exception:  # noqa: BLE001 - as in read_certificate
        raise UnreadableError("the certificate of this party, cert.pem, is damaged", hint=hint) from None
    try:
        own = serialization.load_pem_private_key(tls_key, None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UnreadableError("the TLS key of this party, keys/tls.pem, is damaged", hint=hint) from None
    if own != certified:
        raise UnreadableError("keys/tls.pem is not the key of the certificate of this party, cert.pem", hint=hint)
    if facts.signing_keys != (public.hex(),):
        raise UnreadableError("the certificate of this party, cert.pem, names another signing key", hint=hint)


@lru_cache(maxsize=256)
def _public(key: bytes) -> ed25519.Ed25519PublicKey:
    return ed25519.Ed25519PublicKey.from_public_bytes(key)


def is_signed(data: bytes, signature: bytes, key: bytes) -> bool:
    """Whether a signature of data was made by the owner of a public key of 32 bytes."""
    try:
        _public(key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of data in hex."""
    return hashlib.sha256(data).hexdigest()
