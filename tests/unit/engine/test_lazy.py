"""Lazy vertices: tasks whose output nobody reads are not run."""

from tests.unit.engine.hand import body, run_out
from weft.graph.builder import Graph, gather, grid, one_to_one
from weft.graph.grid import copy, group, ranges


def test_only_what_is_read_is_run(hand):
    g = Graph("g")
    a = g.add(body, n=6, name="a", lazy=True)
    b = g.add(body, one_to_one(a), n=6, name="b", lazy=True)
    g.add(body, grid(b, copy(0, offset=2), src=(6,), dst=(2,)), n=2, name="c", lazy=True)
    h = hand(g)
    h.expect()
    assert h.rows("a") == ["skipped"] * 2 + ["ready"] * 2 + ["skipped"] * 2
    assert h.rows("b") == ["skipped"] * 2 + ["unscheduled"] * 2 + ["skipped"] * 2
    run_out(h, [0])
    assert h.job == "succeeded"
    assert "4 of 6 tasks are left out" in "".join(h.master.inspector.story("a"))


def test_others_run_all_of_them(hand):
    g = Graph("g")
    a = g.add(body, n=3, name="a")
    g.add(body, grid(a, copy(0, offset=2), src=(3,), dst=(1,)), n=1, name="b")
    h = hand(g)
    assert h.rows("a") == ["ready"] * 3


def test_results_are_made_though_nobody_reads_them(hand):
    g = Graph("g")
    a = g.add(body, n=3, name="a", lazy=True, keep=True)
    g.add(body, grid(a, copy(0), src=(3,), dst=(1,)), n=1, name="b", lazy=True)
    h = hand(g)
    assert h.rows("a") == ["ready"] * 3


def test_of_several_readers_one_is_enough(hand):
    g = Graph("g")
    a = g.add(body, n=4, name="a", lazy=True)
    g.add(body, grid(a, ranges(0, [(0, 1), (0, 2)]), src=(4,), dst=(2,)), n=2, name="b", lazy=True)
    g.add(body, grid(a, copy(0, offset=3), src=(4,), dst=(1,)), n=1, name="c", lazy=True)
    h = hand(g)
    assert h.rows("a") == ["ready", "ready", "skipped", "ready"]
    run_out(h, [0, 1])
    assert h.job == "succeeded"
    assert h.rows("a") == ["freed", "freed", "skipped", "freed"]


def test_below_a_tree_and_a_gather(hand):
    g = Graph("g")
    a = g.add(body, n=8, name="a", lazy=True)
    b = g.add(body, grid(a, group(0, 2), src=(8,), dst=(4,)), n=4, name="b", lazy=True)
    c = g.add(body, grid(b, copy(0, offset=1), src=(4,), dst=(2,)), n=2, name="c", lazy=True)
    g.add(body, gather(c), n=1, name="d", lazy=True)
    h = hand(g)
    assert h.rows("a") == ["skipped"] * 2 + ["ready"] * 4 + ["skipped"] * 2
    run_out(h, [0])
    assert h.job == "succeeded"


def test_what_is_lost_is_made_again_and_no_more(hand):
    g = Graph("g")
    a = g.add(body, n=4, name="a", lazy=True)
    g.add(body, grid(a, copy(0, offset=1), src=(4,), dst=(2,)), n=2, name="b", lazy=True)
    h = hand(g, cones=False)
    h(h.idle(0))
    h.expect("launch a[1] on 0")
    h(h.done("a[1]"))
    h.skip()
    h(h.output_lost("a[1]"))
    h.skip()
    assert h.rows("a") == ["skipped", "ready", "ready", "skipped"]
    run_out(h, [0])
    assert h.job == "succeeded"
