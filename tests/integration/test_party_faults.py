"""Parties agree whatever is killed, and whatever is cut between them. Many more are in tests/soak."""

from __future__ import annotations

import pytest

from tests.integration.party_faults import (
    CutRun,
    KillRun,
    three_networks,
    three_parties,
    watched_temporary_files,
    why_no_namespaces,
)

WHY_NOT = why_no_namespaces()


@pytest.fixture(scope="module")
def net_and_parties(tmp_path_factory):
    """Three parties, in network namespaces if this machine allows them."""
    folder = tmp_path_factory.mktemp("parties")
    with watched_temporary_files(folder / "temporary"):
        if WHY_NOT:
            with three_parties(folder) as parties:
                yield None, parties
        else:
            with three_networks(folder) as found:
                yield found


def test_parties_agree_when_processes_are_killed(net_and_parties, seed):
    run = KillRun(net_and_parties[1], seed)
    run.run()
    print(run)


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_parties_agree_when_a_link_is_cut(net_and_parties):
    net, parties = net_and_parties
    CutRun(net, parties, "host", fail_after=1).run("intersection_0")
