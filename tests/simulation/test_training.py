"""Training jobs in virtual time: all kinds and policies, users' requests, faults, and deaths of the master."""

import os
from functools import partial

import pytest

from tests.simulation.scenarios import Scenario
from tests.simulation.test_deaths import dies_anywhere
from tests.simulation.training import Behaviour, DyingYard, Plan, Yard, expect_ended, random_training
from tests.simulation.world import live
from weft.backends.simulator import Faults
from weft.engine.invariants import check
from weft.engine.tuning import Tuning
from weft.frontends.training.controller import Reconciled
from weft.frontends.training.schema import (
    EXIT_CODE,
    NEVER,
    ON_FAILURE,
    Container,
    JobFile,
    PodTemplate,
    ReplicaSpec,
    RunPolicy,
    TrainingJob,
)
from weft.testing.inside import core_of

SOAK = os.environ.get("HYPOTHESIS_PROFILE", "ci") == "soak"
COUNT = 20_000 if SOAK else 100
DEATHS = 50_000 if SOAK else 500


def run(seed, *, hard=False):
    try:
        return random_training(seed, hard=hard)
    except Exception as error:
        again = f"python -m tests.simulation.training {seed}" + (" hard" if hard else "")
        raise AssertionError(f"seed {seed}, replay with: {again}\n{error}") from error


def test_jobs_of_all_kinds_end_through_faults_and_requests(seed):
    for at in range(seed, seed + COUNT):
        run(at)


def test_jobs_end_though_the_master_dies_at_many_random_moments(seed):
    deaths, at = 0, seed
    while deaths < DEATHS:
        deaths += run(at, hard=True)[0].recoveries
        at += 1


def job(kind, policy=NEVER, *, limit=None, clean=None, **replicas):
    """Return a job whose replicas hold one core each."""
    names = {"ps": "PS"}
    container = Container(name="main", image="any", command=("train",), requests={"cpu": 1.0})
    template = PodTemplate(containers=(container,))
    specs = {
        names.get(type, type.capitalize()): ReplicaSpec(template=template, replicas=n, restart_policy=policy)
        for type, n in replicas.items()
    }
    limits = RunPolicy(backoff_limit=limit, clean_pod_policy=clean)
    return TrainingJob(kind=kind, name="job", replicas=specs, policy=limits)


SMALL = {
    "workers": (job("TFJob", worker=2), {}),
    "a parameter server that must be stopped": (job("TFJob", chief=1, ps=1, worker=1), {"ps": Behaviour(0.0)}),
    "restarts in place": (
        job("PyTorchJob", ON_FAILURE, limit=3, master=1, worker=1),
        {"master": Behaviour(1.0, (1,)), "worker": Behaviour(1.0, (2, 3))},
    ),
    "created again": (job("JAXJob", EXIT_CODE, limit=2, worker=2), {"worker": Behaviour(1.0, (130,), stop_s=2.0)}),
    "past its limit": (job("PyTorchJob", ON_FAILURE, limit=1, master=1), {"master": Behaviour(1.0, (1, 1, 1))}),
    "failed": (job("XGBoostJob", clean="All", master=1, worker=1), {"worker": Behaviour(0.5, (3,), stop_s=1.0)}),
}


@pytest.mark.parametrize("name", SMALL)
def test_the_master_of_a_small_job_dies_around_any_record(name, seed):
    one, behaviours = SMALL[name]
    plan = Plan(
        files=JobFile(jobs=(one,)), behaviours=lambda vertex, index: behaviours.get(vertex, Behaviour(1.0, stop_s=0.5))
    )
    worlds = []

    def world_of(*given, **options):
        worlds.append(DyingYard(plan, *given, **options))
        return worlds[-1]

    dies_anywhere(partial(Scenario, plan.graph, frozenset()), seed, most=10_000, world_of=world_of)
    assert len(worlds) > 10
    for world in worlds:
        (found,) = world.jobs.values()
        expect_ended(world, found)


@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob"])
def test_a_job_that_is_scaled_beyond_its_machine_goes_on_as_it_was(kind, seed):
    decides = {"master": 1} if kind == "PyTorchJob" else {"chief": 1}
    plan = Plan(files=JobFile(jobs=(job(kind, worker=1, **decides),)), behaviours=lambda vertex, index: Behaviour(20.0))
    world = Yard(
        {"job0": Scenario(plan.graph, frozenset())},
        check=check,
        workers=4,
        nodes=1,
        faults=Faults(seed=seed),
        tuning=Tuning(target_s=5.0, shared_memory=True),
    )
    world.take(plan)
    for at, count in ((1.0, 2), (5.0, 9)):
        world.at(at, partial(world.want, "job0", "scale", {"worker": count}))
    _, (found,) = live(world)
    expect_ended(world, found)
    assert found.outcome.state == "succeeded", found.outcome
    assert world.last.scale == {"worker": 2}
    assert [event[3] for event in world.last.events if event[2] == "Warning"] == ["ScaleRefused"]


def test_the_jobs_do_much():
    """Jobs succeed and fail, replicas fail and are tried again, gangs wait, users pause jobs."""
    runs = [random_training(seed) for seed in range(150)]
    jobs = [job for _, found in runs for job in found]
    assert {job.outcome.state for job in jobs if job.outcome} >= {"succeeded", "failed"}
    assert sum(sum(world.retries.values()) for world, _ in runs) > 20
    words = [note.kind.word for job in jobs for note in core_of(job).ring]
    assert words.count("bubble_granted") > 20
    assert words.count("requested") > 20
    assert all(isinstance(world.last, Reconciled) for world, _ in runs)
