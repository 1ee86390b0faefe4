"""The fate of the due times of schedules: a pure rule, and a scheduler that applies it.

A due time is first seen, then waits for room, starts a run, or is skipped. Each step is in the database before a run
starts, so that a restarted scheduler continues, and no time starts two runs: a start has an epoch, and only the process
that was started last may take its time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from weft.admin.cron import parse
from weft.model.errors import ConflictError, WeftError
from weft.store.schedules import (
    ENDED,
    OPEN,
    RUNNING,
    SKIPPED,
    STARTED,
    STARTING,
    STOPPING,
    SUCCEEDED,
    TERMINATED,
    WAITING,
    Firing,
    PipelineSchedule,
    Schedules,
)

if TYPE_CHECKING:
    from weft.admin.cron import Times
    from weft.runtime.clock import WallClock

POLICIES: Final = ("suspend", "replace", "skip")
"""The policies at the concurrency limit: the time waits; the oldest run is stopped; the time is skipped."""
LATE_S: Final = 60.0
"""The delay in seconds after which a due time counts as passed without a scheduler."""
MOST: Final = 1_000
"""The maximum number of due times of a schedule in one pass."""
LOOK_S: Final = 1.0
"""The maximum sleep of a scheduler in seconds: other processes make and stop schedules."""


class UnstartedRun(Struct, frozen=True):
    """The answer of a process that has ended before its run began: its error, which begins with the code."""

    message: str


class Rule(Struct):
    """The next actions: times that are `skipped` (with reasons), times to `start`, and runs to `stop`.

    All due times up to `seen` are known; `more` is whether further ones are left to process.
    """

    seen: float
    new: list[Firing] = field(default_factory=list)
    skipped: list[Firing] = field(default_factory=list)
    start: list[Firing] = field(default_factory=list)
    stop: list[Firing] = field(default_factory=list)
    more: bool = False
    over: bool = False


def rule(schedule: PipelineSchedule, times: Times, known: Sequence[Firing], now: float) -> Rule:
    """Decide about a schedule: `known` are its open due times, and `now` is in seconds since 1970. Nothing is changed.

    A clock that was set back makes no time due again.
    """
    found = Rule(schedule.seen)
    _look(schedule, times, now, found)
    active = sorted((one for one in known if one.state != WAITING), key=lambda one: one.due)
    waiting = sorted([*(one for one in known if one.state == WAITING), *found.new], key=lambda one: one.due)
    if schedule.expire_s > 0:
        late = [one for one in waiting if one.due + schedule.expire_s < now]
        found.skipped += [_skip(one, now, f"could not begin within {schedule.expire_s:g} s") for one in late]
        waiting = [one for one in waiting if one.due + schedule.expire_s >= now]
    room = schedule.concurrency - len(active) if schedule.concurrency else len(waiting)
    if schedule.policy == "replace" and schedule.concurrency:
        gone, waiting = waiting[: -schedule.concurrency], waiting[-schedule.concurrency :]
        found.skipped += [_skip(one, now, "a later time took its place") for one in gone]
        leaving = sum(one.state == STOPPING for one in active)
        others = [one for one in active if one.state == STARTED]
        found.stop = others[: max(0, len(waiting) - room - leaving)]
    if schedule.policy == "skip":
        busy = len(active) + len(waiting[: max(0, room)])
        why = "1 run went on" if busy == 1 else f"{busy} runs went on"
        found.skipped += [_skip(one, now, why) for one in waiting[max(0, room) :]]
    found.start = waiting[: max(0, room)]
    last = not found.more and (schedule.end_at is not None and now >= schedule.end_at)
    found.over = last and not waiting and not active
    return found


def _look(schedule: PipelineSchedule, times: Times, now: float, found: Rule) -> None:
    """Find the due times since the last pass."""
    end = now if schedule.end_at is None else min(now, schedule.end_at)
    first = next(times.since(found.seen), end)
    if not schedule.catchup and first < min(now - LATE_S, end):
        lost = Firing(schedule=schedule.name, due=first)
        found.skipped.append(_skip(lost, now, "it passed while no scheduler ran, as did all times until now"))
        found.seen = min(now - LATE_S, end)
    for due in times.since(found.seen):
        if due > end:
            break
        if len(found.new) == MOST:
            found.more = True
            break
        found.new.append(Firing(schedule=schedule.name, due=due, at=now))
        found.seen = due


def _skip(one: Firing, now: float, why: str) -> Firing:
    return replace(one, state=SKIPPED, at=now, message=why)


# ----------------------------------------------------------------------------------------------------------- scheduler


def stop_schedule(schedules: Schedules, name: str, now: float) -> None:
    """Stop a schedule: waiting times are skipped, its runs continue. ConflictError: it has ended already."""
    found = schedules.find(name)
    if found.state != RUNNING:
        raise ConflictError(f"{name} has ended already: {found.state}", hint=f"See: weft schedule show {name}")
    idle = [_skip(one, now, _STOPPED) for one in schedules.firings(name, states=[WAITING, STARTING])]
    schedules.put(name, idle, state=TERMINATED)


_STOPPED: Final = "the schedule was stopped"


class Launcher(Protocol):
    """Starts and stops runs for a scheduler."""

    def start(
        self, due: Iterable[tuple[PipelineSchedule, Firing]]
    ) -> Generator[tuple[PipelineSchedule, Firing, str | UnstartedRun | WeftError]]:
        """Start runs for due times, several at a time; yield each with the id of its run when that has begun, or with
        the error.

        A time is taken from `due` when its run starts. Starts that were not yielded end when the generator is closed.
        """
        ...

    def outcome(self, run: str) -> str:
        """Return how a run ended, with its reason; "" while it goes on."""
        ...

    def stop(self, run: str) -> None:
        """Request a run to end. WeftError: it has ended already."""
        ...


class _Stretch(Struct):
    """Consecutive times that were skipped for one reason; `reported` of them were reported."""

    first: Firing
    count: int = 1
    reported: int = 0

    @property
    def message(self) -> str:
        return f"{self.first.message} ({self.count} times in a row)" if self.count > 1 else self.first.message


class Scheduler:
    """Applies the rule to all schedules, one `tick` after the other. Only one process at a time may have one.

    `say` is called with messages for the user. Nothing begins after `ending` is true.
    """

    def __init__(
        self,
        schedules: Schedules,
        launcher: Launcher,
        clock: WallClock,
        say: Callable[[str], None] = lambda _: None,
        ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self._schedules, self._launcher, self._clock, self._say = schedules, launcher, clock, say
        self._ending = ending
        self._stretches: dict[str, _Stretch] = {}
        self._reported: set[str] = set()
        for schedule in schedules.all():  # a scheduler was killed while it started these
            lost = schedules.firings(schedule.name, states=[STARTING])
            if lost:
                schedules.put(schedule.name, [replace(one, state=WAITING) for one in lost])

    def tick(self) -> float:
        """Apply the rule; return the seconds until the next tick."""
        wait = LOOK_S
        start: list[tuple[PipelineSchedule, Firing]] = []
        for schedule in self._schedules.all():
            try:
                if self._one(schedule, start):
                    wait = 0.0
                self._reported.discard(schedule.name)
            except WeftError as error:
                if schedule.name not in self._reported:
                    self._reported.add(schedule.name)
                    self._say(f"{schedule.name}: {error.message}")
        if start:
            self._start(start)
        return wait

    def _one(self, schedule: PipelineSchedule, starts: list[tuple[PipelineSchedule, Firing]]) -> bool:
        """Apply the rule to one schedule and add the runs to start; return whether it has more work at once."""
        name, now = schedule.name, self._clock.wall()
        known = [self._look(one) for one in self._schedules.firings(name, states=OPEN)]
        if schedule.state != RUNNING:  # its runs continue, nothing else begins
            idle = [_skip(one, now, _STOPPED) for one in known if one.state == WAITING]
            over = [one for one in known if one.state == ENDED]
            if idle or over:
                self._schedules.put(name, [*idle, *over])
            return False
        busy = [one for one in known if one.state in OPEN]
        found = rule(schedule, parse(schedule.cron, schedule.zone), busy, now)
        stop = [replace(one, state=STOPPING, at=now) for one in found.stop]
        start = [replace(one, state=STARTING, epoch=one.epoch + 1, at=now) for one in found.start]
        if start:
            self._end_stretch(name)
        skipped = self._summed_up(name, found.skipped, now)
        if start and all(one.due < start[-1].due for one in found.skipped):
            self._end_stretch(name)
        summed = {one.due for one in found.skipped} - {one.due for one in skipped}
        written = {
            one.due: one
            for one in (*found.new, *(one for one in known if one.state == ENDED), *skipped, *stop, *start)
            if one.due not in summed
        }
        state = SUCCEEDED if found.over else ""
        if written or summed or found.seen != schedule.seen or state:
            self._schedules.put(name, list(written.values()), summed, seen=found.seen, state=state)
        for one in stop:
            self._say(f"{name}: {one.run} gives way")
        starts += [(schedule, one) for one in start]
        for one in known:
            if one.state == STOPPING or one.due in {gone.due for gone in stop}:
                self._stop(one)
        return found.more

    def _summed_up(self, name: str, skipped: Sequence[Firing], now: float) -> list[Firing]:
        """Return the rows for skipped times: of consecutive ones with one reason, only the first."""
        found: dict[float, Firing] = {}
        for one in sorted(skipped, key=lambda one: one.due):
            stretch = self._stretches.get(name)
            if stretch is not None and stretch.first.message == one.message:
                stretch.count += 1
            else:
                self._end_stretch(name)
                stretch = self._stretches[name] = _Stretch(one)
            found[stretch.first.due] = replace(stretch.first, at=now, message=stretch.message)
        last = self._stretches.get(name)
        if last is not None and not last.reported:
            self._tell_skipped(name, last)
        return list(found.values())

    def _end_stretch(self, name: str) -> None:
        """Report the number of consecutive skipped times when another event ends them."""
        stretch = self._stretches.pop(name, None)
        if stretch is not None and stretch.reported < stretch.count:
            self._tell_skipped(name, stretch)

    def _tell_skipped(self, name: str, stretch: _Stretch) -> None:
        stretch.reported = stretch.count
        self._say(f"{name}: skipped: {stretch.message}")

    def _look(self, one: Firing) -> Firing:
        if one.run and (outcome := self._launcher.outcome(one.run)):
            return replace(one, state=ENDED, at=self._clock.wall(), message=outcome)
        return one

    def _start(self, starts: Sequence[tuple[PipelineSchedule, Firing]]) -> None:
        """Start runs. Those that have not begun when an end is requested wait for the next scheduler."""
        left = {(one.schedule, one.due): one for _, one in starts}

        def due() -> Iterator[tuple[PipelineSchedule, Firing]]:
            for schedule, one in starts:
                if self._ending():
                    return
                yield schedule, one

        try:
            with closing(self._launcher.start(due())) as starting:
                for schedule, one, found in starting:
                    del left[one.schedule, one.due]
                    self._started(schedule, one, found)
        except KeyboardInterrupt:
            self._wait_again(left.values())
            raise
        self._wait_again(left.values())

    def _started(self, schedule: PipelineSchedule, one: Firing, found: str | UnstartedRun | WeftError) -> None:
        if isinstance(found, str):
            self._say(f"{schedule.name}: {found} has begun")
            return
        message = (found.message if isinstance(found, UnstartedRun) else f"{found.code}: {found.message}")[:1000]
        self._schedules.fail(one, message, self._clock.wall())
        self._say(f"{schedule.name}: no run could be started: {message}")

    def _wait_again(self, left: Iterable[Firing]) -> None:
        for one in left:
            self._schedules.wait_again(one)

    def _stop(self, one: Firing) -> None:
        try:
            self._launcher.stop(one.run)
        except WeftError:  # the run has ended meanwhile, or was requested before
            return
