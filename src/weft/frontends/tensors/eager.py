"""Small expressions, computed in the thread that reads them.

Sending a task to a worker costs hundreds of microseconds, adding twelve numbers costs one. An expression of few chunks
and few elements, all of which NumPy computes, is therefore called node by node in the thread of the caller: the same
calls over the same chunks, in the same order of parts, so that the results are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.frontends.tensors.chunks import largest
from weft.frontends.tensors.nodes import ArrayNode, ChunkLocator, NodeInput, Read
from weft.frontends.tensors.sources import ArraySource
from weft.graph.axes import GridMap
from weft.graph.grid import Grid, GridPieces
from weft.operators.region_steps import KernelKind, RegionStep
from weft.operators.regions import TILE, quiet, raised_errors, whole_step

MOST_CHUNKS = 512
"""The most chunks of all nodes of a small expression together."""
MOST_ELEMENTS = 128 * 1024
"""The most elements of all nodes of a small expression together; unknown lengths count as 0."""


def small(wanted: Sequence[ArrayNode]) -> list[ArrayNode] | None:
    """Return all nodes of an expression, inputs first, if it is too small for tasks; else None.

    The decision for None needs a look at few nodes only.
    """
    order: list[ArrayNode] = []
    seen: set[int] = set()
    chunks = elements = 0
    stack: list[tuple[ArrayNode, bool]] = [(node, False) for node in wanted]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
            continue
        if node.number in seen:
            continue
        seen.add(node.number)
        chunks += node.chunks
        elements += max(0, node.size)
        if chunks > MOST_CHUNKS or elements > MOST_ELEMENTS or not plain(node) or _tiled(node):
            return None
        if node.inputs:
            stack.append((node, True))
            stack.extend((one.node, False) for one in node.inputs)
        else:
            order.append(node)
    return order


def _tiled(node: ArrayNode) -> bool:
    """Return whether a task might cut chunks into tiles, and so add their elements in another order."""
    return node.size > TILE and largest(node.grid) > TILE


def plain(node: ArrayNode) -> bool:
    """Return whether a node calls only NumPy on values in memory; workers run users' functions and read files."""
    source = node.kwargs.get("source")
    if type(source) is ArraySource and type(source.array) is not np.ndarray:
        return False
    return all(_known(fn) for fn in (node.fn, *node.kwargs.values()) if callable(fn))


def _known(fn: Any) -> bool:
    """Return whether a function is one of NumPy or of Weft, not an object that wraps another one."""
    made_by, own = type(fn).__module__.partition(".")[0], str(getattr(fn, "__module__", "numpy")).partition(".")[0]
    return made_by in ("builtins", "numpy") and own in ("weft", "numpy")


def evaluate(wanted: Sequence[ArrayNode], order: Sequence[ArrayNode]) -> list[list[Any]]:
    """Return the chunks of each wanted node; `order` is the result of `small`."""
    values: dict[int, list[Any]] = {}
    with quiet(raised_errors()):
        for node in order:
            if node.number not in values:
                values[node.number] = _chunks(node, values)
    return [values[node.number] for node in wanted]


def _chunks(node: ArrayNode, values: dict[int, list[Any]]) -> list[Any]:
    readers = [_reader(one, node, values[one.node.number]) for one in node.inputs]
    last = len(readers)
    place = ChunkLocator(node.grid) if node.kind in (KernelKind.FILL, KernelKind.PLACED) else None
    run = whole_step(RegionStep(node.kind, node.fn, node.args, node.kwargs, node.dtype, place), last)
    made = []
    for index in range(node.chunks):
        slots = [read(index) for read in readers]
        slots.append(None)
        run(index, slots)
        made.append(slots[last])
    return made


def _reader(one: NodeInput, reader: ArrayNode, chunks: list[Any]) -> Callable[[int], Any]:
    """Return the function that reads the value of an input for each chunk of its reader."""
    if one.read is Read.SAME:
        return chunks.__getitem__
    if one.read is Read.ALL:
        return lambda _: chunks
    if one.read is Read.TREE:
        return lambda index: chunks[one.k * index : one.k * (index + 1)]
    grid = GridMap(one.src, one.dst, one.axes, one.partial, one.pieces)
    if one.pieces:
        pieces = GridPieces(grid, one.node.chunks, reader.chunks)
        rows = [row if isinstance(row, dict) else dict(enumerate(row)) for row in chunks]
        return lambda index: [rows[at][part] for at, _, part, _ in pieces.inputs(index) if part in rows[at]]
    if len(chunks) == 1 and not one.partial:
        value = chunks[0] if grid.single else chunks
        return lambda _: value
    router = Grid(grid, one.node.chunks, reader.chunks)
    if router.single:
        return lambda index: chunks[router.inputs(index)[0][0]]
    return lambda index: [value for lo, hi, _, _ in router.inputs(index) for value in chunks[lo:hi]]
