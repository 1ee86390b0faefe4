"""Who asks for a worker or a token when what it asked for came to nothing, and what may still be asked for."""

import pytest

from tests.unit.engine.hand import body
from weft.engine.decisions import SetResources
from weft.graph.builder import Graph, after, gather
from weft.graph.logical import OnFailure
from weft.model.resources import Resources

CONTINUE = OnFailure.CONTINUE


def test_a_member_that_is_lost_while_its_gang_waits_is_asked_for_too(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, gather(a), n=1, name="b", keep=True)
    g.add(body, gather(a), after(b), n=1, name="c")
    g.bubble(a, b, name="gang", timeout_s=5.0)
    h = hand(g, workers=3, cones=False)
    h.skip()
    h(h.granted(a=0, b=1))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"))
    h.skip()
    h(h.done("b[0]"))
    h.skip()
    h(h.idle(2))
    h.skip()
    h(h.output_lost("b[0]"))
    assert h.skip("acquire") == ["acquire b*1"]
    h.skip()
    h(h.output_lost("a[0]"))
    h.skip()
    h(h.granted(b=1))
    assert h.skip("acquire"), "a[0] is wanted by b and c and nobody asks for it"


def test_after_a_refusal_the_next_one_gets_the_token(hand):
    g = Graph("g", on_failure=CONTINUE, limits={"slots": 1})
    g.add(body, n=2, name="a", resources=Resources(tokens=(("slots", 1),)))
    h = hand(g, workers=2)
    assert len(h.skip("acquire")) == 1
    h(h.refused("a"))
    assert h.skip("acquire"), "the token is free and a[1] is ready"


@pytest.mark.parametrize("asks", [Resources(cpu=2), Resources(cpu=0)])
def test_what_running_tasks_took_of_tokens_is_settled(hand, asks):
    g = Graph("g", limits={"slots": 1})
    g.add(body, n=1, name="x", expands=True)
    g.add(body, n=2, name="a", resources=Resources(cpu=0, tokens=(("slots", 1),)))
    h = hand(g, workers=2)
    h.expect("start a[0]")
    h(h.idle(0))
    h.expect("launch x[0] on 0")
    h(h.done("x[0]", values=[[SetResources("a", (asks,))]]))
    h.expect_any_order("free x[0]", "stop a[0]: x[0] failed")
    assert any("is settled" in line for line in h.master.inspector.story("x[0]"))
    assert h.core.by_id["a"].resources[0].tokens == (("slots", 1),)
