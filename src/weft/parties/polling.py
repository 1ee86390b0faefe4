"""The side of a party that nobody can connect to: it asks the others, and relays, for its messages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import WeftError
from weft.parties.calling import ANSWER, POLL
from weft.parties.failures import report_of
from weft.parties.mailboxes import POLL_S, TICKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.parties.calling import PartyClient
    from weft.parties.peers import Peer, Peers

_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 30.0
_LOOK_S: Final = 5.0
OK: Final = b"\0"
FAILED: Final = b"\1"
"""The byte of an answer that says whether a packed envelope or a refusal follows."""


class PartyPoller:
    """Asks all known parties with an address for messages to party `me`, and answers them by `receive`."""

    def __init__(
        self, me: str, peers: Peers, client: PartyClient, receive: Callable[[bytes, Peer], bytes], threads: int
    ) -> None:
        self._me, self._peers, self._client, self._receive = me, peers, client, receive
        self._stopped = Event()
        self._lock = Lock()
        self._running: dict[str, Any] = {}
        self._pool = ThreadPoolExecutor(threads, "party")
        self._watcher = Thread(target=self._watch, name="party-polls", daemon=True)

    def start(self) -> None:
        """Begin; parties that become known later are asked, too."""
        self._watcher.start()

    def stop(self) -> None:
        """End all polls, and wait for the messages that are being answered."""
        self._stopped.set()
        with self._lock:
            running = [one for one in self._running.values() if one is not None]
        for one in running:
            one.cancel()
        self._watcher.join()
        self._pool.shutdown()

    def _watch(self) -> None:
        """Have one thread for each party with an address."""
        threads: dict[str, Thread] = {}
        while not self._stopped.is_set():
            for peer in self._peers:
                if peer.address and not (peer.id in threads and threads[peer.id].is_alive()):
                    threads[peer.id] = Thread(target=self._poll, args=(peer.id,), name="party-poll", daemon=True)
                    threads[peer.id].start()
            self._stopped.wait(_LOOK_S)
        for thread in threads.values():
            thread.join()

    def _poll(self, id: str) -> None:
        """Ask one party until it is removed; after failures with longer and longer pauses."""
        pause = _PAUSE_S
        while not self._stopped.is_set():
            peer = self._peers.get(id)
            if peer is None or not peer.address:
                return
            try:
                data = self._client.exchange(peer, POLL, b"", POLL_S + 10, lambda call: self._began(id, call))
                pause = _PAUSE_S
            except WeftError:
                self._stopped.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                continue
            if data and not self._stopped.is_set():
                self._pool.submit(self._handle, peer, data[:TICKET], data[TICKET:])

    def _began(self, id: str, call: Any) -> None:
        with self._lock:
            self._running[id] = call
        if self._stopped.is_set():
            call.cancel()

    def _handle(self, peer: Peer, ticket: bytes, data: bytes) -> None:
        try:
            answer = OK + self._receive(data, peer)
        except WeftError as error:
            answer = FAILED + report_of(error, self._me)
        try:
            self._client.exchange(peer, ANSWER, ticket + answer, 60.0)
        except WeftError:  # who asked sees that no answer came
            return
