"""Fourier transforms, as the array standard has them. An axis that is transformed is read as one chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.arrays.array import DEVICE, Tensor, as_tensor
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.creation import asarray
from weft.frontends.tensors.arrays.deferred import needs_lengths
from weft.frontends.tensors.arrays.joining import roll
from weft.frontends.tensors.arrays.registry import public
from weft.frontends.tensors.blocks import whole_along
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import call
from weft.frontends.tensors.reductions import axes_of, axis_of

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.frontends.tensors.types import ArrayLike, Chunk, ChunkSize, DType, DTypeLike

_NORMS = (None, "backward", "ortho", "forward")


def _complex(dtype: DType) -> DType:
    return np.result_type(dtype, np.complex64) if dtype.kind in "fc" else np.dtype(np.complex128)


def _real(fn: Callable[..., Any], dtype: DType, axes: int) -> DType:
    """Return the type of real numbers that NumPy makes along some axes: of half precision along one alone."""
    made: DType = fn(np.ones((2,) * axes, dtype), **({"axes": range(axes)} if axes > 1 else {})).dtype
    return made


def _transformed(x: Chunk, *, fn: Callable[..., Any], dtype: DType, options: tuple[tuple[str, Any], ...]) -> Chunk:
    how = dict(options)
    if not x.size:  # NumPy 2.4 does not fill all of these with zeros
        along = how["axes"] if "axes" in how else (how["axis"],)
        x = np.zeros([max(n, 1) if a in along else n for a, n in enumerate(x.shape)], x.dtype)
    return fn(x, **how).astype(dtype, copy=False)


def _transform(
    fn: Callable[..., Any], node: ArrayNode, sizes: dict[int, int], dtype: DType, options: dict[str, Any]
) -> Tensor:
    """Transform along axes; `sizes` are the lengths that they have afterwards."""
    if options["norm"] not in _NORMS:
        raise ValueError(f'Invalid norm value {options["norm"]}; should be "backward", "ortho" or "forward".')
    node = whole_along(node, tuple(sizes))
    grid = tuple([Cut.whole(n) if (n := sizes.get(a, -1)) >= 0 else c for a, c in enumerate(node.grid)])
    given = tuple(options.items())
    return Tensor(call(_transformed, node, grid, dtype, name=fn.__name__, fn=fn, dtype=dtype, options=given))


def _positive(n: int) -> int:
    if n < 1:
        raise ValueError(f"Invalid number of data points ({n}) specified.")
    return n


def _one(
    fn: Callable[..., Any], x: Any, n: int | None, axis: int, norm: str | None, *, kinds: str, real: bool, half: bool
) -> Tensor:
    node = as_node(x)
    along = axis_of(axis, len(node.grid))
    if node.dtype.kind not in kinds:
        raise TypeError(f"{fn.__name__} takes real numbers, not {node.dtype}")
    own = 2 * (node.shape[along] - 1) if real else node.shape[along]
    length = _positive(own if n is None else n)
    size = length // 2 + 1 if half else length
    dtype = _real(fn, node.dtype, 1) if real else _complex(node.dtype)
    return _transform(fn, node, {along: size}, dtype, {"n": n, "axis": along, "norm": norm})


def _several(
    fn: Callable[..., Any],
    x: Any,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str | None,
    last: str = "",
) -> Tensor:
    node = as_node(x)
    ndim = len(node.grid)
    if axes is None:
        axes = range(-(ndim if s is None else len(s)), 0)
    along = [axis_of(axis, ndim) for axis in axes]
    if len(set(along)) < len(along):
        raise ValueError(f"{fn.__name__}: axes are {tuple(axes)}: give each axis once")
    if last == "half" and node.dtype.kind == "c":
        raise TypeError(f"{fn.__name__} takes real numbers, not {node.dtype}")
    if s is not None and len(s) != len(along):
        raise ValueError("Shape and axes have different lengths.")
    given = [node.shape[axis] for axis in along] if s is None else list(s)
    given = [node.shape[axis] if n == -1 else n for axis, n in zip(along, given, strict=True)]
    if last == "real" and s is None and along:
        given[-1] = 2 * (given[-1] - 1)
    sizes = {axis: _positive(n) for axis, n in zip(along, given, strict=True)}
    if last == "half" and along:
        sizes[along[-1]] = given[-1] // 2 + 1
    dtype = _real(fn, node.dtype, len(along)) if last == "real" and along else _complex(node.dtype)
    return _transform(fn, node, sizes, dtype, {"s": tuple(given), "axes": tuple(along), "norm": norm})


def _transforms(function: Callable[..., Tensor], name: str, text: str, sample: Any = None) -> Callable[..., Tensor]:
    """Return a public transform; `sample` calls it for unknown lengths."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return public("a", space="fft")(
        needs_lengths(function) if sample is None else needs_lengths(sample=sample)(function)
    )


def _of_one(name: str, text: str, *, real: bool = False, half: bool = False) -> Callable[..., Tensor]:
    """Return a transform along one axis: with `real` to real numbers, with `half` of real ones to half of the axis."""
    fn, kinds = getattr(np.fft, name), "biuf" if half else "biufc"

    def function(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
        return _one(fn, x, n, axis, norm, kinds=kinds, real=real, half=half)

    def sample(x: Any, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
        return made(x, 2 if n is None else n, axis, norm)

    made = _transforms(function, name, text, sample if real else None)
    return made


def _of_several(name: str, text: str, last: str = "") -> Callable[..., Tensor]:
    """Return a transform along several axes, the last of which may be "half" or "real"."""
    fn = getattr(np.fft, name)

    def function(
        x: ArrayLike,
        /,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: str | None = "backward",
    ) -> Tensor:
        return _several(fn, x, s, axes, norm, last)

    def sample(x: Any, /, s: Any = None, axes: Any = None, norm: str | None = "backward") -> Tensor:
        return made(x, [2] * (x.ndim if axes is None else len(axes)) if s is None else s, axes, norm)

    made = _transforms(function, name, text, sample if last == "real" else None)
    return made


def _of_two(name: str, several: Callable[..., Tensor], text: str) -> Callable[..., Tensor]:
    """Return a transform along two axes."""

    def function(
        x: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward"
    ) -> Tensor:
        return several(x, s=s, axes=axes, norm=norm)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return public("a", space="fft")(function)


fft = _of_one("fft", "Return the transform along an axis, which is cut or filled with zeros to `n` elements first.")
ifft = _of_one("ifft", "Return the inverse transform along an axis.")
rfft = _of_one(
    "rfft", "Return the transform of real numbers along an axis: one half, since the other is its conjugate.", half=True
)
irfft = _of_one(
    "irfft", "Return the inverse of `rfft`: `n` real numbers along an axis, by default 2(m - 1) of m.", real=True
)
hfft = _of_one("hfft", "Return the transform of a signal with Hermitian symmetry: real numbers.", real=True)
ihfft = _of_one("ihfft", "Return the inverse of `hfft`.", half=True)
fftn = _of_several(
    "fftn", "Return the transform along several axes, which are cut or filled with zeros to the lengths `s` first."
)
ifftn = _of_several("ifftn", "Return the inverse transform along several axes.")
rfftn = _of_several(
    "rfftn", "Return the transform of real numbers along several axes, with one half of the last axis.", "half"
)
irfftn = _of_several("irfftn", "Return the inverse of `rfftn`.", "real")
fft2 = _of_two("fft2", fftn, "Return the transform along two axes, the last ones if none are named.")
ifft2 = _of_two("ifft2", ifftn, "Return the inverse transform along two axes.")
rfft2 = _of_two("rfft2", rfftn, "Return the transform of real numbers along two axes, with one half of the last axis.")
irfft2 = _of_two("irfft2", irfftn, "Return the inverse of `rfft2`.")


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
    given = as_tensor(x)
    made = Tensor(given._node, given.order)  # not a view, even without axes
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
