"""The beats of a link between the session and a node: when one is due, and when the other end counts as lost.

It reads no clock and does no I/O, so that real and simulated links share it. Each end sends a beat every `BEAT_S`
seconds, with its time and the latest time of the other end that it has received. The two ends judge differently, so
that the node always gives up first, however long messages are delayed:

- The node counts from its latest beat that the session has certainly received, for `ORPHAN_S` seconds.
- The session counts from the receipt of the node's latest beat, for `LOST_S` seconds. It has received that beat no
  earlier than the node counts it.

A node that hears nothing ends the link, so its beats end as well: the session needs no proof of being heard.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from weft.worker.channel import dumps
from weft.worker.link import LOST_S, ORPHAN_S, PROBE_S

BEAT_S: Final = PROBE_S
BEAT: Final = -1
"""The kind of the message that shows that an end is alive: its time, and the last time of the other end."""
HEAD: Final = struct.Struct("<Q")


def frame(messages: list[Any]) -> tuple[bytes, bytes]:
    """Return the head and the body of the frame of some messages."""
    data = dumps(messages)
    return HEAD.pack(len(data)), data


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
