"""More data than the session may hold in memory, against writing and reading that data once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

import weft.tensor as wt
from benchmarks.harness import peak_gb, timed
from benchmarks.tensors.sizes import GB, ROWS, SIZES
from benchmarks.tensors.ways import near


def _room(nbytes: int) -> None:
    """Raise AssertionError if there is not half as much again on the disk that the session spills to."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < 1.5 * nbytes:
        raise AssertionError(f"{tempfile.gettempdir()} has {free / GB:.0f} GB, and {1.5 * nbytes / GB:.0f} are needed")


def _measured(nbytes: int, run: Callable[[], float], wanted: float) -> dict[str, float]:
    _room(nbytes)
    with wt.Session(workers=2, memory=SIZES.memory):
        return {**timed(run, near(wanted, 1e-3)), "gb": peak_gb()}


def reduced() -> dict[str, float]:
    """Mean, standard deviation, and the share of numbers below their sum, for which all are read again."""
    n = SIZES.reduced // 8

    def run() -> float:
        x = wt.random.default_rng(1).random(n, chunk_size=SIZES.chunk // 8)
        mean, deviation = x.mean(), x.std()
        _, _, share = wt.fetch(mean, deviation, (x < mean + deviation).mean())
        return float(share)

    return _measured(SIZES.reduced, run, 0.5 + 12**-0.5)


def rechunked() -> dict[str, float]:
    """Rows to columns, and their mean."""
    columns = SIZES.rechunked // 8 // ROWS
    each = SIZES.chunk / SIZES.rechunked

    def run() -> float:
        x = wt.random.default_rng(1).random((ROWS, columns), chunk_size=(int(ROWS * each), columns))
        return float(x.rechunk((ROWS, int(columns * each))).mean())

    return _measured(SIZES.rechunked, run, 0.5)


def written_and_read(nbytes: int) -> dict[str, float]:
    """Write so many bytes to a file where the session spills to, a chunk at a time, and read them."""
    _room(nbytes)
    chunk = np.random.default_rng(1).bytes(SIZES.chunk)
    room = bytearray(SIZES.chunk)

    def run() -> int:
        with tempfile.TemporaryFile(buffering=0) as file:
            for _ in range(nbytes // SIZES.chunk):
                file.write(chunk)
            file.seek(0)
            return sum(iter(lambda: file.readinto(room), 0))

    return timed(run, near(nbytes, SIZES.chunk))


CASES: Mapping[str, Callable[[], Mapping[str, float]]] = {
    "reduced": reduced,
    "rechunked": rechunked,
    "reduced_on_disk": partial(written_and_read, SIZES.reduced),
    "rechunked_on_disk": partial(written_and_read, SIZES.rechunked),
}
