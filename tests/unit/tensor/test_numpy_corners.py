"""Corners where arrays once differed from NumPy in value, dtype or error."""

import numpy as np
import pytest

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
