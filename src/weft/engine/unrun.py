"""The reason why a vertex ended before its tasks could end by themselves, derived from the present state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from weft.engine.core import NO_BRANCH
from weft.engine.machines.task import TaskState
from weft.engine.machines.vertex import VertexState
from weft.graph.logical import Outcome
from weft.model.ids import parse_task

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.physical import Stage


class Unrun(Struct, frozen=True):
    """Why a vertex was skipped, cancelled or could not run; at most one field is set.

    `decider` is the vertex whose choice left it out, `failed` the vertex whose failure it follows, `cancel` the reason
    of the user's cancel.
    """

    decider: str = ""
    failed: str = ""
    cancel: str = ""


_UNKNOWN = Unrun()


def unrun(core: Core, stage: Stage) -> Unrun:
    """Return why a vertex has ended without a success of its tasks; without any field if the reason is its own."""
    if stage.status is VertexState.SKIPPED:
        rows = [row for row in core.branched.get(stage.id, ()) if row.taken not in ("", NO_BRANCH)]
        left_out = (row for row in rows if stage.id not in row.choice.branches[row.taken])
        row = next(left_out, None)
        return _UNKNOWN if row is None else Unrun(decider=row.choice.decider)
    if stage.status is VertexState.CANCELLED:
        if core.cancel_reason:
            return Unrun(cancel=core.cancel_reason)
        return Unrun(failed=parse_task(core.cause.task)[0]) if core.cause and core.cause.task else _UNKNOWN
    if stage.status is not VertexState.FAILED:
        return _UNKNOWN
    lost = [link.src for link in stage.inputs if link.edge.scheduling.outcome is Outcome.SUCCESS]
    lost += [core.by_id[row.choice.decider] for row in core.branched.get(stage.id, ()) if row.taken == NO_BRANCH]
    source = next((src for src in lost if src.status is VertexState.FAILED or TaskState.FATAL in src.state), None)
    return _UNKNOWN if source is None else Unrun(failed=source.id)
