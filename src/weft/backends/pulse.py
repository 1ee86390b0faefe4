"""The beats of a link between the session and a node: when one is due, and when the other end counts as lost.

A frame is the length of a pickled list of messages, and the list in pieces of `PIECE` bytes. Before each piece but the
first stands the length of a pickled list of beats, and that list if the length is not 0: however long a frame takes,
beats go on.

It reads no clock and does no I/O, so that real and simulated links share it. Each end sends a beat every `BEAT_S`
seconds, with its time and the latest time of the other end that it has received. The two ends judge differently, so
that the node always gives up first, however long messages are delayed:

- The node counts from its latest beat that the session has certainly received, for `ORPHAN_S` seconds.
- The session counts from the receipt of the node's latest beat, for `LOST_S` seconds. It has received that beat no
  earlier than the node counts it.

A node that hears nothing ends the link, so its beats end as well: the session needs no proof of being heard.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

from weft.store.pages import private_pages
from weft.worker.channel import dumps
from weft.worker.link import LOST_S, ORPHAN_S, PROBE_S

BEAT_S: Final = PROBE_S
BEAT: Final = -1
"""The kind of the message that shows that an end is alive: its time, and the last time of the other end."""
HEAD: Final = struct.Struct("<Q")
PIECE: Final = 1 << 18
"""A slow connection carries so many bytes in less time than an end waits for beats."""


def framed(messages: list[Any], beats: Callable[[], list[Any]] = list) -> Iterator[bytes | memoryview]:
    """Yield the parts of the frame of some messages, to be sent in turn; `beats` returns the beats due between them."""
    data = memoryview(dumps(messages))
    yield HEAD.pack(len(data))
    for at in range(0, len(data), PIECE):
        if at:
            due = beats()
            between = dumps(due) if due else b""
            yield HEAD.pack(len(between)) + between
        yield data[at : at + PIECE]


def unframed(take: Callable[[list[Any]], object]) -> Generator[memoryview, None, list[Any]]:
    """Yield the memory into which the next bytes of a frame go, and return its messages; `take` takes the beats."""
    head = bytearray(HEAD.size)
    yield memoryview(head)
    (length,) = HEAD.unpack(head)
    data = private_pages(length)
    for at in range(0, length, PIECE):
        if at:
            yield memoryview(head)
            (between,) = HEAD.unpack(head)
            if between:
                beats = bytearray(between)
                yield memoryview(beats)
                take(pickle.loads(beats))
        yield data[at : at + PIECE]
    found: list[Any] = pickle.loads(data)
    return found


class Pulse:
    """The beats of one end, made at time `now` in seconds. `leads`: it is the end of the session."""

    def __init__(self, now: float, *, leads: bool) -> None:
        self.limit_s = LOST_S if leads else ORPHAN_S
        self._leads = leads
        self._alive = now
        self._echo = -1.0
        self._beat = now + BEAT_S

    @property
    def due(self) -> float:
        """The time of the next beat, or of the loss if nothing comes before."""
        return min(self._beat, self._alive + self.limit_s)

    def beats(self, now: float) -> list[Any]:
        """Return the beat that is due by now, if one is."""
        if now < self._beat:
            return []
        self._beat = now + BEAT_S
        return [(BEAT, now, self._echo)]

    def take(self, messages: list[Any], now: float) -> list[Any]:
        """Take the beats among the messages of a frame, and return the other messages."""
        beats = [message for message in messages if message[0] == BEAT]
        if not beats:
            return messages
        for _, stamp, echo in beats:
            self._echo = max(self._echo, stamp)
            self._alive = max(self._alive, now if self._leads else echo)
        return [message for message in messages if message[0] != BEAT]

    def lost(self, now: float) -> str:
        """Return why the other end counts as lost, "" if it does not."""
        if now < self._alive + self.limit_s:
            return ""
        return f"it has not {'been heard' if self._leads else 'answered'} for {self.limit_s:g} s"
