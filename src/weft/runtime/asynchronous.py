"""Runs in asyncio: waiting for the end without a thread, and the events of a run as an asynchronous iterator.

Threads of the session only schedule calls on the event loop. Imported when a program first asks for it, since asyncio
would cost more than the rest of a start.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from msgspec.structs import replace

from weft.engine.commands import Launch, Publish
from weft.engine.events import Done, Failed, Hit, Progress, TaskCancelRequested, WorkerLost
from weft.engine.machines.task import TaskState
from weft.engine.machines.vertex import ENDED, VertexState
from weft.model.errors import UsageError
from weft.model.failures import Failure
from weft.runtime.watching import EndedTasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from weft.engine.commands import Command
    from weft.engine.events import Event
    from weft.engine.inspector import VertexRow
    from weft.engine.ports import Clock
    from weft.runtime.job import JobRun

_FATAL: Final = int(TaskState.FATAL)
_BEGUN: Final = frozenset({VertexState.RUNNING, VertexState.DRAINING, *ENDED})


class RunEvent(NamedTuple):
    """Something that happened in a run, at `time` seconds since 1970 UTC, to tasks `lo:hi` of a vertex.

    | `kind` | meaning |
    |---|---|
    | `launched` | a worker was given the tasks |
    | `finished` | the tasks have succeeded; each task comes once |
    | `retried` | an attempt of the task failed with `message`, and the task runs again |
    | `failed` | the task has failed for good, with `message`; each task comes once |
    | `emitted` | the task emitted the event `message` with `payload`; of the past, the latest 1,000 come |
    | `vertex` | the vertex has the state `message` |
    | `ended` | the last event: the run has ended as `message`: succeeded, failed or cancelled |
    """

    time: float
    kind: str
    vertex: str = ""
    lo: int = 0
    hi: int = 0
    message: str = ""
    payload: Any = None


async def wait_for_end(when_done: Callable[[Callable[[], None]], None], cancel: Callable[[], None] | None) -> None:
    """Wait for the moment whose actions `when_done` takes. `cancel` is called if the awaiting task is cancelled."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def settle() -> None:
        if not ended.done():
            ended.set_result(None)

    def done() -> None:
        with suppress(RuntimeError):  # the event loop was closed
            loop.call_soon_threadsafe(settle)

    when_done(done)
    try:
        await ended
    except asyncio.CancelledError:
        if cancel is not None:
            cancel()
        raise


class EventStream:
    """The events of a run, for one reader: a listener of the loop, and an asynchronous iterator.

    The last event is the end; then the iteration ends. Events wait here until they are read.
    """

    def __init__(self, clock: Clock) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(
                "events are read in an event loop of asyncio, and none runs in this thread",
                hint="Call run.events() in a coroutine; in other programs use run.listen or run.as_completed.",
            ) from None
        self._clock = clock
        self._events: deque[RunEvent] = deque()
        self._news = asyncio.Event()
        self._scheduled = False
        self._over = False
        self._tasks: dict[str, EndedTasks] = {}
        self._leases: dict[int, Launch] = {}
        self._tick: list[RunEvent] = []

    # -------------------------------------------------------------------------------------------- its reader

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RunEvent:
        """Wait for the next event."""
        while not self._events:
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            if not self._events:
                await self._news.wait()
        event = self._events.popleft()
        self._over = event.kind == "ended"
        return event

    # ------------------------------------------------------------------------------------- threads of the session

    def begin(self, job: JobRun) -> None:
        """Report what has happened before; called between two ticks."""
        if job.built:
            self._published(job.inspector.published)
            self._catch_up(job)
            for row in job.inspector.vertices:
                self._moved(row)
            for lease in job.leases.values():
                self._launched(lease)
        self._send()

    def end(self, state: str) -> None:
        """Report the end of the run."""
        self._say("ended", message=state)
        self._send()

    def __call__(self, job: JobRun, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """Report what has happened in a tick."""
        self._published(command for command in commands if type(command) is Publish)
        for event in events:
            if isinstance(event, Done | Failed):
                lease = self._leases.pop(event.lease, None)
                if lease is not None:
                    self._look(job, lease, event)
                if isinstance(event, Failed) and event.kind is not Failure.STOPPED:
                    self._retried(job, event)
            elif isinstance(event, Progress):
                lease = self._leases.get(event.lease)
                if lease is not None:
                    self._look(job, replace(lease, hi=event.hi))
            elif isinstance(event, TaskCancelRequested):
                row = job.inspector.vertex(event.vertex)
                if row is not None and event.lo < row.n:
                    self._of(event.vertex).look(job, event.lo, min(event.hi, row.n))
            elif isinstance(event, Hit):
                self._of(event.vertex).look(job, event.index, event.index + 1)
            elif isinstance(event, WorkerLost):
                for lease in [lease for lease in self._leases.values() if lease.worker == event.worker]:
                    self._look(job, self._leases.pop(lease.lease))
        if job.outcome is not None:
            self._catch_up(job)
        for row in job.inspector.moved:
            self._moved(row)
        for command in commands:
            if type(command) is Launch:
                self._launched(command)
        self._send()

    def _launched(self, lease: Launch) -> None:
        self._leases[lease.lease] = lease
        for vertex, lo, hi in _spans(lease):
            self._say("launched", vertex, lo, hi)

    def _published(self, commands: Iterable[Publish]) -> None:
        for vertex, index, name, payload in commands:
            self._say("emitted", vertex, index, index + 1, name, payload)

    def _catch_up(self, job: JobRun) -> None:
        for row in job.inspector.vertices:
            if row.n > 0 and (row.finished or _FATAL in row.state):
                self._of(row.id).look_everywhere(job)

    def _moved(self, row: VertexRow) -> None:
        if row.status in _BEGUN:
            self._say("vertex", row.id, 0, max(row.n, 0), row.status.value)

    def _look(self, job: JobRun, lease: Launch, event: Done | Failed | None = None) -> None:
        for vertex, lo, hi in _spans(lease):
            row = job.inspector.vertex(vertex)
            if row is not None and lo < row.n:
                self._of(vertex).look(job, lo, min(hi, row.n), event)

    def _of(self, vertex: str) -> EndedTasks:
        tasks = self._tasks.get(vertex)
        if tasks is None:
            tasks = self._tasks[vertex] = EndedTasks(vertex, lambda lo, hi: self._ended(vertex, lo, hi))
        return tasks

    def _ended(self, vertex: str, lo: int, hi: int) -> None:
        """Report a range of ended tasks: ranges of finished ones, and each failed one."""
        failures = self._tasks[vertex].failures
        for index in sorted(index for index in failures if lo <= index < hi) if failures else ():
            if index > lo:
                self._say("finished", vertex, lo, index)
            self._say("failed", vertex, index, index + 1, failures[index].message)
            lo = index + 1
        if hi > lo:
            self._say("finished", vertex, lo, hi)

    def _retried(self, job: JobRun, event: Failed) -> None:
        row = job.inspector.vertex(event.vertex)
        if row is not None and event.index < row.n and row.state[event.index] != _FATAL:
            self._say("retried", event.vertex, event.index, event.index + 1, event.message)

    def _say(
        self, kind: str, vertex: str = "", lo: int = 0, hi: int = 0, message: str = "", payload: Any = None
    ) -> None:
        self._tick.append(RunEvent(self._clock.wall(), kind, vertex, lo, hi, message, payload))

    def _send(self) -> None:
        """Hand the events of a tick to the reader, and wake it."""
        if self._tick:
            self._events.extend(self._tick)
            self._tick = []
            if not self._scheduled:
                self._scheduled = True
                with suppress(RuntimeError):  # the event loop was closed
                    self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._scheduled = False
        self._news.set()


def _spans(lease: Launch) -> Iterator[tuple[str, int, int]]:
    """Yield the tasks of a lease, as a range for each vertex."""
    if lease.cone is None:
        yield lease.vertex, lease.lo, lease.hi
        return
    for member, mult in zip(lease.cone.members, lease.cone.mult, strict=True):
        yield member, lease.lo * mult, lease.hi * mult
