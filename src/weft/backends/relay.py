"""Connections of a process that cannot reach the nodes: their bytes travel in batches of frames over another channel.

The far end of a relay is where the nodes are, and opens a connection to a node for each that the near end asks for. The
near end has one socket of a pair for each, whose other one looks like the connection. Whoever owns the ends carries the
frames: what `take` returns at one end goes to `put` of the other, in order.

The far end can also listen: the near end then has a socket of a pair for each caller there.

The relay neither reads the bytes nor knows a secret: proofs and TLS are those of the program and the node. Frames of
the connections take turns, so that a beat never waits for the bulk of another connection. A connection has at most
`WINDOW` bytes on the way or in the memory of the other end, until the program or the node has read them.
"""

from __future__ import annotations

import itertools
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from weft.store.handshake import dial_tcp
from weft.store.listening import listen

if TYPE_CHECKING:
    from weft.worker.actor_gateway import Greet

WINDOW: Final = 4 << 20
BATCH: Final = 1 << 20
"""Bytes after which a batch is full, and that one connection may have queued."""
_PIECE: Final = 1 << 18
_TOLD: Final = WINDOW // 4
"""Bytes that an end has read before it tells the other end."""
_CONNECT_S: Final = 20.0
OPEN, OPENED, DATA, READ, END, BROKEN = range(6)


class Frame(NamedTuple):
    """A message about a connection: bytes of it, or the address to connect to, a number of bytes, an error."""

    connection: int
    kind: int
    data: bytes = b""


class _Relayed:
    """A connection at one end of a relay, which has `sock`; the lock of the end guards the rest."""

    def __init__(self, number: int, sock: socket.socket | None) -> None:
        self.number = number
        self.sock = sock
        self.out: deque[Frame] = deque()
        self.queued = 0
        self.room = WINDOW
        """Bytes that the other end has room for."""
        self.came: deque[bytes] = deque()
        """What the socket has to be given; b"" ends it."""
        self.read = 0
        """Bytes that were given to the socket, and of which the other end does not know yet."""
        self.opened = False
        self.error = ""
        self.halves = 2
        """The directions that have not ended."""


class RelayEnd:
    """One end of a relay. The far end connects to whatever the near end asks for, the near end to nothing."""

    def __init__(self, *, far: bool = False) -> None:
        self._far = far
        self._changed = threading.Condition()
        self._all: dict[int, _Relayed] = {}
        self._numbers = itertools.count(int(far), 2)
        self._turn = 0
        self._closed = ""
        self._listeners: list[socket.socket] = []
        self.greet: Greet | None = None
        """Takes the callers of the far end, at the near end, each in a thread of its own."""

    def dial(self, address: tuple[str, int], timeout_s: float) -> socket.socket:
        """Return a connection to an address as seen from the far end. OSError: it has none, or not in time."""
        ours, theirs = socket.socketpair()
        try:
            self._open(theirs, f"{address[0]}|{address[1]}", timeout_s)
        except OSError:
            ours.close()
            raise
        return ours

    def listen(self, host: str) -> tuple[str, int]:
        """Listen at the far end for callers of the near end; return the address. OSError: it cannot, or is closed.

        CapacityError: no port is free.
        """
        listener = listen(host)
        with self._changed:
            if self._closed:
                listener.close()
                raise ConnectionError(self._closed)
            self._listeners.append(listener)
        self._start(self._accept, listener)
        address: tuple[str, int] = listener.getsockname()[:2]
        return address

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # closed
            while True:
                self._start(self._call, listener.accept()[0])

    def _call(self, sock: socket.socket) -> None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open(sock, "", _CONNECT_S)
        except OSError:  # it has hung up, or nobody takes it
            sock.close()

    def _open(self, sock: socket.socket, address: str, timeout_s: float) -> None:
        """Have the other end open a connection, and carry that of `sock` over it. OSError: see `dial`."""
        with self._changed:
            one = _Relayed(next(self._numbers), sock)
            self._all[one.number] = one
            self._queue(one, Frame(one.number, OPEN, address.encode()))
            there = self._changed.wait_for(lambda: one.opened or one.error or self._closed, timeout_s)
        if not one.opened:
            self._break(one, tell=True)
            if not there:
                raise TimeoutError("timed out")
            raise ConnectionError(one.error or self._closed)
        self._carry(one)

    def take(self, timeout_s: float) -> list[Frame]:
        """Return the next frames for the other end, at once if there are some; none after so long, or at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or any(one.out for one in self._all.values()), timeout_s)
            found: list[Frame] = []
            size = 0
            while size < BATCH:
                ready = [one for one in self._all.values() if one.out]
                if not ready:
                    break
                self._turn += 1
                one = ready[self._turn % len(ready)]
                frame = one.out.popleft()
                one.queued -= len(frame.data)
                size += len(frame.data) + 1
                found.append(frame)
                self._leave(one)
            self._changed.notify_all()
            return found

    def put(self, frames: Sequence[Frame]) -> None:
        """Take frames of the other end."""
        for frame in frames:
            number, kind, data = frame
            with self._changed:
                one = self._all.get(number)
                if kind == OPEN and not self._closed:
                    one = self._all[number] = _Relayed(number, None)
                    self._start(self._connect, one, data.decode())
                if one is None:
                    continue
                if kind == DATA:
                    one.came.append(data)
                elif kind == END:
                    one.came.append(b"")
                elif kind == READ:
                    one.room += int.from_bytes(data, "big")
                elif kind == OPENED:
                    one.opened = True
                elif kind == BROKEN:
                    one.error = data.decode()
                self._changed.notify_all()
            if kind == BROKEN:
                self._break(one, tell=False)

    def close(self, reason: str = "the session has ended") -> None:
        """End all connections."""
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()
            left = list(self._all.values())
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            listener.close()
        for one in left:
            self._break(one, tell=False)

    @property
    def closed(self) -> str:
        """Why all connections have ended for ever, "" if they have not."""
        return self._closed

    # ------------------------------------------------------------------------------------------------- connections

    @staticmethod
    def _start(target: object, *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, name="weft-relay", daemon=True).start()  # type: ignore[arg-type]

    def _queue(self, one: _Relayed, frame: Frame) -> None:
        """Queue a frame. The caller has the lock."""
        one.out.append(frame)
        one.queued += len(frame.data)
        self._changed.notify_all()

    def _connect(self, one: _Relayed, address: str) -> None:
        """Connect to a node, at the far end; greet a caller of the far end, at the near end."""
        try:
            sock = self._connected(address) if self._far else self._greeted()
        except OSError as error:
            one.error = error.strerror or str(error)
            self._break(one, tell=True)
            return
        with self._changed:
            if self._is_over(one):  # meanwhile
                sock.close()
                return
            one.sock = sock
            self._queue(one, Frame(one.number, OPENED))
        self._carry(one)

    @staticmethod
    def _connected(address: str) -> socket.socket:
        host, _, port = address.rpartition("|")
        sock = dial_tcp((host, int(port)), _CONNECT_S)
        sock.settimeout(None)
        return sock

    def _greeted(self) -> socket.socket:
        greet = self.greet  # read once: the entrance may close at any moment
        if greet is None:
            raise ConnectionRefusedError("nothing takes callers")
        ours, theirs = socket.socketpair()
        self._start(greet, ours)
        return theirs

    def _carry(self, one: _Relayed) -> None:
        self._start(self._send_all, one)
        self._start(self._give_all, one)

    def _send_all(self, one: _Relayed) -> None:
        """Queue what the socket has, within the room of the other end."""
        assert one.sock is not None
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: (one.room and one.queued < BATCH) or self._is_over(one))
                    if self._is_over(one):
                        return
                    most = min(one.room, _PIECE)
                data = one.sock.recv(most)
                with self._changed:
                    one.room -= len(data)
                    self._queue(one, Frame(one.number, DATA if data else END, data))
                if not data:
                    break
        except OSError:
            self._break(one, tell=True)
            return
        self._half_over(one)

    def _give_all(self, one: _Relayed) -> None:
        """Give the socket what has come from the other end."""
        assert one.sock is not None
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: one.came or self._is_over(one))
                    if not one.came:
                        return
                    data = one.came.popleft()
                if not data:
                    one.sock.shutdown(socket.SHUT_WR)
                    break
                one.sock.sendall(data)
                with self._changed:
                    one.read += len(data)
                    if one.read >= _TOLD:
                        self._queue(one, Frame(one.number, READ, one.read.to_bytes(8, "big")))
                        one.read = 0
        except OSError:
            self._break(one, tell=True)
            return
        self._half_over(one)

    def _is_over(self, one: _Relayed) -> bool:
        return bool(self._closed) or one.halves == 0

    def _half_over(self, one: _Relayed) -> None:
        with self._changed:
            one.halves = max(0, one.halves - 1)
            over = one.halves == 0
            self._leave(one)
        if over and one.sock is not None:
            one.sock.close()

    def _leave(self, one: _Relayed) -> None:
        """Forget a connection that has ended, once the other end knows. The caller has the lock."""
        if one.halves == 0 and not one.out:
            self._all.pop(one.number, None)

    def _break(self, one: _Relayed, *, tell: bool) -> None:
        """End a connection in both directions, and `tell` the other end."""
        with self._changed:
            if one.halves and tell and not self._closed:
                self._queue(one, Frame(one.number, BROKEN, one.error.encode()))
            one.halves = 0
            self._leave(one)
            self._changed.notify_all()
        if one.sock is not None:
            with suppress(OSError):
                one.sock.shutdown(socket.SHUT_RDWR)  # wakes the threads that wait for it
            one.sock.close()


class RelayEntrance:
    """A port at the far end of a relay, by which the machines of the cluster reach this process; see `Entrance`."""

    def __init__(self, end: RelayEnd, listen: Callable[[], tuple[str, int]]) -> None:
        self.key = f"relay {id(end)}"
        self.dial = end.dial
        self._end, self._listen = end, listen
        self._address: tuple[str, int] | None = None

    def open(self, greet: Greet) -> tuple[str, int]:
        """See `Entrance.open`."""
        self._end.greet = greet
        self._address = self._address or self._listen()
        return self._address

    def close(self) -> None:
        """See `Entrance.close`."""
        self._end.greet = None
