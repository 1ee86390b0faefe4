"""Assignment of ready tasks to offered workers, as leases.

The order is the tensor seed's, among vertices of one priority: deeper vertices first; among siblings the smaller
relative position (the inputs of deeper tasks); then smaller outputs. One number for each vertex, `-depth + first/n`,
expresses this order, and a priority counts as a depth that no graph has. A worker prefers tasks of its own node, then
tasks without a node, then tasks of the node with most work.
"""

from __future__ import annotations

from heapq import heappop, heapreplace
from itertools import islice
from typing import TYPE_CHECKING

from weft.engine.commands import Launch, LaunchEach
from weft.engine.cones import climb, siblings_ready, template
from weft.engine.core import FEW, STAGE_BITS, UNSLOTTED, LeaseRow, LeaseRows
from weft.engine.describe import describe, specs_of
from weft.engine.events import ANYWHERE
from weft.engine.leases import ALONE, alone
from weft.engine.machines.job import GOING
from weft.engine.machines.vertex import VERTEX, VertexState
from weft.engine.notes import NoteKind
from weft.engine.physical import INFINITE, NOTHING, Intervals
from weft.engine.readiness import check_gates, unqueue
from weft.engine.rows import LEASED, READY, UNSCHEDULED, write
from weft.engine.tokens import has_tokens, take_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.engine.core import Core
    from weft.engine.physical import Stage
    from weft.graph.lease import Cone
    from weft.model.resources import Resources


_STAGE = (1 << STAGE_BITS) - 1
_CONFIGURED = VertexState.CONFIGURED
_STARTED = VERTEX[_CONFIGURED]["task_started"]


def dispatch(core: Core, workers: Sequence[int]) -> None:
    """Give each offered worker a lease while there is something ready."""
    if core.status not in GOING:
        return
    heaps = core.heaps
    shared = heaps[ANYWHERE]
    found: tuple[Stage, Intervals] | None = None
    rest = reversed(workers)
    for worker in rest:
        row = core.workers.get(worker)
        if row is None:
            continue  # lost between the offer and now
        if found is None or len(heaps) > 1 or len(shared) > 1 or not found[1].count:
            found = _best(core, row.node)
            if found is None:
                return
            if len(heaps) == 1 and len(shared) == 1 and _one_by_one(core, found[0]):
                more = list(filter(core.workers.__contains__, islice(rest, found[1].count - 1)))
                if more:
                    _launch_each(core, *found, [worker, *more])
                    continue
        launch(core, found[0], found[1], worker)


def _one_by_one(core: Core, stage: Stage) -> bool:
    """Return whether each worker gets exactly one task of this stage."""
    seconds = stage.seconds if stage.seconds >= 0 else core.known.get(stage.id, -1.0)
    return (
        (seconds < 0 or seconds >= core.tuning.target_s)
        and stage.n > FEW
        and stage.cone_into is None
        and not (stage.narrow and stage.chain_next is not None)
        and stage.vertex.timeout_s is None
        and not stage.early
    )


def _launch_each(core: Core, stage: Stage, ready: Intervals, workers: list[int]) -> None:
    """Lease one task of `ready` to each of the workers, at most as many as tasks: `launch` for many."""
    if stage.status is _CONFIGURED:
        stage.status, stage.began = _STARTED, True
        core.moved.append(stage)
    members = alone(stage)
    resources, nbytes, specs = stage.resources[0], expected_bytes(core, stage, 1), describe(core, stage)
    given = 0
    while given < len(workers):
        lo, hi = ready.take(len(workers) - given)
        write(core, stage, lo, hi, READY, LEASED)
        takers = tuple(workers[given : given + hi - lo])
        given += hi - lo
        leases = tuple(range(core.counter + 1, core.counter + 1 + hi - lo))  # each number is one object everywhere
        core.counter += hi - lo
        core.leases.share(LeaseRows(leases, stage, lo, takers, members))
        attempts = tuple(map(stage.attempt, range(lo, hi))) if stage.attempts else ()
        core.out.append(LaunchEach(takers, leases, stage.id, lo, attempts, resources, nbytes, specs))
    stage.executing += given
    stage.last_width = 1


def unserved(core: Core, workers: Iterable[int]) -> list[int]:
    """Return the offered workers, idle before, that have no lease from this tick yet."""
    given = {command.worker for command in core.out if type(command) is Launch}
    given.update(*[command.workers for command in core.out if type(command) is LaunchEach])
    return [worker for worker in workers if worker in core.workers and worker not in given]


def has_ready(core: Core) -> bool:
    """Return whether an offered worker would get a lease. Changes nothing: the loop may call it at any time."""
    if core.status not in GOING:
        return False
    stages = core.stages
    for node, heap in core.heaps.items():
        for _, _, index in heap:
            stage = stages[index]
            ready = stage.ready if node == ANYWHERE else (stage.local or {}).get(node, NOTHING)
            if ready.count and stage.plain:
                return True
    return False


def _best(core: Core, node: int) -> tuple[Stage, Intervals] | None:
    """Return the stage to serve next and its ready set: of the node or shared work by key, else of another node.

    Among vertices of several priorities, work of other nodes goes before work of a lower priority.
    """
    heaps = core.heaps
    if len(heaps) == 1:
        return _peek(core, ANYWHERE)
    here = _peek(core, node) if node in heaps and node != ANYWHERE else None
    shared = _peek(core, ANYWHERE)
    near = here or shared
    if here is not None and shared is not None and _key(shared) < _key(here):
        near = shared
    if near is not None and not core.prioritised:
        return near
    far: tuple[Stage, Intervals] | None = None
    most = (-INFINITE, 0)
    for other in heaps:
        if other in (node, ANYWHERE):
            continue
        found = _peek(core, other)
        if found is not None:
            waiting = sum(s.local[other].count for s in core.stages if s.local and other in s.local)
            if (found[0].lead, waiting) > most:
                far, most = found, (found[0].lead, waiting)
    return far if near is None or (far is not None and far[0].lead > near[0].lead) else near


def _key(found: tuple[Stage, Intervals]) -> float:
    stage, ready = found
    return ready.first / stage.n - stage.depth - stage.lead


def _peek(core: Core, node: int) -> tuple[Stage, Intervals] | None:
    """Return the best stage of one heap without removing it; drop outdated entries."""
    heap = core.heaps[node]
    stages = core.stages
    while heap:
        key, nbytes, index = heap[0]
        stage = stages[index]
        if node == ANYWHERE:
            ready = stage.ready
            queued = stage.key
        else:
            assert stage.local is not None
            assert stage.queued is not None
            ready = stage.local[node]
            queued = stage.queued.get(node, INFINITE)
        if key != queued:
            heappop(heap)
            continue
        if not ready.count or not stage.plain:
            heappop(heap)
            _queued(stage, node, INFINITE)
            continue
        if len(heap) == 1:
            return stage, ready  # the key is corrected when a second entry comes to compare it with
        actual = ready.spans[-1][0] / stage.n - stage.depth - stage.lead
        if actual != key or nbytes != stage.nbytes:
            heapreplace(heap, (actual, stage.nbytes, index))
            _queued(stage, node, actual)
            continue
        return stage, ready
    return None


def _queued(stage: Stage, node: int, key: float) -> None:
    if node == ANYWHERE:
        stage.key = key
    else:
        assert stage.queued is not None
        stage.queued[node] = key


def width(core: Core, stage: Stage, waiting: int) -> int:
    """Return the number of tasks in one lease: by time, by growth, by fairness between workers, by bytes."""
    tuning = core.tuning
    seconds, widest = stage.seconds, tuning.growth * stage.last_width
    if seconds < 0:
        seconds, widest = core.known.get(stage.id, -1.0), FEW
    if seconds < 0 or seconds >= tuning.target_s or stage.vertex.timeout_s is not None:
        return 1  # no estimate yet, so probe; or a long task; or each task has its own timeout
    guided = -(-waiting // (2 * max(1, len(core.workers))))
    if seconds > 0:
        most = int(tuning.target_s / seconds)
        guided = min(max(guided, most // 10), most)  # a short lease costs more than its balance gains
    wide = min(guided, widest)
    if stage.nbytes > 0:
        wide = min(wide, int(tuning.lease_bytes / stage.nbytes))
    return max(1, wide)


def launch(core: Core, stage: Stage, ready: Intervals, worker: int) -> None:
    """Take a lease from the front of `ready` and give it to `worker`."""
    wide = width(core, stage, ready.count)
    root, leaves = stage, 1
    lo, top = ready.spans[-1]
    if stage.cone_into is not None or (stage.narrow and stage.chain_next is not None):
        room = top - lo
        root, leaves = climb(core, stage, lo, room, wide)
    if root is stage:
        lo, hi = ready.take(_until_a_cone_fits(core, stage, lo, wide))
        write(core, stage, lo, hi, READY, LEASED)
        lease = LeaseRow(core.fresh(), stage, lo, hi, None, alone(stage), ALONE, worker)
        stage.last_width = hi - lo
    else:
        cone = template(core, stage, root)
        units = max(1, min(wide // leaves, room // leaves))
        if units > 1 and any(link.group > 1 and not link.gate for link in root.outputs):
            units = 1
        elif units > 1:
            units = _uniform(core, root, cone, lo // leaves, units)
        ready.take(units * leaves)
        lo, hi = lo // leaves, lo // leaves + units
        members = tuple([(core.by_id[name], mult) for name, mult in zip(cone.members, cone.mult, strict=True)])
        leaf_ids = _take_members(core, stage, members, lo, hi)
        lease = LeaseRow(core.fresh(), root, lo, hi, cone, members, leaf_ids, worker)
        stage.last_width = units * leaves
    give(core, lease)


def _until_a_cone_fits(core: Core, stage: Stage, lo: int, wide: int) -> int:
    """Return the number of tasks from `lo` on to lease where no cone fits: to the next possible start of a cone, or a
    few.
    """
    if stage.cone_into is None or stage.narrow:
        return wide
    group = stage.cone_into.group
    return min(wide, group - lo % group if lo % group else core.tuning.realign)


def _uniform(core: Core, root: Stage, cone: Cone, lo: int, units: int) -> int:
    """Return the number of `units` from `lo` on that can be leased: the root UNSCHEDULED, every sibling ready."""
    units = min(units, root.n - lo)
    if any(core.by_id[name].narrow > 1 for name in cone.members):
        good = 0
        while good < units and root.state[lo + good] == UNSCHEDULED and siblings_ready(root, lo + good):
            good += 1
        return max(1, good)
    while root.state.count(UNSCHEDULED, lo, lo + units) != units:
        units = max(1, units // 2)
    return units


def _take_members(core: Core, start: Stage, members: tuple[tuple[Stage, int], ...], lo: int, hi: int) -> frozenset[int]:
    """Move every task of the cone to LEASED; return the indices of the stages whose tasks were READY."""
    leaves = set()
    for stage, mult in members:
        a, b = lo * mult, hi * mult
        if stage is start:
            leaves.add(stage.index)
            write(core, stage, a, b, READY, LEASED)
        elif stage.narrow == 0:
            leaves.add(stage.index)
            write(core, stage, a, b, READY, LEASED)
            unqueue(stage, a, b)
        else:
            write(core, stage, a, b, UNSCHEDULED, LEASED)
    return frozenset(leaves)


def give(core: Core, lease: LeaseRow, resources: Resources | None = None) -> None:
    """Record a lease and send it."""
    core.leases[lease.id] = lease
    units = lease.hi - lease.lo
    for stage, mult in lease.members:
        if stage.status is _CONFIGURED:
            stage.status, stage.began = _STARTED, True
            core.moved.append(stage)
        stage.executing += units * mult
        if stage.early:
            check_gates(core, stage)
    stage = lease.stage
    worker = lease.worker
    timeout = stage.vertex.timeout_s
    attempt = stage.attempt(lease.lo) if stage.attempts else 0
    if stage.control is not None:
        attempt = stage.control.starts[lease.lo]  # a start by the controller is an attempt too
        for launched in core.hooks.task_launched:
            launched(core, lease)
    if timeout is not None:
        lease.timer = core.set_timer(core.now + timeout, "timeout", lease.id)
    core.out.append(
        Launch(
            worker,
            lease.id,
            stage.id,
            lease.lo,
            lease.hi,
            lease.cone,
            attempt,
            resources or stage.resources[0],
            expected_bytes(core, stage, units) + (lease.cone.held_bytes if lease.cone is not None else 0),
            0,
            specs_of(core, stage, lease.cone),
        )
    )
    if stage.n <= FEW:
        core.note(
            f"{stage.id}[{lease.lo}]" if lease.hi - lease.lo == 1 else stage.id,
            NoteKind.LEASED,
            lease.lo,
            lease.hi,
            worker,
        )


def expected_bytes(core: Core, stage: Stage, tasks: int) -> int:
    """Return the expected bytes of some successive tasks, without their inputs.

    The sum of their outputs, as measured, else as declared by the vertex, else 0; and the larger of the memory that the
    vertex declares for one running task and of the second copy of an output, if there is one.
    """
    output = stage.nbytes if stage.nbytes >= 0 else stage.vertex.output_bytes or 0
    return int(output * tasks + max(stage.vertex.scratch_bytes, output if core.tuning.copied_out else 0))


def start_unslotted(core: Core) -> None:
    """Start unslotted tasks, as many as their tokens allow."""
    if core.status not in GOING:
        return
    heaps = core.unslotted.heaps
    while True:
        first = min(((heap[0], tokens) for tokens, heap in heaps.items() if has_tokens(core, tokens)), default=None)
        if first is None:
            return
        index, tokens = first[0] & _STAGE, first[1]
        stage, wants = core.stages[index], core.stages[index].resources[0]
        # A decision may have changed their resources to a core, or to other tokens.
        if not stage.ready.count or not stage.light or wants.tokens != tokens:
            heappop(heaps[tokens])
            if not heaps[tokens]:
                del heaps[tokens]
            continue
        take_tokens(core, wants)
        lo, hi = stage.ready.take(1)
        write(core, stage, lo, hi, READY, LEASED)
        give(core, LeaseRow(core.fresh(), stage, lo, hi, None, alone(stage), ALONE, UNSLOTTED))
