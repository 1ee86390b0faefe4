"""The cases on PyTorch, on two threads of the processor, in one piece and in double precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch

from benchmarks.harness import timed
from benchmarks.tensors.ways import Run, near

torch.set_num_threads(2)
torch.set_grad_enabled(False)

N = 100_000_000
ROWS, COLUMNS = 20_000, 5_000
SIDE = 4_000
RESIDENT = 40_000_000
TALL = (1_000_000, 50)
GRID = 6_000


def _timed(run: Run, check: Callable[[Any], None]) -> dict[str, float]:
    return timed(run, check, rehearse=True)


def _finite(found: Any) -> None:
    if not torch.isfinite(found).all():
        raise AssertionError("a wrong result")


def _drawn(*shape: int) -> Any:
    return torch.rand(shape, dtype=torch.float64)


def ewise() -> dict[str, float]:
    """Three random vectors, made on the way."""

    def run() -> float:
        a, b, c = (_drawn(N) for _ in range(3))
        return float(((a + b) * c).sum())

    return _timed(run, near(N / 2, 1e-3 * N))


def cumsum() -> dict[str, float]:
    """Running sums."""
    return _timed(lambda: float(_drawn(N).cumsum(0)[-1]), near(N / 2, 1e-3 * N))


def transpose_sum() -> dict[str, float]:
    """A transpose that is summed."""
    run = lambda: float((_drawn(ROWS, COLUMNS).T + 1.0).sum())  # noqa: E731
    return _timed(run, near(1.5 * ROWS * COLUMNS, 1e-3 * ROWS * COLUMNS))


def _one_is_the_length(found: Any) -> None:
    near(1.0, 1e-9)(found[0][:, 0] @ found[0][:, 0])


def qr() -> dict[str, float]:
    """Both factors of a tall matrix."""
    return _timed(lambda: torch.linalg.qr(_drawn(*TALL)), _one_is_the_length)


def svd() -> dict[str, float]:
    """All three factors of a tall matrix."""
    return _timed(lambda: torch.linalg.svd(_drawn(*TALL), full_matrices=False), _one_is_the_length)


def ata() -> dict[str, float]:
    """A tall matrix, transposed, by itself."""

    def run() -> Any:
        x = _drawn(*TALL)
        return x.T @ x

    return _timed(run, lambda found: near(TALL[0] / 3, 1e-2 * TALL[0])(found[7, 7]))


@cache
def _given(*shape: int, streams: int = 1) -> tuple[Any, ...]:
    rng = np.random.default_rng(1)
    return tuple(torch.from_numpy(rng.random(shape) + 0.5) for _ in range(streams))


def matmul() -> dict[str, float]:
    """A matrix by itself."""
    (x,) = _given(SIDE, SIDE)
    return _timed(lambda: x @ x, _finite)


def fused_e1() -> dict[str, float]:
    """Cheap arithmetic on arrays in memory."""
    a, b, c = _given(RESIDENT, streams=3)
    return _timed(lambda: ((a + b) * c - a / b).sum(), _finite)


def fused_e3() -> dict[str, float]:
    """Transcendental functions on arrays in memory."""
    a, b, c = _given(RESIDENT, streams=3)
    return _timed(lambda: (torch.sin(a) * torch.exp(b) + torch.cos(c) * torch.log(b)).sum(), _finite)


def map_overlap() -> dict[str, float]:
    """The mean of each element and its four neighbours, mirrored at the ends; and the sum."""
    (x,) = _given(GRID, GRID)

    def run() -> float:
        wide = torch.nn.functional.pad(x[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]  # a halo of 1: the same
        made = x + wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
        return float((made / 5).sum())

    return _timed(run, near(float(x.sum()), 1e-2 * GRID))


@cache
def _scattered() -> tuple[Any, Any]:
    n = 10**6
    rng = np.random.default_rng(1)
    columns = np.sort(rng.integers(0, n, (n, 10)), axis=1).ravel()
    rows = torch.from_numpy(np.arange(0, 10 * n + 1, 10))
    matrix = torch.sparse_csr_tensor(rows, torch.from_numpy(columns), torch.from_numpy(rng.random(10 * n)), (n, n))
    return matrix, torch.from_numpy(rng.random(n))


def sparse_matvec() -> dict[str, float]:
    """A sparse matrix by a vector."""
    matrix, x = _scattered()
    return _timed(lambda: matrix @ x, _finite)


CASES: Mapping[str, Callable[[], Mapping[str, float]]] = {
    "ewise": ewise,
    "cumsum": cumsum,
    "transpose_sum": transpose_sum,
    "qr": qr,
    "svd": svd,
    "ata": ata,
    "matmul": matmul,
    "fused_e1": fused_e1,
    "fused_e3": fused_e3,
    "map_overlap": map_overlap,
    "sparse_matvec": sparse_matvec,
}
