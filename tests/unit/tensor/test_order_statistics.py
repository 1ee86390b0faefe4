"""Medians and quantiles of long arrays are NumPy's, and found without any task that reads all of them."""

import random
import warnings
from typing import Any

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors import sample_sort
from weft.frontends.tensors.compiler import compile_nodes

pytestmark = pytest.mark.slow

FUNCTIONS = ("median", "nanmedian", "quantile", "nanquantile", "percentile", "nanpercentile")
METHODS = (
    "inverted_cdf",
    "averaged_inverted_cdf",
    "closest_observation",
    "interpolated_inverted_cdf",
    "hazen",
    "weibull",
    "linear",
    "median_unbiased",
    "normal_unbiased",
    "lower",
    "higher",
    "midpoint",
    "nearest",
)
SHARES: tuple[Any, ...] = (
    0,
    1,
    0.0,
    1.0,
    0.3,
    np.float32(0.3),
    [0.1, 0.5, 0.9],
    [[0.1, 0.2], [0.3, 1.0]],
    np.array([0, 1]),
    [],
)


@pytest.fixture
def short(monkeypatch):
    """Have arrays of a few elements treated as long ones."""
    monkeypatch.setattr(sample_sort, "SORTED_FROM", 0)


def drawn(rng):
    n = rng.randint(2, 60)
    values = [
        [rng.uniform(-5, 5) for _ in range(n)],
        [rng.randint(0, 3) for _ in range(n)],
        [rng.choice([0.0, -0.0, 1, np.inf, -np.inf, 2.5]) for _ in range(n)],
        [rng.choice([1, np.nan, 2.5, 7]) for _ in range(n)],
        [np.nan] * n,
    ]
    kind = rng.randrange(5)
    dtype = rng.choice(["f8", "f4", "f2", ">f8"] if kind > 1 else ["f8", "f4", "i8", "u1", "?"])
    made = np.array(values[kind]).astype(dtype)
    return made.reshape(2, -1) if n % 2 == 0 and rng.random() < 0.3 else made


@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_are_numpys_by_every_method(name, short, seed):
    rng = random.Random(f"{seed} {name}")
    for method in METHODS:
        for _ in range(20 if name[-6:] != "median" else 4):
            values = drawn(rng)
            x = wt.asarray(values, chunk_size=tuple([rng.randint(1, size) for size in values.shape]))
            args: tuple[Any, ...] = ()
            how: dict[str, Any] = {"keepdims": rng.random() < 0.3}
            if not name.endswith("median"):
                q: Any = rng.choice(SHARES)
                args = (q if "quantile" in name else np.multiply(q, 100).tolist(),)
                how["method"] = method
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    wanted = np.asarray(getattr(np, name)(values, *args, **how))
                except TypeError:  # of bools that are subtracted
                    with pytest.raises(TypeError):
                        getattr(wt, name)(x, *args, **how)
                    continue
                made = getattr(wt, name)(x, *args, **how)
                found = made.fetch()
            told = f"{name}({values!r}, {args}, {how}), chunks {x.chunks}"
            np.testing.assert_array_equal(found, wanted, told)
            assert found.shape == wanted.shape, told
            assert made.dtype == found.dtype, told
            if not np.isnan(values).any():  # the dtype of NumPy's NaNs depends on the values
                assert found.dtype == wanted.dtype, told


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_of_arrays_that_are_long(backend):
    rng = np.random.default_rng(1)
    values = rng.normal(size=600_000)
    values[::7] = 0.25
    lost = np.where(values > 2, np.nan, values)
    with wt.Session(workers=2, backend=backend):
        x, y = (wt.asarray(one, chunk_size=40_000) for one in (values, lost))
        assert wt.median(x).fetch() == np.median(values)
        assert np.isnan(wt.median(y).fetch())
        several = [0.0, 0.001, 0.5, 0.6, 0.97, 1.0]
        np.testing.assert_array_equal(wt.nanquantile(y, several).fetch(), np.nanquantile(lost, several))
        assert wt.percentile(x.reshape(600, 1000), 40).fetch() == np.percentile(values, 40)
        assert wt.median(wt.full(600_000, 3, chunk_size=50_000)).fetch() == 3


def bincounted(x):
    return wt.bincount(wt.astype(x * 100, wt.int64))


def weighted(x):
    return wt.bincount(wt.astype(x * 100, wt.int64), weights=x)


def values_of(x):
    return wt.unique(wt.floor(x * 100))


def all_of(x):
    return wt.unique(wt.floor(x * 100), True, True, True)


@pytest.mark.parametrize("ask", [wt.median, wt.nanmedian, bincounted, weighted, values_of, all_of])
def test_no_task_reads_all(ask):
    x = wt.random.default_rng(3).random(2**21, chunk_size=2**14)  # 16 MiB in chunks of 128 KiB
    made = ask(x)
    listed = made if isinstance(made, tuple) else [made]
    compile_nodes([one._node for one in listed]).check(2**22)


def test_unique_is_numpys_of_long_arrays_too(short, seed):
    rng = random.Random(seed)
    for _ in range(40):
        values = drawn(rng)
        x = wt.asarray(values, chunk_size=tuple([rng.randint(1, size) for size in values.shape]))
        asked = {name: rng.random() < 0.5 for name in ("return_index", "return_inverse", "return_counts")}
        made, wanted = wt.unique(x, **asked), np.unique(values, **asked)  # type: ignore[call-overload]
        for one, other in zip(*[each if any(asked.values()) else (each,) for each in (made, wanted)], strict=True):
            np.testing.assert_array_equal(one.fetch(), other, f"{values!r} {x.chunks} {asked}")
            assert one.dtype == other.dtype


@pytest.mark.parametrize("direct", [True, False])
def test_whole_numbers_are_counted_in_chunks(direct):
    values, weights = np.array([3, 1, 1, 0, 7, 3, 3, 2]), np.arange(8) / 4
    with wt.Session(workers=1, direct=direct):
        for chunk in (1, 3, 8):
            x = wt.asarray(values, chunk_size=chunk)
            np.testing.assert_array_equal(wt.bincount(x).fetch(), np.bincount(values))
            np.testing.assert_array_equal(wt.bincount(x, minlength=10).fetch(), np.bincount(values, minlength=10))
            np.testing.assert_array_equal(wt.bincount(x, weights).fetch(), np.bincount(values, weights))
            with pytest.raises(ValueError, match="negative"):
                wt.bincount(x - 1).fetch()
