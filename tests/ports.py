"""Ports for servers that tests start."""

import os
import socket
from collections.abc import Iterator


def _free_ports() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 7000 + 300 * (worker % 10)
    while True:
        for port in range(first, first + 300):
            try:
                with socket.socket() as sock:
                    sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            yield port


_ports = _free_ports()


def free_port() -> int:
    """Return a port that neither the system nor a test beside this one gives to anyone before the server starts."""
    return next(_ports)
