"""Vertices whose outputs are there before the job: nothing of them is run, and nothing of them is freed."""

from tests.unit.engine.hand import body
from weft.engine.events import JobSubmitted
from weft.graph.builder import Graph, gather, grid, one_to_one
from weft.graph.grid import group


def test_their_readers_are_ready_at_once(hand):
    g = Graph("g")
    a = g.add(body, n=4, name="a", keep=True)
    g.add(body, one_to_one(a), n=4, name="b")
    g.add(body, gather(a), n=1, name="c")
    g.add(body, grid(a, group(0, 2), src=(4,), dst=(2,)), n=2, name="d")
    h = hand(g, workers=7, submit=False)
    h(JobSubmitted(0.0, ("a",)))
    h.expect()
    assert h.rows("a") == ["finished"] * 4
    assert h.rows("b") == ["ready"] * 4
    assert h.rows("c") == ["ready"]
    assert h.rows("d") == ["ready"] * 2
    h(h.idle(*range(7)))
    launched = h.skip()
    assert launched
    assert not [line for line in launched if "launch a" in line]


def test_they_outlive_their_readers(hand):
    g = Graph("g")
    a = g.add(body, n=2, name="a", keep=True)
    g.add(body, gather(a), n=1, name="b")
    h = hand(g, submit=False)
    h(JobSubmitted(0.0, ("a",)), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.done("b[0]"))
    h.expect("complete succeeded")
    assert h.rows("a") == ["finished"] * 2


def test_a_job_of_nothing_else_is_over_at_once(hand):
    g = Graph("g")
    g.add(body, n=3, name="a", keep=True)
    h = hand(g, submit=False)
    h(JobSubmitted(0.0, ("a",)))
    h.expect("complete succeeded")


def test_what_is_lost_of_them_is_asked_of_their_program(hand):
    g = Graph("g")
    a = g.add(body, n=2, name="a", keep=True)
    g.add(body, one_to_one(a), n=2, name="b")
    h = hand(g, submit=False)
    h(JobSubmitted(0.0, ("a",)))
    h(h.output_lost("a[1]"))
    h.skip()
    assert h.rows("a") == ["finished", "ready"]
    assert h.rows("b") == ["ready", "unscheduled"]
