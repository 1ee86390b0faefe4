"""Calls in worker processes: how a function there spawns others, waits for them, and goes on.

The process of the session listens at a socket in a folder of its own. A function that spawns connects to it, says what
it wants to run, and is told the values when they are there and somebody holds a slot for it again. Whoever holds that
slot, in another process maybe, connects too, and is told how the function ended, or that it waits again.
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

from weft.model.errors import ProgramError, RunCancelledError
from weft.remote.calls import Call, filled
from weft.remote.fibers import Ended, Parked, Turns
from weft.runtime.control import socket_name
from weft.tensor.running import Watch, here
from weft.wiring.concrete import session_folders

_numbers = itertools.count(1)


def _packed(thing: Any) -> bytes:
    found: bytes = cloudpickle.dumps(thing)
    return found


def _packed_end(ended: Ended) -> bytes:
    """Pack how a function ended; what cannot travel is told instead."""
    try:
        return _packed(ended)
    except Exception as error:  # noqa: BLE001 - whatever pickling a user's object raises
        what = ended.value if ended.error is None else ended.error
        told = ProgramError(f"{type(what).__name__} cannot be sent to another process: {error}")
        return _packed(Ended(None, told))


def _enter(door: str, key: bytes) -> Connection[Any, Any]:
    with socket_name(Path(door)) as name:
        return Client(name, "AF_UNIX", authkey=key)


class Door:
    """Where functions in worker processes are heard, in the process of the session; `desk` runs what they spawn."""

    def __init__(self, desk: Any) -> None:
        self._desk = desk
        self._folders = session_folders("calls", None)  # swept by the next session, however this one ends
        self._key = secrets.token_bytes(32)
        self._path = str(self._folders.state / "door")
        with ExitStack() as undo:
            undo.callback(self._folders.close)
            name = undo.enter_context(socket_name(Path(self._path)))
            self._listener = Listener(name, "AF_UNIX", backlog=128, authkey=self._key)
            self._undo = undo.pop_all()
        self._turns: dict[str, Turns] = {}
        self._open = True
        threading.Thread(target=self._listen, name="weft-door", daemon=True).start()

    def params(self, call: Call, args: Any, kwargs: Any) -> dict[str, Any]:
        """Return the parameters of the task that begins a call. ProgramError: they cannot be pickled."""
        try:
            work = _packed((call.number, call.function, args, kwargs, call.outputs))
        except Exception as error:
            message = f"{call.name} and its arguments cannot be sent to another process: {error}"
            raise ProgramError(message, hint="Give what can be pickled, or use threads.") from error
        return {"work": work, "door": self._path, "key": self._key}

    def hold_params(self, turns: Turns) -> dict[str, Any]:
        """Return the parameters of the task that holds a slot for a function."""
        return {"fiber": turns.name, "door": self._path, "key": self._key}

    def close(self) -> None:
        """Hear nobody any more."""
        self._open = False
        with suppress(OSError):
            _enter(self._path, self._key).close()  # wakes the listener
        self._listener.close()
        self._undo.close()

    def _listen(self) -> None:
        while self._open:
            try:
                peer = self._listener.accept()
            except Exception:  # noqa: BLE001 - one that comes without the key, or leaves at once
                continue
            threading.Thread(target=self._serve, args=(peer,), name="weft-door-guest", daemon=True).start()

    def _serve(self, peer: Connection) -> None:
        with peer, suppress(EOFError, OSError):
            kind, name, number = cloudpickle.loads(peer.recv_bytes())
            if kind == "hold":
                self._hold(peer, name)
            else:
                self._fiber(peer, name, number)

    def _hold(self, peer: Connection, name: str) -> None:
        turns = self._turns[name]
        try:
            ended: Any = turns.hold()
        except BaseException as error:  # noqa: BLE001 - it is the function's, and goes to who holds its slot
            ended = Ended(None, error)
        peer.send_bytes(_packed(ended) if isinstance(ended, Parked) else _packed_end(_as_end(ended)))

    def _fiber(self, peer: Connection, name: str, number: int) -> None:
        """Serve a function: run what it spawns, until it ends."""
        entry = self._desk.entry(number)
        turns = self._turns[name] = Turns(name)
        try:
            while True:
                message = cloudpickle.loads(peer.recv_bytes())
                if isinstance(message, Ended):
                    turns.end(message)
                    return
                turns.park()
                reply = self._children(message, entry)
                if entry is None:
                    return
                self._desk.again(entry, turns)
                turns.wait()
                peer.send_bytes(reply)
        except (EOFError, OSError):
            turns.lose()
            if entry is not None:
                self._desk.lost(entry)
        finally:
            del self._turns[name]

    def _children(self, calls: Sequence[Call], entry: Any) -> bytes:
        try:
            if entry is None:
                raise RunCancelledError("the call that spawned this is over")
            self._desk.run(calls, Watch(), entry)
            return _packed_end(Ended([call.value for call in calls], None))
        except BaseException as error:  # noqa: BLE001 - it goes to the function that waits
            return _packed_end(Ended(None, error))


def _as_end(value: Any) -> Ended:
    return value if isinstance(value, Ended) else Ended(value, None)


# --------------------------------------------------------------------------------------------- in worker processes


class FarFiber:
    """A function in a worker process, on a thread of its own."""

    def __init__(self, number: int, work: Callable[[], Any], door: str, key: bytes) -> None:
        self.name = f"{os.getpid()}-{next(_numbers)}"
        self._number = number
        self._work = work
        self._door = door
        self._key = key
        self._peer: Connection | None = None
        self._turns = Turns(self.name)

    def start(self) -> Any:
        """Begin, holding a slot; return and raise as `Turns.hold`."""
        threading.Thread(target=self._run, name="weft-function", daemon=True).start()
        return self._turns.hold()

    def _run(self) -> None:
        self._turns.wait()
        here.away = self._spawned
        try:
            ended = Ended(self._work(), None)
        except BaseException as error:  # noqa: BLE001 - the task that holds the slot raises it
            ended = Ended(None, error)
        if self._peer is None:
            self._turns.end(ended)
        else:
            with self._peer, suppress(OSError):
                self._peer.send_bytes(_packed_end(ended))

    def _spawned(self, calls: Sequence[Call]) -> None:
        """Have calls run in the session, and take their values."""
        first = self._peer is None
        if self._peer is None:
            self._peer = _enter(self._door, self._key)
            self._peer.send_bytes(_packed(("fiber", self.name, self._number)))
        self._peer.send_bytes(_packed(list(calls)))
        if first:
            self._turns.park()
        ended = cloudpickle.loads(self._peer.recv_bytes())
        if ended.error is not None:
            raise ended.error
        for call, value in zip(calls, ended.value, strict=True):
            call.value = value


def far_call(ctx: Any, inputs: Any) -> Any:
    """Begin a call in a worker process."""
    values = [one.all()[0] for one in inputs.values()]
    number, function, args, kwargs, outputs = cloudpickle.loads(ctx.params["work"])

    def work() -> Any:
        given_args, given_kwargs = filled((args, kwargs), values)
        return Call(function, (), {}, outputs).checked(function(*given_args, **given_kwargs))

    return FarFiber(number, work, ctx.params["door"], ctx.params["key"]).start()


def far_hold(ctx: Any, inputs: Any) -> Any:
    """Hold a slot for a function that goes on in another worker process."""
    with _enter(ctx.params["door"], ctx.params["key"]) as peer:
        peer.send_bytes(_packed(("hold", ctx.params["fiber"], 0)))
        ended = cloudpickle.loads(peer.recv_bytes())
    if isinstance(ended, Parked):
        return ended
    if ended.error is not None:
        raise ended.error
    return ended.value
