"""Where arrays are computed: in place or by tasks, in what chunks."""

import pickle
import threading

import numpy as np
import pytest

import weft.tensor as wt
from weft.frontends.tensors.arrays import computing
from weft.frontends.tensors.arrays.chunkwise import map_chunk
from weft.frontends.tensors.eager import MOST_CHUNKS, MOST_ELEMENTS, evaluate, small
from weft.model.errors import ConflictError, TaskError, UsageError
from weft.model.raised import as_raised
from weft.operators.regions import TILE

DEADLINE_S = 180.0


@pytest.fixture
def tasks():
    with wt.Session(workers=1, direct=False, chunk_size=3) as session:
        yield session


class Watched:
    """An array that notes which thread reads it."""

    def __init__(self):
        self.values = np.arange(6.0)
        self.shape, self.dtype = self.values.shape, self.values.dtype
        self.readers = set()

    def __getitem__(self, index):
        self.readers.add(threading.get_ident())
        return self.values[index]


def test_small_expressions_of_numpy_are_computed_in_place():
    x = wt.asarray(np.arange(12.0), chunk_size=2)
    assert small([wt.sum(x * 2)._node]) is not None


@pytest.mark.parametrize(
    "large",
    [
        lambda: wt.zeros(MOST_ELEMENTS + 1),
        lambda: wt.zeros(MOST_CHUNKS + 1, chunk_size=1),
        lambda: wt.from_array(Watched()),
        lambda: map_chunk(wt.zeros(3), np.sin),
    ],
)
def test_large_ones_and_files_are_for_workers(large):
    assert small([large()._node]) is None
    assert small([(large() + 1)._node]) is None


def test_an_array_of_another_kind_is_read_by_a_worker():
    watched = Watched()
    with wt.Session(workers=1):
        assert float(wt.sum(wt.from_array(watched))) == 15
    assert watched.readers
    assert threading.get_ident() not in watched.readers


def test_tasks_and_threads_say_the_same(tasks):
    values = np.arange(40.0).reshape(5, 8)
    x = wt.asarray(values, chunk_size=3)
    wanted = [
        x + x.T[:5, :5].mT[:, :1],
        wt.sum(x, axis=0),
        wt.cumulative_sum(x, axis=1),
        wt.concat([x, x[::-1]], axis=0),
        wt.reshape(x, (8, 5)),
        wt.matmul(x, x.mT),
        wt.var(x),
    ]
    for one in wanted:
        by_tasks = list(tasks.compute([one.node])[0].kwargs["source"].values)
        order = small([one.node])
        assert order is not None
        (in_place,) = evaluate([one.node], order)
        assert len(by_tasks) == len(in_place) == one.node.chunks
        for a, b in zip(by_tasks, in_place, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_session_has_a_chunk_size_for_all_arrays(tasks):
    assert wt.zeros((4, 7)).chunks == ((3, 1), (3, 3, 1))
    assert wt.asarray([1, 2, 3, 4]).chunks == ((3, 1),)
    assert wt.zeros(4, chunk_size=2).chunks == ((2, 2),)


def test_a_chunk_size_that_makes_no_sense_is_told():
    for given in (0, -1, "big", 2.5):
        with pytest.raises(UsageError, match="chunk_size is"):
            wt.Session(chunk_size=given)  # type: ignore[arg-type]


def test_chunks_without_elements_are_left_out(tasks):
    assert wt.zeros(3, chunk_size=((0, 2, 0, 1),)).chunks == ((2, 1),)
    x = wt.asarray([1, -1, -1, -1, -1, -1, 2])
    positive = x[x > 0]
    assert positive.chunks == ((1, 1),)
    assert positive.tolist() == [1, 2]
    assert x[x > 5].chunks == ((0,),)


@pytest.mark.parametrize(("n", "in_place"), [(TILE, True), (TILE + 1, False)])
def test_what_tasks_would_cut_into_tiles_is_left_to_them(n, in_place):
    x = wt.random.default_rng(1).random(n, chunk_size=n)
    assert (small([x.sum()._node]) is not None) == in_place


def test_large_arrays_are_put_together_by_several_threads(monkeypatch):
    monkeypatch.setattr(computing, "ASSEMBLED_FROM", 64)
    x = np.arange(60.0).reshape(6, 10)
    with wt.Session(workers=2, direct=False):
        assert np.array_equal((wt.asarray(x, chunk_size=4) + 1).fetch(), x + 1)


class OddError(Exception):
    """An error of the user's, whose instances need arguments."""

    def __init__(self, first, second):
        super().__init__(first, second)


def raises_odd(chunk):
    if chunk.size > 1:
        raise OddError(1, 2)
    return chunk


def singular():
    return wt.linalg.inv(wt.ones((64, 64)))


def out_of_bounds():
    return wt.arange(100, chunk_size=50)[wt.arange(100) + 5]


def empty():
    x = wt.zeros(100, chunk_size=50)
    return wt.max(x[x > 5])


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_what_numpy_raises_is_caught_as_that_from_tasks_too(backend):
    with wt.Session(workers=1, backend=backend, direct=False):
        for make, kind in ((singular, np.linalg.LinAlgError), (out_of_bounds, IndexError), (empty, ValueError)):
            with pytest.raises(kind) as told:
                make().fetch()
            assert isinstance(told.value, TaskError)
            assert f"{told.value.task} failed: {kind.__name__}: " in str(told.value)
            again = pickle.loads(pickle.dumps(told.value))
            assert isinstance(again, kind)
            assert (str(again), again.task) == (str(told.value), told.value.task)
        with pytest.raises(OddError, match="OddError: "):
            wt.ones(4, chunk_size=2).map_chunk(raises_odd).fetch()


def test_a_class_that_is_not_known_here_leaves_a_task_error():
    error = TaskError("f[0] failed: Odd", task="f[0]", raised="nowhere:Odd")
    assert as_raised(error) is error
    local = TaskError("f[0] failed: Odd", raised=f"{__name__}:f.<locals>.Odd")
    assert as_raised(local) is local


def test_an_argument_that_no_session_takes_is_told():
    with pytest.raises(UsageError, match="a session of tensors takes no n_cpu"):
        wt.Session(n_cpu=2)


def test_a_session_may_be_entered_again_and_is_closed_by_the_outermost_statement():
    before = wt.get_default_session()
    with wt.Session(workers=1, direct=False) as outer, wt.Session(workers=1, direct=False) as other:
        with outer:
            assert wt.get_default_session() is outer
            with outer:
                assert float(wt.ones(5).sum()) == 5
        assert wt.get_default_session() is other
        assert float((wt.ones(5) + 1).sum().fetch(session=outer)) == 10
    assert wt.get_default_session() is before
    assert float((wt.ones(5) + 2).sum()) == 15
    with pytest.raises(ConflictError, match="closed"):
        wt.ones(5).sum().fetch(session=outer)


def test_threads_that_enter_one_session_leave_their_own_defaults():
    with wt.Session(workers=1, direct=False) as first:
        shared = wt.Session(workers=1, direct=False)
        entered, leave = threading.Event(), threading.Event()
        seen = []

        def enter():
            with shared:
                entered.set()
                leave.wait(DEADLINE_S)
                seen.append(float(wt.ones(5).sum()))
            seen.append(wt.get_default_session() is shared)

        thread = threading.Thread(target=enter)
        with shared:
            thread.start()
            assert entered.wait(DEADLINE_S)
        assert wt.get_default_session() is first
        leave.set()
        thread.join(DEADLINE_S)
        assert seen == [5, False]


@pytest.mark.filterwarnings("error::DeprecationWarning")
def test_extremes_of_tiles_are_taken_without_warnings(session):
    x = np.arange(2 * TILE + 3)
    found = (wt.clip(wt.asarray(x, chunk_size=TILE + 1), 5, 255) * 2).fetch(session)
    np.testing.assert_array_equal(found, np.clip(x, 5, 255) * 2)
