"""Corners where arrays once differed from NumPy in value, dtype or error."""

import datetime
import operator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import weft.tensor as wt

SMALL = np.array([100, 120, -128, 5], np.int8)
NUMBERS = np.arange(6)


def same(found, wanted) -> None:
    found, wanted = np.asarray(found.fetch()), np.asarray(wanted)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("bounds", [(0.5, 3.5), (1, 4), (None, 2.5), (np.float32(1.5), None), (-1, 2**40)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float32, np.bool_])
def test_clip_has_the_common_dtype(dtype, bounds):
    x = NUMBERS.astype(dtype)
    try:
        wanted = np.clip(x, *bounds)
    except OverflowError:
        with pytest.raises(OverflowError):
            wt.clip(wt.asarray(x), *bounds).fetch()
        return
    same(wt.clip(wt.asarray(x, chunk_size=2), *bounds), wanted)


@pytest.mark.parametrize("weights", [SMALL, np.array([3, 2, 1, 4]), np.array([0.5, 1, 2, 1], np.float32)])
def test_averages_of_small_integers_do_not_overflow(weights):
    found = wt.average(wt.asarray(SMALL, chunk_size=2), weights=wt.asarray(weights, chunk_size=2)).fetch()
    wanted = np.average(SMALL, weights=weights)
    assert np.asarray(found).dtype == wanted.dtype
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize("shape", [(2, 0), (0, 2), (2, 3)])
@pytest.mark.parametrize("axis", [0, 1])
def test_weights_of_an_axis_that_are_all_zero_are_refused(shape, axis):
    weights = np.zeros(shape[axis])
    for average, x in ((np.average, np.ones(shape)), (wt.average, wt.ones(shape, chunk_size=2))):
        with pytest.raises(ZeroDivisionError):
            np.asarray(average(x, axis=axis, weights=weights))


@pytest.mark.parametrize("axis", [0, 1, (0, 1), (1, 0)])
def test_the_sums_of_weights_have_the_shape_of_the_averages(axis):
    x = np.arange(6.0).reshape(2, 3)
    weights = np.arange(1.0, 1 + np.prod([x.shape[a] for a in np.atleast_1d(axis)])).reshape(
        [x.shape[a] for a in np.atleast_1d(axis)]
    )
    for found, wanted in zip(
        wt.average(wt.asarray(x, chunk_size=2), axis=axis, weights=weights, returned=True),
        np.average(x, axis=axis, weights=weights, returned=True),
        strict=True,
    ):
        np.testing.assert_allclose(found.fetch(), wanted)


@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [
        (np.uint8, -1, OverflowError),
        (np.uint8, [1, 300], OverflowError),
        (np.int64, float("nan"), ValueError),
        (np.int64, float("inf"), OverflowError),
        (np.float64, 1j, TypeError),
    ],
)
def test_a_number_that_does_not_fit_is_refused(dtype, value, error):
    with pytest.raises(error):
        np.zeros(4, dtype)[1:3] = value
    x = wt.zeros(4, dtype=dtype)
    with pytest.raises(error):
        x[1:3] = value
    same(x, np.zeros(4, dtype))


def test_a_number_that_fits_is_assigned_in_the_dtype_of_the_array():
    for dtype, value in ((np.int64, 1.5), (np.uint8, [1, 255]), (np.float32, 7), (np.bool_, 2)):
        x, wanted = wt.zeros(4, dtype=dtype), np.zeros(4, dtype)
        x[1:3] = value
        wanted[1:3] = value
        same(x, wanted)


def test_an_axis_of_roll_is_its_third_argument():
    values = np.arange(6).reshape(2, 3)
    same(wt.roll(wt.asarray(values, chunk_size=2), 2, 1), np.roll(values, 2, 1))


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**63, 2**64, True])
def test_a_whole_number_of_any_size_fills_an_array(value):
    same(wt.full(3, value), np.full(3, value))


def test_records_are_equal_or_not():
    records = np.array([(1, "a"), (2, "b"), (1, "a")], dtype=[("n", "i4"), ("t", "U3")])
    x = wt.asarray(records, chunk_size=2)
    for other, ours in ((records, x), (records[0], x[0]), (records[::-1], records[::-1])):
        same(x == ours, records == other)
        same(x != ours, records != other)
    for both in (records, x):
        with pytest.raises(TypeError):
            both == np.zeros(3, [("m", "i4")])  # noqa: B015


def test_texts_of_python_are_operands():
    for dtype, text in (("U2", "xyz"), ("S2", b"xyz")):
        values = np.array(["a", "bb"], dtype)
        x = wt.asarray(values, chunk_size=1)
        same(x + text, values + text)
        same(text + x, text + values)
        same(x < text, values < text)
    for both in (np.arange(2), wt.arange(2)):
        with pytest.raises(TypeError, match="ufunc 'add'"):
            operator.add(both, "x")


def test_triangles_have_the_order_of_bytes_that_numpy_gives_them():
    values = np.arange(9, dtype=">i4").reshape(3, 3)
    same(wt.tril(wt.asarray(values, chunk_size=2)), np.tril(values))


def test_chosen_elements_keep_the_order_of_bytes_that_out_has():
    x, out = wt.asarray(np.arange(4, dtype="i4"), chunk_size=2), wt.zeros(4, dtype=">i4")
    made = wt.multiply(x, 2, out=out, where=x > 1)
    assert made.dtype == made.fetch().dtype == np.dtype(">i4")


def test_triangles_of_one_axis_are_square():
    for k in (-1, 0, 1):
        same(wt.tril(wt.asarray(NUMBERS, chunk_size=4), k), np.tril(NUMBERS, k))
        same(wt.triu(wt.asarray(NUMBERS, chunk_size=4), k), np.triu(NUMBERS, k))


@pytest.mark.parametrize("value", [0, 5])
def test_argwhere_of_a_scalar(value):
    same(wt.argwhere(wt.asarray(np.array(value))), np.argwhere(np.array(value)))


def test_norms_of_half_precision():
    x = np.array([3, 4], np.float16)
    same(wt.linalg.norm(wt.asarray(x)), np.linalg.norm(x))


def test_the_order_of_a_product():
    x = NUMBERS.reshape(2, 3)
    found = wt.matmul(wt.asarray(x), wt.asarray(x.T), order="F").fetch()
    np.testing.assert_array_equal(found, x @ x.T)
    assert found.flags.f_contiguous
    with pytest.raises(ValueError, match="order must be one of"):
        wt.matmul(wt.asarray(x), wt.asarray(x.T), order="X")


def test_choices_along_an_axis():
    x = np.arange(12).reshape(3, 4)
    found = wt.random.default_rng(1).choice(wt.asarray(x), 2, replace=False, axis=1).fetch()
    columns = [tuple(column) for column in x.T]
    assert len({tuple(column) for column in found.T} & set(columns)) == 2
    assert 0 <= int(wt.random.default_rng(1).choice(5)) < 5


def test_permuted_arrays_have_the_same_elements():
    x = np.arange(12).reshape(3, 4)
    rng = wt.random.default_rng(2)
    assert sorted(rng.permuted(wt.asarray(x, chunk_size=2)).fetch().ravel()) == list(range(12))
    rows = rng.permuted(wt.asarray(x, chunk_size=2), axis=1).fetch()
    np.testing.assert_array_equal(np.sort(rows, axis=1), x)


def test_a_fetched_array_without_axes_is_a_scalar():
    found = wt.asarray(NUMBERS, chunk_size=2).sum().fetch()
    assert type(found) is type(NUMBERS.sum())
    assert wt.fetch(wt.asarray(NUMBERS).max(), wt.asarray(NUMBERS)[1:2])[0] == 5


REDUCTIONS = ["sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "ptp", "median", "nansum"]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (4,), (1,), ()])
def test_out_has_the_shape_of_the_result(name, shape):
    x = np.arange(6.0).reshape(2, 3)
    for out in (np.zeros(shape), wt.zeros(shape)):
        with pytest.raises(ValueError, match="out has shape"):
            getattr(wt, name)(wt.asarray(x, chunk_size=2), axis=0, out=out)
        if hasattr(np, name):
            with pytest.raises(ValueError, match="out"):
                getattr(np, name)(wt.asarray(x), axis=0, out=out)
    out = wt.zeros(3)
    assert getattr(wt, name)(wt.asarray(x), axis=0, out=out) is out
    same(out, np.asarray(getattr(np, name)(x, axis=0), float))


def test_a_letter_that_is_repeated_in_a_term_has_one_length():
    for shape in ((1, 3), (2, 3)):
        for subscripts in ("ii->i", "ii"):
            with pytest.raises(ValueError, match="i has the lengths"):
                wt.einsum(subscripts, wt.ones(shape))
            with pytest.raises(ValueError, match="don't match"):
                np.einsum(subscripts, np.ones(shape))


@pytest.mark.parametrize("rowvar", [True, False])
def test_covariances(rowvar, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(3, 5)), rng.normal(size=(3, 5)) * 1j
    n = x.shape[1 if rowvar else 0]
    weights: dict[str, Any] = {"fweights": rng.integers(0, 4, n), "aweights": rng.random(n)}
    more: dict[str, Any]
    for more in ({}, {"ddof": 0}, {"bias": True}, {"fweights": weights["fweights"]}, weights, {"y": y}, {"y": x[:1]}):
        if "y" in more and not rowvar and more["y"].shape != x.shape:
            continue
        wanted = np.cov(x, rowvar=rowvar, **more)
        found = wt.cov(wt.asarray(x, chunk_size=2), rowvar=rowvar, **more).fetch()
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12, err_msg=str(more))
    wanted = np.corrcoef(x, y, rowvar=rowvar)
    np.testing.assert_allclose(wt.corrcoef(wt.asarray(x), y, rowvar=rowvar).fetch(), wanted, rtol=1e-9, atol=1e-12)


def test_what_has_no_covariance_is_refused():
    x = wt.ones((2, 3))
    for call, error in (
        (lambda: wt.cov(wt.ones((2, 3, 4))), ValueError),
        (lambda: wt.cov(x, wt.ones((2, 3, 4))), ValueError),
        (lambda: wt.corrcoef(wt.ones((2, 3, 4))), ValueError),
        (lambda: wt.cov(x, ddof=0.5), ValueError),
        (lambda: wt.cov(x, fweights=[0.5, 1, 1]), TypeError),
        (lambda: wt.cov(x, aweights=[-1, 1, 1]), ValueError),
        (lambda: wt.cov(x, aweights=[1, 1]), RuntimeError),
    ):
        with pytest.raises(error):
            call()


def test_a_partition_tells_the_places_of_its_elements(seed):
    x = np.random.default_rng(seed).integers(0, 50, (3, 20))
    for kth, axis in ((4, -1), ([0, 2], 0)):
        made, at = wt.partition(wt.asarray(x, chunk_size=4), kth, axis=axis, return_index=True)
        np.testing.assert_array_equal(np.take_along_axis(x, at.fetch(), axis), made.fetch())
        np.testing.assert_array_equal(np.take(made.fetch(), kth, axis), np.take(np.sort(x, axis), kth, axis))


def test_distances_have_the_chunks_that_are_asked_for():
    distance = pytest.importorskip("scipy.spatial.distance")
    from weft.tensor.spatial.distance import squareform

    x = np.arange(6.0)
    found = squareform(wt.asarray(x), chunk_size=2)
    assert found.chunks == ((2, 2), (2, 2))
    same(found, distance.squareform(x))


SEEDS = [
    lambda: np.random.default_rng(3),
    lambda: np.random.RandomState(3),
    lambda: np.random.PCG64(3),
    lambda: np.random.SeedSequence(3),
    lambda: wt.random.default_rng(3),
    lambda: np.array([3, 4]),
    lambda: [3, 2**70],
    lambda: np.int64(3),
]


@pytest.mark.parametrize("make", SEEDS)
def test_seeds_of_numpy(make):
    first, again = (wt.random.default_rng(make()).random(5).fetch() for _ in range(2))
    np.testing.assert_array_equal(first, again)
    older = wt.random.RandomState(make()).rand(5).fetch()
    np.testing.assert_array_equal(older, wt.random.RandomState(make()).rand(5).fetch())


def test_a_generator_is_a_seed_that_is_used_up():
    rng = np.random.default_rng(1)
    first, second = (wt.random.default_rng(rng).random(5).fetch() for _ in range(2))
    assert not np.array_equal(first, second)
    own = wt.random.default_rng(2)
    assert wt.random.default_rng(own) is own
    for seed, error in ((-1, ValueError), (1.5, TypeError), ("a", TypeError), ([1, -2], ValueError)):
        with pytest.raises(error, match="seed is"):
            wt.random.default_rng(seed)


BELOW = np.array([4.0, -1.0, 0.0])
FAULTS = {
    "divide": lambda x: 1 / x,
    "invalid": lambda x: wt.log(x + wt.abs(x) - 2),
    "over": lambda x: wt.exp(x * 1000).sum(),
    "under": lambda x: (x * 1e-300) * (x * 1e-300),
}


@pytest.fixture(scope="module", params=["direct", "threads", "processes"])
def somewhere(request):
    if request.param == "direct":
        with wt.Session(workers=1) as session:
            yield session
    else:
        with wt.Session(workers=1, backend=request.param, direct=False) as session:
            yield session


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("hidden", [False, True])
def test_floating_point_errors_raise_where_numpy_is_told_to(somewhere, kind, hidden):
    def made():
        x = wt.asarray(BELOW, chunk_size=2)
        return FAULTS[kind](wt.sort(x[x > -9]) if hidden else x)

    raises: dict[str, Any] = {**dict.fromkeys(FAULTS, "ignore"), kind: "raise"}
    ignores: dict[str, Any] = dict.fromkeys(FAULTS, "ignore")
    with np.errstate(**raises):
        with pytest.raises(FloatingPointError):
            made().fetch(somewhere)
        with pytest.raises(FloatingPointError):
            made().execute(somewhere, wait=False).result()
    with np.errstate(**ignores):
        made().fetch(somewhere)


def test_values_that_are_no_numbers_are_silent_by_default(somewhere, recwarn):
    assert np.isinf((1 / wt.asarray(BELOW, chunk_size=2)).fetch(somewhere)).sum() == 1
    assert not recwarn.list


@pytest.mark.parametrize("name", ["mean", "var", "std", "nanmean", "nanvar", "nanstd", "average", "sum"])
@pytest.mark.parametrize("chunk_size", [7_000, 100_000])
@pytest.mark.parametrize("axis", [None, 0])
def test_sums_in_half_precision_are_rounded_once(name, chunk_size, axis):
    x = np.random.default_rng(5).uniform(0, 0.5, (100_000, 2)).astype(np.float16)
    wanted = getattr(np, name)(x.astype(np.float64), axis=axis)
    found = getattr(wt, name)(wt.asarray(x, chunk_size=chunk_size), axis=axis).fetch()
    assert np.asarray(found).dtype == np.float16
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=float(np.finfo(np.float16).eps))


def test_sums_beyond_half_precision_have_a_mean():
    for x in (np.full(5, 60_000, np.float16), np.ones(70_000, np.float16)):
        given = wt.asarray(x, chunk_size=3 if x.size == 5 else 30_000)
        weights = wt.asarray(np.ones(x.size, np.float16))
        for found in (given.mean(), wt.nanmean(given), wt.mean(given, where=x > 0), wt.average(given, weights=weights)):
            same(found, x[0])
        for found in (given.var(), wt.nanvar(given), given.var(dtype=np.float16), wt.var(given, where=x > 0)):
            same(found, np.float16(0))
    same(wt.asarray(np.array([60_000, 60_000, -60_000], np.float16), chunk_size=1).sum(), np.float16(60_000))


@pytest.mark.parametrize("change", ["real", "imag", "of a transpose", "by a function", "of real numbers"])
def test_parts_of_complex_numbers_are_views(change):
    def changed(x, module):
        if change == "real":
            x.real[1:, 0] = 5
        elif change == "imag":
            part = x.imag
            part += 2
        elif change == "of a transpose":
            x.T.imag[0] = -1
        elif change == "by a function":
            module.real(x)[0] = 50
        else:
            x = x.imag.copy()
            x.real[0] = 9
        return x

    values = (np.arange(6) + 1j).reshape(2, 3)
    same(changed(wt.array(values, chunk_size=2), wt), changed(values.copy(), np))


DAYS = np.array(["2020-01-01", "2020-01-03", "2020-01-08", "2020-01-09"], "M8[D]")
SECONDS = np.array([1, 5, 200], "m8[s]")
TABLE = np.array([[0, 1, 4], [1, 2, 3]])


@pytest.mark.parametrize("library", [wt, np])
@pytest.mark.parametrize(
    "how",
    [
        {"prepend": 0},
        {"append": 9, "n": 2},
        {"prepend": 0.5, "append": 7, "axis": 0},
        {"prepend": TABLE[:, :1], "append": np.array(3)},
    ],
)
def test_differences_take_numbers_at_the_ends(library, how):
    same(library.diff(wt.asarray(TABLE, chunk_size=2), **how), np.diff(TABLE, **how))


@pytest.mark.parametrize(
    ("start", "stop", "how"),
    [
        ([0.0, 1.0], [2, 5], {"num": 4}),
        (0, np.array([[2, 3], [4, -5]]), {"num": 3, "axis": 1}),
        (np.array([1, 2], np.float32), 3, {"num": 5, "endpoint": False}),
        ([-1, -2], [1j, 2], {"num": 3, "axis": -1}),
        ([-1, -2], [1, 2], {"num": 4, "dtype": int}),
        (-1, 1, {"num": 4, "dtype": int}),
        (0, [2, 3], {"num": 0}),
    ],
)
def test_linspace_between_arrays(start, stop, how):
    for retstep in (False, True):
        wanted = np.linspace(start, stop, retstep=retstep, **how)
        first = start if np.ndim(start) == 0 else wt.asarray(np.asarray(start))
        last = stop if np.ndim(stop) == 0 else wt.asarray(np.asarray(stop), chunk_size=1)
        found = wt.linspace(first, last, retstep=retstep, **how)
        for one, expected in zip(found, wanted, strict=True) if retstep else [(found, wanted)]:
            np.testing.assert_allclose(np.asarray(one), expected, rtol=1e-6)
            assert np.asarray(one).dtype == np.asarray(expected).dtype


@pytest.mark.parametrize(
    ("name", "args", "how"),
    [
        ("logspace", (0, 3), {}),
        ("logspace", (0.5, 2, 7), {"base": 2}),
        ("logspace", (1, 2, 5, False), {}),
        ("logspace", (0, 1, 0), {}),
        ("logspace", (0, 3, 4), {"dtype": int}),
        ("logspace", ([0, 1], [2, 3], 4), {"axis": 1}),
        ("geomspace", (1, 1000, 4), {}),
        ("geomspace", (-1, -256, 9), {}),
        ("geomspace", (1, 1000, 3, False), {}),
        ("geomspace", (3, 5, 0), {}),
        ("geomspace", (3, 5, 1), {}),
        ("geomspace", (1000, 1, 7), {"dtype": "float32"}),
    ],
)
def test_numbers_with_equal_ratios(name, args, how):
    wanted = getattr(np, name)(*args, **how)
    found = getattr(wt, name)(*args, **how)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found.fetch(), wanted, rtol=1e-6)
    np.testing.assert_allclose(getattr(wt, name)(*args, **how, chunk_size=2).fetch(), wanted, rtol=1e-6)


def test_equal_ratios_take_numbers_of_one_sign():
    for args in ((0, 1), (-1, 1)):
        with pytest.raises(ValueError, match=r"zero|one sign"):
            wt.geomspace(*args)
    with pytest.raises(TypeError, match="single real numbers"):
        wt.geomspace([1, 2], 3)


@pytest.mark.parametrize("edge_order", [1, 2])
def test_gradients_of_dates_are_durations(edge_order):
    same(wt.gradient(wt.asarray(DAYS), edge_order=edge_order), np.gradient(DAYS, edge_order=edge_order))


def test_durations_are_real_and_have_a_mean():
    for x in (DAYS, SECONDS, np.array(["a"])):
        same(wt.isreal(wt.asarray(x)), np.isreal(x))
        same(wt.iscomplex(wt.asarray(x)), np.iscomplex(x))
    same(wt.mean(wt.asarray(SECONDS), dtype="int8"), np.mean(SECONDS, dtype="int8"))


@pytest.mark.parametrize("dtype", ["U3", "S3", "M8[D]", "m8[s]", "i4,f4", object])
def test_zeros_of_any_dtype(dtype):
    x = np.zeros(2, dtype)
    for made in (wt.zeros(2, dtype=dtype), wt.zeros_like(wt.asarray(x)), wt.zeros_like(wt.ones(2), dtype=dtype)):
        same(made, x)


def test_text_of_no_axes_keeps_its_length():
    for x in (np.array("abc", "U4"), np.array(b"ab", "S5")):
        for given in (wt.asarray(x), wt.full_like(wt.asarray(x), "x")):
            assert given.dtype == np.asarray(given).dtype == x.dtype


def test_casting_holds_for_functions_of_numpy():
    x: Any = wt.arange(4)
    same(np.add(x, 0.5, out=x, casting="unsafe"), np.arange(4))
    into: Any = wt.zeros(8, dtype=int)
    same(np.concatenate([x * 1.5, x], out=into, casting="unsafe"), [0, 1, 3, 4, 0, 1, 2, 3])
    same(np.concatenate([x, x], dtype="f4", casting="unsafe"), np.tile(np.arange(4, dtype="f4"), 2))
    for library in (wt, np):
        with pytest.raises(TypeError, match="Cannot cast"):
            library.concatenate([x, x], dtype="f4", casting="no").fetch()


@pytest.mark.parametrize("mode", ["wrap", "clip", "raise"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_take_by_mode(mode, axis):
    at = np.array([-4, 0, 7]) if mode != "raise" else np.array([0, 1])
    x = wt.asarray(TABLE, chunk_size=2)
    same(wt.take(x, wt.asarray(at), axis=axis, mode=mode), np.take(TABLE, at, axis, mode=mode))
    with pytest.raises(ValueError, match="clipmode"):
        wt.take(x, at, mode="none")


@pytest.mark.parametrize("equal_nan", [False, True])
def test_nan_is_equal_on_request(equal_nan):
    x = np.array([np.nan, 1, np.nan, 2, 1])
    given = wt.asarray(x, chunk_size=2)
    same(wt.array_equal(given, x, equal_nan=equal_nan), np.array_equal(x, x, equal_nan=equal_nan))
    same(wt.array_equal(wt.asarray(DAYS), DAYS, equal_nan=equal_nan), np.True_)
    same(wt.unique(given, equal_nan=equal_nan), np.unique(x, equal_nan=equal_nan))
    found, counted = wt.unique(given, return_counts=True, equal_nan=equal_nan)
    values, counts = np.unique(x, return_counts=True, equal_nan=equal_nan)
    same(found, values)
    same(counted, counts)


def test_items_by_index():
    x = wt.asarray(TABLE, chunk_size=2)
    assert [x.item(3), x.item(-1), x.item(1, 2), x.item((0, 1))] == [1, 3, 3, 1]
    assert type(x.item(1, 2)) is int
    refused: list[Any] = [(), (6,), (2, 0)]
    for index in refused:
        with pytest.raises((ValueError, IndexError)):
            x.item(*index)


def test_matmul_into_an_array():
    out = wt.zeros((2, 2), dtype=int)
    assert wt.matmul(TABLE, wt.asarray(TABLE.T), out=out) is out
    same(out, TABLE @ TABLE.T)


@pytest.mark.parametrize(
    "index",
    [((1, 0),), (range(2),), range(2), range(0), ((),), (slice(None), range(2)), ((0, 1), (1, 2)), (((0, 1), (1, 0)),)],
)
def test_sequences_of_positions(index):
    same(wt.asarray(TABLE, chunk_size=2)[index], TABLE[index])


@pytest.mark.parametrize(("x", "y"), [(None, 1), (1.5, None), (np.array([1, None, "a"], object), 2)])
def test_where_chooses_objects(x, y):
    condition = np.array([True, False, True])
    same(wt.where(wt.asarray(condition, chunk_size=2), x, y), np.where(condition, x, y))


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 3, 3)])
def test_the_triangular_factor_alone(shape):
    x = np.arange(float(np.prod(shape))).reshape(shape) ** 2
    found = wt.linalg.qr(wt.asarray(x), mode="r")
    np.testing.assert_allclose(found.fetch(), np.linalg.qr(x, mode="r"), atol=1e-9)


FLAGS = np.array([True, False, True])
RECORDS = np.array([(1, 2.5, 3), (4, 5.5, 6), (7, 8.5, 9)], [("x", int), ("y", float), ("z", np.int8)])
TIMES = np.array(["2020-01-01", "2021-05-06"], "M8[D]")
WEIGHTS = np.array([1, 2, 0, 3])


@pytest.mark.parametrize("exponent", [2, 3, 0, 2.0, True, np.int64(2)])
def test_powers_of_truth_values(exponent):
    same(wt.asarray(FLAGS, chunk_size=2) ** exponent, FLAGS**exponent)
    same(wt.pow(wt.asarray(FLAGS), exponent), np.power(FLAGS, exponent))


@pytest.mark.parametrize("values", [[0, "", None, 3], [1, "a"], [0, ""], [], [[1, "a"], [0, "x"]]])
def test_the_truth_of_objects(values):
    given = np.array(values, object)
    for xp in (wt.any, wt.all):
        for axis in (None, 0):
            wanted = getattr(np, xp.__name__)(given, axis=axis)
            found = xp(wt.asarray(given, chunk_size=2), axis=axis)
            assert found.dtype == bool
            same(found, wanted)


def test_the_deviation_of_objects():
    given = np.array([1, 2, 4.5], object)
    assert float(wt.std(wt.asarray(given, chunk_size=2))) == pytest.approx(np.std(given))


@pytest.mark.parametrize("names", [["x", "y"], ["y", "x"], ["z"]])
def test_several_fields(names):
    x = wt.asarray(RECORDS, chunk_size=2)
    found, wanted = x[names], RECORDS[names]
    assert found.dtype == wanted.dtype
    assert found.fetch().tolist() == wanted.tolist()
    same(found[names[0]], wanted[names[0]])
    values = RECORDS.copy()
    x[names][names[0]][1:] = 0
    values[names][names[0]][1:] = 0
    assert x.fetch().tolist() == values.tolist()
    with pytest.raises(KeyError, match="q"):
        x[["x", "q"]]


def test_a_cast_that_changes_nothing_need_not_copy():
    x = wt.asarray(TABLE)
    assert x.astype(x.dtype, copy=False) is x
    assert x.astype(x.dtype) is not x
    assert x.astype(np.float32, copy=False).dtype == np.float32


@pytest.mark.parametrize("diagonal", [lambda x: x.diagonal(1), lambda x: x.diagonal()[1:]])
def test_a_diagonal_is_a_view_that_is_only_read(diagonal):
    values = np.arange(16.0).reshape(4, 4)
    x = wt.asarray(values.copy(), chunk_size=2)
    for given in (values, x):
        found = diagonal(given)
        assert not found.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 5
        with pytest.raises(ValueError, match="read-only"):
            found += 1
        given[:] += 100
        np.testing.assert_array_equal(np.asarray(found), diagonal(values))
    same(x, values)


def message(make):
    with pytest.raises((ValueError, TypeError)) as error:
        make()
    return str(error.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda xp, x: xp.matrix_transpose(x[0]),
        lambda xp, x: xp.broadcast_to(x, (2, 7)),
        lambda xp, x: xp.broadcast_to(x, (3,)),
        lambda xp, x: xp.broadcast_to(x, (-1, 2, 3)),
        lambda xp, x: xp.broadcast_to(x, ()),
        lambda xp, x: x < None,
        lambda xp, x: xp.asarray(TIMES) < None,
        lambda xp, x: xp.asarray(TIMES - TIMES) <= None,
        lambda xp, x: xp.quantile(x, 0.5, weights=x),
        lambda xp, x: x.view(np.dtype("V5")),
    ],
)
def test_errors_are_worded_as_those_of_numpy(make):
    values = np.arange(6.0).reshape(2, 3)
    assert message(lambda: make(wt, wt.asarray(values))) == message(lambda: make(np, values))


@pytest.mark.parametrize("compare", [operator.lt, operator.ge, operator.eq, operator.ne])
def test_dates_of_python_are_compared(compare):
    x, date = wt.asarray(TIMES, chunk_size=1), datetime.date(2020, 1, 1)
    same(compare(x, date), compare(TIMES, date))
    same(compare(date, x), compare(date, TIMES))
    same(compare(x - x, datetime.timedelta(1)), compare(TIMES - TIMES, datetime.timedelta(1)))


@pytest.mark.parametrize("name", ["quantile", "percentile", "nanquantile"])
@pytest.mark.parametrize("axis", [None, 1, (0, 1)])
def test_quantiles_of_weighted_elements(name, axis):
    values = np.array([[3.0, 1, 2, 9], [4, 4, 0, 7], [5, 6, 8, 2]])
    x = wt.asarray(values, chunk_size=2)
    q = 25 if name == "percentile" else [0.25, 0.5]
    for weights in (values + 1, WEIGHTS) if axis == 1 and name != "nanquantile" else (values + 1,):
        how = {"axis": axis, "method": "inverted_cdf"}
        given = wt.asarray(weights, chunk_size=3)
        same(getattr(wt, name)(x, q, weights=given, **how), getattr(np, name)(values, q, weights=weights, **how))


@pytest.mark.parametrize("kind", [np.int64, np.int32, "V8", np.uint8, "c16", "i4,f4"])
def test_bytes_as_another_type(kind):
    values = np.arange(24.0).reshape(2, 12)
    for chunks in (12, 4, 3):
        x = wt.asarray(values.copy(), chunk_size=chunks)
        found, wanted = x.view(kind), values.copy().view(kind)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        assert found.fetch().tolist() == wanted.tolist()
    changed = values.copy()
    changed.view(kind)[1, :2] = changed.view(kind)[0, 1]
    found[1, :2] = found[0, 1]
    same(x, changed)
    with pytest.raises(ValueError, match="divisor"):
        wt.zeros(3, dtype="i1").view("i2")


@pytest.mark.parametrize("name", ["sum", "cumsum", "mean"])
@pytest.mark.parametrize("dtype", [None, "i4", "f8"])
def test_sums_of_durations_are_durations_whatever_type_is_given(name, dtype):
    made = getattr(wt, name)(wt.asarray(SECONDS, chunk_size=2), dtype=dtype)
    wanted = getattr(np, name)(SECONDS, dtype=dtype)
    assert made.dtype == wanted.dtype
    same(made, wanted)


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_sums_of_durations_in_another_unit_are_refused_as_by_numpy(name):
    for xp, x in ((np, SECONDS), (wt, wt.asarray(SECONDS))):
        with pytest.raises(TypeError, match="only select the general DType"):
            getattr(xp, name)(x, dtype="m8[ms]")


@pytest.mark.parametrize("index", [0, slice(None), [0, 1], (slice(None), slice(1, 3)), (slice(None, None, -1), 2)])
@pytest.mark.parametrize("leading", [1, 2])
def test_axes_of_length_one_before_those_of_the_place_are_left_out_of_an_assignment(index, leading):
    wanted = np.zeros((2, 3))
    shape = np.shape(wanted[index])
    values = np.arange(float(np.prod(shape))).reshape((1,) * leading + shape)
    found = wt.asarray(wanted, chunk_size=1)
    wanted[index] = values
    found[index] = wt.asarray(values, chunk_size=2)
    same(found, wanted)
    with pytest.raises(ValueError, match="broadcast"):
        found[0] = np.ones((2, 1, 3))


@pytest.mark.parametrize("axis", [-1, 0, None, 1])
def test_an_array_without_axes_has_the_positions_of_one_element(axis):
    for name, given in (("argsort", ()), ("argpartition", (0,))):
        try:
            wanted = getattr(np, name)(np.array(3), *given, axis=axis)
        except np.exceptions.AxisError:
            with pytest.raises(np.exceptions.AxisError):
                getattr(wt, name)(wt.asarray(3), *given, axis=axis)
        else:
            same(getattr(wt, name)(wt.asarray(3), *given, axis=axis), wanted)


@pytest.mark.parametrize("index", [0, slice(None), ..., [0, 1], np.array([True, False, True])], ids=str)
@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "f4", "?"])
@pytest.mark.parametrize(
    "value",
    [np.int64(300), np.uint8(200), np.uint64(2**32 + 7), np.float64(300), np.int8(-1), np.bool_(True)],
    ids=repr,
)
def test_numbers_of_numpy_are_assigned_as_numpy_assigns_them(value, dtype, index):
    wanted, found = np.zeros(3, dtype), wt.asarray(np.zeros(3, dtype), chunk_size=2)
    try:
        wanted[index] = value
    except OverflowError:
        with pytest.raises(OverflowError):
            found[index] = value
    else:
        found[index] = value
        same(found, wanted)


@pytest.mark.parametrize("value", [300, 5, -1, 2.5, np.int64(300), np.array(300), True])
@pytest.mark.parametrize("dtype", ["i1", "u1", "f4"])
def test_what_is_copied_is_what_numpy_copies(value, dtype):
    wanted, found = np.zeros(3, dtype), wt.asarray(np.zeros(3, dtype), chunk_size=2)
    try:
        np.copyto(wanted, value)
    except (OverflowError, TypeError) as error:
        with pytest.raises(type(error)):
            wt.copyto(found, value)
    else:
        wt.copyto(found, value)
        same(found, wanted)


@pytest.mark.parametrize("value", [7, np.int64(7)])
def test_the_last_element_of_an_array_of_unknown_length_is_assigned(value):
    x = wt.asarray(NUMBERS, chunk_size=2)
    found, wanted = x[x > 2], NUMBERS[NUMBERS > 2]
    found[-1] = wanted[-1] = value
    same(found, wanted)


def small(xp):
    return xp.asarray(np.array([1, 2, 3], np.uint8))


def table(xp):
    return xp.asarray(np.array([[1.0, 2, 3], [4, 5, 7]]))


@pytest.mark.parametrize(
    "make",
    [
        lambda xp: xp.union1d(small(xp), 5),
        lambda xp: xp.union1d(2.5, small(xp).astype(np.float32)),
        lambda xp: xp.choose(xp.asarray(np.array([0, 1, 1])), [small(xp), 5]),
        lambda xp: xp.choose(xp.asarray(np.array([0, 1, 1])), [small(xp), 5.5]),
        lambda xp: xp.arange(xp.asarray(np.array(3))),
        lambda xp: xp.arange(0.5, 3),
        lambda xp: xp.arange(np.uint8(0), np.uint8(3), np.uint8(1)),
    ],
)
def test_numbers_beside_arrays_leave_the_dtype(make):
    same(make(wt), make(np))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda xp: xp.gradient(table(xp), axis=(0, 0)), ValueError),
        (lambda xp: xp.insert(small(xp), 0, 5, axis=()), TypeError),
        (lambda xp: xp.delete(small(xp), 0, axis=()), TypeError),
        (lambda xp: xp.compress([True], small(xp), axis=()), TypeError),
        (lambda xp: xp.nanmean(table(xp), dtype=np.int32), TypeError),
        (lambda xp: xp.nanstd(table(xp), dtype=np.int32), TypeError),
        (lambda xp: xp.fill_diagonal(xp.asarray(np.eye(2, dtype=np.uint8)), 300), OverflowError),
    ],
)
def test_what_numpy_refuses_is_refused(make, error):
    for xp in (np, wt):
        with pytest.raises(error):
            make(xp)


def test_an_array_without_axes_takes_an_array_of_one_element():
    x = wt.zeros(())
    x[...] = np.array([7])
    same(x, np.asarray(7.0))


RUNNING = [
    "add",
    "bitwise_and",
    "bitwise_or",
    "fmax",
    "fmin",
    "logical_and",
    "logical_or",
    "maximum",
    "minimum",
    "multiply",
]


@pytest.mark.parametrize("fn", [getattr(np, name) for name in RUNNING])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_running_results_over_several_chunks(fn, dtype):
    x = np.array([[4, 6, 0, 5, 12], [3, 1, 2, 2, 9]], dtype)
    for axis in (0, 1):
        same(fn.accumulate(wt.asarray(x, chunk_size=2), axis=axis), fn.accumulate(x, axis=axis))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("method", ["linear", "lower", "nearest", "inverted_cdf"])
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_quantiles_of_no_elements_are_nan(method, dtype):
    x = np.ones((0, 3), dtype)
    for axis in (None, 0):
        same(wt.nanquantile(wt.asarray(x), 0.5, axis=axis, method=method), np.nanquantile(x, 0.5, axis, method=method))


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_deviations_by_another_dtype():
    x = np.array([2, -1, -1, 2, 1], np.int16)
    same(wt.nanstd(wt.asarray(x, chunk_size=2), dtype=np.int64), np.nanstd(x, dtype=np.int64))
    z = np.array([1 + 1j, 2 - 1j, 3j], np.complex64)
    found = wt.var(wt.asarray(z, chunk_size=2), dtype=np.float64).fetch()
    assert found == pytest.approx(np.var(z, dtype=np.float64))


def test_powers_that_are_left_out_are_not_refused():
    x, y, chosen = np.array([2, 3, 4]), np.array([2, -1, 3]), np.array([True, False, True])
    into = wt.asarray(np.array([7, 8, 9]))
    wt.power(wt.asarray(x, chunk_size=2), wt.asarray(y, chunk_size=2), out=into, where=wt.asarray(chosen))
    same(into, np.power(x, y, out=np.array([7, 8, 9]), where=chosen))


def test_casting_holds_for_what_is_given():
    x, y = np.array([1.0]), np.array([1], np.int32)
    for a, b, xp in ((x, y, np), (wt.asarray(x), wt.asarray(y), wt)):
        with pytest.raises(TypeError):
            xp.add(a, b, casting="no")
        with pytest.raises(TypeError):
            xp.add(a, b, casting="equiv")


@pytest.mark.parametrize("keepdims", [True, False])
def test_a_norm_along_one_axis_twice_is_refused(keepdims):
    with pytest.raises(ValueError, match="Duplicate axes"):
        wt.linalg.norm(wt.ones((2, 2)), ord=1, axis=(1, -1), keepdims=keepdims)


@pytest.mark.parametrize("kind", ["U3", "S3"])
@pytest.mark.parametrize("method", ["nearest", "lower", "higher", "inverted_cdf"])
@pytest.mark.parametrize("q", [0.5, [0.1, 0.9]])
def test_quantiles_of_text_are_whole(kind, method, q):
    values = np.array([["aaa", "b"], ["cc", "ddd"]], kind)
    x = wt.asarray(values, chunk_size=1)
    for axis in (None, 0, 1):
        found, wanted = wt.quantile(x, q, axis, method=method), np.quantile(values, q, axis, method=method)
        np.testing.assert_array_equal(found.fetch(), wanted)
        assert found.dtype == values.dtype


def test_quantiles_of_long_text_are_whole():
    values = np.array([f"{n:05}" for n in range(30_000)])
    with wt.Session(workers=1, direct=False):
        found = np.asarray(np.percentile(wt.asarray(values, chunk_size=4_000), [10, 33.3], method="nearest"))
    np.testing.assert_array_equal(found, np.percentile(values, [10, 33.3], method="nearest"))


@pytest.mark.parametrize(
    ("first", "second", "default"),
    [
        (np.float64, np.float32, 0.1),
        (np.float32, np.float64, 0.1),
        (np.complex128, np.float16, 2**40),
        (np.int64, np.uint8, -1),
        (np.int64, np.uint8, 300),
        (np.float64, np.uint8, -1.5),
        (np.uint8, np.int8, 200),
    ],
)
def test_the_default_of_select_has_the_type_of_all_choices(first, second, default):
    one, other = np.array([1, 2, 3, 4], first), np.array([5, 6, 7, 8], second)
    conditions = [np.array([True, False, False, False]), np.array([True, True, False, False])]
    found = wt.select(
        [wt.asarray(c, chunk_size=3) for c in conditions], [wt.asarray(one, chunk_size=2), other], default
    )
    same(found, np.select(conditions, [one, other], default))


NUMBERS_THAT_DO_NOT_FIT = [
    lambda xp, x, n: np.put(x, [0], n),
    lambda xp, x, n: np.put(x, [0, 1], [1, n]),
    lambda xp, x, n: np.putmask(x, x > 1, n),
    lambda xp, x, n: np.putmask(x, x > 1, [n, 1, 2]),
    lambda xp, x, n: np.place(x, x > 1, n),
    lambda xp, x, n: np.put_along_axis(x, np.array([0]), n, 0),
    lambda xp, x, n: np.copyto(x, n),
    lambda xp, x, n: x.fill(n),
    lambda xp, x, n: np.add(x, n, dtype=x.dtype),
    lambda xp, x, n: np.multiply(n, x, dtype=x.dtype, casting="unsafe"),
    lambda xp, x, n: np.gcd(x, n, dtype=x.dtype),
    lambda xp, x, n: np.less(x, n, dtype=bool),
    lambda xp, x, n: np.equal(n, x, dtype=bool),
    lambda xp, x, n: xp.arange(n, n + 2, dtype=x.dtype),
    lambda xp, x, n: xp.arange(0, 2 * n, n, dtype=x.dtype),
]


@pytest.mark.parametrize("call", NUMBERS_THAT_DO_NOT_FIT)
@pytest.mark.parametrize(
    ("dtype", "n"), [(np.uint8, -1), (np.uint8, 300), (np.int8, 150), (np.uint64, -3), (np.int8, 3)]
)
def test_whole_numbers_that_do_not_fit_are_refused(call, dtype, n):
    seen = []
    for xp, x in ((np, np.array([1, 2, 3], dtype)), (wt, wt.asarray(np.array([1, 2, 3], dtype), chunk_size=2))):
        try:
            made = call(xp, x, n)
            seen.append(np.asarray(x if made is None else made).tolist())
        except OverflowError:
            seen.append("refused")
    assert seen[0] == seen[1]


COMPARED = [
    np.array(["a", "b"]),
    np.array([b"a", b"b"]),
    np.array(["2020-01-01", "2021-01-01"], "M8[D]"),
    np.array([1, 2], "m8[s]"),
    np.array([1.0, 2.0]),
    np.array([1, 2], np.int8),
    np.array([1, None], object),
]


@pytest.mark.parametrize(
    "other", [*COMPARED, 3, 1j, True, None, "a", b"a", np.float32(2), np.datetime64("2020-01-01")], ids=repr
)
@pytest.mark.parametrize("values", COMPARED, ids=repr)
def test_equality_has_an_answer_for_what_cannot_be_compared(values, other):
    x = wt.asarray(values, chunk_size=1)
    same(x == other, values == other)
    same(x != other, values != other)
    assert bool(np.array_equal(x, other)) == np.array_equal(values, other)
    assert bool(np.array_equiv(x, other)) == np.array_equiv(values, other)


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_a_correction_counts_beside_a_ddof_of_0(name):
    values = np.array([[1.0, 2.0, 4.0]])
    x = wt.asarray(values, chunk_size=2)
    ours, numpys = getattr(wt, name), getattr(np, name)
    assert float(ours(x, ddof=0, correction=1)) == pytest.approx(float(numpys(values, ddof=0, correction=1)))
    with pytest.raises(ValueError, match="can't be provided simultaneously"):
        ours(x, ddof=1, correction=1)


@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
@pytest.mark.parametrize("other", [object(), {}, {1}, frozenset()], ids=["object", "dict", "set", "frozenset"])
@pytest.mark.parametrize("x", [NUMBERS, np.array(["a", "b"]), np.array(["NaT", "2020-01-01"], "M8[D]")])
def test_elements_equal_no_object_of_another_kind(compare, other, x):
    same(compare(wt.asarray(x, chunk_size=1), other), compare(x, other))


@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
@pytest.mark.parametrize("kind", ["M8[D]", "m8[s]"])
def test_a_missing_time_equals_none(compare, kind):
    x = np.array(["NaT", 1], kind)
    same(compare(wt.asarray(x, chunk_size=1), None), compare(x, None))


@pytest.mark.parametrize("index", [(..., -1), (0, ...), (1, ..., 0), (1, 0, ...)])
@pytest.mark.parametrize("shape", [(1,), (1, 1), ()])
def test_a_place_without_axes_takes_an_array_of_one_element_if_the_index_has_an_ellipsis(index, shape):
    wanted = np.zeros((2, 3)[: len(index) - 1])
    x = wt.asarray(wanted, chunk_size=1)
    x[index] = wt.asarray(np.full(shape, 5.0))
    wanted[index] = np.full(shape, 5.0)
    same(x, wanted)


def test_a_place_without_axes_takes_no_array_without_an_ellipsis():
    x = wt.zeros(2)
    with pytest.raises(ValueError, match="could not broadcast"):
        x[-1] = wt.ones(1)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3)])
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.bool_])
def test_the_pseudo_inverse_of_nothing_keeps_the_dtype(shape, dtype):
    x = np.zeros(shape, dtype)
    same(wt.linalg.pinv(wt.asarray(x)), np.linalg.pinv(x))


@pytest.mark.parametrize("axis", [0, 1, (0, 1), None])
def test_a_rolled_array_keeps_its_order_along_axes(axis):
    x = np.asfortranarray(NUMBERS.reshape(2, 3))
    found, wanted = wt.roll(wt.asarray(x), 1, axis=axis), np.roll(x, 1, axis=axis)
    assert found.fetch().flags.f_contiguous == wanted.flags.f_contiguous
    same(found, wanted)
    flat = found.reshape(-1)
    flat[...] = 9
    copied = wanted.reshape(-1)
    copied[...] = 9
    same(found, wanted)


@pytest.mark.parametrize(
    "product",
    [
        lambda xp, t, i: xp.dot(t, i),
        lambda xp, t, i: t.dot(i),
        lambda xp, t, i: xp.dot(xp.reshape(t, (1, 3)), xp.reshape(i, (3, 1))),
        lambda xp, t, i: xp.tensordot(t, i, 0),
        lambda xp, t, i: xp.tensordot(i, t, 1),
        lambda xp, t, i: xp.inner(t, i),
        lambda xp, t, i: xp.vdot(t, t),
        lambda xp, t, i: t * i,
        lambda xp, t, i: 1.5 * t,
        lambda xp, t, i: t / t,
        lambda xp, t, i: t / 2,
        lambda xp, t, i: t // t[:1],
        lambda xp, t, i: xp.mean(t * 3),
        lambda xp, t, i: xp.outer(t, i),
    ],
)
def test_products_of_lengths_of_time(product):
    times, numbers = np.array([1, 2, 5], "m8[s]"), np.array([1, 2, 3])
    theirs = product(np, times, numbers)
    found = product(wt, wt.asarray(times, chunk_size=2), wt.asarray(numbers, chunk_size=2)).fetch()
    assert np.asarray(found).dtype == np.asarray(theirs).dtype
    np.testing.assert_array_equal(found, theirs)


@pytest.mark.parametrize("other", [1.5, "u8", "f4"])
def test_products_of_lengths_of_time_that_are_no_numbers_are_refused(other):
    times = wt.asarray(np.array([1, 2], "m8[s]"))
    with pytest.raises(TypeError):
        wt.dot(times, wt.asarray(np.array([1, 2], other) if isinstance(other, str) else [other, other])).fetch()


OBJECTS = {
    "numbers": [1, 2.5, 10**30, -3],
    "decimals": [Decimal("1.1"), Decimal("2.25"), Decimal(-3), Decimal("0.5")],
    "fractions": [Fraction(1, 3), Fraction(2, 5), Fraction(-1), Fraction(7, 2)],
}


def typed(x) -> list[tuple[type, object]]:
    return [(type(one), one) for one in np.array(x, object).ravel()]


@pytest.mark.parametrize("method", ["lower", "higher", "nearest", "inverted_cdf"])
@pytest.mark.parametrize("values", OBJECTS.values(), ids=OBJECTS)
def test_quantiles_of_objects_are_the_objects(values, method):
    given = np.array([values, values[::-1]], object)
    for axis in (0, 1, None):
        wanted = np.quantile(given, 0.3, axis=axis, method=method)
        found = wt.quantile(wt.asarray(given, chunk_size=2), 0.3, axis=axis, method=method)
        assert found.dtype == object
        made = found.fetch()
        assert typed(made) == typed(np.array(wanted, object))


@pytest.mark.parametrize("name", ["mean", "var", "median"])
@pytest.mark.parametrize("values", [OBJECTS["decimals"], OBJECTS["fractions"]], ids=["decimals", "fractions"])
def test_statistics_of_objects_are_exact(values, name):
    given = np.array([values, values[::-1]], object)
    found = getattr(wt, name)(wt.asarray(given, chunk_size=(1, 2)), axis=1).fetch()
    wanted = getattr(np, name)(given, axis=1)
    assert found.dtype == object
    assert [type(one) for one in found] == [type(one) for one in wanted]
    assert [float(one) for one in found] == pytest.approx([float(one) for one in wanted])


def test_the_mean_of_some_fractions_of_unknown_length():
    given = np.array(OBJECTS["fractions"], object)
    x = wt.asarray(given, chunk_size=2)
    assert typed(wt.mean(x[x > 0]).fetch()) == typed(np.array(np.mean(given[given > 0]), object))
    assert typed(wt.mean(x, where=x > 0).fetch()) == typed(np.array(np.mean(given[given > 0]), object))


def test_the_variance_of_some_objects():
    given = np.array([1, 2.5, 4, -3], object)
    found = wt.var(wt.asarray(given, chunk_size=2), where=wt.asarray(given > 0, chunk_size=2)).fetch()
    assert float(found) == pytest.approx(np.var(given.astype(float), where=given > 0))


def test_running_sums_of_texts_join_them_in_order():
    given = np.array(["a", "b", "c", "d", "e"], object)
    assert wt.cumsum(wt.asarray(given, chunk_size=2)).fetch().tolist() == ["a", "ab", "abc", "abcd", "abcde"]


@pytest.mark.parametrize("name", ["vdot", "vecdot"])
def test_complex_objects_are_conjugated(name):
    given = np.array([1j, 2, 3.5 - 1j], object)
    x = wt.asarray(given, chunk_size=2)
    assert getattr(wt, name)(x, x).fetch() == getattr(np, name)(given, given)
    assert wt.var(x).fetch() == pytest.approx(np.var(given))


@pytest.mark.parametrize("shape", [(), (2,), (2, 2)])
def test_records_that_are_not_zero_are_counted(shape):
    given = np.zeros(shape, "i4,f8,U3")
    given.ravel()[:1] = (0, 0.5, "")
    x = wt.asarray(given, chunk_size=1)
    assert wt.count_nonzero(x).fetch() == np.count_nonzero(given) == 1


NUMBER = st.one_of(
    st.integers(-9, 9), st.integers(-9, 300), st.sampled_from([0.5, -2.5, 0.1, -0.7, 1.3, 7.5, -1e-3, 2**40])
)


@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(
    start=NUMBER,
    stop=NUMBER,
    step=NUMBER.filter(bool),
    dtype=st.sampled_from([None, "?", "i1", "u1", "i4", "i8", "u8", "f2", "f4", "f8", "F", "D"]),
    chunk=st.integers(1, 7),
)
def test_a_range_is_numpys_to_the_last_bit(start, stop, step, dtype, chunk):
    hypothesis.assume((stop - start) / step < 1000)
    hypothesis.assume(dtype != "f2" or max(map(abs, (start, stop, step))) < 1000)  # both warn of an overflow
    try:
        with np.errstate(all="ignore"):
            wanted = np.arange(start, stop, step, dtype=dtype)
    except (OverflowError, TypeError) as error:
        with pytest.raises(type(error)):
            wt.arange(start, stop, step, dtype)
        return
    same(wt.arange(start, stop, step, dtype, chunk_size=chunk), wanted)


def test_ranges_of_large_numbers_wrap_around_nowhere():
    for ends in ((2**62, 2**62 + 9, 2), (-(2**63), -(2**63) + 3), (2**63 - 4, 2**63 - 1)):
        same(wt.arange(*ends, chunk_size=2), np.arange(*ends))
    same(wt.arange(2**64 - 5, 2**64 - 1, dtype="u8", chunk_size=2), np.arange(2**64 - 5, 2**64 - 1, dtype="u8"))


@pytest.mark.parametrize("name", ["irfft", "hfft", "rfft", "irfftn", "irfft2", "ihfft", "fft"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "i1", "F", "D", "?"])
def test_types_of_transforms_are_numpys(name, dtype):
    x = np.array([[1, 2, 3, 4], [5, 0, 7, 1]], dtype)
    try:
        wanted = getattr(np.fft, name)(x)
    except TypeError:
        with pytest.raises(TypeError):
            getattr(wt.fft, name)(wt.asarray(x))
        return
    found = getattr(wt.fft, name)(wt.asarray(x, chunk_size=2))
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found.fetch(), wanted, rtol=1e-2 if dtype == "f2" else 1e-5, atol=1e-5)


@pytest.mark.parametrize("ord", ["nuc", "fro", 1, -1, 2, -2, np.inf])
def test_lengths_of_time_have_norms(ord):
    x = np.array([[1, 2], [3, 4]], "m8[s]")
    for mine, theirs in ((wt.linalg.matrix_norm, np.linalg.matrix_norm), (wt.linalg.norm, np.linalg.norm)):
        found, wanted = mine(wt.asarray(x, chunk_size=1), ord=ord), theirs(x, ord=ord)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found.fetch().astype(float), wanted.astype(float))
    if not isinstance(ord, str):
        found, wanted = wt.linalg.vector_norm(wt.asarray(x), ord=ord), np.linalg.vector_norm(x, ord=ord)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found.fetch(), wanted)


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_one_axis_may_be_a_tuple(name):
    x = np.array([[1, 2], [3, 4]])
    same(getattr(wt, name)(wt.asarray(x, chunk_size=1), axis=(0,)), getattr(np, name)(x, axis=(0,)))
    for wrong in ((0, 1), ()):
        with pytest.raises(ValueError, match="multiple axes"):
            getattr(wt, name)(wt.asarray(x), axis=wrong)
    for name in ("cumsum", "cumprod"):
        with pytest.raises(TypeError, match="integer"):
            getattr(wt, name)(wt.asarray(x), axis=(0,))


@pytest.mark.parametrize("dtype", ["i8", "f4", "U2", "?", "m8[s]"])
def test_bytes_are_swapped(dtype):
    given = np.array([1, 2, 3]).astype(dtype)
    x = wt.asarray(given, chunk_size=2)
    made = x.byteswap()
    assert made.dtype == given.dtype
    assert made.fetch().tobytes() == given.byteswap().tobytes()
    assert x.fetch().tobytes() == given.tobytes()
    view = x[1:]
    assert x.byteswap(inplace=True) is x
    assert view.fetch().tobytes() == given.byteswap()[1:].tobytes()


@pytest.mark.parametrize("p", [None, 1, 2, -2, "fro", np.inf, -1, "nuc"])
def test_no_matrices_have_no_condition_numbers(p):
    same(wt.linalg.cond(wt.zeros((0, 2, 2)), p), np.linalg.cond(np.zeros((0, 2, 2)), p))
    for shape in ((0, 0), (3, 0, 0)):
        with pytest.raises(np.linalg.LinAlgError, match="empty"):
            wt.linalg.cond(wt.zeros(shape), p)


@pytest.mark.parametrize("shape", [(0,), (5, 0), (0, 3)])
def test_several_quantiles_of_nothing_have_the_shape_of_the_result(shape):
    for library in (wt.nanquantile, wt.quantile):
        made = library(wt.asarray(np.zeros(shape)), [0.25, 0.75])
        assert made.shape == (2,)
        same(made, [np.nan, np.nan])
    same(wt.nanquantile(wt.zeros((0, 3)), [0.5, 1], axis=1), np.zeros((2, 0)))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.bool_, np.int64])
def test_trapezoids_of_integers_do_not_overflow(dtype):
    high = np.iinfo(dtype).max if dtype != np.bool_ else 1
    x = np.full(5, high, dtype)
    same(wt.trapezoid(wt.asarray(x, chunk_size=2), dx=2), np.trapezoid(x.astype(float), dx=2))


def test_trapezoids_at_coordinates_with_more_axes():
    y, at = np.arange(6.0).reshape(3, 2), np.arange(12.0).reshape(2, 3, 2) ** 2
    same(wt.trapezoid(wt.asarray(y), x=wt.asarray(at), axis=-2), np.trapezoid(y, x=at, axis=-2))
    same(wt.trapezoid(wt.asarray(y[:, :1]), x=wt.asarray(at)), np.trapezoid(y[:, :1], x=at))


def test_numbers_between_float32_are_float32():
    for start, stop in ((np.float32(1), 2), (1, np.float32(2)), (np.float32(1), np.float64(2)), (np.int8(1), 2)):
        for name in ("linspace", "logspace"):
            found, wanted = getattr(wt, name)(start, stop, 5).fetch(), getattr(np, name)(start, stop, 5)
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, 1e-6)


@pytest.mark.parametrize("casting", ["no", "equiv", "safe", "unsafe"])
def test_casting_holds_for_joined_arrays_without_a_dtype(casting):
    given: list[Any] = [np.arange(2, dtype=np.int8), np.arange(2, dtype=np.uint64)]
    for arrays in (given, given[:1] * 2):
        try:
            wanted: Any = np.concatenate(arrays, casting=casting)
        except TypeError:
            with pytest.raises(TypeError, match="Cannot cast"):
                wt.concatenate(arrays, casting=casting)
        else:
            same(wt.concatenate(arrays, casting=casting), wanted)


def test_a_turned_number_is_no_view():
    x = wt.asarray(np.array(2.0))
    turned = wt.flip(x)
    x += 1
    same(turned, 2.0)
