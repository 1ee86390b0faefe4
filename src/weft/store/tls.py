"""TLS on the connections of a cluster: both ends show a certificate, and verify that of the other by the same CA.

The names of hosts are not checked: who has a certificate of the CA belongs to the cluster.

A connection has one thread that sends and another that receives. OpenSSL does not allow that at one time, so that
records are made and opened in memory under a lock, and the socket is used outside of it.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from weft.model.errors import ForbiddenError, UsageError

if TYPE_CHECKING:
    import mmap

Received = TypeVar("Received", int, bytes)
_READ: Final = 1 << 18
_WRITE: Final = 1 << 16
_HANDSHAKE: Final = b"\x16"
"""The first byte that a client of TLS sends."""
REFUSAL_BYTES: Final = 32
"""The bytes of an answer to a client of the other kind; no challenge has this value by chance."""
NEEDS_TLS: Final = b"weft: this end needs TLS".ljust(REFUSAL_BYTES)
HAS_NO_TLS: Final = b"weft: this end has no TLS".ljust(REFUSAL_BYTES)
_OTHER_NAMES: Final = (62, 64)
"""The results of OpenSSL for certificates that do not name a host, or an address."""
HINT: Final = (
    "All machines and the process of the session need RAY_USE_TLS=1, and certificates of one CA in RAY_TLS_SERVER_CERT,"
    " RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT."
)


class TlsFiles(NamedTuple):
    """The paths of PEM files: the certificate of this machine, its private key, and the certificate of the CA."""

    cert: str
    key: str
    ca: str


class TlsConnection:
    """A connection whose handshake is done: the methods of a socket that the protocols of nodes use."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, serves: bool, host: str | None = None) -> None:
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._records = context.wrap_bio(self._incoming, self._outgoing, server_side=serves, server_hostname=host)
        self._lock = threading.Lock()
        self._buffer = bytearray(_READ)
        self.first = b""
        """The first bytes that the other end has sent."""

    def shake_hands(self) -> None:
        """Do the handshake. ssl.SSLError: the ends do not agree. OSError: the other end does not answer in time."""
        while True:
            try:
                self._records.do_handshake()
            except ssl.SSLWantReadError:
                self._sock.sendall(self._outgoing.read())
                if not self._fill():
                    self._incoming.write_eof()
            except ssl.SSLError:
                self._sock.sendall(self._outgoing.read())  # tells the other end the reason
                raise
            else:
                self._sock.sendall(self._outgoing.read())
                return

    def _fill(self) -> int:
        got = self._sock.recv_into(self._buffer)
        with self._lock:
            self._incoming.write(memoryview(self._buffer)[:got])
        if len(self.first) < REFUSAL_BYTES:
            self.first += bytes(self._buffer[: min(got, REFUSAL_BYTES)])
        return got

    def recv_into(self, view: memoryview) -> int:
        """Receive into a buffer and return the number of bytes, 0 at the end of the connection. For one thread."""
        # With a buffer, the result is a number; the stubs of the standard library say bytes.
        return self._received(lambda: cast("int", self._records.read(len(view), view))) or 0

    def recv(self, nbytes: int) -> bytes:
        """Receive at most so many bytes, none at the end of the connection. For the thread of `recv_into`."""
        return self._received(lambda: self._records.read(nbytes)) or b""

    def _received(self, read: Callable[[], Received]) -> Received | None:
        """Return what `read` takes of the records that have come, or will come; None at the end of the connection."""
        while True:
            with self._lock:
                try:
                    return read()
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLZeroReturnError:
                    return None
            if not self._fill():  # OpenSSL is not told of it, and still sends: the other end may receive
                return None

    def sendall(self, data: bytes | bytearray | memoryview | mmap.mmap) -> None:
        """Send bytes. For one thread."""
        whole = memoryview(data)
        view = whole.cast("B") if whole.nbytes else whole
        while view.nbytes:
            with self._lock:
                sent = self._records.write(view[:_WRITE])
                sealed = self._outgoing.read()
            self._sock.sendall(sealed)
            view = view[sent:]

    def settimeout(self, seconds: float | None) -> None:
        """See `socket.socket.settimeout`."""
        self._sock.settimeout(seconds)

    def gettimeout(self) -> float | None:
        """See `socket.socket.gettimeout`."""
        return self._sock.gettimeout()

    def fileno(self) -> int:
        """See `socket.socket.fileno`."""
        return self._sock.fileno()

    def getsockname(self) -> Any:
        """See `socket.socket.getsockname`."""
        return self._sock.getsockname()

    def shutdown(self, how: int) -> None:
        """See `socket.socket.shutdown`: messages carry their length, so that a cut one is noticed."""
        self._sock.shutdown(how)

    def close(self) -> None:
        """See `socket.socket.close`."""
        self._sock.close()


Connection = socket.socket | TlsConnection


def has_hung_up(connection: Connection) -> bool:
    """Return whether the other end has closed a connection, and nothing that it sent before waits at the socket."""
    sock = connection._sock if isinstance(connection, TlsConnection) else connection
    try:
        return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def check_files(files: TlsFiles) -> None:
    """Check that the files of a machine can be used. UsageError: a file is missing, unreadable or no such file."""
    _contexts(files)


def secure_client(sock: socket.socket, files: TlsFiles, where: str) -> TlsConnection:
    """Return the end of a client whose handshake with a node is done; `where` names it in errors.

    ForbiddenError: one end refuses the certificate of the other, or the node has no TLS. OSError: it does not answer.
    """
    connection = TlsConnection(sock, _contexts(files)[0], serves=False)
    try:
        connection.shake_hands()
    except ssl.SSLError as error:
        if connection.first.startswith(HAS_NO_TLS):
            raise ForbiddenError(f"this process uses TLS, and {where} does not", hint=HINT) from error
        raise refused(error, files, where) from error
    return connection


def check_grpc(sock: socket.socket, files: TlsFiles | None, host: str, where: str) -> None:
    """Check that a server of gRPC at `host` and this process would accept each other: gRPC itself only tries again.

    ForbiddenError: one has TLS and the other does not, or one would refuse the certificate of the other, as gRPC does
    also for a server's that does not name `host`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if files is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with suppress(OSError):
            TlsConnection(sock, context, serves=False).shake_hands()
            raise ForbiddenError(f"{where} uses TLS, and this process does not", hint=HINT)
        return
    check_files(files)
    context.load_verify_locations(files.ca)
    context.load_cert_chain(files.cert, files.key)
    connection = TlsConnection(sock, context, serves=False, host=host)
    try:
        connection.shake_hands()
    except ssl.SSLCertVerificationError as error:
        if error.verify_code not in _OTHER_NAMES:
            raise refused(error, files, where) from error
        raise ForbiddenError(
            f"the certificate of {where} does not name {host}: {error.verify_message}",
            hint=f"Name the cluster as its certificate does, or give its head one that names {host}, too, as of the "
            "near end of a tunnel.",
        ) from error
    except ssl.SSLError as error:
        raise ForbiddenError(f"this process uses TLS, and {where} does not", hint=HINT) from error
    try:
        heard = connection.recv_into(memoryview(bytearray(1)))
    except ssl.SSLError as error:
        raise refused(error, files, where) from error
    if not heard:
        raise ForbiddenError(
            f"{where} refuses the certificate {files.cert} of this process",
            hint="It must be of the CA of the cluster, and not expired: "
            f"openssl x509 -noout -issuer -dates -in {files.cert}",
        )


def refused(error: ssl.SSLError, files: TlsFiles, where: str) -> ForbiddenError:
    """Return the error for a handshake that has failed; `where` names the other end."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the certificate of {where} cannot be verified by {files.ca}: {error.verify_message}"
    elif "ALERT" in (error.reason or ""):
        said = (error.reason or "").partition("ALERT_")[2].replace("_", " ").lower()
        text = f"{where} refuses the certificate {files.cert} of this process: {said}"
    else:
        text = f"{where} does not answer by TLS: {error.reason or error}"
    return ForbiddenError(text, hint=HINT)


def secure_server(sock: socket.socket, files: TlsFiles | None) -> Connection:
    """Return the end of a node for a client that has connected; its handshake is done if the node has `files`.

    ForbiddenError: the client is of the other kind, which it is told. OSError: it is silent, or the handshake fails.
    """
    first = sock.recv(1, socket.MSG_PEEK)
    if (first == _HANDSHAKE) is not (files is not None):
        linger(sock, NEEDS_TLS if files is not None else HAS_NO_TLS)
        raise ForbiddenError("a client uses TLS, and this node does not, or the other way round", hint=HINT)
    if files is None:
        return sock
    connection = TlsConnection(sock, _contexts(files)[1], serves=True)
    try:
        connection.shake_hands()
    except ssl.SSLError:
        linger(sock)
        raise
    return connection


def linger(sock: socket.socket, last: bytes = b"") -> None:
    """Send last words, and wait until the other end has closed: what it sent unread would take them back."""
    sock.sendall(last)
    sock.shutdown(socket.SHUT_WR)
    while sock.recv(_READ):
        pass


@cache
def _contexts(files: TlsFiles) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a client and of a server. UsageError: a file cannot be used."""
    for what, path in files._asdict().items():
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise UsageError(f"{_WHAT[what]} {path} cannot be read: {error.strerror}", hint=_FILES_HINT) from error
    made = []
    for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0  # connections are kept, not resumed
        try:
            context.load_verify_locations(files.ca)
        except ssl.SSLError as error:
            raise UsageError(f"{files.ca} holds no certificate of a CA: {error.reason}", hint=_FILES_HINT) from error
        try:
            context.load_cert_chain(files.cert, files.key, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            said = getattr(error, "reason", None) or error
            raise UsageError(
                f"{files.cert} and {files.key} are no certificate with its private key: {said}", hint=_FILES_HINT
            ) from error
        made.append(context)
    return made[0], made[1]


def _no_password() -> str:
    raise ValueError("the key has a password, which nobody can be asked for here")


_WHAT: Final = {"cert": "the certificate", "key": "the private key", "ca": "the certificate of the CA"}
_FILES_HINT: Final = (
    "RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT name files of this machine in the format PEM."
)
