"""A reliable link between a master's shell and one worker, over a channel that loses, delays, repeats and reorders.

A `ReliableLink` is one end. It does no I/O and reads no clock: its inputs are frames and the time, its outputs are
frames. Messages arrive once and in order, as through a pipe, or the link is *lost*; each end notices a loss by itself.
A lost session is never used again. Frames of other sessions are ignored, so late frames of an abandoned worker, or to a
former master, have no effect.

- Messages are numbered, and repeated until acknowledged; each frame acknowledges all earlier messages.
- Each frame carries the time of its sender and returns the latest time of the other side. An end therefore knows until
  when the other end has certainly heard it, whichever direction fails.
- After `PROBE_S` without such a proof the master's end sends a probe; a worker only answers.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

REPEAT_S: Final = 1.0
"""Seconds until a message is first repeated; each next pause is twice as long, up to `PROBE_S`."""
PROBE_S: Final = 4.0
"""Seconds of silence until the master's end sends a probe."""
LOST_S: Final = 20.0
"""Seconds without proof of being heard until the master gives a worker up."""
ORPHAN_S: Final = 0.8 * LOST_S
"""The same for a worker: shorter, so that the worker has mostly stopped before another worker takes its tasks."""
WINDOW: Final = 1024
"""The largest number of early messages kept; later ones are repeated by their sender."""


class LinkFrame(NamedTuple):
    """A frame: message `number` (0: none) of a session; it acknowledges all messages below `wanted`.

    `stamp` is the sender's time in seconds, `echo` the latest stamp of the other side (-1: none). `asks` requests an
    answer at once.
    """

    session: int
    number: int
    wanted: int
    stamp: float
    echo: float
    asks: bool = False
    message: Any = None


class ReliableLink:
    """One end of a link of session `session`, made at time `now`. A silence of `lost_s` seconds means that it is
    lost.
    """

    def __init__(self, session: int, now: float, *, lost_s: float = LOST_S, asks: bool = True) -> None:
        self.session = session
        self.heard = now
        """The time on this end's clock until which the other end has certainly heard this end."""
        self._lost_s = lost_s
        self._asks = asks
        self._asked = now
        self._sent = 0
        self._wanted = 1
        self._echo = -1.0
        self._owes = False
        self._unheard: dict[int, tuple[Any, float, float]] = {}
        self._early: dict[int, Any] = {}

    def send(self, message: Any, now: float) -> LinkFrame:
        """Return the frame of a new message; the message is kept until it is acknowledged."""
        self._sent += 1
        self._unheard[self._sent] = (message, now + REPEAT_S, REPEAT_S)
        return self._frame(now, self._sent, message)

    def take(self, frame: LinkFrame, now: float) -> list[Any]:
        """Take a frame and return the messages that are now complete, in order. Frames of other sessions are
        ignored.
        """
        if frame.session != self.session:
            return []
        self._echo = max(self._echo, frame.stamp)
        self.heard = max(self.heard, frame.echo)
        for number in [number for number in self._unheard if number < frame.wanted]:
            del self._unheard[number]
        self._owes = self._owes or frame.asks or frame.number > 0
        if frame.number < self._wanted or frame.number >= self._wanted + WINDOW:
            return []
        self._early[frame.number] = frame.message
        found = []
        while self._wanted in self._early:
            found.append(self._early.pop(self._wanted))
            self._wanted += 1
        return found

    def due(self, now: float) -> list[LinkFrame]:
        """Return the frames to send by now: unacknowledged messages, an answer, a probe."""
        frames = []
        for number, (message, at, pause) in self._unheard.items():
            if at <= now:
                pause = min(2 * pause, PROBE_S)
                self._unheard[number] = (message, now + pause, pause)
                frames.append(self._frame(now, number, message))
        asks = self._asks and now - max(self.heard, self._asked) >= PROBE_S
        if asks:
            self._asked = now
        if asks or (self._owes and not frames):
            frames.append(self._frame(now, asks=asks))
        return frames

    def lost(self, now: float) -> bool:
        """Whether the other end has not heard this end for too long."""
        return now - self.heard >= self._lost_s

    @property
    def waiting(self) -> int:
        """The number of unacknowledged messages."""
        return len(self._unheard)

    def _frame(self, now: float, number: int = 0, message: Any = None, *, asks: bool = False) -> LinkFrame:
        self._owes = False
        return LinkFrame(self.session, number, self._wanted, now, self._echo, asks, message)
