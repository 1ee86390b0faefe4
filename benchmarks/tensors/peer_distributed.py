"""The cases of `peer_dask` on two processes of dask.distributed, which keep results that are asked to be held."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import dask
import dask.array as da
from distributed import Client, KilledWorker, wait

from benchmarks.harness import timed
from benchmarks.tensors.peer_dask import DRAWN, GIVEN
from benchmarks.tensors.sizes import LONGEST_S, ROWS, SIZES
from benchmarks.tensors.ways import Check, Run, Way


@cache
def _client() -> Client:
    return Client(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=logging.ERROR)


def _timed(run: Run, check: Check) -> dict[str, float]:
    _client()
    return timed(run, check, rehearse=True)


def _held(*arrays: Any) -> Any:
    kept = dask.persist(*arrays)
    wait(kept)
    return kept


def _given(x: da.Array) -> Any:
    """Send an array to the workers: else it would go with each graph."""
    _client()
    return _held(x)[0]


PROCESSES = Way(_timed, _held, _given)


def _out_of_core(make: Callable[[], list[Any]]) -> dict[str, float]:
    """Compute with as much memory as a session of ours has; for ever, if the workers die of it or come to no end."""
    with Client(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        memory_limit=SIZES.memory // 2,
        dashboard_address=None,
        silence_logs=logging.CRITICAL,
    ) as client:
        begin = time.perf_counter()
        futures = client.compute(make())
        try:
            wait(futures, timeout=LONGEST_S)
            client.gather(futures)
        except (KilledWorker, TimeoutError, MemoryError, OSError):
            return {"seconds": math.inf}
        return {"seconds": time.perf_counter() - begin}


def reduced() -> dict[str, float]:
    """Mean, standard deviation, and the share of numbers below their sum."""

    def make() -> list[Any]:
        x = da.random.default_rng(1).random(SIZES.reduced // 8, chunks=SIZES.chunk // 8)
        mean, deviation = x.mean(), x.std()
        return [mean, deviation, (x < mean + deviation).mean()]

    return _out_of_core(make)


def rechunked() -> dict[str, float]:
    """Rows to columns, and their mean."""
    columns = SIZES.rechunked // 8 // ROWS
    each = SIZES.chunk / SIZES.rechunked

    def make() -> list[Any]:
        x = da.random.default_rng(1).random((ROWS, columns), chunks=(int(ROWS * each), columns))
        return [x.rechunk((ROWS, int(columns * each))).mean()]

    return _out_of_core(make)


CASES: Mapping[str, Callable[[], Mapping[str, float]]] = {
    **{f"processes_{name}": partial(case, PROCESSES) for name, case in {**DRAWN, **GIVEN}.items()},
    "reduced": reduced,
    "rechunked": rechunked,
}
