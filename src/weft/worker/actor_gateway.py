"""The way to actors from other machines: a port of the program whose actors they are.

The folder of an actor is on the machine of its program. A process of another machine connects to this port, proves the
secret of the actor, and asks for one thing: to be connected with the actor, to know why it has ended, or, as the task
of the actor itself, to tell where it listens or that it has ended. All calls go by the machine of the program.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from weft.model.errors import ForbiddenError
from weft.store.handshake import PATIENCE_S, PURPOSE_BYTES, prove, receive_exactly
from weft.worker.actors import GATEWAY, NAME_BYTES, ActorAddress, ask, gateways, reach, reply

if TYPE_CHECKING:
    from collections.abc import Mapping

_BLOCK: Final = 1 << 16
_BACKLOG: Final = 128


class ActorGateway:
    """Listens at `host` for the callers of actors of this process, and for their tasks, on other machines."""

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host, 0), backlog=_BACKLOG)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._actors: dict[bytes, ActorAddress] = {}
        threading.Thread(target=self._accept, name="weft-actor-gateway", daemon=True).start()

    def lend(self, address: ActorAddress) -> None:
        """Let other machines reach an actor."""
        self._actors[address.key] = address

    def drop(self, address: ActorAddress) -> bool:
        """Let no machine reach an actor any more; return whether none is left, and the port is closed."""
        self._actors.pop(address.key, None)
        if self._actors:
            return False
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        return True

    def _accept(self) -> None:
        while True:
            try:
                sock = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._greet, args=(sock,), name="weft-actor-caller", daemon=True).start()

    def _greet(self, sock: socket.socket) -> None:
        with sock, suppress(OSError, ForbiddenError, ValueError, struct.error):
            sock.settimeout(PATIENCE_S)
            address = self._actors.get(bytes(receive_exactly(sock, NAME_BYTES)))
            if address is None or bytes(receive_exactly(sock, PURPOSE_BYTES)).rstrip() != GATEWAY:
                return
            prove(sock, address.secret, GATEWAY, serves=True)
            self._answer(sock, address, ask(sock))

    def _answer(self, sock: socket.socket, address: ActorAddress, wish: Mapping[str, Any]) -> None:
        """Do what a process of another machine asks for."""
        if wish["what"] == "place":
            address.tell_place(str(wish["host"]), int(wish["port"]))
            reply(sock, {})
        elif wish["what"] == "end":
            address.mark_ended(str(wish["reason"]))
            reply(sock, {})
        elif wish["what"] == "ended":
            reply(sock, {"reason": address.ended()})
        elif (there := reach(address)) is None:
            reply(sock, {"there": False})
        else:
            with there:
                reply(sock, {"there": True})
                sock.settimeout(None)
                _join(sock, there)


def _join(one: socket.socket, other: socket.socket) -> None:
    """Hand on what either end of two connections sends, until one of them ends."""
    back = threading.Thread(target=_hand_on, args=(other, one), name="weft-actor-answers", daemon=True)
    back.start()
    _hand_on(one, other)
    back.join()


def _hand_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while block := source.recv(_BLOCK):
            sink.sendall(block)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


# --------------------------------------------------------------------------------------------------------- lending


_lock: Final = threading.RLock()  # a finalizer may run at any place
_times: Final[Counter[str]] = Counter()
"""How often each actor is lent, by its folder."""
_open: dict[str, ActorGateway] = {}
"""The gateways of this process, by the address of their machine."""


def lend_to_machines(address: ActorAddress, host: str) -> None:
    """Let the machines of a cluster reach an actor of this process, whose machine they know as `host`."""
    with _lock:
        _times[address.folder] += 1
        if address.folder in gateways:
            return
        gateway = _open.get(host) or _open.setdefault(host, ActorGateway(host))
        gateway.lend(address)
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
        for host, gateway in list(_open.items()):
            if gateway.address == where and gateway.drop(address):
                del _open[host]
