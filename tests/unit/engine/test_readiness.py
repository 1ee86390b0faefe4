"""When a task may start: every movement, every gate."""

from typing import Any

import pytest

from tests.unit.engine.hand import body, run_out
from weft.engine.commands import MarkEnded
from weft.engine.events import JobSubmitted
from weft.engine.replay import Tape, Tick, replay
from weft.graph.builder import Graph, after, custom, gather, grid, one_to_one, shuffle
from weft.graph.grid import group, ranges, ungroup, whole
from weft.graph.logical import OnFailure, Outcome, Retry, Trigger
from weft.graph.routing import CUSTOM, Router
from weft.model.resources import Resources


def pair(n: int, link, m: int, **fields) -> Graph:
    g = Graph("g", on_failure=fields.pop("on_failure", OnFailure.FAIL_FAST))
    a = g.add(body, n=n, name="a", keep=True)
    g.add(body, link(a), n=m, name="b", **fields)
    return g


def release_order(hand, graph, n: int) -> list[list[int]]:
    """Let a[0], a[1], ... end one after another; return which tasks of b each made ready."""
    h = hand(graph, workers=n, cones=False)
    h(h.idle(*range(n)))
    h.expect(*[f"launch a[{i}] on {i}" for i in range(n)])
    released = []
    ready: set[int] = set()
    for i in range(n):
        h(h.done(f"a[{i}]"))
        h.expect()
        now = {k for k, state in enumerate(h.rows("b")) if state == "ready"}
        released.append(sorted(now - ready))
        ready = now
    return released


class Reverse(Router):
    """Task d reads task n - 1 - d."""

    def inputs(self, dst):
        return ((self.n_src - 1 - dst, self.n_src - dst, 0, 1),)

    def consumers(self, src):
        return ((self.n_src - 1 - src, self.n_src - src),)


@pytest.fixture
def reverse():
    CUSTOM["tests:reverse"] = lambda n_src, n_dst, params: Reverse(n_src, n_dst)
    yield
    del CUSTOM["tests:reverse"]


@pytest.mark.usefixtures("reverse")
@pytest.mark.parametrize(
    ("n", "link", "m", "released"),
    [
        (3, one_to_one, 3, [[0], [1], [2]]),
        (3, gather, 2, [[], [], [0, 1]]),
        (3, shuffle, 2, [[], [], [0, 1]]),
        (4, lambda a: grid(a, group(0, 2), src=(4,), dst=(2,)), 2, [[], [0], [], [1]]),
        (5, lambda a: grid(a, group(0, 2), src=(5,), dst=(3,)), 3, [[], [0], [], [1], [2]]),
        (2, lambda a: grid(a, ungroup(0, 2), src=(2,), dst=(4,)), 4, [[0, 1], [2, 3]]),
        (4, lambda a: grid(a, whole(0), src=(4,), dst=(3,)), 3, [[], [], [], [0, 1, 2]]),
        (4, lambda a: grid(a, group(0, 2, step=1), src=(4,), dst=(4,)), 4, [[], [0], [1], [2, 3]]),
        (4, lambda a: grid(a, ranges(0, [(0, 3), (2, 4)]), src=(4,), dst=(2,)), 2, [[], [], [0], [1]]),
        (4, lambda a: grid(a, group(1, 2), src=(2, 2), dst=(1,)), 1, [[], [], [], [0]]),
        (3, lambda a: custom(a, "tests:reverse"), 3, [[2], [1], [0]]),
        (3, after, 2, [[], [], [0, 1]]),
    ],
    ids=[
        "one",
        "gather",
        "shuffle",
        "group",
        "group-rest",
        "ungroup",
        "whole",
        "window",
        "ranges",
        "2d",
        "custom",
        "after",
    ],
)
def test_a_task_is_ready_when_all_it_reads_is_there(hand, n, link, m, released):
    assert release_order(hand, pair(n, link, m), n) == released


def test_a_shuffle_over_fewer_pieces_than_tasks_leaves_some_with_nothing_to_wait_for(hand):
    h = hand(pair(1, lambda a: shuffle(a, 2), 3), cones=False)
    assert h.rows("b") == ["ready", "unscheduled", "unscheduled"]
    h(h.idle(0, 1))
    h.expect("launch b[0] on 0", "launch a[0] on 1")
    h(h.done("a[0]"), h.idle(1))
    h.expect("launch b[1] on 1")
    assert h.rows("b") == ["leased", "leased", "ready"]


def test_two_narrow_inputs_are_counted_for_each_task(hand):
    g = Graph("g")
    a, b = (g.add(body, n=2, name=name) for name in "ab")
    g.add(body, a, b, name="c")
    h = hand(g, workers=4, cones=False)
    h(h.idle(0, 1, 2, 3))
    h.expect("launch a[0] on 0", "launch b[0] on 1", "launch a[1] on 2", "launch b[1] on 3")
    h(h.done("a[0]"), h.done("b[1]"))
    h.expect()
    assert h.rows("c") == ["unscheduled", "unscheduled"]
    h(h.done("b[0]"))
    h.expect()
    assert h.rows("c") == ["ready", "unscheduled"]
    h(h.done("a[1]"))
    h.expect()
    assert h.rows("c") == ["ready", "ready"]


def test_one_source_read_twice_counts_twice(hand):
    g = Graph("g")
    a = g.add(body, n=2, name="a")
    g.add(body, a, grid(a, group(0, 2, offset=-1, step=1), src=(2,), dst=(2,)), n=2, name="b")
    h = hand(g, cones=False)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[1]"), h.idle(1))
    h.expect()
    h(h.done("a[0]"), h.idle(0, 1))
    h.expect("launch b[0] on 0", "launch b[1] on 1")
    h(h.done("b[0]"))
    h.expect()
    h(h.done("b[1]"))
    h.expect_any_order("free a[0]", "free a[1]", "complete succeeded")


def test_wide_and_narrow_inputs_together(hand):
    g = Graph("g")
    table = g.add(body, n=1, name="table")
    a = g.add(body, n=2, name="a")
    g.add(body, a, gather(table), n=2, name="b")
    h = hand(g, workers=3, cones=False)
    h(h.idle(0, 1, 2))
    h.expect("launch table[0] on 0", "launch a[0] on 1", "launch a[1] on 2")
    h(h.done("a[0]"), h.idle(1))
    h.expect()
    h(h.done("table[0]"), h.idle(0, 1))
    h.expect("launch b[0] on 0")
    h(h.done("a[1]"), h.idle(1))
    h.expect("launch b[1] on 1")


def test_a_vertex_without_tasks_is_done_at_once_and_holds_nobody_up(hand):
    g = Graph("g")
    a = g.add(body, n=0, name="a")
    g.add(body, gather(a), n=1, name="b")
    g.add(body, after(a), n=1, name="c")
    h = hand(g)
    assert (h.state("a"), h.rows("b"), h.rows("c")) == ("done", ["ready"], ["ready"])


def test_a_job_without_tasks_succeeds(hand):
    g = Graph("g")
    g.add(body, n=0, name="a")
    h = hand(g)
    h.expect("complete succeeded")
    assert h.master.over


# --------------------------------------------------------------------------------------------------------- gates


@pytest.mark.parametrize(("fraction", "needed"), [(0.1, 1), (0.5, 2), (0.51, 3), (1.0, 4)])
def test_a_fraction_gate_opens_when_so_many_have_finished(hand, fraction, needed):
    h = hand(pair(4, lambda a: gather(a, fraction=fraction), 1), workers=4, cones=False)
    h(h.idle(0, 1, 2, 3))
    h.expect(*[f"launch a[{i}] on {i}" for i in range(4)])
    for i in range(4):
        assert h.rows("b") == ["ready" if i >= needed else "unscheduled"]
        h(h.done(f"a[{3 - i}]"))
        h.expect(*["a has ended"][: i == 3])
    assert h.rows("b") == ["ready"]


def test_a_replay_gives_the_end_of_a_source_again(hand):
    graph = pair(1, lambda a: gather(a, fraction=1.0), 1)
    h = hand(graph, workers=1, cones=False, submit=False)
    ticks = []
    handle = h.master.handle

    def recorded(events):
        ticks.append(Tick(tuple(events), ()))
        return handle(events)

    h.master.handle = recorded
    h(JobSubmitted(0.0), h.idle(0))
    h(h.skip() and h.done("a[0]"))
    assert "a has ended" in h.skip()
    assert MarkEnded("a") in replay(hand(graph, workers=1, cones=False, submit=False).master, Tape(), ticks).commands


def test_an_event_gate_opens_at_the_first_event_of_that_name(hand):
    h = hand(pair(1, lambda a: gather(a, concurrent=True, event="rows"), 1), cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.emitted("a", "other"))
    h.expect("publish a[0] other")
    assert h.rows("b") == ["unscheduled"]
    h(h.emitted("a", "rows", {"count": 7}), h.idle(1))
    h.expect("publish a[0] rows", "launch b[0] on 1")
    h(h.emitted("a", "rows"))
    h.expect("publish a[0] rows")


def test_a_source_that_ends_without_the_event_fails_who_waits_for_it(hand):
    h = hand(pair(1, lambda a: after(a, event="rows"), 1), cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"))
    assert h.job == "failed"
    assert "a has ended without the event 'rows'" in h.skip("complete")[0] + "".join(h.master.inspector.story("b"))
    h.skip()


def test_source_configured_is_enough_for_a_concurrent_edge(hand):
    h = hand(pair(2, lambda a: after(a, concurrent=True, when=Trigger.SOURCE_CONFIGURED), 1), workers=1, cones=False)
    h(h.idle(0))
    h.expect("launch b[0] on 0")


@pytest.mark.parametrize(("fraction", "started"), [(0.5, 1), (1.0, 2)])
def test_a_running_gate_counts_tasks_that_run_or_have_ended(hand, fraction, started):
    h = hand(pair(2, lambda a: after(a, concurrent=True, fraction=fraction), 1), cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    assert h.rows("b") == ["ready" if started == 1 else "unscheduled"]
    h(h.idle(1))
    h.expect("launch b[0] on 1" if started == 1 else "launch a[1] on 1")
    assert h.rows("b") != ["unscheduled"]


EARLY = [
    lambda a: gather(a, fraction=0.25),
    lambda a: gather(a, concurrent=True, fraction=0.25),
    lambda a: gather(a, concurrent=True, when=Trigger.SOURCE_CONFIGURED),
]


@pytest.mark.parametrize("read", EARLY, ids=["fraction", "running", "configured"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_readers_leave_the_slots_to_the_source_until_all_its_tasks_have_one(hand, read, workers):
    h = hand(pair(4, read, 3), workers=workers, cones=False)

    def ends(live: list[str]) -> str:
        """Readers end after all tasks of the source."""
        return next((name for name in live if name.startswith("a")), "") or _reader(h, live)

    assert run_out(h, range(workers), pick=ends)[-1] == "complete succeeded"


def _reader(h: Any, live: list[str]) -> str:
    assert h.core.by_id["a"].finished == 4, "readers hold all slots, and wait for tasks without one"
    return live[0]


def test_readers_that_have_not_started_wait_again_for_a_task_that_is_retried(hand):
    g = Graph("g")
    a = g.add(body, n=2, name="a", retry=Retry(user=1))
    g.add(body, gather(a, fraction=0.5), n=2, name="b")
    h = hand(g, workers=2, cones=False)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]"))
    assert h.rows("b") == ["ready", "ready"]
    h(h.failed("a[1]"), h.idle(0))
    h.expect("launch a[1] on 0, attempt 1")
    assert h.rows("b") == ["ready", "ready"]  # all tasks of the source have slots again


def test_readers_without_a_slot_start_as_soon_as_they_may(hand):
    g = Graph("g")
    a = g.add(body, n=4, name="a")
    g.add(body, gather(a, fraction=0.25), n=1, name="b", resources=Resources(cpu=0))
    h = hand(g, workers=1, cones=False)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"))
    assert h.rows("b") == ["leased"]
    h.skip()


def test_any_runs_after_failure_too(hand):
    h = hand(pair(1, lambda a: after(a, outcome=Outcome.ANY), 1, on_failure=OnFailure.CONTINUE))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.failed("a[0]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.done("b[0]"))
    h.expect("complete failed: a[0] bad")
    assert (h.state("a"), h.state("b")) == ("failed", "done")


def three_for_one() -> Graph:
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    sources = [g.add(body, n=1, name=name) for name in "abc"]
    g.add(body, *[after(source, outcome=Outcome.ONE_SUCCESS) for source in sources], n=1, name="d")
    return g


def test_one_success_starts_at_the_first(hand):
    h = hand(three_for_one(), workers=3)
    h(h.idle(0, 1, 2))
    h.expect("launch a[0] on 0", "launch b[0] on 1", "launch c[0] on 2")
    h(h.failed("a[0]"))
    h.expect()
    assert h.rows("d") == ["unscheduled"]
    h(h.done("c[0]"), h.idle(0))
    h.expect("launch d[0] on 0")
    h(h.done("b[0]"), h.done("d[0]"))
    h.expect("complete failed: a[0] bad")


def test_one_success_of_none(hand):
    h = hand(three_for_one(), workers=3)
    h(h.idle(0, 1, 2))
    h.skip()
    h(h.failed("a[0]"), h.failed("b[0]"))
    h.expect()
    assert h.rows("d") == ["unscheduled"]
    h(h.failed("c[0]"))
    assert not any(line.startswith("launch") for line in h.skip())
    assert (h.rows("d"), h.job) == (["fatal"], "failed")


def test_a_skipped_source_counts_as_success(hand):
    g = Graph("g")
    d = g.add(body, n=1, name="d")
    b = g.add(body, after(d), n=2, name="b")
    g.add(body, one_to_one(b), n=2, name="c")
    g.add(body, gather(b), n=1, name="e")
    g.choice(d, yes=b, no=[])
    h = hand(g)
    h(h.idle(0))
    h.expect("launch d[0] on 0")
    h(h.done("d[0]", values=["no"]), h.idle(0, 1))
    h.expect_any_order("launch c[0] on 0", "launch e[0] on 1")
    assert h.rows("b") == ["skipped", "skipped"]
