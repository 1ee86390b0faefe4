"""The line between the process of a part and the server of its party: frames of MessagePack over a Unix socket.

The process opens with a token, says when it is prepared, and waits for the word to go. Values go out as bytes of `wire`
and come when they are asked for.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from weft.frontends.federated.schema import Party
from weft.frontends.federated.wire import decode, encode
from weft.model.errors import PartyMessageError, RunCancelledError
from weft.store.folders import socket_name

MOST_FRAME: Final = 1 << 30
_HEAD: Final = 4
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


class FrameLine:
    """Frames over a connected socket; `send` may be called from several threads."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()

    def send(self, *frame: Any) -> None:
        """Send a frame. OSError: the other end is gone."""
        data = _encode(frame)
        with self._lock:
            self._socket.sendall(len(data).to_bytes(_HEAD, "little") + data)

    def receive(self) -> list[Any] | None:
        """Return the next frame; None: the other end is gone. PartyMessageError: it is no frame."""
        head = self._exactly(_HEAD)
        if head is None:
            return None
        size = int.from_bytes(head, "little")
        if size > MOST_FRAME:
            raise PartyMessageError(f"a frame of a part has {size:,} bytes; at most {MOST_FRAME:,} are allowed")
        data = self._exactly(size)
        if data is None:
            return None
        try:
            frame = _decode(data)
        except msgspec.MsgspecError as error:
            raise PartyMessageError(f"a frame of a part is malformed: {error}") from None
        if not isinstance(frame, list) or not frame or not isinstance(frame[0], str):
            raise PartyMessageError("a frame of a part has no kind")
        return frame

    def close(self) -> None:
        """Close the socket; a waiting `receive` returns None."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _exactly(self, size: int) -> bytes | None:
        found = bytearray(size)
        view, at = memoryview(found), 0
        while at < size:
            try:
                count = self._socket.recv_into(view[at:])
            except OSError:
                return None
            if not count:
                return None
            at += count
        return bytes(found)


class SocketChannel:
    """The end of the process: a `ComponentChannel`."""

    def __init__(self, path: str, token: str) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with socket_name(Path(path)) as name:
            connection.connect(name)
        self._line = FrameLine(connection)
        self._line.send("hello", token)
        self._waits = threading.Lock()

    def prepared(self) -> None:
        """Say that the part is ready, and wait for the word to go. RunCancelledError: the attempt was stopped."""
        self._line.send("prepared")
        self._expect("go")

    def send(self, name: str, value: Any, to: Party | Sequence[Party]) -> None:
        """See `ComponentChannel.send`."""
        data = encode(value)
        for one in [to] if isinstance(to, Party) else to:
            self._line.send("send", name, one.role, one.id, data)

    def receive(self, name: str, source: Party) -> Any:
        """See `ComponentChannel.receive`."""
        with self._waits:
            self._line.send("receive", name, source.role, source.id)
            return decode(self._expect("value")[1])

    def finish(self) -> None:
        """Wait until the server has taken all values. RunCancelledError: the attempt was stopped."""
        with self._waits:
            self._line.send("finish")
            self._expect("finished")

    def close(self) -> None:
        """Close the line."""
        self._line.close()

    def _expect(self, kind: str) -> list[Any]:
        frame = self._line.receive()
        if frame is None:
            raise RunCancelledError("the server of the party has ended the part")
        if frame[0] == "stop":
            raise RunCancelledError(str(frame[1]))
        if frame[0] != kind:
            raise PartyMessageError(f"the server sent {frame[0]!r} in place of {kind!r}")
        return frame


class PartGate:
    """The end of the server, for one process: it listens at `path` and takes one connection with the token.

    `on_prepared` and `on_send(name, to, data)` are called from its thread.
    """

    def __init__(
        self,
        path: Path,
        token: str,
        *,
        on_prepared: Callable[[], None],
        on_send: Callable[[str, Party, bytes], None],
    ) -> None:
        self._path, self._token = path, token
        self._on_prepared, self._on_send = on_prepared, on_send
        self._values: dict[tuple[str, Party], deque[bytes]] = defaultdict(deque)
        self._asked: tuple[str, Party] | None = None
        self._goes, self._stopped, self._closed = False, "", False
        self._line: FrameLine | None = None
        self._lock = threading.Lock()
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with socket_name(path) as name:
            self._server.bind(name)
        os.chmod(path, 0o600)
        self._server.listen(1)
        self._thread = threading.Thread(target=self._run, name="part-gate", daemon=True)
        self._thread.start()

    def go(self) -> None:
        """Let the process begin its work."""
        with self._lock:
            if not self._goes:
                self._goes = True
                self._say("go")

    def deliver(self, name: str, source: Party, data: bytes) -> None:
        """Hand over a value, which waits until the process asks for it."""
        with self._lock:
            self._values[name, source].append(data)
            self._serve()

    def stop(self, reason: str) -> None:
        """Let whatever the process waits for end."""
        with self._lock:
            self._stopped = reason or "stopped"
            self._say("stop", self._stopped)

    def close(self) -> None:
        """Close the line and remove the socket."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._line is not None:
                self._line.close()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._path.unlink(missing_ok=True)
        if self._thread is not threading.current_thread():
            self._thread.join()

    # ------------------------------------------------------------------------------------------------------ inside

    def _run(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        line = FrameLine(connection)
        try:
            self._talk(line)
        except (PartyMessageError, ValueError, TypeError):
            pass  # a broken process ends with its exit code
        finally:
            line.close()

    def _talk(self, line: FrameLine) -> None:
        hello = line.receive()
        if hello != ["hello", self._token]:
            return
        with self._lock:
            self._line = line
            if self._stopped:
                self._say("stop", self._stopped)
        while (frame := line.receive()) is not None:
            match frame:
                case ["prepared"]:
                    self._on_prepared()
                case ["send", str(name), str(role), str(id), bytes(data)]:
                    self._on_send(name, Party(role, id), data)
                case ["receive", str(name), str(role), str(id)]:
                    with self._lock:
                        self._asked = (name, Party(role, id))
                        self._serve()
                case ["finish"]:  # the process ends: what it has sent would be lost with the line
                    with self._lock:
                        self._say("finished")
                case _:
                    raise PartyMessageError(f"a part sent {frame[0]!r}")

    def _serve(self) -> None:
        """Send the value that was asked for, if it is there; the lock is held."""
        waiting = None if self._asked is None else self._values.get(self._asked)
        if waiting and self._asked is not None:
            self._asked = None
            self._say("value", waiting.popleft())

    def _say(self, *frame: Any) -> None:
        """Send a frame to the process, if it is connected; the lock is held."""
        if self._line is not None:
            with suppress(OSError):
                self._line.send(*frame)
