"""Whole training jobs in virtual time: the real graph and controller, and replicas that fail and take time to stop.

Run one with `python -m tests.simulation.training SEED [hard]`.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from tests.simulation.controlled import Table
from tests.simulation.disk import Disk
from tests.simulation.scenarios import Scenario
from tests.simulation.test_deaths import Dying
from tests.simulation.world import FOREVER_S, World, expect_clean, live, loop_of, random_hardship
from weft.backends.simulator import Faults, _Running
from weft.durability.journal import Recorded
from weft.engine.commands import Launch
from weft.engine.decisions import Decision
from weft.engine.events import Event, Failed, Started
from weft.engine.invariants import check
from weft.engine.master import Master
from weft.engine.policy import ControllerView
from weft.engine.ports import Job
from weft.engine.replay import Tick
from weft.engine.tuning import Tuning
from weft.frontends.training.census import WHOLE_JOB
from weft.frontends.training.compat import Compat
from weft.frontends.training.compiler import as_json, compile_jobs, groups_of
from weft.frontends.training.conditions import has_finished, has_succeeded, is_true
from weft.frontends.training.controller import Reconciled
from weft.frontends.training.defaulting import defaulted
from weft.frontends.training.kinds import KINDS
from weft.frontends.training.observed import FAILED
from weft.frontends.training.schema import (
    ALWAYS,
    CLEAN_POD_POLICIES,
    EXIT_CODE,
    NEVER,
    ON_FAILURE,
    RESTART_POLICIES,
    Container,
    JobFile,
    PlainPod,
    PodTemplate,
    ReplicaSpec,
    RunPolicy,
    TrainingJob,
)
from weft.graph.validate import validate
from weft.model.failures import Failure
from weft.model.resources import Resources
from weft.policies.reconcile import Reconciler
from weft.runtime.job import JobRun
from weft.runtime.loop import Loop
from weft.testing.inside import core_of

NEVER_ENDS = 0.0
"""The seconds of a replica that runs until it is stopped."""
GIVE_UP_S = 1_500.0
"""When the users of a job that does not end by itself cancel it."""
CODES = (1, 2, 127, 130, 137, 143)
SERVING = frozenset({("TFJob", "PS"), ("MPIJob", "Worker"), ("Pod", "Pod")})


class Behaviour(Struct, frozen=True):
    """What a replica does: it fails with each of `codes` after `seconds`, then ends well.

    It starts after `start_s` and needs `stop_s` to stop.
    """

    seconds: float
    codes: tuple[int, ...] = ()
    start_s: float = 0.0
    stop_s: float = 0.0


class Plan(Struct, kw_only=True):
    """The jobs of a file, the behaviour of each replica, and the requests of users (time, name, payload)."""

    files: JobFile
    behaviours: Callable[[str, int], Behaviour]
    requests: Sequence[tuple[float, str, Any]] = ()
    compat: Compat = Compat.FIXED

    @property
    def graph(self) -> Any:
        """The `LogicalGraph` of the jobs, as a run has it."""
        word = "strict" if self.compat is Compat.STRICT else "fixed"
        graph = compile_jobs(self.files, "jobs", "run-1", {"compat": word})
        validate(graph)
        return graph

    @property
    def ends(self) -> bool:
        """Whether the jobs end without a user who gives up. Upstream's deadlines need news to be looked at."""
        return self.compat is Compat.FIXED and not any(
            spec.restart_policy == ALWAYS for job in self.files.jobs for spec in job.replicas.values()
        )


class Replicas(World):
    """A world whose tasks are replicas with behaviours, and which audits the statuses of their jobs."""

    plan: Plan

    def take(self, plan: Plan) -> None:
        """Let the replicas be those of a plan."""
        self.plan = plan
        self.managers = {"reconcile": partial(_Audited, self)}
        self._faulty, self._usual, self._alike = True, False, False
        self.failures: Counter[tuple[str, int]] = Counter()
        self.retries: Counter[str] = Counter()
        self.to_retry: set[tuple[str, int]] = set()
        self.job_of = {group.vertex: group.job.name for group in groups_of(plan.files)}
        self.last: Reconciled | None = None

    # ---------------------------------------------------------------------------------------------- the replicas

    def launch(self, job: Job, lease: Launch) -> None:
        """Count a start of a replica that has failed before."""
        name = self.job_of[lease.vertex]
        if (lease.vertex, lease.lo) in self.to_retry:
            self.to_retry.discard((lease.vertex, lease.lo))
            status = self.last.statuses.get(name) if self.last is not None else None
            if status is None or not has_finished(status.conditions):  # cleanPodPolicy None leaves the pods as they are
                self.retries[name] += 1
        super().launch(job, lease)

    def reported(self, job: Job, event: Event) -> None:
        """Note the failure of a replica once it is on disk."""
        if isinstance(event, Failed) and event.kind is Failure.USER and event.lease in job.leases:
            self.failures[event.vertex, event.index] += 1
            self.to_retry.add((event.vertex, event.index))
        super().reported(job, event)

    def _duration(self, lease: Launch, lo: int, hi: int) -> float:
        return self.plan.behaviours(lease.vertex, lo).seconds or FOREVER_S

    def _plan_faults(self, run: _Running, seconds: float) -> bool:
        lease, now = run.launch, self.clock.time
        behaviour = self.plan.behaviours(lease.vertex, lease.lo)
        failures = self.failures[lease.vertex, lease.lo]
        self.at(
            now + min(behaviour.start_s, seconds / 2), lambda: self._post(run, Started(self.clock.time, lease.lease))
        )
        if failures < len(behaviour.codes):
            self.at(now + min(seconds, 7.0), partial(self._exit, run, behaviour.codes[failures]))
            return True
        return super()._plan_faults(run, seconds)

    def _exit(self, run: _Running, code: int) -> None:
        """A replica ends with an exit code."""
        if run.gone:
            return
        lease = run.launch
        self._over(run)
        said = f"exit code {code}"
        event = Failed(self.clock.time, lease.lease, lease.lo, lease.vertex, lease.lo, Failure.USER, said, status=code)
        self._say(run, event)

    def _stopped(self, run: _Running) -> None:
        """A replica has heard SIGTERM, and takes its time."""
        behaviour = self.plan.behaviours(run.launch.vertex, run.launch.lo)
        self.at(self.clock.time + behaviour.stop_s, partial(super()._stopped, run))

    def _go_on(self, loop: Loop, name: str, disk: Disk, recorded: Recorded) -> None:
        """Forget the failures of replicas that are not on disk, and the retries that died with the owner."""
        ticks = [record for record in recorded.records if isinstance(record, Tick)]
        failed = {
            event.lease: (event.vertex, event.index)
            for tick in ticks
            for event in tick.events
            if isinstance(event, Failed) and event.kind is Failure.USER
        }
        found = Counter(failed.values())
        for task, lost in (self.failures - found).items():
            self.retries[self.job_of[task[0]]] -= lost - (task in self.to_retry)
            self.to_retry.discard(task)
        self.failures = found
        super()._go_on(loop, name, disk, recorded)

    def _take_on(self, name: str, master: Master, disk: Disk | None) -> JobRun:
        """Audit a new owner by the statuses that are on disk; a job that it starts anew has all its retries again."""
        row = master.core.control
        found = msgspec.convert(row.memo, Reconciled) if row is not None and row.memo is not None else None
        if found is None:
            self.retries.clear()
        self.last = found
        return super()._take_on(name, master, disk)

    # ---------------------------------------------------------------------------------------------- their users

    def want(self, name: str, word: str, payload: Any) -> None:
        """Send a request, if the job runs."""
        job = self.jobs.get(name)
        if job is not None and job.outcome is None:
            self.to_retry.clear()  # what is started after a pause is no retry
            loop_of(self).request(job, word, payload)

    # ---------------------------------------------------------------------------------------------- their statuses

    def audit(self, view: ControllerView, before: Reconciled | None, after: Reconciled) -> None:
        """Compare the statuses with those before; AssertionError: one has gone back, or a job has two ends."""
        self.last = after
        for name, status in after.statuses.items():
            if self.plan.compat is Compat.FIXED:
                both = has_succeeded(status.conditions) and is_true(status.conditions, FAILED)
                assert not both, f"{name} has succeeded and failed: {status.conditions}"
            old = before.statuses.get(name) if before is not None else None
            if old is None:
                continue
            for end in (has_succeeded, has_finished):
                assert end(old.conditions) <= end(status.conditions), f"{name} had ended: {status.conditions}"
            assert {one.type for one in old.conditions} - {one.type for one in status.conditions} <= {
                "Running",
                "Restarting",
            }, f"{name} has lost a condition: {old.conditions}, {status.conditions}"
            assert status.recreated >= old.recreated, f"{name} has forgotten retries"
            if old.completed_at is not None:
                assert status.completed_at == old.completed_at, f"{name} has ended twice"
            if old.started_at is not None:
                assert status.started_at is not None
                assert status.started_at >= old.started_at, f"{name} started before it started"

    def expect_retries(self) -> None:
        """No job has retried more often than its limit allows."""
        for job in self.plan.files.jobs:
            limit = job.policy.backoff_limit
            if limit is None or self.plan.compat is not Compat.FIXED:
                continue
            each = sum(spec.replicas or 0 for spec in job.replicas.values()) if WHOLE_JOB in job.annotations else 1
            found = self.retries[job.name]
            assert found <= limit * each, f"{job.name} has retried {found} times, its limit is {limit}"


class _Audited(Reconciler):
    """The controller of training jobs, watched by a world."""

    def __init__(self, world: Replicas, target: str, params: Mapping[str, Any]) -> None:
        super().__init__(target, params)
        self._world = world
        self._made = target, params

    def decide(self, view: Any, memo: Any) -> tuple[Sequence[Decision], Any]:
        """See `JobController.decide`. A memo must be plain data, and a second call must decide nothing else."""
        decisions, after = super().decide(view, memo)
        assert msgspec.json.decode(msgspec.json.encode(after)) == after, "the memo is no plain data"
        again = super().decide(view, memo)
        assert again == (decisions, after), "a second call decides otherwise"
        anew = Reconciler(*self._made).decide(view, memo)
        assert anew == (decisions, after), "what is kept of earlier calls changes the answer"
        found = None if memo is None else msgspec.convert(memo, Reconciled)
        self._world.audit(view, found, msgspec.convert(after, Reconciled))
        return decisions, after


class Yard(Replicas, Table):
    """Replicas under random faults of workers and nodes, with deaths of the owner at random moments."""


class DyingYard(Replicas, Dying):
    """Replicas whose owner dies around given records of its journal."""

    def __init__(self, plan: Plan, scenario: Scenario, kills: Sequence[int], **options: Any) -> None:
        super().__init__(scenario, kills, **options)
        self.take(plan)


# ------------------------------------------------------------------------------------------------------ random jobs


def random_job(rng: random.Random, name: str) -> TrainingJob:
    """Return a valid job of any kind with any policy."""
    kind = KINDS[rng.choice(list(KINDS))]
    types = _types(rng, kind.name)
    requests = rng.choice([{}, {}, {"cpu": 1.0}, {"cpu": 1.0, "memory": 20.0}])
    specs = {}
    for type, count in types.items():
        container = Container(name=kind.container, image="any", command=("train",), requests=requests)
        specs[type] = ReplicaSpec(
            template=PodTemplate(containers=(container,)),
            replicas=count,
            restart_policy=_policy(rng, kind.name),
        )
    policy = RunPolicy(
        clean_pod_policy=rng.choice([None, *CLEAN_POD_POLICIES]),
        deadline_s=rng.choice([None, None, 5, 60, 300]),
        backoff_limit=rng.choice([None, 0, 1, 3, 6]),
        suspend=rng.random() < 0.1,
    )
    job = TrainingJob(
        kind=kind.name,
        name=name,
        replicas=specs,
        policy=policy,
        success_policy=rng.choice(["", "AllWorkers"]) if kind.name == "TFJob" else "",
        dynamic_workers=kind.name == "TFJob" and rng.random() < 0.2,
        annotations={WHOLE_JOB: "job"} if rng.random() < 0.15 else {},
    )
    return msgspec.convert(as_json(defaulted(job)), TrainingJob)


def _types(rng: random.Random, kind: str) -> dict[str, int]:
    few = rng.randint(1, 3)
    return rng.choice(
        {
            "TFJob": [{"Worker": few}, {"Chief": 1, "PS": 1, "Worker": few}, {"PS": 2, "Worker": few},
                      {"Master": 1, "Worker": few, "Evaluator": 1}],
            "PyTorchJob": [{"Master": 1, "Worker": few}, {"Worker": few}],
            "MPIJob": [{"Launcher": 1, "Worker": few}],
            "XGBoostJob": [{"Master": 1, "Worker": few}],
            "PaddleJob": [{"Worker": few}, {"Master": 1, "Worker": few}],
            "JAXJob": [{"Worker": few}],
            "TrainJob": [{"node": few}, {"dataset-initializer": 1, "node": few}, {"launcher": 1, "node": few}],
        }[kind]
    )  # fmt: skip


def _policy(rng: random.Random, kind: str) -> str:
    if kind == "TrainJob":
        return NEVER
    return rng.choice([*(one for one in RESTART_POLICIES if one != ALWAYS), NEVER, ON_FAILURE, EXIT_CODE, ALWAYS])


def random_plan(seed: int) -> Plan:
    """Return random jobs, what their replicas do, and what users ask for."""
    rng = random.Random(f"training {seed}")
    jobs = tuple(random_job(rng, f"j{at}") for at in range(rng.choice([1, 1, 1, 2])))
    template = PodTemplate(containers=(Container(name="etcd", image="any"),), restart_policy=rng.choice(["", NEVER]))
    pods = (PlainPod(name="etcd", template=template),) if rng.random() < 0.2 else ()
    bad, slow = rng.choice([0.0, 0.2, 0.5]), rng.choice([0.0, 0.0, 0.5])
    serving = {group.vertex for group in groups_of(JobFile(jobs=jobs, pods=pods)) if _serves(group)}

    def behaviour(vertex: str, index: int) -> Behaviour:
        own = random.Random(f"{seed} {vertex} {index}")
        codes = tuple(own.choice(CODES) for _ in range(own.randint(1, 4))) if own.random() < bad else ()
        return Behaviour(
            seconds=NEVER_ENDS if vertex in serving else own.choice([0.01, 1.0, 5.0, 20.0]),
            codes=codes,
            start_s=own.choice([0.0, 0.0, 0.5]),
            stop_s=own.choice([0.0, 0.1, 10.0, 30.0]) if own.random() < slow else 0.0,
        )

    requests: list[tuple[float, str, Any]] = []
    vertices = [group.vertex for group in groups_of(JobFile(jobs=jobs)) if group.most > 1]
    for _ in range(rng.choice([0, 0, 1, 3])):
        word = rng.choice(["suspend", "resume", "scale"])
        if word != "scale" or vertices:
            payload = {rng.choice(vertices): rng.randint(1, 4)} if word == "scale" else None
            requests.append((rng.random() * 30, word, payload))
    if requests or any(job.policy.suspend for job in jobs):
        requests += [(40.0 * late, "resume", None) for late in range(1, 20)]
    strict = rng.random() < 0.15
    return Plan(
        files=JobFile(jobs=jobs, pods=pods),
        behaviours=behaviour,
        requests=requests,
        compat=Compat.STRICT if strict else Compat.FIXED,
    )


def _serves(group: Any) -> bool:
    if group.job.kind == "TFJob" and group.type == "PS":
        return any(type != "PS" for type in group.job.replicas)
    return (group.job.kind, group.type) in SERVING or (
        group.spec.restart_policy == ALWAYS and group.job.kind == "TrainJob"
    )


def random_training(
    seed: int, *, hard: bool = False, opened: Callable[[JobRun], None] = lambda _: None
) -> tuple[Yard, list[JobRun]]:
    """Run random jobs under random faults to their end, all drawn from `seed`; AssertionError for what is wrong."""
    plan = random_plan(seed)
    rng = random.Random(f"faults {seed}")
    faulty = rng.random() < 0.5
    nodes = rng.choice([1, 1, 2])
    faults = Faults(
        seed=seed,
        worker_lost=0.1 if faulty and rng.random() < 0.5 else 0.0,
        node_lost=rng.choice([0.0, 0.5]),
        infrastructure=0.1 if faulty and rng.random() < 0.5 else 0.0,
        memory=0.1 if faulty and rng.random() < 0.3 else 0.0,
        duplicate=0.2 if faulty else 0.0,
        most=rng.choice([1, 3, 10]),
    )
    hardship: dict[str, Any] = {}
    if hard:
        network = random_hardship(random.Random(f"hard {seed}"))["network"] if rng.random() < 0.5 else None
        hardship = {"network": network, "deaths": rng.choice([0.02, 0.1, 0.3]), "most_deaths": rng.choice([1, 3, 8])}
    world = Yard(
        {"job0": Scenario(plan.graph, frozenset())},
        check=check,
        workers=rng.choice([nodes, 6, 16]),
        nodes=nodes,
        capacity=rng.choice([None, Resources(memory=100)]),
        faults=faults,
        tuning=Tuning(target_s=5.0, shared_memory=nodes == 1),
        **hardship,
    )
    world.take(plan)
    world.opened = opened
    for at, word, payload in plan.requests:
        world.at(at, partial(world.want, "job0", word, payload))
    for late in range(20):  # a user repeats what a dying owner has not heard
        world.at(GIVE_UP_S + 10 * late, partial(world.cancel, "job0"))
    _, jobs = live(world)
    (job,) = jobs
    expect_ended(world, job)
    return world, jobs


def expect_ended(world: Replicas, job: JobRun) -> None:
    """An ended run leaves no replica, and its status tells how it ended."""
    assert job.outcome is not None
    expect_clean(world, job)
    assert "the controller of the job raised" not in job.outcome.message, job.outcome.message
    assert not world.live, f"replicas are left: {list(world.live)}"
    row = core_of(job).control
    assert row is not None
    assert row.memo is not None
    memo = msgspec.convert(row.memo, Reconciled)
    failed = any(is_true(status.conditions, FAILED) for status in memo.statuses.values())
    story = "\n".join(job.inspector.story())
    if job.outcome.state == "cancelled":
        assert not world.plan.ends, f"the jobs did not end\n{story}"
        return
    assert all(has_finished(status.conditions) for status in memo.statuses.values()), f"{job.outcome}\n{story}"
    assert job.outcome.state == ("failed" if failed else "succeeded"), f"{job.outcome}\n{story}"
    world.expect_retries()


def main(arguments: Sequence[str]) -> None:
    """Replay jobs, and tell their file and story."""
    plan = random_plan(int(arguments[0]))
    sys.stdout.write(f"{plan.files}\n{plan.requests}\n")
    told: list[JobRun] = []
    try:
        random_training(int(arguments[0]), hard="hard" in arguments, opened=told.append)
    finally:
        for job in told:
            sys.stdout.write("\n".join((f"{job.id}: {job.outcome}", *job.inspector.story(), "")))


if __name__ == "__main__":
    main(sys.argv[1:])
