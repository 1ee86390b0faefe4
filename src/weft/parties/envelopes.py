"""Signed messages between parties.

An envelope has everything that a message means, also its receiver, path and time, and one signature over all of it.
So it is worth nothing at another party, at another path, later, or a second time; a relay can forward it but not
change it.
"""

from __future__ import annotations

import hashlib
import heapq
import secrets
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from weft.model.errors import PartyIdentityError, PartyMessageError
from weft.parties.identity import Signer, is_signed

if TYPE_CHECKING:
    from weft.parties.peers import Peer, Peers

WINDOW_S: Final = 300.0
MOST_BYTES: Final = 64 << 20
"""The largest body of a message; more data travels in several."""
OVERHEAD: Final = 4096
"""The most bytes of an envelope beside its body."""
_TAG: Final = "weft.envelope/1"
_SEAL: Final = 16
"""The bytes that encryption adds."""
_REMEMBERED: Final = 65536

_Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
_Path = Annotated[str, Meta(pattern=r"^/[A-Za-z0-9_./-]{1,255}\Z")]
_OptionalId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{0,64}\Z")]
Outcome = Literal["", "answer", "error"]


class Envelope(Struct, frozen=True, forbid_unknown_fields=True):
    """A message. `time` is in seconds since 1970.

    `answers` is the id of the message that it answers and `outcome` whether with a result or an error; both are "" in
    a request. `sealed` is the public key with which the body is encrypted, b"" if it is plain.
    """

    id: _Id
    sender: _Id
    to: _Id
    path: _Path
    time: float
    body: bytes
    answers: _OptionalId = ""
    outcome: Outcome = ""
    sealed: Annotated[bytes, Meta(max_length=65)] = b""
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        """Return the canonical bytes of all fields but the signature; the body is in it by its SHA-256."""
        digest = hashlib.sha256(self.body).digest()
        head = (_TAG, self.id, self.sender, self.to, self.path, self.time, self.answers, self.outcome)
        return _encoder.encode((*head, self.sealed, digest))

    def is_beyond(self, most: int) -> bool:
        """Whether the body has more than `most` bytes before it was encrypted."""
        return len(self.body) > most + (_SEAL if self.sealed else 0)


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Envelope)


def new_id(now: float) -> str:
    """Return a unique id that sorts by time, as UUIDs of version 7 do."""
    return f"{int(now * 1000) & (1 << 48) - 1:012x}{secrets.token_hex(10)}"


def sign(envelope: Envelope, signer: Signer) -> Envelope:
    """Return an envelope with the signature of its sender."""
    return replace(envelope, signature=signer.sign(envelope.signed_bytes()))


def pack(envelope: Envelope, most: int = MOST_BYTES) -> bytes:
    """Return an envelope as MessagePack. PartyMessageError: its body has more than `most` bytes."""
    if envelope.is_beyond(most):
        raise PartyMessageError(
            f"a message of party {envelope.sender} for {envelope.path} has {len(envelope.body):,} bytes; "
            f"{most:,} are allowed",
            party=envelope.sender,
            hint="Send the data in several messages.",
        )
    return _encoder.encode(envelope)


def unpack(data: bytes, party: str, most: int = MOST_BYTES) -> Envelope:
    """Return the envelope in bytes from a party. PartyMessageError: they hold none, or a body beyond `most` bytes."""
    try:
        envelope = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PartyMessageError(
            f"party {party} sent bytes that are no message: {error}",
            party=party,
            hint="Compare the versions of Weft of both parties.",
        ) from None
    if envelope.is_beyond(most):
        raise PartyMessageError(
            f"party {party} sent a message of {len(envelope.body):,} bytes; {most:,} are allowed",
            party=party,
            hint=f"Party {party} must send the data in several messages.",
        )
    return envelope


def verify(envelope: Envelope, peers: Peers, me: str, now: float, window_s: float = WINDOW_S) -> Peer:
    """Return the sender of an envelope, which has signed it for party `me` at about this time.

    PartyIdentityError: the sender is not known, has not signed it, or has addressed it to another party.
    PartyMessageError: its time is more than `window_s` seconds away.
    """
    sender = envelope.sender
    peer = peers.find(sender)
    if not is_signed(envelope.signed_bytes(), envelope.signature, peer.signing_key):
        raise PartyIdentityError(
            f"a message in the name of party {sender} does not have its signature",
            party=sender,
            hint=f"If party {sender} has new keys, join it again with a new invitation; otherwise somebody forges it.",
        )
    if envelope.to != me:
        raise PartyIdentityError(
            f"a message of party {sender} to party {envelope.to} arrived at party {me}",
            party=sender,
            hint=f"Check the address of party {envelope.to} at party {sender}.",
        )
    if not abs(now - envelope.time) <= window_s:  # a time that is not a number fails too
        raise PartyMessageError(
            f"a message of party {sender} is {abs(now - envelope.time):.0f} s "
            f"{'old' if now > envelope.time else 'ahead'} by the clock of party {me}; {window_s:.0f} s are allowed",
            party=sender,
            hint="Set both clocks, for example by NTP, or allow more seconds.",
        )
    return peer


class SeenMessages:
    """The ids of the messages of a window of time, to refuse a message that comes again. For several threads.

    For each sender it remembers at most `most` ids. Beyond them it forgets the oldest, and refuses all that are not
    newer than that one.
    """

    def __init__(self, window_s: float = WINDOW_S, most: int = _REMEMBERED) -> None:
        self._window, self._most = window_s, most
        self._lock = Lock()
        self._ids: dict[str, set[str]] = {}
        self._heaps: dict[str, list[tuple[float, str]]] = {}
        self._floors: dict[str, float] = {}

    def restore(self, sender: str, id: str, sent: float, now: float) -> None:
        """Remember a message that an earlier process accepted."""
        with self._lock:
            self._add(sender, id, sent, now)

    def check(self, envelope: Envelope, now: float) -> None:
        """Remember a verified envelope. PartyIdentityError: it was there before."""
        sender = envelope.sender
        with self._lock:
            if not self._add(sender, envelope.id, envelope.time, now):
                raise PartyIdentityError(
                    f"the message {envelope.id} of party {sender} came before",
                    party=sender,
                    hint="Each message counts once. If nobody repeats messages, the network or a relay does.",
                )

    def _add(self, sender: str, id: str, sent: float, now: float) -> bool:
        """Remember a message; return whether it is a new one."""
        ids, heap = self._ids.setdefault(sender, set()), self._heaps.setdefault(sender, [])
        while heap and (heap[0][0] < now - self._window or len(heap) >= self._most):
            time, old = heapq.heappop(heap)
            ids.discard(old)
            # Also for those outside of the window: the clock can be set back.
            self._floors[sender] = time
        if id in ids or sent <= self._floors.get(sender, float("-inf")):
            return False
        ids.add(id)
        heapq.heappush(heap, (sent, id))
        return True

    def __len__(self) -> int:
        return sum(map(len, self._ids.values()))
