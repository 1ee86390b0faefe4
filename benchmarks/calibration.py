"""The speed of the machine at one moment: four fixed pieces of work, timed beside each round of a row.

A shared machine changes its speed by a half within minutes. A figure in seconds without a peer is therefore reported
as measured and scaled to the reference phase: the figure that the machine would give at the speeds in `REFERENCE`.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Final

WORK: Final = ("python", "memory", "process", "fsync")
"""Names of the pieces of work: a loop of Python, fresh memory, the start of an interpreter, one fsync."""
REFERENCE: Final[Mapping[str, float]] = {"python": 0.065, "memory": 0.145, "process": 0.0130, "fsync": 0.0005}
"""Seconds of each piece of work in the reference phase."""
PYTHON_STEPS: Final = 1_000_000
FRESH_BYTES: Final = 128 * 2**20
_BLOCK: Final = b"\1" * 2**18

Calibration = Mapping[str, float]
"""Seconds of each piece of work, by name."""


def calibrate() -> dict[str, float]:
    """Return the seconds that each piece of work takes now; the shorter of two runs of each."""
    return {name: min(_seconds(_RUN[name]), _seconds(_RUN[name])) for name in WORK}


def slowness(now: Calibration, work: str) -> float:
    """Return the seconds of `work` now over those of the reference phase: 2 on a machine of half the speed."""
    return now[work] / REFERENCE[work]


def _seconds(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _python() -> None:
    total, table = 0, {}
    for i in range(PYTHON_STEPS):
        total += i & 7
    for i in range(PYTHON_STEPS // 10):
        table[i] = total


def _memory() -> None:
    with mmap.mmap(-1, FRESH_BYTES) as fresh:
        for _ in range(FRESH_BYTES // len(_BLOCK)):
            fresh.write(_BLOCK)


def _process() -> None:
    subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)


def _fsync() -> None:
    with tempfile.TemporaryFile(dir=os.environ.get("BENCHMARKS_DISK") or os.getcwd()) as file:
        file.write(_BLOCK[:4096])
        file.flush()
        os.fsync(file.fileno())


_RUN: Final[Mapping[str, Callable[[], None]]] = {
    "python": _python,
    "memory": _memory,
    "process": _process,
    "fsync": _fsync,
}
