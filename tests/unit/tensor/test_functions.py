"""Functions under NumPy's names give what NumPy gives, however the array is cut."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors.arrays import chunkwise, creation, einsum, joining, quantiles, sorting
from weft.frontends.tensors.arrays.array import Tensor
from weft.model.errors import TaskError, UsageError

X = np.random.default_rng(5).normal(size=(7, 6))
Y = np.random.default_rng(6).normal(size=(6, 5))
V = np.arange(1.0, 8.0)
NAN = np.where(X > 1, np.nan, X)
W = np.abs(X) + 0.1
INF = np.array([[np.inf, np.inf, 1.0], [1.0, -np.inf, -np.inf], [1.0, 2.0, np.inf], [-np.inf, 1.0, np.inf]])
COMPLEX = np.array([3 - 2j, 5 + 1j, complex(np.nan, 9)])
N = np.arange(42).reshape(7, 6) % 11
TEXT = np.array(["a", "", "0"])
DATES = np.array(["1970-01-01", "2020-01-01", "NaT"], "M8[D]")
F4, F2 = np.ones(4, "f4"), np.arange(5, dtype="f2")

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("arctan2", (X, X[::-1]), {}),
    ("heaviside", (X, 0.5), {}),
    ("fmod", (X, 0.7), {}),
    ("cbrt", (X,), {}),
    ("modf", (X,), {}),
    ("frexp", (X,), {}),
    ("ldexp", (X, 3), {}),
    ("deg2rad", (X,), {}),
    ("rad2deg", (X,), {}),
    ("radians", (X,), {}),
    ("exp2", (X,), {}),
    ("fabs", (X,), {}),
    ("rint", (X,), {}),
    ("spacing", (X,), {}),
    ("float_power", (W, X), {}),
    ("fmax", (NAN, X[::-1]), {}),
    ("fmin", (NAN, X[::-1]), {}),
    ("logaddexp2", (X, X[::-1]), {}),
    ("amax", (X,), {"axis": 0}),
    ("atleast_1d", (X,), {}),
    ("atleast_2d", (V,), {}),
    ("dsplit", (X[None], 3), {}),
    ("vsplit", (X, [2, 5]), {}),
    ("fliplr", (X,), {}),
    ("nancumprod", (NAN,), {"axis": 0}),
    ("divmod", (X, 0.3), {}),
    ("isclose", (X, X + 1e-9), {}),
    ("allclose", (X, X + 1.0), {}),
    ("array_equal", (X, X), {}),
    ("nan_to_num", (NAN,), {}),
    ("angle", (X + 1j * X[::-1],), {}),
    ("transpose", (X,), {}),
    ("swapaxes", (X, 0, -1), {}),
    ("rollaxis", (X, 1), {}),
    ("ravel", (X,), {}),
    ("concatenate", ([X, X[:2]],), {"axis": 0}),
    ("vstack", ([V, V],), {}),
    ("hstack", ([X, X],), {}),
    ("dstack", ([X, X],), {}),
    ("column_stack", ([V, V],), {}),
    ("array_split", (X, 3), {}),
    ("split", (X, [2, 5]), {}),
    ("hsplit", (X, 3), {}),
    ("flipud", (X,), {}),
    ("append", (X, V), {}),
    ("ptp", (X,), {"axis": 1}),
    ("trapezoid", (X,), {"axis": 0, "dx": 0.5}),
    ("cumsum", (X,), {}),
    ("cumprod", (X,), {"axis": 0}),
    ("nansum", (NAN,), {"axis": 0}),
    ("nanprod", (NAN,), {}),
    ("nancumsum", (NAN,), {"axis": 1}),
    ("nanmax", (NAN,), {"axis": 0}),
    ("nanmin", (NAN,), {}),
    ("nanmean", (NAN,), {"axis": 1}),
    ("nanvar", (NAN,), {"axis": 0, "ddof": 1}),
    ("nanstd", (NAN,), {}),
    ("average", (X,), {"axis": 0, "weights": V}),
    ("average", (X,), {"weights": W}),
    ("quantile", (X, [0.1, 0.5]), {"axis": 0}),
    ("quantile", (X, 0.3), {"keepdims": True}),
    ("percentile", (X, 30), {"axis": 1}),
    ("median", (X,), {"axis": 0}),
    ("median", (INF,), {"axis": 1}),
    ("median", (INF,), {"axis": ()}),
    ("median", (F4,), {}),
    ("median", (F2,), {"keepdims": True}),
    ("median", (X > 0,), {}),
    ("median", (X + 1j * X,), {"axis": 0}),
    ("nanmedian", (F4,), {}),
    ("nanmedian", (NAN,), {"axis": 1}),
    ("quantile", (INF, 1), {"axis": 1}),
    ("quantile", (np.array([1, 2, 3]), 1), {}),
    ("quantile", (np.array([1, 2, 3]), [[0, 1], [1, 0]]), {}),
    ("quantile", (F4, np.float64(0.5)), {}),
    ("nanquantile", (INF, 0), {"axis": 1}),
    ("percentile", (F4, 30), {}),
    ("percentile", (F4, [30, 40.5]), {}),
    ("nanpercentile", (NAN, [5, 50]), {"axis": 0}),
    ("nanvar", (INF,), {"axis": 1}),
    ("nanstd", (INF,), {"axis": 0}),
    ("nanargmax", (COMPLEX,), {}),
    ("nanargmin", (COMPLEX,), {}),
    ("vdot", (X > 0, X < 1), {}),
    ("vdot", (X + 1j, X), {}),
    ("clip", (X > 0, 0, 1), {}),
    ("clip", (X > 0, False, True), {}),
    ("clip", (X > 0, 0, np.int8(1)), {}),
    ("round", (X > 0,), {}),
    ("var", (N,), {"dtype": "c16", "axis": 0}),
    ("var", (N,), {"dtype": "i8", "axis": 0}),
    ("std", (N[:, 0],), {"dtype": "i8"}),
    ("std", (X,), {"dtype": "c16"}),
    ("histogram", (F2,), {"bins": 3}),
    ("histogram", (N,), {"bins": [0, 2, 9]}),
    ("histogram", (N,), {"bins": 4}),
    ("histogram", (F4,), {"bins": 3, "range": (0, 2)}),
    ("histogram_bin_edges", (F2,), {"bins": "auto"}),
    ("histogram_bin_edges", (F4[:0],), {"bins": 2}),
    ("count_nonzero", (TEXT,), {}),
    ("count_nonzero", (np.array([0, None, "", 1, "x", 2.5], dtype=object),), {}),
    ("count_nonzero", (DATES,), {"axis": 0}),
    ("isreal", (TEXT,), {}),
    ("isreal", (DATES,), {}),
    ("iscomplex", (TEXT,), {}),
    ("einsum", (X, [0, 1], [0]), {}),
    ("einsum", (X, [0, 1], Y, [1, 2]), {}),
    ("einsum", (X, [3, 1]), {}),
    ("einsum", (X, [..., 1], X, [..., 1], [...]), {}),
    ("partition", (V[:0], 0), {}),
    ("argpartition", (V[:0], 0), {}),
    ("sum", (X,), {"where": X > 0, "axis": 0}),
    ("sum", (N,), {"where": [True, False, True, False, False, True], "initial": 7}),
    ("sum", (X[:0],), {"initial": 7.0, "axis": 0}),
    ("prod", (X,), {"where": X > 0, "initial": 2.0, "axis": 1}),
    ("max", (X,), {"where": X > 0, "initial": -1.0, "axis": 1, "keepdims": True}),
    ("max", (X[:0],), {"initial": -1.0, "axis": 0}),
    ("amin", (N,), {"initial": 2}),
    ("min", (X,), {"where": X > 9, "initial": 3.0}),
    ("any", (X > 0,), {"where": X < 0, "axis": 0}),
    ("all", (X > 0,), {"where": X > 0}),
    ("mean", (X,), {"where": X > 0, "axis": 1}),
    ("nansum", (NAN,), {"where": X > 0, "initial": 2.0}),
    ("nanprod", (NAN,), {"where": X > 0, "axis": 1}),
    ("nanmax", (NAN,), {"where": X < 0, "initial": -9.0, "axis": 0}),
    ("nanmin", (NAN,), {"initial": 0.5}),
    ("nanmean", (NAN,), {"where": X > -1, "axis": 1}),
    ("nanmean", (NAN.astype("f4"),), {"axis": 1}),
    ("nanmean", (N,), {"where": N > 2}),
    ("nanvar", (NAN,), {"where": X > -1, "axis": 0}),
    ("nanvar", (NAN + 1j * X,), {"axis": 0}),
    ("nanstd", (NAN.astype("f4"),), {"ddof": 1, "axis": 1}),
    ("mean", (N,), {"where": N > 2}),
    ("var", (X,), {"where": X > 0, "axis": 0, "ddof": 0.5}),
    ("std", (X,), {"where": W > 0.3}),
    *[
        ("pad", (one, 2, mode), {})
        for one in (X, N)
        for mode in ("maximum", "mean", "median", "minimum", "linear_ramp")
    ],
    ("pad", (X, ((1, 2), (3, 0)), "mean"), {"stat_length": ((1, 2), (2, 3))}),
    ("pad", (N, 3, "linear_ramp"), {"end_values": ((5, -4), (7, 8))}),
    ("cov", (X,), {}),
    ("cov", (X,), {"rowvar": False}),
    ("cov", (V, V[::-1].copy()), {}),
    ("corrcoef", (X,), {}),
    ("histogram", (X,), {}),
    ("histogram", (X,), {"bins": 5, "range": (-1.0, 1.0), "density": True}),
    ("histogram", (X,), {"bins": [-1.0, 0.0, 2.0], "weights": W}),
    ("bincount", (np.array([1, 4, 4, 0, 2, 2, 2]),), {"minlength": 7}),
    ("digitize", (X, np.array([-1.0, 0.0, 1.0])), {}),
    ("dot", (X, Y), {}),
    ("dot", (V, V), {}),
    ("dot", (X, np.stack([Y, Y])), {}),
    ("inner", (X, X), {}),
    ("vdot", (X, X), {}),
    ("outer", (V, V), {}),
    ("einsum", ("ij,jk->ik", X, Y), {}),
    ("einsum", ("ij,jk,kl->il", X, Y, Y.T), {}),
    ("einsum", ("ij->ji", X), {}),
    ("einsum", ("ii->i", X[:6]), {}),
    ("einsum", ("ij,ij->", X, X), {}),
    ("einsum", ("bij,bjk->bik", np.stack([X, X]), np.stack([Y, Y])), {}),
    ("einsum", ("i,j", V, V), {}),
    ("diagonal", (X, 1), {}),
    ("diag", (V, -1), {}),
    ("diag", (X,), {}),
    ("trace", (X,), {}),
    ("compress", ([True, False, True], X), {"axis": 0}),
    ("flatnonzero", (X > 0,), {}),
    ("argwhere", (X > 0,), {}),
]


def values(made: Any) -> Any:
    if isinstance(made, tuple | list):
        return [values(one) for one in made]
    return made.fetch() if isinstance(made, Tensor) else made


def cut(value: Any, chunk: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [cut(one, chunk) for one in value]
    if not isinstance(value, np.ndarray):
        return value
    return creation.asarray(value, chunk_size=chunk)


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize(("name", "args", "kwargs"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_a_function_gives_what_numpy_gives(name, args, kwargs, chunk):
    reference: Callable[..., Any] = getattr(np, name)
    lazy = getattr(wt, name)(*[cut(one, chunk) for one in args], **kwargs)
    made = values(lazy)
    with np.errstate(all="ignore"):
        expected = reference(*args, **kwargs)
    pairs = zip(made, expected, strict=True) if isinstance(made, list) else [(made, expected)]
    for one, other in pairs:
        assert np.shape(one) == np.shape(other)
        close = 1e-6 if np.asarray(other).dtype in (np.float32, np.complex64) else 1e-10
        np.testing.assert_allclose(one, other, rtol=close, atol=1e-12)
        assert np.asarray(one).dtype == np.asarray(other).dtype
    if isinstance(lazy, Tensor):
        assert lazy.dtype == made.dtype


def test_variances_of_too_few_are_not_numbers():
    x = np.array([[1.0, np.nan], [4.0, np.nan], [np.nan, 3.0], [np.nan, np.nan]])
    with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        expected = np.nanvar(x, axis=0, ddof=2)
    assert np.isnan(expected).all()
    assert np.isnan(wt.nanvar(creation.asarray(x, chunk_size=2), axis=0, ddof=2).fetch()).all()


def test_the_median_of_nothing_is_not_a_number():
    with pytest.warns(RuntimeWarning, match="empty"):
        assert np.isnan(wt.median(wt.zeros(0)).fetch())


@pytest.mark.parametrize("chunk", [None, 3])
def test_the_largest_come_in_order(chunk):
    x = creation.asarray(X, chunk_size=chunk)
    assert np.array_equal(sorting.topk(x, 2, axis=0).fetch(), -np.sort(-X, axis=0)[:2])
    assert np.array_equal(sorting.topk(x, 2, axis=1, largest=False).fetch(), np.sort(X, axis=1)[:, :2])
    assert np.array_equal(sorting.argtopk(x, 3, axis=1).fetch(), np.argsort(-X, axis=1)[:, :3])


def test_a_function_of_ones_own_sees_each_chunk():
    x = creation.asarray(X, chunk_size=3)
    assert np.array_equal(chunkwise.map_chunk(x, lambda chunk, by: chunk * by, (2,)).fetch(), X * 2)
    counted = chunkwise.map_chunk(x, lambda chunk: chunk[:1, :1], elementwise=False)
    assert counted.shape == (3, 2)


@pytest.mark.parametrize("fn", [lambda b: b[b > 3], lambda b: b.sum(), lambda b, **_: b[:1]])
@pytest.mark.parametrize("numbered", [False, True])
def test_a_function_of_ones_own_that_changes_lengths_says_so(fn, numbered):
    def called(chunk, chunk_index=None):
        return fn(chunk)

    x = creation.arange(10, chunk_size=5)
    with pytest.raises(TaskError, match=r"shape \(\d?,?\) of a chunk of shape \(5,\): give elementwise=False"):
        chunkwise.map_chunk(x, called, with_chunk_index=numbered).fetch()


def test_a_function_of_ones_own_keeps_the_axes():
    x = creation.arange(10, chunk_size=5)
    with pytest.raises(TaskError, match="array of 0 axes of a chunk of 1"):
        chunkwise.map_chunk(x, np.sum, elementwise=False).fetch()


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x: joining.split(x, 4), ValueError, "equal division"),
        (lambda x: wt.tile(x, (1, -1)), ValueError, "less than no times"),
        (lambda x: x.rechunk({5: 1}), UsageError, "axis 5 of an array of 2 axes"),
        (lambda x: wt.round(x > 0, 1), TypeError, "bools have no decimals"),
        (lambda x: wt.max(x, where=x > 0), ValueError, "give initial= beside where="),
        (lambda x: wt.zeros((2, 3.5)), TypeError, r"shape is \(2, 3.5\): give whole numbers"),
        (lambda x: wt.einsum(x, [0, 99]), ValueError, "give numbers from 0 to 51"),
        (lambda x: x["a"], ValueError, "no field 'a'; there are none"),
        (lambda x: wt.pad(x, 1, "empty"), NotImplementedError, "'linear_ramp'"),
        (lambda x: quantiles.quantile(x, 2.0), ValueError, r"range \[0, 1\]"),
        (lambda x: einsum.einsum("ij,jk", x), ValueError, "do not fit"),
        (lambda x: wt.arctan2(x), TypeError, "takes 2 arrays"),
        (lambda x: sorting.topk(x, 0), ValueError, "k is 0"),
    ],
)
def test_what_is_wrong_is_told_at_once(call, kind, words):
    with pytest.raises(kind, match=words):
        call(creation.asarray(X))


SUMS = ("sum", "prod", "mean", "std", "var", "cumsum", "cumprod", "nansum", "nanmean", "nanstd", "max", "nanmin")
OF_TIMES = ("sum", "mean", "cumsum", "nansum", "nanmean", "max")


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("chunk", [6, 2])
@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4", ">u2", ">c8", "m8[s]", ">m8[ns]"])
def test_sums_of_either_byte_order_and_of_times(dtype, chunk, direct):
    given = np.arange(6).astype(dtype)
    with wt.Session(workers=1, direct=direct):
        x = wt.array(given, chunk_size=chunk)
        for name in OF_TIMES if given.dtype.kind == "m" else SUMS:
            made, wanted = getattr(wt, name)(x), getattr(np, name)(given)
            np.testing.assert_allclose(made.fetch().astype("c16"), wanted.astype("c16"), rtol=1e-6)
            assert made.dtype == made.fetch().dtype == wanted.dtype, name
        trace = wt.trace(x.reshape(2, 3))
        assert trace.fetch() == np.trace(given.reshape(2, 3))
        assert trace.dtype == np.trace(given.reshape(2, 3)).dtype


def test_a_long_sum_of_times_and_of_either_byte_order():
    for dtype in ("m8[s]", ">f8"):
        given = np.arange(500_000).astype(dtype)
        x = wt.array(given, chunk_size=300_000)
        assert wt.sum(x).fetch() == given.sum()
        assert wt.sum(x + x).fetch() == (given + given).sum()
        assert wt.cumsum(x)[-1].fetch() == given.sum()


@pytest.mark.parametrize("name", ["einsum", "sum", "max"])
def test_what_numpy_is_asked_for_stays_lazy(name):
    x = creation.asarray(X, chunk_size=3)
    kinds: dict[str, dict[str, Any]] = {"sum": {"where": X > 0}, "max": {"initial": 2.0, "where": X > 0}}
    how = kinds.get(name, {})
    args = ([0, 1], [1]) if name == "einsum" else ()
    made = getattr(np, name)(x, *args, **how)
    assert isinstance(made, Tensor)
    np.testing.assert_allclose(made.fetch(), getattr(np, name)(X, *args, **how))


def test_pseudo_inverses_of_whole_numbers():
    made = wt.linalg.pinv(creation.asarray(N))
    assert made.dtype == np.float64
    np.testing.assert_allclose(made.fetch(), np.linalg.pinv(N), atol=1e-12)


@pytest.mark.parametrize(("shape", "axis"), [(3, 1), ((2, 3), None), ((2, 4), (1, 0)), ([7], [0])])
def test_windows_move_along_axes(shape, axis):
    made = wt.lib.stride_tricks.sliding_window_view(creation.asarray(X, chunk_size=3), shape, axis)
    assert np.array_equal(made.fetch(), np.lib.stride_tricks.sliding_window_view(X, shape, axis))
    with pytest.raises(ValueError, match="does not fit an axis of 6"):
        wt.lib.stride_tricks.sliding_window_view(X, 7, 1)
    with pytest.raises(ValueError, match="window_shape has 1 length for 2 axes"):
        wt.lib.stride_tricks.sliding_window_view(X, 7)
