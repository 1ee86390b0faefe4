"""The loop of a party. What it withstands is in tests/conformance/federated."""

from __future__ import annotations

import pytest

from weft.parties.ledger import PartyLedger
from weft.parties.loop import LoopStep, PartyLoop, Subject
from weft.runtime.clock import RealClock

JOB = Subject("job")


class Machine:
    """A machine that notes what it takes, and is over with the event "end"."""

    def __init__(self, taken: list[str]) -> None:
        self.taken = taken

    def step(self, event: str, now: float) -> LoopStep:
        self.taken.append(event)
        return LoopStep(event, event != "end", lambda write: None, lambda: None)


@pytest.fixture
def loop(tmp_path):
    ledger = PartyLedger(tmp_path / "party.db")
    found = PartyLoop(ledger, RealClock(), lambda subject, error: None)
    yield found
    found.close()
    ledger.close()


@pytest.mark.parametrize("together", [True, False])
def test_an_event_for_a_machine_that_is_over_by_then_is_not_lost(loop, together):
    taken: list[str] = []
    loop.add(JOB, Machine(taken))
    loop.post(JOB, "end")
    if not together:
        loop.start()
        loop.call(JOB, None)
        assert loop.machine(JOB) is None
    loop.post(JOB, "again", lambda: Machine(taken))
    if together:
        loop.start()
    machine = loop.call(JOB, "last", lambda: Machine(taken))
    assert taken == ["end", "again", "last"]
    assert machine is loop.machine(JOB) is not None


def test_an_event_for_nobody_is_dropped(loop):
    loop.start()
    assert loop.call(JOB, "event") is None
    assert loop.subjects() == []
