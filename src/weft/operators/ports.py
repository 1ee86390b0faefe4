"""Free ports of this machine: each is reserved for one user of it, also between several runs of Weft.

A reserved port has a lock on its byte of a file in the user's temporary folder; the system releases it with the
process. Until the program that listens there starts, a bound socket keeps other programs away too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
from typing import TYPE_CHECKING, Final

from weft.model.errors import NotFoundError
from weft.store.folders import temporary_folder, user_root

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_PORT: Final = 20_000
LAST_PORT: Final = 32_767
"""The ports to choose from: below those that Linux and macOS give to outgoing connections."""


class PortTable:
    """The ports that this process has reserved."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file = -1
        self._held: dict[int, socket.socket | None] = {}

    def reserve(self) -> int:
        """Return a free port and keep it. NotFoundError: there is none."""
        import random  # jobs in namespaces reserve no ports

        with self._lock:
            self._open()
            count = LAST_PORT - FIRST_PORT + 1
            start = random.randrange(count)
            for offset in range(count):
                port = FIRST_PORT + (start + offset) % count
                if port not in self._held and self._take(port):
                    return port
        hint = "End programs that listen there, or run fewer replicas."
        raise NotFoundError(f"no port between {FIRST_PORT} and {LAST_PORT} is free", hint=hint)

    def take(self, port: int) -> bool:
        """Reserve this port; return whether it was free."""
        with self._lock:
            self._open()
            return port not in self._held and self._take(port)

    def open_to(self, port: int) -> None:
        """Let the program that is about to start listen at a reserved port."""
        with self._lock:
            held = self._held.get(port)
            if held is not None:
                held.close()
                self._held[port] = None

    def release(self, port: int) -> None:
        """End the reservation of a port."""
        with self._lock:
            if port in self._held:
                held = self._held.pop(port)
                if held is not None:
                    held.close()
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, port)

    def forget(self) -> None:
        """Forget the reservations of the parent after a fork: the locks are the parent's."""
        self.__init__()  # type: ignore[misc]

    def _open(self) -> None:
        if self._file < 0:
            path = user_root(temporary_folder()) / "ports.lock"
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def _take(self, port: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        held = bound(port)
        if held is None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, port)
            return False
        self._held[port] = held
        return True


def bound(port: int) -> socket.socket | None:
    """Return a socket at a port of all addresses, None if the port is in use. It accepts no connections."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.bind(("", port))
    except OSError as error:
        held.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return None
        raise
    return held


def why_taken(ports: Mapping[int, int], name: str) -> str:
    """Return which port of an ended member another program uses, "" if none; `ports` has the ports by declared one."""
    for declared, port in ports.items():
        held = bound(port)
        if held is None:
            return f"port {port} of {name}, in place of {declared}, is used by another program"
        held.close()
    return ""


PORTS: Final = PortTable()
os.register_at_fork(after_in_child=PORTS.forget)
