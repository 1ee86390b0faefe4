"""A reference executor: run a graph one task after another, without the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.graph.logical import MovementKind
from weft.graph.order import topological
from weft.graph.routing import bind
from weft.graph.task import resolve

if TYPE_CHECKING:
    from weft.graph.logical import LogicalGraph


def sequential(graph: LogicalGraph) -> dict[str, list[Any]]:
    """Return the values of every vertex of a graph of plain functions with fixed parallelism."""
    values: dict[str, list[Any]] = {}
    for name in topological(graph):
        vertex = graph.vertices[name]
        n = vertex.parallelism
        assert isinstance(n, int)
        fn = resolve(vertex.program)
        inputs = []
        for edge in graph.edges:
            if edge.dst == name and edge.movement.move is not MovementKind.NONE:
                source = graph.vertices[edge.src].parallelism
                assert isinstance(source, int)
                router = bind(edge, source, n)
                assert router is not None
                inputs.append((values[edge.src], router))
        values[name] = []
        for index in range(n):
            args: list[Any] = [] if vertex.program.items is None else [vertex.program.items[index]]
            for found, router in inputs:
                read: list[Any] = []
                for lo, hi, part_lo, part_hi in router.inputs(index):
                    if router.partitions:
                        read.extend(found[i][part] for i in range(lo, hi) for part in range(part_lo, part_hi))
                    else:
                        read.extend(found[lo:hi])
                args.append(read[0] if router.single else read)
            values[name].append(fn(*args, **vertex.program.params))
    return values
