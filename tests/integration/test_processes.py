"""Worker processes: what they compute, what they survive, and that nothing is left of them."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

import weft.model
from tests.started import have_ended
from weft.backends.processes import Processes
from weft.graph.builder import Graph, gather, shuffle
from weft.graph.logical import Retry
from weft.model.chunks import Tier
from weft.model.errors import DiskFullError, NotFoundError, ProgramError, RunCancelledError, TaskError
from weft.model.resources import Resources
from weft.runtime.session import EngineSession
from weft.store import segments
from weft.store.blocks import BlockManager
from weft.store.folders import RunFolders, shm_root, user_root

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
MIB = 1 << 20
DEADLINE_S = 180


def eventually(condition, what="the condition"):
    """Wait until `condition()` is true; it may take long, but not for ever."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true in {DEADLINE_S} s"
        time.sleep(0.01)
    return found


@contextmanager
def opened(tmp_path, workers=2, budget=1 << 30, **options):
    """A session over worker processes; at its end nothing may be left."""
    mine = psutil.Process()
    before = {child.pid for child in mine.children()}  # a database server among them starts processes at any time
    with RunFolders(f"test-{os.getpid()}-{tmp_path.name}", shm_root(), tmp_path) as run:
        store = BlockManager(budget, shm=run.shm, spill=run.spill)
        backend = Processes(workers, store, run.shm, spill=run.spill, **options)
        with EngineSession(backend, store) as session:
            yield session
            jobs = list(session._jobs.values())
            assert all(not job.backend.running for job in jobs), "leases are left"
            assert not backend._leases
            assert store.stats().pinned_chunks == 0
            assert store.stats().reserved == 0
        assert [path.name for path in run.shm.iterdir()] == ["owner.lock"]
        assert list(run.spill.iterdir()) == []
    assert {child.pid for child in mine.children()} <= before, "processes are left"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("processes")) as session:
        yield session


# ------------------------------------------------------------------------------------------------------------ bodies


def double(x):
    return 2 * x


def ones(n):
    return np.ones(n)


def total(arrays):
    return float(sum(array.sum() for array in arrays))


def own_pid(_=None):
    return os.getpid()


def slow_double(x):
    time.sleep(0.02)
    return 2 * x


def slow_beyond_40(x):
    if x > 40:
        time.sleep(0.01)
    return x


def slow_array(x):
    time.sleep(0.002)
    return x, np.full(20_000, x)


def add_pairs(pairs):
    return sum(number for number, _ in pairs), np.add.reduce([array for _, array in pairs])


def stops_itself_once(path):
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return 5


def dies_once(path):
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 5


def add_sums(array, more):
    return float(array.sum() + more.sum())


def exits(x):
    if x == 3 and not Path("died").exists():
        Path("died").touch()
        os._exit(7)
    return x


class TwoArgumentsError(Exception):
    """An exception that pickles and does not unpickle."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def raises(x):
    raise TwoArgumentsError(x, "more")


def returns_a_lock(x):
    return threading.Lock() if x == 5 else x


class NeverBack:
    """A value that pickles and does not unpickle."""

    def __reduce__(self):
        return fails_to_load, (os.getpid(),)


def fails_to_load(pid):
    if os.getpid() != pid:
        raise ValueError("not here")


def never_back(x):
    return NeverBack()


# ------------------------------------------------------------------------------------------------------------ values


def test_shapes(shared):
    g = Graph("shapes")
    a = g.map(double, range(50))
    tree = g.reduce(sum, a)
    rows = g.add(lambda x: [x * 10 + p for p in range(4)], items=range(6), name="rows")
    pieces = g.add(sum, shuffle(rows, 4), name="pieces")
    every = g.add(lambda xs, ys: sum(xs) + sum(ys), gather(a), gather(pieces), n=3, name="every").keep()
    results = shared.run(g)
    assert results[tree] == [sum(2 * x for x in range(50))]
    wanted = sum(2 * x for x in range(50)) + sum(x * 10 + p for x in range(6) for p in range(4))
    assert results[every] == [wanted] * 3


def test_work_is_done_in_other_processes(shared):
    g = Graph("pids")
    pids = g.map(own_pid, range(4))
    found = set(shared.run(g)[pids])
    assert os.getpid() not in found
    assert found <= set(shared.executor.pids.values())


def test_workers_share_the_modules_that_are_loaded_before_them(tmp_path):
    def loaded(_):
        return "colorsys" in sys.modules

    for preload in ((), ("colorsys",), ("there.is.no.such.module", "colorsys")):
        with opened(tmp_path, workers=1, preload=preload) as session:
            graph = Graph("loaded")
            node = graph.map(loaded, [0], name="loaded").keep()
            assert list(session.run(graph)[node]) == ["colorsys" in preload]


def test_large_values_are_mapped_and_not_copied(shared):
    g = Graph("large")
    big = g.map(ones, [MIB] * 4).keep()
    sums = g.add(total, gather(big))
    results = shared.run(g)
    assert results.value(sums) == 4 * MIB
    column = shared._jobs[results._run.id].backend.columns[big.id]
    assert {cell.tier for cell in column.values} == {Tier.SHM}
    array = results[big][0]
    assert not array.flags.owndata
    assert not array.flags.writeable


def test_large_items_and_params(shared):
    g = Graph("items")
    sums = g.map(add_sums, [np.full(MIB, i) for i in range(3)], params={"more": np.ones(MIB)})
    assert shared.run(g)[sums] == [i * MIB + MIB for i in range(3)]


def test_items_go_with_their_lease(shared):
    g = Graph("many")
    n = g.map(double, list(range(5000)))
    assert shared.run(g)[n] == [2 * x for x in range(5000)]


def test_pieces_of_large_rows(shared):
    g = Graph("pieces")
    rows = g.add(lambda i: [np.full(20_000, i * 4 + p) for p in range(4)], items=range(3), name="rows")
    sums = g.add(lambda pieces: [int(piece[0]) for piece in pieces], shuffle(rows, 4), name="sums")
    assert shared.run(g)[sums] == [[i * 4 + p for i in range(3)] for p in range(4)]


def test_values_written_edge_by_edge(shared):
    def writes(ctx, inputs):
        for part in range(3):
            ctx.out("parts").write(part, np.full(30_000, ctx.index * 10 + part))
        ctx.out("plain").write(0, ctx.index)

    g = Graph("edges")
    w = g.task(writes, n=2, name="w")
    parts = g.add(lambda xs: [int(x[0]) for x in xs], shuffle(w, 3, name="parts"), name="parts_of")
    plain = g.add(list, gather(w, name="plain"), name="plain_of")
    results = shared.run(g)
    assert results[parts] == [[part, 10 + part] for part in range(3)]
    assert results.value(plain) == [0, 1]


def test_closures_and_local_classes_travel_by_value(shared):
    class Local:
        def __init__(self, x):
            self.x = x

    g = Graph("closures")
    made = g.map(lambda x: Local(x), range(3), name="made")
    read = g.map(lambda local: local.x, made, name="read")
    made.keep()
    results = shared.run(g)
    assert results[read] == [0, 1, 2]
    assert [type(value) for value in results[made]] == [Local] * 3


class Farewell:
    """Writes a file when it is dropped in a worker."""

    def __init__(self, path):
        self.path, self.home = path, os.getpid()

    def __call__(self, x):
        return 2 * x

    def __del__(self):
        if os.getpid() != self.home:
            Path(f"{self.path}-{os.getpid()}").touch()


@pytest.mark.parametrize("busy", [False, True], ids=["idle workers", "workers with other jobs"])
def test_workers_drop_the_code_of_a_job_that_is_forgotten(shared, tmp_path, busy):
    graph = Graph("farewell")
    node = graph.map(Farewell(str(tmp_path / "dropped")), range(100))
    run = shared.submit(graph)
    assert run.result()[node][-1] == 198
    assert not list(tmp_path.iterdir())
    run.forget()

    def dropped():
        if busy:
            other = Graph("other")
            other.map(double, range(100))
            shared.run(other)
        return list(tmp_path.iterdir())

    eventually(dropped, "the end of the code in a worker")


def test_light_tasks_run_beside_the_workers(shared):
    g = Graph("light")
    beside = g.map(own_pid, range(3), resources=Resources(cpu=0), name="beside")
    arrays = g.map(ones, [50_000] * 2, resources=Resources(cpu=0), name="arrays")
    sums = g.add(total, gather(arrays))
    results = shared.run(g)
    assert results.value(sums) == 100_000
    g = Graph("light")
    beside = g.map(own_pid, range(3), resources=Resources(cpu=0), name="beside")
    assert shared.run(g)[beside] == [os.getpid()] * 3


def test_a_service_is_found_by_its_consumers_and_stopped_after_them(shared):
    def serve(ctx, inputs):
        ctx.emit("endpoint", f"at {ctx.index}")
        while not ctx.cancelled():
            time.sleep(0.01)

    def consume(ctx, inputs):
        while not (found := ctx.endpoints("serve")):
            time.sleep(0.01)
        return found

    g = Graph("service")
    service = g.service(serve, name="serve")
    consumer = g.task(consume, service, name="consume")
    run = shared.submit(g)
    assert run.result(DEADLINE_S)[consumer] == [["at 0"]]


def test_committed_values_are_read_while_their_source_runs(shared):
    g = Graph("live")
    source = g.map(slow_double, range(6), name="source")
    live = gather(source, concurrent=True, name="live")
    reader = g.task(lambda ctx, inputs: list(inputs["live"]), live, n=1, name="reader")
    assert shared.submit(g).result(DEADLINE_S)[reader] == [[2 * x for x in range(6)]]


def test_what_is_done_of_a_long_lease_is_reported(shared):
    g = Graph("long")
    n = g.map(slow_double, range(60))
    seen: set[str] = set()

    def listener(job, events, commands):
        seen.update(type(event).__name__ for event in events)

    # The first tasks look cheap, so that later leases are wide.
    g2 = Graph("wide")
    wide = g2.map(slow_beyond_40, range(400), name="wide")
    assert shared.submit(g, listeners=[listener]).result(DEADLINE_S)[n] == [2 * x for x in range(60)]
    assert shared.submit(g2, listeners=[listener]).result(DEADLINE_S)[wide] == list(range(400))
    assert {"Progress", "Started"} <= seen


# ------------------------------------------------------------------------------------------------------------ errors


def test_an_error_carries_its_traceback_even_if_its_class_does_not_unpickle(shared):
    g = Graph("raises")
    g.map(raises, [1])
    with pytest.raises(TaskError, match="1 and more") as caught:
        shared.run(g)
    assert "in raises" in caught.value.traceback_text


def test_a_value_that_cannot_be_pickled_is_named(shared):
    g = Graph("locks")
    g.map(returns_a_lock, range(20), name="locks")
    with pytest.raises(ProgramError, match=r"^locks\[5\] failed: .*type _thread\.lock cannot leave the process"):
        shared.run(g)


def test_an_open_file_is_refused_and_not_turned_into_its_text(shared):
    g = Graph("files")
    g.map(open, [__file__], name="files")
    with pytest.raises(ProgramError, match=r"^files\[0\] failed: .*cannot pickle the open file"):
        shared.run(g)


def test_a_value_that_cannot_be_loaded_is_an_error(shared):
    g = Graph("never")
    g.map(never_back, range(2), name="never")
    with pytest.raises(ProgramError, match="cannot be read back: ValueError: not here"):
        shared.run(g)


@pytest.mark.parametrize("where", ["function", "params", "items"])
def test_a_program_that_cannot_be_sent_is_named(shared, where):
    lock = threading.Lock()
    g = Graph("unsendable")
    if where == "function":
        g.add(lambda: lock, name="bad")
    elif where == "params":
        g.add(double, name="bad", params={"x": lock})
    else:
        g.map(double, [1, lock], name="bad")
    with pytest.raises(ProgramError, match=r"of 'bad'.* cannot be sent to a worker process: TypeError"):
        shared.run(g)


def test_sys_exit_in_a_task_is_an_error_of_the_task(shared):
    g = Graph("exit")
    g.add(sys.exit, name="leaves")
    with pytest.raises(TaskError, match="SystemExit"):
        shared.run(g)


def forks(value):
    child = os.fork()
    if child == 0:
        return "the child's"
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def forks_and_exits(value):
    child = os.fork()
    if child == 0:
        sys.exit(value)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_that_comes_back_from_a_task_ends(shared):
    g = Graph("forks")
    back = g.map(forks, [0], name="back")
    left = g.map(forks_and_exits, [0, 7], name="left")
    results = shared.run(g)
    assert (results[back], results[left]) == ([1], [0, 7])


def test_full_shared_memory_and_full_disk_fail_the_task(tmp_path):
    with opened(tmp_path) as session:

        def limited(n):
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            return np.ones(n)

        g = Graph("full")
        g.map(limited, [4 * MIB], name="full")
        with pytest.raises(DiskFullError, match="no room for"):
            session.run(g)


# ------------------------------------------------------------------------------------------------------------- memory


def test_more_than_the_budget_goes_to_disk_and_comes_back(tmp_path):
    with opened(tmp_path, budget=8 * MIB) as session:
        g = Graph("spill")
        big = g.map(lambda i: np.full(MIB // 4, i, dtype=np.float64), range(16), name="big")
        sums = g.map(lambda array: float(array.sum()), big, name="sums")
        keep = big.keep()
        results = session.run(g)
        assert results[sums] == [float(i * (MIB // 4)) for i in range(16)]
        assert session.store.stats().spilled > 0
        assert [float(array[0]) for array in results[keep]] == list(map(float, range(16)))


def test_tasks_wait_for_memory_that_is_reserved(tmp_path):
    with opened(tmp_path, budget=6 * MIB) as session:
        g = Graph("reserve")
        big = g.map(lambda i: np.full(MIB // 2, i, dtype=np.float64), range(6), name="big", output_bytes=4 * MIB)
        sums = g.map(lambda array: float(array.sum()), big, name="sums")
        assert session.run(g)[sums] == [float(i * (MIB // 2)) for i in range(6)]


# -------------------------------------------------------------------------------------------------------------- death


def test_a_worker_that_ends_itself_is_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with opened(tmp_path) as session:
        g = Graph("exits")
        n = g.map(exits, range(20), name="exits")
        run = session.submit(g)
        assert run.result(DEADLINE_S)[n] == list(range(20))
        assert any("its process ended with status 7" in line for line in run.story())
        eventually(lambda: len(session.executor.pids) == 2, "a second worker")
        assert max(session.executor.pids) >= 2


def test_killed_at_any_time_the_result_is_right(tmp_path, seed):
    rng = random.Random(seed)
    with opened(tmp_path) as session:
        g = Graph("killed")
        again = Retry(infrastructure=1000, crash=1000)
        arrays = g.map(slow_array, range(150), name="arrays", retry=again)
        tree = g.reduce(add_pairs, arrays, retry=again)
        run = session.submit(g)
        kills = 0
        while not run.wait(rng.random() * 0.15) and kills < 12:
            pids = list(session.executor.pids.values())
            if pids:
                kills += 1
                with suppress(ProcessLookupError):  # the one before has just ended it
                    os.kill(rng.choice(pids), rng.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM]))
        count, array = run.result(DEADLINE_S).value(tree)
        assert kills
        assert count == sum(range(150))
        assert set(array) == {sum(range(150))}


def test_all_workers_killed_while_idle(tmp_path):
    with opened(tmp_path) as session:
        g = Graph("before")
        n = g.map(own_pid, range(2))
        session.run(g)
        before = dict(session.executor.pids)
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: len(session.executor.pids) == 2 and not set(session.executor.pids) & set(before))
        g = Graph("after")
        n = g.map(double, range(5))
        assert session.run(g)[n] == [0, 2, 4, 6, 8]


def test_the_nursery_killed_is_started_again(tmp_path):
    with opened(tmp_path) as session:
        eventually(lambda: len(session.executor.pids) == 2)
        before = dict(session.executor.pids)
        g = Graph("nursery")
        n = g.map(slow_double, range(50))
        run = session.submit(g)
        os.kill(session.executor._nursery.process.pid, signal.SIGKILL)
        assert run.result(DEADLINE_S)[n] == [2 * x for x in range(50)]
        assert not set(session.executor.pids) & set(before)
        assert have_ended(*before.values())


def test_large_pages_outlive_the_process_that_made_them(tmp_path):
    with opened(tmp_path) as session:
        eventually(lambda: len(session.executor.pids) == 2)
        executor = session.executor
        executor._kill(executor._conns[0], "so that the nursery has answered all before")
        eventually(lambda: sorted(executor.pids) == [1, 2])
        folder = segments.folders(executor._shm)[1]
        if not os.path.islink(folder):
            pytest.skip("this system allows no file system with large pages")
        g = Graph("pages")
        sizes = (3 * MIB // 8, MIB // 8)
        made = g.map(ones, sizes).keep()
        results = session.run(g)
        cells = session._jobs[results._run.id].backend.columns[made.id].values
        assert [os.path.dirname(cell.location) == folder for cell in cells] == [True, False]
        before = set(executor.pids)
        os.kill(executor._nursery.process.pid, signal.SIGKILL)
        eventually(lambda: len(executor.pids) == 2 and not before & set(executor.pids))
        after = Graph("after")
        again = after.add(total, gather(after.map(ones, sizes)))
        assert session.run(after).value(again) == sum(sizes)
        assert [array.sum() for array in results[made]] == list(sizes)


def test_a_task_that_hangs_is_killed_at_its_timeout(tmp_path):
    with opened(tmp_path, grace_s=0.1) as session:
        g = Graph("hangs")
        g.map(time.sleep, [600], name="hangs", timeout_s=0.1)  # it needs no import, in which it could be told to stop
        with pytest.raises(TaskError, match="longer than its timeout"):
            session.run(g)
        eventually(lambda: len(session.executor.pids) == 2 and max(session.executor.pids) == 2)


def test_the_time_of_a_task_begins_when_its_process_is_there(tmp_path, monkeypatch):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "sitecustomize.py").write_text(f"open({str(gate)!r}).read()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    limit_s = 2.0
    with opened(tmp_path, workers=1, grace_s=0.0) as session:
        g = Graph("slow-start")
        n = g.map(abs, [-42], timeout_s=limit_s)
        run = session.submit(g)
        try:
            assert not run.wait(timeout_s=1.25 * limit_s), run.error()
        finally:
            gate.write_text("")
        assert run.result()[n] == [42]


def test_a_task_of_several_cores_waits_for_the_one_that_replaces_a_killed_worker(tmp_path):
    with opened(tmp_path) as session:
        g = Graph("wide")
        n = g.map(dies_once, [str(tmp_path / "once")], name="wide", resources=Resources(cpu=2))
        assert session.run(g)[n] == [5]


def test_a_stopped_process_is_killed_at_the_timeout(tmp_path):
    with opened(tmp_path, grace_s=0.1) as session:
        g = Graph("stopped")
        once = [str(tmp_path / "once")]
        n = g.map(stops_itself_once, once, name="stopped", timeout_s=2.0, retry=Retry(user=100))
        assert session.run(g)[n] == [5]


def test_cancel_runs_callbacks_and_returns(shared, tmp_path):
    def waits(ctx, inputs):
        stopped = threading.Event()
        ctx.on_cancel(stopped.set)
        Path(ctx.params["file"]).touch()
        stopped.wait(DEADLINE_S)

    g = Graph("cancel")
    g.task(waits, n=1, params={"file": str(tmp_path / "runs")})
    before = dict(shared.executor.pids)
    run = shared.submit(g)
    eventually((tmp_path / "runs").exists)
    run.cancel("enough")
    with pytest.raises(RunCancelledError, match="enough"):
        run.result(DEADLINE_S)
    assert shared.executor.pids.items() >= before.items(), "nobody had to be killed"


def test_children_of_a_killed_worker_are_killed_too(tmp_path):
    def parent(ctx, inputs):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        Path(ctx.params["file"]).write_text(str(child.pid))
        time.sleep(1000)

    file = tmp_path / "child"
    with opened(tmp_path, grace_s=0.05) as session:
        g = Graph("children")
        g.task(parent, n=1, params={"file": str(file)})
        run = session.submit(g)
        child = psutil.Process(int(eventually(lambda: file.exists() and file.read_text())))
        run.cancel()
        assert run.wait(DEADLINE_S)
        eventually(lambda: have_ended(child))


# ------------------------------------------------------------------------------------------------------------ scripts

SCRIPT = """
import os, sys, time
from pathlib import Path
import numpy as np
from weft.backends.processes import Processes
from weft.graph.builder import Graph, gather
from weft.runtime.session import EngineSession
from weft.store import segments
from weft.store.folders import RunFolders, shm_root
from weft.store.blocks import BlockManager

class Value:
    def __init__(self, x):
        self.x = x

def here(x):
    return Value(x + 1)

def read(value):
    return value.x

def long(x):
    Path(sys.argv[1], f"task-{os.getpid()}").touch()
    time.sleep(1000)

def main():
    print("main is run", flush=True)
    with RunFolders("script-" + str(os.getpid()), shm_root(), Path(sys.argv[1])) as run:
        store = BlockManager(1 << 30, shm=run.shm, spill=run.spill)
        with EngineSession(Processes(2, store, run.shm, spill=run.spill, grace_s=0.1), store) as session:
            BODY

main()
"""


@contextmanager
def script(tmp_path, body):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.replace("BODY", textwrap.indent(textwrap.dedent(body), " " * 12).strip()))
    source = str(Path(weft.model.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    argv = [sys.executable, path, tmp_path]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


LONG = """
graph = Graph("long")
graph.map(long, range(2))
session.run(graph)
"""


def of_script(process):
    return psutil.Process(process.pid).children(recursive=True)


def shm_folder(process):
    return user_root(shm_root()) / f"script-{process.pid}"


def test_functions_and_classes_of_main_without_a_guard(tmp_path):
    body = """
        graph = Graph("main")
        made = graph.map(here, range(3)).keep()
        got = graph.map(read, made)
        results = session.run(graph)
        print(results[got], {type(v) is Value for v in results[made]})
        """
    with script(tmp_path, body) as process:
        out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert out.splitlines() == ["main is run", "[1, 2, 3] {True}"]
    assert not shm_folder(process).exists()


def test_ctrl_c_leaves_nothing(tmp_path):
    with script(tmp_path, LONG) as process:
        eventually(lambda: len(list(tmp_path.glob("task-*"))) == 2, "two running tasks")
        children = of_script(process)
        assert len(children) >= 3
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (1, 130, -signal.SIGINT)
    assert have_ended(*children)
    assert not shm_folder(process).exists()


def test_kill_of_the_parent_ends_all_and_removes_its_shared_memory(tmp_path):
    with script(tmp_path, LONG) as process:
        eventually(lambda: len(list(tmp_path.glob("task-*"))) == 2, "two running tasks")
        children = of_script(process)
        assert len(children) >= 3
        process.kill()
        process.communicate(timeout=DEADLINE_S)
    eventually(lambda: have_ended(*children), "the end of all workers")
    eventually(lambda: not shm_folder(process).exists(), "the removal of the shared memory")


# -------------------------------------------------------------------------------------------------------- the cache


class Remembers:
    """A cache that notes what it is to keep, and in which process it was told."""

    def __init__(self):
        self.told = []

    def probe(self, shell, job, probe):
        raise AssertionError("nothing here has a cache key")

    def keep(self, recipe, started, spoilt):
        self.told.append((os.getpid(), recipe, started, spoilt))
        return "another run was faster" if spoilt == "" else spoilt


def has_itself_kept(ctx, inputs):
    return os.getpid(), ctx.keep_result({"step": ctx.index}, 12.5), ctx.keep_result(("again",), 13.0, "changed")


def test_a_task_in_a_worker_reaches_the_cache_of_its_job_in_the_owner(shared):
    g = Graph("kept")
    node = g.task(has_itself_kept, n=2).keep()
    cache = Remembers()
    run = shared.start(g, cache=cache)
    run.wait()
    for pid, *reasons in run.results()[node]:
        assert pid != os.getpid()
        assert reasons == ["another run was faster", "changed"]
    assert sorted(cache.told, key=lambda told: (told[3], str(told[1]))) == [
        (os.getpid(), {"step": 0}, 12.5, ""),
        (os.getpid(), {"step": 1}, 12.5, ""),
        (os.getpid(), ("again",), 13.0, "changed"),
        (os.getpid(), ("again",), 13.0, "changed"),
    ]


def test_a_task_of_a_job_without_a_cache_has_nothing_kept(shared):
    g = Graph("unkept")
    node = g.task(has_itself_kept, n=1).keep()
    assert shared.run(g).value(node)[1:] == ("", "")


# ------------------------------------------------------------------------------------------------- the front end


def asks_its_run(ctx, inputs):
    await_file(ctx.params["go"])
    try:
        ctx.ask_run("fail", ctx.index)
    except NotFoundError as error:
        return os.getpid(), ctx.ask_run("where", ctx.index), error.message
    return None


def await_file(path):
    eventually(Path(path).exists, path)


def answers(question, machine, run):
    """Answer as the front end of a run."""
    if question[0] == "fail":
        raise NotFoundError(f"no {question[1]}")
    return os.getpid(), question, machine.host


def test_a_task_in_a_worker_asks_the_front_end_of_its_run_in_the_owner(shared, tmp_path):
    g = Graph("asks")
    node = g.task(asks_its_run, n=2, params={"go": str(tmp_path / "go")}).keep()
    run = shared.submit(g)
    run.job.host = SimpleNamespace(answer=answers)
    (tmp_path / "go").touch()
    run.wait()
    for index, (pid, answer, error) in enumerate(run.results()[node]):
        assert pid != os.getpid()
        assert answer == (os.getpid(), ("where", index), "127.0.0.1")
        assert error == f"no {index}"


def stops_late(ctx, inputs):
    """Two tasks do not stop; the first one has said that it takes long."""
    folder = Path(ctx.params["folder"])
    if ctx.index == 0:
        ctx.stops_within(DEADLINE_S)
    (folder / f"pid-{ctx.index}").write_text(str(os.getpid()))
    await_file(folder / "go")
    (folder / f"ended-{ctx.index}").touch()


def test_a_task_that_said_so_may_take_longer_to_stop_than_others(shared, tmp_path):
    g = Graph("slow")
    g.task(stops_late, n=2, params={"folder": str(tmp_path)})
    run = shared.submit(g)
    eventually(lambda: all((tmp_path / f"pid-{at}").exists() for at in (0, 1)), "the tasks")
    killed = psutil.Process(int((tmp_path / "pid-1").read_text()))
    run.cancel()
    eventually(lambda: have_ended(killed), "the end of the other one")
    (tmp_path / "go").touch()
    run.wait()
    eventually((tmp_path / "ended-0").exists, "its end")
    assert not (tmp_path / "ended-1").exists()
