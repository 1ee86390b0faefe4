"""The common part of the backends of one machine: the store, columns, task code, streams, timers, unslotted tasks."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar

from weft.backends.streams import END, Streams
from weft.engine.events import Done, Failed, GaveBack, Noted, TimerFired, UserEvent, Weighed
from weft.engine.machines.job import GOING, JobState
from weft.engine.notes import NoteKind
from weft.engine.provider import FixedProvider, NodeSpec
from weft.engine.tuning import Tuning
from weft.graph.task import WatchedVertex
from weft.model.chunks import OUTSIDE, ChunkRef
from weft.model.errors import NotFoundError, RunCancelledError, WeftError
from weft.model.failures import Failure, kind_of
from weft.model.resources import Resources
from weft.store.api import ABSENT, Column, sizeof
from weft.store.tiers import part_nbytes
from weft.worker.code import PIECES, InputCode, TaskCode, code_of
from weft.worker.context import EdgeValues, not_controlled
from weft.worker.lease import LeaseResult as LeaseOutcome
from weft.worker.lease import WorkerLease
from weft.worker.run import LiveInput, read_one, run
from weft.worker.streaming import unpacked

if TYPE_CHECKING:
    from weft.engine.commands import Launch, Publish, Reply, Restart, Weigh
    from weft.engine.ports import Clock, Job, Shell
    from weft.engine.provider import Provider
    from weft.graph.task import VertexHistory
    from weft.graph.task_spec import EdgeSpec, TaskSpec
    from weft.store.api import ChunkStore
    from weft.store.outputs import Outputs
    from weft.worker.context import WorkerTaskContext

_WAKE_S = 0.1
_KEEPS_NOTHING = (JobState.RUNNING, JobState.SUCCEEDED)

STREAM_BYTES = 64 * 2**20
"""The bytes that a streamed edge holds before its writers wait; fewer if the memory is small."""
EVENTS_KEPT = 1_000
"""The number of events of a vertex that are kept for its control vertex."""
GRACE_S = 3.0
"""The seconds a stopped task may take before it is abandoned."""
LAST_ACTION_S = 1.0
"""The seconds that the end of a backend waits for the last actions of its helper threads."""


def lease_bytes(budget: int, workers: int) -> int:
    """Return the bytes that the outputs of one lease may take, so that every worker can have a lease and each fits."""
    return min(Tuning().lease_bytes, max(1, budget // (2 * max(1, workers))))


def stream_bytes(budget: int) -> int:
    """Return the bytes a streamed edge may hold: a small part of the memory, since a bubble may have several edges."""
    return min(STREAM_BYTES, max(1, budget // 16))


Defer = Callable[[Callable[[], None]], None]
"""Takes an action that may block, and calls it soon on another thread."""


class Race:
    """Two leases of the same tasks. Units below `done` are committed; those from `hi` on were given back and belong to
    neither. The units ended by `winner` are closed to the other lease.
    """

    def __init__(self, done: int, hi: int) -> None:
        self.done = done
        self.hi = hi
        self.winner: object = None
        self.lock = threading.Lock()


AnyLease = TypeVar("AnyLease", bound=WorkerLease)
AnyAnswer = TypeVar("AnyAnswer")


class LocalJob:
    """The state of a job on this machine; also the `Host` of its running tasks."""

    def __init__(self, job: Job, store: ChunkStore, loop: Shell, window: int) -> None:
        self.job = job
        self.store = store
        self.loop = loop
        self._window = window
        self._streams: Streams | None = None
        self._codes: dict[TaskSpec, TaskCode] = {}
        self.columns: dict[str, Column] = {}
        self.running: dict[int, WorkerLease] = {}
        self.closed = False
        self._endpoints: dict[str, dict[int, Any]] = {}
        self._replies: dict[str, str] = {}
        self._events: dict[str, deque[tuple[str, int, Any]]] = {}
        self.moved = threading.Condition()
        self.watched = False
        self.outputs: Outputs | None = job.outputs
        self._parts_freed: dict[str, set[int]] = {}

    # ------------------------------------------------------------------------------------------------ columns

    def column(self, vertex: str, n: int, parts: int) -> Column:
        """Return the column of a vertex's outputs. A new column has `n` cells and `parts` partitions."""
        column = self.columns.get(vertex)
        if column is None and vertex in self.job.given:
            column = self.job.given[vertex]
            column.foresee = self.job.inspector.foresee(vertex, self._passed)
        elif column is None:
            column = self.columns[vertex] = self.store.column((self.job.id, vertex), n, parts)
            column.foresee = self.job.inspector.foresee(vertex, self._passed)
        return column

    def _passed(self, vertex: str) -> list[tuple[int, int]]:
        """Return the tasks of a vertex that running leases have passed."""
        running = list(self.running.values())
        return [(lease.lo, lease.at) for lease in running if lease.root.vertex == vertex]

    def code(self, spec: TaskSpec) -> TaskCode:
        """Return the task code of a vertex, made once for each record of the vertex."""
        code = self._codes.get(spec)
        if code is None:
            code = self._codes[spec] = code_of(spec, self._column_of)
            if spec.inputs or spec.outputs:
                for edge in (*spec.inputs, *spec.outputs):
                    if edge.streamed:
                        self.streams.know(edge)
                    if edge.live and edge.destination == spec.vertex:
                        self.watched = True
        return code

    def _column_of(self, edge: EdgeSpec) -> Column:
        return self.column(edge.source, edge.n_source, edge.source_parts)

    # ------------------------------------------------------------------------------------------------- leases

    def lease(self, launch: Launch, kind: type[AnyLease] = WorkerLease) -> AnyLease:  # type: ignore[assignment]
        """Return a launch in the form that workers take."""
        cone = launch.cone
        lease = kind(
            launch.lease,
            self.code(launch.spec),
            launch.lo,
            launch.hi,
            cone=cone,
            codes=tuple([self.code(spec) for spec in launch.specs]) if cone is not None else (),
            attempt=launch.attempt,
            nbytes=launch.nbytes,
            resources=launch.resources,
            host=self,
            gate=self.job.gates.pop(launch.lease, None) if self.job.gates else None,
        )
        if launch.backup_of:
            self._race(lease, self.running.get(launch.backup_of))
        self.running[launch.lease] = lease
        if self._streams is not None:
            self._streams.joined(lease.root, launch.lo, launch.hi)
        return lease

    def forget(self, lease: WorkerLease) -> None:
        """Forget an ended lease."""
        self.running.pop(lease.id, None)
        self.over(lease, lease.lo, lease.hi)

    def over(self, lease: WorkerLease, lo: int, hi: int) -> None:
        """End tasks `lo:hi` of a lease, whatever their outcome: they read and write no more streams."""
        streams = self._streams
        if streams is not None:
            streams.leave(lease.root, lo, hi)
            if not self.running and self.job.inspector.status not in GOING:
                streams.reset()()

    @staticmethod
    def _race(lease: WorkerLease, other: WorkerLease | None) -> None:
        """Let two leases race. A lease that commits now, or has committed, has won already."""
        race = lease.race = (other and other.race) or Race(lease.lo, lease.hi)
        if other is None:
            race.winner = race
            return
        other.race = race  # before `committing` is read: see `commit`
        race.hi = min(race.hi, max(other.hi, other.at + 1))  # the units it gave back may not be recorded yet
        if other.committing:
            race.winner = other
        race.done = max(race.done, other.lo)

    def commit(self, lease: WorkerLease, outcome: LeaseOutcome, reservation: Any = None, *, ends: bool = True) -> None:
        """Put the values of a lease into the store, before its report. `ends`: the lease does no more work
        afterwards.
        """
        if lease.late and ends and not outcome.kind:
            _end_before(lease, outcome, "its time was up")
        values = outcome.values
        if not values or lease.id not in self.job.leases:
            return
        lease.committing = True  # before `race` is read: see `_race`
        if lease.race is None:
            self._put(lease, outcome, values, lease.lo, reservation)
        else:
            self._put_first(lease.race, lease, outcome, reservation, ends=ends)

    def _put_first(
        self, race: Race, lease: WorkerLease, outcome: LeaseOutcome, reservation: Any, *, ends: bool
    ) -> None:
        """Put the values that the other lease has not put yet; none if that lease has ended."""
        with race.lock:
            if race.winner not in (None, lease):
                _end_before(lease, outcome, "another attempt was first")
                return
            if outcome.hi > race.hi or (outcome.kind and outcome.hi == race.hi):
                outcome.end_at(race.hi, lease.lo)
            fresh = outcome.values[max(0, race.done - lease.lo) :]
            lo = lease.lo + len(outcome.values) - len(fresh)
            if fresh:
                self._put(lease, outcome, fresh, lo, reservation)
                race.done = lo + len(fresh)
            if ends and not outcome.kind:
                race.winner = lease

    def shrink(self, lease: WorkerLease) -> int | None:
        """Revoke the tail of a lease, which its rival does not commit either. Return the new end, or None if nothing is
        left.

        Waits for a running commit if the lease has a rival.
        """
        hi = lease.shrink()
        race: Race | None = lease.race
        if hi is None or race is None:
            return hi
        with race.lock:
            if race.winner is not None:
                return None
            hi = max(hi, race.done)
            race.hi = min(race.hi, hi)
        return hi

    def _put(self, lease: WorkerLease, outcome: LeaseOutcome, values: list[Any], lo: int, reservation: Any) -> None:
        code = lease.codes[outcome.reached] if outcome.reached >= 0 else lease.root
        vertex = code.vertex
        column = self.columns.get(vertex) or self.column(vertex, code.n, code.parts)
        refs: list[Any] = []
        if self.outputs is not None:
            refs = self.outputs.put(vertex, len(column), lease.id, lo, values, column.parts)
        outcome.nbytes = self.store.put_range(column, lo, values, within=reservation)
        for index, ref in enumerate(refs, lo):
            if ref is not None:
                self.store.add_copy(column, index, ref)
        if self.closed:
            self.store.free_range(column, lo, lo + len(values))
        if self.watched:
            with self.moved:
                self.moved.notify_all()

    def report(self, lease: WorkerLease, outcome: LeaseOutcome, now: float) -> Done | Failed:
        """Return the event that reports the outcome of a lease."""
        self.forget(lease)
        if not outcome.kind:
            values = list(outcome.values) if lease.root.expands else None
            return Done(
                now,
                lease.id,
                outcome.hi,
                outcome.seconds,
                outcome.nbytes,
                reached=outcome.reached,
                values=values,
                stats=outcome.stats,
                rows=outcome.rows,
            )
        return Failed(
            now,
            lease.id,
            outcome.hi,
            outcome.vertex,
            outcome.index,
            Failure(outcome.kind),
            outcome.message,
            outcome.traceback,
            outcome.seconds,
            outcome.nbytes,
            outcome.lost,
            outcome.raised,
            outcome.status,
        )

    def restore(self, vertex: str, indices: Collection[int]) -> None:
        """Restore outputs recorded by an earlier process; tasks without any files are skipped."""
        if self.outputs is None or not indices:
            return
        column = self.column(vertex, *self.job.inspector.column(vertex))
        for lo, cells in self.outputs.cells(vertex, indices):
            self.store.put_range(column, lo, cells)

    def free(self, vertex: str, lo: int, hi: int, defer: Defer) -> None:
        """Free outputs that have no readers left. A job that fails or is cancelled keeps its outputs for a resume."""
        if self.outputs is not None and self.job.inspector.status in _KEEPS_NOTHING:
            self.outputs.free(vertex, lo, hi, defer)

    def free_parts(self, column: Column, vertex: str, part_lo: int, part_hi: int, defer: Defer) -> None:
        """Free partitions that have no readers left; a file is removed with its last partition."""
        if self.outputs is not None:
            freed = self._parts_freed.setdefault(vertex, set())
            freed.update(range(part_lo, part_hi))
            if len(freed) >= column.parts:
                self.free(vertex, 0, len(column), defer)

    def close(self) -> None:
        """Drop all values."""
        self.closed = True
        if self._streams is not None:
            self._streams.reset()()
        for vertex in list(self.columns):
            self.store.drop((self.job.id, vertex))
        for column in self.job.given.values():
            if getattr(column.foresee, "args", (None, None))[1] == self._passed:
                column.foresee = None  # the next job may still use it
        with self.moved:
            self.moved.notify_all()

    def settle(self) -> None:
        """Wake the waiters after a stop: their inputs may never come."""
        with self.moved:
            self.moved.notify_all()
        if self._streams is not None:
            self._streams.wake_all()

    # --------------------------------------------------------------------------------------------------- host

    def emit(self, lease: int, vertex: str, index: int, name: str, payload: Any) -> None:
        """See `Host.emit`."""
        self.loop.post(self.job.id, UserEvent(self.loop.clock.now(), vertex, index, name, payload))

    def progress(self, lease: int, rows: int) -> None:
        """See `Host.progress`."""

    def endpoints(self, service: str) -> list[Any] | None:
        """See `Host.endpoints`."""
        row = self.job.inspector.vertex(service)
        if row is None:
            raise NotFoundError(f"there is no service {service!r} in {self.job.graph.name}")
        endpoints = self._endpoints.get(service, {})
        return [endpoints[index] for index in range(row.n)] if len(endpoints) == row.n else None

    def publish(self, event: Publish) -> None:
        """Record an event of a service, and the events that a control vertex reads."""
        if event.name == "endpoint":
            self._endpoints.setdefault(event.vertex, {})[event.index] = event.payload
        if self.job.inspector.controllers(event.vertex):
            kept = self._events.setdefault(event.vertex, deque(maxlen=EVENTS_KEPT))
            kept.append((event.name, event.index, event.payload))

    def history(self, vertex: str) -> Sequence[VertexHistory]:
        """See `Host.history`."""
        return [past for past in self.job.history if past.vertex == vertex]

    def keep_result(self, recipe: Any, started: float, spoilt: str) -> str:
        """See `Host.keep_result`."""
        cache = self.job.cache
        return "" if cache is None else cache.keep(recipe, started, spoilt)

    def watch(self, control: str, vertex: str) -> WatchedVertex:
        """See `Host.watch`."""
        seen = self.seen(control, vertex)
        if seen is None:
            raise not_controlled(control, vertex)
        return seen

    def reply(self, token: str) -> str | None:
        """See `Host.reply`."""
        return self._replies.pop(token, None)

    def take_reply(self, reply: Reply) -> None:
        """Keep a reply until the control vertex reads it."""
        self._replies[reply.token] = reply.text

    def seen(self, control: str, vertex: str) -> WatchedVertex | None:
        """Return a vertex as seen by its control vertex; None if `control` controls no vertex of that name."""
        inspector = self.job.inspector
        row = inspector.vertex(vertex)
        if row is None or control not in inspector.controllers(vertex):
            return None
        return WatchedVertex(
            row.status.value,
            row.n,
            row.finished,
            row.seconds,
            row.nbytes,
            tuple(self._events.get(vertex, ())),
            dict(inspector.usage(vertex)),
        )

    @property
    def streams(self) -> Streams:
        """The streams of the job."""
        streams = self._streams
        if streams is None:
            with self.moved:
                streams = self._streams = self._streams or Streams(self.job, self.store, self._window)
        return streams

    def block(self, value: Any) -> tuple[Any, int]:
        """Return a value as a block of a stream, and its bytes."""
        return [value], sizeof(value)

    def stream(self, edge: str, index: int, partition: int, value: Any, context: WorkerTaskContext) -> None:
        """See `Host.stream`."""
        streams = self.streams
        cell, nbytes = self.block(value)
        streams.put(edge, index, partition, cell, nbytes, context.lease)
        self._wait(context, partial(streams.has_room, edge, index, partition))

    def end_streams(self, code: TaskCode, index: int, context: WorkerTaskContext) -> None:
        """See `Host.end_streams`."""
        self.streams.end(code.streams, index, context.lease)

    def reset_streams(self, vertices: Collection[str]) -> Callable[[], None]:
        """Forget the streams of vertices whose region restarts. Return the action that removes their data."""
        return self._streams.reset(vertices) if self._streams is not None else lambda: None

    def live_input(self, inp: InputCode, index: int, context: WorkerTaskContext) -> Any:
        """See `Host.live_input`."""
        if inp.streamed:
            return LiveInput(lambda: self._read_stream(inp, index, context))
        return LiveInput(lambda: self._read_committed(inp, index, context))

    def _read_stream(self, inp: InputCode, index: int, context: WorkerTaskContext) -> Iterator[Any]:
        for lo, hi, part_lo, part_hi in inp.router.inputs(index):
            for source in range(lo, hi):
                for part in range(part_lo, part_hi):
                    take = partial(self.streams.take, inp.edge, source, part, index)
                    while (block := self._wait(context, take)) is not END:
                        if block.column is not None:
                            yield from unpacked(self.store.load(block.column, block.at, last=True))
                        else:
                            yield from unpacked(block.cell)

    def _wait(self, context: WorkerTaskContext, attempt: Callable[[Callable[[], None]], AnyAnswer | None]) -> AnyAnswer:
        """Retry at every wake until there is an answer. RunCancelledError: the task was stopped."""
        woken = threading.Event()
        while True:
            self._must_go_on(context)
            answer = attempt(woken.set)
            if answer:
                return answer
            woken.wait(_WAKE_S)
            woken.clear()

    def _read_committed(self, inp: InputCode, index: int, context: WorkerTaskContext) -> Iterator[Any]:
        wanted = [i for lo, hi, _, _ in inp.router.inputs(index) for i in range(lo, hi)]
        for source in wanted:
            with self.moved:
                while inp.column.values[source] is ABSENT and not self.job.inspector.ended(inp.source):
                    self._must_go_on(context)
                    self.moved.wait(0.1)
            if inp.column.values[source] is not ABSENT:
                yield from read_one(inp, self.store, index, source)

    def _must_go_on(self, context: WorkerTaskContext) -> None:
        if context.lease.stop or self.job.outcome is not None:
            raise RunCancelledError(f"{context.vertex}[{context.index}] was stopped")


class TimerThread:
    """A thread that posts `TimerFired` in time; it starts with the first timer."""

    def __init__(self, loop: Shell) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._order = 0

    def set(self, job: str, at: float, timer: int) -> None:
        """Post `TimerFired(timer)` to `job` at time `at` of the loop's clock."""
        self.call(at, lambda: self._loop.post(job, TimerFired(self._loop.clock.now(), timer)))

    def call(self, at: float, action: Callable[[], None]) -> None:
        """Call `action` on the timer thread at time `at`."""
        with self._changed:
            self._order += 1
            heappush(self._heap, (at, self._order, action))
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="weft-timers", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        clock = self._loop.clock
        while True:
            with self._changed:
                if self._closed:
                    return
                wait = self._heap[0][0] - clock.now() if self._heap else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                    continue
                _, _, action = heappop(self._heap)
            action()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)


@contextlib.contextmanager
def reserved(store: ChunkStore, lease: WorkerLease) -> Iterator[Any]:
    """Reserve memory for a lease's outputs while it runs, if they are expected to be large."""
    nbytes = lease.nbytes
    if store.memory.outside:  # each running task has a copy of its own of these
        nbytes += min(_read_back(lease), max(0, store.memory.budget - nbytes))
    if nbytes < 2**20:
        yield None
        return
    owner = f"{lease.root.vertex}[{lease.lo}]"
    if lease.root.in_bubble:
        with store.memory.claim(owner, nbytes) as reservation:
            yield reservation
        return
    with store.memory.reserve(owner, nbytes, cancelled=lambda: lease.stop) as reservation:
        yield reservation


def _read_back(lease: WorkerLease) -> int:
    """Return the most bytes that a task of a lease reads whole from disk.

    Data read in pieces counts as working memory of its vertex.
    """
    mults = (1,) if lease.cone is None else lease.cone.mult
    inner = frozenset() if lease.cone is None else frozenset(lease.cone.members)
    units = range(lease.lo, max(lease.lo + 1, lease.hi))
    return max(
        sum(
            cell.nbytes
            for inp in code.inputs
            if inp.mode != PIECES and not inp.live and inp.source not in inner
            for lo, hi, _, _ in inp.router.inputs(index)
            for cell in inp.column.values[lo:hi]
            if type(cell) is ChunkRef and cell.tier in OUTSIDE
        )
        for code, mult in zip(lease.codes, mults, strict=True)
        for index in range(units.start * mult, units.stop * mult)
    )


def input_bytes(inp: InputCode, index: int) -> int:
    """Return the bytes that task `index` reads through an input, as far as they exist."""
    if inp.live:
        return 0
    column = inp.column
    cells = [
        (column.values[i], part_lo, part_hi)
        for lo, hi, part_lo, part_hi in inp.router.inputs(index)
        for i in range(lo, hi)
    ]
    if inp.mode != PIECES:
        return sum(cell.nbytes if type(cell) is ChunkRef else sizeof(cell) for cell, _, _ in cells)
    nbytes = 0
    for cell, lo, hi in cells:
        if type(cell) is EdgeValues:
            nbytes += sum(sizeof(piece) for part in range(lo, hi) for piece in cell.part(inp.edge, part))
        elif type(cell) is not ChunkRef:
            nbytes += sum(map(sizeof, cell[lo:hi])) if isinstance(cell, (list, tuple)) else 0
        elif cell.parts:
            with contextlib.suppress(NotFoundError):  # spilled or freed meanwhile
                nbytes += part_nbytes(cell, lo, hi)
        else:
            nbytes += cell.nbytes * (hi - lo) // inp.router.partitions
    return nbytes


def run_here(local: LocalJob, lease: WorkerLease, target_s: float) -> None:
    """Run a lease on this thread and report; a drain of the loop follows. No exception may end the thread."""
    loop = local.loop
    try:
        with reserved(local.store, lease) as reservation:
            outcome = run(lease, local.store, target_s)
            local.commit(lease, outcome, reservation)
    except BaseException as error:  # noqa: BLE001
        outcome = crashed(lease, error)
    if lease.id in local.running:
        loop.post_later(local.job.id, local.report(lease, outcome, loop.clock.now()))


def _end_before(lease: WorkerLease, outcome: LeaseOutcome, why: str) -> None:
    """End a lease as if it had been stopped before its first task: its values are dropped."""
    outcome.values = []
    outcome.hi, outcome.reached, outcome.kind = lease.lo, -1, Failure.STOPPED.value
    outcome.vertex, outcome.index, outcome.message = lease.root.vertex, lease.lo, why


def crashed(lease: WorkerLease, error: BaseException) -> LeaseOutcome:
    """Return the outcome of a lease that could not begin, or whose values could not be stored."""
    outcome = LeaseOutcome(lease.lo, [], 0.0)
    outcome.vertex, outcome.index = lease.root.vertex, lease.lo
    outcome.message = str(error) if isinstance(error, WeftError) else f"{type(error).__name__}: {error}"
    if isinstance(error, RunCancelledError) and lease.stop:
        outcome.kind = Failure.STOPPED.value
    else:
        outcome.kind = kind_of(error, Failure.INFRASTRUCTURE).value
    return outcome


def abandon(local: LocalJob, lease: WorkerLease, grace_s: float) -> None:
    """Abandon a task that did not stop in time on a thread of this process, and report for it."""
    local.forget(lease)
    vertex = lease.root.vertex
    now = local.loop.clock.now()
    local.loop.post_later(local.job.id, Noted(now, vertex, NoteKind.UNSTOPPABLE.word, (lease.pos, grace_s)))
    local.loop.post(
        local.job.id,
        Failed(now, lease.id, lease.lo, vertex, lease.pos, Failure.STOPPED, "did not stop in time"),
    )


class HelperPool:
    """Threads that run actions, as many as there are actions at a time; idle threads are used again.

    They run all work that takes no core: unslotted tasks, which wait for something else, and calls that may block.
    After each action `after` runs on its thread. A put from within `after` runs next on the same thread, which saves
    waking another one, unless `after` has more to do: then it calls its argument, and another thread takes over.
    """

    def __init__(self, name: str, after: Callable[[Callable[[], None]], None]) -> None:
        self._name = name
        self._after = after
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._idle: list[queue.SimpleQueue[Callable[[], None] | None]] = []
        self._closed = False
        self._own = threading.local()

    def put(self, action: Callable[[], None]) -> None:
        """Call `action`, which raises nothing, on one of the threads; returns at once."""
        kept: list[Callable[[], None]] | None = getattr(self._own, "kept", None)
        if kept is None or kept:
            self._give(action)
        else:
            kept.append(action)

    def _give(self, action: Callable[[], None]) -> None:
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            thread = threading.Thread(target=self._run, args=(inbox,), name=self._name, daemon=True)
            with self._lock:
                thread.start()
                self._threads.add(thread)
        inbox.put(action)

    def _run(self, inbox: queue.SimpleQueue[Callable[[], None] | None]) -> None:
        while (action := inbox.get()) is not None:
            while action is not None:
                action()
                del action  # drops everything it refers to
                action = self._next()
            with self._lock:
                if self._closed:
                    return
                self._idle.append(inbox)

    def _next(self) -> Callable[[], None] | None:
        """Run `after`, and return the next action of this thread."""
        kept = self._own.kept = []
        self._after(self._hand_on)
        self._own.kept = None
        return kept[0] if kept else None

    def _hand_on(self) -> None:
        kept = self._own.kept
        if kept:
            self._give(kept.pop())

    def close(self, patience_s: float = LAST_ACTION_S) -> None:
        """End idle threads now, busy ones at the end of their action. Wait `patience_s` seconds for all of them.

        A thread with an abandoned task may never end.
        """
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            threads, self._threads = self._threads - {threading.current_thread()}, set()
        for inbox in idle:
            inbox.put(None)
        end = time.monotonic() + patience_s
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))


class LocalBackend(ABC):
    """The common part of all executors of one machine: one store that all workers read, a helper pool, timers."""

    tuning: Tuning
    gated = True
    name = "local"
    clock: Clock | None = None

    def __init__(
        self, workers: int, store: ChunkStore, resources: Resources | None, grace_s: float, window: int | None
    ) -> None:
        self.store = store
        self.grace_s = grace_s
        self.window = stream_bytes(store.memory.budget) if window is None else window
        self._resources = resources or Resources(cpu=workers, memory=store.memory.budget)
        self._helpers = HelperPool("weft-light", lambda hand_on: self.loop.drain(hand_on))
        self._loop: Shell | None = None
        self._timers: TimerThread | None = None

    @property
    def loop(self) -> Shell:
        """The loop of the session."""
        assert self._loop is not None
        return self._loop

    @property
    def timers(self) -> TimerThread:
        """The timers of the backend."""
        assert self._timers is not None
        return self._timers

    @property
    def provider(self) -> Provider:
        """See `Executor.provider`: one node of fixed size."""
        return FixedProvider((NodeSpec(workers=tuple(self.numbers()), resources=self._resources),))

    def hurry(self) -> None:
        """See `Executor.hurry`: processes are killed, threads abandoned."""
        self.grace_s = 0.0

    @abstractmethod
    def numbers(self) -> Sequence[int]:
        """Return the present workers, by number."""

    def attach(self, loop: Shell) -> None:
        """See `Executor.attach`."""
        self._loop = loop
        self._timers = TimerThread(loop)

    def shrink(self, job: Job, lease: int) -> None:
        """See `Executor.shrink`."""
        local: LocalJob = job.backend
        running = local.running.get(lease)
        if running is None:
            return
        if running.race is None:
            self._revoke(local, running)
        else:
            self._helpers.put(partial(self._revoke, local, running))

    def _revoke(self, local: LocalJob, lease: WorkerLease) -> None:
        hi = local.shrink(lease)
        if hi is not None:
            self.loop.post(local.job.id, GaveBack(self.loop.clock.now(), lease.id, hi))

    def weigh(self, job: Job, weigh: Weigh) -> None:
        """See `Executor.weigh`; counting may take long, so another thread does it."""
        self._helpers.put(partial(self._weigh, job.backend, weigh))

    def _weigh(self, local: LocalJob, weigh: Weigh) -> None:
        lease = local.running.get(weigh.lease)  # else it has ended: no answer is needed
        codes = {code.vertex: code for code in lease.codes} if lease is not None else {}
        nbytes = sum(
            input_bytes(inp, index)
            for vertex, lo, hi in weigh.tasks
            if vertex in codes
            for inp in codes[vertex].inputs
            for index in range(lo, hi)
        )
        self.loop.post(local.job.id, Weighed(self.loop.clock.now(), weigh.lease, nbytes))

    def stop(self, job: Job, lease: int, reason: str) -> None:
        """See `Executor.stop`: ask the task to stop, and enforce it after the grace period."""
        local: LocalJob = job.backend
        running = local.running.get(lease)
        if running is None:
            return
        now = self.loop.clock.now()
        running.late = reason == "timeout"
        self.ask_to_stop(running)
        local.settle()
        self.store.memory.wake()
        launch = job.leases.get(lease)
        worker = launch.worker if launch is not None else -1
        self.timers.call(now + self.grace_s, partial(self.out_of_time, local, running, worker))

    def ask_to_stop(self, lease: WorkerLease) -> None:
        """Ask a task to stop. Its callbacks run on the timer thread, as they may block."""
        lease.stop = True
        if lease.callbacks:
            self.timers.call(self.loop.clock.now(), lease.cancel)

    @abstractmethod
    def out_of_time(self, local: LocalJob, lease: WorkerLease, worker: int) -> None:
        """Enforce the stop of a task that may still run after its grace period."""

    def free(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """See `Executor.free`."""
        local: LocalJob = job.backend
        column = local.columns.get(vertex)
        if column is not None:
            local.free(vertex, lo, hi, self._helpers.put)
            self.store.free_range(column, lo, hi, defer=self._helpers.put)

    def free_parts(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """See `Executor.free_parts`."""
        local: LocalJob = job.backend
        column = local.columns.get(vertex)
        if column is not None:
            local.free_parts(column, vertex, lo, hi, self._helpers.put)
            self.store.free_parts(column, lo, hi, 0, len(column))

    def publish(self, job: Job, event: Publish) -> None:
        """See `Executor.publish`."""
        job.backend.publish(event)

    def restart(self, job: Job, command: Restart) -> None:
        """See `Executor.restart`."""
        self._helpers.put(job.backend.reset_streams(command.vertices))

    def restore(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """See `Executor.restore`."""
        job.backend.restore(vertex, range(lo, hi))

    def reply(self, job: Job, reply: Reply) -> None:
        """See `Executor.reply`."""
        job.backend.take_reply(reply)

    def set_timer(self, job: Job, at: float, timer: int) -> None:
        """See `Executor.set_timer`."""
        self.timers.set(job.id, at, timer)
