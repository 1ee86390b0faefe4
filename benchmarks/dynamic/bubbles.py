"""What bubbles are worth: the 22 shapes of TPC-H in batch, in bubbles of 500 tasks and as one gang, on the simulator.

The engine decides as it does anywhere; only tasks and the time that they take are simulated. How long that is follows
from a `Setting`: constants of a cluster, each published or measured, none chosen for what comes out.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq

import weft
from benchmarks.dynamic.data import files
from benchmarks.dynamic.tpch import QUERIES, STORED, graph_of
from benchmarks.harness import expect
from weft import shuffle
from weft.backends.simulator import Simulator
from weft.engine.master import Master
from weft.engine.tuning import Tuning
from weft.graph.logical import Storage
from weft.graph.validate import mark_results, validate
from weft.policies.bubbles import apply_cut, batch, gang, greedy
from weft.runtime.job import JobRun
from weft.runtime.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.dynamic.tpch import Stage
    from weft.engine.core import Core
    from weft.graph.logical import LogicalGraph
    from weft.policies.bubbles import Cut

SIZE = 500
"""The most tasks of a bubble, and how many prewarmed workers it may have: as in the Fuxi DAG 2.0 document."""
SLOTS = 2_000
"""Enough for the widest query as one gang."""


class Setting(NamedTuple):
    """A cluster: seconds until a task runs on a worker that is started for it, and on one that waits for work; bytes
    per second that a task goes through, writes to or reads from a disk, and sends or receives.
    """

    cold_s: float
    warm_s: float
    work: float
    disk: float
    network: float


class Cost(NamedTuple):
    """What a run took: seconds, and slots times the seconds that they were held."""

    seconds: float
    slot_seconds: float


Costs = dict[str, Cost]
"""What each mode took: batch, bubble, gang."""

_WORK = sum(stage.work for query in QUERIES[:10] for stage in graph_of(query())[1].values()) / 1e12
"""Bytes that queries 1 to 10 go through, for each byte of data."""
_SPARK = _WORK * 100e9 / (2648 * 32)  # 100 GB in 2,648 s on 32 cores
_DAFT = _WORK * 100e9 / (785 * 32)
_DUCKDB = _WORK * 10e9 / (11.5 * 2)  # measured: 10 GB in 11.5 s on 2 cores
_TRIP = 0.0005

PUBLISHED: Mapping[str, Setting] = {
    "Spark, pods, disks of GraySort 2014": Setting(5, _TRIP, _SPARK, 618e9 / 6592, 1.25e9 / 32),
    "Daft, Borg, hard disks": Setting(25, _TRIP, _DAFT, 50e6, 100e6),
    "DuckDB, pods, disks of GraySort 2014": Setting(5, _TRIP, _DUCKDB, 618e9 / 6592, 1.25e9 / 32),
    "DuckDB, an idle node's pods, SSDs": Setting(2, _TRIP, _DUCKDB, 1e9, 100e6),
}
"""Settings from published figures; `docs/dynamic-graphs.md` names the source of each."""


# ------------------------------------------------------------------------------------------------------- this machine


@cache
def here() -> Setting:
    """Measure this machine: a worker's interpreter, a message and its answer, Arrow's kernels, a disk, a socket."""
    worker = [sys.executable, "-c", "import weft.worker.nursery, pyarrow.parquet, pyarrow.compute"]
    cold = min(_seconds(lambda: subprocess.run(worker, check=True)) for _ in range(3))
    tables = [pq.read_table(path, use_threads=False, partitioning=None) for path in files()[:20]]

    def work() -> None:
        for table in tables:
            table.filter(pc.less(table["amount"], 0.5)).group_by("part", use_threads=False).aggregate(
                [("amount", "sum")]
            )

    took = min(_seconds(work) for _ in range(3))
    return Setting(cold, _trip(), sum(table.nbytes for table in tables) / took, _disk(), _socket())


def _seconds(action: Any) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _trip(times: int = 2000) -> float:
    """Return the seconds of a byte to another thread and back."""
    mine, theirs = socket.socketpair()

    def answer() -> None:
        while theirs.recv(1):
            theirs.send(b"!")

    thread = threading.Thread(target=answer)
    thread.start()
    with theirs:
        with mine:
            took = _seconds(lambda: [(mine.send(b"?"), mine.recv(1)) for _ in range(times)])
        thread.join()
    return took / times


def _disk(size: int = 128 << 20) -> float:
    """Return bytes per second of writing a file, until it is on the disk, and of reading it: the mean of both."""
    data = os.urandom(size)
    with tempfile.TemporaryFile() as file:

        def write() -> None:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

        took = _seconds(write)
        file.seek(0)
        took += _seconds(file.read)
    return 2 * size / took


def _socket(size: int = 256 << 20) -> float:
    """Return bytes per second through a socket."""
    mine, theirs = socket.socketpair()
    piece = bytes(1 << 20)

    def fill() -> None:
        for _ in range(size >> 20):
            mine.sendall(piece)

    thread = threading.Thread(target=fill)

    def receive() -> None:
        thread.start()
        left = size
        while left:
            left -= len(theirs.recv(min(left, 1 << 20)))

    with mine, theirs:
        took = _seconds(receive)
        thread.join()
    return size / took


# ------------------------------------------------------------------------------------------------------ the simulation


class _Tasks:
    """How long each task takes.

    One that is in no bubble waits for a worker to be started. What is stored is written to a disk, and read from one
    through the network. In a bubble a task receives while others make what it receives: it does not end before them,
    and what it must have whole it goes through when that is complete, holding its slot meanwhile.
    """

    def __init__(self, setting: Setting, stages: Mapping[str, Stage]) -> None:
        self.setting = setting
        self.stages = stages
        self.core: Core | None = None
        self.span: dict[str, tuple[float, float]] = {}
        """When the tasks of a vertex in a bubble begin and end their work."""

    def __call__(self, vertex: str, _index: int) -> float:
        assert self.core is not None
        stage = self.core.by_id[vertex]
        if stage.bubble < 0:
            return self.setting.cold_s + self._own(vertex)
        now = self.core.now
        if vertex not in self.span:
            begin, least = now + self.setting.warm_s, 0.0
            for link in stage.inputs:
                if link.edge.storage is Storage.EPHEMERAL:
                    first, last = self.span[link.src.id]
                    begin = max(begin, last if link.edge.blocking else first)
                    least = max(least, last)
            self.span[vertex] = begin, max(begin + self._own(vertex), least)
        return self.span[vertex][1] - now

    def _own(self, vertex: str) -> float:
        """Return the seconds that a task is at work itself."""
        assert self.core is not None
        setting, shape, stage = self.setting, self.stages[vertex], self.core.by_id[vertex]
        streamed = sum(self.stages[k.src.id].written for k in stage.inputs if k.edge.storage is Storage.EPHEMERAL)
        stored = sum(self.stages[k.src.id].written for k in stage.inputs if k.edge.storage is not Storage.EPHEMERAL)
        written = shape.written if any(k.edge.storage is not Storage.EPHEMERAL for k in stage.outputs) else 0.0
        return (
            shape.work / setting.work
            + shape.table * STORED / setting.disk
            + stored / min(setting.disk, setting.network)
            + streamed / setting.network
            + written / setting.disk
        ) / shape.tasks


def simulate(graph: LogicalGraph, stages: Mapping[str, Stage], setting: Setting) -> Cost:
    """Run a graph on the simulator; AssertionError if it does not succeed."""
    tasks = _Tasks(setting, stages)
    area = last = 0.0
    held = 0

    def meter(_: object) -> None:
        nonlocal area, held, last
        if held or job.outcome is None:  # timers of bubbles go off later than that
            area += held * (simulator.clock.time - last)
            last = simulator.clock.time
        held = loop.pool.held.get(job.id, 0)

    tuning = Tuning(target_s=1e-9, cones=False)
    simulator = Simulator(SLOTS, seconds=tasks, tuning=tuning, check=meter, track=False)
    loop = Loop(simulator, simulator.clock)
    mark_results(graph)
    validate(graph)
    master = Master(graph, "query", tuning)
    tasks.core = master.core
    job = JobRun("query", graph, master)
    loop.submit(job)
    held = loop.pool.held[job.id]
    simulator.run()
    assert job.outcome is not None
    expect(job.outcome.state, "succeeded")
    return Cost(last, area)


def cuts(graph: LogicalGraph, size: int) -> dict[str, tuple[Cut, int]]:
    """Return how each mode cuts a graph, and how many prewarmed workers it has."""
    return {"batch": (batch(graph), 0), "bubble": (greedy(graph, size), size), "gang": (gang(graph), SLOTS)}


def modes(setting: Setting) -> Costs:
    """Return what all queries together take in each mode."""
    found: dict[str, list[Cost]] = {}
    for query in QUERIES:
        graph, stages = graph_of(query())
        for mode, (cut, prewarmed) in cuts(graph, SIZE).items():
            found.setdefault(mode, []).append(simulate(apply_cut(graph, cut, prewarmed=prewarmed), stages, setting))
    return {mode: Cost(*map(sum, zip(*costs, strict=True))) for mode, costs in found.items()}


def in_order(costs: Costs) -> bool:
    """Whether bubbles are between batch and a gang in time, and cheaper than a gang."""
    plain, bubble, whole = costs["batch"], costs["bubble"], costs["gang"]
    return plain.seconds > bubble.seconds >= whole.seconds and bubble.slot_seconds < whole.slot_seconds


def figures(costs: Costs) -> dict[str, float]:
    """Return the bubble's share of the gang's speed and of both others' resources, and its speed-up over batch."""
    plain, bubble, whole = costs["batch"], costs["bubble"], costs["gang"]
    return {
        "speedup": plain.seconds / bubble.seconds,
        "resources": bubble.slot_seconds / plain.slot_seconds,
        "gang_speed": whole.seconds / bubble.seconds,
        "gang_resources": bubble.slot_seconds / whole.slot_seconds,
    }


def simulated() -> dict[str, float]:
    """Return the figures of the median setting (by speed-up over batch), and in how many the order is as wanted."""
    found = [modes(setting) for setting in (*PUBLISHED.values(), here())]
    middle = sorted(map(figures, found), key=lambda each: each["speedup"])[len(found) // 2]
    return {**middle, "in_order": sum(map(in_order, found))}


# --------------------------------------------------------------------------------------------------------- a real run

FILES_READ = 120
ROUNDS = 3


def _scan(ctx: Any, inputs: Any) -> None:
    for path in files()[:FILES_READ]:
        ctx.out("scan->order").write(0, pq.read_table(path, use_threads=False, partitioning=None))


def _order(ctx: Any, inputs: Any) -> None:
    for table in inputs["scan->order"]:
        ctx.out("order->match").write(0, table.take(pc.sort_indices(table, [("amount", "ascending")])))


def _match(ctx: Any, inputs: Any) -> None:
    """Keep the rows whose part is among those of the first 1,000 cheapest rows."""
    for table in inputs["order->match"]:
        cheap = table.slice(0, 1000)
        ctx.out("match->digest").write(0, table.join(cheap, "part", join_type="left semi", use_threads=False))


def _digest(ctx: Any, inputs: Any) -> int:
    """Sort each table by part, and count its parts."""
    parts = 0
    for table in inputs["match->digest"]:
        ordered = table.take(pc.sort_indices(table, [("part", "ascending"), ("amount", "ascending")]))
        parts += ordered.group_by("part", use_threads=False).aggregate([("amount", "sum")]).num_rows
    return parts


def _pipeline() -> tuple[weft.Graph, weft.VertexHandle]:
    graph = weft.Graph("pipeline")
    node = graph.task(_scan, name="scan")
    for body in (_order, _match, _digest):
        node = graph.task(body, shuffle(node, 1), name=body.__name__.strip("_"))
    return graph, node


def real(session: weft.Session) -> dict[str, float]:
    """Run a pipeline of four stages over Parquet on `session`, which has a worker for each, in batch, bubbles of two
    and as one gang, the best of some rounds of each; return the figures, and whether the order is as wanted.
    """
    found: dict[str, list[Cost]] = {}
    answers = set()
    for _ in range(ROUNDS):
        graph, node = _pipeline()
        for mode, (cut, _) in cuts(graph, 2).items():
            cost, rows = _metered(session, apply_cut(graph, cut), node)
            found.setdefault(mode, []).append(cost)
            answers.add(rows)
    expect(len(answers), 1)
    costs = {mode: min(each) for mode, each in found.items()}
    return {"in_order": in_order(costs), **figures(costs)}


def _metered(session: weft.Session, graph: LogicalGraph, node: weft.VertexHandle) -> tuple[Cost, int]:
    begin = last = time.perf_counter()
    area, held = 0.0, 0

    def meter(job: JobRun, *_: Any) -> None:
        nonlocal area, held, last
        now = time.perf_counter()
        area += held * (now - last)
        last, held = now, session.loop.pool.held.get(job.id, 0)

    run = session.submit(graph, listeners=[meter])
    rows = run.result().value(node)
    seconds = time.perf_counter() - begin
    run.forget()
    return Cost(seconds, area), rows
