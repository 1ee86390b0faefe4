"""Cluster-hours of whole jobs under all faults at once: none lost, none doubled, none wrong, none stuck."""

import os

import pytest

from tests.simulation.hours import run, session

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
HOURS = {"fast": 0.2, "soak": 100.0}.get(PROFILE, 2.0)
FIRST = 1_000_000
"""The first seed in CI: what a change must pass is the same each time."""


def test_hours_of_clusters_under_faults(seed):
    told, wrong = run(HOURS, seed if PROFILE == "soak" else FIRST)
    assert not wrong, "\n".join(wrong)
    assert told["cluster_hours"] >= HOURS
    assert told["faults"]
    assert told["messages_lost"]
    assert told["second_attempts"]
    assert told["deaths_of_the_owner"]


@pytest.mark.parametrize(("seed", "more"), [(7, ""), (6, " twice")])
def test_a_failure_says_what_it_is_and_how_to_repeat_it(seed, more, monkeypatch):
    from collections import Counter

    from tests.simulation import hours

    def broken(seed, **_):
        raise AssertionError(f"a[{seed}] runs without its input b[0]")

    monkeypatch.setattr(hours, "random_session", broken)
    sums: Counter[str] = Counter()
    told = session(seed, sums)
    assert told.startswith(f"seed {seed}, replay with: python -m tests.simulation.world {seed} - hard{more}\n")
    assert sums == {"lost": 1}
