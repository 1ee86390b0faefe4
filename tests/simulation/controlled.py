"""Random jobs with a controller: gangs, services, restarts in place, and a controller that throws dice.

Run one with `python -m tests.simulation.controlled SEED [hard]`.
"""

import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.simulation.scenarios import Scenario, work
from tests.simulation.world import World, expect_clean, live, loop_of, random_elastic, random_hardship
from weft.backends.simulator import Faults
from weft.engine.commands import Launch
from weft.engine.decisions import Conclude, Decision, Emit, StartTasks, StopTasks, WakeAt
from weft.engine.events import UserEvent
from weft.engine.invariants import check
from weft.engine.policy import ControllerView, JobController
from weft.engine.ports import Job
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, VertexHandle, after
from weft.graph.draw import to_text
from weft.graph.logical import CONCURRENT, NONE, Backoff, Edge, Manager, Range, RestartPolicy, Retry, Storage
from weft.graph.task import DECIDE
from weft.graph.validate import validate
from weft.model.resources import Resources
from weft.runtime.job import JobRun
from weft.testing.inside import core_of

_OWN = 1000
"""The least number of a request of a control vertex; those of users are smaller."""
ENDS = ("succeeded", "failed", "cancelled")


class Dice(JobController):
    """A controller that starts and stops anything, obeys some requests, and concludes the job after some time.

    The memo has the number of calls, and the payloads of the requests in order.
    """

    def __init__(self, seed: int, until_s: float, asks: int, faulty: bool) -> None:
        self.seed = seed
        self.until_s = until_s
        self.asks = asks
        self.faulty = faulty

    def decide(self, view: ControllerView, memo: Any) -> tuple[Sequence[Decision], Any]:
        """See `JobController.decide`."""
        count, heard = (0, ()) if memo is None else memo
        rng = random.Random(f"{self.seed} {count}")
        heard = (*heard, *(request.payload for request in view.requests))
        memo = (count + 1, heard)
        assert all(task == view.vertices[task.vertex][task.index] for task in view.changed)
        for vertex in view.vertices.values():
            assert vertex.count(*set(vertex.states)) == len(vertex) == len(list(vertex))
        if self.faulty and rng.random() < 0.02:
            raise ValueError("the dice have fallen off the table")
        if count >= self.asks or view.now >= self.until_s:
            return [Conclude(rng.choice(ENDS), "the game is over")], memo
        return [*self._moves(rng, view, count), WakeAt(view.now + rng.choice([0.1, 1.0, 5.0, 20.0]))], memo

    def _moves(self, rng: random.Random, view: ControllerView, count: int) -> list[Decision]:
        tables = list(view.vertices.values())
        names = {request.name for request in view.requests}
        if "suspend" in names or rng.random() < 0.03:
            return [StopTasks(each.id, 0, len(each), "suspended") for each in tables]
        if count == 0 or "resume" in names or rng.random() < 0.1:
            return [StartTasks(each.id, 0, rng.randint(1, len(each))) for each in tables]
        moves: list[Decision] = []
        for each in tables:
            lo = rng.randint(0, len(each))
            hi = rng.randint(lo, len(each))
            dice = rng.random()
            if dice < 0.25:
                moves.append(StartTasks(each.id, lo, hi))
            elif dice < 0.4:
                moves.append(StopTasks(each.id, lo, hi, "dice"))
            elif dice < 0.45:
                moves.append(Emit(each.id, "e"))
            elif dice < 0.7:
                moves += [
                    StartTasks(each.id, task.index, task.index + 1)
                    for task in each
                    if task.state in ("failed", "succeeded") and rng.random() < 0.5
                ]
            for task in each:  # a task may start in this tick, and then waits for nothing
                assert task.state == "waiting" or not each.why(task.index)
        for bubble in view.bubbles.values():
            if bubble.never and rng.random() < 0.7:
                moves += [StopTasks(each.id, 1, len(each), bubble.reason) for each in tables]
        return moves


class Steady(JobController):
    """A controller that starts all tasks, suspends the job at 0.5 s, resumes it at 2 s, starts again what has failed,
    and concludes the job when all tasks of `worker` have succeeded.
    """

    def __init__(self, worker: str) -> None:
        self.worker = worker

    def decide(self, view: ControllerView, memo: Any) -> tuple[Sequence[Decision], Any]:
        """See `JobController.decide`."""
        phase = "started" if memo is None else memo
        wake: list[Decision] = [WakeAt(0.5)] if memo is None else []
        if phase == "started" and view.now >= 0.5:
            phase, wake = "suspended", [WakeAt(2.0)]
        if phase == "suspended" and view.now >= 2.0:
            phase = "resumed"
        tables = list(view.vertices.values())
        if phase == "suspended":
            return [*(StopTasks(each.id, 0, len(each), phase) for each in tables), *wake], phase
        if view.vertices[self.worker].count("succeeded") == len(view.vertices[self.worker]):
            return [Conclude("succeeded", "all have succeeded")], phase
        idle = [task for each in tables for task in each if task.state in ("held", "failed")]
        return [*(StartTasks(task.vertex, task.index, task.index + 1) for task in idle), *wake], phase


def suspended() -> Scenario:
    """A service and three workers in a whole bubble, under a steady controller, and a final vertex."""
    g = Graph("suspended", controller=Manager("steady", {"worker": "w"}))
    ps = g.service(work, n=1, name="ps", controlled=True)
    w = g.task(work, after(ps), n=3, name="w", controlled=True, restart=RestartPolicy.ON_FAILURE)
    g.bubble(ps, w, name="whole", whole=True)
    g.add(work, n=1, name="z", final=True)
    return Scenario(g, frozenset())


def random_controlled(rng: random.Random, prefix: str = "") -> Scenario:
    """Return a legal graph with a controller, controlled vertices, and some others around them."""
    params = {
        "seed": rng.randrange(10**6),
        "until_s": rng.choice([10.0, 60.0, 200.0]),
        "asks": rng.choice([5, 20, 80]),
        "faulty": rng.random() < 0.1,
    }
    backoff = Backoff(limit=rng.choice([None, None, 0, 3]), delay_s=rng.choice([0.0, 0.5, 5.0]))
    g = Graph(f"{prefix}game", controller=Manager("dice", params), backoff=backoff, limits={"slots": 2})
    made = Scenario(g, frozenset())
    before = g.add(work, n=rng.randint(1, 2), name=f"{prefix}before") if rng.random() < 0.3 else None
    nodes: list[VertexHandle] = []
    for at in range(rng.randint(1, 3)):
        nodes.append(_controlled(rng, g, made, f"{prefix}c{at}", before, nodes))
    if rng.random() < 0.6:
        members = nodes[: rng.randint(1, len(nodes))]
        g.bubble(*members, name=f"{prefix}gang", whole=True)
    if rng.random() < 0.3:
        reads = [after(node, concurrent=True) for node in nodes[:1] if rng.random() < 0.3]
        g.add(work, *reads, n=rng.randint(1, 3), name=f"{prefix}beside")
    if rng.random() < 0.15:
        helper = g.service(work, n=1, name=f"{prefix}helper", resources=Resources(cpu=rng.choice([0, 1])))
        target = rng.choice(nodes).id
        g.edges.append(Edge(helper.id, target, NONE, CONCURRENT, Storage.NONE, name=f"{helper.id}-{target}"))
    if rng.random() < 0.3:
        g.add(work, n=1, name=f"{prefix}last", final=True)
    validate(g)
    return made


def _controlled(
    rng: random.Random,
    g: Graph,
    made: Scenario,
    name: str,
    before: VertexHandle | None,
    others: Sequence[VertexHandle],
) -> VertexHandle:
    inputs = [after(before)] if before is not None and rng.random() < 0.5 else []
    if others and rng.random() < 0.6:
        source = rng.choice(others)
        way: dict[str, Any] = rng.choice([{}, {"fraction": 0.5}, {"event": "e"}])
        made.emits[source.id] = ("e",)
        inputs.append(after(source, concurrent=True, **way))
    n = rng.randint(1, 4)
    fields: dict[str, Any] = {
        "controlled": True,
        "restart": rng.choice([None, None, *RestartPolicy]),
        "retry": Retry(user=rng.choice([0, 1]), memory=rng.choice([0, 2]), infrastructure=rng.choice([0, 1, 8])),
        "resources": rng.choice(
            [
                Resources(),
                Resources(),
                Resources(cpu=0),
                Resources(cpu=2),
                Resources(memory=40),
                Resources(tokens=(("slots", 1),)),
                Resources(cpu=0, tokens=(("slots", 1),)),
            ]
        ),
        "timeout_s": rng.choice([None, None, None, 2.5]),
    }
    if rng.random() < 0.4:
        service = g.service(work, *inputs, n=n, name=name, **fields)
        if rng.random() < 0.5:
            made.brief.add(service.id)
        return service
    width: int | Range = n if rng.random() < 0.5 else Range(1, n)
    return g.task(work, *inputs, n=width, name=name, **fields)


class Table(World):
    """A world that sends requests to controllers, and keeps books of the attempts at their tasks."""

    def __init__(self, scenarios: dict[str, Scenario], **simulator: Any) -> None:
        super().__init__(scenarios, **simulator)
        self.managers = {**self.managers, "dice": Dice}
        self.sent: dict[str, list[int]] = {name: [] for name in scenarios}

    def launch(self, job: Job, lease: Launch) -> None:
        """Check that no other attempt of a controlled task lives, not even one that is being stopped."""
        if core_of(job).by_id[lease.vertex].control is not None:
            for owner, other in self.live.values():
                same = owner is job and other.vertex == lease.vertex and other.lo < lease.hi and lease.lo < other.hi
                assert not same, f"{lease} begins while {other} lives"
        super().launch(job, lease)
        if lease.vertex.endswith("helper"):
            rng = random.Random(f"{job.id} {lease.lease}")
            for _ in range(rng.randint(0, 3)):
                self._later(rng.random() * 5, partial(self.steer, job, lease, rng.random() < 0.7))

    def steer(self, job: Job, lease: Launch, asks: bool) -> None:
        """Let a control vertex ask the controller, or change the resources of what it controls."""
        if job.outcome is not None:
            return
        number = _OWN + sum(map(len, self.sent.values()))
        what: tuple[str, str, Any]
        if asks:
            self.sent[job.id].append(number)
            what = ("request", "", ("scale", number))
        else:
            target = next(link.dst.id for link in core_of(job).by_id[lease.vertex].outputs)
            what = ("resources", target, (Resources(cpu=number % 2),))
        payload = (f"{lease.lease}.{number}", *what, "dice")
        loop_of(self).post(job.id, UserEvent(self.clock.time, lease.vertex, 0, DECIDE, payload))

    def ask(self, name: str, number: int, word: str) -> None:
        """Send a request, if the job runs."""
        job = self.jobs.get(name)
        if job is not None and job.outcome is None:
            self.sent[name].append(number)
            loop_of(self).request(job, word, number)


def random_game(
    seed: int, *, hard: bool = False, opened: Callable[[JobRun], None] = lambda _: None
) -> tuple[World, list[JobRun]]:
    """Run random jobs with controllers under random faults, all drawn from `seed`; see `world.random_session`."""
    rng = random.Random(f"game {seed}")
    count = rng.choice([1, 1, 2, 3])
    scenarios = {f"job{at}": random_controlled(rng, f"j{at}" if count > 1 else "") for at in range(count)}
    faulty = rng.random() < 0.7

    def often(probability: float) -> float:
        return probability if faulty and rng.random() < 0.4 else 0.0

    nodes = rng.choice([1, 1, 2, 3])
    capacity = rng.choice([None, Resources(memory=100, gpu=1)])
    changes: dict[str, Any] = {}
    if rng.random() < 0.2 and not hard:
        changes["elastic"] = random_elastic(random.Random(f"nodes {seed}"), capacity)
    pace = rng.random()
    reckless = rng.random() < 0.2
    world = Table(
        scenarios,
        check=check,
        workers=rng.randint(max(2, nodes), 8),
        nodes=nodes,
        seconds=lambda vertex, _: (0.01, 1.0, 3.0)[int(pace * 1000 + len(vertex) * 7 + ord(vertex[-1])) % 3],
        nbytes=rng.choice([0, 1000]),
        capacity=capacity,
        faults=Faults(
            seed=seed,
            worker_lost=often(0.1),
            node_lost=rng.choice([0.0, 0.5]),
            user=often(0.3),
            memory=often(0.1),
            infrastructure=often(0.1),
            duplicate=often(0.2),
            started=often(0.5),
            most=rng.choice([1, 3, 10, 40]),
        ),
        tuning=Tuning(target_s=5.0, shared_memory=nodes == 1, backups=reckless),
        **changes,
        **(random_hardship(random.Random(f"hard {seed}")) if hard else {}),
    )
    world.opened = opened
    world.policies = seed if reckless else None
    for name in scenarios:
        for number in range(rng.randint(0, 4)):
            word = rng.choice(["suspend", "resume", "scale"])
            world.at(rng.random() * 60, partial(world.ask, name, number, word))
    cancel_at = [rng.choice([None, None, None, rng.random() * 30]) for _ in scenarios]
    found = live(world, submit_at=[rng.choice([0.0, rng.random() * 5]) for _ in scenarios], cancel_at=cancel_at)
    for job in found[1]:
        expect_heard(world, job)
    return found


def expect_heard(world: Table, job: JobRun) -> None:
    """The controller has heard each request at most once, in order; all of them while no owner died."""
    row = core_of(job).control
    assert row is not None
    assert job.outcome is not None
    assert "AssertionError" not in job.outcome.message, job.outcome.message
    heard = list(row.memo[1]) if row.memo is not None else []
    sent = world.sent[job.id]
    assert heard == [number for number in sent if number in heard], f"{heard} were heard of {sent}"
    assert len(set(heard)) == len(heard)
    expect_clean(world, job)


def main(arguments: Sequence[str]) -> None:
    """Replay a game, and tell its graphs and stories."""
    rng = random.Random(f"game {arguments[0]}")
    count = rng.choice([1, 1, 2, 3])
    for at in range(count):
        sys.stdout.write(to_text(random_controlled(rng, f"j{at}" if count > 1 else "").graph) + "\n")
    told: list[JobRun] = []
    try:
        random_game(int(arguments[0]), hard="hard" in arguments, opened=told.append)
    finally:
        for job in told:
            sys.stdout.write("\n".join((f"{job.id}: {job.outcome}", *job.inspector.story(), "")))


if __name__ == "__main__":
    main(sys.argv[1:])
