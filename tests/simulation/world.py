"""The simulator with an auditor: what the master tells workers to do must be possible in the world it tells them in.

The world keeps its own books (what is stored, what was ever committed, who works on what) from the commands and
reports alone and raises `AssertionError` when a command does not fit them: a lease whose inputs are not there, an
output freed under a reader or stored twice, a worker with two leases, an output left behind by an ended job, a job that
does not end. With `deaths`, the process of all masters dies now and then, in the middle of whatever it does, and a new
one goes on from the journals.
"""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from tests.simulation.disk import Disk
from tests.simulation.scenarios import MANAGERS, Scenario, random_scenario, reckless
from weft.backends.simulated_cluster import Network, SimulatedCluster
from weft.backends.simulated_nodes import Elastic
from weft.backends.simulator import Faults
from weft.durability.journal import Recorded, recover
from weft.engine.commands import Complete, Launch, Probe
from weft.engine.core import Core
from weft.engine.events import Done, Event, Failed, GaveBack, Hit, Miss, OutputLost, UserEvent, Waiting
from weft.engine.invariants import check
from weft.engine.leases import attempt_of
from weft.engine.machines.job import JobState
from weft.engine.machines.lease import GIVEN_UP, LeaseState
from weft.engine.machines.task import TaskState
from weft.engine.machines.vertex import VertexState
from weft.engine.master import Master
from weft.engine.policy import ManagerFactory
from weft.engine.ports import Job
from weft.engine.provider import NodeKind
from weft.engine.recovery import digest
from weft.engine.replay import Tape, Tick, replay
from weft.engine.tuning import Tuning
from weft.graph.draw import to_text
from weft.graph.logical import Outcome, Source, Trigger, VertexKind
from weft.graph.validate import mark_results
from weft.model.failures import Failure
from weft.model.resources import Resources
from weft.runtime.job import JobRun
from weft.runtime.loop import Loop
from weft.testing.inside import core_of

FOREVER_S = 1e6
"""How long a service runs that nobody stops."""
PATIENCE_S = 3_000.0
"""By when every job must have ended: some time after the last fault of a network."""


class Killed(BaseException):
    """The process of the masters dies here."""


_LEFT = frozenset({TaskState.FREED, TaskState.SKIPPED, TaskState.FATAL, TaskState.CANCELLED})
"""What has an output in these states is to lose it; the command may still wait for the journal."""


class World(SimulatedCluster):
    """A simulator that answers for expanders and caches, emits user events, and keeps books.

    `deaths` is how often the owner dies, a probability for each thing that it does, at most `most_deaths` times; then
    jobs have journals. `disk_full` is how often a journal has a disk that gets full.
    """

    def __init__(
        self,
        scenarios: dict[str, Scenario],
        *,
        cache: float = 0.5,
        deaths: float = 0.0,
        most_deaths: int = 3,
        disk_full: float = 0.0,
        **simulator: Any,
    ) -> None:
        checks: Callable[[Core], None] | None = simulator.pop("check", None)
        super().__init__(
            value=self._answer, check=partial(self._check_if_moved, checks) if checks else None, **simulator
        )
        self.moved: set[int] = set()
        self._alike = False  # a service takes as long as it is needed
        self.journaled = deaths > 0
        self.deaths = deaths
        self.deaths_left = most_deaths
        self.disk_full = disk_full
        self.recoveries = 0
        self.managers: Mapping[str, ManagerFactory] = MANAGERS
        self.jobs: dict[str, JobRun] = {}
        self.ended_at = 0.0
        self.ticks = False
        self.opened: Callable[[JobRun], None] = lambda _: None
        self.policies: int | None = None
        self.scenarios = scenarios
        self.cache = cache
        self.done: set[tuple[str, str, int]] = set()
        self.pieces_gone: dict[tuple[str, str, int], set[int]] = {}
        self.stopping: set[tuple[str, int]] = set()
        self.backups = 0
        self.services: set[str] = set()
        self.fading: set[tuple[str, str, int]] = set()
        self.late = False
        self.broken: set[tuple[str, str, int]] = set()
        self.lost_late: set[tuple[str, str, int]] = set()
        self.lost: set[tuple[str, str, int]] = set()
        self.unwanted: set[tuple[str, str, int]] = set()
        self.live: dict[tuple[str, int], tuple[Job, Launch]] = {}

    def _check_if_moved(self, checks: Callable[[Core], None], job: Job) -> None:
        """Check what a master has handled something in since the last time; nothing else changes a core."""
        core = core_of(job)
        if id(core) in self.moved:
            self.moved.discard(id(core))
            checks(core)

    def _answer(self, vertex: str, index: int) -> Any:
        for scenario in self.scenarios.values():
            if vertex in scenario.answers:
                return scenario.answers[vertex]()
        return None

    # ------------------------------------------------------------------------------------------ the owner's death

    def mortal(self) -> None:
        """Something is being done, in the middle of which the owner may die."""
        if self.journaled and self.deaths_left and self.random.random() < self.deaths:
            self.deaths_left -= 1
            raise Killed

    def run(self, *, most_moments: int = 500_000) -> None:
        """Let time pass until nothing is planned any more, through all deaths of the owner."""
        dead = False
        while True:
            try:
                if dead:
                    self._recover()
                    dead = False
                super().run(most_moments=most_moments)
            except Killed:
                dead = True
            else:
                return

    def submit(self, name: str) -> None:
        """Have a job begin."""
        graph = self.scenarios[name].graph
        mark_results(graph)
        managers = self.managers_of(name)
        disk = Disk.create(graph, self.tuning, self._later) if self.journaled else None
        self._take_on(name, Master(graph, name, self.tuning, disk.tape.managers(managers) if disk else managers), disk)
        if disk is not None and self.random.random() < self.disk_full:
            self._later(10 * self.random.random(), partial(setattr, disk, "full", True))
        loop_of(self).submit(self.jobs[name])

    def managers_of(self, name: str) -> Mapping[str, ManagerFactory]:
        """The managers of a job; with `policies` those that have anything run twice and avoid anybody."""
        if self.policies is None:
            return self.managers
        return {**self.managers, **reckless(random.Random(f"policies of {name} of {self.policies}"))}

    def cancel(self, name: str) -> None:
        """Have a job cancelled, if it has not ended."""
        job = self.jobs.get(name)
        if job is not None and job.outcome is None:
            loop_of(self).cancel(job, "cancelled by the trial")

    def touch(self, name: str, rng: random.Random) -> None:
        """Have a user cancel some tasks of a job, or end one of its vertices or all of it as a success."""
        job = self.jobs.get(name)
        stages = core_of(job).stages if job is not None and job.outcome is None else []
        if job is None or not stages:
            return
        stage, loop = rng.choice(stages), loop_of(self)
        if rng.random() < 0.2:
            loop.finish(job, rng.choice([stage.id, stage.id, ""]), "finished by the trial")
        elif stage.n > 0:
            lo = rng.randrange(stage.n)
            loop.cancel_tasks(job, stage.id, lo, lo + rng.choice([1, 1, 3]), "cancelled by the trial")

    def _take_on(self, name: str, master: Master, disk: Disk | None) -> JobRun:
        job = self.jobs[name] = JobRun(name, self.scenarios[name].graph, master, disk)
        if disk is not None:
            disk.master = master
        self.opened(job)
        return job

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        """Plan something that dies with the owner."""
        owner = self.incarnation
        self.at(self.clock.time + seconds, lambda: action() if self.incarnation == owner else None)

    def _recover(self) -> None:
        """A new owner goes on with all jobs from what is on disk."""
        self.owner_dies()
        self.recoveries += 1
        self.live.clear()
        self.stopping.clear()
        self.unwanted.clear()
        loop = _WatchedLoop(self, self.clock)
        loop.world = self
        if self.ticks:
            self._later(0.5, lambda: self.tick(0.5))
        for name, job in list(self.jobs.items()):
            if job.outcome is None:
                assert isinstance(job.journal, Disk)
                self._go_on(loop, name, job.journal, job.journal.torn(self.random))

    def _go_on(self, loop: Loop, name: str, disk: Disk, recorded: Recorded) -> None:
        graph, tape = self.scenarios[name].graph, Tape()
        master = Master(graph, name, recorded.header.tuning, tape.managers(self.managers_of(name)))
        ticks = [at for at, record in enumerate(recorded.records) if isinstance(record, Tick)]
        replay(master, tape, recorded.records[: ticks[-1] + 1] if ticks else ())
        again = disk.go_on(recorded, tape)
        if again.digests:
            assert digest(master.core) == again.digests[-1], f"{name}: a replay comes to another state"
        found = recover(graph, recorded, self.managers_of(name))
        again.tape = found.tape
        job = self._take_on(name, found.master, again)
        core = found.master.core
        lost = self._sweep(name, core)
        early = [task for task in lost if (name, *task) not in self.broken]
        assert disk.full or not early, f"{name}: {early} were freed before that was on disk"
        self.broken.update((name, *task) for task in lost)  # the next owner may die before it hears of that
        if found.pending.completed:
            self.lost_late.update((name, *task) for task in lost)  # nobody is left to make it again
            job.outcome = Complete(core.status.value)
            return
        for vertex, i in lost:
            self.lost.add((name, vertex, i))
            loop.post_later(name, OutputLost(self.clock.time, vertex, i, i + 1, "it was gone after a crash"))
        loop.submit(job, None if core.status is JobState.NEW else found.pending)

    def _sweep(self, name: str, core: Core) -> list[tuple[str, int]]:
        """Remove what no record tells of; return the tasks (vertex, index) whose outputs are gone."""
        lost = []
        for (owner, vertex), held in self.held.items():
            if owner == name and (vertex not in core.by_id or core.by_id[vertex].n < 0):
                for i in tuple(held):
                    self._forget(name, vertex, i)
        for stage in core.stages:
            held = self.held.get((name, stage.id), set())
            for i in [i for i in held if i >= stage.n >= 0]:  # it was wider, and that is not on disk
                self._forget(name, stage.id, i)
            for i in range(max(stage.n, 0)):
                finished = stage.state[i] == TaskState.FINISHED and stage.vertex.kind is VertexKind.FINITE
                whole = i in held and not any(
                    self.pieces_gone.get((name, link.edge.id, i), set()) - (link.freed_parts or set())
                    for link in stage.outputs
                )
                if finished and not whole:
                    lost.append((stage.id, i))
                if i in held and not (finished and whole):
                    self._forget(name, stage.id, i)
        self.fading.clear()
        return lost

    # --------------------------------------------------------------------------------------------------- launches

    def launch(self, job: Job, lease: Launch) -> None:
        """Check that the lease can run here and now, then run it."""
        self.mortal()
        if lease.worker >= 0:
            assert lease.worker in {spec.worker for spec in self._specs}, f"{lease} is for a worker that is not there"
            busy = [other for (_, other) in self.live.values() if other.worker == lease.worker]
            assert not busy, f"{lease} is for a worker that is busy with {busy}"
        if lease.spec.service:
            self.services.add(lease.vertex)
        inside: set[tuple[str, int]] = set()
        for vertex, index in tasks_of(lease):
            self._expect_inputs(job, vertex, index, inside)
            assert (vertex, index) not in inside, f"{vertex}[{index}] is twice in {lease}"
            inside.add((vertex, index))
        for owner, other in self.live.values():
            if owner is not job or (job.id, other.lease) in self.stopping:
                continue
            if lease.backup_of and other.lease == lease.backup_of:
                self.backups += 1
                left = set(tasks_of(other))  # it may have given some back since this was said
                assert inside == left or (self.late and inside > left), f"{lease} is no backup of {other}"
            else:
                assert not inside & set(tasks_of(other)), f"{lease} overlaps {other}"
        self.live[(job.id, lease.lease)] = (job, lease)
        super().launch(job, lease)
        if self.network is not None and lease.worker >= 0:
            return
        for vertex in {vertex for vertex, _ in inside}:
            for name in self.scenarios[job.id].emits.get(vertex, ()):
                seconds = self.random.random()
                event = UserEvent(self.clock.time + seconds, vertex, 0, name)
                self._later(seconds, partial(loop_of(self).post, job.id, event))

    def _begin(self, far: Any, job: Job, lease: Launch) -> None:
        """A worker begins: it emits its events before it ends."""
        super()._begin(far, job, lease)
        run = job.backend[lease.lease]
        for vertex in {vertex for vertex, _ in tasks_of(lease)}:
            for name in self.scenarios[job.id].emits.get(vertex, ()):
                seconds = min(1.0, 0.9 * run.seconds) * self.random.random()
                event = UserEvent(self.clock.time + seconds, vertex, 0, name)
                self.at(self.clock.time + seconds, partial(self._post, run, event))

    def _beat(self, incarnation: int) -> None:
        self.expect_end()
        super()._beat(incarnation)

    def expect_end(self) -> None:
        """It must not take for ever: what waits for nothing that comes may look again and again."""
        late = self.clock.time > PATIENCE_S
        assert not late, "it does not end:\n" + "\n".join(
            line for job in self.jobs.values() if job.outcome is None for line in job.inspector.story()
        )

    def reported(self, job: Job, event: Event) -> None:
        """Take into the books what a worker said of a lease that the loop knows."""
        if isinstance(event, OutputLost):
            self.lost.update((job.id, event.vertex, i) for i in range(event.lo, event.hi))
        if not isinstance(event, (Done, Failed, GaveBack)) or event.lease not in job.leases:
            return
        key = (job.id, event.lease)
        lease = self.live[key][1]
        row = attempt_of(core_of(job), event.lease)
        heard = row is not None and row.state not in {*GIVEN_UP, LeaseState.RESTARTING}
        if not heard and not isinstance(event, GaveBack):
            self.unwanted.update((job.id, lease.vertex, i) for i in range(lease.lo, event.hi))
        wanted = heard and row is not None and row.lo <= event.hi  # else its rival had finished that unit before
        if wanted and isinstance(event, Failed) and event.lost is not None:
            vertex, i = event.lost  # the master takes it for gone, even if it was made again meanwhile
            if i in self.held.get((job.id, vertex), ()):
                self._forget(job.id, vertex, i)
        stuck = isinstance(event, Done) and self.clock.time >= FOREVER_S
        assert not stuck, f"{lease.vertex} ended by itself: nothing else went on\n" + "\n".join(job.inspector.story())
        if isinstance(event, GaveBack):
            self.live[key] = (job, replace(lease, hi=event.hi))
            return
        del self.live[key]
        self.done.update((job.id, *task) for task in tasks_of(replace(lease, hi=event.hi)))
        if isinstance(event, Failed) and event.hi > lease.lo:
            self._goes_on_from(key, event.hi, inside=set(tasks_of(lease)))
        if isinstance(event, Failed) and event.kind is not Failure.STOPPED:
            for task in tasks_of(replace(lease, lo=event.hi, hi=event.hi + 1)):
                if task == (event.vertex, event.index):
                    break
                self.done.add((job.id, *task))

    def _goes_on_from(self, failed: tuple[str, int], hi: int, inside: set[tuple[str, int]]) -> None:
        """What an attempt has made before it failed is not for its rival to make any more."""
        for key, (job, other) in self.live.items():
            if key[0] == failed[0] and key not in self.stopping and inside & set(tasks_of(other)):
                self.live[key] = (job, replace(other, lo=min(hi, other.hi)))

    def buried(self, worker: int) -> None:
        """Take into the books that a worker is gone."""
        for key in [key for key, (_, lease) in self.live.items() if lease.worker == worker]:
            del self.live[key]

    def _duration(self, lease: Launch, lo: int, hi: int) -> float:
        """A service runs until it is stopped, or ends by itself after a while if the scenario says so."""
        if lease.vertex in self.services and not any(lease.vertex in each.brief for each in self.scenarios.values()):
            return FOREVER_S
        return super()._duration(lease, lo, hi)

    def _expect_inputs(self, job: Job, vertex: str, index: int, inside: set[tuple[str, int]]) -> None:
        core = core_of(job)
        stage = core.by_id[vertex]
        for link in stage.inputs:
            scheduling, src = link.edge.scheduling, link.src
            if (
                scheduling.concurrent
                or scheduling.when is not Trigger.ALL_DONE
                or scheduling.outcome is not Outcome.SUCCESS
            ):
                continue
            if not link.data:
                late = [
                    i
                    for i in range(src.n)
                    if (job.id, src.id, i) not in self.done and src.state[i] != TaskState.SKIPPED
                ]
                assert not late, f"{vertex}[{index}] runs before {src.id}{late} has"
                continue
            if src.status is VertexState.SKIPPED:
                continue  # perhaps before its width was known
            assert link.router is not None, f"{vertex}[{index}] runs and {link.edge.id} has no router"
            held = self.held.get((job.id, src.id), set())
            for lo, hi, part_lo, part_hi in link.router.inputs(index):
                for i in range(lo, hi):
                    there = i in held or (src.id, i) in inside or src.state[i] == TaskState.SKIPPED
                    there = there or (self.late and (job.id, src.id, i) in self.broken)
                    assert there, f"{vertex}[{index}] runs without its input {src.id}[{i}]"
                    gone = self.pieces_gone.get((job.id, link.edge.id, i), set()) & set(range(part_lo, part_hi))
                    assert not gone, f"{vertex}[{index}] runs and pieces {sorted(gone)} of {src.id}[{i}] are freed"

    # ------------------------------------------------------------------------------------------------------ store

    def _hold(self, run: Any, lo: int, hi: int) -> None:
        stage = core_of(run.job).by_id[run.launch.vertex]
        if stage.vertex.kind is VertexKind.FINITE:  # a service has no value
            if run.launch.lease in run.job.leases:
                twice = self.held.get((run.job.id, stage.id), set()) & set(range(lo, hi))
                self.fading -= {(run.job.id, stage.id, i) for i in range(lo, hi)}
                self.broken -= {(run.job.id, stage.id, i) for i in range(lo, hi)}
                assert not twice, f"{stage.id}{sorted(twice)} is stored while it is stored"
            super()._hold(run, lo, hi)
            for link in stage.outputs:
                for i in range(lo, hi):
                    self.pieces_gone.pop((run.job.id, link.edge.id, i), None)

    def _forget(self, job: str, vertex: str, index: int) -> None:
        super()._forget(job, vertex, index)
        self.fading.add((job, vertex, index))
        self.broken.add((job, vertex, index))
        found = loop_of(self).jobs.get(job)
        if found is not None and found.master.core.status is JobState.SUCCEEDED:
            self.lost_late.add((job, vertex, index))

    def free(self, job: Job, vertex: str, lo: int, hi: int) -> None:
        """Check that nobody reads what is freed."""
        self.mortal()
        if core_of(job).by_id[vertex].vertex.kind is VertexKind.SERVICE:
            return  # it has no value
        if hi - lo > 1 and (self.fading or self.unwanted):
            for i in range(lo, hi):
                self.free(job, vertex, i, i + 1)
            return
        if (job.id, vertex, lo) in self.fading:
            self.fading.discard((job.id, vertex, lo))
            self.unwanted.discard((job.id, vertex, lo))
            return  # it was lost, and whoever frees it does not know yet, or has said so before
        stages = core_of(job).by_id
        nobodys = (job.id, vertex, lo) in self.unwanted or stages[vertex].state[lo] == TaskState.SKIPPED
        if nobodys:  # what was told to stop has left it: who reads this task has what it made before, or waits for it
            self.unwanted.discard((job.id, vertex, lo))
            super().free(job, vertex, lo, hi)
            return
        again = stages[vertex].state[lo] != TaskState.FREED  # it is made again, or what came to nothing has left it
        for key, (owner, lease) in self.live.items():
            if owner is not job or key in self.stopping or stages[lease.vertex].vertex.kind is VertexKind.SERVICE:
                continue
            tasks = tasks_of(lease)
            inside = set(tasks)
            for name, index in tasks:
                for link in stages[name].inputs:
                    scheduling = link.edge.scheduling
                    if link.src.id != vertex or link.router is None or scheduling.when is Trigger.EVENT:
                        continue
                    early = scheduling.when is Trigger.FRACTION and stages[vertex].state[lo] != TaskState.FINISHED
                    if again and (scheduling.concurrent or early):
                        continue  # it waits for what it has not read yet
                    read = {i for a, b, _, _ in link.router.inputs(index) for i in range(max(a, lo), min(b, hi))}
                    read = {i for i in read if (vertex, i) not in inside}
                    assert not read, f"{vertex}{sorted(read)} is freed while {name}[{index}] reads it"
        super().free(job, vertex, lo, hi)

    def free_parts(self, job: Job, vertex: str, parts: Sequence[int]) -> None:
        """Remember which pieces of what is stored are gone."""
        self.mortal()
        for link in core_of(job).by_id[vertex].outputs:
            if link.router is not None and link.router.partitions:
                for i in self.held.get((job.id, vertex), ()):
                    self.pieces_gone.setdefault((job.id, link.edge.id, i), set()).update(parts)

    def stop(self, job: Job, lease: int, reason: str) -> None:
        """See `Executor.stop`."""
        self.stopping.add((job.id, lease))
        super().stop(job, lease, reason)

    # ------------------------------------------------------------------------------------------------------- idle

    def tick(self, every: float) -> None:
        """Idle workers look up now and then, less and less often."""
        loop = loop_of(self)
        loop.idle_tick()
        if loop.jobs or self._moments:
            every *= 1.05
            if self.clock.time + every < FOREVER_S:
                self._later(every, lambda: self.tick(every))

    # ------------------------------------------------------------------------------------------------------ cache

    def probe(self, job: Job, probe: Probe) -> None:
        """Answer some time later, sometimes after a `Waiting`, sometimes twice."""
        loop = loop_of(self)
        now = self.clock.time
        if self.random.random() < 0.3:
            waiting = Waiting(now, probe.vertex, probe.index, "another run")
            self._later(0.0, lambda: loop.post(job.id, waiting))
        seconds = self.random.random() * 2
        at = now + seconds

        def answer() -> None:
            if job.outcome is not None:
                return
            if self.random.random() < self.cache:
                stage = core_of(job).by_id[probe.vertex]
                if probe.index < stage.n and stage.state[probe.index] == TaskState.PROBING:
                    self.held.setdefault((job.id, probe.vertex), set()).add(probe.index)
                    self.fading.discard((job.id, probe.vertex, probe.index))
                    for link in core_of(job).by_id[probe.vertex].outputs:
                        self.pieces_gone.pop((job.id, link.edge.id, probe.index), None)
                    self.held_now += 1
                    self.done.add((job.id, probe.vertex, probe.index))
                loop.post(job.id, Hit(at, probe.vertex, probe.index, 1))
            else:
                loop.post(job.id, Miss(at, probe.vertex, probe.index, "never ran"))

        self._later(seconds, answer)


class _WatchedLoop(Loop):
    """A loop that lets the world see each event before the master does, and asks it instead of a cache."""

    world: World

    def _step(self, job: JobRun, events: list[Event], *, offers: bool = True) -> None:
        if job.journal is None and job.outcome is None:
            self._told(job, events)
        if job.outcome is None:
            self.world.expect_end()
        self.world.mortal()
        self.world.moved.add(id(core_of(job)))
        super()._step(job, events, offers=offers)

    def _told(self, job: JobRun, events: list[Any]) -> None:
        seen: set[int] = set()
        for event in events:
            lease = getattr(event, "lease", -1)
            if lease not in seen:
                self.world.reported(job, event)
            if isinstance(event, (Done, Failed)):
                seen.add(lease)

    def _end_orphan(self, owner: str, event: Any) -> None:
        if isinstance(event, (Done, Failed)) and owner not in self.jobs:
            self.world.live.pop((owner, event.lease), None)
        super()._end_orphan(owner, event)

    def _probe(self, job: JobRun, probe: Probe) -> None:
        self.world.probe(job, probe)

    def _complete(self, job: JobRun, outcome: Complete) -> None:
        self.world.ended_at = self.clock.now()
        super()._complete(job, outcome)

    def _carry_out_durable(self, job: JobRun, events: list[Any]) -> bool:
        self.world.late = True  # what was said before it could be done: an input may have been lost meanwhile
        try:
            over = super()._carry_out_durable(job, events)
        finally:
            self.world.late = False
        if job.outcome is None:
            self._told(job, events)  # what was carried out had been decided before
        return over

    def node_lost(self, node: int, reason: str, *, emptied: bool = False) -> None:
        for worker in [worker for worker, spec in self.slots.specs.items() if spec.node == node]:
            self.world.buried(worker)
        super().node_lost(node, reason, emptied=emptied)

    def worker_lost(self, worker: int, *rest: Any, **more: Any) -> None:
        self.world.buried(worker)
        super().worker_lost(worker, *rest, **more)


def loop_of(world: World) -> Loop:
    """The loop a world is attached to."""
    assert isinstance(world._loop, Loop)
    return world._loop


def tasks_of(lease: Launch) -> list[tuple[str, int]]:
    """Every task of a lease, in the order in which they run."""
    units = range(lease.lo, lease.hi)
    if lease.cone is None:
        return [(lease.vertex, i) for i in units]
    return [task for unit in units for task in lease.cone.tasks(unit)]


def run_scenarios(
    scenarios: Sequence[Scenario],
    *,
    submit_at: Sequence[float] = (),
    cancel_at: Sequence[float | None] = (),
    checked: bool = True,
    ticks: bool = False,
    policies: int | None = None,
    opened: Callable[[JobRun], None] = lambda _: None,
    users: random.Random | None = None,
    **simulator: Any,
) -> tuple[World, list[JobRun]]:
    """Run jobs together on one world to their ends; AssertionError for whatever is wrong then or on the way."""
    named = {f"job{at}": scenario for at, scenario in enumerate(scenarios)}
    world = World(named, check=check if checked else None, **simulator)
    world.opened = opened
    world.policies = policies
    for at, name in enumerate(named):
        for _ in range(0 if users is None else users.randint(1, 6)):
            assert users is not None
            begin = submit_at[at] if submit_at else 0.0
            world.at(begin + 8 * users.random(), partial(world.touch, name, users))
    return live(world, submit_at=submit_at, cancel_at=cancel_at, checked=checked, ticks=ticks)


def live(
    world: World,
    *,
    submit_at: Sequence[float] = (),
    cancel_at: Sequence[float | None] = (),
    checked: bool = True,
    ticks: bool = False,
) -> tuple[World, list[JobRun]]:
    """Run the jobs of a world to their ends; AssertionError for whatever is wrong then or on the way."""
    named = world.scenarios
    world.ticks = ticks
    loop = _WatchedLoop(world, world.clock)
    loop.world = world
    for at, name in enumerate(named):
        begin = submit_at[at] if submit_at else 0.0
        world.at(begin, partial(world.submit, name))
        if cancel_at and (when := cancel_at[at]) is not None:
            world.at(begin + when, partial(world.cancel, name))
    if ticks:
        world._later(0.5, lambda: world.tick(0.5))
    world.run(most_moments=500_000)
    jobs = list(world.jobs.values())
    for job in jobs:
        if job.crash is not None:
            raise job.crash
    for job in jobs:
        assert job.outcome is not None, f"{job.id} did not end:\n" + "\n".join(job.inspector.story())
        if checked:
            check(core_of(job))
        expect_clean(world, job)
    expect_idle(world)
    return world, jobs


def expect_clean(world: World, job: JobRun) -> None:
    """An ended job holds its results and nothing else; every task is over for a reason."""
    core = core_of(job)
    assert not job.leases, f"leases are left: {job.leases}"
    assert not core.leases, f"the master has leases left: {core.leases}"
    assert core.tokens == core.graph.limits, f"tokens are lost: {core.tokens} of {core.graph.limits}"
    held = {(vertex, i) for (owner, vertex), indices in world.held.items() if owner == job.id for i in indices}
    rows = {(s.id, i): TaskState(s.state[i]) for s in core.stages for i in range(max(s.n, 0))}
    finished = {task for task, state in rows.items() if state is TaskState.FINISHED}
    gone = {task for task in finished - held if (job.id, *task) not in world.lost_late}
    if core.status is not JobState.SUCCEEDED:  # nothing is made again for a job that is failing
        gone = {task for task in gone if (job.id, *task) not in world.lost}
    assert not gone, f"finished, but not held: {sorted(gone)[:5]}"
    assert held <= finished, f"left behind: {sorted(held - finished)[:5]}"
    if core.status is JobState.CANCELLED:
        assert not finished, f"a cancelled job keeps {sorted(finished)[:5]}"
    kept = {stage.id for stage in core.stages if stage.keep or any(link.durable for link in stage.outputs)}
    assert {vertex for vertex, _ in finished} <= kept, "only results are kept"
    for (vertex, i), state in rows.items():
        if state in (TaskState.FINISHED, TaskState.FREED) and core.by_id[vertex].vertex.kind is VertexKind.FINITE:
            assert (job.id, vertex, i) in world.done, f"{vertex}[{i}] is {state.name}, but never ran"
    if core.status is JobState.SUCCEEDED and core.control is None:  # else whatever its controller left behind
        early = {stage.id for stage in core.stages if stage.status is VertexState.DONE_EARLY}
        bad = {
            task: state.name
            for task, state in rows.items()
            if state in (TaskState.FATAL, TaskState.CANCELLED) and task[0] not in early
        }
        assert not bad, f"the job succeeded with {bad}"
        none = (TaskState.SKIPPED, TaskState.FATAL)
        results = {task for task in rows if core.by_id[task[0]].keep and rows[task] not in none}
        results -= {task for task in results if (job.id, *task) in world.lost_late}
        assert results <= held, f"results are missing: {sorted(results - held)[:5]}"
        assert not _unheard(core), f"{_unheard(core)} have no width, though that was answered"


def _unheard(core: Core) -> list[str]:
    """Return the vertices that have no width, though their expander has ended well and no choice went against them."""
    idle = {
        vertex
        for row in core.choices.values()
        for name, branch in row.choice.branches.items()
        for vertex in branch
        if name != row.taken
    }
    unheard = []
    for stage in core.stages:
        if isinstance(stage.vertex.parallelism, Source) and stage.n < 0 and stage.id not in idle:
            expander = core.by_id[stage.vertex.parallelism.expander]
            if expander.status is VertexState.DONE and expander.n > 0:
                unheard.append(stage.id)
    return unheard


def expect_idle(world: World) -> None:
    """All slots, memory and GPUs are back."""
    pool = loop_of(world).pool
    assert pool.idle == len(world.workers()), f"{pool.idle} of {len(world.workers())} workers are idle at the end"
    assert sorted(pool._idle) == sorted(spec.worker for spec in world.workers())
    assert not pool.waiting
    assert not pool.reserved
    assert not pool._granted
    for node in pool._nodes.values():
        assert (node.memory_free, node.gpu_free) == (node.memory, node.gpu), f"memory is lost on {node}"


def random_session(
    seed: int,
    *,
    most_jobs: int = 3,
    words: frozenset[str] | None = None,
    hard: bool = False,
    policies: bool = False,
    elastic: bool = False,
    users: bool = False,
    opened: Callable[[JobRun], None] = lambda _: None,
) -> tuple[World, list[JobRun]]:
    """Run random scenarios of `words` (random ones, if not given) under random faults, all drawn from `seed`.

    `hard` adds a network that loses, repeats, delays and reorders messages and is cut in one direction, workers that
    pause and come back, full disks, and deaths of the owner. With `policies`
    anything may be run twice at a time. With `elastic` nodes join for what waits, drain and are lost. With `users`
    tasks are cancelled and vertices ended as successes, and some vertices have priorities. `opened` is told
    of each job before it is submitted.
    """
    rng = random.Random(seed)
    count = rng.choice([1, 1, 1, rng.randint(1, most_jobs)])
    scenarios = [random_scenario(rng, f"j{at}" if count > 1 else "", words=words) for at in range(count)]
    faulty = rng.random() < 0.7
    touching = random.Random(f"users {seed}") if users else None
    for scenario in scenarios if touching is not None else ():
        for vertex in scenario.graph.vertices.values():
            vertex.priority = touching.choice([0, 0, 2, -1])

    def often(probability: float) -> float:
        return probability if faulty and rng.random() < 0.4 else 0.0

    nodes = rng.choice([1, 1, 2, 3])
    faults = Faults(
        seed=seed,
        worker_lost=often(0.1),
        node_lost=rng.choice([0.0, 0.5]),
        user=often(0.1),
        memory=often(0.05),
        infrastructure=often(0.1),
        output_lost=often(0.1),
        duplicate=often(0.2),
        started=often(0.3),
        give_back=often(0.2),
        most=rng.choice([1, 3, 10, 40]),
    )
    tuning = Tuning(
        target_s=rng.choice([0.5, 5.0, 50.0]),
        shared_memory=nodes == 1,
        cones=rng.random() < 0.8,
        backups=policies,
    )
    rng.random()  # a draw that the seeds were found with
    pace = rng.random()
    served = sum(scenario.most_served for scenario in scenarios)
    capacity = rng.choice([None, Resources(memory=100, gpu=1)]) if elastic else None
    changes: dict[str, Any] = {"elastic": random_elastic(random.Random(f"nodes {seed}"), capacity)} if elastic else {}
    return run_scenarios(
        scenarios,
        **changes,
        submit_at=[rng.choice([0.0, rng.random() * 5]) for _ in scenarios],
        cancel_at=[rng.choice([None, None, None, None, rng.random() * 10]) for _ in scenarios],
        workers=rng.randint(max(2, nodes), 6) + served * (nodes if hard else 1),
        nodes=nodes,
        ticks=rng.random() < 0.5,
        policies=seed if policies else None,
        opened=opened,
        users=touching,
        seconds=lambda vertex, _: (0.01, 1.0, 3.0)[int(pace * 1000 + len(vertex) * 7 + ord(vertex[-1])) % 3],
        nbytes=rng.choice([0, 1000, 2**22]),
        faults=faults,
        tuning=tuning,
        capacity=capacity if elastic else rng.choice([None, Resources(memory=100, gpu=1)]),
        cache=rng.choice([0.0, 0.5, 1.0]),
        **(random_hardship(random.Random(f"hard {seed}")) if hard else {}),
    )


def random_elastic(rng: random.Random, capacity: Resources | None) -> Elastic:
    """Return how the nodes of a session change."""
    return Elastic(
        kinds=(NodeKind(rng.randint(1, 3), capacity or Resources(), "more", limit=rng.choice([1, 2, None])),),
        delay_s=rng.choice([0.0, 1.0, 10.0]),
        idle_s=rng.choice([0.0, 5.0]),
        every_s=rng.choice([0.1, 1.0]),
        drained=rng.choice([0.0, 0.1, 0.5]),
        lost=rng.choice([0.0, 0.0, 0.1]),
        most=rng.choice([1, 3, 10]),
    )


def random_hardship(rng: random.Random) -> dict[str, Any]:
    """Return what makes a session hard: a network and its faults, and how often its owner dies."""

    def often(probability: float) -> float:
        return probability if rng.random() < 0.4 else 0.0

    network = Network(
        latency_s=rng.choice([0.001, 0.05]),
        lost=often(rng.choice([0.02, 0.3])),
        repeated=often(0.2),
        late=often(0.2),
        late_s=rng.choice([0.5, 10.0]),
        cut=often(0.05),
        paused=often(0.05),
        disk=often(0.01),
        reported=rng.choice([0.0, 0.5, 1.0]),
        until_s=300.0,
    )
    return {
        "network": network if rng.random() < 0.8 else None,
        "deaths": rng.choice([0.0, 0.005, 0.02, 0.1]),
        "most_deaths": rng.choice([1, 2, 5]),
        "disk_full": rng.choice([0.0, 0.0, 0.5]),
    }


def main(arguments: Sequence[str]) -> None:
    """Replay a session, tell graphs and stories: `python -m tests.simulation.world SEED [WORD,...|-] [hard] [twice]
    [users]`.
    """
    seed = int(arguments[0])
    words = frozenset(filter(None, arguments[1].split(","))) if arguments[1:2] not in ([], ["-"]) else None
    told: list[JobRun] = []

    def tell(job: JobRun) -> None:
        told.append(job)
        sys.stdout.write(f"{job.id}, {job.graph.on_failure.value}\n{to_text(job.graph)}\n")

    try:
        hard, policies, users = (word in arguments for word in ("hard", "twice", "users"))
        random_session(seed, words=words, hard=hard, policies=policies, users=users, opened=tell)
    finally:
        for job in told:
            sys.stdout.write("\n".join((f"{job.id}: {job.outcome}", *job.inspector.story(), "")))


if __name__ == "__main__":
    main(sys.argv[1:])
