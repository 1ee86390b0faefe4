"""Methods of arrays: functions of this package, called as NumPy's users call them on an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.tensor import elementwise, linalg, manipulation, numpy_names, searching, statistics
from weft.tensor.array import Tensor


def _reshape(self: Tensor, *shape: Any, copy: bool | None = None) -> Tensor:
    """Give another shape, in row-major order; one length may be -1."""
    wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int | np.integer) else shape
    return manipulation.reshape(self, wanted, copy=copy)


def _transpose(self: Tensor, *axes: Any) -> Tensor:
    """Put the axes into another order, the opposite one if none is given."""
    order = axes[0] if len(axes) == 1 and (axes[0] is None or not isinstance(axes[0], int | np.integer)) else axes
    return numpy_names.transpose(self, order or None)


def _copy(self: Tensor) -> Tensor:
    """Return an array of its own: what is assigned to one does not change the other."""
    return Tensor(self._node)


def _compress(self: Tensor, condition: Any, axis: int | None = None) -> Tensor:
    """Return the elements along an axis where a condition holds; without an axis, of the flat array."""
    return numpy_names.compress(condition, self, axis)


def _sort(self: Tensor, axis: int = -1) -> None:
    """Sort along an axis, in place."""
    self._set(searching.sort(self, axis=axis)._node)


_REDUCTIONS = (
    "sum", "prod", "max", "min", "mean", "all", "any", "argmax", "argmin", "count_nonzero", "var", "std",
)  # fmt: skip
_METHODS: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(statistics, name)
        for name in (
            "sum",
            "prod",
            "max",
            "min",
            "mean",
            "all",
            "any",
            "argmax",
            "argmin",
            "count_nonzero",
            "var",
            "std",
        )
    },
    "cumsum": numpy_names.cumsum,
    "cumprod": numpy_names.cumprod,
    "ptp": numpy_names.ptp,
    "round": elementwise.round,
    "clip": elementwise.clip,
    "conj": elementwise.conj,
    "conjugate": elementwise.conj,
    "reshape": _reshape,
    "transpose": _transpose,
    "squeeze": manipulation.squeeze,
    "swapaxes": numpy_names.swapaxes,
    "ravel": numpy_names.ravel,
    "flatten": numpy_names.ravel,
    "repeat": manipulation.repeat,
    "dot": linalg.dot,
    "trace": numpy_names.trace,
    "diagonal": numpy_names.diagonal,
    "nonzero": searching.nonzero,
    "take": searching.take,
    "topk": numpy_names.topk,
    "map_chunk": numpy_names.map_chunk,
    "compress": _compress,
    "copy": _copy,
    "sort": _sort,
}


def install() -> None:
    """Give the class its methods."""
    for name, function in _METHODS.items():
        setattr(Tensor, name, function)
