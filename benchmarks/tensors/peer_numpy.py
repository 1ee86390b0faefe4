"""The cases on NumPy, in one piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from benchmarks.harness import timed

SIDE = 4_000
RESIDENT = 40_000_000


def _any(found: Any) -> None:
    if not np.all(np.isfinite(found)):
        raise AssertionError("a wrong result")


@cache
def _square() -> Any:
    return np.random.default_rng(1).random((SIDE, SIDE))


@cache
def _resident() -> tuple[Any, ...]:
    rng = np.random.default_rng(1)
    return tuple(rng.random(RESIDENT) + 0.5 for _ in range(3))


def matmul() -> dict[str, float]:
    """A matrix by itself."""
    x = _square()
    return timed(lambda: x @ x, _any, rehearse=True)


def fused_e1() -> dict[str, float]:
    """Cheap arithmetic on arrays in memory."""
    a, b, c = _resident()
    return timed(lambda: ((a + b) * c - a / b).sum(), _any, rehearse=True)


def fused_e3() -> dict[str, float]:
    """Transcendental functions on arrays in memory."""
    a, b, c = _resident()
    return timed(lambda: (np.sin(a) * np.exp(b) + np.cos(c) * np.log(b)).sum(), _any, rehearse=True)


def sparse_matvec() -> dict[str, float]:
    """A sparse matrix of SciPy by a vector."""
    from scipy.sparse import csr_array

    n = 10**6
    rng = np.random.default_rng(1)
    columns = np.sort(rng.integers(0, n, (n, 10)), axis=1).ravel()
    matrix = csr_array((rng.random(10 * n), columns, np.arange(0, 10 * n + 1, 10)), shape=(n, n))
    x = rng.random(n)
    return timed(lambda: matrix @ x, _any, rehearse=True)


CASES: Mapping[str, Callable[[], Mapping[str, float]]] = {
    "matmul": matmul,
    "fused_e1": fused_e1,
    "fused_e3": fused_e3,
    "sparse_matvec": sparse_matvec,
}
