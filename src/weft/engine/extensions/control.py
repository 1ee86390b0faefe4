"""Control vertices: services that change the vertices at the end of their order-only edges.

A request arrives as a user event of a reserved name and is applied like any decision, at once: before the decisions of
vertex managers, bubbles and speculation in the same tick. A request that is not allowed is rejected and noted, and the
job goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weft.engine.commands import Reply
from weft.engine.decisions import ApplyPatch, AskController, SetParallelism, SetResources
from weft.engine.events import Requested, UserEvent
from weft.engine.extensions.registry import Extension
from weft.engine.machines.job import GOING
from weft.engine.notes import NoteKind, data_of
from weft.engine.patching import apply
from weft.graph.logical import VertexKind
from weft.graph.task import DECIDE, RESERVED, USAGE
from weft.model.errors import GraphError, WeftError

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.decisions import Decision
    from weft.engine.physical import Stage


def heard(core: Core, event: UserEvent) -> None:
    """Handle an event of a reserved name; a requested change is answered with a `Reply`."""
    stage = core.by_id.get(event.vertex)
    if stage is None or not event.name.startswith(RESERVED):
        return
    if event.name == USAGE:
        most = core.usage.setdefault(stage.id, {})
        for name, value in event.payload.items():
            most[name] = max(value, most.get(name, value))
    elif event.name == DECIDE:
        token, what, vertex, value, because = event.payload
        core.out.append(Reply(token, _decide(core, stage, what, vertex, value, because)))


def _decide(core: Core, stage: Stage, what: str, vertex: str, value: Any, because: str) -> str:
    """Carry out the request of a control vertex; return the reason of a rejection, "" after success."""
    if core.status not in GOING:
        return f"the job is {core.status.value}"
    decision: Decision
    if what == "resources":
        decision = SetResources(vertex, value)
    elif what == "parallelism":
        decision = SetParallelism(vertex, value)
    elif what == "request":
        decision = AskController(stage.id, *value)
    else:
        decision = ApplyPatch(stage.id, value)
    subject = vertex or stage.id
    data = data_of(decision, subject)
    core.note(subject, NoteKind.CONTROL_DECIDED, stage.id, data, because)
    try:
        _may(core, stage, vertex)
        if isinstance(decision, SetParallelism):
            _check_decided(core.by_id[vertex])
        core.claim(stage.id, decision)
        if isinstance(decision, AskController):
            _ask_controller(core, stage, decision)
        else:
            apply(core, decision)
    except WeftError as error:
        core.note(subject, NoteKind.DECISION_REJECTED, error.message)
        return error.message
    return ""


def _may(core: Core, stage: Stage, vertex: str) -> None:
    """Raise GraphError unless a stage controls a vertex."""
    if stage.vertex.kind is not VertexKind.SERVICE:
        raise GraphError(f"{stage.id!r} is not a service: it controls nothing", subject=stage.id, rule="control")
    if vertex and not any(link.dst.id == vertex and not link.data for link in stage.outputs):
        raise GraphError(
            f"{stage.id!r} does not control {vertex!r}: no order-only edge leads there", subject=vertex, rule="control"
        )


def _ask_controller(core: Core, stage: Stage, decision: AskController) -> None:
    """Let the controller of the job hear a request. GraphError: nothing that the stage controls has a controller."""
    if core.control is None or not any(link.dst.control is not None and not link.data for link in stage.outputs):
        raise GraphError(
            f"{stage.id!r} controls no vertex that the controller of a job starts and stops",
            subject=stage.id,
            rule="control",
        )
    core.control.requests.append(Requested(core.now, decision.name, decision.payload))


def _check_decided(stage: Stage) -> None:
    """Raise GraphError if the graph gives the number of tasks of a stage."""
    width = stage.vertex.parallelism
    if isinstance(width, int):
        raise GraphError(
            f"the parallelism of vertex {stage.id!r} is fixed at {width}: give it n=Range(lo, hi) to have it decided",
            subject=stage.id,
            rule="parallelism",
        )


EXTENSION: Final = Extension("control", before={UserEvent: heard})
