"""Messages between the backend and its worker processes, over a socket pair.

A frame is a length of 4 bytes, a kind of 1 byte and a body: a pickle, or the path of a file with a pickle. Large
messages travel in a file of the run's shared-memory folder, so that each send is small; the reader removes the file.
Both ends are the same program of the same user, connected before either runs a task.
"""

from __future__ import annotations

import itertools
import mmap
import os
import pickle
import select
import socket
import struct
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from weft.store import codec, disk

if TYPE_CHECKING:
    from weft.store.tls import Connection

LEASE, FORGET, ANSWER, ACK, PATHS, SERIALIZERS, MODULES = range(7)
"""Messages of the backend: run a lease; drop codes and columns; the answer to an `ASK`; room for more of a stream;
module search paths; serializers of types; forget the modules of the user.
"""
HELLO, STARTED, PROGRESS, DONE, EMIT, ROWS, ASK, STREAM, STREAM_END = range(9)
"""Messages of a worker."""
START, KILL, END, LARGE_PAGES, BORN, ENDED = range(6)
"""Messages between the backend and the nursery, which forks the workers; it answers `LARGE_PAGES`."""

_HEAD: Final = struct.Struct("<IB")
_PLAIN, _FILE = 0, 1
BY_FILE: Final = 256 * 1024
"""The least number of bytes of a message that travels in a file."""
_READ: Final = 1 << 18


def dumps(value: Any) -> bytes:
    """Pickle a value by reference where the other side can import it, else by value; raises the error of pickling."""
    try:
        data = codec.dumps(value, protocol=5)
        if b"__main__" not in data:
            return data
    except Exception:  # noqa: BLE001
        pass
    return codec.dumps_by_value(value, protocol=5)


class FrameEncoder:
    """Makes frames. `folder` and `prefix` name the files of large messages; without a folder all travel in the
    socket.
    """

    def __init__(self, folder: str, prefix: str) -> None:
        self._folder = folder
        self._stem = f"{prefix}{os.getpid()}-message-"
        self._count = itertools.count()

    def frame(self, message: Any) -> bytes:
        """Return the frame of a message of plain data and bytes."""
        body = pickle.dumps(message, 5)
        kind = _PLAIN
        if len(body) >= BY_FILE and self._folder:
            path = f"{self._folder}/{self._stem}{next(self._count)}.chunks"
            try:
                _write(path, body)
                kind, body = _FILE, path.encode()
            except OSError:  # no room there: the socket is only slower
                disk.remove([path])
        return _HEAD.pack(len(body), kind) + body


def _write(path: str, body: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        disk.reserve(fd, len(body))
        view = memoryview(body)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


def _open(kind: int, body: bytes | memoryview) -> Any:
    if kind == _PLAIN:
        return pickle.loads(body)
    path = bytes(body).decode()
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as pages:
            return pickle.loads(pages)
    finally:
        os.close(fd)
        disk.remove([path])


class FrameDecoder:
    """Divides received bytes into messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Take bytes and yield the complete messages."""
        self._data += data
        buffer = self._data
        at = 0
        try:
            while len(buffer) - at >= _HEAD.size:
                length, kind = _HEAD.unpack_from(buffer, at)
                end = at + _HEAD.size + length
                if end > len(buffer):
                    break
                body = bytes(buffer[at + _HEAD.size : end])
                at = end
                yield _open(kind, body)
        finally:
            del buffer[:at]


class Channel:
    """The blocking end of a connection: one thread receives, any thread sends. Descriptors need a plain socket."""

    def __init__(self, sock: Connection, folder: str = "", prefix: str = "") -> None:
        self._sock = sock
        self._frames = FrameEncoder(folder, prefix)
        self._lock = threading.Lock()
        self._ahead = bytearray()
        """What was received beyond the last message."""

    def send(self, message: Any, fds: tuple[int, ...] = ()) -> None:
        """Send a message with optional descriptors. OSError: the other end is gone."""
        data = self._frames.frame(message)
        with self._lock:
            if fds:
                assert isinstance(self._sock, socket.socket)
                sent = socket.send_fds(self._sock, [data], fds)
                data = data[sent:]
            self._sock.sendall(data)

    def receive(self) -> Any:
        """Wait for a message and return it; None if the other end is gone. Descriptors that come with it are lost."""
        ahead, wanted, kind = self._ahead, _HEAD.size, -1
        while len(ahead) < wanted or kind < 0:
            if len(ahead) >= wanted:
                length, kind = _HEAD.unpack_from(ahead)
                wanted += length
                continue
            try:
                data = self._sock.recv(_READ)
            except OSError:
                return None
            if not data:
                return None
            ahead += data
        body = bytes(memoryview(ahead)[_HEAD.size : wanted])
        del ahead[:wanted]
        return _open(kind, body)

    def ready(self) -> bool:
        """Whether a message, or a part of one, has come."""
        return bool(self._ahead) or bool(select.select((self._sock,), (), (), 0)[0])

    def receive_with_fds(self, most: int) -> tuple[Any, list[int]]:
        """Wait for a message with up to `most` descriptors; (None, []) if the other end is gone."""
        assert isinstance(self._sock, socket.socket)
        try:
            head, fds, _, _ = socket.recv_fds(self._sock, _HEAD.size, most)
        except OSError:
            return None, []
        if head and len(head) < _HEAD.size:
            head += self._exactly(_HEAD.size - len(head)) or b""
        return self._body(head), list(fds)

    def _body(self, head: bytes | None) -> Any:
        if head is None or len(head) < _HEAD.size:
            return None
        length, kind = _HEAD.unpack(head)
        body = self._exactly(length)
        return None if body is None else _open(kind, body)

    def _exactly(self, nbytes: int) -> bytes | None:
        found = b""
        while len(found) < nbytes:
            try:
                data = self._sock.recv(min(nbytes - len(found), _READ))
            except OSError:
                return None
            if not data:
                return None
            found += data
        return found
