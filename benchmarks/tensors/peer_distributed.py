"""The cases of `peer_dask` on two processes of dask.distributed, which keep results that are asked to be held."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import dask
from distributed import Client, wait

from benchmarks.harness import timed
from benchmarks.tensors.peer_dask import DRAWN
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


PROCESSES = Way(_timed, _held)

CASES: Mapping[str, Callable[[], Mapping[str, float]]] = {
    f"processes_{name}": partial(case, PROCESSES) for name, case in DRAWN.items()
}
