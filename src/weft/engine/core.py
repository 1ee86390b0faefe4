"""The state of the master of one job: plain data, shared by the modules that act on it.

The other modules are lists of functions that take a `Core` and append to `core.out`: `readiness` (tasks that may
start), `cones` (size of a lease), `dispatch` (assignment to workers), `failures` (retry or end), `settle` (consequences
for other tasks), `lineage` (recomputation), `requests` (slots from the pool), `patching` (choices and patches) and
`bulk` (frequent endings). The `extensions` are called through `core.hooks`. `master.Master` is the only entry.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappush
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Struct, field

from weft.engine.agenda import Phase
from weft.engine.commands import SetTimer
from weft.engine.decisions import ApplyPatch, AskController, Avoid, BackUp, Emit, Readmit, WakeAt, WeighTasks
from weft.engine.events import ANYWHERE, Requested
from weft.engine.lease_table import LeaseTable
from weft.engine.machines.bubble import BubbleState
from weft.engine.machines.job import JobState
from weft.engine.machines.lease import LeaseState
from weft.engine.machines.task import TaskState
from weft.engine.notes import Note
from weft.engine.physical import NOTHING
from weft.engine.policy import Moment
from weft.model.errors import GraphError
from weft.model.ids import task_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.engine.commands import Command, Publish
    from weft.engine.decisions import Decision
    from weft.engine.events import Done, Failed, Granted, Refused
    from weft.engine.notes import NoteKind
    from weft.engine.physical import PhysicalEdge, Stage
    from weft.engine.policy import Fault, JobController, ManagerFactory, VertexManager
    from weft.engine.tuning import Tuning
    from weft.graph.lease import Cone
    from weft.graph.logical import Bubble, Choice, Edge, LogicalGraph, Vertex
    from weft.graph.task_spec import TaskSpec
    from weft.model.failures import Failure
    from weft.model.resources import Resources

_OWN = (Moment.STARTED, Moment.CONFIGURED, Moment.FINISHED)

_NONE: Any = ()
_EMPTY: Any = MappingProxyType({})
"""What a retired job has in place of lists, sets and queues, and in place of dictionaries."""
_FOR_RUNNING: Final = (
    "_links",
    "avoided",
    "backups",
    "branched",
    "cancelled",
    "choices",
    "claims",
    "decided",
    "doomed",
    "elsewhere",
    "leases",
    "memos",
    "payloads",
    "queues",
    "readmitted",
    "requests",
    "shrunk",
    "sized",
    "speculative",
    "stats",
    "timers",
    "token_waiters",
    "tokens",
    "usage",
    "weights",
)
"""The dictionaries that do not change after the end of a job: ended jobs share an empty one."""
_SENT = LeaseState.SENT
_NO_LEAVES: frozenset[int] = frozenset()
_LEASED = int(TaskState.LEASED)

UNSLOTTED = -1
"""The worker number of unslotted tasks: they hold no core and wait for no slot."""
FAULTS = 256
"""The number of the latest faults that are kept."""
NOTES = 4096
"""The number of the latest log entries that are kept."""
PUBLISHED = 1_000
"""The number of the latest user events that are kept."""
FEW = 64
"""A vertex of at most this many tasks has history entries for each task; larger ones are handled in bulk."""


STAGE_BITS: Final = 32
"""The bits of the number of a stage."""


class WorkerRow(Struct):
    """A worker and its leases."""

    node: int
    node_name: str = ""
    party: str = ""


class LeaseRow(Struct, eq=False, gc=False):
    """A lease. `members` are (stage, tasks of it for each unit), in the order of the cone, the root last.

    `live` is the state of the rows of its tasks.
    """

    id: int
    stage: Stage
    lo: int
    hi: int
    cone: Cone | None
    members: tuple[tuple[Stage, int], ...]
    leaves: frozenset[int]
    worker: int
    request: int = 0
    state: LeaseState = _SENT
    live: int = _LEASED
    timer: int = 0

    def spans(self) -> Iterator[tuple[Stage, int, int]]:
        """Yield each member with its tasks `lo:hi`."""
        for stage, mult in self.members:
            yield stage, self.lo * mult, self.hi * mult

    @property
    def name(self) -> str:
        """The subject of the lease in the history: its task, or its vertex if it has several tasks."""
        return task_name(self.stage.id, self.lo) if self.hi - self.lo == 1 else self.stage.id


class LeaseRows(Struct, eq=False, gc=False):
    """Leases of the tasks from `lo` on of a stage, one on each of `workers`, with successive numbers.

    None of them has a timer or a request, and nothing was heard of them.
    """

    leases: tuple[int, ...]
    stage: Stage
    lo: int
    workers: tuple[int, ...]
    members: tuple[tuple[Stage, int], ...]

    def of(self, lease: int) -> LeaseRow:
        """Return one of the leases."""
        at = lease - self.leases[0]
        lo = self.lo + at
        return LeaseRow(lease, self.stage, lo, lo + 1, None, self.members, _NO_LEAVES, self.workers[at])


class BubbleRow(Struct):
    """A bubble, declared or formed around a SERVICE.

    Of a whole bubble of controlled vertices, `asked` are the wants of its open request, or of the one that was refused
    for the reason `never`; `more` is a request for slots that it lacks beside those that it holds, and `reason` why its
    request waits for nodes.
    """

    bubble: Bubble
    index: int
    stages: list[Stage]
    state: BubbleState = BubbleState.FORMING
    request: int = 0
    timer: int = 0
    slots: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Idle slots by stage: worker, alternative, and the request that obtained them."""
    asked: tuple[Any, ...] = ()
    more: int = 0
    reason: str = ""
    never: str = ""

    @property
    def controlled(self) -> bool:
        """Whether its vertices are controlled."""
        return bool(self.stages) and self.stages[0].control is not None


NO_BRANCH = "(none)"
"""The branch value of a choice whose decider ended without an answer."""


class ChoiceRow(Struct):
    """A choice and its branch, empty until decided."""

    choice: Choice
    taken: str = ""


class ControlRow(Struct):
    """The dealings with the controller of the job: its memo, and what it was not told yet.

    `offset` turns seconds of the loop's clock into seconds since 1970. `timer` is that of its next call at a set time,
    `due` a call without other news, `bubbles` the whole bubbles as it knows them. `cancelled` is its reason to conclude
    the job as cancelled.
    """

    memo: Any = None
    requests: list[Requested] = field(default_factory=list)
    offset: float = 0.0
    timer: int = 0
    due: bool = True
    bubbles: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    cancelled: str = ""


class RequestRow(Struct):
    """A request to the pool: for a whole bubble, or for one task of a stage that asks for more than a plain slot."""

    id: int
    stage: Stage | None
    bubble: int = -1
    index: int = -1
    alternatives: tuple[Resources, ...] = ()
    granted: bool = False
    alternative: int = 0


class Cause(Struct, frozen=True):
    """The first failure of the job."""

    task: str
    message: str
    traceback: str = ""
    kind: str = ""
    raised: str = ""


class Unslotted:
    """Stages with ready unslotted tasks: for each set of tokens a heap of the numbers of the stages that take these
    tokens, less their priorities shifted by `STAGE_BITS`.

    No heap is empty.
    """

    __slots__ = ("heaps",)

    def __init__(self) -> None:
        self.heaps: dict[tuple[tuple[str, int], ...], list[int]] = {}

    def add(self, stage: Stage) -> None:
        """Add a stage; a repeated call has no effect."""
        first = stage.index - (stage.vertex.priority << STAGE_BITS)
        heappush(self.heaps.setdefault(stage.resources[0].tokens, []), first)

    def __bool__(self) -> bool:
        return bool(self.heaps)


class Planned(Struct, frozen=True):
    """The submitted graph, which patches do not change."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    bubbles: tuple[Bubble, ...]

    @classmethod
    def of(cls, graph: LogicalGraph) -> Planned:
        """Return the parts of a graph as they are now."""
        return cls(tuple(graph.vertices.values()), tuple(graph.edges), tuple(graph.bubbles))


class Growth(Struct, frozen=True):
    """A change of the graph: the new stages and links, the dropped links, and the declared bubbles.

    At the start of the job all stages are new. `stages` are in topological order.
    """

    stages: Sequence[Stage]
    links: Sequence[PhysicalEdge]
    dropped: Sequence[PhysicalEdge] = ()
    bubbles: Sequence[Bubble] = ()


class Hooks(Struct, frozen=True):
    """The functions of the extensions, by the point at which the core calls them.

    The core refers to no extension. It calls a hook only after a check of plain data (`stage.bubble`, `stage.region`,
    `core.restricted`), so that a job without use for an extension does not pay for it.
    """

    graph_changed: tuple[Callable[[Core, Growth], None], ...] = ()
    """Stages or links were added, before the number of tasks of new stages is settled."""
    edge_changed: tuple[Callable[[Core], None], ...] = ()
    """A decision has changed the scheduling or the storage of an edge."""
    resources_change: tuple[Callable[[Core, Stage], None], ...] = ()
    """A decision changes the resources of a stage; GraphError forbids it."""
    bubble_due: tuple[Callable[[Core, Stage], None], ...] = ()
    """A stage of a bubble may have to ask for slots, or may have given some free."""
    bubble_granted: tuple[Callable[[Core, RequestRow, Granted], None], ...] = ()
    """The request of a bubble is granted."""
    bubble_refused: tuple[Callable[[Core, RequestRow, Refused], None], ...] = ()
    """The request of a bubble can never be met; the row is removed."""
    bubble_slot_over: tuple[Callable[[Core, LeaseRow, bool], None], ...] = ()
    """A lease on a slot of a bubble has ended; the flag tells whether its worker is alive."""
    lease_recalled: tuple[Callable[[Core, LeaseRow, Done | Failed], None], ...] = ()
    """A lease that was stopped because a user has cancelled one of its tasks has ended."""
    region_failed: tuple[Callable[[Core, LeaseRow, Failed], None], ...] = ()
    """A task of a restart region has failed and is to run again."""
    region_stopped: tuple[Callable[[Core, LeaseRow], None], ...] = ()
    """A lease that was stopped for the restart of its region has ended."""
    region_goes_on: tuple[Callable[[Core, Stage], None], ...] = ()
    """A lease of a stage of a region has ended for another reason."""
    probe: tuple[Callable[[Core, Stage, int, int], int], ...] = ()
    """Probe the cache for ready tasks `lo:hi` of a stage with a cache key; return the start of those probed before."""
    writer_may_wait: tuple[Callable[[PhysicalEdge], bool], ...] = ()
    """Whether the writers of a stream may wait for its readers; without an answer they never wait."""
    attempt_failed: tuple[Callable[[Core, LeaseRow, Failure, Failed], None], ...] = ()
    """An attempt has failed by a failure of this kind; before its task is retried."""
    task_failed: tuple[Callable[[Core, LeaseRow, Failure, Failed], None], ...] = ()
    """An attempt at a task of a controlled vertex has failed by a failure of this kind; before its task is retried."""
    task_launched: tuple[Callable[[Core, LeaseRow], None], ...] = ()
    """A task of a controlled vertex is leased to a worker."""
    task_stopped: tuple[Callable[[Core, LeaseRow], None], ...] = ()
    """A lease of a controlled vertex that was stopped for good has ended."""
    task_retried: tuple[Callable[[Core, Stage, int, int], None], ...] = ()
    """A task that failed on a present worker, perhaps because of it, is ready again."""
    choose: tuple[Callable[[Core, Sequence[int]], Sequence[int]], ...] = ()
    """Return the idle workers to offer; called while workers or tasks are restricted."""
    offer: tuple[Callable[[Core, Sequence[int]], None], ...] = ()
    """Lease tasks to offered workers instead of the core; called while workers or tasks are restricted."""


Handler = Callable[["Core", Any], None]
"""A handler of an event."""

NO_HOOKS = Hooks()
"""The hooks of a core without extensions."""


class Core:
    """The state of one job."""

    KEPT: ClassVar = (
        "graph",
        "planned",
        "job",
        "tuning",
        "status",
        "now",
        "started_at",
        "by_id",
        "order",
        "bubbles",
        "regions",
        "choices",
        "decided",
        "branched",
        "sized",
        "services",
        "workers",
        "leases",
        "requests",
        "timers",
        "heaps",
        "unslotted",
        "offered",
        "served",
        "token_waiters",
        "moved",
        "tokens",
        "emitted",
        "published",
        "answered",
        "known",
        "prioritised",
        "unended",
        "held",
        "verdict",
        "cause",
        "cancel_reason",
        "out",
        "counter",
        "patched",
        "stats",
        "dirty",
        "unasked",
        "usage",
        "claims",
        "_claimed_in",
        "payloads",
        "memos",
        "speculative",
        "cancelled",
        "doomed",
        "backups",
        "backups_wanted",
        "weights",
        "shrunk",
        "faults",
        "restarts",
        "avoided",
        "readmitted",
        "elsewhere",
        "control",
        "ring",
    )
    """The fields that a snapshot holds; a field that a snapshot of an older version lacks is as in a new job."""
    MADE_ANEW: ClassVar = (
        "_links",
        "due",
        "queues",
        "hooks",
        "managers",
        "policies",
        "controller",
        "stages",
        "specs",
        "inner_specs",
        "cone_specs",
    )
    """The fields that are rebuilt when a snapshot is read, or are written apart."""
    __slots__ = (*KEPT, *MADE_ANEW)

    def __init__(self, graph: LogicalGraph, job: str, tuning: Tuning) -> None:
        self.graph = graph  # a patch changes a copy, as the caller may run the graph again
        self.planned: Planned | None = None  # once a patch has changed the graph
        self.job = job
        self.tuning = tuning
        self.status = JobState.NEW
        self.now = 0.0
        self.started_at = 0.0
        self.stages: list[Stage] = []
        self.by_id: dict[str, Stage] = {}
        self.order: list[Stage] = []
        self._links: dict[str, PhysicalEdge] = {}
        self.bubbles: list[BubbleRow] = []
        self.regions: list[list[Stage]] = []
        self.choices: dict[str, ChoiceRow] = {}
        self.decided: dict[str, list[ChoiceRow]] = {}  # by decider
        self.branched: dict[str, list[ChoiceRow]] = {}  # by vertex on a branch
        self.sized: dict[str, list[Stage]] = {}  # by the vertex that decides their parallelism
        self.services: list[Stage] = []
        self.workers: dict[int, WorkerRow] = {}
        self.leases: LeaseTable[LeaseRow, LeaseRows] = LeaseTable(LeaseRows)
        self.requests: dict[int, RequestRow] = {}
        self.timers: dict[int, tuple[Any, ...]] = {}
        self.heaps: dict[int, list[tuple[float, float, int]]] = {ANYWHERE: []}
        self.unslotted = Unslotted()
        self.due = 0  # phases with a non-empty queue, one bit each
        self.offered: Sequence[int] = ()  # workers, in this tick
        self.served = False  # whether these workers were given leases earlier in this tick
        self.queues: dict[Phase, list[Any]] = {}
        self.token_waiters: dict[int, Stage] = {}  # stages whose requests lacked tokens, until tokens are returned
        self.moved: list[Stage] = []  # stages whose status has changed since the last call of `handle`
        self.tokens: dict[str, int] = dict(graph.limits)
        self.emitted: set[tuple[str, str]] = set()
        self.published: deque[Publish] | None = None  # the latest user events, once there is one
        self.answered: set[tuple[int, int]] = set()
        self.known: dict[str, float] = {}  # seconds of a task by vertex, as earlier jobs have measured them
        self.prioritised = False  # whether some vertex has a priority
        self.unended = 0
        self.held = 0  # final vertices that wait for all others to end
        self.verdict: JobState | None = None  # the outcome of the other vertices, once the final ones run
        self.cause: Cause | None = None
        self.cancel_reason = ""
        self.out: list[Command] = []
        self.counter = 0
        self.patched = False
        self.specs: dict[int, tuple[TaskSpec, ...]] = {}
        self.inner_specs: dict[int, TaskSpec] = {}
        self.cone_specs: dict[tuple[int, str], tuple[Cone, tuple[TaskSpec, ...]]] = {}
        self.stats: dict[str, Any] = {}
        self.managers: Mapping[str, ManagerFactory] = {}
        self.hooks = NO_HOOKS
        self.dirty: set[int] = set()
        self.unasked: set[int] = set()
        """Stages whose managers have left something open and do not listen to the moment."""
        self.usage: dict[str, dict[str, float]] = {}
        self.claims: dict[tuple[str, str], str] = {}
        self._claimed_in: list[Command] = []
        self.payloads: dict[tuple[str, str], list[Any]] = {}
        self.policies: dict[str, VertexManager] = {}
        self.controller: JobController | None = None
        self.control = ControlRow() if graph.controller is not None else None
        self.memos: dict[str, Any] = {}
        self.speculative: dict[int, LeaseRow] = {}
        self.cancelled: dict[int, LeaseRow] = {}
        self.doomed: dict[tuple[int, int], str] = {}
        """The tasks that a user has cancelled and that have not ended, by (stage, index), with the reason."""
        self.backups: dict[tuple[int, int], int] = {}
        self.backups_wanted: list[tuple[int, str]] = []
        self.weights: dict[int, float] = {}
        self.shrunk: dict[int, int] = {}
        self.faults: deque[Fault] = deque(maxlen=FAULTS)
        self.restarts = 0
        """The number of restarts of tasks after failures of their code."""
        self.avoided: dict[int, int] = {}
        self.readmitted: dict[int, tuple[int, float]] = {}
        self.elsewhere: dict[tuple[int, int], float] = {}
        self.ring: deque[Note] = deque(maxlen=NOTES)

    def retire(self) -> None:
        """Drop what only a running job needs: many ended ones may be kept, and the collector walks over all of them."""
        self.workers = self.heaps = self.policies = self.managers = self.known = _EMPTY
        notes: Any = tuple(self.ring)
        self.ring = notes
        self.specs = self.inner_specs = self.cone_specs = _EMPTY
        if self.order == self.stages:
            self.order = self.stages
        for name in _FOR_RUNNING:
            if not getattr(self, name):
                setattr(self, name, _EMPTY)
        for stage in self.stages:
            stage.ready = NOTHING
            stage.inputs, stage.outputs = stage.inputs or _NONE, stage.outputs or _NONE
        self.bubbles, self.regions = self.bubbles or _NONE, self.regions or _NONE
        self.moved = self.services = _NONE
        self.emitted = self.answered = self.dirty = self.unasked = _NONE
        self.out = self._claimed_in = self.backups_wanted = self.faults = self.unslotted = _NONE

    def dissolve(self) -> None:
        """Break the cycles of a retired job that is asked no more, so that it goes without the garbage collector."""
        for stage in self.stages:
            stage.inputs = stage.outputs = _NONE
            stage.cone_into = stage.chain_next = None

    @property
    def submitted(self) -> Planned:
        """The submitted graph."""
        return self.planned or Planned.of(self.graph)

    def own_graph(self) -> None:
        """Let the graph be a copy that patches change; the submitted one is kept."""
        if not self.patched:
            self.planned = self.submitted
            self.graph = self.graph.copy()

    @property
    def links(self) -> dict[str, PhysicalEdge]:
        """The links by edge id, built on first use; patches keep them current."""
        if not self._links:
            self._links = {link.edge.id: link for stage in self.stages for link in stage.outputs}
        return self._links

    @property
    def restricted(self) -> bool:
        """Whether a worker is excluded, or a task reserved for another worker."""
        return bool(self.avoided or self.elsewhere)

    def later(self, phase: Phase, *items: Any) -> None:
        """Put `items` into the queue of a phase of this tick."""
        self.due |= 1 << phase
        if items:
            self.queues.setdefault(phase, []).extend(items)

    def taken(self, phase: Phase) -> list[Any]:
        """Return the queue of a phase, and empty it."""
        return self.queues.pop(phase, [])

    def tell(self, stage: Stage, moment: Moment) -> None:
        """Record a moment of a stage for the managers that listen to it."""
        own = moment in _OWN
        for index in stage.listeners:
            manager = self.stages[index].manager
            if manager is None or own != (index == stage.index):
                continue
            listener = self.stages[index]
            if moment in manager.moments:
                self.dirty.add(index)
            elif listener.n < 0 or 0 <= listener.released < listener.n:
                self.unasked.add(index)
            else:
                continue
            self.due |= 1 << Phase.MANAGERS

    def claim(self, who: str, decision: Decision) -> None:
        """Record the decider of a subject for this tick. GraphError: another policy has decided the subject in this
        tick.
        """
        if self._claimed_in is not self.out:
            self._claimed_in, self.claims = self.out, {}
        if isinstance(decision, (ApplyPatch, Emit, AskController, BackUp, WeighTasks, Avoid, Readmit, WakeAt)):
            return
        subject = getattr(decision, decision.__struct_fields__[0])
        first = self.claims.setdefault((type(decision).__name__, subject), who)
        if first != who:
            raise GraphError(f"{first} has decided this in the same moment", subject=subject, rule="first-decision")

    def loads(self) -> Counter[int]:
        """Return the number of leases of each worker. Scans all leases: not for every tick."""
        apart = [lease for lease in self.speculative.values() if lease.id not in self.leases]
        every = (*self.leases.values(), *apart, *self.cancelled.values())
        return Counter(lease.worker for lease in every)

    def fresh(self) -> int:
        """Return a number that was not used before in this job: ids of leases, requests and timers."""
        self.counter += 1
        return self.counter

    def note(self, subject: str, kind: NoteKind, *values: Any) -> None:
        """Add an entry to the history, with the values of the fields of its kind."""
        self.ring.append(Note(self.now, subject, kind, values))

    def set_timer(self, at: float, *what: Any) -> int:
        """Request a `TimerFired` at time `at` and record its purpose."""
        timer = self.fresh()
        self.timers[timer] = what
        self.out.append(SetTimer(at, timer))
        return timer
