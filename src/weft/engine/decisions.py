"""The decisions of policies and expanders: plain data, validated, journaled, then applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import Any, Final, SupportsIndex

from msgspec import Struct

from weft.graph.logical import Movement, Patch, Scheduling, Storage
from weft.graph.routing import Router  # noqa: TC001 (`help` evaluates the fields of records)
from weft.model.errors import GraphError
from weft.model.resources import Resources  # noqa: TC001
from weft.model.wording import type_of


class SetParallelism(Struct, frozen=True):
    """Give a vertex that has not started `n` tasks.

    `routers` are those of some inputs (edge id to router); `items`, one for each task, replace those of the graph.
    """

    vertex: str
    n: int
    routers: tuple[tuple[str, Router], ...] = ()
    items: Sequence[Any] | None = None


class SetEdge(Struct, frozen=True):
    """Change scheduling, storage or movement of an edge none of whose destination tasks has started.

    Readers of a shuffle that becomes a broadcast or one-to-one edge get the list of all pieces of the source tasks they
    read. An edge becomes a shuffle only before its source has started.
    """

    edge: str
    scheduling: Scheduling | None = None
    storage: Storage | None = None
    movement: Movement | None = None


class SetResources(Struct, frozen=True):
    """Change the requested resources of the tasks of a vertex that have not started."""

    vertex: str
    resources: tuple[Resources, ...]


class Schedule(Struct, frozen=True):
    """Let the first `n` tasks of a vertex start; its manager holds the rest back."""

    vertex: str
    n: int


class Finish(Struct, frozen=True):
    """End a vertex early: running tasks are stopped, the others are skipped."""

    vertex: str
    reason: str


class Choose(Struct, frozen=True):
    """Take one branch of a choice; the vertices of the others are skipped."""

    choice: str
    branch: str


class ApplyPatch(Struct, frozen=True):
    """Edit the part of the graph that has not started, for the expander `vertex`."""

    vertex: str
    patch: Patch


class Emit(Struct, frozen=True):
    """Send a user event in the name of `vertex`, to the edges and the managers that wait for it."""

    vertex: str
    name: str
    payload: Any = None


class Fail(Struct, frozen=True):
    """Fail a vertex for the given reason."""

    vertex: str
    reason: str


class BackUp(Struct, frozen=True):
    """Run the tasks of a lease a second time, on an idle worker, in parallel with the first attempt."""

    lease: int
    reason: str


class WeighTasks(Struct, frozen=True):
    """Count the bytes that the tasks of a lease read."""

    lease: int


class Avoid(Struct, frozen=True):
    """Exclude a worker for so many seconds, unless no other worker is left; `seen` has the figures behind the
    decision.
    """

    worker: int
    seconds: float
    reason: str
    seen: str = ""


class Readmit(Struct, frozen=True):
    """End the exclusion of a worker."""

    worker: int
    reason: str


class Remake(Struct, frozen=True):
    """Recompute an output that exists and cannot be read, if a consumer still needs it."""

    vertex: str
    index: int
    reason: str


class StartTasks(Struct, frozen=True):
    """Let tasks `lo:hi` of a controlled vertex run: those that are held, that stop, or that have ended in any way.

    Tasks that wait or run already go on.
    """

    vertex: str
    lo: int
    hi: int


class StopTasks(Struct, frozen=True):
    """Stop tasks `lo:hi` of a controlled vertex, and hold them; tasks that have ended stay so.

    Running ones get the grace of their backend; waiting ones are withdrawn at once.
    """

    vertex: str
    lo: int
    hi: int
    reason: str


class Conclude(Struct, frozen=True):
    """End the job as "succeeded", "failed" or "cancelled", after a stop of all that runs; final vertices run then.

    `task` is the task to blame, if any.
    """

    outcome: str
    reason: str
    task: str = ""


class AskController(Struct, frozen=True):
    """Request something of the controller of the job, as a user does, for the control vertex `vertex`."""

    vertex: str
    name: str
    payload: Any = None


class WakeAt(Struct, frozen=True):
    """Ask the controller again at a time (seconds since 1970), even if nothing changes; replaces an earlier one."""

    at: float


Decision = (
    SetParallelism
    | SetEdge
    | SetResources
    | Schedule
    | Finish
    | Choose
    | ApplyPatch
    | Emit
    | Fail
    | BackUp
    | WeighTasks
    | Avoid
    | Readmit
    | Remake
    | StartTasks
    | StopTasks
    | Conclude
    | AskController
    | WakeAt
)


def _of(*kinds: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


def _routed(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(one, tuple | list) and len(one) == 2 for one in value)


_FIELDS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    **dict.fromkeys(("vertex", "edge", "choice", "branch", "name", "reason"), (_of(str), "text")),
    "n": (_of(SupportsIndex), "a whole number"),
    "routers": (_routed, "pairs of an edge and a router"),
    "items": (_of(type(None), Sized), "None or a list with one item for each task"),
    "scheduling": (_of(type(None), Scheduling), "None or a Scheduling"),
    "storage": (_of(type(None), Storage), "None or a Storage"),
    "movement": (_of(type(None), Movement), "None or a Movement"),
}
"""The form of the fields of decisions that programs make."""


def check_form(decision: Any) -> None:
    """Raise GraphError if something is no decision, or has a field of another type than it takes."""
    if not isinstance(decision, Decision):
        raise GraphError(
            f"{type_of(decision)} is not a decision",
            rule="decision",
            hint="The decisions are classes of weft.engine.decisions.",
        )
    for field in decision.__struct_fields__:
        value = getattr(decision, field)
        fits, wanted = _FIELDS.get(field, (None, ""))
        if fits is not None and not fits(value):
            raise GraphError(
                f"{field} of {type(decision).__name__} is {value!r:.100}; it takes {wanted}", rule="decision"
            )
