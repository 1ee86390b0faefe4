"""Control vertices in random jobs under random faults: whatever they ask for and whenever, the books balance."""

import os
import random
from functools import partial
from typing import Any

import pytest

from tests.simulation import world as module
from tests.simulation.scenarios import Scenario, random_scenario, work
from tests.simulation.world import World, loop_of, random_hardship, run_scenarios
from weft.backends.simulator import Faults
from weft.engine.core import Tuning
from weft.engine.events import UserEvent
from weft.graph.logical import CONCURRENT, NONE, Edge, Kind, Patch, Scheduling, Storage, Trigger, Vertex
from weft.graph.task import DECIDE, USAGE
from weft.graph.validate import validate
from weft.model.errors import GraphError
from weft.model.program import Program
from weft.model.resources import Resources

COUNT = {"fast": 5, "soak": 10_000}.get(os.environ.get("HYPOTHESIS_PROFILE", "ci"), 100)


def steered(rng: random.Random) -> Scenario:
    """Return a random scenario with a control vertex for some of its vertices."""
    scenario = random_scenario(rng)
    graph = scenario.graph
    others = [id for id, vertex in graph.vertices.items() if vertex.kind is Kind.FINITE]
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
        core = job.master.core
        mine = [link.dst.id for link in core.by_id["control"].outputs]
        target = rng.choice(mine) if rng.random() < 0.8 else rng.choice(list(core.by_id))
        needs = Resources(cpu=rng.choice([0, 1, 2]))
        token = f"{lease.lease}.{number}"
        name, payload = rng.choice(
            [
                (DECIDE, (token, "parallelism", target, rng.randint(0, 4), "")),
                (DECIDE, (token, "resources", target, (needs,), "")),
                (DECIDE, (token, "patch", "", self.dry_run(token, target), "a dry run")),
                (USAGE, {"memory": rng.random()}),
            ]
        )
        loop_of(self).post(job.id, UserEvent(self.clock.time, "control", 0, name, payload))
        if name == DECIDE:
            assert core.replies.pop(token, "the owner died") is not None

    def dry_run(self, token: str, target: str) -> Patch:
        id = f"control/{token}"
        edges = [Edge("control", id, NONE, CONCURRENT, Storage.NONE)]
        if self.random.random() < 0.3:
            edges.append(Edge(target, id, NONE, storage=Storage.NONE))
        return Patch((Vertex(id, Program(work), self.random.randint(1, 2)),), tuple(edges))


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
