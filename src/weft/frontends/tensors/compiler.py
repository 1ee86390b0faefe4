"""From expressions to a graph: common sub-expressions once, regions fused, one vertex for each region.

Whether a node is computed inside the region of its reader is decided from the results backwards: it joins when all who
read it are in one region and read it chunk by chunk. So every connected region of one-to-one operations becomes one
program, diamonds included, and no path leaves a region and comes back into it. `fusion="chain"` gives the rule of the
Mars document instead: only straight chains.

The cost depends on the number of nodes. Chunks are numbers: the tasks of a vertex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from weft.frontends.tensors.chunks import Grid, counts, known, largest
from weft.frontends.tensors.creation import gone
from weft.frontends.tensors.nodes import Input, Node, Read, Where
from weft.graph.builder import Graph, gather, grid, one_to_one
from weft.graph.builder import Node as Vertex
from weft.model.errors import CapacityError
from weft.operators.blas import share
from weft.operators.namespaces import NUMPY
from weft.operators.regions import Kind, Region, Slot, Step, most_held

_WORTH = 4096
"""Chunks of this many elements are worth a look at how many threads BLAS uses."""
_NAMED = 3
"""How many operations the name of a vertex tells."""


class Need(NamedTuple):
    """What a task of a vertex takes at most, in bytes as far as they are known: what it reads, makes, and works in."""

    vertex: str
    inputs: int
    output: int
    scratch: int
    nodes: Sequence[Node]

    @property
    def total(self) -> int:
        """All of it."""
        return self.inputs + self.output + self.scratch

    def too_much(self, budget: int) -> CapacityError:
        """Return the error of a region whose tasks fit into no memory of `budget` bytes."""
        node = self.nodes[-1]
        reads = ", ".join(
            dict.fromkeys(_described(one.node) for at in self.nodes for one in at.inputs if one.node not in self.nodes)
        )
        return CapacityError(
            f"{self.vertex} would hold {self.total:,} bytes at once, and the session may use {budget:,}: for a chunk "
            f"of {_described(node)} a task makes {self.output:,} bytes, reads {self.inputs:,}"
            f"{f' of {reads}' if reads else ''}, and works in {self.scratch:,}",
            hint="Use smaller chunks (chunk_size= where the array is made, or .rechunk before this), or give the "
            "session more memory=.",
        )


def _described(node: Node) -> str:
    shape = " x ".join("?" if size < 0 else str(size) for size in node.shape) or "0-d"
    chunk = " x ".join(str(cut.longest) if cut.known else "?" for cut in node.grid) or "0-d"
    return f"{node.name} ({shape} {node.dtype}, {node.chunks} chunks of {chunk})"


class Compiled:
    """A graph, the vertices that make the wanted nodes, and the sources whose values go with the graph, by vertex."""

    def __init__(
        self, graph: Graph, vertices: Mapping[int, Vertex], given: Mapping[str, Node], needs: Sequence[Need]
    ) -> None:
        self.graph = graph
        self._vertices = vertices
        self.given = given
        self._needs = needs

    def check(self, budget: int) -> None:
        """Raise CapacityError if a task needs more than `budget` bytes at once: it could never run."""
        for need in self._needs:
            if need.total > budget:
                raise need.too_much(budget)

    @property
    def widest(self) -> int:
        """How many tasks the vertex with the most has."""
        return max([n for v in self.graph.vertices.values() if isinstance(n := v.parallelism, int)], default=1)

    def vertex(self, node: Node) -> Vertex:
        """Return the vertex whose values are the chunks of a wanted node."""
        return self._vertices[node.number]


def compile_nodes(
    wanted: Sequence[Node],
    *,
    fusion: str = "region",
    name: str = "tensors",
    held: Callable[[Node], bool] | None = None,
    processes: int = 0,
    space: str = NUMPY,
) -> Compiled:
    """Return the graph that makes the chunks of the wanted nodes.

    `processes` is how many worker processes compute it, which share the cores; 0 where workers are no processes.
    `space` is the namespace that they compute with.

    Sources of which `held` is true become vertices of their own, whose values are given with the graph.
    """
    same = _unify(wanted)
    order = _order([same[node.number] for node in wanted], same)
    targets = {same[node.number].number for node in wanted}
    given = {node.number: node for node in order if held is not None and not node.inputs and held(node)}
    region_of = _fuse(order, targets | given.keys(), same, chain=fusion == "chain")
    members: dict[int, list[Node]] = {}
    for node in order:
        for region in region_of[node.number]:
            members.setdefault(region, []).append(node)
    graph = Graph(name)
    made: dict[int, Vertex] = {}
    needs: list[Need] = []
    for node in order:
        if node.number in given:
            made[node.number] = graph.add(gone, n=node.chunks, items=range(node.chunks), name=_free(graph, node.name))
        elif node.number in members and node.number in region_of[node.number]:
            made[node.number], need = _emit(graph, members[node.number], made, same, processes, space)
            needs.append(need)
    for number in targets:
        made[number].keep()
    vertices = {node.number: made[same[node.number].number] for node in wanted}
    return Compiled(graph, vertices, {made[number].id: node for number, node in given.items()}, needs)


def _unify(wanted: Sequence[Node]) -> dict[int, Node]:
    """Map each node to the one that stands for all that are the same."""
    same: dict[int, Node] = {}
    known: dict[Any, Node] = {}
    for node in _walk(wanted):
        key = node.key()
        if key is None:
            same[node.number] = node
            continue
        inputs = tuple([(same[one.node.number].number, *one.key[1:]) for one in node.inputs])
        (kind, fn, _, *rest), texts = key
        same[node.number] = known.setdefault((kind, fn, inputs, *rest, texts), node)
    return same


def _walk(wanted: Iterable[Node]) -> list[Node]:
    """Return all nodes, inputs first. Without recursion: expressions may be thousands deep."""
    seen: set[int] = set()
    order: list[Node] = []
    stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(list(wanted))]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
            continue
        if node.number in seen:
            continue
        seen.add(node.number)
        stack.append((node, True))
        stack.extend((one.node, False) for one in reversed(node.inputs) if one.node.number not in seen)
    return order


def _order(wanted: Sequence[Node], same: Mapping[int, Node]) -> list[Node]:
    """Return the nodes that stand for themselves and are needed, inputs first."""
    needed: set[int] = set()
    stack = list(wanted)
    while stack:
        node = stack.pop()
        if node.number not in needed:
            needed.add(node.number)
            stack.extend(same[one.node.number] for one in node.inputs)
    return [node for node in _walk(wanted) if node.number in needed]


def _fuse(
    order: Sequence[Node], targets: set[int], same: Mapping[int, Node], *, chain: bool
) -> dict[int, tuple[int, ...]]:
    """Return for each node the regions that it is computed in, each named by its last node."""
    readers: dict[int, list[tuple[Node, Input]]] = {}
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


def _in_chain(node: Node, reads: Sequence[tuple[Node, Input]], same: Mapping[int, Node]) -> bool:
    """Whether a node joins its reader under the rule of the Mars document: one reader, which reads nothing else.

    Sources have no inputs and start no chain.
    """
    return bool(node.inputs) and len(reads) == 1 and len({same[i.node.number].number for i in reads[0][0].inputs}) == 1


def _emit(
    graph: Graph,
    nodes: Sequence[Node],
    made_by: Mapping[int, Vertex],
    same: Mapping[int, Node],
    processes: int,
    space: str,
) -> tuple[Vertex, Need]:
    """Add the vertex of one region, whose nodes come inputs first; return it and what a task of it needs."""
    nodes = sorted(nodes, key=_in_tiles)  # a slice of an array between two ufuncs would keep them from sharing tiles
    inside = {node.number for node in nodes}
    slots: dict[int, int] = {}
    outside: dict[tuple[Any, ...], int] = {}
    reads_of: dict[tuple[Any, ...], tuple[Input, Node]] = {}
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
    for at, node in enumerate(nodes):
        slots[node.number] = len(links) + at
    steps = []
    for node in nodes:
        reads = []
        for one in node.inputs:
            src = same[one.node.number]
            reads.append(slots[src.number] if src.number in inside else outside[(src.number, *one.key[1:])])
        args = tuple([Slot(reads[arg.at]) if type(arg) is Slot else arg for arg in node.args])
        place = Where(node.grid) if node.kind in (Kind.FILL, Kind.PLACED) else None
        steps.append(Step(node.kind, node.fn, args, node.kwargs, node.dtype, place))
    last = nodes[-1]
    names = list(dict.fromkeys(node.name for node in nodes))
    name = "-".join(names if len(names) <= _NAMED else [names[0], "etc", names[-1]])
    sizes = [_largest(node.grid) for node in nodes]
    calls = any(node.kind in (Kind.CALL, Kind.PLACED) for node in nodes) and (sizes[-1] is None or sizes[-1] >= _WORTH)
    threads = share(min(processes, last.chunks)) if processes and calls else 0
    most: int | None = None if None in sizes else max(sizes)  # type: ignore[type-var]
    region = Region(len(links), steps, most, threads, space)
    made = [(size or 0) * node.dtype.itemsize for size, node in zip(sizes, nodes, strict=True)]
    pieces = [nbytes for nbytes, (one, _) in zip(given, reads_of.values(), strict=True) if one.pieces]
    scratch = most_held(len(links), steps, [*given, *made], tiled=region.tiled and space == NUMPY) + sum(pieces)
    vertex = graph.add(
        region,
        *links,
        n=last.chunks,
        items=range(last.chunks),
        name=_free(graph, name),
        output_bytes=None if sizes[-1] is None else made[-1],
        scratch_bytes=scratch,
        lazy=True,
    )
    return vertex, Need(vertex.id, sum(given) - sum(pieces), made[-1], scratch, nodes)


def _in_tiles(node: Node) -> bool:
    return bool(node.inputs) or node.kind is Kind.FILL


def _free(graph: Graph, name: str) -> str:
    """Return a name that no vertex has yet."""
    if name not in graph.vertices:
        return name
    return f"{name}-{len(graph.vertices) + 1}"


def _largest(grid: Grid) -> int | None:
    """Return how many elements a chunk has at most; None if nobody knows."""
    return largest(grid) if known(grid) else None


def _read_bytes(one: Input, reader: Node) -> int:
    """Return how many bytes a task reads through an input at most; 0 where nobody knows."""
    size = _largest(one.node.grid)
    if size is None:
        return 0
    nbytes = size * one.node.dtype.itemsize
    if one.read is Read.SAME:
        return nbytes
    if one.read is Read.ALL:
        return one.node.nbytes
    if one.read is Read.TREE:
        return nbytes * min(one.k, one.node.chunks)
    if one.pieces:
        return (_largest(reader.grid) or 0) * reader.dtype.itemsize
    src = counts(one.node.grid) if one.src is None else one.src
    widths = {rule.source: rule.most(src[rule.source]) for rule in one.axes if rule.source >= 0}
    return min(nbytes * prod([widths.get(axis, n) for axis, n in enumerate(src)]), one.node.nbytes)


def _link(one: Input, vertex: Vertex, reader: Node) -> Any:
    """Return how a region reads another's chunks."""
    if one.read is Read.SAME:
        return one_to_one(vertex)
    if one.read is Read.ALL:
        return gather(vertex)
    if one.read is Read.TREE:
        from weft.graph.axes import group

        return grid(vertex, group(0, one.k), src=(one.node.chunks,), dst=(reader.chunks,))
    src = counts(one.node.grid) if one.src is None else one.src
    dst = counts(reader.grid) if one.dst is None else one.dst
    return grid(vertex, *one.axes, src=src, dst=dst, partial=one.partial, pieces=one.pieces)
