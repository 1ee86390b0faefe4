"""The cases on dask.array, on two threads. `peer_distributed` has them on two processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import count
from typing import Any

import dask
import dask.array as da
import numpy as np

from benchmarks.harness import timed
from benchmarks.tensors.ways import Check, Run, Way, near, peak

N = 100_000_000
CHUNK = 10_000_000
ROWS, COLUMNS = 20_000, 5_000
SIDE = 4_000
RESIDENT = 40_000_000


def _timed(run: Run, check: Check) -> dict[str, float]:
    with dask.config.set(scheduler="threads", num_workers=2):
        return timed(run, check, rehearse=True)


def _peak(run: Run, check: Check) -> dict[str, float]:
    with dask.config.set(scheduler="threads", num_workers=2):
        return peak(run, check)


def ewise(way: Way) -> dict[str, float]:
    """Three random vectors, made on the way."""

    def run() -> float:
        rng = da.random.default_rng(1)
        a, b, c = (rng.random(N, chunks=CHUNK) for _ in range(3))
        return float(((a + b) * c).sum().compute())

    return way.measure(run, near(N / 2, 1e-3 * N))


def rechunk(way: Way) -> dict[str, float]:
    """Rows to columns."""

    def run() -> float:
        x = da.random.default_rng(1).random((ROWS, COLUMNS), chunks=(1_000, COLUMNS))
        return float(x.rechunk((ROWS, 250)).sum().compute())

    return way.measure(run, near(ROWS * COLUMNS / 2, 1e-3 * ROWS * COLUMNS))


def cumsum(way: Way) -> dict[str, float]:
    """Running sums."""

    def run() -> float:
        return float(da.random.default_rng(1).random(N, chunks=CHUNK).cumsum(axis=0)[-1].compute())

    return way.measure(run, near(N / 2, 1e-3 * N))


def transpose_sum(way: Way) -> dict[str, float]:
    """A transpose that is summed."""

    def run() -> float:
        x = da.random.default_rng(1).random((ROWS, COLUMNS), chunks=(2_000, COLUMNS))
        return float((x.T + 1.0).sum().compute())

    return way.measure(run, near(1.5 * ROWS * COLUMNS, 1e-3 * ROWS * COLUMNS))


TALL = (1_000_000, 50)


_seeds = count(1)


def _tall() -> da.Array:
    """Return a matrix that no scheduler has a result of yet."""
    return da.random.default_rng(next(_seeds)).random(TALL, chunks=(TALL[0] // 10, TALL[1]))


def _one_is_the_length(found: Any) -> None:
    near(1.0, 1e-9)(found[0][:, 0] @ found[0][:, 0])


def qr(way: Way) -> dict[str, float]:
    """Both factors of a tall matrix."""
    return way.measure(lambda: way.hold(*da.linalg.qr(_tall())), _one_is_the_length)


def svd(way: Way) -> dict[str, float]:
    """All three factors of a tall matrix."""
    return way.measure(lambda: way.hold(*da.linalg.svd(_tall())), _one_is_the_length)


def ata(way: Way) -> dict[str, float]:
    """A tall matrix, transposed, by itself."""

    def run() -> float:
        x = _tall()
        return float((x.T @ x).compute()[7, 7])

    return way.measure(run, near(TALL[0] / 3, 1e-2 * TALL[0]))


@cache
def _square() -> Any:
    return np.random.default_rng(1).random((SIDE, SIDE))


def matmul(way: Way) -> dict[str, float]:
    """A matrix by itself."""
    x = _square()
    ours = way.given(da.from_array(x, 1_000))
    return way.measure(lambda: (ours @ ours).compute(), lambda found: near(float(x[7] @ x[:, 9]), 1e-6)(found[7, 9]))


@cache
def _resident() -> tuple[Any, ...]:
    rng = np.random.default_rng(1)
    return tuple([rng.random(RESIDENT) + 0.5 for _ in range(3)])


def _finite(found: Any) -> None:
    if not np.isfinite(found):
        raise AssertionError("a wrong result")


def fused_e1(way: Way) -> dict[str, float]:
    """Cheap arithmetic on arrays in memory."""
    a, b, c = (way.given(da.from_array(x)) for x in _resident())
    return way.measure(lambda: ((a + b) * c - a / b).sum().compute(), _finite)


def fused_e3(way: Way) -> dict[str, float]:
    """Transcendental functions on arrays in memory."""
    a, b, c = (way.given(da.from_array(x)) for x in _resident())
    return way.measure(lambda: (da.sin(a) * da.exp(b) + da.cos(c) * da.log(b)).sum().compute(), _finite)


GRID = 6_000


def five_points(x: Any) -> Any:
    """The mean of each element and its four neighbours; at the ends of a chunk, which are cut off, any number."""
    made = x.copy()
    inner = made[1:-1, 1:-1]
    for other in (x[:-2, 1:-1], x[2:, 1:-1], x[1:-1, :-2], x[1:-1, 2:]):
        inner += other
    inner /= 5
    return made


def map_overlap(way: Way) -> dict[str, float]:
    """A function of windows over an array in memory."""
    values = np.random.default_rng(1).random((GRID, GRID))
    x = way.given(da.from_array(values, 500))

    def run() -> float:
        made = da.map_overlap(five_points, x, depth=1, boundary="reflect", dtype=np.float64)
        return float(made.sum().compute())

    return way.measure(run, near(float(values.sum()), 1e-2 * GRID))


def chunk_overhead() -> dict[str, float]:
    """Many tiny chunks."""
    n = 5_000

    def run() -> float:
        x = da.ones(n, chunks=1)
        return float(((x + 1) * 2 - x).sum().compute())

    return {"chunk_s": THREADS.measure(run, near(3.0 * n, 0.0))["seconds"] / n}


THREADS = Way(_timed, dask.compute)
PEAK = Way(_peak, dask.compute)

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
GIVEN: Mapping[str, Callable[[Way], dict[str, float]]] = {"matmul": matmul, "fused_e1": fused_e1, "fused_e3": fused_e3}
"""Those on arrays in memory."""

CASES: Mapping[str, Callable[[], Mapping[str, float]]] = {
    **{name: partial(case, THREADS) for name, case in DRAWN.items()},
    **{f"peak_{name}": partial(case, PEAK) for name, case in {**DRAWN, **GIVEN}.items()},
    "chunk_overhead": chunk_overhead,
    "map_overlap": partial(map_overlap, THREADS),
}
