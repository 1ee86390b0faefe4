"""The frames of links between sessions and nodes, and their beats while anything takes long."""

import itertools
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from weft.backends import node_link, pulse
from weft.backends.node_link import NodeLink
from weft.backends.pulse import BEAT, PIECE, framed, unframed

DEADLINE_S = 180.0
LIMIT_S = 0.5


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_beats_go_between_the_pieces_of_a_large_frame() -> None:
    messages = [(1, bytes(4 * PIECE)), (2, "small")]
    beats = itertools.count()
    parts = list(framed(messages, lambda: [(BEAT, float(next(beats)), -1.0)]))
    heard: list[Any] = []
    found = None
    frame = unframed(heard.extend)
    room = next(frame)
    for part in parts:
        left = memoryview(part)
        while left:
            count = min(len(left), len(room))
            room[:count], left, room = left[:count], left[count:], room[count:]
            if not room:
                try:
                    room = next(frame)
                except StopIteration as end:
                    found = end.value
        if part is parts[2]:
            assert heard == [(BEAT, 0.0, -1.0)]  # long before the frame is complete
    assert found == messages
    assert heard == [(BEAT, float(at), -1.0) for at in range(next(beats))]
    assert len(heard) == 4


class Ends:
    """A link over a pair of sockets, and what the node has taken."""

    def __init__(self, take: Callable[[list[Any]], None]) -> None:
        near, far = socket.socketpair()
        self.lost: list[str] = []
        self.session = NodeLink(near, lambda _: None, self.lost.append)
        self.node = NodeLink.accepted(far, take, self.lost.append)
        self.session.start()
        self.node.start()

    def close(self) -> None:
        closing = threading.Thread(target=self.node.close, args=(DEADLINE_S,))
        closing.start()
        self.session.close(DEADLINE_S)
        closing.join()


def test_a_link_whose_other_end_is_gone_closes_its_socket() -> None:
    near, far = socket.socketpair()
    lost: list[str] = []
    link = NodeLink(near, lambda _: None, lost.append)
    link.start()
    far.close()
    until(lambda: near.fileno() == -1)
    assert len(lost) == 1
    link.close()


class Steady:
    """A clock for threads of this process; it passes over what a busy machine keeps all of them waiting."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen = self._now = time.monotonic()

    def monotonic(self) -> float:
        with self._lock:
            seen = time.monotonic()
            self._now += min(seen - self._seen, LIMIT_S / 100)
            self._seen = seen
            return self._now


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends give each other up soon."""
    monkeypatch.setattr(node_link, "time", Steady())
    for module in (pulse, node_link):
        monkeypatch.setattr(module, "BEAT_S", 0.02)
    monkeypatch.setattr(pulse, "LOST_S", LIMIT_S)
    monkeypatch.setattr(pulse, "ORPHAN_S", 0.8 * LIMIT_S)


@pytest.mark.usefixtures("impatient")
def test_a_link_goes_on_while_a_message_is_taken_for_longer_than_an_end_waits() -> None:
    taken: list[Any] = []
    begun = threading.Event()

    def take(messages: list[Any]) -> None:
        begun.set()
        start = ends.node._pulse._alive
        until(lambda: ends.node._pulse._alive > start + 2 * LIMIT_S or ends.lost)
        taken.extend(messages)

    ends = Ends(take)
    ends.session.send((1, "slow"))
    assert begun.wait(DEADLINE_S)
    ends.session.send((2, bytes(20 * PIECE)))
    until(lambda: len(taken) == 2 or ends.lost)
    assert ends.lost == []
    assert taken == [(1, "slow"), (2, bytes(20 * PIECE))]
    ends.close()


@pytest.mark.usefixtures("impatient")
def test_an_end_that_cannot_send_gives_up_another_that_reads_nothing() -> None:
    near, far = socket.socketpair()
    lost: list[str] = []
    session = NodeLink(near, lambda _: None, lost.append)
    session.start()
    session.send((1, bytes(100 * PIECE)))  # more than the system keeps
    until(lambda: lost)
    assert lost == [f"it has not been heard for {LIMIT_S:g} s"]
    session.close()
    far.close()
