"""Long arrays are sorted, and their values found, without any task that reads all of them."""

import random

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors import sample_sort

KINDS = ["few", "equal", "rising", "falling", "nan", "mixed", "random"]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Have arrays of a few elements treated as long ones."""
    monkeypatch.setattr(sample_sort, "SORTED_FROM", 0)


@pytest.fixture(scope="module", params=["direct", "threads", "processes"])
def where(request):
    backend = "threads" if request.param == "direct" else request.param
    with wt.Session(backend=backend, workers=2, direct=request.param == "direct"):
        yield request.param


def drawn(kind: str, rng: random.Random, dtype: str) -> np.ndarray:
    n = rng.randint(2, 300)
    values = {
        "few": lambda: [rng.randint(0, 3) for _ in range(n)],
        "equal": lambda: [7] * n,
        "rising": lambda: list(range(n)),
        "falling": lambda: list(range(n, 0, -1)),
        "nan": lambda: [rng.choice([0.0, -0.0, 1.0, np.nan, np.nan, np.inf, -np.inf]) for _ in range(n)],
        "mixed": lambda: [5] * (n // 2) + [rng.randint(0, 10) for _ in range(n - n // 2)],
        "random": lambda: [rng.uniform(-1e3, 1e3) for _ in range(n)],
    }[kind]()
    with np.errstate(all="ignore"):
        return np.array(values, float).astype(dtype) if kind != "nan" or dtype[0] in "fc" else np.array(values) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_as_numpy_sorts(kind, where, seed):
    rng = random.Random(f"{seed} {kind}")
    for _ in range(12 if where == "direct" else 2):
        values = drawn(kind, rng, rng.choice(["f8", "f4", "i8", "u1", "c16"]))
        x = wt.asarray(values, chunk_size=rng.randint(1, len(values)))
        made = wt.sort(x)
        assert made.chunks == x.chunks
        np.testing.assert_array_equal(made.fetch(), np.sort(values, kind="stable"))
        np.testing.assert_array_equal(wt.argsort(x).fetch(), np.argsort(values, kind="stable"))
        np.testing.assert_array_equal(wt.sort(x, descending=True).fetch(), np.sort(values, kind="stable")[::-1])
        turned = len(values) - 1 - np.argsort(values[::-1], kind="stable")[::-1]
        np.testing.assert_array_equal(wt.argsort(x, descending=True).fetch(), turned)


def test_zeros_keep_their_signs_in_order():
    values = np.array([0.0, -0.0, -1.0, -0.0, 0.0, -0.0])
    made = wt.sort(wt.asarray(values, chunk_size=2)).fetch()
    np.testing.assert_array_equal(np.signbit(made), np.signbit(np.sort(values, kind="stable")))


def test_no_task_of_a_sort_reads_all():
    from weft.frontends.tensors.compiler import compile_nodes

    x = wt.random.random(2**20, chunk_size=2**14)
    compiled = compile_nodes([wt.sort(x)._node])
    assert max(need.total for need in compiled._needs) < 2**20
    compiled.check(2**20)


@pytest.mark.parametrize("kind", KINDS)
def test_values_as_numpy_finds_them(kind, where, seed):
    rng = random.Random(f"{seed} {kind}")
    for _ in range(8 if where == "direct" else 2):
        values = drawn(kind, rng, rng.choice(["f8", "i4", "?"]))
        if rng.random() < 0.5 and len(values) % 2 == 0:
            values = values.reshape(2, -1)
        x = wt.asarray(values, chunk_size=tuple([rng.randint(1, size) for size in values.shape]))
        np.testing.assert_array_equal(wt.unique_values(x).fetch(), np.unique(values, equal_nan=False))
        found = wt.unique_all(x)
        wanted = np.unique(values, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one.fetch(), other.reshape(one.shape))


def test_what_is_not_zero_is_found_in_each_chunk_of_rows(where):
    values = np.random.default_rng(3).integers(0, 3, (12, 7))
    found = wt.nonzero(wt.asarray(values, chunk_size=(5, 3)))
    for one, other in zip(found, np.nonzero(values), strict=True):
        np.testing.assert_array_equal(one.fetch(), other)
    assert len(found[0].chunks[0]) == 3
