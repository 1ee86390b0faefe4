"""Bad workers in virtual time: the job ends as if they were not there, and uses up nothing."""

import random
from typing import Any

import pytest

from tests.simulation.scenarios import work
from weft.engine.policy import BLAME
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, gather
from weft.graph.logical import Retry
from weft.policies.blame import NodeExclusion
from weft.testing.trial import Trial, run_graph

TASK_S = 1.0


def spread(tasks: int = 300, retries: int = 1) -> Graph:
    g = Graph("spread")
    g.add(work, gather(g.add(work, n=tasks, name="a", retry=Retry(infrastructure=retries))), n=1, name="b")
    return g


def run(graph: Graph, **simulator: Any) -> Trial:
    tuning = Tuning(target_s=0.5, shared_memory=simulator.get("nodes", 1) == 1)
    return run_graph(graph, managers={BLAME: NodeExclusion}, seconds=TASK_S, tuning=tuning, **simulator)


def took(trial: Trial) -> float:
    assert trial.job.outcome is not None
    assert trial.job.outcome.state == "succeeded", trial.job.outcome.message
    return trial.job.master.core.now


@pytest.mark.parametrize("often", [0.5, 1.0])
def test_a_worker_that_fails_costs_no_more_than_that_worker(often):
    without = took(run(spread(), workers=7))
    trial = run(spread(), workers=8, bad={3: often})
    assert took(trial) <= without + TASK_S
    attempts = [sum(tried) for stage in trial.job.master.core.stages for tried in (stage.attempts or {}).values()]
    assert max(attempts) == 1, "what failed there was tried elsewhere"
    assert len(attempts) < 10
    assert "avoided for 60 s: 4 tasks failed there, 0 on another worker" in "\n".join(
        trial.job.master.inspector.story("worker 3")
    )


def test_without_blame_it_uses_up_the_retries_of_a_task():
    trial = run_graph(spread(), seconds=TASK_S, tuning=Tuning(target_s=0.5), workers=8, bad={3: 1.0})
    assert trial.job.outcome is not None
    assert trial.job.outcome.state == "failed"


def test_a_third_may_be_bad():
    trial = run(spread(retries=3), workers=9, bad={0: 1.0, 4: 0.5, 8: 0.5})
    assert took(trial) <= took(run(spread(), workers=6)) + TASK_S
    assert len(trial.job.master.core.readmitted.keys() | trial.job.master.core.avoided.keys()) == 3


def test_more_than_a_third_only_cost_time():
    trial = run(spread(60, retries=8), workers=3, bad={0: 0.5, 1: 0.5})
    took(trial)
    assert len(trial.job.master.core.avoided) <= 1


def test_jobs_with_blame_end_under_any_faults(seed):
    for at in range(seed, seed + 20):
        rng = random.Random(at)
        workers, nodes = rng.randint(2, 9), rng.choice([1, 3])
        bad = {worker: rng.random() / 2 for worker in range(workers) if rng.random() < 0.4}
        graph = spread(rng.randint(1, 40), retries=1000)
        print(f"seed {at}: {workers} workers on {nodes} nodes, bad {bad}")
        took(run(graph, workers=max(workers, nodes), nodes=nodes, bad=bad))
