"""The rows of the suite `ray`, without a cluster."""

import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import ray
from benchmarks.ray import losses, ours, peer, queries, sorting

pytestmark = pytest.mark.slow

ROWS = 7


def cases(module):
    sides = [side for spec in ray.SPECS for side in (spec.ours, spec.peer) if side is not None]
    return {side.case for side in sides if side.module == module}


@pytest.mark.parametrize("module", [ours, peer, losses])
def test_every_row_has_a_case(module):
    assert cases(module.__name__) == set(module.CASES)


def test_rows_against_peers_of_their_own_environment_name_cases_of_these():
    assert cases("benchmarks.ray.peer_daft") == {"sort", "tables"}
    assert cases("benchmarks.ray.peer_spark") == {"tables"}


def sorted_blocks(blocks):
    bounds = sorting.boundaries([sorting.sampled(one) for one in blocks])
    divided = [sorting.divided(one, [bounds]) for one in blocks]
    return [sorting.merged([row[part] for row in divided]) for part in range(len(blocks))]


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(sorting, "BLOCKS", 5)
    return [sorting.block(index, ROWS) for index in range(5)]


def test_sorted_blocks_pass_the_check(few):
    sorting.check([sorting.summary(one) for one in sorted_blocks(few) if len(one)], ROWS)


def test_lost_or_wrong_rows_do_not(few):
    found = [one for one in sorted_blocks(few) if len(one)]
    with pytest.raises(AssertionError):
        sorting.check([sorting.summary(one) for one in found[1:]], ROWS)
    with pytest.raises(AssertionError):
        sorting.check([sorting.summary(one.sort_by("key")) for one in few], ROWS)
    with pytest.raises(AssertionError):
        sorting.summary(few[0].take(np.argsort(few[0]["key"].to_numpy())[::-1]))


def test_another_scale_and_a_choice_of_queries_are_in_the_names_of_rows():
    told = "from benchmarks import ray; print(*[(spec.name, spec.about.split()[0]) for spec in ray.SPECS])"
    environ = os.environ | {
        "BENCHMARKS_SCALE": "10",
        "BENCHMARKS_QUERIES": "6, 1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    found = subprocess.run([sys.executable, "-c", told], env=environ, capture_output=True, text=True, check=True).stdout
    assert "('ray_tpch_sf10_stages_q1_q6_vs_daft', '1')" in found
    assert "('ray_tpch_sf10_stages_q1_q6_vs_spark', '2')" in found


def test_the_queries_of_a_row_are_timed_and_their_rows_counted(monkeypatch, tmp_path):
    monkeypatch.setattr(queries, "FOLDER", tmp_path)
    (tmp_path / "tpch_0.1").mkdir()
    (tmp_path / "tpch_0.1" / "queries.json").write_text('[[1, "SELECT 1;"], [6, "SELECT 6"]]')
    counts = {"SELECT 1": 4, "SELECT 6": 1}
    assert queries.measured(counts.__getitem__, 0.1, (1, 6))["seconds"] > 0
    with pytest.raises(AssertionError):
        queries.measured(lambda text: 3, 0.1, (1, 6))
