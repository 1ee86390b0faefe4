"""The proof of both ends of a connection that they know the secret of their cluster.

Each end sends a random challenge and answers that of the other with an HMAC-SHA256 of it and its own role, so that an
answer cannot be sent back. Nothing else is read before the proof, and nothing is ever unpickled without it.
"""

from __future__ import annotations

import hmac
import os
import socket
import ssl
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from weft.model.errors import ForbiddenError
from weft.store.pages import private_pages
from weft.store.tls import HINT, NEEDS_TLS, Connection, TlsFiles, refused, secure_client, secure_server

PATIENCE_S: Final = 10.0
"""Seconds that an end waits for the proof of the other."""
PURPOSE_BYTES: Final = 8
_CHALLENGE: Final = 32
_ANSWER: Final = 32


class Credentials(NamedTuple):
    """What a process shows to the others of its cluster: the secret of the session, and by TLS a certificate, too."""

    secret: bytes
    tls: TlsFiles | None = None


Dial = Callable[[tuple[str, int], float], socket.socket]
"""Connects to an address within so many seconds. OSError: it cannot be reached, or not in time."""


def dial_tcp(address: tuple[str, int], timeout_s: float) -> socket.socket:
    """Connect to an address over TCP; see `Dial`."""
    sock = socket.create_connection(address, timeout=timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:  # the other end has hung up
        sock.close()
        raise
    return sock


def connect(
    address: tuple[str, int], credentials: Credentials, purpose: bytes, *, timeout_s: float, dial: Dial = dial_tcp
) -> Connection:
    """Connect to a node for a purpose; both ends have proven themselves then.

    `timeout_s` bounds the wait for the connection, and is kept as its timeout. OSError: the node cannot be reached, or
    does not answer in time. ForbiddenError: one end does not know the secret, or refuses the certificate of the other.
    """
    sock = dial(address, timeout_s)
    try:
        sock.settimeout(PATIENCE_S)
        where = f"the node at {address[0]}:{address[1]}"
        connection: Connection = sock
        if credentials.tls is not None:
            connection = secure_client(sock, credentials.tls, where)
        try:
            prove(connection, credentials.secret, purpose, serves=False)
        except ssl.SSLError as error:  # a node refuses a certificate behind the handshake of TLS 1.3
            if credentials.tls is None:
                raise
            raise refused(error, credentials.tls, where) from error
        sock.settimeout(timeout_s)
    except BaseException:
        sock.close()
        raise
    return connection


def accept(sock: socket.socket, credentials: Credentials, purposes: Collection[bytes]) -> tuple[bytes, Connection]:
    """Return the purpose of a client that has connected, and the connection; both ends have proven themselves then.

    ForbiddenError: one end does not know the secret, or the client wants something else. OSError: it does not answer in
    time, or one end refuses the certificate of the other.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(PATIENCE_S)
    connection = secure_server(sock, credentials.tls)
    purpose = bytes(receive_exactly(connection, PURPOSE_BYTES)).rstrip()
    if purpose not in purposes:
        raise ForbiddenError("a client wants something that no node does", hint="Another program uses this port.")
    prove(connection, credentials.secret, purpose, serves=True)
    sock.settimeout(None)
    return purpose, connection


def receive_into(sock: Connection, view: memoryview) -> None:
    """Receive as many bytes as `view` has. ConnectionError: the connection ends before."""
    while view:
        got = sock.recv_into(view)
        if not got:
            raise ConnectionError("the other end closed the connection")
        view = view[got:]


def receive_exactly(sock: Connection, nbytes: int) -> memoryview:
    """Return the next `nbytes` of a connection. ConnectionError: it ends before."""
    found = private_pages(nbytes)
    receive_into(sock, found)
    return found


def prove(sock: Connection, secret: bytes, purpose: bytes, *, serves: bool) -> None:
    """Prove the secret to the other end, and have it proven. `purpose` names the protocol that follows.

    ForbiddenError: the other end does not know the secret, or wants another purpose. OSError: it does not answer.
    """
    if not serves:
        sock.sendall(purpose.ljust(PURPOSE_BYTES))
    ours = os.urandom(_CHALLENGE)
    mine, theirs = (b"server", b"client") if serves else (b"client", b"server")
    sock.sendall(ours)
    challenge = bytes(receive_exactly(sock, _CHALLENGE))
    if challenge == NEEDS_TLS:
        raise ForbiddenError("the nodes of this cluster use TLS, and this process does not", hint=HINT)
    sock.sendall(_answer(secret, mine, purpose, challenge, ours))
    answer = bytes(receive_exactly(sock, _ANSWER))
    if not hmac.compare_digest(answer, _answer(secret, theirs, purpose, ours, challenge)):
        raise ForbiddenError(
            "the other end of a connection between nodes does not know the secret of this cluster",
            hint="Another cluster, or another program, uses this port.",
        )


def _answer(secret: bytes, role: bytes, purpose: bytes, challenge: bytes, own: bytes) -> bytes:
    return hmac.digest(secret, b"/".join((b"weft", role, purpose, challenge, own)), "sha256")
