"""Bubbles that stream, on threads and across processes; services and their endpoints."""

from __future__ import annotations

import mmap
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import weft
from weft.backends.processes import Processes
from weft.backends.threads import Threads
from weft.graph.builder import Graph, InputSpec, gather, one_to_one, shuffle
from weft.graph.logical import OnFailure, Retry, Storage
from weft.model.errors import NotFoundError, TaskError
from weft.model.resources import Resources
from weft.runtime.session import EngineSession
from weft.store import segments
from weft.store.blocks import BlockManager
from weft.store.folders import RunFolders, shm_root

if TYPE_CHECKING:
    from weft.runtime.run import Results, Run

TIMEOUT_S = 180.0
MIB = 1 << 20
BOTH = pytest.mark.parametrize("backend", ["threads", "processes"])


def eventually(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true in {TIMEOUT_S} s"
        time.sleep(0.005)


@contextmanager
def opened(
    backend: str, tmp_path: Path, workers: int = 4, budget: int = 1 << 28, window: int | None = None
) -> Iterator[EngineSession]:
    """A session; when its jobs are over nothing may be left of what they streamed."""
    with RunFolders(f"streams-{os.getpid()}-{tmp_path.name}", shm_root(), tmp_path) as run:
        store = BlockManager(budget, shm=run.shm, spill=run.spill)
        made = (
            Threads(workers, store, grace_s=5, window=window)
            if backend == "threads"
            else Processes(workers, store, run.shm, spill=run.spill, grace_s=5, window=window)
        )
        with EngineSession(made, store) as session:
            yield session
            for job in list(session._jobs.values()):
                session.forget(job)
            eventually(lambda: store.stats().reserved == 0, "memory given back")
            assert store.stats().pinned_chunks == 0
            assert store.stats().disk == 0
            assert store.stats().shm == 0
            folders = [Path(folder) for folder in segments.folders(run.shm)]
            left = {path.name for folder in folders if folder.is_dir() for path in folder.iterdir()}
            assert left <= {"owner.lock", "recycled", segments.LARGE}
            assert list(run.spill.iterdir()) == []


def streamed(make: Callable[..., InputSpec], *args: Any, **options: Any) -> InputSpec:
    return make(*args, concurrent=True, storage=Storage.EPHEMERAL, **options)


def run(session: EngineSession, graph: Graph) -> Results:
    return session.run(graph, timeout_s=TIMEOUT_S)


def waiting(run: Run) -> bool:
    """Whether a writer of the run waits for room."""
    streams = run.job.backend._streams if run.job.backend is not None else None
    return streams is not None and any(source.wakes for source in list(streams._sources.values()))


class Tally:
    """A number that processes share."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(mmap.PAGESIZE))
        self.path = path

    def add(self) -> None:
        with self.path.open("r+b") as file:
            count = int.from_bytes(file.read(8), "little") + 1
            file.seek(0)
            file.write(count.to_bytes(8, "little"))

    @property
    def value(self) -> int:
        return int.from_bytes(self.path.read_bytes()[:8], "little")


def count_up(ctx: Any, inputs: Any) -> None:
    for number in range(100):
        ctx.out("count_up->add_up").write(0, number)


def add_up(ctx: Any, inputs: Any) -> int:
    return sum(inputs["count_up->add_up"])


@BOTH
def test_a_bubble_streams(backend: str, tmp_path: Path) -> None:
    graph = Graph("stream")
    source = graph.task(count_up)
    sink = graph.task(add_up, streamed(one_to_one, source))
    graph.bubble(source, sink)
    with opened(backend, tmp_path) as session:
        assert run(session, graph).value(sink) == 4950
        assert session.store.stats().spilled == 0


def twice(number: int) -> int:
    return 2 * number


@BOTH
@pytest.mark.parametrize("kept", [True, False])
def test_the_value_of_what_streams_to_all_is_there_if_it_is_kept(backend: str, kept: bool, tmp_path: Path) -> None:
    graph = Graph("stream")
    source = graph.map(twice, range(3), name="source")
    sink = graph.add(twice, streamed(one_to_one, source), name="sink")
    graph.bubble(source, sink)
    if kept:
        source.keep()
    with opened(backend, tmp_path, workers=6) as session:
        results = run(session, graph)
        assert results[sink] == [0, 4, 8]
        if kept:
            assert results[source] == [0, 2, 4]
        else:
            with pytest.raises(NotFoundError):
                results[source]


@BOTH
def test_a_region_starts_again_from_an_empty_stream(backend: str, tmp_path: Path) -> None:
    def fail_once(ctx: Any, inputs: Any) -> int:
        total = 0
        for number in inputs["count_up->add_up"]:
            total += number
            if ctx.attempt == 0 and number == 50:
                raise ValueError("half way")
        return total

    graph = Graph("stream")
    source = graph.task(count_up)
    sink = graph.task(fail_once, streamed(one_to_one, source), name="add_up", retry=Retry(user=1))
    graph.bubble(source, sink)
    with opened(backend, tmp_path) as session:
        assert run(session, graph).value(sink) == 4950


@pytest.mark.parametrize("backend", ["threads", "processes", "simulator"])
@pytest.mark.parametrize("make", [one_to_one, gather])
@pytest.mark.parametrize("on_failure", list(OnFailure))
def test_a_source_that_fails_ends_those_who_read_it(backend: str, make: Any, on_failure: OnFailure) -> None:
    def half(ctx: Any, inputs: Any) -> None:
        for number in range(10):
            if ctx.index == 1 and number == 5:
                raise ValueError("half way")
            ctx.out("half->add_up").write(0, number)

    def add(ctx: Any, inputs: Any) -> int:
        return sum(inputs["half->add_up"])

    graph = Graph("stream", on_failure=on_failure)
    source = graph.task(half, n=3)
    sink = graph.task(add, streamed(make, source), name="add_up")
    graph.bubble(source, sink)
    told = pytest.raises(TaskError, match=r"half\[1\] failed: ValueError: half way")
    with weft.Session(backend, workers=6, grace_s=0.1) as session, told:
        session.submit(graph).result(TIMEOUT_S)


@pytest.mark.parametrize("backend", ["threads", "processes", "simulator"])
def test_a_source_that_fails_once_is_read_from_its_beginning(backend: str) -> None:
    def half(ctx: Any, inputs: Any) -> None:
        for number in range(10):
            if ctx.attempt == 0 and number == 5:
                raise ValueError("half way")
            ctx.out("half->add_up").write(0, number)

    def add(ctx: Any, inputs: Any) -> int:
        return sum(inputs["half->add_up"])

    graph = Graph("stream")
    source = graph.task(half, retry=Retry(user=1))
    sink = graph.task(add, streamed(one_to_one, source), name="add_up")
    graph.bubble(source, sink)
    with weft.Session(backend, workers=2, grace_s=0.1) as session:
        assert session.submit(graph).result(TIMEOUT_S).value(sink) == 45


@BOTH
def test_a_writer_waits_for_its_reader(backend: str, tmp_path: Path) -> None:
    written, go = Tally(tmp_path / "written"), tmp_path / "go"
    n, window = 64, 4 * MIB

    def write(ctx: Any, inputs: Any) -> None:
        for at in range(n):
            ctx.out("write->read").write(0, np.full(MIB // 8, at, dtype=np.int64))
            written.add()

    def read(ctx: Any, inputs: Any) -> list[int]:
        while not go.exists():
            time.sleep(0.001)
        ahead = []
        for at, array in enumerate(inputs["write->read"]):
            assert array[0] == array[-1] == at
            ahead.append(written.value - at)
        return ahead

    graph = Graph("pressure")
    source = graph.task(write)
    sink = graph.task(read, streamed(one_to_one, source))
    graph.bubble(source, sink)
    with opened(backend, tmp_path, window=window) as session:
        going = session.submit(graph)
        try:
            eventually(lambda: waiting(going) or written.value == n, "the writer waits")
            assert written.value < n
        finally:
            go.touch()
        # The window, the block that fills it, one under way, one gathered, one being read.
        assert max(going.result(TIMEOUT_S).value(sink)) <= window // MIB + 4
        assert session.store.stats().spilled == 0


@BOTH
def test_ten_times_the_window_flows_without_a_disk(backend: str, tmp_path: Path) -> None:
    def make(ctx: Any, inputs: Any) -> None:
        for at in range(80):
            ctx.out("make->pass_on").write(0, np.full(MIB // 16, at, dtype=np.int64))

    def pass_on(ctx: Any, inputs: Any) -> None:
        for array in inputs["make->pass_on"]:
            ctx.out("pass_on->add").write(0, 2 * array)

    def add(arrays: list[Any]) -> int:
        return int(sum(int(array.sum()) for array in arrays))

    graph = Graph("flow")
    first = graph.task(make)
    second = graph.task(pass_on, streamed(one_to_one, first))
    last = graph.add(add, streamed(gather, second), n=1, name="add")
    graph.bubble(first, second, last)
    with opened(backend, tmp_path, window=4 * MIB, budget=64 * MIB) as session:
        assert run(session, graph).value(last) == 2 * sum(range(80)) * (MIB // 16)
        assert session.store.stats().spilled == 0


@BOTH
def test_a_diamond_spills_instead_of_hanging(backend: str, tmp_path: Path) -> None:
    """The probe side comes from the same source as the build side, which is read first and to its end."""

    def scan(ctx: Any, inputs: Any) -> None:
        for at in range(80):
            array = np.full(MIB // 16, at, dtype=np.int64)
            ctx.out("probe").write(0, array)
            ctx.out("scan->build").write(0, array)

    def build(ctx: Any, inputs: Any) -> None:
        for array in inputs["scan->build"]:
            ctx.out("build->join").write(0, int(array[0]))

    def join(ctx: Any, inputs: Any) -> int:
        built = set(inputs["build->join"].all())
        return sum(int(array[0]) for array in inputs["probe"] if int(array[-1]) in built)

    graph = Graph("diamond")
    source = graph.task(scan)
    table = graph.task(build, streamed(one_to_one, source))
    answer = graph.task(join, streamed(one_to_one, table), streamed(one_to_one, source, name="probe"))
    graph.bubble(source, table, answer)
    with opened(backend, tmp_path, window=2 * MIB, budget=16 * MIB) as session:
        assert run(session, graph).value(answer) == sum(range(80))
        assert session.store.stats().spilled > 0


@BOTH
def test_two_shuffles_in_a_row_do_not_hang(backend: str, tmp_path: Path) -> None:
    """Whoever reads the second takes its sources in order, while those are fed evenly by the first."""

    def deal(ctx: Any, inputs: Any) -> None:
        for at in range(60):
            ctx.out("deal->again").write(at % 2, np.full(MIB // 16, at, dtype=np.int64))

    def again(ctx: Any, inputs: Any) -> None:
        for array in inputs["deal->again"]:
            ctx.out("again->collect").write(int(array[0]) // 2 % 2, array)

    def collect(ctx: Any, inputs: Any) -> list[int]:
        return [int(array[0]) for array in inputs["again->collect"]]

    graph = Graph("shuffles")
    first = graph.task(deal, n=2)
    second = graph.task(again, streamed(shuffle, first, 2), n=2)
    last = graph.task(collect, streamed(shuffle, second, 2), n=2)
    graph.bubble(first, second, last)
    with opened(backend, tmp_path, workers=6, window=2 * MIB, budget=32 * MIB) as session:
        found = run(session, graph)[last]
    assert found == [
        [at for side in (0, 1) for _ in (0, 1) for at in range(60) if at % 4 == side + 2 * p] for p in (0, 1)
    ]


@BOTH
def test_a_streamed_shuffle_brings_everything_in_order(backend: str, tmp_path: Path) -> None:
    def deal(ctx: Any, inputs: Any) -> None:
        for at in range(1000):
            ctx.out("deal->collect").write(at % 3, (ctx.index, at))

    def collect(ctx: Any, inputs: Any) -> list[Any]:
        return list(inputs["deal->collect"])

    graph = Graph("shuffle")
    first = graph.task(deal, n=3)
    last = graph.task(collect, streamed(shuffle, first, 3), n=3)
    graph.bubble(first, last)
    with opened(backend, tmp_path, workers=6, window=3000) as session:
        found = run(session, graph)[last]
    assert found == [[(source, at) for source in range(3) for at in range(part, 1000, 3)] for part in range(3)]


@BOTH
def test_a_reader_that_has_enough_holds_nobody_up(backend: str, tmp_path: Path) -> None:
    def deal(ctx: Any, inputs: Any) -> None:
        for at in range(400):
            ctx.out("deal->look").write(at % 2, bytes(10_000))

    def look(ctx: Any, inputs: Any) -> int:
        batches = iter(inputs["deal->look"])
        return len(next(batches)) if ctx.index == 0 else sum(map(len, batches))

    graph = Graph("enough")
    first = graph.task(deal)
    last = graph.task(look, streamed(shuffle, first, 2), n=2)
    graph.bubble(first, last)
    with opened(backend, tmp_path, window=100_000) as session:
        assert run(session, graph)[last] == [10_000, 2_000_000]


@BOTH
def test_what_is_streamed_to_several_tasks_is_read_by_each(backend: str, tmp_path: Path) -> None:
    graph = Graph("copies")
    source = graph.task(count_up)
    sinks = graph.task(add_up, streamed(gather, source), n=3)
    graph.bubble(source, sinks)
    with opened(backend, tmp_path, window=400) as session:
        assert run(session, graph)[sinks] == [4950] * 3


@pytest.mark.parametrize("victim", ["write", "read"])
def test_a_killed_end_starts_the_region_again(victim: str, tmp_path: Path) -> None:
    dead = tmp_path / "dead"

    def die(name: str, at: int) -> None:
        if name == victim and at == 30 and not dead.exists():
            dead.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def write(ctx: Any, inputs: Any) -> None:
        for at in range(60):
            die("write", at)
            ctx.out("write->read").write(0, np.full(MIB // 8, at, dtype=np.int64))

    def read(ctx: Any, inputs: Any) -> int:
        total = 0
        for at, array in enumerate(inputs["write->read"]):
            die("read", at)
            total += int(array[-1])
        return total

    graph = Graph("killed")
    source = graph.task(write)
    sink = graph.task(read, streamed(one_to_one, source))
    graph.bubble(source, sink)
    with opened("processes", tmp_path, workers=2, window=4 * MIB) as session:
        going = session.submit(graph)
        assert going.result(TIMEOUT_S).value(sink) == sum(range(60))
        assert dead.exists()
        assert any("region restarts" in line for line in going.story(victim))


@BOTH
@pytest.mark.parametrize("spills", [False, True])
def test_a_cancel_frees_what_was_streamed(backend: str, spills: bool, tmp_path: Path) -> None:
    done = tmp_path / "done"

    def write(ctx: Any, inputs: Any) -> None:
        for at in range(40):
            for edge in ("near", "far") if spills else ("near",):
                ctx.out(edge).write(0, np.full(MIB // 8, at))
        done.touch()

    def never(ctx: Any, inputs: Any) -> None:
        while not ctx.cancelled():
            time.sleep(0.001)

    graph = Graph("cancel")
    source = graph.task(write)
    inputs = [streamed(one_to_one, source, name=name) for name in (("near", "far") if spills else ("near",))]
    sink = graph.task(never, *inputs)
    graph.bubble(source, sink)
    with opened(backend, tmp_path, workers=2, window=4 * MIB, budget=32 * MIB) as session:
        going = session.submit(graph)
        eventually(done.exists if spills else lambda: waiting(going), "the stream is full")
        assert (session.store.stats().disk > 0) == spills
        going.cancel("enough")
        assert going.wait(TIMEOUT_S)
        eventually(lambda: session.store.stats().used == 0, "nothing held")


def write_many(ctx: Any, inputs: Any) -> Any:
    for number in range(ctx.params["n"]):
        ctx.out("write->read").write(0, number)
    return ctx.params["returns"]


def read_batches(ctx: Any, inputs: Any) -> Any:
    return inputs["write->read"].all()


@pytest.fixture(scope="module", params=["threads", "processes"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineSession]:
    with opened(request.param, tmp_path_factory.mktemp("shared"), workers=3) as session:
        yield session


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("returns", [None, "extra"])
@pytest.mark.parametrize("make", [one_to_one, gather])
def test_streamed_and_stored_are_read_alike(
    shared: EngineSession, n: int, returns: Any, make: Callable[..., InputSpec]
) -> None:
    batches = list(range(n)) or ([returns] if returns else [])
    plain: Any = batches if make is gather else batches[0] if len(batches) == 1 else batches or None
    for live in (False, True):
        for plainly in (False, True):
            graph = Graph("alike")
            source = graph.task(write_many, name="write", params={"n": n, "returns": returns})
            edge = streamed(make, source) if live else make(source)
            if plainly:
                sink = graph.add(lambda values: values, edge, n=1, name="read").keep()
            else:
                sink = graph.task(read_batches, edge, n=1, name="read")
            if live:
                graph.bubble(source, sink)
            assert run(shared, graph).value(sink) == (plain if plainly else batches), (live, plainly)


def test_a_shuffle_to_which_nothing_is_written_brings_nothing(shared: EngineSession) -> None:
    def nothing(ctx: Any, inputs: Any) -> None: ...

    for live in (False, True):
        graph = Graph("nothing")
        source = graph.task(nothing)
        sink = graph.add(list, streamed(shuffle, source, 2) if live else shuffle(source, 2), name="sink").keep()
        if live:
            graph.bubble(source, sink)
        assert run(shared, graph)[sink] == [[], []]


def test_a_shuffle_needs_a_piece_for_each_partition(shared: EngineSession) -> None:
    for live in (False, True):
        graph = Graph("uneven")
        source = graph.add(lambda: [1, 2, 3], n=1, name="source")
        sink = graph.add(list, streamed(shuffle, source, 2) if live else shuffle(source, 2), name="sink")
        if live:
            graph.bubble(source, sink)
        with pytest.raises(TaskError, match="returned a list of 3, not one piece for each of 2 partitions"):
            run(shared, graph)


@BOTH
@pytest.mark.parametrize("live", [False, True], ids=["stored", "streamed"])
def test_what_is_written_where_no_reader_looks_is_an_error_of_the_task(
    backend: str, live: bool, tmp_path: Path
) -> None:
    def deal(ctx: Any, inputs: Any) -> None:
        ctx.out("make->use").write(ctx.params["to"], 1)

    pairs: list[tuple[Callable[..., InputSpec], tuple[int, ...], Any, str]] = [
        (shuffle, (2,), 2, "2 partitions"),
        (shuffle, (2,), -1, "2 partitions"),
        (shuffle, (2,), "x", "2 partitions"),
        (one_to_one, (), 1, "1 partition\n"),
    ]
    with opened(backend, tmp_path) as session:
        for make, args, to, there in pairs:
            graph = Graph("astray")
            source = graph.task(deal, name="make", params={"to": to})
            link = streamed(make, source, *args) if live else make(source, *args)
            sink = graph.task(lambda ctx, inputs: list(inputs["make->use"]), link, name="use")
            if live:
                graph.bubble(source, sink)
            wrong = f"make[0] writes to partition {to!r} of edge 'make->use', which has {there}"
            with pytest.raises(TaskError, match=re.escape(wrong)) as caught:
                run(session, graph)
            assert caught.value.task == "make[0]"


@BOTH
def test_a_partition_may_be_of_any_whole_type_and_anything_goes_where_nobody_reads(
    backend: str, tmp_path: Path
) -> None:
    def deal(ctx: Any, inputs: Any) -> None:
        for part in np.arange(2):
            ctx.out("make->use").write(part, int(part))
            ctx.out("make->nobody").write(part, 0)

    graph = Graph("dealt")
    source = graph.task(deal, name="make")
    sink = graph.add(list, shuffle(source, 2), name="use")
    graph.add(list, shuffle(source, 2), n=0, name="nobody")
    with opened(backend, tmp_path) as session:
        assert run(session, graph)[sink] == [[0], [1]]


def test_consumers_find_every_endpoint_of_a_service_which_ends_with_them(tmp_path: Path) -> None:
    stopped = threading.Semaphore(0)

    def serve(ctx: Any, inputs: Any) -> None:
        ctx.emit("endpoint", f"address-{ctx.index}")
        told = threading.Event()
        ctx.on_cancel(told.set)
        told.wait()
        stopped.release()

    def ask(ctx: Any, inputs: Any) -> list[str]:
        found: list[str] = ctx.endpoints("serve")
        return found

    graph = Graph("service")
    service = graph.service(serve, n=2)
    users = graph.task(ask, service, n=2)
    with opened("threads", tmp_path) as session:
        results = run(session, graph)
        assert results[users] == [["address-0", "address-1"]] * 2
        assert stopped.acquire(timeout=TIMEOUT_S)
        assert stopped.acquire(timeout=TIMEOUT_S)


@BOTH
def test_a_service_streams_what_it_has_before_it_goes_on(backend: str, tmp_path: Path) -> None:
    """A value that was written waits for no other: the service writes one and then nothing for ever."""

    def serve(ctx: Any, inputs: Any) -> None:
        for number in range(3):
            ctx.out("serve->ask").write(0, number)
        while not ctx.cancelled():
            time.sleep(0.001)

    def ask(ctx: Any, inputs: Any) -> list[int]:
        numbers = iter(inputs["serve->ask"])
        return [next(numbers) for _ in range(3)]

    graph = Graph("service")
    service = graph.service(serve, n=1)
    user = graph.task(ask, streamed(one_to_one, service), n=1)
    with opened(backend, tmp_path) as session:
        assert run(session, graph).value(user) == [0, 1, 2]


def count_up_to_double(ctx: Any, inputs: Any) -> None:
    for number in range(100):
        ctx.out("count_up->double").write(0, number)


@BOTH
def test_light_tasks_stream_with_the_others(backend: str, tmp_path: Path) -> None:
    """Tasks without a core run beside the workers, also where those are processes."""

    def double(ctx: Any, inputs: Any) -> None:
        for number in inputs["count_up->double"]:
            ctx.out("double->total").write(0, 2 * number)

    graph = Graph("light")
    source = graph.task(count_up_to_double)
    middle = graph.task(double, streamed(one_to_one, source, name="count_up->double"), resources=Resources(cpu=0))
    sink = graph.add(sum, streamed(gather, middle, name="double->total"), n=1, name="total")
    graph.bubble(source, middle, sink)
    with opened(backend, tmp_path, window=500) as session:
        assert run(session, graph).value(sink) == 9900


def test_workers_that_are_killed_at_random_leave_the_right_answer(seed: int, tmp_path: Path) -> None:
    def deal(ctx: Any, inputs: Any) -> None:
        for at in range(300):
            ctx.out("deal->collect").write(at % 2, (ctx.index, at, bytes(10_000)))
            time.sleep(0.0005)

    def collect(ctx: Any, inputs: Any) -> list[tuple[int, int]]:
        return [(source, at) for source, at, _ in inputs["deal->collect"]]

    rng = random.Random(seed)
    graph = Graph("killed")
    first = graph.task(deal, n=2, retry=Retry(infrastructure=100, crash=100))
    last = graph.task(collect, streamed(shuffle, first, 2), n=2, retry=Retry(infrastructure=100, crash=100))
    graph.bubble(first, last)
    with opened("processes", tmp_path, workers=4, window=100_000) as session:
        going = session.submit(graph)
        assert isinstance(session.executor, Processes)
        for _ in range(6):
            before = session.executor.pids
            going.wait(rng.uniform(0.0, 0.2))
            with suppress(ProcessLookupError):
                os.kill(rng.choice(sorted(before.values()) or [os.getpid()]), signal.SIGKILL if before else 0)
        found = going.result(TIMEOUT_S)[last]
    assert found == [[(source, at) for source in range(2) for at in range(part, 300, 2)] for part in range(2)]
