"""The ledger of a machine: a file that processes change in turn, and the slots of runs that claim from it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from weft.engine.events import Deferred, Granted
from weft.graph.spec import SharingSpec
from weft.model.resources import Resources
from weft.runtime.clock import RealClock
from weft.runtime.machine_ledger import MachineLedger, ledger_folder
from weft.runtime.machine_slots import PREEMPT, READMIT, MachineSlots

DEADLINE_S = 180.0


class FakeLoop:
    """A loop that keeps what is posted and requested."""

    def __init__(self) -> None:
        self.clock = RealClock()
        self.events: list[Any] = []
        self.requests: list[tuple[str, Any]] = []
        self._changed = threading.Condition()

    def post_later(self, job: str, *events: Any) -> None:
        with self._changed:
            self.events += events
            self._changed.notify_all()

    def drain(self) -> None:
        pass

    def request(self, job: Any, name: str, payload: Any) -> None:
        with self._changed:
            self.requests.append((name, payload))
            self._changed.notify_all()

    def wait(self, condition: Any) -> None:
        give_up_at = time.monotonic() + DEADLINE_S
        with self._changed:
            while not condition():
                assert time.monotonic() < give_up_at, (self.events, self.requests)
                self._changed.wait(0.02)

    def granted(self, request: int) -> Granted:
        def found() -> Granted | None:
            return next((one for one in self.events if isinstance(one, Granted) and one.request == request), None)

        self.wait(found)
        event = found()
        assert event is not None
        return event


class FakeJob:
    id = "job"


class Runs:
    """Runs of one machine with `cores` cores."""

    def __init__(self, folder: Any, cores: float) -> None:
        self.folder, self.cores = folder, cores
        self.opened: list[MachineSlots] = []

    def open(self, name: str, **more: Any) -> tuple[MachineSlots, FakeLoop]:
        sharing = SharingSpec(room=(self.cores, 0, 0), preemptible=True, **more)
        slots, loop = MachineSlots(name, sharing, self.folder), FakeLoop()
        slots.begin(loop, FakeJob())
        self.opened.append(slots)
        return slots, loop


@pytest.fixture
def runs(tmp_path):
    made = Runs(tmp_path, 2)
    yield made
    for slots in made.opened:
        slots.end()
    for slots in made.opened:
        slots.join(DEADLINE_S)
    last = MachineLedger(tmp_path, "last")
    assert last.edit().claims == ()
    last.close()
    assert {path.name for path in tmp_path.iterdir()} <= {"slots.ledger", "slots.lock"}


def wants(count: int, cpu: float = 1.0) -> Any:
    return (("worker", count, (Resources(cpu=cpu),), None),)


def give_back(slots: MachineSlots, event: Granted) -> None:
    for _, worker, _ in event.slots:
        slots.release(event.request, worker)


def test_a_request_gets_all_its_slots_and_the_next_one_waits_with_the_reason(runs):
    (a, a_loop), (b, b_loop) = runs.open("a"), runs.open("b")
    assert a.request(1, wants(2)) == ""
    first = a_loop.granted(1)
    assert len({worker for _, worker, _ in first.slots}) == 2
    assert b.request(1, wants(1)) == ""
    b_loop.wait(lambda: any(isinstance(one, Deferred) for one in b_loop.events))
    assert b.why_not(1) == "needs 1 core at once, 0 are free; a (priority 0) holds 2"
    give_back(a, first)
    assert len(b_loop.granted(1).slots) == 1


def test_four_tasks_with_half_a_core_fit_on_two(runs):
    slots, loop = runs.open("a")
    assert slots.request(1, wants(4, 0.5)) == ""
    assert len(loop.granted(1).slots) == 4


def test_a_request_that_never_fits_is_refused(runs):
    slots, _ = runs.open("a")
    assert "it needs 3 cores at once (3 of worker, each cpu 1); this machine has 2" in slots.request(1, wants(3))
    assert slots.refusal(wants(3)) == "it needs 3 cores at once (3 of worker, each cpu 1); this machine has 2"
    assert slots.refusal(wants(2)) == ""


def test_a_part_of_a_claim_is_given_back_with_the_rest(runs):
    (a, a_loop), (b, b_loop) = runs.open("a"), runs.open("b")
    a.request(1, wants(2))
    first = a_loop.granted(1)
    (_, one, _), (_, other, _) = first.slots
    a.release(1, one)
    b.request(1, wants(1))
    b_loop.wait(lambda: b.why_not(1))
    a.release(1, other)
    b_loop.granted(1)


def test_a_withdrawn_request_frees_its_place(runs):
    (a, a_loop), (b, b_loop), (c, c_loop) = runs.open("a"), runs.open("b"), runs.open("c")
    a.request(1, wants(2))
    first = a_loop.granted(1)
    b.request(1, wants(2))
    b_loop.wait(lambda: b.why_not(1))
    c.request(1, wants(2))
    c_loop.wait(lambda: "behind b" in c.why_not(1))
    b.withdraw(1)
    give_back(a, first)
    c_loop.granted(1)
    assert not any(isinstance(one, Granted) for one in b_loop.events)


def test_a_run_of_lower_priority_makes_room_and_is_admitted_again(runs):
    (low, low_loop), (high, high_loop) = runs.open("low", priority=1), runs.open("high", priority=5)
    low.request(1, wants(2))
    first = low_loop.granted(1)
    high.request(1, wants(1))
    low_loop.wait(lambda: low_loop.requests)
    assert low_loop.requests == [(PREEMPT, {"by": "high"})]
    assert not any(isinstance(one, Granted) for one in high_loop.events)
    give_back(low, first)
    second = high_loop.granted(1)
    low_loop.wait(low.paused)
    assert low.paused() == "has made room for high; needs 2 cores at once, 1 are free; high (priority 5) holds 1"
    give_back(high, second)
    low_loop.wait(lambda: len(low_loop.requests) == 2)
    assert low_loop.requests[1] == (READMIT, None)
    low.request(2, wants(2))
    again = low_loop.granted(2)
    high.request(2, wants(2))  # and it can be told again
    low_loop.wait(lambda: len(low_loop.requests) == 3)
    give_back(low, again)
    high_loop.granted(2)


def test_the_end_of_a_run_frees_all_it_holds(runs):
    (a, a_loop), (b, b_loop) = runs.open("a"), runs.open("b")
    a.request(1, wants(1))
    a.request(2, wants(1))
    a_loop.granted(2)
    b.request(1, wants(2))
    b_loop.wait(lambda: b.why_not(1))
    a.end()
    b_loop.granted(1)


HOLDER = """
import sys
from pathlib import Path
from tests.unit.runtime.test_machine_slots import FakeJob, FakeLoop, Runs, wants
slots, loop = Runs(Path(sys.argv[1]), 2).open("killed")
slots.request(1, wants(2))
loop.granted(1)
print("granted", flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_nothing(runs, tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "granted\n"
        slots, loop = runs.open("b")
        slots.request(1, wants(1))
        loop.wait(lambda: "killed (priority 0) holds 2" in slots.why_not(1))
        killed_at = time.monotonic()
        holder.send_signal(signal.SIGKILL)
        loop.granted(1)
        print(f"granted {time.monotonic() - killed_at:.3f} s after the kill")


def test_a_removed_ledger_is_written_again(runs, tmp_path):
    (a, a_loop), (b, b_loop) = runs.open("a"), runs.open("b")
    a.request(1, wants(2))
    first = a_loop.granted(1)
    (tmp_path / "slots.ledger").write_bytes(b"not a ledger")
    give_back(a, first)
    b.request(1, wants(2))
    b_loop.granted(1)


def test_the_ledger_lies_in_the_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = ledger_folder()
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
