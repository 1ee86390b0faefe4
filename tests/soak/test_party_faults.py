"""Parties whose processes are killed, and links that are cut, at many moments: minutes."""

from __future__ import annotations

import random

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
RUNS = 20
CUTS = (("host", ""), ("guest", ""), ("arbiter", ""), ("host", "guest"), ("guest", "host"), ("host", "arbiter"))
"""Parties that are cut off, and ways from one party to another that are cut in this direction alone."""


def test_twenty_kills_of_servers_components_and_guardians(tmp_path, seed):
    hits = 0
    with watched_temporary_files(tmp_path / "temporary"), three_parties(tmp_path) as parties:
        for at in range(RUNS):
            run = KillRun(parties, seed + at)
            run.run()
            hits += run.hit
            print(f"{at + 1}: {run}", flush=True)
    assert hits >= RUNS // 2


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.parametrize("fail_after", [0, 5])
def test_cuts_of_all_links(tmp_path, seed, fail_after):
    chosen = random.Random(seed)
    with watched_temporary_files(tmp_path / "temporary"), three_networks(tmp_path) as (net, parties):
        for cut in CUTS:
            component = chosen.choice(["intersection_0", "hetero_lr_0"])
            run = CutRun(net, parties, *cut, fail_after=fail_after)
            run.run(component)
            print(
                f"{cut} in {component}: noticed after {run.noticed_s:.1f} s, over after {run.ended_s:.1f} s", flush=True
            )
