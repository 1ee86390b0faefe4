"""The times of a job of another party, as its records here have them."""

import pytest

from weft.frontends.federated.coordination.participant import (
    Approved,
    CoresGranted,
    Looked,
    Participation,
    ProcessEnded,
    ProcessPrepared,
    WishReceived,
)
from weft.frontends.federated.coordination.records import ComponentOrder, JobPhase, PartStatus, Want, Wish
from weft.frontends.federated.schema import Party
from weft.parties.ledger import JobEntry, PartyLedger
from weft.parties.machines import MachineCalls, PartMachine

GUEST, HOST = Party("guest", "1"), Party("host", "2")


class Part:
    """A part of party 2 in a job of party 1, with its records."""

    def __init__(self, folder):
        calls = MachineCalls("2", *[lambda *_: None] * (len(MachineCalls._fields) - 1))
        self.machine = PartMachine(Participation(job="j", part=HOST, initiator=GUEST), calls)
        self.ledger = PartyLedger(folder / "party.db")
        self.version = 0
        entry = JobEntry(
            job="j", digest="d", initiator_role="guest", initiator="1", mine=0, status="waiting", created=0.0, dsl="",
            conf="",
        )  # fmt: skip
        with self.ledger.write() as write:
            write.add_job(entry)

    def take(self, event, now):
        step = self.machine.step(event, now)
        if step is not None:
            with self.ledger.write() as write:
                step.write(write)

    def wish(self, phase, now, *, epoch=1, status="running", want=None):
        self.version += 1
        orders = {} if want is None else {"a": ComponentOrder(0, want)}
        wish = Wish(
            job="j", part=HOST, initiator=GUEST, digest="d", cores=1, epoch=epoch, version=self.version, phase=phase,
            components=orders, job_status=status,
        )  # fmt: skip
        self.take(WishReceived(wish), now)

    def runs(self, epoch, now):
        """Run component `a` from `now` on."""
        self.wish(JobPhase.CREATE, now, epoch=epoch, status="waiting")
        self.take(Approved(), now)
        self.wish(JobPhase.RESERVE, now, epoch=epoch, status="waiting")
        self.take(CoresGranted(), now)
        self.wish(JobPhase.RUN, now, epoch=epoch, want=Want.PREPARE)
        self.take(ProcessPrepared("a", epoch, 0), now + 5)
        self.wish(JobPhase.RUN, now + 5, epoch=epoch, want=Want.GO)

    @property
    def times(self):
        entry = self.ledger.job("j")
        return entry.started, entry.ended


@pytest.fixture
def part(tmp_path):
    found = Part(tmp_path)
    yield found
    found.ledger.close()


def test_the_time_of_a_job_stands_still_after_its_end_and_begins_anew_with_a_rerun(part):
    part.runs(1, 10.0)
    assert part.times == (10.0, None)
    part.take(ProcessEnded("a", 1, 0, PartStatus.SUCCESS), 20.0)
    part.wish(JobPhase.END, 25.0, status="success")
    assert part.times == (10.0, 25.0)
    part.take(Looked(), 90.0)
    part.wish(JobPhase.END, 95.0, status="success")
    assert part.times == (10.0, 25.0)
    part.wish(JobPhase.CREATE, 100.0, epoch=2, status="waiting")
    assert part.times == (None, None)
    part.runs(2, 110.0)
    part.take(ProcessEnded("a", 2, 0, PartStatus.SUCCESS), 120.0)
    part.wish(JobPhase.END, 121.0, epoch=2, status="success")
    assert part.times == (110.0, 121.0)


def test_a_job_that_ends_while_a_process_stops_has_one_end(part):
    part.runs(1, 10.0)
    part.wish(JobPhase.END, 30.0, status="canceled")
    part.take(ProcessEnded("a", 1, 0, PartStatus.CANCELED), 40.0)
    assert part.machine.state.over
    assert part.times == (10.0, 30.0)
