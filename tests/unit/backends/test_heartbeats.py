"""Silent worker processes, on a clock set by hand."""

import os
import sys

import pytest

from tests.started import start
from weft.backends.heartbeats import Heartbeats, is_stopped
from weft.engine.ports import FROZEN_S, ManualClock

LOOK_S = 0.05


class Worker:
    """A process whose watch thread counts at every look, except while it is stopped."""

    def __init__(self):
        self.count = 0
        self.stopped = False


def watched(seconds, workers, *, frozen_s=FROZEN_S, at=lambda now: None):
    """Let time pass; return the moments at which workers were found silent first."""
    clock, heartbeats = ManualClock(), Heartbeats(frozen_s)
    found: dict[int, float] = {}
    while clock.time < seconds:
        clock.time += LOOK_S
        at(clock.time)
        for worker in workers.values():
            worker.count += not worker.stopped
        if heartbeats.is_due(clock.time):
            for number in heartbeats.silent({number: worker.count for number, worker in workers.items()}):
                found.setdefault(number, clock.time)
    return found


@pytest.mark.parametrize("moment", [0.0, 1.3, 7.77, 12.0])
@pytest.mark.parametrize("frozen_s", [FROZEN_S, 4.0])
def test_a_stopped_worker_is_found_in_time_and_no_other(moment, frozen_s):
    workers = {number: Worker() for number in range(3)}

    def stop(now):
        workers[1].stopped = now >= moment

    found = watched(60, workers, frozen_s=frozen_s, at=stop)
    assert found.keys() == {1}
    assert frozen_s / 2 < found[1] - moment <= frozen_s


def test_a_worker_that_is_stopped_again_and_again_for_a_moment_is_never_silent():
    workers = {0: Worker()}

    def throttle(now):
        workers[0].stopped = now % 1.0 < 0.9

    assert watched(100, workers, at=throttle) == {}


def test_a_worker_without_a_lease_need_not_count():
    heartbeats = Heartbeats(FROZEN_S)
    for lease in range(10):
        assert heartbeats.silent({3: 7}) == [], f"its count stood still before lease {lease}, and not during it"
        assert heartbeats.silent({}) == []


def test_a_driver_that_was_stopped_itself_blames_nobody():
    clock, heartbeats = ManualClock(), Heartbeats(FROZEN_S)
    assert heartbeats.is_due(clock.now())
    assert heartbeats.silent({0: 5}) == []
    clock.time += 3600  # the worker was stopped with the driver, and both continue
    assert heartbeats.is_due(clock.now())
    assert heartbeats.silent({0: 5}) == []
    clock.time += FROZEN_S
    assert heartbeats.is_due(clock.now())
    assert heartbeats.silent({0: 6}) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_state_of_a_process():
    assert not is_stopped(os.getpid())
    stopper = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"]
    process = start(stopper)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    assert is_stopped(process.pid)
    process.kill()
    process.wait()
    assert not is_stopped(process.pid)
