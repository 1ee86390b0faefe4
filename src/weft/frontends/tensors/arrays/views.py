"""Views: arrays that are parts of others, so that what is assigned to one is seen in the other, as with NumPy.

A view knows the array that it is of, and the steps that lead from that one's expression to its own. Expressions never
change: an assignment gives the array another one, and a view makes its own from that when it is next looked at; an
assignment to a view puts what was assigned back through its steps. A view does not keep its array alive, and is an
array of its own when that is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.frontends.tensors import indexing, shaping
from weft.frontends.tensors.blocks import elementwise

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.frontends.tensors.types import Chunk, DType, NumpyArray


class Indexed(NamedTuple):
    """By an index of whole numbers, slices, None and an ellipsis."""

    index: Any

    def get(self, node: ArrayNode) -> ArrayNode:
        """Return what the view has of an array."""
        return indexing.get(node, self.index)

    def put(self, node: ArrayNode, value: ArrayNode) -> ArrayNode:
        """Return the array with other values in the place of the view."""
        return indexing.put(node, self.index, value)

    def of(self, x: NumpyArray) -> NumpyArray:
        """Return the view of an array of NumPy's."""
        return np.asarray(x[self.index])


class Permuted(NamedTuple):
    """With the axes in another order."""

    axes: tuple[int, ...]

    def get(self, node: ArrayNode) -> ArrayNode:
        """Return what the view has of an array."""
        return shaping.permute(node, self.axes)

    def put(self, node: ArrayNode, value: ArrayNode) -> ArrayNode:
        """Return the array with other values in the place of the view."""
        return shaping.permute(value, tuple(np.argsort(self.axes).tolist()))

    def of(self, x: NumpyArray) -> NumpyArray:
        """Return the view of an array of NumPy's."""
        return x.transpose(self.axes)


class Reshaped(NamedTuple):
    """In another shape, row by row; one length may be -1, and is then what the others leave."""

    shape: tuple[int, ...]

    def get(self, node: ArrayNode) -> ArrayNode:
        """Return what the view has of an array."""
        told = prod([n for n in self.shape if n >= 0])
        return shaping.reshape(node, [node.size // max(told, 1) if n < 0 else n for n in self.shape])

    def put(self, node: ArrayNode, value: ArrayNode) -> ArrayNode:
        """Return the array with other values in the place of the view."""
        return shaping.reshape(value, node.shape)

    def of(self, x: NumpyArray) -> NumpyArray:
        """Return the view of an array of NumPy's. ValueError: there is none, it would be a copy."""
        return np.reshape(x, self.shape, copy=False)


class Field(NamedTuple):
    """One field of a structured type."""

    name: str

    def get(self, node: ArrayNode) -> ArrayNode:
        """Return what the view has of an array."""
        return elementwise(_field, [node], node.dtype[self.name], self.name, field=self.name)

    def put(self, node: ArrayNode, value: ArrayNode) -> ArrayNode:
        """Return the array with other values in the place of the view."""
        return elementwise(_with_field, [node, value], node.dtype, self.name, field=self.name)

    def of(self, x: NumpyArray) -> NumpyArray:
        """Return the view of an array of NumPy's."""
        return np.asarray(x[self.name])


def _field(x: Chunk, *, field: str) -> Chunk:
    return x[field]


def _with_field(x: Chunk, value: Any, *, field: str) -> Chunk:
    made = x.copy()
    made[field] = value
    return made


Step = Indexed | Permuted | Reshaped | Field
Steps = tuple[Step, ...]


def is_basic(index: Any) -> bool:
    """Whether an index makes a view: it has no arrays in it."""
    listed = index if isinstance(index, tuple) else (index,)
    return all(one is None or isinstance(one, int | slice | EllipsisType) for one in listed)


def read(node: ArrayNode, steps: Steps) -> ArrayNode:
    """Return what a view has of an array."""
    for step in steps:
        node = step.get(node)
    return node


def written(node: ArrayNode, steps: Steps, value: ArrayNode) -> ArrayNode:
    """Return the array with other values in the place of a view."""
    before = [node]
    for step in steps[:-1]:
        before.append(step.get(before[-1]))
    for held, step in zip(reversed(before), reversed(steps), strict=True):
        value = step.put(held, value)
    return value


def in_memory(shape: Sequence[int], dtype: DType, order: str) -> NumpyArray:
    """Return an array that lies in memory as one of a shape would, without room for values: only to look at strides."""
    lengths = [max(n, 1) for n in shape]
    steps = np.cumprod([dtype.itemsize, *(lengths[::-1] if order == "C" else lengths)])[:-1].tolist()
    strides = steps[::-1] if order == "C" else steps
    return np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)


def lying(shape: Sequence[int], dtype: DType, order: str, steps: Steps) -> NumpyArray:
    """Return the view of an array `in_memory` that steps lead to. ValueError: they lead to a copy."""
    found = in_memory(shape, dtype, order)
    for step in steps:
        found = step.of(found)
    return found


def there_is(shape: Sequence[int], dtype: DType, order: str, steps: Steps) -> bool:
    """Whether steps from an array of a shape lead to a view."""
    try:
        lying(shape, dtype, order, steps)
    except ValueError:
        return False
    return True
