"""The cases on Weft, through `weft.tensor`, on two threads, and some on two worker processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np

import weft.tensor as wt
from benchmarks.harness import timed
from benchmarks.tensors.ways import Check, Run, Way, near, peak
from weft.model.errors import TaskError

N = 100_000_000
CHUNK = 10_000_000
ROWS, COLUMNS = 20_000, 5_000
SIDE = 4_000
RESIDENT = 40_000_000


@cache
def _session(backend: str) -> wt.Session:
    return wt.Session(backend=backend, workers=2)


def _timed(backend: str, run: Run, check: Check) -> dict[str, float]:
    _session(backend).as_default()
    return timed(run, check, rehearse=True)


def _peak(run: Run, check: Check) -> dict[str, float]:
    _session("threads").as_default()
    return peak(run, check)


THREADS = Way(partial(_timed, "threads"), wt.execute)
PROCESSES = Way(partial(_timed, "processes"), wt.execute)
PEAK = Way(_peak, wt.fetch)


def ewise(way: Way) -> dict[str, float]:
    """Three random vectors, made on the way."""

    def run() -> float:
        rng = wt.random.default_rng(1)
        a, b, c = (rng.random(N, chunk_size=CHUNK) for _ in range(3))
        return float(((a + b) * c).sum())

    return way.measure(run, near(N / 2, 1e-3 * N))


def rechunk(way: Way) -> dict[str, float]:
    """Rows to columns."""

    def run() -> float:
        x = wt.random.default_rng(1).random((ROWS, COLUMNS), chunk_size=(1_000, COLUMNS))
        return float(x.rechunk((ROWS, 250)).sum())

    return way.measure(run, near(ROWS * COLUMNS / 2, 1e-3 * ROWS * COLUMNS))


def cumsum(way: Way) -> dict[str, float]:
    """Running sums."""

    def run() -> float:
        x = wt.random.default_rng(1).random(N, chunk_size=CHUNK)
        return float(x.cumsum()[-1])

    return way.measure(run, near(N / 2, 1e-3 * N))


def transpose_sum(way: Way) -> dict[str, float]:
    """A transpose that is summed."""

    def run() -> float:
        x = wt.random.default_rng(1).random((ROWS, COLUMNS), chunk_size=(2_000, COLUMNS))
        return float((x.T + 1.0).sum())

    return way.measure(run, near(1.5 * ROWS * COLUMNS, 1e-3 * ROWS * COLUMNS))


TALL = (1_000_000, 50)


def _tall() -> wt.Tensor:
    return wt.random.default_rng(1).random(TALL, chunk_size=(TALL[0] // 10, TALL[1]))


def qr(way: Way) -> dict[str, float]:
    """Both factors of a tall matrix."""

    def run() -> Any:
        return way.hold(*wt.linalg.qr(_tall()))

    def check(found: Any) -> None:
        near(1.0, 1e-9)(found[0][:, 0] @ found[0][:, 0])

    return way.measure(run, check)


def svd(way: Way) -> dict[str, float]:
    """All three factors of a tall matrix."""

    def run() -> Any:
        return way.hold(*wt.linalg.svd(_tall(), full_matrices=False))

    def check(found: Any) -> None:
        near(1.0, 1e-9)(found[0][:, 0] @ found[0][:, 0])

    return way.measure(run, check)


def ata(way: Way) -> dict[str, float]:
    """A tall matrix, transposed, by itself."""

    def run() -> Any:
        x = _tall()
        return (x.T @ x).fetch(keep=False)

    return way.measure(run, lambda found: near(TALL[0] / 3, 1e-2 * TALL[0])(found[7, 7]))


@cache
def _square() -> tuple[np.ndarray[Any, Any], wt.Tensor]:
    x = np.random.default_rng(1).random((SIDE, SIDE))
    return x, wt.from_array(x, 1_000)


def matmul_case(way: Way) -> dict[str, float]:
    """A matrix by itself."""
    x, ours = _square()

    def check(found: Any) -> None:
        near(float(x[7] @ x[:, 9]), 1e-6)(found[7, 9])

    return way.measure(lambda: (ours @ ours).fetch(keep=False), check)


@cache
def _resident() -> tuple[np.ndarray[Any, Any], ...]:
    rng = np.random.default_rng(1)
    return tuple(rng.random(RESIDENT) + 0.5 for _ in range(3))


def fused_e1(way: Way) -> dict[str, float]:
    """Cheap arithmetic on arrays in memory."""
    a, b, c = (wt.from_array(x) for x in _resident())

    def run() -> float:
        return float(((a + b) * c - a / b).sum())

    # E[(a + b) c - a / b] with all even on [0.5, 1.5): 2 - ln(3).
    return way.measure(run, near(RESIDENT * (2 - math.log(3)), 1e-3 * RESIDENT))


def fused_e3(way: Way) -> dict[str, float]:
    """Transcendental functions on arrays in memory."""
    a, b, c = (wt.from_array(x) for x in _resident())

    def run() -> float:
        return float((wt.sin(a) * wt.exp(b) + wt.cos(c) * wt.log(b)).sum())

    mean_sin, mean_exp = math.cos(0.5) - math.cos(1.5), math.exp(1.5) - math.exp(0.5)
    mean_cos = math.sin(1.5) - math.sin(0.5)
    mean_log = 1.5 * math.log(1.5) - 0.5 * math.log(0.5) - 1
    return way.measure(run, near(RESIDENT * (mean_sin * mean_exp + mean_cos * mean_log), 1e-3 * RESIDENT))


GRID = 6_000


def five_points(x: Any) -> Any:
    """The mean of each element and its four neighbours; at the ends of a chunk, which are cut off, any number."""
    made = x.copy()
    inner = made[1:-1, 1:-1]
    for other in (x[:-2, 1:-1], x[2:, 1:-1], x[1:-1, :-2], x[1:-1, 2:]):
        inner += other
    inner /= 5
    return made


@cache
def _grid() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).random((GRID, GRID))


def map_overlap(way: Way) -> dict[str, float]:
    """A function of windows over an array in memory."""
    x = wt.from_array(_grid(), 500)

    def run() -> float:
        made = wt.map_overlap(five_points, x, depth=1, boundary="reflect", dtype=np.float64)
        return float(made.sum())

    return way.measure(run, near(float(_grid().sum()), 1e-2 * GRID))


@cache
def _scattered() -> tuple[Any, Any]:
    from scipy.sparse import csr_array

    n = 10**6
    rng = np.random.default_rng(1)
    columns = np.sort(rng.integers(0, n, (n, 10)), axis=1).ravel()
    return csr_array((rng.random(10 * n), columns, np.arange(0, 10 * n + 1, 10)), shape=(n, n)), rng.random(n)


def sparse_matvec(way: Way) -> dict[str, float]:
    """A sparse matrix by a vector."""
    matrix, x = _scattered()
    wanted = float((matrix @ x).sum())
    ours = wt.asarray(matrix)
    return way.measure(
        lambda: (ours @ x).fetch(keep=False), lambda found: near(wanted, 1e-6 * abs(wanted))(found.sum())
    )


_began: list[float] = []


def _tell(chunk: Any) -> Any:
    _began.append(time.perf_counter())
    raise RuntimeError("that was all")


def graph_1e6_chunks() -> dict[str, float]:
    """From the call to the first chunk, whose task notes the time and fails, so that the others are not run."""
    session = _session("threads")
    _began.clear()
    begin = time.perf_counter()
    x = wt.map_chunk(wt.ones(1_000_000, chunk_size=1), _tell, dtype=np.float64)
    total = ((x + 1) * 2 - x).sum()
    with suppress(TaskError):
        total.execute(session)
    return {"seconds": _began[0] - begin}


def chunk_overhead() -> dict[str, float]:
    """Many tiny chunks."""
    n = 50_000

    def run() -> float:
        x = wt.ones(n, chunk_size=1)
        return float(((x + 1) * 2 - x).sum())

    return {"chunk_s": THREADS.measure(run, near(3.0 * n, 0.0))["seconds"] / n}


DRAWN: Mapping[str, Callable[[Way], dict[str, float]]] = {
    "ewise": ewise,
    "rechunk": rechunk,
    "cumsum": cumsum,
    "transpose_sum": transpose_sum,
    "qr": qr,
    "svd": svd,
    "ata": ata,
}
"""The cases on numbers that are drawn on the way."""
GIVEN: Mapping[str, Callable[[Way], dict[str, float]]] = {
    "matmul": matmul_case,
    "fused_e1": fused_e1,
    "fused_e3": fused_e3,
}
"""Those on arrays in memory, which belong to the process that measures."""

CASES: Mapping[str, Callable[[], Mapping[str, float]]] = {
    **{name: partial(case, THREADS) for name, case in {**DRAWN, **GIVEN}.items()},
    "map_overlap": partial(map_overlap, THREADS),
    "sparse_matvec": partial(sparse_matvec, THREADS),
    "graph_1e6_chunks": graph_1e6_chunks,
    "chunk_overhead": chunk_overhead,
    **{f"peak_{name}": partial(case, PEAK) for name, case in {**DRAWN, **GIVEN}.items()},
    **{f"processes_{name}": partial(case, PROCESSES) for name, case in {**DRAWN, **GIVEN}.items()},
}
