"""One case for each rule, with what the error names; and what is legal though it looks odd."""

import pytest

from weft.graph.axes import GridMap, broadcast, copy
from weft.graph.builder import Graph, after, gather, one_to_one, shuffle
from weft.graph.logical import (
    BROADCAST,
    CONCURRENT,
    NONE,
    ONE_TO_ONE,
    Bubble,
    Choice,
    Edge,
    LogicalGraph,
    Movement,
    MovementKind,
    Outcome,
    Patch,
    Range,
    RestartPolicy,
    Retry,
    SameAs,
    Scheduling,
    Source,
    Storage,
    Trigger,
    Vertex,
    VertexKind,
)
from weft.graph.order import topological
from weft.graph.rules.edges import fixed
from weft.graph.rules.patches import check_patch
from weft.graph.rules.size import MAX_EDGES, MAX_VERTICES
from weft.graph.validate import validate
from weft.model.errors import CapacityError, GraphError, InputLimitError
from weft.model.program import Program
from weft.model.resources import Resources


def graph(*vertices, edges=(), **rest):
    """A graph of vertices (or ids of plain ones) and edges (or "a>b")."""
    made = LogicalGraph(**rest)
    for each in vertices:
        made.add_vertex(vertex(each) if isinstance(each, str) else each)
    for each in edges:
        made.add_edge(Edge(each.partition(">")[0], each.partition(">")[2]) if isinstance(each, str) else each)
    return made


def vertex(id, n=1, **fields):
    return Vertex(id, Program("pkg:f", items=fields.pop("items", None)), n, **fields)


def edge(src, dst, movement=ONE_TO_ONE, storage=Storage.LOCAL, name="", **scheduling):
    return Edge(src, dst, movement, Scheduling(**scheduling), storage, name=name)


def service(id, n=1, **fields):
    return vertex(id, n, kind=VertexKind.SERVICE, **fields)


def served(limit, *, beside=0, **scheduling):
    """A service of two tasks with a token each, and a reader that takes `beside` of them."""
    reader = vertex("b", resources=tokens(slots=beside)) if beside else "b"
    link = edge("s", "b", NONE, Storage.NONE, concurrent=True, **scheduling)
    return graph(service("s", 2, resources=tokens(slots=1)), reader, edges=[link], limits={"slots": limit})


def tokens(**counts):
    return (Resources(cpu=0, tokens=tuple(counts.items())),)


GRID = Movement(MovementKind.GRID, grid=GridMap((2,), (2,), (copy(0),)))
EPHEMERAL = {"storage": Storage.EPHEMERAL, "concurrent": True, "when": Trigger.SOURCE_RUNNING}

ILLEGAL = {
    "name: blank": (graph("a b"), "name", "a b"),
    "name: path": (graph("a/../b"), "name", "a/../b"),
    "name: empty": (graph(""), "name", ""),
    "name: long": (graph("x" * 201), "name", "x" * 201),
    "name: graph": (graph("a", name="my graph"), "name", "my graph"),
    "name: edge": (graph("a", "b", edges=[edge("a", "b", name="x y")]), "name", "x y"),
    "filed": (LogicalGraph(vertices={"b": vertex("a")}), "unique-vertex", "a"),
    "end": (graph("read", "b", edges=["raed>b"]), "unknown-vertex", "raed->b"),
    "end 2": (graph("a", "b", edges=["a>c"]), "unknown-vertex", "a->c"),
    "loop": (graph("a", edges=["a>a"]), "self-loop", "a"),
    "cycle": (graph("a", "b", "c", edges=["a>b", "b>c", "c>b"]), "cycle", "b"),
    "concurrent cycle": (
        graph("a", "b", edges=[Edge("a", "b", NONE, CONCURRENT), Edge("b", "a", NONE, CONCURRENT)]),
        "cycle",
        "a",
    ),
    "twice": (graph("a", "b", edges=["a>b", "a>b"]), "duplicate-edge", "a->b"),
    "one name": (
        graph("a", "b", edges=[edge("a", "b", name="e"), edge("a", "b", name="e")]),
        "duplicate-edge",
        "e",
    ),
    "shadowed": (
        graph("a", "b", "c", edges=["a>b", edge("b", "c", name="a->b")]),
        "duplicate-edge",
        "a->b",
    ),
    "sequential ephemeral": (
        graph("a", "b", edges=[edge("a", "b", storage=Storage.EPHEMERAL)], bubbles=[Bubble("u", ("a", "b"))]),
        "sequential-ephemeral",
        "a->b",
    ),
    "no bubble": (graph("a", "b", edges=[edge("a", "b", **EPHEMERAL)]), "ephemeral-bubble", "a->b"),
    "other bubble": (
        graph("a", "b", edges=[edge("a", "b", **EPHEMERAL)], bubbles=[Bubble("u", ("a",)), Bubble("v", ("b",))]),
        "ephemeral-bubble",
        "a->b",
    ),
    "stored nothing": (graph("a", "b", edges=[edge("a", "b", NONE, Storage.DURABLE)]), "storage-of-nothing", "a->b"),
    "unstored": (graph("a", "b", edges=[edge("a", "b", storage=Storage.NONE)]), "storage-missing", "a->b"),
    "negative": (graph(vertex("a", -1)), "parallelism", "a"),
    "truth": (graph(vertex("a", True)), "parallelism", "a"),
    "text": (graph(vertex("a", "3")), "parallelism", "a"),
    "range": (graph(vertex("a", Range(3, 2))), "parallelism", "a"),
    "range 0": (graph(vertex("a", Range(0, 0))), "parallelism", "a"),
    "items": (graph(vertex("a", 3, items=[1, 2])), "items", "a"),
    "one to one": (graph(vertex("a", 2), vertex("b", 3), edges=["a>b"]), "one-to-one-parallelism", "a->b"),
    "one to one, by way of": (
        graph(vertex("a", 2), vertex("b", 3), vertex("c", SameAs("b")), edges=["a>c"]),
        "one-to-one-parallelism",
        "a->c",
    ),
    "grid": (graph("a", "b", edges=[edge("a", "b", GRID)]), "grid-shape", "a->b"),
    "grid none": (graph("a", "b", edges=[edge("a", "b", Movement(MovementKind.GRID))]), "grid-map", "a->b"),
    "partitions": (
        graph("a", "b", edges=[edge("a", "b", Movement(MovementKind.SCATTER_GATHER, -1))]),
        "partitions",
        "a->b",
    ),
    "custom": (
        graph("a", "b", edges=[edge("a", "b", Movement(MovementKind.CUSTOM, name="?"))]),
        "custom-router",
        "a->b",
    ),
    "trigger": (graph("a", "b", edges=[edge("a", "b", when=Trigger.SOURCE_RUNNING)]), "trigger", "a->b"),
    "trigger 2": (graph("a", "b", edges=[edge("a", "b", concurrent=True)]), "trigger", "a->b"),
    "fraction 0": (
        graph("a", "b", edges=[edge("a", "b", when=Trigger.FRACTION, fraction=0.0)]),
        "fraction",
        "a->b",
    ),
    "fraction nan": (
        graph("a", "b", edges=[edge("a", "b", when=Trigger.FRACTION, fraction=float("nan"))]),
        "fraction",
        "a->b",
    ),
    "event": (graph("a", "b", edges=[edge("a", "b", when=Trigger.EVENT)]), "event", "a->b"),
    "event 2": (graph("a", "b", edges=[edge("a", "b", event="rows")]), "event", "a->b"),
    "outcome": (
        graph("a", "b", edges=[edge("a", "b", when=Trigger.FRACTION, fraction=0.5, outcome=Outcome.ONE_SUCCESS)]),
        "outcome",
        "a->b",
    ),
    "service alone": (graph(service("s")), "service-consumer", "s"),
    "service waited for": (graph(service("s"), "a", edges=[edge("s", "a", NONE)]), "service-concurrent", "s->a"),
    "service expands": (
        graph(vertex("s", kind=VertexKind.SERVICE, expands=True), "a", edges=[Edge("s", "a", NONE, CONCURRENT)]),
        "expander-finite",
        "s",
    ),
    "source": (graph(vertex("a", Source("plan"))), "unknown-vertex", "a"),
    "source silent": (graph("plan", vertex("a", Source("plan"))), "expander", "a"),
    "source apart": (graph(vertex("plan", expands=True), vertex("a", Source("plan"))), "expander-path", "a"),
    "same as nobody": (graph(vertex("a", SameAs("b"))), "unknown-vertex", "a"),
    "same as itself": (graph(vertex("a", SameAs("b")), vertex("b", SameAs("a"))), "same-as", "a"),
    "same as later": (
        graph(vertex("a", SameAs("b")), vertex("b", Range(1, 4)), edges=[edge("a", "b", BROADCAST)]),
        "same-as",
        "a",
    ),
    "bubble of strangers": (graph("a", bubbles=[Bubble("u", ("b",))]), "unknown-vertex", "u"),
    "two bubbles": (graph("a", bubbles=[Bubble("u", ("a",)), Bubble("v", ("a",))]), "two-bubbles", "a"),
    "twin bubbles": (graph("a", "b", bubbles=[Bubble("u", ("a",)), Bubble("u", ("b",))]), "unique-bubble", "u"),
    "empty bubble": (graph("a", bubbles=[Bubble("u", ())]), "bubble", "u"),
    "hasty bubble": (graph("a", bubbles=[Bubble("u", ("a",), timeout_s=0)]), "timeout", "u"),
    "undecided": (graph("a", choices=[Choice("c", "d", {"x": ("a",)})]), "unknown-vertex", "c"),
    "silent decider": (graph("d", "a", choices=[Choice("c", "d", {"x": ("a",)})], edges=["d>a"]), "expander", "c"),
    "no branches": (graph(vertex("d", expands=True), choices=[Choice("c", "d", {})]), "choice", "c"),
    "branch of strangers": (
        graph(vertex("d", expands=True), choices=[Choice("c", "d", {"x": ("a",)})]),
        "unknown-vertex",
        "c",
    ),
    "branches overlap": (
        graph(vertex("d", expands=True), "a", edges=["d>a"], choices=[Choice("c", "d", {"x": ("a",), "y": ("a",)})]),
        "branches",
        "c",
    ),
    "branch before": (
        graph(vertex("d", expands=True), "a", edges=["a>d"], choices=[Choice("c", "d", {"x": ("a",)})]),
        "branch-path",
        "c",
    ),
    "retry": (graph(vertex("a", retry=Retry(user=-1))), "retry", "a"),
    "restart": (graph(vertex("a", restart=RestartPolicy.ALWAYS)), "restart", "a"),
    "retry delay": (graph(vertex("a", retry=Retry(delay_s=float("inf")))), "retry", "a"),
    "retry factor": (graph(vertex("a", retry=Retry(memory_factor=0.5))), "retry", "a"),
    "timeout": (graph(vertex("a", timeout_s=0)), "timeout", "a"),
    "timeout nan": (graph(vertex("a", timeout_s=float("nan"))), "timeout", "a"),
    "output": (graph(vertex("a", output_bytes=-1)), "output", "a"),
    "scratch": (graph(vertex("a", scratch_bytes=-1)), "scratch", "a"),
    "no resources": (graph(vertex("a", resources=())), "resources", "a"),
    "negative resources": (graph(vertex("a", resources=(Resources(memory=-1),))), "resources", "a"),
    "tokens": (graph(vertex("a", resources=tokens(slots=1))), "tokens", "a"),
    "many tokens": (graph(vertex("a", resources=tokens(slots=3)), limits={"slots": 2}), "tokens", "a"),
    "no tokens": (graph("a", limits={"slots": 0}), "tokens", "slots"),
    "tokens that a service holds": (served(2, beside=1, when=Trigger.SOURCE_RUNNING), "tokens", "b"),
    "tokens for half of a service": (served(1, when=Trigger.SOURCE_RUNNING), "tokens", "b"),
}


@pytest.mark.parametrize("case", ILLEGAL)
def test_a_broken_rule_names_its_subject(case):
    made, rule, subject = ILLEGAL[case]
    with pytest.raises(GraphError) as caught:
        validate(made)
    assert (caught.value.rule, caught.value.subject) == (rule, subject)
    assert "\n" not in caught.value.message
    assert not caught.value.message.endswith(".")


LEGAL = {
    "nothing": graph(),
    "no tasks": graph(vertex("a", 0, items=[])),
    "edges against the order of addition": graph("a", "b", "c", edges=["c>b", "b>a"]),
    "two edges with names": graph("a", "b", edges=["a>b", edge("a", "b", name="again")]),
    "mixed inputs": graph(
        service("s"), "a", "b", edges=[Edge("s", "b", NONE, CONCURRENT), "a>b", edge("a", "b", NONE, name="n")]
    ),
    "stream in a bubble": graph(
        "a", "b", edges=[edge("a", "b", **EPHEMERAL)], bubbles=[Bubble("u", ("a", "b"), prewarmed=True)]
    ),
    "stream from a service": graph(service("s"), "a", edges=[edge("s", "a", **EPHEMERAL)]),
    "concurrent and local": graph("a", "b", edges=[Edge("a", "b", ONE_TO_ONE, CONCURRENT)]),
    "a service that serves a service": graph(
        service("s"), service("t"), "a", edges=[Edge("s", "t", NONE, CONCURRENT), Edge("t", "a", NONE, CONCURRENT)]
    ),
    "as many as a later vertex that is fixed": graph(vertex("a", SameAs("b")), vertex("b", 3), edges=["a>b"]),
    "ranges joined one to one": graph(vertex("a", Range(1, 4)), vertex("b", SameAs("a")), edges=["a>b"]),
    "source": graph(vertex("p", expands=True), "a", vertex("b", Source("p")), edges=["p>a", edge("a", "b", BROADCAST)]),
    "tokens": graph(vertex("a", resources=tokens(slots=2)), limits={"slots": 2}),
    "tokens beside a service": served(3, beside=1, when=Trigger.SOURCE_RUNNING),
    "tokens for a part of a service": served(2, beside=1, when=Trigger.SOURCE_RUNNING, fraction=0.5),
    "tokens before a service runs": served(1, beside=1, when=Trigger.SOURCE_CONFIGURED),
    "nested choices": graph(
        vertex("d", expands=True),
        vertex("e", expands=True),
        "a",
        edges=["d>e", "e>a"],
        choices=[Choice("c", "d", {"x": ("e", "a"), "none": ()}), Choice("c2", "e", {"y": ("a",)})],
    ),
    "to all, however many": graph(
        "a",
        vertex("b", Range(1, 9)),
        edges=[edge("a", "b", Movement(MovementKind.GRID, grid=GridMap((), (-1,), (broadcast(),))))],
    ),
}


@pytest.mark.parametrize("case", LEGAL)
def test_legal(case):
    validate(LEGAL[case])


def test_hints_name_the_nearest():
    with pytest.raises(GraphError, match="Did you mean read"):
        validate(ILLEGAL["end"][0])


def test_a_cycle_is_named_in_order():
    with pytest.raises(GraphError) as caught:
        validate(graph("start", "a", "b", "c", edges=["start>a", "a>b", "b>c", "c>a"]))
    assert caught.value.message == "vertices form a cycle: a -> b -> c -> a"


def test_a_long_cycle_is_cut():
    n = 5000
    made = graph(*(f"v{i}" for i in range(n)), edges=[f"v{i}>v{(i + 1) % n}" for i in range(n)])
    with pytest.raises(GraphError, match=r"-> \.\.\. ->"):
        validate(made)


def test_an_order_only_edge_has_no_storage():
    made = graph("a", "b", edges=[Edge("a", "b", NONE)])
    validate(made)
    assert made.edges[0].storage is Storage.NONE


def test_capacity_names_vertex_and_workers():
    workers = [Resources(cpu=4, memory=100), Resources(cpu=4, memory=100), Resources(cpu=1, gpu=1, gpu_type="h")]
    fits = (Resources(cpu=8), Resources(gpu=1))
    validate(graph(vertex("a", resources=fits), "plain"), workers)
    made = graph(vertex("big", resources=(Resources(cpu=8), Resources(gpu=1, gpu_type="v"))))
    with pytest.raises(CapacityError) as caught:
        validate(made, workers)
    assert "'big' asks for (cpu 8) or (cpu 1, gpu 1 of type v)" in caught.value.message
    assert caught.value.message.count("memory 100 bytes") == 1
    with pytest.raises(CapacityError, match="'plain'"):
        validate(graph("plain"), [Resources(cpu=0.5)])
    with pytest.raises(CapacityError, match="none"):
        validate(graph("plain"), [])


def test_size_limits():
    one = vertex("a")
    validate_size = LogicalGraph(vertices=dict.fromkeys(map(str, range(MAX_VERTICES + 1)), one))
    with pytest.raises(InputLimitError, match="100,001 vertices"):
        validate(validate_size)
    with pytest.raises(InputLimitError, match="1,000,001 edges"):
        validate(LogicalGraph(vertices={"a": one}, edges=[Edge("a", "b")] * (MAX_EDGES + 1)))


def test_topological_keeps_the_order_of_addition_where_it_can():
    assert topological(graph("a", "b", "c", edges=["a>c"])) == ["a", "b", "c"]
    assert topological(graph("a", "b", "c", "d", edges=["d>a", "c>b"])) == ["c", "b", "d", "a"]


def test_fixed_follows_same_as():
    made = graph(vertex("a", 3), vertex("b", SameAs("a")), vertex("c", Range(1, 2)))
    assert [fixed(made, each.parallelism) for each in made.vertices.values()] == [3, 3, None]


# ---------------------------------------------------------------------------------------------------------- patch


def live():
    g = Graph()
    head = g.add("pkg:f", name="head")
    grow = g.add("pkg:f", head, name="grow", expands=True)
    end = g.add("pkg:f", grow, name="end")
    ps = g.service("pkg:f", name="ps")
    g.add("pkg:f", after(grow), ps, name="train")
    g.add("pkg:f", end, name="last")
    return g.finish()


def grown(*vertices, edges=(), **rest):
    made = graph(*vertices, edges=edges)
    return Patch(tuple(made.vertices.values()), tuple(made.edges), **rest)


def test_a_patch_that_is_legal():
    check_patch(live(), grown("grow/a", "grow/b", edges=["grow>grow/a", "grow/a>grow/b"]), "grow")
    check_patch(live(), grown("grow/a", edges=["grow>grow/a", edge("grow/a", "last", name="more")]), "grow")
    check_patch(live(), grown("grow/a", edges=["grow>grow/a", "grow/a>end"], drop_edges=("grow->end",)), "grow")
    check_patch(live(), grown(vertex("grow/a", SameAs("head")), edges=["grow>grow/a"]), "grow")
    check_patch(live(), grown(service("grow/s"), edges=[Edge("grow/s", "train", NONE, CONCURRENT)]), "grow")
    choice = Choice("c", "grow/d", {"yes": ("grow/x",)})
    decides = grown(vertex("grow/d", expands=True), "grow/x", edges=["grow/d>grow/x"], choices=(choice,))
    check_patch(live(), decides, "grow")


def test_expanders_of_a_patch_share_the_names_of_the_first_one():
    grow = live()
    grow.vertices["grow/round-1"] = vertex("grow/round-1", expands=True)
    for name in ("grow/round-2", "grow/round-1/more"):
        check_patch(grow, grown(name), "grow/round-1")
    with pytest.raises(GraphError, match="must begin with 'grow/'"):
        check_patch(grow, grown("round-2"), "grow/round-1")


ILLEGAL_PATCHES = {
    "no expander": (grown(), "head", "expander"),
    "no vertex": (grown(), "nobody", "expander"),
    "foreign name": (grown("mine"), "grow", "patch-name"),
    "only a prefix": (grown("grown"), "grow", "patch-name"),
    "twice": (Patch((vertex("grow/a"), vertex("grow/a"))), "grow", "unique-vertex"),
    "bad vertex": (grown(vertex("grow/a", -2)), "grow", "parallelism"),
    "unknown end": (grown("grow/a", edges=["grow/a>grow/b"]), "grow", "unknown-vertex"),
    "cycle inside": (grown("grow/a", "grow/b", edges=["grow/a>grow/b", "grow/b>grow/a"]), "grow", "cycle"),
    "cycle through": (grown("grow/a", edges=["last>grow/a", "grow/a>end"]), "grow", "cycle"),
    "started": (grown("grow/a", edges=["grow/a>head"]), "grow", "patch-started"),
    "itself": (grown("grow/a", edges=["grow/a>grow"]), "grow", "patch-started"),
    "dropped started": (grown(drop_edges=("head->grow",)), "grow", "patch-started"),
    "dropped nothing": (grown(drop_edges=("head->grwo",)), "grow", "unknown-edge"),
    "dropped the last consumer": (grown(drop_edges=("ps->train",)), "grow", "service-consumer"),
    "edge again": (grown(edges=["end>last"]), "grow", "duplicate-edge"),
    "edge name again": (grown("grow/a", edges=[edge("grow", "grow/a", name="end->last")]), "grow", "duplicate-edge"),
    "service alone": (grown(service("grow/s")), "grow", "service-consumer"),
    "bubble of strangers": (grown("grow/a", bubbles=(Bubble("u", ("x",)),)), "grow", "unknown-vertex"),
    "same as later": (
        grown(vertex("grow/a", SameAs("grow/b")), vertex("grow/b", Range(1, 2)), edges=["grow/a>grow/b"]),
        "grow",
        "same-as",
    ),
}


@pytest.mark.parametrize("case", ILLEGAL_PATCHES)
def test_a_patch_that_is_not(case):
    patch, expander, rule = ILLEGAL_PATCHES[case]
    with pytest.raises(GraphError) as caught:
        check_patch(live(), patch, expander)
    assert caught.value.rule == rule


def test_a_graph_in_use_passes():
    """The shapes that the design lists, all in one graph."""
    g = Graph("all")
    scan = g.map("pkg:f", range(8))
    counts = g.add("pkg:f", shuffle(scan, 4), name="counts")
    g.reduce("pkg:f", counts, 3)
    g.add("pkg:f", gather(counts, blocking=True), name="sorted")
    a = g.add("pkg:f", name="a", n=2)
    b = g.add("pkg:f", one_to_one(a, concurrent=True, storage=Storage.EPHEMERAL), name="b")
    g.bubble(a, b)
    validate(g.finish(), [Resources(cpu=2, memory=1 << 30)])
