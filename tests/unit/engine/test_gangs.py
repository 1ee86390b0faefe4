"""All or nothing: bubbles, services, regions, tokens, light tasks, requests for more than a slot."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.engine.hand import Hand, body, run_out
from weft.engine.commands import Acquire
from weft.engine.decisions import Finish
from weft.engine.events import Granted, TimerFired
from weft.engine.patching import apply
from weft.engine.recovery import losses
from weft.graph.builder import Graph, after, gather, one_to_one
from weft.graph.logical import BROADCAST, Edge, OnFailure, Outcome, Patch, Retry, Storage, Vertex
from weft.model.failures import Failure
from weft.model.program import Program
from weft.model.resources import Placement, Resources

CONTINUE = OnFailure.CONTINUE


def stream(n: int = 2, *, on_failure=OnFailure.FAIL_FAST, prewarmed: bool = False, **fields) -> Graph:
    """before -> [a ~> b] -> report: a streams to b in one bubble."""
    g = Graph("g", on_failure=on_failure)
    before = g.add(body, n=1, name="before")
    a = g.add(body, gather(before), n=n, name="a", **fields)
    b = g.add(body, one_to_one(a, concurrent=True, storage=Storage.EPHEMERAL), n=n, name="b", **fields)
    g.add(body, gather(b), n=1, name="report")
    g.bubble(a, b, name="gang", prewarmed=prewarmed, timeout_s=5.0)
    return g


def asked(hand: type[Hand], graph: Graph, *, workers: int = 4, **tuning) -> Hand:
    """Up to the moment at which the gang has asked."""
    h = hand(graph, workers=workers, cones=False, **tuning)
    h(h.idle(0))
    h.expect("launch before[0] on 0")
    h(h.done("before[0]"))
    assert [line for line in h.skip() if not line.startswith("timer")] == [
        "acquire a*2, b*2" + (", prewarmed" if graph.bubbles[0].prewarmed else "")
    ]
    assert h.master.inspector.view().bubbles == {"gang": "waiting"}
    return h


def test_a_bubble_asks_once_for_all_when_all_could_start(hand):
    h = asked(hand, stream())
    h(h.idle(0, 1, 2, 3))
    h.expect()  # its members take no offered worker
    h(h.granted(a=(0, 1), b=(2, 3)))
    h.expect_any_order("launch a[0] on 1", "launch a[1] on 0", "launch b[0] on 3", "launch b[1] on 2")
    assert h.master.inspector.view().bubbles == {"gang": "held"}


def test_a_bubble_says_if_it_wants_warm_workers(hand):
    asked(hand, stream(prewarmed=True))


def test_a_slot_comes_back_when_its_vertex_needs_it_no_more(hand):
    h = asked(hand, stream())
    h(h.granted(a=(0, 1), b=(2, 3)))
    h.skip("launch")
    h(h.done("a[0]"))
    h.expect()
    h(h.done("a[1]"))
    assert sorted(h.skip()) == ["a has ended", "free before[0]", "release 0", "release 1"]
    h(h.done("b[0]"), h.done("b[1]"))
    assert sorted(h.skip("release")) == ["release 2", "release 3"]
    h.skip("free")
    h.expect("b has ended")
    h.skip("free")
    assert h.master.inspector.view().bubbles == {"gang": "done"}
    assert run_out(h, [0]) == ["report[0]", "complete succeeded"]


def test_held_slots_are_used_again(hand):
    g = stream(retry=Retry(user=1))
    g.edges[1].storage = Storage.LOCAL  # no stream, so that a retry restarts nobody else
    h = asked(hand, g)
    h(h.granted(a=(0, 1), b=(2, 3)))
    h.expect_any_order("launch a[0] on 1", "launch a[1] on 0", "launch b[0] on 3", "launch b[1] on 2")
    h(h.failed("a[1]"))
    h.expect("launch a[1] on 0, attempt 1")


def test_members_that_wait_for_each_other_start_in_turn_on_slots_held_from_the_start(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, gather(a), n=1, name="b")
    g.bubble(a, b, name="gang")
    h = hand(g)
    h.expect("timer at 30", "acquire a*1, b*1")
    h(h.granted(a=0, b=1))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"))
    h.expect_any_order("release 0", "launch b[0] on 1")
    h(h.done("b[0]"))
    h.expect_any_order("free a[0]", "release 1", "complete succeeded")


def test_a_slot_that_is_lost_while_it_is_held_is_asked_for_again(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, gather(a), n=1, name="b")
    g.bubble(a, b, name="gang")
    h = hand(g, workers=3)
    h.skip()
    h(h.granted(a=0, b=1))
    h.expect("launch a[0] on 0")
    h(h.worker_lost(1))
    h.expect()
    h(h.done("a[0]"))
    h.expect_any_order("release 0", "acquire b*1")
    h(h.granted(b=2))
    h.expect("launch b[0] on 2")


def test_a_bubble_does_not_wait_for_what_has_failed_where_one_success_is_enough(hand):
    g = Graph("g", on_failure=CONTINUE)
    bad = g.add(body, name="bad", retry=Retry(user=0))
    good = g.add(body, name="good")
    one = Outcome.ONE_SUCCESS
    g.bubble(good, g.add(body, after(bad, outcome=one), after(good, outcome=one), name="either"), name="gang")
    h = hand(g, workers=2, cones=False)
    h(h.idle(0))
    h.expect("launch bad[0] on 0")
    h(h.failed("bad[0]"))
    assert h.master.inspector.view().bubbles == {"gang": "waiting"}
    h.skip("acquire good*1, either*1", "timer")


def test_a_bubble_that_waits_too_long_shrinks(hand):
    h = asked(hand, stream())
    h(h.timer(5.0), h.idle(0, 1))
    h.expect_any_order("withdraw a b", "launch a[0] on 0", "launch a[1] on 1")
    assert h.master.inspector.view().bubbles == {"gang": "done"}
    assert h.core.links["a->b"].edge.storage is Storage.LOCAL
    h(h.done("a[0]"), h.done("a[1]"))
    h.expect("free before[0]")
    assert run_out(h, [0, 1])[-1] == "complete succeeded"


def test_a_bubble_that_can_never_be_had_shrinks_at_once(hand):
    h = asked(hand, stream())
    h(h.refused("a", "it needs 4 slots at once; the session has 3"), h.idle(0))
    h.expect("launch a[0] on 0")
    assert "refused: it needs 4 slots" in "".join(h.master.inspector.story("gang"))


def test_a_bubble_of_three_shrinks_to_two(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, one_to_one(a, concurrent=True, storage=Storage.EPHEMERAL), n=1, name="b")
    c = g.add(body, one_to_one(b, concurrent=True, storage=Storage.EPHEMERAL), n=1, name="c")
    g.bubble(a, b, c, name="gang", timeout_s=2.0)
    h = hand(g)
    h.expect("timer at 2", "acquire a*1, b*1, c*1")
    h(h.timer(2.0))
    h.expect("withdraw a b c", "timer at 4", "acquire a*1, b*1")
    assert (h.core.links["a->b"].edge.storage, h.core.links["b->c"].edge.storage) == (Storage.EPHEMERAL, Storage.LOCAL)
    h(h.granted(a=0, b=1))
    h.expect_any_order("launch a[0] on 0", "launch b[0] on 1")
    h(h.done("a[0]"), h.done("b[0]"))
    h.skip()
    assert run_out(h, [0]) == ["c[0]", "complete succeeded"]


def test_a_grant_that_comes_too_late_goes_back(hand):
    h = asked(hand, stream())
    late = h.granted(a=(0, 1), b=(2, 3))
    h(h.timer(5.0))
    h.expect("withdraw a b")
    h(late)
    h.expect("release 0", "release 1", "release 2", "release 3")


def test_cancel_while_a_bubble_waits(hand):
    h = asked(hand, stream())
    h(h.cancel())
    h.expect_any_order("withdraw a b", "a has ended", "b has ended", "free before[0]", "complete cancelled: enough")


def test_a_bubble_whose_last_task_is_given_up_asks_for_the_rest(hand):
    g = Graph("g", on_failure=CONTINUE)
    a = g.add(body, n=2, name="a")
    b = g.add(body, a, n=2, name="b")
    c = g.add(body, n=1, name="c")
    g.bubble(b, c, name="gang")
    h = hand(g)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]"))
    h.expect()
    h(h.failed("a[1]"))
    h.expect("timer at 30", "acquire c*1, b*1")


def test_a_bubble_all_of_whose_members_are_skipped_is_done(hand):
    g = Graph("g")
    d = g.add(body, n=1, name="d")
    a = g.add(body, after(d), n=1, name="a")
    b = g.add(body, a, n=1, name="b")
    g.choice(d, yes=[a, b], no=[])
    g.bubble(a, b, name="gang")
    h = hand(g)
    h(h.idle(0))
    h.expect("launch d[0] on 0")
    h(h.done("d[0]", values=["no"]))
    assert h.skip()[-1] == "complete succeeded"
    assert h.master.inspector.view().bubbles == {"gang": "done"}


def test_a_bubble_does_not_hold_slots_for_what_waits_for_somebody_outside(hand):
    g = Graph("g")
    x = g.add(body, n=1, name="x")
    a = g.add(body, n=1, name="a")
    b = g.add(body, gather(a), gather(x), n=1, name="b")
    g.bubble(a, b, name="gang")
    h = hand(g)
    h.expect()
    h(h.idle(0))
    h.expect("launch x[0] on 0")
    h(h.done("x[0]"))
    h.expect("timer at 30", "acquire a*1, b*1")


# ------------------------------------------------------------------------------------------------------- regions


def started_stream(hand: type[Hand], **fields) -> Hand:
    h = asked(hand, stream(**fields))
    h(h.granted(a=(0, 1), b=(2, 3)))
    h.skip("timer")
    h.expect_any_order("launch a[0] on 1", "launch a[1] on 0", "launch b[0] on 3", "launch b[1] on 2")
    return h


def test_what_streams_join_restarts_together(hand):
    h = started_stream(hand, retry=Retry(user=1))
    h(h.failed("b[0]"))
    assert sorted(h.skip("stop")) == [
        "stop a[0]: region restart",
        "stop a[1]: region restart",
        "stop b[1]: region restart",
    ]
    h.skip("release")
    h.expect()
    h(h.stopped("a[0]"), h.stopped("a[1]"))
    h.skip("release")
    h.expect()
    h(h.done("b[1]"))  # too late: its input is read again from the start
    assert "restart a b" in h.skip("restart")
    assert "acquire a*2, b*2" in h.skip("acquire")
    assert (h.rows("a"), h.rows("b")) == (["ready"] * 2, ["ready"] * 2)
    h.skip("release", "timer", "free")
    h.expect()
    h(h.granted(a=(0, 1), b=(2, 3)))
    assert len(h.skip("launch")) == 4
    h(*[h.done(name) for name in ("a[0]", "a[1]", "b[0]", "b[1]")])
    h.skip()
    assert run_out(h, [0]) == ["report[0]", "complete succeeded"]


def test_a_region_that_starts_again_and_cannot_be_had_has_other_edges_then(hand):
    h = started_stream(hand, retry=Retry(user=1))
    h(h.failed("b[0]"))
    h.skip("stop", "release")
    h(h.stopped("a[0]"), h.stopped("a[1]"), h.stopped("b[1]"))
    assert "acquire a*2, b*2" in h.skip()
    h(h.refused("a"), h.idle(0))
    assert h.core.links["a->b"].edge.storage is Storage.LOCAL
    h.expect("restart a b", "launch a[0] on 0")  # backends know what the edges are from the first attempt


def test_a_region_waits_for_no_longer_than_what_was_ended_early_takes_to_stop(hand):
    h = started_stream(hand, retry=Retry(user=1))
    apply(h.core, Finish("b", "enough"))
    h(h.done("b[0]"))
    h.skip()
    h(h.failed("a[0]"))
    h.skip("free", "release")
    h.expect("stop a[1]: region restart")
    h(h.stopped("a[1]"))
    h.skip("release")
    h.expect()
    h(h.stopped("b[1]"))
    assert "restart a b" in h.skip()
    assert not any(h.core.by_id[name].restarting for name in "ab")


def test_a_region_waits_for_no_longer_than_what_cannot_go_on_takes_to_stop(hand):
    h = started_stream(hand, on_failure=CONTINUE, retry=Retry(user=0, infrastructure=1))
    h(h.failed("a[0]"))
    assert h.skip() == ["stop b[0]: a failed"]
    h(h.failed("a[1]", Failure.INFRASTRUCTURE))
    h.skip("release")
    h.expect("stop b[1]: region restart")
    h(h.stopped("b[1]"))
    h.skip("release")
    h.expect()
    h(h.stopped("b[0]"))
    assert "restart a b" in h.skip()
    assert not any(h.core.by_id[name].restarting for name in "ab")


@pytest.mark.parametrize("how", ["stopped", "done"])
def test_a_region_waits_for_no_longer_than_what_is_over_its_time_takes_to_stop(hand, how):
    h = started_stream(hand, on_failure=CONTINUE, retry=Retry(user=0, infrastructure=1), timeout_s=7.0)
    h.skip()
    h(TimerFired(7.0, h.core.leases[h.leases["b[1]"]].timer))
    h.expect("stop b[1]: timeout")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE))
    h.skip("stop", "release")
    h(h.stopped("a[1]"), h.stopped("b[0]"))
    h.skip("release")
    h.expect()
    h(getattr(h, how)("b[1]"))
    assert "restart a b" in h.skip()
    assert not any(h.core.by_id[name].restarting for name in "ab")


def test_what_a_region_reads_is_lost_while_it_is_stopped(hand):
    g = Graph("g")
    one, two = g.add(body, n=2, name="one"), g.add(body, n=2, name="two")
    a = g.add(body, one_to_one(one), one_to_one(two), n=2, name="a")
    b = g.add(body, one_to_one(a, concurrent=True, storage=Storage.EPHEMERAL), n=2, name="b")
    g.bubble(a, b, name="gang")
    h = hand(g, workers=4, cones=False)
    h(h.idle(0, 1, 2, 3))
    h.skip()
    h(*[h.done(task) for task in ("one[0]", "one[1]", "two[0]", "two[1]")])
    h.skip()
    h(h.granted(a=(0, 1), b=(2, 3)))
    h.skip()
    h(h.failed("b[0]", Failure.INFRASTRUCTURE))
    assert len(h.skip("stop")) == 3
    h(h.output_lost("one[0]"))
    h.expect()
    h(h.stopped("a[0]"))  # what it has to wait for is known, though the others have not stopped
    h.expect()
    h(h.stopped("a[1]"), h.stopped("b[1]"))
    assert "restart a b" in h.skip()
    assert h.rows("one") == ["ready", "finished"]


def test_a_region_that_restarts_reads_its_inputs_again(hand):
    h = started_stream(hand)
    h(h.done("a[0]"), h.done("a[1]"))
    assert "free before[0]" in h.skip()
    h(h.failed("b[0]", Failure.INFRASTRUCTURE))
    h.skip("stop", "release", "restart", "free")
    h.expect()
    h(h.stopped("b[1]"))
    h.skip("release", "restart", "free")
    h.expect("a runs again")
    assert (h.rows("before"), h.rows("a")) == (["ready"], ["unscheduled"] * 2)
    h(h.idle(0))
    h.expect("launch before[0] on 0")
    h(h.done("before[0]"))
    assert "acquire a*2, b*2" in h.skip()


def read_outside(hand: type[Hand], **fields) -> Hand:
    """[a ~> b] -> report, where report[0], outside the region, reads b[0] when that starts again."""
    g = Graph("g")
    a = g.add(body, n=2, name="a", retry=Retry(user=1))
    b = g.add(body, one_to_one(a, concurrent=True, storage=Storage.EPHEMERAL), n=2, name="b")
    g.add(body, one_to_one(b), n=2, name="report", **fields)
    g.bubble(a, b, name="gang")
    h = hand(g, workers=6, cones=False)
    h(h.skip() and h.granted(a=(0, 1), b=(2, 3)))
    h(h.skip() and h.done("b[0]"), h.idle(4))
    assert "launch report[0] on 4" in h.skip()
    h(h.failed("a[1]"))
    h.skip("release")
    return h


def test_who_reads_from_outside_what_a_region_makes_again_starts_again(hand):
    h = read_outside(hand)
    h.expect("stop a[0]: region restart", "stop b[1]: region restart")
    h(h.stopped("a[0]"))
    h.skip("release")
    h.expect()
    h(h.stopped("b[1]"))
    assert h.skip("stop", "free", "restart") == [
        "restart a b",
        "stop report[0]: what it reads is made again",
        "free b[0]",
    ]
    h.skip()
    h(h.done("report[0]"), h.idle(4))
    h.expect("free report[0]")
    assert h.rows("report") == ["unscheduled"] * 2
    assert h.core.by_id["report"].attempts is None
    h(h.granted(a=(0, 1), b=(2, 3)))
    h.skip()
    h(*[h.done(name) for name in ("a[0]", "a[1]", "b[0]", "b[1]")])
    h.skip()
    assert run_out(h, [4]) == ["report[0]", "report[1]", "complete succeeded"]


def test_who_starts_again_since_its_input_does_may_not_be_needed_then(hand):
    h = read_outside(hand)
    h(h.skip() and h.stopped("a[0]"), h.stopped("b[1]"))
    h.skip()
    apply(h.core, Finish("report", "enough"))
    h(h.stopped("report[0]"))
    assert h.rows("report") == ["skipped"] * 2
    assert h.state("report") == "done_early"


def test_a_worker_may_be_lost_that_was_to_start_again(hand):
    h = read_outside(hand)
    h(h.skip() and h.stopped("a[0]"), h.stopped("b[1]"))
    h.skip()
    h(h.worker_lost(4))
    assert h.rows("report") == ["unscheduled"] * 2


def test_a_region_that_is_restarted_too_often_fails(hand):
    h = started_stream(hand, retry=Retry(user=0))
    h(h.failed("b[0]"))
    assert len(h.skip("stop")) == 3
    h.skip()
    for name in ("a[0]", "a[1]", "b[1]"):
        h(h.stopped(name))
        last = h.skip()
    assert last[-1] == "complete failed: b[0] bad"


def streaming(hand: type[Hand]) -> Hand:
    """before -> [a ~> b] -> report, and all four tasks of the gang run."""
    g = Graph("g")
    before = g.add(body, n=2, name="before", keep=True)
    a = g.add(body, one_to_one(before), n=2, name="a")
    b = g.add(body, one_to_one(a, concurrent=True, storage=Storage.EPHEMERAL), n=2, name="b")
    g.add(body, gather(b), n=1, name="report")
    g.bubble(a, b, name="gang", timeout_s=5.0)
    h = hand(g, workers=5, cones=False)
    h(h.idle(0, 1))
    h.expect("launch before[0] on 0", "launch before[1] on 1")
    h(h.done("before[0]"), h.done("before[1]"))
    h.skip("timer", "acquire")
    h(h.granted(a=(0, 1), b=(2, 3)))
    assert len(h.skip("launch")) == 4
    return h


def test_an_input_that_a_region_cannot_read_is_made_again(hand):
    h = streaming(hand)
    h(h.failed("a[0]", Failure.INPUT, lost=("before", 0)))
    for task in ("a[1]", "b[0]", "b[1]"):
        h.skip()
        h(h.stopped(task))
    h.skip()
    assert h.rows("before") == ["ready", "finished"]
    h(h.idle(4))
    assert h.skip("launch") == ["launch before[0] on 4"]


def test_what_was_made_of_a_stream_is_made_again_with_all_of_its_region(hand):
    h = streaming(hand)
    for name in ("a[0]", "a[1]", "b[1]"):
        h(h.done(name))
        h.skip()
    h(h.output_lost("b[1]"), h.idle(4))
    h.expect("a runs again", "stop b[0]: region restart")  # b[1] alone would find nothing to read
    h(h.stopped("b[0]"))
    assert h.skip("restart") == ["restart a b"]
    assert h.rows("a") == ["ready"] * 2
    assert not {"finished", "leased"} & set(h.rows("b"))
    h.skip()


@pytest.mark.parametrize("lost", ["a[1]", "b[1]"])
def test_nothing_of_a_region_starts_while_it_is_stopped(hand, lost):
    h = streaming(hand)
    h(h.done("a[1]"))
    h.skip()
    h(h.done("b[1]"))
    h.skip()
    h(h.failed("a[0]", Failure.INFRASTRUCTURE))
    h.expect("stop b[0]: region restart")
    h(h.output_lost(lost), h.idle(4))
    assert not h.skip("launch")
    h.skip()
    h(h.stopped("b[0]"))
    assert h.skip("restart") == ["restart a b"]
    h.skip()


# ------------------------------------------------------------------------------------------------------ services


def served() -> Graph:
    g = Graph("g")
    s = g.service(body, n=2, name="s")
    a = g.add(body, s, n=2, name="a")
    g.add(body, after(a), n=1, name="b")
    return g


def test_a_service_runs_with_its_consumers_and_ends_after_them(hand):
    h = hand(served(), workers=4)
    h.expect("timer at 30", "acquire s*2, a*2")
    h(h.granted(s=(0, 1), a=(2, 3)))
    assert len(h.skip("launch")) == 4
    h(h.done("a[0]"))
    h.expect()
    h(h.done("a[1]"))
    assert sorted(h.skip()) == [
        "release 2",
        "release 3",
        "stop s[0]: its last consumer has ended",
        "stop s[1]: its last consumer has ended",
    ]
    assert h.state("s") == "draining"
    h(h.stopped("s[0]"))
    h.skip("release")
    h.expect()
    h(h.stopped("s[1]"), h.idle(2))
    h.skip("release")
    h.expect("launch b[0] on 2")
    assert h.state("s") == "done"
    h(h.done("b[0]"))
    h.expect("complete succeeded")  # a service has no value to free


def test_who_asks_says_which_workers_services_hold_till_it_has_ended(hand):
    g = Graph("g")
    s, t = g.service(body, name="s"), g.service(body, name="t")
    a = g.add(body, s, n=1, name="a")
    large = g.add(body, after(a), s, n=1, name="large", resources=Resources(cpu=2))
    g.add(body, t, n=1, name="b")
    late = g.add(body, after(large), t, n=1, name="late")
    g.bubble(late, g.add(body, after(large), n=1, name="beside"), name="gang")
    h = hand(g, workers=6, cones=False)
    assert "acquire s*1, a*1, large*1 (cpu 2)" in h.skip()
    h(h.refused("large"), h.granted(t=3, b=4))
    assert "acquire s*1, a*1" in h.skip()
    h(h.granted(s=0, a=1))
    h.skip()
    h(h.done("a[0]"), h.done("b[0]"))
    assert "acquire large*1 (cpu 2)" in h.skip()
    bound = {command.wants[-1][0]: command.bound for command in h.said if isinstance(command, Acquire)}
    assert bound == {"b": (), "a": (3,), "large": (0, 3)}  # t goes on until late has ended


def test_a_service_that_fails_is_tried_again_while_it_is_needed(hand):
    h = hand(served(), workers=5)
    h.skip()
    h(h.granted(s=(0, 1), a=(2, 3)))
    h.skip("launch")
    h(h.worker_lost(0))
    assert h.skip("acquire") == ["acquire s*1"]
    h(h.granted(s=4))
    h.skip("launch")
    assert h.rows("s") == ["leased", "leased"]


def test_a_service_that_fails_while_it_stops_is_not_tried_again(hand):
    g = Graph("g")
    s = g.service(body, name="s", retry=Retry(user=3))
    a = g.add(body, s, n=1, name="a")
    g.add(body, after(a), n=1, name="b")
    h = hand(g, workers=4)
    h.skip()
    h(h.granted(s=0, a=1))
    h.skip("launch")
    h(h.done("a[0]"))
    h.expect("release 1", "stop s[0]: its last consumer has ended")
    assert h.state("s") == "draining"
    h(h.failed("s[0]", Failure.INFRASTRUCTURE))
    h.expect("release 0")
    h(h.idle(1))
    h.expect("launch b[0] on 1")
    h(h.done("b[0]"))
    h.expect("complete succeeded")


def test_services_of_patches_start_with_their_consumers(hand):
    def part(name: str) -> Patch:
        new = Graph(name)
        before = new.add(body, n=2, name=f"{name}/a")
        s = new.service(body, name=f"{name}/s")
        new.add(body, one_to_one(before), s, n=2, name=f"{name}/b")
        return Patch(tuple(new.vertices.values()), tuple(new.edges))

    g = Graph("g")
    g.add(body, n=1, name="x", expands=True)
    g.add(body, n=1, name="y", expands=True)
    h = hand(g, workers=6, cones=False)
    h(h.idle(0, 1))
    h.expect("launch x[0] on 0", "launch y[0] on 1")
    h(h.done("x[0]", values=[part("x")]), h.idle(2))
    h.skip("free")
    h.expect("launch x/a[0] on 2")  # x/s waits for x/b
    h(h.done("y[0]", values=[part("y")]))
    h.skip("free")
    h.expect()
    assert [(row.bubble.id, row.bubble.vertices) for row in h.core.bubbles] == [
        ("x/s.bubble", ("x/s", "x/b")),
        ("y/s.bubble", ("y/s", "y/b")),
    ]


def test_who_waits_for_what_a_patch_has_put_between_is_in_the_bubble_no_more_when_that_forms_again(hand):
    g = Graph("g")
    s = g.service(body, name="s")
    x = g.add(body, s, n=1, name="x", expands=True)
    g.add(body, gather(x), s, n=1, name="last")
    g.add(body, n=1, name="slow")
    h = hand(g, workers=4, cones=False)
    h.expect("timer at 30", "acquire s*1, x*1, last*1")
    h(h.granted(s=0, x=1, last=2), h.idle(3))
    h.expect("launch s[0] on 0", "launch x[0] on 1", "launch slow[0] on 3")
    edges = (Edge("x", "x/a", BROADCAST), Edge("x/a", "last", BROADCAST))
    h(h.done("x[0]", values=[Patch((Vertex("x/a", Program(body), 1),), edges)]), h.idle(1))
    h.expect("release 1", "release 2", "launch x/a[0] on 1")
    h(h.done("x/a[0]"))
    h.expect("acquire last*1")
    h(h.granted(last=2))
    h.expect("launch last[0] on 2")
    h(h.done("last[0]"), h.stopped("s[0]"))
    h.skip()
    assert h.master.inspector.view().bubbles == {"s.bubble": "done"}
    h(h.output_lost("last[0]"))
    assert h.skip("acquire") == ["acquire s*1, x*1"]
    h.skip()
    h(h.granted(s=0, x=1))
    h.expect("launch s[0] on 0", "launch x[0] on 1")
    h(h.done("x[0]"), h.done("slow[0]"))
    h.skip()
    for task in ("x/a[0]", "last[0]"):
        h(h.idle(1))
        assert h.skip("launch") == [f"launch {task} on 1"]
        h.skip()
        h(h.done(task))
    h.skip()
    h(h.stopped("s[0]"))
    assert h.skip("complete") == ["complete succeeded"]
    h.skip()


def test_a_bubble_asks_when_a_patch_takes_out_the_member_that_it_waited_for(hand):
    g = Graph("g")
    x = g.add(body, n=1, name="x", expands=True)
    s = g.service(body, name="s")
    g.add(body, s, n=1, name="b")
    g.add(body, after(x), after(g.add(body, n=1, name="slow")), s, n=1, name="last")
    h = hand(g, workers=4, cones=False)
    h(h.idle(0, 1))
    h.expect("launch x[0] on 0", "launch slow[0] on 1")  # s and b wait for last
    edges = (Edge("b", "x/a", BROADCAST), Edge("x/a", "last", BROADCAST))
    h(h.done("x[0]", values=[Patch((Vertex("x/a", Program(body), 1),), edges)]))
    h.expect("timer at 30", "acquire s*1, b*1")
    h(h.granted(s=0, b=2))
    h.expect("launch s[0] on 0", "launch b[0] on 2")
    h(h.done("b[0]"), h.done("slow[0]"), h.idle(1))
    assert h.skip("launch") == ["launch x/a[0] on 1"]
    h.skip()
    h(h.done("x/a[0]"), h.idle(1))
    assert h.skip("launch") == ["launch last[0] on 1"]
    h.skip()
    h(h.done("last[0]"), h.stopped("s[0]"))
    assert h.skip("complete") == ["complete succeeded"]
    h.skip()


def test_a_bubble_through_which_a_path_leads_is_no_reason_to_take_another_apart(hand):
    g = Graph("g")
    s, t = g.service(body, name="s"), g.service(body, name="t")
    x = g.add(body, s, n=1, name="x", expands=True)
    g.add(body, gather(x), s, n=1, name="last")
    g.add(body, t, n=1, name="y", keep=True)
    h = hand(g, workers=6, cones=False)
    h.skip()
    h(h.granted(s=0, x=1, last=2), h.granted(t=3, y=4))
    h.skip()
    edges = (Edge("x", "x/a", BROADCAST), Edge("x/a", "last", BROADCAST))
    h(h.done("x[0]", values=[Patch((Vertex("x/a", Program(body), 1),), edges)]))
    h.skip()
    h(h.done("y[0]"), h.stopped("t[0]"))
    h.skip()
    assert h.master.inspector.view().bubbles == {"s.bubble": "held", "t.bubble": "done"}
    h(h.output_lost("y[0]"))
    assert h.skip("acquire") == ["acquire t*1, y*1"]
    h.skip()


def test_a_service_whose_consumers_never_run_never_starts(hand):
    g = Graph("g", on_failure=CONTINUE)
    z = g.add(body, n=1, name="z")
    s = g.service(body, name="s")
    g.add(body, gather(z), s, n=1, name="a")
    h = hand(g)
    h(h.idle(0))
    h.expect("launch z[0] on 0")
    h(h.failed("z[0]"))
    h.expect("complete failed: z[0] bad")


def test_a_service_that_drains_when_the_job_is_cancelled(hand):
    h = hand(served(), workers=4)
    h.skip()
    h(h.granted(s=(0, 1), a=(2, 3)))
    h.skip("launch")
    h(h.done("a[0]"), h.done("a[1]"))
    h.skip()
    h(h.cancel())
    h.skip("stop", "free a")
    h.expect()
    h(h.stopped("s[0]"), h.stopped("s[1]"))
    h.skip("release", "free a")
    h.expect("complete cancelled: enough")


def test_services_that_share_consumers_do_not_wait_for_each_other(hand):
    g = Graph("g")
    s, t = g.service(body, name="s"), g.service(body, name="t")
    a = g.add(body, s, t, n=1, name="a")
    g.add(body, gather(a), t, n=1, name="b")
    h = hand(g, workers=6)
    for row in h.core.bubbles:
        names = {stage.id for stage in row.stages}
        assert not {"t", "b"} <= names or "a" in names
    h.skip()


# ------------------------------------------------------------------------------------- tokens, light work, requests


def tokens(n: int, limit: int, **resources) -> Graph:
    g = Graph("g", limits={"slots": limit})
    g.add(body, n=n, name="a", resources=Resources(tokens=(("slots", 1),), **resources))
    return g


def test_light_tasks_take_a_token_and_no_worker(hand):
    h = hand(tokens(3, 2, cpu=0), workers=0)
    h.expect("start a[0]", "start a[1]")
    h(h.done("a[1]"))
    h.expect("start a[2]")
    h(h.done("a[0]"), h.done("a[2]"))
    h.expect("complete succeeded")
    assert h.core.tokens == {"slots": 2}


class Walked(list[Any]):
    """A list that counts how often somebody goes through all of it."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


def test_the_end_of_one_of_many_light_tasks_costs_the_others_nothing(hand):
    g = Graph("g", limits={"slots": 2})
    for number in range(30):
        g.add(body, n=1, name=f"s{number:02}", resources=Resources(cpu=0, tokens=(("slots", 1),)))
    h = hand(g, workers=0)
    h.expect("start s00[0]", "start s01[0]")
    stages = h.core.stages = Walked(h.core.stages)
    (launch,) = h.master.handle([h.done("s01[0]")])
    assert launch.vertex == "s02"
    assert stages.walks == 0
    assert [stage.id for stage in h.core.moved] == ["s01", "s02"]
    assert [launch.vertex for launch in h.master.handle([])] == []
    assert h.core.moved == []


def test_light_tasks_that_take_different_tokens_start_in_order(hand):
    g = Graph("g", limits={"x": 1, "y": 1})
    for name, token in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"), ("e", "x")):
        g.add(body, n=1, name=name, resources=Resources(cpu=0, tokens=((token, 1),)))
    g.add(body, n=1, name="f", resources=Resources(cpu=0))
    h = hand(g, workers=0)
    h.expect("start a[0]", "start c[0]", "start f[0]")
    h(h.done("c[0]"))
    h.expect("start d[0]")
    h(h.done("a[0]"), h.done("d[0]"))
    h.expect("start b[0]")
    h(h.done("b[0]"))
    h.expect("start e[0]")


def test_light_tasks_without_tokens_all_start(hand):
    g = Graph("g")
    g.add(body, n=3, name="a", resources=Resources(cpu=0))
    h = hand(g)
    h.expect("start a[0]", "start a[1]", "start a[2]")


@pytest.mark.parametrize("how", ["failed", "lost"])
def test_tokens_come_back_from_bad_ends_too(hand, how):
    h = hand(tokens(2, 1), workers=2)
    (line,) = h.skip()
    assert line.startswith("acquire a*1")  # as many as there are tokens
    h(h.granted(a=0))
    h.skip("launch")
    assert h.core.tokens == {"slots": 0}
    h(h.worker_lost(0) if how == "lost" else h.failed("a[0]", Failure.INFRASTRUCTURE))
    h.skip("release")
    (line,) = h.skip()
    assert line.startswith("acquire a*1")
    assert h.core.tokens["slots"] in (0, 1)
    h(h.granted(a=1))
    assert len(h.skip("launch")) == 1
    assert h.core.tokens == {"slots": 0}


def test_tokens_of_several_kinds_are_taken_all_or_none(hand):
    g = Graph("g", limits={"x": 2, "y": 1})
    g.add(body, n=2, name="a", resources=Resources(cpu=0, tokens=(("x", 1), ("y", 1))))
    g.add(body, n=1, name="b", resources=Resources(cpu=0, tokens=(("x", 1),)))
    h = hand(g)
    h.expect("start a[0]", "start b[0]")
    assert h.core.tokens == {"x": 0, "y": 0}


def test_more_than_a_slot_is_asked_for(hand):
    g = Graph("g")
    g.add(
        body,
        n=2,
        name="a",
        resources=(Resources(gpu=1, gpu_type="h200"), Resources(cpu=4)),
        placement=Placement(node="node0"),
    )
    h = hand(g)
    wants = "a*1 (cpu 1, gpu 1 of type h200 or cpu 4 on node0)"
    h.expect(f"acquire {wants}", f"acquire {wants}")
    h(h.idle(0, 1))
    h.expect()
    first = h.granted(a=0)
    h(replace(first, slots=(("a", 0, 1),)))  # the second alternative
    h.expect("launch a[0] on 0, cpu 4")
    h(h.done("a[0]"))
    h.expect("release 0")


def test_what_can_never_be_had_fails_with_the_pools_words(hand):
    g = Graph("g")
    g.add(body, n=1, name="a", resources=Resources(gpu=8))
    h = hand(g)
    h.expect("acquire a*1 (cpu 1, gpu 8)")
    h(h.refused("a", "a asks for gpu 8; no node has that much"))
    h.expect("complete failed: a[0] a asks for gpu 8; no node has that much")


def test_a_grant_on_a_worker_that_died_meanwhile_goes_back_and_is_asked_for_again(hand):
    g = Graph("g")
    g.add(body, n=1, name="a", resources=Resources(cpu=2))
    h = hand(g, workers=2)
    h.expect("acquire a*1 (cpu 2)")
    h(h.worker_lost(0))
    h.expect()
    h(h.granted(a=0))
    h.expect("release 0", "acquire a*1 (cpu 2)")


def test_a_placement_is_asked_for_too(hand):
    g = Graph("g")
    g.add(body, n=1, name="a", placement=Placement(party="guest"))
    h = hand(g)
    h.expect("acquire a*1 (on guest)")
    h(h.idle(0))
    h.expect()


def test_a_bubble_that_is_not_wanted_any_more_withdraws_its_request(hand):
    g = Graph("g")
    g.add(body, n=1, name="x", expands=True)
    a = g.add(body, n=1, name="a")
    b = g.add(body, n=1, name="b")
    g.bubble(a, b, name="gang")
    h = hand(g)
    h.expect("timer at 30", "acquire a*1, b*1")
    h(h.idle(0))
    h.expect("launch x[0] on 0")
    h(h.done("x[0]", values=[[Finish("a", "enough"), Finish("b", "enough")]]))
    assert "withdraw a b" in h.skip()
    assert h.master.inspector.view().bubbles == {"gang": "done"}
    assert h.job == "succeeded"


def test_a_bubble_asks_again_for_what_of_it_must_be_made_again(hand):
    g = Graph("g")
    a = g.add(body, n=2, name="a", keep=True)
    b = g.add(body, n=1, name="b")
    g.add(body, n=1, name="slow")
    g.bubble(a, b, name="gang")
    h = hand(g, workers=4)
    h.expect("timer at 30", "acquire a*2, b*1")
    h(h.granted(a=(0, 1), b=2), h.idle(3))
    assert len(h.skip("launch")) == 4
    h(h.done("a[0]"), h.done("a[1]"), h.done("b[0]"))
    assert sorted(h.skip()) == ["release 0", "release 1", "release 2"]
    assert h.master.inspector.view().bubbles == {"gang": "done"}
    h(h.output_lost("a[1]"))
    h.expect("timer at 30", "acquire a*1")
    h(h.granted(a=2))
    h.expect("launch a[1] on 2")
    h(h.done("a[1]"), h.done("slow[0]"))
    h.expect("release 2", "complete succeeded")


def test_a_member_that_is_lost_while_its_gang_waits_for_another_is_asked_for_too(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, gather(a), n=1, name="b", keep=True)
    g.add(body, gather(a), after(b), n=1, name="c")
    g.bubble(a, b, name="gang", timeout_s=5.0)
    h = hand(g, workers=3, cones=False)
    h.expect("timer at 5", "acquire a*1, b*1")
    h(h.granted(a=0, b=1))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"))
    h.expect("release 0", "launch b[0] on 1")
    h(h.done("b[0]"), h.idle(2))
    h.expect("release 1", "launch c[0] on 2")
    h(h.output_lost("b[0]"))
    h.skip("timer")
    h.expect("acquire b*1")
    h(h.output_lost("a[0]"))
    h.expect()
    h(h.granted(b=1))
    h.expect("acquire a*1")
    h(h.granted(a=0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"))
    h.expect("release 0", "launch b[0] on 1")
    h(h.done("c[0]"), h.done("b[0]"))
    assert h.skip()[-1] == "complete succeeded"


def test_a_bubble_on_its_slots_takes_tokens_from_who_waits_for_slots(hand):
    # All slots are the bubble's, and whoever has the only token waits for one of them.
    g = Graph("g", limits={"slots": 1, "more": 1})
    slot, more = (Resources(tokens=((name, 1),)) for name in ("slots", "more"))
    a = g.add(body, n=1, name="a", resources=slot)
    b = g.add(body, one_to_one(a, concurrent=True), n=1, name="b")
    g.add(body, n=2, name="single", resources=slot)
    g.add(body, n=1, name="other", resources=more)
    g.bubble(a, b, name="gang")
    h = hand(g, workers=2)
    h.skip("timer")
    h.expect(
        "acquire a*1 (cpu 1, slots 1), b*1", "acquire single*1 (cpu 1, slots 1)", "acquire other*1 (cpu 1, more 1)"
    )
    late = h.requests["single"]
    h(h.granted(a=0, b=1))
    h.expect("withdraw single", "launch a[0] on 0, cpu 1, slots 1", "launch b[0] on 1")
    h(Granted(h.now, late, (("single", 0, 0),)))  # it was on its way
    h.expect("release 0")
    h(h.done("a[0]"))
    h.expect("a has ended", "release 0", "acquire single*1 (cpu 1, slots 1)")
    h(h.granted(single=0))
    h.expect("launch single[0] on 0, cpu 1, slots 1")
    h(h.done("b[0]"), h.done("single[0]"))
    h.skip()
    assert h.core.tokens == {"slots": 0, "more": 0}  # for the second of `single`, and for `other`


def test_after_a_refusal_the_next_task_gets_the_token(hand):
    g = Graph("g", on_failure=CONTINUE, limits={"slots": 1})
    g.add(body, n=2, name="a", resources=Resources(tokens=(("slots", 1),)))
    h = hand(g, workers=2)
    assert len(h.skip("acquire")) == 1
    h(h.refused("a"))
    assert len(h.skip("acquire")) == 1
    assert h.rows("a") == ["fatal", "ready"]


def test_a_service_one_task_of_which_failed_for_good_has_failed(hand):
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    s = g.service(body, n=2, name="s", retry=Retry())
    g.add(body, s, n=1, name="a")
    h = hand(g, workers=3)
    h.skip()
    h(h.granted(s=(0, 1), a=2))
    assert len(h.skip("launch")) == 3
    h(h.failed("s[1]"))
    assert h.state("a") == "running"  # it has the other one
    h(h.done("a[0]"))
    h.expect("release 2", "stop s[0]: its last consumer has ended")
    h(h.stopped("s[0]"))
    assert h.skip("complete") == ["complete failed: s[1] bad"]
    h.skip("release")
    assert h.state("s") == "failed"


def test_an_ended_member_loses_an_output_while_its_region_is_stopped(hand):
    h = streaming(hand)
    h(h.done("b[0]"), h.done("b[1]"))
    h.skip()
    assert h.state("b") == "done"
    h(h.failed("a[0]", Failure.INFRASTRUCTURE))
    h.expect("stop a[1]: region restart")
    h(h.output_lost("b[1]"), h.idle(2, 3, 4))
    h.expect("b runs again")
    h(h.stopped("a[1]"))
    assert h.skip("restart") == ["restart a b"]
    h.skip()


def test_what_a_launch_makes_ready_is_asked_for_in_the_same_tick(hand):
    # Nobody may ever come by again: the service ends when `a` has, which needs a slot of its own kind.
    g = Graph("g")
    s, t = g.service(body, name="s"), g.service(body, n=2, name="t")
    g.add(body, s, t, n=1, name="a")
    h = hand(g, workers=6)
    alone = next(name for name in ("s", "t") if h.core.by_id[name].bubble < 0)
    h(h.idle(0, 1, 2))
    assert {line.split("[")[0] for line in h.skip("launch")} == {f"launch {alone}"}
    assert [line.split()[0] for line in h.skip()] == ["timer", "acquire"]


def test_what_a_light_launch_makes_ready_is_given_to_who_is_idle(hand):
    g = Graph("g")
    s = g.add(body, n=1, name="s", resources=Resources(cpu=0))
    t = g.add(body, n=1, name="t")
    light = g.add(body, after(t, concurrent=True), n=1, name="light", resources=Resources(cpu=0))
    g.add(body, after(light, concurrent=True), after(s, concurrent=True), n=1, name="b")
    h = hand(g, workers=2)
    h.expect("start s[0]")
    h(h.idle(0, 1))
    h.expect("launch t[0] on 0", "start light[0]", "launch b[0] on 1")


def test_a_service_that_goes_on_keeps_no_restarting_bubble_from_asking(hand):
    g = Graph("g")
    s = g.service(body, name="s")
    a = g.add(body, n=1, name="a")
    b = g.add(body, one_to_one(a, concurrent=True, storage=Storage.EPHEMERAL), s, n=1, name="b")
    g.bubble(s, a, b, name="gang", timeout_s=5.0)
    h = hand(g, workers=4)
    h.expect("timer at 5", "acquire s*1, a*1, b*1")
    h(h.granted(s=0, a=1, b=2))
    assert len(h.skip("launch")) == 3
    h(h.done("a[0]"))
    h.skip("release")
    h.expect("a has ended")
    h(h.failed("b[0]", Failure.INFRASTRUCTURE))
    assert "acquire a*1, b*1" in h.skip()
    assert h.rows("s") == ["leased"]


def test_a_service_that_was_being_stopped_when_the_master_died_is_not_started_again(hand):
    h = hand(served(), workers=4)
    h.skip()
    h(h.granted(s=(0, 1), a=(2, 3)))
    h.skip()
    h(h.done("a[0]"), h.done("a[1]"))
    assert "stop s[0]: its last consumer has ended" in h.skip()
    h(*losses(h.core, h.now))
    h.skip("release")
    h.expect()
    assert h.state("s") == "done"
    h(h.worker_joined(4), h.idle(4))
    h.expect("launch b[0] on 4")
    h(h.done("b[0]"))
    h.skip()


def test_who_reads_what_a_region_makes_again_is_stopped_before_that_is_freed(hand):
    g = Graph("g")
    s = g.add(body, n=2, name="s")
    y = g.add(body, one_to_one(s, concurrent=True, storage=Storage.EPHEMERAL), n=2, name="y")
    a = g.add(body, gather(y), n=1, name="a")
    b = g.add(body, one_to_one(a, concurrent=True, storage=Storage.EPHEMERAL), n=1, name="b")
    g.add(body, gather(y), after(g.add(body, n=1, name="slow")), n=1, name="u")
    g.bubble(s, y, name="one")
    g.bubble(a, b, name="two")
    h = hand(g, workers=8, cones=False)
    h.skip()
    h(h.granted(s=(0, 1), y=(2, 3)), h.idle(4))
    h.skip()
    h(*[h.done(f"{vertex}[{i}]") for vertex in "sy" for i in (0, 1)])
    h.skip()
    h(h.granted(a=0, b=1))
    h.skip()
    h(h.output_lost("y[0]"))
    said = [line for line in h.skip() if line.startswith(("stop", "free"))]
    assert said == ["stop a[0]: region restart", "free y[1]", "stop b[0]: region restart"]


def test_a_service_runs_again_with_its_last_reader(hand):
    """It has ended when the output of the reader is lost."""
    g = Graph("g")
    s = g.service(body, name="s")
    a = g.add(body, s, n=1, name="a")
    g.add(body, gather(a), n=1, name="b")
    h = hand(g, workers=3, cones=False)
    h.skip()
    h(h.granted(s=0, a=1))
    h.skip()
    h(h.done("a[0]"), h.stopped("s[0]"), h.idle(0, 1))
    assert "launch b[0] on 0" in h.skip()
    h(h.failed("b[0]", Failure.INPUT, lost=("a", 0)))
    assert h.skip("acquire") == ["acquire s*1, a*1"]
    h.skip()
    h(h.granted(s=0, a=1))
    h.expect_any_order("launch s[0] on 0", "launch a[0] on 1")


def test_a_service_that_is_stopping_runs_again_with_its_reader(hand):
    g = Graph("g")
    s = g.service(body, name="s")
    g.add(body, s, n=1, name="a", keep=True)
    g.add(body, n=1, name="slow")
    h = hand(g, workers=4, cones=False)
    h.skip()
    h(h.granted(s=0, a=1), h.idle(2))
    h.skip()
    h(h.done("a[0]"))
    assert h.skip("stop") == ["stop s[0]: its last consumer has ended"]
    h.skip()
    h(h.output_lost("a[0]"))
    h.skip()
    h(h.stopped("s[0]"))
    assert any("s*1" in line for line in h.skip("acquire"))
    h.skip()
