"""The calling side of the transport between parties: channels, and the errors of calls that do not succeed."""

from __future__ import annotations

import socket
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Self

import grpc
from msgspec import Struct

from weft.model.errors import PartyIdentityError, PartyMessageError, PartyUnreachableError, UsageError, WeftError
from weft.parties.envelopes import MOST_BYTES, OVERHEAD, WINDOW_S, Envelope, new_id, pack, sign, unpack, verify
from weft.parties.failures import error_of
from weft.parties.identity import TLS_NAME, Signer, check_certificate, read_certificate
from weft.parties.mailboxes import Mailboxes
from weft.parties.sealing import Opener, seal
from weft.parties.site import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.parties.invitations import Invitation
    from weft.parties.peers import Peer, Peers
    from weft.parties.site import PartySite
    from weft.runtime.clock import WallClock

CALL: Final = "/weft.parties/Call"
INTRODUCE: Final = "/weft.parties/Introduce"
POLL: Final = "/weft.parties/Poll"
ANSWER: Final = "/weft.parties/Answer"
KEEPALIVE_MS: Final = 7_000
"""The silence of a connection after which it is probed."""
_PROBE_MS: Final = 5_000
"""How long the answer to a probe may take."""
_CONNECT_MS: Final = 8_000
"""How long a connection may take: some round trips, of a second each over a satellite or to a machine without a free
core. It is less than any call may take, so that a party whose network swallows all is told by its address.
"""


def limits(most: int) -> list[tuple[str, int]]:
    """Return the options of gRPC for messages with a body of at most `most` bytes."""
    return [
        ("grpc.max_receive_message_length", most + OVERHEAD),
        ("grpc.max_send_message_length", most + OVERHEAD),
    ]


class _Line(Struct):
    """An open channel to a party, what it was made for, the number of its calls, and whether it takes no more."""

    made_for: tuple[str, str, str]
    channel: Any
    calls: int = 0
    retired: bool = False


class PartyClient:
    """Calls other parties. For several threads.

    Connections are made at the first call, stay open, and are made again after a failure.
    """

    def __init__(
        self,
        site: PartySite,
        peers: Peers,
        clock: WallClock,
        *,
        window_s: float = WINDOW_S,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._site, self._peers, self._clock = site, peers, clock
        self._window, self._most = window_s, most_bytes
        self._signer = Signer(site.signing_key)
        self._lock = Lock()
        self._lines: dict[str, _Line] = {}
        self.mailboxes = Mailboxes()
        """Messages for parties that poll; the server of this party hands them out."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, party_id: str, path: str, body: bytes, timeout_s: float = 30.0) -> bytes:
        """Return what a party answers to a message within `timeout_s` seconds.

        PartyUnreachableError: it does not answer. PartyIdentityError, PartyMessageError: it refuses the message, or
        its answer is not signed by it. WeftError: it answered this error.
        """
        peer = self._peers.find(party_id)
        now = self._clock.wall()
        envelope, hop = Envelope(new_id(now), self._site.id, party_id, path, now, body), self._peers.carrier(peer)
        if hop is not peer:
            envelope = seal(envelope, peer.certificate.encode())
        packed = pack(sign(envelope, self._signer), self._most)
        try:
            data = self.deliver(hop, packed, timeout_s)
        except PartyUnreachableError as error:
            if hop is peer or error.party != hop.id:
                raise
            raise PartyUnreachableError(
                f"party {party_id} is reached through party {hop.id}, and {error.message}",
                party=hop.id,
                hint=error.hint,
            ) from None
        answer = unpack(data, party_id, self._most)
        verify(answer, self._peers, self._site.id, self._clock.wall(), self._window)
        if (answer.sender, answer.path, answer.answers) != (party_id, path, envelope.id) or not answer.outcome:
            raise PartyIdentityError(
                f"party {answer.sender} answered a message that was not sent to it",
                party=party_id,
                hint="If nobody repeats messages, the network or a relay does.",
            )
        opened = Opener(self._site.tls_key).opened(answer) if answer.sealed else answer.body
        if answer.outcome == "error":
            raise error_of(opened, party_id)
        return opened

    def deliver(self, peer: Peer, data: bytes, timeout_s: float) -> bytes:
        """Return the packed answer to a packed envelope that goes to a party, over no relay. PartyError: none came."""
        if not peer.address:
            return self.mailboxes.deliver(peer.id, data, timeout_s)
        return self.exchange(peer, CALL, data, timeout_s)

    def exchange(
        self, peer: Peer, method: str, data: bytes, timeout_s: float, began: Callable[[Any], None] | None = None
    ) -> bytes:
        """Return what a method of the server of a party answers. `began` gets the call, which can be cancelled."""
        line = self._line(peer)
        try:
            call = line.channel.unary_unary(method)
            if began is None:
                answer: bytes = call(data, timeout=timeout_s)
            else:  # slower: a call that can be cancelled has a thread
                future = call.future(data, timeout=timeout_s)
                began(future)
                answer = future.result()
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                # The next call connects at once on a new channel; this one would wait for its time of retries.
                self._retire(peer.id, line)
            raise _failure(error, peer.id, peer.address) from None
        except (grpc.FutureCancelledError, ValueError):
            raise PartyUnreachableError(f"the call of party {peer.id} was cancelled", party=peer.id) from None
        finally:
            self._release(line)
        return answer

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            lines, self._lines = list(self._lines.values()), {}
        for line in lines:
            line.channel.close()

    def _line(self, peer: Peer) -> _Line:
        """Return the channel to a party for one call, a new one if its address or a certificate has changed."""
        own = self._site.certificate
        wanted = (peer.address, peer.fingerprint, read_certificate(own).fingerprint)
        with self._lock:
            line = self._lines.get(peer.id)
            if line is not None and line.made_for == wanted:
                line.calls += 1
                return line
        if line is not None:
            self._retire(peer.id, line)
        check_certificate(own, self._site.id, self._clock.wall())
        check_certificate(peer.certificate.encode(), peer.id, self._clock.wall())
        with self._lock:
            line = self._lines.get(peer.id)
            if line is None:  # no other thread was faster
                line = self._lines[peer.id] = self._connected(peer, own, wanted)
            line.calls += 1
            return line

    def _retire(self, id: str, line: _Line) -> None:
        """Use a channel for no further call; the last one on it closes it."""
        with self._lock:
            if self._lines.get(id) is line:
                del self._lines[id]
            line.retired = True
            unused = not line.calls
        if unused:
            line.channel.close()

    def _release(self, line: _Line) -> None:
        with self._lock:
            line.calls -= 1
            unused = line.retired and not line.calls
        if unused:
            line.channel.close()

    def _connected(self, peer: Peer, own: bytes, made_for: tuple[str, str, str]) -> _Line:
        credentials = grpc.ssl_channel_credentials(peer.certificate.encode(), self._site.tls_key, own)
        channel = _channel(peer.address, credentials, self._most)
        return _Line(made_for, channel)


def introduce(invitation: Invitation, text: str, timeout_s: float = 10.0) -> None:
    """Introduce a party by its invitation `text` to the party whose invitation it has joined.

    PartyUnreachableError: that party does not answer. PartyIdentityError: its invitation was used or has expired.
    UsageError: its invitation allows no introduction. WeftError: that party does not accept the introduction.
    """
    if not (invitation.entry_key and invitation.address):
        raise UsageError(
            f"the invitation of party {invitation.id} allows no introduction",
            hint=f"Give the own invitation to party {invitation.id}.",
        )
    keys = invitation.entry_key.encode(), invitation.entry_certificate.encode()
    credentials = grpc.ssl_channel_credentials(invitation.certificate.encode(), *keys)
    with _channel(invitation.address, credentials, MOST_BYTES) as channel:
        try:
            channel.unary_unary(INTRODUCE)(text.encode(), timeout=timeout_s)
            return
        except grpc.RpcError as error:
            failure = _failure(error, invitation.id, invitation.address)
    # A server ends connections that come with the key of an invitation that it does not have any more.
    if isinstance(failure, PartyUnreachableError) and _listens(invitation.address, timeout_s):
        raise PartyIdentityError(
            f"party {invitation.id} does not take this invitation: it was used before",
            party=invitation.id,
            hint=f"If this party has used it, all is done. If not, ask party {invitation.id} for a new one.",
        )
    raise failure


def _listens(address: str, timeout_s: float) -> bool:
    """Whether a server takes connections at an address."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
    except OSError:
        return False
    return True


def _channel(address: str, credentials: Any, most: int) -> Any:
    return grpc.secure_channel(
        address,
        credentials,
        options=[
            *limits(most),
            ("grpc.ssl_target_name_override", TLS_NAME),
            ("grpc.default_authority", TLS_NAME),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", _PROBE_MS),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_time_between_pings_ms", KEEPALIVE_MS // 2),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),  # a message must not be sent twice
            ("grpc.enable_http_proxy", int(not is_loopback(address.rpartition(":")[0]))),
        ],
    )


def _failure(error: Any, id: str, address: str) -> WeftError:
    """Return the error for a call that gRPC could not complete."""
    code, details = error.code(), error.details() or ""
    if details.startswith("{"):
        return error_of(details.encode(), id)
    if "CERTIFICATE_VERIFY_FAILED" in details or "is not in peer certificate" in details:
        return PartyIdentityError(
            f"the server at {address} is not party {id}: its certificate is not the agreed one",
            party=id,
            hint=f"Check the address. If party {id} has a new certificate, join its new invitation with --replace.",
        )
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED and "limit" not in details.lower():
        return PartyMessageError(
            f"party {id} refuses a message by its size: {details[:200]}",
            party=id,
            hint="Send the data in several messages.",
        )
    if code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL):
        return PartyMessageError(
            f"the server of party {id} does not understand messages of this version: {details[:200]}",
            party=id,
            hint="Compare the versions of Weft of both parties.",
        )
    why = "in time" if code == grpc.StatusCode.DEADLINE_EXCEEDED else f"at {address}"
    return PartyUnreachableError(
        f"party {id} does not answer {why}",
        party=id,
        hint=f"Check that its server runs, that its address is right, and that party {id} has joined this one.",
    )
