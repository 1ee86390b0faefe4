"""The sweeps of a tick: from a shape of the graph and an event to the states of all other tasks."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.unit.engine.hand import Hand, body
from weft.engine import settle
from weft.engine.invariants import check
from weft.engine.machines.task import TaskState
from weft.engine.notes import NoteKind
from weft.engine.readiness import recount
from weft.engine.rows import FATAL, FINISHED, FREED, LOST, SKIPPED, write_mixed
from weft.graph.builder import Graph, InputSpec, VertexHandle, after, gather, one_to_one, shuffle
from weft.graph.logical import OnFailure, Outcome, SameAs, Source, Trigger
from weft.model.errors import InternalError
from weft.model.failures import Failure

CONTINUE = OnFailure.CONTINUE
Edge = Callable[[VertexHandle], InputSpec]


def shape(*edges: Edge, n: int = 3, on_failure: OnFailure = CONTINUE) -> Graph:
    """A chain a, b, c, ... of `n` tasks each, joined by `edges`."""
    g = Graph("g", on_failure=on_failure)
    node = g.add(body, n=n, name="a")
    for name, edge in zip("bcdef", edges, strict=False):
        node = g.add(body, edge(node), n=n, name=name)
    return g


def run_a(h: Hand) -> None:
    """Lease the tasks of `a` one by one to a worker each."""
    h(h.idle(*h.core.workers))
    h.skip()


class Case(NamedTuple):
    """The failure of `a[1]` in a chain, and the rows after it."""

    edges: tuple[Edge, ...]
    rows: dict[str, list[str]]


RUNS, WAITS, LOST_IT = "leased", "unscheduled", "fatal"


def gone(node: VertexHandle) -> InputSpec:
    return after(node)


def anyhow(node: VertexHandle) -> InputSpec:
    return after(node, outcome=Outcome.ANY)


@pytest.mark.parametrize(
    "case",
    [
        Case((one_to_one,), {"b": [WAITS, LOST_IT, WAITS]}),
        Case((one_to_one, one_to_one), {"b": [WAITS, LOST_IT, WAITS], "c": [WAITS, LOST_IT, WAITS]}),
        Case((gather,), {"b": [LOST_IT] * 3}),
        Case((shuffle,), {"b": [LOST_IT] * 3}),
        Case((gone,), {"b": [LOST_IT] * 3}),
        Case((anyhow,), {"b": [WAITS] * 3}),
        Case((one_to_one, gather, one_to_one), {"b": [WAITS, LOST_IT, WAITS], "c": [LOST_IT] * 3, "d": [LOST_IT] * 3}),
        Case((one_to_one, anyhow, one_to_one), {"b": [WAITS, LOST_IT, WAITS], "c": [WAITS] * 3, "d": [WAITS] * 3}),
    ],
    ids=lambda case: "-".join(edge.__name__ for edge in case.edges),
)
def test_a_failed_task_takes_along_the_tasks_that_need_it(hand, case):
    h = hand(shape(*case.edges), workers=3, cones=False)
    run_a(h)
    h(h.failed("a[1]"))
    h.skip()
    assert {vertex: h.rows(vertex) for vertex in case.rows} == case.rows
    assert h.rows("a") == [RUNS, LOST_IT, RUNS]


def test_two_failures_of_one_tick_are_settled_together(hand):
    h = hand(shape(one_to_one, one_to_one), workers=3, cones=False)
    run_a(h)
    h(h.failed("a[0]"), h.failed("a[2]", message="worse"))
    h.skip()
    assert h.rows("b") == h.rows("c") == ["fatal", "unscheduled", "fatal"]
    assert h.core.cause is not None
    assert h.core.cause.task == "a[0]"


def test_a_reader_of_two_failed_vertices_fails_once(hand):
    g = Graph("g", on_failure=CONTINUE)
    a, b = g.add(body, n=1, name="a"), g.add(body, n=1, name="b")
    g.add(body, a, b, name="c")
    h = hand(g, cones=False)
    run_a(h)
    h(h.failed("a[0]"), h.failed("b[0]"))
    h.skip()
    assert h.state("c") == "failed"
    assert [note.values[0] for note in h.core.ring if note.kind is NoteKind.CANNOT_RUN] == ["a"]


def test_the_stop_of_a_job_cancels_what_no_failure_reaches(hand):
    g = shape(one_to_one, one_to_one, on_failure=OnFailure.FAIL_FAST)
    h = hand(g, workers=3, cones=False)
    run_a(h)
    h(h.failed("a[1]"))
    h.skip()
    assert h.rows("b") == h.rows("c") == ["cancelled", "fatal", "cancelled"]
    h(h.stopped("a[0]"), h.stopped("a[2]"))
    h.expect("complete failed: a[1] bad")


def test_a_vertex_ends_with_the_vertex_whose_parallelism_it_shares(hand):
    g = Graph("g", on_failure=CONTINUE)
    plan = g.add(body, n=1, name="plan", expands=True)
    bad = g.add(body, n=1, name="bad")
    wide = g.add(body, after(plan), after(bad), n=Source("plan"), name="wide")
    g.add(body, after(wide, outcome=Outcome.ANY), n=SameAs("wide"), name="twin")
    h = hand(g, workers=2, cones=False)
    run_a(h)
    h(h.failed("bad[0]"))
    h.expect()
    assert (h.state("wide"), h.state("twin")) == ("failed", "failed")
    h(h.done("plan[0]", values=(3,)))
    h.expect("free plan[0]", "complete failed: bad[0] bad")


@pytest.mark.parametrize(("event", "state"), [("go", "ready"), ("", "fatal")])
def test_an_event_that_cannot_come_fails_its_vertex(hand, event, state):
    g = Graph("g", on_failure=CONTINUE)
    a = g.add(body, n=1, name="a")
    g.add(body, after(a, when=Trigger.EVENT, event="go"), n=2, name="b")
    g.add(body, n=1, name="other")
    h = hand(g, workers=2, cones=False)
    run_a(h)
    h(*([h.emitted("a", event)] if event else []), h.done("a[0]"))
    h.skip()
    assert h.rows("b") == [state] * 2


# ------------------------------------------------------------------------------------------------------- skips


def test_a_reader_of_a_skipped_branch_and_of_another_vertex(hand):
    g = Graph("g")
    d = g.add(body, n=1, name="d", expands=True)
    x = g.add(body, d, n=2, name="x")
    y = g.add(body, n=2, name="y")
    g.add(body, one_to_one(x), one_to_one(y), n=2, name="z")
    g.choice(d, yes=x, no=[])
    h = hand(g, workers=3, cones=False)
    run_a(h)
    h(h.done("y[0]"), h.done("d[0]", values=("no",)))
    h.skip()
    assert h.rows("x") == ["skipped", "skipped"]
    assert h.rows("z") == ["ready", "unscheduled"]


# ------------------------------------------------------------------------------------------------------ wanted


def test_a_loss_is_made_again_as_far_back_as_needed(hand):
    h = hand(shape(one_to_one, one_to_one, n=2), workers=3, cones=False)
    run_a(h)
    h(h.done("a[0]"), h.done("a[1]"), h.idle(0, 1))
    h.skip()
    assert h.rows("b") == ["leased", "leased"]
    h(h.done("b[0]"), h.output_lost("b[0]"))
    h.skip()
    assert (h.rows("a"), h.rows("b")) == (["ready", "finished"], ["unscheduled", "leased"])
    assert h.rows("c") == ["unscheduled", "unscheduled"]


def test_a_lost_output_whose_reader_fails_in_the_same_tick_is_dropped(hand):
    g = Graph("g", on_failure=CONTINUE)
    a, x = g.add(body, n=1, name="a"), g.add(body, n=1, name="x")
    g.add(body, a, x, n=1, name="b")
    h = hand(g, workers=2, cones=False)
    run_a(h)
    h(h.done("a[0]"))
    h.expect()
    h(h.output_lost("a[0]"), h.failed("x[0]"))
    h.expect("complete failed: x[0] bad")
    assert h.rows("a") == ["freed"]
    assert h.rows("b") == ["fatal"]


def test_many_losses_of_one_tick_are_one_walk(hand, monkeypatch):
    counted: list[str] = []

    def counting(core, stage):
        counted.append(stage.id)
        recount(core, stage)

    monkeypatch.setattr(settle, "recount", counting)
    h = hand(shape(gather, n=3), workers=3, cones=False)
    run_a(h)
    h(h.done("a[0]"), h.done("a[1]"))
    h.skip()
    h(h.output_lost("a[0]"), h.output_lost("a[1]"))
    assert sorted(counted) == ["a", "b"]
    assert h.rows("a") == ["ready", "ready", "leased"]


def test_a_service_whose_last_reader_has_failed_stops(hand):
    g = Graph("g", on_failure=CONTINUE)
    s = g.service(body, name="s")
    g.add(body, s, n=1, name="a")
    h = hand(g, workers=3)
    h.skip()
    h(h.granted(s=0, a=1))
    h.skip("launch")
    h(h.failed("a[0]"))
    h.expect("release 1", "stop s[0]: its last consumer has ended")
    h(h.stopped("s[0]"))
    h.expect("release 0", "complete failed: a[0] bad")


def test_a_service_that_gives_its_task_back_while_it_stops_is_not_started_again(hand):
    g = Graph("g")
    s = g.service(body, name="s")
    a = g.add(body, s, n=1, name="a")
    g.add(body, after(a), n=1, name="b")
    h = hand(g, workers=3)
    h.skip()
    h(h.granted(s=0, a=1))
    h.skip("launch")
    h(h.done("a[0]"))
    h.expect("release 1", "stop s[0]: its last consumer has ended")
    h(h.gave_back("s[0]", 0))
    h.expect()
    h(h.done("s[0]", 0))
    h.expect("release 0")
    assert (h.state("s"), h.rows("s")) == ("done", ["skipped"])
    h(h.idle(2))
    h.skip()
    h(h.done("b[0]"))
    h.expect("complete succeeded")


# ---------------------------------------------------------------------------------------------------- the cost


def test_a_failure_at_the_root_of_many_tasks_costs_one_pass(hand, monkeypatch):
    writes: list[tuple[str, int, int]] = []

    def counted(core, stage, lo, hi, new):
        writes.append((stage.id, lo, hi))
        write_mixed(core, stage, lo, hi, new)

    monkeypatch.setattr(settle, "write_mixed", counted)
    g = Graph("g", on_failure=CONTINUE)
    node = g.add(body, n=1, name="a")
    node = g.add(body, gather(node), n=100_000, name="b")
    g.add(body, one_to_one(node), n=100_000, name="c")
    h = hand(g, workers=1, cones=False)
    h(h.idle(0))
    h.skip()
    h.master.handle([h.failed("a[0]")])
    assert writes == [("b", 0, 100_000), ("c", 0, 100_000)]
    assert h.state("c") == "failed"
    entries = [note for note in h.core.ring if note.kind is NoteKind.CANNOT_RUN]
    assert [note.subject for note in entries] == ["b", "c"]


# -------------------------------------------------------------------------------------------------- the checks


def broken(h: Hand, says: str) -> None:
    with pytest.raises(InternalError, match=says):
        check(h.core)


def test_the_invariants_see_a_task_that_waits_for_a_failed_one(hand, monkeypatch):
    h = hand(shape(one_to_one), workers=3, cones=False)
    run_a(h)
    monkeypatch.setattr("weft.engine.failures.mark", lambda *_: None)
    h.master.handle([h.failed("a[1]", Failure.USER)])
    broken(h, r"task 1 does not wait for a, which has failed")


@pytest.mark.parametrize(
    ("state", "says"), [(LOST, "a lost output is made again"), (FREED, "is there, or is made again")]
)
def test_the_invariants_see_an_output_that_nobody_makes_again(hand, state, says):
    g = Graph("g")
    a, x = g.add(body, n=2, name="a"), g.add(body, n=2, name="x")
    g.add(body, one_to_one(a), one_to_one(x), n=2, name="b")
    h = hand(g, workers=2, cones=False)
    h(h.idle(0, 1))
    h.skip()
    stage = h.core.by_id["a"]
    done = next(name for name in h.leases if name.startswith(("a[", "x[")))
    h(h.done(done))
    stage = h.core.by_id[done[0]]
    index = stage.state.index(FINISHED)
    stage.state[index] = state
    reader = h.core.by_id["b"]
    assert reader.missing is not None
    reader.missing[index] += 1
    if state == LOST:
        stage.finished, stage.over = 0, 0
    broken(h, says)


def test_the_invariants_see_work_that_no_phase_has_done(hand):
    h = hand(shape(one_to_one))
    h.core.due = 1
    broken(h, "no phase has work left")


def test_a_sweep_without_marks_changes_nothing(hand):
    h = hand(shape(one_to_one), workers=3, cones=False)
    run_a(h)
    before = [bytes(stage.state) for stage in h.core.stages]
    settle.settle_down(h.core)
    assert [bytes(stage.state) for stage in h.core.stages] == before
    assert not any(state in (FATAL, SKIPPED) for rows in before for state in rows)
    assert TaskState.LEASED in before[0]
