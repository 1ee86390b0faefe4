"""The rows about pipelines: every one has its case, and the cheap cases give what they promise."""

from __future__ import annotations

import pytest

from benchmarks import pipelines
from benchmarks.pipelines import ours, peer_snakemake

pytestmark = pytest.mark.slow


def test_every_row_has_a_case():
    sides = [side for spec in pipelines.SPECS for side in (spec.ours, spec.peer) if side is not None]
    assert {side.case for side in sides if not side.peer} == set(ours.CASES)
    assert {side.case for side in sides if side.peer} == set(peer_snakemake.CASES)


@pytest.mark.parametrize("case", ["hit_decision", "chain_11", "power_floor"])
def test_a_case_gives_the_figures_of_its_rows(case, monkeypatch):
    monkeypatch.setattr(ours, "KNOWN", 50)
    figures = ours.CASES[case]()
    assert {spec.figure for spec in pipelines.SPECS if spec.ours.case == case} <= set(figures)
