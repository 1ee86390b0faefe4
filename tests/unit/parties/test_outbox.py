import threading
import time

import pytest

from weft.frontends.federated.schema import Party
from weft.model.errors import PartyRefusedError, PartyUnreachableError
from weft.parties.outbox import Letter, Outbox, OutboxEvents

HOST = Party("host", "2")


class World:
    """What an outbox is told, and a line that is cut on demand."""

    def __init__(self):
        self.cut = False
        self.sent: list[int] = []
        self.answers: list[tuple[int, bytes]] = []
        self.refusals: list[tuple[int, str]] = []
        self.changes: list[bool] = []
        self.block = threading.Event()
        self.block.set()
        self.refuses = False
        self.broken: set[str] = set()
        self.untold: set[str] = set()
        self.faults: list[str] = []
        self.outbox = Outbox(
            OutboxEvents(
                self.send,
                self.answered,
                lambda party, letter, error: self.refusals.append((letter.version, str(error))),
                lambda party, error: self.changes.append(error is None),
                lambda party, error: self.faults.append(str(error)),
            )
        )

    def send(self, party, letter):
        self.sent.append(letter.version)
        self.block.wait(180)
        if letter.job in self.broken:
            raise RuntimeError("the database is locked")
        if self.cut:
            raise PartyUnreachableError("no answer", party=party)
        if self.refuses:
            raise PartyRefusedError("no", party=party)
        return b"answer"

    def answered(self, party, letter, answer):
        if letter.job in self.untold:
            self.untold.remove(letter.job)
            raise OSError("the disk is full")
        self.answers.append((letter.version, answer))

    def put(self, version, job="job"):
        self.outbox.put("2", Letter(job, HOST, "wish", version, b""))


@pytest.fixture
def world():
    found = World()
    yield found
    found.block.set()
    found.outbox.close()


def no_room(thread):
    raise RuntimeError("can't start new thread")


def until(condition):
    end = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_a_letter_is_sent_once_and_its_answer_is_told(world):
    world.put(1)
    until(lambda: world.answers)
    assert world.answers == [(1, b"answer")]
    assert world.sent == [1]
    assert world.outbox.waiting() == {"2": (0, "")}


def test_a_newer_letter_replaces_one_that_waits_and_follows_one_on_its_way(world):
    world.block.clear()
    world.put(1)
    until(lambda: world.sent)
    world.put(2)
    world.put(3)
    world.block.set()
    until(lambda: len(world.answers) == 2)
    assert [version for version, _ in world.answers] == [1, 3]


def test_a_party_that_does_not_answer_is_told_at_each_try_and_when_it_answers_again(world):
    world.cut = True
    world.put(1)
    until(lambda: len(world.changes) > 1)
    assert not any(world.changes)
    assert world.outbox.waiting() == {"2": (1, "no answer")}
    world.cut = False
    world.outbox.hurry("2")
    until(lambda: world.answers)
    assert world.changes.count(True) == 1
    assert world.changes[-1]
    world.put(2)
    until(lambda: len(world.answers) == 2)
    assert world.changes.count(True) == 1


def test_a_fault_of_this_party_ends_no_thread_and_holds_no_other_letter_up(world):
    world.broken.add("bad")
    world.block.clear()
    world.put(1, "bad")
    until(lambda: world.sent)
    world.put(2, "good")
    world.block.set()
    until(lambda: world.answers)
    assert world.answers == [(2, b"answer")]
    assert "the database is locked" in world.faults
    assert world.changes == []
    world.broken.clear()
    until(lambda: len(world.answers) == 2)
    assert world.answers[1] == (1, b"answer")


def test_letters_go_when_there_is_room_for_a_thread_again(world, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_room)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            world.put(1, "first")
    world.put(2, "second")
    until(lambda: len(world.answers) == 2)
    assert world.answers == [(1, b"answer"), (2, b"answer")]


def test_a_letter_whose_answer_cannot_be_taken_is_sent_again(world):
    world.untold.add("job")
    world.put(1)
    until(lambda: world.answers)
    assert (world.sent, world.faults) == ([1, 1], ["the disk is full"])
    until(lambda: world.outbox.waiting() == {"2": (0, "")})


def test_a_refused_letter_is_told_and_not_sent_again(world):
    world.refuses = True
    world.put(1)
    until(lambda: world.refusals)
    assert world.refusals == [(1, "no")]
    assert world.outbox.waiting() == {"2": (0, "")}


def test_an_outbox_ends_its_threads_while_a_party_does_not_answer(world):
    world.cut = True
    world.put(1)
    until(lambda: world.sent)
    world.outbox.close()
    assert not any(thread.name == "outbox-2" for thread in threading.enumerate())
