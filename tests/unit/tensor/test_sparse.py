"""Sparse matrices in chunks equal SciPy's and NumPy's, however they are cut."""

import os
import pickle
import random
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import weft.tensor as wt
from tests.properties.tensors.drawing import chunks
from weft.frontends.tensors.arrays.sparse import SparseTensor
from weft.frontends.tensors.compiler import compile_nodes
from weft.model.errors import CapacityError, MissingExtraError

sp: Any = pytest.importorskip("scipy.sparse", reason="SciPy is not installed: pip install 'weft[scipy]'")
COUNT = {"fast": 4, "soak": 250}.get(os.environ.get("HYPOTHESIS_PROFILE", "ci"), 8)


def drawn(rng: random.Random, shape: Any, dtype: Any = None) -> Any:
    made = sp.random_array(shape, density=rng.choice([0, 0.1, 0.5]), rng=np.random.default_rng(rng.getrandbits(32)))
    return sp.csr_array((made * 10 - 5 * (made != 0)).astype(dtype or rng.choice(["f8", "f4", "i4", "c16"])))


def cut(value: Any, rng: random.Random) -> Any:
    return wt.asarray(value, chunk_size=chunks(rng, value.shape))


def same(found: Any, wanted: Any, told: str) -> None:
    values = found.fetch() if hasattr(found, "fetch") else found
    if isinstance(found, SparseTensor):
        assert sp.issparse(values), told
        assert values.dtype == found.dtype, told
        values = values.toarray()
    wanted = wanted.toarray() if sp.issparse(wanted) else np.asarray(wanted)
    assert np.shape(values) == wanted.shape == found.shape, told
    assert found.dtype == np.asarray(values).dtype, told
    np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-5, err_msg=told)


@pytest.fixture(scope="module", params=["here", "threads", "processes"])
def session(request):
    kind = "processes" if request.param == "processes" else "threads"
    with wt.Session(backend=kind, workers=2, direct=request.param == "here") as made:
        yield made


@pytest.fixture
def here():
    """A session that computes here: that of the module may be open, on processes, since its last test ran."""
    with wt.Session(workers=2, direct=True):
        yield


CALLS: dict[str, Any] = {
    "negative": lambda a, b, x: -a,
    "abs": lambda a, b, x: abs(a),
    "add": lambda a, b, x: a + b,
    "subtract": lambda a, b, x: a - b,
    "scaled": lambda a, b, x: a * 2.5,
    "scaled from the left": lambda a, b, x: 3 * a,
    "divided": lambda a, b, x: a / 4,
    "power": lambda a, b, x: a**2,
    "not equal": lambda a, b, x: a != b,
    "transposed": lambda a, b, x: a.T,
    "rows": lambda a, b, x: a[1:4],
    "every other row from the end": lambda a, b, x: a[::-2],
    "block": lambda a, b, x: a[1:, :3],
    "no rows": lambda a, b, x: a[2:2],
    "all": lambda a, b, x: a[...],
    "rows by numbers": lambda a, b, x: a[np.array([2, 0, -1, 2])],
    "columns by numbers": lambda a, b, x: a[:, [1, 0]],
    "rows by a mask": lambda a, b, x: a[np.arange(a.shape[0]) % 2 == 0],
    "sum": lambda a, b, x: a.sum(),
    "sum of columns": lambda a, b, x: a.sum(axis=0),
    "sum of rows": lambda a, b, x: a.sum(axis=1),
    "mean": lambda a, b, x: a.mean(axis=0),
    "mean of all": lambda a, b, x: a.mean(),
    "by a vector": lambda a, b, x: a @ x,
    "by a matrix": lambda a, b, x: a @ np.stack([x, 2 * x], axis=1),
    "from the left": lambda a, b, x: np.arange(a.shape[0]) @ a,
    "matrix from the left": lambda a, b, x: np.arange(3.0 * a.shape[0]).reshape(3, -1) @ a,
    "sparse product": lambda a, b, x: a @ b.T,
    "sum of products": lambda a, b, x: (a @ b.T + a @ a.T).sum(axis=0),
    "astype": lambda a, b, x: a.astype("c16"),
}


@pytest.mark.parametrize("name", CALLS)
def test_sparse_arrays_equal_those_of_scipy(name, session, seed):
    draws = 1 if session.apart else COUNT if session.direct else 2  # the arithmetic is the same everywhere
    for number in range(seed, seed + draws):
        rng = random.Random(number)
        shape = rng.randint(4, 9), rng.randint(4, 9)
        a, b = drawn(rng, shape), drawn(rng, shape)
        x = np.round(np.random.default_rng(number).normal(size=shape[1]) * 5)
        told = f"repeat with WEFT_SEED={number}: {name} {shape} {a.dtype} {b.dtype}"
        found = CALLS[name](cut(a, rng), cut(b, rng), x)
        with np.errstate(all="ignore"):
            same(found, CALLS[name](a, b, x), told)


FUNCTIONS: dict[str, Any] = {
    "sum": lambda xp, a, b, x: xp.sum(a, axis=0),
    "mean": lambda xp, a, b, x: xp.mean(a),
    "var": lambda xp, a, b, x: xp.var(a, axis=1),
    "var with a correction": lambda xp, a, b, x: xp.var(a, axis=0, correction=1),
    "std": lambda xp, a, b, x: xp.std(a, axis=0),
    "elements": lambda xp, a, b, x: a[[0, 2, -1, 2], [1, 1, 0, 3]],
    "elements of a column": lambda xp, a, b, x: a[[0, 2], [1]],
    "elements by a mask": lambda xp, a, b, x: a[np.arange(a.shape[0]) == 1, [2]],
    "grid of elements": lambda xp, a, b, x: a[np.ix_([2, 0], [1, 3, 1])],
    "row and columns": lambda xp, a, b, x: a[1, [2, 0]],
    "max": lambda xp, a, b, x: xp.max(a, axis=1, keepdims=True),
    "any": lambda xp, a, b, x: xp.any(a, axis=0),
    "count_nonzero": lambda xp, a, b, x: xp.count_nonzero(a, axis=1),
    "dot": lambda xp, a, b, x: xp.dot(a, x),
    "dot from the left": lambda xp, a, b, x: xp.dot(x, a.T),
    "matmul": lambda xp, a, b, x: xp.matmul(a, b.T),
    "add": lambda xp, a, b, x: xp.add(a, b),
    "multiply": lambda xp, a, b, x: xp.multiply(a, 3),
    "sin": lambda xp, a, b, x: xp.sin(a),
    "abs": lambda xp, a, b, x: xp.abs(a),
    "transpose": lambda xp, a, b, x: xp.transpose(a),
    "same axes": lambda xp, a, b, x: xp.transpose(a, (0, 1)),
    "matrix_transpose": lambda xp, a, b, x: xp.matrix_transpose(a),
    "real": lambda xp, a, b, x: xp.real(a),
    "concatenate": lambda xp, a, b, x: xp.concatenate([a, b, a], axis=1),
    "vstack": lambda xp, a, b, x: xp.vstack([a, b]),
    "hstack": lambda xp, a, b, x: xp.hstack([a, b]),
    "diagonal": lambda xp, a, b, x: xp.diagonal(a),
    "diagonal above": lambda xp, a, b, x: xp.diagonal(a, 2),
    "diagonal below": lambda xp, a, b, x: xp.diagonal(a, -1),
    "diagonal of the transpose": lambda xp, a, b, x: xp.diagonal(a, 1, 1, 0),
    "diagonal outside": lambda xp, a, b, x: xp.diagonal(a, 20),
    "trace": lambda xp, a, b, x: xp.trace(a),
    "norm": lambda xp, a, b, x: xp.linalg.norm(a),
    "norm 1": lambda xp, a, b, x: xp.linalg.norm(a, 1),
    "norm inf": lambda xp, a, b, x: xp.linalg.norm(a, np.inf),
    "norms of rows": lambda xp, a, b, x: xp.linalg.norm(a, axis=1),
}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_both_names_take_sparse_arrays(name, seed):
    for number in range(seed, seed + COUNT):
        rng = random.Random(number)
        shape = rng.randint(4, 9), rng.randint(4, 9)
        a, b = drawn(rng, shape, "f8"), drawn(rng, shape, "f8")
        x = np.arange(float(shape[1]))
        found = FUNCTIONS[name](wt if number % 2 else np, cut(a, rng), cut(b, rng), x)
        wanted = FUNCTIONS[name](np, a.toarray(), b.toarray(), x)
        same(found, wanted, f"repeat with WEFT_SEED={number}: {name} {shape}")


def test_functions_take_sparse_arrays_of_scipy():
    a = sp.csr_array(np.array([[0, 1.5], [2, 0]]))
    assert wt.sum(a).fetch() == 3.5
    assert wt.matmul(a, wt.ones(2)).fetch().tolist() == [1.5, 2]
    assert wt.concat([a, a]).fetch().shape == (4, 2)


def test_the_truth_of_a_sparse_array_is_as_with_scipy():
    for values in ([[0]], [[2]]):
        assert bool(wt.asarray(sp.csr_array(values))) == bool(sp.csr_array(values))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(wt.asarray(sp.csr_array([[0, 2]])))


def test_sparse_arrays_are_made(session):
    for made, wanted in (
        (wt.zeros((5, 7), sparse=True), np.zeros((5, 7))),
        (wt.eye(5, 7, k=2, sparse=True), np.eye(5, 7, 2)),
        (wt.eye(7, 5, k=-3, dtype="i4", sparse=True), np.eye(7, 5, -3)),
        (wt.eye(3, k=9, sparse=True), np.zeros((3, 3))),
        (wt.identity(4, sparse=True, chunk_size=3), np.eye(4)),
        (wt.tensor([[0, 1], [2, 0]], sparse=True), np.array([[0, 1], [2, 0]])),
    ):
        assert made.issparse()
        same(made, wanted, repr(made))


def test_random_numbers_are_in_a_share_of_the_elements(session):
    session.as_default()
    made = wt.random.RandomState(3).rand(1000, 800, density=0.01, chunk_size=(300, 800))
    assert made.issparse()
    values = made.fetch()
    assert values.nnz == 3 * 2400 + 800
    assert 0 <= values.data.min() < values.data.max() < 1
    assert len(np.unique(values.data)) == values.nnz
    again = wt.random.RandomState(3).rand(1000, 800, density=0.01, chunk_size=(300, 800)).fetch()
    np.testing.assert_array_equal(values.toarray(), again.toarray())
    other = wt.random.default_rng(3).standard_normal((100, 100), density=0.5, dtype="f4")
    assert other.dtype == np.float32
    assert (other.fetch().data < 0).any()
    assert wt.random.random((10**6, 10**6), density=1e-9).sum().fetch() > 0


REAL: dict[str, Any] = {
    "max": lambda a: a.max(),
    "max of columns": lambda a: a.max(axis=0),
    "min of rows": lambda a: a.min(axis=1),
    "count": lambda a: np.count_nonzero(a, axis=0) if isinstance(a, np.ndarray) else a.count_nonzero(axis=0),
    "any": lambda a: (a != 0).any(axis=1) if isinstance(a, np.ndarray) else a.any(axis=1),
    "var": lambda a: a.var(axis=0),
    "std of all": lambda a: a.std(),
    "larger": lambda a: a > 2,
    "at least": lambda a: a >= 0.5,
    "equal": lambda a: a == 3,
    "sin": np.sin,
    "square root": lambda a: np.sqrt(abs(a)),
    "by numbers": lambda a: a * np.arange(a.shape[1]),
    "by a column": lambda a: a * np.arange(a.shape[0])[:, None],
    "element": lambda a: a[2, 3],
    "row": lambda a: a[1],
    "column": lambda a: a[:, -1],
    "dense sum": lambda a: a + np.arange(a.shape[1]),
    "dense difference": lambda a: np.ones(a.shape) - a,
}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", REAL)
def test_sparse_arrays_equal_dense_ones(name, seed):
    for number in range(seed, seed + COUNT):
        rng = random.Random(number)
        a = drawn(rng, (rng.randint(4, 9), rng.randint(4, 9)), "f8")
        same(REAL[name](cut(a, rng)), REAL[name](a.toarray()), f"repeat with WEFT_SEED={number}")


def test_chunks_change_and_become_dense_and_sparse_again(seed, session):
    for number in range(seed, seed + COUNT // 2):
        rng = random.Random(number)
        a = drawn(rng, (7, 8))
        made = cut(a, rng).rechunk(chunks(rng, a.shape))
        same(made, a, f"repeat with WEFT_SEED={number}")
        same(made.todense(), a, f"repeat with WEFT_SEED={number}")
        same(made.todense().tosparse(), a, f"repeat with WEFT_SEED={number}")
        assert made.nnz == a.nnz


def test_products_of_many_chunks_are_added_by_a_tree():
    a = sp.csr_array(sp.random_array((50, 400), density=0.1, rng=np.random.default_rng(1)))
    x, y = np.random.default_rng(2).random((2, 400))
    t = wt.asarray(a, chunk_size=(20, 10))
    np.testing.assert_allclose((t @ x).fetch(), a @ x)
    np.testing.assert_allclose((t @ wt.asarray(np.stack([x, y], 1), chunk_size=1)).fetch(), a @ np.stack([x, y], 1))
    np.testing.assert_allclose((wt.asarray(x, chunk_size=7) @ t.T).fetch(), x @ a.T)
    np.testing.assert_allclose((t @ t.T).fetch().toarray(), (a @ a.T).toarray())
    np.testing.assert_allclose((wt.asarray(np.stack([x, y]), chunk_size=9) @ sp.csc_array(a.T)).fetch(),
                               np.stack([x, y]) @ a.T)  # fmt: skip


def test_sparse_arrays_are_kept_and_travel(session):
    a = sp.csr_array(sp.random_array((2000, 3000), density=0.05, rng=np.random.default_rng(1)))
    t = wt.asarray(a, chunk_size=(500, 3000))
    kept = (t * 2).execute(session)
    assert kept._ready()
    x = np.ones(3000)
    np.testing.assert_allclose((kept @ x).fetch(session), 2 * (a @ x))
    one, total = wt.fetch(kept, t.sum(), session=session)
    assert total == pytest.approx(a.sum())
    assert (one != 2 * a).nnz == 0
    found = pickle.loads(pickle.dumps(t))
    assert isinstance(found, SparseTensor)
    assert (found.fetch() != a).nnz == 0


def test_memory_is_that_of_stored_elements():
    """A matrix of 80 TB in dense form is multiplied in a session of 64 MiB."""
    n = 10**7
    a = sp.csr_array(sp.diags_array(np.arange(1.0, 1001.0), offsets=0, shape=(1000, n)))
    t = wt.asarray(a, chunk_size=(100, n))
    with wt.Session(workers=2, memory="512MiB", direct=False) as session:
        both = (t + t).T.sum(axis=0)
        np.testing.assert_array_equal(both.fetch(session), 2 * np.arange(1.0, 1001.0))
        with pytest.raises(CapacityError):
            t.todense().execute(session)
    needs = compile_nodes([(t * 2)._node]).needs
    assert max(need.total for need in needs) < 2**20 * 100


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_array", "coo_array", "lil_array", "dok_array", "bsr_array"])
def test_all_formats_of_scipy_are_taken(kind):
    a = getattr(sp, kind)(np.array([[0, 1.5], [2, 0]]))
    for made in (wt.asarray(a), wt.tensor(a, chunk_size=1), wt.from_array(a)):
        assert isinstance(made, SparseTensor)
        assert made.issparse()
        assert made.fetch().toarray().tolist() == [[0, 1.5], [2, 0]]
    doubled = sp.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 2))
    assert wt.asarray(doubled).max().fetch() == 3


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda t: np.exp(t), TypeError, "exp of a sparse array is dense, since it is not 0 of 0: give x.todense"),
        (lambda t: t + 1, TypeError, "add with 1 is dense"),
        (lambda t: t == 0, TypeError, "equal with 0 is dense"),
        (lambda t: t == t, TypeError, "equal of two sparse arrays is dense"),
        (lambda t: t / t, TypeError, "divide of two sparse arrays is dense"),
        (lambda t: t / np.ones(3), TypeError, "divide of a sparse and a dense array"),
        (lambda t: t**0, TypeError, "power with 0 is dense"),
        (lambda t: t @ np.ones(2), ValueError, r"shapes \(2, 3\) and \(2,\) do not fit"),
        (lambda t: t @ 2, ValueError, "does not have enough dimensions"),
        (lambda t: t @ np.ones((2, 3, 3)), ValueError, "not by a stack"),
        (lambda t: t + t.T, ValueError, "do not go together"),
        (lambda t: t * np.ones((4, 2, 3)), ValueError, "is not broadcast to a sparse one"),
        (lambda t: t[5], IndexError, "index 5 is out of bounds for axis 0"),
        (lambda t: t[[7]], IndexError, "out of bounds for axis 0"),
        (lambda t: t[1, 1, 1], IndexError, "3 indices for an array of 2 axes"),
        (lambda t: t[np.array([True])], IndexError, "boolean index did not match"),
        (lambda t: np.asarray(t), TypeError, "a sparse array would become dense"),
        (lambda t: np.sort(t), TypeError, r"numpy\.sort of a sparse array is not supported"),
        (lambda t: np.add(t, t, out=np.ones((2, 3))), TypeError, "without further arguments"),
        (lambda t: wt.sort(t), TypeError, "SparseTensor: this function takes no sparse arrays"),
        (lambda t: wt.exp(t), TypeError, "exp of a sparse array is dense"),
        (lambda t: wt.sqrt(t.astype("u1")), TypeError, "sqrt of uint8 is float16"),
        (lambda t: t[[0, 1], [0, 1, 2]], ValueError, "shape mismatch"),
        (lambda t: t[[0], [9]], IndexError, "out of bounds for axis 1"),
        (lambda t: t[[[0, 1]], [[1, 0]]], IndexError, "a sparse array takes"),
        (lambda t: wt.concat([t, np.ones((2, 3))]), TypeError, "concatenated with sparse ones"),
        (lambda t: wt.concat([t, t], axis=None), TypeError, "concatenated with sparse ones"),
        (lambda t: wt.concat([t, t.T]), ValueError, "are not concatenated along axis 0"),
        (lambda t: wt.linalg.norm(t, 2), TypeError, "the norm 2 of a sparse array is not supported"),
        (lambda t: wt.random.rand(3, 3, density=2), ValueError, "density is 2"),
        (lambda t: wt.random.randint(0, 2, (2, 2), density=0.5), TypeError, "density= is taken by"),
        (lambda t: wt.zeros((2, 2), dtype="f2").tosparse(), TypeError, "have numbers that SciPy supports"),
        (lambda t: t[:0].max(axis=0), ValueError, "zero-size array"),
    ],
)
def test_what_is_not_sparse_is_refused(call, kind, words):
    with pytest.raises(kind, match=words):
        call(wt.asarray(sp.csr_array(np.array([[0, 1.0, 0], [2, 0, 0]]))))


@pytest.mark.skipif(find_spec("sparse") is not None, reason="the package sparse is installed")
@pytest.mark.parametrize(
    "call",
    [
        lambda: wt.asarray(sp.coo_array(([1.0], ([0],)), shape=(2,))),
        lambda: wt.zeros(3, sparse=True),
        lambda: wt.zeros((2, 3, 4)).tosparse(),
        lambda: wt.random.rand(3, density=0.1),
        lambda: wt.eye(2, sparse=True).tocoo(),
    ],
)
def test_arrays_that_are_no_matrices_need_the_package_sparse(call):
    with pytest.raises(MissingExtraError, match="sparse is not installed") as raised:
        call()
    assert raised.value.hint == "Install it: pip install 'weft[sparse]'"


class CountingSession(wt.Session):
    """A session that counts how often it computes."""

    computed = 0

    def compute(self, *args, **kwargs):
        self.computed += 1
        return super().compute(*args, **kwargs)


@pytest.mark.parametrize(
    "call",
    [
        lambda a, x: a @ x,
        lambda a, x: x @ a,
        lambda a, x: a + x[:, None],
        lambda a, x: a * 2,
        lambda a, x: wt.concat([a, a]),
        lambda a, x: wt.asarray(a, dtype="f4"),
    ],
)
def test_a_sparse_operand_is_not_computed_before_its_result_is(call):
    a, x = sp.csr_array(np.eye(6)), np.arange(6.0)
    session = CountingSession(direct=False)
    with session:
        made = call(wt.asarray(a, chunk_size=2) @ wt.asarray(a, chunk_size=2), x)
        assert session.computed == 0
        made.fetch()
        assert session.computed == 1


def test_functions_of_numpy_are_methods():
    t: Any = wt.asarray(sp.csr_array(np.array([[0, 1.0, 0], [2, 0, 0]])))
    assert np.sum(t, axis=0).fetch().tolist() == [2, 1, 0]
    assert np.mean(t).fetch() == 0.5
    assert "to be computed" in repr(-t)
    assert "computed" in repr(t)
    assert (t.T.shape, t.ndim, t.size, t.chunks) == ((3, 2), 2, 6, ((2,), (3,)))
    assert wt.asarray(t, dtype="f4").dtype == np.float32
    assert t.real.fetch().nnz == 2


def test_a_method_of_dense_arrays_alone_names_what_makes_one():
    pytest.importorskip("scipy")
    a = wt.eye(3, sparse=True)
    with pytest.raises(TypeError, match=r"prod of a SparseTensor is not supported: give x\.todense\(\)\.prod"):
        a.prod()
    assert not hasattr(a, "prod")
    assert not hasattr(a, "nothing")
    with pytest.raises(AttributeError, match="'SparseTensor' object has no attribute 'nothing'"):
        a.nothing  # noqa: B018
