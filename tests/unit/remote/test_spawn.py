"""Functions that spawn functions, on threads and on worker processes."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, OrderedDict, defaultdict, deque
from concurrent.futures import CancelledError
from contextlib import suppress

import numpy as np
import pytest

import weft
import weft.remote as wr
import weft.tensor as wt
from weft.model.errors import (
    CapacityError,
    ConflictError,
    InputLimitError,
    ProgramError,
    RunCancelledError,
    RunFailedError,
    TaskError,
    UsageError,
)
from weft.remote import scheduler

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["threads", "processes"])
def session(request):
    with wt.Session(backend=request.param, workers=2) as made:
        yield made


@pytest.fixture
def threads():
    with wt.Session(workers=2) as made:
        yield made


def inc(x):
    return x + 1


class CodedError(Exception):
    """An error with arguments of its own."""

    def __init__(self, code, unit):
        super().__init__(f"{code} {unit}")
        self.code = code


def raises(kind):
    if kind is OSError:
        with open("/no/such/file"):
            pass
    raise CodedError(7, "m") if kind is CodedError else kind("q", 5)


def attributes_caught(kind, session=None):
    try:
        wr.spawn(raises, (kind,)).fetch(session)
    except OSError as error:
        return type(error.errno), error.filename
    except CodedError as error:
        return error.code, error.args
    except KeyError as error:
        return error.args
    return "nothing caught"


def zeros(n):
    return np.zeros(n)


def waits_for_zeros(n):
    assert len(wr.spawn(zeros, (n,)).fetch()) == n
    return np.concatenate([wr.spawn(zeros, (n,)).fetch()] * 2)


def threads_below(n):
    return threading.active_count() if n == 0 else wr.spawn(threads_below, (n - 1,)).fetch()


def end_process():
    os.kill(os.getpid(), signal.SIGKILL)


def fib(n):
    if n < 2:
        return n
    parts = [wr.spawn(fib, (n - 1,)), wr.spawn(fib, (n - 2,))]
    return sum(wr.ExecutableTuple(parts).execute().fetch())


def depth(n):
    return 0 if n == 0 else wr.spawn(depth, (n - 1,)).execute().fetch() + 1


def fail(text):
    raise ValueError(text)


def catches():
    try:
        return wr.spawn(fail, ("inner",)).execute()
    except TaskError as error:
        return f"caught: {error.message}"


def does_not_catch():
    return wr.spawn(fail, ("inner",)).fetch()


def noted(folder, name):
    """Make a file more, and return how many there were."""
    n = len(os.listdir(folder))
    with open(os.path.join(folder, f"{name}-{n}"), "x"):
        return n


def test_a_call_runs_when_it_is_asked_for(session):
    made = wr.spawn(inc, (0,))
    assert repr(made) == "Object <inc, to be computed>"
    assert made.execute() is made
    assert repr(made) == "Object <inc, computed>"
    assert made.fetch() == made.to_object() == 1
    assert wr.spawn(inc, 4).fetch() == 5
    assert wr.spawn(dict, kwargs={"a": wr.spawn(inc, (1,))}).fetch() == {"a": 2}


def test_results_are_arguments_wherever_they_lie(session):
    several = [wr.spawn(inc, (i,)) for i in range(10)]
    assert wr.spawn(sum, (several,)).execute().fetch() == 55
    found = wr.spawn(dict, ({"one": (several[0], {"deep": several[1]}), "set": [several[2], 7]},)).fetch()
    assert found == {"one": (1, {"deep": 2}), "set": [3, 7]}
    assert wr.ExecutableTuple(several).execute().fetch() == tuple(range(1, 11))
    assert wr.spawn(sum, (wr.ExecutableTuple(several),)).fetch() == 55


def given(*args):
    return args


def test_containers_keep_their_types(session):
    plain = (Counter("ab"), defaultdict(list, a=[1]), OrderedDict(a=1), deque([1], maxlen=2))
    found = wr.spawn(given, plain).fetch(session)
    assert found == plain
    assert [type(one) for one in found] == [type(one) for one in plain]
    one = wr.spawn(inc, (1,))
    some = (Counter(a=one), defaultdict(list, a=one), OrderedDict(a=one), deque([one], maxlen=2), {one: "key"})
    found = wr.spawn(given, some).fetch(session)
    assert found == ({"a": 2}, {"a": 2}, {"a": 2}, deque([2]), {2: "key"})
    assert [type(one) for one in found] == [type(one) for one in some]
    assert found[1].default_factory is list
    assert found[3].maxlen == 2


def test_results_in_arrays_of_objects_are_arguments(session):
    cells = np.empty((2, 1), object)
    cells[0, 0], cells[1, 0] = wr.spawn(inc, (1,)), wr.spawn(sorted, ("ba",))
    found = wr.spawn(given, (cells,)).fetch(session)[0]
    assert found.shape == (2, 1)
    assert found.ravel().tolist() == [2, ["a", "b"]]


def test_a_result_that_its_container_cannot_hold_is_told(session):
    for holder in ({wr.spawn(sorted, ("ba",))}, {wr.spawn(sorted, ("ba",)): 1}):
        later = wr.spawn(given, (holder,)).execute(session=session, wait=False)
        assert isinstance(later.exception(180), ProgramError)


def spawns_cycle():
    cycle: list[object] = []
    cycle.append(cycle)
    return wr.spawn(given, (cycle,)).fetch()


def test_arguments_that_contain_themselves_are_refused(session):
    with pytest.raises(ProgramError, match="the arguments of given contain themselves"):
        spawns_cycle()
    later = wr.spawn(spawns_cycle).execute(session=session, wait=False)
    assert "the arguments of given contain themselves" in str(later.exception(180))


def test_one_output_is_the_value_as_it_is(session):
    [only] = wr.spawn(halves, ([0.4, 0.7],), n_output=1)
    assert only.fetch(session) == ([0.4], [0.7])


def later_value():
    yield 1


async def awaited():
    return 1


@pytest.mark.parametrize("function", [later_value, awaited])
def test_functions_that_run_later_are_refused(function):
    with pytest.raises(ProgramError, match="is a generator or `async def`"):
        wr.spawn(function)


def test_a_call_runs_once(session, tmp_path):
    one = wr.spawn(noted, (str(tmp_path), "call"))
    assert wt.fetch(wr.spawn(inc, (one,)), wr.spawn(inc, (one,)), one) == (1, 1, 0)
    assert wr.spawn(inc, (one,)).fetch() == 1
    assert len(os.listdir(tmp_path)) == 1


def test_a_long_chain(session):
    made = wr.spawn(inc, (0,))
    for _ in range(40):
        made = wr.spawn(inc, (made,))
    assert made.fetch() == 41


def test_functions_spawn_functions(session):
    assert wr.spawn(fib, (7,)).execute().fetch() == 13


def test_a_function_that_waits_gives_its_worker_back(session):
    assert session.workers == 2
    assert wr.spawn(depth, (20,)).fetch() == 20


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_one_worker_is_enough(backend):
    with wt.Session(backend=backend, workers=1):
        assert wr.spawn(depth, (6,)).fetch() == 6
        assert wr.spawn(fib, (5,)).fetch() == 5


def test_many_calls_share_few_tasks(session, monkeypatch):
    submitted = []
    submit = session.engine.submit

    def counted(*given, **options):
        submitted.append(given)
        return submit(*given, **options)

    monkeypatch.setattr(session.engine, "submit", counted)
    calls = [wr.spawn(inc, (i,)) for i in range(2000)]
    assert wr.spawn(sum, (calls,)).fetch(session) == sum(range(2001))
    assert len(submitted) < 1000  # one for each tenth of a second


def test_more_calls_are_joined_than_a_graph_has_vertices(threads):
    calls = [wr.spawn(inc, (i,)) for i in range(100_001)]
    assert wr.spawn(sum, (calls,)).fetch(threads) == sum(range(100_002))


def test_a_recursion_has_fewer_threads_than_levels(session):
    assert wr.spawn(threads_below, (200,)).fetch(session) < 100


def test_large_values_go_through_the_store(session):
    calls = [wr.spawn(zeros, (n,)) for n in (1000, 20_000, 300_000)]
    assert wr.spawn(np.concatenate, (calls,)).fetch(session).shape == (321_000,)
    assert all(one.call.kept is not None for one in calls)
    assert wr.spawn(len, (wr.spawn(waits_for_zeros, (50_000,)),)).fetch(session) == 100_000


def test_too_many_large_arguments_are_told_in_words_of_the_call(session, monkeypatch):
    monkeypatch.setattr(scheduler, "LARGE_MAX", 2)
    calls = [wr.spawn(zeros, (1000,)) for _ in range(3)]
    with pytest.raises(InputLimitError, match="concatenate takes 3 results of 1 KB and more; at most 2 are"):
        wr.spawn(np.concatenate, (calls,)).fetch(session)
    assert wr.spawn(inc, (1,)).fetch(session) == 2


def halves(xs):
    return [x for x in xs if x < 0.5], [x for x in xs if x >= 0.5]


def test_several_outputs_go_different_ways(session):
    low, high = wr.spawn(halves, ([0.4, 0.7, 0.2, 0.8],), n_output=2)
    assert repr(high) == "Object <halves[1], to be computed>"
    assert wr.ExecutableTuple([wr.spawn(sum, (low,)), wr.spawn(len, (high,))]).execute().fetch() == (
        pytest.approx(0.6),
        2,
    )
    with pytest.raises(TaskError, match="returned 2 values, but n_output is 3"):
        wr.spawn(halves, ([0.1],), n_output=3).execute()
    with pytest.raises(TaskError, match="returned int, but n_output is 2"):
        wr.spawn(inc, (1,), n_output=2).execute()


def times(t, x):
    assert isinstance(t, wt.Tensor)
    assert t.shape == (4,)
    return (t * x).sum().to_numpy()


def of_numpy(t):
    return type(t).__module__.partition(".")[0]


def test_arrays_are_arguments(session):
    raw = np.random.default_rng(0).random((5, 4))
    t = wt.asarray(raw, chunk_size=3)
    assert wr.spawn(times, (t.sum(axis=0), 3)).fetch() == pytest.approx(raw.sum() * 3)
    some = t[t > 2.0]  # of a length that nobody knows yet
    assert wr.spawn(len, (some,)).fetch() == 0
    assert wr.spawn(of_numpy, (t,)).fetch() == "weft"
    assert wr.spawn(of_numpy, (t,), resolve_tileable_input=True).fetch() == "numpy"


def test_arrays_and_calls_are_computed_together(session):
    x, call = wt.ones(4, chunk_size=2), wr.spawn(inc, (1,))
    total, two = wr.ExecutableTuple([x.sum(), call]).execute().fetch()
    assert (float(total), two) == (4.0, 2)


def uses_arrays(n):
    return float(wt.ones((n, n), chunk_size=2).sum().fetch())


def test_arrays_can_be_used_inside(session):
    assert wr.spawn(uses_arrays, (4,)).fetch() == 16


def test_arrays_inside_take_the_worker_that_waits_for_them():
    with wt.Session(workers=1, direct=False):
        calls = [wr.spawn(uses_arrays, (n,)) for n in (2, 4, 6)]
        assert wr.ExecutableTuple(calls).fetch() == (4, 16, 36)


def test_a_failure_is_told_where_it_was_not_caught(session):
    with pytest.raises(TaskError, match="ValueError: nothing there") as told:
        wr.spawn(fail, ("nothing there",)).execute()
    assert isinstance(told.value, ValueError)
    assert "raise ValueError(text)" in str(told.value.__cause__)
    with pytest.raises(ValueError, match="ValueError: inner") as through:
        wr.spawn(inc, (wr.spawn(inc, (wr.spawn(does_not_catch),)),)).execute()
    assert "raise ValueError(text)" in str(through.value.__cause__)
    assert wr.spawn(catches).fetch().endswith("failed: ValueError: inner")
    assert wr.spawn(inc, (1,)).fetch() == 2


def fails_twice(folder):
    n = noted(folder, "try")
    if n < 2:
        raise OSError(f"not yet: {n}")
    return n


@pytest.mark.parametrize(
    ("kind", "wanted"), [(OSError, (int, "/no/such/file")), (CodedError, (7, ("7 m",))), (KeyError, ("q", 5))]
)
def test_an_error_has_the_attributes_of_what_was_raised(session, kind, wanted):
    assert wr.spawn(attributes_caught, (kind,)).fetch(session) == wanted
    assert attributes_caught(kind, session) == wanted


SCRIPT = """
import weft.remote as wr
import weft.tensor as wt

class OwnError(Exception):
    pass

def fails():
    error = OwnError("x")
    error.more = lambda: None
    raise error

def caught():
    try:
        wr.spawn(fails).fetch()
    except OwnError as error:
        return "caught in a function"

if __name__ == "__main__":
    with wt.Session(backend="{backend}", workers=2).as_default():
        print(wr.spawn(caught).fetch())
        try:
            wr.spawn(fails).fetch()
        except OwnError as error:
            print("caught by the caller:", error.args)
"""


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_errors_of_a_script_are_caught_by_its_functions(tmp_path, backend):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("{backend}", backend))
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=180, check=False)
    assert ended.stdout.splitlines() == ["caught in a function", "caught by the caller: ('x',)"], ended.stderr


def test_what_fails_is_tried_again_if_it_should_be(session, tmp_path):
    assert wr.spawn(fails_twice, (str(tmp_path),), retry_when_fail=True).fetch() == 2
    with pytest.raises(TaskError, match="ValueError: always"):
        wr.spawn(fail, ("always",), retry_when_fail=True).execute()


def waits_for(folder):
    n = noted(folder, "driver")
    if n == 0:
        wr.spawn(kill, (os.getpid(),)).execute()
    return n


def kill(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_a_call_whose_process_died_while_it_waited_runs_again(tmp_path):
    with wt.Session(backend="processes", workers=2):
        assert wr.spawn(waits_for, (str(tmp_path),)).fetch() == 1


def test_a_call_that_ends_its_processes_is_told_by_name():
    with wt.Session(backend="processes", workers=2) as session:
        with pytest.raises(RunFailedError, match=r"end_process failed: worker .* was lost"):
            wr.spawn(end_process).fetch(session)
        assert wr.spawn(inc, (1,)).fetch(session) == 2


def test_what_cannot_travel_is_told():
    lock = threading.Lock()
    with wt.Session(backend="processes", workers=1):
        with pytest.raises(ProgramError, match="inc and its arguments cannot be sent"):
            wr.spawn(inc, (lock,)).execute()
        assert wr.spawn(inc, (1,)).fetch() == 2


# ------------------------------------------------------------------------------------------------------ cancelling


class Gate:
    def __init__(self):
        self.begun, self.open, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, *_):
        self.begun.set()
        assert self.open.wait(180)
        return "through"


def test_a_computation_is_followed_and_cancelled(threads):
    gate = Gate()
    after: list[str] = []
    call = wr.spawn(after.append, (wr.spawn(gate),))
    later = call.execute(wait=False)
    assert gate.begun.wait(180)
    assert later.running()
    assert later.progress() == 0.0
    assert later.cancel()
    gate.open.set()
    with pytest.raises(CancelledError):
        later.result(180)
    assert not after
    assert wr.spawn(inc, (1,)).fetch() == 2
    assert wr.spawn(inc, (1,)).execute(wait=False).result(180).fetch() == 2


def test_a_cancel_reaches_what_was_spawned(threads):
    gate = Gate()
    told: list[str] = []

    def driver():
        try:
            wr.spawn(gate).execute()
        except RunCancelledError:
            told.append("driver")
            raise
        finally:
            gate.ended.set()

    later = wr.spawn(driver).execute(wait=False)
    assert gate.begun.wait(180)
    later.cancel()
    gate.open.set()
    with pytest.raises(CancelledError):
        later.result(180)
    assert gate.ended.wait(180)
    assert told == ["driver"]


def test_what_somebody_else_wants_goes_on(threads):
    gate = Gate()
    call = wr.spawn(gate)
    one, other = call.execute(wait=False), wr.spawn(len, (call,)).execute(wait=False)
    assert gate.begun.wait(180)
    other.cancel()
    with pytest.raises(CancelledError):
        other.result(180)
    gate.open.set()
    assert one.result(180).fetch() == "through"


def test_a_failure_cancels_what_was_asked_for_with_it(threads):
    gate = Gate()

    def fails():
        assert gate.begun.wait(180)
        raise ValueError("no")

    both = wr.ExecutableTuple([wr.spawn(gate), wr.spawn(fails)]).execute(wait=False)
    assert gate.begun.wait(180)
    gate.open.set()
    assert isinstance(both.exception(180), TaskError)


def never_ends(folder):
    noted(folder, "begun")
    threading.Event().wait(600)


def fails_beside(folder):
    until(lambda: os.listdir(folder))
    raise ValueError("beside")


def until(condition):
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(params=["threads", "processes"])
def impatient(request):
    with wt.Session(backend=request.param, workers=2, grace_s=0.1, backups=False) as made:
        yield made


def test_a_call_that_outlasts_the_grace_period_can_be_cancelled(impatient, tmp_path):
    later = wr.spawn(never_ends, (str(tmp_path),)).execute(session=impatient, wait=False)
    until(lambda: os.listdir(tmp_path))
    later.cancel()
    with pytest.raises(CancelledError):
        later.result(180)
    assert wr.spawn(inc, (1,)).fetch(impatient) == 2


def test_a_failure_ends_a_request_whose_other_call_outlasts_the_grace_period(impatient, tmp_path):
    calls = [wr.spawn(one, (str(tmp_path),)) for one in (never_ends, fails_beside)]
    later = wr.ExecutableTuple(calls).execute(session=impatient, wait=False)
    assert isinstance(later.exception(180), ValueError)
    assert len(os.listdir(tmp_path)) == 1
    assert wr.spawn(inc, (1,)).fetch(impatient) == 2


def awaits_both(folder):
    noted(f"{folder}/parents", "parent")
    return wr.ExecutableTuple([wr.spawn(one, (f"{folder}/calls",)) for one in (never_ends, fails_beside)]).fetch()


def test_a_function_fails_by_its_call_though_another_one_outlasts_the_grace_period(tmp_path):
    for name in ("parents", "calls"):
        (tmp_path / name).mkdir()
    with wt.Session(backend="processes", workers=2, grace_s=0.1, backups=False) as impatient:
        later = wr.spawn(awaits_both, (str(tmp_path),)).execute(session=impatient, wait=False)
        error = later.exception(180)
        assert isinstance(error, ValueError)
        assert "awaits_both failed: fails_beside failed: ValueError: beside" in str(error)
        assert len(os.listdir(tmp_path / "parents")) == 1
        assert wr.spawn(inc, (1,)).fetch(impatient) == 2


def test_a_closed_session_tells_who_waits():
    session = wt.Session(workers=1)
    gate = Gate()
    later = wr.spawn(gate).execute(session=session, wait=False)
    assert gate.begun.wait(180)
    gate.open.set()
    session.close()
    later.exception(180)
    with pytest.raises(ConflictError, match="closed"):
        wr.spawn(inc, (1,)).execute(session=session)


def test_large_results_of_a_closed_session_are_told_to_be_gone():
    with wt.Session(workers=1):
        gone = wr.spawn(zeros, (1000,)).execute()
        read = wr.spawn(zeros, (1000,)).execute()
        small = wr.spawn(inc, (2,)).execute()
        assert len(read.fetch()) == 1000
    assert len(read.fetch()) == 1000
    with wt.Session(workers=1):
        with pytest.raises(ConflictError, match="session that kept these values is closed"):
            wr.spawn(len, (gone,)).execute()
        assert wr.spawn(len, (read,)).fetch() == 1000
        assert wr.spawn(inc, (small,)).fetch() == 4


def test_results_are_read_by_other_sessions_while_theirs_is_open(threads):
    one = wr.spawn(inc, (1,)).execute()
    with wt.Session(workers=1) as other:
        assert wr.spawn(inc, (one,)).execute(session=other).fetch() == 3


def test_what_a_result_was_made_from_is_let_go_of(session):
    made = wr.spawn(sum, ([wr.spawn(inc, (1,)), 3],))
    assert made.call.needs()
    made.execute()
    assert made.call.needs() == []
    assert made.call.args == ()
    assert made.fetch() == 5


# ------------------------------------------------------------------------------------------------- wrong arguments


def uses_the_gpu(place):
    path = os.path.join(place, "in-use")
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))  # fails if another call is using it
    total = sum(range(20_000))
    os.unlink(path)
    return total


def uses_it_by_others(place, depth):
    deeper = (uses_it_by_others, (place, depth - 1)) if depth else (uses_the_gpu, (place,))
    found = wr.spawn(*deeper, resources=weft.Resources(gpu=1)).fetch()
    wr.spawn(inc, (1,)).fetch()
    return found


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_calls_hold_their_resources_while_they_run_and_none_while_they_wait(backend, tmp_path):
    gpu = weft.Resources(gpu=1)
    with wt.Session(backend=backend, workers=3, gpus=1) as session:
        alone = [wr.spawn(uses_the_gpu, (str(tmp_path),), resources=gpu) for _ in range(30)]
        nested = [wr.spawn(uses_it_by_others, (str(tmp_path), 2), resources=gpu) for _ in range(3)]
        found = wr.ExecutableTuple([*alone, *nested]).fetch(session)
        assert set(found) == {sum(range(20_000))}
        large = wr.spawn(zeros, (100_000,))
        assert wr.spawn(len, (large,), resources=[weft.Resources(gpu=9), gpu]).fetch(session) == 100_000
        with pytest.raises(CapacityError, match="gpu 9"):
            wr.spawn(inc, (1,), resources=weft.Resources(gpu=9)).fetch(session)
        assert wr.spawn(inc, (1,), resources=gpu).fetch(session) == 2


def test_a_call_whose_process_died_while_it_waited_gets_its_resources_again(tmp_path):
    with wt.Session(backend="processes", workers=2, gpus=1) as session:
        assert wr.spawn(waits_and_dies_once, (str(tmp_path),), resources=weft.Resources(gpu=1)).fetch(session) == 8


def waits_and_dies_once(place):
    found = wr.spawn(inc, (6,), resources=weft.Resources(gpu=1)).fetch()
    marker = os.path.join(place, "died")
    if not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return found + 1


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        (3, "must be weft.Resources"),
        ([], "must be weft.Resources"),
        (weft.Resources(cpu=0), "a core or a part of one"),
        (weft.Resources(tokens=(("licence", 1),)), "tokens are limits of one graph"),
    ],
)
def test_wrong_resources_are_told_at_once(resources, told):
    with pytest.raises(UsageError, match=told):
        wr.spawn(inc, (1,), resources=resources)


@pytest.mark.parametrize(
    ("name", "there"), [("result", ": here it is fetch()"), ("done", "execute(wait=False)"), ("x", "")]
)
def test_names_of_futures_lead_to_what_is_there(name, there):
    call = wr.spawn(abs, (-1,))
    assert not hasattr(call, name)
    with pytest.raises(AttributeError) as told:
        getattr(call, name)
    assert str(told.value).startswith(f"'Object' object has no attribute '{name}'")
    assert there in str(told.value)


def test_a_value_to_come_has_no_truth_and_equals_no_value(threads):
    one, other = wr.spawn(inc, (0,)), wr.spawn(inc, (0,))
    assert (one == one, one == other, one != other, {one: 1}[one]) == (True, False, True, 1)
    assert one in [other, one]
    for state in ("to be computed", "computed"):
        with pytest.raises(TypeError, match=rf"truth of Object <inc, {state}> .*: write x\.fetch\(\)"):
            bool(one)
        for compare in (lambda: one == 1, lambda: one != 1, lambda: one in [1, 2], lambda: wt.ones(1) == one):
            with pytest.raises(TypeError, match=rf"Object <inc, {state}> has no value .*: write x\.fetch\(\) == "):
                compare()
        one.execute()


def test_wrong_arguments_are_told_at_once():
    with pytest.raises(TypeError, match="int cannot be called"):
        wr.spawn(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="give a dict"):
        wr.spawn(inc, (1,), kwargs=())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="n_output is 0"):
        wr.spawn(inc, (1,), n_output=0)
    with pytest.raises(TypeError, match="unexpected keyword"):
        wr.spawn(inc, (1,), k=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("folder", [".", "a-" * 60])
def test_the_socket_lies_where_sessions_sweep_what_killed_ones_left(tmp_path, monkeypatch, folder):
    place = tmp_path / folder
    place.mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with wt.Session(backend="processes", workers=1):
        assert wr.spawn(depth, 2).execute().fetch() == 2
        [socket] = place.glob("weft-*/runs/calls-*/calls.sock")
        assert [path for path in place.iterdir() if not path.name.startswith(f"weft-{os.getuid()}")] == []
    assert not socket.parent.exists()
