"""Any graph survives JSON; any JSON is a graph or a clear refusal; any legal graph has an order."""

import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from weft.graph.axes import Axis, GridMap
from weft.graph.draw import to_dot, to_text
from weft.graph.logical import (
    Bubble,
    Choice,
    Edge,
    LogicalGraph,
    Manager,
    Movement,
    MovementKind,
    Patch,
    Range,
    Role,
    SameAs,
    Scheduling,
    Source,
    Storage,
    Vertex,
)
from weft.graph.order import topological
from weft.graph.validate import validate
from weft.graph.wire import dumps, from_json, loads, patch_from_json, patch_to_json
from weft.model.errors import CapacityError, DefinitionError, GraphError
from weft.model.program import NO_PARAMS, Program
from weft.model.resources import Resources

names = st.text("abc/._-1 ", min_size=1, max_size=6) | st.text(max_size=3)
wholes = st.integers(-3, 1 << 40)
numbers = st.floats(allow_nan=False, allow_infinity=False) | wholes
values = st.recursive(
    st.none() | st.booleans() | wholes | numbers | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
mappings = st.dictionaries(st.text(max_size=3), values, max_size=2)
parallelisms = wholes | st.builds(Range, wholes, wholes) | st.builds(Source, names) | st.builds(SameAs, names)
resources = st.builds(
    Resources,
    numbers,
    wholes,
    wholes,
    names,
    st.dictionaries(names, wholes, max_size=2).map(lambda d: tuple(d.items())),
)
programs = st.builds(
    Program,
    st.text(max_size=5),
    mappings.map(lambda given: given or NO_PARAMS),
    st.none() | st.lists(values, max_size=3),
)
vertices = st.builds(
    Vertex,
    names,
    programs,
    parallelisms,
    resources=st.lists(resources, max_size=2).map(tuple),
    timeout_s=st.none() | numbers,
    cache_key=st.none() | names,
    manager=st.none()
    | st.builds(
        Manager, names, st.dictionaries(names, st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5), max_size=2)
    ),
    output_bytes=st.none() | wholes,
    scratch_bytes=wholes,
    lazy=st.booleans(),
    label=st.sampled_from(["", "sort", "a step"]),
    role=st.sampled_from(Role),
    outputs=st.none() | st.lists(names, max_size=2).map(tuple),
)
shapes = st.lists(wholes, max_size=2).map(tuple)
axes = st.builds(Axis, spans=st.lists(st.tuples(wholes, wholes), max_size=2).map(tuple))
movements = (
    st.sampled_from([Movement(move) for move in (MovementKind.NONE, MovementKind.ONE_TO_ONE, MovementKind.BROADCAST)])
    | st.builds(Movement, st.just(MovementKind.SCATTER_GATHER), wholes)
    | st.builds(
        lambda grid: Movement(MovementKind.GRID, grid=grid),
        st.builds(GridMap, shapes, shapes, st.lists(axes, max_size=2).map(tuple)),
    )
    | st.builds(
        lambda name, params: Movement(MovementKind.CUSTOM, name=name, params=tuple(params.items())),
        names.filter(bool),
        mappings,
    )
)
schedulings = st.builds(Scheduling, fraction=numbers)
edges = st.builds(Edge, names, names, movements, schedulings, st.sampled_from(Storage), st.booleans(), names)
bubbles = st.lists(st.builds(Bubble, names, st.lists(names, max_size=3).map(tuple)), max_size=2)
branches = st.dictionaries(st.text(max_size=3), st.lists(names, max_size=3).map(tuple), max_size=3)
choices = st.lists(st.builds(Choice, names, names, branches), max_size=2)
graphs = st.builds(
    LogicalGraph,
    names,
    st.lists(vertices, max_size=3).map(lambda made: {vertex.id: vertex for vertex in made}),
    st.lists(edges, max_size=3),
    bubbles,
    choices,
    limits=st.dictionaries(names, wholes, max_size=2),
)


@given(graphs)
def test_every_graph_survives(graph):
    assert vars(loads(dumps(graph))) == vars(graph)


@given(st.lists(vertices, max_size=2), st.lists(edges, max_size=2), st.lists(names, max_size=2), bubbles, choices)
def test_every_patch_survives(made, joined, dropped, units, choices):
    patch = Patch(tuple(made), tuple(joined), tuple(dropped), tuple(units), tuple(choices))
    assert patch_from_json(json.loads(json.dumps(patch_to_json(patch)))) == patch


FIELDS = "weft name vertices edges bubbles choices id program target src dst move grid axes op spans when storage"
words = st.sampled_from(FIELDS.split())
documents = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.floats() | words | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=20,
)


@given(documents, st.booleans())
def test_any_document_is_a_graph_or_refused(document, versioned):
    if versioned and isinstance(document, dict):
        document["weft"] = 1
    for read in (from_json, patch_from_json):
        with suppress(DefinitionError):
            read(document)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_text_is_a_graph_or_refused(text):
    with suppress(DefinitionError):
        loads(text)


@given(graphs)
def test_any_graph_is_legal_or_refused(graph):
    with suppress(GraphError, CapacityError):
        validate(graph, [Resources()])
        assert_ordered(graph)


@given(st.data(), st.integers(1, 8))
def test_order_and_depth(data, n):
    """Random acyclic graphs, whose vertices were added in any order."""
    ids = [f"v{at}" for at in range(n)]
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] < pair[1])
    chosen = data.draw(st.sets(pairs, max_size=15)) if n > 1 else set()
    order = data.draw(st.permutations(ids))
    graph = LogicalGraph(
        vertices={id: Vertex(id, Program("m:f")) for id in order},
        edges=[Edge(ids[src], ids[dst]) for src, dst in chosen],
    )
    validate(graph)
    assert_ordered(graph)


def assert_ordered(graph: LogicalGraph) -> None:
    position = {id: at for at, id in enumerate(topological(graph))}
    assert position.keys() == graph.vertices.keys()
    assert all(position[edge.src] < position[edge.dst] for edge in graph.edges)
    assert all(vertex.shown in to_text(graph, columns=10_000) for vertex in graph.vertices.values())
    assert to_dot(graph).count(" -> ") >= len(graph.edges)
