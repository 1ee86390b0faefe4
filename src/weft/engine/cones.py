"""Cones: how much of the graph goes into one lease.

A lease is a unit of a root vertex together with all upstream tasks that only this unit needs. *Depth is free, width
costs parallelism*: a longer chain costs no parallelism, 2^k leaves do. So a lease climbs as deep as the template stays
small, and takes as many units as its width allows.

Two shapes are enough. A *tree cone* starts at stages whose inputs are wide or absent and climbs narrow, regular links
(`group` k) of single consumers. A *linear cone* starts at any ready task and follows one-to-one links. `plan` marks
once, in topological order, where cones can go; templates are built on first use and kept with their root. Programs of
style TASK write edge by edge and are in no cone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.graph.lease import Cone, ConeStep
from weft.graph.logical import Storage, VertexKind
from weft.model.program import Style

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.physical import Stage


_WHOLE = -1
"""The key of the tree cone of a root, which begins at its sources."""


def plan(core: Core) -> None:
    """Mark for each stage whether it can be the root of a cone, the size of that cone, and the stage where a cone goes
    on.
    """
    if not core.tuning.cones:
        return
    most = core.tuning.cone_steps
    for stage in core.order:
        if stage.cone_ok:
            stage.cone_ok = False
            stage.cones = stage.cone_into = stage.chain_next = None
    ordinary: set[Stage] = set()
    for stage in core.order:
        if not _ordinary(stage):
            continue
        ordinary.add(stage)
        if stage.n < 1 or stage.vertex.program.style is not Style.FUNCTION:
            continue
        if stage.narrow == 0:
            stage.cone_ok = True
            stage.cone_steps = 1
            continue
        inputs = stage.inputs
        if stage.narrow == 1 == len(inputs):
            link = inputs[0]
            src = link.src
            if src not in ordinary or not _inner(src):
                continue
            if link.group == 1:
                src.chain_next = link
            steps = 1 + link.group * src.cone_steps
            if link.group and src.cone_ok and steps <= most:
                stage.cone_ok = True
                stage.cone_steps = steps
                src.cone_into = link
            continue
        narrow = [link for link in inputs if not link.gate and link.router is not None]
        if len(narrow) != stage.narrow:
            continue
        if len(narrow) == 1 and narrow[0].group == 1 and narrow[0].src in ordinary and _inner(narrow[0].src):
            narrow[0].src.chain_next = narrow[0]
        if all(link.group and link.src.cone_ok and _inner(link.src) for link in narrow):
            steps = 1 + sum(link.group * link.src.cone_steps for link in narrow)
            if steps <= most:
                stage.cone_ok = True
                stage.cone_steps = steps
                for link in narrow:
                    link.src.cone_into = link


def _ordinary(stage: Stage) -> bool:
    """Return whether this task and its neighbours can run in one lease without a decision of the master between
    them.
    """
    vertex = stage.vertex
    return (
        stage.plain
        and stage.bubble < 0
        and stage.attempts is None
        and vertex.cache_key is None
        and vertex.timeout_s is None
        and vertex.kind is VertexKind.FINITE
        and vertex.manager is None
        and not vertex.expands
        and not vertex.retry.delay_s
        and vertex.restart is None
    )


def _inner(stage: Stage) -> bool:
    """Return whether the outputs of an ordinary stage may live and die inside a lease."""
    return (
        len(stage.outputs) == 1
        and not stage.vertex.keep
        and stage.vertex.program.style is Style.FUNCTION
        and stage.outputs[0].edge.storage is Storage.LOCAL
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
    while chain[-1] is not start:
        chain.append(chain[-1].inputs[0].src if len(chain[-1].inputs) == 1 else _before(chain[-1]))
    chain.reverse()
    return _chain(chain)


def _before(stage: Stage) -> Stage:
    return next(link.src for link in stage.inputs if not link.gate)


def _chain(stages: list[Stage]) -> Cone:
    length = len(stages)
    steps = _CHAINS.get(length)
    if steps is None:
        steps = _CHAINS[length] = tuple(ConeStep(i, 1, 0) for i in range(length))
    return Cone(
        tuple([stage.id for stage in stages]), (1,) * length, steps, 1, linear=True, held_bytes=_held(stages, 1)
    )


def _held(stages: list[Stage], height: int) -> int:
    """Return the size in bytes of the values held inside a cone, without those of its root, the last of `stages`."""
    inner = [stage.vertex for stage in stages[:-1]]
    outputs = max([vertex.output_bytes or 0 for vertex in inner], default=0)
    return height * outputs + max([vertex.scratch_bytes for vertex in inner], default=0)


_CHAINS: dict[int, tuple[ConeStep, ...]] = {}
"""The steps of chains by length: all chains of one length have equal steps."""


def _tree(root: Stage) -> Cone:
    """Walk upstream of one task of `root` in post-order, without recursion: chains may be long."""
    single = [root]
    while single[-1].narrow == 1 == len(single[-1].inputs) and single[-1].inputs[0].group == 1:
        single.append(single[-1].inputs[0].src)
    if single[-1].narrow == 0:
        return _chain(single[::-1])
    members: list[Stage] = []
    mults: dict[int, int] = {}
    work: list[tuple[Stage, int]] = [(root, 1)]
    while work:
        stage, mult = work.pop()
        members.append(stage)
        mults[stage.index] = mult
        work.extend((link.src, mult * link.group) for link in stage.inputs if not link.gate)
    members.reverse()
    place = {stage.index: at for at, stage in enumerate(members)}
    steps: list[ConeStep] = []
    todo: list[tuple[Stage, int, bool]] = [(root, 0, False)]
    held = height = 0
    while todo:
        stage, offset, expanded = todo.pop()
        inner = [link for link in stage.inputs if not link.gate]
        if expanded or not inner:
            held += 1 - sum(link.group for link in inner)
            height = max(height, held + sum(link.group for link in inner))
            steps.append(ConeStep(place[stage.index], mults[stage.index], offset))
            continue
        todo.append((stage, offset, True))
        for link in reversed(inner):
            todo.extend((link.src, offset * link.group + j, False) for j in reversed(range(link.group)))
    return Cone(
        tuple(stage.id for stage in members),
        tuple(mults[stage.index] for stage in members),
        tuple(steps),
        height,
        linear=len(steps) == len(members) and all(stage.narrow <= 1 for stage in members),
        held_bytes=_held(members, height),
    )
