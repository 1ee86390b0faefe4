"""The cases on Weft, through what users call; what the master alone is asked goes to it directly."""

from __future__ import annotations

import mmap
import random
import resource
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import pairwise
from typing import Any

import weft
from benchmarks.bodies import (
    CHUNK_VALUES,
    PIECES,
    WIDE,
    Token,
    add,
    add_both,
    chunk,
    few_pieces,
    increment,
    merge,
    merge_two,
    noop,
    pieces,
    recur,
    token,
    total_of_foreign_chunks,
)
from benchmarks.harness import expect, peak_gb, started, timed

WORKERS = 2
CHUNKS = 64


@cache
def _session(backend: str) -> weft.Session:
    return weft.Session(backend=backend, workers=WORKERS)


def _run(
    backend: str,
    build: Callable[[], tuple[weft.Graph, weft.VertexHandle]],
    check: Callable[[list[Any]], None],
    *,
    rehearse: bool = False,
) -> dict[str, float]:
    """Time building a graph, running it and reading the values of the node that `build` returns."""
    session = _session(backend)

    def run() -> list[Any]:
        graph, node = build()
        return session.run(graph)[node]

    return timed(run, check, rehearse=rehearse)


# -------------------------------------------------------------------------------------------------------------- threads


def _independent() -> tuple[weft.Graph, weft.VertexHandle]:
    graph = weft.Graph()
    return graph, graph.map(noop, range(10_000))


def threads_10k() -> dict[str, float]:
    """10,000 independent tasks."""
    return _run("threads", _independent, lambda found: expect(found, list(range(10_000))))


def threads_stage() -> dict[str, float]:
    """Every one of 300 tasks reads a piece of every one of 300 others."""

    def build() -> tuple[weft.Graph, weft.VertexHandle]:
        graph = weft.Graph()
        rows = graph.map(pieces, range(300))
        return graph, graph.add(add_both, weft.shuffle(rows, PIECES))

    wanted = [sum(i * PIECES + p for i in range(300)) for p in range(PIECES)]
    return _run("threads", build, lambda found: expect(found, wanted))


def threads_chain() -> dict[str, float]:
    """1,000 vertices of one task in a row."""
    return _run("threads", chain_graph, lambda found: expect(found, [1000]))


def chain_graph() -> tuple[weft.Graph, weft.VertexHandle]:
    """Return 1,000 vertices of one task in a row, and the last."""
    graph = weft.Graph()
    node = graph.add(increment, items=[0])
    for _ in range(999):
        node = graph.add(increment, node)
    return graph, node


def tree_graph() -> tuple[weft.Graph, weft.VertexHandle]:
    """Return a binary tree over 8,192 leaves, and its root."""
    graph = weft.Graph()
    return graph, graph.reduce(add_both, graph.map(noop, range(8192)))


def threads_tree() -> dict[str, float]:
    """A binary tree over 8,192 leaves."""
    return _run("threads", tree_graph, lambda found: expect(found, [sum(range(8192))]))


def threads_tree_two_source() -> dict[str, float]:
    """A binary tree over 8,192 sums of two leaves each."""

    def build() -> tuple[weft.Graph, weft.VertexHandle]:
        graph = weft.Graph()
        left = graph.map(noop, range(8192), name="left")
        right = graph.map(noop, range(8192), name="right")
        return graph, graph.reduce(add_both, graph.add(add, left, right))

    return _run("threads", build, lambda found: expect(found, [2 * sum(range(8192))]))


def threads_tree_held() -> dict[str, int]:
    """Count the values that are alive at a time in either tree, those on a worker's hands included."""
    most = {}
    for two in (False, True):
        graph = weft.Graph()
        leaves = graph.map(token, range(8192), name="left")
        if two:
            leaves = graph.add(merge_two, leaves, graph.map(token, range(8192), name="right"))
        expect(Token.alive, 0)
        Token.most = 0
        root = graph.reduce(merge, leaves)
        run = _session("threads").submit(graph)
        expect(run.result().value(root).value, (1 + two) * sum(range(8192)))
        run.forget()
        most["two_source" if two else "tree"] = Token.most
    return most


# ------------------------------------------------------------------------------------------------------------ processes


def processes_10k() -> dict[str, float]:
    """10,000 independent tasks in processes."""
    return _run("processes", _independent, lambda found: expect(found, list(range(10_000))))


def processes_chunks() -> dict[str, float]:
    """Two tasks read all chunks and add up those that the other process made."""

    def build() -> tuple[weft.Graph, weft.VertexHandle]:
        graph = weft.Graph()
        made = graph.map(chunk, range(CHUNKS))
        return graph, graph.add(total_of_foreign_chunks, weft.gather(made), n=2)

    def check(found: list[tuple[int, int, float]]) -> None:
        expect(len({process for process, _, _ in found}), 2)
        expect(sum(chunks for _, chunks, _ in found), CHUNKS)
        expect(sum(total for _, _, total in found), float(sum(range(CHUNKS)) * (CHUNK_VALUES - 1)))

    return _run("processes", build, check, rehearse=True)


# --------------------------------------------------------------------------------------------------- the master alone

SIMULATED_STAGES = 10
SIMULATED_TASKS = 100_000
SIMULATED_WORKERS = 10_000


def simulator_1m() -> dict[str, float]:
    """Run 10 stages of 100,000 tasks, each stage reading all of the one before, on 10,000 simulated workers."""
    return run_simulated(SIMULATED_WORKERS, tick_s=0.1, track=False)


def run_simulated(workers: int, **options: Any) -> dict[str, float]:
    """Run these stages on simulated workers with the options of a simulator."""
    from weft.backends.simulator import Simulator
    from weft.engine.master import Master
    from weft.graph.validate import mark_results, validate
    from weft.runtime.job import JobRun
    from weft.runtime.loop import Loop

    draw = random.Random(20)
    seconds = [draw.expovariate(0.1) for _ in range(SIMULATED_TASKS)]
    begin = time.perf_counter()
    simulator = Simulator(workers, seconds=lambda _, index: seconds[index], **options)
    loop = Loop(simulator, simulator.clock)
    graph = weft.Graph()
    node = graph.add(noop, items=range(SIMULATED_TASKS))
    for _ in range(SIMULATED_STAGES - 1):
        node = graph.add(add_both, weft.shuffle(node))
    mark_results(graph)
    validate(graph)
    job = JobRun("simulated", graph, Master(graph, "simulated", simulator.tuning))
    loop.submit(job)
    simulator.run()
    took = time.perf_counter() - begin
    if job.crash is not None:
        raise job.crash
    expect(job.outcome is not None and job.outcome.state, "succeeded")
    core = job.master.core
    expect([stage.finished for stage in core.stages], [SIMULATED_TASKS] * SIMULATED_STAGES)
    return {"tasks_per_s": SIMULATED_STAGES * SIMULATED_TASKS / took, "gb": peak_gb()}


SHUFFLE_SOURCES = 100_000
SHUFFLE_PARTITIONS = 100_000
SHUFFLE_WORKERS = 100
SHUFFLE_TARGET_BYTES = 256 * 10**6


def shuffle_1e5x1e5() -> dict[str, float]:
    """Shuffle 100,000 tasks by 100,000 partitions, regroup by what they wrote, and route the readers.

    Every task reports, in one tick with those that end at the same time. A worker adds up what its tasks wrote for each
    partition and says so with its last report; all workers do so one after the other here, inside the time.
    """
    import numpy

    from weft.engine import patching
    from weft.engine.commands import Launch, single_launches
    from weft.engine.decisions import SetParallelism
    from weft.engine.events import Done, JobSubmitted, Offered, WorkerJoined
    from weft.engine.master import Master
    from weft.graph.rectangles import Rectangles
    from weft.graph.validate import mark_results, validate
    from weft.policies.shuffle import pack

    draw = numpy.random.default_rng(20)
    sizes = [draw.integers(0, 2_000, SHUFFLE_PARTITIONS) for _ in range(16)]
    begin = time.perf_counter()
    graph = weft.Graph()
    source = graph.add(noop, items=range(SHUFFLE_SOURCES), name="source")
    reader = graph.add(
        add_both, weft.shuffle(source, SHUFFLE_PARTITIONS), n=weft.Range(1, SHUFFLE_PARTITIONS), name="reader"
    )
    mark_results(graph)
    validate(graph)
    edge = graph.edges[0].id
    master = Master(graph)
    launches = master.handle(
        [
            *(WorkerJoined(0.0, worker, worker, f"node{worker}") for worker in range(SHUFFLE_WORKERS)),
            JobSubmitted(0.0),
            Offered(0.0, range(SHUFFLE_WORKERS)),
        ]
    )
    each = SHUFFLE_SOURCES // SHUFFLE_WORKERS
    ran: list[list[int]] = [[] for _ in range(SHUFFLE_WORKERS)]
    reports = 0
    while launches:
        events: list[Any] = []
        free = []
        reports += SHUFFLE_WORKERS
        now = reports / SHUFFLE_WORKERS
        for launch in single_launches(launches):
            assert isinstance(launch, Launch)
            tasks = ran[launch.worker]
            tasks.append(launch.lo)
            stats: tuple[Any, ...] = ()
            if len(tasks) < each:
                free.append(launch.worker)
            else:
                written = numpy.zeros(SHUFFLE_PARTITIONS, dtype=numpy.int64)
                for task in tasks:
                    written += sizes[task % 16]
                stats = ((edge, written),)
            events.append(Done(now, launch.lease, launch.hi, 1.0, 10**8, stats=stats))
        launches = master.handle([*events, Offered(now, free)])
    per_partition = master.core.stats[edge]
    bounds = pack(per_partition, SHUFFLE_TARGET_BYTES)
    readers = len(bounds) - 1
    router = Rectangles.from_groups(SHUFFLE_SOURCES, bounds)
    patching.apply(master.core, SetParallelism(reader.id, readers, ((edge, router),)))
    asked = [router.inputs(index) for index in range(readers)]
    took = time.perf_counter() - begin
    expect(reports, SHUFFLE_SOURCES)
    uses = numpy.bincount(numpy.arange(SHUFFLE_SOURCES) % 16, minlength=16)
    expect(per_partition.tolist(), (uses @ numpy.array(sizes)).tolist())
    expect(asked, [((0, SHUFFLE_SOURCES, *group),) for group in pairwise(bounds)])
    expect((bounds[0], bounds[-1]), (0, SHUFFLE_PARTITIONS))
    figures = {"seconds": took, "gb": peak_gb()}
    _finish_readers(master, readers, router)
    return figures


def _finish_readers(master: Any, readers: int, router: Any) -> None:
    """Run the readers, so that what was timed is known to be a state that a job can go on from."""
    from weft.engine.commands import Complete, Launch, single_launches
    from weft.engine.events import Done, Offered

    stage = master.core.by_id["reader"]
    expect((stage.n, stage.inputs[0].router is router), (readers, True))
    commands = master.handle([Offered(2e3, range(SHUFFLE_WORKERS))])
    while launches := [command for command in single_launches(commands) if isinstance(command, Launch)]:
        commands = []
        for launch in launches:
            commands += master.handle([Done(2e3, launch.lease, launch.hi, 1.0), Offered(2e3, (launch.worker,))])
    expect([command.state for command in commands if isinstance(command, Complete)], ["succeeded"])


def real_shuffle(backend: str) -> dict[str, float]:
    """Run a shuffle of 10,000 tasks by 10,000, with 3 pieces for each source, and read all sums."""
    wanted = [0] * WIDE
    for index in range(WIDE):
        for reader, piece in few_pieces(index).items():
            wanted[reader] += piece

    def build() -> tuple[weft.Graph, weft.VertexHandle]:
        graph = weft.Graph()
        return graph, graph.add(add_both, weft.shuffle(graph.map(few_pieces, range(WIDE))), n=WIDE)

    with weft.Session(backend=backend, workers=WORKERS) as session:
        session.run(_small()[0])  # the workers are there

        def run() -> list[Any]:
            graph, node = build()
            return session.run(graph)[node]

        figures = timed(run, lambda found: expect(found, wanted))
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
    return {**figures, "gb": peak_gb() + WORKERS * workers}


PATCHES = 10_000


def patches_10000() -> dict[str, float]:
    """Apply 10,000 patches of a control vertex, and run the task of each."""
    from weft.engine.commands import Acquire, Launch, Reply
    from weft.engine.events import Done, Granted, JobSubmitted, Offered, UserEvent, WorkerJoined
    from weft.engine.master import Master
    from weft.graph.logical import ONE_TO_ONE, Edge, Patch, Vertex
    from weft.graph.task import DECIDE
    from weft.graph.validate import mark_results, validate
    from weft.model.program import Program

    graph = weft.Graph()
    control = graph.service(noop, name="control")
    graph.add(noop, control, n=1, name="reader")  # the control vertex lives until its last reader has ended
    mark_results(graph)
    validate(graph)
    master = Master(graph)
    workers = [WorkerJoined(0.0, worker, 0) for worker in range(3)]
    (acquire,) = [c for c in master.handle([*workers, JobSubmitted(0.0)]) if isinstance(c, Acquire)]
    master.handle([Granted(0.0, acquire.request, (("control", 0, 0), ("reader", 1, 0)))])
    program = Program("builtins:len")
    patches = []
    for number in range(PATCHES):
        vertex = Vertex(f"control/{number}", program)
        edges = (Edge(f"control/{number - 1}", vertex.id, ONE_TO_ONE),) if number else ()
        patches.append(Patch((vertex,), edges))
    rejected = done = 0
    begin = time.perf_counter()
    for number, patch in enumerate(patches):
        asked = UserEvent(1.0, "control", 0, DECIDE, (number, "patch", "", patch, "more"))
        commands = master.handle([asked, Offered(1.0, (2,))])
        rejected += sum(bool(c.text) for c in commands if isinstance(c, Reply))
        for launch in [c for c in commands if isinstance(c, Launch)]:
            master.handle([Done(1.0, launch.lease, launch.hi, 0.001, 10)])
            done += 1
    took = time.perf_counter() - begin
    expect((rejected, done), (0, PATCHES))
    return {"seconds": took}


# --------------------------------------------------------------------------------------------------------- remote calls

SPAWNED = 100_000
DEPTH = 10_000


@cache
def _tensors(backend: str) -> Any:
    import weft.tensor

    return weft.tensor.Session(backend=backend, workers=WORKERS)


def spawn_1e5() -> dict[str, float]:
    """Spawn 100,000 calls, and one that joins their results."""
    import weft.remote

    def run() -> int:
        calls = [weft.remote.spawn(increment, (index,)) for index in range(SPAWNED)]
        return int(weft.remote.spawn(sum, (calls,)).fetch(_tensors("threads")))

    return timed(run, lambda found: expect(found, sum(range(SPAWNED + 1))))


def spawn_depth_1e4() -> dict[str, float]:
    """Recur 10,000 deep in worker processes, each level a spawned call."""
    import weft.remote

    def run() -> int:
        return int(weft.remote.spawn(recur, (DEPTH,)).fetch(_tensors("processes")))

    return timed(run, lambda found: expect(found, DEPTH))


# ------------------------------------------------------------------------------------------------------------ many jobs

SMALL_TASKS = 10
SMALL_JOBS = 1_000
FEW_LIVE, MANY_LIVE = 100, 10_000
LEAK_JOBS = 10_000


def _small() -> tuple[weft.Graph, weft.VertexHandle]:
    graph = weft.Graph()
    return graph, graph.map(noop, range(SMALL_TASKS))


def small_jobs(backend: str) -> dict[str, float]:
    """Run jobs of 10 tasks, of which 100 wait at a time."""
    session = _session(backend)
    runs: deque[tuple[weft.Run, weft.VertexHandle]] = deque()

    def end_first() -> None:
        run, node = runs.popleft()
        expect(run.result()[node], list(range(SMALL_TASKS)))

    begin = time.perf_counter()
    for _ in range(SMALL_JOBS):
        graph, node = _small()
        runs.append((session.submit(graph), node))
        if len(runs) == 100:
            end_first()
    while runs:
        end_first()
    return {"per_s": SMALL_JOBS / (time.perf_counter() - begin)}


def _live_jobs_s(live: int) -> float:
    """Submit jobs while all workers wait at a gate; return the seconds from its opening to the last result."""
    gate = threading.Event()
    with weft.Session(backend="threads", workers=WORKERS) as session:
        graph = weft.Graph()
        graph.map(lambda _: gate.wait(), range(WORKERS))
        blocked = session.submit(graph)
        while blocked.status != "running":
            time.sleep(0.001)
        submitted = [(session.submit(graph), node) for graph, node in (_small() for _ in range(live))]
        begin = time.perf_counter()
        gate.set()
        for run, node in submitted:
            expect(run.result()[node], list(range(SMALL_TASKS)))
        return time.perf_counter() - begin


def live_jobs() -> dict[str, float]:
    """Compare the jobs in a second with 10,000 and with 100 live jobs.

    Both run 10,000 jobs, and half of the few run after the many: what else the machine does slows both alike.
    """

    def few(times: int) -> float:
        return sum(_live_jobs_s(FEW_LIVE) for _ in range(times))

    half = MANY_LIVE // FEW_LIVE // 2
    few(10)  # to warm up
    before, many, after = few(half), _live_jobs_s(MANY_LIVE), few(half)
    return {"ratio": (before + after) / many}


def session_10k_jobs() -> dict[str, float]:
    """Return the growth of this process over 10,000 jobs of a session, after 500 to warm up."""
    with weft.Session(backend="threads", workers=WORKERS) as session:

        def run(jobs: int) -> float:
            for _ in range(jobs):
                graph, node = _small()
                expect(session.run(graph)[node], list(range(SMALL_TASKS)))
            with open("/proc/self/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * mmap.PAGESIZE / 1e6

        before = run(500)
        return {"mb": run(LEAK_JOBS) - before}


# ------------------------------------------------------------------------------------------------------------ a process

FIRST = """
import weft
graph = weft.Graph()
node = graph.add(int, items=["42"])
with weft.Session() as session:
    print(session.run(graph).value(node), flush=True)
"""


def first_result() -> dict[str, float]:
    """Start an interpreter, import Weft, run one task and print its value."""
    return started(FIRST, b"42\n")


CASES: Mapping[str, Callable[[], Mapping[str, float]]] = {
    "threads_10k": threads_10k,
    "threads_stage": threads_stage,
    "threads_chain": threads_chain,
    "threads_tree": threads_tree,
    "threads_tree_two_source": threads_tree_two_source,
    "threads_tree_held": threads_tree_held,
    "processes_10k": processes_10k,
    "processes_chunks": processes_chunks,
    "simulator_1m": simulator_1m,
    "shuffle_1e5x1e5": shuffle_1e5x1e5,
    "real_shuffle": partial(real_shuffle, "threads"),
    "real_shuffle_processes": partial(real_shuffle, "processes"),
    "patches_10000": patches_10000,
    "spawn_1e5": spawn_1e5,
    "spawn_depth_1e4": spawn_depth_1e4,
    "small_jobs": partial(small_jobs, "threads"),
    "small_jobs_processes": partial(small_jobs, "processes"),
    "live_jobs": live_jobs,
    "session_10k_jobs": session_10k_jobs,
    "first_result": first_result,
}
