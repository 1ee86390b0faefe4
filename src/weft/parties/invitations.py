"""Invitations: one line of text with which a party makes itself known to another.

An invitation has the address, the certificate and the public signing key of a party, signed by it. It is as good as the
way on which it came: partners compare the fingerprint, which stands for both keys.

An invitation can also hold a key for one introduction: a certificate of TLS with its private key, made for this text
alone. The server of the inviter lets its holder introduce one party, once, and nothing else. So one text joins both
sides, and still nobody without a certificate can speak to the server.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace as changed

from weft.model.errors import ConflictError, ForbiddenError, NotFoundError, PartyIdentityError, UsageError
from weft.parties.identity import (
    Signer,
    check_certificate,
    check_profile,
    is_signed,
    make_certificate,
    read_certificate,
)
from weft.parties.peers import Peer, Peers
from weft.parties.site import check_party_id, is_address, read_file, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.parties.site import PartySite

DAYS: Final = 7.0
_DAY_S: Final = 86400.0
_SKEW_S: Final = 300.0
_TAG: Final = "weft.invitation/1"
_INTRODUCTION: Final = "urn:party-introduction"
MOST_TEXT: Final = 20_000


class Invitation(Struct, frozen=True, forbid_unknown_fields=True):
    """What an invitation says. Times are in seconds since 1970.

    `entry_key` and `entry_certificate` (PEM) allow one introduction at the server of the party; "" for none.
    """

    tag: str
    id: str
    name: str
    address: str
    certificate: str
    signing_key: bytes
    created: float
    expires: float
    entry_key: str = ""
    entry_certificate: str = ""
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        """Return the canonical bytes of all fields but the signature."""
        return _encoder.encode(changed(self, signature=b""))

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the certificate, in hex."""
        return read_certificate(self.certificate.encode()).fingerprint


class OpenInvitation(Struct, frozen=True):
    """An invitation of this party that one other may still use; `certificate` is that of its entry."""

    certificate: str
    expires: float


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Invitation)


def invite(site: PartySite, now: float, *, days: float = DAYS, introduces: bool = False) -> str:
    """Return an invitation of a party as one line of base64url.

    With `introduces` it is worth one introduction, so it must be sent in secret, as a password. UsageError: no positive
    number of days.
    """
    if not 0 < days <= 365:
        raise UsageError(f"an invitation for {days:g} days is not possible", hint="Choose more than 0 and at most 365.")
    signer, expires = Signer(site.signing_key), now + days * _DAY_S
    key, certificate = _entry(site, now, days, expires) if introduces else ("", "")
    invitation = Invitation(
        _TAG,
        site.id,
        site.party.name,
        site.address,
        site.certificate.decode(),
        signer.public,
        now,
        expires,
        key,
        certificate,
    )
    signed = changed(invitation, signature=signer.sign(invitation.signed_bytes()))
    return urlsafe_b64encode(_encoder.encode(signed)).decode().rstrip("=")


def read_invitation(text: str, now: float) -> Invitation:
    """Return a valid invitation. UsageError: the text is none. PartyIdentityError: it is forged, changed or expired."""
    text = "".join(text.split())
    try:
        if len(text) > MOST_TEXT:
            raise ValueError("it is too long")
        invitation = _decoder.decode(urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
        if invitation.tag != _TAG:
            raise ValueError("it is of another version")
        check_party_id(invitation.id)
        if invitation.address and not is_address(invitation.address):
            raise ValueError("its address is not HOST:PORT")
    except (binascii.Error, msgspec.MsgspecError, ValueError, UsageError) as error:
        raise UsageError(
            f"the text is no invitation: {error}",
            hint="Copy the whole line that `weft party invite` prints.",
        ) from None
    id = invitation.id
    facts = check_certificate(invitation.certificate.encode(), id, now)
    check_profile(invitation.certificate.encode(), id)
    signed = is_signed(invitation.signed_bytes(), invitation.signature, invitation.signing_key)
    if not signed or facts.signing_keys != (invitation.signing_key.hex(),):
        raise PartyIdentityError(
            f"the invitation of party {id} was changed on the way: its signature is wrong",
            party=id,
            hint=f"Ask party {id} for it again, on another way.",
        )
    if not invitation.created - _SKEW_S <= now < invitation.expires:
        raise PartyIdentityError(
            f"the invitation of party {id} {'has expired' if now >= invitation.expires else 'is from the future'}",
            party=id,
            hint=f"Ask party {id} for a new one, and compare the clocks.",
        )
    return invitation


def join(site: PartySite, text: str, now: float, *, replace: bool = False) -> Peer:
    """Make the party of an invitation known to this one, and return it.

    With `replace` a known party gets new keys; what this party has set for it stays. UsageError: the text is no
    invitation, or one of this party. PartyIdentityError: it is forged, changed or expired. ConflictError: the party is
    known with other keys.
    """
    peers = Peers(site)
    peer = _checked(site, peers, read_invitation(text, now), now, replace=replace)
    peers.put(peer)
    return peer


def _checked(site: PartySite, peers: Peers, invitation: Invitation, now: float, *, replace: bool) -> Peer:
    id = invitation.id
    if id == site.id:
        raise UsageError(f"this is an invitation of party {id} itself", hint="Give it to the other party.")
    known = peers.get(id)
    if known is not None and not replace and known.certificate != invitation.certificate:
        raise ConflictError(
            f"party {id} is known with certificate {known.fingerprint[:16]}, not {invitation.fingerprint[:16]}",
            hint=f"If party {id} says that its keys are new, compare fingerprints and add --replace.",
        )
    if known is None and not replace and (site.peers / f"{id}.json").exists():
        raise ConflictError(
            f"party {id} is known, but its file is damaged", hint="See weft party peers; --replace writes it again."
        )
    others = [site.certificate, *(peer.certificate.encode() for peer in peers if peer.id != id)]
    subject = read_certificate(invitation.certificate.encode()).subject
    if any(read_certificate(one).subject == subject for one in others):
        raise PartyIdentityError(
            f"the certificate of party {id} has the name of that of another party",
            party=id,
            hint=f"Party {id} must renew its certificate. Such a name would keep the other party out.",
        )
    base = known or Peer(id, "", "", "", b"", "")
    return changed(
        base,
        name=invitation.name,
        address=invitation.address,
        certificate=invitation.certificate,
        signing_key=invitation.signing_key,
        fingerprint=invitation.fingerprint,
        joined=now,
    )


# ----------------------------------------------------------------------------------------------------- introductions


def _entry(site: PartySite, now: float, days: float, expires: float) -> tuple[str, str]:
    """Open an entry for one introduction; return its private key and certificate."""
    for name, one in _entries(site):
        if one.expires <= now:
            (site.invitations / name).unlink(missing_ok=True)
    key, certificate = make_certificate(site.id, "", now, b"", uri=_INTRODUCTION, days=days)
    name = f"invitations/{read_certificate(certificate).fingerprint}.json"
    write_file(site.folder, name, msgspec.json.encode(OpenInvitation(certificate.decode(), expires)))
    return key.decode(), certificate.decode()


def _entries(site: PartySite) -> Iterator[tuple[str, OpenInvitation]]:
    for path in sorted(site.invitations.glob("*.json")):
        try:
            data = read_file(site.folder, "invitations", path.name)
            yield path.name, msgspec.json.decode(data, type=OpenInvitation)
        except (NotFoundError, ForbiddenError, msgspec.MsgspecError):  # used by now, or not made by this module
            continue


def open_certificates(site: PartySite, now: float) -> list[bytes]:
    """Return the certificates (PEM) of the introductions that are still open."""
    return [one.certificate.encode() for _, one in _entries(site) if one.expires > now]


def accept_introduction(site: PartySite, peers: Peers, fingerprint: str, text: str, now: float) -> Peer:
    """Join the party of an invitation that came by the entry with this fingerprint, which closes.

    PartyIdentityError: there is no such entry, or the invitation is forged, changed or expired. UsageError,
    ConflictError: as for `join`; the entry stays open.
    """
    name = f"{fingerprint}.json"
    entry = next((one for each, one in _entries(site) if each == name), None)
    refusal = PartyIdentityError(
        f"the invitation of party {site.id} was used, has expired, or was not made by it",
        hint=f"Ask party {site.id} for a new invitation.",
    )
    if entry is None or entry.expires <= now or read_certificate(entry.certificate.encode()).fingerprint != fingerprint:
        raise refusal
    peer = _checked(site, peers, read_invitation(text, now), now, replace=False)
    try:
        (site.invitations / name).unlink()  # only one of several at a time succeeds
    except FileNotFoundError:
        raise refusal from None
    peers.put(peer)
    return peer
