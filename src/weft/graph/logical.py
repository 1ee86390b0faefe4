"""The logical graph: vertices, edges, bubbles and choices, shared by all front ends and the engine.

A `Vertex` names the program; an `Edge` has three independent properties (movement, scheduling, storage). The engine
decides parallelism, routing, transport and resources while the job runs.

`weft.graph.builder` builds graphs in fewer lines; `weft.graph.rules` holds the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from msgspec import Struct, field

from weft.graph.axes import GridMap  # noqa: TC001 - signatures of records are read at run time
from weft.model.errors import GraphError
from weft.model.failures import RetryClass  # noqa: TC001
from weft.model.program import Program  # noqa: TC001
from weft.model.resources import ONE_SLOT_ONLY, Placement, Resources

GRAPH: Final = "graph"
"""The front end of a graph that a program has built by hand."""


class VertexKind(Enum):
    """The kinds of vertices, by the moment at which a vertex ends."""

    FINITE = "finite"
    """Ends when all its tasks are committed."""
    SERVICE = "service"
    """Ends with its last live consumer: parameter servers, coordinators."""


# ---------------------------------------------------------------------------------------------------- parallelism


class Range(Struct, frozen=True):
    """Between `lo` and `hi` tasks: the vertex manager decides; `hi` without a manager."""

    lo: int
    hi: int


class Source(Struct, frozen=True):
    """The number of tasks that the value of `expander` gives: an int, or a sequence with one item for each task."""

    expander: str


class SameAs(Struct, frozen=True):
    """As many tasks as `vertex` has."""

    vertex: str


Parallelism = int | Range | Source | SameAs


# ------------------------------------------------------------------------------------------------------ retry


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """The number of retries of a task by kind of failure, and the pause in seconds before the first retry.

    `user` counts errors raised by the user's code. `memory` counts out-of-memory failures; the retry asks for
    `memory_factor` times as much. `infrastructure` counts lost workers and broken transports. `crash` counts worker
    processes that died or froze while they ran the task: a task that ends several different workers is at fault. Both
    never count against the other two and are retried at once. `retry[RetryClass.USER]` is the count of a class.

    The pause grows by `factor` at each retry, up to `max_delay_s` (None: 64 times `delay_s`); `jitter` is the largest
    part of a pause, from 0 to 1, that is taken away by chance. With `on`, only failures of the user's code with one of
    these exit codes are retried: codes, and ranges such as `"64-78"`. An exception counts as exit code 1, a signal as
    128 and its number, and the end by a timeout as 124.
    """

    user: int = 0
    memory: int = 2
    infrastructure: int = 8
    crash: int = 2
    delay_s: float = 0.0
    memory_factor: float = 2.0
    factor: float = 2.0
    max_delay_s: float | None = None
    jitter: float = 0.0
    on: tuple[int | str, ...] = ()

    def __getitem__(self, of: RetryClass) -> int:
        """Return the number of retries after failures of a class."""
        count: int = getattr(self, of.field)
        return count

    def takes(self, exit_code: int) -> bool:
        """Return whether a failure of the user's code with this exit code may be retried."""
        return not self.on or any(low <= exit_code <= high for low, high in map(exit_codes, self.on))

    def pause(self, retry: int, chance: float = 0.0) -> float:
        """Return the pause in seconds before a retry, counted from 1; `chance` from 0 to 1 selects the jitter."""
        longest = _GROWTH * self.delay_s if self.max_delay_s is None else self.max_delay_s
        pause = float(min(self.delay_s * self.factor ** min(retry - 1, 64), longest))
        return pause * (1.0 - self.jitter * chance)


_GROWTH: Final = 64
_MOST_EXIT_CODE: Final = 255


def exit_codes(entry: int | str) -> tuple[int, int]:
    """Return the first and the last exit code of an entry of `Retry.on`. ValueError: it is neither code nor range."""
    first, dash, last = str(entry).partition("-")
    words = (first.strip(), last.strip() if dash else first.strip())
    if isinstance(entry, bool) or not all(word.isascii() and word.isdigit() and len(word) <= 3 for word in words):
        raise ValueError("must be an exit code or a range of them, such as 75 or 64-78")
    low, high = map(int, words)
    if not 1 <= low <= high <= _MOST_EXIT_CODE:
        raise ValueError(f"must lie between 1 and {_MOST_EXIT_CODE}, the smaller code first")
    return low, high


DEFAULT_RETRY = Retry()


class RestartPolicy(Enum):
    """The ends of a task's code after which the task starts again; replaces the counts `user` and `memory` of `Retry`.

    `Retry.infrastructure` and `Retry.crash` count lost workers under every rule. The `Backoff` of the job sets pauses
    and number of restarts.
    """

    ALWAYS = "always"
    """Restart after every end, even a success, as long as the vertex is needed; for a SERVICE."""
    ON_FAILURE = "on_failure"
    """Restart after every failure."""
    NEVER = "never"
    """Never restart."""
    EXIT_CODE = "exit_code"
    """Restart after an exit code above 127 (a signal, such as a kill for memory); codes 1 to 127 are final.

    An exception counts as exit code 1.
    """


class Backoff(Struct, frozen=True):
    """The limit of restarts after failures of code in a job, and the pauses of vertices with `restart`.

    `limit` counts over all tasks of all vertices; the failure after that fails the job (None: no limit). The first
    restart of a task waits `delay_s` seconds, each further restart `factor` times as long, up to `max_s`. With
    `at_once` the first restart does not wait, and the second one waits `delay_s`.
    """

    limit: int | None = None
    delay_s: float = 10.0
    factor: float = 2.0
    max_s: float = 300.0
    at_once: bool = False

    def pause(self, restart: int) -> float:
        """Return the pause in seconds before a restart of a task, counted from 1."""
        before = restart - 2 if self.at_once else restart - 1
        return 0.0 if before < 0 else float(min(self.delay_s * self.factor ** min(before, 64), self.max_s))


DEFAULT_BACKOFF = Backoff()


# ------------------------------------------------------------------------------------------------------ edges


class MovementKind(Enum):
    """The names of the movements."""

    NONE = "none"
    ONE_TO_ONE = "one_to_one"
    BROADCAST = "broadcast"
    SCATTER_GATHER = "scatter_gather"
    GRID = "grid"
    CUSTOM = "custom"


class Movement(Struct, frozen=True):
    """The distribution of an edge's values over the tasks of the destination.

    NONE: order only. ONE_TO_ONE: task i reads task i. BROADCAST: every task reads every source task. SCATTER_GATHER:
    each source task writes `partitions` pieces, destination task p reads piece p of all (0: as many as destination
    tasks at first). GRID: `grid` maps chunk grids. CUSTOM: the router registered as `name`, with JSON `params`.
    """

    move: MovementKind
    partitions: int = 0
    grid: GridMap | None = None
    name: str = ""
    params: tuple[tuple[str, Any], ...] = ()


NONE = Movement(MovementKind.NONE)
ONE_TO_ONE = Movement(MovementKind.ONE_TO_ONE)
BROADCAST = Movement(MovementKind.BROADCAST)


def scatter_gather(partitions: int = 0) -> Movement:
    """Every source task writes `partitions` pieces; destination task p reads piece p of every source."""
    return Movement(MovementKind.SCATTER_GATHER, partitions=partitions)


class Trigger(Enum):
    """The names of the moments at which a destination may start."""

    ALL_DONE = "all_done"
    FRACTION = "fraction"
    EVENT = "event"
    SOURCE_CONFIGURED = "source_configured"
    SOURCE_RUNNING = "source_running"


WHILE_RUNNING = (Trigger.FRACTION, Trigger.EVENT)
"""The triggers by which a sequential edge may start its destination while its source still runs."""


class Outcome(Enum):
    """The end of a source that an edge waits for."""

    SUCCESS = "success"
    """Every task finished (a skipped source counts); failure and cancellation propagate along the edge."""
    ANY = "any"
    """Any end."""
    ONE_SUCCESS = "one_success"
    """At least one source with this outcome on the same destination finished."""


class Scheduling(Struct, frozen=True):
    """The moment at which the destination of an edge may start.

    Sequential (`concurrent=False`): ALL_DONE, FRACTION (`fraction` of the source's tasks finished) or EVENT (the source
    emitted the user event `event`). Concurrent: SOURCE_CONFIGURED, SOURCE_RUNNING (`fraction` of its tasks running) or
    EVENT; source and destination run at the same time.
    """

    concurrent: bool = False
    when: Trigger = Trigger.ALL_DONE
    fraction: float = 1.0
    event: str = ""
    outcome: Outcome = Outcome.SUCCESS


SEQUENTIAL = Scheduling()
AFTER_ANY = Scheduling(outcome=Outcome.ANY)
CONCURRENT = Scheduling(concurrent=True, when=Trigger.SOURCE_RUNNING)


class Storage(Enum):
    """The place where the data of an edge lies."""

    NONE = "none"
    """No data: order-only edges."""
    EPHEMERAL = "ephemeral"
    """Streamed; lost with the producer."""
    LOCAL = "local"
    """Kept on the node; lost with the node."""
    DURABLE = "durable"
    """Outlives the node; the engine never frees it."""


class Edge(Struct, gc=False):
    """An edge from `src` to `dst`. With `blocking` the destination reads this whole input before it yields (a sort)."""

    src: str
    dst: str
    movement: Movement = ONE_TO_ONE
    scheduling: Scheduling = SEQUENTIAL
    storage: Storage = Storage.LOCAL
    blocking: bool = False
    name: str = ""

    @property
    def id(self) -> str:
        """The name of the edge, or `src->dst`."""
        return self.name or f"{self.src}->{self.dst}"

    @property
    def carries_data(self) -> bool:
        """Whether the destination receives an input from this edge."""
        return self.movement.move is not MovementKind.NONE


# --------------------------------------------------------------------------------------------------- vertices


class Manager(Struct, frozen=True, forbid_unknown_fields=True):
    """The vertex manager of a vertex, or the controller of a job: its registered name, and JSON parameters."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)


class Role(Enum):
    """The relation of a vertex to the step that users see."""

    OWN = "own"
    """The step itself."""
    HELPER = "helper"
    """A helper of the step in `label`: it decides, lists or joins. Users see it only if it fails."""


class Vertex(Struct):
    """One logical step: a program, its number of tasks, its resources, and its rules for failures.

    `resources` are ordered alternatives; `restart` replaces the counts `user` and `memory` of `retry`; `timeout_s` is
    in seconds per attempt. `keep` says whether the session keeps the values (None: only if no edge reads them).
    `output_bytes` estimates the output of one task, `scratch_bytes` its further memory besides output and inputs.
    `expands` marks a vertex whose small return value the master reads: a parallelism, the branch of a choice, or a
    `Patch`. `manager` decides for it while the job runs. A `lazy` vertex runs only the tasks whose output is read.

    `label` is its name for users (default: its id; none for a HELPER), and `role` its relation to that step. `outputs`
    names the files that each task leaves beside its value; None: none.

    A `final` vertex runs after all others have ended, whether by success, failure or cancellation. Its inputs from
    others may be missing. Its failure fails the job; a second cancellation ends it.

    Tasks of a `controlled` vertex start and stop by decisions of the controller of the graph alone; with `Range(lo,
    hi)` it has `hi` tasks. The failure of such a task concerns no other task, and the vertex ends with the job.

    Of a `counted` vertex, the rows, bytes and seconds of all tasks are summed for explanations.

    Tasks of a vertex that `starts_processes` wait for processes of their machine. If they request no core, they run
    beside the master on one machine; on a cluster they take a core of a node, since the processes run there.

    Among the ready tasks of a run those of a vertex with a higher `priority` (-1000 to 1000) start first.
    """

    id: str
    program: Program
    parallelism: Parallelism = 1
    kind: VertexKind = VertexKind.FINITE
    resources: tuple[Resources, ...] = ONE_SLOT_ONLY
    placement: Placement | None = None
    retry: Retry = DEFAULT_RETRY
    restart: RestartPolicy | None = None
    timeout_s: float | None = None
    idempotent: bool = True
    cache_key: str | None = None
    manager: Manager | None = None
    keep: bool | None = None
    output_bytes: int | None = None
    scratch_bytes: int = 0
    expands: bool = False
    lazy: bool = False
    label: str = ""
    role: Role = Role.OWN
    outputs: tuple[str, ...] | None = None
    final: bool = False
    controlled: bool = False
    counted: bool = False
    starts_processes: bool = False
    priority: int = 0

    @property
    def step(self) -> str:
        """The name of its step; "" for a helper of no step."""
        return self.label or (self.id if self.role is Role.OWN else "")

    @property
    def shown(self) -> str:
        """The name in pictures and explanations: its step, with a remark for a helper."""
        if not self.label:
            return self.id
        return self.label if self.role is Role.OWN else f"{self.label} (helper)"


class Bubble(Struct, frozen=True, forbid_unknown_fields=True):
    """Vertices whose slots are allocated together, all or nothing.

    The bubble shrinks after `timeout_s` seconds without slots; a `whole` one waits without a timeout and
    never shrinks. A vertex in no bubble is a bubble of one. `prewarmed` asks for workers that already run.
    """

    id: str
    vertices: tuple[str, ...]
    prewarmed: bool = False
    timeout_s: float = 30.0
    whole: bool = False


class Choice(Struct, frozen=True, forbid_unknown_fields=True):
    """Alternative subgraphs; the value of the vertex `decider` names the branch that runs, all others are SKIPPED."""

    id: str
    decider: str
    branches: Mapping[str, tuple[str, ...]]

    def __hash__(self) -> int:
        return hash(self.id)


class OnFailure(Enum):
    """The effect of a failed task on the rest of the job."""

    FAIL_FAST = "fail_fast"
    """Cancel everything that still runs."""
    CONTINUE = "continue"
    """Skip only the descendants of the failed vertex; the job still ends failed."""


_NO_LIMITS: Final[dict[str, int]] = {}
"""What graphs that nobody changes share in place of empty limits."""


class LogicalGraph:
    """A job as written: vertices, edges, bubbles, choices, and the effect of failures.

    `limits` are tokens that tasks of this job share (name to count). `frontend` names the front end that made the
    graph; its projection has the users' words for states. `backoff` limits restarts. `controller` starts and stops the
    tasks of controlled vertices, and ends the job. The order of addition of vertices and edges is the order of inputs
    and of ties in scheduling, so that equal graphs run alike. The containers are not copied.
    """

    def __init__(
        self,
        name: str = "graph",
        vertices: dict[str, Vertex] | None = None,
        edges: list[Edge] | None = None,
        bubbles: list[Bubble] | None = None,
        choices: list[Choice] | None = None,
        on_failure: OnFailure = OnFailure.FAIL_FAST,
        limits: dict[str, int] | None = None,
        frontend: str = GRAPH,
        backoff: Backoff = DEFAULT_BACKOFF,
        controller: Manager | None = None,
    ) -> None:
        self.name = name
        self.vertices = {} if vertices is None else vertices
        self.edges = [] if edges is None else edges
        self.bubbles = [] if bubbles is None else bubbles
        self.choices = [] if choices is None else choices
        self.on_failure = on_failure
        self.limits = {} if limits is None else limits
        self.frontend = frontend
        self.backoff = backoff
        self.controller = controller

    def copy(self) -> LogicalGraph:
        """Return an equal graph with containers of its own."""
        return LogicalGraph(
            self.name,
            dict(self.vertices),
            list(self.edges),
            list(self.bubbles),
            list(self.choices),
            self.on_failure,
            dict(self.limits),
            self.frontend,
            self.backoff,
            self.controller,
        )

    def fixed(self) -> LogicalGraph:
        """Return an equal graph whose lists nobody changes: empty ones are no load for the garbage collector."""
        found = self.copy()
        nothing: Any = ()
        found.edges, found.bubbles = found.edges or nothing, found.bubbles or nothing
        found.choices = found.choices or nothing
        found.limits = found.limits or _NO_LIMITS
        return found

    def add_vertex(self, vertex: Vertex) -> Vertex:
        """Add a vertex; GraphError if the id is taken."""
        if vertex.id in self.vertices:
            raise GraphError(f"vertex {vertex.id!r} exists already", subject=vertex.id, rule="unique-vertex")
        self.vertices[vertex.id] = vertex
        return vertex

    def add_edge(self, edge: Edge) -> Edge:
        """Add an edge; `weft.graph.validate` checks its end points."""
        self.edges.append(edge)
        return edge


class Patch(Struct, frozen=True):
    """A change to the part of a live graph that has not started, returned by an expander.

    New vertex ids begin with the expander's id and a slash; for an expander that a patch has added, with the id of the
    first expander and a slash. `drop_edges` names edges by id.
    """

    vertices: tuple[Vertex, ...] = ()
    edges: tuple[Edge, ...] = ()
    drop_edges: tuple[str, ...] = ()
    bubbles: tuple[Bubble, ...] = ()
    choices: tuple[Choice, ...] = ()

    @classmethod
    def of(cls, graph: LogicalGraph, edges: Iterable[Edge] = ()) -> Patch:
        """Return the patch that adds all of `graph`, and `edges` that join it to the live graph."""
        return cls(
            tuple(graph.vertices.values()), (*graph.edges, *edges), (), tuple(graph.bubbles), tuple(graph.choices)
        )
