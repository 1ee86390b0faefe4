"""Actors: objects that live in a task, and whose methods other tasks and the program call.

The task of an actor listens at a Unix socket in a private folder of the machine of its program, or, on another machine
of a cluster, at a port that it tells there; processes of other machines go by an entrance to the program
(`weft.worker.actor_gateway`). Each calling thread has a connection
of its own, on which its calls run in the order in which they were made. Both ends prove the secret of the actor before
anything is unpickled. An `ActorHandle` names the folder and the secret; it travels in the parameters of a vertex.

An actor of a graph begins again with each run, in the same folder: its address has the number of the beginning, and so
have the names of the files there. Before an ordinary end the actor tells its callers; each shuts its direction of the
connection, behind its last call, and the actor ends when all have done so and have their answers.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pickle
import select
import shutil
import socket
import struct
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self
from weakref import WeakSet

from weft.model.errors import ActorEndedError, ForbiddenError, ProgramError, TaskError, UsageError
from weft.model.failures import Failure
from weft.model.raised import as_raised
from weft.model.suggestions import did_you_mean
from weft.store.handshake import PATIENCE_S, dial_tcp, prove, receive_exactly
from weft.store.peers import own_tls
from weft.store.tls import has_hung_up, secure_client
from weft.worker.channel import Channel, dumps
from weft.worker.futures import TellingFuture
from weft.worker.group import ProcessId, is_alive, process_id

if TYPE_CHECKING:
    from concurrent.futures import Future
    from types import TracebackType

    from weft.store.tls import Connection

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
_BEGINNING: Final = "beginning"
"""The name of the file with the number of the latest beginning."""
_WAITING: Final = "waiting"
"""The first part of the names of files of callers whose calls wait for the actor to begin."""
STOPPED: Final = "it was stopped"
"""The reason of an ordinary end."""
VALUE, ERROR, ENDING = range(3)
"""The kinds of answers; the last one asks the caller to make no more calls."""
NO_CALL: Final = -1
"""The number, in place of that of a call, of the order to end and of what the actor says by itself."""
FINISH_S: Final = 60.0
"""The seconds that an ordinary end waits for the answers of calls."""
_LOOK_S: Final = 0.2
_ANSWERS_S: Final = 10.0
"""The seconds in which the threads of callers take the last answers."""


class ActorAddress(NamedTuple):
    """The place of an actor: its name, a private folder of one machine, and a secret.

    `methods` are those that can be called. A caller waits while `most_pending` of its calls have no answer.
    `gateway` is the entrance to the program, for other machines. `beginning` counts the runs of the graph that has the
    actor, as far as they were known when the address was sent.
    """

    name: str
    host: str
    folder: str
    secret: bytes
    methods: tuple[str, ...]
    most_pending: int
    gateway: tuple[str, int] | None = None
    beginning: int = 0

    def __reduce__(self) -> tuple[type[ActorAddress], tuple[Any, ...]]:
        return ActorAddress, (*self[:-2], self.gateway or gateways.get(self.folder), self.number)

    @property
    def number(self) -> int:
        """The number of the beginning, 0 for an actor of a session."""
        return max(self.beginning, _beginnings.get(self.folder, 0))

    def file(self, name: str) -> Path:
        """Return the path of a file of this beginning."""
        return Path(self.folder, f"{name}-{self.number}")

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
            return self.file(ENDED).read_text(encoding="utf-8") or None
        except OSError:
            if not Path(self.folder).is_dir():
                return "the program has dropped it"
        return "its run has ended" if self.number and self._latest() != self.number else None

    def _latest(self) -> int:
        """Return the number of the latest beginning."""
        try:
            return int(Path(self.folder, _BEGINNING).read_text())
        except (OSError, ValueError):  # removed meanwhile
            return 0

    def tell_place(self, host: str, port: int) -> None:
        """Let callers connect to an actor on another machine. OSError: the program has dropped it."""
        if not self.here:
            asked(self, {"what": "place", "host": host, "port": port})
            return
        self.forget_end()
        made = self.file(f".{PLACE}")
        made.write_text(json.dumps([host, port]))
        made.replace(self.file(PLACE))

    def forget_end(self) -> None:
        """Forget how an earlier attempt ended, and where it was."""
        for name in (ENDED, SOCKET, PLACE):
            self.file(name).unlink(missing_ok=True)

    def begin_again(self) -> bool:
        """Let calls wait for the actor of a new run to begin; return whether the folder had to be made.

        OSError: the folder cannot be made.
        """
        made = not Path(self.folder).is_dir()
        if made:
            os.mkdir(self.folder, 0o700)
        self.forget_end()
        _beginnings[self.folder] = self.number + 1
        new = self.file(f".{_BEGINNING}")
        new.write_text(str(self.number))
        new.replace(Path(self.folder, _BEGINNING))
        return made

    def mark_ended(self, reason: str) -> None:
        """Let later calls fail with a reason; the first reason stays."""
        if not self.here:
            with suppress(OSError, ForbiddenError):
                asked(self, {"what": "end", "reason": reason})
            return
        with suppress(OSError), open(self.file(ENDED), "x", encoding="utf-8") as file:
            file.write(reason)

    def tell_waiting(self, token: str, *, over: bool = False) -> None:
        """Tell that calls of a caller, named by a token, wait for the actor to begin, or that they do no longer."""
        if not self.here:
            with suppress(OSError, ForbiddenError):
                asked(self, {"what": "waiting", "token": token, "over": over})
            return
        self.note_waiting(token, process_id(os.getpid()), over=over)

    def note_waiting(self, token: str, process: ProcessId | None, *, over: bool) -> None:
        """Make or remove the file of a caller whose calls wait; `process` is that of a caller of this machine."""
        file = self.file(f"{_WAITING}-{token}")
        with suppress(OSError):  # the program has dropped it
            if over:
                file.unlink(missing_ok=True)
            else:
                file.write_text(json.dumps(process))

    def is_awaited(self) -> bool:
        """Return whether calls wait for the actor to begin, or to begin again."""
        if not self.here:
            try:
                return bool(asked(self, {"what": "awaited"})["awaited"])
            except (OSError, ForbiddenError):
                return False
        return any(_waits(file) for file in Path(self.folder).glob(f"{_WAITING}-*-{self.number}"))


def _waits(file: Path) -> bool:
    """Return whether the caller with a file of `note_waiting` still waits."""
    try:
        process = json.loads(file.read_text())
        return is_alive(ProcessId(*process)) if process else time() < file.stat().st_mtime + CONNECT_S
    except FileNotFoundError:
        return False
    except (OSError, ValueError, TypeError):  # it is being written
        return True


_beginnings: Final[dict[str, int]] = {}
"""How often the actors of graphs of this process have begun, by the folder of the actor."""

gateways: Final[dict[str, tuple[str, int]]] = {}
"""The addresses by which other machines reach the actors of this process, by the folder of the actor."""
dials: Final[dict[str, Callable[[tuple[str, int], float], Connection]]] = {}
"""What connects this process to the machines of these actors."""
_LENGTH: Final = struct.Struct("<I")


def ask(sock: Connection) -> dict[str, Any]:
    """Return the next document of a connection with the program of an actor. OSError: it ends before."""
    (size,) = _LENGTH.unpack(receive_exactly(sock, _LENGTH.size))
    found: dict[str, Any] = json.loads(bytes(receive_exactly(sock, size)))
    return found


def reply(sock: Connection, document: Mapping[str, Any]) -> None:
    """Send a document. OSError: the other end is gone."""
    body = json.dumps(document).encode()
    sock.sendall(_LENGTH.pack(len(body)) + body)


def _dialled(address: ActorAddress) -> Connection:
    """Connect to the program of an actor. OSError: it cannot be reached. ForbiddenError: it is another."""
    assert address.gateway is not None
    sock = dial_tcp(address.gateway, PATIENCE_S)
    try:
        files = own_tls()
        found = sock if files is None else secure_client(sock, files, f"the program of the actor {address.name}")
        found.sendall(address.key)
        prove(found, address.secret, GATEWAY, serves=False)
    except BaseException:
        sock.close()
        raise
    return found


def asked(address: ActorAddress, wish: Mapping[str, Any]) -> dict[str, Any]:
    """Send a wish about an actor of another machine to its program, and return the answer. Errors: see `_dialled`."""
    with closing(_dialled(address)) as sock:
        reply(sock, {**wish, "beginning": address.number})
        return ask(sock)


def own_host(address: ActorAddress) -> str:
    """Return the address by which the program of an actor reaches this machine. Errors: see `_dialled`."""
    with closing(_dialled(address)) as sock:
        return str(sock.getsockname()[0])


def reach(address: ActorAddress) -> Connection | None:
    """Connect to an actor, which knows nothing of the caller yet; None: it has not begun, or has ended."""
    try:
        if not address.here:
            far = _dialled(address)
            there = False
            try:
                reply(far, {"what": "call", "beginning": address.number})
                there = bool(ask(far)["there"])
            finally:
                if not there:
                    far.close()
            return far if there else None
        place = address.file(PLACE)
        if place.exists():
            host, port = json.loads(place.read_text())
            far = dials.get(address.folder, dial_tcp)((host, port), PATIENCE_S)
            far.settimeout(PATIENCE_S)
            return far
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE_S)
        try:
            sock.connect(str(address.file(SOCKET)))
        except OSError:
            sock.close()
            raise
    except (OSError, ForbiddenError):
        return None
    return sock


class ActorOptions(NamedTuple):
    """What the task of an actor is made of: the class with its arguments, the calls that may run at a time, the number
    of further attempts, and the seconds that an ordinary end waits for answers.
    """

    kind: type[Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    max_concurrency: int
    restarts: int = 0
    finish_s: float = FINISH_S


# ------------------------------------------------------------------------------------------------------ its callers


class ActorOwner(Protocol):
    """What has begun an actor that can be stopped by its handle."""

    def stop(self, *, finish: bool) -> None:
        """Stop the actor and wait for its end; with `finish` it answers the calls that were made before."""
        ...

    def called(self) -> None:
        """Take note of a call: whoever made it learns of the end of the actor."""
        ...


class ActorHandle:
    """Calls the methods of an actor: `handle.method(*args)` returns a `concurrent.futures.Future` at once.

    Arguments and results are copied. The calls of one thread run in their order. `Future.result` raises what the method
    raised, as a TaskError that is also of its class, with the traceback of the actor as its cause; ActorEndedError
    after the end of the actor. An exception that nobody has read is a RuntimeWarning when its future goes. As a context
    manager, it stops an actor of `Session.actor` at the end, as `stop_actor`; after an exception at once, without
    answers to the calls that have none.
    """

    def __init__(self, address: ActorAddress) -> None:
        self._address = address
        self._owner: ActorOwner | None = None

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _owner_of(self).stop(finish=kind is None)


def stop_actor(handle: ActorHandle) -> None:
    """Stop an actor of `Session.actor`, and wait for its end.

    It answers the calls that this program and its tasks have made before, for at most as many seconds as its option
    `finish_s` says; later calls, and those that have no answer then, fail with ActorEndedError. UsageError: this handle
    has not begun it, or is none.
    """
    if not isinstance(handle, ActorHandle):
        raise UsageError(f"stop_actor takes the handle of an actor, and was given {handle!r}")
    _owner_of(handle).stop(finish=True)


def _owner_of(handle: ActorHandle) -> ActorOwner:
    if handle._owner is None:
        raise UsageError(
            f"{handle!r} was not begun by this process as an actor of a session",
            hint="An actor of a graph ends with its last consumer.",
        )
    return handle._owner


def finish_calls(address: ActorAddress, seconds: float) -> None:
    """Have an actor of a session answer the calls that were made, and take no more; wait so many seconds for that."""
    end = monotonic() + seconds
    while address.is_awaited() and address.ended() is None and monotonic() < end:
        sleep(_POLL_S)
    found = _connected(address)
    if found is None:  # it has not begun, and nobody has called it; or it has ended
        return
    channel, sock = found
    with closing(sock), suppress(OSError):
        channel.send((NO_CALL, "", b""))
        while monotonic() < end and not select.select((sock,), (), (), _LOOK_S)[0]:
            pass


def await_answers(address: ActorAddress) -> None:
    """Wait until the callers in this process have taken the answers of an actor that has ended."""
    end = monotonic() + _ANSWERS_S
    for thread in list(_listening.pop(address.folder, ())):
        if thread is not threading.current_thread():
            thread.join(max(end - monotonic(), 0.0))


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
        _listening.pop(folder, None)


def _call(handle: ActorHandle, method: str, /, *args: Any, **kwargs: Any) -> Future[Any]:
    """Call a method of an actor on the connection of this thread."""
    address = handle._address
    try:
        body = fitting(dumps((args, kwargs)))
    except Exception as error:
        raise ProgramError(f"the arguments of {address.name}.{method} cannot be sent: {error}") from error
    if handle._owner is not None:
        handle._owner.called()
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

    def __init__(self, name: str, most: int) -> None:
        self.room = threading.BoundedSemaphore(most)
        self.over = False
        self._name = name
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
            number, future = next(self._numbers), TellingFuture()
            future.about = f"{self._name}.{method}()"
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
        self.ending = False
        self._lock = threading.Lock()
        self._early: list[tuple[int, str, bytes]] = []
        self._channel: Channel | None = None
        self._sock: Connection | None = None

    def send(self, call: tuple[int, str, bytes]) -> None:
        """Send a call, or keep it until the actor is there. OSError: the actor is gone."""
        with self._lock:
            if self._channel is None:
                self._early.append(call)
            else:
                self._channel.send(call)

    def join(self, channel: Channel, sock: Connection) -> None:
        """Use a connection, and send what has come before. OSError: the actor is gone."""
        with self._lock:
            self._channel, self._sock = channel, sock
            early, self._early = self._early, []
            for call in early:
                channel.send(call)
        if self.closed:
            self._end_calls()

    @property
    def is_idle(self) -> bool:
        """Whether the thread of the calls has ended, and no call of it waits to be sent."""
        return self.closed and not self._early

    def make_no_more(self) -> None:
        """Tell the actor, behind the last call, that no more come."""
        self.ending = True
        # The thread that takes answers must not wait for one that sends.
        threading.Thread(target=self._end_behind_calls, name="weft-actor-end", daemon=True).start()

    def _end_behind_calls(self) -> None:
        with self._lock:
            self._end_calls()

    def _end_calls(self) -> None:
        assert self._sock is not None
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    @property
    def gone(self) -> bool:
        """Whether the actor has hung up, though the thread that takes its answers may not know it yet."""
        return self._sock is not None and has_hung_up(self._sock)

    def hang_up(self, process: int) -> None:
        """Send no more calls; answers still come. In a fork, which shares the connection with its parent, close only
        the fork's part of it.
        """
        self.closed = True
        if self._sock is None:
            return
        if os.getpid() == process:
            self._end_calls()
        else:
            self._sock.close()


class _Line:
    """The connection of one thread to one actor, which may not have begun."""

    def __init__(self, handle: ActorHandle) -> None:
        address = handle._address
        self._link = _Link()
        self._calls = _Calls(address.name, address.most_pending)
        self.process = os.getpid()
        self.number = address.number
        found = _connected(address)
        if found is None and self.number:  # it has its place already, and would end with the tasks that call it
            found = _awaited(address, self._link)
        if found is None and (reason := address.ended()) is not None:
            raise _ended(address.name, reason)
        token = ""
        if found is not None:
            self._link.join(*found)
        else:
            token = os.urandom(8).hex()
            address.tell_waiting(token)
        listening = (handle, self._link, found, self._calls, token)  # the folder with the reason of its end stays
        thread = threading.Thread(target=_listen, args=listening, name=f"{address.name}-answers", daemon=True)
        _listening.setdefault(address.folder, WeakSet()).add(thread)
        thread.start()
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
        """Whether the actor has not hung up, and takes calls."""
        return not (self._calls.over or self._link.ending or self._link.gone)


class _Lines(threading.local):
    """The connections of a thread, by the folder of the actor."""

    def __init__(self) -> None:
        self.by_folder: dict[str, _Line] = {}


_lines: Final = _Lines()
_listening: Final[dict[str, WeakSet[threading.Thread]]] = {}
"""The threads of this process that take answers, by the folder of the actor."""


def _line_to(handle: ActorHandle) -> _Line:
    """Return the connection of this thread to an actor; a new one for another beginning, after an end or in a fork."""
    address = handle._address
    line = _lines.by_folder.get(address.folder)
    if line is None or line.number != address.number or line.process != os.getpid() or not line.open:
        line = _lines.by_folder[address.folder] = _Line(handle)
    return line


def _connected(address: ActorAddress) -> tuple[Channel, Connection] | None:
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
    except BaseException:
        sock.close()
        raise
    return Channel(sock), sock


def _awaited(address: ActorAddress, link: _Link) -> tuple[Channel, Connection] | None:
    """Wait until an actor begins, or begins again, and connect to it. None: it has ended, or nobody waits for it."""
    end = monotonic() + CONNECT_S
    while not link.is_idle:
        found = _connected(address)
        if found is not None:
            return found
        if address.ended() is not None:
            break
        if monotonic() > end:
            address.mark_ended(f"it did not begin within {CONNECT_S:g} s")
            break
        sleep(_POLL_S)
    return None


def _ended(name: str, reason: str) -> ActorEndedError:
    return ActorEndedError(
        f"the actor {name} has ended: {reason}", hint="Begin another one; restarts= lets it begin again by itself."
    )


def _listen(
    handle: ActorHandle, link: _Link, found: tuple[Channel, Connection] | None, calls: _Calls, token: str
) -> None:
    """Take the answers of an actor until it hangs up. With a token, the actor is waited for first."""
    address = handle._address
    if token:
        found = _awaited(address, link)
        if found is not None:
            with suppress(OSError):  # it has hung up already
                link.join(*found)
        address.tell_waiting(token, over=True)
    if found is not None:
        channel, sock = found
        with closing(sock):
            while (message := channel.receive()) is not None:
                number, kind, body = message
                if kind == ENDING:
                    link.make_no_more()
                else:
                    _settle(address.name, *calls.take(number), kind, body)
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
