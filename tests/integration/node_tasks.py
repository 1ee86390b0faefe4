"""Tasks of programs at nodes and machines: each of their workers loads this module, so it needs little."""

import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from weft.store import segments

DEADLINE_S = 180.0
MIB = 1 << 20


def until(condition):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def double(x):
    return 2 * x


def fails(x):
    raise KeyError(x)


def row(x, parts=8):
    return [np.full(20_000, 100 * x + part, float) for part in range(parts)]


def slow_row(x, parts=8):
    time.sleep(0.01)
    return row(x, parts)


def summed(pieces):
    return float(sum(piece.sum() for piece in pieces))


def slow_sum(x):
    time.sleep(0.01)
    return x


def filled(x):
    return np.full(MIB // 8, float(x))


def sum_of_all(x, values):
    return x + summed(values)


def sum_of_both(made, late):
    return sum(made) + sum(late)


def place_of(values):
    """The process of this node's parent and the file of shared memory that the first value lies in."""
    at = values[0].__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, _, end = line.split()[0].partition("-")
        if int(begin, 16) <= at < int(end, 16):
            return os.getppid(), line.split(maxsplit=5)[5:]
    raise AssertionError("a value lies outside memory")


def met_place(x, values, marks, count):
    """Where a value lies, once tasks run in `count` processes at a time."""
    Path(marks, str(os.getpid())).touch()
    until(lambda: len(os.listdir(marks)) >= count)
    assert [value[0] for value in values] == list(range(len(values)))
    return place_of(values)


def meets(x, marks, count):
    """Wait until tasks run at `count` nodes, and return the process that has started this worker."""
    Path(marks, str(os.getppid())).touch()
    until(lambda: len(os.listdir(marks)) >= count)
    return os.getppid()


def leaves_mark(x, marks):
    """Leave a mark for each attempt; its name ends with the parent of this worker."""
    Path(marks, f"{x}-{time.monotonic_ns()}-{os.getppid()}").touch()
    return x


def waits_for(x, path):
    until(lambda: os.path.exists(path))
    return x


def counted(x, marks):
    """Return a large value, and note that it was made."""
    with open(Path(marks, str(x)), "a") as file:
        file.write("made\n")
    return filled(x)


def later(x, marks):
    """Wait for the mark "on"."""
    until(lambda: Path(marks, "on").exists())
    return float(x.sum())


def dies_once(x, marks):
    mark = Path(marks, str(x))
    if x == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def streamed(ctx, inputs):
    """Stream blocks of one MiB, of values of their own."""
    for at in range(ctx.params["n"]):
        ctx.out("blocks").write(0, filled(1000 * ctx.index + at))


def totals(ctx, inputs):
    """The sum of the first values of all blocks of a stream, a little after each came."""
    total = 0.0
    for values in inputs["blocks"]:
        total += values[0]
        time.sleep(0.002)
    return total


def bytes_below(folder):
    found = 0
    for path in [path for place in segments.folders(folder) for path in Path(place).glob("*.chunks")]:
        with suppress(FileNotFoundError):  # it is being removed
            found += path.stat().st_size
    return found


def most_bytes_of_writer(ctx, inputs):
    """Read all blocks; return the place of each of the two sides, and the most bytes of shared memory at the writer."""
    most, count = 0, 0
    for values in inputs["blocks"]:
        assert values[0] == count
        most, count = max(most, bytes_below(ctx.params["folder"])), count + 1
    return os.getppid(), count, most


def streams_and_tells(ctx, inputs):
    """Stream some blocks, and say where."""
    streamed(ctx, inputs)
    Path(ctx.params["marks"], "source").write_text(str(os.getppid()))


def reads_late(ctx, inputs):
    """Read the first block of a stream, and the others once they are told to be gone."""
    blocks = iter(inputs["blocks"])
    total = next(blocks)[0]
    Path(ctx.params["marks"], "reading").touch()
    until(lambda: Path(ctx.params["marks"], "gone").exists())
    return total + sum(values[0] for values in blocks)


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
                socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock,
            ):
                sock.sendall(b"%d" % at)
                answer = sock.recv(100)
            time.sleep(0.003)
        ctx.out("blocks").write(0, np.full(10_000, float(answer)))


def doubled(ctx, inputs):
    """Read the value of a task that may still run."""
    return [2 * value for value in inputs["totals"]]


def fibonacci(n):
    from weft.remote import spawn

    return n if n < 2 else sum(spawn(fibonacci, (n - at,)).fetch() for at in (1, 2))


class Total:
    """A number to which tasks of all machines add."""

    def __init__(self):
        self.value = 0

    def add(self, more):
        self.value += more
        return self.value


def adds(item, total):
    return total.add(item).result(DEADLINE_S)


def parent(x):
    return os.getppid()


def marked_row(x, marks):
    Path(marks, f"{x}-{os.urandom(4).hex()}").touch()
    return row(x, 4)


def after(pieces, marks):
    until(lambda: Path(marks, "lost").exists())
    return summed(pieces)
