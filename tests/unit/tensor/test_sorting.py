"""Long arrays are sorted, and their values found, without any task that reads all of them."""

import random
from itertools import product
from typing import Any

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
    assert max(need.total for need in compiled.needs) < 2**20
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


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32, np.complex128])
@pytest.mark.parametrize("one_nan", [True, False])
def test_values_and_what_is_wanted_beside_them(dtype, one_nan, seed):
    draw = np.random.default_rng(seed)
    values = draw.integers(0, 200, 1000).astype(dtype)
    if values.dtype.kind in "fc":
        values[draw.integers(0, 1000, 20)] = np.nan
        values[draw.integers(0, 1000, 20)] = -0.0
    x = wt.asarray(values, chunk_size=150)
    with wt.Session(workers=2, direct=False):
        for firsts, numbers, counts in product([True, False], repeat=3):
            how: Any = {"return_index": firsts, "return_inverse": numbers, "return_counts": counts}
            found = as_tuple(wt.unique(x, **how, equal_nan=one_nan))
            wanted = as_tuple(np.unique(values, **how, equal_nan=one_nan))
            for at, (one, other) in enumerate(zip(found, wanted, strict=True)):
                assert one.dtype == other.dtype
                if numbers and not firsts and at == 1:  # NumPy numbers different NaNs in any order
                    np.testing.assert_array_equal(wanted[0][one.fetch()], values)
                else:
                    np.testing.assert_array_equal(one.fetch(), other)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def test_no_task_reads_all_values():
    from weft.frontends.tensors.compiler import compile_nodes

    x = wt.random.random(2**20, chunk_size=2**14)
    compiled = compile_nodes(
        [one._node for one in (*wt.unique_all(x), wt.unique_values(x), wt.unique_counts(x).counts)]
    )
    assert max(need.total for need in compiled.needs) < 2**22
    assert wt.unique_values(x)._node.chunks == 2**6


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize(
    ("lengths", "chunks"), [((1000, 900), (150, 70)), ((200, 5000), (101, 400)), ((30, 7), (10, 3))]
)
def test_members_of_many_values(lengths, chunks, invert, seed, where):
    draw = np.random.default_rng(seed)
    first, second = (draw.integers(0, 400, n).astype(float) for n in lengths)
    first[draw.integers(0, lengths[0], 5)] = np.nan
    second[draw.integers(0, lengths[1], 5)] = np.nan
    second[0] = -0.0
    x, y = wt.asarray(first, chunk_size=chunks[0]), wt.asarray(second, chunk_size=chunks[1])
    np.testing.assert_array_equal(wt.isin(x, y, invert=invert).fetch(), np.isin(first, second, invert=invert))
    square = wt.asarray(first[:30].reshape(5, 6), chunk_size=(2, 4))
    wanted = np.isin(first[:30].reshape(5, 6), second, invert=invert)
    np.testing.assert_array_equal(wt.isin(square, y, invert=invert).fetch(), wanted)
    np.testing.assert_array_equal(wt.setdiff1d(x, y).fetch(), np.setdiff1d(first, second))


def test_chunks_without_elements_have_no_values_to_number():
    x = wt.arange(1000.0, chunk_size=100)
    few = x[(x < 50) | (x > 880)]
    assert wt.unique_inverse(few).inverse_indices.fetch().tolist() == list(range(169))
    assert wt.isin(few, x).fetch().all()
