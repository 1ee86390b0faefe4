"""Restarts of roles on the simulator, with failures by seed."""

import pytest

from weft.backends.simulator import Faults
from weft.graph.builder import Graph, gather
from weft.graph.logical import Backoff, RestartPolicy, Retry
from weft.model.failures import RetryClass
from weft.testing.trial import Trial, run_graph


def body(*inputs: object) -> object:
    return inputs


def roles(seed: int, backoff: Backoff) -> Trial:
    g = Graph("roles", backoff=backoff)
    for name, n in (("chief", 1), ("worker", 8)):
        g.add(body, n=n, name=name, restart=RestartPolicy.ON_FAILURE, retry=Retry(user=0, memory=0, infrastructure=99))
    faults = Faults(seed=seed, user=0.3, memory=0.1, infrastructure=0.2, worker_lost=0.1, started=0.3)
    return run_graph(g, workers=4, faults=faults, seconds=5.0)


@pytest.mark.parametrize("number", range(10))
def test_roles_start_again_until_they_succeed(number):
    trial = roles(number, Backoff(delay_s=1.0))
    core = trial.job.master.core
    counted = [counts for stage in core.stages for counts in (stage.attempts or {}).values()]
    assert trial.job.outcome.state == "succeeded"
    assert core.restarts == sum(counts[RetryClass.USER] + counts[RetryClass.MEMORY] for counts in counted)


@pytest.mark.parametrize("number", range(10))
def test_a_job_fails_once_its_backoff_is_used_up(number):
    unlimited = roles(number, Backoff(delay_s=1.0)).job.master.core.restarts
    for limit in range(unlimited + 2):
        trial = roles(number, Backoff(limit=limit, delay_s=1.0))
        within = limit >= unlimited
        assert trial.job.outcome.state == ("succeeded" if within else "failed")
        assert trial.job.master.core.restarts == (unlimited if within else limit + 1)
        assert within or "used up" in trial.job.outcome.message


def test_pauses_are_kept():
    g = Graph("g", backoff=Backoff(delay_s=10.0))
    g.add(body, n=1, name="a", restart=RestartPolicy.ON_FAILURE)
    trial = run_graph(g, workers=1, faults=Faults(seed=1, user=1.0, most=3), seconds=1.0)
    assert trial.job.outcome.state == "succeeded"
    assert 70.0 < trial.simulator.clock.now() < 75.0  # 10, 20 and 40 seconds, and parts of four attempts


def test_a_service_that_runs_always_goes_on_until_its_consumer_has_ended():
    g = Graph("g", backoff=Backoff(delay_s=0.0))
    s = g.service(body, name="s", restart=RestartPolicy.ALWAYS)
    a = g.add(body, s, n=1, name="a")
    g.add(body, gather(a), n=1, name="b")
    trial = run_graph(g, workers=3, seconds=lambda vertex, _: 1.0 if vertex == "s" else 10.5)
    assert trial.job.outcome.state == "succeeded"
    assert trial.job.master.core.restarts == 10
