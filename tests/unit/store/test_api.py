"""Sizes: the estimates that budgets are made of."""

import numpy as np
import pyarrow as pa
import pytest

from weft.store import api, codec
from weft.store.api import fixed_size, sizeof


def test_fixed_sizes_are_summed_without_looking_at_values():
    assert fixed_size([1] * 10) == 320
    assert fixed_size([1, 2.0, None]) == 56
    assert fixed_size([1, "x"]) is None
    assert fixed_size(["x", 1]) is None
    assert fixed_size([]) == 0


def test_numpy_scalars_become_fixed():
    sizeof(np.float32(1))
    assert fixed_size([np.float32(1)] * 3) == 96
    sizeof(np.str_("abc"))
    assert np.str_ not in api.FIXED


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (np.zeros((10, 10), "f4"), 400, 400),
        (pa.table({"a": np.zeros(1000)}), 8000, 8000),
        ((b"x" * 1000, [b"y" * 1000]), 1000, 1200),  # what lies two levels deep is not counted
        (memoryview(b"x" * 100), 100, 100),
        ({1, 2, 3}, 100, 300),
    ],
)
def test_sizes(value, low, high):
    assert low <= sizeof(value) <= high


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_array", "coo_matrix", "dia_array", "bsr_array"])
def test_sparse_matrices_of_scipy_count_what_they_hold_and_stay_sparse(kind):
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed: pip install 'weft[scipy]'")
    value = getattr(sparse, kind)(np.diag(np.ones(1000)))
    assert 1000 * 8 <= sizeof(value) <= 1000 * 40
    encoded = codec.to_bytes(codec.encode(value))
    assert len(encoded) <= 1000 * 40
    found = codec.decode(encoded)
    assert type(found) is type(value)
    np.testing.assert_array_equal(found.toarray(), value.toarray())


class Liar:
    @property
    def nbytes(self):
        raise RuntimeError("do not ask")


class Rows(list[object]):
    pass


def test_odd_types():
    assert sizeof(Liar()) == api.OTHER
    assert sizeof(Rows([np.zeros(1000)])) >= 8000


def test_absent_is_false_and_named():
    assert not api.ABSENT
    assert repr(api.ABSENT) == "ABSENT"
    assert repr(api.Column(("job", "v"), 3)) == "Column(job/v, 3 cells)"
