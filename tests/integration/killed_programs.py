"""Tasks of the programs whose nodes are killed: workers load this module, so it needs little."""

import socket
import time
from contextlib import suppress

import numpy as np


def row(x):
    return [np.full(20_000, 100 * x + part, float) for part in range(8)]


def slow_row(x):
    time.sleep(0.01)
    return row(x)


def slow_sum(x):
    time.sleep(0.01)
    return x


def summed(pieces):
    return float(sum(piece.sum() for piece in pieces))


def double(x):
    return 2 * x


def streamed(ctx, inputs):
    """Stream blocks of one MiB, of values of their own."""
    for at in range(ctx.params["n"]):
        ctx.out("blocks").write(0, np.full(1 << 17, float(1000 * ctx.index + at)))


def totals(ctx, inputs):
    """The sum of the first values of all blocks of a stream, a little after each came."""
    total = 0.0
    for values in inputs["blocks"]:
        total += values[0]
        time.sleep(0.002)
    return total


def serves_squares(ctx, inputs):
    """Answer each number that comes with its square."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.02)
        ctx.emit("endpoint", server.getsockname()[1])
        while not ctx.cancelled():
            with suppress(TimeoutError), server.accept()[0] as caller:
                caller.sendall(b"%d" % int(caller.recv(100)) ** 2)


def asks(ctx, inputs):
    """Stream the squares of numbers, in blocks that stay at their node."""
    for at in range(30):
        answer = b""
        while not answer and not ctx.cancelled():
            (port,) = ctx.endpoints("squares")
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", port), timeout=ctx.params["deadline_s"]) as sock,
            ):
                sock.sendall(b"%d" % at)
                answer = sock.recv(100)
            time.sleep(0.003)
        ctx.out("blocks").write(0, np.full(10_000, float(answer)))


def doubled(ctx, inputs):
    """Read the value of a task that may still run."""
    return [2 * value for value in inputs["totals"]]
