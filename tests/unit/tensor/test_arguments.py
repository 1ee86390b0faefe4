"""Arguments as NumPy's and Mars's functions take them, held against NumPy."""

import inspect
import pickle
from typing import Any

import numpy as np
import pytest

from weft import tensor

wt: Any = tensor
"""Any: a type checker knows the array standard's names of arguments only."""

RNG = np.random.default_rng(11)
X = RNG.normal(size=(6, 5))
RECORDS = np.array([(3, 0.5), (1, 2.0), (3, 0.1), (2, 9.0), (1, 1.0)], dtype=[("a", np.int32), ("b", np.float64)])


def t(x, chunk_size=2):
    return wt.asarray(x, chunk_size=chunk_size)


@pytest.mark.parametrize(
    ("ours", "wanted"),
    [
        (lambda: wt.sum(a=t(X), axis=0, combine_size=2), X.sum(0)),
        (lambda: t(X).mean(0, combine_size=2), X.mean(0)),
        (lambda: wt.where(condition=t(X > 0), x=t(X), y=0.0), np.where(X > 0, X, 0.0)),
        (lambda: wt.clip(t(X), a_min=-0.5, a_max=0.5), X.clip(-0.5, 0.5)),
        (lambda: wt.reshape(t(X), newshape=(5, 6)), X.reshape(5, 6)),
        (lambda: wt.tile(t(X), reps=2), np.tile(X, 2)),
        (lambda: wt.split(t(X), indices_or_sections=2)[1], X[3:]),
        (lambda: wt.sort(t(X), 0, "mergesort", parallel_kind="PSRS", psrs_kinds=["heapsort"] * 3), np.sort(X, 0)),
        (lambda: wt.sort(t(X), axis=None), np.sort(X, None)),
        (lambda: wt.sort(t(X), return_index=True)[1], np.argsort(X)),
        (lambda: wt.quantile(t(X), 0.3, axis=0, interpolation="lower"), np.quantile(X, 0.3, axis=0, method="lower")),
        (lambda: wt.linalg.matmul(a=t(X), b=t(X.T), sparse=None), X @ X.T),
        (lambda: wt.linalg.qr(t(X), method="tsqr").Q.T @ wt.linalg.qr(t(X)).Q, np.eye(5)),
        (lambda: wt.fft.fft(a=t(X), axis=0), np.fft.fft(X, axis=0)),
        (lambda: wt.add(t(X), 1, dtype="f4", casting="unsafe"), np.add(X, 1, dtype="f4", casting="unsafe")),
        (lambda: wt.meshgrid(t(X[0]), t(X[1]), sparse=True)[1], np.meshgrid(X[0], X[1], sparse=True)[1]),
        (lambda: wt.average(t(X), axis=0, returned=True)[1], np.average(X, axis=0, returned=True)[1]),
        (lambda: wt.histogram(t(X), "sturges")[0], np.histogram(X, "sturges")[0]),
        (lambda: np.logaddexp.reduce(t(X), axis=1), np.logaddexp.reduce(X, axis=1)),
        (lambda: t(X).rebalance(num_partitions=3), X),
        (lambda: wt.einsum("ij,kj->ik", t(X), t(X), dtype="f8", optimize=True), X @ X.T),
        (lambda: wt.einsum("ij,jk,j->i", t(X), t(X[:1].T), t(X[1])), np.einsum("ij,jk,j->i", X, X[:1].T, X[1])),
        (lambda: wt.einsum("aij,a->ai", t(X[None]), t(X[0])), np.einsum("aij,a->ai", X[None], X[0])),
        (lambda: wt.array([1, 2], ndmin=2), np.array([1, 2], ndmin=2)),
    ],
)
def test_a_function_takes_what_numpys_or_marss_takes(ours, wanted):
    made = ours()
    assert isinstance(made, wt.Tensor)
    np.testing.assert_allclose(made.fetch(), wanted, atol=1e-12)


@pytest.mark.parametrize(
    ("function", "at"),
    [
        ("sum", (0, None)),
        ("max", (0,)),
        ("median", (0,)),
        ("quantile", (0.5, 0)),
        ("nanmean", (0, None)),
        ("ptp", (0,)),
    ],
)
def test_the_result_goes_where_numpy_has_out_among_the_arguments(function, at):
    out = wt.zeros(5)
    assert getattr(wt, function)(t(X), *at, out) is out
    np.testing.assert_allclose(out.fetch(), getattr(np, function)(X, *at))


def test_both_parts_of_a_number_go_into_arrays():
    whole, parts = wt.zeros(X.shape), wt.zeros(X.shape)
    wt.modf(t(X), parts, whole)
    for made, wanted in zip((parts, whole), np.modf(X), strict=True):
        assert np.array_equal(made.fetch(), wanted)


@pytest.mark.parametrize(
    "call",
    [
        lambda: wt.random.rand(2, 2, gpu=True),
        lambda: wt.ones((2, 2), gpu=True),
        lambda: t(X).to_gpu(),
    ],
)
def test_other_kinds_of_arrays_are_refused_by_name(call):
    with pytest.raises(TypeError, match="arrays are"):
        call()


def test_an_argument_that_nobody_has_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword"):
        wt.sum(t(X), psrs_kinds=[])
    with pytest.raises(TypeError, match="casting rule"):
        wt.add(t(X), 1, dtype="i8", casting="same_kind")


def test_public_functions_are_pickled_by_name():
    for name in wt.__all__:
        if inspect.isfunction(getattr(wt, name)):
            assert pickle.loads(pickle.dumps(getattr(wt, name))) is getattr(wt, name)


# ------------------------------------------------------------------------------------------------ order in memory


@pytest.mark.parametrize(
    "make",
    [
        lambda xp, a: xp.asarray(a(np.asfortranarray(X))),
        lambda xp, a: a(np.asfortranarray(X)) + 1,
        lambda xp, a: a(np.asfortranarray(X)) + a(X),
        lambda xp, a: xp.zeros((3, 4), order="F"),
        lambda xp, a: xp.full_like(a(np.asfortranarray(X)), 2.0),
        lambda xp, a: a(X).astype("f4", order="F"),
        lambda xp, a: a(X).copy(order="F"),
        lambda xp, a: xp.asfortranarray(a(X)),
        lambda xp, a: xp.ascontiguousarray(a(np.asfortranarray(X))),
        lambda xp, a: xp.sin(a(X), order="F"),
        lambda xp, a: xp.clip(a(np.asfortranarray(X)), 0.0, 1.0),
        lambda xp, a: xp.reshape(a(X), (3, 10), order="F"),
        lambda xp, a: xp.ravel(a(X), order="F"),
    ],
)
def test_values_lie_in_memory_as_numpys(make):
    made, wanted = make(wt, t), make(np, np.asarray)
    for flags in (made.flags, made.fetch().flags):
        assert (flags.c_contiguous, flags.f_contiguous) == (wanted.flags.c_contiguous, wanted.flags.f_contiguous)
    assert np.array_equal(made.fetch(), wanted)


# -------------------------------------------------------------------------------------- partial order and records


@pytest.mark.parametrize("chunk_size", [2, 3, 100])
@pytest.mark.parametrize("axis", [0, -1, None])
def test_a_partition_splits_at_its_places(chunk_size, axis):
    kth = [1, -2]
    made = wt.partition(t(X, chunk_size), kth, axis=axis).fetch()
    wanted = np.sort(X, axis)
    along = 0 if axis is None else axis
    for k in kth:
        middle = np.take(wanted, [k], along)
        assert np.array_equal(np.take(made, [k], along), middle)
        assert np.all(np.take(made, range(k % made.shape[along]), along) <= middle)
    places = wt.argpartition(t(X, chunk_size), kth, axis=axis).fetch()
    flat = X.ravel() if axis is None else X
    assert np.array_equal(np.take_along_axis(flat, places, along), made)


def test_a_partition_is_wrong_for_places_that_are_not_there():
    with pytest.raises(ValueError, match="out of bounds"):
        wt.partition(t(X), 6, axis=0)
    with pytest.raises(ValueError, match="introselect"):
        wt.partition(t(X), 1, kind="quicksort")


@pytest.mark.parametrize("chunk_size", [1, 7, 64])
@pytest.mark.parametrize("largest", [True, False])
def test_the_largest_of_a_long_array_are_found_in_its_chunks(chunk_size, largest):
    values = RNG.permutation(64)
    top, places = wt.topk(t(values, chunk_size), 5, largest=largest, return_index=True)
    wanted = np.sort(values)[::-1][:5] if largest else np.sort(values)[:5]
    assert np.array_equal(top.fetch(), wanted)
    assert np.array_equal(values[places.fetch()], wanted)


@pytest.mark.parametrize("chunk_size", [2, 9])
def test_records_are_ordered_by_their_fields(chunk_size):
    x = t(RECORDS, chunk_size)
    assert np.array_equal(wt.sort(x, order=["b"]).fetch(), np.sort(RECORDS, order=["b"]))
    assert np.array_equal(wt.argsort(x, order="a").fetch(), np.argsort(RECORDS, order="a", kind="stable"))
    assert wt.topk(x, 2, order=["a", "b"]).fetch().tolist() == [(3, 0.5), (3, 0.1)]
    assert wt.partition(x, 0, order="b").fetch()[0] == RECORDS[2]
    x.sort(order="b")
    assert np.array_equal(x.fetch(), np.sort(RECORDS, order="b"))
    with pytest.raises(ValueError, match="unknown field"):
        wt.sort(x, order="c")


def test_records_are_assigned_as_tuples():
    x, wanted = t(RECORDS), RECORDS.copy()
    x[1:3] = wanted[1:3] = (7, 8.0)
    assert np.array_equal(x.fetch(), wanted)


# --------------------------------------------------------------------------------------------------------- random


def test_random_arrays_take_the_arguments_of_mars():
    made = wt.random.beta(a=2.0, b=3.0, size=(4, 5), chunk_size=2, gpu=False, dtype="f4")
    assert made.shape == (4, 5)
    assert made.dtype == np.float32
    assert wt.random.rand(3, 2, dtype=np.float32).dtype == np.float32
    assert wt.random.permutation(9, chunk_size=4).chunks == ((4, 4, 1),)
    assert len(wt.random.RandomState(3).bytes(7)) == 7
    assert wt.random.RandomState(3).bytes(7) == wt.random.RandomState(3).bytes(7)
    x = t(X)
    wt.random.RandomState(3).shuffle(x, axis=1)
    assert np.array_equal(np.sort(x.fetch(), axis=1), np.sort(X, axis=1))
    for wrong in ({"a": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}):
        with pytest.raises(TypeError, match="beta takes a, b, size"):
            wt.random.beta(**wrong)


def test_dates_are_counted():
    days = wt.arange("2024-02-28", "2024-03-02", dtype="datetime64[D]", chunk_size=2)
    assert np.array_equal(wt.diff(days).fetch(), np.diff(np.arange("2024-02-28", "2024-03-02", dtype="datetime64[D]")))


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: wt.bincount(t([[1, 2], [3, 4]])), ValueError, "1 dimension"),
        (lambda: wt.bincount(t([1, 2]), minlength=-1), ValueError, "must not be negative"),
        (lambda: wt.bincount(t([1, 2]), weights=[1.0]), ValueError, "the same length"),
        (lambda: wt.bincount(t([1.0, 2.0])), TypeError, "Cannot cast array data"),
        (lambda: wt.einsum("ij->i", t(X), dtype="i4"), TypeError, "Cannot cast array data"),
        (lambda: wt.einsum("ij,ij", t(X), t(X[:2])), ValueError, "could not be broadcast"),
        (lambda: wt.from_hdf5(object()), TypeError, "path is object"),
    ],
)
def test_what_is_wrong_is_told_at_once(call, kind, words):
    with pytest.raises(kind, match=words):
        call()
