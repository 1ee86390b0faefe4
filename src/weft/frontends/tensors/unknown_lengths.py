"""Operations on unknown lengths, whose nodes are made while the graph runs.

The composition of a slice, a reshape or a sort depends on the lengths of the chunks that it reads. If these depend on
data, the operation is a `DeferredNode`: a node that makes the ordinary nodes when the lengths are known. A
`DeferredPlan` lists the nodes that must be computed first, and makes the expression again from them: in an expander
(`compiler.Expansion`), or in the thread of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from weft.frontends.tensors.chunks import Cut, Grid, counts, known, one_chunk
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, call, walk
from weft.graph.axes import ranges
from weft.model.errors import InternalError
from weft.operators.region_steps import KernelKind

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk, DType


class Build(Protocol):
    """Makes the nodes of an operation from those of its operands, whose lengths are known."""

    @property
    def name(self) -> str:
        """The name of the operation."""
        ...

    def __call__(self, operands: Sequence[ArrayNode]) -> Sequence[ArrayNode]:
        """Return the nodes of all results; errors are those of NumPy for these lengths."""
        ...


class DeferredNode(ArrayNode):
    """Result `at` of an operation whose nodes are made when the lengths of its operands are known.

    `sample` is an array of its dtype and axes, with the lengths that result from unknown lengths of 1.
    """

    __slots__ = ("at", "build", "sample")

    def __init__(self, build: Build, operands: Sequence[ArrayNode], at: int, sample: ArrayNode) -> None:
        grid = tuple([Cut.uncounted() for _ in sample.grid])
        inputs = [NodeInput(one, Read.ALL) for one in operands]
        super().__init__(KernelKind.CALL, _unmade, inputs, grid, sample.dtype, unique=True, name=build.name)
        self.build = build
        self.at = at
        self.sample = sample


def lengths_known(node: ArrayNode) -> bool:
    """Return whether a node is an ordinary node with known lengths."""
    return known(node.grid) and not isinstance(node, DeferredNode)


def stand_in(shape: Sequence[int], dtype: DType) -> ArrayNode:
    """Return an array without values, from which an operation derives the dtype and the axes of its result."""
    return call(_unmade, [], one_chunk(shape), dtype, unique=True, name="sample")


def sample_of(node: ArrayNode) -> ArrayNode:
    """Return a node itself, or a stand-in with unknown lengths set to 1."""
    if isinstance(node, DeferredNode):
        return node.sample
    if known(node.grid):
        return node
    return stand_in([cut.size if cut.known else 1 for cut in node.grid], node.dtype)


def _unmade(*parts: Chunk) -> Chunk:
    raise InternalError("an operation was computed before its lengths were known", hint="Please report this.")


# ------------------------------------------------------------------------------------------------------- lengths


class Measured(NamedTuple):
    """A grid with measured chunk lengths, and for each axis the chunks of the original grid that it contains.

    Empty chunks are left out if there are others.
    """

    grid: Grid
    kept: tuple[tuple[int, ...], ...]
    along: tuple[int, ...]

    @property
    def everything(self) -> bool:
        """Whether no chunk was left out."""
        return self.along == counts(self.grid)

    @property
    def at(self) -> list[int]:
        """The chunks in the grid, in row-major order."""
        return [int(np.ravel_multi_index(index, self.along)) for index in product(*self.kept)]


def measured(grid: Grid, shapes: Sequence[tuple[int, ...]]) -> Measured:
    """Return the measured lengths of the chunks of a grid; their shapes come in row-major order."""
    along = counts(grid)
    lengths = [_lengths(axis, cut, along, shapes) for axis, cut in enumerate(grid)]
    kept = tuple([tuple([i for i, length in enumerate(one) if length] or [0]) for one in lengths])
    found = tuple([Cut.of([one[i] for i in some]) for one, some in zip(lengths, kept, strict=True)])
    return Measured(found, kept, along)


def _lengths(axis: int, cut: Cut, along: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> Sequence[int]:
    if cut.known:
        return cut.lengths()
    step = prod(along[axis + 1 :])
    return [shapes[i * step][axis] for i in range(cut.n)]


def made(grid: Grid, dtype: DType, name: str) -> ArrayNode:
    """Return a node for chunks that the graph makes elsewhere."""
    return call(_unmade, [], grid, dtype, unique=True, name=name)


def without_empty(node: ArrayNode, found: Measured) -> ArrayNode:
    """Return the chunks of a node that are in a measured grid, as an array of that grid."""
    axes = tuple([ranges(axis, [(i, i + 1) for i in some]) for axis, some in enumerate(found.kept)])
    one = NodeInput(node, Read.GRID, src=found.along, dst=counts(found.grid), axes=axes)
    return call(_only, [one], found.grid, node.dtype, name=node.name)


def _only(x: Chunk) -> Chunk:
    if isinstance(x, list):
        (x,) = x
    return x


def copy_of(node: ArrayNode) -> ArrayNode:
    """Return a node with exactly the chunks of another one."""
    return call(_only, node, node.grid, node.dtype, name=node.name)


# ---------------------------------------------------------------------------------------------------------- plans


class Given(NamedTuple):
    """A step of a plan: node `at` of the nodes that are computed first."""

    at: int


class Again(NamedTuple):
    """A step of a plan: a call over the results of other steps."""

    node: ArrayNode
    reads: tuple[tuple[int, NodeInput], ...]


class Make(NamedTuple):
    """A step of a plan: result `at` of an operation over the results of other steps."""

    build: Build
    operands: tuple[int, ...]
    at: int


_NOTHING = call(_unmade, [], (), np.dtype(bool), unique=True)


class DeferredPlan:
    """The steps that make an expression when its lengths are known; flat, so that any depth can be pickled.

    `first` are the nodes that are computed before; `wanted` are the numbers of the steps with the results.
    """

    def __init__(self, wanted: Sequence[ArrayNode], first: Sequence[ArrayNode], same: Mapping[int, ArrayNode]) -> None:
        self.grids = tuple([node.grid for node in first])
        self._steps: list[Given | Again | Make] = []
        places: dict[int, int] = {}
        for at, node in enumerate(first):
            places[node.number] = len(self._steps)
            self._steps.append(Given(at))
        for node in walk(wanted, same, stop=places):
            if node.number in places:
                continue
            reads = [(places[same[one.node.number].number], one) for one in node.inputs]
            places[node.number] = len(self._steps)
            if isinstance(node, DeferredNode):
                self._steps.append(Make(node.build, tuple([at for at, _ in reads]), node.at))
            else:
                self._steps.append(Again(node.over([]), tuple([(at, one.of(_NOTHING)) for at, one in reads])))
        self._wanted = tuple([places[same[node.number].number] for node in wanted])

    def __call__(self, first: Sequence[ArrayNode]) -> list[ArrayNode]:
        """Return the wanted nodes, made from those that were computed; errors are those of the operations."""
        nodes: list[ArrayNode] = []
        results: dict[tuple[int, tuple[int, ...]], Sequence[ArrayNode]] = {}
        for step in self._steps:
            if isinstance(step, Given):
                nodes.append(first[step.at])
            elif isinstance(step, Again):
                nodes.append(step.node.over([one.of(nodes[at]) for at, one in step.reads]))
            else:
                key = id(step.build), step.operands
                if key not in results:
                    results[key] = step.build([nodes[at] for at in step.operands])
                nodes.append(results[key][step.at])
        return [nodes[at] for at in self._wanted]


def first_of(
    wanted: Sequence[ArrayNode], same: Mapping[int, ArrayNode], held: Callable[[ArrayNode], bool]
) -> list[ArrayNode]:
    """Return the nodes to compute before the rest of an expression can be made; empty if all can be made now.

    They are the inputs of its operations of unknown lengths, as far as their own lengths depend on data, and nodes that
    are computed anyway or `held`. All other nodes are made when the lengths are known, so that only the parts that are
    read are computed.
    """
    order = walk(wanted, same)
    later = [node for node in order if isinstance(node, DeferredNode)]
    if not later:
        return []
    settled: set[int] = set()  # nodes made only of known lengths
    for node in order:
        if lengths_known(node) and all(same[one.node.number].number in settled for one in node.inputs):
            settled.add(node.number)
    operands = {
        node.number: node
        for reader in later
        for node in [same[one.node.number] for one in reader.inputs]
        if not isinstance(node, DeferredNode)
    }
    first = {number: node for number, node in operands.items() if number not in settled}
    plain = [node for node in wanted if not isinstance(node, DeferredNode)]
    computed = walk([*plain, *first.values()], same)
    anyway = {node.number for node in computed if not node.cheap}
    anyway -= {same[one.node.number].number for node in order for one in node.inputs if one.pieces}
    stack = [node for number, node in operands.items() if number in settled]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node.number in seen:
            continue
        seen.add(node.number)
        if node.number in anyway or held(node):
            first[node.number] = node
        else:
            stack.extend(same[one.node.number] for one in node.inputs)
    return [node for node in order if node.number in first]


def no_one(node: ArrayNode) -> bool:
    """Return that no node's chunks are held."""
    return False
