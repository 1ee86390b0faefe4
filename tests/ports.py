"""Ports for servers that tests start."""

import socket
from collections.abc import Iterator
from itertools import cycle

_FIRST, _END, _BLOCK = 7000, 10_000, 100


def _own_ports() -> tuple[socket.socket, range]:
    """Return a block of ports that no other process gives while this one lives, and the socket at the one before it.

    This socket holds the block: two runs of the tests would give the same ports before their servers take them.
    """
    for first in range(_FIRST, _END, _BLOCK):
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", first))
        except OSError:
            holder.close()
        else:
            return holder, range(first + 1, first + _BLOCK)
    raise OSError(f"no block of ports from {_FIRST} to {_END} is left: end other runs of tests")


def _free_ports() -> Iterator[int]:
    _holder, own = _own_ports()
    for port in cycle(own):
        try:
            with socket.socket() as sock:
                sock.bind(("127.0.0.1", port))
        except OSError:
            continue
        yield port


_ports = _free_ports()


def free_port() -> int:
    """Return a port that neither the system nor another process with tests gives before the server starts."""
    return next(_ports)
