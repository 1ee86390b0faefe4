"""The compiler from expressions to a graph: equal sub-expressions once, regions fused, one vertex for each region.

A node is computed inside the region of its readers if all of them are in one region and read it chunk by chunk; this is
decided from the results backwards. So every connected region of one-to-one operations becomes one program, diamonds
included, and no path leaves a region and comes back into it. `fusion="chain"` follows the rule of the Mars document
instead: only straight chains.

The cost depends on the number of nodes. Chunks are numbers: the tasks of a vertex.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.frontends.tensors.chunks import Grid, chunks_in, known, largest
from weft.frontends.tensors.nodes import ArrayNode, ChunkLocator, NodeInput, Read, call, walk
from weft.frontends.tensors.ordering import INDEX
from weft.frontends.tensors.sources import gone
from weft.frontends.tensors.unknown_lengths import (
    DeferredNode,
    DeferredPlan,
    copy_of,
    first_of,
    made,
    measured,
    no_one,
    without_empty,
)
from weft.graph.builder import Graph, after, gather, grid, one_to_one
from weft.graph.builder import VertexHandle as Vertex
from weft.graph.logical import Patch
from weft.model.errors import CapacityError
from weft.model.ids import as_name
from weft.model.wording import counted
from weft.operators.blas import share
from weft.operators.namespaces import NUMPY
from weft.operators.region_steps import KernelKind, OperandSlot, RegionStep
from weft.operators.regions import Region, most_held

if TYPE_CHECKING:
    from weft.frontends.tensors.types import DType
    from weft.operators.destinations import ChunkDestination

FRONTEND = "tensors"
_MIB = 2**20
_WORTH = 4096
"""The least elements of a chunk for which the number of BLAS threads matters."""
_NAMED = 3
"""The most operations in the name of a vertex."""
NOWHERE: Mapping[int, ChunkDestination] = MappingProxyType({})
"""No arrays to fill: chunks go into the store."""


class Need(NamedTuple):
    """The most memory of a task of a vertex, in bytes as far as known: its inputs, its output, and its work space.

    `vertex` is named by its operations, wherever it is in the graph.
    """

    vertex: str
    inputs: int
    output: int
    scratch: int
    nodes: Sequence[ArrayNode]

    @property
    def total(self) -> int:
        """The sum of all three."""
        return self.inputs + self.output + self.scratch

    def too_much(self, budget: int, memory: int) -> CapacityError:
        """Return the error of a region whose tasks do not fit into `budget`, the part of `memory` bytes for values."""
        node = self.nodes[-1]
        reads = ", ".join(
            dict.fromkeys(_described(one.node) for at in self.nodes for one in at.inputs if one.node not in self.nodes)
        )
        held = max(0, memory - budget)
        left = f", which is what is left of memory={memory:,}" if held else ""
        enough = (
            2 * self.total if 0 < budget <= held else min(self.total + held, 2 * self.total)
        )  # at least half is available
        return CapacityError(
            f"a task of {self.vertex} needs {self.total:,} bytes, and the session has {budget:,} for values{left}. "
            f"The task makes a chunk of {_described(node)}: {self.output:,} bytes for the chunk, {self.inputs:,} for "
            f"its inputs{f', {reads},' if reads else ''} and {self.scratch:,} for intermediate values",
            hint="Use smaller chunks (chunk_size= where the array is made, or .rechunk before this), or give the "
            f"session memory= of {-(-enough // _MIB)} MiB or more.",
        )


def _described(node: ArrayNode) -> str:
    shape = " x ".join("?" if size < 0 else str(size) for size in node.shape) or "0-d"
    chunk = " x ".join(str(cut.longest) if cut.known else "?" for cut in node.grid)
    return f"{node.name} ({shape} {node.dtype}, {counted(node.chunks, 'chunk')}{chunk and f' of {chunk}'})"


class Compiled:
    """A graph, the vertices of the wanted nodes, and the sources whose values go with the graph, by vertex.

    Wanted nodes whose operations need unknown lengths are made by the vertex `expander`; `vertex` has no entry for such
    a node, and its `Described` is the value of `described(expander, its place among all)`.
    """

    def __init__(
        self,
        graph: Graph,
        vertices: Mapping[int, Vertex],
        lengths: Mapping[int, Vertex],
        given: Mapping[str, ArrayNode],
        needs: Sequence[Need],
        expander: str = "",
    ) -> None:
        self.graph = graph
        self._vertices = vertices
        self._lengths = lengths
        self.given = given
        self.needs = needs
        self.expander = expander

    def check(self, budget: int, memory: int = 0) -> None:
        """Raise CapacityError if a task needs more than `budget` bytes at once: it could never run.

        `memory` is the memory of the session, of which `budget` is a part.
        """
        for need in self.needs:
            if need.total > budget:
                raise need.too_much(budget, memory)

    @property
    def widest(self) -> int:
        """The largest number of tasks of a vertex."""
        return max([n for v in self.graph.vertices.values() if isinstance(n := v.parallelism, int)], default=1)

    def vertex(self, node: ArrayNode) -> Vertex:
        """Return the vertex whose values are the chunks of a wanted node."""
        return self._vertices[node.number]

    def lengths(self, node: ArrayNode) -> Vertex:
        """Return the vertex whose values are the shapes of the chunks of a wanted node of unknown lengths."""
        return self._lengths[node.number]


class How(NamedTuple):
    """The options of `compile_nodes`."""

    fusion: str
    processes: int
    space: str
    budget: int | None
    memory: int
    raised: tuple[str, ...]


def compile_nodes(
    wanted: Sequence[ArrayNode],
    *,
    fusion: str = "region",
    name: str = "tensors",
    held: Callable[[ArrayNode], bool] = no_one,
    processes: int = 0,
    space: str = NUMPY,
    budget: int | None = None,
    memory: int = 0,
    raised: tuple[str, ...] = (),
    into: Mapping[int, ChunkDestination] = NOWHERE,
) -> Compiled:
    """Return the graph that makes the chunks of the wanted nodes.

    `processes` is the number of worker processes, which share the cores; 0 for workers that are threads. `space` is the
    array namespace of the workers. `budget` is the most bytes of a task whose needs become known while the graph runs
    (None: no limit), and `memory` is the memory of which it is a part. `raised` are the floating-point errors that
    raise in the tasks.

    Sources for which `held` is true become vertices of their own, whose values are given with the graph.

    `into` has the arrays, by the numbers of wanted nodes, that tasks fill with the chunks of these nodes. Those of
    nodes that other tasks read, or that are wanted twice, stay unbound.
    """
    return _compile(
        Graph(name, frontend=FRONTEND),
        wanted,
        How(fusion, processes, space, budget, memory, raised),
        range(len(wanted)),
        held=held,
        into=into,
    )


def _compile(
    graph: Graph,
    wanted: Sequence[ArrayNode],
    how: How,
    numbers: Sequence[int],
    *,
    held: Callable[[ArrayNode], bool] = no_one,
    there: Mapping[int, Vertex] | None = None,
    prefix: str = "",
    into: Mapping[int, ChunkDestination] = NOWHERE,
) -> Compiled:
    """Add the vertices of the wanted nodes to a graph; users know the nodes by their `numbers`.

    The vertices of some nodes are `there` already. The names of all others begin with `prefix`.
    """
    same = _unify(wanted)
    done = dict(there or {})
    first = first_of([same[node.number] for node in wanted], same, lambda node: node.number in done or held(node))
    plain = [same[node.number] for node in wanted if not isinstance(node, DeferredNode)]
    lengths = {n.number: call(np.shape, n, n.grid, INDEX) for n in (*plain, *first) if not known(n.grid)}
    same.update({node.number: node for node in lengths.values()})
    order = [node for node in walk([*plain, *first, *lengths.values()], same) if node.number not in done]
    targets = {node.number for node in (*plain, *first, *lengths.values())}
    given = {node.number: node for node in order if not node.inputs and held(node)}
    region_of = _fuse(order, targets | given.keys(), same, chain=how.fusion == "chain")
    members: dict[int, list[ArrayNode]] = {}
    for node in order:
        for region in region_of[node.number]:
            members.setdefault(region, []).append(node)
    filled = _filled(wanted, first, order, same, into) if into else {}
    needs: list[Need] = []
    for node in order:
        if node.number in given:
            done[node.number] = graph.add(
                gone, n=node.chunks, items=range(node.chunks), name=_free(graph, prefix + as_name(node.name))
            )
        elif node.number in members and node.number in region_of[node.number]:
            out = filled.get(node.number)
            done[node.number], need = _emit(graph, members[node.number], done, same, how, prefix, out)
            needs.append(need)
    for node in plain:
        done[node.number].keep()
        if not known(node.grid):
            done[lengths[node.number].number].keep()
    later = {number: node for number, node in zip(numbers, wanted, strict=True) if isinstance(node, DeferredNode)}
    plan = DeferredPlan(list(later.values()), first, same) if first else None
    expander = _expand(graph, plan, first, tuple(later), done, lengths, how, prefix) if plan else ""
    requested = {node.number: same[node.number].number for node in wanted if not isinstance(node, DeferredNode)}
    return Compiled(
        graph,
        {number: done[of] for number, of in requested.items()},
        {number: done[lengths[of].number] for number, of in requested.items() if of in lengths},
        {done[number].id: node for number, node in given.items()},
        needs,
        expander,
    )


def _expand(
    graph: Graph,
    plan: DeferredPlan,
    first: Sequence[ArrayNode],
    numbers: tuple[int, ...],
    done: Mapping[int, Vertex],
    lengths: Mapping[int, ArrayNode],
    how: How,
    prefix: str,
) -> str:
    """Add the vertex that makes nodes when the lengths of the `first` ones are known, and return its name."""
    for node in first:
        done[node.number].vertex.lazy = False  # its readers are not known yet
    sources = [Made(done[n.number].id, n.chunks, n.grid, n.dtype, n.name) for n in first]
    name = _free(graph, prefix + "lengths")
    graph.add(
        Expansion(name, plan, sources, numbers, how),
        *[gather(done[lengths[node.number].number]) for node in first if not known(node.grid)],
        *[after(done[node.number]) for node in first],
        name=name,
        expands=True,
        keep=False,
    )
    return name


class Made(NamedTuple):
    """A node whose chunks are made by a vertex of the live graph."""

    vertex: str
    tasks: int
    grid: Grid
    dtype: DType
    name: str


class Described(NamedTuple):
    """The place of a wanted node whose operation needed lengths: its chunks are tasks `at` of a vertex."""

    vertex: str
    grid: Grid
    at: list[int]


class Expansion:
    """The program of an expander: makes the nodes that need lengths, and their vertices, when the lengths are known.

    It reads the shapes of the chunks of sources with unknown lengths, and no data. If its nodes make unknown lengths in
    turn, the patch has an expander, too.
    """

    def __init__(
        self, name: str, plan: DeferredPlan, sources: Sequence[Made], numbers: Sequence[int], how: How
    ) -> None:
        self.name = name
        self._plan = plan
        self._sources = sources
        self._numbers = numbers
        self._how = how

    def __call__(self, *shapes: Sequence[tuple[int, ...]]) -> Patch:
        """Return the rest of the graph. CapacityError, or an error of NumPy: arrays of these lengths are impossible."""
        graph = Graph("patch")
        measured_shapes = iter(shapes)
        there: dict[int, Vertex] = {}
        first: list[ArrayNode] = []
        for source in self._sources:
            found = None if known(source.grid) else measured(source.grid, next(measured_shapes))
            node = made(source.grid if found is None or not found.everything else found.grid, source.dtype, source.name)
            there[node.number] = graph.add(gone, n=source.tasks, items=range(source.tasks), name=source.vertex)
            first.append(node if found is None or found.everything else without_empty(node, found))
        wanted = [copy_of(node) if node.number in there else node for node in self._plan(first)]
        prefix = f"{self.name}/"
        compiled = _compile(graph, wanted, self._how, self._numbers, there=there, prefix=prefix)
        if self._how.budget is not None:
            compiled.check(self._how.budget, self._how.memory)
        for number, node in zip(self._numbers, wanted, strict=True):
            if not isinstance(node, DeferredNode):
                reads = [] if known(node.grid) else [gather(compiled.lengths(node))]
                graph.add(
                    Describe(compiled.vertex(node).id, node.grid), *reads, name=_answer(self.name, number), keep=True
                )
        fresh = tuple([vertex for vertex in graph.vertices.values() if vertex.id.startswith(prefix)])
        return Patch(fresh, tuple(graph.edges))


class Describe:
    """The program of a vertex that returns the `Described` of a wanted node.

    It reads the shapes of the node's chunks if their lengths are unknown.
    """

    def __init__(self, vertex: str, grid: Grid) -> None:
        self._vertex = vertex
        self._grid = grid

    def __call__(self, shapes: Sequence[tuple[int, ...]] = ()) -> Described:
        """Return the `Described`."""
        if known(self._grid):
            return Described(self._vertex, self._grid, list(range(chunks_in(self._grid))))
        found = measured(self._grid, shapes)
        return Described(self._vertex, found.grid, found.at)


def described(kept: Iterable[str], expander: str, number: int) -> str:
    """Return the vertex of a run that describes the wanted node `number`."""
    last = _answer("", number)
    return next(name for name in kept if name.startswith(f"{expander}/") and name.endswith(last))


def _answer(expander: str, number: int) -> str:
    """Return a name that no operation has, since it begins with a digit."""
    return f"{expander}/{number}.result"


def _unify(wanted: Sequence[ArrayNode]) -> dict[int, ArrayNode]:
    """Map each node to the representative of all equal nodes."""
    same: dict[int, ArrayNode] = {}
    known: dict[Any, ArrayNode] = {}
    for node in walk(wanted):
        key = node.key()
        if key is None:
            same[node.number] = node
            continue
        inputs = tuple([(same[one.node.number].number, *one.key[1:]) for one in node.inputs])
        (kind, fn, _, *rest), texts = key
        same[node.number] = known.setdefault((kind, fn, inputs, *rest, texts), node)
    return same


def _fuse(
    order: Sequence[ArrayNode], targets: set[int], same: Mapping[int, ArrayNode], *, chain: bool
) -> dict[int, tuple[int, ...]]:
    """Return for each node the regions that compute it, each named by its last node."""
    readers: dict[int, list[tuple[ArrayNode, NodeInput]]] = {}
    for node in order:
        for one in node.inputs:
            readers.setdefault(same[one.node.number].number, []).append((node, one))
    regions: dict[int, tuple[int, ...]] = {}
    for node in reversed(order):
        reads = readers.get(node.number, [])
        aligned = all(one.read is Read.SAME for _, one in reads)
        inside = {region for reader, _ in reads for region in regions[reader.number]}
        alone = node.number in targets or not reads or not aligned
        if alone or not (len(inside) == 1 or node.cheap) or (chain and not _in_chain(node, reads, same)):
            regions[node.number] = (node.number,)
        else:
            regions[node.number] = tuple(sorted(inside))
    return regions


def _in_chain(node: ArrayNode, reads: Sequence[tuple[ArrayNode, NodeInput]], same: Mapping[int, ArrayNode]) -> bool:
    """Return whether a node joins its reader under the rule of the Mars document: it is the reader's only input.

    Sources have no inputs and start no chain.
    """
    return bool(node.inputs) and len(reads) == 1 and len({same[i.node.number].number for i in reads[0][0].inputs}) == 1


def _filled(
    wanted: Sequence[ArrayNode],
    first: Sequence[ArrayNode],
    order: Sequence[ArrayNode],
    same: Mapping[int, ArrayNode],
    into: Mapping[int, ChunkDestination],
) -> dict[int, ChunkDestination]:
    """Return the arrays that tasks can fill, by nodes: chunks that other tasks read stay in the store."""
    uses = Counter(same[one.node.number].number for node in order for one in node.inputs)
    uses.update(same[node.number].number for node in wanted)
    uses.update(node.number for node in first)
    found = {same[number].number: array for number, array in into.items()}
    return {number: array for number, array in found.items() if uses[number] == 1}


def _emit(
    graph: Graph,
    nodes: Sequence[ArrayNode],
    made_by: Mapping[int, Vertex],
    same: Mapping[int, ArrayNode],
    how: How,
    prefix: str,
    into: ChunkDestination | None,
) -> tuple[Vertex, Need]:
    """Add the vertex of one region, whose nodes come inputs first; return it and the needs of its tasks.

    `into` is the array that its tasks fill.
    """
    nodes = sorted(nodes, key=_in_tiles)  # a slice of an array between two ufuncs would prevent shared tiles
    inside = {node.number for node in nodes}
    outside: dict[tuple[Any, ...], int] = {}
    reads_of: dict[tuple[Any, ...], tuple[NodeInput, ArrayNode]] = {}
    links: list[Any] = []
    for node in nodes:
        for one in node.inputs:
            src = same[one.node.number]
            key = (src.number, *one.key[1:])
            if src.number in inside or key in outside:
                continue
            outside[key] = len(links)
            reads_of[key] = (one, node)
            links.append(_link(one, made_by[src.number], node))
    given = [_read_bytes(one, reader) for one, reader in reads_of.values()]
    slots = {node.number: len(links) + at for at, node in enumerate(nodes)}
    steps = []
    for node in nodes:
        keys = [(same[one.node.number].number, *one.key[1:]) for one in node.inputs]
        steps.append(_step(node, [slots[key[0]] if key[0] in inside else outside[key] for key in keys]))
    last = nodes[-1]
    names = list(dict.fromkeys(node.name for node in nodes))
    name = "-".join(names if len(names) <= _NAMED else [names[0], "etc", names[-1]])
    sizes = [_largest(node.grid) for node in nodes]
    calls = any(node.kind in (KernelKind.CALL, KernelKind.PLACED) for node in nodes) and (
        sizes[-1] is None or sizes[-1] >= _WORTH
    )
    threads = share(min(how.processes, last.chunks)) if how.processes and calls else 0
    most: int | None = None if None in sizes else max(sizes)  # type: ignore[type-var]
    region = Region(len(links), steps, most, threads, how.space, how.raised, into)
    made = [node.chunk_bytes or 0 for node in nodes]
    pieces = [nbytes for nbytes, (one, _) in zip(given, reads_of.values(), strict=True) if one.pieces]
    scratch = most_held(len(links), steps, [*given, *made], tiled=region.tiled and how.space == NUMPY) + sum(pieces)
    need = Need("", sum(given) - sum(pieces), made[-1], scratch, nodes)
    output = made[-1]
    if into is not None:  # a step that cannot write there makes a chunk of its own first
        into.bound = True
        scratch, output = scratch + output, 0
    vertex = graph.add(
        region,
        *links,
        n=last.chunks,
        items=range(last.chunks),
        name=_free(graph, prefix + as_name(name)),
        output_bytes=None if last.chunk_bytes is None else output,
        scratch_bytes=scratch,
        idempotent=not any(getattr(node.fn, "once", False) for node in nodes),
        lazy=True,
    )
    return vertex, need._replace(vertex=vertex.id.removeprefix(prefix))


def _step(node: ArrayNode, reads: Sequence[int]) -> RegionStep:
    """Return the step of a region that calls a node on the values of these slots."""
    args = tuple([OperandSlot(reads[arg.at]) if type(arg) is OperandSlot else arg for arg in node.args])
    place = ChunkLocator(node.grid) if node.kind in (KernelKind.FILL, KernelKind.PLACED) else None
    return RegionStep(node.kind, node.fn, args, node.kwargs, node.dtype, place)


def _in_tiles(node: ArrayNode) -> bool:
    return bool(node.inputs) or node.kind is KernelKind.FILL


def _free(graph: Graph, name: str) -> str:
    """Return an unused name of a vertex."""
    if name not in graph.vertices:
        return name
    return f"{name}-{len(graph.vertices) + 1}"


def _largest(grid: Grid) -> int | None:
    """Return the largest number of elements of a chunk; None if unknown."""
    return largest(grid) if known(grid) else None


def _read_bytes(one: NodeInput, reader: ArrayNode) -> int:
    """Return the most bytes that a task reads through an input; 0 if unknown."""
    nbytes = one.node.chunk_bytes
    if nbytes is None:
        return 0
    if one.read is Read.SAME:
        return nbytes
    if one.read is Read.ALL:
        return one.node.nbytes
    if one.read is Read.TREE:
        return nbytes * min(one.k, one.node.chunks)
    if one.pieces:
        return (_largest(reader.grid) or 0) * one.node.dtype.itemsize
    widths = {rule.source: rule.most(one.src[rule.source]) for rule in one.axes if rule.source >= 0}
    return min(nbytes * prod([widths.get(axis, n) for axis, n in enumerate(one.src)]), one.node.nbytes)


def _link(one: NodeInput, vertex: Vertex, reader: ArrayNode) -> Any:
    """Return the input edge of a region for the chunks of another."""
    if one.read is Read.SAME:
        return one_to_one(vertex)
    if one.read is Read.ALL:
        return gather(vertex)
    if one.read is Read.TREE:
        from weft.graph.axes import group

        return grid(vertex, group(0, one.k), src=(one.node.chunks,), dst=(reader.chunks,))
    return grid(vertex, *one.axes, src=one.src, dst=one.dst, partial=one.partial, pieces=one.pieces)
