"""Control vertices: what they may change, what is rejected, and who comes first."""

from typing import Any

import pytest

from tests.unit.engine.hand import Hand, body
from weft.engine.commands import Reply
from weft.engine.decisions import SetParallelism
from weft.engine.explain import explain
from weft.engine.policy import Moment, VertexManager
from weft.graph.builder import Graph, after, controlled, one_to_one
from weft.graph.logical import (
    CONCURRENT,
    NONE,
    Edge,
    Manager,
    OnFailure,
    Patch,
    Range,
    Retry,
    Source,
    Storage,
    Vertex,
)
from weft.graph.task import DECIDE, USAGE
from weft.model.program import Program
from weft.model.resources import Resources

GPU = Resources(gpu=1, gpu_type="T4")


def graph(**fields: Any) -> Graph:
    g = Graph("g")
    control = g.control(body, name="c")
    work = g.task(body, controlled(control), n=Range(1, 4), name="work", **fields)
    g.task(body, after(work), name="later")
    return g


def decide(h: Hand, what: str, vertex: str, value: Any, because: str = "it was measured", by: str = "c") -> str:
    """Let a control vertex ask for a change; return what it is replied."""
    h(h.emitted(by, DECIDE, ("token", what, vertex, value, because)))
    h.skip("reply")
    return next(command.text for command in reversed(h.said) if isinstance(command, Reply))


def started(hand: type[Hand], g: Graph, **options: Any) -> Hand:
    h = hand(g, cones=False, **options)
    h.skip("start c[0]")
    h(h.started("c[0]"))
    return h


def test_a_control_vertex_takes_no_worker_and_forms_no_bubble(hand):
    h = hand(graph(), workers=1)
    h.expect("start c[0]")
    assert h.core.bubbles == []


def test_what_it_decides_before_it_lets_others_start(hand):
    h = started(hand, graph())
    assert decide(h, "parallelism", "work", 2) == ""
    assert decide(h, "resources", "work", (GPU,)) == ""
    h.expect()
    h(h.emitted("c", "ready"))
    h.expect("publish c[0] ready", f"acquire work*1 ({GPU})", f"acquire work*1 ({GPU})")
    told = [(c.subject, c.what, c.seen) for c in explain(h.core).changes]
    assert (
        "work",
        f"control vertex c decides: its tasks ask for {GPU}",
        "it was measured",
    ) in told


def test_it_ends_when_the_last_that_it_controls_has(hand):
    h = started(hand, graph())
    decide(h, "parallelism", "work", 1)
    h(h.emitted("c", "ready"), h.idle(0))
    h.expect("publish c[0] ready", "launch work[0] on 0")
    h(h.done("work[0]"), h.idle(0))
    h.expect_any_order("stop c[0]: its last consumer has ended", "launch later[0] on 0")


def test_what_has_started_keeps_its_parallelism(hand):
    h = started(hand, graph())
    h(h.emitted("c", "ready"), h.idle(0))
    h.skip()
    assert "has started" in decide(h, "parallelism", "work", 3)
    assert decide(h, "resources", "work", (GPU,)) == ""  # of those that have not
    h.skip()
    assert any("rejected: vertex 'work' has started" in line for line in h.master.inspector.story("work"))


@pytest.mark.parametrize(("vertex", "why"), [("later", "no order-only edge"), ("nobody", "no order-only edge")])
def test_it_changes_nothing_that_it_does_not_control(hand, vertex, why):
    h = started(hand, graph())
    assert why in decide(h, "parallelism", vertex, 2)


def test_only_services_control(hand):
    h = started(hand, graph())
    assert "is not a service" in decide(h, "parallelism", "later", 2, by="work")


def test_a_job_that_is_ending_takes_no_decision(hand):
    h = started(hand, graph())
    h(h.cancel())
    h.skip()
    assert decide(h, "parallelism", "work", 2) == "the job is cancelling"


def test_items_are_not_lost(hand):
    g = Graph("g")
    g.map(body, range(3), controlled(g.control(body, name="c")), name="work")
    assert "is fixed at 3" in decide(started(hand, g), "parallelism", "work", 2)


@pytest.mark.parametrize("n", [-1, 0, 5])
def test_it_keeps_to_the_range_of_a_vertex(hand, n):
    h = started(hand, graph())
    assert decide(h, "parallelism", "work", n) == f"vertex 'work' has between 1 and 4 tasks, and cannot have {n}"
    assert h.core.by_id["work"].n == 4


NONSENSE: Any = [
    {"cpu": -3},
    {"memory": -1},
    {"gpu_type": 4},
    {"tokens": "x"},
    {"tokens": 1},
    {"tokens": (("nope", 1),)},
    {"tokens": (("db", 3),)},
]


@pytest.mark.parametrize("fields", NONSENSE, ids=str)
def test_resources_that_no_graph_may_ask_for_are_rejected(hand, fields):
    g = graph()
    g.limits["db"] = 2
    h = started(hand, g)
    assert decide(h, "resources", "work", (Resources(tokens=(("db", 2),)),)) == ""
    before = h.core.by_id["work"].resources
    assert decide(h, "resources", "work", (Resources(**fields),)).startswith("vertex 'work' ")
    assert h.core.by_id["work"].resources == before


BROKEN: Any = [
    Patch("dry", ()),  # type: ignore[arg-type]
    Patch((1,), ()),  # type: ignore[arg-type]
    Patch(None, ()),  # type: ignore[arg-type]
    Patch((Vertex("c/dry", None, 1),), ()),  # type: ignore[arg-type]
    Patch((), ("a->b",)),  # type: ignore[arg-type]
    Patch((), (), drop_edges="a->b"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("patch", BROKEN, ids=str)
def test_a_patch_of_something_else_is_rejected(hand, patch):
    assert decide(started(hand, graph()), "patch", "", patch).startswith("patch of 'c' has ")


def test_it_patches_vertices_in_below_its_own_name(hand):
    h = started(hand, graph())
    dry = Vertex("c/dry", Program(body), 1)
    edge = Edge("c", "c/dry", NONE, CONCURRENT, Storage.NONE)
    assert decide(h, "patch", "", Patch((dry,), (edge,))) == ""
    h(h.idle(0))
    h.expect("launch c/dry[0] on 0")
    assert "begin with 'c/'" in decide(h, "patch", "", Patch((Vertex("dry", Program(body), 1),), ()))


def dry_run(*edges: Edge) -> Patch:
    return Patch((Vertex("c/dry", Program(body), 1),), (Edge("c", "c/dry", NONE, CONCURRENT, Storage.NONE), *edges))


def test_what_a_control_vertex_that_has_ended_asks_for_is_rejected(hand):
    h = started(hand, graph())
    decide(h, "parallelism", "work", 1)
    h(h.emitted("c", "ready"), h.idle(0))
    h.skip()
    h(h.done("work[0]"))
    h.expect("stop c[0]: its last consumer has ended")
    assert "the service 'c' has ended" in decide(h, "patch", "", dry_run())


def test_a_patch_behind_what_failed_before_its_width_was_known_cannot_run(hand):
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    control = g.control(body, name="c")
    plan = g.task(body, name="plan", expands=True, retry=Retry(user=0))
    g.task(body, after(plan), n=Source("plan"), name="wide")
    g.task(body, controlled(control), name="work")
    h = started(hand, g)
    h(h.idle(0))
    h.skip()
    h(h.failed("plan[0]"))
    h.skip()
    assert h.state("wide") == "failed"
    assert decide(h, "patch", "", dry_run(Edge("wide", "c/dry", NONE, storage=Storage.NONE))) == ""
    assert h.rows("c/dry") == ["fatal"]


def test_a_late_answer_of_the_cache_about_a_task_that_is_gone(hand):
    g = graph(cache_key="k")
    h = started(hand, g)
    h(h.emitted("c", "ready"))
    assert "probe work[3] k" in h.skip()
    h(*[h.miss(f"work[{i}]") for i in range(4)])
    h.skip()
    assert decide(h, "parallelism", "work", 2) == ""
    h.skip()
    h(h.hit("work[3]"), h.miss("work[2]"))
    assert h.core.by_id["work"].n == 2


def test_usage_is_the_most_of_all_tasks(hand):
    h = started(hand, graph())
    h(h.emitted("work", USAGE, {"memory": 2.0}), h.emitted("work", USAGE, {"memory": 1.0, "busy": 0.5}))
    assert h.core.usage == {"work": {"memory": 2.0, "busy": 0.5}}


class Narrow(VertexManager):
    """A manager that wants one task when its vertex hears something."""

    moments = frozenset({Moment.EVENT})
    holds = False
    counts = False

    def decide(self, view, memo):
        return (SetParallelism(view.vertex, 1),), memo


def test_a_control_vertex_comes_before_a_manager_in_the_same_tick(hand):
    h = started(hand, graph(manager=Manager("narrow")), managers={"narrow": Narrow})
    h(h.emitted("c", "news"), h.emitted("c", DECIDE, ("token", "parallelism", "work", 3, "")))
    h.expect("publish c[0] news", "reply token: ")
    assert h.core.by_id["work"].n == 3
    assert any("rejected: c has decided this in the same moment" in line for line in h.master.inspector.story("work"))
    h(h.emitted("c", "news"))  # a later moment is the manager's
    h.expect("publish c[0] news")
    assert h.core.by_id["work"].n == 1


def test_the_resources_of_a_bubble_are_settled_when_it_has_asked(hand):
    g = Graph("g")
    control = g.control(body, name="c")
    server = g.service(body, name="server")
    g.task(body, server, controlled(control), n=2, name="work")
    h = started(hand, g, workers=3)
    h(h.emitted("c", "ready"))
    h.skip()
    assert "has asked for its slots" in decide(h, "resources", "work", (GPU,))


def test_the_width_of_what_was_given_up_in_part_is_settled(hand):
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    control = g.control(body, name="c")
    a = g.task(body, n=2, name="a")
    g.task(body, one_to_one(a), controlled(control), n=Range(1, 2), name="work")
    h = started(hand, g)
    h(h.idle(0, 1))
    h.skip("launch")
    h(h.failed("a[1]"))
    assert h.rows("work") == ["unscheduled", "fatal"]
    assert "some of its tasks have been given up" in decide(h, "parallelism", "work", 2)
    h(h.emitted("c", "ready"), h.done("a[0]"), h.idle(0))
    h.skip("publish")
    h.expect("launch work[0] on 0")
