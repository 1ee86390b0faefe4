"""Functions of NumPy that are not compared by drawn calls: files, text, dates, assignments, large arrays."""

import io
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors.arrays import absent
from weft.frontends.tensors.nodes import walk
from weft.model.errors import TaskError

X = np.random.default_rng(3).normal(size=(9, 7))
V = np.arange(10.0)
WEFT: Any = wt
NUMPY: Any = np
"""NumPy without its types of arguments, which are narrower than what it accepts."""


def cut(x=X, size=3):
    return wt.asarray(x, chunk_size=size)


def same(ours, theirs):
    found = ours.fetch() if isinstance(ours, wt.Tensor) else ours
    np.testing.assert_array_equal(found, theirs)
    assert np.asarray(found).dtype == np.asarray(theirs).dtype


# ------------------------------------------------------------------------------------------------------- assignments


@pytest.mark.parametrize("size", [2, 20])
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("put", ([0, 5, -1], [7.0, 8.0])),
        ("put", ([0, 99], [7.0], "clip")),
        ("put", ([[100, 3]], 2, "wrap")),
        ("put", ([], [])),
        ("putmask", (X > 0, 3)),
        ("putmask", (X > 0, [1.0, 2.0, 3.0])),
        ("putmask", (X > 0, X * 2)),
        ("place", (X > 0, [1.0, 2.0, 3.0])),
        ("place", (X > 99, [])),
        ("put_along_axis", (np.argmax(X, axis=1, keepdims=True), 99.0, 1)),
        ("put_along_axis", (np.array([1, 3]), np.array([5.0, 6.0]), None)),
    ],
)
def test_elements_are_assigned_as_by_numpy(name, args, size):
    mine, theirs = cut(size=size), X.copy()
    assert getattr(wt, name)(mine, *args) is None
    getattr(np, name)(theirs, *args)
    np.testing.assert_array_equal(mine.fetch(), theirs)
    dispatched = cut(size=size)
    getattr(np, name)(dispatched, *args)
    np.testing.assert_array_equal(dispatched.fetch(), theirs)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x: wt.put(np.zeros(3), 0, 1), TypeError, "put changes a Weft array, not ndarray"),
        (lambda x: wt.put(x, 0, 1, "odd"), ValueError, "clipmode"),
        (lambda x: wt.putmask(x, [True], 1), ValueError, "must be the same size"),
        (lambda x: wt.putmask(x, X > 0, X * 1j), TypeError, "Cannot cast"),
        (lambda x: wt.place(x, X > 0, []), ValueError, "Cannot insert from an empty array"),
        (lambda x: wt.put_along_axis(x, X, 1, 0), IndexError, "integer array"),
        (lambda x: wt.put_along_axis(x, np.array([1]), 1, 0), ValueError, "same number of dimensions"),
    ],
)
def test_what_cannot_be_assigned_is_refused(call, kind, words):
    with pytest.raises(kind, match=words):
        call(cut())


# ------------------------------------------------------------------------------------------------------- large arrays


def test_long_series_are_convolved_chunk_by_chunk():
    x, v = np.random.default_rng(1).normal(size=1000), np.random.default_rng(2).normal(size=31)
    with wt.Session(workers=2, direct=False) as session:
        for mode in ("full", "same", "valid"):
            for size in (7, 100, 1000):
                made = wt.convolve(cut(x, size), v, mode)
                np.testing.assert_allclose(made.fetch(session), np.convolve(x, v, mode))
                np.testing.assert_allclose(wt.correlate(cut(x, size), v, mode).fetch(session), np.correlate(x, v, mode))
                np.testing.assert_allclose(wt.correlate(v, cut(x, size), mode).fetch(session), np.correlate(v, x, mode))
    assert wt.convolve(cut(x, 100), v).chunks == ((*(100,) * 9, 130),)
    infinite = np.array([np.inf, 1, 2])  # the ends are sums of fewer products: no 0 times infinity
    same(wt.convolve(cut(V, 4), infinite), np.convolve(V, infinite))


def test_tall_systems_are_solved_by_their_factors():
    a = np.random.default_rng(4).normal(size=(50_000, 6))
    b = a @ np.arange(6.0) + 0.1
    found: Any = wt.linalg.lstsq(wt.asarray(a, chunk_size=(5_000, 6)), wt.asarray(b, chunk_size=5_000))
    wanted: Any = np.linalg.lstsq(a, b)
    for one, other in zip(found.fetch(), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)
    several = wt.linalg.lstsq(wt.asarray(a, chunk_size=(5_000, 6)), np.stack([b, 2 * b], 1))
    np.testing.assert_allclose(several.x.fetch(), np.linalg.lstsq(a, np.stack([b, 2 * b], 1))[0], rtol=1e-8, atol=1e-8)
    low = a.copy()
    low[:, 5] = low[:, 4]
    same(wt.linalg.lstsq(wt.asarray(low, chunk_size=(5_000, 6)), b).residuals, np.linalg.lstsq(low, b)[1])
    with pytest.raises(np.linalg.LinAlgError, match="Incompatible dimensions"):
        wt.linalg.lstsq(a, b[1:])


@pytest.mark.parametrize(
    "words", [{}, {"w": np.linspace(1, 2, 40)}, {"cov": True}, {"full": True}, {"cov": "unscaled"}]
)
def test_polynomials_are_fitted(words):
    x = np.linspace(-1, 1, 40)
    for y in (x**3 - x + 1, np.stack([x**2, np.sin(x)], 1)):
        found, wanted = wt.polyfit(cut(x, 9), cut(y, 9), 3, **words), np.polyfit(x, y, 3, **words)
        pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
        for one, other in pairs:
            np.testing.assert_allclose(one.fetch(), other, rtol=1e-6, atol=1e-9)
    with pytest.raises(TypeError, match="same length"):
        wt.polyfit(x, y[1:], 1)
    with pytest.raises(ValueError, match="deg >= 0"):
        wt.polyfit(x, y, -1)


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "f2"])
def test_weights_of_a_histogram_are_added_up_in_float64(dtype, session):
    x, weights = np.tile(np.arange(4), 300), np.full(1200, 100).astype(dtype)
    counts, _ = wt.histogram(cut(x, 500), bins=4, weights=weights).fetch(session)
    np.testing.assert_array_equal(counts, [300.0 * weights[0]] * 4 if dtype == "?" else [30_000.0] * 4)


def test_histograms_of_many_points_are_added_up():
    points = np.random.default_rng(1).random((3000, 2))
    weights = np.random.default_rng(2).random(3000)
    with wt.Session(workers=2, direct=False) as session:
        found = wt.histogram2d(cut(points[:, 0], 170), cut(points[:, 1], 300), bins=[4, [0, 0.3, 1]], weights=weights)
        for one, other in zip(
            found.fetch(session), NUMPY.histogram2d(*points.T, bins=[4, [0, 0.3, 1]], weights=weights), strict=True
        ):
            np.testing.assert_allclose(one, other)
        counts, edges = wt.histogramdd(wt.asarray(points, chunk_size=(170, 1)), (3, 5), range=[(0, 1), None])
        wanted, theirs = NUMPY.histogramdd(points, (3, 5), range=[(0, 1), None])
        same(counts.fetch(session), wanted)
        for one, other in zip(edges, theirs, strict=True):
            np.testing.assert_array_equal(one.fetch(session), other)


def test_keys_of_long_arrays_are_sorted():
    first, second = np.random.default_rng(1).integers(0, 9, (2, 5000))
    same(wt.lexsort([cut(first, 700), cut(second, 700)]), np.lexsort([first, second]))
    long = np.random.default_rng(4).integers(0, 99, (2, 600_000))
    keys = [wt.asarray(one, chunk_size=100_000) for one in long]
    assert not any(node.chunks == 1 and node.size == 600_000 for node in walk([wt.lexsort(keys).node]))
    same(wt.lexsort(keys), np.lexsort(list(long)))
    x = np.random.default_rng(2).integers(0, 900, 700_000)
    y = np.random.default_rng(3).integers(300, 1200, 700_000)
    one_array, other_array = (wt.asarray(one, chunk_size=100_000) for one in (x, y))
    for one, other in zip(
        wt.intersect1d(one_array, other_array, return_indices=True).fetch(),
        np.intersect1d(x, y, return_indices=True),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    same(wt.setxor1d(one_array, other_array), np.setxor1d(x, y))


def test_windows_are_read_with_the_next_chunk():
    x = np.arange(1000.0)
    theirs = np.lib.stride_tricks.sliding_window_view(x, 5)
    with wt.Session(workers=2, direct=False) as session:
        for size in (1, 3, 4, 250, 1000, 499):
            made = wt.lib.stride_tricks.sliding_window_view(cut(x, size), 5)
            np.testing.assert_array_equal(made.fetch(session), theirs)
            np.testing.assert_array_equal(made.mean(axis=-1).fetch(session), theirs.mean(axis=-1))


@pytest.mark.parametrize("triangle", ["L", "U"])
def test_one_triangle_of_symmetric_matrices_is_read(triangle):
    x = np.random.default_rng(1).normal(size=(3, 5, 5)) + 1j * np.random.default_rng(2).normal(size=(3, 5, 5))
    values, vectors = wt.linalg.eigh(cut(x, (1, 5, 5)), UPLO=triangle)
    np.testing.assert_allclose(values.fetch(), np.linalg.eigh(x, triangle)[0])
    half = np.tril(x, -1) if triangle == "L" else np.triu(x, 1)
    whole = half + half.conj().swapaxes(1, 2) + np.eye(5) * x.real
    np.testing.assert_allclose(whole @ vectors.fetch(), vectors.fetch() * values.fetch()[:, None], atol=1e-12)


def test_arguments_of_factorisations_are_those_of_numpy():
    ours, theirs = WEFT.linalg, NUMPY.linalg
    np.testing.assert_allclose(ours.svd(X, compute_uv=False).fetch(), theirs.svd(X, compute_uv=False))
    np.testing.assert_allclose(theirs.svd(cut(), False, False).fetch(), theirs.svd(X, False, False))
    np.testing.assert_allclose(ours.pinv(cut(), rcond=0.5).fetch(), theirs.pinv(X, 0.5), atol=1e-12)
    assert ours.matrix_rank(cut(X @ X.T), hermitian=True).fetch() == theirs.matrix_rank(X @ X.T)


# --------------------------------------------------------------------------------------------------- files and text


def test_text_is_read_and_written(tmp_path):
    path = tmp_path / "x.txt"
    for given in (X, V):
        wt.savetxt(path, cut(given), header="first", footer="last", fmt="%.18e")
        wanted = io.StringIO()
        np.savetxt(wanted, given, header="first", footer="last", fmt="%.18e")
        assert path.read_text() == wanted.getvalue()
        same(wt.loadtxt(path), given)
        same(wt.genfromtxt(path), given)
    buffer, theirs = io.StringIO(), io.StringIO()
    wt.savetxt(buffer, cut(), delimiter=",")
    np.savetxt(theirs, X, delimiter=",")
    assert buffer.getvalue() == theirs.getvalue()
    wt.savetxt(tmp_path / "x.gz", cut())
    same(wt.loadtxt(tmp_path / "x.gz"), X)
    path.write_text("1 a\n2 b\n")
    same(wt.fromregex(path, r"(\d) (\w)", [("n", "i8"), ("t", "U1")])["n"], np.array([1, 2]))
    with pytest.raises(ValueError, match="Expected 1D or 2D"):
        wt.savetxt(path, wt.zeros((2, 2, 2)))


def test_bytes_are_read(tmp_path):
    path = tmp_path / "x.bin"
    X.tofile(path)
    made = wt.fromfile(path, chunk_size=9)
    assert made.chunks == ((9,) * 7,)
    same(made, X.ravel())
    same(wt.fromfile(str(path), np.float64, 3, offset=8), X.ravel()[1:4])
    same(wt.fromfile(path, count=0), np.zeros(0))
    (tmp_path / "numbers").write_text("1 2 3")
    same(wt.fromfile(tmp_path / "numbers", int, sep=" "), np.array([1, 2, 3]))
    same(wt.frombuffer(V.tobytes(), offset=16, count=3), V[2:5])
    same(wt.fromiter(iter(range(5)), int, chunk_size=2), np.arange(5))
    same(wt.fromstring("1, 2", sep=","), np.array([1.0, 2.0]))


def test_archives_hold_arrays(tmp_path):
    for save in (wt.savez, wt.savez_compressed):
        save(tmp_path / "x.npz", cut(), v=cut(V))
        with np.load(tmp_path / "x.npz") as found:
            np.testing.assert_array_equal(found["arr_0"], X)
            np.testing.assert_array_equal(found["v"], V)


def test_functions_of_coordinates_are_called_by_chunk():
    same(wt.fromfunction(lambda i, j: i * 10 + j, (5, 4), dtype=int, chunk_size=2),
         np.fromfunction(lambda i, j: i * 10 + j, (5, 4), dtype=int))  # fmt: skip
    same(wt.fromfunction(lambda i: 7, (3,)), np.full(3, 7))


def test_values_are_told_as_text():
    for name in ("array2string", "array_repr", "array_str"):
        ours, theirs = getattr(wt, name), getattr(np, name)
        assert ours(cut(), precision=2) == theirs(X, precision=2) == theirs(cut(), precision=2)


# ------------------------------------------------------------------------------------------------------------- dates

DATES = np.array(["2024-02-28", "2024-03-02", "2024-12-25", "NaT"], "M8[D]")
CALENDAR = NUMPY.busdaycalendar("1111100", ["2024-12-25"])


def test_business_days_are_counted():
    with wt.Session(workers=2, backend="processes") as session:
        found = wt.is_busday(cut(DATES, 2), busdaycal=CALENDAR)
        np.testing.assert_array_equal(found.fetch(session), np.is_busday(DATES, busdaycal=CALENDAR))
    known = DATES[:3]
    same(wt.busday_count(cut(known, 2), "2025-01-01"), np.busday_count(known, np.datetime64("2025-01-01")))
    same(wt.busday_offset(cut(known, 2), [1, 2, 3], roll="forward", holidays=["2024-12-25"]),
         NUMPY.busday_offset(known, [1, 2, 3], roll="forward", holidays=["2024-12-25"]))  # fmt: skip
    with pytest.raises((ValueError, TaskError), match="Non-business day"):
        wt.busday_offset(cut(known, 2), 1).fetch()
    with pytest.raises(ValueError, match="Cannot supply both"):
        wt.is_busday(known, weekmask="1111111", busdaycal=CALENDAR)


def test_dates_become_text():
    same(wt.datetime_as_string(cut(DATES, 2)), np.datetime_as_string(DATES))
    same(wt.datetime_as_string(cut(DATES, 2), "h"), np.datetime_as_string(DATES, "h"))
    same(wt.isnat(cut(DATES, 2)), np.isnat(DATES))
    with pytest.raises(TypeError, match="must have type NumPy datetime"):
        wt.datetime_as_string(V)


# --------------------------------------------------------------------------------------------------------- questions


def test_types_are_told_without_values():
    x: Any = cut() + 1
    assert wt.common_type(x, np.ones(2, "f4")) is np.float64
    assert wt.min_scalar_type(x) == np.float64
    assert wt.min_scalar_type(7) == np.uint8
    assert wt.einsum_path("ij,jk", x, X.T)[0] == ["einsum_path", (0, 1)]
    assert not wt.shares_memory(x, x)
    assert not wt.may_share_memory(x, X)
    assert wt.isfortran(wt.asfortranarray(X))
    assert not wt.isfortran(x)
    assert not x._ready()
    assert not wt.isscalar(x)
    assert [one[0] for one in wt.ndenumerate(cut(V[:2]))] == [(0,), (1,)]
    found = wt.mask_indices(3, wt.triu, 1)
    assert [one.fetch().tolist() for one in found] == [one.tolist() for one in np.mask_indices(3, np.triu, 1)]
    assert wt.s_[1:2] == np.s_[1:2]
    with pytest.raises(ValueError, match="infs or NaNs"):
        wt.asarray_chkfinite([1.0, np.nan])
    with pytest.raises(ValueError, match='both "C" and "F"'):
        wt.require(x, requirements=["C", "F"])
    assert wt.require(x, requirements="F").order == "F"
    assert wt.iterable(x)


def test_functions_of_objects_are_called_for_arrays():
    double = wt.frompyfunc(lambda a: a * 2, 1, 1)
    np.testing.assert_array_equal(double(cut()).fetch().astype(float), X * 2)


# -------------------------------------------------------------------------------------------------------- all names


@pytest.mark.parametrize("space", absent.SPACES)
def test_every_name_of_numpy_is_here_or_has_a_reason(space):
    theirs, ours = absent.SPACES[space], getattr(wt, space) if space else wt
    left_out = {one for names in absent.REASONS.values() for one in names.split()} if not space else set()
    for name in theirs.__all__:
        there = name in ours.__all__
        assert there or name in left_out, f"numpy.{name}: make it public, or tell in absent.py why it is not"
        assert not (there and name in left_out), f"{name} is public: remove it from absent.py"
    named = [one for names in absent.REASONS.values() for one in names.split()]
    assert sorted(set(named)) == sorted(named), "a name has two reasons"
    assert not left_out & set(dir(wt)), "absent.py names what is here"


def test_the_table_of_the_page_is_written_from_the_reasons():
    from pathlib import Path

    page = (Path(__file__).parents[3] / "docs/tensors.md").read_text()
    assert absent.table() in page, "write it again: python -m weft.frontends.tensors.arrays.absent"


def test_who_asks_for_a_name_that_is_left_out_gets_the_reason():
    with pytest.raises(AttributeError, match=r"has no attribute 'nditer': .*memory of one array"):
        _ = wt.nditer  # type: ignore[attr-defined]
    found = subprocess.run(
        [sys.executable, "-m", "weft.frontends.tensors.arrays.absent"], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == absent.table().strip()
