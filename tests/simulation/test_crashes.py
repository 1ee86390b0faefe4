"""Tasks that crash their workers, in virtual time: given up after three workers, and nothing else is lost."""

import random

import pytest

from tests.simulation.scenarios import work
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, gather
from weft.graph.logical import OnFailure
from weft.testing.graphs import random_graph
from weft.testing.trial import run_graph


@pytest.mark.parametrize("cones", [True, False])
@pytest.mark.parametrize("deadly", ["first", "second", "third"])
def test_a_deadly_task_ends_three_workers_wherever_it_stands_in_its_chain(cones, deadly):
    g = Graph("chain", on_failure=OnFailure.CONTINUE)
    first = g.add(work, n=40, name="first")
    g.add(work, g.add(work, first, name="second"), name="third")
    trial = run_graph(
        g,
        workers=3,
        deadly=lambda vertex, index: (vertex, index) == (deadly, 17),
        tuning=Tuning(target_s=5.0, cones=cones),
    )
    outcome = trial.job.outcome
    assert outcome is not None
    assert (outcome.state, outcome.task, outcome.kind) == ("failed", f"{deadly}[17]", "crash")
    assert "It has ended 3 different workers" in outcome.message
    assert trial.simulator.faults_made == 3
    last = next(stage for stage in trial.job.master.core.stages if stage.id == "third")
    assert last.finished == 39, "all other tasks end well"


def test_many_deadly_tasks_do_not_harm_the_others(seed):
    rng = random.Random(seed)
    deadly = set(rng.sample(range(200), 9))
    print(f"seed {seed}: {sorted(deadly)}")
    g = Graph("wide", on_failure=OnFailure.CONTINUE)
    g.add(work, gather(g.add(work, n=200, name="a")), n=1, name="b")
    trial = run_graph(
        g, workers=4, deadly=lambda vertex, index: vertex == "a" and index in deadly, tuning=Tuning(target_s=20.0)
    )
    assert trial.simulator.faults_made == 3 * len(deadly)
    assert next(stage for stage in trial.job.master.core.stages if stage.id == "a").finished == 200 - len(deadly)


def test_any_graph_ends_whichever_of_its_tasks_are_deadly(seed):
    for at in range(seed, seed + 40):
        rng = random.Random(at)
        graph = random_graph(rng)
        often = rng.choice([0.02, 0.2, 1.0])
        chosen: dict[tuple[str, int], bool] = {}
        print(f"seed {at}: {often}")
        run_graph(
            graph,
            workers=rng.randint(2, 5),
            deadly=lambda *task, chosen=chosen, rng=rng, often=often: chosen.setdefault(task, rng.random() < often),
            tuning=Tuning(target_s=rng.choice([0.5, 5.0, 50.0]), cones=rng.random() < 0.8),
        )
