"""Policies as seen by the master: pure functions from a view to decisions.

A `VertexManager` decides for one vertex. The master calls it at each of its `moments` with a `View`; it answers with
decisions and a memo, which the next call receives. It reads no clock, waits for no result and changes no state: the
master validates, journals and applies its decisions. A decision that is not allowed is rejected and noted in the
history of the vertex, and the job goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from weft.engine.decisions import Decision


class Moment(Enum):
    """A moment at which a manager decides."""

    STARTED = "started"  # once, when the job begins or the vertex is added
    SOURCE_ENDED = "source_ended"  # a vertex that it reads or waits for has ended
    FINISHED = "finished"  # tasks of its own have finished
    EVENT = "event"  # a vertex that it reads or waits for has emitted a user event


class InputView(NamedTuple):
    """One input edge: its source, the progress of the source, its bytes for each partition (None if not counted), its
    rows, and `nbytes`, all bytes of its outputs (-1 unless every one of its tasks was counted).
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
    """The input of a manager; `over` counts tasks that ended in any way.

    `rows` counts each task once, when it first finishes; `lost` of those are being recomputed after the loss of their
    output. `events` are the payloads of user events, by (vertex, name), in order of arrival.
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
"""The prefix of the names of policies for a whole job. Each registered one is made once for each job."""
STRAGGLERS = "job.stragglers"
"""The name of the speculation policy, which selects leases for a second attempt. It decides for a job, not for a
vertex, and receives a `WatchView`.
"""
BLAME = "job.blame"
"""The name of the node exclusion policy. It decides for a job, and receives a `BlameView`."""


class AttemptView(NamedTuple):
    """A lease of units `lo:hi` of a vertex, `finished` of whose `n` tasks are done.

    `seconds` is the latest estimate for as many tasks (-1: unknown); `weight` the ratio of its input bytes to the usual
    number (0: not requested yet); `backed`: a second attempt runs; `backups` counts the second attempts so far.
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
    """The leases that run and may have a second attempt, and the number of running second attempts."""

    now: float
    workers: int
    backups: int
    attempts: tuple[AttemptView, ...]
    vertex: str = ""


class WorkerView(NamedTuple):
    """A worker of a node: whether it is excluded, the number of its exclusions, and `since`, the end of the last one
    (seconds).
    """

    worker: int
    node: int
    avoided: bool
    times: int
    since: float


class Fault(NamedTuple):
    """A failure of a task on a worker that its program did not cause; `unread` is the existing output (vertex, index)
    that it could not read, if any. `task` of a dead worker is its running task.
    """

    at: float
    worker: int
    node: int
    task: tuple[str, int]
    unread: tuple[str, int] | None = None


class BlameView(NamedTuple):
    """The present workers, and the latest faults, oldest first."""

    now: float
    workers: tuple[WorkerView, ...]
    faults: tuple[Fault, ...]
    vertex: str = ""


class VertexManager(Protocol):
    """Decides for one vertex. `holds`: no task starts before a `Schedule` allows it; `counts`: the manager needs sizes
    or rows, which are counted only on demand. A policy for a whole job is named by no vertex: it has no moments, and a
    view of its own.
    """

    moments: frozenset[Moment]
    holds: bool
    counts: bool

    def decide(self, view: Any, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Return the decisions (none: no change now) and the memo for the next call."""
        ...


ManagerFactory = Callable[..., VertexManager]
"""Makes a manager from the parameters in the graph, given as keywords. GraphError: wrong parameters."""
