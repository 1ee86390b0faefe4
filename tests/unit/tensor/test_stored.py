"""What was computed stays in the session's store: it is read there, leaves memory when that is short, and is freed."""

import gc
import os
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors import sources
from weft.frontends.tensors.arrays.chunkwise import map_chunk
from weft.model.errors import ConflictError
from weft.store.blocks import BlockManager

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_objects")]

MEGA = 2**20


def until(condition: Callable[[], Any]) -> None:
    """Wait for what another thread is about to do."""
    woken = threading.Event()
    for _ in range(3000):
        if condition():
            return
        woken.wait(0.01)
    raise AssertionError("it did not come to that")


def session_of(backend: str, memory: int = 64 * MEGA) -> wt.Session:
    return wt.Session(backend=backend, workers=2, memory=memory, direct=False)


@pytest.fixture(params=["threads", "processes"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def files(session: wt.Session) -> list[str]:
    """Return the chunks that lie in files of a session."""
    store = session.engine.store
    assert isinstance(store, BlockManager)
    folders = store.roots
    return [name for folder in folders for name in os.listdir(folder) if name.endswith(".chunks")]


def test_chunks_stay_in_the_store_until_they_are_asked_for(backend):
    with session_of(backend) as session:
        x = (wt.arange(MEGA, dtype=wt.float64, chunk_size=MEGA // 8) * 2).execute()
        assert session.engine.store.stats().used >= 8 * MEGA
        np.testing.assert_array_equal(x.fetch(), np.arange(MEGA) * 2.0)


def test_later_expressions_read_them_there():
    calls = []

    def noted(x):
        calls.append(threading.get_ident())
        return x + 1

    with session_of("threads") as session:
        x = map_chunk(wt.zeros(40, chunk_size=10), noted)
        calls.clear()
        x.execute()
        assert float(wt.sum(x)) == 40
        assert float(wt.sum(x * 2)) == 80
        assert len(calls) == 4
        assert session.engine.store.stats().used > 0


def test_what_nobody_names_is_freed(backend):
    with session_of(backend) as session:
        store = session.engine.store
        x = wt.ones(MEGA, chunk_size=MEGA // 4).execute()
        y = (x + 1).execute()
        del x
        until(lambda: store.stats().used < 9 * MEGA)
        assert float(y[-1]) == 2
        del y
        gc.collect()
        until(lambda: store.stats().used == 0)
        until(lambda: not files(session))


def test_an_expression_holds_what_it_reads(backend):
    with session_of(backend):
        x = wt.ones(MEGA, chunk_size=MEGA // 4).execute()
        total = wt.sum(x)
        del x
        gc.collect()
        assert float(total) == MEGA


def test_they_leave_memory_when_that_is_short(backend):
    with session_of(backend, memory=8 * MEGA) as session:
        kept = [(wt.arange(MEGA // 2, dtype=wt.float64, chunk_size=MEGA // 8) + i).execute() for i in range(6)]
        stats = session.engine.store.stats()
        assert stats.used <= 8 * MEGA
        assert stats.disk >= 8 * MEGA
        for i, x in enumerate(kept):
            assert float(wt.sum(x[:10])) == 45 + 10 * i
            np.testing.assert_array_equal(x.fetch(), np.arange(MEGA // 2) + i)
        del kept, x
        gc.collect()
        until(lambda: not files(session))


def test_what_is_fetched_is_ones_own(backend):
    with session_of(backend):
        x = (wt.zeros(1000) + 1).execute()
        x.fetch()[:] = 7
        assert float(wt.sum(x)) == 1000


def test_the_lengths_of_what_depends_on_data_are_measured_and_not_its_chunks_read(backend):
    with session_of(backend) as session:
        x = wt.arange(MEGA // 2, chunk_size=MEGA // 16)
        found = x[wt.equal(x % 3, 0)].execute()
        before = session.engine.store.stats().restored
        assert found.shape == (174763,)
        assert session.engine.store.stats().restored == before
        few = x[x > MEGA // 2 - 10].execute()
        assert few.chunks == ((9,),)
        np.testing.assert_array_equal(few.fetch(), np.arange(MEGA // 2 - 9, MEGA // 2))


def test_with_the_session_they_are_gone_and_that_is_told():
    with session_of("threads"):
        x = wt.ones(10, chunk_size=3).execute()
    with pytest.raises(ConflictError, match=r"the session that kept these values is closed"):
        x.fetch()
    with session_of("threads"), pytest.raises(ConflictError):
        (x + 1).fetch()


def test_another_session_takes_them_over(backend):
    with session_of("threads") as first:
        x = wt.arange(200_000, chunk_size=50_000).execute(first)
        with session_of(backend) as second:
            assert int(wt.sum(x).fetch(second)) == 200_000 * 199_999 // 2


def test_arrays_are_put_into_the_store_once_for_processes():
    values = np.random.default_rng(0).random(MEGA)
    with session_of("processes") as session:
        x = wt.asarray(values, chunk_size=MEGA // 4)
        assert float(wt.max(x)) == values.max()
        used = session.engine.store.stats().used
        assert used >= values.nbytes
        np.testing.assert_array_equal((x + 1).fetch(), values + 1)
        until(lambda: session.engine.store.stats().used <= used)
        del x
        gc.collect()
        until(lambda: session.engine.store.stats().used == 0)


def test_the_same_array_twice_in_one_run(backend):
    with session_of(backend):
        x = wt.arange(100_000, chunk_size=20_000)
        a, b = wt.execute(x + 1, x + 1)
        np.testing.assert_array_equal(a.fetch(), b.fetch())
        c, d = wt.execute(a, a + 1)
        np.testing.assert_array_equal(c.fetch() + 1, d.fetch())


def test_memory_maps_are_passed_by_name(tmp_path):
    values = np.random.default_rng(2).random((300, 400))
    values.tofile(tmp_path / "values")
    mapped = np.memmap(tmp_path / "values", np.float64, "r+", shape=(300, 400))
    for view in (mapped, mapped[20:250:3, ::-2], mapped.T, np.memmap(tmp_path / "values", np.int64, "r", 800, (40,))):
        source = pickle.dumps(sources.ArraySource(view))
        assert len(source) < 2000
        np.testing.assert_array_equal(pickle.loads(source).array, view)
    private = np.memmap(tmp_path / "values", np.float64, "c", shape=(300, 400))
    private[0] = 7
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(sources.ArraySource(private))).array, private)
    with session_of("processes") as session:
        x = wt.asarray(mapped[:, 5:], chunk_size=100)
        np.testing.assert_array_equal((x * 2).fetch(), values[:, 5:] * 2)
        until(lambda: session.engine.store.stats().used == 0)
