"""The rows about graphs that change: every one has its case, and the cheap cases give what they promise."""

from __future__ import annotations

import pytest

from benchmarks import __main__ as command
from benchmarks import dynamic

pytest.importorskip("pyarrow")

from benchmarks.dynamic import ours


def test_every_row_has_a_case_and_a_name_of_its_own():
    assert {spec.ours.case for spec in dynamic.SPECS} == set(ours.CASES)
    names = [spec.name for specs in command.SUITES.values() for spec in specs]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("case", ["parallelism", "skew", "faults"])
def test_a_case_gives_the_figures_of_its_rows(case):
    figures = ours.CASES[case]()
    wanted = {spec.figure: spec for spec in dynamic.SPECS if spec.ours.case == case}
    assert set(figures) == set(wanted)


def test_one_reader_is_left_of_500_and_no_reader_gets_much_more_than_the_mean():
    assert ours.parallelism()["tasks"] == 1
    assert ours.skew()["ratio"] <= 1.3
