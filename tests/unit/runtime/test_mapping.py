"""`Session.map`: results as they come, errors that name the item, and iterables without a length."""

import io
import itertools
import threading
import time

import numpy
import pytest

import weft
from tests.unit.runtime.tasks import DEADLINE_S, double
from weft.model.errors import NotFoundError, RunCancelledError, TaskError, UsageError
from weft.runtime import mapping, progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def seven_fails(value):
    if value == 7:
        raise ValueError("seven")
    return value


def ends_at_two(value):
    if value == 2:
        raise StopIteration(value)
    return value


def fails_once(path):
    if not path.exists():
        path.touch()
        raise ValueError("the first time")
    return path.name


def power(base, exponent):
    return base**exponent


@pytest.mark.parametrize(
    "items",
    [range(1000), list(range(1000)), tuple(range(1000)), numpy.arange(1000), dict.fromkeys(range(1000))],
    ids=lambda items: type(items).__name__,
)
def test_results_have_the_order_of_the_items(session, items):
    mapped = session.map(double, items)
    assert mapped.n == 1000
    assert mapped.results() == list(range(0, 2000, 2))
    assert mapped.results() == []


@pytest.mark.parametrize("labels", [[2, 1, 0], [1, 5, 7], ["a", "b", "c"]], ids=str)
def test_a_series_is_read_by_place_and_not_by_label(session, labels):
    pandas = pytest.importorskip("pandas")
    mapped = session.map(double, pandas.Series([10, 20, 30], labels))
    assert mapped.n == 3
    assert mapped.results() == [20, 40, 60]


def test_a_frame_gives_what_its_iteration_gives(threads):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": [3, 4]})
    assert threads.map(double, frame[:1]).results() == threads.map(double, list(frame)).results() == ["aa", "bb"]


def test_an_iterable_of_unknown_length_is_taken_in_blocks(session):
    mapped = session.map(double, (value for value in range(5000)))
    assert mapped.n is None
    assert list(mapped) == list(range(0, 10000, 2))


@pytest.mark.parametrize("items", [[], iter([])], ids=["list", "iterator"])
def test_no_items_have_no_results(threads, items):
    assert threads.map(double, items).results() == []


def test_an_endless_iterable_is_read_only_a_little_ahead(threads):
    taken = itertools.count()
    mapped = threads.map(double, taken)
    assert list(itertools.islice(mapped, 3)) == [0, 2, 4]
    assert next(taken) <= mapping.AHEAD * mapping.FIRST
    mapped.cancel()


def test_a_slow_iterable_starts_with_the_items_that_it_has(threads):
    done = threading.Event()

    def items():
        yield from range(16)
        time.sleep(mapping._TAKE_S * 2)
        yield from range(16, 32)
        done.wait(DEADLINE_S)

    def at_31(value):
        if value == 31:
            done.set()
        return value

    mapped = threads.map(at_31, items())
    assert mapped._count <= 32
    done.set()
    assert list(mapped) == list(range(32))


@pytest.mark.parametrize("ordered", [True, False])
def test_results_of_a_slow_iterable_do_not_wait_for_its_next_items(threads, ordered):
    taken, ended = [], threading.Semaphore(0)

    def items():
        for item in range(100):
            taken.append(item)
            if item:
                assert ended.acquire(timeout=DEADLINE_S)  # until the item before has ended
            time.sleep(mapping._TAKE_S * 1.1)
            yield item

    def doubled(value):
        ended.release()
        return 2 * value

    with threads.map(doubled, items(), ordered=ordered) as mapped:
        assert next(mapped) == 0
        assert len(taken) < 16


def test_as_many_items_of_a_slow_iterable_run_as_there_are_workers():
    together = threading.Barrier(6)

    def items():
        for item in range(6):
            time.sleep(mapping._TAKE_S * 1.1)
            yield item

    with weft.Session(workers=6) as session:
        assert sorted(session.map(lambda _: together.wait(DEADLINE_S), items()).results()) == list(range(6))


@pytest.mark.parametrize("ordered", [True, False])
def test_each_result_goes_to_one_of_several_reading_threads(threads, ordered):
    mapped, found = threads.map(double, iter(range(2000)), ordered=ordered), []
    readers = [threading.Thread(target=lambda: found.extend(mapped)) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(DEADLINE_S)
    assert sorted(found) == list(range(0, 4000, 2))


def test_a_result_is_there_before_the_others_have_ended(threads):
    release = threading.Event()

    def waits(value):
        if value:
            assert release.wait(DEADLINE_S)
        return value

    mapped = threads.map(waits, range(2))
    assert next(mapped) == 0
    release.set()
    assert next(mapped) == 1
    with pytest.raises(StopIteration):
        next(mapped)


def test_unordered_results_come_as_they_end(threads):
    release = threading.Event()

    def waits(value):
        if not value:
            assert release.wait(DEADLINE_S)
        return value

    mapped = threads.map(waits, range(2), ordered=False)
    assert next(mapped) == 1
    release.set()
    assert next(mapped) == 0


def test_unordered_results_of_many_blocks_are_complete(session):
    assert sorted(session.map(double, iter(range(3000)), ordered=False)) == list(range(0, 6000, 2))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("form", [list, iter])
def test_the_error_of_an_item_names_it_and_is_of_its_class(session, form, ordered):
    mapped = session.map(seven_fails, form(list(range(200))), ordered=ordered)
    with pytest.raises(ValueError, match="seven") as failed:
        list(mapped)
    assert isinstance(failed.value, TaskError)
    assert failed.value.task == "seven_fails[7]"
    assert str(failed.value).startswith("seven_fails[7] failed for the item 7: ValueError: seven")
    assert "seven_fails" in failed.value.traceback_text


def test_the_place_of_an_item_counts_over_all_blocks(threads):
    items = iter([*range(8, 508), 7])
    with pytest.raises(TaskError) as failed:
        list(threads.map(seven_fails, items))
    assert failed.value.task == "seven_fails[500]"


def test_results_before_the_failed_item_are_handed_on(threads):
    mapped = threads.map(seven_fails, iter(range(10)))
    got = []
    with pytest.raises(ValueError, match="seven"):
        got.extend(mapped)
    assert got == list(range(len(got)))


@pytest.mark.parametrize("n", [0, 3, 500])
@pytest.mark.parametrize("ordered", [True, False])
def test_the_error_of_an_iterable_comes_after_the_items_before_it(session, n, ordered):
    def broken():
        yield from range(n)
        raise OSError("no more lines")

    mapped, got = session.map(double, broken(), ordered=ordered), []
    with pytest.raises(OSError, match="no more lines"):
        got.extend(mapped)
    assert sorted(got) == [2 * i for i in range(n)]
    assert list(mapped) == []
    session.map(double, broken()).cancel()


def test_with_return_exceptions_an_error_is_the_result(session):
    results = session.map(seven_fails, range(200), return_exceptions=True).results()
    error = results.pop(7)
    assert results == [value for value in range(200) if value != 7]
    assert isinstance(error, ValueError)
    assert isinstance(error, TaskError)
    assert error.task == "seven_fails[7]"


def test_an_item_without_a_text_is_named_by_its_type(threads):
    class Mute:
        def __repr__(self):
            raise RuntimeError("no text")

    with pytest.raises(TaskError, match="for the item Mute"):
        threads.map(len, [Mute()]).results()


def test_results_and_runs_are_shown_by_name_and_state(threads):
    assert repr(threads.map(double, [1, 2])) == "<results of double for 2 items>"
    assert repr(threads.map(double, iter([]))) == "<results of map for items of an iterable>"
    graph = weft.Graph("shown")
    graph.map(double, [1])
    run = threads.submit(graph)
    results = run.result()
    assert repr(run) == f"<run {run.id} of shown: succeeded>"
    assert repr(results) == f"<results of {run!r}: double>"


def test_the_options_of_a_vertex_hold(session, tmp_path):
    assert session.map(fails_once, [tmp_path / "a"], retry=weft.Retry(user=1)).results() == ["a"]
    with pytest.raises(weft.CapacityError):
        session.map(double, [1], resources=weft.Resources(cpu=1000))


def test_a_task_that_takes_too_long_names_its_item(threads):
    release = threading.Event()
    with pytest.raises(TimeoutError, match=r"waits\[0\] failed for the item 5") as caught:
        threads.map(waits_for(release), [5], timeout_s=0.05).results()
    assert isinstance(caught.value, TaskError)
    release.set()


def waits_for(release):
    def waits(_):
        release.wait(DEADLINE_S)

    return waits


def test_params_are_further_arguments(session):
    assert session.map(power, [1, 2, 3], params={"exponent": 2}, name="squared").results() == [1, 4, 9]


@pytest.mark.parametrize(
    ("arguments", "options", "part"),
    [
        ((double, 3), {}, "items is 3"),
        ((double, [1]), {"keep": False}, "no option 'keep'"),
        ((power, [1]), {"exponent": 2}, r"params: params=\{'exponent': \.\.\.\}"),
        ((double, [1]), {"ordered": 1}, "ordered is 1"),
        ((double, [1]), {"name": 1}, "name is 1"),
    ],
)
def test_a_wrong_argument_is_named(threads, arguments, options, part):
    with pytest.raises(UsageError, match=part):
        threads.map(*arguments, **options)


def test_leaving_the_block_cancels_the_rest(threads):
    release = threading.Event()
    with threads.map(waits_for(release), range(100)) as mapped:
        (run,) = mapped.runs
    release.set()
    assert run.wait(DEADLINE_S)
    assert run.status == "cancelled"


def test_a_cancelled_map_raises(threads):
    release = threading.Event()
    mapped = threads.map(waits_for(release), range(100))
    mapped.cancel("enough")
    release.set()
    with pytest.raises(RunCancelledError, match="enough"):
        list(mapped)


def test_results_that_were_read_are_dropped_at_once():
    with weft.Session("threads", workers=1) as session:
        mapped = session.map(bytes, (1_000_000 for _ in range(200)))
        for _ in mapped:
            pass
        limit = time.monotonic() + DEADLINE_S
        while session.store.stats().memory:
            assert time.monotonic() < limit, "the values have not been dropped"
            threading.Event().wait(0.002)
        assert not mapped.runs


@pytest.mark.parametrize("ordered", [True, False])
def test_a_lost_value_is_read_when_it_is_there_again(monkeypatch, ordered):
    with weft.Session("threads", workers=1) as session:
        lost = {3, 4, 90}
        load = session.load

        def fails_at_first(job, vertex, column, index):
            if index in lost:
                lost.remove(index)
                raise NotFoundError("its node is gone")
            return load(job, vertex, column, index)

        monkeypatch.setattr(session, "load_plain", lambda *_: None)
        monkeypatch.setattr(session, "load", fails_at_first)
        found = list(session.map(double, list(range(100)), ordered=ordered))
        assert sorted(found) == list(range(0, 200, 2))
        assert not lost


def test_a_durable_session_maps_items_of_a_known_length_alone(tmp_path):
    with weft.Session("threads", workers=1, durable=tmp_path) as session:
        assert session.map(double, [1, 2]).results() == [2, 4]
        with pytest.raises(UsageError, match="known length"):
            session.map(double, iter([1]))


def test_a_task_may_map_in_its_own_session():
    with weft.Session("threads", workers=2) as session:
        graph = weft.Graph("outer")
        graph.add(lambda: session.map(double, [1, 2]).results(), name="inner")
        assert session.run(graph, timeout_s=DEADLINE_S).value() == [2, 4]


def test_bars_are_shown_while_the_reader_waits(threads, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    shown = threading.Event()

    class Seen(progress.TerminalBars):
        def update(self, view):
            super().update(view)
            self._progress.refresh()
            shown.set()

    monkeypatch.setattr(mapping, "bars", lambda name: Seen(name, stream))
    monkeypatch.setattr(mapping, "PATIENCE_S", 0.0)
    assert threads.map(waits_for(shown), range(3), name="waits").results() == [None] * 3
    assert "waits" in stream.getvalue()
    assert "0/3" in stream.getvalue()


@pytest.mark.parametrize("ordered", [True, False])
def test_a_function_that_raises_stop_iteration_does_not_end_the_results(ordered):
    with weft.Session(workers=1) as session:
        with pytest.raises(TaskError, match=r"ends_at_two\[2\] failed for the item 2: StopIteration: 2"):
            list(session.map(ends_at_two, range(5), ordered=ordered))
        found = list(session.map(ends_at_two, range(5), ordered=ordered, return_exceptions=True))
    assert [one for one in found if not isinstance(one, TaskError)] == [0, 1, 3, 4]
