"""The events of a job, grouped by source. All times are seconds on the clock of the loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from weft.model.failures import Failure
    from weft.model.resources import Resources

ANYWHERE: Final = -1
"""No node in particular: of tasks without a home, and of outputs that no loss of a node ends."""

# ------------------------------------------------------------------------------------- said by the session


class JobSubmitted(Struct, frozen=True):
    """The graph passed validation and may start; the outputs of the vertices in `given` exist already.

    `known` has the seconds of a task of vertices whose functions ran in earlier jobs.
    """

    now: float
    given: tuple[str, ...] = ()
    known: tuple[tuple[str, float], ...] = ()


class CancelRequested(Struct, frozen=True):
    """A user requests the stop of the whole job; with `force` its final vertices do not run either."""

    now: float
    reason: str
    force: bool = False


class TaskCancelRequested(Struct, frozen=True):
    """A user requests the stop of tasks `lo:hi` of a vertex, and that they do not run again."""

    now: float
    vertex: str
    lo: int
    hi: int
    reason: str


class FinishRequested(Struct, frozen=True):
    """A user needs no more outputs of a vertex, or with "" of the job: it ends as a success with what is finished."""

    now: float
    vertex: str
    reason: str


class Requested(Struct, frozen=True):
    """A user requests something of the controller of the job; `payload` is JSON-able."""

    now: float
    name: str
    payload: Any = None


class ClockSet(Struct, frozen=True):
    """It is `wall` seconds since 1970-01-01 UTC, for a controller: once when the job begins, and at each resume."""

    now: float
    wall: float


# ---------------------------------------------------------------------------------------- said by the pool


class WorkerJoined(Struct, frozen=True):
    """A worker can be given leases. `node` identifies the memory that the worker shares."""

    now: float
    worker: int
    node: int
    node_name: str = ""
    party: str = ""


class WorkerLost(Struct, frozen=True):
    """A worker is lost; `node_lost`: with the contents of its node. `unit` was its running unit (-1: unknown).

    `crashed`: its process died or froze by itself, so the running task may be at fault; `traceback` shows where, if
    known.
    """

    now: float
    worker: int
    reason: str
    node_lost: bool = False
    unit: int = -1
    crashed: bool = False
    traceback: str = ""


class NodeJoined(Struct, frozen=True):
    """A node joined: its `workers` can be given leases, `resources` are the memory and GPUs that they share."""

    now: float
    node: int
    node_name: str
    party: str
    workers: tuple[int, ...]
    resources: Resources


class NodeDraining(Struct, frozen=True):
    """A node takes no new work; each of its workers leaves at the end of its work, then the node."""

    now: float
    node: int
    reason: str


class NodeLost(Struct, frozen=True):
    """A node is lost with its outputs; its workers were lost before. `emptied`: its outputs lie elsewhere by now."""

    now: float
    node: int
    reason: str
    emptied: bool = False


class OutputMoved(Struct, frozen=True):
    """The outputs of tasks `lo:hi` of a vertex lie at another node from now on, or `ANYWHERE`."""

    now: float
    vertex: str
    lo: int
    hi: int
    node: int


class Offered(Struct, frozen=True):
    """These idle workers are assigned to this job for this batch, the last one first; unused ones return to the
    pool.
    """

    now: float
    workers: Sequence[int]


class Granted(Struct, frozen=True):
    """A request of an `Acquire` was met: one (vertex, worker, alternative) for each task, all at once."""

    now: float
    request: int
    slots: tuple[tuple[str, int, int], ...]


class Deferred(Struct, frozen=True):
    """A request does not fit the present nodes: it waits for others to join; `reason` names the lacking resource."""

    now: float
    request: int
    reason: str


class Refused(Struct, frozen=True):
    """A request can never be met: `reason` names the lacking resource; at most `slots` slots are possible at a time."""

    now: float
    request: int
    reason: str
    slots: int = 0


# ------------------------------------------------------------------------------------- said by the workers


class Started(Struct, frozen=True):
    """A worker began with a lease (reported for long work only; a `Done` implies it)."""

    now: float
    lease: int


class Done(Struct, frozen=True, gc=False):
    """A lease ended well: its units below `hi` are done.

    `seconds` is the time spent in the tasks, `nbytes` the bytes of the root's outputs in all, `sizes` the bytes of each
    unit where they differ enough to matter (None: even). `reached` < the last step: a linear cone stopped after that
    member. `values` are the small return values of an expander's tasks. `stats` are (edge id, the
    sums of the bytes by partition): a sequence with all partitions, or a dict of those with any.
    """

    now: float
    lease: int
    hi: int
    seconds: float = 0.0
    nbytes: int = 0
    sizes: Sequence[int] | None = None
    reached: int = -1
    values: Sequence[Any] | None = None
    stats: tuple[tuple[str, Any], ...] = ()
    rows: int = 0


class DoneEach(Struct, frozen=True, gc=False):
    """Leases of one task each ended well: a `Done` of each, as `single_reports` makes them, in this order.

    `workers` ran them, `tasks` are the indices of the tasks, `times` the moments of the ends; `now` is the last one.
    """

    now: float
    leases: Sequence[int]
    workers: Sequence[int]
    tasks: Sequence[int]
    times: Sequence[float]
    seconds: Sequence[float]
    nbytes: Sequence[int]

    def each(self) -> Iterator[Done]:
        """Yield the event of each lease."""
        his = [task + 1 for task in self.tasks]
        return map(Done, self.times, self.leases, his, self.seconds, self.nbytes)


class Failed(Struct, frozen=True):
    """A lease ended badly: units below `hi` are done, task `index` of `vertex` failed, the rest never started.

    `lost` names a lost or unreadable input, `raised` is the class of the exception of the task's code as
    `module:qualname`, `status` the exit code of its process, if one has ended (128 and the signal). `stats` and `rows`
    are those of the units that are done, as of `Done`.
    """

    now: float
    lease: int
    hi: int
    vertex: str
    index: int
    kind: Failure
    message: str
    traceback: str = ""
    seconds: float = 0.0
    nbytes: int = 0
    lost: tuple[str, int] | None = None
    raised: str = ""
    status: int | None = None
    stats: tuple[tuple[str, Any], ...] = ()
    rows: int = 0


class GaveBack(Struct, frozen=True):
    """The units of a lease from `hi` on were revoked before their start."""

    now: float
    lease: int
    hi: int


class Progress(Struct, frozen=True):
    """Units of a lease below `hi` are done and their outputs can be read; the lease goes on.

    `nbytes`, `seconds`, `stats` and `rows` are those of the units since the last report, as of `Done`.
    """

    now: float
    lease: int
    hi: int
    nbytes: int = 0
    seconds: float = 0.0
    stats: tuple[tuple[str, Any], ...] = ()
    rows: int = 0


class Weighed(Struct, frozen=True):
    """The tasks of a lease read `nbytes` bytes in all."""

    now: float
    lease: int
    nbytes: int


class Noted(Struct, frozen=True):
    """A backend adds an entry to the history of a subject, without other effect. `kind` is the word of a `NoteKind`."""

    now: float
    subject: str
    kind: str
    values: tuple[Any, ...] = ()


class UserEvent(Struct, frozen=True):
    """A task emitted an event; `payload` is JSON-able and at most 64 KiB."""

    now: float
    vertex: str
    index: int
    name: str
    payload: Any = None


# --------------------------------------------------------------------------------------- said by the store


class OutputLost(Struct, frozen=True):
    """The outputs of tasks `lo:hi` of a vertex are lost."""

    now: float
    vertex: str
    lo: int
    hi: int
    reason: str


# --------------------------------------------------------------------------------------- said by the cache


class Hit(Struct, frozen=True):
    """The output of a probed task exists: the cache has put it in the store, or the task had finished `before`."""

    now: float
    vertex: str
    index: int
    nbytes: int = 0
    before: bool = False


class Miss(Struct, frozen=True):
    """The cache has no result: the task must run."""

    now: float
    vertex: str
    index: int
    reason: str = ""


class Waiting(Struct, frozen=True):
    """Another job is making the same output; a `Hit` or `Miss` follows."""

    now: float
    vertex: str
    index: int
    owner: str


class Unanswered(Struct, frozen=True):
    """The answers of the cache have expired: tasks that have not ended probe the cache again before they run."""

    now: float


# ---------------------------------------------------------------------------------------- said by the clock


class TimerFired(Struct, frozen=True):
    """A timer that the master set went off."""

    now: float
    timer: int


class IdleTick(Struct, frozen=True):
    """Workers are idle, nothing is ready and no report came for a while."""

    now: float


Event = (
    JobSubmitted
    | CancelRequested
    | TaskCancelRequested
    | FinishRequested
    | Requested
    | ClockSet
    | WorkerJoined
    | WorkerLost
    | NodeJoined
    | NodeDraining
    | NodeLost
    | OutputMoved
    | Offered
    | Granted
    | Deferred
    | Refused
    | Started
    | Done
    | DoneEach
    | Failed
    | GaveBack
    | Progress
    | Weighed
    | Noted
    | UserEvent
    | OutputLost
    | Hit
    | Miss
    | Waiting
    | Unanswered
    | TimerFired
    | IdleTick
)

_ENDING: Final = frozenset({Done, DoneEach, Failed, Progress, Hit})


def single_reports(events: list[Event]) -> list[Event]:
    """Return the events with one for each lease."""
    if not any(type(event) is DoneEach for event in events):
        return events
    found: list[Event] = []
    for event in events:
        if type(event) is DoneEach:
            found += event.each()
        else:
            found.append(event)
    return found


def ends_tasks(events: Iterable[Event]) -> bool:
    """Return whether one of these events ends a task."""
    return any(type(event) in _ENDING for event in events)
