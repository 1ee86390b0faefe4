"""Vertex managers: when they are asked, what they are shown, and what becomes of their answers."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.engine.hand import Hand, body, run_out
from weft.engine.consulting import view_of
from weft.engine.decisions import Emit, Fail, Finish, Schedule, SetEdge, SetParallelism, SetResources
from weft.engine.master import Master
from weft.engine.policy import Moment, VertexManager, View
from weft.engine.replay import Tape
from weft.graph.builder import Graph, after, gather, one_to_one, shuffle
from weft.graph.logical import Manager, OnFailure, Patch, Range, Source
from weft.model.errors import GraphError, UsageError
from weft.model.resources import Resources

ALL = frozenset(Moment)


class Told(VertexManager):
    """A manager that remembers what it was shown and answers what the test says."""

    def __init__(
        self,
        answer: Callable[[View, Any], tuple[Sequence[Any], Any]] = lambda view, memo: ((), memo),
        *,
        moments: frozenset[Moment] = ALL,
        holds: bool = False,
    ) -> None:
        self.answer = answer
        self.moments = moments
        self.holds = holds
        self.counts = True
        self.shown: list[View] = []
        self.memos: list[Any] = []

    def decide(self, view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        self.shown.append(view)
        self.memos.append(memo)
        return self.answer(view, memo)


def pair(**fields) -> Graph:
    g = Graph("g", on_failure=fields.pop("on_failure", OnFailure.FAIL_FAST))
    a = g.add(body, n=2, name="a")
    g.add(body, shuffle(a, 4), n=fields.pop("n", 4), name="b", manager=Manager("told"), **fields)
    return g


def with_manager(hand: type[Hand], graph: Graph, manager: Told, **options) -> Hand:
    return hand(graph, managers={"told": lambda: manager}, cones=False, **options)


def test_a_manager_is_asked_at_its_moments_and_given_its_memo_back(hand):
    manager = Told(lambda view, memo: ((), (memo or 0) + 1))
    h = with_manager(hand, pair(), manager)
    assert len(manager.shown) == 1  # the job has begun
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]"))
    h.expect()
    h(h.done("a[1]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.emitted("a", "rows", {"n": 5}))
    h.expect("publish a[0] rows")
    h(h.done("b[0]"))
    h.expect()
    assert manager.memos == [None, *range(1, len(manager.memos))]
    last = manager.shown[-1]
    assert (last.vertex, last.state, last.n, last.finished, last.workers) == ("b", "running", 4, 1, 2)
    (source,) = last.inputs
    assert (source.edge, source.source, source.n, source.finished, source.ended) == ("a->b", "a", 2, 2, True)
    assert list(last.events[("a", "rows")]) == [{"n": 5}]


@pytest.mark.parametrize(("moment", "asked"), [(Moment.STARTED, 1), (Moment.SOURCE_ENDED, 1), (Moment.FINISHED, 4)])
def test_and_at_no_others(hand, moment, asked):
    manager = Told(moments=frozenset({moment}))
    h = with_manager(hand, pair(), manager)
    assert run_out(h, [0, 1])[-1] == "complete succeeded"
    assert len(manager.shown) == asked


def test_a_width_is_settled_from_what_the_sources_wrote(hand):
    def fit(view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        if not all(each.ended for each in view.inputs) or memo:
            return (), memo
        return (SetParallelism("b", 2),), True

    h = with_manager(hand, pair(n=Range(1, 8)), Told(fit))
    assert h.state("b") == "configuring"
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]", stats=(("a->b", [1, 2, 3, 4]),)), h.done("a[1]", stats=(("a->b", [10, 20, 30, 40]),)))
    h.expect()
    assert h.rows("b") == ["ready", "ready"]
    assert run_out(h, [0, 1])[-1] == "complete succeeded"


def test_a_width_that_nobody_names_is_the_widest(hand):
    g = Graph("g")
    a = g.add(body, n=1, name="a")
    s = g.service(body, name="s")
    g.add(body, shuffle(a, 4), s, n=Range(1, 4), name="b", manager=Manager("told"))
    h = with_manager(hand, g, Told(), workers=6)
    h(h.idle(0))
    h.skip("launch")
    while "a[0]" not in h.leases:
        h(h.idle(1))
        h.skip("launch")
    h(h.done("a[0]"))  # the service does not end before b has
    h.skip()
    assert h.core.by_id["b"].n == 4
    assert any("has named no width" in line for line in h.master.inspector.story("b"))


def test_a_width_inside_a_gang_is_settled_before_it_starts(hand):
    def fit(view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        if memo or not all(each.ended for each in view.inputs):
            return (), memo
        return (SetParallelism("b", 2),), True

    g = Graph("g")
    a = g.add(body, n=2, name="a")
    b = g.add(body, shuffle(a, 4), n=Range(1, 4), name="b", manager=Manager("told"))
    g.bubble(a, b, name="gang")
    h = with_manager(hand, g, Told(fit), workers=6)
    h.skip("timer")
    h.expect("acquire a*2, b*4")  # a manager that waits for a would wait for ever


@pytest.mark.parametrize(
    "stats",
    [
        ([1, 0, 0, 4], [10, 20, 0, 40]),
        ([1, 0, 0, 4], {0: 10, 1: 20, 3: 40}),
        ({0: 1, 3: 4}, [10, 20, 0, 40]),
        ({0: 1, 3: 4}, {0: 10, 1: 20, 3: 40}),
    ],
)
def test_sizes_are_summed_for_who_counts_them(hand, stats):
    manager = Told()
    h = with_manager(hand, pair(), manager)
    h(h.idle(0, 1))
    h.skip("launch")
    h(h.done("a[0]", stats=(("a->b", stats[0]),)), h.done("a[1]", stats=(("a->b", stats[1]),)))
    h.expect()
    sizes = manager.shown[-1].inputs[0].sizes
    assert sizes is not None
    assert list(sizes) == [11, 20, 0, 44]


def test_a_manager_that_holds_lets_tasks_go_in_waves(hand):
    def waves(view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        return ((Schedule("b", view.released * 2 + 1),), None) if view.finished == view.released else ((), None)

    h = with_manager(hand, pair(), Told(waves, holds=True), workers=4)
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[0]"), h.done("a[1]"), h.idle(0, 1, 2, 3))
    h.expect("launch b[0] on 0")
    h(h.done("b[0]"), h.idle(0, 1, 2, 3))
    h.expect("launch b[1] on 0", "launch b[2] on 1")
    h(h.done("b[2]"), h.idle(1))
    h.expect()
    h(h.done("b[1]"), h.idle(1))
    h.expect("launch b[3] on 1")
    h(h.done("b[3]"))
    assert h.skip()[-1] == "complete succeeded"


def waves_of_one(view: View, memo: Any) -> tuple[Sequence[Any], Any]:
    """Let one more task go when all that were let go are over."""
    return ((Schedule("b", view.released + 1),), None) if view.over >= view.released else ((), None)


def test_a_wave_that_is_given_up_is_over(hand):
    g = Graph("g", on_failure=OnFailure.CONTINUE)
    a = g.add(body, n=3, name="a")
    g.add(body, one_to_one(a), n=3, name="b", manager=Manager("told"))
    h = with_manager(hand, g, Told(waves_of_one, holds=True))
    h(h.idle(0, 1))
    h.expect("launch a[0] on 0", "launch a[1] on 1")
    h(h.done("a[1]"), h.failed("a[0]"))
    h.expect()
    assert h.rows("b") == ["fatal", "ready", "unscheduled"]
    assert run_out(h, [0, 1])[-1] == "complete failed: a[0] bad"
    assert h.rows("b") == ["fatal", "finished", "finished"]


def test_what_is_held_back_when_enough_is_there_is_never_made(hand):
    def limit(view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        if view.finished:
            return (Finish("b", "enough rows"),), None
        return (Schedule("b", 1),), None

    h = with_manager(hand, pair(), Told(limit, holds=True))
    order = run_out(h, [0, 1])
    assert order == ["a[0]", "a[1]", "b[0]", "complete succeeded"]
    assert (h.rows("b"), h.state("b")) == (["finished", "skipped", "skipped", "skipped"], "done_early")


def test_a_task_that_must_be_made_again_keeps_its_leave_to_start(hand):
    h = with_manager(hand, pair(), Told(lambda view, memo: ((Schedule("b", 2),), None), holds=True))
    h(h.idle(0, 1))
    h.skip("launch")
    h(h.done("a[0]"), h.done("a[1]"), h.idle(0))
    h.expect("launch b[0] on 0")
    h(h.worker_lost(0), h.idle(1))
    h.expect("launch b[0] on 1, attempt 1")
    assert h.rows("b") == ["leased", "ready", "unscheduled", "unscheduled"]


def test_a_rejected_decision_is_told_and_the_job_goes_on(hand):
    h = with_manager(
        hand,
        pair(),
        Told(lambda view, memo: ((SetParallelism("a", 9),), None), moments=frozenset({Moment.SOURCE_ENDED})),
    )
    assert run_out(h, [0, 1])[-1] == "complete succeeded"
    story = "".join(h.master.inspector.story("b"))
    assert "its manager decides: a: 9 tasks" in story
    assert "rejected: vertex 'a' has started" in story


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        (int, {}, "an int is not a decision"),
        (Schedule, {"vertex": "b", "n": "3"}, "n of Schedule is '3'; it takes a whole number"),
        (SetParallelism, {"vertex": "b", "n": 1.5}, "n of SetParallelism is 1.5; it takes a whole number"),
        (SetParallelism, {"vertex": "b", "n": 2, "routers": 5}, "routers of SetParallelism is 5; it takes pairs"),
        (SetParallelism, {"vertex": "b", "n": 2, "items": 5}, "items of SetParallelism is 5; it takes None or a list"),
        (SetEdge, {"edge": "a->b", "movement": "x"}, "movement of SetEdge is 'x'; it takes None or a Movement"),
        (Fail, {"vertex": "b", "reason": 5}, "reason of Fail is 5; it takes text"),
        (Finish, {"vertex": ["b"], "reason": "enough"}, "vertex of Finish is ['b']; it takes text"),
    ],
)
def test_an_answer_with_something_of_another_form_is_rejected(hand, kind, fields, reason):
    told = Told(lambda view, memo: ((kind(**fields),), None), moments=frozenset({Moment.STARTED}))
    h = with_manager(hand, pair(n=Range(1, 4)), told)
    assert run_out(h, [0, 1])[-1] == "complete succeeded"
    assert f"rejected: {reason}" in "".join(h.master.inspector.story("b"))


def test_a_manager_that_cannot_decide_fails_its_vertex(hand):
    def wrong(view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        raise UsageError("three sides are too many")

    h = with_manager(hand, pair(on_failure=OnFailure.CONTINUE), Told(wrong, moments=frozenset({Moment.SOURCE_ENDED})))
    order = run_out(h, [0, 1])
    assert order[-1] == "complete failed: b[0] three sides are too many"
    assert (h.state("a"), h.state("b")) == ("done", "failed")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda view, memo: 1 / 0, r"the manager of 'b' raised ZeroDivisionError: division by zero \(.*test_managers"),
        (lambda view, memo: None, r"the manager of 'b' answered None, not \(decisions, memo\)"),
        (lambda view, memo: (Schedule("b", 1), 2), "not .decisions, memo."),
    ],
    ids=["raises", "nothing", "one"],
)
@pytest.mark.parametrize("taped", [True, False])
def test_a_manager_that_is_broken_fails_its_vertex(hand, answer, message, taped):
    manager = Told(answer, moments=frozenset({Moment.SOURCE_ENDED}))
    factories: Any = {"told": lambda: manager}
    graph = pair(on_failure=OnFailure.CONTINUE)
    h = hand(graph, managers=Tape().managers(factories) if taped else factories, cones=False)
    last = run_out(h, [0, 1])[-1]
    assert re.search(message, last), last
    assert (h.state("a"), h.state("b")) == ("done", "failed")


def test_the_rest_of_an_answer_is_dropped_after_a_decision_that_is_rejected(hand):
    def answer(view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        return (SetParallelism("a", 9), Finish("b", "all was said")), None

    h = with_manager(hand, pair(), Told(answer, moments=frozenset({Moment.SOURCE_ENDED})))
    assert run_out(h, [0, 1])[-1] == "complete succeeded"
    assert h.core.by_id["b"].finished == 4


def sized(n: Any) -> Graph:
    g = Graph("g")
    plan = g.add(body, n=1, name="plan", expands=True)
    g.add(body, after(plan), n=n, name="b", manager=Manager("told"))
    return g


def test_a_manager_is_told_that_its_number_of_tasks_is_known(hand):
    def all_of_them(view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        return (() if view.n < 0 else (Schedule("b", view.n),)), None

    told = Told(all_of_them, holds=True, moments=frozenset({Moment.STARTED, Moment.CONFIGURED}))
    h = with_manager(hand, sized(Source("plan")), told)
    h(h.idle(0))
    h.skip()
    h(h.done("plan[0]", values=[3]))
    assert [shown.n for shown in told.shown] == [-1, 3]
    assert run_out(h, [0, 1])[-1] == "complete succeeded"


@pytest.mark.parametrize("moments", [*[(each,) for each in Moment], (), tuple(Moment)], ids=str)
@pytest.mark.parametrize("n", [Source("plan"), Range(1, 3), 3], ids=["source", "range", "fixed"])
def test_a_manager_that_lets_nothing_start_does_not_stop_the_job(hand, moments, n):
    h = with_manager(hand, sized(n), Told(holds=True, moments=frozenset(moments)))
    h(h.idle(0))
    h.skip()
    h(h.done("plan[0]", values=[3 if isinstance(n, Source) else None]))
    assert run_out(h, [0, 1])[-1] == "complete succeeded"
    assert h.core.by_id["b"].finished == 3
    assert any("all may start" in line for line in h.master.inspector.story("b"))


def test_an_event_of_a_manager_reaches_the_managers_after_its_vertex(hand):
    def say(view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        return (Emit("a", "size", 7),), None

    told = Told(moments=frozenset({Moment.EVENT}))
    graph = Graph("g")
    a = graph.add(body, n=2, name="a", manager="says")
    graph.add(body, gather(a), n=1, name="b", manager="told")
    says = Told(say, moments=frozenset({Moment.STARTED}))
    hand(graph, managers={"told": lambda: told, "says": lambda: says}, cones=False)
    assert [dict(shown.events) for shown in told.shown] == [{("a", "size"): [7]}]


@pytest.mark.parametrize("wrong", [Emit("nobody", "e"), Emit("b", ""), Emit("b", "weft.decide")], ids=str)
def test_events_that_nobody_may_emit_are_rejected(hand, wrong):
    told = Told(lambda view, memo: ((wrong,), None), moments=frozenset({Moment.STARTED}))
    h = with_manager(hand, pair(), told)
    assert run_out(h, [0, 1])[-1] == "complete succeeded"
    assert any("rejected: " in line for line in h.master.inspector.story("b"))


def test_a_decider_that_took_no_branch_is_named_by_the_error(hand):
    graph = Graph("g")
    which = graph.add(body, n=1, name="which", manager="told", expands=True)
    graph.choice(which, name="side", left=graph.add(body, name="left"), right=graph.add(body, name="right"))
    told = Told(lambda view, memo: ((Finish("which", "no wish"),), None), moments=frozenset({Moment.STARTED}))
    h = with_manager(hand, graph, told)
    h.expect("complete failed: left which has ended without a branch of choice 'side'")


def test_a_patch_with_a_wrong_manager_changes_nothing(hand):
    graph = Graph("g")
    graph.add(body, n=1, name="plan", expands=True)
    h = hand(graph, managers={"told": Told}, cones=False)
    h(h.idle(0))
    h.skip()
    more = Graph("more")
    more.add(body, n=1, name="plan/a", manager="tolt")
    h(h.done("plan[0]", values=[Patch.of(more)]))
    assert h.skip()[-1].startswith("complete failed: plan[0] the answer of plan was rejected: vertex 'plan/a' has the")
    assert list(h.core.graph.vertices) == ["plan"]


def test_a_number_of_tasks_that_the_graph_does_not_allow_is_rejected(hand):
    told = Told(lambda view, memo: ((SetParallelism("b", 9),), None), moments=frozenset({Moment.SOURCE_ENDED}))
    h = with_manager(hand, pair(n=Range(2, 4)), told)
    assert told.shown == []
    assert run_out(h, [0, 1])[-1] == "complete succeeded"
    assert told.shown[0].allowed == Range(2, 4)
    assert h.core.by_id["b"].n == 4


def test_managers_are_asked_in_the_order_of_the_graph(hand):
    asked: list[str] = []

    def note(view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        asked.append(view.vertex)
        return (), None

    g = Graph("g")
    a = g.add(body, n=1, name="a")
    for name in "cb":
        g.add(body, gather(a), n=1, name=name, manager=Manager("told"))
    h = with_manager(hand, g, Told(note, moments=frozenset({Moment.SOURCE_ENDED})))
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"))
    h.expect()
    assert asked == ["c", "b"]


def test_a_control_vertex_asks_for_resources(hand):
    def more(view: View, memo: Any) -> tuple[Sequence[Any], Any]:
        if ("control", "more") in view.events:
            return (SetResources("b", (Resources(cpu=2),)),), None
        return (), None

    g = Graph("g")
    control = g.add(body, n=1, name="control")
    z = g.add(body, n=1, name="z")
    g.add(body, after(z), after(control, concurrent=True), n=1, name="b", manager=Manager("told"))
    h = with_manager(hand, g, Told(more, moments=frozenset({Moment.EVENT})), workers=3)
    h(h.idle(0, 1))
    h.expect("launch control[0] on 0", "launch z[0] on 1")
    h(h.emitted("control", "more"))
    h.expect("publish control[0] more")
    h(h.done("z[0]"))
    h.expect("acquire b*1 (cpu 2)")


def test_a_manager_that_nobody_knows_is_refused_before_the_job_begins():
    with pytest.raises(GraphError, match="unknown manager") as raised:
        Master(pair(), managers={"other": Told})
    assert raised.value.rule == "manager"
    with pytest.raises(GraphError, match="has no n"):
        Master(pair(), managers={"told": lambda n: Told()})


def test_rows_of_a_lost_output_are_shown_as_lost_until_it_is_made_again(hand):
    told = Told()
    g = Graph("g")
    a = g.add(body, n=70, name="a", manager="told")
    g.add(body, gather(a), n=1, name="b")
    h = with_manager(hand, g, told)
    h(h.idle(0, 1))
    h.skip()
    h(h.done("a[0]", rows=2), h.done("a[1]"))
    h(h.output_lost("a[0]"))
    h.skip()
    assert told.shown[-1].rows == 2
    assert view_of(h.core, h.core.by_id["a"]).lost == 1
    h(h.idle(0, 1))
    h.skip()
    while h.rows("a")[0] != "finished":
        h(*[h.done(name) for name in list(h.leases)], h.idle(0, 1))
        h.skip()
    assert view_of(h.core, h.core.by_id["a"]).lost == 0
