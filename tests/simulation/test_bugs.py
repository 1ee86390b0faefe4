"""Planted bugs: each is found by the simulation's checkers within a bounded number of seeds."""

import pytest

from tests.simulation.bugs import BUGS, Bug, planted
from tests.simulation.world import random_session

SEEDS = 300
"""Within how many sessions each bug must be found."""


def test_there_are_enough_of_them():
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 24


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name.replace(" ", "-") for bug in BUGS])
def test_a_planted_bug_is_found(bug: Bug):
    words = None if bug.words == "-" else frozenset(filter(None, bug.words.split(",")))
    with planted(bug):
        for seed in range(SEEDS):
            try:
                random_session(seed, words=words, hard=bug.hard, policies=bug.policies)
            except Exception:  # noqa: BLE001
                return
    pytest.fail(f"{SEEDS} sessions ran as if nothing were wrong, although: {bug.name}")
