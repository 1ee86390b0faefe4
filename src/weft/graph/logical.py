"""The logical graph: every word that front ends and the engine share.

A `Vertex` says what runs; an `Edge` has three independent properties (how data moves, when the destination may be
scheduled, where the data lives); nothing else about two vertices is coupled. Parallelism, routing, transport and
resources are questions that the engine answers while the job runs.

`weft.graph.builder` builds graphs in fewer lines; `weft.graph.validate` holds the rules.
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
    """When a vertex is done."""

    FINITE = "finite"
    """When all its tasks are committed."""
    SERVICE = "service"
    """When its last live consumer has ended: parameter servers, coordinators."""


# ---------------------------------------------------------------------------------------------------- parallelism


class Range(Struct, frozen=True):
    """Between `lo` and `hi` tasks: the vertex's manager decides, `hi` if it has none."""

    lo: int
    hi: int


class Source(Struct, frozen=True):
    """As many tasks as the value of the vertex `expander` says (an int, or a sequence with one item for each task)."""

    expander: str


class SameAs(Struct, frozen=True):
    """As many tasks as `vertex` has."""

    vertex: str


Parallelism = int | Range | Source | SameAs


# ------------------------------------------------------------------------------------------------------ retry


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """How often a task is tried again, by kind of failure, and the pause in seconds before the first retry.

    `user` counts errors raised by the user's code, `memory` out-of-memory (asked again with `memory_factor` times as
    much), `infrastructure` lost workers and broken transports: these never count against the other two and are retried
    at once. The pause doubles at each retry, up to 64 times. `retry[RetryClass.USER]` is the count of a class.
    """

    user: int = 0
    memory: int = 2
    infrastructure: int = 8
    delay_s: float = 0.0
    memory_factor: float = 2.0

    def __getitem__(self, of: RetryClass) -> int:
        """Return how often a task is tried again after failures of a class."""
        count: int = getattr(self, of.field)
        return count


DEFAULT_RETRY = Retry()


class RestartPolicy(Enum):
    """Which ends of the code of a task have it started again, in place of the counts `user` and `memory` of `Retry`.

    Lost workers are counted by `Retry.infrastructure` under every rule. How long and how often is the `Backoff` of the
    job.
    """

    ALWAYS = "always"
    """Every end, success too, as long as the vertex is needed: for a SERVICE."""
    ON_FAILURE = "on_failure"
    """Every failure."""
    NEVER = "never"
    """None."""
    EXIT_CODE = "exit_code"
    """A failure with an exit code above 127 (a signal, such as a kill for memory); 1 to 127 are for good.

    An exception counts as exit code 1.
    """


class Backoff(Struct, frozen=True):
    """How often tasks of a job may start again after failures of their code, and the pauses of vertices with `restart`.

    `limit` counts over all tasks of all vertices; the failure after that fails the job (None: no limit). The first
    restart of a task waits `delay_s` seconds, each further one `factor` times as long, up to `max_s`.
    """

    limit: int | None = None
    delay_s: float = 10.0
    factor: float = 2.0
    max_s: float = 300.0

    def pause(self, restart: int) -> float:
        """Return the seconds before a restart of a task, of which 1 is the first."""
        return float(min(self.delay_s * self.factor ** min(restart - 1, 64), self.max_s))


DEFAULT_BACKOFF = Backoff()


# ------------------------------------------------------------------------------------------------------ edges


class MovementKind(Enum):
    """Names of the movements."""

    NONE = "none"
    ONE_TO_ONE = "one_to_one"
    BROADCAST = "broadcast"
    SCATTER_GATHER = "scatter_gather"
    GRID = "grid"
    CUSTOM = "custom"


class Movement(Struct, frozen=True):
    """How data moves along an edge.

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
    """Names of the moments at which a destination may be scheduled."""

    ALL_DONE = "all_done"
    FRACTION = "fraction"
    EVENT = "event"
    SOURCE_CONFIGURED = "source_configured"
    SOURCE_RUNNING = "source_running"


class Outcome(Enum):
    """Which end of the source an edge waits for."""

    SUCCESS = "success"
    """Every task finished (a skipped source counts); failure and cancellation spread along the edge."""
    ANY = "any"
    """Whatever the end was."""
    ONE_SUCCESS = "one_success"
    """At least one of all sources with this outcome on the same destination finished."""


class Scheduling(Struct, frozen=True):
    """When the destination of an edge may be scheduled.

    Sequential (`concurrent=False`): ALL_DONE, FRACTION (`fraction` of the source's tasks finished) or EVENT (a user
    event called `event` was emitted by the source). Concurrent: SOURCE_CONFIGURED, SOURCE_RUNNING (`fraction` of its
    tasks running) or EVENT; source and destination run at the same time.
    """

    concurrent: bool = False
    when: Trigger = Trigger.ALL_DONE
    fraction: float = 1.0
    event: str = ""
    outcome: Outcome = Outcome.SUCCESS


SEQUENTIAL = Scheduling()
AFTER_ANY = Scheduling(outcome=Outcome.ANY)
AFTER_ONE = Scheduling(outcome=Outcome.ONE_SUCCESS)
CONCURRENT = Scheduling(concurrent=True, when=Trigger.SOURCE_RUNNING)


class Storage(Enum):
    """Where the data of an edge lives."""

    NONE = "none"
    """No data: order-only edges."""
    EPHEMERAL = "ephemeral"
    """Streamed; dies with the producer."""
    LOCAL = "local"
    """Kept on the node; dies with it."""
    DURABLE = "durable"
    """Outlives the node; never freed by the engine."""


class Edge(Struct):
    """From `src` to `dst`. `blocking`: the destination consumes this input whole before it yields (a sort)."""

    src: str
    dst: str
    movement: Movement = ONE_TO_ONE
    scheduling: Scheduling = SEQUENTIAL
    storage: Storage = Storage.LOCAL
    blocking: bool = False
    name: str = ""

    @property
    def id(self) -> str:
        """The edge's name, or `src->dst`."""
        return self.name or f"{self.src}->{self.dst}"

    @property
    def carries_data(self) -> bool:
        """Whether the destination receives an input from this edge."""
        return self.movement.move is not MovementKind.NONE


# --------------------------------------------------------------------------------------------------- vertices


class Manager(Struct, frozen=True, forbid_unknown_fields=True):
    """The vertex manager that decides for a vertex while the job runs: its registered name, and JSON parameters."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)


class Role(Enum):
    """Whose step a vertex is, for people."""

    OWN = "own"
    """A step by itself."""
    HELPER = "helper"
    """A part of the step that its label names: it decides, lists or joins. People are told of it where it fails."""


class Vertex(Struct):
    """One logical step: a program, how wide, with what, and what to do when it fails.

    `resources` are ordered alternatives; `restart` stands for the counts `user` and `memory` of `retry`; `timeout_s` is
    per attempt; `keep` says that the session wants the values,
    or that it does not (None: it wants those that nothing reads);
    `output_bytes` estimates the output of one task, `scratch_bytes` what it holds beside that and its inputs; `expands`
    marks a vertex whose small return value the master reads: a parallelism, the answer of a choice, or a `Patch`;
    `manager` decides for it while the job runs. Of a `lazy` vertex only the tasks run whose output is read.

    `label` is the name by which users know it (default: its id, none for a HELPER), and `role` says whether it is that
    step itself. `outputs` names the files that each task leaves beside its value; None: no task leaves any.

    A `final` vertex runs whatever happened, once all others have ended: after a success, a failure and a cancel. Its
    inputs from others may be missing. Its failure fails the job; a second cancel ends it.
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

    @property
    def step(self) -> str:
        """The name of the step that it belongs to; "" for a helper of none."""
        return self.label or (self.id if self.role is Role.OWN else "")

    @property
    def shown(self) -> str:
        """Its name in pictures and explanations: that of its step, with a remark where it is a helper of that."""
        if not self.label:
            return self.id
        return self.label if self.role is Role.OWN else f"{self.label} (helper)"


class Bubble(Struct, frozen=True, forbid_unknown_fields=True):
    """Vertices that are allocated together, all or nothing; after `timeout_s` without a grant it shrinks.

    A vertex in no bubble is a bubble of one. `prewarmed` asks for workers that are already running.
    """

    id: str
    vertices: tuple[str, ...]
    prewarmed: bool = False
    timeout_s: float = 30.0


class Choice(Struct, frozen=True, forbid_unknown_fields=True):
    """Alternative subgraphs; the value of the vertex `decider` names the one that runs, the rest is SKIPPED."""

    id: str
    decider: str
    branches: Mapping[str, tuple[str, ...]]

    def __hash__(self) -> int:
        return hash(self.id)


class OnFailure(Enum):
    """What a failed task does to the rest of the job."""

    FAIL_FAST = "fail_fast"
    """Everything that still runs is cancelled."""
    CONTINUE = "continue"
    """Only what depends on the failed vertex is given up; the job still ends failed."""


class LogicalGraph:
    """A job as written: vertices, edges, bubbles, choices, and what failure means.

    `limits` are tokens that tasks of this job share (name to count). `frontend` names the front end that made it, whose
    words users see for its states. `backoff` bounds how often tasks start again. The order in which vertices and edges
    were added is the order of inputs and of ties in scheduling, so that equal graphs run alike. The containers are kept
    as given.
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
        )

    def add_vertex(self, vertex: Vertex) -> Vertex:
        """Add a vertex; GraphError if the id is taken."""
        if vertex.id in self.vertices:
            raise GraphError(f"vertex {vertex.id!r} exists already", subject=vertex.id, rule="unique-vertex")
        self.vertices[vertex.id] = vertex
        return vertex

    def add_edge(self, edge: Edge) -> Edge:
        """Add an edge; its end points are checked by validation."""
        self.edges.append(edge)
        return edge


class Patch(Struct, frozen=True):
    """An edit of the part of a live graph that has not started: what an expander may return.

    New vertex ids begin with the expander's id and a slash. `drop_edges` names edges by id.
    """

    vertices: tuple[Vertex, ...] = ()
    edges: tuple[Edge, ...] = ()
    drop_edges: tuple[str, ...] = ()
    bubbles: tuple[Bubble, ...] = ()
    choices: tuple[Choice, ...] = ()

    @classmethod
    def of(cls, graph: LogicalGraph, edges: Iterable[Edge] = ()) -> Patch:
        """Make a patch that adds all of `graph`, and `edges` that join it to the live one."""
        return cls(
            tuple(graph.vertices.values()), (*graph.edges, *edges), (), tuple(graph.bubbles), tuple(graph.choices)
        )
