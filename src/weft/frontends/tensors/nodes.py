"""Expressions: arrays as a graph of operations with one node for each operation, whatever the number of chunks.

A node describes one of its chunks: a call over the chunks that it reads of its inputs. Functions of the public
namespace make nodes at once, and determine shape, dtype and chunks, so that errors appear at the call; values are
computed on request only.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
from enum import Enum
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.frontends.tensors.chunks import Grid, chunks_in, coordinates, counts, known, largest, shape_of
from weft.operators.region_steps import ChunkPlace, KernelKind, OperandSlot

if TYPE_CHECKING:
    from weft.frontends.tensors.types import DType
    from weft.graph.axes import Axis

_numbers = itertools.count(1)


class Read(Enum):
    """The ways in which the chunks of a node read those of an input."""

    SAME = "same"
    """Chunk i reads chunk i: the same number, in grids with equally many chunks."""
    TREE = "tree"
    """Chunk i reads the neighbours from `k * i` on, as a list: one level of a tree."""
    GRID = "grid"
    """Chunks are mapped by `axes`."""
    ALL = "all"
    """Every chunk reads all chunks, as a list."""


class NodeInput(NamedTuple):
    """An input of a node, and the way in which its chunks are read.

    With `Read.GRID`, `dst` is the grid of the reader's chunks, and `axes` map each of its axes to the source's grid
    `src`; see `weft.graph.axes`. With `partial` some chunks read nothing, and all get a list. With `pieces` a chunk of
    the source is a list of pieces, one for each chunk that reads it.
    """

    node: ArrayNode
    read: Read = Read.SAME
    k: int = 1
    src: tuple[int, ...] = ()
    dst: tuple[int, ...] = ()
    axes: tuple[Axis, ...] = ()
    partial: bool = False
    pieces: bool = False

    def of(self, node: ArrayNode) -> NodeInput:
        """Return the same way of reading another node."""
        return self._replace(node=node)

    @property
    def key(self) -> tuple[Any, ...]:
        """The identity of the input."""
        return (self.node.number, *self[1:])


class Computable:
    """A value that is computed on request.

    Nodes hold its value in place of it: a task that computed it would wait for the session that waits for the task.
    """

    __slots__ = ()

    def as_parameter(self) -> Any:
        """Compute the value and return it."""
        raise NotImplementedError


def computed(value: Any) -> Any:
    """Return a parameter with values in place of all `Computable` ones, also inside lists, tuples and dicts."""
    if isinstance(value, Computable):
        return value.as_parameter()
    kind = type(value)
    if kind in (list, tuple):
        found = [computed(one) for one in value]
        return value if all(map(operator.is_, found, value)) else kind(found)
    if kind is dict:
        return {key: computed(one) for key, one in value.items()}
    return value


class ArrayNode:
    """One operation: the call that makes each chunk, and shape, dtype and chunks of the array.

    `args` are those of the call: an `OperandSlot(i)` stands for input i. Each reader makes `cheap` nodes again instead
    of storing them. A `unique` node equals no other, even one with the same call.
    """

    __slots__ = (
        "args",
        "cheap",
        "dtype",
        "fn",
        "grid",
        "held",
        "inputs",
        "kind",
        "kwargs",
        "name",
        "number",
        "shape",
        "unique",
    )

    def __init__(
        self,
        kind: KernelKind,
        fn: Any,
        inputs: Sequence[NodeInput],
        grid: Grid,
        dtype: DType,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        cheap: bool = False,
        unique: bool = False,
        name: str = "",
    ) -> None:
        self.number = next(_numbers)
        self.kind = kind
        self.fn = fn
        self.inputs = tuple(inputs)
        self.grid = grid
        self.shape = shape_of(grid)
        self.dtype = dtype
        self.args = tuple([OperandSlot(i) for i in range(len(self.inputs))]) if args is None else tuple(args)
        self.kwargs = {key: computed(value) for key, value in kwargs.items()} if kwargs else {}
        self.cheap = cheap
        self.name = name or getattr(fn, "__name__", "chunk").strip("_")
        self.unique = unique
        self.held: int | None = None  # the most bytes of a chunk that is no dense array, -1 if unknown

    def over(self, inputs: Sequence[NodeInput]) -> ArrayNode:
        """Return the same call over other inputs."""
        made = copy(self)
        made.number, made.inputs = next(_numbers), tuple(inputs)
        return made

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return chunks_in(self.grid)

    @property
    def size(self) -> int:
        """The number of elements; the lengths must be known."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements; the lengths must be known. Of sparse chunks the most that they take, if known."""
        return self.size * self.dtype.itemsize if self.held is None else max(self.held, 0) * self.chunks

    @property
    def chunk_bytes(self) -> int | None:
        """The most bytes of a chunk; None if unknown."""
        if self.held is not None:
            return self.held if self.held >= 0 else None
        return largest(self.grid) * self.dtype.itemsize if known(self.grid) else None

    def place(self, index: int) -> ChunkPlace:
        """Return the position of chunk `index`, without unknown lengths."""
        return ChunkLocator(self.grid)(index)

    def key(self) -> Any:
        """Return the identity of the call; None if it has none, or the node is unique."""
        if self.unique:
            return None
        parts = (
            self.kind,
            self.fn,
            tuple([one.key for one in self.inputs]),
            self.args,
            tuple(sorted(self.kwargs.items())),
            self.dtype,
            tuple([cut if cut.known else id(cut) for cut in self.grid]),
        )
        try:
            hash(parts)
        except TypeError:
            return None
        # 1, 1.0 and True are equal, and so are 0.0 and -0.0, but the calls differ.
        return (parts, repr((self.args, parts[4])))


def call(
    fn: Any,
    inputs: ArrayNode | Sequence[ArrayNode | NodeInput],
    grid: Grid,
    dtype: DType,
    /,
    *,
    placed: bool = False,
    cheap: bool = False,
    unique: bool = False,
    name: str = "",
    **kwargs: Any,
) -> ArrayNode:
    """Return a node whose chunks are calls over one input or several, with keyword arguments.

    Chunk i reads chunk i of an input that is a node. With `placed` the function gets the position of the chunk first.
    """
    listed = [inputs] if isinstance(inputs, ArrayNode) else inputs
    read = [NodeInput(one) if isinstance(one, ArrayNode) else one for one in listed]
    kind = KernelKind.PLACED if placed else KernelKind.CALL
    return ArrayNode(kind, fn, read, grid, dtype, kwargs=kwargs, cheap=cheap, unique=unique, name=name)


def walk(
    wanted: Iterable[ArrayNode], same: Mapping[int, ArrayNode] | None = None, *, stop: Container[int] = ()
) -> list[ArrayNode]:
    """Return all nodes, inputs first. Without recursion: expressions may be thousands deep.

    With `same` each node counts as the one that it maps to; nodes with numbers in `stop` are not followed.
    """
    seen: set[int] = set()
    order: list[ArrayNode] = []
    stack: list[tuple[ArrayNode, bool]] = [(node, False) for node in reversed(list(wanted))]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
            continue
        if same is not None:
            node = same[node.number]
        if node.number in seen:
            continue
        seen.add(node.number)
        stack.append((node, True))
        if node.number not in stop:
            stack.extend((one.node, False) for one in reversed(node.inputs) if one.node.number not in seen)
    return order


class ChunkLocator:
    """The positions of the chunks of a grid. Travels with a program to the workers."""

    __slots__ = ("_counts", "_grid")

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._counts = counts(grid)

    def __call__(self, index: int) -> ChunkPlace:
        """Return the position of chunk `index`."""
        if len(self._grid) == 1:
            lo, hi = self._grid[0].span(index)
            return ChunkPlace(index, (index,), (lo,), (hi - lo,))
        at = coordinates(index, self._counts)
        spans = [cut.span(i) for cut, i in zip(self._grid, at, strict=True)]
        return ChunkPlace(index, at, tuple([lo for lo, _ in spans]), tuple([hi - lo for lo, hi in spans]))

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkLocator, (self._grid,)
