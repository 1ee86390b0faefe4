"""A master among demons: every legal report in any order, at any moment, early, late and twice.

There is no loop, no pool and no simulator here: `Chaos` plays all of them with dice, keeps books of what is stored and
who runs what, and after each `handle` checks the engine's invariants. After some steps it calms down and does only
good; the job must then come to its end, and leave nothing behind.
"""

import random
from typing import Any

from msgspec.structs import replace

from tests.simulation.scenarios import MANAGERS, Scenario, reckless
from weft.engine.commands import (
    Acquire,
    Complete,
    Free,
    FreeParts,
    Launch,
    Probe,
    Release,
    SetTimer,
    Shrink,
    Stop,
    Weigh,
    Withdraw,
    single_launches,
)
from weft.engine.events import (
    CancelRequested,
    Done,
    Failed,
    GaveBack,
    Granted,
    Hit,
    IdleTick,
    JobSubmitted,
    Miss,
    Offered,
    OutputLost,
    Progress,
    Refused,
    Started,
    TimerFired,
    UserEvent,
    Waiting,
    Weighed,
    WorkerJoined,
    WorkerLost,
)
from weft.engine.invariants import check
from weft.engine.machines.job import JobState
from weft.engine.machines.task import TaskState
from weft.engine.master import Master
from weft.engine.tuning import Tuning
from weft.graph.logical import Outcome, Trigger, VertexKind
from weft.graph.validate import mark_results
from weft.model.failures import Failure

Task = tuple[str, int]


class Lease:
    """A lease that runs: how far it (or its rival) is, how far its `own` commits go, and what it was told."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.lo = self.own = launch.lo
        self.hi = launch.hi
        self.stop = False
        self.shrink = False
        self.rival: Lease | None = None
        self.fenced = False

    def tasks(self, lo: int, hi: int) -> list[Task]:
        """The tasks of units `lo:hi`, in the order in which they run."""
        cone = self.launch.cone
        if cone is None:
            return [(self.launch.vertex, i) for i in range(lo, hi)]
        return [task for unit in range(lo, hi) for task in cone.tasks(unit)]


class Chaos:
    """One job, driven by dice."""

    def __init__(
        self,
        rng: random.Random,
        scenario: Scenario,
        *,
        workers: int,
        nodes: int,
        tuning: Tuning,
        policies: random.Random | None = None,
    ) -> None:
        self.rng = rng
        self.scenario = scenario
        mark_results(scenario.graph)
        self.policies = policies
        chosen = reckless(policies) if policies is not None else {}
        self.master = Master(scenario.graph, "chaos", tuning, {**MANAGERS, **chosen})
        self.backups = self.backups_of_many = 0
        self.avoided = 0
        self.unread = 0
        self.weighs: list[Weigh] = []
        self.core = self.master.core
        self.now = 0.0
        self.nodes = nodes
        self.workers: dict[int, int] = {w: w % nodes for w in range(workers)}
        self.free_workers = set(self.workers)
        self.next_worker = workers
        self.leases: dict[int, Lease] = {}
        self.requests: dict[int, Acquire] = {}
        self.granted: dict[int, list[int]] = {}
        self.timers: list[SetTimer] = []
        self.probes: list[Probe] = []
        self.stored: set[Task] = set()
        self.lost_late: set[Task] = set()
        self.pieces_gone: dict[tuple[str, int], set[int]] = {}
        self.old: list[Any] = []
        self.ended: Complete | None = None
        self.log: list[str] = []
        self.emitted: set[str] = set()

    # ------------------------------------------------------------------------------------------------- the master

    def tell(self, *events: Any) -> None:
        """Tell the master; carry out what it says."""
        self.now += self.rng.choice([0.0, 0.0, 0.1, 1.0])
        events = tuple(replace(event, now=self.now) for event in events)
        self.log.extend(str(event) for event in events)
        commands = single_launches(self.master.handle(events))
        self.log.extend(f"    {command}" for command in commands)
        for command in commands:
            self.carry_out(command)
        check(self.core)
        self.avoided = max(self.avoided, len(self.core.avoided))

    def carry_out(self, command: Any) -> None:
        """Take one command into the books."""
        match command:
            case Launch():
                self.launch(command)
            case Stop():
                assert command.lease in self.leases, f"{command} is for a lease that does not run"
                self.leases[command.lease].stop = True
            case Shrink():
                assert command.lease in self.leases, f"{command} is for a lease that does not run"
                self.leases[command.lease].shrink = True
            case Weigh():
                self.weighs.append(command)
            case Acquire():
                self.requests[command.request] = command
            case Withdraw():
                assert command.request in self.requests
                del self.requests[command.request]
            case Release():
                self.granted[command.request].remove(command.worker)
                if command.worker in self.workers:
                    self.free_workers.add(command.worker)
            case Free():
                for i in range(command.lo, command.hi):
                    task = (command.vertex, i)
                    assert task in self.stored or task in self.lost_late, f"{command}: not stored"
                    self.stored.discard(task)
                    self.expect_unread(task)
            case FreeParts():
                for link in self.core.by_id[command.vertex].outputs:
                    if link.router is not None and link.router.partitions:
                        for vertex, i in self.stored:
                            if vertex == command.vertex:
                                gone = self.pieces_gone.setdefault((link.edge.id, i), set())
                                gone.update(command.parts)
            case SetTimer():
                self.timers.append(command)
            case Probe():
                self.probes.append(command)
            case Complete():
                assert self.ended is None, "it ended twice"
                self.ended = command

    def launch(self, command: Launch) -> None:
        """A lease must find its inputs, its worker must be free."""
        worker = command.worker
        assert command.lease not in self.leases
        if worker >= 0:
            held = [w for workers in self.granted.values() for w in workers]
            assert worker in self.workers, f"{command} is for a worker that is gone"
            assert worker in self.free_workers or worker in held, f"{command}: its worker is busy"
            self.free_workers.discard(worker)
        lease = Lease(command)
        inside: set[Task] = set()
        for task in lease.tasks(lease.lo, lease.hi):
            self.expect_inputs(task, inside)
            assert task not in inside
            inside.add(task)
        first = self.leases.get(command.backup_of)
        for other in self.leases.values():
            if other is first:
                assert inside == set(other.tasks(other.lo, other.hi)), f"{command} is no backup of {other.launch}"
            elif not other.stop:  # what was told to stop may still be at it
                assert not inside & set(other.tasks(other.lo, other.hi)), f"{command} overlaps {other.launch}"
        self.leases[command.lease] = lease
        if command.backup_of:
            assert first is not None
            assert first.launch.worker != worker
            self.backups += 1
            self.backups_of_many += lease.hi - lease.lo > 1
            lease.rival, first.rival = first, lease

    def expect_inputs(self, task: Task, inside: set[Task]) -> None:
        """What the task reads is stored, whole, or made before it in the same lease."""
        vertex, index = task
        for link in self.core.by_id[vertex].inputs:
            scheduling, src = link.edge.scheduling, link.src
            plain = scheduling.when is Trigger.ALL_DONE and scheduling.outcome is Outcome.SUCCESS
            if scheduling.concurrent or not plain or not link.data:
                continue
            assert link.router is not None
            for lo, hi, part_lo, part_hi in link.router.inputs(index):
                for i in range(lo, hi):
                    there = (src.id, i) in self.stored or (src.id, i) in inside
                    assert there or src.state[i] == TaskState.SKIPPED, f"{task} starts without {src.id}[{i}]"
                    gone = self.pieces_gone.get((link.edge.id, i), set()) & set(range(part_lo, part_hi))
                    assert not gone, f"{task} starts, but pieces {sorted(gone)} of {src.id}[{i}] are freed"

    def expect_unread(self, task: Task) -> None:
        """Nobody reads what was freed."""
        vertex, index = task
        if self.core.by_id[vertex].state[index] != TaskState.FREED:
            return
        for lease in self.leases.values():
            if lease.stop:
                continue
            tasks = lease.tasks(lease.lo, lease.hi)
            if task in tasks:
                continue
            for name, i in tasks:
                for link in self.core.by_id[name].inputs:
                    if (
                        link.src.id != vertex
                        or link.router is None
                        or link.edge.scheduling.when is not Trigger.ALL_DONE
                    ):
                        continue
                    reads = any(lo <= index < hi for lo, hi, _, _ in link.router.inputs(i))
                    assert not reads, f"{task} is freed while {name}[{i}] reads it"

    # ------------------------------------------------------------------------------------------------- the world

    def store(self, tasks: list[Task]) -> None:
        """Outputs of a root are there now."""
        for vertex, index in tasks:
            stage = self.core.by_id[vertex]
            if stage.vertex.kind is VertexKind.FINITE:
                self.stored.add((vertex, index))
                for link in stage.outputs:
                    self.pieces_gone.pop((link.edge.id, index), None)

    def end_lease(self, number: int) -> Lease:
        """A lease is over: its worker is free, unless it was granted for longer."""
        lease = self.leases.pop(number)
        worker = lease.launch.worker
        held = [w for workers in self.granted.values() for w in workers]
        if worker >= 0 and worker in self.workers and worker not in held:
            self.free_workers.add(worker)
        return lease

    def committed(self, lease: Lease, hi: int, *, end: bool = False) -> None:
        """Units below `hi` of a lease are in the store: its rival commits none of them, and nothing after the end."""
        if lease.rival is not None:
            lease.rival.lo = max(lease.rival.lo, min(hi, lease.rival.hi))
            lease.rival.fenced = lease.rival.fenced or end

    def size(self) -> int:
        return self.rng.choice([0, 10, 2**22])

    def done(self, number: int, *, whole: bool = False) -> Done:
        """A good end, perhaps of less than was given."""
        lease = self.leases[number]
        launch, rng = lease.launch, self.rng
        hi = lease.hi if whole or rng.random() < 0.7 else rng.randint(lease.lo, lease.hi)
        reached = -1
        vertex = launch.vertex
        cone = launch.cone
        one = lease.hi - lease.lo == launch.hi - launch.lo == 1
        if not whole and not lease.stop and cone is not None and cone.linear and one and rng.random() < 0.3:
            hi, reached = lease.hi, rng.randrange(len(cone.members))
            vertex = cone.members[reached]
        values = None
        if vertex in self.scenario.answers or self.core.by_id[vertex].vertex.expands:
            answer = self.scenario.answers.get(vertex, lambda: None)
            values = [answer() for _ in range(lease.lo, hi)]
        self.end_lease(number)
        self.store([(vertex, i) for i in range(lease.lo, hi)])
        self.committed(lease, hi, end=True)
        nbytes = self.size() * max(1, hi - lease.lo)
        return Done(0.0, number, hi, rng.choice([0.0, 1e-6, 1.0]) * (hi - lease.lo), nbytes, None, reached, values)

    def failed(self, number: int) -> Failed:
        """A bad end: some units are done, one task of the next has failed."""
        lease = self.leases[number]
        rng = self.rng
        unit = rng.randint(lease.lo, lease.hi - 1)
        if lease.own < lease.lo and self.policies is not None and self.policies.random() < 0.5:
            unit = lease.own  # it is behind its rival
        if self.core.by_id[lease.launch.vertex].vertex.expands:
            unit = lease.lo  # an answer cannot come with a failure
        vertex, index = rng.choice(lease.tasks(unit, unit + 1))
        kind = rng.choice([Failure.USER, Failure.MEMORY, Failure.INFRASTRUCTURE, Failure.INFRASTRUCTURE, Failure.INPUT])
        lost = None
        if self.policies is not None and self.policies.random() < 0.5:
            kind = Failure.INPUT
        if kind is Failure.INPUT:
            inside = set(lease.tasks(lease.lo, lease.hi))
            reads = [
                (link.src.id, i)
                for link in self.core.by_id[vertex].inputs
                if link.router is not None
                for lo, hi, _, _ in link.router.inputs(index)
                for i in range(lo, hi)
                if (link.src.id, i) in self.stored and (link.src.id, i) not in inside
            ]
            if not reads:
                kind = Failure.INFRASTRUCTURE
            elif self.policies is not None and self.policies.random() < 0.7:
                kind, lost = Failure.READ, rng.choice(reads)
                self.unread += 1
            else:
                lost = rng.choice(reads)
                self.stored.discard(lost)
                inner = self.core.by_id[lost[0]].region == self.core.by_id[vertex].region >= 0
                if self.core.status is not JobState.RUNNING or lease.stop or inner:
                    self.lost_late.add(lost)
        self.end_lease(number)
        self.store([(lease.launch.vertex, i) for i in range(lease.lo, unit)])
        self.committed(lease, unit)
        return Failed(0.0, number, unit, vertex, index, kind, "chaos", "", 0.1, self.size(), lost)

    def stopped(self, number: int) -> Failed:
        lease = self.end_lease(number)
        return Failed(0.0, number, lease.own, lease.launch.vertex, lease.own, Failure.STOPPED, "stopped")

    # ------------------------------------------------------------------------------------------------- the dice

    def step(self, *, calm: bool) -> None:
        """Let one thing happen."""
        rng = self.rng
        actions: list[str] = []
        if self.free_workers:
            actions += ["offer"] * 4
        if self.leases:
            actions += ["done"] * 4
        if self.requests:
            actions += ["grant"] * 3
        if self.timers:
            actions += ["timer"] if self.policies is None else ["timer"] * 8  # looks among them
        if self.probes:
            actions += ["probe"] * 2
        if self.weighs:
            actions += ["weigh"]
        if self.leases and not calm:
            actions += ["fail", "progress", "started", "give_back", "worker_lost", "late", "stop_answer"]
        if not calm:
            actions += ["output_lost", "idle", "join", "event", "refuse"]
        if calm and len(self.workers) < 16:
            actions += ["join"]
        if calm:
            actions += ["event"]
        getattr(self, f"do_{rng.choice(actions)}")(calm)

    def do_offer(self, calm: bool) -> None:
        """Idle workers are offered, some of them or all."""
        free = sorted(self.free_workers)
        self.rng.shuffle(free)
        self.tell(Offered(0.0, free if calm else free[: self.rng.randint(1, len(free))]))

    def do_done(self, calm: bool) -> None:
        """A lease ends well; calmly, services only when they are told to."""
        numbers = sorted(self.leases)
        if calm:
            served = [n for n in numbers if self.is_service(n) and self.leases[n].lo < self.leases[n].hi]
            served = [n for n in served if not self.leases[n].stop]
            numbers = [n for n in numbers if n not in served]
        if not numbers:
            return
        number = self.rng.choice(numbers)
        lease = self.leases[number]
        if lease.fenced or (lease.stop and self.rng.random() < 0.7):
            report: Any = self.stopped(number)
        else:
            report = self.done(number, whole=calm)
        self.old.append(report)
        self.tell(report)

    def is_service(self, number: int) -> bool:
        return self.core.by_id[self.leases[number].launch.vertex].vertex.kind is VertexKind.SERVICE

    def do_stop_answer(self, calm: bool) -> None:
        """A lease that was told to stop has."""
        numbers = [n for n, lease in self.leases.items() if lease.stop]
        if numbers:
            self.tell(self.stopped(self.rng.choice(numbers)))

    def do_fail(self, calm: bool) -> None:
        """A lease ends badly."""
        numbers = [n for n, lease in sorted(self.leases.items()) if lease.lo < lease.hi and not lease.fenced]
        if not numbers:
            return
        report = self.failed(self.rng.choice(numbers))
        self.old.append(report)
        before = set(self.lost_late)
        if report.kind is Failure.INPUT and report.lost is not None:
            self.lost_late.add(report.lost)  # if its reader is given up it is dropped, as if it were there
        self.tell(report)
        self.lost_late = before

    def do_progress(self, calm: bool) -> None:
        """A lease says how far it is."""
        number = self.rng.choice(sorted(self.leases))
        lease = self.leases[number]
        if self.core.by_id[lease.launch.vertex].vertex.expands or lease.stop or lease.fenced:
            return
        hi = self.rng.randint(lease.lo, lease.hi)
        self.store([(lease.launch.vertex, i) for i in range(lease.lo, hi)])
        lease.lo = lease.own = hi
        self.committed(lease, hi)
        self.tell(Progress(0.0, number, hi, self.size()))

    def do_started(self, calm: bool) -> None:
        """A lease says that it began."""
        self.tell(Started(0.0, self.rng.choice(sorted(self.leases))))

    def do_give_back(self, calm: bool) -> None:
        """The tail of a lease comes back."""
        number = self.rng.choice(sorted(self.leases))
        lease = self.leases[number]
        if lease.stop or lease.hi - lease.lo < 2:
            return
        lease.hi = self.rng.randint(lease.lo + 1, lease.hi)
        self.tell(GaveBack(0.0, number, lease.hi))

    def do_worker_lost(self, calm: bool) -> None:
        """A worker dies, perhaps with its node's memory; another takes its place."""
        worker = self.rng.choice(sorted(self.workers))
        node = self.workers.pop(worker)
        self.free_workers.discard(worker)
        for number in [n for n, lease in self.leases.items() if lease.launch.worker == worker]:
            del self.leases[number]
        for held in self.granted.values():
            if worker in held:
                held.remove(worker)
        whole = not self.core.tuning.shared_memory and self.rng.random() < 0.3
        late: set[Task] = set()
        if whole:
            for stage in self.core.stages:
                if stage.node_of is not None:
                    gone = {(stage.id, i) for i, home in enumerate(stage.node_of) if home == node} & self.stored
                    self.stored -= gone
                    late |= gone
        before = set(self.lost_late)
        self.lost_late |= late  # what is lost with the node may still be freed by what fails with the worker
        self.tell(WorkerLost(0.0, worker, "chaos", whole, crashed=worker % 2 == 1))
        if self.core.status is JobState.RUNNING:
            self.lost_late = before
        self.do_join(calm)

    def do_join(self, calm: bool) -> None:
        """A worker comes."""
        worker, self.next_worker = self.next_worker, self.next_worker + 1
        self.workers[worker] = worker % self.nodes
        self.free_workers.add(worker)
        self.tell(WorkerJoined(0.0, worker, worker % self.nodes))

    def do_output_lost(self, calm: bool) -> None:
        """Something stored cannot be read any more."""
        if self.stored:
            vertex, index = self.rng.choice(sorted(self.stored))
            if self.core.by_id[vertex].state[index] in (TaskState.FINISHED, TaskState.FREED):
                self.stored.remove((vertex, index))
                if self.core.status is not JobState.RUNNING:
                    self.lost_late.add((vertex, index))  # nothing is made again for a job that is ending
                self.tell(OutputLost(0.0, vertex, index, index + 1, "chaos"))

    def do_grant(self, calm: bool) -> None:
        """A request is met, if there are workers enough."""
        number = self.rng.choice(sorted(self.requests))
        wants = [
            (vertex, choice)
            for vertex, count, alternatives, _ in self.requests[number].wants
            for choice in [self.rng.randrange(len(alternatives)) for _ in range(count)]
        ]
        if len(wants) > len(self.free_workers):
            if calm:
                self.do_join(calm)
            return
        workers = self.rng.sample(sorted(self.free_workers), len(wants))
        del self.requests[number]
        self.granted[number] = list(workers)
        self.free_workers -= set(workers)
        self.tell(Granted(0.0, number, tuple((v, w, c) for (v, c), w in zip(wants, workers, strict=True))))

    def do_refuse(self, calm: bool) -> None:
        """A request can never be met."""
        if self.requests and self.rng.random() < 0.3:
            number = self.rng.choice(sorted(self.requests))
            del self.requests[number]
            self.tell(Refused(0.0, number, "chaos has no such thing"))

    def do_timer(self, calm: bool) -> None:
        """A timer goes off, in any order."""
        timer = self.timers.pop(self.rng.randrange(len(self.timers)))
        self.now = max(self.now, timer.at)
        self.tell(TimerFired(0.0, timer.timer))

    def do_weigh(self, calm: bool) -> None:
        """What a lease reads is counted, perhaps when it is over."""
        weigh = self.weighs.pop(self.rng.randrange(len(self.weighs)))
        self.tell(Weighed(0.0, weigh.lease, self.size()))

    def do_probe(self, calm: bool) -> None:
        """The cache answers, perhaps that somebody is at it, perhaps twice."""
        probe = self.rng.choice(self.probes)
        if not calm and self.rng.random() < 0.3:
            self.tell(Waiting(0.0, probe.vertex, probe.index, "run-7"))
            return
        self.probes.remove(probe)
        stage = self.core.by_id[probe.vertex]
        if self.rng.random() < 0.5 and not stage.vertex.expands:
            if stage.state[probe.index] == TaskState.PROBING:
                self.store([(probe.vertex, probe.index)])
            self.tell(Hit(0.0, probe.vertex, probe.index, 1))
        else:
            self.tell(Miss(0.0, probe.vertex, probe.index, "never ran"))

    def do_idle(self, calm: bool) -> None:
        """Workers idle."""
        self.tell(IdleTick(0.0))

    def do_event(self, calm: bool) -> None:
        """A running task emits an event; calmly, each that somebody waits for, once."""
        names = [
            (lease.launch.vertex, name)
            for lease in self.leases.values()
            for name in self.scenario.emits.get(lease.launch.vertex, ())
        ]
        names = [pair for pair in names if not calm or "/".join(pair) not in self.emitted]
        if names:
            vertex, name = self.rng.choice(names)
            self.emitted.add(f"{vertex}/{name}")
            self.tell(UserEvent(0.0, vertex, 0, name))

    def do_late(self, calm: bool) -> None:
        """An old report comes again."""
        if self.old:
            self.tell(self.rng.choice(self.old))

    # ------------------------------------------------------------------------------------------------- a whole job

    def run(self, steps: int, *, cancel_at: int = -1, most: int = 20_000) -> None:
        """Submit; `steps` of chaos; then calm until the job ends. AssertionError if it does not."""
        self.tell(*[WorkerJoined(0.0, w, node) for w, node in self.workers.items()], JobSubmitted(0.0))
        for at in range(steps + most):
            if self.ended is not None:
                break
            if at == cancel_at:
                self.tell(CancelRequested(0.0, "chaos"))
                continue
            self.step(calm=at >= steps)
        assert self.ended is not None, "the job does not end"
        self.expect_clean()

    def expect_clean(self) -> None:
        """Nothing is left but results."""
        core = self.core
        rows = {(s.id, i): TaskState(s.state[i]) for s in core.stages for i in range(max(s.n, 0))}
        finished = {task for task, state in rows.items() if state is TaskState.FINISHED}
        assert self.ended is not None
        if self.ended.state == "succeeded":
            assert self.stored == finished, f"left behind or missing: {sorted(self.stored ^ finished)[:5]}"
        else:
            assert self.stored <= finished, f"left behind: {sorted(self.stored - finished)[:5]}"
        assert core.tokens == core.graph.limits
        assert not core.leases


__all__ = ["Chaos"]
