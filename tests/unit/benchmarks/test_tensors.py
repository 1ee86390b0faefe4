"""The rows of the tensors suite."""

import shutil
from types import SimpleNamespace

import pytest

from benchmarks import tensors
from benchmarks.tensors import ours, out_of_core, peer_numpy
from benchmarks.tensors.sizes import Sizes

pytestmark = pytest.mark.slow


def cases(module):
    sides = [side for spec in tensors.SPECS for side in (spec.ours, spec.peer) if side is not None]
    return {side.case for side in sides if side.module == module.__name__}


@pytest.mark.parametrize("module", [ours, peer_numpy, out_of_core])
def test_every_row_has_a_case(module):
    assert cases(module) == set(module.CASES)


def test_peers_have_the_cases_of_our_rows():
    assert cases(SimpleNamespace(__name__="benchmarks.tensors.peer_distributed")) == {
        *[f"processes_{name}" for name in (*ours.DRAWN, *ours.GIVEN)],
        "reduced",
        "rechunked",
    }
    assert cases(SimpleNamespace(__name__="benchmarks.tensors.peer_dask")) == {
        *ours.DRAWN,
        *[f"peak_{name}" for name in (*ours.DRAWN, *ours.GIVEN)],
        "chunk_overhead",
        "map_overlap",
    }


def test_a_case_gives_the_figure_of_its_row():
    assert ours.CASES["graph_1e6_chunks"]()["seconds"] > 0


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(out_of_core, "SIZES", Sizes(32_000_000, 16_000_000, 8_000_000))


@pytest.mark.parametrize("case", [out_of_core.reduced, out_of_core.rechunked])
def test_what_goes_to_disk_gives_both_figures(small, case):
    assert set(case()) == {"seconds", "gb"}


def test_bytes_are_written_and_read(small):
    assert set(out_of_core.written_and_read(1_000_000)) == {"seconds"}


def test_a_full_disk_is_told_before_anything_is_written(small, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=40_000_000))
    with pytest.raises(AssertionError, match="are needed"):
        out_of_core.reduced()
