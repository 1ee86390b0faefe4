"""The simulator: a virtual clock, workers with speeds and faults, a seed. The engine cannot tell it from other
backends.

Every random number comes from one generator seeded by `Faults.seed`, so that the seed repeats a run exactly. Values are
not computed: a task is a duration (`seconds`) and a size (`nbytes`). Losses of workers, of messages and of outputs
happen at random moments; a lost worker may be replaced.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from weft.backends.simulated_nodes import ElasticProvider, fixed_nodes
from weft.engine.events import (
    Done,
    DoneEach,
    Failed,
    GaveBack,
    OutputLost,
    Started,
    TimerFired,
    Weighed,
)
from weft.engine.ports import ManualClock, WorkerSpec
from weft.engine.provider import FixedProvider
from weft.engine.tuning import Tuning
from weft.model.failures import Failure
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.backends.simulated_nodes import Elastic
    from weft.engine.commands import Launch, LaunchEach, MarkEnded, Publish, Reply, Restart, Weigh
    from weft.engine.ports import Job, Shell
    from weft.engine.provider import Provider
    from weft.model.resources import Resources


class Faults(Struct):
    """The probabilities of faults, each for one lease, and the seed of all randomness.

    `give_back`: a worker returns part of a lease. `duplicate`: a report arrives twice. `started`: a lease reports its
    begin. `output_lost`: one finished output is lost after a lease.
    """

    seed: int = 0
    worker_lost: float = 0.0
    node_lost: float = 0.0
    user: float = 0.0
    memory: float = 0.0
    infrastructure: float = 0.0
    output_lost: float = 0.0
    duplicate: float = 0.0
    started: float = 0.0
    give_back: float = 0.0
    most: int = 1_000_000


class _Running:
    __slots__ = ("gone", "hi", "job", "launch", "seconds")

    def __init__(self, job: Job, launch: Launch, hi: int, seconds: float) -> None:
        self.job = job
        self.launch = launch
        self.hi = hi
        self.gone = False
        self.seconds = seconds


_Entry = tuple[float, Any, "Job | None", float, int, int]
"""The moment, the subject (a call, a `_Running`, or among many the number of a lease with one task, else its `Launch`),
and of a lease among many its job, its seconds, its task (-1 if it has several) and its worker."""


def _alike_until(jobs: Sequence[Job | None], tasks: Sequence[int], lo: int) -> int:
    """Return the end of the entries from `lo` on that are leases of one task each, of the same job."""
    hi = len(tasks)
    with suppress(ValueError):
        hi = tasks.index(-1, lo)
    if jobs.count(jobs[lo]) < len(jobs):
        hi = next((at for at in range(lo, hi) if jobs[at] is not jobs[lo]), hi)
    return hi


class _Race:
    """Leases of the same tasks: units below `done` are stored, those from `hi` on given back; `winner` has ended."""

    __slots__ = ("done", "hi", "winner")

    def __init__(self, launch: Launch) -> None:
        self.done = launch.lo
        self.hi = launch.hi
        self.winner = 0


class Simulator:
    """An executor whose time is a heap of events.

    `seconds(vertex, index)` and `nbytes(vertex, index)` describe tasks. `speeds[w]` divides the seconds of worker w.
    `bad[w]` is the probability that a lease fails there by the infrastructure. A task with `deadly(vertex, index)`
    crashes its worker. `value(vertex, index)` returns the answers of expanders. `capacity` is that of every node, or
    one for each. Reports within the same `tick_s` seconds share one tick, as with a busy master; with 0 each has its
    own. `track` counts the held outputs (`held_most`). `elastic` makes nodes come and go. A launch and a report take
    `latency_s` seconds each.
    """

    gated = False
    name = "simulator"

    def __init__(
        self,
        workers: int = 4,
        *,
        nodes: int = 1,
        seconds: Callable[[str, int], float] | float = 1.0,
        nbytes: Callable[[str, int], int] | int = 0,
        value: Callable[[str, int], Any] | None = None,
        speeds: Sequence[float] | None = None,
        faults: Faults | None = None,
        bad: Mapping[int, float] | None = None,
        deadly: Callable[[str, int], bool] | None = None,
        tuning: Tuning | None = None,
        capacity: Resources | Sequence[Resources] | None = None,
        check: Callable[[Job], None] | None = None,
        tick_s: float = 0.0,
        track: bool = True,
        elastic: Elastic | None = None,
        latency_s: float = 0.0,
    ) -> None:
        self.clock = ManualClock()
        self.tuning = tuning or Tuning(target_s=0.5, shared_memory=nodes == 1)
        self.faults = faults or Faults()
        self._faulty = (
            bool(bad)
            or deadly is not None
            or any(value for name, value in as_dict(self.faults).items() if name not in ("seed", "most"))
        )
        self.random = random.Random(self.faults.seed)
        self._seconds = seconds if callable(seconds) else (lambda _v, _i, each=seconds: each)
        self._each = None if callable(seconds) else seconds
        self._nbytes = nbytes if callable(nbytes) else (lambda _v, _i, each=nbytes: each)
        self._size = None if callable(nbytes) else nbytes
        self._value = value
        self._usual = not (self._faulty or self.tuning.backups)  # every lease ends as planned
        as_here = type(self)._done is Simulator._done and type(self).launch is Simulator.launch
        plainly = as_here and self._size is not None and value is None and not track
        self._many = self._usual and plainly and tick_s > 0 and check is None  # leases need no record
        self._speeds = speeds
        self._alike = speeds is None and type(self)._duration is Simulator._duration  # equal times on all workers
        self._failing = bad or {}
        self._deadly = deadly
        self._specs = [WorkerSpec(w, w * nodes // workers, f"node{w * nodes // workers}") for w in range(workers)]
        self._next_worker = workers
        self._capacity = capacity
        there = fixed_nodes(self._specs, capacity)
        self.elastic = ElasticProvider(self, there, elastic) if elastic is not None else None
        self._moments: list[float] = []
        self._agenda: dict[float, list[_Entry]] = {}
        self._loop: Shell | None = None
        self._races: dict[tuple[str, int], _Race] = {}
        self._check = check
        self._tick_s = tick_s
        self._round_trip = 2 * latency_s
        self._track = track
        self.held: dict[tuple[str, str], set[int]] = {}
        self.held_now = 0
        self.held_most = 0
        self.leases = 0
        self.faults_made = 0

    # ----------------------------------------------------------------------------------------------- executor

    @property
    def provider(self) -> Provider:
        """See `Executor.provider`."""
        return self.elastic or FixedProvider(fixed_nodes(self._specs, self._capacity))

    @property
    def shell(self) -> Shell:
        """The loop of the simulator."""
        assert self._loop is not None
        return self._loop

    def workers(self) -> Sequence[WorkerSpec]:
        """Return the present workers."""
        return self._specs

    def hire(self, node: int, name: str, party: str) -> int:
        """Return a new worker of a node that is about to join."""
        return self._another(WorkerSpec(-1, node, name, party)).worker

    def holds_outputs(self, node: int) -> bool:
        """Whether outputs of a job that has not ended lie on a node."""
        return any(
            stage.node_of is not None and any(stage.node_of[i] == node for i in self.held.get((job.id, stage.id), ()))
            for job in self.shell.jobs.values()
            for stage in job.inspector.vertices
        )

    def dismiss(self, node: int) -> None:
        """Remove a node with its workers and outputs."""
        for spec in [spec for spec in self._specs if spec.node == node]:
            self._specs.remove(spec)
            self._bury(spec.worker)
        self._forget_node(node)

    def attach(self, loop: Shell) -> None:
        """See `Executor.attach`."""
        self._loop = loop

    def open_job(self, job: Job) -> None:
        """See `Executor.open_job`."""
        job.backend = {}
        if self.elastic is not None:
            self.elastic.watch()

    def launch(self, job: Job, lease: Launch) -> None:
        """Plan the end of a lease, or its failure."""
        self.leases += 1
        vertex, lo, hi = lease.vertex, lease.lo, lease.hi
        if lease.cone is None and hi - lo == 1 and self._alike:
            seconds = self._seconds(vertex, lo)
        else:
            seconds = self._duration(lease, lo, hi)
        when = self.clock.time + seconds + self._round_trip
        if self._many:
            alone = lease.cone is None and hi - lo == 1
            self._plan(when, lease.lease if alone else lease, job, seconds, lo if alone else -1, lease.worker)
            return
        run = job.backend[lease.lease] = _Running(job, lease, hi, seconds)
        if self._usual:
            self._plan(when, run)
            return
        if self.tuning.backups:
            self._race(job, lease)
        if self._faulty and self.faults_made < self.faults.most and self._plan_faults(run, seconds):
            return
        self._plan(self.clock.time + seconds + self._round_trip, run)

    def launch_each(self, job: Job, leases: LaunchEach) -> None:
        """See `Executor.launch_each`: plan the ends of the leases."""
        if not (self._many and self._alike):
            for lease in leases.each():
                self.launch(job, lease)
            return
        self.leases += len(leases.leases)
        agenda, tick, seconds_of, vertex = self._agenda, self._tick_s, self._seconds, leases.vertex
        begin, round_trip = self.clock.time, self._round_trip
        for task, (number, worker) in enumerate(zip(leases.leases, leases.workers, strict=True), leases.lo):
            seconds = seconds_of(vertex, task)
            when = begin + seconds + round_trip
            planned = agenda.get(when // tick)
            if planned is None:
                self._plan(when, number, job, seconds, task, worker)
            else:
                planned.append((when, number, job, seconds, task, worker))  # as `_plan` does, without a call

    def _race(self, job: Job, lease: Launch) -> None:
        """Let a second attempt race the first one, whatever the first one's progress."""
        first = self._races.get((job.id, lease.backup_of))
        self._races[(job.id, lease.lease)] = first or _Race(lease)

    def _commit(self, run: _Running, event: Done | Failed) -> Done | Failed:
        """Store the values of a lease that its rival has not stored. Return the events to post."""
        launch = run.launch
        race = self._races.get((run.job.id, launch.lease))
        if race is None or launch.lease not in run.job.leases:
            self._hold(run, launch.lo, event.hi)
            return event
        if race.winner:
            lo, why = launch.lo, "another attempt was first"
            return Failed(self.clock.time, launch.lease, lo, launch.vertex, lo, Failure.STOPPED, why)
        if event.hi > race.hi or (event.hi == race.hi and type(event) is Failed):
            values = getattr(event, "values", None)
            event = Done(event.now, launch.lease, race.hi, event.seconds, event.nbytes, values=values)
        self._hold(run, max(launch.lo, race.done), event.hi)
        race.done = max(race.done, event.hi)
        if type(event) is Done:
            race.winner = launch.lease
        return event

    def _post_given_back(self, job: Job, event: GaveBack) -> None:
        """Report the tasks that a lease has given back, which its rival stores no more; nothing if the rival has
        ended.
        """
        assert self._loop is not None
        race = self._races.get((job.id, event.lease))
        if race is not None:
            if race.winner:
                return
            race.hi = min(race.hi, max(event.hi, race.done))
            event = replace(event, hi=max(event.hi, race.done))
        self._loop.post(job.id, event)

    def _plan(
        self, when: float, what: Any, job: Job | None = None, seconds: float = 0.0, task: int = -1, worker: int = -1
    ) -> None:
        """Add an entry to the agenda, under its moment or its tick; a lease of many with its `job`."""
        tick = self._tick_s
        moment = when // tick if tick else when
        planned = self._agenda.get(moment)
        if planned is None:
            self._agenda[moment] = [(when, what, job, seconds, task, worker)]
            heappush(self._moments, moment)
        else:
            planned.append((when, what, job, seconds, task, worker))

    def _plan_faults(self, run: _Running, seconds: float) -> bool:
        """Draw the faults of a lease. Return whether it ends badly."""
        faults, lease = self.faults, run.launch
        if faults.started and self.random.random() < faults.started:
            self.at(self.clock.time, lambda: self._post(run, Started(self.clock.time, lease.lease)))
        if lease.worker >= 0 and faults.worker_lost and self.random.random() < faults.worker_lost:
            self.faults_made += 1
            self.at(self.clock.time + seconds * self.random.random(), lambda: self._lose(lease.worker))
        if lease.worker >= 0 and (deadly := self._deadly_unit(lease, run.hi)) >= 0:
            self.faults_made += 1
            self.at(self.clock.time + seconds * self.random.random(), lambda: self._lose(lease.worker, deadly))
            return True
        for kind, probability in (
            (Failure.USER, faults.user),
            (Failure.MEMORY, faults.memory),
            (Failure.INFRASTRUCTURE, faults.infrastructure),
        ):
            if probability and self.random.random() < probability:
                self.faults_made += 1
                self.at(self.clock.time + seconds * self.random.random(), partial(self._fail, run, kind))
                return True
        if lease.worker in self._failing and self.random.random() < self._failing[lease.worker]:
            self.faults_made += 1
            self.at(self.clock.time + seconds * self.random.random(), partial(self._fail, run, Failure.INFRASTRUCTURE))
            return True
        if faults.give_back and lease.hi - lease.lo > 1 and self.random.random() < faults.give_back:
            self.at(self.clock.time + seconds / 4, lambda: self.shrink(run.job, lease.lease))
        return False

    def _deadly_unit(self, lease: Launch, hi: int) -> int:
        """Return the first unit of a lease with a task that crashes its worker, -1 if there is none."""
        if self._deadly is None:
            return -1
        for unit in range(lease.lo, hi):
            tasks = ((lease.vertex, unit),) if lease.cone is None else lease.cone.tasks(unit)
            if any(self._deadly(vertex, index) for vertex, index in tasks):
                return unit
        return -1

    def _duration(self, lease: Launch, lo: int, hi: int) -> float:
        speed = self._speeds[lease.worker % len(self._speeds)] if self._speeds else 1.0
        cone = lease.cone
        if self._each is not None:
            return self._each * (hi - lo) * (cone.size if cone is not None else 1) / speed
        of, vertex = self._seconds, lease.vertex
        if cone is None:
            return sum([of(vertex, i) for i in range(lo, hi)]) / speed
        members = zip(cone.members, cone.mult, strict=True)
        return sum([of(name, i) for name, mult in members for i in range(lo * mult, hi * mult)]) / speed

    def shrink(self, job: Job, lease: int) -> None:
        """See `Executor.shrink`."""
        run = self._run_of(job, lease)
        if run is None or run.gone or run.hi - run.launch.lo < 2:
            return
        run.hi -= (run.hi - run.launch.lo) // 2
        self.at(self.clock.time, lambda: self._post(run, GaveBack(self.clock.time, lease, run.hi)))

    def weigh(self, job: Job, weigh: Weigh) -> None:
        """See `Executor.weigh`: outputs have their declared sizes, and are cut evenly."""
        nbytes = 0.0
        launch = job.leases.get(weigh.lease)
        specs = {spec.vertex: spec for spec in launch.specs} if launch is not None else {}
        for vertex, lo, hi in weigh.tasks:
            for edge in specs[vertex].inputs if vertex in specs else ():
                router = edge.router
                for a, b, part_lo, part_hi in [p for i in range(lo, hi) for p in router.inputs(i)] if router else ():
                    share = (part_hi - part_lo) / router.partitions if router and router.partitions else 1.0
                    nbytes += share * sum(self._nbytes(edge.source, i) for i in range(a, b))
        assert self._loop is not None
        self._loop.post_later(job.id, Weighed(self.clock.time, weigh.lease, int(nbytes)))

    def stop(self, job: Job, lease: int, reason: str) -> None:
        """See `Executor.stop`."""
        run = self._run_of(job, lease)
        if run is not None:
            self.at(self.clock.time, lambda: self._stopped(run))

    def free(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """Forget outputs. A missing output is a fault of the engine."""
        if not self._track:
            return
        held = self.held.get((job.id, vertex), set())
        for i in range(lo, hi):
            if i not in held:
                raise AssertionError(f"{vertex}[{i}] is freed, but is not held")
            held.remove(i)
        self.held_now -= hi - lo

    def free_parts(self, job: Job, vertex: str, parts: Sequence[int]) -> None:
        """See `Executor.free_parts`."""

    def publish(self, job: Job, event: Publish) -> None:
        """See `Executor.publish`."""

    def restart(self, job: Job, command: Restart) -> None:
        """See `Executor.restart`."""

    def mark_ended(self, job: Job, command: MarkEnded) -> None:
        """See `Executor.mark_ended`."""

    def retire_job(self, job: Job) -> None:
        """See `Executor.retire_job`."""

    def waiting(self) -> AbstractContextManager[None]:
        """See `Executor.waiting`."""
        return nullcontext()

    def hurry(self) -> None:
        """See `Executor.hurry`."""

    def reply(self, job: Job, reply: Reply) -> None:
        """See `Executor.reply`."""

    def restore(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """See `Executor.restore`."""

    def set_timer(self, job: Job, at: float, timer: int) -> None:
        """See `Executor.set_timer`."""
        assert self._loop is not None
        loop = self._loop
        self.at(at, lambda: loop.post(job.id, TimerFired(self.clock.time, timer)))

    def close_job(self, job: Job) -> None:
        """See `Executor.close_job`."""

    def close(self) -> None:
        """See `Executor.close`."""

    # --------------------------------------------------------------------------------------------------- time

    def run(self, *, most_moments: int = 100_000_000) -> None:
        """Advance the clock until nothing is planned (the *heap* driver), or for a number of moments."""
        moments, agenda = self._moments, self._agenda
        clock = self.clock
        check = self._check
        loop = self._loop
        assert loop is not None
        done = self._done
        many = self._many
        for _ in range(most_moments):
            if not moments:
                return
            planned = agenda.pop(heappop(moments))
            if self._tick_s:
                planned.sort(key=itemgetter(0))
            rest = iter(planned)
            try:
                if many:
                    self._end_many(planned, rest)
                for clock.time, what, *_ in rest:
                    if isinstance(what, _Running):
                        done(what)
                    else:
                        what()
                    if check is not None:
                        for job in loop.jobs.values():
                            check(job)
                loop.drain()
            except BaseException:  # the planner of this may continue after it
                for entry in rest:
                    self._plan(*entry)
                raise

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Call `action` when the virtual clock reaches `when`."""
        self._plan(when, action)

    def _post(self, run: _Running, event: Any) -> None:
        assert self._loop is not None
        if run.gone:
            return
        if type(event) is GaveBack:
            self._post_given_back(run.job, event)
        else:
            self._loop.post(run.job.id, event)

    def _over(self, run: _Running) -> None:
        run.gone = True
        if not self._many:  # else its end is still in the agenda
            run.job.backend.pop(run.launch.lease, None)

    def _end_many(self, planned: list[_Entry], rest: Iterator[_Entry]) -> None:
        """Run a tick in which most leases end as planned; `rest` are those of its entries that are to come. The only
        record of a lease is the agenda.
        """
        assert self._loop is not None
        assert self._size is not None
        clock, size, post = self.clock, self._size, self._loop.post_later
        times, leases, jobs, seconds, tasks, workers = zip(*planned, strict=True)
        at = 0
        for clock.time, what, job, took, task, _ in rest:
            lo, at = at, at + 1
            if job is None:
                what()
                continue
            if task >= 0 and not job.backend:
                at = _alike_until(jobs, tasks, lo)
                deque(islice(rest, at - lo - 1), 0)
                clock.time = times[at - 1]
                of = slice(lo, at)
                sizes = (size,) * (at - lo)
                ends = DoneEach(clock.time, leases[of], workers[of], tasks[of], times[of], seconds[of], sizes)
                post(job.id, ends)
                continue
            lease, lo, hi = (what, task, task + 1) if task >= 0 else (what.lease, what.lo, what.hi)
            run = job.backend.pop(lease, None)
            if run is None:
                post(job.id, Done(clock.time, lease, hi, took, size * (hi - lo)))
            else:
                run.seconds = took
                self._done(run)

    def _run_of(self, job: Job, lease: int) -> _Running | None:
        """Return the running lease. A lease of many gets a record now, as it will not end as planned."""
        run: _Running | None = job.backend.get(lease)
        if run is None and self._many and lease in job.leases:
            launch = job.leases[lease]
            run = job.backend[lease] = _Running(job, launch, launch.hi, 0.0)
        return run

    def _done(self, run: _Running) -> None:
        if run.gone:
            return
        launch = run.launch
        lo, hi = launch.lo, run.hi
        self._over(run)
        if self._size is not None:
            nbytes = self._size * (hi - lo)
        else:
            nbytes = sum([self._nbytes(launch.vertex, i) for i in range(lo, hi)])
        values = None
        if self._value is not None:
            values = [self._value(launch.vertex, i) for i in range(lo, hi)]
        event: Done | Failed = Done(self.clock.time, launch.lease, hi, run.seconds, nbytes, values=values)
        if self._races:
            event = self._commit(run, event)
        elif self._track:
            self._hold(run, lo, hi)
        loop = self._loop
        assert loop is not None
        loop.post_later(run.job.id, event)
        if not self._tick_s:
            loop.drain()
        if not self._usual:
            if self.faults.duplicate and self.random.random() < self.faults.duplicate:
                loop.post(run.job.id, event)
            self._perhaps_lose_output(run)

    def _perhaps_lose_output(self, run: _Running) -> None:
        assert self._loop is not None
        faults = self.faults
        job = self._loop.jobs.get(run.job.id)
        if (
            faults.output_lost
            and job is not None
            and self.faults_made < faults.most
            and self.random.random() < faults.output_lost
        ):
            self._lose_output(job)

    def _hold(self, run: _Running, lo: int, hi: int) -> None:
        if lo >= hi or run.launch.lease not in run.job.leases:
            return
        held = self.held.setdefault((run.job.id, run.launch.vertex), set())
        held.update(range(lo, hi))
        self.held_now += hi - lo
        self.held_most = max(self.held_most, self.held_now)

    def _lose_output(self, job: Job) -> None:
        choices = sorted((v, i) for (j, v), held in self.held.items() if j == job.id for i in held)
        if not choices:
            return
        self.faults_made += 1
        vertex, index = self.random.choice(choices)
        self._forget(job.id, vertex, index)
        assert self._loop is not None
        self._loop.post(job.id, OutputLost(self.clock.time, vertex, index, index + 1, "simulated loss"))

    def _forget(self, job: str, vertex: str, index: int) -> None:
        """Remove a lost output."""
        self.held[(job, vertex)].remove(index)
        self.held_now -= 1

    def _fail(self, run: _Running, kind: Failure) -> None:
        if run.gone:
            return
        launch = run.launch
        hi = self.random.randint(launch.lo, run.hi - 1)
        if launch.cone is not None:
            vertex, index = self.random.choice(list(launch.cone.tasks(hi)))
        else:
            vertex, index = launch.vertex, hi
        self._over(run)
        self._say(run, Failed(self.clock.time, launch.lease, hi, vertex, index, kind, "simulated failure"))

    def _stopped(self, run: _Running) -> None:
        if run.gone:
            return
        launch = run.launch
        self._over(run)
        self._say(
            run,
            Failed(self.clock.time, launch.lease, launch.lo, launch.vertex, launch.lo, Failure.STOPPED, "stopped"),
        )

    def _say(self, run: _Running, event: Failed) -> None:
        """Report a lease that ended badly; its earlier values are stored."""
        assert self._loop is not None
        self._loop.post(run.job.id, self._commit(run, event))

    def _lose(self, worker: int, crashed_at: int = -1) -> None:
        """Kill a worker, or let unit `crashed_at` of its lease crash it; another takes its place."""
        assert self._loop is not None
        spec = next((s for s in self._specs if s.worker == worker), None)
        if spec is None:
            return
        self._specs.remove(spec)
        self._bury(worker)
        self._replace(spec, "simulated death", crashed_at)

    def _bury(self, worker: int) -> None:
        """Drop the running lease of a worker."""
        for job in self.shell.jobs.values():
            for lease in [lease for lease, launch in job.leases.items() if launch.worker == worker]:
                self._run_of(job, lease)
            for run in [run for run in job.backend.values() if run.launch.worker == worker]:
                run.gone = True
                if not self._many:
                    del job.backend[run.launch.lease]

    def _replace(self, spec: WorkerSpec, reason: str, crashed_at: int = -1) -> None:
        """Report the death of a worker, perhaps with its node's memory, and its replacement."""
        assert self._loop is not None
        node_lost = bool(self.faults.node_lost) and self.random.random() < self.faults.node_lost
        if node_lost:
            self._forget_node(spec.node)
        self._loop.worker_lost(
            spec.worker, reason, node_lost=node_lost, unit=crashed_at, crashed=crashed_at >= 0, replaced=True
        )
        self._loop.worker_joined(self._another(spec))

    def _forget_node(self, node: int) -> None:
        """Remove the outputs on a node."""
        assert self._loop is not None
        for job in self._loop.jobs.values():
            for row in job.inspector.vertices:
                held = self.held.get((job.id, row.id))
                if held and row.node_of is not None:
                    for i in [i for i in held if row.node_of[i] == node]:
                        self._forget(job.id, row.id, i)

    def _another(self, spec: WorkerSpec) -> WorkerSpec:
        again = WorkerSpec(self._next_worker, spec.node, spec.node_name, spec.party)
        self._next_worker += 1
        self._specs.append(again)
        return again
