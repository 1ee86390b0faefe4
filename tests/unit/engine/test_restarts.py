"""Restart rules of vertices, and the backoff of a job: how often what fails starts again, and after which pauses."""

import pytest

from tests.unit.engine.hand import body
from weft.graph.builder import Graph
from weft.graph.logical import Backoff, OnFailure, RestartPolicy, Retry
from weft.graph.validate import validate
from weft.model.errors import GraphError
from weft.model.failures import Failure

AT_ONCE = Backoff(delay_s=0.0)


def one(rule: RestartPolicy | None, backoff: Backoff = AT_ONCE, **fields) -> Graph:
    g = Graph("g", backoff=backoff)
    g.add(body, n=1, name="a", restart=rule, **fields)
    return g


@pytest.mark.parametrize(
    ("rule", "kind", "status", "again"),
    [
        (RestartPolicy.NEVER, Failure.USER, 143, False),
        (RestartPolicy.NEVER, Failure.MEMORY, 137, False),
        (RestartPolicy.ON_FAILURE, Failure.USER, 1, True),
        (RestartPolicy.ON_FAILURE, Failure.USER, None, True),
        (RestartPolicy.ON_FAILURE, Failure.PROGRAM, None, False),
        (RestartPolicy.EXIT_CODE, Failure.USER, 1, False),
        (RestartPolicy.EXIT_CODE, Failure.USER, 127, False),
        (RestartPolicy.EXIT_CODE, Failure.USER, 128, True),
        (RestartPolicy.EXIT_CODE, Failure.USER, 143, True),
        (RestartPolicy.EXIT_CODE, Failure.USER, None, False),
        (RestartPolicy.EXIT_CODE, Failure.MEMORY, None, True),
    ],
)
def test_a_rule_says_which_failures_start_a_task_again(hand, rule, kind, status, again):
    h = hand(one(rule, retry=Retry(user=0 if again else 5, memory=0 if again else 5)))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]", kind, status=status))
    assert h.job == ("running" if again else "failed")
    h.pending.clear()


def test_a_lost_worker_is_counted_under_every_rule(hand):
    h = hand(one(RestartPolicy.NEVER, retry=Retry(infrastructure=1)))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE), h.idle(1))
    h.expect("launch a[0] on 1, attempt 1")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE))
    assert h.job == "failed"
    h.pending.clear()


def test_restarts_go_on_without_end_where_there_is_no_limit(hand):
    h = hand(one(RestartPolicy.ON_FAILURE))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    for attempt in range(1, 50):
        h(h.failed("a[0]"), h.idle(0))
        h.expect(f"launch a[0] on 0, attempt {attempt}")
    h(h.done("a[0]"))
    h.expect("complete succeeded")


def test_pauses_grow_up_to_a_limit(hand):
    h = hand(one(RestartPolicy.ON_FAILURE, Backoff(delay_s=10.0, factor=3.0, max_s=60.0)))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    for attempt, pause in enumerate((10.0, 30.0, 60.0, 60.0), start=1):
        h.now = 1000.0 * attempt
        h(h.failed("a[0]"), h.idle(0))
        h.expect(f"timer at {h.now + pause:g}")
        h(h.timer(h.now + pause), h.idle(0))
        h.expect(f"launch a[0] on 0, attempt {attempt}")


def test_the_limit_counts_over_all_tasks_of_all_roles(hand):
    g = Graph("g", on_failure=OnFailure.CONTINUE, backoff=Backoff(limit=2, delay_s=0.0))
    g.add(body, n=1, name="chief", restart=RestartPolicy.ON_FAILURE)
    g.add(body, n=1, name="worker", retry=Retry(user=9))
    h = hand(g, workers=2)
    h(h.idle(0, 1))
    h.expect_any_order("launch chief[0] on 0", "launch worker[0] on 1")
    h(h.failed("chief[0]"), h.idle(0))
    h.expect("launch chief[0] on 0, attempt 1")
    h(h.failed("worker[0]"), h.idle(1))
    h.expect("launch worker[0] on 1, attempt 1")
    h(h.failed("chief[0]", message="again"))
    h.expect("stop worker[0]: chief[0] failed")  # the job fails, though it goes on after other failures
    h(h.stopped("worker[0]"))
    h.expect("complete failed: chief[0] again\nThe job may restart tasks 2 times in all, which is used up.")


def test_failures_that_are_for_good_do_not_use_up_the_limit(hand):
    g = Graph("g", on_failure=OnFailure.CONTINUE, backoff=Backoff(limit=0, delay_s=0.0))
    g.add(body, n=1, name="a", restart=RestartPolicy.NEVER)
    g.add(body, n=1, name="b")
    h = hand(g, workers=2)
    h(h.idle(0, 1))
    h.expect_any_order("launch a[0] on 0", "launch b[0] on 1")
    h(h.failed("a[0]"))
    assert h.job == "running"
    h(h.done("b[0]"))
    h.expect("complete failed: a[0] bad")


def test_a_service_that_runs_always_starts_again_after_it_has_ended_well(hand):
    g = Graph("g", backoff=AT_ONCE)
    s = g.service(body, name="s", restart=RestartPolicy.ALWAYS)
    g.add(body, s, name="a")
    h = hand(g, workers=2)
    h.expect("timer at 30", "acquire s*1, a*1")
    h(h.granted(s=0, a=1))
    h.expect("launch s[0] on 0", "launch a[0] on 1")
    h(h.done("s[0]"))
    h.expect("free s[0]", "launch s[0] on 0, attempt 1")
    h(h.started("s[0]"), h.done("a[0]"))
    h.expect_any_order("release 1", "stop s[0]: its last consumer has ended")
    h(h.stopped("s[0]"))
    h.expect_any_order("release 0", "complete succeeded")


@pytest.mark.parametrize(
    "backoff", [Backoff(limit=-1), Backoff(delay_s=-1.0), Backoff(factor=0.5), Backoff(delay_s=9.0, max_s=1.0)]
)
def test_an_impossible_backoff_is_refused(backoff):
    with pytest.raises(GraphError, match="impossible backoff") as caught:
        validate(one(None, backoff))
    assert caught.value.rule == "backoff"


def test_only_services_run_always():
    with pytest.raises(GraphError, match="never end"):
        validate(one(RestartPolicy.ALWAYS))
