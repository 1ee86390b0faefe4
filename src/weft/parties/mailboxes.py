"""Messages for parties that nobody can connect to: they wait here until such a party polls, and get their answers."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from threading import Condition, Event
from typing import Final

from msgspec import Struct

from weft.model.errors import PartyError, PartyUnreachableError, WeftError

POLL_S: Final = 20.0
"""How long a poll waits for a message; routers forget a connection that is quiet for longer."""
_TAKEN_S: Final = 10.0
_MOST: Final = 1000
TICKET: Final = 16
"""The bytes before a message that its answer repeats."""


class _Waiting(Struct, eq=False):
    """A message that waits for its answer."""

    ticket: bytes
    party: str
    data: bytes
    taken: Event
    done: Event
    answer: bytes = b""
    error: WeftError | None = None


class Mailboxes:
    """The messages of this party, and of others that it forwards, for parties that poll. For several threads."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._queues: dict[str, deque[_Waiting]] = {}
        self._asked: dict[bytes, _Waiting] = {}

    def deliver(self, party: str, data: bytes, timeout_s: float) -> bytes:
        """Return the answer of a party that polls. PartyUnreachableError: it does not poll, or does not answer."""
        one = _Waiting(secrets.token_bytes(TICKET), party, data, Event(), Event())
        with self._changed:
            queue = self._queues.setdefault(party, deque())
            if len(queue) >= _MOST:
                raise PartyUnreachableError(f"{_MOST:,} messages wait for party {party} already", party=party)
            queue.append(one)
            self._asked[one.ticket] = one
            self._changed.notify_all()
        try:
            if not one.taken.wait(min(timeout_s, _TAKEN_S)):
                raise PartyUnreachableError(
                    f"party {party} has not asked for its messages",
                    party=party,
                    hint=f"Nobody can connect to party {party}; its server must run and know this party.",
                )
            if not one.done.wait(timeout_s):
                raise PartyUnreachableError(f"party {party} does not answer in time", party=party)
        finally:
            with self._changed:
                self._asked.pop(one.ticket, None)
                if one in queue:
                    queue.remove(one)
        if one.error is not None:
            raise one.error
        return one.answer

    def take(self, party: str, wait_s: float, is_active: Callable[[], bool]) -> bytes:
        """Return the next message for a party behind its ticket, b"" if there is none within `wait_s` seconds.

        A poll that is not active any more takes none.
        """
        with self._changed:
            queue = self._queues.setdefault(party, deque())
            self._changed.wait_for(lambda: queue or not is_active(), max(0.0, min(wait_s, POLL_S)))
            if not queue or not is_active():
                return b""
            one = queue.popleft()
            one.taken.set()
            return one.ticket + one.data

    def wake(self) -> None:
        """Let polls look whether they are active."""
        with self._changed:
            self._changed.notify_all()

    def answer(self, party: str, ticket: bytes, answer: bytes, error: WeftError | None = None) -> None:
        """Hand in the answer of a party to a message that it took. PartyError: it has taken no such message."""
        with self._changed:
            one = self._asked.get(ticket)
            if one is None or one.party != party or not one.taken.is_set():
                raise PartyError(f"party {party} answered a message for which nobody waits", party=party)
            one.answer, one.error = answer, error
            one.done.set()
