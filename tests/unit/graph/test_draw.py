"""Drawings of one graph that has some of everything."""

import pytest

from weft.graph.axes import group
from weft.graph.builder import Graph, after, gather, grid, one_to_one, shuffle
from weft.graph.draw import to_dot, to_plain, to_text
from weft.graph.logical import Edge, LogicalGraph, Outcome, Role, Storage, Vertex
from weft.model.errors import GraphError
from weft.model.program import Program
from weft.model.resources import Placement, Resources


def some_of_everything():
    g = Graph("all")
    ps = g.service("m:ps", n=2)
    read = g.add("m:read", n=8)
    part = g.add("m:part", shuffle(read, 4), resources=Resources(memory=1024))
    tree = g.add("m:tree", grid(part, group(0, 2), src=(4,), dst=(2,)))
    stream = g.add("m:stream", one_to_one(tree, concurrent=True, storage=Storage.EPHEMERAL), ps)
    g.bubble(tree, stream, name="fast", prewarmed=True)
    decide = g.add("m:decide", gather(stream, blocking=True))
    small = g.add("m:small", decide, placement=Placement(party="bank"))
    g.choice(decide, small=small, large=g.add("m:large", after(read, outcome=Outcome.ANY)))
    return g.finish()


TEXT = """\
all: 8 vertices, 8 edges
  ps x 2 (service)
  read x 8
  part x 4 (cpu 1, memory 1,024 bytes)  <- #4 read
a tree x 2  <- [4>2] part
a stream x 2  <~ = tree (ephemeral)  <~ after ps
  decide x 1 (expands)  <- * stream (blocking)
  small x 1 (kept) (on bank)  <- = decide
  large x 1 (kept)  <- after read (whatever the end)  <- after decide
a: bubble fast, prewarmed
choice choice-1 by decide  small: small; large: large
legend:  = task i reads task i; * every task reads all; # task p reads piece p
      of all; [] a map of chunk grids; <~ at the same time"""


def test_text():
    assert to_text(some_of_everything()) == TEXT


def test_text_for_a_small_terminal():
    lines = to_text(some_of_everything(), columns=32).splitlines()
    assert max(map(len, lines)) <= 32
    assert "a stream x 2  <~ = tree" in lines


def test_text_goes_down_though_vertices_were_added_upwards():
    vertices = {id: Vertex(id, Program("m:f")) for id in "ba"}
    drawn = to_text(LogicalGraph(vertices=vertices, edges=[Edge("a", "b")]))
    assert drawn.splitlines()[1:3] == ["a x 1", "b x 1  <- = a"]
    with pytest.raises(GraphError, match="cycle"):
        to_text(LogicalGraph(vertices=vertices, edges=[Edge("a", "b"), Edge("b", "a")]))


def test_dot():
    drawn = to_dot(some_of_everything())
    assert drawn.startswith('digraph "all" {')
    assert drawn.count("{") == drawn.count("}")
    for line in (
        '"ps" [label="ps x 2\\nservice", peripheries=2];',
        '"read" -> "part" [label="#4"];',
        '"read" -> "large" [label="whatever the end", style=dotted];',
        'label="fast";',
        '"decide" -> "small";',
    ):
        assert line in drawn
    inside = drawn[drawn.index("subgraph") : drawn.index("  }\n")]
    assert '"tree" [' in inside
    assert drawn.count('"tree" [label="tree') == 1


def test_dot_quotes_what_could_break_out():
    g = LogicalGraph(name='a"];\\')
    assert to_dot(g).splitlines()[0] == r'digraph "a\"];\\" {'


def labelled():
    """A step with a label, and the helper that decides about it."""
    g = Graph("named")
    decide = g.add("m:decide", name="x/if", label="sort", role=Role.HELPER)
    run = g.add("m:run", decide, name="x", label="sort")
    g.choice(decide, name="x/if", run=run)
    return g.finish()


def test_labels_stand_for_ids_and_helpers_are_not_drawn():
    text = to_text(labelled())
    assert text == "named: 1 vertex, 0 edges\nsort x 1 (if the condition of sort is true) (kept)"
    assert "x/if" not in to_dot(labelled())
    assert [(vertex["id"], vertex["name"]) for vertex in to_plain(labelled())["vertices"]] == [("x", "sort")]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [({"label": "a\nb"}, "label"), ({"label": "x" * 10_001}, "label"), ({"outputs": ("a", "b\x00")}, "output")],
)
def test_names_for_people_can_be_printed(fields, rule):
    g = Graph()
    g.add("m:f", **fields)
    with pytest.raises(GraphError) as caught:
        g.finish()
    assert caught.value.rule == rule
