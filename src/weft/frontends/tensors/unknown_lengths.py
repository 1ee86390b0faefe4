"""What depends on lengths that nobody knows yet: operations whose nodes are made while the graph runs.

How a slice, a reshape or a sort is put together depends on the lengths of the chunks that it reads. Where these depend
on data, the operation is a `DeferredNode`: a node that says how to make the ordinary nodes, once the lengths are there.
A `DeferredPlan` says what has to be computed first, and makes the expression anew from that. Whoever computes does so:
as the answer of an expander (`compiler.Expansion`), or in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from weft.frontends.tensors.chunks import Cut, Grid, counts, known, one_chunk
from weft.frontends.tensors.nodes import ArrayNode, NodeInput, Read, walk
from weft.graph.axes import ranges
from weft.model.errors import InternalError
from weft.operators.regions import KernelKind

if TYPE_CHECKING:
    from weft.frontends.tensors.types import Chunk, DType


class Build(Protocol):
    """Makes the nodes of an operation from those of its operands, whose lengths are known."""

    @property
    def name(self) -> str:
        """What the operation is called."""
        ...

    def __call__(self, operands: Sequence[ArrayNode]) -> Sequence[ArrayNode]:
        """Return the nodes of all results; whatever NumPy would raise for these lengths."""
        ...


class DeferredNode(ArrayNode):
    """Result `at` of an operation whose nodes are made when the lengths of its operands are known.

    `sample` is an array of its dtype and axes, with whatever lengths it would have if all that are unknown were 1.
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
    """Whether a node is an ordinary one, all of whose lengths are known."""
    return known(node.grid) and not isinstance(node, DeferredNode)


def stand_in(shape: Sequence[int], dtype: DType) -> ArrayNode:
    """Return an array without values, to ask an operation for the dtype and the axes of what it makes."""
    return ArrayNode(KernelKind.CALL, _unmade, [], one_chunk(shape), dtype, unique=True, name="sample")


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
    """A grid with the lengths that chunks turned out to have, and which chunks of the other one it has on each axis.

    Chunks without elements are left out, as far as there are others: they are in the way.
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
        """Which chunks are in the grid, in row-major order."""
        return [int(np.ravel_multi_index(index, self.along)) for index in product(*self.kept)]


def measured(grid: Grid, shapes: Sequence[tuple[int, ...]]) -> Measured:
    """Return the lengths of the chunks of a grid, whose shapes are given in row-major order."""
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
    return ArrayNode(KernelKind.CALL, _unmade, [], grid, dtype, unique=True, name=name)


def without_empty(node: ArrayNode, found: Measured) -> ArrayNode:
    """Return the chunks of a node that are in a measured grid, as an array of that grid."""
    axes = tuple([ranges(axis, [(i, i + 1) for i in some]) for axis, some in enumerate(found.kept)])
    one = NodeInput(node, Read.GRID, src=found.along, dst=counts(found.grid), axes=axes)
    return ArrayNode(KernelKind.CALL, _only, [one], found.grid, node.dtype, name=node.name)


def _only(x: Chunk) -> Chunk:
    if isinstance(x, list):
        (x,) = x
    return x


def copy_of(node: ArrayNode) -> ArrayNode:
    """Return a node with the very chunks of another one."""
    return ArrayNode(KernelKind.CALL, _only, [NodeInput(node)], node.grid, node.dtype, name=node.name)


# ---------------------------------------------------------------------------------------------------------- plans


class Given(NamedTuple):
    """Step of a plan: node `at` of those that are computed first."""

    at: int


class Again(NamedTuple):
    """Step of a plan: the same call over what other steps have made."""

    node: ArrayNode
    reads: tuple[tuple[int, NodeInput], ...]


class Make(NamedTuple):
    """Step of a plan: result `at` of an operation over what other steps have made."""

    build: Build
    operands: tuple[int, ...]
    at: int


_NOTHING = ArrayNode(KernelKind.CALL, _unmade, [], (), np.dtype(bool), unique=True)


class DeferredPlan:
    """How an expression is made when the lengths in it are known: flat, so that it travels whatever its depth.

    `first` are the nodes that are computed before; `wanted` is what is made, as places among the steps.
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
        """Return the wanted nodes, made from those that were computed; whatever an operation raises."""
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
    """Return what has to be computed before the rest of an expression can be made; nothing where all can be made now.

    That is what its operations of unknown lengths read, as far as its own lengths depend on data, and of the rest what
    is computed anyway, or `held` by whoever computes. Everything else is made when the lengths are known, so that of
    it, too, only what is read is computed.
    """
    order = walk(wanted, same)
    later = [node for node in order if isinstance(node, DeferredNode)]
    if not later:
        return []
    told: set[int] = set()  # what is made of known lengths alone
    for node in order:
        if lengths_known(node) and all(same[one.node.number].number in told for one in node.inputs):
            told.add(node.number)
    operands = {
        node.number: node
        for reader in later
        for node in [same[one.node.number] for one in reader.inputs]
        if not isinstance(node, DeferredNode)
    }
    first = {number: node for number, node in operands.items() if number not in told}
    plain = [node for node in wanted if not isinstance(node, DeferredNode)]
    computed = walk([*plain, *first.values()], same)
    anyway = {node.number for node in computed if not node.cheap}
    anyway -= {same[one.node.number].number for node in order for one in node.inputs if one.pieces}
    stack = [node for number, node in operands.items() if number in told]
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
    """Say of every node that nobody holds its chunks."""
    return False
