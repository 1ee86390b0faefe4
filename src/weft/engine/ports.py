"""The ports of the engine: clock, journal, the loop as seen by backends, and the backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from weft.engine.commands import (
        Command,
        Complete,
        Launch,
        LaunchEach,
        MarkEnded,
        Probe,
        Publish,
        Reply,
        Restart,
        Weigh,
    )
    from weft.engine.events import Event
    from weft.engine.inspector import Inspector
    from weft.engine.provider import NodeSpec, Provider
    from weft.engine.tuning import Tuning
    from weft.graph.logical import LogicalGraph
    from weft.graph.spec import RunHost, Wants
    from weft.graph.task import CommitBarrier, VertexHistory
    from weft.model.errors import WeftError


class Clock(Protocol):
    """Seconds since some moment, never going back, and the time of day."""

    def now(self) -> float:
        """Return the time in seconds."""
        ...

    def wall(self) -> float:
        """Return seconds since 1970-01-01 UTC."""
        ...


class ManualClock:
    """A clock that moves only by `advance`: for tests and the simulator."""

    def __init__(self, start: float = 0.0) -> None:
        self.time = start

    def now(self) -> float:
        """Return the set time."""
        return self.time

    def wall(self) -> float:
        """Return the set time: there is no other time here."""
        return self.time

    def advance(self, seconds: float) -> None:
        """Advance the time by `seconds`."""
        self.time += seconds


WhenDurable = Callable[[Callable[[], None]], None]
"""A function that runs a callback, on any thread, as soon as a record is durable."""


class Journal(Protocol):
    """The store of ticks, written before their consequences are visible. One record is one tick. No method waits.

    `error` is the reason why no further record can be written.
    """

    error: WeftError | None

    def append(self, events: Sequence[Event], commands: Sequence[Command]) -> WhenDurable | None:
        """Append one record; return None if it is durable already. `DURABLE_FIRST` commands wait for durability."""
        ...

    def close(self) -> None:
        """Accept no more records; appended ones are still written."""
        ...


class WorkerSpec(NamedTuple):
    """A worker and its node. All workers of a `node` share memory."""

    worker: int
    node: int = 0
    node_name: str = "local"
    party: str = ""


class Job(Protocol):
    """A job as seen by a backend. `backend` belongs to the backend; `leases` are those that the loop still waits for.

    `inspector` reads the state of the job; the `Launch` of a lease carries all data that its worker needs.

    `outputs` keeps the values of a durable job in files (`weft.store.outputs`), None for any other. `history` has the
    measurements of earlier runs of its graph, if recorded; `recorded`: those of this run will be recorded. `given` are
    values from before the job, by vertex, in columns of its store: the job does not free them. `gates` has the commit
    barriers of leases that are about to be launched behind one. `cache` serves tasks that have a cache key, `host`
    answers their questions.
    `logs` is the folder for the output of its tasks, "" if it is not kept. `origins` is what the exceptions of failed
    tasks were, by task, perhaps packed (`weft.worker.origins`).
    A job that is not `built` waits for its first turn: its inspector would have to be made first.
    """

    id: str
    graph: LogicalGraph
    outcome: Complete | None
    backend: Any
    outputs: Any
    history: Sequence[VertexHistory]
    recorded: bool
    given: Mapping[str, Any]
    gates: dict[int, CommitBarrier]
    cache: Cache | None
    host: RunHost | None
    logs: str
    origins: dict[str, Any]

    @property
    def leases(self) -> MutableMapping[int, Launch]: ...  # noqa: D102
    @property
    def inspector(self) -> Inspector: ...  # noqa: D102
    @property
    def built(self) -> bool: ...  # noqa: D102


FROZEN_S: Final = 10.0
"""The seconds within which a backend notices that the process of a worker was stopped."""


class Shell(Protocol):
    """The loop as seen by a backend."""

    clock: Clock

    @property
    def jobs(self) -> Mapping[str, Job]:
        """The jobs that have not ended, by id."""
        ...

    def post(self, job: str, event: Event) -> None:
        """Queue an event and process the queue."""
        ...

    def post_later(self, job: str, *events: Event) -> None:
        """Queue events without processing them; a `drain` follows."""
        ...

    def drain(self, going_on: Callable[[], None] | None = None) -> None:
        """Process the queue; `going_on` is called whenever new events join during the processing."""
        ...

    def settle(self) -> None:
        """Wait until no thread processes the queue."""
        ...

    def worker_joined(self, spec: WorkerSpec) -> None:
        """Report a new worker."""
        ...

    def worker_lost(
        self,
        worker: int,
        reason: str,
        *,
        node_lost: bool = False,
        unit: int = -1,
        crashed: bool = False,
        traceback: str = "",
        replaced: bool = False,
    ) -> None:
        """Report a lost worker as `WorkerLost`; `replaced`: the executor will bring another one to its node."""
        ...

    def node_joined(self, spec: NodeSpec) -> None:
        """Report a new node, with its workers, memory and GPUs."""
        ...

    def node_draining(self, node: int, reason: str) -> None:
        """Report a node that leaves: it takes no new work, and `Provider.drained` follows when no task runs there."""
        ...

    def node_lost(self, node: int, reason: str, *, emptied: bool = False) -> None:
        """Report a lost node, with its workers and outputs; `emptied`: its outputs lie elsewhere by now."""
        ...

    def cancel(self, job: Any, reason: str) -> None:
        """Order a job to stop."""
        ...

    def refusal(self, job: Any, wants: Wants) -> str:
        """Return why tasks of a job can never get their slots together, as a clause; "" if they can."""
        ...

    def idle_tick(self) -> None:
        """Report that no event came for a while."""
        ...


class Cache(Protocol):
    """The store of earlier results of tasks that have a cache key."""

    def probe(self, shell: Shell, job: Job, probe: Probe) -> None:
        """Accept a probe and return at once; later post `Hit` or `Miss`, perhaps after `Waiting`."""
        ...

    def keep(self, recipe: Any, started: float, spoilt: str) -> str:
        """Keep the result of a task that has succeeded; return the reason if it is not kept, else "". Called from any
        thread.

        See `TaskContext.keep_result`.
        """
        ...


class Executor(Protocol):
    """A backend: runs leases. All methods return at once; later results are posted to the loop.

    `launch` of a lease is answered by exactly one `Done` or `Failed`. `stop` asks a lease to end; the answer is still
    one of these. Reports of a lease that the loop has removed are dropped.

    Two leases may have the same tasks (`Launch.backup_of`). Each unit is committed at most once: a lease does not
    commit units that the other has committed, nor units that it has given up with `GaveBack`. After the `Done` of one
    lease the other ends with `Failed(STOPPED)`, and its outputs are discarded where they lie.

    `gated` says whether leases of unslotted tasks may begin behind a commit barrier (`Job.gates`).
    """

    tuning: Tuning
    gated: bool

    @property
    def name(self) -> str:
        """The name of the backend."""
        ...

    @property
    def clock(self) -> Clock | None:
        """The clock of the backend's time, None for the clock of the machine."""
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """Return the context of a wait of the current thread for a run of this backend.

        UsageError: the thread is the last worker that does not wait, so that the run would never go on.
        """
        ...

    def hurry(self) -> None:
        """Wait no longer for tasks that are ordered to stop."""
        ...

    @property
    def provider(self) -> Provider:
        """The provider of the workers that run leases."""
        ...

    def attach(self, loop: Shell) -> None:
        """Start working for `loop`."""
        ...

    def open_job(self, job: Job) -> None:
        """Prepare for a job that is about to be submitted."""
        ...

    def launch(self, job: Job, lease: Launch) -> None:
        """Start a lease."""
        ...

    def launch_each(self, job: Job, leases: LaunchEach) -> None:
        """Start many leases of one task."""
        ...

    def shrink(self, job: Job, lease: int) -> None:
        """Revoke the second half of the units of a lease that have not started."""
        ...

    def weigh(self, job: Job, weigh: Weigh) -> None:
        """Count the bytes that tasks read, and post `Weighed`."""
        ...

    def stop(self, job: Job, lease: int, reason: str) -> None:
        """Stop a lease."""
        ...

    def free(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """Drop outputs."""
        ...

    def free_parts(self, job: Job, vertex: str, parts: Sequence[int]) -> None:
        """Drop partitions of outputs, in ascending order."""
        ...

    def publish(self, job: Job, event: Publish) -> None:
        """Send a user event to running tasks."""
        ...

    def restart(self, job: Job, command: Restart) -> None:
        """Drop the streamed data of vertices."""
        ...

    def mark_ended(self, job: Job, command: MarkEnded) -> None:
        """Keep whether a vertex has ended: its live readers wait for no more values, its writers for no more room."""
        ...

    def reply(self, job: Job, reply: Reply) -> None:
        """Send a control vertex the result of its request."""
        ...

    def restore(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """Make the outputs that an earlier process computed in tasks `lo:hi` readable for their consumers."""
        ...

    def set_timer(self, job: Job, at: float, timer: int) -> None:
        """Post `TimerFired` at `at`."""
        ...

    def retire_job(self, job: Job) -> None:
        """Drop what only a running job needs: the job has ended, and its values stay."""
        ...

    def close_job(self, job: Job) -> None:
        """Drop a job that has ended and whose results are not needed any more."""
        ...

    def close(self) -> None:
        """Stop all work; no process, thread or file is left."""
        ...
