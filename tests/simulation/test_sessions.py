"""Sessions of random jobs under random faults: the ends are right, the books balance, and all slots come back.

Hard ones have a network that loses messages, workers that pause, full disks, and masters that are killed.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.scenarios import WORDS, Scenario, work
from tests.simulation.world import random_session, run_scenarios
from weft.engine.events import Done, JobSubmitted
from weft.engine.master import HANDLERS
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph

ROOT = Path(__file__).parents[2]

COUNT = {"fast": 2, "soak": 2_000}.get(os.environ.get("HYPOTHESIS_PROFILE", "ci"), 8)
KEPT = [
    (int(line.split()[0]), line.split()[1].removeprefix("hard/"), "hard/" in line.split()[1])
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]


def run(seed: int, words: str, *, hard: bool = False, policies: bool = False, users: bool = False) -> int:
    chosen = None if words == "-" else frozenset(filter(None, words.split(",")))
    try:
        return random_session(seed, words=chosen, hard=hard, policies=policies, users=users)[0].backups
    except Exception as error:
        again = f"python -m tests.simulation.world {seed} {words}" + (" hard" if hard else "")
        again += " twice" if policies else ""
        again += " users" if users else ""
        raise AssertionError(f"seed {seed}, replay with: {again}\n{error}") from error


@pytest.mark.parametrize("words", [",", *(f"{word}," for word in WORDS)])
def test_jobs_with_one_word_of_the_graph(words, seed):
    for at in range(seed, seed + COUNT):
        run(at, words)
        run(at, words, hard=True)


def test_jobs_with_any_words(seed):
    for at in range(seed, seed + 10 * COUNT):
        run(at, "-")


def test_hard_sessions(seed):
    for at in range(seed, seed + 10 * COUNT):
        run(at, "-", hard=True)


@pytest.mark.parametrize("words", ["-", ",", *(f"{word}," for word in WORDS)])
def test_jobs_whose_users_cancel_tasks_and_end_vertices(words, seed):
    for at in range(seed, seed + COUNT):
        run(at, words, users=True)
        run(at, words, hard=True, policies=at % 2 == 0, users=True)


@pytest.mark.parametrize("words", ["-", ",", *(f"{word}," for word in WORDS)])
def test_jobs_that_run_anything_twice(words, seed):
    for at in range(seed, seed + COUNT):
        run(at, words, policies=True)


def test_hard_sessions_that_run_anything_twice(seed):
    for at in range(seed, seed + 4 * COUNT):
        run(at, "-", hard=True, policies=True)


@pytest.mark.parametrize("seed", [477, 490])
def test_the_end_of_a_lease_that_a_job_did_not_wait_for_is_told_from_those_of_other_jobs(seed):
    run(seed, "-", hard=True, policies=True)


def test_what_a_stopped_lease_has_left_is_not_what_others_read():
    run(7140879, "-", hard=True, policies=True)


def test_sessions_run_much_twice():
    assert sum(run(seed, "-", policies=True) for seed in range(20)) > 20


@pytest.mark.parametrize(("seed", "words", "hard"), KEPT)
def test_seeds_that_once_found_a_fault(seed, words, hard):
    run(seed, words + "," if words != "-" else words, hard=hard)


def test_a_job_that_looks_again_and_again_for_what_does_not_come_does_not_end(monkeypatch):
    monkeypatch.setitem(HANDLERS, Done, lambda core, event: None)
    graph = Graph("g")
    graph.add(work, n=2, name="a")
    with pytest.raises(AssertionError, match="it does not end"):
        run_scenarios([Scenario(graph, frozenset())], checked=False, policies=1, tuning=Tuning(backups=True))


@pytest.mark.parametrize(("hard", "more"), [(False, ""), (True, " hard")])
def test_a_failure_names_its_seed_and_the_command_that_replays_it(hard, more):
    # The fault is one that this process brings along, so that the command finds nothing; it must run and tell all.
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a fault")

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HANDLERS, JobSubmitted, broken)
        with pytest.raises(AssertionError, match="a fault") as caught:
            run(7, "cache,", hard=hard)
    first = str(caught.value).splitlines()[0]
    assert first == f"seed 7, replay with: python -m tests.simulation.world 7 cache,{more}"
    command = first.partition("python ")[2].split()
    told = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "vertices" in told
    assert "now  job job0" in told
