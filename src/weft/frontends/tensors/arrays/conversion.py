"""Conversion of arguments to expressions: Weft and NumPy arrays, numbers, lists, and indices of these."""

from __future__ import annotations

from collections.abc import Iterable
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import shaping, sources
from weft.frontends.tensors.arrays import chunking
from weft.frontends.tensors.arrays.deferred import Expressed
from weft.frontends.tensors.chunks import known
from weft.frontends.tensors.nodes import ArrayNode

if TYPE_CHECKING:
    from weft.frontends.tensors.types import DType

Scalar = bool | int | float | complex
"""A Python number: it takes the dtype of the other operand."""
_NUMBERS = "biufc"
"""The kinds of dtypes that are cast to one another whatever the values are."""


class SparseArgumentError(TypeError):
    """A sparse array was given where dense ones are expected."""


def dense(value: Any) -> Any:
    """Return the argument. TypeError: it is a sparse array, or some of its elements are masked."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise TypeError("some elements are masked: masks are not supported; give x.filled(value)")
    if not isinstance(value, np.ndarray) and hasattr(type(value), "nnz"):
        raise SparseArgumentError(
            f"{type(value).__name__}: this function takes no sparse arrays; call the methods of asarray(x), or give "
            "x.todense()"
        )
    return value


def as_node(value: Any, like: DType | None = None) -> ArrayNode:
    """Return the expression of an array, of a value that NumPy makes an array of, or of a Python number.

    A number takes dtype `like` if that can hold it.
    """
    if isinstance(value, Expressed):
        return value.node
    if isinstance(value, Scalar) and like is not None:
        found = np.asarray(value, dtype=like if np.result_type(type(value), like) == like else None)
    else:
        found = np.asarray(dense(value))
    if found.dtype.kind not in "biufcmMSUOV":
        raise TypeError(f"arrays of {found.dtype} are not supported")
    if not found.ndim:
        return sources.full((), found[()], found.dtype)
    return sources.from_array(found, chunking.cut(found.shape, found.dtype.itemsize), found.dtype)


def converted(value: Any, dtype: DType) -> ArrayNode:
    """Return the expression of a value as an array of a dtype.

    ValueError, TypeError: there is no such cast, or a value that is known here is none of this dtype.
    """
    node = as_node(value, dtype)
    if node.dtype.kind not in _NUMBERS and node.dtype != dtype and (held := sources.held(node)) is not None:
        node = as_node(held.astype(dtype))
    return shaping.cast(node, dtype)


def loose(value: Any) -> ArrayNode | Scalar:
    """Return a node, or a Python number unchanged."""
    if isinstance(value, Expressed):
        return value.loose
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        return value
    return as_node(value)


def common_dtype(given: Iterable[ArrayNode | Scalar]) -> DType:
    """Return the dtype that holds arrays beside Python numbers, as NumPy promotes them."""
    return np.result_type(*[one.dtype if isinstance(one, ArrayNode) else one for one in given])


def promoted(values: Iterable[Any]) -> tuple[list[ArrayNode], DType]:
    """Return the expressions of arrays and Python numbers, and their common dtype, which the numbers have.

    OverflowError: a number does not fit it.
    """
    given = [loose(one) for one in values]
    dtype = common_dtype(given)
    return [one if isinstance(one, ArrayNode) else as_node(np.asarray(one, dtype)) for one in given], dtype


def loose_node(x: Any) -> ArrayNode:
    """Return the expression of an array, whose chunks may be of unknown lengths."""
    return x.loose if isinstance(x, Expressed) else as_node(x)


def aligned(*operands: Any) -> list[ArrayNode | Scalar]:
    """Return arrays as nodes that fit together element by element, and Python numbers unchanged.

    Lengths may be unknown if all arrays have the same ones.
    """
    nodes = [loose(one) for one in operands]
    if any(isinstance(one, ArrayNode) and not known(one.grid) for one in nodes) and len(nodes) > 1:
        grids = {tuple(map(id, one.grid)) for one in nodes if isinstance(one, ArrayNode) and one.grid}
        if len(grids) > 1:
            return [
                as_node(one) if isinstance(one, Expressed) else node for one, node in zip(operands, nodes, strict=True)
            ]
    return nodes


def plain_index(index: Any) -> Any:
    """Return an index with plain integers and slices, and arrays for all other entries."""
    if isinstance(index, tuple):
        return tuple([plain_index(list(one) if isinstance(one, tuple) else one) for one in index])
    if index is None or isinstance(index, EllipsisType):
        return index
    if isinstance(index, slice):
        return slice(*[None if end is None else _whole(end) for end in (index.start, index.stop, index.step)])
    if isinstance(index, bool | np.bool):
        return np.asarray(index)
    if isinstance(index, int | np.integer):
        return int(index)
    if isinstance(index, Expressed):
        return index if index._node.dtype.kind == "b" or index._node.grid else int(index)  # type: ignore[call-overload]
    if isinstance(index, np.ndarray):
        return index if index.ndim or index.dtype.kind not in "iu" else int(index)
    if isinstance(index, list | range):
        found = np.asarray(index)
        return found if found.size else found.astype(np.int64)
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and integer or boolean arrays are valid indices"
    )


def nodes_in(index: Any) -> Any:
    """Return an index with nodes for arrays."""
    if isinstance(index, tuple):
        return tuple([nodes_in(one) for one in index])
    return as_node(index) if isinstance(index, Expressed | np.ndarray) else index


def _whole(value: Any) -> int:
    return value.__index__()  # type: ignore[no-any-return]


def is_plain(value: Any) -> bool:
    """Return whether a value consists of Python numbers."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return isinstance(value, int | float | complex) and not isinstance(value, np.generic)
