"""Second attempts: who gets one, that the first good end counts and the other does not, whatever comes between."""

from typing import Any

import pytest

from tests.unit.engine.hand import Hand, body
from weft.engine.decisions import BackUp, WeighTasks
from weft.engine.events import JobSubmitted
from weft.engine.leases import attempt_of, close
from weft.engine.machines.lease import LeaseState
from weft.engine.policy import STRAGGLERS, VertexManager
from weft.engine.recovery import digest
from weft.engine.replay import Tape, Tick, replay
from weft.graph.builder import Graph, gather, one_to_one, shuffle
from weft.graph.logical import Manager, Storage
from weft.model.errors import GraphError, InvalidTransition
from weft.model.failures import Failure
from weft.model.resources import Resources


class Always(VertexManager):
    """Backs up whatever may be."""

    moments: frozenset[Any] = frozenset()
    holds = False
    counts = False

    def decide(self, view, memo):
        return [BackUp(attempt.lease, "late") for attempt in view.attempts if not attempt.backed], memo


class Weighing(Always):
    """Has everything weighed, and tells what it saw."""

    def decide(self, view, memo):
        seen = [attempt.weight for attempt in view.attempts]
        return [WeighTasks(attempt.lease) for attempt in view.attempts], [*(memo or []), seen]


def pair(n: int = 1, **fields: Any) -> Graph:
    g = Graph("g")
    g.add(body, gather(g.add(body, n=n, name="a", **fields)), n=1, name="b")
    return g


def raced(hand: type[Hand], graph: Graph | None = None, **options: Any) -> Hand:
    """A master whose task a[0] runs on worker 0 and, a second time, on worker 1."""
    h = hand(graph or pair(), workers=3, managers={STRAGGLERS: Always}, submit=True, **options)
    h.skip("timer")
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.timer(0.1), h.idle(1))
    h.expect("timer at 0.2", "launch a[0]' on 1, attempt 1")
    return h


def test_the_backup_may_be_first(hand):
    h = raced(hand)
    h(h.done("a[0]'"))
    h.expect("stop a[0]: another attempt was first")
    h(h.stopped("a[0]"), h.idle(1))
    h.expect("launch b[0] on 1")
    assert not h.core.loads()[0]
    h(h.done("b[0]"))
    h.expect("free a[0]", "complete succeeded")


def test_both_attempts_may_crash_and_the_next_one_has_no_backup(hand):
    h = raced(hand)
    h(h.worker_lost(0, crashed=""))
    h.expect()
    h(h.worker_lost(1, crashed=""), h.idle(2))
    h.expect("launch a[0] on 2, attempt 2")
    h(h.worker_joined(3), h.timer(0.2), h.idle(3))
    h.skip("timer")
    h.expect()
    h(h.worker_lost(2, crashed=""))
    h.expect(
        "complete failed: a[0] worker 2 was lost: died\n"
        "It has ended 3 different workers, so the task is at fault and does not run again."
    )


def test_after_a_crash_what_the_backup_has_made_counts(hand):
    tape, again, ticks = Tape(), Tape(), []
    h = hand(pair(), workers=3, managers=tape.managers({STRAGGLERS: Always}), submit=False)
    handle = h.master.handle

    def recorded(events):
        commands = handle(events)
        ticks.append(Tick(tuple(events), tape.take()))
        return commands

    h.master.handle = recorded
    h(JobSubmitted(0.0), h.idle(0))
    h(h.skip() and h.timer(0.1), h.idle(1))
    h(h.skip() and h.done("a[0]'"))
    h.skip()
    other = hand(pair(), workers=3, managers=again.managers({STRAGGLERS: Always}), submit=False)
    assert replay(other.master, again, ticks).taken == {h.leases["a[0]'"]}
    assert digest(other.core) == digest(h.core)


def test_the_first_attempt_may_be_first(hand):
    h = raced(hand)
    h(h.done("a[0]"), h.idle(0))
    h.expect("stop a[0]': another attempt was first", "launch b[0] on 0")
    h(h.done("b[0]"))
    h.expect("free a[0]", "complete succeeded")  # nobody waits for who has lost
    assert h.rows("a") == ["freed"]


def test_a_late_end_of_the_loser_changes_nothing(hand):
    h = raced(hand)
    h(h.done("a[0]'"))
    h.expect("stop a[0]: another attempt was first")
    h(h.done("a[0]"))
    h(h.done("a[0]"))
    h.expect()
    assert h.rows("a") == ["finished"]
    assert not h.core.cancelled


@pytest.mark.parametrize("failing", ["a[0]", "a[0]'"])
@pytest.mark.parametrize("kind", [Failure.USER, Failure.INFRASTRUCTURE, Failure.STOPPED])
def test_while_one_goes_on_the_failure_of_the_other_costs_nothing(hand, failing, kind):
    h = raced(hand)
    h(h.failed(failing, kind))
    h.expect()
    assert h.rows("a") == ["leased"]
    other = "a[0]" if failing.endswith("'") else "a[0]'"
    h(h.done(other), h.idle(2))
    h.expect("launch b[0] on 2")
    assert h.core.by_id["a"].attempts is None


def test_when_both_fail_the_last_one_counts(hand):
    h = raced(hand)
    h(h.failed("a[0]", message="first"))
    h(h.failed("a[0]'", message="second"))
    h.expect("complete failed: a[0] second")


def test_a_lost_worker_is_one_attempt_less(hand):
    h = raced(hand)
    h(h.worker_lost(0))
    h.expect()
    h(h.worker_lost(1), h.idle(2))
    h.expect("launch a[0] on 2, attempt 1")


def test_a_worker_that_had_lost_the_race_may_be_lost(hand):
    h = raced(hand)
    h(h.done("a[0]'"))
    h.expect("stop a[0]: another attempt was first")
    h(h.worker_lost(0))
    h.expect()
    assert not h.core.cancelled


def test_either_may_say_that_it_began(hand):
    h = raced(hand)
    h(h.started("a[0]'"))
    assert h.rows("a") == ["running"]
    h(h.started("a[0]"))
    h(h.done("a[0]"), h.idle())
    h.expect("stop a[0]': another attempt was first")


def test_a_cancel_stops_both(hand):
    h = raced(hand)
    h(h.cancel())
    h.expect("stop a[0]': enough", "stop a[0]: enough")
    h(h.done("a[0]'"))
    h.expect("free a[0]")
    h(h.stopped("a[0]"))
    h.expect("complete cancelled: enough")


def test_time_runs_out_for_each_attempt_by_itself(hand):
    h = hand(pair(timeout_s=5.0), workers=3, managers={STRAGGLERS: Always})
    h.skip("timer")
    h(h.idle(0))
    h.expect("timer at 5", "launch a[0] on 0")
    h(h.timer(0.1), h.idle(1))
    h.expect("timer at 0.2", "timer at 5.1", "launch a[0]' on 1, attempt 1")
    h(h.timer(5.0))
    h.expect("stop a[0]: timeout")
    h(h.stopped("a[0]"))
    h.expect()
    h(h.timer(5.1))
    h.expect("stop a[0]': timeout")
    h(h.stopped("a[0]'"))
    h.expect("complete failed: a[0] took longer than its timeout of 5 s")


def test_what_was_done_in_time_counts_though_it_was_told_to_stop(hand):
    h = hand(pair(timeout_s=5.0), workers=3, managers={STRAGGLERS: Always})
    h.skip("timer")
    h(h.idle(0))
    h(h.skip() and h.timer(0.1), h.idle(1))
    h.skip()
    h(h.timer(5.0))
    h.expect("stop a[0]: timeout")
    h(h.done("a[0]"))
    h.expect("stop a[0]': another attempt was first")
    assert h.rows("a") == ["finished"]


def wide(hand: type[Hand], **fields: Any) -> Hand:
    """A master with a lease of two tasks, a[1:3], on worker 0, that was asked for its tail; all others are done."""
    h = hand(pair(n=6, **fields), workers=2, managers={STRAGGLERS: Always}, target_s=100.0, growth=8)
    h.skip("timer")
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]", seconds=10.0), h.idle(0))
    h.expect("launch a[1:3] on 0")
    for task in ("a[3]", "a[4]", "a[5]"):
        h(h.idle(1))
        h.expect(f"launch {task} on 1")
        h(h.done(task, seconds=10.0))
    h(h.timer(0.1))
    h.expect("shrink a[1:3]", "timer at 5.1")
    return h


def test_the_tail_of_a_late_lease_is_taken_back_first(hand):
    h = wide(hand)
    h(h.gave_back("a[1:3]", 2), h.idle(1))
    h.expect("launch a[2] on 1")
    h(h.done("a[2]"))
    h(h.timer(5.1), h.idle(1))
    h.expect("timer at 6.35", "launch a[1]' on 1, attempt 1")


def test_what_cannot_be_taken_back_is_run_twice(hand):
    h = wide(hand)
    h(h.timer(5.1), h.idle(1))
    h.expect("timer at 10.1", "launch a[1:3]' on 1, attempt 1")
    h(h.progress("a[1:3]'", 2))
    assert h.rows("a")[1:3] == ["finished", "leased"]
    h(h.progress("a[1:3]", 2), h.failed("a[1:3]", hi=2))
    h(h.done("a[1:3]'"))
    h.expect()
    assert h.rows("a")[:3] == ["finished"] * 3


def test_rows_and_bytes_count_of_whichever_attempt_reports_them_first(hand):
    h = wide(hand, counted=True)
    h(h.timer(5.1), h.idle(1))
    h.expect("timer at 10.1", "launch a[1:3]' on 1, attempt 1")
    a = h.core.by_id["a"]
    before = a.busy_s
    sums = (("a->b", [3, 4]),)
    h(h.progress("a[1:3]", 2, nbytes=7, seconds=2.0, rows=10, stats=sums))
    h(h.progress("a[1:3]'", 2, nbytes=7, seconds=2.0, rows=10, stats=sums))
    h(h.done("a[1:3]'", nbytes=8, seconds=1.0, rows=20, stats=sums))
    h.skip("stop a[1:3]")
    assert a.counted is not None
    assert (a.rows, a.counted[1:3], h.core.stats["a->b"]) == (30, bytearray([1, 1]), [6, 8])
    assert (a.written, a.busy_s - before) == (15, 3.0)


def left_behind(hand: type[Hand]) -> Hand:
    """A master whose lease a[1:3] is at a[1], which its lost rival has done."""
    h = wide(hand)
    h(h.timer(5.1), h.idle(1))
    h.expect("timer at 10.1", "launch a[1:3]' on 1, attempt 1")
    h(h.progress("a[1:3]'", 2))
    h(h.worker_lost(1))
    h.expect()
    return h


@pytest.mark.parametrize("kind", [Failure.USER, Failure.INFRASTRUCTURE, Failure.INPUT])
def test_a_failure_at_what_the_rival_has_done_costs_nothing(hand, kind):
    h = left_behind(hand)
    h(h.failed("a[1:3]", kind, hi=1), h.idle(0))
    h.expect("launch a[2] on 0")
    assert h.core.by_id["a"].attempts is None


def test_a_good_end_before_what_the_rival_has_done_changes_nothing_of_it(hand):
    h = left_behind(hand)
    h(h.done("a[1:3]", hi=1), h.idle(0))
    h.expect("launch a[2] on 0")
    assert h.rows("a")[:2] == ["finished"] * 2


def test_a_backup_runs_on_another_node_where_there_is_one(hand):
    h = hand(pair(), workers=4, nodes=2, managers={STRAGGLERS: Always})
    h.skip("timer")
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.timer(0.1), h.idle(1, 2))
    h.expect("timer at 0.2", "launch a[0]' on 2, attempt 1")
    h(h.done("a[0]'", nbytes=10))
    h.skip()
    assert h.core.by_id["a"].node_of == [1], "the output lies where the winner ran"


@pytest.mark.parametrize(
    "fields", [{"idempotent": False}, {"resources": (Resources(cpu=0),)}, {"resources": (Resources(memory=1),)}]
)
def test_who_gets_no_second_attempt(hand, fields):
    h = hand(pair(**fields), workers=3, managers={STRAGGLERS: Always})
    h(h.skip() and h.idle(0))
    if "acquire a*1 (cpu 1, memory 1 bytes)" in h.skip():
        h(h.granted(a=0))
        h.skip()
    h(h.timer(0.1), h.idle(1))
    assert not [line for line in h.skip() if line.startswith("launch")]


def test_streams_and_what_has_emitted_get_none(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    b = g.add(body, one_to_one(a, concurrent=True, storage=Storage.EPHEMERAL), name="b")
    g.add(body, n=1, name="c")
    g.bubble(a, b)
    h = hand(g, workers=4, managers={STRAGGLERS: Always})
    h(h.skip() and h.granted(a=0, b=1), h.idle(2))
    h(h.skip() and h.emitted("c", "progress"))
    h(h.skip() and h.timer(0.1), h.idle(3))
    assert not [line for line in h.skip() if line.startswith("launch")]


def test_nothing_is_run_twice_whose_input_is_gone_meanwhile(hand):
    h = hand(pair(), workers=3, managers={STRAGGLERS: Always})
    h(h.skip() and h.idle(0))
    h(h.skip() and h.done("a[0]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.output_lost("a[0]"))
    h(h.timer(0.1), h.idle(1))
    h.expect("timer at 0.2")


def test_what_a_lease_reads_is_weighed_once(hand):
    h = hand(pair(n=2), workers=2, managers={STRAGGLERS: Weighing})
    h(h.skip() and h.idle(0, 1))
    h(h.skip() and h.done("a[0]", nbytes=100), h.done("a[1]", nbytes=100), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.timer(0.1))
    h.expect("weigh b[0]", "timer at 0.2")
    h(h.weighed("b[0]", 600))
    h.expect()
    assert h.core.memos[STRAGGLERS][-2:] == [[0.0], [3.0]], "three times the 200 bytes that b reads of two tasks"


def test_a_job_without_the_policy_is_not_looked_at(hand):
    h = hand(pair(), workers=2)
    h.expect()


def test_a_vertex_cannot_name_the_policy_as_its_manager(hand):
    with pytest.raises(GraphError):
        hand(pair(manager=Manager(STRAGGLERS)), managers={})


def test_the_story_tells_of_both(hand):
    h = raced(hand)
    told = "\n".join(h.master.inspector.story("a[0]"))
    assert "backup on worker 1 beside worker 0: late" in told
    assert "a second time on worker 1" in told
    h(h.failed("a[0]"), h.done("a[0]'"))
    assert "worker 1 goes on with it" in "\n".join(h.master.inspector.story("a[0]"))
    h.skip()


def test_a_backup_whose_work_is_given_back_is_stopped_and_its_end_counts_if_the_other_attempt_fails(hand):
    h = wide(hand)
    h(h.timer(5.1), h.idle(1))
    h.expect("timer at 10.1", "launch a[1:3]' on 1, attempt 1")
    h(h.gave_back("a[1:3]", 2))
    h.expect("stop a[1:3]': part of its work was given back")
    assert attempt_of(h.core, h.leases["a[1:3]'"]).state is LeaseState.NARROWED
    h(h.failed("a[1:3]", Failure.INFRASTRUCTURE, hi=1))
    assert attempt_of(h.core, h.leases["a[1:3]'"]).state is LeaseState.RUNNING
    h(h.done("a[1:3]'", hi=2))
    assert h.rows("a")[:3] == ["finished", "finished", "ready"]
    h.skip()


def test_a_lease_ends_once(hand):
    h = hand(pair(), workers=1)
    h(h.idle(0))
    h.skip()
    lease = h.core.leases[h.leases["a[0]"]]
    close(h.core, lease)
    with pytest.raises(InvalidTransition, match="lease 1: no transition from ENDED on 'ended'"):
        close(h.core, lease)
    h.core.leases[lease.id] = lease


@pytest.mark.parametrize(("first", "second"), [("b[1]", "b[1]'"), ("b[1]'", "b[1]")])
def test_a_task_runs_again_after_the_end_of_both_revoked_attempts(hand, first, second):
    g = Graph("g")
    b = g.add(body, shuffle(g.add(body, n=2, name="a")), n=2, name="b")
    g.add(body, gather(b), n=1, name="c")
    h = hand(g, workers=4, cones=False, managers={STRAGGLERS: Always})
    h(h.skip() and h.idle(0, 1))
    h(h.skip() and h.done("a[0]", nbytes=2**30), h.done("a[1]", nbytes=2**30), h.idle(0, 1))
    h(h.skip() and h.done("b[0]"), h.timer(0.1), h.idle(2))
    assert "launch b[1]' on 2, attempt 1" in h.skip()
    h(h.output_lost("b[0]"), h.idle(0))
    assert {"stop b[1]: what it reads is made again", "stop b[1]': what it reads is made again"} < set(h.skip())
    h(h.stopped(first), h.idle(3))
    h.expect("launch a[1] on 3")
    h(h.done("a[0]", nbytes=2**30), h.done("a[1]", nbytes=2**30), h.idle(0, 3))
    h.expect("launch b[0] on 0")
    h(h.done(second), h.idle(3))
    h.expect("free b[1]", "launch b[1] on 3")
