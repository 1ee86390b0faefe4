"""Parties agree whatever is killed, and whatever is cut between them. Many more are in tests/soak."""

from __future__ import annotations

import pytest

from tests.integration.party_faults import (
    CutRun,
    KillRun,
    left_processes,
    three_networks,
    three_parties,
    why_no_namespaces,
)
from tests.integration.places import until

NO_NAMESPACES = why_no_namespaces()


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A folder for temporary files, whose path marks all processes that a test starts."""
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setenv("TMPDIR", str(found))
    yield found
    until(lambda: not left_processes(str(found)), "the end of all processes")
    assert [one.name for one in found.iterdir() if not one.name.startswith("weft-")] == []


@pytest.mark.skipif(bool(NO_NAMESPACES), reason=NO_NAMESPACES)
def test_parties_agree_when_a_link_is_cut(tmp_path, temporary):
    with three_networks(tmp_path) as (net, parties):
        CutRun(net, parties, "host", fail_after=1).run("intersection_0")


def test_parties_agree_when_processes_are_killed(tmp_path, temporary, seed):
    with three_parties(tmp_path) as parties:
        run = KillRun(parties, seed)
        run.run()
        print(run)
