"""Who reads an output next."""

from tests.unit.engine.hand import Hand, body
from weft.engine.foresight import LATER, NEVER, next_use
from weft.graph.builder import Graph, gather, one_to_one


def hand() -> Hand:
    """first -> second (one to one) -> last, which with two tasks also reads all of first."""
    g = Graph("g")
    first = g.add(body, n=4, name="first")
    second = g.add(body, one_to_one(first), name="second")
    g.add(body, gather(second), gather(first), n=2, name="last")
    h = Hand(g, workers=1, cones=False, target_s=0.0)
    h.skip()
    return h


def uses(h: Hand, vertex: str, passed=lambda vertex: ()) -> list[float]:
    stage = h.core.by_id[vertex]
    return [next_use(stage, passed, index) for index in range(stage.n)]


def test_the_sooner_the_further_on_and_the_deeper():
    h = hand()
    depth = {name: stage.depth for name, stage in h.core.by_id.items()}
    assert depth["last"] > depth["second"] > depth["first"]
    assert uses(h, "second") == [LATER - depth["last"]] * 4
    assert uses(h, "first") == [at / 4 - depth["second"] for at in range(4)]
    assert uses(h, "last") == [NEVER] * 2


def test_it_moves_on_with_the_tasks():
    g = Graph("g")
    first = g.add(body, n=3, name="first").keep()
    g.add(body, one_to_one(first), name="second")
    h = Hand(g, workers=1, cones=False, target_s=0.0)
    depth = h.core.by_id["second"].depth
    assert uses(h, "first") == [-depth, 1 / 3 - depth, 2 / 3 - depth]
    h.skip()
    h(h.idle(0))
    h.expect("launch first[0] on 0")
    h(h.done("first[0]"), h.idle(0))
    h.expect("launch second[0] on 0")
    assert uses(h, "first", lambda vertex: [(0, 1)])[0] == NEVER, "its reader has passed"
    assert uses(h, "first")[0] == -depth
    h(h.done("second[0]"))
    assert uses(h, "first") == [NEVER, 1 / 3 - depth, 2 / 3 - depth]


def test_tasks_that_wait_for_something_else_come_later():
    """first -> second (one to one) -> total -> last, which also reads first one to one; and other -> last, the same."""
    g = Graph("g")
    first, other = g.add(body, n=3, name="first"), g.add(body, n=3, name="other")
    second = g.add(body, one_to_one(first), name="second")
    total = g.add(body, gather(second), name="total")
    g.add(body, one_to_one(first), one_to_one(other), gather(total), name="last")
    h = Hand(g, workers=1, cones=False, target_s=0.0)
    depth = {name: stage.depth for name, stage in h.core.by_id.items()}
    h.skip()
    assert uses(h, "first") == [at / 3 - depth["second"] for at in range(3)]
    assert uses(h, "other") == [LATER + at / 3 - depth["last"] for at in range(3)]


def test_a_task_that_lacks_one_of_its_inputs_comes_later():
    g = Graph("g")
    left, right = g.add(body, n=2, name="left"), g.add(body, n=2, name="right")
    g.add(body, one_to_one(left), one_to_one(right), name="both")
    h = Hand(g, workers=1, cones=False, target_s=0.0)
    depth = h.core.by_id["both"].depth
    h.skip()
    h(h.idle(0))
    h.expect("launch left[0] on 0")
    assert uses(h, "right") == [LATER - depth, LATER + 1 / 2 - depth]
    h(h.done("left[0]"))
    assert uses(h, "right") == [-depth, LATER + 1 / 2 - depth]
