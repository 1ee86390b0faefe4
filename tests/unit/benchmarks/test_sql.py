"""The rows of the suite `sql`, without the data."""

import ast
from pathlib import Path

import pytest

from benchmarks import sql
from benchmarks.sql import dynamic, joins, ours, peer_duckdb

ROWS = (*sql.SPECS, *sql.LARGE)


def cases(module):
    sides = [side for spec in ROWS for side in (spec.ours, spec.peer) if side is not None]
    return {side.case for side in sides if side.module == module}


@pytest.mark.parametrize("module", [ours, dynamic, peer_duckdb])
def test_every_row_has_a_case(module):
    assert cases(module.__name__) == set(module.CASES)


@pytest.mark.parametrize("module", ["peer_spark", "peer_local", "peer_daft_ray"])
def test_rows_against_peers_of_their_own_environment_name_cases_of_these(module):
    """Such a module is read where the peers are installed, and Weft is not."""
    (folder,) = sql.__path__
    tree = ast.parse(Path(folder, f"{module}.py").read_text())
    (found,) = [node.value for node in tree.body if isinstance(node, ast.AnnAssign)]
    assert isinstance(found, ast.Dict)
    assert cases(f"benchmarks.sql.{module}") == {key.value for key in found.keys if isinstance(key, ast.Constant)}


def test_the_rows_that_are_asked_for_are_there():
    names = {spec.name for spec in ROWS}
    assert len(names) == len(ROWS)
    assert {f"{join}_join_speedup" for join in ("skew", "conditional", "pruned")} <= names
    assert {"tpch_sf10_whole", "tpch_sf10_stages", "bubble_vs_batch", "bubble_vs_gang"} <= names


@pytest.mark.parametrize("text", joins.TABLES)
def test_each_join_names_its_tables(text):
    assert all(f" {name}" in text for name in joins.TABLES[text])
