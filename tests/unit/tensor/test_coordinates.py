"""Arrays of the package `sparse` in chunks equal NumPy's dense ones, with any number of axes, however they are cut."""

import os
import pickle
import random
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytest

import weft.tensor as wt
from tests.properties.tensors.drawing import chunks
from weft.frontends.tensors.arrays.coordinates import CooTensor

sparse: Any = pytest.importorskip("sparse", reason="the package sparse is not installed: pip install 'weft[sparse]'")
COUNT = {"fast": 4, "soak": 120}.get(os.environ.get("HYPOTHESIS_PROFILE", "ci"), 4)  # one for each number of axes


def drawn(rng: random.Random, shape: Any, fill: float = 0, dtypes: Sequence[str] = ("f8", "f4", "i4", "c16")) -> Any:
    """Return an array of the package `sparse`, some of whose elements differ from its fill value."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    dtype = rng.choice(dtypes)
    values = np.round(numbers.normal(size=shape) * 5)
    made = np.where(numbers.random(shape) < rng.choice([0, 0.2, 0.7]), values, fill).astype(dtype)
    return sparse.COO.from_numpy(made, fill_value=np.asarray(fill, dtype)[()])


def cut(value: Any, rng: random.Random) -> Any:
    """Cut an array, into 100 chunks at most: one of four axes has a thousand where each element is one."""
    while True:
        made = wt.asarray(value, chunk_size=chunks(rng, value.shape))
        if prod(map(len, made.chunks)) <= 100:
            return made


def same(found: Any, wanted: Any, told: str) -> None:
    values = found.fetch() if hasattr(found, "fetch") else found
    if isinstance(found, CooTensor):
        assert isinstance(values, sparse.COO), told
        assert values.dtype == found.dtype, told
        assert values.fill_value == found.fill_value or np.isnan(found.fill_value), told
        values = values.todense()
    wanted = np.asarray(wanted)
    assert np.shape(values) == wanted.shape == found.shape, told
    assert found.dtype == np.asarray(values).dtype == wanted.dtype, told
    np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-4, err_msg=told)


@pytest.fixture(scope="module", params=["here", "threads", "processes"])
def session(request):
    kind = "processes" if request.param == "processes" else "threads"
    with wt.Session(backend=kind, workers=2, direct=request.param == "here") as made:
        yield made


SPARSE: dict[str, Any] = {
    "negative": lambda xp, a, b: -a,
    "abs": lambda xp, a, b: abs(a),
    "exponential": lambda xp, a, b: xp.exp(a * 0.1),
    "add": lambda xp, a, b: a + b,
    "multiply": lambda xp, a, b: a * b,
    "add a number": lambda xp, a, b: 2 + a,
    "less": lambda xp, a, b: a.real < b.real,
    "equal": lambda xp, a, b: a == b,
    "broadcast": lambda xp, a, b: a - b[:1],
    "broadcast vectors": lambda xp, a, b: a.reshape(-1)[:, None] * b.reshape(-1)[None, :4],
    "where": lambda xp, a, b: xp.where(a.real > 0, a, b),
    "by dense numbers": lambda xp, a, b: a * np.arange(a.shape[-1]),
    "transpose": lambda xp, a, b: a.T,
    "transpose in order": lambda xp, a, b: xp.transpose(a, (1, 0, *range(2, a.ndim)) if a.ndim > 1 else (0,)),
    "exchanged axes": lambda xp, a, b: xp.swapaxes(a, 0, -1),
    "moved axis": lambda xp, a, b: xp.moveaxis(a, 0, -1),
    "flat": lambda xp, a, b: xp.reshape(a, (-1,)),
    "other shape": lambda xp, a, b: a.reshape((a.shape[-1], -1)),
    "new axes": lambda xp, a, b: a[None, ..., None],
    "axes of length 1": lambda xp, a, b: xp.squeeze(xp.expand_dims(a, (0, -1))),
    "slice": lambda xp, a, b: a[1:4],
    "backwards": lambda xp, a, b: a[::-2],
    "last axis": lambda xp, a, b: a[..., 1::2],
    "nothing": lambda xp, a, b: a[2:2],
    "one of the first": lambda xp, a, b: a[-1][None],
    "by numbers": lambda xp, a, b: a[[2, 0, -1, 2]],
    "last axis by numbers": lambda xp, a, b: a[..., np.array([1, 1, 0])],
    "by a mask": lambda xp, a, b: a[np.arange(a.shape[0]) % 2 == 0],
    "concatenated": lambda xp, a, b: xp.concatenate([a, b, a[:1]]),
    "last axes concatenated": lambda xp, a, b: xp.concatenate([a, b], axis=-1),
    "stacked": lambda xp, a, b: xp.stack([a, b], axis=1),
    "below one another": lambda xp, a, b: xp.vstack([a, b]),
    "side by side": lambda xp, a, b: xp.hstack([a, b]),
    "sums": lambda xp, a, b: xp.sum(a, axis=0, keepdims=True),
    "sums of the last axis": lambda xp, a, b: xp.sum(a, axis=-1)[None],
    "products": lambda xp, a, b: xp.prod(a, axis=0)[None],
    "extremes": lambda xp, a, b: xp.stack([a.real.max(axis=0, keepdims=True), a.real.min(axis=0, keepdims=True)]),
    "means": lambda xp, a, b: xp.mean(a, axis=0)[None],
    "some": lambda xp, a, b: xp.any(a, axis=0)[None],
    "every": lambda xp, a, b: xp.all(a, axis=-1)[None],
    "numbers of elements": lambda xp, a, b: xp.count_nonzero(a, axis=0, keepdims=True),
    "another type": lambda xp, a, b: a.astype("c16"),
}
DENSE: dict[str, Any] = {
    "total": lambda xp, a, b: xp.sum(a),
    "product": lambda xp, a, b: xp.prod(a),
    "mean": lambda xp, a, b: a.mean(),
    "largest": lambda xp, a, b: a.real.max(),
    "any": lambda xp, a, b: a.any(),
    "variances": lambda xp, a, b: xp.var(a, axis=0),
    "deviation": lambda xp, a, b: xp.std(a),
    "corrected": lambda xp, a, b: a.var(axis=-1, ddof=1, keepdims=True),
    "add dense numbers": lambda xp, a, b: a + np.arange(a.shape[-1]),
    "dense numbers before": lambda xp, a, b: np.arange(a.shape[-1]) - a,
    "element": lambda xp, a, b: a[(1,) * a.ndim],
}  # fmt: skip
PRODUCTS: dict[str, Any] = {
    "last axis by first": lambda xp, a, b: xp.tensordot(a, b, axes=([-1], [-1])),
    "all axes": lambda xp, a, b: xp.tensordot(a, b, axes=a.ndim),
    "by a dense one": lambda xp, a, b: xp.tensordot(a, np.ones((a.shape[-1], 3)), axes=1),
    "dense one by": lambda xp, a, b: xp.tensordot(np.ones((3, a.shape[0])), a, axes=([1], [0])),
    "dot": lambda xp, a, b: xp.dot(a, b.T if a.ndim < 3 else b.swapaxes(-1, -2)),
    "by a vector": lambda xp, a, b: a @ np.arange(a.shape[-1]),
    "by a sparse vector": lambda xp, a, b: a @ b.reshape(-1)[: a.shape[-1]],
    "matrices": lambda xp, a, b: xp.matmul(a, b.swapaxes(-1, -2)) if a.ndim > 1 else a @ b,
    "by dense matrices": lambda xp, a, b: a @ np.arange(2.0 * a.shape[-1]).reshape(-1, 2),
    "dense matrices by": lambda xp, a, b: np.ones((3, a.shape[-2] if a.ndim > 1 else a.shape[0])) @ a,
    "stack by a matrix": lambda xp, a, b: a @ b.reshape(-1, b.shape[-1]).T if a.ndim > 1 else a @ b,
    "vector by": lambda xp, a, b: np.arange(a.shape[-2] if a.ndim > 1 else a.shape[0]) @ a,
}


def check(calls: Any, name: str, session: Any, seed: int, fills: Any) -> None:
    draws = COUNT if session.direct else 1  # the arithmetic is the same everywhere
    dtypes = ("f8",) if session.apart else ("f8", "f4", "i4", "c16")  # each worker compiles functions for each
    for number in range(seed, seed + draws):
        rng = random.Random(number)
        shape = tuple(rng.randint(4, 6) for _ in range(1 + number % 4))
        a, b = (drawn(rng, shape, rng.choice(fills), dtypes) for _ in range(2))
        if "concatenated" in name or name in ("stacked", "below one another", "side by side"):
            b = drawn(rng, shape, a.fill_value.item().real, dtypes)
        told = f"repeat with WEFT_SEED={number}: {name} {shape} {a.dtype} {b.dtype} {a.fill_value} {b.fill_value}"
        with np.errstate(all="ignore"):
            wanted = calls[name](np, a.todense(), b.todense())
            found = calls[name](wt if number % 2 and hasattr(wt, "sum") else np, cut(a, rng), cut(b, rng))
            same(found, wanted, told)


@pytest.mark.parametrize("name", SPARSE)
def test_results_are_sparse_and_equal_those_of_numpy(name, session, seed):
    check(SPARSE, name, session, seed, [0, 0, 2, -1])


@pytest.mark.parametrize("name", DENSE)
def test_dense_results_equal_those_of_numpy(name, session, seed):
    check(DENSE, name, session, seed, [0, 0, 2, -1])


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_equal_those_of_numpy(name, session, seed):
    check(PRODUCTS, name, session, seed, [0])


def test_all_formats_of_the_package_are_taken():
    value = np.zeros((3, 4, 5))
    value[1, 2, 3], value[0, 0, 1] = 7, 2
    for given in (sparse.COO.from_numpy(value), sparse.GCXS.from_numpy(value), sparse.DOK.from_numpy(value)):
        for made in (wt.asarray(given), wt.tensor(given, chunk_size=2), wt.from_array(given)):
            assert isinstance(made, CooTensor)
            assert made.issparse()
            same(made, value, type(given).__name__)
            assert made.nnz == 2
    assert wt.sum(sparse.COO.from_numpy(value)).fetch() == 9
    assert wt.asarray(sparse.COO.from_numpy(value), dtype="f4").dtype == np.float32


def test_arrays_of_scipy_that_are_no_matrices_are_taken():
    sp = pytest.importorskip("scipy.sparse")
    made = wt.asarray(sp.coo_array(([1.0, 2.0, 3.0], ([0, 3, 3],)), shape=(5,)))
    assert isinstance(made, CooTensor)
    assert made.todense().fetch().tolist() == [1, 0, 0, 5, 0]


def test_a_matrix_of_scipy_goes_together_with_the_package():
    sp = pytest.importorskip("scipy.sparse")
    value = np.array([[0, 1.5, 0], [2, 0, 0]])
    matrix, array = wt.asarray(sp.csr_array(value)), wt.asarray(sparse.COO.from_numpy(value))
    for made in (matrix + array, array + matrix, array + sp.csr_array(value)):
        same(made, 2 * value, "sum")
    same(matrix @ array.T, value @ value.T, "product")
    same(array @ matrix.T, value @ value.T, "product")
    same(matrix.tocoo()[1:], value[1:], "rows")
    same(wt.concat([array, matrix]), np.concatenate([value, value]), "concat")


def test_arrays_become_sparse_and_dense(session):
    value = np.zeros((4, 3, 2))
    value[1, 1, 1] = 5
    dense = wt.asarray(value, chunk_size=2)
    made = dense.tosparse()
    assert isinstance(made, CooTensor)
    same(made, value, "tosparse")
    same(made.todense(), value, "todense")
    np.testing.assert_array_equal(made.to_numpy(), value)
    same(dense.reshape(-1).tosparse(), value.reshape(-1), "vector")
    same(wt.zeros((2, 3, 4), sparse=True), np.zeros((2, 3, 4)), "zeros")
    same(wt.zeros(3, sparse=True) + 1, np.ones(3), "zeros")


def test_random_numbers_are_in_a_share_of_the_elements(session):
    session.as_default()
    made = wt.random.RandomState(3).rand(30, 20, 10, density=0.1, chunk_size=(7, 20, 10))
    assert isinstance(made, CooTensor)
    values = made.fetch()
    assert values.nnz == made.nnz == 4 * 140 + 40
    assert made.density == pytest.approx(0.1)
    assert 0 <= values.data.min() < values.data.max() < 1
    again = wt.random.RandomState(3).rand(30, 20, 10, density=0.1, chunk_size=(7, 20, 10)).fetch()
    np.testing.assert_array_equal(values.todense(), again.todense())
    vector = wt.random.default_rng(1).standard_normal(1000, density=0.5)
    assert (vector.fetch().data < 0).any()


def test_arrays_are_kept_and_travel(session):
    value = sparse.random((40, 50, 60), density=0.05, random_state=1)
    made = wt.asarray(value, chunk_size=20)
    kept = (made * 2).execute(session)
    assert kept._ready()
    assert "computed" in repr(kept)
    one, total = wt.fetch(kept, made.sum(), session=session)
    assert total == pytest.approx(value.todense().sum())
    np.testing.assert_allclose(one.todense(), 2 * value.todense())
    found = pickle.loads(pickle.dumps(made))
    assert isinstance(found, CooTensor)
    np.testing.assert_allclose(found.to_numpy(), value.todense())
    np.testing.assert_allclose(kept.sum(axis=(0, 2)).fetch(session).todense(), 2 * value.todense().sum(axis=(0, 2)))


def test_memory_is_that_of_stored_elements():
    """An array of 8 EB in dense form is added up in a session of 256 MiB."""
    n = 10**6
    places = np.stack([np.arange(1000) * 997] * 3)
    value = sparse.COO(places, np.arange(1.0, 1001.0), shape=(n, n, n))
    with wt.Session(workers=2, memory="256MiB", direct=False) as session:
        made = wt.asarray(value, chunk_size=n // 4)
        lines = (made + made).sum(axis=(0, 1))
        assert lines.shape == (n,)
        assert lines.sum().fetch(session) == 2 * value.data.sum()
        by_line = (made * wt.arange(n, chunk_size=n // 4)).transpose(2, 0, 1).sum(axis=(1, 2)).fetch(session)
        np.testing.assert_array_equal(by_line.todense()[places[0]], value.data * places[0])


@pytest.mark.parametrize(
    ("shape", "n"),
    [
        ((6, 4, 5), 3),
        ((24, 5), 3),
        ((5, 24), 1),
        ((120,), 3),
        ((2, 3, 4, 5), 2),
        ((1, 120), 1),
        ((120, 1), 3),
        ((60, 2), 3),
    ],
)  # fmt: skip
def test_chunks_of_rows_stay_apart_in_other_shapes(shape, n):
    value = np.arange(120.0).reshape(6, 20) * (np.arange(20) % 3 == 0)
    made = wt.asarray(sparse.COO.from_numpy(value), chunk_size=(2, 20)).reshape(shape)
    same(made, value.reshape(shape), str(shape))
    assert prod(map(len, made.chunks)) == n


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda t: np.asarray(t), TypeError, "a sparse array would become dense"),
        (lambda t: wt.sort(t), TypeError, "CooTensor: this function takes no sparse arrays"),
        (lambda t: np.sort(t), TypeError, r"numpy\.sort of a sparse array is not supported"),
        (lambda t: np.add(t, t, out=np.ones((2, 3, 4))), TypeError, "without further arguments"),
        (lambda t: t[5], IndexError, "index 5 is out of bounds for axis 0 with size 2"),
        (lambda t: t[[7]], IndexError, "out of bounds for axis 0"),
        (lambda t: t[1, 1, 1, 1], IndexError, "4 indices for an array of 3 axes"),
        (lambda t: t[np.array([True])], IndexError, "boolean index did not match"),
        (lambda t: t[[0], [1]], IndexError, "one vector of integers or booleans: select axis by axis"),
        (lambda t: t[[[0]]], IndexError, "one vector of integers or booleans"),
        (lambda t: t[t > 0.5], IndexError, r"takes no mask of several axes: np.where\(mask, x, 0\) .* x.todense\(\)"),
        (lambda t: t[t.fetch() > 0.5], IndexError, "takes no mask of several axes"),
        (lambda t: t.reshape(5, -1), ValueError, "cannot reshape array of size 24"),
        (lambda t: t.transpose(0, 1), ValueError, "axes don't match array"),
        (lambda t: t.squeeze(0), ValueError, "cannot select an axis to squeeze out"),
        (lambda t: t + np.ones(3), ValueError, "broadcast"),
        (lambda t: t @ np.ones(3), ValueError, r"shapes \(2, 3, 4\) and \(3,\) do not fit"),
        (lambda t: t @ 2, ValueError, "does not have enough dimensions"),
        (lambda t: (t + 1) @ np.ones(4), ValueError, "products need a fill value of 0, and this sparse array has 1.0"),
        (lambda t: np.tensordot(t, t, 1), ValueError, "shape-mismatch"),
        (lambda t: wt.concat([t, t + 1]), ValueError, r"different fill values: \[0.0, 1.0\]"),
        (lambda t: wt.concat([t, np.ones((2, 3, 4))]), TypeError, "concatenated with sparse ones"),
        (lambda t: wt.concat([t, t[0]]), ValueError, "are not concatenated along axis 0"),
        (lambda t: t[:0].max(axis=0), ValueError, "zero-size array"),
        (lambda t: np.where(t, np.ones(4), t), TypeError, "where of sparse and dense arrays is not supported"),
        (lambda t: wt.asarray(np.array(["a"])).tosparse(), TypeError, "arrays are sparse if they have numbers"),
        (lambda t: len(t.sum(axis=(0, 1))[0]), TypeError, r"len\(\) of unsized object"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused(call, kind, words):
    value = np.zeros((2, 3, 4))
    value[1, 1, 1] = 1
    with pytest.raises(kind, match=words):
        call(wt.asarray(sparse.COO.from_numpy(value)))


def test_attributes_are_those_of_arrays():
    t: Any = wt.asarray(sparse.COO.from_numpy(np.ones((2, 3, 4))), chunk_size=(1, 3, 4))
    assert (t.shape, t.ndim, t.size, len(t), t.device) == ((2, 3, 4), 3, 24, 2, "cpu")
    assert t.chunks == ((1, 1), (3,), (4,))
    assert t.rechunk(2).chunks == ((2,), (2, 1), (2, 2))
    assert t.mT.shape == (2, 4, 3)
    assert t.tosparse() is t
    assert "to be computed" in repr(-t)
    assert (~(t > 0)).any().fetch() is np.False_ or not (~(t > 0)).any().fetch()


def test_a_sparse_vector_of_booleans_selects_lines_and_the_ways_out_of_a_mask_work():
    values = np.where(np.arange(60) % 7, 0.0, np.arange(60)).reshape(5, 4, 3)
    x = wt.asarray(sparse.COO.from_numpy(values), chunk_size=2)
    for mask in (x[:, 0, 0] > 0, x.fetch()[:, 0, 0] > 0):
        same(x[mask], values[values[:, 0, 0] > 0], "a sparse vector")
    mask = x > 9
    same(np.where(mask, x, 0), np.where(values > 9, values, 0), "where")
    assert np.array_equal(x.todense()[mask.todense()].fetch(), values[values > 9])
