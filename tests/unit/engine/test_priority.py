"""Who goes first: deeper work, then what deeper work waits for, then smaller outputs; and how little is held so."""

from collections.abc import Callable
from math import log2

import pytest

from tests.unit.engine.hand import body
from weft.backends.simulator import Simulator
from weft.engine.master import Master
from weft.engine.recovery import digest
from weft.engine.tuning import Tuning
from weft.graph.builder import Graph, after, gather
from weft.runtime.job import JobRun
from weft.runtime.loop import Loop

LEAVES = 8


def tree(leaves: int, *, two_sources: bool = False) -> Graph:
    g = Graph("tree")
    a = g.add(body, n=leaves, name="a")
    if two_sources:
        a = g.add(body, a, g.add(body, n=leaves, name="b"), name="c")
    g.reduce(body, a)
    return g


def held_after(units: int, workers: int, key: Callable[[int, int], tuple[int, int]]) -> int:
    """Values held after `units` steps of a list scheduler on the tree over LEAVES leaves, one task a worker and step.

    `key(level, index)` orders the ready tasks, smallest first. Level 0 are the leaves.
    """
    ready = {(0, i) for i in range(LEAVES)}
    held: set[tuple[int, int]] = set()
    for _ in range(units):
        running = sorted(ready, key=lambda task: key(*task))[:workers]
        ready -= set(running)
        for level, index in running:
            held.add((level, index))
            if level:
                held -= {(level - 1, 2 * index), (level - 1, 2 * index + 1)}
            if {(level, index ^ 1)} <= held and LEAVES >> (level + 1):
                ready.add((level + 1, index // 2))
    return len(held)


def test_the_picture_of_five_time_units(hand):
    # Two workers, every task takes one unit of time: by levels 6 values are held then, by depth 2.
    assert held_after(5, 2, lambda level, index: (level, index)) == 6
    assert held_after(5, 2, lambda level, index: (-level, index)) == 2
    h = hand(tree(LEAVES), cones=False)
    for _ in range(5):
        h(h.idle(0, 1))
        launched = [line.split()[1] for line in h.skip("launch")]
        assert len(launched) == 2
        h(*[h.done(name, seconds=1.0) for name in launched])
        h.skip("free")
    assert sum(row == "finished" for stage in h.core.stages for row in h.rows(stage.id)) == 2


def test_deeper_work_goes_first(hand):
    g = Graph("g")
    a = g.add(body, n=2, name="a")
    g.add(body, a, name="b")
    g.add(body, n=1, name="c")
    h = hand(g, cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]", seconds=1.0), h.idle(0, 1))
    h.expect("launch b[0] on 0", "launch c[0] on 1")


def test_of_equals_what_deeper_work_waits_for_goes_first(hand):
    g = Graph("g")
    a, b = (g.add(body, n=4, name=name) for name in "ab")
    g.reduce(body, g.add(body, a, b, name="c"), name="total")
    h = hand(g, workers=1, cones=False)
    order = []
    for _ in range(6):
        h(h.idle(0))
        order += [line.split()[1] for line in h.skip("launch")]
        h(h.done(order[-1], seconds=1.0))
        h.skip("free")
    assert order == ["a[0]", "b[0]", "c[0]", "a[1]", "b[1]", "c[1]"]


def test_then_smaller_outputs_go_first(hand):
    g = Graph("g")
    big = g.add(body, n=4, name="big")
    small = g.add(body, n=4, name="small")
    g.add(body, gather(big), gather(small), n=1, name="late")
    h = hand(g, workers=2, cones=False)
    h(h.idle(0, 1))
    h.expect("launch big[0] on 0", "launch small[0] on 1")
    h(h.done("big[0]", seconds=1.0, nbytes=1000), h.done("small[0]", seconds=1.0, nbytes=10), h.idle(0, 1))
    assert len(h.skip("launch")) == 2
    h(h.idle(0))
    h.expect("launch small[2] on 0")  # both have two left, and small is the smaller


def test_equal_jobs_run_alike(hand):
    def told() -> list[object]:
        g = Graph("g")
        a = g.add(body, n=5, name="a")
        g.add(body, gather(g.add(body, a, name="b")), after(a), n=3, name="c")
        h = hand(g, workers=2)
        for _ in range(20):
            h(h.idle(0, 1))
            launched = [line.split()[1] for line in h.skip() if line.startswith("launch")]
            h(*[h.done(name, seconds=0.001) for name in launched])
            h.skip()
        return [command for command in h.said if type(command).__name__ != "Launch"] + [
            (c.vertex, c.lo, c.hi, c.worker) for c in h.said if type(c).__name__ == "Launch"
        ]

    assert told() == told()


# ------------------------------------------------------------------------------------------------ what is held


class Counting(Simulator):
    """Also counts the values inside leases: what a cone holds at most, or all that a plain lease makes."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.inside: dict[int, int] = {}
        self.peak = 0

    def launch(self, job, lease):
        units = lease.hi - lease.lo
        self.inside[lease.lease] = units if lease.cone is None else lease.cone.height + units - 1
        self._see()
        super().launch(job, lease)

    def _hold(self, run, lo, hi):
        self.inside.pop(run.launch.lease)
        super()._hold(run, lo, hi)
        self._see()

    def _see(self):
        self.peak = max(self.peak, self.held_now + sum(self.inside.values()))


@pytest.mark.parametrize("two_sources", [False, True], ids=["one source", "two sources"])
@pytest.mark.parametrize("task_s", [1e-6, 1e-4, 1.0])
@pytest.mark.parametrize("target_s", [0.0005, 0.002, 0.5])
def test_a_tree_reduction_holds_little(two_sources, task_s, target_s):
    leaves = 1024
    graph = tree(leaves, two_sources=two_sources).finish()
    sim = Counting(workers=2, seconds=task_s, tuning=Tuning(target_s=target_s))
    loop = Loop(sim, sim.clock)
    job = JobRun("tree", graph, Master(graph, "tree", sim.tuning))
    loop.submit(job)
    sim.run()
    assert job.outcome is not None
    assert job.outcome.state == "succeeded"
    assert sim.peak <= 2 * log2(leaves * (1 + two_sources)) + 2
    if task_s == 1e-6:
        assert sim.leases < leaves / 10  # and that without a message for each task


def test_to_ask_whether_a_job_wants_workers_changes_nothing(hand):
    # The shell asks when it likes and a replay does not: what is decided may not depend on it.
    g = Graph("g")
    g.add(body, n=1, name="a")
    g.add(body, n=3, name="b")
    h = hand(g, workers=4, cones=False)
    asked = []
    for worker in range(4):
        before = digest(h.core)
        asked.append(h.master.wants_workers)
        assert digest(h.core) == before
        h(h.idle(worker))
        h.skip()
    before = digest(h.core)
    asked.append(h.master.wants_workers)
    assert digest(h.core) == before
    assert asked == [True, True, True, True, False]
