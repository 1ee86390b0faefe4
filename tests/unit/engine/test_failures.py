"""Bad ends: tried again by kind, given up, spread, timed out, cancelled."""

import pytest
from msgspec.structs import replace

from tests.unit.engine.hand import body
from weft.graph.builder import Graph, after, gather
from weft.graph.logical import OnFailure, Outcome, Retry
from weft.model.failures import Failure
from weft.model.resources import Resources

CONTINUE = OnFailure.CONTINUE
FAIL_FAST = OnFailure.FAIL_FAST


def one(on_failure=FAIL_FAST, **fields) -> Graph:
    g = Graph("g", on_failure=on_failure)
    g.add(body, n=1, name="a", **fields)
    return g


# -------------------------------------------------------------------------------------------------- tried again


@pytest.mark.parametrize("times", [0, 1, 3])
def test_user_errors_are_tried_again_as_often_as_retry_says(hand, times):
    h = hand(one(retry=Retry(user=times)))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    for attempt in range(1, times + 1):
        h(h.failed("a[0]", message=f"bad {attempt}"), h.idle(0))
        h.expect(f"launch a[0] on 0, attempt {attempt}")
    h(h.failed("a[0]", message="the last"))
    h.expect("complete failed: a[0] the last")
    assert (h.job, h.state("a"), h.rows("a")) == ("failed", "failed", ["fatal"])


def test_the_answer_of_a_late_attempt_is_as_good_as_any(hand):
    h = hand(one(retry=Retry(user=1)))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]"), h.idle(0))
    h.expect("launch a[0] on 0, attempt 1")
    h(h.done("a[0]"))
    h.expect("complete succeeded")


def test_kinds_are_counted_apart(hand):
    h = hand(one(retry=Retry(user=1, memory=1, infrastructure=1)), workers=1)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]", Failure.USER), h.idle(0))
    h.expect("launch a[0] on 0, attempt 1")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE), h.idle(0))
    h.expect("launch a[0] on 0, attempt 2")
    h(h.failed("a[0]", Failure.MEMORY))
    h.expect("acquire a*1 (cpu 1, memory 134,217,728 bytes)")
    h(h.granted(a=0))
    h.expect("launch a[0] on 0, attempt 3, cpu 1, memory 134,217,728 bytes")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE))
    h.expect_any_order(
        "release 0", "complete failed: a[0] bad\nThat was attempt 2: its retries after lost workers are used up."
    )


def test_pauses_double(hand):
    h = hand(one(retry=Retry(user=3, delay_s=0.5)))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    for attempt, pause in enumerate((0.5, 1.0, 2.0), start=1):
        h.now = 10.0 * attempt
        h(h.failed("a[0]"), h.idle(0))
        h.expect(f"timer at {h.now + pause:g}")
        assert h.rows("a") == ["unscheduled"]
        h(h.timer(h.now + pause), h.idle(0))
        h.expect(f"launch a[0] on 0, attempt {attempt}")


def test_pauses_grow_by_the_factor_up_to_the_largest(hand):
    h = hand(one(retry=Retry(user=4, delay_s=1.0, factor=3.0, max_delay_s=5.0)))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    for attempt, pause in enumerate((1.0, 3.0, 5.0, 5.0), start=1):
        h.now = 10.0 * attempt
        h(h.failed("a[0]"), h.idle(0))
        h.expect(f"timer at {h.now + pause:g}")
        h(h.timer(h.now + pause), h.idle(0))
        h.expect(f"launch a[0] on 0, attempt {attempt}")


def pauses(hand, **fields) -> list[float]:
    """The pauses of two tasks, each failing twice at the same times."""
    found = []
    for name in ("a", "b"):
        g = Graph("g")
        g.add(body, n=1, name=name, retry=Retry(user=2, delay_s=8.0, factor=1.0, **fields))
        h = hand(g)
        h(h.idle(0))
        for attempt, at in enumerate((0.0, 100.0), start=1):
            h.expect(f"launch {name}[0] on 0" + (f", attempt {attempt - 1}" if attempt > 1 else ""))
            h.now = at
            h(h.failed(f"{name}[0]"), h.idle(0))
            (timer,) = h.pending
            h.expect(timer)
            until = max(h.timers)
            assert timer == f"timer at {until:g}"
            found.append(until - at)
            h(h.timer(until), h.idle(0))
        h.expect(f"launch {name}[0] on 0, attempt 2")
    return found


def test_jitter_takes_a_part_of_the_pauses_away_and_a_replay_has_the_same(hand):
    assert pauses(hand) == [8.0] * 4
    spread = pauses(hand, jitter=0.5)
    assert len(set(spread)) == 4, spread
    assert all(4.0 <= pause <= 8.0 for pause in spread), spread
    assert pauses(hand, jitter=0.5) == spread


@pytest.mark.parametrize(
    ("on", "status", "retried"),
    [
        ((75, 137), 75, True),
        ((75, 137), 1, False),
        (("64-78",), 78, True),
        (("64-78",), 79, False),
        ((1,), None, True),
        ((2,), None, False),
    ],
)
def test_only_the_exit_codes_of_a_retry_are_tried_again(hand, on, status, retried):
    h = hand(one(retry=Retry(user=1, on=on)))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]", status=status), h.idle(0))
    if retried:
        h.expect("launch a[0] on 0, attempt 1")
        return
    codes = ", ".join(map(str, on))
    h.expect(f"complete failed: a[0] bad\nIt is not retried: exit code {status or 1} is not one of {codes}.")


def test_a_kill_for_lack_of_memory_is_counted_apart_from_exit_codes(hand):
    h = hand(one(retry=Retry(user=1, memory=1, on=(75,))))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]", Failure.MEMORY, status=137))
    h.expect("acquire a*1 (cpu 1, memory 134,217,728 bytes)")


def test_a_pause_holds_up_nobody_else(hand):
    g = Graph("g")
    g.add(body, n=3, name="a", retry=Retry(user=1, delay_s=5.0))
    h = hand(g, workers=1)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]"), h.idle(0))
    h.expect("timer at 5", "launch a[1] on 0")
    h(h.done("a[1]"), h.idle(0))
    h.expect("launch a[2] on 0")
    h(h.done("a[2]"), h.idle(0))
    h.expect()
    h(h.timer(5.0), h.idle(0))
    h.expect("launch a[0] on 0, attempt 1")
    h(h.done("a[0]"))
    h.expect("complete succeeded")


@pytest.mark.parametrize(
    ("asks", "nbytes", "then"),
    [(100, 0, 300), (0, 0, 3 * 64 * 2**20)],
    ids=["what it asked for", "a guess"],
)
def test_out_of_memory_asks_for_more(hand, asks, nbytes, then):
    g = one(retry=Retry(memory=2, memory_factor=3.0), resources=Resources(memory=asks))
    h = hand(g)
    if asks:
        h.expect("acquire a*1 (cpu 1, memory 100 bytes)")
        h(h.granted(a=0))
        h.expect("launch a[0] on 0, cpu 1, memory 100 bytes")
    else:
        h(h.idle(0))
        h.expect("launch a[0] on 0")
    for attempt, memory in enumerate((then, then * 3), start=1):
        h(h.failed("a[0]", Failure.MEMORY))
        h.expect_any_order(*["release 0"] * (attempt > 1 or asks > 0), f"acquire a*1 (cpu 1, memory {memory:,} bytes)")
        h(h.granted(a=0))
        h.expect(f"launch a[0] on 0, attempt {attempt}, cpu 1, memory {memory:,} bytes")
    h(h.failed("a[0]", Failure.MEMORY))
    h.expect_any_order("release 0", "complete failed: a[0] bad")


def test_only_the_task_that_ran_out_asks_for_more(hand):
    g = Graph("g", on_failure=CONTINUE)
    g.add(body, n=3, name="a")
    h = hand(g)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]", Failure.MEMORY))
    h.expect("acquire a*1 (cpu 1, memory 134,217,728 bytes)", "acquire a*1", "acquire a*1")
    more = h.said[-3].request
    h(replace(h.refused("a"), request=more, reason="no node has that much"))
    h.expect()
    assert h.rows("a") == ["fatal", "ready", "ready"]


def test_what_is_refused_to_others_leaves_it_alone(hand):
    g = Graph("g", on_failure=CONTINUE)
    g.add(body, n=2, name="a")
    h = hand(g)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]", Failure.MEMORY))
    h.expect("acquire a*1 (cpu 1, memory 134,217,728 bytes)", "acquire a*1")
    more = h.said[-2].request
    h(h.refused("a"))
    h.expect()
    assert h.rows("a") == ["ready", "fatal"]
    h(replace(h.granted(a=0), request=more))
    h.expect("launch a[0] on 0, attempt 1, cpu 1, memory 134,217,728 bytes")


def test_infrastructure_is_tried_elsewhere(hand):
    h = hand(one(resources=Resources(memory=1)), workers=3)
    h.expect("acquire a*1 (cpu 1, memory 1 bytes)")
    h(h.granted(a=0))
    h.expect("launch a[0] on 0, cpu 1, memory 1 bytes")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE))
    h.expect_any_order("release 0", "acquire a*1 (cpu 1, memory 1 bytes), avoid 0")
    h(h.granted(a=1))
    h.expect("launch a[0] on 1, attempt 1, cpu 1, memory 1 bytes")
    h(h.worker_lost(1))
    h.expect("acquire a*1 (cpu 1, memory 1 bytes), avoid 0")  # a dead worker needs no avoiding
    h(h.granted(a=2))
    h.expect("launch a[0] on 2, attempt 2, cpu 1, memory 1 bytes")


def test_nobody_is_avoided_when_there_is_nobody_else(hand):
    h = hand(one(resources=Resources(memory=1)), workers=1)
    h.expect("acquire a*1 (cpu 1, memory 1 bytes)")
    h(h.granted(a=0))
    h.skip("launch")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE))
    h.expect_any_order("release 0", "acquire a*1 (cpu 1, memory 1 bytes)")


def test_lost_workers_do_not_count_against_the_user(hand):
    h = hand(one(retry=Retry(user=0)), workers=20)
    for worker in range(8):
        h(h.idle(worker))
        h.expect(f"launch a[0] on {worker}" + (f", attempt {worker}" if worker else ""))
        h(h.worker_lost(worker))
        h.expect()
    h(h.idle(9))
    h.expect("launch a[0] on 9, attempt 8")
    h(h.worker_lost(9))
    h.expect(
        "complete failed: a[0] worker 9 was lost: died\nThat was attempt 9: its retries after lost workers are used up."
    )


def test_a_task_that_ends_three_workers_is_at_fault(hand):
    h = hand(one(retry=Retry(user=5)), workers=9)
    for worker in range(2):
        h(h.idle(worker))
        h.expect(f"launch a[0] on {worker}" + (f", attempt {worker}" if worker else ""))
        h(h.worker_lost(worker, crashed='  File "mine.py", line 7, in bad'))
        h.expect()
    h(h.idle(2))
    h.expect("launch a[0] on 2, attempt 2")
    h(h.worker_lost(2, crashed='  File "mine.py", line 7, in bad'))
    says = "worker 2 was lost: died\nIt has ended 3 different workers, so the task is at fault and does not run again."
    h.expect(f"complete failed: a[0] {says}")
    assert h.core.cause is not None
    assert (h.core.cause.kind, h.core.cause.traceback) == ("crash", '  File "mine.py", line 7, in bad')
    assert any("mine.py" in line for line in h.master.inspector.story("a[0]"))


def test_crashes_and_other_losses_are_counted_apart(hand):
    h = hand(one(retry=Retry(crash=1, infrastructure=1)), workers=9)
    for worker, crashed in enumerate((None, "")):
        h(h.idle(worker))
        h.skip("launch")
        h(h.worker_lost(worker, crashed=crashed))
        h.expect()
    h(h.idle(2))
    h.expect("launch a[0] on 2, attempt 2")
    h(h.worker_lost(2, crashed=""))
    h.expect_any_order(
        "complete failed: a[0] worker 2 was lost: died\n"
        "It has ended 2 different workers, so the task is at fault and does not run again."
    )


def test_a_crash_in_a_cone_suspects_each_of_its_tasks(hand):
    g = Graph("g")
    g.add(body, g.add(body, n=1, name="a"), name="b")
    h = hand(g, workers=9)
    h(h.idle(0))
    h.expect("launch b[0] on 0 with a")
    h(h.worker_lost(0, crashed=""), h.idle(1))
    h.expect("launch a[0] on 1, attempt 1")
    h(h.done("a[0]"), h.idle(1))
    h.expect("launch b[0] on 1, attempt 1")
    h(h.worker_lost(1, crashed=""), h.idle(2))
    h.expect("launch b[0] on 2, attempt 2")
    h(h.worker_lost(2, crashed=""))
    h.expect(
        "free a[0]",
        "complete failed: b[0] worker 2 was lost: died\n"
        "It has ended 3 different workers, so the task is at fault and does not run again.",
    )


def test_a_worker_that_is_not_known_is_lost_without_harm(hand):
    h = hand(one())
    h(h.worker_lost(99))
    h.expect()


def test_a_stop_that_nobody_ordered_is_infrastructure(hand):
    h = hand(one())
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.stopped("a[0]"), h.idle(1))
    h.expect("launch a[0] on 1, attempt 1")


# ------------------------------------------------------------------------------------------------------ timeouts


def test_a_task_that_takes_too_long_is_stopped_and_counts_as_the_users(hand):
    h = hand(one(timeout_s=3.0, retry=Retry(user=1)))
    h(h.idle(0))
    h.expect("timer at 3", "launch a[0] on 0")
    h(h.timer(3.0))
    h.expect("stop a[0]: timeout")
    h(h.stopped("a[0]"), h.idle(0))
    h.expect("timer at 6", "launch a[0] on 0, attempt 1")
    h(h.timer(6.0))
    h.expect("stop a[0]: timeout")
    h(h.stopped("a[0]"))
    h.expect("complete failed: a[0] took longer than its timeout of 3 s")


def test_a_task_that_ends_just_in_time_has_ended(hand):
    h = hand(one(timeout_s=3.0))
    h(h.idle(0))
    h.expect("timer at 3", "launch a[0] on 0")
    h(h.done("a[0]"))
    h.expect("complete succeeded")
    h(h.timer(3.0))
    h.expect()


def test_a_task_that_had_ended_when_it_was_told_that_its_time_is_up_has_ended(hand):
    h = hand(one(timeout_s=3.0))
    h(h.idle(0))
    h.expect("timer at 3", "launch a[0] on 0")
    h(h.timer(3.0))
    h.expect("stop a[0]: timeout")
    h(h.done("a[0]"))
    h.expect("complete succeeded")
    assert h.rows("a") == ["finished"]


# ------------------------------------------------------------------------------------------------------ spreading


def spread_graph(on_failure) -> Graph:
    g = Graph("g", on_failure=on_failure)
    a = g.add(body, n=2, name="a")
    b = g.add(body, a, name="b")
    g.add(body, gather(b), n=1, name="c")
    g.add(body, after(a, outcome=Outcome.ANY), n=1, name="any")
    g.add(body, n=2, name="free")
    return g


def test_failure_spreads_along_success_and_along_nothing_else(hand):
    h = hand(spread_graph(CONTINUE), workers=4, cones=False)
    h(h.idle(0, 1, 2))
    h.expect("launch a[0] on 0", "launch free[0] on 1", "launch a[1] on 2")
    h(h.failed("a[0]"))
    h.expect()
    assert (h.rows("b"), h.rows("c"), h.rows("any")) == (["fatal", "unscheduled"], ["fatal"], ["unscheduled"])
    h(h.done("a[1]"), h.idle(0, 2))
    h.expect("launch any[0] on 0", "launch b[1] on 2")
    h(h.done("b[1]"), h.done("any[0]"), h.done("free[0]"), h.idle(0))
    h.expect("free a[1]", "launch free[1] on 0")
    h(h.done("free[1]"))
    h.expect("free b[1]", "complete failed: a[0] bad")
    states = {name: h.state(name) for name in ("a", "b", "c", "any", "free")}
    assert states == {"a": "failed", "b": "failed", "c": "failed", "any": "done", "free": "done"}


def test_fail_fast_stops_everything(hand):
    h = hand(spread_graph(FAIL_FAST), workers=4, cones=False)
    h(h.idle(0, 1, 2))
    h.expect("launch a[0] on 0", "launch free[0] on 1", "launch a[1] on 2")
    h(h.failed("a[0]"))
    h.expect_any_order("stop a[1]: a[0] failed", "stop free[0]: a[0] failed")
    assert h.job == "failing"
    h(h.idle(3))
    h.expect()
    h(h.stopped("a[1]"))
    h.expect()
    h(h.done("free[0]"))  # it ended well before it heard
    h.expect_any_order("free free[0]", "complete failed: a[0] bad")
    assert h.rows("free") == ["cancelled", "cancelled"]


def test_the_first_cause_is_told(hand):
    g = Graph("g", on_failure=CONTINUE)
    g.add(body, n=2, name="a")
    h = hand(g)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.failed("a[1]", message="first"), h.failed("a[0]", message="second"))
    h.expect("complete failed: a[1] first")


def test_a_vertex_that_fails_before_it_knows_its_width_ends(hand):
    from weft.graph.logical import Source

    g = Graph("g", on_failure=CONTINUE)
    plan = g.add(body, n=1, name="plan", expands=True)
    g.add(body, gather(plan), n=Source("plan"), name="load")
    h = hand(g)
    h(h.idle(0))
    h.expect("launch plan[0] on 0")
    h(h.failed("plan[0]"))
    h.expect("complete failed: plan[0] bad")
    assert h.state("load") == "failed"


# ------------------------------------------------------------------------------------------------------- cancel


def cancel_graph() -> Graph:
    g = Graph("g")
    a = g.add(body, n=2, name="a")
    g.add(body, a, name="b")
    return g


def test_cancel_before_anything_runs(hand):
    h = hand(cancel_graph())
    h(h.cancel("changed my mind"))
    h.expect("complete cancelled: changed my mind")
    assert (h.job, h.rows("a"), h.rows("b")) == ("cancelled", ["cancelled"] * 2, ["cancelled"] * 2)


def test_cancel_before_the_job_is_submitted(hand):
    h = hand(cancel_graph(), submit=False)
    h(h.cancel())
    h.expect("complete cancelled: enough")
    assert h.master.over


def test_cancel_while_tasks_run_and_results_exist(hand):
    h = hand(cancel_graph(), cones=False)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]"))
    h.expect()
    h(h.cancel())
    h.expect_any_order("free a[0]", "stop a[1]: enough")
    assert h.job == "cancelling"
    h(h.cancel("again"), h.cancel("and again"), h.idle(0))
    h.expect()
    h(h.stopped("a[1]"))
    h.expect("complete cancelled: enough")


def test_cancel_of_a_cone(hand):
    h = hand(cancel_graph())
    h(h.idle(0))
    h.expect("launch b[0] on 0 with a")
    h(h.cancel())
    h.expect("stop b[0]: enough")
    assert (h.rows("a"), h.rows("b")) == (["cancelling", "cancelled"], ["cancelling", "cancelled"])
    h(h.stopped("b[0]"))
    h.expect("complete cancelled: enough")


def test_cancel_while_the_job_is_failing(hand):
    g = Graph("g")
    g.add(body, n=2, name="a")
    h = hand(g)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.failed("a[0]"))
    h.expect("stop a[1]: a[0] failed")
    h(h.cancel())
    h.expect()
    h(h.stopped("a[1]"))
    h.expect("complete cancelled: enough")


def test_cancel_after_the_end_is_too_late(hand):
    h = hand(one())
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"))
    h.expect("complete succeeded")
    h(h.cancel())
    h.expect()
    assert h.job == "succeeded"


def test_cancel_while_the_worker_dies(hand):
    h = hand(one())
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.cancel())
    h.expect("stop a[0]: enough")
    h(h.worker_lost(0))
    h.expect("complete cancelled: enough")


def test_cancel_while_a_retry_waits(hand):
    h = hand(one(retry=Retry(user=1, delay_s=9.0)))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]"))
    h.expect("timer at 9")
    h(h.cancel())
    h.expect("complete cancelled: enough")
    h(h.timer(9.0), h.idle(0))
    h.expect()


def test_cancel_while_a_request_waits(hand):
    h = hand(one(resources=Resources(cpu=2)))
    h.expect("acquire a*1 (cpu 2)")
    h(h.cancel())
    h.expect("withdraw a", "complete cancelled: enough")
    h(h.granted(a=0))  # on its way when the job ended
    h.expect("release 0")


def test_cancel_while_the_cache_is_asked(hand):
    h = hand(one(cache_key="k"))
    h.expect("probe a[0] k")
    h(h.cancel())
    h.expect("complete cancelled: enough")
    h(h.hit("a[0]"))
    assert [line for line in h.skip() if not line.startswith("free")] == []
    assert h.rows("a") == ["cancelled"]


def test_what_is_given_back_is_given_up_if_what_it_reads_has_failed_meanwhile(hand):
    g = Graph("g", on_failure=CONTINUE)
    a = g.add(body, n=1, name="a")
    g.add(body, gather(a), n=2, name="b")
    h = hand(g, workers=2, cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.output_lost("a[0]"), h.idle(1))
    h.expect("launch a[0] on 1")
    h(h.failed("a[0]"))
    assert h.rows("b") == ["leased", "fatal"]
    h(h.gave_back("b[0]", 0), h.done("b[0]", 0))
    h.expect("complete failed: a[0] bad")


def test_what_is_given_back_is_given_up_if_the_one_that_had_succeeded_has_failed_meanwhile(hand):
    g = Graph("g", on_failure=CONTINUE)
    sources = [g.add(body, n=1, name=name, keep=True) for name in "ac"]
    g.add(body, *[after(source, outcome=Outcome.ONE_SUCCESS) for source in sources], n=1, name="b")
    h = hand(g, workers=3, cones=False)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch c[0] on 1")
    h(h.failed("a[0]"), h.done("c[0]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.output_lost("c[0]"), h.idle(1))
    h.expect("launch c[0] on 1")
    h(h.failed("c[0]"))
    assert h.rows("b") == ["leased"]
    h(h.gave_back("b[0]", 0), h.done("b[0]", 0))
    h.expect("complete failed: a[0] bad")


def test_what_a_failed_cone_has_not_run_is_given_up_if_what_it_reads_has_failed_meanwhile(hand):
    g = Graph("g", on_failure=CONTINUE)
    x = g.add(body, n=1, name="x", keep=True)
    g.reduce(body, g.add(body, gather(x), n=8, name="a"), name="root")
    h = hand(g, workers=2, realign=1)
    for name in ("x[0]", "a[0]", "a[1]", "body[0]"):
        h(h.idle(0))
        h.expect(f"launch {name} on 0")
        h(h.done(name))
        h.skip("free")
    h(h.idle(0))
    h.expect("launch body[1] on 0 with a")
    h(h.output_lost("x[0]"), h.idle(1))
    h.expect("launch x[0] on 1")
    h(h.failed("x[0]"))
    assert h.rows("a") == ["freed"] * 2 + ["leased"] * 2 + ["fatal"] * 4
    h(h.failed("body[1]", at="a[2]"))
    assert h.rows("a") == ["freed"] * 2 + ["fatal"] * 6
    h.expect("free body[0]", "complete failed: x[0] bad")
