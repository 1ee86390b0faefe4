"""Jobs that compute, in a world where everything goes wrong: whatever happens, the answer is that of a plain program.

The graphs are those of `examples/scenarios`; their answers are known without any engine.
"""

import importlib
import random
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tests.simulation.scenarios import Scenario
from tests.simulation.world import PATIENCE_S, World, live, random_hardship
from weft.backends.simulated_bodies import SimulatedBodies
from weft.backends.simulator import Faults
from weft.engine.invariants import check
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph
from weft.model.failures import Failure
from weft.runtime.job import JobRun
from weft.store.blocks import BlockManager
from weft.store.rows import EdgeValues
from weft.wiring import MANAGERS

EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"

STUCK_S = PATIENCE_S / 10
"""How long the straggler is stuck at most: its owner may die five times meanwhile, and it begins anew each time."""


class AnswerWorld(World, SimulatedBodies):
    """A world whose tasks compute."""


def _example(name: str) -> Graph:
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    module = importlib.import_module(name)
    if name == "straggler":
        module.STUCK_S = 0.0  # type: ignore[attr-defined]  # it is stuck in virtual time: `_stuck`
    graph: Graph = module.build()[0]
    return graph


def _stuck(seconds: float) -> Callable[[str, int], float]:
    """The task of the straggler takes a hundred times as long as any other, but ends between deaths of its owner."""
    straggler = importlib.import_module("straggler")
    return lambda vertex, index: (
        min(100 * seconds, STUCK_S) if (vertex, index) == ("read", straggler.STUCK) else seconds
    )


def _some_of(rows: list[Any]) -> list[Any]:
    """LIMIT may return any rows: five of those that match."""
    (found,) = rows
    return [5] if len(found) == 5 and all(row % 2 == 0 for row in found) else found


LOOP = "kmeans"
"""A scenario with a draw of its own, so that the seeds of the others keep their sessions."""
ANSWERS: dict[str, tuple[str, list[Any], Callable[[list[Any]], list[Any]]]] = {
    "bubble": ("smallest", [[0, 2, 4, 6, 8]], list),
    "conditional_join": ("rows", [3200], list),
    "dynamic_parallelism": ("readers", [10_000_000], lambda rows: [sum(rows)]),
    "kmeans": ("fit/centres", [(9, [(12.42, 16.69), (16.66, 23.15)])], list),
    "limit": ("limit", [5], _some_of),
    "patch": ("plan/round-4", [1], list),
    "pruning": ("matches", [3000], list),
    "skew": ("readers", [64 * 100 * (63 + 63)], lambda rows: [sum(rows)]),
    "straggler": ("total", [sum(range(40))], list),
}
"""For each scenario: whose values are the answer, what it is, and what of the values is compared."""
UNANSWERED = {
    "control_vertex": "its service waits in real time for what the trainers tell, while virtual time goes on",
    "parameter_server": "weights and gradients travel over sockets in real time; a lost server takes its weights along",
}
"""Why a scenario has none."""


def random_answers(seed: int, of: Collection[str] = ()) -> tuple[World, list[JobRun]]:
    """Run one or two scenarios (`of` these, if given) under random faults, all drawn from `seed`.

    AssertionError for a wrong answer.
    """
    rng = random.Random(seed)
    chosen = sorted(of or ANSWERS.keys() - {LOOP} or ANSWERS)
    names = rng.sample(chosen, min(len(chosen), rng.choice([1, 1, 2])))
    if not of and LOOP in ANSWERS and random.Random(f"loop of {seed}").random() < 0.1:
        names = [LOOP]

    def often(probability: float) -> float:
        return probability if rng.random() < 0.5 else 0.0

    faults = Faults(
        seed=seed,
        worker_lost=often(0.05),
        infrastructure=often(0.05),
        output_lost=often(0.05),
        started=often(0.3),
        give_back=often(0.2),
        most=rng.choice([3, 10, 40]),
    )
    scenarios = {f"{name}-{at}": Scenario(_example(name), frozenset()) for at, name in enumerate(names)}
    large = {"limit", "pruning", "dynamic_parallelism"} & set(names)
    second = random.Random(f"second attempts of {seed}")
    backups = second.choice(["none", "late", "any"])
    seconds = rng.choice([0.1, 1.0, 10.0])
    store = BlockManager(1 << 30)
    try:
        world = AnswerWorld(
            scenarios,
            workers=rng.randint(7, 9),
            store=store,
            seconds=_stuck(seconds) if "straggler" in names else seconds,
            faults=faults,
            tuning=Tuning(target_s=rng.choice([0.5, 5.0]), backups=backups != "none"),
            check=None if large else check,
            **random_hardship(random.Random(f"hard {seed}")),
        )
        world.managers = MANAGERS
        world.policies = seed if backups == "any" else None
        _, jobs = live(world, checked=not large)
        for name, job in zip(names, jobs, strict=True):
            assert job.outcome is not None
            if job.outcome.state != "succeeded":  # too many attempts were lost, or its disk was full
                assert job.outcome.kind in ("", Failure.INFRASTRUCTURE.value, Failure.DISK.value), f"{job.outcome}"
                continue
            vertex, wanted, compared = ANSWERS[name]
            if any((job.id, vertex) == lost[:2] for lost in world.lost_late):
                continue  # it was lost after the end
            values = compared(_values(world, job, vertex))
            assert values == wanted, f"{name}: {values} is not {wanted}"
    finally:
        world.close()
        store.close()
    return world, jobs


def _values(world: AnswerWorld, job: JobRun, vertex: str) -> list[Any]:
    column = world._jobs[job.id].column(vertex, *job.inspector.column(vertex))
    values = [world.store.load(column, at) if column.tracked else column.values[at] for at in range(len(column))]
    return [value.returned() or {} if type(value) is EdgeValues else value for value in values]


def main(arguments: list[str]) -> None:
    """Replay one: `python -m tests.simulation.answers SEED [NAME,...]`; tell its stories."""
    _, jobs = random_answers(int(arguments[0]), arguments[1].split(",") if arguments[1:] else ())
    for job in jobs:
        sys.stdout.write("\n".join((f"{job.id}: {job.outcome}", *job.master.inspector.story(), "")))


if __name__ == "__main__":
    main(sys.argv[1:])
