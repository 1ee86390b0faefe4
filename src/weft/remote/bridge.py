"""The bridge between worker processes and the call scheduler: functions in workers spawn calls and wait for them.

The process of the session listens at a Unix socket in a private folder. A function that spawns calls connects to the
socket, sends the calls, and receives their values once a task holds a slot for the function again. The task that holds
the slot may run in another process; it connects too, and receives the end of the function or its next wait.
"""

from __future__ import annotations

import itertools
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import cloudpickle

from weft.admin.control import socket_name
from weft.frontends.tensors.arrays.executables import Watch, here
from weft.model.errors import ProgramError, RunCancelledError
from weft.remote.calls import RemoteCall, substitute_values
from weft.remote.coroutines import Completion, SlotHandover, Suspended
from weft.wiring.concrete import session_folders

_numbers = itertools.count(1)


def _packed(thing: Any) -> bytes:
    found: bytes = cloudpickle.dumps(thing)
    return found


def _packed_end(ended: Completion) -> bytes:
    """Pack the end of a function; a value that cannot be pickled becomes a ProgramError."""
    try:
        return _packed(ended)
    except Exception as error:  # noqa: BLE001 - whatever pickling a user's object raises
        what = ended.value if ended.error is None else ended.error
        unsendable = ProgramError(f"{type(what).__name__} cannot be sent to another process: {error}")
        return _packed(Completion(None, unsendable))


def _connect(socket_path: str, key: bytes) -> Connection[Any, Any]:
    with socket_name(Path(socket_path)) as name:
        return Client(name, "AF_UNIX", authkey=key)


class WorkerBridge:
    """The session's end of the bridge: serves functions in worker processes and passes their calls to `scheduler`."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._folders = session_folders("calls", None)  # swept by the next session, however this one ends
        self._key = secrets.token_bytes(32)
        self._path = str(self._folders.state / "calls.sock")
        with ExitStack() as undo:
            undo.callback(self._folders.close)
            name = undo.enter_context(socket_name(Path(self._path)))
            self._listener = Listener(name, "AF_UNIX", backlog=128, authkey=self._key)
            self._undo = undo.pop_all()
        self._handover: dict[str, SlotHandover] = {}
        self._open = True
        threading.Thread(target=self._listen, name="weft-bridge", daemon=True).start()

    def params(self, call: RemoteCall, args: Any, kwargs: Any) -> dict[str, Any]:
        """Return the parameters of the task that starts a call. ProgramError: the call cannot be pickled."""
        try:
            work = _packed((call.number, call.function, args, kwargs, call.outputs))
        except Exception as error:
            message = f"{call.name} and its arguments cannot be sent to another process: {error}"
            raise ProgramError(
                message, hint="Pass objects that can be pickled, or use a session of threads."
            ) from error
        return {"work": work, "socket": self._path, "key": self._key}

    def hold_params(self, handover: SlotHandover) -> dict[str, Any]:
        """Return the parameters of the task that holds a slot for a function."""
        return {"function": handover.name, "socket": self._path, "key": self._key}

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
            threading.Thread(target=self._serve, args=(peer,), name="weft-bridge-peer", daemon=True).start()

    def _serve(self, peer: Connection) -> None:
        with peer, suppress(EOFError, OSError):
            kind, name, number = cloudpickle.loads(peer.recv_bytes())
            if kind == "hold":
                self._hold(peer, name)
            else:
                self._serve_function(peer, name, number)

    def _hold(self, peer: Connection, name: str) -> None:
        handover = self._handover[name]
        try:
            ended: Any = handover.hold()
        except BaseException as error:  # noqa: BLE001 - the exception of the function, sent to the holder of its slot
            ended = Completion(None, error)
        peer.send_bytes(_packed(ended) if isinstance(ended, Suspended) else _packed_end(_as_end(ended)))

    def _serve_function(self, peer: Connection, name: str, number: int) -> None:
        """Serve one function: run the calls that it spawns, until it ends."""
        call_state = self._scheduler.find(number)
        handover = self._handover[name] = SlotHandover(name)
        try:
            while True:
                message = cloudpickle.loads(peer.recv_bytes())
                if isinstance(message, Completion):
                    handover.end(message)
                    return
                handover.park()
                reply = self._children(message, call_state)
                if call_state is None:
                    return
                self._scheduler.request_slot(call_state, handover)
                handover.wait()
                peer.send_bytes(reply)
        except (EOFError, OSError):
            handover.lose()
            if call_state is not None:
                self._scheduler.lost(call_state)
        finally:
            del self._handover[name]

    def _children(self, calls: Sequence[RemoteCall], call_state: Any) -> bytes:
        try:
            if call_state is None:
                raise RunCancelledError("the call that spawned this one has ended")
            self._scheduler.run(calls, Watch(), call_state)
            return _packed_end(Completion([call.value for call in calls], None))
        except BaseException as error:  # noqa: BLE001 - sent to the function that waits
            return _packed_end(Completion(None, error))


def _as_end(value: Any) -> Completion:
    return value if isinstance(value, Completion) else Completion(value, None)


# --------------------------------------------------------------------------------------------- in worker processes


class WorkerCoroutine:
    """A function in a worker process, on a thread of its own."""

    def __init__(self, number: int, work: Callable[[], Any], socket_path: str, key: bytes) -> None:
        self.name = f"{os.getpid()}-{next(_numbers)}"
        self._number = number
        self._work = work
        self._socket_path = socket_path
        self._key = key
        self._peer: Connection | None = None
        self._handover = SlotHandover(self.name)

    def start(self) -> Any:
        """Start the function with a slot; return and raise as `SlotHandover.hold`."""
        threading.Thread(target=self._run, name="weft-function", daemon=True).start()
        return self._handover.hold()

    def _run(self) -> None:
        self._handover.wait()
        here.away = self._spawned
        try:
            ended = Completion(self._work(), None)
        except BaseException as error:  # noqa: BLE001 - the task that holds the slot raises it
            ended = Completion(None, error)
        if self._peer is None:
            self._handover.end(ended)
        else:
            with self._peer, suppress(OSError):
                self._peer.send_bytes(_packed_end(ended))

    def _spawned(self, calls: Sequence[RemoteCall]) -> None:
        """Run calls in the session and set their values."""
        first = self._peer is None
        if self._peer is None:
            self._peer = _connect(self._socket_path, self._key)
            self._peer.send_bytes(_packed(("function", self.name, self._number)))
        self._peer.send_bytes(_packed(list(calls)))
        if first:
            self._handover.park()
        ended = cloudpickle.loads(self._peer.recv_bytes())
        if ended.error is not None:
            raise ended.error
        for call, value in zip(calls, ended.value, strict=True):
            call.value = value


def call_in_worker(ctx: Any, inputs: Any) -> Any:
    """Task body: start a call in a worker process."""
    values = [one.all()[0] for one in inputs.values()]
    number, function, args, kwargs, outputs = cloudpickle.loads(ctx.params["work"])

    def work() -> Any:
        given_args, given_kwargs = substitute_values((args, kwargs), values)
        return RemoteCall(function, (), {}, outputs).checked(function(*given_args, **given_kwargs))

    return WorkerCoroutine(number, work, ctx.params["socket"], ctx.params["key"]).start()


def hold_slot_in_worker(ctx: Any, inputs: Any) -> Any:
    """Task body: hold a slot for a function that continues in another worker process."""
    with _connect(ctx.params["socket"], ctx.params["key"]) as peer:
        peer.send_bytes(_packed(("hold", ctx.params["function"], 0)))
        ended = cloudpickle.loads(peer.recv_bytes())
    if isinstance(ended, Suspended):
        return ended
    if ended.error is not None:
        raise ended.error
    return ended.value
