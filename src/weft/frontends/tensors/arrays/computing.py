"""Computing expressions: small ones in place, others by the current runner; and assembling arrays from chunks."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import sources
from weft.frontends.tensors.arrays import runners
from weft.frontends.tensors.arrays.chunking import chunking
from weft.frontends.tensors.arrays.pending import PendingValue, delivered
from weft.frontends.tensors.blocked_products import in_larger_blocks, is_product
from weft.frontends.tensors.chunks import known
from weft.frontends.tensors.compiler import NOWHERE
from weft.frontends.tensors.eager import evaluate, small
from weft.frontends.tensors.nodes import ChunkLocator
from weft.frontends.tensors.unknown_lengths import DeferredNode, DeferredPlan, first_of, measured, no_one
from weft.operators.destinations import ChunkDestination

if TYPE_CHECKING:
    from weft.frontends.tensors.arrays.executables import Watch
    from weft.frontends.tensors.nodes import ArrayNode

ASSEMBLED_FROM = 32 * 2**20
"""The least bytes of an array that all workers' threads assemble: a system provides memory slowly."""

TASKS_OF_A_PRODUCT = 2
"""The blocks for each worker of a product whose chunks nobody keeps."""


def settle(
    nodes: Sequence[ArrayNode], session: runners.Runner | None = None, watch: Watch | None = None
) -> list[ArrayNode]:
    """Compute nodes, and return nodes that hold the results, with known lengths."""
    return _settled(delivered(nodes, session, watch) if PendingValue.any else nodes, session, watch)


def fetched(
    nodes: Sequence[ArrayNode], orders: Sequence[Any], session: runners.Runner | None = None, watch: Watch | None = None
) -> list[Any]:
    """Compute nodes, keep none of their chunks, and return the arrays, which belong to the caller alone.

    `orders` are the memory orders of their elements. Threads write their chunks into the arrays.
    """
    if PendingValue.any:
        nodes = delivered(nodes, session, watch)
    if len(nodes) == 1 and is_product(nodes[0]):
        how = chunking()
        nodes = [in_larger_blocks(nodes[0], TASKS_OF_A_PRODUCT * how.workers, how.chunk_bytes)]
    into: dict[int, ChunkDestination] = {}
    settled = _settled(nodes, session, watch, into)
    return [_owned(one, order, into.get(node.number)) for node, one, order in zip(nodes, settled, orders, strict=True)]


def _destinations(nodes: Sequence[ArrayNode], runner: runners.Runner) -> dict[int, ChunkDestination]:
    """Return arrays for the nodes whose chunks the tasks of a runner can write where the caller reads them."""
    if runner.apart or runner.durable:
        return {}
    times = Counter(node.number for node in nodes)
    return {
        node.number: ChunkDestination(node.shape, node.dtype, ChunkLocator(node.grid))
        for node in nodes
        if times[node.number] == 1 and _dense(node)
    }


def _dense(node: ArrayNode) -> bool:
    return node.held is None and known(node.grid) and not isinstance(node, DeferredNode)


def _owned(node: ArrayNode, order: Any, into: ChunkDestination | None) -> Any:
    """Return the array of a settled node for a caller that may change it."""
    values = node.kwargs["source"].values
    if into is not None and into.bound:
        return np.asarray(into.take([values.copy(index) for index in range(len(values))]), order=order)
    made = assemble(node, order)
    return np.array(made, order="K", subok=True) if isinstance(values, list) and len(values) == 1 else made


def _settled(
    nodes: Sequence[ArrayNode],
    session: runners.Runner | None,
    watch: Watch | None,
    into: dict[int, ChunkDestination] | None = None,
) -> list[ArrayNode]:
    """Compute nodes; put the arrays that tasks may have filled into `into`, by the numbers of the nodes."""
    found = session or runners.found()
    wanted = {node.number: node for node in nodes if not sources.is_stored(node)}
    if not wanted:
        return list(nodes)
    todo = list(wanted.values())
    order = small(todo) if found is None or found.direct else None
    if order is None:
        runner = found or runners.current()
        if into is not None:
            into.update(_destinations([node for node in nodes if node.number in wanted], runner))
        made = runner.compute(todo, watch, into or NOWHERE)
    else:
        made = _in_place(todo, order, session, watch)
    settled = dict(zip(wanted, made, strict=True))
    return [settled.get(node.number, node) for node in nodes]


def _in_place(
    todo: Sequence[ArrayNode], order: Sequence[ArrayNode], session: runners.Runner | None, watch: Watch | None
) -> list[ArrayNode]:
    """Compute small nodes in this thread, inputs of unknown lengths first; `order` is the result of `small`."""
    later = [node for node in todo if isinstance(node, DeferredNode)]
    if not later:
        return [_stored(node, values) for node, values in zip(todo, evaluate(todo, order), strict=True)]
    same = {node.number: node for node in order}
    first = first_of(todo, same, no_one)
    plain = [node for node in todo if not isinstance(node, DeferredNode)]
    computed = settle([*plain, *first], session, watch)
    rest = settle(DeferredPlan(later, first, same)(computed[len(plain) :]), session, watch)
    settled = dict(zip([node.number for node in (*plain, *later)], [*computed[: len(plain)], *rest], strict=True))
    return [settled[node.number] for node in todo]


def _stored(node: ArrayNode, values: list[Any]) -> ArrayNode:
    if known(node.grid):
        return sources.stored(values, node.grid, node.dtype)
    found = measured(node.grid, [np.shape(value) for value in values])
    return sources.stored([values[i] for i in found.at], found.grid, node.dtype)


def assemble(node: ArrayNode, order: Any = "C") -> Any:
    """Return the array of a settled node's chunks, in memory of its own if a session keeps the chunks.

    `order` is the memory order of its elements: by rows ("C") or by columns ("F").
    """
    values = node.kwargs["source"].values
    ours = isinstance(values, list)  # made in place; chunks that a session keeps are read for this array alone
    read = values.__getitem__ if ours else values.copy
    if len(values) == 1:
        return (np.asarray if ours else np.array)(read(0), order=order)
    whole = np.empty(node.shape, node.dtype, order)
    spans = [[cut.span(i) for i in range(cut.n)] for cut in node.grid]

    def bring(index: int, where: Sequence[tuple[int, int]]) -> None:
        whole[tuple([slice(lo, hi) for lo, hi in where])] = read(index)

    if whole.nbytes < ASSEMBLED_FROM or chunking().workers == 1:
        for index, where in enumerate(product(*spans)):
            bring(index, where)
    else:
        with ThreadPoolExecutor(chunking().workers, "weft-assembling") as pool:
            deque(pool.map(bring, count(), product(*spans)), maxlen=0)
    return whole
