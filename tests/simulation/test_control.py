"""Control vertices in random jobs under random faults: whatever they ask for and whenever, the books balance."""

import os
import random
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.simulation import world as module
from tests.simulation.scenarios import Scenario, random_scenario, work
from tests.simulation.world import World, loop_of, random_hardship, run_scenarios
from weft.backends.simulator import Faults, Simulator
from weft.engine.commands import Reply
from weft.engine.events import UserEvent
from weft.engine.master import Master
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, controlled
from weft.graph.logical import CONCURRENT, NONE, Edge, Patch, Scheduling, Storage, Trigger, Vertex, VertexKind
from weft.graph.task import DECIDE, USAGE, VertexHistory
from weft.graph.validate import mark_results, validate
from weft.model.errors import GraphError
from weft.model.program import Program
from weft.model.resources import Resources
from weft.policies.sizing import ResourceOffer, most_used, sized
from weft.runtime.job import JobRun
from weft.runtime.loop import Loop
from weft.testing.inside import check_job, core_of

COUNT = {"fast": 5, "soak": 10_000}.get(os.environ.get("HYPOTHESIS_PROFILE", "ci"), 50)


def steered(rng: random.Random) -> Scenario:
    """Return a random scenario with a control vertex for some of its vertices."""
    scenario = random_scenario(rng)
    graph = scenario.graph
    others = [id for id, vertex in graph.vertices.items() if vertex.kind is VertexKind.FINITE]
    graph.control(work, name="control")
    for target in rng.sample(others, k=rng.randint(1, min(3, len(others)))):
        when = Scheduling(True, Trigger.EVENT, event="go") if rng.random() < 0.5 else CONCURRENT
        graph.edges.append(Edge("control", target, NONE, when, Storage.NONE, name=f"control-{target}"))
        try:
            validate(graph)
        except GraphError as error:
            if error.rule == "service-consumer":
                raise
            graph.edges.pop()
    if not any(edge.src == "control" for edge in graph.edges):
        del graph.vertices["control"]
    scenario.emits["control"] = ("go",)
    return scenario


class Steered(World):
    """A world whose control vertices ask for anything, at any moment of their lives."""

    def __init__(self, *scenarios: Any, **options: Any) -> None:
        super().__init__(*scenarios, **options)
        self.replied: set[str] = set()

    def launch(self, job: Any, lease: Any) -> None:
        super().launch(job, lease)
        if lease.vertex == "control":
            for number in range(self.random.randint(1, 5)):
                seconds = self.random.random() * 5
                self._later(seconds, partial(self.decide, job, lease, number))

    def decide(self, job: Any, lease: Any, number: int) -> None:
        if job.outcome is not None:
            return
        rng = self.random
        core = core_of(job)
        mine = [link.dst.id for link in core.by_id["control"].outputs]
        target = rng.choice(mine) if rng.random() < 0.8 else rng.choice(list(core.by_id))
        needs = Resources(cpu=rng.choice([0, 1, 2, 2, 1000]))  # no node has the last
        token = f"{lease.lease}.{number}"
        name, payload = rng.choice(
            [
                (DECIDE, (token, "parallelism", target, rng.randint(0, 4), "")),
                (DECIDE, (token, "resources", target, (needs,), "")),
                (DECIDE, (token, "patch", "", self.dry_run(token, target), "a dry run")),
                (USAGE, {"memory": rng.random()}),
            ]
        )
        alive = self.incarnation
        loop_of(self).post(job.id, UserEvent(self.clock.time, "control", 0, name, payload))
        if name == DECIDE:
            assert token in self.replied or alive != self.incarnation, "nobody replied"

    def reply(self, job: Any, reply: Reply) -> None:
        self.replied.add(reply.token)

    def dry_run(self, token: str, target: str) -> Patch:
        id = f"control/{token}"
        edges = [Edge("control", id, NONE, CONCURRENT, Storage.NONE)]
        if self.random.random() < 0.3:
            edges.append(Edge(target, id, NONE, storage=Storage.NONE))
        return Patch((Vertex(id, Program(work), self.random.randint(1, 2)),), tuple(edges))


BIG_GPU, SMALL_GPU = Resources(gpu=1, gpu_type="A100"), Resources(gpu=1, gpu_type="T4")


def trained(history: tuple[VertexHistory, ...]) -> float:
    """Return when four trainers have ended that ask for an A100 each, of which there is one, beside four T4."""
    graph = Graph("training")
    graph.task(work, controlled(graph.control(work, name="control")), n=4, name="train", resources=BIG_GPU)
    sim = Simulator(
        8,
        nodes=2,
        seconds=lambda vertex, _: 1000.0 if vertex == "control" else 10.0,
        capacity=(Resources(cpu=4, gpu=1, gpu_type="A100"), Resources(cpu=4, gpu=4, gpu_type="T4")),
        check=check_job,
    )
    said: list[Reply] = []
    sim.reply = lambda job, reply: said.append(reply)  # type: ignore[method-assign]
    loop = Loop(sim, sim.clock)
    mark_results(graph)
    validate(graph, loop.pool.capacity())
    job = JobRun("trial", graph, Master(graph, "trial", sim.tuning))

    def steer() -> None:
        """Do as a control vertex does."""
        usage = most_used(history)
        if usage:
            offers = [ResourceOffer(BIG_GPU, 80e9, 5.0, 5.0), ResourceOffer(SMALL_GPU, 16e9)]
            payload = ("token", "resources", "train", sized(usage, offers[0], offers), "history")
            loop.post(job.id, UserEvent(sim.clock.time, "control", 0, DECIDE, payload))
            assert said == [Reply("token", "")]
        loop.post(job.id, UserEvent(sim.clock.time, "control", 0, "ready"))

    ends: list[float] = []
    loop.submit(job)
    sim.at(1.0, steer)
    job.listen(lambda *_: ends.append(sim.clock.time) if job.outcome is not None else None)
    sim.run()
    assert job.outcome is not None
    assert job.outcome.state == "succeeded"
    return ends[0]


def test_the_type_of_gpu_that_history_says_is_enough_is_taken():
    past = VertexHistory("train", 0.0, 4, 10.0, 0.0, 0, (BIG_GPU,), {"gpu_memory": 6e9, "gpu_busy": 0.15})
    assert trained(()) == 41.0  # one after the other
    assert trained((past,)) == 11.0
    assert trained((replace(past, usage={"gpu_memory": 30e9, "gpu_busy": 0.15}),)) == 41.0


def trial(seed: int, *, hard: bool) -> None:
    rng = random.Random(seed)
    scenario = steered(rng)
    faults = Faults(
        seed=seed,
        worker_lost=rng.choice([0.0, 0.1]),
        user=rng.choice([0.0, 0.1]),
        output_lost=rng.choice([0.0, 0.1]),
        started=rng.choice([0.0, 0.3]),
        most=rng.choice([1, 10]),
    )
    run_scenarios(
        [scenario],
        cancel_at=[rng.choice([None, None, None, rng.random() * 10])],
        workers=rng.randint(2, 6) + scenario.most_served,
        seconds=lambda vertex, _: (0.01, 1.0, 3.0)[ord(vertex[-1]) % 3],
        faults=faults,
        tuning=Tuning(target_s=rng.choice([0.5, 5.0]), cones=rng.random() < 0.8),
        **(random_hardship(random.Random(f"hard {seed}")) if hard else {}),
    )


@pytest.mark.parametrize("hard", [False, True])
def test_random_jobs_with_a_control_vertex(hard, seed, monkeypatch):
    monkeypatch.setattr(module, "World", Steered)
    for at in range(seed, seed + COUNT):
        try:
            trial(at, hard=hard)
        except Exception as error:
            raise AssertionError(f"seed {at}, hard {hard}\n{error}") from error
