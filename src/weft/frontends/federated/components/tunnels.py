"""A tunnel between two parts: what connects to a socket at one comes out at a socket of the other.

Programs of other providers speak protocols of their own. They meet through the channel of their component, so their
bytes go the way of all values, with its identities, signatures and accounts, and need no port.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import PartyMessageError, RunCancelledError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from weft.frontends.federated.components.base import ComponentChannel
    from weft.frontends.federated.schema import Party

_MOST: Final = 1 << 18
_POLL_S: Final = 0.02
_TRIES: Final = 3_000
_OPEN: Final = 16


class PartTunnel:
    """Carries connections between programs of two parts, as values named `tunnel`.

    Connections to the socket `entry` come out at the socket `exit` of the other part. `close` tells the other part that
    no more comes, and waits until it says the same. `failed` is called once if the tunnel ends for another reason.
    """

    def __init__(
        self, channel: ComponentChannel, peer: Party, *, entry: Path, exit: Path, failed: Callable[[], None]
    ) -> None:
        self._channel, self._peer, self._exit, self._failed = channel, peer, exit, failed
        self._lines: dict[str, socket.socket] = {}
        self._lock = threading.Lock()
        self._ends = False
        self.error: Exception | None = None
        self._entry = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._entry.bind(str(entry))
        self._entry.listen(_OPEN)
        self._receiver = threading.Thread(target=self._receive, name="tunnel", daemon=True)
        self._receiver.start()
        threading.Thread(target=self._accept, name="tunnel-entry", daemon=True).start()

    def close(self) -> None:
        """End both directions. PartyMessageError, RunCancelledError: what has ended the tunnel before."""
        with self._lock:
            self._ends = True
        self._channel.send("tunnel", ["end", "", b""], self._peer)
        self._receiver.join()
        self.shut()
        if self.error is not None:
            raise self.error

    def shut(self) -> None:
        """Close all sockets."""
        with self._lock:
            self._ends = True
            lines = [self._entry, *self._lines.values()]
        for one in lines:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    # ------------------------------------------------------------------------------------------------------- inside

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                line, _ = self._entry.accept()
            except OSError:
                return
            number += 1
            self._start(f"{number}", line, "to")

    def _start(self, id: str, line: socket.socket, direction: str) -> None:
        with self._lock:
            if self._ends:
                line.close()
                return
            self._lines[f"{direction} {id}"] = line
        threading.Thread(target=self._pump, args=(id, line, direction), name="tunnel-line", daemon=True).start()

    def _pump(self, id: str, line: socket.socket, direction: str) -> None:
        """Send what a program writes. `direction` is "to" for a connection that began here, "back" for its answers."""
        while True:
            try:
                data = line.recv(_MOST)
            except OSError:
                data = b""
            with self._lock:
                if self._ends:
                    return
            try:
                self._channel.send("tunnel", [direction, id, data], self._peer)
            except OSError:  # the server of this part is gone, which the receiver tells
                return
            if not data:
                return

    def _receive(self) -> None:
        try:
            while self._deliver(self._channel.receive("tunnel", self._peer)):
                pass
        except (PartyMessageError, RunCancelledError) as error:
            self.error = error
            self._failed()

    def _deliver(self, value: Any) -> bool:
        """Write what has come to its connection; return whether more may come."""
        if not (isinstance(value, list) and [type(one) for one in value] == [str, str, bytes]):
            raise PartyMessageError(
                f"{self._peer} has sent a value that is no piece of a connection", party=self._peer.id
            )
        direction, id, data = value
        if direction == "end":
            return False
        # What the other part calls "to" began there, and its end here is one for answers, and the other way round.
        key = f"{'back' if direction == 'to' else 'to'} {id}"
        with self._lock:
            line = self._lines.get(key)
        if line is None and direction == "to" and data:
            line = self._connected()
            if line is not None:
                self._start(id, line, "back")
        if line is not None:
            with suppress(OSError):
                if data:
                    line.sendall(data)
                else:
                    line.shutdown(socket.SHUT_WR)
        return True

    def _connected(self) -> socket.socket | None:
        """Return a connection to the program of this part, which may not listen yet; None if it never does."""
        for _ in range(_TRIES):
            if self._ends:
                break
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                line.connect(str(self._exit))
            except OSError:
                line.close()
                time.sleep(_POLL_S)
            else:
                return line
        return None
