"""Bubbles: vertices whose slots are allocated together, all or none.

A bubble waits until all its members could start, asks for all its slots at once, and holds them. A bubble that is not
granted in time *shrinks*: the last vertex leaves, its streamed inputs are kept on the node instead, and the rest asks
again. A service forms a bubble with its concurrent consumers.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from weft.engine.agenda import Phase
from weft.engine.commands import Acquire, Release, Restart, Withdraw
from weft.engine.core import UNSLOTTED, BubbleRow, Growth, Hooks, LeaseRow, RequestRow
from weft.engine.describe import forget_specs
from weft.engine.dispatch import give
from weft.engine.events import WorkerLost
from weft.engine.extensions.registry import Extension
from weft.engine.failures import fatal
from weft.engine.leases import ALONE, alone
from weft.engine.machines.bubble import BUBBLE, BubbleState
from weft.engine.machines.job import GOING
from weft.engine.machines.table import step
from weft.engine.machines.vertex import ENDED, VertexState
from weft.engine.notes import NoteKind
from weft.engine.physical import INFINITE
from weft.engine.readiness import recount
from weft.engine.requests import ask, avoided, bound
from weft.engine.rows import LEASED, READY, UNSCHEDULED, write
from weft.engine.story import story
from weft.engine.tokens import return_tokens, take_tokens
from weft.graph.logical import SEQUENTIAL, Bubble, Outcome, Storage, Trigger, VertexKind
from weft.model.errors import GraphError
from weft.model.failures import Failure

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.events import Granted, Refused
    from weft.engine.physical import PhysicalEdge, Stage
    from weft.model.resources import Resources


def form(core: Core, growth: Growth) -> None:
    """Make rows of the declared bubbles, and one around each new SERVICE with its concurrent consumers.

    Bubbles of the graph before a patch are unchanged: their services may be running.
    """
    if not growth.bubbles and not core.services and not core.bubbles:
        return
    new = {stage.index for stage in growth.stages}
    patched = len(new) < len(core.stages)
    before = len(core.bubbles)
    if patched and any(link.dst.index not in new for link in growth.links):  # only such a link may close a path
        for row in core.bubbles:
            if row.state is BubbleState.FORMING:
                _loosen(core, row)
    for bubble in growth.bubbles:
        _row(core, bubble, [core.by_id[name] for name in bubble.vertices])
    for stage in growth.stages:
        # An unslotted service has no slot to allocate together.
        if stage.vertex.kind is VertexKind.SERVICE and not stage.light and stage.bubble < 0 and stage.control is None:
            _surround(core, stage, new)
    for row in core.bubbles[before:] if patched else ():
        for stage in row.stages:  # tasks that a patch made ready now wait for the other members
            stage.key = INFINITE
            recount(core, stage)


def _surround(core: Core, service: Stage, new: set[int]) -> None:
    """Make a bubble of a service and those of its new concurrent consumers that need not wait for the bubble."""
    branches = {name for row in core.choices.values() for branch in row.choice.branches.values() for name in branch}
    members = [service]
    for link in sorted(service.outputs, key=lambda link: (link.dst.depth, link.dst.index)):
        dst = link.dst
        if (
            link.edge.scheduling.concurrent
            and dst.n >= 0
            and dst.index in new
            and dst.id not in branches
            and dst.bubble < 0
            and dst.control is None
            and dst not in members
            and _orderly(core, [*members, dst])
        ):
            members.append(dst)
    if len(members) > 1:
        _row(core, Bubble(f"{service.id}.bubble", tuple(member.id for member in members)), members)


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
            core.later(Phase.CONES, stage)
            recount(core, stage)
        core.later(Phase.REQUESTS, *(stage for stage in row.stages if stage.bubble >= 0))  # these may wait no more


def _row(core: Core, bubble: Bubble, stages: list[Stage]) -> None:
    stages = sorted(stages, key=lambda stage: (stage.depth, stage.index))
    row = BubbleRow(bubble, len(core.bubbles), stages)
    core.bubbles.append(row)
    if len(stages) > 1 or bubble.prewarmed or bubble.whole:
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


def move_bubble(core: Core, row: BubbleRow, cause: str) -> None:
    """Move a bubble along its table."""
    row.state = step(BUBBLE, row.state, cause, row.bubble.id, lambda subject: story(core, subject))


def form_again(core: Core, row: BubbleRow, cause: str) -> None:
    """Let a bubble ask again, perhaps after a patch that came while it held its slots."""
    move_bubble(core, row, cause)
    _loosen(core, row)
    core.later(Phase.REQUESTS, *(stage for stage in row.stages if stage.bubble >= 0))


def _check_resources(core: Core, stage: Stage) -> None:
    """Raise GraphError if the bubble of a stage has asked for its slots."""
    if stage.bubble >= 0 and core.bubbles[stage.bubble].state in (BubbleState.WAITING, BubbleState.HELD):
        raise GraphError(
            f"the bubble of {stage.id!r} has asked for its slots: what its tasks take is settled",
            subject=stage.id,
            rule="not-started",
        )


def _due(core: Core, stage: Stage) -> None:
    row = core.bubbles[stage.bubble]
    if stage.status in ENDED:
        member_ended(core, stage)
    if row.controlled or core.status not in GOING:
        return
    if row.state is BubbleState.DONE and stage.ready.count:
        form_again(core, row, "output_lost")  # only the recomputed tasks ask for slots
    if row.state is BubbleState.HELD:
        start_members(core, row)
        _lend_back(core, row)
        if stage.ready.count and not stage.light:
            ask(core, stage)  # its slot was lost with a worker
    elif row.state is BubbleState.FORMING and _complete(row):
        move_bubble(core, row, "complete")
        row.request = core.fresh()
        core.requests[row.request] = RequestRow(row.request, None, bubble=row.index)
        wants = tuple(
            (member.id, left, with_windows(core, member), member.vertex.placement)
            for member in row.stages
            if member.status not in ENDED
            and not member.light
            and (left := member.n - member.over - member.executing) > 0  # a service goes on while its readers restart
        )
        if not row.bubble.whole:
            row.timer = core.set_timer(core.now + row.bubble.timeout_s, "bubble", row.index)
        core.note(row.bubble.id, NoteKind.BUBBLE_ASKS, sum(want[1] for want in wants))
        workers = bound(core, row.stages)
        core.out.append(Acquire(row.request, wants, row.bubble.prewarmed, avoided(core), workers, most_urgent(row)))


def with_windows(core: Core, stage: Stage) -> tuple[Resources, ...]:
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
        if inside and any(not is_there(link) for link in stage.inputs if link.src.bubble != stage.bubble):
            return False
    return True


def _waits(link: PhysicalEdge) -> bool:
    """Return whether the destination waits for an action of the source even after both have their slots."""
    scheduling = link.edge.scheduling
    return not scheduling.concurrent or (scheduling.when is Trigger.EVENT and not link.opened)


def most_urgent(row: BubbleRow) -> int:
    """Return the priority of a bubble: the highest one of its vertices."""
    return max([stage.vertex.priority for stage in row.stages], default=0)


def give_back(core: Core, slots: list[tuple[int, int, int]]) -> None:
    """Release idle slots."""
    for worker, _, request in slots:
        core.out.append(Release(request, worker))


def _lend_back(core: Core, row: BubbleRow) -> None:
    """Release the slots of members whose inputs from outside were lost: the recomputation may need these slots."""
    for stage in row.stages:
        if row.slots.get(stage.index) and any(not is_there(k) for k in stage.inputs if k.src.bubble != stage.bubble):
            give_back(core, row.slots.pop(stage.index))


def is_there(link: PhysicalEdge) -> bool:
    """Return whether the destination need not wait for an input any more; a ONE_SUCCESS input may have failed."""
    ended = link.src.status in ENDED
    if link.gate and not (ended and link.edge.scheduling.outcome is Outcome.ONE_SUCCESS):
        return link.opened
    return ended


def _granted(core: Core, row: RequestRow, event: Granted) -> None:
    """Start the members of a granted bubble."""
    bubble = core.bubbles[row.bubble]
    if row.id != bubble.request:
        return
    move_bubble(core, bubble, "granted")
    core.timers.pop(bubble.timer, None)
    core.note(bubble.bubble.id, NoteKind.BUBBLE_GRANTED, len(event.slots))
    for name, worker, alternative in event.slots:
        bubble.slots.setdefault(core.by_id[name].index, []).append((worker, alternative, event.request))
    start_members(core, bubble)
    if not bubble.controlled:
        _lend_back(core, bubble)
    core.later(Phase.REQUESTS, *bubble.stages)  # the request did not count tasks that became ready meanwhile


def start_members(core: Core, row: BubbleRow) -> None:
    """Start the ready tasks of a bubble on its idle slots."""
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


def _slot_over(core: Core, lease: LeaseRow, worker_alive: bool) -> None:
    """Reuse the slot of an ended lease inside its bubble, or release it."""
    row, stage = core.requests[lease.request], lease.stage
    if lease.worker == UNSLOTTED or not worker_alive:
        return
    bubble = core.bubbles[row.bubble]
    needed = stage.over < stage.n or stage.control is not None
    if needed and bubble.state is BubbleState.HELD and core.status in GOING:
        bubble.slots.setdefault(stage.index, []).append((lease.worker, 0, lease.request))
        core.later(Phase.REQUESTS, stage)
    else:
        core.out.append(Release(row.id, lease.worker))


def _slot_lost(core: Core, event: WorkerLost) -> None:
    """Remove a lost worker from the slots of its bubble, which asks for another one when needed."""
    for row in core.bubbles:
        for index, slots in row.slots.items():
            if any(slot[0] == event.worker for slot in slots):
                row.slots[index] = [slot for slot in slots if slot[0] != event.worker]
                core.later(Phase.REQUESTS, core.stages[index])


def member_ended(core: Core, stage: Stage) -> None:
    """Release the idle slots of an ended member, and the bubble when all members have ended."""
    row = core.bubbles[stage.bubble]
    give_back(core, row.slots.pop(stage.index, []))
    if row.state is not BubbleState.DONE and all(member.status in ENDED for member in row.stages):
        if row.state is BubbleState.WAITING and core.requests.pop(row.request, None) is not None:
            core.out.append(Withdraw(row.request))
        move_bubble(core, row, "ended")


def _refused(core: Core, row: RequestRow, event: Refused) -> None:
    """Shrink the bubble of a request that can never be met; the tasks of a whole one fail."""
    bubble = core.bubbles[row.bubble]
    if bubble.controlled:
        return
    core.timers.pop(bubble.timer, None)
    core.note(bubble.bubble.id, NoteKind.BUBBLE_REFUSED, event.reason)
    if bubble.bubble.whole:
        _fail_whole(core, bubble, event.reason)
        return
    most = max(1, len(core.workers), event.slots)
    for stage in bubble.stages:
        needed = (0 if stage.light else _cores(stage)) + sum(
            link.src.n * _cores(link.src)
            for link in stage.inputs
            if link.src.vertex.kind is VertexKind.SERVICE and link.edge.scheduling.concurrent and not link.src.light
        )
        if needed > most and stage.vertex.kind is VertexKind.FINITE:
            why = f"{stage.id} and its services need {needed} slots at once; the session has {most}"
            for index in [i for i in range(stage.n) if stage.state[i] in (UNSCHEDULED, READY)][:1]:
                fatal(core, stage, index, Failure.CAPACITY, why)
            if core.status not in GOING:
                return
    shrink(core, bubble, "never_fits")


def _fail_whole(core: Core, row: BubbleRow, reason: str) -> None:
    for stage in row.stages:
        for index in [i for i in range(stage.n) if stage.state[i] in (UNSCHEDULED, READY)]:
            if core.status in GOING and stage.state[index] in (UNSCHEDULED, READY):
                fatal(core, stage, index, Failure.CAPACITY, reason)


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
    move_bubble(core, row, cause)
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
    for changed in core.hooks.edge_changed:
        changed(core)
    near = {link.dst.index: link.dst for stage in leaving for link in stage.outputs if link.dst.n >= 0}
    near.update((stage.index, stage) for stage in leaving)
    core.later(Phase.CONES, *near.values(), *row.stages)
    for index in sorted(near):
        recount(core, near[index])
    if row.stages:
        form_again(core, row, "reformed")
        for stage in row.stages:
            recount(core, stage)
            core.later(Phase.REQUESTS, stage)
    else:
        move_bubble(core, row, "dissolved")


def keep_on_node(link: PhysicalEdge) -> None:
    """Store the data of a streamed edge; its destination starts after the end of the source."""
    link.set_edge(replace(link.edge, scheduling=SEQUENTIAL, storage=Storage.LOCAL))


EXTENSION: Final = Extension(
    "bubbles",
    before={WorkerLost: _slot_lost},
    timers={"bubble": timed_out},
    hooks=Hooks(
        graph_changed=(form,),
        resources_change=(_check_resources,),
        bubble_due=(_due,),
        bubble_granted=(_granted,),
        bubble_refused=(_refused,),
        bubble_slot_over=(_slot_over,),
    ),
)
