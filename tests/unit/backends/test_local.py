"""The backends of one machine: budgets, runs and crashes of leases, stops, timers, and threads that are replaced."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.backends.rig import DEADLINE_S, job_of, launch_of, posted_events
from tests.unit.engine.hand import body
from weft.backends.helpers import TimerThread
from weft.backends.local import STREAM_BYTES, crashed, lease_bytes, reserved, run_here, stream_bytes
from weft.backends.local_jobs import LocalJob
from weft.backends.threads import Threads
from weft.engine.commands import Weigh
from weft.engine.events import Done, Failed, GaveBack, Noted, TimerFired, Weighed
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, gather
from weft.model.errors import RunCancelledError
from weft.model.failures import Failure
from weft.store.blocks import BlockManager


@pytest.fixture
def store(tmp_path):
    (tmp_path / "spill").mkdir()
    store = BlockManager(8 << 20, spill=tmp_path / "spill")
    yield store
    store.close()


def squares() -> Graph:
    g = Graph("g")
    a = g.map(abs, range(-3, 1), name="a")
    g.add(sum, gather(a), n=1, name="b")
    return g


def lease_of(job: Any, store: BlockManager, vertex: str = "a", hi: int = 4, **fields: Any) -> tuple[LocalJob, Any]:
    loop = posted_events()
    local = job.backend or LocalJob(job, store, loop, 100)
    return local, local.lease(launch_of(job, vertex, 0, hi, **fields))


# ------------------------------------------------------------------------------------------------------ budgets


def test_every_worker_can_have_a_lease_and_each_fits():
    assert lease_bytes(800, 4) == 100
    assert lease_bytes(0, 4) == 1
    assert lease_bytes(1 << 50, 0) == Tuning().lease_bytes


def test_streams_take_a_small_part_of_the_memory():
    assert (stream_bytes(1600), stream_bytes(1), stream_bytes(1 << 50)) == (100, 1, STREAM_BYTES)


def test_large_outputs_are_reserved_while_a_lease_runs(store):
    _, lease = lease_of(job_of(squares()), store, nbytes=2 << 20)
    with reserved(store, lease):
        assert store.stats().reserved == 2 << 20
    assert store.stats().reserved == 0
    lease.nbytes = 1000
    with reserved(store, lease) as nothing:
        assert nothing is None
        assert store.stats().reserved == 0


def test_the_inputs_of_a_lease_stay_in_memory_and_count_while_it_runs(store):
    local, lease = lease_of(job_of(squares()), store, "b", 1, nbytes=3 << 20)
    column = local.column("a", 4, 0)
    store.put_range(column, 0, [bytes(1 << 20) for _ in range(4)])
    store.memory.make_room(8 << 20)
    assert store.stats().used == 0
    for at in range(4):
        store.load(column, at)
    with reserved(store, lease):
        assert store.memory.pinned == 4
        store.memory.make_room(8 << 20)
        assert store.stats().used >= 4 << 20
    store.memory.make_room(8 << 20)
    assert store.stats().used == 0


def test_a_lease_whose_inputs_leave_while_it_waits_reserves_what_it_reads_back(store):
    local, lease = lease_of(job_of(squares()), store, "b", 1, nbytes=7 << 20)
    store.put_range(local.column("a", 4, 0), 0, [bytes(1 << 19) for _ in range(4)])
    with reserved(store, lease) as reservation:  # its own inputs leave for it
        left = [cell.nbytes for cell in local.column("a", 4, 0).values if type(cell) is not bytes]
        assert left
        assert reservation.nbytes == min(8 << 20, (7 << 20) + sum(left))
        assert store.stats().used + reservation.nbytes <= 8 << 20


def test_a_stopped_lease_waits_for_no_memory(store):
    _, lease = lease_of(job_of(squares()), store, nbytes=6 << 20)
    lease.stop = True
    with store.memory.claim("other", 8 << 20), pytest.raises(RunCancelledError), reserved(store, lease):
        pass


# --------------------------------------------------------------------------------------------------------- runs


def test_a_lease_is_run_stored_and_reported_once(store):
    local, lease = lease_of(job_of(squares()), store)
    run_here(local, lease, 1.0)
    loop: Any = local.loop
    ((job, report),) = loop.posts
    assert (job, type(report), report.hi) == ("job", Done, 4)
    assert local.column("a", 4, 0).values == [3, 2, 1, 0]
    assert loop.drained == 0, "its caller drains"


def test_a_lease_whose_values_cannot_be_stored_fails(store):
    job = job_of(squares(), outputs=SimpleNamespace(put=lambda *_: 1 / 0))
    local, lease = lease_of(job, store)
    run_here(local, lease, 1.0)
    loop: Any = local.loop
    ((_, report),) = loop.posts
    assert (type(report), report.kind, report.hi) == (Failed, Failure.INFRASTRUCTURE, 0)
    assert report.message == "ZeroDivisionError: division by zero"


def test_an_abandoned_lease_reports_nothing_more(store):
    local, lease = lease_of(job_of(squares()), store)
    local.forget(lease)
    run_here(local, lease, 1.0)
    loop: Any = local.loop
    assert loop.posts == []


def test_a_crash_is_a_stop_only_for_a_lease_that_was_stopped(store):
    _, lease = lease_of(job_of(squares()), store)
    error = RunCancelledError("enough")
    assert crashed(lease, error).kind != Failure.STOPPED.value
    lease.stop = True
    found = crashed(lease, error)
    assert (found.kind, found.message, found.vertex, found.index) == (Failure.STOPPED.value, "enough", "a", 0)


# ------------------------------------------------------------------------------------------------------- timers


def _wait(event: threading.Event) -> None:
    assert event.wait(DEADLINE_S)


def test_timers_fire_in_order_of_time():
    loop = posted_events()
    loop.clock.advance(10.0)
    timers = TimerThread(loop)
    timers.close()  # nothing started yet
    timers = TimerThread(loop)
    timers.start()
    fired: list[str] = []
    done = threading.Event()
    ready = threading.Event()
    timers.call(1.0, lambda: _wait(ready))
    timers.call(9.0, lambda: fired.append("late"))
    timers.call(8.0, lambda: fired.append("early"))
    timers.call(9.5, done.set)
    ready.set()
    assert done.wait(DEADLINE_S)
    timers.set("job", 10.0, 7)
    assert loop.wait(1) == [TimerFired(10.0, 7)]
    assert fired == ["early", "late"]
    timers.close()


# ------------------------------------------------------------------------------------------------------ threads


class Rig:
    """Threads over a recording loop."""

    def __init__(self, store: BlockManager, graph: Graph, workers: int = 1) -> None:
        self.loop = posted_events()
        self.executor = Threads(workers, store, grace_s=5.0)
        self.executor.attach(self.loop)
        self.job = job_of(graph)
        self.executor.open_job(self.job)

    def launch(self, vertex: str, lo: int, hi: int, **fields: Any) -> Any:
        launch = launch_of(self.job, vertex, lo, hi, **fields)
        self.executor.launch(self.job, launch)
        lease: Any = self.job.backend.running.get(launch.lease)  # None if it has ended already
        return lease

    def close(self) -> None:
        self.executor.close_job(self.job)
        self.executor.close()


class Gate:
    """A body that waits until it is opened."""

    def __init__(self) -> None:
        self.began, self.opened = threading.Event(), threading.Event()

    def __call__(self, item: int) -> int:
        self.began.set()
        assert self.opened.wait(DEADLINE_S)
        return item


def gated(n: int = 1) -> tuple[Graph, Gate]:
    gate = Gate()
    g = Graph("g")
    g.map(gate, range(n), name="a")
    return g, gate


@pytest.mark.parametrize("worker", [0, -1])
def test_workers_and_helpers_run_leases(store, worker):
    rig = Rig(store, squares())
    rig.executor.launch(rig.job, launch_of(rig.job, "a", 0, 4, worker=worker))
    (report,) = rig.loop.wait(1)
    assert (type(report), report.hi) == (Done, 4)
    rig.close()


def test_a_task_that_does_not_stop_loses_its_thread(store):
    graph, gate = gated()
    rig = Rig(store, graph)
    lease = rig.launch("a", 0, 1)
    assert gate.began.wait(DEADLINE_S)
    rig.executor.out_of_time(rig.job.backend, lease, 0)
    noted, failed = rig.loop.wait(2)
    assert isinstance(noted, Noted)
    assert (type(failed), failed.kind) == (Failed, Failure.STOPPED)
    rig.executor.out_of_time(rig.job.backend, lease, 0)
    gate.opened.set()
    other = rig.launch("a", 0, 1, lease=2)
    reports = rig.loop.wait(3)
    assert (other.id, [report.lease for report in reports[1:]]) == (2, [1, 2]), "the first one reports nothing more"
    rig.close()


def test_a_stop_asks_first_and_enforces_after_the_grace_period(store):
    graph, gate = gated()
    rig = Rig(store, graph)
    lease = rig.launch("a", 0, 1)
    assert gate.began.wait(DEADLINE_S)
    called = threading.Event()
    lease.callbacks = [called.set]
    rig.executor.hurry()
    rig.executor.stop(rig.job, 1, "timeout")
    assert called.wait(DEADLINE_S)
    assert (lease.stop, lease.late) == (True, True)
    assert rig.loop.wait(2)[1].kind is Failure.STOPPED
    rig.executor.stop(rig.job, 1, "again")
    rig.executor.stop(rig.job, 99, "unknown")
    gate.opened.set()
    rig.close()


def test_units_that_have_not_begun_are_given_back(store):
    graph, gate = gated(8)
    rig = Rig(store, graph)
    rig.launch("a", 0, 8)
    assert gate.began.wait(DEADLINE_S)
    rig.executor.shrink(rig.job, 1)
    (given,) = rig.loop.wait(1)
    assert (type(given), given.lease, given.hi) == (GaveBack, 1, 5)
    rig.executor.shrink(rig.job, 99)
    gate.opened.set()
    assert rig.loop.wait(2)[1].hi == 5
    rig.close()


def test_the_bytes_that_tasks_read_are_counted(store):
    g = Graph("g")
    a = g.add(body, n=3, name="a")
    gate = Gate()
    g.add(gate, gather(a), n=1, name="b")
    rig = Rig(store, g)
    store.put_range(rig.job.backend.column("a", 3, 0), 0, [bytes(1000)] * 3)
    rig.launch("b", 0, 1)
    rig.executor.weigh(rig.job, Weigh(1, (("b", 0, 1), ("other", 0, 1))))
    (weighed,) = rig.loop.wait(1)
    assert isinstance(weighed, Weighed)
    assert 3000 <= weighed.nbytes < 4000
    gate.opened.set()
    rig.loop.wait(2)
    rig.close()


def test_freed_outputs_are_gone(store):
    rig = Rig(store, squares())
    rig.launch("a", 0, 4)
    rig.loop.wait(1)
    column = rig.job.backend.columns["a"]
    rig.executor.free(rig.job, "a", 1, 3)
    rig.executor.free(rig.job, "unknown", 0, 1)
    assert (column.values[0], column.values[3], len({id(value) for value in column.values[1:3]})) == (3, 0, 1)
    rig.close()


def test_a_closed_backend_leaves_no_threads(store):
    before = threading.active_count()
    rig = Rig(store, squares(), workers=3)
    assert rig.executor.busy
    rig.close()
    assert not rig.executor.busy
    assert threading.active_count() == before
