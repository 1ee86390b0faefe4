"""Whole jobs, each with one fault at every moment at which it can happen."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.simulation.scenarios import Scenario, work
from tests.simulation.world import World, _WatchedLoop, expect_clean, expect_idle, loop_of, run_scenarios
from weft.backends.simulated_cluster import Network
from weft.backends.simulator import Faults
from weft.engine.events import Failed, OutputLost
from weft.engine.invariants import check
from weft.engine.machines.task import TaskState
from weft.engine.master import Master
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, after, gather, one_to_one, shuffle
from weft.graph.logical import Edge, OnFailure, Patch, Source, Storage, Vertex, VertexKind
from weft.model.failures import Failure
from weft.model.program import Program
from weft.model.resources import Resources
from weft.runtime.job import JobRun


def tree() -> Scenario:
    g = Graph("tree")
    g.reduce(work, g.add(work, g.add(work, n=8, name="a"), name="b"), arity=2, name="root")
    return Scenario(g, frozenset())


def exchange() -> Scenario:
    g = Graph("exchange")
    left = g.add(work, n=3, name="left")
    right = g.add(work, n=2, name="right")
    joined = g.add(work, shuffle(left, 4), shuffle(right, 4), n=4, name="join")
    g.add(work, gather(joined), n=1, name="total")
    return Scenario(g, frozenset())


def stream() -> Scenario:
    g = Graph("stream")
    read = g.add(work, n=2, name="read")
    parse = g.add(work, read, name="parse")
    keep = g.add(work, one_to_one(parse, concurrent=True, storage=Storage.EPHEMERAL), n=2, name="filter")
    g.add(work, gather(keep), n=1, name="report")
    g.bubble(parse, keep)
    return Scenario(g, frozenset())


def served() -> Scenario:
    g = Graph("served")
    ps = g.service(work, n=1, name="ps")
    train = g.add(work, ps, n=2, name="train")
    g.add(work, after(train), n=1, name="export")
    return Scenario(g, frozenset(), most_served=1)


def grown() -> Scenario:
    """A width, a choice and a patch, one after another."""
    g = Graph("grown")
    plan = g.add(work, n=1, name="plan", expands=True)
    load = g.add(work, gather(plan), n=Source("plan"), name="load")
    ask = g.add(work, gather(load), n=1, name="ask")
    small = g.add(work, gather(load), after(ask), n=1, name="small")
    large = g.add(work, shuffle(load), after(ask), n=3, name="large")
    g.choice(ask, small=small, large=large)
    more = g.add(work, gather(small), gather(large), n=1, name="more", expands=True)
    g.add(work, after(more), n=1, name="end")

    def patch() -> Patch:
        return Patch(
            (Vertex("more/a", Program(work), 2), Vertex("more/b", Program(work), 1)),
            (
                Edge("more", "more/a", gather(more).movement),
                Edge("more/a", "more/b", gather(more).movement),
                Edge("more/b", "end", gather(more).movement),
            ),
        )

    return Scenario(g, frozenset(), {"plan": lambda: 3, "ask": lambda: "large", "more": patch})


JOBS = [tree, exchange, stream, served, grown]
Fault = Callable[[World, JobRun, Any], None]


class OneFault(World):
    """Does something at one launch, the `at`-th."""

    def __init__(self, scenario: Scenario, at: int, fault: Fault, **simulator: Any) -> None:
        super().__init__({"job0": scenario}, check=check, **simulator)
        self.at_launch = at
        self.fault = fault

    def launch(self, job, lease):
        """See `World.launch`."""
        super().launch(job, lease)
        if self.leases == self.at_launch:
            self.at(self.clock.time + 0.5, lambda: self.fault(self, job, lease))


def run(make: Callable[[], Scenario], at: int, fault: Fault, **options: Any) -> tuple[OneFault, JobRun]:
    scenario = make()
    world = OneFault(scenario, at, fault, workers=5, seconds=1.0, **{"nodes": 1, "tuning": None, **options})
    loop = _WatchedLoop(world, world.clock)
    loop.world = world
    graph = scenario.graph.finish()
    job = JobRun("job0", graph, Master(graph, "job0", world.tuning))
    loop.submit(job)
    world.run(most_moments=100_000)
    if job.crash is not None:
        raise job.crash
    assert job.outcome is not None, "it did not end:\n" + "\n".join(job.master.inspector.story())
    expect_clean(world, job)
    expect_idle(world)
    return world, job


def nothing(world: World, job: JobRun, lease: Any) -> None:
    """No fault."""


def moments(make: Callable[[], Scenario], **options: Any) -> range:
    world, job = run(make, 0, nothing, **options)
    assert job.outcome is not None
    assert job.outcome.state == "succeeded"
    return range(1, world.leases + 1)


def succeeded(make: Callable[[], Scenario], fault: Fault, **options: Any) -> None:
    for at in moments(make, **options):
        _, job = run(make, at, fault, **options)
        assert job.outcome is not None
        assert job.outcome.state == "succeeded", f"with the fault at launch {at}: {job.outcome}"


@pytest.mark.parametrize("make", JOBS)
@pytest.mark.parametrize("cones", [True, False])
def test_a_worker_dies_at_any_moment(make, cones):
    def die(world: World, job: JobRun, lease: Any) -> None:
        if lease.worker in {spec.worker for spec in world.workers()}:
            world._lose(lease.worker)

    succeeded(make, die, tuning=Tuning(target_s=0.5, cones=cones))


@pytest.mark.parametrize("make", JOBS)
def test_a_node_dies_at_any_moment(make):
    def die(world: World, job: JobRun, lease: Any) -> None:
        world.faults.node_lost = 1.0
        if lease.worker in {spec.worker for spec in world.workers()}:
            world._lose(lease.worker)

    succeeded(make, die, nodes=2)


@pytest.mark.parametrize("make", JOBS)
def test_any_output_is_lost_at_any_moment(make):
    for at in moments(make):
        for which in range(6):

            def lose(world: World, job: JobRun, lease: Any, which: int = which) -> None:
                held = sorted((v, i) for (_, v), indices in world.held.items() for i in indices)
                if job.outcome is None and which < len(held):
                    vertex, index = held[which]
                    world.held[(job.id, vertex)].discard(index)
                    world.held_now -= 1
                    loop_of(world).post(job.id, OutputLost(world.clock.time, vertex, index, index + 1, "gone"))

            _, job = run(make, at, lose)
            assert job.outcome is not None
            assert job.outcome.state == "succeeded", f"output {which} lost at launch {at}: {job.outcome}"


@pytest.mark.parametrize("make", JOBS)
def test_it_is_cancelled_at_any_moment(make):
    for at in moments(make):
        _, job = run(make, at, lambda world, job, _: loop_of(world).cancel(job, "enough"))
        assert job.outcome is not None
        assert job.outcome.state in ("cancelled", "succeeded")


@pytest.mark.parametrize("make", JOBS)
@pytest.mark.parametrize("on_failure", list(OnFailure))
def test_any_task_fails_for_good(make, on_failure):
    def failing() -> Scenario:
        scenario: Scenario = make()
        scenario.graph.on_failure = on_failure
        return scenario

    for at in moments(failing):

        def fail(world: World, job: JobRun, lease: Any) -> None:
            run = job.backend.get(lease.lease)
            if run is None or run.gone:
                return
            world._over(run)
            vertex, index = lease.vertex, lease.lo
            if lease.cone is not None:
                vertex, index = next(lease.cone.tasks(lease.lo))
            loop_of(world).post(
                job.id, Failed(world.clock.time, lease.lease, lease.lo, vertex, index, Failure.USER, "bad")
            )

        _, job = run(failing, at, fail)
        assert job.outcome is not None
        assert job.outcome.state == "failed", f"a task of launch {at} failed: {job.outcome}"
        assert job.outcome.message == "bad"
        core = job.master.core
        assert any(TaskState.FATAL in stage.state for stage in core.stages)
        if on_failure is OnFailure.CONTINUE:
            cut = {
                s.id for s in core.stages if s.state.count(TaskState.CANCELLED) and s.vertex.kind is VertexKind.FINITE
            }
            assert not cut, "nobody is cancelled when the others go on"


@pytest.mark.parametrize("make", JOBS)
def test_every_report_comes_twice(make):
    class Twice(_WatchedLoop):
        def post_later(self, job, *events):
            super().post_later(job, *events)
            super().post_later(job, *events)

    scenario = make()
    world = OneFault(scenario, 0, nothing, workers=5, seconds=1.0)
    loop = Twice(world, world.clock)
    loop.world = world
    graph = scenario.graph.finish()
    job = JobRun("job0", graph, Master(graph, "job0", world.tuning))
    loop.submit(job)
    world.run(most_moments=100_000)
    assert job.outcome is not None
    assert job.outcome.state == "succeeded"
    expect_clean(world, job)


def test_only_what_is_needed_is_run_again():
    # Workers die while the last level runs: of the tree below it, at most what they held is made again.
    def die(world: World, job: JobRun, lease: Any) -> None:
        if lease.worker in {spec.worker for spec in world.workers()}:
            world._lose(lease.worker)

    for at in moments(tree, tuning=Tuning(target_s=0.5, cones=False)):
        world, _ = run(tree, at, die, tuning=Tuning(target_s=0.5, cones=False))
        assert world.leases <= len(moments(tree, tuning=Tuning(target_s=0.5, cones=False))) + 1


@pytest.mark.parametrize("network", [None, Network()], ids=["pipes", "network"])
@pytest.mark.parametrize(("workers", "cores"), [(3, 2), (4, 3), (5, 3), (6, 5)])
def test_a_service_of_several_cores_leaves_the_others_to_those_that_it_serves(network, workers, cores):
    g = Graph("served")
    ps = g.service(work, name="ps", resources=(Resources(cpu=cores),))
    train = g.add(work, ps, n=8, name="train")
    g.add(work, after(train), n=1, name="export")
    tuning = Tuning(target_s=0.5)
    _, (job,) = run_scenarios([Scenario(g, frozenset())], workers=workers, tuning=tuning, network=network)
    assert job.outcome is not None
    assert job.outcome.state == "succeeded"


def halves() -> Scenario:
    """Who reads `a` starts when half of it is done; the other half may take 4 s."""
    g = Graph("halves", on_failure=OnFailure.CONTINUE)
    a = g.add(work, n=2, name="a", timeout_s=4.0)
    g.add(work, gather(a, fraction=0.5), name="b")
    return Scenario(g, frozenset())


SLOW = {("a", 0): 1.0, ("a", 1): 3.95, ("b", 0): 60.0}
"""Seconds: a[1] is in time, and the report of that, which the network takes a while for, is not."""


@pytest.mark.parametrize("deaths", [0.0, 1e-9], ids=["memory", "journal"])
def test_what_ended_when_it_was_told_that_its_time_is_up_counts_for_who_reads_as_it_is_made(deaths):
    seconds = lambda vertex, index: SLOW[vertex, index]  # noqa: E731
    network = Network(latency_s=0.1)
    _, (job,) = run_scenarios([halves()], workers=3, seconds=seconds, network=network, deaths=deaths)
    assert job.outcome is not None
    assert job.outcome.state == "succeeded", job.outcome.message
    assert job.master.core.by_id["b"].state[0] == TaskState.FINISHED


@pytest.mark.parametrize("index", [0, 1])
def test_what_counts_is_not_freed_beside_who_reads_as_it_is_made(index):
    world = World({"job0": halves()}, workers=3, seconds=lambda vertex, index: min(3.0, SLOW[vertex, index]))
    loop = _WatchedLoop(world, world.clock)
    loop.world = world
    world.at(0.0, partial(world.submit, "job0"))
    world.at(3.5, lambda: world.free(world.jobs["job0"], "a", index, index + 1))
    with pytest.raises(AssertionError, match=rf"a\[{index}\] is freed while b\[0\] reads it"):
        world.run()


@pytest.mark.parametrize(("cpu", "slots"), [(1, 4), (0, 3)])
def test_a_service_that_takes_all_workers_is_told_of(cpu, slots):
    g = Graph("served")
    service = g.service(work, name="ps", resources=(Resources(cpu=3),))
    g.add(work, service, n=2, name="train", resources=(Resources(cpu=cpu),))
    _, (job,) = run_scenarios([Scenario(g, frozenset())], workers=slots - 1)
    assert job.outcome is not None
    assert (job.outcome.kind, job.outcome.message) == (
        "capacity",
        f"train and its services need {slots} slots at once; the session has {slots - 1}",
    )


def test_a_small_job_does_not_wait_for_a_large_one():
    large, small = Graph("large"), Graph("small")
    large.add(work, n=400, name="a")
    small.add(work, n=4, name="a")
    world = World(
        {"large": Scenario(large, frozenset()), "small": Scenario(small, frozenset())}, workers=4, seconds=1.0
    )
    loop = _WatchedLoop(world, world.clock)
    loop.world = world
    ends: dict[str, float] = {}

    def ended(job: JobRun, *_: object) -> None:
        if job.outcome:
            ends.setdefault(job.id, world.clock.time)

    for name, graph, at in (("large", large, 0.0), ("small", small, 10.0)):
        job = JobRun(name, graph.finish(), Master(graph, name, world.tuning))
        job.listen(ended)
        world.at(at, partial(loop.submit, job))
    world.run()
    assert ends["small"] <= 10.0 + 4.0
    assert ends["large"] <= 105.0


def test_a_large_job_with_faults_ends_in_time():
    g = Graph("large")
    a = g.add(work, n=2_000, name="a")
    b = g.add(work, shuffle(g.add(work, a, name="b"), 200), n=200, name="c")
    g.reduce(work, b, arity=8)
    world = World(
        {"job0": Scenario(g, frozenset())},
        workers=40,
        nodes=4,
        seconds=1.0,
        tuning=Tuning(target_s=4.0, shared_memory=False),
        faults=Faults(seed=5, worker_lost=0.02, node_lost=0.2, infrastructure=0.02, output_lost=0.01, most=60),
    )
    loop = _WatchedLoop(world, world.clock)
    loop.world = world
    graph = g.finish()
    job = JobRun("job0", graph, Master(graph, "job0", world.tuning))
    loop.submit(job)
    world.run()
    assert job.outcome is not None
    assert job.outcome.state == "succeeded"
    assert world.faults_made > 20
    assert world.clock.time < 3 * 4_400 / 40  # what is lost is made again, and no more than that
    check(job.master.core)
    expect_clean(world, job)
