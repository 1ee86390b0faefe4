"""The task of an actor: an object, and the threads of its callers (`weft.worker.actors` has the other end)."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import ForbiddenError, ProgramError
from weft.model.raised import origin_of
from weft.store.handshake import PATIENCE_S, PURPOSE_BYTES, prove, receive_exactly
from weft.worker.actors import ERROR, PURPOSE, SOCKET, VALUE, ActorAddress, ActorOptions, fitting, own_host
from weft.worker.channel import Channel, dumps
from weft.worker.run import described

if TYPE_CHECKING:
    from weft.graph.task import TaskContext


def serve(ctx: TaskContext, inputs: Mapping[str, Any]) -> None:
    """Be an actor until the task is stopped: the body of its vertex, with `address` and `options` as parameters."""
    address: ActorAddress = ctx.params["address"]
    server = _Server(address, ctx.params["options"], ctx.attempt)
    ctx.on_cancel(server.close)
    server.run()


class _Server:
    """The object of an actor, and the threads of its connections."""

    def __init__(self, address: ActorAddress, options: ActorOptions, attempt: int) -> None:
        self._address = address
        try:
            self._object = options.kind(*options.args, **options.kwargs)
        except BaseException as error:
            if attempt >= options.restarts:  # else calls wait for the next attempt
                address.mark_ended(f"its constructor raised {type(error).__name__}: {error}")
            raise
        self._turns = threading.BoundedSemaphore(options.max_concurrency)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._connections: set[socket.socket] = set()
        self._listener = _at_home(address) if address.here else _away(address)

    def run(self) -> None:
        """Accept callers until `close`."""
        while not self._closed:
            try:
                sock = self._listener.accept()[0]
            except OSError:
                break
            threading.Thread(target=self._serve, args=(sock,), name=f"{self._address.name}-caller", daemon=True).start()
        if not self._closed:  # else `close` has told it, and a later run may have begun the actor again
            self._address.mark_ended("it was stopped")

    def close(self) -> None:
        """End the actor; callers whose calls have no answer learn of it."""
        self._closed = True
        self._address.mark_ended("it was stopped")
        with self._lock:
            every = [*self._connections, self._listener]  # the task ends with its listener
        for sock in every:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self, sock: socket.socket) -> None:
        """Answer the calls of one caller, in their order."""
        with sock, suppress(OSError, ForbiddenError):
            sock.settimeout(PATIENCE_S)
            if bytes(receive_exactly(sock, PURPOSE_BYTES)).rstrip() != PURPOSE:
                return
            prove(sock, self._address.secret, PURPOSE, serves=True)
            sock.settimeout(None)
            with self._lock:
                self._connections.add(sock)
            try:
                channel = Channel(sock)
                while (message := channel.receive()) is not None and not self._closed:
                    self._call(channel, *message)
            finally:
                with self._lock:
                    self._connections.discard(sock)

    def _call(self, channel: Channel, number: int, method: str, body: bytes) -> None:
        """Call a method; that of a coroutine function goes on while later calls of the caller begin."""
        try:
            if method not in self._address.methods:
                raise AttributeError(f"{self._address.name} has no method {method!r}")
            function = getattr(self._object, method)
            args, kwargs = pickle.loads(body)
            if inspect.iscoroutinefunction(function):
                going = asyncio.run_coroutine_threadsafe(function(*args, **kwargs), self._event_loop())
                going.add_done_callback(lambda done: _answer_with(channel, number, done.result))
                return
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            _answer(channel, number, ERROR, _as_data(error))
            return
        with self._turns:
            _answer_with(channel, number, lambda: function(*args, **kwargs))

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the coroutines of this actor, on a thread of its own."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                name = f"{self._address.name}-coroutines"
                threading.Thread(target=_run_loop, args=(self._loop,), name=name, daemon=True).start()
            return self._loop


def _at_home(address: ActorAddress) -> socket.socket:
    """Listen in the folder of an actor. OSError: the program has dropped it."""
    address.forget_end()  # an earlier attempt has ended, and this one goes on
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.path.join(address.folder, SOCKET))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _away(address: ActorAddress) -> socket.socket:
    """Listen at a port of another machine, and tell it to the program. OSError, ForbiddenError: it is not there."""
    listener = socket.create_server((own_host(address), 0), backlog=_BACKLOG)
    try:
        address.tell_place(*listener.getsockname()[:2])
    except BaseException:
        listener.close()
        raise
    return listener


_BACKLOG: Final = 128


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run the coroutines of an actor until its end, and drop those that have not ended."""
    loop.run_forever()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def _answer_with(channel: Channel, number: int, value: Callable[[], Any]) -> None:
    """Send what a call returns or raises."""
    try:
        found = value()
        try:
            kind, body = VALUE, fitting(dumps(found))
        except Exception as error:
            raise ProgramError(f"{type(found).__name__} cannot be sent to the caller: {error}") from error
    except BaseException as error:  # noqa: BLE001 - it is the caller's
        kind, body = ERROR, _as_data(error)
    _answer(channel, number, kind, body)


def _answer(channel: Channel, number: int, kind: int, body: bytes) -> None:
    with suppress(OSError):  # the caller is gone
        channel.send((number, kind, body))


def _as_data(error: BaseException) -> bytes:
    """Return an exception as data; without its arguments and attributes if these cannot be sent."""
    text = described(error, (__file__,))
    with suppress(Exception):
        return dumps((*text, origin_of(error)))
    return dumps((*text, None))
