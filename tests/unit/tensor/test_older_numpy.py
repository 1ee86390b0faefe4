"""Names of Mars and of older NumPy, held against NumPy."""

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors.arrays import extras
from weft.model.errors import MissingExtraError

RNG = np.random.default_rng(8)
X = RNG.random((6, 5))
N = RNG.integers(0, 9, (6, 5))
WITH_NAN = np.where(X > 0.7, np.nan, X)


def t(x):
    return wt.asarray(x, chunk_size=2)


def trapezoid(xp):
    return xp.trapz if xp is wt else xp.trapezoid


SAME = {
    "absolute": lambda xp, a: xp.absolute(a(X - 0.5)),
    "around": lambda xp, a: xp.around(a(X), 1),
    "bitwise_not": lambda xp, a: xp.bitwise_not(a(N)),
    "block": lambda xp, a: xp.block([[a(X), a(X)], [a(N), a(N)]]),
    "block of lines": lambda xp, a: xp.block([a(X[0]), a(X[1])]),
    "choose": lambda xp, a: xp.choose(a(N % 3), [a(X), a(X * 2), a(X[0])]),
    "choose wraps": lambda xp, a: xp.choose(a(N), [a(X), a(X * 2)], mode="wrap"),
    "conjugate": lambda xp, a: xp.conjugate(a(X + 1j)),
    "copy": lambda xp, a: xp.copy(a(X)),
    "delete": lambda xp, a: xp.delete(a(X), [0, -1], axis=0),
    "delete flat": lambda xp, a: xp.delete(a(X), slice(1, 9, 3)),
    "diagflat": lambda xp, a: xp.diagflat(a(X[:2, :2]), 1),
    "ediff1d": lambda xp, a: xp.ediff1d(a(X), to_begin=1.0, to_end=[2.0, 3.0]),
    "extract": lambda xp, a: xp.extract(a(X > 0.5), a(X)),
    "fft2": lambda xp, a: xp.fft.fft2(a(X)),
    "fft2 without a norm": lambda xp, a: xp.fft.fft2(a(X), norm=None),
    "irfft without a norm": lambda xp, a: xp.fft.irfft(a(X), norm=None),
    "fix": lambda xp, a: xp.fix(a(X * 9 - 4)),
    "histogram_bin_edges": lambda xp, a: xp.histogram_bin_edges(a(X), 7),
    "histogram_bin_edges by rule": lambda xp, a: xp.histogram_bin_edges(a(X), "sturges"),
    "i0": lambda xp, a: xp.i0(a(X)),
    "identity": lambda xp, a: xp.identity(4),
    "ifft2": lambda xp, a: xp.fft.ifft2(a(X)),
    "indices": lambda xp, a: xp.indices((3, 4)),
    "insert one": lambda xp, a: xp.insert(a(X), 2, 7.0, axis=1),
    "insert a row": lambda xp, a: xp.insert(a(X), 2, X[0], axis=0),
    "insert several": lambda xp, a: xp.insert(a(X), [1, 4], [[5.0], [6.0]], axis=0),
    "insert flat": lambda xp, a: xp.insert(a(X), [2, 2, 30], [1.0, 2.0, 3.0]),
    "irfft2": lambda xp, a: xp.fft.irfft2(a(X)),
    "iscomplex": lambda xp, a: xp.iscomplex(a(X + 1j * (N > 4))),
    "isreal": lambda xp, a: xp.isreal(a(X)),
    "linalg.norm": lambda xp, a: xp.linalg.norm(a(X)),
    "linalg.norm rows": lambda xp, a: xp.linalg.norm(a(X), axis=1),
    "linalg.norm 1": lambda xp, a: xp.linalg.norm(a(X), 1, axis=(1, 0), keepdims=True),
    "linalg.norm nuc": lambda xp, a: xp.linalg.norm(a(X), "nuc"),
    "mgrid": lambda xp, a: xp.mgrid[0:3, 1:9:2],
    "mgrid of one": lambda xp, a: xp.mgrid[0:1:5j],
    "nanargmax": lambda xp, a: xp.nanargmax(a(WITH_NAN), axis=0),
    "nanargmin": lambda xp, a: xp.nanargmin(a(WITH_NAN)),
    "ogrid": lambda xp, a: xp.ogrid[0:3, 0:2:4j][1],
    "pad": lambda xp, a: xp.pad(a(X), ((1, 2), (0, 3)), constant_values=7),
    "pad by its own": lambda xp, a: xp.pad(a(X), 2, mode="reflect"),
    "nanmedian": lambda xp, a: xp.nanmedian(a(WITH_NAN), axis=1),
    "nanquantile": lambda xp, a: xp.nanquantile(a(WITH_NAN), [0.2, 0.5], axis=0),
    "nanstd of another type": lambda xp, a: xp.nanstd(a(WITH_NAN), axis=0, dtype=np.float32, ddof=1),
    "einsum with an ellipsis": lambda xp, a: xp.einsum("...j,kj->...k", a(np.stack([X, X])), a(X)),
    "einsum with an ellipsis left out": lambda xp, a: xp.einsum("...i,...i", a(X), a(X[:1])),
    "partition": lambda xp, a: xp.partition(a(X), 2, axis=0)[2],
    "r_": lambda xp, a: xp.r_[1:4, 0, a(X[0])],
    "r_ of matrices": lambda xp, a: xp.r_["1,2,0", a(X[0]), a(X[1])],
    "c_": lambda xp, a: xp.c_[a(X[0]), a(X[1])],
    "rfft2": lambda xp, a: xp.fft.rfft2(a(X)),
    "setdiff1d": lambda xp, a: xp.setdiff1d(a(N), [1, 2]),
    "sinc": lambda xp, a: xp.sinc(a(X)),
    "trapezoid": lambda xp, a: trapezoid(xp)(a(X), dx=0.5, axis=0),
    "trapezoid at": lambda xp, a: trapezoid(xp)(a(X), x=a(np.arange(5.0) ** 2)),
    "union1d": lambda xp, a: xp.union1d(a(N), [77]),
    "unique": lambda xp, a: xp.unique(a(N)),
    "unique of NaN": lambda xp, a: xp.unique(a(WITH_NAN)),
    "unique rows": lambda xp, a: xp.unique(a(N % 2), axis=0),
    "unravel_index": lambda xp, a: xp.unravel_index(a(N), (3, 4))[1],
    "compress by a method": lambda xp, a: a(X).compress(np.array([True, False, True]), axis=0),
    "eye with M": lambda xp, a: xp.eye(3, M=5, k=1),
    "add of a type": lambda xp, a: xp.add(a(N), 1, dtype=np.float32),
    # what NumPy takes by place
    "sum by place": lambda xp, a: xp.sum(a(X), 0),
    "mean by place": lambda xp, a: a(X).mean(1),
    "var by place": lambda xp, a: a(X).var(0, ddof=1),
    "std of another type": lambda xp, a: a(N).std(0, np.float32),
    "zeros by place": lambda xp, a: xp.zeros((2, 3), "i4"),
    "full by place": lambda xp, a: xp.full((2, 3), 4, "i4"),
    "sort by place": lambda xp, a: xp.sort(a(X), 0),
    "concatenate by place": lambda xp, a: xp.concatenate((a(X), a(X)), 1),
    "diff by place": lambda xp, a: xp.diff(a(X), 2, 0),
    "squeeze": lambda xp, a: xp.squeeze(a(X[:, :1])),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_it_gives_what_numpy_gives(name):
    ours, theirs = SAME[name](wt, t), SAME[name](np, np.asarray)
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours.fetch(), theirs, rtol=1e-6 if theirs.dtype == np.float32 else 1e-12, atol=1e-12)


def test_names_that_numpy_has_no_more():
    x = t(N)
    assert int(wt.product(x[:2])) == N[:2].prod()
    np.testing.assert_array_equal(wt.in1d(x, [3]).fetch(), np.isin(N, [3]).ravel())
    np.testing.assert_array_equal(wt.round_(t(X), 1).fetch(), X.round(1))
    np.testing.assert_allclose(wt.innerproduct(t(X), t(X)).fetch(), X @ X.T)
    assert wt.Inf == -wt.NINF == np.inf
    assert np.isnan(wt.NaN)
    assert wt.float is np.float64
    assert wt.tensor([1, 2]).fetch().tolist() == [1, 2]
    assert (wt.ndim(x), wt.shape(x)) == (2, (6, 5))


def test_sums_by_pairs():
    np.testing.assert_allclose(wt.tree_add([t(X)] * 5).fetch(), X * 5)
    np.testing.assert_allclose(wt.tree_multiply(t(X), 2, t(X)).fetch(), X * X * 2)


def test_unique_returns_what_is_asked_for():
    ours = wt.unique(t(N), return_index=True, return_inverse=True, return_counts=True)
    theirs = np.unique(N, return_index=True, return_inverse=True, return_counts=True)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.fetch(), other)
    _, counts = wt.unique(t(N), return_counts=True)
    assert int(wt.sum(counts)) == N.size


def test_argpartition_orders():
    at = wt.argpartition(t(X), 2, axis=1)
    np.testing.assert_array_equal(wt.take_along_axis(t(X), at, axis=1).fetch()[:, 2], np.sort(X, axis=1)[:, 2])
    with pytest.raises(ValueError, match="out of bounds"):
        wt.partition(t(X), 9)


def test_copyto_changes_the_array():
    x = wt.zeros((2, 3), chunk_size=1)
    wt.copyto(x, t(np.array([3, -1, 3])), where=t(np.array([True, False, True])))
    assert x.fetch().tolist() == [[3, 0, 3], [3, 0, 3]]
    with pytest.raises(TypeError, match="Cannot cast"):
        wt.copyto(wt.zeros(3, "i4"), t(X[0, :3]))


@pytest.mark.parametrize("wrap", [False, True])
def test_fill_diagonal_changes_the_array(wrap):
    x, y = t(np.zeros((7, 3))), np.zeros((7, 3))
    wt.fill_diagonal(x, [1.0, 2.0], wrap=wrap)
    np.fill_diagonal(y, [1.0, 2.0], wrap=wrap)
    np.testing.assert_array_equal(x.fetch(), y)


def test_out_and_where_are_taken():
    x, into = t(X), wt.zeros((6, 5), chunk_size=4)
    assert wt.add(x, 1, out=into) is into
    np.testing.assert_array_equal(into.fetch(), X + 1)
    wt.multiply(x, 2, into, where=x > 0.5)
    np.testing.assert_array_equal(into.fetch(), np.where(X > 0.5, X * 2, X + 1))
    wt.degrees(x, into)
    np.testing.assert_allclose(into.fetch(), np.degrees(X))
    with pytest.raises(TypeError, match="Cannot cast"):
        wt.sin(x, out=wt.zeros((6, 5), "i4"))


def test_reductions_take_out():
    into = np.zeros(5)
    made: object = wt.sum(t(X), axis=0, out=into)
    assert made is into
    np.testing.assert_allclose(into, X.sum(axis=0))
    mine = wt.zeros(5)
    assert t(X).max(0, out=mine) is mine
    np.testing.assert_array_equal(mine.fetch(), X.max(axis=0))
    with pytest.raises(ValueError, match="out has shape"):
        wt.mean(t(X), out=np.zeros((0, 3)), axis=0)


def test_parts_of_complex_arrays_are_set():
    x, y = t(X + 1j * N), X + 1j * N
    x.real, y.real = N[0], N[0]
    x.imag, y.imag = 2.5, 2.5
    np.testing.assert_array_equal(x.fetch(), y)
    real = t(X)
    real.real = 1.0
    assert real.fetch().min() == 1.0
    with pytest.raises(TypeError, match="imaginary part"):
        real.imag = 1.0


def test_an_array_is_sorted_in_place():
    x, y = t(X), X.copy()
    x.sort(axis=0)
    y.sort(axis=0)
    np.testing.assert_array_equal(x.fetch(), y)
    np.testing.assert_array_equal(wt.topk(t(N), 3, axis=None).fetch(), np.sort(N, axis=None)[::-1][:3])


def test_random_arrays_as_mars_has_them():
    made = wt.random.RandomState(3).rand(4, 3, dtype="f4", chunk_size=2)
    assert made.dtype == np.float32
    mixed = wt.random.default_rng(1).permutation(t(X), axis=1).fetch()
    np.testing.assert_array_equal(np.sort(mixed, axis=1), np.sort(X, axis=1))
    assert {tuple(column) for column in mixed.T} == {tuple(column) for column in X.T}


def test_nothing_but_nan_has_no_place():
    with pytest.raises(ValueError, match="All-NaN"):
        wt.nanargmax(t(np.full((2, 2), np.nan)), axis=0).fetch()


def test_wrong_arguments_are_told():
    with pytest.raises(TypeError, match="arrays is a tuple"):
        wt.block((t(X), t(X)))
    with pytest.raises(ValueError, match="List depths are mismatched"):
        wt.block([[t(X)], t(X)])
    with pytest.raises(IndexError, match="out of bounds"):
        wt.delete(t(X), 9, axis=0)
    with pytest.raises(NotImplementedError, match="mode is 'empty'"):
        wt.pad(t(X), 1, mode="empty")
    with pytest.raises(ValueError, match="mode is 'other'"):
        wt.choose(t(N), [t(X)], mode="other")


# ----------------------------------------------------------------------------------------------------------- SciPy

scipy = pytest.importorskip("scipy", reason="SciPy is not installed: pip install 'weft[scipy]'")


def test_other_functions_take_no_sparse_matrices():
    from scipy.sparse import csr_matrix

    with pytest.raises(TypeError, match="csr_matrix: this function takes no sparse arrays; call the methods"):
        wt.sort(csr_matrix(X))


def test_lu_gives_its_factors():
    p, low, up = wt.linalg.lu(t(X))
    np.testing.assert_allclose((p @ low @ up).fetch(), X, atol=1e-12)
    np.testing.assert_array_equal(low.fetch(), np.tril(low.fetch()))


def test_triangles_are_solved():
    a = np.tril(X[:5]) + np.eye(5)
    np.testing.assert_allclose(wt.linalg.solve_triangular(t(a), t(X[0]), lower=True).fetch(), np.linalg.solve(a, X[0]))


def test_a_randomized_svd_is_near():
    low = RNG.random((40, 3)) @ RNG.random((3, 30))
    u, s, v = wt.linalg.randomized_svd(wt.asarray(low, chunk_size=10), 3, random_state=0)
    np.testing.assert_allclose(s.fetch(), np.linalg.svd(low)[1][:3])
    np.testing.assert_allclose((u * s @ v).fetch(), low, atol=1e-10)


def test_ufuncs_of_scipy_are_here():
    from scipy.special import erf, gammaln

    np.testing.assert_allclose(wt.special.gammaln(t(X)).fetch(), gammaln(X))
    with wt.Session(workers=2, backend="processes", direct=False):
        np.testing.assert_allclose(wt.sum(wt.special.erf(t(X) + 1)).fetch(), erf(X + 1).sum())
    with pytest.raises(AttributeError, match="no function 'nothing'"):
        _ = wt.special.nothing


def test_statistics_and_distances_of_scipy_are_here():
    from scipy import stats
    from scipy.spatial.distance import pdist

    found = wt.stats.ttest_ind(t(X[0]), t(X[1]))
    np.testing.assert_allclose(float(found[1]), stats.ttest_ind(X[0], X[1]).pvalue)
    np.testing.assert_allclose(wt.spatial.distance.pdist(t(X)).fetch(), pdist(X))


def test_an_extra_that_is_missing_is_named(monkeypatch):
    def gone(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(extras, "import_module", gone)
    with pytest.raises(MissingExtraError, match="scipy is not installed") as told:
        wt.linalg.lu(t(X))
    assert "weft[scipy]" in told.value.hint


@pytest.mark.parametrize("gone", [0, -1, [], [3, 4, 4, -1], range(40), slice(None, None, 3), np.arange(60) % 7 == 2])
def test_what_is_left_out_of_an_array_in_chunks(gone):
    values = np.arange(60)
    for chunk in (1, 7, 60):
        x = wt.asarray(values, chunk_size=chunk)
        made = wt.delete(x, gone)
        np.testing.assert_array_equal(made.fetch(), np.delete(values, gone))
        made[:1] = 99
        np.testing.assert_array_equal(x.fetch(), values)
