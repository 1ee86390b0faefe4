"""The server of the interface for clients: one thread with uvicorn, on a port of its own."""

from __future__ import annotations

import errno
import socket
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from weft.model.errors import CapacityError, ConflictError, UsageError
from weft.parties.policy import LOOPBACK

if TYPE_CHECKING:
    import asyncio

    from fastapi import FastAPI

PORT: Final = 9380
"""The port that clients of FATE expect."""
MOST_HEADERS: Final = 80 << 10
"""Bytes of the request line and headers together: `data/upload` has its arguments in the query."""
_KEEP_ALIVE_S: Final = 30
"""The seconds that a connection may take until the head of its next request is there."""
_END_S: Final = 10
_MOST_CONNECTIONS: Final = 256


class HttpServer:
    """Serves an application until `stop`. Port 0 is any free one; `port` has the real one.

    ConflictError: the port is taken. UsageError: `host` is no address of this machine.
    """

    def __init__(self, app: FastAPI, *, host: str = LOOPBACK, port: int = PORT) -> None:
        self._socket = _bound(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            http=_Connection,
            ws="none",
            lifespan="off",
            server_header=False,
            h11_max_incomplete_event_size=MOST_HEADERS,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_END_S,
            limit_concurrency=_MOST_CONNECTIONS,
        )
        self._server = _Server(config)
        self._thread = Thread(target=self._server.run, args=([self._socket],), name="party-http", daemon=True)

    @property
    def url(self) -> str:
        """The address of the routes."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/v1"

    def start(self) -> None:
        """Serve; returns when requests are taken. CapacityError: it could not start."""
        self._thread.start()
        self._server.ready.wait()
        if not self._server.started:
            raise CapacityError(
                f"the interface for clients could not be served on {self.host}:{self.port}",
                hint="The log of the server has the cause.",
            )

    def stop(self) -> None:
        """End: running requests may finish for some seconds. A second call does nothing."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()

    def __enter__(self) -> HttpServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Server(uvicorn.Server):
    """Tells another thread that it has started, or that it never will."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to take requests."""
        try:
            await super().startup(sockets)
        finally:
            self.ready.set()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit` is set."""
        try:
            super().run(sockets)
        finally:
            self.ready.set()


class _Connection(H11Protocol):
    """A connection that is closed if no whole head of a request comes in time, be it by silence or byte by byte.

    Uvicorn waits without limit for that of the first, and anew after each byte for that of others.
    """

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take bytes; what begins a request ends the wait."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_wait()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has come already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._end_wait()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._end_wait()
        self._late = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _end_wait(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound, and says at once if it cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends small answers at once; without, each waits 40 ms for an acknowledgement.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise ConflictError(
                f"port {port} of {host} is taken", hint="End the other server, or give another port."
            ) from None
        raise UsageError(
            f"{host}:{port} cannot be served: {error.strerror or error}",
            hint="Give an address of this machine as client_host in policy.json.",
        ) from None
    return found
