"""Commands in replicas at other machines of a cluster: what a connection of ssh is to the agent of MPI.

At one machine the agent enters a replica by a Unix socket, over which it hands its standard streams
(`weft.worker.replica_exec`). Between machines a `ReplicaEntrance` has that socket at the machine of the caller, and a
`ReplicaGate` enters the replica at its own: they pass the streams on, over a connection of the cluster, which begins
with the proof of its secret. A frame is a byte with its kind, its length in 4 bytes, big endian, and its data.
"""

from __future__ import annotations

import array
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from weft.model.errors import WeftError
from weft.store import handshake
from weft.store.listening import listen
from weft.worker import replica_exec

if TYPE_CHECKING:
    from pathlib import Path

    from weft.store.handshake import Credentials
    from weft.store.tls import Connection

PURPOSE: Final = b"enter"
_LINE, _IN, _OUT, _ERR, _STATUS = range(5)
"""The kinds of frames: the command line, bytes of the streams (none: the end of the input), the exit status."""
_HEAD: Final = 5
_BLOCK: Final = 64 << 10
_LAST_BLOCKS: Final = 16
"""A pipe holds less than these when its command ends."""
_LOOK_S: Final = 0.1
_APPEARS_S: Final = 0.02
_BACKLOG: Final = 128
_CONNECT_S: Final = 10.0
_STATUS_BYTES: Final = 16


class ReplicaGate:
    """Lets those enter a replica of this machine who have proven the secret of the cluster.

    `folder` gets the socket of the replica when its command has started. The gate listens at `host`, at the port that
    it had `before` if that is free.
    """

    def __init__(self, folder: Path, name: str, host: str, before: int, credentials: Credentials) -> None:
        self._path, self._name, self._credentials = folder, name, credentials
        try:
            self._listener = socket.create_server((host, before))
        except OSError:
            self._listener = listen(host)
        self.port: int = self._listener.getsockname()[1]
        self._over = threading.Event()
        _begin(_serve, self._listener, self._attend)

    def _attend(self, sock: socket.socket, undo: ExitStack) -> None:
        _, caller = handshake.accept(sock, self._credentials, (PURPOSE,))
        undo.callback(caller.close)
        kind, line = _receive(caller)
        replica = self._reach()
        if kind != _LINE or replica is None:
            _send(caller, _ERR, f"[weft] no replica {self._name} runs\n".encode())
            _send(caller, _STATUS, b"%d" % replica_exec.UNREACHABLE)
            return
        undo.enter_context(replica)
        (theirs_in, ours_in), (out, theirs_out), (err, theirs_err) = os.pipe(), os.pipe(), os.pipe()
        for fd in (out, err):
            undo.callback(os.close, fd)
        streams = array.array("i", (theirs_in, theirs_out, theirs_err))
        try:
            replica.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
            replica.sendall(len(line).to_bytes(4, "big") + line)
        finally:
            for fd in streams:
                os.close(fd)
            _begin(_feed, caller, ours_in, replica)
        _send(caller, _STATUS, _passed_out(caller, replica, {out: _OUT, err: _ERR}))

    def _reach(self) -> socket.socket | None:
        """Return a connection to the socket of the replica; None: it does not appear in time."""
        for _ in range(int(replica_exec.APPEARING_S / _APPEARS_S)):
            replica = socket.socket(socket.AF_UNIX)
            with _short(self._path) as folder, suppress(OSError):
                replica.connect(f"{folder}/{self._name}{replica_exec.SUFFIX}")
                return replica
            replica.close()
            if self._over.wait(_APPEARS_S):
                break
        return None

    def close(self) -> None:
        """Let nobody enter any more."""
        self._over.set()
        _close(self._listener)


class ReplicaEntrance:
    """A socket in `folder` by which the agent enters a replica at another machine, whose gate has this address."""

    def __init__(self, folder: Path, name: str, gate: tuple[str, int], credentials: Credentials) -> None:
        self._name, self._gate, self._credentials = name, gate, credentials
        self._listener = socket.socket(socket.AF_UNIX)
        with _short(folder) as short:
            self._listener.bind(f"{short}/{name}{replica_exec.SUFFIX}")
        self._listener.listen(_BACKLOG)
        _begin(_serve, self._listener, self._attend)

    def _attend(self, caller: socket.socket, undo: ExitStack) -> None:
        streams, line = replica_exec.receive(caller)
        for fd in streams:
            undo.callback(os.close, fd)
        caller.settimeout(None)
        try:
            gate = handshake.connect(self._gate, self._credentials, PURPOSE, timeout_s=_CONNECT_S)
            undo.callback(gate.close)
            gate.settimeout(None)
            _send(gate, _LINE, line)
            over = threading.Event()
            feeder = _begin(_read, gate, streams[0], caller, over)
            try:
                status = _passed_on(gate, streams)
            finally:
                over.set()
                feeder.join()
        except (OSError, WeftError) as error:
            _write(streams[2], f"[weft] the replica {self._name} cannot be reached, or is lost: {error}\n".encode())
            status = b"%d" % replica_exec.UNREACHABLE
        caller.sendall(status)

    def close(self) -> None:
        """Let nobody enter any more."""
        _close(self._listener)


def _passed_out(caller: Connection, replica: socket.socket, outputs: dict[int, int]) -> bytes:
    """Send what a command writes to its caller, and return its status; empty if the replica has ended."""
    poll = select.poll()
    for fd in (replica.fileno(), *outputs):
        poll.register(fd, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if replica.fileno() in ready:
            break
        for fd in ready:
            if data := os.read(fd, _BLOCK):
                _send(caller, outputs[fd], data)
            else:
                poll.unregister(fd)
    status = replica.recv(_STATUS_BYTES)
    for fd, kind in outputs.items():
        os.set_blocking(fd, False)  # a child of the command may still have the other end
        with suppress(BlockingIOError):
            for _ in range(_LAST_BLOCKS):
                _send(caller, kind, os.read(fd, _BLOCK))
    return status


def _feed(caller: Connection, fd: int, replica: socket.socket) -> None:
    """Give a command what its caller sends; end it when the caller has gone."""
    given = True
    try:
        while True:
            _, data = _receive(caller)
            if given and not (data and _write(fd, data)):
                given = False
                os.close(fd)
    except OSError:
        with suppress(OSError):
            replica.shutdown(socket.SHUT_RDWR)
    finally:
        if given:
            os.close(fd)


def _read(gate: Connection, fd: int, caller: socket.socket, over: threading.Event) -> None:
    """Send the input of a caller to the gate until the command is `over`; give it up when the caller has gone."""
    poll = select.poll()
    for one in (fd, caller.fileno()):
        poll.register(one, select.POLLIN)
    with suppress(OSError):
        while not over.is_set():
            ready = [one for one, _ in poll.poll(_LOOK_S * 1000)]
            if caller.fileno() in ready:  # it sends no more: it has gone
                gate.shutdown(socket.SHUT_RDWR)
                return
            if fd in ready:
                data = os.read(fd, _BLOCK)
                _send(gate, _IN, data)
                if not data:
                    poll.unregister(fd)


def _passed_on(gate: Connection, streams: Sequence[int]) -> bytes:
    """Write what a command writes to the streams of its caller, and return its status. OSError: the gate is lost."""
    while True:
        kind, data = _receive(gate)
        if kind == _STATUS:
            if not data:
                raise ConnectionError("it has ended")
            return data
        _write(streams[kind - _IN], data)


def _write(fd: int, data: bytes) -> bool:
    """Write all of it; False: nobody reads it."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except OSError:
            return False
    return True


def _send(connection: Connection, kind: int, data: bytes) -> None:
    connection.sendall(bytes([kind]) + len(data).to_bytes(4, "big") + data)


def _receive(connection: Connection) -> tuple[int, bytes]:
    """Return the next frame. ConnectionError: there is none, or it is too long."""
    head = bytes(handshake.receive_exactly(connection, _HEAD))
    length = int.from_bytes(head[1:], "big")
    if length > replica_exec.LONGEST_LINE:
        raise ConnectionError(f"a frame of {length} bytes is too long")
    return head[0], bytes(handshake.receive_exactly(connection, length)) if length else b""


def _begin(work: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, name="weft-entering", daemon=True)
    thread.start()
    return thread


def _serve(listener: socket.socket, attend: Callable[[socket.socket, ExitStack], None]) -> None:
    """Attend each connection on a thread of its own, until the listener is closed."""

    def attend_one(sock: socket.socket) -> None:
        # The other end may have gone, or be a stranger.
        with sock, ExitStack() as undo, suppress(OSError, EOFError, WeftError):
            attend(sock, undo)

    with listener:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            _begin(attend_one, sock)


def _close(listener: socket.socket) -> None:
    """End a thread that accepts: closing alone does not wake it."""
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Yield a path of a folder that is short enough for the address of a socket."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
