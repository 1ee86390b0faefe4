"""A job on the workers of one machine: its columns, task code, leases, outputs, streams and control vertices."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from weft.backends.streams import END, StreamBlock, Streams
from weft.engine.events import Done, Failed, Progress, UserEvent
from weft.engine.machines.job import GOING, JobState
from weft.graph.spec import HERE
from weft.graph.task import WatchedVertex
from weft.model.errors import NotFoundError, RunCancelledError
from weft.model.failures import Failure
from weft.model.ids import task_name
from weft.store.api import ABSENT, Column, sizeof
from weft.store.rows import answer_of
from weft.worker.code import InputCode, TaskCode, code_of
from weft.worker.context import not_controlled
from weft.worker.lease import LeaseResult as LeaseOutcome
from weft.worker.lease import WorkerLease
from weft.worker.run import LiveInput, read_block, read_one
from weft.worker.streaming import unpacked

if TYPE_CHECKING:
    from weft.engine.commands import Launch, MarkEnded, Publish, Reply
    from weft.engine.ports import Job, Shell
    from weft.graph.spec import MachineAddress, Wants
    from weft.graph.task import VertexHistory
    from weft.graph.task_spec import EdgeSpec, TaskSpec
    from weft.store.api import ChunkStore
    from weft.store.outputs import Outputs
    from weft.worker.context import WorkerTaskContext

_NOTHING: Any = MappingProxyType({})
"""What jobs share in place of dictionaries without entries."""
_NONE_ENDED: frozenset[str] = frozenset()
_WAKE_S = 0.1
_KEEPS_NOTHING = (JobState.RUNNING, JobState.SUCCEEDED)
EVENTS_KEPT = 1_000
"""The number of events of a vertex that are kept for its control vertex."""
ORIGINS_KEPT = 1_000
"""The number of failed tasks of a job whose exceptions are kept with their arguments and attributes."""
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


_MAKING = threading.Lock()
"""Held while a part of a job is made that few jobs need."""

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
        self.ended = _NONE_ENDED
        # Few jobs have entries in these dictionaries, and many jobs may wait: see `_NOTHING`.
        self._endpoints: dict[str, dict[int, Any]] = _NOTHING
        self._replies: dict[str, str] = _NOTHING
        self._events: dict[str, deque[tuple[str, int, Any]]] = _NOTHING
        self._moved: threading.Condition | None = None
        self.watched = False
        self.outputs: Outputs | None = job.outputs
        self._parts_freed: dict[str, set[int]] = _NOTHING

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
            worker=launch.worker,
            gate=self.job.gates.pop(launch.lease, None) if self.job.gates else None,
        )
        if self.job.logs:
            from weft.worker.task_logs import folder_of

            lease.logs = folder_of(self.job.logs, launch.vertex)
        if launch.backup_of:
            self._race(lease, self.running.get(launch.backup_of))
        self.running[launch.lease] = lease
        for index in range(launch.lo, launch.hi) if launch.vertex in self._endpoints else ():
            self._endpoints[launch.vertex].pop(index, None)  # of an attempt before
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
            before = max(0, race.done - lease.lo)
            fresh = outcome.values[before:]
            del outcome.counts[:before]
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
            self._wake_readers()

    @staticmethod
    def progress_of(lease: WorkerLease, outcome: LeaseOutcome, now: float) -> Progress:
        """Return the event that reports the units of a lease that have been committed before its end."""
        return Progress(now, lease.id, outcome.hi, outcome.nbytes, outcome.seconds, outcome.stats, outcome.rows)

    def report(self, lease: WorkerLease, outcome: LeaseOutcome, now: float) -> Done | Failed:
        """Return the event that reports the outcome of a lease."""
        self.forget(lease)
        if not outcome.kind:
            values = [answer_of(value) for value in outcome.values] if lease.root.expands else None
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
        if outcome.origin is not None and len(self.job.origins) < ORIGINS_KEPT:
            with _MAKING:
                self.job.origins = self.job.origins or {}
                self.job.origins[task_name(outcome.vertex, outcome.index)] = outcome.origin
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
            outcome.stats,
            outcome.rows,
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

    def free_parts(self, column: Column, vertex: str, parts: Sequence[int], defer: Defer) -> None:
        """Free partitions that have no readers left; a file is removed with its last partition."""
        if self.outputs is not None:
            self._parts_freed = self._parts_freed or {}
            freed = self._parts_freed.setdefault(vertex, set())
            freed.update(parts)
            if len(freed) >= column.parts:
                self.free(vertex, 0, len(column), defer)

    def retire(self) -> None:
        """Drop what only a running job needs; its values stay. Leases that still run find all they need."""
        if not self.running:
            self._codes, self.running = {}, {}
        self._know_no_readers()

    def _know_no_readers(self) -> None:
        for column in list(self.columns.values()):
            column.foresee = None
        for column in self.job.given.values():
            if getattr(column.foresee, "args", (None, None))[1] == self._passed:
                column.foresee = None  # the next job may still use it

    def close(self) -> None:
        """Drop all values."""
        self.closed = True
        self._codes.clear()
        if self._streams is not None:
            self._streams.reset()()
        for vertex in list(self.columns):
            self.store.drop((self.job.id, vertex))
        self._know_no_readers()
        self._wake_readers()

    def settle(self) -> None:
        """Wake the waiters after a stop: their inputs may never come."""
        self._wake_readers()
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
            self._endpoints = self._endpoints or {}
            self._endpoints.setdefault(event.vertex, {})[event.index] = event.payload
        if self.job.inspector.controllers(event.vertex):
            self._events = self._events or {}
            kept = self._events.setdefault(event.vertex, deque(maxlen=EVENTS_KEPT))
            kept.append((event.name, event.index, event.payload))

    def mark_ended(self, command: MarkEnded) -> None:
        """Keep whether a vertex has ended, and wake the tasks that wait for it."""
        if command.ended:
            self.ended |= {command.vertex}
            self.settle()
        else:
            self.ended -= {command.vertex}

    def history(self, vertex: str) -> Sequence[VertexHistory]:
        """See `Host.history`."""
        return [past for past in self.job.history if past.vertex == vertex]

    def keep_result(self, recipe: Any, started: float, spoilt: str) -> str:
        """See `Host.keep_result`."""
        cache = self.job.cache
        return "" if cache is None else cache.keep(recipe, started, spoilt)

    def ask_run(self, question: Sequence[Any], machine: MachineAddress = HERE) -> Any:
        """See `Host.ask_run`: have the front end answer a task at a machine. NotFoundError: the run has none."""
        host = self.job.host
        if host is None:
            raise NotFoundError(f"nobody answers questions of the tasks of {self.job.graph.name}")
        return host.answer(question, machine, self)

    def starts(self, vertex: str) -> Mapping[int, tuple[int, str]]:
        """See `RunFacts.starts`."""
        return self.job.inspector.starts(vertex)

    def refusal(self, wants: Wants) -> str:
        """See `RunFacts.refusal`."""
        return self.loop.refusal(self.job, wants)

    def watch(self, control: str, vertex: str) -> WatchedVertex:
        """See `Host.watch`."""
        seen = self.seen(control, vertex)
        if seen is None:
            raise not_controlled(control, vertex)
        return seen

    def reply(self, token: str) -> str | None:
        """See `Host.reply`."""
        return self._replies.pop(token, None) if self._replies else None

    def take_reply(self, reply: Reply) -> None:
        """Keep a reply until the control vertex reads it."""
        self._replies = self._replies or {}
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
            with _MAKING:
                streams = self._streams or Streams(self.job, self.store, self._window, lambda: self.ended)
                self._streams = streams
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
                        yield from read_block(inp, source, partial(self._values_of, block))

    def _values_of(self, block: StreamBlock) -> list[Any]:
        if block.column is not None:
            return unpacked(self.store.load(block.column, block.at, last=True))
        return unpacked(block.cell)

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
        moved = self._readers()
        for source in wanted:
            with moved:
                while inp.column.values[source] is ABSENT and inp.source not in self.ended:
                    self._must_go_on(context)
                    moved.wait(0.1)
            if inp.column.values[source] is not ABSENT:
                yield from read_one(inp, self.store, index, source)

    def _readers(self) -> threading.Condition:
        """Return the condition on which tasks wait for output in progress; it is made for the first of them."""
        with _MAKING:
            moved = self._moved = self._moved or threading.Condition()
        return moved

    def _wake_readers(self) -> None:
        if self._moved is not None:  # a reader that has just come looks before it waits
            with self._moved:
                self._moved.notify_all()

    def _must_go_on(self, context: WorkerTaskContext) -> None:
        if context.lease.stop or self.job.outcome is not None:
            raise RunCancelledError(f"{context.vertex}[{context.index}] was stopped")


def _end_before(lease: WorkerLease, outcome: LeaseOutcome, why: str) -> None:
    """End a lease as if it had been stopped before its first task: its values are dropped."""
    outcome.values, outcome.counts = [], []
    outcome.hi, outcome.reached, outcome.kind = lease.lo, -1, Failure.STOPPED.value
    outcome.vertex, outcome.index, outcome.message = lease.root.vertex, lease.lo, why
