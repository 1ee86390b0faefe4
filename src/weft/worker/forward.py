"""Services whose ports differ from those of their pods: a process in the job network forwards the connections.

It is loaded by `sandbox.main`, and imports nothing of Weft.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Address = tuple[str, int]

CONNECT_S = 1.0
"""The most seconds that a member of a service has to take a connection before the next one is tried."""
_BLOCK = 1 << 16


def listen(rules: Sequence[tuple[Address, Sequence[Address]]]) -> None:
    """Forward each connection to an address of a service to the first of its members that takes it; return at once."""
    for address, members in rules:
        server = socket.create_server((address[0], address[1]), backlog=128)
        threading.Thread(target=_accept, args=(server, members), daemon=True).start()


def _accept(server: socket.socket, members: Sequence[Address]) -> None:
    while True:
        try:
            near, _ = server.accept()
        except OSError:  # such as a connection that was reset meanwhile
            continue
        threading.Thread(target=_forward, args=(near, members), daemon=True).start()


def _forward(near: socket.socket, members: Sequence[Address]) -> None:
    with near:
        for member in members:
            try:
                far = socket.create_connection((member[0], member[1]), CONNECT_S)
            except OSError:
                continue
            break
        else:
            return  # closed: no member takes connections
        with far:
            far.settimeout(None)
            back = threading.Thread(target=_copy, args=(far, near), daemon=True)
            back.start()
            _copy(near, far)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_BLOCK):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
