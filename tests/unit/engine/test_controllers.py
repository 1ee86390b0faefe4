"""Controllers of jobs: held tasks, starts, stops, restarts in place, requests, and the end of the job."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.unit.engine.hand import Hand, body
from weft.engine.commands import Reply
from weft.engine.decisions import (
    Choose,
    Conclude,
    Emit,
    Fail,
    Finish,
    Schedule,
    SetParallelism,
    StartTasks,
    StopTasks,
    WakeAt,
)
from weft.engine.events import ClockSet, Granted, JobSubmitted
from weft.engine.explain import explain
from weft.engine.patching import apply
from weft.engine.policy import ControlledBubble, ControllerView, JobController
from weft.engine.recovery import losses
from weft.graph.builder import Graph, after, controlled
from weft.graph.logical import Backoff, Manager, Outcome, Patch, Range, RestartPolicy, Retry, Vertex
from weft.graph.rules.patches import check_patch
from weft.graph.task import DECIDE
from weft.model.errors import GraphError
from weft.model.failures import Failure
from weft.model.program import Program
from weft.model.resources import Resources

LIGHT = Resources(cpu=0)
ONCE = Retry(infrastructure=0)


class Scripted(JobController):
    """A controller that answers as the test says, and records what it sees."""

    def __init__(self) -> None:
        self.views: list[str] = []
        self.seen: list[Any] = []
        self.answers: list[Sequence[Any]] = []
        self.bubbles: Mapping[str, ControlledBubble] = {}
        self.rule: Callable[[ControllerView, Any], Sequence[Any]] = lambda view, memo: ()

    def decide(self, view: ControllerView, memo: Any) -> tuple[Sequence[Any], Any]:
        told = [f"{t.vertex}[{t.index}] {t.state}" for t in view.changed] + [f"request {r.name}" for r in view.requests]
        self.views.append(", ".join(told) or ("woken" if view.woken else ""))
        self.seen.append((view.now, {v.id: [v[i] for i in range(len(v))] for v in view.vertices.values()}, memo))
        self.bubbles = view.bubbles
        answer = self.answers.pop(0) if self.answers else self.rule(view, memo)
        return list(answer), (memo or 0) + 1

    def told(self) -> list[str]:
        """What it was told since the last time."""
        views, self.views = self.views, []
        return views


def job(vertices: Callable[[Graph], Any], **fields: Any) -> tuple[Graph, Scripted]:
    g = Graph("g", controller="scripted", **fields)
    vertices(g)
    g.finish()
    return g, Scripted()


def started(hand: type[Hand], graph: Graph, script: Scripted, *answers: Sequence[Any], workers: int = 2) -> Hand:
    script.answers = list(answers)
    return hand(graph, workers, managers={"scripted": lambda: script})


def workers_of(n: Any = 2, **fields: Any) -> Callable[[Graph], Any]:
    fields.setdefault("resources", LIGHT)
    return lambda g: g.task(body, n=n, name="w", controlled=True, **fields)


def test_tasks_are_held_until_the_controller_starts_them(hand):
    g, script = job(workers_of(3))
    h = started(hand, g, script, (), (StartTasks("w", 1, 3),))
    assert script.told() == ["woken"]
    h.expect()
    assert h.rows("w") == ["unscheduled"] * 3
    h(h.request("go"))
    h.expect("start w[1]", "start w[2]")
    assert script.told() == ["request go", "w[1] waiting, w[2] waiting", "w[1] starting, w[2] starting"]
    h(h.started("w[1]"))
    assert script.told() == ["w[1] running"]
    assert script.seen[-1][2] == 4, "the memo comes back"


def test_the_job_ends_by_the_controller_alone(hand):
    g, script = job(workers_of())
    h = started(hand, g, script, (StartTasks("w", 0, 2),))
    h.expect("start w[0]", "start w[1]")
    h(h.done("w[0]"), h.done("w[1]"))
    h.expect()
    assert h.job == "running"
    assert h.state("w") == "running"
    assert script.told()[-1] == "w[0] succeeded, w[1] succeeded"
    script.answers = [(Conclude("succeeded", "all well"),)]
    h(h.request("end"))
    h.expect("free w[0:2]", "complete succeeded")


def test_a_failure_beyond_the_restart_rule_concerns_no_other_task(hand):
    g, script = job(workers_of())
    h = started(hand, g, script, (StartTasks("w", 0, 2),))
    h.expect("start w[0]", "start w[1]")
    h(h.failed("w[0]", status=3, message="no input"))
    h.expect()
    assert h.rows("w") == ["fatal", "leased"]
    task = script.seen[-1][1]["w"][0]
    assert (task.state, task.code, task.failure, task.message) == ("failed", 3, "user", "no input")
    assert (task.starts, task.restarts) == (1, 0)
    assert h.core.cause is None


def test_ended_tasks_start_again_as_another_attempt(hand):
    g, script = job(workers_of(3))
    h = started(hand, g, script, (StartTasks("w", 0, 3),))
    h.skip()
    h(h.failed("w[0]"), h.done("w[1]"))
    script.answers = [(StopTasks("w", 2, 3, "enough"), StartTasks("w", 0, 2))]
    h(h.request("again"))
    h.expect("stop w[2]: enough", "free w[1]", "start w[0], attempt 1", "start w[1], attempt 1")
    h(h.stopped("w[2]"))
    assert script.told()[-1] == "w[2] held"
    assert h.rows("w") == ["leased", "leased", "cancelled"]
    script.answers = [(StartTasks("w", 2, 3),)]
    h(h.request("again"))
    h.expect("start w[2], attempt 1")


def test_a_stop_takes_back_waiting_tasks_at_once_and_leaves_ended_ones(hand):
    g, script = job(workers_of(3, resources=Resources(cpu=2)))
    h = started(hand, g, script, (StartTasks("w", 0, 2),))
    h.expect("acquire w*1 (cpu 2)", "acquire w*1 (cpu 2)")
    assert [t.state for t in script.seen[-1][1]["w"]] == ["waiting", "waiting", "held"]
    h(h.granted(w=0))
    h.expect("launch w[0] on 0, cpu 2")
    script.answers = [(StopTasks("w", 1, 3, "too many"),)]
    h(h.request("fewer"))
    assert [line.split()[0] for line in h.skip()] == ["withdraw"]
    h(h.done("w[0]"))
    h.expect("release 0")
    script.answers = [(StopTasks("w", 0, 1, "no matter"),)]
    h(h.request("stop"))
    h.expect()
    assert h.rows("w") == ["finished", "unscheduled", "unscheduled"]


def test_a_start_while_a_task_stops_runs_it_again_afterwards(hand):
    g, script = job(workers_of(1))
    h = started(hand, g, script, (StartTasks("w", 0, 1),))
    h.skip()
    script.answers = [(StopTasks("w", 0, 1, "move"),)]
    h(h.request("stop"))
    h.expect("stop w[0]: move")
    script.answers = [(StartTasks("w", 0, 1),)]
    h(h.request("start"))
    h.expect()
    assert script.seen[-1][1]["w"][0].state == "stopping"
    h(h.stopped("w[0]"))
    h.expect("start w[0], attempt 1")


def test_a_restart_rule_is_carried_out_in_place_and_counted(hand):
    rule = workers_of(1, restart=RestartPolicy.ON_FAILURE)
    g, script = job(rule, backoff=Backoff(delay_s=5.0))
    h = started(hand, g, script, (StartTasks("w", 0, 1),))
    h.expect("start w[0]")
    h(h.failed("w[0]", status=1))
    h.expect("timer at 5")
    task = script.seen[-1][1]["w"][0]
    assert (task.state, task.code, task.restarts, task.starts) == ("waiting", 1, 1, 1)
    h(h.timer(5.0))
    h.expect("start w[0], attempt 1")
    task = script.seen[-1][1]["w"][0]
    assert (task.state, task.restarts, task.starts) == ("starting", 1, 2)


def test_always_restarts_a_finite_task_after_a_success_too(hand):
    g, script = job(workers_of(1, restart=RestartPolicy.ALWAYS), backoff=Backoff(delay_s=0.0))
    h = started(hand, g, script, (StartTasks("w", 0, 1),))
    h.expect("start w[0]")
    h(h.done("w[0]"))
    h.expect("free w[0]", "start w[0], attempt 1")
    task = script.seen[-1][1]["w"][0]
    assert (task.code, task.failure, task.restarts) == (0, "", 1)


def test_a_stop_ends_the_pause_before_a_restart(hand):
    g, script = job(workers_of(1, restart=RestartPolicy.ON_FAILURE), backoff=Backoff(delay_s=5.0))
    h = started(hand, g, script, (StartTasks("w", 0, 1),))
    h.skip()
    h(h.failed("w[0]"))
    h.skip()
    script.answers = [(StopTasks("w", 0, 1, "suspended"),)]
    h(h.request("suspend"))
    assert script.told()[-1] == "request suspend"
    h(h.timer(5.0))
    assert h.rows("w") == ["unscheduled"]
    script.answers = [(StartTasks("w", 0, 1),)]
    h(h.request("resume"))
    h.expect("start w[0], attempt 1")
    assert script.seen[-1][1]["w"][0].restarts == 0


def test_a_stop_keeps_what_a_waiting_task_has_failed_with(hand):
    g, script = job(workers_of(1, restart=RestartPolicy.ON_FAILURE), backoff=Backoff(delay_s=5.0))
    h = started(hand, g, script, (StartTasks("w", 0, 1),))
    h.skip()
    h(h.failed("w[0]", status=3))
    h.skip()
    failed = script.seen[-1][1]["w"][0]
    script.answers = [(StopTasks("w", 0, 1, "the job has ended"),)]
    h(h.request("stop"))
    h.skip()
    h(h.request("look"))
    seen = script.seen[-1][1]["w"][0]
    assert (seen.state, seen.failure, seen.code, seen.message) == ("held", failed.failure, 3, failed.message)


def test_the_limit_of_restarts_ends_the_task_alone(hand):
    g, script = job(workers_of(restart=RestartPolicy.ON_FAILURE), backoff=Backoff(limit=1, delay_s=0.0))
    h = started(hand, g, script, (StartTasks("w", 0, 2),))
    h.skip()
    h(h.failed("w[0]"))
    h.expect("start w[0], attempt 1")
    h(h.failed("w[0]"))
    h.expect()
    assert h.rows("w") == ["fatal", "leased"]
    assert h.job == "running"


def test_a_lost_worker_is_a_failed_attempt(hand):
    g, script = job(workers_of(1, resources=Resources(cpu=2), retry=ONCE))
    h = started(hand, g, script, (StartTasks("w", 0, 1),))
    h.skip()
    h(h.granted(w=0))
    h.skip()
    h(h.worker_lost(0))
    task = script.seen[-1][1]["w"][0]
    assert (task.state, task.code, task.failure) == ("failed", 137, "infrastructure")


def test_inputs_hold_started_tasks_until_the_source_runs(hand):
    def both(g: Graph) -> None:
        ps = g.service(body, n=2, name="ps", controlled=True, resources=LIGHT)
        g.task(body, after(ps), n=1, name="w", controlled=True, resources=LIGHT)

    g, script = job(both)
    h = started(hand, g, script, (StartTasks("w", 0, 1),))
    h.expect()
    assert script.told() == ["woken", "w[0] held"][:1]
    script.answers = [(StartTasks("ps", 0, 1),)]
    h(h.request("ps"))
    h.expect("start ps[0]", "start w[0]")  # all that is to run of the source runs
    h(h.done("ps[0]"))
    assert h.state("ps") == "running", "a controlled service ends with the job alone"
    script.answers = [(Conclude("failed", "the server has ended"),)]
    h(h.request("end"))
    h.expect("stop w[0]: the server has ended")
    h(h.stopped("w[0]"))
    h.expect("complete failed: the server has ended")


def test_a_job_that_is_concluded_as_cancelled(hand):
    g, script = job(workers_of())
    h = started(hand, g, script, (Conclude("cancelled", "not needed"),))
    h.expect("complete cancelled: not needed")


def test_a_concluded_job_runs_its_final_vertices(hand):
    ends_with_final(hand, "succeeded", "")


@pytest.mark.parametrize(("outcome", "line"), [("failed", ": why"), ("cancelled", ": why")])
def test_the_end_stops_all_that_runs_then_runs_final_vertices(hand, outcome, line):
    ends_with_final(hand, outcome, line)


def ends_with_final(hand: type[Hand], outcome: str, line: str) -> None:
    def with_final(g: Graph) -> None:
        w = workers_of(2)(g)
        g.add(body, after(w, outcome=Outcome.ANY), name="z", final=True)

    g, script = job(with_final)
    h = started(hand, g, script, (StartTasks("w", 0, 2),))
    h.skip()
    h(h.done("w[0]"))
    script.answers = [(Conclude(outcome, "why"), StartTasks("w", 0, 1))]
    h(h.request("end"), h.idle(0))
    h.expect("stop w[1]: why")
    assert h.job == "concluding"
    h(h.cancel("too late"))
    h.expect()
    h(h.stopped("w[1]"), h.idle(0))
    h.expect("launch z[0] on 0")
    h(h.done("z[0]"))
    assert h.skip()[-1] == f"complete {outcome}{line}"


def test_a_cancel_works_as_always(hand):
    g, script = job(workers_of())
    h = started(hand, g, script, (StartTasks("w", 0, 1),))
    h.skip()
    h(h.cancel("enough"))
    h.expect("stop w[0]: enough")
    h(h.stopped("w[0]"))
    h.expect("complete cancelled: enough")
    assert script.told() == ["woken", "w[0] waiting", "w[0] starting"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((StartTasks("x", 0, 1),), "'x': there is no such vertex"),
        ((StartTasks("z", 0, 1),), "'z': it is not controlled"),
        ((StopTasks("w", 0, 3, ""),), "0:3 of 'w', which has 2"),
        ((StartTasks("w", True, 1),), "True:1 of 'w'"),
        ((Conclude("well", ""),), "as 'well'"),
        ((WakeAt(float("nan")),), "no time"),
        ((Choose("c", "x"),), "no decision of a controller"),
        ((7,), "no decision of a controller"),
    ],
)
def test_a_decision_that_is_not_allowed_fails_the_job(hand, answer, message):
    def two(g: Graph) -> None:
        workers_of()(g)
        g.add(body, name="z", resources=LIGHT)

    g, script = job(two)
    h = started(hand, g, script, answer)
    (line,) = h.skip()
    assert line.startswith("complete failed: ")
    assert message in line


@pytest.mark.parametrize("decision", [Schedule("w", 1), Finish("w", ""), Fail("w", ""), SetParallelism("w", 1)])
def test_nobody_else_decides_about_controlled_tasks(hand, decision):
    g, script = job(workers_of())
    h = started(hand, g, script)
    with pytest.raises(GraphError, match="the controller of the job alone"):
        apply(h.core, decision)


def test_a_patch_adds_no_controlled_vertex():
    g = Graph("g", controller="scripted")
    g.task(body, name="w", controlled=True)
    g.add(body, name="x", expands=True)
    more = Patch((Vertex("x/a", Program(body), controlled=True),))
    with pytest.raises(GraphError, match="patch adds the controlled vertex 'x/a'"):
        check_patch(g, more, "x")
    check_patch(g, Patch((Vertex("x/a", Program(body)),)), "x")


def test_an_exception_of_the_controller_fails_the_job_with_its_message(hand):
    g, script = job(workers_of())

    def rule(view: ControllerView, memo: Any) -> Sequence[Any]:
        raise ValueError("no plan")

    script.rule = rule
    h = started(hand, g, script)
    (line,) = h.skip()
    assert line.startswith("complete failed: the controller of the job raised ValueError: no plan")


def test_a_controller_that_never_rests_fails_the_job(hand):
    g, script = job(workers_of(1))
    swing = [(StartTasks("w", 0, 1),), (StopTasks("w", 0, 1, ""),)]
    script.rule = lambda view, memo: swing[(memo or 0) % 2]
    h = started(hand, g, script)
    assert "without end" in h.skip()[-1]


def test_it_is_asked_again_at_a_time_of_day(hand):
    g, script = job(workers_of())
    script.answers = [(WakeAt(1060.0),), (WakeAt(1030.0),)]
    h = hand(g, 2, managers={"scripted": lambda: script}, submit=False)
    h(ClockSet(0.0, 1000.0), JobSubmitted(0.0))
    h.expect("timer at 60")
    h(h.request("sooner"))
    h.expect("timer at 30")
    h(h.timer(30.0))
    assert [now for now, _, _ in script.seen] == [1000.0, 1000.0, 1030.0]
    assert script.told()[-1] == "woken"
    h(h.timer(60.0))
    assert script.told() == []


def test_it_emits_events_and_says_why_a_task_waits(hand):
    def gated(g: Graph) -> None:
        ps = g.service(body, n=1, name="ps", controlled=True, resources=LIGHT)
        g.task(body, after(ps), n=1, name="w", controlled=True, resources=LIGHT)

    g, script = job(gated)
    why: list[str] = []

    def rule(view: ControllerView, memo: Any) -> Sequence[Any]:
        why.append(view.vertices["w"].why(0))
        return (StartTasks("w", 0, 1), Emit("w", "hello")) if not memo else ()

    script.rule = rule
    h = started(hand, g, script)
    h(h.request("look"))
    assert why == ["", why[1]]
    assert "the start of ps" in why[1]
    assert ("w", "hello") in h.core.emitted


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (lambda g: g.add(body, name="a"), "no controlled vertex"),
        (lambda g: g.add(body, name="a", controlled=True, keep=True), "keep=True"),
        (lambda g: g.add(body, name="a", controlled=True, cache_key="k"), "a cache key"),
        (lambda g: g.add(body, g.add(body, name="a", controlled=True), name="b"), "carries data"),
        (lambda g: g.add(body, after(g.add(body, name="a", controlled=True)), name="b"), "waits for the end"),
    ],
)
def test_rules_of_controlled_vertices(build, rule):
    g = Graph("g", controller=Manager("scripted"))
    build(g)
    with pytest.raises(GraphError, match=rule):
        g.finish()


def test_a_controlled_vertex_needs_a_controller_and_may_have_a_range():
    g = Graph("g")
    g.task(body, n=Range(1, 4), name="w", controlled=True)
    with pytest.raises(GraphError, match="no controller"):
        g.finish()
    g.controller = Manager("scripted")
    g.finish()


def test_failures_that_are_stopped_do_not_count(hand):
    g, script = job(workers_of(1, restart=RestartPolicy.ON_FAILURE), backoff=Backoff(delay_s=0.0))
    h = started(hand, g, script, (StartTasks("w", 0, 1),))
    h.skip()
    script.answers = [(StopTasks("w", 0, 1, "scaled down"),)]
    h(h.request("down"))
    h.skip()
    h(h.failed("w[0]", Failure.USER, status=143))
    task = script.seen[-1][1]["w"][0]
    assert (task.state, task.failure, task.message, task.restarts) == ("held", "stopped", "scaled down", 0)


# --------------------------------------------------------------------------------------------------------------- slots


def test_a_restart_in_place_keeps_its_slot_in_the_pause(hand):
    big = workers_of(1, resources=Resources(cpu=2), restart=RestartPolicy.ON_FAILURE)
    g, script = job(big, backoff=Backoff(delay_s=5.0))
    h = started(hand, g, script, (StartTasks("w", 0, 1),))
    h.skip()
    h(h.granted(w=0))
    h.expect("launch w[0] on 0, cpu 2")
    h(h.failed("w[0]"))
    h.expect("timer at 5")
    h(h.timer(5.0))
    h.expect("launch w[0] on 0, attempt 1, cpu 2")
    h(h.failed("w[0]"))
    h.skip()
    script.answers = [(StopTasks("w", 0, 1, "enough"),)]
    h(h.request("stop"))
    h.expect("release 0")


def test_a_kept_slot_is_lost_with_its_worker_and_released_at_the_end(hand):
    big = workers_of(2, resources=Resources(cpu=2), restart=RestartPolicy.ON_FAILURE)
    g, script = job(big, backoff=Backoff(delay_s=5.0))
    h = started(hand, g, script, (StartTasks("w", 0, 2),))
    h.expect("acquire w*1 (cpu 2)", "acquire w*1 (cpu 2)")
    first = h.requests["w"] - 1
    h(Granted(0.0, first, (("w", 0, 0),)), h.granted(w=1))
    h.skip()
    h(h.failed("w[0]"), h.failed("w[1]"))
    h.skip()
    h(h.worker_lost(0))
    h.expect()
    script.answers = [(Conclude("failed", "too often"),)]
    h(h.request("end"))
    h.expect("release 1", "complete failed: too often")


def gang(n: int = 2) -> Callable[[Graph], Any]:
    def build(g: Graph) -> None:
        ps = g.service(body, n=1, name="ps", controlled=True)
        w = g.task(body, after(ps), n=Range(1, n), name="w", controlled=True)
        g.bubble(ps, w, name="gang", whole=True)

    return build


ALL = (StartTasks("ps", 0, 1), StartTasks("w", 0, 2))


def test_a_gang_asks_at_once_for_what_is_started(hand):
    g, script = job(gang(4))
    h = started(hand, g, script, ALL, workers=4)
    h.expect("acquire ps*1, w*2")
    assert script.bubbles["gang"] == ControlledBubble("gang", granted=False, asks=3)
    h(h.granted(ps=0, w=(1, 2)))
    h.expect("launch ps[0] on 0", "launch w[0] on 2", "launch w[1] on 1")
    assert script.bubbles["gang"].granted
    script.answers = [(StartTasks("w", 2, 3),)]
    h(h.request("more"))
    h.expect("acquire w*1")
    h(h.granted(w=3))
    h.expect("launch w[2] on 3")


def test_a_gang_that_waits_asks_again_when_its_controller_wants_others(hand):
    g, script = job(gang(4))
    h = started(hand, g, script, ALL, workers=4)
    h.skip()
    script.answers = [(StartTasks("w", 2, 3),)]
    h(h.request("more"))
    assert [line.split()[0] for line in h.skip("withdraw")] == ["withdraw"]
    h.expect("acquire ps*1, w*3")
    script.answers = [(StopTasks("ps", 0, 1, "suspend"), StopTasks("w", 0, 4, "suspend"))]
    h(h.request("none"))
    assert [line.split()[0] for line in h.skip()] == ["withdraw"]


def test_a_gang_keeps_the_slots_of_stopped_tasks_until_all_are_held(hand):
    g, script = job(gang())
    h = started(hand, g, script, ALL, workers=3)
    h.skip()
    h(h.granted(ps=0, w=(1, 2)))
    h.skip()
    script.answers = [(StopTasks("w", 0, 1, "move"),)]
    h(h.request("stop one"))
    h.expect("stop w[0]: move")
    h(h.stopped("w[0]"))
    h.expect()
    h(h.failed("w[1]"))
    h.expect()  # its controller may start it again
    script.answers = [(StartTasks("w", 0, 2),)]
    h(h.request("again"))
    assert sorted(line.split()[1] for line in h.skip("launch")) == ["w[0]", "w[1]"]
    script.answers = [(StopTasks("ps", 0, 1, "suspend"), StopTasks("w", 0, 2, "suspend"))]
    h(h.request("suspend"))
    h.skip("stop")
    h(h.stopped("ps[0]"), h.stopped("w[0]"))
    h.expect()
    h(h.stopped("w[1]"))
    assert sorted(h.skip()) == ["release 0", "release 1", "release 2"]
    script.answers = [ALL]
    h(h.request("resume"))
    h.expect("acquire ps*1, w*2")


def test_a_gang_that_can_never_fit_fails_the_job_with_the_arithmetic(hand):
    g, script = job(gang())
    h = started(hand, g, script, ALL)
    h.skip()
    h(h.refused("ps", "it needs 3 slots at once; the session has 2"))
    (line,) = h.skip()
    assert line == (
        "complete failed: ps gang asks at once for slots of 1 of ps, 2 of w: "
        "it needs 3 slots at once; the session has 2"
    )
    assert script.bubbles["gang"].never


def test_its_controller_may_want_a_smaller_gang_instead(hand):
    g, script = job(gang())
    h = started(hand, g, script, ALL)
    h.skip()
    script.rule = lambda view, memo: [StopTasks("w", 1, 2, "too many")] if view.bubbles["gang"].never else []
    h(h.refused("ps"))
    h.expect("acquire ps*1, w*1")
    assert not h.core.bubbles[0].never


def test_a_gang_is_refused_only_as_long_as_its_controller_wants_the_same(hand):
    """The controller is asked again in the tick in which it has stopped what can never fit."""
    g, script = job(gang(6))
    h = started(hand, g, script, ALL, workers=3)
    h.skip()
    h(h.granted(ps=0, w=(1, 2)))
    h.skip()
    script.answers = [(StartTasks("w", 2, 6),)]
    h(h.request("more"))
    h.expect("acquire w*4")
    seen: list[bool] = []

    def smaller(view: ControllerView, memo: Any) -> Sequence[Any]:
        seen.append(view.bubbles["gang"].never)
        return (StopTasks("w", 2, 6, "too many"),) if view.bubbles["gang"].never else ()

    script.rule = smaller
    h(h.refused("w", "it needs 7 slots at once; the session has 3"))
    h.expect()
    assert seen == [True, False]
    assert script.bubbles["gang"] == ControlledBubble("gang", granted=True, asks=0)


def test_a_gang_asks_at_once_for_the_slots_that_it_lost(hand):
    g, script = job(gang(3))
    h = started(hand, g, script, (StartTasks("ps", 0, 1), StartTasks("w", 0, 3)), workers=6)
    h.skip()
    h(h.granted(ps=0, w=(1, 2, 3)))
    h.skip()
    h(h.worker_lost(1), h.worker_lost(2))
    h.expect("acquire w*2")
    assert not script.bubbles["gang"].granted
    h(h.granted(w=(4, 5)))
    assert len(h.skip("launch")) == 2
    assert script.bubbles["gang"].granted


def test_a_gang_that_lost_all_its_slots_asks_for_all(hand):
    g, script = job(gang())
    h = started(hand, g, script, ALL, workers=3)
    h.skip()
    h(h.granted(ps=0, w=(1, 2)))
    h.skip()
    h(*losses(h.core, h.now))
    h.expect("acquire ps*1, w*2")
    assert "ps[0] waiting, w[0] waiting, w[1] waiting" in script.told()


def test_a_gang_that_lost_all_its_slots_withdraws_what_it_asked_for_besides(hand):
    g, script = job(gang(3))
    h = started(hand, g, script, ALL, workers=4)
    h.skip()
    h(h.granted(ps=0, w=(1, 2)))
    h.skip()
    script.answers = [(StartTasks("w", 2, 3), StopTasks("ps", 0, 1, ""), StopTasks("w", 0, 2, ""))]
    h(h.request("other"))
    h.skip("stop")
    h.expect("acquire w*1")  # the others have not stopped yet
    h(*losses(h.core, h.now))
    assert len(h.skip("withdraw")) == 1
    h.expect("acquire w*1")
    assert len([row for row in h.core.requests.values() if not row.granted]) == 1


def test_outputs_that_are_lost_after_the_conclusion_are_not_made_again(hand):
    def beside(g: Graph) -> None:
        workers_of()(g)
        g.add(body, n=2, name="a")
        g.add(body, name="z", final=True)

    g, script = job(beside)
    h = started(hand, g, script)
    h(h.idle(0))
    h.expect("launch a[0] on 0")
    h(h.done("a[0]"))
    script.answers = [(Conclude("succeeded", "enough"),)]
    h(h.request("end"), h.idle(0))
    h.expect("launch z[0] on 0")
    h(h.output_lost("a[0]"))
    h.expect()
    h(h.done("z[0]"))
    h.expect("complete succeeded")


def test_a_concluded_gang_gives_its_idle_slots_back_before_final_vertices_run(hand):
    def with_final(g: Graph) -> None:
        gang()(g)
        g.add(body, name="z", final=True)

    g, script = job(with_final)
    h = started(hand, g, script, ALL, workers=3)
    h.skip()
    h(h.granted(ps=0, w=(1, 2)))
    h.skip()
    h(h.done("w[0]"))
    script.answers = [(Conclude("succeeded", "well"),)]
    h(h.request("end"))
    h.skip("stop", "free")
    h.expect()
    h(h.stopped("ps[0]"), h.stopped("w[1]"), h.idle(2))
    assert sorted(h.skip()) == ["launch z[0] on 2", "release 0", "release 1", "release 2"]
    h(h.done("z[0]"))
    assert h.skip()[-1] == "complete succeeded"


def test_a_whole_bubble_of_other_vertices_waits_and_fails_instead_of_shrinking(hand):
    g = Graph("g")
    a = g.add(body, n=2, name="a")
    b = g.add(body, n=2, name="b")
    g.bubble(a, b, name="both", whole=True)
    g.finish()
    h = hand(g)
    h.expect("acquire a*2, b*2")
    h(h.refused("a", "it needs 4 slots at once; the session has 2"))
    assert h.skip()[-1] == "complete failed: a[0] it needs 4 slots at once; the session has 2"


# ------------------------------------------------------------------------------------------------- control vertices


def steered(g: Graph) -> None:
    """A control vertex before controlled workers, which wait for its event."""
    g.task(body, controlled(g.control(body, name="c")), n=2, name="w", controlled=True, resources=LIGHT)


def asked(h: Hand, by: str, name: str, payload: Any = None) -> str:
    """Let a vertex ask the controller; return what it is replied."""
    h(h.emitted(by, DECIDE, ("token", "request", "", (name, payload), "it was measured")))
    return next(command.text for command in reversed(h.said) if isinstance(command, Reply))


def test_a_control_vertex_asks_the_controller_as_users_do(hand):
    g, script = job(steered)
    h = started(hand, g, script, (), (StartTasks("w", 0, 1),))
    h.expect("start c[0]")
    script.told()
    assert asked(h, "c", "scale", {"w": 1}) == ""
    assert script.told()[0] == "request scale"
    h.skip("reply")
    h(h.emitted("c", "ready"))
    h.expect("publish c[0] ready", "start w[0]")
    change = next(one for one in explain(h.core).changes if "request" in one.what)
    assert change.what == "control vertex c decides: request 'scale' of the controller with {'w': 1}"
    assert change.seen == "it was measured"


def test_only_control_vertices_of_controlled_vertices_ask_the_controller(hand):
    def both(g: Graph) -> None:
        steered(g)
        g.task(body, controlled(g.control(body, name="other")), name="plain")

    g, script = job(both)
    h = started(hand, g, script)
    h.skip()
    assert "controls no vertex that the controller" in asked(h, "other", "scale")
    h.skip("reply")
    assert "is not a service" in asked(h, "w", "scale")
    h.skip("reply")
