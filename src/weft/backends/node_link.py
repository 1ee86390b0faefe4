"""The connection between the session and one node: messages in batches, over TCP, with a proof of both ends first.

A frame is a length of 8 bytes and the pickle of a list of messages. Both ends are the same program of the same user: a
frame is read only after `weft.store.handshake` has proven it. Any thread sends, without waiting: a thread of the link
sends all that has gathered. Each end sends a beat every `BEAT_S` seconds, with the time of the last beat that it has
received, so that an end knows until when the other has certainly heard it, whichever direction of the network fails.
"""

from __future__ import annotations

import pickle
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from weft.store.handshake import Credentials, connect, receive_exactly
from weft.worker.channel import dumps
from weft.worker.link import LOST_S, ORPHAN_S, PROBE_S

if TYPE_CHECKING:
    from weft.store.tls import Connection

PURPOSE: Final = b"session"
"""The purpose of connections between a session and its nodes."""
BEAT_S: Final = PROBE_S
BEAT: Final = -1
"""The kind of the message that shows that an end is alive: its time, and the last time of the other end."""
_HEAD: Final = struct.Struct("<Q")


class NodeLink:
    """One end of a connection whose handshake is done.

    `take(messages)` is called with the messages of each frame on a thread of the link; `lost(reason)` once, when the
    connection has ended, unless this end has closed it.
    """

    def __init__(
        self,
        sock: Connection,
        take: Callable[[list[Any]], None],
        lost: Callable[[str], None],
        *,
        lost_s: float = LOST_S,
    ) -> None:
        self._sock = sock
        self._take = take
        self._lost = lost
        self._lost_s = lost_s
        self._out: list[Any] = []
        self._changed = threading.Condition()
        self._closed = False
        self._heard = time.monotonic()
        self._echo = -1.0
        self._threads = [
            threading.Thread(target=self._send_all, name="weft-link-out", daemon=True),
            threading.Thread(target=self._receive_all, name="weft-link-in", daemon=True),
        ]

    @classmethod
    def connect(
        cls,
        address: tuple[str, int],
        credentials: Credentials,
        take: Callable[[list[Any]], None],
        lost: Callable[[str], None],
    ) -> NodeLink:
        """Connect to a node. OSError, ForbiddenError: see `handshake.connect`."""
        sock = connect(address, credentials, PURPOSE, timeout_s=LOST_S)
        sock.settimeout(None)
        return cls(sock, take, lost)

    @classmethod
    def accepted(cls, sock: Connection, take: Callable[[list[Any]], None], lost: Callable[[str], None]) -> NodeLink:
        """Return the end of a node, whose session has proven the secret. It gives a silent session up a little sooner
        than that gives up the node, so that its tasks have mostly stopped before they run elsewhere.
        """
        return cls(sock, take, lost, lost_s=ORPHAN_S)

    def start(self) -> None:
        """Start to send and to receive."""
        for thread in self._threads:
            thread.start()

    def send(self, *messages: Any) -> None:
        """Queue messages; no effect once the connection has ended."""
        with self._changed:
            if not self._closed:
                self._out += messages
                self._changed.notify()

    def _send_all(self) -> None:
        beat = time.monotonic() + BEAT_S
        try:
            while True:
                with self._changed:
                    while not (self._out or self._closed or time.monotonic() >= beat):
                        self._changed.wait(max(0.0, beat - time.monotonic()))
                    messages, self._out = self._out, []
                    if self._closed and not messages:
                        break
                now = time.monotonic()
                if now >= beat:
                    beat = now + BEAT_S
                    messages.append((BEAT, now, self._echo))
                    if now - self._heard >= self._lost_s:
                        self._end(f"it has not been heard for {self._lost_s:g} s")
                        return
                data = dumps(messages)
                self._sock.sendall(_HEAD.pack(len(data)))
                self._sock.sendall(data)
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._end(error.strerror or str(error))

    def _receive_all(self) -> None:
        try:
            while True:
                (length,) = _HEAD.unpack(receive_exactly(self._sock, _HEAD.size))
                messages = pickle.loads(receive_exactly(self._sock, length))
                beats = [message for message in messages if message[0] == BEAT]
                for _, stamp, echo in beats:
                    self._echo = max(self._echo, stamp)
                    self._heard = max(self._heard, echo)
                if beats:
                    messages = [message for message in messages if message[0] != BEAT]
                if messages:
                    self._take(messages)
        except OSError as error:
            self._end(error.strerror or str(error))

    def _end(self, reason: str) -> None:
        with self._changed:
            closed, self._closed = self._closed, True
            self._changed.notify()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        if not closed:
            self._lost(reason)

    def close(self, patience_s: float = 0.0) -> None:
        """Close the connection behind all sent messages, and wait for the other end to close it."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        out, into = self._threads
        if into is not threading.current_thread() and into.is_alive():
            end = time.monotonic() + patience_s
            out.join(patience_s)
            into.join(max(0.0, end - time.monotonic()))
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
