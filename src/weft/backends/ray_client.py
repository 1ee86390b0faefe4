"""A program outside of the network of a Ray cluster, which reaches it by Ray's client (`ray://`) alone.

An actor in the cluster, without a core, is the far end of a relay: it connects to the nodes of the session, and listens
for the machines that call actors of the program. Its calls carry the bytes, several at a time in each direction, in the
order of their numbers. It also does what Ray's client cannot do for a program. Ray ends it with the connection of the
client.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

import ray
from ray.util.debug import log_once

from weft._version import __version__
from weft.backends.ray_connecting import QUIET_S, START_S, check_modules, check_weft, told
from weft.backends.relay import RelayEnd, RelayEntrance
from weft.model.errors import CapacityError

if TYPE_CHECKING:
    import socket

    from weft.backends.relay import Frame

_AHEAD: Final = 4
"""Calls that are under way in each direction."""
_WAIT_S: Final = 10.0
"""Seconds that a call for frames waits for some."""
_CLOSING_S: Final = 5.0
_OF_TRAFFIC: Final = "client_communication_overhead_warning"
"""Ray's warning about 10 MB of arguments, which a relay has at once."""


def by_client() -> bool:
    """Return whether this process is connected by Ray's client."""
    return bool(ray.util.client.ray.is_connected())  # type: ignore[no-untyped-call]


class RelayActor:
    """The far end of a relay, in the cluster."""

    def __init__(self) -> None:
        self._end = RelayEnd(far=True)
        self._turns = {"take": 0, "put": 0}
        self._changed = threading.Condition()

    def version(self) -> str:
        """Return the version of Weft there."""
        return __version__

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of Weft there."""
        return function(*arguments)

    def listen(self) -> tuple[str, int]:
        """Listen for callers of the program at this machine; return the address."""
        return self._end.listen(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]

    def take(self, number: int) -> list[Frame]:
        """Return the next frames for the program, as call `number` from 0 on."""
        found: list[Frame] = self._in_turn("take", number, lambda: self._end.take(_WAIT_S))
        return found

    def put(self, number: int, frames: Sequence[Frame]) -> None:
        """Take frames of the program, as call `number` from 0 on."""
        self._in_turn("put", number, lambda: self._end.put(frames))

    def _in_turn(self, kind: str, number: int, work: Callable[[], Any]) -> Any:
        """Do the work of a call after those with lower numbers: calls begin in any order."""
        with self._changed:
            self._changed.wait_for(lambda: self._turns[kind] == number)
        try:
            return work()
        finally:
            with self._changed:
                self._turns[kind] += 1
                self._changed.notify_all()


class ClientRelay:
    """The near end of a relay, and its actor at a `place`.

    UsageError: the cluster has another version of Weft, or none. CapacityError: the actor cannot be started.
    """

    def __init__(self, place: Any) -> None:
        log_once(_OF_TRAFFIC)  # as if it had been given already
        made: Any = ray.remote(RelayActor)
        options = {"num_cpus": 0, "max_concurrency": 4 * _AHEAD, "scheduling_strategy": place}
        self._actor = made.options(**options).remote()
        self._end = RelayEnd()
        try:
            with told("the Ray cluster starts the relay of this session", QUIET_S):
                check_weft(ray.get(self._actor.version.remote(), timeout=START_S), __version__)
        except ray.exceptions.RayError as error:
            _refuse(error)
        self.entrance = RelayEntrance(self._end, lambda: tuple(ray.get(self._actor.listen.remote())))
        self._threads = [
            threading.Thread(target=target, name="weft-ray-client", daemon=True) for target in (self._send, self._hear)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def lost(self) -> str:
        """Why nothing can be reached any more, "" as long as the cluster can."""
        return self._end.closed

    def dial(self, address: tuple[str, int], timeout_s: float) -> socket.socket:
        """Return a connection to a node; see `Dial`."""
        return self._end.dial(address, timeout_s)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of Weft in the cluster, and return its result."""
        return ray.get(self._actor.call.remote(function, *arguments))

    def _send(self) -> None:
        under_way: deque[Any] = deque()
        try:
            for number in itertools.count():
                frames: list[Frame] = []
                while not frames:
                    if self._end.closed:
                        return
                    frames = self._end.take(_WAIT_S)
                under_way.append(self._actor.put.remote(number, frames))
                while len(under_way) > _AHEAD:
                    ray.get(under_way.popleft())
        except Exception as error:  # noqa: BLE001 - whatever ends the client ends all connections
            self._end.close(_lost(error))

    def _hear(self) -> None:
        try:
            numbers = itertools.count()
            under_way = deque(self._actor.take.remote(next(numbers)) for _ in range(_AHEAD))
            while not self._end.closed:
                self._end.put(ray.get(under_way.popleft()))
                under_way.append(self._actor.take.remote(next(numbers)))
        except Exception as error:  # noqa: BLE001 - as above
            self._end.close(_lost(error))

    def close(self) -> None:
        """End the actor and all connections."""
        self._end.close()
        with suppress(Exception):  # the cluster may be gone
            ray.kill(self._actor)
        for thread in self._threads:
            thread.join(_CLOSING_S)


def _lost(error: Exception) -> str:
    return f"Ray's client has lost the cluster: {' '.join(str(error).split())[:200]}"


def _refuse(error: Exception) -> NoReturn:
    """Raise what it means that the actor does not start."""
    check_modules(error)
    raise CapacityError(
        f"the Ray cluster cannot start the relay of this session: {error}", hint="See `ray status`."
    ) from None
