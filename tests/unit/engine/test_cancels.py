"""A cancelled task ends as a failed one, alone; a vertex or a job that is finished early ends as a success."""

from typing import Any

from tests.unit.engine.hand import Hand, body
from tests.unit.engine.test_attempts import raced
from weft.engine.story import story
from weft.graph.builder import Graph, after, gather, one_to_one
from weft.graph.logical import OnFailure, Outcome, RestartPolicy, Storage


def wide(hand: type[Hand], n: int = 4, **fields: Any) -> Hand:
    """Tasks of `a`, each with a reader in `b`, and what comes after any end of `b`."""
    g = Graph("g")
    b = g.add(body, g.add(body, n=n, name="a", **fields), name="b")
    g.add(body, after(b, outcome=Outcome.ANY), name="c")
    return hand(g, cones=False)


def tell(h: Hand, *events: Any) -> list[str]:
    """Tell the master something; return what it says."""
    h(*events)
    return h.skip()


def test_a_task_that_waits_does_not_begin_and_its_reader_cannot_run(hand):
    h = wide(hand)
    assert tell(h, h.cancel_tasks("a[2]")) == []
    assert h.rows("a") == ["ready", "ready", "fatal", "ready"]
    assert h.rows("b")[2] == "fatal"
    assert h.job == "running"
    assert any("CANCELLED: not needed" in line for line in story(h.core, "a[2]"))
    assert tell(h, h.idle(0, 1)) == ["launch a[0] on 0", "launch a[1] on 1"]
    tell(h, h.done("a[0]"), h.done("a[1]"), h.idle(0, 1))
    assert h.rows("a") == ["finished", "finished", "fatal", "ready"]  # the readers are deeper
    assert h.rows("b")[:3] == ["leased", "leased", "fatal"]


def test_the_others_go_on_and_the_job_ends_as_failed_by_the_cancel(hand):
    h = wide(hand, 2)
    assert tell(h, h.cancel_tasks("a[0]"), h.idle(0)) == ["launch a[1] on 0"]
    assert "launch b[1] on 0" in tell(h, h.done("a[1]"), h.idle(0))
    assert "launch c[0] on 0" in tell(h, h.done("b[1]"), h.idle(0))
    assert tell(h, h.done("c[0]"))[-1] == "complete failed: a[0] not needed"


def test_a_task_that_waits_for_its_input_ends_before_it(hand):
    h = wide(hand, 1)
    tell(h, h.cancel_tasks("b[0]"))
    assert (h.rows("a"), h.rows("b")) == (["ready"], ["fatal"])


def test_a_running_task_is_stopped_and_not_tried_again(hand):
    h = wide(hand)
    tell(h, h.idle(0))
    assert tell(h, h.cancel_tasks("a[0]")) == ["stop a[0]: not needed"]
    assert h.rows("a")[0] == "leased"
    assert any("it is being stopped" in line for line in story(h.core, "a[0]"))
    assert tell(h, h.cancel_tasks("a[0]", "again")) == []
    tell(h, h.stopped("a[0]"))
    assert (h.rows("a")[0], h.job) == ("fatal", "running")


def test_what_a_stopped_task_has_made_after_all_is_dropped(hand):
    h = wide(hand)
    tell(h, h.idle(0))
    tell(h, h.cancel_tasks("a[0]"))
    assert tell(h, h.done("a[0]")) == ["free a[0]"]
    assert h.rows("a")[0] == "fatal"


def test_of_a_lease_of_many_tasks_the_others_count_or_go_back(hand):
    g = Graph("g")
    g.add(body, n=60, name="a")
    h = hand(g, cones=False)
    tell(h, h.idle(0))
    (launch,) = tell(h, h.done("a[0]", seconds=1e-6), h.idle(0))
    lease = launch.split()[1]
    assert lease == "a[1:9]"
    assert tell(h, h.cancel_tasks("a[3]"), h.cancel_tasks("a[7]")) == [f"stop {lease}: not needed"]
    assert tell(h, h.done(lease, hi=5)) == ["free a[3]"]
    states = ["finished"] * 3 + ["fatal", "finished", "ready", "ready", "fatal", "ready"]
    assert h.rows("a")[:9] == states


def test_the_rest_of_a_chain_runs_up_to_the_task_that_was_cancelled(hand):
    g = Graph("g")
    node = g.add(body, n=1, name="a")
    for name in "bcd":
        node = g.add(body, node, name=name)
    h = hand(g)
    (launch,) = tell(h, h.idle(0))
    lease = h.core.leases[1]
    assert lease.cone is not None
    tell(h, h.cancel_tasks("c[0]"))
    tell(h, h.stopped("d[0]"))
    assert [h.rows(name) for name in "abcd"] == [["ready"], ["unscheduled"], ["fatal"], ["fatal"]]
    assert launch.startswith("launch d[0] on 0")


def test_a_worker_that_is_lost_meanwhile_changes_nothing(hand):
    h = wide(hand)
    tell(h, h.idle(0))
    tell(h, h.cancel_tasks("a[0]"))
    tell(h, h.worker_lost(0))
    assert h.rows("a")[0] == "fatal"


def test_a_task_whose_retry_is_due_ends(hand):
    h = wide(hand, 1, restart=RestartPolicy.ON_FAILURE)
    tell(h, h.idle(0))
    tell(h, h.failed("a[0]"))
    assert h.rows("a") == ["unscheduled"]
    tell(h, h.cancel_tasks("a[0]"))
    assert h.rows("a") == ["fatal"]
    tell(h, h.timer(10.0))
    assert h.rows("a") == ["fatal"]


def test_a_task_that_has_ended_keeps_its_value(hand):
    h = wide(hand, 1)
    tell(h, h.idle(0))
    tell(h, h.done("a[0]"))
    tell(h, h.cancel_tasks("a[0]"), h.cancel_tasks("a[7]"), h.cancel_tasks("none[0]"))
    assert h.rows("a") == ["finished"]
    assert not h.core.doomed


def test_a_failure_is_rather_the_cause_of_the_end(hand):
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    g.add(body, n=2, name="a")
    h = hand(g)
    tell(h, h.cancel_tasks("a[0]"), h.idle(0))
    assert tell(h, h.failed("a[1]")) == ["complete failed: a[1] bad"]


def test_a_cancel_of_the_job_while_a_task_is_stopped(hand):
    h = wide(hand)
    tell(h, h.idle(0))
    tell(h, h.cancel_tasks("a[0]"))
    tell(h, h.cancel())
    assert tell(h, h.stopped("a[0]")) == ["complete cancelled: enough"]


def test_a_vertex_that_is_finished_while_a_task_is_stopped(hand):
    h = wide(hand, 2)
    tell(h, h.idle(0))
    tell(h, h.cancel_tasks("a[0]"))
    tell(h, h.finish("a"))
    tell(h, h.stopped("a[0]"))
    assert h.state("a") == "done_early"


def test_the_reader_of_a_stream_whose_writer_is_cancelled_fails_with_it(hand):
    g = Graph("stream")
    parse = g.add(body, n=1, name="parse")
    keep = g.add(body, one_to_one(parse, concurrent=True, storage=Storage.EPHEMERAL), n=1, name="keep")
    g.bubble(parse, keep)
    h = hand(g)
    h.skip()
    tell(h, h.granted(parse=0, keep=1))
    tell(h, h.cancel_tasks("parse[0]"))
    tell(h, h.stopped("parse[0]"))
    tell(h, h.stopped("keep[0]"))
    assert (h.rows("parse"), h.rows("keep"), h.job) == (["fatal"], ["fatal"], "failed")


def test_a_task_of_a_bubble_that_waits_for_its_slots_ends(hand):
    g = Graph("stream")
    parse = g.add(body, n=1, name="parse")
    g.bubble(parse, g.add(body, one_to_one(parse, concurrent=True, storage=Storage.EPHEMERAL), n=1, name="keep"))
    h = hand(g)
    h.skip()
    tell(h, h.cancel_tasks("parse[0]"))
    assert (h.rows("parse"), h.rows("keep"), h.job) == (["fatal"], ["fatal"], "failed")


def test_both_attempts_at_a_task_are_stopped(hand):
    h = raced(hand)
    assert tell(h, h.cancel_tasks("a[0]")) == ["stop a[0]': not needed", "stop a[0]: not needed"]
    tell(h, h.stopped("a[0]'"))
    assert h.rows("a") == ["leased"]
    tell(h, h.stopped("a[0]"))
    assert (h.rows("a"), h.job) == (["fatal"], "failed")


def test_a_vertex_that_is_finished_gives_what_there_is(hand):
    g = Graph("g")
    g.add(body, gather(g.add(body, n=4, name="a")), name="b")
    h = hand(g, cones=False)
    tell(h, h.idle(0, 1))
    tell(h, h.done("a[0]"))
    assert tell(h, h.finish("a")) == ["stop a[1]: enough"]
    assert "launch b[0] on 0" in tell(h, h.stopped("a[1]"), h.idle(0))
    assert h.state("a") == "done_early"
    assert tell(h, h.done("b[0]"))[-1] == "complete succeeded"


def test_a_job_that_is_finished_succeeds_and_its_final_vertices_run(hand):
    g = Graph("g")
    g.add(body, gather(g.add(body, n=4, name="a")), name="b")
    g.add(body, g.service(body, name="ps"), name="train")
    g.add(body, name="clean", final=True)
    h = hand(g, cones=False)
    h.skip()
    assert tell(h, h.idle(0)) == ["launch a[0] on 0"]
    tell(h, h.finish())
    tell(h, h.stopped("a[0]"))
    assert (h.job, h.state("b")) == ("ending", "done_early")
    assert tell(h, h.idle(0)) == ["launch clean[0] on 0"]
    assert tell(h, h.done("clean[0]"))[-1] == "complete succeeded"
