"""The cases on Weft, through `weft.tensor`, on two threads."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

import weft.tensor as wt
from benchmarks.harness import timed
from weft.model.errors import TaskError

N = 100_000_000
CHUNK = 10_000_000
ROWS, COLUMNS = 20_000, 5_000
SIDE = 4_000
RESIDENT = 40_000_000


@cache
def _session() -> wt.Session:
    return wt.Session(workers=2).as_default()


def near(wanted: float, within: float) -> Callable[[Any], None]:
    """Return a check that a number is as far from `wanted` as `within` at most."""

    def check(found: Any) -> None:
        if not abs(float(found) - wanted) <= within:
            raise AssertionError(f"a wrong result: {found}, not {wanted} within {within}")

    return check


def _timed(run: Callable[[], Any], check: Callable[[Any], None]) -> dict[str, float]:
    _session()
    return timed(run, check, rehearse=True)


def ewise() -> dict[str, float]:
    """Three random vectors, made on the way."""

    def run() -> float:
        rng = wt.random.default_rng(1)
        a, b, c = (rng.random(N, chunk_size=CHUNK) for _ in range(3))
        return float(((a + b) * c).sum())

    return _timed(run, near(N / 2, 1e-3 * N))


def rechunk() -> dict[str, float]:
    """Rows to columns."""

    def run() -> float:
        x = wt.random.default_rng(1).random((ROWS, COLUMNS), chunk_size=(1_000, COLUMNS))
        return float(x.rechunk((ROWS, 250)).sum())

    return _timed(run, near(ROWS * COLUMNS / 2, 1e-3 * ROWS * COLUMNS))


def cumsum() -> dict[str, float]:
    """Running sums."""

    def run() -> float:
        x = wt.random.default_rng(1).random(N, chunk_size=CHUNK)
        return float(x.cumsum()[-1])

    return _timed(run, near(N / 2, 1e-3 * N))


def transpose_sum() -> dict[str, float]:
    """A transpose that is summed."""

    def run() -> float:
        x = wt.random.default_rng(1).random((ROWS, COLUMNS), chunk_size=(2_000, COLUMNS))
        return float((x.T + 1.0).sum())

    return _timed(run, near(1.5 * ROWS * COLUMNS, 1e-3 * ROWS * COLUMNS))


TALL = (1_000_000, 50)


def _tall() -> wt.Tensor:
    return wt.random.default_rng(1).random(TALL, chunk_size=(TALL[0] // 10, TALL[1]))


def qr() -> dict[str, float]:
    """Both factors of a tall matrix."""

    def run() -> Any:
        return wt.execute(*wt.linalg.qr(_tall()))

    def check(found: Any) -> None:
        q = found[0].fetch()
        near(1.0, 1e-9)(q[:, 0] @ q[:, 0])

    return _timed(run, check)


def svd() -> dict[str, float]:
    """All three factors of a tall matrix."""

    def run() -> Any:
        return wt.execute(*wt.linalg.svd(_tall(), full_matrices=False))

    def check(found: Any) -> None:
        u = found[0].fetch()
        near(1.0, 1e-9)(u[:, 0] @ u[:, 0])

    return _timed(run, check)


def ata() -> dict[str, float]:
    """A tall matrix, transposed, by itself."""

    def run() -> Any:
        x = _tall()
        return (x.T @ x).fetch()

    return _timed(run, lambda found: near(TALL[0] / 3, 1e-2 * TALL[0])(found[7, 7]))


@cache
def _square() -> tuple[np.ndarray[Any, Any], wt.Tensor]:
    x = np.random.default_rng(1).random((SIDE, SIDE))
    return x, wt.from_array(x, 1_000)


def matmul_case() -> dict[str, float]:
    """A matrix by itself."""
    x, ours = _square()

    def check(found: Any) -> None:
        near(float(x[7] @ x[:, 9]), 1e-6)(found[7, 9])

    return _timed(lambda: (ours @ ours).fetch(), check)


@cache
def _resident() -> tuple[np.ndarray[Any, Any], ...]:
    rng = np.random.default_rng(1)
    return tuple(rng.random(RESIDENT) + 0.5 for _ in range(3))


def fused_e1() -> dict[str, float]:
    """Cheap arithmetic on arrays in memory."""
    a, b, c = (wt.from_array(x) for x in _resident())

    def run() -> float:
        return float(((a + b) * c - a / b).sum())

    # E[(a + b) c - a / b] with all even on [0.5, 1.5): 2 - ln(3).
    return _timed(run, near(RESIDENT * (2 - math.log(3)), 1e-3 * RESIDENT))


def fused_e3() -> dict[str, float]:
    """Transcendental functions on arrays in memory."""
    a, b, c = (wt.from_array(x) for x in _resident())

    def run() -> float:
        return float((wt.sin(a) * wt.exp(b) + wt.cos(c) * wt.log(b)).sum())

    mean_sin, mean_exp = math.cos(0.5) - math.cos(1.5), math.exp(1.5) - math.exp(0.5)
    mean_cos = math.sin(1.5) - math.sin(0.5)
    mean_log = 1.5 * math.log(1.5) - 0.5 * math.log(0.5) - 1
    return _timed(run, near(RESIDENT * (mean_sin * mean_exp + mean_cos * mean_log), 1e-3 * RESIDENT))


_began: list[float] = []


def _tell(chunk: Any) -> Any:
    _began.append(time.perf_counter())
    raise RuntimeError("that was all")


def graph_1e6_chunks() -> dict[str, float]:
    """From the call to the first chunk, whose task notes the time and fails, so that the others are not run."""
    session = _session()
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

    return _timed(run, near(3.0 * n, 0.0))


CASES: Mapping[str, Callable[[], Mapping[str, float]]] = {
    "ewise": ewise,
    "rechunk": rechunk,
    "cumsum": cumsum,
    "transpose_sum": transpose_sum,
    "qr": qr,
    "svd": svd,
    "ata": ata,
    "matmul": matmul_case,
    "fused_e1": fused_e1,
    "fused_e3": fused_e3,
    "graph_1e6_chunks": graph_1e6_chunks,
    "chunk_overhead": chunk_overhead,
}
