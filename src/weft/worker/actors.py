"""Actors: objects that live in a task, and whose methods other tasks and the program call.

The task of an actor listens at a Unix socket in a private folder of the machine of its program, or, on another machine
of a cluster, at a port that it tells there; processes of other machines go by an entrance to the program
(`weft.worker.actor_gateway`). Each calling thread has a connection
of its own, on which its calls run in the order in which they were made. Both ends prove the secret of the actor before
anything is unpickled. An `ActorHandle` names the folder and the secret; it travels in the parameters of a vertex.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pickle
import shutil
import socket
import struct
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, NamedTuple, Self

from weft.model.errors import ActorEndedError, ForbiddenError, ProgramError, TaskError, UsageError
from weft.model.failures import Failure
from weft.model.raised import as_raised
from weft.model.suggestions import did_you_mean
from weft.store.handshake import PATIENCE_S, Dial, dial_tcp, prove, receive_exactly
from weft.worker.channel import Channel, dumps
from weft.worker.group import ProcessId, is_alive, process_id

PURPOSE: Final = b"actor"
GATEWAY: Final = b"gateway"
"""The purpose of connections to a program with actors."""
NAME_BYTES: Final = 32
"""The bytes by which such a connection names the actor."""
SERVE: Final = "weft.worker.actor_server:serve"
"""The program of the task of an actor."""
CONNECT_S: Final = 60.0
"""The seconds for which calls wait until their actor runs."""
_POLL_S: Final = 0.02
_MOST_BYTES: Final = (1 << 32) - (1 << 16)
SOCKET: Final = "socket"
"""The name of the socket of an actor in its folder."""
PLACE: Final = "place"
"""The name of the file with the address of an actor on another machine."""
_OWNER: Final = "owner"
"""The name of the file with the process that has made the folder of an actor."""
_FOLDER: Final = "weft-actor-"
ENDED: Final = "ended"
"""The name of the file with the reason of its end."""
VALUE, ERROR = range(2)
"""The kinds of answers."""


class ActorAddress(NamedTuple):
    """The place of an actor: its name, a private folder of one machine, and a secret.

    `methods` are those that can be called. A caller waits while `most_pending` of its calls have no answer.
    `gateway` is the entrance to the program, for other machines.
    """

    name: str
    host: str
    folder: str
    secret: bytes
    methods: tuple[str, ...]
    most_pending: int
    gateway: tuple[str, int] | None = None

    def __reduce__(self) -> tuple[type[ActorAddress], tuple[Any, ...]]:
        return ActorAddress, (*self[:-1], self.gateway or gateways.get(self.folder))

    @property
    def key(self) -> bytes:
        """The name of the actor at the entrance to its program."""
        return hashlib.sha256(self.secret).digest()

    @property
    def here(self) -> bool:
        """Whether this is the machine with the folder of the actor. UsageError: it is not, and no way leads to it."""
        if socket.gethostname() == self.host:
            return True
        if self.gateway is None:
            raise UsageError(
                f"the actor {self.name} is on {self.host}, and this process on {socket.gethostname()}",
                hint="Actors are called by the tasks and the program of their session.",
            )
        return False

    def ended(self) -> str | None:
        """Return why the actor has ended; None if it has not, as far as is known."""
        if not self.here:
            try:
                found = asked(self, {"what": "ended"})
            except (OSError, ForbiddenError):
                return "its program cannot be reached"
            return None if found["reason"] is None else str(found["reason"])
        try:
            return Path(self.folder, ENDED).read_text(encoding="utf-8") or None
        except OSError:
            return None if Path(self.folder).is_dir() else "the program has dropped it"

    def tell_place(self, host: str, port: int) -> None:
        """Let callers connect to an actor on another machine. OSError: the program has dropped it."""
        if not self.here:
            asked(self, {"what": "place", "host": host, "port": port})
            return
        self.forget_end()
        made = Path(self.folder, f".{PLACE}")
        made.write_text(json.dumps([host, port]))
        made.replace(Path(self.folder, PLACE))

    def forget_end(self) -> None:
        """Forget how an earlier attempt ended, and where it was."""
        for name in (ENDED, SOCKET, PLACE):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, name))

    def begin_again(self) -> bool:
        """Forget an earlier end, so that calls wait for the actor to begin; return whether the folder had to be made.

        OSError: the folder cannot be made.
        """
        try:
            os.mkdir(self.folder, 0o700)
        except FileExistsError:
            self.forget_end()
            return False
        return True

    def mark_ended(self, reason: str) -> None:
        """Let later calls fail with a reason; the first reason stays."""
        if not self.here:
            with suppress(OSError, ForbiddenError):
                asked(self, {"what": "end", "reason": reason})
            return
        with suppress(OSError), open(Path(self.folder, ENDED), "x", encoding="utf-8") as file:
            file.write(reason)


gateways: Final[dict[str, tuple[str, int]]] = {}
"""The addresses by which other machines reach the actors of this process, by the folder of the actor."""
dials: Final[dict[str, Dial]] = {}
"""What connects this process to the machines of these actors."""
_LENGTH: Final = struct.Struct("<I")


def ask(sock: socket.socket) -> dict[str, Any]:
    """Return the next document of a connection with the program of an actor. OSError: it ends before."""
    (size,) = _LENGTH.unpack(receive_exactly(sock, _LENGTH.size))
    found: dict[str, Any] = json.loads(bytes(receive_exactly(sock, size)))
    return found


def reply(sock: socket.socket, document: Mapping[str, Any]) -> None:
    """Send a document. OSError: the other end is gone."""
    body = json.dumps(document).encode()
    sock.sendall(_LENGTH.pack(len(body)) + body)


def _dialled(address: ActorAddress) -> socket.socket:
    """Connect to the program of an actor. OSError: it cannot be reached. ForbiddenError: it is another."""
    assert address.gateway is not None
    sock = dial_tcp(address.gateway, PATIENCE_S)
    try:
        sock.sendall(address.key)
        prove(sock, address.secret, GATEWAY, serves=False)
    except BaseException:
        sock.close()
        raise
    return sock


def asked(address: ActorAddress, wish: Mapping[str, Any]) -> dict[str, Any]:
    """Send a wish about an actor of another machine to its program, and return the answer. Errors: see `_dialled`."""
    with _dialled(address) as sock:
        reply(sock, wish)
        return ask(sock)


def own_host(address: ActorAddress) -> str:
    """Return the address by which the program of an actor reaches this machine. Errors: see `_dialled`."""
    with _dialled(address) as sock:
        return str(sock.getsockname()[0])


def reach(address: ActorAddress) -> socket.socket | None:
    """Connect to an actor, which knows nothing of the caller yet; None: it has not begun, or has ended."""
    try:
        if not address.here:
            sock = _dialled(address)
            reply(sock, {"what": "call"})
            if not ask(sock)["there"]:
                sock.close()
                return None
            return sock
        place = Path(address.folder, PLACE)
        if place.exists():
            host, port = json.loads(place.read_text())
            sock = dials.get(address.folder, dial_tcp)((host, port), PATIENCE_S)
            sock.settimeout(PATIENCE_S)
            return sock
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE_S)
        try:
            sock.connect(os.path.join(address.folder, SOCKET))
        except OSError:
            sock.close()
            raise
    except (OSError, ForbiddenError):
        return None
    return sock


class ActorOptions(NamedTuple):
    """What the task of an actor is made of: the class with its arguments, the calls that may run at a time, and the
    number of further attempts.
    """

    kind: type[Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    max_concurrency: int
    restarts: int = 0


# ------------------------------------------------------------------------------------------------------ its callers


class ActorHandle:
    """Calls the methods of an actor: `handle.method(*args)` returns a `concurrent.futures.Future` at once.

    Arguments and results are copied. The calls of one thread run in their order. `Future.result` raises what the method
    raised, as a TaskError that is also of its class, with the traceback of the actor as its cause; ActorEndedError
    after the end of the actor. As a context manager, it stops an actor of `Session.actor` at the end.
    """

    def __init__(self, address: ActorAddress) -> None:
        self._address = address
        self._stop: Callable[[], None] | None = None

    def __getattr__(self, name: str) -> Callable[..., Future[Any]]:
        if name.startswith("_") or name not in self._address.methods:
            hint = did_you_mean(name, self._address.methods, f"It has: {', '.join(self._address.methods) or 'none'}")
            raise AttributeError(f"the actor {self._address.name} has no method {name!r}. {hint}")
        return partial(_call, self, name)

    def __reduce__(self) -> tuple[type[ActorHandle], tuple[ActorAddress]]:
        return ActorHandle, (self._address,)

    def __repr__(self) -> str:
        return f"<actor {self._address.name}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        stop_actor(self)


def stop_actor(handle: ActorHandle) -> None:
    """Stop an actor of `Session.actor`, and wait for its end. UsageError: this handle has not begun it, or is none."""
    if not isinstance(handle, ActorHandle):
        raise UsageError(f"stop_actor takes the handle of an actor, and was given {handle!r}")
    if handle._stop is None:
        raise UsageError(
            f"{handle!r} was not begun by this process as an actor of a session",
            hint="An actor of a graph ends with its last consumer.",
        )
    handle._stop()


def new_address(kind: type[Any], name: str, most_pending: int) -> ActorAddress:
    """Return the address of a new actor, whose folder is made. UsageError: it is not a class."""
    if not isinstance(kind, type):
        raise UsageError(f"an actor is made of a class, not of {kind!r}", hint="Give the class, then its arguments.")
    methods = tuple(
        sorted(known for known in dir(kind) if not known.startswith("_") and callable(getattr(kind, known, None)))
    )
    _sweep(Path(tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix=_FOLDER)  # of this user alone
    Path(folder, _OWNER).write_text(json.dumps(process_id(os.getpid())))
    return ActorAddress(name, socket.gethostname(), folder, os.urandom(32), methods, most_pending)


def _sweep(root: Path) -> None:
    """Remove the folders of actors whose owner was killed."""
    for folder in root.glob(f"{_FOLDER}*"):
        with suppress(OSError, ValueError, TypeError):  # of another user, or being made or removed now
            if not is_alive(ProcessId(*json.loads(Path(folder, _OWNER).read_text()))):
                shutil.rmtree(folder, ignore_errors=True)


def handle_of(address: ActorAddress) -> ActorHandle:
    """Return the handle of a new actor, which removes its folder when nothing in this process refers to it."""
    handle = ActorHandle(address)
    weakref.finalize(handle, _remove, address.folder, os.getpid())
    return handle


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # a fork has no part in it
        shutil.rmtree(folder, ignore_errors=True)


def _call(handle: ActorHandle, method: str, /, *args: Any, **kwargs: Any) -> Future[Any]:
    """Call a method of an actor on the connection of this thread."""
    address = handle._address
    try:
        body = fitting(dumps((args, kwargs)))
    except Exception as error:
        raise ProgramError(f"the arguments of {address.name}.{method} cannot be sent: {error}") from error
    while True:
        future = _line_to(handle).call(method, body)
        if future is not None:
            return future


def fitting(body: bytes) -> bytes:
    """Return a body that fits into one message. ProgramError: it is too large."""
    if len(body) > _MOST_BYTES:
        raise ProgramError(f"{len(body):,} bytes are too many for one call of an actor: at most {_MOST_BYTES:,}")
    return body


class _Calls:
    """The calls of one connection that have no answer, until it is `over`."""

    def __init__(self, most: int) -> None:
        self.room = threading.BoundedSemaphore(most)
        self.over = False
        self._futures: dict[int, tuple[str, Future[Any]]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def add(self, method: str) -> tuple[int, Future[Any]] | None:
        """Return the number and the future of a new call; None if the connection is over."""
        self.room.acquire()
        with self._lock:
            if self.over:
                self.room.release()
                return None
            number, future = next(self._numbers), Future[Any]()
            self._futures[number] = method, future
        future.set_running_or_notify_cancel()
        return number, future

    def take(self, number: int) -> tuple[str, Future[Any]]:
        """Remove and return the method and the future of an answered call."""
        self.room.release()
        with self._lock:
            return self._futures.pop(number)

    def end(self) -> list[tuple[str, Future[Any]]]:
        """Take no more calls; return those that have no answer."""
        with self._lock:
            self.over, left = True, list(self._futures.values())
            self._futures.clear()
        for _ in left:
            self.room.release()
        return left


class _Link:
    """The way to one actor, with the calls that were made before it was there."""

    def __init__(self) -> None:
        self.closed = False
        self._lock = threading.Lock()
        self._early: list[tuple[int, str, bytes]] = []
        self._channel: Channel | None = None
        self._sock: socket.socket | None = None

    def send(self, call: tuple[int, str, bytes]) -> None:
        """Send a call, or keep it until the actor is there. OSError: the actor is gone."""
        with self._lock:
            if self._channel is None:
                self._early.append(call)
            else:
                self._channel.send(call)

    def join(self, channel: Channel, sock: socket.socket) -> None:
        """Use a connection, and send what has come before. OSError: the actor is gone."""
        with self._lock:
            self._channel, self._sock = channel, sock
            early, self._early = self._early, []
            for call in early:
                channel.send(call)

    @property
    def gone(self) -> bool:
        """Whether the actor has hung up, though the thread that takes its answers may not know it yet."""
        if self._sock is None:
            return False
        try:
            return not self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def hang_up(self, process: int) -> None:
        """End the connection; in a fork, which shares it with its parent, only the fork's part of it."""
        self.closed = True
        if self._sock is None:
            return
        if os.getpid() == process:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        else:
            self._sock.close()


class _Line:
    """The connection of one thread to one actor, which may not have begun."""

    def __init__(self, handle: ActorHandle) -> None:
        address = handle._address
        self._link = _Link()
        self._calls = _Calls(address.most_pending)
        self.process = os.getpid()
        found = _connected(address)
        if found is None and (reason := address.ended()) is not None:
            raise _ended(address.name, reason)
        if found is not None:
            self._link.join(*found)
        listening = (handle, self._link, found, self._calls)  # the folder with the reason of its end stays
        threading.Thread(target=_listen, args=listening, name=f"{address.name}-answers", daemon=True).start()
        weakref.finalize(self, self._link.hang_up, os.getpid()).atexit = False

    def call(self, method: str, body: bytes) -> Future[Any] | None:
        """Send a call; wait while too many have no answer. None: the actor has hung up, and has not got it."""
        made = self._calls.add(method)
        if made is None:
            return None
        number, future = made
        try:
            self._link.send((number, method, body))
        except OSError:
            self._link.hang_up(self.process)  # the listening thread fails what has no answer
        return future

    @property
    def open(self) -> bool:
        """Whether the actor has not hung up."""
        return not (self._calls.over or self._link.gone)


class _Lines(threading.local):
    """The connections of a thread, by the folder of the actor."""

    def __init__(self) -> None:
        self.by_folder: dict[str, _Line] = {}


_lines: Final = _Lines()


def _line_to(handle: ActorHandle) -> _Line:
    """Return the connection of this thread to an actor, a new one after the end of an earlier one or in a fork."""
    folder = handle._address.folder
    line = _lines.by_folder.get(folder)
    if line is None or line.process != os.getpid() or not line.open:
        line = _lines.by_folder[folder] = _Line(handle)
    return line


def _connected(address: ActorAddress) -> tuple[Channel, socket.socket] | None:
    """Return a new connection to an actor; None: it has not begun, or has ended. UsageError: on another machine."""
    sock = reach(address)
    if sock is None:
        return None
    try:
        prove(sock, address.secret, PURPOSE, serves=False)
        sock.settimeout(None)
    except OSError:
        sock.close()
        return None
    return Channel(sock), sock


def _awaited(address: ActorAddress, link: _Link) -> tuple[Channel, socket.socket] | None:
    """Wait until an actor begins, or begins again, and connect to it. None: it has ended, or nobody waits for it."""
    end = monotonic() + CONNECT_S
    while not link.closed and address.ended() is None:
        found = _connected(address)
        if found is not None:
            return found
        if monotonic() > end:
            address.mark_ended(f"it did not begin within {CONNECT_S:g} s")
            break
        sleep(_POLL_S)
    return None


def _ended(name: str, reason: str) -> ActorEndedError:
    return ActorEndedError(
        f"the actor {name} has ended: {reason}", hint="Begin another one; restarts= lets it begin again by itself."
    )


def _listen(handle: ActorHandle, link: _Link, found: tuple[Channel, socket.socket] | None, calls: _Calls) -> None:
    """Take the answers of an actor until one end hangs up."""
    address = handle._address
    if found is None and (found := _awaited(address, link)) is not None:
        with suppress(OSError):  # it has hung up already
            link.join(*found)
    if found is not None:
        channel, sock = found
        while (message := channel.receive()) is not None:
            number, kind, body = message
            _settle(address.name, *calls.take(number), kind, body)
        sock.close()
    left = calls.end()
    reason = address.ended() or "its process or its attempt has ended"
    for method, future in left:
        future.set_exception(_ended(address.name, f"{reason}, before it answered {method}()"))


def _settle(name: str, method: str, future: Future[Any], kind: int, body: bytes) -> None:
    """Give a caller what its call returned or raised."""
    try:
        found = pickle.loads(body)
    except Exception as error:  # noqa: BLE001 - the code of a class of the user
        future.set_exception(ProgramError(f"what {name} has sent cannot be read: {type(error).__name__}: {error}"))
        return
    if kind == VALUE:
        future.set_result(found)
        return
    failure, message, traceback, raised, status, origin = found
    if failure == Failure.PROGRAM.value:
        future.set_exception(ProgramError(f"{name}.{method} failed: {message}"))
        return
    task = f"{name}.{method}"
    text = f"{task} failed: {message}"
    made = TaskError(text, task=task, traceback_text=traceback, raised=raised, status=status, origin=origin)
    future.set_exception(as_raised(made))
