"""Methods of arrays: functions of this package, called as NumPy's users call them on an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.frontends.tensors.arrays import (
    arguments,
    elementwise,
    linalg,
    numpy_names,
    older_names,
    searching,
    shapes,
    statistics,
)
from weft.frontends.tensors.arrays.array import Tensor


def _reshape(self: Tensor, *shape: Any, order: str = "C", copy: bool | None = None) -> Tensor:
    """Give another shape, in row-major order unless `order` is "F"; one length may be -1."""
    wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int | np.integer) else shape
    return shapes.reshape(self, wanted, order, copy=copy)


def _transpose(self: Tensor, *axes: Any) -> Tensor:
    """Put the axes into another order, the opposite one if none is given."""
    order = axes[0] if len(axes) == 1 and (axes[0] is None or not isinstance(axes[0], int | np.integer)) else axes
    return numpy_names.transpose(self, order or None)


def _compress(self: Tensor, condition: Any, axis: int | None = None, out: Any = None) -> Tensor:
    """Return the elements along an axis where a condition holds; without an axis, of the flat array."""
    return numpy_names.compress(condition, self, axis, out)


def _sort(self: Tensor, *args: Any, **kwargs: Any) -> None:
    """Sort along an axis, in place, with the arguments of `weft.tensor.sort`."""
    self._set(_SORT(self, *args, **kwargs)._node)


def _partition(self: Tensor, *args: Any, **kwargs: Any) -> None:
    """Bring elements to their places in sorted order, in place, with the arguments of `weft.tensor.partition`."""
    self._set(older_names.partition(self, *args, **kwargs)._node)


def _itself(self: Tensor) -> Tensor:
    """Return the array itself: it is dense, and there is one kind of memory."""
    return self


def _dense_only(self: Tensor) -> bool:
    """Whether this is a sparse array: it is not."""
    return False


def _moved(self: Tensor, *args: Any, **kwargs: Any) -> None:
    """Raise TypeError: arrays are dense, and are not moved to a GPU one by one."""
    raise TypeError("arrays are dense and in memory: there are no sparse ones, and none on a GPU")


def _fill(self: Tensor, value: Any) -> None:
    """Give all elements one value."""
    self[...] = value


def _bytes(self: Tensor, order: Any = "C") -> bytes:
    """Return the values as bytes: row by row, or, with order "F", column by column."""
    return self.fetch().tobytes(order)  # type: ignore[no-any-return]


def _round(self: Tensor, decimals: int | None = None) -> Tensor:
    """Round, for the built-in `round`."""
    return elementwise.round(self, decimals or 0)


def _format(self: Tensor, how: str) -> str:
    """Return the only element as text, for the built-in `format`. TypeError: there are several."""
    return format(self.fetch()[()], how) if how else str(self)


_SORT = arguments.taking("sort", searching.sort)
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
    "squeeze": shapes.squeeze,
    "swapaxes": numpy_names.swapaxes,
    "ravel": numpy_names.ravel,
    "flatten": numpy_names.flatten,
    "repeat": shapes.repeat,
    "dot": linalg.dot,
    "trace": numpy_names.trace,
    "diagonal": numpy_names.diagonal,
    "nonzero": searching.nonzero,
    "take": searching.take,
    "topk": numpy_names.topk,
    "map_chunk": numpy_names.map_chunk,
    "compress": _compress,
    "copy": older_names.copy,
    "sort": _sort,
    "argsort": searching.argsort,
    "partition": _partition,
    "argpartition": older_names.argpartition,
    "choose": older_names.choose,
    "fill": _fill,
    "tobytes": _bytes,
    "__round__": _round,
    "__format__": _format,
    "__divmod__": lambda self, other: numpy_names.divmod(self, other),
    "__rdivmod__": lambda self, other: numpy_names.divmod(other, self),
    "issparse": _dense_only,
    "todense": _itself,
    "to_cpu": _itself,
    "tosparse": _moved,
    "to_gpu": _moved,
}


def install() -> None:
    """Give the class its methods."""
    for name, function in _METHODS.items():
        setattr(Tensor, name, arguments.taking(name, function))
