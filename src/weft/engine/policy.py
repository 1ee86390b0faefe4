"""Policies as the master knows them: pure functions from a view to decisions.

A `VertexManager` decides for one vertex. It is asked when one of its `moments` has come, sees a `View`, and answers
with decisions and a memo, which it is given back the next time. It reads no clock, waits for nothing and changes
nothing: the master validates what it answers, journals it and applies it. A decision that is not allowed is rejected,
noted in the story of the vertex, and the job goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from weft.engine.decisions import Decision


class Moment(Enum):
    """When a manager is asked."""

    STARTED = "started"  # once, when the job begins or the vertex is added
    SOURCE_ENDED = "source_ended"  # a vertex that it reads, or waits for, has ended
    FINISHED = "finished"  # tasks of its own have finished
    EVENT = "event"  # a vertex that it reads, or waits for, has emitted a user event


class InputView(NamedTuple):
    """One input edge: its source, how far that is, what it wrote for each partition (bytes; None if not counted), the
    rows it wrote, and `nbytes`, all bytes of its outputs (-1 unless every one of its tasks was counted).
    """

    edge: str
    source: str
    n: int
    finished: int
    ended: bool
    partitions: int
    sizes: Sequence[int] | None
    rows: int
    nbytes: int = -1


class View(NamedTuple):
    """All that a manager may see; `over` counts tasks that ended in any way.

    `rows` counts each task once, when it first finishes; `lost` of those are being made again, their output is gone.
    `events` are the payloads of user events, by (vertex, name), in order of arrival.
    """

    now: float
    vertex: str
    state: str
    n: int
    finished: int
    executing: int
    released: int
    rows: int
    workers: int
    inputs: tuple[InputView, ...]
    events: Mapping[tuple[str, str], Sequence[Any]]
    items: Sequence[Any] | None
    over: int = 0
    lost: int = 0


JOB_POLICY = "job."
"""How the names of policies for a whole job begin. Whichever are registered are made once for each job."""
STRAGGLERS = "job.stragglers"
"""The name of the policy that says which leases are run a second time. It decides for a job, not for a vertex, and is
asked with a `WatchView`."""
BLAME = "job.blame"
"""The name of the policy that says whose fault failures are. It decides for a job, and is asked with a `BlameView`."""


class AttemptView(NamedTuple):
    """A lease of units `lo:hi` of a vertex, `finished` of whose `n` tasks are done.

    `seconds` is how long as many tasks take by the latest estimate (-1: not known); `weight` how many times the usual
    number of bytes these read (0: not asked for yet); `backed` says that a second attempt runs, `backups` how many
    there were.
    """

    lease: int
    vertex: str
    lo: int
    hi: int
    worker: int
    finished: int
    n: int
    seconds: float
    weight: float
    backed: bool
    backups: int


class WatchView(NamedTuple):
    """What runs and may be run twice at a time, and how many second attempts there are."""

    now: float
    workers: int
    backups: int
    attempts: tuple[AttemptView, ...]
    vertex: str = ""


class WorkerView(NamedTuple):
    """A worker of a node: whether it is avoided, how often it was, and `since` when it is not any more (seconds)."""

    worker: int
    node: int
    avoided: bool
    times: int
    since: float


class Fault(NamedTuple):
    """A task failed on a worker, by no fault of its program; `unread` is the output (vertex, index) that it could not
    read although it is there, if that was why. A worker that died was at `task`.
    """

    at: float
    worker: int
    node: int
    task: tuple[str, int]
    unread: tuple[str, int] | None = None


class BlameView(NamedTuple):
    """The workers there are, and the latest faults, oldest first."""

    now: float
    workers: tuple[WorkerView, ...]
    faults: tuple[Fault, ...]
    vertex: str = ""


class VertexManager(Protocol):
    """Decides for one vertex. `holds`: none of its tasks starts before `Schedule` lets it; `counts`: it looks at
    sizes or rows, which are counted only for those who do. A policy for a whole job is one that no vertex names: it has
    no moments, and a view of its own.
    """

    moments: frozenset[Moment]
    holds: bool
    counts: bool

    def decide(self, view: Any, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Return decisions (none: nothing to say now) and the memo for next time."""
        ...


ManagerFactory = Callable[..., VertexManager]
"""Makes a manager from the parameters in the graph, given as keywords; raises GraphError for wrong ones."""
