"""From edges to routers, and the register of routers of one's own."""

import pytest

from weft.graph import routers, routing
from weft.graph.axes import TO_ALL
from weft.graph.builder import Graph, custom
from weft.graph.logical import BROADCAST, NONE, Edge, Movement, MovementKind, scatter_gather
from weft.graph.rectangles import Rectangles
from weft.graph.routers import Broadcast, OneToOne, Router, ScatterGather
from weft.graph.routing import CUSTOM, bind
from weft.graph.validate import validate
from weft.model.errors import GraphError


def test_each_movement_has_its_router():
    copied = Movement(MovementKind.ONE_TO_ONE)  # equal to the usual one and not it, as after a journey
    found = [
        bind(Edge("a", "b", movement), n_src, n_dst)
        for movement, n_src, n_dst in (
            (copied, 3, 3),
            (BROADCAST, 3, 2),
            (scatter_gather(), 3, 2),
            (scatter_gather(2), 3, 2),
            (scatter_gather(6), 3, 2),
            (Movement(MovementKind.GRID, grid=TO_ALL), 1, 1),
        )
    ]
    assert [type(router) for router in found] == [
        OneToOne,
        Broadcast,
        ScatterGather,
        ScatterGather,
        Rectangles,
        OneToOne,
    ]
    assert bind(Edge("a", "b"), 0, 0) is not None
    assert bind(Edge("a", "b", NONE), 3, 2) is None


@pytest.mark.parametrize("edge", [Edge("a", "b"), Edge("a", "b", Movement(MovementKind.ONE_TO_ONE))])
def test_one_to_one_needs_equal_numbers(edge):
    with pytest.raises(GraphError, match="one_to_one joins 3 tasks of 'a' to 4 of 'b'") as caught:
        bind(edge, 3, 4)
    assert caught.value.subject == "a->b"


def test_a_router_of_ones_own(monkeypatch):
    class Last(Router):
        def inputs(self, dst):
            return ((self.n_src - 1, self.n_src, 0, 1),)

        def consumers(self, src):
            return ((0, self.n_dst),) if src == self.n_src - 1 else ()

    made = []

    def last(n_src, n_dst, params):
        made.append(params)
        return Last(n_src, n_dst)

    monkeypatch.setitem(CUSTOM, "last", last)
    router = bind(Edge("a", "b", Movement(MovementKind.CUSTOM, name="last", params=(("k", 1),))), 5, 2)
    assert isinstance(router, Last)
    assert router.inputs(0) == ((4, 5, 0, 1),)
    assert (router.fan_in(0), made) == (1, [{"k": 1}])
    with pytest.raises(GraphError, match="no router is registered as 'lost'") as caught:
        bind(Edge("a", "b", Movement(MovementKind.CUSTOM, name="lost")), 5, 2)
    assert "last" in caught.value.hint


def test_a_bare_router_answers_nothing():
    for ask in (Router(1, 1).inputs, Router(1, 1).consumers):
        with pytest.raises(NotImplementedError):
            ask(0)


def test_the_words_of_routers_are_handed_on():
    for word in ("Router", "Piece", "OneToOne", "Group", "Broadcast", "ScatterGather"):
        assert getattr(routing, word) is getattr(routers, word)


# ------------------------------------------------------------------------------------------------ routers of users


class Own(Router):
    """A router whose methods are given: task i reads task i, unless they say otherwise."""

    def __init__(self, n_src, n_dst, inputs=None, consumers=None):
        super().__init__(n_src, n_dst)
        self.given = inputs or (lambda i: ((i, i + 1, 0, 1),)), consumers or (lambda i: ((i, i + 1),))

    def inputs(self, dst):
        return self.given[0](dst)

    def consumers(self, src):
        return self.given[1](src)


def fails(*_):
    raise ValueError("mine")


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        (lambda *_: None, "is None, not a Router"),
        (lambda *_: [[0], [1]], "is a list, not a Router"),
        (fails, "raised ValueError: mine"),
        (lambda n, m, _: Own(n + 1, m), "is one for 4 to 3 tasks"),
        (lambda n, m, _: Own(n, m, inputs=lambda i: [i]), "raised TypeError: cannot unpack"),
        (lambda n, m, _: Own(n, m, inputs=lambda i: ((i, 9, 0, 1),)), r"has the piece \(0, 9, 0, 1\)"),
        (lambda n, m, _: Own(n, m, inputs=lambda i: ((0, n, 0, 1),)), r"has task 2 in inputs\(0\), and not 0 in"),
        (lambda n, m, _: Own(n, m, consumers=lambda i: ((i, 9),)), r"has the range \(0, 9\) in consumers\(0\)"),
        (lambda n, m, _: Own(n, m, consumers=lambda i: ((0, m),)), r"has task 2 in consumers\(0\), and not 0 in"),
    ],
)
def test_a_wrong_router_is_refused_before_the_run(monkeypatch, factory, says):
    monkeypatch.setitem(CUSTOM, "own", factory)
    g = Graph("g")
    g.add(len, custom(g.add(len, n=3, name="a"), "own"), n=3, name="b")
    with pytest.raises(GraphError, match=rf"edge a->b: the router 'own' for 3 to 3 tasks {says}") as caught:
        validate(g)
    assert caught.value.rule == "custom-router"


def test_a_right_router_is_taken(monkeypatch):
    monkeypatch.setitem(CUSTOM, "own", lambda n, m, _: Own(n, m))
    g = Graph("g")
    g.add(len, custom(g.add(len, n=3, name="a"), "own"), n=3, name="b")
    validate(g)
