"""Two parties that know each other, with servers on the loopback interface."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weft.parties.audit import AuditLog, read_audit
from weft.parties.identity import Signer
from weft.parties.invitations import invite, join
from weft.parties.peers import Peer, Peers
from weft.parties.site import PartySite
from weft.parties.transport import Handler, PartyClient, PartyServer

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_800_000_000.0


class SetClock:
    """A clock that stands still unless it is set."""

    def __init__(self, at: float = NOW) -> None:
        self.at = at

    def wall(self) -> float:
        return self.at


class RealParty:
    """A party with all its parts. Real connections check certificates by the real time, so its clock is real."""

    def __init__(self, folder: Path, id: str, clock, **options) -> None:
        self.clock = clock
        self.site = PartySite.create(folder / id, id, clock=clock, **options)
        self.peers = Peers(self.site)
        self.audit = AuditLog(self.site.audit, id, clock)
        self.client = PartyClient(self.site, self.peers, clock)
        self.signer = Signer(self.site.signing_key)

    def knows(self, *others: RealParty) -> None:
        for other in others:
            join(self.site, invite(other.site, self.clock.wall()), self.clock.wall(), replace=True)

    def set(self, peer: str, **fields) -> None:
        from msgspec.structs import replace

        self.peers.put(replace(self.peers.find(peer), **fields))

    def server(self, handlers: Mapping[str, Handler] | None = None, **options) -> PartyServer:
        options = {"threads": 4, "client": self.client, **options}
        return PartyServer(self.site, self.peers, handlers or {"/echo": echo}, self.clock, self.audit, **options)

    def refusals(self) -> list[str]:
        return [one.reason for one in read_audit(self.site.audit) if one.decision == "refused"]

    def close(self) -> None:
        self.client.close()
        self.audit.close()


def echo(peer: Peer, body: bytes) -> bytes:
    return peer.id.encode() + b":" + body


class Noting:
    """A handler that keeps the bodies that it gets."""

    def __init__(self) -> None:
        self.called: list[bytes] = []

    def __call__(self, peer: Peer, body: bytes) -> bytes:
        self.called.append(body)
        return b""


@contextmanager
def parties(folder: Path, clock, *ids: str, outbound: tuple[str, ...] = ()):
    made = [RealParty(folder, id, clock, **({"host": ""} if id in outbound else {})) for id in ids]
    try:
        for one in made:
            one.knows(*(other for other in made if other is not one))
        yield made
    finally:
        for one in made:
            one.close()
