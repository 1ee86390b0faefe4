"""NumPy's functions on our arrays."""

import pickle
import warnings

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors.arrays import interoperation

X = np.arange(12.0).reshape(3, 4) - 5


def t(x=X):
    return wt.asarray(x, chunk_size=2)


LAZY = {
    "add": lambda x: np.add(x, 1),
    "array on the left": lambda x: X + x,
    "a scalar of NumPy's on the left": lambda x: np.float32(2) * x,
    "add.reduce": lambda x: np.add.reduce(x),
    "add.reduce of all": lambda x: np.add.reduce(x, axis=None),
    "maximum.reduce": lambda x: np.maximum.reduce(x, axis=1, keepdims=True),
    "add.accumulate": lambda x: np.add.accumulate(x, axis=1),
    "maximum.accumulate": lambda x: np.maximum.accumulate(x),
    "subtract.outer": lambda x: np.subtract.outer(x[0], x[:, 1]),
    "another type": lambda x: np.multiply(x, 2, dtype=np.float32),
    "modf": lambda x: np.modf(x)[1],
    "matmul": lambda x: np.matmul(x, x.T),
    "sum": lambda x: np.sum(x, axis=0),
    "sum of floats": lambda x: np.sum(x, 1, np.float32),
    "mean": lambda x: np.mean(x, 0, keepdims=True),
    "std": lambda x: np.std(x, ddof=1),
    "argsort": lambda x: np.argsort(x, 1, "stable"),
    "concatenate": lambda x: np.concatenate((x, X), 1),
    "vstack": lambda x: np.vstack([x, x]),
    "where": lambda x: np.where(x > 0, x, 0),
    "where of one": lambda x: np.where(x > 0)[0],
    "reshape": lambda x: np.reshape(x, (4, 3)),
    "transpose": lambda x: np.transpose(x, (1, 0)),
    "moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "broadcast_to": lambda x: np.broadcast_to(x[0], (2, 4)),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "clip": lambda x: np.clip(x, -1, 3),
    "round": lambda x: np.round(x / 3, 1),
    "unique": lambda x: np.unique(x),
    "histogram": lambda x: np.histogram(x, bins=4)[0],
    "linalg.norm": lambda x: np.linalg.norm(x, axis=1),
    "linalg.svd": lambda x: np.linalg.svd(x, full_matrices=False)[1],
    "fft.fft": lambda x: np.fft.fft(x),
    "zeros_like": lambda x: np.zeros_like(x),
    "take": lambda x: np.take(x, [0, 2], axis=1),
    "diff": lambda x: np.diff(x, 2, 1),
    "pad": lambda x: np.pad(x, 1),
    "pad with a value": lambda x: np.pad(x, 1, constant_values=3),
    "apply_along_axis": lambda x: np.apply_along_axis(np.cumsum, 0, x),
    "apply_along_axis with arguments": lambda x: np.apply_along_axis(lambda line, by: line * by, 0, x, 3),
    "apply_along_axis with words": lambda x: np.apply_along_axis(lambda line, by: line * by, 0, x, by=3),
    "piecewise with arguments": lambda x: np.piecewise(x, [x < 0], [lambda c, by: c * by, lambda c, by: -c], 3),
    "piecewise with words": lambda x: np.piecewise(x, [x < 0], [lambda c, by: c * by, lambda c, by: -c], by=3),
    "median": lambda x: np.median(x, axis=0),
    "dot": lambda x: np.dot(x, x.T),
}  # fmt: skip


@pytest.mark.parametrize("name", LAZY)
def test_what_we_have_is_ours(name):
    ours, theirs = LAZY[name](t()), LAZY[name](X)
    assert isinstance(ours, wt.Tensor)
    assert not ours._ready() or name == "histogram"
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours.fetch(), theirs, rtol=1e-6 if theirs.dtype == np.float32 else 1e-12, atol=1e-12)


def computes(x):
    return np.multiply.reduceat(x, [0, 2])


COMPUTED = {
    "multiply.reduceat": lambda x: computes(x[0]),
    "sort in another order": lambda x: np.reshape(x, (4, 3), order="F"),
    "sum from": lambda x: np.sum(x, initial=3.0),
    "sum where": lambda x: np.sum(x, where=X > 0),
    "add.reduceat": lambda x: np.add.reduceat(x, [0, 2]),
    "hypot.reduce": lambda x: np.hypot.reduce(x),
}


@pytest.mark.filterwarnings("ignore::weft.tensor.NumpyFallbackWarning")
@pytest.mark.parametrize("name", COMPUTED)
def test_what_we_have_not_is_computed(name):
    np.testing.assert_allclose(np.asarray(COMPUTED[name](t())), COMPUTED[name](X))


@pytest.fixture
def nothing_told(monkeypatch):
    monkeypatch.setattr(interoperation, "_told", set())


def test_each_function_that_computes_warns_once(nothing_told):
    for again in range(2):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            computes(t()[0])
            computes(t()[0])
            np.add.reduceat(t(), [0, 2])
            np.put(t(), [0], 1)
        found = [(str(one.message).split()[0], one.category, one.filename) for one in seen]
        names = ["numpy.multiply.reduceat", "numpy.add.reduceat"] if again == 0 else []
        assert found == [(name, wt.NumpyFallbackWarning, __file__) for name in names]


def test_functions_that_compute_can_be_errors(nothing_told):
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error", wt.NumpyFallbackWarning)
            with pytest.raises(wt.NumpyFallbackWarning):
                computes(t()[0])
        with wt.option_context({"numpy_fallback": "forbid"}), pytest.raises(TypeError, match=r"numpy\.multiply"):
            computes(t()[0])
        with wt.option_context({"numpy_fallback": "allow"}):
            assert computes(t()[0]) is not None
    with pytest.raises(TypeError, match="give 'allow', 'forbid', 'warn'"):
        wt.options.numpy_fallback = "never"
    with wt.option_context({"numpy_fallback": "forbid"}):
        assert "-5" in np.array_str(t())


COORDINATES = np.array([0.0, 1, 3, 4])
STILL_LAZY = {
    "bitwise_count": lambda x: np.bitwise_count(x.astype(np.int64)),
    "convolve": lambda x: np.convolve(x[0], x[1]),
    "interp": lambda x: np.interp(0.5, x[0], x[1]),
    "gradient": lambda x: np.gradient(x, axis=0),
    "gradient with distances": lambda x: np.gradient(x, 2.0, COORDINATES, edge_order=2)[1],
    "kron": lambda x: np.kron(x, x[:2, 0]),
    "rot90": lambda x: np.rot90(x, 3),
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 1),
}


@pytest.mark.parametrize("name", STILL_LAZY)
def test_more_functions_stay_lazy(name):
    found, wanted = STILL_LAZY[name](t() + 0), STILL_LAZY[name](X + 0)
    assert isinstance(found, wt.Tensor)
    assert not found._ready()
    np.testing.assert_allclose(found.fetch(), wanted)


def test_what_an_array_is_is_told_without_its_values():
    x = t() + 1
    assert (np.shape(x), np.ndim(x), np.size(x), np.size(x, 1)) == ((3, 4), 2, 12, 4)
    assert np.isrealobj(x)
    assert not np.iscomplexobj(x)
    assert np.result_type(x, np.complex64) == np.complex128
    assert not x._ready()


def test_out_is_written_to():
    x, into = t(), np.zeros((3, 4))
    assert np.add(x, 1, out=into) is into
    np.testing.assert_array_equal(into, X + 1)
    mine = t(np.zeros((3, 4)))
    assert np.multiply(X, 2, out=mine) is mine
    np.testing.assert_array_equal(mine.fetch(), X * 2)
    np.negative(x, out=mine, where=X > 0)
    np.testing.assert_array_equal(mine.fetch(), np.where(X > 0, -X, X * 2))
    assert np.sum(x, axis=0, out=into[0]) is not None
    np.testing.assert_array_equal(into[0], X.sum(axis=0))
    x += X
    np.testing.assert_array_equal(x.fetch(), 2 * X)
    own = X.copy()
    own += t()
    np.testing.assert_array_equal(own, 2 * X)
    with pytest.raises(TypeError, match="Cannot cast"):
        np.add(x, 0.5, out=t(np.zeros((3, 4), int)))
    with pytest.raises(ValueError, match="non-broadcastable"):
        np.add(x, 0.5, out=wt.zeros(4))  # type: ignore[call-overload]


def test_copyto_both_ways():
    x, y = t(), np.zeros((3, 4))
    np.copyto(y, x)
    np.testing.assert_array_equal(y, X)
    np.copyto(x, 1.0, where=X > 0)
    np.testing.assert_array_equal(x.fetch(), np.where(X > 0, 1, X))


@pytest.mark.filterwarnings("ignore::weft.tensor.NumpyFallbackWarning")
def test_what_numpy_changes_in_place_is_changed():
    x, y = t(), X.copy()
    for one in (x, y):
        np.put(one, [0, 5], [7.0, 8.0])
        np.add.at(one, ([1, 1], [2, 2]), 1.5)
        np.negative.at(one, 2)
    np.testing.assert_array_equal(x.fetch(), y)
    assert x.chunks == t().chunks
    np.put(y, [0], t()[:1, 0])
    assert y[0, 0] == -5


class Other:
    """An array of another library that knows what to do."""

    __array_ufunc__ = None

    def __radd__(self, other):
        return "theirs"

    def __array_function__(self, func, types, args, kwargs):
        return "theirs"


def test_others_are_asked():
    assert t() + Other() == "theirs"
    assert np.concatenate([t(), Other()]) == "theirs"


def test_numpy_reads_an_array():
    assert np.asarray(t()).dtype == X.dtype
    assert np.asarray(t(), dtype=np.float32).dtype == np.float32
    mine = t()
    copied = np.array(mine)
    copied[0, 0] = 99
    assert mine.fetch()[0, 0] == -5
    with pytest.raises(ValueError, match="copy is needed"):
        np.array(t(), dtype=np.int8, copy=False)


def test_arrays_are_pickled_with_their_values():
    x = t() + 1
    found = pickle.loads(pickle.dumps(x))
    assert isinstance(found, wt.Tensor)
    np.testing.assert_array_equal(found.fetch(), X + 1)
    x[0, 0] = 7
    assert found.fetch()[0, 0] == -4


@pytest.mark.parametrize("name", ["nanstd", "nanvar"])
def test_a_mask_alone_may_be_an_array_of_ours(name):
    x, mask = np.arange(6).reshape(2, 3), np.array([True, False, True])
    for axis in (None, 1):
        found = getattr(np, name)(x, axis=axis, where=wt.asarray(mask))
        np.testing.assert_allclose(np.asarray(found), getattr(np, name)(x, axis=axis, where=mask), strict=True)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("add.reduce", ()),
        ("add.reduce", (None,)),
        ("multiply.reduce", (1, np.float32)),
        ("maximum.accumulate", (1,)),
        ("logical_or.reduce", (0,)),
        ("subtract.outer", ([1, 2],)),
        ("power.outer", (2,)),
        ("subtract.reduce", (1,)),
        ("add.reduceat", ([0, 2], 1)),
    ],
)
@pytest.mark.parametrize("given", [t(), X, X.tolist()], ids=["a Tensor", "an array of NumPy", "lists"])
@pytest.mark.filterwarnings("ignore::weft.tensor.NumpyFallbackWarning")
def test_functions_have_the_methods_of_ufuncs(name, args, given):
    function, method = name.split(".")
    found, wanted = [getattr(getattr(xp, function), method)(x, *args) for xp, x in ((wt, given), (np, X))]
    assert np.asarray(found).dtype == wanted.dtype
    np.testing.assert_array_equal(np.asarray(found), wanted)


def test_methods_of_functions_take_the_array_for_the_result():
    into = wt.zeros(4)
    wt.add.reduce(t(), out=into)
    assert into.fetch().tolist() == X.sum(axis=0).tolist()


@pytest.mark.parametrize("x", [wt.arange(6.0), np.arange(6.0)], ids=["a Tensor", "an array of NumPy"])
@pytest.mark.filterwarnings("ignore::weft.tensor.NumpyFallbackWarning")
def test_functions_change_elements_at_repeated_places(x):
    wt.add.at(x, [1, 1, 3], 10)
    wt.negative.at(x, [0, 5])
    assert np.asarray(x).tolist() == [0, 21, 2, 13, 4, -5]


def test_functions_of_one_array_reduce_nothing():
    assert not hasattr(wt.sin, "reduce")
    with pytest.raises(TypeError, match="no sparse arrays"):
        wt.add.reduce(wt.eye(2, sparse=True))
