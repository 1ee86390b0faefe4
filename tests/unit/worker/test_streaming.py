"""What a worker process gathers before it sends it to a stream."""

import threading
from typing import Any

import pytest

from weft.model.errors import ProgramError
from weft.worker import streaming
from weft.worker.streaming import StreamWriter, unpacked


class Backend:
    """Takes messages; acknowledges them when it is told to, or at once when somebody waits."""

    def __init__(self) -> None:
        self.sent: list[list[tuple[str, int, int, list[Any]]]] = []
        self.waited: list[int] = []
        self.acknowledged = 0

    def outlet(self, limit: int = 1000) -> StreamWriter:
        return StreamWriter(None, limit, self.send, self.wait, lambda number: number <= self.acknowledged)

    def send(self, parcels: Any) -> int:
        self.sent.append([(edge, index, part, unpacked(cell)) for edge, index, part, cell, _ in parcels])
        return len(self.sent)

    def wait(self, number: int) -> None:
        self.waited.append(number)
        self.acknowledged = max(self.acknowledged, number)


@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setattr(streaming, "GATHER_S", 1e9)


@pytest.mark.usefixtures("patient")
def test_what_goes_to_several_streams_is_one_message():
    backend = Backend()
    out = backend.outlet()
    for at in range(3):
        out.write("a", 0, at % 2, at)
        out.write("b", 0, 0, -at)
    assert not backend.sent
    out.flush()
    assert backend.sent == [[("a", 0, 0, [0, 2]), ("b", 0, 0, [0, -1, -2]), ("a", 0, 1, [1])]]
    assert backend.waited == [0], "there was none before"
    out.flush()
    assert len(backend.sent) == 1, "an empty message is none"


@pytest.mark.usefixtures("patient")
def test_a_full_outlet_sends_after_the_message_before_has_its_answer():
    backend = Backend()
    out = backend.outlet(limit=64)
    for at in range(4):
        out.write("a", 0, 0, at)  # 32 bytes each
    assert [values for ((_, _, _, values),) in backend.sent] == [[0, 1], [2, 3]]
    assert backend.waited == [0, 1]


@pytest.mark.usefixtures("patient")
def test_a_nudge_never_waits():
    backend = Backend()
    out = backend.outlet()
    out.write("a", 0, 0, 1)
    out.nudge()
    assert len(backend.sent) == 1
    out.write("a", 0, 0, 2)
    out.nudge()
    assert len(backend.sent) == 1, "the first has no answer yet"
    backend.acknowledged = 1
    out.nudge()
    assert len(backend.sent) == 2


@pytest.mark.usefixtures("patient")
def test_what_goes_wrong_in_a_nudge_is_raised_by_the_next_flush():
    out = Backend().outlet()
    out.write("a", 0, 0, threading.Lock())
    out.nudge()
    with pytest.raises(ProgramError, match="lock"):
        out.flush()


def test_what_is_written_now_and_then_leaves_at_once(monkeypatch):
    monkeypatch.setattr(streaming, "GATHER_S", 0.0)
    backend = Backend()
    out = backend.outlet()
    out.write("a", 0, 0, "x")
    assert backend.sent == [[("a", 0, 0, ["x"])]]
