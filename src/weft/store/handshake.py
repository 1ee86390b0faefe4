"""The proof of both ends of a connection that they know the secret of their cluster.

Each end sends a random challenge and answers that of the other with an HMAC-SHA256 of it and its own role, so that an
answer cannot be sent back. Nothing else is read before the proof, and nothing is ever unpickled without it.
"""

from __future__ import annotations

import hmac
import mmap
import os
from typing import TYPE_CHECKING, Final

from weft.model.errors import ForbiddenError

if TYPE_CHECKING:
    import socket

PATIENCE_S: Final = 10.0
"""Seconds that an end waits for the proof of the other."""
PURPOSE_BYTES: Final = 8
_CHALLENGE: Final = 32
_ANSWER: Final = 32


_BIG: Final = 1 << 20


def receive_exactly(sock: socket.socket, nbytes: int) -> bytearray | mmap.mmap:
    """Return the next `nbytes` of a connection. ConnectionError: it ends before."""
    # Anonymous pages instead of a large bytearray, which would be filled with zeros first.
    found = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if nbytes >= _BIG else bytearray(nbytes)
    view = memoryview(found)
    while view:
        got = sock.recv_into(view)
        if not got:
            raise ConnectionError("the other end closed the connection")
        view = view[got:]
    return found


def purpose_of(sock: socket.socket) -> bytes:
    """Return the purpose that the other end of a connection names first. OSError: it names none in time."""
    before = sock.gettimeout()
    sock.settimeout(PATIENCE_S)
    found = bytes(receive_exactly(sock, PURPOSE_BYTES)).rstrip()
    sock.settimeout(before)
    return found


def prove(sock: socket.socket, secret: bytes, purpose: bytes, *, serves: bool) -> None:
    """Prove the secret to the other end, and have it proven. `purpose` names the protocol that follows.

    ForbiddenError: the other end does not know the secret, or wants another purpose. OSError: it does not answer in
    time.
    """
    before = sock.gettimeout()
    sock.settimeout(PATIENCE_S)
    if not serves:
        sock.sendall(purpose.ljust(PURPOSE_BYTES))
    ours = os.urandom(_CHALLENGE)
    mine, theirs = (b"server", b"client") if serves else (b"client", b"server")
    sock.sendall(ours)
    challenge = bytes(receive_exactly(sock, _CHALLENGE))
    sock.sendall(_answer(secret, mine, purpose, challenge, ours))
    answer = bytes(receive_exactly(sock, _ANSWER))
    if not hmac.compare_digest(answer, _answer(secret, theirs, purpose, ours, challenge)):
        raise ForbiddenError(
            "the other end of a connection between nodes does not know the secret of this cluster",
            hint="Another cluster, or another program, uses this port.",
        )
    sock.settimeout(before)


def _answer(secret: bytes, role: bytes, purpose: bytes, challenge: bytes, own: bytes) -> bytes:
    return hmac.digest(secret, b"/".join((b"weft", role, purpose, challenge, own)), "sha256")
