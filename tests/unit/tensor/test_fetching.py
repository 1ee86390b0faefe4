"""`fetch(keep=False)`: the result belongs to the caller, and tasks write it where the caller reads it."""

import threading

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors import sources
from weft.frontends.tensors.blocked_products import in_larger_blocks
from weft.operators.destinations import ChunkDestination

SHAPE = (600, 500)
X = np.arange(float(SHAPE[0] * SHAPE[1])).reshape(SHAPE)


def cut(chunk=200):
    return wt.from_array(X, chunk)


RESULTS = {
    "matmul": lambda: cut().T @ cut(),
    "matmul of matrices in memory": lambda: cut(50) @ wt.from_array(X.T.copy(), 50),
    "matmul of stacks": lambda: wt.from_array(np.stack([X, X]), 100) @ wt.from_array(X.T, 100),
    "ufuncs": lambda: (cut() + 1) * 2 - cut(),
    "one ufunc": lambda: wt.sqrt(cut()),
    "one chunk": lambda: wt.sqrt(wt.from_array(X, SHAPE)),
    "transposed": lambda: cut().T,
    "columns first": lambda: wt.from_array(np.asfortranarray(X), 200) + 1,
    "source": cut,
    "fill": lambda: wt.full(SHAPE, 3.0, chunk_size=200),
    "drawn": lambda: wt.random.default_rng(1).normal(size=SHAPE, chunk_size=200),
    "whole numbers": lambda: (cut() % 7).astype(np.int16),
    "rechunked": lambda: (cut() + 1).rechunk((600, 100)),
    "function": lambda: cut().map_chunk(np.cbrt),
    "a number": lambda: cut().sum(),
    "along an axis": lambda: cut().max(axis=0),
    "factors": lambda: wt.linalg.qr(cut((300, 500)))[0],
    "unknown lengths": lambda: cut()[cut() > 1e5],
    "deferred": lambda: wt.sort(cut()[cut() > 1e5])[::2],
    "text": lambda: wt.asarray(np.array(["a", "bcd"] * 9), chunk_size=4),
    "objects": lambda: wt.asarray(np.array([1, None, "x"] * 9, dtype=object), chunk_size=4),
    "empty": lambda: cut()[:0] + 1,
}


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("name", RESULTS)
def test_values_are_those_of_an_array_that_keeps_its_chunks(name, direct):
    with wt.Session(workers=2, direct=direct):
        found, wanted = RESULTS[name]().fetch(keep=False), RESULTS[name]().fetch()
    assert (type(found), found.dtype, found.shape) == (type(wanted), wanted.dtype, wanted.shape)
    assert np.array_equal(found, wanted)
    if isinstance(found, np.ndarray):
        assert found.flags.writeable
        assert found.flags.c_contiguous == wanted.flags.c_contiguous


def test_values_of_worker_processes(on_processes):
    for name in ("matmul", "ufuncs", "one chunk", "fill", "unknown lengths"):
        assert np.array_equal(RESULTS[name]().fetch(on_processes, keep=False), RESULTS[name]().fetch(on_processes))


@pytest.mark.parametrize(
    ("tasks", "most", "blocks"),
    [
        (4, 10**9, (2, 2)),
        (2, 10**9, (1, 2)),
        (1, 10**9, (1, 1)),
        (16, 10**9, (3, 3)),
        (4, 8 * 200 * 400, (2, 3)),
        (4, 1, (6, 6)),
    ],
)
def test_a_product_of_matrices_in_memory_is_made_in_few_blocks(tasks, most, blocks):
    product = (cut(100) @ wt.from_array(X.T.copy(), 100))._node
    assert product.chunks == 36
    made = in_larger_blocks(product, tasks, most)
    assert tuple([axis.n for axis in made.grid]) == blocks
    with wt.Session(workers=2):
        assert np.array_equal(wt.Tensor(made).fetch(), X @ X.T)


def test_other_arrays_keep_their_blocks():
    for one in (cut() + 1, (cut() + 1) @ cut().T, cut()[:, 0] @ cut(), cut()):
        assert in_larger_blocks(one._node, 1, 10**9) is one._node


def test_the_memory_order_of_columns():
    with wt.Session(workers=2, direct=False):
        found = (wt.from_array(np.asfortranarray(X), 200) * 2).ordered("F").fetch(keep=False)
    assert found.flags.f_contiguous
    assert np.array_equal(found, X * 2)


@pytest.mark.parametrize("chunk", [200, SHAPE])
@pytest.mark.parametrize("direct", [True, False])
def test_changes_of_the_result_reach_no_array(chunk, direct):
    with wt.Session(workers=2, direct=direct):
        given = X.copy()
        x = wt.from_array(given, chunk)
        for one in (x, x + 1, x[:2]):
            before = one.fetch()
            one.fetch(keep=False)[...] = -1.0
            assert np.array_equal(one.fetch(keep=False), before)
        assert np.array_equal(given, X)


def test_an_array_keeps_no_chunks():
    with wt.Session(workers=2, direct=False):
        x = cut() + 1
        x.fetch(keep=False)
        assert not sources.is_stored(x.node)


def test_a_computed_array_keeps_its_chunks():
    with wt.Session(workers=2, direct=False):
        x = (cut() + 1).execute()
        x.fetch(keep=False)[...] = 0.0
        assert sources.is_stored(x.node)
        assert np.array_equal(x.fetch(), X + 1)


def test_several_arrays_in_one_run():
    with wt.Session(workers=2, direct=False):
        x = cut() + 1
        first, again, equal, total, made = wt.fetch(x, x, cut() + 1, x.sum(), x * 2, keep=False)
        first[...] = 0.0
        assert np.array_equal(again, X + 1)
        again[...] = 0.0
        assert np.array_equal(equal, X + 1)
        assert total == (X + 1).sum()
        assert np.array_equal(made, (X + 1) * 2)
        assert len(wt.ExecutableTuple([x, x * 2]).fetch(keep=False)) == 2


def test_sparse_arrays_keep_their_chunks():
    sparse = pytest.importorskip("scipy.sparse")
    with wt.Session(workers=2, direct=False):
        a = wt.asarray(sparse.eye_array(500, format="csr"), chunk_size=100)
        assert (a * 2).fetch(keep=False).sum() == 1000
        assert np.array_equal((a @ wt.ones(500)).fetch(keep=False), np.ones(500))


def test_an_error_in_the_middle_leaves_nothing():
    def fails(chunk):
        if chunk[0, 0] == X[400, 400]:
            raise ZeroDivisionError("here")
        return chunk

    with wt.Session(workers=2, direct=False):
        x = cut().map_chunk(fails, dtype=X.dtype)
        with pytest.raises(ZeroDivisionError, match="here"):
            x.fetch(keep=False)
        assert np.array_equal((cut() + 1).fetch(keep=False), X + 1)


def test_errors_of_numbers_raise_where_chunks_are_written():
    with wt.Session(workers=2, direct=False), wt.errstate(divide="raise"), pytest.raises(FloatingPointError):
        (1 / cut()).fetch(keep=False)


def test_tasks_write_into_the_result_that_is_returned(monkeypatch):
    taken = []
    take = ChunkDestination.take

    def watched(self, values):
        taken.append(values)
        return take(self, values)

    monkeypatch.setattr(ChunkDestination, "take", watched)
    with wt.Session(workers=2, direct=False):
        (cut().T @ cut()).fetch(keep=False)
    assert taken == [[None] * 9]


def test_threads_that_compute_the_same_array_have_results_of_their_own():
    with wt.Session(workers=2, direct=False) as session:
        x = cut() + 1
        found = []
        threads = [threading.Thread(target=lambda: found.append(x.fetch(session, keep=False))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found[0][...] = 0.0
        assert all(np.array_equal(one, X + 1) for one in found[1:])
