"""The owner of a job dies just before or just after any record of its journal, and again while it goes on."""

import importlib
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import world as worlds
from tests.simulation.disk import Disk
from tests.simulation.scenarios import WORDS, Scenario, random_scenario, work
from tests.simulation.test_jobs import exchange, served, stream, tree
from tests.simulation.world import Killed, World, _WatchedLoop, expect_clean, expect_idle, tasks_of
from weft import wiring
from weft.engine.commands import Command
from weft.engine.core import Core
from weft.engine.events import Event
from weft.engine.invariants import check
from weft.engine.master import Master
from weft.engine.rows import FREED, READY
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, after, gather, shuffle
from weft.graph.logical import Edge, Patch, Source, Vertex, VertexKind
from weft.model.program import Program
from weft.runtime.job import JobRun

SOAK = os.environ.get("HYPOTHESIS_PROFILE", "ci") == "soak"
EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"
NOT_SIMULATED = {"show", "control_vertex"}
"""What is no scenario, and one whose control vertex does nothing where nothing is computed."""
RANDOM = 400 if SOAK else 12
MOST_POINTS = 10_000 if SOAK else 60
TIMELESS = [word for word in WORDS if word not in ("timeouts", "decisions", "events")]
"""Words of the graph of which the end of a job does not depend on who is faster."""
AGAIN = 1.0 if SOAK else 0.05
"""How often a second death follows."""


class Dying(World):
    """Its owner dies at the records numbered in `kills`, each time `after` the record is on disk or before."""

    def __init__(self, scenario: Scenario, kills: Sequence[int], *, after: bool = False, **simulator: Any) -> None:
        super().__init__({"job0": scenario}, check=check, cache=1.0, **simulator)
        self.journaled = True
        self.kills = list(kills)
        self.after = after
        self.records = 0
        self.ran: Counter[tuple[str, int]] = Counter()
        self.finished: set[tuple[str, int]] = set()
        self.decided: dict[str, Any] = {}
        self.again: set[tuple[str, int]] = set()

    def mortal(self) -> None:
        """Nothing but records kills here."""

    def _take_on(self, name: str, master: Master, disk: Disk | None) -> JobRun:
        assert disk is not None
        append = disk.append

        def deadly(events: Sequence[Event], commands: Sequence[Command]) -> Any:
            self.records += 1
            die = bool(self.kills) and self.records == self.kills[0]
            if die:
                self.kills.pop(0)
                if not self.after:
                    raise Killed
            when = append(events, commands)
            if die:
                disk.data += disk._pending
                disk._pending = b""
                raise Killed
            return when

        disk.append = deadly  # type: ignore[method-assign]
        return super()._take_on(name, master, disk)

    def opened_again(self, job: JobRun) -> None:
        """Note what had finished and been decided when a new owner took the job on."""
        core = job.master.core
        streaming = _above_streams(core)
        self.finished = {
            (vertex, index)
            for vertex, index in job.inspector.finished_tasks()
            if core.by_id[vertex].region < 0
            and core.by_id[vertex].vertex.kind is VertexKind.FINITE
            and not (vertex in streaming and core.by_id[vertex].state[index] == FREED)
        }
        self.decided = decided(core)

    def launch(self, job: Any, lease: Any) -> None:
        """See `World.launch`."""
        for task in tasks_of(lease):
            self.ran[task] += 1
            if task in self.finished:
                self.again.add(task)
        super().launch(job, lease)


def _above_streams(core: Core) -> set[str]:
    """Return the vertices that something reads, at whatever distance, that streams and so begins again as a whole."""
    above = {stage.id for region in core.regions for stage in region}
    for stage in reversed(core.order):
        if any(link.dst.id in above for link in stage.outputs):
            above.add(stage.id)
    return above


def decided(core: Core) -> dict[str, Any]:
    """Return the branches that were taken and how many tasks each vertex has, if no manager may change that yet."""
    taken: dict[str, Any] = {name: row.taken for name, row in core.choices.items() if row.taken}
    fixed = [stage for stage in core.stages if stage.manager is None or any(state > READY for state in stage.state)]
    return taken | {stage.id: stage.n for stage in fixed if stage.n >= 0}


def run(
    scenario: Scenario,
    kills: Sequence[int] = (),
    *,
    after: bool = False,
    world_of: Callable[..., Dying] = Dying,
    **options: Any,
) -> tuple[Dying, JobRun]:
    """Run a job to its end through the deaths of its owners."""
    options = {"workers": 5 + scenario.most_served, "seconds": 1.0, "tuning": Tuning(target_s=5.0), **options}
    world = world_of(scenario, kills, after=after, **options)
    world.opened = world.opened_again
    loop = _WatchedLoop(world, world.clock)
    loop.world = world
    world.at(0.0, lambda: world.submit("job0"))
    world.run(most_moments=100_000)
    (job,) = world.jobs.values()
    if job.crash is not None:
        raise job.crash
    assert job.outcome is not None, "it did not end:\n" + "\n".join(job.master.inspector.story())
    check(job.master.core)
    expect_clean(world, job)
    expect_idle(world)
    return world, job


def dies_anywhere(make: Callable[[], Scenario], seed: int, *, most: int = MOST_POINTS, **options: Any) -> None:
    """Have the owner of a job die around every record, or as many as there is time for."""
    rng = random.Random(seed)
    whole, first = run(make(), **options)
    assert first.outcome is not None
    points = range(1, whole.records + 1)
    for at in points if whole.records <= most else sorted(rng.sample(points, most)):
        for after_it in (False, True):
            kills = [at, *([at + rng.randint(1, 4)] if rng.random() < AGAIN else [])]
            where = f"seed {seed}, deaths {'after' if after_it else 'before'} records {kills}"
            try:
                world, job = run(make(), kills, after=after_it, **options)
            except AssertionError as error:
                raise AssertionError(f"{where}: {error}") from error
            assert job.outcome is not None, where
            assert job.outcome.state == first.outcome.state, where
            assert world.recoveries == 1 + (len(kills) > 1 and not world.kills), where
            assert not world.again, f"{where}: run again though finished: {sorted(world.again)[:5]}"
            now = decided(job.master.core)
            assert {key: now.get(key) for key in world.decided} == world.decided, where


def growing() -> Scenario:
    """A width, a choice and a patch; each time it is asked, an expander answers something else."""
    g = Graph("growing")
    plan = g.add(work, n=1, name="plan", expands=True)
    load = g.add(work, gather(plan), n=Source("plan"), name="load")
    ask = g.add(work, gather(load), n=1, name="ask")
    small = g.add(work, gather(load), after(ask), n=1, name="small")
    large = g.add(work, shuffle(load), after(ask), n=3, name="large")
    g.choice(ask, small=small, large=large)
    more = g.add(work, gather(small), gather(large), n=1, name="more", expands=True)
    g.add(work, after(more), n=1, name="end")
    asked: Counter[str] = Counter()

    def counted(name: str, answers: Sequence[Any]) -> Callable[[], Any]:
        def answer() -> Any:
            asked[name] += 1
            return answers[asked[name] % len(answers)]

        return answer

    patches = [
        Patch(
            (Vertex("more/a", Program(work), n),),
            (Edge("more", "more/a", gather(more).movement), Edge("more/a", "end", gather(more).movement)),
        )
        for n in (1, 2, 3)
    ]
    answers = {"plan": counted("plan", [3, 4, 5]), "ask": counted("ask", ["large", "small"])}
    return Scenario(g, frozenset(), answers | {"more": counted("more", patches)})


@pytest.mark.parametrize("make", [tree, exchange, stream, served, growing])
def test_the_owner_dies_around_any_record(make, seed):
    dies_anywhere(make, seed)


@pytest.mark.parametrize("number", range(RANDOM))
def test_the_owner_of_a_random_job_dies_around_any_record(number):
    rng = random.Random(number)
    words = frozenset(word for word in TIMELESS if rng.random() < 0.4)
    scenario = random_scenario(rng, most_vertices=6, words=words)
    scenario.answers.update({name: partial(copy, answer()) for name, answer in scenario.answers.items()})
    dies_anywhere(lambda: scenario, number)


def example(name: str) -> Scenario:
    """Return an example, with answers for its expanders, and no vertex wider than 100: the auditor sees them all."""
    module = importlib.import_module(name)
    graph = module.build()[0]
    for vertex in graph.vertices.values():
        if isinstance(vertex.parallelism, int) and vertex.parallelism > 100:
            vertex.parallelism = 100
            vertex.program.items = range(100)
    answers: dict[str, Callable[[], Any]] = {
        choice.decider: partial(str, next(iter(choice.branches))) for choice in graph.choices
    }
    if name == "patch":
        answers["plan"] = partial(module.plan, [1, 4, 9, 16, 25])
    if name == "kmeans":
        centres = [[0.0, 0.0], [1.0, 1.0]]
        answers["fit"] = partial(module.first_round, [centres])
        answers["fit/round-1"] = partial(module.converge, [[(1, *centre) for centre in centres]], centres, 1)
    services = [vertex for vertex in graph.vertices.values() if vertex.kind is VertexKind.SERVICE]
    return Scenario(graph, frozenset(), answers, most_served=4 * len(services))


@pytest.mark.parametrize("name", sorted({path.stem for path in EXAMPLES.glob("*.py")} - NOT_SIMULATED))
def test_the_owner_of_an_example_dies_around_any_record(name, seed, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(worlds, "MANAGERS", wiring.MANAGERS)
    try:
        dies_anywhere(partial(example, name), seed, most=MOST_POINTS if SOAK else 12)
    finally:
        for module in (name, "show"):
            sys.modules.pop(module, None)
