"""The connection between the session and one node: messages in batches, over TCP, with a proof of both ends first.

Both ends are the same program of the same user: a frame is read only after `weft.store.handshake` has proven it. Any
thread sends, without waiting: a thread of the link sends all that has gathered. Another one receives, and a third takes
what was received, so that beats are heard however long that takes. See `weft.backends.pulse` for frames and beats.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.backends.pulse import BEAT_S, Pulse, framed, unframed
from weft.store.handshake import Credentials, Dial, connect, dial_tcp, receive_into
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
        self._leads = leads
        self._pulse = Pulse(time.monotonic(), leads=leads)
        self._received: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=target, name=f"weft-link-{name}", daemon=True)
            for name, target in (("out", self._send_all), ("in", self._receive_all), ("take", self._take_all))
        ]

    @classmethod
    def connect(
        cls,
        address: tuple[str, int],
        credentials: Credentials,
        take: Take,
        lost: Lost,
        dial: Dial = dial_tcp,
    ) -> NodeLink:
        """Connect to a node. OSError, ForbiddenError: see `handshake.connect`."""
        sock = connect(address, credentials, PURPOSE, timeout_s=LOST_S, dial=dial)
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
                if reason := pulse.lost(time.monotonic()):
                    self._end(reason)
                    return
                if messages := messages + self._beats():
                    for part in framed(messages, self._beats):
                        self._sock.sendall(part)
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._end(error.strerror or str(error))

    def _beats(self) -> list[Any]:
        return self._pulse.beats(time.monotonic())

    def _receive_all(self) -> None:
        try:
            while not self._failure:
                messages = self._hear(self._receive())
                if messages and not self._failure:
                    self._received.put(messages)
        except OSError as error:
            self._end(error.strerror or str(error))
        except Exception as error:  # noqa: BLE001 - without its reader the link would be silent for ever
            self._end(f"a message cannot be read: {type(error).__name__}: {error}")
        self._received.put(None)

    def _receive(self) -> list[Any]:
        """Return the messages of the next frame."""
        parts = unframed(self._hear)
        try:
            while True:
                receive_into(self._sock, next(parts))
        except StopIteration as end:
            messages: list[Any] = end.value
            return messages

    def _hear(self, received: list[Any]) -> list[Any]:
        """Take the beats among messages, and return the others."""
        now = time.monotonic()
        messages = self._pulse.take(received, now)
        if reason := self._pulse.lost(now):  # this process stood still meanwhile
            self._end(reason)
        return messages

    def _take_all(self) -> None:
        """Take all messages, and report the end afterwards: this thread makes all calls.

        It looks for the loss of the other end, too, which may be why the other threads wait for the socket.
        """
        while True:
            messages: list[Any] | None = []
            with suppress(queue.Empty):
                messages = self._received.get(timeout=BEAT_S)
            if messages is None:
                break
            # A session may have beats that it has not read yet, a node hears nothing younger than its own last beat.
            if (not messages or not self._leads) and (reason := self._pulse.lost(time.monotonic())):
                self._end(reason)
            if self._failure:
                continue
            try:
                if messages:
                    self._take(messages)
            except Exception as error:  # noqa: BLE001 - without its taker the link would be silent for ever
                self._end(f"a message cannot be taken: {type(error).__name__}: {error}")
        if self._failure:
            self._lost(self._failure)
        self._sock.close()  # nobody else may do so for an end that was lost

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
        end = time.monotonic() + patience_s
        for thread in self._threads:
            if self._threads[-1] is not threading.current_thread() and thread.is_alive():
                thread.join(max(0.0, end - time.monotonic()))
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
