"""Jobs whose controllers throw dice, under random faults: starts, stops, gangs, requests, deaths of the master."""

import os

from tests.simulation import world as worlds
from tests.simulation.controlled import Steady, random_game, suspended
from tests.simulation.test_deaths import dies_anywhere
from weft.testing.inside import core_of

COUNT = {"fast": 20, "soak": 20_000}.get(os.environ.get("HYPOTHESIS_PROFILE", "ci"), 75)


def run(seed: int, *, hard: bool = False) -> None:
    try:
        random_game(seed, hard=hard)
    except Exception as error:
        again = f"python -m tests.simulation.controlled {seed}" + (" hard" if hard else "")
        raise AssertionError(f"seed {seed}, replay with: {again}\n{error}") from error


def test_games_with_faults_of_workers_and_nodes(seed):
    for at in range(seed, seed + COUNT):
        run(at)


def test_games_with_deaths_of_the_master_and_a_bad_network(seed):
    for at in range(seed, seed + COUNT):
        run(at, hard=True)


def test_the_master_of_a_steady_job_dies_around_any_record(seed, monkeypatch):
    monkeypatch.setattr(worlds, "MANAGERS", {"steady": Steady})
    dies_anywhere(suspended, seed)


def test_games_do_much():
    """Tasks run more than once, gangs are granted and asked for again, and masters die."""
    jobs = [job for seed in range(40) for job in random_game(seed)[1]]
    cores = [core_of(job) for job in jobs]
    assert sum(max(stage.control.starts) > 1 for core in cores for stage in core.stages if stage.control) > 20
    words = [note.kind.word for core in cores for note in core.ring]
    assert words.count("bubble_granted") > 20
    assert words.count("requested") > 10
    assert words.count("control_decided") > 5
    assert sum(core.restarts for core in cores) > 20
    assert {job.outcome.state for job in jobs if job.outcome} == {"succeeded", "failed", "cancelled"}
    assert sum(random_game(seed, hard=True)[0].recoveries for seed in range(20)) > 5
