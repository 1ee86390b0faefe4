"""What stands between the master and the world: clock, journal, the loop as backends see it, and the backend itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from weft.engine.commands import Command, Complete, Launch, Probe, Publish, Reply, Restart, Weigh
    from weft.engine.core import Tuning
    from weft.engine.events import Event
    from weft.engine.inspector import Inspector
    from weft.engine.provider import NodeSpec, Provider
    from weft.graph.logical import LogicalGraph
    from weft.graph.task import CommitBarrier, VertexHistory
    from weft.model.errors import WeftError


class Clock(Protocol):
    """Seconds since some moment, never going back."""

    def now(self) -> float:
        """Return the time in seconds."""
        ...


class ManualClock:
    """A clock that stands still until it is told to go on: for tests and the simulator."""

    def __init__(self, start: float = 0.0) -> None:
        self.time = start

    def now(self) -> float:
        """Return the time it was set to."""
        return self.time

    def wall(self) -> float:
        """Return the same: there is no other time here."""
        return self.time

    def advance(self, seconds: float) -> None:
        """Go on by `seconds`."""
        self.time += seconds


WhenDurable = Callable[[Callable[[], None]], None]
"""Takes what to call, on any thread, as soon as a record is durable."""


class Journal(Protocol):
    """Where ticks are written before their consequences are seen. One record is one tick. No method waits.

    `error` says why nothing more can be written.
    """

    error: WeftError | None

    def append(self, events: Sequence[Event], commands: Sequence[Command]) -> WhenDurable | None:
        """Take one record; None if it is durable already. `DURABLE_FIRST` commands wait for that."""
        ...

    def close(self) -> None:
        """Take no more; what was taken is still written."""
        ...


class WorkerSpec(NamedTuple):
    """A worker and where it is. All workers of a `node` share memory."""

    worker: int
    node: int = 0
    node_name: str = "local"
    party: str = ""


class Job(Protocol):
    """A job as a backend sees it. `backend` is the backend's own; `leases` are those that the loop still waits for.

    `inspector` looks at the job and changes nothing: all that a worker needs to run a lease is in its `Launch`.

    `outputs` keeps the values of a durable job in files (`weft.store.outputs`), None for any other. `history` is what
    earlier runs of its graph took, where somebody kept it; `recorded` says that what this one takes will be kept.
    `given` are values that were there before the job, by vertex, in columns of its store: they are not the job's to
    free. `gates` has the gates of leases that are about to be launched behind one. `cache` is asked for tasks
    that have a cache key.
    """

    id: str
    graph: LogicalGraph
    inspector: Inspector
    leases: dict[int, Launch]
    outcome: Complete | None
    backend: Any
    outputs: Any
    history: Sequence[VertexHistory]
    recorded: bool
    given: Mapping[str, Any]
    gates: dict[int, CommitBarrier]
    cache: Cache | None


class Shell(Protocol):
    """The loop as a backend sees it."""

    clock: Clock

    @property
    def jobs(self) -> Mapping[str, Job]:
        """The jobs that have not ended, by id."""
        ...

    def post(self, job: str, event: Event) -> None:
        """Say that something happened, and see to it."""
        ...

    def post_later(self, job: str, *events: Event) -> None:
        """Say that something happened without seeing to it; a `drain` follows."""
        ...

    def drain(self, going_on: Callable[[], None] | None = None) -> None:
        """See to what was said; `going_on` is called whenever there is more to see to than at first."""
        ...

    def settle(self) -> None:
        """Wait until nobody is at it."""
        ...

    def worker_joined(self, spec: WorkerSpec) -> None:
        """A worker came."""
        ...

    def worker_lost(
        self, worker: int, reason: str, *, node_lost: bool = False, unit: int = -1, replaced: bool = False
    ) -> None:
        """A worker is gone; `replaced` says that the executor will bring another one to its node."""
        ...

    def node_joined(self, spec: NodeSpec) -> None:
        """A node came, with its workers, memory and GPUs."""
        ...

    def node_draining(self, node: int, reason: str) -> None:
        """A node is to be given back: it takes no new work, and `Provider.drained` follows when nothing runs there."""
        ...

    def node_lost(self, node: int, reason: str) -> None:
        """A node is gone, with its workers and the outputs that it held."""
        ...

    def cancel(self, job: Any, reason: str) -> None:
        """Ask a job to stop."""
        ...

    def idle_tick(self) -> None:
        """Nothing came for a while."""
        ...


class Cache(Protocol):
    """What knows earlier results of tasks that have a cache key."""

    def probe(self, shell: Shell, job: Job, probe: Probe) -> None:
        """Take a question on and return at once; later post `Hit` or `Miss`, perhaps after `Waiting`."""
        ...

    def keep(self, recipe: Any, started: float, spoilt: str) -> str:
        """Keep the result of a task that has succeeded; return why it is not kept, or "". Called from any thread.

        See `TaskContext.keep_result`.
        """
        ...


class Executor(Protocol):
    """A backend: what runs leases. All methods return at once; what happens later is posted to the loop.

    `launch` of a lease is answered by exactly one `Done` or `Failed`. `stop` asks a lease to end; the answer is still
    one of these. Reports of a lease that the loop has forgotten are dropped.

    Two leases may have the same tasks (`Launch.backup_of`). Their outputs are committed once: units that one of them
    has committed are not committed by the other, nor are those that one has said with `GaveBack` that it will not do;
    when one has ended with a `Done`, the other ends with `Failed(STOPPED)` and what it made is thrown away where it is.

    `gated` says whether leases of the light lane may begin behind a gate (`Job.gates`). `provider` is where the workers
    come from. `name` is what a run on it is said to have begun on.
    """

    tuning: Tuning
    gated: bool

    @property
    def name(self) -> str:
        """The name of the backend."""
        ...

    @property
    def clock(self) -> Clock | None:
        """The clock that its time passes on, None if it is that of the machine."""
        ...

    def hurry(self) -> None:
        """Wait for no task any more that is told to stop."""
        ...

    @property
    def provider(self) -> Provider:
        """The provider of the workers that run leases."""
        ...

    def attach(self, loop: Shell) -> None:
        """Begin to work for `loop`."""
        ...

    def open_job(self, job: Job) -> None:
        """A job is about to be submitted."""
        ...

    def launch(self, job: Job, lease: Launch) -> None:
        """Start a lease."""
        ...

    def shrink(self, job: Job, lease: int) -> None:
        """Take back the half of a lease that has not begun."""
        ...

    def weigh(self, job: Job, weigh: Weigh) -> None:
        """Count what tasks read, and post `Weighed`."""
        ...

    def stop(self, job: Job, lease: int, reason: str) -> None:
        """Stop a lease."""
        ...

    def free(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """Drop outputs."""
        ...

    def free_parts(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """Drop partitions of outputs."""
        ...

    def publish(self, job: Job, event: Publish) -> None:
        """Tell running tasks of a user event."""
        ...

    def restart(self, job: Job, command: Restart) -> None:
        """Forget what vertices have streamed."""
        ...

    def reply(self, job: Job, reply: Reply) -> None:
        """Tell a control vertex what became of its request."""
        ...

    def restore(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """Put what an earlier process found out in tasks `lo:hi` where those who read them look."""
        ...

    def set_timer(self, job: Job, at: float, timer: int) -> None:
        """Post `TimerFired` at `at`."""
        ...

    def close_job(self, job: Job) -> None:
        """A job is over and its results are not wanted any more."""
        ...

    def close(self) -> None:
        """End everything; no process, thread or file is left."""
        ...
