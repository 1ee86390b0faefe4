"""The cases on JAX, compiled by XLA for the processor, in one piece and in double precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import timed
from benchmarks.tensors.ways import Run, near

jax.config.update("jax_enable_x64", True)

N = 100_000_000
ROWS, COLUMNS = 20_000, 5_000
SIDE = 4_000
RESIDENT = 40_000_000
TALL = (1_000_000, 50)
GRID = 6_000


def _timed(run: Run, check: Callable[[Any], None]) -> dict[str, float]:
    return timed(lambda: jax.block_until_ready(run()), check, rehearse=True)


def _finite(found: Any) -> None:
    if not np.all(np.isfinite(np.asarray(found))):
        raise AssertionError("a wrong result")


def _drawn(shape: tuple[int, ...], stream: int = 0) -> Any:
    return jax.random.uniform(jax.random.fold_in(jax.random.key(1), stream), shape, jnp.float64)


def ewise() -> dict[str, float]:
    """Three random vectors, made on the way."""

    @jax.jit
    def run() -> Any:
        a, b, c = (_drawn((N,), stream) for stream in range(3))
        return ((a + b) * c).sum()

    return _timed(run, near(N / 2, 1e-3 * N))


def cumsum() -> dict[str, float]:
    """Running sums."""
    run = jax.jit(lambda: jnp.cumsum(_drawn((N,)))[-1])
    return _timed(run, near(N / 2, 1e-3 * N))


def transpose_sum() -> dict[str, float]:
    """A transpose that is summed."""
    run = jax.jit(lambda: (_drawn((ROWS, COLUMNS)).T + 1.0).sum())
    return _timed(run, near(1.5 * ROWS * COLUMNS, 1e-3 * ROWS * COLUMNS))


def _one_is_the_length(found: Any) -> None:
    near(1.0, 1e-9)(found[0][:, 0] @ found[0][:, 0])


def qr() -> dict[str, float]:
    """Both factors of a tall matrix."""
    return _timed(jax.jit(lambda: jnp.linalg.qr(_drawn(TALL))), _one_is_the_length)


def svd() -> dict[str, float]:
    """All three factors of a tall matrix."""
    return _timed(jax.jit(lambda: jnp.linalg.svd(_drawn(TALL), full_matrices=False)), _one_is_the_length)


def ata() -> dict[str, float]:
    """A tall matrix, transposed, by itself."""

    @jax.jit
    def run() -> Any:
        x = _drawn(TALL)
        return x.T @ x

    return _timed(run, lambda found: near(TALL[0] / 3, 1e-2 * TALL[0])(found[7, 7]))


@cache
def _given(*shape: int, streams: int = 1) -> tuple[Any, ...]:
    rng = np.random.default_rng(1)
    return tuple(jnp.asarray(rng.random(shape) + 0.5) for _ in range(streams))


def matmul() -> dict[str, float]:
    """A matrix by itself."""
    (x,) = _given(SIDE, SIDE)
    product = jax.jit(jnp.matmul)
    return _timed(lambda: product(x, x), _finite)


def fused_e1() -> dict[str, float]:
    """Cheap arithmetic on arrays in memory."""
    given = _given(RESIDENT, streams=3)
    fused = jax.jit(lambda a, b, c: ((a + b) * c - a / b).sum())
    return _timed(lambda: fused(*given), _finite)


def fused_e3() -> dict[str, float]:
    """Transcendental functions on arrays in memory."""
    given = _given(RESIDENT, streams=3)
    fused = jax.jit(lambda a, b, c: (jnp.sin(a) * jnp.exp(b) + jnp.cos(c) * jnp.log(b)).sum())
    return _timed(lambda: fused(*given), _finite)


def map_overlap() -> dict[str, float]:
    """The mean of each element and its four neighbours, mirrored at the ends; and the sum."""
    (x,) = _given(GRID, GRID)

    @jax.jit
    def mean(x: Any) -> Any:
        wide = jnp.pad(x, 1, mode="symmetric")
        made = x + wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
        return (made / 5).sum()

    return _timed(lambda: mean(x), near(float(x.sum()), 1e-2 * GRID))


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
}
