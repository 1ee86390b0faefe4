"""The schedules of a state folder: create, list, show, stop, delete."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from weft.admin.cron import parse, zone_of
from weft.admin.scheduling import POLICIES, stop_schedule
from weft.model.errors import ConflictError, UsageError
from weft.runs.listing import outcome_of
from weft.store.schedules import ENDED, RUNNING, SCHEDULES_NAME, Schedules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.runtime.clock import WallClock
    from weft.store.schedules import Firing, PipelineSchedule
    from weft.store.state import StateRoot

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{1,49}")


class ScheduleService:
    """The use cases of schedules. A context manager, or call `close`. NotFoundError: no schedule has the name."""

    def __init__(self, state: StateRoot, clock: WallClock) -> None:
        self._state, self._clock = state, clock
        self.database = Schedules(state.path / SCHEDULES_NAME)

    def create(self, schedule: PipelineSchedule) -> tuple[PipelineSchedule, float]:
        """Add a schedule; return it, and its first due time in seconds since 1970.

        UsageError: its name, times, policy or concurrency is invalid. ConflictError: the name is taken.
        """
        if not _NAME.fullmatch(schedule.name):
            hint = "Name it with -n: 2 to 50 letters, digits and _, beginning with a letter or _."
            raise UsageError(f"{schedule.name[:60]!r} cannot name a schedule", hint=hint)
        if schedule.policy not in POLICIES:
            raise UsageError(f"--policy is {schedule.policy[:40]!r}", hint=f"There are: {', '.join(POLICIES)}")
        if schedule.concurrency < 0:
            raise UsageError(f"--concurrency is {schedule.concurrency}; it must be 0 or more")
        now, begin = self._clock.wall(), schedule.start_at
        schedule = replace(schedule, created_at=now, seen=now if begin is None else begin - 0.5)
        first = next(parse(schedule.cron, schedule.zone).since(schedule.seen))
        if schedule.end_at is not None and first > schedule.end_at:
            zone = zone_of(schedule.cron, schedule.zone)
            when = datetime.fromtimestamp(first, zone).strftime("%Y-%m-%d %H:%M:%S %Z")
            raise UsageError(f"it would never run: its first time, {when}, comes after its end")
        self._state.prepare()
        self.database.add(schedule)
        return schedule, first

    def list_schedules(self) -> list[tuple[PipelineSchedule, Firing | None]]:
        """Return all schedules, each with its last due time."""
        return [(one, next(iter(self._firings(one.name, 1)), None)) for one in self.database.all()]

    def show(self, name: str, number: int = 20) -> tuple[PipelineSchedule, Sequence[Firing]]:
        """Return a schedule, and its last due times: at most `number`, 0 for all."""
        return self.database.find(name), self._firings(name, number or None)

    def _firings(self, name: str, limit: int | None) -> list[Firing]:
        """Return the last due times of a schedule as their runs are now: a scheduler may not have seen an end yet."""
        return [self._as_it_is(one) if one.run else one for one in self.database.firings(name, limit=limit)]

    def _as_it_is(self, one: Firing) -> Firing:
        if one.state == ENDED and not self._state.folder(one.run).exists():  # its message outlives the run
            return one
        outcome = outcome_of(self._state, one.run)
        return replace(one, state=ENDED, message=outcome) if outcome else one

    def coming(self, schedule: PipelineSchedule, count: int) -> list[float]:
        """Return the next due times of a schedule, in seconds since 1970; [] if it has ended."""
        if schedule.state != RUNNING:
            return []
        times = islice(parse(schedule.cron, schedule.zone).after(self._clock.wall(), schedule.seen), count)
        return [time for time in times if schedule.end_at is None or time <= schedule.end_at]

    def stop(self, name: str) -> None:
        """Stop a schedule for ever; its runs continue. ConflictError: it has ended already."""
        stop_schedule(self.database, name, self._clock.wall())

    def delete(self, name: str) -> None:
        """Delete an ended schedule; its runs stay. ConflictError: it has not ended."""
        if self.database.find(name).state == RUNNING:
            raise ConflictError(f"{name} is still running", hint=f"Stop it first: weft schedule stop {name}")
        self.database.remove(name)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def __enter__(self) -> ScheduleService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
