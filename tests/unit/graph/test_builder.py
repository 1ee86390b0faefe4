"""The low-level API: names, widths, what a bare node means, and the wrappers."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest

from weft.graph.arguments import FIELDS, OPTIONS
from weft.graph.axes import TO_ALL, copy, group, ranges
from weft.graph.builder import Graph, after, custom, gather, grid, one_to_one, shuffle
from weft.graph.keywords import LinkOptions, VertexFields
from weft.graph.logical import (
    NONE,
    SEQUENTIAL,
    Edge,
    MovementKind,
    Outcome,
    Range,
    Retry,
    SameAs,
    Source,
    Storage,
    Trigger,
    Vertex,
    VertexKind,
    scatter_gather,
)
from weft.graph.task import resolve
from weft.graph.validate import validate
from weft.graph.wire import dumps, loads
from weft.model.errors import CapacityError, GraphError, ProgramError, UsageError
from weft.model.program import Program, Style
from weft.model.resources import Resources


def f(*values):
    return values


class Called:
    def __call__(self):
        return 1


def test_ids_come_from_the_function_and_are_unique():
    g = Graph()
    fns: list[Any] = [f, f, lambda: 1, lambda: 2, "pkg.mod:f", partial(partial(f, 1), 2), Called()]
    made = [g.add(fn) for fn in fns]
    assert [node.id for node in made] == ["f", "f-2", "lambda", "lambda-2", "f-3", "f-4", "Called"]


def test_counting_steps_over_a_name_that_is_taken():
    g = Graph()
    g.add(f, name="f-2")
    assert [g.add(f).id for _ in range(3)] == ["f", "f-3", "f-4"]


def test_a_name_is_taken_as_it_is_or_refused():
    g = Graph()
    assert g.add(f, name="read").id == "read"
    with pytest.raises(GraphError, match="'read' exists already") as caught:
        g.add(f, name="read")
    assert caught.value.rule == "unique-vertex"
    assert list(g.vertices) == ["read"]


def test_names_that_differ_by_case_are_two_names():
    g = Graph()
    read, other = g.add(f, name="read"), g.add(f, name="Read")
    g.add(f, read, other, name="READ")
    g.finish()
    assert list(g.vertices) == ["read", "Read", "READ"]


def test_a_long_or_odd_function_name_still_makes_an_id():
    g = Graph()
    odd: Any = Called()
    odd.__name__ = 7
    fns: list[Any] = ["m:" + "x" * 300, "m:" + "x" * 300, "m:größe", odd]
    ids = [g.add(fn).id for fn in fns]
    assert ids == ["x" * 150, "x" * 150 + "-2", "gr__e", "Called"]
    g.finish()


def test_a_name_that_is_too_long_or_a_path_is_refused_at_the_end():
    for name in ("x" * 201, "a b", "../a", "a/./b", "a/.git", "", "é"):
        g = Graph()
        g.add(f, name=name)
        with pytest.raises(GraphError, match="is not allowed") as caught:
            g.finish()
        assert caught.value.rule == "name"


def test_width_comes_from_items_then_inputs_then_one():
    g = Graph()
    a = g.add(f, items="abc")
    assert a.parallelism == 3
    assert g.add(f, a).parallelism == 3
    assert g.add(f, one_to_one(a)).parallelism == 3
    assert g.add(f, gather(a)).parallelism == 1
    assert g.add(f, shuffle(a, 5)).parallelism == 5
    assert g.add(f, shuffle(a)).parallelism == 3
    assert g.add(f, grid(a, group(0, 2), src=(3,), dst=(2,))).parallelism == 2
    assert g.add(f).parallelism == 1
    assert g.add(f, gather(a), a).parallelism == 3


def test_items_of_a_vertex_are_not_read_by_label():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(GraphError, match="items of vertex 'f' is a Series") as caught:
        Graph().add(f, items=pandas.Series([1, 2], [1, 0]))
    assert "Pass a list" in caught.value.hint


def test_a_bare_node_is_one_to_one_or_the_single_value():
    g = Graph()
    one, many = g.add(f), g.add(f, n=4)
    g.add(f, one, many, name="both")
    single, each = g.edges[-2:]
    assert each == Edge("f-2", "both")
    assert single.movement.grid is TO_ALL
    assert single.movement.move is MovementKind.GRID


def test_a_bare_node_of_another_width_is_refused_with_a_way_out():
    g = Graph()
    a = g.add(f, n=4)
    with pytest.raises(GraphError, match=r"'f-2' has 2 tasks, but its input 'f' has 4") as caught:
        g.add(f, a, n=2)
    assert "gather(f)" in caught.value.hint
    assert len(g.vertices) == 1, "nothing is left of a call that failed"
    assert not g.edges


def test_unknown_widths_follow_their_owner():
    g = Graph()
    plan = g.add(f, expands=True)
    a = g.add(f, after(plan), n=Source(plan.id), name="a")
    b = g.add(f, a, name="b")
    assert b.parallelism == SameAs("a")
    g.add(f, a, b, name="c")
    assert [edge.movement.move for edge in g.edges[-2:]] == [MovementKind.ONE_TO_ONE] * 2
    other = g.add(f, after(plan), n=Range(1, 4))
    with pytest.raises(GraphError, match="1 to 4"):
        g.add(f, a, other)


def test_one_node_twice_gives_edges_with_names_of_their_own():
    g = Graph()
    a = g.add(f)
    g.add(f, a, a, after(a), name="b")
    assert [edge.id for edge in g.edges] == ["f->b", "f->b.2", "f->b.3"]
    g.finish()


def test_inputs_of_the_wrong_kind():
    g, other = Graph("mine"), Graph("theirs")
    node = other.add(f)
    for make in (lambda: g.add(f, node), lambda: g.add(f, gather(node))):
        with pytest.raises(GraphError, match="belongs to graph 'theirs', not to 'mine'"):
            make()
    with pytest.raises(GraphError, match="'f' belongs to another graph 'theirs'"):
        Graph("theirs").add(f, node)
    with pytest.raises(GraphError, match="an input of 'f' is an int") as caught:
        g.add(f, 3)  # type: ignore[arg-type]
    assert "items=" in caught.value.hint
    with pytest.raises(GraphError, match="a wrapper takes a node, not a str"):
        gather("f")  # type: ignore[arg-type]


def test_unknown_fields_and_widths_are_told():
    g = Graph()
    with pytest.raises(GraphError, match="has no field timout_s") as caught:
        g.add(f, timout_s=3)  # type: ignore[call-arg]
    assert "timeout_s" in caught.value.hint
    with pytest.raises(GraphError, match="n is a float") as caught:
        g.add(f, n=2.5)  # type: ignore[arg-type]
    assert "Range(lo, hi)" in caught.value.hint
    with pytest.raises(GraphError, match="an input from 'f' has no field blockin") as caught:
        gather(g.add(f), blockin=True)  # type: ignore[call-arg]
    assert "blocking" in caught.value.hint


def test_wrapper_options():
    g = Graph()
    a = g.add(f, n=2)
    g.add(f, one_to_one(a), name="plain")
    assert g.edges[-1].scheduling is SEQUENTIAL
    g.add(f, one_to_one(a, fraction=0.5, storage=Storage.DURABLE, blocking=True, name="e"), name="some")
    edge = g.edges[-1]
    assert (edge.scheduling.when, edge.scheduling.fraction) == (Trigger.FRACTION, 0.5)
    assert (edge.storage, edge.blocking, edge.id) == (Storage.DURABLE, True, "e")
    g.add(f, gather(a, event="rows"), name="told")
    assert (g.edges[-1].scheduling.when, g.edges[-1].scheduling.event) == (Trigger.EVENT, "rows")
    g.add(f, shuffle(a, concurrent=True), name="with")
    assert (g.edges[-1].scheduling.concurrent, g.edges[-1].scheduling.when) == (True, Trigger.SOURCE_RUNNING)
    assert g.edges[-1].movement == scatter_gather(0)
    g.add(f, gather(a, concurrent=True, when=Trigger.SOURCE_CONFIGURED), name="soon")
    assert g.edges[-1].scheduling.when is Trigger.SOURCE_CONFIGURED
    g.add(f, after(a, outcome=Outcome.ANY), name="last")
    assert (g.edges[-1].movement, g.edges[-1].storage) == (NONE, Storage.NONE)
    assert g.edges[-1].scheduling.outcome is Outcome.ANY
    g.add(f, custom(a, "mine", {"z": 1, "a": 2}), name="own")
    assert g.edges[-1].movement.params == (("a", 2), ("z", 1))


def test_map_over_items_a_generator_and_a_node():
    g = Graph()
    a = g.map(f, [1, 2, 3])
    assert a.vertex.program.items == [1, 2, 3]
    assert g.map(f, (i for i in range(4))).parallelism == 4
    assert g.map(f, a).parallelism == 3
    assert g.edges == [Edge("f", "f-3")]


@pytest.mark.parametrize(("width", "arity", "levels"), [(1, 2, [1]), (2, 2, [1]), (5, 2, [3, 2, 1]), (9, 4, [3, 1])])
def test_reduce_makes_a_tree(width, arity, levels):
    g = Graph()
    root = g.reduce(f, g.add(f, n=width), arity, name="total", keep=True)
    assert [vertex.parallelism for vertex in g.vertices.values()] == [width, *levels]
    assert root.id == "total"
    assert [bool(vertex.keep) for vertex in g.vertices.values()] == [False] * len(levels) + [True]
    g.finish()


def test_reduce_needs_a_known_width():
    g = Graph()
    a = g.add(f, n=Range(1, 3))
    with pytest.raises(GraphError, match="needs the number of tasks"):
        g.reduce(f, a)
    with pytest.raises(GraphError, match="arity of at least 2"):
        g.reduce(f, g.add(f), 1)
    with pytest.raises(GraphError, match="no tasks to reduce"):
        g.reduce(f, g.add(f, items=[]))


def test_a_service_is_an_order_only_concurrent_input():
    g = Graph()
    ps = g.service(f, n=2, name="ps")
    g.task(f, ps, n=4, name="worker")
    assert ps.vertex.kind is VertexKind.SERVICE
    assert g.vertices["worker"].program.style is Style.TASK
    edge = g.edges[0]
    assert (edge.movement, edge.scheduling.concurrent, edge.storage) == (NONE, True, Storage.NONE)
    g.add(f, gather(ps), name="reader")
    assert g.edges[-1].scheduling.concurrent
    g.finish()


def test_choice_makes_entries_wait_for_the_decider():
    g = Graph()
    decide = g.add(f, name="decide")
    small = g.add(f, decide, name="small")
    large = g.add(f, name="large")
    sort = g.add(f, large, name="sort")
    g.choice(decide, small=small, large=[large, sort])
    assert decide.vertex.expands
    assert g.choices[0].branches == {"small": ("small",), "large": ("large", "sort")}
    assert [edge.id for edge in g.edges] == ["decide->small", "large->sort", "decide->large"]
    g.finish()


def test_bubble_keep_and_fields():
    g = Graph(limits={"slots": 2})
    a = g.add(f, resources=Resources(cpu=0, tokens=(("slots", 1),)), timeout_s=5)
    b = g.add(f, one_to_one(a, concurrent=True, storage=Storage.EPHEMERAL))
    made = g.bubble(a, b, prewarmed=True, timeout_s=3)
    assert (made.id, made.vertices, made.prewarmed, made.timeout_s) == ("bubble-1", ("f", "f-2"), True, 3)
    assert a.keep() is a
    assert a.vertex.keep
    assert a.vertex.resources == (Resources(cpu=0, tokens=(("slots", 1),)),)
    g.finish()


def test_finish_keeps_what_nothing_reads():
    g = Graph()
    a = g.add(f, name="a")
    g.add(f, a, name="b")
    c = g.add(f, after(a), name="c")
    g.add(f, after(c), name="d", keep=False)
    g.add(f, name="e", expands=True)
    assert g.finish() is g
    assert {id for id, vertex in g.vertices.items() if vertex.keep} == {"b", "c"}


def test_grid_wrapper_keeps_shapes():
    g = Graph()
    a = g.add(f, n=6)
    node = g.add(f, grid(a, copy(1), copy(0), src=[2, 3], dst=[3, 2]))
    assert node.parallelism == 6
    assert repr(node) == "<f-2 x 6>"
    g.finish()


def yields(x=0):
    yield x


async def awaits(x=0):
    return x


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda g, a: g.add(3), "the function of a vertex is an int"),
        (lambda g, a: g.add(None), "the function of a vertex is None"),
        (lambda g, a: g.add(yields), "'yields' is a generator or `async def`"),
        (lambda g, a: g.add(awaits), "'awaits' is a generator or `async def`"),
        (lambda g, a: g.task(yields), "'yields' is a generator or `async def`"),
        (lambda g, a: g.add(partial(awaits, x=1)), "is a generator or `async def`"),
        (lambda g, a: g.add("nocolon"), "'nocolon' is not the name of a function"),
        (lambda g, a: g.add("m:"), "'m:' is not the name of a function"),
        (lambda g, a: g.add(":f"), "':f' is not the name of a function"),
        (lambda g, a: g.add("m m:f"), "'m m:f' is not the name of a function"),
        (lambda g, a: g.add("m:f:g"), "'m:f:g' is not the name of a function"),
        (lambda g, a: g.control(f, n=3), "control vertex 'f' has one task"),
        (lambda g, a: g.add(f, name=3), "name of a vertex is an int, not text"),
        (lambda g, a: g.add(f, name=["x"]), "name of a vertex is a list"),
        (lambda g, a: g.add(f, n="x"), "n is a str, not a whole number"),
        (lambda g, a: g.add(f, n=True), "n is a bool"),
        (lambda g, a: g.add(f, items=3), "items of vertex 'f-2' is an int"),
        (lambda g, a: g.add(f, items={1: 2}), "items of vertex 'f-2' is a dict"),
        (lambda g, a: g.add(f, items={1, 2}), "items of vertex 'f-2' is a set"),
        (lambda g, a: g.add(f, params=[1]), "params of vertex 'f-2' is a list"),
        (lambda g, a: g.add(f, params={1: 2}), "key 1 in the params of vertex 'f-2' is an int"),
        (lambda g, a: g.add(f, retry=3), r"retry of vertex 'f-2' is an int, not Retry\(...\)"),
        (lambda g, a: g.add(f, timeout_s="5"), "timeout_s of vertex 'f-2' is a str"),
        (lambda g, a: g.add(f, timeout_s=True), "timeout_s of vertex 'f-2' is a bool"),
        (lambda g, a: g.add(f, keep="yes"), "keep of vertex 'f-2' is a str"),
        (lambda g, a: g.add(f, resources=[Resources()]), "resources of vertex 'f-2' is a list"),
        (lambda g, a: g.add(f, placement="node"), "placement of vertex 'f-2' is a str"),
        (lambda g, a: g.map(f, n=3), "map takes items, and n=3 is a number of tasks"),
        (lambda g, a: g.map(f), "the second argument of map is"),
        (lambda g, a: g.map(f, 3), "the second argument of map is an int"),
        (lambda g, a: g.map(f, gather(a)), "the second argument of map is an InputSpec"),
        (lambda g, a: g.reduce(f, "a"), "what reduce combines is a str"),
        (lambda g, a: g.reduce(f, a, "2"), "arity of reduce is a str"),
        (lambda g, a: g.reduce(f, Graph("other").add(f)), "belongs to graph 'other'"),
        (lambda g, a: g.bubble("f"), "a member of bubble 'bubble-1' is a str"),
        (lambda g, a: g.bubble(Graph("other").add(f)), "belongs to graph 'other'"),
        (lambda g, a: g.bubble(a, name=3), "name of a bubble is an int"),
        (lambda g, a: g.bubble(a, timeout_s="3"), "timeout_s of bubble 'bubble-1' is a str"),
        (lambda g, a: g.choice("f", yes=a), "the decider of choice 'choice-1' is a str"),
        (lambda g, a: g.choice(a, yes=3), "a member of branch 'yes' is an int"),
        (lambda g, a: g.choice(a, yes="f"), "a member of branch 'yes' is a str"),
        (lambda g, a: gather(a, concurrent=1), "concurrent of an input from 'f' is an int"),  # type: ignore[arg-type]
        (lambda g, a: gather(a, storage="local"), "storage of an input from 'f' is a str"),  # type: ignore[arg-type]
        (lambda g, a: gather(a, fraction="1"), "fraction of an input from 'f' is a str"),  # type: ignore[arg-type]
        (lambda g, a: shuffle(a, "8"), "partitions of shuffle is a str"),  # type: ignore[arg-type]
        (lambda g, a: shuffle(a, 0), "a shuffle needs at least 1 partition, not 0"),
        (lambda g, a: shuffle(a, -1), "a shuffle needs at least 1 partition, not -1"),
        (lambda g, a: grid(a, 0, src=(1,), dst=(1,)), "an axis of grid is an int"),  # type: ignore[arg-type]
        (lambda g, a: grid(a, copy(0), src=1, dst=(1,)), "src of grid is an int"),  # type: ignore[arg-type]
        (lambda g, a: grid(a, copy(0), src=(1,), dst=(1.5,)), "a size in dst of grid is a float"),  # type: ignore[arg-type]
        (lambda g, a: custom(a, 3), "router of custom is an int"),  # type: ignore[arg-type]
        (lambda g, a: custom(a, "mine", 3), "params of custom is an int"),  # type: ignore[arg-type]
        (lambda g, a: Graph(3), "name of a graph is an int"),  # type: ignore[arg-type]
        (lambda g, a: Graph(limits=3), "limits of graph 'graph' is an int"),  # type: ignore[arg-type]
        (lambda g, a: Graph(on_failure="fail"), "on_failure of graph 'graph' is a str"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_type_is_told_by_the_call(call, text):
    g = Graph()
    a = g.add(f)
    with pytest.raises(GraphError, match=text):
        call(g, a)
    assert list(g.vertices) == ["f"], "nothing is left of a call that failed"
    assert not g.edges
    assert not g.bubbles
    assert not g.choices
    g.finish()


def test_the_tables_of_keywords_are_complete():
    assert FIELDS.keys() == VertexFields.__annotations__.keys()
    assert FIELDS.keys() | {"id", "program", "parallelism"} == set(Vertex.__struct_fields__)
    assert OPTIONS.keys() == LinkOptions.__annotations__.keys()


JUNK: list[Any] = [None, True, -1, 3, 2.5, float("nan"), "x", b"x", [], [3], {}, {3: 3}, set(), (), ("x",), object(), f]


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: type(junk).__name__)
def test_whatever_is_given_the_graph_is_made_or_refused(junk):
    calls: list[Callable[[Graph, Any], object]] = [
        lambda g, a: g.add(junk),
        lambda g, a: g.add(f, junk),
        lambda g, a: g.map(f, junk),
        lambda g, a: g.map(junk, a),
        lambda g, a: g.reduce(f, a, junk),
        lambda g, a: g.reduce(f, junk),
        lambda g, a: g.bubble(junk),
        lambda g, a: g.choice(junk, one=a),
        lambda g, a: g.choice(a, one=junk),
        lambda g, a: g.add(f, shuffle(a, junk)),
        lambda g, a: g.add(f, custom(a, junk)),
        lambda g, a: g.add(f, custom(a, "mine", junk)),
        lambda g, a: g.add(f, grid(a, junk, src=(1,), dst=(1,))),
        lambda g, a: g.add(f, grid(a, copy(0), src=junk, dst=(1,))),
        lambda g, a: g.add(f, grid(a, group(junk, 2), src=(1,), dst=(1,))),
        lambda g, a: g.add(f, grid(a, group(0, junk), src=(1,), dst=(1,))),
        lambda g, a: g.add(f, grid(a, ranges(0, junk), src=(1,), dst=(1,))),
        lambda g, a: g.add(f, resources=Resources(cpu=junk)),
        lambda g, a: g.add(f, resources=Resources(memory=junk)),
        lambda g, a: g.add(f, resources=(junk,)),
        lambda g, a: g.add(f, retry=Retry(user=junk)),
        lambda g, a: g.add(f, retry=Retry(delay_s=junk)),
        lambda g, a: g.add(f, n=Range(junk, 3)),
        lambda g, a: g.add(f, n=Source(junk)),
        lambda g, a: g.add(f, n=SameAs(junk)),
        lambda g, a: g.control(f, n=junk),  # type: ignore[call-arg]
        lambda g, a: Graph(limits={"slots": junk}).finish(),
    ]
    added = ("n", "items", "name", "params", *FIELDS)
    calls += [partial(lambda name, g, a: g.add(f, **{name: junk}), name) for name in added]
    calls += [partial(lambda name, g, a: g.add(f, gather(a, **{name: junk})), name) for name in OPTIONS]
    whole = ("name", "limits", "on_failure")
    calls += [partial(lambda name, g, a: Graph(**{name: junk}).finish(), name) for name in whole]
    shared = ("name", "prewarmed", "timeout_s")
    calls += [partial(lambda name, g, a: g.bubble(a, **{name: junk}), name) for name in shared]
    for call in calls:
        g = Graph()
        a = g.add(f)
        with suppress(GraphError, UsageError):
            call(g, a)
            g.finish()


def test_a_node_where_its_id_belongs_is_told_so():
    g = Graph()
    plan: Any = g.add(f, expands=True)
    g.add(f, after(plan), n=Source(plan))
    with pytest.raises(GraphError, match="Give the id of the node: 'f'"):
        g.finish()


def test_numbers_of_another_library_are_whole_numbers():
    g = Graph()
    numbers: Any = np.array([6, 4, 2, 0])
    pairs: Any = np.array([[0, 2], [2, 6]])
    six, four, two, zero = numbers
    a = g.add("m:f", n=six)
    g.add("m:f", grid(a, group(zero, two), src=numbers[:1], dst=[six // two]))
    g.add("m:f", grid(a, ranges(zero, pairs), src=[6], dst=[2]))
    g.add("m:f", shuffle(a, four))
    text = dumps(g.finish())
    assert dumps(loads(text)) == text


def test_a_bubble_without_a_name_takes_one_that_is_free():
    g = Graph()
    a, b = g.add(f), g.add(f)
    g.bubble(a, name="bubble-2")
    assert g.bubble(b).id == "bubble-3"
    g.finish()


@pytest.mark.parametrize("name", ["yields", "awaits"])
def test_a_named_function_that_runs_later_is_refused_where_it_is_imported(name):
    with pytest.raises(ProgramError, match="is a generator or `async def`"):
        resolve(Program(f"{__name__}:{name}"))


def test_more_cores_than_a_worker_has_are_counted():
    graph = Graph()
    graph.map(f, range(3), resources=Resources(cpu=100))
    with pytest.raises(CapacityError, match="more than any worker has") as error:
        validate(graph, [Resources(cpu=2, memory=1 << 30)])
    assert "98 too many: give cpu=2 or less, or open the session with workers=100" in str(error.value.hint)


@pytest.mark.parametrize(
    ("needs", "step"),
    [
        (Resources(cpu=8), "ray start --address=HOST:6379 --num-cpus=8"),
        (Resources(cpu=1, gpu=1), "ray start --address=HOST:6379 --num-gpus=1"),
        (Resources(cpu=1, memory=1 << 40), "memory= of the session"),
    ],
)
def test_what_no_machine_of_a_cluster_has_comes_with_another_machine(needs, step):
    graph = Graph()
    graph.map(f, range(3), resources=needs)
    with pytest.raises(CapacityError, match="more than any worker has") as error:
        validate(graph, [Resources(cpu=2, memory=1 << 30)], many_machines=True)
    assert step in str(error.value.hint)
    assert "gpus=" not in str(error.value.hint).replace("--num-gpus=", "")
    assert "workers=8" not in str(error.value.hint)


@pytest.mark.parametrize(
    ("custom", "hint"),
    [
        ((("licence", 1.0),), """ray start --resources='{"licence": 1}'"""),
        ((("fpgs", 1.0),), "fpga"),
        ((("fpga", 3.0),), "Ask for less"),
    ],
)
def test_custom_resources_that_no_node_has_are_refused_with_what_the_nodes_have(custom, hint):
    graph = Graph()
    graph.map(f, range(3), resources=Resources(custom=custom))
    with pytest.raises(CapacityError, match=r"more than any worker has: \(cpu 2, fpga 2\)") as error:
        validate(graph, [Resources(cpu=2, custom=(("fpga", 2.0),))])
    assert hint in str(error.value.hint)


@pytest.mark.parametrize("custom", [{"a": 1}, (("a", 0.0),), (("a", -1.0),), (("a", 1.0), ("a", 2.0)), (("a",),)])
def test_custom_resources_are_pairs_with_amounts(custom):
    graph = Graph()
    graph.map(f, range(3), resources=Resources(custom=custom))
    with pytest.raises(GraphError, match="asks for"):
        validate(graph)


def test_a_negative_number_of_tasks_is_refused_where_it_is_written():
    graph = Graph()
    with pytest.raises(GraphError, match="vertex 'f' has -1 tasks"):
        graph.add(f, n=-1)
    assert graph.vertices == {}
