"""The way of values between the parts of a component: inside this party, and to other parties in pieces.

A stream is the values of one part for one other part, in one attempt of a component. Its messages are numbered, and
sent one after another until the other party has taken them, so a lost, doubled or late message changes nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from weft.frontends.federated.schema import Party
from weft.model.errors import PartyMessageError, PartyRefusedError

VALUES_PATH: Final = "/values"
PIECE_BYTES: Final = 8 << 20
"""The bytes of a value in one message."""
MOST_WAITING_BYTES: Final = 1 << 30
"""The bytes of values that a party holds for parts that have not asked for them, for each attempt."""
_MOST_KINDS: Final = 64
"""The kinds of values that are counted one by one, for each pair of parts; names come from other parties, too."""
_OTHER_KINDS: Final = "other"
_FIRST_PAUSE_S: Final = 0.1
_LAST_PAUSE_S: Final = 5.0


class AttemptKey(NamedTuple):
    """An attempt of a component of a job; `epoch` counts the generations of the job."""

    job: str
    epoch: int
    component: str
    attempt: int


class ValueMessage(Struct, frozen=True, array_like=True):
    """A piece of a value. `number` counts the messages of a stream from 0, `last` ends a value."""

    key: AttemptKey
    source: Party
    to: Party
    number: int
    name: str
    last: bool
    data: bytes


_read_message: Final = msgspec.msgpack.Decoder(ValueMessage).decode


class ValueGate(Protocol):
    """The receiver of values for one part."""

    def deliver(self, name: str, source: Party, data: bytes) -> None:
        """Hand over a value, which waits until the part asks for it."""
        ...


class Traffic(Struct):
    """What one part has exchanged with one other part: numbers of values, and their bytes."""

    values_out: int = 0
    bytes_out: int = 0
    values_in: int = 0
    bytes_in: int = 0

    def add(self, other: Traffic) -> None:
        """Count what another one has counted, too."""
        self.values_out += other.values_out
        self.bytes_out += other.bytes_out
        self.values_in += other.values_in
        self.bytes_in += other.bytes_in


class _Stream:
    """The values that wait for one other part."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[str, bytes]] = deque()
        self.number = 0
        self.sends = False


class _Arrivals:
    """The pieces of a stream of another party that have arrived."""

    def __init__(self) -> None:
        self.number = 0
        self.pieces: list[bytes] = []
        self.lock = threading.Lock()
        """Held until a value is handed over: the answer to a message that comes again lets the next one come."""


class _Attempt:
    """A part of this party in one attempt."""

    def __init__(self, gate: ValueGate) -> None:
        self.gate = gate
        self.streams: dict[Party, _Stream] = {}
        self.arrivals: dict[Party, _Arrivals] = {}
        self.traffic: dict[Party, dict[str, Traffic]] = {}
        self.ended = threading.Event()

    def counts(self, other: Party, name: str) -> Traffic:
        """Return the counts of a kind of values. The kind is the name up to a slash: what follows is a number or so."""
        kinds, kind = self.traffic.setdefault(other, {}), name.partition("/")[0]
        if kind not in kinds and len(kinds) >= _MOST_KINDS:
            kind = _OTHER_KINDS
        return kinds.setdefault(kind, Traffic())


class ValueHub:
    """Moves values for the parts of the party `me`. `call(party, path, body)` sends a message and waits for the answer.

    `refused` is told of streams to an attempt that has ended, `silent(key, source, party, answers)` when a party takes
    no values, and when it takes them again.
    """

    def __init__(
        self,
        me: str,
        call: Callable[[str, str, bytes], bytes],
        refused: Callable[[AttemptKey, Party, PartyRefusedError], None],
        silent: Callable[[AttemptKey, Party, str, bool], None],
    ) -> None:
        self._me, self._call, self._refused, self._silent = me, call, refused, silent
        self._attempts: dict[tuple[AttemptKey, Party], _Attempt] = {}
        self._lock = threading.Lock()

    def open(self, key: AttemptKey, part: Party, gate: ValueGate) -> None:
        """Take values for a part from now on."""
        with self._lock:
            self._attempts[key, part] = _Attempt(gate)

    def traffic(self, key: AttemptKey, part: Party) -> dict[Party, dict[str, Traffic]] | None:
        """Return what a part has exchanged with each other one so far, by kind; None: the attempt is not known."""
        with self._lock:
            attempt = self._attempts.get((key, part))
            if attempt is None:
                return None
            return {other: {kind: copy(one) for kind, one in kinds.items()} for other, kinds in attempt.traffic.items()}

    def attempts(self, job: str, component: str = "") -> set[AttemptKey]:
        """Return the attempts of a job, or of a component of it, that take values."""
        with self._lock:
            return {key for key, _ in self._attempts if key.job == job and component in ("", key.component)}

    def end(self, key: AttemptKey) -> None:
        """Forget an attempt: what still waits is dropped."""
        with self._lock:
            gone = [one for one in self._attempts if one[0] == key]
            found = [self._attempts.pop(one) for one in gone]
        for attempt in found:
            attempt.ended.set()

    # -------------------------------------------------------------------------------------------------------- out

    def send(self, key: AttemptKey, source: Party, name: str, to: Party, data: bytes) -> None:
        """Send a value of a part of this party."""
        with self._lock:
            attempt = self._attempts.get((key, source))
            if attempt is None:
                return
            inside = self._attempts.get((key, to)) if to.id == self._me else None
            if inside is not None:
                back = inside.counts(source, name)
                back.values_in += 1
                back.bytes_in += len(data)
            elif to.id != self._me:
                stream = attempt.streams.setdefault(to, _Stream())
                if not stream.sends:
                    threading.Thread(
                        target=self._work, args=(attempt, stream, key, source, to), name=f"values-{to.id}", daemon=True
                    ).start()  # it waits for the lock; without room for another thread the value is not sent
                    stream.sends = True
                stream.waiting.append((name, data))
            traffic = attempt.counts(to, name)
            traffic.values_out += 1
            traffic.bytes_out += len(data)
        if inside is not None:
            inside.gate.deliver(name, source, data)

    def _work(self, attempt: _Attempt, stream: _Stream, key: AttemptKey, source: Party, to: Party) -> None:
        """Send the values of a stream until none waits."""
        while True:
            with self._lock:
                if not stream.waiting or attempt.ended.is_set():
                    stream.sends = False
                    return
                name, data = stream.waiting.popleft()
            for at in range(0, max(len(data), 1), PIECE_BYTES):
                last = at + PIECE_BYTES >= len(data)
                message = ValueMessage(key, source, to, stream.number, name, last, data[at : at + PIECE_BYTES])
                try:
                    if not self._insist(attempt, key, source, to.id, msgspec.msgpack.encode(message)):
                        return
                except PartyRefusedError as error:
                    self._refused(key, to, error)
                    return
                stream.number += 1

    def _insist(self, attempt: _Attempt, key: AttemptKey, source: Party, party: str, body: bytes) -> bool:
        """Send a message until the party has taken it; return False if the attempt has ended.

        PartyRefusedError: the party runs no such attempt any more. All other errors may pass: the party is told to be
        silent meanwhile, and the job fails by its `fail_after`.
        """
        pause, told = _FIRST_PAUSE_S, False
        while not attempt.ended.is_set():
            try:
                self._call(party, VALUES_PATH, body)
            except Exception as error:  # a fault at either end, such as too many open files, may pass too
                if isinstance(error, PartyRefusedError) and error.party == party:
                    raise
                if not told:
                    self._silent(key, source, party, False)
                    told = True
                attempt.ended.wait(pause)
                pause = min(2 * pause, _LAST_PAUSE_S)
            else:
                if told:
                    self._silent(key, source, party, True)
                return True
        return False

    # --------------------------------------------------------------------------------------------------------- in

    def receive(self, sender: str, body: bytes) -> bytes:
        """Take a message of another party.

        PartyMessageError: it is none, comes from a part of somebody else, or is out of order. PartyRefusedError: there
        is no such attempt.
        """
        try:
            message = _read_message(body)
        except msgspec.MsgspecError as error:
            raise PartyMessageError(f"a value of party {sender} is malformed: {error}", party=sender) from None
        source, to = Party(*message.source), Party(*message.to)
        key = AttemptKey(*message.key)
        if source.id != sender:
            raise PartyMessageError(f"party {sender} has sent a value in the name of {source}", party=sender)
        with self._lock:
            attempt = self._attempts.get((key, to))
            if attempt is None:
                raise PartyRefusedError(
                    f"{to} runs no attempt {key.attempt} of {key.component} in {key.job}", party=self._me
                )
            arrivals = attempt.arrivals.setdefault(source, _Arrivals())
        with arrivals.lock:
            if message.number < arrivals.number:
                return b""
            if message.number > arrivals.number:
                raise PartyMessageError(
                    f"{source} has sent value {message.number} of {key.component}, and {arrivals.number} is next",
                    party=sender,
                )
            arrivals.number += 1
            arrivals.pieces.append(message.data)
            if sum(map(len, arrivals.pieces)) > MOST_WAITING_BYTES:
                raise PartyMessageError(
                    f"{source} has sent a value of more than {MOST_WAITING_BYTES:,} bytes", party=sender
                )
            if not message.last:
                return b""
            data = b"".join(arrivals.pieces)
            arrivals.pieces.clear()
            with self._lock:
                traffic = attempt.counts(source, message.name)
                traffic.values_in += 1
                traffic.bytes_in += len(data)
            attempt.gate.deliver(message.name, source, data)
        return b""
