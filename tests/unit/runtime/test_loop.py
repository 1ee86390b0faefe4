"""The loop: events in, commands out, for several jobs; and what happens when a job, a worker or the master fails."""

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from weft.backends.simulator import Simulator
from weft.engine.commands import Complete, Launch, LaunchEach
from weft.engine.decisions import Avoid, BackUp
from weft.engine.events import Done, DoneEach, Failed, IdleTick, TimerFired
from weft.engine.machines.job import JobState
from weft.engine.master import Master
from weft.engine.policy import BLAME, STRAGGLERS, VertexManager
from weft.engine.ports import ManualClock, WorkerSpec
from weft.engine.provider import FixedProvider, NodeSpec
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, gather
from weft.graph.logical import LogicalGraph, Retry
from weft.model.failures import Failure
from weft.model.resources import Resources
from weft.runtime.job import JobRun, Latch
from weft.runtime.loop import Loop
from weft.testing.fakes import RecordingExecutor

if TYPE_CHECKING:
    from weft.model.errors import WeftError


def body(*inputs: object) -> object:
    return inputs


class Recorder:
    """An executor that writes down what it is told; the test plays the workers."""

    def __init__(self, workers: int = 2) -> None:
        self.tuning = Tuning()
        self.provider = FixedProvider((NodeSpec(workers=tuple(range(workers))),))
        self.told: list[tuple[str, str]] = []
        self.launched: list[tuple[JobRun, Launch]] = []
        self.loop: Loop | None = None

    def attach(self, loop):
        self.loop = loop

    def launch(self, job, lease):
        self.launched.append((job, lease))
        self.told.append((job.id, f"launch {lease.vertex}[{lease.lo}:{lease.hi}] on {lease.worker}"))

    def launch_each(self, job, leases):
        for lease in leases.each():
            self.launch(job, lease)

    def set_timer(self, job, at, timer):
        self.told.append((job.id, f"timer {at:g}"))

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda job, *rest: self.told.append((job.id, " ".join([name, *map(str, rest)])))


class Memory:
    """A journal that remembers."""

    def __init__(self) -> None:
        self.error: WeftError | None = None
        self.records: list[tuple[list[object], list[object]]] = []
        self.closed = False

    def append(self, events, commands):
        self.records.append((list(events), list(commands)))

    def close(self):
        self.closed = True


class Once(VertexManager):
    """A policy that says one thing, the first time it is asked."""

    moments: frozenset[Any] = frozenset()
    holds = counts = False

    def __init__(self, *decisions: Any) -> None:
        self.decisions: tuple[Any, ...] = decisions

    def decide(self, view, memo):
        said, self.decisions = self.decisions, ()
        return said, memo


def flat(n: int = 2, **fields) -> Graph:
    g = Graph("g")
    g.add(body, n=n, name="a", **fields)
    return g.finish()


def session(workers: int = 2) -> tuple[Recorder, Loop]:
    executor = Recorder(workers)
    return executor, Loop(executor, ManualClock())


def submit(loop: Loop, name: str, graph: Graph, journal: Memory | None = None) -> JobRun:
    job = JobRun(name, graph, Master(graph, name), journal)
    loop.submit(job)
    return job


@pytest.mark.parametrize("journal", [None, Memory()])
def test_listeners_and_journals_see_leases_one_by_one(journal):
    """The master gives out many leases by one command, and takes reports of many."""
    simulator = Simulator(8, seconds=lambda _, index: 1.0 + index % 3, tick_s=0.5, track=False)
    loop = Loop(simulator, simulator.clock)
    job = JobRun("j", flat(200), Master(flat(200), "j", simulator.tuning), journal)
    told: list[object] = []
    job.listen(lambda _, events, commands: told.extend((*events, *commands)))
    handled: set[type] = set()
    handle = job.master.handle

    def watched(events):
        commands = handle(events)
        handled.update(type(one) for one in (*events, *commands))
        return commands

    job.master.handle = watched  # type: ignore[method-assign]
    loop.submit(job)
    simulator.run()
    assert job.outcome is not None
    assert job.outcome.state == "succeeded"
    assert LaunchEach in handled
    assert (DoneEach in handled) == (journal is None)  # a replay sees what the master saw
    seen = [told]
    if journal is not None:
        seen.append([one for events, commands in journal.records for one in (*events, *commands)])
    for each in seen:
        assert [one for one in each if isinstance(one, LaunchEach | DoneEach)] == []
        assert sum(launch.hi - launch.lo for launch in each if isinstance(launch, Launch)) == 200
        assert sum(isinstance(one, Done) for one in each) == simulator.leases


def finish_all(executor: Recorder, loop: Loop) -> None:
    while executor.launched:
        job, lease = executor.launched.pop(0)
        loop.post(job.id, Done(loop.clock.now(), lease.lease, lease.hi, 1.0))


def test_a_job_runs_from_submit_to_its_outcome():
    executor, loop = session()
    job = submit(loop, "j", flat())
    assert executor.told == [("j", "open_job"), ("j", "launch a[0:1] on 1"), ("j", "launch a[1:2] on 0")]
    assert not job.finished.is_set()
    finish_all(executor, loop)
    assert job.outcome == Complete("succeeded")
    assert job.finished.is_set()
    assert (loop.jobs, loop.pool.idle, dict(job.leases)) == ({}, 2, {})


def test_jobs_share_workers_one_by_one():
    executor, loop = session(4)
    jobs = [submit(loop, name, flat(8)) for name in "xyz"]
    assert [owner for owner, _ in executor.told if _.startswith("launch")] == ["x"] * 4
    first = executor.launched.pop(0)
    loop.post("x", Done(0.0, first[1].lease, first[1].hi, 1.0))
    assert executor.launched[-1][0].id in ("y", "z")
    finish_all(executor, loop)
    assert [job.outcome and job.outcome.state for job in jobs] == ["succeeded"] * 3
    order = [owner for owner, what in executor.told if what.startswith("launch")]
    assert all(order.count(name) == 8 for name in "xyz")
    # x had all four when the others came; from then on who holds least is served first.
    assert order[4:6] == ["y", "z"]
    assert min(order[4:14].count(name) for name in "xyz") >= 3


def test_a_job_that_avoids_the_next_idle_worker_is_offered_another():
    executor, loop = session(4)
    picky, other = submit(loop, "p", flat(4, retry=Retry(infrastructure=3))), submit(loop, "q", flat(9))
    picky.master.core.policies[BLAME] = Once(Avoid(3, 60.0, "bad"))
    ((_, first),) = [one for one in executor.launched if one[0] is picky and one[1].worker == 3]
    loop.post("p", Failed(0.0, first.lease, 0, "a", first.lo, Failure.INFRASTRUCTURE, "bad"))
    finish_all(executor, loop)
    assert [job.outcome and job.outcome.state for job in (picky, other)] == ["succeeded"] * 2
    ran = [what for owner, what in executor.told if owner == "p" and what.startswith("launch")]
    assert [what.endswith("on 3") for what in ran].count(True) == 1
    assert any(what.endswith("on 3") for owner, what in executor.told if owner == "q" and what.startswith("launch"))


def test_a_job_takes_the_worker_it_avoids_when_nobody_else_will_come():
    executor, loop = session(2)
    long = submit(loop, "q", flat(1))
    executor.launched.clear()
    picky = submit(loop, "p", flat(2, retry=Retry(infrastructure=3)))
    picky.master.core.policies[BLAME] = Once(Avoid(0, 60.0, "bad"))
    ((_, first),) = executor.launched
    assert first.worker == 0
    executor.launched.clear()
    loop.post("p", Failed(0.0, first.lease, 0, "a", first.lo, Failure.INFRASTRUCTURE, "bad"))
    finish_all(executor, loop)
    assert picky.outcome == Complete("succeeded")
    assert long.outcome is None


def test_events_for_jobs_that_are_over_or_never_were_are_dropped():
    executor, loop = session()
    submit(loop, "j", flat(1))
    ((_, lease),) = executor.launched
    finish_all(executor, loop)
    told = list(executor.told)
    loop.post("j", Done(0.0, lease.lease, lease.hi))
    loop.post("nobody", Done(0.0, 1, 1))
    assert executor.told == told
    other = submit(loop, "k", flat(1))
    loop.post("j", Done(0.0, 1, 1))
    loop.post("nobody", Done(0.0, 1, 1))
    assert other.outcome is None


def test_a_report_that_comes_twice_frees_its_worker_once():
    executor, loop = session(1)
    submit(loop, "j", flat(3))
    (_, lease), *_ = executor.launched
    report = Done(0.0, lease.lease, lease.hi, 5.0)
    loop.post("j", report)
    loop.post("j", report)
    assert loop.pool.idle == 0
    assert len([what for _, what in executor.told if what.startswith("launch")]) == 2


def test_cancel():
    executor, loop = session()
    job = submit(loop, "j", flat(2))
    loop.cancel(job, "enough")
    assert [what for _, what in executor.told if what.startswith("stop")] == ["stop 1 enough", "stop 2 enough"]
    for number in (1, 2):
        loop.post("j", Failed(0.0, number, 0, "a", number - 1, Failure.STOPPED, ""))
    assert job.outcome is not None
    assert (job.outcome.state, job.outcome.message, loop.pool.idle) == ("cancelled", "enough", 2)


def test_a_lost_worker_takes_its_lease_with_it_and_another_has_it():
    executor, loop = session(2)
    job = submit(loop, "j", flat(1))
    ((_, lease),) = executor.launched
    loop.worker_lost(lease.worker, "died")
    assert [launch.worker for _, launch in executor.launched] == [lease.worker, 1 - lease.worker]
    loop.post("j", Done(0.0, lease.lease, 1))  # of the dead
    assert job.outcome is None
    loop.worker_joined(WorkerSpec(9))
    assert (loop.pool.idle, sorted(loop.slots.specs)) == (1, [1 - lease.worker, 9])
    finish_all(executor, loop)
    assert job.outcome == Complete("succeeded")


def test_a_worker_that_joins_is_given_work():
    executor, loop = session(1)
    submit(loop, "j", flat(2))
    loop.worker_joined(WorkerSpec(5))
    assert [launch.worker for _, launch in executor.launched] == [0, 5]


@pytest.mark.parametrize("jobs", [1, 2])
def test_requests_are_granted_and_refused(jobs):
    executor, loop = session(2)
    job = submit(loop, "x", flat(1, resources=Resources(cpu=2)))
    if jobs == 2:
        submit(loop, "y", flat(1))
    assert executor.launched[0][1].resources == Resources(cpu=2)
    finish_all(executor, loop)
    assert job.outcome == Complete("succeeded")
    big = submit(loop, "big", flat(1, resources=Resources(cpu=3)))
    assert big.outcome is not None
    assert big.outcome.message == "a asks for cpu 3 for one task; no node has that much"
    assert loop.pool.idle == 2


def test_a_fault_of_the_master_ends_its_job_and_no_other():
    executor, loop = session(2)
    good, bad = submit(loop, "good", flat(1)), submit(loop, "bad", flat(1))

    def broken(events):
        raise RuntimeError("a bug")

    bad.master.handle = broken  # type: ignore[method-assign]
    (lease,) = [launch for job, launch in executor.launched if job is bad]
    loop.post("bad", Done(0.0, lease.lease, 1))
    assert bad.outcome == Complete("failed", "", "internal error: a bug", kind="internal")
    assert isinstance(bad.crash, RuntimeError)
    assert bad.finished.is_set()
    executor.launched = [pair for pair in executor.launched if pair[0] is good]
    finish_all(executor, loop)
    assert good.outcome == Complete("succeeded")


def test_the_journal_has_each_tick_and_is_closed_at_the_end():
    executor, loop = session(1)
    journal = Memory()
    submit(loop, "j", flat(2), journal)
    finish_all(executor, loop)
    assert journal.closed
    events = [type(event).__name__ for record in journal.records for event in record[0]]
    assert events[:2] == ["WorkerJoined", "JobSubmitted"]
    assert events.count("Done") == 2
    assert journal.records[-1][1][-1] == Complete("succeeded")


class Slow(Memory):
    """A journal whose records are on disk when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.due: list[Any] = []

    def append(self, events, commands):
        super().append(events, commands)
        return self.due.append

    def sync(self) -> None:
        due, self.due = self.due, []
        for then in due:
            then()


def test_a_second_attempt_that_stops_in_the_moment_in_which_its_job_ends_frees_its_worker():
    executor, loop = session(2)
    graph, journal = flat(1), Slow()
    master = Master(graph, "j", Tuning(backups=True))
    master.core.policies[STRAGGLERS] = Once()
    loop.submit(JobRun("j", graph, master, journal))
    ((job, first),) = executor.launched
    master.core.policies[STRAGGLERS] = Once(BackUp(first.lease, "late"))
    (timer,) = master.core.timers
    loop.post("j", TimerFired(0.1, timer))
    second = executor.launched[-1][1]
    assert (second.backup_of, loop.pool.idle) == (first.lease, 0)
    loop.post("j", Done(0.2, first.lease, 1, 1.0))
    assert (job.outcome, loop.pool.idle) == (None, 1)
    loop.post_later("j", Failed(0.3, second.lease, 0, "a", 0, Failure.STOPPED, "stopped"))
    journal.sync()
    assert job.outcome == Complete("succeeded")
    assert loop.pool.idle == 2


def test_listeners_see_what_happened_and_what_came_of_it():
    executor, loop = session(1)
    job = JobRun("j", flat(1), Master(flat(1), "j"))
    seen: list[tuple[str, ...]] = []
    job.listen(lambda _, events, commands: seen.append(tuple(type(c).__name__ for c in commands)))
    loop.submit(job)
    finish_all(executor, loop)
    assert [names for names in seen if names] == [("Launch",), ("Complete",)]


def test_idle_ticks_go_to_jobs_that_have_leases():
    executor, loop = session(2)
    g = Graph("g")
    g.add(body, n=40, name="a")
    seen: list[object] = []
    graph = g.finish()
    job = JobRun("j", graph, Master(graph, "j"))
    job.listen(lambda _, events, commands: seen.extend(e for e in events if isinstance(e, IdleTick)))
    loop.submit(job)
    loop.idle_tick()
    assert not seen  # nobody is idle
    finish_all(executor, loop)
    loop.idle_tick()
    assert not loop.jobs


def test_an_idle_tick_while_a_tick_runs_is_none():
    executor, loop = session(2)
    g = Graph("g")
    g.add(body, n=40, name="a")
    seen: list[object] = []
    graph = g.finish()
    job = JobRun("j", graph, Master(graph, "j"))
    job.listen(lambda _, events, commands: seen.extend(e for e in events if isinstance(e, IdleTick)))
    loop.submit(job)
    while not (loop.pool.idle and any(lease.hi - lease.lo > 1 for lease in job.leases.values())):
        _, lease = executor.launched.pop(0)
        loop.post("j", Done(loop.clock.now(), lease.lease, lease.hi, 1e-6))

    def tick_elsewhere() -> None:  # it may not walk over the jobs meanwhile, which the tick adds and removes
        other = threading.Thread(target=loop.idle_tick)
        other.start()
        other.join()

    loop.between_ticks(tick_elsewhere)
    assert not seen
    loop.idle_tick()
    assert seen
    finish_all(executor, loop)


def test_reports_from_many_threads_are_all_seen_to():
    executor, loop = session(8)
    g = Graph("g")
    a = g.add(body, n=400, name="a")
    g.add(body, gather(a), n=1, name="b")
    graph = g.finish()
    job = JobRun("j", graph, Master(graph, "j"))
    lock = threading.Lock()

    def work() -> None:
        while not job.finished.is_set():
            with lock:
                pair = executor.launched.pop() if executor.launched else None
            if pair is None:
                job.finished.wait(0.0005)
                continue
            loop.post("j", Done(0.0, pair[1].lease, pair[1].hi, 1.0))

    threads = [threading.Thread(target=work) for _ in range(8)]
    loop.submit(job)
    for thread in threads:
        thread.start()
    assert job.finished.wait(180), "\n".join(job.master.inspector.story())
    for thread in threads:
        thread.join(180)
    assert job.outcome == Complete("succeeded")
    assert loop.pool.idle == 8


def test_a_simulated_session_of_jobs_that_come_and_go():
    sim = Simulator(workers=3, seconds=1.0)
    loop = Loop(sim, sim.clock)
    jobs = []
    for at, name in enumerate("abcdef"):
        graph = flat(5)
        job = JobRun(name, graph, Master(graph, name, sim.tuning))
        jobs.append(job)
        sim.at(at * 1.5, partial(loop.submit, job))
    sim.run()
    assert [job.outcome and job.outcome.state for job in jobs] == ["succeeded"] * 6
    assert loop.pool.idle == 3


def test_who_drains_hears_before_each_tick_but_the_first():
    g = Graph("chain")
    step = g.add(body, n=1, name="a")
    for name in "bcd":
        step = g.add(body, step, n=1, name=name)
    graph = g.finish()
    executor = RecordingExecutor(1, tuning=Tuning(cones=False), answers=False)
    loop = Loop(executor, ManualClock())
    job = JobRun("j", graph, Master(graph, "j", executor.tuning))
    loop.submit(job)
    ticks: list[str] = []

    def ends_at_once(*_: object) -> None:
        ticks.append("tick")
        if len(ticks) < 3:
            executor.done("j", next(iter(job.leases)))

    job.listen(ends_at_once)
    loop.post_later("j", IdleTick(0.0))
    loop.drain(lambda: ticks.append("heard"))
    assert ticks == ["tick", "heard", "tick"]
    ticks.clear()
    loop.drain(lambda: ticks.append("heard"))
    assert ticks == []


def later(loop: Loop, name: str, graph: LogicalGraph) -> JobRun:
    """Submit a job whose master is made by the loop."""
    job = JobRun(name, graph, Master)
    loop.submit(job)
    return job


def test_a_job_that_only_waits_for_a_worker_has_no_master_before_its_turn():
    executor, loop = session(1)
    jobs = [later(loop, name, flat(1)) for name in "abc"]
    assert [job.built for job in jobs] == [True, False, False]
    loop.worker_joined(WorkerSpec(5))
    assert [job.built for job in jobs] == [True, True, False]
    finish_all(executor, loop)
    assert [job.outcome for job in jobs] == [Complete("succeeded")] * 3
    assert [launch for _, launch in executor.told if launch.startswith("launch")] == [
        "launch a[0:1] on 0",
        "launch a[0:1] on 5",
        "launch a[0:1] on 0",
    ]
    assert (loop.pool.idle, loop.jobs) == (2, {})


def test_the_last_job_that_waits_begins_when_it_is_alone():
    executor, loop = session(1)
    first, second = later(loop, "a", flat(1)), later(loop, "b", flat(1))
    loop.suspend(first, drain=False)
    assert not second.built
    _, lease = executor.launched.pop(0)
    loop.post("a", Failed(0.0, lease.lease, 0, "a", 0, Failure.STOPPED, ""))
    finish_all(executor, loop)
    assert second.outcome == Complete("succeeded")


def test_a_question_about_a_waiting_job_is_answered_as_after_its_first_tick():
    executor, loop = session(1)
    later(loop, "a", flat(1))
    job = later(loop, "b", flat(3))
    seen: list[str] = []
    job.listen(lambda _, events, commands: seen.extend(type(event).__name__ for event in events))
    assert not job.built
    assert job.inspector.status is JobState.RUNNING
    assert [(row.id, row.n, row.finished) for row in job.inspector.view().vertices] == [("a", 3, 0)]
    assert [wait.text for wait in loop.waits(job, "a")]
    assert seen == []
    finish_all(executor, loop)
    assert job.outcome == Complete("succeeded")
    assert seen.count("JobSubmitted") == 1


@pytest.mark.parametrize("asked", [False, True])
def test_a_waiting_job_can_be_cancelled_and_suspended(asked):
    executor, loop = session(1)
    later(loop, "a", flat(1))
    one, two, three = (later(loop, name, flat(2)) for name in "xyz")
    if asked:
        assert [job.inspector.status for job in (one, two)] == [JobState.RUNNING] * 2
    loop.cancel(one, "enough")
    loop.suspend(two, drain=True)
    assert one.outcome is not None
    assert two.outcome is not None
    assert (one.outcome.state, one.outcome.message) == ("cancelled", "enough")
    assert (two.outcome.state, two.outcome.message) == ("cancelled", "suspended")
    finish_all(executor, loop)
    assert three.outcome == Complete("succeeded")
    assert loop.pool.idle == 1


@pytest.mark.parametrize(
    "fields",
    [{"resources": (Resources(cpu=0),)}, {"resources": (Resources(cpu=2),)}, {"cache_key": "k"}, {"n": 0}],
    ids=["unslotted", "two-cores", "cache", "empty"],
)
def test_a_job_that_can_do_more_than_wait_for_a_worker_begins_at_once(fields):
    _, loop = session(1)
    later(loop, "a", flat(1))
    assert later(loop, "b", flat(**({"n": 1} | fields))).built


def test_a_fault_in_the_first_events_ends_the_waiting_job_and_no_other():
    executor, loop = session(1)
    first = later(loop, "a", flat(1))

    class Broken(Master):
        def handle(self, events):
            raise ZeroDivisionError

    bad = JobRun("b", flat(1), Broken)
    loop.submit(bad)
    assert bad.outcome is None
    finish_all(executor, loop)
    assert first.outcome == Complete("succeeded")
    assert isinstance(bad.crash, ZeroDivisionError)
    assert bad.finished.is_set()
    assert loop.pool.idle == 1


def test_a_latch_ends_all_waits_and_times_out():
    latch = Latch()
    assert not latch.wait(0)
    assert not latch.wait(-1)
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(latch.wait(180))) for _ in range(3)]
    for thread in threads:
        thread.start()
    latch.set()
    latch.set()
    for thread in threads:
        thread.join(180)
    assert found == [True] * 3
    assert (latch.wait(), latch.wait(0), latch.is_set()) == (True, True, True)
