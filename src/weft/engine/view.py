"""The public view of a job: read-only, cheap to make, safe to pass to a user interface or a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft.engine.machines.task import TaskState

if TYPE_CHECKING:
    from weft.engine.core import Core


class VertexView(NamedTuple):
    """One vertex: counts of its tasks, and measurements. `n` is -1 while its parallelism is unknown."""

    id: str
    state: str
    n: int
    finished: int
    executing: int
    ready: int
    failed: int
    seconds_per_task: float
    bytes_per_task: float


class JobView(NamedTuple):
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
                stage.status.value,
                stage.n,
                stage.finished,
                stage.executing,
                stage.ready.count + sum(held.count for held in (stage.local or {}).values()),
                stage.state.count(TaskState.FATAL),
                stage.seconds,
                stage.nbytes,
            )
            for stage in core.order
        ),
        {row.bubble.id: row.state.value for row in core.bubbles},
        {name: row.taken for name, row in core.choices.items()},
    )
