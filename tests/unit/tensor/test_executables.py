"""Computing at once, later, several at a time; sessions, names and options as Mars has them."""

import io
import threading
from concurrent.futures import CancelledError, wait

import numpy as np
import pytest

import weft
import weft.tensor as wt
from weft.frontends.tensors.arrays.options import Options
from weft.model.errors import NotFoundError, TaskError, UsageError


@pytest.fixture
def session():
    with wt.Session(workers=2, direct=False) as made:
        yield made


class Gate:
    """A function of a chunk that waits until the test lets it go on."""

    def __init__(self):
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self, chunk):
        if chunk.size > 1:  # not the one that the dtype is found with
            self.begun.set()
            assert self.open.wait(180)
        return chunk


def failing(chunk):
    if chunk.size > 1:
        raise ValueError("no such number")
    return chunk


def test_execute_returns_the_array_itself(session):
    x = wt.ones((4, 4), chunk_size=2)
    assert x.execute() is x
    assert wt.execute(x) is x
    np.testing.assert_array_equal(x.fetch(), np.ones((4, 4)))
    np.testing.assert_array_equal((x + 1).to_numpy(), np.full((4, 4), 2.0))


def test_several_are_returned_in_order(session):
    x, y = wt.zeros(3), wt.ones(3)
    first, second = wt.execute(x, y)
    assert first is x
    assert second is y
    one, two = wt.fetch(x, y)
    np.testing.assert_array_equal(one, np.zeros(3))
    np.testing.assert_array_equal(two, np.ones(3))
    np.testing.assert_array_equal(wt.fetch(x), np.zeros(3))
    one, two = session.run(x, y)
    assert (one.sum(), two.sum()) == (0, 3)


def test_what_cannot_be_computed_is_told():
    with pytest.raises(UsageError, match="int cannot be computed"):
        wt.execute(wt.ones(2), 3)


def test_a_computation_goes_on_by_itself(session):
    gate = Gate()
    x = wt.ones(4, chunk_size=2).map_chunk(gate)
    later = x.execute(wait=False)
    assert gate.begun.wait(180)
    assert later.running()
    assert not later.done()
    assert 0.0 <= later.progress() < 1.0
    gate.open.set()
    assert later.result(180) is x
    assert later.progress() == 1.0
    assert not later.cancel()
    np.testing.assert_array_equal(x.fetch(), np.ones(4))


def test_submit_gives_futures_that_others_can_wait_for(session):
    futures = [session.submit(wt.ones(5, chunk_size=2) * i) for i in range(3)]
    done, left = wait(futures, 60)
    assert not left
    assert sorted(float(one.result().fetch()[0]) for one in done) == [0.0, 1.0, 2.0]


def test_a_cancelled_computation_stops_and_the_session_goes_on(session):
    gate = Gate()
    later = session.submit(wt.ones(4, chunk_size=2).map_chunk(gate))
    assert gate.begun.wait(180)
    assert later.cancel()
    gate.open.set()
    with pytest.raises(CancelledError):
        later.result(180)
    assert later.cancelled()
    assert float(wt.sum(wt.ones(4)).fetch()) == 4.0


def test_a_failure_is_told_by_the_future(session):
    later = session.submit(wt.ones(4).map_chunk(failing))
    assert isinstance(later.exception(180), TaskError)
    with pytest.raises(TaskError, match="no such number"):
        later.result()


def test_what_is_assigned_meanwhile_stays(session):
    gate = Gate()
    x = wt.ones(4, chunk_size=2).map_chunk(gate)
    later = x.execute(wait=False)
    assert gate.begun.wait(180)
    x[0] = 7.0
    gate.open.set()
    later.result(180)
    assert x.fetch().tolist() == [7.0, 1.0, 1.0, 1.0]


def test_a_tuple_is_computed_together():
    both = wt.ExecutableTuple([wt.ones(2), wt.zeros(2)])
    assert both.execute() is both
    one, two = both.fetch()
    assert (one.sum(), two.sum()) == (2, 0)
    assert len(wt.ExecutableTuple([wt.ones(2)]).fetch()) == 1
    assert wt.ExecutableTuple().execute().fetch() == ()
    one, two = both.execute(wait=False).result(180)
    assert one is both[0]


def test_tuples_in_tuples_are_computed_together():
    x = wt.asarray(np.arange(12.0).reshape(4, 3), chunk_size=2)
    made = wt.histogramdd(x, bins=2)
    counts, edges = np.histogramdd(np.arange(12.0).reshape(4, 3), bins=2)
    assert made.execute() is made
    for values in (made.fetch(), made.fetch(keep=False), wt.fetch(*made)):
        assert type(values) is tuple
        assert type(values[1]) is tuple
        np.testing.assert_array_equal(values[0], counts)
        np.testing.assert_array_equal(values[1], edges)
    assert wt.fetch([x.sum(), [x.min(), (x.max(),)]]) == (66, [0, (11,)])
    with pytest.raises(UsageError, match="int cannot be computed"):
        wt.fetch([x, [3]])


def test_a_named_tuple_keeps_its_fields():
    found = wt.ExecutableTuple(wt.linalg.slogdet(wt.eye(3)))
    assert float(found.sign) == 1.0
    assert found.fetch().logabsdet == 0.0
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = found.nothing


def test_arrays_are_known_to_a_session_by_name(session):
    x = wt.ones(3).execute(name="x")
    assert wt.named_tensor("x") is x
    assert wt.named_tensor(name="x", session=session) is x
    with wt.Session(workers=1) as other, pytest.raises(NotFoundError, match="nothing named 'x'"):
        wt.named_tensor("x", session=other)
    with pytest.raises(UsageError, match="name is 3"):
        wt.ones(3).execute(name=3)  # type: ignore[arg-type]


def test_a_new_session_is_the_default_one_until_it_is_closed():
    before = wt.get_default_session()
    made = wt.new_session(n_cpu=1, n_worker=2)
    try:
        assert made.workers == 2
        assert wt.get_default_session() is made
        other = wt.new_session(default=False, workers=1, backend="oscar")
        assert wt.get_default_session() is made
        assert other.session_id != made.session_id
        assert wt.ones(3).execute(session=other).fetch(session=other).sum() == 3
        assert other.as_default() is other
        assert wt.get_default_session() is other
        wt.stop_server()
        assert wt.get_default_session() is None
    finally:
        made.close()
        if before is not None:
            before.as_default()


def test_there_is_no_cluster_to_reach():
    with pytest.raises(UsageError, match="no cluster at 'http://one:7103'"):
        wt.new_session("http://one:7103")


def test_eager_mode_computes_what_is_made():
    with wt.option_context() as options:
        options.eager_mode = True
        x = wt.arange(6).reshape(2, 3)
        assert x._ready()
    assert not wt.options.eager_mode
    assert not (x + 1)._ready()
    with wt.option_context({"eager_mode": True}):
        assert (x + 1)._ready()


def test_the_option_chunk_size_holds_where_nobody_else_says():
    with wt.option_context({"chunk_size": 2}):
        assert wt.ones(5).chunks == ((2, 2, 1),)
        assert wt.ones(5, chunk_size=3).chunks == ((3, 2),)
        with wt.Session(chunk_size=4, workers=1):
            assert wt.ones(5).chunks == ((4, 1),)
    for wrong in (0, "2", True):
        with pytest.raises(TypeError, match="the option chunk_size is"):
            setattr(wt.options, "chunk_size", wrong)  # noqa: B010 - a type checker knows better
    assert wt.options.chunk_size is None


def test_options_are_those_that_there_are():
    options = Options()
    with pytest.raises(AttributeError, match="no option 'eagre_mode'; there are chunk_size, eager_mode"):
        options.eagre_mode = True
    with pytest.raises(TypeError, match="give True or False"):
        options.eager_mode = 1  # type: ignore[assignment]
    assert not options.eager_mode


def test_progress_is_shown_if_it_is_asked_for(session):
    x = wt.ones(4, chunk_size=2)
    assert x.execute(show_progress=True) is x
    with wt.option_context({"show_progress": True}):
        assert (x + 1).execute().fetch().sum() == 8


def test_progress_is_shown_on_a_terminal_only(monkeypatch):
    shown: list[str] = []

    def picture(run, name, undo):
        shown.append(name)
        return lambda: None

    monkeypatch.setattr("weft.runtime.waiting.picture", picture)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with wt.Session(workers=1, direct=False):
        (wt.ones(4) + 1).execute()
        assert shown == []
        monkeypatch.setattr("sys.stderr", Terminal())
        (wt.ones(4) + 1).execute()
        assert shown == ["tensors"]
        (wt.ones(4) + 1).execute(show_progress=False)
        (wt.ones(4) + 1).execute(wait=False).result(180)
        assert shown == ["tensors"]
        (wt.ones(4) + 1).execute(wait=False, show_progress=True).result(180)
        assert shown == ["tensors"] * 2


def test_a_background_computation_is_one_of_the_session_around_it():
    with wt.Session(workers=1, direct=False) as session:
        made = (wt.ones(4) + 1).execute(wait=False).result(180)
        assert made._node.kwargs["source"].values.of(session.engine.store)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_what_a_function_returns_is_computed_together(session):
    x = wt.asarray(np.arange(12.0).reshape(4, 3), chunk_size=2)
    q, r = wt.linalg.qr(x).execute().fetch()  # type: ignore[attr-defined]
    np.testing.assert_allclose(q @ r, x.fetch(), atol=1e-12)
    found = wt.unique_counts(x > 4).execute().fetch()  # type: ignore[attr-defined]
    assert found.counts.tolist() == [5, 7]
    assert [part.tolist() for part in wt.split(wt.arange(4), 2).execute().fetch()] == [[0, 1], [2, 3]]
    later = wt.linalg.slogdet(wt.eye(2)).execute(wait=False)  # type: ignore[attr-defined]
    assert later.result(180)[0].fetch() == 1.0


def numbered(chunk, chunk_index):
    return chunk + 10 * chunk_index[0]


@pytest.mark.parametrize("direct", [True, False])
def test_a_function_of_chunks_is_told_which_it_has(direct):
    with wt.Session(workers=2, direct=direct):
        x = (wt.zeros(5, chunk_size=2) + 1).map_chunk(numbered, with_chunk_index=True)
        assert (x + 0).fetch().tolist() == [1, 1, 11, 11, 21]


@pytest.mark.parametrize("size", [5, 100_000, 1_000_000])
@pytest.mark.parametrize("get", [lambda x: x.fetch(), lambda x: x.to_numpy(), np.asarray, lambda x: wt.fetch(x, x)[1]])
def test_a_fetched_array_belongs_to_the_user(get, size):
    source = np.ones(size)
    for x in (wt.array(source), wt.array(source)[1:], wt.array(source).execute(), wt.ones(size) * 1):
        got = get(x)
        n = len(got)
        got[:] = 0
        assert x.sum().fetch() == n
        assert x.fetch().sum() == n
        assert (x + 0).fetch().sum() == n
    assert source.sum() == size


def test_map_chunk_cannot_change_the_array_it_reads():
    source = np.ones(10)
    with pytest.raises(ValueError, match="read-only"):
        wt.array(source).map_chunk(lambda chunk: chunk.__imul__(2))
    with pytest.raises(weft.TaskError, match="read-only"):
        wt.array(source).map_chunk(lambda chunk: chunk.__imul__(2), dtype=float).fetch()
    assert source.sum() == 10
