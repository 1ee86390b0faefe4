"""The parties that a party knows: one file each, read again when it changes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from weft.frontends.federated.modules import ROLES
from weft.model.errors import ForbiddenError, NotFoundError, PartyIdentityError, UnreadableError, UsageError
from weft.model.suggestions import did_you_mean
from weft.parties.identity import read_certificate
from weft.parties.site import check_party_id, read_file, write_file

if TYPE_CHECKING:
    from pathlib import Path

    from weft.parties.site import PartySite


class Peer(Struct, frozen=True):
    """Another party, as this one knows it.

    `address` is HOST:PORT, or "" if this party cannot connect to it: it is reached through the party `via`, or it
    polls. `signing_key` is public, 32 bytes; `fingerprint` is that of `certificate` (PEM). It may act in `roles` only,
    if there are any. With `relays`, this party forwards messages of others to it.
    """

    id: str
    name: str
    address: str
    certificate: str
    signing_key: bytes
    fingerprint: str
    roles: tuple[str, ...] = ()
    via: str = ""
    relays: bool = False
    joined: float = 0.0

    def may_act_as(self, role: str) -> bool:
        """Whether it may act in a role."""
        return not self.roles or role in self.roles


_read_peer: Final = msgspec.json.Decoder(Peer).decode


class Peers:
    """The table of the parties in a folder. For several threads."""

    def __init__(self, site: PartySite) -> None:
        self._site = site
        self._lock = Lock()
        self._seen: tuple[object, ...] | None = None
        self._by_id: Mapping[str, Peer] = {}
        self._by_fingerprint: Mapping[str, Peer] = {}
        self.version = 0
        """Grows with each change of the table."""
        self.problems: tuple[str, ...] = ()
        """What is wrong with files that are left out."""

    def __iter__(self) -> Iterator[Peer]:
        self._refresh()
        return iter(sorted(self._by_id.values(), key=lambda peer: peer.id))

    def get(self, id: str) -> Peer | None:
        """Return a party, None if it is not known."""
        self._refresh()
        return self._by_id.get(id)

    def find(self, id: str) -> Peer:
        """Return a party. PartyIdentityError: it is not known."""
        peer = self.get(id)
        if peer is None:
            raise PartyIdentityError(
                f"party {id[:64]} is not known to party {self._site.id}",
                party=id[:64],
                hint="Join it with an invitation of that party: weft party join TEXT",
            )
        return peer

    def carrier(self, peer: Peer) -> Peer:
        """Return the party that messages for a party go to: its relay, or itself. PartyIdentityError: see `find`."""
        return self.find(peer.via) if peer.via else peer

    def check_relay(self, id: str, relay: str) -> None:
        """Require that a party can be reached through another one. UsageError: it cannot."""
        me, how = self._site.id, f"Join it first (weft party join TEXT), and then party {id} with --via {relay}."
        if relay in (me, id):
            whom = "this party itself" if relay == me else "the party that it would relay for"
            raise UsageError(f"--via {relay} is {whom}", hint="Name a third party, which both know.")
        known = self.get(relay)
        if known is None:
            raise UsageError(f"--via {relay[:64]}: party {relay[:64]} is not known to party {me}", hint=how)
        if known.via:
            raise UsageError(
                f"--via {relay}: party {relay} is reached through party {known.via}, and a message has one relay",
                hint="Name a party that is reached directly.",
            )

    def through(self, relay: str) -> list[str]:
        """Return the ids of the parties that are reached through a party."""
        return [peer.id for peer in self if peer.via == relay]

    def by_fingerprint(self, fingerprint: str) -> Peer | None:
        """Return the party with a certificate, None if there is none."""
        self._refresh()
        return self._by_fingerprint.get(fingerprint)

    def put(self, peer: Peer) -> None:
        """Write the file of a party."""
        check_party_id(peer.id)
        write_file(self._site.folder, f"peers/{peer.id}.json", msgspec.json.format(msgspec.json.encode(peer)))

    def remove(self, id: str) -> None:
        """Remove a party. NotFoundError: it is not known."""
        check_party_id(id)
        try:
            (self._site.peers / f"{id}.json").unlink()
        except FileNotFoundError:
            raise NotFoundError(f"party {id} is not known", hint="List parties: weft party peers") from None

    def _refresh(self) -> None:
        """Read the files again if one of them changed."""
        seen = _signature(self._site.peers)
        if seen == self._seen:
            return
        with self._lock:
            if seen == self._seen:
                return
            found, problems = {}, []
            for name, *_ in seen:
                try:
                    peer = _read(self._site.folder, name)
                    found[peer.id] = peer
                except (UnreadableError, ForbiddenError) as error:
                    problems.append(error.message)
                except NotFoundError:  # removed since
                    continue
            self.problems = tuple(problems)
            self._by_fingerprint = {peer.fingerprint: peer for peer in found.values()}
            self._by_id = found
            self.version += 1
            self._seen = seen


def check_roles(roles: Iterable[str]) -> None:
    """Require the names of roles. UsageError: one is none."""
    for role in roles:
        if role not in ROLES:
            raise UsageError(
                f"there is no role {role[:40]}", hint=did_you_mean(role, ROLES, f"There are {', '.join(ROLES)}.")
            )


def _signature(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    with os.scandir(folder) as entries:
        files = [(entry.name, entry.stat()) for entry in entries if entry.name.endswith(".json")]
    return tuple(sorted((name, about.st_mtime_ns, about.st_size, about.st_ino) for name, about in files))


def _read(folder: Path, name: str) -> Peer:
    path = folder / "peers" / name
    try:
        peer = _read_peer(read_file(folder, "peers", name))
        facts = read_certificate(peer.certificate.encode())
    except (msgspec.MsgspecError, PartyIdentityError) as error:
        raise UnreadableError(f"{path} is damaged: {error}") from None
    given = (f"{peer.id}.json", peer.fingerprint, (peer.signing_key.hex(),))
    if given != (name, facts.fingerprint, facts.signing_keys):
        raise UnreadableError(f"the name and the keys in {path} are not those of its certificate")
    return peer
