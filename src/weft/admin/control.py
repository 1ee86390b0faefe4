"""Orders for a run of another process: a Unix socket in the folder of the run.

A client sends one line of JSON, `{"do": "ping" | "cancel" | "story", ...}`, and receives one line: `{"ok": true,
"result": ...}` or `{"ok": false, "error": {"code", "message", "hint"}}`. Orders of other users are refused.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import (
    CapacityError,
    ConflictError,
    ForbiddenError,
    InternalError,
    NotFoundError,
    UsageError,
    WeftError,
)
from weft.store.folders import socket_name
from weft.store.state import CONTROL, os_error, owned

if TYPE_CHECKING:
    from pathlib import Path

MAX_REQUEST: Final = 64 << 10
MAX_ANSWER: Final = 4 << 20
_PATIENCE_S: Final = 2.0
_STARTING_POLL_S: Final = 0.02
_MAX_READS: Final = 64

Handler = Callable[[Mapping[str, Any]], Any]


class ControlServer:
    """Takes orders at a socket; from `serve` on, a thread answers them until `close`. The caller owns the folder of the
    run.

    `handlers` maps verbs ("cancel", "story") to functions of the order whose result is JSON; they are called on this
    thread and must return soon. `ping` is built in. ForbiddenError, DiskFullError: the socket cannot be made.
    """

    def __init__(self, folder: Path, handlers: Mapping[str, Handler]) -> None:
        self.path = folder / CONTROL
        self._handlers: dict[str, Handler] = {"ping": lambda _: {"pid": os.getpid()}, **handlers}
        undo = ExitStack()
        try:
            self._ready = undo.enter_context(selectors.DefaultSelector())
            self._wake, self._woken = map(undo.enter_context, socket.socketpair())
            self._server = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            with suppress(FileNotFoundError):
                self.path.unlink()  # of a killed owner
            with socket_name(self.path) as path:
                self._server.bind(path)
            self.path.chmod(0o600)
            self._server.listen(8)
        except OSError as error:
            undo.close()
            raise os_error(f"the control socket {self.path} cannot be made", error) from None
        self._open = True
        self._thread = threading.Thread(target=self._serve, name=f"control of {folder.name}", daemon=True)

    def serve(self, handlers: Mapping[str, Handler] | None = None) -> ControlServer:
        """Answer the orders, with further handlers; orders that have come already wait until now."""
        self._handlers |= handlers or {}
        self._thread.start()
        return self

    def close(self) -> None:
        """Answer no more orders, and remove the socket; a second call does nothing."""
        if not self._open:
            return
        self._open = False
        self._wake.close()
        if self._thread.ident is not None:
            self._thread.join()
        for end in (self._ready, self._server, self._woken):
            end.close()
        with suppress(FileNotFoundError):
            self.path.unlink()

    def __enter__(self) -> ControlServer:
        return self.serve()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        for end in (self._server, self._woken):
            self._ready.register(end, selectors.EVENT_READ)
        while True:
            if any(key.fileobj is self._woken for key, _ in self._ready.select()):
                return
            with suppress(OSError):  # the client has gone
                connection, _ = self._server.accept()
                with connection:
                    connection.settimeout(_PATIENCE_S)
                    connection.sendall(self._answer(connection))

    def _answer(self, connection: socket.socket) -> bytes:
        try:
            if not _same_user(connection):
                raise ForbiddenError("this run belongs to another user")
            request = _decode(_read_line(connection, MAX_REQUEST))
            handler = self._handlers.get(str(request.get("do")))
            if handler is None:
                raise UsageError(
                    f"a run has no command {str(request.get('do'))[:60]!r}",
                    hint=f"Its commands: {', '.join(self._handlers)}",
                )
            answer: dict[str, Any] = {"ok": True, "result": handler(request)}
            line = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
            if len(line) > MAX_ANSWER:
                raise ConflictError("the answer is too long to send", hint="Ask for less, for example one step.")
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001
            line = _refusal(error)
        return line


def send(folder: Path, request: Mapping[str, Any], timeout: float = 5.0, starting_s: float = 2.0) -> Any:
    """Send an order to the owner of the run in `folder` and return its result.

    A starting owner has `starting_s` seconds to open its socket. Errors of the owner are raised again, by their codes.
    ConflictError: the run is not running, or its owner does not answer within `timeout` seconds.
    """
    line = json.dumps(dict(request)).encode() + b"\n"
    if len(line) > MAX_REQUEST:
        raise UsageError(f"the order is too long: {len(line)} of at most {MAX_REQUEST} bytes")
    try:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
            connection.settimeout(timeout)
            _connect(connection, folder, starting_s)
            connection.sendall(line)
            answer = _decode(_read_line(connection, MAX_ANSWER, reads=None))
    except TimeoutError:
        raise ConflictError(
            f"the owner of {folder.name} does not answer", hint="It may be stopped or very busy; try again."
        ) from None
    except PermissionError:
        raise ForbiddenError(f"{folder.name} belongs to another user", hint="Ask that user.") from None
    except OSError:
        if owned(folder):
            raise ConflictError(f"{folder.name} is just starting or ending", hint="Try again in a moment.") from None
        raise ConflictError(f"{folder.name} is not running", hint=f"Look at it: weft show {folder.name}") from None
    if answer.get("ok"):
        return answer.get("result")
    raise _refused(answer.get("error"))


def _connect(connection: socket.socket, folder: Path, starting_s: float) -> None:
    for attempts_left in reversed(range(1 + int(starting_s / _STARTING_POLL_S))):
        try:
            with socket_name(folder / CONTROL) as path:
                connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            if not attempts_left or not owned(folder):
                raise
            sleep(_STARTING_POLL_S)
        else:
            return


# -------------------------------------------------------------------------------------------------------------- inside


def _same_user(connection: socket.socket) -> bool:
    if sys.platform != "linux":
        return True  # the folder is closed to others
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return user in (os.getuid(), 0)


def _read_line(connection: socket.socket, limit: int, reads: int | None = _MAX_READS) -> bytes:
    """Read up to a newline. A bound on `reads` keeps a slow client from holding the server for long."""
    data = bytearray()
    while b"\n" not in data[-65_536:]:
        if len(data) > limit or reads == 0:
            raise UsageError(f"the line is too long: more than {limit} bytes, or sent too slowly")
        more = connection.recv(min(65_536, limit + 1))
        if not more:
            raise ConnectionResetError
        data += more
        reads = None if reads is None else reads - 1
    return bytes(data.partition(b"\n")[0])


def _decode(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError("the line is not a JSON object", hint='Send for example {"do": "ping"}')
    return found


def _refusal(error: Exception) -> bytes:
    if not isinstance(error, WeftError):
        error = InternalError(f"{type(error).__name__}: {error}")
    document = {"code": error.code, "message": error.message[:MAX_REQUEST], "hint": error.hint}
    return json.dumps({"ok": False, "error": document}, separators=(",", ":")).encode() + b"\n"


def _refused(document: object) -> WeftError:
    """Return the error of a refusal."""
    known = document if isinstance(document, dict) else {}
    message, hint = str(known.get("message", "no reason was given")), str(known.get("hint", ""))
    for kind in (CapacityError, ConflictError, ForbiddenError, NotFoundError, UsageError):
        if kind.code == known.get("code"):
            return kind(message, hint=hint)
    return InternalError(message, hint=hint)
