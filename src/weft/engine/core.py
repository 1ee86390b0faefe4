"""All that the master knows about one job: plain data, shared by the modules that act on it.

The modules beside are lists of functions that take a `Core` and append to `core.out`: `readiness` (what may start),
`cones` (how much goes into one lease), `dispatch` (who gets it), `failures` (what a bad end does), `lineage` (what
must be made again), `gangs` (bubbles and requests), `patching` (choices and patches), `attempts` (what is run twice),
`blame` (who is avoided), `bulk` (ends by the thousand). `master.Master` is the only way in.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from heapq import heappush
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from msgspec import Struct, field

from weft.engine.agenda import PHASES, Phase
from weft.engine.commands import SetTimer
from weft.engine.decisions import ApplyPatch, Avoid, BackUp, Emit, Readmit, WeighTasks
from weft.engine.machines.bubble import BubbleState
from weft.engine.machines.job import JobState
from weft.engine.machines.lease import LeaseState
from weft.engine.machines.task import TaskState
from weft.engine.notes import Note
from weft.engine.policy import Moment
from weft.model.errors import GraphError
from weft.model.ids import task_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.engine.commands import Command
    from weft.engine.decisions import Decision
    from weft.engine.notes import NoteKind
    from weft.engine.physical import PhysicalEdge, Stage
    from weft.engine.policy import Fault, ManagerFactory, VertexManager
    from weft.graph.lease import Cone
    from weft.graph.logical import Bubble, Choice, Edge, LogicalGraph, Vertex
    from weft.graph.task_spec import TaskSpec
    from weft.model.resources import Resources

_OWN = (Moment.STARTED, Moment.FINISHED)

_SENT = LeaseState.SENT
_LEASED = int(TaskState.LEASED)

UNSLOTTED = -1
"""The worker that light tasks are launched on: no core is held, so there is no slot to wait for."""
FAULTS = 256
"""How many of the latest faults are remembered."""
ANYWHERE = -1
"""The node of tasks that may run anywhere."""
FEW = 64
"""A vertex of so many tasks or fewer has each of them in its story; of more, they are seen to in bulk."""


class Tuning(Struct, frozen=True):
    """How leases are sized, and what the backend can do. Set by the backend, constant for a job.

    `target_s` is how long a lease should take (seconds); `growth` how much wider the next lease of a vertex may be;
    `cone_steps` bounds the template of a cone; `realign` is the width given where no cone fits; `shared_memory` says
    that all workers read the same memory, so that placement by input bytes has nothing to win; `cones` may be off
    where every task must be committed on its own; `stream_bytes` is what a
    streamed edge may hold: memory that is asked for with the bubble; with `backups` what takes too long is run a second
    time, as the job's policy says, which is asked every `looks_s` seconds, at the shortest and at the longest.
    """

    target_s: float = 0.002
    growth: int = 8
    cone_steps: int = 256
    realign: int = 4
    lease_bytes: int = 256 * 2**20
    shared_memory: bool = True
    cones: bool = True
    stream_bytes: int = 0
    backups: bool = False
    looks_s: tuple[float, float] = (0.1, 10.0)


class WorkerRow(Struct):
    """A worker as the master sees it."""

    node: int
    node_name: str = ""
    party: str = ""


class LeaseRow:
    """A lease. `members` are (stage, tasks of it for each unit), in the order of the cone, the root last.

    `live` is the state that the rows of its tasks are in.
    """

    __slots__ = (
        "cone",
        "hi",
        "id",
        "leaves",
        "live",
        "lo",
        "members",
        "request",
        "stage",
        "state",
        "timer",
        "worker",
    )

    def __init__(
        self,
        id: int,
        stage: Stage,
        lo: int,
        hi: int,
        cone: Cone | None,
        members: tuple[tuple[Stage, int], ...],
        leaves: frozenset[int],
        worker: int,
        request: int = 0,
    ) -> None:
        self.id = id
        self.stage = stage
        self.lo = lo
        self.hi = hi
        self.cone = cone
        self.members = members
        self.leaves = leaves
        self.worker = worker
        self.request = request
        self.state = _SENT
        self.live = _LEASED
        self.timer = 0

    def spans(self) -> Iterator[tuple[Stage, int, int]]:
        """Yield each member with its tasks `lo:hi`."""
        for stage, mult in self.members:
            yield stage, self.lo * mult, self.hi * mult

    @property
    def name(self) -> str:
        """What it is called in the history: its task, or its vertex if it has several."""
        return task_name(self.stage.id, self.lo) if self.hi - self.lo == 1 else self.stage.id


class BubbleRow(Struct):
    """A bubble, declared or formed around a SERVICE."""

    bubble: Bubble
    index: int
    stages: list[Stage]
    state: BubbleState = BubbleState.FORMING
    request: int = 0
    timer: int = 0
    slots: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Idle slots by stage: worker, alternative, and the request that they were granted to."""


NO_BRANCH = "(none)"
"""What a choice has taken whose decider ended without an answer."""


class ChoiceRow(Struct):
    """A choice and the branch taken, empty until it is known."""

    choice: Choice
    taken: str = ""


class RequestRow(Struct):
    """A request to the pool: for a whole bubble, or for one task of a stage that asks for more than a plain slot."""

    id: int
    stage: Stage | None
    bubble: int = -1
    index: int = -1
    alternatives: tuple[Resources, ...] = ()
    granted: bool = False


class Cause(Struct, frozen=True):
    """The first thing that went wrong."""

    task: str
    message: str
    traceback: str = ""
    kind: str = ""
    raised: str = ""


class Unslotted:
    """Stages with ready tasks that hold no slot: for each set of tokens the numbers of those that take it, as a heap.

    No heap is empty.
    """

    __slots__ = ("heaps",)

    def __init__(self) -> None:
        self.heaps: dict[tuple[tuple[str, int], ...], list[int]] = {}

    def add(self, stage: Stage) -> None:
        """Take a stage in; once more does no harm."""
        heappush(self.heaps.setdefault(stage.resources[0].tokens, []), stage.index)

    def __bool__(self) -> bool:
        return bool(self.heaps)


class Planned(NamedTuple):
    """What was submitted, which patches do not change."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    bubbles: tuple[Bubble, ...]


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
        "due",
        "queues",
        "offered",
        "served",
        "token_waiters",
        "moved",
        "tokens",
        "emitted",
        "answered",
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
        "usage",
        "claims",
        "_claimed_in",
        "payloads",
        "policies",
        "memos",
        "speculative",
        "cancelled",
        "backups",
        "backups_wanted",
        "weights",
        "shrunk",
        "faults",
        "restarts",
        "avoided",
        "readmitted",
        "elsewhere",
        "ring",
    )
    """The fields that a snapshot holds; a field that a snapshot of an older version lacks is as in a new job."""
    MADE_ANEW: ClassVar = ("_links", "managers", "stages", "specs", "inner_specs", "cone_specs")
    """The fields that are made anew when a snapshot is read, or are written apart."""

    def __init__(self, graph: LogicalGraph, job: str, tuning: Tuning, ring: int = 4096) -> None:
        self.graph = graph.copy()  # a patch must not change what the user may run again
        self.planned = Planned(tuple(graph.vertices.values()), tuple(graph.edges), tuple(graph.bubbles))
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
        self.sized: dict[str, list[Stage]] = {}  # by the vertex that says how many tasks they have
        self.services: list[Stage] = []
        self.workers: dict[int, WorkerRow] = {}
        self.leases: dict[int, LeaseRow] = {}
        self.requests: dict[int, RequestRow] = {}
        self.timers: dict[int, tuple[Any, ...]] = {}
        self.heaps: dict[int, list[tuple[float, float, int]]] = {ANYWHERE: []}
        self.unslotted = Unslotted()
        self.due = 0  # the phases that have something to do, a bit each
        self.offered: Sequence[int] = ()  # workers, in this tick
        self.served = False  # whether these were given leases before in this tick
        self.queues: list[list[Any]] = [[] for _ in range(PHASES)]
        self.token_waiters: dict[int, Stage] = {}  # those that lacked tokens for a request, until some come back
        self.moved: list[Stage] = []  # what has another status since `handle` was last called
        self.tokens: dict[str, int] = dict(graph.limits)
        self.emitted: set[tuple[str, str]] = set()
        self.answered: set[tuple[int, int]] = set()
        self.unended = 0
        self.held = 0  # final vertices that wait for all others to end
        self.verdict: JobState | None = None  # how the others have ended, once the final ones run
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
        self.dirty: set[int] = set()
        self.usage: dict[str, dict[str, float]] = {}
        self.claims: dict[tuple[str, str], str] = {}
        self._claimed_in: list[Command] = []
        self.payloads: dict[tuple[str, str], list[Any]] = {}
        self.policies: dict[str, VertexManager] = {}
        self.memos: dict[str, Any] = {}
        self.speculative: dict[int, LeaseRow] = {}
        self.cancelled: dict[int, LeaseRow] = {}
        self.backups: dict[tuple[int, int], int] = {}
        self.backups_wanted: list[tuple[int, str]] = []
        self.weights: dict[int, float] = {}
        self.shrunk: dict[int, int] = {}
        self.faults: deque[Fault] = deque(maxlen=FAULTS)
        self.restarts = 0
        """How often failures of their code have had tasks of the job started again."""
        self.avoided: dict[int, int] = {}
        self.readmitted: dict[int, tuple[int, float]] = {}
        self.elsewhere: dict[tuple[int, int], float] = {}
        self.ring: deque[Note] = deque(maxlen=ring)

    @property
    def links(self) -> dict[str, PhysicalEdge]:
        """The links by edge id; made when they are first asked for."""
        if not self._links:
            self._links = {link.edge.id: link for stage in self.stages for link in stage.outputs}
        return self._links

    def forget_links(self) -> None:
        """Links were added or dropped."""
        self._links = {}

    def later(self, phase: Phase, *items: Any) -> None:
        """Have a phase of this tick do something, with `items` in its queue."""
        self.due |= 1 << phase
        if items:
            self.queues[phase].extend(items)

    def taken(self, phase: Phase) -> list[Any]:
        """Return what is in the queue of a phase, and empty it."""
        items, self.queues[phase] = self.queues[phase], []
        return items

    def tell(self, stage: Stage, moment: Moment) -> None:
        """Something happened to a stage: remember which managers want to be asked."""
        own = moment in _OWN
        for index in stage.listeners:
            manager = self.stages[index].manager
            if manager is not None and moment in manager.moments and own == (index == stage.index):
                self.dirty.add(index)
                self.due |= 1 << Phase.MANAGERS

    def claim(self, who: str, decision: Decision) -> None:
        """Note who decides what in this tick; GraphError if another policy has decided the same before."""
        if self._claimed_in is not self.out:
            self._claimed_in, self.claims = self.out, {}
        if isinstance(decision, (ApplyPatch, Emit, BackUp, WeighTasks, Avoid, Readmit)):
            return
        first = self.claims.setdefault((type(decision).__name__, decision[0]), who)
        if first != who:
            raise GraphError(f"{first} has decided this in the same moment", subject=decision[0], rule="first-decision")

    def loads(self) -> Counter[int]:
        """Count the leases that each worker has. Looks at all leases: not for every tick."""
        apart = [lease for lease in self.speculative.values() if lease.id not in self.leases]
        every = (*self.leases.values(), *apart, *self.cancelled.values())
        return Counter(lease.worker for lease in every)

    def fresh(self) -> int:
        """Return a number that was not used before in this job: ids of leases, requests and timers."""
        self.counter += 1
        return self.counter

    def note(self, subject: str, kind: NoteKind, *values: Any) -> None:
        """Remember something out of the ordinary, with the values of the fields of its kind, for whoever asks later."""
        self.ring.append(Note(self.now, subject, kind, values))

    def set_timer(self, at: float, *what: Any) -> int:
        """Ask for a `TimerFired` at time `at` and remember what it is for."""
        timer = self.fresh()
        self.timers[timer] = what
        self.out.append(SetTimer(at, timer))
        return timer
