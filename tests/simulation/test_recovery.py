"""Kill the master after any record: a new one, fed the journal, is where the old one was and finishes the job."""

import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.pickled import weft_modules_in
from weft.backends.simulator import Faults, Simulator
from weft.durability import snapshot
from weft.durability.encoding import Reader, encode
from weft.durability.journal import (
    Header,
    Recorded,
    graph_digest,
    recover,
    replay_journal,
)
from weft.engine.events import Done
from weft.engine.invariants import check
from weft.engine.master import Master
from weft.engine.recovery import Epoch, digest, may_go_on
from weft.engine.replay import Tape, Tick, replay
from weft.engine.tuning import Tuning
from weft.graph.validate import mark_results
from weft.policies.shuffle import ShuffleManager
from weft.policies.waves import WaveManager
from weft.runtime.job import JobRun
from weft.runtime.loop import Loop
from weft.testing.graphs import random_graph
from weft.testing.inside import check_job
from weft.testing.trial import expect_clean

if TYPE_CHECKING:
    from weft.model.errors import WeftError

RANDOM = 400 if os.environ.get("HYPOTHESIS_PROFILE", "ci") == "soak" else 12
"""How many random graphs each test tries."""
MANAGERS = {"shuffle": ShuffleManager, "waves": WaveManager}


class Book:
    """A journal in memory: encoded records, and the digest of the master after each."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.error: WeftError | None = None
        self.records: list[bytes] = []
        self.digests: list[str] = []
        self.master: Master | None = None

    def append(self, events, commands) -> None:
        self.records.append(encode(Tick(tuple(events), self.tape.take(), len(commands))))
        assert self.master is not None
        self.digests.append(digest(self.master.core))

    def close(self) -> None:
        pass


class Counting(Simulator):
    """A simulator that counts how often each task ended well, and may stop the world."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.runs: Counter[tuple[str, int]] = Counter()

    def launch(self, job, lease) -> None:
        for index in range(lease.lo, lease.hi):
            self.runs[lease.vertex, index] += 1
        if lease.cone is not None:
            for unit in range(lease.lo, lease.hi):
                self.runs.update(list(lease.cone.tasks(unit))[:-1])
        super().launch(job, lease)


def world(rng: random.Random, faults: Faults | None = None) -> dict[str, Any]:
    nodes = rng.choice([1, 1, 2])
    made = {
        "workers": rng.randint(max(2, nodes), 5),
        "nodes": nodes,
        "seconds": 1.0,
        "faults": faults,
        "tuning": Tuning(
            target_s=rng.choice([0.5, 5.0]),
            shared_memory=nodes == 1,
            cones=rng.random() < 0.8,
        ),
        "check": check_job,
    }
    rng.random()  # a draw that the seeds were found with
    return made


def first_run(graph, options) -> tuple[Book, JobRun]:
    sim = Counting(**options)
    loop = Loop(sim, sim.clock)
    mark_results(graph)
    book = Book(Tape())
    book.master = Master(graph, "trial", sim.tuning, book.tape.managers(MANAGERS))
    job = JobRun("trial", graph, book.master, book)
    loop.submit(job)
    sim.run(most_moments=200_000)
    if job.crash is not None:
        raise job.crash
    assert job.outcome is not None
    return book, job


def go_on(graph, recorded: Recorded, options) -> tuple[Counting, JobRun, set[tuple[str, int]]]:
    """Recover in another world where everything that was finished is still there, and run to the end."""
    found = recover(graph, recorded, MANAGERS)
    before = found.master.inspector.finished_tasks()
    sim = Counting(**{**options, "faults": None})
    sim.clock.time = found.pending.now
    job = JobRun("trial", graph, found.master)
    for stage in found.master.core.stages:
        held = {i for i in range(max(stage.n, 0)) if stage.state[i] == 6}
        if held:
            sim.held["trial", stage.id] = held
            sim.held_now += len(held)
    loop = Loop(sim, sim.clock)
    loop.submit(job, found.pending)
    sim.run(most_moments=200_000)
    if job.crash is not None:
        raise job.crash
    assert job.outcome is not None, "\n".join(job.master.inspector.story())
    return sim, job, before


def recorded_of(graph, options, records: list[bytes]) -> Recorded:
    return Recorded(Header(graph=graph_digest(graph), tuning=options["tuning"]), tuple(map(Reader().read, records)), 0)


@pytest.mark.parametrize("number", range(RANDOM))
def test_a_master_recovers_after_every_record(number):
    rng = random.Random(number)
    graph = random_graph(rng).finish()
    options = world(rng)
    book, first = first_run(graph, options)
    for at in range(1, len(book.records)):
        records = book.records[:at]
        twice = []
        for _ in range(2):
            tape = Tape()
            master = Master(graph, "trial", options["tuning"], tape.managers(MANAGERS))
            replay(master, tape, map(Reader().read, records))
            twice.append(digest(master.core))
        assert twice == [book.digests[at - 1]] * 2, f"seed {number}: record {at}"
        sim, job, before = go_on(graph, recorded_of(graph, options, records), options)
        assert job.outcome.state == first.outcome.state, f"seed {number}: record {at}"
        check(job.master.core)
        expect_clean(sim, job)
        again = [task for task in before if sim.runs[task]]
        assert not again, f"seed {number}: record {at}: run again though finished: {sorted(again)[:5]}"


@pytest.mark.parametrize("number", range(RANDOM))
def test_a_master_recovers_from_a_run_with_faults(number):
    rng = random.Random(1000 + number)
    graph = random_graph(rng).finish()
    faults = Faults(
        seed=number, worker_lost=0.1, node_lost=0.5, user=0.05, infrastructure=0.1, output_lost=0.1, duplicate=0.2,
        started=0.3, give_back=0.2, most=10,
    )  # fmt: skip
    options = world(rng, faults)
    fair = first_run(graph, {**options, "faults": None})[1].outcome
    book, _ = first_run(graph, options)
    for at in sorted(rng.sample(range(1, len(book.records) + 1), k=min(12, len(book.records)))):
        records = book.records[:at]
        tape = Tape()
        master = Master(graph, "trial", options["tuning"], tape.managers(MANAGERS))
        pending = replay(master, tape, map(Reader().read, records))
        assert digest(master.core) == book.digests[at - 1], f"seed {number}: record {at}"
        if pending.completed or not may_go_on(master.core):
            continue
        sim, job, _ = go_on(graph, recorded_of(graph, options, records), options)
        assert job.outcome.state == fair.state, f"seed {number}: record {at}: {job.outcome}"
        check(job.master.core)
        expect_clean(sim, job)


@pytest.mark.parametrize("number", range(RANDOM))
def test_a_snapshot_is_as_good_as_what_it_stands_for(number):
    rng = random.Random(2000 + number)
    graph = random_graph(rng).finish()
    options = world(rng, Faults(seed=number, worker_lost=0.1, infrastructure=0.1, started=0.3, most=10))
    book, _ = first_run(graph, options)
    whole = recorded_of(graph, options, book.records)
    for at in sorted(rng.sample(range(len(book.records) + 1), k=min(6, len(book.records) + 1))):
        data = snapshot.dump(graph, replay_journal(graph, recorded_of(graph, options, book.records[:at]), MANAGERS))
        assert weft_modules_in(data, pickles=2) == {"weft.durability.pickles"}, "a class in it is not declared"
        cut = Recorded(whole.header, whole.records[at:], 0, data)
        replayed = snapshot.load(data, graph, MANAGERS, Tape())
        for later in range(at, len(book.records)):
            replayed.feed([Reader().read(book.records[later])])
            assert digest(replayed.master.core) == book.digests[later], f"seed {number}: cut at {at}, record {later}"
        a, b = recover(graph, whole, MANAGERS), recover(graph, cut, MANAGERS)
        assert a.pending == b.pending, f"seed {number}: cut at {at}"
        assert digest(a.master.core) == digest(b.master.core)


def test_late_reports_of_an_earlier_incarnation_are_ignored():
    rng = random.Random(5)
    graph = random_graph(rng).finish()
    options = world(rng)
    book, _ = first_run(graph, options)
    recorded = recorded_of(graph, options, book.records[: len(book.records) // 2])
    found = recover(graph, recorded, MANAGERS)
    assert found.master.core.counter >= 1 << 40
    old = Recorded(recorded.header, (*recorded.records, Epoch(1)), 0)
    assert recover(graph, old, MANAGERS).master.core.counter >= 2 << 40
    live = set(found.master.core.leases)
    unknown = max(live, default=0) + 1
    found.master.handle([Done(found.pending.now, unknown, 1)])
    assert set(found.master.core.leases) == live
