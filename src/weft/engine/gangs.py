"""Bubbles, and all other requests to the pool for more than one plain slot.

A bubble waits until all its members could start, asks for all its slots at once, and holds them. A bubble that is not
granted in time *shrinks*: the last vertex leaves, its streamed inputs are kept on the node instead, and the rest asks
again. A restart region (vertices joined by streams) restarts together, inside its bubble.
"""

from __future__ import annotations

from collections.abc import Collection
from math import ceil
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.engine.agenda import Phase
from weft.engine.commands import Acquire, Release, Restart, Withdraw
from weft.engine.core import UNSLOTTED, BubbleRow, LeaseRow, RequestRow
from weft.engine.describe import forget_specs
from weft.engine.dispatch import give
from weft.engine.failures import fatal
from weft.engine.leases import ALONE, alone, stop
from weft.engine.lineage import drop, remake
from weft.engine.machines.bubble import BUBBLE, BubbleState
from weft.engine.machines.job import GOING
from weft.engine.machines.lease import ACTIVE
from weft.engine.machines.table import step
from weft.engine.machines.vertex import ENDED, VertexState
from weft.engine.notes import NoteKind
from weft.engine.physical import INFINITE
from weft.engine.readiness import advance, count_refs, recount, unqueue
from weft.engine.rows import CANCELLED, FATAL, FINISHED, LEASED, READY, SKIPPED, UNSCHEDULED, write, write_mixed
from weft.engine.story import story
from weft.engine.tokens import return_tokens, take_tokens
from weft.graph.logical import SEQUENTIAL, Bubble, Outcome, Storage, Trigger, VertexKind
from weft.model.failures import Failure
from weft.model.ids import task_name
from weft.model.resources import Resources

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.events import Deferred, Granted, Refused
    from weft.engine.physical import PhysicalEdge, Stage

MOST_REQUESTS = 64
"""The largest number of open single-task requests of one stage."""


def form(core: Core, bubbles: tuple[Bubble, ...] | list[Bubble], known: Collection[Stage] = ()) -> None:
    """Make rows of the declared bubbles, and one around each SERVICE with its concurrent consumers.

    Bubbles `known` before a patch are unchanged: their services may be running.
    """
    before = len(core.bubbles)
    for row in core.bubbles if known else ():
        if row.state is BubbleState.FORMING:
            _loosen(core, row)
    for bubble in bubbles:
        _row(core, bubble, [core.by_id[name] for name in bubble.vertices])
    branches = {name for row in core.choices.values() for branch in row.choice.branches.values() for name in branch}
    for stage in core.order:
        if stage.vertex.kind is not VertexKind.SERVICE or stage.light or stage.bubble >= 0 or stage in known:
            continue  # an unslotted service has no slot to allocate together
        members = [stage]
        for link in sorted(stage.outputs, key=lambda link: (link.dst.depth, link.dst.index)):
            dst = link.dst
            if (
                link.edge.scheduling.concurrent
                and dst.n >= 0
                and dst not in known
                and dst.id not in branches
                and dst.bubble < 0
                and dst not in members
                and _orderly(core, [*members, dst])
            ):
                members.append(dst)
        if len(members) > 1:
            _row(core, Bubble(f"{stage.id}.bubble", tuple(member.id for member in members)), members)
    for row in core.bubbles[before:] if known else ():
        for stage in row.stages:  # tasks that a patch made ready now wait for the other members
            stage.key = INFINITE
            recount(core, stage)
    derive_regions(core)


def _loosen(core: Core, row: BubbleRow) -> None:
    """Remove from the bubble of a service the vertices that must wait for the bubble: a patch may have closed a
    path.
    """
    if row.stages[0].bubble != row.index or any(row.bubble.id == bubble.id for bubble in core.graph.bubbles):
        return
    while row.stages[0].bubble >= 0 and not _orderly(core, row.stages):
        out = [row.stages.pop()] if len(row.stages) > 2 else row.stages[::-1]
        for stage in out:
            stage.bubble = -1
            recount(core, stage)


def _row(core: Core, bubble: Bubble, stages: list[Stage]) -> None:
    stages = sorted(stages, key=lambda stage: (stage.depth, stage.index))
    row = BubbleRow(bubble, len(core.bubbles), stages)
    core.bubbles.append(row)
    if len(stages) > 1 or bubble.prewarmed:
        for stage in stages:
            stage.bubble = row.index


def _orderly(core: Core, members: list[Stage]) -> bool:
    """Return whether `members` as one bubble would not wait for themselves: with bubbles as nodes no path leads
    back.
    """
    together = {stage.index for stage in members}
    node = {s.index: -1 if s.index in together else (-2 - s.bubble if s.bubble >= 0 else s.index) for s in core.stages}
    below: dict[int, set[int]] = {}
    for link in core.links.values():
        src, dst = node[link.src.index], node[link.dst.index]
        if src != dst:
            below.setdefault(src, set()).add(dst)
    seen = {-1}
    reached = [-1]
    while reached:
        for dst in below.get(reached.pop(), ()):
            if dst == -1:
                return False
            if dst not in seen:
                seen.add(dst)
                reached.append(dst)
    return True


def derive_regions(core: Core) -> None:
    """Join the stages connected by EPHEMERAL edges from FINITE sources: they restart together."""
    group: dict[int, list[Stage]] = {}
    for stage in core.stages:
        stage.region = -1
    for link in core.links.values():
        if link.edge.storage is not Storage.EPHEMERAL or link.src.vertex.kind is not VertexKind.FINITE:
            continue
        a = group.get(link.src.index, [link.src])
        b = group.get(link.dst.index, [link.dst])
        if a is not b:
            a.extend(b)
        for stage in a:
            group[stage.index] = a
    core.regions = []
    for stage in core.stages:
        members = group.get(stage.index)
        if members is not None and stage.region < 0:
            for member in members:
                member.region = len(core.regions)
            core.regions.append(members)


def _move(core: Core, row: BubbleRow, cause: str) -> None:
    row.state = step(BUBBLE, row.state, cause, row.bubble.id, lambda subject: story(core, subject))


def _form_again(core: Core, row: BubbleRow, cause: str) -> None:
    """Let a bubble ask again, perhaps after a patch that came while it held its slots."""
    _move(core, row, cause)
    _loosen(core, row)
    core.later(Phase.REQUESTS, *(stage for stage in row.stages if stage.bubble >= 0))


def serve(core: Core) -> None:
    """Request slots for the tasks of stages that need more than a plain slot."""
    asking = {stage.index: stage for stage in core.taken(Phase.REQUESTS)}
    if core.status not in GOING:
        return
    for stage in asking.values():
        if stage.bubble >= 0:
            _serve_bubble(core, core.bubbles[stage.bubble], stage)
        elif not stage.plain:  # otherwise it has just left its bubble
            _serve_stage(core, stage)


def _serve_bubble(core: Core, row: BubbleRow, stage: Stage) -> None:
    if stage.status in ENDED:
        member_ended(core, stage)
    if row.state is BubbleState.DONE and stage.ready.count:
        _form_again(core, row, "output_lost")  # only the recomputed tasks ask for slots
    if row.state is BubbleState.HELD:
        _start_members(core, row)
        _lend_back(core, row)
        if stage.ready.count and not stage.light:
            _serve_stage(core, stage)  # its slot was lost with a worker
    elif row.state is BubbleState.FORMING and _complete(row):
        _move(core, row, "complete")
        row.request = core.fresh()
        core.requests[row.request] = RequestRow(row.request, None, bubble=row.index)
        wants = tuple(
            (member.id, left, _with_windows(core, member), member.vertex.placement)
            for member in row.stages
            if member.status not in ENDED
            and not member.light
            and (left := member.n - member.over - member.executing) > 0  # a service goes on while its readers restart
        )
        row.timer = core.set_timer(core.now + row.bubble.timeout_s, "bubble", row.index)
        core.note(row.bubble.id, NoteKind.BUBBLE_ASKS, sum(want[1] for want in wants))
        bound = _bound(core, row.stages)
        core.out.append(Acquire(row.request, wants, row.bubble.prewarmed, avoided(core), bound))


def _with_windows(core: Core, stage: Stage) -> tuple[Resources, ...]:
    """Return the resources of a task, with its share of the windows of its output streams."""
    streamed = sum(link.edge.storage is Storage.EPHEMERAL for link in stage.outputs)
    share = streamed * core.tuning.stream_bytes // stage.n if stage.n > 0 else 0
    return tuple(replace(r, memory=r.memory + share) for r in stage.resources) if share else stage.resources


def _complete(row: BubbleRow) -> bool:
    """Return whether every member could start, apart from waits for other members."""
    for stage in row.stages:
        if stage.status in ENDED:
            continue
        if stage.n < 0:
            return False
        inside = [link for link in stage.inputs if link.src.bubble == stage.bubble and _waits(link)]
        wanted = stage.n if stage.released < 0 else min(stage.released, stage.n)
        if not inside and stage.ready.count < wanted - stage.over - stage.executing:
            return False
        if inside and any(not _there(link) for link in stage.inputs if link.src.bubble != stage.bubble):
            return False
    return True


def _waits(link: PhysicalEdge) -> bool:
    """Return whether the destination waits for an action of the source even after both have their slots."""
    scheduling = link.edge.scheduling
    return not scheduling.concurrent or (scheduling.when is Trigger.EVENT and not link.opened)


def _give_back(core: Core, slots: list[tuple[int, int, int]]) -> None:
    for worker, _, request in slots:
        core.out.append(Release(request, worker))


def _lend_back(core: Core, row: BubbleRow) -> None:
    """Release the slots of members whose inputs from outside were lost: the recomputation may need these slots."""
    for stage in row.stages:
        if row.slots.get(stage.index) and any(not _there(k) for k in stage.inputs if k.src.bubble != stage.bubble):
            _give_back(core, row.slots.pop(stage.index))


def _there(link: PhysicalEdge) -> bool:
    """Return whether the destination need not wait for an input any more; a ONE_SUCCESS input may have failed."""
    ended = link.src.status in ENDED
    if link.gate and not (ended and link.edge.scheduling.outcome is Outcome.ONE_SUCCESS):
        return link.opened
    return ended


def _serve_stage(core: Core, stage: Stage) -> None:
    special: list[int] = []
    if stage.memory:
        asked = {row.index for row in core.requests.values() if row.stage is stage}
        special = [i for i in sorted(stage.memory) if stage.state[i] == READY and i not in asked]
    while stage.ready.count > stage.request and stage.request < MOST_REQUESTS:
        if not take_tokens(core, stage.resources[0]):
            core.token_waiters[stage.index] = stage
            return
        index = special.pop(0) if special else -1
        alternatives = stage.resources
        if index >= 0:
            assert stage.memory is not None
            more = stage.memory[index]
            alternatives = tuple(
                Resources(r.cpu, max(r.memory, more), r.gpu, r.gpu_type, r.tokens) for r in alternatives
            )
        request = core.fresh()
        stage.request += 1
        core.requests[request] = RequestRow(request, stage, index=index, alternatives=alternatives)
        avoid = avoided(core)
        if stage.avoid:
            failed = set(avoid).union(*stage.avoid.values()) & core.workers.keys()
            if len(failed) < len(core.workers):
                avoid = tuple(sorted(failed))
        wants = ((stage.id, 1, alternatives, stage.vertex.placement),)
        core.out.append(Acquire(request, wants, False, avoid, _bound(core, [stage])))


def _bound(core: Core, stages: list[Stage]) -> tuple[int, ...]:
    """Return the workers held by services that run until `stages` have ended."""
    if not core.services:
        return ()
    below = {stage.index for stage in stages}
    reached = list(stages)
    while reached:
        for link in reached.pop().outputs:
            if link.dst.index not in below:
                below.add(link.dst.index)
                reached.append(link.dst)
    needed = {
        service.index
        for service in core.services
        for link in service.outputs
        if link.edge.scheduling.concurrent and link.dst.index in below and link.dst.status not in ENDED
    }
    return tuple(sorted(row.worker for row in core.leases.values() if row.worker >= 0 and row.stage.index in needed))


def avoided(core: Core) -> tuple[int, ...]:
    """Return the excluded workers, in order."""
    return tuple(sorted(core.avoided.keys() & core.workers.keys())) if core.avoided else ()


def granted(core: Core, event: Granted) -> None:
    """Start the tasks of a granted request, or release slots that are not needed any more."""
    row = core.requests.get(event.request)
    if row is None or core.status not in GOING:
        if core.requests.pop(event.request, None) is not None and row is not None and row.stage is not None:
            return_tokens(core, row.stage.resources[0])
        core.out.extend(Release(event.request, worker) for _, worker, _ in event.slots)
        return
    row.granted = True
    if row.stage is not None:
        _granted_stage(core, row, event)
        return
    bubble = core.bubbles[row.bubble]
    _move(core, bubble, "granted")
    core.timers.pop(bubble.timer, None)
    core.note(bubble.bubble.id, NoteKind.BUBBLE_GRANTED, len(event.slots))
    for name, worker, alternative in event.slots:
        bubble.slots.setdefault(core.by_id[name].index, []).append((worker, alternative, event.request))
    _start_members(core, bubble)
    _lend_back(core, bubble)
    core.later(Phase.REQUESTS, *bubble.stages)  # the request did not count tasks that became ready meanwhile


def _start_members(core: Core, row: BubbleRow) -> None:
    for stage in row.stages:
        slots = row.slots.get(stage.index, [])
        while stage.ready.count and (slots or stage.light):
            if not (take_tokens(core, stage.resources[0]) or _take_from_requests(core, stage.resources[0])):
                core.token_waiters[stage.index] = stage
                break
            idle = slots.pop() if slots and not stage.light else (UNSLOTTED, 0, row.request)
            worker, alternative, request = idle
            lo, hi = stage.ready.take(1)
            write(core, stage, lo, hi, READY, LEASED)
            lease = LeaseRow(core.fresh(), stage, lo, hi, None, alone(stage), ALONE, worker, request)
            give(core, lease, stage.resources[alternative])


def _take_from_requests(core: Core, wants: Resources) -> bool:
    """Take tokens from open requests, the youngest first, if these suffice: the requests may wait for the bubble's
    slots.
    """
    short = {name: count - core.tokens[name] for name, count in wants.tokens}
    withdrawn: list[RequestRow] = []
    for row in reversed(core.requests.values()):
        if row.stage is None or row.granted:
            continue
        held = [(name, count) for name, count in row.stage.resources[0].tokens if short.get(name, 0) > 0]
        for name, count in held:
            short[name] -= count
        if held:
            withdrawn.append(row)
    if any(count > 0 for count in short.values()):
        return False
    for row in withdrawn:
        assert row.stage is not None
        core.out.append(Withdraw(row.id))
        del core.requests[row.id]
        row.stage.request -= 1
        return_tokens(core, row.stage.resources[0])
        core.later(Phase.REQUESTS, row.stage)
    return take_tokens(core, wants)


def _granted_stage(core: Core, row: RequestRow, event: Granted) -> None:
    stage = row.stage
    assert stage is not None
    stage.request -= 1
    _, worker, alternative = event.slots[0]
    wants = row.alternatives[alternative]
    index = row.index if row.index >= 0 else ordinary_task(stage)
    startable = index >= 0 and stage.state[index] == READY
    if not startable or worker not in core.workers:
        core.requests.pop(row.id)
        return_tokens(core, stage.resources[0])
        core.out.append(Release(row.id, worker))
        if stage.ready.count:
            core.later(Phase.REQUESTS, stage)
        return
    unqueue(stage, index, index + 1)
    write(core, stage, index, index + 1, READY, LEASED)
    lease = LeaseRow(core.fresh(), stage, index, index + 1, None, alone(stage), ALONE, worker, row.id)
    give(core, lease, wants)


def ordinary_task(stage: Stage) -> int:
    """Return the first ready task with the resources of its vertex, -1 if there is none."""
    special = stage.memory or ()
    return next((i for lo, hi in stage.ready for i in range(lo, hi) if i not in special), -1)


def slot_over(core: Core, lease: LeaseRow, *, worker_alive: bool) -> None:
    """Reuse the slot of an ended lease inside its bubble, or release it."""
    row = core.requests.get(lease.request)
    if row is None:
        return
    stage = lease.stage
    if row.stage is not None:
        core.requests.pop(row.id)
        if worker_alive:
            core.out.append(Release(row.id, lease.worker))
        if stage.ready.count:
            core.later(Phase.REQUESTS, stage)
        return
    if lease.worker == UNSLOTTED or not worker_alive:
        return
    bubble = core.bubbles[row.bubble]
    if stage.over < stage.n and bubble.state is BubbleState.HELD and core.status in GOING:
        bubble.slots.setdefault(stage.index, []).append((lease.worker, 0, lease.request))
        core.later(Phase.REQUESTS, stage)
    else:
        core.out.append(Release(row.id, lease.worker))


def slot_lost(core: Core, worker: int) -> None:
    """Remove a lost worker from the slots of its bubble, which asks for another one when needed."""
    for row in core.bubbles:
        for index, slots in row.slots.items():
            if any(slot[0] == worker for slot in slots):
                row.slots[index] = [slot for slot in slots if slot[0] != worker]
                core.later(Phase.REQUESTS, core.stages[index])


def member_ended(core: Core, stage: Stage) -> None:
    """Release the idle slots of an ended member, and the bubble when all members have ended."""
    row = core.bubbles[stage.bubble]
    _give_back(core, row.slots.pop(stage.index, []))
    if row.state is not BubbleState.DONE and all(member.status in ENDED for member in row.stages):
        if row.state is BubbleState.WAITING:
            core.out.append(Withdraw(row.request))
            core.requests.pop(row.request, None)
        _move(core, row, "ended")


def deferred(core: Core, event: Deferred) -> None:
    """Record in the history of the bubble or task that its request waits for nodes to join."""
    row = core.requests.get(event.request)
    if row is None:
        return
    subject = core.bubbles[row.bubble].bubble.id if row.stage is None else row.stage.id
    if row.stage is not None and row.index >= 0:
        subject = task_name(row.stage.id, row.index)
    core.note(subject, NoteKind.NODES_AWAITED, event.reason)


def refused(core: Core, event: Refused) -> str:
    """Shrink the bubble of a request that can never be met; for a single task return the reason of its failure."""
    row = core.requests.pop(event.request, None)
    if row is None:
        return ""
    if row.stage is not None:
        row.stage.request -= 1
        return_tokens(core, row.stage.resources[0])
        return event.reason
    bubble = core.bubbles[row.bubble]
    core.timers.pop(bubble.timer, None)
    core.note(bubble.bubble.id, NoteKind.BUBBLE_REFUSED, event.reason)
    most = max(1, len(core.workers), event.slots)
    for stage in bubble.stages:
        needed = _cores(stage) + sum(
            link.src.n * _cores(link.src)
            for link in stage.inputs
            if link.src.vertex.kind is VertexKind.SERVICE and link.edge.scheduling.concurrent and not link.src.light
        )
        if needed > most and stage.vertex.kind is VertexKind.FINITE and not stage.light:
            why = f"{stage.id} and its services need {needed} slots at once; the session has {most}"
            for index in [i for i in range(stage.n) if stage.state[i] in (UNSCHEDULED, READY)][:1]:
                fatal(core, stage, index, Failure.CAPACITY, why)
            if core.status not in GOING:
                return ""
    shrink(core, bubble, "never_fits")
    return ""


def _cores(stage: Stage) -> int:
    """Return the minimal number of workers for a task: one for each of its cores."""
    return min(max(1, ceil(resources.cpu)) for resources in stage.resources)


def timed_out(core: Core, index: int) -> None:
    """Shrink a bubble that was not granted in time."""
    row = core.bubbles[index]
    if row.state is not BubbleState.WAITING:
        return
    core.out.append(Withdraw(row.request))
    core.requests.pop(row.request, None)
    core.note(row.bubble.id, NoteKind.BUBBLE_TIMED_OUT, row.bubble.timeout_s)
    shrink(core, row, "timeout")


def shrink(core: Core, row: BubbleRow, cause: str) -> None:
    """Remove the last vertex of a bubble; its streamed inputs are kept on the node. A rest of one vertex is no
    bubble.
    """
    _move(core, row, cause)
    gone = row.stages.pop()
    leaving = [gone]
    if len(row.stages) == 1:
        leaving.append(row.stages.pop())
    core.note(row.bubble.id, NoteKind.BUBBLE_SHRUNK, [stage.id for stage in leaving])
    members = {stage.index for stage in (*leaving, *row.stages)}
    for stage in leaving:
        stage.bubble = -1
    again: list[str] = []
    for stage in leaving:
        for link in (*stage.inputs, *stage.outputs):
            if (
                link.src.index in members
                and link.dst.index in members
                and link.src.vertex.kind is VertexKind.FINITE
                and link.edge.scheduling.concurrent
                and link.edge.storage
                in (
                    Storage.EPHEMERAL,
                    Storage.LOCAL,
                )
            ):
                keep_on_node(link)
                again += [s.id for s in (link.src, link.dst) if s.status is not VertexState.CONFIGURED]
    if again:
        core.out.append(Restart(tuple(dict.fromkeys(again))))
        forget_specs(core, [core.by_id[name] for name in again])
    derive_regions(core)
    core.later(Phase.CONES)
    near = {link.dst.index: link.dst for stage in leaving for link in stage.outputs if link.dst.n >= 0}
    near.update((stage.index, stage) for stage in leaving)
    for index in sorted(near):
        recount(core, near[index])
    if row.stages:
        _form_again(core, row, "reformed")
        for stage in row.stages:
            recount(core, stage)
            core.later(Phase.REQUESTS, stage)
    else:
        _move(core, row, "dissolved")


def keep_on_node(link: PhysicalEdge) -> None:
    """Store the data of a streamed edge; its destination starts after the end of the source."""
    link.set_edge(replace(link.edge, scheduling=SEQUENTIAL, storage=Storage.LOCAL))


def restart_region(core: Core, stage: Stage, why: str) -> bool:
    """Stop all leases in the region of `stage` for a common restart; False if it has no region."""
    if stage.region < 0 or core.status not in GOING:
        return False
    members = core.regions[stage.region]
    core.note(stage.id, NoteKind.REGION_RESTARTS, why)
    for lease in core.leases.values():
        if lease.stage in members and lease.state in ACTIVE:
            stop(core, lease, "region_restart", "region restart")
    for member in members:
        if not member.restarting and member.n >= 0:
            member.restarting = True
            recount(core, member)
    region_quiet(core, stage.region)
    return True


def goes_on(core: Core, stage: Stage) -> None:
    """Restart the region of `stage` if it waits for the end of this lease, which was not stopped for the region."""
    if core.status in GOING and stage.region >= 0 and any(member.restarting for member in core.regions[stage.region]):
        region_quiet(core, stage.region)


def restart_needed(core: Core) -> None:
    """Restart the regions with outputs to recompute: their streamed inputs are not stored."""
    for stage in core.taken(Phase.RESTARTS):
        if not stage.restarting:
            restart_region(core, stage, "what was streamed to make its outputs is gone")


def region_quiet(core: Core, region: int) -> None:
    """Put a restarting region back to the start if none of its leases runs any more."""
    members = core.regions[region]
    if any(lease.stage in members for lease in core.leases.values()):
        return
    core.out.append(Restart(tuple(stage.id for stage in members)))
    forget_specs(core, members)
    held = [stage for stage in members if stage.restarting]
    for stage in held:
        stage.restarting = False
    bubbles: list[BubbleRow] = []
    again: list[Stage] = []
    for stage in members:
        if not _back_to_start(core, stage):
            continue
        again.append(stage)
        if stage.bubble >= 0 and core.bubbles[stage.bubble] not in bubbles:
            bubbles.append(core.bubbles[stage.bubble])
    for row in bubbles:
        if row.state is BubbleState.HELD:
            for slots in row.slots.values():
                _give_back(core, slots)
            row.slots.clear()
            _form_again(core, row, "region_restart")
        elif row.state is BubbleState.DONE:
            _form_again(core, row, "output_lost")
    for stage in sorted({*again, *held}, key=lambda s: s.index):
        recount(core, stage)
        for link in stage.inputs:
            if link.src.refs is not None:
                link.src.refs = count_refs(link.src)
        if stage.bubble >= 0:
            core.later(Phase.REQUESTS, stage)
    for stage in again:
        remake(core, stage)


def _back_to_start(core: Core, stage: Stage) -> bool:
    """Reset a stage of a restarting region; False if it has no task to run."""
    anew = 0
    there = [i for i in range(stage.n) if stage.state[i] == FINISHED]
    for i in range(stage.n):
        if stage.state[i] in (FATAL, CANCELLED, SKIPPED, UNSCHEDULED, READY):
            anew += stage.state[i] in (UNSCHEDULED, READY)
            continue
        write_mixed(core, stage, i, i + 1, UNSCHEDULED)
        anew += 1
    stage.executing = 0
    if there:
        drop(core, stage, there)
    if not anew:
        return False
    if stage.status in ENDED:
        stage.again = True
        advance(core, stage, "output_lost")
        core.unended += 1
    return True
