"""The rows about graphs that change: every one has its case, and the cheap cases give what they promise."""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks import __main__ as command
from benchmarks import dynamic

pytest.importorskip("pyarrow")

from benchmarks.dynamic import bubbles, ours
from benchmarks.dynamic.tpch import QUERIES, graph_of
from weft.graph.validate import validate
from weft.policies.bubbles import apply_cut
from weft.policies.choices import BroadcastChoice
from weft.testing.trial import run_graph

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def session_of_the_cases():
    """Close the session that the cases share: while it is open, arrays of later tests warn of it."""
    yield
    ours.close_session()


def test_every_row_has_a_case_and_a_name_of_its_own():
    assert {spec.ours.case for spec in dynamic.SPECS} == set(ours.CASES)
    names = [spec.name for specs in command.SUITES.values() for spec in specs]
    assert len(names) == len(set(names))


@cache
def figures_of(case):
    return ours.CASES[case]()


@pytest.mark.parametrize("case", ["parallelism", "skew", "faults", "straggler_simulated"])
def test_a_case_gives_the_figures_of_its_rows(case):
    figures = figures_of(case)
    wanted = {spec.figure: spec for spec in dynamic.SPECS if spec.ours.case == case}
    assert set(figures) == set(wanted)


def test_one_reader_is_left_of_500_and_no_reader_gets_much_more_than_the_mean():
    assert figures_of("parallelism")["tasks"] == 1
    assert figures_of("skew")["ratio"] <= 1.3


def test_every_shape_is_a_legal_graph_in_every_mode():
    for query in QUERIES:
        graph, stages = graph_of(query())
        assert sum(stage.tasks for stage in stages.values()) <= bubbles.SLOTS
        for cut, prewarmed in bubbles.cuts(graph, bubbles.SIZE).values():
            validate(apply_cut(graph, cut, prewarmed=prewarmed))


CLOSEST = "DuckDB, an idle node's pods, SSDs"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == CLOSEST else pytest.mark.soak) for name in bubbles.PUBLISHED]
)
def test_bubbles_are_between_batch_and_a_gang(name):
    costs = bubbles.modes(bubbles.PUBLISHED[name])
    assert bubbles.in_order(costs), costs


@pytest.mark.parametrize(("step", "best"), [(1000, "copied"), (1, "shuffled")])
def test_a_choice_ends_at_the_moment_at_which_the_better_plan_does(step, best, monkeypatch):
    monkeypatch.setattr(ours, "files", lambda: [f"file-{number}" for number in range(ours.BIG)])
    seconds = {"small": 0.004, "big": 0.004, "copied": 0.01, "small_parts": 0.006, "big_parts": 0.006, "shuffled": 0.03}
    ends = {}
    for plan in (best, "choice"):
        graph, _ = ours._planned(plan, step)
        trial = run_graph(
            graph,
            managers={"conditional": BroadcastChoice},
            workers=2,
            seconds=lambda vertex, _: seconds.get(vertex, 0.0),
            nbytes=lambda vertex, _: 400_000 // (step if vertex == "small" else 1),
        )
        ends[plan] = trial.simulator.clock.time
        assert trial.job.master.inspector.view().choices.get("plan", best) == best
    assert ends["choice"] == pytest.approx(ends[best])


def test_the_order_is_seen_when_it_is_wrong():
    batch, bubble, gang = bubbles.Cost(2, 1), bubbles.Cost(1, 2), bubbles.Cost(1, 3)
    assert bubbles.in_order({"batch": batch, "bubble": bubble, "gang": gang})
    assert not bubbles.in_order({"batch": bubble, "bubble": bubble, "gang": gang})
    assert not bubbles.in_order({"batch": batch, "bubble": gang, "gang": bubble})


def test_one_slow_worker_of_16_costs_little():
    assert figures_of("straggler_simulated")["ratio"] <= 1.3
