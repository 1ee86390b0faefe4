"""What is made again when outputs are gone: what is needed, and no more."""

import pytest

from tests.unit.engine.hand import body, run_out
from weft.engine.readiness import FREE_VISITS
from weft.graph.builder import Graph, after, gather, one_to_one, shuffle
from weft.graph.logical import OnFailure, Retry, Storage, Trigger
from weft.model.failures import Failure


def stages(n: int = 2, *, names: str = "abc", **fields) -> Graph:
    """A chain of vertices of `n` tasks, no cones between them (each task is reported)."""
    g = Graph("g")
    node = g.add(body, n=n, name=names[0], **fields)
    for name in names[1:]:
        node = g.add(body, node, name=name, **fields)
    return g


def test_a_lost_output_that_somebody_waits_for_is_made_again(hand):
    g = Graph("g")
    a = g.add(body, n=2, name="a")
    g.add(body, gather(a), n=1, name="b")
    h = hand(g)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]"))
    h.expect()
    h(h.output_lost("a[0]"), h.idle(0))
    h.expect("launch a[0] on 0")
    assert h.rows("a") == ["leased", "leased"]
    h(h.done("a[1]"), h.done("a[0]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.done("b[0]"))
    h.expect("free a[0:2]", "complete succeeded")


def test_who_was_content_with_part_of_an_input_waits_while_that_is_made_again(hand):
    g = Graph("g")
    a = g.add(body, n=2, name="a")
    g.add(body, gather(a, when=Trigger.EVENT, event="enough"), n=1, name="b")
    h = hand(g)
    h(h.idle(0, 1))
    h.skip()
    h(h.emitted("a", "enough"), h.done("a[0]"), h.done("a[1]"))
    h.skip()
    assert h.rows("b") == ["ready"]
    h(h.output_lost("a[0]"), h.idle(0, 1))
    h.expect(
        "a runs again", "launch a[0] on 0"
    )  # and not b, which would take what is not there for what was never made
    h(h.done("a[0]"), h.idle(0))
    h.expect("a has ended", "launch b[0] on 0")
    h(h.done("b[0]"))
    h.skip()


def test_a_lost_output_that_nobody_reads_any_more_is_not(hand):
    g = stages(names="ab")
    h = hand(g, cones=False)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.output_lost("a[0]"), h.idle(0))  # its only reader has it in its hands, or will say
    h.expect()
    h(h.done("b[0]"))
    h.expect()
    h(h.done("a[1]"), h.idle(0))
    h.expect("launch b[1] on 0")
    h(h.done("b[1]"))
    h.expect("free a[1]", "complete succeeded")


def test_a_lost_result_is_made_again_with_all_that_it_needs(hand):
    h = hand(stages(1), cones=False)
    assert run_out(h, [0])[:2] == ["a[0]", "b[0]"]  # a and b are freed by now
    assert h.job == "succeeded"
    h = hand(stages(2), cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]", seconds=1.0), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.done("b[0]", seconds=1.0), h.idle(0))
    h.expect("free a[0]", "launch c[0] on 0")
    h(h.done("c[0]", seconds=1.0))
    h.expect("free b[0]")
    h(h.output_lost("c[0]"))
    h.expect()
    assert [h.rows(name)[0] for name in "abc"] == ["ready", "unscheduled", "unscheduled"]
    assert run_out(h, [0]) == ["a[0]", "b[0]", "c[0]", "a[1]", "b[1]", "c[1]", "complete succeeded"]


def test_durable_and_kept_data_end_the_walk_backwards(hand):
    g = stages(1)
    g.edges[0].storage = Storage.DURABLE  # a -> b
    h = hand(g, cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.done("b[0]"), h.idle(0))
    h.expect("launch c[0] on 0")
    h(h.output_lost("b[0]"), h.failed("c[0]", Failure.INPUT, lost=("b", 0)), h.idle(0))
    h.expect("launch b[0] on 0")  # a is still there
    assert h.rows("a") == ["finished"]


def test_an_input_that_cannot_be_read_is_made_again_and_costs_no_attempt_of_the_user(hand):
    g = stages(1, names="ab")
    h = hand(g, cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.failed("b[0]", Failure.INPUT, lost=("a", 0), message="a[0] is gone"), h.idle(0))
    h.expect("launch a[0] on 0")
    assert h.rows("b") == ["unscheduled"]
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch b[0] on 0, attempt 1")
    h(h.done("b[0]"))
    h.expect("free a[0]", "complete succeeded")


@pytest.mark.parametrize("node", [False, True])
def test_a_node_takes_what_it_held_with_it(hand, node):
    g = Graph("g")
    a = g.add(body, n=4, name="a")
    g.add(body, gather(a), n=1, name="b")
    h = hand(g, workers=4, nodes=2, cones=False)
    h(h.idle(0, 1, 2, 3))
    launched = sorted(h.skip("launch"))
    assert len(launched) == 4
    home = {line.split()[1]: int(line.split()[3]) for line in launched}
    h(*[h.done(name) for name in home])
    h.expect()
    h(h.worker_lost(0, node=node))  # workers 0 and 1 are on node 0
    h.expect()
    lost = {name for name, worker in home.items() if worker in (0, 1)} if node else set()
    assert {f"a[{i}]" for i, row in enumerate(h.rows("a")) if row == "ready"} == lost


def test_a_reader_that_has_not_started_waits_again(hand):
    g = stages(1, names="ab")
    h = hand(g, cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"))
    h.expect()
    assert h.rows("b") == ["ready"]
    h(h.output_lost("a[0]"))
    h.expect()
    assert (h.rows("a"), h.rows("b"), h.state("a")) == (["ready"], ["unscheduled"], "running")


def test_order_only_readers_do_not_wait_for_what_was_once_done(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a", keep=True)
    g.add(body, after(a), n=2, name="b")
    h = hand(g)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.output_lost("a[0]"), h.idle(1))
    # Whether b[1] goes first or waits for a, both must be done in the end, b[0] only once.
    first = [line.split()[1] for line in h.skip("launch")]
    assert set(first) <= {"a[0]", "b[1]"}
    h(h.done("b[0]"), *[h.done(name) for name in first])
    h.skip()
    if not h.master.over:
        assert run_out(h, [0])[-1] == "complete succeeded"


def shuffled(hand, n: int):
    """a[0:2], a gigabyte each, has been shuffled to b[0:n], all of which run."""
    g = Graph("g")
    a = g.add(body, n=2, name="a")
    b = g.add(body, shuffle(a), n=n, name="b")
    g.add(body, gather(b), n=1, name="c")
    h = hand(g, workers=3, cones=False)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]", nbytes=2**30), h.done("a[1]", nbytes=2**30), h.idle(*range(n)))
    h.expect(*[f"launch b[{i}] on {i}" for i in range(n)])
    return h


def test_a_large_shuffle_is_freed_piece_by_piece(hand):
    h = shuffled(hand, 3)
    h(h.done("b[1]"))
    h.expect("free pieces 1:2 of a")
    h(h.done("b[0]"))
    h.expect("free pieces 0:1 of a")
    h(h.done("b[2]"))
    assert h.skip()[-1] == "free a[0:2]"


def test_the_pieces_of_a_wide_shuffle_are_freed_many_at_once(hand):
    n = 4 * FREE_VISITS
    g = Graph("g")
    a = g.add(body, n=2, name="a")
    g.add(body, shuffle(a), n=n, name="b")
    h = hand(g, workers=n, cones=False)
    h(h.idle(0, 1))
    h.skip()
    h(h.done("a[0]", nbytes=2**30), h.done("a[1]", nbytes=2**30), h.idle(*range(n)))
    h.skip()
    for i in (1, 0, 2):
        h(h.done(f"b[{i}]"))
        h.expect()
    h(h.done("b[3]"))
    h.expect("free pieces 0:4 of a")
    h(*[h.done(f"b[{i}]") for i in (9, 5, 6, 20)])
    h.expect("free pieces 5:7 9:10 20:21 of a")  # one command, wherever they lie


def test_a_small_shuffle_is_freed_in_one_go(hand):
    g = Graph("g")
    g.add(body, shuffle(g.add(body, n=2, name="a")), n=2, name="b")
    h = hand(g, cones=False)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]", nbytes=100), h.done("a[1]", nbytes=100), h.idle(0, 1))
    h.expect("launch b[0] on 0", "launch b[1] on 1")
    h(h.done("b[0]"))
    h.expect()
    h(h.done("b[1]"))
    h.expect("free a[0:2]", "complete succeeded")


def test_a_piece_that_is_wanted_again_is_made_again_with_the_whole_shuffle(hand):
    h = shuffled(hand, 2)
    h(h.done("b[0]"))
    h.expect("free pieces 0:1 of a")
    h(h.output_lost("b[0]"), h.idle(0))
    assert h.skip("launch") == ["launch a[0] on 0"]  # its piece 0 is gone everywhere
    h.expect("stop b[1]: what it reads is made again", "free a[0]", "free a[1]")  # what is left of the old outputs
    h(h.stopped("b[1]"), h.idle(1))
    h.expect("launch a[1] on 1")
    h(h.done("a[0]", nbytes=2**30), h.done("a[1]", nbytes=2**30), h.idle(0))
    h.expect("launch b[0] on 0")
    assert h.core.by_id["b"].attempts is None
    assert run_out_live(h, "b[0]") == ["b[1]", "c[0]", "complete succeeded"]


def test_an_output_that_is_lost_does_not_hide_a_piece_that_is_freed(hand):
    h = shuffled(hand, 3)
    h(h.done("b[1]"))
    h.expect("free pieces 1:2 of a")
    h(h.output_lost("b[1]"), h.output_lost("a[0]"))
    assert h.rows("a") == ["ready", "ready"]  # a[1] is there, but its piece for b[1] is not
    h.skip("free", "stop")


def run_out_live(h, live: str) -> list[str]:
    h(h.done(live))
    h.skip()
    return run_out(h, [0])


def test_two_losses_at_once(hand):
    h = hand(stages(3, names="abcd"), workers=3, cones=False)
    h(h.idle(0, 1, 2))
    h.expect("launch a[0] on 0", "launch a[1] on 1", "launch a[2] on 2")
    h(*[h.done(f"a[{i}]", seconds=1.0) for i in range(3)], h.idle(0, 1, 2))
    h.expect("launch b[0] on 0", "launch b[1] on 1", "launch b[2] on 2")
    h(h.done("b[0]", seconds=1.0), h.done("b[1]", seconds=1.0))
    h.expect("free a[0]", "free a[1]")
    h(h.output_lost("b[0:2]"), h.output_lost("a[2]"))
    h.expect()
    assert (h.rows("a"), h.rows("b")) == (
        ["ready", "ready", "freed"],
        ["unscheduled", "unscheduled", "leased"],
    )
    h(h.failed("b[2]", Failure.INPUT, lost=("a", 2)))
    h.expect()
    assert (h.rows("a")[2], h.rows("b")[2]) == ("ready", "unscheduled")
    assert run_out(h, [0, 1])[-1] == "complete succeeded"


def test_losses_are_ignored_once_the_job_has_ended(hand):
    h = hand(stages(1, names="a"))
    assert run_out(h, [0]) == ["a[0]", "complete succeeded"]
    h(h.output_lost("a[0]"))
    h.expect()


def test_a_vertex_that_is_not_there_loses_nothing(hand):
    h = hand(stages(1))
    h(h.output_lost("nobody[0]"))
    h.expect()


def test_results_of_a_vertex_that_failed_in_part_are_made_again(hand):
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    g.add(body, n=2, name="a", keep=True)
    g.add(body, n=1, name="slow")
    h = hand(g, workers=3)
    h(h.idle(0, 1, 2))
    h.expect("launch a[0] on 0", "launch slow[0] on 1", "launch a[1] on 2")
    h(h.done("a[0]"), h.failed("a[1]"))
    h.expect()
    assert h.state("a") == "failed"
    h(h.output_lost("a[0]"), h.idle(0))
    h.expect("launch a[0] on 0")
    assert (h.state("a"), h.rows("a")) == ("running", ["leased", "fatal"])
    h(h.done("a[0]"), h.done("slow[0]"))
    h.expect("complete failed: a[1] bad")


def test_what_a_stopped_cone_leaves_waits_for_what_was_lost_meanwhile(hand):
    g = Graph("g")
    a = g.add(body, n=2, name="a")
    b = g.add(body, shuffle(a), n=2, name="b")
    g.add(body, one_to_one(b), gather(a), n=2, name="c", keep=True)
    h = hand(g, workers=3, nodes=3)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]"), h.done("a[1]"), h.idle(0, 1))
    h.expect("launch c[0] on 0 with b", "launch c[1] on 1 with b")
    h(h.output_lost("a[1]"))
    h.expect()
    h(h.done("c[0]", reached=0), h.idle(2))
    h.expect("launch a[1] on 2")
    h.skip()


def test_an_input_that_is_lost_when_time_is_up_is_made_again(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    g.add(body, gather(a), n=1, name="b", timeout_s=1.0, retry=Retry(user=2))
    h = hand(g)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("timer at 1", "launch b[0] on 0")
    h(h.timer(1.0))
    h.expect("stop b[0]: timeout")
    h(h.failed("b[0]", Failure.INPUT, lost=("a", 0)), h.idle(0))
    h.expect("launch a[0] on 0")
