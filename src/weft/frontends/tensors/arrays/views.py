"""Views: arrays that are parts of others, so that an assignment to one changes the other, as with NumPy.

An array and its views share a root, and each has the steps from the root's expression to its own. Expressions never
change: an assignment gives the root a new expression, through the steps of the array that is assigned to, and the
others derive theirs from it when they are next read. The last array that is left lets go of the root as soon as it has
its values, so that a view does not keep the rest of the elements in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import ReferenceType, ref

import numpy as np

from weft.frontends.tensors import diagonals, indexing, shaping
from weft.frontends.tensors.arrays import chunking
from weft.frontends.tensors.blocks import elementwise, rechunk, whole_along
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.nodes import call

if TYPE_CHECKING:
    from weft.frontends.tensors.nodes import ArrayNode
    from weft.frontends.tensors.types import Chunk, DType, NumpyArray


READ_ONLY = "assignment destination is read-only"
"""The words of NumPy for a view that can only be read."""


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


class SeveralFields(NamedTuple):
    """A step: several fields of a structured type."""

    names: tuple[str, ...]

    def get(self, node: ArrayNode) -> ArrayNode:
        """Return the view's part of an array. KeyError: there is no such field."""
        kind = node.dtype[list(self.names)]
        return elementwise(_fields, [node], kind, "fields", fields=self.names)

    def put(self, node: ArrayNode, value: ArrayNode) -> ArrayNode:
        """Return the array with other values in the place of the view."""
        return elementwise(_with_fields, [node, value], node.dtype, "fields", fields=self.names)

    def of(self, x: NumpyArray) -> NumpyArray:
        """Return the view of a NumPy array."""
        return np.asarray(x[list(self.names)])


def _fields(x: Chunk, *, fields: tuple[str, ...]) -> Chunk:
    return x[list(fields)]


def _with_fields(x: Chunk, value: Any, *, fields: tuple[str, ...]) -> Chunk:
    made = x.copy()
    for name in fields:
        made[name] = value[name]
    return made


class Retyped(NamedTuple):
    """A step: the bytes of the elements as elements of another type."""

    dtype: DType

    def get(self, node: ArrayNode) -> ArrayNode:
        """Return the view's part of an array. ValueError, TypeError: as NumPy words it."""
        shape = in_memory(node.shape, node.dtype, "C").view(self.dtype).shape
        if shape == node.shape:
            return call(_retyped, node, node.grid, self.dtype, name="view", dtype=self.dtype)
        *before, last = node.grid
        ends = [n * node.dtype.itemsize for n in last.lengths()]
        if any(n % self.dtype.itemsize for n in ends):
            *before, last = whole_along(node, (len(before),)).grid
            ends = [n * node.dtype.itemsize for n in last.lengths()]
        grid = (*before, Cut.of([n // self.dtype.itemsize for n in ends]))
        return call(_retyped, rechunk(node, (*before, last)), grid, self.dtype, name="view", dtype=self.dtype)

    def put(self, node: ArrayNode, value: ArrayNode) -> ArrayNode:
        """Return the array with other values in the place of the view."""
        return Retyped(node.dtype).get(value)

    def of(self, x: NumpyArray) -> NumpyArray:
        """Return the view of a NumPy array."""
        return x.view(self.dtype)


def _retyped(x: Chunk, *, dtype: DType) -> Chunk:
    return np.asarray(x, order="C").view(dtype)


class Diagonal(NamedTuple):
    """A step: the diagonals of the last two axes, which can only be read."""

    offset: int

    def get(self, node: ArrayNode) -> ArrayNode:
        """Return the view's part of an array."""
        return diagonals.diagonal(node, self.offset)

    def put(self, node: ArrayNode, value: ArrayNode) -> ArrayNode:
        """Raise ValueError, as NumPy."""
        raise ValueError(READ_ONLY)

    def of(self, x: NumpyArray) -> NumpyArray:
        """Return the view of a NumPy array."""
        return x.diagonal(self.offset, -2, -1)


class BroadcastTo(NamedTuple):
    """A step: the elements repeated until there is a shape, which can only be read."""

    shape: tuple[int, ...]

    def get(self, node: ArrayNode) -> ArrayNode:
        """Return the view's part of an array."""
        own = node.grid
        grid = list(chunking.cut(self.shape, node.dtype.itemsize))
        for axis, cut in enumerate(own):
            if cut.size != 1 or self.shape[axis + len(self.shape) - len(own)] == 1:
                grid[axis + len(self.shape) - len(own)] = cut
        return shaping.broadcast_to(node, tuple(grid))

    def put(self, node: ArrayNode, value: ArrayNode) -> ArrayNode:
        """Raise ValueError, as NumPy."""
        raise ValueError(READ_ONLY)

    def of(self, x: NumpyArray) -> NumpyArray:
        """Return the view of a NumPy array."""
        return np.broadcast_to(x, self.shape)


class ComplexPart(NamedTuple):
    """A step: the real or the imaginary part of complex numbers."""

    name: str

    def get(self, node: ArrayNode) -> ArrayNode:
        """Return the view's part of an array."""
        return elementwise(_complex_part, [node], np.empty(0, node.dtype).real.dtype, self.name, part=self.name)

    def put(self, node: ArrayNode, value: ArrayNode) -> ArrayNode:
        """Return the array with other values in the place of the view."""
        return elementwise(_with_complex_part, [node, value], node.dtype, self.name, part=self.name)

    def of(self, x: NumpyArray) -> NumpyArray:
        """Return the view of a NumPy array."""
        return np.asarray(getattr(x, self.name))


def _complex_part(x: Chunk, *, part: str) -> Chunk:
    return getattr(x, part)


def _with_complex_part(x: Chunk, value: Any, *, part: str) -> Chunk:
    made = x.copy()
    getattr(made, part)[...] = value
    return made


Step = Indexed | Permuted | Reshaped | Field | SeveralFields | Retyped | Diagonal | BroadcastTo | ComplexPart
Steps = tuple[Step, ...]


class Sharer(Protocol):
    """An array that shares its elements with others."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        ...

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        ...

    @property
    def order(self) -> str:
        """The memory order, "C" or "F"."""
        ...

    def let_go(self) -> None:
        """Share the elements no longer with others, if it has their present values."""
        ...


Array = TypeVar("Array", bound=Sharer)


def only_read(steps: Steps) -> bool:
    """Return whether nothing can be assigned through steps."""
    return any(isinstance(step, Diagonal | BroadcastTo) for step in steps)


class SharedElements(Generic[Array]):
    """The elements that an array and its views share: their root, an array of its own, and who shares them.

    `memory` has the strides of the root, if it was a view itself.
    """

    __slots__ = ("__weakref__", "_memory", "_sharers", "root")

    def __init__(self, root: Array, memory: NumpyArray | None) -> None:
        self.root = root
        self._memory = memory
        self._sharers: dict[int, ReferenceType[Array]] = {}

    def strided(self, steps: Steps) -> NumpyArray:
        """Return an array with the strides of steps from the root, without memory. ValueError: a step copies."""
        root, found = self.root, self._memory
        if found is None:
            found = in_memory(root.shape, root.dtype, root.order)
        for step in steps:
            found = step.of(found)
        return found

    def certainly_views(self, steps: Steps) -> bool:
        """Return whether steps from the root give a view whatever the lengths are."""
        in_rows = self._memory is None and self.root.order == "C"
        return (in_rows and len(steps) == 1) or not any(isinstance(step, Reshaped) for step in steps)

    def views(self, steps: Steps) -> bool:
        """Return whether steps from the root give a view."""
        return self.memory(steps) is not None

    def memory(self, steps: Steps) -> NumpyArray | None:
        """Return the same as `strided`, or None if a step copies."""
        try:
            return self.strided(steps)
        except (ValueError, IndexError):  # an index may exceed the lengths of a stand-in
            return None

    def join(self, one: Array) -> None:
        """Let another array share the elements."""
        self._sharers[id(one)] = ref(one, partial(_left, ref(self), id(one)))

    def leave(self, number: int) -> None:
        """Let the array of this id no longer share the elements; the last one that does lets go of them, if it can."""
        self._sharers.pop(number, None)
        self.release()

    def alone(self) -> bool:
        """Return whether one array has the elements."""
        return len(self._sharers) == 1

    def release(self) -> None:
        """Let the only array that shares the elements have them alone, if it has their present values."""
        left = list(self._sharers.values())
        if len(left) == 1 and (last := left[0]()) is not None:
            last.let_go()


def _left(shared: ReferenceType[SharedElements[Array]], number: int, _: ReferenceType[Array]) -> None:
    found = shared()
    if found is not None:
        found.leave(number)


def is_basic(index: Any) -> bool:
    """Return whether an index makes a view: it contains no arrays."""
    listed = index if isinstance(index, tuple) else (index,)
    return all(one is None or isinstance(one, int | slice | EllipsisType) for one in listed)


def is_view(index: Any, made: ArrayNode) -> bool:
    """Return whether the elements of an index are a view; a single element is one only of an index with an ellipsis."""
    listed = index if isinstance(index, tuple) else (index,)
    return is_basic(index) and (bool(made.grid) or any(one is Ellipsis for one in listed))


def read(node: ArrayNode, steps: Steps) -> ArrayNode:
    """Return a view's part of an array."""
    for step in steps:
        node = step.get(node)
    return node


def written(node: ArrayNode, steps: Steps, value: ArrayNode) -> ArrayNode:
    """Return the array with other values in the place of a view."""
    if not steps:
        return value
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
