"""The time that counts for `x-weft.timeout_s` of a training step: that in which its jobs have their places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.frontends.training.compiler import POD, groups_of
from weft.model.failures import TIMED_OUT
from weft.runs.records import Record

if TYPE_CHECKING:
    from weft.engine.ports import Clock
    from weft.frontends.training.schema import JobFile


class PlacedTime:
    """The time in which jobs have their places.

    It passes from the first start of a replica of a job until the job is suspended, or has ended and no replica of it
    runs. Control vertices count, since they run trials; plain pods do not.
    """

    def __init__(self, files: JobFile, clock: Clock) -> None:
        self._clock = clock
        self._jobs = {group.vertex: group.job.name for group in groups_of(files) if group.job.kind != POD}
        self._pods = {group.vertex for group in groups_of(files) if group.job.kind == POD}
        self._ends = {
            f"{job.kind} {job.name} {word}": (job.name, word == "suspended")
            for job in files.jobs
            for word in ("suspended", "succeeded", "complete", "failed")
        }
        self._running: dict[str, set[tuple[str, int | None]]] = {}
        self._placed: set[str] = set()
        self._over: set[str] = set()
        self._begun = clock.now()
        self._since: float | None = None
        self._passed = 0.0

    def take(self, event: object) -> None:
        """Take the next event of their run."""
        if not isinstance(event, Record):
            return
        if event.step and event.step not in self._pods:
            self._replica(self._jobs.get(event.step, event.step), event)
        elif not event.step and not event.state:
            for beginning, (job, suspended) in self._ends.items():
                if event.message == beginning or event.message.startswith(f"{beginning}: "):
                    self._end(job, suspended=suspended)
        if self._placed and self._since is None:
            self._since = self._clock.now()
        elif not self._placed and self._since is not None:
            self._passed += self._clock.now() - self._since
            self._since = None

    def _replica(self, job: str, event: Record) -> None:
        running, replica = self._running.setdefault(job, set()), (event.step, event.index)
        if event.state == "running":
            running.add(replica)
            self._placed.add(job)
        elif event.state:
            running.discard(replica)
            if not running and (job in self._over or job not in self._jobs.values()):
                self._placed.discard(job)

    def _end(self, job: str, *, suspended: bool) -> None:
        if not suspended:
            self._over.add(job)
        if suspended or not self._running.get(job):
            self._placed.discard(job)

    @property
    def seconds(self) -> float:
        """How long they have had their places."""
        return self._passed + (0.0 if self._since is None else self._clock.now() - self._since)

    def left(self, limit: float | None) -> float | None:
        """Return the seconds that are left of a limit; None while none of it passes."""
        return None if limit is None or self._since is None else max(0.0, limit - self.seconds)

    def too_long(self, limit: float) -> str:
        """Return that they took longer than a limit, and how long they waited beside."""
        waited = self._clock.now() - self._begun - self.seconds
        beside = f"; the {waited:.0f} s in which its jobs waited for their places do not count" if waited >= 1 else ""
        return f"{TIMED_OUT} {limit:g} s{beside}"
