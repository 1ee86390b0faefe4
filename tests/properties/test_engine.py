"""Any legal graph, any legal order of events: invariants hold, every job ends, and the same events end the same way."""

import os
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.properties.chaos import Chaos
from tests.simulation.scenarios import MANAGERS, WORDS, Scenario, random_scenario, work
from tests.simulation.world import random_session
from weft.backends.simulator import Simulator
from weft.engine.commands import Launch
from weft.engine.events import Failed
from weft.engine.machines.task import TaskState
from weft.engine.master import Master
from weft.engine.ports import Job
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, after, gather, one_to_one
from weft.graph.logical import OnFailure, Outcome, Retry
from weft.graph.validate import mark_results
from weft.model.errors import WeftError
from weft.model.failures import Failure
from weft.runtime.job import JobRun
from weft.runtime.loop import Loop
from weft.testing.graphs import random_graph
from weft.testing.inside import check_job
from weft.testing.trial import expect_clean, random_trial

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
COUNT = {"fast": 40, "soak": 20_000}.get(PROFILE, 200)


def each(first: int, count: int, run: Callable[[int], Any], test: str) -> None:
    """Run `count` seeds from `first` on; a failure names its seed and the command that repeats it."""
    for seed in range(first, first + count):
        try:
            run(seed)
        except Exception as error:
            again = f"WEFT_SEED={seed} python -m pytest tests/properties/test_engine.py -k {test}"
            raise AssertionError(f"seed {seed}, repeat with: {again}\n{error}") from error


def test_random_graphs_under_random_faults(seed):
    each(seed, COUNT, random_trial, "random_graphs_under_random_faults")


# ----------------------------------------------------------------------------------------------------- any order


def chaos(seed: int, words: frozenset[str] | None, *, policies: bool = False) -> Chaos:
    """A job among demons, drawn from `seed`; with `policies` anything may be run twice at a time."""
    rng = random.Random(seed)
    scenario = random_scenario(rng, words=words)
    nodes = rng.choice([1, 1, 2, 3])
    tuning = Tuning(
        target_s=rng.choice([0.5, 5.0, 50.0]),
        shared_memory=nodes == 1,
        cones=rng.random() < 0.8,
        backups=policies,
    )
    rng.random()  # a draw that the seeds were found with
    made = Chaos(
        rng,
        scenario,
        workers=rng.randint(2, 6) + scenario.most_served,
        nodes=nodes,
        tuning=tuning,
        policies=random.Random(f"policies of {seed}") if policies else None,
    )
    made.run(rng.choice([0, 20, 60, 200]), cancel_at=rng.choice([-1] * 5 + [rng.randint(0, 60)]))
    return made


@pytest.mark.parametrize("word", ["", *WORDS])
def test_any_report_at_any_moment(word, seed):
    each(seed, max(2, COUNT // 40), lambda s: chaos(s, frozenset({word})), f"any_report_at_any_moment[{word}]")


def test_any_report_at_any_moment_to_any_graph(seed):
    each(seed, COUNT // 4, lambda s: chaos(s, None), "any_report_at_any_moment_to_any_graph")


@pytest.mark.parametrize("word", ["", *WORDS])
def test_any_report_at_any_moment_of_second_attempts(word, seed):
    name = f"any_report_at_any_moment_of_second_attempts[{word}]"
    each(seed, max(2, COUNT // 40), lambda s: chaos(s, frozenset({word}), policies=True), name)


def wide(seed: int) -> Chaos:
    """A job of wide leases, among demons that run anything twice."""
    rng = random.Random(seed)
    g = Graph("wide")
    a = g.add(work, n=rng.choice([20, 60]), name="a")
    b = g.add(work, *[one_to_one(a)] * rng.randint(1, 2), n=a.parallelism, name="b", retry=Retry(user=3))
    g.add(work, rng.choice([gather, after])(b), n=1, name="c", keep=True)
    tuning = Tuning(target_s=1e4, cones=rng.random() < 0.5, backups=True)
    policies = random.Random(f"policies of {seed}")
    made = Chaos(rng, Scenario(g, frozenset()), workers=rng.randint(3, 6), nodes=1, tuning=tuning, policies=policies)
    made.run(rng.choice([60, 200, 400]))
    return made


def test_any_report_at_any_moment_of_second_attempts_of_wide_leases(seed):
    each(seed, max(10, COUNT // 4), wide, "any_report_at_any_moment_of_second_attempts_of_wide_leases")
    jobs = [wide(at) for at in range(seed, seed + 10)]
    assert sum(job.backups_of_many for job in jobs) > 0


def test_chaos_runs_much_twice_and_blames_many():
    jobs = [chaos(seed, None, policies=True) for seed in range(30)]
    assert sum(job.backups for job in jobs) > 20
    assert sum(job.avoided for job in jobs) > 20
    assert sum(job.unread for job in jobs) > 0


ONCE = [
    (64, "patches", "a service of a patch got its gang when it was in the queue already"),
    (132, "patches", "a service was stopped twice when the job was"),
    (76, "services", "a service that failed while it stopped was tried again"),
    (268, "services", "the same, in two services"),
    (57, "services", "a launch opened no concurrent gate"),
    (21, "timeouts", "what was put back waited for an input that had failed for good"),
    (223, "choices", "the same, behind a gate"),
    (248, "streams", "outputs were made again and the old ones never freed"),
    (79, "managers", "a lease that was only offered was cancelled"),
    (1, "resources", "a lost node's outputs were to be made again by a job that was failing"),
    (2, "services", "a lease that no worker had was cancelled"),
    (61, None, "tasks of a region started while it was stopped"),
    (246, None, "and were asked for again"),
    (94, None, "an input that a region could not read stayed as it was"),
    (705, None, "the same, again and again"),
    (696, None, "a lost output hid that pieces of the others were freed"),
    (980, None, "the width changed while the cache was asked"),
    (7, None, "a gang waited for a width that a manager would name"),
    (340, None, "a manager named no width and one of its sources was a service"),
]
"""Seeds that once found a fault, the word of their graph (none: any), and the fault."""


@pytest.mark.parametrize(("seed", "word", "found"), ONCE, ids=[f"{seed}-{word}" for seed, word, _ in ONCE])
def test_any_report_at_moments_that_were_once_too_much(seed, word, found):
    chaos(seed, frozenset({word}) if word else None)


# ---------------------------------------------------------------------------------------------------- repeatable


def plain(command: object) -> object:
    """A command as a value that can be compared: cones by what is in them."""
    if not isinstance(command, Launch):
        return command
    command = replace(command, specs=())
    if command.cone is None:
        return command
    cone = command.cone
    return replace(command, cone=(cone.members, cone.mult, cone.inner))


def test_the_same_events_give_the_same_commands(seed):
    def run(seed: int) -> None:
        ticks: dict[str, list[tuple[list[Any], list[Any]]]] = {}
        jobs: dict[str, JobRun] = {}

        def opened(job: JobRun) -> None:
            jobs[job.id] = job
            handle = job.master.handle

            def recorded(events: Any) -> list[Any]:
                events = [replace(e, workers=tuple(e.workers)) if hasattr(e, "workers") else e for e in events]
                commands = handle(events)
                ticks.setdefault(job.id, []).append((events, [plain(c) for c in commands]))
                return commands

            job.master.handle = recorded  # type: ignore[method-assign]

        with suppress(AssertionError, WeftError):  # other tests look at how it ends
            random_session(seed, opened=opened)
        for name, job in jobs.items():
            again = Master(job.graph, name, job.master.core.tuning, MANAGERS)
            for events, commands in ticks.get(name, ()):
                assert [plain(c) for c in again.handle(events)] == commands
            if job.crash is not None:
                continue
            assert again.inspector.story() == job.master.inspector.story()
            assert [bytes(s.state) for s in again.core.stages] == [bytes(s.state) for s in job.master.core.stages]

    each(seed, COUNT // 10, run, "same_events_give_the_same_commands")


# ------------------------------------------------------------------------------------------------ what fails fails


class Failing(Simulator):
    """A simulator in which certain tasks always fail."""

    def __init__(self, bad: set[tuple[str, int]], **options: Any) -> None:
        super().__init__(**options)
        self.bad = bad

    def launch(self, job: Job, lease: Launch) -> None:
        """See `Simulator.launch`."""
        for unit in range(lease.lo, lease.hi):
            for vertex, index in [(lease.vertex, unit)] if lease.cone is None else lease.cone.tasks(unit):
                if (vertex, index) in self.bad:
                    self.leases += 1
                    event = Failed(0.0, lease.lease, unit, vertex, index, Failure.USER, "always")
                    self.at(self.clock.time + 1.0, partial(self._end, job, lease, unit, event))
                    return
        super().launch(job, lease)

    def _end(self, job: Job, lease: Launch, unit: int, event: Failed) -> None:
        assert self._loop is not None
        if job.outcome is None and lease.lease in job.leases:
            self.held.setdefault((job.id, lease.vertex), set()).update(range(lease.lo, unit))
            self.held_now += unit - lease.lo
        self._loop.post(job.id, replace(event, now=self.clock.time))


def expected(graph: Graph, bad: set[tuple[str, int]], master: Master) -> set[tuple[str, int]]:
    """The tasks that fail or can never run: a model of `continue` with nothing of the engine but its routers."""
    fatal: set[tuple[str, int]] = set()
    for stage in master.core.order:
        edges = [edge for edge in graph.edges if edge.dst == stage.id]
        for index in range(stage.n):
            dead = (stage.id, index) in bad
            for edge in edges:
                if edge.scheduling.outcome is not Outcome.SUCCESS:
                    continue
                router = master.core.links[edge.id].router
                if router is None:
                    dead |= any(vertex == edge.src for vertex, _ in fatal)
                else:
                    dead |= any((edge.src, i) in fatal for lo, hi, _, _ in router.inputs(index) for i in range(lo, hi))
            if dead:
                fatal.add((stage.id, index))
    return fatal


def test_what_depends_on_a_failure_fails_and_nothing_else(seed):
    def run(seed: int) -> None:
        rng = random.Random(seed)
        graph = random_graph(rng, plain=True)
        graph.on_failure = OnFailure.CONTINUE
        for vertex in graph.vertices.values():
            vertex.timeout_s = None
            vertex.retry = Retry(user=rng.choice([0, 0, 2]))
        mark_results(graph)
        tasks = [(v.id, i) for v in graph.vertices.values() for i in range(v.parallelism)]  # type: ignore[arg-type]
        bad = {task for task in tasks if rng.random() < rng.choice([0.02, 0.2])}
        sim = Failing(bad, workers=rng.randint(1, 4), check=check_job, tuning=Tuning(target_s=rng.choice([0.5, 50.0])))
        loop = Loop(sim, sim.clock)
        job = JobRun("trial", graph, Master(graph, "trial", sim.tuning))
        loop.submit(job)
        sim.run(most_moments=200_000)
        if job.crash is not None:
            raise job.crash
        assert job.outcome is not None
        fatal = expected(graph, bad, job.master)
        rows = {(s.id, i): TaskState(s.state[i]) for s in job.master.core.stages for i in range(s.n)}
        assert {task for task, state in rows.items() if state is TaskState.FATAL} == fatal
        others = {state for task, state in rows.items() if task not in fatal}
        assert others <= {TaskState.FINISHED, TaskState.FREED}
        assert job.outcome.state == ("failed" if fatal else "succeeded")
        expect_clean(sim, job)

    each(seed, COUNT, run, "what_depends_on_a_failure")


# --------------------------------------------------------------------------------------------------- the scenarios


def test_scenarios_use_their_words():
    seen: set[str] = set()
    for seed in range(200):
        scenario = random_scenario(random.Random(seed))
        graph = scenario.graph
        seen |= {
            word
            for word, there in {
                "events": any(e.scheduling.event for e in graph.edges),
                "fractions": any(e.scheduling.fraction < 1.0 for e in graph.edges),
                "one_success": any(e.scheduling.outcome is Outcome.ONE_SUCCESS for e in graph.edges),
                "concurrent": any(e.scheduling.concurrent for e in graph.edges),
                "services": scenario.most_served,
                "choices": graph.choices,
                "expanders": any("x" in id for id in scenario.answers),
                "patches": any("p" in id for id in scenario.answers),
                "decisions": any("q" in id for id in scenario.answers),
                "bubbles": graph.bubbles,
                "streams": any(e.storage.value == "ephemeral" for e in graph.edges),
                "resources": any(v.resources[0].gpu or v.resources[0].tokens for v in graph.vertices.values()),
                "cache": any(v.cache_key for v in graph.vertices.values()),
                "retries": any(v.retry.delay_s for v in graph.vertices.values()),
                "timeouts": any(v.timeout_s for v in graph.vertices.values()),
                "managers": any(v.manager for v in graph.vertices.values()),
            }.items()
            if there
        }
    assert seen == set(WORDS)


def test_a_scenario_is_one_of_its_seed():
    def drawn(seed: int) -> Scenario:
        return random_scenario(random.Random(seed))

    assert all(list(drawn(seed).graph.vertices) == list(drawn(seed).graph.vertices) for seed in range(30))
    assert work(1, 2) == 2
