"""The cases: each runs the graph that changes and the one that does not, one after the other, on the same session."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from itertools import pairwise
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import weft
from benchmarks.dynamic.bubbles import real, simulated
from benchmarks.dynamic.data import FILES, GROUPS, ROWS, files
from benchmarks.dynamic.journal import journal
from benchmarks.harness import expect
from weft import Range, Trigger, after, gather, shuffle
from weft.backends.processes import Processes
from weft.backends.simulator import Faults
from weft.engine.decisions import SetParallelism
from weft.engine.policy import STRAGGLERS, InputView, View
from weft.engine.tuning import Tuning
from weft.graph.logical import Manager
from weft.policies.shuffle import ShuffleManager, even
from weft.policies.stragglers import Stragglers
from weft.testing.trial import run_graph

WORKERS = 2
KEYS = (3, 141, 592)
LIMIT = 5


@cache
def _session() -> weft.Session:
    pa.set_cpu_count(1)  # the tasks are what runs at a time, not threads inside of them
    return weft.Session(backend="threads", workers=WORKERS)


def close_session() -> None:
    """Close the session that the cases share, if one is open; the next case opens another."""
    if _session.cache_info().currsize:
        _session().close()
        _session.cache_clear()


def _timed(graph: weft.Graph, node: weft.VertexHandle) -> tuple[float, Any, Any]:
    """Run a graph; return its seconds, the value of `node` and the picture of the job."""
    begin = time.perf_counter()
    run = _session().submit(graph)
    value = run.result()[node]
    seconds = time.perf_counter() - begin
    view = {vertex.id: vertex for vertex in run.view().vertices}
    run.forget()
    return seconds, value, view


# --------------------------------------------------------------------------------------------- parallelism and skew


def _pieces(number: int) -> list[bytes]:
    return [b"%020d" % number] * 500


def _bytes(parts: list[bytes]) -> int:
    return sum(map(len, parts))


def parallelism() -> dict[str, float]:
    """1,000 maps, 500 partitions, 10 MB."""
    graph = weft.Graph("parallelism")
    maps = graph.map(_pieces, range(1000), name="maps")
    readers = graph.add(_bytes, shuffle(maps, 500), n=Range(1, 500), manager="shuffle", name="readers")
    _, read, view = _timed(graph, readers)
    expect(sum(read), 10_000_000)
    seen = InputView("maps->readers", "maps", 1000, 1000, True, 500, [20_000] * 500, 1000)
    picture = View(0.0, "readers", "configuring", -1, 0, 0, 0, 0, WORKERS, (seen,), {}, None)
    begin = time.perf_counter()
    (decision,), _ = ShuffleManager().decide(picture, None)
    took = time.perf_counter() - begin
    assert isinstance(decision, SetParallelism)
    expect(decision.n, view["readers"].n)
    return {"tasks": view["readers"].n, "decision_ms": 1000 * took}


def skew() -> dict[str, float]:
    """Group 100,000 lognormal sizes for 1,000 readers."""
    ratios = []
    for seed in range(5):
        draw = random.Random(seed)
        sizes = [int(draw.lognormvariate(10, 1)) for _ in range(100_000)]
        target = -(-sum(sizes) // 1000)
        expect(max(sizes) <= target, True)
        filled = [sum(sizes[lo:hi]) for lo, hi in pairwise(even(sizes, target))]
        expect(sum(filled), sum(sizes))
        ratios.append(max(filled) * len(filled) / sum(filled))
    return {"ratio": median(ratios)}


# ------------------------------------------------------------------------------------------------------------ pruning


def _customers(ctx: Any, inputs: Any) -> list[int]:
    ctx.emit("keys", list(KEYS))
    return list(KEYS)


def _scan(split: dict[str, Any]) -> pa.Table:
    """Read the cheap half of a file: rows of small amount."""
    table = pq.read_table(split["path"], use_threads=False, partitioning=None)
    return table.filter(pc.less(table["amount"], 0.5))


def _join(keys: list[int], tables: list[pa.Table]) -> tuple[int, float]:
    wanted = pa.array(keys, pa.int32())
    found = [table.filter(pc.is_in(table["key"], wanted)) for table in tables]
    return sum(table.num_rows for table in found), round(sum(pc.sum(t["amount"]).as_py() or 0.0 for t in found), 3)


def _joined(managed: Manager | None) -> tuple[weft.Graph, weft.VertexHandle]:
    graph = weft.Graph("pruning")
    small = graph.task(_customers, name="customers")
    splits = [{"key": key, "path": path} for key, path in enumerate(files())]
    options: dict[str, Any] = {"manager": managed} if managed else {}
    scan = graph.map(_scan, splits, after(small), name="scan", **options)
    return graph, graph.add(_join, small, gather(scan), name="join")


def pruning() -> dict[str, float]:
    """Join 1,000 files with 3 keys, with and without pruning."""
    files()
    pruned, answer, view = _timed(*_joined(Manager("pruning", {"key": "key"})))
    whole, wanted, _ = _timed(*_joined(None))
    expect(answer, wanted)
    return {"scan_tasks": view["scan"].finished, "speedup": whole / pruned}


# -------------------------------------------------------------------------------------------------------------- LIMIT


class _Reader:
    """Reads row groups, keeps those rows of small amount whose `part` is `wanted`, and adds up how long that took."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.seconds: list[float] = []

    def __call__(self, split: tuple[str, int]) -> list[int]:
        begin = time.perf_counter()
        path, group = split
        with pq.ParquetFile(path) as file:
            table = file.read_row_group(group, columns=["id", "part", "amount"], use_threads=False)
        matches = pc.and_(pc.equal(table["part"], self.wanted), pc.less(table["amount"], 0.25))
        found: list[int] = table.filter(matches)["id"][:LIMIT].to_pylist()
        self.seconds.append(time.perf_counter() - begin)
        return found


def _first(parts: list[list[int] | None]) -> list[int]:
    return [row for part in parts if part for row in part][:LIMIT]


def _limited(reader: Callable[..., Any], *, waves: bool) -> tuple[weft.Graph, weft.VertexHandle]:
    graph = weft.Graph("limit")
    splits = [(path, group) for path in files() for group in range(GROUPS)]
    if not waves:
        return graph, graph.add(_first, gather(graph.map(reader, splits, name="scan")), name="limit")
    scan = graph.map(reader, splits, manager=Manager("waves", {"rows": LIMIT}), name="scan")
    return graph, graph.add(_first, gather(scan, when=Trigger.EVENT, event="enough"), name="limit")


def limit() -> dict[str, float]:
    """LIMIT 5 over 4,000 row groups."""
    few, every = _Reader(7), _Reader(7)
    short, rows, view = _timed(*_limited(few, waves=True))
    long, all_rows, _ = _timed(*_limited(every, waves=False))
    expect([len(rows[0]), len(all_rows[0]), len(every.seconds)], [LIMIT, LIMIT, FILES * GROUPS])
    expect(len(few.seconds) >= view["scan"].finished, True)
    return {
        "started": len(few.seconds),
        "speedup": long / short,
        "saving": sum(every.seconds) / sum(few.seconds),
    }


def limit_worst() -> dict[str, float]:
    """The same where no row matches."""
    waves, rows, view = _timed(*_limited(_Reader(-1), waves=True))
    whole, _, _ = _timed(*_limited(_Reader(-1), waves=False))
    expect([rows, view["scan"].finished], [[[]], FILES * GROUPS])
    return {"ratio": waves / whole}


# -------------------------------------------------------------------------------------------------- conditional join

BIG = 50
PARTITIONS = 16
UNDER = 4 * 2**20
TURNS = 3
"""How often the better plan and the choice are run, twice each: they differ by less than a busy machine does."""


def _read(path: str) -> pa.Table:
    return pq.read_table(path, columns=["id", "part", "amount"], use_threads=False, partitioning=None)


def _small_side(split: tuple[str, int]) -> pa.Table:
    """Read the rows of a file whose id is a multiple of `step`, as (part, weight)."""
    path, step = split
    table = _read(path)
    table = table.filter(pc.equal(pc.subtract(table["id"], pc.multiply(pc.divide(table["id"], step), step)), 0))
    return table.select(["id", "amount"]).rename_columns(["id", "weight"])


def _by_id(table: pa.Table) -> list[pa.Table]:
    """Cut a table into partitions by id."""
    at = pc.subtract(table["id"], pc.multiply(pc.divide(table["id"], PARTITIONS), PARTITIONS))
    return [table.filter(pc.equal(at, part)) for part in range(PARTITIONS)]


def _match(big: pa.Table, small: pa.Table) -> tuple[int, float]:
    joined = big.join(small, "id", join_type="inner", use_threads=False)
    return joined.num_rows, float(pc.sum(joined["weight"]).as_py() or 0.0)


def _copied(big: pa.Table, small: list[pa.Table]) -> tuple[int, float]:
    return _match(big, pa.concat_tables(small))


def _shuffled(big: list[pa.Table], small: list[pa.Table]) -> tuple[int, float]:
    return _match(pa.concat_tables(big), pa.concat_tables(small))


def _total(*branches: list[tuple[int, float] | None] | None) -> int:
    return sum(found[0] for branch in branches for found in branch or () if found)


def _decide() -> str:
    return "shuffled"


def _planned(plan: str, step: int) -> tuple[weft.Graph, weft.VertexHandle]:
    """Return the join of 50 files with 50 others: `copied`, `shuffled`, or `choice` between both."""
    graph = weft.Graph("join")
    paths = files()
    small = graph.map(_small_side, [(path, step) for path in paths[:BIG]], name="small")
    big = graph.map(_read, paths[:BIG], name="big")
    waits: list[Any] = []
    if plan == "choice":
        params = {"choice": "plan", "small": {"small": "copied"}, "otherwise": "shuffled", "under": UNDER}
        which = graph.add(_decide, after(small), name="which", manager=Manager("conditional", params))
        waits = [after(which)]
    branches = []
    if plan in ("copied", "choice"):
        branches.append(graph.add(_copied, big, gather(small), *waits, name="copied"))
    if plan in ("shuffled", "choice"):
        left = graph.add(_by_id, big, *waits, name="big_parts")
        right = graph.add(_by_id, small, *waits, name="small_parts")
        branches.append(graph.add(_shuffled, shuffle(left, PARTITIONS), shuffle(right, PARTITIONS), name="shuffled"))
    if plan == "choice":
        graph.choice(which, name="plan", copied=branches[0], shuffled=[left, right, branches[1]])
    return graph, graph.add(_total, *map(gather, branches), name="total")


def join() -> dict[str, float]:
    """Both plans and the choice, over a side that is small and over one that is not."""
    over_wrong, over_best = [], []
    for step, right, wrong in ((1000, "copied", "shuffled"), (1, "shuffled", "copied")):
        times: dict[str, list[float]] = {right: [], "choice": [], wrong: []}
        for plan in (*(right, "choice", "choice", right) * TURNS, wrong):
            seconds, rows, view = _timed(*_planned(plan, step))
            expect(rows, [BIG * ROWS // step])
            if plan == "choice":
                expect([bool(view[branch].finished) for branch in (right, wrong)], [True, False])
            times[plan].append(seconds)
        choice = min(times["choice"])
        over_wrong.append(min(times[wrong]) / choice)
        over_best.append(median(ours / best for ours, best in zip(times["choice"], times[right], strict=True)))
    return {"over_shuffled": over_wrong[0], "over_copied": over_wrong[1], "over_best": max(over_best)}


# -------------------------------------------------------------------------------------------------------------- faults


def _simulated(seed: int, share: float) -> float:
    """Return the virtual seconds of a job on 100 workers of whose attempts `share` fail."""
    draw = random.Random(seed)
    seconds = [5 + draw.expovariate(0.2) for _ in range(1000)]
    graph = weft.Graph("faults")
    retry = weft.Retry(user=20)
    maps = graph.add(_decide, n=1000, name="maps", retry=retry)
    readers = graph.add(_decide, shuffle(maps, 500), name="readers", retry=retry)
    graph.add(_decide, shuffle(readers, 100), name="results", retry=retry)
    trial = run_graph(
        graph,
        checked=False,
        workers=100,
        seconds=lambda _, index: seconds[index],
        faults=Faults(seed=seed, user=share),
    )
    assert trial.job.outcome is not None
    expect(trial.job.outcome.state, "succeeded")
    return trial.simulator.clock.time


def faults() -> dict[str, float]:
    """Slow a simulated job down by attempts that fail."""
    found = {}
    for percent in (5, 10):
        ratios = [_simulated(seed, percent / 100) / _simulated(seed, 0.0) for seed in range(5)]
        found[str(percent)] = median(ratios)
    return found


# ------------------------------------------------------------------------------------------------------------- bubbles


def bubbles() -> dict[str, float]:
    """Simulate the shapes of TPC-H in batch, in bubbles and as one gang."""
    return simulated()


def bubbles_real() -> dict[str, float]:
    """Run a pipeline in all three ways; streams want a worker for each of its four stages."""
    pa.set_cpu_count(1)
    with weft.Session(backend="threads", workers=4) as session:
        return real(session)


# ---------------------------------------------------------------------------------------------------------- stragglers

HASHES = 40_000
RUNNING_S, STANDING_S = 0.01, 0.09


def _spread(graph: weft.Graph, tasks: int) -> weft.VertexHandle:
    return graph.add(sum, gather(graph.map(_hashed, range(tasks), name="tasks")), name="total", keep=True)


def _hashed(number: int) -> int:
    """Hash for some tens of milliseconds."""
    text = b"%d" % number
    for _ in range(HASHES):
        text = sha256(text).digest() * 16
    return number


def straggler_simulated() -> dict[str, float]:
    """One of 16 simulated workers is ten times slower."""
    found = []
    for slow in (1.0, 0.1):
        graph = weft.Graph("stragglers")
        _spread(graph, 320)
        trial = run_graph(
            graph,
            checked=False,
            managers={STRAGGLERS: Stragglers},
            tuning=Tuning(target_s=0.5, backups=True),
            workers=16,
            speeds=[slow] + [1.0] * 15,
            seconds=1.0,
        )
        assert trial.job.outcome is not None
        expect(trial.job.outcome.state, "succeeded")
        found.append(trial.job.master.core.now)
    return {"ratio": found[1] / found[0]}


@contextmanager
def _slowed(pid: int) -> Iterator[None]:
    """Have a process stand still for nine tenths of the time."""
    over = threading.Event()

    def hold_up() -> None:
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            over.wait(STANDING_S)
            os.kill(pid, signal.SIGCONT)
            over.wait(RUNNING_S)

    thread = threading.Thread(target=hold_up)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def straggler_processes() -> dict[str, float]:
    """One of 4 worker processes is ten times slower."""
    with weft.Session("processes", workers=4, grace_s=60.0) as session:
        executor = session.executor
        assert isinstance(executor, Processes)

        def seconds() -> float:
            graph = weft.Graph("stragglers")
            total = _spread(graph, 120)
            begin = time.perf_counter()
            expect(session.run(graph, progress=False).value(total), sum(range(120)))
            return time.perf_counter() - begin

        seconds()  # the workers are born and have imported what they need
        usual = seconds()
        with _slowed(executor.pids[0]):
            slowed = seconds()
    return {"ratio": slowed / usual}


_ALL = (
    *(parallelism, skew, pruning, limit, limit_worst, join, faults, bubbles, bubbles_real, journal),
    *(straggler_simulated, straggler_processes),
)
CASES = {case.__name__: case for case in _ALL}
