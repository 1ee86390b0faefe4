"""Linear algebra and Fourier transforms."""

import random
from functools import partial
from typing import Any

import numpy as np

import weft.tensor as wt
from tests.properties.tensors.drawing import (
    COMPLEX,
    FLOATS,
    NUMBERS,
    Case,
    Draw,
    array,
    axis_of,
    broadcastable,
    matrices,
    shape,
)

# ---------------------------------------------------------------------------------------------------- linear algebra

LINALG: dict[str, Draw] = {}


def _square(rng: random.Random, types: list[str] = [*FLOATS, *COMPLEX]) -> Any:  # noqa: B006
    n = rng.randint(1, 6)
    return array(rng, (*shape(rng, 0, 2), n, n), types, special=False) + 5 * np.eye(n, dtype="f")


def _any_matrix(rng: random.Random) -> Any:
    return array(rng, (*shape(rng, 0, 2), rng.randint(1, 6), rng.randint(1, 6)), [*FLOATS, *COMPLEX], special=False)


def of_linalg(name: str, of: Any, ours: Any = None, theirs: Any = None) -> None:
    """Put a function of `linalg` of one matrix into the family."""

    def draw(rng: random.Random) -> Case:
        x = of(rng)
        return Case(f"linalg.{name}", [x], ours or getattr(wt.linalg, name), theirs or getattr(np.linalg, name))

    LINALG[name] = draw


def hermitian(rng: random.Random) -> Any:
    x = _square(rng)
    return x + np.conj(np.swapaxes(x, -1, -2))


def positive(rng: random.Random) -> Any:
    x = _square(rng)
    return x @ np.conj(np.swapaxes(x, -1, -2)) + 10 * np.eye(x.shape[-1], dtype=x.dtype)


def _again_qr(x: Any) -> Any:
    q, r = wt.linalg.qr(x)
    return [q @ r, wt.matrix_transpose(wt.conj(q)) @ q]


def _again_svd(x: Any) -> Any:
    u, s, vh = wt.linalg.svd(x, full_matrices=False)
    return [(u * s[..., None, :]) @ vh, s]


def _again_eigh(x: Any) -> Any:
    values, vectors = wt.linalg.eigh(x)
    return [(vectors * values[..., None, :]) @ wt.matrix_transpose(wt.conj(vectors)), values]


def _again_eig(x: Any) -> Any:
    values, vectors = wt.linalg.eig(x)
    return wt.astype(x, vectors.dtype) @ vectors - vectors * values[..., None, :]


of_linalg("cholesky", positive)
of_linalg("det", _square)
of_linalg("slogdet", _square)
of_linalg("inv", _square)
of_linalg("eigvalsh", hermitian)
of_linalg("pinv", _any_matrix)
of_linalg("svdvals", _any_matrix)
of_linalg("matrix_rank", _any_matrix)
of_linalg("matrix_transpose", _any_matrix)
of_linalg("eigh", hermitian, _again_eigh, lambda x: [x, np.linalg.eigvalsh(x)])
of_linalg("eig", _square, _again_eig, lambda x: np.zeros_like(x, np.result_type(x.dtype, np.complex64)))
of_linalg(
    "eigvals",
    hermitian,
    lambda x: wt.sort(wt.real(wt.linalg.eigvals(x))),
    np.linalg.eigvalsh,
)
of_linalg(
    "qr",
    _any_matrix,
    _again_qr,
    lambda x: [x, np.broadcast_to(np.eye(min(x.shape[-2:]), dtype=x.dtype), (*x.shape[:-2], *[min(x.shape[-2:])] * 2))],
)
of_linalg("svd", _any_matrix, _again_svd, lambda x: [x, np.linalg.svdvals(x)])


def _solved(rng: random.Random) -> Case:
    a = _square(rng)
    n = a.shape[-1]
    b = array(rng, (n,) if rng.random() < 0.4 else (*a.shape[:-2], n, rng.randint(1, 4)), [str(a.dtype)], special=False)
    return Case("linalg.solve", [a, b], wt.linalg.solve, np.linalg.solve)


def _normed(rng: random.Random) -> Case:
    x = _any_matrix(rng)
    kwargs: dict[str, Any] = {
        "ord": rng.choice(["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf]),
        "keepdims": rng.random() < 0.5,
    }
    fns = partial(wt.linalg.matrix_norm, **kwargs), partial(np.linalg.matrix_norm, **kwargs)
    return Case(f"linalg.matrix_norm {kwargs}", [x], *fns)


def _vector_norm(rng: random.Random) -> Case:
    x = array(rng, shape(rng, 1, 3, empty=False), [*FLOATS, *COMPLEX], special=False)
    kwargs: dict[str, Any] = {"ord": rng.choice([2, 1, 0, 3, -1, 0.5, np.inf, -np.inf]), "keepdims": rng.random() < 0.5}
    kwargs["axis"] = rng.choice([None, rng.randrange(-x.ndim, x.ndim), tuple(range(x.ndim))])
    fns = partial(wt.linalg.vector_norm, **kwargs), partial(np.linalg.vector_norm, **kwargs)
    return Case(f"linalg.vector_norm {kwargs}", [x], *fns)


def _powered(rng: random.Random) -> Case:
    x = _square(rng)
    n = rng.randint(-2, 3)
    return Case(
        f"linalg.matrix_power {n}", [x], lambda a: wt.linalg.matrix_power(a, n), lambda a: np.linalg.matrix_power(a, n)
    )


def _diagonals(name: str) -> Draw:
    def draw(rng: random.Random) -> Case:
        x = array(rng, shape(rng, 1, 4), NUMBERS, special=False)
        k = rng.randint(-4, 4)
        fns = partial(getattr(wt.linalg, name), offset=k), partial(getattr(np.linalg, name), offset=k)
        return Case(f"linalg.{name} {k}", [x], *fns)

    return draw


def _matmul(rng: random.Random) -> Case:
    first, second = matrices(rng)
    x, y = (array(rng, size, NUMBERS, special=False) for size in (first, second))
    return Case("matmul", [x, y], wt.matmul, np.matmul)


def _vectors(name: str) -> Draw:
    def draw(rng: random.Random) -> Case:
        n = 3 if name == "cross" else rng.randint(0, 6)
        first, second = broadcastable(rng, 2, 2)
        x, y = (array(rng, (*size, n), NUMBERS, special=False) for size in (first, second))
        return Case(f"linalg.{name}", [x, y], getattr(wt.linalg, name), _cross if name == "cross" else np.vecdot)

    return draw


def _cross(x: Any, y: Any) -> Any:
    return np.cross(x, y)


def _tensordot(rng: random.Random) -> Case:
    count = rng.randint(0, 2)
    shared = [rng.randint(1, 4) for _ in range(count)]
    left, right = list(shape(rng, 0, 2)), list(shape(rng, 0, 2))
    if rng.random() < 0.5:
        axes: Any = count
        first, second = (*left, *shared), (*shared, *right)
    else:
        first, second = (*shared, *left), (*right, *shared)
        axes = (list(range(count)), list(range(len(right), len(right) + count)))
    x, y = array(rng, first, NUMBERS, special=False), array(rng, second, NUMBERS, special=False)
    return Case(f"tensordot {axes}", [x, y], partial(wt.tensordot, axes=axes), partial(np.tensordot, axes=axes))


def _outer(rng: random.Random) -> Case:
    x, y = (array(rng, (rng.randint(0, 7),), NUMBERS) for _ in range(2))
    return Case("linalg.outer", [x, y], wt.linalg.outer, np.outer)


LINALG["solve"] = _solved
LINALG["matrix_norm"] = _normed
LINALG["vector_norm"] = _vector_norm
LINALG["matrix_power"] = _powered
for _name in ("diagonal", "trace"):
    LINALG[_name] = _diagonals(_name)
LINALG["matmul"] = _matmul
LINALG["vecdot"] = _vectors("vecdot")
LINALG["cross"] = _vectors("cross")
LINALG["tensordot"] = _tensordot
LINALG["outer"] = _outer


# ------------------------------------------------------------------------------------------------ Fourier transforms

FFT: dict[str, Draw] = {}


def _transform(name: str) -> Draw:
    def draw(rng: random.Random) -> Case:
        real = name in ("rfft", "rfftn", "ihfft")
        x = array(rng, shape(rng, 1, 3, empty=False), [*FLOATS] if real else [*FLOATS, *COMPLEX], special=False)
        kwargs: dict[str, Any] = {"norm": rng.choice(["backward", "ortho", "forward"])}
        if name.endswith("n"):
            axes = rng.sample(range(x.ndim), rng.randint(1, x.ndim))
            kwargs["axes"] = axes
            if rng.random() < 0.5:
                kwargs["s"] = [rng.randint(1, 7) for _ in axes]
        else:
            kwargs["axis"] = axis_of(rng, x.ndim)
            if rng.random() < 0.5:
                kwargs["n"] = rng.randint(0 if rng.random() < 0.05 else 1, 9)
        fns = partial(getattr(wt.fft, name), **kwargs), partial(getattr(np.fft, name), **kwargs)
        return Case(f"fft.{name} {kwargs}", [x], *fns)

    return draw


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn"):
    FFT[_name] = _transform(_name)


def _shifted(name: str) -> Draw:
    def draw(rng: random.Random) -> Case:
        x = array(rng, shape(rng, 1, 3))
        axes = rng.choice([None, rng.randrange(x.ndim), tuple(range(x.ndim))])
        fns = partial(getattr(wt.fft, name), axes=axes), partial(getattr(np.fft, name), axes=axes)
        return Case(f"fft.{name} {axes}", [x], *fns, True)

    return draw


def _frequencies(name: str) -> Draw:
    def draw(rng: random.Random) -> Case:
        n, d = rng.randint(1, 30), rng.uniform(0.1, 3)
        return Case(f"fft.{name}", [], lambda: getattr(wt.fft, name)(n, d=d), lambda: getattr(np.fft, name)(n, d))

    return draw


for _name in ("fftshift", "ifftshift"):
    FFT[_name] = _shifted(_name)
for _name in ("fftfreq", "rfftfreq"):
    FFT[_name] = _frequencies(_name)
