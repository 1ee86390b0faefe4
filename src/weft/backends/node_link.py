"""The connection between the session and one node: messages in batches, over TCP, with a proof of both ends first.

A frame is a length of 8 bytes and the pickle of a list of messages. Both ends are the same program of the same user: a
frame is read only after `weft.store.handshake` has proven it. Any thread sends, without waiting: a thread of the link
sends all that has gathered. See `weft.backends.pulse` for the beats of both ends.
"""

from __future__ import annotations

import pickle
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.backends.pulse import HEAD, Pulse, frame
from weft.store.handshake import Credentials, connect, receive_exactly
from weft.worker.link import LOST_S

if TYPE_CHECKING:
    from weft.store.tls import Connection

PURPOSE: Final = b"session"
"""The purpose of connections between a session and its nodes."""
Take = Callable[[list[Any]], None]
Lost = Callable[[str], None]


class Link(Protocol):
    """One end of a connection between the session and a node.

    `take(messages)` is called with the messages of each frame, in order; `lost(reason)` once, after the last of them,
    when the connection has ended, unless this end has closed it. The two calls never overlap.
    """

    def start(self) -> None:
        """Start to send and to receive."""
        ...

    def send(self, *messages: Any) -> None:
        """Queue messages; no effect once the connection has ended."""
        ...

    def close(self, patience_s: float = 0.0) -> None:
        """Close the connection behind all sent messages, and wait for the other end to close it."""
        ...


class NodeLink:
    """A `Link` over a socket whose handshake is done. `leads`: it is the end of the session."""

    def __init__(
        self,
        sock: Connection,
        take: Take,
        lost: Lost,
        *,
        leads: bool = True,
    ) -> None:
        self._sock = sock
        self._take = take
        self._lost = lost
        self._out: list[Any] = []
        self._changed = threading.Condition()
        self._closed = False
        self._failure = ""
        """Why the connection has ended by itself."""
        self._pulse = Pulse(time.monotonic(), leads=leads)
        self._threads = [
            threading.Thread(target=self._send_all, name="weft-link-out", daemon=True),
            threading.Thread(target=self._receive_all, name="weft-link-in", daemon=True),
        ]

    @classmethod
    def connect(
        cls,
        address: tuple[str, int],
        credentials: Credentials,
        take: Take,
        lost: Lost,
    ) -> NodeLink:
        """Connect to a node. OSError, ForbiddenError: see `handshake.connect`."""
        sock = connect(address, credentials, PURPOSE, timeout_s=LOST_S)
        sock.settimeout(None)
        return cls(sock, take, lost)

    @classmethod
    def accepted(cls, sock: Connection, take: Take, lost: Lost) -> NodeLink:
        """Return the end of a node, whose session has proven the secret."""
        return cls(sock, take, lost, leads=False)

    def start(self) -> None:
        """See `Link.start`."""
        for thread in self._threads:
            thread.start()

    def send(self, *messages: Any) -> None:
        """See `Link.send`."""
        with self._changed:
            if not self._closed:
                self._out += messages
                self._changed.notify()

    def _send_all(self) -> None:
        pulse = self._pulse
        try:
            while True:
                with self._changed:
                    while not (self._out or self._closed or time.monotonic() >= pulse.due):
                        self._changed.wait(max(0.0, pulse.due - time.monotonic()))
                    messages, self._out = self._out, []
                    if self._closed and not messages:
                        break
                now = time.monotonic()
                if reason := pulse.lost(now):
                    self._end(reason)
                    return
                if messages := messages + pulse.beats(now):
                    head, data = frame(messages)
                    self._sock.sendall(head)
                    self._sock.sendall(data)
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._end(error.strerror or str(error))

    def _receive_all(self) -> None:
        """Take all messages, and report the end afterwards: this thread makes all calls."""
        try:
            while not self._failure:
                (length,) = HEAD.unpack(receive_exactly(self._sock, HEAD.size))
                received = pickle.loads(receive_exactly(self._sock, length))
                now = time.monotonic()
                messages = self._pulse.take(received, now)
                if reason := self._pulse.lost(now):  # this process stood still meanwhile
                    self._end(reason)
                elif messages and not self._failure:
                    self._take(messages)
        except OSError as error:
            self._end(error.strerror or str(error))
        except Exception as error:  # noqa: BLE001 - without its reader the link would be silent for ever
            self._end(f"a message cannot be taken: {type(error).__name__}: {error}")
        if self._failure:
            self._lost(self._failure)

    def _end(self, reason: str) -> None:
        with self._changed:
            if not self._closed:
                self._failure = reason
            self._closed = True
            self._changed.notify()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self, patience_s: float = 0.0) -> None:
        """See `Link.close`."""
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
