"""What becomes of blame: workers that are avoided, tasks that are tried elsewhere, outputs that are made again."""

from typing import Any

import pytest

from tests.unit.engine.hand import Hand, body
from weft.engine.agenda import Phase
from weft.engine.decisions import Avoid, Readmit, Remake
from weft.engine.explain import explain
from weft.engine.policy import BLAME, VertexManager
from weft.engine.recovery import digest
from weft.graph.builder import Graph, gather
from weft.graph.logical import Retry
from weft.model.failures import Failure
from weft.model.resources import Resources
from weft.policies.blame import NodeExclusion


class Says(VertexManager):
    """A policy that answers each time with the next of what it was given, and shows what it saw."""

    moments: frozenset[Any] = frozenset()
    holds = False
    counts = False

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.seen: list[Any] = []

    def decide(self, view, memo):
        self.seen.append(view)
        return (self.answers.pop(0) if self.answers else []), memo


def flat(n: int, **fields: Any) -> Graph:
    g = Graph("g")
    g.add(body, n=n, name="a", **fields)
    return g


def pair(n: int = 2) -> Graph:
    g = Graph("g")
    g.add(body, gather(g.add(body, n=n, name="a")), n=2, name="b", retry=Retry(infrastructure=3))
    return g


def avoiding(hand: type[Hand], graph: Graph, *more: Any, workers: int = 3, **options: Any) -> tuple[Hand, Says]:
    """A master that avoids worker 0 for 60 s, since a[0] has failed there."""
    says = Says([Avoid(0, 60.0, "it is bad", "much")], *more)
    h = hand(graph, workers=workers, managers={BLAME: lambda: says}, **options)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE))
    h.expect("timer at 60")
    return h, says


# ------------------------------------------------------------------------------------------------------ avoiding


def test_an_avoided_worker_gets_nothing_while_another_will_come(hand):
    h, _ = avoiding(hand, flat(4))
    h(h.idle(0, 1))
    h.expect("launch a[0] on 1, attempt 1")
    h(h.idle(0))
    h.expect()
    h(h.done("a[0]", seconds=100.0), h.idle(0, 1))
    h.expect("launch a[1] on 1")


def test_it_gets_work_if_no_other_will_come(hand):
    h, _ = avoiding(hand, flat(3))
    h(h.idle(0))
    h.expect("launch a[0] on 0, attempt 1")


def test_who_holds_its_worker_for_long_will_not_come(hand):
    g = Graph("g")
    ps = g.service(body, n=1, name="ps")
    g.add(body, ps, n=1, name="train")
    g.add(body, n=1, name="a")
    says = Says([Avoid(0, 60.0, "bad")])
    h = hand(g, workers=3, managers={BLAME: lambda: says})
    h.expect("timer at 30", "acquire ps*1, train*1")
    h(h.granted(ps=1, train=2), h.idle(0))
    h.expect("launch ps[0] on 1", "launch train[0] on 2", "launch a[0] on 0")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE), h.idle(0))
    h.expect("timer at 60", "launch a[0] on 0, attempt 1")


def test_its_time_is_over(hand):
    h, _ = avoiding(hand, flat(3))
    h(h.idle(1))
    h.expect("launch a[0] on 1, attempt 1")
    h(h.timer(60.0), h.idle(0))
    h.expect("launch a[1] on 0")
    assert h.core.avoided == {}
    assert h.core.readmitted == {0: (1, 60.0)}


def test_who_is_the_last_one_left_is_not_avoided(hand):
    h, _ = avoiding(hand, flat(3), workers=2)
    h(h.worker_lost(1))
    h.expect()
    assert h.core.avoided == {}
    assert "not avoided any more: nobody else is left" in "\n".join(h.master.inspector.story("worker 0"))
    h(h.idle(0))
    h.expect("launch a[0] on 0, attempt 1")


def test_the_last_one_cannot_be_avoided(hand):
    says = Says([Avoid(0, 60.0, "bad"), Avoid(1, 60.0, "bad"), Avoid(1, 60.0, "worse"), Avoid(7, 60.0, "gone")])
    h = hand(flat(2), workers=2, managers={BLAME: lambda: says})
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE))
    h.expect("timer at 60")
    assert list(h.core.avoided) == [0]
    assert "rejected: it cannot be avoided, for nobody else is left" in "\n".join(h.master.inspector.story("worker 1"))


def test_to_forgive_ends_the_timer(hand):
    h, _ = avoiding(hand, flat(3), [Readmit(0, "enough"), Readmit(0, "twice"), Readmit(5, "who?")])
    h(h.idle(1))
    h.expect("launch a[0] on 1, attempt 1")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE), h.idle(0, 2))
    h.expect("launch a[0] on 2, attempt 2", "launch a[1] on 0")
    assert h.core.timers == {}


def test_gangs_and_requests_avoid_it(hand):
    g = flat(1)
    left = g.add(body, n=1, name="left")
    g.bubble(left, g.add(body, left, name="right"))
    big = g.add(body, n=1, name="big", resources=Resources(memory=5))
    g.add(body, gather(big), n=1, name="c")
    says = Says([Avoid(0, 60.0, "bad")])
    h = hand(g, workers=3, managers={BLAME: lambda: says})
    h.skip("timer", "acquire")
    h(h.idle(0))
    h.skip()
    h(h.failed("a[0]", Failure.INFRASTRUCTURE))
    h.skip("timer")
    h(h.granted(big=1))
    h.skip("launch")
    h(h.failed("big[0]", Failure.INFRASTRUCTURE))
    h.expect_any_order("release 1", "acquire big*1 (cpu 1, memory 5 bytes), avoid 0 1")
    assert h.core.stages


def test_no_second_attempt_goes_to_it(hand):
    h, _ = avoiding(hand, flat(2))
    h(h.idle(1, 2))
    h.expect("launch a[0] on 1, attempt 1", "launch a[1] on 2")
    h.core.backups_wanted = [(h.leases["a[1]"], "late")]
    h(h.idle(0))
    h.expect()
    h.core.backups_wanted = []


def test_another_worker_is_offered_first_when_jobs_share(hand):
    h, _ = avoiding(hand, flat(3))
    assert list(h.master.choice([1, 2, 0])) == [2, 1]
    assert list(h.master.choice([0])) == [0]
    h(h.timer(60.0))
    h.core.elsewhere.clear()
    assert list(h.master.choice([1, 2, 0])) == [0]


def test_the_story_says_what_was_counted(hand):
    h, _ = avoiding(hand, flat(3))
    assert "worker 0: avoided for 60 s: it is bad (seen: much)" in "\n".join(h.master.inspector.story("worker 0"))
    (change,) = [change for change in explain(h.core).changes if change.subject == "worker 0"]
    assert (change.what, change.seen) == ("avoided for 60 s: it is bad", "much")


def test_an_ending_job_asks_nobody(hand):
    says = Says()
    h = hand(flat(2, retry=Retry(infrastructure=0)), workers=2, managers={BLAME: lambda: says})
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE))
    h.expect("stop a[1]: a[0] failed")
    h(h.stopped("a[1]"))
    h.skip("complete")
    assert says.seen == []


def test_what_failed_is_seen_by_the_policy(hand):
    h, says = avoiding(hand, flat(3), nodes=3)
    h.now = 5.0
    h(h.idle(1))
    h.expect("launch a[0] on 1, attempt 1")
    h(h.worker_lost(1))
    h.expect()
    view = says.seen[-1]
    assert [(f.at, f.worker, f.node, f.task) for f in view.faults] == [(0.0, 0, 0, ("a", 0)), (5.0, 1, 1, ("a", 0))]
    assert [(w.worker, w.node, w.avoided) for w in view.workers] == [(0, 0, True), (2, 2, False)]
    h(h.worker_joined(9, node=1))
    assert [w.worker for w in says.seen[-1].workers] == [0, 2, 9]


@pytest.mark.parametrize("kind", [Failure.USER, Failure.MEMORY])
def test_failures_of_the_program_are_no_fault_of_a_worker(hand, kind):
    says = Says()
    h = hand(flat(1, retry=Retry(user=1)), workers=2, managers={BLAME: lambda: says})
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]", kind))
    h.skip()
    assert says.seen == []


# --------------------------------------------------------------------------------------------------- tried elsewhere


def blamed(hand: type[Hand], graph: Graph, **options: Any) -> Hand:
    return hand(graph, managers={BLAME: NodeExclusion}, **options)


def test_what_failed_is_tried_on_another_worker(hand):
    h = blamed(hand, flat(4), workers=2)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE), h.idle(0))
    h.expect("launch a[2] on 0")
    assert h.rows("a")[0] == "ready"
    h(h.done("a[1]", seconds=9.0), h.done("a[2]", seconds=9.0), h.idle(0, 1))
    h.expect("launch a[0] on 1, attempt 1", "launch a[3] on 0")
    assert h.core.elsewhere == {}


def test_it_does_not_wait_for_ever(hand):
    h = blamed(hand, flat(2), workers=2)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE), h.idle(0))
    h.expect()
    h.now = 1.0
    h(h.tick(), h.idle(0))
    h.expect("launch a[0] on 0, attempt 1")


def test_who_was_told_to_stop_will_come(hand):
    h = blamed(hand, flat(2), workers=3)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h.core.backups_wanted = [(h.leases["a[0]"], "late")]
    h(h.idle(2))
    h.expect("launch a[0]' on 2, attempt 1")
    h(h.done("a[0]'"))
    h.expect("stop a[0]: another attempt was first")
    h(h.failed("a[1]", Failure.INFRASTRUCTURE), h.idle(1))
    h.expect()
    h(h.stopped("a[0]"), h.idle(1, 0))
    h.expect("launch a[1] on 0, attempt 1")


def test_it_does_not_wait_for_nobody(hand):
    h = blamed(hand, flat(1), workers=2)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE), h.idle(0))
    h.expect("launch a[0] on 0, attempt 1")


def test_without_the_policy_it_is_tried_anywhere(hand):
    h = hand(flat(3), workers=2)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.failed("a[0]", Failure.INFRASTRUCTURE), h.idle(0))
    h.expect("launch a[0] on 0, attempt 1")


# ---------------------------------------------------------------------------------------------------- read errors


def reading(hand: type[Hand], workers: int = 3) -> Hand:
    """A master of two tasks b that read both outputs of a, on workers 0 and 1."""
    h = blamed(hand, pair(), workers=workers)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]", seconds=9.0), h.done("a[1]", seconds=9.0), h.idle(0, 1))
    h.expect("launch b[0] on 0", "launch b[1] on 1")
    return h


def test_an_input_that_is_gone_is_made_again_at_once(hand):
    h = reading(hand)
    h(h.failed("b[0]", Failure.INPUT, lost=("a", 1)), h.idle(2))
    h.expect("launch a[1] on 2")
    assert not h.core.faults


def test_what_one_reader_could_not_read_is_left_alone_and_read_elsewhere(hand):
    h = reading(hand)
    h(h.failed("b[0]", Failure.READ, lost=("a", 1)), h.idle(0))
    h.expect()
    h(h.idle(0, 2))
    h.expect("launch b[0] on 2, attempt 1")
    assert h.rows("a") == ["finished"] * 2


def test_what_two_workers_could_not_read_is_made_again(hand):
    h = reading(hand)
    h(h.failed("b[0]", Failure.READ, lost=("a", 1)))
    h.expect()
    h(h.failed("b[1]", Failure.READ, lost=("a", 1)), h.idle(0))
    h.expect("free a[1]", "launch a[1] on 0")
    assert not h.core.faults
    assert "2 workers could not read it" in "\n".join(h.master.inspector.story("a"))
    h(h.done("a[1]"), h.idle(0, 1))
    h.expect("launch b[0] on 1, attempt 1", "launch b[1] on 0, attempt 1")


def test_nothing_is_made_again_that_nobody_reads_any_more(hand):
    h = blamed(hand, pair(), workers=3)
    says = Says([Remake("a", 1, "chaos"), Remake("a", 9, "?"), Remake("z", 0, "?")])
    h.core.policies[BLAME] = says
    h(h.idle(0, 1))
    h.skip("launch")
    h(h.done("a[0]"), h.done("a[1]"), h.idle(0, 1))
    h.expect("launch b[0] on 0", "launch b[1] on 1")
    h(h.done("b[0]"), h.worker_joined(8))
    h.core.later(Phase.EXCLUSION)
    h(h.tick())
    h.skip("shrink")
    assert h.rows("a") == ["finished"] * 2


def test_without_the_policy_the_first_read_error_makes_it_again(hand):
    h = hand(pair(), workers=2)
    h(h.idle(0, 1))
    h.skip("launch")
    h(h.done("a[0]"), h.done("a[1]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.failed("b[0]", Failure.READ, lost=("a", 1)), h.idle(0))
    h.expect("launch a[1] on 0")


def test_of_two_attempts_one_may_not_read(hand):
    h = reading(hand)
    h.core.backups_wanted = [(h.leases["b[0]"], "late")]
    h(h.idle(2))
    h.expect("launch b[0]' on 2, attempt 1")
    h(h.failed("b[0]'", Failure.READ, lost=("a", 0)))
    h.expect()
    assert [fault.unread for fault in h.core.faults] == [("a", 0)]
    assert h.rows("a") == ["finished"] * 2


# -------------------------------------------------------------------------------------------------------- the road


def test_a_worker_that_fails_and_fails_is_avoided(hand):
    h = blamed(hand, flat(40), workers=4)
    for index in range(4):
        h(h.idle(0))
        (launched,) = h.skip("launch")
        h(h.failed(launched.split()[1], Failure.INFRASTRUCTURE), h.idle(1))
        (again,) = [line for line in h.skip("launch", "timer") if line.startswith("launch")]
        assert again.endswith("on 1, attempt 1"), index
        h(h.done(again.split()[1], seconds=1.0))
    assert list(h.core.avoided) == [0]
    text = "\n".join(h.master.inspector.story("worker 0"))
    assert "avoided for 60 s: 4 tasks failed there, 0 on another worker (seen: 4 failures" in text
    before = digest(h.core)
    h.core.avoided.clear()
    assert digest(h.core) != before, "the state that a replay must come to has it"
