"""Nodes for tasks, when workers do not share memory.

Sources: the tensor seed's heuristic. Take the first source task without a worker and a worker without tasks, walk the
undirected task graph depth-first from it, give that worker every source task met, stop at its share; next worker.
Shuffle and broadcast edges are not walked. Above `WALK_LIMIT` tasks each connected component is cut into contiguous
blocks instead. All other tasks: the node with most bytes of their inputs, ties to the node with most free slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.engine.events import ANYWHERE

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.physical import Stage

WALK_LIMIT = 100_000


def assign_sources(core: Core) -> None:
    """Give each source task of the job a home node, balanced by the number of workers of each node."""
    shares: dict[int, int] = {}
    for row in core.workers.values():
        shares[row.node] = shares.get(row.node, 0) + 1
    sources = [stage for stage in core.order if stage.n > 0 and not any(link.data for link in stage.inputs)]
    sources = [
        stage for stage in sources if stage.plain and stage.bubble < 0 and any(not link.gate for link in stage.outputs)
    ]
    if len(shares) < 2 or not sources:
        return
    total = sum(stage.n for stage in sources)
    workers = sum(shares.values())
    quota = {node: max(1, -(-total * share // workers)) for node, share in shares.items()}
    nodes = sorted(quota, key=lambda node: (-quota[node], node))
    for stage in sources:
        stage.home = [ANYWHERE] * stage.n
    if sum(max(stage.n, 0) for stage in core.stages) > WALK_LIMIT:
        _blocks(sources, nodes, quota)
    else:
        _walk(sources, nodes, quota)


def _blocks(sources: list[Stage], nodes: list[int], quota: dict[int, int]) -> None:
    weight = sum(quota[node] for node in nodes)
    for stage in sources:
        assert stage.home is not None
        lo = reach = 0
        for node in nodes:
            reach += quota[node]
            hi = min(stage.n, -(-stage.n * reach // weight))
            stage.home[lo:hi] = [node] * (hi - lo)
            lo = hi


def _walk(sources: list[Stage], nodes: list[int], quota: dict[int, int]) -> None:
    unassigned = [(stage, i) for stage in sources for i in range(stage.n)]
    seen: set[tuple[int, int]] = set()
    is_source = {stage.index for stage in sources}
    at = 0
    for node in nodes:
        left = quota[node]
        while left > 0:
            while at < len(unassigned) and _home(unassigned[at]) != ANYWHERE:
                at += 1
            if at == len(unassigned):
                return
            stack = [unassigned[at]]
            while stack and left > 0:
                stage, i = stack.pop()
                if stage.index in is_source:
                    assert stage.home is not None
                    if stage.home[i] != ANYWHERE:
                        continue
                    stage.home[i] = node
                    left -= 1
                elif (stage.index, i) in seen:
                    continue
                seen.add((stage.index, i))
                stack.extend(reversed(_neighbours(stage, i)))


def _home(task: tuple[Stage, int]) -> int:
    stage, i = task
    assert stage.home is not None
    return stage.home[i]


def _neighbours(stage: Stage, index: int) -> list[tuple[Stage, int]]:
    """Return the inputs of a task, then its readers: siblings are visited before the walk goes deeper."""
    found: list[tuple[Stage, int]] = []
    for link in stage.inputs:
        if link.router is not None and not link.wide:
            found.extend((link.src, s) for a, b, _, _ in link.router.inputs(index) for s in range(a, b))
    for link in stage.outputs:
        if link.router is not None and not link.wide:
            found.extend((link.dst, d) for a, b in link.router.consumers(index) for d in range(a, b))
    return found


def locations(stage: Stage) -> tuple[list[int], list[int]]:
    """Return the node and the bytes of each output of a stage, as they are recorded."""
    if stage.node_of is None or stage.size_of is None:
        stage.node_of = [ANYWHERE] * stage.n
        stage.size_of = [0] * stage.n
    return stage.node_of, stage.size_of


def assign_by_bytes(core: Core, stage: Stage, lo: int, hi: int) -> None:
    """Assign tasks `lo:hi`, whose narrow inputs all exist, to the node that holds most of their bytes."""
    if stage.home is None:
        stage.home = [ANYWHERE] * stage.n
    busy: dict[int, int] = {}
    for worker, leases in core.loads().items():
        row = core.workers.get(worker)
        if row is not None:
            busy[row.node] = busy.get(row.node, 0) + leases
    for d in range(lo, hi):
        weight: dict[int, int] = {}
        for link in stage.inputs:
            src = link.src
            if link.wide or link.router is None or src.node_of is None or src.size_of is None:
                continue
            for a, b, _, _ in link.router.inputs(d):
                for i in range(a, b):
                    node = src.node_of[i]
                    if node != ANYWHERE:
                        weight[node] = weight.get(node, 0) + max(1, src.size_of[i])
        if weight:
            stage.home[d] = min(weight, key=lambda node: (-weight[node], busy.get(node, 0), node))
