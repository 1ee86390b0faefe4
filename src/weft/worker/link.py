"""A link between a master's shell and one worker, over a channel that loses, delays, repeats and reorders messages.

A `Link` is one end. It does no I/O and reads no clock: it is given frames and the time, and returns frames to send.
What goes in at one end comes out at the other once and in order, as from a pipe, or the link is *lost*, which both
ends notice by themselves. Whoever has lost a link never uses its session again: frames of another session are not
taken, so that what a worker still says after it was given up, or to a master that is no more, changes nothing.

- Messages are numbered, and repeated until they are acknowledged; each frame acknowledges all that came before.
- Each frame carries the time at its sender, and gives back the latest it has seen of the other side. So an end knows
  until when it was heard for certain, whichever direction fails.
- After `probe_s` without such a proof the master's end asks; a worker only answers.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

REPEAT_S: Final = 1.0
"""When a message is repeated for the first time, in seconds; each next pause is twice as long, up to `PROBE_S`."""
PROBE_S: Final = 4.0
"""After how long without a word the master's end asks for one."""
LOST_S: Final = 20.0
"""After how long without a proof that it was heard the master gives a worker up."""
ORPHAN_S: Final = 0.8 * LOST_S
"""The same for a worker: earlier, so that it has mostly stopped before its work is given to another."""
WINDOW: Final = 1024
"""How many messages that came too early are kept; further ones will be repeated."""


class Frame(NamedTuple):
    """What is sent: message `number` (0: none) of a session, with all below `wanted` acknowledged.

    `stamp` is the sender's time in seconds, `echo` the latest stamp that it has seen of the other side (-1: none).
    `asks` wants an answer at once.
    """

    session: int
    number: int
    wanted: int
    stamp: float
    echo: float
    asks: bool = False
    message: Any = None


class Link:
    """One end of a link of session `session`, made at time `now`. `lost_s` is after how long it counts as lost."""

    def __init__(self, session: int, now: float, *, lost_s: float = LOST_S, asks: bool = True) -> None:
        self.session = session
        self.heard = now
        """Until when, on this end's clock, the other end has heard this one for certain."""
        self._lost_s = lost_s
        self._asks = asks
        self._asked = now
        self._sent = 0
        self._wanted = 1
        self._echo = -1.0
        self._owes = False
        self._unheard: dict[int, tuple[Any, float, float]] = {}
        self._early: dict[int, Any] = {}

    def send(self, message: Any, now: float) -> Frame:
        """Take a message and return its frame; it is kept until it is acknowledged."""
        self._sent += 1
        self._unheard[self._sent] = (message, now + REPEAT_S, REPEAT_S)
        return self._frame(now, self._sent, message)

    def take(self, frame: Frame, now: float) -> list[Any]:
        """Take a frame; return the messages that are now complete, in order. Frames of other sessions are ignored."""
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

    def due(self, now: float) -> list[Frame]:
        """Return what is to be sent by now: messages that were not acknowledged, an answer, a question."""
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
        """Whether it is too long ago that the other end has heard this one for certain."""
        return now - self.heard >= self._lost_s

    @property
    def waiting(self) -> int:
        """How many messages have not been acknowledged."""
        return len(self._unheard)

    def _frame(self, now: float, number: int = 0, message: Any = None, *, asks: bool = False) -> Frame:
        self._owes = False
        return Frame(self.session, number, self._wanted, now, self._echo, asks, message)
