"""Policies as seen by the master: pure functions from a view to decisions.

A `VertexManager` decides for one vertex. The master calls it at each of its `moments` with a `View`; it answers with
decisions and a memo, which the next call receives. It reads no clock, waits for no result and changes no state: the
master validates, journals and applies its decisions. A decision that is not allowed is rejected and noted in the
history of the vertex together with the rest of its answer, which is dropped, and the job goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Struct

from weft.model.errors import GraphError
from weft.model.ids import is_name

if TYPE_CHECKING:
    from weft.engine.decisions import Decision
    from weft.engine.events import Requested
    from weft.graph.logical import Edge, LogicalGraph, Range, Vertex


class Moment(Enum):
    """A moment at which a manager decides."""

    STARTED = "started"  # once, when the job begins or the vertex is added
    CONFIGURED = "configured"  # once, when a number of tasks that was not known then has become known
    SOURCE_ENDED = "source_ended"  # a vertex that it reads or waits for has ended
    FINISHED = "finished"  # tasks of its own have finished
    EVENT = "event"  # a vertex that it reads or waits for has emitted a user event


class InputView(Struct, frozen=True):
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


class View(Struct, frozen=True):
    """The input of a manager; `over` counts tasks that ended in any way.

    `rows` counts each task once, when it first finishes; `lost` of those are being recomputed after the loss of their
    output. `events` are the payloads of user events, by (vertex, name), in order of arrival. `allowed` are the numbers
    of tasks that the vertex may have, None if its number is not the manager's to set.
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
    allowed: Range | None = None


JOB_POLICY = "job."
"""The prefix of the names of policies for a whole job. Each registered one is made once for each job."""
STRAGGLERS = "job.stragglers"
"""The name of the speculation policy, which selects leases for a second attempt. It decides for a job, not for a
vertex, and receives a `WatchView`.
"""
BLAME = "job.blame"
"""The name of the node exclusion policy. It decides for a job, and receives a `BlameView`."""


class AttemptView(Struct, frozen=True):
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


class WatchView(Struct, frozen=True):
    """The leases that run and may have a second attempt, and the number of running second attempts."""

    now: float
    workers: int
    backups: int
    attempts: tuple[AttemptView, ...]
    vertex: str = ""


class WorkerView(Struct, frozen=True):
    """A worker of a node: whether it is excluded, the number of its exclusions, and `since`, the end of the last one
    (seconds).
    """

    worker: int
    node: int
    avoided: bool
    times: int
    since: float


class Fault(Struct, frozen=True):
    """A failure of a task on a worker that its program did not cause; `unread` is the existing output (vertex, index)
    that it could not read, if any. `task` of a dead worker is its running task.
    """

    at: float
    worker: int
    node: int
    task: tuple[str, int]
    unread: tuple[str, int] | None = None


class BlameView(Struct, frozen=True):
    """The present workers, and the latest faults, oldest first."""

    now: float
    workers: tuple[WorkerView, ...]
    faults: tuple[Fault, ...]
    vertex: str = ""


class VertexManager:
    """Base of vertex managers, each of which decides for one vertex.

    `moments` are those at which it is asked. With `holds`, no task of the vertex starts before a `Schedule` allows it.
    With `counts`, sizes and rows are counted, which costs time. A policy for a whole job (`of_job`) has the same shape,
    but no moments, and a view of its own; no vertex names it.
    """

    moments: frozenset[Moment] = frozenset({Moment.SOURCE_ENDED})
    holds: bool = False
    counts: bool = False
    of_job: bool = False

    def check(self, vertex: Vertex, inputs: Sequence[Edge], graph: LogicalGraph) -> None:
        """Raise GraphError if the manager cannot decide for `vertex` of `graph`, which has the edges `inputs`: called
        when either is submitted.
        """

    def decide(self, view: Any, memo: Any) -> tuple[Sequence[Decision], Any]:
        """Return the decisions (none: no change now) and the memo for the next call. GraphError: the vertex fails."""
        raise NotImplementedError


# ------------------------------------------------------------------------------------------------- controllers

HELD: Final = "held"
WAITING: Final = "waiting"
STARTING: Final = "starting"
RUNS: Final = "running"
STOPPING: Final = "stopping"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"


class ControlledTask(Struct, frozen=True):
    """One task of a controlled vertex, as its controller sees it. Times are seconds since 1970, None before the first.

    `state` is one of held, waiting (for inputs, for a slot, or for the pause before a restart), starting, running,
    stopping, succeeded, failed. `starts` counts its attempts, `restarts` those that its restart rule made since the
    controller last let it start. The rest tells its last end by itself: the exit code (1 after an exception, 137 after
    the loss of its worker, None if it was stopped or never ran), the word of a `Failure` ("" after a success), and the
    message.
    """

    vertex: str
    index: int
    state: str
    starts: int
    restarts: int
    code: int | None
    failure: str
    message: str
    started_at: float | None
    ended_at: float | None


class ControlledVertex(Protocol):
    """The tasks of a controlled vertex: `len`, by index, and by state. It reads the columns of the engine: cheap to
    make, and valid only while the controller decides.
    """

    @property
    def id(self) -> str:
        """The id of the vertex."""
        ...

    @property
    def states(self) -> Sequence[str]:
        """The state of each task."""
        ...

    def count(self, *states: str) -> int:
        """Return the number of tasks in one of these states."""
        ...

    def why(self, index: int) -> str:
        """Return why a task waits, as a clause; "" if it does not."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> ControlledTask: ...

    def __iter__(self) -> Iterator[ControlledTask]: ...


class ControlledBubble(Struct, frozen=True):
    """A whole bubble. `granted`: it holds its slots; `asks` is the number of slots that it waits for.

    `reason` tells why it waits for nodes, or why it can `never` get its slots: then the job fails, unless the
    controller stops enough of its tasks or concludes the job.
    """

    id: str
    granted: bool
    asks: int
    reason: str = ""
    never: bool = False


class ControllerView(Struct, frozen=True):
    """The input of a controller; `now` is in seconds since 1970.

    `changed` are the tasks with news since the last call. `requests` are the requests of users since then, in order of
    arrival; each comes once. `woken`: the job begins or was resumed, or the time of a `WakeAt` has come.
    """

    now: float
    vertices: Mapping[str, ControlledVertex]
    changed: tuple[ControlledTask, ...]
    requests: tuple[Requested, ...]
    bubbles: Mapping[str, ControlledBubble]
    woken: bool = False
    vertex: str = ""


class JobController(VertexManager):
    """Base of controllers, each of which decides for one job: `LogicalGraph.controller` names it.

    It starts and stops the tasks of controlled vertices, and concludes the job: `StartTasks`, `StopTasks`, `Conclude`,
    `WakeAt` and `Emit`. It is asked when the job begins, in the tick of each change of what it sees, after a request,
    at the time of its `WakeAt`, and after a resume. `decide` receives a `ControllerView`. Its decisions come true at
    once, so that the next call is about what they have led to. An exception, or a decision that is not allowed, fails
    the job.
    """

    of_job = True

    def check_graph(self, graph: LogicalGraph) -> None:
        """Raise GraphError if the controller cannot decide for `graph`: called when it is submitted."""


ManagerFactory = Callable[..., VertexManager]
"""Makes a manager from the parameters in the graph, given as keywords. GraphError: wrong parameters."""
REGISTERED: Final[dict[str, ManagerFactory]] = {}
"""The registered vertex managers and controllers, by the names in graphs."""
_Class = TypeVar("_Class", bound=type[VertexManager])


def register_manager(name: str) -> Callable[[_Class], _Class]:
    """Register a class of vertex managers or controllers, for `Manager(name, params)` in graphs of this process: a
    class decorator.

    GraphError: the name is not allowed or belongs to another class, or the class is no `VertexManager`.
    """
    if not isinstance(name, str) or not is_name(name) or name.startswith(JOB_POLICY):
        raise GraphError(
            f"a vertex manager cannot be called {name!r}",
            rule="manager",
            hint=f"Use letters, digits, '_', '.' and '-', a letter or digit first, and not {JOB_POLICY!r}.",
        )

    def register(kind: _Class) -> _Class:
        if not (isinstance(kind, type) and issubclass(kind, VertexManager)):
            raise GraphError(
                f"{kind!r} cannot be registered as the manager {name!r}: it is no VertexManager",
                rule="manager",
                hint="Let the class inherit from weft.VertexManager.",
            )
        other = REGISTERED.setdefault(name, kind)
        if place_of(other) != place_of(kind):
            raise GraphError(
                f"two classes are registered as the manager {name!r}: {place_of(other)} and {place_of(kind)}",
                rule="manager",
                hint="Register one under another name; the names of Weft's own managers are taken.",
            )
        REGISTERED[name] = kind  # of a module that was loaded again
        return kind

    return register


def place_of(kind: Any) -> str:
    """Return the module and the name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"
