"""Relays: connections of a process to addresses that only the other end of the relay reaches."""

import errno
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from tests.integration.places import until
from weft.backends.relay import OPEN, WINDOW, Frame, RelayEnd

DEADLINE_S = 180.0


class Line:
    """Two ends of a relay, and the threads that carry frames between them."""

    def __init__(self) -> None:
        self.near, self.far = RelayEnd(), RelayEnd(far=True)
        self.threads = [
            threading.Thread(target=self.carry, args=ends) for ends in ((self.near, self.far), (self.far, self.near))
        ]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def carry(source: RelayEnd, target: RelayEnd) -> None:
        while not source.closed:
            target.put(source.take(0.2))

    def close(self) -> None:
        self.near.close()
        self.far.close()
        for thread in self.threads:
            thread.join(DEADLINE_S)


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.close()


@contextmanager
def serving(serve):
    """Serve each connection by `serve(sock)` in a thread; yield the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def served(sock):
        with sock:
            serve(sock)

    def accept():
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=served, args=(sock,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield listener.getsockname()
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in (accepting, *threads):
            thread.join(DEADLINE_S)


def received(sock):
    """Return all that a connection brings until its end."""
    parts = []
    while part := sock.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def send(sock, data):
    """Send data, and end."""
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)


def back(sock):
    """Send back all that comes, and end."""
    sock.sendall(received(sock))


def test_bytes_go_both_ways_and_each_direction_ends_by_itself(line):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    data = random.Random(seed).randbytes(3 * WINDOW + 17)
    with serving(back) as address, line.near.dial(address, DEADLINE_S) as sock:
        sender = threading.Thread(target=send, args=(sock, data))
        sender.start()
        assert received(sock) == data
        sender.join(DEADLINE_S)
    until(lambda: not line.near._all and not line.far._all, "the end of the connection at both ends")


def test_a_connection_that_nobody_reads_holds_a_window_and_not_the_others(line):
    sent = []

    def flood(sock):
        sock.settimeout(DEADLINE_S)
        try:
            while True:
                sent.append(sock.send(bytes(1 << 16)))
        except OSError:
            return

    def echo(sock):
        while part := sock.recv(1 << 16):
            sock.sendall(part)

    with serving(flood) as full, serving(echo) as free:
        idle = line.near.dial(full, DEADLINE_S)
        with line.near.dial(free, DEADLINE_S) as sock:
            until(lambda: sum(sent) >= WINDOW, "a full window")
            for _ in range(50):
                sock.sendall(b"ping")
                assert sock.recv(4) == b"ping"
        (held,) = [one for one in line.near._all.values() if one.room == WINDOW and one.came]
        assert sum(map(len, held.came)) <= WINDOW
        idle.close()


def test_an_address_that_cannot_be_reached(line):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(ConnectionError, match="refused"):
        line.near.dial(address, DEADLINE_S)
    until(lambda: not line.near._all and not line.far._all, "the end of the connection at both ends")


def test_a_far_end_that_does_not_answer():
    near = RelayEnd()
    with pytest.raises(TimeoutError):
        near.dial(("127.0.0.1", 1), 0.01)
    near.close()
    with pytest.raises(ConnectionError, match="the session has ended"):
        near.dial(("127.0.0.1", 1), DEADLINE_S)


def test_connections_end_with_the_relay(line):
    gone = threading.Event()

    def serve(sock):
        received(sock)
        gone.set()

    with serving(serve) as address, line.near.dial(address, DEADLINE_S) as sock:
        line.near.close("the cluster is lost")
        assert sock.recv(1) == b""
        line.far.close()
        assert gone.wait(DEADLINE_S)
        assert line.near.take(DEADLINE_S) == []


def test_callers_of_the_far_end_are_greeted_at_the_near_end(line):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    data = random.Random(seed).randbytes(WINDOW + 17)

    def greet(sock):
        with sock:
            back(sock)

    line.near.greet = greet
    address = line.far.listen("127.0.0.1")
    with serving(back) as other, line.near.dial(other, DEADLINE_S) as ours:  # numbers of both ends differ
        for _ in range(2):
            with socket.create_connection(address, timeout=DEADLINE_S) as sock:
                sender = threading.Thread(target=send, args=(sock, data))
                sender.start()
                assert received(sock) == data
                sender.join(DEADLINE_S)
        ours.sendall(b"still there")
        ours.shutdown(socket.SHUT_WR)
        assert received(ours) == b"still there"
    until(lambda: not line.near._all and not line.far._all, "the end of the connections at both ends")


def test_callers_that_nobody_greets_are_hung_up(line):
    address = line.far.listen("127.0.0.1")
    with socket.create_connection(address, timeout=DEADLINE_S) as sock:
        assert received(sock) == b""
    line.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(address, timeout=DEADLINE_S)


def test_the_near_end_connects_to_no_address_that_the_far_end_names(line):
    came: list[socket.socket] = []
    with serving(came.append) as address, pytest.raises(ConnectionError, match="nothing takes callers"):
        line.far.dial(address, DEADLINE_S)
    assert not came


class Leaving(RelayEnd):
    """A near end whose greeter leaves after the first look at it."""

    _next: Any = None

    @property
    def greet(self):
        found, self._next = self._next, None
        return found

    @greet.setter
    def greet(self, greet):
        self._next = greet


def test_a_caller_is_greeted_whose_greeter_leaves_at_the_same_moment():
    near, greeted = Leaving(), []

    def greet(sock):
        with sock:
            greeted.append(sock)

    near.greet = greet
    near.put([Frame(1, OPEN)])
    until(lambda: greeted and greeted[0].fileno() == -1, "the greeting")
    near.close()


class Deaf(socket.socket):
    """A connection whose other end has hung up before it got its options."""

    made: ClassVar[list[socket.socket]] = []

    def setsockopt(self, *options):
        self.made.append(self)
        raise OSError(errno.EINVAL, "Invalid argument")


def test_a_connection_that_takes_no_options_is_closed(line, monkeypatch):
    monkeypatch.setattr(Deaf, "made", [])
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: Deaf())
    with pytest.raises(ConnectionError, match="Invalid argument"):
        line.near.dial(("127.0.0.1", 1), DEADLINE_S)
    line.far._call(Deaf())
    assert [sock.fileno() for sock in Deaf.made] == [-1, -1]


def test_a_closed_end_listens_no_more(line):
    line.far.close()
    with pytest.raises(ConnectionError, match="the session has ended"):
        line.far.listen("127.0.0.1")
