"""Ufuncs called with the arguments that NumPy's have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import shaping
from weft.frontends.tensors.arrays.array import Tensor, apply, put_into
from weft.frontends.tensors.arrays.conversion import as_node

if TYPE_CHECKING:
    from weft.frontends.tensors.types import DType


def called(
    ufunc: np.ufunc,
    operands: Sequence[Any],
    out: Any,
    where: Any,
    *,
    dtype: Any = None,
    casting: Any = "same_kind",
    order: str = "K",
    at: int = 0,
) -> Tensor:
    """Return a ufunc of arrays, or its result number `at`, with the arguments that NumPy's have.

    `where` needs `out`. TypeError: `casting` does not allow the needed conversion.
    """
    if dtype is not None:
        operands = [_cast_by(one, np.dtype(dtype), casting) for one in operands]
    made = apply(ufunc, *operands, out=at)
    if out is None:
        return made.ordered(order)
    return put_into(out[0] if isinstance(out, tuple) else out, made, where, casting)  # type: ignore[no-any-return]


def _cast_by(value: Any, dtype: DType, casting: Any) -> Tensor:
    node = as_node(value, dtype)
    if not np.can_cast(node.dtype, dtype, casting):
        raise TypeError(f"Cannot cast ufunc input from {node.dtype} to {dtype} with casting rule {casting!r}")
    return Tensor(shaping.cast(node, dtype))
