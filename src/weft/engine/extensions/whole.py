"""Whole bubbles of controlled vertices: all tasks that are started get their slots at once.

Such a bubble asks for the tasks that its controller has let start, again whenever these change, and waits as long as it
takes. It keeps its slots while its tasks stop, restart and fail, and gives them back when none of them runs or is to
run. Slots that are lost are asked for together too, so that of two bubbles none waits with a part of what the other one
needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weft.engine.agenda import Phase
from weft.engine.commands import Acquire, Withdraw
from weft.engine.core import Cause, Hooks, RequestRow
from weft.engine.extensions.bubbles import (
    form_again,
    give_back,
    is_there,
    most_urgent,
    move_bubble,
    start_members,
    with_windows,
)
from weft.engine.extensions.registry import Extension
from weft.engine.job import move_job
from weft.engine.machines.bubble import BubbleState
from weft.engine.machines.job import JobState
from weft.engine.notes import NoteKind
from weft.engine.requests import avoided
from weft.engine.rows import READY, UNSCHEDULED
from weft.engine.settle import stop_everything
from weft.model.failures import Failure

if TYPE_CHECKING:
    from weft.engine.core import BubbleRow, Core
    from weft.engine.events import Granted, Refused
    from weft.engine.physical import Stage


def _waiting(stage: Stage) -> int:
    """Return how many tasks of a stage are to run and do not."""
    assert stage.control is not None
    held = stage.control.held
    return sum(not held[i] and stage.state[i] in (UNSCHEDULED, READY) for i in range(stage.n))


def _lacking(core: Core, row: BubbleRow) -> tuple[tuple[Any, ...], ...]:
    """Return what a bubble has to ask for: the waiting tasks of each member without a slot."""
    found = []
    for stage in row.stages:
        count = 0 if stage.light else _waiting(stage) - len(row.slots.get(stage.index, ()))
        if count > 0:
            found.append((stage.id, count, with_windows(core, stage), stage.vertex.placement))
    return tuple(found)


def seen(core: Core, row: BubbleRow) -> tuple[Any, ...]:
    """Return the fields of the `ControlledBubble` of a bubble. A refusal ends when its controller wants other tasks."""
    held = row.state is BubbleState.HELD and not row.more
    if row.never and _lacking(core, row) != row.asked:
        return held, 0, "", False
    return held, sum(want[1] for want in row.asked), row.never or row.reason, bool(row.never)


def _due(core: Core, stage: Stage) -> None:
    row = core.bubbles[stage.bubble]
    if not row.controlled or core.status is not JobState.RUNNING or row.state is BubbleState.DONE:
        return
    if row.state is BubbleState.HELD:
        start_members(core, row)
    wants = _lacking(core, row)
    if row.never:
        if wants == row.asked:
            _fail(core, row)
            return
        row.never = ""
    if row.state is BubbleState.WAITING and wants != row.asked:
        _withdraw(core, row, row.request)
        move_bubble(core, row, "changed")
    if row.state is BubbleState.HELD:
        _hold(core, row, wants)
    elif row.state is BubbleState.FORMING and _complete(row):
        row.request = _ask(core, row, wants)
        move_bubble(core, row, "complete")


def _complete(row: BubbleRow) -> bool:
    """Return whether a task is to run, and no such task waits for what is outside of the bubble."""
    members = [stage for stage in row.stages if _waiting(stage)]
    return bool(members) and all(
        is_there(link) for stage in members for link in stage.inputs if link.src.bubble != stage.bubble
    )


def _hold(core: Core, row: BubbleRow, wants: tuple[tuple[Any, ...], ...]) -> None:
    """Ask for lacking slots, or give all back: no task runs, and none is to run or all slots are lost."""
    if row.more and wants != row.asked:
        _withdraw(core, row, row.more)
    running = any(stage.executing for stage in row.stages)
    idle = any(row.slots.values())
    if not running and (bool(wants) if not idle else not any(map(_waiting, row.stages))):
        if not wants and not any(stage.control is not None and stage.control.held.count(1) for stage in row.stages):
            return  # all have ended, and none was stopped: its controller may start them again
        _withdraw(core, row, row.more)
        for slots in row.slots.values():
            give_back(core, slots)
        row.slots.clear()
        form_again(core, row, "released")
    elif wants and not row.more:
        row.more = _ask(core, row, wants)


def _ask(core: Core, row: BubbleRow, wants: tuple[tuple[Any, ...], ...]) -> int:
    request = core.fresh()
    core.requests[request] = RequestRow(request, None, bubble=row.index)
    row.asked, row.reason = wants, ""
    own = {stage.index for stage in row.stages}
    taken = [lease.worker for lease in core.leases.values() if lease.worker >= 0 and lease.stage.index in own]
    taken += [slot[0] for slots in row.slots.values() for slot in slots]
    core.note(row.bubble.id, NoteKind.BUBBLE_ASKS, sum(want[1] for want in wants))
    core.later(Phase.CONTROLLER)
    core.out.append(
        Acquire(request, wants, row.bubble.prewarmed, avoided(core), tuple(sorted(taken)), most_urgent(row))
    )
    return request


def _withdraw(core: Core, row: BubbleRow, request: int) -> None:
    if core.requests.pop(request, None) is not None:
        core.out.append(Withdraw(request))
    row.asked, row.more = (), 0


def _granted(core: Core, row: RequestRow, event: Granted) -> None:
    """Add the slots that a bubble lacked to those that it holds."""
    bubble = core.bubbles[row.bubble]
    bubble.asked, bubble.reason = (), ""
    if row.id != bubble.more:
        return
    bubble.more = 0
    core.note(bubble.bubble.id, NoteKind.BUBBLE_GRANTED, len(event.slots))
    for name, worker, alternative in event.slots:
        bubble.slots.setdefault(core.by_id[name].index, []).append((worker, alternative, event.request))
    core.later(Phase.REQUESTS, *bubble.stages)


def _refused(core: Core, row: RequestRow, event: Refused) -> None:
    """Leave it to the controller what follows, before the job fails."""
    bubble = core.bubbles[row.bubble]
    if not bubble.controlled:
        return
    core.note(bubble.bubble.id, NoteKind.BUBBLE_REFUSED, event.reason)
    if row.id == bubble.more:
        bubble.more = 0
    else:
        move_bubble(core, bubble, "changed")
    if event.reason:
        parts = ", ".join(f"{count} of {name}" for name, count, *_ in bubble.asked)
        bubble.never = f"{bubble.bubble.id} asks at once for slots of {parts}: {event.reason}"
    core.later(Phase.CONTROLLER)
    core.later(Phase.REQUESTS, *bubble.stages)


def _fail(core: Core, row: BubbleRow) -> None:
    if core.cause is None:
        core.cause = Cause(row.stages[0].id, row.never, kind=Failure.CAPACITY.value)
    move_job(core, "task_fatal")
    stop_everything(core, row.never)


EXTENSION: Final = Extension(
    "whole", hooks=Hooks(bubble_due=(_due,), bubble_granted=(_granted,), bubble_refused=(_refused,))
)
