"""Failures of any tasks, in any order and in any number of ticks, end the tasks that a closure over all tasks finds."""

import os
import random
from typing import Any

from tests.unit.engine.hand import Hand, body
from weft.engine.core import Core
from weft.engine.rows import FATAL
from weft.graph.builder import Graph, VertexHandle, after, gather, one_to_one, shuffle
from weft.graph.logical import OnFailure, Outcome

COUNT = {"fast": 40, "soak": 20_000}.get(os.environ.get("HYPOTHESIS_PROFILE", "ci"), 300)


def any_graph(rng: random.Random) -> Graph:
    """Two to four sources, and up to six vertices behind them, joined by every kind of edge."""
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    made: list[VertexHandle] = [g.add(body, n=rng.randint(1, 4), name=f"s{i}") for i in range(rng.randint(2, 4))]
    for i in range(rng.randint(1, 6)):
        n = rng.randint(1, 4)
        inputs = []
        for node in rng.sample(made, rng.randint(1, min(3, len(made)))):
            edges = [gather(node), shuffle(node), after(node), after(node, outcome=Outcome.ANY)]
            inputs.append(rng.choice([*edges, *([one_to_one(node)] * 4 if node.parallelism == n else [])]))
        made.append(g.add(body, *inputs, n=n, name=f"v{i}"))
    return g


def closure(core: Core, failed: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return the failed tasks and all tasks that need one of them, task by task."""
    found, before = set(failed), -1
    while len(found) != before:
        before = len(found)
        for stage in core.stages:
            for link in stage.inputs:
                if link.edge.scheduling.outcome is not Outcome.SUCCESS:
                    continue
                everything = [(0, link.src.n, 0, 0)]
                for d in range(stage.n):
                    spans = link.router.inputs(d) if link.router is not None and not link.wide else everything
                    if any((link.src.id, i) in found for lo, hi, _, _ in spans for i in range(lo, hi)):
                        found.add((stage.id, d))
    return found


def any_failures(seed: int) -> None:
    rng = random.Random(seed)
    h = Hand(any_graph(rng), workers=16, cones=False)
    h(h.idle(*range(16)))
    h.skip()
    running = list(h.leases)
    rng.shuffle(running)
    failed: set[tuple[str, int]] = set()
    while running:
        tick = [running.pop() for _ in range(rng.randint(1, len(running)))]
        events: list[Any] = []
        for lease in tick:
            vertex, _, rest = lease.partition("[")
            lo = int(rest.rstrip("]").split(":")[0])
            if rng.random() < 0.3:
                failed.add((vertex, lo))
                events.append(h.failed(lease))
            else:
                events.append(h.done(lease))
        h(*events)
        h.skip()
        ended = {(stage.id, i) for stage in h.core.stages for i in range(stage.n) if stage.state[i] == FATAL}
        assert ended == closure(h.core, failed)


def test_failures_end_the_tasks_that_need_them_and_no_others(seed):
    for at in range(seed, seed + COUNT):
        try:
            any_failures(at)
        except Exception as error:
            again = f"WEFT_SEED={at} python -m pytest tests/properties/test_settle.py"
            raise AssertionError(f"seed {at}, repeat with: {again}\n{error}") from error
