"""A decision changes how an edge moves data, before its destination starts."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.engine.hand import Hand, body
from weft.engine.decisions import SetEdge
from weft.graph.builder import Graph, after, gather, one_to_one, shuffle
from weft.graph.logical import BROADCAST, NONE, ONE_TO_ONE, Edge, Movement, OnFailure, scatter_gather
from weft.graph.routing import bind
from weft.graph.validate import mark_results
from weft.wiring import Session

DEADLINE_S = 180.0


def decided(hand: type[Hand], movement: Movement, reads: Callable[..., Any], *, started: bool = True) -> Hand:
    """Two tasks of `a`, two of `b` that read them by `reads`, and `x`, which has changed that edge once `a` ended."""
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    x = g.add(body, name="x", expands=True)
    a = g.add(body, *([] if started else [after(x)]), n=2, name="a")
    g.add(body, reads(a), *([after(x)] if started else []), n=2, name="b")
    h = hand(g, workers=3, cones=False)
    h(h.idle(0, 1, 2))
    h.skip("launch")
    if started:
        h(h.done("a[0]"), h.done("a[1]"))
        h.expect()
    h(h.done("x[0]", values=[[SetEdge("a->b", movement=movement)]]))
    h.skip("free x")
    return h


def inputs(h: Hand) -> list[tuple[tuple[int, int, int, int], ...]]:
    router = h.core.links["a->b"].router
    assert router is not None
    return [tuple(router.inputs(index)) for index in range(2)]


def rejected(h: Hand) -> str:
    h.skip()
    return "\n".join(h.master.inspector.story("x[0]"))


def run_out(h: Hand) -> str:
    while True:
        h(h.idle(0, 1, 2))
        launched = [line.split()[1] for line in h.skip("launch")]
        h.skip("free")
        if not launched:
            return h.skip()[-1] if h.pending else ""
        h(*[h.done(name) for name in launched])
        if any(line.startswith("complete") for line in h.pending):
            h.skip("free")
            return h.skip()[-1]


@pytest.mark.parametrize(
    ("movement", "reads", "expected"),
    [
        (BROADCAST, lambda a: shuffle(a, 3), [((0, 2, 0, 3),)] * 2),
        (BROADCAST, shuffle, [((0, 2, 0, 2),)] * 2),
        (ONE_TO_ONE, lambda a: shuffle(a, 3), [((0, 1, 0, 3),), ((1, 2, 0, 3),)]),
        (BROADCAST, one_to_one, [((0, 2, 0, 1),)] * 2),
        (ONE_TO_ONE, gather, [((0, 1, 0, 1),), ((1, 2, 0, 1),)]),
    ],
)
def test_what_is_read_then(hand, movement, reads, expected):
    h = decided(hand, movement, reads)
    assert inputs(h) == expected
    assert run_out(h) == "complete succeeded"


def test_a_source_that_has_not_started_can_be_made_to_write_pieces(hand):
    h = decided(hand, scatter_gather(2), one_to_one, started=False)
    assert inputs(h) == [((0, 2, 0, 1),), ((0, 2, 1, 2),)]
    assert run_out(h) == "complete succeeded"


def test_back_to_pieces_that_are_there(hand):
    h = decided(hand, scatter_gather(2), lambda a: shuffle(a, 2))
    assert inputs(h) == [((0, 2, 0, 1),), ((0, 2, 1, 2),)]
    assert run_out(h) == "complete succeeded"


@pytest.mark.parametrize(
    ("movement", "reads", "why"),
    [
        (scatter_gather(2), gather, "has started, and writes no pieces"),
        (scatter_gather(5), lambda a: shuffle(a, 2), "has started, and writes 2 pieces"),
        (NONE, gather, "the program of its destination counts its inputs"),
        (BROADCAST, after, "the program of its destination counts its inputs"),
    ],
)
def test_what_cannot_be(hand, movement, reads, why):
    assert why in rejected(decided(hand, movement, reads))


def test_numbers_of_tasks_that_do_not_fit(hand):
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    x = g.add(body, name="x", expands=True)
    a = g.add(body, n=2, name="a")
    g.add(body, gather(a), after(x), n=3, name="b")
    h = hand(g, workers=3, cones=False)
    h(h.idle(0, 1, 2))
    h.skip("launch")
    h(h.done("x[0]", values=[[SetEdge("a->b", movement=ONE_TO_ONE)]]))
    assert "one_to_one joins 2 tasks of 'a' to 3 of 'b'" in rejected(h)
    assert inputs(h) == [((0, 2, 0, 1),)] * 2, "it is as it was"


def test_the_router_of_what_was_a_shuffle():
    router = bind(Edge("a", "b", Movement(BROADCAST.move, partitions=4)), 3, 2)
    assert router is not None
    assert (router.partitions, list(router.consumers(1)), router.fan_in(0)) == (4, [(0, 2)], 3)


def pieces(n: int) -> list[list[int]]:
    return [[n, part] for part in range(3)]


def small(*_: object) -> list[SetEdge]:
    return [SetEdge("made->read", movement=BROADCAST)]


def flat(found: list[list[int]]) -> list[list[int]]:
    return sorted(found)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_readers_get_all_pieces(backend):
    g = Graph("small")
    made = g.add(pieces, items=[0, 1], name="made")
    decide = g.add(small, after(made), name="decide", expands=True)
    g.add(flat, shuffle(made, 3), after(decide), n=2, name="read")
    mark_results(g)
    with Session(backend=backend, workers=2) as session:
        assert session.submit(g).result(DEADLINE_S)["read"] == [[[n, part] for n in (0, 1) for part in range(3)]] * 2


def test_it_is_told_in_explanations(hand):
    h = decided(hand, BROADCAST, lambda a: shuffle(a, 3))
    lines = "\n".join(h.master.inspector.explain().lines())
    assert "shuffle of 3, local" in lines
    assert "all to all, local" in lines
    run_out(h)
