"""The read-only view of a running job for all code outside of the engine.

The loop, backends, recorders and explanations read from an `Inspector`; only `Master.handle` changes the state of a
master. Answers to other threads may be slightly outdated. `JobView` is a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.engine.describe import parts_of, spec_of
from weft.engine.foresight import next_use
from weft.engine.machines.lease import ACTIVE
from weft.engine.recovery import digest, losses, may_go_on
from weft.engine.restorable import Tasks, restorable
from weft.engine.rows import CANCELLING, FINISHED, FREED, NOT_STARTED, OVER
from weft.engine.story import notes, story
from weft.engine.unrun import unrun
from weft.engine.view import view
from weft.graph.logical import VertexKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.engine.commands import Publish
    from weft.engine.core import Core
    from weft.engine.events import Event
    from weft.engine.explain import Explained
    from weft.engine.foresight import Passed
    from weft.engine.machines.job import JobState
    from weft.engine.machines.vertex import VertexState
    from weft.engine.notes import Note
    from weft.engine.physical import PhysicalEdge, Stage
    from weft.engine.unrun import Unrun
    from weft.engine.view import JobView
    from weft.engine.waiting import Wait
    from weft.graph.logical import Vertex
    from weft.graph.task_spec import TaskSpec
    from weft.model.resources import Resources


_TO_START: Final = frozenset({*NOT_STARTED, CANCELLING})
"""States of tasks whose next start is still to come, if they may start."""


class VertexRow(Protocol):
    """A vertex with the known facts of its tasks. `n` is -1 while its parallelism is unknown, as are seconds and bytes.

    `state` has a `TaskState` for each task, `node_of` the node of each output where nodes share no memory.
    """

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def vertex(self) -> Vertex: ...  # noqa: D102
    @property
    def index(self) -> int: ...  # noqa: D102
    @property
    def status(self) -> VertexState: ...  # noqa: D102
    @property
    def n(self) -> int: ...  # noqa: D102
    @property
    def state(self) -> Sequence[int]: ...  # noqa: D102
    @property
    def finished(self) -> int: ...  # noqa: D102
    @property
    def keep(self) -> bool: ...  # noqa: D102
    @property
    def seconds(self) -> float: ...  # noqa: D102
    @property
    def nbytes(self) -> float: ...  # noqa: D102
    @property
    def rows(self) -> int: ...  # noqa: D102
    @property
    def resources(self) -> tuple[Resources, ...]: ...  # noqa: D102
    @property
    def node_of(self) -> Sequence[int] | None: ...  # noqa: D102


class Inspector:
    """Reads the state of one job. Changes nothing."""

    __slots__ = ("_core",)

    def __init__(self, core: Core) -> None:
        self._core = core

    # ------------------------------------------------------------------------------------------------ the job

    @property
    def status(self) -> JobState:
        """The state of the job."""
        return self._core.status

    @property
    def now(self) -> float:
        """The time of the last event, in seconds of the loop's clock."""
        return self._core.now

    @property
    def may_go_on(self) -> bool:
        """Whether the job runs without any failure, so that a resume continues it."""
        return may_go_on(self._core)

    @property
    def bubbles(self) -> list[str]:
        """The ids of the bubbles."""
        return [row.bubble.id for row in self._core.bubbles]

    @property
    def published(self) -> Sequence[Publish]:
        """The latest user events of tasks, in order; at most `core.PUBLISHED`."""
        return tuple(self._core.published or ())

    def view(self) -> JobView:
        """Return a view of the job."""
        return view(self._core)

    def story(self, subject: str = "") -> tuple[str, ...]:
        """Return the history of a vertex, a task or (with "") the job, as text."""
        return story(self._core, subject)

    def notes(self, subject: str = "") -> tuple[Note, ...]:
        """Return the log entries about a vertex, a task or (with "") the job, as data, oldest first."""
        return notes(self._core, subject)

    def waits(self, subject: str = "", now: float | None = None) -> tuple[Wait, ...]:
        """Return why tasks of a vertex, a task or (with "") the job have not started: see `waiting.waits`."""
        from weft.engine.waiting import waits  # rarely called

        return waits(self._core, subject, now)

    def explain(self) -> Explained:
        """Return the plan beside the execution, with every change and its reason."""
        from weft.engine.explain import explain  # rarely called

        return explain(self._core)

    def digest(self) -> str:
        """Return a digest of the state: equal for two masters that would decide alike."""
        return digest(self._core)

    def losses(self, now: float) -> list[Event]:
        """Return the events that report, at `now`, the loss of all workers and of their work."""
        return losses(self._core, now)

    def finished_tasks(self) -> set[tuple[str, int]]:
        """Return the tasks (vertex, index) that have finished."""
        done = (FINISHED, FREED)
        return {(stage.id, i) for stage in self._core.stages for i in range(max(stage.n, 0)) if stage.state[i] in done}

    def restorable(
        self, has: Callable[[str], Collection[int]], answered: Collection[str], *, known: bool = True
    ) -> tuple[Tasks, Tasks]:
        """Return the tasks that need not run again, and those with lost outputs: see `restorable.restorable`."""
        return restorable(self._core, has, answered, known=known)

    # --------------------------------------------------------------------------------------------- its vertices

    @property
    def vertices(self) -> Sequence[VertexRow]:
        """The vertices that have rows, in order of addition; `VertexRow.index` is the position of each."""
        return self._core.stages

    @property
    def moved(self) -> Sequence[VertexRow]:
        """The vertices whose state changed in the last call of `handle`."""
        return self._core.moved

    def vertex(self, id: str) -> VertexRow | None:
        """Return a vertex, None if there is none of that name with rows."""
        return self._core.by_id.get(id)

    def row(self, id: str) -> VertexRow:
        """Return a vertex that has rows. KeyError: no vertex with rows has that name."""
        return self._core.by_id[id]

    @property
    def names(self) -> list[str]:
        """The ids of the vertices that have rows."""
        return list(self._core.by_id)

    def unrun(self, id: str) -> Unrun:
        """Return why a vertex was skipped, cancelled or could not run. KeyError: no such vertex."""
        return unrun(self._core, self._core.by_id[id])

    def plans(self, id: str) -> bool:
        """Return whether the graph has a vertex, with or without rows."""
        return id in self._core.graph.vertices or id in self._core.by_id

    def spec(self, id: str) -> TaskSpec:
        """Return the record that a launch of a vertex would carry now. KeyError: no such vertex."""
        return spec_of(self._core, self._core.by_id[id])

    def column(self, id: str) -> tuple[int, int]:
        """Return the numbers of cells and of partitions of the output of a vertex. KeyError: no such vertex."""
        stage = self._core.by_id[id]
        return stage.n, parts_of(stage)

    def foresee(self, id: str, passed: Passed) -> Callable[[int], float]:
        """Return a function for the next read of an output of a vertex: see `foresight.next_use`."""
        return partial(next_use, self._core.by_id[id], passed)

    def usage(self, id: str) -> Mapping[str, float]:
        """Return the largest usage that tasks of a vertex have reported."""
        return self._core.usage.get(id, {})

    def stopping(self, lease: int) -> bool:
        """Return whether a lease was ordered to stop and has not answered."""
        row = self._core.leases.get(lease)
        return row is not None and row.state not in ACTIVE

    @property
    def controller_memo(self) -> Any:
        """The memo of the controller of the job; None if it has none yet."""
        return None if self._core.control is None else self._core.control.memo

    def starts(self, id: str) -> dict[int, tuple[int, str]]:
        """Return the tasks of a vertex that run or may start; see `weft.graph.spec.RunFacts`."""
        stage = self._core.by_id.get(id)
        if stage is None or stage.n < 0:
            return {}
        if (columns := stage.control) is None:
            every = enumerate(stage.state)
            return {index: (stage.attempt(index) + 1, "") for index, state in every if state not in OVER}
        found = {}
        for index, state in enumerate(stage.state):
            if not columns.held[index] and state not in OVER:
                there = columns.starts[index] + (state in _TO_START)
                found[index] = there, columns.failures[index]
        return found

    def controllers(self, id: str) -> Collection[str]:
        """Return the control vertices of a vertex."""
        stage = self._core.by_id.get(id)
        return () if stage is None else [link.src.id for link in stage.inputs if _controls(link)]


def _controls(link: PhysicalEdge) -> bool:
    return link.src.vertex.kind is VertexKind.SERVICE and not link.data


def _conforms(stage: Stage) -> VertexRow:
    """Let the type checker verify that a stage is a row."""
    return stage
