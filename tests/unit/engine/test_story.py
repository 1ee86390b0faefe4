"""What is told: stories, views, and errors that carry the story."""

from itertools import pairwise

import pytest

from tests.unit.engine.hand import Hand, body
from weft.engine.machines.job import JOB, JobState
from weft.engine.machines.table import arcs, final, step
from weft.engine.machines.task import COMPOSITES, ENDED, LIVE, TASK, TaskState, check_composites
from weft.engine.notes import NoteKind
from weft.engine.physical import Intervals
from weft.engine.rows import write
from weft.graph.builder import Graph, after, gather
from weft.graph.logical import Retry, Role, Source
from weft.model.errors import InvalidTransition
from weft.model.failures import Failure


def told(hand: type[Hand]) -> Hand:
    g = Graph("g")
    a = g.add(body, n=2, name="a", retry=Retry(user=1))
    g.add(body, gather(a), n=1, name="b")
    h = hand(g)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h.now = 2.5
    h(h.failed("a[1]", message="no such file"), h.done("a[0]"))
    h.expect()
    h(h.worker_lost(1))
    h.expect()
    return h


def test_the_story_of_a_task(hand):
    h = told(hand)
    story = "\n".join(h.master.inspector.story("a[1]"))
    assert "attempt failed on worker 1 (user): no such file" in story
    assert "2.500000s" in story
    assert story.endswith("now  a[1]: READY, 1 failed attempts")
    assert "a[0]" not in story


def test_the_story_of_a_task_in_a_lease_says_which_and_where(hand):
    h = told(hand)
    h(h.idle(0))
    h.expect("launch a[1] on 0, attempt 1")
    (now,) = [line for line in h.master.inspector.story("a[1]") if " now " in line]
    assert "LEASED" in now
    assert f"in lease {h.leases['a[1]']} on worker 0" in now


def test_the_story_of_a_vertex_holds_those_of_its_tasks(hand):
    story = "\n".join(told(hand).master.inspector.story("a"))
    assert "a[0]" in story
    assert "a[1]" in story
    assert story.endswith("now  a: running, 2 tasks, 1 finished, 1 over, 0 executing, 0 gates shut")


def test_the_story_of_a_worker_and_of_the_job(hand):
    h = told(hand)
    assert h.master.inspector.story("worker 1") == ("  2.500000s  worker 1: lost: died",)
    story = h.master.inspector.story()
    assert story[-1] == "     now  job job: running, 2 vertices not ended"
    assert any("lost" in line for line in story)


def test_a_story_says_what_a_task_waits_for(hand):
    assert h_waits(hand).endswith("b[0]: UNSCHEDULED, waits for a")


def h_waits(hand) -> str:
    return told(hand).master.inspector.story("b[0]")[-1]


@pytest.mark.parametrize("subject", ["nobody", "nobody[3]", "a[99]", "]", "a[x]"])
def test_stories_of_nothing(hand, subject):
    story = told(hand).master.inspector.story(subject)
    assert len(story) <= 1
    if subject == "a[99]":
        assert "there is no task 99" in story[0]


def test_a_vertex_whose_width_is_not_known_has_a_story_too(hand):
    g = Graph("g")
    x = g.add(body, n=1, name="x", expands=True)
    g.add(body, after(x), n=Source("x"), name="b")
    h = hand(g)
    assert h.master.inspector.story("b") == ("     now  b: configuring, parallelism not known yet",)
    assert h.master.inspector.view().vertices[1].n == -1


def test_a_view_tells_a_vertex_that_failed_from_one_that_never_ran(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    g.add(body, gather(a), n=1, name="b")
    h = hand(g)
    h(h.idle(0))
    h.skip("launch")
    h(h.failed("a[0]"))
    h.skip()
    assert [vertex.state for vertex in h.master.inspector.view().vertices] == ["failed", "cancelled"]


def test_a_view_counts(hand):
    h = told(hand)
    h(h.idle(0))
    h.skip("launch")
    a, b = h.master.inspector.view().vertices
    assert (a.id, a.state, a.n, a.finished, a.executing, a.ready, a.failed) == ("a", "running", 2, 1, 1, 0, 0)
    assert (b.id, b.state, b.finished) == ("b", "configured", 0)
    assert h.master.inspector.view().job == "job"
    assert h.master.wants_workers is False


def test_the_ring_forgets_the_oldest(hand):
    g = Graph("g")
    g.add(body, n=40, name="a")
    h = hand(g, workers=1)
    h.core.ring = type(h.core.ring)(maxlen=8)
    for index in range(20):
        h(h.output_lost("nobody[0]"))
        h.core.note("a", NoteKind.EMITTED, str(index))
    said = h.master.inspector.story("a")
    assert [line.rsplit(" ", 1)[1] for line in said[:-1]] == [str(i) for i in range(12, 20)]


# ------------------------------------------------------------------------------------------------------- machines


def test_a_step_that_is_not_in_the_table_raises_with_the_story():
    assert step(JOB, JobState.NEW, "started", "job", lambda _: ()) is JobState.RUNNING
    with pytest.raises(InvalidTransition, match=r"j: no transition from FAILED on 'cancel'") as raised:
        step(JOB, JobState.FAILED, "cancel", "j", lambda subject: (f"what happened to {subject}",))
    assert raised.value.story == ("what happened to j",)
    assert "what happened to j" in str(raised.value)


def test_a_range_that_is_elsewhere_is_not_written(hand):
    h = told(hand)
    stage = h.core.by_id["a"]
    before = bytes(stage.state)
    with pytest.raises(InvalidTransition, match=r"a\[1\]: is READY, not FINISHED") as raised:
        write(h.core, stage, 0, 2, int(TaskState.FINISHED), int(TaskState.FREED))
    assert bytes(stage.state) == before
    assert "no such file" in "".join(raised.value.story)


def test_arcs_and_ends_of_a_table():
    assert ("NEW", "cancel", "CANCELLED") in list(arcs(JOB))
    assert final(JOB) == {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
    assert not ENDED & LIVE


def test_composites_use_arcs_of_the_table(monkeypatch):
    check_composites()
    for path in COMPOSITES.values():
        assert all(there in TASK[here].values() for here, there in pairwise(path))
    monkeypatch.setitem(COMPOSITES, "shortcut", (TaskState.UNSCHEDULED, TaskState.RUNNING))
    with pytest.raises(AssertionError, match="shortcut"):
        check_composites()


# ------------------------------------------------------------------------------------------------------ intervals


def test_intervals_are_a_set_of_numbers(seed):
    import random

    rng = random.Random(seed)
    for _ in range(200):
        intervals, model = Intervals(), set[int]()
        for _ in range(30):
            lo = rng.randrange(40)
            hi = min(40, lo + rng.randint(1, 6))
            what = rng.random()
            if what < 0.5 and not model & set(range(lo, hi)):
                intervals.add(lo, hi)
                model |= set(range(lo, hi))
            elif what < 0.7 and model:
                a, b = intervals.take(rng.randint(1, 5))
                assert a == min(model)
                assert set(range(a, b)) <= model
                model -= set(range(a, b))
            elif what < 0.95:
                intervals.discard(lo, hi)
                model -= set(range(lo, hi))
            elif what < 0.97:
                intervals.clear()
                model.clear()
            spans = list(intervals)
            assert [i for a, b in spans for i in range(a, b)] == sorted(model)
            assert all(b < c for (_, b), (c, _) in pairwise(spans)), "neighbours are joined"
            assert (len(intervals.spans) > 0, intervals.count, bool(intervals)) == (
                bool(model),
                len(model),
                bool(model),
            )
            assert not model or intervals.first == min(model)


def test_failures_have_the_names_that_users_read():
    assert {kind.value for kind in Failure} >= {"user", "memory", "infrastructure", "input", "stopped"}


def test_a_step_with_a_label_goes_by_that_and_its_helpers_with_it(hand):
    g = Graph("g")
    a = g.add(body, name="x/list", label="sort", role=Role.HELPER)
    g.add(body, gather(a), n=2, name="x", label="sort", retry=Retry(user=1))
    h = hand(g)
    h(h.idle(0))
    h.expect("launch x/list[0] on 0")
    h(h.done("x/list[0]"), h.idle(0))
    h.expect("launch x[0] on 0")
    h(h.failed("x[0]", message="no such file"))
    h.expect()
    lines = h.master.inspector.story("sort")
    assert any("sort[0]: attempt failed on worker 0 (user): no such file" in line for line in lines)
    assert [line.partition(" now  ")[2].partition(",")[0] for line in lines if " now " in line] == [
        "sort: running",
        "sort (helper): done",
    ]
    assert not any("x/list" in line or " x[" in line for line in lines)
    assert h.master.inspector.story("sort[1]")[-1].endswith("now  sort[1]: READY")


def test_the_inspector_gives_notes_as_data(hand):
    g = Graph("g")
    g.add(body, n=2, name="a")
    h = hand(g, workers=1)
    h.core.note("a", NoteKind.EMITTED, "loss")
    *_, last = h.master.inspector.notes("a")
    assert (last.subject, last.kind, last.data) == ("a", NoteKind.EMITTED, {"name": "loss"})
    assert h.master.inspector.notes("b") == ()
    assert last in h.master.inspector.notes()
