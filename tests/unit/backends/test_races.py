"""Two leases of the same tasks on one machine: what each commits, whatever it was told meanwhile."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.engine.hand import Hand, body
from weft.backends.local_jobs import LocalJob
from weft.engine.commands import Launch
from weft.graph.builder import Graph
from weft.model.resources import ONE_SLOT
from weft.store.api import ABSENT
from weft.store.blocks import BlockManager
from weft.worker.lease import LeaseResult, UnitCounts, WorkerLease


class Pair:
    """A lease of four tasks and its backup."""

    def __init__(self, store: BlockManager) -> None:
        g = Graph("g")
        g.add(body, n=4, name="a")
        loop: Any = None
        self.hand = Hand(g).master
        job = SimpleNamespace(
            id="job",
            inspector=self.hand.inspector,
            outputs=None,
            given={},
            leases={1: None, 2: None},
            gates={},
            logs="",
        )
        self.local = LocalJob(job, store, loop, 100)
        self.spec = self.hand.inspector.spec("a")
        self.first = self.launch(1)

    def launch(self, number: int, backup_of: int = 0) -> WorkerLease:
        launch = Launch(number, number, "a", 0, 4, None, 0, ONE_SLOT, backup_of=backup_of, specs=(self.spec,))
        lease: WorkerLease = self.local.lease(launch)
        return lease

    def commit(self, lease: WorkerLease, hi: int, kind: str = "", *, ends: bool = True) -> LeaseResult:
        """Commit units `0:hi`, each with the number of the lease as its value; `kind`: the one after them failed."""
        outcome = LeaseResult(hi, [lease.id] * hi, 0.0)
        outcome.kind, outcome.counts = kind, [UnitCounts(unit + 1, (("edge", [unit, 1]),)) for unit in range(hi)]
        self.local.commit(lease, outcome, ends=ends)
        return outcome

    @property
    def stored(self) -> list[Any]:
        values = self.local.column("a", 4, 0).values
        return [0 if value is ABSENT else value for value in values]


@pytest.fixture
def pair(tmp_path):
    store = BlockManager(1 << 20, spill=tmp_path / "spill")
    yield Pair(store)
    store.close()


def test_the_second_to_end_commits_nothing(pair):
    backup = pair.launch(2, backup_of=1)
    pair.commit(backup, 4)
    assert pair.commit(pair.first, 4).kind == "stopped"
    assert pair.stored == [2, 2, 2, 2]


def test_what_one_has_done_before_it_failed_the_other_does_not_commit(pair):
    backup = pair.launch(2, backup_of=1)
    assert pair.commit(pair.first, 2, "user").kind == "user"
    pair.commit(backup, 4)
    assert pair.stored == [1, 1, 2, 2]


@pytest.mark.parametrize("before", [True, False], ids=["before the race", "in the race"])
def test_what_one_has_given_back_the_other_does_not_commit(pair, before):
    taken_back = pair.local.shrink(pair.first) if before else None
    backup = pair.launch(2, backup_of=1)
    assert (taken_back or pair.local.shrink(pair.first)) == 3
    outcome = pair.commit(backup, 4)
    assert (outcome.hi, outcome.rows, outcome.stats) == (3, 1 + 2 + 3, (("edge", [3, 3]),))
    assert pair.stored == [2, 2, 2, 0]


def test_rows_and_bytes_of_each_unit_are_reported_once(pair):
    backup = pair.launch(2, backup_of=1)
    before = pair.commit(pair.first, 3, ends=False)
    assert (before.rows, before.stats) == (6, (("edge", [3, 3]),))
    after = pair.commit(backup, 4)
    assert (after.rows, after.stats) == (4, (("edge", [3, 1]),))
    assert pair.stored == [1, 1, 1, 2]


def test_a_failure_in_what_was_given_back_is_none(pair):
    backup = pair.launch(2, backup_of=1)
    assert pair.local.shrink(pair.first) == 3
    outcome = pair.commit(backup, 3, "user")
    assert (outcome.hi, outcome.kind) == (3, "")
    assert pair.commit(pair.first, 3).kind == "stopped"


def test_nothing_is_given_back_that_the_other_has_done(pair):
    backup = pair.launch(2, backup_of=1)
    pair.commit(backup, 4, ends=False)
    assert pair.local.shrink(pair.first) == 4
    pair.commit(backup, 4)
    assert pair.local.shrink(pair.first) is None
