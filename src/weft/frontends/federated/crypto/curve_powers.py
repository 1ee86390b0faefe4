"""Multiplication of many points of Curve25519 by a secret number, in several processes.

The library holds the lock of the interpreter while it multiplies, so threads do not help. A process is this file: it
reads the number and points from its input, and writes the products to its output. It needs no other module of Weft.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

WIDTH: Final = 32
"""The bytes of a number, and of a point."""
_MOST_PROCESSES: Final = 8
_LEAST_POINTS: Final = 5_000
"""The points for which a process is worth its start."""


def multiplied(number: bytes, points: Sequence[bytes], *, processes: int | None = None) -> list[bytes]:
    """Return points times a number, in as many processes as there are cores. ValueError: one has a small order."""
    count = min(os.cpu_count() or 1, _MOST_PROCESSES) if processes is None else processes
    size = max(_LEAST_POINTS, -(-len(points) // count))
    mine, *others = [points[at : at + size] for at in range(0, len(points), size)] or [points]
    with ExitStack() as stack:
        workers = [stack.enter_context(_Worker(number, some)) for some in others]
        found = _here(number, mine)
        for worker in workers:
            found += worker.products()
    return found


def _here(number: bytes, points: Sequence[bytes]) -> list[bytes]:
    exchange, read = X25519PrivateKey.from_private_bytes(number).exchange, X25519PublicKey.from_public_bytes
    return [exchange(read(one)) for one in points]


class _Worker:
    """A process that multiplies points; a context manager that ends with it."""

    def __init__(self, number: bytes, points: Sequence[bytes]) -> None:
        self._number, self._points = number, points

    def __enter__(self) -> _Worker:
        command = [sys.executable, "-I", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(self._number + b"".join(self._points))
            self._process.stdin.close()
        except OSError:
            pass  # it has ended: `products` does its work
        return self

    def products(self) -> list[bytes]:
        """Return the products; of a process that has failed, or was killed, they are made here."""
        assert self._process.stdout is not None
        data = self._process.stdout.read()
        if self._process.wait() or len(data) != WIDTH * len(self._points):
            return _here(self._number, self._points)
        return split_points(data)

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def split_points(data: bytes) -> list[bytes]:
    """Return the points of bytes."""
    return [data[at : at + WIDTH] for at in range(0, len(data), WIDTH)]


def main() -> int:
    """Multiply the points of the input; return the exit code."""
    number, points = sys.stdin.buffer.read(WIDTH), split_points(sys.stdin.buffer.read())
    try:
        sys.stdout.buffer.write(b"".join(_here(number, points)))
    except ValueError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
