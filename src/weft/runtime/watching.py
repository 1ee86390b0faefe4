"""The tasks of one vertex as they end: a listener of the loop that reports ranges, without an object for each task."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from weft.engine.commands import Complete, Launch
from weft.engine.events import Done, Failed, Hit, Progress, TaskCancelRequested, WorkerLost
from weft.engine.machines.task import TaskState
from weft.engine.notes import NoteKind
from weft.model.errors import RunCancelledError, TaskError
from weft.model.failures import OF_TIMEOUTS, TIMED_OUT, Failure, error_of
from weft.model.ids import task_name
from weft.model.patterns import late_pattern
from weft.worker.origins import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.engine.commands import Command
    from weft.engine.events import Event
    from weft.model.errors import WeftError
    from weft.runtime.job import JobRun

_FINISHED: Final = int(TaskState.FINISHED)
_FATAL: Final = int(TaskState.FATAL)
_FREED: Final = bytes([TaskState.FREED])
_MADE: Final = bytes([TaskState.FINISHED])
_ALL_MADE: Final = late_pattern(re.escape(_MADE) + b"+")


class TaskFailure(Struct, frozen=True):
    """The reason why a task has failed for good; `kind` is the value of a `Failure`."""

    kind: str
    message: str
    traceback: str = ""
    raised: str = ""

    @classmethod
    def of(cls, end: Complete) -> TaskFailure:
        """Return the reason of the end of a job."""
        return cls(end.kind, end.message, end.traceback, end.raised)

    def error(self, task: str, about: str = "", hint: str = "", origin: Any = None) -> WeftError:
        """Return the error of a task; `about` says more about the task, `origin` what its exception was."""
        kind = error_of(self.kind)
        if kind is RunCancelledError:
            return kind(f"{task} was cancelled{about}: {self.message}", hint=hint)
        text = f"{task} failed{about}: {self.message}"
        if issubclass(kind, TaskError):
            known = unpacked(origin) if origin is not None and self.raised else None
            return kind(text, task=task, traceback_text=self.traceback, raised=self.raised, origin=known, hint=hint)
        return kind(text, hint=hint)


class EndedTasks:
    """A listener that calls `tell(lo, hi)` for tasks `lo:hi` of a vertex that have ended, each task once.

    `tell` is called under the lock of the loop. `finished(i)` and `failures` tell how task i has ended. Tasks that were
    cancelled or skipped are not told, and none after `stop`.
    """

    def __init__(self, vertex: str, tell: Callable[[int, int], None]) -> None:
        self.vertex = vertex
        self.failures: dict[int, TaskFailure] = {}
        self._tell = tell
        self._stopped = False
        self._told = bytearray()
        self._leases: dict[int, tuple[int, int, int]] = {}

    def begin(self, job: JobRun) -> None:
        """Report what has ended before; called between two ticks of a job that goes on."""
        if job.built:  # else nothing of it has begun
            for lease in job.leases.values():
                self._launched(lease)
            self.look_everywhere(job)

    def stop(self) -> None:
        """Report no more; safe in a finalizer."""
        self._stopped = True

    def finished(self, index: int) -> bool:
        """Return whether a task has finished with a value."""
        return index < len(self._told) and self._told[index] == _FINISHED

    def reach(self, lo: int, hi: int) -> int:
        """Return the end of the finished tasks from `lo` on, at most `hi`."""
        found = _ALL_MADE.match(self._told, lo, hi)
        return lo if found is None else found.end()

    def ended(self, index: int) -> bool:
        """Return whether the end of a task was told."""
        return index < len(self._told) and self._told[index] != 0

    def again(self, job: JobRun, index: int) -> None:
        """Report a task once more, now or when it has made its lost value again; called between two ticks."""
        self._told[index] = 0
        self.look(job, index, index + 1)

    def __call__(self, job: JobRun, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """Report what has ended in a tick."""
        if self._stopped:
            return
        leases = self._leases
        for event in events:
            if isinstance(event, Done | Failed):
                lease = leases.pop(event.lease, None)
                if lease is not None:
                    self.look(job, lease[0], lease[1], event)
            elif isinstance(event, Progress):
                lease = leases.get(event.lease)
                if lease is not None:
                    self.look(job, lease[0], event.hi)
                    leases[event.lease] = (max(lease[0], event.hi), *lease[1:])
            elif isinstance(event, TaskCancelRequested):
                row = job.inspector.vertex(self.vertex)
                if event.vertex == self.vertex and row is not None and event.lo < row.n:
                    self.look(job, event.lo, min(event.hi, row.n))
            elif isinstance(event, Hit):
                if event.vertex == self.vertex:
                    self.look(job, event.index, event.index + 1)
            elif isinstance(event, WorkerLost):
                for number, (lo, hi, worker) in list(leases.items()):
                    if worker == event.worker:
                        del leases[number]
                        self.look(job, lo, hi)
        for command in commands:
            if type(command) is Launch:
                self._launched(command)
            elif type(command) is Complete:
                self.look_everywhere(job)

    def _launched(self, lease: Launch) -> None:
        if lease.vertex == self.vertex:
            self._leases[lease.lease] = lease.lo, lease.hi, lease.worker

    def look_everywhere(self, job: JobRun) -> None:
        """Report all tasks that have ended and were not told."""
        row = job.inspector.vertex(self.vertex)
        if row is not None and row.n > 0:
            self.look(job, 0, row.n)

    def look(self, job: JobRun, lo: int, hi: int, event: Done | Failed | None = None) -> None:
        """Report tasks of `lo:hi` that have ended and were not told."""
        row = job.inspector.vertex(self.vertex)
        if row is None or row.n < 0:
            return
        told = self._told
        if len(told) < row.n:
            told.extend(bytes(row.n - len(told)))
        states = bytes(row.state[lo:hi]).replace(_FREED, _MADE)
        if states.count(_FINISHED) == hi - lo and told.count(0, lo, hi) == hi - lo:
            told[lo:hi] = states
            self._tell(lo, hi)
            return
        begin = -1
        for index, state in enumerate(states, lo):
            if not told[index] and state in (_FINISHED, _FATAL):
                told[index] = state
                if state == _FATAL:
                    self.failures[index] = self._failure(job, index, event)
                if begin < 0:
                    begin = index
            elif begin >= 0:
                self._tell(begin, index)
                begin = -1
        if begin >= 0:
            self._tell(begin, hi)

    def _failure(self, job: JobRun, index: int, event: Done | Failed | None) -> TaskFailure:
        traceback = raised = ""
        if isinstance(event, Failed) and (event.vertex, event.index) == (self.vertex, index):
            traceback, raised = event.traceback, event.raised
            if event.kind is Failure.USER:
                return TaskFailure(event.kind.value, event.message, traceback, raised)
        task = task_name(self.vertex, index)
        for note in reversed(job.inspector.notes(task)):
            if note.kind is NoteKind.FAILED and note.subject == task:
                kind, message = note.values
                if message.startswith(TIMED_OUT):  # the worker told only that it was stopped
                    return TaskFailure(kind, message, raised=OF_TIMEOUTS)
                return TaskFailure(kind, message, traceback, raised)
        return TaskFailure(Failure.USER.value, "it cannot run, since an input has failed")
