"""The public view of a job: read-only, cheap to make, safe to pass to a user interface or a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from weft.engine.machines.task import TaskState
from weft.engine.machines.vertex import VertexState
from weft.engine.unrun import unrun

if TYPE_CHECKING:
    from weft.engine.core import Core
    from weft.engine.physical import Stage


class VertexView(Struct, frozen=True):
    """One vertex: counts of its tasks, and measurements. `n` is -1 while its parallelism is unknown.

    `rows`, `nbytes` and `seconds` are sums over all tasks if the vertex is counted, else -1.
    """

    id: str
    state: str
    n: int
    finished: int
    executing: int
    ready: int
    failed: int
    seconds_per_task: float
    bytes_per_task: float
    rows: int = -1
    nbytes: int = -1
    seconds: float = -1.0


class JobView(Struct, frozen=True):
    """One job: its state, vertices in topological order, bubbles (id to state) and choices (id to branch taken)."""

    job: str
    state: str
    vertices: tuple[VertexView, ...]
    bubbles: dict[str, str]
    choices: dict[str, str]


def view(core: Core) -> JobView:
    """Return a view of a job."""
    return JobView(
        core.job,
        core.status.value,
        tuple(
            VertexView(
                stage.id,
                _state(core, stage).value,
                stage.n,
                stage.finished,
                stage.executing,
                stage.ready.count + sum(held.count for held in (stage.local or {}).values()),
                stage.state.count(TaskState.FATAL),
                stage.seconds,
                stage.nbytes,
                *((stage.rows, stage.written, stage.busy_s) if stage.vertex.counted else ()),
            )
            for stage in core.order
        ),
        {row.bubble.id: row.state.value for row in core.bubbles},
        {name: row.taken for name, row in core.choices.items()},
    )


def _state(core: Core, stage: Stage) -> VertexState:
    """Return the state of a vertex; CANCELLED for one that could not run because another failed."""
    never_ran = stage.status is VertexState.FAILED and not stage.finished and unrun(core, stage).failed
    return VertexState.CANCELLED if never_ran else stage.status
