"""The rows of the tensors suite."""

from benchmarks import tensors
from benchmarks.tensors import ours, peer_numpy


def test_every_row_has_a_case():
    assert {spec.ours.case for spec in tensors.SPECS} == set(ours.CASES)
    assert {spec.peer.case for spec in tensors.SPECS if spec.peer and spec.peer.label == "numpy"} == set(
        peer_numpy.CASES
    )


def test_a_case_gives_the_figure_of_its_row():
    assert ours.CASES["graph_1e6_chunks"]()["seconds"] > 0
