"""The sender of documents: one thread for each other party, which sends the latest document about each part.

A document is sent until the other party has acknowledged its version; its answer is the present document of the other
side. While a party does not answer, the pauses grow to half a minute.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from weft.model.errors import PartyError, PartyUnreachableError

if TYPE_CHECKING:
    from weft.frontends.federated.schema import Party

_FIRST_PAUSE_S: Final = 0.2
_LAST_PAUSE_S: Final = 30.0


class Letter(NamedTuple):
    """A document for another party: about which part of which job, of which kind and version, and its bytes."""

    job: str
    part: Party
    kind: str
    version: int
    body: bytes


class OutboxEvents(NamedTuple):
    """The callbacks of an outbox, called from its threads.

    `send(party, letter)` sends one and returns the answer. `answered`, `refused` and `reachable` are told what came of
    it; `reachable` with the reason at each try that a party does not answer, since jobs may have begun after the first,
    and with None once it answers again. `failed` is told of errors of this party, after which a letter is tried again.
    """

    send: Callable[[str, Letter], bytes]
    answered: Callable[[str, Letter, bytes], None]
    refused: Callable[[str, Letter, PartyError], None]
    reachable: Callable[[str, PartyError | None], None]
    failed: Callable[[str, BaseException], None]


class _Line:
    """The letters for one party."""

    def __init__(self) -> None:
        self.letters: dict[tuple[str, Party, str], Letter] = {}
        self.changed = threading.Condition()
        self.thread: threading.Thread | None = None
        self.error: PartyError | None = None
        self.hurried = False


class Outbox:
    """Sends letters to other parties."""

    def __init__(self, events: OutboxEvents) -> None:
        self._events = events
        self._lines: dict[str, _Line] = {}
        self._lock = threading.Lock()
        self._closed = False

    def put(self, receiver: str, letter: Letter) -> None:
        """Send a letter, in place of an earlier one about the same part."""
        line = self._line(receiver)
        with line.changed:
            line.letters[letter.job, letter.part, letter.kind] = letter
            if line.thread is None and not self._closed:
                thread = threading.Thread(
                    target=self._work, args=(receiver, line), name=f"outbox-{receiver}", daemon=True
                )
                thread.start()  # without room for another thread it fails, and the next letter tries again
                line.thread = thread
            line.changed.notify_all()

    def hurry(self, receiver: str) -> None:
        """Try again at once if the party did not answer: it has been heard of."""
        line = self._line(receiver)
        if line.error is None:
            return
        with line.changed:
            line.hurried = True
            line.changed.notify_all()

    def waiting(self) -> dict[str, tuple[int, str]]:
        """Return how many letters wait for each party, and why the last was not taken ("" if it was)."""
        with self._lock:
            lines = dict(self._lines)
        return {one: (len(line.letters), str(line.error.message) if line.error else "") for one, line in lines.items()}

    def close(self) -> None:
        """End all threads; what waits stays in the ledger."""
        with self._lock:
            self._closed = True
            lines = list(self._lines.values())
        for line in lines:
            with line.changed:
                line.changed.notify_all()
        for line in lines:
            if line.thread is not None and line.thread is not threading.current_thread():
                line.thread.join(timeout=_LAST_PAUSE_S)

    def _line(self, receiver: str) -> _Line:
        with self._lock:
            return self._lines.setdefault(receiver, _Line())

    def _work(self, receiver: str, line: _Line) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            with line.changed:
                line.changed.wait_for(lambda: self._closed or line.letters)
                if self._closed:
                    return
                key, letter = next(iter(line.letters.items()))
                line.hurried = False
            try:
                pause = self._deliver(receiver, line, letter, pause)
            except Exception as error:  # noqa: BLE001 - such as a full disk: the letters of all jobs would wait for ever
                self._events.failed(receiver, error)
                with line.changed:
                    line.letters[key] = line.letters.pop(key)  # one that can never be sent holds no others up
                pause = self._paused(line, pause)

    def _deliver(self, receiver: str, line: _Line, letter: Letter, pause: float) -> float:
        """Send a letter, and return the pause after the next failure. It is forgotten when all is told of it."""
        try:
            answer = self._events.send(receiver, letter)
        except PartyUnreachableError as error:
            self._tell(receiver, line, error)
            return self._paused(line, pause)
        except PartyError as error:
            self._tell(receiver, line, None)
            self._events.refused(receiver, letter, error)
            self._taken(line, letter)
            return pause
        self._tell(receiver, line, None)
        self._events.answered(receiver, letter, answer)
        self._taken(line, letter)
        return _FIRST_PAUSE_S

    def _paused(self, line: _Line, pause: float) -> float:
        """Wait before the next try, and return the pause after that."""
        with line.changed:
            line.changed.wait_for(lambda: self._closed or line.hurried, pause)
        return min(2 * pause, _LAST_PAUSE_S)

    def _tell(self, receiver: str, line: _Line, error: PartyError | None) -> None:
        """Tell that the party does not answer, or answers again."""
        news = line.error is not None or error is not None
        line.error = error
        if news:
            self._events.reachable(receiver, error)

    @staticmethod
    def _taken(line: _Line, letter: Letter) -> None:
        """Forget a letter, unless a newer one about its part has come meanwhile."""
        key = letter.job, letter.part, letter.kind
        with line.changed:
            if line.letters.get(key) is letter:
                del line.letters[key]
