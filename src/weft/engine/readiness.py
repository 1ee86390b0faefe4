"""Readiness: from the end of one task to the readiness of others, in range arithmetic.

Narrow inputs are counted for each task, wide and order-only ones for the stage (gates). The counters are a cache:
`recount` rebuilds them from task states after losses, patches and late parallelism, and lets the invariants check that
the fast path never drifts.
"""

from __future__ import annotations

from heapq import heappush
from math import ceil
from typing import TYPE_CHECKING

from weft.engine.agenda import Phase
from weft.engine.commands import Free, FreeParts, MarkEnded
from weft.engine.events import ANYWHERE
from weft.engine.machines.job import JobState
from weft.engine.machines.table import step
from weft.engine.machines.vertex import ENDED, SUCCESS, VERTEX, VertexState
from weft.engine.physical import INFINITE, NOTHING, Intervals
from weft.engine.placement import assign_by_bytes
from weft.engine.policy import Moment
from weft.engine.rows import (
    CANCELLED,
    CANCELLING,
    COMMITTING,
    FATAL,
    FINISHED,
    FREED,
    LEASED,
    OVER,
    PROBING,
    READY,
    RUNNING,
    SKIPPED,
    UNSCHEDULED,
    runs_of,
    write,
    write_mixed,
)
from weft.engine.story import story
from weft.graph.logical import SEQUENTIAL, WHILE_RUNNING, Outcome, Trigger, VertexKind

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weft.engine.core import Core
    from weft.engine.physical import ControlColumns, PhysicalEdge, Stage

FREE_BYTES = 4 * 2**20
"""The bytes of read partitions from which on these are dropped together."""
FREE_VISITS = 32
"""The most times that partitions of one output are dropped: each time visits the source tasks."""


def advance(core: Core, stage: Stage, cause: str) -> None:
    """Move a vertex along its table."""
    stage.status = step(VERTEX, stage.status, cause, stage.id, lambda subject: story(core, subject))
    core.moved.append(stage)


# ------------------------------------------------------------------------------------------------- becoming ready


def make_ready(core: Core, stage: Stage, lo: int, hi: int) -> None:
    """Make UNSCHEDULED tasks `lo:hi` READY, as far as the manager or the controller has let them start."""
    if 0 <= stage.released < hi:
        if stage.control is not None:
            for a, b in list(stage.control.free_runs(lo, hi)):
                write(core, stage, a, b, UNSCHEDULED, READY)
                enqueue(core, stage, a, b)
            return
        hi = stage.released
        if hi <= lo:
            return
    write(core, stage, lo, hi, UNSCHEDULED, READY)
    enqueue(core, stage, lo, hi)


def enqueue(core: Core, stage: Stage, lo: int, hi: int) -> None:
    """Add READY tasks to the ready sets of dispatch; tasks with a cache key probe the cache first."""
    if stage.vertex.cache_key is not None:
        for probe in core.hooks.probe:
            lo = probe(core, stage, lo, hi)
        if lo == hi:
            return
    if not core.tuning.shared_memory and stage.narrow:
        assign_by_bytes(core, stage, lo, hi)
    if stage.home is not None and stage.bubble < 0 and stage.plain:
        _enqueue_at_home(core, stage, lo, hi)
        return
    if stage.plain and stage.bubble < 0:
        _enqueue_anywhere(core, stage, lo, hi)
        return
    if stage.ready is NOTHING:
        stage.ready = Intervals()
    stage.ready.add(lo, hi)
    if stage.light and stage.bubble < 0:
        core.unslotted.add(stage)
        core.later(Phase.UNSLOTTED)
    else:
        core.later(Phase.REQUESTS, stage)


def _enqueue_anywhere(core: Core, stage: Stage, lo: int, hi: int) -> None:
    ready = stage.ready
    if ready is NOTHING:
        ready = stage.ready = Intervals()
    ready.add(lo, hi)
    key = ready.spans[-1][0] / stage.n - stage.depth - stage.lead
    if key < stage.key:
        stage.key = key
        heappush(core.heaps[ANYWHERE], (key, stage.nbytes, stage.index))


def _enqueue_at_home(core: Core, stage: Stage, lo: int, hi: int) -> None:
    """Split `lo:hi` by the node where each task should run."""
    home = stage.home
    assert home is not None
    if stage.local is None:
        stage.local = {}
        stage.queued = {}
    assert stage.queued is not None
    while lo < hi:
        node = home[lo]
        end = lo + 1
        while end < hi and home[end] == node:
            end += 1
        if node == ANYWHERE:
            _enqueue_anywhere(core, stage, lo, end)
            lo = end
            continue
        held = stage.local.get(node)
        if held is None:
            held = stage.local[node] = Intervals()
        held.add(lo, end)
        key = held.first / stage.n - stage.depth - stage.lead
        if key < stage.queued.get(node, INFINITE):
            stage.queued[node] = key
            heappush(core.heaps.setdefault(node, []), (key, stage.nbytes, stage.index))
        lo = end


def unqueue(stage: Stage, lo: int, hi: int) -> None:
    """Remove tasks from all ready sets."""
    stage.ready.discard(lo, hi)
    if stage.local:
        for held in stage.local.values():
            held.discard(lo, hi)


# ------------------------------------------------------------------------------------------------------- gates


def gate_opens(core: Core, link: PhysicalEdge) -> bool:
    """Return whether the condition of a gate holds now."""
    scheduling = link.edge.scheduling
    src = link.src
    when = scheduling.when
    if src.status is VertexState.SKIPPED:
        return True
    if src.again and src.status not in ENDED and not scheduling.concurrent:
        return False  # it opened before, and some outputs are being recomputed
    together = scheduling.concurrent and src.bubble >= 0 and src.bubble == link.dst.bubble
    if when in EARLY and not together and needs_slots(link):
        return False
    if when is Trigger.EVENT:
        return (src.id, scheduling.event) in core.emitted
    if together:
        return True  # both are granted, and start, together
    if when is Trigger.SOURCE_CONFIGURED:
        return src.n >= 0
    if when is Trigger.SOURCE_RUNNING:
        if src.n < 0:
            return False
        if src.control is not None:
            return _started_runs(src, src.control, scheduling.fraction)
        return src.executing + src.over >= ceil(scheduling.fraction * src.n)
    if when is Trigger.FRACTION and src.n >= 0 and src.finished >= ceil(scheduling.fraction * src.n):
        return True
    if scheduling.outcome is Outcome.ANY:
        return src.status in ENDED
    if scheduling.outcome is Outcome.ONE_SUCCESS:
        ends = [other.src.status for other in one_success_group(link.dst)]
        return any(end in SUCCESS and end is not VertexState.SKIPPED for end in ends) or all(
            end is VertexState.SKIPPED for end in ends
        )
    return src.status in SUCCESS


def _started_runs(src: Stage, control: ControlColumns, fraction: float) -> bool:
    """Return whether a fraction of the tasks that a controller has let start run or have ended."""
    wanted = src.n - control.held.count(1)
    there = sum(src.state.count(state) for state in (LEASED, RUNNING, COMMITTING, FINISHED, FREED, FATAL))
    return wanted > 0 and there >= ceil(fraction * wanted)


EARLY = (Trigger.FRACTION, Trigger.EVENT, Trigger.SOURCE_CONFIGURED, Trigger.SOURCE_RUNNING)
"""The triggers by which a destination may start while its source still runs."""


def needs_slots(link: PhysicalEdge) -> bool:
    """Return whether a source has tasks without a slot, for which its readers would wait while they hold all slots."""
    src = link.src
    if not link.data or link.dst.light or src.vertex.kind is VertexKind.SERVICE or src.status in ENDED:
        return False
    return src.n < 0 or src.executing + src.over < src.n


def one_success_group(stage: Stage) -> list[PhysicalEdge]:
    """Return the inputs of a stage of which one success suffices."""
    return [link for link in stage.inputs if link.edge.scheduling.outcome is Outcome.ONE_SUCCESS]


def open_gate(core: Core, link: PhysicalEdge) -> None:
    """Open a link for the tasks of its destination."""
    if link.opened:
        return
    link.opened = True
    dst = link.dst
    dst.closed -= 1
    if dst.bubble >= 0:
        core.later(Phase.REQUESTS, dst)
    if dst.closed == 0 and dst.n >= 0:
        release(core, dst)


def release(core: Core, stage: Stage) -> None:
    """Make tasks ready whose narrow inputs exist, after the last gate has opened."""
    if stage.status in ENDED:
        return
    if stage.narrow == 0 and stage.state.count(UNSCHEDULED) == stage.n and stage.retry_at is None:
        if stage.n:
            make_ready(core, stage, 0, stage.n)
        return
    recount(core, stage)


def check_gates(core: Core, stage: Stage) -> None:
    """Check the gates behind a stage that started, progressed or ended."""
    for link in stage.outputs:
        if link.gate and not link.opened and gate_opens(core, link):
            if link.edge.scheduling.outcome is Outcome.ONE_SUCCESS:
                for other in link.dst.inputs:
                    if other.edge.scheduling.outcome is Outcome.ONE_SUCCESS:
                        open_gate(core, other)
            else:
                open_gate(core, link)


def shut_gates(core: Core, stage: Stage) -> None:
    """Shut the gates behind a stage some of whose tasks have lost their slot; tasks that have started go on."""
    for link in stage.outputs:
        if link.opened and link.gate and not gate_opens(core, link):
            recount(core, link.dst)


# --------------------------------------------------------------------------------------------- tasks that finish


def arrived(core: Core, stage: Stage, lo: int, hi: int) -> None:
    """Count the new outputs `lo:hi` of `stage` at its consumers."""
    for link in stage.outputs:
        if link.gate or link.router is None:
            continue
        dst = link.dst
        if dst.simple:
            if not dst.closed:
                if dst.state.count(UNSCHEDULED, lo, hi) == hi - lo:
                    make_ready(core, dst, lo, hi)
                else:
                    for i in range(lo, hi):  # some ran before: their source was recomputed
                        if dst.state[i] == UNSCHEDULED:
                            make_ready(core, dst, i, i + 1)
            continue
        missing = dst.missing
        if missing is None:
            missing = dst.missing = count_missing(dst, fresh=True)
        ready_lo = ready_hi = -1
        if link.group:
            group = link.group
            for d in range(lo // group, (hi - 1) // group + 1):
                first = d * group
                left = missing[d] - (min(hi, first + group) - max(lo, first))
                missing[d] = left
                if left == 0 and not dst.closed and dst.state[d] == UNSCHEDULED:
                    if d == ready_hi:
                        ready_hi += 1
                    else:
                        if ready_hi > ready_lo:
                            make_ready(core, dst, ready_lo, ready_hi)
                        ready_lo, ready_hi = d, d + 1
        else:
            consumers = link.router.consumers
            for i in range(lo, hi):
                for a, b in consumers(i):
                    for d in range(a, b):
                        left = missing[d] - 1
                        missing[d] = left
                        if left == 0 and not dst.closed and dst.state[d] == UNSCHEDULED:
                            if d == ready_hi:
                                ready_hi += 1
                            else:
                                if ready_hi > ready_lo:
                                    make_ready(core, dst, ready_lo, ready_hi)
                                ready_lo, ready_hi = d, d + 1
        if ready_hi > ready_lo:
            make_ready(core, dst, ready_lo, ready_hi)


def count_missing(stage: Stage, *, fresh: bool = False) -> bytearray | list[int]:
    """Return for each task the number of missing outputs among those that it reads through narrow links.

    `fresh`: no output exists yet, so that no state needs to be read.
    """
    n = stage.n
    missing = [0] * n
    for link in stage.inputs:
        router = link.router
        if link.gate or router is None:
            continue
        src = link.src
        if src.status is VertexState.SKIPPED:
            continue
        if fresh:
            group = link.group
            if group and group * n == src.n:
                for d in range(n):
                    missing[d] += group
            else:
                for d in range(n):
                    missing[d] += router.fan_in(d)
            continue
        state = src.state
        for d in range(n):
            absent = 0
            for lo, hi, _, _ in router.inputs(d):
                absent += hi - lo - state.count(FINISHED, lo, hi) - state.count(SKIPPED, lo, hi)
            missing[d] += absent
    if n and max(missing) < 256:
        return bytearray(missing)
    return missing


def finish(core: Core, stage: Stage, spans: Sequence[tuple[int, int]]) -> None:
    """Finish tasks in ranges `lo:hi`: count them, notify their consumers, release their inputs."""
    count = sum([hi - lo for lo, hi in spans])
    stage.finished += count
    stage.over += count
    if stage.listeners:
        core.tell(stage, Moment.FINISHED)
    if stage.outputs:
        for link in stage.outputs:
            if not link.gate:
                for lo, hi in spans:
                    arrived(core, stage, lo, hi)
                break
        if stage.early:
            check_gates(core, stage)
    if stage.inputs:
        release_inputs(core, stage, spans)
    if stage.over == stage.n:
        end(core, stage)
    if stage.outputs and stage.status is VertexState.DONE and not stage.keep and stage.refs is None:
        drop_unread(core, stage)


def drop_unread(core: Core, stage: Stage) -> None:
    """Free the outputs of a stage whose data links are all exhausted already (their readers were skipped)."""
    data = [link for link in stage.outputs if link.data]
    if data and all(link.router is not None and link.left == 0 for link in data):
        free(core, stage, 0, stage.n)


def end(core: Core, stage: Stage) -> None:
    """End a vertex whose tasks are all over, and notify its dependents; a controlled one ends with the job alone."""
    if stage.status in ENDED or (stage.control is not None and core.status is JobState.RUNNING):
        return
    state = stage.state
    if FATAL in state:
        advance(core, stage, "fatal")
    elif stage.status is VertexState.DRAINING:
        advance(core, stage, "drained")
        core.later(Phase.WANTED, *(link.dst for link in stage.outputs if link.dst.status not in ENDED))
    elif CANCELLED in state:
        advance(core, stage, "cancelled")
    else:
        advance(core, stage, "all_finished")
    ended(core, stage)


def ended(core: Core, stage: Stage) -> None:
    """Apply the consequences of the end of a vertex: gates, services, bubbles, the job."""
    core.unended -= 1
    if meets_running(stage):
        core.out.append(MarkEnded(stage.id))
    if core.held and stage.vertex.final:
        core.held -= 1
    if stage.vertex.expands:
        _asks_no_more(core, stage)
    if stage.listeners:
        core.tell(stage, Moment.SOURCE_ENDED)
    if stage.bubble >= 0 or stage.control is not None:
        core.later(Phase.REQUESTS, stage)  # its bubble may be complete without it, or over
    blocks = stage.vertex.expands or (bool(core.sized) and stage.id in core.sized)
    for link in stage.outputs:
        if link.dst.bubble >= 0:
            core.later(Phase.REQUESTS, link.dst)  # its bubble may have waited for it
        if link.gate and not link.opened and gate_opens(core, link):
            if link.edge.scheduling.outcome is Outcome.ONE_SUCCESS:
                check_gates(core, stage)
            else:
                open_gate(core, link)
        elif link.gate and not link.opened:
            blocks = True
    for link in stage.inputs:
        if link.src.vertex.kind is VertexKind.SERVICE:
            core.later(Phase.SERVICES, link.src)
    if blocks:
        core.later(Phase.BLOCKED, stage)
    if stage.vertex.expands:
        core.later(Phase.SERVICES, *core.services)


def runs_again(core: Core, stage: Stage) -> None:
    """Move an ended vertex whose outputs are needed again back to RUNNING."""
    stage.again = True
    advance(core, stage, "output_lost")
    core.unended += 1
    if meets_running(stage):
        core.out.append(MarkEnded(stage.id, ended=False))


def meets_running(stage: Stage) -> bool:
    """Whether another vertex may read from a vertex, or write to it, while both run."""
    for links in (stage.inputs, stage.outputs):
        for link in links:
            scheduling = link.edge.scheduling
            if scheduling is SEQUENTIAL or not link.data:  # most edges have that object
                continue
            if scheduling.concurrent or scheduling.when in WHILE_RUNNING:
                return True
    return False


# ------------------------------------------------------------------------------------------- letting go of inputs


def release_inputs(core: Core, stage: Stage, spans: Sequence[tuple[int, int]]) -> None:
    """Release the inputs of ended tasks in ranges `lo:hi`: free outputs without other readers."""
    count = sum([hi - lo for lo, hi in spans])
    for link in stage.inputs:
        router = link.router
        src = link.src
        if router is None:
            continue
        left = link.left = link.left - count
        if (left and link.wide and (src.nbytes <= 0 or not router.partitions)) or src.vertex.keep or link.durable:
            continue
        if src.refs is None:
            if _only_reader(src):
                if link.wide:
                    if left == 0:
                        free(core, src, 0, src.n)
                    elif router.partitions == router.n_dst:
                        _free_parts(core, link, spans)
                    continue
                if link.group:
                    for lo, hi in spans:
                        free(core, src, lo * link.group, min(hi * link.group, src.n))
                    continue
            src.refs = count_refs(src, except_for=(stage, spans))
        refs = src.refs
        if link.wide:
            if left == 0:
                _drop_one_reader(core, src)
            continue
        for lo, hi in spans:
            for d in range(lo, hi):
                for a, b, _, _ in router.inputs(d):
                    for i in range(a, b):
                        refs[i] -= 1
                        if refs[i] == 0:
                            free(core, src, i, i + 1)


def _free_parts(core: Core, link: PhysicalEdge, spans: Sequence[tuple[int, int]]) -> None:
    """Drop partitions that were read, many at once, since each call visits the source tasks."""
    read = link.read_parts
    if read is None:
        read = link.read_parts = []
    for lo, hi in spans:
        if hi - lo == 1:
            read.append(lo)
        else:
            read += range(lo, hi)
    total = link.src.nbytes * link.src.n
    if total * len(read) < max(FREE_BYTES, total / FREE_VISITS) * link.dst.n:
        return
    if link.freed_parts is None:
        link.freed_parts = set()
    state = link.dst.state  # the tasks that are not over lost their output, and read again
    parts = sorted([part for part in read if state[part] in OVER])
    link.freed_parts.update(parts)
    if parts:
        core.out.append(FreeParts(link.src.id, tuple(parts)))
    link.read_parts = None


def _asks_no_more(core: Core, expander: Stage) -> None:
    """Release the order-only inputs of an ended expander, which can ask for their outputs no more."""
    for link in expander.inputs:
        if link.router is None and not link.data and link.src.refs is not None and not link.src.vertex.keep:
            _drop_one_reader(core, link.src)


def _drop_one_reader(core: Core, src: Stage) -> None:
    refs = src.refs
    assert refs is not None
    for i in range(src.n):
        refs[i] -= 1
        if refs[i] == 0:
            free(core, src, i, i + 1)


def _only_reader(stage: Stage) -> bool:
    """Return whether a stage has exactly one output link that carries data, and no expander may still ask for its
    data.
    """
    data = 0
    for link in stage.outputs:
        if link.data:
            data += 1
        elif link.dst.vertex.expands:
            return False
    return data == 1


def count_refs(stage: Stage, *, except_for: tuple[Stage, Sequence[tuple[int, int]]] | None = None) -> list[int]:
    """Return the number of future reads of each output: one for each narrow reader, one for each wide link.

    `except_for` names ended tasks of a reader whose inputs are not released yet.
    """
    refs = [0] * stage.n
    for link in stage.outputs:
        pending = None
        if except_for is not None and except_for[0] is link.dst:
            pending = {d for lo, hi in except_for[1] for d in range(lo, hi)}
        count_reader(refs, link, 1, pending)
    return refs


def count_reader(refs: list[int], link: PhysicalEdge, by: int = 1, pending: Collection[int] | None = None) -> None:
    """Add `by` to the number of future reads of each output that a link will read.

    `pending` are ended tasks of its reader whose inputs are not released yet.
    """
    router, dst = link.router, link.dst
    if not link.data or router is None:
        whole = dst.status not in ENDED and (link.data or dst.vertex.expands)
    elif link.wide:
        whole = link.left > 0 or pending is not None
    else:
        for d in range(dst.n):
            if dst.state[d] in OVER and (pending is None or d not in pending):
                continue
            for a, b, _, _ in router.inputs(d):
                for i in range(a, b):
                    refs[i] += by
        return
    if whole:
        refs[:] = [r + by for r in refs]


def free(core: Core, stage: Stage, lo: int, hi: int) -> None:
    """Drop the outputs of those of `lo:hi` that are FINISHED."""
    state = stage.state
    count = state.count(FINISHED, lo, hi)
    if count == 0:
        return
    spans = [(lo, hi)] if count == hi - lo else list(runs_of(state, FINISHED, lo, hi))
    for a, b in spans:
        write(core, stage, a, b, FINISHED, FREED)
        if stage.vertex.kind is not VertexKind.SERVICE:  # services have no outputs
            core.out.append(Free(stage.id, a, b))


# -------------------------------------------------------------------------------------------------------- afresh


def recount(core: Core, stage: Stage) -> None:
    """Rebuild every counter of a stage from task states, and move tasks between UNSCHEDULED and READY to match."""
    if stage.n < 0 or stage.status is VertexState.SKIPPED:
        return
    state = stage.state
    stage.finished = state.count(FINISHED) + state.count(FREED)
    stage.over = stage.finished + state.count(FATAL) + state.count(CANCELLED) + state.count(SKIPPED)
    stage.executing = state.count(LEASED) + state.count(RUNNING) + state.count(COMMITTING) + state.count(CANCELLING)
    settle_links(core, stage)
    if stage.narrow and not stage.simple:
        stage.missing = count_missing(stage)
        missing: bytearray | list[int] = stage.missing
    elif stage.narrow:
        missing = count_missing(stage)
        stage.missing = None
    else:
        missing = stage.missing = bytearray(stage.n)
        stage.missing = None
    if stage.bubble >= 0:
        core.later(Phase.REQUESTS, stage)
    stage.ready.clear()
    if stage.local:
        for held in stage.local.values():
            held.clear()
    for i in range(stage.n):
        if state[i] in (READY, PROBING) and (stage.closed or missing[i]):
            write_mixed(core, stage, i, i + 1, UNSCHEDULED)
        elif state[i] == UNSCHEDULED and not stage.closed and not missing[i] and not _delayed(stage, i):
            write(core, stage, i, i + 1, UNSCHEDULED, READY)
    for lo, hi in list(runs_of(state, READY, 0, stage.n)):
        enqueue(core, stage, lo, hi)
    if stage.refs is not None:
        stage.refs = count_refs(stage)


def _delayed(stage: Stage, index: int) -> bool:
    if stage.retry_at is not None and index in stage.retry_at:
        return True
    return 0 <= stage.released <= index and (stage.control is None or bool(stage.control.held[index]))


def settle_links(core: Core, stage: Stage) -> None:
    """Determine gates, narrow inputs and readers of the input links of a stage."""
    closed = int(stage.restarting)
    if core.held and stage.vertex.final:
        closed += 1
    narrow = group = 0
    for link in stage.inputs:
        if link.router is None and link.data and link.src.status is not VertexState.SKIPPED:
            closed += 1
            link.opened = False
            continue
        if link.gate:
            link.opened = gate_opens(core, link)
            closed += not link.opened
        else:
            narrow += 1
            group = link.group
        link.left = stage.n - stage.over
    if core.branched:
        closed += sum(not row.taken for row in core.branched.get(stage.id, ()))
    stage.closed = closed
    stage.narrow = narrow
    stage.simple = narrow == 1 and group == 1
