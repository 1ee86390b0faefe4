"""Arrays whose lengths depend on data: reductions of them go on without computing them first."""

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors.chunks import known
from weft.frontends.tensors.compiler import compile_nodes
from weft.model.errors import TaskError, UsageError
from weft.tensor import sessions

VALUES = np.random.default_rng(11).normal(size=(40, 6))
CALLS = [
    lambda xp, x: xp.sum(x),
    lambda xp, x: xp.sum(x, axis=0),
    lambda xp, x: xp.prod(x, axis=0, keepdims=True),
    lambda xp, x: xp.max(x),
    lambda xp, x: xp.min(x, axis=0),
    lambda xp, x: xp.max(x, axis=1),
    lambda xp, x: xp.mean(x),
    lambda xp, x: xp.mean(x, axis=0, keepdims=True),
    lambda xp, x: xp.mean(x, axis=1),
    lambda xp, x: xp.std(x, axis=0),
    lambda xp, x: xp.var(x),
    lambda xp, x: xp.any(x > 2),
    lambda xp, x: xp.all(x > -9, axis=0),
    lambda xp, x: xp.count_nonzero(x > 0, axis=0),
]


@pytest.fixture(scope="module", params=["direct", "threads", "processes"])
def where(request):
    backend = "threads" if request.param == "direct" else request.param
    with wt.Session(backend=backend, workers=2, direct=request.param == "direct"):
        yield request.param


@pytest.mark.parametrize("number", range(len(CALLS)))
@pytest.mark.parametrize("limit", [0.0, 1.5])
def test_reductions_are_lazy(number, limit, where):
    mask = VALUES[:, 0] > limit  # with 1.5 some chunks have no rows left
    picked = wt.asarray(VALUES, chunk_size=(5, 3))[wt.asarray(mask, chunk_size=5)]
    made = CALLS[number](wt, picked * 2)
    assert not known(picked._node.grid), "it was computed"
    np.testing.assert_allclose(made.fetch(), CALLS[number](np, VALUES[mask] * 2), rtol=1e-12)


def test_rows_are_picked_chunk_by_chunk():
    x = wt.asarray(VALUES, chunk_size=(5, 6))
    picked = x[wt.asarray(VALUES[:, 0] > 0, chunk_size=5)]._node
    assert picked.chunks == 8
    assert picked.grid[1].known


def test_of_nothing_at_all():
    with wt.Session(workers=1):
        x = wt.asarray(np.arange(10.0), chunk_size=3)
        none = x[x > 20]
        assert float(wt.sum(none)) == 0
        assert np.isnan(float(wt.mean(none)))
        with pytest.raises(ValueError, match="zero-size array to reduction operation maximum which has no identity"):
            wt.max(none).fetch()


# ------------------------------------------------------------------------- operations that have to know the lengths

A = np.random.default_rng(3).normal(size=200)
B = np.arange(30.0)
M = np.random.default_rng(4).normal(size=(40, 6))
LATER = {
    "slice": lambda xp, a, b, m: a[a > 0][::2],
    "integer": lambda xp, a, b, m: a[a > 0][-3] * 2,
    "slice and reshape": lambda xp, a, b, m: xp.reshape(a[a > 0][::2], (-1, 1)),
    "reshape": lambda xp, a, b, m: xp.reshape(a[a > -9], (4, -1)),
    "concat": lambda xp, a, b, m: xp.concat([a[a > 0], b]),
    "concat and slice": lambda xp, a, b, m: xp.concat([a[a > 0], b, b[b > 5]])[3:-3],
    "unique": lambda xp, a, b, m: xp.unique_counts(xp.astype(a * 2, np.int64)).counts[:3].sum(),
    "argmax": lambda xp, a, b, m: xp.argmax(a[a > 0]),
    "argmin of rows": lambda xp, a, b, m: xp.argmin(m[m[:, 0] > 0], axis=1),
    "sort": lambda xp, a, b, m: xp.sort(a[a > 0]),
    "cumsum": lambda xp, a, b, m: xp.cumsum(xp.astype(a[a > 0] * 99, np.int64)),
    "take": lambda xp, a, b, m: a[a > 0][np.array([3, 1, 2])],
    "take by unknown": lambda xp, a, b, m: a[xp.nonzero(a > 1)[0][::2]],
    "sum of two": lambda xp, a, b, m: a[a > -9][:30] + b[b >= 0],
    "mask of a mask": lambda xp, a, b, m: a[a > 0][a[a > 0] > 1],
    "masks one after the other": lambda xp, a, b, m: b[b > 3][:20][b[:20] > 9][::-1],
    "rows and columns": lambda xp, a, b, m: m[m[:, 0] > 0][::-1, 1:3].T,
    "a row": lambda xp, a, b, m: m[m[:, 0] > 0][2],
    "broadcast": lambda xp, a, b, m: m[m[:, 0] > 0][1:] + b[:6],
    "stack": lambda xp, a, b, m: xp.stack([a[a > 0], a[a > 0] * 2], axis=1)[3:],
    "where": lambda xp, a, b, m: xp.where(a[a > 0] > 1, a[a > 0], 0.0),
    "nothing": lambda xp, a, b, m: a[a > 50][::2],
    "nothing and nothing": lambda xp, a, b, m: xp.concat([a[a > 50], b[b > 50]]),
    "nan_to_num": lambda xp, a, b, m: xp.nan_to_num(a[a > -1] * np.inf, posinf=5.0)[::2],
    "compress": lambda xp, a, b, m: xp.compress(b[b > 3] > 9, a[a > 0]),
    "compress by unknown": lambda xp, a, b, m: xp.compress(a > 0, a)[1:],
    "compress rows": lambda xp, a, b, m: xp.compress([True, False, True], m[m[:, 0] > 0], axis=0),
    "unstack": lambda xp, a, b, m: xp.unstack(m[m[:, 0] > 0], axis=1)[2],
    "fft": lambda xp, a, b, m: xp.abs(xp.fft.fftshift(xp.fft.fft(b[b > 3][:16]))) > 40,
    "irfft": lambda xp, a, b, m: xp.fft.irfft(b[b > 3][:9]) > 7,
    "irfftn": lambda xp, a, b, m: xp.fft.irfftn(m[m[:, 0] > 0][:8]) > 0.1,
    "hfft": lambda xp, a, b, m: xp.fft.hfft(b[b > 3][:9]) > 7,
    "fft2": lambda xp, a, b, m: xp.abs(xp.fft.fft2(m[m[:, 0] > 0])) > 10,
    "qr": lambda xp, a, b, m: xp.abs(xp.linalg.qr(m[m[:, 0] > 0]).R) > 1,
    "singular values": lambda xp, a, b, m: xp.linalg.svd(m[m[:, 0] > 0], full_matrices=False)[1] > 5,
    "eigenvalues": lambda xp, a, b, m: xp.linalg.eigvalsh(m[m[:, 0] > 0][:6]) > 0,
    "solve": lambda xp, a, b, m: xp.linalg.solve(m[m[:, 0] > 0][:6], b[b > 3][:6]) > 0,
    "determinant": lambda xp, a, b, m: xp.linalg.slogdet(m[m[:, 0] > 0][:6])[0],
    "searchsorted": lambda xp, a, b, m: xp.searchsorted(xp.sort(a[a > 0]), b / 30),
}  # fmt: skip


def arrays():
    return wt.asarray(A, chunk_size=17), wt.asarray(B, chunk_size=7), wt.asarray(M, chunk_size=(7, 4))


@pytest.fixture
def runs(monkeypatch, where):
    """Have the runs of the engine counted."""
    engine, counted = sessions.current().engine, []
    submit = engine.submit

    def counting(*args, **given):
        counted.append(args)
        return submit(*args, **given)

    monkeypatch.setattr(engine, "submit", counting)
    return counted


def doubled(chunk, chunk_index=(0,)):
    return chunk * (2 + chunk_index[0])


def test_a_function_of_chunks_waits_for_lengths_only_where_it_must(where, runs):
    x = wt.asarray(A, chunk_size=17)
    picked = x[x > 0]
    made = picked.map_chunk(doubled)
    later = picked[::2].map_chunk(doubled)
    told = picked.map_chunk(doubled, with_chunk_index=True)
    assert not runs, "something was computed at the call"
    assert made._node.chunks == picked._node.chunks
    np.testing.assert_array_equal(made.fetch(), A[A > 0] * 2)
    np.testing.assert_array_equal(later.fetch(), A[A > 0][::2] * 2)
    np.testing.assert_array_equal(told[:3].fetch(), A[A > 0][:3] * 2)


@pytest.mark.parametrize("name", LATER)
def test_what_needs_lengths_is_one_run(name, where, runs):
    made = LATER[name](wt, *arrays())
    assert not runs, "something was computed at the call"
    expected = np.asarray(LATER[name](np, A, B, M))
    assert (made.dtype, made.ndim) == (expected.dtype, expected.ndim)
    assert not runs, "something was computed for the dtype or the axes"
    np.testing.assert_array_equal(made.fetch(), expected)
    assert made.shape == expected.shape
    assert len(runs) == (0 if where == "direct" else 1)


def test_several_in_one_run(where, runs):
    a, b, _ = arrays()
    picked = a[a > 0]
    sliced = picked[::2]
    more = sliced[sliced > 1]
    values = wt.fetch(more[1:], picked, sliced, more, b, picked, sliced.sum())
    of = A[A > 0]
    wanted = [of[::2][of[::2] > 1][1:], of, of[::2], of[::2][of[::2] > 1], B, of]
    for value, expected in zip(values, wanted, strict=False):
        np.testing.assert_array_equal(value, expected)
    assert values[-1] == pytest.approx(of[::2].sum())
    assert len(runs) == (0 if where == "direct" else 1)


def test_the_source_is_computed_once():
    calls = []

    def seen(chunk):
        calls.append(chunk)
        return chunk

    with wt.Session(workers=2, direct=False):
        source = wt.asarray(A, chunk_size=17).map_chunk(seen, dtype=A.dtype)
        # Read by the mask, and once more when the lengths are known.
        made = wt.concat([source[source > 0], source])[5:]
        np.testing.assert_array_equal(made.fetch(), np.concatenate([A[A > 0], A])[5:])
    assert len(calls) == 12


def test_what_is_wrong_is_said_when_it_runs(where):
    a, b, _ = arrays()
    n = np.count_nonzero(A > 0)
    wrong = [
        (a[a > 0][1000], f"index 1000 is out of bounds for axis 0 with size {n}"),
        (wt.reshape(a[a > 0], (7, 11)), f"cannot reshape array of size {n} into shape"),
        (a[a > 0] + b, "cannot be broadcast to a single shape"),
        (wt.argmax(a[a > 50]), "attempt to get argmax of an empty sequence"),
        (a[a > 0].rechunk(((5, 5),)), f"the axis has {n} elements"),
    ]
    for made, message in wrong:
        with pytest.raises((ValueError, IndexError, UsageError, TaskError), match=message):
            made.fetch()


def test_what_is_wrong_whatever_the_lengths_is_said_at_the_call(where):
    a, _, _ = arrays()
    with pytest.raises(ValueError, match="axis 3 is out of bounds"):
        wt.sum(a[a > 0][::2], axis=3)
    with pytest.raises(IndexError, match="too many indices"):
        a[a > 0][1:, 2]


def test_a_shape_is_computed_when_it_is_read(where):
    a, _, _ = arrays()
    made = a[a > 0][::3]
    assert "shape=(?,)" in repr(made)
    assert made.shape == A[A > 0][::3].shape
    assert known(made._node.grid)


def test_chunks_of_it_are_chosen_as_the_session_says():
    with wt.Session(workers=2, chunk_size=4, direct=False):
        made = wt.asarray(A)[wt.asarray(A) > 0].rechunk(None)
        assert set(made.chunks[0][:-1]) == {4}


def test_the_graph_does_not_grow_with_the_chunks():
    def graph(n):
        x = wt.arange(n * 10, chunk_size=10)
        return compile_nodes([(x[x > 5][::2] + 1)._node]).graph

    few, many = graph(3), graph(100_000)
    assert list(few.vertices) == list(many.vertices)
    assert len(few.edges) == len(many.edges)


def test_a_large_array_beside_it_is_read_chunk_by_chunk():
    large = np.arange(20_000.0)
    with wt.Session(backend="processes", workers=2, direct=False):
        a = wt.asarray(A, chunk_size=17)
        np.testing.assert_array_equal(wt.concat([a[a > 0], large])[-5:].fetch(), np.concatenate([A[A > 0], large])[-5:])


def test_parts_of_unknown_lengths_are_views(where):
    def assigned(xp, a):
        picked = a[a > 0]
        every = picked[::2]
        rest, column = every[1:], xp.reshape(every, (-1, 1))
        rest[0] = 5
        picked[0] = 7
        column.T[0, 2] = 9
        return picked, every, rest, column

    values = assigned(wt, arrays()[0])
    for value, expected in zip(wt.fetch(*values), assigned(np, A), strict=True):
        np.testing.assert_array_equal(value, expected)
