"""Who is late, who is only large, and how many second attempts there are at a time."""

from typing import Any

import pytest
from msgspec.structs import replace

from weft.engine.decisions import BackUp, WeighTasks
from weft.engine.policy import AttemptView, WatchView
from weft.model.errors import GraphError
from weft.policies.stragglers import Stragglers


def attempt(lease: int = 1, **fields: Any) -> AttemptView:
    usual = AttemptView(lease, "a", lease, lease + 1, lease, 90, 100, 1.0, 1.0, backed=False, backups=0)
    return replace(usual, **fields)


def looks(policy: Stragglers, *looks_at: tuple[float, list[AttemptView]], workers: int = 16, backups: int = 0):
    """What the policy decides at the last of several looks."""
    memo = None
    for now, attempts in looks_at:
        decisions, memo = policy.decide(WatchView(now, workers, backups, tuple(attempts)), memo)
    return decisions


def test_what_takes_twice_as_long_as_usual_is_late():
    assert looks(Stragglers(), (0, [attempt()]), (2.0, [attempt()])) == []
    (backup,) = looks(Stragglers(), (0, [attempt()]), (2.1, [attempt()]))
    assert backup == BackUp(1, "2.1 s, 1 s are usual")


def test_what_reads_more_may_take_longer():
    large = attempt(weight=5.0)
    assert looks(Stragglers(), (0, [large]), (9.9, [large])) == []
    (backup,) = looks(Stragglers(), (0, [large]), (10.1, [large]))
    assert "5 times the usual bytes" in backup.reason


def test_what_reads_less_is_not_hurried():
    assert looks(Stragglers(), (0, [attempt(weight=0.1)]), (1.9, [attempt(weight=0.1)])) == []


def test_what_seems_late_is_weighed_before():
    unknown = attempt(weight=0.0)
    assert looks(Stragglers(), (0, [unknown]), (2.1, [unknown])) == [WeighTasks(1)]


def test_short_tasks_get_the_floor():
    short = attempt(seconds=0.001)
    assert looks(Stragglers(floor_s=0.5), (0, [short]), (0.4, [short])) == []
    assert looks(Stragglers(floor_s=0.5), (0, [short]), (0.6, [short])) != []


def test_a_wide_lease_may_take_as_long_as_its_tasks():
    lease = attempt(hi=11, seconds=10.0)
    assert looks(Stragglers(), (0, [lease]), (19, [lease])) == []
    assert looks(Stragglers(), (0, [lease]), (21, [lease])) != []


@pytest.mark.parametrize("fields", [{"finished": 74}, {"seconds": -1.0}, {"backed": True}, {"backups": 2}])
def test_who_is_left_alone(fields):
    assert looks(Stragglers(), (0, [attempt(**fields)]), (1e6, [attempt(**fields)])) == []


def test_a_lease_is_compared_with_the_tasks_that_it_does_not_hold():
    lease = attempt(lo=50, hi=90, finished=45, seconds=4.0)
    assert looks(Stragglers(), (0, [lease]), (9, [lease])) != []


def test_one_late_report_does_not_spoil_what_is_usual():
    seen = [(float(at), [attempt(finished=80 + at)]) for at in range(5)]
    assert looks(Stragglers(), *seen, (5.0, [attempt(finished=90, seconds=5.5)])) != []


def test_the_latest_are_first_and_not_too_many():
    late = [attempt(lease, vertex=f"v{lease}", seconds=1.0 / lease) for lease in range(1, 8)]
    two = looks(Stragglers(), (0, late), (100, late))
    assert [backup.lease for backup in two] == [7, 6]
    assert len(looks(Stragglers(), (0, late), (100, late), workers=40)) == 4
    assert looks(Stragglers(), (0, late), (100, late), backups=2) == []


def test_what_was_seen_is_forgotten_with_its_lease():
    _, memo = Stragglers().decide(WatchView(0.0, 2, 0, (attempt(1), attempt(2))), None)
    _, memo = Stragglers().decide(WatchView(1.0, 2, 0, (attempt(2),)), memo)
    assert memo["seen"] == {2: 0.0}


@pytest.mark.parametrize("wrong", [{"times": 1.0}, {"floor_s": -1}, {"done": 0}, {"share": 2.0}, {"most": 0}])
def test_wrong_thresholds_are_refused(wrong):
    with pytest.raises(GraphError):
        Stragglers(**wrong)
