"""Which streams may make their writers wait."""

from typing import Any

import pytest

from tests.unit.engine.hand import Hand, body
from weft.engine.extensions.stream_cycles import may_wait
from weft.graph.builder import Graph, after, gather, one_to_one, shuffle
from weft.graph.logical import Storage

LIVE: Any = {"concurrent": True, "storage": Storage.EPHEMERAL}


def waits(graph: Graph, *members) -> dict[str, bool]:
    graph.bubble(*members)
    links = Hand(graph, workers=16).core.links
    return {name: may_wait(link) for name, link in links.items() if link.edge.storage is Storage.EPHEMERAL}


def test_a_chain_waits():
    g = Graph("g")
    a = g.add(body, n=3, name="a")
    b = g.add(body, one_to_one(a, **LIVE), name="b")
    c = g.add(body, one_to_one(b, **LIVE), name="c")
    assert waits(g, a, b, c) == {"a->b": True, "b->c": True}


@pytest.mark.parametrize(("n", "m"), [(1, 4), (4, 1), (4, 4)])
def test_one_shuffle_waits_whatever_its_size(n, m):
    """Every reader takes the sources in the same order, so the first of them can always go on."""
    g = Graph("g")
    a = g.add(body, n=n, name="a")
    b = g.add(body, shuffle(a, m, **LIVE), n=m, name="b")
    c = g.add(body, one_to_one(b, **LIVE), name="c")
    assert waits(g, a, b, c) == {"a->b": True, "b->c": True}


def test_a_diamond_spills_on_every_side():
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, one_to_one(a, **LIVE), name="b")
    c = g.add(body, one_to_one(b, **LIVE), one_to_one(a, **LIVE), name="c")
    d = g.add(body, one_to_one(c, **LIVE), name="d")
    assert waits(g, a, b, c, d) == {"a->b": False, "b->c": False, "a->c": False, "c->d": True}


def test_a_member_that_starts_after_another_closes_a_cycle_too():
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, one_to_one(a, **LIVE), name="b")
    c = g.add(body, one_to_one(a, **LIVE), after(b), name="c")
    assert waits(g, a, b, c) == {"a->b": False, "a->c": False}


@pytest.mark.parametrize("make", [shuffle, gather])
def test_a_shuffle_before_another_wide_edge_spills(make):
    """Who reads the second edge waits for its first source, which waits for one that writes to the second source."""
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, shuffle(a, 2, **LIVE), n=2, name="b")
    c = g.add(body, make(b, **LIVE), n=1 if make is gather else 2, name="c")
    assert waits(g, a, b, c) == {"a->b": False, "b->c": False}


def test_two_sources_of_a_join_wait():
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, n=1, name="b")
    c = g.add(body, one_to_one(a, **LIVE), one_to_one(b, **LIVE), name="c")
    assert waits(g, a, b, c) == {"a->c": True, "b->c": True}
