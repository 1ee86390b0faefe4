"""The task of an actor: an object, and the threads of its callers (`weft.worker.actors` has the other end)."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import ForbiddenError, ProgramError
from weft.model.raised import origin_of
from weft.store.handshake import PATIENCE_S, PURPOSE_BYTES, prove, receive_exactly
from weft.store.listening import listen
from weft.store.peers import own_tls
from weft.store.tls import secure_server
from weft.worker.actors import (
    ENDING,
    ERROR,
    NO_CALL,
    PURPOSE,
    SOCKET,
    STOPPED,
    VALUE,
    ActorAddress,
    ActorOptions,
    fitting,
    own_host,
)
from weft.worker.channel import Channel, dumps
from weft.worker.run import described

if TYPE_CHECKING:
    from concurrent.futures import Future

    from weft.graph.task import TaskContext


def serve(ctx: TaskContext, inputs: Mapping[str, Any]) -> None:
    """Be an actor until the task is stopped: the body of its vertex, with `address` and `options` as parameters."""
    address: ActorAddress = ctx.params["address"]
    options: ActorOptions = ctx.params["options"]
    begun: list[_Server] = []

    def stop() -> None:
        if ctx.drains():
            ctx.stops_within(options.finish_s + _ENDING_S)
        for server in begun:
            if ctx.drains():
                name = f"{address.name}-end"
                threading.Thread(target=server.drain, args=(ctx.drains,), name=name, daemon=True).start()
            else:
                server.close()

    ctx.on_cancel(stop)
    begun.append(_Server(address, options, ctx.attempt))
    if ctx.cancelled():  # perhaps before there was a server to stop
        stop()
    begun[0].run()


class _Server:
    """The object of an actor, and the threads of its connections."""

    def __init__(self, address: ActorAddress, options: ActorOptions, attempt: int) -> None:
        self._address = address
        self._finish_s = options.finish_s
        try:
            self._object = options.kind(*options.args, **options.kwargs)
        except BaseException as error:
            if attempt >= options.restarts:  # else calls wait for the next attempt
                address.mark_ended(f"its constructor raised {type(error).__name__}: {error}")
            raise
        self._turns = threading.BoundedSemaphore(options.max_concurrency)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._ending = False
        self._callers: dict[socket.socket, Channel | None] = {}
        """The connections, with None those that have not proved the secret."""
        self._listener = _at_home(address) if address.here else _away(address)

    def run(self) -> None:
        """Accept callers until `close`."""
        while not self._closed:
            try:
                sock = self._listener.accept()[0]
            except OSError:
                break
            with self._changed:
                if self._ending or self._closed:
                    sock.close()
                    continue
                self._callers[sock] = None
            threading.Thread(target=self._serve, args=(sock,), name=f"{self._address.name}-caller", daemon=True).start()
        if not self._closed:  # else `close` has told it, and a later run may have begun the actor again
            self._address.mark_ended(STOPPED)

    def finish(self) -> None:
        """Answer the calls that were made, and take no more; return after that, or after `close`."""
        while self._address.is_awaited() and not self._closed:
            sleep(_POLL_S)
        self._address.mark_ended(STOPPED)
        with self._changed:
            self._ending = True
            channels = [channel for channel in self._callers.values() if channel is not None]
        for channel in channels:
            _ask_for_last(channel)
        with self._changed:
            self._changed.wait_for(lambda: not self._callers or self._closed)

    def drain(self, goes_on: Callable[[], bool]) -> None:
        """Finish and end the actor; just end it after the seconds of its options, or if this no longer `goes_on`."""
        end = monotonic() + self._finish_s
        finishing = threading.Thread(target=self.finish, name=f"{self._address.name}-finish", daemon=True)
        finishing.start()
        while finishing.is_alive() and goes_on() and monotonic() < end:
            finishing.join(_POLL_S)
        self.close()

    def close(self) -> None:
        """End the actor; callers whose calls have no answer learn of it."""
        self._address.mark_ended(STOPPED)
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            every = [*self._callers, self._listener]  # the task ends with its listener
        for sock in every:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self, sock: socket.socket) -> None:
        """Answer the calls of one caller, in their order, until it makes no more."""
        try:
            with sock, suppress(OSError, ForbiddenError):
                sock.settimeout(PATIENCE_S)
                caller = sock if self._address.here else secure_server(sock, own_tls())
                if bytes(receive_exactly(caller, PURPOSE_BYTES)).rstrip() != PURPOSE:
                    return
                prove(caller, self._address.secret, PURPOSE, serves=True)
                sock.settimeout(None)
                self._answer_all(sock, Channel(caller))
        finally:
            self._forget(sock)

    def _forget(self, sock: socket.socket) -> None:
        with self._changed:
            self._callers.pop(sock, None)
            self._changed.notify_all()

    def _answer_all(self, sock: socket.socket, channel: Channel) -> None:
        with self._changed:
            self._callers[sock] = channel
            ending = self._ending
        if ending:
            _ask_for_last(channel)
        going: set[Future[Any]] = set()
        while (message := channel.receive()) is not None and not self._closed:
            if message[0] == NO_CALL:
                self._forget(sock)
                self.finish()
                return
            self._call(channel, going, *message)
        with self._changed:
            self._changed.wait_for(lambda: not going or self._closed)

    def _call(self, channel: Channel, going: set[Future[Any]], number: int, method: str, body: bytes) -> None:
        """Call a method; that of a coroutine function is `going` on while later calls of the caller begin."""
        try:
            if method not in self._address.methods:
                raise AttributeError(f"{self._address.name} has no method {method!r}")
            function = getattr(self._object, method)
            args, kwargs = pickle.loads(body)
            if inspect.iscoroutinefunction(function):
                call = asyncio.run_coroutine_threadsafe(function(*args, **kwargs), self._event_loop())
                going.add(call)
                call.add_done_callback(partial(self._coroutine_ended, channel, going, number))
                return
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            _answer(channel, number, ERROR, _as_data(error))
            return
        with self._turns:
            _answer_with(channel, number, lambda: function(*args, **kwargs))

    def _coroutine_ended(self, channel: Channel, going: set[Future[Any]], number: int, call: Future[Any]) -> None:
        _answer_with(channel, number, call.result)
        with self._changed:
            going.discard(call)
            self._changed.notify_all()

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the coroutines of this actor, on a thread of its own."""
        with self._changed:
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
        listener.bind(str(address.file(SOCKET)))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _away(address: ActorAddress) -> socket.socket:
    """Listen at a port of another machine, and tell it to the program. OSError, ForbiddenError: it is not there.

    CapacityError: no port is free.
    """
    listener = listen(own_host(address))
    try:
        address.tell_place(*listener.getsockname()[:2])
    except BaseException:
        listener.close()
        raise
    return listener


_BACKLOG: Final = 128
_POLL_S: Final = 0.02
_ENDING_S: Final = 2.0
"""The seconds that an actor takes to end after its last answer."""


def _ask_for_last(channel: Channel) -> None:
    """Ask a caller to make no more calls."""
    with suppress(OSError):  # it is gone
        channel.send((NO_CALL, ENDING, b""))


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
