"""JSON in and out: names of programs, and everything that is refused on the way in."""

import json
import os.path
from typing import Any

import pytest

from weft.graph.axes import GridMap, broadcast, group
from weft.graph.builder import Graph, after, shuffle
from weft.graph.logical import (
    BROADCAST,
    NONE,
    ONE_TO_ONE,
    SEQUENTIAL,
    Edge,
    LogicalGraph,
    Manager,
    Patch,
    Range,
    RestartPolicy,
    Retry,
    SameAs,
    Source,
    Storage,
    Vertex,
)
from weft.graph.preflight import MAX_BYTES, parse
from weft.graph.wire import (
    dumps,
    from_json,
    loads,
    patch_from_json,
    patch_to_json,
    target_name,
    to_json,
)
from weft.model.errors import GraphError, InputLimitError, ProgramError
from weft.model.program import Program
from weft.model.resources import ONE_SLOT_ONLY, Resources

SMALL: dict[str, Any] = {"weft": 1, "name": "g", "vertices": [{"id": "a", "program": {"target": "m:f"}}]}


def test_defaults_are_left_out():
    g = Graph("words")
    a = g.add("m:read", items=["x", "y"])
    g.add("m:count", shuffle(a, 4), after(a), name="count", keep=True)
    assert to_json(g) == {
        "weft": 1,
        "name": "words",
        "vertices": [
            {"id": "read", "program": {"target": "m:read", "items": ["x", "y"]}, "parallelism": 2},
            {"id": "count", "program": {"target": "m:count"}, "parallelism": 4, "keep": True},
        ],
        "edges": [
            {"src": "read", "dst": "count", "move": "scatter_gather", "partitions": 4},
            {"src": "read", "dst": "count", "move": "none", "name": "read->count.2"},
        ],
    }


def test_the_step_of_a_group_is_its_size():
    axes = [{"op": "group", "source": 0, "k": 3}, {"op": "group", "source": 1, "k": 3, "step": 1}, {"op": "broadcast"}]
    grid = {"src": [6, 6], "dst": [2, 4, 1], "axes": axes, "partial": True}
    given = {"weft": 1, "name": "g", "vertices": [], "edges": [{"src": "a", "dst": "b", "move": "grid", "grid": grid}]}
    made = from_json(given)
    assert made.edges[0].movement.grid == GridMap(
        (6, 6), (2, 4, 1), (group(0, 3), group(1, 3, step=1), broadcast()), True
    )
    assert to_json(made) == given


def test_constants_come_back_equal():
    made = loads(dumps(LogicalGraph(vertices={"a": Vertex("a", Program("m:f"))}, edges=[Edge("a", "b")])))
    assert made.edges[0].movement == ONE_TO_ONE
    assert made.edges[0].scheduling == SEQUENTIAL
    assert made.vertices["a"].resources == ONE_SLOT_ONLY
    movements = [{"src": "a", "dst": "b", "move": move} for move in ("none", "broadcast")]
    none, broadcast = from_json({"weft": 1, "edges": movements}).edges
    assert none.movement == NONE
    assert none.storage is Storage.NONE
    assert broadcast.movement == BROADCAST


def test_equal_graphs_have_equal_text():
    """Whole numbers that are floats in one of them are written as the other's."""
    whole = Vertex(
        "a",
        Program("m:f"),
        resources=(Resources(cpu=2, custom=(("licence", 0.5),)),),
        timeout_s=5,
        retry=Retry(delay_s=1),
        restart=RestartPolicy.EXIT_CODE,
    )
    made = LogicalGraph(vertices={"a": whole})
    assert dumps(loads(dumps(made))) == dumps(made)
    assert '"timeout_s": 5}' in dumps(loads(dumps(made)))


@pytest.mark.parametrize("n", [0, 7, Range(1, 3), Source("p"), SameAs("q")])
def test_parallelisms(n):
    made = LogicalGraph(vertices={"a": Vertex("a", Program("m:f"), n)})
    assert loads(dumps(made)).vertices == made.vertices


def test_callables_are_written_by_name():
    assert target_name(os.path.join) == f"{os.path.__name__}:join"
    assert target_name(json.JSONDecoder.decode) == "json.decoder:JSONDecoder.decode"
    assert target_name("m:f") == "m:f"

    def inner():
        return 1

    for target in (lambda: 1, inner, Graph().add):
        with pytest.raises(ProgramError, match="cannot be named as 'module:function'") as caught:
            target_name(target)
        assert "top level of a module" in caught.value.hint


def test_a_function_that_hides_behind_anothers_name_is_refused():
    def join():
        return 1

    join.__module__, join.__qualname__ = os.path.__name__, "join"
    with pytest.raises(ProgramError):
        target_name(join)


@pytest.mark.parametrize("value", [-(1 << 63), (1 << 64) - 1])
def test_whole_numbers_of_64_bits_survive(value: int):
    graph = LogicalGraph(vertices={"a": Vertex("a", Program("m:f", {"n": value}))})
    assert loads(dumps(graph)).vertices["a"].program.params == {"n": value}


@pytest.mark.parametrize("value", [{1, 2}, (1, 2), b"x", float("nan"), 1 << 64, -(1 << 63) - 1, {1: 2}, [object()]])
def test_values_that_json_would_change_are_refused(value):
    for program in (Program("m:f", {"x": value}), Program("m:f", items=[value])):
        with pytest.raises(GraphError, match="of vertex 'a'") as caught:
            dumps(LogicalGraph(vertices={"a": Vertex("a", program)}))
        assert caught.value.rule == "json"


def test_endless_values_are_refused():
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(GraphError, match="params of vertex 'a'"):
        to_json(LogicalGraph(vertices={"a": Vertex("a", Program("m:f", {"x": loop}))}))


def vertex(**fields):
    return {**SMALL, "vertices": [{"id": "a", "program": {"target": "m:f"}, **fields}]}


def edge(**fields):
    return {**SMALL, "edges": [{"src": "a", "dst": "b", **fields}]}


REFUSED = {
    "no version": ({"name": "g"}, "weft", "version None"),
    "another version": ({"weft": 2}, "weft", "version 2"),
    "a truthful version": ({"weft": True}, "weft", "version True"),
    "not a mapping": ([], "graph", "a list, not a mapping"),
    "unknown field": ({**SMALL, "colour": 1}, "graph.colour", "no field 'colour'"),
    "name": ({**SMALL, "name": 3}, "graph.name", "a whole number, not text"),
    "on_failure": ({**SMALL, "on_failure": "explode"}, "graph.on_failure", "'explode'"),
    "limits": ({**SMALL, "limits": {"slots": 1.5}}, "limits.slots", "a number, not a whole number"),
    "vertices": ({"weft": 1, "vertices": {}}, "graph.vertices", "a mapping, not a list"),
    "vertex": ({"weft": 1, "vertices": ["a"]}, "vertices[0]", "text, not a mapping"),
    "vertex twice": ({"weft": 1, "vertices": SMALL["vertices"] * 2}, "a", "exists already"),
    "no id": ({"weft": 1, "vertices": [{"program": {"target": "m:f"}}]}, "vertices[0]", "lacks the field 'id'"),
    "no program": ({"weft": 1, "vertices": [{"id": "a"}]}, "vertices[0]", "lacks the field 'program'"),
    "no target": (vertex(program={}), "vertices[0].program", "lacks the field 'target'"),
    "code": (vertex(program={"target": "m:f", "pickle": "gASV"}), "vertices[0].program.pickle", "no field"),
    "style": (vertex(program={"target": "m:f", "style": "x"}), "vertices[0].program.style", "'x'"),
    "items": (vertex(program={"target": "m:f", "items": "abc"}), "vertices[0].program.items", "text, not a list"),
    "parallelism": (vertex(parallelism="3"), "vertices[0].parallelism", "text, not a whole number"),
    "parallelism true": (vertex(parallelism=True), "vertices[0].parallelism", "true or false"),
    "range": (vertex(parallelism={"range": [1]}), "vertices[0].parallelism", "1 number"),
    "two ways": (vertex(parallelism={"source": "a", "same_as": "b"}), "vertices[0].parallelism.same_as", "no field"),
    "no way": (vertex(parallelism={}), "vertices[0].parallelism", "lacks the field 'same_as'"),
    "kind": (vertex(kind="demon"), "vertices[0].kind", "'demon'"),
    "keep": (vertex(keep=1), "vertices[0].keep", "not true or false"),
    "timeout": (vertex(timeout_s="3"), "vertices[0].timeout_s", "not a finite number"),
    "resources": (vertex(resources=[{"cpu": "2"}]), "vertices[0].resources[0].cpu", "not a finite number"),
    "tokens": (vertex(resources=[{"tokens": {"x": "1"}}]), "vertices[0].resources[0].tokens.x", "text"),
    "retry": (vertex(retry={"user": 1.0}), "vertices[0].retry.user", "not a whole number"),
    "placement": (vertex(placement={"host": "h"}), "vertices[0].placement.host", "no field 'host'"),
    "move": (edge(move="teleport"), "edges[0].move", "'teleport'"),
    "partitions": (edge(move="broadcast", partitions=3), "edges[0].partitions", "no field 'partitions'"),
    "router": (edge(move="custom"), "edges[0]", "lacks the field 'router'"),
    "grid": (edge(move="grid"), "edges[0].grid", "nothing, not a mapping"),
    "axis": (
        edge(move="grid", grid={"src": [1], "dst": [1], "axes": [{"op": "spin"}]}),
        "edges[0].grid.axes[0].op",
        "'spin'",
    ),
    "spans": (
        edge(move="grid", grid={"src": [1], "dst": [1], "axes": [{"op": "ranges", "spans": [[1]]}]}),
        "edges[0].grid.axes[0].spans[0]",
        "not a pair",
    ),
    "shape": (edge(move="grid", grid={"src": ["1"], "dst": [1]}), "edges[0].grid.src[0]", "not a whole number"),
    "fraction": (edge(fraction=None), "edges[0].fraction", "nothing, not a finite number"),
    "bubble": ({**SMALL, "bubbles": [{"id": "u", "vertices": "ab"}]}, "bubbles[0].vertices", "not a list"),
    "not finite": (edge(fraction=float("nan")), "edges[0].fraction", "nan, not a finite number"),
    "not finite in parameters": (
        vertex(program={"target": "m:f", "params": {"x": [1, float("inf")]}}),
        "vertices[0].program.params.x[1]",
        "inf, not a finite number",
    ),
    "keys": ({**SMALL, "limits": {1: 2}}, "graph.limits", "the key 1; keys must be strings"),
    "branches of numbers": (
        {**SMALL, "choices": [{"id": "c", "decider": "a", "branches": {"x": ["a"], "y": ["b", 3]}}]},
        "choices[0].branches.y[1]",
        "a whole number, not text",
    ),
    "branches": (
        {**SMALL, "choices": [{"id": "c", "decider": "a", "branches": {"x": "a"}}]},
        "choices[0].branches.x",
        "not a list",
    ),
}


def test_a_refusal_says_what_to_write():
    for given, words in (
        (vertex(kind="demon"), "One of finite, service."),
        (edge(move="x"), "One of none, one_to_one"),
    ):
        with pytest.raises(GraphError) as caught:
            from_json(given)
        assert words in caught.value.hint
    with pytest.raises(GraphError) as caught:
        from_json(edge(grid={"src": [], "dst": [], "axes": []}))
    assert caught.value.hint == "It belongs to edges whose move is 'grid'."


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_path_of_the_field(case):
    given, subject, words = REFUSED[case]
    before = json.dumps(given)
    with pytest.raises(GraphError) as caught:
        from_json(given)
    assert caught.value.subject == subject
    assert words in caught.value.message
    assert json.dumps(given) == before, "what is given is not changed"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"weft": 1, "weft": 1}',
        '{"weft": NaN}',
        '{"weft": 1e999}',
        '{"weft": 184467440737095516160}',
        b"\xff\xfe\xfa",
        "\ud800",
        '{"weft": 1, "name": "\x00"}',
    ],
)
def test_text_that_is_not_strict_json(text):
    with pytest.raises(GraphError):
        loads(text)


def test_limits_below_at_and_above():
    frame = len('{"weft": 1, "name": ""}')
    for size, fits in ((MAX_BYTES - 1, True), (MAX_BYTES, True), (MAX_BYTES + 1, False)):
        text = f'{{"weft": 1, "name": "{"x" * (size - frame)}"}}'
        assert len(text) == size
        if fits:
            assert len(loads(text).name) == size - frame
        else:
            with pytest.raises(InputLimitError, match="1,048,577 bytes"):
                loads(text)
    with pytest.raises(InputLimitError):
        loads("é" * MAX_BYTES)
    for depth, fits in ((49, True), (50, True), (51, False), (100_000, False)):
        text = "[" * depth + "]" * depth
        if fits:
            parse(text)
        else:
            with pytest.raises(InputLimitError, match="50 levels"):
                parse(text)


def test_deep_data_that_never_was_text():
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InputLimitError, match="50 levels"):
        from_json({"weft": 1, "vertices": deep})
    with pytest.raises(InputLimitError, match="entries"):
        from_json({"weft": 1, "vertices": [{}] * 100_001})


def test_patches():
    patch = Patch((Vertex("a/b", Program("m:f")),), (Edge("a", "a/b"),), ("a->c",))
    written = patch_to_json(patch)
    assert written == {
        "weft": 1,
        "vertices": [{"id": "a/b", "program": {"target": "m:f"}}],
        "edges": [{"src": "a", "dst": "a/b"}],
        "drop_edges": ["a->c"],
    }
    assert patch_from_json(json.loads(json.dumps(written))) == patch
    assert patch_from_json({"weft": 1}) == Patch()
    with pytest.raises(GraphError, match="patch has no field 'name'"):
        patch_from_json({"weft": 1, "name": "x"})


def test_controllers_controlled_vertices_and_whole_bubbles_come_back():
    g = Graph("job", controller=Manager("once", {"limit": 3}))
    a = g.task(len, n=Range(1, 3), name="a", controlled=True)
    g.bubble(a, name="gang", whole=True)
    again = from_json(to_json(g))
    assert again.controller == g.controller
    assert again.vertices["a"].controlled
    assert again.bubbles[0].whole
    assert to_json(again) == to_json(g)
