"""Fourier transforms, as the array standard has them. An axis that is transformed is read as one chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.arrays.array import DEVICE, Tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.creation import asarray
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.joining import roll
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.blocks import call, whole_along
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.reductions import axes_of

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.frontends.tensors.types import ArrayLike, Chunk, ChunkSize, DType, DTypeLike

_NORMS = (None, "backward", "ortho", "forward")


def _complex(dtype: DType) -> DType:
    return np.result_type(dtype, np.complex64) if dtype.kind in "fc" else np.dtype(np.complex128)


def _real(dtype: DType) -> DType:
    return np.empty(0, _complex(dtype)).real.dtype


def _transformed(x: Chunk, *, fn: Callable[..., Any], dtype: DType, options: tuple[tuple[str, Any], ...]) -> Chunk:
    return fn(x, **dict(options)).astype(dtype, copy=False)


def _transform(
    fn: Callable[..., Any], node: ArrayNode, sizes: dict[int, int], dtype: DType, options: dict[str, Any]
) -> Tensor:
    """Transform along axes; `sizes` are the lengths that they have afterwards."""
    if options["norm"] not in _NORMS:
        raise ValueError(f'Invalid norm value {options["norm"]}; should be "backward", "ortho" or "forward".')
    node = whole_along(node, tuple(sizes))
    grid = tuple([Cut.even(n, max(n, 1)) if (n := sizes.get(a, -1)) >= 0 else c for a, c in enumerate(node.grid)])
    kwargs = {"fn": fn, "dtype": dtype, "options": tuple(options.items())}
    return Tensor(call(_transformed, node, grid, dtype, kwargs=kwargs, name=fn.__name__))


def _positive(n: int) -> int:
    if n < 1:
        raise ValueError(f"Invalid number of data points ({n}) specified.")
    return n


def _one(
    fn: Callable[..., Any], x: Any, n: int | None, axis: int, norm: str | None, *, kinds: str, real: bool, half: bool
) -> Tensor:
    node = as_node(x)
    if node.dtype.kind not in kinds:
        raise TypeError(f"{fn.__name__} takes real numbers, not {node.dtype}")
    (along,) = axes_of(axis, len(node.grid))
    own = 2 * (node.shape[along] - 1) if real else node.shape[along]
    length = _positive(own if n is None else n)
    size = length // 2 + 1 if half else length
    dtype = _real(node.dtype) if real else _complex(node.dtype)
    return _transform(fn, node, {along: size}, dtype, {"n": n, "axis": along, "norm": norm})


@public("a", space="fft")
@needs_lengths
def fft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """Return the transform along an axis, which is cut or filled with zeros to `n` elements first."""
    return _one(np.fft.fft, x, n, axis, norm, kinds="biufc", real=False, half=False)


@public("a", space="fft")
@needs_lengths
def ifft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """Return the inverse transform along an axis."""
    return _one(np.fft.ifft, x, n, axis, norm, kinds="biufc", real=False, half=False)


@public("a", space="fft")
@needs_lengths
def rfft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """Return the transform of real numbers along an axis: one half, since the other is its conjugate."""
    return _one(np.fft.rfft, x, n, axis, norm, kinds="biuf", real=False, half=True)


def _irfft_sample(x: Any, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    return irfft(x, 2 if n is None else n, axis, norm)


@public("a", space="fft")
@needs_lengths(sample=_irfft_sample)
def irfft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """Return the inverse of `rfft`: `n` real numbers along an axis, by default 2(m - 1) of m."""
    return _one(np.fft.irfft, x, n, axis, norm, kinds="biufc", real=True, half=False)


def _hfft_sample(x: Any, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    return hfft(x, 2 if n is None else n, axis, norm)


@public("a", space="fft")
@needs_lengths(sample=_hfft_sample)
def hfft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """Return the transform of a signal with Hermitian symmetry: real numbers."""
    return _one(np.fft.hfft, x, n, axis, norm, kinds="biufc", real=True, half=False)


@public("a", space="fft")
@needs_lengths
def ihfft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """Return the inverse of `hfft`."""
    return _one(np.fft.ihfft, x, n, axis, norm, kinds="biuf", real=False, half=True)


def _several(
    fn: Callable[..., Any],
    x: Any,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str | None,
    last: str = "",
) -> Tensor:
    node = as_node(x)
    if last == "half" and node.dtype.kind == "c":
        raise TypeError(f"{fn.__name__} takes real numbers, not {node.dtype}")
    ndim = len(node.grid)
    if axes is None:
        along = list(range(ndim)) if s is None else list(range(ndim - len(s), ndim))
    else:
        along = [axes_of(axis, ndim)[0] for axis in axes]
    if s is not None and len(s) != len(along):
        raise ValueError("Shape and axes have different lengths.")
    given = [node.shape[axis] for axis in along] if s is None else list(s)
    given = [node.shape[axis] if n == -1 else n for axis, n in zip(along, given, strict=True)]
    if last == "real" and s is None and along:
        given[-1] = 2 * (given[-1] - 1)
    sizes = {axis: _positive(n) for axis, n in zip(along, given, strict=True)}
    if last == "half" and along:
        sizes[along[-1]] = given[-1] // 2 + 1
    dtype = _real(node.dtype) if last == "real" else _complex(node.dtype)
    return _transform(fn, node, sizes, dtype, {"s": tuple(given), "axes": tuple(along), "norm": norm})


@public("a", space="fft")
@needs_lengths
def fftn(
    x: ArrayLike, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = "backward"
) -> Tensor:
    """Return the transform along several axes, which are cut or filled with zeros to the lengths `s` first."""
    return _several(np.fft.fftn, x, s, axes, norm)


@public("a", space="fft")
@needs_lengths
def ifftn(
    x: ArrayLike, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = "backward"
) -> Tensor:
    """Return the inverse transform along several axes."""
    return _several(np.fft.ifftn, x, s, axes, norm)


@public("a", space="fft")
@needs_lengths
def rfftn(
    x: ArrayLike, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = "backward"
) -> Tensor:
    """Return the transform of real numbers along several axes, with one half of the last axis."""
    return _several(np.fft.rfftn, x, s, axes, norm, "half")


def _irfftn_sample(
    x: Any, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = "backward"
) -> Tensor:
    return irfftn(x, [2] * (x.ndim if axes is None else len(axes)) if s is None else s, axes, norm)


@public("a", space="fft")
@needs_lengths(sample=_irfftn_sample)
def irfftn(
    x: ArrayLike, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = "backward"
) -> Tensor:
    """Return the inverse of `rfftn`."""
    return _several(np.fft.irfftn, x, s, axes, norm, "real")


@public("a", space="fft")
def fft2(
    x: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward"
) -> Tensor:
    """Return the transform along two axes, the last ones if none are named."""
    return fftn(x, s=s, axes=axes, norm=norm)


@public("a", space="fft")
def ifft2(
    x: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward"
) -> Tensor:
    """Return the inverse transform along two axes."""
    return ifftn(x, s=s, axes=axes, norm=norm)


@public("a", space="fft")
def rfft2(
    x: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward"
) -> Tensor:
    """Return the transform of real numbers along two axes, with one half of the last axis."""
    return rfftn(x, s=s, axes=axes, norm=norm)


@public("a", space="fft")
def irfft2(
    x: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward"
) -> Tensor:
    """Return the inverse of `rfft2`."""
    return irfftn(x, s=s, axes=axes, norm=norm)


def _frequencies(
    fn: Callable[..., Any], n: int, d: float, dtype: Any, device: str | None, chunk_size: ChunkSize
) -> Tensor:
    if device not in (None, DEVICE):
        raise ValueError(f"there is no device {device!r}; there is {DEVICE!r}")
    kind = np.dtype(np.float64 if dtype is None else dtype)
    return asarray(fn(_positive(n), d).astype(kind), chunk_size=chunk_size)


@public(space="fft", refused="gpu")
def fftfreq(
    n: int, /, d: float = 1.0, dtype: DTypeLike = None, device: str | None = None, chunk_size: ChunkSize = None
) -> Tensor:
    """Return the frequencies of a transform of `n` samples that are `d` apart."""
    return _frequencies(np.fft.fftfreq, n, d, dtype, device, chunk_size)


@public(space="fft", refused="gpu")
def rfftfreq(
    n: int, /, d: float = 1.0, dtype: DTypeLike = None, device: str | None = None, chunk_size: ChunkSize = None
) -> Tensor:
    """Return the frequencies of `rfft` of `n` samples that are `d` apart."""
    return _frequencies(np.fft.rfftfreq, n, d, dtype, device, chunk_size)


def _centred(x: Any, axes: int | Sequence[int] | None, direction: int) -> Tensor:
    made = x if isinstance(x, Tensor) else Tensor(as_node(x))
    along = axes_of(tuple(axes) if isinstance(axes, list) else axes, made.ndim)
    halves = tuple([direction * (made.shape[axis] // 2) for axis in along])
    return roll(made, halves, axis=along) if along else made


@public(space="fft")
@needs_lengths
def fftshift(x: ArrayLike, /, axes: int | Sequence[int] | None = None) -> Tensor:
    """Put the frequency 0 into the middle of axes."""
    return _centred(x, axes, 1)


@public(space="fft")
@needs_lengths
def ifftshift(x: ArrayLike, /, axes: int | Sequence[int] | None = None) -> Tensor:
    """Undo `fftshift`."""
    return _centred(x, axes, -1)
