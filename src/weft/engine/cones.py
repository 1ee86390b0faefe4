"""Cones: how much of the graph goes into one lease.

A lease is a unit of a root vertex together with all upstream tasks that only this unit needs. *Depth is free, width
costs parallelism*: a longer chain costs no parallelism, 2^k leaves do. So a lease climbs as deep as the template stays
small, and takes as many units as its width allows.

Two shapes are enough. A *tree cone* starts at stages whose inputs are wide or absent and climbs narrow, regular links
(`group` k) of single consumers. A *linear cone* starts at any ready task and follows one-to-one links. `plan` marks
once, in topological order, where cones can go; templates are built on first use and kept with their root. Programs of
style TASK write edge by edge and are in no cone. `Tuning.cone_steps` bounds the length of a linear cone, and
`Tuning.cone_tasks` the tasks in a unit of a tree cone.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from weft.engine.agenda import Phase
from weft.graph.lease import Cone
from weft.graph.logical import Storage
from weft.model.program import Style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.engine.core import Core
    from weft.engine.physical import PhysicalEdge, Stage


_WHOLE = -1
"""The key of the tree cone of a root, which begins at its sources."""

_FUNCTION, _LOCAL = Style.FUNCTION, Storage.LOCAL
_DEPTH = 64
"""The most levels of a tree cone: a worker computes a tree by recursion, and functions of users need room too."""


def plan_all(core: Core) -> None:
    """Plan the cones of a new graph."""
    if core.tuning.cones:
        for stage in core.order:
            _mark(core, stage)


def plan(core: Core) -> None:
    """Plan the cones of changed stages again, and those that these were or will be a part of."""
    touched = core.taken(Phase.CONES)
    if not core.tuning.cones:
        return
    due: dict[int, int] = {}  # depths by stage
    for stage in touched:
        due[stage.index] = stage.depth
        for link in (stage.cone_into, stage.chain_next, *_reader(stage)):
            if link is not None:
                due[link.dst.index] = link.dst.depth
        stage.cone_into = stage.chain_next = None
    work = [(depth, index) for index, depth in due.items()]
    heapify(work)
    while work:
        stage = core.stages[heappop(work)[1]]
        was_root = stage.cone_ok
        _unmark(stage)
        _mark(core, stage)
        if was_root or stage.cone_ok:  # so cones of its reader may include it
            for link in _reader(stage):
                if link.dst.index not in due:
                    due[link.dst.index] = link.dst.depth
                    heappush(work, (link.dst.depth, link.dst.index))


def _reader(stage: Stage) -> Sequence[PhysicalEdge]:
    """Return the only output link of a stage; nothing if it has none or several."""
    return stage.outputs if len(stage.outputs) == 1 else ()


def _unmark(stage: Stage) -> None:
    stage.cone_ok = False
    stage.cones = None
    for link in stage.inputs:
        src = link.src
        if src.cone_into is link:
            src.cone_into = None
        if src.chain_next is link:
            src.chain_next = None


def _mark(core: Core, stage: Stage) -> None:
    """Mark whether a stage can be the root of a cone, the size of that cone, and, with its sources, where their cones
    go on. The sources are marked before.
    """
    if not _ordinary(stage) or stage.n < 1 or stage.vertex.program.style is not _FUNCTION:
        return
    if stage.narrow == 0:
        stage.cone_ok = True
        stage.cone_size = stage.cone_depth = 1
        return
    inputs = stage.inputs
    if stage.narrow == 1 == len(inputs):
        link = inputs[0]
        src = link.src
        if not ((src.cone_ok or _ordinary(src)) and _inner(src)):
            return
        if link.group == 1:
            src.chain_next = link
        size, depth, fits = 1 + link.group * src.cone_size, 1 + src.cone_depth, bool(link.group and src.cone_ok)
    else:
        inputs = [link for link in inputs if not link.gate and link.router is not None]
        if len(inputs) != stage.narrow:
            return
        if len(inputs) == 1 and inputs[0].group == 1 and _ordinary(inputs[0].src) and _inner(inputs[0].src):
            inputs[0].src.chain_next = inputs[0]
        fits = all(link.group and link.src.cone_ok and _inner(link.src) for link in inputs)
        size = 1 + sum(link.group * link.src.cone_size for link in inputs)
        depth = 1 + max(link.src.cone_depth for link in inputs)
    tuning = core.tuning
    linear = size == depth
    if fits and size <= (tuning.cone_steps if linear else tuning.cone_tasks) and (linear or depth <= _DEPTH):
        stage.cone_ok = True
        stage.cone_size = size
        stage.cone_depth = depth
        for link in inputs:
            link.src.cone_into = link


def _ordinary(stage: Stage) -> bool:
    """Return whether this task and its neighbours can run in one lease without a decision of the master between
    them.
    """
    return stage.ordinary and stage.plain and stage.bubble < 0 and stage.attempts is None


def _inner(stage: Stage) -> bool:
    """Return whether the outputs of an ordinary stage may live and die inside a lease."""
    return (
        len(stage.outputs) == 1
        and not stage.vertex.keep
        and stage.vertex.program.style is _FUNCTION
        and stage.outputs[0].edge.storage is _LOCAL
    )


def climb(core: Core, stage: Stage, lo: int, room: int, width: int) -> tuple[Stage, int]:
    """Return the root of the largest cone that may start at task `lo`, and how many tasks of `stage` a unit of it
    takes.

    `room` is how many tasks from `lo` on are ready, `width` how many may be leased.
    """
    root, leaves = stage, 1
    if stage.narrow:
        steps = 1
        link = stage.chain_next
        while link is not None and steps < core.tuning.cone_steps:
            dst = link.dst
            if dst.closed or dst.state[lo] or not _ordinary(dst):
                break
            root = dst
            steps += 1
            link = dst.chain_next
        return root, 1
    link = stage.cone_into
    while link is not None:
        dst = link.dst
        taken = leaves * link.group
        if taken > width or taken > room or lo % taken or dst.closed or not _ordinary(dst):
            break
        unit = lo // taken
        if (unit + 1) * taken > stage.n or dst.state[unit]:
            break
        if dst.narrow > 1 and not siblings_ready(dst, unit):
            break
        root, leaves = dst, taken
        link = dst.cone_into
    return root, leaves


def siblings_ready(root: Stage, unit: int) -> bool:
    """Return whether every upstream task of one task of `root` is ready or can be computed from ready tasks."""
    work = [(link.src, link.group) for link in root.inputs if not link.gate]
    while work:
        stage, mult = work.pop()
        lo, hi = unit * mult, (unit + 1) * mult
        if hi > stage.n or stage.closed:
            return False
        inner = [(link.src, mult * link.group) for link in stage.inputs if not link.gate]
        if stage.state.count(0 if inner else 1, lo, hi) != mult:
            return False
        work.extend(inner)
    return True


def template(core: Core, start: Stage, root: Stage) -> Cone:
    """Return the cone of `root` that starts at `start`'s level, built on first use."""
    if root.cones is None:
        root.cones = {}
    key = start.index if start.narrow else _WHOLE
    cone = root.cones.get(key)
    if cone is None:
        cone = root.cones[key] = _linear(start, root) if start.narrow else _tree(root)
    return cone


def _linear(start: Stage, root: Stage) -> Cone:
    chain = [root]
    stage = root
    while stage is not start:
        inputs = stage.inputs
        stage = inputs[0].src if len(inputs) == 1 else _before(stage)
        chain.append(stage)
    chain.reverse()
    return _chain(chain)


def _before(stage: Stage) -> Stage:
    return next(link.src for link in stage.inputs if not link.gate)


def _chain(stages: list[Stage]) -> Cone:
    members = tuple([stage.id for stage in stages])
    return Cone(members, (1,) * len(members), linear=True, held_bytes=_held(stages, 1))


def _held(stages: list[Stage], height: int) -> int:
    """Return the size in bytes of the values held inside a cone, without those of its root, the last of `stages`."""
    outputs = scratch = 0
    for stage in stages[:-1]:
        vertex = stage.vertex
        if vertex.output_bytes is not None and vertex.output_bytes > outputs:
            outputs = vertex.output_bytes
        if vertex.scratch_bytes > scratch:
            scratch = vertex.scratch_bytes
    return height * outputs + scratch


def _tree(root: Stage) -> Cone:
    """Return the cone of one task of `root` and everything upstream; linear if each member has one task."""
    if root.cone_size == root.cone_depth:
        chain = [root]
        while chain[-1].narrow:
            inputs = chain[-1].inputs
            chain.append(inputs[0].src if len(inputs) == 1 else _before(chain[-1]))
        return _chain(chain[::-1])
    members: list[Stage] = []
    mults: list[int] = []
    todo = [(root, 1)]
    while todo:
        stage, mult = todo.pop()
        members.append(stage)
        mults.append(mult)
        todo.extend((link.src, mult * link.group) for link in stage.inputs if not link.gate)
    members.reverse()
    place = {stage.index: at for at, stage in enumerate(members)}
    inner: list[tuple[tuple[int, int], ...]] = []
    heights: list[int] = []
    for stage in members:
        sources = tuple([(place[link.src.index], link.group) for link in stage.inputs if not link.gate])
        held = most = 0
        for source, group in sources:
            held += group
            most = max(most, held - 1 + heights[source])
        inner.append(sources)
        heights.append(max(most, held + 1))
    return Cone(
        tuple([stage.id for stage in members]),
        tuple(reversed(mults)),
        tuple(inner),
        height=heights[-1],
        held_bytes=_held(members, heights[-1]),
    )
