"""The bridge between worker processes and the call scheduler: functions run in workers, and spawn calls there.

The process of the session listens at a Unix socket in a private folder. A worker process connects once, when its first
task holds a slot for functions, and serves all of its slots and functions over that connection. Each message is a tuple
of a kind, the number of a call or slot, bytes, and another number or 0.
"""

from __future__ import annotations

import os
import pickle
import queue
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Final, NamedTuple

from weft.frontends.tensors.arrays.executables import here
from weft.model.errors import ProgramError, RunCancelledError, WeftError
from weft.model.raised import origin_of
from weft.remote.calls import RemoteCall, substitute_values
from weft.remote.requested import CallOutcome, FunctionScheduler, ScheduledCall, SlotTask
from weft.remote.slots import OWN_FILES, failed, thread_limit
from weft.store.api import SMALL, sizeof
from weft.store.folders import socket_name
from weft.wiring.concrete import session_folders
from weft.worker import own_modules
from weft.worker.channel import dumps
from weft.worker.origins import packed, unpacked
from weft.worker.run import described

INLINE_BYTES: Final = 64 * 1024
"""Larger values are the values of tasks, which go through shared memory; that takes milliseconds."""
_IDLE: Final = 4
"""Threads that a worker process keeps for further functions."""

# Messages of a worker process: a task holds a slot; a function has returned, has raised, has a large value, waits.
_SLOT, _VALUE, _ERROR, _LARGE, _WAIT = "slot", "value", "error", "large", "wait"
# Messages to it: start a function (on the thread of another call), continue one, end the task of a slot (with the value
# of a call), send a large value, forget the modules of the user.
_CALL, _GO, _FREE, _SEND, _MODULES = "call", "go", "free", "send", "modules"


class Completion(NamedTuple):
    """The values of the calls that a function has waited for, or their error."""

    values: Sequence[Any]
    error: BaseException | None


def _unsendable(thing: Any, error: Exception) -> ProgramError:
    return ProgramError(f"{type(thing).__name__} cannot be sent to another process: {error}")


def _connect(socket_path: str, key: bytes) -> Connection[Any, Any]:
    with socket_name(Path(socket_path)) as name:
        return Client(name, "AF_UNIX", authkey=key)


class _Peer:
    """A connection that several threads write to."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def send(self, kind: str, number: int, data: bytes = b"", other: int = 0) -> None:
        with self._lock:
            self.connection.send_bytes(pickle.dumps((kind, number, data, other)))

    def receive(self) -> tuple[str, int, bytes, int]:
        found: tuple[str, int, bytes, int] = pickle.loads(self.connection.recv_bytes())
        return found


class WorkerBridge:
    """The session's end of the bridge."""

    def __init__(self, scheduler: FunctionScheduler) -> None:
        self._scheduler = scheduler
        self._folders = session_folders("calls", None)  # swept by the next session, however this one ends
        self._key = secrets.token_bytes(32)
        self._path = str(self._folders.state / "calls.sock")
        with ExitStack() as undo:
            undo.callback(self._folders.close)
            name = undo.enter_context(socket_name(Path(self._path)))
            self._listener = Listener(name, "AF_UNIX", backlog=128, authkey=self._key)
            self._undo = undo.pop_all()
        self._open = True
        threading.Thread(target=self._listen, name="weft-bridge", daemon=True).start()

    def params(self, slot: SlotTask) -> dict[str, Any]:
        """Return the parameters of the task that holds a slot."""
        return {"slot": slot.number, "socket": self._path, "key": self._key}

    def close(self) -> None:
        """Stop serving and remove the socket."""
        self._open = False
        with suppress(OSError):
            _connect(self._path, self._key).close()  # wakes the listener
        self._listener.close()
        self._undo.close()

    def _listen(self) -> None:
        while self._open:
            try:
                peer = self._listener.accept()
            except Exception:  # noqa: BLE001 - a peer without the key, or one that left at once
                continue
            functions = RemoteFunctions(self._scheduler, _Peer(peer))
            threading.Thread(target=functions.serve, name="weft-bridge-peer", daemon=True).start()


class RemoteFunctions:
    """The functions in one worker process, as the session sees them."""

    def __init__(self, scheduler: FunctionScheduler, peer: _Peer) -> None:
        self._scheduler = scheduler
        self._peer = peer
        self._calls: dict[int, ScheduledCall] = {}
        self._modules = 0

    def start(self, call_state: ScheduledCall) -> None:
        """See `FunctionHost.start`. ProgramError: the call cannot be pickled."""
        call, slot = call_state.call, call_state.slot
        assert slot is not None
        args, kwargs = call.bound(call_state.large)
        try:
            work = dumps((call.function, args, kwargs, call.outputs, slot.number if call_state.large else 0))
        except Exception as error:
            message = f"{call.name} and its arguments cannot be sent to another process: {error}"
            raise ProgramError(
                message, hint="Pass objects that can be pickled, or use a session of threads."
            ) from error
        self._calls[call.number] = call_state
        inside = call_state.inside
        if self._modules != (modules := own_modules.generation()):
            self._modules = modules
            self._send(_MODULES, 0, own_modules.program().encode())
        self._send(_CALL, call.number, work, 0 if inside is None else inside.call.number)

    def resume(self, call_state: ScheduledCall) -> None:
        """See `FunctionHost.resume`: the function gets the values of the calls that it has waited for."""
        batch = call_state.batch
        assert batch is not None
        call_state.waits = False
        try:
            values = [] if batch.error is not None else [call.value for call in batch.calls]
            reply = dumps(Completion(values, batch.error))
        except WeftError as error:
            reply = dumps(Completion((), error))
        except Exception as error:  # noqa: BLE001 - whatever pickling a user's object raises
            reply = dumps(Completion((), _unsendable(batch.error or values, error)))
        self._send(_GO, call_state.call.number, reply)

    def free(self, slot: SlotTask) -> None:
        """See `FunctionHost.free`."""
        self._send(_FREE, slot.number)

    def _send(self, kind: str, number: int, data: bytes = b"", other: int = 0) -> None:
        with suppress(OSError):  # the process has ended, which the other thread notices
            self._peer.send(kind, number, data, other)

    def serve(self) -> None:
        """Take the messages of the process until it ends."""
        try:
            with self._peer.connection, suppress(EOFError, OSError):
                while True:
                    self._take(*self._peer.receive())
        finally:
            self._scheduler.lost(self, list(self._calls.values()))

    def _take(self, kind: str, number: int, data: bytes, _: int) -> None:
        if kind == _SLOT:
            slot = self._scheduler.slot(number)
            if slot is None:
                self._send(_FREE, number)
            else:
                self._scheduler.arrived(slot, self)
            return
        call_state = self._calls[number]
        if kind == _LARGE:
            slot = self._scheduler.returns(call_state, self)
            if slot is None:
                self._send(_SEND, number)
            else:
                del self._calls[number]
                self._send(_FREE, slot.number, other=number)
        elif kind == _WAIT:
            self._scheduler.spawned(call_state, pickle.loads(data))
        else:
            del self._calls[number]
            self._scheduler.ended(call_state, self._outcome(call_state, kind, data))

    def _outcome(self, call_state: ScheduledCall, kind: str, data: bytes) -> CallOutcome:
        try:
            found = pickle.loads(data)
            if kind == _ERROR:
                text, origin = found
                return failed(call_state.call.name, text, unpacked(origin))
            return CallOutcome(found) if sizeof(found) < SMALL else CallOutcome(kept=self._scheduler.keep(found))
        except WeftError as error:
            return CallOutcome(error=error)
        except Exception as error:  # noqa: BLE001 - whatever unpickling a user's object raises
            return CallOutcome(error=ProgramError(f"the result of {call_state.call.name} cannot be read: {error}"))


# --------------------------------------------------------------------------------------------- in worker processes


class _HeldSlot:
    """A task of this process that holds a slot, with its inputs and its value."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values
        self.value: Any = None
        self.over = threading.Event()


class WorkerFunctions:
    """The slots and functions of this worker process."""

    def __init__(self, socket_path: str, key: bytes) -> None:
        self._peer = _Peer(_connect(socket_path, key))
        self._slots: dict[int, _HeldSlot] = {}
        self._inboxes: dict[int, queue.SimpleQueue[bytes | Callable[[], None]]] = {}
        self._large: dict[int, Any] = {}
        self._idle: list[queue.SimpleQueue[Callable[[], None]]] = []
        threading.Thread(target=self._serve, name="weft-functions", daemon=True).start()

    def hold(self, number: int, values: list[Any]) -> Any:
        """Hold a slot until the session frees it; return the value of the task."""
        slot = self._slots[number] = _HeldSlot(values)
        self._peer.send(_SLOT, number)
        slot.over.wait()
        return slot.value

    def _serve(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                kind, number, data, other = self._peer.receive()
                if kind == _CALL and other:
                    self._inboxes[other].put(partial(self._run, number, data))
                elif kind == _CALL:
                    self._start(number, partial(self._run, number, data))
                elif kind == _GO:
                    self._inboxes[number].put(data)
                elif kind == _FREE:
                    slot = self._slots.pop(number)
                    if other:
                        slot.value = self._large.pop(other)
                    slot.over.set()
                elif kind == _MODULES:
                    own_modules.forget(data.decode())
                else:
                    self._start(number, partial(self._send_value, number, self._large.pop(number), inline=False))
        for slot in self._slots.values():  # the session has closed
            slot.over.set()

    def _start(self, number: int, work: Callable[[], None]) -> None:
        """Call `work` on a thread of its own."""
        with suppress(IndexError):
            self._idle.pop().put(work)
            return
        try:
            threading.Thread(target=self._work, args=(work,), name="weft-function", daemon=True).start()
        except RuntimeError:
            self._send_error(number, thread_limit("a function"))

    def _work(self, work: Callable[[], None]) -> None:
        inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        while True:
            with suppress(OSError):  # the session has closed
                work()
            if len(self._idle) >= _IDLE:
                return
            self._idle.append(inbox)
            work = inbox.get()

    def _run(self, number: int, data: bytes) -> None:
        """Run a function."""
        here.away = partial(self._spawned, number)
        try:
            function, args, kwargs, outputs, slot = pickle.loads(data)
            if slot:
                args, kwargs = substitute_values((args, kwargs), self._slots[slot].values)
            value = RemoteCall(function, (), {}, outputs).checked(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            self._send_error(number, error)
        else:
            self._send_value(number, value, inline=True)

    def _send_error(self, number: int, error: BaseException) -> None:
        self._peer.send(_ERROR, number, dumps((described(error, OWN_FILES), packed(origin_of(error)))))

    def _send_value(self, number: int, value: Any, *, inline: bool) -> None:
        """Send the value of a function, or with `inline` announce a large one."""
        data = b""
        if not inline or sizeof(value) < INLINE_BYTES:
            try:
                data = dumps(value)
            except Exception as error:  # noqa: BLE001 - whatever pickling a user's object raises
                self._send_error(number, _unsendable(value, error))
                return
        if data and (len(data) <= INLINE_BYTES or not inline):
            self._peer.send(_VALUE, number, data)
        else:
            self._large[number] = value
            self._peer.send(_LARGE, number)

    def _spawned(self, number: int, calls: Sequence[RemoteCall]) -> None:
        """Run calls in the session, and set their values; some of them run on this thread."""
        inbox = self._inboxes[number] = queue.SimpleQueue()
        try:
            self._peer.send(_WAIT, number, dumps(list(calls)))
            while callable(message := inbox.get()):
                message()
                here.away = partial(self._spawned, number)
        except OSError:
            raise RunCancelledError("the session has closed") from None
        finally:
            del self._inboxes[number]
        ended = pickle.loads(message)
        if ended.error is not None:
            raise ended.error
        for call, value in zip(calls, ended.values, strict=True):
            call.value = value


_lock = threading.Lock()
_known: dict[tuple[int, str], WorkerFunctions] = {}


def hold_slot_in_worker(ctx: Any, inputs: Any) -> Any:
    """Task body: hold a slot in a worker process."""
    values = [one.all()[0] for one in inputs.values()]
    place = os.getpid(), ctx.params["socket"]
    with _lock:
        found = _known.get(place)
        if found is None:
            found = _known[place] = WorkerFunctions(ctx.params["socket"], ctx.params["key"])
    return found.hold(ctx.params["slot"], values)
