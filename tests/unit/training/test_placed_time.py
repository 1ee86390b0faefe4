"""The time that counts for the timeout of a training step."""

from __future__ import annotations

import pytest

from weft import training
from weft.runs.active import RunMessage
from weft.runs.records import Record
from weft.training.placed_time import PlacedTime


class FakeClock:
    def __init__(self) -> None:
        self.at = 100.0

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at


class Step:
    """The jobs of a step, and the events of their run."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.time = PlacedTime(training.job(name="fit", worker=2, command="true").files, self.clock)

    def pass_s(self, seconds: float) -> None:
        self.clock.at += seconds

    def replica(self, index: int, state: str) -> None:
        self.time.take(Record(time=self.clock.at, step="worker", index=index, state=state))

    def job(self, message: str) -> None:
        self.time.take(Record(time=self.clock.at, message=message))


@pytest.fixture
def step() -> Step:
    return Step()


def test_it_begins_with_the_first_replica(step: Step):
    step.time.take(RunMessage("note"))
    step.job("TFJob fit created")
    step.pass_s(7)
    assert (step.time.seconds, step.time.left(5)) == (0, None)
    step.replica(0, "running")
    step.pass_s(2)
    assert (step.time.seconds, step.time.left(5), step.time.left(None)) == (2, 3, None)
    step.pass_s(4)
    assert step.time.left(5) == 0
    assert step.time.too_long(5) == (
        "took longer than its timeout of 5 s; the 7 s in which its jobs waited for their places do not count"
    )


def test_it_stands_still_while_the_job_has_made_room(step: Step):
    step.replica(0, "running")
    step.pass_s(2)
    step.job("TFJob fit suspended: preempted by run-000007, and goes on when there is room")
    step.replica(0, "terminated")
    step.pass_s(50)
    step.job("TFJob fit resumed")
    step.pass_s(50)
    assert (step.time.seconds, step.time.left(5)) == (2, None)
    step.replica(0, "running")
    step.pass_s(1)
    assert step.time.seconds == 3


def test_pauses_between_restarts_count_and_so_do_replicas_that_outlive_their_job(step: Step):
    step.replica(0, "running")
    step.replica(0, "failed")
    step.pass_s(3)
    step.replica(0, "running")
    step.replica(1, "running")
    step.replica(0, "succeeded")
    step.job("TFJob fit succeeded")
    step.pass_s(3)
    assert step.time.seconds == 6
    step.replica(1, "succeeded")
    step.pass_s(3)
    assert step.time.seconds == 6
    assert step.time.too_long(5) == (
        "took longer than its timeout of 5 s; the 3 s in which its jobs waited for their places do not count"
    )
