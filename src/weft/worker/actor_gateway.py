"""The way to actors from other machines: an entrance to the program whose actors they are, which is a port of it, or
of a relay if the machines cannot reach it.

The folder of an actor is on the machine of its program. A process of another machine connects there, proves the
secret of the actor, and asks for one thing: to be connected with the actor, to know why it has ended, to tell that its
calls wait for the actor to begin, or, as the task of the actor itself, to tell where it listens or that it has ended,
or to know whether calls wait for it. All calls go by the machine of the program.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.model.errors import ForbiddenError
from weft.model.patterns import late_pattern
from weft.store.handshake import PATIENCE_S, PURPOSE_BYTES, dial_tcp, prove, receive_exactly
from weft.store.listening import listen
from weft.store.tls import secure_client, secure_server
from weft.worker.actors import GATEWAY, NAME_BYTES, ActorAddress, ask, dials, gateways, reach, reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.store.tls import Connection, TlsFiles

_BLOCK: Final = 1 << 16
_TOKEN: Final = late_pattern("[0-9a-f]{16}")
"""The name of a caller whose calls wait."""


Greet = Callable[[socket.socket], None]
"""Serves a connection until its end."""


class Entrance(Protocol):
    """The connections between this process and the machines of a cluster."""

    @property
    def key(self) -> str:
        """What is equal for the entrances of one place."""
        ...

    def open(self, greet: Callable[[Connection], None]) -> tuple[str, int]:
        """Greet the machines that connect, each in a thread of its own, from now on; return where they do."""
        ...

    def close(self) -> None:
        """Greet no machine any more."""
        ...

    def dial(self, address: tuple[str, int], timeout_s: float) -> Connection:
        """Connect to an actor at a machine. OSError: see `Dial`. ForbiddenError: the machine is none of the cluster."""
        ...


class PlainEntrance(Entrance, Protocol):
    """An entrance whose connections are not encrypted."""

    def open(self, greet: Greet) -> tuple[str, int]:
        """See `Entrance.open`."""
        ...

    def dial(self, address: tuple[str, int], timeout_s: float) -> socket.socket:
        """See `Entrance.dial`."""
        ...


class PortEntrance:
    """A port of this process, at the address `key` of its machine."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.dial = dial_tcp
        self._listener: socket.socket | None = None

    def open(self, greet: Greet) -> tuple[str, int]:
        """See `Entrance.open`."""
        self._listener = listener = listen(self.key)
        threading.Thread(target=self._accept, args=(listener, greet), name="weft-actor-gateway", daemon=True).start()
        address: tuple[str, int] = listener.getsockname()[:2]
        return address

    @staticmethod
    def _accept(listener: socket.socket, greet: Greet) -> None:
        while True:
            try:
                sock = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=greet, args=(sock,), name="weft-actor-caller", daemon=True).start()

    def close(self) -> None:
        """See `Entrance.close`."""
        assert self._listener is not None
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class TlsEntrance:
    """An entrance whose connections are encrypted: both ends show a certificate of one CA."""

    def __init__(self, entrance: PlainEntrance, files: TlsFiles) -> None:
        self._entrance, self._files = entrance, files
        self.key = "|".join((entrance.key, *files))

    def open(self, greet: Callable[[Connection], None]) -> tuple[str, int]:
        """See `Entrance.open`."""
        return self._entrance.open(partial(self._greet, greet))

    def _greet(self, greet: Callable[[Connection], None], sock: socket.socket) -> None:
        with sock, suppress(OSError, ForbiddenError):
            sock.settimeout(PATIENCE_S)
            greet(secure_server(sock, self._files))

    def close(self) -> None:
        """See `Entrance.close`."""
        self._entrance.close()

    def dial(self, address: tuple[str, int], timeout_s: float) -> Connection:
        """See `Entrance.dial`."""
        sock = self._entrance.dial(address, timeout_s)
        try:
            sock.settimeout(timeout_s)
            return secure_client(sock, self._files, f"the actor at {address[0]}:{address[1]}")
        except BaseException:
            sock.close()
            raise


class ActorGateway:
    """Greets the callers of actors of this process, and their tasks, on other machines."""

    def __init__(self, entrance: Entrance) -> None:
        self._entrance = entrance
        self._actors: dict[bytes, ActorAddress] = {}
        self.address = entrance.open(self._greet)

    def lend(self, address: ActorAddress) -> None:
        """Let other machines reach an actor."""
        self._actors[address.key] = address

    def drop(self, address: ActorAddress) -> bool:
        """Let no machine reach an actor any more; return whether none is left, and the entrance is closed."""
        self._actors.pop(address.key, None)
        if self._actors:
            return False
        self._entrance.close()
        return True

    def _greet(self, sock: Connection) -> None:
        with closing(sock), suppress(OSError, ForbiddenError, ValueError, struct.error):
            sock.settimeout(PATIENCE_S)
            address = self._actors.get(bytes(receive_exactly(sock, NAME_BYTES)))
            if address is None or bytes(receive_exactly(sock, PURPOSE_BYTES)).rstrip() != GATEWAY:
                return
            prove(sock, address.secret, GATEWAY, serves=True)
            self._answer(sock, address, ask(sock))

    def _answer(self, sock: Connection, address: ActorAddress, wish: Mapping[str, Any]) -> None:
        """Do what a process of another machine asks for."""
        what = wish["what"]
        if wish["beginning"] != address.number:  # an earlier run of the graph, which has ended
            reply(sock, {"reason": "its run has ended", "there": False, "awaited": False})
        elif what == "place":
            address.tell_place(str(wish["host"]), int(wish["port"]))
            reply(sock, {})
        elif what == "end":
            address.mark_ended(str(wish["reason"]))
            reply(sock, {})
        elif what == "ended":
            reply(sock, {"reason": address.ended()})
        elif what == "waiting":
            if _TOKEN.fullmatch(str(wish["token"])):
                address.note_waiting(str(wish["token"]), None, over=bool(wish["over"]))
            reply(sock, {})
        elif what == "awaited":
            reply(sock, {"awaited": address.is_awaited()})
        elif (there := reach(address)) is None:
            reply(sock, {"there": False})
        else:
            with closing(there):
                reply(sock, {"there": True})
                sock.settimeout(None)
                _join(sock, there)


def _join(one: Connection, other: Connection) -> None:
    """Hand on what either end of two connections sends, until both have ended."""
    back = threading.Thread(target=_hand_on, args=(other, one), name="weft-actor-answers", daemon=True)
    back.start()
    _hand_on(one, other)
    back.join()


def _hand_on(source: Connection, sink: Connection) -> None:
    """Hand on what comes, and its end; if one of the two breaks, end both directions."""
    try:
        while block := source.recv(_BLOCK):
            sink.sendall(block)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


# --------------------------------------------------------------------------------------------------------- lending


_lock: Final = threading.RLock()  # a finalizer may run at any place
_times: Final[Counter[str]] = Counter()
"""How often each actor is lent, by its folder."""
_open: dict[str, ActorGateway] = {}
"""The gateways of this process, by the keys of their entrances."""


def lend_to_machines(address: ActorAddress, entrance: Entrance) -> None:
    """Let the machines of a cluster reach an actor of this process by an entrance, or by an open one of that place."""
    with _lock:
        _times[address.folder] += 1
        if address.folder in gateways:
            return
        gateway = _open.get(entrance.key) or _open.setdefault(entrance.key, ActorGateway(entrance))
        gateway.lend(address)
        dials[address.folder] = entrance.dial
        gateways[address.folder] = gateway.address


def take_back(address: ActorAddress, process: int) -> None:
    """End what `lend_to_machines` has done once; in a fork, which has no part in it, do nothing."""
    if os.getpid() != process:
        return
    with _lock:
        _times[address.folder] -= 1
        if _times[address.folder]:
            return
        del _times[address.folder]
        where = gateways.pop(address.folder, None)
        dials.pop(address.folder, None)
        for key, gateway in list(_open.items()):
            if gateway.address == where and gateway.drop(address):
                del _open[key]
