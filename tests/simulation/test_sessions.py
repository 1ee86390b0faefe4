"""Sessions of random jobs under random faults: the ends are right, the books balance, and all slots come back."""

import os
from pathlib import Path

import pytest

from tests.simulation.scenarios import WORDS
from tests.simulation.world import random_session

COUNT = {"fast": 2, "soak": 2_000}.get(os.environ.get("HYPOTHESIS_PROFILE", "ci"), 25)
KEPT = [
    (int(line.split()[0]), line.split()[1], " ".join(line.split()[2:]))
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]


def run(seed: int, words: str) -> None:
    chosen = None if words == "-" else frozenset(filter(None, words.split(",")))
    try:
        random_session(seed, words=chosen)
    except Exception as error:
        again = f"python -m tests.simulation.world {seed}" + ("" if chosen is None else f" {words}")
        raise AssertionError(f"seed {seed}, replay with: {again}\n{error}") from error


@pytest.mark.parametrize("words", [",", *(f"{word}," for word in WORDS)])
def test_jobs_with_one_word_of_the_graph(words, seed):
    for at in range(seed, seed + COUNT):
        run(at, words)


def test_jobs_with_any_words(seed):
    for at in range(seed, seed + 10 * COUNT):
        run(at, "-")


@pytest.mark.parametrize(("seed", "words", "found"), KEPT, ids=[f"{seed}-{words}" for seed, words, _ in KEPT])
def test_seeds_that_once_found_a_fault(seed, words, found):
    run(seed, words + "," if words != "-" else words)


def test_a_failure_names_its_seed_and_the_command_that_replays_it(monkeypatch, capsys):
    from tests.simulation import test_sessions, world

    def broken(seed, **_):
        raise ValueError("a fault")

    monkeypatch.setattr(test_sessions, "random_session", broken)
    with pytest.raises(
        AssertionError, match=r"seed 7, replay with: python -m tests.simulation.world 7 cache,\na fault"
    ):
        run(7, "cache,")
    monkeypatch.undo()
    world.main(["7", "cache,"])
    told = capsys.readouterr().out
    assert "vertices" in told
    assert "now  job job0" in told
