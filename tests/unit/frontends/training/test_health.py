"""The health of a container by its probes, on a clock that the tests move."""

from typing import Any

import pytest

from weft.frontends.training.health import ContainerHealth, ProbeKind
from weft.frontends.training.schema import Container, ContainerProbe

STARTUP, LIVENESS, READINESS = ProbeKind.STARTUP, ProbeKind.LIVENESS, ProbeKind.READINESS
TCP = ContainerProbe(port=80)


def health(**probes: Any) -> ContainerHealth:
    return ContainerHealth(Container(name="c", **probes), 100.0)


def fed(one: ContainerHealth, kind: ProbeKind, results: str) -> list[float]:
    """Make the probes of a kind that are due with these results, + or -; return their times."""
    times = []
    for result in results:
        due = one.due(kind)
        if due is None:
            break
        times.append(due)
        one.note(kind, due, due + 0.25, "" if result == "+" else "refused")
    return times


def test_a_container_without_probes_is_ready_and_has_nothing_to_check():
    one = health()
    assert (one.ready, one.started, list(one), one.why_not_ready) == (True, True, [], "")


@pytest.mark.parametrize(
    ("probe", "results", "ready"),
    [
        (ContainerProbe(port=1), "", False),
        (ContainerProbe(port=1), "+", True),
        (ContainerProbe(port=1, successes=3), "++", False),
        (ContainerProbe(port=1, successes=3), "++-+", False),
        (ContainerProbe(port=1, successes=3), "++-+++", True),
        (ContainerProbe(port=1, failures=3), "+--", True),
        (ContainerProbe(port=1, failures=3), "+---", False),
        (ContainerProbe(port=1, failures=3), "+--+--", True),
        (ContainerProbe(port=1, failures=1), "+-", False),
        (ContainerProbe(port=1, failures=1), "+-+", True),
    ],
)
def test_readiness_changes_at_its_thresholds_and_ends_nothing(probe, results, ready):
    one = health(readiness=probe)
    fed(one, READINESS, results)
    assert (one.ready, one.failed) == (ready, None)
    assert one.due(READINESS) is not None


@pytest.mark.parametrize(
    ("failures", "results", "failed"),
    [(1, "", False), (1, "-", True), (3, "--", False), (3, "--+--", False), (3, "--+---", True), (3, "+++", False)],
)
def test_liveness_fails_after_its_threshold_and_is_not_checked_again(failures, results, failed):
    one = health(liveness=ContainerProbe(port=1, failures=failures))
    fed(one, LIVENESS, results)
    assert (one.failed is LIVENESS) == failed
    assert (one.due(LIVENESS) is None) == failed
    assert one.ready


def test_the_times_of_probes():
    one = health(liveness=ContainerProbe(port=1, delay_s=7, period_s=5))
    assert fed(one, LIVENESS, "+++") == [107.0, 112.0, 117.0]
    one.note(LIVENESS, 122.0, 130.0, "")  # it took longer than its period
    assert one.due(LIVENESS) == 130.0


def test_the_other_probes_wait_for_the_startup_probe():
    one = health(startup=ContainerProbe(port=1, failures=9, period_s=2), liveness=TCP, readiness=TCP)
    assert (one.due(LIVENESS), one.due(READINESS), one.ready) == (None, None, False)
    assert one.why_not_ready == "startup probe: it has not been checked yet"
    fed(one, STARTUP, "---")
    assert (one.due(LIVENESS), one.why_not_ready) == (None, "startup probe: refused")
    fed(one, STARTUP, "+")
    assert (one.started, one.due(STARTUP)) == (True, None)
    assert (one.due(LIVENESS), one.due(READINESS)) == (100.0, 100.0)
    assert one.why_not_ready == "readiness probe: it has not been checked yet"
    fed(one, READINESS, "+")
    assert one.ready


def test_a_failed_startup_probe_ends_the_container():
    one = health(startup=ContainerProbe(port=1, failures=2), liveness=TCP)
    fed(one, STARTUP, "--")
    assert one.failed is STARTUP
    assert one.failure() == "its startup probe failed 2 times in a row: refused"
    assert (one.due(STARTUP), one.due(LIVENESS)) == (None, None)
