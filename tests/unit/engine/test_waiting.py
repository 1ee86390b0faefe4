"""The reasons why tasks wait, from the state of a master driven by hand."""

from typing import Any

from tests.unit.engine.hand import body
from weft.engine.commands import Restart
from weft.engine.decisions import Avoid
from weft.engine.events import Deferred
from weft.engine.policy import BLAME, VertexManager
from weft.graph.builder import Graph, after, gather, one_to_one
from weft.graph.logical import OnFailure, Retry, Storage
from weft.model.failures import Failure
from weft.model.resources import Resources


def told(h, subject="", now=0.0):
    return [wait.line() for wait in h.master.inspector.waits(subject, now)]


def test_inputs_that_are_not_there(hand):
    g = Graph("g")
    a = g.add(body, n=3, name="a")
    g.add(body, gather(a), n=1, name="b")
    h = hand(g, workers=1, cones=False)
    h(h.idle(0))
    h.skip()
    assert told(h, "b") == ["b: waits for a (0 of 3 tasks finished, 1 running)"]
    assert told(h, "a") == ["a: 2 tasks: waits for an idle worker"]
    assert told(h, "a[0]") == []
    assert told(h, "a[2]") == ["a[2]: waits for an idle worker"]
    assert told(h) == told(h, "a") + told(h, "b")
    assert told(h, "a[7]") == told(h, "none") == []


def test_a_task_one_to_one_waits_for_its_own_source(hand):
    g = Graph("g")
    g.add(body, g.add(body, n=2, name="a"), name="b")
    h = hand(g, workers=1, cones=False)
    h(h.idle(0))
    h.skip()
    assert told(h, "b[1]") == ["b[1]: waits for a (0 of 2 tasks finished, 1 running)"]


def test_tokens_and_who_holds_them(hand):
    g = Graph("g", limits={"licence": 2})
    wants = Resources(tokens=(("licence", 2),))
    g.add(body, n=1, name="a", resources=wants)
    g.add(body, n=2, name="b", resources=wants)
    h = hand(g, workers=2, cones=False)
    h.skip()
    h(h.granted(a=0))
    h.skip()
    assert told(h, "b") == ["b: waits for tokens, 2 of 'licence': 0 of 2 free, held by a (2)"]


def test_a_retry_pause_with_the_last_failure(hand):
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    g.add(body, n=1, name="a", retry=Retry(user=2, delay_s=8.0))
    h = hand(g, workers=1, cones=False)
    h(h.idle(0))
    h.skip()
    h(h.failed("a[0]", Failure.USER, message="no route to host\nIts last lines: ..."))
    h.skip()
    (line,) = told(h, "a", now=1.0)
    assert line.endswith("s before its next attempt; 1 failed: no route to host")
    assert line.startswith("a: waits ")


def test_another_run_that_makes_the_same_result(hand):
    g = Graph("g")
    g.add(body, n=2, name="a", cache_key="k")
    h = hand(g, workers=1, cones=False)
    h.skip()
    assert told(h, "a") == ["a: waits for the answer of the cache"]
    h(h.waiting("a[1]"))
    assert told(h, "a") == [
        "a[1]: waits for run-7, which is making the same output",
        "a[0]: waits for the answer of the cache",
    ]


def test_a_choice_and_an_unknown_number_of_tasks(hand):
    g = Graph("g")
    x = g.add(body, name="x", expands=True)
    yes, no = (g.add(body, after(x), name=name) for name in ("yes", "no"))
    g.choice(x, name="side", yes=yes, no=no)
    h = hand(g, workers=1, cones=False)
    h(h.idle(0))
    h.skip()
    assert "yes: waits for the choice side, which x makes" in told(h, "yes")


def test_the_resources_of_a_request_and_the_nodes_that_it_awaits(hand):
    g = Graph("g")
    g.add(body, n=1, name="a", resources=Resources(cpu=8, memory=1_000))
    h = hand(g, workers=1, cones=False)
    h.skip()
    (wait,) = h.master.inspector.waits("a", 0.0)
    assert (wait.kind, wait.text, wait.n) == ("slots", "asks for cpu 8, memory 1,000 bytes", 1)
    h(Deferred(0.0, wait.request, "no node has so many slots"))
    (recalled,) = h.master.inspector.waits("a")
    assert recalled.text.endswith("; no node has so many slots")


def test_a_bubble_that_forms_and_one_that_asks(hand):
    g = Graph("g")
    z = g.add(body, n=1, name="z")
    a = g.add(body, n=2, name="a")
    b = g.add(body, a, after(z), name="b")
    g.bubble(a, b, name="both")
    h = hand(g, workers=4, cones=False)
    h.skip()
    assert told(h, "a") == ["a: waits until all vertices of the bubble both can start: with b"]
    h(h.idle(0))
    h.skip()
    h(h.done("z[0]"))
    h.skip()
    assert told(h, "a") == [
        "a: asks at once, for the bubble both, for 2 tasks of a with cpu 1, 2 tasks of b with cpu 1"
    ]


def test_final_vertices_wait_for_all_others(hand):
    g = Graph("g")
    g.add(body, n=1, name="a")
    g.add(body, n=1, name="last", final=True)
    h = hand(g, workers=1, cones=False)
    h(h.idle(0))
    h.skip()
    assert told(h, "last") == ["last: waits for the end of all other steps"]


def test_an_event_of_a_running_task(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    g.add(body, after(a, concurrent=True, event="ready"), n=1, name="b")
    h = hand(g, workers=1, cones=False)
    h(h.idle(0))
    h.skip()
    assert told(h, "b") == ["b: waits for the event 'ready' of a"]


class Excludes(VertexManager):
    """A policy that excludes worker 0 once, and decides nothing more."""

    moments: frozenset[Any] = frozenset()
    holds = False
    counts = False

    def decide(self, view: Any, memo: Any) -> tuple[list[Avoid], Any]:
        return ([] if memo else [Avoid(0, 60.0, "it is bad", "much")]), True


def test_a_task_that_is_to_run_on_another_worker(hand):
    g = Graph("g")
    g.add(body, n=3, name="a")
    h = hand(g, workers=2, managers={BLAME: Excludes}, cones=False)
    h(h.idle(0))
    h.skip()
    h(h.failed("a[0]", Failure.INFRASTRUCTURE))
    h.skip()
    first, others = told(h, "a")
    assert first.startswith("a[0]: waits up to ")
    assert first.endswith("s for another worker than the one on which it failed; excluded after failures: worker 0")
    assert others == "a: 2 tasks: waits for an idle worker; excluded after failures: worker 0"


def test_a_region_that_restarts(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a", retry=Retry(user=1))
    b = g.add(body, one_to_one(a, concurrent=True, storage=Storage.EPHEMERAL), n=1, name="b")
    g.bubble(a, b, name="both")
    h = hand(g, workers=4, cones=False)
    h.skip()
    h(h.granted(a=0, b=1))
    h.skip()
    h(h.failed("a[0]", Failure.USER))
    h.skip()
    assert not any(isinstance(command, Restart) for command in h.said), "b still runs"
    assert "a: waits for the restart of its region" in told(h, "a")


def test_a_reader_that_would_hold_the_slot_of_its_source_says_so(hand):
    g = Graph("g")
    a = g.add(body, n=4, name="a")
    g.add(body, gather(a, fraction=0.25), n=1, name="b")
    h = hand(g, workers=1, cones=False)
    h(h.idle(0))
    h.skip()
    assert [wait.text for wait in h.master.inspector.waits("b")] == ["waits for 25% of a (0 of 4 tasks finished)"]
    h(h.done("a[0]"), h.idle(0))
    h.skip()
    (wait,) = h.master.inspector.waits("b")
    assert wait.text == "waits for the start of all tasks of a, since it would hold a slot that they need"
