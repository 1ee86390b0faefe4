"""Calls between parties: gRPC over TLS with certificates on both sides, and a signed envelope in each direction.

Two things must agree before a message counts. The certificate of the connection is one that this party has pinned, and
its party is the sender of the envelope or forwards for it; and the sender has signed the envelope. The pinned
fingerprint matters: each pinned certificate is a root, so its owner could sign one with the name of another party.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import grpc

from weft.model.errors import (
    ConflictError,
    PartyError,
    PartyIdentityError,
    PartyMessageError,
    PartyRefusedError,
    WeftError,
)
from weft.model.masking import without_passwords
from weft.parties.calling import ANSWER, CALL, INTRODUCE, KEEPALIVE_MS, POLL, PartyClient, limits
from weft.parties.envelopes import (
    MOST_BYTES,
    WINDOW_S,
    Envelope,
    Outcome,
    SeenMessages,
    new_id,
    pack,
    sign,
    unpack,
    verify,
)
from weft.parties.failures import error_of, report_of
from weft.parties.identity import Signer, check_certificate, read_certificate
from weft.parties.invitations import MOST_TEXT, accept_introduction, open_certificates
from weft.parties.mailboxes import POLL_S, TICKET
from weft.parties.polling import FAILED, PartyPoller
from weft.parties.sealing import Opener, seal
from weft.parties.site import joined_address

if TYPE_CHECKING:
    from weft.parties.audit import AuditLog
    from weft.parties.peers import Peer, Peers
    from weft.parties.site import PartySite
    from weft.runtime.clock import WallClock

__all__ = ["Handler", "PartyClient", "PartyServer"]

Handler = Callable[["Peer", bytes], bytes]
"""Answers the body of a message of a party. A WeftError that it raises travels to the caller."""

_FORWARD_S: Final = 60.0
_LONGEST_FORWARD_S: Final = 3600.0
_MOST_POLLS: Final = 64
_log = logging.getLogger(__name__)
_CODES: Final = {
    PartyIdentityError: grpc.StatusCode.UNAUTHENTICATED,
    PartyMessageError: grpc.StatusCode.INVALID_ARGUMENT,
}


# ------------------------------------------------------------------------------------------------------------- server


class PartyServer:
    """Answers messages of other parties.

    `handlers` maps paths to what answers them; no other path exists. A message may be `window_s` seconds old and have a
    body of `most_bytes`. `threads` messages are handled at a time.

    With the `client` of this party it hands out messages to parties that poll, and forwards messages to parties that
    this one relays for; if others cannot connect to this party, it does not listen but polls.
    """

    def __init__(
        self,
        site: PartySite,
        peers: Peers,
        handlers: Mapping[str, Handler],
        clock: WallClock,
        audit: AuditLog,
        *,
        window_s: float = WINDOW_S,
        most_bytes: int = MOST_BYTES,
        threads: int = 32,
        client: PartyClient | None = None,
    ) -> None:
        self._site, self._peers, self._handlers, self._clock, self._audit = site, peers, handlers, clock, audit
        self._window, self._most, self._threads = window_s, most_bytes, threads
        self._signer = Signer(site.signing_key)
        self._seen = SeenMessages(window_s)
        self._roots = _Roots(site, peers, clock)
        self._client = client
        self._poller: PartyPoller | None = None
        self._server: Any = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> int:
        """Listen, and return the port; 0 if this party polls instead. ConflictError: the port is taken."""
        self._recall()
        if not self._site.address and self._client is not None:
            self._poller = PartyPoller(self._site.id, self._peers, self._client, self.receive, self._threads)
            self._poller.start()
            return 0
        config = self._roots.now()
        credentials = grpc.dynamic_ssl_server_credentials(config, self._roots.changed, True)
        methods = {CALL: self._answer, INTRODUCE: self._introduce}
        if self._client is not None:
            methods |= {POLL: self._polled, ANSWER: self._polled_answer}
        server = grpc.server(
            ThreadPoolExecutor(self._threads + _MOST_POLLS, "party"),
            handlers=(_Methods(self._site.id, methods),),
            options=[
                *limits(self._most),
                ("grpc.so_reuseport", 0),  # two servers with one port would share its messages
                ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 3),
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.keepalive_permit_without_calls", 1),
            ],
            maximum_concurrent_rpcs=8 * self._threads,
        )
        address = joined_address(self._site.listen, self._site.party.party_port)
        self.port = 0
        if _is_free(self._site.listen, self._site.party.party_port):
            with suppress(RuntimeError):
                self.port = server.add_secure_port(address, credentials)
        if not self.port:
            raise ConflictError(
                f"party {self._site.id} cannot listen on {address}",
                hint="Another process uses the port, perhaps a second server of this party; or the address is not "
                "one of this machine.",
            )
        self._server = server
        server.start()
        return self.port

    def stop(self, grace_s: float = 0.5) -> None:
        """Stop; calls that have not ended after `grace_s` are aborted. A second call does nothing."""
        server, self._server = self._server, None
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.stop()
        if server is not None:
            if self._client is not None:
                self._client.mailboxes.wake()  # polls see that the server stops
            server.stop(grace_s).wait()

    def _recall(self) -> None:
        """Remember the messages that an earlier process accepted, so that none comes again."""
        now = self._clock.wall()
        # A message is accepted at most one window before its own time, and is too old one window after it.
        for record in self._audit.recent(now - 2 * self._window):
            if record.decision == "accepted" and record.message:
                self._seen.restore(record.peer, record.message, record.sent, now)

    def receive(self, data: bytes, carrier: Peer, timeout_s: float = _FORWARD_S) -> bytes:
        """Return the signed answer to a packed envelope that came over a connection of `carrier`.

        PartyError: it is refused; the refusal is in the audit log.
        """
        envelope = None
        try:
            envelope = unpack(data, carrier.id, self._most)
            if envelope.to != self._site.id and self._client is not None:
                return self._forwarded(self._client, envelope, data, carrier, timeout_s)
            peer = self._accepted(envelope, carrier)
            handler = self._handlers.get(envelope.path)
            if handler is None:
                raise PartyMessageError(
                    f"party {peer.id} asked for {envelope.path}, which party {self._site.id} does not have",
                    party=peer.id,
                    hint="Compare the versions of Weft of both parties.",
                )
        except PartyError as error:
            self._refuse(error, carrier.id, envelope)
            raise
        self._audit.append("accepted", peer=peer.id, path=envelope.path, message=envelope.id, sent=envelope.time)
        return self._handled(handler, peer, envelope)

    def _forwarded(
        self, client: PartyClient, envelope: Envelope, data: bytes, carrier: Peer, timeout_s: float
    ) -> bytes:
        """Return the answer of the party to which a message goes on, unchanged in both directions."""
        target, me = self._peers.get(envelope.to), self._site.id
        if envelope.sender != carrier.id:
            raise PartyIdentityError(
                f"party {carrier.id} sent a message in the name of party {envelope.sender} to relay {me}",
                party=carrier.id,
                hint="A relay forwards only what a party has sent itself; messages have one relay.",
            )
        if target is None or not target.relays:
            why = "does not know it" if target is None else "has joined it without --relay"
            raise PartyRefusedError(
                f"party {me} does not forward messages to party {envelope.to}: it {why}",
                party=me,
                hint=f"At party {me}: weft party join TEXT_OF_PARTY_{envelope.to} --relay",
            )
        now = self._clock.wall()
        verify(envelope, self._peers, envelope.to, now, self._window)
        self._seen.check(envelope, now)
        self._audit.append(
            "accepted",
            peer=carrier.id,
            path=envelope.path,
            message=envelope.id,
            sent=envelope.time,
            reason=f"forwarded to party {target.id}",
        )
        return client.deliver(target, data, timeout_s)

    def _accepted(self, envelope: Envelope, carrier: Peer) -> Peer:
        if envelope.sender != carrier.id:
            sender = self._peers.get(envelope.sender)
            if sender is None or sender.via != carrier.id:
                raise PartyIdentityError(
                    f"party {carrier.id} sent a message in the name of party {envelope.sender}",
                    party=carrier.id,
                    hint=f"If party {carrier.id} relays for it, join party {envelope.sender} at party {self._site.id} "
                    f"with --via {carrier.id}.",
                )
        now = self._clock.wall()
        peer = verify(envelope, self._peers, self._site.id, now, self._window)
        if envelope.answers or envelope.outcome:
            raise PartyMessageError(f"party {peer.id} sent an answer to no question", party=peer.id)
        self._seen.check(envelope, now)
        return peer

    def _handled(self, handler: Handler, peer: Peer, envelope: Envelope) -> bytes:
        me = self._site.id
        try:
            body = Opener(self._site.tls_key).opened(envelope) if envelope.sealed else envelope.body
            return self._packed(peer, envelope, "answer", handler(peer, body))
        except WeftError as error:
            self._refuse(error, peer.id, envelope)
            return self._packed(peer, envelope, "error", report_of(error, me))
        except Exception as error:  # noqa: BLE001 - a fault here must not look like silence there
            _log.exception("a message of party %s for %s failed", peer.id, envelope.path)
            fault = PartyError(
                f"party {me} has a fault while it answers {envelope.path} ({type(error).__name__})",
                party=me,
                hint=f"The log of party {me} has the details.",
            )
            self._refuse(fault, peer.id, envelope)
            return self._packed(peer, envelope, "error", report_of(fault, me))

    def _packed(self, peer: Peer, asked: Envelope, outcome: Outcome, body: bytes) -> bytes:
        now = self._clock.wall()
        answer = Envelope(new_id(now), self._site.id, asked.sender, asked.path, now, body, asked.id, outcome)
        if asked.sealed:
            answer = seal(answer, peer.certificate.encode())
        return pack(sign(answer, self._signer), self._most)

    def _refuse(self, error: WeftError, peer: str, envelope: Envelope | None) -> None:
        path, message = ("", "") if envelope is None else (envelope.path, envelope.id)
        self._audit.append(
            "refused", peer=peer, path=path, message=message, reason=without_passwords(f"{error.code} {error.message}")
        )

    def _answer(self, data: bytes, context: Any) -> bytes:
        remaining = context.time_remaining()
        timeout_s = _FORWARD_S if remaining is None else min(remaining, _LONGEST_FORWARD_S)
        return self.receive(data, self._carrier(context), timeout_s)

    def _polled(self, data: bytes, context: Any) -> bytes:
        """Answer a poll: with the next message for the party of the connection, behind its ticket, or b""."""
        assert self._client is not None
        boxes, carrier = self._client.mailboxes, self._carrier(context)
        context.add_callback(boxes.wake)
        return boxes.take(carrier.id, POLL_S, lambda: self._server is not None and context.is_active())

    def _polled_answer(self, data: bytes, context: Any) -> bytes:
        """Take the answer to a message that a party has polled: its ticket, a byte for success, and the answer."""
        assert self._client is not None
        ticket, state, answer = data[:TICKET], data[TICKET : TICKET + 1], data[TICKET + 1 :]
        carrier = self._carrier(context)
        refusal = error_of(answer, carrier.id) if state == FAILED else None
        self._client.mailboxes.answer(carrier.id, ticket, answer, refusal)
        return b""

    def _introduce(self, data: bytes, context: Any) -> bytes:
        """Join the party that introduces itself by an invitation of this one."""
        try:
            fingerprint = read_certificate(_certificate_of(context)).fingerprint
            text = data[:MOST_TEXT].decode("ascii", "replace")
            peer = accept_introduction(self._site, self._peers, fingerprint, text, self._clock.wall())
        except WeftError as error:
            self._refuse(error, "", None)
            raise
        self._audit.append("accepted", peer=peer.id, reason=f"introduced with certificate {peer.fingerprint}")
        return b""

    def _carrier(self, context: Any) -> Peer:
        """Return the party of a connection. PartyIdentityError: its certificate is not pinned."""
        pem = _certificate_of(context)
        try:
            facts = read_certificate(pem)
            peer = self._peers.by_fingerprint(facts.fingerprint)
            if peer is None:
                raise PartyIdentityError(
                    f"the certificate {facts.fingerprint[:16]} in the name of party "
                    f"{', '.join(facts.parties)[:64] or '?'} is not known to party {self._site.id}",
                    party=next(iter(facts.parties), "")[:64],
                    hint="Join the party with an invitation of it: weft party join TEXT",
                )
            check_certificate(pem, peer.id, self._clock.wall())
        except PartyIdentityError as error:
            self._refuse(error, error.party, None)
            raise
        return peer


def _is_free(host: str, port: int) -> bool:
    """Whether a server may listen at an address; gRPC would print lines of its own if not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError:
        return False
    return True


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The methods of the server of party `me`; others do not exist. A WeftError of one is told to the caller."""

    def __init__(self, me: str, methods: Mapping[str, Callable[[bytes, Any], bytes]]) -> None:
        self._me = me
        self._methods = {name: grpc.unary_unary_rpc_method_handler(self._guarded(one)) for name, one in methods.items()}

    def service(self, handler_call_details: Any) -> Any:
        return self._methods.get(handler_call_details.method)

    def _guarded(self, answer: Callable[[bytes, Any], bytes]) -> Callable[[bytes, Any], bytes]:
        def guarded(data: bytes, context: Any) -> bytes:
            failure: WeftError
            try:
                return answer(data, context)
            except WeftError as error:
                failure = error
            except Exception:  # noqa: BLE001 - gRPC would tell it to the stranger
                _log.exception("a message of another party failed")
                failure = PartyError(
                    f"party {self._me} has a fault",
                    party=self._me,
                    hint=f"The log of party {self._me} has the details.",
                )
            return _abort(context, failure, self._me)

        return guarded


class _Roots:
    """What the server shows and whom it trusts, made again when a party joins or the own certificate changes."""

    def __init__(self, site: PartySite, peers: Peers, clock: WallClock) -> None:
        self._site, self._peers, self._clock = site, peers, clock
        self._seen: object = None

    def now(self) -> Any:
        """Return the configuration of TLS."""
        own = self._site.certificate
        self._seen = self._state()
        # The own certificate stands for the peers of a party without any: gRPC needs one root.
        known = [peer.certificate.encode() for peer in self._peers]
        roots = [own, *known, *open_certificates(self._site, self._clock.wall())]
        return grpc.ssl_server_certificate_configuration([(self._site.tls_key, own)], b"\n".join(roots))

    def changed(self) -> Any:
        """Return the configuration for a new connection, None for the last one."""
        try:
            return None if self._seen == self._state() else self.now()
        except Exception:  # noqa: BLE001 - gRPC would end the process of an exception here
            _log.exception("the certificates of peers cannot be read")
            return None

    def _state(self) -> object:
        self._peers.get("")
        changing = (self._site.folder / "cert.pem", self._site.invitations)
        return self._peers.version, *(path.stat().st_mtime_ns for path in changing)


def _certificate_of(context: Any) -> bytes:
    """Return the certificate of the other side of a connection, as PEM."""
    return b"".join(context.auth_context().get("x509_pem_cert", ()))


def _abort(context: Any, error: WeftError, me: str) -> NoReturn:
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), grpc.StatusCode.FAILED_PRECONDITION)
    context.abort(code, report_of(error, me).decode())
    raise AssertionError("abort raises")
