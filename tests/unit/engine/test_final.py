"""Final vertices run whatever happened, once all others have ended."""

import pytest

from tests.unit.engine.hand import Hand, body
from weft.engine.events import CancelRequested, OutputLost
from weft.graph.builder import Graph, after, gather
from weft.graph.logical import (
    AFTER_ANY,
    CONCURRENT,
    SEQUENTIAL,
    Bubble,
    Choice,
    Edge,
    OnFailure,
    Patch,
    SameAs,
    Source,
    Vertex,
    VertexKind,
)
from weft.graph.rules.patches import check_patch
from weft.graph.validate import validate
from weft.model.errors import GraphError
from weft.model.program import Program


def begun(hand: type[Hand], on_failure: OnFailure = OnFailure.FAIL_FAST) -> Hand:
    """Two tasks of `a` that run, what reads them, and what cleans up."""
    g = Graph("g", on_failure=on_failure)
    a = g.add(body, n=2, name="a")
    g.add(body, gather(a), name="b")
    g.add(body, name="clean", final=True)
    h = hand(g)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    assert h.rows("clean") == ["unscheduled"]
    return h


def forced(h: Hand, *, force: bool = True) -> CancelRequested:
    return CancelRequested(h.now, "enough", force)


def test_after_a_success(hand):
    h = begun(hand)
    h(h.done("a[0]"), h.done("a[1]"), h.idle(0, 1))
    h.expect("launch b[0] on 0")
    h(h.done("b[0]"), h.idle(0, 1))
    assert (h.job, h.skip("free")) == ("ending", ["free a[0:2]"])
    h.expect("launch clean[0] on 0")
    h(h.done("clean[0]"))
    h.expect("complete succeeded")


def test_when_nobody_was_idle_the_next_worker_takes_it(hand):
    h = begun(hand)
    h(h.failed("a[0]"))
    h.expect("stop a[1]: a[0] failed")
    h(h.stopped("a[1]"))
    h.expect()
    assert (h.job, h.rows("clean")) == ("ending", ["ready"])
    h(h.idle(1))
    h.expect("launch clean[0] on 1")
    h(h.done("clean[0]"))
    h.expect("complete failed: a[0] bad")


def test_after_a_failure_of_a_job_that_goes_on(hand):
    h = begun(hand, OnFailure.CONTINUE)
    h(h.failed("a[0]"), h.idle(0))
    h.expect()
    h(h.done("a[1]"), h.idle(0, 1))
    h.expect("launch clean[0] on 0")
    assert h.state("b") == "failed"
    h(h.done("clean[0]"))
    h.skip("free")
    h.expect("complete failed: a[0] bad")


def test_its_own_failure_fails_the_job(hand):
    h = begun(hand)
    h(h.done("a[0]"), h.done("a[1]"), h.idle(0, 1))
    h.expect("launch b[0] on 0")
    h(h.done("b[0]"), h.idle(0, 1))
    h.skip("free")
    h.expect("launch clean[0] on 0")
    h(h.failed("clean[0]"))
    h.expect("complete failed: clean[0] bad")


def test_the_first_failure_is_the_cause(hand):
    h = begun(hand)
    h(h.failed("a[0]"))
    h.skip("stop")
    h(h.stopped("a[1]"), h.idle(0))
    h.expect("launch clean[0] on 0")
    h(h.failed("clean[0]", message="worse"))
    h.expect("complete failed: a[0] bad")


def cancelled(hand: type[Hand]) -> Hand:
    """A job that was cancelled, of which the last vertex has just begun."""
    h = begun(hand)
    h(h.cancel())
    h.expect("stop a[0]: enough", "stop a[1]: enough")
    assert (h.job, h.state("b"), h.state("clean")) == ("cancelling", "cancelled", "configured")
    h(h.stopped("a[0]"), h.stopped("a[1]"), h.idle(0))
    h.expect("launch clean[0] on 0")
    return h


def test_after_a_cancel(hand):
    h = cancelled(hand)
    h(h.done("clean[0]"))
    h.skip("free")
    h.expect("complete cancelled: enough")


def test_a_failure_after_a_cancel_fails_the_job(hand):
    h = cancelled(hand)
    h(h.failed("clean[0]"))
    h.expect("complete failed: clean[0] bad")


def test_a_second_cancel_ends_what_runs(hand):
    h = cancelled(hand)
    h(h.cancel("now"))
    h.expect("stop clean[0]: now")
    h(h.stopped("clean[0]"))
    h.expect("complete cancelled: enough")


@pytest.mark.parametrize("first", [True, False])
def test_a_second_or_forced_cancel_keeps_it_from_beginning(hand, first):
    h = begun(hand)
    if first:
        h(forced(h))
    else:
        h(h.cancel(), h.cancel())
    h.expect("stop a[0]: enough", "stop a[1]: enough")
    assert h.state("clean") == "cancelled"
    h(h.stopped("a[0]"), h.stopped("a[1]"), h.idle(0))
    h.expect("complete cancelled: enough")


def ending(hand: type[Hand]) -> Hand:
    """A job that has come to its end well, but for the last vertex, which runs."""
    h = begun(hand)
    h(h.done("a[0]"), h.done("a[1]"), h.idle(0, 1))
    h.expect("launch b[0] on 0")
    h(h.done("b[0]"), h.idle(0, 1))
    h.skip("free")
    h.expect("launch clean[0] on 0")
    return h


def test_a_first_cancel_does_not_end_what_is_left(hand):
    h = ending(hand)
    h(h.cancel())
    h.expect()
    assert any("a second one does" in line for line in h.master.inspector.story(""))
    h(h.done("clean[0]"))
    h.expect("complete succeeded")


@pytest.mark.parametrize("force", [True, False])
def test_a_forced_or_a_second_one_does(hand, force):
    h = ending(hand)
    if not force:
        h(h.cancel())
        h.expect()
    h(forced(h, force=force))
    h.expect("stop clean[0]: enough")
    h(h.stopped("clean[0]"))
    h.skip("free")
    h.expect("complete cancelled: enough")


def test_what_failed_before_a_forced_cancel_stays_the_end(hand):
    h = begun(hand)
    h(h.failed("a[0]"))
    h.skip("stop")
    h(h.stopped("a[1]"), h.idle(0))
    h.expect("launch clean[0] on 0")
    h(forced(h))
    h.expect("stop clean[0]: enough")
    h(h.stopped("clean[0]"))
    h.expect("complete failed: a[0] bad")


def test_several_go_by_their_own_edges_and_none_ends_another(hand):
    g = Graph("g")
    g.add(body, name="a")
    first = g.add(body, name="first", final=True)
    g.add(body, first, name="second", final=True)
    g.add(body, name="other", final=True)
    h = hand(g, cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]"), h.idle(0, 1))
    h.expect_any_order("launch first[0] on 0", "launch other[0] on 1")
    h(h.failed("first[0]"))
    h.expect()
    assert (h.state("second"), h.job) == ("failed", "ending")
    h(h.done("other[0]"))
    h.skip("free")
    h.expect("complete failed: a[0] bad")


def test_what_it_reads_may_be_missing(hand):
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    a = g.add(body, n=2, name="a")
    g.add(body, gather(a), name="report", final=True)
    assert g.edges[0].scheduling == AFTER_ANY
    h = hand(g)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]"), h.failed("a[1]"), h.idle(0, 1))
    h.expect("launch report[0] on 0")
    h(h.done("report[0]"))
    h.skip("free")
    h.expect("complete failed: a[1] bad")


def test_none_of_no_tasks_is_waited_for(hand):
    g = Graph("g")
    g.add(body, name="a")
    g.add(body, n=0, name="clean", final=True)
    h = hand(g)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"))
    h.expect("complete succeeded")


def test_alone_they_run_at_once(hand):
    g = Graph("g")
    g.add(body, name="clean", final=True)
    h = hand(g)
    assert h.job == "ending"
    h(h.idle(0))
    h.expect("launch clean[0] on 0")
    h(h.done("clean[0]"))
    h.expect("complete succeeded")


def test_a_patch_may_bring_some(hand):
    g = Graph("g")
    g.add(body, name="plan", expands=True)
    h = hand(g)
    h(h.idle(0))
    h.expect("launch plan[0] on 0")
    more = Patch((Vertex("plan/x", Program(body)), Vertex("plan/clean", Program(body), final=True)))
    h(h.done("plan[0]", values=(more,)), h.idle(0, 1))
    h.expect("launch plan/x[0] on 0")
    h(h.done("plan/x[0]"), h.idle(0))
    h.skip("free")
    h.expect("launch plan/clean[0] on 0")
    h(h.done("plan/clean[0]"))
    h.skip("free")
    h.expect("complete succeeded")


def graph() -> Graph:
    g = Graph("g")
    a = g.add(body, name="a")
    g.add(body, name="clean", final=True)
    g.add(body, after(a), name="last", final=True)
    return g


def broken(change: str) -> Graph:
    g = graph()
    if change == "service":
        g.vertices["clean"].kind = VertexKind.SERVICE
    elif change == "out":
        g.edges.append(Edge("clean", "a"))
    elif change == "success":
        g.edges.append(Edge("a", "clean", scheduling=SEQUENTIAL))
    elif change == "concurrent":
        g.edges.append(Edge("a", "clean", scheduling=CONCURRENT))
    elif change == "same":
        g.vertices["clean"].parallelism = SameAs("a")
    elif change == "source":
        g.vertices["a"].expands = True
        g.vertices["clean"].parallelism = Source("a")
        g.edges.append(Edge("a", "clean", scheduling=AFTER_ANY))
    elif change == "bubble":
        g.bubbles.append(Bubble("x", ("a", "clean")))
    elif change == "choice":
        g.vertices["a"].expands = True
        g.edges.append(Edge("a", "clean", scheduling=AFTER_ANY))
        g.choices.append(Choice("x", "a", {"yes": ("clean",), "no": ()}))
    return g


@pytest.mark.parametrize("change", ["service", "out", "success", "concurrent", "same", "source", "bubble", "choice"])
def test_its_rules(change):
    validate(graph())
    with pytest.raises(GraphError) as caught:
        validate(broken(change))
    assert caught.value.rule == "final" or change == "service"


def test_what_is_patched_in_by_one_is_final_too():
    g = graph()
    g.vertices["clean"].expands = True
    check_patch(g, Patch((Vertex("clean/x", Program(body), final=True),)), "clean")
    with pytest.raises(GraphError, match="of the final vertex"):
        check_patch(g, Patch((Vertex("clean/x", Program(body)),)), "clean")


def test_what_a_failed_job_has_made_is_not_made_again(hand):
    g = Graph("g")
    a = g.add(body, n=3, name="a")
    g.add(body, gather(a), name="report", final=True)
    h = hand(g, workers=3, cones=False)
    h(h.idle(0, 1, 2))
    h.skip("launch")
    h(h.done("a[0]"), h.failed("a[1]"))
    h.expect("stop a[2]: a[1] failed")
    h(h.stopped("a[2]"), h.idle(0))
    h.expect("launch report[0] on 0")
    h(OutputLost(h.now, "a", 0, 1, "its node is gone"))
    h.expect()
    assert (h.job, h.state("a"), h.rows("a")[0]) == ("ending", "failed", "freed")
    h(h.done("report[0]"))
    h.expect("complete failed: a[1] bad")
