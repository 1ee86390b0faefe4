"""Graphs that grow: expanders, choices, patches, and what decisions may do."""

import sys
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.unit.engine.hand import Hand, body, run_out
from weft.engine import patching
from weft.engine.commands import Launch
from weft.engine.decisions import BackUp, Emit, Fail, Finish, SetEdge, SetParallelism, SetResources
from weft.engine.events import UserEvent
from weft.engine.invariants import check
from weft.graph.builder import Graph, after, gather, one_to_one, shuffle
from weft.graph.logical import (
    BROADCAST,
    NONE,
    ONE_TO_ONE,
    SEQUENTIAL,
    Choice,
    Edge,
    OnFailure,
    Outcome,
    Parallelism,
    Patch,
    SameAs,
    Scheduling,
    Source,
    Storage,
    Trigger,
    Vertex,
)
from weft.graph.rectangles import Rectangles
from weft.graph.task import DECIDE
from weft.graph.task_spec import TaskSpec
from weft.graph.wire import patch_to_json
from weft.model.errors import GraphError
from weft.model.failures import Failure
from weft.model.program import Program
from weft.model.resources import Resources

CONTINUE = OnFailure.CONTINUE


def vertex(id: str, n: Parallelism = 1, **fields) -> Vertex:
    return Vertex(id, Program("builtins:len"), n, **fields)


def answered(hand: type[Hand], graph, value: object, *, expander: str = "x", workers: int = 2, **tuning) -> Hand:
    """Run the expander, which is ready first, and give its answer."""
    h = hand(graph, workers=workers, **tuning)
    h(h.idle(0))
    h.expect(f"launch {expander}[0] on 0")
    h(h.done(f"{expander}[0]", values=[value]))
    return h


# ----------------------------------------------------------------------------------------------------- parallelism


def planned(**fields) -> Graph:
    g = Graph("g", **fields)
    x = g.add(body, n=1, name="x", expands=True)
    load = g.add(body, gather(x), n=Source("x"), name="load")
    each = g.add(body, load, name="each")
    g.add(body, gather(each), n=1, name="total")
    assert each.parallelism == SameAs("load")
    return g


@pytest.mark.parametrize(
    "answer",
    [
        3,
        np.int64(3),
        [10, 20, 30],
        ("a", "b", "c"),
        range(3),
        deque("abc"),
        np.arange(3),
        np.ones((3, 2)),
        {"a": 1, "b": 2, "c": 3}.keys(),
        {"a": 1, "b": 2, "c": 3}.values(),
        {"a": 1, "b": 2, "c": 3}.items(),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_an_answer_is_a_width(hand, answer):
    h = answered(hand, planned(), answer)
    h.expect()
    assert (h.rows("load"), h.rows("each")) == (["ready"] * 3, ["unscheduled"] * 3)
    assert run_out(h, [0, 1])[-1] == "complete succeeded"


def test_the_items_of_a_list_reach_the_tasks_and_not_the_callers_graph(hand):
    g = planned()
    h = answered(hand, g, [10, 20])
    h.expect()
    assert h.core.by_id["load"].vertex.program.items == [10, 20]
    assert g.vertices["load"].program.items is None


def test_a_width_of_nothing(hand):
    h = answered(hand, planned(), 0)
    h.skip("free")
    assert (h.state("load"), h.state("each"), h.rows("total")) == ("done", "done", ["ready"])
    assert run_out(h, [0]) == ["total[0]", "complete succeeded"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "takes a number of tasks"),
        (True, "takes a number of tasks"),
        (-1, "negative"),
        (1.5, "returned a float"),
        ("three", "decides no choice"),
        ({"n": 3}, "Return the list of its items, keys or values"),
        ({3, 4}, "A set has no order: return sorted(...) of it"),
        ((n for n in range(3)), "It can be read once: return list(...) of it"),
        (map(str, range(3)), "It can be read once"),
        (np.array(1.5), "returned an ndarray"),
        (b"abc", "returned a bytes"),
        (object(), "returned an object"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.parametrize("on_failure", list(OnFailure))
def test_a_bad_answer_fails_the_expander_and_says_what_is_wanted(hand, answer, says, on_failure):
    h = answered(hand, planned(on_failure=on_failure), answer)
    (line,) = h.skip("complete")
    assert line.startswith("complete failed: x[0] the answer of x was rejected")
    assert says in line
    assert h.skip() == ["free x[0]"]
    assert (h.rows("x"), h.state("load")) == (["fatal"], "failed" if on_failure is CONTINUE else h.state("load"))


class Point(NamedTuple):
    """A named tuple of the user's, which is no decision."""

    x: int
    y: int


def test_a_named_tuple_is_no_list_of_its_fields(hand):
    h = answered(hand, planned(), Point(1, 2))
    assert any("expander 'x' returned a Point; vertex 'load' takes a number of tasks" in line for line in h.skip())


def test_an_expander_may_return_no_decisions(hand):
    g = Graph("g")
    g.add(body, after(g.add(body, n=1, name="x", expands=True)), name="y")
    h = answered(hand, g, [])
    h.skip()
    assert (h.state("x"), h.rows("y")) == ("done", ["ready"])


@pytest.mark.parametrize("answer", [3, [1, 2], range(2)], ids=lambda answer: type(answer).__name__)
def test_a_width_that_no_vertex_takes_is_refused(hand, answer):
    g = Graph("g")
    g.add(body, after(g.add(body, n=1, name="x", expands=True)), name="y")
    h = answered(hand, g, answer)
    (line,) = h.skip("complete")
    assert "but no vertex takes its number of tasks from it" in line
    assert "Give a vertex n=Source('x'), or return None." in line
    h.skip()


def test_a_list_that_is_data_is_taken_for_data(hand):
    g = Graph("g")
    g.add(body, g.add(body, n=1, name="x", expands=True), name="y")
    h = answered(hand, g, [1, 2])
    h.expect()
    assert h.rows("y") == ["ready"]


def test_named_tuples_of_the_user_are_values(hand):
    h = answered(hand, planned(), [Point(1, 2), Point(3, 4)])
    assert h.core.by_id["load"].n == 2
    assert h.core.by_id["load"].vertex.program.items == [Point(1, 2), Point(3, 4)]
    h.skip()


def test_one_decision_is_an_answer(hand):
    h = answered(hand, planned(), SetParallelism("load", 3))
    assert h.core.by_id["load"].n == 3
    h.skip()


def test_decisions_beside_values_are_refused(hand):
    h = answered(hand, planned(), [SetParallelism("load", 3), Point(1, 2)])
    (line,) = (line for line in h.pending if line.startswith("complete"))
    assert "a SetParallelism stands beside what is no decision" in line
    h.skip()


def test_what_is_no_decision_about_the_graph_is_refused(hand):
    h = hand(planned(), workers=1)
    with pytest.raises(GraphError, match="a BackUp is not a decision"):
        patching.apply(h.core, BackUp(1, "late"))


def test_an_answer_counts_once(hand):
    h = answered(hand, planned(), 2)
    h.expect()
    h(h.output_lost("x[0]"), h.idle(0))
    h.expect("launch x[0] on 0")
    assert h.rows("load") == ["unscheduled"] * 2
    h(h.done("x[0]", values=[5]), h.idle(0))  # another answer, too late
    h.expect("launch each[0] on 0 with load")
    assert len(h.rows("load")) == 2


def test_an_expander_of_which_nobody_wants_an_answer(hand):
    g = Graph("g")
    g.add(body, n=1, name="x", expands=True, keep=True)
    h = answered(hand, g, None)
    h.expect("complete succeeded")


def test_one_expander_for_two_vertices(hand):
    g = Graph("g")
    x = g.add(body, n=1, name="x", expands=True)
    g.add(body, after(x), n=Source("x"), name="a")
    g.add(body, gather(x), n=Source("x"), name="b")
    h = answered(hand, g, 2)
    h.expect()
    assert (h.rows("a"), h.rows("b")) == (["ready"] * 2, ["ready"] * 2)


def test_what_an_unknown_reader_may_read_is_kept(hand):
    g = Graph("g")
    x = g.add(body, n=1, name="x", expands=True)
    a = g.add(body, n=2, name="a")
    g.add(body, gather(a), n=1, name="first")
    g.add(body, after(x), gather(a), n=Source("x"), name="later")
    h = hand(g, workers=4)
    h(h.idle(0, 1, 2))
    h.expect("launch x[0] on 0", "launch a[0] on 1", "launch a[1] on 2")
    h(h.done("a[0]"), h.done("a[1]"), h.idle(1))
    h.expect("launch first[0] on 1")
    h(h.done("first[0]"))
    h.expect()
    h(h.done("x[0]", values=[1]), h.idle(0))
    h.expect("launch later[0] on 0")
    h(h.done("later[0]"))
    assert sorted(h.skip()) == ["complete succeeded", "free a[0:2]"] or h.rows("a") == ["freed", "freed"]


# --------------------------------------------------------------------------------------------------------- choices


def chosen(on_failure=OnFailure.FAIL_FAST) -> Graph:
    g = Graph("g", on_failure=on_failure)
    d = g.add(body, n=1, name="d")
    yes = g.add(body, gather(d), n=2, name="yes")
    more = g.add(body, yes, name="more")
    no = g.add(body, after(d), n=1, name="no")
    g.add(body, gather(more), gather(no), n=1, name="join")
    g.choice(d, yes=[yes, more], no=no)
    return g


@pytest.mark.parametrize(("answer", "runs", "skipped"), [("yes", "yes more", "no"), ("no", "no", "yes more")])
def test_one_branch_runs_and_the_others_are_skipped(hand, answer, runs, skipped):
    h = answered(hand, chosen(), answer, expander="d", cones=False)
    h.skip("free")
    assert all(h.state(name) == "skipped" for name in skipped.split())
    assert h.master.inspector.view().choices == {"choice-1": answer}
    order = run_out(h, [0, 1])
    assert {name.split("[")[0] for name in order[:-1]} == {*runs.split(), "join"}
    assert order[-1] == "complete succeeded"


@pytest.mark.parametrize("answer", ["maybe", "", 7, None])
def test_no_such_branch(hand, answer):
    h = answered(hand, chosen(), answer, expander="d")
    (line,) = h.skip("complete")
    assert line.startswith("complete failed: d[0] the answer of d was rejected")
    assert "yes, no" in line
    h.skip("free")


def test_nothing_of_a_branch_starts_before_the_answer(hand):
    g = Graph("g")
    d = g.add(body, n=1, name="d")
    src = g.add(body, n=1, name="src")
    a = g.add(body, gather(src), after(d), n=1, name="a")
    g.choice(d, yes=a, no=[])
    h = hand(g)
    h(h.idle(0, 1))
    h.expect("launch d[0] on 0", "launch src[0] on 1")
    h(h.done("src[0]"), h.idle(1))
    h.expect()
    h(h.done("d[0]", values=["yes"]), h.idle(0))
    h.expect("launch a[0] on 0")


def test_a_skipped_branch_lets_go_of_what_it_would_have_read(hand):
    g = Graph("g")
    d = g.add(body, n=1, name="d")
    src = g.add(body, n=2, name="src")
    a = g.add(body, gather(src), after(d), n=1, name="a")
    g.choice(d, yes=a, no=[])
    h = hand(g, workers=3)
    h(h.idle(0, 1, 2))
    h.expect("launch d[0] on 0", "launch src[0] on 1", "launch src[1] on 2")
    h(h.done("src[0]"), h.done("src[1]"))
    h.expect()
    h(h.done("d[0]", values=["no"]))
    assert h.skip()[0] == "free src[0:2]"


def test_the_branches_of_a_decider_that_failed_are_given_up(hand):
    g = Graph("g", on_failure=CONTINUE)
    d = g.add(body, n=1, name="d")
    a = g.add(body, after(d), n=1, name="a")
    b = g.add(body, after(a, outcome=Outcome.ANY), n=1, name="b")
    g.choice(d, yes=[a, b], no=[])
    h = hand(g)
    h(h.idle(0))
    h.expect("launch d[0] on 0")
    h(h.failed("d[0]"))
    h.expect("complete failed: d[0] bad")


def test_a_choice_inside_a_branch_that_is_skipped(hand):
    g = Graph("g")
    d = g.add(body, n=1, name="d")
    inner = g.add(body, after(d), n=1, name="inner")
    leaf = g.add(body, after(inner), n=1, name="leaf")
    g.choice(inner, go=leaf, stop=[])
    g.choice(d, yes=[inner, leaf], no=[])
    h = answered(hand, g, "no", expander="d")
    assert h.skip()[-1] == "complete succeeded"
    assert (h.state("inner"), h.state("leaf")) == ("skipped", "skipped")


def test_a_decider_that_is_made_again_is_not_asked_again(hand):
    h = answered(hand, chosen(), "yes", expander="d")
    h.expect()
    h(h.output_lost("d[0]"), h.idle(0))
    h.expect("launch d[0] on 0")
    h(h.done("d[0]", values=["no"]))
    h.expect()
    assert (h.state("no"), h.rows("yes")) == ("skipped", ["ready", "ready"])


# --------------------------------------------------------------------------------------------------------- patches


def live(on_failure=OnFailure.FAIL_FAST) -> Graph:
    g = Graph("g", on_failure=on_failure)
    before = g.add(body, n=2, name="before")
    x = g.add(body, gather(before), n=1, name="x", expands=True)
    g.add(body, after(x), n=1, name="report")
    return g


def patched(hand: type[Hand], patch: object, graph: Graph | None = None) -> Hand:
    h = hand(graph or live(), workers=2)
    h(h.idle(0, 1))
    h.expect("launch before[0] on 0", "launch before[1] on 1")
    h(h.done("before[0]"), h.done("before[1]"), h.idle(0))
    h.expect("launch x[0] on 0")
    h(h.done("x[0]", values=[patch]))
    return h


ADDS = Patch(
    (vertex("x/a", 2), vertex("x/b", 2)),
    (
        Edge("before", "x/a", ONE_TO_ONE),
        Edge("x/a", "x/b", ONE_TO_ONE),
        Edge("x/b", "report", BROADCAST),
    ),
)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_patch_adds_work_between_what_is_done_and_what_has_not_started(hand, as_json):
    h = patched(hand, patch_to_json(ADDS) if as_json else ADDS)
    h.skip("free")
    order = run_out(h, [0, 1])
    assert order[-1] == "complete succeeded"
    assert order[-2] == "report[0]"
    assert {name.split("[")[0] for name in order[:-1]} >= {"x/b", "report"}
    assert [stage.id for stage in h.core.order].index("x/b") < [stage.id for stage in h.core.order].index("report")


def test_a_patch_does_not_change_the_callers_graph(hand):
    g = live()
    h = patched(hand, ADDS, g)
    h.skip()
    assert list(g.vertices) == ["before", "x", "report"]
    assert len(g.edges) == 2


def test_a_patch_may_drop_an_edge(hand):
    late = Graph("g")
    slow = late.add(body, n=1, name="slow")
    x = late.add(body, n=1, name="x", expands=True)
    late.add(body, after(slow), after(x), n=1, name="report")
    h = hand(late)
    h(h.idle(0, 1))
    h.expect("launch slow[0] on 0", "launch x[0] on 1")
    h(h.done("x[0]", values=[Patch(drop_edges=("slow->report",))]), h.idle(1))
    h.expect("launch report[0] on 1")


def test_depths_below_a_patch_are_right(hand):
    h = patched(hand, ADDS)
    h.skip()
    assert {stage.id: stage.depth for stage in h.core.stages} == {
        "before": 0, "x": 1, "x/a": 1, "x/b": 2, "report": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        (Patch((vertex("elsewhere"),)), "must begin with 'x/'"),
        (Patch((vertex("x/a"), vertex("x/a"))), "two vertices with one id"),
        (Patch(drop_edges=("no->where",)), "unknown edge"),
        (Patch((), (Edge("report", "x", NONE, storage=Storage.NONE),)), "already started"),
        (Patch((), (Edge("report", "before", NONE, storage=Storage.NONE),)), "already started"),
        (Patch((), (), ("before->x",)), "already started"),
        (Patch((vertex("x/a", 3),), (Edge("before", "x/a", ONE_TO_ONE),)), "one_to_one"),
        (Patch((vertex("x/a"), vertex("x/b")), (Edge("x/a", "x/b"), Edge("x/b", "x/a"))), "cycle"),
        (Patch((vertex("x/a"),), (Edge("nobody", "x/a"),)), "unknown vertex"),
        (Patch((), (), (), (), (Choice("c", "report", {"yes": ()}),)), "does not expand"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_patch_that_breaks_a_rule_is_rejected_whole(hand, patch, says):
    h = patched(hand, patch)
    (line,) = h.skip("complete")
    assert line.startswith("complete failed: x[0] the answer of x was rejected")
    assert says in line
    h.skip("free")
    assert list(h.core.by_id) == ["before", "x", "report"]
    assert len(h.core.links) == 2


def test_a_patch_may_not_touch_what_has_started(hand):
    g = Graph("g", on_failure=CONTINUE)
    x = g.add(body, n=1, name="x", expands=True)
    g.add(body, n=1, name="other")
    g.add(body, after(x), n=1, name="report")
    h = hand(g)
    h(h.idle(0, 1))
    h.expect("launch x[0] on 0", "launch other[0] on 1")
    patch = Patch((vertex("x/a"),), (Edge("x/a", "other", NONE, storage=Storage.NONE),))
    h(h.done("x[0]", values=[patch]))
    h.expect("free x[0]")
    assert "'other' has started" in "".join(h.master.inspector.story("x"))
    h(h.done("other[0]"))
    assert h.skip()[-1].startswith("complete failed: x[0]")


def test_a_patch_that_is_made_again_is_not_applied_again(hand):
    h = patched(hand, ADDS)
    h.skip()
    h(h.output_lost("x[0]"))
    h.skip()
    assert list(h.core.by_id) == ["before", "x", "report", "x/a", "x/b"]
    assert run_out(h, [0, 1])[-1] == "complete succeeded"


def test_a_patch_reads_again_what_has_been_freed(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, a, name="b")
    g.add(body, after(b), n=1, name="x", expands=True, keep=True)
    h = hand(g)
    h(h.idle(0))
    h.expect("launch b[0] on 0 with a")
    h(h.done("b[0]"), h.idle(0))
    h.expect("launch x[0] on 0")
    h(h.done("x[0]", values=[Patch((vertex("x/c", keep=True),), (Edge("a", "x/c"),))]), h.idle(0))
    h.skip("free")
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch x/c[0] on 0")
    h(h.done("x/c[0]"))
    assert h.skip()[-1] == "complete succeeded"


def test_a_patch_behind_a_failure_fails_with_it(hand):
    g = Graph("g", on_failure=CONTINUE)
    a = g.add(body, n=1, name="a")
    g.add(body, after(a, outcome=Outcome.ANY), n=1, name="x", expands=True)
    h = hand(g)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]"), h.idle(0))
    h.expect("launch x[0] on 0")
    h(h.done("x[0]", values=[Patch((vertex("x/c"),), (Edge("a", "x/c", BROADCAST),))]))
    assert h.skip()[-1] == "complete failed: a[0] bad"
    assert h.state("x/c") == "failed"


def test_a_patch_may_bring_an_expander_and_a_choice(hand):
    patch = Patch(
        (vertex("x/d", expands=True), vertex("x/e"), vertex("x/p", expands=True), vertex("x/n", Source("x/p"))),
        (
            Edge("x/d", "x/e", NONE, storage=Storage.NONE),
            Edge("x/p", "x/n", NONE, storage=Storage.NONE),
            Edge("x/n", "report", NONE, storage=Storage.NONE),
        ),
        (),
        (),
        (Choice("x-choice", "x/d", {"yes": ("x/e",), "no": ()}),),
    )
    h = patched(hand, patch)
    h.skip("free")
    h(h.idle(0, 1))
    h.expect("launch x/d[0] on 0", "launch x/p[0] on 1")
    h(h.done("x/d[0]", values=["no"]), h.done("x/p[0]", values=[2]), h.idle(0, 1))
    h.skip("free")
    h.expect("launch x/n[0] on 0", "launch x/n[1] on 1")
    assert h.state("x/e") == "skipped"
    h(h.done("x/n[0]"), h.done("x/n[1]"), h.idle(0))
    h.expect("launch report[0] on 0")
    h(h.done("report[0]"))
    assert h.skip()[-1] == "complete succeeded"


def test_a_service_is_not_drained_before_the_last_expander_has_ended(hand):
    g = Graph("g")
    s = g.service(body, name="s")
    g.add(body, s, n=1, name="a")
    x = g.add(body, n=1, name="x", expands=True)
    g.add(body, after(x), n=1, name="report")
    h = hand(g, workers=4)
    assert h.skip("acquire") == ["acquire s*1, a*1"]
    h.skip("timer")
    h(h.granted(s=0, a=1), h.idle(2))
    h.expect("launch s[0] on 0", "launch a[0] on 1", "launch x[0] on 2")
    h(h.done("a[0]"))
    h.expect("release 1")
    new = Edge("s", "x/c", NONE, Scheduling(True, Trigger.SOURCE_RUNNING), Storage.NONE)
    h(h.done("x[0]", values=[Patch((vertex("x/c"),), (new,))]), h.idle(1, 2))
    assert "launch x/c[0] on 2" in h.skip()
    h(h.done("x/c[0]"))
    assert "stop s[0]: its last consumer has ended" in h.skip()


# ------------------------------------------------------------------------------------------------------- decisions


def decided(
    hand: type[Hand], decision: object, *, n: int = 3, workers: int = 2, on_failure=OnFailure.FAIL_FAST
) -> Hand:
    """An expander with a list of decisions; `slow` holds back a -> b."""
    g = Graph("g", on_failure=on_failure)
    g.add(body, n=1, name="x", expands=True)
    slow = g.add(body, n=1, name="slow")
    a = g.add(body, after(slow), n=n, name="a")
    g.add(body, shuffle(a), n=2, name="b")
    h = hand(g, workers=workers, cones=False)
    h(h.idle(0, 1))
    h.expect("launch x[0] on 0", "launch slow[0] on 1")
    h(h.done("x[0]", values=[[decision]]))
    return h


def rejected(h: Hand) -> str:
    h.skip("free", "stop")
    h(h.stopped("slow[0]"))
    (line,) = h.skip("complete")
    h.skip("free")
    return line


def test_set_parallelism_with_routers(hand):
    router = Rectangles.from_groups(3, [0, 1, 4], 4)
    h = decided(hand, SetParallelism("b", 2, (("a->b", router),)))
    h.skip("free")
    assert h.core.links["a->b"].router is router
    assert run_out_slow(h)[-1] == "complete succeeded"


def run_out_slow(h: Hand) -> list[str]:
    h(h.done("slow[0]"))
    h.skip("free")
    return run_out(h, [0, 1])


def test_set_parallelism_of_what_has_not_started(hand):
    h = decided(hand, SetParallelism("a", 5))
    h.skip("free")
    assert len(h.rows("a")) == 5
    assert run_out_slow(h)[-1] == "complete succeeded"


def test_set_parallelism_of_what_has(hand):
    assert "'slow' has started" in rejected(decided(hand, SetParallelism("slow", 5)))


def test_a_rejected_decision_changes_nothing(hand):
    g = Graph("g", on_failure=CONTINUE)
    g.add(body, n=1, name="x", expands=True)
    slow = g.add(body, n=1, name="slow")
    a = g.add(body, after(slow), n=3, name="a")
    g.add(body, one_to_one(a), n=3, name="b")
    h = hand(g)
    h(h.idle(0, 1))
    h.skip("launch")
    h(h.done("x[0]", values=[[SetParallelism("a", 5)]]))
    h.expect("free x[0]")
    assert (h.rows("x"), len(h.rows("a")), h.core.links["a->b"].router.n_src) == (["fatal"], 3, 3)
    h(h.done("slow[0]"))
    h.skip()
    assert run_out(h, [0, 1])[-1].startswith("complete failed: x[0]")


def test_set_resources(hand):
    h = decided(hand, SetResources("a", (Resources(cpu=2),)), n=1, workers=4)
    h.skip("free")
    h(h.done("slow[0]"))
    h.skip("free")
    h.expect("acquire a*1 (cpu 2)")
    h(h.granted(a=0))
    h.expect("launch a[0] on 0, cpu 2")


def test_set_edge(hand):
    h = decided(hand, SetEdge("a->b", storage=Storage.DURABLE))
    h.skip("free")
    run_out_slow(h)
    assert h.rows("a") == ["finished"] * 3  # never freed by the engine


def test_set_edge_of_nothing(hand):
    assert "there is none" in rejected(decided(hand, SetEdge("no->where", scheduling=SEQUENTIAL)))


def test_finish_ends_a_vertex_early(hand):
    h = decided(hand, Finish("a", "b has enough"))
    h.skip("free")
    assert (h.rows("a"), h.state("a")) == (["skipped"] * 3, "done_early")
    assert run_out_slow(h)[-1] == "complete succeeded"


@pytest.mark.parametrize("cpu", [0, 1])
def test_resources_of_what_runs_keep_their_tokens(hand, cpu):
    g = Graph("g", limits={"slots": 1})
    g.add(body, n=1, name="x", expands=True)
    g.add(body, n=1, name="a", resources=Resources(cpu=cpu, tokens=(("slots", 1),)))
    h = hand(g)
    h.skip("acquire", "start")
    if cpu:
        h(h.granted(a=1))
        h.skip("launch")
    h(h.idle(0))
    h.expect("launch x[0] on 0")
    h(h.done("x[0]", values=[[SetResources("a", (Resources(cpu=2),))]]))
    h.expect("free x[0]", "stop a[0]: x[0] failed")
    assert "what they take of tokens" in "\n".join(h.master.inspector.story("x"))
    h(h.stopped("a[0]"))
    h.skip("release")
    assert h.skip("complete")[0].startswith("complete failed: x[0]")
    assert h.core.tokens == {"slots": 1}


def test_finish_stops_what_runs(hand):
    h = decided(hand, Finish("slow", "enough"))
    h.skip("free")
    h.expect("stop slow[0]: enough")
    h(h.stopped("slow[0]"))
    h.skip("free")
    assert (h.rows("slow"), h.state("slow"), h.rows("a")) == (["skipped"], "done_early", ["ready"] * 3)
    assert run_out(h, [0, 1])[-1] == "complete succeeded"


def test_finish_stops_what_has_said_that_it_began(hand):
    g = Graph("g")
    g.add(body, n=1, name="x", expands=True)
    g.add(body, n=1, name="a")
    h = hand(g)
    h(h.idle(0, 1))
    h.expect("launch x[0] on 0", "launch a[0] on 1")
    h(h.started("a[0]"))
    h.expect()
    h(h.done("x[0]", values=[[Finish("a", "enough")]]))
    h.skip("free")
    h.expect("stop a[0]: enough")
    assert h.rows("a") == ["running"]
    h(h.stopped("a[0]"))
    h.skip("free")
    h.expect("complete succeeded")
    assert h.rows("a") == ["skipped"]


def test_emit_opens_gates(hand):
    g = Graph("g")
    g.add(body, n=1, name="x", expands=True)
    slow = g.add(body, n=1, name="slow")
    g.add(body, after(slow, concurrent=True, event="e"), n=1, name="b")
    h = hand(g)
    h(h.idle(0, 1))
    h.skip("launch")
    h(h.done("x[0]", values=[[Emit("slow", "e")]]), h.idle(0))
    h.skip("free")
    h.expect("launch b[0] on 0")


def test_fail_fails_all_that_has_not_started(hand):
    h = decided(hand, Fail("a", "no such table"), on_failure=CONTINUE)
    h.skip("free")
    assert (h.rows("a"), h.rows("b")) == (["fatal"] * 3, ["fatal"] * 2)
    h(h.done("slow[0]"))
    assert h.skip()[-1] == "complete failed: a[0] no such table"


@pytest.mark.parametrize("decision", [Finish("nobody", ""), Fail("nobody", ""), SetParallelism("nobody", 1)])
def test_decisions_about_nobody(hand, decision):
    assert "there is no such vertex" in rejected(decided(hand, decision))


def test_finish_of_what_has_results_and_the_loss_of_one(hand):
    g = Graph("g")
    x = g.add(body, n=1, name="x", expands=True)
    a = g.add(body, n=3, name="a")
    g.add(body, gather(a), after(x), n=1, name="b")
    h = hand(g, workers=3, cones=False)
    h(h.idle(0, 1))
    h.expect("launch x[0] on 0", "launch a[0] on 1")
    h(h.done("a[0]"))
    h.expect()
    h(h.done("x[0]", values=[[Finish("a", "enough")]]))
    h.skip("free x")
    h.expect()
    assert (h.state("a"), h.rows("a")) == ("done_early", ["finished", "skipped", "skipped"])
    h(h.output_lost("a[0]"), h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch b[0] on 0")


def test_a_vertex_of_unknown_width_on_a_branch_that_is_not_taken(hand):
    g = Graph("g")
    d = g.add(body, n=1, name="d")
    x = g.add(body, after(d), n=1, name="x", expands=True)
    load = g.add(body, after(x), n=Source("x"), name="load")
    g.choice(d, yes=[x, load], no=[])
    h = answered(hand, g, "no", expander="d")
    assert h.skip()[-1] == "complete succeeded"
    assert (h.state("x"), h.state("load")) == ("skipped", "skipped")


def test_a_vertex_that_was_given_up_takes_no_width(hand):
    g = Graph("g", on_failure=CONTINUE)
    z = g.add(body, n=1, name="z")
    x = g.add(body, n=1, name="x", expands=True)
    wide = g.add(body, after(x), n=Source("x"), name="wide")
    g.add(body, one_to_one(wide), after(z), n=SameAs("wide"), name="same")
    h = hand(g)
    h(h.idle(0, 1))
    h.expect("launch z[0] on 0", "launch x[0] on 1")
    h(h.failed("z[0]"))
    h.expect()
    assert h.state("same") == "failed"
    h(h.done("x[0]", values=[2]), h.idle(0, 1))
    h.skip("free")
    h.expect("launch wide[0] on 0", "launch wide[1] on 1")


@pytest.mark.parametrize("reads", [gather, one_to_one])
def test_what_was_skipped_before_its_width_was_known_holds_nobody_up(hand, reads):
    g = Graph("g")
    d = g.add(body, n=1, name="d")
    x = g.add(body, after(d), n=1, name="x", expands=True)
    load = g.add(body, after(x), n=Source("x"), name="load")
    g.add(body, reads(load), n=2, name="join")
    g.choice(d, yes=[x, load], no=[])
    h = answered(hand, g, "no", expander="d")
    h.skip("free")
    h(h.idle(0, 1))
    h.expect("launch join[0] on 0", "launch join[1] on 1")
    h(h.failed("join[0]", Failure.INFRASTRUCTURE), h.done("join[1]"), h.idle(0))
    h.expect("launch join[0] on 0, attempt 1")
    h(h.done("join[0]"))
    h.expect("free d[0]", "complete succeeded")


@pytest.mark.parametrize("last", ["slow[0]", "x[2]"])
def test_an_expander_of_several_tasks_is_one_reader(hand, last):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    g.add(body, after(a), n=3, name="x", expands=True)
    g.add(body, a, n=1, name="quick")
    g.add(body, a, n=1, name="slow")
    h = hand(g, workers=5, cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0, 1, 2, 3, 4))
    assert len(h.skip("launch")) == 5
    for task in sorted(["quick[0]", "x[0]", "x[1]", "x[2]", "slow[0]"], key=lambda task: task == last):
        h.expect()
        h(h.done(task))
    h.expect("free a[0]", "free x[0:3]", "complete succeeded")


# ------------------------------------------------------------------------------------------- the cost of a patch


def calls_of(h: Hand, *events: Any) -> int:
    """Return the number of calls of functions while the master handles events: a measure of work without a clock."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        h.master.handle(events)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("reads", ["control", "the vertex before", "a shared source"])
def test_the_cost_of_a_patch_does_not_depend_on_the_size_of_the_graph(hand, reads):
    g = Graph("g")
    control = g.service(body, name="control")
    shared = g.add(body, n=2, name="shared")
    g.add(body, after(control, concurrent=True), gather(shared), n=1, name="reader")
    h = hand(g, workers=4)
    h.skip()
    costs = []
    for number in range(120):
        source = {
            "control": ("control", NONE, Scheduling(True, Trigger.SOURCE_RUNNING)),
            "the vertex before": (f"control/{number - 1}", ONE_TO_ONE, SEQUENTIAL),
            "a shared source": ("shared", BROADCAST, SEQUENTIAL),
        }[reads]
        edges = (Edge(source[0], f"control/{number}", source[1], source[2]),) if number or "before" not in reads else ()
        change = Patch((vertex(f"control/{number}"),), edges)
        event = UserEvent(1.0, "control", 0, DECIDE, (number, "patch", "", change, "more"))
        costs.append(calls_of(h, event))
    check(h.core)
    assert f"control/{number}" in h.core.by_id
    assert max(costs[60:]) <= max(costs[3:10]) * 1.05


def test_the_reader_of_an_output_is_the_last_one_no_more_after_a_patch(hand):
    g = Graph("g")
    a = g.add(body, n=2, name="a")
    g.add(body, a, name="b", timeout_s=9.0)
    g.add(body, n=1, name="x", expands=True)
    h = hand(g, workers=4)
    h(h.idle(0, 1, 2))
    h.skip()
    h(h.done("a[0]"), h.done("a[1]"), h.idle(0))
    (line,) = h.skip("launch b")
    h.skip()
    (edge,) = spec_of_launch(h, "b").inputs
    assert edge.last
    change = Patch((vertex("x/c", 2, timeout_s=9.0),), (Edge("a", "x/c", ONE_TO_ONE),))
    h(h.done("x[0]", values=[change]), h.idle(1, 2, 3))
    h.skip()
    assert line == "launch b[0] on 0"
    assert [edge.last for name in ("b", "x/c") for edge in spec_of_launch(h, name).inputs] == [False, False]


def spec_of_launch(h: Hand, vertex: str) -> TaskSpec:
    """Return the record that the latest launch of a vertex carried."""
    return next(said.specs[-1] for said in reversed(h.said) if isinstance(said, Launch) and said.vertex == vertex)
