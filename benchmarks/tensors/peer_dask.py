"""The cases on dask.array, on two threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dask
import dask.array as da

from benchmarks.harness import timed

N = 100_000_000
CHUNK = 10_000_000
ROWS, COLUMNS = 20_000, 5_000


def _timed(run: Callable[[], float], wanted: float, within: float) -> dict[str, float]:
    def check(found: float) -> None:
        if not abs(found - wanted) <= within:
            raise AssertionError(f"a wrong result: {found}, not {wanted} within {within}")

    with dask.config.set(scheduler="threads", num_workers=2):
        return timed(run, check, rehearse=True)


def ewise() -> dict[str, float]:
    """Three random vectors, made on the way."""

    def run() -> float:
        rng = da.random.default_rng(1)
        a, b, c = (rng.random(N, chunks=CHUNK) for _ in range(3))
        return float(((a + b) * c).sum().compute())

    return _timed(run, N / 2, 1e-3 * N)


def rechunk() -> dict[str, float]:
    """Rows to columns."""

    def run() -> float:
        x = da.random.default_rng(1).random((ROWS, COLUMNS), chunks=(1_000, COLUMNS))
        return float(x.rechunk((ROWS, 250)).sum().compute())

    return _timed(run, ROWS * COLUMNS / 2, 1e-3 * ROWS * COLUMNS)


def cumsum() -> dict[str, float]:
    """Running sums."""

    def run() -> float:
        return float(da.random.default_rng(1).random(N, chunks=CHUNK).cumsum(axis=0)[-1].compute())

    return _timed(run, N / 2, 1e-3 * N)


def transpose_sum() -> dict[str, float]:
    """A transpose that is summed."""

    def run() -> float:
        x = da.random.default_rng(1).random((ROWS, COLUMNS), chunks=(2_000, COLUMNS))
        return float((x.T + 1.0).sum().compute())

    return _timed(run, 1.5 * ROWS * COLUMNS, 1e-3 * ROWS * COLUMNS)


TALL = (1_000_000, 50)


def _tall() -> da.Array:
    return da.random.default_rng(1).random(TALL, chunks=(TALL[0] // 10, TALL[1]))


def _first_column(found: Any) -> float:
    column = found[0][:, 0]
    return float(column @ column)


def qr() -> dict[str, float]:
    """Both factors of a tall matrix."""
    return _factors(lambda: da.compute(*da.linalg.qr(_tall())))


def svd() -> dict[str, float]:
    """All three factors of a tall matrix."""
    return _factors(lambda: da.compute(*da.linalg.svd(_tall())))


def _factors(run: Callable[[], Any]) -> dict[str, float]:
    def check(found: Any) -> None:
        if not abs(_first_column(found) - 1.0) <= 1e-9:
            raise AssertionError("a wrong result: the first column is not of length 1")

    with dask.config.set(scheduler="threads", num_workers=2):
        return timed(run, check, rehearse=True)


def ata() -> dict[str, float]:
    """A tall matrix, transposed, by itself."""

    def run() -> float:
        x = _tall()
        return float((x.T @ x).compute()[7, 7])

    return _timed(run, TALL[0] / 3, 1e-2 * TALL[0])


CASES: Mapping[str, Callable[[], Mapping[str, float]]] = {
    "ewise": ewise,
    "rechunk": rechunk,
    "cumsum": cumsum,
    "transpose_sum": transpose_sum,
    "qr": qr,
    "svd": svd,
    "ata": ata,
}
