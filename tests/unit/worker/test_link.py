"""A link over any channel: what goes in comes out once and in order, or both ends notice that it is lost."""

import random

import pytest

from weft.worker.link import LOST_S, ORPHAN_S, PROBE_S, REPEAT_S, WINDOW, LinkFrame, ReliableLink


class Pair:
    """Two ends and a channel; `drop(frame, inward)` says what is lost."""

    def __init__(self, drop=lambda frame, inward: False) -> None:
        self.now = 0.0
        self.master = ReliableLink(7, 0.0)
        self.worker = ReliableLink(7, 0.0, lost_s=ORPHAN_S, asks=False)
        self.drop = drop
        self.at_master: list[object] = []
        self.at_worker: list[object] = []
        self.frames = 0

    def carry(self, frames, *, inward: bool) -> None:
        """Bring frames to the other end, and its answers back."""
        for frame in frames:
            self.frames += 1
            if self.drop(frame, inward):
                continue
            end, taken = (self.master, self.at_master) if inward else (self.worker, self.at_worker)
            taken.extend(end.take(frame, self.now))
            self.carry(end.due(self.now), inward=not inward)

    def say(self, message: object, *, inward: bool) -> None:
        """One end sends something."""
        end = self.worker if inward else self.master
        self.carry([end.send(message, self.now)], inward=inward)

    def wait(self, seconds: float, step: float = 0.5) -> None:
        """Time passes."""
        for _ in range(round(seconds / step)):
            self.now += step
            self.carry(self.master.due(self.now), inward=False)
            self.carry(self.worker.due(self.now), inward=True)


def test_messages_come_out_once_and_are_acknowledged():
    pair = Pair()
    for number in range(5):
        pair.say(number, inward=True)
        pair.say(-number, inward=False)
    assert pair.at_master == [0, 1, 2, 3, 4]
    assert pair.at_worker == [0, -1, -2, -3, -4]
    pair.wait(PROBE_S + 1)
    assert not pair.master.waiting
    assert not pair.worker.waiting


def test_a_quiet_link_costs_a_question_and_an_answer_now_and_then():
    pair = Pair()
    pair.wait(10 * PROBE_S)
    assert 2 * 8 <= pair.frames <= 2 * 10
    assert not pair.master.lost(pair.now)
    assert not pair.worker.lost(pair.now)


def test_a_message_is_repeated_until_it_is_acknowledged_and_no_longer():
    lost = [True, True, False]
    pair = Pair(lambda frame, inward: inward and frame.number == 1 and bool(lost) and lost.pop(0))
    pair.say("report", inward=True)
    assert pair.at_master == []
    pair.wait(REPEAT_S)
    assert pair.at_master == []
    pair.wait(2 * REPEAT_S)
    assert pair.at_master == ["report"]
    frames = pair.frames
    pair.wait(PROBE_S - 1)
    assert pair.frames <= frames + 2


@pytest.mark.parametrize("broken", [True, False])
def test_both_ends_notice_when_one_direction_is_cut(broken):
    pair = Pair(lambda frame, inward: inward == broken)
    pair.say("lease", inward=False)
    pair.wait(ORPHAN_S)
    assert pair.worker.lost(pair.now)
    pair.wait(LOST_S)
    assert pair.master.lost(pair.now)


def test_frames_of_another_session_change_nothing():
    pair = Pair()
    old = ReliableLink(6, 0.0, asks=False)
    assert pair.master.take(old.send("late", 0.0), 0.0) == []
    assert pair.master.due(0.0) == []
    pair.say("new", inward=True)
    assert pair.at_master == ["new"]


def test_what_comes_far_too_early_is_not_kept():
    link = ReliableLink(7, 0.0)
    assert link.take(LinkFrame(7, WINDOW + 1, 1, 0.0, -1.0, False, "far"), 0.0) == []
    for number in range(2, WINDOW + 1):
        assert link.take(LinkFrame(7, number, 1, 0.0, -1.0, False, number), 0.0) == []
    assert link.take(LinkFrame(7, 1, 1, 0.0, -1.0, False, 1), 0.0) == list(range(1, WINDOW + 1))


@pytest.mark.parametrize("trial", range(30))
def test_any_channel_that_lets_something_through_is_a_pipe(trial, seed):
    rng = random.Random(seed + trial)
    loss = rng.choice([0.0, 0.2, 0.5])
    ends = (ReliableLink(7, 0.0), ReliableLink(7, 0.0, asks=False))
    taken: tuple[list[int], list[int]] = ([], [])
    sent = [0, 0]
    way: list[tuple[int, LinkFrame]] = []
    now = 0.0
    while now < 400.0:
        now += 0.25
        for at, end in enumerate(ends):
            if sent[at] < 40 and rng.random() < 0.5:
                sent[at] += 1
                way.append((1 - at, end.send(sent[at], now)))
            way.extend((1 - at, frame) for frame in end.due(now))
        rng.shuffle(way)
        for to, frame in [way.pop() for _ in range(rng.randint(0, len(way)))]:
            if rng.random() < loss:
                continue
            taken[to].extend(ends[to].take(frame, now))
            if rng.random() < 0.2:
                way.append((to, frame))
        if not any(end.waiting for end in ends) and sent == [40, 40]:
            break
    assert taken == (list(range(1, 41)), list(range(1, 41)))
