"""How sessions end: a block waits for what was begun in it, an error or Ctrl-C cancels, and failures are told."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import weft
import weft.tensor as wt
from weft.graph.task import TaskContext
from weft.model.errors import RunCancelledError

PATIENCE_S = 180.0


def leave_file(name: str, folder: str) -> None:
    Path(folder, name).touch()


def leave_file_late(name: str, folder: str) -> None:
    time.sleep(0.01)
    Path(folder, name).touch()


def refuse(item: object) -> None:
    raise ValueError(f"no {item}")


@pytest.fixture(params=["threads", "processes"])
def backend(request) -> str:
    return str(request.param)


def test_a_block_waits_for_what_was_begun_in_it(backend, tmp_path):
    names = [str(number) for number in range(20)]
    with weft.Session(backend, workers=2) as session:
        session.map(leave_file_late, names, params={"folder": str(tmp_path)})
        g = weft.Graph("more")
        g.map(leave_file_late, [f"more-{name}" for name in names], params={"folder": str(tmp_path)})
        run = session.submit(g)
    assert {*os.listdir(tmp_path)} == {*names, *(f"more-{name}" for name in names)}
    assert run.status == "succeeded"


def test_a_block_waits_for_what_callbacks_begin(tmp_path):
    with weft.Session(workers=1) as session:

        def go_on(_: weft.Run, left: int = 3) -> None:
            if left:
                g = weft.Graph(f"step-{left}")
                g.map(leave_file, [f"step-{left}"], params={"folder": str(tmp_path)})
                session.submit(g).add_done_callback(lambda run: go_on(run, left - 1))

        go_on(None)  # type: ignore[arg-type]
    assert {*os.listdir(tmp_path)} == {"step-1", "step-2", "step-3"}


def test_a_block_ends_what_was_begun_of_an_endless_iterable(tmp_path):
    taken = []

    def names():
        for number in itertools.count():
            taken.append(str(number))
            yield str(number)

    with weft.Session(workers=2) as session:
        mapped = session.map(leave_file, names(), params={"folder": str(tmp_path)})
        next(mapped)
        begun = list(taken)
    assert taken == begun
    assert {*os.listdir(tmp_path)} == {*begun}


def wait_for_stop(ctx: TaskContext, _: object) -> None:
    stopped = threading.Event()
    ctx.on_cancel(stopped.set)
    stopped.wait(PATIENCE_S)


def endless() -> weft.Graph:
    g = weft.Graph("long")
    g.task(wait_for_stop)
    return g


def test_a_block_that_ends_by_an_error_cancels(backend):
    runs = []

    def leave() -> None:
        with weft.Session(backend, workers=1, grace_s=0.5) as session:
            runs.append(session.submit(endless()))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave()
    assert runs[0].status == "cancelled"


def test_close_cancels_and_wait_does_not(tmp_path):
    session = weft.Session(workers=1, grace_s=0.5)
    session.map(leave_file, ["a"], params={"folder": str(tmp_path)})
    assert session.wait()
    assert os.listdir(tmp_path) == ["a"]
    run = session.submit(endless())
    assert not session.wait(0.01)
    session.close()
    assert run.status == "cancelled"


def test_ctrl_c_ends_the_wait_of_a_block_and_cancels():
    def interrupt(ctx: TaskContext, _: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        wait_for_stop(ctx, _)

    g = weft.Graph("interrupted")
    g.task(interrupt)
    runs = []
    session = weft.Session(workers=1)
    with pytest.raises(KeyboardInterrupt), session:
        runs.append(session.submit(g))
    assert runs[0].status in ("cancelling", "cancelled")  # nobody waits for its tasks


def test_a_block_waits_until_durable_runs_are_on_disk(tmp_path):
    (tmp_path / "made").mkdir()
    told = []
    with weft.Session(workers=1, durable=tmp_path / "state") as session:
        g = weft.Graph("kept")
        g.map(leave_file, ["a"], params={"folder": str(tmp_path / "made")})
        run = session.submit(g)
        run.add_done_callback(lambda run: told.append(run.status))
    assert told == ["succeeded"]
    assert os.listdir(tmp_path / "made") == ["a"]


class Silent:
    """An actor that nobody calls."""


def test_a_block_ends_an_actor_whose_worker_its_runs_wait_for(tmp_path):
    with weft.Session(workers=1, grace_s=0.5) as session:
        session.actor(Silent, resources=weft.Resources(cpu=1))
        session.map(leave_file, ["a"], params={"folder": str(tmp_path)})
    assert os.listdir(tmp_path) == ["a"]


def test_a_block_of_tensors_waits_for_computations():
    class Slow:
        shape, dtype = (4,), wt.asarray([1.0]).dtype
        read = 0

        def __getitem__(self, index):
            time.sleep(0.05)
            Slow.read += 1
            return wt.ones(4).fetch()[index]

    with wt.Session(workers=1):
        made = wt.sum(wt.from_array(Slow())).execute(wait=False)
    assert made.done()
    assert Slow.read
    assert made.result(0) is not None


# ------------------------------------------------------------------------------------------------ what nobody reads


def test_a_failure_that_nobody_reads_is_told_at_the_end_of_the_block(backend):
    with pytest.warns(RuntimeWarning) as told, weft.Session(backend, workers=1, task_logs=False) as session:
        session.map(refuse, [3], name="refusing")
    (one,) = told
    assert str(one.message) == (
        "the run refusing-1 failed at refusing[0], and nobody has read its error: ValueError: no 3"
    )


def test_where_warnings_are_errors_the_block_raises_it():
    session = weft.Session(workers=1)
    with pytest.raises(RuntimeWarning, match="nobody has read its error: ValueError: no 3"), session:
        session.map(refuse, [3])

    def leave() -> None:
        with weft.Session(workers=1) as session:
            session.map(refuse, [3])
            session.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):  # which is not replaced
        leave()


@pytest.mark.parametrize(
    "read",
    [
        lambda run: run.error(),
        lambda run: run.status,
        lambda run: run.add_done_callback(lambda _: None),
    ],
)
def test_a_failure_that_was_read_is_not_told(read):
    g = weft.Graph("refusing")
    g.map(refuse, [3])
    with weft.Session(workers=1) as session:
        run = session.submit(g)
        run.wait()
        read(run)
        del run
    with weft.Session(workers=1) as session:
        run = session.submit(g)
    read(run)  # after the block
    del run
    gc.collect()


def test_the_failures_of_a_map_that_was_read_or_left_are_not_told():
    with weft.Session(workers=1) as session:
        with pytest.raises(ValueError, match="no 1"):
            session.map(refuse, [1, 2]).results()
        assert isinstance(session.map(refuse, [1], return_exceptions=True).results()[0], ValueError)
        with session.map(refuse, [1]):
            session.wait()


def test_a_failure_is_told_when_its_run_goes_after_the_block():
    g = weft.Graph("refusing")
    g.map(refuse, [3])
    with weft.Session(workers=1) as session:
        run = session.submit(g)
    runs = [run]
    del run
    with pytest.warns(RuntimeWarning, match="the run refusing-1 failed at refuse"):
        runs.clear()


def test_a_failure_is_told_at_the_end_of_the_process():
    program = """
import weft

def refuse(item):
    raise ValueError(f"no {item}")

with weft.Session(workers=1) as session:
    g = weft.Graph("refusing")
    g.map(refuse, [3])
    run = session.submit(g)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert ended.stderr.count("nobody has read its error: ValueError: no 3") == 1


def test_a_cancelled_run_is_not_told():
    with weft.Session(workers=1, grace_s=0.5) as session:
        session.submit(endless()).cancel()
        run = session.submit(endless())
        run.cancel()
        with pytest.raises(RunCancelledError):
            run.result()


def test_a_computation_that_nobody_reads_is_told():
    def fail(part):
        if part.size == 4:  # and not the one that shows its type
            raise ValueError("no part")
        return part

    def begin() -> None:
        with wt.Session(workers=1, direct=False):
            wt.ones(4).map_chunk(fail).execute(wait=False)

    def until_told() -> None:
        begin()
        end = time.monotonic() + PATIENCE_S
        while not told and time.monotonic() < end:
            gc.collect()
            time.sleep(0.01)

    with pytest.warns(RuntimeWarning, match="nobody has read the error of a computation: .*no part") as told:
        until_told()


def test_what_is_freed_at_the_end_is_freed_before_the_workers_end():
    size = 8 << 20
    with weft.Session("processes", workers=2, memory="64MiB") as session:  # a thread with an error fails this test
        assert sum(map(len, session.map(bytes, [size] * 16, progress=False).results())) == 16 * size
