"""Test doubles of the master's shell. They pass the conformance suites that apply to the real parts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft.engine.events import Done, Event, Failed, GaveBack, TimerFired
from weft.engine.ports import ManualClock
from weft.engine.provider import FixedProvider, NodeSpec
from weft.engine.tuning import Tuning
from weft.model.failures import Failure

if TYPE_CHECKING:
    from weft.engine.commands import Command, Launch, LaunchEach, MarkEnded, Publish, Reply, Restart, Weigh
    from weft.engine.ports import Job, Shell
    from weft.engine.provider import Provider
    from weft.model.errors import WeftError

__all__ = ["ManualClock", "MemoryJournal", "RecordingExecutor"]


class MemoryJournal:
    """A journal in a list: `records` has (events, commands) of each tick."""

    def __init__(self) -> None:
        self.error: WeftError | None = None
        self.records: list[tuple[tuple[Event, ...], tuple[Command, ...]]] = []
        self.closed = False

    def append(self, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """See `Journal.append`; AssertionError if it is closed."""
        assert not self.closed, "a record was written to a closed journal"
        self.records.append((tuple(events), tuple(commands)))

    def close(self) -> None:
        """See `Journal.close`."""
        self.closed = True


class RecordingExecutor:
    """An executor that runs nothing and records all calls: `calls` has (method, job id, arguments...).

    With `answers`, every lease succeeds at its launch, and timers fire when they are set; without, the test posts the
    outcomes with `done` and `failed`. Leases begin behind commit barriers if it is `gated`.
    """

    name = "recording"
    clock = None

    def __init__(
        self, workers: int = 2, *, answers: bool = True, tuning: Tuning | None = None, gated: bool = False
    ) -> None:
        self.tuning = tuning or Tuning()
        self.gated = gated
        self.calls: list[tuple[Any, ...]] = []
        self.open: dict[tuple[str, int], Launch] = {}
        self._workers = workers
        self._answers = answers
        self._loop: Shell | None = None

    @property
    def loop(self) -> Shell:
        """The loop of the executor."""
        assert self._loop is not None
        return self._loop

    def done(self, job: str, lease: int, **fields: Any) -> None:
        """Report the success of a launched lease."""
        launch = self.open.pop((job, lease))
        self.loop.post(job, Done(self.loop.clock.now(), lease, launch.hi, **fields))

    def failed(self, job: str, lease: int, kind: Failure, message: str = "it failed") -> None:
        """Report the failure of the first task of a launched lease."""
        launch = self.open.pop((job, lease))
        now = self.loop.clock.now()
        self.loop.post(job, Failed(now, lease, launch.lo, launch.vertex, launch.lo, kind, message))

    @property
    def provider(self) -> Provider:
        """See `Executor.provider`."""
        return FixedProvider((NodeSpec(workers=tuple(range(self._workers))),))

    def attach(self, loop: Shell) -> None:
        """See `Executor.attach`."""
        self._loop = loop

    def open_job(self, job: Job) -> None:
        """See `Executor.open_job`."""
        self.calls.append(("open_job", job.id))

    def launch(self, job: Job, lease: Launch) -> None:
        """See `Executor.launch`."""
        self.calls.append(("launch", job.id, lease))
        if self._answers:
            self.loop.post_later(job.id, Done(self.loop.clock.now(), lease.lease, lease.hi))
        else:
            self.open[(job.id, lease.lease)] = lease

    def launch_each(self, job: Job, leases: LaunchEach) -> None:
        """See `Executor.launch_each`."""
        for lease in leases.each():
            self.launch(job, lease)

    def shrink(self, job: Job, lease: int) -> None:
        """See `Executor.shrink`."""
        self.calls.append(("shrink", job.id, lease))
        found = self.open.get((job.id, lease))
        if found is not None and found.hi - found.lo > 1:
            hi = (found.lo + found.hi + 1) // 2
            self.open[(job.id, lease)] = replace(found, hi=hi)
            self.loop.post_later(job.id, GaveBack(self.loop.clock.now(), lease, hi))

    def weigh(self, job: Job, weigh: Weigh) -> None:
        """See `Executor.weigh`."""
        self.calls.append(("weigh", job.id, weigh))

    def stop(self, job: Job, lease: int, reason: str) -> None:
        """See `Executor.stop`."""
        self.calls.append(("stop", job.id, lease, reason))
        found = self.open.pop((job.id, lease), None)
        if found is not None:
            now = self.loop.clock.now()
            self.loop.post_later(
                job.id, Failed(now, lease, found.lo, found.vertex, found.lo, Failure.STOPPED, "cancelled")
            )

    def free(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """See `Executor.free`."""
        self.calls.append(("free", job.id, vertex, lo, hi))

    def free_parts(self, job: Job, vertex: str, parts: Sequence[int]) -> None:
        """See `Executor.free_parts`."""
        self.calls.append(("free_parts", job.id, vertex, parts))

    def publish(self, job: Job, event: Publish) -> None:
        """See `Executor.publish`."""
        self.calls.append(("publish", job.id, event))

    def restart(self, job: Job, command: Restart) -> None:
        """See `Executor.restart`."""
        self.calls.append(("restart", job.id, command))

    def mark_ended(self, job: Job, command: MarkEnded) -> None:
        """See `Executor.mark_ended`."""
        self.calls.append(("mark_ended", job.id, command))

    def waiting(self) -> AbstractContextManager[None]:
        """See `Executor.waiting`."""
        return nullcontext()

    def hurry(self) -> None:
        """See `Executor.hurry`."""
        self.calls.append(("hurry",))

    def reply(self, job: Job, reply: Reply) -> None:
        """See `Executor.reply`."""
        self.calls.append(("reply", job.id, reply))

    def restore(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """See `Executor.restore`."""
        self.calls.append(("restore", job.id, vertex, lo, hi))

    def set_timer(self, job: Job, at: float, timer: int) -> None:
        """See `Executor.set_timer`."""
        self.calls.append(("set_timer", job.id, at, timer))
        if self._answers:
            self.loop.post_later(job.id, TimerFired(at, timer))

    def configured(self, job: Job, vertex: str, n: int) -> None:
        """See `Executor.configured`."""
        self.calls.append(("configured", job.id, vertex, n))

    def retire_job(self, job: Job) -> None:
        """See `Executor.retire_job`."""
        self.calls.append(("retire_job", job.id))

    def close_job(self, job: Job) -> None:
        """See `Executor.close_job`."""
        self.calls.append(("close_job", job.id))

    def close(self) -> None:
        """See `Executor.close`."""
        self.calls.append(("close", ""))
