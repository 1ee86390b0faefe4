"""The simulator keeps its word: times, speeds, faults by seed, and the same run again for the same seed."""

from functools import partial

import pytest

from weft.backends.simulator import Faults, Simulator
from weft.engine.master import Master
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, gather
from weft.graph.logical import OnFailure, Retry
from weft.runtime.job import JobRun
from weft.runtime.loop import Loop
from weft.testing.trial import random_trial, run_graph


def body(*inputs: object) -> object:
    return inputs


def chain(n: int = 1, length: int = 3) -> Graph:
    g = Graph("g")
    node = g.add(body, n=n, name="v0")
    for i in range(1, length):
        node = g.add(body, node, name=f"v{i}")
    return g


def two_levels(n: int) -> Graph:
    g = Graph("g")
    g.add(body, gather(g.add(body, n=n, name="a")), n=1, name="b")
    return g


ONE_BY_ONE = Tuning(target_s=0.0, cones=False)


@pytest.mark.parametrize(("workers", "end"), [(1, 9.0), (2, 5.0), (4, 3.0), (8, 2.0)])
def test_time_is_what_tasks_take(workers, end):
    trial = run_graph(two_levels(8), workers=workers, seconds=1.0, tuning=ONE_BY_ONE)
    assert trial.simulator.clock.time == end
    assert trial.simulator.leases == 9


def test_seconds_may_differ_by_task():
    trial = run_graph(two_levels(3), workers=3, seconds=lambda v, i: {"a": i + 1.0, "b": 0.5}[v], tuning=ONE_BY_ONE)
    assert trial.simulator.clock.time == 3.5


def test_a_cone_takes_as_long_as_its_tasks():
    trial = run_graph(chain(length=5), workers=1, seconds=2.0)
    assert (trial.simulator.leases, trial.simulator.clock.time) == (1, 10.0)
    trial = run_graph(chain(length=3), workers=1, seconds=lambda v, _: float(v[1:]) + 1)
    assert (trial.simulator.leases, trial.simulator.clock.time) == (1, 6.0)


def test_faster_workers_take_less_time():
    trial = run_graph(two_levels(1), workers=1, seconds=6.0, speeds=[3.0])
    assert trial.simulator.clock.time == 4.0


def test_what_is_held_is_counted():
    sim = run_graph(two_levels(8), workers=4, tuning=ONE_BY_ONE).simulator
    assert (sim.held_most, sim.held_now) == (9, 1)
    assert sim.held == {("trial", "a"): set(), ("trial", "b"): {0}}


def test_freeing_what_is_not_held_is_a_fault():
    sim = run_graph(two_levels(2)).simulator
    job = JobRun("trial", Graph("g"), Master(Graph("g")))
    sim.free(job, "b", 0, 1)
    with pytest.raises(AssertionError, match=r"b\[0\] is freed, but is not held"):
        sim.free(job, "b", 0, 1)


def run_with(faults: Faults, *, n: int = 40, retry: int = 50, **options) -> tuple[Simulator, JobRun]:
    g = Graph("g")
    a = g.add(body, n=n, name="a", retry=Retry(user=retry, memory=retry, infrastructure=retry))
    g.add(body, gather(a), n=1, name="b", retry=Retry(user=retry, memory=retry, infrastructure=retry))
    trial = run_graph(g, workers=4, faults=faults, tuning=Tuning(target_s=2.0), **options)
    return trial.simulator, trial.job


@pytest.mark.parametrize(
    "kind", ["user", "infrastructure", "worker_lost", "output_lost", "duplicate", "started", "give_back"]
)
def test_each_fault_happens_and_is_survived(kind, seed):
    sim, job = run_with(Faults(seed=seed, most=12, **{kind: 0.3}))
    assert job.outcome is not None
    assert job.outcome.state == "succeeded"
    if kind in ("user", "infrastructure", "worker_lost", "output_lost"):
        assert 0 < sim.faults_made <= 12


def test_faults_may_be_few():
    sim, _ = run_with(Faults(seed=1, user=1.0, most=3))
    assert sim.faults_made == 3


def test_a_lost_node_takes_its_outputs_with_it(seed):
    sim, job = run_with(Faults(seed=seed, worker_lost=0.2, node_lost=1.0, most=6), nodes=2)
    assert job.outcome is not None
    assert job.outcome.state == "succeeded"
    assert len(sim.workers()) == 4  # replaced


def signature(seed: int) -> list[tuple[str, ...]]:
    seen: list[tuple[str, ...]] = []
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    a = g.add(body, n=20, name="a", retry=Retry(user=2))
    g.add(body, gather(g.add(body, a, name="b")), n=3, name="c")
    graph = g.finish()
    sim = Simulator(
        workers=3,
        nodes=2,
        faults=Faults(seed=seed, user=0.1, worker_lost=0.1, output_lost=0.1, duplicate=0.1, give_back=0.3, most=20),
    )
    loop = Loop(sim, sim.clock)
    job = JobRun("j", graph, Master(graph, "j", sim.tuning))
    job.listen(lambda _, events, commands: seen.append(tuple(map(str, [*events, *commands]))))
    loop.submit(job)
    sim.run()
    return [tuple(part.split(" object at")[0] for part in record) for record in seen]


def test_a_seed_repeats_a_run_exactly(seed):
    assert signature(seed) == signature(seed)


def test_other_seeds_are_other_runs():
    assert len({str(signature(seed)) for seed in range(5)}) > 1


def test_time_stops_at_a_count_of_moments():
    sim = Simulator(workers=1)
    loop = Loop(sim, sim.clock)
    graph = two_levels(50).finish()
    job = JobRun("j", graph, Master(graph, "j", sim.tuning))
    loop.submit(job)
    sim.run(most_moments=5)
    assert job.outcome is None
    sim.run()
    assert job.outcome is not None


def test_events_planned_for_one_moment_happen_in_the_order_of_planning():
    sim = Simulator(workers=1)
    Loop(sim, sim.clock)
    seen: list[int] = []
    for number in (3, 1, 2):
        sim.at(5.0, partial(seen.append, number))
    sim.at(1.0, lambda: seen.append(0))
    sim.run()
    assert (seen, sim.clock.time) == ([0, 3, 1, 2], 5.0)


def test_ticks_gather_reports_and_change_no_result():
    exact = run_graph(two_levels(200), workers=8, seconds=lambda v, i: 1.0 + (i % 7) / 100, tuning=ONE_BY_ONE)
    ticked = run_graph(
        two_levels(200), workers=8, seconds=lambda v, i: 1.0 + (i % 7) / 100, tuning=ONE_BY_ONE, tick_s=0.05
    )
    assert exact.job.outcome == ticked.job.outcome
    assert ticked.simulator.clock.time <= exact.simulator.clock.time * 1.2


DISTURBED = {
    "nothing": lambda sim, loop, job: None,
    "a long lease is halved": lambda sim, loop, job: sim.shrink(job, max(job.leases)),
    "a worker is lost": lambda sim, loop, job: sim._lose(1),
    "it is cancelled": lambda sim, loop, job: loop.cancel(job, "enough"),
}


@pytest.mark.parametrize("what", DISTURBED)
def test_leases_that_nobody_keeps_account_of_end_as_others_do(what):
    def ran(*, track: bool, disturbed: str = what) -> tuple[object, ...]:
        tuning = Tuning(target_s=100.0, growth=64, cones=False)
        sim = Simulator(workers=3, seconds=lambda v, i: 1.0 + i % 7 / 100, tick_s=0.05, track=track, tuning=tuning)
        loop = Loop(sim, sim.clock)
        graph = two_levels(200).finish()
        job = JobRun("j", graph, Master(graph, "j", tuning))
        told: list[tuple[object, ...]] = []
        job.listen(lambda _, events, commands: told.append((*events[:-1], *map(type, commands))))
        loop.submit(job)
        sim.at(30.0, lambda: DISTURBED[disturbed](sim, loop, job))
        sim.run()
        assert job.outcome is not None
        assert loop.pool.idle == 3
        assert not job.leases
        return told, job.outcome, sim.clock.time, sim.leases, [bytes(s.state) for s in job.master.core.stages]

    assert ran(track=False) == ran(track=True)
    assert (what == "nothing") == (ran(track=False) == ran(track=False, disturbed="nothing"))


def test_leases_of_two_jobs_that_end_in_one_tick_end_as_others_do():
    def ran(*, track: bool) -> tuple[object, ...]:
        tuning = Tuning(target_s=100.0, growth=64, cones=False)
        sim = Simulator(workers=8, seconds=lambda v, i: 1.0 + i % 7 / 100, tick_s=0.05, track=track, tuning=tuning)
        loop = Loop(sim, sim.clock)
        told: dict[str, list[tuple[object, ...]]] = {"first": [], "second": []}
        jobs = []
        for name in told:
            graph = two_levels(100).finish()
            jobs.append(JobRun(name, graph, Master(graph, name, tuning)))
            jobs[-1].listen(lambda job, events, commands: told[job.id].append((*events, *map(type, commands))))
            loop.submit(jobs[-1])
        together = 0

        def see() -> None:
            nonlocal together
            together += all(job.leases for job in jobs)

        sim.at(10.0, see)
        sim.run()
        assert together  # else they ran one after the other
        assert loop.pool.idle == 8
        return told, [job.outcome for job in jobs], sim.clock.time, sim.leases

    assert ran(track=False) == ran(track=True)


def test_a_random_trial_is_one_of_its_seed(seed):
    first, second = random_trial(seed), random_trial(seed)
    assert first.job.outcome == second.job.outcome
    assert first.simulator.leases == second.simulator.leases
    assert first.simulator.clock.time == second.simulator.clock.time
