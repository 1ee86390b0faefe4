"""Views: arrays that are parts of others, so that an assignment to one changes the other, as with NumPy.

A view refers to its base array, and to the steps from the base's expression to its own. Expressions never change: an
assignment gives the array a new expression, and its views derive theirs from it when they are next read; an assignment
to a view puts the values back through its steps. A view does not keep its base alive, and becomes an independent array
when the base is deleted.
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
    """A step: an index of whole numbers, slices, None and an ellipsis."""

    index: Any

    def get(self, node: ArrayNode) -> ArrayNode:
        """Return the view's part of an array."""
        return indexing.get(node, self.index)

    def put(self, node: ArrayNode, value: ArrayNode) -> ArrayNode:
        """Return the array with other values in the place of the view."""
        return indexing.put(node, self.index, value)

    def of(self, x: NumpyArray) -> NumpyArray:
        """Return the view of a NumPy array."""
        return np.asarray(x[self.index])


class Permuted(NamedTuple):
    """A step: another order of the axes."""

    axes: tuple[int, ...]

    def get(self, node: ArrayNode) -> ArrayNode:
        """Return the view's part of an array."""
        return shaping.permute(node, self.axes)

    def put(self, node: ArrayNode, value: ArrayNode) -> ArrayNode:
        """Return the array with other values in the place of the view."""
        return shaping.permute(value, tuple(np.argsort(self.axes).tolist()))

    def of(self, x: NumpyArray) -> NumpyArray:
        """Return the view of a NumPy array."""
        return x.transpose(self.axes)


class Reshaped(NamedTuple):
    """A step: another shape, row by row; one length may be -1 and follows from the others."""

    shape: tuple[int, ...]

    def get(self, node: ArrayNode) -> ArrayNode:
        """Return the view's part of an array."""
        known = prod([n for n in self.shape if n >= 0])
        return shaping.reshape(node, [node.size // max(known, 1) if n < 0 else n for n in self.shape])

    def put(self, node: ArrayNode, value: ArrayNode) -> ArrayNode:
        """Return the array with other values in the place of the view."""
        return shaping.reshape(value, node.shape)

    def of(self, x: NumpyArray) -> NumpyArray:
        """Return the view of a NumPy array. ValueError: only a copy has this shape."""
        return np.reshape(x, self.shape, copy=False)


class Field(NamedTuple):
    """A step: one field of a structured type."""

    name: str

    def get(self, node: ArrayNode) -> ArrayNode:
        """Return the view's part of an array."""
        return elementwise(_field, [node], node.dtype[self.name], self.name, field=self.name)

    def put(self, node: ArrayNode, value: ArrayNode) -> ArrayNode:
        """Return the array with other values in the place of the view."""
        return elementwise(_with_field, [node, value], node.dtype, self.name, field=self.name)

    def of(self, x: NumpyArray) -> NumpyArray:
        """Return the view of a NumPy array."""
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
    """Return whether an index makes a view: it contains no arrays."""
    listed = index if isinstance(index, tuple) else (index,)
    return all(one is None or isinstance(one, int | slice | EllipsisType) for one in listed)


def read(node: ArrayNode, steps: Steps) -> ArrayNode:
    """Return a view's part of an array."""
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
    """Return a NumPy array with the strides of a shape, without memory for values; only to inspect strides."""
    lengths = [max(n, 1) for n in shape]
    steps = np.cumprod([dtype.itemsize, *(lengths[::-1] if order == "C" else lengths)])[:-1].tolist()
    strides = steps[::-1] if order == "C" else steps
    return np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)


def lying(shape: Sequence[int], dtype: DType, order: str, steps: Steps) -> NumpyArray:
    """Return the view of an array `in_memory` after some steps. ValueError: a step copies."""
    found = in_memory(shape, dtype, order)
    for step in steps:
        found = step.of(found)
    return found


def there_is(shape: Sequence[int], dtype: DType, order: str, steps: Steps) -> bool:
    """Return whether steps from an array of a shape give a view."""
    try:
        lying(shape, dtype, order, steps)
    except ValueError:
        return False
    return True
